//! The messages of a session, as checked types.
//!
//! Roles: the *source* has the new files, the *destination* makes its tree like them. One of the
//! two is also the *controller*, the program that a person started. One control lane carries
//! [`ControlMessage`] both ways; data lanes carry [`DataMessage`] from source to destination.
//! `docs/wire.md` is normative for bytes and order; [`crate::codec`] turns these types into bytes.
//!
//! No message names a path to open: requests are entry numbers from the source's own listing, and
//! copies are block numbers of a basis that the destination chose.
//!
//! ```text
//! controller            Hello, (Start | StartPart+) ->        peer: Hello, Ready | Fatal
//! destination           Names*
//! source                Tops, Missing*, IdName*, (Listing | Span | Same)*, Ruling*, Problem*, ListingEnd, Refine*, Removed*
//! destination           (Rest? (Need | NeedDelta Sums*) | NeedTail)*, ListingDone*, SpanAnswer*, NeedsEnd, Landed*, Event*, Progress*
//! source, data lanes    LaneStart, (Batch | Segment Tokens* SegmentEnd | FileEnd)*, LaneEnd
//! destination           Report;  source: Bye
//! ```

use std::{fmt, ops::Range, sync::Arc, time::Duration};

use bytes::Bytes;
use dsync_delta::{BlockLen, SumsFormat};

pub use crate::problem::{Cause, Operation, Problem};
use crate::{
    compress::Packed,
    event::{Event, Progress, Report},
    limits::{MAX_ASKED, MAX_ASKED_BYTES},
    name::Name,
    options::SyncOptions,
    ruling::Ruling,
};

/// A message on the control lane.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum ControlMessage {
    /// The first message of each end.
    Hello(Hello),
    /// The controller's request; once, controller to peer.
    Start(Box<Start>),
    /// A piece of the payload of a [`Start`] that is longer than a frame; controller to peer, in
    /// the place of [`ControlMessage::Start`].
    StartPart {
        /// Whether this is the last piece.
        last: bool,
        /// Its bytes, at most [`MAX_START_PART`].
        ///
        /// [`MAX_START_PART`]: crate::limits::MAX_START_PART
        bytes: Vec<u8>,
    },
    /// The peer's agreement: it has opened its side; once.
    Ready {
        /// Sentences for people on what its system lacks to confine it, a line each,
        /// [`MAX_READY_TEXT`] bytes at most.
        ///
        /// [`MAX_READY_TEXT`]: crate::limits::MAX_READY_TEXT
        lacks: Vec<u8>,
    },
    /// The sender's failure; nothing follows.
    Fatal(Fatal),
    /// The shape of the source's arguments; once, before any listing.
    Tops(Tops),
    /// A user or group name, before the first entry that uses its number.
    IdName(IdName),
    /// Entries of one directory, or a part of them.
    Listing(Listing),
    /// The end of the walk.
    ListingEnd(ListingEnd),
    /// A failure to read something at the source.
    Problem(Problem),
    /// The reason why an entry of the source takes part or not, with `rulings` or `explain`; while
    /// it is listed.
    Ruling(Ruling),
    /// The source's request for further sums of a basis: weak ones, or those of shorter blocks
    /// where it found nothing. The destination answers with another [`ControlMessage::NeedDelta`]
    /// of the same attempt, and sums.
    Refine(Refine),
    /// The destination's request for a whole file.
    Need {
        /// The file.
        entry: EntryId,
        /// Number of earlier requests for the file.
        attempt: u8,
    },
    /// The destination's request for a delta; its sums follow in [`ControlMessage::Sums`].
    NeedDelta(NeedDelta),
    /// The destination's request for the part of a file beyond what it already has, as if that part
    /// were a file.
    NeedTail(NeedTail),
    /// The destination already has some segments of the file that the next request with this number
    /// and attempt names. It requests only the rest, unless the source's file has changed by now.
    Rest(Rest),
    /// A part of the signature announced by the last `NeedDelta` of this entry.
    Sums(Sums),
    /// Every file of one `Listing` message has arrived, failed or needs nothing, so the source may
    /// forget that listing. This is the source's credit: it keeps a bounded number of listed
    /// entries.
    ListingDone {
        /// Number of the `Listing` message, 0-based in the order sent. May arrive out of order.
        part: u64,
    },
    /// The end of requests: every requested file has arrived or failed.
    NeedsEnd,
    /// An event of one entry; destination to source if the source is the controller.
    Event(Event),
    /// The destination's progress; also its sign of life, at least once a second.
    Progress(Progress),
    /// The result; the destination's last message, sent after everything is durable.
    Report(Box<Report>),
    /// The path of an operand that the source does not have, with `delete_missing_args`: one name,
    /// or several with `relative`. The destination removes it. Before any listing.
    Missing(Vec<Name>),
    /// Lines of the list of paths to copy, which the destination has; before its requests.
    Names(Names),
    /// Entries that are on the destination's disk, with `remove_source_files`: the source may
    /// remove them.
    Landed(Vec<Landed>),
    /// Entries of `Landed` that the source has handled. A [`ControlMessage::Problem`] reported each
    /// one that it could not remove.
    Removed {
        /// Number of entries.
        entries: u64,
    },
    /// The path of an entry of `Landed` that the source has removed, with `event_removals`, before
    /// the [`ControlMessage::Removed`] that counts it.
    RemovedPath(Vec<u8>),
    /// A digest in the place of the next stretch of the listing, with the feature `SPANS`.
    Span(Span),
    /// The destination's answer to the oldest span that it has not answered.
    SpanAnswer(SpanAnswer),
    /// Pieces of the answer to the oldest unfinished span that are equal to the source's: they stand for
    /// the next stretch of the listing.
    Same(Same),
    /// The source's sign of life, at least once a second.
    Alive,
    /// The source has received the report; the link may be closed.
    Bye,
}

