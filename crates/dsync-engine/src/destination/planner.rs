//! Stage 2: compares the source's listing with the destination's own, a directory at a time, and
//! plans each entry.
//!
//! Both listings are in byte order of names. Each source entry meets the destination entry of the
//! same name, or none; destination entries that no source entry meets are extraneous, and are noted
//! for deletion if the source said that its listing of the directory is complete (invariant S5).
//!
//! An entry is planned in four steps, each of which returns a value that the next ones read and
//! none changes:
//!
//! 1. [`resolve`]: its state at the destination ([`Found`](subject::Found)).
//! 2. [`decide`]: the course that it takes ([`Course`](decide::Course)). [`crate::plan`] decides what
//!    the pair of entries means. The first name of a file that would have content sent gives way to
//!    another that needs none ([`other_names`]).
//! 3. [`reserve`]: its resources: its name, its number as the first of several names, the part that
//!    earlier runs left of it, credit ([`Reserved`](reserve::Reserved)).
//! 4. [`act`]: carries it out, except for file content, which is asked for ([`Requests`]).
//!
//! Nothing here asks whether this is a dry run: every change of the disk goes through the run's
//! [`Hands`](super::hands::Hands).
//!
//! Everything with a state of its own is a type of its own: the operands' meaning ([`ground`]), the
//! directories that come next ([`frontier`]), the two listings of one directory ([`merge`]) and of
//! the tree ([`comparison`]), the first pass of `--delete-before` ([`sweep`]), unfinished files
//! ([`leftovers`]), the ways to other threads ([`requests`]).

mod act;
mod comparison;
mod decide;
mod extraneous;
mod foreseen;
mod frontier;
mod fuzzy;
mod ground;
mod leftovers;
mod listings;
mod merge;
mod other_names;
mod own_walk;
mod place;
mod renamed;
mod requests;
mod reserve;
mod resolve;
mod shared_inodes;
mod spans;
mod special;
mod standing;
mod subject;
mod sweep;
mod way;

use std::{
    io,
    path::Path,
    sync::{Arc, atomic::Ordering},
};

use crossbeam_channel::{Receiver, Sender};
use dsync_fs::{Metadata, RelPath, SpoolHome, Wanted};
use dsync_wire::{
    budget::Share,
    event::{Action, FileType, Planned},
    message::{Attributes, ControlMessage, Entry, EntryId, EntryKind, IdName, Listing, Operation, Tops},
    name::Name,
};

use comparison::Comparison;
use frontier::Presence;
use fuzzy::Fuzzy;
use ground::Ground;
use merge::Merge;
use renamed::Renamed;
use requests::Requests;
use spans::Spans;
use standing::Made;
use subject::{Siblings, Subject};
use sweep::Sweep;

pub(super) use frontier::Announced;
pub(super) use standing::Here;

use super::{
    Filters, Site,
    asked::{AskedFor, Bounds, listed_by},
    commit::Outbox,
    credit::PartTicket,
    delete::Deletions,
    files::Pending,
    heard::{Listed, Waiting},
    links::Links,
    local_rules::LocalRules,
    owners::Owners,
    protection::Protection,
    target::Target,
    transfers::Transfers,
};
use crate::{
    SyncError,
    grant::Start,
    halt::lock,
    misbehaved::{PeerMisbehaved, misbehaved},
    munge,
    plan::{Decision, Standing},
    schedule::{Point, point},
    set_bytes,
    span::SpanKey,
};

/// The state that all steps of an entry need.
pub(super) struct Planner<'a> {
    site: &'a Site<'a>,
    transfers: &'a Transfers<'a>,
    comparison: Comparison<'a>,
    owners: Owners,
    links: Links,
    requests: Requests<'a>,
    fuzzy: Fuzzy,
    renamed: Renamed,
    /// Number of the next listing message or span; `None` when they were released already.
    next_part: Option<u64>,
    /// Present where the source may send spans.
    spans: Option<Spans>,
}

/// The tree that a listing was made of.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Tree {
    Source,
    /// The destination's own, which has the same entries.
    Own,
}

/// The work that is left when everything was planned and has arrived.
pub(super) struct Leftover {
    pub(super) target: Target,
    pub(super) links: Links,
    pub(super) deletions: Deletions,
}

