//! Makes groups of finished files durable and visible.
//!
//! The law: under [`Durability::Batch`] and [`Durability::File`] no rename happens before the data
//! that it shows is on the disk. After [`CommitGroup::finish`] everything that was committed or
//! noted survives a power cut. A failed sync is final for the files it covered: the kernel marks
//! the pages clean, so a later successful sync proves nothing. The staging files are dropped and
//! the old files stay.
//!
//! Why one `syncfs` per group: it costs about as much as one `fsync`, and covers data, attributes
//! and names of any number of files. The price is that it also writes the data of other programs
//! there. A filesystem in user space never hears of it; there each file and each directory is synced by
//! itself under [`Durability::Batch`] too.

use std::{collections::HashMap, io, mem, sync::Arc};

use crate::{
    dir::{Dir, unless_unknown},
    staged::PreparedFile,
};

/// The time when data must be on the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Durability {
    /// One sync of the filesystem per group, before the group's renames, and one at the end.
    #[default]
    Batch,
    /// One sync per file before its rename, and one of its directory after it.
    File,
    /// No sync: the operating system decides. A power cut may lose or empty files.
    None,
}

/// The reason why a finished file did not get its name.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum CommitError {
    /// The old file is not the basis of the new content: somebody else wrote to it.
    #[error("the old file changed during the run")]
    BasisChanged,
    /// Another entry has the name, and [stays](PreparedFile::give_way).
    #[error("the name is taken")]
    NameTaken,
    /// A directory has the name.
    #[error("a directory is in the way")]
    TargetIsDirectory,
    /// The old file's attributes could not be read.
    #[error("cannot read the attributes of the old file")]
    Stat {
        /// The system's error.
        #[source]
        source: Arc<io::Error>,
    },
    /// The backup of the old file could not be made.
    #[error("cannot keep the old file")]
    Backup {
        /// The system's error.
        #[source]
        source: Arc<io::Error>,
    },
    /// The attributes of a file written in place could not be set.
    #[error("cannot set the attributes of the file")]
    Attributes {
        /// The system's error.
        #[source]
        source: Arc<io::Error>,
    },
    /// The rename failed.
    #[error("cannot rename the new file to its name")]
    Rename {
        /// The system's error.
        #[source]
        source: Arc<io::Error>,
    },
    /// The data, or under [`Durability::File`] the name, could not be written to the disk. The disk
    /// can no longer be trusted: end the run.
    #[error("cannot write the new file to the disk")]
    Sync {
        /// The system's error, shared by all files of the group.
        #[source]
        source: Arc<io::Error>,
    },
}

impl CommitError {
    /// Returns the system's error number, if there is one.
    pub fn raw_os_error(&self) -> Option<i32> {
        match self {
            Self::Stat { source }
            | Self::Backup { source }
            | Self::Attributes { source }
            | Self::Rename { source }
            | Self::Sync { source } => source.raw_os_error(),
            Self::BasisChanged | Self::NameTaken | Self::TargetIsDirectory => None,
        }
    }
}

/// A failed sync: committed files are visible but may not survive a power cut.
#[derive(Debug, Clone, thiserror::Error)]
#[error("cannot write to the disk what was committed")]
pub struct SyncFailed {
    /// The system's error.
    #[source]
    pub source: Arc<io::Error>,
}

/// Files that become durable together. `T` is the caller's tag for a file.
///
/// Not for several threads at once: keep it in one thread or under a lock. Dropping it drops the
/// waiting files.
#[derive(Debug)]
pub struct CommitGroup<T> {
    durability: Durability,
    pending: Vec<(PreparedFile, T)>,
    filesystems: HashMap<u64, Filesystem>,
    /// The first sync that failed.
    failure: Option<Arc<io::Error>>,
    syncs: u64,
}

/// A filesystem with changes.
#[derive(Debug)]
struct Filesystem {
    /// The first directory seen there, kept for the whole run. `syncfs` reports write errors since
    /// its descriptor was opened, so a later descriptor could miss one.
    dir: Arc<Dir>,
    /// Whether anything changed since the last sync.
    dirty: bool,
}

/// A file that has its name or not, and its directory if that is synced too.
type Committed<T> = (T, Option<Arc<Dir>>, Result<(), CommitError>);

impl<T> CommitGroup<T> {
    /// Makes an empty group.
    pub fn new(durability: Durability) -> Self {
        let (pending, filesystems) = (Vec::new(), HashMap::new());
        Self { durability, pending, filesystems, failure: None, syncs: 0 }
    }

    /// Adds a finished file, which stays untouched until [`flush`](Self::flush).
    pub fn add(&mut self, file: PreparedFile, tag: T) {
        self.note(file.dir());
        self.pending.push((file, tag));
    }

    /// Returns the number of files that wait for the next flush.
    pub fn len(&self) -> usize {
        self.pending.len()
    }

