//! One sender and its receiver, modelled on quinn: loss by packet and time threshold (RFC 9002), a
//! token bucket that spreads 5/4 of the window over a round trip, system calls of ten packets,
//! acknowledgements of pairs.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use super::{Law, NANOS, PACKET, Stalls};

/// The application's data to send.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Source {
    Endless,
    /// Bytes per second, since a time.
    Rate(u64, u64),
    Nothing,
}

pub(crate) struct Flow {
    law: Box<dyn Law>,
    base: Instant,
    source: Source,
    /// Bytes that the application's rate has produced so far.
    produced: u64,
    /// Times at which the packets from `first` on were sent; `None` when acknowledged or lost.
    sent: VecDeque<Option<u64>>,
    first: u64,
    next: u64,
    largest_acked: Option<u64>,
    in_flight: u64,
    limited: bool,
    tokens: u64,
    filled: u64,
    smoothed: Option<u64>,
    variance: u64,
    latest: u64,
    timeouts: u32,
    last_heard: u64,
    last_eliciting: u64,
    probes: u32,
    /// Time when it next wants to run.
    pub(crate) wake: u64,
    /// Times when its two hosts do not run.
    pub(crate) sender: Stalls,
    pub(crate) receiver: Stalls,
    // The receiver.
    expected: u64,
    pending: Vec<u64>,
    pub(crate) ack_due: u64,
    pub(crate) last_arrival: u64,
    // Counts.
    pub(crate) delivered: u64,
    pub(crate) sent_packets: u64,
    pub(crate) dropped: u64,
    pub(crate) rtt_sum: u64,
    pub(crate) rtt_count: u64,
}

impl Flow {
    pub(crate) fn new(base: Instant, law: Box<dyn Law>, start: u64) -> Self {
        Self {
            law,
            base,
            source: Source::Endless,
            produced: 0,
            sent: VecDeque::new(),
            first: 0,
            next: 0,
            largest_acked: None,
            in_flight: 0,
            limited: false,
            tokens: 10 * PACKET,
            filled: start,
            smoothed: None,
            variance: 0,
            latest: 333_000_000,
            timeouts: 0,
            last_heard: start,
            last_eliciting: start,
            probes: 0,
            wake: start,
            sender: Stalls::NONE,
            receiver: Stalls::NONE,
            expected: 0,
            pending: Vec::new(),
            ack_due: u64::MAX,
            last_arrival: 0,
            delivered: 0,
            sent_packets: 0,
            dropped: 0,
            rtt_sum: 0,
            rtt_count: 0,
        }
    }

    pub(crate) fn set_source(&mut self, now: u64, source: Source) {
        self.source = source;
        self.produced = 0;
        self.wake = self.wake.min(now);
    }

    fn at(&self, time: u64) -> Instant {
        self.base + Duration::from_nanos(time)
    }

    /// Returns the packets that it sends now.
    pub(crate) fn run(&mut self, now: u64) -> Vec<u64> {
        if let Some(due) = self.loss_time()
            && due <= now
        {
            self.detect_loss(now, false);
        }
        if self.in_flight > 0 && now >= self.timeout() {
            self.timeouts += 1;
            self.probes = 2;
        }
        let mut packets = Vec::new();
        loop {
            let call = self.call(now, &mut packets);
            if call == 0 {
                break;
            }
            let now = self.at(now);
            self.law.on_sent(now, call * PACKET);
        }
        packets
    }

    /// Makes one system call: up to ten packets.
    fn call(&mut self, now: u64, packets: &mut Vec<u64>) -> u64 {
        let mut count = 0;
        self.wake = self.timeout().min(self.loss_time().unwrap_or(u64::MAX));
        self.limited = false;
        while count < 10 {
            if !self.has_data(now) {
                self.limited = count == 0;
                if let Source::Rate(..) = self.source {
                    self.wake = self.wake.min(now + NANOS / 1000);
                }
                break;
            }
            if self.probes > 0 {
                self.probes -= 1;
            } else {
                if self.in_flight + PACKET >= self.law.window() {
                    break;
                }
                if let Some(later) = self.pace(now) {
                    self.wake = self.wake.min(later);
                    break;
                }
            }
            self.tokens = self.tokens.saturating_sub(PACKET);
            self.in_flight += PACKET;
            self.last_eliciting = now;
            self.sent.push_back(Some(now));
            packets.push(self.next);
            self.next += 1;
            self.sent_packets += 1;
            self.produced += PACKET;
            count += 1;
        }
        count
    }

    fn has_data(&self, now: u64) -> bool {
        match self.source {
            Source::Endless => true,
            Source::Nothing => false,
            Source::Rate(rate, since) => {
                let made = u128::from(rate) * u128::from(now - since) / u128::from(NANOS);
                u128::from(self.produced + PACKET) <= made
            }
        }
    }

