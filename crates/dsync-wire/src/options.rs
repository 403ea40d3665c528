//! The options of one run, as both ends must know them.
//!
//! These options are sent in [`Start`](crate::message::Start). Options that concern only the
//! program that starts a run (carrier choice, timeouts, output) are not here. The defaults are
//! those of a plain `rsync -r`-less call: nothing is preserved, nothing is deleted.

mod rewriting;

use serde::{Deserialize, Serialize};

pub use self::rewriting::{CopiedBits, IdMatch, IdRule, IdTarget, ModeRule};
use crate::{byte_text, path::EntryPath, setters};

/// The selection, comparison, attribute and write policy of one run.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
#[expect(clippy::struct_excessive_bools, reason = "one independent switch per rsync option")]
#[non_exhaustive]
pub struct SyncOptions {
    /// Descend into directories (`-r`). Without it and `dirs` a directory given as a source is
    /// skipped.
    pub recursive: bool,
    /// Copy directories without descending (`-d`): an operand that stands for its contents brings its
    /// entries, any other one itself.
    pub dirs: bool,
    /// Leave out directories that hold nothing but directories (`-m`).
    pub prune_empty_dirs: bool,
    /// Give entries the paths that their operands have, from a `/./` on if there is one (`-R`).
    pub relative: bool,
    /// With `relative`: make the directories on the way to what operands name without their
    /// attributes, and leave those of the destination as they are (`--no-implied-dirs`).
    pub no_implied_dirs: bool,
    /// Copy symbolic links as links (`-l`). Without it they are skipped.
    pub links: bool,
    /// Copy what symbolic links lead to, wherever that is, in place of the links (`-L`).
    pub copy_links: bool,
    /// Copy symbolic links to directories as the directories that they lead to (`-k`).
    pub copy_dirlinks: bool,
    /// Copy what a symbolic link leads to in place of the link if its text leads out of the tree
    /// (`--copy-unsafe-links`).
    pub copy_unsafe_links: bool,
    /// The ends whose symbolic links are made unusable by a prefix of their texts
    /// (`--munge-links`).
    pub munge_links: MungeLinks,
    /// Make permission bits equal (`-p`). Without it, existing files keep theirs. New files get the
    /// source's bits less the destination's umask, or as far as the default list of their directory
    /// allows.
    pub perms: bool,
    /// Make modification times equal (`-t`), to the nanosecond.
    pub times: bool,
    /// Make access times equal (`-U`), to the nanosecond; not of directories.
    pub atimes: bool,
    /// Do not set times of directories (`-O`).
    pub omit_dir_times: bool,
    /// Do not set times of symbolic links (`-J`).
    pub omit_link_times: bool,
    /// Without `perms`: make the executability of existing files equal (`-E`).
    pub executability: bool,
    /// Make owners equal (`-o`). Takes effect only if the destination may change owners.
    pub owner: bool,
    /// Make groups equal (`-g`). Without privileges, only for groups that the user is in.
    pub group: bool,
    /// Make access control lists equal (`-A`); implies `perms`.
    pub acls: bool,
    /// Make extended attributes equal (`-X`): all of `user.*`, as root all but `system.*`.
    pub xattrs: bool,
    /// Link names at the destination that are hard links of each other at the source (`-H`), as far
    /// as they are listed.
    pub hard_links: bool,
    /// Map owners and groups by number even if a name is known.
    pub numeric_ids: bool,
    /// Copy character and block devices (`--devices`), as root only.
    pub devices: bool,
    /// Copy the content of devices as regular files, whatever `devices` says (`--copy-devices`).
    pub copy_devices: bool,
    /// Copy fifos and sockets (`--specials`).
    pub specials: bool,
    /// Compare file contents instead of size and time (`-c`).
    pub checksum: bool,
    /// Let an end that serves take contents for known by a state of its own, and keep what it reads
    /// there (`--state`): contents with `checksum`, and as the destination signatures of large files.
    /// Without effect where that end offers none.
    pub state: bool,
    /// Transfer every file even if size and time are equal (`-I`).
    pub ignore_times: bool,
    /// Treat files of equal size as equal (`--size-only`).
    pub size_only: bool,
    /// Skip files that are newer at the destination (`-u`).
    pub update: bool,
    /// Skip files that do not exist at the destination (`--existing`).
    pub existing: bool,
    /// Skip files that exist at the destination (`--ignore-existing`).
    pub ignore_existing: bool,
    /// Send changed files whole (`-W`): no signature, no search.
    pub whole_file: bool,
    /// Make a new file from an old one of the same directory that has its size and time, or a
    /// similar name (`-y`).
    pub fuzzy: bool,
    /// With `fuzzy`: look into the alternate directories as well (`-yy`).
    pub fuzzy_alternates: bool,
    /// Make a new file from an old one that has its size and time, or its size and name, anywhere at
    /// the destination (`--detect-renamed`).
    pub detect_renamed: DetectRenamed,
    /// Remove entries that the source does not have (`--delete`).
    pub delete: bool,
    /// With `delete`: also remove entries that the filters exclude (`--delete-excluded`).
    pub delete_excluded: bool,
    /// Stop removing when this much was removed (`--max-delete`).
    pub max_delete: Option<DeleteLimit>,
    /// With `max_delete`: remove nothing at all if more would be removed
    /// (`--delete-all-or-nothing`). The removals then come at the end, whatever `delete_timing` is.
    pub delete_all_or_nothing: bool,
    /// With `delete`: the time of the removals.
    pub delete_timing: DeleteTiming,
    /// With `delete`: remove even if the source could not be read completely (`--ignore-errors`),
    /// but never in a directory that could not be read.
    pub ignore_errors: bool,
    /// Replace a directory that is not empty by a non-directory, even without `delete` (`--force`).
    pub force: bool,
    /// With `delete`: let an operand without any entry empty the destination.
    pub allow_empty_source: bool,
    /// With `delete`: allow `/` or the user's home directory as destination.
    pub force_root: bool,
    /// Create missing parents of the destination (`--mkpath`).
    pub mkpath: bool,
    /// Treat a symbolic link to a directory at the destination as a directory if the source has one
    /// (`-K`). Only links that belong to root or to the destination's user.
    pub keep_dirlinks: bool,
    /// Skip symbolic links whose text leads out of the tree (`--safe-links`).
    pub safe_links: bool,
    /// Let the destination's own paths, including those of its options, pass through anybody's
    /// links (`--insecure-links`). Without it, only through links of root and of the destination's
    /// user.
    pub insecure_links: bool,
    /// Take `*`, `?`, `[...]` and `{a,b}` in the operands of a source that is the peer as wildcards,
    /// which it expands. The destination takes only entries that the operands could stand for.
    pub wildcards: bool,
    /// Take `~USER` at the start of a path that the peer opens by an operand, or reads a list from, as
    /// that user's home directory there. Without it such a path is one below the directory where
    /// relative ones start. A `~` that stands alone, or before a `/`, is the own home with and without it.
    pub other_homes: bool,
    /// Accept a source operand that does not exist (`--ignore-missing-args`).
    pub ignore_missing_args: bool,
    /// Remove the destination's entry for a source operand that does not exist
    /// (`--delete-missing-args`), whatever `delete` says. The operand's directory must exist.
    pub delete_missing_args: bool,
    /// Remove non-directories at the source once they are on the destination's disk
    /// (`--remove-source-files`).
    pub remove_source_files: bool,
    /// With `remove_source_files`: keep what the destination had already, at its name or in an
    /// alternate directory, and devices, fifos and sockets (`--remove-sent-files`). Of several names
    /// of a file the source keeps all but the one whose content was sent.
    pub remove_sent_only: bool,
    /// Skip files shorter than this, in bytes (`--min-size`).
    pub min_size: u64,
    /// Skip files longer than this, in bytes (`--max-size`).
    pub max_size: Option<u64>,
    /// Treat modification times as equal if they differ by at most this many seconds, ignoring
    /// fractions (`--modify-window`). `None`: compare times to the nanosecond.
    pub modify_window: Option<u32>,
    /// Plan and report only; change nothing (`-n`).
    pub dry_run: bool,
    /// Do not cross filesystem boundaries in the source, and leave mount points at the destination
    /// alone when deleting (`-x`).
    pub one_file_system: bool,
    /// Read the source's files without changing their access times, where that is allowed
    /// (`--open-noatime`).
    pub open_noatime: bool,
    /// The ends that keep in `user.rsync.*` the attributes that only root may set (`--fake-super`).
    pub fake_super: FakeSuper,
    /// At the destination: set nothing of the source's that only root may, even as root
    /// (`--no-super`). Not with `fake_super` there.
    pub no_super: bool,
    /// The users whose rights the ends work with (`--copy-as`).
    pub copy_as: CopyAs,
    /// The unfinished files that outlive the run.
    pub keep_partial: KeepPartial,
    /// The time when data must be on the disk.
    pub durability: Durability,
    /// The compression of frames.
    pub compression: Compression,
    /// Changes of permission bits (`--chmod`), in order, as if the source had them that way; not of
    /// symbolic links.
    pub mode_rules: Vec<ModeRule>,
    /// Other owners and groups than the source's (`--usermap`, `--groupmap`, `--chown`); the first
    /// match decides. The destination applies them to whatever `owner` and `group` preserve.
    pub id_rules: Vec<IdRule>,
    /// The way in which new content replaces the old.
    pub writing: WritePolicy,
    /// Include and exclude rules; the first match decides.
    pub filters: Vec<FilterRule>,
    /// The per-entry events that the starting program requests.
    pub events: EventLevel,
    /// Tell what becomes of each plan ([`Event::Ended`](crate::event::Event::Ended)), and the
    /// entry's attributes with it ([`Planned::facts`](crate::event::Planned::facts)).
    pub event_ends: bool,
    /// Tell of each backup ([`Event::BackedUp`](crate::event::Event::BackedUp)), except of those that
    /// the destination keeps from its client. A dry run makes none.
    pub event_backups: bool,
    /// Tell of each entry that leaves the source
    /// ([`Event::Removed`](crate::event::Event::Removed)). With `remove_source_files` only.
    pub event_removals: bool,
    /// Tell of each entry that was carried out ([`Event::Done`](crate::event::Event::Done)), and what
    /// was linked and cloned in the report. Brings `event_ends` and
    /// [`EventLevel::Changes`]. The names of each group of files are synced as well,
    /// so that the files of a run under way are on the disk when they are told. Not with
    /// `delay_updates`, which gives all names at the end.
    pub event_done: bool,
    /// Tell of each entry of the destination's tree when the run has ended
    /// ([`Event::Present`](crate::event::Event::Present)), also of those that were there before; not of
    /// those that failed. They come directory by directory, in the order of a listing. Not in a dry run.
    pub event_tree: bool,
    /// Tell the hash of each regular file's content: with `event_done` of each that was written
    /// ([`Done::content`](crate::event::Done::content)), which is read again for it; with `checksum`
    /// and `event_ends` with its attributes ([`Facts::content`](crate::event::Facts::content)); with
    /// `event_tree` of each that the run wrote or compared by content. With one of these only.
    pub event_contents: bool,
    /// Replace a file only by the content that the listing has of it: each one that was written is read
    /// once more, before it gets its name. With `checksum` only, and not with files that are written in
    /// place. Set by a run of [`Source::Manifest`](https://docs.rs/dsync-engine).
    pub contents_as_listed: bool,
    /// Read the contents that `checksum` compares from the disk, not from memory, and not at all from
    /// earlier runs. A file that changes while it is read is a failure. With `checksum` only. Set by
    /// verifying a remote tree.
    pub contents_from_disk: bool,
    /// List the names of entries that the source leaves out by a judgement of its own, and leave alone
    /// whatever has these names at the destination. With `delete` only, and not with
    /// `delete_excluded`.
    pub names_hidden: bool,
    /// Tell of each entry that a rule hides or protects which rule it is
    /// ([`Event::Ruling`](crate::event::Event::Ruling)).
    pub rulings: bool,
    /// Paths below the transfer's root: descend only towards them, and tell why each of them, and of
    /// the directories on the way to it, takes part or not. With `dry_run` only.
    #[serde(with = "byte_text::paths")]
    pub explain: Vec<EntryPath>,
}

