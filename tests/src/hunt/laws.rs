//! Laws that a run keeps whatever rsync does: no entry of the table of known differences excuses a
//! breach.
//!
//! The table looks at one line of a comparison at a time, so an entry that is too wide could hide a
//! file that is lost. These laws look at whole trees instead, before and after the run.

use std::collections::BTreeMap;

use super::{
    areas,
    case::{Carrier, Case},
    judge::{Class, Finding},
    known, options,
    world::Survey,
};
use crate::{
    compare::{Facts, Scope, compare, show},
    run::Outcome,
    tree::Kind,
};

/// The trees before a run and after those of both programs.
pub(super) struct Trees<'a> {
    pub before: &'a Survey,
    /// After rsync, unless it refused the run.
    pub theirs: Option<&'a Survey>,
    /// Whether rsync did all that it was asked for.
    pub is_theirs_done: bool,
    pub ours: &'a Survey,
}

/// Returns the breaches of a case, each as a finding.
pub(super) fn breaches(case: &Case, trees: &Trees<'_>, dsync: &Outcome) -> Vec<Finding> {
    let mut lines = lost(case, trees);
    if case.has(&["-n"]) {
        let changed = compare(trees.before, trees.ours, Scope::EVERYTHING);
        lines.extend(changed.into_iter().map(|line| format!("changed by -n: {line}")));
    } else {
        lines.extend(written_at_the_source(case, trees));
        if dsync.code() == Some(0) && is_whole(case) {
            lines.extend(absent(case, trees));
            lines.extend(undressed(case, trees));
        }
    }
    lines.into_iter().map(|line| Finding { class: Class::Law, line }).collect()
}

/// Returns the old files whose content rsync kept somewhere and dsync nowhere, under whatever name.
/// Where rsync could not do all, it may have kept what it was to replace or remove; only backups
/// owe each old file then.
fn lost(case: &Case, trees: &Trees<'_>) -> Vec<String> {
    let counts = trees.is_theirs_done || case.has(&["-b", "--backup-dir"]);
    // Which entries go under a limit is not said, and each program chooses others. What the files of rules of
    // another operand leave out goes with rsync's directory or stays in it.
    let counts = counts && !case.has(&["--max-delete"]) && !(has_several_rules(case) && case.deletes());
    // With `-m` a directory that a link leads to takes a file's place, though nothing is in it.
    let counts = counts && !(case.has_letter('m') && case.follows());
    // Each program reads the files of rules of a remote end otherwise.
    let counts = counts
        && (case.carrier == Carrier::Local
            || !(case.has(&["-0", "--from0"]) && known::reads_rule_files(case)));
    let Some(theirs) = trees.theirs.filter(|_| counts) else { return Vec::new() };
    let (kept, ours) = (contents(theirs), contents(trees.ours));
    let old = contents(trees.before).into_iter().filter(|(_, path)| !gave_way_to_a_backup(case, trees, path));
    let old = old.filter(|(_, path)| !got_the_sources(case, trees, path));
    old.filter(|(content, _)| kept.contains_key(content) && !ours.contains_key(content))
        .map(|(_, path)| format!("lost, but kept by rsync, the content of: {}", show(path)))
        .collect()
}

/// Returns whether several operands have files of rules, each its own ones.
fn has_several_rules(case: &Case) -> bool {
    case.operands.len() > 2 && known::reads_rule_files(case)
}

/// Returns whether a name has the content that the source's has, where rsync may have left it: as it became
/// a link to another one that was sent, while rsync looked at that name alone and found its size right; or
/// as each of several operands has its own files of rules, while rsync goes by the first one's in all.
fn got_the_sources(case: &Case, trees: &Trees<'_>, path: &[u8]) -> bool {
    let may_stay = case.has_letter('H') || has_several_rules(case);
    let Some(within) = path.strip_prefix(b"w/d/").filter(|_| may_stay) else { return false };
    let ours = trees.ours.get(path);
    let is_it = |source: &Facts| ours.is_some_and(|ours| ours.content == source.content);
    [&b"w/s/"[..], b"w/s2/"].iter().any(|root| trees.before.get(&[root, within].concat()).is_some_and(is_it))
}

