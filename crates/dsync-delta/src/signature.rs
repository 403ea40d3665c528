//! Signatures: the sums of a basis' blocks, made at the destination, read at the source.
//!
//! A strong sum is the first 8 bytes of the block's subtree value in the keyed BLAKE3 tree of the
//! basis. It therefore depends on the block's position: to compare a window with block `i`, hash
//! the window as if it lay at block `i`. In return the same values, at full length, merge into the
//! file's root, so an unchanged block is hashed once for both purposes.
//!
//! **Odds.** A false match costs a retry, never a wrong file, because the root decides. A source
//! that tests `t` windows accepts a wrong one with probability below `t * 2^-64`. A search makes at
//! most one test per block in the aligned pass and a bounded number of tests per weak hit; for 1
//! TiB in 128 KiB blocks with every offset rolled, and a weak sum worth only 24 bits, that is
//! `2^40 * 2^-24` tests by chance, and odds of `2^-48`. An author of content who does not know the
//! key has no better way than chance.
//!
//! Weak sums add half as much again on the wire, and unchanged or overwritten data never needs
//! them. A long basis is therefore signed with strong sums only. Its weak sums follow when the
//! source requests them ([`SumsFormat::WeakOnly`], [`crate::refine`]).
//!
//! **Encoding**: per block, in order, 8 bytes of strong sum and 4 bytes of weak sum, little-endian,
//! each only if the [`SumsFormat`] includes it. The layout is sent separately.

use blake3::hazmat::{ChainingValue, HasherExt};

use crate::{
    block::{BlockIndex, BlockRun, Layout},
    coverage::Coverage,
    key::Key,
    num::{len_u64, saturating_usize},
    parallel,
    read::{ReadAt, read_full},
    weak::{WeakSecret, WeakSum},
};

/// The strong sum of a block: evidence within the odds stated above.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub(crate) struct StrongSum(pub(crate) [u8; Self::LEN]);

impl StrongSum {
    /// Length of a strong sum in bytes.
    pub(crate) const LEN: usize = 8;

    /// Truncates a subtree value.
    pub(crate) fn of(value: &[u8; 32]) -> Self {
        let [a, b, c, d, e, f, g, h, ..] = *value;
        Self([a, b, c, d, e, f, g, h])
    }
}

/// The sums that a signature carries per block.
///
/// ```
/// use dsync_delta::SumsFormat;
///
/// // The bytes that a signature of 1000 blocks takes on the wire.
/// let encoded = |format: SumsFormat| 1000 * format.bytes_per_block();
/// assert_eq!(
///     encoded(SumsFormat::StrongOnly) + encoded(SumsFormat::WeakOnly),
///     encoded(SumsFormat::default())
/// );
/// assert!(SumsFormat::default().has_strong() && SumsFormat::default().has_weak());
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum SumsFormat {
    /// Strong sums only, 8 bytes per block: finds unchanged and overwritten data, not shifts.
    StrongOnly,
    /// Strong and weak sums, 12 bytes per block: finds blocks at every offset.
    #[default]
    StrongAndWeak,
    /// Weak sums only, 4 bytes per block: the complement of a signature of strong sums
    /// ([`IndexedSignature::add_weak`](crate::IndexedSignature::add_weak)). Finds nothing by
    /// itself.
    WeakOnly,
}

impl SumsFormat {
    /// Returns the number of encoded bytes per block.
    pub fn bytes_per_block(self) -> usize {
        let strong = if self.has_strong() { StrongSum::LEN } else { 0 };
        let weak = if self.has_weak() { size_of::<WeakSum>() } else { 0 };
        strong + weak
    }

    /// Returns whether the format includes strong sums.
    pub fn has_strong(self) -> bool {
        self != Self::WeakOnly
    }

    /// Returns whether the format includes weak sums.
    pub fn has_weak(self) -> bool {
        self != Self::StrongOnly
    }
}

