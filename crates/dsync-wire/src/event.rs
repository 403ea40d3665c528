//! The account of a run for the program that started it: events, progress, the report.
//!
//! The destination keeps the account of a run: it sees the source's listing and problems and its
//! own tree. If the source is the controller, the account is sent over the control lane; otherwise
//! it goes to the observer directly. Names and paths are the tree's bytes. An [`EntryPath`] escapes
//! itself when it is printed; of a link's text whoever prints it does.

use crate::{
    message::{Problem, Timestamp},
    path::EntryPath,
    ruling::Ruling,
    setters,
};

/// One thing that happened, or would happen under `dry_run`, to one entry.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// The plan for one entry, in listing order. A dry run and a real run emit the same, but that
    /// with [`SyncOptions::event_ends`](crate::options::SyncOptions::event_ends) a real run emits
    /// none that could not be carried out.
    Planned(Planned),
    /// A failure. The run continues and ends with a partial result. With [`Cause::Skipped`](crate::message::Cause::Skipped)
    /// it is none: the options leave the entry out, and it counts nowhere.
    Failed(Problem),
    /// The end of a plan that was emitted with a number.
    Ended(Ended),
    /// An entry that was carried out, with
    /// [`SyncOptions::event_done`](crate::options::SyncOptions::event_done) only.
    Done(Done),
    /// An entry that an option leaves alone, with
    /// [`SyncOptions::event_ends`](crate::options::SyncOptions::event_ends) and
    /// [`EventLevel::All`](crate::options::EventLevel::All).
    LeftAlone(LeftAlone),
    /// A backup that was made, with
    /// [`SyncOptions::event_backups`](crate::options::SyncOptions::event_backups) only.
    BackedUp(BackedUp),
    /// The path of an entry that has left the source, with
    /// [`SyncOptions::event_removals`](crate::options::SyncOptions::event_removals) only.
    Removed(EntryPath),
    /// The reason why an entry takes part or not, with
    /// [`SyncOptions::rulings`](crate::options::SyncOptions::rulings) or
    /// [`SyncOptions::explain`](crate::options::SyncOptions::explain) only.
    Ruling(Ruling),
    /// An entry of the destination's tree when the run has ended, with
    /// [`SyncOptions::event_tree`](crate::options::SyncOptions::event_tree) only.
    Present(Present),
}

/// An entry of the destination's tree when the run has ended, whether or not the run touched it.
///
/// ```
/// use dsync_wire::event::{Facts, FileType, Present};
///
/// // A listener that makes a catalogue of the destination is tested without a run.
/// let facts = Facts::default().mode(0o644).uid(1000);
/// let present = Present::new(FileType::File, "note").size(5).facts(facts);
/// assert_eq!((present.facts.mode, present.size), (0o644, 5));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Present {
    /// Path below the transfer's root at the destination; empty for the root itself.
    pub path: EntryPath,
    /// The entry's type.
    pub kind: FileType,
    /// Size of a regular file in bytes, else 0.
    pub size: u64,
    /// Text of a symbolic link; `major,minor` of a device; else empty.
    pub text: Vec<u8>,
    /// Attributes as the destination has them, whatever the run preserves. The number is 0. The content is
    /// that of a file that the run wrote or, with `checksum`, compared; of other files the run knows
    /// none.
    pub facts: Facts,
}

impl Present {
    /// Makes an entry without size, text and attributes.
    pub fn new(kind: FileType, path: impl Into<EntryPath>) -> Self {
        Self { path: path.into(), kind, size: 0, text: Vec::new(), facts: Facts::default() }
    }
}

setters!(Present {
    path: EntryPath,
    kind: FileType,
    size: u64,
    text: Vec<u8>,
    facts: Facts,
});

