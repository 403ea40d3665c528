//! Known differences: the changes that `-i` lists where both programs leave the same tree.

use super::{Known, Seen};
use crate::tree::Node;

/// The entries of the section.
pub(super) const ENTRIES: &[Known] = &[
    Known {
        says: "A file with setuid or setgid bits or a capability is listed with the owner or group that changes.",
        explains: |seen| {
            let has_bits = |node: &Node| {
                let is_capability = |(name, _): &(String, Vec<u8>)| name == "security.capability";
                node.mode & 0o6000 != 0 || node.xattrs.iter().any(is_capability)
            };
            let is_one = seen.namesakes().any(has_bits);
            is_one
                && codes(seen).is_some_and(|(ours, theirs)| {
                    ours.starts_with(".f")
                        && ours.contains(['o', 'g'])
                        && without(ours, &[5, 6, 7, 10]) == without(theirs, &[5, 6, 7, 10])
                })
        },
    },
    Known {
        says: "With `-H`, the name that is listed as sent is the first in the order of directories.",
        explains: |seen| {
            let is_either = codes(seen).is_some_and(|(ours, theirs)| {
                [ours, theirs].iter().filter(|code| code.starts_with("hf")).count() == 1
            });
            seen.case.has_letter('H') && seen.is_linked() && is_either
        },
    },
    Known {
        says: "A root that the run makes is listed as new.",
        explains: |seen| {
            let is_only = seen.finding.line == "only dsync lists cd+++++++++: '.'";
            let is_listed_so = codes(seen).is_some_and(|(ours, _)| ours == "cd+++++++++");
            seen.case.has(&["--link-dest", "--copy-dest", "--compare-dest"])
                && seen.path() == "."
                && (is_only || is_listed_so)
        },
    },
];

/// Returns what a name is listed with by dsync and by rsync.
fn codes<'a>(seen: &'a Seen<'_>) -> Option<(&'a str, &'a str)> {
    seen.finding.line.rsplit_once("': listed as ")?.1.split_once(", should be ")
}

/// Returns a code without the letters of some columns.
fn without(code: &str, columns: &[usize]) -> String {
    code.char_indices().filter(|(at, _)| !columns.contains(at)).map(|(_, letter)| letter).collect()
}