/// A message on a data lane.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum DataMessage {
    /// The first message on every data lane.
    LaneStart {
        /// Number of this lane, 0-based.
        lane: u8,
    },
    /// Several small files, each whole.
    Batch {
        /// Keyed BLAKE3 hash of the raw content. One hash covers all of it, because a small file
        /// alone fills no vector, and its hash may be longer than the file.
        value: [u8; 32],
        /// Raw content; see [`crate::codec::RecordsEncoder`].
        files: Packed,
    },
    /// Start of one segment of a file; tokens follow on this lane.
    Segment(Segment),
    /// Holes of the source's file in the segment that began; at most once, before its tokens. Where
    /// the tokens write anything but zeros, the tokens count.
    Holes(Vec<Range<u32>>),
    /// A piece of the segment's token stream: whole tokens in `dsync_delta::token` encoding.
    Tokens(Packed),
    /// The end of the segment.
    SegmentEnd {
        /// The segment's value under the session's key; `None` if the source could not read the
        /// segment to its end. A [`FileEnd`] with the reason follows.
        value: Option<[u8; 32]>,
    },
    /// The file's outcome; may overtake segments on other lanes.
    FileEnd(FileEnd),
    /// The end of the lane.
    LaneEnd,
}

/// The first message of each end on the control lane.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hello {
    /// Protocol version that this end speaks, agreed in the bootstrap.
    pub version: u16,
    /// Feature bits that this end understands.
    pub features: u64,
    /// This end's half of the session key, 32 random bytes. Both halves, hashed in the order
    /// controller, peer, key every strong sum and file root of the session.
    pub key_share: [u8; 32],
}

/// The controller's request to the peer.
#[derive(Debug, Clone, PartialEq)]
pub struct Start {
    /// The peer's role and its operands.
    pub role: PeerRole,
    /// The run's policy.
    pub options: SyncOptions,
    /// Number of data lanes that the controller opens, 1 to [`crate::limits::MAX_DATA_LANES`].
    pub data_lanes: u8,
    /// The age of the run, in whole milliseconds, if an earlier session of it broke: the destination of
    /// that one may still be running, and its backups are this run's.
    pub again: Option<Duration>,
    /// The place of the list of paths to copy.
    pub list: ListPlace,
}

/// The place of the list of paths to copy.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum ListPlace {
    /// There is none, or the peer needs not know it: the operands name what to copy.
    #[default]
    None,
    /// The controller, which is the destination, sends it in [`ControlMessage::Names`].
    Sent,
    /// A file at the peer. A peer that is the destination sends its lines.
    File {
        /// The file's path, as typed by the user.
        path: Vec<u8>,
        /// Whether its lines end with zero bytes.
        nul: bool,
    },
}

