//! Decides which of two carriers takes what is sent next. Pure: samples in, decisions out.
//!
//! TLS costs less processor time, so it goes first. Where losses hold TCP back ([`LossWatch`]), the data
//! moves to QUIC; after a time without losses it moves back. What neither shows (one carrier that the path
//! holds back) is found by a look at the other one now and then. Whichever takes over is on trial: one that is
//! slower than the other was gives the data back, and the next attempt waits for twice the time.
//!
//! The laws it keeps: no more than [`MOST_AT_ONCE`] moves in a row, and one for each [`EARNED_IN`] in
//! which something was sent; a move that a trial may take back leaves the means for that; a sender that
//! has nothing to send decides nothing. `day` simulates days of paths that change.

use std::time::Duration;

use dsync_wire::link::{Carrier, Move, MoveCause};

use crate::losses::{LossWatch, Sample};

/// The decisions of one end of a link.
#[derive(Debug)]
pub(crate) struct Choice {
    on: Carrier,
    watch: LossWatch,
    /// The judgement of the carrier in use, until it is made.
    trial: Option<Trial>,
    /// Counts of the carrier in use since it took over, or since its last loss if that is QUIC.
    calm: Sample,
    /// Time of that before the other carrier has another go; zero unless the last one failed.
    patience: Duration,
    /// Time of sending since the carrier in use took over.
    stay: Duration,
    /// Time of that after which the other carrier has a go whatever this one shows.
    review: Duration,
    budget: Budget,
}

/// A carrier beside the one before it.
#[derive(Debug)]
struct Trial {
    /// Rate of the one before, in bytes per second.
    rate_before: f64,
    samples: u32,
    seen: Sample,
}

/// The moves that may still be made.
#[derive(Debug)]
struct Budget {
    moves: u32,
    /// Time of sending since the last one was earned.
    earning: Duration,
}

impl Choice {
    /// Begins with TLS.
    pub(crate) fn new() -> Self {
        Self {
            on: Carrier::Tls,
            watch: LossWatch::default(),
            trial: None,
            calm: Sample::default(),
            patience: Duration::ZERO,
            stay: Duration::ZERO,
            review: FIRST_REVIEW,
            budget: Budget { moves: MOST_AT_ONCE, earning: Duration::ZERO },
        }
    }

    /// Returns the carrier of what is sent next.
    #[cfg(test)]
    pub(crate) fn carrier(&self) -> Carrier {
        self.on
    }

    /// Takes what the carrier in use showed. Returns the move to make, if any; none while the other
    /// carrier is not `open`.
    pub(crate) fn take(&mut self, sample: Sample, open: bool) -> Option<Move> {
        if sample.packets == 0 || !open {
            return None;
        }
        self.budget.earn(sample.span);
        self.stay += sample.span;
        let lossy = self.watch.take(sample);
        self.calm = self.calm.join(&sample);
        if self.on == Carrier::Quic && self.calm.loss() > CLEAN_LOSS {
            self.calm = Sample::default();
        }

        match self.trial.as_mut().map(|trial| trial.take(sample)) {
            // TLS need not be judged where losses hold it back.
            Some(None) if self.on == Carrier::Quic || lossy.is_none() => return None,
            Some(Some(true)) => {
                let back = self.go(MoveCause::Slower)?;
                self.patience = (self.patience * 2).clamp(FIRST_PATIENCE, LAST_PATIENCE);
                self.review = (self.review * 2).min(LAST_REVIEW);
                return Some(back);
            }
            Some(Some(false)) => (self.trial, self.patience) = (None, Duration::ZERO),
            _ => {}
        }
        let cause = self.cause(lossy)?;
        (self.budget.moves >= 2).then(|| self.go(cause)).flatten()
    }

    /// Returns the reason to leave the carrier in use, if there is one; `lossy` has the losses that hold TCP
    /// back.
    fn cause(&self, lossy: Option<u32>) -> Option<MoveCause> {
        let is_calm_for = |patience| self.calm.span >= patience;
        match (self.on, lossy) {
            (Carrier::Tls, Some(per_million)) if is_calm_for(self.patience) => {
                Some(MoveCause::Loss { per_million })
            }
            (Carrier::Quic, _)
                if is_calm_for(self.patience.max(FIRST_PATIENCE)) && self.calm.rate() >= WORTH_IT =>
            {
                Some(MoveCause::Clean)
            }
            _ => {
                let is_due = self.stay >= self.review && self.watch.together().rate() >= WORTH_A_LOOK;
                is_due.then_some(MoveCause::Review)
            }
        }
    }

