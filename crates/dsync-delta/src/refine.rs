//! Further rounds: weak sums only where data has shifted, short blocks only where the basis is
//! dirty.
//!
//! A long basis is first searched with few sums. Instead of tokens, the source keeps a
//! [`SegmentPlan`] per segment. From the plans of a file it makes up to two [`RefineRequest`]s:
//!
//! 1. **weak sums** of all blocks, unless the source already has them or rolling would cover next
//!    to nothing ([`RefineRequest::weak_sums`]). The source searches again the segments that they
//!    can improve;
//! 2. **short blocks**: long blocks need few sums but leave large dirty ones; short blocks do the
//!    reverse. The destination sends the sums of the short blocks inside the long ones that were
//!    not found. The source searches the gaps again and emits everything in short blocks.
//!
//! ```text
//! source       plan_segment* -> RefineRequest::weak_sums -> encode
//! destination  RefineRequest::decode -> Signature::split, or refine_parallel -> Signature::encode
//! source       RefineRequest::decoder -> IndexedSignature::add_weak -> SegmentPlan::search_again*
//! source       RefineRequest::collect -> encode
//! destination  RefineRequest::decode -> refine_parallel -> Signature::encode
//! source       RefineRequest::decoder -> IndexedSignature::new -> SegmentPlan::emit_refined*
//! destination  Applier::new(request.layout(), ...)
//! ```
//!
//! An example (model of [`crate::tuning`], incompressible literals): 1 GiB with 1 % of its 4 KiB
//! pages rewritten costs 22.8 MB in blocks of 8 KiB, 11.5 MB in blocks of 32 KiB refined to 2 KiB.
//!
//! Laws: an emitted plan rebuilds its segment exactly as a search would. Refining never adds
//! literal bytes. With weak sums on demand, the plans equal those of a search that had the weak
//! sums from the start. A plan holds lengths, not content: literals are read again when it is
//! emitted. If the file changed in between, the file root differs and the file is not installed.

mod plan;
mod request;

pub use self::{
    plan::{SegmentPlan, plan_segment},
    request::{RefineError, RefineRequest, refine_parallel},
};
use crate::block::{BlockIndex, BlockRun, Layout};

