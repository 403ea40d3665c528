//! Plans: the result of a segment's search, kept until the block length for sending is known.

use std::{convert::Infallible, ops::Range};

use super::refined;
use crate::{
    block::{BlockIndex, BlockRun, Layout},
    emit::Emitter,
    index::IndexedSignature,
    num::{len_u64, saturating_usize},
    outcome::{SegmentOutcome, TokenSink},
    read::{ReadAt, read_full},
    search::{Known, Rolling, SearchError, search_segment, search_segment_again, search_stretch},
    segment::Segments,
    token::{MAX_LITERAL, Token},
};

/// The result of a segment's search, without the literals' bytes.
///
/// ```
/// use dsync_delta::{
///     BlockLen, IndexedSignature, Key, Layout, RefineRequest, Rolling, Segments, SumsFormat,
/// };
/// use dsync_delta::{plan_segment, refine_parallel, signature_parallel};
/// # use dsync_delta::{Token, TokenEncoder, TokenSink};
/// # #[derive(Default)]
/// # struct Tokens(u32, TokenEncoder);
/// # impl TokenSink for Tokens {
/// #     type Error = std::convert::Infallible;
/// #     fn start(&mut self, lead: u32) -> Result<(), Self::Error> {
/// #         self.0 = lead;
/// #         Ok(())
/// #     }
/// #     fn token(&mut self, token: Token<'_>) -> Result<(), Self::Error> {
/// #         self.1.push(token);
/// #         Ok(())
/// #     }
/// # }
///
/// # let key = Key::from_bytes([7; 32]);
/// # let numbers = (0..1_u32 << 18).map(|at| at.wrapping_mul(0x9e37_79b9));
/// # let basis: Vec<u8> = numbers.flat_map(u32::to_le_bytes).collect();
/// # let mut new = basis.clone();
/// # new[500_000] ^= 1;
/// let (long, short) = (BlockLen::new(64 << 10)?, BlockLen::new(2 << 10)?);
/// let (layout, segments) = (Layout::new(1 << 20, long), Segments::for_file(1 << 20)?);
///
/// // The source searches with the strong sums of 16 long blocks, one of which has changed.
/// let sums = signature_parallel(&key, layout, SumsFormat::StrongOnly, &basis)?;
/// let (index, rolling) = (IndexedSignature::new(sums, &key), Rolling::new());
/// let plan = plan_segment(&index, &new, &segments, 0, &rolling)?;
/// assert_eq!((plan.outcome().literal_bytes, plan.lead()), (64 << 10, 0));
///
/// // It asks for the short blocks around the gap. Then only one of those travels.
/// let request = RefineRequest::collect(layout, short, [&plan]).ok_or("nothing to refine")?;
/// let fine = IndexedSignature::new(refine_parallel(&key, &request, &basis)?, &key);
/// // A `TokenSink` that encodes what it gets.
/// let mut tokens = Tokens::default();
/// let outcome = plan.emit_refined(&fine, &new, &Rolling::new(), &mut tokens)?;
/// assert!(outcome.literal_bytes <= 64 << 10);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct SegmentPlan {
    layout: Layout,
    segments: Segments,
    index: u64,
    lead: u32,
    pub(super) pieces: Vec<Piece>,
    outcome: SegmentOutcome,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Piece {
    Copy(BlockRun),
    Zero(u64),
    Literal(u64),
}