/// Lines of a list, or a part of them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Names {
    /// Whether this is the last part.
    pub last: bool,
    /// Paths below the source's only operand, of at most [`MAX_LINE`](crate::limits::MAX_LINE)
    /// bytes.
    pub lines: Vec<Vec<u8>>,
}

/// The peer's role with its operands, as typed by the user (relative to the peer's start
/// directory).
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
        /// The entries that it may receive, so that it can refuse all others.
        asked: Asked,
    },
}

/// The entries that the source's operands may put into the transfer's root.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Asked {
    /// Whether an operand stands for its contents (`dir/`, `.`), which may have any name.
    pub contents: bool,
    /// The names of the other operands' entries, one for each, in their order. `None` if they are
    /// more than [`MAX_ASKED`] or longer than [`MAX_ASKED_BYTES`]; then any name may arrive.
    pub names: Option<Vec<Name>>,
    /// With `relative`, instead of names: the operands' paths below the root. One that ends in a
    /// slash stands for what is in the directory. None where `names` is `None`.
    pub paths: Vec<Vec<u8>>,
}

impl Asked {
    /// Drops the names if there are too many to send.
    #[must_use]
    pub fn as_sent(mut self) -> Self {
        let bytes = |names: &Vec<Name>| names.iter().map(|name| name.as_bytes().len()).sum::<usize>();
        let fits = |names: &Vec<Name>| names.len() <= MAX_ASKED && bytes(names) <= MAX_ASKED_BYTES;
        let bytes = self.paths.iter().map(Vec::len).sum::<usize>();
        let short = self.paths.len() <= MAX_ASKED && bytes <= MAX_ASKED_BYTES;
        self.names = self.names.filter(fits).filter(|_| short);
        if self.names.is_none() {
            self.paths.clear();
        }
        self
    }
}

/// The reason why an end gives up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fatal {
    /// Exit code that the run should end with.
    pub exit_code: u8,
    /// An explanation for people; escape before printing.
    pub text: Vec<u8>,
    /// The kind of reason, for programs: only to an end that knows [reasons](crate::version::REASONS).
    pub reason: Option<Reason>,
}

/// The kind of reason for which an end gives up.
///
/// ```
/// use dsync_wire::message::Reason;
///
/// let reason = Reason::from_code(1).ok_or("no reason")?;
/// assert_eq!((reason, reason.code()), (Reason::NoSpace, 1));
/// # Ok::<(), &str>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "snake_case"))]
pub enum Reason {
    /// None of the others, or an end that does not say.
    #[default]
    Other,
    /// A disk is full, or a quota is used up.
    NoSpace,
    /// The system does not let the end read, write or list something, or act as a user.
    NoPermission,
    /// A filesystem is mounted read-only.
    ReadOnly,
    /// A source, the parent of a destination or a list does not exist.
    Missing,
    /// A source is empty, and the run would delete all that the destination has: its disk may not be mounted.
    EmptySource,
    /// The key or grant does not allow what the run asks for: the direction, a path or an option.
    NotGranted,
    /// A limit of the key or grant is reached.
    Limit,
    /// Another run is writing to the destination.
    Busy,
    /// A safety rule refuses the run: the two ends overlap, a link of another user is on the way, or a precious
    /// directory would lose its entries.
    Unsafe,
    /// The operands or options make no sense at that end.
    Invalid,
    /// The two ends speak different versions.
    Version,
    /// An end broke the protocol.
    Protocol,
    /// An end would have to hold more memory than it may.
    Memory,
    /// Nothing was heard from an end, or nothing was done, for too long.
    Timeout,
    /// The connection broke.
    Connection,
    /// Whoever runs an end cancelled.
    Cancelled,
    /// The system failed otherwise.
    System,
    /// A bug, or a panic in code of the program that embeds an end.
    Aborted,
}

impl Reason {
    /// Every reason, each at its [code](Self::code).
    pub const ALL: [Self; 19] = [
        Self::Other,
        Self::NoSpace,
        Self::NoPermission,
        Self::ReadOnly,
        Self::Missing,
        Self::EmptySource,
        Self::NotGranted,
        Self::Limit,
        Self::Busy,
        Self::Unsafe,
        Self::Invalid,
        Self::Version,
        Self::Protocol,
        Self::Memory,
        Self::Timeout,
        Self::Connection,
        Self::Cancelled,
        Self::System,
        Self::Aborted,
    ];

