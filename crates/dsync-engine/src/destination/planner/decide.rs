//! The second step: the course that an entry takes, in view of the state that was found.
//!
//! Decisions only look. They know the options, both entries and the alternate directories, and not
//! whether the run is a dry one.

use dsync_fs::{Kind, Metadata, Origin, leads_out};
use dsync_wire::{
    event::{Action, Changes},
    message::{Cause, EntryKind, Operation, Problem},
    options::AlternateUse,
};

use super::{
    super::{alternate::Alternate, links::FirstName},
    Planner,
    merge::Merge,
    place::FILE_EXISTS,
    standing::Here,
    subject::{Found, Subject},
    way::Way,
};
use crate::{
    SyncError,
    plan::{Decision, Policy},
};

/// The course of an entry.
pub(super) enum Course {
    /// It is not this run's: of a directory nothing is compared. With why, if that is told.
    Ignore(Option<Problem>),
    /// Its name is one of the first name's inode already. With the decision for the case that the
    /// first name's content does not come, while that is awaited.
    Stay { first: FirstName, instead: Option<Decision> },
    /// Its name is linked to the first one at the end of the run. `as_there`: an alternate directory links the
    /// two just so.
    Follow { first: FirstName, decision: Decision, way: Way, as_there: bool },
    /// It is made, changed or kept by itself.
    Place(Placing),
}

/// The way of an entry to its name.
pub(super) struct Placing {
    pub(super) decision: Decision,
    /// The entry of an alternate directory that is used.
    pub(super) alternate: Option<Alternate>,
    pub(super) way: Way,
    /// Whether the old file is left to its other names, though files are written in place.
    pub(super) is_apart: bool,
}

impl Course {
    /// Returns whether nothing of the entry changes.
    pub(super) fn keeps_all(&self) -> bool {
        matches!(self, Self::Place(Placing { decision, .. }) if decision.placed && decision.action == Action::Keep)
    }

    /// Returns how the entry can have its name, if it takes one.
    pub(super) fn way(&self) -> Option<&Way> {
        match self {
            Self::Ignore(_) | Self::Stay { .. } => None,
            Self::Follow { way, .. } | Self::Place(Placing { way, .. }) => Some(way),
        }
    }
}

impl Placing {
    /// Returns whether content is written.
    fn writes(&self) -> bool {
        !matches!(self.decision.action, Action::Keep | Action::Retag)
    }

    /// Returns whether the old entry goes on having the name.
    pub(super) fn keeps_inode(&self, policy: &Policy, existing: &Metadata) -> bool {
        match self.decision.action {
            Action::Keep | Action::Retag => true,
            // The source removes a name only when its content is here as well.
            Action::Update => {
                let in_place = policy.options.writing.inplace && existing.kind == Kind::File;
                in_place && !self.is_apart && !policy.options.remove_source_files
            }
            _ => false,
        }
    }
}

