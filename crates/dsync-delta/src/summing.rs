//! Making the signature of a file while its segments are verified, so that a later run need not read
//! the file to sign it.
//!
//! A block's strong sum is the beginning of a value of the very tree whose subtrees are the segments'
//! values. [`SegmentHasher::summing`](crate::SegmentHasher::summing) keeps those on the way, and makes
//! the weak sums beside them; a [`SignatureCollector`] puts the sums of all segments together.
//!
//! Law: segments of any order make the signature that reading the finished file would make.

use std::collections::BTreeMap;

use blake3::hazmat::{ChainingValue, merge_subtrees_non_root, merge_subtrees_root};

use crate::{
    block::{BlockIndex, Layout},
    cutter::BlockCutter,
    key::Key,
    num::{len_u64, saturating_usize},
    root::FileRoot,
    segment::SegmentValue,
    signature::{BlockSummer, Signature, StrongSum, SumsFormat},
    weak::WeakSum,
};

/// The sums of the blocks of one segment.
///
/// ```
/// use dsync_delta::{BlockLen, Key, Layout, SegmentHasher, Segments};
///
/// let (segments, layout) = (Segments::for_file(4096)?, Layout::new(4096, BlockLen::MIN));
/// let mut hasher = SegmentHasher::summing(&Key::from_bytes([7; 32]), &segments, 0, layout)?;
/// hasher.update(&[5; 4096]);
/// let (_value, sums) = hasher.finish_with_sums()?;
/// // Charge them to a budget before they are kept.
/// assert!(sums.is_some_and(|sums| sums.memory_bytes() >= 4 * 12));
/// # Ok::<(), dsync_delta::SegmentError>(())
/// ```
#[derive(Debug, Clone)]
pub struct SegmentSums {
    first: u64,
    strong: Vec<StrongSum>,
    weak: Vec<WeakSum>,
}

impl SegmentSums {
    /// Returns the memory that they take, in bytes.
    pub fn memory_bytes(&self) -> u64 {
        len_u64(self.strong.len() * SumsFormat::StrongAndWeak.bytes_per_block() + size_of::<Self>())
    }
}

/// Hashes a segment block by block, of which there are at least two or the segment is not the only
/// one.
#[derive(Debug, Clone)]
pub(crate) struct BlockHasher {
    summer: BlockSummer,
    key: Key,
    is_root: bool,
    sums: SegmentSums,
    values: Vec<ChainingValue>,
    cutter: BlockCutter,
}

impl BlockHasher {
    /// Starts the segment at offset `start`, a multiple of the block length.
    pub(crate) fn new(key: &Key, layout: Layout, start: u64, is_root: bool) -> Self {
        let sums =
            SegmentSums { first: start / layout.block_len().bytes(), strong: Vec::new(), weak: Vec::new() };
        Self {
            summer: BlockSummer::new(key, layout, SumsFormat::StrongAndWeak),
            key: key.clone(),
            is_root,
            sums,
            values: Vec::new(),
            cutter: BlockCutter::new(layout.block_len().size()),
        }
    }

    /// Hashes the next bytes, which lie in the segment.
    pub(crate) fn update(&mut self, bytes: &[u8]) {
        let mut cutter = std::mem::take(&mut self.cutter);
        cutter.push(bytes, |block| self.add(block));
        self.cutter = cutter;
    }

    /// Returns the segment's value and the sums of its blocks.
    pub(crate) fn finish(mut self) -> (SegmentValue, SegmentSums) {
        std::mem::take(&mut self.cutter).finish(|block| self.add(block));
        let (left, right) = self.values.split_at(left_len(self.values.len()));
        let value = if self.is_root {
            let root = merge_subtrees_root(&self.merged(left), &self.merged(right), self.key.mode());
            SegmentValue::root(FileRoot::from_bytes(*root.as_bytes()))
        } else {
            SegmentValue::subtree(self.merged(&self.values))
        };
        (value, self.sums)
    }

    fn add(&mut self, bytes: &[u8]) {
        let block = BlockIndex(self.sums.first + len_u64(self.values.len()));
        let value = self.summer.value(block, bytes);
        self.values.push(value);
        self.sums.strong.push(StrongSum::of(&value));
        self.sums.weak.extend(self.summer.weak(bytes));
    }

    /// Merges the values of neighbours. The tree of BLAKE3 is left-full.
    fn merged(&self, values: &[ChainingValue]) -> ChainingValue {
        match values {
            [] => ChainingValue::default(),
            [one] => *one,
            more => {
                let (left, right) = more.split_at(left_len(more.len()));
                merge_subtrees_non_root(&self.merged(left), &self.merged(right), self.key.mode())
            }
        }
    }
}

/// Returns the number of blocks in the left subtree of `count`: the largest power of two below it.
fn left_len(count: usize) -> usize {
    count.next_power_of_two() / 2
}

