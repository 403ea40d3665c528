//! The counts of a session that a server shows while it lasts.
//!
//! The serving end counts what it lists, compares and copies itself; nothing that the client says
//! is counted. Only the verdict on a run that wrote at the client is the client's word.

use std::sync::{
    Arc, OnceLock,
    atomic::{AtomicU64, Ordering},
};

use dsync_wire::{event::Report, link::Traffic};

use crate::verdict::Verdict;

/// The counts of a session, which others can read while it lasts.
///
/// ```
/// use dsync_engine::Tally;
///
/// /// Returns the line of a session on a status page, which is asked for while the session lasts.
/// fn line(tally: &Tally) -> String {
///     let received = tally.traffic().received_bytes;
///     format!("{} entries, {} files, {received} bytes", tally.entries(), tally.files())
/// }
/// # assert_eq!(line(&Tally::default()), "0 entries, 0 files, 0 bytes");
/// ```
#[derive(Debug, Clone, Default)]
pub struct Tally(Arc<Counts>);

#[derive(Debug, Default)]
struct Counts {
    entries: AtomicU64,
    files: AtomicU64,
    sent: AtomicU64,
    received: AtomicU64,
    verdict: OnceLock<Verdict>,
}

impl Tally {
    /// Returns the number of entries that this end has listed as the source, or compared as the
    /// destination.
    pub fn entries(&self) -> u64 {
        self.0.entries.load(Ordering::Relaxed)
    }

    /// Returns the number of files whose content was asked of this end as the source, or that it is
    /// done with as the destination.
    pub fn files(&self) -> u64 {
        self.0.files.load(Ordering::Relaxed)
    }

    /// Returns the bytes that the session's lanes have carried, once the session is over.
    pub fn traffic(&self) -> Traffic {
        let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Traffic::new(load(&self.0.sent), load(&self.0.received))
    }

    /// Returns the verdict on the session's run, as its client has it; `None` until the run has ended
    /// with a report, and for a session without one. Where the client was the destination it is the
    /// client's word.
    ///
    /// ```
    /// use dsync_engine::{Tally, Verdict, exit_code};
    ///
    /// /// Returns the exit code for the log of a session that ended well.
    /// fn code(tally: &Tally) -> u8 {
    ///     tally.verdict().map_or(exit_code::OK, Verdict::exit_code)
    /// }
    /// # assert_eq!(code(&Tally::default()), 0);
    /// ```
    pub fn verdict(&self) -> Option<Verdict> {
        self.0.verdict.get().copied()
    }

    /// Notes the destination's report of a run.
    pub(crate) fn note_report(&self, report: &Report) {
        let _ = self.0.verdict.set(Verdict::of(report));
    }

    /// Notes the bytes of a session that is over.
    #[cfg(feature = "ssh")]
    pub(crate) fn note_traffic(&self, traffic: Traffic) {
        self.0.sent.store(traffic.sent_bytes, Ordering::Relaxed);
        self.0.received.store(traffic.received_bytes, Ordering::Relaxed);
    }

    /// Counts entries.
    pub(crate) fn add_entries(&self, entries: u64) {
        self.0.entries.fetch_add(entries, Ordering::Relaxed);
    }

    /// Counts a file.
    pub(crate) fn add_file(&self) {
        self.0.files.fetch_add(1, Ordering::Relaxed);
    }
}
