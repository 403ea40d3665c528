//! The choice of compression, from the limit of the run.
//!
//! The rate of a run is `min(link / density, compression speed x cores, the destination)`, where
//! the density is the compressed share of the content; none of it is known beforehand. So the gauge
//! climbs: while lanes wait for the carrier most of the time, it tries the next stronger step for
//! one window. The lengths of the frames show exactly how dense that makes the content, and so the
//! rate that the step would reach if the link were the limit. If the run reaches that rate, the
//! link *is* the limit, and from then on densities alone decide, which are not noisy as rates are.
//! If not, the destination is the limit, and the step is taken back. Lanes that hardly wait make it
//! try the next lighter step, and keep it unless content became slower. Lanes that wait may wait for a
//! processor that compression takes from the carrier (ssh's own encryption): so a lighter step is tried
//! there too, in turn with stronger ones that fail, and kept if content became faster. Fixed by hand
//! with `-z`, `--compress-choice`, `--no-compress`.

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

/// One frame that went out.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sent {
    /// The effort that packed it.
    pub(super) effort: Effort,
    pub(super) content_bytes: u64,
    pub(super) wire_bytes: u64,
    /// Time that its lane waited for the carrier.
    pub(super) waited: Duration,
}

struct Window {
    started: Instant,
    content_bytes: u64,
    waited: Duration,
    /// Frames with the effort of now: those of the one before are still on their way.
    measured: Measured,
    /// Bytes that the carrier may still take before it shows how fast it is; none once it has made
    /// lanes wait.
    unseen_bytes: u64,
    climber: Climber,
}

#[derive(Default)]
struct Measured {
    frames: u32,
    content_bytes: u64,
    wire_bytes: u64,
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
        // A long path is slower than a light compression more often than not, and raw content of
        // the first window delays all that follows.
        let (step, unseen_bytes) = if link.is_near() { (0, 0) } else { (ZSTD_1, BUFFERS) };
        let window = Window {
            started: Instant::now(),
            content_bytes: 0,
            waited: Duration::ZERO,
            measured: Measured::default(),
            unseen_bytes,
            climber: Climber { step, ..Climber::default() },
        };
        Self { fixed, lanes: u32::try_from(lanes).unwrap_or(1).max(1), window: Mutex::new(window) }
    }

    /// Returns the effort for the next frame.
    pub(super) fn now(&self) -> Effort {
        self.fixed.unwrap_or_else(|| lock(&self.window).climber.effort())
    }

    /// Notes that a frame was sent.
    pub(super) fn sent(&self, frame: Sent) {
        if self.fixed.is_some() {
            return;
        }
        let mut window = lock(&self.window);
        window.unseen_bytes = window.unseen_bytes.saturating_sub(frame.wire_bytes);
        window.content_bytes += frame.content_bytes;
        window.waited += frame.waited;
        if frame.effort == window.climber.effort() {
            window.measured.frames += 1;
            window.measured.content_bytes += frame.content_bytes;
            window.measured.wire_bytes += frame.wire_bytes;
        }

        let elapsed = window.started.elapsed();
        let enough = window.measured.frames >= self.lanes && elapsed >= WINDOW;
        if !enough && elapsed < LONGEST_WINDOW {
            return;
        }

        let Measured { content_bytes, wire_bytes, .. } = std::mem::take(&mut window.measured);
        let sample = Sample {
            rate: ratio(window.content_bytes, 1) / elapsed.as_secs_f64(),
            density: if content_bytes == 0 { 1.0 } else { ratio(wire_bytes, content_bytes) },
            blocked: (window.waited / self.lanes).as_secs_f64() / elapsed.as_secs_f64(),
        };
        window.judge(sample);
        window.started = Instant::now();
        window.content_bytes = 0;
        window.waited = Duration::ZERO;
    }
}

