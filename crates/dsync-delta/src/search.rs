//! The search: which blocks of the basis does the new file contain, and where.

use std::convert::Infallible;

use crate::{
    index::IndexedSignature,
    key::Key,
    num::{len_u64, saturating_usize},
    segment::{SegmentError, SegmentHasher, SegmentValue, Segments},
    token::{MAX_LITERAL, Token},
};

/// Something that can be read at any offset, from several threads.
pub trait ReadAt {
    /// Why reading failed.
    type Error;

    /// Reads bytes from `offset` on into `buf` and returns how many; 0 only at or after the end, or
    /// when `buf` is empty.
    ///
    /// # Errors
    /// The reader's own.
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<usize, Self::Error>;
}

impl ReadAt for [u8] {
    type Error = Infallible;

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<usize, Infallible> {
        let rest = self.get(saturating_usize(offset)..).unwrap_or_default();
        let len = rest.len().min(buf.len());
        buf[..len].copy_from_slice(&rest[..len]);
        Ok(len)
    }
}

impl ReadAt for Vec<u8> {
    type Error = Infallible;

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<usize, Infallible> {
        self.as_slice().read_at(offset, buf)
    }
}

impl<T: ReadAt + ?Sized> ReadAt for &T {
    type Error = T::Error;

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<usize, Self::Error> {
        (**self).read_at(offset, buf)
    }
}

/// Reads until `buf` is full or the end is reached, and returns how much was read.
pub(crate) fn read_full<R: ReadAt + ?Sized>(
    reader: &R,
    offset: u64,
    buf: &mut [u8],
) -> Result<usize, R::Error> {
    let mut filled = 0;
    while filled < buf.len() {
        let at = offset.saturating_add(len_u64(filled));
        let got = reader.read_at(at, &mut buf[filled..])?;
        if got == 0 {
            break;
        }
        filled += got.min(buf.len() - filled);
    }
    Ok(filled)
}

/// Takes the tokens of one segment, in order.
pub trait TokenSink {
    /// Why a token could not be taken.
    type Error;

    /// Starts the segment; called once, before the first token. `lead` is how many bytes before the
    /// segment's start the first token begins.
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
    /// Windows whose weak sum was that of a block.
    pub weak_hits: u64,
    /// Comparisons that followed a weak hit and failed.
    pub false_matches: u64,
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
}

/// Searches one segment of a new file for the blocks of a basis.
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
    copy_segment(new, segments, segment_index, index.key(), sink)
}

/// Turns one segment of a new file into literals and zero runs, without a basis.
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
    let mut hasher =
        SegmentHasher::new(key, segments, segment_index).map_err(SearchError::Segment)?;
    let range = segments.range(segment_index);
    let mut buffer = vec![0; MAX_LITERAL];
    let mut at = range.start;
    sink.start(0).map_err(SearchError::Sink)?;
    while at < range.end {
        let want = saturating_usize(range.end - at).min(MAX_LITERAL);
        let got = read_full(new, at, &mut buffer[..want]).map_err(SearchError::Read)?;
        if got < want {
            let actual = at.saturating_add(len_u64(got));
            return Err(SearchError::ShortRead {
                expected: segments.file_len(),
                actual,
            });
        }
        hasher.update(&buffer[..got]);
        sink.token(Token::Literal(&buffer[..got]))
            .map_err(SearchError::Sink)?;
        at += len_u64(got);
    }
    Ok(SegmentOutcome {
        value: hasher.finish().map_err(SearchError::Segment)?,
        literal_bytes: range.end - range.start,
        matched_bytes: 0,
        zero_bytes: 0,
        counters: SearchCounters::default(),
    })
}
