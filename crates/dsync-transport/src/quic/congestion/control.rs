//! The control law: computes the bytes that may be in flight from deliveries, their delays and
//! losses.
//!
//! Pure: a clock reading comes with each call, and the one output is [`Control::window`]. The
//! module above has the idea, and `docs/design/congestion.md` reasons and figures.

use std::time::{Duration, Instant};

use super::{
    contest::{Contest, Verdict},
    delivery::{DeliveryLog, Sample},
    filter::{RoundMax, RttFloor, Rtts, Surplus},
    loss::{HEAVY_LOSS, UsualLoss},
};

/// One connection's controller.
#[derive(Debug, Clone)]
pub(super) struct Control {
    mss: u64,
    window: u64,
    log: DeliveryLog,
    bandwidth: RoundMax,
    floor: RttFloor,
    /// Mean excess of a round trip over the shortest, without a queue of this flow's.
    jitter: Duration,
    phase: Phase,
    /// Rounds since the phase began, and its start.
    phase_rounds: u64,
    phase_start: Instant,
    phase_acked: u64,
    round: Round,
    last_round: Round,
    /// Bytes acknowledged and lost since loss was last judged.
    balance: Round,
    usual: UsualLoss,
    /// Limit in flight whatever the rate says, because a larger window lost packets.
    cap: Option<u64>,
    /// Rounds until the next probe.
    spacing: u64,
    dice: u64,
    contest: Option<Contest>,
    /// Losses of data sent before this time are already handled.
    forgiven: Instant,
    in_flight: u64,
    batch: u64,
    heard: Instant,
    /// Bytes that arrive at once after an end stood still.
    surplus: Surplus,
    /// Whether no probe since the start has found the path full.
    starting: bool,
    /// Whether the sender ran out of data in this phase.
    phase_limited: bool,
}

/// The present purpose of the window.
#[derive(Debug, Clone, Copy)]
enum Phase {
    /// Double each round until the path is seen to be full.
    StartUp(StartUp),
    /// Keep the path full for this many rounds.
    Cruise { rounds: u64 },
    /// Probe for a higher rate; `best` is the rate so far.
    Up { best: u64, lost: u64 },
    /// Drain the probe's queue and check whether it is then empty.
    Down(Look),
    /// Drain the queue for a moment to measure the path's own round trip.
    Floor(Look),
}

#[derive(Debug, Clone, Copy, Default)]
struct StartUp {
    /// The highest rate, and the number of rounds since it last rose by a quarter.
    best: u64,
    flat: u32,
    /// Consecutive samples that show a queue, and the time of the first one.
    queued: u32,
    queued_since: Option<Instant>,
}

/// A look at the round trip with little in flight.
#[derive(Debug, Clone, Copy)]
struct Look {
    window: u64,
    /// Rate of the previous round, and its shortest and mean round trip.
    rate: u64,
    before: Duration,
    mean_before: Duration,
    began: Instant,
    /// Time from which no more than the window was in flight.
    settled: Option<Instant>,
    /// Round trips of data sent since then.
    rtts: Rtts,
}

/// Counts of one round trip.
#[derive(Debug, Clone, Copy, Default)]
struct Round {
    acked: u64,
    lost: u64,
    best: u64,
    rtts: Rtts,
}

impl Round {
    /// Returns the lost bytes, in parts per million of all.
    fn loss(&self) -> u64 {
        self.lost * 1_000_000 / (self.acked + self.lost).max(1)
    }
}

impl Control {
    /// Makes a controller for packets of up to `mss` bytes.
    pub(super) fn new(now: Instant, mss: u64) -> Self {
        Self {
            mss,
            window: initial_window(mss),
            log: DeliveryLog::new(now),
            bandwidth: RoundMax::default(),
            floor: RttFloor::default(),
            jitter: Duration::ZERO,
            phase: Phase::StartUp(StartUp::default()),
            phase_rounds: 0,
            phase_start: now,
            phase_acked: 0,
            round: Round::default(),
            last_round: Round::default(),
            balance: Round::default(),
            usual: UsualLoss::default(),
            cap: None,
            spacing: CRUISE_ROUNDS,
            dice: 1,
            contest: None,
            forgiven: now,
            in_flight: 0,
            batch: 0,
            heard: now,
            surplus: Surplus::new(now),
            starting: true,

            phase_limited: false,
        }
    }

