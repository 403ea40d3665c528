//! Stage 3: signatures of the old files that deltas are asked against.

use std::{io, sync::Arc};

use crossbeam_channel::Receiver;
use dsync_delta::{BlockLen, Layout, ReadAt, SumsFormat, signature_parallel};
use dsync_fs::SourceFile;
use dsync_wire::{
    limits::MAX_SUMS,
    message::{ControlMessage, NeedDelta, Sums},
};

use super::{
    Site,
    files::{Basis, Pending},
};
use crate::SyncError;

/// Signs old files until no more come.
pub(super) fn run(site: &Site<'_>, files: &Receiver<Arc<Pending>>) -> Result<(), SyncError> {
    for file in files {
        if site.session.halt.stopped() {
            return Ok(());
        }
        if !sign(site, &file)? {
            let need = ControlMessage::Need { entry: file.entry, attempt: file.attempt() };
            site.session.control.send(&need)?;
        }
    }
    Ok(())
}

/// Signs one old file and asks for the delta; false when it has to be asked for whole.
fn sign(site: &Site<'_>, file: &Pending) -> Result<bool, SyncError> {
    let Some(dir) = &file.directory.dir else { return Ok(false) };
    // An old file that cannot be read is replaced like one that is not there.
    let Ok(basis) = dir.open_source(&file.name) else { return Ok(false) };
    let block_len = BlockLen::for_file(basis.len(), None);
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

/// An old file as the delta core reads it.
struct Positional<'a>(&'a SourceFile);

impl ReadAt for Positional<'_> {
    type Error = io::Error;

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read_at(offset, buffer)
    }
}

/// Both sums of each block.
pub(crate) const FORMAT: SumsFormat = SumsFormat::StrongAndWeak;
