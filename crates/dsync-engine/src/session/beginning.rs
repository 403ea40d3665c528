//! The steps of a session's beginning, each in time, and none after the run is cancelled.
//!
//! Until the watch of a session begins nothing else would notice a peer whose carrier lives and who
//! sends nothing. Law: whatever this end waits for before the watch is waited for in here.

use std::{
    sync::{Arc, OnceLock},
    time::{Duration, Instant},
};

use crossbeam_channel::{RecvTimeoutError, bounded};
use dsync_wire::link::{CloseReason, Link};

use crate::{CancelToken, SyncError, cancel::POLL, threads};

/// The time limit of a run in this process, which has no network that could go silent.
pub(crate) const NO_TIMEOUT: Duration = Duration::from_secs(u32::MAX as u64);

/// Does a step; closes the link, which ends it, when that takes too long or `cancel` says so.
pub(super) fn within<T>(
    link: &Arc<dyn Link>,
    limit: Duration,
    cancel: &CancelToken,
    opening: impl FnOnce() -> Result<T, SyncError>,
) -> Result<T, SyncError> {
    if limit == NO_TIMEOUT {
        return opening();
    }
    let cut = OnceLock::new();
    let (over_tx, over) = bounded::<()>(0);
    let began = Instant::now();
    let watch = || {
        while over.recv_timeout(POLL) == Err(RecvTimeoutError::Timeout) {
            let (error, reason) = if cancel.is_cancelled() {
                (cancel.reason(), CloseReason::Cancelled)
            } else if began.elapsed() >= limit {
                (SyncError::Timeout { after: limit }, CloseReason::Failed)
            } else {
                continue;
            };
            let _ = cut.set(error);
            return link.close(reason);
        }
    };

    let result = std::thread::scope(|scope| {
        threads::spawn_scoped(scope, "opening", watch)?;
        let result = opening();
        drop(over_tx);
        result
    });
    match (result, cut.into_inner()) {
        (Err(SyncError::Link(_)), Some(cut)) => Err(cut),
        (result, _) => result,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// Waits for a peer that says nothing; returns how that ends.
    fn wait(limit: Duration, cancel: &CancelToken) -> SyncError {
        let (here, _there) = dsync_transport::memory::pair();
        let here: Arc<dyn Link> = Arc::new(here);
        let listen = || Ok(here.accept_lane().map(drop)?);
        within(&here, limit, cancel, listen).unwrap_err()
    }

    #[test]
    fn a_silent_peer_is_waited_for_until_its_time_is_over_or_the_run_is_cancelled() {
        let cancel = CancelToken::new();
        let late = wait(POLL, &cancel);
        assert!(matches!(late, SyncError::Timeout { after } if after == POLL), "{late:?}");

        cancel.cancel();
        for limit in [Duration::from_secs(600), Duration::MAX] {
            let cancelled = wait(limit, &cancel);
            assert!(matches!(cancelled, SyncError::Cancelled), "{cancelled:?}");
        }
    }
}