/// Returns whether a file was a backup of an earlier run whose place now has that of its successor:
/// the very content that the destination had under the name before, or a directory as it had there. A
/// directory of backups gives way too, with all that is in it.
fn gave_way_to_a_backup(case: &Case, trees: &Trees<'_>, path: &[u8]) -> bool {
    if gave_way_beside(case, trees, path) {
        return true;
    }
    let value = case.options.iter().find_map(|option| option.strip_prefix("--backup-dir="));
    let place = value.map(options::place);
    let Some(place) = place.filter(|place| path.starts_with(&[place.as_bytes(), b"/"].concat())) else {
        return false;
    };
    let suffix = case.options.iter().find_map(|option| option.strip_prefix("--suffix=")).unwrap_or_default();

    let below = place.len() + 1;
    let ends = (below..=path.len()).filter(|&end| path.get(end).is_none_or(|&byte| byte == b'/'));
    ends.map(|end| &path[..end]).any(|taken| {
        let name = taken[below..].strip_suffix(suffix.as_bytes()).unwrap_or(&taken[below..]);
        let old = trees.before.get(&[b"w/d/", name].concat());
        let here = trees.ours.get(taken).filter(|here| taken == path || here.kind != "dir");
        old.zip(here).is_some_and(|(old, here)| (old.kind, &old.content) == (here.kind, &here.content))
    })
}

/// Returns whether a backup beside its original gave way to that of a file for which an alternate
/// directory has another one. rsync makes no backup of such a file, so the older one stays.
fn gave_way_beside(case: &Case, trees: &Trees<'_>, path: &[u8]) -> bool {
    const ALTERNATES: &[&str] = &["--link-dest", "--copy-dest", "--compare-dest"];
    if !case.has(&["-b"]) || case.has(&["--backup-dir"]) || !case.has(ALTERNATES) {
        return false;
    }
    let suffix = case.options.iter().find_map(|option| option.strip_prefix("--suffix=")).unwrap_or("~");

    // A name that the source has is no backup's, which is then a suffix longer.
    let originals = std::iter::successors(path.strip_suffix(suffix.as_bytes()), |name| {
        name.strip_suffix(suffix.as_bytes())
    });
    let here = trees.ours.get(path);
    originals
        .filter_map(|name| trees.before.get(name))
        .any(|old| here.is_some_and(|here| (old.kind, &old.content) == (here.kind, &here.content)))
}

/// Returns the contents of all files that have any, each with a name.
fn contents(survey: &Survey) -> BTreeMap<&[u8], &[u8]> {
    let files = survey.iter().filter(|(_, facts)| facts.kind == "file" && facts.size > 0);
    files.map(|(path, facts)| (&facts.content[..], &path[..])).collect()
}

/// Returns the changes that a run made to its sources, or beside all that it was given.
fn written_at_the_source(case: &Case, trees: &Trees<'_>) -> Vec<String> {
    let moves = case.has(&["--remove-source-files", "--remove-sent-files"]);
    let roots: &[&[u8]] = if moves { &[b"w/out"] } else { &[b"w/out", b"w/s", b"w/s2"] };
    // The destination is where its operand leads.
    let destination = led_to(case);
    let is_within = |path: &[u8], root: &[u8]| {
        path.strip_prefix(root).is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
    };
    let is_destination = |path: &[u8], root: &[u8]| {
        let led = destination.as_deref().map(str::as_bytes);
        led.is_some_and(|led| is_within(led, root) && is_within(path, led))
    };
    let is_in = |path: &[u8]| roots.iter().any(|root| is_within(path, root) && !is_destination(path, root));
    let part = |survey: &Survey| -> Survey {
        let part = survey.iter().filter(|(path, _)| is_in(path));
        part.map(|(path, facts)| (path.clone(), facts.clone())).collect()
    };
    let changed = compare(&part(trees.before), &part(trees.ours), Scope::EVERYTHING);
    changed.into_iter().map(|line| format!("written where nothing belongs: {line}")).collect()
}

/// Number of links on the way to a destination; a loop has no end.
const LINKS: usize = 8;

/// Returns where the destination operand leads.
fn led_to(case: &Case) -> Option<String> {
    let operand = case.operands.last()?.trim_end_matches('/');
    let at = match operand.split_once("@/") {
        Some((_, within)) => within.to_owned(),
        None => format!("{}/{operand}", case.cwd),
    };
    let kind = |path: &[u8]| Some(&case.world.iter().find(|node| node.path == path)?.kind);
    let steps = std::iter::successors(Some(options::place(&format!("@/{at}"))), |at| {
        let mut found = kind(at.as_bytes())?;
        if let Kind::HardLink(first) = found {
            found = kind(first)?;
        }
        let Kind::Symlink(text) = found else { return None };
        let text = String::from_utf8_lossy(text);
        let (parent, _) = at.rsplit_once('/')?;
        let is_absolute = text.starts_with('@');
        Some(options::place(&if is_absolute { text.into_owned() } else { format!("@/{parent}/{text}") }))
    });
    steps.take(LINKS).last()
}