    /// Goes where the peer's data has gone, whose losses are this end's as well. Returns whether it
    /// does.
    pub(crate) fn follow(&mut self, to: Carrier) -> bool {
        to != self.on && self.go(MoveCause::Clean).is_some()
    }

    /// Goes to the other carrier, if that may be.
    fn go(&mut self, cause: MoveCause) -> Option<Move> {
        self.budget.moves = self.budget.moves.checked_sub(1)?;
        let rate_before = self.watch.together().rate();
        self.on = if self.on == Carrier::Tls { Carrier::Quic } else { Carrier::Tls };
        // The carrier that gets the data back needs no trial: it was in use before.
        let is_judged = cause != MoveCause::Slower;
        self.trial = is_judged.then(|| Trial { rate_before, samples: 0, seen: Sample::default() });
        (self.watch, self.calm, self.stay) = (LossWatch::default(), Sample::default(), Duration::ZERO);
        Some(Move::new(self.on, cause))
    }
}

impl Trial {
    /// Takes a sample; returns whether the carrier is slower than the one before when the trial is over.
    fn take(&mut self, sample: Sample) -> Option<bool> {
        self.samples += 1;
        if self.samples > SETTLING {
            self.seen = self.seen.join(&sample);
        }
        (self.samples >= SETTLING + TRIAL).then(|| self.seen.rate() < FASTER * self.rate_before)
    }
}

impl Budget {
    /// Counts time in which something was sent.
    fn earn(&mut self, span: Duration) {
        self.earning += span;
        if self.earning >= EARNED_IN {
            self.earning = Duration::ZERO;
            self.moves = (self.moves + 1).min(MOST_AT_ONCE);
        }
    }
}

/// Most moves in a row: enough for a path that changes now and then, and a bound on what a path that is
/// between the two can cost.
pub(crate) const MOST_AT_ONCE: u32 = 6;
/// Time of sending that earns another move. A move that is taken back costs up to 2.5 s.
const EARNED_IN: Duration = Duration::from_secs(120);
/// Samples before a trial counts: a carrier finds its rate in that time.
const SETTLING: u32 = 15;
/// Samples that a trial counts.
const TRIAL: u32 = 10;
/// A carrier stays with at least this share of the other one's rate before.
const FASTER: f64 = 0.95;
/// Largest share of packets that QUIC may lose on a path that loses nothing: its own probes fill
/// short queues now and then.
const CLEAN_LOSS: f64 = 0.0002;
/// Least rate, in bytes per second, at which processor time matters: 100 Mbit/s.
const WORTH_IT: f64 = 12.5e6;
/// Least rate at which a look at the other carrier can gain anything: 1 Mbit/s.
const WORTH_A_LOOK: f64 = 125e3;
/// Time that QUIC is without losses, and that a carrier waits whose trial failed, before the next attempt: at
/// first, and after many failed trials.
const FIRST_PATIENCE: Duration = Duration::from_secs(10);
const LAST_PATIENCE: Duration = Duration::from_secs(600);
/// Time before the other carrier has a go whatever this one shows: at first, and after failed trials. One
/// costs up to 2.5 s.
const FIRST_REVIEW: Duration = Duration::from_secs(60);
const LAST_REVIEW: Duration = Duration::from_secs(300);

