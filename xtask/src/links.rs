//! Checks the links of pages: each target exists, and so does its heading.

use std::{
    fs,
    path::{Path, PathBuf},
};

#[cfg(test)]
use crate::step::root;

/// Returns the targets of a page's links and pictures.
fn targets(text: &str) -> impl Iterator<Item = &str> {
    text.split("](").skip(1).filter_map(|rest| rest.split(')').next())
}

/// Returns the anchor that a heading gets on the project's page.
fn anchor(heading: &str) -> String {
    let title = heading.trim_start_matches('#').trim().to_lowercase();
    let kept = title.chars().filter(|c| c.is_alphanumeric() || [' ', '-', '_'].contains(c));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}

/// Returns whether a page has a heading with that anchor.
fn has_anchor(page: &str, wanted: &str) -> bool {
    page.lines().filter(|line| line.starts_with('#')).any(|line| anchor(line) == wanted)
}

/// Returns the dead links of a page with this text.
pub(crate) fn dead(page: &Path, text: &str) -> Vec<String> {
    let here = page.parent().map_or_else(PathBuf::new, Path::to_owned);
    let leads_nowhere = |target: &&str| {
        let (file, wanted) = target.split_once('#').unwrap_or((target, ""));
        let to = if file.is_empty() { page.to_owned() } else { here.join(file) };
        let lacks = |wanted| !fs::read_to_string(&to).is_ok_and(|text| has_anchor(&text, wanted));
        !to.exists() || !wanted.is_empty() && lacks(wanted)
    };
    let own = targets(text).filter(|target| !target.contains("://"));
    own.filter(leads_nowhere).map(|target| format!("{}: {target}", page.display())).collect()
}

/// Returns every page of the project.
#[cfg(test)]
fn pages() -> Vec<PathBuf> {
    let in_dir = |dir: &str| {
        let entries = fs::read_dir(root().join(dir)).into_iter().flatten().flatten();
        entries.map(|entry| entry.path()).filter(|path| path.extension().is_some_and(|end| end == "md"))
    };
    ["", "docs", "docs/design", "docs/notebook"].iter().flat_map(|dir| in_dir(dir)).collect()
}

#[test]
fn every_link_leads_somewhere() {
    let pages = pages();
    assert!(pages.len() > 20, "{pages:?}");
    let dead_in = |page: &PathBuf| dead(page, &fs::read_to_string(page).unwrap_or_default());
    let dead: Vec<_> = pages.iter().flat_map(dead_in).collect();
    assert_eq!(dead, Vec::<String>::new());
}

#[test]
fn dead_links_are_caught() {
    let links =
        "[a](none.md) [b](docs/limits.md#none) [c](docs/limits.md#options) [d](#none) [e](https://none/)";
    assert_eq!(dead(&root().join("README.md"), links).len(), 3);
    assert!(has_anchor("## Keys for one purpose\n", "keys-for-one-purpose"));
    assert!(has_anchor("# `-S`, and \"so on\"\n", "-s-and-so-on"));
    assert!(!has_anchor("Keys\n", "keys"));
    assert_eq!(targets("[a](b.md#c) ![d](e.svg)").collect::<Vec<_>>(), ["b.md#c", "e.svg"]);
}
