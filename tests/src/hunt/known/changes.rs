//! Known differences: the changes that `-i` lists where both programs leave the same tree.

use super::{Known, Seen, reads_rule_files};
use crate::{
    compare::Facts,
    hunt::{areas, case::Carrier, options},
    tree::{Kind, Node},
};

/// The entries of the section.
pub(super) const ENTRIES: &[Known] = &[
    Known {
        says: "A file with setuid or setgid bits or a capability is listed with the owner or group that changes.",
        explains: |seen| {
            let has_bits = |node: &Node| {
                let is_capability = |(name, _): &(String, Vec<u8>)| name == "security.capability";
                node.mode & 0o6000 != 0 || node.xattrs.iter().any(is_capability)
            };
            // The first name of a file has the attributes of all.
            let is_linked_to_one = seen.is_linked() && seen.case.world.iter().any(has_bits);
            let is_one = is_linked_to_one || seen.namesakes().any(has_bits);
            // Without -p there is nothing left to list then.
            let is_alone = only(seen).is_some_and(|code| without(code, &[1, 5, 6, 7]) == ".......");
            let is_alone = is_alone && seen.finding.line.starts_with("only dsync lists ");
            let is_listed = codes(seen).is_some_and(|(ours, theirs)| {
                // An alternate directory may have it.
                [".f", "cf", ".D", ".S"].iter().any(|kind| ours.starts_with(kind))
                    && ours.contains(['o', 'g'])
                    && without(ours, &[5, 6, 7, 10]) == without(theirs, &[5, 6, 7, 10])
            });
            is_one && (is_alone || is_listed)
        },
    },
    Known {
        says: "With `-H` it is not defined which of a file's names is listed as changed and which as a link to it.",
        explains: |seen| {
            let is_link = |code: &str| code.starts_with('h');
            let is_either = codes(seen).is_some_and(|(ours, theirs)| is_link(ours) || is_link(theirs));
            let is_only = only(seen).is_some_and(is_link);
            // The attributes that another name has lost by then are no change of this one.
            let is_done = seen.has_links_in_destination()
                && codes(seen).is_some_and(|(ours, theirs)| {
                    without(ours, &[5, 6, 7, 9, 10]) == without(theirs, &[5, 6, 7, 9, 10])
                });
            // Each is compared with what was there before, and has its own after that.
            let is_own = seen.has_links_in_destination()
                && codes(seen).is_some_and(|(ours, theirs)| {
                    let kind = ours.get(..2).filter(|kind| kind.starts_with('.'));
                    kind.is_some()
                        && without(ours, &[4, 5, 6, 7, 9, 10]) == without(theirs, &[4, 5, 6, 7, 9, 10])
                });
            // Of two sources' links that are one at the destination, each gets its own time by turns.
            let by_turns = seen.has_links_in_destination()
                && seen.case.operands.len() > 2
                && codes(seen).is_some_and(|(ours, theirs)| {
                    let are_links = [ours, theirs].iter().all(|code| code.starts_with(".L"));
                    are_links && without(ours, &[4, 6, 7]) == without(theirs, &[4, 6, 7])
                });
            let is_done = is_done || is_own || by_turns;
            // A link that is followed is one more name.
            let is_followed = seen.case.has_letter('L')
                && seen.namesakes().any(|node| matches!(node.kind, Kind::Symlink(_)))
                && seen.has_links_in_source();
            let is_one = seen.is_linked() || is_followed;
            seen.case.has_letter('H') && is_one && (is_either || is_only || is_done)
        },
    },
    Known {
        says: "Without `-H`, a change of attributes is listed with each of a file's names.",
        explains: |seen| {
            let is_change = only(seen).is_some_and(|code| code.starts_with('.'));
            let is_ours = seen.finding.line.starts_with("only dsync lists ");
            // Of several changes rsync finds some done.
            let are_changes = codes(seen).is_some_and(|(ours, theirs)| {
                let kind = ours.get(..2).filter(|kind| kind.starts_with('.'));
                kind.is_some() && kind == theirs.get(..2)
            });
            let adds = seen.case.has(&["--append", "--append-verify"])
                && only(seen).is_some_and(|code| code.get(1..3) == Some("f."));
            let is_more = is_ours && (is_change || adds);
            // The content and what comes with it are there by then.
            let is_written = seen.case.has(&["--inplace"])
                && codes(seen).is_some_and(|(ours, theirs)| {
                    let are_files = [ours, theirs].iter().all(|code| code.get(1..2) == Some("f"));
                    let has_less = |(ours, theirs)| ours == theirs || theirs == b'.';
                    are_files && ours.bytes().zip(theirs.bytes()).all(has_less)
                });
            // Attributes are compared when they are set.
            let is_set = seen.case.has_letter('X')
                && seen.finding.line.starts_with("only rsync lists .")
                && only(seen).is_some_and(|code| without(code, &[1, 9, 10]) == "........");
            // rsync has read the file by its other name.
            let is_read = "Uc".chars().all(|letter| seen.case.has_letter(letter))
                && seen.finding.line.starts_with("only rsync lists .f......u..: ");
            // So it is with what is copied from an alternate directory.
            let is_read = is_read
                || seen.case.has_letter('U')
                    && seen.case.has(&["--copy-dest", "--link-dest"])
                    && codes(seen).is_some_and(|(ours, theirs)| without(ours, &[8]) == without(theirs, &[8]));
            // So it is with a file that is sent and whose old one had the other name: it was read by that.
            let read = if seen.case.has_letter('U') { 8 } else { 7 };
            let is_sent = seen.has_links_in_destination()
                && codes(seen).is_some_and(|(ours, theirs)| {
                    let are_sent =
                        ["<f", ">f"].iter().any(|kind| ours.starts_with(kind) && theirs.starts_with(kind));
                    let rest = |code| without(code, &[5, 6, 7, read, 9, 10]);
                    are_sent && rest(ours) == rest(theirs)
                });
            let is_less = are_changes || is_written || is_set || is_read || is_sent;
            !seen.case.has_letter('H') && seen.is_linked() && (is_more || is_less)
        },
    },
    Known {
        says: "A directory that is made beside an equal one of an alternate directory may be listed as new.",
        explains: |seen| {
            let is_made = |code: &str| code.starts_with("cd");
            let are_made = codes(seen).is_some_and(|(ours, theirs)| is_made(ours) && is_made(theirs));
            seen.case.has(&["--link-dest", "--copy-dest", "--compare-dest"])
                && (are_made || only(seen).is_some_and(is_made))
        },
    },
    Known {
        says: "What an alternate directory has behind a link is listed as new.",
        explains: |seen| {
            let is_new = codes(seen)
                .is_some_and(|(ours, theirs)| ours.ends_with("+++++++++") && !theirs.ends_with('+'));
            is_new && seen.has_link_in_alternate()
        },
    },
    Known {
        says: "An entry that a later one of several `--copy-dest` directories has with equal attributes is not listed.",
        explains: |seen| {
            let is_told = seen.finding.line.starts_with("only rsync lists c")
                && only(seen).is_some_and(|code| code.ends_with(".......x"));
            seen.case.has_letter('X')
                && seen.places_of(&["--copy-dest", "--link-dest"]).len() > 1
                && is_told
                && (seen.is_linked() || seen.namesakes().any(|node| !node.xattrs.is_empty()))
        },
    },
    Known {
        says: "What an alternate directory in the destination has is listed as it was compared, though the run removes it.",
        explains: |seen| {
            seen.case.deletes()
                && seen.case.has(&["--link-dest", "--copy-dest", "--compare-dest"])
                && seen.has_place_inside()
        },
    },
    Known {
        says: "A root that `--mkpath` makes is listed as new.",
        explains: |seen| {
            let is_new = codes(seen).is_some_and(|(ours, _)| ours == "cd+++++++++");
            let is_told = seen.finding.line.starts_with("only dsync lists cd+++++++++: ");
            seen.case.has(&["--mkpath"]) && seen.path() == "." && (is_new || is_told)
        },
    },
    Known {
        says: "With `-U`, a link is listed with its access time.",
        explains: |seen| {
            let is_link = |code: &str| code.get(1..2) == Some("L");
            let is_only = seen.finding.line.starts_with("only dsync lists .L......u..: ");
            let is_more = codes(seen).is_some_and(|(ours, theirs)| {
                is_link(ours) && is_link(theirs) && without(ours, &[8]) == without(theirs, &[8])
            });
            seen.case.has_letter('U') && (is_only || is_more)
        },
    },
    Known {
        says: "With `-U`, an access time that differs by less than a second is listed.",
        explains: |seen| {
            let is_more = codes(seen).is_some_and(|(ours, theirs)| {
                ours.get(8..9) == Some("u") && without(ours, &[8]) == without(theirs, &[8])
            });
            let is_only = seen.finding.line.starts_with("only dsync lists ")
                && only(seen).is_some_and(|code| without(code, &[1, 8]) == ".........");
            // The access time of what a case has is its time.
            let times: Vec<_> = seen.namesakes().map(|node| node.mtime).collect();
            let is_close = |time: &(i64, _)| times.iter().any(|other| other.0 == time.0 && other != time);
            seen.case.has_letter('U') && (is_more || is_only) && times.iter().any(is_close)
        },
    },
    Known {
        says: "With `-U`, a file of rules may be listed with the access time that reading its rules gave it.",
        explains: |seen| {
            let is_more =
                codes(seen).is_some_and(|(ours, theirs)| without(ours, &[8]) == without(theirs, &[8]));
            let is_only = only(seen).is_some_and(|code| without(code, &[1, 8]) == ".........");
            let is_of_rules = areas::FILES.iter().any(|name| seen.path().ends_with(name));
            seen.case.has_letter('U') && reads_rule_files(seen.case) && is_of_rules && (is_more || is_only)
        },
    },
    Known {
        says: "With `-U`, a file that was read as the basis of another may be listed with the access time that this gave it.",
        explains: |seen| {
            let is_more =
                codes(seen).is_some_and(|(ours, theirs)| without(ours, &[8]) == without(theirs, &[8]));
            let is_only = only(seen)
                .is_some_and(|code| code.starts_with(".f") && without(code, &[1, 8]) == ".........");
            seen.case.has_letter('U')
                && (seen.case.has_letter('y') || seen.case.has(&["--fuzzy"]))
                && (is_more || is_only)
        },
    },
    Known {
        says: "A file that has to be sent again is listed once.",
        explains: |seen| {
            let is_again = seen.rsync_says_of_it(" failed verification -- update ");
            // rsync lists it twice, on XFS with the attribute that is its list.
            let is_listed = seen.namesakes().any(has_list);
            let is_it = |ours: &str, code: &str| {
                ours == code
                    || is_listed && code.ends_with('x') && without(ours, &[10]) == without(code, &[10])
            };
            let is_one = |(ours, theirs): (&str, &str)| theirs.split(' ').any(|code| is_it(ours, code));
            is_again && codes(seen).is_some_and(is_one)
        },
    },
    Known {
        says: "With `-A`, a mode that changes is listed beside the list that changes.",
        explains: |seen| {
            let is_more = codes(seen).is_some_and(|(ours, theirs)| {
                let (mode, list) = (Some("p"), Some("a"));
                let have_list = ours.get(9..10) == list && theirs.get(9..10) == list;
                let is_mode = ours.get(5..6) == mode && theirs.get(5..6) == Some(".");
                have_list && is_mode && without(ours, &[5]) == without(theirs, &[5])
            });
            // The mode of the old one is not that of the new one.
            let mut modes = seen.namesakes().map(|node| node.mode);
            let first = modes.next();
            let is_changed =
                modes.any(|mode| Some(mode) != first) || seen.is_linked() || seen.case.has(&["--chmod"]);
            is_more && seen.case.has_letter('A') && is_changed
        },
    },
    Known {
        says: "Beside `-A`, a mode that `--no-p` leaves alone is not listed over a connection.",
        explains: |seen| {
            let is_mode = codes(seen).is_some_and(|(ours, theirs)| {
                theirs.get(5..6) == Some("p") && without(ours, &[5]) == without(theirs, &[5])
            });
            is_mode
                && seen.case.has_letter('A')
                && seen.case.has(&["--no-p", "--no-perms"])
                && seen.case.carrier != Carrier::Local
        },
    },
    Known {
        says: "A list that XFS shows as an attribute is no change of attributes.",
        explains: |seen| {
            let is_shown =
                |facts: &Facts| facts.xattrs.keys().any(|name| name.starts_with("trusted.SGI_ACL_"));
            let name = format!("/{}", seen.path());
            let is_it = |(path, facts): (&Vec<u8>, &Facts)| {
                is_shown(facts) && (name == "/." || path.escape_ascii().to_string().ends_with(&name))
            };
            let is_less = |(ours, theirs): (&str, &str)| {
                theirs.ends_with('x') && without(ours, &[10]) == without(theirs, &[10])
            };
            // One that is made shows the type alone.
            let is_only = only(seen).is_some_and(|code| without(code, &[2, 10]).ends_with("......."));
            let is_theirs = is_only && seen.finding.line.starts_with("only rsync lists ");
            let is_either = is_theirs || codes(seen).is_some_and(is_less);
            // With `-U` nobody has looked before the runs.
            let was_there = seen.before.is_none() && seen.namesakes().any(has_list);
            let is_there = [Some(seen.theirs), Some(seen.ours), seen.before]
                .into_iter()
                .flatten()
                .any(|survey| survey.iter().any(is_it));
            seen.case.has_letter('X') && is_either && (was_there || is_there)
        },
    },
    Known {
        says: "A special file or device of another type is listed as new.",
        explains: |seen| {
            let is_new = |kind: &str| {
                codes(seen).is_some_and(|(ours, theirs)| {
                    ours == format!("c{kind}+++++++++") && theirs.starts_with(&format!("c{kind}c"))
                })
            };
            let has = |is_one: fn(&Kind) -> bool| seen.case.world.iter().any(|node| is_one(&node.kind));
            let of_fifos = has(|kind| matches!(kind, Kind::Fifo)) && has(|kind| matches!(kind, Kind::Socket));
            let is_block = |kind: &Kind| matches!(kind, Kind::BlockDevice(..));
            let of_devices = has(is_block) && has(|kind| matches!(kind, Kind::CharDevice(..)));
            // A single file may get another name, and the old one be the second name of another.
            is_new("S") && of_fifos || is_new("D") && of_devices
        },
    },
    Known {
        says: "Under `--fake-super`, an attribute that is not copied is no change.",
        explains: |seen| {
            let is_others = |node: &Node| node.xattrs.iter().any(|(name, _)| !name.starts_with("user."));
            let is_only =
                only(seen).is_some_and(|code| code.starts_with(['.', 'c']) && code.ends_with("........x"));
            let is_theirs = is_only && seen.finding.line.starts_with("only rsync lists ");
            let is_less = codes(seen).is_some_and(|(ours, theirs)| {
                theirs.ends_with('x') && without(ours, &[10]) == without(theirs, &[10])
            });
            let is_either = is_theirs || is_less;
            let has_some = seen.namesakes().any(is_others)
                || seen.is_of_one_entry() && seen.case.world.iter().any(is_others);
            seen.case.has(&["--fake-super"]) && seen.case.has_letter('X') && is_either && has_some
        },
    },
    Known {
        says: "Under `--fake-super`, a device or special file that an alternate directory has is listed where it is made.",
        explains: |seen| {
            let is_told = ["cDc", "cSc"].iter().any(|code| {
                seen.finding.line.starts_with(&format!("only dsync lists {code}"))
                    && only(seen).is_some_and(|code| without(code, &[0, 1, 2, 4, 5]) == "......")
            });
            let is_device = |node: &Node| {
                let is_special = matches!(node.kind, Kind::Fifo | Kind::Socket);
                is_special || matches!(node.kind, Kind::CharDevice(..) | Kind::BlockDevice(..))
            };
            seen.case.has(&["--fake-super"])
                && seen.case.has(&["--copy-dest", "--link-dest"])
                && is_told
                && seen.namesakes().any(is_device)
        },
    },
    Known {
        says: "Where nothing can be linked to an alternate directory, a file that stays is listed with its changes.",
        explains: |seen| {
            let is_told = ["only dsync lists .f", "only rsync lists cf"];
            let is_told = is_told.iter().any(|told| seen.finding.line.starts_with(told));
            let is_there = |node: &Node| node.path.starts_with(b"w/d/");
            seen.may_link_nothing() && is_told && seen.namesakes().any(is_there)
        },
    },
    Known {
        says: "A file that is copied from an alternate directory on another filesystem is listed like one that is linked.",
        explains: |seen| {
            let is_elsewhere = |option: &String| option.starts_with("--link-dest=%");
            let is_theirs = seen.finding.line.starts_with("only rsync lists cf");
            // With `--info=name2` both list it.
            let are_both = codes(seen).is_some_and(|(ours, theirs)| {
                let (one, other) = (ours.strip_prefix("hf"), theirs.strip_prefix("cf"));
                one.is_some() && one == other
            });
            (is_theirs || are_both) && seen.case.options.iter().any(is_elsewhere)
        },
    },
    Known {
        says: "A link that is replaced is listed with its attributes too.",
        explains: |seen| {
            // Its access time may be listed as well: that is another entry's.
            let is_more = codes(seen).is_some_and(|(ours, theirs)| {
                let are_links = [ours, theirs].iter().all(|code| code.starts_with("cLc"));
                are_links && ours.ends_with('x') && without(ours, &[8, 10]) == without(theirs, &[8, 10])
            });
            let has_some = |node: &Node| matches!(node.kind, Kind::Symlink(_)) && !node.xattrs.is_empty();
            // A single file may get another name.
            let is_renamed = seen.case.operands.last().is_some_and(|operand| !operand.ends_with('/'));
            let is_other = is_renamed
                && seen.case.world.iter().any(|node| has_some(node) && node.path.starts_with(b"w/d/"));
            let had_some = seen.namesakes().any(has_some) || seen.is_linked() || is_other;
            seen.case.has_letter('X') && is_more && had_some
        },
    },
    Known {
        says: "A link that is replaced by one with the same attributes is listed without them.",
        explains: |seen| {
            let is_less = codes(seen).is_some_and(|(ours, theirs)| {
                let are_links = [ours, theirs].iter().all(|code| code.starts_with("cLc"));
                are_links && theirs.ends_with('x') && without(ours, &[8, 10]) == without(theirs, &[8, 10])
            });
            let links = || seen.namesakes().filter(|node| matches!(node.kind, Kind::Symlink(_)));
            let is_same = links().any(|one| {
                !one.xattrs.is_empty()
                    && links().any(|other| one.path != other.path && one.xattrs == other.xattrs)
            });
            seen.case.has_letter('X') && is_less && (is_same || seen.is_linked())
        },
    },
    Known {
        says: "A directory that gives way to an equal entry of a `--compare-dest` directory is listed as deleted.",
        explains: |seen| {
            let is_told = seen.finding.line.starts_with("only dsync lists *deleting: ");
            let there = [format!("w/d/{}", seen.path()), format!("w/to-d/{}", seen.path())];
            let is_there = |path: &Vec<u8>| there.contains(&path.escape_ascii().to_string());
            let has_gone = !seen.theirs.keys().any(is_there) && !seen.ours.keys().any(is_there);
            let is_sources = seen.namesakes().any(|node| node.path.starts_with(b"w/s"));
            is_told && seen.case.has(&["--compare-dest"]) && has_gone && is_sources
        },
    },
    Known {
        says: "A directory that an option names is listed neither as deleted nor with a time.",
        explains: |seen| {
            let lists = |code: &str| only(seen).is_some_and(|listed| listed.starts_with(code));
            let is_told = seen.finding.line.starts_with("only rsync lists ") && lists("*deleting");
            let directory = options::place(seen.path());
            // A backup that rsync makes there changes its time before it is compared.
            let is_more = |(ours, theirs): (&str, &str)| {
                theirs.starts_with(".d..t") && without(ours, &[4]) == without(theirs, &[4])
            };
            let is_timed = lists(".d..t") || codes(seen).is_some_and(is_more);
            let is_touched = is_timed && seen.case.has(&["--backup-dir"]);
            // rsync tells what gives way to a backup in its directory, and names it as the option does.
            let is_in_backups = seen.path().starts_with('/') || seen.has_place_around(&directory);
            let is_of_backup = seen.case.has(&["--backup-dir"]) && is_in_backups;
            let is_own = seen.has_place_at(&directory) || seen.has_place_in(&directory);
            is_told && (seen.case.deletes() && is_own || is_of_backup) || is_touched && is_own
        },
    },
    Known {
        says: "With `--delete-excluded`, or a rule that includes it, a backup that gives way to a new one is not listed as deleted.",
        explains: |seen| {
            let is_told = seen.finding.line.starts_with("only rsync lists *deleting: ");
            let suffix = if seen.case.has(&["--suffix"]) { ".old" } else { "~" };
            let at = format!("w/d/{}", seen.path());
            let is_there = seen.ours.keys().any(|path| path.escape_ascii().to_string() == at);
            let includes = seen.case.has(&["--include", "--include-from", "--filter", "-F", "-C"]);
            is_told
                && is_there
                && seen.path().ends_with(suffix)
                && seen.case.has(&["-b"])
                && !seen.case.has(&["--backup-dir"])
                && (seen.case.has(&["--delete-excluded"]) || seen.case.deletes() && includes)
        },
    },
    Known {
        says: "With `-b`, an entry of the source's that has a backup's name is compared with what was there before the run.",
        explains: |seen| {
            let suffix = if seen.case.has(&["--suffix"]) { ".old" } else { "~" };
            seen.case.has(&["-b"])
                && !seen.case.has(&["--backup-dir"])
                && seen.path().ends_with(suffix)
                && seen.namesakes().any(|node| node.path.starts_with(b"w/s"))
        },
    },
    Known {
        says: "With `--no-g` or `--no-o` behind it, an option that maps groups or owners changes nothing that is listed.",
        explains: |seen| {
            let is_less = |option: &str, column: usize, letter: &str| {
                let is_it = |(ours, theirs): (&str, &str)| {
                    theirs.get(column..=column) == Some(letter)
                        && without(ours, &[column]) == without(theirs, &[column])
                };
                seen.case.has(&[option]) && codes(seen).is_some_and(is_it)
            };
            let maps = seen.case.has(&["--chown", "--usermap", "--groupmap"]);
            maps && (is_less("--no-g", 7, "g") || is_less("--no-o", 6, "o"))
        },
    },
    Known {
        says: "With `-J`, a link that differs from an alternate one is listed without its time.",
        explains: |seen| {
            let is_less = codes(seen).is_some_and(|(ours, theirs)| {
                let are_links = [ours, theirs].iter().all(|code| code.starts_with("cLc"));
                are_links && theirs.get(4..5) == Some("t") && without(ours, &[4]) == without(theirs, &[4])
            });
            let has_alternate = seen.case.has(&["--link-dest", "--copy-dest", "--compare-dest"]);
            (seen.case.has_letter('J') || seen.case.has(&["--omit-link-times"])) && has_alternate && is_less
        },
    },
    Known {
        says: "An old file that cannot be read is listed with its changes.",
        explains: |seen| {
            let is_new = codes(seen).is_some_and(|(ours, theirs)| {
                ours.get(1..2) == Some("f") && !ours.ends_with('+') && theirs.ends_with("f+++++++++")
            });
            // A single file may get another name.
            let refused = "[generator] failed to open ";
            let is_refused = seen.rsync_says_of_it(refused)
                || seen.case.operands.len() == 2 && seen.rsync.stderr_text().contains(refused);
            is_new && seen.case.is_nobody && is_refused
        },
    },
    Known {
        says: "A time without a fraction is equal to any of its second.",
        explains: |seen| {
            let is_less = codes(seen).is_some_and(|(ours, theirs)| {
                theirs.get(4..5) == Some("t") && without(ours, &[4]) == without(theirs, &[4])
            });
            let seconds: Vec<_> = seen.namesakes().map(|node| node.mtime).collect();
            let is_whole = seconds
                .iter()
                .any(|one| one.1 == 0 && seconds.iter().any(|other| one.0 == other.0 && other.1 != 0));
            // An entry of an alternate directory is listed for that alone.
            let is_only = seen.finding.line.starts_with("only rsync lists c")
                && only(seen).is_some_and(|code| {
                    code.get(4..5) == Some("t") && without(code, &[0, 1, 2, 4]) == "......."
                });
            (is_less || is_only) && is_whole
        },
    },
];

/// Returns whether an entry has an access control list.
fn has_list(node: &Node) -> bool {
    node.xattrs.iter().any(|(name, _)| name.starts_with("system.posix_acl_"))
}

/// Returns what a name is listed with by dsync and by rsync.
fn codes<'a>(seen: &'a Seen<'_>) -> Option<(&'a str, &'a str)> {
    seen.finding.line.rsplit_once("': listed as ")?.1.split_once(", should be ")
}

/// Returns what a name is listed with by the one program that lists it.
fn only<'a>(seen: &'a Seen<'_>) -> Option<&'a str> {
    let (_, rest) = seen.finding.line.strip_prefix("only ")?.split_once(" lists ")?;
    rest.split_once(": '").map(|(code, _)| code)
}

/// Returns a code without the letters of some columns.
fn without(code: &str, columns: &[usize]) -> String {
    code.char_indices().filter(|(at, _)| !columns.contains(at)).map(|(_, letter)| letter).collect()
}
