//! The hold of a run on its destination.
//!
//! The law: a run has it until all of its threads have ended and what is unfinished is kept or
//! removed, however it ends. So it belongs to the [`Site`](super::site::Site), which goes last, and
//! not to a thread.

use std::{io, sync::Arc};

use dsync_fs::{Dir, Wanted};

use super::hands::Lock;

/// The lock of a destination, and its root as long as that is opened up.
#[derive(Default)]
pub(super) struct Tenure {
    /// No other run writes here meanwhile.
    lock: Option<Lock>,
    /// Set for a root that keeps its owner out, until its permissions are planned.
    unlocked: Option<Unlocked>,
}

/// A root that was opened up for the run. It gets its permissions back when this goes.
struct Unlocked {
    root: Arc<Dir>,
    /// Its permissions, unless somebody else has taken over to set them.
    mode: Option<u16>,
}

impl Unlocked {
    fn close(&mut self) -> io::Result<()> {
        let Some(mode) = self.mode.take() else { return Ok(()) };
        self.root.set_own_attributes(&Wanted { mode: Some(mode), ..Wanted::default() }).map(drop)
    }
}

impl Drop for Unlocked {
    fn drop(&mut self) {
        let _ = self.close();
    }
}

impl Tenure {
    /// Holds a lock.
    pub(super) fn hold(&mut self, lock: Lock) {
        self.lock = Some(lock);
    }

    /// Returns whether the run before this one was killed.
    pub(super) fn follows_killed(&self) -> bool {
        matches!(&self.lock, Some(Lock::Held { lock }) if lock.follows_killed())
    }

    /// Notes a root that the run has opened up, and the permissions that it had.
    pub(super) fn open_up(&mut self, root: &Arc<Dir>, mode: u16) {
        self.unlocked = Some(Unlocked { root: Arc::clone(root), mode: Some(mode) });
    }

    /// Returns the permissions that the root had before the run, if the run has opened it up. From
    /// now on the caller sets them.
    pub(super) fn take_mode(&mut self) -> Option<u16> {
        self.unlocked.as_mut()?.mode.take()
    }

    /// Lets other runs write here, and leaves no name of the lock: before the names are written to
    /// the disk.
    ///
    /// # Errors
    /// The system's error, if the root does not have its permissions again.
    pub(super) fn end(&mut self) -> io::Result<()> {
        let released = match self.lock.take() {
            Some(Lock::Held { lock }) => lock.release(),
            Some(Lock::Needless) | None => Ok(()),
        };
        let closed = self.unlocked.take().map_or(Ok(()), |mut unlocked| unlocked.close());
        released.and(closed)
    }
}
