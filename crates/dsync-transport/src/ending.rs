//! The end of a link: the first cause wins, and every later call reports it.

use std::{
    sync::{
        OnceLock,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use dsync_wire::link::{LinkError, Traffic};
use tokio::time::sleep;

use crate::pipe::PipeReader;

/// The cause of a link's end, if it has ended.
#[derive(Default)]
pub(crate) struct Ending(OnceLock<LinkError>);

impl Ending {
    /// Records `cause` unless one was recorded before; returns whether it was the first.
    pub(crate) fn set(&self, cause: LinkError) -> bool {
        self.0.set(cause).is_ok()
    }

    /// Returns the cause if the link has ended.
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

/// Resolves after the ssh process has ended and the last packet has had its time: an orderly peer
/// closes its link first and the ssh process right after.
pub(crate) async fn end_of_ssh(mut bootstrap: PipeReader) {
    let started = Instant::now();
    loop {
        let unread = bootstrap.unread().len();
        bootstrap.consume(unread);
        // While another carrier has the session, nothing should arrive here. Drop whatever does.
        match bootstrap.fill().await {
            Ok(count) if count > 0 => {}
            _ => break,
        }
    }
    tracing::debug!(seconds = started.elapsed().as_secs_f32(), "the ssh stream ended");
    sleep(LAST_PACKET_TIME).await;
}

/// Time in which a packet that explains the end may still arrive after the end of the ssh stream.
const LAST_PACKET_TIME: Duration = Duration::from_secs(1);