    /// Returns the number of bytes that may be in flight; never 0.
    pub(super) fn window(&self) -> u64 {
        self.window
    }

    /// Records `bytes` that one system call sent.
    pub(super) fn on_sent(&mut self, now: Instant, bytes: u64) {
        let idle = self.in_flight == 0;
        if idle && now.saturating_duration_since(self.heard) > STALE_AFTER && self.bandwidth.get() > 0 {
            // The path may be another by now: start from half of its earlier content and double.
            self.start_again(now, self.bdp(self.bandwidth.get()) / 2);
            self.heard = now;
        }
        self.in_flight = self.in_flight.saturating_add(bytes);
        self.log.on_sent(now, idle);
    }

    /// Records the acknowledgement of a packet of `bytes` sent at `sent`.
    pub(super) fn on_ack(&mut self, now: Instant, sent: Instant, bytes: u64) {
        self.batch = self.batch.saturating_add(bytes);
        self.usual.acked(sent, bytes);
        if matches!(self.phase, Phase::Up { .. }) && sent >= self.phase_start {
            self.phase_acked = self.phase_acked.saturating_add(bytes);
        }
        self.log.on_ack(now, sent, bytes);
    }

    /// Completes a batch of acknowledgements. It leaves `in_flight` bytes in flight, which is all
    /// there is to send if `limited`.
    pub(super) fn on_end_acks(&mut self, now: Instant, in_flight: u64, limited: bool) {
        self.in_flight = in_flight;
        self.heard = now;
        let bytes = std::mem::take(&mut self.batch);
        self.round.acked = self.round.acked.saturating_add(bytes);
        let sample = self.log.end_batch(now, self.floor.get());
        if limited {
            self.log.mark_limited(in_flight);
            self.phase_limited = true;
        }
        if !matches!(self.phase, Phase::StartUp(_)) {
            self.surplus.on_ack(now, bytes, self.bandwidth.get(), self.log.rounds());
        }

        let Some(sample) = sample else { return };
        self.floor.update(now, sample.rtt);
        self.round.rtts.add(sample.rtt);
        if let Some(rate) = sample.rate.filter(|&rate| !sample.limited || rate > self.bandwidth.get()) {
            self.bandwidth.update(self.log.rounds(), rate);
            self.round.best = self.round.best.max(rate);
        }

        if sample.round_start {
            self.end_round(now);
        }
        if let (Some(contest), Phase::Cruise { .. }, false) = (&mut self.contest, &self.phase, limited) {
            contest.on_ack(now, bytes, sample.rtt, self.mss);
        }
        self.advance(now, &sample, bytes, limited);
        self.set_window();
    }

    /// Handles the loss of `lost` bytes, the last of them sent at `sent`; 0 for a congestion mark
    /// (ECN).
    pub(super) fn on_loss(&mut self, now: Instant, sent: Instant, persistent: bool, lost: u64) {
        self.in_flight = self.in_flight.saturating_sub(lost);
        if persistent {
            // RFC 9002, section 7.6: nothing arrived for several timeouts.
            self.start_again(now, MIN_PACKETS * self.mss);
            return;
        }
        if sent <= self.forgiven {
            return;
        }
        if lost == 0 {
            self.back_off(now, 0);
            self.set_window();
            return;
        }

        self.round.lost = self.round.lost.saturating_add(lost);
        self.usual.lost(sent, lost);
        if let Some(contest) = &mut self.contest {
            let rtt = self.round.rtts.least.or(self.last_round.rtts.least).unwrap_or_default();
            contest.on_loss(now, sent, rtt, self.floor.get(), self.mss);
        }

        let tolerated = self.tolerated(PROBE_LOSS);
        match &mut self.phase {
            Phase::StartUp(_) if self.round.lost > self.window * HEAVY_LOSS / 1_000_000 + 4 * self.mss => {
                self.leave_start_up(now);
            }
            Phase::Up { lost: so_far, .. } if sent >= self.phase_start => {
                *so_far += lost;
                if *so_far > tolerated {
                    self.cap = Some(self.window * 93 / 100);
                    // The probe's remaining losses show up while little is in flight.
                    self.forgiven = now;
                    self.balance = Round::default();
                    self.spacing = (self.spacing * 2).min(LONGEST_SPACING);
                    self.look_down(now, self.last_probe());
                }
            }
            Phase::Cruise { .. }
                if self.contest.is_none() && self.usual.is_known() && self.round.lost > tolerated =>
            {
                // Even a window that keeps the path just full is too much for its queue.
                self.cap = Some(self.window * 95 / 100);
                self.forgiven = now;
            }
            _ => {}
        }

        self.set_window();
    }

