//! The home of async code: tokio runtimes of one thread each, shared by links, and the way from a
//! blocking call into them and back.
//!
//! A runtime's thread does all input and output and all packet crypto of its links. Engine threads
//! poll a stream's future themselves and park until it is ready ([`block_on`]), so outgoing data
//! does not pass through another queue or thread. Incoming data does only if a thread waits for
//! much.
//!
//! The laws: a link has a runtime of its own as long as there are no more links than processors.
//! A link's tasks end with it, whoever else uses the runtime: all of them are started by its
//! [`Reactor`], or by [`spawn`] within one of them.

#[cfg(feature = "quic")]
mod for_quinn;

use std::{
    cell::RefCell,
    fmt,
    future::Future,
    io,
    os::unix::net::UnixStream,
    pin::pin,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
    thread::{self, JoinHandle, Thread, available_parallelism},
};

use tokio::{
    runtime::{self, Handle},
    sync::oneshot,
    task::{AbortHandle, JoinSet},
};

#[cfg(feature = "quic")]
pub(crate) use self::for_quinn::ForQuinn;

/// The threads that carry bytes for links; clones are the same threads. They start when links need
/// them, one for each processor at most, and end with the last clone and the last link.
#[derive(Clone, Default)]
pub struct Carriers(Arc<Mutex<Vec<Arc<Running>>>>);

impl Carriers {
    /// Takes a share of the runtime that has the fewest links. Starts one if all are in use and
    /// there are processors left.
    pub(crate) fn share(&self) -> io::Result<Reactor> {
        let processors = available_parallelism().map_or(1, usize::from);
        let running = self.take(|links, threads| links == 0 || threads >= processors)?;
        let tasks = Tasks { handle: running.0.handle.clone(), set: Mutex::new(Some(JoinSet::new())) };
        Ok(Reactor { tasks: Arc::new(tasks), _running: running })
    }

    /// Starts a future of no link, which seldom has anything to do, on the thread that has the fewest links.
    /// It ends when the result is dropped. A thread starts only if there is none.
    #[cfg(feature = "ssh")]
    pub(crate) fn attend(&self, future: impl Future<Output = ()> + Send + 'static) -> io::Result<Attendance> {
        let running = self.take(|_, _| true)?;
        let task = running.0.handle.spawn(future).abort_handle();
        Ok(Attendance { task, _running: Arc::clone(&running.0) })
    }

    /// Counts a link with the runtime that has the fewest, if that `will_do` by its links and the number of
    /// all runtimes; else with a new one.
    fn take(&self, will_do: impl Fn(usize, usize) -> bool) -> io::Result<Linked> {
        let mut all = lock(&self.0);
        let links = |running: &Arc<Running>| running.links.load(Ordering::Relaxed);
        let least = all.iter().min_by_key(|running| links(running));
        let running = match least.filter(|running| will_do(links(running), all.len())) {
            Some(running) => Arc::clone(running),
            None => {
                let started = Arc::new(Running::start()?);
                all.push(Arc::clone(&started));
                started
            }
        };
        // Under the lock, so that the next one sees it.
        running.links.fetch_add(1, Ordering::Relaxed);
        Ok(Linked(running))
    }
}

/// A link that is counted with its runtime.
struct Linked(Arc<Running>);

impl Drop for Linked {
    fn drop(&mut self) {
        self.0.links.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A future that belongs to no link; dropping this ends it.
#[cfg(feature = "ssh")]
pub(crate) struct Attendance {
    task: AbortHandle,
    _running: Arc<Running>,
}

#[cfg(feature = "ssh")]
impl Drop for Attendance {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl fmt::Debug for Carriers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Carriers").field("started", &lock(&self.0).len()).finish()
    }
}

/// A runtime on its own thread, which ends with it.
struct Running {
    handle: Handle,
    links: AtomicUsize,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Running {
    /// Starts the thread.
    fn start() -> io::Result<Self> {
        probe_descriptors()?;
        let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let (stop, stopped) = oneshot::channel();
        let thread = thread::Builder::new().name("dsync-carrier".into()).spawn(move || {
            // Err means that the sender was dropped: stop as well.
            let _ = runtime.block_on(stopped);
            // A plain drop would wait for a name look-up that hangs in the C library.
            runtime.shutdown_background();
        })?;
        Ok(Self { handle, links: AtomicUsize::new(0), stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // The thread's hook has printed a panic; there is nothing to add.
            let _ = thread.join();
        }
    }
}

/// A link's share of a runtime. Dropping it drops all of the link's tasks, and waits for that.
pub(crate) struct Reactor {
    tasks: Arc<Tasks>,
    _running: Linked,
}

impl Reactor {
    /// Starts a runtime that nobody shares.
    #[cfg(any(feature = "ssh", test))]
    pub(crate) fn start() -> io::Result<Self> {
        Carriers::default().share()
    }

    /// Runs `future` on the runtime's thread and waits for it; returns `None` if it panicked.
    pub(crate) fn run<F>(&self, future: F) -> Option<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        self.tasks.run(future)
    }

    /// Returns the link's tasks, with which lanes start futures of their own.
    #[cfg(feature = "quic")]
    pub(crate) fn tasks(&self) -> Arc<Tasks> {
        Arc::clone(&self.tasks)
    }

    /// Starts `future` on the runtime's thread and leaves it there.
    pub(crate) fn spawn<F>(&self, future: F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let _ = self.tasks.spawn(future);
    }
}

impl Drop for Reactor {
    fn drop(&mut self) {
        let tasks = lock(&self.tasks.set).take();
        if let Some(mut tasks) = tasks {
            block_on(tasks.shutdown());
        }
    }
}

/// The tasks of one link.
pub(crate) struct Tasks {
    handle: Handle,
    /// `None` once the link has ended.
    set: Mutex<Option<JoinSet<()>>>,
}

impl Tasks {
    /// Starts a task; `None` if the link has ended.
    fn spawn(self: &Arc<Self>, future: impl Future<Output = ()> + Send + 'static) -> Option<AbortHandle> {
        let mut set = lock(&self.set);
        let set = set.as_mut()?;
        // The set keeps what has ended until somebody asks.
        while set.try_join_next().is_some() {}
        Some(set.spawn_on(OWN.scope(Arc::clone(self), future), &self.handle))
    }

