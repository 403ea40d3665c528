//! The third step: reserves the resources of an entry before anything is done: its name, its number
//! as the first of several names, the part that earlier runs left of it, and the credit of its
//! content.
//!
//! The credit comes last, as the planner may have to wait for it; all of it is released with the
//! file's end.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicBool, AtomicU64},
};

use dsync_fs::{Kind, Metadata, Origin, Timestamp};
use dsync_wire::{
    event::Action,
    options::{Append, SyncOptions},
};

use super::{
    super::{
        alternate::Alternate,
        begun::left_by,
        files::{Displaced, Pending},
        links::FirstName,
        slot::{Slot, Tail, Twin},
    },
    Planner,
    decide::{Course, Placing},
    merge::Merge,
    place::{Finished, Place},
    requests::Request,
    subject::{Found, Subject},
    way::Way,
};
use crate::{
    SyncError,
    plan::{Decision, Interrupted, fs_timestamp},
};

/// The names and the credit that an entry has taken.
#[derive(Default)]
pub(super) struct Reserved {
    /// Its number as the first of several names.
    pub(super) first_name: Option<u64>,
    /// The complete file that an earlier run left.
    pub(super) finished: Option<Finished>,
    /// The request for its content.
    pub(super) request: Option<Request>,
}

impl Reserved {
    /// Returns the path of an old file of another place that the entry is made from.
    pub(super) fn made_from(&self) -> Option<Vec<u8>> {
        self.request.as_ref().and_then(|request| request.file.slot.made_from())
    }
}

/// Returns whether a run that was killed has left pieces of two contents in a file, which is no beginning of
/// either.
fn is_in_pieces(subject: &Subject<'_>) -> bool {
    let Subject { directory, name, .. } = subject;
    let dir = directory.dir.as_ref().filter(|_| directory.may_have_notes());
    dir.is_some_and(|dir| left_by(dir, name) == Some(Interrupted::Rewriting))
}

impl Planner<'_> {
    /// Reserves the resources of an entry; `None` when its name could not be freed, which is
    /// reported.
    pub(super) fn reserve(
        &mut self,
        merge: &mut Merge,
        subject: &Subject<'_>,
        found: &Found,
        course: &Course,
    ) -> Result<Option<Reserved>, SyncError> {
        let place = subject.place(self.site, &self.comparison.protection, None);
        if let Some(Way::Empty) = course.way()
            && !place.clear()?
        {
            return Ok(None);
        }

        let reserved = match course {
            Course::Ignore(_) | Course::Stay { instead: None, .. } => Reserved::default(),
            Course::Stay { first, instead: Some(decision) } => {
                self.reserve_succession(subject, found, decision, *first, None)?
            }
            Course::Follow { first, decision, way, .. } => {
                self.reserve_succession(subject, found, decision, *first, way.displaced())?
            }
            Course::Place(placing) => self.reserve_place(merge, subject, found, placing)?,
        };
        Ok(Some(reserved))
    }

    /// Reserves the resources of an entry that gets its name by itself.
    fn reserve_place(
        &mut self,
        merge: &mut Merge,
        subject: &Subject<'_>,
        found: &Found,
        placing: &Placing,
    ) -> Result<Reserved, SyncError> {
        let Placing { decision, alternate, way, is_apart } = placing;
        let existing = found.existing.as_ref();
        let mut place = subject.place(self.site, &self.comparison.protection, way.displaced());

        if let Some(group) = found.group.filter(|_| decision.placed) {
            let stays = existing.filter(|existing| placing.keeps_inode(&self.site.policy, existing));
            let leads = self.comparison.foreseen.leads(subject.id);
            place.first_name = self.links.place(group, &subject.path, stays, leads)?;
        }
        let first_name = place.first_name;
        let Some(size) = subject.file_size() else {
            return Ok(Reserved { first_name, ..Reserved::default() });
        };

        // An earlier run leaves nothing beside a device.
        let is_device = existing.is_some_and(|old| old.origin == Origin::Device);
        let has_part = !is_device && merge.leftovers.claim_part(self.transfers, &place, decision, size);
        // Complete ones are taken up only for files that are made from nothing else.
        let mapped = || self.owners.of(&subject.entry.attributes);
        let finished = match alternate {
            None if !is_device => {
                let file = (subject.entry, size);
                merge.leftovers.claim_finished(self.site, &place, file, decision, mapped)
            }
            _ => None,
        };

        let asks = matches!(decision.action, Action::Create | Action::Update | Action::Reuse);
        if asks {
            self.site.check_length(size, &subject.path)?;
        }
        let request = if asks && finished.is_none() {
            let mut file = request(subject, &place, decision, size, existing, alternate.as_ref());
            let is_new = !existing.is_some_and(|old| old.kind == Kind::File) && alternate.is_none();
            let basis = if is_new { self.other_basis(merge, subject, size) } else { None };
            if let Some(basis) = basis {
                (file.slot.twin, file.has_basis) = (Some(basis), true);
            }
            if *is_apart {
                // Nor is the old file a basis: it may be written to meanwhile.
                (file.slot.in_place, file.slot.is_apart) = (false, true);
                (file.slot.tail, file.has_basis) = (None, alternate.is_some());
            }
            if file.slot.in_place && !is_device {
                file.slot.is_noted = true;
                merge.leftovers.claim_note(subject.directory, &subject.name);
            } else if subject.directory.may_have_notes() {
                file.slot.find_note();
            }
            Some(Request { file: self.requests.admit(file)?, has_part })
        } else {
            None
        };
        Ok(Reserved { first_name, finished, request })
    }

    /// Returns an old file of another place or name that a new file may be made from.
    fn other_basis(&mut self, merge: &Merge, subject: &Subject<'_>, size: u64) -> Option<Twin> {
        let options = &self.site.policy.options;
        // A local run copies from the source: nothing is nearer.
        if options.whole_file || self.transfers.is_local() {
            return None;
        }
        if options.detects_renamed() {
            let places = (&self.comparison.ground, &self.comparison.bounds);
            let found = self.renamed.find(self.site, places, subject, size);
            if let Some(found) = found {
                return Some(Twin::Elsewhere(found));
            }
        }
        if !options.fuzzy || !dsync_delta::worthwhile(size, size) {
            return None;
        }
        let alternates = options.fuzzy_alternates.then_some(&merge.alternates);
        self.fuzzy.find(subject.directory, alternates, &subject.name, subject.entry, size)
    }

    /// Reserves the resources with which a further name can be asked for in the place of the first,
    /// while that one's content is awaited.
    fn reserve_succession(
        &mut self,
        subject: &Subject<'_>,
        found: &Found,
        decision: &Decision,
        first: FirstName,
        displaced: Option<Kind>,
    ) -> Result<Reserved, SyncError> {
        let Some(size) = subject.file_size() else { return Ok(Reserved::default()) };
        if !self.transfers.succession.is_open(first.number()) {
            return Ok(Reserved::default());
        }

        self.site.check_length(size, &subject.path)?;
        let mut place = subject.place(self.site, &self.comparison.protection, displaced);
        place.first_name = Some(first.number());
        let action = if decision.action == Action::Create { Action::Create } else { Action::Update };
        let file = request(subject, &place, decision, size, found.existing.as_ref(), None);
        let file = Pending { action, ..file };
        let request = Request { file: self.requests.admit(file)?, has_part: false };
        Ok(Reserved { request: Some(request), ..Reserved::default() })
    }
}

