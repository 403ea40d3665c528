//! The threads that runs share: those for work that fills processors (sums of old files, hashes and
//! attributes of a listing), those that carry the bytes of connections, and those for what is done now
//! and then.
//!
//! They belong to whoever made the value, not to the process: a program that embeds the engine
//! keeps its own pools, and runs that are given clones of one value share its threads.

use std::{
    fmt, io,
    num::NonZero,
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    thread::available_parallelism,
};

use dsync_transport::Carriers;

use crate::{SyncError, clock::Clock};

/// Threads that runs can share; clones are the same threads. They start with the first work and end
/// with the last clone.
///
/// Beside the pool for work that fills processors there are threads that carry the bytes of connections, at
/// most one for each processor, and a few that watch peers and show signs of life.
///
/// ```
/// use dsync_engine::{Resources, Workers};
/// use std::num::NonZero;
///
/// // Twenty jobs, four threads between them.
/// let workers = Workers::new(NonZero::<usize>::MIN.saturating_add(3));
/// let resources: Vec<_> =
///     (0..20).map(|_| Resources::default().workers(workers.clone())).collect();
/// # assert_eq!(resources.len(), 20);
/// ```
#[derive(Clone)]
pub struct Workers(Arc<Inner>);

#[derive(Default)]
struct Inner {
    /// The number of threads; one for each processor if it is not set.
    threads: Option<NonZero<usize>>,
    /// Unset until its threads have started.
    pool: OnceLock<rayon::ThreadPool>,
    /// Held by whoever starts the pool, so that no other run starts one meanwhile.
    starting: Mutex<()>,
    carriers: Carriers,
    clock: Clock,
    /// The number of threads beyond the first of their kind that sessions have.
    extras: AtomicUsize,
}

impl Workers {
    /// Makes a pool of so many threads, none of which runs yet.
    pub fn new(threads: NonZero<usize>) -> Self {
        Self(Arc::new(Inner { threads: Some(threads), ..Inner::default() }))
    }

    /// Makes another pool of as many threads, none of which runs yet: they get the rights of the thread
    /// that gives them their first work.
    pub(crate) fn apart(&self) -> Self {
        Self(Arc::new(Inner { threads: self.0.threads, ..Inner::default() }))
    }

    /// Returns the threads that carry bytes for connections.
    pub(crate) fn carriers(&self) -> &Carriers {
        &self.0.carriers
    }

    /// Returns the threads for what sessions do now and then.
    pub(crate) fn clock(&self) -> &Clock {
        &self.0.clock
    }

    /// Returns a place for a further thread of a kind that a session has one of, if there is one left.
    pub(crate) fn extra(&self) -> Option<Extra> {
        let most = (2 * dsync_fs::processors()).max(MIN_EXTRAS);
        let one_more = |extras: usize| (extras < most).then_some(extras + 1);
        let extras = &self.0.extras;
        extras.fetch_update(Ordering::AcqRel, Ordering::Acquire, one_more).ok()?;
        Some(Extra(Arc::clone(&self.0)))
    }

    /// Runs `work` on the pool, where its parallel iterators use all threads; returns its result.
    pub(crate) fn install<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, SyncError> {
        let start = || {
            // Looked up with the first work, which a run without changes has none of.
            let known = || available_parallelism().map_or(2, NonZero::get);
            rayon::ThreadPoolBuilder::new()
                .num_threads(self.0.threads.map_or_else(known, NonZero::get))
                .thread_name(|number| format!("dsync-work-{number}"))
                .build()
        };
        let pool = self.pool(|| start().ok()).ok_or_else(|| SyncError::Thread {
            source: io::Error::new(io::ErrorKind::WouldBlock, "no more threads can be started"),
        })?;
        Ok(pool.install(work))
    }

    /// Returns the pool, which `start` makes if there is none yet. A failure is not kept: the system may
    /// have threads again at the next call.
    fn pool(&self, start: impl FnOnce() -> Option<rayon::ThreadPool>) -> Option<&rayon::ThreadPool> {
        if let Some(pool) = self.0.pool.get() {
            return Some(pool);
        }

        let _starting = self.0.starting.lock().unwrap_or_else(PoisonError::into_inner);
        if self.0.pool.get().is_none() {
            // Nobody else sets it meanwhile.
            let _: Result<(), _> = self.0.pool.set(start()?);
        }
        self.0.pool.get()
    }
}

/// A place for a further thread, as long as this lives.
pub(crate) struct Extra(Arc<Inner>);

impl Drop for Extra {
    fn drop(&mut self) {
        self.0.extras.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Default for Workers {
    /// Makes a pool with a thread for each processor; two where their number is not known.
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl fmt::Debug for Workers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Workers").field("threads", &self.0.threads).finish_non_exhaustive()
    }
}

/// Places for further threads, at the least: a session over QUIC on a long path has all that it can use.
const MIN_EXTRAS: usize = 16;

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn pool_that_could_not_start_is_tried_again() {
        let workers = Workers::new(NonZero::<usize>::MIN);
        assert!(workers.pool(|| None).is_none());
        assert_eq!(workers.install(|| 7).unwrap(), 7);
        assert!(workers.pool(|| None).is_some(), "a pool that runs is kept");
    }
}
