//! Known differences: links.

use super::{Known, Seen};
use crate::{
    compare::Facts,
    hunt::judge::Class,
    tree::{Kind, Node},
};

/// The entries of the section.
pub(super) const ENTRIES: &[Known] = &[
    Known {
        says: "With `-L`, `-k` or `--copy-unsafe-links`, a link to a directory that the way there came through is named and left out.",
        explains: |seen| {
            let says = seen.dsync.stderr_text();
            seen.case.follows() && says.contains("it leads in a circle")
        },
    },
    Known {
        says: "A link that cannot be followed is told unless rules exclude it both as a file and as a directory.",
        explains: |seen| {
            let has_rules = ["--exclude", "--exclude-from", "--filter", "--include", "--include-from"];
            seen.is(Class::Exit)
                && (seen.rsync.code(), seen.dsync.code()) == (Some(0), Some(23))
                && seen.dsync.stderr_text().contains("cannot follow the link '")
                && seen.case.has(&has_rules)
        },
    },
    Known {
        says: "An end that is bound to a directory refuses an operand that is an absolute link.",
        explains: |seen| {
            let says = seen.dsync.stderr_text();
            let is_absolute = |node: &Node| matches!(&node.kind, Kind::Symlink(text) if text.starts_with(b"@") || text.starts_with(b"/"));
            seen.case.is_confined
                && seen.is(Class::Exit)
                && seen.dsync.code() == Some(42)
                && ["refusing destination '", "refusing source '"].iter().any(|words| says.contains(words))
                && says.contains("leads out of what may be used")
                && seen.case.world.iter().any(is_absolute)
        },
    },
    Known {
        says: "A destination that is another user's link to nowhere gives way.",
        explains: |seen| {
            let is_foreign = |node: &Node| {
                matches!(node.kind, Kind::Symlink(_)) && node.owner.is_some_and(|(uid, _)| uid != 0)
            };
            let says = seen.rsync.stderr_text();
            seen.is(Class::Exit)
                && (seen.rsync.code(), seen.dsync.code()) == (Some(3), Some(0))
                && says.contains("cannot stat destination ")
                && says.contains("Permission denied (13)")
                && seen.case.world.iter().any(is_foreign)
        },
    },
    Known {
        says: "A path of a list that leads through a link out of the directory that an end is bound to is told.",
        explains: |seen| {
            seen.case.is_confined
                && seen.case.has(&["--files-from"])
                && seen.dsync.code() == Some(23)
                && seen.dsync.stderr_text().contains("it leads out of what the other end may use")
        },
    },
    Known {
        says: "With `-m`, a link to a directory that is followed is never an empty directory.",
        explains: |seen| {
            let prunes = seen.case.has_letter('m') || seen.case.has(&["--prune-empty-dirs"]);
            // The destination's entry of that name gives way to it.
            let is_link =
                |node: &Node| matches!(node.kind, Kind::Symlink(_)) && node.path.starts_with(b"w/s");
            let gives_way = seen.finding.line.contains(r#"': type is "dir", should be "#)
                && seen.namesakes().any(is_link);
            let is_either = seen.is_presence() || seen.is(Class::Tree) && gives_way;
            // Its directory stays too then, with the time of the removal of what was beside it.
            let stays =
                seen.is(Class::Second) && seen.case.has(&["--remove-source-files", "--remove-sent-files"]);
            prunes && seen.case.follows() && (is_either || stays)
        },
    },
    Known {
        says: "A link that is followed brings the attributes of what it leads to.",
        explains: |seen| {
            let is_link = |node: &Node| matches!(node.kind, Kind::Symlink(_));
            let is_one = seen.namesakes().any(is_link) || seen.is_linked();
            seen.case.follows() && seen.about(&["extended attributes"]) && is_one
        },
    },
    Known {
        says: "A link that is followed into the destination brings what is there when it is read.",
        explains: |seen| {
            let follows = "Lk".chars().any(|letter| seen.case.has_letter(letter))
                || seen.case.has(&["--copy-unsafe-links"]);
            let leads_there = |node: &Node| match &node.kind {
                Kind::Symlink(text) => text.windows(5).any(|part| part == b"/w/d/"),
                _ => false,
            };
            // rsync has deleted it by then.
            let is_gone = seen.is(Class::Exit)
                && (seen.rsync.code(), seen.dsync.code()) == (Some(24), Some(0))
                && seen.rsync.all_text().contains("file has vanished: ");
            // dsync deletes it afterwards, and the next run finds that it leads nowhere.
            let is_later = seen.is(Class::Second)
                && seen.finding.line.contains("ends with 23: 'dsync: symlink has no referent: ");
            let deletes = (is_gone || is_later)
                && seen.case.deletes()
                && seen.case.world.iter().filter(|node| node.path.starts_with(b"w/s")).any(leads_there);
            // Or it has other permissions by then, from this run.
            let is_changed = (seen.is(Class::Exit) || seen.is(Class::DryRun))
                && seen.dsync.code() == Some(24)
                && ["it changed during the run, at every attempt", "it has vanished"]
                    .iter()
                    .any(|words| seen.dsync.stderr_text().contains(words));
            follows && (deletes || is_changed || seen.is(Class::Tree) && seen.namesakes().any(leads_there))
        },
    },
    Known {
        says: "Under `-K`, a link that stays in the destination is followed however it is written.",
        explains: |seen| {
            seen.case.has_letter('K')
                && seen.dsync.code() == Some(0)
                && seen.rsync.stderr_text().contains("Too many levels of symbolic links")
        },
    },
    Known {
        says: "With `-K`, a link that leads out of the destination is told whether there is anything to write there or not.",
        explains: |seen| {
            let says = seen.dsync.stderr_text();
            seen.case.has(&["-K"]) && says.contains("a link has its name that leads out of the destination")
        },
    },
    Known {
        says: "With `-K`, a link of another user's gives way to the directory.",
        explains: |seen| {
            // rsync puts where the link leads what belongs there.
            let is_elsewhere = (seen.is_presence()
                || seen.about(&["mode", "owner", "mtime", "extended attributes"]))
                && seen.has_foreign_link_for_a_directory();
            seen.case.has(&["-K"]) && seen.is(Class::Tree) && (seen.is_at_a_foreign_link() || is_elsewhere)
        },
    },
    Known {
        says: "With `-K`, a link that is followed keeps its own time and owner.",
        explains: |seen| {
            let is_link = seen.namesakes().any(|node| matches!(node.kind, Kind::Symlink(_)));
            seen.case.has(&["-K"]) && seen.about(&["mtime", "owner"]) && is_link
        },
    },
    Known {
        says: "With `-H`, a file that may not be linked is replaced by an own one.",
        explains: |seen| {
            let says = seen.rsync.stderr_text();
            let fails =
                says.contains("[generator] link \"") && says.contains("failed: Operation not permitted (1)");
            seen.case.has_letter('H') && seen.case.is_nobody && fails
        },
    },
    Known {
        says: "With `-H`, the first name in the order of directories is the one that others are linked to.",
        explains: |seen| {
            let is_unkept = seen.about(&["extended attributes"]) && !seen.case.has_letter('X');
            // The name that is made anew changes its directory, whose time is not set then.
            let inside = format!("{}/", seen.path());
            let holds_one = seen.ours.iter().any(|(path, facts)| {
                let is_several = facts.inode.is_some() && facts.kind == "file";
                is_several
                    && path
                        .escape_ascii()
                        .to_string()
                        .strip_prefix(&inside)
                        .is_some_and(|name| !name.contains('/'))
            });
            let sets_no_time = seen.case.has_letter('O') || !seen.case.has_letter('t');
            let is_new =
                sets_no_time && seen.seconds().is_some_and(|(ours, _)| ours == i64::MAX) && holds_one;
            // The one may have been there, in part or with other content of one size and time.
            let is_sources = seen.about(&["content", "size"]) && seen.is_sources_own();
            let is_real_owner = seen.case.has(&["--fake-super"])
                && (seen.about(&["owner"]) || seen.about(&["extended attributes"]));
            let is_unkept = is_unkept
                || seen.about(&["mode"]) && !seen.case.has_letter('p')
                || seen.about(&["mtime"]) && !seen.case.has_letter('t')
                || seen.about(&["owner"]) && "og".chars().any(|letter| !seen.case.has_letter(letter));
            let is_other = is_unkept || is_sources || is_real_owner;
            let is_extra = seen.finding.line.starts_with("extra: ");
            let has_alternate = seen.case.has(&["--link-dest", "--copy-dest", "--compare-dest"]);
            // Whose other name gives way at the destination is made there by rsync, beside the alternate.
            let is_partner = seen.finding.line.starts_with("missing: ") && seen.case.has(&["--compare-dest"]);
            let is_other = is_other || is_extra && has_alternate || is_partner;
            // The one that is there gives way in another directory, and has a backup.
            let suffix = if seen.case.has(&["--suffix"]) { ".old" } else { "~" };
            let is_beside = seen.case.has(&["-b"]) && seen.path().ends_with(suffix);
            let has_backup = is_extra && (seen.is_within(&["--backup-dir"]) || is_beside);
            let is_replaced = has_backup && seen.ours.values().any(|facts| facts.inode.is_some());
            // The first one is missing, so its content is asked for, and cannot be read.
            let is_unread = (seen.is(Class::Exit)
                && (seen.rsync.code(), seen.dsync.code()) == (Some(0), Some(23))
                || seen.finding.line.starts_with("missing: ")
                || seen.finding.line.starts_with("not one file: "))
                && seen.case.is_nobody
                && seen.dsync.stderr_text().contains("cannot read '")
                && seen.has_links_in_source();
            // Names that only the destination has stay names of the old file.
            let splits = ["not one file: ", "should not be one file: "];
            let is_apart = splits.iter().any(|what| seen.finding.line.starts_with(what))
                && (seen.has_links_in_destination() || has_alternate);
            let is_either = is_new || is_replaced || is_unread || is_apart;
            seen.case.has_letter('H') && (is_other && seen.is_linked() || is_either)
        },
    },
    Known {
        says: "With `-H`, a first name that differs is linked to a later one that is up to date.",
        explains: |seen| {
            // The up-to-date one keeps what is not copied, or cannot be seen, and has no backup.
            let is_hidden = seen.case.is_nobody && seen.finding.line.contains("trusted.");
            let is_unkept = seen.about(&["extended attributes"]) && (!seen.case.has_letter('X') || is_hidden)
                || seen.about(&["mode"]) && !seen.case.has_letter('p')
                || seen.about(&["owner"]) && "og".chars().any(|letter| !seen.case.has_letter(letter));
            let suffix = if seen.case.has(&["--suffix"]) { ".old" } else { "~" };
            let is_beside = seen.case.has(&["-b"]) && seen.path().ends_with(suffix);
            let is_backup = seen.is_within(&["--backup-dir"]) || is_beside;
            let is_missing = seen.finding.line.starts_with("missing: ") && is_backup;
            let is_unread =
                seen.about(&["content"]) && !seen.case.has_letter('c') && !seen.case.has_letter('I');
            let is_linked = (is_unkept || is_unread) && seen.is_linked();
            let is_either = is_linked || is_missing && seen.has_links_in_source();
            seen.case.has_letter('H') && seen.is(Class::Tree) && is_either
        },
    },
    Known {
        says: "With `-H`, a symbolic link of several names has the source's time.",
        explains: |seen| {
            let is_one = |(path, facts): (&Vec<u8>, &Facts)| {
                path.escape_ascii().to_string() == seen.path()
                    && facts.kind == "symlink"
                    && facts.inode.is_some()
            };
            seen.case.has_letter('H') && seen.about(&["mtime"]) && seen.ours.iter().any(is_one)
        },
    },
    Known {
        says: "With `-H -u`, a name that is newer at the destination keeps its content.",
        explains: |seen| {
            let is_kept = seen.finding.paths().iter().any(|path| seen.is_newer_than_the_sources(path));
            seen.case.has_letter('H')
                && seen.case.has(&["-u"])
                && seen.is_linked()
                && seen.is(Class::Tree)
                && tells_names_apart(seen)
                && is_kept
        },
    },
    Known {
        says: "With `-H --append`, a further name that is as long as the source's file stays a file of its own.",
        explains: |seen| {
            let is_kept = seen.finding.paths().iter().any(|path| seen.is_kept_as_long_as_the_sources(path));
            seen.case.has_letter('H')
                && seen.case.has(&["--append", "--append-verify"])
                && seen.is_linked()
                && seen.has_links_in_source()
                && seen.is(Class::Tree)
                && tells_names_apart(seen)
                && is_kept
        },
    },
    Known {
        says: "With `-H`, a name that cannot be made costs none of the file's others.",
        explains: |seen| {
            let stuck = ["could not make way for new", "recv_generator: failed to stat "]
                .iter()
                .any(|words| seen.rsync.all_text().contains(words));
            let is_lost = stuck && seen.finding.line.starts_with("extra: ") && seen.is_linked();
            let fails = seen.is(Class::Exit)
                && (seen.rsync.code() == Some(13) && seen.rsync.stderr_text().contains("Hlink node data")
                    || seen.rsync.code() == Some(2) && stuck
                    // The first one is a link that is left out, or an alternate directory has it.
                    || seen.rsync.code() == Some(2)
                        && seen.rsync.stderr_text().contains("File-list index "));
            seen.case.has_letter('H') && (is_lost || fails)
        },
    },
    Known {
        says: "With `-H --safe-links`, each name of a link is judged by its own place.",
        explains: |seen| {
            let is_left_out = seen.finding.line.starts_with("missing: ")
                || ["not one file: ", "should not be one file: "]
                    .iter()
                    .any(|what| seen.finding.line.starts_with(what));
            seen.case.has_letter('H') && seen.case.has(&["--safe-links"]) && is_left_out && seen.is_linked()
        },
    },
    Known {
        says: "With `-H --existing`, a link that has a file's name gives way to the file.",
        explains: |seen| {
            seen.case.has_letter('H')
                && seen.case.has(&["--existing"])
                && seen.finding.line.starts_with("extra: ")
                && seen.is_sources_own()
                && seen.is_of_several_types()
        },
    },
    Known {
        says: "With `-H`, several operands may share files.",
        explains: |seen| {
            let fails = seen.rsync.stderr_text().contains("precedes flist start");
            seen.is(Class::Exit) && seen.case.has_letter('H') && seen.rsync.code() == Some(2) && fails
        },
    },
    Known {
        says: "A destination that is a link to nowhere gives way to a file, whatever is on the link's way.",
        explains: |seen| {
            let says = seen.rsync.stderr_text();
            let fails = says.contains("cannot stat destination") && says.contains("Not a directory (20)");
            seen.is(Class::Exit) && (seen.rsync.code(), seen.dsync.code()) == (Some(3), Some(0)) && fails
        },
    },
    Known {
        says: "Another user's link that a run has put in the place of the destination is refused by the next one.",
        explains: |seen| {
            let says = "the second run ends with 42: 'dsync: error: refusing destination '";
            // rsync does not look where no operand is left.
            let is_unasked = seen.is(Class::Exit)
                && (seen.rsync.code(), seen.dsync.code()) == (Some(0), Some(42))
                && seen.rsync.all_text().is_empty();
            seen.is(Class::Second) && seen.finding.line.starts_with(says) || is_unasked
        },
    },
    Known {
        says: "Two names of one file at the destination have the attributes of either, if the source has two files of these names.",
        explains: |seen| {
            let is_two = !seen.case.has_letter('H') || seen.is_one_of_two_sources();
            let is_attribute = seen.about(&["mode", "owner", "mtime", "extended attributes"]);
            seen.has_links_in_destination() && is_two && is_attribute && seen.is_linked()
        },
    },
    Known {
        says: "With `--inplace`, two names of one file at the destination become two files where the source has two.",
        explains: |seen| {
            let is_apart = seen.finding.line.starts_with("not one file: ") || seen.is_sources_own();
            // Where some files are to stay as they are, none of several names is written into. With `-U` nobody
            // has looked before.
            let keeps_some = seen.case.has_letter('u')
                || seen.case.has(&["--append", "--append-verify", "--min-size", "--max-size"]);
            let stays_as_it_was = keeps_some && (seen.before.is_none() || seen.is_as_before());
            seen.case.has(&["--inplace", "--append", "--append-verify"])
                && seen.has_links_in_destination()
                && seen.is_linked()
                && seen.is(Class::Tree)
                && tells_names_apart(seen)
                && (is_apart || stays_as_it_was)
        },
    },
];

/// Returns whether the finding is that names of one file are files of their own, or differ as such do.
fn tells_names_apart(seen: &Seen<'_>) -> bool {
    seen.finding.line.starts_with("not one file: ")
        || seen.about(&["content", "size", "mtime", "mode", "owner", "extended attributes"])
}
