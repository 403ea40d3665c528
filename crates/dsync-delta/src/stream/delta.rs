//! The machine that writes a delta.

use std::{convert::Infallible, ops::Deref};

use super::format::{FrameWriter, Header, Kind, MAX_PAYLOAD};
use crate::{
    index::IndexedSignature,
    num::{len_u64, saturating_usize},
    outcome::TokenSink,
    search::{Part, SearchError, StreamSearch},
    token::{MAX_LITERAL, Token, TokenEncoder},
};

/// The result of writing a delta.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct DeltaCounts {
    /// Length of the new file in bytes.
    pub new_len: u64,
    /// Bytes of the new file sent as literals.
    pub literal_bytes: u64,
    /// Bytes of the new file copied from the basis.
    pub matched_bytes: u64,
    /// Bytes of the new file sent as zero runs.
    pub zero_bytes: u64,
    /// Length of the delta in bytes.
    pub delta_len: u64,
}

/// Writes the delta of a new file that arrives in pieces of any length.
///
/// Memory: 2 MiB and 16 blocks, beside the signature.
///
/// ```
/// use std::sync::Arc;
///
/// use dsync_delta::stream::{DeltaCounts, DeltaWriter, SignatureOptions, SignatureReader};
/// # use dsync_delta::stream;
///
/// # let basis = b"a line of the old file\n".repeat(1000);
/// # let mut signature = Vec::new();
/// # stream::signature(basis.as_slice(), &mut signature, &SignatureOptions::for_file(23_000))?;
/// # let index = stream::read_signature(signature.as_slice(), SignatureReader::MAX_BLOCKS)?;
/// # let (mut sent, mut incoming) = (Vec::new(), basis.chunks(4096));
/// // An event loop appends what is ready to its output and never waits.
/// let mut out = Vec::new();
/// let mut writer = DeltaWriter::new(Arc::new(index), &mut out);
/// for message in incoming {
///     writer.push(message, &mut out);
///     sent.append(&mut out);
/// }
/// let DeltaCounts { matched_bytes, delta_len, .. } = writer.finish(&mut out);
/// sent.append(&mut out);
/// assert_eq!((matched_bytes, delta_len), (23_000, sent.len() as u64));
/// # Ok::<(), stream::StreamError>(())
/// ```
#[derive(Debug)]
pub struct DeltaWriter<I> {
    index: I,
    search: StreamSearch,
    frames: FrameWriter,
    tokens: TokenEncoder,
    /// Bytes of the new file from `offset` on that the search still needs.
    buffer: Vec<u8>,
    offset: u64,
    /// Length at which the buffer is searched.
    part_len: usize,
    counts: DeltaCounts,
}

impl<I: Deref<Target = IndexedSignature>> DeltaWriter<I> {
    /// Starts a delta and appends its header to `out`. `index` is a reference or an `Arc`, whichever the
    /// caller can keep as long as the delta.
    pub fn new(index: I, out: &mut Vec<u8>) -> Self {
        Self::with_parts(index, PART_LEN, out)
    }

    /// Starts a delta that searches `part_len` bytes and [`PART_BLOCKS`] blocks at once.
    pub(super) fn with_parts(index: I, part_len: usize, out: &mut Vec<u8>) -> Self {
        let layout = index.layout();
        let header =
            Header { key: index.key().clone(), block_len: layout.block_len(), basis_len: layout.file_len() };
        Self {
            search: StreamSearch::new(index.key()),
            frames: FrameWriter::new(Kind::Delta, &header, out),
            tokens: TokenEncoder::new(),
            // Pages that a short file does not reach are never touched.
            buffer: Vec::with_capacity(part_len + PART_BLOCKS * layout.block_len().size()),
            offset: 0,
            part_len: part_len + PART_BLOCKS * layout.block_len().size(),
            counts: DeltaCounts::default(),
            index,
        }
    }

    /// Takes the next bytes of the new file; appends to `out` the frames that they complete, at most a
    /// quarter MiB more than the bytes taken so far.
    pub fn push(&mut self, mut bytes: &[u8], out: &mut Vec<u8>) {
        self.counts.new_len = self.counts.new_len.saturating_add(len_u64(bytes.len()));
        while !bytes.is_empty() {
            // Parts have the same borders however the bytes arrive, and so has the delta.
            let room = (self.part_len - self.buffer.len()).min(bytes.len());
            self.buffer.extend_from_slice(&bytes[..room]);
            bytes = &bytes[room..];
            if self.buffer.len() == self.part_len {
                self.search(false, out);
            }
        }
    }

    /// Appends the rest of the delta to `out`.
    pub fn finish(mut self, out: &mut Vec<u8>) -> DeltaCounts {
        self.search(true, out);
        if !self.tokens.is_empty() {
            self.frames.frame(&self.tokens.take(), out);
        }

        let root = self.search.finish();
        // The last part was searched to its end, so the root is there.
        let root = root.map_or([0; 32], |root| *root.as_bytes());
        let fields = [&self.counts.new_len.to_le_bytes()[..], &root].concat();
        self.counts.delta_len = self.frames.end(&fields, out);
        self.counts
    }

    /// Searches the buffer and keeps what later searches need.
    fn search(&mut self, is_last: bool, out: &mut Vec<u8>) {
        // Growing by doubling would hold the output three times for a moment.
        out.reserve_exact(self.buffer.len() + MAX_PAYLOAD);
        let mut sink = Frames { tokens: &mut self.tokens, frames: &mut self.frames, out };
        let part = Part { offset: self.offset, bytes: &self.buffer, is_last };
        match self.search.search(&self.index, part, &mut sink) {
            Ok((emitted, _)) => {
                self.counts.literal_bytes += emitted.literal_bytes;
                self.counts.matched_bytes += emitted.matched_bytes;
                self.counts.zero_bytes += emitted.zero_bytes;
            }
            // Reading a buffer does not fail, and a window never leaves it.
            Err(SearchError::Read(never) | SearchError::Sink(never)) => match never {},
            Err(_) => {}
        }

        let done = saturating_usize(self.search.needed_from().saturating_sub(self.offset));
        let done = done.min(self.buffer.len());
        self.buffer.copy_within(done.., 0);
        self.buffer.truncate(self.buffer.len() - done);
        self.offset += len_u64(done);
    }
}

/// Tokens on their way into frames.
struct Frames<'a> {
    tokens: &'a mut TokenEncoder,
    frames: &'a mut FrameWriter,
    out: &'a mut Vec<u8>,
}

impl TokenSink for Frames<'_> {
    type Error = Infallible;

    fn start(&mut self, _lead: u32) -> Result<(), Infallible> {
        Ok(())
    }

    fn token(&mut self, token: Token<'_>) -> Result<(), Infallible> {
        self.tokens.push(token);
        if self.tokens.len() >= FULL_PAYLOAD {
            self.frames.frame(&self.tokens.take(), self.out);
        }
        Ok(())
    }
}

/// Bytes searched at once, beside [`PART_BLOCKS`] blocks: so many that moving the rest to the
/// buffer's front costs little, and so few that they stay in the cache.
const PART_LEN: usize = 512 << 10;

/// Blocks of a part: what remains of it is less than five.
const PART_BLOCKS: usize = 8;

/// Payload length at which a frame is written.
const FULL_PAYLOAD: usize = 64 << 10;

/// A payload below the limit takes one more literal with its header and what was pending.
const _: () = assert!(FULL_PAYLOAD + MAX_LITERAL + 100 <= MAX_PAYLOAD);