impl Window {
    /// Lets the climber see a sample that tells how fast the carrier is.
    fn judge(&mut self, sample: Sample) {
        if sample.blocked > BLOCKED {
            self.unseen_bytes = 0;
        }
        if self.unseen_bytes == 0 {
            self.climber.observe(sample);
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "shares and rates are compared by the hundredth")]
fn ratio(a: u64, b: u64) -> f64 {
    a as f64 / b as f64
}

/// One window.
#[derive(Debug, Clone, Copy)]
struct Sample {
    /// Content bytes per second.
    rate: f64,
    /// Bytes on the wire for each byte of content.
    density: f64,
    /// Share of the time that lanes waited for the carrier.
    blocked: f64,
}

/// The search for the best step; one observation per window.
#[derive(Default)]
struct Climber {
    step: usize,
    /// Step and sample before the current trial.
    trial: Option<(usize, Sample)>,
    /// Whether a step has reached the rate that the link alone would allow for it.
    link_bound: bool,
    /// Whether a lighter step is to be tried next, also where lanes wait: they may wait for a processor
    /// that compression keeps from the carrier.
    lighter_next: bool,
    /// Windows until the next trial.
    pause: u32,
    next_pause: u32,
}

impl Climber {
    fn effort(&self) -> Effort {
        STEPS[self.step]
    }

    fn observe(&mut self, now: Sample) {
        if let Some((step, before)) = self.trial.take() {
            let keeps = self.keeps(step, before, now);
            // What succeeded may succeed again, and what failed lets the other side have its turn.
            self.lighter_next = if keeps { self.step < step } else { self.step > step.max(LZ4) };
            if !keeps {
                self.step = step;
                self.pause = self.next_pause;
                return;
            }
        }
        if self.pause > 0 {
            self.pause -= 1;
            return;
        }
        if let Some(step) = self.next_trial(now.blocked) {
            self.trial = Some((self.step, now));
            self.step = step;
        }
    }

    /// Returns the step to try next.
    fn next_trial(&self, blocked: f64) -> Option<usize> {
        let is_blocked = blocked > BLOCKED;
        if self.step > 0 && (!is_blocked || self.lighter_next && !self.link_bound) {
            return Some(self.step - 1);
        }
        // Most links that are slow at all are slow enough for zstd; after it, lz4 is tried from raw.
        let stronger = if self.lighter_next { self.step + 1 } else { (self.step + 1).max(ZSTD_1) };
        (is_blocked && stronger < STEPS.len()).then_some(stronger)
    }

    /// Judges a trial.
    fn keeps(&mut self, step: usize, before: Sample, now: Sample) -> bool {
        if self.step < step {
            // Lighter: its cost on the link shows in the rate, if the link has become the limit. Lanes
            // that wait a part of the time may wait for a processor, which the carrier needs too: then
            // a lighter step brings more, and must, as it takes more of the link. So must one whose
            // content is far less dense: a rate that noise has raised would lead on to raw content, which
            // fills the buffers of the path in a window.
            let is_dear = now.density > before.density * CLEAR;
            let least = if before.blocked < FREE && !is_dear { 1.0 - NOISE } else { 1.0 + NOISE };
            let keep = now.rate >= before.rate * least;
            if keep {
                self.link_bound = false;
            } else {
                self.wait_longer();
            }
            return keep;
        }

        let promised = before.density / now.density.max(LEAST_DENSITY);
        if promised < 1.0 + WORTH {
            // The content gets no denser: that may change with the next file.
            self.next_pause = MIN_PAUSE;
            return false;
        }

        let brought = now.rate / before.rate.max(1.0);
        let keep = if now.blocked <= FREE {
            // The processor is the limit now, which a rate shows as it is.
            brought > 1.0 + NOISE
        } else if promised > CLEAR {
            brought > 1.0 + ((promised - 1.0) / 4.0).min(CLEAR - 1.0)
        } else {
            self.link_bound || brought > 1.0 + NOISE
        };
        if keep {
            self.next_pause = 0;
            self.link_bound |= promised > CLEAR && brought > 1.0 + (promised - 1.0) / 2.0;
        } else {
            self.wait_longer();
        }
        keep
    }

