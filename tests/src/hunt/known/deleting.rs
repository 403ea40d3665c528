//! Known differences: deleting.

use super::{Known, reads_rule_files, seen::PLACES};
use crate::{
    hunt::{case::NOBODY, judge::Class},
    tree::{Kind, Node},
};

/// The entries of the section.
pub(super) const ENTRIES: &[Known] = &[
    Known {
        says: "An empty source empties no destination, unless `--allow-empty-source` says so.",
        explains: |seen| {
            let says = seen.dsync.stderr_text();
            // Or one of several sources.
            seen.dsync.code() == Some(42) && says.contains("is empty but")
                || seen.dsync.code() == Some(23)
                    && says.contains("': the source's is empty, and may be a disk")
        },
    },
    Known {
        says: "Which N entries `--max-delete=N` removes is not defined.",
        explains: |seen| {
            // Entries that the user may not remove may be among those that the other leaves.
            let says = seen.rsync.stderr_text();
            let fails = ["delete_file: ", "cannot delete non-empty directory: "];
            let is_refused = seen.is(Class::Exit)
                && fails.iter().any(|words| says.contains(words) || seen.rsync.stdout_text().contains(words));
            let is_limited = [seen.dsync, seen.rsync].iter().any(|outcome| {
                outcome.code() == Some(25) || outcome.all_text().contains("--max-delete limit")
            });
            // Nor may the user look into what the limit keeps, which rsync does.
            let looks = ["[generator] opendir \"", "[generator] readlink_stat(\""];
            let is_unseen = seen.is(Class::Exit)
                && (seen.rsync.code(), seen.dsync.code()) == (Some(23), Some(25))
                && seen.case.is_nobody
                && looks.iter().any(|words| says.contains(words));
            let is_other_code = is_refused || is_unseen;
            seen.case.has(&["--max-delete"]) && is_limited && (seen.is(Class::Tree) || is_other_code)
        },
    },
    Known {
        says: "`--delete` never removes the directories that options of the run name.",
        explains: |seen| {
            let lost_its_own = seen.rsync.stderr_text().contains("mkstemp");
            let is_about_it = seen.is(Class::Tree);
            // rsync has to copy these, because it has removed the alternate directory.
            let removes = seen
                .rsync
                .stdout_text()
                .lines()
                .any(|line| line.starts_with("*deleting") && line.contains("alt/"));
            let is_of_copy = seen.finding.line.starts_with("missing: ")
                || seen.finding.line.starts_with("not one file: ")
                || seen.about(&["mode", "mtime", "atime", "owner", "extended attributes"])
                // One of the same size and time counted as equal.
                || seen.about(&["content"]) && seen.looks_like_the_sources();
            let has_alternate = seen.case.has(&["--compare-dest", "--copy-dest", "--link-dest"]);
            // Of a source that it may not read.
            let is_unread = seen.is(Class::Exit)
                && (seen.rsync.code(), seen.dsync.code()) == (Some(23), Some(0))
                && ["send_files failed to open", "[generator] chgrp "]
                    .iter()
                    .any(|words| seen.rsync.stderr_text().contains(words));
            let is_copied = has_alternate && removes && (is_of_copy || is_unread);
            // The last stands before a directory of its own backups of its backups.
            let refusals = [
                "delete_file: rmdir(",
                "delete_file: unlink(alt/",
                "delete_file: make_backup(alt/",
                "could not make way for new ",
            ];
            let is_refused = refusals.iter().any(|words| seen.rsync.stderr_text().contains(words));
            let fails = seen.rsync.code() == Some(25) || seen.rsync.code() == Some(23) && is_refused;
            let counts_its_own = seen.is(Class::Exit) && fails && seen.has_place_inside();
            // That one of them has the name of an entry of the source which is no directory is
            // told.
            let says = seen.dsync.stderr_text();
            let is_in_the_way = (seen.is(Class::Exit) || seen.about(&["type"]) && seen.has_place_below())
                && seen.dsync.code() == Some(23)
                && says.contains("a directory that is not empty is in the way")
                && seen.has_place_inside();
            // rsync has made the directory for backups anew, which the user could not write to.
            let is_backed_up = seen.case.is_nobody
                && seen.case.has(&["--backup-dir"])
                && says.contains("cannot write '")
                && seen.rsync.stdout_text().contains("*deleting")
                && (seen.is(Class::Exit) || seen.about(&["size", "content", "mtime", "mode", "owner"]));
            let is_changed = seen.about(&["mode", "mtime", "owner", "extended attributes"]);
            let is_above = (is_changed || seen.finding.line.starts_with("extra: ")) && seen.has_place_below();
            // It keeps what it removes there in a directory for backups elsewhere.
            let is_above_backups = seen.about(&["mtime"])
                && seen.case.has(&["--backup-dir"])
                && seen.has_place_in(seen.path())
                && seen.has_place_inside()
                && seen.rsync.stdout_text().contains("*deleting");
            (seen.case.deletes() || seen.case.has(&["--force"]))
                && (lost_its_own
                    || is_above_backups
                    || counts_its_own
                    || is_above
                    || is_in_the_way
                    || is_backed_up
                    || is_copied
                    || is_about_it && seen.is_within(PLACES))
        },
    },
    Known {
        says: "A directory that a filter excludes gives way to nothing.",
        explains: |seen| {
            let stays = "a directory that is not empty is in the way";
            seen.dsync.code() == Some(23)
                && seen.dsync.stderr_text().contains(stays)
                && (seen.is(Class::Tree) || !seen.rsync.stderr_text().contains("could not make way"))
                && (seen.case.has(&["--exclude", "--exclude-from", "--filter"])
                    || reads_rule_files(seen.case))
                && (seen.is(Class::Exit) || seen.is_presence() || seen.is(Class::Tree))
        },
    },
    Known {
        says: "What is to be removed keeps its mode.",
        explains: |seen| {
            let is_unlocked = seen.modes().is_some_and(|(ours, theirs)| theirs == ours | 0o200);
            // A list shows the owner's permissions as well.
            let has_list = seen.differs_in_owner_of_list() && seen.rsync_says_of_it("delete_file: unlink(");
            (is_unlocked || has_list) && seen.case.is_nobody
        },
    },
    Known {
        says: "A directory of the user's own that he may not read gives way all the same.",
        explains: |seen| {
            let says = seen.rsync.stderr_text();
            let looks = ["[generator] opendir", "[generator] readlink_stat"];
            let fails = looks.iter().any(|words| says.contains(words))
                && says.contains("failed: Permission denied (13)");
            let words = ["missing: ", "not one file: "];
            let has_suffix = ["~", ".old"].iter().any(|suffix| seen.path().ends_with(suffix));
            let is_backup = seen.is_within(&["--backup-dir"]) || seen.case.has(&["-b"]) && has_suffix;
            let is_gone = words.iter().any(|words| seen.finding.line.starts_with(words))
                || seen.about(&["type"]) && seen.is_sources_own()
                || seen.finding.line.starts_with("extra: ") && is_backup;
            let is_gone = is_gone || seen.is(Class::Exit) && seen.dsync.code() == Some(0);
            // Of one whose names it can list and not look at, rsync says that it is not empty.
            let is_closed = |node: &Node| {
                let is_own = node.owner == Some((NOBODY, NOBODY)) && node.path.starts_with(b"w/d/");
                is_own && matches!(node.kind, Kind::Dir) && node.mode & 0o100 == 0
            };
            let stays = seen.rsync.stdout_text().contains("cannot delete non-empty directory: ")
                && seen.case.world.iter().any(is_closed)
                && (is_gone || seen.about(&["mtime", "mode"]));
            seen.case.is_nobody && (fails && is_gone || stays)
        },
    },
    Known {
        says: "When something of the source could not be read, nothing is deleted.",
        explains: |seen| {
            let says = seen.dsync.stderr_text();
            // Nothing is removed from a directory that was not listed whole.
            let ignores = seen.case.has(&["--ignore-errors"])
                && says.contains("cannot read ")
                && (seen.finding.line.starts_with("extra: ")
                    || seen.finding.line.starts_with("should not be one file: "));
            seen.is(Class::Tree)
                && seen.case.deletes()
                && (ignores || says.contains("withheld, because not all of the source could be read"))
        },
    },
    Known {
        says: "A source file is not removed when its copy lacks an attribute.",
        explains: |seen| {
            let is_source = seen.path().starts_with("w/s");
            seen.case.has(&["--remove-source-files"])
                && seen.dsync.code() == Some(23)
                && seen.is(Class::Tree)
                && is_source
        },
    },
    Known {
        says: "A long attribute of what `--remove-source-files` removes arrives.",
        explains: |seen| seen.rsync.stderr_text().contains("failed to re-read xattr"),
    },
    Known {
        says: "A source file that is only in the `--compare-dest` directory is not removed.",
        explains: |seen| {
            let is_source = seen.path().starts_with("w/s");
            seen.case.has(&["--compare-dest"]) && seen.case.has(&["--remove-source-files"]) && is_source
        },
    },
    Known {
        says: "An old file that an equal one of a `--compare-dest` directory makes superfluous, and that cannot be removed, is told.",
        explains: |seen| {
            seen.is(Class::Exit)
                && (seen.rsync.code(), seen.dsync.code()) == (Some(0), Some(23))
                && seen.case.is_nobody
                && seen.case.has(&["--compare-dest"])
                && seen.dsync.stderr_text().contains("cannot delete '")
        },
    },
    Known {
        says: "A link or special file that `--link-dest` has leaves the source as well.",
        explains: |seen| {
            let is_special = |node: &Node| !matches!(node.kind, Kind::Dir | Kind::Spliced(_));
            let is_gone = seen.finding.line.starts_with("missing: ")
                && seen.path().starts_with("w/s")
                && seen.namesakes().any(is_special);
            // Its directory has changed, and the next run says so.
            let of_directory = seen.is(Class::Second)
                && seen.finding.line.contains("'.d..t......")
                && seen.case.world.iter().any(is_special);
            seen.case.has(&["--remove-source-files"])
                && seen.case.has(&["--link-dest"])
                && (is_gone || of_directory)
        },
    },
    Known {
        says: "A file that the run comes to by several ways is copied by each before `--remove-source-files` removes it.",
        explains: |seen| {
            let follows = "Lk".chars().any(|letter| seen.case.has_letter(letter))
                || seen.case.has(&["--copy-unsafe-links"]);
            let words = "file has vanished: ";
            let is_told = seen.is(Class::Exit) && seen.rsync.code() == Some(24);
            let is_copied = (seen.finding.line.starts_with("extra: ")
                || seen.finding.line.starts_with("missing: ") && seen.path().starts_with("w/s"))
                && seen.rsync_says_of_it(words);
            seen.case.has(&["--remove-source-files", "--remove-sent-files"])
                && (follows || seen.case.has(&["--files-from"]))
                && seen.rsync.all_text().contains(words)
                && (is_told || is_copied)
        },
    },
    Known {
        says: "With `--copy-unsafe-links`, a link that was followed leaves the source.",
        explains: |seen| {
            let is_kept = seen.rsync.all_text().contains("Skipping sender remove for changed file");
            let is_source = seen.path().starts_with("w/s")
                && (seen.finding.line.starts_with("missing: ") || seen.about(&["mtime"]));
            // Its directory has changed, and the next run says so.
            let of_directory = seen.is(Class::Second) && seen.finding.line.contains("'.d..t......");
            let is_told = seen.is(Class::Exit) && seen.dsync.code() == Some(0);
            seen.case.has(&["--copy-unsafe-links"])
                && seen.case.has(&["--remove-source-files", "--remove-sent-files"])
                && is_kept
                && (is_source || of_directory || is_told)
        },
    },
    Known {
        says: "A file of the source that a followed link leads to is removed however the link is written.",
        explains: |seen| {
            let follows = "Lk".chars().any(|letter| seen.case.has_letter(letter))
                || seen.case.has(&["--copy-unsafe-links"]);
            let is_refused = seen.rsync.stderr_text().contains("sender failed to secure-open-parent ");
            // Files elsewhere stay with both.
            let is_sources = ["w/s/", "w/s2/"].iter().any(|root| seen.path().starts_with(root));
            let is_gone = seen.finding.line.starts_with("missing: ") && is_sources;
            let is_told =
                seen.is(Class::Exit) && (seen.rsync.code(), seen.dsync.code()) == (Some(23), Some(0));
            // Its directory has changed, and the next run says so.
            let is_time = seen.about(&["mtime"]) && seen.path().starts_with("w/s");
            let of_directory = seen.is(Class::Second) && seen.finding.line.contains("'.d..t......");
            seen.case.has(&["--remove-source-files", "--remove-sent-files"])
                && follows
                && is_refused
                && (is_gone || is_told || is_time || of_directory)
        },
    },
    Known {
        says: "With `--remove-sent-files`, a link or special file that an alternate directory has stays at the source.",
        explains: |seen| {
            let is_special = |node: &Node| !matches!(node.kind, Kind::Dir | Kind::Spliced(_));
            seen.case.has(&["--remove-sent-files"])
                && seen.case.has(&["--link-dest", "--copy-dest", "--compare-dest"])
                && seen.finding.line.starts_with("extra: ")
                && seen.path().starts_with("w/s")
                && seen.namesakes().any(is_special)
        },
    },
    Known {
        says: "Another of a file's names may stay with `-H --remove-sent-files`.",
        explains: |seen| {
            let is_split = ["not one file: ", "should not be one file: "]
                .iter()
                .any(|words| seen.finding.line.starts_with(words) && seen.path().starts_with("w/s"));
            let is_left =
                is_split || seen.is_presence() && seen.path().starts_with("w/s") && seen.is_linked();
            // Its directory has changed, and the next run says so.
            let of_directory = seen.is(Class::Second) && seen.finding.line.contains("'.d..t......");
            let is_time = seen.about(&["mtime"]) && seen.path().starts_with("w/s");
            let is_one = is_left || of_directory || is_time;
            seen.case.has_letter('H') && seen.case.has(&["--remove-sent-files"]) && is_one
        },
    },
    Known {
        says: "`--delete-excluded` removes no backups.",
        explains: |seen| {
            let suffix = if seen.case.has(&["--suffix"]) { ".old" } else { "~" };
            let within = format!("{}/", seen.path());
            let holds_one = seen.case.world.iter().any(|node| {
                let path = node.path.escape_ascii().to_string();
                path.starts_with(&within) && path.ends_with(suffix)
            });
            // A directory with the suffix stays with all that is in it, of which rsync makes backups.
            let above = seen.path().strip_prefix("w/d/").and_then(|within| within.rsplit_once('/'));
            let is_in_one =
                above.is_some_and(|(above, _)| above.split('/').any(|name| name.ends_with(suffix)));
            let is_extra = seen.finding.line.starts_with("extra: ");
            let is_renamed = seen.finding.line.starts_with("missing: ") && seen.path().ends_with(suffix);
            // To rsync the suffix alone is no backup's name.
            let is_suffix = is_renamed && seen.path().rsplit('/').next() == Some(&*suffix.repeat(2));
            // The backups that rsync does not come to remove count with it.
            let is_counted = seen.is(Class::Exit)
                && (seen.rsync.code(), seen.dsync.code()) == (Some(25), Some(0))
                && seen.case.has(&["--max-delete"]);
            seen.case.has(&["-b"])
                && !seen.case.has(&["--backup-dir"])
                && seen.case.has(&["--delete-excluded"])
                && (is_counted
                    || is_suffix
                    || is_extra && (seen.path().ends_with(suffix) || holds_one)
                    || is_in_one && (is_extra || is_renamed))
        },
    },
];
