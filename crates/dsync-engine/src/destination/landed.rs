//! `--remove-source-files`: tells the source which entries it need not keep any more.
//!
//! The law: the source hears of an entry only when it has its name, its content and its attributes
//! here, and all of that is on the disk, so that no power cut can take both copies. An entry that
//! stood here before the run is synced like a new one: an earlier run may not have done so. Of the first
//! of several names the source hears when the others have been linked, at the end of the run. The report
//! waits until the source has seen to all of them.

use std::sync::Arc;

use dsync_fs::{CommitGroup, Metadata};
use dsync_wire::{
    budget::{Budget, Held, Share},
    event::Action,
    limits::MAX_LANDED,
    message::{ControlMessage, EntryId, EntryKind, Landed, Operation},
};

use super::{Site, credit::PartTicket, files::Pending, transfers::Transfers};
use crate::{SyncError, content, halt::lock};

/// Returns whether a run that acts like this on an entry brings it by its listing alone, so that it
/// counts as sent: a link does, and as with rsync a device, fifo or socket does not.
pub(super) fn brings(kind: &EntryKind, action: Action) -> bool {
    matches!(kind, EntryKind::Symlink { .. })
        && matches!(action, Action::Create | Action::Update | Action::Reuse)
}

/// The first names that have landed of entries that have several. The source keeps them until the others have
/// landed too: without its first name a group would be another one to the next run.
pub(super) struct FirstNames {
    landed: Vec<Landed>,
    held: Held,
}

impl FirstNames {
    pub(super) fn new(budget: &Arc<Budget>) -> Self {
        Self { landed: Vec::new(), held: budget.nothing(Share::HardLinks) }
    }

    /// Notes a name.
    pub(super) fn note(&mut self, landed: Landed) -> Result<(), SyncError> {
        // A vector that has just doubled.
        self.held.grow(2 * size_of::<Landed>() as u64)?;
        self.landed.push(landed);
        Ok(())
    }

    /// Takes all of them.
    pub(super) fn take(&mut self) -> Vec<Landed> {
        std::mem::take(&mut self.landed)
    }
}

/// An entry that needed no content, until the disk has it.
pub(super) struct Unsent {
    pub(super) part: Arc<PartTicket>,
    pub(super) landed: Landed,
}

impl Unsent {
    /// Notes an entry that is here; `before` is its metadata before the run, if the run did not
    /// make it.
    pub(super) fn new(entry: EntryId, part: &Arc<PartTicket>, before: Option<&Metadata>) -> Self {
        part.hold();
        let stood = before.map(|before| content::state(&before.stamp()));
        Self { part: Arc::clone(part), landed: Landed { entry, stood } }
    }
}

impl Transfers<'_> {
    /// Tells the source of entries once their names are on the disk as well.
    pub(super) fn tell_landed(
        &self,
        group: &mut CommitGroup<Arc<Pending>>,
        landed: &[Landed],
    ) -> Result<(), SyncError> {
        if landed.is_empty() || !self.site.removes_source() {
            return Ok(());
        }
        sync_names(self.site, group)?;
        for landed in landed.chunks(MAX_LANDED) {
            self.unremoved.take(landed.len() as u64, &self.site.session.halt);
            self.site.session.control.queue(&ControlMessage::Landed(landed.to_vec()))?;
        }
        self.site.session.control.flush()
    }
}

/// Makes everything durable that was committed or touched.
pub(super) fn sync_names(site: &Site<'_>, group: &mut CommitGroup<Arc<Pending>>) -> Result<(), SyncError> {
    for dir in lock(&site.tree.touched).values() {
        group.note(dir);
    }
    site.hands.sync(|| group.finish()).map_err(|error| SyncError::Filesystem {
        operation: Operation::Commit,
        path: site.tree.root.get().cloned().unwrap_or_default(),
        source: std::io::Error::new(error.source.kind(), error.source),
    })
}
