//! Deltas of files in memory: the whole algorithm in two calls.
//!
//! For files that need not be streamed, and as the shortest example of how the parts fit together.
//! A program that sends deltas uses the parts: [`search_segment`] for each segment at the source
//! and [`Applier`] at the destination.

use std::convert::Infallible;

use crate::{
    apply::{Applier, ApplyError, Step, StepError},
    block::Layout,
    index::IndexedSignature,
    key::Key,
    num::{len_u64, saturating_usize},
    outcome::{SegmentOutcome, TokenSink},
    parallel,
    root::{FileRoot, file_root},
    search::{Rolling, SearchError, search_segment},
    segment::{RootBuilder, RootError, SegmentError, Segments},
    token::{Token, TokenEncoder},
};

/// The delta from a basis to a new file, with the new file's root.
///
/// ```
/// use dsync_delta::{
///     BlockLen, IndexedSignature, Key, Layout, MemoryDelta, RebuildError, SignatureBuilder,
///     file_root,
/// };
///
/// let (key, basis) = (Key::from_bytes([7; 32]), b"a line of the old file\n".repeat(1000));
/// # let mut builder = SignatureBuilder::new(&key, Layout::new(23_000, BlockLen::MIN));
/// # builder.update(&basis);
/// # let index = IndexedSignature::new(builder.finish()?, &key);
/// let new = [&basis, b"and one more".as_slice()].concat();
/// let delta = MemoryDelta::new(&index, &new)?;
///
/// assert!(delta.encoded_len() < 1000 && delta.literal_bytes() + delta.matched_bytes() == 23_012);
/// assert_eq!(delta.root(), file_root(&key, &new));
/// // Another basis of the same length is noticed.
/// assert!(matches!(delta.rebuild(&key, &[0; 23_000]), Err(RebuildError::WrongRoot)));
/// assert_eq!(delta.rebuild(&key, &basis)?, new);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct MemoryDelta {
    layout: Layout,
    segments: Segments,
    parts: Vec<Part>,
    root: FileRoot,
    literal_bytes: u64,
    matched_bytes: u64,
}

/// The tokens of one segment.
#[derive(Debug, Clone, Default)]
struct Part {
    lead: u32,
    payload: Vec<u8>,
}

impl MemoryDelta {
    /// Searches a new file for the blocks of a basis, on all threads of the current rayon pool.
    ///
    /// # Errors
    /// [`DeltaError`]. Reading a slice cannot fail, so this happens only if it exceeds `i64::MAX`
    /// bytes.
    pub fn new(index: &IndexedSignature, new: &[u8]) -> Result<Self, DeltaError> {
        let segments = Segments::for_file(len_u64(new.len())).map_err(DeltaError::Segment)?;
        let rolling = Rolling::new();
        let search = |(): &mut (), segment| search_part(index, new, &segments, segment, &rolling);
        let searched = parallel::try_map(Vec::from_iter(0..segments.count()), || (), search)?;
        let mut root = RootBuilder::new(index.key(), &segments);
        let (mut literal_bytes, mut matched_bytes) = (0, 0);
        let mut parts = Vec::with_capacity(searched.len());
        for (segment, (part, outcome)) in (0..).zip(searched) {
            root.set(segment, outcome.value).map_err(DeltaError::Root)?;
            literal_bytes += outcome.literal_bytes;
            matched_bytes += outcome.matched_bytes;
            parts.push(part);
        }
        let root = root.finish().map_err(DeltaError::Root)?;
        Ok(Self { layout: index.layout(), segments, parts, root, literal_bytes, matched_bytes })
    }

    /// Applies the delta to the basis and compares the root.
    ///
    /// # Errors
    /// [`RebuildError::BasisLength`] and [`RebuildError::WrongRoot`] if the delta was made for
    /// another basis or another key.
    pub fn rebuild(&self, key: &Key, basis: &[u8]) -> Result<Vec<u8>, RebuildError> {
        if len_u64(basis.len()) != self.layout.file_len() {
            return Err(RebuildError::BasisLength { expected: self.layout.file_len() });
        }

        let mut new = Vec::with_capacity(saturating_usize(self.segments.file_len()));
        for (segment, part) in (0..).zip(&self.parts) {
            let mut applier = Applier::new(Some(self.layout), &self.segments, segment, part.lead)?;
            let applied = applier.push(&part.payload, |step| {
                match step {
                    Step::Write { bytes, .. } => new.extend_from_slice(bytes),
                    Step::Copy { basis_offset, len, .. } => {
                        let from = saturating_usize(basis_offset);
                        let to = from.saturating_add(saturating_usize(len));
                        new.extend_from_slice(basis.get(from..to).unwrap_or_default());
                    }
                    Step::Zero { len, .. } => new.resize(new.len() + saturating_usize(len), 0),
                }
                Ok::<_, Infallible>(())
            });
            match applied {
                Ok(()) => applier.finish()?,
                Err(StepError::Apply(error)) => return Err(RebuildError::Apply(error)),
                Err(StepError::Sink(never)) => match never {},
            }
        }
        if file_root(key, &new) != self.root {
            return Err(RebuildError::WrongRoot);
        }

        Ok(new)
    }

