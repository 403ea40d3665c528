//! Tells whether losses hold TCP connections back. Pure: samples in, a verdict out.
//!
//! TCP takes each loss for congestion. Losses are the limit where packets are lost, no queue of the
//! connections' own explains that, and the rate is about what TCP's response to this loss allows
//! (Mathis et al., "The Macroscopic Behavior of the TCP Congestion Avoidance Algorithm", 1997).

use std::time::Duration;

/// Counts of a carrier since the sample before.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Sample {
    /// Time that the sample covers.
    pub(crate) span: Duration,
    /// Bytes that arrived at the peer.
    pub(crate) delivered_bytes: u64,
    /// Packets with data that were sent.
    pub(crate) packets: u64,
    /// Packets that were lost.
    pub(crate) lost: u64,
    /// Mean round trip.
    pub(crate) round_trip: Duration,
    /// Shortest round trip so far.
    pub(crate) least_round_trip: Duration,
    /// Connections that share the path.
    pub(crate) connections: u64,
    /// Bytes of data in a packet.
    pub(crate) packet_bytes: u64,
}

impl Sample {
    /// Returns the bytes that arrived in a second.
    pub(crate) fn rate(&self) -> f64 {
        if self.span.is_zero() { 0.0 } else { self.delivered_bytes as f64 / self.span.as_secs_f64() }
    }

    /// Returns the share of the packets that was lost, 0 to 1.
    pub(crate) fn loss(&self) -> f64 {
        if self.packets == 0 { 0.0 } else { (self.lost as f64 / self.packets as f64).min(1.0) }
    }

    /// Returns whether a queue makes the round trip longer: then losses are the queue's.
    pub(crate) fn has_queue(&self) -> bool {
        self.round_trip > self.least_round_trip.mul_f64(QUEUE_SHARE) + QUEUE_TIME
    }

    /// Returns whether nothing makes the round trip longer, so that the path takes more.
    pub(crate) fn has_no_queue(&self) -> bool {
        self.round_trip < self.least_round_trip.mul_f64(FREE_SHARE) + FREE_TIME
    }

    /// Adds a later sample.
    pub(crate) fn join(self, later: &Self) -> Self {
        let packets = self.packets + later.packets;
        let weigh = |sample: &Self| sample.round_trip.as_secs_f64() * sample.packets as f64;
        let round_trip = if packets == 0 { 0.0 } else { (weigh(&self) + weigh(later)) / packets as f64 };
        Self {
            span: self.span + later.span,
            delivered_bytes: self.delivered_bytes + later.delivered_bytes,
            packets,
            lost: self.lost + later.lost,
            round_trip: Duration::from_secs_f64(round_trip),
            ..*later
        }
    }
}

/// The last samples of TCP connections, and whether losses hold them back.
#[derive(Debug, Clone, Default)]
pub(crate) struct LossWatch {
    recent: [Sample; RECENT],
    next: usize,
    /// Time without a queue.
    free: Duration,
}

impl LossWatch {
    /// Takes a sample. Returns the loss of the last ones, in packets of a million, if it holds the
    /// connections back.
    pub(crate) fn take(&mut self, sample: Sample) -> Option<u32> {
        self.recent[self.next % RECENT] = sample;
        self.next += 1;
        self.free = if sample.has_queue() { Duration::ZERO } else { self.free + sample.span };
        let all = self.together();
        let lossy = self.recent.iter().filter(|sample| sample.lost > 0).count();
        let loss = all.loss();
        let held = all.lost >= LEAST_LOST
            && lossy >= LEAST_LOSSY
            && loss >= LEAST_LOSS
            // A full queue drops packets that are sent again in the next round trips, when it may be gone.
            && self.free >= all.span + all.round_trip * QUEUE_TRIPS
            && response(&all, loss) <= HELD_BACK * all.rate();
        held.then(|| {
            u32::try_from(all.lost * 1_000_000 / all.packets.max(1)).unwrap_or(u32::MAX).min(1_000_000)
        })
    }

    /// Returns the last samples as one.
    pub(crate) fn together(&self) -> Sample {
        let next = self.next;
        let oldest_first = (0..RECENT).map(|age| &self.recent[(next + age) % RECENT]);
        oldest_first.fold(Sample::default(), Sample::join)
    }
}

/// Returns the rate in bytes per second that TCP reaches with this loss.
fn response(sample: &Sample, loss: f64) -> f64 {
    let each = 1.22 * sample.packet_bytes as f64 / (sample.round_trip.as_secs_f64().max(1e-4) * loss.sqrt());
    each * sample.connections as f64
}

/// Time between two samples.
pub(crate) const SAMPLE_TIME: Duration = Duration::from_millis(100);
/// Samples that are judged together: half a second.
const RECENT: usize = 5;
/// Least packets lost among them. Fewer are chance.
const LEAST_LOST: u64 = 8;
/// Least samples among them with a loss: one burst is no property of the path.
const LEAST_LOSSY: usize = 2;
/// Least share of packets lost. Below it TCP is held back on paths only that are longer than those
/// that begin with TLS.
const LEAST_LOSS: f64 = 0.0003;
/// A round trip longer than this times the shortest, and [`QUEUE_TIME`], is a queue's: TCP loses
/// packets where a queue of a round trip is full, and a busy host delays some.
const QUEUE_SHARE: f64 = 1.4;
const QUEUE_TIME: Duration = Duration::from_millis(3);
/// A round trip below this times the shortest, and [`FREE_TIME`], is that of a path without a queue.
const FREE_SHARE: f64 = 1.1;
const FREE_TIME: Duration = Duration::from_millis(1);
/// Round trips after a queue in which losses may be its own.
const QUEUE_TRIPS: u32 = 4;
/// Losses hold connections back whose rate is at least the inverse of this of what TCP's response
/// allows. Below that something else is the limit. CUBIC is up to twice as fast as the response.
const HELD_BACK: f64 = 2.0;
