//! The walk over one stretch of a new file: finds what lies at each position, emits it and hashes
//! it.
//!
//! Steps 1 to 3 of the [search](super) are here: zeros, the predicted block, and the look-ahead
//! over a gap of one block. Everything else is a gap ([`gap`]), and [`rolling`] crosses it.
//!
//! Law: everything before the position is either emitted or the pending literal, so the tokens tile
//! the stretch. Each byte enters the segment's value once, with the sum of its block if that has
//! not moved.

mod gap;
mod part;
mod rolling;

use std::ops::Range;

pub(crate) use self::part::{Part, StreamSearch};
use self::rolling::Hit;
use super::{Known, READ_LEN, Rolling, SearchCounters, SearchError, TokenSink, bounds::Bounds, fill};
use crate::{
    block::BlockIndex,
    emit::{Emitter, is_zero},
    index::{IndexedSignature, WeakIndex},
    num::len_u64,
    read::{ReadAt, Window},
    subtree::SegmentTree,
};

/// Searches a segment's range and feeds `tree` with its hashes.
pub(super) fn search_range<'a, R, S>(
    index: &'a IndexedSignature,
    new: &'a R,
    file_len: u64,
    rolling: &'a Rolling,
    tree: &mut Option<SegmentTree>,
    known: Option<&'a Known>,
    emitter: &'a mut Emitter<'_, S>,
) -> Result<SearchCounters, SearchError<R::Error, S::Error>>
where
    R: ReadAt + ?Sized,
    S: TokenSink + ?Sized,
{
    let segment = emitter.segment();
    let mut search = Search::new(index, rolling, new, file_len, &segment, file_len, emitter);

    // The window begins one block earlier, because the search may have to look for a straddling
    // match.
    let low = segment.start.saturating_sub(search.block_len - 1);
    search.window.move_to(low);
    (search.tree, search.known) = (tree.take(), known);
    search.begin()?;
    search.run()?;
    *tree = search.tree.take();
    Ok(search.counters)
}

/// Searches a stretch of the new file whose value is known, without looking at its surroundings.
///
/// `predicted` is the block expected at its start.
pub(crate) fn search_stretch<R, S>(
    index: &IndexedSignature,
    new: &R,
    file_len: u64,
    stretch: &Range<u64>,
    rolling: &Rolling,
    predicted: Option<BlockIndex>,
    emitter: &mut Emitter<'_, S>,
) -> Result<SearchCounters, SearchError<R::Error, S::Error>>
where
    R: ReadAt + ?Sized,
    S: TokenSink + ?Sized,
{
    let mut search = Search::new(index, rolling, new, file_len, stretch, stretch.end, emitter);
    search.predicted = predicted.unwrap_or(NO_BLOCK);
    search.run()?;
    Ok(search.counters)
}

/// The search of one stretch.
struct Search<'a, 'e, R: ?Sized, S: ?Sized> {
    index: &'a IndexedSignature,
    weak: Option<&'a WeakIndex>,
    window: Window<'a, R>,
    file_len: u64,
    /// End of all windows: the file's end, or the end of the searched stretch.
    limit: u64,
    start: u64,
    end: u64,
    /// End of what a zero run may cover: a segment's tokens end with it, those of a stream go on.
    zeros_until: u64,
    block_len: u64,
    /// The segment's value; `None` if it is already known.
    tree: Option<SegmentTree>,
    known: Option<&'a Known>,
    emitter: &'a mut Emitter<'e, S>,
    /// The position. Everything before it is either emitted or the pending literal.
    at: u64,
    /// Start of the pending literal: new bytes up to `at` that are not emitted yet.
    literal: u64,
    /// The block expected at `at`; there may be no such block.
    predicted: BlockIndex,
    /// The last comparison: its offset, its block, and whether they were equal.
    compared: Option<(u64, BlockIndex, bool)>,
    bounds: Bounds<'a>,
    counters: SearchCounters,
}

