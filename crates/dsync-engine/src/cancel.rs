//! Cancelling a run from another thread or a signal handler.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

/// A flag that stops a run; clones share it.
///
/// After [`cancel`](Self::cancel) the run ends within about a second with
/// [`SyncError::Cancelled`](crate::SyncError::Cancelled). Files already committed stay, no name
/// holds a mix of old and new, and temporaries are removed.
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