#[cfg(test)]
mod day;

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::losses::SAMPLE_TIME;

    const SPAN: Duration = SAMPLE_TIME;

    /// Returns a sample of eight connections at this rate, in Mbit/s.
    fn sample(megabits: u64, lost_of_10_000: u64, (round_trip, least): (u64, u64)) -> Sample {
        let delivered_bytes = megabits * 1_000_000 / 8 / 10;
        let packets = delivered_bytes / 1448;
        Sample {
            span: SPAN,
            delivered_bytes,
            packets,
            lost: packets * lost_of_10_000 / 10_000,
            round_trip: Duration::from_millis(round_trip),
            least_round_trip: Duration::from_millis(least),
            connections: 8,
            packet_bytes: 1448,
        }
    }

    fn feed(choice: &mut Choice, count: usize, sample: Sample) -> Vec<Move> {
        (0..count).filter_map(|_| choice.take(sample, true)).collect()
    }

    #[test]
    fn a_path_that_loses_nothing_stays_with_tls() {
        let mut choice = Choice::new();
        assert_eq!(feed(&mut choice, 400, sample(950, 0, (19, 17))), []);
        assert_eq!(choice.carrier(), Carrier::Tls);
    }

    #[test]
    fn losses_without_a_queue_move_to_quic_and_a_faster_one_stays() {
        let mut choice = Choice::new();
        feed(&mut choice, 8, sample(950, 0, (18, 17)));
        let moves = feed(&mut choice, 8, sample(60, 100, (17, 17)));
        assert_eq!(moves.len(), 1, "{moves:?}");
        assert!(
            matches!(moves[0], Move { to: Carrier::Quic, cause: MoveCause::Loss { .. }, .. }),
            "{moves:?}"
        );
        assert_eq!(feed(&mut choice, 400, sample(880, 100, (20, 17))), []);
    }

    #[test]
    fn losses_of_a_full_queue_are_no_reason() {
        let mut choice = Choice::new();
        assert_eq!(feed(&mut choice, 40, sample(950, 20, (33, 17))), []);
    }

    #[test]
    fn losses_of_a_queue_that_has_just_been_full_are_no_reason() {
        let mut choice = Choice::new();
        // Slow start fills it, and what it drops is sent again when it is empty.
        let phases = [(3, 400, 0, 18), (2, 900, 100, 34), (1, 500, 300, 18), (40, 900, 0, 18)];
        for (count, megabits, lost, round_trip) in phases {
            assert_eq!(feed(&mut choice, count, sample(megabits, lost, (round_trip, 17))), []);
        }
    }

    #[test]
    fn losses_that_are_not_the_limit_are_no_reason() {
        let mut choice = Choice::new();
        // One in a hundred would allow eighty connections 660 Mbit/s, and a slow disk sends 60.
        let slow = Sample { connections: 80, ..sample(60, 100, (17, 17)) };
        assert_eq!(feed(&mut choice, 40, slow), []);
    }

    #[test]
    fn one_burst_is_no_reason() {
        let mut choice = Choice::new();
        feed(&mut choice, 4, sample(60, 0, (17, 17)));
        assert_eq!(feed(&mut choice, 1, sample(60, 500, (17, 17))), []);
        assert_eq!(feed(&mut choice, 40, sample(60, 0, (17, 17))), []);
    }

    #[test]
    fn a_slower_quic_gives_the_data_back() {
        let mut choice = Choice::new();
        assert_eq!(feed(&mut choice, 6, sample(60, 100, (17, 17))).len(), 1);
        let moves = feed(&mut choice, 25, sample(20, 100, (17, 17)));
        assert_eq!(moves, [Move::new(Carrier::Tls, MoveCause::Slower)]);
    }

    #[test]
    fn a_path_that_loses_nothing_any_more_gets_tls_back() {
        let mut choice = Choice::new();
        assert_eq!(feed(&mut choice, 6, sample(60, 100, (17, 17))).len(), 1);
        let clean = sample(880, 0, (18, 17));
        let moves = feed(&mut choice, 150, clean);
        assert_eq!(moves, [Move::new(Carrier::Tls, MoveCause::Clean)]);
    }

    #[test]
    fn a_carrier_that_is_gone_gets_nothing() {
        let mut choice = Choice::new();
        for _ in 0..40 {
            assert_eq!(choice.take(sample(60, 100, (17, 17)), false), None);
        }
    }

    fn any_sample() -> impl Strategy<Value = Sample> {
        (0..2000_u64, 0..10_001_u64, 1..600_u64, 1..600_u64)
            .prop_map(|(rate, lost, trip, least)| sample(rate, lost, (trip, least)))
    }

    proptest! {
        /// Whatever a path shows, an end moves to the other carrier each time, and no more often than its
        /// budget allows.
        #[test]
        fn moves_are_bounded_and_alternate(
            phases in proptest::collection::vec((any_sample(), 1..200_usize), 1..40)
        ) {
            let mut choice = Choice::new();
            let (mut on, mut moves, mut samples) = (Carrier::Tls, 0, 0);
            for (sample, count) in phases {
                samples += u32::try_from(count).unwrap();
                for _ in 0..count {
                    if let Some(moved) = choice.take(sample, true) {
                        prop_assert_ne!(moved.to, on);
                        on = moved.to;
                        moves += 1;
                    }
                    prop_assert_eq!(choice.carrier(), on);
                }
            }
            prop_assert!(moves <= MOST_AT_ONCE + samples.div_ceil(1200));
        }

        /// Between two moves to QUIC lies at least the time in which its losses were counted.
        #[test]
        fn an_idle_sender_decides_nothing(count in 1..1000_usize, spans in 1..10_u32) {
            let mut choice = Choice::new();
            let idle = Sample { span: SPAN * spans, ..Sample::default() };
            prop_assert_eq!(feed(&mut choice, count, idle), []);
        }
    }
}
