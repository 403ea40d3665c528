//! The path's usual loss: the loss of data sent while this flow kept out of the queue. Loss above
//! it, beyond chance, is the queue's (or a policer's).

use std::time::Instant;

/// The path's loss while this flow has nothing in its queue.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct UsualLoss {
    /// Parts per million, once measured.
    ppm: Option<u64>,
    /// Times of sending of the data that counts.
    watched: Option<(Instant, Instant)>,
    acked: u64,
    lost: u64,
}

impl UsualLoss {
    /// Starts counting data sent from `from` until before `to`; judges the data counted so far.
    pub(super) fn watch(&mut self, from: Instant, to: Instant) {
        let all = self.acked + self.lost;
        if let Some(seen) = (self.lost * 1_000_000).checked_div(all) {
            let seen = seen.min(HEAVY_LOSS);
            // Earlier losses to a queue must not excuse later ones: quicker down than up.
            self.ppm = Some(match self.ppm {
                Some(ppm) if seen > ppm => (3 * ppm + seen) / 4,
                Some(ppm) => (ppm + seen) / 2,
                None => seen,
            });
        }
        *self = Self { ppm: self.ppm, watched: Some((from, to)), acked: 0, lost: 0 };
    }

    /// Returns parts per million; 0 before it is known.
    pub(super) fn ppm(&self) -> u64 {
        self.ppm.unwrap_or(0)
    }

    pub(super) fn is_known(&self) -> bool {
        self.ppm.is_some()
    }

    fn watches(&self, sent: Instant) -> bool {
        self.watched.is_some_and(|(from, to)| from <= sent && sent < to)
    }

    /// Records that `bytes` sent at `sent` were acknowledged.
    pub(super) fn acked(&mut self, sent: Instant, bytes: u64) {
        if self.watches(sent) {
            self.acked += bytes;
        }
    }

    /// Records that `bytes` were lost, the last of them sent at `sent`.
    pub(super) fn lost(&mut self, sent: Instant, bytes: u64) {
        if self.watches(sent) {
            self.lost += bytes;
        }
    }
}

/// Loss in a round that is congestion whatever is usual, in parts per million.
pub(super) const HEAVY_LOSS: u64 = 100_000;
