//! Further rounds: weak sums only where data has shifted, short blocks only where the basis is dirty.
//!
//! A long basis is searched with few sums first, and the source keeps, instead of tokens, a
//! [`SegmentPlan`] per segment. From the plans of a file it makes up to two [`RefineRequest`]s:
//!
//! 1. **weak sums** of all blocks, unless there are some or next to nothing would be rolled over with
//!    them ([`RefineRequest::weak_sums`]): the segments where something would are searched again;
//! 2. **short blocks**: long blocks have few sums but large dirty ones, short blocks the reverse.
//!    The destination sends the sums of the short blocks inside the long ones that were not found, the
//!    source searches the gaps again and emits everything in short blocks.
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
//! Example (model of [`crate::tuning`], incompressible literals): 1 GiB with 1 % of its 4 KiB pages
//! rewritten costs 22.8 MB in blocks of 8 KiB, 11.5 MB in blocks of 32 KiB refined to 2 KiB.
//!
//! Laws: an emitted plan rebuilds its segment exactly as a search would; refining never adds literal bytes;
//! with weak sums on demand the plans are those of a search that had them from the start.
//! A plan holds lengths, not content: literals are read again when it is emitted. If the file changed in
//! between, the file root differs and the file is not installed.

use std::{convert::Infallible, ops::Range};

use crate::{
    block::{BlockIndex, BlockLen, BlockRun, Layout},
    coverage::Coverage,
    emit::Emitter,
    index::IndexedSignature,
    key::Key,
    num::{len_u64, saturating_usize},
    read::{ReadAt, read_full},
    search::{
        Known, SearchCounters, SearchError, SegmentOutcome, TokenSink, search_segment, search_segment_again,
        search_stretch,
    },
    segment::Segments,
    signature::{Signature, SignatureDecoder, SignatureError, SumsError, SumsFormat, signature_of},
    token::{MAX_LITERAL, Token, TokenDecoder, TokenEncoder},
    tuning,
};

/// What a search found in one segment, without the literals' bytes.
#[derive(Debug, Clone)]
pub struct SegmentPlan {
    layout: Layout,
    segments: Segments,
    index: u64,
    lead: u32,
    pieces: Vec<Piece>,
    outcome: SegmentOutcome,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Piece {
    Copy(BlockRun),
    Zero(u64),
    Literal(u64),
}

/// Searches one segment and keeps what it found as a plan.
///
/// Cost: as [`search_segment`]. Memory of the plan: 24 bytes per run of copies or literals.
///
/// # Errors
/// [`SearchError`]; never [`SearchError::Sink`].
pub fn plan_segment<R>(
    index: &IndexedSignature,
    new: &R,
    segments: &Segments,
    segment_index: u64,
) -> Result<SegmentPlan, SearchError<R::Error, Infallible>>
where
    R: ReadAt + ?Sized,
{
    let mut planner = Planner::default();
    let outcome = search_segment(index, new, segments, segment_index, &mut planner)?;
    Ok(planner.plan(index, segments, segment_index, outcome))
}

impl SegmentPlan {
    /// What the search found and cost.
    pub fn outcome(&self) -> &SegmentOutcome {
        &self.outcome
    }

    /// True when the segment was searched without weak sums and they may find more.
    pub fn wants_weak_sums(&self) -> bool {
        self.outcome.counters.unrolled_bytes > 0
    }

    /// Searches the segment again, with the weak sums that its index has got meanwhile.
    ///
    /// Cost: as [`search_segment`], less the hash of the segment's value and of blocks in their old place,
    /// which are known.
    ///
    /// # Errors
    /// As [`plan_segment`], and [`SearchError::ForeignIndex`] when `index` is not of the same blocks.
    pub fn search_again<R>(
        &self,
        index: &IndexedSignature,
        new: &R,
    ) -> Result<Self, SearchError<R::Error, Infallible>>
    where
        R: ReadAt + ?Sized,
    {
        if index.layout() != self.layout {
            return Err(SearchError::ForeignIndex);
        }
        let mut planner = Planner::default();
        let known = Known { value: self.outcome.value, unmoved: self.unmoved() };
        let mut outcome = search_segment_again(index, new, &self.segments, self.index, &known, &mut planner)?;
        let unrolled = outcome.counters.unrolled_bytes;
        outcome.counters.add(&self.outcome.counters);
        outcome.counters.unrolled_bytes = unrolled;
        Ok(planner.plan(index, &self.segments, self.index, outcome))
    }

