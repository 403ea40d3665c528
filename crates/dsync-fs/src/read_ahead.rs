//! Work done before its results are wanted, in the order in which they will be.
//!
//! The order is that of a stack: the top is wanted next. A finished job leaves its result in its
//! place, with the jobs that follow from it right below. So any number of threads can read a
//! depth-first walk ahead, and its results arrive as from one thread.
//!
//! On a disk that lets jobs wait, more threads start: they only wait too, and a disk serves many
//! requests in the time of one.
//!
//! Laws: results arrive in stack order whatever the threads do. The consumer never waits for a job
//! that nobody has begun, because it does that one itself (so there may be no threads at all);
//! while a thread does the wanted job, the consumer does others. Nobody begins another job while a
//! given number of results, or [`MAX_WEIGHT`] of them, are ready, whatever the tree.

use std::{
    panic::resume_unwind,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread::{Builder, JoinHandle},
};

use crate::disk_wait::DiskWait;

/// A piece of work.
pub(crate) trait Job: Send + Sized + 'static {
    /// The result of a job.
    type Output: Send;

    /// Does the work.
    fn run(self) -> Done<Self>;
}

/// The outcome of a job.
pub(crate) struct Done<J: Job> {
    /// The result; `None` if other jobs take this one's place.
    pub(crate) output: Option<J::Output>,
    /// Memory weight of the result, in the unit of [`MAX_WEIGHT`].
    pub(crate) weight: usize,
    /// Jobs that follow right after it, the next one first.
    pub(crate) then: Vec<J>,
}

/// A stack of jobs and the threads that work on it.
pub(crate) struct ReadAhead<J: Job> {
    shared: Arc<Shared<J>>,
    threads: Vec<JoinHandle<()>>,
    wanted_threads: usize,
    /// Threads that start beyond those when jobs wait for a disk.
    spare_threads: usize,
}

struct Shared<J: Job> {
    state: Mutex<State<J>>,
    /// Wakes threads: there is work, or no more will come.
    work: Condvar,
    /// Wakes the consumer: a job is done.
    done: Condvar,
}

struct State<J: Job> {
    /// The last one is wanted next.
    stack: Vec<Slot<J>>,
    tickets: u64,
    /// Number of jobs on the stack that nobody has begun.
    waiting: usize,
    /// Number of results on the stack; `weight` is their total weight.
    ready: usize,
    weight: usize,
    /// Number of threads that wait for work.
    idle: usize,
    /// Number of jobs that waited for a disk.
    slow: usize,
    max_ready: usize,
    /// Whether the consumer waits for a job that a thread has begun.
    awaited: bool,
    over: bool,
    /// Whether a thread ended without its result.
    broken: bool,
    /// Number of times that an idle thread was woken.
    #[cfg(test)]
    woken: usize,
}

enum Slot<J: Job> {
    Waiting(J),
    Begun(u64),
    Ready(J::Output, usize),
}

impl<J: Job> ReadAhead<J> {
    /// Makes an empty stack. At most `threads` threads start when there is work for them, and begin
    /// nothing while `max_ready` results are ready.
    pub(crate) fn new(threads: usize, max_ready: usize) -> Self {
        let state = State {
            stack: Vec::new(),
            tickets: 0,
            waiting: 0,
            ready: 0,
            weight: 0,
            idle: 0,
            slow: 0,
            max_ready,
            awaited: false,
            over: false,
            broken: false,
            #[cfg(test)]
            woken: 0,
        };
        let shared = Shared { state: Mutex::new(state), work: Condvar::new(), done: Condvar::new() };
        let spare_threads = if threads == 0 { 0 } else { MAX_SPARE_THREADS };
        Self { shared: Arc::new(shared), threads: Vec::new(), wanted_threads: threads, spare_threads }
    }