    /// Returns the new file's root.
    pub fn root(&self) -> FileRoot {
        self.root
    }

    /// Returns how many bytes of the new file the delta carries as literals.
    pub fn literal_bytes(&self) -> u64 {
        self.literal_bytes
    }

    /// Returns how many bytes of the new file come from the basis.
    pub fn matched_bytes(&self) -> u64 {
        self.matched_bytes
    }

    /// Returns the length of all tokens in bytes.
    pub fn encoded_len(&self) -> u64 {
        self.parts.iter().map(|part| len_u64(part.payload.len())).sum()
    }
}

fn search_part(
    index: &IndexedSignature,
    new: &[u8],
    segments: &Segments,
    segment: u64,
    rolling: &Rolling,
) -> Result<(Part, SegmentOutcome), DeltaError> {
    let mut sink = Encoder::default();
    let outcome =
        search_segment(index, new, segments, segment, rolling, &mut sink).map_err(DeltaError::Search)?;
    Ok((Part { lead: sink.lead, payload: sink.tokens.take() }, outcome))
}

#[derive(Default)]
struct Encoder {
    lead: u32,
    tokens: TokenEncoder,
}

impl TokenSink for Encoder {
    type Error = Infallible;

    fn start(&mut self, lead: u32) -> Result<(), Infallible> {
        self.lead = lead;
        Ok(())
    }

    fn token(&mut self, token: Token<'_>) -> Result<(), Infallible> {
        self.tokens.push(token);
        Ok(())
    }
}

/// The reason why no delta could be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DeltaError {
    /// The new file cannot be cut into segments.
    #[error("cannot cut the new file in segments")]
    Segment(#[source] SegmentError),
    /// A segment could not be searched.
    #[error("cannot search the new file")]
    Search(#[source] SearchError<Infallible, Infallible>),
    /// The segments do not add up to a root.
    #[error("cannot build the new file's root")]
    Root(#[source] RootError),
}

/// The reason why a delta could not be applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RebuildError {
    /// The delta was made for a basis of another length.
    #[error("the basis is not {expected} bytes long")]
    BasisLength {
        /// Length of the basis when its signature was made, in bytes.
        expected: u64,
    },
    /// The tokens do not fit the basis.
    #[error("cannot apply the delta")]
    Apply(#[from] ApplyError),
    /// The rebuilt file differs from the new file: another basis, another key, or a false match.
    #[error("the rebuilt file has another root than the new file")]
    WrongRoot,
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::{
        signature::SumsFormat,
        testing::{key, noise, signature},
    };

    #[test]
    fn delta_rebuilds_only_from_its_own_basis_and_key() {
        let basis = noise(31, 300_000);
        let mut new = basis.clone();
        new.splice(100_000..100_000, *b"inserted");
        let index = IndexedSignature::new(signature(&basis, 4096, SumsFormat::StrongAndWeak), &key());
        let delta = MemoryDelta::new(&index, &new).unwrap();
        assert!(delta.rebuild(&key(), &basis).unwrap() == new);
        assert_eq!(delta.literal_bytes() + delta.matched_bytes(), len_u64(new.len()));
        assert!(delta.encoded_len() < delta.literal_bytes() + 50);
        let other = Key::derive(&[b"other"]);
        assert_eq!(delta.rebuild(&other, &basis), Err(RebuildError::WrongRoot));
        assert_eq!(delta.rebuild(&key(), &noise(32, 300_000)), Err(RebuildError::WrongRoot));
        let error = RebuildError::BasisLength { expected: 300_000 };
        assert_eq!(delta.rebuild(&key(), &basis[1..]), Err(error));
    }
}
