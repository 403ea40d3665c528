//! Coverage: which blocks of a basis have sums, and in what order the sums lie.

use crate::block::{BlockIndex, BlockRun, Layout};

/// Runs of blocks in ascending order that neither overlap nor touch. Their sums lie one after the
/// other: a *slot* is the position of a block's sums.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Coverage {
    runs: Vec<Covered>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Covered {
    run: BlockRun,
    /// Slot of the run's first block.
    slot: u64,
}

impl Coverage {
    /// Covers all blocks of a layout.
    pub(crate) fn whole(layout: Layout) -> Self {
        Self::of(BlockRun::new(BlockIndex(0), layout.block_count()).into_iter())
    }

    /// Covers the given runs, which must be in ascending order without overlaps. Joins runs that
    /// touch.
    pub(crate) fn of(runs: impl Iterator<Item = BlockRun>) -> Self {
        let mut covered: Vec<Covered> = Vec::new();
        let mut slot = 0;
        for run in runs {
            match covered.last_mut().and_then(|last| Some((last.run.joined(run)?, last))) {
                Some((joined, last)) => last.run = joined,
                None => covered.push(Covered { run, slot }),
            }
            slot += run.count();
        }
        Self { runs: covered }
    }

    /// Returns the number of blocks.
    pub(crate) fn block_count(&self) -> u64 {
        self.runs.last().map_or(0, |last| last.slot + last.run.count())
    }

    /// Returns the runs in ascending order.
    pub(crate) fn runs(&self) -> impl Iterator<Item = BlockRun> + '_ {
        self.runs.iter().map(|covered| covered.run)
    }

    /// Returns the runs, cut into pieces of at most `blocks` blocks.
    pub(crate) fn stretches(&self, blocks: u64) -> impl Iterator<Item = BlockRun> + '_ {
        self.runs().flat_map(move |run| {
            let starts = (0..run.count().div_ceil(blocks)).map(move |piece| piece * blocks);
            starts.filter_map(move |start| {
                BlockRun::new(BlockIndex(run.first().0 + start), blocks.min(run.count() - start))
            })
        })
    }

    /// Returns the slot of a block's sums; `None` if the block has none.
    pub(crate) fn slot(&self, block: BlockIndex) -> Option<u64> {
        let after = self.runs.partition_point(|covered| covered.run.first() <= block);
        let covered = self.runs.get(after.checked_sub(1)?)?;
        (block < covered.run.end()).then(|| covered.slot + (block.0 - covered.run.first().0))
    }

    /// Returns the block whose sums are at `slot`.
    pub(crate) fn block(&self, slot: u64) -> BlockIndex {
        let after = self.runs.partition_point(|covered| covered.slot <= slot);
        let covered = after.checked_sub(1).and_then(|position| self.runs.get(position));
        BlockIndex(covered.map_or(0, |covered| covered.run.first().0 + (slot - covered.slot)))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn slots_and_blocks_are_inverse() {
        let run = |first, count| BlockRun::new(BlockIndex(first), count).unwrap();
        let coverage = Coverage::of([run(3, 2), run(5, 1), run(9, 4)].into_iter());
        assert_eq!(coverage.block_count(), 7);
        assert_eq!(coverage.runs().collect::<Vec<_>>(), [run(3, 3), run(9, 4)]);
        let blocks: Vec<_> = (0..7).map(|slot| coverage.block(slot).0).collect();
        assert_eq!(blocks, [3, 4, 5, 9, 10, 11, 12]);
        for block in 0..20 {
            let slot = blocks.iter().position(|&covered| covered == block);
            assert_eq!(coverage.slot(BlockIndex(block)), slot.map(|slot| slot as u64));
        }
        let pieces = Vec::from_iter(coverage.stretches(2));
        assert_eq!(pieces, [run(3, 2), run(5, 1), run(9, 2), run(11, 2)]);
        assert_eq!(Coverage::of([].into_iter()).slot(BlockIndex(0)), None);
    }
}