    /// Runs a task and waits for it; returns `None` if it panicked, or the link has ended.
    pub(crate) fn run<F>(self: &Arc<Self>, future: F) -> Option<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        let (done, outcome) = oneshot::channel();
        let _ = self.spawn(async move {
            let _ = done.send(future.await);
        });
        block_on(outcome).ok()
    }
}

tokio::task_local! {
    /// The tasks of the link that the current one belongs to.
    static OWN: Arc<Tasks>;
}

/// Returns a future that belongs to the link that the current task belongs to, whoever polls it.
#[cfg(feature = "tls")]
pub(crate) fn as_own<F: Future>(future: F) -> impl Future<Output = F::Output> {
    let own = OWN.try_with(Arc::clone).ok();
    async move {
        match own {
            Some(own) => OWN.scope(own, future).await,
            None => future.await,
        }
    }
}

/// Starts a task of the link that the current task belongs to.
///
/// # Errors
/// The link has ended, or the caller is no task of a link.
#[cfg(feature = "tls")]
pub(crate) fn spawn(future: impl Future<Output = ()> + Send + 'static) -> io::Result<AbortHandle> {
    let own = OWN.try_with(Arc::clone).ok();
    own.and_then(|tasks| tasks.spawn(future)).ok_or_else(|| io::ErrorKind::NotConnected.into())
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the system's error where there are too few descriptors for a runtime, which panics over those that it
/// takes for signals.
fn probe_descriptors() -> io::Result<()> {
    // More than the six that it opens: others take some meanwhile.
    let _room = [UnixStream::pair()?, UnixStream::pair()?, UnixStream::pair()?, UnixStream::pair()?];
    Ok(())
}

/// Does blocking work on a thread of its own. tokio's pool panics where the system has no thread left.
///
/// # Errors
/// The system's, where it starts no thread.
#[cfg(feature = "tls")]
pub(crate) async fn on_thread<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> io::Result<T> {
    let (done, result) = oneshot::channel();
    let work = move || {
        // Nobody waits for it any more.
        let _ = done.send(work());
    };
    thread::Builder::new().name("dsync-waiting".into()).spawn(work)?;
    // Without a result the work has panicked.
    result.await.map_err(io::Error::other)
}

/// Polls `future` on the calling thread, parking it in between.
///
/// Unlike tokio's own `block_on` it works on any thread, including one that drives another runtime
/// (of an embedding program), and sets up nothing per call.
pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
    thread_local! {
        static PARKER: RefCell<Option<Arc<Parker>>> = const { RefCell::new(None) };
    }
    // Taken out while in use: a waker that itself blocks (there is none) would just make its own.
    let parker = PARKER.try_with(|slot| slot.borrow_mut().take()).ok().flatten().unwrap_or_else(Parker::new);
    let waker = Waker::from(Arc::clone(&parker));
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(future);
    let output = loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            break output;
        }
        #[cfg(test)]
        PARKED.set(PARKED.get() + 1);
        while !parker.woken.swap(false, Ordering::Acquire) {
            thread::park();
        }
    };
    // Fails while the thread ends; then nobody needs it any more.
    let _ = PARKER.try_with(|slot| slot.replace(Some(parker)));
    output
}

