//! Connection setup and admission over TCP.
//!
//! The server [`Offer`]s a port. The client [`probe`]s every address it knows of and takes the
//! first one that connects, which also measures the round trip. On the first connection it shows
//! the run's token. The server accepts that once, and answers with a secret of its own that every
//! further connection must show. So a connection is admitted only with the pinned key *and* from
//! the very process that was admitted first. Whatever ssh carried is worthless to a second client,
//! and nobody is admitted after the link is over.
//!
//! ```text
//! client, first on every connection:   kind: u8 (0 main, 1 lane of the client, 2 lane of the server)
//!                                      1 on a short path, else 0: u8
//!                                      number of the lane: u32 LE (0 on the main connection)
//!                                      32 bytes: the token on the main connection, else the link's secret
//! server, on the main connection only: the link's secret: 32 bytes
//! ```

use std::{
    io,
    net::{IpAddr, Shutdown, SocketAddr, TcpStream},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use dsync_wire::{
    bootstrap::{Fingerprint, PortRange, Token},
    link::{CloseReason, LinkError},
};
use rustix::net::sockopt;
use tokio::{
    net::TcpListener,
    sync::{OwnedSemaphorePermit, Semaphore},
    task::AbortHandle,
    time::sleep,
};

use super::{
    Established,
    registry::{Arrival, Line, Registry, link_error},
    signal::{Main, Signal, listen},
    silence::keep_alive,
    stream::{Opener, Sealer, Stream, StreamError},
};
use crate::{
    crowd::Crowd,
    identity::Identity,
    ports,
    race::{Addresses, DialError, race},
    reactor::{on_thread, spawn},
    waits::NEAR,
};

/// A TCP port that accepts one client, and that client's lanes.
pub(crate) struct Offer {
    server: Arc<Server>,
    port: u16,
    /// Stops listening. Gone once there is a link, with which it ends.
    listening: Option<AbortHandle>,
}

/// The serving side.
struct Server {
    config: Arc<rustls::ServerConfig>,
    token: Token,
    secret: Token,
    idle_timeout: Duration,
    /// Whether the token was shown.
    used: AtomicBool,
    /// Connections that have not yet shown their secret.
    crowd: Mutex<Crowd<Arc<TcpStream>>>,
    registry: Arc<Registry>,
}

impl Offer {
    /// Opens a port for the client with the key `client` and the token `token`. Must be called on
    /// the runtime's thread. It is served until the link is over; without a client, until `window`
    /// is over.
    pub(crate) fn open(
        identity: &Identity,
        (client, token): (Fingerprint, Token),
        range: Option<PortRange>,
        client_address: Option<IpAddr>,
        idle_timeout: Duration,
        window: Duration,
    ) -> io::Result<Self> {
        let config = Arc::new(identity.server_config(client).map_err(io::Error::other)?);
        let listener = ports::tcp_listener(range)?;
        let port = listener.local_addr()?.port();
        let listener = TcpListener::from_std(listener)?;
        let server = Arc::new(Server {
            config,
            token,
            secret: fresh_secret()?,
            idle_timeout,
            used: AtomicBool::new(false),
            crowd: Mutex::new(Crowd::new(MAX_HANDSHAKES, client_address)),
            registry: Registry::new(),
        });

        let serving = Arc::clone(&server);
        let listening = spawn(async move {
            tokio::select! {
                () = serve(&serving, &listener) => {}
                () = expire(&serving, window) => {}
            }
        })?;

        Ok(Self { server, port, listening: Some(listening) })
    }

    /// Returns the port.
    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Returns the client's link, if there is one.
    pub(crate) fn take(mut self) -> Option<Established> {
        let registry = Arc::clone(&self.server.registry);
        registry.main()?;
        self.listening = None;
        Some(Established { registry, caller: None })
    }
}

impl Drop for Offer {
    fn drop(&mut self) {
        if let Some(listening) = &self.listening {
            listening.abort();
            self.server.registry.end(LinkError::Closed, Some(CloseReason::Failed));
        }
    }
}

/// Resolves after `window` unless the client has connected by then.
async fn expire(server: &Server, window: Duration) {
    sleep(window).await;
    if server.used.load(Ordering::Acquire) {
        std::future::pending::<()>().await;
    }
}

/// Accepts connections.
async fn serve(server: &Arc<Server>, listener: &TcpListener) {
    let threads = Arc::new(Semaphore::new(MAX_HANDSHAKES));
    loop {
        let Ok((tcp, address)) = listener.accept().await else {
            // Most likely out of descriptors.
            sleep(ACCEPT_PAUSE).await;
            continue;
        };
        let tcp = tcp.into_std().and_then(|tcp| tcp.set_nonblocking(false).map(|()| tcp));
        let Ok(waiting) = tcp.and_then(|tcp| Waiting::begin(server, tcp, address.ip())) else {
            sleep(ACCEPT_PAUSE).await;
            continue;
        };

        // Wait while the maximum of threads is busy. An evicted connection's thread ends at once.
        let Ok(permit) = Arc::clone(&threads).acquire_owned().await else { return };
        let admission = thread::Builder::new().name("dsync-tls".into()).spawn(move || {
            if let Err(error) = admit(waiting, permit) {
                tracing::debug!(%address, ?error, "TCP connection refused");
            }
        });

        if admission.is_err() {
            sleep(ACCEPT_PAUSE).await;
        }
    }
}

/// A connection that has a place in the crowd.
struct Waiting {
    server: Arc<Server>,
    tcp: TcpStream,
    /// The same socket, for whoever ends its wait.
    place: Arc<TcpStream>,
}

impl Waiting {
    fn begin(server: &Arc<Server>, tcp: TcpStream, address: IpAddr) -> io::Result<Self> {
        let place = Arc::new(tcp.try_clone()?);
        if let Some(evicted) = server.crowd().admit(address, Arc::clone(&place)) {
            // This wakes its thread; it fails only if that has already ended.
            let _ = evicted.shutdown(Shutdown::Both);
        }
        Ok(Self { server: Arc::clone(server), tcp, place })
    }

    /// Leaves the crowd; returns `false` if the place had been taken.
    fn end(server: &Server, place: &Arc<TcpStream>) -> bool {
        server.crowd().leave(|member| Arc::ptr_eq(member, place))
    }
}

impl Server {
    fn crowd(&self) -> MutexGuard<'_, Crowd<Arc<TcpStream>>> {
        self.crowd.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The reason why a connection is not admitted.
#[derive(Debug)]
enum Refused {
    Broken(#[allow(dead_code, reason = "shown by Debug")] StreamError),
    /// Others arrived before it had shown anything.
    Evicted,
    Secret,
    Number,
    Used,
}

impl From<StreamError> for Refused {
    fn from(error: StreamError) -> Self {
        Self::Broken(error)
    }
}

impl From<io::Error> for Refused {
    fn from(error: io::Error) -> Self {
        Self::Broken(error.into())
    }
}

/// Handles one connection, from its handshake to its end or until it is a lane.
fn admit(waiting: Waiting, permit: OwnedSemaphorePermit) -> Result<(), Refused> {
    let Waiting { server, tcp, place } = waiting;
    let opened = open(&server, tcp);
    let was_there = Waiting::end(&server, &place);
    drop((place, permit));
    let (stream, opener, opening) = opened?;
    if !was_there {
        return Err(Refused::Evicted);
    }
    let (kind, near, id, secret) = parse_opening(&opening);
    if near {
        prefer_short_path(&stream);
    }

    let registry = &server.registry;
    // The comparisons take the same time wherever the values differ.
    match kind {
        MAIN if secret == server.token => {
            if server.used.swap(true, Ordering::AcqRel) {
                return Err(Refused::Used);
            }
            if let Ok(client) = stream.socket().peer_addr() {
                server.crowd().recognise(client.ip());
            }
            // Set it before answering the client, whose message over ssh may overtake this thread.
            if let Some(main) = registry.set_main(Main::new(stream, near)) {
                main.write(&server.secret.0)?;
                listen(registry, opener, server.idle_timeout, &|| {});
            }
        }
        OURS if secret == server.secret => {
            keep_alive(stream.socket(), server.idle_timeout)?;
            let line = Line::new(id, stream, false);
            if !registry.add(&line) {
                return Err(Refused::Number);
            }
            registry.announce(line, opener);
        }
        THEIRS if secret == server.secret => {
            keep_alive(stream.socket(), server.idle_timeout)?;
            if !registry.supply(&Line::new(id, stream, true), opener) {
                return Err(Refused::Number);
            }
        }

        _ => return Err(Refused::Secret),
    }
    Ok(())
}

/// Performs the handshake and reads the opening of a connection.
fn open(server: &Server, tcp: TcpStream) -> Result<(Stream, Opener, [u8; OPENING]), StreamError> {
    let end = Instant::now() + HANDSHAKE_TIME;
    let (stream, mut opener) = Stream::server(tcp, Arc::clone(&server.config), HANDSHAKE_TIME)?;
    let mut opening = [0; OPENING];
    read_exactly(&stream, &mut opener, &mut opening, end)?;
    stream.set_read_timeout(None)?;
    Ok((stream, opener, opening))
}

/// Fills `buf` from the stream before `end`.
pub(crate) fn read_exactly(
    stream: &Stream,
    opener: &mut Opener,
    buf: &mut [u8],
    end: Instant,
) -> Result<(), StreamError> {
    let mut filled = 0;
    while filled < buf.len() {
        match opener.read_by(stream, &mut buf[filled..], end)? {
            0 => return Err(StreamError::Truncated),
            count => filled += count,
        }
    }
    Ok(())
}

pub(crate) fn opening(kind: u8, near: bool, id: u32, secret: &Token) -> [u8; OPENING] {
    let mut bytes = [0; OPENING];
    bytes[0] = kind;
    bytes[1] = u8::from(near);
    bytes[2..6].copy_from_slice(&id.to_le_bytes());
    bytes[6..].copy_from_slice(&secret.0);
    bytes
}

pub(crate) fn parse_opening(bytes: &[u8; OPENING]) -> (u8, bool, u32, Token) {
    let [kind, near, a, b, c, d, secret @ ..] = *bytes;
    (kind, near != 0, u32::from_le_bytes([a, b, c, d]), Token(secret))
}

/// Chooses a congestion control that does not pace what a short path takes at once. Ignores a
/// refusal.
pub(crate) fn prefer_short_path(stream: &Stream) {
    let _ = sockopt::set_tcp_congestion(stream.socket(), "cubic");
}

pub(crate) fn fresh_secret() -> io::Result<Token> {
    let mut secret = Token([0; 32]);
    getrandom::fill(&mut secret.0)?;
    Ok(secret)
}

/// A connection on which nothing has been sent.
pub(crate) struct Probe {
    tcp: TcpStream,
    address: SocketAddr,
    /// Time that the peer's system took to answer.
    pub(crate) round_trip: Duration,
}

/// Connects to the first address that answers.
pub(crate) async fn probe<L>(addresses: Addresses<L>, wait: Duration) -> Result<Probe, DialError>
where
    L: Future<Output = Vec<SocketAddr>>,
{
    race(addresses, wait, |address| async move {
        on_thread(move || connect(address, wait)).await.map_err(DialError::system)?.map_err(|error| {
            match error.kind() {
                io::ErrorKind::TimedOut | io::ErrorKind::ConnectionRefused => DialError::NoAnswer,
                _ => DialError::Unreachable(Some(error)),
            }
        })
    })
    .await
}

/// Connects and measures the time around the one system call, on a thread of its own: on a busy
/// machine a task of the runtime would also count its wait for the processor.
fn connect(address: SocketAddr, wait: Duration) -> io::Result<Probe> {
    let mut probe = connect_once(address, wait)?;
    if (NEAR..UNSURE).contains(&probe.round_trip) {
        // Either a near peer, or this thread lost the processor for a moment.
        probe.round_trip = probe.round_trip.min(connect_once(address, wait)?.round_trip);
    }
    Ok(probe)
}

fn connect_once(address: SocketAddr, wait: Duration) -> io::Result<Probe> {
    let begun = Instant::now();
    let tcp = TcpStream::connect_timeout(&address, wait)?;
    Ok(Probe { tcp, address, round_trip: begun.elapsed() })
}

impl Probe {
    /// Returns the address that answered.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns whether the path is so short that TCP beats QUIC.
    pub(crate) fn is_near(&self) -> bool {
        self.round_trip < NEAR
    }
}

/// The client's proof of identity.
pub(crate) struct Credentials {
    pub(crate) identity: Identity,
    pub(crate) server: Fingerprint,
    pub(crate) token: Token,
    pub(crate) idle_timeout: Duration,
}

/// Turns a probe into the main connection, within `wait`. Blocks.
pub(crate) fn dial(
    probe: Probe,
    credentials: &Credentials,
    wait: Duration,
) -> Result<Established, DialError> {
    let (config, mismatch) =
        credentials.identity.client_config(credentials.server).map_err(DialError::system)?;
    let config = Arc::new(config);
    let near = probe.is_near();
    let Probe { tcp, address, .. } = probe;
    let failed = |error| match error {
        _ if mismatch.load(Ordering::Relaxed) => DialError::WrongKey(address),
        StreamError::Io(error) if error.kind() == io::ErrorKind::TimedOut => DialError::NoAnswer,
        StreamError::Io(error) if error.kind() == io::ErrorKind::WouldBlock => DialError::NoAnswer,
        error => DialError::Refused(link_error(error)),
    };
    let (stream, mut opener) = Stream::client(tcp, Arc::clone(&config), wait).map_err(failed)?;
    let main = Main::new(stream, near);

    main.write(&opening(MAIN, near, 0, &credentials.token)).map_err(failed)?;
    let mut secret = Token([0; 32]);
    read_exactly(main.stream(), &mut opener, &mut secret.0, Instant::now() + wait).map_err(failed)?;
    let registry = Registry::new();

    registry.set_main(main);
    let idle_timeout = credentials.idle_timeout;
    let caller = Arc::new(Caller { config, address, secret, near, idle_timeout });
    let (listening, dialing) = (Arc::clone(&registry), Arc::clone(&caller));
    thread::Builder::new()
        .name("dsync-tls".into())
        .spawn(move || listen(&listening, opener, idle_timeout, &|| dialing.call_for_peer(&listening)))
        .map_err(|error| DialError::Unreachable(Some(error)))?;
    Ok(Established { registry, caller: Some(caller) })
}

/// The client's means to make further connections.
pub(crate) struct Caller {
    config: Arc<rustls::ClientConfig>,
    address: SocketAddr,
    secret: Token,
    near: bool,
    idle_timeout: Duration,
}

impl Caller {
    /// Makes a connection for a lane of this end.
    pub(super) fn open(&self, registry: &Registry, id: u32) -> Result<Arrival, LinkError> {
        let (line, opener) = self.call(OURS, id, true).map_err(link_error)?;
        if registry.add(&line) {
            return Ok((line, opener));
        }
        registry.check()?;
        Err(LinkError::Closed)
    }

    /// Makes a connection that the server asked for, on a thread of its own.
    fn call_for_peer(self: &Arc<Self>, registry: &Arc<Registry>) {
        let (caller, for_peer) = (Arc::clone(self), Arc::clone(registry));
        let called = registry.number_for_peer().map(|id| {
            thread::Builder::new().name("dsync-tls".into()).spawn(move || {
                match caller.call(THEIRS, id, false) {
                    Ok((line, opener)) if for_peer.add(&line) => for_peer.announce(line, opener),
                    outcome => {
                        let error = outcome.err();
                        tracing::debug!(?error, "no connection for the server");
                        for_peer.signal(Signal::NoLine);
                    }
                }
            })
        });
        if !matches!(called, Some(Ok(_))) {
            registry.signal(Signal::NoLine);
        }
    }

    fn call(&self, kind: u8, id: u32, local: bool) -> Result<Arrival, StreamError> {
        let tcp = TcpStream::connect_timeout(&self.address, DIAL_TIME)?;
        let (stream, opener) = Stream::client(tcp, Arc::clone(&self.config), DIAL_TIME)?;
        if self.near {
            prefer_short_path(&stream);
        }
        keep_alive(stream.socket(), self.idle_timeout)?;
        Sealer::default().write(&stream, &opening(kind, self.near, id, &self.secret))?;
        stream.set_read_timeout(None)?;
        Ok((Line::new(id, stream, local), opener))
    }
}

#[cfg(test)]
impl Established {
    /// Returns the secret that further connections must show.
    pub(super) fn secret(&self) -> Option<Token> {
        self.caller.as_ref().map(|caller| caller.secret.clone())
    }
}

/// Kinds of connections: the main one, one for a lane that the client opens, one for a lane of the
/// server.
const MAIN: u8 = 0;
pub(crate) const OURS: u8 = 1;
pub(crate) const THEIRS: u8 = 2;
/// Length of a connection's opening in bytes.
pub(crate) const OPENING: usize = 38;
/// A round trip up to this may be a short one, measured on a busy machine.
const UNSURE: Duration = Duration::from_millis(20);
/// Handshakes that the server processes at a time.
const MAX_HANDSHAKES: usize = 16;
/// Time for a connection to show its secret.
pub(crate) const HANDSHAKE_TIME: Duration = Duration::from_secs(5);
/// Time for connecting a further lane: the port was open a moment ago.
pub(crate) const DIAL_TIME: Duration = Duration::from_secs(20);
/// Pause after a connection could not be accepted.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