setters!(SyncOptions {
    recursive: bool,
    dirs: bool,
    prune_empty_dirs: bool,
    relative: bool,
    no_implied_dirs: bool,
    links: bool,
    copy_links: bool,
    copy_dirlinks: bool,
    copy_unsafe_links: bool,
    munge_links: MungeLinks,
    perms: bool,
    times: bool,
    atimes: bool,
    omit_dir_times: bool,
    omit_link_times: bool,
    executability: bool,
    owner: bool,
    group: bool,
    acls: bool,
    xattrs: bool,
    hard_links: bool,
    numeric_ids: bool,
    devices: bool,
    copy_devices: bool,
    specials: bool,
    checksum: bool,
    state: bool,
    ignore_times: bool,
    size_only: bool,
    update: bool,
    existing: bool,
    ignore_existing: bool,
    whole_file: bool,
    fuzzy: bool,
    fuzzy_alternates: bool,
    detect_renamed: DetectRenamed,
    delete: bool,
    delete_excluded: bool,
    max_delete: Option<DeleteLimit>,
    delete_all_or_nothing: bool,
    delete_timing: DeleteTiming,
    ignore_errors: bool,
    force: bool,
    allow_empty_source: bool,
    force_root: bool,
    mkpath: bool,
    keep_dirlinks: bool,
    safe_links: bool,
    insecure_links: bool,
    wildcards: bool,
    other_homes: bool,
    ignore_missing_args: bool,
    delete_missing_args: bool,
    remove_source_files: bool,
    remove_sent_only: bool,
    min_size: u64,
    max_size: Option<u64>,
    modify_window: Option<u32>,
    dry_run: bool,
    one_file_system: bool,
    open_noatime: bool,
    fake_super: FakeSuper,
    no_super: bool,
    copy_as: CopyAs,
    keep_partial: KeepPartial,
    durability: Durability,
    compression: Compression,
    mode_rules: Vec<ModeRule>,
    id_rules: Vec<IdRule>,
    writing: WritePolicy,
    filters: Vec<FilterRule>,
    events: EventLevel,
    event_ends: bool,
    event_backups: bool,
    event_removals: bool,
    event_done: bool,
    event_tree: bool,
    event_contents: bool,
    contents_as_listed: bool,
    contents_from_disk: bool,
    names_hidden: bool,
    rulings: bool,
    explain: Vec<EntryPath>,
});

