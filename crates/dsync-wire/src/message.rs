//! The messages of a session: what each end may say, as checked types.
//!
//! Roles: the *source* has the new files, the *destination* makes its tree like them; one of the two
//! is also the *controller*, the program that a person started. One control lane carries
//! [`ControlMessage`] both ways; data lanes carry [`DataMessage`] from source to destination.
//! `docs/wire.md` is normative for bytes and order; [`crate::codec`] turns these types into bytes.
//!
//! No message names a path to be opened: requests are entry numbers from the source's own listing,
//! copies are block numbers of a basis that the destination chose.
//!
//! ```text
//! controller            Hello, Start ->                       peer: Hello, Ready | Fatal
//! source                Tops, Missing*, IdName*, Listing*, Problem*, ListingEnd, Refine*, Removed*
//! destination           (Rest? (Need | NeedDelta Sums*) | NeedTail)*, ListingDone*, NeedsEnd, Landed*, Event*, Progress*
//! source, data lanes    LaneStart, (Batch | Segment Tokens* SegmentEnd | FileEnd)*, LaneEnd
//! destination           Report;  source: Bye
//! ```

use std::{ops::Range, sync::Arc};

use bytes::Bytes;
use dsync_delta::{BlockLen, SumsFormat};

use crate::{
    compress::Packed,
    event::{Event, Progress, Report},
    limits::{MAX_OPERAND_BYTES, MAX_OPERANDS, MAX_TIMESTAMP_SECONDS},
    name::Name,
    options::SyncOptions,
};

/// A message on the control lane.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum ControlMessage {
    /// First message of each end.
    Hello(Hello),
    /// What the controller wants; once, controller to peer.
    Start(Box<Start>),
    /// The peer agrees and has opened its side; once.
    Ready,
    /// The sender gives up; nothing follows.
    Fatal(Fatal),
    /// What the arguments of the source side are; once, before any listing.
    Tops(Tops),
    /// A user or group name, before the first entry that uses the number.
    IdName(IdName),
    /// Entries of one directory, or a part of them.
    Listing(Listing),
    /// The walk is over.
    ListingEnd(ListingEnd),
    /// Something at the source could not be read.
    Problem(Problem),
    /// The source wants further sums of a basis: weak ones, or shorter blocks' of what it did not find; the
    /// destination answers with another [`ControlMessage::NeedDelta`] of the same attempt, and sums.
    Refine(Refine),
    /// The destination wants this file whole.
    Need {
        /// The file.
        entry: EntryId,
        /// How often it was asked for before: 0 at first.
        attempt: u8,
    },
    /// The destination wants this file as a delta; its sums follow in [`ControlMessage::Sums`].
    NeedDelta(NeedDelta),
    /// The destination wants what this file has beyond what the destination has of it, as if that were a file.
    NeedTail(NeedTail),
    /// Of the file that is asked for next by this number and attempt, the destination has some segments: it wants
    /// the rest, unless the source's file is another by now.
    Rest(Rest),
    /// A part of the signature announced by the last `NeedDelta` of this entry.
    Sums(Sums),
    /// Every file of one `Listing` message has arrived, failed or needs nothing: the source may forget
    /// that listing. This is the source's credit: it keeps a bounded number of listed entries.
    ListingDone {
        /// Number of the `Listing` message, 0-based in the order sent. May come out of order.
        part: u64,
    },
    /// The destination will ask for nothing more; every file it asked for has arrived or failed.
    NeedsEnd,
    /// Something happened to an entry; destination to source, when the source is the controller.
    Event(Event),
    /// How far the destination is; also its sign of life, at least once a second.
    Progress(Progress),
    /// The result; the destination's last message, sent after everything is durable.
    Report(Box<Report>),
    /// The name of an operand that the source does not have, with `delete_missing_args`: the destination removes
    /// it. Before any listing.
    Missing(Name),
    /// These entries are at the destination and on its disk, with `remove_source_files`: the source may remove them.
    Landed(Vec<Landed>),
    /// Entries of `Landed` that the source has seen to; what it could not remove was a [`ControlMessage::Problem`].
    Removed {
        /// How many.
        entries: u64,
    },
    /// Sign of life of the source, at least once a second.
    Alive,
    /// The source got the report; the link may be closed.
    Bye,
}

