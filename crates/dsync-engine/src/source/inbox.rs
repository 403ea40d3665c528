//! The destination's messages at the source: requests into the queue, credit back, the final report.

use std::{collections::HashMap, sync::Arc};

use dsync_delta::{IndexedSignature, Layout, SignatureDecoder};
use dsync_wire::{
    event::Report,
    message::{ControlMessage, EntryId, NeedDelta, Sums},
};

use super::{Shared, queue::Request};
use crate::{
    SyncError,
    destination::{FORMAT, MAX_SIGNATURE_BLOCKS},
    session::{self, SourceMail},
};

/// Signatures that are arriving.
struct Arriving {
    need: NeedDelta,
    decoder: SignatureDecoder,
}

/// Receives until the report; then answers it.
pub(super) fn run(shared: &Shared<'_>, mail: SourceMail) -> Result<Report, SyncError> {
    let SourceMail { mut receiver, mut order } = mail;
    let mut arriving = HashMap::new();
    loop {
        let message = shared.session.hear(&mut receiver)?;
        order.check(&message)?;
        match message {
            ControlMessage::Need { entry, attempt } => push(shared, entry, attempt, None)?,
            ControlMessage::NeedDelta(need) => begin_signature(&mut arriving, need)?,
            ControlMessage::Sums(sums) => {
                if let Some((need, signature)) = take_sums(shared, &mut arriving, &sums)? {
                    push(shared, need.entry, need.attempt, Some(signature))?;
                }
            }
            ControlMessage::ListingDone { part } => {
                if !shared.catalogue.release(part) {
                    return Err(protocol(format!("listing {part} released twice or never sent")));
                }
            }
            ControlMessage::NeedsEnd => shared.queue.close(),
            ControlMessage::Event(event) => {
                if let Some(observer) = shared.observer {
                    observer.event(&event);
                }
            }
            ControlMessage::Progress(progress) => {
                if let Some(observer) = shared.observer {
                    observer.progress(&progress);
                }
            }
            ControlMessage::Report(report) => {
                shared.session.control.send_last(&ControlMessage::Bye)?;
                // The destination closes once it has heard the farewell; wait for that, so that this
                // end's exit does not cut it off.
                while receiver.recv().is_ok_and(|message| message.is_some()) {}
                return Ok(*report);
            }
            other => return Err(session::unexpected(&other)),
        }
    }
}

fn push(
    shared: &Shared<'_>,
    entry: EntryId,
    attempt: u8,
    signature: Option<Arc<IndexedSignature>>,
) -> Result<(), SyncError> {
    let Some(listed) = shared.catalogue.find(entry) else {
        return Err(protocol(format!("request for entry {}, which is not listed", entry.0)));
    };
    shared.queue.push(Request { entry, attempt, listed, signature });
    Ok(())
}

fn begin_signature(arriving: &mut HashMap<EntryId, Arriving>, need: NeedDelta) -> Result<(), SyncError> {
    let layout = Layout::new(need.basis_len, need.block_len);
    let decoder =
        SignatureDecoder::new(layout, FORMAT, MAX_SIGNATURE_BLOCKS).map_err(|e| protocol(e.to_string()))?;
    arriving.insert(need.entry, Arriving { need, decoder });
    Ok(())
}

fn take_sums(
    shared: &Shared<'_>,
    arriving: &mut HashMap<EntryId, Arriving>,
    sums: &Sums,
) -> Result<Option<(NeedDelta, Arc<IndexedSignature>)>, SyncError> {
    let Some(entry) = arriving.get_mut(&sums.entry) else {
        return Err(protocol(format!("sums for entry {}, which has no request", sums.entry.0)));
    };
    entry.decoder.push(&sums.bytes).map_err(|e| protocol(e.to_string()))?;
    if !sums.last {
        return Ok(None);
    }
    let Some(Arriving { need, decoder }) = arriving.remove(&sums.entry) else { return Ok(None) };
    let signature = decoder.finish().map_err(|e| protocol(e.to_string()))?;
    Ok(Some((need, Arc::new(IndexedSignature::new(signature, &shared.session.key)))))
}

fn protocol(detail: String) -> SyncError {
    SyncError::Protocol { detail }
}
