//! Stage 3: signatures of the old files that deltas are asked against, and requests for the rest of
//! files that earlier runs left in part.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Instant,
};

use crossbeam_channel::{Receiver, select};
use dsync_delta::{
    BlockLen, Key, Layout, RefineRequest, Signature, StretchSigner, SumsFormat, first_format,
    refine_parallel, refined_block_lens,
};
use dsync_fs::{Opening, SourceFile, StagedFile};
use dsync_wire::{
    budget::Held,
    limits::MAX_SUMS,
    message::{Cause, ControlMessage, EntryId, FileKey, NeedDelta, Refine, Sums},
    version::FILE_KEYS,
};

use super::{
    Site,
    commit::Outbox,
    files::Pending,
    kept::Part,
    phase::{Rounds, Signed},
    settle::Outcome,
    slot::Tail,
    stage::Basis,
    transfers::Transfers,
    twin,
};
use crate::{
    SyncError,
    content::{self, Positional},
    limits::{MAX_FINE_BLOCKS, MAX_SIGNATURE_BLOCKS},
    misbehaved::misbehaved,
    schedule::{Point, point},
    slow_reads::ReadGauge,
    state::KnownSignature,
};

/// A request for further sums that waits for a signer, and its memory.
pub(super) struct Refinement {
    pub(super) refine: Refine,
    pub(super) _held: Held,
}

/// Signs old files until no more come.
pub(super) fn run(
    transfers: &Transfers<'_>,
    mut outbox: Outbox<'_>,
    files: &Receiver<Vec<Arc<Pending>>>,
    refinements: &Receiver<Refinement>,
) -> Result<(), SyncError> {
    let site = transfers.site;
    let mut reads = ReadGauge::default();

    while !site.session.halt.stopped() {
        select! {
            // The planner ends when every file has arrived: nothing is left to refine then.
            recv(files) -> files => match files {
                Ok(files) => first_rounds(transfers, &mut outbox, &files, &mut reads)?,
                Err(_) => return Ok(()),
            },
            recv(refinements) -> refine => match refine {
                Ok(waiting) => further_round(transfers, &waiting.refine)?,
                Err(_) => return Ok(()),
            },
        }
        point(Point::Receive);
        outbox.flush()?;
    }
    Ok(())
}

/// Looks at old files that were handed over together, until the run stops. Where reads wait for a
/// disk, it is asked for all that are left.
fn first_rounds(
    transfers: &Transfers<'_>,
    outbox: &mut Outbox<'_>,
    files: &[Arc<Pending>],
    reads: &mut ReadGauge,
) -> Result<(), SyncError> {
    reads.next_group();
    for (at, file) in files.iter().enumerate() {
        if transfers.site.session.halt.stopped() {
            break;
        }
        let started = Instant::now();
        first_round(transfers, outbox, file)?;
        reads.read(file.size, started);
        if reads.asks_now() {
            let rest = files.get(at + 1..).unwrap_or_default();
            let old = |file: &Arc<Pending>| file.slot.open_basis(Opening::default())?.ok();
            reads.ask_for(rest.iter().filter_map(old));
        }
    }
    Ok(())
}

fn first_round(
    transfers: &Transfers<'_>,
    outbox: &mut Outbox<'_>,
    file: &Arc<Pending>,
) -> Result<(), SyncError> {
    let site = transfers.site;
    if let Some(twin) = file.slot.equal()
        && twin::copy(transfers, outbox, file, twin)?
    {
        return Ok(());
    }
    if let Some(tail) = file.slot.tail
        && let Some(content) = beginning(site, file, tail)
    {
        let need = file.want_tail(tail.from, Some(content));
        return site.session.control.send(&ControlMessage::NeedTail(need));
    }
    let part = if file.slot.device { None } else { Part::find(site, &file.slot) };
    let has_part = part.is_some();
    if let Some(part) = part {
        site.account.progress.bytes_done.fetch_add(part.done_bytes(), Ordering::Relaxed);
        let rest = part.rest(file.entry, file.attempt().unwrap_or(0));
        file.set_part(part);
        site.session.control.send(&ControlMessage::Rest(rest))?;
    }

    if file.has_basis && file.slot.equal().is_none() && sign(transfers, file, has_part)? {
        return Ok(());
    }

    let Some(attempt) = file.attempt() else { return Ok(()) };
    site.session.control.send(&ControlMessage::Need { entry: file.entry, attempt })
}

/// Returns the hash of an old file that is added to; `None` when it has changed, or cannot be read.
fn beginning(site: &Site<'_>, file: &Pending, tail: Tail) -> Option<[u8; 32]> {
    let old = file.slot.directory.dir.as_ref()?.open_source_noatime(&file.slot.name).ok()?;
    content::hash_beginning(&old, tail.from, site.session.halt.stop_flag())
        .ok()
        .filter(|_| old.stamp() == tail.stamp)
}

