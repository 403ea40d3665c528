//! Cancelling a run from another thread or a signal handler.

use std::{
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use crate::SyncError;

/// Time that a waiting thread sleeps before it looks again whether it is to stop.
pub(crate) const POLL: Duration = Duration::from_millis(50);

/// A flag that stops a run; clones share it.
///
/// After [`cancel`](Self::cancel) the run ends within about a second with
/// [`SyncError::Cancelled`]. Files already committed stay, no name
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
    /// The text of the panic that set the flag.
    panic: Arc<OnceLock<String>>,
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
        Self { parent: Some(Arc::new(self.clone())), ..Self::default() }
    }

    /// Cancels the work for a panic in code of the program's; the first one's text stays.
    pub(crate) fn panicked(&self, text: String) {
        let _ = self.panic.set(text);
        self.cancel();
    }

    /// Returns the text of the panic, if one cancelled the work.
    pub(crate) fn panic(&self) -> Option<&str> {
        let of_parent = || self.parent.as_ref().and_then(|whole| whole.panic());
        self.panic.get().map(String::as_str).or_else(of_parent)
    }

    /// Returns the reason of work that this token has stopped.
    pub(crate) fn reason(&self) -> SyncError {
        match self.panic() {
            Some(text) => SyncError::Aborted { message: text.to_owned() },
            None => SyncError::Cancelled,
        }
    }
}
