//! The sums of old files, as they arrive from the destination.
//!
//! Strong sums of a long basis are searched while the rest of them is on its way: the file is queued
//! at once, and its workers get what its segments need piece by piece. All other sums are of use
//! when they are whole.

use std::{collections::HashMap, sync::Arc};

use dsync_delta::{
    ArrivingSignature, IndexedSignature, Key, Layout, Signature, SignatureDecoder, SumsFormat,
};
use dsync_wire::{
    budget::{Held, OverBudget, Share},
    message::{EntryId, FileKey, NeedDelta, Sums},
};

use super::{
    Shared,
    inbox::{self, Rests, Wanted},
    large::LargeFile,
    queue::KeptSignature,
    shared::Refining,
};
use crate::{
    SyncError,
    halt::lock,
    limits::MAX_SIGNATURE_BLOCKS,
    misbehaved::{PeerMisbehaved, misbehaved},
};

/// Signatures that are arriving.
#[derive(Default)]
pub(super) struct ArrivingSums {
    by_entry: HashMap<EntryId, Arriving>,
}

enum Arriving {
    Early(Early),
    Whole(Box<Whole>),
}

impl Arriving {
    fn format(&self) -> SumsFormat {
        match self {
            Self::Early(_) => SumsFormat::StrongOnly,
            Self::Whole(whole) => whole.need.format,
        }
    }

    /// Takes memory for further sums.
    fn grow(&mut self, bytes: u64) -> Result<(), OverBudget> {
        match self {
            Self::Early(early) => early.kept.grow(bytes),
            Self::Whole(whole) => whole.held.grow(bytes),
        }
    }
}

/// A signature that is searched meanwhile.
struct Early {
    sums: ArrivingSignature,
    kept: KeptSignature,
    file: Arc<LargeFile>,
}

/// A signature that is of use when it is whole.
struct Whole {
    need: NeedDelta,
    decoder: SignatureDecoder,
    /// Memory for its sums, as they came and as an index.
    held: Held,
    /// The file and the request that this answers.
    refining: Option<Refining>,
}

impl ArrivingSums {
    /// Takes the announcement of sums.
    pub(super) fn begin(
        &mut self,
        shared: &Shared<'_>,
        key: &Key,
        rests: &mut Rests,
        need: NeedDelta,
    ) -> Result<(), SyncError> {
        let refining = lock(&shared.refining).remove(&need.entry);
        let layout = Layout::new(need.basis_len, need.block_len);
        let asked_for = match &refining {
            Some(Refining { request, .. }) => (request.layout(), request.format()) == (layout, need.format),
            // Weak sums only complete a signature.
            None => need.format.has_strong(),
        };

        if !asked_for {
            return Err(misbehaved(PeerMisbehaved::OtherSums { entry: need.entry }));
        }
        if shared.catalogue.find(need.entry).is_none() {
            return Err(inbox::not_listed(need.entry));
        }

        let entry = need.entry;
        // Further sums have the key of the first ones.
        if refining.is_some() && need.key.is_some() {
            return Err(misbehaved(PeerMisbehaved::OtherSums { entry }));
        }
        let early = refining.is_none() && need.format == SumsFormat::StrongOnly;
        let arriving =
            if early { early_sums(shared, key, rests, need)? } else { whole(shared, need, refining)? };
        self.by_entry.insert(entry, arriving);
        Ok(())
    }

