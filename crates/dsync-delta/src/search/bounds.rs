//! Bounds on the work that a search spends on rolling, for any sums of the peer and any content.

use crate::index::IndexedSignature;

/// The remaining budget of one stretch.
pub(super) struct Bounds<'a> {
    /// Counts the offsets of the whole file that rolling passed in vain.
    index: &'a IndexedSignature,
    /// Length rolled over at the start of each period while sampling.
    sample_len: u64,
    /// Number of comparisons after weak hits that may still fail.
    false_matches_left: u64,
}

impl<'a> Bounds<'a> {
    /// Makes the bounds for a stretch of `len` bytes.
    pub(super) fn new(index: &'a IndexedSignature, len: u64) -> Self {
        let block_len = index.layout().block_len().bytes();
        let false_matches = (len / block_len).saturating_mul(FALSE_MATCHES_PER_BLOCK);
        Self {
            index,
            sample_len: SAMPLE_LEN.max(2 * block_len),
            false_matches_left: false_matches.max(MIN_FALSE_MATCHES),
        }
    }

    /// Returns whether the search may roll over offset `at`.
    pub(super) fn allow_rolling(&self, at: u64) -> bool {
        let sampled = at % (self.sample_len * SAMPLE_PERIOD) < self.sample_len;
        self.allow_comparing() && (sampled || self.index.fruitless_bytes() < GIVE_UP_AFTER)
    }

    /// Returns whether a window may be compared because of its weak sum.
    pub(super) fn allow_comparing(&self) -> bool {
        self.false_matches_left > 0
    }

    /// Counts a failed comparison after a weak hit.
    pub(super) fn note_false_match(&mut self) {
        self.false_matches_left = self.false_matches_left.saturating_sub(1);
    }
}

/// The most blocks of one weak sum that a window is compared with.
pub(crate) const MAX_CANDIDATES: usize = 16;

/// Offsets rolled over without a match after which a search only samples: 64 MiB. By then new data,
/// compressed or encrypted anew, is far more likely than data that moved further than that.
pub(crate) const GIVE_UP_AFTER: u64 = 64 << 20;

/// Bytes (at least two blocks) rolled over at the start of each sampling period.
const SAMPLE_LEN: u64 = 256 << 10;

/// Length of a sampling period in samples.
const SAMPLE_PERIOD: u64 = 16;

/// Comparisons that may fail after weak hits, per block length of the segment. Real data causes
/// next to none, and each costs the hash of one block.
const FALSE_MATCHES_PER_BLOCK: u64 = 4;

/// The same for the shortest segment.
const MIN_FALSE_MATCHES: u64 = 16;

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::{
        Segments, search_segment,
        testing::{Encoded, indexed, noise, round_trip},
    };

    /// rsync issue 217: tens of thousands of blocks with one weak sum, and a file that keeps
    /// hitting it.
    #[test]
    fn blocks_of_one_weak_sum_cost_a_bounded_number_of_comparisons() {
        // A symmetric swap keeps every Fletcher sum: +1 -1 -1 +1 at equal distances.
        let twist = |block: &mut [u8], at: usize| {
            block[at] += 1;
            block[at + 3] -= 1;
            block[at + 7] -= 1;
            block[at + 10] += 1;
        };
        let mut basis = Vec::new();
        for block in 0..40_000_usize {
            let mut bytes = vec![100_u8; 1024];
            twist(&mut bytes, block % 1000);
            twist(&mut bytes, block / 1000 * 17);
            basis.extend(bytes);
        }
        let new: Vec<u8> = {
            let mut bytes = vec![100_u8; 1 << 20];
            bytes.chunks_mut(1000).for_each(|piece| {
                if piece.len() == 1000 {
                    twist(piece, 500);
                }
            });
            bytes
        };
        let outcomes = round_trip(&indexed(&basis, 1024), &basis, &new);
        let counters = outcomes[0].counters;
        assert!(counters.false_matches <= 4 * 1024 + 64, "{counters:?}");
        assert!(counters.compared_bytes <= 10 << 20, "{counters:?}");
    }

    #[test]
    fn rolling_gives_up_where_all_is_new() {
        const LEN: u64 = 96 << 20;
        let basis = noise(10, 1 << 20);
        let new = noise(11, LEN.try_into().unwrap());
        let segments = Segments::new(LEN, 24).unwrap();
        let index = indexed(&basis, 8 << 10);
        let mut rolled = 0;
        for segment in 0..segments.count() {
            let outcome = search_segment(&index, &new, &segments, segment, &mut Encoded::default()).unwrap();
            assert_eq!(outcome.literal_bytes, 16 << 20);
            rolled += outcome.counters.rolled_bytes;
        }
        let sampled = (LEN - GIVE_UP_AFTER) / SAMPLE_PERIOD;
        assert!((GIVE_UP_AFTER..GIVE_UP_AFTER + sampled + (1 << 20)).contains(&rolled), "{rolled}");
    }
}
