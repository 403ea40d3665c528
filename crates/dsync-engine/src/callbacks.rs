//! Code of the caller's that a run or a verification calls: its first panic ends that work and nothing
//! else, whichever thread makes the call, and nothing is called after it.
//!
//! Nor is anything called once the work is cancelled. Such work does not end well: the caller has not heard
//! all of it.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use crate::{CancelToken, SyncError};

/// The calls of one piece of work. Clones are of the same one.
#[derive(Clone)]
pub(crate) struct Callbacks {
    cancel: CancelToken,
    /// Whether a call was not made because the work was cancelled.
    unheard: Arc<AtomicBool>,
}

impl Callbacks {
    /// Begins the calls of work that `cancel` stops.
    pub(crate) fn new(cancel: &CancelToken) -> Self {
        Self { cancel: cancel.part(), unheard: Arc::default() }
    }

    /// Returns the token that the work listens to: a panic cancels it.
    pub(crate) fn cancel(&self) -> &CancelToken {
        &self.cancel
    }

    /// Makes a call; `None` if it panics, or one before did, or the work is cancelled.
    pub(crate) fn call<T>(&self, callback: impl FnOnce() -> T) -> Option<T> {
        // A panic cancels the work.
        if self.cancel.is_cancelled() {
            self.unheard.store(true, Ordering::Release);
            return None;
        }
        match catch_unwind(AssertUnwindSafe(callback)) {
            Ok(returned) => Some(returned),
            Err(payload) => {
                self.cancel.panicked(panic_text(payload.as_ref()));
                None
            }
        }
    }

    /// Returns whether the caller lacks a call of work that was cancelled.
    pub(crate) fn lack(&self) -> bool {
        self.unheard.load(Ordering::Acquire)
    }

    /// Returns the text of the first panic.
    pub(crate) fn panic(&self) -> Option<String> {
        self.cancel.panic().map(ToOwned::to_owned)
    }
}

/// Returns the text of a panic.
pub(crate) fn panic_text(payload: &(dyn std::any::Any + Send)) -> String {
    if let Some(text) = payload.downcast_ref::<&str>() {
        (*text).to_owned()
    } else if let Some(text) = payload.downcast_ref::<String>() {
        text.clone()
    } else {
        "no message".to_owned()
    }
}

/// Does work that calls code of the program's. A panic is [`SyncError::Aborted`].
pub(crate) fn caught<T>(work: impl FnOnce() -> Result<T, SyncError>) -> Result<T, SyncError> {
    catch_unwind(AssertUnwindSafe(work))
        .unwrap_or_else(|panic| Err(SyncError::Aborted { message: panic_text(panic.as_ref()) }))
}
