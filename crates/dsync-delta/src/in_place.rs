//! In-place order: how to rewrite a file inside itself without losing the blocks that moved.
//!
//! If the new file is built in the basis itself, a copy must not read bytes that another copy has
//! already overwritten. rsync therefore gives up every match that lies behind the write position:
//! after 1000 insertions in 1 GiB it resends the whole file. Here the copies are ordered so that
//! each one reads before others overwrite its source (Rasch and Burns, *In-Place Rsync*, FREENIX
//! 2003). Where copies form a cycle, for example two blocks that changed places, the bytes at stake
//! are first saved to scratch space. Nothing is requested from the source again.
//!
//! To carry out a plan, run the steps in order, then write all literals and zero runs, then
//! truncate the file to its new length. Copies that stay in place need no step. A file that is
//! interrupted halfway is neither old nor new: in place is for files too large to stage beside
//! themselves.
//!
//! Cost: `n log n` in the number of copies. Memory: about 100 bytes per copy.

use std::ops::Range;

/// A copy, with the fields of [`Step::Copy`](crate::Step::Copy).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BasisCopy {
    /// Offset of the bytes in the basis.
    pub basis_offset: u64,
    /// Offset in the new file.
    pub offset: u64,
    /// Number of bytes, at least 1.
    pub len: u64,
}

/// One change to the file. All offsets are in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum InPlaceStep {
    /// Append bytes of the file to the scratch space.
    Save {
        /// Offset of the bytes in the file.
        basis_offset: u64,
        /// Number of bytes.
        len: u64,
    },
    /// Copy bytes within the file.
    Copy {
        /// Offset to read at.
        basis_offset: u64,
        /// Offset to write at; the ranges may overlap.
        offset: u64,
        /// Number of bytes.
        len: u64,
        /// Whether pieces must be copied from last to first, because the ranges overlap and the
        /// target lies behind the source.
        backward: bool,
    },
    /// Write bytes of the scratch space to the file.
    Restore {
        /// Offset of the bytes in the scratch space.
        scratch_offset: u64,
        /// Offset to write at in the file.
        offset: u64,
        /// Number of bytes.
        len: u64,
    },
}

/// The order in which the copies of a file must be carried out.
///
/// ```
/// use dsync_delta::{BasisCopy, InPlaceOrder, InPlaceStep};
///
/// // The halves of a file change places.
/// let copies = [
///     BasisCopy { basis_offset: 0, offset: 4, len: 4 },
///     BasisCopy { basis_offset: 4, offset: 0, len: 4 },
/// ];
/// let order = InPlaceOrder::new(copies)?;
/// let (mut file, mut scratch) = (*b"headtail", Vec::new());
/// for step in order.steps() {
///     match *step {
///         InPlaceStep::Save { basis_offset, len } => {
///             scratch.extend_from_slice(&file[basis_offset as usize..][..len as usize]);
///         }
///         InPlaceStep::Copy { basis_offset, offset, len, .. } => {
///             file.copy_within(
///                 basis_offset as usize..(basis_offset + len) as usize,
///                 offset as usize,
///             );
///         }
///         InPlaceStep::Restore { scratch_offset, offset, len } => file[offset as usize..]
///             [..len as usize]
///             .copy_from_slice(&scratch[scratch_offset as usize..][..len as usize]),
///         _ => unreachable!("a step of a later version"),
///     }
/// }
/// assert_eq!((&file, order.scratch_bytes()), (b"tailhead", 4));
/// # Ok::<(), dsync_delta::InPlaceError>(())
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct InPlaceOrder {
    steps: Vec<InPlaceStep>,
    scratch_bytes: u64,
}

impl InPlaceOrder {
    /// Orders the copies of one file.
    ///
    /// # Errors
    /// [`InPlaceError`] if copies are empty, too long, or write the same bytes twice.
    pub fn new(copies: impl IntoIterator<Item = BasisCopy>) -> Result<Self, InPlaceError> {
        let mut copies: Vec<_> = copies.into_iter().filter(|copy| copy.basis_offset != copy.offset).collect();
        copies.sort_unstable_by_key(|copy| copy.offset);
        check(&copies)?;
        let mut sorter = Sorter::new(&copies);
        (0..copies.len()).for_each(|copy| sorter.visit(copy));
        Ok(sorter.order())
    }

    /// Returns the steps, in order.
    pub fn steps(&self) -> &[InPlaceStep] {
        &self.steps
    }

    /// Returns how many bytes of scratch space the steps need.
    pub fn scratch_bytes(&self) -> u64 {
        self.scratch_bytes
    }
}

/// The reason why copies cannot be carried out in place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InPlaceError {
    /// An empty copy, or one that reaches beyond 2^64.
    #[error("copy of {len} bytes from {basis_offset} to {offset}")]
    BadRange {
        /// Offset of the bytes in the basis.
        basis_offset: u64,
        /// Offset in the new file.
        offset: u64,
        /// Number of bytes.
        len: u64,
    },
    /// Two copies write the same byte.
    #[error("two copies write the byte at {offset}")]
    Overlap {
        /// The byte's offset in the new file.
        offset: u64,
    },
}