/// A message on a data lane.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum DataMessage {
    /// First on every data lane.
    LaneStart {
        /// Number of this lane, 0-based.
        lane: u8,
    },
    /// Several small files, each whole.
    Batch {
        /// Keyed BLAKE3 hash of the raw content: one for all of it, because a small file of its own fills no
        /// vector, and its hash may be longer than the file.
        value: [u8; 32],
        /// Raw content: [`crate::codec::RecordsEncoder`].
        files: Packed,
    },
    /// Start of one segment of a file; tokens follow on this lane.
    Segment(Segment),
    /// Where the source's file has holes in the segment that began; at most once, before its tokens. Where the
    /// tokens give anything but zeros there, they count.
    Holes(Vec<Range<u32>>),
    /// A piece of the segment's token stream: whole tokens in `dsync_delta::token` encoding.
    Tokens(Packed),
    /// Nothing more comes for the segment.
    SegmentEnd {
        /// The segment's value under the session's key; `None` when the source could not read it to its end:
        /// a [`FileEnd`] that says so follows.
        value: Option<[u8; 32]>,
    },
    /// The file's outcome; may overtake segments on other lanes.
    FileEnd(FileEnd),
    /// Nothing follows on this lane.
    LaneEnd,
}

/// First message of each end on the control lane.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hello {
    /// Protocol version that this end speaks, agreed in the bootstrap.
    pub version: u16,
    /// Feature bits that this end understands.
    pub features: u64,
    /// This end's half of the session key: both halves, hashed in the order controller, peer,
    /// key every strong sum and file root of the session. 32 random bytes.
    pub key_share: [u8; 32],
}

/// What the controller wants of the peer.
#[derive(Debug, Clone, PartialEq)]
pub struct Start {
    /// The peer's role and its operands.
    pub role: PeerRole,
    /// The run's policy.
    pub options: SyncOptions,
    /// Number of data lanes that the controller opens, 1 to [`crate::limits::MAX_DATA_LANES`].
    pub data_lanes: u8,
    /// True when an earlier session of the same run broke: its destination may still be running.
    pub again: bool,
}

/// The peer's role with its operands, as typed by the user (relative to the peer's start directory).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PeerRole {
    /// The peer is the source (a pull).
    Source {
        /// Source operands with their trailing slashes.
        paths: Vec<Vec<u8>>,
    },
    /// The peer is the destination (a push).
    Destination {
        /// Destination operand with its trailing slash.
        path: Vec<u8>,
        /// What it is to get, so that it can refuse anything else.
        asked: Asked,
    },
}

/// What the source's operands stand for in the transfer's root: what a destination may get there.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Asked {
    /// An operand stands for what is in it (`dir/`, `.`), which may have any name.
    pub contents: bool,
    /// The names of the other operands' entries, one for each, in their order. `None` when they are more than
    /// [`MAX_OPERANDS`] or longer than [`MAX_OPERAND_BYTES`]: then any name may come.
    pub names: Option<Vec<Name>>,
}

impl Asked {
    /// Leaves the names out where there are too many to be sent.
    #[must_use]
    pub fn as_sent(mut self) -> Self {
        let bytes = |names: &Vec<Name>| names.iter().map(|name| name.as_bytes().len()).sum::<usize>();
        let fits = |names: &Vec<Name>| names.len() <= MAX_OPERANDS && bytes(names) <= MAX_OPERAND_BYTES;
        self.names = self.names.filter(fits);
        self
    }
}

/// Why an end gives up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fatal {
    /// Exit code that the run should end with.
    pub exit_code: u8,
    /// What happened, for people; escape before printing.
    pub text: Vec<u8>,
}

