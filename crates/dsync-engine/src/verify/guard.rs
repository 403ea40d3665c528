//! A listener to a verification whose panic ends the verification. Every callback goes through one of
//! these, as those of a run go through `observe::Guarded`.

use dsync_wire::event::Progress;

use super::{AgesProblem, Finding, VerifyError, VerifyObserver};
use crate::{CancelToken, callbacks::Callbacks};

/// Runs a verification with a guarded observer, and with a token that its panic cancels.
///
/// # Errors
/// [`VerifyError::Aborted`] if the observer panicked, else those of the work.
pub(super) fn guarded<T>(
    observer: &dyn VerifyObserver,
    cancel: &CancelToken,
    work: impl FnOnce(&dyn VerifyObserver, &CancelToken) -> Result<T, VerifyError>,
) -> Result<T, VerifyError> {
    let guarded = Guarded { observer, callbacks: Callbacks::new(cancel) };
    let outcome = work(&guarded, guarded.callbacks.cancel());

    match guarded.callbacks.panic() {
        Some(message) => Err(VerifyError::Aborted { message }),
        None if outcome.is_ok() && guarded.callbacks.lack() => Err(VerifyError::Cancelled),
        None => outcome,
    }
}

struct Guarded<'a> {
    observer: &'a dyn VerifyObserver,
    callbacks: Callbacks,
}

impl Guarded<'_> {
    fn call(&self, callback: impl FnOnce(&dyn VerifyObserver)) {
        self.callbacks.call(|| callback(self.observer));
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
