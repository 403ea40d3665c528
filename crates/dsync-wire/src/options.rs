//! What one run is asked to do, as both ends must know it.
//!
//! These are the options that travel in [`Start`](crate::message::Start). What concerns only the
//! program that starts a run (carrier choice, timeouts, output) is not here. The defaults are those
//! of a plain `rsync -r`-less call: nothing is preserved, nothing is deleted.

use serde::{Deserialize, Serialize};

use crate::byte_text;

/// The selection, comparison, attribute and write policy of one run.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
#[expect(clippy::struct_excessive_bools, reason = "one independent switch per rsync option")]
pub struct SyncOptions {
    /// Descend into directories (`-r`). Without it a directory given as a source is skipped.
    pub recursive: bool,
    /// Copy symbolic links as links (`-l`). Without it they are skipped.
    pub links: bool,
    /// Make permission bits equal (`-p`). Without it new files get the source's bits less the
    /// destination's umask, or as far as the default list of their directory lets them, and existing files keep theirs.
    pub perms: bool,
    /// Make modification times equal (`-t`), to the nanosecond.
    pub times: bool,
    /// Make access times equal (`-U`), to the nanosecond; not of directories.
    pub atimes: bool,
    /// Do not set times of directories (`-O`).
    pub omit_dir_times: bool,
    /// Do not set times of symbolic links (`-J`).
    pub omit_link_times: bool,
    /// Without `perms`: of files that exist, make equal whether they can be executed (`-E`).
    pub executability: bool,
    /// Make owners equal (`-o`); takes effect only where the destination may change owners.
    pub owner: bool,
    /// Make groups equal (`-g`); without privileges only to groups the user is in.
    pub group: bool,
    /// Make access control lists equal (`-A`); implies `perms`.
    pub acls: bool,
    /// Make extended attributes equal (`-X`): all of `user.*`, as root all but `system.*`.
    pub xattrs: bool,
    /// What has several names at the source has them at the destination (`-H`), as far as they are listed.
    pub hard_links: bool,
    /// Map owners and groups by number even where a name is known.
    pub numeric_ids: bool,
    /// Copy character and block devices (`--devices`), as root only.
    pub devices: bool,
    /// Copy fifos and sockets (`--specials`).
    pub specials: bool,
    /// Compare file contents instead of size and time (`-c`).
    pub checksum: bool,
    /// Transfer every file even where size and time are equal (`-I`).
    pub ignore_times: bool,
    /// Take files of equal size as equal (`--size-only`).
    pub size_only: bool,
    /// Skip files that are newer at the destination (`-u`).
    pub update: bool,
    /// Skip files that do not exist at the destination (`--existing`).
    pub existing: bool,
    /// Skip files that exist at the destination (`--ignore-existing`).
    pub ignore_existing: bool,
    /// Send changed files whole (`-W`): no signature, no search.
    pub whole_file: bool,
    /// Remove what the source does not have (`--delete`).
    pub delete: bool,
    /// With `delete`: also remove what the filters exclude (`--delete-excluded`).
    pub delete_excluded: bool,
    /// Remove nothing when more than this would be removed (`--max-delete`).
    pub max_delete: Option<DeleteLimit>,
    /// With `delete`: when the removals are made.
    pub delete_timing: DeleteTiming,
    /// With `delete`: remove even though the source could not be read completely (`--ignore-errors`);
    /// still never in a directory that could not be.
    pub ignore_errors: bool,
    /// A directory that is not empty gives way to what is none, even without `delete` (`--force`).
    pub force: bool,
    /// With `delete`: an operand without any entry may empty the destination.
    pub allow_empty_source: bool,
    /// With `delete`: the destination may be `/` or the user's home directory.
    pub force_root: bool,
    /// Create missing parents of the destination (`--mkpath`).
    pub mkpath: bool,
    /// A symbolic link to a directory at the destination is taken for the directory where the source has
    /// one (`-K`). Only links that belong to root or to the destination's user.
    pub keep_dirlinks: bool,
    /// Skip symbolic links that lead out of the tree by their text (`--safe-links`).
    pub safe_links: bool,
    /// The destination's own paths, those of its options included, may pass through anybody's links
    /// (`--insecure-links`). Without it only through those of root and of the destination's user.
    pub insecure_links: bool,
    /// A source operand that does not exist is no error (`--ignore-missing-args`).
    pub ignore_missing_args: bool,
    /// What a source operand would be copied to that does not exist is removed (`--delete-missing-args`), whatever
    /// `delete` says; the operand's directory must exist.
    pub delete_missing_args: bool,
    /// What is no directory is removed at the source once it is at the destination and on its disk
    /// (`--remove-source-files`).
    pub remove_source_files: bool,
    /// Skip files with fewer bytes (`--min-size`).
    pub min_size: u64,
    /// Skip files with more bytes (`--max-size`).
    pub max_size: Option<u64>,
    /// Take modification times as equal that differ by at most this many seconds, fractions left aside
    /// (`--modify-window`). `None`: times are compared to the nanosecond.
    pub modify_window: Option<u32>,
    /// Plan and report only; change nothing (`-n`).
    pub dry_run: bool,
    /// Do not cross filesystem boundaries in the source, and leave mount points at the destination alone
    /// when deleting (`-x`).
    pub one_file_system: bool,
    /// Read files of the source without changing when they were last read, where that is allowed
    /// (`--open-noatime`).
    pub open_noatime: bool,
    /// Who keeps what only root may set in `user.rsync.*` (`--fake-super`).
    pub fake_super: FakeSuper,
    /// Which unfinished files outlive the run.
    pub keep_partial: KeepPartial,
    /// When is data on the disk.
    pub durability: Durability,
    /// How frames are compressed.
    pub compression: Compression,
    /// Changes of permission bits (`--chmod`), in order, as if the source had them so; not of symbolic links.
    pub mode_rules: Vec<ModeRule>,
    /// Other owners and groups than the source's (`--usermap`, `--groupmap`, `--chown`); the first that
    /// matches decides. Applied by the destination, to what `owner` and `group` preserve.
    pub id_rules: Vec<IdRule>,
    /// How new content takes the place of old.
    pub writing: WritePolicy,
    /// Include and exclude rules; the first that matches decides.
    pub filters: Vec<FilterRule>,
    /// Which per-entry events the starting program wants to hear of.
    pub events: EventLevel,
}