    /// Takes a part of a signature. Lets the file that it is for go on with it.
    pub(super) fn take(
        &mut self,
        shared: &Shared<'_>,
        key: &Key,
        rests: &mut Rests,
        sums: &Sums,
    ) -> Result<(), SyncError> {
        let entry = sums.entry;
        let unasked = || misbehaved(PeerMisbehaved::UnaskedSums { entry });
        let arriving = self.by_entry.get_mut(&entry).ok_or_else(unasked)?;
        let bytes = memory(sums.bytes.len(), arriving.format());
        arriving.grow(bytes)?;
        match arriving {
            Arriving::Early(early) => {
                early.sums.push(&sums.bytes).map_err(misbehaved)?;
                shared.queue.wake(&early.file);
            }
            Arriving::Whole(whole) => whole.decoder.push(&sums.bytes).map_err(misbehaved)?,
        }

        if !sums.last {
            return Ok(());
        }
        match self.by_entry.remove(&entry).ok_or_else(unasked)? {
            Arriving::Early(early) => early.sums.finish().map_err(misbehaved),
            Arriving::Whole(whole) => whole.arrived(shared, key, rests),
        }
    }
}

/// Queues a file whose first sums are about to arrive.
fn early_sums(
    shared: &Shared<'_>,
    key: &Key,
    rests: &mut Rests,
    need: NeedDelta,
) -> Result<Arriving, SyncError> {
    let NeedDelta { entry, attempt, basis_len, block_len, .. } = need;
    let layout = Layout::new(basis_len, block_len);
    let key = key_of(&need, key);
    let sums = ArrivingSignature::new(layout, &key, MAX_SIGNATURE_BLOCKS).map_err(misbehaved)?;
    let held = shared.session.budget.take(Share::Signatures, 0)?;
    let kept = KeptSignature::new(Arc::clone(sums.index()), held);
    let (rest, signature) = (rests.remove(&entry), Some(kept.clone()));
    let wanted = Wanted { entry, attempt, rest, signature, tail: None };
    // With a signature it is sent in segments, whatever its length.
    let file = inbox::push(shared, wanted)?.ok_or_else(|| inbox::not_listed(entry))?;
    Ok(Arriving::Early(Early { sums, kept, file }))
}

fn whole(shared: &Shared<'_>, need: NeedDelta, refining: Option<Refining>) -> Result<Arriving, SyncError> {
    let layout = Layout::new(need.basis_len, need.block_len);
    let decoder = match &refining {
        Some(Refining { request, .. }) => request.decoder(MAX_SIGNATURE_BLOCKS),
        None => SignatureDecoder::new(layout, need.format, MAX_SIGNATURE_BLOCKS),
    };
    let decoder = decoder.map_err(misbehaved)?;
    let held = shared.session.budget.take(Share::Signatures, 0)?;
    Ok(Arriving::Whole(Box::new(Whole { need, decoder, held, refining })))
}

impl Whole {
    /// Queues the file that the signature is for, or continues with its next round.
    fn arrived(self, shared: &Shared<'_>, key: &Key, rests: &mut Rests) -> Result<(), SyncError> {
        let Self { need, decoder, held, refining } = self;
        let signature = decoder.finish().map_err(misbehaved)?;
        let kept = |signature: Signature, key: &Key, held| {
            KeptSignature::new(Arc::new(IndexedSignature::new(signature, key)), held)
        };
        let Some(Refining { file, request }) = refining else {
            let rest = rests.remove(&need.entry);
            let signature = Some(kept(signature, &key_of(&need, key), held));
            let NeedDelta { entry, attempt, .. } = need;
            return inbox::push(shared, Wanted { entry, attempt, rest, signature, tail: None }).map(|_| ());
        };

        if request.format().has_strong() {
            let key = file.request.signature.as_ref().map_or(key, |first| first.key());
            file.refined(kept(signature, key, held));
        } else {
            file.weak_sums(signature, held).map_err(misbehaved)?;
        }
        shared.queue.push_again(file);
        Ok(())
    }
}

/// Returns the key of a file's sums and values: the destination's for this file, or the session's.
fn key_of(need: &NeedDelta, session: &Key) -> Key {
    need.key.map_or_else(|| session.clone(), |FileKey(key)| Key::from_bytes(key))
}

/// Returns the memory for encoded sums of this length: as they came, and in the index while it is
/// made from them.
fn memory(len: usize, format: SumsFormat) -> u64 {
    (len / format.bytes_per_block().max(1) + 1) as u64 * (12 + 20)
}
