//! What one run is asked to do, as both ends must know it.
//!
//! These are the options that travel in [`Start`](crate::message::Start). What concerns only the
//! program that starts a run (carrier choice, timeouts, output) is not here. The defaults are those
//! of a plain `rsync -r`-less call: nothing is preserved, nothing is deleted.

/// The selection, comparison, attribute and write policy of one run.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[expect(clippy::struct_excessive_bools, reason = "one independent switch per rsync option")]
pub struct SyncOptions {
    /// Descend into directories (`-r`). Without it a directory given as a source is skipped.
    pub recursive: bool,
    /// Copy symbolic links as links (`-l`). Without it they are skipped.
    pub links: bool,
    /// Make permission bits equal (`-p`). Without it new files get the source's bits less the
    /// destination's umask and existing files keep theirs.
    pub perms: bool,
    /// Make modification times equal (`-t`), to the nanosecond.
    pub times: bool,
    /// Do not set times of directories (`-O`).
    pub omit_dir_times: bool,
    /// Make owners equal (`-o`); takes effect only where the destination may change owners.
    pub owner: bool,
    /// Make groups equal (`-g`); without privileges only to groups the user is in.
    pub group: bool,
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
    /// Remove at most this many entries; with more, remove none (`--max-delete`).
    pub max_delete: Option<u64>,
    /// Create missing parents of the destination (`--mkpath`).
    pub mkpath: bool,
    /// Plan and report only; change nothing (`-n`).
    pub dry_run: bool,
    /// Do not cross filesystem boundaries in the source (`-x`).
    pub one_file_system: bool,
    /// When is data on the disk.
    pub durability: Durability,
    /// How frames are compressed.
    pub compression: Compression,
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
}

/// When the destination makes data durable. Wire values are the discriminants.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(u8)]
#[non_exhaustive]
pub enum Durability {
    /// Data reaches the disk in groups: always before the rename that shows it, and all of it,
    /// names included, before the run reports success. Default: a power cut after exit 0 loses
    /// nothing and the cost is a few syncs per run.
    #[default]
    Batch = 0,
    /// Every file is synced on its own before its rename, its directory after.
    File = 1,
    /// The operating system decides. A power cut may lose or empty files.
    None = 2,
}

/// How data frames are compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
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

/// One include or exclude rule in rsync's pattern language.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FilterRule {
    /// True for an include, false for an exclude.
    pub include: bool,
    /// The pattern as typed, without the rule's prefix.
    pub pattern: Vec<u8>,
}

/// Which per-entry events travel to the program that started the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
#[repr(u8)]
#[non_exhaustive]
pub enum EventLevel {
    /// Problems only.
    #[default]
    Problems = 0,
    /// Every entry that is created, changed or removed.
    Changes = 1,
    /// Also entries that need nothing (`-ii`, `-vv`).
    All = 2,
}
