//! Segments: pieces of a large file that are hashed on several threads and still yield one root.
//!
//! A segment is `2^length_log2` bytes of a file; the last one may be shorter. Aligned powers of two
//! are subtrees of the BLAKE3 tree (BLAKE3 paper, section 2.1), so each segment has a value of its
//! own, computed without the others. [`RootBuilder`] merges the values in any order into exactly
//! the root that [`crate::file_root`] returns. A file of one segment has no subtree above it: its
//! value *is* the root. An empty file is one empty segment.

use std::{collections::BTreeMap, ops::Range};

use blake3::hazmat::{ChainingValue, HasherExt, merge_subtrees_non_root, merge_subtrees_root};

use crate::{
    block::Layout,
    key::Key,
    num::{len_u64, saturating_usize},
    root::FileRoot,
    summing::{BlockHasher, SegmentSums},
    tuning,
};

/// The division of a file into segments.
///
/// ```
/// use dsync_delta::Segments;
///
/// // Threads may take one each.
/// let segments = Segments::for_file(10 << 20)?;
/// assert_eq!((segments.count(), segments.segment_len()), (10, 1 << 20));
/// assert_eq!(segments.range(2), 2 << 20..3 << 20);
/// // A peer names the length that it cut its file with.
/// assert_eq!(Segments::new(10 << 20, 20)?, segments);
/// # Ok::<(), dsync_delta::SegmentError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Segments {
    file_len: u64,
    length_log2: u8,
}

impl Segments {
    /// Log2 of the shortest segment: 1 MiB.
    pub const MIN_LOG2: u8 = 20;
    /// Log2 of the longest segment: 64 MiB.
    pub const MAX_LOG2: u8 = 26;

    /// Cuts a file of `file_len` bytes into segments of `2^length_log2` bytes.
    ///
    /// # Errors
    /// [`SegmentError::LengthOutOfRange`] if `length_log2` is not from 20 to 26,
    /// [`SegmentError::FileTooLong`] if `file_len` exceeds `i64::MAX`.
    pub fn new(file_len: u64, length_log2: u8) -> Result<Self, SegmentError> {
        if !(Self::MIN_LOG2..=Self::MAX_LOG2).contains(&length_log2) {
            return Err(SegmentError::LengthOutOfRange { length_log2 });
        }
        if file_len > MAX_FILE_LEN {
            return Err(SegmentError::FileTooLong { file_len });
        }
        Ok(Self { file_len, length_log2 })
    }

    /// Chooses the segment length for a file; see `tuning`.
    ///
    /// # Errors
    /// [`SegmentError::FileTooLong`] if `file_len` exceeds `i64::MAX`.
    pub fn for_file(file_len: u64) -> Result<Self, SegmentError> {
        Self::new(file_len, tuning::segment_log2(file_len))
    }

    /// Returns the length of the file in bytes.
    pub fn file_len(self) -> u64 {
        self.file_len
    }

    /// Returns the log2 of the segment length.
    pub fn length_log2(self) -> u8 {
        self.length_log2
    }

    /// Returns the length in bytes of every segment except possibly the last.
    pub fn segment_len(self) -> u64 {
        1 << self.length_log2
    }

    /// Returns the number of segments, at least 1.
    pub fn count(self) -> u64 {
        self.file_len.div_ceil(self.segment_len()).max(1)
    }

    /// Returns the range of a segment in the file, in bytes; an empty range at the file's end if
    /// there is no such segment.
    pub fn range(self, index: u64) -> Range<u64> {
        let start = index.saturating_mul(self.segment_len()).min(self.file_len);
        let end = start.saturating_add(self.segment_len()).min(self.file_len);
        start..end
    }

    /// Checks a segment number.
    pub(crate) fn check(self, index: u64) -> Result<(), SegmentError> {
        if index < self.count() {
            Ok(())
        } else {
            Err(SegmentError::NoSuchSegment { index, count: self.count() })
        }
    }
}

