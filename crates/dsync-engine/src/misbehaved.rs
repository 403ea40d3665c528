//! Ways in which a peer breaks the protocol: one variant for each law, with the numbers that show
//! the breach.
//!
//! A message that does not even decode is an error of the crate that decodes it. A message that
//! decodes but makes no sense breaks one of this engine's own laws. `docs/wire.md` states them.

pub use dsync_delta::{
    AddWeakError, ApplyError, DecodeError as TokenError, RefineError, SegmentError, SumsError,
};
pub use dsync_fs::InvalidComponent;
pub use dsync_wire::{
    compress::{Codec, UnpackError},
    error::DecodeError,
    kind::Kind,
    message::EntryId,
    name::InvalidName,
};

use crate::SyncError;

/// A breach of the protocol by the peer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PeerMisbehaved {
    /// A message, or a record of a batch, that does not decode.
    #[error(transparent)]
    Undecodable(#[from] DecodeError),
    /// A frame that does not unpack.
    #[error(transparent)]
    Unpackable(#[from] UnpackError),
    /// A file cut into segments as no file is.
    #[error(transparent)]
    BadSegments(#[from] SegmentError),
    /// Tokens that rebuild no segment.
    #[error(transparent)]
    BadDelta(#[from] ApplyError),
    /// Sums that are no signature.
    #[error(transparent)]
    BadSums(#[from] SumsError),
    /// Weak sums that do not complete the signature.
    #[error(transparent)]
    BadWeakSums(#[from] AddWeakError),
    /// A request for finer sums that no signature answers.
    #[error(transparent)]
    BadRefinement(#[from] RefineError),
    /// A name that no entry can have.
    #[error(transparent)]
    BadName(#[from] InvalidComponent),

    /// Another version than the one agreed in the bootstrap.
    #[error("peer speaks version {theirs}, agreed was {agreed}")]
    OtherVersion {
        /// The version of its hello.
        theirs: u16,
        /// The version that both chose.
        agreed: u16,
    },
    /// A message that has no place at this point of the session.
    #[error("unexpected message {name}")]
    UnexpectedMessage {
        /// The message's name in `docs/wire.md`.
        name: &'static str,
    },

    /// A listing before the operands that it belongs to, or none at all.
    #[error("listing without operands")]
    NoOperands,
    /// An entry below something that is no directory.
    #[error("parent {} is not a directory", .parent.0)]
    NoSuchParent {
        /// The directory that the entry names.
        parent: EntryId,
    },
    /// A directory's names out of order, or one of them twice.
    #[error("entry {}: names are not in order", .entry.0)]
    NamesOutOfOrder {
        /// The entry that should have come before.
        entry: EntryId,
    },
    /// More than one file for a destination that is the name of one.
    #[error("entry {}: not a single file", .entry.0)]
    NotASingleFile {
        /// The entry too many.
        entry: EntryId,
    },
    /// A hard link to an entry that heads no group of its kind.
    #[error("entry {}: no name of entry {}", .entry.0, .first.0)]
    NoSuchGroup {
        /// The link.
        entry: EntryId,
        /// The entry that it names as the first of its group.
        first: EntryId,
    },
    /// More names of users and groups than a session takes.
    #[error("the source names more than {most} users and groups")]
    TooManyOwners {
        /// The most that are taken.
        most: usize,
    },
    /// Entries sent without credit for them.
    #[error("the source is {entries} entries ahead of its credit")]
    BeyondCredit {
        /// Entries listed and not yet checked.
        entries: u64,
    },
    /// Messages sent faster than the destination allows.
    #[error("the source is {messages} messages ahead of the destination")]
    BeyondQueue {
        /// Messages that wait.
        messages: usize,
    },

    /// A span too many, a listing that is longer than its span, or pieces that no answer had.
    #[error("spans and listings do not fit each other")]
    SpanOutOfPlace,
    /// An answer to a span that was never sent.
    #[error("an answer to no span")]
    UnaskedAnswer,

    /// A message about a number that no entry has.
    #[error("entry id {} out of range", .entry.0)]
    OutOfRange {
        /// The number.
        entry: EntryId,
    },
    /// A segment for an attempt that was not asked for.
    #[error("entry {}: attempt not asked for", .entry.0)]
    UnaskedAttempt {
        /// The file.
        entry: EntryId,
    },
    /// Segments of one file that differ in its length, state or division.
    #[error("entry {}: segments disagree on the file", .entry.0)]
    SegmentsDisagree {
        /// The file.
        entry: EntryId,
    },
    /// A segment sent a second time.
    #[error("entry {}: segment {index} came twice", .entry.0)]
    SegmentTwice {
        /// The file.
        entry: EntryId,
        /// The segment's index.
        index: u64,
    },
    /// A data lane closed without its last message.
    #[error("a data lane ended without its last message")]
    LaneCutShort,
    /// No data lane left while files are in flight.
    #[error("the last data lane ended before all files came")]
    LanesEndedEarly,

    /// A task in parts that are longer than any task.
    #[error("a Start of {size} bytes or more")]
    LongStart {
        /// The bytes so far.
        size: usize,
    },

    /// More requests for finer sums than files in flight.
    #[error("more refinements than requests")]
    TooManyRefinements,
    /// Finer sums asked for a file without a basis.
    #[error("entry {}: nothing to refine", .entry.0)]
    NothingToRefine {
        /// The file.
        entry: EntryId,
    },
    /// Finer sums asked for again, or after the rounds were over.
    #[error("entry {}: asked for sums twice or too late", .entry.0)]
    RefinedTooLate {
        /// The file.
        entry: EntryId,
    },

    /// A request for an entry that was never listed.
    #[error("request for entry {}, which is not listed", .entry.0)]
    NotListed {
        /// The number.
        entry: EntryId,
    },
    /// A request that is not the file's next one.
    #[error("entry {}: attempt {attempt} is not its next request", .entry.0)]
    NotNextRequest {
        /// The file.
        entry: EntryId,
        /// The attempt asked for.
        attempt: u8,
    },
    /// More requests than listed entries.
    #[error("more requests than there are entries")]
    TooManyRequests,
    /// More partial files announced than requests follow.
    #[error("too many rests without a request")]
    TooManyRests,
    /// A part of the listing released twice, or one that was never sent.
    #[error("listing {part} released twice or never sent")]
    BadRelease {
        /// The part's number.
        part: u64,
    },
    /// Sums of another layout or format than the source asked for.
    #[error("entry {}: not the sums that were asked for", .entry.0)]
    OtherSums {
        /// The file.
        entry: EntryId,
    },
    /// Sums before the request that announces them.
    #[error("sums for entry {}, which has no request", .entry.0)]
    UnaskedSums {
        /// The file.
        entry: EntryId,
    },
    /// Source files to be removed in a run that removes none.
    #[error("asked to remove what is to stay")]
    UnaskedRemoval,
    /// A source entry to be removed that is no listed file.
    #[error("entry {} landed, which is no listed file", .entry.0)]
    LandedUnlisted {
        /// The number.
        entry: EntryId,
    },
}

/// Returns the error of a run that a breach ends.
pub(crate) fn misbehaved(breach: impl Into<PeerMisbehaved>) -> SyncError {
    SyncError::PeerMisbehaved(breach.into())
}