/// Checks copies sorted by target.
fn check(copies: &[BasisCopy]) -> Result<(), InPlaceError> {
    let mut end = 0;
    for &BasisCopy { basis_offset, offset, len } in copies {
        if len == 0 || basis_offset.max(offset).checked_add(len).is_none() {
            return Err(InPlaceError::BadRange { basis_offset, offset, len });
        }
        if offset < end {
            return Err(InPlaceError::Overlap { offset });
        }
        end = offset + len;
    }
    Ok(())
}

/// Depth-first search over the copies: copy `a` must precede copy `b` if `b` writes where `a`
/// reads.
///
/// Copies are numbered in the order of their targets, which do not overlap, so those that write
/// into a range are neighbours. The result is the reversed order of finishing. An edge back to a
/// copy that is still open closes a cycle, and the bytes it would overwrite are saved.
struct Sorter<'c> {
    copies: &'c [BasisCopy],
    state: Vec<State>,
    /// Copies whose followers are all placed, in order of finishing.
    finished: Vec<usize>,
    /// Ranges of each copy's source to save, in ascending order.
    saved: Vec<Vec<Range<u64>>>,
    /// Number of edges that may still be examined one by one.
    edges_left: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    New,
    Open,
    Done,
}

impl<'c> Sorter<'c> {
    fn new(copies: &'c [BasisCopy]) -> Self {
        Self {
            copies,
            state: vec![State::New; copies.len()],
            finished: Vec::with_capacity(copies.len()),
            saved: vec![Vec::new(); copies.len()],
            edges_left: copies.len().saturating_mul(EDGES_PER_COPY),
        }
    }

    fn visit(&mut self, root: usize) {
        if self.state[root] != State::New {
            return;
        }

        // (copy, next follower to examine, end of its followers)
        let mut stack = vec![self.open(root)];
        while let Some((copy, next, end)) = stack.last_mut() {
            let (copy, follower) = (*copy, *next);
            if follower >= *end {
                self.state[copy] = State::Done;
                self.finished.push(copy);
                stack.pop();
                continue;
            }
            *next += 1;
            if self.edges_left == 0 {
                // A peer made up copies with more conflicts than any edit has. Save the rest
                // without examining them.
                *next = *end;
                self.save(copy, follower, usize::MAX);
                continue;
            }
            self.edges_left -= 1;
            match self.state[follower] {
                State::New => stack.push(self.open(follower)),
                State::Open if follower != copy => self.save(copy, follower, follower),
                State::Open | State::Done => {}
            }
        }
    }

    /// Opens a copy and finds the copies that write where it reads.
    fn open(&mut self, copy: usize) -> (usize, usize, usize) {
        self.state[copy] = State::Open;
        let BasisCopy { basis_offset, len, .. } = self.copies[copy];
        let first = self.copies.partition_point(|other| other.offset + other.len <= basis_offset);
        let end = self.copies.partition_point(|other| other.offset < basis_offset + len);
        (copy, first, end)
    }

    /// Saves the bytes of a copy's source that the followers `first` to `last` would overwrite.
    fn save(&mut self, copy: usize, first: usize, last: usize) {
        let BasisCopy { basis_offset, len, .. } = self.copies[copy];
        let start = basis_offset.max(self.copies[first].offset);
        let last = self.copies.get(last).map_or(u64::MAX, |last| last.offset + last.len);
        let end = last.min(basis_offset + len);
        match self.saved[copy].last_mut() {
            Some(before) if before.end == start => before.end = end,
            _ => self.saved[copy].push(start..end),
        }
    }

    /// Returns the steps: all saves, then the copies.
    fn order(self) -> InPlaceOrder {
        let mut order = InPlaceOrder::default();
        let mut scratch = vec![0; self.copies.len()];
        for (saved, scratch) in self.saved.iter().zip(&mut scratch) {
            *scratch = order.scratch_bytes;
            for range in saved {
                let len = range.end - range.start;
                order.steps.push(InPlaceStep::Save { basis_offset: range.start, len });
                order.scratch_bytes += len;
            }
        }
        for &copy in self.finished.iter().rev() {
            let from = order.steps.len();
            let backward = pieces(self.copies[copy], &self.saved[copy], scratch[copy], &mut order.steps);
            if backward {
                order.steps[from..].reverse();
            }
        }
        order
    }
}

/// Makes the steps of one copy, some of whose ranges were saved. Returns whether they must run last
/// to first.
fn pieces(
    copy: BasisCopy,
    saved: &[Range<u64>],
    mut scratch_offset: u64,
    steps: &mut Vec<InPlaceStep>,
) -> bool {
    let end = copy.basis_offset + copy.len;
    let backward = copy.offset > copy.basis_offset && copy.offset < end;
    let target = |source: u64| copy.offset + (source - copy.basis_offset);
    let mut at = copy.basis_offset;
    for range in saved.iter().cloned().chain(std::iter::once(end..end)) {
        if at < range.start {
            let (offset, len) = (target(at), range.start - at);
            steps.push(InPlaceStep::Copy { basis_offset: at, offset, len, backward });
        }
        let len = range.end - range.start;
        if len > 0 {
            steps.push(InPlaceStep::Restore { scratch_offset, offset: target(range.start), len });
        }
        scratch_offset += len;
        at = range.end;
    }
    backward
}