/// Returns the entries of the source that the destination lacks or has otherwise.
fn absent(case: &Case, trees: &Trees<'_>) -> Vec<String> {
    let sources = trees.before.iter().filter_map(|(path, facts)| Some((path.strip_prefix(b"w/s/")?, facts)));
    sources
        .filter(|(within, facts)| {
            let new = trees.ours.get(&[b"w/d/", *within].concat());
            let is_equal = |new: &Facts| {
                new.content == facts.content || is_taken_for_equal(case, trees.before, new, facts)
            };
            let is_there = match facts.kind {
                "file" => new.is_some_and(|new| new.kind == "file" && is_equal(new)),
                "dir" => new.is_some_and(|new| new.kind == "dir") || case.has_letter('m'),
                "symlink" => {
                    !case.has_letter('l')
                        || new.is_some_and(|new| new.kind == "symlink" && new.content == facts.content)
                }
                _ => true,
            };
            !is_there
        })
        .map(|(within, _)| format!("exit code 0 without the source's own: {}", show(within)))
        .collect()
}

/// Returns the files of the destination that have not the attributes of the source's, as far as the run
/// keeps them and nothing maps them.
fn undressed(case: &Case, trees: &Trees<'_>) -> Vec<String> {
    // The attributes of one name are those of all.
    let shares = !case.has_letter('H') && trees.before.keys().any(|path| is_shared_there(trees, path));
    if case.is_nobody || case.has(MAPPING) || case.has_letter('E') || shares {
        return Vec::new();
    }
    let keeps = |letter| case.has_letter(letter);
    // Special bits stay only with their owner.
    let bits = if keeps('o') && keeps('g') { 0o7777 } else { 0o777 };
    let differs = |new: &Facts, old: &Facts| {
        let names = [
            (keeps('p') && new.mode & bits != old.mode & bits, "mode"),
            (keeps('t') && !is_cut(new.mtime, old.mtime) && !is_cut(old.mtime, new.mtime), "time"),
            (keeps('o') && new.owner.0 != old.owner.0, "owner"),
            (keeps('g') && new.owner.1 != old.owner.1, "group"),
        ];
        names.into_iter().filter(|(differs, _)| *differs).map(|(_, name)| name).collect::<Vec<_>>()
    };
    let sources = trees.before.iter().filter_map(|(path, facts)| Some((path.strip_prefix(b"w/s/")?, facts)));
    let files = sources.filter(|(_, facts)| facts.kind == "file");
    let pairs = files.filter_map(|(within, facts)| {
        let new = trees.ours.get(&[b"w/d/", within].concat()).filter(|new| new.kind == "file")?;
        let names = differs(new, facts);
        (!names.is_empty()).then(|| (within, names.join(" and ")))
    });
    pairs
        .map(|(within, names)| format!("exit code 0 without the source's {names} of: {}", show(within)))
        .collect()
}

/// Options that give entries other attributes than the source's.
const MAPPING: &[&str] = &["--chmod", "--chown", "--usermap", "--groupmap"];

/// Returns whether an old file of the destination has several names.
fn is_shared_there(trees: &Trees<'_>, path: &[u8]) -> bool {
    let is_there = path.starts_with(b"w/d/");
    is_there && trees.before.get(path).is_some_and(|facts| facts.kind == "file" && facts.inode.is_some())
}

/// Returns whether a time is another one as a filesystem keeps it, which may be in steps of 100 ns, 1 us,
/// 1 ms, 10 ms or 1 s.
fn is_cut(kept: (i64, i64), whole: (i64, i64)) -> bool {
    let steps = [1, 100, 1_000, 1_000_000, 10_000_000, 1_000_000_000];
    kept.0 == whole.0 && steps.iter().any(|step| kept.1 == whole.1 - whole.1 % step)
}

/// Returns whether a file is an old one with the size and the time of the source's, so that it was
/// taken for equal.
fn is_taken_for_equal(case: &Case, before: &Survey, here: &Facts, source: &Facts) -> bool {
    let looks_equal = |old: &Facts| {
        (old.kind, &old.content) == ("file", &here.content)
            && old.size == source.size
            && (is_cut(old.mtime, source.mtime) || is_cut(source.mtime, old.mtime))
    };
    !case.has_letter('c') && !case.has_letter('I') && before.values().any(looks_equal)
}

/// Options after which the destination may lack what the source has.
const SELECTING: &[&str] = &[
    "-n",
    "-u",
    "-d",
    "-R",
    "-K",
    "--old-dirs",
    "--size-only",
    "--existing",
    "--ignore-existing",
    "--modify-window",
    "--append",
    "--append-verify",
    "--safe-links",
    "--max-size",
    "--min-size",
    "--exclude",
    "--include",
    "--partial-dir",
    "--compare-dest",
    "--fake-super",
];

/// Returns whether all that the one source has belongs into the destination.
fn is_whole(case: &Case) -> bool {
    case.has_one_tree()
        && !areas::selects(case)
        && !case.has(areas::LINKS)
        && !case.has(SELECTING)
        && case.options.first().is_some_and(|option| option.starts_with("-a") || option == "-r")
        && !case.options.iter().any(|option| options::name(option).starts_with("--no-"))
}
