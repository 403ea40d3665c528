//! Known differences: under `--fake-super`.

use super::{Known, seen::Attributes};
use crate::{
    hunt::judge::Class,
    tree::{Kind, Node},
};

/// The entries of the section.
pub(super) const ENTRIES: &[Known] = &[
    Known {
        says: "Under `--fake-super`, what really is a device, a fifo or a socket is replaced by a file that stands for it.",
        explains: |seen| {
            let says = seen.rsync.stderr_text();
            let is_special =
                |node: &Node| !matches!(node.kind, Kind::Dir | Kind::Spliced(_) | Kind::Symlink(_));
            let has_special = seen.case.world.iter().any(is_special);
            let suffix = if seen.case.has(&["--suffix"]) { ".old" } else { "~" };
            let is_its_backup = seen.is_within(&["--backup-dir"])
                || seen.has_place_in(seen.path())
                || seen.case.has(&["-b"]) && seen.path().ends_with(suffix);
            seen.case.has(&["--fake-super"])
                && (seen.namesakes().any(is_special) && seen.is(Class::Tree)
                    || has_special && is_its_backup && seen.is(Class::Tree)
                    || says.contains("user.rsync.") && says.contains("not permitted"))
        },
    },
    Known {
        says: "Under `--fake-super`, a file of the user's own whose note cannot be read is replaced.",
        explains: |seen| {
            let says = seen.rsync.stderr_text();
            let fails =
                says.contains("failed to read xattr user.rsync.%stat") && says.contains("Permission denied");
            seen.case.has(&["--fake-super"]) && seen.case.is_nobody && fails
        },
    },
    Known {
        says: "Under `--fake-super`, a backup lets a real symbolic link be replaced.",
        explains: |seen| {
            let says = seen.rsync.stderr_text();
            let fails = says.contains("symlink \"") && says.contains("Too many levels of symbolic links");
            // rsync's copy of a link to another filesystem is an empty file.
            let is_link =
                |node: &Node| matches!(node.kind, Kind::Symlink(_)) && node.path.starts_with(b"w/d");
            let is_lost = seen.about(&["size", "content"])
                && seen.is_within(&["--backup-dir"])
                && seen.is_empty_after_rsync()
                && (seen.namesakes().any(is_link) || seen.is_linked() && seen.case.world.iter().any(is_link));
            let backs_up = seen.case.has(&["-b", "--backup", "--backup-dir"]);
            seen.case.has(&["--fake-super"]) && backs_up && (fails || is_lost)
        },
    },
    Known {
        says: "Under `--fake-super`, a line of `--files-from` that names a link in a circle is missing.",
        explains: |seen| {
            let is_missed = seen.dsync.stderr_text().contains("leads in a circle");
            let is_told = seen.is(Class::Exit)
                && (seen.rsync.code(), seen.dsync.code()) == (Some(0), Some(23))
                || seen.about(&["type"])
                || seen.finding.line.starts_with("missing: ");
            let has_both = seen.case.has(&["--fake-super"]) && seen.case.has(&["--files-from"]);
            has_both && is_missed && is_told
        },
    },
    Known {
        says: "`-J` leaves the time of a link that `--fake-super` keeps in a file too.",
        explains: |seen| {
            let is_symlink = |node: &Node| matches!(node.kind, Kind::Symlink(_));
            // An operand that is copied to another name has no namesakes.
            let is_link = match seen.namesakes().next() {
                Some(_) => seen.namesakes().any(is_symlink),
                None => seen.case.world.iter().any(is_symlink),
            };
            seen.case.has(&["--fake-super"]) && seen.case.has_letter('J') && seen.about(&["mtime"]) && is_link
        },
    },
    Known {
        says: "`-U` holds for a link that `--fake-super` keeps in a file too.",
        explains: |seen| {
            let is_link = |node: &Node| matches!(node.kind, Kind::Symlink(_));
            seen.case.has(&["--fake-super"])
                && seen.case.has_letter('U')
                && seen.about(&["atime"])
                && seen.namesakes().any(is_link)
        },
    },
    Known {
        says: "Under `--fake-super`, an entry that says all by itself has no note and keeps its mode.",
        explains: |seen| {
            let of_the_note = |text: &str| text.contains("user.rsync.%stat");
            let lacks_note =
                seen.values().is_some_and(|(ours, theirs)| !of_the_note(ours) && of_the_note(theirs));
            let is_more = |(ours, theirs): (u16, u16)| {
                [0o600, 0o700].iter().any(|least| theirs == ours & 0o777 | least)
            };
            let gives_more = seen.modes().is_some_and(is_more);
            let is_link = seen.namesakes().any(|node| matches!(node.kind, Kind::Symlink(_)));
            let masks_link = is_link && !seen.case.has_letter('p') && seen.about(&["mode"]);
            let keeps_all = "pog".chars().all(|letter| seen.case.has_letter(letter));
            let owner_is_anybody = !keeps_all
                && seen.values().is_some_and(|(ours, theirs)| of_the_note(ours) && of_the_note(theirs));
            seen.case.has(&["--fake-super"]) && (lacks_note || gives_more || masks_link || owner_is_anybody)
        },
    },
    Known {
        says: "Under `--fake-super`, a user's directory that may not be read is opened up, with a note of its mode.",
        explains: |seen| {
            let is_shut = |node: &Node| matches!(node.kind, Kind::Dir) && node.mode & 0o700 != 0o700;
            seen.case.has(&["--fake-super"])
                && seen.case.is_nobody
                && seen.about(&["mode", "extended attributes", "mtime"])
                && seen.namesakes().any(is_shut)
        },
    },
    Known {
        says: "Under `--fake-super`, a new entry of a setgid directory has that directory's group.",
        explains: |seen| {
            let parent = seen.path().rsplit_once('/').map_or("", |(parent, _)| parent);
            let is_setgid = |node: &Node| {
                let is_parent = node.path.escape_ascii().to_string() == parent;
                matches!(node.kind, Kind::Dir) && is_parent && node.mode & 0o2000 != 0
            };
            let has_note = |(ours, theirs): (&Attributes<'_>, &Attributes<'_>)| {
                let others = ours.iter().filter(|(name, _)| **name != NOTE);
                ours.contains_key(NOTE) && others.eq(theirs.iter())
            };
            let is_noted = seen.about(&["owner"])
                || seen.attributes().is_some_and(|(ours, theirs)| has_note((&ours, &theirs)));
            seen.case.has(&["--fake-super"]) && is_noted && seen.case.world.iter().any(is_setgid)
        },
    },
    Known {
        says: "Under `--fake-super`, an entry with attributes of its own has the note of its ACL too.",
        explains: |seen| {
            let of_a_list =
                |text: &str| text.contains("user.rsync.%aacl") || text.contains("user.rsync.%dacl");
            let is_kept = seen.values().is_some_and(|(ours, theirs)| of_a_list(ours) && !of_a_list(theirs));
            let has_own = seen.namesakes().any(|node| !node.xattrs.is_empty());
            let keeps = ['A', 'X'].iter().all(|&letter| seen.case.has_letter(letter));
            seen.case.has(&["--fake-super"]) && keeps && is_kept && has_own
        },
    },
];

/// The attribute that says what an entry is.
const NOTE: &str = "user.rsync.%stat";
