//! The destination role: compares listings, asks for what differs, stages, verifies, commits,
//! deletes.
//!
//! Threads: an inbox for the source's messages, a planner (stage 2), signers (stage 3), one
//! receiver per data lane (stage 7), a committer (stage 8), which is the calling thread. A watch and a
//! pulse are [beats](crate::clock). When every requested file has its name, the deletions are made,
//! everything is made durable, and only then the report is sent.
//!
//! The law: the run ends well only when every thread that can hand in work has been joined
//! ([`work`]), and the committer only ends when each of their outboxes is gone. No count decides
//! it.

mod allowance;
mod alternate;
pub(crate) mod asked;
mod backup;
mod begun;
mod call;
mod commit;
mod credit;
mod delayed;
mod delete;
mod directory;
mod elsewhere;
mod files;
mod hands;
mod heard;
mod holes;
mod homes;
mod in_place;
mod inbox;
mod journal;
mod kept;
mod known;
mod landed;
mod late;
mod linking;
mod links;
mod local;
mod local_rules;
mod locked;
mod overtaken;
mod owners;
mod phase;
mod planner;
mod present;
mod protection;
mod receive;
mod records;
mod refused_places;
mod removal;
mod room;
mod rulings;
mod secure;
mod settle;
mod sign;
mod signing;
mod site;
mod slot;
mod stage;
mod succession;
mod target;
mod tenure;
mod transfers;
mod twin;
mod wanted_rulings;
mod weight;
mod written;

use std::{
    path::PathBuf,
    sync::{Arc, atomic::Ordering},
    time::Instant,
};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded, unbounded};
use dsync_fs::{CommitGroup, SpoolHome};
use dsync_wire::{event::Report, link::LinkError, message::ControlMessage};

use self::{
    asked::AskedFor,
    call::{Call, Work},
    commit::Outbox,
    files::Pending,
    heard::Waiting,
    local::Local,
    planner::Leftover,
    sign::Refinement,
    site::Site,
    target::Target,
    transfers::Transfers,
};
use crate::{
    CancelToken, Recording, SyncError,
    account::Audience,
    grant::Start,
    halt::{POLL, lock},
    own_entries::OwnEntries,
    rules::Filters,
    session::{DestinationMail, PULSE, Session},
    source::ListedFiles,
};

/// The terms of a destination.
pub(crate) struct Terms<'a> {
    /// The operand.
    pub(crate) operand: PathBuf,
    /// The run's filters, compiled.
    pub(crate) filters: Filters,
    /// The entries that the source's operands stand for.
    pub(crate) asked: AskedFor,
    /// The observer of events: `None` when the source is the controller.
    pub(crate) observer: Option<&'a dyn crate::Observer>,
    /// Whoever serves and listens when the source is the controller.
    pub(crate) listener: Option<&'a dyn crate::Observer>,
    /// The source's files, when it is in this process.
    pub(crate) files: Option<ListedFiles>,
    /// The home of lists that outgrow memory.
    pub(crate) spools: SpoolHome,
    /// The start of the operand's path, and the rights there.
    pub(crate) start: Start,
    /// The batch that the run is recorded in, where only this end has the contents.
    pub(crate) recording: Option<Recording>,
    /// Files that the run itself writes in the tree.
    pub(crate) own: OwnEntries,
}