/// Searches one segment and keeps the result as a plan.
///
/// Cost: as [`search_segment`]. Memory of the plan: 24 bytes per run of copies or literals.
///
/// # Errors
/// [`SearchError`]; never [`SearchError::Sink`].
///
/// ```
/// use dsync_delta::{
///     BlockLen, IndexedSignature, Key, Layout, Rolling, SegmentPlan, Segments,
///     SignatureBuilder, plan_segment,
/// };
/// # use dsync_delta::{Token, TokenEncoder, TokenSink};
/// # #[derive(Default)]
/// # struct Tokens(TokenEncoder);
/// # impl TokenSink for Tokens {
/// #     type Error = std::convert::Infallible;
/// #     fn start(&mut self, _lead: u32) -> Result<(), Self::Error> {
/// #         Ok(())
/// #     }
/// #     fn token(&mut self, token: Token<'_>) -> Result<(), Self::Error> {
/// #         self.0.push(token);
/// #         Ok(())
/// #     }
/// # }
///
/// # let (key, basis) = (Key::from_bytes([7; 32]), vec![5; 4096]);
/// # let mut builder = SignatureBuilder::new(&key, Layout::new(4096, BlockLen::MIN));
/// # builder.update(&basis);
/// # let index = IndexedSignature::new(builder.finish()?, &key);
/// let new = [basis.as_slice(), b"and more"].concat();
/// let (segments, rolling) = (Segments::for_file(new.len() as u64)?, Rolling::new());
/// let plan: SegmentPlan = plan_segment(&index, &new, &segments, 0, &rolling)?;
/// // Few bytes are new, so no further sums are asked for: the plan goes as it is.
/// assert_eq!(plan.outcome().literal_bytes, 8);
/// let mut tokens = Tokens::default();
/// plan.emit(&new, &mut tokens)?;
/// assert!(tokens.0.take().len() < 20);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn plan_segment<R>(
    index: &IndexedSignature,
    new: &R,
    segments: &Segments,
    segment_index: u64,
    rolling: &Rolling,
) -> Result<SegmentPlan, SearchError<R::Error, Infallible>>
where
    R: ReadAt + ?Sized,
{
    let mut planner = Planner::default();
    let outcome = search_segment(index, new, segments, segment_index, rolling, &mut planner)?;
    Ok(planner.plan(index, segments, segment_index, outcome))
}

impl SegmentPlan {
    /// Returns the search's result and cost.
    pub fn outcome(&self) -> &SegmentOutcome {
        &self.outcome
    }

    /// Returns whether the segment was searched without weak sums and they might find more.
    pub fn wants_weak_sums(&self) -> bool {
        self.outcome.counters.unrolled_bytes > 0
    }

    /// Searches the segment again, with the weak sums that its index has received meanwhile.
    ///
    /// Cost: as [`search_segment`], without hashing the segment's value and the blocks in their old
    /// place: both are known.
    ///
    /// # Errors
    /// As [`plan_segment`], and [`SearchError::ForeignIndex`] if `index` has other blocks.
    pub fn search_again<R>(
        &self,
        index: &IndexedSignature,
        new: &R,
        rolling: &Rolling,
    ) -> Result<Self, SearchError<R::Error, Infallible>>
    where
        R: ReadAt + ?Sized,
    {
        if index.layout() != self.layout {
            return Err(SearchError::ForeignIndex);
        }
        let mut planner = Planner::default();
        let known = Known { value: self.outcome.value, unmoved: self.unmoved() };
        let (segments, segment) = (&self.segments, self.index);
        let mut outcome = search_segment_again(index, new, segments, segment, &known, rolling, &mut planner)?;
        let unrolled = outcome.counters.unrolled_bytes;
        outcome.counters.add(&self.outcome.counters);
        outcome.counters.unrolled_bytes = unrolled;
        Ok(planner.plan(index, &self.segments, self.index, outcome))
    }

    /// Returns how many bytes before the segment's start its tokens begin.
    pub fn lead(&self) -> u32 {
        self.lead
    }

    /// Emits the plan in the block length of its search.
    ///
    /// # Errors
    /// As [`search_segment`].
    pub fn emit<R, S>(&self, new: &R, sink: &mut S) -> Result<(), SearchError<R::Error, S::Error>>
    where
        R: ReadAt + ?Sized,
        S: TokenSink + ?Sized,
    {
        let mut buffer = Vec::new();
        sink.start(self.lead).map_err(SearchError::Sink)?;
        self.walk(|_, piece, at| match piece {
            Piece::Copy(run) => sink.token(Token::Copy(run)).map_err(SearchError::Sink),
            Piece::Zero(len) => sink.token(Token::Zero(len)).map_err(SearchError::Sink),
            Piece::Literal(len) => self.read_pieces(new, at, len, &mut buffer, |bytes| {
                sink.token(Token::Literal(bytes)).map_err(SearchError::Sink)
            }),
        })
    }

