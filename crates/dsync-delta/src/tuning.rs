//! All tuned numbers of the delta core: block length, segment length, when a delta pays.
//!
//! # Block length
//!
//! `L` is the basis' length, `B` the block length, `s` the bytes of sums per block (12), `c` the
//! usual compression ratio of literals (2), `E` the number of separate places that changed. The
//! bytes on the wire are
//!
//! ```text
//! wire(B) = s * L/B + D * B/c      with D = N * (1 - exp(-E/N)) dirty blocks of N = L/B
//! ```
//!
//! with a minimum near `B = sqrt(s * c * L / E)`. Being wrong by a factor of 2 costs a quarter
//! more, by 4 twice as much. rsync's `B = sqrt(L)`, at most 128 KiB, is the special case
//! `E = s * c`: right for 7 to 24 changes, and far off for databases and disk images.
//!
//! Nothing is known of a file's earlier changes. The prior for `E` is one change per 4 MiB and at
//! least 8: among the files that change at all, the large and costly ones are mostly images
//! and databases with many small writes. (A 1 GiB image with 1 % of its 4 KiB pages rewritten costs
//! 2.1 % of its length in blocks of 8 KiB and 8 % in blocks of 32 KiB.) If sums can be refined
//! where the file is dirty ([`refined_block_lens`]), the first round assumes one change per 64 MiB
//! instead.
//!
//! | basis | 8 changes | one round | first round of two | rsync |
//! |---|---|---|---|---|
//! | 64 KiB | 2 KiB | 2 KiB | 2 KiB | 700 B |
//! | 1 MiB | 2 KiB | 2 KiB | 2 KiB | 1 KiB |
//! | 16 MiB | 8 KiB | 8 KiB | 8 KiB | 4 KiB |
//! | 64 MiB | 16 KiB | 8 KiB | 16 KiB | 8 KiB |
//! | 256 MiB | 32 KiB | 8 KiB | 32 KiB | 16 KiB |
//! | 1 GiB | 64 KiB | 8 KiB | 32 KiB | 32 KiB |
//! | 16 GiB | 256 KiB | 16 KiB | 32 KiB | 128 KiB |
//! | 128 GiB | 512 KiB | 128 KiB | 128 KiB | 128 KiB |
//! | 1 TiB | 1 MiB | 1 MiB | 1 MiB | 128 KiB |
//!
//! **Clamps.** At least 2 KiB below 4 MiB, 4 KiB below 64 MiB, 8 KiB from there on, because BLAKE3
//! hashes short blocks slowly (0.7 GB/s at 1 KiB, 4.2 at 8 KiB, 6.5 from 16 KiB on). At most 1 MiB,
//! and at most about 2^20 blocks: 12 MB of sums.
//!
//! # Weak sums
//!
//! A signature of at least 64 KiB first goes without weak sums. (`s` is 8 then; the difference
//! moves no length in the table.) Below 64 KiB, the third saved is less than a link carries in one
//! more round trip. Lines of text are signed with both sums at once, whatever their length. Logs
//! are rotated and dumps have lines inserted, so most of their changes shift the rest; images and
//! databases are written in place.
//!
//! The source requests weak sums (`weak_sums_pay`) in two cases. First, if a stretch of the new
//! file longer than 16 blocks was not found, which only a shift or new data causes. Second, if
//! shorter stretches, each of more than one block, add up to a 64th of the file. Single blocks do
//! not count, because rolling could find nothing in them. Random writes leave fewer short stretches
//! than that (1 % of the 4 KiB pages of 1 GiB: a 90th), and short blocks' sums, which are requested
//! anyway, search those better.

use crate::{
    block::{BlockLen, Layout},
    num::len_u64,
    segment::Segments,
    signature::SumsFormat,
};