    /// Returns whether no file waits.
    pub fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }

    /// Returns the files that wait, for a caller that has no time to commit them.
    pub fn into_files(self) -> Vec<(PreparedFile, T)> {
        self.pending
    }

    /// Commits all waiting files, in the order in which they were added, and returns the result of
    /// each.
    ///
    /// Cost under `Batch`: one `syncfs` per filesystem of the group; under `File`: one `fsync` per
    /// directory of the group.
    pub fn flush(&mut self) -> Vec<(T, Result<(), CommitError>)> {
        self.flush_after(&mut |_| Ok(()))
    }

    /// Works as [`flush`](Self::flush), but also asks `secure` about each file, after its data is
    /// on the disk and just before its rename: may the entry that has its name give way?
    pub fn flush_after(
        &mut self,
        secure: &mut dyn FnMut(&T) -> io::Result<()>,
    ) -> Vec<(T, Result<(), CommitError>)> {
        let pending = mem::take(&mut self.pending);
        let mut commit = |file: PreparedFile, tag: &T| file.commit_after(|| secure(tag));
        match self.durability {
            Durability::Batch => self.flush_batch(pending, &mut commit),
            Durability::File => self.flush_files(pending, &mut commit),
            Durability::None => {
                let settled = |(file, tag)| {
                    let result = commit(file, &tag);
                    (tag, result)
                };
                pending.into_iter().map(settled).collect()
            }
        }
    }

    fn flush_batch(
        &mut self,
        pending: Vec<(PreparedFile, T)>,
        commit: &mut dyn FnMut(PreparedFile, &T) -> Result<(), CommitError>,
    ) -> Vec<(T, Result<(), CommitError>)> {
        let mut synced: HashMap<u64, Result<(), Arc<io::Error>>> = HashMap::new();
        let mut committed = Vec::with_capacity(pending.len());
        for (file, _) in &pending {
            if let Ok(device) = file.dir().device() {
                synced.entry(device).or_insert_with(|| self.sync_filesystem(device));
            }
        }

        for (file, tag) in pending {
            let dir = Some(Arc::clone(file.dir())).filter(|dir| dir.is_synced_by_file());
            let result = match file.dir().device().map(|device| (device, synced.get(&device).cloned())) {
                Ok((device, Some(Ok(())))) => {
                    self.mark(device);
                    commit(file, &tag)
                }
                Ok((_, Some(Err(source)))) => Err(CommitError::Sync { source }),
                Ok((_, None)) => Err(CommitError::Sync { source: Arc::new(io::ErrorKind::NotFound.into()) }),
                Err(source) => Err(CommitError::Stat { source: Arc::new(source) }),
            };
            committed.push((tag, dir, result));
        }

        self.with_directories(committed, |dir| unless_unknown(dir.sync()))
    }

    fn flush_files(
        &mut self,
        pending: Vec<(PreparedFile, T)>,
        commit: &mut dyn FnMut(PreparedFile, &T) -> Result<(), CommitError>,
    ) -> Vec<(T, Result<(), CommitError>)> {
        let mut committed = Vec::with_capacity(pending.len());
        for (file, tag) in pending {
            let dir = Some(Arc::clone(file.dir()));
            // The sync of its data, made in `prepare`.
            self.syncs += 1;
            let result = commit(file, &tag);
            committed.push((tag, dir, result));
        }

        self.with_directories(committed, Dir::sync)
    }

    /// Syncs the directories of committed files, each once, and returns the files with their results.
    fn with_directories(
        &mut self,
        committed: Vec<Committed<T>>,
        sync: impl Fn(&Dir) -> io::Result<()>,
    ) -> Vec<(T, Result<(), CommitError>)> {
        let address = |dir: &Arc<Dir>| Arc::as_ptr(dir) as usize;
        let mut synced: HashMap<usize, Option<Arc<io::Error>>> = HashMap::new();
        for dir in committed.iter().filter_map(|(_, dir, _)| dir.as_ref()) {
            if synced.contains_key(&address(dir)) {
                continue;
            }
            self.syncs += 1;
            let failure = sync(dir).err().map(|error| self.remember(error));
            synced.insert(address(dir), failure);
        }

        let durable = |(tag, dir, result): Committed<T>| {
            let failure = dir.and_then(|dir| synced.get(&address(&dir))?.clone());
            let result = match failure {
                Some(source) => result.and(Err(CommitError::Sync { source })),
                None => result,
            };
            (tag, result)
        };

        committed.into_iter().map(durable).collect()
    }

    /// Records a change in a directory other than a commit: an entry made or removed, attributes
    /// set. Call it *before* the change, with a handle opened before the change.
    pub fn note(&mut self, dir: &Arc<Dir>) {
        if self.durability == Durability::None {
            return;
        }
        match dir.device() {
            Ok(device) => {
                let filesystem = self
                    .filesystems
                    .entry(device)
                    .or_insert_with(|| Filesystem { dir: Arc::clone(dir), dirty: true });
                filesystem.dirty = true;
            }
            // This filesystem cannot be synced by number, so the last sync must not report success.
            Err(error) => {
                self.remember(error);
            }
        }
    }

    /// Makes everything durable that was committed or noted. Does not touch files that still wait:
    /// flush first.
    ///
    /// # Errors
    /// [`SyncFailed`] if the disk did not take the data, now or at an earlier flush.
    pub fn finish(&mut self) -> Result<(), SyncFailed> {
        let dirty: Vec<u64> =
            self.filesystems.iter().filter(|(_, at)| at.dirty).map(|(&device, _)| device).collect();
        for device in dirty {
            // The first failure is remembered, but the other filesystems are still worth syncing.
            let _ = self.sync_filesystem(device);
        }
        self.failure.as_ref().map_or(Ok(()), |source| Err(SyncFailed { source: Arc::clone(source) }))
    }

    /// Returns the number of sync calls so far.
    pub fn syncs(&self) -> u64 {
        self.syncs
    }

    fn sync_filesystem(&mut self, device: u64) -> Result<(), Arc<io::Error>> {
        let Some(filesystem) = self.filesystems.get_mut(&device) else { return Ok(()) };
        self.syncs += 1;
        filesystem.dirty = false;
        match filesystem.dir.sync_filesystem() {
            Ok(()) => Ok(()),
            Err(error) => Err(self.remember(error)),
        }
    }

    fn mark(&mut self, device: u64) {
        if let Some(filesystem) = self.filesystems.get_mut(&device) {
            filesystem.dirty = true;
        }
    }

    fn remember(&mut self, error: io::Error) -> Arc<io::Error> {
        let error = Arc::new(error);
        self.failure.get_or_insert_with(|| Arc::clone(&error));
        error
    }
}
