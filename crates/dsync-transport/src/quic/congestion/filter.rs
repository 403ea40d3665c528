//! Recent properties of the path: its best rate over the last rounds, its shortest round trip over
//! the last seconds.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

/// The highest of the values of the last [`ROUNDS`] rounds. Keeps at most one value per round.
#[derive(Debug, Clone, Default)]
pub(super) struct RoundMax {
    /// (round, value), rounds rising and values falling: the front is the maximum.
    values: VecDeque<(u64, u64)>,
}

impl RoundMax {
    /// Adds one value, and drops values that are too old for `round`.
    pub(super) fn update(&mut self, round: u64, value: u64) {
        while self.values.back().is_some_and(|&(_, last)| last <= value) {
            self.values.pop_back();
        }
        if self.values.back().is_none_or(|&(last, _)| last != round) {
            self.values.push_back((round, value));
        }
        while self.values.len() > 1 && self.values.front().is_some_and(|&(first, _)| first + ROUNDS <= round)
        {
            self.values.pop_front();
        }
    }

    /// Drops everything except `value`.
    pub(super) fn reset(&mut self, round: u64, value: u64) {
        self.values.clear();
        self.values.push_back((round, value));
    }

    /// Returns the maximum; 0 if there is none.
    pub(super) fn get(&self) -> u64 {
        self.values.front().map_or(0, |&(_, value)| value)
    }
}

/// The shortest round trip seen, until it is too old to trust.
#[derive(Debug, Clone, Default)]
pub(super) struct RttFloor {
    seen: Option<(Duration, Instant)>,
}

impl RttFloor {
    /// Adds one sample.
    pub(super) fn update(&mut self, now: Instant, rtt: Duration) {
        if self.seen.is_none_or(|(least, _)| rtt <= least) {
            self.seen = Some((rtt, now));
        }
    }

    /// Replaces the value by `rtt`.
    pub(super) fn reset(&mut self, now: Instant, rtt: Duration) {
        self.seen = Some((rtt, now));
    }

    /// Confirms the value: it was measured again, within noise.
    pub(super) fn confirm(&mut self, now: Instant) {
        if let Some((_, at)) = &mut self.seen {
            *at = now;
        }
    }

    /// Returns the shortest round trip; [`INITIAL_RTT`] before the first sample.
    pub(super) fn get(&self) -> Duration {
        self.seen.map_or(INITIAL_RTT, |(rtt, _)| rtt)
    }

    /// Returns whether it was not measured again for [`RTT_LIFETIME`].
    pub(super) fn is_stale(&self, now: Instant) -> bool {
        self.seen.is_some_and(|(_, at)| now.saturating_duration_since(at) > RTT_LIFETIME)
    }
}

/// A summary of round trips.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Rtts {
    pub(super) least: Option<Duration>,
    sum: Duration,
    pub(super) count: u32,
}

impl Rtts {
    pub(super) fn add(&mut self, rtt: Duration) {
        self.least = Some(self.least.map_or(rtt, |least| least.min(rtt)));
        self.sum += rtt;
        self.count += 1;
    }

    /// Returns the mean; zero without samples.
    pub(super) fn mean(&self) -> Duration {
        self.sum.checked_div(self.count).unwrap_or_default()
    }

    /// Returns how much longer than the shortest they are on average.
    pub(super) fn spread(&self) -> Duration {
        self.mean().saturating_sub(self.least.unwrap_or_default())
    }
}

/// The largest excess of a path's delivery over its rate: data that had piled up before an end that
/// paused for a moment (BBRv2 calls it `extra_acked`).
#[derive(Debug, Clone)]
pub(super) struct Surplus {
    since: Instant,
    acked: u64,
    most: RoundMax,
}

impl Surplus {
    pub(super) fn new(now: Instant) -> Self {
        Self { since: now, acked: 0, most: RoundMax::default() }
    }

    /// Records that `bytes` were acknowledged while `rate` was expected.
    pub(super) fn on_ack(&mut self, now: Instant, bytes: u64, rate: u64, round: u64) {
        let time = now.saturating_duration_since(self.since);
        let expected = u128::from(rate) * time.as_nanos() / 1_000_000_000;
        let expected = u64::try_from(expected).unwrap_or(u64::MAX);
        if self.acked <= expected {
            (self.since, self.acked) = (now, 0);
        }
        let expected = if self.acked == 0 { 0 } else { expected };
        self.acked = self.acked.saturating_add(bytes);
        self.most.update(round, self.acked.saturating_sub(expected));
    }

    /// Returns the excess in bytes over the last rounds.
    pub(super) fn get(&self) -> u64 {
        self.most.get()
    }
}

/// Rounds for which a delivery rate is trusted: one probing cycle, so that each probe is remembered
/// until the next (BBR: 6 to 10 rounds).
pub(super) const ROUNDS: u64 = 10;
/// Time for which a shortest round trip is trusted without being measured again (BBR: 10 s).
pub(super) const RTT_LIFETIME: Duration = Duration::from_secs(10);
/// Round trip assumed before there is a sample (RFC 9002, section 6.2.2).
const INITIAL_RTT: Duration = Duration::from_millis(333);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_highest_of_the_last_rounds_is_kept() {
        let mut max = RoundMax::default();
        assert_eq!(max.get(), 0);
        for (round, value) in [(1, 5), (2, 9), (3, 7), (3, 8), (4, 1)] {
            max.update(round, value);
        }
        assert_eq!(max.get(), 9);
        max.update(11, 2);
        assert_eq!(max.get(), 9);
        max.update(12, 2);
        assert_eq!(max.get(), 8);
        max.update(40, 1);
        assert_eq!(max.get(), 1);
        max.reset(40, 3);
        assert_eq!(max.get(), 3);
    }

    #[test]
    fn a_shortest_round_trip_goes_stale_unless_it_is_met_again() {
        let t = Instant::now();
        let mut floor = RttFloor::default();
        assert!(!floor.is_stale(t));
        floor.update(t, Duration::from_millis(20));
        floor.update(t + RTT_LIFETIME, Duration::from_millis(30));
        assert_eq!(floor.get(), Duration::from_millis(20));
        assert!(floor.is_stale(t + RTT_LIFETIME * 2));
        floor.confirm(t + RTT_LIFETIME);
        assert!(!floor.is_stale(t + RTT_LIFETIME * 2));
    }
}
