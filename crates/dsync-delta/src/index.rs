//! The index: a signature made searchable.
//!
//! Weak sums are looked up in two steps. A bit filter that stays in the processor's second-level
//! cache answers "no" for almost every offset of unrelated data. A weak sum that passes is looked
//! up by binary search in its bucket. If a peer sends one weak sum for all blocks, each hit
//! therefore costs only a logarithm. The search bounds how many blocks of one weak sum are
//! compared.

use std::sync::OnceLock;

use blake3::hazmat::{ChainingValue, HasherExt};

use crate::{
    arriving::StrongSums,
    block::{BlockIndex, Layout},
    coverage::Coverage,
    key::Key,
    num::{len_u64, saturating_usize},
    segment::Segments,
    signature::{Signature, StrongSum, SumsFormat},
    weak::{Roll, WeakSecret, WeakSum},
};

/// A signature that can be searched from many threads at once.
///
/// Memory: 8 bytes per block for the strong sums and, with weak sums, about 12 more.
///
/// ```
/// use dsync_delta::{BlockLen, IndexedSignature, Key, Layout, MemoryDelta, SignatureBuilder};
///
/// let (key, basis) =
///     (Key::from_bytes([7; 32]), Vec::from_iter((0..20_000).flat_map(u16::to_le_bytes)));
/// let mut builder = SignatureBuilder::new(&key, Layout::new(40_000, BlockLen::MIN));
/// builder.update(&basis);
/// let (strong, weak) = builder.finish()?.split();
///
/// // Strong sums alone find what stays in its place, and of what has moved no more than the last block.
/// let index = IndexedSignature::new(strong, &key);
/// let moved = [b"!".as_slice(), &basis].concat();
/// assert!(MemoryDelta::new(&index, &moved)?.matched_bytes() < 1024);
///
/// index.add_weak(weak)?;
/// assert!(index.has_weak());
/// assert_eq!(MemoryDelta::new(&index, &moved)?.matched_bytes(), 40_000);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct IndexedSignature {
    key: Key,
    layout: Layout,
    coverage: Coverage,
    strong: StrongSums,
    /// Unset as long as there are only strong sums; `None` if no block has full length.
    weak: OnceLock<Option<WeakIndex>>,
}

impl IndexedSignature {
    /// Indexes a signature made under `key`. Cost: a few nanoseconds per block.
    pub fn new(signature: Signature, key: &Key) -> Self {
        let layout = signature.layout();
        let format = signature.format();
        let (coverage, strong, sums) = signature.into_parts();
        let weak = OnceLock::new();
        if format.has_weak() {
            // A new lock is unset, so it takes the value.
            let _: Result<(), _> = weak.set(WeakIndex::of(sums, layout, &coverage, key));
        }
        let strong = StrongSums::whole(&strong);
        Self { key: key.clone(), layout, coverage, strong, weak }
    }

    /// Makes the index of all blocks of a basis, whose strong sums are still to come.
    pub(crate) fn arriving(layout: Layout, key: &Key, strong: StrongSums) -> Self {
        let (coverage, weak) = (Coverage::whole(layout), OnceLock::new());
        Self { key: key.clone(), layout, coverage, strong, weak }
    }

    /// Returns whether all strong sums are here that a search of this segment by position may need:
    /// always, unless they are [arriving](crate::ArrivingSignature).
    pub fn is_ready_for(&self, segments: Segments, segment: u64) -> bool {
        // A search looks one block ahead of the last one that may begin in the segment.
        let ahead = 2 * self.layout.block_len().bytes();
        let end = segments.range(segment).end.saturating_add(ahead);
        let blocks = self.layout.block_count();
        // The basis' last block, where it is short, is looked for at the end of the new file.
        let at_end = end >= segments.file_len();
        let needed = if at_end { blocks } else { blocks.min(end.div_ceil(self.layout.block_len().bytes())) };
        self.coverage
            .slot(BlockIndex(needed.saturating_sub(1)))
            .is_none_or(|last| self.strong.reach(last + 1))
    }