/// Plans the whole tree. Returns when every requested file has arrived or failed.
pub(super) fn run<'a>(
    transfers: &'a Transfers<'a>,
    (operand, beside): (&Path, (Start, SpoolHome)),
    filters: &Filters,
    asked: AskedFor,
    requests: (Sender<Vec<Arc<Pending>>>, Outbox<'a>),
    spans: Option<SpanKey>,
    listing: &Receiver<Waiting>,
) -> Result<Option<Leftover>, SyncError> {
    let site = transfers.site;
    let options = &site.policy.options;
    let mut owners = Owners::new(options, site.xattr_rules.clone())?;
    let mut bounds = Bounds::new(asked, &filters.source, options).confined(site.start.grant.is_some());
    let Some(tops) = hear_tops(site, listing, &mut bounds, &mut owners)? else { return Ok(None) };

    let (start, spools) = beside;
    let ground = Ground::open(transfers, operand, &tops, bounds.is_contents(), (&start, spools))?;
    let named = !bounds.is_contents();
    let rules = LocalRules::new(&filters.destination, ground.root(), named, &site.session.budget);
    let protection = Protection::new(rules, options, &ground.own);
    let links = Links::new(protection.clone(), &site.session.budget, &ground.spools)?;
    let mut comparison = Comparison::new(site, bounds, ground, protection)?;
    let mut sweep = Sweep::begin(options, &tops, &mut comparison)?;
    let requests = Requests::new(transfers, requests.0, requests.1);
    let (fuzzy, renamed, next_part) = (Fuzzy::default(), Renamed::default(), Some(0));
    let filter = || listed_by(filters.source.clone(), options);
    let spans = spans.map(|key| Spans::new(key, filter(), tops.root.is_some()));
    let mut planner =
        Planner { site, transfers, comparison, owners, links, requests, fuzzy, renamed, next_part, spans };
    if sweep.is_none() {
        planner.root_directory(&tops)?;
    }

    for Waiting { message, _held } in listing {
        point(Point::Receive);
        if site.stopped() {
            return Ok(None);
        }
        match (message, &mut sweep) {
            (Listed::Listing(listing, _), Some(sweep)) => {
                sweep.listing(listing, &mut planner.comparison, &mut planner.requests)?;
            }
            (Listed::Listing(listing, sets), None) => planner.listing_sent(&listing, sets)?,
            (Listed::Span(span), _) => planner.span(&span)?,
            (Listed::Same(same), _) => planner.same(same)?,
            (Listed::Missing(name), _) => planner.missing(&name)?,
            (Listed::IdName(name), _) => id_name(&name, &planner.comparison.bounds, &mut planner.owners)?,
            (Listed::End(end), sweep) => {
                planner.spans.as_ref().map_or(Ok(()), |spans| spans.end(&end))?;
                if let Some(sweep) = sweep.take() {
                    planner.plan_swept(sweep)?;
                }
                return planner.end();
            }
            (Listed::Tops(_), _) => return Err(misbehaved(PeerMisbehaved::NoOperands)),
        }
        if listing.is_empty() {
            planner.requests.flush()?;
        }
    }
    Ok(None)
}

/// Waits for the source's words on its operands, which come before all listings; `None` when the
/// run has ended.
fn hear_tops(
    site: &Site<'_>,
    listing: &Receiver<Waiting>,
    bounds: &mut Bounds<'_>,
    owners: &mut Owners,
) -> Result<Option<Tops>, SyncError> {
    for Waiting { message, _held } in listing {
        point(Point::Receive);
        if site.stopped() {
            return Ok(None);
        }
        match message {
            // Those of the root's owner and group.
            Listed::IdName(name) => id_name(&name, bounds, owners)?,
            Listed::Tops(tops) => {
                bounds.tops(&tops).map_err(|unasked| unasked.at(b""))?;
                return Ok(Some(tops));
            }
            _ => return Err(misbehaved(PeerMisbehaved::NoOperands)),
        }
    }
    Ok(None)
}

/// Takes the name of a user or group.
fn id_name(name: &IdName, bounds: &Bounds<'_>, owners: &mut Owners) -> Result<(), SyncError> {
    bounds.id_name(name).map_err(|unasked| unasked.at(&name.name))?;
    owners.learn(name)
}

