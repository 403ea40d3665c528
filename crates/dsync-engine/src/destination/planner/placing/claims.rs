//! What an earlier run left of a file that is about to be asked for.

use dsync_fs::{Component, Kind, Wanted};
use dsync_wire::{
    event::{Action, FileType},
    message::{Entry, EntryId, EntryKind, Operation},
};

use super::{
    super::{Here, Planner, merge::Merge},
    Place, Placed,
};
use crate::{
    SyncError,
    destination::{homes::Homes, kept, secure},
    plan::Decision,
};

impl Planner<'_> {
    /// Looks for what an earlier run may have left of a file that is about to be asked for; complete ones are taken up
    /// only for what is made from nothing else.
    pub(in super::super) fn claim(
        &mut self,
        merge: &mut Merge,
        place: &mut Place<'_>,
        entry: &Entry,
        decision: &Decision,
        alone: bool,
    ) {
        let EntryKind::File { size, .. } = entry.kind else { return };
        place.has_part = self.claim_part(merge, place, decision, size);
        if alone {
            place.finished = self.claim_finished(merge, place, entry, decision);
        }
    }

    /// True when an earlier run may have left a part of a file that is about to be asked for.
    fn claim_part(&self, merge: &mut Merge, place: &Place<'_>, decision: &Decision, size: u64) -> bool {
        let asks = matches!(decision.action, Action::Create | Action::Update);
        if !asks || self.transfers.is_local() {
            return false;
        }
        let Some(names) = kept::existing(self.site, place.directory, place.name, size) else { return false };
        merge.parts.1.extend([names.content, names.notes]);
        true
    }

    /// What an earlier run left of a file that is about to be asked for, if it was complete and is the source's still;
    /// what is not is removed.
    fn claim_finished(
        &mut self,
        merge: &mut Merge,
        place: &Place<'_>,
        entry: &Entry,
        decision: &Decision,
    ) -> Option<(Component, Wanted)> {
        let asks = matches!(decision.action, Action::Create | Action::Update);
        // A name that comes before those is met before they are.
        let may = merge.has_finished || place.name.as_bytes() < OWN_NAMES;
        let dir = place.directory.dir.as_ref().filter(|_| asks && may && place.displaced.is_none())?;
        let name = Homes::finished_name(place.name).ok()?;
        let found = dir.stat(&name).ok().filter(|found| found.kind == Kind::File && found.nlink == 1)?;
        merge.parts.1.insert(name.clone());
        if self.site.policy.options.dry_run {
            return None;
        }
        let mapped = self.owners.of(&entry.attributes);
        let stopped = &**self.site.session.halt.stop_flag();
        let here = Here { dir: Some(dir), name: Some(&name), within: None, stopped };
        let again = self.site.policy.compare(entry, &mapped, &found, &here);
        if matches!(again.action, Action::Keep | Action::Retag) {
            return Some((name, again.wanted));
        }
        let _ = dir.remove_file(&name);
        None
    }

    /// Gives what an earlier run left of a file its attributes, and its name now or at the end of the run.
    pub(super) fn take_up(
        &self,
        id: EntryId,
        place: &Place<'_>,
        size: u64,
        (kept, wanted): &(Component, Wanted),
    ) -> Result<Placed, SyncError> {
        let Some(dir) = &place.directory.dir else { return Ok(Placed::Open) };
        let set = dir.set_attributes(kept, Kind::File, wanted).map(|withheld| self.site.withheld(withheld));
        if !self.report(Operation::SetAttributes, place, set)? {
            return Ok(Placed::Failed);
        }
        self.site.account.received(0, size, 0);
        if self.site.delayed.get().is_some() {
            self.note_late(id, place, FileType::File, kept.clone())?;
            return Ok(Placed::Open);
        }
        let backup = secure::keep(self.site, place.directory, place.name)?;
        let named = backup.and_then(|()| dir.rename(kept, place.name));
        Ok(if self.done(Operation::Commit, place, named)? { Placed::Here } else { Placed::Failed })
    }
}

/// What dsync's own names begin with.
const OWN_NAMES: &[u8] = b".dsync-";
