//! One run has many threads and ends once: the first failure wins and wakes all the others.
//!
//! A thread that cannot go on calls [`Halt::fail`]. That records the error if it is the first,
//! waits until the destination is let go, tells the peer, and closes the link, so that every thread blocked on a lane returns; threads
//! that wait for something else poll [`Halt::stopped`]. Errors that follow from the closing are
//! thus never reported.

mod writers;

use std::{
    panic::{self, AssertUnwindSafe},
    sync::{
        Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::{Scope, ScopedJoinHandle},
    time::{Duration, Instant},
};

use crossbeam_channel::bounded;
use dsync_wire::{
    link::{CloseReason, Link, LinkError},
    message::ControlMessage,
};

pub(crate) use self::writers::{Writers, Writing};
use crate::{
    SyncError,
    callbacks::panic_text,
    error::Wording,
    schedule::{Point, point},
    session::ControlOut,
    threads,
};

pub(crate) use crate::cancel::POLL;

/// Time for the peer of a run that is cancelled, or whose peer breaks the protocol, to hear a farewell, and again to
/// hang up.
const FAREWELL: Duration = Duration::from_millis(500);

/// The same for any other failure: without its reason the peer takes that for a broken connection. A packet that is
/// lost on a long path, or a busy machine, takes seconds; a peer that lives hangs up as soon as it has heard.
const PARTING: Duration = Duration::from_secs(10);

/// Time for this end's threads to let its destination go before the peer is told of a failure.
const LETTING_GO: Duration = Duration::from_secs(3);

/// The shared end of a run.
pub(crate) struct Halt {
    link: Arc<dyn Link>,
    control: Arc<ControlOut>,
    stopped: Arc<AtomicBool>,
    /// The error that ended the run: the first cause, else a symptom.
    end: Mutex<Option<SyncError>>,
    changed: Condvar,
    wording: OnceLock<Wording>,
    /// The features of the peer, as far as they are known.
    peer_features: AtomicU64,
    writers: Writers,
}

impl Halt {
    /// Makes the halt of a run over `link`.
    pub(crate) fn new(link: Arc<dyn Link>, control: Arc<ControlOut>) -> Self {
        let (stopped, end, wording, writers, peer_features) = Default::default();
        Self { link, control, stopped, end, changed: Condvar::new(), wording, peer_features, writers }
    }

    /// Sets the words in which the peer is told why a run ends; the first ones stay.
    pub(crate) fn set_wording(&self, wording: Wording) {
        let _ = self.wording.set(wording);
    }

    /// Takes the features that the peer's hello names.
    pub(crate) fn know_peer(&self, features: u64) {
        self.peer_features.store(features, Ordering::Release);
    }

    /// Returns the flag behind [`stopped`](Self::stopped), for work that knows of no run.
    pub(crate) fn stop_flag(&self) -> &Arc<AtomicBool> {
        &self.stopped
    }

    /// Ends the run with `error`, unless a cause is known already.
    ///
    /// A broken lane or link is a symptom: the peer hangs up a lane when it fails, and its reason
    /// is then on the way over the control lane. So a symptom waits a moment for a cause to take
    /// its place.
    pub(crate) fn fail(&self, error: SyncError) {
        self.stopped.store(true, Ordering::Release);
        match error {
            // The error that this end's own closing causes in another thread, and the controller's
            // closing when it has the report.
            SyncError::Link(LinkError::Closed | LinkError::PeerClosed { reason: CloseReason::Done }) => {
                lock(&self.end).get_or_insert(error);
            }
            SyncError::Link(_) => self.suffer(error),
            cause => self.end_with(cause),
        }
    }

    /// Takes a symptom. One that follows a cause changes nothing: who failed closes the link.
    fn suffer(&self, symptom: SyncError) {
        let mut end = lock(&self.end);
        if !is_symptom(end.as_ref()) {
            return;
        }
        if end.as_ref().is_none_or(|first| matches!(first, SyncError::Link(LinkError::Closed))) {
            tracing::debug!(error = %symptom, "the connection broke");
            *end = Some(symptom);
        }
        let (end, _) = self
            .changed
            .wait_timeout_while(end, FAREWELL, |end| is_symptom(end.as_ref()))
            .unwrap_or_else(PoisonError::into_inner);
        if is_symptom(end.as_ref()) {
            drop(end);
            self.link.close(CloseReason::Failed);
        }
    }

    /// Takes a cause; the first one stays.
    fn end_with(&self, cause: SyncError) {
        let reason = match &cause {
            SyncError::Cancelled => CloseReason::Cancelled,
            SyncError::PeerMisbehaved(_) => CloseReason::Protocol,
            _ => CloseReason::Failed,
        };
        // Who cancels waits for this end, and not for its peer.
        let (letting_go, parting) = match cause {
            SyncError::Cancelled => (FAREWELL, FAREWELL),
            SyncError::PeerMisbehaved(_) => (LETTING_GO, FAREWELL),
            _ => (LETTING_GO, PARTING),
        };
        let silent = matches!(cause, SyncError::Peer { .. } | SyncError::Timeout { .. });
        let fatal = (!silent).then(|| {
            let wording = self.wording.get().copied().unwrap_or_default();
            let peer_features = self.peer_features.load(Ordering::Acquire);
            crate::session::fatal(&cause, wording, peer_features)
        });

        {
            let mut end = lock(&self.end);
            if !is_symptom(end.as_ref()) {
                return;
            }
            tracing::debug!(error = %cause, "the run ends");
            *end = Some(cause);
            self.changed.notify_all();
        }
        if let Some(fatal) = fatal {
            self.writers.wait_for_letting_go(letting_go);
            self.farewell(fatal, parting);
        }

        self.link.close(reason);
    }

    /// Tells the peer the reason, and waits for it to hang up, because closing discards the data on
    /// its way.
    fn farewell(&self, fatal: ControlMessage, patience: Duration) {
        let (step_tx, step) = bounded(2);
        let fatal = Arc::new(fatal);
        // On its own thread: the trouble that ends the run may block the control lane. It ends with the link.
        let start = || {
            let (control, link) = (Arc::clone(&self.control), Arc::clone(&self.link));
            let (fatal, step) = (Arc::clone(&fatal), step_tx.clone());
            threads::spawn("farewell", move || {
                // Behind what other threads are sending; nothing follows it.
                let _ = control.send_last(&fatal);
                let _ = step.send(Parting::Told);
                while link.accept_lane().is_ok() {}
                let _ = step.send(Parting::HungUp);
            })
        };

        // The trouble may be that the system starts no thread: the run's others end now and make room. A
        // peer that hears nothing still sees the link closed.
        let until = Instant::now() + FAREWELL;
        while start().is_err() {
            if Instant::now() >= until {
                return;
            }
            std::thread::sleep(POLL);
        }
        if step.recv_timeout(patience) == Ok(Parting::Told) {
            let _ = step.recv_timeout(patience);
        }
    }

    /// Returns the count of the threads that write to this end's destination.
    pub(crate) fn writers(&self) -> &Writers {
        &self.writers
    }

    /// Notes that the run has failed, if this is a failure: before the thread that failed counts as
    /// ended, so that who waits for the last writer knows it. The caller fails with the error.
    pub(crate) fn stop_if_failed<T>(&self, outcome: Result<T, SyncError>) -> Result<T, SyncError> {
        if outcome.is_err() {
            self.stopped.store(true, Ordering::Release);
        }
        outcome
    }

    /// Returns whether a thread has failed.
    pub(crate) fn stopped(&self) -> bool {
        self.stopped.load(Ordering::Acquire)
    }

    /// Returns whether the run ended with an error like this.
    pub(crate) fn ended_with(&self, like: impl FnOnce(&SyncError) -> bool) -> bool {
        lock(&self.end).as_ref().is_some_and(like)
    }

    /// Takes the error that ended the run, if one did.
    pub(crate) fn result(&self) -> Result<(), SyncError> {
        lock(&self.end).take().map_or(Ok(()), Err)
    }

    /// Runs `work`; its error, or its panic, ends the run.
    pub(crate) fn guard<T>(&self, work: impl FnOnce() -> Result<T, SyncError>) -> Option<T> {
        caught(work).map_err(|error| self.fail(error)).ok()
    }

    /// Runs `work`, whose error or panic ends the run when the caller fails with it: the others stop
    /// already.
    pub(crate) fn attempt<T>(&self, work: impl FnOnce() -> Result<T, SyncError>) -> Result<T, SyncError> {
        self.stop_if_failed(caught(work))
    }

    /// Runs `work` on a named thread; its error, or its panic, ends the run.
    pub(crate) fn spawn<'scope, 'env, F>(
        &'env self,
        scope: &'scope Scope<'scope, 'env>,
        name: &'static str,
        work: F,
    ) -> Option<ScopedJoinHandle<'scope, ()>>
    where
        F: FnOnce() -> Result<(), SyncError> + Send + 'scope,
    {
        let body = move || {
            point(Point::Begin);
            self.guard(work);
            point(Point::End);
        };

        threads::spawn_scoped(scope, name, body).map_err(|error| self.fail(error)).ok()
    }

    /// Returns `work` as that of a thread that writes, which counts from now until it has ended.
    pub(crate) fn as_writer<'a>(
        &'a self,
        work: impl FnOnce() -> Result<(), SyncError> + Send + 'a,
    ) -> impl FnOnce() -> Result<(), SyncError> + Send + 'a {
        let writing = self.writers.enter();
        move || {
            let Some(_writing) = writing else { return Err(SyncError::Link(LinkError::Closed)) };
            self.stop_if_failed(work())
        }
    }
}