    /// Returns the reason of a number on the wire.
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.get(usize::from(code)).copied()
    }

    /// Returns the number on the wire.
    pub const fn code(self) -> u8 {
        self as u8
    }
}

/// The shape of the source's operands, which determines the meaning of the destination path.
#[derive(Debug, Clone, PartialEq)]
pub struct Tops {
    /// Attributes of the transfer's root directory, present if an operand ended in a slash (or was
    /// `.`): its contents, not itself, go into the destination. Entry 0 is always the root.
    pub root: Option<Attributes>,
    /// Number of entries directly below the root that the operands themselves name.
    pub named: u32,
    /// Whether there is one operand and it is not a directory. The destination may then name a
    /// file.
    pub single_file: bool,
}

/// A user or group name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdName {
    /// Whether this is a group.
    pub group: bool,
    /// Number at the source.
    pub id: u32,
    /// Name at the source.
    pub name: Vec<u8>,
}

/// Entries of one directory.
///
/// Directories arrive in depth-first order; a directory's own entry always precedes its listing.
/// Entries are in byte order of their names over all parts. Entry numbers are not sent: the root is
/// 0, and each listed entry takes the next number.
#[derive(Debug, Clone, PartialEq)]
pub struct Listing {
    /// The directory that holds these entries.
    pub dir: EntryId,
    /// Whether this is the last part.
    pub last: bool,
    /// Whether the directory was read to its end. If not, nothing in it may be deleted. Meaningful
    /// on the last part.
    pub complete: bool,
    /// Whether rules left out entries of this part: a directory without entries in its listing is not empty.
    pub left_out: bool,
    /// The entries of this part.
    pub entries: Vec<Entry>,
}

/// A stretch of the source's listing, in the place of its entries.
///
/// A stretch consists of items: entries, and ends of directories. It is told by its last item, so that
/// the destination can find the same stretch of its own tree without having heard what came before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Span {
    /// Number of its items, at most [`MAX_SPAN_ITEMS`](crate::limits::MAX_SPAN_ITEMS).
    pub items: u32,
    /// The path of its last item's directory, below the root. It is compared and never opened.
    pub directory: Vec<u8>,
    /// The name of its last item; `None` for the end of the directory.
    pub name: Option<Name>,
    /// Keyed BLAKE3 hash of the digests of its pieces.
    pub digest: Digest,
}

/// A keyed BLAKE3 hash, cut to 16 bytes.
pub type Digest = [u8; 16];

/// The result of comparing a span with the same stretch of the destination's tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SpanAnswer {
    /// The digests are equal.
    Equal,
    /// The digests of the destination's pieces, at most
    /// [`MAX_SPAN_PIECES`](crate::limits::MAX_SPAN_PIECES); none if it cannot tell. The source lists the
    /// other pieces.
    Pieces(Vec<Digest>),
    /// The destination has nothing from here on: the source lists the span, and should send no more.
    Nothing,
}

/// A run of pieces of a [`SpanAnswer::Pieces`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Same {
    /// Number of the first, counted from 0.
    pub first: u32,
    /// Number of pieces, at least one.
    pub count: u32,
}

/// One directory entry of the source.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// The entry's name.
    pub name: Name,
    /// The entry's type and the data specific to it.
    pub kind: EntryKind,
    /// The attributes preserved for every type.
    pub attributes: Attributes,
    /// The entry's place among several names, with `hard_links` only; never for a directory.
    pub hard_link: Option<HardLink>,
    /// Whether this is a directory that is only on the way to entries that operands name, with
    /// `relative` only.
    pub implied: bool,
}

/// One of several names of a listed inode: a hard link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HardLink {
    /// The first name in the listing.
    First,
    /// Another name of the entry with this number, which was listed as [`HardLink::First`].
    To(EntryId),
}

