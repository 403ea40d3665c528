//! Room on a disk, or below a quota, that is full.
//!
//! An old file takes its space until the new one has its name, and names are given in groups. So where space
//! runs out everything that is finished gets its name first; if that replaced other files, the write that
//! failed is tried once more.
//!
//! The law: when a run ends because there is no room, each file that was finished before has its name, so that
//! the next run goes on from there. A write is tried again only after old files have gone since it was tried
//! last.

use std::{
    io,
    sync::{
        Arc, Condvar, Mutex, PoisonError, Weak,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, ThreadId},
    time::Duration,
};

use crate::halt::lock;

/// A gatherer of finished files that need not go to their names at once.
pub(super) trait Gathers: Send + Sync {
    /// Hands everything over, unless a file is just being added or nobody takes it any more.
    fn hand_over_if_idle(&self, room: &Room);
}

/// The finished files on their way to their names, as far as room depends on them.
pub(super) struct Room {
    outboxes: Mutex<Vec<Weak<dyn Gathers>>>,
    state: Mutex<State>,
    changed: Condvar,
    /// Set once room has run out: from then on nobody collects finished files.
    scarce: AtomicBool,
    /// Set when the run ends.
    stopped: Arc<AtomicBool>,
}

#[derive(Default)]
struct State {
    /// Files that the committer was given and is not done with.
    waiting: usize,
    /// Bytes of files that have replaced others, in all.
    replaced: u64,
    committer: Option<ThreadId>,
}

impl Room {
    pub(super) fn new(stopped: &Arc<AtomicBool>) -> Self {
        let (outboxes, state, changed, scarce) = Default::default();
        Self { outboxes, state, changed, scarce, stopped: Arc::clone(stopped) }
    }

    /// Makes an outbox known, which is then emptied where room is scarce.
    pub(super) fn add(&self, outbox: Weak<dyn Gathers>) {
        lock(&self.outboxes).push(outbox);
    }

    /// Returns whether finished files are to be handed over one by one.
    pub(super) fn is_scarce(&self) -> bool {
        self.scarce.load(Ordering::Relaxed)
    }

    /// Notes that the calling thread is the committer, for which nobody makes room.
    pub(super) fn commits_here(&self) {
        lock(&self.state).committer = Some(thread::current().id());
    }

    /// Notes that files were handed to the committer.
    pub(super) fn handed(&self, files: usize) {
        lock(&self.state).waiting += files;
    }

    /// Notes that the committer is done with files, which `replaced` so many bytes.
    pub(super) fn settled(&self, files: usize, replaced: u64) {
        let mut state = lock(&self.state);
        state.waiting = state.waiting.saturating_sub(files);
        state.replaced = state.replaced.saturating_add(replaced);
        self.changed.notify_all();
    }

    /// Notes that the committer has ended.
    pub(super) fn over(&self) {
        lock(&self.state).waiting = 0;
        self.changed.notify_all();
    }

    /// Returns the bytes of files that have replaced others so far.
    pub(super) fn replaced(&self) -> u64 {
        lock(&self.state).replaced
    }

    /// Waits until everything that is finished has its name. Returns whether other files were replaced since
    /// they were so many bytes.
    pub(super) fn make(&self, since: u64) -> bool {
        self.scarce.store(true, Ordering::Relaxed);
        if lock(&self.state).committer == Some(thread::current().id()) {
            return false;
        }
        let outboxes: Vec<_> = lock(&self.outboxes).iter().filter_map(Weak::upgrade).collect();
        for outbox in outboxes {
            outbox.hand_over_if_idle(self);
        }

        let mut state = lock(&self.state);
        while state.waiting > 0 && !self.stopped.load(Ordering::Acquire) {
            let waited = self.changed.wait_timeout(state, LOOK_EVERY);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        state.replaced > since
    }

    /// Does what needs room, and once more whenever room could be made.
    pub(super) fn retrying<T>(&self, mut work: impl FnMut() -> io::Result<T>) -> io::Result<T> {
        loop {
            // Another thread may make room while this one fails.
            let before = self.replaced();
            match work() {
                Err(error) if is_full(&error) && self.make(before) => {}
                result => return result,
            }
        }
    }
}

/// Returns whether an error says that there is no room.
pub(super) fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// Longest time until the end of a run is noticed.
const LOOK_EVERY: Duration = Duration::from_millis(50);

#[cfg(test)]
mod tests {
    use super::*;

    fn full() -> io::Error {
        io::ErrorKind::StorageFull.into()
    }

    #[test]
    fn work_is_tried_again_as_long_as_files_were_replaced() {
        let room = Room::new(&Arc::default());
        let mut tries = 0;
        let result: io::Result<()> = thread::scope(|scope| {
            room.handed(3);
            scope.spawn(|| {
                room.commits_here();
                assert!(!room.make(0), "the committer never waits for itself");
                room.settled(1, 10);
                room.settled(2, 0);
            });
            room.retrying(|| {
                tries += 1;
                Err(full())
            })
        });
        assert!(result.is_err_and(|error| is_full(&error)));
        // Once more, unless the others were replaced before it began.
        assert!((1..=2).contains(&tries) && room.is_scarce());
    }

    #[test]
    fn nobody_waits_for_a_committer_that_has_ended_or_in_a_run_that_is_stopped() {
        let stopped = Arc::new(AtomicBool::new(false));
        let room = Room::new(&stopped);
        room.handed(1);
        room.over();
        assert!(!room.make(0));
        room.handed(1);
        stopped.store(true, Ordering::Release);
        assert!(!room.make(0));
    }

    #[test]
    fn other_errors_are_no_want_of_room() {
        let room = Room::new(&Arc::default());
        let result: io::Result<()> = room.retrying(|| Err(io::ErrorKind::PermissionDenied.into()));
        assert!(result.is_err() && !room.is_scarce());
    }
}
