//! Errors in a peer's messages, and in the messages that this end is asked to send.
//!
//! Every sentence is for people: it names the message, the place and the rule. Names from the peer
//! are escaped and cut here, so an error can be printed as it is. Offsets count bytes of the lane
//! from its start; inside compressed content they count from the start of that content.

use std::fmt::{self, Write as _};

use crate::{
    compress::UnpackError, kind::Kind, message::EntryId, name::InvalidName, state::State,
    unprintable::is_unprintable,
};

/// A violation of the protocol by the peer, or by a carrier that broke its law. Never worth a
/// retry.
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
        /// The kind byte that followed it.
        kind: Kind,
        /// Offset of the frame in the lane.
        offset: u64,
    },
    /// A frame lacks even a kind byte.
    #[error("frame without content at offset {offset}")]
    FrameEmpty {
        /// Offset of the frame in the lane.
        offset: u64,
    },
    /// The lane ended inside a frame.
    #[error("connection ended inside a frame (got {got} of {expected} bytes)")]
    Truncated {
        /// Bytes of the frame that arrived, including its length field.
        got: u64,
        /// Bytes in the frame as far as known: 4 until its length is complete.
        expected: u64,
    },
    /// A frame's kind byte names no message of its lane.
    #[error("unexpected message {kind} on a {lane} lane (offset {offset})")]
    UnknownKind {
        /// The kind byte.
        kind: Kind,
        /// `control` or `data`.
        lane: &'static str,
        /// Offset of the frame in the lane.
        offset: u64,
    },
    /// A known message arrived in a state that does not allow it.
    #[error("unexpected message {kind} while in state '{state}'")]
    Unexpected {
        /// The message.
        kind: Kind,
        /// State of this end: what it was waiting for.
        state: State,
    },
    /// A message ends before its last field.
    #[error("message {kind} ends inside its {field} (offset {offset})")]
    Short {
        /// The message.
        kind: Kind,
        /// The incomplete field.
        field: &'static str,
        /// Offset of the field.
        offset: u64,
    },
    /// A message continues after its last field.
    #[error("{count} unread bytes after message {kind}")]
    Trailing {
        /// Number of bytes that belong to no field.
        count: u64,
        /// The message.
        kind: Kind,
    },
    /// An integer is not in its shortest form or does not fit its type.
    #[error("malformed integer at offset {offset} (message {kind})")]
    Integer {
        /// The message.
        kind: Kind,
        /// Offset of the integer.
        offset: u64,
    },
    /// A number or a length is beyond its limit.
    #[error("message {kind}: {field} {value} exceeds the limit {limit} (offset {offset})")]
    Limit {
        /// The message.
        kind: Kind,
        /// Name of the number's field.
        field: &'static str,
        /// Value that the peer declared.
        value: u64,
        /// Largest allowed value.
        limit: u64,
        /// Offset of the field.
        offset: u64,
    },
    /// A field has a value without a meaning in this version, such as an unknown flag.
    #[error("message {kind}: {field} has no meaning for value {value} (offset {offset})")]
    Value {
        /// The message.
        kind: Kind,
        /// The field.
        field: &'static str,
        /// Value that the peer sent.
        value: u64,
        /// Offset of the field.
        offset: u64,
    },
    /// This version does not understand the options of a run.
    #[error("message Start: its options are not understood: {detail} (offset {offset})")]
    Options {
        /// The reason, escaped when shown; it may quote the peer.
        detail: PeerText,
        /// Offset of the options.
        offset: u64,
    },
    /// A name is not a single component.
    #[error("peer sent an invalid name '{name}'; session ended")]
    Name {
        /// The name, escaped when shown.
        name: PeerText,
        /// The rule that it breaks.
        #[source]
        source: InvalidName,
    },
    /// A listing's names do not ascend strictly: one is repeated or out of place.
    #[error("entry {entry}: its name '{name}' repeats or precedes the name before it")]
    NameOrder {
        /// The entry: its number in the run, or in the message if no more is known.
        entry: EntryId,
        /// The name, escaped when shown.
        name: PeerText,
    },
    /// A timestamp is not a point in time.
    #[error("entry {entry}: invalid timestamp")]
    Timestamp {
        /// The entry: its number in the message, or in the run if the message names it.
        entry: EntryId,
    },
    /// A mode has unknown bits.
    #[error("entry {entry}: invalid mode {mode:#o}")]
    Mode {
        /// The entry: its number in the message.
        entry: EntryId,
        /// Mode that the peer sent.
        mode: u64,
    },
    /// A listing belongs to an entry that is not a directory, is already listed, or is out of turn.
    #[error("entry {entry}: parent {parent} is not a directory that is due to be listed")]
    Parent {
        /// Number of the first entry of the listing.
        entry: EntryId,
        /// The entry that the listing claims to belong to.
        parent: EntryId,
    },
    /// A message refers to an entry that does not exist.
    #[error("entry id {entry} out of range 0..{end}")]
    EntryRange {
        /// Entry number that the peer sent.
        entry: EntryId,
        /// Number of the last entry plus one.
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
    /// The totals at the end of a listing differ from those of the entries that arrived.
    #[error("listing: got {got} {unit}, {declared} declared")]
    ListingTotals {
        /// Total that arrived.
        got: u64,
        /// Total that the peer declared.
        declared: u64,
        /// `entries` or `bytes`.
        unit: &'static str,
    },
    /// A copy reaches beyond the basis.
    #[error("copy range {offset}+{len} exceeds basis size {basis_len}")]
    CopyRange {
        /// First byte of the copy.
        offset: u64,
        /// Length of the copy in bytes.
        len: u64,
        /// Length of the basis in bytes.
        basis_len: u64,
    },
    /// A signature is announced with an invalid block length.
    #[error("invalid signature header: block length {block_len}")]
    BlockLen {
        /// Block length that the peer sent.
        block_len: u64,
    },
    /// A segment does not lie in its file.
    #[error("file {entry}: segment {index} of 2^{length_log2} bytes lies outside a file of {file_len} bytes")]
    SegmentRange {
        /// The file.
        entry: EntryId,
        /// Index of the segment.
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
        /// Number of bytes that arrived.
        got: u64,
        /// Number of bytes that were declared.
        declared: u64,
    },
    /// Sums arrived for a signature that was not announced or is already complete.
    #[error("entry {entry}: sums without a signature that waits for them")]
    Sums {
        /// The file.
        entry: EntryId,
    },
    /// A file was requested again before the sums of its signature were complete.
    #[error("entry {entry}: asked for again before its sums are complete")]
    Asked {
        /// The file.
        entry: EntryId,
    },
    /// A compressed piece does not match its header.
    #[error("message {kind}: invalid compressed content")]
    Packed {
        /// The message.
        kind: Kind,
        /// The reason.
        #[source]
        source: UnpackError,
    },
}