/// An entry that was carried out: it is at the destination as planned, or gone if it was to go.
/// Entries that were up to date have none. A directory gets its times when all in it is done.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Done {
    /// Path relative to the transfer's root; empty for the root itself.
    pub path: EntryPath,
    /// The entry's type.
    pub kind: FileType,
    /// The action that was carried out.
    pub action: Action,
    /// Size of a regular file in bytes, else 0.
    pub bytes: u64,
    /// BLAKE3 hash of the content that this run wrote, without a key; only with
    /// [`SyncOptions::event_contents`](crate::options::SyncOptions::event_contents). `None` of an
    /// entry whose content was not written.
    pub content: Option<[u8; 32]>,
    /// Whether a power cut cannot take it any more. Entries that are not yet on the disk are when the
    /// run ends well, unless [`Durability::None`](crate::options::Durability::None) was asked for.
    pub durable: bool,
    /// Whether it is another name of a file that is there already.
    pub linked: bool,
    /// Whether its content shares the source's blocks on the disk.
    pub cloned: bool,
}

impl Done {
    /// Makes the account of an entry without size and content that is not yet on the disk.
    pub fn new(action: Action, kind: FileType, path: impl Into<EntryPath>) -> Self {
        let path = path.into();
        Self { path, kind, action, bytes: 0, content: None, durable: false, linked: false, cloned: false }
    }
}

setters!(Done {
    path: EntryPath,
    kind: FileType,
    action: Action,
    bytes: u64,
    content: Option<[u8; 32]>,
    durable: bool,
    linked: bool,
    cloned: bool,
});

/// An entry that an option leaves alone.
///
/// ```
/// use dsync_wire::event::{FileType, LeftAlone, WhyLeft};
///
/// let left = LeftAlone::new(FileType::File, "note", WhyLeft::Newer);
/// let sentence = match left.why {
///     WhyLeft::Newer => "somebody has edited the copy",
///     WhyLeft::TooLong | WhyLeft::TooShort => "its size is out of bounds",
///     _ => "left alone",
/// };
/// assert_eq!(sentence, "somebody has edited the copy");
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct LeftAlone {
    /// The entry's type.
    pub kind: FileType,
    /// Path relative to the transfer's root.
    pub path: EntryPath,
    /// The option's reason.
    pub why: WhyLeft,
}

impl LeftAlone {
    /// Makes the account of an entry that is left alone.
    pub fn new(kind: FileType, path: impl Into<EntryPath>, why: WhyLeft) -> Self {
        Self { kind, path: path.into(), why }
    }
}

setters!(LeftAlone { kind: FileType, path: EntryPath, why: WhyLeft });

/// A backup of an entry that is replaced or removed.
///
/// ```
/// use dsync_wire::event::BackedUp;
///
/// /// Returns the line of a catalogue by which the old file is found again.
/// fn line(made: &BackedUp) -> String {
///     format!("{} -> {}", made.path, made.backup)
/// }
/// assert_eq!(line(&BackedUp::new("note", "note~")), "note -> note~");
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct BackedUp {
    /// Path relative to the transfer's root.
    pub path: EntryPath,
    /// The backup's path: below the directory of backups as the options name it, else like `path`.
    pub backup: EntryPath,
}

impl BackedUp {
    /// Makes the account of a backup.
    pub fn new(path: impl Into<EntryPath>, backup: impl Into<EntryPath>) -> Self {
        Self { path: path.into(), backup: backup.into() }
    }
}

setters!(BackedUp { path: EntryPath, backup: EntryPath });

/// The reason why an entry is left alone. Wire values are the discriminants.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
#[non_exhaustive]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "snake_case"))]
pub enum WhyLeft {
    /// The destination's is newer (`update`).
    Newer = 0,
    /// The destination has one (`ignore_existing`).
    Exists = 1,
    /// The destination has none (`existing`).
    New = 2,
    /// It is longer than `max_size`.
    TooLong = 3,
    /// It is shorter than `min_size`.
    TooShort = 4,
}

