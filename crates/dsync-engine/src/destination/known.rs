//! The contents of files that a run knows, until it tells of its tree ([`present`](super::present)).

use std::sync::Mutex;

use dsync_fs::{ContentIndex, ContentIndexBuilder, FileVersion, SpoolError, SpoolHome, Stamp, Timestamp};
use dsync_wire::{message::Operation, options::SyncOptions};

use super::records;
use crate::{SyncError, halt::lock};

/// The knowledge of a run that tells of its tree at the end.
pub(super) struct Known {
    pub(super) spools: SpoolHome,
    /// A file that is left out: its filesystem and its inode.
    pub(super) own: Option<(u64, u64)>,
    /// The contents of files that the run knows, if they are told.
    contents: Option<Mutex<ContentIndexBuilder>>,
}

impl Known {
    /// Begins to collect, if the tree is to be told of.
    pub(super) fn of(options: &SyncOptions, spools: &SpoolHome, own: Option<(u64, u64)>) -> Option<Self> {
        let index = || Mutex::new(ContentIndexBuilder::new(spools));
        (options.event_tree && !options.dry_run).then(|| Self {
            spools: spools.clone(),
            own,
            contents: options.event_contents.then(index),
        })
    }

    /// Returns whether contents are told.
    pub(super) fn tells_contents(&self) -> bool {
        self.contents.is_some()
    }

    /// Notes the content of a file that was looked at and will have this time.
    pub(super) fn note(
        &self,
        stamp: &Stamp,
        mtime: Option<Timestamp>,
        hash: &[u8; 32],
    ) -> Result<(), SyncError> {
        let Some(contents) = &self.contents else { return Ok(()) };
        let Stamp { dev, ino, size, .. } = *stamp;
        let file = FileVersion { dev, ino, size, mtime: mtime.unwrap_or(stamp.mtime) };
        lock(contents).push(&file, hash).map_err(kept)
    }

    /// Returns the contents that were noted, if they are told.
    pub(super) fn take_contents(&self) -> Result<Option<ContentIndex>, SyncError> {
        let seal = |known: &Mutex<_>| {
            std::mem::replace(&mut *lock(known), ContentIndexBuilder::new(&self.spools)).seal().map_err(kept)
        };
        self.contents.as_ref().map(seal).transpose()
    }
}

/// Returns the error of a run whose contents cannot be kept.
pub(super) fn kept(error: SpoolError) -> SyncError {
    records::failed(Operation::ReadDirectory, "the list of what the run wrote", error)
}
