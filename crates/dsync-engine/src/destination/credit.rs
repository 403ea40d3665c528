//! Counting limits: how much the destination lets be under way at once.
//!
//! Each bound protects one resource: open directories (descriptors), signature bytes (the source's
//! memory), listed entries (both ends' memory). A bound always admits one piece, however large, so no
//! single file can block a run.

use std::sync::{Condvar, Mutex, MutexGuard};

use dsync_wire::message::ControlMessage;

use crate::{
    SyncError,
    halt::{Halt, lock, wait},
    session::ControlOut,
};

/// A counting semaphore that gives up when the run has ended.
pub(super) struct Credit {
    limit: u64,
    state: Mutex<State>,
    freed: Condvar,
}

#[derive(Default)]
struct State {
    used: u64,
    /// Threads that wait: telling nobody would cost a system call for each file.
    waiting: usize,
}

impl Credit {
    pub(super) fn new(limit: u64) -> Self {
        Self { limit, state: Mutex::default(), freed: Condvar::new() }
    }

    /// How much may be taken.
    pub(super) fn limit(&self) -> u64 {
        self.limit
    }

    /// Takes `amount`, waiting for it. False when the run has ended.
    pub(super) fn take(&self, amount: u64, halt: &Halt) -> bool {
        let Some(mut state) =
            self.wait_while(halt, |used| used > 0 && used.saturating_add(amount) > self.limit)
        else {
            return false;
        };
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

    /// Gives `amount` back.
    pub(super) fn give(&self, amount: u64) {
        let mut state = lock(&self.state);
        state.used = state.used.saturating_sub(amount);
        let waiting = state.waiting > 0;
        drop(state);
        if waiting {
            self.freed.notify_all();
        }
    }

    /// Gives one back.
    pub(super) fn release(&self) {
        self.give(1);
    }

    /// Waits until nothing is taken. False when the run has ended.
    pub(super) fn drained(&self, halt: &Halt) -> bool {
        self.wait_while(halt, |used| used > 0).is_some()
    }

    /// Waits while `is_short` is true of what is taken; `None` when the run has ended.
    fn wait_while(&self, halt: &Halt, is_short: impl Fn(u64) -> bool) -> Option<MutexGuard<'_, State>> {
        let mut state = lock(&self.state);
        while is_short(state.used) {
            if halt.stopped() {
                return None;
            }
            state.waiting += 1;
            state = wait(&self.freed, state);
            state.waiting -= 1;
        }
        Some(state)
    }
}

/// One listing message whose files are under way; when the last is done the source may forget it.
pub(super) struct PartTicket {
    /// `None` when the source counts it as forgotten already.
    number: Option<u64>,
    pending: std::sync::atomic::AtomicU64,
}

impl PartTicket {
    /// A ticket held once by the planner.
    pub(super) fn new(number: Option<u64>) -> Self {
        Self { number, pending: std::sync::atomic::AtomicU64::new(1) }
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