/// The plan for one entry.
///
/// ```
/// use dsync_wire::event::{Action, Changes, Event, FileType, Planned};
///
/// fn line(plan: &Planned) -> String {
///     let changes: Vec<_> = plan.changes.iter().map(Changes::name).collect();
///     let from = if plan.is_made_from() { ", from another file" } else { "" };
///     format!("{:?} {} ({}){from}", plan.action, plan.path, changes.join(", "))
/// }
/// // An observer is tested without a run.
/// let plan =
///     Planned::new(Action::Update, FileType::File, "note").changes(Changes::SIZE);
/// assert_eq!(line(&plan), "Update note (size)");
/// # let _ = Event::Planned(plan);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Planned {
    /// The planned action.
    pub action: Action,
    /// The entry's type.
    pub kind: FileType,
    /// The attributes that differ; for [`Action::Keep`] none, except perhaps
    /// [`Changes::HARD_LINK`].
    pub changes: Changes,
    /// Path relative to the transfer's root; empty for the root itself.
    pub path: EntryPath,
    /// Path of the name that a hard link is made to, like `path`; else the text of a symbolic link;
    /// else, with [`SyncOptions::detect_renamed`](crate::options::SyncOptions::detect_renamed), the
    /// path of the old file of another place that a new one is made from; else empty.
    pub target: Vec<u8>,
    /// Size at the source in bytes (regular files), else 0.
    pub size: u64,
    /// More about the entry, with
    /// [`SyncOptions::event_ends`](crate::options::SyncOptions::event_ends) only; never of a
    /// removal.
    pub facts: Option<Facts>,
}

impl Planned {
    /// Makes a plan without changes, target, size and facts.
    pub fn new(action: Action, kind: FileType, path: impl Into<EntryPath>) -> Self {
        let path = path.into();
        Self { action, kind, changes: Changes::NONE, path, target: Vec::new(), size: 0, facts: None }
    }

    /// Returns whether the entry is a file that is made from an old one of another place, which is its
    /// target.
    pub fn is_made_from(&self) -> bool {
        self.kind == FileType::File && !self.target.is_empty() && !self.changes.contains(Changes::HARD_LINK)
    }
}

setters!(Planned {
    action: Action,
    kind: FileType,
    changes: Changes,
    path: EntryPath,
    target: Vec<u8>,
    size: u64,
    facts: Option<Facts>,
});

/// An entry at the source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Facts {
    /// The number that [`Event::Ended`] will name; 0 if the plan is carried out already or, in a
    /// dry run, never will be.
    pub number: u64,
    /// Permission bits.
    pub mode: u16,
    /// Modification time.
    pub mtime: Timestamp,
    /// Owner's number; 0 if the run does not preserve owners.
    pub uid: u32,
    /// Group's number; 0 if the run does not preserve groups.
    pub gid: u32,
    /// BLAKE3 hash of a regular file's content when it was listed, without a key; only with
    /// [`SyncOptions::event_contents`](crate::options::SyncOptions::event_contents).
    pub content: Option<[u8; 32]>,
}

setters!(Facts {
    number: u64,
    mode: u16,
    mtime: Timestamp,
    uid: u32,
    gid: u32,
    content: Option<[u8; 32]>,
});

/// The end of a plan.
///
/// ```
/// use dsync_wire::event::{Ended, Planned};
///
/// /// Compares what a plan was for with what it has cost.
/// fn saved_bytes(plan: &Planned, end: &Ended) -> u64 {
///     if end.done { plan.size.saturating_sub(end.literal_bytes + end.signature_bytes) } else { 0 }
/// }
/// # let _ = saved_bytes;
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Ended {
    /// Its number: [`Facts::number`].
    pub number: u64,
    /// Whether it was carried out; else an [`Event::Failed`] says why not.
    pub done: bool,
    /// Bytes of the file's content that came from the source, before compression.
    pub literal_bytes: u64,
    /// Bytes of sums of the old file that the source got.
    pub signature_bytes: u64,
}