/// Attributes that every type of entry has.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Attributes {
    /// Permission bits, 0 to 0o7777.
    pub mode: u16,
    /// Modification time.
    pub mtime: Timestamp,
    /// Access time, with `atimes` only, and never of a directory.
    pub atime: Option<Timestamp>,
    /// Owner's number; 0 if the run does not preserve owners.
    pub uid: u32,
    /// Group's number; 0 if the run does not preserve groups.
    pub gid: u32,
    /// Access control lists and extended attributes, as far as the run copies them. `None` if it
    /// copies neither, or if they could not be read; the destination's then stay as they are.
    pub extended: Option<Arc<Extended>>,
}

/// The access control lists and extended attributes of one entry.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Extended {
    /// The access list; `None` if the permission bits express all of it.
    pub access: Option<Acl>,
    /// The default list of a directory, which its new entries inherit.
    pub default: Option<Acl>,
    /// Extended attributes in strictly ascending order of their names.
    pub xattrs: Vec<Xattr>,
}

/// A POSIX access control list. Permissions are bits: 4 read, 2 write, 1 execute. Numbers are those
/// of the source.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Acl {
    /// The owner's permissions.
    pub user: u8,
    /// The owning group's permissions.
    pub group: u8,
    /// The upper limit for groups and named users.
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
    /// Name with its name space (`user.comment`), 1 to 255 bytes without NUL.
    pub name: Vec<u8>,
    /// Value, at most [`MAX_XATTR_VALUE`](crate::limits::MAX_XATTR_VALUE) bytes.
    pub value: Vec<u8>,
}

/// A point in time as filesystems keep it.
///
/// ```
/// use dsync_wire::message::Timestamp;
///
/// // Two files, of which the second was changed a nanosecond later.
/// let (old, new) =
///     (Timestamp { seconds: 0, nanoseconds: 0 }, Timestamp { seconds: 0, nanoseconds: 1 });
/// assert!(old < new && new.is_valid());
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Timestamp {
    /// Seconds since 1970-01-01 UTC; negative before it.
    pub seconds: i64,
    /// Nanoseconds, 0 to 999,999,999.
    pub nanoseconds: u32,
}

impl Timestamp {
    /// Returns whether the wire can express the timestamp: its nanoseconds are below a second. Of the
    /// seconds it carries all: some filesystems keep any number.
    pub fn is_valid(self) -> bool {
        self.nanoseconds < 1_000_000_000
    }
}

/// The type of an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum EntryKind {
    /// A regular file.
    File {
        /// Length in bytes, at most `i64::MAX`.
        size: u64,
        /// Unkeyed BLAKE3 hash of the content, with `checksum` only.
        content: Option<[u8; 32]>,
    },
    /// A directory; its listing follows when the run is recursive.
    Directory,
    /// A symbolic link.
    Symlink {
        /// Link target as text, 1 to 4095 bytes, never resolved; empty if the run does not copy
        /// links.
        target: Vec<u8>,
    },
    /// A named pipe.
    Fifo,
    /// A socket.
    Socket,
    /// A character device.
    CharDevice {
        /// Device number; 0, 0 if the run does not copy devices.
        device: DeviceNumber,
    },
    /// A block device.
    BlockDevice {
        /// Device number; 0, 0 if the run does not copy devices.
        device: DeviceNumber,
    },
    /// An entry that the source has and leaves out, of any type, with `names_hidden` only. It has a
    /// name and nothing else.
    Hidden,
}

/// A device's number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DeviceNumber {
    /// Major number.
    pub major: u32,
    /// Minor number.
    pub minor: u32,
}

/// Number of an entry in the source's listing. The root is 0; the others follow in the order of
/// listing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct EntryId(pub u64);

/// Totals of the walk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ListingEnd {
    /// Entries listed, including the root if it was announced.
    pub entries: u64,
    /// Sum of the sizes of listed regular files and symlink texts, in bytes.
    pub bytes: u64,
}

/// A request for a delta.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NeedDelta {
    /// The file.
    pub entry: EntryId,
    /// Number of earlier requests for the file.
    pub attempt: u8,
    /// Length of the basis in bytes.
    pub basis_len: u64,
    /// Block length of the signature.
    pub block_len: BlockLen,
    /// The sums that follow: strong ones included at first, in a further round as requested.
    pub format: SumsFormat,
    /// The key of all sums and of all segments' values of this attempt; `None` for the session's. With
    /// [`FILE_KEYS`](crate::version::FILE_KEYS) only, and never in a further round.
    pub key: Option<FileKey>,
}

