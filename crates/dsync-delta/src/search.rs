//! The search: finds the blocks of the basis in the new file.
//!
//! A segment is read once, front to back, with a window of a few blocks. At each position:
//!
//! 1. **zeros**: a block of zeros becomes a zero run, whether the basis has one or not;
//! 2. **the predicted block**: the block after the last match (at the segment's start, the one at
//!    the same offset of the basis) is compared by strong sum. Unchanged and shifted stretches both
//!    run here, at the speed of the hash;
//! 3. **look-ahead**: the prediction fails, but the next one holds one block further on. The gap is
//!    then one block long, and no block can be found in it that would not cost another one. It
//!    becomes a literal without rolling. Blocks overwritten in place end here;
//! 4. **look-ahead over a shift**: if a few bytes were inserted or removed, the block after the
//!    predicted one lies close to its old distance. Rolling begins there, a sixteenth of a block to
//!    either side. A block found there is taken unless another one ends before it begins. Only the
//!    start of the gap, where that can be, is rolled over too;
//! 5. **rolling**: otherwise the weak sum rolls from byte to byte to the next block of the basis.
//!
//! The result is lossless. Among non-overlapping matches of equal length, the leftmost-first choice
//! covers the most (interval scheduling), and no step above loses a match, with one exception.
//! Where the data repeats itself, look-ahead may take the later of two overlapping matches. This
//! costs at most one block length per look-ahead, and nothing where no two different blocks of the
//! basis overlap in the new file. A last block that is shorter than the others is matched where it
//! is predicted and at the end of the new file.
//!
//! Without weak sums ([`SumsFormat::StrongOnly`](crate::SumsFormat::StrongOnly)) the search skips
//! steps 4 and 5. It continues at the next aligned block, and [`SearchCounters::unrolled_bytes`]
//! counts the offsets that it would have rolled over. If that is 0, weak sums would change nothing.
//!
//! The search of one segment is independent of the others. It begins with the aligned prediction
//! or, if that fails, by rolling over the block length *before* its start. Its last copy may reach
//! beyond its end. A match that straddles a border is thus found on both sides of it. A run of zeros
//! is cut there, and may cost less than a block: zeros begin anew behind the border.
//!
//! **Bounds**, for any sums of the peer and any content of the file: at most `MAX_CANDIDATES`
//! blocks are compared per weak hit. Per segment and block length of it, at most four comparisons
//! may fail after a weak hit; then the segment is searched by position only. After rolling over 64
//! MiB (`GIVE_UP_AFTER`) of the whole file without a match, the search rolls over only a
//! sixteenth of it until it finds something. So no byte is hashed more than about ten times.

use std::ops::Range;

mod bounds;
mod walk;

pub use self::bounds::Rolling;
use self::walk::search_range;
pub(crate) use self::walk::{Part, StreamSearch, search_stretch};
use crate::{
    emit::Emitter,
    index::IndexedSignature,
    key::Key,
    num::len_u64,
    outcome::{SearchCounters, SegmentOutcome, TokenSink},
    read::{ReadAt, Window, WindowError},
    segment::{SegmentError, SegmentValue, Segments},
    subtree::SegmentTree,
};

