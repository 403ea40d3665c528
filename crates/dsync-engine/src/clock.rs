//! Work that sessions do now and then, such as watching the peer and showing signs of life, on
//! threads that they share.
//!
//! One thread knows the time and hands over what is due; others do it. The laws: a beat that blocks
//! keeps no other one, as a further thread starts where those that there are do not get on. A beat
//! belongs to its [`Beating`]: once that is dropped, it is not under way and does not come again.

use std::{
    collections::{BTreeMap, VecDeque},
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use crate::{SyncError, threads};

/// The threads of beats. They start with the first beat and end with the clock.
#[derive(Default)]
pub(crate) struct Clock(Arc<Shared>);

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    /// Wakes the thread that knows the time: another beat is the next one, or the end.
    changed: Condvar,
    /// Wakes the threads that do what is due.
    ready: Condvar,
    /// Tells that a beat is no longer under way.
    ended: Condvar,
}

#[derive(Default)]
struct State {
    /// The beats that are not due, by their times and numbers.
    later: BTreeMap<(Instant, u64), Beat>,
    /// The beats that wait for a thread.
    due: VecDeque<(u64, Beat)>,
    /// Every beat's place, by its number.
    places: BTreeMap<u64, Place>,
    numbers: u64,
    /// Number of beats that a thread has taken.
    taken: u64,
    /// Number of threads that do what is due, and of those that wait for it.
    threads: usize,
    idle: usize,
    is_started: bool,
    is_over: bool,
}

/// The place of a beat.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Later(Instant),
    Due,
    UnderWay,
    /// Under way, and not to come again.
    Last,
}

struct Beat {
    every: Duration,
    /// Returns whether it is to come again.
    work: Box<dyn FnMut() -> bool + Send>,
}

/// A beat that goes on. Dropping it ends the beat, and waits for one that is under way.
pub(crate) struct Beating {
    clock: Arc<Shared>,
    number: u64,
}

impl Clock {
    /// Does `work` at intervals of `every` until it returns `false`.
    ///
    /// # Errors
    /// [`SyncError::Thread`].
    pub(crate) fn start(
        &self,
        every: Duration,
        work: impl FnMut() -> bool + Send + 'static,
    ) -> Result<Beating, SyncError> {
        let clock = Arc::clone(&self.0);
        let mut state = clock.lock();
        if !state.is_started {
            let clock = Arc::clone(&clock);
            threads::spawn("clock", move || clock.keep_time())?;
            state.is_started = true;
        }

        state.numbers += 1;
        let number = state.numbers;
        let is_next = state.put(number, Beat { every, work: Box::new(work) });
        drop(state);
        if is_next {
            clock.changed.notify_one();
        }
        Ok(Beating { clock, number })
    }
}

impl Drop for Clock {
    fn drop(&mut self) {
        self.0.lock().is_over = true;
        self.0.changed.notify_one();
        self.0.ready.notify_all();
    }
}

impl Drop for Beating {
    fn drop(&mut self) {
        let number = self.number;
        let mut state = self.clock.lock();
        // Dropped without the lock, with all that it holds.
        let _beat = match state.places.get(&number).copied() {
            Some(Place::Later(at)) => state.later.remove(&(at, number)),
            Some(Place::Due) => {
                let at = state.due.iter().position(|(due, _)| *due == number);
                at.and_then(|at| state.due.remove(at)).map(|(_, beat)| beat)
            }
            Some(_) => {
                state.places.insert(number, Place::Last);
                let is_under_way = |state: &mut State| state.places.contains_key(&number);
                let ended = self.clock.ended.wait_while(state, is_under_way);
                state = ended.unwrap_or_else(PoisonError::into_inner);
                None
            }
            None => None,
        };
        state.places.remove(&number);
        drop(state);
    }
}

impl State {
    /// Puts a beat where it waits for its time. Returns whether it is the next one.
    fn put(&mut self, number: u64, beat: Beat) -> bool {
        let at = Instant::now() + beat.every;
        self.places.insert(number, Place::Later(at));
        self.later.insert((at, number), beat);
        self.later.first_key_value().is_some_and(|((_, next), _)| *next == number)
    }

