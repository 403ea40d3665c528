//! Reading ahead on a slow disk.
//!
//! A worker reads one file after another, so a disk that takes milliseconds for a request has one
//! request of each worker, and could serve a hundred in the same time. Once a read turns out to
//! have waited, the kernel is asked for the content of the files that come next, all at once.
//!
//! A clock alone is misled by a busy machine or a debugger, so the next file is tried first: if it
//! is in memory, nothing waits for a disk.
//!
//! Law: this is advice only. It changes no content, keeps no file open, and a tree that lies in
//! memory pays two looks at the clock for each file, and a try for every 256 files at the most.

use std::time::{Duration, Instant};

use dsync_fs::SourceFile;

/// Notices whether reads of one worker wait for a disk. The worker takes files in groups.
#[derive(Debug, Default)]
pub(crate) struct ReadGauge {
    /// Number of further files to ask for ahead, unless another read waits.
    slow: u32,
    /// Whether the rest of this group was asked for.
    asked: bool,
    /// Number of further files whose reads say nothing, as the clock was wrong.
    deaf: u32,
}

impl ReadGauge {
    /// Begins a group of files.
    pub(crate) fn next_group(&mut self) {
        self.asked = false;
    }

    /// Returns whether to ask for the rest of the group now: once, when reads wait.
    pub(crate) fn asks_now(&mut self) -> bool {
        self.is_slow() && !std::mem::replace(&mut self.asked, true)
    }

    /// Notes that `bytes` were read since `started`.
    pub(crate) fn read(&mut self, bytes: u64, started: Instant) {
        self.note(bytes, started.elapsed());
    }

    fn note(&mut self, bytes: u64, took: Duration) {
        if self.deaf > 0 {
            self.deaf -= 1;
            return;
        }
        let from_memory = WAKE + Duration::from_nanos(bytes.saturating_mul(NANOS_PER_BYTE));
        self.slow = if took > from_memory { REMEMBERED } else { self.slow.saturating_sub(1) };
    }

    /// Asks the kernel for the first bytes of the files that follow in the group. For the rest of
    /// each, its own read-ahead is enough.
    pub(crate) fn ask_for(&mut self, files: impl Iterator<Item = SourceFile>) {
        let mut files = files.filter(|file| !file.is_empty()).peekable();
        if files.peek().is_some_and(|next| !next.waits_for_disk()) {
            (self.slow, self.deaf) = (0, DEAF);
            return;
        }
        files.for_each(|file| file.advise_needed(0..file.len().min(FIRST_BYTES)));
    }

    /// Returns whether a read waited a short while ago.
    pub(crate) fn is_slow(&self) -> bool {
        self.slow > 0
    }
}

/// Longest time that a read from memory takes before its first byte: a worker may lose its
/// processor, but a file on a disk costs more each time.
const WAKE: Duration = Duration::from_micros(200);
/// Time for each further byte: 250 MB/s, a fraction of what memory does.
const NANOS_PER_BYTE: u64 = 4;
/// Number of files asked for after a read that waited. As those are then in memory, only every so
/// many-th read waits again.
const REMEMBERED: u32 = 1024;
/// Number of files whose reads say nothing after the clock was wrong.
const DEAF: u32 = 256;
/// Bytes asked for of one file.
const FIRST_BYTES: u64 = 4 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_read_that_waited_is_remembered_for_a_while() {
        let mut gauge = ReadGauge::default();
        gauge.note(100, Duration::from_micros(5));
        assert!(!gauge.is_slow());

        gauge.note(100, Duration::from_millis(8));
        for _ in 1..REMEMBERED {
            gauge.note(100, Duration::from_micros(5));
            assert!(gauge.is_slow());
        }
        gauge.note(100, Duration::from_micros(5));
        assert!(!gauge.is_slow());
    }

    #[test]
    fn a_group_is_asked_for_once() {
        let mut gauge = ReadGauge::default();
        assert!(!gauge.asks_now());
        gauge.note(100, Duration::from_millis(8));
        assert!(gauge.asks_now());
        assert!(!gauge.asks_now());
        gauge.next_group();
        assert!(gauge.asks_now());
    }

    #[test]
    #[allow(clippy::unwrap_used, clippy::disallowed_methods)]
    fn a_file_in_memory_shows_that_the_clock_is_wrong() {
        let scratch = tempfile::tempdir().unwrap();
        std::fs::write(scratch.path().join("f"), "just written").unwrap();
        let dir = dsync_fs::Dir::open_operand(scratch.path()).unwrap();
        let open = || dir.open_source(&dsync_fs::Component::new(b"f").unwrap()).unwrap();

        let mut gauge = ReadGauge::default();
        gauge.note(100, Duration::from_millis(8));
        assert!(gauge.asks_now());
        gauge.ask_for([open(), open()].into_iter());
        assert!(!gauge.is_slow());
        for _ in 0..DEAF {
            gauge.note(100, Duration::from_millis(8));
            assert!(!gauge.is_slow());
        }
        gauge.note(100, Duration::from_millis(8));
        assert!(gauge.is_slow());
    }

    #[test]
    fn a_long_read_from_memory_is_not_slow() {
        let mut gauge = ReadGauge::default();
        gauge.note(8 << 20, Duration::from_millis(10));
        assert!(!gauge.is_slow());
        gauge.note(8 << 20, Duration::from_millis(100));
        assert!(gauge.is_slow());
        gauge.note(u64::MAX, Duration::from_secs(1));
    }
}