/// The sums of all blocks of a basis. [`IndexedSignature`](crate::IndexedSignature) makes it
/// searchable.
///
/// ```
/// use dsync_delta::{BlockLen, Key, Layout, SignatureBuilder, SignatureDecoder, SumsFormat};
///
/// let layout = Layout::new(5000, BlockLen::MIN);
/// let mut builder = SignatureBuilder::new(&Key::from_bytes([7; 32]), layout);
/// builder.update(&[1; 5000]);
/// // The strong sums travel now, the weak ones if the source asks for them.
/// let (strong, weak) = builder.finish()?.split();
/// assert_eq!((strong.encode().len(), weak.encode().len()), (5 * 8, 5 * 4));
///
/// let mut decoder = SignatureDecoder::new(layout, SumsFormat::StrongOnly, 1 << 20)?;
/// decoder.push(&strong.encode())?;
/// assert_eq!(decoder.finish()?, strong);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Signature {
    layout: Layout,
    /// The blocks that have sums here, in the order of the sums.
    coverage: Coverage,
    /// One for each block, or none.
    strong: Vec<StrongSum>,
    /// One for each block, or none.
    weak: Vec<WeakSum>,
    format: SumsFormat,
}

impl Signature {
    /// Returns the basis' division into blocks.
    pub fn layout(&self) -> Layout {
        self.layout
    }

    /// Returns the kind of sums.
    pub fn format(&self) -> SumsFormat {
        self.format
    }

    /// Encodes the sums: [`SumsFormat::bytes_per_block`] times the number of blocks.
    pub fn encode(&self) -> Vec<u8> {
        self.encode_from(0, self.format)
    }

    /// Encodes the sums of the blocks from `first` on, in the kinds that `format` and this signature
    /// include.
    pub(crate) fn encode_from(&self, first: usize, format: SumsFormat) -> Vec<u8> {
        let blocks = self.summed_blocks();
        let strong = if format.has_strong() { self.strong.as_slice() } else { &[] };
        let weak = if format.has_weak() { self.weak.as_slice() } else { &[] };
        let count = blocks.saturating_sub(first);
        let mut bytes = Vec::with_capacity(count.saturating_mul(format.bytes_per_block()));
        for block in first..blocks {
            if let Some(strong) = strong.get(block) {
                bytes.extend_from_slice(&strong.0);
            }
            if let Some(weak) = weak.get(block) {
                bytes.extend_from_slice(&weak.0.to_le_bytes());
            }
        }
        bytes
    }

    /// Splits the sums into a signature of strong sums, to send first, and one of weak sums, to
    /// keep for a later request. If the format has only one kind, the other signature is empty.
    ///
    /// Computing both sums of a block at once costs a fraction of reading it again.
    pub fn split(self) -> (Self, Self) {
        let Self { layout, coverage, strong, weak, .. } = self;
        let (kept, format) = (coverage.clone(), SumsFormat::WeakOnly);
        (
            Self { layout, coverage, strong, weak: Vec::new(), format: SumsFormat::StrongOnly },
            Self { layout, coverage: kept, strong: Vec::new(), weak, format },
        )
    }

    /// Returns the blocks that have sums here.
    pub(crate) fn coverage(&self) -> &Coverage {
        &self.coverage
    }

    /// Returns the blocks that have sums here, and their strong and weak sums as far as the format
    /// includes them.
    pub(crate) fn into_parts(self) -> (Coverage, Vec<StrongSum>, Vec<WeakSum>) {
        (self.coverage, self.strong, self.weak)
    }

    /// Makes a signature without any sums.
    fn empty(layout: Layout, coverage: Coverage, format: SumsFormat) -> Self {
        Self { layout, coverage, strong: Vec::new(), weak: Vec::new(), format }
    }

    /// Makes a signature without any sums, with room for the first ones. A layout may be of more blocks
    /// than there is memory for, so the rest grows with the blocks that there really are.
    pub(crate) fn with_room(layout: Layout, coverage: Coverage, format: SumsFormat) -> Self {
        let blocks = saturating_usize(coverage.block_count()).min(FIRST_ROOM);
        let mut signature = Self::empty(layout, coverage, format);
        if format.has_strong() {
            signature.strong.reserve_exact(blocks);
        }
        if format.has_weak() {
            signature.weak.reserve_exact(blocks);
        }
        signature
    }

    /// Makes a signature with both sums of all blocks. Their number must be the layout's.
    pub(crate) fn of_parts(layout: Layout, strong: Vec<StrongSum>, weak: Vec<WeakSum>) -> Self {
        Self { layout, coverage: Coverage::whole(layout), strong, weak, format: SumsFormat::StrongAndWeak }
    }

