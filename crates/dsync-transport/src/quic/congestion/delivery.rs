//! The path's delivery rate: one sample per batch of acknowledgements.
//!
//! From the times of sending and acknowledgement this computes the delivery rate as defined by
//! draft-cheng-iccrg-delivery-rate-estimation-02: the bytes delivered between the sending and the
//! acknowledgement of a packet, over the longer of the time to send them and the time to
//! acknowledge them. Neither a burst of acknowledgements nor a burst of packets makes a sample
//! higher than the rate that passed the path.
//!
//! quinn identifies an acknowledged packet by its time of sending, which is the key into the log
//! here: all packets of one system call have the same time and one [`Record`].

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

/// The delivery state at the time of sending.
#[derive(Debug, Clone, Copy)]
struct Record {
    sent: Instant,
    delivered: u64,
    delivered_at: Instant,
    /// Time of sending of the last acknowledged packet.
    acked_sent: Instant,
    /// Whether the sender had nothing more to send at that time.
    limited: bool,
}

/// One batch of acknowledgements.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sample {
    /// Bytes per second, unless the interval was too short.
    pub(super) rate: Option<u64>,
    /// Round trip of the newest acknowledged packet, including the peer's delay.
    pub(super) rtt: Duration,
    /// Time of sending of that packet.
    pub(super) sent: Instant,
    /// Whether the rate may be the sender's own rather than the path's.
    pub(super) limited: bool,
    /// Whether this acknowledges a packet sent after the last such sample.
    pub(super) round_start: bool,
}

/// The log of sent data. Cost: 64 bytes and a binary search per system call that sends.
#[derive(Debug, Clone)]
pub(super) struct DeliveryLog {
    records: VecDeque<Record>,
    delivered: u64,
    delivered_at: Instant,
    acked_sent: Instant,
    /// The newest record of the current batch.
    newest: Option<Record>,
    /// Samples of packets sent before this many delivered bytes show the sender's own rate.
    limited_until: u64,
    rounds: u64,
    round_end: u64,
}

impl DeliveryLog {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            records: VecDeque::new(),
            delivered: 0,
            delivered_at: now,
            acked_sent: now,
            newest: None,
            limited_until: 0,
            rounds: 0,
            round_end: 0,
        }
    }

    /// Records a sending; `from_idle` if nothing was in flight before.
    pub(super) fn on_sent(&mut self, now: Instant, from_idle: bool) {
        if from_idle {
            // Idle time is not delivery time.
            self.delivered_at = now;
            self.acked_sent = now;
        }
        if self.records.back().is_some_and(|last| last.sent >= now) {
            return;
        }
        if self.records.len() >= MAX_RECORDS {
            self.records.pop_front();
        }
        self.records.push_back(Record {
            sent: now,
            delivered: self.delivered,
            delivered_at: self.delivered_at,
            acked_sent: self.acked_sent,
            limited: self.delivered < self.limited_until,
        });
    }

    /// Records the acknowledgement of one packet; several of these make a batch.
    pub(super) fn on_ack(&mut self, now: Instant, sent: Instant, bytes: u64) {
        self.delivered = self.delivered.saturating_add(bytes);
        self.delivered_at = now;
        if self.newest.is_some_and(|newest| newest.sent >= sent) {
            return;
        }
        // A packet that is not in the log (a probe of the path's MTU) counts as delivered but makes
        // no sample.
        if let Ok(at) = self.records.binary_search_by(|record| record.sent.cmp(&sent)) {
            self.newest = self.records.get(at).copied();
        }
    }

    /// Completes the batch. Ignores rates measured over less than `least_rtt`.
    pub(super) fn end_batch(&mut self, now: Instant, least_rtt: Duration) -> Option<Sample> {
        let record = self.newest.take()?;
        if record.sent < self.acked_sent {
            // Late: something sent after it is already acknowledged.
            return None;
        }
        let send_time = record.sent.saturating_duration_since(record.acked_sent);
        let ack_time = now.saturating_duration_since(record.delivered_at);
        let interval = send_time.max(ack_time);
        self.acked_sent = record.sent;
        let round_start = record.delivered >= self.round_end;
        if round_start {
            self.rounds += 1;
            self.round_end = self.delivered;
        }
        let rtt = now.saturating_duration_since(record.sent);
        self.forget(record.sent, rtt);
        let bytes = self.delivered.saturating_sub(record.delivered);
        let rate = (interval >= least_rtt).then(|| rate(bytes, interval)).flatten();
        Some(Sample { rate, rtt, sent: record.sent, limited: record.limited, round_start })
    }

    /// Records that the sender has nothing more to send than the `in_flight` bytes.
    pub(super) fn mark_limited(&mut self, in_flight: u64) {
        self.limited_until = self.delivered.saturating_add(in_flight).max(1);
    }

    /// Returns the bytes delivered so far.
    pub(super) fn delivered(&self) -> u64 {
        self.delivered
    }

    /// Returns the round trips so far.
    pub(super) fn rounds(&self) -> u64 {
        self.rounds
    }

    /// Drops records that are acknowledged or lost by now: a packet counts as lost after 9/8 of a
    /// round trip.
    fn forget(&mut self, acked: Instant, rtt: Duration) {
        let keep = (rtt * 2).max(SHORTEST_MEMORY);
        while self.records.front().is_some_and(|first| acked.saturating_duration_since(first.sent) > keep) {
            self.records.pop_front();
        }
    }
}

