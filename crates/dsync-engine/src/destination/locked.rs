//! The list of directories that keep their owner out once the run is over.
//!
//! Directories are opened by path, from the root on: each when its listing comes, and again for
//! hard links, deletions and delayed updates at the end of a run. The law: until the last of them is
//! done, every directory lets its owner enter it, and, where there is such late work, read and write
//! it. The directories that must not are noted here, out of memory, and get their permissions last,
//! the deepest first.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex},
};

use dsync_fs::{Dir, RelPath, Spool, SpoolError, SpoolHome, Wanted};
use dsync_wire::message::Operation;

use super::records;
use crate::{SyncError, halt::lock};

/// The directories of a run that are locked at its end.
pub(super) struct Locked {
    root: Arc<Dir>,
    home: SpoolHome,
    /// Permissions that the owner needs until the end.
    needed: u16,
    noted: Mutex<Option<Noted>>,
}

struct Noted {
    records: Spool,
    /// The depths of their directories.
    depths: BTreeSet<usize>,
}

impl Locked {
    /// Makes an empty list. With `late_work`, entries are made or removed after their directory got
    /// its attributes.
    pub(super) fn new(root: &Arc<Dir>, home: &SpoolHome, late_work: bool) -> Self {
        let needed = if late_work { READ | WRITE | ENTER } else { ENTER };
        Self { root: Arc::clone(root), home: home.clone(), needed, noted: Mutex::default() }
    }

    /// Returns the permissions that a directory has until the end instead of those that would lock
    /// it; `None` if they would not.
    pub(super) fn unlocked(&self, wanted: &Wanted) -> Option<u16> {
        wanted.mode.filter(|mode| mode & self.needed != self.needed).map(|mode| mode | self.needed)
    }

    /// Returns the destination's root.
    pub(super) fn root(&self) -> &Dir {
        &self.root
    }

    /// Notes a directory by its record.
    pub(super) fn note(&self, path: &RelPath, record: &[u8]) -> Result<(), SyncError> {
        let mut noted = lock(&self.noted);
        let Noted { records, depths } =
            noted.get_or_insert_with(|| Noted { records: Spool::new(&self.home), depths: BTreeSet::new() });
        records.push(record).map_err(spool_error)?;
        depths.insert(depth(path));
        Ok(())
    }

    /// Hands out the records that were noted, once for each depth, the greatest first. The receiver
    /// leaves those of other depths alone.
    pub(super) fn take(
        &self,
        mut settle: impl FnMut(usize, &[u8]) -> Result<(), SyncError>,
    ) -> Result<(), SyncError> {
        let Some(Noted { records, depths }) = lock(&self.noted).take() else { return Ok(()) };
        let records = records.seal().map_err(spool_error)?;
        for depth in depths.into_iter().rev() {
            for record in records.iter() {
                settle(depth, &record.map_err(spool_error)?)?;
            }
        }
        Ok(())
    }
}

/// Returns the number of names on a directory's path.
pub(super) fn depth(path: &RelPath) -> usize {
    path.as_bytes().split(|&byte| byte == b'/').filter(|name| !name.is_empty()).count()
}

/// Returns the error of a record that is not as it was written.
pub(super) fn damaged() -> SyncError {
    spool_error(SpoolError::Damaged { index: 0 })
}

fn spool_error(error: SpoolError) -> SyncError {
    records::failed(Operation::SetAttributes, "the list of locked directories", error)
}

/// The owner's permissions for work in a directory.
const READ: u16 = 0o400;
const WRITE: u16 = 0o200;
const ENTER: u16 = 0o100;