    /// Applies quinn-proto's pacer.
    fn pace(&mut self, now: u64) -> Option<u64> {
        if !self.law.paced() {
            return None;
        }
        let rtt = self.smoothed.unwrap_or(self.latest).max(1);
        let window = self.law.window();
        let capacity = (window * 2_000_000 / rtt).clamp(10 * PACKET, 256 * PACKET);
        let new = u128::from(window) * 5 * u128::from(now - self.filled) / (4 * u128::from(rtt));
        self.tokens = (self.tokens + new.min(u128::from(capacity)) as u64).min(capacity);
        self.filled = now;
        if self.tokens >= PACKET {
            return None;
        }
        let missing = capacity - self.tokens;
        Some(now + (u128::from(rtt) * u128::from(missing) * 4 / (5 * u128::from(window))) as u64 + 1)
    }

    fn timeout(&self) -> u64 {
        if self.in_flight == 0 {
            return u64::MAX;
        }
        let period = self.smoothed.unwrap_or(self.latest) + (4 * self.variance).max(1_000_000) + 25_000_000;
        self.last_eliciting + period * (1 << self.timeouts.min(10))
    }

    fn loss_delay(&self) -> u64 {
        self.smoothed.unwrap_or(self.latest).max(self.latest) * 9 / 8
    }

    fn loss_time(&self) -> Option<u64> {
        let largest = self.largest_acked?;
        let oldest = self.sent.front().copied().flatten()?;
        (self.first < largest).then(|| oldest + self.loss_delay())
    }

    /// Handles an acknowledgement of `numbers`, ascending.
    pub(crate) fn on_ack(&mut self, now: u64, numbers: &[u64]) {
        let Some(&largest) = numbers.last() else { return };
        let time = self.at(now);
        let fresh = self.largest_acked.is_none_or(|known| largest > known);
        let mut sample = None;
        let mut any = false;
        for &number in numbers {
            let index = usize::try_from(number.wrapping_sub(self.first)).unwrap();
            let Some(sent) = self.sent.get_mut(index).and_then(Option::take) else { continue };
            any = true;
            self.in_flight -= PACKET;
            self.delivered += PACKET;
            let sent_at = self.at(sent);
            self.law.on_ack(time, sent_at, PACKET);
            if number == largest && fresh {
                sample = Some(now - sent);
            }
        }
        if !any {
            return;
        }
        self.largest_acked = Some(self.largest_acked.map_or(largest, |known| known.max(largest)));
        self.law.on_end_acks(time, self.in_flight, self.limited);
        if let Some(rtt) = sample {
            self.sample_rtt(rtt);
        }
        self.timeouts = 0;
        self.last_heard = now;
        self.trim();
        self.detect_loss(now, true);
        self.wake = self.wake.min(now);
    }

    fn sample_rtt(&mut self, rtt: u64) {
        self.latest = rtt;
        self.rtt_sum += rtt;
        self.rtt_count += 1;
        match self.smoothed {
            Some(smoothed) => {
                self.variance = (3 * self.variance + smoothed.abs_diff(rtt)) / 4;
                self.smoothed = Some((7 * smoothed + rtt) / 8);
            }
            None => {
                self.smoothed = Some(rtt);
                self.variance = rtt / 2;
            }
        }
    }

    fn detect_loss(&mut self, now: u64, by_ack: bool) {
        let Some(largest) = self.largest_acked else { return };
        let delay = self.loss_delay();
        let congestion_period =
            3 * (self.smoothed.unwrap_or(self.latest) + (4 * self.variance).max(1_000_000) + 25_000_000);
        let (mut lost, mut last_sent, mut persistent) = (0, 0, false);
        let mut run: Option<u64> = None;
        for number in self.first..largest {
            let slot = &mut self.sent[(number - self.first) as usize];
            let Some(sent) = *slot else {
                run = None;
                continue;
            };
            if now - sent >= delay || largest >= number + 3 {
                *slot = None;
                lost += PACKET;
                last_sent = sent;
                let begin = *run.get_or_insert(sent);
                persistent |= by_ack && sent - begin > congestion_period && self.smoothed.is_some();
            } else {
                run = None;
            }
        }
        self.trim();
        if lost > 0 {
            self.in_flight -= lost;
            let (time, sent) = (self.at(now), self.at(last_sent));
            self.law.on_loss(time, sent, persistent, lost);
            self.wake = self.wake.min(now);
        }
    }

    fn trim(&mut self) {
        while self.sent.front().is_some_and(Option::is_none) {
            self.sent.pop_front();
            self.first += 1;
        }
    }

    /// Receives a packet; returns the packets that it acknowledges at once.
    pub(crate) fn receive(&mut self, now: u64, number: u64) -> Option<Vec<u64>> {
        let in_order = number == self.expected;
        self.expected = self.expected.max(number + 1);
        self.pending.push(number);
        if self.pending.len() >= 2 || !in_order {
            return Some(self.take_acks());
        }
        self.ack_due = now + 25_000_000;
        None
    }

    /// Holds a packet while the receiver does not run, until `until`.
    pub(crate) fn hold(&mut self, number: u64, until: u64) {
        self.expected = self.expected.max(number + 1);
        self.pending.push(number);
        self.ack_due = until;
    }

    pub(crate) fn take_acks(&mut self) -> Vec<u64> {
        self.ack_due = u64::MAX;
        std::mem::take(&mut self.pending)
    }
}