impl DecodeError {
    /// Returns the faulty message, if known.
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

/// A message that this end was asked to send although the protocol does not allow it. The caller's
/// fault.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EncodeError {
    /// A number or a length is beyond its limit.
    #[error("message {kind}: {field} {value} exceeds the limit {limit}")]
    Limit {
        /// The message.
        kind: Kind,
        /// Name of the number's field.
        field: &'static str,
        /// Value to send.
        value: u64,
        /// Largest allowed value.
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

/// Bytes from a peer, cut to a bounded length; what is not UTF-8 or [`is_unprintable`] is escaped
/// when shown.
#[derive(Clone, PartialEq, Eq)]
pub struct PeerText(Box<[u8]>);

impl PeerText {
    /// Most bytes kept.
    const MAX: usize = 256;

    /// Keeps the first 256 bytes.
    pub fn new(bytes: &[u8]) -> Self {
        Self(bytes[..bytes.len().min(Self::MAX)].into())
    }

    /// Returns the kept bytes; escape them before printing.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Display for PeerText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for chunk in self.0.utf8_chunks() {
            for letter in chunk.valid().chars() {
                match u8::try_from(letter) {
                    _ if !is_unprintable(letter) => f.write_char(letter)?,
                    Ok(byte @ ..0x80) => byte.escape_ascii().fmt(f)?,
                    _ => letter.escape_default().fmt(f)?,
                }
            }
            chunk.invalid().escape_ascii().fmt(f)?;
        }
        Ok(())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_a_peer_is_shown_as_people_write_it_and_never_raw() {
        let shown = |bytes: &[u8]| PeerText::new(bytes).to_string();
        assert_eq!(shown("share 'größe' is gone".as_bytes()), "share 'größe' is gone");
        assert_eq!(shown(b"a\x1b[31mb\nc\xff\xc3"), "a\\x1b[31mb\\nc\\xff\\xc3");
        assert_eq!(shown("x\u{202e}y\u{200b}".as_bytes()), "x\\u{202e}y\\u{200b}");
        assert_eq!(shown(&[b'a'; 1000]).len(), 256);
    }
}
