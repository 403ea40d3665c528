//! Requests for further sums of a basis, made from the plans of all segments.

use super::{SegmentPlan, refined};
use crate::{
    block::{BlockIndex, BlockLen, BlockRun, Layout},
    coverage::Coverage,
    key::Key,
    read::ReadAt,
    signature::{Signature, SignatureDecoder, SignatureError, SumsError, SumsFormat, signature_of},
    token::{Token, TokenDecoder, TokenEncoder},
    tuning,
};

/// Blocks of a basis whose further sums are requested: the weak sums of all blocks that have strong
/// ones, or both sums of the short blocks in some long ones.
///
/// ```
/// use dsync_delta::{
///     BlockLen, IndexedSignature, Key, Layout, RefineRequest, Rolling, SegmentPlan, Segments,
/// };
/// use dsync_delta::{SumsFormat, plan_segment, signature_parallel};
///
/// # let key = Key::from_bytes([7; 32]);
/// # let numbers = (0..1_u32 << 18).map(|at| at.wrapping_mul(0x9e37_79b9));
/// # let basis: Vec<u8> = numbers.flat_map(u32::to_le_bytes).collect();
/// # let new = [b"shifted".as_slice(), &basis].concat();
/// let (layout, segments) =
///     (Layout::new(1 << 20, BlockLen::new(8 << 10)?), Segments::new(new.len() as u64, 22)?);
/// let signature = signature_parallel(&key, layout, SumsFormat::StrongAndWeak, &basis)?;
/// let (strong, weak) = signature.split();
///
/// // Source: strong sums find nothing where all has shifted, so it asks for the weak ones.
/// let index = IndexedSignature::new(strong, &key);
/// let rolling = Rolling::new();
/// let plan: SegmentPlan = plan_segment(&index, &new, &segments, 0, &rolling)?;
/// let request = RefineRequest::weak_sums(layout, [&plan]).ok_or("weak sums would not pay")?;
/// assert!(plan.wants_weak_sums() && request.block_count() == 128);
///
/// // Destination: the request of a peer is checked, and answered from memory.
/// let decoded = RefineRequest::decode(
///     layout,
///     request.format(),
///     layout.block_len(),
///     &request.encode(),
///     1 << 20,
/// )?;
/// assert_eq!(decoded, request);
/// let answer = weak.encode();
///
/// // Source: it searches once more.
/// let mut decoder = request.decoder(1 << 20)?;
/// decoder.push(&answer)?;
/// index.add_weak(decoder.finish()?)?;
/// assert_eq!(plan.search_again(&index, &new, &rolling)?.outcome().matched_bytes, 1 << 20);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefineRequest {
    /// The basis in the blocks of the search.
    coarse: Layout,
    /// The basis in the blocks whose sums are requested.
    fine: Layout,
    /// The requested runs, in blocks of `coarse`.
    coverage: Coverage,
    format: SumsFormat,
}

impl RefineRequest {
    /// Requests the weak sums of all blocks after searches without them. Returns `None` if they
    /// would save little; `tuning` has the rule.
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

    pub(super) fn all_weak(layout: Layout) -> Self {
        let coverage = Coverage::whole(layout);
        Self { coarse: layout, fine: layout, coverage, format: SumsFormat::WeakOnly }
    }

    /// Requests sums in blocks of `fine_len` for every part that the plans of one file left dirty.
    /// Returns `None` if short blocks could save nothing.
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

    /// Returns the basis in the blocks whose sums are requested. After the answer, tokens count in
    /// these blocks.
    pub fn layout(&self) -> Layout {
        self.fine
    }

    /// Returns the requested kind of sums.
    pub fn format(&self) -> SumsFormat {
        self.format
    }

    /// Returns the number of blocks whose sums are requested.
    pub fn block_count(&self) -> u64 {
        self.fine_coverage().block_count()
    }

    /// Encodes the runs of long blocks as copy tokens. A request for the weak sums of all blocks
    /// encodes to nothing.
    pub fn encode(&self) -> Vec<u8> {
        let mut encoder = TokenEncoder::new();
        if self.format != SumsFormat::WeakOnly {
            self.coverage.runs().for_each(|run| encoder.push(Token::Copy(run)));
        }
        encoder.take()
    }

    /// Decodes a peer's request about a basis signed in `layout`.
    ///
    /// # Errors
    /// [`RefineError`], except for the weak sums of all blocks, or both sums of the short blocks in
    /// ascending runs of the basis' blocks, at most `max_fine_blocks` in all.
    ///
    /// # Security
    /// The peer controls the bytes. Their number bounds the memory allocated.
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

    /// Returns a decoder for the answer.
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

/// Answers a request: computes the requested sums on all threads of the current rayon pool.
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
    signature_of(key, request.fine, &request.fine_coverage(), request.format, basis)
}

/// The reason why a request was rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RefineError {
    /// The bytes are malformed.
    #[error("malformed run of blocks")]
    Token(#[source] crate::token::DecodeError),
    /// A token other than a run of blocks.
    #[error("a request for sums names something else than blocks")]
    NotARun,
    /// A run out of order, or of blocks beyond the end of the basis.
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
    /// Strong sums without weak ones: no further round needs them.
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

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

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
