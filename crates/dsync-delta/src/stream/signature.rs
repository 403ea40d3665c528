//! Machines that write and read signatures.

use super::{
    error::FormatError,
    format::{FrameReader, FrameWriter, Header, Kind, MAX_LEN, Piece, field},
};
use crate::{
    block::{BlockIndex, BlockLen, Layout},
    cutter::BlockCutter,
    index::IndexedSignature,
    key::Key,
    num::len_u64,
    signature::{BlockSummer, Signature, StrongSum, SumsFormat},
    weak::WeakSum,
};

/// The parameters of a signature.
///
/// ```
/// use dsync_delta::{BlockLen, Key, stream::SignatureOptions};
///
/// // A product that backs up other people's files draws its own key, and keeps it with the signature.
/// let random_bytes = [7; 32];
/// let options = SignatureOptions::for_file(5 << 30).key(Key::from_bytes(random_bytes));
/// assert_eq!(options.block_len, BlockLen::for_file(5 << 30));
/// // Of a pipe nobody knows the length: a fixed choice.
/// assert_eq!(
///     SignatureOptions::new().block_len(BlockLen::new(32 << 10)?).block_len.get(),
///     32 << 10
/// );
/// # Ok::<(), dsync_delta::BlockLenError>(())
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct SignatureOptions {
    /// Length of the blocks. Default: 8 KiB, the choice for files of 64 MiB to some GiB.
    pub block_len: BlockLen,
    /// Key of all sums and roots, which is part of the signature. Default: a fixed key, the same for
    /// everybody.
    ///
    /// # Security
    /// Draw 32 random bytes if somebody else chooses the content of the files. With a key that they
    /// know they can make a delta fail (never rebuild a wrong file).
    pub key: Key,
}

impl SignatureOptions {
    /// Makes the options for a basis of unknown length.
    pub fn new() -> Self {
        Self { block_len: DEFAULT_BLOCK_LEN, key: Key::derive(&[b"dsync stream"]) }
    }

    /// Makes the options for a basis of about `len` bytes ([`BlockLen::for_file`]).
    pub fn for_file(len: u64) -> Self {
        Self { block_len: BlockLen::for_file(len), ..Self::new() }
    }

    /// Sets the block length. Short blocks make a long signature and a short delta; memory of a delta
    /// is proportional to the number of blocks.
    #[must_use]
    pub fn block_len(mut self, block_len: BlockLen) -> Self {
        self.block_len = block_len;
        self
    }

    /// Sets the key.
    #[must_use]
    pub fn key(mut self, key: Key) -> Self {
        self.key = key;
        self
    }
}

impl Default for SignatureOptions {
    fn default() -> Self {
        Self::new()
    }
}

/// The result of writing a signature.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct SignatureCounts {
    /// Length of the basis in bytes.
    pub basis_len: u64,
    /// Number of blocks, including a shorter last one.
    pub block_count: u64,
    /// Length of the signature in bytes.
    pub signature_len: u64,
}

/// Writes the signature of a basis that arrives in pieces of any length.
///
/// Memory: one block and one frame of 48 KiB.
///
/// ```
/// use dsync_delta::stream::{SignatureCounts, SignatureOptions, SignatureWriter};
///
/// let mut out = Vec::new();
/// let mut writer = SignatureWriter::new(&SignatureOptions::new(), &mut out);
/// for piece in [7; 20_000].chunks(700) {
///     writer.push(piece, &mut out);
///     // Send what is in `out`, and clear it.
/// }
/// let SignatureCounts { block_count, signature_len, .. } = writer.finish(&mut out);
/// assert_eq!((block_count, signature_len), (3, out.len() as u64));
/// ```
#[derive(Debug)]
pub struct SignatureWriter {
    summer: BlockSummer,
    cutter: BlockCutter,
    frames: FrameWriter,
    /// Sums that do not fill a frame yet.
    sums: Vec<u8>,
    block_count: u64,
    basis_len: u64,
}

impl SignatureWriter {
    /// Starts a signature and appends its header to `out`.
    pub fn new(options: &SignatureOptions, out: &mut Vec<u8>) -> Self {
        // The length is not known: only the last block's is affected by it, and `sum` takes that from
        // the bytes.
        let layout = Layout::new(MAX_LEN, options.block_len);
        let header = Header { key: options.key.clone(), block_len: options.block_len, basis_len: 0 };
        Self {
            summer: BlockSummer::new(&options.key, layout, SumsFormat::StrongAndWeak),
            cutter: BlockCutter::new(options.block_len.size()),
            frames: FrameWriter::new(Kind::Signature, &header, out),
            sums: Vec::new(),
            block_count: 0,
            basis_len: 0,
        }
    }

    /// Takes the next bytes of the basis; appends to `out` the frames that they complete.
    pub fn push(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        self.basis_len = self.basis_len.saturating_add(len_u64(bytes.len()));
        let mut cutter = std::mem::take(&mut self.cutter);
        cutter.push(bytes, |block| self.add(block, out));
        self.cutter = cutter;
    }