type Outcome<T, R, S> = Result<T, SearchError<<R as ReadAt>::Error, <S as TokenSink>::Error>>;

impl<'a, 'e, R: ReadAt + ?Sized, S: TokenSink + ?Sized> Search<'a, 'e, R, S> {
    /// Prepares a search of the new file from `stretch.start` to `stretch.end`, in windows that end
    /// at `limit`.
    fn new(
        index: &'a IndexedSignature,
        rolling: &'a Rolling,
        new: &'a R,
        file_len: u64,
        stretch: &Range<u64>,
        limit: u64,
        emitter: &'a mut Emitter<'e, S>,
    ) -> Self {
        let read_len = READ_LEN.max(index.layout().block_len().size());
        let window = Window::new(new, limit, stretch.start, read_len);
        Self::over(index, rolling, window, file_len, stretch, limit, emitter)
    }

    /// Prepares a search of what a window is moved over.
    fn over(
        index: &'a IndexedSignature,
        rolling: &'a Rolling,
        window: Window<'a, R>,
        file_len: u64,
        stretch: &Range<u64>,
        limit: u64,
        emitter: &'a mut Emitter<'e, S>,
    ) -> Self {
        let block_len = index.layout().block_len().bytes();

        Self {
            index,
            weak: index.weak(),
            window,
            file_len,
            limit,
            start: stretch.start,
            end: stretch.end,
            zeros_until: stretch.end,
            block_len,
            tree: None,
            known: None,
            emitter,
            at: stretch.start,
            literal: stretch.start,
            predicted: BlockIndex(stretch.start / block_len),
            compared: None,
            bounds: Bounds::new(index, rolling, stretch.end - stretch.start),
            counters: SearchCounters::default(),
        }
    }

    /// Searches from `self.at` to the end.
    fn run(&mut self) -> Outcome<(), R, S> {
        while self.at < self.end {
            self.step()?;
        }
        if let Some((at, block)) = self.final_tail(self.literal, self.end) {
            self.at = at;
            self.take(block)?;
        }
        self.flush_literal(self.end)?;
        self.hash_to(self.end);
        Ok(())
    }

    /// Takes what lies at the position, or crosses the gap to the next match.
    fn step(&mut self) -> Outcome<(), R, S> {
        self.load(self.at + 2 * self.block_len)?;
        if self.take_zeros()? || self.take_predicted()? || self.look_ahead()? {
            return Ok(());
        }
        self.cross_gap()
    }

    /// Finds the start of the segment's first token.
    fn begin(&mut self) -> Outcome<(), R, S> {
        let aligned = self.start.is_multiple_of(self.block_len);
        if self.start > 0 && self.start < self.end {
            let low = self.start.saturating_sub(self.block_len - 1);
            fill(&mut self.window, self.file_len, low, self.start + self.block_len)?;
            let block = self.window.bytes(self.start, self.start + self.block_len);
            let zeros = len_u64(block.len()) == self.block_len && is_zero(block);
            let unmoved = zeros || (aligned && self.compare(self.start, self.predicted));
            if !unmoved {
                return self.begin_with_straddler(low);
            }
        }
        if !aligned {
            self.predicted = NO_BLOCK;
        }
        self.emitter.start(0).map_err(SearchError::Sink)
    }

    /// Looks for a block that begins before the segment and ends in it.
    fn begin_with_straddler(&mut self, low: u64) -> Outcome<(), R, S> {
        if !self.start.is_multiple_of(self.block_len) {
            self.predicted = NO_BLOCK;
        }
        let found = if self.may_roll(low) {
            self.roll(low, self.start, true)?
        } else {
            self.note_unrolled(low, self.start);
            None
        };
        let straddler = match found {
            Some((at, Hit::Block(block))) => Some((at, block)),
            // Zeros are no match: the search finds them again from the segment's start on.
            Some((_, Hit::Zeros)) => None,
            None => self.final_tail(low, self.start),
        };
        let Some((at, block)) = straddler else {
            return self.emitter.start(0).map_err(SearchError::Sink);
        };
        let lead = u32::try_from(self.start - at).unwrap_or(0);
        self.emitter.start(lead).map_err(SearchError::Sink)?;
        (self.at, self.literal) = (at, at);
        self.take(block)
    }