    /// Returns how many bytes of a window may be lost without meaning: the usual, `extra` parts in
    /// a million, and what chance may add (three standard deviations).
    fn tolerated(&self, extra: u64) -> u64 {
        let window = self.window.max(self.phase_acked);
        let usual = window.saturating_mul(self.usual.ppm()) / 1_000_000;
        let chance = 3 * (usual / self.mss).isqrt() * self.mss;
        usual + window.saturating_mul(extra) / 1_000_000 + chance + 2 * self.mss
    }

    /// Adapts to a new packet size.
    pub(super) fn on_mss(&mut self, mss: u64) {
        self.mss = mss;
        self.window = self.window.max(MIN_PACKETS * mss);
    }

    /// Evaluates a finished round.
    fn end_round(&mut self, now: Instant) {
        let round = std::mem::take(&mut self.round);
        let before = std::mem::replace(&mut self.last_round, round);
        if matches!(self.phase, Phase::StartUp(_)) {
            self.learn_jitter(round.rtts);
        }
        if round.best == 0 {
            self.last_round.best = before.best;
        }

        self.phase_rounds += 1;
        if let Some(contest) = &mut self.contest {
            contest.on_round(self.floor.get());
        }

        let heavy = self.heavy_loss(round);
        match &mut self.phase {
            Phase::StartUp(start) => {
                if self.bandwidth.get() >= start.best + start.best / 4 {
                    start.best = self.bandwidth.get();
                    start.flat = 0;
                } else if round.best > 0 {
                    start.flat += 1;
                }
                if heavy.is_some() || start.flat >= FLAT_ROUNDS {
                    self.leave_start_up(now);
                }
                return;
            }
            Phase::Up { best, lost } => {
                let (best, lost) = (*best, *lost);
                self.judge_probe(now, best, lost, round);
            }
            Phase::Cruise { .. } | Phase::Down(_) | Phase::Floor(_) => {}
        }

        if let Some(loss) = heavy {
            self.back_off(now, loss);
            if matches!(self.phase, Phase::Up { .. }) {
                self.spacing = (self.spacing * 2).min(LONGEST_SPACING);
                self.look_down(now, self.last_probe());
            }
        }
    }

    /// Returns the recent loss in parts per million if it is congestion. An end that stood still
    /// makes short rounds that report the losses of the round before, so only counts over half a
    /// window are judged.
    fn heavy_loss(&mut self, round: Round) -> Option<u64> {
        self.balance.acked = self.balance.acked.saturating_add(round.acked);
        self.balance.lost = self.balance.lost.saturating_add(round.lost);
        if self.balance.acked.saturating_add(self.balance.lost) < self.window / 2 {
            return None;
        }
        let balance = std::mem::take(&mut self.balance);
        (balance.loss() > HEAVY_LOSS && balance.lost > 4 * self.mss).then(|| balance.loss())
    }