/// Chooses the block length for a basis of `len` bytes whose sums are sent in one round.
///
/// ```
/// // Long blocks for a long basis: the sums stay short.
/// assert_eq!(dsync_delta::block_len(1 << 20).get(), 2 << 10);
/// assert_eq!(dsync_delta::block_len(1 << 40).get(), 1 << 20);
/// ```
pub fn block_len(len: u64) -> BlockLen {
    optimal_block_len(len, prior_edits(len, EDIT_SPACING))
}

impl BlockLen {
    /// Chooses the block length for a basis of `len` bytes; see [`block_len`] for the rule.
    pub fn for_file(len: u64) -> Self {
        block_len(len)
    }
}

/// Chooses two block lengths for a basis of `len` bytes whose sums are sent in two rounds: for all
/// of it, and for the dirty blocks. Equal lengths mean that a second round does not pay.
///
/// ```
/// use dsync_delta::{BlockLen, Layout, SumsFormat, first_format, refined_block_lens, worthwhile};
///
/// // A disk image: strong sums of long blocks first, short blocks where it was written to.
/// let (len, head) = (1 << 30, [0; 512]);
/// let (coarse, fine) = refined_block_lens(len);
/// assert_eq!((coarse, fine), (BlockLen::new(32 << 10)?, BlockLen::new(2 << 10)?));
/// assert_eq!(first_format(Layout::new(len, coarse), &head), SumsFormat::StrongOnly);
/// // A new file that is far longer than the basis is sent whole.
/// assert!(worthwhile(len, len) && !worthwhile(len, 1 << 40));
/// # Ok::<(), dsync_delta::BlockLenError>(())
/// ```
pub fn refined_block_lens(len: u64) -> (BlockLen, BlockLen) {
    let coarse = optimal_block_len(len, prior_edits(len, COARSE_EDIT_SPACING));
    let fine = coarse.get().ilog2().saturating_sub(REFINE_LOG2).max(FINE_MIN_LOG2);
    (coarse, BlockLen::from_log2(fine).min(coarse))
}

/// Chooses log2 of the segment length for a file of `len` bytes: 1 MiB, and more only where that were over
/// 4,096 segments, up to 64 MiB. What a broken connection loses of a file is the segments under way, one for
/// each lane, so short ones are best on a slow path; and 1 GB over loopback takes 0 to 3 % longer in segments of
/// 1 MiB than in such of 16 MiB.
///
/// ```
/// use dsync_delta::{Segments, segment_log2};
///
/// // The sender announces the exponent; the receiver cuts the file alike.
/// let announced = segment_log2(5 << 30);
/// assert_eq!(Segments::new(5 << 30, announced)?.count(), 2560);
/// # Ok::<(), dsync_delta::SegmentError>(())
/// ```
pub fn segment_log2(len: u64) -> u8 {
    let needed = len.div_ceil(MOST_SEGMENTS).max(1).next_power_of_two().ilog2();
    u8::try_from(needed).map_or(Segments::MAX_LOG2, |log2| log2.clamp(Segments::MIN_LOG2, Segments::MAX_LOG2))
}

/// Chooses the sums of a basis' first signature. `head` is the beginning of its content, a few KiB.
pub fn first_format(layout: Layout, head: &[u8]) -> SumsFormat {
    let both = layout.block_count().saturating_mul(len_u64(SumsFormat::StrongAndWeak.bytes_per_block()));
    if both < ON_DEMAND_LEN || is_text(head) { SumsFormat::StrongAndWeak } else { SumsFormat::StrongOnly }
}

/// Returns whether this looks like lines of text: a line ends, and no byte is zero.
fn is_text(head: &[u8]) -> bool {
    head.contains(&b'\n') && !head.contains(&0)
}

/// Returns whether a new file of `len` bytes, searched without weak sums, should be searched with
/// them. A search would roll over `unrolled` offsets. `long_gap` says whether it missed a stretch
/// too long to request short blocks' sums for.
pub(crate) fn weak_sums_pay(len: u64, unrolled: u64, long_gap: bool) -> bool {
    long_gap || unrolled > len / ON_DEMAND_SHARE
}