/// Makes the destination like the source and returns the account of it.
pub(crate) fn run(
    session: Session,
    mut mail: DestinationMail,
    terms: Terms<'_>,
    cancel: &CancelToken,
) -> Result<Report, SyncError> {
    let report = {
        let control = Arc::clone(&session.control);
        let Terms { operand, filters, asked, observer, listener, files, spools, start, recording, own } =
            terms;
        let audience = observer.map_or(Audience::Wire(&control, listener), Audience::Observer);
        let rules = filters.destination.xattr_rules();
        let mut site = Site::new(&session, mail.key.clone(), audience, (&start, rules));
        if let Some(recording) = &recording {
            recording.until(session.halt.stop_flag());
        }
        site.recording = recording;
        site.peer_features = mail.features;
        site.tell_tree(&spools, own.left_out);
        site.own = own;
        let site = site;
        let (again_tx, again) = unbounded();
        let local = files.map(|files| Local::new(files, again));
        let (call, called) = Call::new();
        let transfers = Transfers::new(&site, local.as_ref().map(|_| again_tx), call);

        let beside = (start, spools);
        let is_remote = local.is_none();
        let spans = mail.spans.take().filter(|_| is_remote && session.options.allows_spans());
        if spans.is_some() {
            mail.order.allow_spans();
        }
        let plan = |ways, listed: &_| {
            planner::run(&transfers, (&operand, beside), &filters, asked, ways, spans, listed)
        };
        let report = converse(&transfers, (local.as_ref(), &called), mail, cancel, plan);
        if report.is_none() {
            let_go(&transfers);
        }
        report
    };
    session.conclude(report)
}

/// The planner's ways to the threads that read the destination's files, and to the committer.
type Ways<'a> = (Sender<Vec<Arc<Pending>>>, Outbox<'a>);

