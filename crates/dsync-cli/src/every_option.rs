//! The table of every option of rsync in `docs/from-rsync.md`, made from the tables of the flags.
//!
//! No option's row is written by hand: "no" and "no effect" come from the tables
//! that decide them, and "different" from the page itself, which says in a row or a bold sentence
//! what differs, by the option's long name or its letter.

use std::{fmt::Write as _, path::Path};

use crate::flags::{
    accepted::Accepted,
    command,
    unsupported::{Foreign, RSYNC_LONG},
};

/// The marks around the table in the page.
const BEGIN: &str = "<!-- Made from the options: run the tests of dsync-cli with DSYNC_BLESS=1. -->\n";
const END: &str = "<!-- End of the table. -->\n";

/// Options with which dsync does more than rsync, in a few words.
const BETTER: &[(&str, &str)] = &[
    ("append-verify", "a power cut during it is noticed by the next run"),
    ("bwlimit", "one rate for all lanes together"),
    ("checksum", "BLAKE3 on all cores"),
    ("compress", "the codec follows the bottleneck; what does not get smaller is sent as it is"),
    ("dry-run", "the same decisions as the run"),
    ("inplace", "the delta keeps working, and the old file stays until the new content is there"),
    ("max-delete", "also a share: --max-delete=10%"),
    ("partial", "verified segments with a journal; resumed without reading all of it again"),
    ("remove-source-files", "a file leaves the source when its copy is on the disk"),
    ("sparse", "holes are found at the source, not only by zeros"),
];

/// Returns the cells of an option: what it is in dsync, and why.
fn row(name: &str, letter: Option<char>, page: &str) -> (&'static str, String) {
    let word = format!("--{name}");
    if let Some(foreign) = Foreign::find(&word) {
        return ("no", foreign.advice.unwrap_or_default().to_owned());
    }
    if name == "timeout" || name == "contimeout" {
        return ("different", "[a limit by default](#options)".to_owned());
    }
    let in_table =
        |line: &str| line.starts_with('|') && line.split('|').nth(1).is_some_and(|cell| names(cell, &word));
    if page.lines().any(in_table) {
        return ("different", "[told here](#options)".to_owned());
    }
    if let Some(accepted) = Accepted::find(&word) {
        return ("no effect", accepted.reason.to_owned());
    }
    if let Some((_, why)) = BETTER.iter().find(|(better, _)| *better == name) {
        return ("better", (*why).to_owned());
    }
    let by_letter = |text: &str| letter.is_some_and(|letter| names_letter(text, letter));
    let in_table = |line: &str| line.starts_with('|') && line.split('|').nth(1).is_some_and(by_letter);
    if page.lines().any(in_table) {
        return ("different", "[told here](#options)".to_owned());
    }
    let bold = |line: &str| line.starts_with("- **") && (names(line, &word) || by_letter(line));
    if page.lines().any(bold) {
        return ("different", "in some cases, told above".to_owned());
    }
    ("same", String::new())
}

/// Returns whether a text names an option: no longer one that begins like it.
fn names(text: &str, word: &str) -> bool {
    text.match_indices(word).any(|(at, _)| {
        !text[at + word.len()..].starts_with(|next: char| next.is_ascii_alphanumeric() || next == '-')
    })
}

/// Returns whether a text names an option by its letter, alone or among others: `-H`, `-yy`, `-M OPTION`.
/// "Without `-p`" tells of runs that lack the option.
fn names_letter(text: &str, letter: char) -> bool {
    let parts: Vec<&str> = text.split('`').collect();
    parts.chunks_exact(2).any(|pair| {
        let [outside, code] = pair else { return false };
        let is_lacking = outside.ends_with("without ") || outside.ends_with("Without ");
        let has_letter = |word: &str| {
            let letters = word.strip_prefix('-').unwrap_or_default();
            letters.chars().take_while(char::is_ascii_alphanumeric).any(|own| own == letter)
        };
        !is_lacking && code.split_whitespace().any(has_letter)
    })
}

/// Returns the letter of an option, as `H` for `hard-links`.
fn letter_of(name: &str, command: &clap::Command) -> Option<char> {
    let is_meant = |arg: &&clap::Arg| {
        arg.get_long() == Some(name) || arg.get_all_aliases().unwrap_or_default().contains(&name)
    };
    command.get_arguments().find(is_meant).and_then(clap::Arg::get_short)
}

fn table(page: &str) -> String {
    let command = command();
    let mut names: Vec<&str> = RSYNC_LONG.split_whitespace().collect();
    names.sort_unstable();
    let mut counts = std::collections::BTreeMap::<&str, usize>::new();
    let mut rows = String::new();
    for name in &names {
        let (state, why) = row(name, letter_of(name, &command), page);
        *counts.entry(state).or_default() += 1;
        writeln!(rows, "| `--{name}` | {state} | {why} |").unwrap_or_default();
    }
    let of = |state| counts.get(state).copied().unwrap_or_default();
    format!(
        "{BEGIN}\nOf {} long options {} are the same, {} better, {} different, {} are taken without effect, and {} do not exist \
         yet.\n\n| option | in dsync | |\n|---|---|---|\n{rows}\n{END}",
        names.len(),
        of("same"),
        of("better"),
        of("different"),
        of("no effect"),
        of("no"),
    )
}

#[test]
fn every_option_of_rsync_has_a_true_row() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/from-rsync.md");
    let page = std::fs::read_to_string(&path).expect("the page");
    let (before, rest) = page.split_once(BEGIN).expect("the beginning of the table");
    let (_, after) = rest.split_once(END).expect("the end of the table");
    // Its own rows say nothing about themselves.
    let made = format!("{before}{}{after}", table(&format!("{before}{after}")));
    if std::env::var_os("DSYNC_BLESS").is_some() {
        std::fs::write(&path, &made).expect("the page");
    }
    let kept = std::fs::read_to_string(&path).expect("the page");
    assert!(kept == made, "docs/from-rsync.md is out of date: run the tests of dsync-cli with DSYNC_BLESS=1");
}

#[test]
fn option_is_not_named_by_a_longer_one() {
    assert!(names("- **With `--delete`, x**", "--delete"));
    assert!(!names("- **With `--delete-after`, x**", "--delete"));
}

#[test]
fn option_is_named_by_its_letter_too() {
    for text in ["- **With `-H -u`, x**", "| `-y`, `-uu` |", "x `--delete` and `-u FILE`"] {
        assert!(names_letter(text, 'u'), "{text}");
    }
    for text in ["- **Without `-u`, x**", "With `-a` and without `-u`, x", "`--update`", "`update`", "-u"] {
        assert!(!names_letter(text, 'u'), "{text}");
    }
    assert_eq!(letter_of("hard-links", &command()), Some('H'));
    assert_eq!(letter_of("delete", &command()), None);
}
