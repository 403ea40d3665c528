//! Streams of bytes: descriptors, and what is copied to and from one.

use std::{
    io::{self, Read, Write},
    net::Shutdown,
    os::{fd::OwnedFd, unix::net::UnixStream},
    sync::Arc,
    thread,
    time::Duration,
};

use dsync_wire::{
    budget::Budget,
    link::{Carrier, Link},
};

#[cfg(feature = "tokio")]
use super::asynchronous;
use super::{Form, Stream, StreamEnd};
use crate::{
    mux::{MuxLink, Role, Seat},
    pipe,
    reactor::Carriers,
    waits::SHORTEST_IDLE,
};

impl Stream {
    /// Takes a stream that is one descriptor, such as a socket. It stays in non-blocking mode after the session:
    /// a program that kept a clone sets the mode that it wants.
    ///
    /// # Errors
    /// The system's error where the descriptor cannot be duplicated.
    pub fn from_socket(socket: impl Into<OwnedFd>) -> io::Result<Self> {
        let input = socket.into();
        let output = input.try_clone()?;
        Ok(Self::from_descriptors(input, output))
    }

    /// Takes the two descriptors of a stream: a pair of pipes, say. They are read and written
    /// without blocking while the link lives, and get their modes back then. Two descriptors of one open file, as of a
    /// socket, share one mode and stay without blocking.
    pub fn from_descriptors(input: OwnedFd, output: OwnedFd) -> Self {
        Self(Form::Descriptors { input, output })
    }

    /// Takes the two halves of any stream. Each is used by a thread of its own, which ends with the
    /// half: `read` must return once the other end is gone, or this one's writer.
    ///
    /// The writer is dropped when the session has ended, and the end has to be seen then. A clone of a socket does not
    /// show it, as the other clone keeps the socket open: where both ends are made of clones, each reader waits for the
    /// other, and each session leaves two threads and their descriptors behind for ever. A socket is for
    /// [`from_socket`](Self::from_socket). Where something has to be between (encryption, a count), the writer
    /// shuts the socket down when it is dropped.
    ///
    /// # Errors
    /// The system's error where no socket pair or thread can be made.
    ///
    /// ```
    /// use std::{
    ///     io::{self, Write},
    ///     net::{Shutdown, TcpStream},
    /// };
    ///
    /// use dsync_transport::Stream;
    ///
    /// /// A socket's writing half, which ends the reading one with it.
    /// struct Outward(TcpStream);
    ///
    /// impl Write for Outward {
    ///     fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
    ///         self.0.write(bytes)
    ///     }
    ///
    ///     fn flush(&mut self) -> io::Result<()> {
    ///         self.0.flush()
    ///     }
    /// }
    ///
    /// impl Drop for Outward {
    ///     fn drop(&mut self) {
    ///         let _ = self.0.shutdown(Shutdown::Both);
    ///     }
    /// }
    ///
    /// fn over(socket: TcpStream) -> io::Result<Stream> {
    ///     Stream::new(socket.try_clone()?, Outward(socket))
    /// }
    /// # let _ = over;
    /// ```
    pub fn new(
        mut reader: impl Read + Send + 'static,
        mut writer: impl Write + Send + 'static,
    ) -> io::Result<Self> {
        let (ours, theirs) = UnixStream::pair()?;
        let (from_peer, to_peer) = (ours.try_clone()?, ours);
        spawn("dsync-stream-in", move || {
            let half = Half { socket: from_peer, way: Shutdown::Write };
            let _ = io::copy(&mut reader, &mut &half.socket);
        })?;
        spawn("dsync-stream-out", move || {
            let half = Half { socket: to_peer, way: Shutdown::Read };
            let _ = pump(&mut &half.socket, &mut writer);
        })?;
        Self::from_socket(theirs)
    }

    /// Takes an asynchronous stream, which a task on the runtime `handle` copies. The task must be able
    /// to run as long as the session: a runtime that ends breaks the connection, and one of a single thread
    /// that waits in [`Job::run`](https://docs.rs/dsync-engine) or `Server::serve` makes the session time
    /// out. `Job::start`, whose handle is awaited, leaves that thread free. The runtime needs its drivers of
    /// I/O and of time (`enable_all`).
    ///
    /// The stream is dropped when the session has ended and what it wrote is flushed, at most 3 s later, also
    /// under a peer that stays connected.
    ///
    /// # Errors
    /// The system's error where no socket pair can be made.
    ///
    /// ```
    /// use dsync_transport::Stream;
    /// use tokio::{net::TcpListener, runtime::Handle};
    ///
    /// async fn accepted(listener: &TcpListener) -> std::io::Result<Stream> {
    ///     let (socket, _) = listener.accept().await?;
    ///     // Of a product: a TLS handshake here. The stream may be anything that tokio reads and writes.
    ///     Stream::from_async(socket, &Handle::current())
    /// }
    /// # let _ = accepted;
    /// ```
    #[cfg(feature = "tokio")]
    pub fn from_async<S>(stream: S, handle: &tokio::runtime::Handle) -> io::Result<Self>
    where
        S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
    {
        let (ours, theirs) = UnixStream::pair()?;
        ours.set_nonblocking(true)?;
        let _entered = handle.enter();
        // The link sees an end, whatever the reason is.
        handle.spawn(asynchronous::copy(stream, tokio::net::UnixStream::from_std(ours)?));
        Self::from_socket(theirs)
    }
}

/// One direction of a stream that is copied. However the copying ends, by a panic of the caller's reader
/// or writer as well, the link sees the end.
struct Half {
    socket: UnixStream,
    way: Shutdown,
}

impl Drop for Half {
    fn drop(&mut self) {
        let _ = self.socket.shutdown(self.way);
    }
}

/// Makes the lanes over two descriptors.
pub(super) fn link(
    carriers: &Carriers,
    (input, output): (OwnedFd, OwnedFd),
    end: StreamEnd,
    idle_timeout: Duration,
    budget: Arc<Budget>,
) -> io::Result<Arc<dyn Link>> {
    let reactor = carriers.share()?;
    let opened = reactor.run(async move { pipe::open(input, output) });
    let (reader, writer) = opened.unwrap_or_else(|| Err(io::ErrorKind::Other.into()))?;
    let role = match end {
        StreamEnd::Controller => Role::Client,
        StreamEnd::Server => Role::Server,
    };
    let seat = Seat { role, carrier: Carrier::Stream, is_near: false };
    let idle = idle_timeout.max(SHORTEST_IDLE);
    Ok(Arc::new(MuxLink::start(reactor, reader, writer, seat, idle, budget, None)))
}

fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    thread::Builder::new().name(name.into()).spawn(work).map(drop)
}

/// Copies and flushes what was copied, since the other end may wait for it.
fn pump(from: &mut impl Read, to: &mut impl Write) -> io::Result<()> {
    let mut buffer = vec![0; PUMP_BYTES];
    loop {
        let read = match from.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        to.write_all(&buffer[..read])?;
        to.flush()?;
    }
}

/// Bytes that are copied at a time: a frame of the mux.
pub(super) const PUMP_BYTES: usize = 64 << 10;