#[cfg(test)]
thread_local! {
    /// Number of times that this thread has waited in [`block_on`].
    pub(crate) static PARKED: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

struct Parker {
    thread: Thread,
    /// Set by a wake-up, because `park` may also return for other reasons.
    woken: AtomicBool,
}

impl Parker {
    fn new() -> Arc<Self> {
        Arc::new(Self { thread: thread::current(), woken: AtomicBool::new(false) })
    }
}

impl Wake for Parker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.woken.store(true, Ordering::Release);
        self.thread.unpark();
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_blocked_thread_is_woken_by_the_runtime() {
        let reactor = Reactor::start().unwrap();
        let (sender, receiver) = oneshot::channel();
        reactor.spawn(async move {
            tokio::time::sleep(Duration::from_millis(5)).await;
            sender.send(7).unwrap();
        });
        assert_eq!(block_on(receiver), Ok(7));
        assert_eq!(reactor.run(async { 8 }), Some(8));
    }

    /// Tells when it is dropped.
    struct Dropped(Arc<AtomicBool>);

    impl Drop for Dropped {
        fn drop(&mut self) {
            self.0.store(true, Ordering::SeqCst);
        }
    }

    #[test]
    fn no_more_threads_than_processors_carry_links_and_the_first_ones_have_their_own() {
        let (carriers, processors) = (Carriers::default(), available_parallelism().unwrap().get());
        let mut links: Vec<_> = (0..processors).map(|_| carriers.share().unwrap()).collect();
        assert_eq!(lock(&carriers.0).len(), processors);
        links.extend((0..2 * processors).map(|_| carriers.share().unwrap()));
        let shares = |links: &[Reactor], running: &Arc<Running>| {
            links.iter().filter(|link| Arc::ptr_eq(&link._running.0, running)).count()
        };
        let started = lock(&carriers.0).clone();
        assert!(started.len() == processors && started.iter().all(|running| shares(&links, running) == 3));
        drop(started);

        // Threads stay for the next link.
        links.clear();
        drop(carriers.share().unwrap());
        assert_eq!(lock(&carriers.0).len(), processors);
    }

    #[cfg(feature = "ssh")]
    #[test]
    fn a_future_of_no_link_takes_no_links_thread_and_ends_with_its_guard() {
        let (carriers, processors) = (Carriers::default(), available_parallelism().unwrap().get());
        let gone = Arc::new(AtomicBool::new(false));
        let held = Dropped(Arc::clone(&gone));
        let attended = carriers.attend(async move {
            let _held = held;
            std::future::pending::<()>().await;
        });
        assert_eq!(lock(&carriers.0).len(), 1);

        // The first link has that thread to itself all the same, and so has each other one its own.
        let links: Vec<_> = (0..processors).map(|_| carriers.share().unwrap()).collect();
        let started = lock(&carriers.0).clone();
        let links_of = |running: &Arc<Running>| running.links.load(Ordering::Relaxed);
        assert!(started.len() == processors && started.iter().all(|running| links_of(running) == 1));
        drop(links);
        assert!(started.iter().all(|running| links_of(running) == 0));
        assert!(!gone.load(Ordering::SeqCst));
        drop(attended.unwrap());
        while !gone.load(Ordering::SeqCst) {
            thread::yield_now();
        }
    }

    #[test]
    fn the_tasks_of_a_link_end_with_it_and_those_of_another_go_on() {
        let carriers = Carriers::default();
        let links: Vec<_> = (0..=available_parallelism().unwrap().get()).map(|_| carriers.share()).collect();
        let mut links: Vec<_> = links.into_iter().map(Result::unwrap).collect();
        // The last one shares a thread with one of the others.
        let last = links.pop().unwrap();
        let gone = [(); 2].map(|()| Arc::new(AtomicBool::new(false)));
        let [own, started_by_it] = gone.clone().map(Dropped);
        last.run(async move {
            let forever = |held| async move {
                let _held = held;
                std::future::pending::<()>().await;
            };
            drop(spawn(forever(own)).unwrap());
            drop(spawn(async move { drop(spawn(forever(started_by_it))) }).unwrap());
        });

        drop(last);
        assert!(gone.iter().all(|gone| gone.load(Ordering::SeqCst)));
        assert!(links.iter().all(|link| link.run(async { 5 }) == Some(5)));
    }

    #[cfg(feature = "tls")]
    #[test]
    fn blocking_work_has_a_result_or_an_error() {
        let reactor = Reactor::start().unwrap();
        assert_eq!(reactor.run(async { on_thread(|| 7).await.ok() }), Some(Some(7)));
        assert_eq!(reactor.run(async { on_thread(|| panic!("on purpose")).await.ok() }), Some(None::<()>));
    }

    #[test]
    fn a_panicking_task_is_no_panic_of_the_caller() {
        let reactor = Reactor::start().unwrap();
        assert_eq!(reactor.run(async { panic!("on purpose") }), None::<()>);
        assert_eq!(reactor.run(async { 1 }), Some(1));
    }
}
