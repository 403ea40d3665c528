//! A destination directory while work in it is pending.
//!
//! Making or renaming an entry changes the directory's own time, so its attributes are set when the last
//! pending piece of work in it is done. A directory that needs deletions is set after those instead.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use dsync_fs::{Dir, RelPath, Wanted};
use dsync_wire::message::{Cause, Operation};

use super::Site;
use crate::SyncError;

/// One directory in work.
pub(super) struct Directory {
    /// Path from the destination's root.
    pub(super) path: RelPath,
    /// The open directory; `None` in a dry run where it does not exist.
    pub(super) dir: Option<Arc<Dir>>,
    /// Attributes it gets in the end; `None` for one that the source did not announce.
    wanted: Option<Wanted>,
    /// Pending pieces of work: files under way, and one while it is being planned.
    pending: AtomicU64,
    /// True when its attributes must be set even if nothing in it changes.
    dirty: AtomicBool,
    /// True when deletions in it are still to come.
    deferred: AtomicBool,
}

impl Directory {
    /// A directory whose planning starts.
    pub(super) fn new(path: RelPath, dir: Option<Arc<Dir>>, wanted: Option<Wanted>, dirty: bool) -> Self {
        Self {
            path,
            dir,
            wanted,
            pending: AtomicU64::new(1),
            dirty: AtomicBool::new(dirty),
            deferred: AtomicBool::new(false),
        }
    }

    /// Adds a piece of work.
    pub(super) fn hold(&self) {
        self.pending.fetch_add(1, Ordering::AcqRel);
    }

    /// Something in it was made, replaced or removed.
    pub(super) fn touch(&self) {
        self.dirty.store(true, Ordering::Release);
    }

    /// Its attributes are set after its deletions.
    pub(super) fn defer(&self) {
        self.deferred.store(true, Ordering::Release);
    }

    /// The attributes it gets in the end.
    pub(super) fn wanted(&self) -> Option<&Wanted> {
        self.wanted.as_ref()
    }

    /// Ends a piece of work; the last one settles the directory.
    pub(super) fn release(&self, site: &Site<'_>) -> Result<(), SyncError> {
        if self.pending.fetch_sub(1, Ordering::AcqRel) > 1 {
            return Ok(());
        }
        site.open_directories.release();
        if self.deferred.load(Ordering::Acquire) || !self.dirty.load(Ordering::Acquire) {
            return Ok(());
        }
        settle(site, &self.path, self.dir.as_deref(), self.wanted.as_ref())
    }
}

/// Sets a directory's final attributes, except in a dry run.
pub(super) fn settle(
    site: &Site<'_>,
    path: &RelPath,
    dir: Option<&Dir>,
    wanted: Option<&Wanted>,
) -> Result<(), SyncError> {
    let (Some(dir), Some(wanted)) = (dir, wanted) else { return Ok(()) };
    if site.policy.options.dry_run {
        return Ok(());
    }
    match dir.set_own_attributes(wanted) {
        Ok(withheld) => {
            site.withheld(withheld);
            Ok(())
        }
        Err(error) => site.problem(Operation::SetAttributes, path, cause(&error)),
    }
}

/// The cause that a filesystem error stands for.
pub(super) fn cause(error: &io::Error) -> Cause {
    match error.raw_os_error() {
        Some(number) => Cause::Os(number),
        None => Cause::Unrepresentable,
    }
}