    /// Returns the number of blocks whose sums are here.
    pub(crate) fn summed_blocks(&self) -> usize {
        self.strong.len().max(self.weak.len())
    }

    /// Adds the sums of the next blocks.
    pub(crate) fn extend(&mut self, strong: &[StrongSum], weak: &[WeakSum]) {
        self.make_room(strong.len(), weak.len());
        self.strong.extend_from_slice(strong);
        self.weak.extend_from_slice(weak);
    }

    /// Adds the sums of the next block.
    fn push(&mut self, strong: Option<StrongSum>, weak: Option<WeakSum>) {
        self.make_room(strong.iter().len(), weak.iter().len());
        self.strong.extend(strong);
        self.weak.extend(weak);
    }

    /// Makes room for further sums: twice as much as before, but for no more blocks than there are.
    fn make_room(&mut self, strong: usize, weak: usize) {
        let blocks = saturating_usize(self.coverage.block_count());
        reserve(&mut self.strong, strong, blocks);
        reserve(&mut self.weak, weak, blocks);
    }
}

fn reserve<T>(sums: &mut Vec<T>, more: usize, blocks: usize) {
    if sums.capacity() - sums.len() < more {
        let left = blocks.saturating_sub(sums.len());
        sums.reserve_exact(sums.len().min(left).max(more));
    }
}

/// The sums of one block, as far as the format includes them.
pub(crate) type Sums = (Option<StrongSum>, Option<WeakSum>);

/// Computes the sums of one block.
#[derive(Debug, Clone)]
pub(crate) struct BlockSummer {
    key: Key,
    layout: Layout,
    strong: bool,
    secret: Option<WeakSecret>,
}

impl BlockSummer {
    pub(crate) fn new(key: &Key, layout: Layout, format: SumsFormat) -> Self {
        let secret = format.has_weak().then(|| WeakSecret::new(key));
        Self { key: key.clone(), layout, strong: format.has_strong(), secret }
    }

    /// Computes the sums of a whole block; `bytes` must not be empty.
    pub(crate) fn sum(&self, block: BlockIndex, bytes: &[u8]) -> Sums {
        let strong = self.strong.then(|| StrongSum::of(&self.value(block, bytes)));
        (strong, self.weak(bytes))
    }

    /// Computes the subtree value of a whole block.
    pub(crate) fn value(&self, block: BlockIndex, bytes: &[u8]) -> ChainingValue {
        let start = self.layout.range(block).start;
        self.key.hasher().set_input_offset(start).update(bytes).finalize_non_root()
    }

    /// Computes the weak sum of a whole block, if the format has them.
    pub(crate) fn weak(&self, bytes: &[u8]) -> Option<WeakSum> {
        self.secret.map(|secret| secret.sum(bytes))
    }

    /// Reads and sums a run of blocks that lies in the layout.
    fn sum_run<R: ReadAt>(
        &self,
        run: BlockRun,
        basis: &R,
        buffer: &mut Vec<u8>,
    ) -> Result<Vec<Sums>, SignatureError<R::Error>> {
        let Some(range) = self.layout.run_range(run) else {
            return Ok(Vec::new());
        };
        let first = run.first().0;
        let place = saturating_usize(range.start)..saturating_usize(range.end);
        if let Some(bytes) = basis.as_slice().and_then(|file| file.get(place)) {
            return Ok(self.sum_blocks(first, bytes));
        }
        buffer.resize(saturating_usize(range.end - range.start), 0);
        let got = read_full(basis, range.start, buffer).map_err(SignatureError::Read)?;
        if got < buffer.len() {
            let got = range.start.saturating_add(len_u64(got));
            return Err(SignatureError::WrongLength { expected: self.layout.file_len(), got });
        }
        Ok(self.sum_blocks(first, buffer))
    }

    /// Computes the sums of whole blocks, the last of which may be short.
    fn sum_blocks(&self, first: u64, bytes: &[u8]) -> Vec<Sums> {
        let blocks = bytes.chunks(self.layout.block_len().size());
        (first..).zip(blocks).map(|(block, bytes)| self.sum(BlockIndex(block), bytes)).collect()
    }
}