/// Collects the sums of all segments of a file.
///
/// Memory: 12 bytes for each block whose sums are here.
///
/// ```
/// use dsync_delta::{
///     BlockLen, Key, Layout, SegmentHasher, Segments, SignatureBuilder, SignatureCollector,
/// };
///
/// // A file that was just received is a basis next time: its root and its sums take one pass.
/// let (key, file) = (Key::from_bytes([7; 32]), vec![5; 6 << 20]);
/// let (segments, layout) =
///     (Segments::for_file(6 << 20)?, Layout::new(6 << 20, BlockLen::for_file(6 << 20)));
/// let mut collector = SignatureCollector::new(layout);
/// for index in 0..segments.count() {
///     let range = segments.range(index);
///     let mut hasher = SegmentHasher::summing(&key, &segments, index, collector.layout())?;
///     hasher.update(&file[range.start as usize..range.end as usize]);
///     let (_value, sums) = hasher.finish_with_sums()?;
///     sums.into_iter().for_each(|sums| collector.add(sums));
/// }
/// let mut builder = SignatureBuilder::new(&key, layout);
/// builder.update(&file);
/// assert_eq!(collector.finish(), Some(builder.finish()?));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct SignatureCollector {
    layout: Layout,
    parts: BTreeMap<u64, SegmentSums>,
}

impl SignatureCollector {
    /// Starts with no segment.
    pub fn new(layout: Layout) -> Self {
        Self { layout, parts: BTreeMap::new() }
    }

    /// Returns the file's division into blocks.
    pub fn layout(&self) -> Layout {
        self.layout
    }

    /// Adds the sums of one segment.
    pub fn add(&mut self, sums: SegmentSums) {
        self.parts.insert(sums.first, sums);
    }

    /// Returns the signature with both sums of each block; `None` if a segment is missing.
    pub fn finish(self) -> Option<Signature> {
        let (mut strong, mut weak) = (Vec::new(), Vec::new());
        for (first, part) in self.parts {
            if first != len_u64(strong.len()) {
                return None;
            }
            strong.extend(part.strong);
            weak.extend(part.weak);
        }
        let is_whole = strong.len() == saturating_usize(self.layout.block_count());
        is_whole.then(|| Signature::of_parts(self.layout, strong, weak))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{
        BlockLen, SegmentHasher, Segments,
        testing::{key, noise, signature},
    };

    proptest! {
        #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

        #[test]
        fn law_segments_of_any_order_make_the_signature_of_the_file(
            len in 1_usize..5 << 20,
            pieces in prop::collection::vec(1_usize..300_000, 1..20),
            block_log2 in 11_u32..17,
            backwards: bool,
        ) {
            let file = noise(51, len);
            let segments = Segments::new(len_u64(len), 20).unwrap();
            let layout = Layout::new(len_u64(len), BlockLen::from_log2(block_log2));
            prop_assume!(layout.block_count() > 1);
            let mut collector = SignatureCollector::new(layout);
            let mut order: Vec<u64> = (0..segments.count()).collect();
            if backwards {
                order.reverse();
            }
            for index in order {
                let range = segments.range(index);
                let (start, end) = (saturating_usize(range.start), saturating_usize(range.end));
                let mut summing = SegmentHasher::summing(&key(), &segments, index, layout).unwrap();
                let mut plain = SegmentHasher::new(&key(), &segments, index).unwrap();
                let mut rest = &file[start..end];
                for &piece in pieces.iter().cycle() {
                    let (now, later) = rest.split_at(piece.min(rest.len()));
                    summing.update(now);
                    plain.update(now);
                    rest = later;
                    if rest.is_empty() {
                        break;
                    }
                }
                let (value, sums) = summing.finish_with_sums().unwrap();
                prop_assert_eq!(value, plain.finish().unwrap());
                collector.add(sums.unwrap());
            }
            let whole = signature(&file, layout.block_len().get(), SumsFormat::StrongAndWeak);
            prop_assert_eq!(collector.finish().unwrap(), whole);
        }
    }

    #[test]
    fn zeros_and_missing_or_short_segments() {
        let segments = Segments::new(3 << 20, 20).unwrap();
        let layout = Layout::new(3 << 20, BlockLen::from_log2(13));
        let mut collector = SignatureCollector::new(layout);
        for index in [0, 2] {
            let mut hasher = SegmentHasher::summing(&key(), &segments, index, layout).unwrap();
            hasher.update_zeros(1 << 20);
            collector.add(hasher.finish_with_sums().unwrap().1.unwrap());
        }
        assert!(collector.clone().finish().is_none(), "the second is missing");
        let mut hasher = SegmentHasher::summing(&key(), &segments, 1, layout).unwrap();
        hasher.update_zeros((1 << 20) - 1);
        assert!(hasher.clone().finish_with_sums().is_err());
        hasher.update(&[0, 1]);
        assert!(hasher.finish_with_sums().is_err(), "one byte too many");
        let mut hasher = SegmentHasher::summing(&key(), &segments, 1, layout).unwrap();
        hasher.update_zeros(1 << 20);
        collector.add(hasher.finish_with_sums().unwrap().1.unwrap());
        let whole = signature(&vec![0; 3 << 20], 1 << 13, SumsFormat::StrongAndWeak);
        assert_eq!(collector.finish().unwrap(), whole);
    }

    #[test]
    fn a_file_of_one_block_and_blocks_longer_than_a_segment_have_no_sums() {
        for (len, block_log2) in [(8192, 13), (0, 13), (3 << 20, 21)] {
            let segments = Segments::new(len, 20).unwrap();
            let layout = Layout::new(len, BlockLen::from_log2(block_log2));
            let mut hasher = SegmentHasher::summing(&key(), &segments, 0, layout).unwrap();
            hasher.update_zeros(len.min(1 << 20));
            let (value, sums) = hasher.finish_with_sums().unwrap();
            let mut plain = SegmentHasher::new(&key(), &segments, 0).unwrap();
            plain.update_zeros(len.min(1 << 20));
            assert_eq!(value, plain.finish().unwrap());
            assert!(sums.is_none());
        }
    }
}