impl SyncOptions {
    /// What `-a` (`--archive`) means: recursion, links, permissions, times, owner, group, devices and
    /// specials; not hard links, ACLs or extended attributes.
    pub fn archive() -> Self {
        Self {
            recursive: true,
            links: true,
            perms: true,
            times: true,
            owner: true,
            group: true,
            devices: true,
            specials: true,
            ..Self::default()
        }
    }

    /// True when a source operand that does not exist is no error.
    pub fn ignores_missing_args(&self) -> bool {
        self.ignore_missing_args || self.delete_missing_args
    }

    /// True when the destination comes back to entries of the listing after it has seen all of it: the source
    /// then keeps what it listed to the end of the run.
    pub fn needs_whole_listing(&self) -> bool {
        let deletes_first = self.delete && self.delete_timing == DeleteTiming::Before;
        // Further names are made at the end, and so are late ones.
        let late = self.hard_links || self.writing.delay_updates;
        deletes_first || self.remove_source_files && late
    }
}

/// Which ends take owners, permission bits, types, access control lists and root's extended attributes from
/// `user.rsync.*` attributes and keep them there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct FakeSuper {
    /// The source reads them there.
    pub source: bool,
    /// The destination reads and keeps them there.
    pub destination: bool,
}

/// When the destination makes data durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Durability {
    /// Data reaches the disk in groups: always before the rename that shows it, and all of it,
    /// names included, before the run reports success. Default: a power cut after exit 0 loses
    /// nothing and the cost is a few syncs per run.
    #[default]
    Batch,
    /// Every file is synced on its own before its rename, its directory after.
    File,
    /// The operating system decides. A power cut may lose or empty files.
    None,
}

/// How much may be removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum DeleteLimit {
    /// This many entries.
    Entries(u64),
    /// This part of the entries that the destination has where the source has been compared with it, in
    /// percent, 0 to 100.
    Percent(u8),
}

/// When entries are removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum DeleteTiming {
    /// When everything has arrived, and only then.
    #[default]
    After,
    /// In each directory as soon as it has been compared. With a limit as for `After`: only at the end
    /// is it known how many they are.
    During,
    /// When everything is listed and compared, before anything is written. The source then keeps its whole
    /// listing in memory, the destination keeps it in a file.
    Before,
}

/// How new content takes the place of old.
///
/// Directories are the operator's own paths, relative to the destination directory unless absolute.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct WritePolicy {
    /// Write into the old file itself instead of beside it (`--inplace`).
    pub inplace: bool,
    /// Give new content its name when all of it has arrived (`--delay-updates`); not with `inplace`.
    pub delay_updates: bool,
    /// Files that are shorter are gone on with, others left alone (`--append`); with `inplace` only.
    pub append: Append,
    /// Reserve the space of a new file before it is written (`--preallocate`).
    pub preallocate: bool,
    /// Of new content, leave out all zeros that fill blocks (`-S`). Without it only what is a hole at the source
    /// is one at the destination.
    pub sparse: bool,
    /// Where new content is written until it has its name (`-T`); `None`: beside its target. It must exist.
    #[serde(with = "byte_text::optional")]
    pub temp_dir: Option<Vec<u8>>,
    /// Where unfinished files are kept (`--partial-dir`); `None`: where they are written. A single name is a directory
    /// in each directory, made and removed as needed, not copied and not removed with `delete`; else it is absolute.
    #[serde(with = "byte_text::optional")]
    pub partial_dir: Option<Vec<u8>>,
    /// Keep what is replaced or removed (`-b`).
    pub backup: Option<Backup>,
    /// Other directories that may hold files already.
    pub alternates: Option<Alternates>,
}

