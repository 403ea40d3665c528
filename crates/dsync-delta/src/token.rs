//! Tokens: how a delta is said, and its encoding.
//!
//! A payload is a sequence of whole tokens and can be decoded without the payloads before it. Each
//! token starts with a variable-length integer `value * 4 + kind` (LEB128: 7 bits a byte, lowest
//! first, shortest form only):
//!
//! | kind | token | value | then |
//! |---|---|---|---|
//! | 0 | literal | length in bytes, 1 to [`MAX_LITERAL`] | the bytes |
//! | 1 | copy | number of blocks, at least 1 | zigzag integer: first block minus the block that follows the payload's last copy (0 at its start) |
//! | 2 | zero run | length in bytes, at least 1 | |
//!
//! Kind 3 is reserved. A copy names blocks, never bytes: what it covers is for the destination's own
//! layout to say.

use crate::{
    block::{BlockIndex, BlockRun},
    num::{len_u64, saturating_usize},
};

/// A piece of a new file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Token<'a> {
    /// New bytes; not empty.
    Literal(&'a [u8]),
    /// Blocks of the basis.
    Copy(BlockRun),
    /// A number of zero bytes, at least 1.
    Zero(u64),
}

/// Longest literal of one token, in bytes. Longer ones are split: a literal then fits every frame.
pub const MAX_LITERAL: usize = 128 << 10;

/// Encodes tokens into payloads.
///
/// Neighbouring copies and neighbouring zero runs are joined. Cost of a literal: one copy of its bytes.
///
/// ```
/// use dsync_delta::{Token, TokenDecoder, TokenEncoder};
///
/// let mut encoder = TokenEncoder::new();
/// encoder.push(Token::Literal(b"new"));
/// encoder.push(Token::Zero(1 << 40));
/// let payload = encoder.take();
/// assert_eq!(payload.len(), 11);
/// let tokens: Result<Vec<_>, _> = TokenDecoder::new(&payload).collect();
/// assert_eq!(tokens.unwrap(), [Token::Literal(b"new"), Token::Zero(1 << 40)]);
/// ```
#[derive(Debug, Default)]
pub struct TokenEncoder {
    payload: Vec<u8>,
    pending: Option<Pending>,
    next_block: u64,
}

/// A token that the next one may still be joined to.
#[derive(Debug, Clone, Copy)]
enum Pending {
    Copy(BlockRun),
    Zero(u64),
}

impl TokenEncoder {
    /// Starts an empty payload.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a token; an empty literal or zero run adds nothing.
    pub fn push(&mut self, token: Token<'_>) {
        match (token, self.pending) {
            (Token::Literal(bytes), _) => {
                self.flush();
                for piece in bytes.chunks(MAX_LITERAL) {
                    put_header(&mut self.payload, len_u64(piece.len()), KIND_LITERAL);
                    self.payload.extend_from_slice(piece);
                }
            }
            (Token::Copy(run), Some(Pending::Copy(last))) if last.joined(run).is_some() => {
                self.pending = last.joined(run).map(Pending::Copy);
            }
            (Token::Copy(run), _) => {
                self.flush();
                self.pending = Some(Pending::Copy(run));
            }
            (Token::Zero(0), _) => {}
            (Token::Zero(len), Some(Pending::Zero(last))) => {
                self.pending = Some(Pending::Zero(last.saturating_add(len)));
            }
            (Token::Zero(len), _) => {
                self.flush();
                self.pending = Some(Pending::Zero(len));
            }
        }
    }

    /// Length in bytes that the payload may reach when taken now; never less than its real length.
    pub fn len(&self) -> usize {
        self.payload.len() + if self.pending.is_some() { 2 * MAX_VARINT } else { 0 }
    }

    /// True when nothing was added since the last [`take`](Self::take).
    pub fn is_empty(&self) -> bool {
        self.payload.is_empty() && self.pending.is_none()
    }

    /// Takes the payload and starts the next one.
    pub fn take(&mut self) -> Vec<u8> {
        self.flush();
        self.next_block = 0;
        std::mem::take(&mut self.payload)
    }

    fn flush(&mut self) {
        match self.pending.take() {
            Some(Pending::Copy(run)) => {
                put_header(&mut self.payload, run.count(), KIND_COPY);
                put_signed(&mut self.payload, run.first().0.wrapping_sub(self.next_block));
                self.next_block = run.end().0;
            }
            Some(Pending::Zero(len)) => put_header(&mut self.payload, len, KIND_ZERO),
            None => {}
        }
    }
}

/// Decodes one payload, token by token. After an error there is nothing more.
///
/// # Security
/// The peer controls the payload. Literals borrow from it, nothing is allocated. Whether copies lie in
/// the basis and lengths in the segment is checked by [`Applier`](crate::Applier).
#[derive(Debug, Clone)]
pub struct TokenDecoder<'a> {
    rest: &'a [u8],
    next_block: u64,
    failed: bool,
}

