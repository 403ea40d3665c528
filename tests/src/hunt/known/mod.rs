//! Intended differences from rsync, each with its reason. `docs/from-rsync.md` describes each for
//! users.
//!
//! An entry excuses as little as possible: one kind of finding, under the options that cause it.
//! Behaviour that is merely worse than rsync's is a finding, not an entry. Each section of the page
//! has a module of its name for its entries.

mod attributes;
mod backups;
mod changes;
mod deleting;
mod fake_super;
mod links;
mod lists;
mod names;
mod places;
mod reading;
mod rule_files;
mod seen;
mod writing;

pub(super) use self::{rule_files::of_case as reads_rule_files, seen::Seen};

use super::judge::Class;

/// An intended difference.
pub(super) struct Known {
    /// Its sentence in `docs/from-rsync.md`.
    pub says: &'static str,
    /// Returns whether it explains a finding.
    explains: fn(&Seen<'_>) -> bool,
}

/// The headings of the page, each with its entries.
const SECTIONS: &[(&str, &[Known])] = &[
    ("Deleting", deleting::ENTRIES),
    ("Reading", reading::ENTRIES),
    ("Links", links::ENTRIES),
    ("Attributes", attributes::ENTRIES),
    ("Under --fake-super", fake_super::ENTRIES),
    ("Backups", backups::ENTRIES),
    ("Writing", writing::ENTRIES),
    ("Directories that options name", places::ENTRIES),
    ("Files of rules", rule_files::ENTRIES),
    ("Lists of names", names::ENTRIES),
    ("Lists", lists::ENTRIES),
    (CHANGES, changes::ENTRIES),
];

/// The section whose entries are about lists of changes, and nothing else.
const CHANGES: &str = "Changes that are listed";

/// Returns the sentence of the first entry that explains a finding.
pub(super) fn excuse(seen: &Seen<'_>) -> Option<&'static str> {
    let is_of_lists = seen.finding.class == Class::List;
    let sections = SECTIONS.iter().filter(|(heading, _)| is_of_lists == (*heading == CHANGES));
    let mut entries = sections.flat_map(|(_, entries)| *entries);
    entries.find(|known| (known.explains)(seen)).map(|known| known.says)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_and_table_have_the_same_entries_in_the_same_order() {
        let page = include_str!("../../../../docs/from-rsync.md");
        let told: Vec<(&str, Vec<String>)> = page.split("\n## ").skip(1).map(section).collect();
        // Sections without entries tell of what the hunt does not look for, and so does this one.
        let is_drawn = |heading: &str| {
            !["Names between character sets", "While others change the trees"].contains(&heading)
        };
        let told: Vec<_> = told
            .into_iter()
            .filter(|(heading, sentences)| !sentences.is_empty() && is_drawn(heading))
            .collect();
        let meant = SECTIONS.iter().map(|(heading, entries)| {
            (*heading, entries.iter().map(|known| known.says.to_owned()).collect::<Vec<_>>())
        });
        assert_eq!(told, meant.collect::<Vec<_>>());
    }

    /// Returns the heading of a section, and the bold sentences of its list.
    fn section(text: &str) -> (&str, Vec<String>) {
        let (heading, list) = text.split_once('\n').expect("a heading's line");
        let items = list.split("\n- **").skip(1);
        let sentences = items.map(|item| item.split("**").next().unwrap_or_default());
        (heading, sentences.map(|words| words.split_whitespace().collect::<Vec<_>>().join(" ")).collect())
    }
}
