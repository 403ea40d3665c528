//! The signature of a file that is being written, for the run that changes it next.

use std::sync::Mutex;

use dsync_delta::{
    Key, Layout, SegmentError, SegmentHasher, SegmentSums, Segments, Signature, SignatureCollector,
    refined_block_lens,
};
use dsync_wire::budget::{Held, Share};

use super::Site;
use crate::{halt::lock, limits::MAX_SIGNATURE_BLOCKS, state::MIN_FILE_BYTES};

/// A signature whose sums are made on the way, where the run keeps signatures and the file is long
/// enough.
pub(super) struct NewSignature(Option<(Layout, Mutex<Option<Collecting>>)>);

struct Collecting {
    sums: SignatureCollector,
    held: Held,
}

impl NewSignature {
    /// Starts the signature of a file that comes `whole`.
    pub(super) fn of(site: &Site<'_>, len: u64, is_whole: bool) -> Self {
        // The blocks that the next run chooses.
        let layout = Layout::new(len, refined_block_lens(len).0);
        let is_wanted = site.session.state.is_some()
            && is_whole
            && len >= MIN_FILE_BYTES
            && layout.block_count() <= MAX_SIGNATURE_BLOCKS;
        let held = || site.session.budget.take(Share::Signatures, 0).ok();
        let collecting = is_wanted.then(held).flatten().map(|held| {
            (layout, Mutex::new(Some(Collecting { sums: SignatureCollector::new(layout), held })))
        });
        Self(collecting)
    }

    /// Returns the hasher of a segment.
    pub(super) fn hasher(
        &self,
        key: &Key,
        segments: &Segments,
        index: u64,
    ) -> Result<SegmentHasher, SegmentError> {
        match &self.0 {
            Some((layout, _)) => SegmentHasher::summing(key, segments, index, *layout),
            None => SegmentHasher::new(key, segments, index),
        }
    }

    /// Adds the sums of a segment. Where memory is short there is no signature: the next run reads the
    /// file.
    pub(super) fn add(&self, sums: SegmentSums) {
        let Some((_, collecting)) = &self.0 else { return };
        let mut collecting = lock(collecting);
        if let Some(Collecting { sums: all, held }) = &mut *collecting {
            match held.grow(sums.memory_bytes()) {
                Ok(()) => all.add(sums),
                Err(_) => *collecting = None,
            }
        }
    }

    /// Takes the signature, if the sums of all segments are here.
    pub(super) fn take(&self) -> Option<Signature> {
        let (_, collecting) = self.0.as_ref()?;
        lock(collecting).take()?.sums.finish()
    }
}
