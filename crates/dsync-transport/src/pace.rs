//! A link that sends no faster than it may (`--bwlimit`).
//!
//! The law: over any stretch of time, the payload that all lanes of this end pass to the carrier
//! stays within the rate times that stretch plus one burst. While there is something to send, it
//! stays no more than a burst behind. The implementation is a token bucket, stored as the moment at
//! which all bytes sent so far are paid for. A lane waits for its turn *before* it sends, so a low
//! rate looks like a slow carrier to anything that measures it.
//!
//! Small messages (signs of life, requests) count like all others but do not wait: behind sixteen
//! lanes of data they would arrive too late on a slow link.

use std::{
    num::NonZeroU64,
    sync::{Arc, Mutex, PoisonError},
    thread,
    time::{Duration, Instant},
};

use bytes::Bytes;
use dsync_wire::link::{Carrier, CloseReason, Lane, LaneWrite, Link, LinkError, Traffic};

/// Limits what this end sends over `link` to a rate in bytes per second; returns the link itself
/// without a rate.
pub fn paced(link: Arc<dyn Link>, bytes_per_second: Option<NonZeroU64>) -> Arc<dyn Link> {
    match bytes_per_second {
        Some(rate) => Arc::new(PacedLink { link, pace: Arc::new(Pace::new(rate)) }),
        None => link,
    }
}

struct PacedLink {
    link: Arc<dyn Link>,
    pace: Arc<Pace>,
}

impl PacedLink {
    fn lane(&self, lane: Lane) -> Lane {
        Lane { tx: Box::new(Writer { tx: lane.tx, pace: Arc::clone(&self.pace) }), rx: lane.rx }
    }
}

impl Link for PacedLink {
    fn carrier(&self) -> Carrier {
        self.link.carrier()
    }

    fn data_lanes(&self) -> usize {
        self.link.data_lanes()
    }

    fn is_near(&self) -> bool {
        self.link.is_near()
    }

    fn open_lane(&self) -> Result<Lane, LinkError> {
        Ok(self.lane(self.link.open_lane()?))
    }

    fn accept_lane(&self) -> Result<Lane, LinkError> {
        Ok(self.lane(self.link.accept_lane()?))
    }

    fn traffic(&self) -> Traffic {
        self.link.traffic()
    }

    fn close(&self, reason: CloseReason) {
        self.link.close(reason);
    }
}

struct Writer {
    tx: Box<dyn LaneWrite>,
    pace: Arc<Pace>,
}

