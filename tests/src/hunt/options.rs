//! The options that a case can have, and the spellings of their directories.

use super::dice::Dice;

/// Options for the attributes that a run keeps.
const KEPT: &[&[&str]] = &[&["-a"], &["-a"], &["-a"], &["-aHAX"], &["-aHAX"]];

/// Letters of `-a`, for runs that have only some of them.
const LETTERS: &[&str] = &["-l", "-p", "-t", "-g", "-o", "-D"];

/// Options without a directory; `@` is the world's root.
pub(super) const PLAIN: &[&str] = &[
    "-H",
    "-A",
    "-X",
    "-S",
    "-K",
    "-U",
    "-c",
    "-I",
    "-u",
    "-W",
    "-O",
    "-J",
    "-E",
    "-n",
    "-b",
    "-x",
    "-z",
    "--size-only",
    "--existing",
    "--ignore-existing",
    "--modify-window=0",
    "--modify-window=1",
    "--suffix=.old",
    "--inplace",
    "--append",
    "--append-verify",
    "--preallocate",
    "--chmod=D755,F640",
    "--chmod=u+w,go-w",
    "--chown=1:2",
    "--usermap=0:7",
    "--groupmap=*:9",
    "--numeric-ids",
    "--delay-updates",
    "--safe-links",
    "--delete",
    "--delete-before",
    "--delete-during",
    "--delete-after",
    "--delete-delay",
    "--delete-excluded",
    "--max-delete=2",
    "--ignore-errors",
    "--force",
    "--max-size=3K",
    "--min-size=10",
    "--exclude=*a*",
    "--exclude=*/",
    "--exclude=/sub/",
    "--exclude=b",
    "--exclude=*.old",
    "--include=*b*",
    "--include=a",
    "--fake-super",
    "--partial",
    "--open-noatime",
    "--remove-source-files",
    "--remove-sent-files",
    "--ignore-missing-args",
    "--delete-missing-args",
    "--mkpath",
    "-m",
    "-R",
    "--no-implied-dirs",
    "--old-dirs",
];

/// Options whose value is a directory.
pub(super) const DIRECTORIES: &[&str] =
    &["--backup-dir", "--partial-dir", "--temp-dir", "--link-dest", "--copy-dest", "--compare-dest"];

/// Options that only dsync has; rsync does not get them.
const OWN: &[&str] = &["--durability", "--allow-empty-source", "--transport", "--detect-renamed", "--state"];

/// Pairs that one of the programs refuses, or whose second option has no effect beside the first.
const APART: &[(&[&str], &[&str])] = &[
    (&["--inplace", "--append", "--append-verify"], &["--partial-dir", "--delay-updates", "--link-dest"]),
    (&["--append"], &["--append-verify"]),
    (&["--append", "--append-verify"], &["-W"]),
    (&["--remove-source-files", "--remove-sent-files"], DELETING),
    (&["--remove-source-files", "--remove-sent-files"], &["--durability"]),
    (&["--remove-source-files"], &["--remove-sent-files"]),
    (&["--link-dest"], &["--copy-dest", "--compare-dest"]),
    (&["--copy-dest"], &["--compare-dest"]),
    (&["--delete-before"], &["--delete-during", "--delete-after", "--delete-delay"]),
    (&["--delete-during"], &["--delete-after", "--delete-delay"]),
    (&["--delete-after"], &["--delete-delay"]),
    (&["--chown"], &["--usermap", "--groupmap"]),
    (&["--size-only"], &["-I"]),
    (&["-u"], &["--modify-window"]),
];

/// Options that delete.
pub(super) const DELETING: &[&str] = &[
    "--delete",
    "--delete-before",
    "--delete-during",
    "--delete-after",
    "--delete-delay",
    "--delete-excluded",
    "--delete-missing-args",
];

/// Returns an option without its value, as it is counted.
pub(super) fn name(option: &str) -> &str {
    option.split('=').next().unwrap_or(option)
}

/// Returns whether only dsync knows the option.
pub(super) fn is_own(option: &str) -> bool {
    OWN.contains(&name(option))
}

/// Returns every option that pairs are made of.
pub(super) fn all() -> Vec<&'static str> {
    let mut names: Vec<&str> = PLAIN.iter().map(|option| name(option)).collect();
    names.dedup();
    names.extend(DIRECTORIES);
    names
}

/// The directories that options name, relative to the world's root; `%` is another filesystem's.
const PLACES: &[&str] = &["w/bk", "w/bk", "w/d/.bk", "w/d/sub/bk", "w/d/bk", "%/bk"];

