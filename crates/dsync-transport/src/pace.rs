//! A link that sends no faster than it may (`--bwlimit`), or not at all for a while.
//!
//! The law: over any stretch of time, the payload that all lanes of this end pass to the carrier
//! stays within the rate times that stretch plus one burst. While there is something to send, it
//! stays no more than a burst behind. The implementation is a token bucket, stored as the moment at
//! which all bytes sent so far are paid for. A lane waits for its turn *before* it sends, so a low
//! rate looks like a slow carrier to anything that measures it. A change of the rate, and a pause,
//! let nothing go that is not paid for: only a rate that is lifted altogether does.
//!
//! Small messages (signs of life, requests) count like all others but do not wait: behind sixteen
//! lanes of data they would arrive too late on a slow link.

use std::{
    num::NonZeroU64,
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use bytes::Bytes;
use dsync_wire::link::{Carrier, CloseReason, Lane, LaneRead, LaneWrite, Link, LinkError, Move, Traffic};

/// The speed of one end, which may change while it runs; clones are the same.
///
/// It holds back content only: requests and signs of life pass, so the peer of an end that pauses
/// waits and does not give up.
#[derive(Clone)]
pub struct Throttle(Arc<Pace>);

impl Throttle {
    /// Makes a throttle of a rate in bytes per second for each direction; `None` is no limit.
    pub fn new(bytes_per_second: Option<NonZeroU64>) -> Self {
        let mut state = State::default();
        state.set_rate(bytes_per_second, Duration::ZERO);
        let free = AtomicBool::new(state.is_free());
        Self(Arc::new(Pace {
            origin: Instant::now(),
            free,
            state: Mutex::new(state),
            changed: Condvar::new(),
        }))
    }

    /// Sets the rate from now on. What waits under the old one waits for the rest of its turn at the new
    /// one; without a rate it goes on at once.
    pub fn set_rate(&self, bytes_per_second: Option<NonZeroU64>) {
        self.change(|state, now| state.set_rate(bytes_per_second, now));
    }

    /// Lets no content pass until [`resume`](Self::resume), also what waits for its turn already.
    pub fn pause(&self) {
        self.change(State::pause);
    }

    /// Lets content pass again, each piece in its turn.
    pub fn resume(&self) {
        self.change(State::resume);
    }

    /// Waits until so many bytes may be copied; returns `false` when `stopped` says so first, which
    /// is asked several times a second.
    pub fn admit(&self, bytes: u64, stopped: &dyn Fn() -> bool) -> bool {
        self.0.take(Direction::Sent, bytes, true, stopped)
    }

    fn change(&self, change: impl FnOnce(&mut State, Duration)) {
        let mut state = self.0.lock();
        // Read under the lock, so that no earlier time comes after a later one.
        change(&mut state, self.0.origin.elapsed());
        self.0.free.store(state.is_free(), Ordering::Release);
        self.0.changed.notify_all();
    }
}

impl std::fmt::Debug for Throttle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Throttle").field("paused", &self.0.lock().is_paused()).finish_non_exhaustive()
    }
}

/// Limits what this end sends over `link` to a rate in bytes per second; returns the link itself
/// without a rate.
pub fn paced(link: Arc<dyn Link>, bytes_per_second: Option<NonZeroU64>) -> Arc<dyn Link> {
    match bytes_per_second {
        Some(_) => throttled(link, &Throttle::new(bytes_per_second), Sides::Sending),
        None => link,
    }
}

/// Lets a throttle hold back what this end sends and receives over `link`.
pub fn throttled(link: Arc<dyn Link>, throttle: &Throttle, sides: Sides) -> Arc<dyn Link> {
    let (lanes_begun, closed) = (AtomicBool::new(false), Arc::default());
    Arc::new(PacedLink { link, pace: Arc::clone(&throttle.0), sides, lanes_begun, closed })
}

/// The directions that a throttle holds back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sides {
    /// Only what this end sends; the peer keeps the rate for the other direction.
    Sending,
    /// Both what this end sends and the content that it reads.
    Both,
    /// Whatever this end sends and reads, the control lane included: no peer gets around the rate
    /// by another lane.
    All,
}