    /// Bytes before the segment's start that its tokens begin with.
    pub fn lead(&self) -> u32 {
        self.lead
    }

    /// Emits the plan in the block length that it was searched with.
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

    /// Searches the plan's literals for the short blocks of `fine`, and emits everything in short blocks.
    ///
    /// `fine` indexes the answer to a request that this plan was part of. The outcome has the segment's
    /// value and the final counts.
    ///
    /// # Errors
    /// As [`search_segment`], and [`SearchError::ForeignIndex`] when `fine` belongs to another basis.
    pub fn emit_refined<R, S>(
        &self,
        fine: &IndexedSignature,
        new: &R,
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
        // Of a straddling run, only the short blocks that reach into the segment are emitted.
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
                let found = search_stretch(fine, new, file_len, &(at..at + len), predicted, &mut emitter)?;
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

    /// Calls back with each piece, where it starts in the new file, and which offset of the basis is
    /// expected there: the one that follows the last copy.
    fn walk<E>(&self, mut visit: impl FnMut(Option<u64>, Piece, u64) -> Result<(), E>) -> Result<(), E> {
        let mut at = self.segments.range(self.index).start.saturating_sub(u64::from(self.lead));
        // Before the first copy, data is expected where it was.
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

    /// Reads `len` bytes at `at` in pieces of one literal.
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

    /// Where blocks of the basis lie in their old place.
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

    /// True when a stretch of literals is too long for short blocks' sums.
    fn has_long_gap(&self) -> bool {
        self.pieces.iter().any(|piece| matches!(*piece, Piece::Literal(len) if !self.is_refinable(len)))
    }

    /// Longer stretches of literals are new data, not dirty blocks.
    fn is_refinable(&self, len: u64) -> bool {
        len > 0 && len <= self.layout.block_len().bytes().saturating_mul(MAX_GAP_BLOCKS)
    }

    /// The blocks of the basis that the new file may still hold parts of: those beside each gap.
    fn dirty_runs(&self, runs: &mut Vec<BlockRun>) {
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
                    // Everything between two copies in order is what was replaced.
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

/// A run of long blocks in short ones.
fn refined(run: BlockRun, coarse: Layout, fine: Layout) -> Option<BlockRun> {
    let range = coarse.run_range(run)?;
    let first = range.start / fine.block_len().bytes();
    let end = range.end.div_ceil(fine.block_len().bytes());
    BlockRun::new(BlockIndex(first), end - first)
}

/// Collects tokens as pieces.
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

/// Blocks of a basis whose further sums are wanted: weak sums of all blocks that have strong ones, or both
/// sums of the short blocks in some long ones.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefineRequest {
    /// The basis in the blocks that were searched.
    coarse: Layout,
    /// The basis in the blocks whose sums are wanted.
    fine: Layout,
    /// In blocks of `coarse`.
    coverage: Coverage,
    format: SumsFormat,
}

impl RefineRequest {
    /// Asks for weak sums of all blocks, after searches without; `None` when they would save little: see
    /// [`tuning`] for the rule.
    pub fn weak_sums<'p>(layout: Layout, plans: impl IntoIterator<Item = &'p SegmentPlan>) -> Option<Self> {
        let (mut new_len, mut unrolled, mut long_gap) = (0, 0, false);
        for plan in plans {
            let outcome = plan.outcome();
            new_len += outcome.literal_bytes + outcome.matched_bytes + outcome.zero_bytes;
            unrolled += outcome.counters.unrolled_bytes;
            long_gap |= plan.wants_weak_sums() && plan.has_long_gap();
        }
        tuning::weak_sums_pay(new_len, unrolled, long_gap).then(|| Self::all_weak(layout))
    }

    fn all_weak(layout: Layout) -> Self {
        let coverage = Coverage::whole(layout);
        Self { coarse: layout, fine: layout, coverage, format: SumsFormat::WeakOnly }
    }

    /// Asks for sums in blocks of `fine_len` of everything that the plans of one file left dirty; `None`
    /// when there is nothing that short blocks could save.
    pub fn collect<'p>(
        layout: Layout,
        fine_len: BlockLen,
        plans: impl IntoIterator<Item = &'p SegmentPlan>,
    ) -> Option<Self> {
        if fine_len >= layout.block_len() {
            return None;
        }
        let mut runs = Vec::new();
        for plan in plans {
            plan.dirty_runs(&mut runs);
        }
        runs.sort_unstable_by_key(|run| run.first());
        let mut joined: Vec<BlockRun> = Vec::with_capacity(runs.len());
        for run in runs {
            match joined.last_mut().filter(|last| run.first() <= last.end()) {
                Some(last) => {
                    let end = last.end().max(run.end());
                    *last = BlockRun::new(last.first(), end.0 - last.first().0).unwrap_or(*last);
                }
                None => joined.push(run),
            }
        }
        let coverage = Coverage::of(joined.into_iter());
        (coverage.block_count() > 0).then(|| Self::of(layout, fine_len, coverage))
    }

    fn of(coarse: Layout, fine_len: BlockLen, coverage: Coverage) -> Self {
        let fine = Layout::new(coarse.file_len(), fine_len);
        Self { coarse, fine, coverage, format: SumsFormat::StrongAndWeak }
    }

    /// The basis in the blocks whose sums are wanted; tokens count in them after the answer.
    pub fn layout(&self) -> Layout {
        self.fine
    }

    /// Which sums are wanted.
    pub fn format(&self) -> SumsFormat {
        self.format
    }

    /// Number of blocks whose sums are wanted.
    pub fn block_count(&self) -> u64 {
        self.fine_coverage().block_count()
    }

    /// Encodes the runs of long blocks, in the encoding of tokens (copies only); nothing when weak sums of
    /// all blocks are wanted.
    pub fn encode(&self) -> Vec<u8> {
        let mut encoder = TokenEncoder::new();
        if self.format != SumsFormat::WeakOnly {
            self.coverage.runs().for_each(|run| encoder.push(Token::Copy(run)));
        }
        encoder.take()
    }

    /// Reads a request as a peer encoded it, about a basis signed in `layout`.
    ///
    /// # Errors
    /// [`RefineError`] for anything but weak sums of all blocks, and both sums of the short blocks in
    /// ascending runs of the basis' blocks, `max_fine_blocks` of them at most.
    ///
    /// # Security
    /// The peer controls the bytes. What is allocated is bounded by their number.
    pub fn decode(
        layout: Layout,
        format: SumsFormat,
        block_len: BlockLen,
        bytes: &[u8],
        max_fine_blocks: u64,
    ) -> Result<Self, RefineError> {
        match format {
            SumsFormat::WeakOnly if block_len == layout.block_len() && bytes.is_empty() => {
                Ok(Self::all_weak(layout))
            }
            SumsFormat::WeakOnly => Err(RefineError::NotAllBlocks),
            SumsFormat::StrongOnly => Err(RefineError::StrongSums),
            SumsFormat::StrongAndWeak => Self::decode_runs(layout, block_len, bytes, max_fine_blocks),
        }
    }

    fn decode_runs(
        layout: Layout,
        fine_len: BlockLen,
        bytes: &[u8],
        max_fine_blocks: u64,
    ) -> Result<Self, RefineError> {
        if fine_len >= layout.block_len() {
            return Err(RefineError::NotFiner { fine: fine_len.get(), coarse: layout.block_len().get() });
        }
        let mut runs = Vec::new();
        let mut end = BlockIndex(0);
        for token in TokenDecoder::new(bytes) {
            let run = match token {
                Ok(Token::Copy(run)) => run,
                Ok(_) => return Err(RefineError::NotARun),
                Err(error) => return Err(RefineError::Token(error)),
            };
            let in_order = runs.is_empty() || run.first() > end;
            if !in_order || layout.run_range(run).is_none() {
                return Err(RefineError::BadRun { first: run.first().0, count: run.count() });
            }
            end = run.end();
            runs.push(run);
        }
        let request = Self::of(layout, fine_len, Coverage::of(runs.into_iter()));
        let blocks = request.block_count();
        if blocks > max_fine_blocks {
            return Err(RefineError::TooManyBlocks { blocks, max: max_fine_blocks });
        }
        Ok(request)
    }

    /// Starts reading the answer.
    ///
    /// # Errors
    /// [`SumsError::TooManyBlocks`].
    pub fn decoder(&self, max_blocks: u64) -> Result<SignatureDecoder, SumsError> {
        SignatureDecoder::of(self.fine, self.fine_coverage(), self.format, max_blocks)
    }

    fn fine_coverage(&self) -> Coverage {
        Coverage::of(self.coverage.runs().filter_map(|run| refined(run, self.coarse, self.fine)))
    }
}

/// Answers a request: the sums of the blocks asked for, on all threads of the current rayon pool.
///
/// # Errors
/// [`SignatureError`].
pub fn refine_parallel<R>(
    key: &Key,
    request: &RefineRequest,
    basis: &R,
) -> Result<Signature, SignatureError<R::Error>>
where
    R: ReadAt + Sync,
    R::Error: Send,
{
    signature_of(key, request.fine, request.fine_coverage(), request.format, basis)
}

/// Why a request was rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RefineError {
    /// The bytes are malformed.
    #[error("malformed run of blocks")]
    Token(#[source] crate::token::DecodeError),
    /// Something else than a run of blocks.
    #[error("a request for sums names something else than blocks")]
    NotARun,
    /// A run out of order, or of blocks that the basis has not.
    #[error("run of {count} blocks from block {first} on is out of order or past the basis")]
    BadRun {
        /// First block.
        first: u64,
        /// Number of blocks.
        count: u64,
    },
    /// The short blocks are not shorter than the long ones.
    #[error("blocks of {fine} bytes do not refine blocks of {coarse}")]
    NotFiner {
        /// Length of the short blocks in bytes.
        fine: u32,
        /// Length of the long blocks in bytes.
        coarse: u32,
    },
    /// Weak sums of some blocks only, or of blocks of another length.
    #[error("weak sums are sent of all blocks of the signature or of none")]
    NotAllBlocks,
    /// Strong sums without weak ones: nobody needs them in a further round.
    #[error("a request for strong sums only")]
    StrongSums,
    /// More short blocks than this end is willing to sum.
    #[error("request for sums of {blocks} blocks, at most {max} are allowed")]
    TooManyBlocks {
        /// Number of short blocks.
        blocks: u64,
        /// The limit.
        max: u64,
    },
}

impl SearchCounters {
    /// Adds what another search cost.
    fn add(&mut self, other: &Self) {
        self.rolled_bytes += other.rolled_bytes;
        self.compared_bytes += other.compared_bytes;
        self.weak_hits += other.weak_hits;
        self.false_matches += other.false_matches;
        self.look_aheads += other.look_aheads;
        self.unrolled_bytes += other.unrolled_bytes;
    }
}

/// Stretches of literals of up to this many blocks are searched again.
const MAX_GAP_BLOCKS: u64 = 16;

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{
        AddWeakError, RootBuilder,
        testing::{Edited, Encoded, apply_segment, key, noise, signature, whole_root},
    };