/// Answers with further sums; an old file that cannot be read any more is sent whole.
fn further_round(transfers: &Transfers<'_>, refine: &Refine) -> Result<(), SyncError> {
    let site = transfers.site;
    let Some(file) = transfers.files.get(refine.entry) else { return Ok(()) };
    let basis = file.further_sums(refine.attempt, |signed| Some(Arc::clone(&signed.basis)))?;
    let Some(basis) = basis else { return Ok(()) };
    let request =
        RefineRequest::decode(basis.layout, refine.format, refine.block_len, &refine.runs, MAX_FINE_BLOCKS)
            .map_err(misbehaved)?;

    if request.format() == SumsFormat::WeakOnly {
        let weak = file.further_sums(refine.attempt, |signed| signed.rounds.weak())?;
        return weak.map_or(Ok(()), |weak| send(site, &file, refine.attempt, &weak));
    }
    let layout = request.layout();
    if file.further_sums(refine.attempt, |signed| signed.rounds.refine(layout))?.is_none() {
        return Ok(());
    }
    let halt = &site.session.halt;
    let content = Positional::whole(&basis.file, halt.stop_flag());
    let sums = || refine_parallel(&basis.key, &request, &content);
    match site.session.workers.install(sums)? {
        Ok(signature) => send(site, &file, refine.attempt, &signature),
        Err(_) if halt.stopped() => Ok(()),
        Err(_) => transfers.settle(&file, Outcome::Unsound(Cause::ContentMismatch)),
    }
}

/// Signs one old file and asks for the delta. Returns `false` when the whole file has to be asked
/// for.
fn sign(transfers: &Transfers<'_>, file: &Pending, has_part: bool) -> Result<bool, SyncError> {
    let site = transfers.site;
    // An old file that cannot be read is replaced like one that is not there.
    let Some(Ok(basis)) = file.slot.open_basis(file.slot.opening()) else { return Ok(false) };
    // Of a device that is longer, only the part that is written has anything in common.
    let len = if file.slot.device { basis.len().min(file.size) } else { basis.len() };
    let (block_len, _) = refined_block_lens(len);
    let layout = Layout::new(len, block_len);
    // Memory that the source may come to hold, and that this end holds until then.
    let bytes = layout.block_count().saturating_mul(SumsFormat::StrongAndWeak.bytes_per_block() as u64);
    if bytes == 0 || layout.block_count() > MAX_SIGNATURE_BLOCKS {
        return Ok(false);
    }
    // Each basis is open until its file has arrived: a share of the descriptors bounds those of few
    // sums.
    let credit = bytes.max(transfers.signatures.limit() / site.open.count.limit().max(1));
    if !transfers.signatures.take(credit, &site.session.halt) {
        return Ok(true);
    }

    basis.advise_sequential();
    site.session.note_length(len);
    // The values of a part's segments are of this session's key.
    let known = if has_part { None } else { known(site, &basis, block_len) };
    let key = known.as_ref().map_or_else(|| site.key.clone(), |known| Key::from_bytes(known.key));
    let basis = Basis { file: basis, layout, key, signature_bytes: bytes, credit };
    if !transfers.signing.take(1, &site.session.halt) {
        return Ok(true);
    }
    let announced = match known {
        Some(known) => known_sums(transfers, file, basis, known)?,
        None => first_sums(transfers, file, basis)?,
    };
    transfers.signing.give(1);
    if !announced {
        transfers.signatures.give(credit);
    }
    Ok(announced || site.session.halt.stopped())
}

/// Returns the signature that an earlier run kept of an old file, if the source can use it.
fn known(site: &Site<'_>, basis: &SourceFile, block_len: BlockLen) -> Option<KnownSignature> {
    let state = site.session.state.as_ref().filter(|_| site.peer_features & FILE_KEYS != 0)?;
    state.signature_of(basis, block_len)
}

/// Sends the sums that are known of an old file. Returns `false`, with nothing sent, if the attempt is
/// over.
fn known_sums(
    transfers: &Transfers<'_>,
    file: &Pending,
    basis: Basis,
    known: KnownSignature,
) -> Result<bool, SyncError> {
    let site = transfers.site;
    let Some(attempt) = file.attempt() else { return Ok(false) };
    let format = format_of(&basis);
    let out = SumsOut { site, entry: file.entry, format };
    out.announce(attempt, basis.layout, Some(FileKey(known.key)))?;
    let (sums, rounds) = match format {
        SumsFormat::StrongOnly => {
            let (strong, weak) = known.signature.split();
            (strong, Rounds::Strong(weak))
        }
        _ => (known.signature, Rounds::First),
    };

    set_basis(transfers, file, attempt, (Arc::new(basis), rounds));
    out.send(&sums.encode(), true)?;
    Ok(true)
}

/// Returns the sums that the source gets first.
fn format_of(basis: &Basis) -> SumsFormat {
    let mut head = [0; HEAD_BYTES];
    let head_len = basis.file.read_at(0, &mut head).unwrap_or(0);
    first_format(basis.layout, &head[..head_len])
}