/// The shape of the source's operands, which decides what the destination path means.
#[derive(Debug, Clone, PartialEq)]
pub struct Tops {
    /// Attributes of the transfer's root directory, present when an operand ended in a slash (or was
    /// `.`): its contents, not itself, go into the destination. Entry 0 is always the root.
    pub root: Option<Attributes>,
    /// Number of entries directly below the root that the operands name themselves.
    pub named: u32,
    /// True when there is one operand and it is not a directory: the destination may then name a file.
    pub single_file: bool,
}

/// A user or group name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdName {
    /// True for a group.
    pub group: bool,
    /// Its number at the source.
    pub id: u32,
    /// Its name at the source.
    pub name: Vec<u8>,
}

/// Entries of one directory.
///
/// Directories come in depth-first order; a directory's own entry always precedes its listing. Entries
/// are in byte order of their names over all parts. Entry numbers are not sent: the root is 0 and each
/// listed entry takes the next number.
#[derive(Debug, Clone, PartialEq)]
pub struct Listing {
    /// The directory whose entries these are.
    pub dir: EntryId,
    /// True on the last part.
    pub last: bool,
    /// False when the directory could not be read to its end: nothing in it may be deleted.
    /// Meaningful on the last part.
    pub complete: bool,
    /// The entries of this part.
    pub entries: Vec<Entry>,
}

/// One directory entry of the source.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// Its name.
    pub name: Name,
    /// Its type with what belongs to the type.
    pub kind: EntryKind,
    /// What is preserved of every type.
    pub attributes: Attributes,
    /// Whether it is one of several names, with `hard_links` only; never of a directory.
    pub hard_link: Option<HardLink>,
}

/// One of several names of what is listed: a hard link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HardLink {
    /// The first of the names that is listed.
    First,
    /// Another name of the entry of this number, which was listed as [`HardLink::First`].
    To(EntryId),
}

/// Attributes that every type of entry has.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Attributes {
    /// Permission bits, 0 to 0o7777.
    pub mode: u16,
    /// Modification time.
    pub mtime: Timestamp,
    /// When it was last read, with `atimes` only, and never of a directory.
    pub atime: Option<Timestamp>,
    /// Owner's number; 0 where the run does not preserve owners.
    pub uid: u32,
    /// Group's number; 0 where the run does not preserve groups.
    pub gid: u32,
    /// Access control lists and extended attributes, as far as the run copies them. `None` when it copies
    /// neither, or when they could not be read: the destination's are then left as they are.
    pub extended: Option<Arc<Extended>>,
}

/// The access control lists and extended attributes of one entry.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Extended {
    /// Who may do what; `None` where the permission bits say it all.
    pub access: Option<Acl>,
    /// What new entries of a directory begin with.
    pub default: Option<Acl>,
    /// Extended attributes in strictly ascending order of their names.
    pub xattrs: Vec<Xattr>,
}

/// A POSIX access control list. Permissions are bits: 4 read, 2 write, 1 execute; numbers are the
/// source's.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Acl {
    /// The owner's permissions.
    pub user: u8,
    /// The owning group's permissions.
    pub group: u8,
    /// The most that groups and named users get.
    pub mask: Option<u8>,
    /// Everybody else's permissions.
    pub other: u8,
    /// Named users, in strictly ascending order.
    pub users: Vec<(u32, u8)>,
    /// Named groups, in strictly ascending order.
    pub groups: Vec<(u32, u8)>,
}

/// One extended attribute.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Xattr {
    /// Its name with its name space (`user.comment`), 1 to 255 bytes without NUL.
    pub name: Vec<u8>,
    /// Its value, at most [`MAX_XATTR_VALUE`](crate::limits::MAX_XATTR_VALUE) bytes.
    pub value: Vec<u8>,
}

/// A point in time as filesystems keep it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Timestamp {
    /// Seconds since 1970-01-01 UTC, before it when negative.
    pub seconds: i64,
    /// Nanoseconds, 0 to 999,999,999.
    pub nanoseconds: u32,
}

impl Timestamp {
    /// True when the timestamp can travel: its nanoseconds are below a second and it lies within a
    /// million years ([`MAX_TIMESTAMP_SECONDS`]) of 1970. Some filesystems keep wilder ones.
    pub fn is_valid(self) -> bool {
        self.nanoseconds < 1_000_000_000
            && self.seconds.unsigned_abs() <= MAX_TIMESTAMP_SECONDS.unsigned_abs()
    }
}

