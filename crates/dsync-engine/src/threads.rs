//! The threads of a run. The system may refuse each, and no refusal is a panic.
//!
//! The law: everything in this crate that runs beside its caller is started here. So a process that has
//! as many threads as it may have gets [`SyncError::Thread`], and its runs end.

use std::{
    io,
    thread::{Builder, Scope, ScopedJoinHandle},
};

use crate::SyncError;

/// Starts a thread that the scope waits for.
///
/// # Errors
/// [`SyncError::Thread`]; `work` is dropped then.
pub(crate) fn spawn_scoped<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    name: &str,
    work: impl FnOnce() -> T + Send + 'scope,
) -> Result<ScopedJoinHandle<'scope, T>, SyncError> {
    let work = permitted(work)?;
    named(name).spawn_scoped(scope, work).map_err(refused)
}

/// Starts a thread that nobody waits for.
///
/// # Errors
/// [`SyncError::Thread`]; `work` is dropped then.
pub(crate) fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> Result<(), SyncError> {
    let work = permitted(work)?;
    named(name).spawn(work).map(drop).map_err(refused)
}

fn named(name: &str) -> Builder {
    Builder::new().name(name.to_owned())
}

fn refused(source: io::Error) -> SyncError {
    SyncError::Thread { source }
}

#[cfg(not(test))]
#[expect(clippy::unnecessary_wraps, reason = "a test has a number of threads to start")]
fn permitted<T>(work: impl FnOnce() -> T + Send) -> Result<impl FnOnce() -> T + Send, SyncError> {
    Ok(work)
}

#[cfg(test)]
use self::limited::permitted;

/// A system that refuses threads, for a test's own.
#[cfg(test)]
pub(crate) mod limited {
    use std::{
        cell::RefCell,
        io,
        sync::{
            Arc,
            atomic::{AtomicUsize, Ordering},
        },
    };

    use super::refused;
    use crate::SyncError;

    thread_local! {
        /// The number of threads that this one and those that it has started may still start.
        static LEFT: RefCell<Option<Arc<AtomicUsize>>> = const { RefCell::new(None) };
    }

    /// Does work during which only so many threads can be started, by the caller and by those.
    pub(crate) fn with_room_for<T>(threads: usize, work: impl FnOnce() -> T) -> T {
        LEFT.set(Some(Arc::new(AtomicUsize::new(threads))));
        let done = work();
        LEFT.set(None);
        done
    }

    pub(super) fn permitted<T>(
        work: impl FnOnce() -> T + Send,
    ) -> Result<impl FnOnce() -> T + Send, SyncError> {
        let left = LEFT.with_borrow(Clone::clone);
        let takes_one = |left: usize| left.checked_sub(1);
        if let Some(left) = &left
            && left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, takes_one).is_err()
        {
            return Err(refused(io::ErrorKind::WouldBlock.into()));
        }
        Ok(move || {
            LEFT.set(left);
            work()
        })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::disallowed_methods)]
mod tests;
