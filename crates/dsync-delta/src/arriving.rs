//! Sums that arrive while others search: a signature is of use before it is whole.
//!
//! A long basis takes seconds to sign, and its strong sums are found by position. A segment of the
//! new file can therefore be searched as soon as the sums around its place are here, while the
//! destination still signs what follows. The weak sums of data that has shifted need the whole
//! table, and are added later ([`IndexedSignature::add_weak`](crate::IndexedSignature::add_weak)).
//!
//! Law: a segment that is searched once [`IndexedSignature::is_ready_for`] holds has the plan that
//! it would have with the whole signature.

use std::sync::{Arc, OnceLock};

use crate::{
    block::Layout,
    index::IndexedSignature,
    key::Key,
    num::{len_u64, saturating_usize},
    signature::{StrongSum, SumsError},
};

/// The strong sums of an index, in pieces of [`PIECE_BLOCKS`], each of which is written once.
#[derive(Debug)]
pub(crate) struct StrongSums {
    pieces: Box<[OnceLock<Box<[StrongSum]>>]>,
}

impl StrongSums {
    /// Makes room for the sums of so many blocks. Cost: 3 bytes for each hundred blocks.
    fn room_for(blocks: u64) -> Self {
        let pieces = saturating_usize(blocks.div_ceil(PIECE_BLOCKS));
        Self { pieces: (0..pieces).map(|_| OnceLock::new()).collect() }
    }

    /// Takes the sums of all blocks.
    pub(crate) fn whole(sums: &[StrongSum]) -> Self {
        let piece = |sums: &[StrongSum]| OnceLock::from(Box::from(sums));
        Self { pieces: sums.chunks(PIECE_LEN).map(piece).collect() }
    }

    /// Returns the sum at `slot`, if it is here.
    pub(crate) fn get(&self, slot: u64) -> Option<&StrongSum> {
        let piece = self.pieces.get(saturating_usize(slot / PIECE_BLOCKS))?;
        piece.get()?.get(saturating_usize(slot % PIECE_BLOCKS))
    }

    /// Returns whether the sums of all slots before `end` are here. They arrive in order.
    pub(crate) fn reach(&self, end: u64) -> bool {
        end.checked_sub(1).is_none_or(|last| self.get(last).is_some())
    }
}

/// Reads a peer's encoded strong sums into an index that is searched meanwhile.
///
/// # Security
/// The peer controls everything. Before the number of blocks has passed `max_blocks`, nothing is
/// allocated; then 3 bytes for each hundred blocks; the rest grows with the bytes that really arrive.
///
/// ```
/// use std::sync::Arc;
///
/// use dsync_delta::{ArrivingSignature, BlockLen, IndexedSignature, Key, Layout, Segments};
/// # use dsync_delta::{SignatureBuilder, SumsFormat};
///
/// let (key, basis) = (Key::from_bytes([7; 32]), [5; 6 << 10]);
/// let layout = Layout::new(6 << 10, BlockLen::MIN);
/// # let mut builder = SignatureBuilder::with_format(&key, layout, SumsFormat::StrongOnly);
/// # builder.update(&basis);
/// # let sums = builder.finish()?.encode();
/// let mut arriving = ArrivingSignature::new(layout, &key, 1 << 20)?;
/// let index: Arc<IndexedSignature> = arriving.index().clone();
/// assert!(!index.is_ready_for(Segments::for_file(6 << 10)?, 0));
///
/// for message in sums.chunks(10) {
///     arriving.push(message)?;
/// }
/// // Whoever holds the index may search the segment now.
/// assert!(index.is_ready_for(Segments::for_file(6 << 10)?, 0));
/// arriving.finish()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct ArrivingSignature {
    index: Arc<IndexedSignature>,
    blocks: u64,
    /// Blocks whose sums are in the index.
    done: u64,
    /// Encoded sums of the blocks that follow, less than a piece.
    partial: Vec<u8>,
}

impl ArrivingSignature {
    /// Starts a signature of [`SumsFormat::StrongOnly`](crate::SumsFormat::StrongOnly) of a basis
    /// that the peer laid out.
    ///
    /// # Errors
    /// [`SumsError::TooManyBlocks`].
    pub fn new(layout: Layout, key: &Key, max_blocks: u64) -> Result<Self, SumsError> {
        let blocks = layout.block_count();
        if blocks > max_blocks {
            return Err(SumsError::TooManyBlocks { blocks, max: max_blocks });
        }
        let index = IndexedSignature::arriving(layout, key, StrongSums::room_for(blocks));
        Ok(Self { index: Arc::new(index), blocks, done: 0, partial: Vec::new() })
    }

    /// Returns the index that the sums arrive in.
    pub fn index(&self) -> &Arc<IndexedSignature> {
        &self.index
    }

    /// Reads the next bytes, of any number.
    ///
    /// # Errors
    /// [`SumsError::TooLong`] as soon as there are more sums than blocks.
    pub fn push(&mut self, mut bytes: &[u8]) -> Result<(), SumsError> {
        while !bytes.is_empty() {
            let piece_blocks = saturating_usize((self.blocks - self.done).min(PIECE_BLOCKS));
            if piece_blocks == 0 {
                return Err(SumsError::TooLong { blocks: self.blocks });
            }

            let missing = piece_blocks * StrongSum::LEN - self.partial.len();
            let (now, later) = bytes.split_at(missing.min(bytes.len()));
            self.partial.extend_from_slice(now);
            bytes = later;
            if now.len() == missing {
                self.finish_piece();
            }
        }
        Ok(())
    }

