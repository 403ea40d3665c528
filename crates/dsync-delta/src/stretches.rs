//! Signing a basis stretch by stretch, so that its first sums travel and are searched while the last
//! ones are made.

use crate::{
    arriving::PIECE_BLOCKS,
    block::{BlockIndex, BlockRun, Layout},
    coverage::Coverage,
    key::Key,
    num::saturating_usize,
    read::ReadAt,
    signature::{Signature, SignatureError, StrongSum, SumsFormat, signature_of},
    weak::WeakSum,
};

/// Makes a signature on all threads of the current rayon pool, or without the feature `rayon` on the
/// calling thread, one stretch of blocks after the other.
///
/// Memory: the sums, and 1 MiB (or one block) per thread.
///
/// ```
/// use dsync_delta::{BlockLen, Key, Layout, StretchSigner, SumsFormat};
///
/// let (key, basis) = (Key::from_bytes([7; 32]), vec![5; 1 << 20]);
/// let layout = Layout::new(1 << 20, BlockLen::for_file(1 << 20));
/// let mut signer = StretchSigner::new(&key, layout, SumsFormat::StrongAndWeak, &basis);
/// let mut sent = Vec::new();
/// while !signer.is_done() {
///     // Strong sums go at once. An unreadable stretch is not worth the whole file.
///     let sums = signer
///         .next(SumsFormat::StrongOnly)
///         .unwrap_or_else(|_| signer.skip(SumsFormat::StrongOnly));
///     sent.extend(sums);
/// }
/// let (strong, _weak) = signer.finish().split();
/// assert_eq!(strong.encode(), sent);
/// ```
#[derive(Debug)]
pub struct StretchSigner<'a, R> {
    key: Key,
    basis: &'a R,
    made: Signature,
}

impl<'a, R> StretchSigner<'a, R>
where
    R: ReadAt + Sync,
    R::Error: Send,
{
    /// Starts a signature with the sums of `format`.
    pub fn new(key: &Key, layout: Layout, format: SumsFormat, basis: &'a R) -> Self {
        let made = Signature::with_room(layout, Coverage::whole(layout), format);
        Self { key: key.clone(), basis, made }
    }

    /// Signs the next stretch. Returns its sums, encoded in the format `sent`, in which nothing is
    /// included that the signer's own format lacks; nothing once all blocks are signed.
    ///
    /// # Errors
    /// [`SignatureError::Read`], and [`SignatureError::WrongLength`] if the basis is shorter than
    /// its layout. The next call tries the same stretch again.
    pub fn next(&mut self, sent: SumsFormat) -> Result<Vec<u8>, SignatureError<R::Error>> {
        let (layout, format) = (self.made.layout(), self.made.format());
        let first = self.made.summed_blocks();
        let coverage = Coverage::of(self.next_run().into_iter());
        let (_, strong, weak) = signature_of(&self.key, layout, &coverage, format, self.basis)?.into_parts();
        self.made.extend(&strong, &weak);
        Ok(self.made.encode_from(first, sent))
    }

    /// Pretends to sign the next stretch, which cannot be read: its sums match nothing but by chance
    /// (odds of `2^-64` for each comparison). Returns them as [`next`](Self::next) does.
    pub fn skip(&mut self, sent: SumsFormat) -> Vec<u8> {
        let first = self.made.summed_blocks();
        let blocks = self.next_run().map_or(0, |run| saturating_usize(run.count()));
        let format = self.made.format();
        let strong = if format.has_strong() { blocks } else { 0 };
        let weak = if format.has_weak() { blocks } else { 0 };
        self.made.extend(&vec![StrongSum::default(); strong], &vec![WeakSum(0); weak]);
        self.made.encode_from(first, sent)
    }

    /// Returns whether all blocks are signed.
    pub fn is_done(&self) -> bool {
        self.next_run().is_none()
    }

    /// Returns the signature of the blocks that are signed. It is whole once all of them are.
    pub fn finish(self) -> Signature {
        self.made
    }

    fn next_run(&self) -> Option<BlockRun> {
        let first = u64::try_from(self.made.summed_blocks()).ok()?;
        let left = self.made.layout().block_count().checked_sub(first)?;
        BlockRun::new(BlockIndex(first), left.min(PIECE_BLOCKS))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{
        ArrivingSignature, Rolling, Segments, plan_segment,
        testing::{key, noise, signature},
    };

    const FORMATS: [SumsFormat; 3] =
        [SumsFormat::StrongOnly, SumsFormat::StrongAndWeak, SumsFormat::WeakOnly];

    proptest! {
        #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

        #[test]
        fn law_stretches_make_the_whole_signature(len in 0_usize..4 << 20) {
            let basis = noise(41, len);
            for format in FORMATS {
                let whole = signature(&basis, 1024, format);
                let mut signer = StretchSigner::new(&key(), whole.layout(), format, &basis);
                let mut sent = Vec::new();
                while !signer.is_done() {
                    sent.extend(signer.next(format).unwrap());
                }
                prop_assert_eq!(signer.next(format).unwrap(), []);
                prop_assert_eq!(sent, whole.encode());
                prop_assert_eq!(signer.finish(), whole);
            }
        }
    }

    #[test]
    fn strong_sums_are_sent_and_weak_ones_kept() {
        let basis = noise(42, 2 << 20);
        let whole = signature(&basis, 1024, SumsFormat::StrongAndWeak);
        let mut signer = StretchSigner::new(&key(), whole.layout(), SumsFormat::StrongAndWeak, &basis);
        let mut sent = Vec::new();
        while !signer.is_done() {
            sent.extend(signer.next(SumsFormat::StrongOnly).unwrap());
        }
        let (strong, weak) = whole.split();
        assert_eq!((sent, signer.finish().split().1), (strong.encode(), weak));
    }

    #[test]
    fn a_stretch_that_cannot_be_read_matches_nothing() {
        let basis = noise(43, 3 << 20);
        let layout = signature(&basis, 1024, SumsFormat::StrongOnly).layout();
        // The basis has become shorter.
        let cut = basis[..(2 << 20) - 5].to_vec();
        let mut signer = StretchSigner::new(&key(), layout, SumsFormat::StrongAndWeak, &cut);
        let mut arriving = ArrivingSignature::new(layout, &key(), 1 << 20).unwrap();
        while !signer.is_done() {
            let sums = signer.next(SumsFormat::StrongOnly);
            arriving.push(&sums.unwrap_or_else(|_| signer.skip(SumsFormat::StrongOnly))).unwrap();
        }
        assert_eq!(signer.finish().split().1.encode().len(), 3072 * 4);
        let segments = Segments::new(3 << 20, 20).unwrap();
        let rolling = Rolling::new();
        let plan = |at| {
            let plan = plan_segment(arriving.index(), &basis, &segments, at, &rolling).unwrap();
            plan.outcome().literal_bytes
        };
        assert_eq!([plan(0), plan(1), plan(2)], [0, 1 << 20, 1 << 20]);
    }
}
