//! The end of the ssh process beside a link of another carrier.

use std::time::{Duration, Instant};

use tokio::time::sleep;

use crate::pipe::PipeReader;

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