/// Returns whether a delta against a basis is worth a try; otherwise send the whole file.
///
/// A delta does not pay for files below 16 KiB, for a basis so short that it could save less than a
/// 64th of the new file, or if the sums alone would cost half of the new file.
pub fn worthwhile(basis_len: u64, new_len: u64) -> bool {
    let sums = basis_len / block_len(basis_len).bytes() * SUM_BYTES;
    basis_len.min(new_len) >= MIN_DELTA_LEN && basis_len >= new_len / 64 && sums <= new_len / 2
}

/// Estimates the bytes of a delta: sums, and literals at a compression ratio of 2. It assumes
/// `edits` changes at random places, each within one block, of a basis of `len` bytes.
#[cfg(test)]
fn expected_bytes(len: u64, block_len: BlockLen, edits: u64) -> u64 {
    let block_len = block_len.bytes();
    let blocks = len.div_ceil(block_len);
    let dirty = expected_dirty(blocks, edits);
    blocks.saturating_mul(SUM_BYTES).saturating_add(dirty.saturating_mul(block_len) / RATIO)
}

/// Estimates the number of distinct blocks hit by `edits` changes, N * (1 - exp(-E/N)), rounded.
#[cfg(test)]
fn expected_dirty(blocks: u64, edits: u64) -> u64 {
    #[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    // Only an estimate: counts above 2^53 may round, and the product lies between 0 and `blocks`.
    let dirty = (blocks as f64 * -(-(edits as f64) / (blocks.max(1) as f64)).exp_m1()).round() as u64;
    dirty.min(blocks)
}

/// Returns B = 2^round(log2(sqrt(s * c * L / E))), clamped.
fn optimal_block_len(len: u64, edits: u64) -> BlockLen {
    let square = u128::from(len) * u128::from(SUM_BYTES * RATIO) / u128::from(edits.max(1));
    // round(log2(sqrt(x))) = floor((floor(log2(x)) + 1) / 2), up to the rounding of the inner
    // floor.
    let optimum = square.max(1).ilog2().div_ceil(2);
    let hash_speed = match len {
        0..0x40_0000 => 11,
        0x40_0000..0x400_0000 => 12,
        _ => 13,
    };
    let block_count = (len >> MAX_BLOCKS_LOG2).max(1).next_power_of_two().trailing_zeros();
    BlockLen::from_log2(optimum.max(hash_speed).max(block_count).min(MAX_LOG2))
}

fn prior_edits(len: u64, spacing: u64) -> u64 {
    (len / spacing).max(8)
}

/// Bytes of sums per block.
const SUM_BYTES: u64 = 12;

/// Length of sums from which signatures come without weak sums: 64 KiB, 5 ms at 100 Mb/s.
const ON_DEMAND_LEN: u64 = 64 << 10;

/// Share of the new file: the source requests weak sums to roll over more than one part in this
/// many.
const ON_DEMAND_SHARE: u64 = 64;

/// Usual compression ratio of literals.
const RATIO: u64 = 2;

/// Expected bytes per change of a file without a history: 4 MiB.
const EDIT_SPACING: u64 = 4 << 20;

/// The same if a second round can refine: 64 MiB.
const COARSE_EDIT_SPACING: u64 = 64 << 20;

/// Fine blocks are a sixteenth of coarse ones.
const REFINE_LOG2: u32 = 4;

/// Fine blocks are at least 2 KiB. One change in a block of 32 KiB costs, with sums and at the
/// usual ratio, 900 bytes in blocks of 1 KiB, 1216 in 2 KiB and 2144 in 4 KiB. A rewritten page of
/// 4 KiB costs 2432, 2240 and 2144. And blocks of 1 KiB are hashed at half the speed of 2 KiB.
const FINE_MIN_LOG2: u32 = 11;

/// The longest block: 1 MiB.
const MAX_LOG2: u32 = 20;

/// The most blocks: about 2^20.
const MAX_BLOCKS_LOG2: u32 = 20;

/// Length below which a whole file costs less than its sums and a round trip: 16 KiB.
const MIN_DELTA_LEN: u64 = 16 << 10;