/// Starts the threads and waits until all of them have ended. Returns the report of a run that
/// ended well.
fn converse<'a>(
    transfers: &'a Transfers<'a>,
    (local, called): (Option<&'a Local>, &Receiver<Work>),
    mut mail: DestinationMail,
    cancel: &CancelToken,
    plan: impl FnOnce(Ways<'a>, &Receiver<Waiting>) -> Result<Option<Leftover>, SyncError> + Send,
) -> Option<Report> {
    let (site, halt) = (transfers.site, &transfers.site.session.halt);
    let mut report = None;

    std::thread::scope(|scope| {
        let (over_tx, over) = bounded::<()>(0);
        let (listed_tx, listed) = unbounded();
        let (refinements_tx, refinements) = unbounded();
        let mut beating = None;
        let show_life = site.account.progress.shown_by(&site.session.control);
        if local.is_some() {
            // No peer waits for a sign of life: one thread does for both.
            halt.spawn(scope, "watch", move || watch_and_beat(site, cancel, &over));
        } else {
            halt.writers().expect();
            beating = halt.guard(|| Ok((site.session.watch(cancel)?, site.session.beat(show_life)?)));
            if site.account.is_heard_here() {
                // Whoever listens may take his time; the peer hears of life meanwhile.
                let tell = || site.account.tell_observer();
                halt.spawn(scope, "tell", move || {
                    site.session.tell_until(&over, tell);
                    Ok(())
                });
            }
        }
        let inbox = halt.spawn(scope, "inbox", move || {
            // The control lane stays until the peer was told of a failure.
            let _ = halt.guard(|| inbox::run(transfers, &mut mail, &listed_tx, &refinements_tx));
            Ok(())
        });

        let plan = |readers, outbox| plan((readers, outbox), &listed);
        let (leftover, group) = work(transfers, (local, called), &refinements, plan);
        report = finish_if_whole(transfers, leftover, group, cancel);

        // The source sends its last message, or hangs up.
        if let Some(inbox) = inbox {
            let _ = inbox.join();
        }
        drop((over_tx, beating));
    });
    report
}

/// Watches until `over` disconnects, and tells the progress at every [`PULSE`]: for a run in this process,
/// whose peer cannot be silent.
fn watch_and_beat(site: &Site<'_>, cancel: &CancelToken, over: &Receiver<()>) -> Result<(), SyncError> {
    let mut told = Instant::now();
    while !site.session.halt.stopped() {
        if cancel.is_cancelled() {
            return Err(SyncError::Cancelled);
        }
        if told.elapsed() >= PULSE {
            site.account.tell_progress()?;
            told = Instant::now();
        }
        if over.recv_timeout(POLL) == Err(RecvTimeoutError::Disconnected) {
            break;
        }
    }
    Ok(())
}

/// Leaves the unfinished files of a run that failed for the next one, or removes them, and frees the
/// destination. No thread may be writing any more. Once is enough.
fn let_go(transfers: &Transfers<'_>) {
    let site = transfers.site;
    transfers.files.leave(site.keeps_unfinished());
    let nameless = std::mem::take(&mut *lock(&transfers.nameless));
    if site.keeps_unfinished() {
        kept::keep_complete(site, nameless);
    }
    if let Some(delayed) = site.delayed.get() {
        delayed::abandon(site, delayed);
    }
    // The run has failed already; what cannot be set now is set by the next one.
    let _ = directory::settle_locked(site);
    let _ = lock(&site.tenure).end();
}

/// Runs the planner, the threads that read and write the destination's files, and the committer.
/// Returns the planner's leftover work and the committer's group when all of them have ended. Each
/// thread that can hand in work has an outbox of its own, and nobody has one after that.
fn work<'a>(
    transfers: &'a Transfers<'a>,
    (local, called): (Option<&'a Local>, &Receiver<Work>),
    refinements: &Receiver<Refinement>,
    plan: impl FnOnce(Sender<Vec<Arc<Pending>>>, Outbox<'a>) -> Result<Option<Leftover>, SyncError> + Send,
) -> (Option<Leftover>, Option<CommitGroup<Arc<Pending>>>) {
    let (site, halt) = (transfers.site, &transfers.site.session.halt);
    let (readers_tx, readers) = bounded(QUEUED_FILES);
    let (committer, commits) = bounded(QUEUED_COMMITS);
    let (record, written) = site.records_contents().then(|| bounded(QUEUED_WRITTEN)).unzip();
    let (mut leftover, mut group) = (None, None);

    std::thread::scope(|scope| {
        let outbox = || Outbox::new(transfers, committer.clone(), record.clone());
        let (leftover, group, own) = (&mut leftover, &mut group, outbox());
        let plan = move || {
            let _over = transfers.call.until_over();
            *leftover = plan(readers_tx, own)?;
            Ok(())
        };
        let planner = halt.spawn(scope, "plan", halt.as_writer(plan));
        // A local run that copies nothing has no use for the others.
        if local.is_some() && (planner.is_none() || called.recv() != Ok(Work::Waits)) {
            *group = Some(CommitGroup::new(site.durability()));
            return;
        }

        if let Some(written) = written {
            halt.spawn(scope, "record", halt.as_writer(move || written::run(site, &written)));
        }
        let lanes = if local.is_some() { 0 } else { site.session.data_lanes };
        for _ in 0..lanes {
            let own = outbox();
            halt.spawn(scope, "receive", move || receive::run(transfers, own));
        }
        let most = if local.is_some() { local::workers() } else { SIGNERS };
        let further: Vec<_> = (1..most).map_while(|_| site.session.workers.extra()).collect();
        for _ in 0..=further.len() {
            let (readers, own) = (readers.clone(), outbox());
            match local {
                Some(local) => {
                    let copy = move || local::run(transfers, local, own, &readers);
                    halt.spawn(scope, "copy", halt.as_writer(copy))
                }
                None => {
                    let sign = move || sign::run(transfers, own, &readers, refinements);
                    halt.spawn(scope, "sign", halt.as_writer(sign))
                }
            };
        }
        // The planner may not wait for readers that are gone, nor the committer for an outbox that
        // nobody has.
        drop((readers, committer));
        commit_here(transfers, move || {
            *group = Some(commit::run(transfers, commits, record.as_ref())?);
            Ok(())
        });
    });

    (leftover, group)
}

/// Commits on the calling thread, which has nothing else to do. It lets the destination go before it tells
/// of a failure of its own.
fn commit_here<'a>(transfers: &'a Transfers<'a>, commit: impl FnOnce() -> Result<(), SyncError> + Send + 'a) {
    let halt = &transfers.site.session.halt;
    let committed = halt.attempt(halt.as_writer(commit));
    let_go_after_failure(transfers);
    halt.guard(|| committed);
}

/// Waits for the last writer, and lets the destination go if the run failed: the thread that failed
/// waits for that before it tells the peer.
fn let_go_after_failure(transfers: &Transfers<'_>) {
    let halt = &transfers.site.session.halt;
    halt.writers().wait_for_the_last();
    if halt.stopped() {
        let_go(transfers);
    }
    halt.writers().let_go();
}

/// Finishes a run in which nothing failed; `None` otherwise.
fn finish_if_whole(
    transfers: &Transfers<'_>,
    leftover: Option<Leftover>,
    group: Option<CommitGroup<Arc<Pending>>>,
    cancel: &CancelToken,
) -> Option<Report> {
    let (leftover, group) = (leftover?, group?);
    let halt = &transfers.site.session.halt;
    if halt.stopped() {
        return None;
    }
    halt.guard(|| {
        let done = finish(transfers, leftover, group).and_then(|target| {
            // Asked here and not of the watcher, which looks now and then: who is told of a success
            // would not hear that this end was cancelled, or that its observer panicked.
            if cancel.is_cancelled() {
                return Err(cancel.reason());
            }
            report(transfers, target)
        });
        // Before the peer is told.
        done.inspect_err(|_| let_go(transfers))
    })
}

/// Does what waits until everything has arrived: renames and links the postponed entries, deletes,
/// makes durable, tells of it.
fn finish(
    transfers: &Transfers<'_>,
    leftover: Leftover,
    mut group: CommitGroup<Arc<Pending>>,
) -> Result<Target, SyncError> {
    let Transfers { site, succession, sharing, .. } = transfers;
    let Leftover { target, links, deletions } = leftover;
    let mut given = match site.delayed.get() {
        Some(delayed) => delayed::carry_out((site, succession), delayed, deletions.protection(), &mut group)?,
        None => Vec::new(),
    };
    given.append(&mut linking::carry_out(links, (site, succession, sharing), target.root.as_ref())?);
    given.append(&mut lock(&transfers.first_names).take());
    let _ = deletions.carry_out(site, target.root.as_ref(), &mut |_| Ok(()))?;
    site.delayed.get().map_or(Ok(()), |delayed| delayed::settle(site, delayed))?;
    directory::settle_locked(site)?;

    // A run that an interrupt cut short is no success.
    if site.stopped() {
        return Err(SyncError::Link(LinkError::Closed));
    }
    directory::leave_root(site)?;
    landed::sync_names(site, &mut group)?;
    transfers.tell_landed(&mut group, &given)?;
    if !transfers.unremoved.drained(&site.session.halt) {
        return Err(SyncError::Link(LinkError::Closed));
    }
    present::tell(site, target.root.as_deref())?;
    site.account.amend(|report| report.syncs = group.syncs());
    site.account.tell_progress()?;
    Ok(target)
}

/// Reports to the source, with which the run is a success for it. Frees the destination before.
fn report(transfers: &Transfers<'_>, target: Target) -> Result<Report, SyncError> {
    let site = transfers.site;
    let report = site.account.report();

    // The receiver of the report may start the next run at once, however long this end takes to
    // exit.
    drop(target);
    transfers.ending.reporting.store(true, Ordering::Release);
    site.session.control.send_last(&ControlMessage::Report(Box::new(report.clone())))?;
    Ok(report)
}

/// Batches of files that wait for a signer or a copier, by reference.
const QUEUED_FILES: usize = 8;
/// Batches of finished files that wait for the committer, each file with a name only.
const QUEUED_COMMITS: usize = 8;
/// Files whose contents wait to be recorded. The committer waits beyond that, so that their pages are
/// still in memory.
const QUEUED_WRITTEN: usize = 64;
/// Threads that read old files at the destination of a connection: while one waits for its disk, the other
/// continues.
const SIGNERS: usize = 2;