/// Chooses the options of a case.
pub(super) fn choose(dice: &mut Dice, without: &[String]) -> Vec<String> {
    let mut options: Vec<String> = Vec::new();
    if dice.chance(75) {
        options.extend(dice.pick(KEPT).iter().map(ToString::to_string));
    } else {
        options.push((*dice.pick(&["-r", "-r", "-r", "-d"])).into());
        options.extend(LETTERS.iter().filter(|_| dice.chance(60)).map(ToString::to_string));
    }
    let extra = *dice.pick(&[1, 2, 2, 2, 3, 3, 4, 6]);
    let mut chosen = Vec::new();
    for _ in 0..extra {
        let at = dice.below(PLAIN.len() + 2 * DIRECTORIES.len());
        let option = match PLAIN.get(at) {
            Some(option) => (*option).to_owned(),
            None => {
                let option = DIRECTORIES[(at - PLAIN.len()) % DIRECTORIES.len()];
                format!("{option}={}", directory(dice, option))
            }
        };
        let repeats = ["--exclude", "--include"].contains(&name(&option));
        // rsync gives a repeated letter another meaning.
        let is_given = option.len() == 2 && options.iter().any(|other| other.contains(&option[1..]));
        let is_new =
            !is_given && (repeats || chosen.iter().all(|other: &String| name(other) != name(&option)));
        if is_new && !without.iter().any(|word| word == name(&option)) {
            chosen.push(option);
        }
    }
    if !dice.chance(15) {
        chosen.push("--durability=none".into());
    } else if dice.chance(30) {
        chosen.push("--durability=file".into());
    }
    if !dice.chance(3) {
        chosen.push("--allow-empty-source".into());
    }
    options.extend(chosen);
    apart(options)
}

/// Drops options that cannot stand beside an earlier one.
fn apart(options: Vec<String>) -> Vec<String> {
    let mut kept: Vec<String> = Vec::new();
    for option in options {
        if !clashes(&kept, &option) {
            kept.push(option);
        }
    }
    kept
}

/// Returns whether an option cannot stand beside one of these.
pub(super) fn clashes(others: &[String], option: &str) -> bool {
    let option = name(option);
    others.iter().map(|other| name(other)).any(|other| {
        APART.iter().any(|(one, two)| {
            one.contains(&other) && two.contains(&option) || two.contains(&other) && one.contains(&option)
        })
    })
}

/// Returns a spelling of a directory for one option.
fn directory(dice: &mut Dice, option: &str) -> String {
    let place = match option {
        "--link-dest" | "--copy-dest" | "--compare-dest" => {
            *dice.pick(&["w/alt", "w/alt", "w/alt", "w/d/alt", "%/alt"])
        }
        "--temp-dir" => *dice.pick(&["w/temp", "w/d/temp", "w/d/.temp", "%/temp"]),
        "--partial-dir" if dice.chance(60) => return (*dice.pick(&[".part", ".part/", "sub"])).into(),
        // A relative one is a single name.
        "--partial-dir" => {
            return (*dice.pick(&["@/w/part", "@/w/d/part/", "%/part", "@/w/here/d/part", "../part"])).into();
        }
        _ => *dice.pick(PLACES),
    };
    spell(dice, place)
}

/// Spells a place as seen from the destination `w/d`, in one of many ways.
fn spell(dice: &mut Dice, place: &str) -> String {
    let Some(within) = place.strip_prefix("w/") else {
        // Another filesystem has no relative path from here.
        return if dice.chance(30) { format!("{place}/") } else { place.to_owned() };
    };
    let relative = match within.strip_prefix("d/") {
        Some(inside) => inside.to_owned(),
        None => format!("../{within}"),
    };
    match dice.below(10) {
        0..=2 => relative,
        3 => format!("./{relative}"),
        4 => format!("../d/{relative}"),
        5 => format!("@/w/{within}"),
        6 => format!("@/w/{within}/"),
        7 => format!("@/w/here/{within}"),
        8 => format!("../here/{within}"),
        _ => format!("{relative}/"),
    }
}

/// Returns the place that a directory's spelling leads to, relative to the world's root, `%` for
/// the other filesystem's.
pub(super) fn place(value: &str) -> String {
    let value = value.trim_end_matches('/');
    let from_root = match value.strip_prefix("@/") {
        Some(path) => path.to_owned(),
        None if value.starts_with('%') => return value.to_owned(),
        None => format!("w/d/{value}"),
    };
    let mut parts: Vec<&str> = Vec::new();
    for part in from_root.split('/') {
        match part {
            "" | "." | "here" => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts.join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_spelling_leads_to_its_place() {
        let mut dice = Dice::new(1);
        for wanted in ["w/bk", "w/d/sub/bk", "%/bk"] {
            for _ in 0..50 {
                let spelling = spell(&mut dice, wanted);
                assert_eq!(place(&spelling), wanted, "{spelling}");
            }
        }
    }

    #[test]
    fn options_that_exclude_each_other_are_never_together() {
        let mut dice = Dice::new(2);
        for _ in 0..500 {
            let options = choose(&mut dice, &[]);
            let has = |option: &str| options.iter().any(|other| name(other) == option);
            assert!(!(has("--inplace") && has("--link-dest")), "{options:?}");
        }
    }
}