impl Planner<'_> {
    /// Decides which course an entry takes.
    pub(super) fn decide(
        &mut self,
        merge: &Merge,
        subject: &Subject<'_>,
        found: &Found,
    ) -> Result<Course, SyncError> {
        if let Some(course) = self.passed_over(subject, found) {
            return Ok(course);
        }
        let existing = found.existing.as_ref();
        if let (Some(first), Some(existing)) = (found.first, existing)
            && first.is_of(existing)
        {
            let awaited = self.transfers.succession.is_open(first.number());
            let instead = awaited.then(|| self.compare(subject, Some(existing)));
            return Ok(Course::Stay { first, instead });
        }

        let own = self.compare(subject, existing);
        // A further name becomes one of the first, whatever alternate directories have.
        let is_device = existing.is_some_and(|existing| existing.origin == Origin::Device);
        let (decision, alternate) = match found.first {
            Some(_) => (own, None),
            // Nor does a device.
            None if is_device => (own, None),
            None => self.with_alternate(merge, subject, existing, own),
        };

        let way = match decision.in_the_way {
            Some(kind) => Way::of(self.site, subject, kind, &self.comparison.deletions)?,
            None => Way::Free,
        };
        Ok(match (way, found.first) {
            (Way::Blocked(problem), _) => Course::Ignore(Some(problem)),
            (way, Some(first)) if decision.placed => {
                let is_first = |other: &Metadata| self.transfers.succession.has_inode(first.number(), other);
                let as_there = existing.is_none() && merge.alternates.has_name_of(&subject.name, is_first);
                Course::Follow { first, decision, way, as_there }
            }
            (way, _) => Course::Place(Placing { decision, alternate, way, is_apart: false }),
        })
    }

    /// Returns the course of an entry once more: a file of its own, if the inode of its name is another
    /// file's by then.
    pub(super) fn part_from_others(
        &mut self,
        subject: &Subject<'_>,
        found: &Found,
        course: Course,
    ) -> Course {
        let Course::Place(mut placing) = course else { return course };
        let is_file = matches!(subject.entry.kind, EntryKind::File { .. });
        if is_file && self.may_be_kept(&placing, found.existing.as_ref()) {
            self.site.policy.replace(&mut placing.decision);
            return Course::Place(placing);
        }
        // An entry that displaces a name writes nothing into its inode.
        let shared =
            found.existing.as_ref().filter(|existing| is_file && self.may_be_shared(&placing, existing));
        let Some(existing) = shared else { return Course::Place(placing) };

        let writes = placing.writes();
        // A further name may be one that the options leave as it is.
        let spares = writes && self.site.policy.leaves_some_as_they_are();
        if spares || !self.comparison.shared_inodes.admit(subject.entry, existing, writes) {
            placing.is_apart = true;
            if !writes {
                self.site.policy.replace(&mut placing.decision);
            }
        }
        Course::Place(placing)
    }

    /// Returns whether other attributes for a file would reach an entry that is kept from the client: it may be
    /// one of the file's further names.
    fn may_be_kept(&self, placing: &Placing, existing: Option<&Metadata>) -> bool {
        let retags = placing.decision.action == Action::Retag && placing.alternate.is_none();
        retags && self.site.keep.is_some() && existing.is_some_and(|existing| existing.nlink > 1)
    }

    /// Returns whether an old file is one that is written in place and has further names.
    fn may_be_shared(&self, placing: &Placing, existing: &Metadata) -> bool {
        let is_rewritten = self.site.policy.options.writing.inplace && existing.origin != Origin::Device;
        let is_file = existing.kind == Kind::File && existing.nlink > 1;
        // Where an alternate directory has the file already, the name goes.
        let is_here = placing.decision.placed && (placing.alternate.is_none() || placing.writes());
        is_rewritten && is_file && is_here
    }

    /// Returns the course of an entry that is not the run's, or may not be.
    fn passed_over(&mut self, subject: &Subject<'_>, found: &Found) -> Option<Course> {
        if matches!(subject.entry.kind, EntryKind::Hidden) {
            return Some(Course::Ignore(None));
        }
        if found.untrusted {
            // As rsync has it, and the message says what may be done.
            let cause = Cause::Os(TOO_MANY_LINKS);
            return Some(Course::Ignore(Some(subject.problem(Operation::CreateDirectory, cause))));
        }
        if let Some(operation) = self.not_copied(subject) {
            // An entry that would be left alone anyway is not reported.
            let silent = self.site.policy.leaves_alone(&subject.entry.kind, found.existing.as_ref());
            let problem = || Problem::new(operation, subject.listed_path(), Cause::Skipped);
            return Some(Course::Ignore((!silent).then(problem)));
        }

        if let Some(cause) = too_short(subject, found)
            && self.site.policy.why_left(subject.entry, found.existing.as_ref()).is_none()
        {
            return Some(Course::Ignore(Some(subject.problem(Operation::WriteFile, cause))));
        }
        if self.site.policy.adds_only
            && let Some(existing) = &found.existing
            && self.compare(subject, Some(existing)).action != Action::Keep
        {
            let problem = subject.problem(Operation::Commit, Cause::Os(FILE_EXISTS));
            return Some(Course::Ignore(Some(problem)));
        }
        None
    }

    /// Returns the operation that is left undone for an entry that the run does not copy.
    fn not_copied(&self, subject: &Subject<'_>) -> Option<Operation> {
        let policy = &self.site.policy;
        let leads_out = |target: &[u8]| {
            policy.options.safe_links && leads_out(subject.path.depth().saturating_sub(1), target)
        };
        match &subject.entry.kind {
            EntryKind::Symlink { target } if policy.copies(&subject.entry.kind) && leads_out(target) => {
                Some(Operation::CreateLink)
            }
            kind if policy.copies(kind) => None,
            EntryKind::Directory => Some(Operation::ReadDirectory),
            _ => Some(Operation::Stat),
        }
    }

    /// Compares an entry with the destination's.
    pub(super) fn compare(&mut self, subject: &Subject<'_>, existing: Option<&Metadata>) -> Decision {
        if let Some(decision) = self.comparison.foreseen.decision(subject.id, existing) {
            return decision;
        }
        let mapped = self.owners.of(&subject.entry.attributes);
        let here = Here {
            dir: subject.directory.dir.as_deref(),
            name: Some(&subject.name),
            within: Some(&**subject.directory),
            link_text: subject.own_text,
            contents: self.site.session.contents(),
        };
        let policy = &self.site.policy;
        if subject.entry.implied && policy.options.no_implied_dirs {
            return policy.decide_way(existing, &here);
        }
        let decision = policy.decide(subject.entry, &mapped, existing, &here);

        let only_rounded = |existing| self.site.policy.only_rounded(subject.entry, existing, &decision);
        if existing.is_some_and(only_rounded) {
            self.site.account.amend(|report| report.rounded_times += 1);
        }
        decision
    }

    /// Looks for the entry in the alternate directories. Returns the course that it takes then.
    fn with_alternate(
        &mut self,
        merge: &Merge,
        subject: &Subject<'_>,
        existing: Option<&Metadata>,
        own: Decision,
    ) -> (Decision, Option<Alternate>) {
        let Some(alternates) = self.comparison.ground.alternates.as_ref().filter(|_| own.placed) else {
            return (own, None);
        };
        // An entry goes neither where only new ones may come, nor for one of --compare-dest where none
        // may be removed.
        let policy = &self.site.policy;
        let stays = policy.adds_only || alternates.way == AlternateUse::Compare && !policy.may_remove;
        if stays && existing.is_some() {
            return (own, None);
        }
        let mapped = self.owners.of(&subject.entry.attributes);
        let found = merge.alternates.find(self.site, subject.entry, &mapped, &subject.name);
        let Some(mut found) = found else { return (own, None) };
        // An inode that an alternate shares with the destination would change there as well.
        let shares =
            |old: &&Metadata| own.action == Action::Retag && merge.alternates.has(&subject.name, old);
        let old = existing.filter(|old| !shares(old));
        let Some(better) = alternates.decision(&found, old) else { return (own, None) };

        found.adds_nothing = matches!(own.action, Action::Keep | Action::Retag);
        let is_elsewhere = existing.is_some_and(|existing| existing.dev != found.metadata.dev);
        if found.adds_nothing && is_elsewhere && better.action == Action::Link {
            // No name can be linked to another filesystem.
            return (own, None);
        }
        found.own = old.filter(|old| self.may_stay(old, &own, &found)).map(|_| Box::new(own.clone()));
        // An entry that is made here gets the permissions that it would get without an alternate,
        // whose own may be any.
        let mut decision = Decision { in_the_way: own.in_the_way, wanted: own.wanted, ..better };
        if decision.action == Action::Reuse {
            note_copy(&subject.entry.kind, self.site.policy.options.times, &mut decision.changes);
        }
        (decision, Some(found))
    }

    /// Returns whether an old file may stay where an equal one of an alternate directory cannot take its
    /// place.
    fn may_stay(&self, old: &Metadata, own: &Decision, found: &Alternate) -> bool {
        // Where an access time has to be set as well, the link may be there already.
        if old.kind != Kind::File || found.access_time.is_some() {
            return false;
        }
        // Nobody has looked whether its other names may have new attributes.
        let is_alone =
            || old.nlink == 1 || self.site.keep.is_none() && !self.site.policy.options.writing.inplace;
        match own.action {
            Action::Keep => true,
            Action::Retag => is_alone(),
            _ => false,
        }
    }
}

/// Adds the changes that an entry shows because it is made anew, from an equal or similar one of an
/// alternate directory: as with rsync those of a file always, of others only beside further ones.
fn note_copy(kind: &EntryKind, keeps_times: bool, changes: &mut Changes) {
    let is_file = matches!(kind, EntryKind::File { .. });
    if !is_file && changes.is_empty() {
        return;
    }
    if !is_file && !matches!(kind, EntryKind::Directory) {
        changes.insert(Changes::CONTENT);
    }
    if !keeps_times {
        changes.insert(Changes::TIME_NOW);
    }
}

/// Returns why a file does not fit into the device that has its name. A device without a length, as
/// /dev/null has none, takes all that is written.
fn too_short(subject: &Subject<'_>, found: &Found) -> Option<Cause> {
    let device = found.existing.as_ref().filter(|existing| existing.origin == Origin::Device)?.size;
    let file = subject.file_size()?;
    (1..file).contains(&device).then_some(Cause::DeviceTooShort { device, file })
}

/// Linux's `ELOOP`, for a link that may not be followed.
const TOO_MANY_LINKS: i32 = 40;