/// The reason why a file cannot be cut or a segment cannot be hashed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SegmentError {
    /// The segment length is not allowed.
    #[error("segment length 2^{length_log2} is not from 2^20 to 2^26")]
    LengthOutOfRange {
        /// Log2 of the rejected length.
        length_log2: u8,
    },
    /// The file is longer than any filesystem allows.
    #[error("file length {file_len} exceeds 2^63 - 1")]
    FileTooLong {
        /// The rejected length in bytes.
        file_len: u64,
    },
    /// The file has no segment of that number.
    #[error("segment {index} of a file of {count}")]
    NoSuchSegment {
        /// The rejected number.
        index: u64,
        /// Number of segments of the file.
        count: u64,
    },
    /// A segment received more or fewer bytes than it has.
    #[error("segment got {got} bytes instead of {expected}")]
    WrongLength {
        /// Length of the segment in bytes.
        expected: u64,
        /// Number of bytes received.
        got: u64,
    },
    /// The layout whose sums are wanted is not that of the segments' file.
    #[error("the layout is of a file of {laid_out} bytes instead of {file_len}")]
    OtherLayout {
        /// Length of the segments' file in bytes.
        file_len: u64,
        /// Length of the layout's file in bytes.
        laid_out: u64,
    },
}

/// One segment's contribution to its file's root.
///
/// ```
/// use dsync_delta::{Key, SegmentHasher, Segments};
///
/// // Both ends hash a segment: a damaged one is sent again, not the whole file.
/// let value = |bytes: &[u8]| {
///     let mut hasher = SegmentHasher::new(&Key::from_bytes([7; 32]), &Segments::for_file(4)?, 0)?;
///     hasher.update(bytes);
///     Ok::<_, dsync_delta::SegmentError>(hasher.finish()?.to_bytes())
/// };
/// assert_eq!(value(b"same")?, value(b"same")?);
/// assert_ne!(value(b"same")?, value(b"sane")?);
/// # Ok::<(), dsync_delta::SegmentError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SegmentValue(Value);

impl SegmentValue {
    /// Returns the value's bytes, to compare with those of the same segment under the same key.
    /// They depend on the segment's place in the file and on whether it is the only one.
    pub fn to_bytes(self) -> [u8; 32] {
        match self.0 {
            Value::Root(root) => *root.as_bytes(),
            Value::Subtree(value) => value,
        }
    }

    /// Makes the value of a file's only segment.
    pub(crate) fn root(root: FileRoot) -> Self {
        Self(Value::Root(root))
    }