    /// Decides after each round of a probe whether it continues.
    fn judge_probe(&mut self, now: Instant, best: u64, lost: u64, round: Round) {
        // The first round still shows data sent before the probe.
        if self.phase_rounds < 2 {
            return;
        }

        let clean = lost <= self.tolerated(0);
        let room = clean && round.rtts.least.is_some_and(|least| least <= self.floor_rtt() + self.noise());
        let capped = self.cap.is_some_and(|cap| cap < self.probe_window());
        if let Some(cap) = self.cap.as_mut().filter(|_| clean) {
            // Nothing was lost up to here: probe further, faster with each round.
            *cap += *cap >> 7_u64.saturating_sub(self.phase_rounds).max(2);
        }

        if room && !self.phase_limited && self.cap.is_none() {
            // A window that queues nothing is below the path's capacity, whatever rate a busy host
            // shows.
            self.bandwidth.update(self.log.rounds(), self.bandwidth.get());
            if self.starting {
                self.double_again(now, round.best);
                return;
            }
        }

        self.starting &= room;
        if round.best < best + best / 20 && !(capped && room) {
            if clean && !capped {
                self.cap = None;
                self.spacing = CRUISE_ROUNDS;
            }
            // One bad round may be a busy host's; two are the path's.
            self.look_down(now, round.best.max(best));
        } else if self.phase_rounds >= RISING_ROUNDS && self.cap.is_none() {
            // Far below the path's capacity: do not approach it a quarter at a time.
            self.double_again(now, round.best);
        } else if let Phase::Up { best, .. } = &mut self.phase {
            *best = round.best;
        }
    }

    /// Returns to the start's doubling, from the present window.
    fn double_again(&mut self, now: Instant, best: u64) {
        let window = self.window;
        self.enter(now, Phase::StartUp(StartUp { best, ..StartUp::default() }));
        self.window = window;
    }

    /// Advances within a round if that cannot wait.
    fn advance(&mut self, now: Instant, sample: &Sample, bytes: u64, limited: bool) {
        let floor = self.floor_rtt();
        match &mut self.phase {
            Phase::StartUp(start) => {
                let queue = (floor / 8).clamp(LEAST_QUEUE, MOST_QUEUE) + 2 * self.jitter;
                start.queued = if sample.rtt > floor + queue { start.queued + 1 } else { 0 };
                if start.queued <= 1 {
                    start.queued_since = Some(now);
                }
                // An end that lacked its processor for a while makes many late samples at once.
                let lasting = start
                    .queued_since
                    .is_some_and(|since| now.saturating_duration_since(since) >= floor / QUEUED_SHARE);
                if start.queued >= QUEUED_SAMPLES && lasting && !limited {
                    self.leave_start_up(now);
                } else if !limited {
                    self.window = self.window.saturating_add(bytes);
                }
            }
            Phase::Cruise { rounds } => {
                let long = self.phase_rounds >= CRUISE_ROUNDS
                    && now.saturating_duration_since(self.phase_start) > LONGEST_CRUISE;
                let over = self.phase_rounds >= *rounds || long;
                if self.floor.is_stale(now) {
                    let rate = self.bandwidth.get();
                    self.look(now, rate, self.bdp(rate) / 2, Phase::Floor);
                } else if over && self.contest.is_some() {
                    self.look_aside(now);
                } else if over {
                    self.enter(now, Phase::Up { best: self.last_round.best, lost: 0 });
                }
            }
            Phase::Up { .. } => {}
            Phase::Down(look) => {
                if look.take(now, sample, self.in_flight, self.phase_rounds)
                    && look.rtts.count >= LOOK_SAMPLES
                {
                    let look = *look;
                    self.judge_queue(now, look);
                }
            }

            Phase::Floor(look) => {
                if look.take(now, sample, self.in_flight, self.phase_rounds)
                    && look.settled.is_some_and(|at| now.saturating_duration_since(at) > FLOOR_TIME)
                {
                    let look = *look;
                    self.floor.reset(now, look.rtts.least.unwrap_or(floor));
                    self.resume(now, look.began);
                }
            }
        }
    }

