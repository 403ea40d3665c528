//! Known differences: writing.

use super::Known;
use crate::{
    hunt::{case::NOBODY, judge::Class},
    tree::{Kind, Node},
};

/// The entries of the section.
pub(super) const ENTRIES: &[Known] = &[
    Known {
        says: "What gives way stays until its successor is there.",
        explains: |seen| {
            let is_unread = seen.rsync_says_of_it("send_files failed to open");
            // rsync backs up the entry that it removes.
            let has_backup = seen.case.has(&["-b", "--backup-dir"])
                && seen.finding.line.starts_with("missing: ")
                && seen.rsync.stderr_text().contains("send_files failed to open");
            // A single file may get another name.
            let is_renamed = seen.case.operands.len() == 2 && seen.rsync.code() == Some(23);
            let is_unread =
                is_unread || is_renamed && seen.rsync.stderr_text().contains("send_files failed to open");
            let is_linked = seen.finding.line.starts_with("should not be one file: ");
            let stays = seen.finding.line.starts_with("extra: ") && is_unread
                || is_linked && seen.rsync.stderr_text().contains("send_files failed to open");
            (stays || has_backup) && seen.dsync.code() == Some(23)
        },
    },
    Known {
        says: "What protects a file that is rewritten in place shows in its directory's time.",
        explains: |seen| {
            let is_in_place = seen.case.has(&["--inplace", "--append", "--append-verify"]);
            let is_kept = seen.case.has_letter('t') && !seen.case.has_letter('O') && seen.path() != "w/d";
            is_in_place && !is_kept && seen.seconds().is_some_and(|(ours, _)| ours == i64::MAX)
        },
    },
    Known {
        says: "With `--append`, what an alternate directory has is no reason to leave a file out.",
        explains: |seen| {
            // The user may not write or read what rsync does not come to.
            let is_refused = seen.is(Class::Exit)
                && (seen.rsync.code(), seen.dsync.code()) == (Some(0), Some(23))
                && seen.case.is_nobody
                && ["cannot write '", "cannot read '"]
                    .iter()
                    .any(|words| seen.dsync.stderr_text().contains(words));
            // A link that is followed is no file at the source.
            let is_link = |node: &Node| matches!(node.kind, Kind::Symlink(_)) && seen.case.follows();
            let is_own = seen.is_sources_own() || seen.namesakes().any(is_link);
            seen.case.has(&["--append", "--append-verify"])
                && (seen.case.has(&["--copy-dest", "--link-dest", "--compare-dest", "--fuzzy"])
                    || seen.case.has_letter('y'))
                && (is_refused
                    || seen.finding.line.starts_with("should not be one file: ")
                    || (seen.finding.line.starts_with("extra: ") || seen.about(&["content", "size"])) && is_own
                    // An old file that is as long stays, whatever it is.
                    || seen.finding.line.starts_with("extra: ")
                        && seen.case.has(&["--compare-dest"])
                        && seen.is_as_long_as_the_sources()
                    || seen.case.has(&["--remove-source-files", "--remove-sent-files"])
                        && (seen.path().starts_with("w/s")
                            // The source's directory has changed, and the next run says so.
                            || seen.is(Class::Second) && seen.finding.line.contains("'.d..t......")))
        },
    },
    Known {
        says: "`-S --append` adds to a file.",
        explains: |seen| {
            // With `--append` the old beginning counts whatever it is.
            let is_right = seen.is_sources_own() || seen.case.has(&["--append"]);
            let fails = seen.rsync.stderr_text().contains("write failed on")
                || seen.about(&["content", "size"]) && is_right;
            seen.case.has_letter('S') && seen.case.has(&["--append", "--append-verify"]) && fails
        },
    },
    Known {
        says: "With `--append`, a file that has further names is written anew, and these keep what they had.",
        explains: |seen| {
            seen.case.has(&["--append", "--append-verify"])
                && seen.has_links_in_destination()
                && seen.is_linked()
                && seen.is(Class::Tree)
                && (seen.is_as_before() || seen.is_sources_own() || seen.is_of_one_entry())
        },
    },
    Known {
        says: "With `--append` and without `-H`, two names of one file at the destination get the source's content.",
        explains: |seen| {
            let says = seen.rsync.stderr_text();
            let is_verifying = seen.case.has(&["--append-verify"]) && says.contains("failed verification");
            let has_its_content = seen.about(&["mtime"])
                || seen.about(&["content", "size"]) && seen.is_one_with_a_sources_own();
            let is_second = seen.case.has(&["--append"]) && has_its_content && seen.is_linked();
            let has_links = seen.case.world.iter().any(|node| matches!(node.kind, Kind::HardLink(_)));
            !seen.case.has_letter('H') && (is_verifying && has_links || is_second)
        },
    },
    Known {
        says: "A user writes into his new directories whatever permissions they are to have.",
        explains: |seen| {
            let fails = |words: &str| words.contains("mkstemp") && words.contains("Permission denied");
            let is_refused = seen.rsync.stderr_text().lines().any(fails);
            let is_file = seen.is(Class::Tree) && seen.rsync_says_of_it("mkstemp");
            seen.case.is_nobody
                && seen.case.has_letter('X')
                && is_refused
                && (is_file || seen.is(Class::Exit))
        },
    },
    Known {
        says: "A directory that a user may write but not list gets what belongs there.",
        explains: |seen| {
            let is_refused = seen.rsync.stderr_text().contains("failed to modify permissions on");
            let is_in_one = |node: &Node| {
                let at = node.path.escape_ascii().to_string();
                let is_open = matches!(node.kind, Kind::Dir) && node.mode & 0o7 == 3;
                is_open && seen.path().strip_prefix(&at).is_some()
            };
            let is_needless = seen.is(Class::Exit) && seen.dsync.code() == Some(0);
            let is_filled =
                (seen.is_presence() || seen.about(&["mtime"])) && seen.case.world.iter().any(is_in_one);
            seen.case.is_nobody && is_refused && (is_needless || is_filled)
        },
    },
    Known {
        says: "A user writes into a directory of his own whatever its mode, which it keeps.",
        explains: |seen| {
            let calls = [
                "mkstemp \"",
                "[receiver] rename \"",
                "[generator] symlink \"",
                "[generator] mknod \"",
                "recv_generator: mkdir \"",
            ];
            // With `--append` it opens the file that it could not make.
            let is_unmade = |line: &str| line.contains("[receiver] open \"") && line.contains("No such file");
            let fails = |line: &str| {
                is_unmade(line)
                    || line.contains("Permission denied") && calls.iter().any(|call| line.contains(call))
            };
            let is_locked = |node: &Node| {
                let is_own = node.owner == Some((NOBODY, NOBODY))
                    && (node.path.starts_with(b"w/d") || node.path.starts_with(b"w/s"));
                is_own && matches!(node.kind, Kind::Dir) && node.mode & 0o300 != 0o300
            };
            let is_copied = seen.finding.line.starts_with("extra: ")
                && (seen.is_sources_own() || seen.is_root())
                && (calls.iter().any(|call| seen.rsync_says_of_it(call))
                    || seen.rsync_says_of_it("[receiver] open \""));
            // Nothing is copied into a directory that cannot be made, nor moved.
            let skips = "*** Skipping any contents from this failed directory ***";
            let is_in_one = seen.finding.line.starts_with("extra: ") && seen.is_sources_own();
            let is_moved = seen.path().starts_with("w/s/")
                && seen.case.has(&["--remove-source-files", "--remove-sent-files"])
                && (seen.finding.line.starts_with("missing: ") || seen.about(&["mtime"]));
            let is_copied = is_copied || (is_in_one || is_moved) && seen.rsync.stderr_text().contains(skips);
            // A file that is replaced there changes the directory's time, which a single file does not set.
            let is_replaced = calls.iter().any(|call| seen.rsync_says_of_it(call))
                && (seen.is_of_one_entry() || seen.is_sources_own());
            let is_its_time = |node: &Node| {
                is_locked(node) && seen.about(&["mtime"]) && node.path == seen.path().as_bytes()
            };
            let is_copied = is_copied || is_replaced || seen.case.world.iter().any(is_its_time);
            seen.case.is_nobody
                && seen.case.world.iter().any(is_locked)
                && seen.rsync.stderr_text().lines().any(fails)
                && (is_copied || seen.is(Class::Exit) && seen.dsync.code() == Some(0))
        },
    },
    Known {
        says: "With `--existing`, an empty source makes its destination too.",
        explains: |seen| {
            let is_there = |path: &[u8]| seen.case.world.iter().any(|node| node.path.starts_with(path));
            let is_of_root =
                seen.finding.line == "extra: 'w/d'" || seen.about(&["mtime"]) && seen.path() == "w";
            // So does one of which rules leave nothing.
            let is_empty = !is_there(b"w/s/") || seen.rsync.stdout_text().is_empty();
            seen.case.has(&["--existing"]) && !is_there(b"w/d") && is_empty && is_of_root
        },
    },
    Known {
        says: "With `--inplace`, a file of the user's own is rewritten although its mode does not let him.",
        explains: |seen| {
            let fails =
                |line: &str| line.contains("[receiver] open \"") && line.contains("Permission denied");
            let is_refused = seen.rsync.stderr_text().lines().any(fails);
            let is_file = seen.is(Class::Tree) && seen.rsync_says_of_it("[receiver] open \"");
            seen.case.is_nobody
                && seen.case.has(&["--inplace", "--append", "--append-verify"])
                && is_refused
                && (is_file || seen.is(Class::Exit))
        },
    },
    Known {
        says: "With `--inplace`, another user's file with a setuid, setgid or sticky bit stays as it is.",
        explains: |seen| {
            let is_special = seen.namesakes().any(|node| node.mode & 0o7000 != 0);
            seen.case.is_nobody
                && seen.case.has(&["--inplace", "--append", "--append-verify"])
                && seen.dsync.stderr_text().contains("cannot write '")
                && seen.about(&["size", "content", "mode", "mtime"])
                && is_special
        },
    },
    Known {
        says: "A directory of another user's has the time of the last change in it.",
        explains: |seen| {
            let is_others = |node: &Node| {
                matches!(node.kind, Kind::Dir) && node.owner.is_none_or(|(uid, _)| uid != NOBODY)
            };
            let fails = |line: &str| line.contains("cannot set attributes of '");
            let says = seen.dsync.stderr_text();
            // rsync does not say that a time has changed that it cannot set back.
            let mut problems = says.lines().filter(|line| line.contains(": cannot "));
            let sets_times = seen.case.has_letter('t') && !seen.case.has_letter('O');
            let is_unsaid = seen.is(Class::Exit)
                && (seen.rsync.code(), seen.dsync.code()) == (Some(0), Some(23))
                && sets_times
                && problems.all(fails)
                && seen.case.world.iter().any(|node| node.path.starts_with(b"w/d") && is_others(node));
            let is_time = seen.about(&["mtime"]) && seen.namesakes().any(is_others);
            seen.case.is_nobody && says.lines().any(fails) && (is_unsaid || is_time)
        },
    },
    Known {
        says: "With `-y` and without `-p`, a new file's mode is that of any new file.",
        explains: |seen| {
            let is_fuzzy = seen.case.has_letter('y') || seen.case.has(&["--fuzzy"]);
            is_fuzzy && !seen.case.has_letter('p') && seen.about(&["mode"])
        },
    },
    Known {
        says: "A destination that cannot be made ends the run with 3.",
        explains: |seen| {
            let fails = seen.rsync.stderr_text().contains("mkdir \"");
            seen.is(Class::Exit)
                && seen.dsync.code() == Some(3)
                && seen.dsync.stderr_text().contains("cannot use destination '")
                && [Some(11), Some(23)].contains(&seen.rsync.code())
                && fails
        },
    },
    Known {
        says: "With `-u`, a file takes the place of another type of entry whatever their times.",
        explains: |seen| {
            let is_file = |node: &Node| matches!(node.kind, Kind::Spliced(_) | Kind::HardLink(_));
            let is_one = seen.namesakes().any(is_file) && seen.is_of_several_types();
            seen.case.has(&["-u"]) && seen.is(Class::Tree) && is_one
        },
    },
];
