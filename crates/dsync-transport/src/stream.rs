//! A link over a byte stream of the caller's own: a socket, a tunnel, a TLS session of a product.
//!
//! The lanes are those of the ssh pipe (`mux`). Nothing is opened besides: what the stream
//! carries and keeps secret is all that the session has. Streams that are no descriptors are copied
//! to and from a socket pair, which costs a copy at memory speed and two threads.

#[cfg(feature = "tokio")]
mod asynchronous;
#[cfg(feature = "stream")]
mod bytes;

#[cfg(feature = "stream")]
use std::os::fd::OwnedFd;
use std::{io, sync::Arc, time::Duration};

use dsync_wire::{budget::Budget, link::Link};

use crate::Carriers;

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
///
/// ```
/// use std::os::unix::net::UnixStream;
///
/// use dsync_transport::Stream;
///
/// // A service on the same machine; over a network it would be a TLS session.
/// let (ours, theirs) = UnixStream::pair()?;
/// let (client, server) = (Stream::from_socket(ours)?, Stream::from_socket(theirs)?);
/// # drop((client, server));
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct Stream(Form);

enum Form {
    #[cfg(feature = "stream")]
    Descriptors {
        input: OwnedFd,
        output: OwnedFd,
    },
    Link(Arc<dyn Link>),
}

impl Stream {
    /// Takes a carrier of the caller's own.
    pub fn from_link(link: Arc<dyn Link>) -> Self {
        Self(Form::Link(link))
    }

    /// Makes the link that a session runs over, on a thread of its own. The peer's data that waits for a reader is taken
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
        shared_link(self, &Carriers::default(), end, idle_timeout, budget)
    }
}

/// Makes the link of a stream as [`Stream::into_link`] does, on threads that it shares with other links.
///
/// # Errors
/// As [`Stream::into_link`].
#[cfg_attr(
    not(feature = "stream"),
    expect(
        unused_variables,
        clippy::needless_pass_by_value,
        reason = "a link of the caller's keeps to terms of its own"
    )
)]
pub fn shared_link(
    stream: Stream,
    carriers: &Carriers,
    end: StreamEnd,
    idle_timeout: Duration,
    budget: Arc<Budget>,
) -> io::Result<Arc<dyn Link>> {
    match stream.0 {
        Form::Link(link) => Ok(link),
        #[cfg(feature = "stream")]
        Form::Descriptors { input, output } => {
            bytes::link(carriers, (input, output), end, idle_timeout, budget)
        }
    }
}

impl std::fmt::Debug for Stream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let form = match &self.0 {
            #[cfg(feature = "stream")]
            Form::Descriptors { .. } => "descriptors",
            Form::Link(_) => "link",
        };
        f.debug_tuple("Stream").field(&form).finish()
    }
}