    /// Adds the weak sums that a [`SumsFormat::StrongOnly`] signature lacks. Searches that begin
    /// later also roll. Cost: a few nanoseconds per block.
    ///
    /// # Errors
    /// [`AddWeakError`].
    ///
    /// # Security
    /// Whoever made the sums controls what passes the filter. The bounds of a search hold for any
    /// sums.
    pub fn add_weak(&self, signature: Signature) -> Result<(), AddWeakError> {
        let completes = signature.format() == SumsFormat::WeakOnly
            && signature.layout() == self.layout
            && signature.coverage() == &self.coverage;
        if !completes {
            return Err(AddWeakError::Foreign);
        }
        let (_, _, sums) = signature.into_parts();
        let weak = WeakIndex::of(sums, self.layout, &self.coverage, &self.key);
        self.weak.set(weak).map_err(|_| AddWeakError::Twice)
    }

    /// Returns whether a search finds blocks at every offset, not only where they are expected.
    pub fn has_weak(&self) -> bool {
        self.weak.get().is_some()
    }

    /// Returns the basis' division into blocks.
    pub fn layout(&self) -> Layout {
        self.layout
    }

    /// Returns the key of all sums and roots.
    pub fn key(&self) -> &Key {
        &self.key
    }

    /// Returns the strong sums.
    pub(crate) fn strong(&self) -> &StrongSums {
        &self.strong
    }

    /// Returns the index of the full blocks' weak sums; `None` if there is none.
    pub(crate) fn weak(&self) -> Option<&WeakIndex> {
        self.weak.get()?.as_ref()
    }

    /// Hashes a window as if it lay at `block` and compares the sums. Returns `None` if the block
    /// has no sum or another length.
    pub(crate) fn compare(&self, block: BlockIndex, window: &[u8]) -> Option<(bool, ChainingValue)> {
        let range = self.layout.range(block);
        if window.is_empty() || range.end - range.start != len_u64(window.len()) {
            return None;
        }
        let expected = self.strong.get(self.coverage.slot(block)?)?;
        let value = self.key.hasher().set_input_offset(range.start).update(window).finalize_non_root();
        Some((*expected == StrongSum::of(&value), value))
    }

    /// Returns at most `max` blocks that have exactly this weak sum, starting with those from
    /// `near` on.
    pub(crate) fn candidates(
        &self,
        sum: WeakSum,
        near: BlockIndex,
        max: usize,
    ) -> impl Iterator<Item = BlockIndex> + '_ {
        let near = self.coverage.slot(near).unwrap_or(near.0);
        let slots = self.weak().into_iter().flat_map(move |weak| weak.candidates(sum, near, max));
        slots.map(|slot| self.coverage.block(slot))
    }
}

/// The reason why weak sums were not added to a signature.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AddWeakError {
    /// The sums are for other blocks, or not only weak sums.
    #[error("the weak sums belong to another signature")]
    Foreign,
    /// The signature already has weak sums.
    #[error("the signature has weak sums already")]
    Twice,
}

/// Slots of blocks by weak sum.
#[derive(Debug)]
pub(crate) struct WeakIndex {
    secret: WeakSecret,
    filter: Filter,
    /// Entries by bucket; within a bucket by weak sum, then by slot.
    entries: Vec<Entry>,
    /// Start of each bucket in `entries`, and the end of the last one.
    starts: Vec<u32>,
    bucket_shift: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
struct Entry {
    weak: WeakSum,
    slot: u32,
}

impl WeakIndex {
    /// Indexes the weak sums of all blocks of full length; returns `None` if there are none.
    fn of(mut sums: Vec<WeakSum>, layout: Layout, coverage: &Coverage, key: &Key) -> Option<Self> {
        // A short last block is matched by position only.
        if coverage.slot(BlockIndex(layout.full_block_count())).is_some() {
            sums.pop();
        }
        (!sums.is_empty()).then(|| Self::new(&sums, key))
    }

    /// Indexes the weak sums of the slots from 0 on.
    fn new(weak: &[WeakSum], key: &Key) -> Self {
        // Blocks beyond 2^32 are found by position only.
        let weak = &weak[..weak.len().min(saturating_usize(u64::from(u32::MAX)))];
        let bucket_log2 = weak.len().next_power_of_two().trailing_zeros().min(MAX_BUCKETS_LOG2);
        let bucket_shift = u32::BITS - bucket_log2;
        let mut starts = vec![0_u32; (1 << bucket_log2) + 1];
        for &sum in weak {
            starts[bucket(sum, bucket_shift) + 1] += 1;
        }
        for position in 1..starts.len() {
            starts[position] += starts[position - 1];
        }
        let mut entries = vec![Entry::default(); weak.len()];
        let mut next = starts.clone();
        for (slot, &sum) in (0..).zip(weak) {
            let place = &mut next[bucket(sum, bucket_shift)];
            entries[position(*place)] = Entry { weak: sum, slot };
            *place += 1;
        }
        for bounds in starts.windows(2) {
            entries[position(bounds[0])..position(bounds[1])].sort_unstable();
        }
        Self { secret: WeakSecret::new(key), filter: Filter::new(weak), entries, starts, bucket_shift }
    }

