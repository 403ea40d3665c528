//! The threads that write to the destination, counted.
//!
//! The law: the peer hears of a failure once nothing writes any more and the destination is let go.
//! So whoever is told may look there, and start the next run, at once. A thread that waits for the
//! peer counts only while it does as a message says: it could not end before the peer hangs up.

use std::{
    sync::{Condvar, Mutex, PoisonError},
    time::Duration,
};

use super::lock;

/// The count of the writers of one run.
#[derive(Default)]
pub(crate) struct Writers {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    writing: usize,
    /// Somebody waits for the last writer, and lets the destination go then.
    awaited: bool,
    /// Nobody may begin to write.
    over: bool,
}

/// A thread that may write, as long as this lives.
pub(crate) struct Writing<'a>(&'a Writers);

impl Drop for Writing<'_> {
    fn drop(&mut self) {
        lock(&self.0.state).writing -= 1;
        self.0.changed.notify_all();
    }
}

impl Writers {
    /// Counts a writer; `None` once the last one has ended.
    pub(crate) fn enter(&self) -> Option<Writing<'_>> {
        let mut state = lock(&self.state);
        if state.over {
            return None;
        }
        state.writing += 1;
        Some(Writing(self))
    }

    /// Notes that the caller lets the destination go when the last writer has ended.
    pub(crate) fn expect(&self) {
        lock(&self.state).awaited = true;
    }

    /// Waits until the last writer has ended. From then on nobody may begin.
    pub(crate) fn wait_for_the_last(&self) {
        let state = lock(&self.state);
        let ended = self.changed.wait_while(state, |state| state.writing > 0);
        ended.unwrap_or_else(PoisonError::into_inner).over = true;
    }

    /// Notes that the destination is let go, or that no failing thread need wait for that.
    pub(crate) fn let_go(&self) {
        lock(&self.state).awaited = false;
        self.changed.notify_all();
    }

    /// Waits until the destination is let go, for at most `limit`.
    pub(super) fn wait_for_letting_go(&self, limit: Duration) {
        let state = lock(&self.state);
        drop(self.changed.wait_timeout_while(state, limit, |state| state.awaited));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_waits_for_letting_go_waits_for_the_last_writer_and_for_nobody_else() {
        let writers = Writers::default();
        // Nobody lets go of anything: a source.
        writers.wait_for_letting_go(Duration::MAX);

        writers.expect();
        let (first, second) = (writers.enter(), writers.enter());
        writers.wait_for_letting_go(Duration::from_millis(1));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                writers.wait_for_the_last();
                assert!(writers.enter().is_none());
                writers.let_go();
            });
            drop((first, second));
            writers.wait_for_letting_go(Duration::MAX);
        });
    }
}
