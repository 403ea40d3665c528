//! `--remove-source-files`: telling the source what it need not keep any more.
//!
//! The law: an entry is told only when it has its name, its content and its attributes here, and all of that is on
//! the disk, so that no power cut can take both copies. What stood here before the run is synced like what has
//! just come: an earlier run may not have. The report waits until the source has seen to all of them.

use std::sync::Arc;

use dsync_fs::{CommitGroup, Metadata};
use dsync_wire::{
    limits::MAX_LANDED,
    message::{ControlMessage, EntryId, Landed, Operation},
};

use super::{Site, credit::PartTicket, files::Pending};
use crate::{SyncError, content, halt::lock};

/// An entry that needed no content, until the disk has it.
pub(super) struct Unsent {
    pub(super) part: Arc<PartTicket>,
    pub(super) landed: Landed,
}

impl Unsent {
    /// Notes an entry that is here; `before` is what it was before the run, if the run did not make it.
    pub(super) fn new(entry: EntryId, part: &Arc<PartTicket>, before: Option<&Metadata>) -> Self {
        part.hold();
        let stood = before.map(|before| content::state(&before.stamp()));
        Self { part: Arc::clone(part), landed: Landed { entry, stood } }
    }
}

impl Site<'_> {
    /// True when the source removes what it copied.
    pub(super) fn removes_source(&self) -> bool {
        let options = &self.policy.options;
        options.remove_source_files && !options.dry_run
    }

    /// Tells the source of entries once their names are on the disk as well.
    pub(super) fn tell_landed(
        &self,
        group: &mut CommitGroup<Arc<Pending>>,
        landed: &[Landed],
    ) -> Result<(), SyncError> {
        if landed.is_empty() || !self.removes_source() {
            return Ok(());
        }
        self.sync_names(group)?;
        for landed in landed.chunks(MAX_LANDED) {
            self.unremoved.take(landed.len() as u64, &self.session.halt);
            self.session.control.queue(&ControlMessage::Landed(landed.to_vec()))?;
        }
        self.session.control.flush()
    }

    /// Makes everything durable that was committed or touched.
    pub(super) fn sync_names(&self, group: &mut CommitGroup<Arc<Pending>>) -> Result<(), SyncError> {
        for dir in lock(&self.touched).values() {
            group.note(dir);
        }
        group.finish().map_err(|error| SyncError::Filesystem {
            operation: Operation::Commit,
            path: self.root.get().cloned().unwrap_or_default(),
            source: std::io::Error::new(error.source.kind(), error.source),
        })
    }
}
