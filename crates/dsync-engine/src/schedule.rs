//! Named points at which a test delays the engine's threads.
//!
//! A run has a dozen threads, and most orders of their steps are too rare to happen by chance. In
//! this crate's own tests each point may delay the thread that reaches it, as a seed decides; the
//! same seed delays the same steps. In every other build a point does nothing.
//!
//! Points are at each lock and wait of the engine, at both ends of each channel, and where a thread
//! begins and ends.

/// The next step of a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Point {
    /// A thread of the run has started.
    Begin,
    /// A thread of the run has done its work.
    End,
    /// Before a lock.
    Lock,
    /// Before a wait for a condition.
    Wait,
    /// Before something is put into a channel.
    Send,
    /// After something was taken from a channel.
    Receive,
}

/// Does nothing: only tests delay threads.
#[cfg(not(test))]
#[inline(always)]
pub(crate) fn point(_: Point) {}

#[cfg(test)]
pub(crate) use under_test::{point, run_with};

#[cfg(test)]
mod under_test {
    use std::{
        cell::Cell,
        sync::{
            Mutex, PoisonError,
            atomic::{AtomicU64, Ordering},
        },
        time::Duration,
    };

    use super::Point;

    /// The schedule that is being tried; 0: none.
    static SEED: AtomicU64 = AtomicU64::new(0);
    /// One schedule at a time.
    static TURN: Mutex<()> = Mutex::new(());

    thread_local! {
        /// The schedule that this thread follows, and its own source of chance.
        static FOLLOWED: Cell<(u64, u64)> = const { Cell::new((0, 0)) };
    }

    /// Calls `run` with the threads delayed as `seed` decides. Threads of other tests are delayed
    /// as well.
    pub(crate) fn run_with<T>(seed: u64, run: impl FnOnce() -> T) -> T {
        let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        SEED.store(seed.max(1), Ordering::Release);
        let result = run();
        SEED.store(0, Ordering::Release);
        result
    }

    /// Delays this thread if the schedule demands it.
    ///
    /// Three schedules in four slow one of the run's threads down at every step; the others delay
    /// all threads alike.
    pub(crate) fn point(point: Point) {
        let seed = SEED.load(Ordering::Acquire);
        if seed == 0 {
            return;
        }
        let chance = FOLLOWED.with(|followed| {
            let (mine, state) = followed.get();
            let state = if mine == seed { state } else { mix(seed ^ own_name()) };
            let next = mix(state ^ point as u64);
            followed.set((seed, next));
            next
        });
        let is_slow = !seed.is_multiple_of(4) && own_name() % SLOWED == (seed / 4) % SLOWED;
        match (is_slow, chance % 64) {
            (true, 0..8) => std::thread::sleep(Duration::from_millis(1 + chance / 64 % 4)),
            (true, 8..40) => std::thread::sleep(Duration::from_micros(chance / 64 % 200)),
            (false, 0) => std::thread::sleep(Duration::from_micros(chance / 64 % 2000)),
            (_, 1..12) => std::thread::yield_now(),
            _ => {}
        }
    }

    /// Classes of thread names, of which a schedule slows one down.
    const SLOWED: u64 = 7;

    fn own_name() -> u64 {
        let thread = std::thread::current();
        let name = thread.name().unwrap_or("").bytes();
        name.fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        })
    }

    /// Makes SplitMix64's step: every bit of the result depends on every bit of the state.
    fn mix(state: u64) -> u64 {
        let state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let state = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let state = (state ^ (state >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        state ^ (state >> 31)
    }
}