/// Notes the basis of an attempt before the source has its last sums.
fn set_basis(transfers: &Transfers<'_>, file: &Pending, attempt: u8, (basis, rounds): (Arc<Basis>, Rounds)) {
    let clone = clone(transfers, file, &basis.file);
    let credit = basis.credit;
    if !file.set_basis(attempt, Signed { basis, clone, rounds }) {
        transfers.signatures.give(credit);
    }
}

/// Signs an old file and sends its sums as they are made. Returns `false`, with nothing sent, if it
/// cannot be read.
///
/// A stretch that cannot be read later gets sums that match nothing: the source sends its bytes.
fn first_sums(transfers: &Transfers<'_>, file: &Pending, basis: Basis) -> Result<bool, SyncError> {
    let site = transfers.site;
    let Some(attempt) = file.attempt() else { return Ok(false) };
    let (layout, basis) = (basis.layout, Arc::new(basis));
    let format = format_of(&basis);
    let content = Positional::whole(&basis.file, site.session.halt.stop_flag());
    // Weak sums cost a tenth of the pass that strong ones take; a second pass would read the file
    // again.
    let mut signer = StretchSigner::new(&basis.key, layout, SumsFormat::StrongAndWeak, &content);
    let Ok(mut sums) = site.session.workers.install(|| signer.next(format))? else { return Ok(false) };

    let out = SumsOut { site, entry: file.entry, format };
    out.announce(attempt, layout, None)?;
    while !signer.is_done() && !site.session.halt.stopped() {
        out.send(&sums, false)?;
        // The source may have given the file up meanwhile; it still hears of a last part.
        let is_over = file.attempt() != Some(attempt);
        let next = if is_over { None } else { site.session.workers.install(|| signer.next(format))?.ok() };
        sums = next.unwrap_or_else(|| signer.skip(format));
    }
    if site.session.halt.stopped() {
        return Ok(true);
    }

    let rounds = match format {
        SumsFormat::StrongOnly => Rounds::Strong(signer.finish().split().1),
        _ => Rounds::First,
    };
    set_basis(transfers, file, attempt, (Arc::clone(&basis), rounds));
    out.send(&sums, true)?;
    Ok(true)
}

/// Makes a private copy of a basis that shares its extents, where its filesystem can: then bytes
/// that the new file has in common with the old one at the same place are never written.
fn clone(transfers: &Transfers<'_>, file: &Pending, basis: &SourceFile) -> Option<StagedFile> {
    let site = transfers.site;
    let device = basis.stamp().dev;
    if file.slot.in_place || basis.len() < MIN_CLONE_BYTES || !transfers.sharing.may_share(device, device) {
        return None;
    }
    let staged = site.homes.stage(file.slot.directory.for_temporary().ok()?, file.slot.name.clone()).ok()?;
    transfers.sharing.clone_whole(&staged, basis).then_some(staged)
}

/// Announces the sums of a further round and sends them.
fn send(site: &Site<'_>, file: &Pending, attempt: u8, signature: &Signature) -> Result<(), SyncError> {
    let out = SumsOut { site, entry: file.entry, format: signature.format() };
    out.announce(attempt, signature.layout(), None)?;
    out.send(&signature.encode(), true)
}

/// Sends the sums of one old file.
struct SumsOut<'a> {
    site: &'a Site<'a>,
    entry: EntryId,
    format: SumsFormat,
}

impl SumsOut<'_> {
    fn announce(&self, attempt: u8, layout: Layout, key: Option<FileKey>) -> Result<(), SyncError> {
        let Self { entry, format, .. } = *self;
        let (basis_len, block_len) = (layout.file_len(), layout.block_len());
        let need = NeedDelta { entry, attempt, basis_len, block_len, format, key };
        self.site.session.control.send(&ControlMessage::NeedDelta(need))
    }

    /// Sends encoded sums, each block's in one message. `is_last`: no more follow.
    fn send(&self, bytes: &[u8], is_last: bool) -> Result<(), SyncError> {
        let part_len = MAX_SUMS - MAX_SUMS % self.format.bytes_per_block();
        let mut parts = bytes.chunks(part_len).peekable();
        while let Some(part) = parts.next() {
            let last = is_last && parts.peek().is_none();
            let sums = Sums { entry: self.entry, bytes: part.to_vec(), last };
            self.site.session.control.send(&ControlMessage::Sums(sums))?;
        }
        self.site.account.amend(|report| report.signature_bytes += bytes.len() as u64);
        Ok(())
    }
}

/// Bytes of a basis that are looked at to tell text from other content.
const HEAD_BYTES: usize = 4 << 10;
/// A shorter basis is written anew: that costs less than the calls, and keeps no descriptor until
/// it arrives.
const MIN_CLONE_BYTES: u64 = 128 << 10;
