//! Intended differences from rsync, each with its reason; `docs/from-rsync.md` explains each for
//! people.
//!
//! An entry excuses as little as it can: one kind of finding, under the options that it is about.
//! Anything merely worse than rsync is a finding, not an entry.

use super::{
    case::Case,
    judge::{Class, Finding},
    options,
    world::HOST,
};
use crate::{
    run::Outcome,
    tree::{Kind, Node},
};

/// An intended difference.
pub(super) struct Known {
    /// Its sentence in `docs/from-rsync.md`.
    pub says: &'static str,
    /// Returns whether it explains a finding.
    explains: fn(&Seen<'_>) -> bool,
}

/// The facts that an entry of the table may examine.
pub(super) struct Seen<'a> {
    pub case: &'a Case,
    pub finding: &'a Finding,
    pub rsync: &'a Outcome,
    pub dsync: &'a Outcome,
}

/// Returns the number of the entry that explains a finding.
pub(super) fn excuse(seen: &Seen<'_>) -> Option<usize> {
    KNOWN.iter().position(|known| (known.explains)(seen))
}

impl Seen<'_> {
    fn is(&self, class: Class) -> bool {
        self.finding.class == class
    }

    /// Returns whether the line is about one of these facts of an entry.
    fn about(&self, facts: &[&str]) -> bool {
        self.is(Class::Tree) && facts.iter().any(|fact| self.finding.line.contains(&format!("': {fact} is ")))
    }

    /// Returns whether the line is about an entry that only one of the programs has.
    fn is_presence(&self) -> bool {
        self.is(Class::Tree)
            && ["extra: ", "missing: "].iter().any(|word| self.finding.line.starts_with(word))
    }

    /// Returns the path that the line is about, as printed.
    fn path(&self) -> &str {
        self.finding.path()
    }

    /// Returns whether the path is in the directory that one of these options names, or that directory itself.
    fn is_within(&self, names: &[&str]) -> bool {
        let given = self.case.options.iter().filter(|option| names.contains(&options::name(option)));
        let mut places =
            given.filter_map(|option| option.split_once('=')).map(|(_, value)| options::place(value));
        let paths = self.finding.paths();
        let is_in = |path: &str, place: &str| {
            path.strip_prefix(place).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        places.any(|place| paths.iter().any(|path| is_in(path, &place)))
    }

    /// Returns whether a directory that an option names is in this one.
    fn has_place_in(&self, directory: &str) -> bool {
        let given = self.case.options.iter().filter(|option| PLACES.contains(&options::name(option)));
        let mut values = given.filter_map(|option| option.split_once('='));
        values.any(|(_, value)| {
            let place = options::place(value);
            place.strip_prefix(directory).is_some_and(|rest| rest.starts_with('/'))
        })
    }

    /// Returns whether a directory that an option names is in the destination.
    fn has_place_inside(&self) -> bool {
        self.has_place_in("w/d")
    }

    /// Returns whether a directory that an option names is in the destination directory that the
    /// line is about.
    fn has_place_below(&self) -> bool {
        self.path().starts_with("w/d/") && self.has_place_in(self.path())
    }

    /// Returns the entries of all trees that have the path's last name.
    fn namesakes(&self) -> impl Iterator<Item = &Node> {
        let name = self.path().rsplit('/').next().unwrap_or_default().to_owned();
        let is_namesake = move |node: &&Node| {
            let last = node.path.rsplit(|&byte| byte == b'/').next().unwrap_or_default();
            last.escape_ascii().to_string() == name
        };
        self.case.world.iter().chain(&self.case.other).filter(is_namesake)
    }

    /// Returns dsync's value and rsync's value of a fact, as printed.
    fn values(&self) -> Option<(&str, &str)> {
        self.finding.line.rsplit_once("': ")?.1.split_once(" is ")?.1.split_once(", should be ")
    }

    /// Returns both modes, if the line is about modes.
    fn modes(&self) -> Option<(u16, u16)> {
        let (ours, theirs) = self.values().filter(|_| self.about(&["mode"]))?;
        Some((ours.parse().ok()?, theirs.parse().ok()?))
    }

    /// Returns the whole seconds of both times, if the line is about times.
    fn seconds(&self) -> Option<(i64, i64)> {
        let of = |time: &str| time.trim_start_matches('(').split(',').next()?.parse().ok();
        let (ours, theirs) = self.values().filter(|_| self.about(&["mtime"]))?;
        Some((of(ours)?, of(theirs)?))
    }

    /// Returns whether rsync prints these words, and in the same line the path's last name.
    fn rsync_says_of_it(&self, words: &str) -> bool {
        let name = as_rsync_prints(self.path().rsplit('/').next().unwrap_or_default());
        self.rsync.stderr_text().lines().any(|line| line.contains(words) && line.contains(&name))
    }

    /// Returns whether the path, or a directory above it, is a link of another user's.
    fn is_at_a_foreign_link(&self) -> bool {
        let path = self.path();
        self.case.world.iter().any(|node| {
            let at = node.path.escape_ascii().to_string();
            let is_foreign =
                matches!(node.kind, Kind::Symlink(_)) && node.owner.is_some_and(|(uid, _)| uid != 0);
            is_foreign && path.strip_prefix(&at).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        })
    }

    /// Returns whether a namesake has further names, or is one.
    fn is_linked(&self) -> bool {
        let is_first = |node: &Node| {
            self.case
                .world
                .iter()
                .any(|other| matches!(&other.kind, Kind::HardLink(first) if *first == node.path))
        };
        self.namesakes().any(|node| matches!(node.kind, Kind::HardLink(_)) || is_first(node))
    }

    /// Returns whether the namesakes are of several types.
    fn is_of_several_types(&self) -> bool {
        let mut kinds = self.namesakes().map(|node| std::mem::discriminant(&node.kind));
        let first = kinds.next();
        kinds.any(|kind| Some(kind) != first)
    }

    /// Returns whether the destination or the source has a directory that can be listed but not entered.
    fn has_directory_without_x(&self) -> bool {
        let is_listed_only = |node: &Node| matches!(node.kind, Kind::Dir) && node.mode & 0o500 == 0o400;
        self.case.is_nobody && self.case.world.iter().any(is_listed_only)
    }
}