/// Makes a signature of a basis fed in order, in pieces of any length.
///
/// Memory: the sums, 12 bytes per block, and one block.
///
/// ```
/// use dsync_delta::{BlockLen, Key, Layout, SignatureBuilder, SumsFormat};
///
/// let (key, layout) = (Key::from_bytes([7; 32]), Layout::new(5000, BlockLen::MIN));
/// let mut builder = SignatureBuilder::with_format(&key, layout, SumsFormat::StrongOnly);
/// for piece in [1; 5000].chunks(700) {
///     builder.update(piece);
/// }
/// assert_eq!(builder.finish()?.encode().len(), 5 * 8);
/// // A basis that was cut short meanwhile is an error.
/// assert!(SignatureBuilder::new(&key, layout).finish().is_err());
/// # Ok::<(), dsync_delta::SignatureError>(())
/// ```
#[derive(Debug)]
pub struct SignatureBuilder {
    summer: BlockSummer,
    signature: Signature,
    /// The beginning of the next block, if a piece ended inside it.
    partial: Vec<u8>,
    got: u64,
}

impl SignatureBuilder {
    /// Starts a signature with strong and weak sums.
    pub fn new(key: &Key, layout: Layout) -> Self {
        Self::with_format(key, layout, SumsFormat::default())
    }

    /// Starts a signature with the sums of `format`.
    pub fn with_format(key: &Key, layout: Layout, format: SumsFormat) -> Self {
        Self {
            summer: BlockSummer::new(key, layout, format),
            signature: Signature::with_room(layout, Coverage::whole(layout), format),
            partial: Vec::new(),
            got: 0,
        }
    }

    /// Takes the next bytes of the basis. Bytes beyond the layout's file length are only counted,
    /// and [`finish`](Self::finish) reports them.
    pub fn update(&mut self, bytes: &[u8]) {
        let room = saturating_usize(self.signature.layout.file_len().saturating_sub(self.got));
        self.got = self.got.saturating_add(len_u64(bytes.len()));
        let mut bytes = &bytes[..bytes.len().min(room)];
        let block_len = self.signature.layout.block_len().size();
        if !self.partial.is_empty() {
            let missing = (block_len - self.partial.len()).min(bytes.len());
            self.partial.extend_from_slice(&bytes[..missing]);
            bytes = &bytes[missing..];
            if self.partial.len() < block_len {
                return;
            }
            let block = std::mem::take(&mut self.partial);
            self.add(&block);
            self.partial = block;
            self.partial.clear();
        }
        let blocks = bytes.chunks_exact(block_len);
        self.partial.extend_from_slice(blocks.remainder());
        for block in blocks {
            self.add(block);
        }
    }

    /// Returns the signature.
    ///
    /// # Errors
    /// [`SignatureError::WrongLength`] unless exactly the layout's bytes were fed in: the basis
    /// changed while it was read.
    pub fn finish(mut self) -> Result<Signature, SignatureError> {
        let expected = self.signature.layout.file_len();
        if self.got != expected {
            return Err(SignatureError::WrongLength { expected, got: self.got });
        }
        if !self.partial.is_empty() {
            let block = std::mem::take(&mut self.partial);
            self.add(&block);
        }
        Ok(self.signature)
    }

    fn add(&mut self, bytes: &[u8]) {
        let block = BlockIndex(len_u64(self.signature.summed_blocks()));
        let (strong, weak) = self.summer.sum(block, bytes);
        self.signature.push(strong, weak);
    }
}

/// Makes a signature of a basis on all threads of the current rayon pool, or without the feature
/// `rayon` on the calling thread.
///
/// Memory: the sums, and 1 MiB (or one block) per thread.
///
/// # Errors
/// [`SignatureError::Read`], and [`SignatureError::WrongLength`] if the basis is shorter than its
/// layout.
pub fn signature_parallel<R>(
    key: &Key,
    layout: Layout,
    format: SumsFormat,
    basis: &R,
) -> Result<Signature, SignatureError<R::Error>>
where
    R: ReadAt + Sync,
    R::Error: Send,
{
    signature_of(key, layout, &Coverage::whole(layout), format, basis)
}