    /// Judges after a look down whether the queue is empty, since nothing of this flow should be in
    /// it.
    fn judge_queue(&mut self, now: Instant, look: Look) {
        let floor = self.floor_rtt();
        let empty = floor + self.noise();
        let least = look.rtts.least.unwrap_or(floor);
        if let Some(contest) = &mut self.contest {
            // If this flow is alone, the queue shrinks by the missing bytes or is empty.
            let alone = time_of(look.window, look.rate).max(floor);
            let expected = look.before.saturating_sub(alone);
            let share = percent(look.before.saturating_sub(least), expected);
            let echo = percent(look.mean_before.saturating_sub(look.rtts.mean()), expected);
            match contest.on_look(share, echo, share >= WHOLE_SHARE) {
                Verdict::NoQueue => {
                    self.contest = None;
                    self.floor.reset(now, least);
                }
                Verdict::Contested if look.before > empty => {}
                Verdict::Contested | Verdict::Alone => self.contest = None,
            }
        } else if least <= empty {
            self.learn_jitter(look.rtts);
            if least <= floor + floor / 32 {
                self.floor.confirm(now);
            }

            // The path was this flow's own. Its rate in the probe, whose last part returns now, is
            // all it has.
            let shown = look.rate.max(self.last_round.best).max(self.round.best);
            if look.before > empty && shown < self.bandwidth.get() * 8 / 10 {
                self.bandwidth.reset(self.log.rounds(), shown);
            }
        } else if look.is_deaf(least) {
            // A third less in flight left the round trip unchanged: the path itself is longer.
            self.floor.reset(now, least);
        } else {
            let window = volume(self.bandwidth.get(), look.before).max(MIN_PACKETS * self.mss);
            self.contest = Some(Contest::new(now, window, look.before));
            self.cap = None;
        }

        self.resume(now, look.began);
    }

    /// Resumes cruising after a look.
    fn resume(&mut self, now: Instant, began: Instant) {
        let rounds = if let Some(contest) = &mut self.contest {
            contest.pause(now.saturating_duration_since(began));
            CONTEST_ROUNDS
        } else {
            // Vary the spacing: probes in step with those of other flows of this kind would be
            // hidden by them.
            self.dice = self.dice.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(self.log.delivered() | 1);
            self.spacing + (self.dice >> 60) % 5
        };
        self.enter(now, Phase::Cruise { rounds });
    }

    fn leave_start_up(&mut self, now: Instant) {
        // The losses of the last doubling say nothing about the path.
        self.forgiven = now;
        self.round.lost = 0;
        self.balance = Round::default();
        // A probe will soon show whether the path was really full.
        self.spacing = EARLY_ROUNDS;
        self.look_down(now, self.bandwidth.get());
    }

    fn start_again(&mut self, now: Instant, window: u64) {
        self.bandwidth = RoundMax::default();
        self.surplus = Surplus::new(now);
        self.starting = true;
        self.contest = None;
        self.cap = None;
        self.forgiven = now;
        self.round = Round::default();
        self.balance = Round::default();
        self.enter(now, Phase::StartUp(StartUp::default()));
        self.window = window.max(MIN_PACKETS * self.mss);
    }

    /// Backs off from a congested path, once a round: by a fifth, or to the bytes that passed if
    /// those were less.
    fn back_off(&mut self, now: Instant, loss: u64) {
        self.forgiven = now;
        if let Some(contest) = &mut self.contest {
            contest.cut(now, self.mss);
        }
        let keep = 1_000_000_u64.saturating_sub(loss).min(800_000);
        self.cap = Some((self.window * keep / 1_000_000).max(MIN_PACKETS * self.mss));
    }

    /// Steps back behind the path's `rate`.
    fn look_down(&mut self, now: Instant, rate: u64) {
        self.look(now, rate, self.bdp(rate) * 9 / 10, Phase::Down);
    }

    /// Steps back a little beside a competitor.
    fn look_aside(&mut self, now: Instant) {
        let rate = self.last_probe();
        let window = (self.window * 3 / 4).max(self.bdp(rate) * 9 / 10);
        self.look(now, rate, window, Phase::Down);
    }

