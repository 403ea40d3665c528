//! Known differences: attributes.

use super::{Known, seen::Attributes};
use crate::{
    hunt::{case::Carrier, judge::Class, options},
    tree::{Kind, Node},
};

/// The entries of the section.
pub(super) const ENTRIES: &[Known] = &[
    Known {
        says: "A directory keeps none of the permissions that its user gives himself to work in it.",
        explains: |seen| {
            let follows = "Lk".chars().any(|letter| seen.case.has_letter(letter))
                || seen.case.has(&["--copy-unsafe-links"]);
            let is_directory = seen.namesakes().any(|node| match node.kind {
                Kind::Symlink(_) => follows,
                _ => matches!(node.kind, Kind::Dir),
            });
            // rsync drops the bit that a new one has from the directory above.
            let has_bit = |node: &Node| node.path.starts_with(b"w/d") && node.mode & 0o2000 != 0;
            let bit = if seen.case.world.iter().any(has_bit) { 0o2000 } else { 0 };
            let is_more =
                |(ours, theirs): (u16, u16)| ours & !theirs & !bit == 0 && theirs & !ours & !0o700 == 0;
            let keeps = is_directory && seen.modes().is_some_and(is_more);
            let is_unread = seen.about(&["mode", "extended attributes"]) && seen.rsync_says_of_it("opendir");
            // The mode is also in the list that goes beyond it.
            let is_in_list = is_directory && seen.differs_in_owner_of_list();
            seen.case.is_nobody && (keeps || is_in_list || is_unread)
        },
    },
    Known {
        says: "Times that differ by what a filesystem does not keep are equal.",
        explains: |seen| {
            let fraction = |node: &Node| node.mtime.1;
            let is_cut = seen.namesakes().map(fraction).any(|fraction| fraction % 100 == 0);
            let is_whole = seen.namesakes().map(fraction).all(|fraction| fraction % 100 == 0);
            let alternates = ["--copy-dest", "--link-dest", "--compare-dest"];
            let is_one = seen.finding.line.starts_with("should not be one file: ");
            let is_taken = is_one || seen.about(&["content", "mtime"]);
            seen.case.has(&alternates) && is_taken && is_cut && !is_whole
        },
    },
    Known {
        says: "With `--modify-window`, an entry that gets other attributes gets its times too.",
        explains: |seen| {
            let is_close = seen.seconds().is_some_and(|(ours, theirs)| ours.abs_diff(theirs) <= 1);
            seen.case.has(&["--modify-window"]) && (is_close || seen.about(&["atime"]))
        },
    },
    Known {
        says: "With `--ignore-existing`, what stands in the place of a directory stays as it is.",
        explains: |seen| {
            let follows = seen.case.has_letter('L')
                || seen.case.has_letter('k')
                || seen.case.has(&["--copy-unsafe-links"]);
            let is_link = |node: &Node| matches!(node.kind, Kind::Symlink(_));
            let stands_for_a_directory = follows && seen.namesakes().any(is_link);
            // rsync writes to where the link leads.
            let says = seen.dsync.stderr_text();
            let is_in_the_way = seen.dsync.code() == Some(23)
                && says.contains("cannot read destination directory '")
                && says.contains("Not a directory")
                && (seen.is(Class::Exit) || seen.finding.line.starts_with("missing: "))
                && seen.case.world.iter().any(is_link);
            seen.case.has(&["--ignore-existing"])
                && seen.about(&["mtime", "mode", "owner", "extended attributes"])
                && (seen.is_of_several_types() || seen.is_linked() || stands_for_a_directory)
                || seen.case.has(&["--ignore-existing"]) && is_in_the_way
                || seen.case.has(&["--ignore-existing"])
                    && seen.case.deletes()
                    && (seen.is(Class::Exit)
                        && (seen.dsync.code() == Some(0)
                            || seen.dsync.code() == Some(25) && seen.case.has(&["--max-delete"]))
                        && seen.rsync.stderr_text().contains("failed: Not a directory (20)")
                        || seen.rsync_deletes_through_a_link())
        },
    },
    Known {
        says: "Without `-p`, a new entry with attributes has no setuid, setgid or sticky bit of the source's and obeys the umask either way.",
        explains: |seen| {
            let umask = u16::try_from(seen.case.umask).unwrap_or(0);
            let is_more = |(ours, theirs): (u16, u16)| {
                // The setgid bit comes from the directory above, or not at all.
                let masked = 0o5000 | umask | (theirs & !ours & 0o2000);
                ours & masked == 0 && theirs == ours | theirs & masked
            };
            // The mask of a list is what its entry has for the group.
            let is_masked_list = seen.attributes().is_some_and(|(ours, theirs)| {
                let others = |attributes: &Attributes<'_>| -> Vec<(String, String)> {
                    let others = attributes.iter().filter(|(name, _)| **name != ACCESS_LIST);
                    others.map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
                };
                let is_there = ours.contains_key(ACCESS_LIST) && theirs.contains_key(ACCESS_LIST);
                umask & 0o77 != 0 && is_there && others(&ours) == others(&theirs)
            });
            // Or what the default list of its directory says.
            let above = |path: &str| path.rsplit_once('/').map(|(above, _)| above.replacen("w/d", "w/s", 1));
            let gives_list = |node: &Node| {
                let is_above = above(seen.path()) == Some(node.path.escape_ascii().to_string());
                is_above && node.xattrs.iter().any(|(name, _)| name == "system.posix_acl_default")
            };
            let is_less = |(ours, theirs): (u16, u16)| ours & !theirs == 0 && (ours ^ theirs) & !0o777 == 0;
            let is_listed = seen.modes().is_some_and(is_less) && seen.case.world.iter().any(gives_list);
            let is_either = is_masked_list || is_listed || seen.modes().is_some_and(is_more);
            let has_attributes = "XA".chars().any(|letter| seen.case.has_letter(letter));
            has_attributes && !seen.case.has_letter('p') && is_either
        },
    },
    Known {
        says: "An access control list has one entry for each user, also when owners are mapped.",
        explains: |seen| {
            seen.case.has(&["--chown", "--usermap", "--groupmap"]) && seen.about(&["extended attributes"])
        },
    },
    Known {
        says: "With `--no-g` or `--no-o` behind it, an option that maps groups or owners maps nothing.",
        explains: |seen| {
            let is_last = |option: &str, map: &str| {
                let at =
                    |wanted: &str| seen.case.options.iter().rposition(|given| options::name(given) == wanted);
                at(map).is_some_and(|map| at(option).is_some_and(|option| option > map))
            };
            let maps = |option: &str, map: &str| is_last(option, map) || is_last(option, "--chown");
            let (of_group, of_owner) = (maps("--no-g", "--groupmap"), maps("--no-o", "--usermap"));
            // A user may not set what they map to, and rsync sets nothing behind that.
            let calls = ["chgrp \"", "chown \""];
            let is_refused = seen.case.is_nobody
                && (seen.is(Class::Exit)
                    && (seen.rsync.code(), seen.dsync.code()) == (Some(23), Some(0))
                    && calls.iter().any(|call| seen.rsync.stderr_text().contains(call))
                    || seen.about(&["mode", "mtime", "extended attributes"])
                        && calls.iter().any(|call| seen.rsync_says_of_it(call)));
            let ids = seen.values().filter(|_| seen.about(&["owner"]));
            let ids = ids.and_then(|(ours, theirs)| Some((ours.split_once(", ")?, theirs.split_once(", ")?)));
            is_refused && (of_group || of_owner)
                || ids.is_some_and(|(ours, theirs)| {
                    ours.0 == theirs.0 && of_group || ours.1 == theirs.1 && of_owner
                })
        },
    },
    Known {
        says: "Without `-p`, a destination that `--mkpath` makes has the mode of the source, less the umask.",
        explains: |seen| {
            let is_new = !seen.case.world.iter().any(|node| node.path == b"w/d");
            let makes = seen.case.has(&["--mkpath"]) && !seen.case.has_letter('p');
            makes && is_new && seen.is_root() && seen.about(&["mode"])
        },
    },
    Known {
        says: "Without `-p`, an entry that replaces one of another type gets a mode of its own.",
        explains: |seen| {
            let follows = "Lk".chars().any(|letter| seen.case.has_letter(letter))
                || seen.case.has(&["--copy-unsafe-links"]);
            let is_followed =
                |node: &Node| matches!(node.kind, Kind::Symlink(_)) && node.path.starts_with(b"w/s");
            // A single entry may get another name.
            let is_renamed = seen.case.operands.len() == 2 && !seen.case.operands[0].ends_with('/');
            let is_one =
                seen.is_of_several_types() || is_renamed || follows && seen.namesakes().any(is_followed);
            seen.about(&["mode"]) && !seen.case.has_letter('p') && is_one
        },
    },
    Known {
        says: "Without `-p`, an old file that cannot be read keeps its mode.",
        explains: |seen| {
            let is_foreign = |node: &Node| node.owner == Some((0, 0)) || node.mode & 0o400 == 0;
            seen.about(&["mode"])
                && seen.case.is_nobody
                && !seen.case.has_letter('p')
                && seen.namesakes().any(is_foreign)
        },
    },
    Known {
        says: "Setuid, setgid and sticky bits and capabilities of a file stay only with its owner.",
        explains: |seen| {
            let keeps = "pog".chars().all(|letter| seen.case.has_letter(letter)) && !seen.case.is_nobody;
            let drops_bits =
                |(ours, theirs): (u16, u16)| ours & 0o7000 != theirs & 0o7000 && (ours ^ theirs) & 0o777 == 0;
            let drops_capability = |(ours, theirs): (&str, &str)| {
                !ours.contains("security.capability") && theirs.contains("security.capability")
            };
            let has_bits = |node: &Node| matches!(node.kind, Kind::Spliced(_)) && node.mode & 0o7000 != 0;
            // A file that may not have the bits of its counterpart in an alternate directory is
            // neither linked to it nor left out.
            let own = ["not one file: ", "should not be one file: ", "extra: "];
            let has_capability =
                |node: &Node| node.xattrs.iter().any(|(name, _)| name == "security.capability");
            let is_special =
                |node: &Node| has_bits(node) || seen.case.has_letter('X') && has_capability(node);
            // Nor is there anything to copy where only they differ.
            let is_equal = seen.finding.line.starts_with("missing: ") && seen.case.has(&["--compare-dest"]);
            let is_own = seen.is(Class::Tree) && own.iter().any(|what| seen.finding.line.starts_with(what))
                || is_equal && seen.namesakes().any(is_special)
                || seen.about(&["owner", "mtime", "atime", "extended attributes", "content"])
                    && seen.namesakes().any(is_special);
            // Without a time of its own a copy is made again by each run.
            let is_again = seen.is(Class::Second)
                && !seen.case.has_letter('t')
                && ["<f..T", ">f..T"].iter().any(|line| seen.finding.line.contains(line))
                && seen.case.world.iter().any(is_special);
            // It comes from the source, which is moved then, or cannot be read.
            let is_moved = seen.is(Class::Tree)
                && seen.path().starts_with("w/s")
                && seen.case.has(&["--remove-source-files", "--remove-sent-files"])
                && seen.case.world.iter().any(is_special);
            let fails = seen.is(Class::Exit)
                && (seen.rsync.code(), seen.dsync.code()) == (Some(0), Some(23))
                && seen.dsync.stderr_text().contains("cannot read '");
            let is_missing =
                seen.finding.line.starts_with("missing: ") && seen.dsync_says_of_it("cannot read '");
            let is_unread =
                (fails || is_missing) && seen.case.is_nobody && seen.case.world.iter().any(has_bits);
            let is_link = (is_own || is_again || is_moved || is_unread)
                && seen.case.has(&["--link-dest", "--copy-dest", "--compare-dest"]);
            let is_spared = seen.about(&["mode"]) && seen.namesakes().any(has_capability);
            let lost = seen.modes().is_some_and(drops_bits)
                || seen.values().is_some_and(drops_capability)
                || is_spared && seen.case.has_letter('X');
            // rsync tries to give them to another user's file, and is refused.
            let is_refused = seen.is(Class::Exit)
                && seen.dsync.code() == Some(0)
                && seen.case.is_nobody
                && seen.rsync.stderr_text().contains("failed to set permissions")
                && seen.case.world.iter().any(has_bits);
            !keeps && (lost || is_link || is_refused)
        },
    },
    Known {
        says: "A list that XFS shows as an attribute is no attribute.",
        explains: |seen| {
            let is_shown =
                seen.about(&["extended attributes"]) && seen.finding.line.contains("trusted.SGI_ACL_");
            // rsync takes what has a list for other than its equal in an alternate directory.
            let has_list =
                |node: &Node| node.xattrs.iter().any(|(name, _)| name.starts_with("system.posix_acl_"));
            let alternates = ["--link-dest", "--copy-dest", "--compare-dest"];
            let is_copied = seen.case.has(&alternates)
                && ["missing: ", "not one file: "].iter().any(|what| seen.finding.line.starts_with(what))
                && seen.case.has_letter('X')
                && seen.case.world.iter().any(has_list);
            // Of two it takes the other one, which has the list.
            let given = seen.case.options.iter().filter(|option| alternates.contains(&options::name(option)));
            let is_other = given.count() > 1
                && seen.about(&["content", "mode", "owner", "mtime"])
                && seen.case.has_letter('X')
                && seen.namesakes().any(has_list);
            // With its list it loses the mode that the list's mask stands for.
            let is_unmasked = seen.about(&["mode"])
                && seen.case.has_letter('X')
                && !seen.case.has_letter('A')
                && seen.namesakes().any(has_list);
            // So it sends that, and removes it at the source.
            let is_sent = seen.case.has(&alternates)
                && seen.case.has(&["--remove-sent-files"])
                && seen.case.has_letter('X')
                && seen.finding.line.starts_with("extra: ")
                && seen.path().starts_with("w/s")
                && seen.namesakes().any(has_list);
            is_shown || is_copied || is_other || is_unmasked || is_sent
        },
    },
    Known {
        says: "Lists and attributes of an entry are not asked of another that has its name.",
        explains: |seen| {
            let said = seen.rsync.stderr_text();
            let asks = [
                "ACL_TYPE_DEFAULT): Permission denied",
                "gen_entry_copy_xattrs: openat",
                "gen_entry_copy_xattrs: secure open of \"",
            ];
            // It sets those of a directory's counterpart in an alternate directory first.
            let sets = seen.case.is_nobody
                && seen.case.has(&["--copy-dest", "--link-dest", "--compare-dest"])
                && seen.dsync.code() == Some(0)
                && said.contains("[generator] copy_xattrs: fsetxattr(");
            // In a dry run it sets those of a copy that it has not made.
            let sets = sets
                || seen.case.has_letter('n')
                    && seen.case.has(&["--copy-dest"])
                    && seen.dsync.code() == Some(0)
                    && said.contains("[generator] copy_xattrs: lsetxattr(");
            seen.is(Class::Exit) && (sets || asks.iter().any(|words| said.contains(words)))
        },
    },
    Known {
        says: "Without `-p`, an entry that is there keeps its mode.",
        explains: |seen| {
            let stays = seen.modes().is_some_and(|(ours, theirs)| {
                let old = |node: &&Node| node.path.starts_with(b"w/d/");
                let is_made_writable = theirs == ours | 0o600;
                let is_new = |node: &Node| node.path.starts_with(b"w/s") && node.mode == u32::from(theirs);
                let has_new = seen.namesakes().any(is_new) || seen.case.has(&["--chmod"]);
                let is_one = |node: &Node| matches!(node.kind, Kind::Dir) || is_made_writable || has_new;
                // A note keeps what its file may not have.
                let least = if seen.case.has(&["--fake-super"]) { 0o600 } else { 0 };
                let has_old = |node: &Node| node.mode & 0o777 | least == u32::from(ours) & 0o777 | least;
                let is_there = seen.namesakes().filter(old).any(|node| is_one(node) && has_old(node));
                let has_mode = |at: &[u8], mode: u16| {
                    let node = seen.case.world.iter().find(|node| node.path == at);
                    node.is_some_and(|node| node.mode == u32::from(mode))
                };
                let is_root = seen.path() == "w/d"
                    && seen.case.has_letter('A')
                    && has_mode(b"w/d", ours)
                    && has_mode(b"w/s", theirs);
                is_there || is_root
            });
            let has_old = seen.namesakes().any(|node| node.path.starts_with(b"w/d/"));
            let is_noted = seen.case.has(&["--fake-super"])
                && has_old
                && seen.values().is_some_and(|(ours, theirs)| {
                    ours.contains("user.rsync.%stat") && !theirs.contains("user.rsync.%stat")
                });
            // The entries of a list for the owner, the mask and the others are the mode.
            let is_in_list = seen.case.has_letter('A')
                && (has_old || seen.is_linked())
                && seen.values().is_some_and(|(ours, theirs)| {
                    let lists = [ours, theirs].map(|text| printed_list(text, ACCESS_LIST));
                    let [Some(our), Some(their)] = lists else { return false };
                    list(&our) == list(&their) && without_list(ours) == without_list(theirs)
                });
            let is_given = seen.case.has_letter('X') && (stays || is_noted) || is_in_list;
            !seen.case.has_letter('p') && is_given
        },
    },
    Known {
        says: "With `-U` and without `-t`, a new entry has the time of the run.",
        explains: |seen| {
            let is_none = seen.seconds().is_some_and(|(_, theirs)| theirs == -1);
            seen.case.has_letter('U') && !seen.case.has_letter('t') && is_none
        },
    },
    Known {
        says: "With `-U`, what a filesystem shares or copies by itself is not read.",
        explains: |seen| {
            let alternates = &["--copy-dest", "--link-dest", "--compare-dest"];
            // So it is with a similar file, and with an old one that a link of the source leads to.
            let reads = "yLk".chars().any(|letter| seen.case.has_letter(letter))
                || seen.case.has(&["--fuzzy", "--copy-unsafe-links"]);
            let is_read_by_rsync = seen.finding.line.ends_with(&format!("should be Some({})", i64::MAX));
            // Nor an old file whose new content cannot be read.
            let is_unread =
                is_read_by_rsync && seen.rsync.stderr_text().contains("send_files failed to open");
            let is_either = seen.is_within(alternates) || reads && is_read_by_rsync || is_unread;
            seen.case.has_letter('U') && seen.about(&["atime"]) && is_either
        },
    },
    Known {
        says: "An access control list is the source's, entry by entry.",
        explains: |seen| {
            let of_source = |node: &&Node| node.path.starts_with(b"w/s");
            let is_noted = seen.values().is_some_and(|(ours, theirs)| {
                [ours, theirs].iter().all(|text| text.contains("user.rsync.%aacl"))
            });
            // Of a file with several names the first one has them.
            let lists = seen.case.world.iter().filter(of_source).flat_map(|node| &node.xattrs);
            let mut lists = lists.filter(|(name, _)| name.starts_with("system.posix_acl_"));
            seen.case.has_letter('A')
                && seen.about(&["extended attributes"])
                && lists.any(|(name, value)| {
                    // In a note of --fake-super the entries that follow a mode are left out.
                    if seen.case.has(&["--fake-super"]) && is_noted {
                        return true;
                    }
                    // The owner's entry, the mask and the others' follow the entry's mode.
                    let wanted = list(value);
                    seen.values().is_some_and(|(ours, theirs)| {
                        let of = |text: &str| printed_list(text, name).map(|value| list(&value));
                        of(ours).as_ref() == Some(&wanted) && of(theirs).as_ref() != Some(&wanted)
                    })
                })
        },
    },
    Known {
        says: "Beside `-A`, `--no-p` stands over a connection as well.",
        explains: |seen| {
            seen.case.has_letter('A')
                && seen.case.has(&["--no-p", "--no-perms"])
                && seen.case.carrier != Carrier::Local
                && seen.about(&["mode"])
        },
    },
    Known {
        says: "Attributes that cannot be read are set again.",
        explains: |seen| {
            let is_closed = |node: &Node| node.path.starts_with(b"w/d") && node.mode & 0o400 == 0;
            // Who does not own it fails.
            let is_refused = seen.is(Class::Exit)
                && (seen.rsync.code(), seen.dsync.code()) == (Some(0), Some(23))
                && seen.dsync.stderr_text().contains("cannot set attributes of '");
            let is_again = seen.is(Class::Second) && seen.finding.line.contains("'.f........x ");
            (is_again || is_refused)
                && seen.case.is_nobody
                && seen.case.has_letter('X')
                && seen.case.world.iter().any(is_closed)
        },
    },
];

/// The attribute that holds a file's access control list.
const ACCESS_LIST: &str = "system.posix_acl_access";

/// Returns the entries of an access control list without the ones that a mode replaces.
fn list(value: &[u8]) -> Vec<Vec<u8>> {
    let is_replaced = |entry: &&[u8]| matches!(entry.first(), Some(1 | 16 | 32));
    let entries = value.get(4..).unwrap_or_default().chunks(8);
    entries.filter(|entry| !is_replaced(entry)).map(<[u8]>::to_vec).collect()
}

/// Returns attributes as a finding prints them, without the access control list.
fn without_list(text: &str) -> Option<(&str, &str)> {
    let (before, list) = text.split_once(&format!("\"{ACCESS_LIST}\": ["))?;
    Some((before, list.split_once(']')?.1))
}

/// Returns a list from the attributes as a finding prints them.
fn printed_list(text: &str, name: &str) -> Option<Vec<u8>> {
    let (_, list) = text.split_once(&format!("\"{name}\": ["))?;
    list.split(']').next()?.split(", ").map(|byte| byte.parse().ok()).collect()
}
