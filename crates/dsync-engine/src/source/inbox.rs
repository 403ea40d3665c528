//! The destination's messages at the source: requests into the queue, credit back, the final
//! report.

use std::{collections::HashMap, io, ops::Range, sync::Arc};

use dsync_delta::Key;
use dsync_wire::{
    budget::Share,
    event::{Event, Progress, Report},
    limits::MAX_OPEN_RESTS,
    message::{Cause, ControlMessage, EntryId, Landed, NeedTail, Operation, Problem, Rest, SpanAnswer},
};

use super::{
    Shared,
    large::LargeFile,
    queue::{Full, KeptRest, KeptSignature, Request, Tail},
    read,
    sums::ArrivingSums,
};
use crate::{
    SyncError, content,
    halt::lock,
    misbehaved::{PeerMisbehaved, misbehaved},
    observe::Observer,
    reconnect::Attempt,
    session::{self, Keying, SourceMail},
};

/// Links and clones that the destination has told of, which its report lacks.
#[derive(Default)]
struct Made {
    linked: u64,
    cloned: u64,
}

impl Made {
    fn note(&mut self, event: &Event) {
        if let Event::Done(done) = event {
            self.linked += u64::from(done.linked);
            self.cloned += u64::from(done.cloned);
        }
    }

    fn in_report(self, report: Report) -> Report {
        report.linked(Some(self.linked)).cloned(Some(self.cloned))
    }
}

/// Receives until the report, then answers it. Starts the lanes once the session's key is known.
pub(super) fn run(
    shared: &Shared<'_>,
    mut mail: SourceMail,
    start_lanes: impl FnOnce(&Key),
) -> Result<Report, SyncError> {
    let key = agree(shared, &mut mail)?;
    start_lanes(&key);
    let SourceMail { mut receiver, mut order, .. } = mail;
    let mut made = Made::default();
    let mut arriving = ArrivingSums::default();
    let mut rests = Rests::new();

    loop {
        let message = shared.session.hear(&mut receiver)?;
        order.check(&message)?;
        match message {
            ControlMessage::Need { entry, attempt } => {
                // Asked for again: a round that has begun is void.
                lock(&shared.refining).remove(&entry);
                let rest = rests.remove(&entry);
                push(shared, Wanted { entry, attempt, rest, ..Wanted::default() })?;
            }
            ControlMessage::NeedTail(NeedTail { entry, attempt, from, content }) => {
                lock(&shared.refining).remove(&entry);
                let tail = Some(Tail { from, content });
                push(shared, Wanted { entry, attempt, tail, ..Wanted::default() })?;
            }
            ControlMessage::NeedDelta(need) => arriving.begin(shared, &key, &mut rests, need)?,
            ControlMessage::Sums(sums) => arriving.take(shared, &key, &mut rests, &sums)?,
            ControlMessage::Rest(rest) => keep_rest(shared, &mut rests, rest)?,
            ControlMessage::ListingDone { part } => release(shared, part)?,
            ControlMessage::SpanAnswer(answer) => settle_span(shared, &answer)?,
            ControlMessage::Landed(landed) => remove(shared, &landed)?,
            ControlMessage::NeedsEnd => shared.queue.close(),
            ControlMessage::Event(event) => {
                made.note(&event);
                shared.attempt.inspect(|attempt| shared.session.aside(|| attempt.event(&event)));
            }
            ControlMessage::Progress(progress) => {
                shared.attempt.inspect(|attempt| tell_progress(shared, attempt, &progress));
            }
            ControlMessage::Report(report) => {
                shared.session.control.send_last(&ControlMessage::Bye)?;
                // The controller is done with that, and says so by closing the link. The peer waits
                // for this, so that its exit does not cut off the farewell.
                while shared.attempt.is_none() && receiver.recv().is_ok_and(|message| message.is_some()) {}
                let counted = shared.session.options.event_done;
                return Ok(if counted { made.in_report(*report) } else { *report });
            }

            other => return Err(session::unexpected(&other)),
        }
    }
}

/// Tells the observer of the peer's progress, and of this end's file under way.
fn tell_progress(shared: &Shared<'_>, attempt: &Attempt<'_>, progress: &Progress) {
    let file = shared.under_way.now();
    shared.session.aside(|| {
        file.inspect(|file| attempt.file(file));
        attempt.progress(progress);
    });
}

/// Sends what a span's answer lacks; the span can then be released.
fn settle_span(shared: &Shared<'_>, answer: &SpanAnswer) -> Result<(), SyncError> {
    shared.spans.answer(&shared.session.control, answer)?;
    shared.catalogue.answered();
    Ok(())
}

/// Releases a listing message, or a span that was answered.
fn release(shared: &Shared<'_>, part: u64) -> Result<(), SyncError> {
    if shared.catalogue.release(part) { Ok(()) } else { Err(misbehaved(PeerMisbehaved::BadRelease { part })) }
}

