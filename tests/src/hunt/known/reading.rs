//! Known differences: reading.

use super::Known;
use crate::{
    hunt::{areas, judge::Class, options, world::HOST},
    tree::Kind,
};

/// The entries of the section.
pub(super) const ENTRIES: &[Known] = &[
    Known {
        says: "Without privileges only attributes of the user's name space are read.",
        explains: |seen| {
            let is_roots = |(ours, theirs): (&str, &str)| {
                !ours.contains("user.rsync.security") && theirs.contains("user.rsync.security")
            };
            seen.case.is_nobody && seen.case.has(&["--fake-super"]) && seen.values().is_some_and(is_roots)
        },
    },
    Known {
        says: "A directory never takes the destination's name.",
        explains: |seen| {
            let is_new = seen.has_new_destination();
            let is_entry = !seen.case.operands[0].ends_with(['/', '.'])
                || seen.case.has_letter('R')
                || seen.case.has(&["--files-from"]);
            is_new && is_entry && seen.case.operands.len() == 2 && seen.is(Class::Tree)
        },
    },
    Known {
        says: "With `--no-implied-dirs`, a file gives way to a directory on the way.",
        explains: |seen| {
            seen.case.has(&["--no-implied-dirs"]) && seen.rsync.stderr_text().contains("Not a directory")
        },
    },
    Known {
        says: "An operand that is missing does not change where the others go.",
        explains: |seen| {
            let is_new = !seen.case.world.iter().any(|node| node.path == b"w/d");
            is_new
                && seen.case.operands.len() > 2
                && seen.is(Class::Tree)
                && seen.rsync.stderr_text().contains("link_stat")
        },
    },
    Known {
        says: "Where no source can be opened, no destination is made.",
        explains: |seen| {
            let says = seen.dsync.stderr_text();
            let is_missing = says.contains("error: source '") && says.contains("no such file or directory");
            let is_missing = is_missing || says.contains("error: cannot open source '");
            let is_there = seen.finding.line.starts_with("missing: ") || seen.about(&["mtime"]);
            let is_new = !seen.case.world.iter().any(|node| node.path == b"w/d");
            is_new && is_there && is_missing
        },
    },
    Known {
        says: "A source that cannot be opened is told before a destination that cannot.",
        explains: |seen| {
            let says = seen.dsync.stderr_text();
            let is_missing = says.contains("error: source '") && says.contains("no such file or directory");
            let is_locked =
                says.contains("cannot read the attributes of '") && says.contains("Permission denied");
            let is_told = says.contains("error: cannot open source '") || is_missing || is_locked;
            let others = seen.rsync.stderr_text();
            let is_of_list = seen.case.has(&["--files-from"])
                && ["The temp-dir ", "] mkdir \""].iter().any(|words| others.contains(words));
            let is_told = is_told || is_of_list && says.contains("cannot read the attributes of '");
            let is_others = is_of_list
                || others.contains("] change_dir")
                || ["] link_stat ", "] readlink_stat("].iter().any(|words| others.contains(words))
                    && others.contains("ERROR: cannot stat destination ");
            // In a pull its remote end gives up, and the other loses it.
            let is_others_code = [Some(3), Some(12)].contains(&seen.rsync.code())
                || seen.rsync.code() == Some(1)
                    && ["The backup-dir is not ", "The temp-dir "].iter().any(|words| others.contains(words))
                || seen.rsync.code() == Some(11) && others.contains("] mkdir \"");
            seen.is(Class::Exit) && is_others_code && seen.dsync.code() == Some(23) && is_told && is_others
        },
    },
    Known {
        says: "With `-m`, an empty directory that several operands have is left out.",
        explains: |seen| {
            let is_directory = seen.namesakes().any(|node| matches!(node.kind, Kind::Dir));
            let prunes = seen.case.has_letter('m') || seen.case.has(&["--prune-empty-dirs"]);
            // That of the destination goes, and counts among what is deleted.
            let is_counted = seen.case.has(&["--max-delete"])
                && seen.is(Class::Exit)
                && (seen.rsync.code(), seen.dsync.code()) == (Some(0), Some(25));
            // A list that names a directory twice, or a name that is missing, has the same effect.
            prunes
                && (seen.case.operands.len() > 2 || seen.case.has(&["--files-from"]))
                && (is_counted
                    || is_directory
                        && (seen.finding.line.starts_with("missing: ")
                            || seen.about(&["mode", "owner", "mtime", "extended attributes"])))
        },
    },
    Known {
        says: "With `--open-noatime`, another user's file is read all the same.",
        explains: |seen| {
            let fails =
                |line: &str| line.contains("failed to open") && line.contains("Operation not permitted");
            let is_refused = seen.rsync.stderr_text().lines().any(fails);
            let is_missed =
                seen.is(Class::Tree) && (seen.rsync_says_of_it("failed to open") || seen.about(&["mtime"]));
            let is_all = seen.is(Class::Exit) && seen.dsync.code() == Some(0);
            // An old file that rsync cannot compare is replaced, whoever owns it.
            let is_replaced = seen.about(&["mode", "owner", "extended attributes"])
                || seen.is(Class::List) && ["<fc", ">fc"].iter().any(|code| seen.finding.line.contains(code))
                || seen.is(Class::Exit) && seen.dsync.stderr_text().contains("Operation not permitted");
            seen.case.is_nobody
                && seen.case.has(&["--open-noatime"])
                && (is_refused && (is_all || is_missed) || seen.case.has_letter('c') && is_replaced)
        },
    },
    Known {
        says: "With `-m`, a directory of which something could not be read is not empty.",
        explains: |seen| {
            let says = seen.dsync.stderr_text();
            let within = seen.printed_path();
            let is_above_unread = says.lines().any(|line| {
                let unread = line.contains("cannot read the attributes of '")
                    || line.contains("cannot read directory '");
                let leads_nowhere = line.contains(&format!("symlink has no referent: \"{within}/"));
                let is_in_it = line.contains(&format!("'{within}/")) || line.contains(&format!("'{within}'"));
                leads_nowhere || unread && is_in_it
            });
            seen.case.has_letter('m')
                && seen.dsync.code() == Some(23)
                && (seen.finding.line.starts_with("extra: ")
                    || seen.about(&["type", "mode", "owner", "mtime", "extended attributes"]))
                && is_above_unread
        },
    },
    Known {
        says: "When filters leave out every operand, no destination is made.",
        explains: |seen| {
            let is_there = seen.finding.line.starts_with("missing: ") || seen.about(&["mtime"]);
            let by_rules =
                ["--exclude", "--exclude-from", "--filter", "-F", "-FF", "-C", "--files-from", "--old-dirs"];
            // rsync looks at the directory for backups, although none will be made.
            let is_needless = seen.is(Class::Exit)
                && (seen.rsync.code(), seen.dsync.code()) == (Some(1), Some(0))
                && seen.rsync.stderr_text().contains("The backup-dir is not a directory")
                && seen.dsync.all_text().is_empty();
            let has_nothing =
                || seen.rsync.stdout_text().lines().all(|line| line.starts_with("created directory "));
            seen.case.has(&by_rules) && (is_needless || seen.is(Class::Tree) && is_there && has_nothing())
        },
    },
    Known {
        says: "A directory that may be listed but not entered is listed.",
        explains: |seen| {
            // rsync's omissions then affect the whole tree. For example, it deletes nothing.
            seen.has_directory_without_x() && seen.rsync.stderr_text().contains("opendir")
        },
    },
    Known {
        says: "An entry whose ACL or attributes cannot be read gets all the rest.",
        explains: |seen| {
            let says = seen.rsync.stderr_text();
            let fails = says.contains("lgetxattr(") && says.contains("Permission denied");
            let is_it = seen.is(Class::Tree) && seen.rsync_says_of_it("lgetxattr(")
                // rsync gives up there, before it looks at the destination.
                || seen.is(Class::Exit) && (seen.rsync.code(), seen.dsync.code()) == (Some(23), Some(3));
            // The old entry of that name goes to no backup either.
            let is_kept = seen.is(Class::Tree)
                && (seen.is_within(&["--backup-dir"]) || seen.has_place_in(seen.path()))
                && seen.case.has(&["--backup-dir"]);
            seen.case.is_nobody && fails && (is_it || is_kept)
        },
    },
    Known {
        says: "With `-c`, a source file that cannot be read is told also where the copy cannot be read either.",
        explains: |seen| {
            let says = seen.dsync.stderr_text();
            let is_either =
                seen.is(Class::Exit) || seen.about(&["mode", "owner", "mtime", "extended attributes"]);
            is_either && seen.case.is_nobody && seen.case.has(&["-c"]) && says.contains("cannot read '")
        },
    },
    Known {
        says: "An attribute that the system lists but does not show to the user is no attribute.",
        explains: |seen| {
            let says = seen.rsync.stderr_text();
            seen.case.is_nobody && says.contains("lgetxattr") && says.contains("No data available")
        },
    },
    Known {
        says: "Access times that are not copied may change: dsync may read a file more often than rsync, or less.",
        explains: |seen| {
            let is_copy = seen.path().starts_with("w/d") && !seen.case.has(&["-b", "--backup-dir"]);
            // Each reads the files of rules at a time of its own, and the copy has what was then.
            let is_of_rules = areas::FILES.iter().any(|name| seen.path().ends_with(name));
            // The other name was read before.
            // Nothing is copied.
            let is_dry = seen.case.has(&["-n"]);
            // The old one stays, as its successor cannot be written.
            let is_left = seen.dsync.code() == Some(23) && seen.dsync_says_of_it("cannot write '");
            // Files that were moved are looked for there.
            let is_compared = seen.case.has(&["--detect-renamed"]);
            let is_read = is_of_rules || is_dry || is_left || is_compared || seen.is_linked();
            seen.about(&["atime"]) && (!is_copy || is_read)
        },
    },
    Known {
        says: "The wildcards of a remote operand are expanded without a shell.",
        explains: |seen| {
            let is_wild =
                |operand: &String| operand.starts_with(HOST) && operand.contains(['*', '?', '[', '\\', '\n']);
            seen.case.operands.iter().any(is_wild)
        },
    },
    Known {
        says: "An old file whose attributes cannot be read is replaced like others.",
        explains: |seen| {
            let fails = |line: &str| {
                line.contains("[generator] get_xattr_data: lgetxattr(") && line.contains("Permission denied")
            };
            seen.is(Class::Exit)
                && seen.case.is_nobody
                && seen.dsync.code() == Some(0)
                && seen.rsync.stderr_text().lines().any(fails)
        },
    },
    Known {
        says: "Of what several operands have, the first one's is read, and no other.",
        explains: |seen| {
            let is_refused = seen.rsync.stderr_text().contains("get_xattr_data: lgetxattr(");
            let is_needless = seen.is(Class::Exit)
                && (seen.rsync.code(), seen.dsync.code()) == (Some(23), Some(0))
                && is_refused;
            // rsync takes the other one's where it cannot list the first one's directory.
            let is_unlisted = seen.rsync.stderr_text().contains("] opendir ")
                && seen.dsync.stderr_text().contains("cannot read directory '")
                && seen.is(Class::Tree)
                && seen.is_sources_own();
            // After that rsync deletes nothing.
            let is_kept = is_refused
                && seen.case.deletes()
                && seen.rsync.all_text().contains("skipping file deletion")
                && (seen.finding.line.starts_with("missing: ") || seen.about(&["mtime"]));
            seen.case.operands.len() > 2 && (is_needless || is_unlisted || is_kept)
        },
    },
    Known {
        says: "An entry that cannot be looked at is reported, though a rule for directories might leave it out.",
        explains: |seen| {
            let says = seen.dsync.stderr_text();
            let is_refused =
                says.contains("cannot read the attributes of '") && says.contains("Permission denied");
            let leads_nowhere = says.contains("symlink has no referent");
            let is_told =
                seen.is(Class::Exit) && seen.rsync.code() == Some(0) && seen.dsync.code() == Some(23);
            // A relative `--partial-dir` leaves out directories of its name.
            let for_directories = |option: &String| {
                ["--exclude", "--filter"].contains(&options::name(option)) && option.ends_with('/')
                    || option.starts_with("--partial-dir=")
            };
            is_told
                && (is_refused && seen.case.is_nobody || leads_nowhere)
                && seen.case.options.iter().any(for_directories)
        },
    },
];
