//! How hard to compress, from what limits the run.
//!
//! The rate of a run is `min(link / ratio, compression speed x cores)`. The gauge counts the time that
//! lanes spend waiting for the carrier. Where they wait most of the time the carrier is the bottleneck
//! and compressing pays: harder the slower it is. Where they do not, the processor or a disk is, and
//! frames go raw. Fixed by hand with `-z`, `--compress-choice`, `--no-compress`.

use std::{
    sync::Mutex,
    time::{Duration, Instant},
};

use dsync_wire::{
    compress::Effort,
    link::{Carrier, Link},
    options::Compression,
};

use crate::halt::lock;

/// The gauge shared by the lanes of a source.
pub(super) struct EffortGauge<'a> {
    link: &'a dyn Link,
    compression: Compression,
    lanes: u32,
    window: Mutex<Window>,
}

struct Window {
    started: Instant,
    sent_bytes: u64,
    waited: Duration,
    effort: Effort,
}

impl<'a> EffortGauge<'a> {
    /// Makes a gauge for `lanes` lanes of `link`.
    pub(super) fn new(link: &'a dyn Link, compression: Compression, lanes: usize) -> Self {
        let window =
            Window { started: Instant::now(), sent_bytes: 0, waited: Duration::ZERO, effort: Effort::Raw };
        Self {
            link,
            compression,
            lanes: u32::try_from(lanes).unwrap_or(1).max(1),
            window: Mutex::new(window),
        }
    }

    /// The effort for the next frame.
    pub(super) fn now(&self) -> Effort {
        match self.compression {
            Compression::Lz4 => Effort::Lz4,
            Compression::Zstd(level) => Effort::Zstd(level),
            Compression::Auto if self.link.carrier() != Carrier::Memory => lock(&self.window).effort,
            _ => Effort::Raw,
        }
    }

    /// Notes that a lane waited this long for the carrier to take a frame.
    pub(super) fn sent(&self, waited: Duration) {
        let mut window = lock(&self.window);
        window.waited += waited;
        let elapsed = window.started.elapsed();
        if elapsed < WINDOW {
            return;
        }
        let total = self.link.traffic().sent_bytes;
        let rate = rate_per_second(total.saturating_sub(window.sent_bytes), elapsed);
        let blocked = window.waited / self.lanes >= elapsed.mul_f64(BLOCKED_SHARE);
        let effort = choose(rate, blocked, window.effort);
        *window = Window { started: Instant::now(), sent_bytes: total, waited: Duration::ZERO, effort };
    }
}

/// The effort for a carrier that moves `rate` bytes a second and has lanes waiting or not.
fn choose(rate: u64, blocked: bool, current: Effort) -> Effort {
    if !blocked {
        // Not the bottleneck any more. Step down once, not to raw at once: compression itself may be
        // what relieved the carrier.
        return match current {
            Effort::Zstd(level) if level > 1 => Effort::Zstd(level - 1),
            other => other,
        };
    }
    match rate {
        rate if rate < 3_000_000 => Effort::Zstd(6),
        rate if rate < 12_000_000 => Effort::Zstd(3),
        rate if rate < 100_000_000 => Effort::Zstd(1),
        _ => Effort::Raw,
    }
}

fn rate_per_second(bytes: u64, elapsed: Duration) -> u64 {
    let micros = u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX).max(1);
    bytes.saturating_mul(1_000_000) / micros
}

/// How long a rate is measured before the effort changes.
const WINDOW: Duration = Duration::from_millis(100);
/// Lanes that wait longer than this share of the time make the carrier the bottleneck.
const BLOCKED_SHARE: f64 = 0.5;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_blocked_link_compresses_and_a_fast_one_does_not() {
        assert_eq!(choose(2_000_000, true, Effort::Raw), Effort::Zstd(6));
        assert_eq!(choose(50_000_000, true, Effort::Raw), Effort::Zstd(1));
        assert_eq!(choose(900_000_000, true, Effort::Zstd(1)), Effort::Raw);
        assert_eq!(choose(50_000_000, false, Effort::Raw), Effort::Raw);
    }
}