    /// Makes the value of one of several segments.
    pub(crate) fn subtree(value: ChainingValue) -> Self {
        Self(Value::Subtree(value))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Value {
    /// The root of a file that has one segment.
    Root(FileRoot),
    /// A subtree below the root.
    Subtree(ChainingValue),
}

/// Computes the value of one segment from its bytes, fed in order and in pieces of any length.
///
/// ```
/// use dsync_delta::{Key, SegmentHasher, Segments, file_root};
///
/// let (key, segments) = (Key::from_bytes([7; 32]), Segments::for_file(8)?);
/// let mut hasher = SegmentHasher::new(&key, &segments, 0)?;
/// hasher.update(b"abc");
/// // A hole of the file, as `Step::Zero` has it.
/// hasher.update_zeros(5);
/// assert_eq!(hasher.finish()?.to_bytes(), *file_root(&key, b"abc\0\0\0\0\0").as_bytes());
/// # Ok::<(), dsync_delta::SegmentError>(())
/// ```
#[derive(Debug, Clone)]
pub struct SegmentHasher {
    hashing: Hashing,
    is_root: bool,
    expected: u64,
    got: u64,
}

#[derive(Debug, Clone)]
enum Hashing {
    Whole(Box<blake3::Hasher>),
    /// The sums of its blocks are wanted.
    Blocks(Box<BlockHasher>),
}

impl SegmentHasher {
    /// Starts segment `index`.
    ///
    /// # Errors
    /// [`SegmentError::NoSuchSegment`].
    pub fn new(key: &Key, segments: &Segments, index: u64) -> Result<Self, SegmentError> {
        segments.check(index)?;
        let range = segments.range(index);
        let mut hasher = key.hasher();
        hasher.set_input_offset(range.start);
        let (hashing, is_root) = (Hashing::Whole(Box::new(hasher)), segments.count() == 1);
        Ok(Self { hashing, is_root, expected: range.end - range.start, got: 0 })
    }

    /// Starts segment `index`, and the sums of the file's blocks in it. A file of one block has none,
    /// nor one whose blocks are longer than its segments.
    ///
    /// Memory: the sums, 32 bytes for each block, and one block.
    ///
    /// # Errors
    /// [`SegmentError::NoSuchSegment`], and [`SegmentError::OtherLayout`] if `layout` is of a file of
    /// another length.
    pub fn summing(key: &Key, segments: &Segments, index: u64, layout: Layout) -> Result<Self, SegmentError> {
        let mut this = Self::new(key, segments, index)?;
        let (file_len, laid_out) = (segments.file_len(), layout.file_len());
        if laid_out != file_len {
            return Err(SegmentError::OtherLayout { file_len, laid_out });
        }
        if layout.block_count() > 1 && layout.block_len().bytes() <= segments.segment_len() {
            let start = segments.range(index).start;
            this.hashing = Hashing::Blocks(Box::new(BlockHasher::new(key, layout, start, this.is_root)));
        }
        Ok(this)
    }

    /// Hashes the next bytes. Bytes beyond the segment's length are counted, not hashed, and
    /// [`finish`](Self::finish) reports them.
    pub fn update(&mut self, bytes: &[u8]) {
        let room = saturating_usize(self.expected.saturating_sub(self.got));
        self.hashing.update(&bytes[..bytes.len().min(room)]);
        self.got = self.got.saturating_add(len_u64(bytes.len()));
    }

    /// Hashes `len` zero bytes. Costs as much as hashing any others.
    pub fn update_zeros(&mut self, len: u64) {
        let room = self.expected.saturating_sub(self.got);
        let mut left = len.min(room);
        while left > 0 {
            let piece = saturating_usize(left).min(ZEROS.len());
            self.hashing.update(&ZEROS[..piece]);
            left -= len_u64(piece);
        }
        self.got = self.got.saturating_add(len);
    }

    /// Returns the segment's value.
    ///
    /// # Errors
    /// [`SegmentError::WrongLength`] unless exactly the segment's bytes were fed in.
    pub fn finish(self) -> Result<SegmentValue, SegmentError> {
        self.finish_with_sums().map(|(value, _)| value)
    }

    /// Returns the segment's value, and the sums of its blocks if it was started with them.
    ///
    /// # Errors
    /// As [`finish`](Self::finish).
    pub fn finish_with_sums(self) -> Result<(SegmentValue, Option<SegmentSums>), SegmentError> {
        if self.got != self.expected {
            return Err(SegmentError::WrongLength { expected: self.expected, got: self.got });
        }
        let value = match self.hashing {
            Hashing::Blocks(hasher) => {
                let (value, sums) = hasher.finish();
                return Ok((value, Some(sums)));
            }
            Hashing::Whole(hasher) if self.is_root => {
                Value::Root(FileRoot::from_bytes(*hasher.finalize().as_bytes()))
            }
            Hashing::Whole(hasher) => Value::Subtree(hasher.finalize_non_root()),
        };
        Ok((SegmentValue(value), None))
    }
}

impl Hashing {
    fn update(&mut self, bytes: &[u8]) {
        match self {
            Self::Whole(hasher) => _ = hasher.update(bytes),
            Self::Blocks(hasher) => hasher.update(bytes),
        }
    }
}

/// Merges the values of a file's segments, set in any order, into its root.
///
/// Memory: 40 bytes for each value whose neighbour is missing. A file whose segments arrive roughly
/// in order needs a few dozen, whatever its length.
///
/// ```
/// use dsync_delta::{Key, RootBuilder, SegmentHasher, Segments, file_root};
///
/// let (key, file) = (Key::from_bytes([7; 32]), vec![5; 6 << 20]);
/// let segments = Segments::for_file(6 << 20)?;
/// let mut root = RootBuilder::new(&key, &segments);
/// // In any order, as threads are done.
/// for index in (0..segments.count()).rev() {
///     assert!(!root.is_complete());
///     let range = segments.range(index);
///     let mut hasher = SegmentHasher::new(&key, &segments, index)?;
///     hasher.update(&file[range.start as usize..range.end as usize]);
///     root.set(index, hasher.finish()?)?;
/// }
/// assert_eq!(root.finish()?, file_root(&key, &file));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct RootBuilder {
    key: Key,
    segments: Segments,
    /// Values of complete subtrees by level (0: one segment) and position in the level.
    nodes: BTreeMap<(u32, u64), ChainingValue>,
    root: Option<FileRoot>,
}

impl RootBuilder {
    /// Starts with no segment.
    pub fn new(key: &Key, segments: &Segments) -> Self {
        Self { key: key.clone(), segments: *segments, nodes: BTreeMap::new(), root: None }
    }

