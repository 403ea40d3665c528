//! The reasons why a stream cannot be read, written or applied.

use std::io;

use crate::token::DecodeError;

/// The reason why bytes are not a signature or a delta, or a delta not one for this basis.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FormatError {
    /// The bytes begin like neither a signature nor a delta.
    #[error("neither a signature nor a delta")]
    Foreign,
    /// A delta where a signature is expected.
    #[error("a delta, not a signature")]
    NotASignature,
    /// A signature where a delta is expected.
    #[error("a signature, not a delta")]
    NotADelta,
    /// A version that this crate does not read.
    #[error("format version {version}, this program reads version {supported}")]
    Version {
        /// The version found.
        version: u16,
        /// The version that this crate reads.
        supported: u16,
    },
    /// A parameter of the header that this version does not define.
    #[error("header with an undefined parameter")]
    Parameter,
    /// The bytes end too early.
    #[error("truncated after {len} bytes")]
    Truncated {
        /// Number of bytes found.
        len: u64,
    },
    /// A checksum is wrong.
    #[error("damaged in the {len} bytes from {offset} on")]
    Damaged {
        /// Offset of the header, frame or end whose checksum is wrong.
        offset: u64,
        /// Its length in bytes.
        len: u64,
    },
    /// A frame is longer than the format allows.
    #[error("frame of {len} bytes at {offset}")]
    FrameLength {
        /// Offset of the frame.
        offset: u64,
        /// Length of its payload in bytes.
        len: u32,
    },
    /// Bytes follow the end.
    #[error("bytes follow the end at {offset}")]
    Trailing {
        /// Offset of the first of them.
        offset: u64,
    },
    /// A signature has more blocks than the reader accepts.
    #[error("signature of more than {max} blocks")]
    TooManyBlocks {
        /// The limit.
        max: u64,
    },
    /// The number of sums does not fit the length of the basis.
    #[error("{blocks} sums for a basis of {basis_len} bytes")]
    BlockCount {
        /// Number of blocks with sums.
        blocks: u64,
        /// Length of the basis in bytes.
        basis_len: u64,
    },
    /// A payload of a signature ends inside a sum.
    #[error("frame ends inside a sum")]
    PartialSum,
    /// A payload of a delta is malformed.
    #[error("malformed token")]
    Token(#[source] DecodeError),
    /// A copy of blocks behind the last one.
    #[error("copy of {count} blocks from block {first} on, but the basis has {blocks}")]
    CopyPastBasis {
        /// First block.
        first: u64,
        /// Number of blocks.
        count: u64,
        /// Number of blocks in the basis.
        blocks: u64,
    },
    /// The delta was made for a basis of another length.
    #[error("basis of {found} bytes, the delta is for one of {expected}")]
    BasisLength {
        /// Length of the basis in the delta, in bytes.
        expected: u64,
        /// Length of the basis found, in bytes.
        found: u64,
    },
    /// The new file is longer than the caller accepts.
    #[error("new file of more than {max} bytes")]
    TooLong {
        /// The limit in bytes.
        max: u64,
    },
    /// The tokens do not add up to the new file.
    #[error("tokens of {found} bytes for a new file of {expected}")]
    WrongLength {
        /// Length of the new file in bytes.
        expected: u64,
        /// Number of bytes rebuilt.
        found: u64,
    },
    /// The output is not the new file: another basis of the same length, or a false match.
    #[error("the output differs from the new file: the delta is for another basis")]
    WrongRoot,
    /// The method was called after an error or after the end.
    #[error("continued after its end")]
    Ended,
}

/// The reason why a stream function failed. Its sentence names what could not be used; why is in its
/// [`source`](std::error::Error::source), which a message to people has too.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StreamError {
    /// The basis or the new file could not be read.
    #[error("cannot read the file")]
    File(#[source] io::Error),
    /// The signature or the delta could not be read.
    #[error("cannot read the signature or delta")]
    Input(#[source] io::Error),
    /// The output could not be written.
    #[error("cannot write")]
    Output(#[source] io::Error),
    /// The signature or the delta cannot be used.
    #[error("cannot use the signature or delta")]
    Format(#[from] FormatError),
}