    /// Ends the signature.
    ///
    /// # Errors
    /// [`SumsError::Truncated`] if sums are missing.
    pub fn finish(self) -> Result<(), SumsError> {
        if self.done == self.blocks {
            return Ok(());
        }
        let got = self.done + len_u64(self.partial.len() / StrongSum::LEN);
        Err(SumsError::Truncated { blocks: self.blocks, got })
    }

    fn finish_piece(&mut self) {
        let sums = self.partial.as_chunks().0;
        let sums: Box<[StrongSum]> = sums.iter().map(|&sum| StrongSum(sum)).collect();
        let at = saturating_usize(self.done / PIECE_BLOCKS);
        self.done += len_u64(sums.len());
        self.partial.clear();
        if let Some(piece) = self.index.strong().pieces.get(at) {
            // Only this reader writes, and each piece once.
            let _: Result<(), _> = piece.set(sums);
        }
    }
}

/// Blocks whose sums a search gets at once: 32 MiB of a basis in blocks of 32 KiB.
pub(crate) const PIECE_BLOCKS: u64 = 1 << 10;
const PIECE_LEN: usize = 1 << 10;

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{
        BlockLen, Rolling, SegmentPlan, Segments, SumsFormat, plan_segment,
        testing::{Edited, Encoded, key, noise, signature},
    };

    proptest! {
        #![proptest_config(ProptestConfig { cases: 150, ..ProptestConfig::default() })]

        #[test]
        fn law_a_segment_that_is_ready_has_the_plan_of_the_whole_signature(
            case in Edited::any(1024, 100_000),
            before in 0_usize..3 << 20,
            after in 0_usize..3 << 20,
            (grows, moves) in (0_usize..3 << 20, any::<bool>()),
            piece in 1_usize..20_000,
        ) {
            let (before, after) = (noise(31, before), noise(32, after));
            let [basis, mut new] =
                [&case.basis, &case.new].map(|file| [&before, file.as_slice(), &after].concat());
            // Longer than the basis, or without its beginning.
            if moves { new.drain(..grows.min(new.len())); } else { new.extend(noise(33, grows)); }
            let sums = signature(&basis, 1024, SumsFormat::StrongOnly);
            let whole = IndexedSignature::new(sums.clone(), &key());
            let segments = Segments::new(len_u64(new.len()), 20).unwrap();
            let mut arriving = ArrivingSignature::new(sums.layout(), &key(), 1 << 20).unwrap();
            let index = Arc::clone(arriving.index());
            let rollings = [Rolling::new(), Rolling::new()];
            let mut next = 0;
            let mut early = 0;
            let bytes = sums.encode();
            for (at, piece) in (1..).zip(bytes.chunks(piece)) {
                arriving.push(piece).unwrap();
                while next < segments.count() && index.is_ready_for(segments, next) {
                    let plan = plan_segment(&index, &new, &segments, next, &rollings[0]).unwrap();
                    let expected = plan_segment(&whole, &new, &segments, next, &rollings[1]).unwrap();
                    prop_assert_eq!(emitted(&plan, &new), emitted(&expected, &new));
                    prop_assert_eq!(plan.outcome(), expected.outcome());
                    early += u32::from(at * piece.len() < bytes.len());
                    next += 1;
                }
            }
            prop_assert!(bytes.is_empty() || next == segments.count());
            // Three segments of 1024 blocks each: the first one need not wait for the last sums.
            let spread = new.len() > 3 << 20 && basis.len() > 3 << 20 && piece <= PIECE_LEN;
            prop_assert!(!spread || early > 0);
            prop_assert_eq!(arriving.finish(), Ok(()));
        }
    }

    fn emitted(plan: &SegmentPlan, new: &[u8]) -> (Option<u32>, Vec<Vec<u8>>, Vec<u8>) {
        let mut encoded = Encoded::default();
        plan.emit(new, &mut encoded).unwrap();
        (encoded.lead, encoded.payloads, encoded.encoder.take())
    }

    #[test]
    fn sums_of_the_wrong_number_are_errors() {
        let layout = |blocks: u64| Layout::new(blocks << 10, BlockLen::MIN);
        let new = |blocks| ArrivingSignature::new(layout(blocks), &key(), 5000);
        assert_eq!(new(5001).unwrap_err(), SumsError::TooManyBlocks { blocks: 5001, max: 5000 });
        for blocks in [0, 1, 1023, 1024, 1025, 2048, 5000] {
            let sums = vec![7; saturating_usize(blocks) * StrongSum::LEN];
            let mut whole = new(blocks).unwrap();
            whole.push(&sums).unwrap();
            assert_eq!(whole.push(&[1]), Err(SumsError::TooLong { blocks }));
            assert_eq!(whole.finish(), Ok(()));
            let mut long = new(blocks).unwrap();
            assert_eq!(long.push(&[sums, vec![1]].concat()), Err(SumsError::TooLong { blocks }));
        }

        let mut short = new(2000).unwrap();
        short.push(&[7; 1999 * 8 + 7]).unwrap();
        assert!(short.index().strong().reach(1024) && !short.index().strong().reach(1025));
        assert_eq!(short.finish(), Err(SumsError::Truncated { blocks: 2000, got: 1999 }));
    }
}