    /// Searches the plan's literals for the short blocks of `fine` and emits everything in short
    /// blocks.
    ///
    /// `fine` indexes the answer to a request that this plan was part of. All segments share `rolling`,
    /// which is not that of the search before. The outcome holds the segment's value and the final counts.
    ///
    /// # Errors
    /// As [`search_segment`], and [`SearchError::ForeignIndex`] if `fine` belongs to another basis.
    pub fn emit_refined<R, S>(
        &self,
        fine: &IndexedSignature,
        new: &R,
        rolling: &Rolling,
        sink: &mut S,
    ) -> Result<SegmentOutcome, SearchError<R::Error, S::Error>>
    where
        R: ReadAt + ?Sized,
        S: TokenSink + ?Sized,
    {
        let layout = fine.layout();
        if layout.file_len() != self.layout.file_len() || layout.block_len() > self.layout.block_len() {
            return Err(SearchError::ForeignIndex);
        }

        let mut counters = self.outcome.counters;
        let mut buffer = Vec::new();
        let mut emitter = Emitter::new(sink, self.segments.range(self.index));
        // Of a straddling run, emit only the short blocks that reach into the segment.
        emitter.start(self.lead % layout.block_len().get()).map_err(SearchError::Sink)?;
        self.walk(|before, piece, at| match piece {
            Piece::Copy(run) => {
                emitter.copy_run(refined(run, self.layout, layout), layout, at).map_err(SearchError::Sink)
            }
            Piece::Zero(len) => emitter.zero(len).map_err(SearchError::Sink),
            Piece::Literal(len) if self.is_refinable(len) => {
                let fine_len = layout.block_len().bytes();
                let aligned = before.filter(|offset| offset.is_multiple_of(fine_len));
                let predicted = aligned.map(|offset| BlockIndex(offset / fine_len));
                let file_len = self.segments.file_len();
                let stretch = at..at + len;
                let found = search_stretch(fine, new, file_len, &stretch, rolling, predicted, &mut emitter)?;
                counters.add(&found);
                Ok(())
            }
            Piece::Literal(len) => self.read_pieces(new, at, len, &mut buffer, |bytes| {
                let offset = at.max(self.segments.range(self.index).start);
                emitter.literal(offset, bytes).map_err(SearchError::Sink)
            }),
        })?;

        emitter.finish(self.outcome.value, counters).map_err(SearchError::Sink)
    }

    /// Calls back with each piece, its offset in the new file, and the basis offset expected there:
    /// the one that follows the last copy.
    fn walk<E>(&self, mut visit: impl FnMut(Option<u64>, Piece, u64) -> Result<(), E>) -> Result<(), E> {
        let mut at = self.segments.range(self.index).start.saturating_sub(u64::from(self.lead));
        // Before the first copy, data is expected in its old place.
        let mut expected = Some(at);
        for &piece in &self.pieces {
            visit(expected, piece, at)?;
            match piece {
                Piece::Copy(run) => {
                    let range = self.layout.run_range(run);
                    expected = range.as_ref().map(|range| range.end);
                    at += range.map_or(0, |range| range.end - range.start);
                }
                Piece::Zero(len) | Piece::Literal(len) => {
                    at += len;
                    expected = expected.and_then(|offset| offset.checked_add(len));
                }
            }
        }
        Ok(())
    }

    /// Reads `len` bytes at `at` in pieces of one literal each.
    fn read_pieces<R, S>(
        &self,
        new: &R,
        mut at: u64,
        len: u64,
        buffer: &mut Vec<u8>,
        mut each: impl FnMut(&[u8]) -> Result<(), SearchError<R::Error, S>>,
    ) -> Result<(), SearchError<R::Error, S>>
    where
        R: ReadAt + ?Sized,
    {
        let end = at + len;
        while at < end {
            buffer.resize(saturating_usize(end - at).min(MAX_LITERAL), 0);
            let got = read_full(new, at, buffer).map_err(SearchError::Read)?;
            if got < buffer.len() {
                let actual = at.saturating_add(len_u64(got));
                return Err(SearchError::ShortRead { expected: self.segments.file_len(), actual });
            }
            each(buffer)?;
            at += len_u64(got);
        }
        Ok(())
    }