setters!(Ended { number: u64, done: bool, literal_bytes: u64, signature_bytes: u64 });

/// The action planned for an entry. Wire values are the discriminants.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
#[non_exhaustive]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "snake_case"))]
pub enum Action {
    /// Leave it: it is up to date.
    Keep = 0,
    /// Make it: it does not exist yet or has another type.
    #[cfg_attr(feature = "serde", serde(alias = "list"))]
    Create = 1,
    /// Transfer a regular file's content over the old one, or replace a link or device.
    Update = 2,
    /// Set attributes only.
    Retag = 3,
    /// Remove it.
    Delete = 4,
    /// Make it, as it does not exist yet, from an equal entry elsewhere at the destination; set the
    /// attributes that differ.
    Reuse = 5,
    /// Make it another name of an equal entry elsewhere at the destination.
    Link = 6,
}

/// The type of an entry, without details. Wire values are the discriminants.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
#[non_exhaustive]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "snake_case"))]
pub enum FileType {
    /// Regular file.
    File = 0,
    /// Directory.
    Directory = 1,
    /// Symbolic link.
    Symlink = 2,
    /// Named pipe.
    Fifo = 3,
    /// Socket.
    Socket = 4,
    /// Character device.
    CharDevice = 5,
    /// Block device.
    BlockDevice = 6,
}

/// A set of attributes that differ, made of the constants below.
///
/// ```
/// use dsync_wire::event::Changes;
///
/// let mut changes = Changes::NONE;
/// changes.insert(Changes::TIME);
/// changes.insert(Changes::SIZE);
/// assert!(changes.contains(Changes::SIZE) && !changes.is_empty());
/// assert_eq!(changes.iter().map(Changes::name).collect::<Vec<_>>(), ["size", "time"]);
/// // A database keeps the bits; those of a later version are refused.
/// assert_eq!(
///     (Changes::from_bits(changes.bits()), Changes::from_bits(1 << 15)),
///     (Some(changes), None)
/// );
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Changes(u16);

impl Changes {
    /// Nothing differs.
    pub const NONE: Self = Self(0);
    /// Content, link text or device number (for files known to differ only with `checksum`).
    pub const CONTENT: Self = Self(1);
    /// Size.
    pub const SIZE: Self = Self(2);
    /// Modification time differs and will be set to the source's.
    pub const TIME: Self = Self(4);
    /// Modification time will become the time of the transfer (no `times`).
    pub const TIME_NOW: Self = Self(8);
    /// Permissions.
    pub const PERMS: Self = Self(16);
    /// Owner.
    pub const OWNER: Self = Self(32);
    /// Group.
    pub const GROUP: Self = Self(64);
    /// Access control lists.
    pub const ACL: Self = Self(128);
    /// Extended attributes.
    pub const XATTRS: Self = Self(256);

    /// No difference: the entry is another name of one that was planned before. With
    /// [`Action::Create`] or [`Action::Update`] it will be linked to [`Planned::target`]; with
    /// [`Action::Keep`] it already is.
    pub const HARD_LINK: Self = Self(512);

    /// Access time.
    pub const ACCESS_TIME: Self = Self(1024);

    /// All defined bits.
    const KNOWN: u16 = 0x7ff;

    /// Returns the bits as sent on the wire.
    pub fn bits(self) -> u16 {
        self.0
    }

    /// Checks bits from the wire; returns `None` if an unknown bit is set.
    pub fn from_bits(bits: u16) -> Option<Self> {
        (bits & !Self::KNOWN == 0).then_some(Self(bits))
    }

    /// Returns whether every bit of `other` is set.
    pub fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Returns whether nothing differs.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Returns each attribute of the set, in the order of the constants.
    pub fn iter(self) -> impl Iterator<Item = Self> {
        NAMES.into_iter().map(|(change, _)| change).filter(move |change| self.contains(*change))
    }

