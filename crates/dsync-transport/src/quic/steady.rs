//! A connected socket that no stranger's word ends, and that needs no other socket beside it.
//!
//! A connected socket hears of every message of the network that a port is closed (ICMP), which whoever
//! knows the addresses can forge, and quinn ends its endpoint on any error but a reset. What the path
//! carries shows by what arrives.
//!
//! quinn's own socket asks the kernel with a second one whether it splits packets (GSO) and joins them
//! (GRO). A caged session may open none: its packets would leave one by one, and of those that the kernel
//! joins all but the first would be cut off. This one asks for itself.
//!
//! Packets wait in a [`Batch`] until a task's turn ends ([`super::turns`]). Those that are sent outside of a
//! turn, such as a request to prove an address, go at once: nobody would send them later.

use std::{
    cell::Cell,
    fmt,
    io::{self, ErrorKind, IoSliceMut},
    net::{SocketAddr, UdpSocket},
    pin::Pin,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll, ready},
};

use nix::sys::socket::{getsockopt, sockopt::UdpGsoSegment};
use quinn::{
    AsyncUdpSocket, UdpPoller,
    udp::{RecvMeta, Transmit, UdpSocketState},
};
use rustix::io::Errno;
use tokio::{io::Interest, net};

use super::batch::{Batch, MOST_BYTES};

/// A socket without refusals.
#[derive(Debug)]
pub(super) struct Steady {
    io: net::UdpSocket,
    state: UdpSocketState,
    /// Most packets that the kernel takes at once and splits.
    split: AtomicUsize,
    /// Bytes of the largest packet so far. A probe goes before any other packet of its size.
    largest: AtomicUsize,
    /// Packets that the next system call takes.
    batch: Mutex<Batch>,
    /// Number of packets that quinn has handed over.
    handed: AtomicUsize,
    /// Number of system calls for them.
    calls: AtomicUsize,
}

impl Steady {
    /// Takes a socket. Must be called on a runtime's thread.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn new(socket: UdpSocket) -> io::Result<Arc<Self>> {
        // It also sets the socket to not block.
        let state = UdpSocketState::new((&socket).into())?;
        let splits = getsockopt(&socket, UdpGsoSegment).is_ok();
        let split = AtomicUsize::new(if splits { MOST } else { 1 });
        let io = net::UdpSocket::from_std(socket)?;
        let (largest, batch, handed, calls) = Default::default();
        Ok(Arc::new(Self { io, state, split, largest, batch, handed, calls }))
    }

    /// Runs a task's turn: packets that it sends may wait until [`flush`](Self::flush).
    pub(super) fn turn<T>(poll: impl FnOnce() -> T) -> T {
        /// Ends the turn of a task that panics too: its thread goes on with others.
        struct Turn;
        impl Drop for Turn {
            fn drop(&mut self) {
                IN_TURN.set(false);
            }
        }

        IN_TURN.set(true);
        let _turn = Turn;
        poll()
    }

    /// Returns the number of packets that quinn has handed over.
    pub(super) fn handed(&self) -> usize {
        self.handed.load(Ordering::Relaxed)
    }

    /// Sends the batch at the end of a task's turn. If the socket is full, wakes the task when it is not.
    pub(super) fn flush(&self, context: &mut Context<'_>) {
        let mut batch = self.batch.lock().unwrap_or_else(PoisonError::into_inner);
        while self.send_batch(&mut batch).is_err() {
            // It fails with the runtime's end only.
            if !matches!(self.io.poll_send_ready(context), Poll::Ready(Ok(()))) {
                break;
            }
        }
    }

    /// Adds packets to the batch, or sends them where they do not fit; fails only if the socket is full.
    fn gather(&self, transmit: &Transmit<'_>) -> io::Result<()> {
        let mut batch = self.batch.lock().unwrap_or_else(PoisonError::into_inner);
        let most = self.split.load(Ordering::Relaxed);
        if batch.add(transmit, most) {
            return Ok(());
        }
        self.send_batch(&mut batch)?;
        if batch.add(transmit, most) { Ok(()) } else { self.send(transmit) }
    }

    /// Sends the batch, if any; fails only if the socket is full.
    fn send_batch(&self, batch: &mut Batch) -> io::Result<()> {
        if let Some(transmit) = batch.transmit() {
            self.send(&transmit)?;
            batch.clear();
        }
        Ok(())
    }

    /// Sends packets by one system call; fails only if the socket is full.
    fn send(&self, transmit: &Transmit<'_>) -> io::Result<()> {
        self.io
            .try_io(Interest::WRITABLE, || {
                self.calls.fetch_add(1, Ordering::Relaxed);
                #[cfg(test)]
                MOST_AT_ONCE.set(MOST_AT_ONCE.get().max(sizes(transmit).0));
                self.state.try_send((&self.io).into(), transmit)
            })
            .or_else(|error| self.judge(error, transmit))
    }

    /// Takes note of a failed send. Returns the error if it says to wait.
    fn judge(&self, error: io::Error, transmit: &Transmit<'_>) -> io::Result<()> {
        if error.kind() == ErrorKind::WouldBlock {
            return Err(error);
        }

        // Some drivers cannot split, which only a send shows.
        let refused = matches!(Errno::from_io_error(&error), Some(Errno::IO | Errno::INVAL));
        if refused && transmit.segment_size.is_some() && self.split.swap(1, Ordering::Relaxed) > 1 {
            tracing::debug!(%error, "the network device splits no packets; each is sent by itself");
        }
        // As good as sent: a lost packet is sent again.
        Ok(())
    }
}

