//! Merging the subtrees of one segment in order, whatever their sizes.
//!
//! A search learns the values of some blocks while it compares them, and has to hash the bytes in
//! between. [`SegmentTree`] takes both, as long as they follow each other, and returns the same
//! value as hashing the segment in one go. The tree of BLAKE3 is left-full and aligned, so any run
//! of whole chunks splits into complete subtrees (BLAKE3 paper, section 2.1).

use std::ops::Range;

use blake3::hazmat::{
    ChainingValue, HasherExt, left_subtree_len, merge_subtrees_non_root, merge_subtrees_root,
};

use crate::{
    key::Key,
    num::{len_u64, saturating_usize},
    root::FileRoot,
    segment::{SegmentError, SegmentValue, Segments},
};

/// The subtrees of a segment up to a position.
#[derive(Debug)]
pub(crate) struct SegmentTree {
    key: Key,
    segment: Range<u64>,
    is_root: bool,
    at: u64,
    /// Subtrees not merged yet, with levels falling from bottom to top. The two on top may have the
    /// same level, because a merge waits until it cannot be the root's.
    stack: Vec<(u32, ChainingValue)>,
    /// The root of a file of at most one chunk: such a file has no subtrees.
    chunk_root: Option<FileRoot>,
}

impl SegmentTree {
    /// Starts at the beginning of segment `index`.
    pub(crate) fn new(key: &Key, segments: &Segments, index: u64) -> Result<Self, SegmentError> {
        segments.check(index)?;
        let segment = segments.range(index);
        let is_root = segments.count() == 1;
        Ok(Self {
            key: key.clone(),
            is_root,
            at: segment.start,
            stack: Vec::new(),
            chunk_root: None,
            segment,
        })
    }

    /// Starts a whole file whose length is not known yet. Until [`end_at`](Self::end_at), at least one
    /// byte that was neither pushed nor passed to [`update`](Self::update) must follow.
    pub(crate) fn open_ended(key: &Key) -> Self {
        let segment = 0..u64::MAX >> 1;
        Self { key: key.clone(), is_root: true, at: 0, stack: Vec::new(), chunk_root: None, segment }
    }

    /// Sets the length of a file that was started without one.
    pub(crate) fn end_at(&mut self, len: u64) {
        self.segment.end = len;
    }

    /// Returns the offset in the file up to which the segment is known.
    pub(crate) fn position(&self) -> u64 {
        self.at
    }

    /// Returns whether the value of a block at `start` can be used as it is.
    pub(crate) fn takes_block(&self, start: u64, len: u64) -> bool {
        start == self.at
            && start.is_multiple_of(len)
            && len <= self.segment.end - start
            && !(self.is_root && start == 0 && len == self.segment.end)
    }

    /// Adds the value of the block of `len` bytes at the current position.
    /// [`takes_block`](Self::takes_block) must hold, and `len` must be a power of two of at least
    /// one chunk.
    pub(crate) fn push_block(&mut self, len: u64, value: ChainingValue) {
        self.push(len, value);
    }

    /// Hashes the next bytes and returns the number used. Leaves bytes that do not fill a chunk,
    /// unless they end the segment.
    pub(crate) fn update(&mut self, bytes: &[u8]) -> usize {
        let room = saturating_usize(self.segment.end - self.at);
        let bytes = &bytes[..bytes.len().min(room)];
        if self.is_root && self.segment.end <= CHUNK {
            if bytes.len() < room {
                return 0;
            }
            let root = self.key.hasher().update(bytes).finalize();
            self.chunk_root = Some(FileRoot::from_bytes(*root.as_bytes()));
            self.at = self.segment.end;
            return bytes.len();
        }
        let mut taken = 0;
        while let Some(len) = self.next_piece(bytes.len() - taken) {
            let piece = &bytes[taken..taken + len];
            let value = self.key.hasher().set_input_offset(self.at).update(piece).finalize_non_root();
            self.push(len_u64(len), value);
            taken += len;
        }
        taken
    }

    /// Returns the segment's value.
    ///
    /// # Errors
    /// [`SegmentError::WrongLength`] if the position has not reached the segment's end.
    pub(crate) fn finish(mut self) -> Result<SegmentValue, SegmentError> {
        let wrong_length = SegmentError::WrongLength {
            expected: self.segment.end - self.segment.start,
            got: self.at - self.segment.start,
        };

        if self.is_root && self.segment.end <= CHUNK {
            let root = match self.chunk_root {
                Some(root) => root,
                None if self.segment.end == 0 => crate::root::file_root(&self.key, &[]),
                None => return Err(wrong_length),
            };
            return Ok(SegmentValue::root(root));
        }
        if self.at != self.segment.end {
            return Err(wrong_length);
        }

        let Some((_, mut right)) = self.stack.pop() else {
            return Err(wrong_length);
        };
        while let Some((_, left)) = self.stack.pop() {
            if self.is_root && self.stack.is_empty() {
                let root = merge_subtrees_root(&left, &right, self.key.mode());
                return Ok(SegmentValue::root(FileRoot::from_bytes(*root.as_bytes())));
            }
            right = merge_subtrees_non_root(&left, &right, self.key.mode());
        }
        Ok(SegmentValue::subtree(right))
    }

    /// Returns the length of the largest subtree that starts here and lies in the next `available`
    /// bytes.
    fn next_piece(&self, available: usize) -> Option<usize> {
        let left = self.segment.end - self.at;
        let available = len_u64(available).min(left);
        if available == 0 {
            return None;
        }
        let aligned = if self.at == 0 { MAX_PIECE } else { 1 << self.at.trailing_zeros().min(62) };
        let len = if available == left && left <= aligned {
            // The right edge of the file's tree, or the last whole subtree of a segment. The whole
            // file must stay two subtrees, because merging them yields the root.
            let whole_file = self.is_root && self.at == 0;
            if whole_file { left_subtree_len(left) } else { left }
        } else {
            let fits = 1_u64 << available.ilog2();
            fits.min(aligned)
        };
        (len >= CHUNK || len == left).then(|| saturating_usize(len.min(MAX_PIECE)))
    }

    fn push(&mut self, len: u64, value: ChainingValue) {
        while let [.., (left_level, left), (right_level, right)] = self.stack.as_slice() {
            if left_level != right_level {
                break;
            }
            let parent = (left_level + 1, merge_subtrees_non_root(left, right, self.key.mode()));
            self.stack.truncate(self.stack.len() - 2);
            self.stack.push(parent);
        }
        let level = len.div_ceil(CHUNK).next_power_of_two().trailing_zeros();
        self.stack.push((level, value));
        self.at += len;
    }
}

/// Length of a BLAKE3 chunk, the smallest subtree, in bytes.
const CHUNK: u64 = 1 << 10;

/// The longest run hashed as one subtree. Larger ones are not faster.
const MAX_PIECE: u64 = 1 << 20;
