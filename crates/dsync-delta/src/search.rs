//! The search: which blocks of the basis does the new file contain, and where.
//!
//! A segment is read once, front to back, with a window of a few blocks. At each position:
//!
//! 1. **zeros**: a block of zeros becomes a zero run, whether the basis has one or not;
//! 2. **the predicted block**: the one after the last match (at the segment's start: the one at the
//!    same offset of the basis) is compared by strong sum. Unchanged and shifted stretches both run
//!    here, at the speed of the hash;
//! 3. **look-ahead**: if the prediction fails but the next one holds a block further on, the gap is
//!    one block long and no block can be found in it that would not cost another one: it becomes a
//!    literal without rolling. Blocks overwritten in place end here;
//! 4. **look-ahead over a shift**: if a few bytes were inserted or removed, the block after the predicted one
//!    lies close to where it would be otherwise. Rolling begins there, over a sixteenth of a block to either side.
//!    A block that is found there is taken, unless another one ends before it begins: only where that
//!    can be, at the start of the gap, is rolled over too;
//! 5. **rolling**: otherwise the weak sum rolls from byte to byte to the next block of the basis.
//!
//! The result is lossless: among non-overlapping matches of equal length, the leftmost-first choice
//! covers the most (interval scheduling), and no step above gives a match away, except that look-ahead
//! may take the later of two overlapping matches where the data repeats itself: at most one block
//! length per look-ahead, and nothing where no two different blocks of the basis overlap in the new
//! file. A last block that is shorter than the others is matched where it is predicted and at the end
//! of the new file.
//!
//! Without weak sums ([`SumsFormat::StrongOnly`](crate::SumsFormat::StrongOnly)) steps 4 and 5 are left out: the
//! search goes on at the next aligned block, and [`SearchCounters::unrolled_bytes`] tells over how much it
//! would have rolled. Where that is 0, weak sums would change nothing.
//!
//! A search of one segment needs nothing from the others: it begins with the aligned prediction or, if
//! that fails, by rolling over the block length *before* its start, and its last copy may reach beyond
//! its end. A match that straddles a border is thus found on both sides of it.
//!
//! **Bounds**, whatever the peer's sums and the file's content are: at most [`MAX_CANDIDATES`] blocks
//! compared per weak hit, and per segment at most four comparisons that fail after a weak hit per block
//! length of the segment; after that the segment is searched by position only. After 64 MiB
//! ([`GIVE_UP_AFTER`]) rolled in the whole file without a match only a sixteenth of it is rolled over, until
//! something is found. So no byte is hashed more than about ten times.

use std::ops::Range;

use crate::{
    block::BlockIndex,
    emit::{Emitter, is_zero},
    index::{IndexedSignature, WeakIndex},
    key::Key,
    num::len_u64,
    read::{ReadAt, Window, WindowError},
    segment::{SegmentError, SegmentValue, Segments},
    subtree::SegmentTree,
    token::{MAX_LITERAL, Token},
    weak::Roll,
};

/// Takes the tokens of one segment, in order.
pub trait TokenSink {
    /// Why a token could not be taken.
    type Error;

    /// Starts the segment; called once, before the first token. `lead` is how many bytes before the
    /// segment's start the first token begins, less than the block length.
    ///
    /// # Errors
    /// The sink's own; the search stops.
    fn start(&mut self, lead: u32) -> Result<(), Self::Error>;

    /// Takes the next token. Literals are at most [`MAX_LITERAL`] bytes long.
    ///
    /// # Errors
    /// The sink's own; the search stops.
    fn token(&mut self, token: Token<'_>) -> Result<(), Self::Error>;
}

/// What a search of one segment found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct SegmentOutcome {
    /// What the segment's new bytes add to the file's root.
    pub value: SegmentValue,
    /// Bytes of the segment sent as literals.
    pub literal_bytes: u64,
    /// Bytes of the segment copied from the basis.
    pub matched_bytes: u64,
    /// Bytes of the segment sent as zero runs.
    pub zero_bytes: u64,
    /// What the search cost.
    pub counters: SearchCounters,
}

/// What a search cost, for tuning and for the tests that bound it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct SearchCounters {
    /// Offsets that the rolling sum visited.
    pub rolled_bytes: u64,
    /// Bytes hashed to compare windows with blocks.
    pub compared_bytes: u64,
    /// Windows that passed the filter and had the weak sum of a block or of zeros.
    pub weak_hits: u64,
    /// Comparisons that followed a weak hit and failed.
    pub false_matches: u64,
    /// Gaps of about one block that were crossed without rolling over all of them.
    pub look_aheads: u64,
    /// Offsets where rolling would have begun or gone on, had there been weak sums.
    pub unrolled_bytes: u64,
}

