//! The bytes of a batch file: a head, sections, and a last section that proves them whole.
//!
//! A [`SectionReader`] takes any bytes: each section's length is checked against the limit of its
//! kind before it is read, and memory is that of one section.

use std::io::{self, Read, Write};

use dsync_delta::ContentHasher;
use dsync_wire::{
    compress::{Codec, Packed},
    limits::{MAX_FRAME, MAX_START},
    message::{EntryId, Timestamp},
    version::VERSION as MESSAGES,
};

use super::{BatchFault, VERSION};

/// The first bytes of a batch.
pub(super) const MAGIC: [u8; 8] = *b"dsync\x1abf";

/// One section.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Section {
    /// The payload of the task of the recorded run; first, once.
    Terms(Vec<u8>),
    /// A message of the source: its kind, and its payload.
    Message(u8, Vec<u8>),
    /// A piece of a file's content.
    Piece(Piece),
    /// The end of a file's content.
    Content(Content),
}

/// A piece of a file's content. One at offset 0 begins the content anew.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) entry: EntryId,
    pub(super) offset: u64,
    pub(super) packed: Packed,
}

/// The content of a file, whose pieces came before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Content {
    pub(super) entry: EntryId,
    pub(super) size: u64,
    pub(super) mtime: Timestamp,
    /// Unkeyed BLAKE3 hash.
    pub(super) hash: [u8; 32],
}

const TERMS: u8 = 1;
const MESSAGE: u8 = 2;
const PIECE: u8 = 3;
const CONTENT: u8 = 4;
const END: u8 = 5;

/// Bytes of a piece before its packed bytes: entry, offset, codec, raw length.
const PIECE_HEAD: usize = 8 + 8 + 1 + 4;
/// Bytes of the end of a content: entry, size, time, hash.
const CONTENT_BYTES: usize = 8 + 8 + 8 + 4 + 32;
/// Bytes of the last section: the number of the others, and the hash.
const END_LENGTH: u32 = 8 + 32;
const END_BYTES: usize = END_LENGTH as usize;

impl Section {
    /// Returns the section's kind and body.
    fn encode(&self) -> (u8, Vec<u8>) {
        match self {
            Self::Terms(payload) => (TERMS, payload.clone()),
            Self::Message(kind, payload) => {
                let mut body = Vec::with_capacity(1 + payload.len());
                body.push(*kind);
                body.extend_from_slice(payload);
                (MESSAGE, body)
            }
            Self::Piece(Piece { entry, offset, packed }) => {
                let mut body = Vec::with_capacity(PIECE_HEAD + packed.bytes.len());
                body.extend(entry.0.to_le_bytes());
                body.extend(offset.to_le_bytes());
                body.push(packed.codec as u8);
                body.extend(packed.raw_len.to_le_bytes());
                body.extend_from_slice(&packed.bytes);
                (PIECE, body)
            }
            Self::Content(Content { entry, size, mtime, hash }) => {
                let mut body = Vec::with_capacity(CONTENT_BYTES);
                body.extend(entry.0.to_le_bytes());
                body.extend(size.to_le_bytes());
                body.extend(mtime.seconds.to_le_bytes());
                body.extend(mtime.nanoseconds.to_le_bytes());

                body.extend(hash);
                (CONTENT, body)
            }
        }
    }

    /// Reads a body; `Err` names the fault.
    fn decode(kind: u8, body: Vec<u8>) -> Result<Self, &'static str> {
        let mut fields = Fields(&body);
        match kind {
            TERMS => Ok(Self::Terms(body)),
            MESSAGE => {
                let [kind] = fields.take().ok_or("a message without a kind")?;
                Ok(Self::Message(kind, fields.0.to_vec()))
            }
            PIECE => fields.piece().map(Self::Piece).ok_or("a piece without its head"),
            _ => fields.content().map(Self::Content).ok_or("the end of a content has other fields"),
        }
    }
}