    /// Pushes jobs onto the stack, the first on top.
    pub(crate) fn push(&mut self, jobs: impl DoubleEndedIterator<Item = J>) {
        let mut state = self.shared.lock();
        let before = state.stack.len();
        state.stack.extend(jobs.rev().map(Slot::Waiting));
        state.waiting += state.stack.len() - before;
        self.shared.wake(&state);
    }

    /// Takes the top: waits for it, or does it here. Returns `None` if the stack is empty.
    pub(crate) fn next(&mut self) -> Option<J::Output> {
        self.start_threads();
        let shared = Arc::clone(&self.shared);
        let mut state = shared.lock();

        loop {
            if state.broken {
                drop(state);
                self.pass_on_panic();
                return None;
            }

            match state.stack.pop()? {
                Slot::Ready(output, weight) => {
                    state.ready -= 1;
                    state.weight -= weight;
                    // Not for each one: a thread that wakes should find more than one job allowed.
                    if state.ready <= state.max_ready / 2 && state.weight <= MAX_WEIGHT / 2 {
                        shared.wake(&state);
                    }
                    return Some(output);
                }
                Slot::Waiting(job) => {
                    let ticket = state.begin();
                    state.stack.push(Slot::Begun(ticket));
                    state = shared.carry_out(state, ticket, job);
                }
                begun @ Slot::Begun(_) => {
                    state.stack.push(begun);
                    state = match state.take_ahead() {
                        // Sleeping would leave a processor idle and cost two switches for each job.
                        Some((ticket, job)) => shared.carry_out(state, ticket, job),
                        None => shared.wait_for_result(state),
                    };
                }
            }
        }
    }

    /// Starts threads once there is more work than the job that is wanted now, and further ones as
    /// jobs turn out to wait.
    fn start_threads(&mut self) {
        if self.threads.len() >= self.wanted_threads + self.spare_threads {
            return;
        }
        let state = self.shared.lock();
        let spare = (state.slow / SLOW_JOBS).min(self.spare_threads);
        let wanted = if state.stack.len() < 2 { 0 } else { self.wanted_threads + spare };
        drop(state);
        while self.threads.len() < wanted {
            let shared = Arc::clone(&self.shared);
            match Builder::new().name("read-ahead".into()).spawn(move || shared.work_ahead()) {
                Ok(thread) => self.threads.push(thread),
                // It works without them too, only slower.
                Err(_) => {
                    (self.wanted_threads, self.spare_threads) = (self.threads.len(), 0);
                    return;
                }
            }
        }
    }

    fn stop(&mut self) -> Vec<JoinHandle<()>> {
        self.shared.lock().over = true;
        self.shared.work.notify_all();
        std::mem::take(&mut self.threads)
    }

    fn pass_on_panic(&mut self) {
        (self.wanted_threads, self.spare_threads) = (0, 0);
        for thread in self.stop() {
            if let Err(panic) = thread.join() {
                resume_unwind(panic);
            }
        }
    }
}

impl<J: Job> Drop for ReadAhead<J> {
    fn drop(&mut self) {
        for thread in self.stop() {
            let _ = thread.join();
        }
    }
}