/// Makes a signature of some blocks of a basis on all threads of the current rayon pool.
pub(crate) fn signature_of<R>(
    key: &Key,
    layout: Layout,
    coverage: &Coverage,
    format: SumsFormat,
    basis: &R,
) -> Result<Signature, SignatureError<R::Error>>
where
    R: ReadAt + Sync,
    R::Error: Send,
{
    let summer = BlockSummer::new(key, layout, format);
    let stretch = (READ_LEN / layout.block_len().bytes()).max(1);
    let sum = |buffer: &mut Vec<u8>, run| summer.sum_run(run, basis, buffer);
    let mut signature = Signature::with_room(layout, coverage.clone(), format);
    let mut stretches = coverage.stretches(stretch);

    // A list of all stretches of a vast layout would not fit in memory.
    loop {
        let batch: Vec<_> = stretches.by_ref().take(BATCH).collect();
        if batch.is_empty() {
            return Ok(signature);
        }
        for (strong, weak) in parallel::try_map(batch, Vec::new, sum)?.into_iter().flatten() {
            signature.push(strong, weak);
        }
    }
}

/// The reason why a signature could not be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SignatureError<E = std::convert::Infallible> {
    /// The basis is not as long as its layout says.
    #[error("basis has {got} bytes instead of {expected}")]
    WrongLength {
        /// Length of the file in the layout, in bytes.
        expected: u64,
        /// Number of bytes fed in.
        got: u64,
    },
    /// The basis could not be read.
    #[error("cannot read the basis")]
    Read(#[source] E),
}

/// Reads a peer's encoded signature, fed in pieces of any length.
///
/// # Security
/// The peer controls everything. Nothing is allocated before the number of blocks has passed
/// `max_blocks`. After that, memory grows with the bytes that really arrive.
///
/// ```
/// use dsync_delta::{BlockLen, Layout, SignatureDecoder, SumsError, SumsFormat};
///
/// let layout = Layout::new(2000, BlockLen::MIN);
/// let mut decoder = SignatureDecoder::new(layout, SumsFormat::StrongOnly, 1 << 20)?;
/// decoder.push(&[0; 10])?;
/// decoder.push(&[0; 6])?;
/// assert!(decoder.is_full());
/// assert_eq!(decoder.finish()?.layout(), layout);
///
/// // A peer that lays out too many blocks is refused before memory is set aside.
/// let vast = Layout::new(1 << 50, BlockLen::MIN);
/// let refused = SignatureDecoder::new(vast, SumsFormat::StrongOnly, 1 << 20);
/// assert!(matches!(refused, Err(SumsError::TooManyBlocks { .. })));
/// # Ok::<(), SumsError>(())
/// ```
#[derive(Debug)]
pub struct SignatureDecoder {
    signature: Signature,
    block_count: u64,
    /// The beginning of the next block's sums, if a piece ended inside them.
    partial: Vec<u8>,
}

impl SignatureDecoder {
    /// Starts a signature of a basis that the peer laid out.
    ///
    /// # Errors
    /// [`SumsError::TooManyBlocks`].
    pub fn new(layout: Layout, format: SumsFormat, max_blocks: u64) -> Result<Self, SumsError> {
        Self::of(layout, Coverage::whole(layout), format, max_blocks)
    }

    /// Starts a signature of some blocks.
    pub(crate) fn of(
        layout: Layout,
        coverage: Coverage,
        format: SumsFormat,
        max_blocks: u64,
    ) -> Result<Self, SumsError> {
        let block_count = coverage.block_count();
        if block_count > max_blocks {
            return Err(SumsError::TooManyBlocks { blocks: block_count, max: max_blocks });
        }
        let signature = Signature::empty(layout, coverage, format);
        Ok(Self { signature, block_count, partial: Vec::new() })
    }

    /// Reads the next bytes.
    ///
    /// # Errors
    /// [`SumsError::TooLong`] as soon as there are more sums than blocks.
    pub fn push(&mut self, mut bytes: &[u8]) -> Result<(), SumsError> {
        let unit = self.signature.format.bytes_per_block();
        if !self.partial.is_empty() {
            let missing = (unit - self.partial.len()).min(bytes.len());
            self.partial.extend_from_slice(&bytes[..missing]);
            bytes = &bytes[missing..];
            if self.partial.len() < unit {
                return Ok(());
            }
            let sums = std::mem::take(&mut self.partial);
            self.add(&sums)?;
        }
        let units = bytes.chunks_exact(unit);
        self.partial.extend_from_slice(units.remainder());
        for sums in units {
            self.add(sums)?;
        }
        if self.is_full() && !self.partial.is_empty() {
            return Err(SumsError::TooLong { blocks: self.block_count });
        }
        Ok(())
    }