impl SyncOptions {
    /// Returns whether the destination looks for moved and copied files, if it is not the source's
    /// machine: a local run copies from the source.
    pub fn detects_renamed(&self) -> bool {
        let makes_room =
            self.delete && matches!(self.delete_timing, DeleteTiming::During | DeleteTiming::Before);
        match self.detect_renamed {
            DetectRenamed::Auto => self.times && !makes_room && !self.whole_file,
            DetectRenamed::Never => false,
            DetectRenamed::Always => !self.whole_file,
        }
    }

    /// Returns the options of `-a` (`--archive`): recursion, links, permissions, times, owner,
    /// group, devices and specials; not hard links, ACLs or extended attributes.
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

    /// Returns whether directories are copied, with or without what is in them.
    pub fn takes_directories(&self) -> bool {
        self.recursive || self.dirs
    }

    /// Returns whether any symbolic link of the source is replaced by what it leads to.
    pub fn follows_links(&self) -> bool {
        self.copy_links || self.copy_dirlinks || self.copy_unsafe_links
    }

    /// Returns whether a link to a directory at the destination may stand for a directory of the
    /// source.
    pub fn follows_dirlinks(&self) -> bool {
        self.keep_dirlinks || self.relative && self.no_implied_dirs
    }

    /// Returns whether a source operand may be missing without an error.
    pub fn ignores_missing_args(&self) -> bool {
        self.ignore_missing_args || self.delete_missing_args
    }

