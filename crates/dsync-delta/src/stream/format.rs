//! Frames of both formats: header, checksums in a chain, end. The table is in [`crate::stream`].

use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::error::FormatError;
use crate::{
    block::BlockLen,
    key::Key,
    num::{len_u64, saturating_usize},
};

/// The two kinds of streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Signature,
    Delta,
}

impl Kind {
    fn magic(self) -> [u8; 8] {
        match self {
            Self::Signature => *b"DSYNCSIG",
            Self::Delta => *b"DSYNCDLT",
        }
    }

    /// Returns the length of the header with its checksum, in bytes.
    fn header_len(self) -> usize {
        match self {
            Self::Signature => 56,
            Self::Delta => 64,
        }
    }

    /// Returns the length of the fields that an end has between its zero and its checksum, in bytes.
    fn end_len(self) -> usize {
        match self {
            Self::Signature => 8,
            Self::Delta => 40,
        }
    }
}

/// The parameters of a stream.
#[derive(Debug, Clone)]
pub(super) struct Header {
    pub(super) key: Key,
    pub(super) block_len: BlockLen,
    /// Length of the basis; 0 in a signature, whose end has it.
    pub(super) basis_len: u64,
}

/// Writes frames and chains their checksums.
#[derive(Debug)]
pub(super) struct FrameWriter {
    chain: u64,
    written: u64,
}

impl FrameWriter {
    /// Writes the header.
    pub(super) fn new(kind: Kind, header: &Header, out: &mut Vec<u8>) -> Self {
        let begun = out.len();
        out.extend_from_slice(&kind.magic());
        out.extend_from_slice(&VERSION.to_le_bytes());
        out.extend_from_slice(&[header.block_len.get().ilog2().to_le_bytes()[0], 0, 0, 0, 0, 0]);
        out.extend_from_slice(header.key.as_bytes());
        if kind == Kind::Delta {
            out.extend_from_slice(&header.basis_len.to_le_bytes());
        }
        let mut frames = Self { chain: 0, written: 0 };
        frames.seal(out, begun);
        frames
    }

    /// Writes one frame; `payload` is neither empty nor longer than [`MAX_PAYLOAD`].
    pub(super) fn frame(&mut self, payload: &[u8], out: &mut Vec<u8>) {
        let begun = out.len();
        out.extend_from_slice(&u32::try_from(payload.len()).unwrap_or(u32::MAX).to_le_bytes());
        out.extend_from_slice(payload);
        self.seal(out, begun);
    }

    /// Writes the end; returns the length of the whole stream in bytes.
    pub(super) fn end(mut self, fields: &[u8], out: &mut Vec<u8>) -> u64 {
        let begun = out.len();
        out.extend_from_slice(&[0; LENGTH_LEN]);
        out.extend_from_slice(fields);
        self.seal(out, begun);
        self.written
    }

    /// Adds the checksum of everything from `begun` on.
    fn seal(&mut self, out: &mut Vec<u8>, begun: usize) {
        self.chain = xxh3_64_with_seed(&out[begun..], self.chain);
        out.extend_from_slice(&self.chain.to_le_bytes());
        self.written = self.written.saturating_add(len_u64(out.len() - begun));
    }
}

/// A part of a stream that has arrived whole. Its bytes are those of [`FrameReader::payload`].
#[derive(Debug)]
pub(super) enum Piece {
    Header(Header),
    Frame,
    End,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Expected {
    /// Magic and version: a later version may have another header.
    Start,
    Header,
    Length,
    Payload {
        len: usize,
    },
    End,
    /// Nothing more.
    Nothing,
}

/// Reads a stream in pieces of any length.
///
/// Holds at most one frame. A buffer grows with bytes that have arrived, never with a length alone.
#[derive(Debug)]
pub(super) struct FrameReader {
    kind: Kind,
    expected: Expected,
    buffer: Vec<u8>,
    /// Offset in the stream of the buffer's first byte.
    offset: u64,
    chain: u64,
}

impl FrameReader {
    pub(super) fn new(kind: Kind) -> Self {
        Self { kind, expected: Expected::Start, buffer: Vec::new(), offset: 0, chain: 0 }
    }

    /// Takes bytes from `input` until a piece is complete; returns `None` if more are needed.
    pub(super) fn next(&mut self, input: &mut &[u8]) -> Result<Option<Piece>, FormatError> {
        loop {
            if self.expected == Expected::Nothing {
                let offset = self.offset;
                return if input.is_empty() { Ok(None) } else { Err(FormatError::Trailing { offset }) };
            }
            // The payload of the frame before was taken.
            if self.expected == Expected::Length && self.buffer.len() > LENGTH_LEN {
                self.buffer.clear();
            }

            let missing = self.needed() - self.buffer.len();
            let (now, later) = input.split_at(missing.min(input.len()));
            self.buffer.extend_from_slice(now);
            *input = later;
            if now.len() < missing {
                return Ok(None);
            }
            if let Some(piece) = self.advance()? {
                return Ok(Some(piece));
            }
        }
    }

    /// Returns the payload of the frame, or the fields of the end, that was returned last.
    pub(super) fn payload(&self) -> &[u8] {
        let end = self.buffer.len().saturating_sub(CHECKSUM_LEN);
        self.buffer.get(LENGTH_LEN..end).unwrap_or_default()
    }