    /// Returns whether the sums of every block have arrived.
    pub fn is_full(&self) -> bool {
        len_u64(self.signature.summed_blocks()) == self.block_count
    }

    /// Returns the signature.
    ///
    /// # Errors
    /// [`SumsError::Truncated`] if sums are missing.
    pub fn finish(self) -> Result<Signature, SumsError> {
        if !self.is_full() {
            let got = len_u64(self.signature.summed_blocks());
            return Err(SumsError::Truncated { blocks: self.block_count, got });
        }
        Ok(self.signature)
    }

    fn add(&mut self, sums: &[u8]) -> Result<(), SumsError> {
        if self.is_full() {
            return Err(SumsError::TooLong { blocks: self.block_count });
        }
        let strong_len = if self.signature.format.has_strong() { StrongSum::LEN } else { 0 };
        let (strong, weak) = sums.split_at(strong_len.min(sums.len()));
        let strong = strong.first_chunk().map(|&strong| StrongSum(strong));
        let weak = weak.first_chunk().map(|&weak| WeakSum(u32::from_le_bytes(weak)));
        self.signature.push(strong, weak);
        Ok(())
    }
}

/// The reason why encoded sums were rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SumsError {
    /// The basis has more blocks than this end is willing to keep sums of.
    #[error("signature of {blocks} blocks, at most {max} are allowed")]
    TooManyBlocks {
        /// Number of blocks.
        blocks: u64,
        /// The limit.
        max: u64,
    },
    /// More sums than blocks.
    #[error("more sums than the {blocks} blocks of the basis")]
    TooLong {
        /// Number of blocks.
        blocks: u64,
    },
    /// Fewer sums than blocks.
    #[error("sums of {got} blocks out of {blocks}")]
    Truncated {
        /// Number of blocks.
        blocks: u64,
        /// Number of blocks whose sums arrived complete.
        got: u64,
    },
}

/// Bytes per read: page-cache reads are fastest from 256 KiB to 1 MiB.
const READ_LEN: u64 = 1 << 20;

/// Sums that have room from the start: 768 KiB of both kinds.
const FIRST_ROOM: usize = 64 << 10;