    fn look(&mut self, now: Instant, rate: u64, window: u64, phase: fn(Look) -> Phase) {
        let before = self.last_round.rtts.least.unwrap_or_else(|| self.floor.get());
        let look = Look {
            window: window.min(self.window).max(MIN_PACKETS * self.mss),
            rate,
            before,
            mean_before: self.last_round.rtts.mean(),
            began: now,
            settled: None,
            rtts: Rtts::default(),
        };
        self.enter(now, phase(look));
    }

    fn enter(&mut self, now: Instant, phase: Phase) {
        if let Phase::Down(Look { settled: Some(from), .. }) = self.phase {
            self.usual.watch(from, now);
        }
        self.phase = phase;
        self.phase_rounds = 0;
        self.phase_start = now;
        self.phase_acked = 0;
        self.phase_limited = false;
    }

    /// Returns the rate of the last finished round.
    fn last_probe(&self) -> u64 {
        if self.last_round.best == 0 { self.bandwidth.get() } else { self.last_round.best }
    }

    fn set_window(&mut self) {
        let full = self.bdp(self.bandwidth.get());
        let surplus = self.surplus.get().min(full);
        let window = match &self.phase {
            Phase::StartUp(_) => return,
            Phase::Cruise { .. } => match &self.contest {
                Some(contest) => contest.window() + surplus * CONTEST_SURPLUS / 8,
                // If probes are dropped the queue is short: leave it to others.
                None if self.cap.is_some() => full + 4 * self.mss,
                None => full.saturating_mul(105) / 100 + self.slack(full) + surplus / 8,
            },
            Phase::Up { .. } => self.probe_window() + surplus / 8,
            Phase::Down(look) | Phase::Floor(look) => look.window,
        };
        let window =
            if self.contest.is_some() { window } else { self.cap.map_or(window, |cap| cap.min(window)) };
        self.window = window.max(MIN_PACKETS * self.mss);
    }

    fn probe_window(&self) -> u64 {
        let full = self.bdp(self.bandwidth.get());
        full.saturating_mul(5) / 4 + self.slack(full)
    }

    /// Returns the allowance for acknowledgements that come in pairs, packets that leave in tens,
    /// and hosts that pause for a moment.
    fn slack(&self, full: u64) -> u64 {
        let pause = volume(self.bandwidth.get(), HOST_PAUSE);
        (full / 4).clamp(4 * self.mss, pause.max(12 * self.mss))
    }

    /// Returns the path's content at `rate`.
    fn bdp(&self, rate: u64) -> u64 {
        volume(rate, self.floor_rtt() + self.jitter)
    }

    /// Returns the path's shortest round trip, never below [`RTT_FLOOR`].
    fn floor_rtt(&self) -> Duration {
        self.floor.get().max(RTT_FLOOR)
    }

    /// Returns how much longer the shortest of a few round trips may be without a queue.
    fn noise(&self) -> Duration {
        (self.floor_rtt() / 8).max(LOOK_NOISE) + self.jitter
    }

    /// Updates the jitter with round trips from a time without a queue of this flow's. A queue of
    /// others is in all of them and stays unseen.
    fn learn_jitter(&mut self, rtts: Rtts) {
        let spread = rtts.spread().min(self.floor_rtt());
        self.jitter = (3 * self.jitter + spread) / 4;
    }
}

impl Look {
    /// Adds one sample; returns whether a round trip was measured after the window was reached.
    fn take(&mut self, now: Instant, sample: &Sample, in_flight: u64, rounds: u64) -> bool {
        let Some(settled) = self.settled else {
            if in_flight <= self.window || rounds >= 4 {
                self.settled = Some(now);
            }
            return false;
        };
        if sample.sent < settled {
            return false;
        }
        self.rtts.add(sample.rtt);
        true
    }

    /// Returns whether less in flight has not shortened the round trip. With jitter the shortest is
    /// chance and the mean is not; with hosts that pause it is the other way round.
    fn is_deaf(&self, least: Duration) -> bool {
        let unchanged = |before: Duration, then: Duration| before.saturating_sub(then) <= then / DEAF_SHARE;
        unchanged(self.before, least) || unchanged(self.mean_before, self.rtts.mean())
    }
}