/// The steps of a farewell.
#[derive(Debug, PartialEq, Eq)]
enum Parting {
    /// The peer was told.
    Told,
    HungUp,
}

/// Runs `work`; a panic is an error.
fn caught<T>(work: impl FnOnce() -> Result<T, SyncError>) -> Result<T, SyncError> {
    panic::catch_unwind(AssertUnwindSafe(work))
        .unwrap_or_else(|payload| Err(SyncError::Aborted { message: panic_text(payload.as_ref()) }))
}

/// Returns whether no cause is known: a broken link is only a symptom.
fn is_symptom(first: Option<&SyncError>) -> bool {
    first.is_none_or(|first| matches!(first, SyncError::Link(_)))
}

/// Locks, ignoring poison: every panic ends the run anyway.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    point(Point::Lock);
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits for a notification for at most [`POLL`].
pub(crate) fn wait<'a, T>(condition: &Condvar, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
    point(Point::Wait);
    condition.wait_timeout(guard, POLL).unwrap_or_else(PoisonError::into_inner).0
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use dsync_wire::{frame::ControlSender, message::Reason};

    use super::*;

    fn halt() -> (Halt, dsync_transport::memory::MemoryLink) {
        let (here, there) = dsync_transport::memory::pair();
        let here: Arc<dyn Link> = Arc::new(here);
        let control = Arc::new(ControlOut::new(ControlSender::new(here.open_lane().unwrap().tx)));
        (Halt::new(here, control), there)
    }

    #[test]
    fn the_first_failure_wins_and_closes_the_link() {
        let (halt, there) = halt();
        halt.fail(SyncError::Cancelled);
        halt.fail(SyncError::BothRemote);
        assert!(halt.stopped());
        assert!(there.accept_lane().and_then(|_| there.accept_lane()).is_err());
        assert!(matches!(halt.result(), Err(SyncError::Cancelled)));
    }

    #[test]
    fn an_echo_gives_way_to_the_failure_behind_it() {
        let (halt, _there) = halt();
        halt.fail(SyncError::Link(LinkError::Closed));
        halt.fail(SyncError::BothRemote);
        assert!(matches!(halt.result(), Err(SyncError::BothRemote)));
    }

    #[test]
    fn a_symptom_waits_for_its_cause() {
        let (halt, _there) = halt();
        std::thread::scope(|scope| {
            let halt = &halt;
            scope.spawn(|| halt.fail(SyncError::Link(LinkError::Lost)));
            while !halt.stopped() {
                std::thread::yield_now();
            }
            halt.fail(SyncError::Peer {
                exit_code: 11,
                text: "the disk is full".to_owned(),
                reason: Reason::NoSpace,
            });
        });
        assert!(matches!(halt.result(), Err(SyncError::Peer { exit_code: 11, .. })));
    }

    #[test]
    fn a_peer_that_listens_late_hears_the_reason() {
        let (halt, there) = halt();
        std::thread::scope(|scope| {
            scope.spawn(|| halt.fail(SyncError::BothRemote));
            let mut lane = there.accept_lane().unwrap();
            std::thread::sleep(2 * FAREWELL);
            assert!(lane.rx.read(&mut [0; 64]).unwrap() > 0);
            there.close(CloseReason::Done);
        });
        assert!(matches!(halt.result(), Err(SyncError::BothRemote)));
    }

    #[test]
    fn a_panic_ends_the_run_and_not_the_process() {
        let (halt, _there) = halt();
        std::thread::scope(|scope| {
            let halt = &halt;
            let _ = halt.spawn(scope, "panics", || panic!("an observer fell over"));
        });
        let error = halt.result().unwrap_err();
        assert!(matches!(error, SyncError::Aborted { message } if message == "an observer fell over"));
    }
}
