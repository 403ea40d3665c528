//! Blocks: their length, their numbers, and their ranges in a basis.
//!
//! A block length is a power of two from 1 KiB (one BLAKE3 chunk) to 4 MiB. Only aligned powers of
//! two are subtrees of the BLAKE3 tree, and only subtrees merge into a file root. All blocks of a
//! basis have the same length except the last one, which may be shorter.

use std::ops::Range;

use crate::num::saturating_usize;

/// Length of the blocks of a signature, in bytes: a power of two, 1 KiB to 4 MiB.
///
/// ```
/// use dsync_delta::BlockLen;
///
/// // A length from a peer or a file is checked; one for a basis of known length is chosen.
/// assert_eq!(BlockLen::new(8 << 10)?.get(), 8192);
/// assert!(BlockLen::new(700).is_err());
/// assert_eq!(BlockLen::for_file(64 << 20).get(), 8192);
/// # Ok::<(), dsync_delta::BlockLenError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockLen(u32);

impl BlockLen {
    /// The shortest block: 1 KiB, one chunk of BLAKE3.
    pub const MIN: Self = Self(1 << 10);
    /// The longest block: 4 MiB. This bounds the memory of a search.
    pub const MAX: Self = Self(4 << 20);

    /// Checks a block length in bytes.
    ///
    /// # Errors
    /// [`BlockLenError`] unless `bytes` is a power of two from [`Self::MIN`] to [`Self::MAX`].
    pub fn new(bytes: u32) -> Result<Self, BlockLenError> {
        if bytes.is_power_of_two() && (Self::MIN.0..=Self::MAX.0).contains(&bytes) {
            Ok(Self(bytes))
        } else {
            Err(BlockLenError { bytes })
        }
    }

    /// Returns the length in bytes.
    pub fn get(self) -> u32 {
        self.0
    }

    /// Returns the length in bytes, as a file offset.
    pub(crate) fn bytes(self) -> u64 {
        u64::from(self.0)
    }

    /// Returns the length in bytes, as a length in memory.
    pub(crate) fn size(self) -> usize {
        saturating_usize(u64::from(self.0))
    }

    /// Returns the block length of 2^`exponent` bytes, which must be allowed: for constants.
    pub(crate) const fn of_log2(exponent: u32) -> Self {
        assert!(exponent >= Self::MIN.0.trailing_zeros() && exponent <= Self::MAX.0.trailing_zeros());
        Self(1 << exponent)
    }

    /// Returns the block length of 2^`exponent` bytes, clamped to the allowed range.
    pub(crate) fn from_log2(exponent: u32) -> Self {
        Self(1 << exponent.clamp(Self::MIN.0.trailing_zeros(), Self::MAX.0.trailing_zeros()))
    }
}

/// A number of bytes that is not a valid block length.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{bytes} is not a block length: it must be a power of two from 1 KiB to 4 MiB")]
#[non_exhaustive]
pub struct BlockLenError {
    /// The rejected length in bytes.
    pub bytes: u32,
}

/// Number of a block in its basis, 0-based.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct BlockIndex(pub u64);

/// One or more consecutive blocks.
///
/// ```
/// use dsync_delta::{BlockIndex, BlockLen, BlockRun, Layout};
///
/// let run = BlockRun::new(BlockIndex(2), 3).ok_or("no block, or more than any file has")?;
/// assert_eq!((run.first(), run.count(), run.end()), (BlockIndex(2), 3, BlockIndex(5)));
///
/// // The bytes that a copy of the run takes from the basis.
/// let layout = Layout::new(5000, BlockLen::MIN);
/// assert_eq!(layout.run_range(run), Some(2048..5000));
/// # Ok::<(), &str>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct BlockRun {
    first: BlockIndex,
    count: u64,
}

impl BlockRun {
    /// Makes a run of `count` blocks from `first` on. Returns `None` if it is empty or exceeds the
    /// blocks that any file can have.
    pub fn new(first: BlockIndex, count: u64) -> Option<Self> {
        let end = first.0.checked_add(count)?;
        (count > 0 && end <= MAX_BLOCKS).then_some(Self { first, count })
    }

    /// Returns the first block.
    pub fn first(self) -> BlockIndex {
        self.first
    }

    /// Returns the number of blocks, at least 1.
    pub fn count(self) -> u64 {
        self.count
    }

    /// Returns the block after the last one.
    pub fn end(self) -> BlockIndex {
        BlockIndex(self.first.0 + self.count)
    }

