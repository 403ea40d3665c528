//! Decides which of two carriers takes what is sent next. Pure: samples in, decisions out.
//!
//! TLS costs less processor time, so it goes first. Where losses hold TCP back
//! ([`LossWatch`]), the data moves to QUIC, which then has to show that it is not slower; otherwise
//! the data moves back. After a time without losses TLS has another go.
//!
//! The laws it keeps: at most [`MAX_MOVES`] decisions in a session; the time that QUIC must be
//! without losses doubles with each return to TLS; a sender that has nothing to send decides
//! nothing.

use std::time::Duration;

use dsync_wire::link::{Carrier, Move, MoveCause};

use crate::losses::{LossWatch, Sample};

/// The decisions of one end of a link.
#[derive(Debug)]
pub(crate) struct Choice {
    on: On,
    watch: LossWatch,
    moves: u32,
    /// Time that QUIC must be without losses before TLS has another go.
    patience: Duration,
}

#[derive(Debug)]
enum On {
    Tls,
    Quic {
        /// Rate of TLS before, in bytes per second.
        rate_before: f64,
        /// The judgement of QUIC, until it is made.
        trial: Option<Trial>,
        /// Its counts since its last loss.
        clean: Sample,
    },
}

#[derive(Debug, Default)]
struct Trial {
    samples: u32,
    seen: Sample,
}

impl Choice {
    /// Begins with TLS.
    pub(crate) fn new() -> Self {
        Self { on: On::Tls, watch: LossWatch::default(), moves: 0, patience: FIRST_PATIENCE }
    }

    /// Returns the carrier of what is sent next.
    pub(crate) fn carrier(&self) -> Carrier {
        match self.on {
            On::Tls => Carrier::Tls,
            On::Quic { .. } => Carrier::Quic,
        }
    }

    /// Takes what the carrier in use showed. Returns the move to make, if any; none while the other
    /// carrier is not `open`.
    pub(crate) fn take(&mut self, sample: Sample, open: bool) -> Option<Move> {
        if sample.packets == 0 || self.moves >= MAX_MOVES || !open {
            return None;
        }

        let (to, cause) = match &mut self.on {
            On::Tls => {
                let per_million = self.watch.take(sample)?;
                (Carrier::Quic, MoveCause::Loss { per_million })
            }
            On::Quic { rate_before, trial, clean } => {
                if let Some(running) = trial {
                    let slower = running.take(sample).map(|rate| rate < FASTER * *rate_before);
                    match slower {
                        None => return None,
                        Some(true) => {
                            self.patience *= 2;
                            return Some(self.go(Carrier::Tls, MoveCause::Slower));
                        }
                        Some(false) => *trial = None,
                    }
                }
                *clean = clean.join(&sample);
                if clean.loss() > CLEAN_LOSS {
                    *clean = Sample::default();
                }
                if clean.span < self.patience || clean.rate() < WORTH_IT {
                    return None;
                }
                self.patience *= 2;
                (Carrier::Tls, MoveCause::Clean)
            }
        };

        Some(self.go(to, cause))
    }

    /// Goes where the peer's data has gone, whose losses are this end's as well. Returns whether it
    /// does.
    pub(crate) fn follow(&mut self, to: Carrier) -> bool {
        let follows = to != self.carrier() && self.moves < MAX_MOVES;
        if follows {
            self.go(to, MoveCause::Clean);
        }
        follows
    }

    fn go(&mut self, to: Carrier, cause: MoveCause) -> Move {
        self.moves += 1;
        self.on = match to {
            Carrier::Tls => On::Tls,
            _ => On::Quic {
                rate_before: self.watch.together().rate(),
                trial: Some(Trial::default()),
                clean: Sample::default(),
            },
        };
        self.watch.clear();
        Move::new(to, cause)
    }
}

impl Trial {
    /// Takes a sample; returns the rate when the trial is over.
    fn take(&mut self, sample: Sample) -> Option<f64> {
        self.samples += 1;
        if self.samples > SETTLING {
            self.seen = self.seen.join(&sample);
        }
        (self.samples >= SETTLING + TRIAL).then(|| self.seen.rate())
    }
}

/// Most moves of one end in a session: enough for a path that changes now and then, and a bound on
/// what a path that is between the two can cost.
pub(crate) const MAX_MOVES: u32 = 6;
/// Samples before a trial counts: QUIC finds its rate in that time.
const SETTLING: u32 = 15;
/// Samples that a trial counts.
const TRIAL: u32 = 10;
/// QUIC stays with at least this share of TLS' rate before.
const FASTER: f64 = 0.95;
/// Largest share of packets that QUIC may lose on a path that loses nothing: its own probes fill
/// short queues now and then.
const CLEAN_LOSS: f64 = 0.0002;
/// Least rate, in bytes per second, at which processor time matters: 100 Mbit/s.
const WORTH_IT: f64 = 12.5e6;
/// First time without losses before TLS has another go.
const FIRST_PATIENCE: Duration = Duration::from_secs(10);

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
        assert_eq!(feed(&mut choice, 4, sample(60, 100, (17, 17))).len(), 1);
        let moves = feed(&mut choice, 25, sample(20, 100, (17, 17)));
        assert_eq!(moves, [Move::new(Carrier::Tls, MoveCause::Slower)]);
    }

    #[test]
    fn a_path_that_loses_nothing_any_more_gets_tls_back() {
        let mut choice = Choice::new();
        assert_eq!(feed(&mut choice, 4, sample(60, 100, (17, 17))).len(), 1);
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
        /// Whatever a path shows, an end moves a bounded number of times, to the other carrier each
        /// time, and waits twice as long for a clean path after each return.
        #[test]
        fn moves_are_bounded_and_alternate(
            phases in proptest::collection::vec((any_sample(), 1..200_usize), 1..40)
        ) {
            let mut choice = Choice::new();
            let (mut on, mut moves) = (Carrier::Tls, 0);
            for (sample, count) in phases {
                for _ in 0..count {
                    if let Some(moved) = choice.take(sample, true) {
                        prop_assert_ne!(moved.to, on);
                        on = moved.to;
                        moves += 1;
                    }
                    prop_assert_eq!(choice.carrier(), on);
                }
            }
            prop_assert!(moves <= MAX_MOVES);
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
