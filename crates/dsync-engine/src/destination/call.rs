//! The call for the threads that write, in a local run: one without anything to copy starts none of
//! them.
//!
//! The law: whoever hands work to a copier or to the committer calls first, and the planner tells when
//! it is over, however it ends. So whoever waits for the call hears either.

use std::sync::atomic::{AtomicBool, Ordering};

use crossbeam_channel::{Receiver, Sender, unbounded};

/// The calling end.
pub(super) struct Call {
    called: AtomicBool,
    to: Sender<Work>,
}

/// The reason why a wait for the call ends.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Work {
    /// Some is waiting.
    Waits,
    /// No more will come.
    Over,
}

impl Call {
    /// Makes a call that nobody has made, and its waiting end.
    pub(super) fn new() -> (Self, Receiver<Work>) {
        let (to, called) = unbounded();
        (Self { called: AtomicBool::new(false), to }, called)
    }

    /// Calls, if nobody has. Cheap enough for each handing over.
    pub(super) fn work(&self) {
        if !self.called.load(Ordering::Relaxed) && !self.called.swap(true, Ordering::AcqRel) {
            let _ = self.to.send(Work::Waits);
        }
    }

    /// Returns a guard that tells with its end that no more work will come.
    pub(super) fn until_over(&self) -> Over<'_> {
        Over(self)
    }
}

/// The planner while it works.
pub(super) struct Over<'a>(&'a Call);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        let _ = self.0.to.send(Work::Over);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_made_once_and_comes_before_the_end() {
        let (call, waiting) = Call::new();
        {
            let _over = call.until_over();
            call.work();
            call.work();
        }
        let heard: Vec<_> = waiting.try_iter().collect();
        assert!(heard == [Work::Waits, Work::Over]);
    }

    #[test]
    fn a_planner_that_panics_is_over() {
        let (call, waiting) = Call::new();
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _over = call.until_over();
            panic!("a bug");
        }));
        assert!(panicked.is_err() && waiting.recv().unwrap() == Work::Over);
    }
}
