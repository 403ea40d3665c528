//! Hard links: the first name of a file gives way to another that needs no content.
//!
//! The first name in the order of the listing carries the content of all. Where it is missing or
//! differs, a later name may be there with the right content, or an alternate directory may have
//! it. Then that one leads its group: it keeps its inode, or is made from the alternate, the first
//! one is linked to it, and nothing is sent.
//!
//! The bound: later names are sought in the same part of the listing, so in the same directory. No
//! entry waits, the source keeps no part longer than before, and what was foreseen is forgotten with
//! the part. rsync waits for the end of the directory, or of all that it has listed by then.
//!
//! The law: a name that leads is decided on as if no earlier one had been listed, with the same
//! functions, when it is foreseen and when it is planned. If it has changed between, what is planned
//! counts; names that gave way to it are linked to what it becomes.

use dsync_fs::{Component, Kind, Metadata, Origin, Privileges};
use dsync_wire::{
    event::Action,
    message::{Entry, EntryId, EntryKind, HardLink},
    options::Append,
};

use super::{
    super::links::FirstName,
    Planner,
    decide::{Course, Placing},
    merge::Merge,
    subject::{Found, Siblings, Subject},
};
use crate::SyncError;

impl Planner<'_> {
    /// Returns the course of an entry once more: that of a further name, if it would have content
    /// sent that a later name of its file has already.
    pub(super) fn give_way(
        &mut self,
        merge: &Merge,
        subject: &Subject<'_>,
        found: &Found,
        course: Course,
    ) -> Result<Course, SyncError> {
        let Course::Place(placing) = course else { return Ok(course) };
        let (Some(group), true) = (found.group, asks_source(subject, &placing)) else {
            return Ok(Course::Place(placing));
        };
        let Some(first) = self.foresee(merge, subject, group)? else { return Ok(Course::Place(placing)) };

        // Whatever alternate directories have.
        let decision = match placing.alternate {
            Some(_) => self.compare(subject, found.existing.as_ref()),
            None => placing.decision,
        };
        Ok(Course::Follow { first, decision, way: placing.way, as_there: false })
    }

    /// Finds a later name of the entry's file that needs no content, and makes it lead.
    fn foresee(
        &mut self,
        merge: &Merge,
        subject: &Subject<'_>,
        group: usize,
    ) -> Result<Option<FirstName>, SyncError> {
        let first = match subject.entry.hard_link {
            Some(HardLink::To(first)) => first,
            _ => subject.id,
        };
        // The destination's listing has the same order: after its end there are no later names.
        let has_none = merge.own.is_over() && merge.alternates.dirs().next().is_none();
        if has_none {
            return Ok(None);
        }

        let Siblings { entries, position } = subject.siblings;
        let later = self.comparison.foreseen.later(first, position);
        for &position in &later {
            let Some(entry) = entries.get(position).filter(|entry| is_same(entry, subject.entry)) else {
                continue;
            };
            let id = EntryId(subject.id.0 + (position - subject.siblings.position) as u64);
            if self.unspelled(entry, id)?.is_some() {
                continue;
            }
            let name = self.comparison.ground.name_of(entry, id)?;
            let path = subject.directory.path.join(&name);
            let siblings = Siblings { entries, position };
            let later_one = Subject { id, entry, siblings, name, path, ..*subject };
            if let Some(stays) = self.needs_nothing(merge, &later_one, (group, &later))? {
                _ = self.links.place(group, &later_one.path, stays.as_ref(), false)?;
                self.comparison.foreseen.lead(id);
                return Ok(self.links.first_name(&self.transfers.succession, group));
            }
        }
        Ok(None)
    }

    /// Returns whether a later name gets its place without content from the source, then with the
    /// inode that keeps it.
    fn needs_nothing(
        &mut self,
        merge: &Merge,
        subject: &Subject<'_>,
        (group, names): (usize, &[usize]),
    ) -> Result<Option<Option<Metadata>>, SyncError> {
        let existing = subject.existing().map(|existing| self.site.hands.as_found(&subject.path, existing));
        if existing.is_some_and(|existing| existing.kind != Kind::File || !may_be_linked(&existing)) {
            return Ok(None);
        }

        let own = self.compare(subject, existing.as_ref());
        self.comparison.foreseen.note(subject.id, existing.as_ref(), &own);
        let found = Found { existing, untrusted: false, group: Some(group), first: None };
        let Course::Place(placing) = self.decide(merge, subject, &found)? else { return Ok(None) };
        let stays = existing.filter(|existing| placing.keeps_inode(&self.site.policy, existing));
        let Placing { decision, alternate, .. } = &placing;
        let is_here = match (decision.action, alternate) {
            (Action::Keep | Action::Retag, None) => {
                existing.is_some_and(|existing| !self.may_be_written(subject, &existing, names))
            }
            (Action::Link | Action::Reuse, Some(_)) => true,
            _ => false,
        };
        Ok((decision.placed && is_here).then_some(stays))
    }

    /// Returns whether the run may write into an inode by a name that the source has another file
    /// for, as old files are rewritten and the inode has names elsewhere.
    fn may_be_written(&self, subject: &Subject<'_>, existing: &Metadata, names: &[usize]) -> bool {
        let writing = &self.site.policy.options.writing;
        let rewrites = writing.inplace || writing.append != Append::No;
        if !rewrites || existing.nlink < 2 {
            return false;
        }

        let is_one = |position: &&usize| {
            let entry = subject.siblings.entries.get(**position);
            let name = entry.and_then(|entry| Component::new(entry.name.as_bytes()).ok());
            let found = name.and_then(|name| subject.directory.dir.as_ref()?.stat(&name).ok());
            found.is_some_and(|found| (found.dev, found.ino) == (existing.dev, existing.ino))
        };
        (names.iter().filter(is_one).count() as u64) < u64::from(existing.nlink)
    }
}

