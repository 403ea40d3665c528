//! The home of async code: one tokio runtime on one thread per link, and the way from a blocking
//! call into it and back.
//!
//! The runtime's thread does all input and output and all packet crypto of its link. Engine threads
//! poll a stream's future themselves and park until it is ready ([`block_on`]), so outgoing data
//! does not pass through another queue or thread. Incoming data does only if a thread waits for
//! much.

use std::{
    cell::RefCell,
    future::Future,
    io,
    os::unix::net::UnixStream,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
    thread::{self, JoinHandle, Thread},
};

use tokio::{runtime, sync::oneshot};

/// A runtime on its own thread. Dropping it drops all of its tasks and joins the thread.
pub(crate) struct Reactor {
    handle: runtime::Handle,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Reactor {
    /// Starts the thread.
    pub(crate) fn start() -> io::Result<Self> {
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
        Ok(Self { handle, stop: Some(stop), thread: Some(thread) })
    }

    /// Runs `future` on the runtime's thread and waits for it; returns `None` if it panicked.
    pub(crate) fn run<F>(&self, future: F) -> Option<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        block_on(self.handle.spawn(future)).ok()
    }

    /// Returns the handle with which lanes start futures of their own.
    #[cfg(feature = "quic")]
    pub(crate) fn handle(&self) -> runtime::Handle {
        self.handle.clone()
    }

    /// Starts `future` on the runtime's thread and leaves it there.
    pub(crate) fn spawn<F>(&self, future: F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.handle.spawn(future);
    }
}

/// Returns the system's error where there are too few descriptors for a runtime, which panics over those that it
/// takes for signals.
fn probe_descriptors() -> io::Result<()> {
    // More than the six that it opens: others take some meanwhile.
    let _room = [UnixStream::pair()?, UnixStream::pair()?, UnixStream::pair()?, UnixStream::pair()?];
    Ok(())
}

impl Drop for Reactor {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // The thread's hook has printed a panic; there is nothing to add.
            let _ = thread.join();
        }
    }
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

    #[test]
    fn a_panicking_task_is_no_panic_of_the_caller() {
        let reactor = Reactor::start().unwrap();
        assert_eq!(reactor.run(async { panic!("on purpose") }), None::<()>);
        assert_eq!(reactor.run(async { 1 }), Some(1));
    }
}