/// The type of an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum EntryKind {
    /// A regular file.
    File {
        /// Its length in bytes, at most `i64::MAX`.
        size: u64,
        /// Its unkeyed BLAKE3 hash, with `checksum` only.
        content: Option<[u8; 32]>,
    },
    /// A directory; its listing follows when the run is recursive.
    Directory,
    /// A symbolic link.
    Symlink {
        /// Its text, 1 to 4095 bytes, never resolved; empty where the run does not copy links.
        target: Vec<u8>,
    },
    /// A named pipe.
    Fifo,
    /// A socket.
    Socket,
    /// A character device.
    CharDevice {
        /// Its number; 0, 0 where the run does not copy devices.
        device: DeviceNumber,
    },
    /// A block device.
    BlockDevice {
        /// As of a character device.
        device: DeviceNumber,
    },
}

/// A device's number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DeviceNumber {
    /// Major number.
    pub major: u32,
    /// Minor number.
    pub minor: u32,
}

/// Number of an entry in the source's listing: 0 is the root, then in the order of listing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct EntryId(pub u64);

/// Totals of the walk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ListingEnd {
    /// Entries listed, the root included when it was announced.
    pub entries: u64,
    /// Sum of the sizes of listed regular files and symlink texts, in bytes.
    pub bytes: u64,
}

/// Something that could not be done at one path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// What was being done.
    pub operation: Operation,
    /// Path relative to the transfer's root, or the operand as typed.
    pub path: Vec<u8>,
    /// Why.
    pub cause: Cause,
}

/// What was being done when a problem arose. Wire values are the discriminants.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
#[non_exhaustive]
pub enum Operation {
    /// Opening or listing a directory of the source.
    ReadDirectory = 0,
    /// Reading attributes.
    Stat = 1,
    /// Opening or reading a file of the source.
    ReadFile = 2,
    /// Reading a symbolic link.
    ReadLink = 3,
    /// Reading the old file at the destination.
    ReadBasis = 4,
    /// Creating a directory.
    CreateDirectory = 5,
    /// Creating or writing the new file's temporary.
    WriteFile = 6,
    /// Setting attributes.
    SetAttributes = 7,
    /// Making a written file permanent (sync, rename).
    Commit = 8,
    /// Creating a symbolic link.
    CreateLink = 9,
    /// Creating a device, fifo or socket.
    CreateSpecial = 10,
    /// Removing an entry.
    Delete = 11,
    /// Listing a directory of the destination.
    ReadDestination = 12,
    /// Reading access control lists or extended attributes.
    ReadAttributes = 13,
    /// Giving an entry another name.
    HardLink = 14,
    /// Removing an entry of the source that was copied.
    RemoveSource = 15,
}

/// Why something could not be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Cause {
    /// The system's error number (Linux numbering).
    Os(i32),
    /// It was listed but is gone now.
    Vanished,
    /// It changed while it was read, at every try.
    Changed,
    /// The file root differed after the retry as well; the old file was kept.
    ContentMismatch,
    /// A directory stands in the way and may not be removed without `delete`.
    DirectoryInTheWay,
    /// Its type is not copied under the run's options (a symlink without `-l`, ...).
    Skipped,
    /// The entry's path is too deep or its name not valid here.
    Unrepresentable,
    /// Its type changed between listing and opening.
    TypeChanged,
    /// It is another name of an entry that could not be copied.
    FirstNameFailed,
    /// Source and destination are the same file.
    SameFile,
    /// What `--fake-super` kept of it cannot be read.
    FakeSuperDamaged,
}

/// A request for a delta.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NeedDelta {
    /// The file.
    pub entry: EntryId,
    /// How often it was asked for before: 0 at first.
    pub attempt: u8,
    /// Length of the basis in bytes.
    pub basis_len: u64,
    /// Block length of the signature.
    pub block_len: BlockLen,
    /// Which sums follow: at first with strong ones, in a further round as asked for.
    pub format: SumsFormat,
}