thread_local! {
    /// Whether this thread runs a task's turn.
    static IN_TURN: Cell<bool> = const { Cell::new(false) };
}

#[cfg(test)]
thread_local! {
    /// Most packets that one system call of this thread has taken.
    pub(super) static MOST_AT_ONCE: Cell<usize> = const { Cell::new(0) };
}

/// Returns the number of packets, and the bytes of the largest.
fn sizes(transmit: &Transmit<'_>) -> (usize, usize) {
    let bytes = transmit.contents.len();
    transmit.segment_size.map_or((1, bytes), |size| (bytes.div_ceil(size), size))
}

/// Most packets that the kernel splits (`UDP_MAX_SEGMENTS` of Linux) and joins (`UDP_GRO_CNT_MAX`).
const MOST: usize = 64;

impl AsyncUdpSocket for Steady {
    fn create_io_poller(self: Arc<Self>) -> Pin<Box<dyn UdpPoller>> {
        Box::pin(Writable { socket: self, waiting: None })
    }

    fn try_send(&self, transmit: &Transmit<'_>) -> io::Result<()> {
        if IN_TURN.get() {
            self.gather(transmit)?;
        } else {
            self.send(transmit)?;
        }
        let (packets, bytes) = sizes(transmit);
        self.handed.fetch_add(packets, Ordering::Relaxed);
        self.largest.fetch_max(bytes, Ordering::Relaxed);
        Ok(())
    }

    fn poll_recv(
        &self,
        context: &mut Context<'_>,
        buffers: &mut [IoSliceMut<'_>],
        meta: &mut [RecvMeta],
    ) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.io.poll_recv_ready(context))?;
            match self.io.try_io(Interest::READABLE, || self.state.recv((&self.io).into(), buffers, meta)) {
                Err(error)
                    if matches!(error.kind(), ErrorKind::ConnectionRefused | ErrorKind::WouldBlock) => {}
                received => return Poll::Ready(received),
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.io.local_addr()
    }

    fn max_transmit_segments(&self) -> usize {
        // quinn gathers as many of the current size, and a call with more bytes than a packet can have fails.
        let fitting = MOST_BYTES / self.largest.load(Ordering::Relaxed).max(1);
        self.split.load(Ordering::Relaxed).min(fitting).max(1)
    }

    fn max_receive_segments(&self) -> usize {
        MOST
    }

    fn may_fragment(&self) -> bool {
        self.state.may_fragment()
    }
}

impl Drop for Steady {
    fn drop(&mut self) {
        let (packets, calls) = (self.handed(), self.calls.load(Ordering::Relaxed));
        tracing::debug!(packets, calls, "UDP packets sent");
    }
}

/// Waits until a socket takes packets again.
struct Writable {
    socket: Arc<Steady>,
    waiting: Option<Waiting>,
}

type Waiting = Pin<Box<dyn Future<Output = io::Result<()>> + Send + Sync>>;

impl UdpPoller for Writable {
    fn poll_writable(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let socket = Arc::clone(&self.socket);
        let waiting = self.waiting.get_or_insert_with(|| Box::pin(async move { socket.io.writable().await }));
        let writable = ready!(waiting.as_mut().poll(context));
        self.waiting = None;
        Poll::Ready(writable)
    }
}

impl fmt::Debug for Writable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Writable").field("socket", &self.socket).finish_non_exhaustive()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::{net::UdpSocket, task::Waker, time::Duration};

    use super::*;

    #[test]
    fn packets_outside_of_a_turn_go_at_once() {
        let far = UdpSocket::bind("127.0.0.1:0").unwrap();
        far.set_read_timeout(Some(Duration::from_secs(300))).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let _entered = runtime.enter();
        let near = Steady::new(UdpSocket::bind("127.0.0.1:0").unwrap()).unwrap();
        runtime.block_on(near.io.writable()).unwrap();
        let packet = |contents: &'static [u8]| Transmit {
            destination: far.local_addr().unwrap(),
            ecn: None,
            contents,
            segment_size: None,
            src_ip: None,
        };

        // One that waits for the end of a turn does not keep it.
        Steady::turn(|| near.try_send(&packet(b"in a turn"))).unwrap();
        near.try_send(&packet(b"outside")).unwrap();
        let mut received = [0; 100];
        let mut next = || far.recv(&mut received).map(|len| received[..len].to_vec()).unwrap();
        assert_eq!(next(), b"outside");
        near.flush(&mut Context::from_waker(Waker::noop()));
        assert_eq!(next(), b"in a turn");
    }
}