    /// Checks that the stream has ended.
    pub(super) fn finish(&self) -> Result<(), FormatError> {
        if self.expected == Expected::Nothing {
            return Ok(());
        }
        if self.expected == Expected::Start {
            self.check_magic()?;
        }
        let unfinished = if self.is_taken() { 0 } else { len_u64(self.buffer.len()) };
        Err(FormatError::Truncated { len: self.offset.saturating_add(unfinished) })
    }

    /// Returns whether the buffer holds a piece that was returned already.
    fn is_taken(&self) -> bool {
        self.expected == Expected::Length && self.buffer.len() > LENGTH_LEN
    }

    /// Returns the length at which the buffer can be advanced.
    fn needed(&self) -> usize {
        match self.expected {
            Expected::Start => START_LEN,
            Expected::Header => self.kind.header_len(),
            Expected::Length | Expected::Nothing => LENGTH_LEN,
            Expected::Payload { len } => LENGTH_LEN + len + CHECKSUM_LEN,
            Expected::End => LENGTH_LEN + self.kind.end_len() + CHECKSUM_LEN,
        }
    }

    /// Checks what the buffer holds.
    fn advance(&mut self) -> Result<Option<Piece>, FormatError> {
        match self.expected {
            Expected::Start => {
                self.check_magic()?;
                let version = u16::from_le_bytes(field(&self.buffer, MAGIC_LEN));
                if version != VERSION {
                    return Err(FormatError::Version { version, supported: VERSION });
                }
                self.expected = Expected::Header;
            }

            Expected::Header => {
                self.check_seal()?;
                let header = self.header()?;
                self.expected = Expected::Length;
                return Ok(Some(Piece::Header(header)));
            }

            Expected::Length => {
                let len = u32::from_le_bytes(field(&self.buffer, 0));
                let size = saturating_usize(u64::from(len));
                if size > MAX_PAYLOAD {
                    return Err(FormatError::FrameLength { offset: self.offset, len });
                }
                self.expected = if len == 0 { Expected::End } else { Expected::Payload { len: size } };
            }

            Expected::Payload { .. } => {
                self.check_seal()?;
                self.expected = Expected::Length;
                return Ok(Some(Piece::Frame));
            }
            Expected::End => {
                self.check_seal()?;
                self.expected = Expected::Nothing;
                return Ok(Some(Piece::End));
            }
            Expected::Nothing => {}
        }
        Ok(None)
    }

    /// Checks as much of the magic as has arrived.
    fn check_magic(&self) -> Result<(), FormatError> {
        let is = |kind: Kind| self.buffer.iter().zip(&kind.magic()).all(|(found, right)| found == right);
        let (expected, other, error) = match self.kind {
            Kind::Signature => (Kind::Signature, Kind::Delta, FormatError::NotASignature),
            Kind::Delta => (Kind::Delta, Kind::Signature, FormatError::NotADelta),
        };
        if is(expected) {
            return Ok(());
        }
        Err(if is(other) { error } else { FormatError::Foreign })
    }

    /// Checks the checksum at the buffer's end.
    fn check_seal(&mut self) -> Result<(), FormatError> {
        let sealed = self.buffer.len() - CHECKSUM_LEN;
        let chain = xxh3_64_with_seed(&self.buffer[..sealed], self.chain);
        let len = len_u64(self.buffer.len());
        if chain != u64::from_le_bytes(field(&self.buffer, sealed)) {
            return Err(FormatError::Damaged { offset: self.offset, len });
        }
        self.chain = chain;
        self.offset = self.offset.saturating_add(len);
        Ok(())
    }

    fn header(&self) -> Result<Header, FormatError> {
        let [log2, reserved @ ..] = field::<6>(&self.buffer, START_LEN);
        let block_len = 1_u32.checked_shl(log2.into()).and_then(|bytes| BlockLen::new(bytes).ok());
        let basis_len = match self.kind {
            Kind::Signature => 0,
            Kind::Delta => u64::from_le_bytes(field(&self.buffer, 48)),
        };
        match block_len {
            Some(block_len) if reserved == [0; 5] && basis_len <= MAX_LEN => {
                let key = Key::from_bytes(field(&self.buffer, 16));
                Ok(Header { key, block_len, basis_len })
            }
            _ => Err(FormatError::Parameter),
        }
    }
}

/// Returns a field of fixed length, with zeros where there are no bytes. Callers know that there are.
pub(super) fn field<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).copied().unwrap_or([0; N])
}

/// The version of both formats that this crate writes and reads.
const VERSION: u16 = 1;

/// Longest payload of a frame in bytes: a reader holds one, and two literals fit.
pub(super) const MAX_PAYLOAD: usize = 256 << 10;

/// Largest length of a basis or new file: offsets are signed 64-bit on every system.
pub(super) const MAX_LEN: u64 = i64::MAX.unsigned_abs();

const MAGIC_LEN: usize = 8;
const START_LEN: usize = MAGIC_LEN + 2;
const LENGTH_LEN: usize = 4;
const CHECKSUM_LEN: usize = 8;
