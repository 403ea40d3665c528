//! Names of one inode: what is linked to the first of them, and what waits to take its place.

use std::sync::Arc;

use dsync_fs::{Kind, Metadata};
use dsync_wire::{
    event::{Action, Changes},
    message::{Entry, EntryId, EntryKind},
};

use super::{
    Planner,
    placing::{Old, Place, link_text},
};
use crate::{
    SyncError,
    destination::{
        credit::PartTicket,
        files::Pending,
        links::{FirstName, Further},
        settle::Outcome,
        succession::{Heir, Turn},
    },
    plan::{Decision, file_type},
};

impl Planner<'_> {
    /// Has an entry linked to the first of its names.
    pub(super) fn follow(
        &mut self,
        id: EntryId,
        place: &Place<'_>,
        entry: &Entry,
        decision: &Decision,
        first: &FirstName,
    ) -> Result<(), SyncError> {
        let Some(kind) = file_type(&entry.kind) else { return Ok(()) };
        let action = if decision.action == Action::Create { Action::Create } else { Action::Update };
        let mut changes = decision.changes;
        changes.insert(Changes::HARD_LINK);
        self.tell(
            place.directory,
            entry,
            action,
            changes,
            self.links.path(&self.transfers.succession, first)?,
        )?;
        if self.site.policy.options.dry_run {
            return Ok(());
        }
        let displaces = place.displaced == Some(Kind::Dir);
        let further = Further { entry: id, name: place.name.clone(), action, kind, displaces };
        self.links.note(place.directory, further, first)
    }

    /// Leaves a name alone that is one of the first name's inode.
    pub(super) fn stay(
        &mut self,
        id: EntryId,
        part: &Arc<PartTicket>,
        place: &Place<'_>,
        entry: &Entry,
        existing: &Metadata,
        first: &FirstName,
    ) -> Result<(), SyncError> {
        self.landed(id, part, place, Some(existing))?;
        self.tell(place.directory, entry, Action::Keep, Changes::HARD_LINK, link_text(entry))?;
        if !self.transfers.succession.is_open(first.number()) {
            return Ok(());
        }
        let decision = self.decide(place, entry, Some(existing));
        self.stand_by(id, part, place, entry, (&decision, Some(existing)), first)
    }

    /// Has a name wait for the content of the first one, to be asked for in its place if that comes to nothing.
    pub(super) fn stand_by(
        &mut self,
        id: EntryId,
        part: &Arc<PartTicket>,
        place: &Place<'_>,
        entry: &Entry,
        (decision, existing): (&Decision, Option<&Metadata>),
        first: &FirstName,
    ) -> Result<(), SyncError> {
        let EntryKind::File { size, .. } = entry.kind else { return Ok(()) };
        let number = first.number();
        if !self.transfers.succession.is_open(number) {
            return Ok(());
        }
        let action = if decision.action == Action::Create { Action::Create } else { Action::Update };
        let file = self.pending(id, part, place, decision, size, Old { existing, alternate: None });
        let file = Pending { action, first_name: Some(number), ..file };
        place.directory.hold();
        part.hold();
        self.take_one(&self.transfers.awaited)?;
        let same_inode = existing.is_some_and(|existing| first.is_of(existing));
        match self.transfers.succession.wait(number, Heir { file: Arc::new(file), same_inode }) {
            Turn::Waits => Ok(()),
            Turn::Now(file) => self.transfers.take_over(&file),
            Turn::Needless(file) => self.transfers.settle(&file, Outcome::Needless),
        }
    }
}