impl<J: Job> Shared<J> {
    fn lock(&self) -> MutexGuard<'_, State<J>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does a job on the calling thread.
    fn carry_out<'a>(
        &'a self,
        state: MutexGuard<'a, State<J>>,
        ticket: u64,
        job: J,
    ) -> MutexGuard<'a, State<J>> {
        drop(state);
        let (done, waited) = carry_out(job);
        let mut state = self.lock();
        state.place(ticket, done, waited);
        self.wake(&state);
        state
    }

    fn wait_for_result<'a>(&'a self, mut state: MutexGuard<'a, State<J>>) -> MutexGuard<'a, State<J>> {
        state.awaited = true;
        let mut state = self.done.wait(state).unwrap_or_else(PoisonError::into_inner);
        state.awaited = false;
        state
    }

    /// Wakes as many idle threads as there are jobs that may begin.
    fn wake(&self, state: &State<J>) {
        self.call(state.calls());
    }

    /// Wakes threads, best without the lock: they want it.
    fn call(&self, calls: Calls) {
        (0..calls.threads).for_each(|_| self.work.notify_one());
        if calls.consumer {
            self.done.notify_one();
        }
    }

    /// Runs a thread's loop until the end.
    fn work_ahead(&self) {
        let mut state = self.lock();
        let mut calls = Calls::default();
        while !state.over {
            let Some((ticket, job)) = state.take_ahead() else {
                state = self.idle(state, std::mem::take(&mut calls));
                continue;
            };
            drop(state);
            self.call(calls);

            let guard = Unfinished(self);
            let (done, waited) = carry_out(job);
            std::mem::forget(guard);

            state = self.lock();
            state.place(ticket, done, waited);
            calls = Calls { consumer: state.awaited, ..state.calls() };
        }
    }

    /// Waits for work; wakes others instead, if some are to be woken.
    fn idle<'a>(&'a self, mut state: MutexGuard<'a, State<J>>, calls: Calls) -> MutexGuard<'a, State<J>> {
        if calls != Calls::default() {
            drop(state);
            self.call(calls);
            return self.lock();
        }
        state.idle += 1;
        state = self.work.wait(state).unwrap_or_else(PoisonError::into_inner);
        state.idle -= 1;
        #[cfg(test)]
        {
            state.woken += 1;
        }
        state
    }
}

/// The threads that are to be woken.
#[derive(Default, Clone, Copy, PartialEq, Eq)]
struct Calls {
    /// So many of those that wait for work.
    threads: usize,
    /// Whether the consumer is one of them.
    consumer: bool,
}

impl<J: Job> State<J> {
    /// Records that a waiting job was begun.
    fn begin(&mut self) -> u64 {
        self.waiting -= 1;
        self.tickets += 1;
        self.tickets
    }

    /// Returns how many idle threads the jobs that may begin are for. A thread that wakes for nothing
    /// costs two switches, and the lock that others want.
    fn calls(&self) -> Calls {
        let threads = if self.may_begin() { self.waiting.min(self.idle) } else { 0 };
        Calls { threads, consumer: false }
    }

    /// Returns whether a job may begin ahead of the consumer.
    fn may_begin(&self) -> bool {
        self.waiting > 0 && self.ready < self.max_ready && self.weight < MAX_WEIGHT
    }

    /// Takes the waiting job nearest to the top, unless enough results are ready.
    fn take_ahead(&mut self) -> Option<(u64, J)> {
        if !self.may_begin() {
            return None;
        }
        let at = self.stack.iter().rposition(|slot| matches!(slot, Slot::Waiting(_)))?;
        let ticket = self.begin();
        match std::mem::replace(self.stack.get_mut(at)?, Slot::Begun(ticket)) {
            Slot::Waiting(job) => Some((ticket, job)),
            _ => None,
        }
    }

    /// Puts the outcome of a job in its place, and counts it if it waited for a disk.
    fn place(&mut self, ticket: u64, done: Done<J>, waited: bool) {
        // Search from the top: only results and the jobs that follow from them can have come above
        // it.
        let at = self.stack.iter().rposition(|slot| matches!(slot, Slot::Begun(begun) if *begun == ticket));
        let Some(at) = at else { return };
        let Done { output, weight, then } = done;
        self.slow += usize::from(waited);
        self.waiting += then.len();
        let above = output.map(|output| {
            self.ready += 1;
            self.weight += weight;
            Slot::Ready(output, weight)
        });
        self.stack.splice(at..=at, then.into_iter().rev().map(Slot::Waiting).chain(above));
    }
}

/// Notifies the consumer if a job ends in a panic.
struct Unfinished<'a, J: Job>(&'a Shared<J>);

impl<J: Job> Drop for Unfinished<'_, J> {
    fn drop(&mut self) {
        self.0.lock().broken = true;
        self.0.done.notify_all();
    }
}

