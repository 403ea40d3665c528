//! Known differences: lists of names.

use super::{Known, Seen};
use crate::{
    hunt::judge::Class,
    tree::{Kind, Node, Piece},
};

/// The entries of the section.
pub(super) const ENTRIES: &[Known] = &[
    Known {
        says: "A name of `--files-from` that does not exist withholds deletions.",
        explains: |seen| {
            let is_missed = seen.dsync.stderr_text().contains("cannot read the attributes of '");
            seen.case.has(&["--files-from"])
                && seen.case.deletes()
                && is_missed
                && (seen.is_presence()
                    || seen.about(&["mtime"])
                    || seen.is(Class::Exit) && (seen.rsync.code(), seen.dsync.code()) == (Some(25), Some(23)))
        },
    },
    Known {
        says: "Whoever says that names may be missing says it of their directories too.",
        explains: |seen| {
            let says = seen.rsync.stderr_text();
            let complaints = ["] change_dir ", "file has vanished: ", "parent dir is absent"];
            // Before 3.4.0 it makes nothing of any name that is to go, and later nothing of one behind a
            // link to nowhere.
            let failures = ["invalid file mode 00", "ABORTING due to invalid path from sender: "];
            let fails = seen.rsync.code() == Some(2) && failures.iter().any(|words| says.contains(words));
            let complains = [Some(23), Some(24)].contains(&seen.rsync.code())
                && complaints.iter().any(|words| says.contains(words));
            // It has lost its place in the list then, and keeps directories that are empty.
            let keeps_empty = seen.case.has(&["-m"])
                && says.contains("file has vanished: ")
                && (seen.is_presence() || seen.about(&["mtime", "type"]))
                && theirs_is_directory(seen);
            // And withholds all deletions, those of what the source has nothing of too.
            let withholds = seen.case.deletes()
                && seen.case.has(&["--files-from"])
                && seen.dsync.code() == Some(0)
                && says.contains("] change_dir ")
                && seen.rsync.all_text().contains("IO error encountered -- skipping file deletion");
            let is_extraneous = !seen.namesakes().any(|node| node.path.starts_with(b"w/s"));
            let is_kept = seen.finding.line.starts_with("missing: ") && is_extraneous;
            let is_time = seen.seconds().is_some_and(|(ours, _)| ours == i64::MAX);
            let keeps_more = withholds && seen.path().starts_with("w/d") && (is_kept || is_time);
            seen.case.has(&["--ignore-missing-args", "--delete-missing-args"])
                && (seen.is(Class::Exit) && (complains || fails) || keeps_empty || keeps_more)
        },
    },
    Known {
        says: "A missing name that a rule excludes is left out.",
        explains: |seen| {
            let is_rejected = seen.rsync.stderr_text().contains("rejecting excluded file-list name");
            seen.is(Class::Exit)
                && seen.case.has(&["--delete-missing-args"])
                && seen.rsync.code() == Some(4)
                && is_rejected
        },
    },
    Known {
        says: "A directory on the way to an operand is made whatever the rules say.",
        explains: |seen| {
            // A list has `-R`, and the name of a `--partial-dir` is a rule of rsync's.
            let has_ways = seen.case.has_letter('R') || seen.case.has(&["--files-from"]);
            seen.is(Class::Exit)
                && has_ways
                && (seen.rsync.code(), seen.dsync.code()) == (Some(4), Some(0))
                && seen.rsync.stderr_text().contains("rejecting excluded file-list name")
        },
    },
    Known {
        says: "With `--no-implied-dirs`, the directories above a name that `--delete-missing-args` misses are made.",
        explains: |seen| {
            let is_extra = seen.finding.line.starts_with("extra: ");
            let is_directory = |node: &Node| matches!(node.kind, Kind::Dir);
            seen.case.has(&["--delete-missing-args"])
                && seen.case.has(&["--no-implied-dirs"])
                && (is_extra && seen.namesakes().any(is_directory) || seen.about(&["mtime"]))
        },
    },
    Known {
        says: "A line of `--files-from` may go up and down again.",
        explains: |seen| {
            let is_rejected = seen.rsync.stderr_text().contains("rejecting unrequested file-list name");
            let goes_up = |node: &Node| match &node.kind {
                Kind::Spliced(lines) => {
                    lines.iter().any(|line| matches!(line, Piece::Text("d/../a\n" | "d/../a")))
                }
                _ => false,
            };
            seen.is(Class::Exit)
                && seen.rsync.code() == Some(4)
                && is_rejected
                && seen.case.world.iter().any(|node| node.path == b"w/list" && goes_up(node))
        },
    },
    Known {
        says: "A list of `--files-from` that is no list of names ends the run.",
        explains: |seen| {
            let says = seen.dsync.stderr_text();
            seen.is(Class::Exit) && seen.dsync.code() == Some(1) && says.contains("no list of names")
        },
    },
    Known {
        says: "The destination of a list is a directory.",
        explains: |seen| {
            let is_new = !seen.case.world.iter().any(|node| node.path == b"w/d");
            let is_file = seen.theirs.iter().any(|(path, facts)| path == b"w/d" && facts.kind == "file");
            seen.case.has(&["--files-from"]) && is_new && is_file && seen.is(Class::Tree)
        },
    },
    Known {
        says: "A comment of `--files-from` is one in every direction.",
        explains: |seen| {
            let is_comment =
                |line: &str| line.contains("link_stat") && (line.contains("/; ") || line.contains("/# "));
            let is_taken = seen.rsync.stderr_text().lines().any(is_comment);
            seen.case.has(&["--files-from"])
                && is_taken
                && (seen.is(Class::Exit) || seen.is_presence() || seen.about(&["mtime"]))
        },
    },
    Known {
        says: "A path that is named goes through links of root and of the own user.",
        explains: |seen| {
            let says = seen.dsync.stderr_text();
            let is_refused = says.contains("the link '") && says.contains("belongs to user")
                || says.contains("a link on the way belongs to another user and leads out of the source");
            // A slash behind a link that leads nowhere is the link's own end: nobody follows it.
            let refuses = "refusing to follow a symlink owned by an untrusted user";
            let is_copied = seen.is(Class::Exit) && seen.dsync.code() == Some(0)
                || (seen.finding.line.starts_with("extra: ") || seen.about(&["type"]))
                    && seen.is_sources_own();
            let is_link_itself = seen.rsync.stderr_text().contains(refuses) && is_copied;
            seen.case.has(&["--files-from"]) && (is_refused || is_link_itself)
        },
    },
    Known {
        says: "A destination that cannot be used is told, whatever of a list is missing.",
        explains: |seen| {
            seen.is(Class::Exit)
                && seen.case.has(&["--files-from"])
                && (seen.rsync.code(), seen.dsync.code()) == (Some(23), Some(3))
                && ["] link_stat ", "] change_dir "]
                    .iter()
                    .any(|words| seen.rsync.stderr_text().contains(words))
                && seen.dsync.stderr_text().contains("error: cannot use destination '")
        },
    },
    Known {
        says: "A list without names asks for nothing of a source that cannot be entered.",
        explains: |seen| {
            seen.is(Class::Exit)
                && seen.case.has(&["--files-from"])
                && [Some(3), Some(12)].contains(&seen.rsync.code())
                && seen.rsync.stderr_text().contains("] change_dir ")
                && seen.dsync.code() == Some(0)
                && seen.dsync.all_text().lines().all(|line| line.contains("nothing is taken from it"))
        },
    },
];

/// Returns whether the path's entry is a directory after rsync.
fn theirs_is_directory(seen: &Seen<'_>) -> bool {
    let is_it = |path: &[u8]| path.escape_ascii().to_string() == seen.path();
    seen.theirs.iter().any(|(path, facts)| is_it(path) && facts.kind == "dir")
}
