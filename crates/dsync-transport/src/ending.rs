//! The end of a link: the first cause wins, and every later call reports it.

use std::{
    sync::OnceLock,
    time::{Duration, Instant},
};

use dsync_wire::link::LinkError;
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
