//! The threads for work that fills processors: sums of old files, hashes and attributes of a
//! listing.
//!
//! They belong to whoever made the value, not to the process: a program that embeds the engine
//! keeps its own pools, and runs that are given clones of one value share its threads.

use std::{
    fmt, io,
    num::NonZero,
    sync::{Arc, OnceLock},
    thread::available_parallelism,
};

use crate::SyncError;

/// A pool of threads that runs can share; clones are the same pool. The threads start with the
/// first work and end with the last clone.
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

struct Inner {
    /// The number of threads; one for each processor if it is not set.
    threads: Option<NonZero<usize>>,
    pool: OnceLock<Option<rayon::ThreadPool>>,
}

impl Workers {
    /// Makes a pool of so many threads, none of which runs yet.
    pub fn new(threads: NonZero<usize>) -> Self {
        Self(Arc::new(Inner { threads: Some(threads), pool: OnceLock::new() }))
    }

    /// Makes another pool of as many threads, none of which runs yet: they get the rights of the thread
    /// that gives them their first work.
    pub(crate) fn apart(&self) -> Self {
        Self(Arc::new(Inner { threads: self.0.threads, pool: OnceLock::new() }))
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
        let pool = self.0.pool.get_or_init(|| start().ok());
        let pool = pool.as_ref().ok_or_else(|| SyncError::Thread {
            source: io::Error::new(io::ErrorKind::WouldBlock, "no more threads can be started"),
        })?;
        Ok(pool.install(work))
    }
}

impl Default for Workers {
    /// Makes a pool with a thread for each processor; two where their number is not known.
    fn default() -> Self {
        Self(Arc::new(Inner { threads: None, pool: OnceLock::new() }))
    }
}

impl fmt::Debug for Workers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Workers").field("threads", &self.0.threads).finish_non_exhaustive()
    }
}
