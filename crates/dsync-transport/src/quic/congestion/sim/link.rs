//! The bottleneck: a rate, a delay, a drop-tail queue, random loss, and optionally a policer.

use std::collections::VecDeque;

use super::{NANOS, PACKET};

/// The link's properties. Times in nanoseconds, rates in bytes per second.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LinkConfig {
    pub(crate) rate: u64,
    /// The round trip, all of it outside the queue.
    pub(crate) rtt: u64,
    /// Most bytes that wait.
    pub(crate) queue: u64,
    /// Packets in a million that are lost at random.
    pub(crate) loss: u64,
    /// Largest extra delay, at random and in order.
    pub(crate) jitter: u64,
    /// Tokens per second and size of the bucket, in bytes.
    pub(crate) policer: Option<(u64, u64)>,
}

/// A packet on its way.
pub(crate) struct Queued {
    pub(crate) flow: usize,
    pub(crate) number: u64,
}

pub(crate) struct Link {
    pub(crate) config: LinkConfig,
    queue: VecDeque<Queued>,
    busy: bool,
    tokens: u64,
    filled: u64,
    random: u64,
}

/// The fate of a packet that reached the link.
pub(crate) enum Fate {
    /// It is served next; the service ends at this time.
    Served(u64),
    Queued,
    LostAtRandom,
    /// Dropped by the queue or the policer.
    Dropped,
}

impl Link {
    pub(crate) fn new(config: LinkConfig, seed: u64) -> Self {
        let tokens = config.policer.map_or(0, |(_, bucket)| bucket);
        Self { config, queue: VecDeque::new(), busy: false, tokens, filled: 0, random: seed }
    }

    pub(crate) fn enter(&mut self, now: u64, packet: Queued) -> Fate {
        if self.random() % 1_000_000 < self.config.loss {
            return Fate::LostAtRandom;
        }
        if let Some((rate, bucket)) = self.config.policer {
            let new = u128::from(rate) * u128::from(now - self.filled) / u128::from(NANOS);
            self.tokens = (self.tokens + new as u64).min(bucket);
            self.filled = now;
            if self.tokens < PACKET {
                return Fate::Dropped;
            }
            self.tokens -= PACKET;
        }
        if (self.queue.len() as u64 + 1) * PACKET > self.config.queue {
            return Fate::Dropped;
        }
        self.queue.push_back(packet);
        if self.busy {
            return Fate::Queued;
        }
        self.busy = true;
        Fate::Served(now + self.service())
    }

    /// Removes the packet at the front, which has passed; returns it and the time when the next one
    /// will have.
    pub(crate) fn leave(&mut self, now: u64) -> (Option<Queued>, Option<u64>) {
        let passed = self.queue.pop_front();
        self.busy = !self.queue.is_empty();
        (passed, self.busy.then(|| now + self.service()))
    }

    pub(crate) fn jitter(&mut self) -> u64 {
        if self.config.jitter == 0 { 0 } else { self.random() % self.config.jitter }
    }

    fn service(&self) -> u64 {
        PACKET * NANOS / self.config.rate
    }

    /// Returns the next random number (xorshift64*).
    fn random(&mut self) -> u64 {
        self.random ^= self.random >> 12;
        self.random ^= self.random << 25;
        self.random ^= self.random >> 27;
        self.random.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 20
    }
}