    /// Returns whether the destination returns to entries after it has seen the whole listing. The
    /// source then keeps its listing to the end of the run.
    pub fn needs_whole_listing(&self) -> bool {
        let deletes_first = self.delete && self.delete_timing == DeleteTiming::Before;
        // Further names are linked at the end, and delayed files get theirs at the end.
        let late = self.hard_links || self.writing.delay_updates;
        deletes_first || self.remove_source_files && late
    }
}

/// A value of an option that no end takes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field} {}", match limit {
    Some(limit) => format!("{value} exceeds the limit {limit}"),
    None => "has no meaning".to_owned(),
})]
#[non_exhaustive]
pub struct OptionFault {
    /// The field of [`SyncOptions`], as in `writing.temp_dir`.
    pub option: &'static str,
    /// The part of it that is at fault, in words.
    pub field: &'static str,
    /// Its value, or its size.
    pub value: u64,
    /// The largest allowed value; `None` if the value has no meaning at all.
    pub limit: Option<u64>,
}

/// The ends that keep symbolic links with [`MUNGED`] before their texts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
#[non_exhaustive]
pub struct MungeLinks {
    /// The source takes the prefix off.
    pub source: bool,
    /// The destination puts it on.
    pub destination: bool,
}

setters!(MungeLinks { source: bool, destination: bool });