    /// Joins two runs if `next` starts where `self` ends.
    pub(crate) fn joined(self, next: Self) -> Option<Self> {
        if self.end() != next.first {
            return None;
        }
        Self::new(self.first, self.count.checked_add(next.count)?)
    }
}

/// The division of a basis into blocks.
///
/// ```
/// use dsync_delta::{BlockIndex, BlockLen, Layout};
///
/// let layout = Layout::new(5000, BlockLen::MIN);
/// assert_eq!((layout.block_count(), layout.full_block_count()), (5, 4));
/// assert_eq!(layout.short_tail_len(), Some(904));
/// assert_eq!(layout.range(BlockIndex(4)), 4096..5000);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Layout {
    file_len: u64,
    block_len: BlockLen,
}

impl Layout {
    /// Lays out a file of `file_len` bytes.
    pub fn new(file_len: u64, block_len: BlockLen) -> Self {
        Self { file_len, block_len }
    }

    /// Returns the length of the file in bytes.
    pub fn file_len(self) -> u64 {
        self.file_len
    }

    /// Returns the length of every block except possibly the last.
    pub fn block_len(self) -> BlockLen {
        self.block_len
    }

    /// Returns the number of blocks, including a shorter last one.
    pub fn block_count(self) -> u64 {
        self.file_len.div_ceil(self.block_len.bytes())
    }

    /// Returns the number of blocks of full length.
    pub fn full_block_count(self) -> u64 {
        self.file_len / self.block_len.bytes()
    }

    /// Returns the length in bytes of the last block if it is shorter than the others.
    pub fn short_tail_len(self) -> Option<u32> {
        let tail = self.file_len % self.block_len.bytes();
        u32::try_from(tail).ok().filter(|&len| len > 0)
    }

    /// Returns the range of a block in the file, in bytes; an empty range at the file's end if
    /// there is no such block.
    pub fn range(self, block: BlockIndex) -> Range<u64> {
        let start = block.0.saturating_mul(self.block_len.bytes()).min(self.file_len);
        let end = start.saturating_add(self.block_len.bytes()).min(self.file_len);
        start..end
    }

    /// Returns the range of a run of blocks in the file, in bytes; `None` if it reaches past the
    /// last block.
    pub fn run_range(self, run: BlockRun) -> Option<Range<u64>> {
        if run.end().0 > self.block_count() {
            return None;
        }
        Some(self.range(run.first).start..self.range(BlockIndex(run.end().0 - 1)).end)
    }
}

/// The number of blocks in the longest possible file, cut into the shortest blocks.
const MAX_BLOCKS: u64 = 1 << (64 - 10);

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn block_len_is_a_power_of_two_within_limits() {
        for bad in [0, 1, 512, 1023, 1025, 3 << 10, 8 << 20, u32::MAX] {
            assert_eq!(BlockLen::new(bad), Err(BlockLenError { bytes: bad }));
        }
        for exponent in 10..=22 {
            assert_eq!(BlockLen::new(1 << exponent).unwrap().get(), 1 << exponent);
        }
    }

    #[test]
    fn blocks_tile_the_file() {
        let block_len = BlockLen::MIN;
        for file_len in [0, 1, 1023, 1024, 1025, 4096, 10_000] {
            let layout = Layout::new(file_len, block_len);
            let mut at = 0;
            for block in 0..layout.block_count() {
                let range = layout.range(BlockIndex(block));
                assert_eq!(range.start, at);
                assert!(range.end > range.start);
                at = range.end;
            }
            assert_eq!(at, file_len);
            assert!(layout.range(BlockIndex(layout.block_count())).is_empty());
            assert!(layout.range(BlockIndex(u64::MAX)).is_empty());
        }
    }

    #[test]
    fn runs_past_the_last_block_have_no_range() {
        let layout = Layout::new(2500, BlockLen::MIN);
        let run = |first, count| BlockRun::new(BlockIndex(first), count).unwrap();
        assert_eq!(layout.run_range(run(0, 3)), Some(0..2500));
        assert_eq!(layout.run_range(run(2, 1)), Some(2048..2500));
        assert_eq!(layout.run_range(run(2, 2)), None);
        assert_eq!(layout.run_range(run(MAX_BLOCKS - 1, 1)), None);
        assert_eq!(BlockRun::new(BlockIndex(MAX_BLOCKS), 1), None);
        assert_eq!(BlockRun::new(BlockIndex(1), u64::MAX), None);
        assert_eq!(BlockRun::new(BlockIndex(1), 0), None);
    }
}
