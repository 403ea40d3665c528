//! The steps of a session's beginning, each in time, and none after the run is cancelled.
//!
//! Until the watch of a session begins nothing else would notice a peer whose carrier lives and who
//! sends nothing. Law: whatever this end waits for before the watch is waited for in here.

use std::{
    sync::OnceLock,
    time::{Duration, Instant},
};

use crossbeam_channel::{RecvTimeoutError, bounded};

use super::life::Life;
use crate::{CancelToken, SyncError, cancel::POLL, threads};

/// The time limit of a run in this process, which has no network that could go silent.
pub(crate) const NO_TIMEOUT: Duration = Duration::from_secs(u32::MAX as u64);

/// The times that a step of a session's beginning may take.
#[derive(Debug, Clone, Copy)]
pub(super) struct Patience {
    /// The step itself, whatever the peer says meanwhile.
    pub(super) step: Duration,
    /// Silence of the peer; `None` where the peer says nothing.
    pub(super) silence: Option<Duration>,
}

impl Patience {
    /// Returns whether the step may take any time.
    pub(super) fn is_endless(self) -> bool {
        self.step == NO_TIMEOUT && self.silence.is_none_or(|silence| silence == NO_TIMEOUT)
    }

    /// Checks that a step that began then may go on.
    pub(super) fn check(self, began: Instant, life: &Life, cancel: &CancelToken) -> Result<(), SyncError> {
        let lasted = began.elapsed();
        match self.silence {
            _ if cancel.is_cancelled() => Err(cancel.reason()),
            // Nobody has listened before.
            Some(silence) if life.silence().min(lasted) >= silence => {
                Err(SyncError::Timeout { after: silence })
            }
            _ if lasted >= self.step => Err(SyncError::Stalled { after: self.step }),
            _ => Ok(()),
        }
    }
}

/// Does a step; calls `cut`, which ends it, with the first error of `check`. That is the step's own
/// then.
pub(super) fn watched<T>(
    check: impl Fn() -> Result<(), SyncError> + Sync,
    cut: impl Fn(&SyncError) + Sync,
    step: impl FnOnce() -> Result<T, SyncError>,
) -> Result<T, SyncError> {
    let cause = OnceLock::new();
    let (over_tx, over) = bounded::<()>(0);
    let watch = || {
        while over.recv_timeout(POLL) == Err(RecvTimeoutError::Timeout) {
            if let Err(error) = check() {
                cut(&error);
                let _ = cause.set(error);
                return;
            }
        }
    };

    let result = std::thread::scope(|scope| {
        threads::spawn_scoped(scope, "opening", watch)?;
        let result = step();
        drop(over_tx);
        result
    });
    match (result, cause.into_inner()) {
        (Ok(_) | Err(SyncError::Link(_)), Some(cause)) => Err(cause),
        (result, _) => result,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::Arc;

    use dsync_wire::link::{CloseReason, Link};

    use super::*;

    /// Waits for a peer that says nothing; returns how that ends.
    fn wait(patience: Patience, cancel: &CancelToken) -> SyncError {
        let (here, _there) = dsync_transport::memory::pair();
        let here: Arc<dyn Link> = Arc::new(here);
        let (began, life) = (Instant::now(), Life::new());
        let listen = || Ok(here.accept_lane().map(drop)?);
        let check = || patience.check(began, &life, cancel);
        watched(check, |_| here.close(CloseReason::Failed), listen).unwrap_err()
    }

    #[test]
    fn a_silent_peer_is_waited_for_until_its_time_is_over_or_the_run_is_cancelled() {
        let cancel = CancelToken::new();
        let long = Duration::from_secs(600);
        let late = wait(Patience { step: long, silence: Some(POLL) }, &cancel);
        assert!(matches!(late, SyncError::Timeout { after } if after == POLL), "{late:?}");
        let late = wait(Patience { step: POLL, silence: None }, &cancel);
        assert!(matches!(late, SyncError::Stalled { after } if after == POLL), "{late:?}");

        cancel.cancel();
        for limit in [long, Duration::MAX] {
            let cancelled = wait(Patience { step: limit, silence: Some(limit) }, &cancel);
            assert!(matches!(cancelled, SyncError::Cancelled), "{cancelled:?}");
        }
    }

    #[test]
    fn silence_counts_from_the_last_sign_of_life() {
        let patience = Patience { step: NO_TIMEOUT, silence: Some(Duration::from_secs(60)) };
        let began = Instant::now().checked_sub(Duration::from_secs(3600)).unwrap();
        let life = Life { started: began, heard_ms: Default::default() };
        let cancel = CancelToken::new();
        assert!(patience.check(began, &life, &cancel).is_err());
        life.note();
        patience.check(began, &life, &cancel).unwrap();
    }
}