/// The prefix that makes a link unusable while it is kept: rsync's own.
pub const MUNGED: &[u8] = b"/rsyncd-munged/";

/// The ends that read owners, permission bits, types, access control lists and root's extended
/// attributes from `user.rsync.*` attributes and keep them there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
#[non_exhaustive]
pub struct FakeSuper {
    /// The source reads them there.
    pub source: bool,
    /// The destination reads and keeps them there.
    pub destination: bool,
}

setters!(FakeSuper { source: bool, destination: bool });

/// The users that the ends work as, which only root may ask of its end; `None`: the user that
/// started it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
#[non_exhaustive]
pub struct CopyAs {
    /// The user that reads.
    pub source: Option<ActAs>,
    /// The user that writes.
    pub destination: Option<ActAs>,
}

setters!(CopyAs { source: Option<ActAs>, destination: Option<ActAs> });

/// A user, by the name or number that the end concerned knows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
#[non_exhaustive]
pub struct ActAs {
    /// Login name or number.
    #[serde(with = "byte_text")]
    pub user: Vec<u8>,
    /// The only group, by name or number; `None`: the groups of the user's account.
    #[serde(with = "byte_text::optional")]
    pub group: Option<Vec<u8>>,
}

impl ActAs {
    /// Works as this user in the groups of his account.
    pub fn new(user: Vec<u8>) -> Self {
        Self { user, group: None }
    }
}

setters!(ActAs { user: Vec<u8>, group: Option<Vec<u8>> });

/// Whether the destination looks for files that were moved or copied at the source, to make new
/// files from its own ones. In JSON and on the wire: `null`, `false` or `true`.
///
/// ```
/// use dsync_wire::options::{DetectRenamed, SyncOptions};
///
/// assert!(SyncOptions::archive().detects_renamed());
/// assert!(!SyncOptions::archive().detect_renamed(DetectRenamed::Never).detects_renamed());
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(from = "Option<bool>", into = "Option<bool>")]
#[non_exhaustive]
pub enum DetectRenamed {
    /// By size and time, once the new files of a run have a MiB together and 128 bytes for each entry
    /// of the destination's tree: to look at it then takes no longer than to send them at half a
    /// gigabit a second. Not where times are not kept or deletions are to make room early. Default, as
    /// content that is there already need not be sent.
    #[default]
    Auto,
    /// Every new file is sent.
    Never,
    /// From the first new file on, also by size and name.
    Always,
}

