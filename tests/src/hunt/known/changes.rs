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
            // The first name of a file has the attributes of all.
            let is_linked_to_one = seen.is_linked() && seen.case.world.iter().any(has_bits);
            let is_one = is_linked_to_one || seen.namesakes().any(has_bits);
            // Without -p there is nothing left to list then.
            let is_alone = only(seen).is_some_and(|code| without(code, &[1, 6, 7]) == "........");
            let is_alone = is_alone && seen.finding.line.starts_with("only dsync lists ");
            let is_listed = codes(seen).is_some_and(|(ours, theirs)| {
                [".f", ".D", ".S"].iter().any(|kind| ours.starts_with(kind))
                    && ours.contains(['o', 'g'])
                    && without(ours, &[5, 6, 7, 10]) == without(theirs, &[5, 6, 7, 10])
            });
            is_one && (is_alone || is_listed)
        },
    },
    Known {
        says: "With `-H`, which of a file's names is listed with a change and which as linked to it is not said.",
        explains: |seen| {
            let is_link = |code: &str| code.starts_with('h');
            let is_either = codes(seen).is_some_and(|(ours, theirs)| is_link(ours) || is_link(theirs));
            let is_only = only(seen).is_some_and(is_link);
            seen.case.has_letter('H') && seen.is_linked() && (is_either || is_only)
        },
    },
    Known {
        says: "Without `-H`, a change of attributes is listed with each of a file's names.",
        explains: |seen| {
            let is_change = only(seen).is_some_and(|code| code.starts_with('.'));
            let is_ours = seen.finding.line.starts_with("only dsync lists ");
            !seen.case.has_letter('H') && seen.is_linked() && is_change && is_ours
        },
    },
    Known {
        says: "A directory that is made beside an equal one of an alternate directory may be listed as new.",
        explains: |seen| {
            let is_made = |code: &str| code.starts_with("cd");
            let are_made = codes(seen).is_some_and(|(ours, theirs)| is_made(ours) && is_made(theirs));
            seen.case.has(&["--link-dest", "--copy-dest", "--compare-dest"])
                && (are_made || only(seen).is_some_and(is_made))
        },
    },
    Known {
        says: "A root that `--mkpath` makes is listed as new.",
        explains: |seen| {
            let is_new = codes(seen).is_some_and(|(ours, _)| ours == "cd+++++++++");
            seen.case.has(&["--mkpath"]) && seen.path() == "." && is_new
        },
    },
    Known {
        says: "With `-U`, a link is listed with its access time.",
        explains: |seen| {
            let is_link = |code: &str| code.get(1..2) == Some("L");
            let is_only = seen.finding.line.starts_with("only dsync lists .L......u..: ");
            let is_more = codes(seen).is_some_and(|(ours, theirs)| {
                is_link(ours) && is_link(theirs) && without(ours, &[8]) == without(theirs, &[8])
            });
            seen.case.has_letter('U') && (is_only || is_more)
        },
    },
    Known {
        says: "A file that `--append-verify` has to send again is listed once.",
        explains: |seen| {
            let is_again = seen.rsync.stderr_text().contains("failed verification -- update retained");
            // rsync lists it twice.
            let is_one = |(ours, theirs): (&str, &str)| theirs.split(' ').any(|code| code == ours);
            seen.case.has(&["--append-verify"]) && is_again && codes(seen).is_some_and(is_one)
        },
    },
];

/// Returns what a name is listed with by dsync and by rsync.
fn codes<'a>(seen: &'a Seen<'_>) -> Option<(&'a str, &'a str)> {
    seen.finding.line.rsplit_once("': listed as ")?.1.split_once(", should be ")
}

/// Returns what a name is listed with by the one program that lists it.
fn only<'a>(seen: &'a Seen<'_>) -> Option<&'a str> {
    let (_, rest) = seen.finding.line.strip_prefix("only ")?.split_once(" lists ")?;
    rest.split_once(": '").map(|(code, _)| code)
}

/// Returns a code without the letters of some columns.
fn without(code: &str, columns: &[usize]) -> String {
    code.char_indices().filter(|(at, _)| !columns.contains(at)).map(|(_, letter)| letter).collect()
}
