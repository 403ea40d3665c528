//! The number of TCP connections of a link that send at a time. Pure: samples in, a number out.
//!
//! Each connection takes a share of a path that is full, so four leave one other a fifth. The law: where their
//! own queue shows that the path is full, fewer send, down to one; where the queue is gone, or losses that no
//! queue explains hold them back, more do. A link that fills a path with two connections and not with one goes
//! on with two. On short paths all send: delays there are the host's.

use std::time::Duration;

use crate::{
    losses::{LossWatch, Sample},
    waits::NEAR,
};

/// The number of connections of a link that send.
#[derive(Debug)]
pub(crate) struct Senders {
    all: usize,
    now: usize,
    losses: LossWatch,
    /// Fewer did not fill the path.
    least: usize,
    /// Time of sending until fewer are tried again, and for which they were not tried last.
    until_less: Duration,
    patience: Duration,
    /// Samples of the connections since they were last judged.
    seen: Sample,
    /// Whether the path was full at some time since the last change.
    was_full: bool,
    /// Time without a queue.
    free: Duration,
}

impl Senders {
    /// Begins with all connections, 1 or more.
    pub(crate) fn of(all: usize) -> Self {
        Self {
            all,
            now: all,
            losses: LossWatch::default(),
            least: 1,
            until_less: Duration::ZERO,
            patience: FIRST_PATIENCE,
            seen: Sample::default(),
            was_full: true,
            free: Duration::ZERO,
        }
    }

    /// Takes what the connections showed. Returns the number of lanes that are to send, each by one of them;
    /// `usize::MAX` for all.
    pub(crate) fn take(&mut self, sample: Sample) -> usize {
        if sample.packets == 0 || sample.least_round_trip < NEAR {
            return self.lanes();
        }
        self.until_less = self.until_less.saturating_sub(sample.span);
        if self.until_less.is_zero() {
            self.least = 1;
        }
        self.seen = self.seen.join(&sample);
        if self.losses.take(sample).is_some() {
            self.change(self.all);
        } else if self.seen.span >= JUDGED {
            self.judge();
        }
        self.lanes()
    }

    fn lanes(&self) -> usize {
        if self.now < self.all { self.now } else { usize::MAX }
    }

    /// Judges the samples since the last judgement.
    fn judge(&mut self) {
        let seen = std::mem::take(&mut self.seen);
        // A queue that others filled before this link began makes the shortest round trip longer, too.
        if seen.has_queue() || seen.lost > 0 && !seen.has_no_queue() {
            self.was_full = true;
            self.change((self.now / 2).max(self.least));
        } else if seen.has_no_queue() {
            self.free += seen.span;
            if self.free >= FREE_TIME && self.now < self.all {
                self.grow();
            }
        } else {
            self.free = Duration::ZERO;
        }
    }

    /// Lets more send. If the path was not full since fewer do, they did not fill it.
    fn grow(&mut self) {
        let more = (self.now * 2).min(self.all);
        if !self.was_full {
            (self.least, self.until_less) = (more, self.patience);
            self.patience = (self.patience * 2).min(LAST_PATIENCE);
        }
        self.change(more);
    }

    fn change(&mut self, now: usize) {
        if now != self.now {
            self.was_full = now > self.now;
            (self.now, self.seen) = (now, Sample::default());
        }
        self.free = Duration::ZERO;
    }
}

/// Time that is judged at once: a queue takes some round trips to grow or to go.
const JUDGED: Duration = Duration::from_millis(500);
/// Time without a queue after which more connections send. A source that has small files for a while does not
/// wait long.
const FREE_TIME: Duration = Duration::from_secs(1);
/// Time of sending before fewer are tried again that did not fill the path: at first, and at most.
const FIRST_PATIENCE: Duration = Duration::from_secs(30);
const LAST_PATIENCE: Duration = Duration::from_secs(600);

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    const LEAST: Duration = Duration::from_millis(20);

    /// Returns what a tenth of a second shows, with a round trip of this many milliseconds.
    fn sample(round_trip: u64) -> Sample {
        Sample {
            span: Duration::from_millis(100),
            delivered_bytes: 1 << 20,
            packets: 800,
            round_trip: Duration::from_millis(round_trip),
            least_round_trip: LEAST,
            connections: 4,
            packet_bytes: 1448,
            ..Sample::default()
        }
    }

    /// Sends for so many tenths of a second over a path that is full from `filled_by` connections on. Returns
    /// the numbers that sent.
    fn send(senders: &mut Senders, tenths: usize, filled_by: usize) -> Vec<usize> {
        let mut tenth = || {
            let round_trip = if senders.now >= filled_by { 40 } else { 20 };
            senders.take(sample(round_trip));
            senders.now
        };
        (0..tenths).map(|_| tenth()).collect()
    }

    #[test]
    fn one_sends_where_one_fills_the_path() {
        let mut senders = Senders::of(4);
        let sent = send(&mut senders, 600, 1);
        assert_eq!((sent[0], sent[12], sent[599]), (4, 1, 1));
        assert!(sent.is_sorted_by(|before, after| before >= after));
        assert_eq!(senders.lanes(), 1);
    }

    #[test]
    fn all_send_on_a_path_without_a_queue_on_a_short_one_and_where_losses_hold_them_back() {
        let mut senders = Senders::of(8);
        assert_eq!(send(&mut senders, 100, 9), [8; 100]);
        let near = Sample { least_round_trip: NEAR / 2, ..sample(40) };
        assert_eq!((0..100).map(|_| senders.take(near)).min(), Some(usize::MAX));
        assert_eq!(send(&mut senders, 60, 1).last(), Some(&1));
        let lossy = Sample { lost: 8, delivered_bytes: 1 << 30, ..sample(20) };
        assert_eq!((0..6).map(|_| senders.take(lossy)).last(), Some(usize::MAX));
    }

    #[test]
    fn two_send_most_of_the_time_where_one_does_not_fill_the_path() {
        let mut senders = Senders::of(4);
        let sent = send(&mut senders, 6000, 2);
        let one = sent.iter().filter(|&&now| now == 1).count();
        assert!(one < 200 && sent[1000..].iter().all(|&now| now <= 2), "{one}");
    }

    #[test]
    fn one_sends_where_others_had_filled_the_path_before() {
        let mut senders = Senders::of(4);
        let full = Sample { lost: 1, ..sample(26) };
        assert_eq!((0..20).map(|_| senders.take(full)).last(), Some(1));
    }

    #[test]
    fn a_source_that_is_the_limit_for_a_while_gets_all_again() {
        let mut senders = Senders::of(4);
        assert_eq!(send(&mut senders, 60, 1).last(), Some(&1));
        assert_eq!(send(&mut senders, 60, 9).last(), Some(&4));
        assert_eq!(send(&mut senders, 60, 1).last(), Some(&1));
    }

    #[test]
    fn silence_changes_nothing() {
        let mut senders = Senders::of(4);
        send(&mut senders, 60, 1);
        let silence = Sample { packets: 0, ..sample(20) };
        assert_eq!((0..600).map(|_| senders.take(silence)).max(), Some(1));
    }
}