/// Does a job. Returns its outcome, and whether it waited for a disk.
fn carry_out<J: Job>(job: J) -> (Done<J>, bool) {
    let wait = DiskWait::begin();
    let done = job.run();
    let waited = wait.waited(done.weight + done.then.len());
    (done, waited)
}

/// Slow jobs for each further thread: a busy machine has a few.
const SLOW_JOBS: usize = 4;
/// Threads that wait for a slow disk, beside those that a machine's processors keep busy: half the
/// requests that a SATA disk takes at once (NCQ, 32).
const MAX_SPARE_THREADS: usize = 16;
/// Largest total weight of ready results, in directory entries of some 200 bytes: 3 MB.
const MAX_WEIGHT: usize = 16 << 10;

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::{
        sync::atomic::{AtomicUsize, Ordering},
        time::{Duration, Instant},
    };

    use proptest::prelude::*;

    use super::*;

    /// A node of a generated tree: its result is its number, then its children follow.
    #[derive(Debug, Clone)]
    struct Node {
        number: u32,
        children: Vec<Self>,
        /// Whether it has no result of its own.
        split: bool,
    }

    impl Job for Node {
        type Output = u32;

        fn run(self) -> Done<Self> {
            if self.number.is_multiple_of(7) {
                std::thread::yield_now();
            }
            let output = (!self.split).then_some(self.number);
            Done { output, weight: 1, then: self.children }
        }
    }

    fn numbers_of(node: &Node, into: &mut Vec<u32>) {
        if !node.split {
            into.push(node.number);
        }
        node.children.iter().for_each(|child| numbers_of(child, into));
    }

    fn tree() -> impl Strategy<Value = Node> {
        let leaf =
            any::<(u32, bool)>().prop_map(|(number, split)| Node { number, children: Vec::new(), split });
        leaf.prop_recursive(5, 400, 12, |inner| {
            (any::<(u32, bool)>(), prop::collection::vec(inner, 0..12))
                .prop_map(|((number, split), children)| Node { number, children, split })
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(64) })]

        /// Law: any number of threads yields the results of a single one, in the same order.
        #[test]
        fn results_come_in_stack_order(roots in prop::collection::vec(tree(), 0..4), threads in 0..4_usize) {
            let mut expected = Vec::new();
            roots.iter().for_each(|root| numbers_of(root, &mut expected));
            let mut ahead = ReadAhead::new(threads, 16);
            ahead.push(roots.into_iter());
            let found: Vec<u32> = std::iter::from_fn(|| ahead.next()).collect();
            prop_assert_eq!(found, expected);
        }
    }

    /// One of a thousand jobs that count how many were begun.
    struct Counted(Arc<AtomicUsize>);

    impl Job for Counted {
        type Output = ();

        fn run(self) -> Done<Self> {
            self.0.fetch_add(1, Ordering::SeqCst);
            Done { output: Some(()), weight: 1, then: Vec::new() }
        }
    }

    const MAX_READY: usize = 256;

    #[test]
    fn threads_do_not_run_away_from_the_one_who_wants_the_results() {
        let begun = Arc::new(AtomicUsize::new(0));
        let mut ahead = ReadAhead::new(3, MAX_READY);
        ahead.push((0..4 * MAX_READY).map(|_| Counted(Arc::clone(&begun))));
        for taken in 1..=4 * MAX_READY {
            ahead.next().unwrap();
            // Three threads and this one may each have begun one more before the last was ready.
            assert!(begun.load(Ordering::SeqCst) <= taken + MAX_READY + 4);
        }
        assert!(ahead.next().is_none());
    }

    /// Waits until the state of the threads is as wanted, and returns what it sees of it.
    fn wait_until(ahead: &ReadAhead<Counted>, wanted: impl Fn(&State<Counted>) -> bool) -> usize {
        let end = Instant::now() + Duration::from_secs(300);
        while Instant::now() < end {
            let state = ahead.shared.lock();
            if wanted(&state) {
                return state.woken;
            }
            drop(state);
            std::thread::yield_now();
        }
        panic!("the threads did not get there");
    }

    #[test]
    fn a_job_wakes_one_thread_and_one_that_may_not_begin_wakes_none() {
        const THREADS: usize = 8;
        const JOBS: usize = 40;
        let begun = Arc::new(AtomicUsize::new(0));
        let job = || std::iter::once(Counted(Arc::clone(&begun)));
        let mut ahead = ReadAhead::new(THREADS, JOBS);
        ahead.push((0..2).map(|_| Counted(Arc::clone(&begun))));
        ahead.next().unwrap();
        let before = wait_until(&ahead, |state| state.idle == THREADS && state.ready == 1);

        for count in 2..=JOBS {
            ahead.push(job());
            wait_until(&ahead, |state| state.idle == THREADS && state.ready == count);
        }
        let woken = wait_until(&ahead, |state| state.idle == THREADS) - before;
        // One that is about to sleep may be told as well, but not most of them each time.
        assert!(woken < THREADS * JOBS / 2, "{woken} threads woke for {JOBS} jobs");
        // From here on nothing may begin.
        (0..JOBS).for_each(|_| ahead.push(job()));
        let woken = wait_until(&ahead, |state| state.idle == THREADS) - before - woken;
        assert!(woken < JOBS, "{woken} threads woke for nothing");
        assert_eq!(begun.load(Ordering::SeqCst), JOBS + 1);
    }

    /// A quick job, one that ends when the third is done, and the third.
    enum Staged {
        Quick,
        Waits(Arc<Signals>),
        Awaited(Arc<Signals>),
    }

    #[derive(Default)]
    struct Signals {
        begun: Mutex<bool>,
        done: Mutex<bool>,
        changed: Condvar,
    }

    impl Job for Staged {
        type Output = bool;

        fn run(self) -> Done<Self> {
            let output = match self {
                Self::Quick => true,
                Self::Waits(signals) => {
                    *signals.begun.lock().unwrap() = true;
                    let done = signals.done.lock().unwrap();
                    let patience = std::time::Duration::from_secs(300);
                    *signals.changed.wait_timeout_while(done, patience, |done| !*done).unwrap().0
                }
                Self::Awaited(signals) => {
                    *signals.done.lock().unwrap() = true;
                    signals.changed.notify_all();
                    true
                }
            };
            Done { output: Some(output), weight: 1, then: Vec::new() }
        }
    }

    #[test]
    fn the_one_who_waits_for_a_result_does_other_jobs() {
        let signals = Arc::new(Signals::default());
        let jobs =
            [Staged::Quick, Staged::Waits(Arc::clone(&signals)), Staged::Awaited(Arc::clone(&signals))];
        let mut ahead = ReadAhead::new(1, MAX_READY);
        ahead.push(jobs.into_iter());
        assert!(ahead.next().unwrap());
        // The only thread is at the second job, or has done the third for this one.
        while !*signals.begun.lock().unwrap() {
            std::thread::yield_now();
        }
        assert!(ahead.next().unwrap(), "the third job was not done while the second waited for it");
        assert!(ahead.next().unwrap());
    }

    struct Fails(bool);

    impl Job for Fails {
        type Output = ();

        fn run(self) -> Done<Self> {
            assert!(!self.0, "this job panics");
            std::thread::yield_now();
            Done { output: Some(()), weight: 1, then: Vec::new() }
        }
    }

    #[test]
    #[should_panic(expected = "this job panics")]
    fn a_panic_reaches_the_one_who_wants_the_results() {
        let mut ahead = ReadAhead::new(2, 100);
        ahead.push((0..10_000).map(|number| Fails(number == 5_000)));
        while ahead.next().is_some() {}
    }
}