impl From<Option<bool>> for DetectRenamed {
    fn from(asked: Option<bool>) -> Self {
        asked.map_or(Self::Auto, |asked| if asked { Self::Always } else { Self::Never })
    }
}

impl From<DetectRenamed> for Option<bool> {
    fn from(asked: DetectRenamed) -> Self {
        match asked {
            DetectRenamed::Auto => None,
            DetectRenamed::Never => Some(false),
            DetectRenamed::Always => Some(true),
        }
    }
}

/// The time when the destination makes data durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Durability {
    /// Data reaches the disk in groups: always before the rename that shows it, and all of it,
    /// names included, before the run reports success. Default, because a power cut after exit 0
    /// then loses nothing and the cost is a few syncs per run.
    #[default]
    Batch,
    /// Each file is synced on its own before its rename, its directory afterwards.
    File,
    /// The operating system decides. A power cut may lose or empty files.
    None,
}

/// The limit of removals.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum DeleteLimit {
    /// A number of entries.
    Entries(u64),
    /// A share, in percent (0 to 100), of the entries in those parts of the destination that have
    /// been compared with the source.
    Percent(u8),
}

/// The time when entries are removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum DeleteTiming {
    /// After everything has arrived, and only then. Of an entry that files of rules protect, neither
    /// those that were there before nor those that arrived: so no more goes than a dry run lists.
    #[default]
    After,
    /// In each directory as soon as it has been compared. With a limit as for `After`, because the
    /// number is known only at the end.
    During,
    /// After everything is listed and compared, before anything is written. The source then keeps
    /// its whole listing in memory, the destination in a file.
    Before,
    /// As `After`, but only the files of rules that are there in the end protect
    /// (rsync's `--delete-after`).
    AfterArrival,
}

/// The way in which new content replaces the old.
///
/// Directories are the operator's own paths, relative to the destination directory unless absolute.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
#[non_exhaustive]
pub struct WritePolicy {
    /// Write into the old file itself instead of beside it (`--inplace`).
    pub inplace: bool,
    /// Write the content of files into devices that have their names, and leave the devices'
    /// attributes as they are (`--write-devices`); with `inplace` only.
    pub devices: bool,
    /// Rename new content into place only after all of it has arrived (`--delay-updates`); not with
    /// `inplace`.
    pub delay_updates: bool,
    /// Continue shorter files and leave others alone (`--append`); with `inplace` only.
    pub append: Append,
    /// Reserve the space of a new file before writing it (`--preallocate`).
    pub preallocate: bool,
    /// Leave out all zeros in new content that fill blocks (`-S`). Without it, only the source's
    /// holes become holes at the destination.
    pub sparse: bool,
    /// Directory for staging files (`-T`), which must exist; `None`: beside the target.
    #[serde(with = "byte_text::optional")]
    pub temp_dir: Option<Vec<u8>>,
    /// Directory for unfinished files (`--partial-dir`); `None`: where they are written. A single
    /// name is a directory in each directory, made and removed as needed, not copied and not
    /// removed with `delete`. Otherwise it is an absolute path.
    #[serde(with = "byte_text::optional")]
    pub partial_dir: Option<Vec<u8>>,
    /// Keep replaced or removed entries (`-b`).
    pub backup: Option<Backup>,
    /// Other directories that may already hold the files.
    pub alternates: Option<Alternates>,
}