    /// Sets the value of one segment.
    ///
    /// # Errors
    /// [`RootError::Segment`] if the file has no such segment, [`RootError::SetTwice`],
    /// [`RootError::ForeignValue`] if the value was made for a file with another number of
    /// segments.
    pub fn set(&mut self, index: u64, value: SegmentValue) -> Result<(), RootError> {
        self.segments.check(index).map_err(RootError::Segment)?;
        if self.is_set(index) {
            return Err(RootError::SetTwice { index });
        }
        match value.0 {
            Value::Root(root) if self.segments.count() == 1 => self.root = Some(root),
            Value::Subtree(value) if self.segments.count() > 1 => self.add(index, value),
            _ => return Err(RootError::ForeignValue { index }),
        }
        Ok(())
    }

    /// Returns whether every segment was set.
    pub fn is_complete(&self) -> bool {
        self.root.is_some()
    }

    /// Returns the file's root.
    ///
    /// # Errors
    /// [`RootError::Incomplete`] if a segment is missing.
    pub fn finish(self) -> Result<FileRoot, RootError> {
        self.root.ok_or(RootError::Incomplete)
    }

    /// Returns whether an already known subtree covers the segment.
    fn is_set(&self, index: u64) -> bool {
        self.root.is_some() || (0..u64::BITS).any(|level| self.nodes.contains_key(&(level, index >> level)))
    }

    /// Adds a leaf and merges upwards as long as neighbours are known.
    ///
    /// The tree of BLAKE3 is left-full: a node without a right neighbour stands for its parent.
    fn add(&mut self, index: u64, value: ChainingValue) {
        let count = self.segments.count();
        let (mut level, mut index, mut value) = (0, index, value);
        loop {
            let sibling = index ^ 1;
            let covers_nothing = (sibling << level) >= count;
            if !covers_nothing {
                let Some(other) = self.nodes.remove(&(level, sibling)) else {
                    self.nodes.insert((level, index), value);
                    return;
                };
                let (left, right) = if index & 1 == 0 { (&value, &other) } else { (&other, &value) };
                if index >> 1 == 0 && (2 << level) >= count {
                    let root = merge_subtrees_root(left, right, self.key.mode());
                    self.root = Some(FileRoot::from_bytes(*root.as_bytes()));
                    return;
                }
                value = merge_subtrees_non_root(left, right, self.key.mode());
            }
            index >>= 1;
            level += 1;
        }
    }
}

/// The reason why a root cannot be built.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RootError {
    /// The file has no such segment.
    #[error("cannot set the value of a segment")]
    Segment(#[source] SegmentError),
    /// The segment's value was already set.
    #[error("segment {index} was set twice")]
    SetTwice {
        /// Number of the segment.
        index: u64,
    },
    /// The value was made for a file cut in another way.
    #[error("the value of segment {index} belongs to another file")]
    ForeignValue {
        /// Number of the segment.
        index: u64,
    },
    /// A segment is missing.
    #[error("not all segments were set")]
    Incomplete,
}

/// Largest file length of any POSIX system: offsets are signed 64-bit.
const MAX_FILE_LEN: u64 = i64::MAX.unsigned_abs();

/// Zero bytes to hash: BLAKE3 reaches full speed at 64 KiB.
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{
        root::file_root,
        subtree::SegmentTree,
        testing::{key, noise},
    };

