//! What can be wrong with what a peer sent, or with what this end was asked to send.
//!
//! Every sentence is for people: it names the message, the place and the rule. Names from the peer are
//! escaped and cut here, so an error can be printed as it is. Offsets count bytes of the lane from its
//! start; inside compressed content they count from the start of that content.

use std::fmt;

use crate::{compress::UnpackError, kind::Kind, message::EntryId, name::InvalidName, state::State};

/// What a peer did that the protocol forbids. Always the peer's fault (or of a carrier that broke its
/// law), never worth a retry.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// A frame declares more than a frame may hold.
    #[error("frame of {len} bytes exceeds the limit {limit} (type {kind}, offset {offset})")]
    FrameTooLong {
        /// Declared length of kind byte and payload.
        len: u64,
        /// The limit, [`crate::limits::MAX_FRAME`].
        limit: u32,
        /// The kind byte that followed.
        kind: Kind,
        /// Where the frame begins in the lane.
        offset: u64,
    },
    /// A frame has not even a kind byte.
    #[error("frame without content at offset {offset}")]
    FrameEmpty {
        /// Where the frame begins in the lane.
        offset: u64,
    },
    /// The lane ended inside a frame.
    #[error("connection ended inside a frame (got {got} of {expected} bytes)")]
    Truncated {
        /// Bytes of the frame that arrived, its length field included.
        got: u64,
        /// Bytes that the frame has as far as is known: 4 while its length is not complete.
        expected: u64,
    },
    /// A frame's kind byte names no message of its lane.
    #[error("unexpected message {kind} on a {lane} lane (offset {offset})")]
    UnknownKind {
        /// The kind byte.
        kind: Kind,
        /// `control` or `data`.
        lane: &'static str,
        /// Where the frame begins in the lane.
        offset: u64,
    },
    /// A known message came when it may not.
    #[error("unexpected message {kind} while in state '{state}'")]
    Unexpected {
        /// The message.
        kind: Kind,
        /// What this end was waiting for.
        state: State,
    },
    /// A message ends before its last field.
    #[error("message {kind} ends inside its {field} (offset {offset})")]
    Short {
        /// The message.
        kind: Kind,
        /// The field that is not whole.
        field: &'static str,
        /// Where the field begins.
        offset: u64,
    },
    /// A message goes on after its last field.
    #[error("{count} unread bytes after message {kind}")]
    Trailing {
        /// Bytes that belong to no field.
        count: u64,
        /// The message.
        kind: Kind,
    },
    /// An integer is longer than its shortest form, or does not fit its type.
    #[error("malformed integer at offset {offset} (message {kind})")]
    Integer {
        /// The message.
        kind: Kind,
        /// Where the integer begins.
        offset: u64,
    },
    /// A number or a length is beyond its limit.
    #[error("message {kind}: {field} {value} exceeds the limit {limit} (offset {offset})")]
    Limit {
        /// The message.
        kind: Kind,
        /// What the number counts.
        field: &'static str,
        /// What the peer declared.
        value: u64,
        /// What is allowed.
        limit: u64,
        /// Where the field begins.
        offset: u64,
    },
    /// A field has a value that this version gives no meaning, such as an unknown flag.
    #[error("message {kind}: {field} has no meaning for value {value} (offset {offset})")]
    Value {
        /// The message.
        kind: Kind,
        /// The field.
        field: &'static str,
        /// What the peer sent.
        value: u64,
        /// Where the field begins.
        offset: u64,
    },
    /// The options of a run are not what this version understands.
    #[error("message Start: its options are not understood: {detail} (offset {offset})")]
    Options {
        /// What is wrong with them, escaped when shown; it may quote the peer.
        detail: PeerText,
        /// Where they begin.
        offset: u64,
    },
    /// A name is not a single component.
    #[error("peer sent an invalid name '{name}'; session ended")]
    Name {
        /// The name, escaped when shown.
        name: PeerText,
        /// Which rule it breaks.
        #[source]
        source: InvalidName,
    },
    /// A listing's names are not in strictly ascending order: one is repeated or out of place.
    #[error("entry {entry}: its name '{name}' repeats or precedes the name before it")]
    NameOrder {
        /// The entry: its number in the run, or within the message while that is all that is known.
        entry: EntryId,
        /// The name, escaped when shown.
        name: PeerText,
    },
    /// A timestamp is not a point in time.
    #[error("entry {entry}: invalid timestamp")]
    Timestamp {
        /// The entry: its number within the message, or in the run where the message names it.
        entry: EntryId,
    },
    /// Permission bits have unknown bits.
    #[error("entry {entry}: invalid mode {mode:#o}")]
    Mode {
        /// The entry: its number within the message.
        entry: EntryId,
        /// What the peer sent.
        mode: u64,
    },
    /// A listing belongs to an entry that is no directory, is listed already, or is out of turn.
    #[error("entry {entry}: parent {parent} is not a directory that is due to be listed")]
    Parent {
        /// Number of the first entry of the listing.
        entry: EntryId,
        /// The entry whose listing it claims to be.
        parent: EntryId,
    },
    /// A message refers to an entry that does not exist.
    #[error("entry id {entry} out of range 0..{end}")]
    EntryRange {
        /// What the peer sent.
        entry: EntryId,
        /// One more than the last entry.
        end: u64,
    },
    /// A directory lies deeper than the limit.
    #[error("depth {depth} exceeds the limit {limit}")]
    Depth {
        /// Depth of the directory below the root.
        depth: u64,
        /// The limit, [`crate::limits::MAX_PATH_DEPTH`].
        limit: u64,
    },
    /// The totals at the end of a listing are not those of what was listed.
    #[error("listing: got {got} {unit}, {declared} declared")]
    ListingTotals {
        /// What arrived.
        got: u64,
        /// What the peer says that it sent.
        declared: u64,
        /// `entries` or `bytes`.
        unit: &'static str,
    },
    /// A copy reaches beyond the basis.
    #[error("copy range {offset}+{len} exceeds basis size {basis_len}")]
    CopyRange {
        /// First byte of the copy.
        offset: u64,
        /// Its length in bytes.
        len: u64,
        /// Length of the basis in bytes.
        basis_len: u64,
    },
    /// A signature is announced with a block length that does not exist.
    #[error("invalid signature header: block length {block_len}")]
    BlockLen {
        /// What the peer sent.
        block_len: u64,
    },
    /// A segment does not lie in its file.
    #[error("file {entry}: segment {index} of 2^{length_log2} bytes lies outside a file of {file_len} bytes")]
    SegmentRange {
        /// The file.
        entry: EntryId,
        /// Position of the segment.
        index: u64,
        /// Log2 of the segment length.
        length_log2: u8,
        /// Length of the file in bytes.
        file_len: u64,
    },
    /// A file's parts do not add up to its length.
    #[error("file {entry}: got {got} bytes, {declared} declared")]
    FileLength {
        /// The file.
        entry: EntryId,
        /// Bytes that arrived.
        got: u64,
        /// Bytes that were declared.
        declared: u64,
    },
    /// Sums came for a signature that was not announced or is complete.
    #[error("entry {entry}: sums without a signature that waits for them")]
    Sums {
        /// The file.
        entry: EntryId,
    },
    /// A file was asked for again while the sums of its signature are still due.
    #[error("entry {entry}: asked for again before its sums are complete")]
    Asked {
        /// The file.
        entry: EntryId,
    },
    /// A compressed piece is not what its header says.
    #[error("message {kind}: invalid compressed content")]
    Packed {
        /// The message.
        kind: Kind,
        /// What is wrong with it.
        #[source]
        source: UnpackError,
    },
}