/// Stretches whose sums are made at once, 4 GiB of a basis: threads wait for each other after them.
const BATCH: usize = 4 << 10;

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{
        block::BlockLen,
        testing::{OnDisk, key, noise, signature},
    };

    const FORMATS: [SumsFormat; 3] =
        [SumsFormat::StrongOnly, SumsFormat::StrongAndWeak, SumsFormat::WeakOnly];

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

        #[test]
        fn law_signature_does_not_depend_on_pieces(
            len in 0_usize..50_000,
            pieces in prop::collection::vec(1_usize..9000, 1..20),
        ) {
            let basis = noise(1, len);
            for format in FORMATS {
                let whole = signature(&basis, 2048, format);
                let mut builder = SignatureBuilder::with_format(&key(), whole.layout(), format);
                let mut rest = basis.as_slice();
                for &piece in pieces.iter().cycle() {
                    let (now, later) = rest.split_at(piece.min(rest.len()));
                    builder.update(now);
                    rest = later;
                    if rest.is_empty() {
                        break;
                    }
                }
                prop_assert_eq!(&builder.finish().unwrap(), &whole);
                let parallel = signature_parallel(&key(), whole.layout(), format, &basis).unwrap();
                prop_assert_eq!(&parallel, &whole);
                let read = signature_parallel(&key(), whole.layout(), format, &OnDisk(&basis)).unwrap();
                prop_assert_eq!(&read, &whole);
            }
        }

        #[test]
        fn law_decoding_inverts_encoding(len in 0_usize..50_000, piece in 1_usize..100) {
            for format in FORMATS {
                let signature = signature(&noise(2, len), 1024, format);
                let bytes = signature.encode();
                let blocks = signature.layout().block_count();
                prop_assert_eq!(len_u64(bytes.len()), blocks * len_u64(format.bytes_per_block()));
                let mut decoder = SignatureDecoder::new(signature.layout(), format, blocks).unwrap();
                for piece in bytes.chunks(piece) {
                    decoder.push(piece).unwrap();
                }
                prop_assert_eq!(decoder.push(&[0]), Err(SumsError::TooLong { blocks }));
                let mut decoder = SignatureDecoder::new(signature.layout(), format, blocks).unwrap();
                decoder.push(&bytes).unwrap();
                prop_assert_eq!(decoder.finish().unwrap(), signature);
            }
        }
    }

    #[test]
    fn too_many_blocks_are_rejected_before_any_allocation() {
        let layout = Layout::new(u64::MAX, BlockLen::MIN);
        let error = SignatureDecoder::new(layout, SumsFormat::default(), 1 << 24).unwrap_err();
        assert_eq!(error, SumsError::TooManyBlocks { blocks: 1 << 54, max: 1 << 24 });
    }

    #[test]
    fn missing_sums_are_an_error() {
        let layout = Layout::new(5000, BlockLen::MIN);
        let mut decoder = SignatureDecoder::new(layout, SumsFormat::StrongAndWeak, 100).unwrap();
        decoder.push(&[1; 5 * 12 - 1]).unwrap();
        assert_eq!(decoder.finish(), Err(SumsError::Truncated { blocks: 5, got: 4 }));
    }

    #[test]
    fn basis_of_another_length_is_an_error() {
        for len in [0, 4999, 5001, 9000] {
            let layout = Layout::new(5000, BlockLen::MIN);
            let mut builder = SignatureBuilder::new(&key(), layout);
            builder.update(&noise(1, len));
            assert!(builder.finish().is_err());
        }
        let layout = Layout::new(5000, BlockLen::MIN);
        let short = signature_parallel(&key(), layout, SumsFormat::default(), &noise(1, 4999));
        assert_eq!(short, Err(SignatureError::WrongLength { expected: 5000, got: 4999 }));
    }

    #[test]
    fn layout_of_more_blocks_than_memory_costs_what_is_there() {
        for file_len in [1 << 50, u64::MAX] {
            let layout = Layout::new(file_len, BlockLen::MIN);
            let mut builder = SignatureBuilder::new(&key(), layout);
            builder.update(&[5; 5000]);
            assert!(builder.finish().is_err());
            let read = signature_parallel(&key(), layout, SumsFormat::default(), &noise(1, 5000));
            assert!(matches!(read, Err(SignatureError::WrongLength { .. })));
        }
    }

    #[test]
    fn sums_take_no_more_room_than_there_are_blocks() {
        let blocks = 3 * FIRST_ROOM / 2 + 7;
        let layout = Layout::new(len_u64(blocks) << 10, BlockLen::MIN);
        let mut builder = SignatureBuilder::new(&key(), layout);
        (0..blocks).for_each(|_| builder.update(&[5; 1 << 10]));
        let signature = builder.finish().unwrap();
        assert_eq!((signature.strong.capacity(), signature.weak.capacity()), (blocks, blocks));
    }

    /// Version 1 of the sums: a different result here means a different protocol version.
    #[test]
    fn golden_signature_of_version_1() {
        let basis: Vec<u8> = (0..2500_u32).flat_map(|n| n.to_le_bytes()).take(2500).collect();
        let encoded = |format| signature(&basis, 1024, format).encode();
        let bytes = encoded(SumsFormat::StrongAndWeak);
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, GOLDEN);
        let (strong, weak): (Vec<_>, Vec<_>) = bytes.chunks(12).map(|sums| sums.split_at(8)).unzip();
        assert_eq!(encoded(SumsFormat::StrongOnly), strong.concat());
        assert_eq!(encoded(SumsFormat::WeakOnly), weak.concat());
        let (first, kept) = signature(&basis, 1024, SumsFormat::StrongAndWeak).split();
        assert_eq!((first.encode(), kept.encode()), (strong.concat(), weak.concat()));
    }

    const GOLDEN: &str = "9ee6c488b132a7c18033271fb7066306a2c9881b80211dd68cfc0191826f6dec3857f013";
}
