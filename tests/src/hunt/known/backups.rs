//! Known differences: backups.

use super::{Known, Seen};
use crate::{
    hunt::{judge::Class, options},
    tree::{Kind, Node},
};

/// The entries of the section.
pub(super) const ENTRIES: &[Known] = &[
    Known {
        says: "Directories in the backup directory get the attributes that the old ones had before the run.",
        explains: |seen| {
            let is_directory = seen.namesakes().any(|node| matches!(node.kind, Kind::Dir));
            seen.about(&["mode", "owner", "mtime", "extended attributes"])
                && is_directory
                && seen.is_within(&["--backup-dir"])
        },
    },
    Known {
        says: "A backup keeps all its attributes, on another filesystem and without `-a` too.",
        explains: |seen| {
            let suffix = if seen.case.has(&["--suffix"]) { ".old" } else { "~" };
            let is_beside = seen.case.has(&["-b"])
                && !seen.case.has(&["--backup-dir"])
                && seen.path().ends_with(suffix)
                && !seen.namesakes().any(|node| node.path.starts_with(b"w/s"));
            // A user's copy cannot have another's owner, but the entry itself has it.
            let refused = |line: &str| {
                ["[generator] chgrp \"", "[generator] chown \""].iter().any(|call| line.contains(call))
                    && line.contains("failed: Operation not permitted (1)")
            };
            let is_moved = seen.is(Class::Exit)
                && (seen.rsync.code(), seen.dsync.code()) == (Some(23), Some(0))
                && seen.case.is_nobody
                && seen.case.has(&["--backup-dir"])
                && seen.rsync.stderr_text().lines().any(refused);
            is_moved
                || seen.about(&["owner", "mode", "mtime", "extended attributes"])
                    && (is_beside || seen.is_within(&["--backup-dir"]))
        },
    },
    Known {
        says: "Whatever gives way has a backup.",
        explains: |seen| {
            let skipped = "make_bak: skipping non-regular file";
            // rsync takes a file with the suffix for a backup, and makes none of it.
            let suffix = if seen.case.has(&["--suffix"]) { ".old" } else { "~" };
            let is_of_backup =
                seen.finding.line.starts_with("extra: ") && seen.path().ends_with(&suffix.repeat(2));
            let fails = seen.is(Class::Exit) && seen.dsync.code() == Some(0);
            let is_skipped = (seen.is(Class::Tree) || fails) && seen.rsync.all_text().contains(skipped);
            // An older backup stays then.
            let is_one = seen.finding.line.starts_with("extra: ")
                || seen.finding.line.contains("': type is \"symlink\"");
            let is_unsafe = seen.case.has(&["--safe-links"])
                && (seen.is_within(&["--backup-dir"]) || seen.path().ends_with(suffix))
                && is_one;
            is_skipped || seen.case.has(&["-b", "--backup-dir"]) && (is_of_backup || is_unsafe)
        },
    },
    Known {
        says: "Making the backup directory changes no time of the destination's root.",
        explains: |seen| {
            let is_root = seen.about(&["mtime"]) && seen.path() == "w/d";
            // The next run gives its time to a directory that is as new as the one in it.
            let is_above = seen.about(&["mtime"]) && seen.has_place_below()
                || seen.is(Class::Second) && seen.has_place_inside() && seen.finding.line.contains("'.d..t");
            seen.case.has(&["--backup-dir"]) && (is_root || is_above)
        },
    },
    Known {
        says: "The backup directory is made before what is copied.",
        explains: |seen| {
            // It stands where the source has something else, and rsync cannot make it afterwards.
            let says = seen.dsync.stderr_text();
            let is_in_the_way = says.contains("a directory that is not empty is in the way");
            let fails = ["mkdir_defmode", "make_bak_dir", "keep_backup failed", "Failed to make backup"];
            let rsync_fails = fails.iter().any(|words| seen.rsync.stderr_text().contains(words));
            let stays = seen.is(Class::Tree) && is_in_the_way && rsync_fails;
            // Or the link came first: rsync goes through it, and loses what it was to back up. Or a file or
            // special file did.
            let is_taken = says
                .lines()
                .any(|line| line.contains("cannot write '") && line.ends_with(": Not a directory"));
            let is_behind_a_link = seen.dsync.code() == Some(23)
                && (is_taken || says.contains("its name or depth is not possible here"))
                && (seen.is(Class::Tree) || seen.is(Class::Exit));
            // Or nothing is made of the entry of that name: an alternate directory has it, or `--existing`
            // leaves it out.
            let is_unmade = seen.is(Class::Exit)
                && (seen.rsync.code(), seen.dsync.code()) == (Some(23), Some(0))
                && seen.case.has(&["--compare-dest", "--existing"])
                && seen.places_of(&["--backup-dir"]).iter().any(|place| {
                    let name = place.strip_prefix("w/d/").and_then(|within| within.split('/').next());
                    name.is_some_and(|name| rsync_finds_in_the_way(seen, name))
                });
            seen.case.has(&["--backup-dir"])
                && seen.has_place_inside()
                && (stays || is_behind_a_link || is_unmade)
        },
    },
    Known {
        says: "A backup takes the place of an older one of whatever type.",
        explains: |seen| {
            let says = seen.rsync.stderr_text();
            let fails = seen.is(Class::Exit)
                && (seen.rsync.code(), seen.dsync.code()) == (Some(23), Some(0))
                && seen.case.has(&["--backup-dir"]);
            let is_in_the_way = |line: &str| {
                line.contains("File exists")
                    || line.contains("[generator] unlink \"") && line.contains("Is a directory (21)")
            };
            // With rsync the entry that was to go stays, or to be rewritten in place.
            let name = seen.path().rsplit('/').next().unwrap_or_default();
            let is_unwritten = seen.case.has(&["--inplace"])
                && seen.about(&["content", "size", "mtime", "mode", "owner", "extended attributes"])
                && says.lines().any(|line| is_in_the_way(line) && line.contains(&format!("/{name}\"")));
            let is_left =
                seen.is_presence() && seen.rsync_says_of_it("[generator] unlink \"") || is_unwritten;
            (fails || is_left || seen.is_within(&["--backup-dir"])) && says.lines().any(is_in_the_way)
        },
    },
    Known {
        says: "With `--backup-dir` on another filesystem, a link or a special file takes the place of a file.",
        explains: |seen| {
            let fails = seen.rsync.stderr_text().contains("failed: File exists (17)");
            let is_placed = seen.about(&["type", "content"]) && seen.is_sources_own()
                || seen.about(&["mtime", "owner"]) && seen.rsync_says_of_it("[generator] symlink \"");
            seen.case.options.iter().any(|option| option.starts_with("--backup-dir=%"))
                && seen.dsync.code() == Some(0)
                && fails
                && is_placed
        },
    },
    Known {
        says: "A file that gives way to its like in an alternate directory has a backup.",
        explains: |seen| {
            let above = |place: &str| place.starts_with(&format!("{}/", seen.path().trim_end_matches('/')));
            let values = seen.case.options.iter().filter_map(|option| option.strip_prefix("--backup-dir="));
            let is_above = values.map(options::place).any(|place| above(&place));
            let is_backup =
                seen.is_within(&["--backup-dir"]) || seen.path().ends_with(['~', 'd']) || is_above;
            seen.case.has(&["--compare-dest", "--copy-dest", "--link-dest"])
                && seen.case.has(&["-b", "--backup-dir"])
                && (seen.finding.line.starts_with("extra: ") && is_backup
                    || seen.finding.line.starts_with("should not be one file: ")
                        && (seen.is_within(&["--backup-dir"])
                            || seen.finding.paths().iter().any(|path| path.ends_with(['~', 'd'])))
                    || seen.about(&["mtime"]) && is_above
                    || seen.about(&["size", "content", "type", "mode", "mtime", "owner"]) && is_backup)
        },
    },
    Known {
        says: "A backup that cannot be made costs the file that was to be replaced.",
        explains: |seen| {
            let says = seen.rsync.stderr_text();
            let words = ["keep_backup failed", "Failed to stat ", "error in file IO (code 11) at rsync.c"];
            let fails = words.iter().any(|words| says.contains(words));
            // Without anything to back up the directory is not needed.
            let goes_on = [Some(23), Some(0)].contains(&seen.dsync.code());
            // A user can make no device in another filesystem, and rsync makes no backup of one.
            let is_of_device = seen.case.is_nobody
                && (seen.rsync.code(), seen.dsync.code()) == (Some(0), Some(23))
                && seen.rsync.all_text().contains("make_bak: skipping non-regular file")
                && seen.dsync.stderr_text().contains("Operation not permitted");
            // rsync removes a link or special file whose backup would have too long a name.
            let is_too_long = seen.rsync.stderr_text().contains("failed: File name too long (36)")
                && seen.dsync.stderr_text().contains("its name or depth is not possible here");
            let is_special = |node: &Node| {
                node.path.starts_with(b"w/d") && !matches!(node.kind, Kind::Dir | Kind::Spliced(_))
            };
            let is_left = seen.finding.line.starts_with("extra: ") && seen.namesakes().any(is_special)
                || seen.finding.line.starts_with("missing: ") && seen.is_within(&["--backup-dir"]);
            // With `--delay-updates` rsync leaves the new file where it waited, and ends with 0.
            let is_waiting = seen.case.has(&["--delay-updates"])
                && (seen.rsync.code(), seen.dsync.code()) == (Some(0), Some(23))
                && seen.dsync.stderr_text().contains("cannot write '")
                && says.contains("[receiver] backup mkdir ")
                && (seen.is(Class::Exit)
                    || seen.finding.line.starts_with("missing: ") && seen.path().contains("/.~tmp~"));
            // It replaces a link without the backup that it may not make.
            let is_denied = seen.case.is_nobody
                && says.contains("[generator] link \"")
                && says.contains("Permission denied (13)")
                && seen.dsync.stderr_text().contains("cannot write '")
                && seen.about(&["type", "content"]);
            // Or, where it cannot make the backup's directory, leaves the old entry without a word.
            let is_silent = seen.case.is_nobody
                && seen.case.has(&["--backup-dir"])
                && (seen.rsync.code(), seen.dsync.code()) == (Some(0), Some(23))
                && seen.dsync.stderr_text().contains("cannot write '")
                && seen.is(Class::Exit);
            is_waiting
                || is_denied
                || is_silent
                || is_too_long && is_left
                || seen.is(Class::Exit) && (goes_on && seen.rsync.code() == Some(11) && fails || is_of_device)
        },
    },
    Known {
        says: "No backup is made of what cannot be removed.",
        explains: |seen| {
            let says = seen.rsync.stderr_text();
            let fails = says.contains("delete_file: unlink(") && says.contains("Permission denied (13)");
            let is_backup = seen.finding.line.starts_with("missing: ") || seen.about(&["mtime"]);
            // The links of the case's world lead to it as well.
            let is_there = seen.is_within(&["--backup-dir"])
                || seen.has_place_in(seen.path())
                || seen.path() == "w/here" && seen.case.has(&["--backup-dir"]);
            seen.case.is_nobody && seen.dsync.code() == Some(23) && fails && is_backup && is_there
        },
    },
    Known {
        says: "A directory that cannot give way keeps what is in it.",
        explains: |seen| {
            let path = seen.path().to_owned();
            let stuck = seen.rsync.all_text().contains("could not make way for new");
            // A file that rsync has renamed in it may have names elsewhere.
            let is_name = seen.finding.line.starts_with("not one file: ")
                || seen.finding.line.starts_with("should not be one file: ");
            let is_presence = seen.is_presence() || seen.about(&["mtime"]) || is_name;
            // rsync removes older backups that it finds there.
            let suffix = if seen.case.has(&["--suffix"]) { ".old" } else { "~" };
            let is_backup = |line: &str| line.starts_with("*deleting") && line.ends_with(suffix);
            let removes = seen.rsync.stdout_text().lines().any(is_backup);
            let stays = seen.dsync.stderr_text().contains("a directory that is not empty is in the way");
            seen.case.has(&["-b"]) && removes && stays && (seen.is(Class::Exit) || seen.is(Class::Tree))
                || seen.case.has(&["-b"])
                    && stuck
                    && is_presence
                    && path.starts_with("w/d/")
                    && seen.dsync.code() == Some(23)
        },
    },
    Known {
        says: "A file that is rewritten in place has its backup in every `--backup-dir`.",
        explains: |seen| {
            let is_in_place = seen.case.has(&["--inplace", "--append", "--append-verify"]);
            let fails = seen.rsync.stderr_text().contains("failed: Invalid argument (22)");
            seen.is(Class::Exit) && is_in_place && seen.case.has(&["--backup-dir"]) && fails
        },
    },
    Known {
        says: "A name that the source has is no backup's.",
        explains: |seen| {
            let suffix = if seen.case.has(&["--suffix"]) { ".old" } else { "~" };
            let is_beside = seen.case.has(&["-b"]) && !seen.case.has(&["--backup-dir"]);
            let is_own = seen.is_sources_own_beside_its_backup(suffix) || seen.has_a_sources_name(suffix);
            // rsync puts a backup in the place of a directory, with all that is in it, and may then copy
            // the source's anew.
            let is_gone = seen.finding.line.starts_with("extra: ")
                || seen.about(&["size", "content", "mtime", "mode", "owner", "extended attributes"]);
            let is_in_one = is_gone && seen.is_in_a_sources_directory_named(suffix);
            let is_own = is_own || is_in_one;
            let is_kept = seen.is(Class::Tree) && (is_own || seen.is_backup_below_a_sources_name(suffix));
            // rsync has put a backup in the place of a directory, or fails to, and leaves the entry then.
            let says = seen.rsync.stderr_text();
            let fails = says.contains("could not make way for backup directory");
            let is_lost = seen.is(Class::Exit)
                && seen.dsync.code() == Some(0)
                && (says.contains("failed: Not a directory (20)") || fails);
            let is_kept = is_kept || fails && seen.about(&["type"]);
            // One of the two backups is the second name of what has another.
            let is_second = seen.finding.line.starts_with("should not be one file: ")
                && seen.finding.paths().iter().all(|path| path.ends_with(suffix));
            is_beside && (is_kept || is_lost || is_second)
        },
    },
    Known {
        says: "With `-b -H`, further names are linked to the new file whatever `--temp-dir` says.",
        explains: |seen| {
            let says = seen.rsync.stderr_text();
            let fails = says.contains("[generator] link \"") && says.contains("failed: File exists (17)");
            seen.case.has_letter('H') && seen.case.has(&["-b", "--backup-dir"]) && fails
        },
    },
    Known {
        says: "With `-b`, a rule that includes a backup does not give it up.",
        explains: |seen| {
            let suffix = if seen.case.has(&["--suffix"]) { ".old" } else { "~" };
            let includes = seen.case.has(&["--include", "--include-from", "--filter", "-F", "-C"]);
            seen.case.has(&["-b"])
                && !seen.case.has(&["--backup-dir"])
                && seen.case.deletes()
                && includes
                && seen.finding.line.starts_with("extra: ")
                && seen.path().ends_with(suffix)
        },
    },
    Known {
        says: "No directory gives way to a backup beside it.",
        explains: |seen| {
            let suffix = if seen.case.has(&["--suffix"]) { ".old" } else { "~" };
            let says = seen.dsync.stderr_text();
            let within = seen.path().trim_start_matches("w/d/");
            let is_in_the_way = within.split('/').any(|name| {
                let name = name.strip_suffix(suffix).unwrap_or(name);
                says.contains(&format!("{name}': {IN_THE_WAY}"))
            });
            seen.case.has(&["-b"])
                && !seen.case.has(&["--backup-dir"])
                && seen.dsync.code() == Some(23)
                && says.contains(IN_THE_WAY)
                && (seen.is(Class::Exit) || seen.is(Class::Tree) && is_in_the_way)
        },
    },
];

/// The words of dsync about a backup whose name a directory has.
const IN_THE_WAY: &str = "a directory has its name or the name of its backup";

/// Returns whether rsync says that a name of the destination's root is taken by a directory.
fn rsync_finds_in_the_way(seen: &Seen<'_>, name: &str) -> bool {
    let is_it = |line: &str| {
        line.strip_prefix("could not make way for new ")
            .and_then(|rest| rest.split_once(": "))
            .is_some_and(|(_, taken)| taken == name)
    };
    seen.rsync.stderr_text().lines().any(is_it)
}
