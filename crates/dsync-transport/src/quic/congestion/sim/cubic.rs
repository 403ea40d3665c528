//! A TCP CUBIC flow (RFC 9438, slow start of RFC 5681), the competitor of the fairness tests.
//!
//! Written independently of the product's own curve, in floating point, so that one cannot hide a
//! mistake of the other.

use std::time::Instant;

use super::{Law, PACKET};

pub(crate) struct Cubic {
    /// Window in packets.
    window: f64,
    threshold: f64,
    plateau: f64,
    reno: f64,
    epoch: Option<Instant>,
    rise: f64,
    cut: Option<Instant>,
}

impl Cubic {
    pub(crate) fn new() -> Self {
        Self { window: 10.0, threshold: f64::MAX, plateau: 0.0, reno: 0.0, epoch: None, rise: 0.0, cut: None }
    }
}

impl Law for Cubic {
    fn on_sent(&mut self, _now: Instant, _bytes: u64) {}

    fn on_ack(&mut self, now: Instant, sent: Instant, _bytes: u64) {
        if self.cut.is_some_and(|cut| sent <= cut) {
            return;
        }
        if self.window < self.threshold {
            self.window += 1.0;
            return;
        }
        let epoch = *self.epoch.get_or_insert(now);
        let rtt = (now - sent).as_secs_f64();
        let time = (now - epoch).as_secs_f64() + rtt;
        self.reno += 3.0 * 0.3 / 1.7 / self.window;
        let curve = 0.4 * (time - self.rise).powi(3) + self.plateau;
        let target = curve.clamp(self.window, 1.5 * self.window);
        self.window = (self.window + (target - self.window) / self.window).max(self.reno);
    }

    fn on_end_acks(&mut self, _now: Instant, _in_flight: u64, _limited: bool) {}

    fn on_loss(&mut self, now: Instant, sent: Instant, persistent: bool, _lost: u64) {
        if self.cut.is_some_and(|cut| sent <= cut) {
            return;
        }
        self.cut = Some(now);
        self.epoch = Some(now);
        self.plateau = if self.window < self.plateau { self.window * 0.85 } else { self.window };
        self.window = (self.window * 0.7).max(2.0);
        self.threshold = self.window;
        self.reno = self.window;
        self.rise = ((self.plateau - self.window) / 0.4).cbrt();
        if persistent {
            self.window = 2.0;
        }
    }

    fn window(&self) -> u64 {
        self.window as u64 * PACKET
    }

    fn paced(&self) -> bool {
        false
    }
}