/// A request for the end of a file.
///
/// The source answers as if the file began there: lengths and places in the segments count from it. A file that is not
/// longer, or begins otherwise, is not sent: its outcome says why.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NeedTail {
    /// The file.
    pub entry: EntryId,
    /// How often it was asked for before: 0 at first.
    pub attempt: u8,
    /// Bytes that the destination has, at least 1.
    pub from: u64,
    /// Their unkeyed BLAKE3 hash, where they are to be compared.
    pub content: Option<[u8; 32]>,
}

/// A request for further sums of a basis.
///
/// Weak sums only: of all its blocks, which were sent without; before any request for shorter blocks.
/// Both sums: of the shorter blocks in some runs, where the basis is dirty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refine {
    /// The file.
    pub entry: EntryId,
    /// The attempt of the request that was searched.
    pub attempt: u8,
    /// The block length of the sums.
    pub block_len: BlockLen,
    /// Which sums are wanted; never strong ones only.
    pub format: SumsFormat,
    /// Runs of the long blocks, in `dsync_delta` encoding, at most [`crate::limits::MAX_SUMS`] bytes; empty
    /// for weak sums.
    pub runs: Vec<u8>,
}

/// A part of a signature: the sums of consecutive blocks, from the first block on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sums {
    /// The file.
    pub entry: EntryId,
    /// Sums in `dsync_delta` encoding; whole blocks only.
    pub bytes: Vec<u8>,
    /// True on the last part.
    pub last: bool,
}

/// What a file's content and attributes were when it was opened, as the source alone can read it: equal states
/// mean that the file was not touched in between.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FileState(pub [u8; 16]);

/// An entry that is at the destination and will survive a power cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Landed {
    /// The entry; never a directory.
    pub entry: EntryId,
    /// The state of what the destination had before the run already. If it is that of the source's entry, both
    /// are the same file, and the source keeps it.
    pub stood: Option<FileState>,
}

/// The segments that the destination still wants of a file that it has a part of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rest {
    /// The file.
    pub entry: EntryId,
    /// The attempt of the request that follows.
    pub attempt: u8,
    /// The state that the part is of. If the file has another, all of it is sent.
    pub state: FileState,
    /// Log2 of the segment length that it is cut in.
    pub length_log2: u8,
    /// Runs of wanted segments, ascending and apart, at least 1 and at most [`crate::limits::MAX_REST_RUNS`].
    pub runs: Vec<Range<u64>>,
}

/// The header of one segment.
///
/// Segments cut a file in pieces of `2^length_log2` bytes; each may travel on another lane. The tokens
/// tile `[index * length - lead, end)` with `end >= min((index + 1) * length, file_len)`; the
/// destination ignores what lies outside the segment. So a match that straddles a border is two
/// copies, not literals, and no token needs a byte offset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segment {
    /// The file.
    pub entry: EntryId,
    /// The attempt of the request that this answers: tokens of an older request are void.
    pub attempt: u8,
    /// The state of the file, equal in all its segments.
    pub state: FileState,
    /// Length of the new file, equal in all its segments.
    pub file_len: u64,
    /// Log2 of the segment length, equal in all segments of a file.
    pub length_log2: u8,
    /// Position of this segment, 0-based.
    pub index: u64,
    /// Bytes before the segment's start that the tokens begin with, less than the block length.
    pub lead: u32,
}

/// The outcome of one file that went in segments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileEnd {
    /// The file.
    pub entry: EntryId,
    /// As in its segments.
    pub attempt: u8,
    /// The modification time when it was read, without a change; or why it could not be read as one
    /// consistent state.
    pub outcome: Result<Timestamp, Cause>,
}

/// One file of a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// The file.
    pub entry: EntryId,
    /// As in [`Segment::attempt`].
    pub attempt: u8,
    /// As in [`FileEnd::outcome`].
    pub outcome: Result<Timestamp, Cause>,
    /// Its content; empty when it failed.
    pub content: Bytes,
}
