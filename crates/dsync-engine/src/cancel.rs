//! Cancelling a run from another thread or a signal handler.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

/// Time that a waiting thread sleeps before it looks again whether it is to stop.
pub(crate) const POLL: Duration = Duration::from_millis(50);

/// A flag that stops a run; clones share it.
///
/// After [`cancel`](Self::cancel) the run ends within about a second with
/// [`SyncError::Cancelled`](crate::SyncError::Cancelled). Files already committed stay, no name
/// holds a mix of old and new, and temporaries are removed.
///
/// ```
/// use dsync_engine::{CancelToken, Destination, Job, Silent, Source, SyncError};
///
/// # let home = tempfile::tempdir()?;
/// # let (from, to) = (home.path().join("from"), home.path().join("to"));
/// # std::fs::create_dir(&from)?;
/// # std::fs::write(from.join("note"), "short")?;
/// let cancel = CancelToken::new();
/// // A signal handler of the program has a clone.
/// let on_signal = cancel.clone();
/// on_signal.cancel();
///
/// let source = Source::Local { paths: vec![from.join("")] };
/// let ended = Job::new(source, Destination::Local { path: to }).run(&Silent, &cancel);
/// assert!(cancel.is_cancelled() && matches!(ended, Err(SyncError::Cancelled)));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct CancelToken {
    flag: Arc<AtomicBool>,
    /// The token of which this one is a part.
    parent: Option<Arc<Self>>,
}

impl CancelToken {
    /// Creates a token that is not cancelled.
    pub fn new() -> Self {
        Self::default()
    }

    /// Cancels every run that was given this token or a clone. Async-signal-safe.
    pub fn cancel(&self) {
        self.flag.store(true, Ordering::Release);
    }

    /// Returns whether [`cancel`](Self::cancel) was called.
    pub fn is_cancelled(&self) -> bool {
        self.flag.load(Ordering::Acquire) || self.parent.as_ref().is_some_and(|whole| whole.is_cancelled())
    }

    /// Returns a token that is cancelled with this one, and can be cancelled without it.
    pub(crate) fn part(&self) -> Self {
        Self { flag: Arc::default(), parent: Some(Arc::new(self.clone())) }
    }
}