/// Returns the window before anything is known. RFC 9002, section 7.2, says 10 packets. With 32, as
/// Google's servers send, the start is nearly two round trips shorter, and the pacer spreads them.
fn initial_window(mss: u64) -> u64 {
    32 * mss
}

/// Returns the bytes that pass in `time` at `rate` bytes per second.
fn volume(rate: u64, time: Duration) -> u64 {
    u64::try_from(u128::from(rate) * time.as_nanos() / 1_000_000_000).unwrap_or(u64::MAX)
}

/// Returns `part` in per cent of `whole`, up to 100.
fn percent(part: Duration, whole: Duration) -> u64 {
    u64::try_from(part.as_nanos() * 100 / whole.as_nanos().max(1)).map_or(100, |percent| percent.min(100))
}

/// Returns the time in which `bytes` pass at `rate`.
fn time_of(bytes: u64, rate: u64) -> Duration {
    let nanos = u128::from(bytes) * 1_000_000_000 / u128::from(rate.max(1));
    u64::try_from(nanos).map_or(Duration::MAX, Duration::from_nanos)
}

/// The shortest round trip for which a window is computed. Below it the scheduling of the two
/// processes determines a round trip, not the path: without this floor loopback fell from 8 to 1.6
/// Gbit/s.
const RTT_FLOOR: Duration = Duration::from_millis(2);
/// Pause of a host that the queue bridges. At 1 Gbit/s and 17 ms a twentieth of the window is less
/// than a millisecond of it, and each longer pause lost throughput. CoDel (RFC 8289) aims at 5 ms
/// of standing queue.
const HOST_PAUSE: Duration = Duration::from_millis(2);
/// The smallest window, in packets: enough for acknowledgements of pairs to keep coming.
const MIN_PACKETS: u64 = 4;
/// Loss above the usual that ends a probe, in parts per million of a window (BBRv3: 2 %).
const PROBE_LOSS: u64 = 20_000;
/// Rounds without a quarter's growth that end the start (BBR: 3).
const FLAT_ROUNDS: u32 = 3;
/// Samples in a row with a queue that end the start.
const QUEUED_SAMPLES: u32 = 16;
/// The part of a round trip that these samples must cover at least.
const QUEUED_SHARE: u32 = 16;
/// Bounds of the delay that counts as a queue then (HyStart++, RFC 9406: an eighth of a round trip,
/// 4 to 16 ms).
const LEAST_QUEUE: Duration = Duration::from_millis(4);
const MOST_QUEUE: Duration = Duration::from_millis(16);
/// Rounds of a probe that all found more, after which it returns to the start's doubling.
const RISING_ROUNDS: u64 = 4;
/// Rounds between probes, and between looks beside a competitor.
const CRUISE_ROUNDS: u64 = 6;
const LONGEST_SPACING: u64 = 96;
/// Fewest rounds between the start and the first probe.
const EARLY_ROUNDS: u64 = 2;
const LONGEST_CRUISE: Duration = Duration::from_secs(5);
/// Share of the path, in per cent, that counts as all of it.
const WHOLE_SHARE: u64 = 80;
const CONTEST_ROUNDS: u64 = 24;
/// Eighths of the surplus that are added beside a competitor, who would take the room that a busy
/// host leaves. Alone it is one eighth, because the surplus must fit into the queue. Found by trial
/// on the simulated paths.
const CONTEST_SURPLUS: u64 = 3;
/// Number of samples that a look needs.
const LOOK_SAMPLES: u32 = 8;
/// Smallest allowance for a queue that counts as empty, whatever the path's round trip.
const LOOK_NOISE: Duration = Duration::from_millis(2);
/// The part of a round trip that counts as no change.
const DEAF_SHARE: u32 = 32;
/// Time that the queue is kept empty to measure the path's own round trip (BBRv3: 200 ms).
const FLOOR_TIME: Duration = Duration::from_millis(150);
/// Silence after which a rate is no longer trusted.
const STALE_AFTER: Duration = super::filter::RTT_LIFETIME;