/// Formats a name as rsync prints it, from the form in findings.
fn as_rsync_prints(name: &str) -> String {
    let mut printed = String::new();
    let mut letters = name.chars();
    while let Some(letter) = letters.next() {
        let escaped = if letter == '\\' { letters.next() } else { None };
        match escaped {
            None => printed.push(letter),
            Some('t') => printed.push('\t'),
            Some('n') => printed.push_str("\\#012"),
            Some('r') => printed.push_str("\\#015"),
            Some('x') => {
                let digits: String = letters.by_ref().take(2).collect();
                let byte = u8::from_str_radix(&digits, 16).unwrap_or_default();
                printed.push_str(&format!("\\#{byte:03o}"));
            }
            Some(letter) => printed.push(letter),
        }
    }
    printed
}

/// Options that name a directory which belongs to the run.
const PLACES: &[&str] =
    &["--backup-dir", "--partial-dir", "--temp-dir", "--link-dest", "--copy-dest", "--compare-dest"];

/// The table. The first entry that explains a finding counts for it.
pub(super) const KNOWN: &[Known] = &[
    Known {
        says: "With more deletions than `--max-delete` allows, none is made.",
        explains: |seen| {
            seen.case.has(&["--max-delete"]) && seen.dsync.code() == Some(25) && seen.is(Class::Tree)
        },
    },
    Known {
        says: "Under `-u`, only a file that is newer is left alone, be it by less than a second.",
        explains: |seen| {
            let times: Vec<(i64, i64)> = seen.namesakes().map(|node| node.mtime).collect();
            let has_window = seen.case.has(&["--modify-window"]);
            let is_close = |(at, one): (usize, &(i64, i64))| {
                times[..at].iter().any(|two| (has_window || one != two) && (one.0 - two.0).abs() <= 1)
            };
            seen.case.has(&["-u"]) && seen.is(Class::Tree) && times.iter().enumerate().any(is_close)
        },
    },
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
            seen.about(&["owner", "mode", "mtime", "extended attributes"])
                && seen.is_within(&["--backup-dir"])
        },
    },
    Known {
        says: "Whatever gives way has a backup.",
        explains: |seen| {
            let skipped = "make_bak: skipping non-regular file";
            // rsync treats an entry with the suffix as a backup itself.
            let suffix = if seen.case.has(&["--suffix"]) { ".old" } else { "~" };
            let is_of_backup =
                seen.finding.line.starts_with("extra: ") && seen.path().ends_with(&suffix.repeat(2));
            let is_skipped = seen.is(Class::Tree) && seen.rsync.all_text().contains(skipped);
            is_skipped || seen.case.has(&["-b"]) && is_of_backup
        },
    },
    Known {
        says: "Making the backup directory changes no time of the destination's root.",
        explains: |seen| seen.about(&["mtime"]) && seen.path() == "w/d" && seen.case.has(&["--backup-dir"]),
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
        says: "A list that XFS shows as an attribute is no attribute.",
        explains: |seen| {
            seen.about(&["extended attributes"]) && seen.finding.line.contains("trusted.SGI_ACL_")
        },
    },
    Known {
        says: "Lists and attributes of an entry are not asked of another that has its name.",
        explains: |seen| {
            let said = seen.rsync.stderr_text();
            let asks = ["ACL_TYPE_DEFAULT): Permission denied", "gen_entry_copy_xattrs: openat"];
            seen.is(Class::Exit) && asks.iter().any(|words| said.contains(words))
        },
    },
    Known {
        says: "What rsync left in a `--partial-dir` is neither taken up nor removed.",
        explains: |seen| {
            let is_part = |node: &Node| {
                let path = node.path.escape_ascii().to_string();
                ["/sub/", "/.part/", "/part/"].iter().any(|dir| path.contains(dir))
            };
            let takes_mode =
                seen.about(&["mode"]) && !seen.case.has_letter('p') && seen.namesakes().any(is_part);
            let is_in_it =
                seen.is_within(&["--partial-dir"]) && (seen.is_presence() || seen.about(&["mtime", "mode"]));
            seen.case.has(&["--partial-dir"]) && (is_in_it || takes_mode)
        },
    },
    Known {
        says: "A file that has the name of `--partial-dir` is a file like others.",
        explains: |seen| {
            let says = seen.rsync.stderr_text();
            let is_in_the_way = says.contains("rename") && says.contains("not empty");
            let is_removed = seen.finding.line.starts_with("extra: ")
                && ["/sub", "/.part"].iter().any(|name| seen.path().ends_with(name));
            seen.case.has(&["--partial-dir"]) && (is_in_the_way || is_removed)
        },
    },
    Known {
        says: "What is to be removed keeps its mode.",
        explains: |seen| {
            let is_unlocked = seen.modes().is_some_and(|(ours, theirs)| theirs == ours | 0o200);
            is_unlocked && seen.case.is_nobody
        },
    },
    Known {
        says: "A backup takes the place of an older one of whatever type.",
        explains: |seen| {
            let says = seen.rsync.stderr_text();
            seen.is_within(&["--backup-dir"]) && says.contains("File exists")
        },
    },
    Known {
        says: "An absolute `--partial-dir` is made at once, and `--temp-dir` is used under `--inplace` too.",
        explains: |seen| {
            let is_parent = seen.path() == "%/" || seen.path() == "w";
            // If that is in the destination, the run itself changes the root's time.
            let is_root = seen.is(Class::DryRun) && seen.finding.line.ends_with(" ./'");
            let is_made =
                (is_parent && seen.about(&["mtime"]) || is_root) && seen.case.has(&["--partial-dir"]);
            is_made || seen.about(&["mtime"]) && seen.is_within(&["--temp-dir"])
        },
    },
    Known {
        says: "Without `-H`, a dry run lists a change of attributes for each name of a file.",
        explains: |seen| {
            let is_link = |node: &Node| matches!(node.kind, Kind::HardLink(_));
            seen.is(Class::DryRun)
                && !seen.case.has_letter('H')
                && seen.path().starts_with('.')
                && seen.case.world.iter().any(is_link)
        },
    },
    Known {
        says: "Without `-p`, an entry that replaces one of another type gets a mode of its own.",
        explains: |seen| seen.about(&["mode"]) && !seen.case.has_letter('p') && seen.is_of_several_types(),
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
            // A file that may not have the bits of one in an alternate directory is no link to it,
            // nor is it left out.
            let is_own = ["not one file: ", "extra: "].iter().any(|what| seen.finding.line.starts_with(what));
            let is_link = seen.is(Class::Tree)
                && is_own
                && seen.case.has(&["--link-dest", "--copy-dest", "--compare-dest"]);
            let lost = seen.modes().is_some_and(drops_bits) || seen.values().is_some_and(drops_capability);
            !keeps && (lost || is_link)
        },
    },
    Known {
        says: "Without `-p`, an old file that cannot be read keeps its mode.",
        explains: |seen| {
            let is_foreign = |node: &Node| node.owner == Some((0, 0));
            seen.about(&["mode"])
                && seen.case.is_nobody
                && !seen.case.has_letter('p')
                && seen.namesakes().any(is_foreign)
        },
    },
    Known {
        says: "Under `--fake-super`, what really is a device, a fifo or a socket is replaced by a file that stands for it.",
        explains: |seen| {
            let says = seen.rsync.stderr_text();
            let is_special =
                |node: &Node| !matches!(node.kind, Kind::Dir | Kind::Spliced(_) | Kind::Symlink(_));
            let has_special = seen.case.world.iter().any(is_special);
            let is_its_backup = seen.is_within(&["--backup-dir"]) || seen.has_place_in(seen.path());
            seen.case.has(&["--fake-super"])
                && (seen.namesakes().any(is_special) && seen.is(Class::Tree)
                    || has_special && is_its_backup && seen.is(Class::Tree)
                    || says.contains("user.rsync.") && says.contains("not permitted"))
        },
    },
    Known {
        says: "An empty source empties no destination, unless `--allow-empty-source` says so.",
        explains: |seen| seen.dsync.code() == Some(42) && seen.dsync.stderr_text().contains("is empty but"),
    },
    Known {
        says: "How often a file is read that no one copies the access time of is nobody's business.",
        explains: |seen| {
            let is_copy = seen.path().starts_with("w/d") && !seen.case.has(&["-b", "--backup-dir"]);
            seen.about(&["atime"]) && !is_copy
        },
    },
    Known {
        says: "A directory that may be listed but not entered is listed.",
        explains: |seen| {
            // rsync then leaves the whole tree undone: it deletes nothing, for one.
            seen.has_directory_without_x() && seen.rsync.stderr_text().contains("opendir")
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
        says: "An access control list has one entry for each user, also when owners are mapped.",
        explains: |seen| {
            seen.case.has(&["--chown", "--usermap", "--groupmap"]) && seen.about(&["extended attributes"])
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
        says: "A source file that is only in the `--compare-dest` directory is not removed.",
        explains: |seen| {
            let is_source = seen.path().starts_with("w/s");
            seen.case.has(&["--compare-dest"]) && seen.case.has(&["--remove-source-files"]) && is_source
        },
    },
    Known {
        says: "With `--append`, what an alternate directory has is no reason to leave a file out.",
        explains: |seen| {
            seen.case.has(&["--append", "--append-verify"])
                && seen.case.has(&["--copy-dest", "--link-dest", "--compare-dest"])
                && (seen.finding.line.starts_with("extra: ") || seen.about(&["content", "size"]))
        },
    },
    Known {
        says: "With `--append` and without `-H`, two names of one file at the destination get the source's content.",
        explains: |seen| {
            let says = seen.rsync.stderr_text();
            let is_verifying = seen.case.has(&["--append-verify"]) && says.contains("failed verification");
            let is_second =
                seen.case.has(&["--append"]) && seen.about(&["content", "size", "mtime"]) && seen.is_linked();
            let has_links = seen.case.world.iter().any(|node| matches!(node.kind, Kind::HardLink(_)));
            !seen.case.has_letter('H') && (is_verifying && has_links || is_second)
        },
    },
    Known {
        says: "A long attribute of what `--remove-source-files` removes arrives.",
        explains: |seen| seen.rsync.stderr_text().contains("failed to re-read xattr"),
    },
    Known {
        says: "A `*`, `?` or `[` in the name of a remote operand stands for itself.",
        explains: |seen| {
            let is_wild =
                |operand: &String| operand.starts_with(HOST) && operand.contains(['*', '?', '[', '\\']);
            seen.case.operands.iter().any(is_wild)
        },
    },
    Known {
        says: "A directory that an option names and that cannot be used ends the run.",
        explains: |seen| {
            let says = seen.dsync.stderr_text();
            seen.is(Class::Exit) && seen.dsync.code() == Some(1) && says.contains("cannot use '")
        },
    },
    Known {
        says: "A source directory that cannot be read gives its mode to its copy.",
        explains: |seen| {
            seen.case.is_nobody
                && seen.about(&["mode", "extended attributes"])
                && seen.rsync_says_of_it("opendir")
        },
    },
    Known {
        says: "Under `--fake-super`, an entry that says all by itself has no note and keeps its mode.",
        explains: |seen| {
            let of_the_note = |text: &str| text.contains("user.rsync.%stat");
            let lacks_note =
                seen.values().is_some_and(|(ours, theirs)| !of_the_note(ours) && of_the_note(theirs));
            let is_more = |(ours, theirs): (u16, u16)| {
                [0o600, 0o700].iter().any(|least| theirs == ours & 0o777 | least)
            };
            let gives_more = seen.modes().is_some_and(is_more);
            let is_link = seen.namesakes().any(|node| matches!(node.kind, Kind::Symlink(_)));
            let masks_link = is_link && !seen.case.has_letter('p') && seen.about(&["mode"]);
            let keeps_all = "pog".chars().all(|letter| seen.case.has_letter(letter));
            let owner_is_anybody = !keeps_all
                && seen.values().is_some_and(|(ours, theirs)| of_the_note(ours) && of_the_note(theirs));
            seen.case.has(&["--fake-super"]) && (lacks_note || gives_more || masks_link || owner_is_anybody)
        },
    },
    Known {
        says: "With `-K`, a link of another user's gives way to the directory.",
        explains: |seen| seen.case.has(&["-K"]) && seen.is(Class::Tree) && seen.is_at_a_foreign_link(),
    },
    Known {
        says: "A file that gives way to its like in an alternate directory has a backup.",
        explains: |seen| {
            let above = |place: &str| place.starts_with(&format!("{}/", seen.path()));
            let values = seen.case.options.iter().filter_map(|option| option.strip_prefix("--backup-dir="));
            let is_above = values.map(options::place).any(|place| above(&place));
            let is_backup =
                seen.is_within(&["--backup-dir"]) || seen.path().ends_with(['~', 'd']) || is_above;
            seen.case.has(&["--compare-dest", "--copy-dest", "--link-dest"])
                && seen.case.has(&["-b", "--backup-dir"])
                && (seen.finding.line.starts_with("extra: ") && is_backup
                    || seen.about(&["mtime"]) && is_above)
        },
    },
    Known {
        says: "A link in the destination leads no option's directory anywhere.",
        explains: |seen| {
            let says = seen.dsync.stderr_text();
            let is_refused = says.contains("is within the destination, where a source may have made it");
            seen.is(Class::Exit) && seen.dsync.code() == Some(42) && is_refused
        },
    },
    Known {
        says: "A dry run does not foresee the directories that backups make in the destination.",
        explains: |seen| {
            seen.is(Class::DryRun) && seen.case.has(&["--backup-dir"]) && seen.has_place_inside()
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
        says: "With `--modify-window`, a directory that gets other attributes gets its time too.",
        explains: |seen| {
            let is_close = seen.seconds().is_some_and(|(ours, theirs)| ours.abs_diff(theirs) <= 1);
            seen.case.has(&["--modify-window"]) && is_close
        },
    },
    Known {
        says: "A backup that cannot be made costs the file that was to be replaced.",
        explains: |seen| {
            let says = seen.rsync.stderr_text();
            seen.is(Class::Exit) && seen.dsync.code() == Some(23) && says.contains("keep_backup failed")
        },
    },
    Known {
        says: "Without `-p`, a new directory with attributes has no setuid or sticky bit either.",
        explains: |seen| {
            let is_special =
                |(ours, theirs): (u16, u16)| ours & 0o5000 == 0 && theirs == ours | theirs & 0o5000;
            seen.case.has_letter('X') && !seen.case.has_letter('p') && seen.modes().is_some_and(is_special)
        },
    },
    Known {
        says: "With `--ignore-existing`, what stands in the place of a directory stays as it is.",
        explains: |seen| {
            seen.case.has(&["--ignore-existing"])
                && seen.about(&["mtime", "mode", "owner", "extended attributes"])
                && (seen.is_of_several_types() || seen.is_linked())
        },
    },
    Known {
        says: "When something of the source could not be read, nothing is deleted.",
        explains: |seen| {
            let says = seen.dsync.stderr_text();
            seen.is(Class::Tree)
                && seen.case.deletes()
                && says.contains("withheld, because not all of the source could be read")
        },
    },
    Known {
        says: "Under `--fake-super`, a file of the user's own whose note cannot be read is replaced.",
        explains: |seen| {
            let says = seen.rsync.stderr_text();
            let fails =
                says.contains("failed to read xattr user.rsync.%stat") && says.contains("Permission denied");
            seen.case.has(&["--fake-super"]) && seen.case.is_nobody && fails
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
        says: "With `-H`, a file that may not be linked is replaced by an own one.",
        explains: |seen| {
            let says = seen.rsync.stderr_text();
            let fails =
                says.contains("[generator] link \"") && says.contains("failed: Operation not permitted (1)");
            seen.case.has_letter('H') && seen.case.is_nobody && fails
        },
    },
    Known {
        says: "An entry whose ACL or attributes cannot be read gets all the rest.",
        explains: |seen| {
            let fails =
                seen.rsync_says_of_it("lgetxattr(") && seen.rsync.stderr_text().contains("Permission denied");
            seen.case.is_nobody && seen.is(Class::Tree) && fails
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
        says: "A dry run does not open directories that the user would have to give himself the permission for.",
        explains: |seen| {
            let is_locked = |node: &Node| matches!(node.kind, Kind::Dir) && node.mode & 0o700 != 0o700;
            seen.is(Class::DryRun) && seen.case.is_nobody && seen.case.world.iter().any(is_locked)
        },
    },
    Known {
        says: "With `-U`, a link that differs in its access time is not the one of `--link-dest`.",
        explains: |seen| {
            let is_link = seen.namesakes().any(|node| matches!(node.kind, Kind::Symlink(_)));
            seen.case.has_letter('U') && seen.case.has(&["--link-dest"]) && seen.is(Class::Tree) && is_link
        },
    },
    Known {
        says: "A directory of the user's own that he may not read gives way all the same.",
        explains: |seen| {
            let says = seen.rsync.stderr_text();
            let looks = ["[generator] opendir", "[generator] readlink_stat"];
            let fails = looks.iter().any(|words| says.contains(words))
                && says.contains("failed: Permission denied (13)");
            let is_gone = seen.finding.line.starts_with("missing: ");
            seen.case.is_nobody && fails && (seen.is(Class::Exit) && seen.dsync.code() == Some(0) || is_gone)
        },
    },
    Known {
        says: "With `-H`, the first name in the order of directories is the one that others are linked to.",
        explains: |seen| {
            let is_unkept = seen.about(&["extended attributes"]) && !seen.case.has_letter('X');
            seen.case.has_letter('H') && is_unkept && seen.is_linked()
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
        says: "A dry run tells of what is in the way of a directory's entries.",
        explains: |seen| {
            let says = seen.dsync.stderr_text();
            let fails =
                says.contains("cannot read destination directory") && says.contains("Not a directory");
            seen.is(Class::Exit) && seen.case.has(&["-n"]) && seen.case.has(&["--ignore-existing"]) && fails
        },
    },
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
        says: "A directory that cannot give way keeps what is in it.",
        explains: |seen| {
            let path = seen.path().to_owned();
            let stuck = seen.rsync.all_text().contains("could not make way for new");
            let is_presence = seen.is_presence() || seen.about(&["mtime"]);
            seen.case.has(&["-b"])
                && stuck
                && is_presence
                && path.starts_with("w/d/")
                && seen.dsync.code() == Some(23)
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
        says: "A file that is rewritten in place has its backup in every `--backup-dir`.",
        explains: |seen| {
            let is_in_place = seen.case.has(&["--inplace", "--append", "--append-verify"]);
            let fails = seen.rsync.stderr_text().contains("failed: Invalid argument (22)");
            seen.is(Class::Exit) && is_in_place && seen.case.has(&["--backup-dir"]) && fails
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
        says: "Without `-p`, no mode comes from an alternate directory.",
        explains: |seen| {
            seen.case.has(&["--copy-dest", "--link-dest", "--compare-dest"])
                && !seen.case.has_letter('p')
                && seen.about(&["mode"])
        },
    },
    Known {
        says: "What comes from an alternate directory has all its attributes.",
        explains: |seen| {
            let of_capability = |text: &str| text.contains("security.capability");
            let is_more = |(ours, theirs): (&str, &str)| {
                theirs == "{}" || of_capability(ours) && !of_capability(theirs)
            };
            seen.about(&["extended attributes"])
                && seen.case.has(&["--copy-dest", "--link-dest", "--compare-dest"])
                && seen.values().is_some_and(is_more)
        },
    },
    Known {
        says: "`-S --append` adds to a file.",
        explains: |seen| {
            let fails =
                seen.rsync.stderr_text().contains("write failed on") || seen.about(&["content", "size"]);
            seen.case.has_letter('S') && seen.case.has(&["--append", "--append-verify"]) && fails
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
        says: "Where the source has the name of a backup that is made, the second run copies it.",
        explains: |seen| {
            seen.is(Class::Exit)
                && seen.case.has(&["-b"])
                && !seen.case.has(&["--backup-dir"])
                && seen.dsync.stderr_text().contains("File exists")
        },
    },
    Known {
        says: "`-J` leaves the time of a link that `--fake-super` keeps in a file too.",
        explains: |seen| {
            let is_link = seen.namesakes().any(|node| matches!(node.kind, Kind::Symlink(_)));
            seen.case.has(&["--fake-super"]) && seen.case.has_letter('J') && seen.about(&["mtime"]) && is_link
        },
    },
    Known {
        says: "What gives way stays until its successor is there.",
        explains: |seen| {
            let is_unread = seen.rsync_says_of_it("send_files failed to open");
            // rsync has a backup of an entry that it removed.
            let has_backup = seen.case.has(&["-b", "--backup-dir"])
                && seen.finding.line.starts_with("missing: ")
                && seen.rsync.stderr_text().contains("send_files failed to open");
            let stays = seen.finding.line.starts_with("extra: ") && is_unread;
            (stays || has_backup) && seen.dsync.code() == Some(23)
        },
    },
    Known {
        says: "`--delete` never removes the directories that options of the run name.",
        explains: |seen| {
            let lost_its_own = seen.rsync.stderr_text().contains("mkstemp");
            let is_about_it = seen.is(Class::Tree);
            // rsync has to copy a file that it removed from the alternate directory.
            let is_copied = seen.finding.line.starts_with("missing: ")
                && seen.case.has(&["--compare-dest"])
                && seen.has_place_inside();
            let counts_its_own =
                seen.is(Class::Exit) && seen.rsync.code() == Some(25) && seen.has_place_inside();
            let is_above =
                seen.about(&["mode", "mtime", "owner", "extended attributes"]) && seen.has_place_below();
            seen.case.deletes()
                && (lost_its_own
                    || counts_its_own
                    || is_above
                    || is_copied
                    || is_about_it && seen.is_within(PLACES))
        },
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_difference_that_is_meant_is_told_to_people() {
        let page =
            include_str!("../../../docs/from-rsync.md").split_whitespace().collect::<Vec<_>>().join(" ");
        for known in KNOWN {
            assert!(
                page.contains(&format!("- **{}**", known.says)),
                "docs/from-rsync.md lacks: {}",
                known.says
            );
        }
        assert_eq!(page.matches("- **").count(), KNOWN.len(), "docs/from-rsync.md has more than the table");
    }
}
