//! Known differences: lists.

use super::Known;
use crate::{
    hunt::{case::NOBODY, judge::Class},
    tree::{Kind, Node},
};

/// The entries of the section.
pub(super) const ENTRIES: &[Known] = &[
    Known {
        says: "A dry run tells of what is in the way of a directory's entries.",
        explains: |seen| {
            let says = seen.dsync.stderr_text();
            let fails =
                says.contains("cannot read destination directory") && says.contains("Not a directory");
            seen.is(Class::Exit) && seen.case.has(&["-n"]) && seen.case.has(&["--ignore-existing"]) && fails
        },
    },
    Known {
        says: "A dry run tells of an old directory that it may not read.",
        explains: |seen| {
            let says = seen.dsync.stderr_text();
            let fails =
                says.contains("cannot read destination directory") && says.contains("Permission denied");
            seen.is(Class::Exit) && seen.case.has(&["-n"]) && seen.case.is_nobody && fails
        },
    },
    Known {
        says: "With `-c`, a dry run tells of a source file that cannot be read, although the run may leave it alone.",
        explains: |seen| {
            let fails = "the dry run ends with 23, the run with 0";
            seen.is(Class::DryRun)
                && seen.finding.line == fails
                && seen.case.is_nobody
                && (seen.case.has(&["--append", "--append-verify", "--ignore-existing"])
                    || seen.case.has_letter('u'))
                && seen.case.has_letter('c')
        },
    },
    Known {
        says: "A dry run does not foresee the directories that backups make in the destination.",
        explains: |seen| {
            seen.is(Class::DryRun) && seen.case.has(&["--backup-dir"]) && seen.has_place_inside()
        },
    },
    Known {
        says: "Where nothing is copied, no destination is missed.",
        explains: |seen| {
            let misses = seen.rsync.stderr_text().contains("change_dir#3");
            seen.is(Class::Exit) && seen.rsync.code() == Some(3) && seen.dsync.code() == Some(0) && misses
        },
    },
    Known {
        says: "A destination that cannot be used is told, though nothing is copied.",
        explains: |seen| {
            let says = seen.dsync.stderr_text();
            let is_locked = says.contains("cannot use destination '") && says.contains("Permission denied");
            let copies_nothing = seen.rsync.stdout_text().is_empty() && seen.rsync.code() == Some(0);
            let is_told = seen.dsync.code() == Some(3) && is_locked;
            seen.is(Class::Exit) && seen.case.is_nobody && copies_nothing && is_told
        },
    },
    Known {
        says: "A dry run does not open directories that the user would have to give himself the permission for.",
        explains: |seen| {
            let is_locked = |node: &Node| matches!(node.kind, Kind::Dir) && node.mode & 0o700 != 0o700;
            let fails = seen.rsync.stderr_text().contains("recv_generator: failed to stat");
            let is_told = seen.is(Class::Exit) && seen.case.has(&["-n"]) && fails;
            (seen.is(Class::DryRun) || is_told)
                && seen.case.is_nobody
                && seen.case.world.iter().any(is_locked)
        },
    },
    Known {
        says: "A dry run lists a change of attributes for each name of a file at the destination.",
        explains: |seen| {
            let is_link = |node: &Node| matches!(node.kind, Kind::HardLink(_));
            seen.is(Class::DryRun)
                && seen.path().starts_with(['.', '>'])
                && seen.case.world.iter().any(is_link)
        },
    },
    Known {
        says: "With `-K`, a dry run lists what two of the source's directories put into one for each of them.",
        explains: |seen| {
            let is_told = seen.finding.line.starts_with("only the ");
            seen.is(Class::DryRun) && seen.case.has_letter('K') && is_told
        },
    },
    Known {
        says: "A dry run does not know whether a directory that it may not read is empty.",
        explains: |seen| {
            let is_locked = |node: &Node| {
                let is_empty = !seen.case.world.iter().any(|other| {
                    other.path.strip_prefix(&node.path[..]).is_some_and(|rest| rest.starts_with(b"/"))
                });
                matches!(node.kind, Kind::Dir) && node.owner != Some((NOBODY, NOBODY)) && is_empty
            };
            seen.is(Class::DryRun)
                && seen.finding.line == "the dry run ends with 23, the run with 0"
                && seen.case.is_nobody
                && seen.case.world.iter().any(is_locked)
        },
    },
    Known {
        says: "A dry run does not foresee that an equal file stays because an alternate's cannot take its place.",
        explains: |seen| {
            let lines = ["only the dry run lists: 'hf", "only the run lists: '.f"];
            seen.is(Class::DryRun)
                && seen.case.is_nobody
                && seen.case.has(&["--link-dest", "--compare-dest"])
                && lines.iter().any(|line| seen.finding.line.starts_with(line))
        },
    },
    Known {
        says: "A dry run does not foresee that the run removes what an alternate directory in the destination has.",
        explains: |seen| {
            seen.is(Class::DryRun)
                && seen.case.deletes()
                && seen.case.has(&["--link-dest", "--copy-dest", "--compare-dest"])
                && seen.finding.line.starts_with("only ")
                && seen.has_place_inside()
        },
    },
    Known {
        says: "With `--inplace` and without `-H`, the order decides what two names of one file at the destination are listed with.",
        explains: |seen| {
            seen.is(Class::DryRun)
                && seen.case.has(&["--inplace", "--append", "--append-verify"])
                && !seen.case.has_letter('H')
                && seen.finding.line.starts_with("only ")
                && seen.has_links_in_destination()
        },
    },
    Known {
        says: "A dry run misses the destination's parent as the run does.",
        explains: |seen| {
            seen.is(Class::Exit)
                && seen.case.has(&["-n"])
                && seen.dsync.code() == Some(3)
                && seen.dsync.stderr_text().contains("destination parent '")
        },
    },
    Known {
        says: "A dry run changes nothing.",
        explains: |seen| {
            let is_attribute = seen.about(&["extended attributes", "mode", "owner", "mtime"]);
            seen.case.has(&["-n"]) && seen.case.has_letter('X') && is_attribute
        },
    },
];