    fn wait_longer(&mut self) {
        self.next_pause = (self.next_pause * 2).clamp(MIN_PAUSE, MAX_PAUSE);
    }
}

/// The steps from light to strong. Those between are left out: their densities differ by less than
/// two hundredths.
const STEPS: [Effort; 6] =
    [Effort::Raw, Effort::Lz4, Effort::Zstd(1), Effort::Zstd(3), Effort::Zstd(6), Effort::Zstd(9)];
/// The lightest compression.
const LZ4: usize = 1;
/// The step to begin with on a link that is probably long.
const ZSTD_1: usize = 2;
/// Least length of one observation.
const WINDOW: Duration = Duration::from_millis(100);
/// Most: a link that takes longer for a frame of each lane is slow enough to be judged by fewer.
const LONGEST_WINDOW: Duration = Duration::from_millis(1000);
/// Most bytes that windows, sockets and pipes of a long path take before lanes wait (QUIC's send
/// window): until then the path seems to be as fast as memory.
const BUFFERS: u64 = 24 << 20;
/// Lanes that wait longer than this share of the time make a stronger step worth a trial.
const BLOCKED: f64 = 0.5;
/// Lanes that wait less than this make a lighter step worth a trial.
const FREE: f64 = 0.1;
/// Difference between the rates of two windows, as a share, that may come from noise alone.
const NOISE: f64 = 0.05;
/// Gain in density below which a step is not worth its processor time.
const WORTH: f64 = 0.02;
/// Gain that no noise explains.
const CLEAR: f64 = 1.25;
/// Zeros alone are this dense; keeps a quotient finite.
const LEAST_DENSITY: f64 = 0.001;
/// Windows between trials that fail: 1 s at first, doubled up to 16 s, so that trials that cost a
/// tenth of their window cost a hundredth of a run.
const MIN_PAUSE: u32 = 10;
const MAX_PAUSE: u32 = 160;

#[cfg(test)]
mod tests {
    use dsync_wire::link::{CloseReason, Lane, LinkError, Traffic};

    use super::*;

    /// Speed in MB/s and density of each step on log text, on one core.
    const TEXT: [(f64, f64); 6] =
        [(20_000.0, 1.0), (900.0, 0.36), (700.0, 0.24), (400.0, 0.225), (130.0, 0.20), (60.0, 0.19)];

    /// Returns the sample of a window on a path with this link and this destination, with this much
    /// noise.
    fn path(step: usize, (link, destination): (f64, f64), noise: f64) -> Sample {
        let (compress, density) = TEXT[step];
        let carrier = (link / density).min(destination);
        let rate = carrier.min(compress);
        let blocked = if carrier <= compress { 1.0 - carrier / compress } else { 0.0 };
        Sample { rate: rate * 1e6 * noise, density, blocked }
    }

    /// Returns the sample of a window where compression, carrier and destination share two processors.
    fn shared(step: usize, (carrier, destination): (f64, f64), noise: f64) -> Sample {
        let (compress, density) = TEXT[step];
        let others = density / carrier + 1.0 / destination;
        let all = 1.0 / compress + others;
        Sample { rate: 2.0 / all * 1e6 * noise, density, blocked: others / all }
    }

    /// Returns the mean rate in MB/s over `windows` windows, as a share of the best fixed step's.
    fn share_of_best(first: usize, windows: u32, sample: impl Fn(usize, f64) -> Sample) -> f64 {
        let mut climber = Climber { step: first, ..Climber::default() };
        let (mut sum, mut state) = (0.0, 1_u32);
        for _ in 0..windows {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let noise = 0.9 + f64::from(state >> 16) / f64::from(1_u32 << 16) * 0.2;
            sum += sample(climber.step, 1.0).rate;
            climber.observe(sample(climber.step, noise));
        }
        let best = (0..STEPS.len()).map(|step| sample(step, 1.0).rate).fold(0.0, f64::max);
        sum / f64::from(windows) / best
    }

    #[test]
    fn a_carrier_that_needs_the_processors_comes_within_a_sixth_of_its_best_step() {
        for first in [0, ZSTD_1] {
            for carrier in [50.0, 100.0, 200.0, 400.0, 800.0, 1600.0] {
                for destination in [300.0, 800.0, 3000.0] {
                    let sample = |step, noise| shared(step, (carrier, destination), noise);
                    let share = share_of_best(first, 300, sample);
                    assert!(
                        share > 0.84,
                        "{first}, carrier {carrier}, destination {destination}: {share:.3}"
                    );
                }
            }
        }
    }

