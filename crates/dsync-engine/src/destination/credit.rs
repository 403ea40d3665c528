//! Counting limits: how much the destination lets be in flight at once.
//!
//! Each bound protects one resource: open directories (descriptors), signature bytes (the source's
//! memory), listed entries (both ends' memory). A bound always admits one piece, however large, so
//! no single file can block a run.

use std::sync::{Arc, Condvar, Mutex, MutexGuard};

use dsync_wire::{budget::Held, message::ControlMessage};

use crate::{
    SyncError,
    halt::{Halt, lock, wait},
    limits::MAX_OPEN_PATH_BYTES,
    session::ControlOut,
};

/// A counting semaphore that stops waiting when the run has ended.
pub(super) struct Credit {
    limit: u64,
    state: Mutex<State>,
    freed: Condvar,
}

#[derive(Default)]
struct State {
    used: u64,
    /// The levels of use that waiting threads wait for. Telling them of less would cost, for each
    /// file, a system call and a thread that wakes for nothing.
    awaited: Vec<u64>,
}

impl State {
    /// Releases `amount`. Returns whether a thread waits for that.
    fn give(&mut self, amount: u64) -> bool {
        let before = self.used;
        self.used = before.saturating_sub(amount);
        self.awaited.iter().any(|&most| (self.used..before).contains(&most))
    }
}

impl Credit {
    pub(super) fn new(limit: u64) -> Self {
        Self { limit, state: Mutex::default(), freed: Condvar::new() }
    }

    /// Returns the most that may be taken.
    pub(super) fn limit(&self) -> u64 {
        self.limit
    }

    /// Takes `amount`, waiting for it. Returns `false` when the run has ended.
    pub(super) fn take(&self, amount: u64, halt: &Halt) -> bool {
        // Woken for a part of the limit, not for each piece of it.
        let (enough, ample) = (self.limit.saturating_sub(amount), self.limit.saturating_sub(self.limit / 8));
        let Some(mut state) = self.wait_until(halt, enough, enough.min(ample)) else { return false };
        state.used = state.used.saturating_add(amount);
        true
    }

    /// Takes `amount` if it is there.
    pub(super) fn try_take(&self, amount: u64) -> bool {
        let mut state = lock(&self.state);
        let taken = state.used.saturating_add(amount);
        let free = state.used == 0 || taken <= self.limit;
        if free {
            state.used = taken;
        }
        free
    }

    /// Releases `amount`.
    pub(super) fn give(&self, amount: u64) {
        let mut state = lock(&self.state);
        let awaited = state.give(amount);
        drop(state);
        if awaited {
            self.freed.notify_all();
        }
    }

    /// Releases one.
    pub(super) fn release(&self) {
        self.give(1);
    }

    /// Waits until nothing is taken. Returns `false` when the run has ended.
    pub(super) fn drained(&self, halt: &Halt) -> bool {
        self.wait_until(halt, 0, 0).is_some()
    }

    /// Waits until at most `enough` is taken, and once it waits, to be told, until at most `ample`
    /// is; `None` when the run has ended.
    fn wait_until(&self, halt: &Halt, enough: u64, ample: u64) -> Option<MutexGuard<'_, State>> {
        let mut state = lock(&self.state);
        while state.used > enough {
            if halt.stopped() {
                return None;
            }
            state.awaited.push(ample);
            state = wait(&self.freed, state);
            if let Some(mine) = state.awaited.iter().position(|&most| most == ample) {
                state.awaited.swap_remove(mine);
            }
        }
        Some(state)
    }
}

/// Bounds on the directories that are held open because something in them is in flight.
pub(super) struct OpenDirectories {
    /// Descriptors.
    pub(super) count: Credit,
    /// Bytes of their paths.
    pub(super) paths: Credit,
    /// Most directories that stay open because the comparison has not come to them.
    pub(super) most_waiting: u64,
}

impl OpenDirectories {
    /// Makes the bounds of a run in a process that may open so many files.
    pub(super) fn new(nofile_limit: u64) -> Self {
        let beyond = nofile_limit.saturating_sub(COMMON_LIMIT);
        Self {
            count: Credit::new((nofile_limit / 4).clamp(8, MAX_OPEN_DIRECTORIES)),
            paths: Credit::new(MAX_OPEN_PATH_BYTES),
            most_waiting: (beyond / 4).min(MAX_OPEN_DIRECTORIES),
        }
    }

    /// Releases the credit of a directory whose path has so many bytes.
    pub(super) fn close(&self, path_bytes: u64) {
        self.count.release();
        self.paths.give(path_bytes);
    }
}

/// Directories held open, unless the descriptor limit is lower.
const MAX_OPEN_DIRECTORIES: u64 = 1024;
/// The limit of open files that a process has if nobody raised it. It may do many runs at once, so within
/// it none holds open what it can open again.
const COMMON_LIMIT: u64 = 1024;

/// One listing message whose files are in flight; when the last is done the source may forget it.
pub(super) struct PartTicket {
    /// `None` when the source counts it as forgotten already.
    number: Option<u64>,
    pending: std::sync::atomic::AtomicU64,
    /// Memory for the attribute sets of its entries, until the last of its files is done.
    sets: Option<Arc<Held>>,
}

impl PartTicket {
    /// Makes a ticket held once by the planner.
    pub(super) fn new(number: Option<u64>) -> Self {
        Self { number, pending: std::sync::atomic::AtomicU64::new(1), sets: None }
    }

    /// Keeps the memory that was taken for the attribute sets of its entries.
    pub(super) fn holding(mut self, sets: Option<Arc<Held>>) -> Self {
        self.sets = sets;
        self
    }

    /// Returns the memory that was taken for the attribute sets of its entries, to be kept with one
    /// of them.
    pub(super) fn sets(&self) -> Option<Arc<Held>> {
        self.sets.clone()
    }

    pub(super) fn hold(&self) {
        self.pending.fetch_add(1, std::sync::atomic::Ordering::AcqRel);
    }

    pub(super) fn release(&self, control: &ControlOut) -> Result<(), SyncError> {
        let done = self.pending.fetch_sub(1, std::sync::atomic::Ordering::AcqRel) == 1;
        match self.number.filter(|_| done) {
            Some(part) => control.queue(&ControlMessage::ListingDone { part }),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_who_wait_are_told_once_there_is_what_they_wait_for() {
        let mut state = State { used: 100, awaited: Vec::new() };
        assert!(!state.give(10));
        state.awaited = vec![0, 50];
        let told = Vec::from_iter((0..90).filter(|_| state.give(1)));
        assert_eq!(told, [39, 89]);
    }

    #[test]
    fn more_than_the_limit_is_taken_by_itself() {
        let credit = Credit::new(10);
        assert!(credit.try_take(20));
        assert!(!credit.try_take(1));
        credit.give(20);
        assert!(credit.try_take(1));
    }
}
