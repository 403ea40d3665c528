//! Whether work has waited for a disk.

use std::time::{Duration, Instant};

use nix::sys::resource::{UsageWho, getrusage};

/// Begun work of one thread.
pub(crate) struct DiskWait {
    started: Instant,
    slept: i64,
}

impl DiskWait {
    /// Begins to watch the calling thread.
    pub(crate) fn begin() -> Self {
        Self { started: Instant::now(), slept: times_slept() }
    }

    /// Returns whether the calling thread has waited for a disk since, while it read so many entries:
    /// it slept, and took longer than in memory. The clock alone is misled where a busy machine takes
    /// the processor away, and a thread sleeps for a lock too.
    pub(crate) fn waited(&self, entries: usize) -> bool {
        let entries = u64::try_from(entries).unwrap_or(u64::MAX);
        let from_memory = LISTING_TIME + Duration::from_micros(entries.saturating_mul(ENTRY_MICROS));
        self.started.elapsed() > from_memory && times_slept() > self.slept
    }
}

/// Returns how often the calling thread gave its processor up by itself; it costs a fifth of a
/// microsecond to ask. Where the system does not tell, nothing ever waits.
fn times_slept() -> i64 {
    getrusage(UsageWho::RUSAGE_THREAD).map_or(0, |usage| usage.voluntary_context_switches())
}

/// Longest time of an empty directory that is in memory: ten times the usual one.
const LISTING_TIME: Duration = Duration::from_micros(100);
/// Longest time of an entry that is in memory, in microseconds: twice the usual one.
const ENTRY_MICROS: u64 = 4;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_only_works_has_not_waited_however_long_it_takes() {
        // A thread that is interrupted by others does not sleep by itself.
        let wait = DiskWait::begin();
        while wait.started.elapsed() < 2 * LISTING_TIME {}
        assert!(!wait.waited(0));
    }

    #[test]
    fn a_thread_that_sleeps_has_waited_unless_it_read_as_much_from_memory() {
        let wait = DiskWait::begin();
        std::thread::sleep(2 * LISTING_TIME);
        assert!(wait.waited(0));
        assert!(!wait.waited(usize::MAX));
    }
}