/// Returns the longest body of a kind of section; `None` for an unknown kind.
fn most(kind: u8) -> Option<usize> {
    match kind {
        TERMS => Some(MAX_START),
        MESSAGE | PIECE => Some(PIECE_HEAD + MAX_FRAME as usize),
        CONTENT => Some(CONTENT_BYTES),
        END => Some(END_BYTES),
        _ => None,
    }
}

/// Bytes that are read field by field.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, tail) = self.0.split_first_chunk::<N>()?;
        self.0 = tail;
        Some(*head)
    }

    fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }

    fn piece(&mut self) -> Option<Piece> {
        let (entry, offset) = (EntryId(self.u64()?), self.u64()?);
        let [codec] = self.take()?;
        let raw_len = self.take().map(u32::from_le_bytes)?;
        let packed = Packed { codec: Codec::from_code(codec)?, raw_len, bytes: self.0.to_vec().into() };
        Some(Piece { entry, offset, packed })
    }

    fn content(&mut self) -> Option<Content> {
        let (entry, size) = (EntryId(self.u64()?), self.u64()?);
        let seconds = self.take().map(i64::from_le_bytes)?;
        let mtime = Timestamp { seconds, nanoseconds: self.take().map(u32::from_le_bytes)? };
        let hash = self.take()?;
        (self.0.is_empty() && mtime.is_valid()).then_some(Content { entry, size, mtime, hash })
    }
}

/// Writes sections.
pub(super) struct SectionWriter<W> {
    out: W,
    hasher: ContentHasher,
    count: u64,
}

impl<W: Write> SectionWriter<W> {
    /// Writes the head.
    pub(super) fn new(out: W) -> io::Result<Self> {
        let mut writer = Self { out, hasher: ContentHasher::new(), count: 0 };
        writer.write(&MAGIC)?;
        writer.write(&VERSION.to_le_bytes())?;
        writer.write(&MESSAGES.to_le_bytes())?;
        Ok(writer)
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.hasher.update(bytes);
        self.out.write_all(bytes)
    }

    /// Adds a section.
    pub(super) fn push(&mut self, section: &Section) -> io::Result<()> {
        let (kind, body) = section.encode();
        self.count += 1;
        self.section(kind, &body)
    }

    fn section(&mut self, kind: u8, body: &[u8]) -> io::Result<()> {
        let len = u32::try_from(body.len()).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
        self.write(&[kind])?;
        self.write(&len.to_le_bytes())?;
        self.write(body)
    }

    /// Writes the last section. Returns what all was written to.
    pub(super) fn finish(mut self) -> io::Result<W> {
        let count = self.count;
        self.write(&[END])?;
        self.write(&END_LENGTH.to_le_bytes())?;
        self.write(&count.to_le_bytes())?;
        let hash = self.hasher.finish();
        self.out.write_all(&hash)?;
        self.out.flush()?;
        Ok(self.out)
    }
}

/// Reads the sections of a batch in their order.
pub(super) struct SectionReader<R> {
    input: R,
    hasher: ContentHasher,
    count: u64,
    /// Bytes that were read.
    offset: u64,
}

impl<R: Read> SectionReader<R> {
    /// Reads the head.
    pub(super) fn new(input: R) -> Result<Self, BatchFault> {
        let mut reader = Self { input, hasher: ContentHasher::new(), count: 0, offset: 0 };
        let mut magic = [0; 8];
        let got = reader.fill(&mut magic)?;
        if got < magic.len() || magic != MAGIC {
            if got > 0 && MAGIC.starts_with(&magic[..got]) {
                return Err(BatchFault::Truncated);
            }
            return Err(if is_of_rsync(magic) { BatchFault::OfRsync } else { BatchFault::Foreign });
        }
        let version = u16::from_le_bytes(reader.bytes()?);
        if version != VERSION {
            return Err(BatchFault::Newer { version });
        }
        let messages = u16::from_le_bytes(reader.bytes()?);
        if messages != MESSAGES {
            return Err(BatchFault::OtherMessages { version: messages });
        }
        Ok(reader)
    }

