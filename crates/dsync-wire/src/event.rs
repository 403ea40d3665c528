//! What a run tells the program that started it: events, progress, the report.
//!
//! The destination is the accountant of a run: it sees the source's listing and problems and its own
//! tree. When the source is the controller these travel over the control lane; otherwise they are
//! handed to the observer directly. All names and paths are raw bytes: whoever prints escapes.

use crate::message::Problem;

/// One thing that happened, or under `dry_run` would happen, to one entry.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// The plan for one entry, in listing order; a dry run and a real run emit the same.
    Planned(Planned),
    /// Something could not be done; the run goes on and ends with a partial result.
    Failed(Problem),
}

/// The plan for one entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Planned {
    /// What is done.
    pub action: Action,
    /// The entry's type.
    pub kind: FileType,
    /// What differs; for [`Action::Keep`] nothing but perhaps [`Changes::HARD_LINK`].
    pub changes: Changes,
    /// Path relative to the transfer's root; empty for the root itself.
    pub path: Vec<u8>,
    /// The name that a hard link is made to, like `path`; else the text of a symbolic link, else empty.
    pub target: Vec<u8>,
    /// Size at the source in bytes (regular files), else 0.
    pub size: u64,
}

/// What is done with an entry. Wire values are the discriminants.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
#[non_exhaustive]
pub enum Action {
    /// Nothing: it is up to date.
    Keep = 0,
    /// It does not exist yet (or had another type) and is made.
    Create = 1,
    /// A regular file's content is transferred over the old one, or a link or device is replaced.
    Update = 2,
    /// Only attributes are set.
    Retag = 3,
    /// It is removed.
    Delete = 4,
    /// It does not exist yet and is made from an equal one that the destination has elsewhere; attributes in which
    /// that differs are set.
    Reuse = 5,
    /// It becomes another name of an equal one that the destination has elsewhere.
    Link = 6,
}

/// The type of an entry, without details. Wire values are the discriminants.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
#[non_exhaustive]
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

/// Which attributes differ: a set of the constants below.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Changes(u16);

impl Changes {
    /// Nothing differs.
    pub const NONE: Self = Self(0);
    /// Content, link text or device number (only known to differ with `checksum`, or for non-files).
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

    /// No difference: the entry is another name of one that was planned before. With [`Action::Create`] or
    /// [`Action::Update`] it is linked to [`Planned::target`], with [`Action::Keep`] it is already.
    pub const HARD_LINK: Self = Self(512);

    /// Access time.
    pub const ACCESS_TIME: Self = Self(1024);

    /// All bits that mean something.
    const KNOWN: u16 = 0x7ff;

    /// The bits as they travel.
    pub fn bits(self) -> u16 {
        self.0
    }

    /// Checks bits from the wire; `None` when an unknown bit is set.
    pub fn from_bits(bits: u16) -> Option<Self> {
        (bits & !Self::KNOWN == 0).then_some(Self(bits))
    }

    /// True when every bit of `other` is set.
    pub fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// True when nothing differs.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Adds the bits of `other`.
    pub fn insert(&mut self, other: Self) {
        self.0 |= other.0;
    }
}

/// How far the destination is. All counts are since the start and never fall.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Progress {
    /// Entries compared so far.
    pub entries_checked: u64,
    /// Regular files whose content was asked for.
    pub files_needed: u64,
    /// Their total size in bytes.
    pub bytes_needed: u64,
    /// Regular files finished (committed, or given up).
    pub files_done: u64,
    /// Bytes of new files that arrived, literal and matched.
    pub bytes_done: u64,
    /// Entries that the source listed so far (known to the destination when it receives them).
    pub entries_listed: u64,
    /// True once the listing is complete and compared: the totals will not grow any more.
    pub totals_final: bool,
}

impl Progress {
    /// Returns a number that changes when the run gets on.
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
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

impl TypeCounts {
    /// Counts one more entry of this type.
    pub fn add(&mut self, kind: FileType) {
        *self.of(kind) += 1;
    }

    /// Counts one entry of this type less.
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

    /// Sum over the types; `u64::MAX` when a peer's counts exceed it.
    pub fn total(&self) -> u64 {
        [self.directories, self.symlinks, self.devices, self.specials]
            .into_iter()
            .fold(self.files, u64::saturating_add)
    }
}

/// The destination's account of a run.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Report {
    /// Entries that the source listed.
    pub listed: TypeCounts,
    /// Entries that did not exist and were made.
    pub created: TypeCounts,
    /// Entries removed.
    pub deleted: TypeCounts,
    /// Entries whose attributes alone were set.
    pub retagged: u64,
    /// Regular files whose content was transferred.
    pub files_transferred: u64,
    /// Total size of the source's files and link texts in bytes.
    pub total_bytes: u64,
    /// Total size of the transferred files in bytes.
    pub transferred_bytes: u64,
    /// Bytes of new files that came over the wire, before compression.
    pub literal_bytes: u64,
    /// Bytes of new files that were copied from the basis.
    pub matched_bytes: u64,
    /// Signature bytes sent.
    pub signature_bytes: u64,
    /// Sync calls made to reach durability.
    pub syncs: u64,
    /// Entries that vanished, or changed while they were read.
    pub vanished: u64,
    /// Entries that failed in another way.
    pub failed: u64,
    /// Entries that are in place without some of their access control lists or extended attributes, which
    /// the destination's filesystem cannot hold or its user may not set.
    pub attributes_withheld: u64,
    /// Entries that are copies of what they should be hard links to, because the destination could not give that
    /// a further name.
    pub links_copied: u64,
    /// Files that are copied although they differ in nothing but a time that looks like the source's as a filesystem
    /// keeps it that has coarser times, or ends of time: the next run will do so again.
    pub rounded_times: u64,
    /// Deletions that were not made because the source could not be read completely.
    pub deletions_withheld: u64,
    /// Deletions that exceeded `max_delete`; none was made when this is not 0.
    pub deletions_over_limit: u64,
}
