//! The source's messages at the destination: its listing goes to the planner.

use std::sync::{Arc, atomic::Ordering};

use crossbeam_channel::Sender;
use dsync_wire::{
    budget::Share,
    limits::MAX_LISTING_ENTRIES,
    message::{ControlMessage, Refine},
};

use super::{
    Site,
    heard::{Listed, Waiting},
    sign::Refinement,
    transfers::Transfers,
    weight,
};
use crate::{
    SyncError,
    limits::MAX_UNRELEASED_ENTRIES,
    misbehaved::{PeerMisbehaved, misbehaved},
    schedule::{Point, point},
    session::{self, DestinationMail},
    set_bytes,
};

/// Receives until the source's last message.
pub(super) fn run(
    transfers: &Transfers<'_>,
    mail: &mut DestinationMail,
    planner: &Sender<Waiting>,
    refinements: &Sender<Refinement>,
) -> Result<(), SyncError> {
    let site = transfers.site;
    let DestinationMail { receiver, order, .. } = mail;

    loop {
        let message = site.session.hear(receiver)?;
        if transfers.ending.reporting.load(Ordering::Acquire) {
            order.report_sent();
        }
        order.check(&message)?;
        site.recording.as_ref().map_or(Ok(()), |recording| recording.message(&message))?;
        let listed = match message {
            ControlMessage::Alive => continue,
            ControlMessage::Bye => return Ok(()),
            ControlMessage::Refine(refine) => {
                further_round(transfers, refinements, refine)?;
                continue;
            }
            ControlMessage::Removed { entries } if site.removes_source() => {
                transfers.unremoved.give(entries);
                continue;
            }
            ControlMessage::Tops(tops) => Listed::Tops(tops),
            message if is_queued(&message) => {
                if !await_room(transfers, planner, &message)? {
                    return Ok(());
                }
                queued(message)?
            }
            ControlMessage::Listing(listing) => {
                check_credit(site, planner, listing.entries.len())?;
                let sets = set_bytes::of_sets(&listing);
                let sets = (sets > 0).then(|| site.session.budget.take(Share::AttributeSets, sets));
                Listed::Listing(listing, sets.transpose()?.map(Arc::new))
            }

            message if is_told(&message) => {
                tell(site, message)?;
                continue;
            }
            ControlMessage::ListingEnd(end) => {
                site.account.amend(|report| report.total_bytes = end.bytes);
                Listed::End(end)
            }

            other => return Err(session::unexpected(&other)),
        };
        let held = site.session.budget.take(Share::Listings, weight::of_message(&listed))?;
        point(Point::Send);

        // The planner ends early only when the run has failed.
        if planner.send(Waiting { message: listed, _held: held }).is_err() {
            return Ok(());
        }
    }
}

/// Returns whether a message waits for the planner in its place among the listings.
fn is_queued(message: &ControlMessage) -> bool {
    use ControlMessage as M;
    matches!(message, M::Missing(_) | M::IdName(_) | M::Span(_) | M::Same(_))
}

/// Waits until the planner has room for such a message. Returns `false` when the run has ended.
///
/// A list may have any number of missing names. They come before the first listing, when no file is
/// on its way that this thread would have to hear of: so it waits, and the lane slows the source.
fn await_room(
    transfers: &Transfers<'_>,
    planner: &Sender<Waiting>,
    message: &ControlMessage,
) -> Result<bool, SyncError> {
    if !matches!(message, ControlMessage::Missing(_)) {
        return check_queue(planner).map(|()| true);
    }
    let Transfers { site, missing, .. } = transfers;
    Ok(missing.try_take(1) || site.session.aside(|| missing.take(1, &site.session.halt)))
}

/// Returns such a message as the planner takes it.
fn queued(message: ControlMessage) -> Result<Listed, SyncError> {
    match message {
        ControlMessage::Missing(name) => Ok(Listed::Missing(name)),
        ControlMessage::IdName(name) => Ok(Listed::IdName(name)),
        ControlMessage::Span(span) => Ok(Listed::Span(span)),
        ControlMessage::Same(same) => Ok(Listed::Same(same)),
        other => Err(session::unexpected(&other)),
    }
}

/// Returns whether the account hears of a message at once. Not behind the planner, which may wait
/// for files: a flood of such messages meets this end's own lane.
fn is_told(message: &ControlMessage) -> bool {
    use ControlMessage as M;
    matches!(message, M::Problem(_) | M::Ruling(_) | M::RemovedPath(_))
}

/// Records a problem, a ruling or a removal of the source's. Time in the caller's observer is no
/// silence of the source.
fn tell(site: &Site<'_>, message: ControlMessage) -> Result<(), SyncError> {
    let tell = || match message {
        ControlMessage::Problem(problem) => site.account.problem(problem),
        ControlMessage::Ruling(ruling) => site.source_rules(ruling),
        ControlMessage::RemovedPath(path) => site.source_removed(path.into()),
        other => Err(session::unexpected(&other)),
    };
    if site.account.is_heard_here() { site.session.aside(tell) } else { tell() }
}

/// Passes a request for further sums to the signers. A file that is no longer in flight needs none.
fn further_round(
    transfers: &Transfers<'_>,
    refinements: &Sender<Refinement>,
    refine: Refine,
) -> Result<(), SyncError> {
    if transfers.files.get(refine.entry).is_none() {
        return Ok(());
    }
    let bytes = (size_of::<Refinement>() + 64 + refine.runs.len()) as u64;
    let _held = transfers.site.session.budget.take(Share::Signatures, bytes)?;
    let waiting = Refinement { refine, _held };
    if refinements.len() > MAX_QUEUED_REFINEMENTS || refinements.send(waiting).is_err() {
        return Err(misbehaved(PeerMisbehaved::TooManyRefinements));
    }
    Ok(())
}

/// Checks that the source is ahead of the planner by no more than its credit.
fn check_credit(site: &Site<'_>, planner: &Sender<Waiting>, entries: usize) -> Result<(), SyncError> {
    let progress = &site.account.progress;
    let entries = entries as u64;
    let listed = progress.entries_listed.fetch_add(entries, Ordering::AcqRel) + entries;
    let ahead = listed.saturating_sub(progress.entries_checked.load(Ordering::Acquire));
    if ahead > (MAX_UNRELEASED_ENTRIES + MAX_LISTING_ENTRIES) as u64 {
        return Err(misbehaved(PeerMisbehaved::BeyondCredit { entries: ahead }));
    }
    check_queue(planner)
}

/// Checks the number of messages that wait for the planner, which is bounded whatever they are.
fn check_queue(planner: &Sender<Waiting>) -> Result<(), SyncError> {
    let messages = planner.len();
    if messages > MAX_QUEUED_MESSAGES {
        return Err(misbehaved(PeerMisbehaved::BeyondQueue { messages }));
    }
    Ok(())
}

/// Bound on second rounds that wait for a signer; each answers one of at most so many open
/// requests.
const MAX_QUEUED_REFINEMENTS: usize = 4096;
/// Bound on messages between inbox and planner: each entry of the credit in a listing of its own,
/// and names and problems besides.
const MAX_QUEUED_MESSAGES: usize = 4 * MAX_UNRELEASED_ENTRIES;