/// Most segments of a file that is not longer than as many of the longest.
const MOST_SEGMENTS: u64 = 4096;

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::{
        IndexedSignature, SumsFormat,
        testing::{key, noise, round_trip, signature},
    };

    const KIB: u64 = 1 << 10;
    const MIB: u64 = 1 << 20;
    const GIB: u64 = 1 << 30;

    /// Applies rsync's rule: 700 bytes up to 490,000 bytes, else the square root, at most 128 KiB.
    fn rsync_block_len(len: u64) -> u64 {
        if len <= 490_000 { 700 } else { len.isqrt().next_multiple_of(8).min(128 * KIB) }
    }

    #[test]
    fn table_in_the_docs_is_true() {
        let source = include_str!("tuning.rs");
        let rows = source.lines().filter_map(|line| line.strip_prefix("//! | ")).skip(1);
        let rows = rows.filter(|row| row.ends_with(" |") && row.contains("iB"));
        let mut checked = 0;
        for row in rows {
            let cells: Vec<_> = row.trim_end_matches(" |").split(" | ").map(parse).collect();
            let len = cells[0];
            let chosen = [optimal_block_len(len, 8), block_len(len), refined_block_lens(len).0];
            assert_eq!(chosen.map(BlockLen::bytes).as_slice(), &cells[1..4], "{row}");
            let rsync = rsync_block_len(len);
            assert!(rsync.abs_diff(cells[4]) < 16, "{row}: {rsync}");
            checked += 1;
        }
        assert_eq!(checked, 9);
    }

    fn parse(cell: &str) -> u64 {
        let (number, unit) = cell.split_once(' ').unwrap();
        let unit = match unit {
            "B" => 1,
            "KiB" => KIB,
            "MiB" => MIB,
            "GiB" => GIB,
            _ => GIB * KIB,
        };
        number.parse::<u64>().unwrap() * unit
    }

    #[test]
    fn chosen_length_is_near_the_optimum_of_the_model() {
        for len_log2 in 16..40 {
            let len = 1_u64 << len_log2;
            for edits in [1, 8, 100, 1000, 10_000, 100_000] {
                let chosen = optimal_block_len(len, edits);
                let lens = || (10..=20).map(BlockLen::from_log2);
                // Only lengths that the clamps allow are alternatives.
                let allowed = lens().filter(|&other| other >= optimal_block_len(len, u64::MAX));
                let best = allowed.map(|other| expected_bytes(len, other, edits)).min().unwrap();
                let ours = expected_bytes(len, chosen, edits);
                // From one change per four blocks on, all lengths cost nearly the same: the whole
                // file.
                assert!(ours * 10 <= best * 14, "{len} {edits}: {ours} {best}");
            }
        }
    }

    #[test]
    fn rsyncs_rule_is_never_much_better() {
        for len in [MIB, 16 * MIB, 100 * MIB, GIB, 16 * GIB] {
            for edits in [1, 10, 1000, len / MIB] {
                let ours = expected_bytes(len, optimal_block_len(len, edits), edits);
                let blocks = len / rsync_block_len(len);
                let rsync = blocks * 7 + expected_dirty(blocks, edits) * rsync_block_len(len) / RATIO;
                // rsync's sums are 7 bytes to our 12, which shows where its length is right.
                assert!(ours * 10 <= rsync * 18, "{len} {edits}: {ours} {rsync}");
            }
        }
    }

    #[test]
    fn model_agrees_with_measured_deltas() {
        let sizes = [MIB / 2, MIB, 3 * MIB];
        let grid = sizes.into_iter().flat_map(|len| {
            let edits = [1, 8, 64, 512, 4096].into_iter();
            edits.flat_map(move |edits| [2 * KIB, 8 * KIB, 32 * KIB].map(|block| (len, edits, block)))
        });
        for (len, edits, block) in grid {
            let basis = noise(11, usize::try_from(len).unwrap());
            let mut new = basis.clone();
            for place in noise(12, usize::try_from(edits).unwrap() * 8).chunks_exact(8) {
                let place = u64::from_le_bytes(place.try_into().unwrap()) % len;
                new[usize::try_from(place).unwrap()] ^= 1;
            }
            let block_len = BlockLen::new(u32::try_from(block).unwrap()).unwrap();
            let signature = signature(&basis, block_len.get(), SumsFormat::StrongAndWeak);
            let sums = signature.encode().len() as u64;
            let index = IndexedSignature::new(signature, &key());
            let outcomes = round_trip(&index, &basis, &new);
            let literal: u64 = outcomes.iter().map(|outcome| outcome.literal_bytes).sum();
            let measured = sums + literal / RATIO;
            let model = expected_bytes(len, block_len, edits);
            // Where few blocks are dirty, one more or less is no error of the model.
            let off = measured.abs_diff(model).saturating_sub(3 * block / RATIO);
            assert!(off * 100 <= model * 10, "{len} {edits} {block}: {measured} {model}");
        }
    }

    #[test]
    fn one_per_cent_of_pages_rewritten_costs_below_four_per_cent() {
        let edits = GIB / (4 * KIB) / 100;
        let block_len = block_len(GIB);
        let blocks = GIB / block_len.bytes();
        // Incompressible literals, and each page lies within one block.
        let bytes = blocks * SUM_BYTES + expected_dirty(blocks, edits) * block_len.bytes();
        assert!(bytes * 100 < 4 * GIB, "{bytes}");
    }

    /// The lengths at which a clamp, a format or a segment length changes.
    #[test]
    fn files_around_every_clamp_rebuild() {
        // One block more than the sums that fit; blocks are 8 KiB long there.
        let on_demand = ON_DEMAND_LEN / 12 * 8 * KIB + 1;
        for clamp in [MIN_DELTA_LEN, 4 * MIB, on_demand, 64 * MIB] {
            for len in [clamp - 1, clamp, clamp + 1] {
                let basis = noise(21, usize::try_from(len).unwrap());
                let mut new = basis.clone();
                let middle = new.len() / 2;
                new[middle] ^= 1;
                let last = new.len() - 1;
                new[last] ^= 1;
                let block_len = block_len(len);
                let layout = Layout::new(len, block_len);
                let format = first_format(layout, &basis[..4096]);
                assert_eq!(format == SumsFormat::StrongAndWeak, len < on_demand, "{len}");
                assert_eq!(first_format(layout, b"one line\nand the next"), SumsFormat::StrongAndWeak);
                assert_eq!(first_format(layout, b"one line\nand\0the next"), format);
                assert_eq!(first_format(layout, b""), format);
                let index = IndexedSignature::new(signature(&basis, block_len.get(), format), &key());
                let outcomes = round_trip(&index, &basis, &new);
                let literal: u64 = outcomes.iter().map(|outcome| outcome.literal_bytes).sum();
                assert!(literal <= 2 * block_len.bytes(), "{len}: {literal}");
            }
        }
    }

    #[test]
    fn segments_are_short_and_never_very_many() {
        let cases =
            [(0, 20), (4 * GIB, 20), (4 * GIB + 1, 21), (8 * GIB, 21), (256 * GIB, 26), (u64::MAX, 26)];
        for (len, log2) in cases {
            assert_eq!(segment_log2(len), log2, "{len}");
        }
    }

    #[test]
    fn deltas_are_tried_where_they_can_pay() {
        assert!(!worthwhile(16 * KIB - 1, GIB) && !worthwhile(GIB, 16 * KIB - 1));
        assert!(worthwhile(16 * KIB, 16 * KIB) && worthwhile(GIB, GIB) && worthwhile(GIB, 64 * GIB));
        assert!(!worthwhile(16 * KIB, GIB) && !worthwhile(GIB, 100 * KIB));
        assert!(!worthwhile(0, 0) && !worthwhile(u64::MAX, 1) && worthwhile(u64::MAX, u64::MAX));
    }
}