/// The reason why a search stopped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SearchError<R, S> {
    /// The new file could not be read.
    #[error("cannot read the new file")]
    Read(#[source] R),
    /// The sink refused a token.
    #[error("cannot pass a token on")]
    Sink(#[source] S),
    /// The new file became shorter while it was read.
    #[error("the new file ends at {actual}, not at {expected}")]
    ShortRead {
        /// Original length of the file, in bytes.
        expected: u64,
        /// Offset at which the file ended.
        actual: u64,
    },
    /// The file has no such segment.
    #[error("cannot search the segment")]
    Segment(#[source] SegmentError),
    /// The index for a second round belongs to another basis or has longer blocks.
    #[error("the index does not refine the one that was searched before")]
    ForeignIndex,
}

/// Searches one segment of a new file for the blocks of a basis.
///
/// Segments of one file may be searched in any order and at the same time. They share `rolling`.
///
/// Cost: one BLAKE3 pass over the segment, a second one where data has shifted, and rolling (at a
/// fraction of the hash's speed) over new data. Memory: half a MiB and three blocks.
///
/// # Errors
/// [`SearchError`].
///
/// ```
/// use dsync_delta::search_segment;
/// use dsync_delta::{
///     BlockLen, IndexedSignature, Key, Layout, Rolling, SegmentOutcome, Segments, SignatureBuilder,
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
/// let (key, basis) =
///     (Key::from_bytes([7; 32]), Vec::from_iter((0..20_000).flat_map(u16::to_le_bytes)));
/// let mut builder = SignatureBuilder::new(&key, Layout::new(40_000, BlockLen::MIN));
/// builder.update(&basis);
/// let index = IndexedSignature::new(builder.finish()?, &key);
///
/// let new = [b"one line more\n".as_slice(), &basis].concat();
/// let segments = Segments::for_file(new.len() as u64)?;
/// // A `TokenSink` that encodes what it gets.
/// let mut tokens = Tokens::default();
/// let rolling = Rolling::new();
/// let outcome: SegmentOutcome =
///     search_segment(&index, &new, &segments, 0, &rolling, &mut tokens)?;
/// assert_eq!((outcome.literal_bytes, outcome.matched_bytes), (14, 40_000));
/// assert!(tokens.0.take().len() < 100);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn search_segment<R, S>(
    index: &IndexedSignature,
    new: &R,
    segments: &Segments,
    segment_index: u64,
    rolling: &Rolling,
    sink: &mut S,
) -> Result<SegmentOutcome, SearchError<R::Error, S::Error>>
where
    R: ReadAt + ?Sized,
    S: TokenSink + ?Sized,
{
    let mut tree =
        Some(SegmentTree::new(index.key(), segments, segment_index).map_err(SearchError::Segment)?);
    let mut emitter = Emitter::new(sink, segments.range(segment_index));
    let file_len = segments.file_len();
    let counters = search_range(index, new, file_len, rolling, &mut tree, None, &mut emitter)?;
    // `tree` was set above, and the search leaves it set.
    let no_segment = SegmentError::NoSuchSegment { index: segment_index, count: segments.count() };
    let value = tree.ok_or(no_segment).and_then(SegmentTree::finish).map_err(SearchError::Segment)?;
    emitter.finish(value, counters).map_err(SearchError::Sink)
}

/// Facts from an earlier search of a segment without weak sums.
pub(crate) struct Known {
    /// The segment's value.
    pub(crate) value: SegmentValue,
    /// Ranges of the new file that are blocks of the basis in their old place, in order. The list
    /// is complete.
    pub(crate) unmoved: Vec<Range<u64>>,
}

impl Known {
    /// Returns whether a block was found in its old place at `at`.
    fn holds(&self, at: u64) -> bool {
        let after = self.unmoved.partition_point(|range| range.start <= at);
        after.checked_sub(1).and_then(|last| self.unmoved.get(last)).is_some_and(|range| at < range.end)
    }
}

/// Searches one segment again without hashing its value and the blocks in their old place.
pub(crate) fn search_segment_again<R, S>(
    index: &IndexedSignature,
    new: &R,
    segments: &Segments,
    segment_index: u64,
    known: &Known,
    rolling: &Rolling,
    sink: &mut S,
) -> Result<SegmentOutcome, SearchError<R::Error, S::Error>>
where
    R: ReadAt + ?Sized,
    S: TokenSink + ?Sized,
{
    let mut emitter = Emitter::new(sink, segments.range(segment_index));
    let file_len = segments.file_len();
    let counters = search_range(index, new, file_len, rolling, &mut None, Some(known), &mut emitter)?;
    emitter.finish(known.value, counters).map_err(SearchError::Sink)
}

/// Turns one segment of a new file into literals and zero runs, without a basis.
///
/// Cost: one BLAKE3 pass over the segment. Memory: half a MiB.
///
/// # Errors
/// [`SearchError`].
///
/// ```
/// use dsync_delta::{Key, RootBuilder, Segments, copy_segment, file_root};
/// # use dsync_delta::{Token, TokenSink};
/// # #[derive(Default)]
/// # struct Literals(u64);
/// # impl TokenSink for Literals {
/// #     type Error = std::convert::Infallible;
/// #     fn start(&mut self, _lead: u32) -> Result<(), Self::Error> {
/// #         Ok(())
/// #     }
/// #     fn token(&mut self, token: Token<'_>) -> Result<(), Self::Error> {
/// #         self.0 += u64::from(matches!(token, Token::Literal(_)));
/// #         Ok(())
/// #     }
/// # }
///
/// let (key, new) = (Key::from_bytes([7; 32]), b"a file that the other end lacks".to_vec());
/// let segments = Segments::for_file(new.len() as u64)?;
/// let mut root = RootBuilder::new(&key, &segments);
/// // A `TokenSink` that counts literals.
/// let mut sink = Literals::default();
/// for index in 0..segments.count() {
///     root.set(index, copy_segment(&new, &segments, index, &key, &mut sink)?.value)?;
/// }
/// assert_eq!((root.finish()?, sink.0), (file_root(&key, &new), 1));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
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

/// Moves a window; turns its errors into the search's.
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

/// Bytes per read: page-cache reads are fastest from 256 KiB on, and the window should stay in the
/// second-level cache.
const READ_LEN: usize = 256 << 10;

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{
        signature::SumsFormat,
        testing::{
            Content, Edited, Encoded, indexed, key, literal_bytes_and_slack, naive_literal_bytes, noise,
            round_trip, signature, whole_root,
        },
    };

    fn case_count(cases: u32) -> ProptestConfig {
        ProptestConfig { cases, ..ProptestConfig::default() }
    }

    proptest! {
        #![proptest_config(case_count(1500))]

        #[test]
        fn law_search_then_apply_rebuilds_and_is_lossless(case in Edited::any(1024, 40_000)) {
            let Edited { basis, new, .. } = &case;
            let (found, slack) = literal_bytes_and_slack(basis, new, 1024);
            // Without a full block nothing rolls, and zeros at an aligned place may come before the
            // short block.
            let aligned = if basis.len() < 1024 { 1024 } else { 0 };
            let slack = if case.repeats_itself() { slack + aligned } else { 0 };
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
            // Where the data repeats itself, a border may also fall into another of several
            // matches.
            let slack = if case.repeats_itself() { slack + (64 << 10) } else { 0 };
            let slack = slack + ((zero_runs_over_borders(&shifted, 1 << 20) as u64) << 14);
            let zero_block = case.basis.len() >= 16 << 10;
            let naive = naive_literal_bytes(&case.basis, &shifted, 16 << 10, zero_block);
            prop_assert!(found <= naive + slack);
        }
    }

    /// Returns the number of segment borders with a zero on either side.
    fn zero_runs_over_borders(new: &[u8], segment_len: usize) -> usize {
        let border = |&at: &usize| new[at - 1..].starts_with(&[0, 0]);
        (segment_len..new.len()).step_by(segment_len).filter(border).count()
    }

    #[test]
    fn zeros_at_an_aligned_place_come_before_a_short_block() {
        let basis = [0; 698];
        let mut new = [0; 1366];
        new[0] = 1;
        // The zeros from 1024 on are taken, though the short block begins at 668.
        assert_eq!(literal_bytes_and_slack(&basis, &new, 1024), (1024, 0));
        assert_eq!(naive_literal_bytes(&basis, &new, 1024, false), 668);
    }

    #[test]
    fn truncated_new_file_is_a_short_read() {
        let basis = noise(6, 100_000);
        let segments = Segments::new(100_000, 20).unwrap();
        let index = indexed(&basis, 1024);
        let (cut, rolling) = (&basis[..60_000], Rolling::new());
        let error = search_segment(&index, cut, &segments, 0, &rolling, &mut Encoded::default()).unwrap_err();
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
}