/// Average number of edges examined per copy. Edits of real files need one or two.
const EDGES_PER_COPY: usize = 64;

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::cast_possible_truncation)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::testing::noise;

    /// Carries out an order on a file in memory, copying in pieces as a program would.
    fn carry_out(order: &InPlaceOrder, file: &mut [u8]) {
        let mut scratch = Vec::new();
        for &step in order.steps() {
            match step {
                InPlaceStep::Save { basis_offset, len } => {
                    scratch.extend_from_slice(&file[basis_offset as usize..][..len as usize]);
                }
                InPlaceStep::Restore { scratch_offset, offset, len } => {
                    file[offset as usize..][..len as usize]
                        .copy_from_slice(&scratch[scratch_offset as usize..][..len as usize]);
                }
                InPlaceStep::Copy { basis_offset, offset, len, backward } => {
                    let mut pieces: Vec<u64> = (0..len).step_by(7).collect();
                    if backward {
                        pieces.reverse();
                    }
                    for piece in pieces {
                        let (from, n) = ((basis_offset + piece) as usize, (len - piece).min(7) as usize);
                        let bytes = file[from..from + n].to_vec();
                        file[(offset + piece) as usize..][..n].copy_from_slice(&bytes);
                    }
                }
            }
        }
        assert_eq!(scratch.len() as u64, order.scratch_bytes());
    }

    fn expected(copies: &[BasisCopy], file: &[u8]) -> Vec<u8> {
        let mut new = file.to_vec();
        for copy in copies {
            new[copy.offset as usize..][..copy.len as usize]
                .copy_from_slice(&file[copy.basis_offset as usize..][..copy.len as usize]);
        }
        new
    }

    fn check_order(copies: &[BasisCopy], len: usize) -> InPlaceOrder {
        let mut file = noise(1, len);
        let new = expected(copies, &file);
        let order = InPlaceOrder::new(copies.iter().copied()).unwrap();
        carry_out(&order, &mut file);
        assert!(file == new);
        order
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

        #[test]
        fn law_ordered_copies_give_the_same_as_copies_from_a_second_file(
            parts in prop::collection::vec((1_u64..60, 0_u64..2000, any::<bool>()), 0..30),
        ) {
            let mut copies = Vec::new();
            let mut offset = 0;
            for (len, basis_offset, is_copy) in parts {
                if is_copy {
                    copies.push(BasisCopy { basis_offset, offset, len });
                }
                offset += len;
            }
            check_order(&copies, 3000);
        }
    }

    #[test]
    fn insertions_and_deletions_need_no_scratch_space() {
        for step in [10_u64, 0] {
            let (mut copies, mut offset) = (Vec::new(), 100 - step * 10);
            for part in 0..10 {
                let (basis_offset, len) = (part * 100 + 50, 100 - (10 - step));
                copies.push(BasisCopy { basis_offset, offset, len });
                offset += len + step;
            }
            assert_eq!(check_order(&copies, 3000).scratch_bytes(), 0);
        }
    }

    #[test]
    fn blocks_that_change_places_are_saved_once() {
        let swap = [
            BasisCopy { basis_offset: 0, offset: 1000, len: 100 },
            BasisCopy { basis_offset: 1000, offset: 0, len: 100 },
            BasisCopy { basis_offset: 500, offset: 500, len: 300 },
        ];
        let order = check_order(&swap, 2000);
        assert_eq!(order.scratch_bytes(), 100);
        assert_eq!(order.steps().len(), 3);
    }

    #[test]
    fn made_up_conflicts_cost_scratch_space_not_time() {
        // Long copies that all read where thousands of short ones write.
        let short = (0..5000).map(|n| BasisCopy { basis_offset: 30_000 + n * 3 % 5000, offset: n, len: 1 });
        let long = (0..200).map(|n| BasisCopy { basis_offset: 0, offset: 5000 + n * 5000, len: 5000 });
        let copies: Vec<_> = short.chain(long).collect();
        check_order(&copies, 1_100_000);
    }

    #[test]
    fn impossible_copies_are_rejected() {
        let copy = |basis_offset, offset, len| BasisCopy { basis_offset, offset, len };
        assert!(InPlaceOrder::new([copy(0, 1, 0)]).is_err());
        assert!(InPlaceOrder::new([copy(u64::MAX, 1, 2)]).is_err());
        let twice = InPlaceOrder::new([copy(0, 10, 5), copy(0, 14, 5)]);
        assert_eq!(twice, Err(InPlaceError::Overlap { offset: 14 }));
    }
}