/// Returns bytes per second; `None` if the time is zero.
fn rate(bytes: u64, time: Duration) -> Option<u64> {
    let rate = u128::from(bytes) * 1_000_000_000 / time.as_nanos().max(1);
    if time.is_zero() { None } else { u64::try_from(rate).ok() }
}

/// Most records kept (2 MiB): a sender's full send window in single packets. Data beyond them
/// counts as delivered but makes no sample.
const MAX_RECORDS: usize = 1 << 15;
/// Shortest time that records are kept, so that a stall of this process is not a loss.
const SHORTEST_MEMORY: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn a_burst_of_acks_does_not_raise_the_rate() {
        let t = Instant::now();
        let mut log = DeliveryLog::new(t);
        // 10 packets of 1000 bytes, one per ms, all acknowledged at once 50 ms later.
        for i in 0..10 {
            log.on_sent(t + ms(i), i == 0);
        }
        for i in 0..10 {
            log.on_ack(t + ms(60), t + ms(i), 1000);
        }
        let sample = log.end_batch(t + ms(60), ms(50)).map(|sample| (sample.rate, sample.rtt));
        // 10 kB in the 60 ms since the first was sent.
        assert_eq!(sample, Some((Some(166_666), ms(51))));
    }

    #[test]
    fn a_rate_over_less_than_a_round_trip_is_not_believed() {
        let t = Instant::now();
        let mut log = DeliveryLog::new(t);
        log.on_sent(t, true);
        log.on_ack(t + ms(5), t, 1000);
        let sample = log.end_batch(t + ms(5), ms(10)).map(|sample| sample.rate);
        assert_eq!(sample, Some(None));
    }

    #[test]
    fn what_is_sent_without_more_to_send_is_marked() {
        let t = Instant::now();
        let mut log = DeliveryLog::new(t);
        log.mark_limited(1000);
        for i in 0..3 {
            log.on_sent(t + ms(10 * i), i == 0);
            log.on_ack(t + ms(10 * i + 5), t + ms(10 * i), 1000);
            let limited = log.end_batch(t + ms(10 * i + 5), ms(1)).map(|sample| sample.limited);
            assert_eq!(limited, Some(i == 0));
        }
    }

    #[test]
    fn an_unknown_packet_delivers_and_samples_nothing() {
        let t = Instant::now();
        let mut log = DeliveryLog::new(t);
        log.on_ack(t + ms(5), t, 1000);
        assert!(log.end_batch(t + ms(5), ms(1)).is_none());
        assert_eq!(log.delivered, 1000);
    }

    #[test]
    fn the_log_is_bounded() {
        let t = Instant::now();
        let mut log = DeliveryLog::new(t);
        for i in 0..(MAX_RECORDS as u64 + 10) {
            log.on_sent(t + Duration::from_micros(i), false);
        }
        assert_eq!(log.records.len(), MAX_RECORDS);
    }
}