impl<'a> TokenDecoder<'a> {
    /// Starts at the beginning of a payload.
    pub fn new(payload: &'a [u8]) -> Self {
        Self { rest: payload, next_block: 0, failed: false }
    }

    fn token(&mut self) -> Result<Token<'a>, DecodeError> {
        let header = self.varint()?;
        // A header carries 62 bits of value at most: more cannot be a length of anything.
        let value = header >> KIND_BITS;
        if value == 0 {
            return Err(DecodeError::Empty);
        }
        match header & KIND_MASK {
            KIND_LITERAL => {
                if value > len_u64(MAX_LITERAL) {
                    return Err(DecodeError::LiteralTooLong { len: value });
                }
                let (literal, rest) =
                    self.rest.split_at_checked(saturating_usize(value)).ok_or(DecodeError::Truncated)?;
                self.rest = rest;
                Ok(Token::Literal(literal))
            }
            KIND_COPY => {
                let first = self.next_block.wrapping_add(self.signed()?);
                let run = BlockRun::new(BlockIndex(first), value)
                    .ok_or(DecodeError::RunOutOfRange { first, count: value })?;
                self.next_block = run.end().0;
                Ok(Token::Copy(run))
            }
            KIND_ZERO => Ok(Token::Zero(value)),
            _ => Err(DecodeError::UnknownKind),
        }
    }

    fn varint(&mut self) -> Result<u64, DecodeError> {
        let mut value = 0_u64;
        for (position, &byte) in self.rest.iter().take(MAX_VARINT).enumerate() {
            let bits = u64::from(byte & 0x7f);
            if position == MAX_VARINT - 1 && bits > 1 {
                return Err(DecodeError::BadInteger);
            }
            value |= bits << (7 * position);
            if byte & 0x80 == 0 {
                if byte == 0 && position > 0 {
                    return Err(DecodeError::BadInteger);
                }
                self.rest = &self.rest[position + 1..];
                return Ok(value);
            }
        }
        Err(if self.rest.len() < MAX_VARINT { DecodeError::Truncated } else { DecodeError::BadInteger })
    }

    fn signed(&mut self) -> Result<u64, DecodeError> {
        let zigzag = self.varint()?;
        Ok((zigzag >> 1) ^ 0_u64.wrapping_sub(zigzag & 1))
    }
}

impl<'a> Iterator for TokenDecoder<'a> {
    type Item = Result<Token<'a>, DecodeError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.failed || self.rest.is_empty() {
            return None;
        }
        let token = self.token();
        self.failed = token.is_err();
        Some(token)
    }
}

impl std::iter::FusedIterator for TokenDecoder<'_> {}

/// Why a payload is not a sequence of tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// The payload ends inside a token.
    #[error("payload ends inside a token")]
    Truncated,
    /// An integer is not in its shortest form or exceeds 64 bits.
    #[error("integer is not in shortest form or exceeds 64 bits")]
    BadInteger,
    /// A token of length 0.
    #[error("empty token")]
    Empty,
    /// A kind of token that does not exist.
    #[error("unknown kind of token")]
    UnknownKind,
    /// A literal longer than [`MAX_LITERAL`].
    #[error("literal of {len} bytes in one token")]
    LiteralTooLong {
        /// Its length in bytes.
        len: u64,
    },
    /// A copy of blocks that cannot be numbered.
    #[error("copy of {count} blocks from block {first} on")]
    RunOutOfRange {
        /// First block.
        first: u64,
        /// Number of blocks.
        count: u64,
    },
}

fn put_header(payload: &mut Vec<u8>, value: u64, kind: u64) {
    // Values are lengths and block counts of files below 2^63 bytes; anything longer is split.
    let mut left = value;
    while left > MAX_VALUE {
        put_varint(payload, (MAX_VALUE << KIND_BITS) | kind);
        left -= MAX_VALUE;
    }
    put_varint(payload, (left << KIND_BITS) | kind);
}

fn put_signed(payload: &mut Vec<u8>, value: u64) {
    let sign = value >> 63;
    put_varint(payload, (value << 1) ^ 0_u64.wrapping_sub(sign));
}

fn put_varint(payload: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        payload.push((value & 0x7f).to_le_bytes()[0] | 0x80);
        value >>= 7;
    }
    payload.push(value.to_le_bytes()[0]);
}

const KIND_LITERAL: u64 = 0;
const KIND_COPY: u64 = 1;
const KIND_ZERO: u64 = 2;
const KIND_BITS: u32 = 2;
const KIND_MASK: u64 = (1 << KIND_BITS) - 1;
/// Largest value of a header.
const MAX_VALUE: u64 = u64::MAX >> KIND_BITS;
/// Most bytes of an encoded 64-bit integer.
const MAX_VARINT: usize = 10;