    /// Finds the first offset passed by `roll` whose weak sum may be that of a block.
    ///
    /// `roll` holds the window at the first offset. `out` and `into` are the bytes that leave and
    /// enter at each step. After `Some(n)`, `roll` holds the window `n` steps on; after `None`, the
    /// window behind all of them.
    #[inline]
    pub(crate) fn scan(&self, roll: &mut Roll, out: &[u8], into: &[u8]) -> Option<usize> {
        for (step, (&out, &into)) in out.iter().zip(into).enumerate() {
            if self.filter.may_hold(roll.weak(self.secret)) {
                return Some(step);
            }
            roll.roll(out, into);
        }
        None
    }

    /// Returns whether the window in `roll` may be a block or zeros.
    pub(crate) fn may_hold(&self, roll: Roll) -> bool {
        self.filter.may_hold(roll.weak(self.secret))
    }

    /// Returns the weak sum of the window in `roll`.
    pub(crate) fn weak_of(&self, roll: Roll) -> WeakSum {
        roll.weak(self.secret)
    }

    /// Returns at most `max` slots that have exactly this weak sum, starting with those from `near`
    /// on.
    fn candidates(&self, sum: WeakSum, near: u64, max: usize) -> impl Iterator<Item = u64> + '_ {
        let bucket = bucket(sum, self.bucket_shift);
        let entries = &self.entries[position(self.starts[bucket])..position(self.starts[bucket + 1])];
        let from = entries.partition_point(|entry| entry.weak < sum);
        let class = &entries[from..];
        let class = &class[..class.partition_point(|entry| entry.weak == sum)];
        let (before, after) = class.split_at(class.partition_point(|entry| u64::from(entry.slot) < near));
        after.iter().chain(before.iter().rev()).take(max).map(|entry| u64::from(entry.slot))
    }
}

/// A set of weak sums that may report sums never added but misses none that was.
///
/// Each sum sets two bits in one 64-bit word. A query costs one memory access, and about one in a
/// thousand is a false positive as long as there is a word per sum.
#[derive(Debug)]
struct Filter {
    words: Vec<u64>,
    shift: u32,
}

impl Filter {
    fn new(sums: &[WeakSum]) -> Self {
        let log2 = sums.len().next_power_of_two().trailing_zeros();
        let log2 = log2.clamp(MIN_FILTER_LOG2, MAX_FILTER_LOG2);
        let mut filter = Self { words: vec![0; 1 << log2], shift: u32::BITS - log2 };
        // Windows of zeros must pass: they become zero runs without any block.
        for &sum in sums.iter().chain(&[WeakSum(0)]) {
            let (word, bits) = filter.place(sum);
            filter.words[word] |= bits;
        }
        filter
    }

    #[inline]
    fn may_hold(&self, sum: WeakSum) -> bool {
        let (word, bits) = self.place(sum);
        self.words[word] & bits == bits
    }

    #[inline]
    fn place(&self, sum: WeakSum) -> (usize, u64) {
        let mixed = mix(sum);
        let bits = (1 << ((mixed >> 5) & 63)) | (1 << ((mixed >> 11) & 63));
        (position(mixed >> self.shift) & (self.words.len() - 1), bits)
    }
}

fn bucket(sum: WeakSum, shift: u32) -> usize {
    position(mix(sum).checked_shr(shift).unwrap_or(0))
}

/// Mixes a weak sum so that its top bits depend on all others (Fibonacci hashing, odd multiplier).
#[inline]
fn mix(sum: WeakSum) -> u32 {
    sum.0.wrapping_mul(0x9e37_79b1)
}

#[inline]
fn position(value: u32) -> usize {
    value as usize
}

/// At most 16 Mi buckets, 64 MiB. Beyond that, several blocks share one.
const MAX_BUCKETS_LOG2: u32 = 24;

/// The smallest filter has 64 words.
const MIN_FILTER_LOG2: u32 = 6;

/// The largest filter has 32 Ki words, 256 KiB: it has to share the second-level cache with the
/// window (at 1 MiB the roll runs at 0.66 instead of 0.98 GB/s).
const MAX_FILTER_LOG2: u32 = 15;