setters!(WritePolicy {
    inplace: bool,
    devices: bool,
    delay_updates: bool,
    append: Append,
    preallocate: bool,
    sparse: bool,
    temp_dir: Option<Vec<u8>>,
    partial_dir: Option<Vec<u8>>,
    backup: Option<Backup>,
    alternates: Option<Alternates>,
});

/// The treatment of existing files that need new content.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Append {
    /// Make them equal to the source's.
    #[default]
    No,
    /// Trust that a shorter file is the beginning of the source's, never read it, and append the
    /// rest. Leave files that are not shorter as they are (`--append`).
    Believing,
    /// As `Believing`, but compare the existing part; if it differs, send the whole file
    /// (`--append-verify`).
    Verifying,
}

/// The place for replaced and removed entries.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
#[non_exhaustive]
pub struct Backup {
    /// Directory that receives a tree of them (`--backup-dir`); `None`: each stays in its
    /// directory.
    #[serde(with = "byte_text::optional")]
    pub dir: Option<Vec<u8>>,
    /// Suffix of their names (`--suffix`), without `/` and NUL; may be empty only with `dir`.
    #[serde(with = "byte_text")]
    pub suffix: Vec<u8>,
}

impl Backup {
    /// Keeps entries in their directories under names with this suffix.
    pub fn new(suffix: Vec<u8>) -> Self {
        Self { dir: None, suffix }
    }
}

setters!(Backup {
    dir: Option<Vec<u8>>,
    suffix: Vec<u8>,
});

/// Other directories whose files are used if they equal the source's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
#[non_exhaustive]
pub struct Alternates {
    /// The use of an equal file.
    pub way: AlternateUse,
    /// The directories, 1 to [`crate::limits::MAX_ALTERNATES`]; the first that has the file is
    /// used.
    #[serde(with = "byte_text::list")]
    pub dirs: Vec<Vec<u8>>,
}

impl Alternates {
    /// Uses equal files of these directories.
    pub fn new(way: AlternateUse, dirs: Vec<Vec<u8>>) -> Self {
        Self { way, dirs }
    }
}

setters!(Alternates {
    way: AlternateUse,
    dirs: Vec<Vec<u8>>,
});

/// The use of another directory's file that equals the source's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum AlternateUse {
    /// Do without a file of the destination's own (`--compare-dest`).
    Compare,
    /// Copy it (`--copy-dest`).
    Copy,
    /// Make a hard link to it (`--link-dest`).
    Link,
}

/// The unfinished files that outlive a run, so that the next one can resume them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum KeepPartial {
    /// Those of a run that lost its connection. Default, because such a run will be repeated, by
    /// itself or by whoever started it.
    #[default]
    OnLostConnection,
    /// Those of every run that ends early (`--partial`).
    Always,
    /// None (`--no-partial`).
    Never,
}

/// The compression of data frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Compression {
    /// Compress if the carrier is the bottleneck; send raw if the processor is.
    #[default]
    Auto,
    /// Never compress. Zero runs are still elided.
    Off,
    /// lz4 on every frame that it shrinks.
    Lz4,
    /// zstd at this level, 1 to 19, on every frame that it shrinks.
    Zstd(u8),
}

/// One include or exclude rule in rsync's pattern language.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
#[non_exhaustive]
pub struct FilterRule {
    /// Whether it includes; otherwise it excludes.
    pub include: bool,
    /// The pattern as typed, without the rule's prefix; of a file in each directory its name.
    #[serde(with = "byte_text")]
    pub pattern: Vec<u8>,
    /// rsync's letters of the modifiers (`!`, `/`, `s`, `r`, `p`), each once and in a fixed order.
    /// For a file that is looked for in each directory after `:`, with `-`, `+`, `C` or `G` for its
    /// lines, `w`, `n`, and `0` for lines that end with a zero
    /// byte.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub modifiers: String,
}

setters!(FilterRule {
    include: bool,
    pattern: Vec<u8>,
    modifiers: String,
});

/// The per-entry events sent to the program that started the run.
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
