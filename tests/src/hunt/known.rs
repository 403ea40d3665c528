//! Differences from rsync that are meant, each with its reason; `docs/from-rsync.md` has each for people.
//!
//! An entry excuses as little as it can: one kind of finding, under the options that it is about. What is merely worse
//! than rsync is no entry but a finding.

use super::{
    case::Case,
    judge::{Class, Finding},
    options,
};
use crate::{
    run::Outcome,
    tree::{Kind, Node},
};

/// A difference that is meant.
pub(super) struct Known {
    /// Its sentence in `docs/from-rsync.md`.
    pub says: &'static str,
    /// Returns whether it explains a finding.
    explains: fn(&Seen<'_>) -> bool,
}

/// What an entry of the table may look at.
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

    /// Returns whether the line tells of an entry that only one of the programs has.
    fn is_presence(&self) -> bool {
        self.is(Class::Tree)
            && ["extra: ", "missing: "].iter().any(|word| self.finding.line.starts_with(word))
    }

    /// The path that the line is about, as it is printed.
    fn path(&self) -> &str {
        self.finding.line.split('\'').nth(1).unwrap_or_default()
    }

    /// Returns whether the path is in the directory that one of these options names, or that directory itself.
    fn is_within(&self, names: &[&str]) -> bool {
        let given = self.case.options.iter().filter(|option| names.contains(&options::name(option)));
        let mut places =
            given.filter_map(|option| option.split_once('=')).map(|(_, value)| options::place(value));
        places.any(|place| {
            let path = self.path();
            path == place || path.strip_prefix(&place).is_some_and(|rest| rest.starts_with('/'))
        })
    }

    /// Entries of all trees that have the path's last name.
    fn namesakes(&self) -> impl Iterator<Item = &Node> {
        let name = self.path().rsplit('/').next().unwrap_or_default().to_owned();
        let is_namesake = move |node: &&Node| {
            let last = node.path.rsplit(|&byte| byte == b'/').next().unwrap_or_default();
            last.escape_ascii().to_string() == name
        };
        self.case.world.iter().chain(&self.case.other).filter(is_namesake)
    }

    /// Returns whether the destination or the source has a directory that can be listed but not entered.
    fn has_directory_without_x(&self) -> bool {
        let is_listed_only = |node: &Node| matches!(node.kind, Kind::Dir) && node.mode & 0o500 == 0o400;
        self.case.is_nobody && self.case.world.iter().any(is_listed_only)
    }
}

/// Options that name a directory which belongs to the run.
const PLACES: &[&str] =
    &["--backup-dir", "--partial-dir", "--temp-dir", "--link-dest", "--copy-dest", "--compare-dest"];

/// The table. What explains a finding first is what it counts for.
pub(super) const KNOWN: &[Known] = &[
    Known {
        says: "With more deletions than `--max-delete` allows, none is made.",
        explains: |seen| {
            seen.case.has(&["--max-delete"]) && seen.dsync.code() == Some(25) && seen.is(Class::Tree)
        },
    },
    Known {
        says: "Under `-u`, a file that is newer by less than a second is newer.",
        explains: |seen| {
            let times: Vec<(i64, i64)> = seen.namesakes().map(|node| node.mtime).collect();
            let is_close =
                |one: &(i64, i64)| times.iter().any(|two| one != two && (one.0 - two.0).abs() <= 1);
            seen.case.has(&["-u"]) && seen.is(Class::Tree) && times.iter().any(is_close)
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
        says: "A backup keeps its owner, mode and time, on another filesystem and without `-a` too.",
        explains: |seen| seen.about(&["owner", "mode", "mtime"]) && seen.is_within(&["--backup-dir"]),
    },
    Known {
        says: "Whatever gives way has a backup.",
        explains: |seen| {
            let skipped = "make_bak: skipping non-regular file";
            seen.is(Class::Tree) && seen.rsync.all_text().contains(skipped)
        },
    },
    Known {
        says: "Making the backup directory changes no time of the destination's root.",
        explains: |seen| seen.about(&["mtime"]) && seen.path() == "w/d" && seen.case.has(&["--backup-dir"]),
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
        explains: |seen| seen.is_within(&["--partial-dir"]) && (seen.is_presence() || seen.about(&["mtime"])),
    },
    Known {
        says: "A file that has the name of `--partial-dir` is copied.",
        explains: |seen| {
            let says = seen.rsync.stderr_text();
            seen.case.has(&["--partial-dir"]) && says.contains("rename") && says.contains("not empty")
        },
    },
    Known {
        says: "What is to be removed keeps its mode.",
        explains: |seen| seen.about(&["mode"]) && seen.case.deletes() && seen.case.is_nobody,
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
            seen.about(&["mtime"])
                && (seen.is_within(&["--temp-dir"]) || is_parent && seen.case.has(&["--partial-dir"]))
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
        explains: |seen| {
            let mut kinds: Vec<_> = seen.namesakes().map(|node| std::mem::discriminant(&node.kind)).collect();
            kinds.dedup();
            seen.about(&["mode"]) && !seen.case.has_letter('p') && kinds.len() > 1
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
            seen.case.has(&["--fake-super"])
                && (seen.namesakes().any(is_special) && seen.is(Class::Tree)
                    || says.contains("user.rsync.%stat") && says.contains("not permitted"))
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
            // What rsync leaves undone then it leaves undone all over the tree: it deletes nothing, for one.
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
                && seen.finding.line.starts_with("extra: ")
        },
    },
    Known {
        says: "With `--append-verify`, two names of one file at the destination are no trouble.",
        explains: |seen| {
            let says = seen.rsync.stderr_text();
            let is_verifying = seen.case.has(&["--append-verify"]) && says.contains("failed verification");
            is_verifying && seen.case.world.iter().any(|node| matches!(node.kind, Kind::HardLink(_)))
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
                |operand: &String| operand.starts_with("h:") && operand.contains(['*', '?', '[', '\\']);
            seen.case.operands.iter().any(is_wild)
        },
    },
    Known {
        says: "An alternate directory that is no directory ends the run.",
        explains: |seen| {
            let says = seen.rsync.all_text();
            seen.is(Class::Exit) && seen.dsync.code() == Some(1) && says.contains("arg is not a dir")
        },
    },
    Known {
        says: "`--delete` never removes the directories that options of the run name.",
        explains: |seen| {
            let lost_its_own = seen.rsync.stderr_text().contains("mkstemp");
            seen.case.deletes() && (lost_its_own || seen.is_presence() && seen.is_within(PLACES))
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
