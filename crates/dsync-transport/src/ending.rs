//! How a link ended: the first cause wins, and every later call reports it.

use std::sync::{
    OnceLock,
    atomic::{AtomicU64, Ordering},
};

use dsync_wire::link::{LinkError, Traffic};

/// The one cause of a link's end, once it has ended.
#[derive(Default)]
pub(crate) struct Ending(OnceLock<LinkError>);

impl Ending {
    /// Records `cause` unless one was recorded before; true when it was the first.
    pub(crate) fn set(&self, cause: LinkError) -> bool {
        self.0.set(cause).is_ok()
    }

    /// The cause, when the link has ended.
    pub(crate) fn get(&self) -> Option<LinkError> {
        self.0.get().cloned()
    }
}

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