/// Returns the time that a file was listed with, if one that is newer by the end stays. One that looks
/// newer already and gives way all the same is half written.
pub(super) fn keeps_newer(
    subject: &Subject<'_>,
    existing: Option<&Metadata>,
    options: &SyncOptions,
) -> Option<Timestamp> {
    let listed = fs_timestamp(subject.entry.attributes.mtime);
    let is_newer = existing.is_some_and(|existing| existing.mtime > listed);
    (options.update && subject.file_size().is_some() && !is_newer).then_some(listed)
}

/// Returns a file that is about to be asked for.
pub(super) fn request(
    subject: &Subject<'_>,
    place: &Place<'_>,
    decision: &Decision,
    size: u64,
    existing: Option<&Metadata>,
    alternate: Option<&Alternate>,
) -> Pending {
    let options = &place.site.policy.options;
    let old_file = existing.filter(|old| old.kind == Kind::File);
    let is_basis = |old: &Metadata| !options.whole_file && dsync_delta::worthwhile(old.size, size);
    let goes_on = |old: &&Metadata| {
        let appends = options.writing.append != Append::No && decision.action == Action::Update;
        appends && alternate.is_none() && (1..size).contains(&old.size) && !is_in_pieces(subject)
    };
    let tail = old_file.filter(goes_on).map(|old| Tail { from: old.size, stamp: old.stamp() });
    let has_basis = tail.is_some() || old_file.is_some_and(is_basis) || alternate.is_some();
    let twin = alternate.map(|found| match found.decision.action {
        Action::Update => Twin::Basis(Arc::clone(&found.dir)),
        _ => Twin::Equal(Arc::clone(&found.dir), found.metadata.stamp()),
    });

    let displaces = place.displaced == Some(Kind::Dir);
    Pending {
        entry: subject.id,
        part: Arc::clone(subject.part),
        action: decision.action,
        wanted: decision.wanted.clone(),
        size,
        slot: Slot {
            directory: Arc::clone(subject.directory),
            name: subject.name.clone(),
            is_new: existing.is_none(),
            in_place: options.writing.inplace && old_file.is_some(),
            is_apart: false,
            device: old_file.is_some_and(|old| old.origin == Origin::Device),
            tail,
            twin,
            has_backup: AtomicBool::new(false),
            is_noted: false,
            begun: Mutex::default(),
            becomes: decision.wanted.mtime.map(|mtime| (size, mtime)),
            literal_bytes: AtomicU64::new(0),
        },
        keeps_newer: keeps_newer(subject, existing, options),
        displaced: displaces.then(|| Displaced::new(place.protection.clone())),
        has_basis,
        first_name: place.first_name,
        phase: Mutex::default(),
        number: AtomicU64::new(0),
        facts: subject.facts(options),
        signature_bytes: AtomicU64::new(0),
        cloned: AtomicBool::new(false),
        listed_content: subject.listed_content(),
        content: Mutex::default(),
        signature: Mutex::default(),
    }
}