struct PacedLink {
    link: Arc<dyn Link>,
    pace: Arc<Pace>,
    sides: Sides,
    /// Whether the control lane, always the first, was opened or accepted.
    lanes_begun: AtomicBool,
    closed: Arc<AtomicBool>,
}

impl PacedLink {
    fn lane(&self, Lane { tx, rx }: Lane) -> Lane {
        let is_data = self.lanes_begun.swap(true, Ordering::AcqRel);
        let (pace, closed) = (Arc::clone(&self.pace), Arc::clone(&self.closed));
        let reads = match self.sides {
            Sides::Sending => false,
            Sides::Both => is_data,
            Sides::All => true,
        };
        let rx = if reads {
            Box::new(Reader { rx, pace: Arc::clone(&pace), closed: Arc::clone(&closed) })
        } else {
            rx
        };
        Lane { tx: Box::new(Writer { tx, pace, closed }), rx }
    }
}

impl Link for PacedLink {
    fn carrier(&self) -> Carrier {
        self.link.carrier()
    }

    fn data_lanes(&self) -> usize {
        self.link.data_lanes()
    }

    fn sending_lanes(&self) -> usize {
        self.link.sending_lanes()
    }

    fn is_near(&self) -> bool {
        self.link.is_near()
    }

    fn moves(&self) -> Vec<Move> {
        self.link.moves()
    }

    fn features(&self) -> u64 {
        self.link.features()
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
        self.closed.store(true, Ordering::Release);
        self.pace.wake();
        self.link.close(reason);
    }
}

struct Writer {
    tx: Box<dyn LaneWrite>,
    pace: Arc<Pace>,
    closed: Arc<AtomicBool>,
}