/// Why a search stopped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SearchError<R, S> {
    /// The new file could not be read.
    #[error("cannot read the new file")]
    Read(#[source] R),
    /// The sink did not take a token.
    #[error("cannot pass a token on")]
    Sink(#[source] S),
    /// The new file is shorter than it was: it changed while it was read.
    #[error("the new file ends at {actual}, not at {expected}")]
    ShortRead {
        /// Length that the file had, in bytes.
        expected: u64,
        /// Offset at which nothing more could be read.
        actual: u64,
    },
    /// There is no such segment.
    #[error("cannot search the segment")]
    Segment(#[source] SegmentError),
    /// The index for a second round belongs to another basis, or has longer blocks.
    #[error("the index does not refine the one that was searched before")]
    ForeignIndex,
}

/// Searches one segment of a new file for the blocks of a basis.
///
/// Segments of one file may be searched in any order and at the same time.
///
/// Cost: one BLAKE3 pass over the segment, a second one where data has shifted, and rolling (a
/// fraction of the hash's speed) where it is new. Memory: half a MiB and three blocks.
///
/// # Errors
/// [`SearchError`].
pub fn search_segment<R, S>(
    index: &IndexedSignature,
    new: &R,
    segments: &Segments,
    segment_index: u64,
    sink: &mut S,
) -> Result<SegmentOutcome, SearchError<R::Error, S::Error>>
where
    R: ReadAt + ?Sized,
    S: TokenSink + ?Sized,
{
    let mut tree =
        Some(SegmentTree::new(index.key(), segments, segment_index).map_err(SearchError::Segment)?);
    let segment = segments.range(segment_index);
    let mut emitter = Emitter::new(sink, segment.clone());
    let file_len = segments.file_len();
    let counters = search_range(index, new, file_len, &segment, &mut tree, None, &mut emitter)?;
    // The tree was put in, and comes back.
    let no_segment = SegmentError::NoSuchSegment { index: segment_index, count: segments.count() };
    let value = tree.ok_or(no_segment).and_then(SegmentTree::finish).map_err(SearchError::Segment)?;
    emitter.finish(value, counters).map_err(SearchError::Sink)
}

/// What an earlier search of a segment without weak sums found out.
pub(crate) struct Known {
    /// The segment's value.
    pub(crate) value: SegmentValue,
    /// Ranges of the new file that are blocks of the basis in their old place, in order. No other block of
    /// the segment is in its old place.
    pub(crate) unmoved: Vec<Range<u64>>,
}

impl Known {
    /// Whether a block in its old place was found at `at`.
    fn holds(&self, at: u64) -> bool {
        let after = self.unmoved.partition_point(|range| range.start <= at);
        after.checked_sub(1).and_then(|last| self.unmoved.get(last)).is_some_and(|range| at < range.end)
    }
}

/// Searches one segment again: cheaper by the hash of its value and of the blocks in their old place.
pub(crate) fn search_segment_again<R, S>(
    index: &IndexedSignature,
    new: &R,
    segments: &Segments,
    segment_index: u64,
    known: &Known,
    sink: &mut S,
) -> Result<SegmentOutcome, SearchError<R::Error, S::Error>>
where
    R: ReadAt + ?Sized,
    S: TokenSink + ?Sized,
{
    let segment = segments.range(segment_index);
    let mut emitter = Emitter::new(sink, segment.clone());
    let file_len = segments.file_len();
    let counters = search_range(index, new, file_len, &segment, &mut None, Some(known), &mut emitter)?;
    emitter.finish(known.value, counters).map_err(SearchError::Sink)
}

/// Searches a segment's range, and hashes what `tree` is to know.
fn search_range<'a, R, S>(
    index: &'a IndexedSignature,
    new: &'a R,
    file_len: u64,
    segment: &Range<u64>,
    tree: &mut Option<SegmentTree>,
    known: Option<&'a Known>,
    emitter: &'a mut Emitter<'_, S>,
) -> Result<SearchCounters, SearchError<R::Error, S::Error>>
where
    R: ReadAt + ?Sized,
    S: TokenSink + ?Sized,
{
    let mut search = Search::new(index, new, file_len, segment, file_len, emitter);
    // The window begins a block earlier: the search may have to look for a straddling match.
    let low = segment.start.saturating_sub(search.block_len - 1);
    search.window.move_to(low);
    (search.tree, search.known) = (tree.take(), known);
    search.begin()?;
    search.run()?;
    *tree = search.tree.take();
    Ok(search.counters)
}

/// Searches a stretch of the new file whose value is known, as if nothing was beside it.
///
/// `predicted` is the block expected at its start.
pub(crate) fn search_stretch<R, S>(
    index: &IndexedSignature,
    new: &R,
    file_len: u64,
    stretch: &Range<u64>,
    predicted: Option<BlockIndex>,
    emitter: &mut Emitter<'_, S>,
) -> Result<SearchCounters, SearchError<R::Error, S::Error>>
where
    R: ReadAt + ?Sized,
    S: TokenSink + ?Sized,
{
    let mut search = Search::new(index, new, file_len, stretch, stretch.end, emitter);
    search.predicted = predicted.unwrap_or(NO_BLOCK);
    search.run()?;
    Ok(search.counters)
}

/// Turns one segment of a new file into literals and zero runs, without a basis.
///
/// Cost: one BLAKE3 pass over the segment. Memory: half a MiB.
///
/// # Errors
/// [`SearchError`].
pub fn copy_segment<R, S>(
    new: &R,
    segments: &Segments,
    segment_index: u64,
    key: &Key,
    sink: &mut S,
) -> Result<SegmentOutcome, SearchError<R::Error, S::Error>>
where
    R: ReadAt + ?Sized,
    S: TokenSink + ?Sized,
{
    let mut tree = SegmentTree::new(key, segments, segment_index).map_err(SearchError::Segment)?;
    let segment = segments.range(segment_index);
    let mut window = Window::new(new, segments.file_len(), segment.start, READ_LEN);
    let mut emitter = Emitter::new(sink, segment.clone());
    emitter.start(0).map_err(SearchError::Sink)?;
    let mut at = segment.start;
    while at < segment.end {
        let next = at.saturating_add(len_u64(READ_LEN)).min(segment.end);
        fill(&mut window, segments.file_len(), at, next)?;
        let bytes = window.bytes(at, next);
        tree.update(bytes);
        emitter.literal(at, bytes).map_err(SearchError::Sink)?;
        at = next;
    }
    let value = tree.finish().map_err(SearchError::Segment)?;
    emitter.finish(value, SearchCounters::default()).map_err(SearchError::Sink)
}

/// The search of one segment.
struct Search<'a, 'e, R: ?Sized, S: ?Sized> {
    index: &'a IndexedSignature,
    weak: Option<&'a WeakIndex>,
    window: Window<'a, R>,
    file_len: u64,
    /// Where windows end: the file's end, or the end of the stretch that is searched.
    limit: u64,
    start: u64,
    end: u64,
    block_len: u64,
    /// The segment's value; `None` when it is known already.
    tree: Option<SegmentTree>,
    known: Option<&'a Known>,
    emitter: &'a mut Emitter<'e, S>,
    /// Everything before it is either emitted or the pending literal.
    at: u64,
    /// Start of the pending literal: new bytes up to `at` that are not emitted yet.
    literal: u64,
    /// The block expected at `at`; there may be no such block.
    predicted: BlockIndex,
    /// The last comparison: where, with which block, and whether they were equal.
    compared: Option<(u64, BlockIndex, bool)>,
    /// How many more comparisons after weak hits may fail.
    false_matches_left: u64,
    counters: SearchCounters,
}

/// What rolling found.
enum Hit {
    Block(BlockIndex),
    Zeros,
}

type Outcome<T, R, S> = Result<T, SearchError<<R as ReadAt>::Error, <S as TokenSink>::Error>>;

impl<'a, 'e, R: ReadAt + ?Sized, S: TokenSink + ?Sized> Search<'a, 'e, R, S> {
    /// A search of the new file from `stretch.start` to `stretch.end`, in windows that end at `limit`.
    fn new(
        index: &'a IndexedSignature,
        new: &'a R,
        file_len: u64,
        stretch: &Range<u64>,
        limit: u64,
        emitter: &'a mut Emitter<'e, S>,
    ) -> Self {
        let block_len = index.layout().block_len().bytes();
        let blocks = (stretch.end - stretch.start) / block_len;
        Self {
            index,
            weak: index.weak(),
            window: Window::new(new, limit, stretch.start, READ_LEN.max(index.layout().block_len().size())),
            file_len,
            limit,
            start: stretch.start,
            end: stretch.end,
            block_len,
            tree: None,
            known: None,
            emitter,
            at: stretch.start,
            literal: stretch.start,
            predicted: BlockIndex(stretch.start / block_len),
            compared: None,
            false_matches_left: MIN_FALSE_MATCHES.max(blocks.saturating_mul(FALSE_MATCHES_PER_BLOCK)),
            counters: SearchCounters::default(),
        }
    }

    /// Searches from `self.at` to the end.
    fn run(&mut self) -> Outcome<(), R, S> {
        while self.at < self.end {
            self.load(self.at + 2 * self.block_len)?;
            if self.take_zeros()? || self.take_predicted()? || self.look_ahead()? {
                continue;
            }
            self.cross_gap()?;
        }
        if let Some((at, block)) = self.final_tail(self.literal, self.end) {
            self.at = at;
            self.take(block)?;
        }
        self.flush_literal(self.end)?;
        self.hash_to(self.end);
        Ok(())
    }

    /// Finds out where the segment's first token begins.
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
            // Zeros are no match: they are found again from the segment's start on.
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

    /// Makes the window hold everything that is pending, up to `high`.
    fn load(&mut self, high: u64) -> Outcome<(), R, S> {
        let low = self.literal.min(self.at).min(self.hashed().max(self.start));
        fill(&mut self.window, self.file_len, low, high)
    }

    /// Takes one block of zeros, or what the segment has of it, as a zero run.
    fn take_zeros(&mut self) -> Outcome<bool, R, S> {
        let next = (self.at + self.block_len).min(self.end);
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

    /// Crosses a gap of exactly one block, if the block after the predicted one follows it.
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

    /// True when `block` lies at `at`. A short last block counts only at the end of the new file.
    fn is_at(&mut self, at: u64, block: BlockIndex) -> bool {
        let range = self.index.layout().range(block);
        let len = range.end - range.start;
        let allowed = len == self.block_len || self.limit.checked_sub(len) == Some(at);
        len > 0 && allowed && self.compare(at, block)
    }

    /// Compares the window at `at` with a block. Where the block has not moved, its value is part of the
    /// segment's, whether it matched or not.
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

    /// Moves on to `to`; nothing is pending.
    fn advance(&mut self, to: u64) {
        (self.at, self.literal) = (to, to);
        if self.hashed() + HASH_LAG <= to {
            self.hash_to(to - to % HASH_UNIT);
        }
    }

    /// Up to where the segment's value is known.
    fn hashed(&self) -> u64 {
        self.tree.as_ref().map_or(u64::MAX - HASH_LAG, SegmentTree::position)
    }

    /// Brings the segment's value up to `to`, as far as it consists of whole chunks.
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

    /// Finds the next match after a failed prediction, or the segment's end.
    fn cross_gap(&mut self) -> Outcome<(), R, S> {
        let tail = self.predicted_tail();
        if !self.may_roll(self.at) {
            self.note_unrolled(self.at, tail.unwrap_or(self.at + self.block_len).min(self.end));
            return match tail {
                Some(_) => self.take(self.predicted),
                None => self.step(),
            };
        }
        if tail.is_none()
            && let Some((at, block)) = self.look_ahead_over_shift()?
        {
            self.counters.look_aheads += 1;
            self.at = at;
            return self.take(block);
        }
        // A predicted last block shorter than the others counts unless a full one begins inside it.
        let until = tail.map_or(self.end, |end| end.min(self.end));
        match self.roll(self.at, until, tail.is_some())? {
            Some((at, Hit::Block(block))) => {
                self.at = at;
                self.take(block)
            }
            Some((at, Hit::Zeros)) => {
                self.at = at;
                self.predicted = NO_BLOCK;
                self.take_zeros().map(drop)
            }
            None if tail.is_some() => self.take(self.predicted),
            None if self.at < self.end => {
                self.predicted = NO_BLOCK;
                self.step()
            }
            None => Ok(()),
        }
    }

    /// Finds the first block behind a gap of one block, more or less: where bytes were inserted or removed, the
    /// data goes on about where it would without.
    fn look_ahead_over_shift(&mut self) -> Outcome<Option<(u64, BlockIndex)>, R, S> {
        if self.predicted == NO_BLOCK || self.literal != self.at {
            return Ok(None);
        }
        let (next, reach) = (self.at + self.block_len, self.block_len / SHIFT_SHARE);
        let until = (next + reach).min(self.end);
        let Some((at, Hit::Block(block))) = self.roll(next - reach, until, true)? else {
            return Ok(None);
        };
        // Blocks that begin in between overlap it; those that end before it begins come first.
        let last = (at + 1).saturating_sub(self.block_len);
        match self.roll(self.at, last, true)? {
            Some((_, Hit::Zeros)) => Ok(None),
            Some((first, Hit::Block(earlier))) => Ok(Some((first, earlier))),
            None => Ok(Some((at, block))),
        }
    }

    /// Where the predicted block ends when it is the basis' short last one and lies at `self.at`.
    fn predicted_tail(&mut self) -> Option<u64> {
        let layout = self.index.layout();
        let len = layout.short_tail_len().map(u64::from)?;
        let is_last = self.predicted.0 == layout.full_block_count();
        let end = self.at.saturating_add(len);
        (is_last && end <= self.limit && self.compare(self.at, self.predicted)).then_some(end)
    }

    /// The basis' short last block at the end of the new file, if it begins from `low` to before `high`.
    fn final_tail(&mut self, low: u64, high: u64) -> Option<(u64, BlockIndex)> {
        let layout = self.index.layout();
        let len = layout.short_tail_len().map(u64::from)?;
        let at = self.limit.checked_sub(len)?;
        let block = BlockIndex(layout.full_block_count());
        ((low..high).contains(&at) && self.compare(at, block)).then_some((at, block))
    }

    /// Moves to the next aligned block without rolling.
    fn step(&mut self) -> Outcome<(), R, S> {
        let next = (self.at / self.block_len + 1) * self.block_len;
        self.predicted = if self.at.is_multiple_of(self.block_len) && self.predicted != NO_BLOCK {
            BlockIndex(self.predicted.0.saturating_add(1))
        } else {
            BlockIndex(next / self.block_len)
        };
        self.at = next.min(self.end);
        if self.at - self.literal >= len_u64(MAX_LITERAL) {
            self.load(self.at)?;
            // The last block length of the file stays pending: the basis' short last block may be there.
            self.flush_literal(self.at.min(self.limit.saturating_sub(self.block_len)))?;
            self.hash_to(self.at - self.at % HASH_UNIT);
        }
        Ok(())
    }

    /// True when rolling at `at` is within the bounds of work.
    fn may_roll(&self, at: u64) -> bool {
        let sample = SAMPLE_LEN.max(2 * self.block_len);
        let sampled = at % (sample * SAMPLE_PERIOD) < sample;
        self.weak.is_some()
            && self.false_matches_left > 0
            && (sampled || self.index.fruitless_bytes() < GIVE_UP_AFTER)
    }

    /// Counts the offsets from `from` to before `to` that are not rolled over for want of weak sums.
    fn note_unrolled(&mut self, from: u64, to: u64) {
        if !self.index.has_weak() {
            self.counters.unrolled_bytes += to.min(self.last_window() + 1).saturating_sub(from);
        }
    }

    /// Where the last window of full length begins.
    fn last_window(&self) -> u64 {
        self.limit.saturating_sub(self.block_len)
    }

    /// Rolls from `from` to before `to` and returns the first match. Without one, moves to where it
    /// stopped: `to`, or earlier when the bounds of work were reached; the bytes passed are pending or
    /// emitted literals. With `hold`, nothing is moved or emitted.
    fn roll(&mut self, from: u64, to: u64, hold: bool) -> Outcome<Option<(u64, Hit)>, R, S> {
        let Some(weak) = self.weak else {
            return Ok(None);
        };
        let last = to.min((self.limit + 1).saturating_sub(self.block_len));
        let mut at = from;
        let mut roll = None;
        while at < last && self.may_roll(at) {
            let slab = last.min(at + ROLL_SLAB);
            self.load_held(from, slab + self.block_len, hold)?;
            let roll = roll.get_or_insert_with(|| Roll::new(self.window.bytes(at, at + self.block_len)));
            let begun = at;
            let hit = self.roll_slab(weak, roll, &mut at, slab);
            self.counters.rolled_bytes += at - begun;
            if hit.is_some() {
                self.index.note_hit();
                return Ok(hit.map(|hit| (at, hit)));
            }
            self.index.note_fruitless(at - begun);
            if !hold {
                self.pass(at)?;
            }
        }
        if !hold {
            let stopped = if at < last { at } else { to };
            self.load(stopped)?;
            self.at = stopped;
        }
        Ok(None)
    }

    /// Makes the window hold everything from `from` on, too.
    fn load_held(&mut self, from: u64, high: u64, hold: bool) -> Outcome<(), R, S> {
        if hold {
            let low = from.min(self.hashed()).min(self.literal);
            return fill(&mut self.window, self.file_len, low, high);
        }
        self.load(high)
    }

    /// Lets literal bytes up to `to` go while rolling goes on.
    fn pass(&mut self, to: u64) -> Outcome<(), R, S> {
        self.at = to;
        if to - self.literal >= len_u64(MAX_LITERAL) {
            self.flush_literal(to)?;
        }
        if self.hashed() + HASH_LAG <= to {
            self.hash_to(to - to % HASH_UNIT);
        }
        Ok(())
    }

    /// Rolls from `at` to `slab` in bytes that the window holds.
    fn roll_slab(&mut self, weak: &WeakIndex, roll: &mut Roll, at: &mut u64, slab: u64) -> Option<Hit> {
        while *at < slab {
            let out = self.window.bytes(*at, slab);
            let into = self.window.bytes(*at + self.block_len, slab + self.block_len);
            match weak.scan(roll, out, into) {
                Some(steps) => *at += len_u64(steps),
                None => {
                    // At the very end of the file no byte enters after the last window.
                    *at += len_u64(out.len().min(into.len()));
                    if *at >= slab || !weak.may_hold(*roll) {
                        *at = slab;
                        return None;
                    }
                }
            }
            if let Some(hit) = self.verify(weak, *roll, *at) {
                return Some(hit);
            }
            if self.false_matches_left == 0 {
                return None;
            }
            let (out, into) = (self.window.bytes(*at, *at + 1), *at + self.block_len);
            if let (&[out], &[into]) = (out, self.window.bytes(into, into + 1)) {
                roll.roll(out, into);
            }
            *at += 1;
        }
        None
    }

    /// Finds out what a window that passed the filter really is.
    fn verify(&mut self, weak: &WeakIndex, roll: Roll, at: u64) -> Option<Hit> {
        let sum = weak.weak_of(roll);
        if sum.0 == 0 && at >= self.start {
            self.counters.weak_hits += 1;
            if is_zero(self.window.bytes(at, at + self.block_len)) {
                return Some(Hit::Zeros);
            }
            self.count_false_match();
        }
        let index = self.index;
        for (tried, block) in index.candidates(sum, self.predicted, MAX_CANDIDATES).enumerate() {
            self.counters.weak_hits += u64::from(tried == 0);
            if self.false_matches_left == 0 {
                break;
            }
            if self.compare(at, block) {
                return Some(Hit::Block(block));
            }
            self.count_false_match();
        }
        None
    }

    fn count_false_match(&mut self) {
        self.counters.false_matches += 1;
        self.false_matches_left = self.false_matches_left.saturating_sub(1);
    }
}

/// Moves a window, with the search's errors.
fn fill<R: ReadAt + ?Sized, S>(
    window: &mut Window<'_, R>,
    file_len: u64,
    low: u64,
    high: u64,
) -> Result<(), SearchError<R::Error, S>> {
    window.fill(low, high).map_err(|error| match error {
        WindowError::Read(error) => SearchError::Read(error),
        WindowError::Short { actual } => SearchError::ShortRead { expected: file_len, actual },
    })
}

/// Most blocks of one weak sum that a window is compared with.
pub const MAX_CANDIDATES: usize = 16;

/// Offsets rolled over without any match after which a search only samples: 64 MiB. By then new data,
/// compressed or encrypted anew, is far more likely than data moved by more than that.
pub const GIVE_UP_AFTER: u64 = 64 << 20;

/// While sampling, this many bytes (or two blocks) are rolled over at the start of each period.
const SAMPLE_LEN: u64 = 256 << 10;

/// Length of a sampling period in samples.
const SAMPLE_PERIOD: u64 = 16;

/// Comparisons that may fail after weak hits, per block length of the segment. Real data has next to
/// none; each costs one block's hash.
const FALSE_MATCHES_PER_BLOCK: u64 = 4;

/// The same for the shortest segment.
const MIN_FALSE_MATCHES: u64 = 16;

/// Bytes read at a time: page-cache reads are fastest from 256 KiB on, and the window should stay in
/// the second-level cache.
const READ_LEN: usize = 256 << 10;

/// Look-ahead over a shift reaches this part of a block to either side: shifts are short as a rule, and where
/// there is none an eighth of a block was rolled over for nothing.
const SHIFT_SHARE: u64 = 16;

/// Offsets rolled over between looks at the bounds of work.
const ROLL_SLAB: u64 = 64 << 10;

/// Bytes that the segment's value may lag behind: enough to hash in long runs.
const HASH_LAG: u64 = 128 << 10;

/// The value advances in units of this many bytes while nothing forces it to be exact.
const HASH_UNIT: u64 = 64 << 10;

/// Where no block is predicted.
const NO_BLOCK: BlockIndex = BlockIndex(u64::MAX);

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{
        signature::SumsFormat,
        testing::{
            Content, Edited, Encoded, key, naive_literal_bytes, noise, round_trip, signature, text,
            whole_root,
        },
    };

    fn index(basis: &[u8], block_len: u32) -> IndexedSignature {
        IndexedSignature::new(signature(basis, block_len, SumsFormat::StrongAndWeak), &key())
    }

    fn literal_bytes(basis: &[u8], new: &[u8], block_len: u32) -> u64 {
        literal_bytes_and_slack(basis, new, block_len).0
    }

    /// Literal bytes, and how many of them look-ahead may have cost.
    fn literal_bytes_and_slack(basis: &[u8], new: &[u8], block_len: u32) -> (u64, u64) {
        let outcomes = round_trip(&index(basis, block_len), basis, new);
        let literal = outcomes.iter().map(|outcome| outcome.literal_bytes).sum();
        let look_aheads: u64 = outcomes.iter().map(|outcome| outcome.counters.look_aheads).sum();
        (literal, look_aheads * u64::from(block_len))
    }

    fn case_count(cases: u32) -> ProptestConfig {
        ProptestConfig { cases, ..ProptestConfig::default() }
    }

    proptest! {
        #![proptest_config(case_count(1500))]

        #[test]
        fn law_search_then_apply_rebuilds_and_is_lossless(case in Edited::any(1024, 40_000)) {
            let Edited { basis, new, .. } = &case;
            let (found, slack) = literal_bytes_and_slack(basis, new, 1024);
            let slack = if case.repeats_itself() { slack } else { 0 };
            prop_assert!(found <= naive_literal_bytes(basis, new, 1024, false) + slack);
            if basis.len() >= 1024 {
                prop_assert!(found <= naive_literal_bytes(basis, new, 1024, true) + slack);
            }
        }

        #[test]
        fn law_strong_sums_alone_rebuild(Edited { basis, new, .. } in Edited::any(2048, 40_000)) {
            let signature = signature(&basis, 2048, SumsFormat::StrongOnly);
            round_trip(&IndexedSignature::new(signature, &key()), &basis, &new);
        }

        #[test]
        fn law_unrelated_files_rebuild(
            (old, new) in (Content::any(), Content::any()),
            seed in any::<u64>(),
            (old_len, new_len) in (0_usize..20_000, 0_usize..20_000),
        ) {
            let (basis, new) = (old.bytes(seed, old_len), new.bytes(seed / 2, new_len));
            let (found, slack) = literal_bytes_and_slack(&basis, &new, 1024);
            // Without a single full block there is nothing to roll for.
            if basis.len() >= 1024 {
                prop_assert!(found <= naive_literal_bytes(&basis, &new, 1024, true) + slack);
            }
        }
    }

    proptest! {
        #![proptest_config(case_count(30))]

        #[test]
        fn law_segments_lose_nothing_at_borders(
            case in Edited::any(16 << 10, 3 << 20),
            shift in 0_usize..20_000,
        ) {
            let mut shifted = noise(7, shift);
            shifted.extend_from_slice(&case.new);
            let (found, slack) = literal_bytes_and_slack(&case.basis, &shifted, 16 << 10);
            // Where the data repeats itself, a border may as well fall in another of several matches.
            let slack = if case.repeats_itself() { slack + (64 << 10) } else { 0 };
            let zero_block = case.basis.len() >= 16 << 10;
            let naive = naive_literal_bytes(&case.basis, &shifted, 16 << 10, zero_block);
            prop_assert!(found <= naive + slack);
        }
    }

    #[test]
    fn unchanged_file_is_copied_without_rolling() {
        let basis = noise(1, (3 << 20) + 777);
        let outcomes = round_trip(&index(&basis, 8 << 10), &basis, &basis);
        for outcome in outcomes {
            assert_eq!((outcome.literal_bytes, outcome.counters.rolled_bytes), (0, 0));
        }
    }

    #[test]
    fn overwritten_block_costs_itself_and_no_rolling() {
        let basis = noise(2, 1 << 20);
        let mut new = basis.clone();
        new[500_000] ^= 1;
        let outcomes = round_trip(&index(&basis, 4 << 10), &basis, &new);
        assert_eq!(outcomes[0].literal_bytes, 4 << 10);
        assert_eq!(outcomes[0].counters.rolled_bytes, 0);
        assert_eq!(outcomes[0].counters.compared_bytes, 1 << 20);
    }

    #[test]
    fn insertion_costs_a_block_and_is_followed() {
        let basis = noise(3, 900_000);
        let mut new = basis.clone();
        new.splice(300_001..300_001, *b"inserted");
        let outcomes = round_trip(&index(&basis, 4 << 10), &basis, &new);
        assert_eq!(outcomes[0].literal_bytes, (4 << 10) + 8);
        // A sixteenth of a block before the place where the next one would be, and the shift on either side.
        let rolled = outcomes[0].counters.rolled_bytes;
        assert!(rolled <= 256 + 2 * 8 + 1, "{rolled}");
    }

    #[test]
    fn removal_costs_a_block_and_is_followed() {
        let basis = noise(3, 900_000);
        let mut new = basis.clone();
        new.drain(300_001..300_101);
        let outcomes = round_trip(&index(&basis, 4 << 10), &basis, &new);
        assert_eq!(outcomes[0].literal_bytes, (4 << 10) - 100);
        let rolled = outcomes[0].counters.rolled_bytes;
        assert!(rolled <= 256, "{rolled}");
    }

    #[test]
    fn block_in_front_of_a_shift_is_not_passed_over() {
        // Block 5 moved to where block 10 was, and block 11 follows it, 20 bytes late.
        let basis = noise(3, 900_000);
        let block = |number: usize| number << 12..(number + 1) << 12;
        let mut new = basis.clone();
        new.splice(block(10), [&noise(4, 10), &basis[block(5)], &noise(5, 10)].concat());
        let outcomes = round_trip(&index(&basis, 4 << 10), &basis, &new);
        assert_eq!(outcomes[0].literal_bytes, 20);
    }

    #[test]
    fn overlapping_blocks_cost_a_block_for_each_look_ahead_at_the_most() {
        // Pieces of one stream, each a little further on than another: nearly every window is one of several blocks.
        let stream = noise(6, 80 << 10);
        let piece = |number: usize| &stream[number * 29 % 32 * 48..][..64 << 10];
        let basis = Vec::from_iter((0..32).flat_map(piece).copied());
        let mut new = basis.clone();
        new.splice(900_000..900_100, *b"not as long as what it replaces");
        let (found, slack) = literal_bytes_and_slack(&basis, &new, 16 << 10);
        assert!(slack > 0, "a shift is crossed by look-ahead");
        let naive = naive_literal_bytes(&basis, &new, 16 << 10, true);
        assert!(found <= naive + slack, "{found} bytes, {naive} by an exhaustive search, {slack}");
    }

    #[test]
    fn appended_log_keeps_its_short_last_block() {
        let basis = text(4, 70_001);
        let mut new = basis.clone();
        new.extend_from_slice(b"one more line\n");
        assert_eq!(literal_bytes(&basis, &new, 16 << 10), 14);
    }

    #[test]
    fn zeros_need_no_block_of_the_basis() {
        let mut new = noise(5, 100_000);
        new.extend(vec![0; 300_000]);
        let literal = literal_bytes(&new[..50_000], &new, 1024);
        assert!(literal < 51_300, "{literal}");
    }

    #[test]
    fn zeros_in_a_gap_crossed_by_look_ahead_are_no_literals() {
        let mut new = noise(7, 10_753);
        new.extend(vec![0; 452_586]);
        assert_eq!(literal_bytes(&vec![0; 452_586], &new, 16 << 10), 10_753);
    }

    #[test]
    fn truncated_new_file_is_a_short_read() {
        let basis = noise(6, 100_000);
        let segments = Segments::new(100_000, 20).unwrap();
        let index = index(&basis, 1024);
        let error =
            search_segment(&index, &basis[..60_000], &segments, 0, &mut Encoded::default()).unwrap_err();
        assert!(matches!(error, SearchError::ShortRead { expected: 100_000, actual: 60_000 }));
        let error =
            copy_segment(&basis[..60_000], &segments, 0, &key(), &mut Encoded::default()).unwrap_err();
        assert!(matches!(error, SearchError::ShortRead { expected: 100_000, actual: 60_000 }));
    }

    #[test]
    fn copied_segments_give_the_same_root() {
        for len in [0, 1, 1024, 1025, 70_000, (2 << 20) + 5] {
            let new = noise(8, len);
            let segments = Segments::new(len as u64, 20).unwrap();
            let mut root = crate::RootBuilder::new(&key(), &segments);
            for segment in 0..segments.count() {
                let outcome =
                    copy_segment(&new, &segments, segment, &key(), &mut Encoded::default()).unwrap();
                root.set(segment, outcome.value).unwrap();
            }
            assert_eq!(root.finish().unwrap(), whole_root(&new));
        }
    }

    /// rsync issue 217: tens of thousands of blocks with one weak sum, and a file that keeps hitting it.
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
        let outcomes = round_trip(&index(&basis, 1024), &basis, &new);
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
        let index = index(&basis, 8 << 10);
        let mut rolled = 0;
        for segment in 0..segments.count() {
            let outcome = search_segment(&index, &new, &segments, segment, &mut Encoded::default()).unwrap();
            assert_eq!(outcome.literal_bytes, 16 << 20);
            rolled += outcome.counters.rolled_bytes;
        }
        let sampled = (LEN - GIVE_UP_AFTER) / SAMPLE_PERIOD;
        assert!((GIVE_UP_AFTER..GIVE_UP_AFTER + sampled + (1 << 20)).contains(&rolled), "{rolled}");
    }

    #[test]
    fn files_around_every_block_border_rebuild() {
        let basis = noise(9, 5 * 1024 + 17);
        for len in [0, 1, 16, 17, 18, 1023, 1024, 1025, 2047, 2048, 2049, 5119, 5120, 5121, 5136, 5137] {
            let index = index(&basis, 1024);
            round_trip(&index, &basis, &basis[..len]);
            round_trip(&index, &basis, &basis[basis.len() - len..]);
            let short = self::index(&basis[..len], 1024);
            round_trip(&short, &basis[..len], &basis);
        }
    }
}
