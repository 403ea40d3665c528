//! The destination's messages at the source: requests into the queue, credit back, the final report.

use std::{collections::HashMap, sync::Arc};

use dsync_delta::{IndexedSignature, Layout, SignatureDecoder};
use dsync_wire::{
    event::Report,
    message::{ControlMessage, EntryId, NeedDelta, Sums},
};

use super::{MAX_FINE_BLOCKS, Refining, Shared, large::LargeFile, queue::Request};
use crate::{
    SyncError,
    destination::{FORMAT, MAX_SIGNATURE_BLOCKS},
    halt::lock,
    session::{self, SourceMail},
};

/// Signatures that are arriving.
struct Arriving {
    need: NeedDelta,
    decoder: SignatureDecoder,
    /// The file whose second round this is.
    refines: Option<Arc<LargeFile>>,
}

/// Receives until the report; then answers it.
pub(super) fn run(shared: &Shared<'_>, mail: SourceMail) -> Result<Report, SyncError> {
    let SourceMail { mut receiver, mut order } = mail;
    let mut arriving = HashMap::new();
    loop {
        let message = shared.session.hear(&mut receiver)?;
        order.check(&message)?;
        match message {
            ControlMessage::Need { entry, attempt } => {
                // Asked for again: a second round that is under way is void.
                lock(&shared.refining).remove(&entry);
                push(shared, entry, attempt, None)?;
            }
            ControlMessage::NeedDelta(need) => begin_signature(shared, &mut arriving, need)?,
            ControlMessage::Sums(sums) => {
                if let Some(arrived) = take_sums(&mut arriving, &sums)? {
                    use_signature(shared, arrived)?;
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
    if shared.queue.push(Request { entry, attempt, listed, signature }) {
        return Ok(());
    }
    Err(protocol("more requests than there are entries".to_owned()))
}

fn begin_signature(
    shared: &Shared<'_>,
    arriving: &mut HashMap<EntryId, Arriving>,
    need: NeedDelta,
) -> Result<(), SyncError> {
    let refining = lock(&shared.refining).remove(&need.entry);
    let (decoder, refines) = match refining {
        Some(Refining { file, request }) => {
            let asked = request.fine_layout();
            if need.block_len != asked.block_len() || need.basis_len != asked.file_len() {
                return Err(protocol(format!("entry {}: not the sums that were asked for", need.entry.0)));
            }
            (request.decoder(FORMAT, MAX_FINE_BLOCKS), Some(file))
        }
        None => {
            let layout = Layout::new(need.basis_len, need.block_len);
            (SignatureDecoder::new(layout, FORMAT, MAX_SIGNATURE_BLOCKS), None)
        }
    };
    let decoder = decoder.map_err(|error| protocol(error.to_string()))?;
    arriving.insert(need.entry, Arriving { need, decoder, refines });
    Ok(())
}

/// Takes a part of a signature; gives the whole when it was the last.
fn take_sums(arriving: &mut HashMap<EntryId, Arriving>, sums: &Sums) -> Result<Option<Arriving>, SyncError> {
    let Some(entry) = arriving.get_mut(&sums.entry) else {
        return Err(protocol(format!("sums for entry {}, which has no request", sums.entry.0)));
    };
    entry.decoder.push(&sums.bytes).map_err(|error| protocol(error.to_string()))?;
    Ok(if sums.last { arriving.remove(&sums.entry) } else { None })
}

/// Queues the file that a signature is for, or goes on with its second round.
fn use_signature(shared: &Shared<'_>, arrived: Arriving) -> Result<(), SyncError> {
    let Arriving { need, decoder, refines } = arrived;
    let signature = decoder.finish().map_err(|error| protocol(error.to_string()))?;
    let signature = IndexedSignature::new(signature, &shared.session.key);
    match refines {
        Some(file) => {
            file.refined(signature);
            shared.queue.push_again(file);
            Ok(())
        }
        None => push(shared, need.entry, need.attempt, Some(Arc::new(signature))),
    }
}

fn protocol(detail: String) -> SyncError {
    SyncError::Protocol { detail }
}
