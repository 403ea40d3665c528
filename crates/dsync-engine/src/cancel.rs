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
    parent: Option<Arc<AtomicBool>>,
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
        let set = |flag: &Arc<AtomicBool>| flag.load(Ordering::Acquire);
        set(&self.flag) || self.parent.as_ref().is_some_and(set)
    }

    /// Returns a token that is cancelled with this one, and can be cancelled without it.
    pub(crate) fn part(&self) -> Self {
        debug_assert!(self.parent.is_none(), "a part of a part");
        Self { flag: Arc::default(), parent: Some(Arc::clone(&self.flag)) }
    }
}