impl LaneWrite for Writer {
    fn write(&mut self, mut data: Bytes) -> Result<(), LinkError> {
        let waits = data.len() > SMALL;
        while !data.is_empty() {
            let piece = data.split_to(data.len().min(self.pace.piece));
            let wait = self.pace.take(piece.len());
            if waits {
                thread::sleep(wait);
            }
            // If the link ended meanwhile, this reports it.
            self.tx.write(piece)?;
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<(), LinkError> {
        self.tx.finish()
    }
}

/// The rate shared by the lanes of one end.
struct Pace {
    origin: Instant,
    /// Length of a piece in bytes.
    piece: usize,
    bucket: Mutex<Bucket>,
}

impl Pace {
    fn new(rate: NonZeroU64) -> Self {
        let piece = usize::try_from(rate.get() / PIECES_PER_SECOND).unwrap_or(usize::MAX);
        Self {
            origin: Instant::now(),
            piece: piece.clamp(SMALL, LARGEST_PIECE),
            bucket: Mutex::new(Bucket::new(rate)),
        }
    }

    fn take(&self, bytes: usize) -> Duration {
        let mut bucket = self.bucket.lock().unwrap_or_else(PoisonError::into_inner);
        bucket.take(self.origin.elapsed(), bytes as u64)
    }
}

/// The arithmetic, on a clock passed by the caller.
struct Bucket {
    rate: u64,
    /// The time at which everything sent so far is paid for.
    paid_at: Duration,
}

impl Bucket {
    fn new(rate: NonZeroU64) -> Self {
        Self { rate: rate.get(), paid_at: Duration::ZERO }
    }

    /// Records `bytes` as sent; returns how long they must wait.
    fn take(&mut self, now: Duration, bytes: u64) -> Duration {
        // Time in which nothing was sent is worth one burst.
        let start = self.paid_at.max(now.saturating_sub(BURST));
        let nanoseconds = u128::from(bytes) * 1_000_000_000 / u128::from(self.rate);
        let cost = Duration::from_nanos(u64::try_from(nanoseconds).unwrap_or(u64::MAX));
        self.paid_at = start.saturating_add(cost);
        start.saturating_sub(now)
    }
}

/// Time whose bytes may be sent at once after a pause: as long as a busy machine may take to run a
/// thread, or a carrier to take a piece. Over ten seconds this is 2.5 % more than the rate.
const BURST: Duration = Duration::from_millis(250);
/// Number of pieces into which one second's bytes are cut: sixteen lanes of them keep each other
/// waiting for 0.8 s.
const PIECES_PER_SECOND: u64 = 20;
/// Largest piece in bytes.
const LARGEST_PIECE: usize = 256 << 10;
/// Length in bytes up to which a message does not wait.
const SMALL: usize = 512;

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn bucket(rate: u64) -> Bucket {
        Bucket::new(NonZeroU64::new(rate).unwrap())
    }

    proptest! {
        /// Law: for any pieces and any delays, ten seconds of a busy sender carry the rate within 5
        /// %.
        #[test]
        fn ten_seconds_carry_ten_times_the_rate(
            rate in 1000_u64..2_000_000_000,
            pieces in prop::collection::vec((1_u64..=20, 0_u64..50_000), 1..40),
        ) {
            let mut bucket = bucket(rate);
            let (mut now, mut sent) = (Duration::ZERO, 0);
            for (share, late_micros) in pieces.iter().cycle() {
                let piece = (rate / (20 * share)).max(1);
                let wait = bucket.take(now, piece);
                // A thread is never woken early, and often late.
                let late = if wait.is_zero() { 0 } else { *late_micros };
                now += wait + Duration::from_micros(late);
                if now >= Duration::from_secs(10) {
                    break;
                }
                sent += piece;
            }
            let expected = 10.0 * rate as f64;
            prop_assert!((sent as f64 - expected).abs() < 0.05 * expected, "{sent} of {expected}");
        }
    }

    #[test]
    fn a_carrier_that_stands_still_for_a_moment_each_second_loses_nothing() {
        let mut bucket = bucket(1_000_000);
        let (mut now, mut sent) = (Duration::ZERO, 0);
        let mut still = Duration::from_secs(1);
        while now < Duration::from_secs(10) {
            now += bucket.take(now, 50_000);
            sent += 50_000;
            if now >= still {
                now += BURST;
                still += Duration::from_secs(1);
            }
        }
        assert!((9_700_000..=10_300_000).contains(&sent), "{sent}");
    }

    #[test]
    fn a_pause_is_worth_one_burst() {
        let mut bucket = bucket(1_000_000);
        let later = Duration::from_secs(3600);
        assert_eq!(bucket.take(later, 250_000), Duration::ZERO);
        assert_eq!(bucket.take(later, 1), Duration::ZERO);
        assert!(bucket.take(later, 1) > Duration::ZERO);
    }

    #[test]
    fn lanes_take_turns() {
        let mut bucket = bucket(1000);
        let waits: Vec<_> = (0..4).map(|_| bucket.take(Duration::ZERO, 500).as_millis()).collect();
        assert_eq!(waits, [0, 500, 1000, 1500]);
    }

    #[test]
    fn absurd_rates_do_not_overflow() {
        assert_eq!(bucket(u64::MAX).take(Duration::MAX, u64::MAX), Duration::ZERO);
        let mut slow = bucket(1);
        for _ in 0..3 {
            slow.take(Duration::ZERO, u64::MAX);
        }
    }
}