impl Planner<'_> {
    /// Plans the root directory itself, and begins with its entries.
    fn root_directory(&mut self, tops: &Tops) -> Result<(), SyncError> {
        let state = self.comparison.ground.presence();
        let (wanted, state) = match &tops.root {
            Some(attributes) => self.root_entry(attributes, state)?,
            None => (None, state),
        };
        self.comparison.begin(Announced::root(wanted, state))
    }

    /// Compares the root directory's own attributes.
    fn root_entry(
        &mut self,
        attributes: &Attributes,
        state: Presence,
    ) -> Result<(Option<Wanted>, Presence), SyncError> {
        let mapped = self.owners.of(attributes);
        let locked = lock(&self.site.tenure).take_mode();
        let target = &self.comparison.ground.target;
        let found = target.root.as_ref().and_then(|dir| dir.metadata().ok());
        let found = found.map(|found| Metadata { mode: locked.unwrap_or(found.mode), ..found });
        let found = found.map(|found| self.site.hands.as_found(&RelPath::root(), found));

        let made = Made(found.as_ref().map(|made| made.mode));
        let contents = self.site.session.contents();
        let here = Here { dir: target.root.as_deref(), name: None, within: None, link_text: None, contents };
        let (existing, standing): (_, &dyn Standing) =
            if target.created { (None, &made) } else { (found.as_ref(), &here) };
        let (policy, kind) = (&self.site.policy, EntryKind::Directory);
        let decision = policy.decide_attributes(&kind, attributes, &mapped, existing, standing);

        self.site.account.amend(|report| report.listed.directories += 1);
        self.site.account.planned(
            Planned::new(decision.action, FileType::Directory, Vec::new())
                .changes(decision.changes)
                .target(Vec::new())
                .size(0)
                .facts(self.site.policy.options.event_ends.then(|| subject::facts(attributes))),
        )?;

        // The mask of this process may close a new one too.
        let opened = matches!(state, Presence::Old { .. } | Presence::New)
            && self.open_up_root(found.as_ref(), &decision);
        let state = match state {
            Presence::Old { .. } => Presence::Old { dirty: decision.action == Action::Retag || opened },
            other => other,
        };
        Ok((Some(decision.wanted), state))
    }

    /// Lets the run work in its root. Returns whether the root's own permissions have to be set
    /// afterwards.
    fn open_up_root(&self, existing: Option<&Metadata>, decision: &Decision) -> bool {
        let (Some(root), Some(existing)) = (self.comparison.ground.root(), existing) else { return false };
        let early = self.site.policy.while_worked_in(existing, &decision.wanted);
        // A failure here happens again later, and is reported then.
        early.is_some_and(|early| self.site.hands.dress_itself(root, &early).is_ok())
    }

    /// Notes a path that is to go.
    fn missing(&mut self, names: &[Name]) -> Result<(), SyncError> {
        let path = names.iter().map(Name::as_bytes).collect::<Vec<_>>().join(&b'/');
        let Comparison { bounds, ground, .. } = &mut self.comparison;
        bounds.missing(&path).map_err(|unasked| unasked.at(&path))?;
        ground.note_missing(&path)?;
        self.transfers.missing.release();
        Ok(())
    }

    /// Plans the entries that the first pass has listed, now that its deletions are made.
    fn plan_swept(&mut self, sweep: Sweep) -> Result<(), SyncError> {
        let kept = sweep.end(&mut self.comparison)?;
        // Every listing was released; from now on none is.
        self.next_part = None;
        self.root_directory(&kept.tops)?;

        for listing in kept.listings() {
            if self.site.stopped() {
                return Ok(());
            }
            let listing = listing?;
            let sets = set_bytes::of_sets(&listing);
            let sets = self.site.session.budget.take(Share::AttributeSets, sets)?;
            self.listing_sent(&listing, Some(Arc::new(sets)))?;
        }
        Ok(())
    }

    /// Plans one part of a directory's listing.
    fn listing(&mut self, listing: &Listing, of: Tree, part: &Arc<PartTicket>) -> Result<(), SyncError> {
        self.owners.forget_sets();
        self.spans.as_mut().map_or(Ok(()), |spans| spans.check(listing))?;
        let is_new = self.next_part.is_some();
        let mut merge = self.comparison.turn_to(listing.dir, &mut self.requests)?;
        // The first pass has judged them.
        if is_new {
            self.comparison.judge(&mut merge, listing)?;
        }
        self.comparison.claim_names(&merge, listing)?;
        self.comparison.foreseen.begin(&listing.entries);
        for (position, entry) in listing.entries.iter().enumerate() {
            let own_text = match &entry.kind {
                EntryKind::Symlink { target } if of == Tree::Own => Some(target.as_slice()),
                _ => None,
            };
            let munged = munge::on(entry, &self.site.policy.options);
            let entry = munged.as_ref().unwrap_or(entry);
            let id = self.transfers.next_entry();
            self.site.account.count_listed(entry);
            merge.check_order(entry, id)?;
            self.links.learn(entry, id)?;
            self.comparison.tell_covered(&mut merge)?;
            match merge.directory.clone() {
                Some(directory) => {
                    if let Some((operation, error)) = self.unspelled(entry, id)? {
                        self.entry_unspelled(&mut merge, (entry, id), (operation, &error))?;
                        continue;
                    }
                    let name = self.comparison.ground.name_of(entry, id)?;
                    let path = directory.path.join(&name);
                    let directory = &directory;
                    let siblings = Siblings { entries: &listing.entries, position };
                    let subject = Subject { id, entry, siblings, part, directory, name, path, own_text };
                    self.entry(&mut merge, &subject)?;
                }
                None => self.entry_of_ignored(&merge, entry, id)?,
            }
            if is_new {
                self.site.account.entry_checked();
            }
        }

        if listing.last && merge.directory.is_some() {
            self.links.end_directory()?;
        }
        self.comparison.end_part(merge, listing)
    }

    /// Plans one entry and carries the plan out.
    fn entry(&mut self, merge: &mut Merge, subject: &Subject<'_>) -> Result<(), SyncError> {
        let found = self.resolve(merge, subject)?;
        let course = self.decide(merge, subject, &found)?;
        let course = self.give_way(merge, subject, &found, course)?;
        let course = self.part_from_others(subject, &found, course);
        if let (Some(spans), Some(existing)) = (&mut self.spans, &found.existing)
            && course.keeps_all()
        {
            spans.learn(existing, &subject.entry.attributes);
        }
        let reserved = self.reserve(merge, subject, &found, &course)?;
        self.act(subject, &found, course, reserved)
    }

    /// Returns what the character set of names here cannot spell of an entry.
    fn unspelled(&self, entry: &Entry, id: EntryId) -> Result<Option<(Operation, io::Error)>, SyncError> {
        let Some(spelling) = &self.site.start.spelling else { return Ok(None) };
        let name = self.comparison.ground.name_of(entry, id)?;
        if let Err(error) = spelling.check_name(&name) {
            return Ok(Some((Operation::Stat, error)));
        }
        let EntryKind::Symlink { target } = &entry.kind else { return Ok(None) };
        Ok(spelling.check_text(target).err().map(|error| (Operation::ReadLink, error)))
    }

    /// Passes over an entry that cannot be spelled here. Nothing is deleted then, as where something
    /// could not be read.
    fn entry_unspelled(
        &mut self,
        merge: &mut Merge,
        (entry, id): (&Entry, EntryId),
        (operation, error): (Operation, &io::Error),
    ) -> Result<(), SyncError> {
        let path = merge.path_of(entry);
        self.site.problem(operation, &path.to_path(), super::site::cause(error))?;
        match entry.kind {
            EntryKind::Directory => self.comparison.frontier.announce(Announced::ignored(id, path)),
            _ => Ok(()),
        }
    }

    /// Passes over an entry of a directory that is ignored.
    fn entry_of_ignored(&mut self, merge: &Merge, entry: &Entry, id: EntryId) -> Result<(), SyncError> {
        match entry.kind {
            EntryKind::Directory => {
                self.comparison.frontier.announce(Announced::ignored(id, merge.path_of(entry)))
            }
            _ => Ok(()),
        }
    }

    /// Ends planning: settles directories that were never listed, waits for the files.
    fn end(mut self) -> Result<Option<Leftover>, SyncError> {
        self.requests.flush()?;
        self.comparison.end()?;
        self.site.account.progress.totals_final.store(true, Ordering::Release);
        let Transfers { awaited, signing, .. } = self.transfers;
        let halt = &self.site.session.halt;
        // The source hears of no end between the sums of a file.
        if !awaited.drained(halt) || !signing.drained(halt) {
            return Ok(None);
        }

        self.transfers.ending.needs_ended.store(true, Ordering::Release);
        self.site.session.control.send(&ControlMessage::NeedsEnd)?;
        let Comparison { ground, deletions, .. } = self.comparison;
        Ok(Some(Leftover { target: ground.target, links: self.links, deletions }))
    }
}
