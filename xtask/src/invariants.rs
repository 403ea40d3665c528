//! Holds `docs/invariants.md` and the sources together.
//!
//! The law: every code in a source (S5, D3, B38) has a row, and every row names a module that
//! exists and a test function that exists. A range in a source, "B38 to B52", stands for all codes
//! between its ends.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use crate::step::root;

/// The places to search for codes.
const SOURCES: &[&str] = &[
    "crates",
    "tests",
    "benches",
    "fuzz",
    "xtask",
    "docs",
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
    "README.md",
];
/// The list itself, and this check, whose examples are no references.
const LIST: &str = "docs/invariants.md";
const CHECK: &str = "xtask/src/invariants.rs";
const KINDS: [u8; 3] = [b'S', b'D', b'B'];

/// A code: its kind and its number.
type Code = (char, u32);

/// Returns the code that `word` is.
fn code(word: &str) -> Option<Code> {
    let (kind, number) = word.split_at_checked(1)?;
    let known = KINDS.contains(&kind.as_bytes()[0]) && (1..=2).contains(&number.len());
    (known && number.bytes().all(|digit| digit.is_ascii_digit()))
        .then(|| Some((kind.chars().next()?, number.parse().ok()?)))
        .flatten()
}

/// Returns the codes of a text, with all that its ranges stand for.
fn codes(text: &str) -> BTreeSet<Code> {
    let mut found = BTreeSet::new();
    // The last code, if only "to" has come since.
    let (mut last, mut range): (Option<Code>, bool) = (None, false);
    for word in text.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty()) {
        let Some(now) = code(word) else {
            range = word == "to" && last.is_some();
            last = last.filter(|_| range);
            continue;
        };
        match last {
            Some((kind, from)) if range && kind == now.0 => found.extend((from..=now.1).map(|n| (kind, n))),
            _ => drop(found.insert(now)),
        }
        (last, range) = (Some(now), false);
    }
    found
}

/// Returns the code spans of a text.
fn spans(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// Returns whether `text` has a test function of this name.
fn has_test(text: &str, name: &str) -> bool {
    let header = format!("fn {name}(");
    let lines: Vec<&str> = text.lines().collect();
    lines.iter().enumerate().any(|(at, line)| {
        let attributes = lines[at.saturating_sub(6)..at].iter().rev();
        line.trim_start().starts_with(&header)
            && attributes.take_while(|line| !line.trim().is_empty()).any(|line| line.trim() == "#[test]")
    })
}

/// Returns the faults of a cell that names files and, behind each, things in it. It must name a
/// file, and if `tests` are named a thing in each file.
fn wrong_cell(cell: &str, tests: bool) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut files = 0;
    let mut things = 0;
    let mut file: Option<(&str, String)> = None;
    for span in spans(cell) {
        if span.ends_with(".rs") {
            files += 1;
            file = fs::read_to_string(root().join(span)).ok().map(|text| (span, text));
            if file.is_none() {
                wrong.push(format!("{span} does not exist"));
            }
        } else if let Some((path, text)) = &file {
            things += 1;
            let there = if tests { has_test(text, span) } else { text.contains(span) };
            if !there {
                wrong.push(format!("{path} has no {} {span}", if tests { "test" } else { "item" }));
            }
        }
    }
    if files == 0 || (tests && things < files) {
        wrong.push("nothing is named".to_owned());
    }
    wrong
}

/// Returns the rows of the list with their codes, and all that is wrong with them.
fn rows(list: &str) -> (BTreeSet<Code>, Vec<String>) {
    let (mut known, mut wrong) = (BTreeSet::new(), Vec::new());
    for row in list.lines().filter(|line| line.starts_with('|')) {
        let cells: Vec<&str> = row.trim_matches('|').split(" | ").map(str::trim).collect();
        let Some(code) = code(cells[0]) else { continue };
        if !known.insert(code) {
            wrong.push(format!("{} has two rows", cells[0]));
        }
        let [_, _, kept, shown] = cells[..] else {
            wrong.push(format!("{} has {} cells, not 4", cells[0], cells.len()));
            continue;
        };
        let faults = wrong_cell(kept, false).into_iter().chain(wrong_cell(shown, true));
        wrong.extend(faults.map(|fault| format!("{}: {fault}", cells[0])));
    }
    (known, wrong)
}

/// Returns every text file below `path`, except build products.
fn texts(path: &Path) -> Vec<PathBuf> {
    if !path.is_dir() {
        return vec![path.to_owned()];
    }
    let below = fs::read_dir(path).into_iter().flatten().flatten().map(|entry| entry.path());
    below
        .filter(|path| {
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            let text = [".rs", ".md", ".toml"].iter().any(|end| name.ends_with(end));
            name != "target" && (text || path.is_dir())
        })
        .flat_map(|path| texts(&path))
        .collect()
}

#[test]
fn every_row_names_a_module_and_a_test() {
    let list = fs::read_to_string(root().join(LIST)).unwrap_or_default();
    let (known, wrong) = rows(&list);
    assert!(known.len() > 40, "{LIST} has no tables");
    assert_eq!(wrong, Vec::<String>::new());
}

#[test]
fn every_code_in_the_sources_has_a_row() {
    let list = fs::read_to_string(root().join(LIST)).unwrap_or_default();
    let (known, _) = rows(&list);
    let mut missing = Vec::new();
    let mut seen = BTreeSet::new();
    for path in SOURCES.iter().flat_map(|top| texts(&root().join(top))) {
        if path.ends_with(LIST) || path.ends_with(CHECK) {
            continue;
        }
        let found = codes(&fs::read_to_string(&path).unwrap_or_default());
        missing.extend(found.difference(&known).map(|(kind, n)| format!("{}: {kind}{n}", path.display())));
        seen.extend(found);
    }
    assert!(seen.len() > 20, "the sources have no codes");
    assert_eq!(missing, Vec::<String>::new());
}

#[test]
fn stale_rows_and_unknown_codes_are_caught() {
    let row = |kept, shown| rows(&format!("| S1 | holds | {kept} | {shown} |")).1.len();
    let (kept, shown) = ("`crates/dsync-wire/src/name.rs` (`Name`)", "`tests/tests/screen.rs`");
    let test = "`tests/tests/screen.rs` (`no_name_of_any_end_reaches_the_screen_or_the_log_raw`)";
    assert_eq!(row(kept, test), 0);
    assert_eq!(row(kept, shown), 1, "a file is no test");
    assert_eq!(row(kept, "`tests/tests/screen.rs` (`no_such_test`)"), 1);
    assert_eq!(row("`crates/dsync-wire/src/none.rs`", test), 1);
    assert_eq!(row("`crates/dsync-wire/src/name.rs` (`NoSuchThing`)", test), 1);
    assert_eq!(row("", test), 1);
    assert!(!has_test("fn helper() {}\n\n#[test]\nfn real() {}", "helper"));
    assert!(has_test("#[test]\n#[ignore]\nfn real() {}", "real"));
}

#[test]
fn ranges_stand_for_all_between() {
    assert_eq!(codes("rows B15 to B17 and B31"), [('B', 15), ('B', 16), ('B', 17), ('B', 31)].into());
    assert_eq!(codes("S5, D13; ABI::V5, S100, to D2"), [('S', 5), ('D', 13), ('D', 2)].into());
    assert_eq!(codes("S1 goes to S3"), [('S', 1), ('S', 3)].into());
}