/// Keeps the destination's missing segments of a file until it asks for them.
fn keep_rest(shared: &Shared<'_>, rests: &mut Rests, rest: Rest) -> Result<(), SyncError> {
    if rests.len() >= MAX_OPEN_RESTS {
        return Err(misbehaved(PeerMisbehaved::TooManyRests));
    }
    if shared.catalogue.find(rest.entry).is_none() {
        return Err(not_listed(rest.entry));
    }
    let bytes = rest_bytes(&rest);
    let held = shared.session.budget.take(Share::Signatures, bytes)?;
    rests.insert(rest.entry, KeptRest { rest, _held: held });
    Ok(())
}

/// Returns the session's key, waiting for the peer to be ready if this end has not heard so yet.
fn agree(shared: &Shared<'_>, mail: &mut SourceMail) -> Result<Key, SyncError> {
    let SourceMail { receiver, order, keying, .. } = mail;
    let ours = match keying {
        Keying::Agreed(key) => return Ok(key.clone()),
        Keying::Offered(ours) => ours,
    };
    let key = shared.session.hear_ready(receiver, ours, |message| Ok(order.check(message)?))?;
    if let Some(attempt) = shared.attempt {
        shared.session.aside(|| attempt.note_begun(&shared.session.peer_lacks()));
    }
    Ok(key)
}

/// Removes entries that are at the destination for good, unless they have changed since they were
/// listed.
fn remove(shared: &Shared<'_>, landed: &[Landed]) -> Result<(), SyncError> {
    let options = &shared.session.options;
    if !options.remove_source_files || options.dry_run {
        return Err(misbehaved(PeerMisbehaved::UnaskedRemoval));
    }

    for &Landed { entry, stood } in landed {
        let listed = shared.catalogue.find(entry);
        let Some((listed, witness)) = listed.and_then(|listed| Some((listed.clone(), listed.witness()?)))
        else {
            return Err(misbehaved(PeerMisbehaved::LandedUnlisted { entry }));
        };
        // The listing told already what its copy lacks.
        if witness.stays() {
            continue;
        }
        let path = || listed.path().as_bytes().to_vec();
        let Some(dir) = listed.dir() else { return Err(misbehaved(PeerMisbehaved::UnaskedRemoval)) };
        let cause = if stood == Some(content::state(witness.stamp())) {
            Cause::SameFile
        } else {
            match dir.remove_file(listed.name(), listed.followed(), |now| witness.is(now)) {
                Ok(true) if options.event_removals => {
                    shared.session.control.queue(&ControlMessage::RemovedPath(path()))?;
                    continue;
                }
                Ok(true) => continue,
                Ok(false) => Cause::Changed,
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => read::cause(&error),
            }
        };
        let problem = Problem::new(Operation::RemoveSource, path(), cause);
        shared.session.control.queue(&ControlMessage::Problem(problem))?;
    }

    shared.session.control.send(&ControlMessage::Removed { entries: landed.len() as u64 })
}

/// The destination's missing segments of files that it has not asked for yet.
pub(super) type Rests = HashMap<EntryId, KeptRest>;

/// A request for a file, as its parts arrive.
#[derive(Default)]
pub(super) struct Wanted {
    pub(super) entry: EntryId,
    pub(super) attempt: u8,
    pub(super) rest: Option<KeptRest>,
    pub(super) tail: Option<Tail>,
    pub(super) signature: Option<KeptSignature>,
}

/// Queues a file. Returns it if it is sent in segments.
pub(super) fn push(shared: &Shared<'_>, wanted: Wanted) -> Result<Option<Arc<LargeFile>>, SyncError> {
    let Wanted { entry, attempt, rest, tail, signature } = wanted;
    let Some(listed) = shared.catalogue.find(entry) else {
        return Err(not_listed(entry));
    };
    if !listed.ask(attempt) {
        return Err(misbehaved(PeerMisbehaved::NotNextRequest { entry, attempt }));
    }
    if attempt == 0 {
        shared.session.tally.add_file();
    }
    let rest = rest.filter(|kept| kept.rest.attempt == attempt);
    let request = Request { entry, attempt, listed, signature, rest, tail };
    shared.queue.push(request).map_err(|Full| misbehaved(PeerMisbehaved::TooManyRequests))
}

pub(super) fn not_listed(entry: EntryId) -> SyncError {
    misbehaved(PeerMisbehaved::NotListed { entry })
}

/// Returns the memory for a request for the rest of a file.
fn rest_bytes(rest: &Rest) -> u64 {
    (size_of::<Rest>() + 64 + rest.runs.len() * size_of::<Range<u64>>()) as u64
}