/// What becomes of files that are there already and need new content.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Append {
    /// They become the source's.
    #[default]
    No,
    /// What is there of a shorter one is believed to be the source's beginning, and never read; what follows is
    /// added. One that is not shorter stays as it is (`--append`).
    Believing,
    /// As `Believing`, but what is there is compared; where it differs the whole file is sent (`--append-verify`).
    Verifying,
}

/// Where replaced and removed entries are kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Backup {
    /// A directory that gets a tree of them (`--backup-dir`); `None`: each stays in its directory.
    #[serde(with = "byte_text::optional")]
    pub dir: Option<Vec<u8>>,
    /// What their names get (`--suffix`), without `/` and NUL; may be empty only with `dir`.
    #[serde(with = "byte_text")]
    pub suffix: Vec<u8>,
}

/// Other directories whose files are used where they equal the source's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Alternates {
    /// How an equal file is used.
    pub way: AlternateUse,
    /// The directories, 1 to [`crate::limits::MAX_ALTERNATES`], the first that has the file coming first.
    #[serde(with = "byte_text::list")]
    pub dirs: Vec<Vec<u8>>,
}

/// How a file of another directory that equals the source's is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum AlternateUse {
    /// The destination needs none of its own (`--compare-dest`).
    Compare,
    /// It is copied (`--copy-dest`).
    Copy,
    /// It gets another name (`--link-dest`).
    Link,
}

/// Which unfinished files outlive a run, for the next to go on with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum KeepPartial {
    /// Those of a run that lost its connection. Default: that run is going to be repeated, by itself or by
    /// whoever started it.
    #[default]
    OnLostConnection,
    /// Those of every run that ends early (`--partial`).
    Always,
    /// None (`--no-partial`).
    Never,
}

/// How data frames are compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Compression {
    /// Compress when the carrier is the bottleneck; raw when the processor is.
    #[default]
    Auto,
    /// Never compress (zero runs are still elided).
    Off,
    /// lz4 on every frame that it makes smaller.
    Lz4,
    /// zstd at this level, 1 to 19, on every frame that it makes smaller.
    Zstd(u8),
}

/// One change of permission bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct ModeRule {
    /// It applies to what is not a directory.
    pub files: bool,
    /// It applies to directories.
    pub directories: bool,
    /// It applies only to directories and to what anybody may execute before the first rule.
    pub if_executable: bool,
    /// Bits that stay, 0 to 0o7777.
    pub keep: u16,
    /// Bits that are set, 0 to 0o7777.
    pub set: u16,
}

impl ModeRule {
    /// The permission bits after all rules.
    pub fn apply(rules: &[Self], mode: u16, is_dir: bool) -> u16 {
        let executable = is_dir || mode & 0o111 != 0;
        let applies = |rule: &&Self| {
            (if is_dir { rule.directories } else { rule.files }) && (executable || !rule.if_executable)
        };
        rules.iter().filter(applies).fold(mode, |mode, rule| mode & rule.keep | rule.set)
    }
}

/// One change of owner or group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct IdRule {
    /// True for groups.
    pub group: bool,
    /// Whom of the source it is for.
    pub from: IdMatch,
    /// Who it is at the destination.
    pub to: IdTarget,
}

/// Users or groups of the source.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum IdMatch {
    /// Numbers from the first to the second, both included.
    Numbers(u32, u32),
    /// Whose name is like this pattern, in which `*`, `?` and `[` are wildcards. The empty one and `*` are
    /// also for who has no name.
    #[serde(with = "byte_text")]
    Name(Vec<u8>),
}

/// A user or group of the destination.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum IdTarget {
    /// By number.
    Number(u32),
    /// By name, which must exist there.
    #[serde(with = "byte_text")]
    Name(Vec<u8>),
}

/// One include or exclude rule in rsync's pattern language.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct FilterRule {
    /// True for an include, false for an exclude.
    pub include: bool,
    /// The pattern as typed, without the rule's prefix.
    #[serde(with = "byte_text")]
    pub pattern: Vec<u8>,
}

/// Which per-entry events travel to the program that started the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum EventLevel {
    /// Problems only.
    #[default]
    Problems,
    /// Every entry that is created, changed or removed.
    Changes,
    /// Also entries that need nothing (`-ii`, `-vv`).
    All,
}