    /// Returns the name of a single attribute, as in `permissions`; that of the first one of several,
    /// and `nothing` of none.
    pub fn name(self) -> &'static str {
        NAMES.iter().find(|(change, _)| self.contains(*change)).map_or("nothing", |(_, name)| *name)
    }

    /// Returns the attribute of this [name](Self::name).
    #[cfg(feature = "serde")]
    pub(crate) fn named(name: &str) -> Option<Self> {
        NAMES.into_iter().find(|(_, known)| *known == name).map(|(change, _)| change)
    }

    /// Adds the bits of `other`.
    pub fn insert(&mut self, other: Self) {
        self.0 |= other.0;
    }
}

impl IntoIterator for Changes {
    type Item = Self;
    type IntoIter = std::vec::IntoIter<Self>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter().collect::<Vec<_>>().into_iter()
    }
}

/// The attributes and their names.
const NAMES: [(Changes, &str); 11] = [
    (Changes::CONTENT, "content"),
    (Changes::SIZE, "size"),
    (Changes::TIME, "time"),
    (Changes::TIME_NOW, "time_now"),
    (Changes::PERMS, "permissions"),
    (Changes::OWNER, "owner"),
    (Changes::GROUP, "group"),
    (Changes::ACL, "acl"),
    (Changes::XATTRS, "xattrs"),
    (Changes::HARD_LINK, "hard_link"),
    (Changes::ACCESS_TIME, "access_time"),
];

/// The destination's progress. All counts are since the start and never decrease.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(default))]
pub struct Progress {
    /// Entries compared so far.
    pub entries_checked: u64,
    /// Entries that the source has listed so far, as known to the destination.
    pub entries_listed: u64,
    /// Regular files whose content was requested.
    pub files_needed: u64,
    /// Regular files that were committed or abandoned.
    pub files_done: u64,
    /// Total size in bytes of the files whose content was requested.
    pub bytes_needed: u64,
    /// Bytes of new files that arrived, literal and matched.
    pub bytes_done: u64,
    /// Whether the listing is complete and compared, so that the totals will not grow any more.
    pub totals_final: bool,
}

setters!(Progress {
    entries_checked: u64,
    files_needed: u64,
    bytes_needed: u64,
    files_done: u64,
    bytes_done: u64,
    entries_listed: u64,
    totals_final: bool,
});

impl Progress {
    /// Returns a number that changes whenever the run makes progress.
    ///
    /// ```
    /// use dsync_wire::event::Progress;
    ///
    /// /// Returns whether a run has stood still since it was looked at last.
    /// fn is_stuck(before: &Progress, now: &Progress) -> bool {
    ///     before.work() == now.work()
    /// }
    /// assert!(!is_stuck(&Progress::default(), &Progress::default().bytes_done(1)));
    /// ```
    pub fn work(&self) -> u64 {
        let Self {
            entries_checked,
            files_needed,
            bytes_needed,
            files_done,
            bytes_done,
            entries_listed,
            totals_final,
        } = *self;
        let counts = [entries_checked, files_needed, bytes_needed, files_done, bytes_done, entries_listed];
        counts.into_iter().fold(u64::from(totals_final), u64::wrapping_add)
    }
}

/// Numbers of entries by type.
///
/// ```
/// use dsync_wire::event::{FileType, TypeCounts};
///
/// let mut counts = TypeCounts::default();
/// counts.add(FileType::Directory);
/// counts.add(FileType::File);
/// counts.take_back(FileType::File);
/// assert_eq!((counts.directories, counts.total()), (1, 1));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(default))]
pub struct TypeCounts {
    /// Regular files.
    pub files: u64,
    /// Directories.
    pub directories: u64,
    /// Symbolic links.
    pub symlinks: u64,
    /// Devices.
    pub devices: u64,
    /// Fifos and sockets.
    pub specials: u64,
}

