//! Stage 3: signatures of the old files that deltas are asked against.

use std::sync::Arc;

use crossbeam_channel::{Receiver, select};
use dsync_delta::{
    Layout, RefineRequest, SumsFormat, refine_parallel, signature_parallel, tuning::refined_block_lens,
};
use dsync_wire::{
    limits::MAX_SUMS,
    message::{Cause, ControlMessage, NeedDelta, Refine, Sums},
};

use super::{
    Site,
    files::{Basis, Pending},
};
use crate::{SyncError, content::Positional, source::MAX_FINE_BLOCKS};

/// Signs old files until no more come.
pub(super) fn run(
    site: &Site<'_>,
    files: &Receiver<Arc<Pending>>,
    refinements: &Receiver<Refine>,
) -> Result<(), SyncError> {
    while !site.session.halt.stopped() {
        select! {
            // The planner ends when every file has arrived: nothing is left to refine then.
            recv(files) -> file => match file {
                Ok(file) => first_round(site, &file)?,
                Err(_) => return Ok(()),
            },
            recv(refinements) -> refine => match refine {
                Ok(refine) => second_round(site, &refine)?,
                Err(_) => return Ok(()),
            },
        }
    }
    Ok(())
}

fn first_round(site: &Site<'_>, file: &Pending) -> Result<(), SyncError> {
    if sign(site, file)? {
        return Ok(());
    }
    site.session.control.send(&ControlMessage::Need { entry: file.entry, attempt: file.attempt() })
}

/// Answers with the sums of shorter blocks; an old file that cannot be read any more is sent whole.
fn second_round(site: &Site<'_>, refine: &Refine) -> Result<(), SyncError> {
    let Some(file) = site.files.get(refine.entry).filter(|file| file.attempt() == refine.attempt) else {
        return Ok(());
    };
    let Some(basis) = file.basis() else {
        return Err(SyncError::Protocol { detail: format!("entry {}: nothing to refine", refine.entry.0) });
    };
    let request = RefineRequest::decode(basis.layout, refine.block_len, &refine.runs, MAX_FINE_BLOCKS)
        .map_err(super::stage::protocol)?;
    let signature = refine_parallel(&site.session.key, &request, FORMAT, &Positional(&basis.file));
    let Ok(signature) = signature else {
        return file.give_up_or_retry(site, Cause::ContentMismatch);
    };
    if !file.refine(request.fine_layout()) {
        return Err(SyncError::Protocol { detail: format!("entry {}: refined twice", refine.entry.0) });
    }
    let (basis_len, block_len) = (basis.file.len(), refine.block_len);
    let need = NeedDelta { entry: file.entry, attempt: refine.attempt, basis_len, block_len };
    site.session.control.send(&ControlMessage::NeedDelta(need))?;
    let sums = signature.encode();
    site.account.amend(|report| report.signature_bytes += sums.len() as u64);
    send_sums(site, &file, &sums)
}

/// Signs one old file and asks for the delta; false when it has to be asked for whole.
fn sign(site: &Site<'_>, file: &Pending) -> Result<bool, SyncError> {
    let Some(dir) = &file.directory.dir else { return Ok(false) };
    // An old file that cannot be read is replaced like one that is not there.
    let Ok(basis) = dir.open_source(&file.name) else { return Ok(false) };
    let (block_len, _) = refined_block_lens(basis.len(), None);
    let layout = Layout::new(basis.len(), block_len);
    let bytes = layout.block_count().saturating_mul(FORMAT.bytes_per_block() as u64);
    if bytes == 0 || layout.block_count() > super::MAX_SIGNATURE_BLOCKS {
        return Ok(false);
    }
    if !site.signatures.take(bytes, &site.session.halt) {
        return Ok(true);
    }
    basis.advise_sequential();
    let Ok(signature) = signature_parallel(&site.session.key, layout, FORMAT, &Positional(&basis)) else {
        site.signatures.give(bytes);
        return Ok(false);
    };
    let need = NeedDelta { entry: file.entry, attempt: file.attempt(), basis_len: basis.len(), block_len };
    file.set_basis(Basis { file: basis, layout, signature_bytes: bytes });
    site.session.control.send(&ControlMessage::NeedDelta(need))?;
    send_sums(site, file, &signature.encode())?;
    site.account.amend(|report| report.signature_bytes += bytes);
    Ok(true)
}

/// Sends the sums in whole blocks.
fn send_sums(site: &Site<'_>, file: &Pending, sums: &[u8]) -> Result<(), SyncError> {
    let part_len = MAX_SUMS - MAX_SUMS % FORMAT.bytes_per_block();
    let mut parts = sums.chunks(part_len).peekable();
    while let Some(part) = parts.next() {
        let last = parts.peek().is_none();
        let sums = Sums { entry: file.entry, bytes: part.to_vec(), last };
        site.session.control.send(&ControlMessage::Sums(sums))?;
    }
    Ok(())
}

/// Both sums of each block.
pub(crate) const FORMAT: SumsFormat = SumsFormat::StrongAndWeak;