    /// Goes on at an offset between two sections. What is read from here is not proven whole again.
    pub(super) fn resume(input: R, offset: u64, count: u64) -> Self {
        Self { input, hasher: ContentHasher::new(), count, offset }
    }

    /// Returns the number of bytes before the next section.
    pub(super) fn offset(&self) -> u64 {
        self.offset
    }

    /// Returns an error about the section that was read last.
    pub(super) fn malformed(&self, what: &'static str) -> BatchFault {
        BatchFault::Malformed { section: self.count, what }
    }

    /// Reads until the buffer is full or the input ends; returns the number of bytes.
    fn fill(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut filled = 0;
        while filled < buffer.len() {
            match self.input.read(&mut buffer[filled..]) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.hasher.update(&buffer[..filled]);
        self.offset += filled as u64;
        Ok(filled)
    }

    fn bytes<const N: usize>(&mut self) -> Result<[u8; N], BatchFault> {
        let mut bytes = [0; N];
        match self.fill(&mut bytes)? {
            got if got == N => Ok(bytes),
            _ => Err(BatchFault::Truncated),
        }
    }

    /// Reads the next section; `None` after the last one, which proves all of them whole if this
    /// reader read them from the head on.
    pub(super) fn next(&mut self) -> Result<Option<Section>, BatchFault> {
        let [kind] = self.bytes()?;
        let length = u32::from_le_bytes(self.bytes()?);
        self.count += 1;
        let most = most(kind).ok_or_else(|| self.malformed("its kind is unknown"))?;
        let length = usize::try_from(length).ok().filter(|&length| length <= most);
        let length = length.ok_or_else(|| self.malformed("it is too long"))?;
        if kind == END {
            return self.end(length).map(|()| None);
        }

        let mut body = vec![0; length];
        if self.fill(&mut body)? < length {
            return Err(BatchFault::Truncated);
        }
        Section::decode(kind, body).map(Some).map_err(|what| self.malformed(what))
    }

    fn end(&mut self, length: usize) -> Result<(), BatchFault> {
        if length != END_BYTES {
            return Err(self.malformed("it is the last one and has another length"));
        }
        let count = u64::from_le_bytes(self.bytes()?);
        let expected = self.hasher.finish();
        let hash: [u8; 32] = self.bytes()?;
        let mut beyond = [0];
        let has_more = self.fill(&mut beyond)? > 0;
        if count != self.count - 1 || hash != expected || has_more {
            return Err(BatchFault::Damaged);
        }
        Ok(())
    }
}

/// Returns whether these bytes are the flags and the protocol version of rsync's batches.
fn is_of_rsync(head: [u8; 8]) -> bool {
    let [flags @ .., p0, p1, p2, p3] = head;
    let flags = u32::from_le_bytes(flags);
    (27..=64).contains(&u32::from_le_bytes([p0, p1, p2, p3])) && flags < 1 << 20
}

/// Returns bytes that follow the head of a batch as a whole batch: with its head, as far as they are
/// sections, and with a last section that fits them.
#[doc(hidden)]
pub fn sealed(body: &[u8]) -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    bytes.extend(VERSION.to_le_bytes());
    bytes.extend(MESSAGES.to_le_bytes());
    let head = bytes.len();
    bytes.extend(body);
    let (mut end, mut count) = (head, 0_u64);
    if let Ok(mut reader) = SectionReader::new(bytes.as_slice()) {
        while let Ok(Some(_)) = reader.next() {
            end = usize::try_from(reader.offset()).unwrap_or(bytes.len());
            count += 1;
        }
    }

    bytes.truncate(end);
    bytes.push(END);
    bytes.extend(END_LENGTH.to_le_bytes());
    bytes.extend(count.to_le_bytes());
    let hash = ContentHasher::new().update(&bytes).finish();
    bytes.extend(hash);
    bytes
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::disallowed_methods)]
pub(super) mod tests;