impl LaneWrite for Writer {
    fn write(&mut self, mut data: Bytes) -> Result<(), LinkError> {
        let waits = data.len() > SMALL;
        let closed = || self.closed.load(Ordering::Acquire);
        while !data.is_empty() {
            let piece = data.split_to(data.len().min(self.pace.piece()));
            // If the link ended meanwhile, writing reports it.
            self.pace.take(Direction::Sent, piece.len() as u64, waits, &closed);
            self.tx.write(piece)?;
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<(), LinkError> {
        self.tx.finish()
    }
}

struct Reader {
    rx: Box<dyn LaneRead>,
    pace: Arc<Pace>,
    closed: Arc<AtomicBool>,
}

impl LaneRead for Reader {
    fn read(&mut self, buf: &mut [u8]) -> Result<usize, LinkError> {
        let closed = || self.closed.load(Ordering::Acquire);
        let most = buf.len().min(self.pace.piece());
        // Nothing is read in a pause, so that the peer's window fills; a rate is paid afterwards.
        self.pace.take(Direction::Received, 0, true, &closed);
        let read = self.rx.read(&mut buf[..most])?;
        self.pace.take(Direction::Received, read as u64, true, &closed);
        Ok(read)
    }
}

#[derive(Clone, Copy)]
enum Direction {
    Sent,
    Received,
}

/// The speed that the lanes of one end share.
struct Pace {
    origin: Instant,
    /// Whether nothing is held back: the state says so too, under its lock.
    free: AtomicBool,
    state: Mutex<State>,
    changed: Condvar,
}

/// The rate and the pauses, on a clock passed by the caller.
#[derive(Default)]
struct State {
    /// For what is sent, and for what is received.
    buckets: Option<[Bucket; 2]>,
    /// Number of times that the rate was lifted: what waited then goes.
    lifted: u64,
    /// The time at which the pause began that lasts.
    paused_at: Option<Duration>,
    /// Length of all earlier pauses. They pay for nothing.
    paused_for: Duration,
}

/// A place among the pieces that wait.
#[derive(Clone, Copy)]
struct Turn {
    /// Bytes that were taken before this piece.
    behind: u64,
    /// [`State::lifted`] when it was taken.
    lifted: u64,
}

impl State {
    fn is_free(&self) -> bool {
        !self.is_paused() && self.buckets.is_none()
    }

    fn is_paused(&self) -> bool {
        self.paused_at.is_some()
    }

    /// Returns the time without pauses.
    fn clock(&self, now: Duration) -> Duration {
        self.paused_at.unwrap_or(now).saturating_sub(self.paused_for)
    }

    fn set_rate(&mut self, rate: Option<NonZeroU64>, now: Duration) {
        let now = self.clock(now);
        self.lifted += u64::from(rate.is_none());
        self.buckets = rate.map(|rate| match self.buckets.take() {
            Some(buckets) => buckets.map(|bucket| bucket.at_rate(rate, now)),
            None => [(); 2].map(|()| Bucket { paid_at: now, ..Bucket::new(rate) }),
        });
    }

    fn pause(&mut self, now: Duration) {
        self.paused_at.get_or_insert(now);
    }

    fn resume(&mut self, now: Duration) {
        if let Some(began) = self.paused_at.take() {
            self.paused_for += now.saturating_sub(began);
        }
    }

    /// Counts a piece; `None` if there is no rate.
    fn take(&mut self, direction: Direction, bytes: u64, now: Duration) -> Option<Turn> {
        let (now, lifted) = (self.clock(now), self.lifted);
        let bucket = &mut self.buckets.as_mut()?[direction as usize];
        let behind = bucket.taken;
        bucket.take(now, bytes);
        Some(Turn { behind, lifted })
    }

    /// Returns how long a piece still waits for its turn. A pause comes on top.
    fn left(&self, direction: Direction, turn: Turn, now: Duration) -> Duration {
        match &self.buckets {
            Some(buckets) if self.lifted == turn.lifted => {
                buckets[direction as usize].due(turn.behind).saturating_sub(self.clock(now))
            }
            _ => Duration::ZERO,
        }
    }
}

impl Pace {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes those who wait, to see that their link has ended.
    fn wake(&self) {
        // Under the lock: nobody is between looking and waiting.
        drop(self.lock());
        self.changed.notify_all();
    }

    /// Returns the length of a piece in bytes.
    fn piece(&self) -> usize {
        if self.free.load(Ordering::Acquire) {
            return usize::MAX;
        }
        let rate = self.lock().buckets.as_ref().map(|[bucket, _]| bucket.rate);
        let piece = rate.map(|rate| usize::try_from(rate / PIECES_PER_SECOND).unwrap_or(usize::MAX));
        piece.map_or(LARGEST_PIECE, |piece| piece.clamp(SMALL, LARGEST_PIECE))
    }

    /// Counts bytes, and waits for their turn where they wait at all. Returns `false` when `stopped`
    /// says so first.
    fn take(&self, direction: Direction, bytes: u64, waits: bool, stopped: &dyn Fn() -> bool) -> bool {
        if self.free.load(Ordering::Acquire) {
            return true;
        }
        let mut state = self.lock();
        if !waits {
            // The time of a pause pays for the signs of life in it, or they would all be owed at its end.
            if !state.is_paused() {
                state.take(direction, bytes, self.origin.elapsed());
            }
            return true;
        }

        // After each change of the rate, and each pause, it looks anew when its turn comes.
        let mut turn = None;
        loop {
            let now = self.origin.elapsed();
            turn = turn.or_else(|| state.take(direction, bytes, now));
            let left = turn.map_or(Duration::ZERO, |turn| state.left(direction, turn, now));
            let wait = if state.is_paused() { LOOK } else { left.min(LOOK) };
            if wait.is_zero() {
                return true;
            }
            if stopped() {
                return false;
            }
            state = self.changed.wait_timeout(state, wait).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// The arithmetic, on a clock passed by the caller.
struct Bucket {
    rate: u64,
    /// The time at which everything sent so far is paid for.
    paid_at: Duration,
    /// Number of bytes counted so far.
    taken: u64,
}

impl Bucket {
    fn new(rate: NonZeroU64) -> Self {
        Self { rate: rate.get(), paid_at: Duration::ZERO, taken: 0 }
    }

    /// Records `bytes` as sent; returns how long they must wait.
    fn take(&mut self, now: Duration, bytes: u64) -> Duration {
        // Time in which nothing was sent is worth one burst.
        let start = self.paid_at.max(now.saturating_sub(BURST));
        self.paid_at = start.saturating_add(self.cost(bytes));
        self.taken = self.taken.saturating_add(bytes);
        start.saturating_sub(now)
    }

    /// Returns when everything is paid for that was taken before the piece `behind` so many bytes.
    fn due(&self, behind: u64) -> Duration {
        self.paid_at.saturating_sub(self.cost(self.taken.saturating_sub(behind)))
    }

    /// Returns the time that so many bytes take.
    fn cost(&self, bytes: u64) -> Duration {
        let nanoseconds = u128::from(bytes) * 1_000_000_000 / u128::from(self.rate);
        Duration::from_nanos(u64::try_from(nanoseconds).unwrap_or(u64::MAX))
    }

    /// Returns the bucket at another rate, with as many bytes unpaid, or saved of a burst, as before.
    fn at_rate(self, rate: NonZeroU64, now: Duration) -> Self {
        if rate.get() == self.rate {
            return self;
        }
        let scaled = |time: Duration| {
            let nanoseconds = u128::from(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
            let nanoseconds = (nanoseconds * u128::from(self.rate)).div_ceil(u128::from(rate.get()));
            Duration::from_nanos(u64::try_from(nanoseconds).unwrap_or(u64::MAX))
        };

        let unpaid = scaled(self.paid_at.saturating_sub(now));
        let saved = scaled(now.saturating_sub(self.paid_at).min(BURST)).min(BURST);
        let paid_at = now.saturating_add(unpaid).saturating_sub(saved);
        Self { rate: rate.get(), paid_at, taken: self.taken }
    }
}

/// Time between two looks at whether a wait is still wanted.
const LOOK: Duration = Duration::from_millis(50);
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
    use std::sync::atomic::AtomicUsize;

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

    /// A change by the program, or time that passes.
    #[derive(Debug, Clone, Copy)]
    enum Steer {
        Rate(u64),
        Pause,
        Resume,
        Micros(u64),
    }

    fn steer() -> impl Strategy<Value = Steer> {
        prop_oneof![
            prop_oneof![Just(FASTEST), 1000..FASTEST].prop_map(Steer::Rate),
            Just(Steer::Pause),
            Just(Steer::Resume),
            (1_u64..200_000).prop_map(Steer::Micros),
            (1_u64..200_000).prop_map(Steer::Micros),
        ]
    }

    const FASTEST: u64 = 1_000_000;

    proptest! {
        /// Law: however a program steers, over any stretch lanes that always have something to send
        /// carry no more than the rates of that stretch, without its pauses, and one burst.
        #[test]
        fn steering_lets_nothing_go_that_is_not_paid_for(
            steps in prop::collection::vec(steer(), 1..200),
            pieces in prop::collection::vec(1_u64..=50_000, 1..8),
        ) {
            let (mut state, mut now, mut rate) = (State::default(), Duration::ZERO, FASTEST);
            state.set_rate(NonZeroU64::new(rate), now);
            let mut lanes: Vec<_> =
                pieces.iter().map(|&len| (len, state.take(Direction::Sent, len, now).unwrap())).collect();
            // Bytes that the rates allow so far, those that passed, and the least that they were ahead.
            let (mut allowed, mut passed, mut least) = (0.0, 0.0_f64, 0.0_f64);
            for step in steps {
                match step {
                    Steer::Rate(new) => {
                        rate = new;
                        state.set_rate(NonZeroU64::new(rate), now);
                    }
                    Steer::Pause => state.pause(now),
                    Steer::Resume => state.resume(now),
                    Steer::Micros(micros) => {
                        now += Duration::from_micros(micros);
                        allowed += if state.is_paused() { 0.0 } else { rate as f64 * micros as f64 / 1e6 };
                    }
                }
                while !state.is_paused()
                    && let Some((len, turn)) =
                        lanes.iter_mut().find(|(_, turn)| state.left(Direction::Sent, *turn, now).is_zero())
                {
                    passed += *len as f64;
                    *turn = state.take(Direction::Sent, *len, now).unwrap();
                }
                least = least.min(passed - allowed);
                let most = FASTEST as f64 * BURST.as_secs_f64() + 50_000.0 + 1.0;
                prop_assert!(passed - allowed - least <= most, "{passed} of {allowed}, from {least} on");
            }
        }
    }

    #[test]
    fn piece_that_waits_keeps_its_turn_at_another_rate() {
        let rate = NonZeroU64::new;
        let (mut state, second) = (State::default(), Duration::from_secs(1));
        state.set_rate(rate(1000), Duration::ZERO);
        state.take(Direction::Sent, 4000, Duration::ZERO);
        let turn = state.take(Direction::Sent, 1, Duration::ZERO).unwrap();
        let left = |state: &State, now: Duration| state.left(Direction::Sent, turn, now).as_millis();
        assert_eq!(left(&state, second), 3000);
        state.set_rate(rate(3000), second);
        assert_eq!(left(&state, second), 1000);
        state.set_rate(rate(500), second + second / 2);
        assert_eq!(left(&state, second + second / 2), 3000);

        // A pause pays for nothing.
        state.pause(2 * second);
        state.resume(9 * second);
        assert_eq!(left(&state, 9 * second), 2500);

        // Without a rate it goes, also if there is one again before it has looked.
        state.set_rate(None, 9 * second);
        assert_eq!(left(&state, 9 * second), 0);
        state.set_rate(rate(1), 9 * second);
        assert_eq!(left(&state, 9 * second), 0);
    }

    #[test]
    fn signs_of_life_in_a_pause_are_not_owed_after_it() {
        let throttle = Throttle::new(NonZeroU64::new(1));
        let owed = || throttle.0.lock().buckets.as_ref().map(|[sent, _]| sent.taken);
        let say = || throttle.0.take(Direction::Sent, 1000, false, &|| false);
        assert!(say());
        throttle.pause();
        assert!(say(), "it passes");
        throttle.resume();
        assert_eq!(owed(), Some(1000));
    }

    #[test]
    fn steering_lets_no_waiting_copy_go() {
        let rate = NonZeroU64::new(1);
        let throttle = Throttle::new(rate);
        assert!(throttle.admit(1_000_000, &|| false), "the first piece has a burst");
        let looks = AtomicUsize::new(0);
        let (looked, done) = (|| looks.load(Ordering::Acquire), AtomicBool::new(false));
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| {
                throttle.admit(1, &|| {
                    looks.fetch_add(1, Ordering::AcqRel);
                    done.load(Ordering::Acquire)
                })
            });
            // Its next look but one is after the change.
            let wait = || {
                let begun = looked();
                while looked() < begun + 2 && !waiting.is_finished() {
                    std::thread::yield_now();
                }
            };
            wait();
            for _ in 0..3 {
                throttle.set_rate(rate);
                wait();
                throttle.set_rate(NonZeroU64::new(2));
                wait();
                throttle.pause();
                wait();
                throttle.resume();
                wait();
            }
            done.store(true, Ordering::Release);
            assert!(!waiting.join().unwrap(), "nothing let it go before it was stopped");
        });
    }

    #[test]
    fn pause_holds_a_copy_whose_turn_comes_meanwhile() {
        let throttle = Throttle::new(NonZeroU64::new(1));
        assert!(throttle.admit(1_000_000, &|| false), "the first piece has a burst");
        let looks = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| throttle.admit(1, &|| looks.fetch_add(1, Ordering::AcqRel) > 10));
            while looks.load(Ordering::Acquire) < 2 {
                std::thread::yield_now();
            }
            throttle.pause();
            throttle.set_rate(None);
            assert!(!waiting.join().unwrap(), "only the stop ended its wait");
        });
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

    #[test]
    fn a_rate_for_all_lanes_holds_the_control_lane_too() {
        for (sides, held) in [(Sides::Both, false), (Sides::All, true)] {
            let (near, far) = crate::memory::pair();
            let throttle = Throttle::new(NonZeroU64::new(4096));
            let near = throttled(Arc::new(near), &throttle, sides);
            let mut theirs = far.open_lane().unwrap();
            theirs.tx.write(Bytes::from(vec![0; 4096])).unwrap();
            let mut ours = near.accept_lane().unwrap();
            let began = Instant::now();
            let (mut read, mut buffer) = (0, [0; 4096]);
            while read < 4096 {
                read += ours.rx.read(&mut buffer).unwrap();
            }
            // A second's bytes less a burst; a slow machine only takes longer.
            assert!(!held || began.elapsed() >= Duration::from_millis(700));
            let counted = throttle.0.lock().buckets.as_ref().map(|[_, received]| received.paid_at);
            assert_eq!(counted.unwrap() > Duration::ZERO, held);
        }
    }
}