    /// Returns the ranges in which blocks of the basis lie in their old place.
    fn unmoved(&self) -> Vec<Range<u64>> {
        let mut ranges = Vec::new();
        let _: Result<(), Infallible> = self.walk(|_, piece, at| {
            if let Piece::Copy(run) = piece {
                ranges.extend(self.layout.run_range(run).filter(|range| range.start == at));
            }
            Ok(())
        });
        ranges
    }

    /// Returns whether a stretch of literals is too long for short blocks' sums.
    pub(super) fn has_long_gap(&self) -> bool {
        self.pieces.iter().any(|piece| matches!(*piece, Piece::Literal(len) if !self.is_refinable(len)))
    }

    /// Returns whether a stretch of literals may hide dirty blocks. Longer stretches are new data.
    fn is_refinable(&self, len: u64) -> bool {
        len > 0 && len <= self.layout.block_len().bytes().saturating_mul(MAX_GAP_BLOCKS)
    }

    /// Adds the blocks of the basis that the new file may still hold parts of: those beside each
    /// gap.
    pub(super) fn dirty_runs(&self, runs: &mut Vec<BlockRun>) {
        let block_len = self.layout.block_len().bytes();
        let blocks = self.layout.block_count();
        let following: Vec<_> = self
            .pieces
            .iter()
            .map(|piece| match piece {
                Piece::Copy(run) => Some(run.first().0),
                Piece::Literal(_) | Piece::Zero(_) => None,
            })
            .collect();

        let mut position = 0;
        let _: Result<(), Infallible> = self.walk(|expected, piece, _| {
            let next = following.get(position + 1).copied().flatten();
            position += 1;
            if let Piece::Literal(len) = piece
                && self.is_refinable(len)
            {
                let around = len.div_ceil(block_len) + 1;
                let first = expected.map(|offset| offset / block_len);
                let after = first.map(|first| (first, first.saturating_add(around)));
                let before = next.map(|end| (end.saturating_sub(around), end));
                let spans = match (after, before) {
                    // Everything between two copies in order was replaced.
                    (Some((first, _)), Some((_, end))) if first <= end && end - first <= 2 * around => {
                        [Some((first, end)), None]
                    }
                    _ => [after, before],
                };
                runs.extend(spans.into_iter().flatten().filter_map(|(first, end)| {
                    BlockRun::new(BlockIndex(first), end.min(blocks).checked_sub(first)?)
                }));
            }
            Ok(())
        });
    }
}

/// A sink that collects tokens as pieces.
#[derive(Default)]
struct Planner {
    lead: u32,
    pieces: Vec<Piece>,
}

impl Planner {
    fn plan(
        self,
        index: &IndexedSignature,
        segments: &Segments,
        segment_index: u64,
        outcome: SegmentOutcome,
    ) -> SegmentPlan {
        let Self { lead, pieces } = self;
        SegmentPlan {
            layout: index.layout(),
            segments: *segments,
            index: segment_index,
            lead,
            pieces,
            outcome,
        }
    }
}

impl TokenSink for Planner {
    type Error = Infallible;

    fn start(&mut self, lead: u32) -> Result<(), Infallible> {
        self.lead = lead;
        Ok(())
    }

    fn token(&mut self, token: Token<'_>) -> Result<(), Infallible> {
        let piece = match token {
            Token::Literal(bytes) => Piece::Literal(len_u64(bytes.len())),
            Token::Copy(run) => Piece::Copy(run),
            Token::Zero(len) => Piece::Zero(len),
        };
        match (self.pieces.last_mut(), piece) {
            (Some(Piece::Literal(last)), Piece::Literal(len))
            | (Some(Piece::Zero(last)), Piece::Zero(len)) => *last += len,
            _ => self.pieces.push(piece),
        }
        Ok(())
    }
}

/// The longest stretch of literals that is searched again, in blocks.
const MAX_GAP_BLOCKS: u64 = 16;