setters!(TypeCounts { files: u64, directories: u64, symlinks: u64, devices: u64, specials: u64 });

impl TypeCounts {
    /// Counts one more entry of this type.
    pub fn add(&mut self, kind: FileType) {
        *self.of(kind) += 1;
    }

    /// Subtracts one entry of this type.
    pub fn take_back(&mut self, kind: FileType) {
        let count = self.of(kind);
        *count = count.saturating_sub(1);
    }

    fn of(&mut self, kind: FileType) -> &mut u64 {
        match kind {
            FileType::File => &mut self.files,
            FileType::Directory => &mut self.directories,
            FileType::Symlink => &mut self.symlinks,
            FileType::CharDevice | FileType::BlockDevice => &mut self.devices,
            FileType::Fifo | FileType::Socket => &mut self.specials,
        }
    }

    /// Returns the sum over the types; `u64::MAX` if a peer's counts exceed it.
    pub fn total(&self) -> u64 {
        [self.directories, self.symlinks, self.devices, self.specials]
            .into_iter()
            .fold(self.files, u64::saturating_add)
    }
}

/// The destination's final account of a run.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(default))]
pub struct Report {
    /// Entries that the source listed.
    pub listed: TypeCounts,
    /// Entries that did not exist and were made.
    pub created: TypeCounts,
    /// Entries that were removed.
    pub deleted: TypeCounts,
    /// Entries of which only attributes were set.
    pub retagged: u64,
    /// Regular files whose content was transferred.
    pub files_transferred: u64,
    /// Total size of the source's files and link texts in bytes.
    pub total_bytes: u64,
    /// Total size of the transferred files in bytes.
    pub transferred_bytes: u64,
    /// Bytes of new files that were sent over the wire, before compression.
    pub literal_bytes: u64,
    /// Bytes of new files that were copied from the basis.
    pub matched_bytes: u64,
    /// Signature bytes sent.
    pub signature_bytes: u64,
    /// Sync calls made for durability.
    pub syncs: u64,
    /// Entries that vanished, or changed while they were read.
    pub vanished: u64,
    /// Entries that failed in another way.
    pub failed: u64,
    /// Entries in place that lack some of their access control lists or extended attributes,
    /// because the destination's filesystem cannot hold them or its user may not set them.
    pub attributes_withheld: u64,
    /// Entries that are copies instead of hard links, because the destination could not make a
    /// further name.
    pub links_copied: u64,
    /// Files copied although they differ only in a time. That time looks like the source's, as kept
    /// by a filesystem with coarser times or a smaller range. The next run will copy them again.
    pub rounded_times: u64,
    /// Deletions withheld because the source could not be read completely.
    pub deletions_withheld: u64,
    /// Deletions that `max_delete` kept from being made; with `delete_all_or_nothing` all that
    /// were due.
    pub deletions_over_limit: u64,
    /// Hard links that were made, to entries of this run and to those of alternate directories. `None`
    /// if the destination is at the other end, unless the run has
    /// [`SyncOptions::event_done`](crate::options::SyncOptions::event_done).
    pub linked: Option<u64>,
    /// Files that share their blocks on the disk with the source's. A dry run cannot tell: 0. `None`
    /// as for `linked`.
    pub cloned: Option<u64>,
}

setters!(Report {
    listed: TypeCounts,
    created: TypeCounts,
    deleted: TypeCounts,
    retagged: u64,
    files_transferred: u64,
    total_bytes: u64,
    transferred_bytes: u64,
    literal_bytes: u64,
    matched_bytes: u64,
    signature_bytes: u64,
    syncs: u64,
    vanished: u64,
    failed: u64,
    attributes_withheld: u64,
    links_copied: u64,
    rounded_times: u64,
    deletions_withheld: u64,
    deletions_over_limit: u64,
    linked: Option<u64>,
    cloned: Option<u64>,
});
