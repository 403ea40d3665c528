//! Counts of what one end of a link sent and received.

use std::sync::atomic::{AtomicU64, Ordering};

use dsync_wire::link::Traffic;

/// Payload bytes of one end of a link.
#[derive(Default)]
pub(crate) struct Counters {
    sent: AtomicU64,
    received: AtomicU64,
}

impl Counters {
    pub(crate) fn add_sent(&self, bytes: usize) {
        self.sent.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub(crate) fn add_received(&self, bytes: usize) {
        self.received.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub(crate) fn traffic(&self) -> Traffic {
        Traffic::new(self.sent.load(Ordering::Relaxed), self.received.load(Ordering::Relaxed))
    }
}