    /// Hands over what is due. Returns the time until the next one.
    fn hand_over(&mut self) -> Option<Duration> {
        let now = Instant::now();
        loop {
            let next = self.later.first_entry()?;
            let (at, number) = *next.key();
            if at > now {
                return Some(at - now);
            }
            let beat = next.remove();
            self.places.insert(number, Place::Due);
            self.due.push_back((number, beat));
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hands over what is due, until the clock is dropped.
    fn keep_time(self: Arc<Self>) {
        let mut state = self.lock();
        let mut taken_before = None;
        while !state.is_over {
            let wait = state.hand_over();

            let wait = if state.due.is_empty() {
                taken_before = None;
                wait
            } else {
                // All may be busy for a moment, or stuck.
                let is_stuck = state.threads == 0 || taken_before == Some(state.taken);
                if state.idle > 0 {
                    self.ready.notify_one();
                } else if is_stuck {
                    self.start_thread(&mut state);
                }
                taken_before = Some(state.taken);
                Some(wait.map_or(STUCK, |wait| wait.min(STUCK)))
            };
            state = match wait {
                Some(wait) => self
                    .changed
                    .wait_timeout(state, wait)
                    .map_or_else(|end| end.into_inner().0, |woken| woken.0),
                None => self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
            };
        }
    }

    /// Starts a thread that does what is due. Where the system has none left, it is asked again soon.
    fn start_thread(self: &Arc<Self>, state: &mut State) {
        let clock = Arc::clone(self);
        if threads::spawn("beat", move || clock.beat()).is_ok() {
            state.threads += 1;
        }
    }

    /// Does what is due, until nothing was for some time.
    fn beat(self: Arc<Self>) {
        let mut state = self.lock();
        loop {
            while let Some((number, beat)) = state.due.pop_front() {
                state.taken += 1;
                state.places.insert(number, Place::UnderWay);
                drop(state);
                state = self.carry_out(number, beat);
            }
            if state.is_over {
                break;
            }

            state.idle += 1;
            let (woken, waited) = match self.ready.wait_timeout(state, KEPT) {
                Ok((state, waited)) => (state, waited.timed_out()),
                Err(poisoned) => (poisoned.into_inner().0, false),
            };
            state = woken;
            state.idle -= 1;
            if waited && state.due.is_empty() {
                break;
            }
        }
        state.threads -= 1;
    }

    /// Does a beat and puts it back, if it comes again.
    fn carry_out(&self, number: u64, mut beat: Beat) -> MutexGuard<'_, State> {
        // A panic is the work's own to tell.
        let comes_again = catch_unwind(AssertUnwindSafe(|| (beat.work)())).unwrap_or(false);
        let mut state = self.lock();
        if comes_again && state.places.get(&number) == Some(&Place::UnderWay) {
            if state.put(number, beat) {
                self.changed.notify_one();
            }
        } else {
            drop(state);
            drop(beat);
            state = self.lock();
            state.places.remove(&number);
        }
        self.ended.notify_all();
        state
    }
}

/// Time in which a thread takes what is due, unless all are stuck.
const STUCK: Duration = Duration::from_millis(10);
/// Time that a thread waits for something to do.
const KEPT: Duration = Duration::from_secs(1);

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    const SOON: Duration = Duration::from_millis(1);
    const HANGS: Duration = Duration::from_secs(180);

    #[test]
    fn a_beat_that_blocks_keeps_no_other_one() {
        let clock = Clock::default();
        let (release, released) = mpsc::channel::<()>();
        let (began, begun) = mpsc::channel();
        let blocks = move || {
            began.send(()).unwrap();
            released.recv().is_ok()
        };
        let blocked = clock.start(SOON, blocks).unwrap();
        begun.recv_timeout(HANGS).unwrap();

        let (tell, told) = mpsc::channel();
        let other = clock.start(SOON, move || tell.send(()).is_ok()).unwrap();
        for _ in 0..5 {
            told.recv_timeout(HANGS).unwrap();
        }
        drop(other);
        release.send(()).unwrap();
        begun.recv_timeout(HANGS).unwrap();
        drop(release);
        drop(blocked);
    }

    #[test]
    fn many_beats_share_few_threads_and_none_comes_after_its_end() {
        let clock = Clock::default();
        let (tell, told) = mpsc::channel();
        let start = |number: u64| {
            let tell = tell.clone();
            clock.start(SOON, move || tell.send(number).is_ok()).unwrap()
        };
        let mut beats: Vec<_> = (0..100).map(start).collect();
        while told.recv_timeout(HANGS).unwrap() != 99 {}
        assert!(clock.0.lock().threads < 10);

        beats.truncate(50);
        told.try_iter().for_each(drop);
        for _ in 0..200 {
            assert!(told.recv_timeout(HANGS).unwrap() < 50);
        }
    }

    #[test]
    fn a_beat_that_says_so_or_panics_is_the_last_one() {
        let clock = Clock::default();
        let (tell, told) = mpsc::channel();
        let second = tell.clone();
        let ends = clock.start(SOON, move || tell.send(1).is_err()).unwrap();
        let panics = clock.start(SOON, move || {
            second.send(2).unwrap();
            panic!("on purpose");
        });
        let panics = panics.unwrap();
        let mut heard: Vec<i32> = told.iter().collect();
        heard.sort_unstable();
        assert_eq!(heard, [1, 2]);
        drop((ends, panics));
    }
}