    /// Appends the rest of the signature to `out`.
    pub fn finish(mut self, out: &mut Vec<u8>) -> SignatureCounts {
        std::mem::take(&mut self.cutter).finish(|block| self.add(block, out));
        if !self.sums.is_empty() {
            self.frames.frame(&self.sums, out);
        }
        let signature_len = self.frames.end(&self.basis_len.to_le_bytes(), out);
        SignatureCounts { basis_len: self.basis_len, block_count: self.block_count, signature_len }
    }

    fn add(&mut self, block: &[u8], out: &mut Vec<u8>) {
        let (strong, weak) = self.summer.sum(BlockIndex(self.block_count), block);
        self.block_count += 1;
        self.sums.extend(strong.into_iter().flat_map(|sum| sum.0));
        self.sums.extend(weak.into_iter().flat_map(|sum| sum.0.to_le_bytes()));
        if self.sums.len() >= FRAME_SUMS * SUM_LEN {
            self.frames.frame(&self.sums, out);
            self.sums.clear();
        }
    }
}

/// Reads a signature that arrives in pieces of any length.
///
/// Memory: 12 bytes per block that has arrived, doubled while the list of sums grows, and one frame.
///
/// ```
/// use dsync_delta::stream::{FormatError, SignatureOptions, SignatureReader, signature};
///
/// let mut sent = Vec::new();
/// signature([7; 20_000].as_slice(), &mut sent, &SignatureOptions::new())?;
///
/// let mut reader = SignatureReader::new(1 << 20);
/// for message in sent.chunks(10) {
///     reader.push(message)?;
/// }
/// assert_eq!(reader.finish()?.layout().block_count(), 3);
///
/// let mut cut = SignatureReader::new(1 << 20);
/// cut.push(&sent[..60])?;
/// assert!(matches!(cut.finish(), Err(FormatError::Truncated { .. })));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct SignatureReader {
    frames: FrameReader,
    max_blocks: u64,
    header: Option<Header>,
    strong: Vec<StrongSum>,
    weak: Vec<WeakSum>,
    basis_len: u64,
}

impl SignatureReader {
    /// A limit for callers without one of their own: 2^32 blocks, more than any search uses.
    pub const MAX_BLOCKS: u64 = 1 << 32;

    /// Starts a signature of at most `max_blocks` blocks.
    pub fn new(max_blocks: u64) -> Self {
        let frames = FrameReader::new(Kind::Signature);
        Self { frames, max_blocks, header: None, strong: Vec::new(), weak: Vec::new(), basis_len: 0 }
    }

    /// Takes the next bytes of the signature.
    ///
    /// # Errors
    /// [`FormatError`]. After an error the signature cannot be continued.
    pub fn push(&mut self, mut bytes: &[u8]) -> Result<(), FormatError> {
        while let Some(piece) = self.frames.next(&mut bytes)? {
            match piece {
                Piece::Header(header) => self.header = Some(header),
                Piece::Frame => self.add()?,
                Piece::End => self.basis_len = u64::from_le_bytes(field(self.frames.payload(), 0)),
            }
        }
        Ok(())
    }

    /// Returns the signature, ready to be searched. Cost: a few nanoseconds per block.
    ///
    /// # Errors
    /// [`FormatError::Truncated`] if the end is missing, [`FormatError::BlockCount`].
    pub fn finish(mut self) -> Result<IndexedSignature, FormatError> {
        self.frames.finish()?;
        let Some(header) = self.header else { return Err(FormatError::Truncated { len: 0 }) };
        let layout = Layout::new(self.basis_len, header.block_len);
        let blocks = len_u64(self.strong.len());
        if blocks != layout.block_count() || self.basis_len > MAX_LEN {
            return Err(FormatError::BlockCount { blocks, basis_len: self.basis_len });
        }
        self.strong.shrink_to_fit();
        let signature = Signature::of_parts(layout, self.strong, self.weak);
        Ok(IndexedSignature::new(signature, &header.key))
    }

    fn add(&mut self) -> Result<(), FormatError> {
        let sums = self.frames.payload().chunks_exact(SUM_LEN);
        if !sums.remainder().is_empty() {
            return Err(FormatError::PartialSum);
        }
        if len_u64(self.strong.len() + sums.len()) > self.max_blocks {
            return Err(FormatError::TooManyBlocks { max: self.max_blocks });
        }
        for sum in sums {
            self.strong.push(StrongSum(field(sum, 0)));
            self.weak.push(WeakSum(u32::from_le_bytes(field(sum, StrongSum::LEN))));
        }
        Ok(())
    }
}

/// Block length of a basis of unknown length: right for files of 64 MiB to some GiB (`crate::tuning`),
/// and long enough that BLAKE3 runs at two thirds of its speed. The signature is 0.15 % of the basis.
const DEFAULT_BLOCK_LEN: BlockLen = BlockLen::of_log2(13);

/// Bytes of sums per block.
const SUM_LEN: usize = 12;

/// Sums of a full frame: 48 KiB, so that a signature flows while its basis is still being read.
const FRAME_SUMS: usize = 4096;