impl DecodeError {
    /// The message that was wrong, where one is known.
    pub fn kind(&self) -> Option<Kind> {
        match self {
            Self::FrameTooLong { kind, .. }
            | Self::UnknownKind { kind, .. }
            | Self::Unexpected { kind, .. }
            | Self::Short { kind, .. }
            | Self::Trailing { kind, .. }
            | Self::Integer { kind, .. }
            | Self::Limit { kind, .. }
            | Self::Value { kind, .. }
            | Self::Packed { kind, .. } => Some(*kind),
            Self::Options { .. } => Some(Kind::START),
            _ => None,
        }
    }
}

/// What this end was asked to send and the protocol does not allow. The caller's fault.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EncodeError {
    /// A number or a length is beyond its limit.
    #[error("message {kind}: {field} {value} exceeds the limit {limit}")]
    Limit {
        /// The message.
        kind: Kind,
        /// What the number counts.
        field: &'static str,
        /// What was to be sent.
        value: u64,
        /// What is allowed.
        limit: u64,
    },
    /// A field has a value that the protocol cannot express.
    #[error("message {kind}: {field} cannot be sent")]
    Value {
        /// The message.
        kind: Kind,
        /// The field.
        field: &'static str,
    },
}

/// Bytes that a peer sent, cut to a bounded length; shown with everything but printable ASCII escaped.
#[derive(Clone, PartialEq, Eq)]
pub struct PeerText(Box<[u8]>);

impl PeerText {
    /// Bytes that are kept.
    const MAX: usize = 256;

    /// Keeps the first 256 bytes.
    pub fn new(bytes: &[u8]) -> Self {
        Self(bytes[..bytes.len().min(Self::MAX)].into())
    }

    /// The bytes that were kept; escape them before printing.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Display for PeerText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.escape_ascii().fmt(f)
    }
}

impl fmt::Debug for PeerText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{self}\"")
    }
}

impl fmt::Display for EntryId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