    /// A request as it is after its way to the peer.
    fn decoded(request: &RefineRequest, layout: Layout) -> RefineRequest {
        let block_len = request.layout().block_len();
        let decoded =
            RefineRequest::decode(layout, request.format(), block_len, &request.encode(), 1 << 20).unwrap();
        assert_eq!(&decoded, request);
        decoded
    }

    /// Plans with weak sums on demand; whether they were asked for.
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
        let mut plans: Vec<_> =
            (0..segments.count()).map(|i| plan_segment(&index, new, &segments, i).unwrap()).collect();
        let always = always.then(|| RefineRequest::all_weak(layout));
        let request = RefineRequest::weak_sums(layout, &plans).or(always);
        let asked = request.is_some();
        if let Some(request) = request {
            let sums = refine_parallel(&key(), &decoded(&request, layout), &basis).unwrap();
            let mut decoder = request.decoder(1 << 20).unwrap();
            decoder.push(&sums.encode()).unwrap();
            index.add_weak(decoder.finish().unwrap()).unwrap();
            for plan in plans.iter_mut().filter(|plan| plan.wants_weak_sums()) {
                *plan = plan.search_again(&index, new).unwrap();
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

    /// Both rounds over all segments; checks that both ways of emitting rebuild the file.
    fn two_rounds(basis: &[u8], new: &[u8], coarse: u32, fine: u32) -> Refined {
        let coarse = signature(basis, coarse, SumsFormat::StrongAndWeak);
        let mut sum_bytes = len_u64(coarse.encode().len());
        let layout = coarse.layout();
        let index = IndexedSignature::new(coarse, &key());
        let segments = Segments::new(len_u64(new.len()), 20).unwrap();
        let plans: Vec<_> =
            (0..segments.count()).map(|i| plan_segment(&index, new, &segments, i).unwrap()).collect();
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
        let mut rebuilt = vec![0xee; new.len()];
        for (i, plan) in (0..).zip(&plans) {
            let mut encoded = Encoded::default();
            plan.emit(new, &mut encoded).unwrap();
            apply_segment(basis, layout, &segments, i, &mut encoded, &mut rebuilt);
            coarse_literal += plan.outcome().literal_bytes;
            let mut outcome = *plan.outcome();
            if let Some((layout, fine)) = &fine {
                let mut encoded = Encoded::default();
                outcome = plan.emit_refined(fine, new, &mut encoded).unwrap();
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
            // Repeated edits far into a longer file, so that some segments are settled by strong sums.
            let tail = noise(23, len);
            let [basis, new] = [&case.basis, &case.new].map(|file| [file.as_slice(), &tail].concat());
            let (_, plans, _) = plans_on_demand(&basis, &new, 4096, true);
            let both = IndexedSignature::new(signature(&basis, 4096, SumsFormat::StrongAndWeak), &key());
            let segments = Segments::new(len_u64(new.len()), 20).unwrap();
            for (i, plan) in (0..).zip(&plans) {
                let whole = plan_segment(&both, &new, &segments, i).unwrap();
                prop_assert_eq!((plan.lead, &plan.pieces), (whole.lead, &whole.pieces));
                prop_assert_eq!(plan.outcome.value, whole.outcome.value);
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
            |plans: &[SegmentPlan]| plans.iter().map(|plan| plan.outcome.literal_bytes).sum::<u64>();
        let (_, plans, asked) = plans_on_demand(&basis, &basis, 8192, false);
        assert_eq!((asked, literal(&plans)), (false, 0));
        let (index, plans, asked) = plans_on_demand(&basis, &overwritten, 8192, false);
        assert!(!asked && !index.has_weak() && literal(&plans) <= 20 * 8192);
        let (_, plans, asked) = plans_on_demand(&basis, &[b"x", basis.as_slice()].concat(), 8192, false);
        assert_eq!((asked, literal(&plans)), (true, 1));
        // A shift shortly before the end is a long gap, too; beside the last blocks it is not.
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
        // By themselves they find nothing, and harm nothing.
        let alone = IndexedSignature::new(weak(), &key());
        let segments = Segments::for_file(100_000).unwrap();
        let plan = plan_segment(&alone, &basis, &segments, 0).unwrap();
        assert_eq!(plan.outcome.literal_bytes, 100_000);
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

    #[test]
    fn hostile_requests_are_rejected() {
        let layout = Layout::new(100 << 20, BlockLen::new(1 << 16).unwrap());
        let run = |first, count| Token::Copy(BlockRun::new(BlockIndex(first), count).unwrap());
        let decode = |tokens: &[Token<'_>], max| {
            let bytes: Vec<u8> = tokens
                .iter()
                .flat_map(|&token| {
                    let mut encoder = TokenEncoder::new();
                    encoder.push(token);
                    encoder.take()
                })
                .collect();
            RefineRequest::decode(layout, SumsFormat::StrongAndWeak, BlockLen::MIN, &bytes, max)
                .map(|request| request.block_count())
        };
        assert_eq!(decode(&[run(3, 2)], 128), Ok(128));
        assert_eq!(decode(&[run(3, 2)], 127), Err(RefineError::TooManyBlocks { blocks: 128, max: 127 }));
        assert_eq!(decode(&[run(1599, 2)], 1000), Err(RefineError::BadRun { first: 1599, count: 2 }));
        assert_eq!(decode(&[Token::Zero(1)], 1000), Err(RefineError::NotARun));
        let coarse = layout.block_len();
        let format = |format, block_len, bytes: &[u8]| {
            RefineRequest::decode(layout, format, block_len, bytes, 1).map(|request| request.block_count())
        };
        assert!(format(SumsFormat::StrongAndWeak, coarse, &[]).is_err());
        assert_eq!(format(SumsFormat::StrongOnly, coarse, &[]), Err(RefineError::StrongSums));
        assert_eq!(format(SumsFormat::WeakOnly, BlockLen::MIN, &[]), Err(RefineError::NotAllBlocks));
        assert_eq!(format(SumsFormat::WeakOnly, coarse, &[0]), Err(RefineError::NotAllBlocks));
        assert_eq!(format(SumsFormat::WeakOnly, coarse, &[]), Ok(1600));
        let mut encoder = TokenEncoder::new();
        encoder.push(run(5, 2));
        encoder.push(run(6, 2));
        assert_eq!(
            RefineRequest::decode(layout, SumsFormat::StrongAndWeak, BlockLen::MIN, &encoder.take(), 1000),
            Err(RefineError::BadRun { first: 6, count: 2 })
        );
    }
}
