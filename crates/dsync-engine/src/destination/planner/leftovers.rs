//! Unfinished files of earlier runs in one directory, and those of them that this run takes up.

use std::collections::HashSet;

use dsync_fs::{Component, find_finished, reap_kept};
use dsync_wire::{event::Action, message::Entry};

use super::{
    super::{Site, begun, directory::Directory, kept, transfers::Transfers},
    place::{Finished, Place},
    standing::Here,
};
use crate::plan::{Decision, Mapped, timestamp};

/// Unfinished files of earlier runs in one directory.
#[derive(Default)]
pub(super) struct Leftovers {
    /// Complete ones may be there.
    has_finished: bool,
    /// The names of parts and of complete ones.
    found: Vec<Component>,
    /// Names that this run uses again, or leaves alone.
    taken_up: HashSet<Component>,
    /// The names of notes.
    notes: Vec<Component>,
}

impl Leftovers {
    /// Notes that complete files of an earlier run are here.
    pub(super) fn note_finished(&mut self) {
        self.has_finished = true;
    }

    /// Notes the name of notes, which may be those of a file that is half written.
    pub(super) fn note_notes(&mut self, name: Component) {
        self.notes.push(name);
    }

    /// Removes the notes that are true of no file any more; those that are true stay.
    pub(super) fn settle_notes(&mut self, site: &Site<'_>, directory: &Directory) {
        let Some(dir) = &directory.dir else { return };
        let mut notes = std::mem::take(&mut self.notes);
        notes.retain(|name| !self.taken_up.contains(name));
        if notes.is_empty() {
            return;
        }
        for (name, is_true) in notes.iter().zip(begun::are_true(dir, &notes)) {
            match is_true {
                Some(true) => _ = self.taken_up.insert(name.clone()),
                Some(false) if site.hands.reap(|| reap_kept(dir, name)) => directory.touch(),
                _ => {}
            }
        }
    }

    /// Notes a name that goes with the directory's end unless it is taken up.
    pub(super) fn note(&mut self, name: Component) {
        self.found.push(name);
    }

    /// Takes up a part of a file that is about to be asked for, or removes it where content is not asked for
    /// but copied. Returns whether there may be one.
    pub(super) fn claim_part(
        &mut self,
        transfers: &Transfers<'_>,
        place: &Place<'_>,
        decision: &Decision,
        size: u64,
    ) -> bool {
        if !asks(decision) {
            return false;
        }
        let Some(names) = kept::existing(transfers.site, place.directory, place.name, size) else {
            return false;
        };

        if transfers.is_local() {
            if let Some(dir) = &place.directory.dir {
                let reap = |name| transfers.site.hands.reap(|| reap_kept(dir, name));
                let _ = (reap(&names.content), reap(&names.notes));
            }
            return false;
        }
        self.taken_up.extend([names.content, names.notes]);
        true
    }

    /// Takes up the note of a file that is about to be written into.
    pub(super) fn claim_note(&mut self, directory: &Directory, target: &Component) {
        if directory.may_have_notes() {
            self.taken_up.extend(directory.dir.as_ref().and_then(|dir| begun::note_of(dir, target)));
        }
    }

    /// Takes up a complete file if it is the source's still; one that is not is removed.
    pub(super) fn claim_finished(
        &mut self,
        site: &Site<'_>,
        place: &Place<'_>,
        (entry, size): (&Entry, u64),
        decision: &Decision,
        mapped: impl FnOnce() -> Mapped,
    ) -> Option<Finished> {
        if !asks(decision) || place.displaced.is_some() {
            return None;
        }
        // A name that comes before those is met before they are, and not every directory is read.
        let may_be_met = self.has_finished || place.name.as_bytes() < OWN_NAMES;
        if !may_be_met && !kept::may_be_left(site, size) {
            return None;
        }
        let dir = place.directory.dir.as_ref()?;
        let name = site.homes.finished_name(place.name).ok()?;
        let mapped = mapped();
        let found = find_finished(dir, &name, mapped.uid)?;
        self.taken_up.insert(name.clone());

        let contents = site.session.contents();
        let here = Here { dir: Some(dir), name: Some(&name), within: None, link_text: None, contents };
        let again = site.policy.compare(entry, &mapped, &found, &here);
        // The run may overlook a difference in a file that has its name, but not in one that may be an older
        // version.
        let is_exact = (found.size, timestamp(found.mtime)) == (size, entry.attributes.mtime);
        let is_same = is_exact || site.policy.options.checksum;
        if is_same && matches!(again.action, Action::Keep | Action::Retag) {
            return Some(Finished { name, wanted: again.wanted });
        }
        let _ = site.hands.remove_file(dir, &name);
        None
    }

    /// Removes the parts that were not taken up: those files are not asked for any more.
    pub(super) fn remove_rest(&self, site: &Site<'_>, directory: &Directory) {
        let Some(dir) = &directory.dir else { return };
        for name in self.found.iter().filter(|name| !self.taken_up.contains(name)) {
            if site.hands.reap(|| reap_kept(dir, name)) {
                directory.touch();
            }
        }
    }
}

/// Returns whether the content of a file is about to be asked for.
fn asks(decision: &Decision) -> bool {
    matches!(decision.action, Action::Create | Action::Update)
}

/// The beginning of dsync's own names.
const OWN_NAMES: &[u8] = b".dsync-";