    #[test]
    fn every_path_comes_within_a_tenth_of_its_best_step() {
        for link in [0.3, 2.5, 12.0, 25.0, 125.0, 300.0, 600.0, 1200.0, 5000.0] {
            for destination in [20.0, 300.0, 2000.0] {
                let share = share_of_best(0, 300, |step, noise| path(step, (link, destination), noise));
                assert!(share > 0.9, "link {link}, destination {destination}: {share:.3}");
            }
        }
    }

    #[test]
    fn content_that_gives_nothing_costs_a_few_windows_in_a_hundred() {
        let mut climber = Climber::default();
        let mut light = 0;
        for _ in 0..1000 {
            light += u32::from(climber.step == 0);
            climber.observe(Sample { rate: 1e9, density: 1.0, blocked: 0.9 });
        }
        assert!(light > 900, "{light} of 1000 windows raw");
    }

    #[test]
    fn text_after_noise_is_found_within_two_seconds() {
        let mut climber = Climber::default();
        for _ in 0..1000 {
            climber.observe(Sample { rate: 2.5e6, density: 1.0, blocked: 0.99 });
        }
        for _ in 0..20 {
            climber.observe(path(climber.step, (2.5, 1000.0), 1.0));
        }
        assert!(climber.step >= ZSTD_1, "step {}", climber.step);
    }

    #[test]
    fn a_far_less_dense_step_that_is_no_faster_is_left() {
        let at = |step: usize| Sample { rate: 500e6, density: TEXT[step].1, blocked: 0.05 };
        let mut climber = Climber { step: ZSTD_1, ..Climber::default() };
        for _ in 0..100 {
            climber.observe(at(climber.step));
        }
        assert_eq!(climber.trial.map_or(climber.step, |(step, _)| step), ZSTD_1);
    }

    #[test]
    fn a_short_path_begins_raw_and_any_other_compressed() {
        let (link, _peer) = dsync_transport::memory::pair();
        let begin = |carrier, near| {
            let link = Path { carrier, near, link: &link };
            EffortGauge::new(&link, Compression::Auto, 4).now()
        };
        for carrier in [Carrier::Quic, Carrier::Tls, Carrier::Ssh] {
            assert_eq!(begin(carrier, true), Effort::Raw, "{carrier}");
            assert_eq!(begin(carrier, false), Effort::Zstd(1), "{carrier}");
        }
    }

    #[test]
    fn a_long_path_that_only_fills_its_buffers_is_not_taken_for_a_fast_one() {
        let (link, _peer) = dsync_transport::memory::pair();
        let link = Path { carrier: Carrier::Tls, near: false, link: &link };
        let gauge = EffortGauge::new(&link, Compression::Auto, 4);
        let free = Sample { rate: 1e9, density: 0.24, blocked: 0.0 };
        for (blocked, effort) in [(0.0, 1), (0.0, 1), (0.9, 3)] {
            lock(&gauge.window).judge(Sample { blocked, ..free });
            assert_eq!(gauge.now(), Effort::Zstd(effort));
        }
    }

    /// A link that claims to be another.
    struct Path<'a> {
        carrier: Carrier,
        near: bool,
        link: &'a dyn Link,
    }

    impl Link for Path<'_> {
        fn carrier(&self) -> Carrier {
            self.carrier
        }

        fn data_lanes(&self) -> usize {
            self.link.data_lanes()
        }

        fn is_near(&self) -> bool {
            self.near
        }

        fn open_lane(&self) -> Result<Lane, LinkError> {
            self.link.open_lane()
        }

        fn accept_lane(&self) -> Result<Lane, LinkError> {
            self.link.accept_lane()
        }

        fn traffic(&self) -> Traffic {
            self.link.traffic()
        }

        fn close(&self, reason: CloseReason) {
            self.link.close(reason);
        }
    }

    #[test]
    fn trials_that_fail_become_rare() {
        let mut climber = Climber::default();
        let mut trials = 0;
        for _ in 0..1000 {
            let sample = path(climber.step, (5000.0, 300.0), 1.0);
            climber.observe(sample);
            trials += usize::from(climber.trial.is_some());
        }
        assert!(trials < 20, "{trials} trials in 1000 windows");
    }
}
