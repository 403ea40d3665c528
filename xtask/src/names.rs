//! Checks the files, and the names in them, that ARCHITECTURE.md, docs/faults.md and the pages of
//! docs/design mention.

use std::fs;

use crate::{package::rust_files, step::root};

/// Returns the code spans of a line: the text between backticks.
fn spans(line: &str) -> impl Iterator<Item = &str> {
    line.split('`').skip(1).step_by(2)
}

/// Joins wrapped lines into paragraphs: a name may stand on the line after its file.
fn paragraphs(text: &str) -> Vec<String> {
    let starts = |line: &str| line.is_empty() || line.starts_with(['|', '#', '-']) || line.contains(". **");
    let mut found = vec![String::new()];
    for line in text.lines() {
        match found.last_mut() {
            Some(last) if !starts(line) => *last = format!("{last} {line}"),
            _ => found.push(line.to_owned()),
        }
    }
    found
}

/// Returns the faults of the names in a text: each `crates/...rs` and `tests/...rs` must exist, and
/// contain the names in the brackets after it or after a comma.
fn wrong_names(text: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    for paragraph in paragraphs(text) {
        let mut file = None;
        for span in spans(&paragraph) {
            if ["crates/", "tests/"].iter().any(|top| span.starts_with(top)) && span.ends_with(".rs") {
                file = fs::read_to_string(root().join(span)).ok();
                if file.is_none() {
                    wrong.push(format!("{span} does not exist"));
                }
            } else if let (Some(content), Some(name)) = (&file, span.rsplit("::").next()) {
                let is_name = name.chars().all(|c| c.is_alphanumeric() || c == '_');
                if is_name && !content.contains(name) {
                    wrong.push(format!("`{span}` is not in the file named before it: {paragraph}"));
                }
            }
        }
    }
    wrong
}

#[test]
fn architecture_names_what_the_code_has() {
    let text = fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap_or_default();
    assert!(text.contains("| 8 commit |"), "ARCHITECTURE.md has no table of stages");
    assert_eq!(wrong_names(&text), Vec::<String>::new());
}

#[test]
fn tests_that_hold_faults_exist() {
    let text = fs::read_to_string(root().join("docs/faults.md")).unwrap_or_default();
    assert!(
        text.lines().filter(|line| line.contains("`tests/tests/")).count() > 20,
        "docs/faults.md has no table"
    );
    assert_eq!(wrong_names(&text), Vec::<String>::new());
}

/// Returns the last cells of the rows of a table of the threat model.
fn last_cells(page: &str, table: &str) -> Vec<String> {
    let (_, after) = page.split_once(&format!("<!-- table: {table} -->\n")).unwrap_or_default();
    let rows = after.lines().skip(2).take_while(|line| line.starts_with('|'));
    rows.filter_map(|row| Some(row.trim_matches('|').rsplit('|').next()?.trim().to_owned())).collect()
}

#[test]
fn every_bound_of_the_threat_model_has_its_test() {
    let read = |path: &str| fs::read_to_string(root().join(path)).unwrap_or_default();
    let page = read("docs/threat-model.md");
    let peer = rust_files(&root().join("tests/tests/hostile_peer"));
    let peer = peer.into_iter().map(|file| fs::read_to_string(file).unwrap_or_default());
    let of_parts = [
        "fs/src/spool.rs",
        "engine/src/source/catalogue.rs",
        "transport/src/accept.rs",
        "transport/src/standing/further/tests.rs",
    ]
    .map(|file| read(&format!("crates/dsync-{file}")));
    let tests: String = peer.chain(of_parts).collect();
    let missing = |name: &str| !tests.contains(&format!("fn {name}()"));

    for table in ["bounds", "shares"] {
        let cells = last_cells(&page, table);
        assert!(cells.len() > 5, "no table {table}");
        let names = cells.iter().map(|cell| cell.trim_matches('`'));
        let missing: Vec<_> = names.filter(|name| *name != "all of them" && missing(name)).collect();
        assert_eq!(missing, [""; 0], "{table}");
    }

    // These name one test, several, or those of the row above.
    for table in ["beside", "phases"] {
        let cells = last_cells(&page, table);
        assert!(!cells.is_empty(), "no table {table}");
        let named = cells.iter().flat_map(|cell| spans(cell)).filter(|name| name.contains('_'));
        let missing: Vec<_> = named.filter(|name| missing(name)).collect();
        assert_eq!(missing, [""; 0], "{table}");
    }
}

#[test]
fn design_pages_are_short_and_name_what_the_code_has() {
    let pages = fs::read_dir(root().join("docs/design")).into_iter().flatten().flatten();
    let pages: Vec<_> = pages.map(|page| page.path()).collect();
    assert!(pages.len() > 5, "docs/design has no pages");
    for path in pages {
        let text = fs::read_to_string(&path).unwrap_or_default();
        assert_eq!(wrong_names(&text), Vec::<String>::new(), "{}", path.display());
        // The page on congestion control lists the figures of each heuristic, which a test compares
        // with the simulation.
        let most = if path.ends_with("congestion.md") { 200 } else { 80 };
        assert!(text.lines().count() <= most, "{} has more than {most} lines", path.display());
    }
}

#[test]
fn tests_of_heuristics_exist() {
    let page = fs::read_to_string(root().join("docs/design/congestion.md")).unwrap_or_default();
    let tests = root().join("crates/dsync-transport/src/quic/congestion/sim/tests.rs");
    let tests = fs::read_to_string(tests).unwrap_or_default();
    // Only names of tests have so many words on this page.
    let named: Vec<_> = spans(&page).filter(|span| span.matches('_').count() > 3).collect();
    assert!(named.len() > 20, "the page names {} tests", named.len());
    let missing = named.into_iter().filter(|name| !tests.contains(&format!("fn {name}()")));
    assert_eq!(missing.collect::<Vec<_>>(), Vec::<&str>::new());
}

#[test]
fn stale_names_are_caught() {
    assert_eq!(wrong_names("`tests/tests/race.rs` (`no_such_test`)").len(), 1);
    assert_eq!(wrong_names("`crates/none/src/none.rs`").len(), 1);
    assert_eq!(wrong_names("`crates/dsync-fs/src/walk.rs` (`NoSuchThing`)").len(), 1);
    assert_eq!(wrong_names("`crates/dsync-fs/src/walk.rs`\n(`Walk`)"), Vec::<String>::new());
}
