//! Known differences: directories that options name.

use std::collections::BTreeMap;

use super::{
    Known,
    seen::{ALTERNATES, PLACES},
};
use crate::{
    hunt::judge::Class,
    tree::{Kind, Node},
};

/// The entries of the section.
pub(super) const ENTRIES: &[Known] = &[
    Known {
        says: "What rsync left in a `--partial-dir` is neither taken up nor removed.",
        explains: |seen| {
            let is_part = |node: &Node| {
                let path = node.path.escape_ascii().to_string();
                ["/sub/", "/.part/", "/part/"].iter().any(|dir| path.contains(dir))
                    || path.starts_with("part/")
            };
            let is_unset = |fact: &str, letters: &str| {
                seen.about(&[fact]) && letters.chars().any(|letter| !seen.case.has_letter(letter))
            };
            // Nor does a part get the list that its new directory has for what is made in it.
            let is_unset =
                is_unset("mode", "p") || is_unset("owner", "og") || is_unset("extended attributes", "A");
            let takes_mode = is_unset && seen.namesakes().any(is_part);
            let is_one = ["/.part", "/sub"].iter().any(|name| seen.path().ends_with(name));
            let is_in_it = seen.is_within(&["--partial-dir"])
                && (seen.is_presence() || seen.about(&["mtime", "mode"]))
                || is_one && seen.about(&["mtime"])
                || seen.finding.line.starts_with("extra: ")
                    && ["/sub/", "/.part/"].iter().any(|dir| seen.path().contains(dir));
            // rsync takes a link of that name for the directory, and the file itself for its part: it
            // writes into that.
            let is_link = |node: &Node| {
                matches!(node.kind, Kind::Symlink(_) | Kind::HardLink(_))
                    && [&b"/.part"[..], b"/sub"].iter().any(|name| node.path.ends_with(name))
            };
            // The file's other names change with it.
            let is_taken_up = seen.finding.line.starts_with("should not be one file: ")
                && seen
                    .finding
                    .paths()
                    .iter()
                    .any(|path| ["/.part/", "/sub/"].iter().any(|dir| path.contains(dir)));
            let is_other_name = seen.finding.line.starts_with("not one file: ")
                || seen.is_linked()
                    && seen.about(&["size", "content", "mode", "owner", "extended attributes"]);
            let is_in_place =
                (seen.about(&["mtime"]) || is_other_name) && seen.case.world.iter().any(is_link);
            // It may remove it then, or what it has begun with.
            let says = seen.rsync.stderr_text();
            let is_lost = seen.case.world.iter().any(is_link)
                && (seen.rsync.code() == Some(2)
                    && says.contains("got a block match with no basis file for")
                    || seen.dsync.code() == Some(0)
                        && says.contains("_acl: sys_acl_get_file(")
                        && says.contains("No such file or directory"))
                && (seen.is(Class::Exit) || seen.finding.line.starts_with("extra: "));
            // It looks for a part behind a link of another user's, and leaves the file out.
            let refuses = "refusing to follow a symlink owned by an untrusted user";
            let is_refused = seen.case.world.iter().any(is_link)
                && seen.dsync.code() == Some(0)
                && says.contains(refuses)
                && (seen.is(Class::Exit) || seen.is(Class::Tree) && seen.is_sources_own())
                && says.contains("[receiver] open \"");
            // A directory is where rsync wants to put its part.
            let calls = ["] unlink \"", "[receiver] rename \""];
            let fails = |line: &str| {
                calls.iter().any(|call| line.contains(call)) && line.contains("Is a directory (21)")
            };
            let is_new = seen.finding.line.starts_with("extra: ")
                || seen.about(&["size", "content", "mtime", "mode", "owner", "extended attributes"]);
            let is_copied = is_new && (seen.is_of_one_entry() || seen.is_sources_own());
            // Or its old part is another user's, which it may not write to.
            let is_others = |line: &str| {
                let is_part = ["/.part/", "/sub/", "/part/"].iter().any(|dir| line.contains(dir));
                let is_refused = ["Permission denied", "Operation not permitted"];
                line.contains("[receiver] open \"")
                    && is_part
                    && is_refused.iter().any(|words| line.contains(words))
            };
            let is_in_the_way = seen.rsync.stderr_text().lines().any(|line| fails(line) || is_others(line))
                && (is_copied || seen.is(Class::Exit) && seen.dsync.code() == Some(0));
            seen.case.has(&["--partial-dir"])
                && (is_in_it
                    || takes_mode
                    || is_taken_up
                    || is_in_place
                    || is_lost
                    || is_refused
                    || is_in_the_way)
        },
    },
    Known {
        says: "A file that has the name of `--partial-dir` is a file like others.",
        explains: |seen| {
            let says = seen.rsync.stderr_text();
            let is_in_the_way = says.contains("rename") && says.contains("not empty");
            let is_removed = seen.finding.line.starts_with("extra: ")
                && ["/sub", "/.part"].iter().any(|name| seen.path().ends_with(name));
            // A large file beside it is not copied, and nothing says so.
            let parent = seen.path().rsplit_once('/').map_or("", |(parent, _)| parent);
            let is_beside = ["sub", ".part"].iter().any(|name| {
                let one = format!("{parent}/{name}");
                let is_one = |node: &Node| {
                    !matches!(node.kind, Kind::Dir) && node.path.escape_ascii().to_string() == one
                };
                seen.case.world.iter().any(is_one)
            });
            // A link of that name makes another directory, with the files in it, the one of parts.
            let has_link = seen.case.world.iter().any(|node| {
                matches!(node.kind, Kind::Symlink(_))
                    && [&b"/sub"[..], b"/.part"].iter().any(|name| node.path.ends_with(name))
            });
            let is_lost =
                seen.finding.line.starts_with("extra: ") && (is_beside || has_link) && seen.is_sources_own();
            // rsync looks for the file that it received where the directory of parts is.
            let is_taken =
                |line: &str| line.starts_with("recv_files: \"") && line.ends_with("\" is a directory");
            let is_left_out = seen.is(Class::Exit) && seen.dsync.code() == Some(0)
                || seen.finding.line.starts_with("extra: ") && seen.is_sources_own()
                || seen.finding.line.starts_with("should not be one file: ") && seen.is_linked();
            let is_left_out = is_left_out && seen.rsync.stderr_text().lines().any(is_taken);
            let is_unlisted = seen.finding.line.starts_with("only dsync lists *deleting")
                && [".part'", "sub'"].iter().any(|name| seen.finding.line.ends_with(name));
            // The part of a file beside it is in a directory of that name.
            let is_held = seen.dsync_says_of_it("a directory that is not empty is in the way")
                || seen.is(Class::Exit)
                    && (seen.rsync.code(), seen.dsync.code()) == (Some(0), Some(23))
                    && ["/.part': a directory", "/sub': a directory"]
                        .iter()
                        .any(|words| seen.dsync.stderr_text().contains(words));
            let is_one = is_in_the_way || is_removed || is_lost || is_left_out || is_unlisted || is_held;
            seen.case.has(&["--partial-dir"]) && is_one
        },
    },
    Known {
        says: "With `--delay-updates`, an absolute `--partial-dir` may be on another filesystem.",
        explains: |seen| {
            let says = seen.rsync.stderr_text();
            let whys = ["Invalid cross-device link", "No such file or directory"];
            let fails =
                says.contains("[receiver] rename failed for \"") && whys.iter().any(|why| says.contains(why));
            let is_missing = seen.is(Class::Tree) && seen.rsync_says_of_it("[receiver] rename failed for");
            let is_left = seen.is(Class::Tree)
                && (seen.is_within(&["--partial-dir"]) || seen.path() == "%/" || seen.is_linked());
            seen.case.has(&["--delay-updates"])
                && seen.case.has(&["--partial-dir"])
                && fails
                && (is_missing || is_left || seen.is(Class::Exit) && seen.dsync.code() == Some(0))
        },
    },
    Known {
        says: "With `--delay-updates`, a file needs no `--partial-dir` to arrive.",
        explains: |seen| {
            let says = seen.rsync.stderr_text();
            let is_refused =
                |line: &str| line.contains("[receiver] rename ") && line.contains("Permission denied");
            let is_discarded = seen.rsync_says_of_it("Unable to create partial-dir for")
                || seen.rsync_says_of_it("[receiver] rename ") && says.lines().any(is_refused);
            let is_exit =
                seen.is(Class::Exit) && seen.dsync.code() == Some(0) && says.lines().any(is_refused);
            let is_sources = seen.looks_like_the_sources() || seen.is_sources_own();
            let is_it = is_exit || seen.is(Class::Tree) && is_discarded && is_sources;
            seen.case.has(&["--delay-updates"]) && seen.case.has(&["--partial-dir"]) && is_it
        },
    },
    Known {
        says: "An absolute `--partial-dir` is made at once, and `--temp-dir` is used under `--inplace` too.",
        explains: |seen| {
            let is_parent = seen.path() == "%/" || seen.path() == "w";
            // A new directory inside the destination changes the root's time, and the run reports
            // that.
            let is_root = seen.is(Class::DryRun) && seen.finding.line.ends_with(" ./'");
            let is_made =
                (is_parent && seen.about(&["mtime"]) || is_root) && seen.case.has(&["--partial-dir"]);
            let is_old_file = |node: &Node| {
                matches!(node.kind, Kind::Spliced(_) | Kind::HardLink(_))
                    && node.path.escape_ascii().to_string() == seen.path()
            };
            let is_new = !seen.case.world.iter().any(is_old_file);
            let is_in_place = seen.case.has(&["--inplace", "--append", "--append-verify"]);
            let is_listed = is_new && is_in_place && seen.lacks_a_list_of_its_directory();
            // It has the group that the directory around it had before the run changed that.
            let is_there = |node: &Node| node.path.escape_ascii().to_string() == seen.path();
            let above = seen.path().rsplit_once('/').map_or("", |(above, _)| above);
            let is_setgid =
                |node: &Node| node.mode & 0o2000 != 0 && node.path.escape_ascii().to_string() == above;
            let has_old_group = seen.about(&["owner"])
                && seen.places_of(&["--partial-dir"]).iter().any(|place| place == seen.path())
                && !seen.case.world.iter().any(is_there)
                && seen.case.world.iter().any(is_setgid);
            is_made
                || has_old_group
                || seen.about(&["mtime"]) && seen.is_within(&["--temp-dir"])
                || is_listed && seen.case.has(&["--temp-dir"])
        },
    },
    Known {
        says: "A relative `--partial-dir` is a single name.",
        explains: |seen| {
            let says = seen.dsync.stderr_text();
            seen.is(Class::Exit)
                && seen.dsync.code() == Some(4)
                && says.contains("--partial-dir with a relative path")
        },
    },
    Known {
        says: "A directory that an option names and that cannot be used ends the run.",
        explains: |seen| {
            let says = seen.dsync.stderr_text();
            // The first run may have put something else there.
            let is_later = seen.is(Class::Second) && seen.finding.line.contains("cannot use '");
            let is_told = seen.dsync.code() == Some(1) && says.contains("cannot use '");
            // A run that finds nothing to copy opens none of them where it would have to make the root.
            let is_idle = (seen.rsync.code(), seen.dsync.code()) == (Some(1), Some(0))
                && seen.has_new_destination()
                && seen.ours.keys().all(|path| !path.starts_with(b"w/d"))
                && seen.rsync.stderr_text().contains("The temp-dir ");
            seen.is(Class::Exit) && (is_told || is_idle) || is_later
        },
    },
    Known {
        says: "A run none of whose alternate directories exists ends, unless it makes the first of a row of copies.",
        explains: |seen| {
            let words = "none of the alternate directories exists: ";
            let is_first = seen.is(Class::Exit) && seen.dsync.code() == Some(3);
            // The first run may have removed it, or made another entry in its place.
            let is_later = seen.is(Class::Second) && seen.finding.line.contains(words);
            is_first && seen.dsync.stderr_text().contains(words) || is_later
        },
    },
    Known {
        says: "Nothing is looked for in an alternate directory that does not exist.",
        explains: |seen| {
            let says = seen.rsync.stderr_text();
            let reads =
                |line: &str| line.contains("No such file or directory") && line.contains("[generator] get_");
            seen.is(Class::Exit)
                && (seen.rsync.code(), seen.dsync.code()) == (Some(23), Some(0))
                && says.lines().any(reads)
        },
    },
    Known {
        says: "A link in the destination leads no option's directory anywhere.",
        explains: |seen| {
            let says = seen.dsync.stderr_text();
            let is_refused = says.contains("is within the destination, where a source may have made it");
            let is_later = seen.is(Class::Second)
                && seen.finding.line.contains("is within the destination, where a source may have made it");
            seen.is(Class::Exit) && seen.dsync.code() == Some(42) && is_refused || is_later
        },
    },
    Known {
        says: "Another user's link on the way to a directory that an option names is refused.",
        explains: |seen| {
            let says = seen.dsync.stderr_text();
            let is_link = says.contains("the link '") && says.contains("belongs to user");
            seen.is(Class::Exit)
                && seen.dsync.code() == Some(42)
                && is_link
                && PLACES.iter().any(|option| says.contains(&format!("refusing {option} '")))
        },
    },
    Known {
        says: "Without `-p`, no mode comes from an alternate directory.",
        explains: |seen| {
            seen.case.has(&["--copy-dest", "--link-dest", "--compare-dest"])
                && !seen.case.has_letter('p')
                && seen.about(&["mode"])
        },
    },
    Known {
        says: "With `-E`, an alternate file that nobody may execute is not that of one that somebody may.",
        explains: |seen| {
            let masked = 0o111 & !seen.case.umask;
            // The umask leaves nothing of what the source's has.
            let loses_all = |node: &Node| {
                node.path.starts_with(b"w/s") && node.mode & 0o111 != 0 && node.mode & masked == 0
            };
            seen.case.has_letter('E')
                && !seen.case.has_letter('p')
                && seen.case.has(&["--link-dest", "--copy-dest", "--compare-dest"])
                && seen.is(Class::Tree)
                && seen.namesakes().any(loses_all)
        },
    },
    Known {
        says: "An entry that a later one of several `--compare-dest` directories has with equal attributes is left out.",
        explains: |seen| {
            let places = seen.places_of(&["--compare-dest"]);
            let name = seen.path().strip_prefix("w/d/").unwrap_or_default();
            let find = |root: &str| {
                let path = format!("{root}/{name}");
                let all = seen.case.world.iter().chain(&seen.case.other);
                all.into_iter().find(|node| node.path.escape_ascii().to_string() == path)
            };
            let is_equal = |place: &String| {
                let (Some(source), Some(other)) = (find("w/s"), find(place)) else { return false };
                let is_alike = match (&source.kind, &other.kind) {
                    (Kind::Symlink(a), Kind::Symlink(b)) => a == b,
                    (Kind::CharDevice(a, b), Kind::CharDevice(c, d))
                    | (Kind::BlockDevice(a, b), Kind::BlockDevice(c, d)) => (a, b) == (c, d),
                    (Kind::Fifo, Kind::Fifo) | (Kind::Socket, Kind::Socket) => true,
                    _ => false,
                };
                is_alike
                    && (source.mtime, source.owner) == (other.mtime, other.owner)
                    && source.xattrs == other.xattrs
            };
            seen.case.has_letter('X')
                && places.len() > 1
                && seen.finding.line.starts_with("missing: ")
                && places.iter().skip(1).any(is_equal)
        },
    },
    Known {
        says: "What comes from an alternate directory has all its attributes.",
        explains: |seen| {
            let has_more = seen.attributes().is_some_and(|(ours, theirs)| {
                ours.len() > theirs.len() && theirs.iter().all(|(name, value)| ours.get(name) == Some(value))
            });
            // Without the capability rsync may have set the rest otherwise too.
            let has_capability = seen.attributes().is_some_and(|(ours, theirs)| {
                let of = |attributes: &BTreeMap<_, _>| attributes.contains_key("security.capability");
                of(&ours) && !of(&theirs)
            });
            // Without `-A` a list is what a new file gets there; rsync takes the alternate's mode for it.
            let has_own_list = !seen.case.has_letter('A')
                && !seen.case.has_letter('p')
                && seen.attributes().is_some_and(|(mut ours, mut theirs)| {
                    let list = "system.posix_acl_access";
                    ours.remove(list).is_some() && theirs.remove(list).is_some() && ours == theirs
                });
            let is_one = has_more || has_capability || has_own_list;
            seen.case.has(&["--copy-dest", "--link-dest", "--compare-dest"]) && is_one
        },
    },
    Known {
        says: "With `-U`, a link that an alternate directory has gets the source's access time.",
        explains: |seen| {
            let is_link = seen.namesakes().any(|node| matches!(node.kind, Kind::Symlink(_)));
            let has_alternate = seen.case.has(&["--link-dest", "--copy-dest", "--compare-dest"]);
            seen.case.has_letter('U') && has_alternate && seen.about(&["atime"]) && is_link
        },
    },
    Known {
        says: "A file that `--link-dest` or its like has in part arrives.",
        explains: |seen| {
            let says = seen.rsync.stderr_text();
            let is_discarded = |words: &str| says.contains(&format!("failed verification -- update {words}"));
            seen.case.has(&["--link-dest", "--copy-dest", "--compare-dest"])
                && is_discarded("discarded")
                && (seen.is(Class::Exit) || seen.is_presence() || seen.about(&["mtime"]))
        },
    },
    Known {
        says: "What cannot be linked to an alternate directory is copied.",
        explains: |seen| {
            let says = seen.rsync.stderr_text();
            let fails = says.contains("failed to hard-link") && says.contains("Invalid cross-device link");
            let is_missing = seen.is(Class::Tree) && seen.rsync_says_of_it("failed to hard-link");
            seen.case.has(&["--link-dest"]) && fails && (seen.is(Class::Exit) || is_missing)
        },
    },
    Known {
        says: "What the destination has stays where it cannot be linked to an alternate directory.",
        explains: |seen| {
            // The copy that rsync makes has the time of the run.
            let is_new = seen.finding.line.ends_with(&format!("should be ({}, 0)", i64::MAX));
            let is_directory = seen.namesakes().any(|node| matches!(node.kind, Kind::Dir));
            let has_new_time =
                (!seen.case.has_letter('t') || is_directory) && seen.about(&["mtime"]) && is_new;
            let keeps_owner =
                "og".chars().all(|letter| seen.case.has_letter(letter)) && !seen.case.has(&["--fake-super"]);
            let has_new_owner = !keeps_owner && seen.about(&["owner"]);
            // It has the size and the time of the source's, and rsync looks at the attributes too.
            let is_own = seen.about(&["content"]) && seen.looks_like_the_sources()
                // rsync's copy leaves the others of its names.
                || ["not one file: ", "should not be one file: "]
                    .iter()
                    .any(|what| seen.finding.line.starts_with(what))
                    && seen.has_links_in_destination();
            // Another user's file cannot be changed, but replaced it can.
            let is_others = seen.case.is_nobody
                && seen.dsync.stderr_text().contains("cannot set attributes of")
                && (seen.is(Class::Exit) || seen.about(&["mode", "owner", "extended attributes", "mtime"]));
            let has_own = !seen.case.has_letter('X') && seen.about(&["extended attributes"]);
            let is_listed = seen.lacks_a_list_of_its_directory() || has_own;
            // So it has no backup.
            let suffix = if seen.case.has(&["--suffix"]) { ".old" } else { "~" };
            let has_backup = seen.case.has(&["-b", "--backup-dir"])
                && seen.finding.line.starts_with("missing: ")
                && (seen.path().ends_with(suffix) || seen.is_within(&["--backup-dir"]));
            let is_one = has_new_time || has_new_owner || has_backup;
            seen.may_link_nothing() && (is_one || is_others || is_own || is_listed)
        },
    },
    Known {
        says: "What an alternate directory shares with the destination keeps its attributes there.",
        explains: |seen| {
            let is_apart = ["not one file: ", "should not be one file: "]
                .iter()
                .any(|what| seen.finding.line.starts_with(what));
            let options = ["--link-dest", "--copy-dest", "--compare-dest"];
            let is_right = seen.is_sources_own() || seen.is_within(&options);
            let is_attribute = seen.about(&["mode", "owner", "mtime", "extended attributes"]) && is_right;
            seen.is(Class::Tree) && seen.case.has(&options) && seen.is_linked() && (is_apart || is_attribute)
        },
    },
    Known {
        says: "The destination is no alternate of itself.",
        explains: |seen| {
            let is_of_result = seen.is(Class::Tree) || seen.is(Class::List);
            is_of_result && seen.places_of(ALTERNATES).iter().any(|place| place == "w/d")
        },
    },
    Known {
        says: "A link in an alternate directory leads to no alternate.",
        explains: |seen| {
            let places = seen.places_of(ALTERNATES);
            let is_at_home = |path: &&str| {
                path.starts_with("w/d") || places.iter().any(|place| path.starts_with(&format!("{place}/")))
            };
            // rsync has linked it to a file of the source's, or of anybody's.
            let is_linked = seen.finding.line.starts_with("not one file: ")
                && !seen.finding.paths().iter().all(is_at_home);
            // Or it finds the source itself behind the link, and leaves out what is equal.
            let follows = "Lk".chars().any(|letter| seen.case.has_letter(letter))
                || seen.case.has(&["--copy-unsafe-links"]);
            // With a list the links on its paths are followed.
            let is_left_out = (follows || seen.case.has(&["--files-from"]))
                && seen.case.has(&["--compare-dest"])
                && seen.finding.line.starts_with("extra: ");
            seen.has_link_in_alternate() && (is_linked || is_left_out)
        },
    },
    Known {
        says: "An alternate file that cannot be read is none.",
        explains: |seen| {
            // It asks a directory for its attributes.
            let calls = ["[generator] open \"", "gen_entry_copy_xattrs: secure open of basis \""];
            let fails = |line: &str| {
                line.contains("Permission denied") && calls.iter().any(|call| line.contains(call))
            };
            let says = seen.rsync.stderr_text();
            let is_time = seen.about(&["mtime"]) && says.contains("send_files failed to open");
            seen.case.is_nobody
                && seen.case.has(&["--link-dest", "--copy-dest", "--compare-dest"])
                && (seen.is(Class::Exit) && seen.dsync.code() == Some(0) || is_time)
                && says.lines().any(fails)
        },
    },
];