    /// Loads the window with everything pending, up to `high`.
    fn load(&mut self, high: u64) -> Outcome<(), R, S> {
        let low = self.literal.min(self.at).min(self.hashed().max(self.start));
        fill(&mut self.window, self.file_len, low, high)
    }

    /// Takes one block of zeros, or the segment's part of it, as a zero run.
    fn take_zeros(&mut self) -> Outcome<bool, R, S> {
        let next = (self.at + self.block_len).min(self.zeros_until);
        if !is_zero(self.window.bytes(self.at, next)) {
            return Ok(false);
        }
        self.flush_literal(self.at)?;
        self.emitter.zero(next - self.at).map_err(SearchError::Sink)?;
        self.advance(next);
        self.predicted = BlockIndex(self.predicted.0.saturating_add(1));
        Ok(true)
    }

    /// Takes the predicted block, if it is here.
    fn take_predicted(&mut self) -> Outcome<bool, R, S> {
        let found = self.is_at(self.at, self.predicted);
        if found {
            self.take(self.predicted)?;
        }
        Ok(found)
    }

    /// Crosses a gap of exactly one block if the block after the predicted one follows it.
    fn look_ahead(&mut self) -> Outcome<bool, R, S> {
        let next = self.at + self.block_len;
        let following = BlockIndex(self.predicted.0.saturating_add(1));
        if !self.is_at(next, following) {
            return Ok(false);
        }
        self.counters.look_aheads += 1;
        self.at = next.min(self.end);
        if next < self.end {
            self.take(following)?;
        }
        Ok(true)
    }

    /// Returns whether `block` lies at `at`. A short last block counts only at the end of the new
    /// file.
    fn is_at(&mut self, at: u64, block: BlockIndex) -> bool {
        let range = self.index.layout().range(block);
        let len = range.end - range.start;
        let allowed = len == self.block_len || self.limit.checked_sub(len) == Some(at);
        len > 0 && allowed && self.compare(at, block)
    }

    /// Compares the window at `at` with a block. If the block has not moved, its value becomes part
    /// of the segment's, whether it matched or not.
    fn compare(&mut self, at: u64, block: BlockIndex) -> bool {
        let range = self.index.layout().range(block);
        let len = range.end - range.start;
        if let Some((last_at, last_block, equal)) = self.compared
            && (last_at, last_block) == (at, block)
        {
            return equal;
        }
        let unmoved = at == range.start && len == self.block_len;
        if let Some(known) = self.known.filter(|_| unmoved && at >= self.start && at < self.end) {
            return known.holds(at);
        }
        if unmoved {
            self.hash_to(at);
        }

        let window = self.window.bytes(at, at.saturating_add(len));
        if len == 0 || len_u64(window.len()) != len {
            return false;
        }

        let Some((equal, value)) = self.index.compare(block, window) else {
            return false;
        };
        self.counters.compared_bytes += len;
        if let Some(tree) = self.tree.as_mut().filter(|tree| unmoved && tree.takes_block(at, len)) {
            tree.push_block(len, value);
        }
        self.compared = Some((at, block, equal));
        equal
    }

    /// Emits the pending literal and a block that lies at `self.at`.
    fn take(&mut self, block: BlockIndex) -> Outcome<(), R, S> {
        let range = self.index.layout().range(block);
        let end = self.at + (range.end - range.start);
        self.flush_literal(self.at)?;
        self.emitter.copy(block, &(self.at..end)).map_err(SearchError::Sink)?;
        self.advance(end);
        self.predicted = BlockIndex(block.0.saturating_add(1));
        Ok(())
    }