/// The key of one file's sums and values. `Debug` does not show it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct FileKey(pub [u8; 32]);

impl fmt::Debug for FileKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FileKey(..)")
    }
}

/// A request for the end of a file.
///
/// The source answers as if the file began there: lengths and offsets in the segments count from
/// it. A file that is not longer, or begins differently, is not sent; its outcome has the reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NeedTail {
    /// The file.
    pub entry: EntryId,
    /// Number of earlier requests for the file.
    pub attempt: u8,
    /// Number of bytes that the destination has, at least 1.
    pub from: u64,
    /// Their unkeyed BLAKE3 hash, if they are to be compared.
    pub content: Option<[u8; 32]>,
}

/// A request for further sums of a basis.
///
/// Weak sums only: of all blocks, which were sent without them; before any request for shorter
/// blocks. Both sums: of the shorter blocks in some runs, where the basis is dirty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refine {
    /// The file.
    pub entry: EntryId,
    /// The attempt of the request that was searched.
    pub attempt: u8,
    /// The block length of the sums.
    pub block_len: BlockLen,
    /// The requested sums; never strong ones only.
    pub format: SumsFormat,
    /// Runs of the long blocks, in `dsync_delta` encoding, at most [`crate::limits::MAX_SUMS`]
    /// bytes; empty for weak sums.
    pub runs: Vec<u8>,
}

/// A part of a signature: the sums of consecutive blocks, from the first block on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sums {
    /// The file.
    pub entry: EntryId,
    /// Sums in `dsync_delta` encoding; whole blocks only.
    pub bytes: Vec<u8>,
    /// Whether this is the last part.
    pub last: bool,
}

/// The state of a file's content and attributes when it was opened, which only the source can
/// interpret. Equal states mean that the file was not touched in between.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FileState(pub [u8; 16]);

/// An entry at the destination that will survive a power cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Landed {
    /// The entry; never a directory.
    pub entry: EntryId,
    /// The state of the destination's file if it existed before the run. If it equals the state of
    /// the source's entry, both are the same file, and the source keeps it.
    pub stood: Option<FileState>,
}

/// The segments that the destination still needs of a file that it has in part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rest {
    /// The file.
    pub entry: EntryId,
    /// The attempt of the request that follows.
    pub attempt: u8,
    /// The state of the file when the part was sent. If the file has another state, all of it is
    /// sent.
    pub state: FileState,
    /// Log2 of the segment length of this division.
    pub length_log2: u8,
    /// Runs of requested segments, ascending and apart, at least 1 and at most
    /// [`crate::limits::MAX_REST_RUNS`].
    pub runs: Vec<Range<u64>>,
}

/// The header of one segment.
///
/// Segments cut a file into pieces of `2^length_log2` bytes; each may be sent on another lane. The
/// tokens tile `[index * length - lead, end)` with `end >= min((index + 1) * length, file_len)`.
/// The destination ignores whatever lies outside the segment. So a match that straddles a border is
/// two copies, not literals, and no token needs a byte offset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segment {
    /// The file.
    pub entry: EntryId,
    /// The attempt of the request that this answers. Tokens of an older request are void.
    pub attempt: u8,
    /// The state of the file, equal in all its segments.
    pub state: FileState,
    /// Length of the new file, equal in all its segments.
    pub file_len: u64,
    /// Log2 of the segment length, equal in all segments of a file.
    pub length_log2: u8,
    /// Index of this segment, 0-based.
    pub index: u64,
    /// Number of bytes before the segment's start at which the tokens begin, less than the block
    /// length.
    pub lead: u32,
}

/// The outcome of one file that was sent in segments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileEnd {
    /// The file.
    pub entry: EntryId,
    /// The attempt, as in its segments.
    pub attempt: u8,
    /// The file's modification time if it did not change while it was read; otherwise why it could
    /// not be read in one consistent state.
    pub outcome: Result<Timestamp, Cause>,
}

/// One file of a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// The file.
    pub entry: EntryId,
    /// The attempt, as in [`Segment::attempt`].
    pub attempt: u8,
    /// The outcome, as in [`FileEnd::outcome`].
    pub outcome: Result<Timestamp, Cause>,
    /// The content; empty if the file failed.
    pub content: Bytes,
}
