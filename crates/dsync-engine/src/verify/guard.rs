//! A listener to a verification whose panic ends the verification and nothing else, whichever thread
//! calls it. Every callback goes through one of these, as those of a run go through `observe::Guarded`.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::OnceLock,
};

use dsync_wire::event::Progress;

use super::{AgesProblem, Finding, VerifyError, VerifyObserver};
use crate::{CancelToken, halt::panic_text};

/// Runs a verification with a guarded observer, and with a token that its panic cancels.
///
/// # Errors
/// [`VerifyError::Aborted`] if the observer panicked, else those of the work.
pub(super) fn guarded<T>(
    observer: &dyn VerifyObserver,
    cancel: &CancelToken,
    work: impl FnOnce(&dyn VerifyObserver, &CancelToken) -> Result<T, VerifyError>,
) -> Result<T, VerifyError> {
    let guarded = Guarded { observer, cancel: cancel.part(), panicked: OnceLock::new() };
    let outcome = work(&guarded, &guarded.cancel);

    match guarded.panicked.into_inner() {
        Some(message) => Err(VerifyError::Aborted { message }),
        None => outcome,
    }
}

struct Guarded<'a> {
    observer: &'a dyn VerifyObserver,
    cancel: CancelToken,
    /// The text of the first panic.
    panicked: OnceLock<String>,
}

impl Guarded<'_> {
    fn call(&self, callback: impl FnOnce(&dyn VerifyObserver)) {
        if self.panicked.get().is_some() {
            return;
        }
        if let Err(payload) = catch_unwind(AssertUnwindSafe(|| callback(self.observer))) {
            let _ = self.panicked.set(panic_text(payload.as_ref()));
            self.cancel.cancel();
        }
    }
}

impl VerifyObserver for Guarded<'_> {
    fn finding(&self, finding: &Finding) {
        self.call(|observer| observer.finding(finding));
    }

    fn progress(&self, progress: &Progress) {
        self.call(|observer| observer.progress(progress));
    }

    fn ages(&self, problem: &AgesProblem) {
        self.call(|observer| observer.ages(problem));
    }
}