    /// Advances to `to`; leaves nothing pending.
    fn advance(&mut self, to: u64) {
        (self.at, self.literal) = (to, to);
        if self.hashed() + HASH_LAG <= to {
            self.hash_to(to - to % HASH_UNIT);
        }
    }

    /// Returns the offset up to which the segment's value is known.
    fn hashed(&self) -> u64 {
        self.tree.as_ref().map_or(u64::MAX - HASH_LAG, SegmentTree::position)
    }

    /// Advances the segment's value to `to`, in whole chunks.
    fn hash_to(&mut self, to: u64) {
        if let Some(tree) = &mut self.tree
            && tree.position() < to
        {
            tree.update(self.window.bytes(tree.position(), to.min(self.end)));
        }
    }

    /// Emits the pending literal up to `to`.
    fn flush_literal(&mut self, to: u64) -> Outcome<(), R, S> {
        let to = to.min(self.end);
        if self.literal < to {
            let bytes = self.window.bytes(self.literal, to);
            self.emitter.literal(self.literal, bytes).map_err(SearchError::Sink)?;
            self.literal = to;
        }
        Ok(())
    }

    /// Finds the basis' short last block at the end of the new file, if it begins from `low` to
    /// before `high`.
    fn final_tail(&mut self, low: u64, high: u64) -> Option<(u64, BlockIndex)> {
        let layout = self.index.layout();
        let len = layout.short_tail_len().map(u64::from)?;
        let at = self.limit.checked_sub(len)?;
        let block = BlockIndex(layout.full_block_count());
        ((low..high).contains(&at) && self.compare(at, block)).then_some((at, block))
    }
}

/// Bytes by which the segment's value may lag behind, so that it hashes in long runs.
const HASH_LAG: u64 = 128 << 10;

/// The value advances in units of this many bytes as long as it need not be exact.
const HASH_UNIT: u64 = 64 << 10;

/// The prediction where no block is expected.
const NO_BLOCK: BlockIndex = BlockIndex(u64::MAX);

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use crate::testing::{indexed, literal_bytes, noise, round_trip, text};

    #[test]
    fn unchanged_file_is_copied_without_rolling() {
        let basis = noise(1, (3 << 20) + 777);
        let outcomes = round_trip(&indexed(&basis, 8 << 10), &basis, &basis);
        for outcome in outcomes {
            assert_eq!((outcome.literal_bytes, outcome.counters.rolled_bytes), (0, 0));
        }
    }

    #[test]
    fn overwritten_block_costs_itself_and_no_rolling() {
        let basis = noise(2, 1 << 20);
        let mut new = basis.clone();
        new[500_000] ^= 1;
        let outcomes = round_trip(&indexed(&basis, 4 << 10), &basis, &new);
        assert_eq!(outcomes[0].literal_bytes, 4 << 10);
        assert_eq!(outcomes[0].counters.rolled_bytes, 0);
        assert_eq!(outcomes[0].counters.compared_bytes, 1 << 20);
    }

    #[test]
    fn appended_log_keeps_its_short_last_block() {
        let basis = text(4, 70_001);
        let mut new = basis.clone();
        new.extend_from_slice(b"one more line\n");
        assert_eq!(literal_bytes(&basis, &new, 16 << 10), 14);
    }

    #[test]
    fn files_around_every_block_border_rebuild() {
        let basis = noise(9, 5 * 1024 + 17);
        for len in [0, 1, 16, 17, 18, 1023, 1024, 1025, 2047, 2048, 2049, 5119, 5120, 5121, 5136, 5137] {
            let index = indexed(&basis, 1024);
            round_trip(&index, &basis, &basis[..len]);
            round_trip(&index, &basis, &basis[basis.len() - len..]);
            let short = indexed(&basis[..len], 1024);
            round_trip(&short, &basis[..len], &basis);
        }
    }
}
