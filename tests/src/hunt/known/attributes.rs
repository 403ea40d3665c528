//! Known differences: attributes.

use super::Known;
use crate::{
    hunt::judge::Class,
    tree::{Kind, Node},
};

/// The entries of the section.
pub(super) const ENTRIES: &[Known] = &[
    Known {
        says: "A directory keeps none of the permissions that its user gives himself to work in it.",
        explains: |seen| {
            let is_directory = seen.namesakes().any(|node| matches!(node.kind, Kind::Dir));
            let is_more = |(ours, theirs): (u16, u16)| ours & !theirs == 0 && theirs & !ours & !0o700 == 0;
            let keeps = is_directory && seen.modes().is_some_and(is_more);
            let is_unread = seen.about(&["mode", "extended attributes"]) && seen.rsync_says_of_it("opendir");
            seen.case.is_nobody && (keeps || is_unread)
        },
    },
    Known {
        says: "With `--modify-window`, a directory that gets other attributes gets its time too.",
        explains: |seen| {
            let is_close = seen.seconds().is_some_and(|(ours, theirs)| ours.abs_diff(theirs) <= 1);
            seen.case.has(&["--modify-window"]) && is_close
        },
    },
    Known {
        says: "With `--ignore-existing`, what stands in the place of a directory stays as it is.",
        explains: |seen| {
            seen.case.has(&["--ignore-existing"])
                && seen.about(&["mtime", "mode", "owner", "extended attributes"])
                && (seen.is_of_several_types() || seen.is_linked())
        },
    },
    Known {
        says: "Without `-p`, a new directory with attributes has no setuid or sticky bit either.",
        explains: |seen| {
            let is_special =
                |(ours, theirs): (u16, u16)| ours & 0o5000 == 0 && theirs == ours | theirs & 0o5000;
            seen.case.has_letter('X') && !seen.case.has_letter('p') && seen.modes().is_some_and(is_special)
        },
    },
    Known {
        says: "An access control list has one entry for each user, also when owners are mapped.",
        explains: |seen| {
            seen.case.has(&["--chown", "--usermap", "--groupmap"]) && seen.about(&["extended attributes"])
        },
    },
    Known {
        says: "Without `-p`, an entry that replaces one of another type gets a mode of its own.",
        explains: |seen| seen.about(&["mode"]) && !seen.case.has_letter('p') && seen.is_of_several_types(),
    },
    Known {
        says: "Without `-p`, an old file that cannot be read keeps its mode.",
        explains: |seen| {
            let is_foreign = |node: &Node| node.owner == Some((0, 0));
            seen.about(&["mode"])
                && seen.case.is_nobody
                && !seen.case.has_letter('p')
                && seen.namesakes().any(is_foreign)
        },
    },
    Known {
        says: "Setuid, setgid and sticky bits and capabilities of a file stay only with its owner.",
        explains: |seen| {
            let keeps = "pog".chars().all(|letter| seen.case.has_letter(letter)) && !seen.case.is_nobody;
            let drops_bits =
                |(ours, theirs): (u16, u16)| ours & 0o7000 != theirs & 0o7000 && (ours ^ theirs) & 0o777 == 0;
            let drops_capability = |(ours, theirs): (&str, &str)| {
                !ours.contains("security.capability") && theirs.contains("security.capability")
            };
            // A file that may not have the bits of its counterpart in an alternate directory is
            // neither linked to it nor left out.
            let is_own = ["not one file: ", "extra: "].iter().any(|what| seen.finding.line.starts_with(what));
            let is_link = seen.is(Class::Tree)
                && is_own
                && seen.case.has(&["--link-dest", "--copy-dest", "--compare-dest"]);
            let lost = seen.modes().is_some_and(drops_bits) || seen.values().is_some_and(drops_capability);
            !keeps && (lost || is_link)
        },
    },
    Known {
        says: "A list that XFS shows as an attribute is no attribute.",
        explains: |seen| {
            seen.about(&["extended attributes"]) && seen.finding.line.contains("trusted.SGI_ACL_")
        },
    },
    Known {
        says: "Lists and attributes of an entry are not asked of another that has its name.",
        explains: |seen| {
            let said = seen.rsync.stderr_text();
            let asks = ["ACL_TYPE_DEFAULT): Permission denied", "gen_entry_copy_xattrs: openat"];
            seen.is(Class::Exit) && asks.iter().any(|words| said.contains(words))
        },
    },
];
