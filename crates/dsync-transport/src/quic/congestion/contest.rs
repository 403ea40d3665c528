//! The window beside a competitor that keeps the queue full.
//!
//! A sender that keeps no more than the path's own capacity in flight is starved by one that fills
//! the queue until it drops. Beside such a competitor, the window follows the curve of CUBIC (RFC
//! 9438), so that the two share as two CUBIC flows would, with one difference. A loss counts as
//! congestion only if the queue is near the fullest seen, because other losses say nothing about
//! the queue.
//!
//! The presence of a competitor can only be guessed from round trips, and jitter as long as the
//! path looks like one. They differ in this: a queue shrinks when this flow steps back, jitter does
//! not.

use std::time::{Duration, Instant};

/// The window of CUBIC, and the state that tells a full queue from bad luck.
#[derive(Debug, Clone)]
pub(super) struct Contest {
    window: u64,
    /// The window before the last cut, where the curve is flat.
    plateau: u64,
    /// Start of the curve, and its time to the plateau.
    epoch: Instant,
    rise: Duration,
    /// The window of a Reno flow with the same average (RFC 9438, section 4.3).
    reno: u64,
    /// The longest recent round trip.
    longest: Duration,
    last_cut: Instant,
    /// This flow's share of the path, as shown by looks, in per cent.
    share: u64,
    /// Whether the last look found no competitor.
    alone: bool,
    /// Part of each step back that the mean round trip has shown, in per cent.
    echo: u64,
}

/// The result of a look for the competitor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The competitor is there.
    Contested,
    /// The competitor is gone.
    Alone,
    /// There never was one: the delay in the round trips is not a queue.
    NoQueue,
}

impl Contest {
    /// Starts from `window` bytes as if it were on the plateau.
    pub(super) fn new(now: Instant, window: u64, rtt: Duration) -> Self {
        Self {
            window,
            plateau: window,
            epoch: now,
            rise: Duration::ZERO,
            reno: window,
            longest: rtt,
            last_cut: now,
            share: EVEN,
            alone: false,
            echo: EVEN,
        }
    }

    pub(super) fn window(&self) -> u64 {
        self.window
    }

    /// Updates the window for `bytes` that were acknowledged, the newest after `rtt`.
    pub(super) fn on_ack(&mut self, now: Instant, bytes: u64, rtt: Duration, mss: u64) {
        self.longest = self.longest.max(rtt);
        // RFC 9438, section 4.3: alpha = 3 * (1 - beta) / (1 + beta) = 0.53 packets a round.
        self.reno = self.reno.saturating_add(53 * mss * bytes / (100 * self.window.max(1)));
        let curve = self.curve(now + rtt, mss).max(self.reno);
        if curve > self.window {
            // Section 4.4: never faster than half the acknowledged bytes.
            self.window = curve.min(self.window.saturating_add(bytes / 2));
        }
    }

    /// Ends a round: older queue lengths now matter less.
    pub(super) fn on_round(&mut self, floor: Duration) {
        let above = self.longest.saturating_sub(floor);
        self.longest = floor + above * 63 / 64;
    }

    /// Takes the result of a look. The shortest round trips give this flow `share` per cent of the
    /// path, the mean ones show `echo` per cent of its step back; or it seems to be `alone`. A
    /// single look may reflect only a busy host.
    pub(super) fn on_look(&mut self, share: u64, echo: u64, alone: bool) -> Verdict {
        self.share = u64::midpoint(self.share, share);
        self.echo = u64::midpoint(self.echo, echo);
        if std::mem::replace(&mut self.alone, alone) && alone {
            Verdict::Alone
        } else if self.echo < NO_ECHO {
            Verdict::NoQueue
        } else {
            Verdict::Contested
        }
    }

    /// Excludes time in which the window was not used from its growth.
    pub(super) fn pause(&mut self, time: Duration) {
        self.epoch += time;
    }

    /// Handles a loss of data sent at `sent`. Returns whether the window was cut.
    pub(super) fn on_loss(
        &mut self,
        now: Instant,
        sent: Instant,
        rtt: Duration,
        floor: Duration,
        mss: u64,
    ) -> bool {
        let full = floor + self.longest.saturating_sub(floor) * FULL_PERCENT / 100;
        if sent <= self.last_cut || rtt < full {
            return false;
        }
        self.cut(now, mss);
        true
    }

    /// Cuts the window: the path is congested beyond doubt.
    pub(super) fn cut(&mut self, now: Instant, mss: u64) {
        self.last_cut = now;
        // Section 4.7: a flow that shrinks leaves room for a new one.
        self.plateau = if self.window < self.plateau { self.window * 85 / 100 } else { self.window };
        // Section 4.6 uses 0.7 for all. Which of two flows loses a packet of a full queue is
        // chance, and a flow that was unlucky a few times would stay behind for minutes.
        let keep = match self.share {
            0..LITTLE => 85,
            LITTLE..=MUCH => 70,
            _ => 60,
        };
        self.window = (self.window * keep / 100).max(4 * mss);
        self.reno = self.window;
        self.epoch = now;
        // Section 4.2: K = cbrt((W_max - cwnd) / C), in packets and seconds.
        let packets = self.plateau.saturating_sub(self.window) / mss.max(1);
        let packets = u32::try_from(packets).unwrap_or(u32::MAX);
        self.rise = Duration::try_from_secs_f64((f64::from(packets) / 0.4).cbrt()).unwrap_or_default();
    }

    /// Returns the curve of section 4.2: W(t) = C * (t - K)^3 + W_max, C = 0.4 packets per cubic
    /// second.
    fn curve(&self, at: Instant, mss: u64) -> u64 {
        let time = at.saturating_duration_since(self.epoch).as_millis();
        let rise = self.rise.as_millis();
        // Beyond a minute the bound on growth decides.
        let cube = |ms: u128| ms.min(60_000).pow(3) * u128::from(mss) * 4 / 10 / 1_000_000_000;
        let away = u64::try_from(cube(time.abs_diff(rise))).unwrap_or(u64::MAX);
        if time >= rise { self.plateau.saturating_add(away) } else { self.plateau.saturating_sub(away) }
    }
}

/// Queueing time from which the queue counts as full, in per cent of the longest seen.
const FULL_PERCENT: u32 = 60;
/// Shares in per cent.
const EVEN: u64 = 50;
const LITTLE: u64 = 42;
const MUCH: u64 = 60;
/// Echo in per cent below which nothing of the flow's own is in the queue, or there is no queue.
/// From an even share, two looks without any echo reach it. Found by trial on the simulated paths.
const NO_ECHO: u64 = 13;
