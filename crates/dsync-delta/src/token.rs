//! Tokens: the elements of a delta, and their encoding.
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
//! Kind 3 is reserved. A copy names blocks, never bytes: the destination's own layout determines
//! the bytes that it covers.

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
/// Joins neighbouring copies and neighbouring zero runs. Cost of a literal: one copy of its bytes.
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
            (Token::Zero(len), _) if len > MAX_VALUE => {
                self.push(Token::Zero(MAX_VALUE));
                self.push(Token::Zero(len - MAX_VALUE));
            }
            (Token::Zero(len), Some(Pending::Zero(last))) if last <= MAX_VALUE - len => {
                self.pending = Some(Pending::Zero(last + len));
            }

            (Token::Zero(len), _) => {
                self.flush();
                self.pending = Some(Pending::Zero(len));
            }
        }
    }

    /// Returns an upper bound in bytes of the payload's length if taken now.
    pub fn len(&self) -> usize {
        self.payload.len() + if self.pending.is_some() { 2 * MAX_VARINT } else { 0 }
    }

    /// Returns whether nothing was added since the last [`take`](Self::take).
    pub fn is_empty(&self) -> bool {
        self.payload.is_empty() && self.pending.is_none()
    }

    /// Takes the payload and starts the next one.
    pub fn take(&mut self) -> Vec<u8> {
        self.flush();
        self.next_block = 0;
        // The next payload is usually as long, and growing to that length would copy it once more.
        let next = Vec::with_capacity(self.payload.len());
        std::mem::replace(&mut self.payload, next)
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

/// Decodes one payload, token by token. After an error the iterator ends.
///
/// # Security
/// The peer controls the payload. Literals borrow from it, and nothing is allocated.
/// [`Applier`](crate::Applier) checks that copies lie in the basis and lengths in the segment.
///
/// ```
/// use dsync_delta::{DecodeError, Token, TokenDecoder, TokenEncoder};
///
/// let mut encoder = TokenEncoder::new();
/// encoder.push(Token::Literal(b"new"));
/// let (len, payload) = (encoder.len(), encoder.take());
/// assert_eq!((len, encoder.is_empty()), (payload.len(), true));
///
/// // A payload that was cut short is an error, never a shorter literal.
/// let cut = TokenDecoder::new(&payload[..3]).next();
/// assert_eq!(cut, Some(Err(DecodeError::Truncated)));
/// ```
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

    /// Continues in the middle of a payload, from [`position`](Self::position).
    pub(crate) fn resume(rest: &'a [u8], next_block: u64) -> Self {
        Self { rest, next_block, failed: false }
    }

    /// Returns the number of bytes left and the block that the next copy counts from.
    pub(crate) fn position(&self) -> (usize, u64) {
        (self.rest.len(), self.next_block)
    }

    fn token(&mut self) -> Result<Token<'a>, DecodeError> {
        let header = self.varint()?;
        // A header carries at most 62 bits of value; no length needs more.
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

/// The reason why a payload is not a sequence of tokens.
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
    put_varint(payload, (value << KIND_BITS) | kind);
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
/// Largest value of a header. Only zero runs could exceed it, and they are split.
const MAX_VALUE: u64 = u64::MAX >> KIND_BITS;
/// Most bytes of an encoded 64-bit integer.
const MAX_VARINT: usize = 10;

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[derive(Debug, Clone)]
    enum Owned {
        Literal(Vec<u8>),
        Copy(u64, u64),
        Zero(u64),
    }

    impl Owned {
        fn token(&self) -> Token<'_> {
            match self {
                Self::Literal(bytes) => Token::Literal(bytes),
                Self::Copy(first, count) => Token::Copy(BlockRun::new(BlockIndex(*first), *count).unwrap()),
                Self::Zero(len) => Token::Zero(*len),
            }
        }
    }

    fn tokens() -> impl Strategy<Value = Vec<Owned>> {
        let token = prop_oneof![
            prop::collection::vec(any::<u8>(), 1..300).prop_map(Owned::Literal),
            (0_u64..1 << 52, 1_u64..1 << 40).prop_map(|(first, count)| Owned::Copy(first, count)),
            (0_u64..20, 1_u64..3).prop_map(|(first, count)| Owned::Copy(first, count)),
            (1_u64..1 << 62).prop_map(Owned::Zero),
        ];
        prop::collection::vec(token, 0..30)
    }

    /// Flattens tokens into a form that does not depend on how they are split or joined.
    fn flat(tokens: &[Token<'_>]) -> Vec<(u8, u128, Vec<u8>)> {
        let mut flat: Vec<(u8, u128, Vec<u8>)> = Vec::new();
        let mut next_block = None;
        for token in tokens {
            match *token {
                Token::Literal(bytes) => match flat.last_mut() {
                    Some((0, _, last)) => last.extend_from_slice(bytes),
                    _ => flat.push((0, 0, bytes.to_vec())),
                },
                Token::Zero(len) => match flat.last_mut() {
                    Some((2, last, _)) => *last += u128::from(len),
                    _ => flat.push((2, len.into(), Vec::new())),
                },
                Token::Copy(run) => {
                    match flat.last_mut() {
                        Some((1, last, _)) if next_block == Some(run.first()) => {
                            *last += u128::from(run.count());
                        }
                        _ => flat.push((1, run.count().into(), run.first().0.to_le_bytes().to_vec())),
                    }
                    next_block = Some(run.end());
                }
            }
        }
        flat
    }

    proptest! {
        #[test]
        fn law_decoding_inverts_encoding(tokens in tokens(), takes in prop::collection::vec(any::<bool>(), 30)) {
            let mut encoder = TokenEncoder::new();
            let mut payloads = Vec::new();
            for (token, take) in tokens.iter().zip(takes) {
                encoder.push(token.token());
                prop_assert!(!encoder.is_empty());
                if take {
                    let bound = encoder.len();
                    payloads.push(encoder.take());
                    prop_assert!(payloads.last().unwrap().len() <= bound);
                }
            }
            payloads.push(encoder.take());
            prop_assert!(encoder.is_empty());
            let decoded: Result<Vec<_>, _> = payloads.iter().flat_map(|p| TokenDecoder::new(p)).collect();
            let given: Vec<_> = tokens.iter().map(Owned::token).collect();
            prop_assert_eq!(flat(&decoded.unwrap()), flat(&given));
        }

        #[test]
        fn law_any_bytes_decode_or_fail(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let mut decoder = TokenDecoder::new(&bytes);
            let tokens = decoder.by_ref().count();
            prop_assert!(tokens <= bytes.len());
            prop_assert!(decoder.next().is_none());
        }
    }

    #[test]
    fn neighbours_are_joined_and_long_literals_split() {
        let mut encoder = TokenEncoder::new();
        for block in 0..1000 {
            encoder.push(Token::Copy(BlockRun::new(BlockIndex(block), 1).unwrap()));
        }
        encoder.push(Token::Zero(5));
        encoder.push(Token::Zero(0));
        encoder.push(Token::Zero(6));
        encoder.push(Token::Literal(&[]));
        let long = vec![1; MAX_LITERAL + 1];
        encoder.push(Token::Literal(&long));
        let payload = encoder.take();
        let tokens: Vec<_> = TokenDecoder::new(&payload).map(Result::unwrap).collect();
        let run = BlockRun::new(BlockIndex(0), 1000).unwrap();
        let expected = [Token::Copy(run), Token::Zero(11), Token::Literal(&long[1..]), Token::Literal(&[1])];
        assert_eq!(tokens, expected);
    }

    #[test]
    fn zero_runs_too_long_for_a_header_are_split() {
        let mut encoder = TokenEncoder::new();
        encoder.push(Token::Zero(u64::MAX));
        encoder.push(Token::Zero(5));
        let bound = encoder.len();
        let payload = encoder.take();
        assert!(payload.len() <= bound);
        let zeros = TokenDecoder::new(&payload).map(|token| match token.unwrap() {
            Token::Zero(len) => u128::from(len),
            other => panic!("{other:?}"),
        });
        assert_eq!(zeros.sum::<u128>(), u128::from(u64::MAX) + 5);
    }

    /// Version 1 of the encoding: other bytes here mean a different protocol version.
    #[test]
    fn golden_tokens_of_version_1() {
        let mut encoder = TokenEncoder::new();
        let run = |first, count| Token::Copy(BlockRun::new(BlockIndex(first), count).unwrap());
        for token in [run(0, 1), Token::Literal(b"new"), run(1, 300), Token::Zero(1 << 20), run(7, 2)] {
            encoder.push(token);
        }
        let expected =
            [0x05, 0, 0x0c, b'n', b'e', b'w', 0xb1, 0x09, 0, 0x82, 0x80, 0x80, 0x02, 0x09, 0xcb, 0x04];
        assert_eq!(encoder.take(), expected);
    }

    #[test]
    fn malformed_payloads_are_rejected() {
        let error = |bytes: &[u8]| TokenDecoder::new(bytes).last().unwrap().unwrap_err();
        assert_eq!(error(&[0b1100]), DecodeError::Truncated);
        assert_eq!(error(&[0x80]), DecodeError::Truncated);
        assert_eq!(error(&[0x84, 0x00]), DecodeError::BadInteger);
        assert_eq!(error(&[0xff; 10]), DecodeError::BadInteger);
        assert_eq!(error(&[0b0001]), DecodeError::Empty);
        assert_eq!(error(&[0b0111]), DecodeError::UnknownKind);
        assert_eq!(error(&[0b0101]), DecodeError::Truncated);
        // First block -1: before the basis.
        assert_eq!(error(&[0b0101, 1]), DecodeError::RunOutOfRange { first: u64::MAX, count: 1 });
        let mut long = Vec::new();
        put_header(&mut long, len_u64(MAX_LITERAL) + 1, KIND_LITERAL);
        long.resize(MAX_LITERAL * 2, 0);
        assert_eq!(error(&long), DecodeError::LiteralTooLong { len: len_u64(MAX_LITERAL) + 1 });
    }
}
