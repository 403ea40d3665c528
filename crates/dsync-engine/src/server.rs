//! The serving end of a run over a connection that exists already.

use std::{num::NonZeroU64, sync::Arc, time::Duration};

use dsync_transport::{Stream, StreamEnd, paced, shared_link};
use dsync_wire::budget::Budget;

use crate::{
    CancelToken, Grant, Observer, Resources, SyncError, Wording,
    callbacks::caught,
    check,
    endpoint::{Means, serve_link},
    grant::Start,
    observe::Guarded,
    source::ListedFiles,
};

/// Serves one session over a connection of the program's own: the other end of
/// [`Job::run_over`](crate::Job::run_over). The program that accepts connections has
/// authenticated the client by then, and says with a [`Grant`] what it may do.
///
/// No port is opened, no process is started, and no cage is entered: the process is the caller's.
///
/// ```
/// use std::{os::unix::net::UnixListener, time::Duration};
///
/// use dsync_engine::{Access, CancelToken, Grant, GrantTerms, Server, Silent, Stream};
///
/// # fn serve_one(listener: UnixListener, cancel: &CancelToken) -> Result<(), Box<dyn std::error::Error>> {
/// let (socket, _) = listener.accept()?;
/// // The client is known by now. It may add to its own directory, and reach nothing else.
/// let grant = Grant::open(GrantTerms::new("/srv/backups/agent-7".into(), Access::Append))?;
/// let server =
///     Server::new(Stream::from_socket(socket)?).grant(grant).timeout(Duration::from_secs(300));
/// server.serve(&Silent, cancel)?;
/// # Ok(())
/// # }
/// ```
pub struct Server {
    stream: Stream,
    grant: Option<Grant>,
    resources: Resources,
    timeout: Duration,
    bytes_per_second: Option<NonZeroU64>,
    wording: Wording,
}

impl Server {
    /// Describes a session with a client that may do whatever this process may.
    ///
    /// ```
    /// use std::{
    ///     io,
    ///     process::{Command, Stdio},
    /// };
    ///
    /// use dsync_engine::{Server, Stream};
    ///
    /// # fn ways(socket: std::os::unix::net::UnixStream) -> Result<(), Box<dyn std::error::Error>> {
    /// // A socket:
    /// let server = Server::new(Stream::from_socket(socket)?);
    /// // Two descriptors, as a service has them that another program starts for each client:
    /// let (input, output) = io::pipe()?;
    /// let server = Server::new(Stream::from_descriptors(input.into(), output.into()));
    /// // Any reader and writer, of a TLS session for instance:
    /// let mut tunnel =
    ///     Command::new("tunnel").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    /// let (reader, writer) =
    ///     (tunnel.stdout.take().ok_or("no output")?, tunnel.stdin.take().ok_or("no input")?);
    /// let server = Server::new(Stream::new(reader, writer)?);
    /// # drop(server);
    /// # Ok(())
    /// # }
    /// ```
    pub fn new(stream: Stream) -> Self {
        Self {
            stream,
            grant: None,
            resources: Resources::default(),
            timeout: Duration::from_secs(60),
            bytes_per_second: None,
            wording: Wording::default(),
        }
    }

    /// Sets what the client may do, and the directory where all of its paths start and end.
    #[must_use]
    pub fn grant(mut self, grant: Grant) -> Self {
        self.grant = Some(grant);
        self
    }

    /// Sets what the session may take of this machine; the client has no say in it.
    #[must_use]
    pub fn resources(mut self, resources: Resources) -> Self {
        self.resources = resources;
        self
    }

    /// Sets the longest silence of the client. Default 60 s, at least 3 s.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Limits the bytes per second that this end sends. Default: no limit.
    #[must_use]
    pub fn bytes_per_second(mut self, rate: NonZeroU64) -> Self {
        self.bytes_per_second = Some(rate);
        self
    }

    /// Sets the words in which the client is told why a session ends.
    #[must_use]
    pub fn wording(mut self, wording: Wording) -> Self {
        self.wording = wording;
        self
    }

    /// Serves until the session is over, on the calling thread and the engine's own.
    ///
    /// The observer hears the progress of a session that writes here, and of its entries what the
    /// client has asked to hear ([`SyncOptions::events`](crate::SyncOptions::events),
    /// [`event_done`](crate::SyncOptions::event_done)): both hear the same. A service that needs the
    /// receipts whatever a client asks for refuses the others by [`OptionRules`](crate::grant::OptionRules),
    /// which see the client's options. Of a session that only reads here it hears nothing. A panic in it,
    /// or in a rule of the grant, ends the session with [`SyncError::Aborted`].
    ///
    /// # Errors
    /// [`SyncError`]; the client has been told, where it could be. [`SyncError::InvalidOption`] before
    /// anything is read from the stream.
    pub fn serve(self, observer: &dyn Observer, cancel: &CancelToken) -> Result<(), SyncError> {
        check::resources(&self.resources)?;
        check::patience(self.timeout)?;
        let guarded = Guarded::new(observer, cancel);
        let outcome = caught(|| self.serve_guarded(&guarded));
        guarded.verdict(outcome)
    }

    fn serve_guarded(self, observer: &Guarded<'_>) -> Result<(), SyncError> {
        let (budget, carriers) = (Budget::new(self.resources.max_alloc), self.resources.workers.carriers());
        let link = shared_link(self.stream, carriers, StreamEnd::Server, self.timeout, Arc::clone(&budget))
            .map_err(SyncError::of_stream)?;
        let link = paced(link, self.bytes_per_second);
        let means = Means::new(self.resources.allowance(budget), self.resources.spool_home());
        let (start, listener) =
            (Start::of(self.grant, self.resources.home.clone()), Some(observer as &dyn Observer));
        let states = self.resources.states.clone();
        let means = Means { start, wording: self.wording, listener, states, ..means };
        serve_link(link, self.timeout, observer.cancel(), ListedFiles::default(), means)
    }
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server").field("stream", &self.stream).finish_non_exhaustive()
    }
}
