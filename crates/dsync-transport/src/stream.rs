//! A link over a byte stream of the caller's own: a socket, a tunnel, a TLS session of a product.
//!
//! The lanes are those of the ssh pipe (`mux`). Nothing is opened besides: what the stream
//! carries and keeps secret is all that the session has. Streams that are no descriptors are copied
//! to and from a socket pair, which costs a copy at memory speed and two threads.

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

use crate::{
    mux::{MuxLink, Role},
    pipe,
    reactor::Reactor,
    waits::SHORTEST_IDLE,
};

/// The end of a stream that this is. The two ends of one stream must differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StreamEnd {
    /// The end that describes the run.
    Controller,
    /// The end that serves it.
    Server,
}

/// A reliable, ordered byte stream to the other end, which must be authenticated and encrypted
/// already if anybody else can reach it.
pub struct Stream(Form);

enum Form {
    Descriptors { input: OwnedFd, output: OwnedFd },
    Link(Arc<dyn Link>),
}

impl Stream {
    /// Takes a stream that is one descriptor, such as a socket.
    ///
    /// # Errors
    /// The system's error where the descriptor cannot be duplicated.
    pub fn from_socket(socket: impl Into<OwnedFd>) -> io::Result<Self> {
        let input = socket.into();
        let output = input.try_clone()?;
        Ok(Self::from_descriptors(input, output))
    }

    /// Takes the two descriptors of a stream: a pair of pipes, say. They are read and written
    /// without blocking while the link lives.
    pub fn from_descriptors(input: OwnedFd, output: OwnedFd) -> Self {
        Self(Form::Descriptors { input, output })
    }

    /// Takes the two halves of any stream. Each is used by a thread of its own, which ends with the
    /// half: `read` must return once the other end is gone.
    ///
    /// # Errors
    /// The system's error where no socket pair or thread can be made.
    pub fn new(
        mut reader: impl Read + Send + 'static,
        mut writer: impl Write + Send + 'static,
    ) -> io::Result<Self> {
        let (ours, theirs) = UnixStream::pair()?;
        let (mut from_peer, mut to_peer) = (ours.try_clone()?, ours);
        spawn("dsync-stream-in", move || {
            // However it ends, the link sees the end.
            let _ = io::copy(&mut reader, &mut from_peer);
            let _ = from_peer.shutdown(Shutdown::Write);
        })?;
        spawn("dsync-stream-out", move || {
            let _ = pump(&mut to_peer, &mut writer);
            let _ = to_peer.shutdown(Shutdown::Read);
        })?;
        Self::from_socket(theirs)
    }

    /// Takes an asynchronous stream, which a task on the runtime `handle` copies.
    ///
    /// # Errors
    /// The system's error where no socket pair can be made.
    #[cfg(feature = "tokio")]
    pub fn from_async<S>(mut stream: S, handle: &tokio::runtime::Handle) -> io::Result<Self>
    where
        S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
    {
        let (ours, theirs) = UnixStream::pair()?;
        ours.set_nonblocking(true)?;
        let _entered = handle.enter();
        let mut ours = tokio::net::UnixStream::from_std(ours)?;
        handle.spawn(async move {
            // The link sees an end, whatever the reason is.
            let _ = tokio::io::copy_bidirectional(&mut stream, &mut ours).await;
        });
        Self::from_socket(theirs)
    }

    /// Takes a carrier of the caller's own.
    pub fn from_link(link: Arc<dyn Link>) -> Self {
        Self(Form::Link(link))
    }

    /// Makes the link that a session runs over. The peer's data that waits for a reader is taken
    /// from `budget`; the link counts as lost after `idle_timeout` of silence, at least 3 s.
    ///
    /// # Errors
    /// The system's error: no thread, or a descriptor that cannot be waited for (a regular file).
    pub fn into_link(
        self,
        end: StreamEnd,
        idle_timeout: Duration,
        budget: Arc<Budget>,
    ) -> io::Result<Arc<dyn Link>> {
        let (input, output) = match self.0 {
            Form::Link(link) => return Ok(link),
            Form::Descriptors { input, output } => (input, output),
        };
        let reactor = Reactor::start()?;
        let opened = reactor.run(async move { pipe::open(input, output) });
        let (reader, writer) = opened.unwrap_or_else(|| Err(io::ErrorKind::Other.into()))?;
        let role = match end {
            StreamEnd::Controller => Role::Client,
            StreamEnd::Server => Role::Server,
        };
        let (seat, idle) = ((role, Carrier::Stream), idle_timeout.max(SHORTEST_IDLE));
        Ok(Arc::new(MuxLink::start(reactor, reader, writer, seat, idle, budget)))
    }
}

impl std::fmt::Debug for Stream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let form = match &self.0 {
            Form::Descriptors { .. } => "descriptors",
            Form::Link(_) => "link",
        };
        f.debug_tuple("Stream").field(&form).finish()
    }
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
const PUMP_BYTES: usize = 64 << 10;