/// Translates a run of long blocks into short ones.
fn refined(run: BlockRun, coarse: Layout, fine: Layout) -> Option<BlockRun> {
    let range = coarse.run_range(run)?;
    let first = range.start / fine.block_len().bytes();
    let end = range.end.div_ceil(fine.block_len().bytes());
    BlockRun::new(BlockIndex(first), end - first)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{
        AddWeakError, BlockLen, IndexedSignature, Rolling, RootBuilder, Segments, SumsFormat,
        num::len_u64,
        testing::{Edited, Encoded, apply_segment, key, noise, signature, whole_root},
    };

    /// Encodes and decodes a request, as on its way to the peer.
    fn decoded(request: &RefineRequest, layout: Layout) -> RefineRequest {
        let block_len = request.layout().block_len();
        let decoded =
            RefineRequest::decode(layout, request.format(), block_len, &request.encode(), 1 << 20).unwrap();
        assert_eq!(&decoded, request);
        decoded
    }

    /// Makes plans with weak sums on demand; also returns whether they were requested.
    fn plans_on_demand(
        basis: &[u8],
        new: &[u8],
        block_len: u32,
        always: bool,
    ) -> (IndexedSignature, Vec<SegmentPlan>, bool) {
        let strong = signature(basis, block_len, SumsFormat::StrongOnly);
        let layout = strong.layout();
        let index = IndexedSignature::new(strong, &key());
        let segments = Segments::new(len_u64(new.len()), 20).unwrap();
        let rolling = Rolling::new();
        let mut plans: Vec<_> = (0..segments.count())
            .map(|i| plan_segment(&index, new, &segments, i, &rolling).unwrap())
            .collect();
        let always = always.then(|| RefineRequest::all_weak(layout));
        let request = RefineRequest::weak_sums(layout, &plans).or(always);
        let asked = request.is_some();
        if let Some(request) = request {
            let sums = refine_parallel(&key(), &decoded(&request, layout), &basis).unwrap();
            let mut decoder = request.decoder(1 << 20).unwrap();
            decoder.push(&sums.encode()).unwrap();
            index.add_weak(decoder.finish().unwrap()).unwrap();
            for plan in plans.iter_mut().filter(|plan| plan.wants_weak_sums()) {
                *plan = plan.search_again(&index, new, &rolling).unwrap();
                assert!(!plan.wants_weak_sums());
            }
        }
        (index, plans, asked)
    }

    struct Refined {
        coarse_literal: u64,
        literal: u64,
        sum_bytes: u64,
    }

    /// Runs both rounds over all segments and checks that both ways of emitting rebuild the file.
    fn two_rounds(basis: &[u8], new: &[u8], coarse: u32, fine: u32) -> Refined {
        let coarse = signature(basis, coarse, SumsFormat::StrongAndWeak);
        let mut sum_bytes = len_u64(coarse.encode().len());
        let layout = coarse.layout();
        let index = IndexedSignature::new(coarse, &key());
        let segments = Segments::new(len_u64(new.len()), 20).unwrap();
        let rolling = Rolling::new();
        let plans: Vec<_> = (0..segments.count())
            .map(|i| plan_segment(&index, new, &segments, i, &rolling).unwrap())
            .collect();
        let fine_len = BlockLen::new(fine).unwrap();
        let fine = RefineRequest::collect(layout, fine_len, &plans).map(|request| {
            let bytes = request.encode();
            let request = decoded(&request, layout);
            let sums = refine_parallel(&key(), &request, &basis).unwrap();
            sum_bytes += len_u64(bytes.len() + sums.encode().len());
            let mut decoder = request.decoder(1 << 20).unwrap();
            decoder.push(&sums.encode()).unwrap();
            assert_eq!(decoder.finish().unwrap(), sums);
            (request.layout(), IndexedSignature::new(sums, &key()))
        });
        let mut root = RootBuilder::new(&key(), &segments);
        let (mut coarse_literal, mut literal) = (0, 0);
        let fine_rolling = Rolling::new();
        let mut rebuilt = vec![0xee; new.len()];
        for (i, plan) in (0..).zip(&plans) {
            let mut encoded = Encoded::default();
            plan.emit(new, &mut encoded).unwrap();
            apply_segment(basis, layout, &segments, i, &mut encoded, &mut rebuilt);
            coarse_literal += plan.outcome().literal_bytes;
            let mut outcome = *plan.outcome();
            if let Some((layout, fine)) = &fine {
                let mut encoded = Encoded::default();
                outcome = plan.emit_refined(fine, new, &fine_rolling, &mut encoded).unwrap();
                let range = segments.range(i);
                let (start, end) = (range.start.try_into().unwrap(), range.end.try_into().unwrap());
                rebuilt[start..end].fill(0xdd);
                apply_segment(basis, *layout, &segments, i, &mut encoded, &mut rebuilt);
            }
            literal += outcome.literal_bytes;
            root.set(i, outcome.value).unwrap();
        }
        assert!(rebuilt == new);
        assert_eq!(root.finish().unwrap(), whole_root(new));
        Refined { coarse_literal, literal, sum_bytes }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

        #[test]
        fn law_refined_plans_rebuild_with_no_more_literals(case in Edited::any(4096, 150_000)) {
            let refined = two_rounds(&case.basis, &case.new, 8192, 1024);
            prop_assert!(refined.literal <= refined.coarse_literal);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

        #[test]
        fn law_weak_sums_on_demand_find_what_a_search_with_them_finds(
            case in Edited::any(4096, 150_000),
            len in 0_usize..3 << 20,
        ) {
            // Repeated edits far into a longer file, so that strong sums settle some segments.
            let tail = noise(23, len);
            let [basis, new] = [&case.basis, &case.new].map(|file| [file.as_slice(), &tail].concat());
            let (_, plans, _) = plans_on_demand(&basis, &new, 4096, true);
            let both = IndexedSignature::new(signature(&basis, 4096, SumsFormat::StrongAndWeak), &key());
            let segments = Segments::new(len_u64(new.len()), 20).unwrap();
            let rolling = Rolling::new();
            for (i, plan) in (0..).zip(&plans) {
                let whole = plan_segment(&both, &new, &segments, i, &rolling).unwrap();
                prop_assert_eq!((plan.lead(), &plan.pieces), (whole.lead(), &whole.pieces));
                prop_assert_eq!(plan.outcome().value, whole.outcome().value);
            }
        }
    }

    #[test]
    fn weak_sums_are_asked_for_only_where_data_has_shifted() {
        let basis = noise(24, 8 << 20);
        let mut overwritten = basis.clone();
        for page in 0..20 {
            let at = (page * 101 % 2048) * 4096;
            overwritten[at..at + 4096].copy_from_slice(&noise(page as u64, 4096));
        }
        let literal =
            |plans: &[SegmentPlan]| plans.iter().map(|plan| plan.outcome().literal_bytes).sum::<u64>();
        let (_, plans, asked) = plans_on_demand(&basis, &basis, 8192, false);
        assert_eq!((asked, literal(&plans)), (false, 0));
        let (index, plans, asked) = plans_on_demand(&basis, &overwritten, 8192, false);
        assert!(!asked && !index.has_weak() && literal(&plans) <= 20 * 8192);
        let (_, plans, asked) = plans_on_demand(&basis, &[b"x", basis.as_slice()].concat(), 8192, false);
        assert_eq!((asked, literal(&plans)), (true, 1));
        // A shift shortly before the end is a long gap, too. Beside the last blocks it is not.
        let shifted = |at: usize| {
            let mut new = basis.clone();
            new.insert(at, 1);
            plans_on_demand(&basis, &new, 8192, false).2
        };
        assert!(shifted((8 << 20) - 20 * 8192) && !shifted((8 << 20) - 3 * 8192));
    }

    #[test]
    fn weak_sums_that_do_not_fit_are_rejected() {
        let basis = noise(25, 100_000);
        let sums = |len: usize, block_len, format| signature(&basis[..len], block_len, format);
        let index = IndexedSignature::new(sums(100_000, 1024, SumsFormat::StrongOnly), &key());
        for foreign in [
            sums(100_000, 2048, SumsFormat::WeakOnly),
            sums(99_999, 1024, SumsFormat::WeakOnly),
            sums(100_000, 1024, SumsFormat::StrongAndWeak),
        ] {
            assert_eq!(index.add_weak(foreign), Err(AddWeakError::Foreign));
        }
        let weak = || sums(100_000, 1024, SumsFormat::WeakOnly);
        assert_eq!(index.add_weak(weak()), Ok(()));
        assert_eq!(index.add_weak(weak()), Err(AddWeakError::Twice));
        let both = IndexedSignature::new(sums(100_000, 1024, SumsFormat::StrongAndWeak), &key());
        assert_eq!(both.add_weak(weak()), Err(AddWeakError::Twice));
        // Weak sums alone find nothing and do no harm.
        let alone = IndexedSignature::new(weak(), &key());
        let segments = Segments::for_file(100_000).unwrap();
        let plan = plan_segment(&alone, &basis, &segments, 0, &Rolling::new()).unwrap();
        assert_eq!(plan.outcome().literal_bytes, 100_000);
    }

    #[test]
    fn two_rounds_beat_one_on_scattered_pages() {
        let basis = noise(21, 8 << 20);
        let mut new = basis.clone();
        for page in 0..20 {
            let at = (page * 101 % 2048) * 4096;
            new[at..at + 4096].copy_from_slice(&noise(page as u64, 4096));
        }
        let refined = two_rounds(&basis, &new, 64 << 10, 4 << 10);
        assert_eq!(refined.coarse_literal, 20 * (64 << 10));
        assert_eq!(refined.literal, 20 * 4096);
        assert!(refined.sum_bytes < 128 * 12 + 20 * 3 * 16 * 12 + 200, "{}", refined.sum_bytes);
    }

    #[test]
    fn insertions_are_narrowed_down_too() {
        let basis = noise(22, 2 << 20);
        let mut new = basis.clone();
        new.splice(700_000..700_000, *b"inserted");
        new.drain(1_500_000..1_500_100);
        let refined = two_rounds(&basis, &new, 64 << 10, 2 << 10);
        assert!(refined.literal <= 2 * 4096 + 8, "{}", refined.literal);
    }
}