/// Returns whether the content of an entry would come from the source.
fn asks_source(subject: &Subject<'_>, placing: &Placing) -> bool {
    let Placing { decision, alternate, .. } = placing;
    let asks = match alternate {
        None => matches!(decision.action, Action::Create | Action::Update),
        Some(_) => decision.action == Action::Update,
    };
    asks && decision.placed && subject.file_size().is_some()
}

/// Returns whether the system lets this process give a file further names, whatever its permissions.
/// Others' files may be refused (`fs.protected_hardlinks`), and get no attributes.
fn may_be_linked(existing: &Metadata) -> bool {
    let privileges = Privileges::current();
    // Attributes that are stored beside the inode hide its owner.
    privileges.is_root() || privileges.is_user(existing.uid) || existing.origin == Origin::Stored
}

/// Returns whether two names were listed with the same content. They were not if the file changed
/// meanwhile.
fn is_same(a: &Entry, b: &Entry) -> bool {
    matches!(a.kind, EntryKind::File { .. }) && a.kind == b.kind && a.attributes.mtime == b.attributes.mtime
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use dsync_wire::{
        message::{Attributes, Timestamp},
        name::Name,
    };

    use super::*;

    fn entry(name: &str, hard_link: Option<HardLink>) -> Entry {
        Entry {
            name: Name::new(name.as_bytes()).unwrap(),
            kind: EntryKind::File { size: 5, content: None },
            attributes: Attributes {
                mode: 0o644,
                mtime: Timestamp { seconds: 1, nanoseconds: 2 },
                ..Attributes::default()
            },
            hard_link,
            implied: false,
        }
    }

    #[test]
    fn names_that_were_listed_in_two_states_are_not_the_same() {
        let listed = entry("a", Some(HardLink::First));
        assert!(is_same(&listed, &entry("b", Some(HardLink::To(EntryId(1))))));
        let longer = Entry { kind: EntryKind::File { size: 6, content: None }, ..listed.clone() };
        let hashed = Entry { kind: EntryKind::File { size: 5, content: Some([1; 32]) }, ..listed.clone() };
        let mtime = Timestamp { seconds: 1, nanoseconds: 3 };
        let later = Entry { attributes: Attributes { mtime, ..listed.attributes.clone() }, ..listed.clone() };
        let fifo = Entry { kind: EntryKind::Fifo, ..listed.clone() };
        for other in [longer, hashed, later, fifo] {
            assert!(!is_same(&listed, &other) && !is_same(&other, &listed));
        }
    }
}