    fn value(segments: &Segments, index: u64, file: &[u8]) -> SegmentValue {
        let range = segments.range(index);
        let mut hasher = SegmentHasher::new(&key(), segments, index).unwrap();
        let (start, end) = (range.start.try_into().unwrap(), range.end.try_into().unwrap());
        hasher.update(&file[start..end]);
        hasher.finish().unwrap()
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

        #[test]
        fn law_merged_root_is_the_keyed_hash(
            len in prop_oneof![0_usize..3000, 0_usize..12 << 20, (0_usize..12).prop_map(|n| n << 20)],
            order in any::<u64>(),
        ) {
            let file = noise(order, len);
            let segments = Segments::new(len as u64, 20).unwrap();
            let mut builder = RootBuilder::new(&key(), &segments);
            let mut left: Vec<u64> = (0..segments.count()).collect();
            let mut order = order;
            while !left.is_empty() {
                prop_assert!(!builder.is_complete());
                let index = left.swap_remove((order % left.len() as u64).try_into().unwrap());
                order = order.rotate_left(7).wrapping_mul(0x9e37_79b9_7f4a_7c15);
                builder.set(index, value(&segments, index, &file)).unwrap();
                prop_assert_eq!(
                    builder.set(index, value(&segments, index, &file)),
                    Err(RootError::SetTwice { index })
                );
            }
            prop_assert_eq!(builder.finish().unwrap(), file_root(&key(), &file));
        }

        #[test]
        fn law_subtrees_in_any_pieces_give_the_segment(
            len in 0_usize..3 << 20,
            pieces in prop::collection::vec(1_usize..200_000, 1..20),
        ) {
            let file = noise(3, len);
            let segments = Segments::new(len as u64, 20).unwrap();
            for index in 0..segments.count() {
                let range = segments.range(index);
                let end: usize = range.end.try_into().unwrap();
                let mut tree = SegmentTree::new(&key(), &segments, index).unwrap();
                for &piece in pieces.iter().cycle() {
                    let at: usize = tree.position().try_into().unwrap();
                    if at == end {
                        break;
                    }
                    // Less than a chunk may be left over: then offer more.
                    let taken = tree.update(&file[at..(at + piece).min(end)]);
                    if taken == 0 {
                        tree.update(&file[at..(at + piece + 1024).min(end)]);
                    }
                }
                prop_assert_eq!(tree.finish().unwrap(), value(&segments, index, &file));
            }
        }
    }

    #[test]
    fn memory_stays_small_in_order() {
        let segments = Segments::new(1000 << 20, 20).unwrap();
        let mut builder = RootBuilder::new(&key(), &segments);
        for index in 0..1000 {
            builder.set(index, SegmentValue::subtree([7; 32])).unwrap();
            assert!(builder.nodes.len() <= 10);
        }
        assert!(builder.is_complete() && builder.nodes.is_empty());
    }

    #[test]
    fn impossible_cuts_and_segments_are_rejected() {
        assert_eq!(Segments::new(0, 19), Err(SegmentError::LengthOutOfRange { length_log2: 19 }));
        assert_eq!(Segments::new(0, 27), Err(SegmentError::LengthOutOfRange { length_log2: 27 }));
        assert_eq!(Segments::new(u64::MAX, 20), Err(SegmentError::FileTooLong { file_len: u64::MAX }));
        let segments = Segments::new(MAX_FILE_LEN, 26).unwrap();
        assert_eq!(segments.range(segments.count() - 1).end, MAX_FILE_LEN);
        assert!(segments.range(u64::MAX).is_empty());
        let index = segments.count();
        assert!(SegmentHasher::new(&key(), &segments, index).is_err());
        let mut builder = RootBuilder::new(&key(), &segments);
        assert!(matches!(
            builder.set(index, SegmentValue::subtree([0; 32])),
            Err(RootError::Segment(SegmentError::NoSuchSegment { .. }))
        ));
        assert_eq!(
            builder.set(0, SegmentValue::root(FileRoot::from_bytes([0; 32]))),
            Err(RootError::ForeignValue { index: 0 })
        );
        assert_eq!(builder.finish(), Err(RootError::Incomplete));
    }

    #[test]
    fn sums_in_the_layout_of_another_file_are_refused() {
        let segments = Segments::new(3 << 20, 20).unwrap();
        let summing = |file_len| {
            let layout = Layout::new(file_len, crate::BlockLen::MIN);
            SegmentHasher::summing(&key(), &segments, 2, layout).map(drop)
        };
        for laid_out in [0, 2 << 20, (3 << 20) - 1, (3 << 20) + 1, 1 << 40] {
            assert_eq!(summing(laid_out), Err(SegmentError::OtherLayout { file_len: 3 << 20, laid_out }));
        }
        assert_eq!(summing(3 << 20), Ok(()));
    }

    #[test]
    fn segment_of_another_length_has_no_value() {
        let segments = Segments::new(3 << 20, 20).unwrap();
        for (bytes, zeros) in [(0, 1 << 20), (5, (1 << 20) - 4), (0, u64::MAX)] {
            let mut hasher = SegmentHasher::new(&key(), &segments, 1).unwrap();
            hasher.update(&[0; 5][..bytes]);
            hasher.update_zeros(zeros);
            assert_eq!(hasher.finish().is_ok(), (bytes, zeros) == (0, 1 << 20));
        }
        let mut zeros = SegmentHasher::new(&key(), &segments, 1).unwrap();
        zeros.update_zeros(1 << 20);
        assert_eq!(zeros.finish().unwrap(), value(&segments, 1, &vec![0; 3 << 20]));
    }
}
