//! Bounds on the work that a search spends on rolling, for any sums of the peer and any content.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::index::IndexedSignature;

/// The record of how far the searches of one new file have rolled without a match.
///
/// A search that has rolled over 64 MiB in vain only samples what follows. All segments of a new file
/// share one record, also those searched at the same time. Another file has its own, and so has another
/// round with the sums of shorter blocks: what one search finds then says nothing to another.
///
/// ```
/// use dsync_delta::{IndexedSignature, Rolling, SearchError, SegmentPlan, Segments, plan_segment};
/// # use std::convert::Infallible;
///
/// fn plans(
///     index: &IndexedSignature,
///     new: &[u8],
///     segments: &Segments,
/// ) -> Result<Vec<SegmentPlan>, SearchError<Infallible, Infallible>> {
///     let rolling = Rolling::new();
///     let plan = |segment| plan_segment(index, new, segments, segment, &rolling);
///     (0..segments.count()).map(plan).collect()
/// }
/// # use dsync_delta::{BlockLen, Key, Layout, SignatureBuilder};
/// # let (key, basis) = (Key::from_bytes([7; 32]), vec![5; 4096]);
/// # let mut builder = SignatureBuilder::new(&key, Layout::new(4096, BlockLen::MIN));
/// # builder.update(&basis);
/// # let index = IndexedSignature::new(builder.finish()?, &key);
/// # assert_eq!(plans(&index, &basis, &Segments::for_file(4096)?)?.len(), 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Default)]
pub struct Rolling {
    /// Offsets rolled over, in all segments, since rolling last found a match.
    fruitless: AtomicU64,
}

impl Rolling {
    /// Makes the record of a file of which nothing has been searched.
    pub fn new() -> Self {
        Self::default()
    }

    /// Records that rolling found a match.
    fn note_hit(&self) {
        self.fruitless.store(0, Ordering::Relaxed);
    }

    /// Records that rolling found no match over `bytes` offsets.
    fn note_fruitless(&self, bytes: u64) {
        self.fruitless.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Returns the number of offsets rolled over since rolling last found a match.
    fn fruitless_bytes(&self) -> u64 {
        self.fruitless.load(Ordering::Relaxed)
    }
}

/// The remaining budget of one stretch.
pub(super) struct Bounds<'a> {
    rolling: &'a Rolling,
    /// Length rolled over at the start of each period while sampling.
    sample_len: u64,
    /// Number of comparisons after weak hits that may still fail.
    false_matches_left: u64,
}

impl<'a> Bounds<'a> {
    /// Makes the bounds for a stretch of `len` bytes.
    pub(super) fn new(index: &IndexedSignature, rolling: &'a Rolling, len: u64) -> Self {
        let block_len = index.layout().block_len().bytes();
        let false_matches = (len / block_len).saturating_mul(FALSE_MATCHES_PER_BLOCK);
        Self {
            rolling,
            sample_len: SAMPLE_LEN.max(2 * block_len),
            false_matches_left: false_matches.max(MIN_FALSE_MATCHES),
        }
    }

    /// Returns whether the search may roll over offset `at`.
    pub(super) fn allow_rolling(&self, at: u64) -> bool {
        let sampled = at % (self.sample_len * SAMPLE_PERIOD) < self.sample_len;
        self.allow_comparing() && (sampled || self.rolling.fruitless_bytes() < GIVE_UP_AFTER)
    }

    /// Returns whether a window may be compared because of its weak sum.
    pub(super) fn allow_comparing(&self) -> bool {
        self.false_matches_left > 0
    }

    /// Records that rolling found a match.
    pub(super) fn note_hit(&self) {
        self.rolling.note_hit();
    }

    /// Records that rolling found no match over `bytes` offsets.
    pub(super) fn note_fruitless(&self, bytes: u64) {
        self.rolling.note_fruitless(bytes);
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
        Segments,
        num::len_u64,
        search_segment,
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
        let (mut rolled, rolling) = (0, Rolling::new());
        for segment in 0..segments.count() {
            let mut sink = Encoded::default();
            let outcome = search_segment(&index, &new, &segments, segment, &rolling, &mut sink).unwrap();
            assert_eq!(outcome.literal_bytes, 16 << 20);
            rolled += outcome.counters.rolled_bytes;
        }
        let sampled = (LEN - GIVE_UP_AFTER) / SAMPLE_PERIOD;
        assert!((GIVE_UP_AFTER..GIVE_UP_AFTER + sampled + (1 << 20)).contains(&rolled), "{rolled}");
    }

    #[test]
    fn search_of_one_file_does_not_depend_on_that_of_another() {
        let basis = noise(10, 1 << 20);
        let index = indexed(&basis, 8 << 10);
        let gave_up = Rolling::new();
        gave_up.note_fruitless(GIVE_UP_AFTER);
        // All of it lies behind what is sampled at the start of a period.
        let new = [noise(11, (1 << 20) + 1), basis].concat();
        let segments = Segments::new(len_u64(new.len()), 24).unwrap();
        let matched = |rolling: &Rolling| {
            let mut sink = Encoded::default();
            search_segment(&index, &new, &segments, 0, rolling, &mut sink).unwrap().matched_bytes
        };

        assert_eq!(matched(&gave_up), 0);
        assert_eq!(matched(&Rolling::new()), 1 << 20);
        assert_eq!(matched(&gave_up), 0, "a match of another file is no reason to go on rolling");
    }
}
