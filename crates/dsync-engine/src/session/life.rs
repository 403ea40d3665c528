//! The signs of life of a peer.
//!
//! The law: each byte that arrives on the control lane is one. A message may be on its way for
//! longer than a peer may be silent, over a slow line or with a low rate, and nothing else passes
//! meanwhile.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use dsync_wire::{
    frame::ControlReceiver,
    link::{LaneRead, LinkError},
};

/// The time when something last came from the peer.
#[derive(Debug)]
pub(super) struct Life {
    pub(super) started: Instant,
    /// In milliseconds since `started`.
    pub(super) heard_ms: AtomicU64,
}

impl Life {
    /// Begins with a peer that was just heard.
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self { started: Instant::now(), heard_ms: AtomicU64::new(0) })
    }

    /// Notes that something came from the peer.
    pub(super) fn note(&self) {
        let now = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.heard_ms.store(now, Ordering::Relaxed);
    }

    /// Returns the time since something came from the peer.
    pub(super) fn silence(&self) -> Duration {
        let heard = Duration::from_millis(self.heard_ms.load(Ordering::Relaxed));
        self.started.elapsed().saturating_sub(heard)
    }

    /// Receives the control messages of a lane, each byte of which is a sign of life.
    pub(super) fn receiver(self: &Arc<Self>, rx: Box<dyn LaneRead>) -> ControlReceiver {
        ControlReceiver::new(Box::new(Heard { rx, life: Arc::clone(self) }))
    }
}

/// The receiving half of a control lane. A [`fill`](LaneRead::fill) is made of reads, so that a long
/// message is heard while it arrives.
struct Heard {
    rx: Box<dyn LaneRead>,
    life: Arc<Life>,
}

impl LaneRead for Heard {
    fn read(&mut self, buf: &mut [u8]) -> Result<usize, LinkError> {
        let read = self.rx.read(buf)?;
        self.life.note();
        Ok(read)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use bytes::Bytes;
    use dsync_wire::link::Link as _;

    use super::*;

    #[test]
    fn each_byte_of_a_message_is_a_sign_of_life() {
        let (here, there) = dsync_transport::memory::pair();
        let mut tx = there.open_lane().unwrap().tx;
        // A part of a frame of 256 KiB; the rest never comes.
        tx.write(Bytes::copy_from_slice(&(256u32 << 10).to_le_bytes())).unwrap();
        let started = Instant::now().checked_sub(Duration::from_secs(1)).unwrap();
        let life = Arc::new(Life { started, heard_ms: AtomicU64::new(0) });
        let mut receiver = life.receiver(here.accept_lane().unwrap().rx);

        std::thread::scope(|scope| {
            let hears = scope.spawn(move || receiver.recv().unwrap_err());
            for piece in [1, 20 << 10, 100 << 10] {
                life.heard_ms.store(0, Ordering::Relaxed);
                tx.write(Bytes::from(vec![27; piece])).unwrap();
                let begun = Instant::now();
                while life.heard_ms.load(Ordering::Relaxed) == 0 {
                    assert!(begun.elapsed() < Duration::from_secs(600), "a piece of {piece} bytes");
                    std::thread::yield_now();
                }
            }
            drop(tx);
            hears.join().unwrap();
        });
    }
}
