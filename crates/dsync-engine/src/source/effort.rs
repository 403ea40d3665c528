//! How hard to compress, from what limits the run.
//!
//! The rate of a run is `min(link / ratio, compression speed x cores, the destination)`, and none of the
//! three is known beforehand. So the gauge climbs: while lanes wait for the carrier most of the time it
//! tries the next stronger step for one window, and keeps it only if more *content* went out than before.
//! Where the destination or the processor is the limit a step brings nothing, is taken back, and is not
//! tried again for a while. Lanes that hardly wait make it try the next lighter step in the same way.
//! Fixed by hand with `-z`, `--compress-choice`, `--no-compress`.

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
pub(super) struct EffortGauge {
    fixed: Option<Effort>,
    lanes: u32,
    window: Mutex<Window>,
}

struct Window {
    started: Instant,
    content_bytes: u64,
    waited: Duration,
    climber: Climber,
}

impl EffortGauge {
    /// Makes a gauge for `lanes` lanes of `link`.
    pub(super) fn new(link: &dyn Link, compression: Compression, lanes: usize) -> Self {
        let fixed = match compression {
            Compression::Lz4 => Some(Effort::Lz4),
            Compression::Zstd(level) => Some(Effort::Zstd(level)),
            Compression::Auto if link.carrier() != Carrier::Memory => None,
            _ => Some(Effort::Raw),
        };
        let window = Window {
            started: Instant::now(),
            content_bytes: 0,
            waited: Duration::ZERO,
            climber: Climber::default(),
        };
        Self { fixed, lanes: u32::try_from(lanes).unwrap_or(1).max(1), window: Mutex::new(window) }
    }

    /// The effort for the next frame.
    pub(super) fn now(&self) -> Effort {
        self.fixed.unwrap_or_else(|| lock(&self.window).climber.effort())
    }

    /// Notes that a frame with this much content was sent, and how long its lane waited for the carrier.
    pub(super) fn sent(&self, content_bytes: u64, waited: Duration) {
        if self.fixed.is_some() {
            return;
        }
        let mut window = lock(&self.window);
        window.content_bytes += content_bytes;
        window.waited += waited;
        let elapsed = window.started.elapsed();
        if elapsed < WINDOW {
            return;
        }
        let blocked = (window.waited / self.lanes).as_secs_f64() / elapsed.as_secs_f64();
        let rate = rate_per_second(window.content_bytes, elapsed);
        window.climber.observe(rate, blocked);
        window.started = Instant::now();
        window.content_bytes = 0;
        window.waited = Duration::ZERO;
    }
}

/// The search for the best step; one observation per window.
#[derive(Default)]
struct Climber {
    step: usize,
    /// Step and rate before the trial that is under way.
    trial: Option<(usize, u64)>,
    /// Windows until the next trial.
    pause: u32,
    next_pause: u32,
}

impl Climber {
    fn effort(&self) -> Effort {
        STEPS[self.step]
    }

    /// Takes the content bytes per second of a window and the share of it that lanes were blocked.
    fn observe(&mut self, rate: u64, blocked: f64) {
        if let Some((before, rate_before)) = self.trial.take() {
            let stronger = self.step > before;
            let keep = if stronger { rate > rate_before / 10 * 11 } else { rate >= rate_before / 100 * 97 };
            if keep {
                self.next_pause = 0;
            } else {
                self.step = before;
                self.next_pause = (self.next_pause * 2).clamp(MIN_PAUSE, MAX_PAUSE);
                self.pause = self.next_pause;
                return;
            }
        }
        if self.pause > 0 {
            self.pause -= 1;
            return;
        }
        if blocked > BLOCKED && self.step + 1 < STEPS.len() {
            self.trial = Some((self.step, rate));
            self.step += 1;
        } else if blocked < FREE && self.step > 0 {
            self.trial = Some((self.step, rate));
            self.step -= 1;
        }
    }
}

fn rate_per_second(bytes: u64, elapsed: Duration) -> u64 {
    let micros = u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX).max(1);
    bytes.saturating_mul(1_000_000) / micros
}

/// From light to strong. lz4 is left out: zstd 1 is better on all links below about 5 Gbit/s, and above
/// those nothing pays.
const STEPS: [Effort; 4] = [Effort::Raw, Effort::Zstd(1), Effort::Zstd(3), Effort::Zstd(6)];
/// How long one observation takes.
const WINDOW: Duration = Duration::from_millis(100);
/// Lanes that wait longer than this share of the time make a stronger step worth a trial.
const BLOCKED: f64 = 0.5;
/// Lanes that wait less than this make a lighter step worth a trial.
const FREE: f64 = 0.1;
/// Windows between trials that fail: 1 s at first, doubled up to 16 s, so that trials that cost a tenth
/// of their window cost a hundredth of a run.
const MIN_PAUSE: u32 = 10;
const MAX_PAUSE: u32 = 160;

#[cfg(test)]
mod tests {
    use super::*;

    /// Content rate in MB/s and blocked share of a path with this link and this destination.
    fn path(step: usize, link: f64, destination: f64) -> (u64, f64) {
        let (ratio, compress) = [(1.0, 10_000.0), (4.0, 800.0), (4.4, 500.0), (4.8, 150.0)][step];
        let carrier = (link * ratio).min(destination);
        let rate = carrier.min(compress);
        let blocked = if carrier <= compress { 1.0 - carrier / compress } else { 0.0 };
        (to_bytes(rate), blocked)
    }

    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "small positive numbers")]
    fn to_bytes(megabytes: f64) -> u64 {
        (megabytes * 1e6) as u64
    }

    /// Where the climber spends most of its windows.
    fn settles(link: f64, destination: f64) -> usize {
        let mut climber = Climber::default();
        let mut spent = [0; STEPS.len()];
        for _ in 0..2000 {
            let (rate, blocked) = path(climber.step, link, destination);
            spent[climber.step] += 1;
            climber.observe(rate, blocked);
        }
        (0..STEPS.len()).max_by_key(|step| spent[*step]).unwrap_or(0)
    }

    #[test]
    fn a_slow_link_is_compressed_and_a_slow_destination_is_not() {
        assert!(settles(2.0, 1000.0) >= 1);
        assert!(settles(50.0, 1000.0) >= 1);
        assert_eq!(settles(5000.0, 300.0), 0, "the destination is the limit: compressing brings nothing");
        assert_eq!(settles(1200.0, 2000.0), 0, "the link is faster than compression");
    }

    #[test]
    fn trials_that_fail_become_rare() {
        let mut climber = Climber::default();
        let mut trials = 0;
        for _ in 0..1000 {
            let (rate, blocked) = path(climber.step, 5000.0, 300.0);
            climber.observe(rate, blocked);
            trials += usize::from(climber.trial.is_some());
        }
        assert!(trials < 20, "{trials} trials in 1000 windows");
    }
}
