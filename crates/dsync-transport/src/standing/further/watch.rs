//! Watches what this end sends by further connections over TLS: how many of them are to send, and whether
//! losses hold them back. QUIC may do better then.

use std::{
    sync::{Arc, PoisonError},
    thread,
};

use super::{CONNECTIONS, Pool};
use crate::{
    losses::{LossWatch, SAMPLE_TIME},
    share::Senders,
    tls::{meter::Meter, tcp_info::TcpInfo},
};

/// Watches on a thread of its own until the link ends or losses hold the connections back. `held` is told
/// of the loss then, in packets of a million, and all of them send.
pub(super) fn watch(pool: &Arc<Pool>, held: impl FnOnce(u32) + Send + 'static) {
    let pool = Arc::clone(pool);
    let watching = move || {
        let measured = Arc::clone(&pool);
        let mut meter = Meter::new(move || measured.counts());
        let (mut losses, mut senders) = (LossWatch::default(), Senders::of(CONNECTIONS));
        while !pool.ends_within_a_sample() {
            let sample = meter.sample();
            if let Some(per_million) = losses.take(sample) {
                tracing::debug!(per_million, "losses hold further connections back");
                pool.let_send(usize::MAX);
                held(per_million);
                return;
            }
            pool.let_send(senders.take(sample));
        }
    };
    if let Err(error) = thread::Builder::new().name("dsync-losses".into()).spawn(watching) {
        tracing::debug!(%error, "nothing watches the losses of further connections");
    }
}

impl Pool {
    /// Returns the kernel's counts of each live connection, by its number.
    fn counts(&self) -> Vec<(u32, TcpInfo)> {
        let live = self.live();
        let counts = live.iter().map(|(number, stream)| Some((*number, TcpInfo::of(stream.socket())?)));
        counts.flatten().collect()
    }

    /// Waits for the time between two samples; returns whether the link has ended meanwhile.
    fn ends_within_a_sample(&self) -> bool {
        let waited = self.changed.wait_timeout_while(self.lock(), SAMPLE_TIME, |state| !state.is_over);
        waited.unwrap_or_else(PoisonError::into_inner).0.is_over
    }
}
