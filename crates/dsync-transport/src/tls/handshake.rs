//! How the two ends find each other over TCP, and who is let in.
//!
//! The server [`Offer`]s a port; the client [`probe`]s every address it knows of and takes the first that
//! connects, which also tells the round trip. On the first connection it shows the run's token; the server takes
//! that once, and answers with a secret of its own that every further connection has to show. So a connection is
//! let in only with the pinned key *and* by the very process that was let in first: what ssh carried is worth
//! nothing to a second client, and nobody is let in any more when the link is over.
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
    stream::{Opener, Sealer, Stream, StreamError},
};
use crate::{
    crowd::Crowd,
    identity::Identity,
    ports,
    race::{Addresses, DialError, race},
    reach::NEAR,
};

/// A TCP port that takes one client, and that client's lanes.
pub(crate) struct Offer {
    server: Arc<Server>,
    port: u16,
    /// Stops the listening; gone once there is a link, with which it ends.
    listening: Option<AbortHandle>,
}

/// The serving side.
struct Server {
    config: Arc<rustls::ServerConfig>,
    token: Token,
    secret: Token,
    idle_timeout: Duration,
    /// The token was shown.
    used: AtomicBool,
    /// Connections that have not shown yet what they must.
    crowd: Mutex<Crowd<Arc<TcpStream>>>,
    registry: Arc<Registry>,
}

impl Offer {
    /// Opens a port for the client with the key `client` and the token `token`. Must be called on the runtime's
    /// thread. It is served until the link is over; without a client until `window` is over.
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
        let listening = tokio::spawn(async move {
            tokio::select! {
                () = serve(&serving, &listener) => {}
                () = expire(&serving, window) => {}
            }
        });
        Ok(Self { server, port, listening: Some(listening.abort_handle()) })
    }

    /// The port.
    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// The client's link, if it came.
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

/// Resolves after `window` unless the client has come by then.
async fn expire(server: &Server, window: Duration) {
    sleep(window).await;
    if server.used.load(Ordering::Acquire) {
        std::future::pending::<()>().await;
    }
}

/// Takes connections.
async fn serve(server: &Arc<Server>, listener: &TcpListener) {
    let threads = Arc::new(Semaphore::new(MAX_HANDSHAKES));
    loop {
        let Ok((tcp, address)) = listener.accept().await else {
            // Out of descriptors, most likely.
            sleep(ACCEPT_PAUSE).await;
            continue;
        };
        let tcp = tcp.into_std().and_then(|tcp| tcp.set_nonblocking(false).map(|()| tcp));
        let Ok(waiting) = tcp.and_then(|tcp| Waiting::begin(server, tcp, address.ip())) else {
            sleep(ACCEPT_PAUSE).await;
            continue;
        };
        // Waits while as many as allowed are at it; where another had to go, its thread ends at once.
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
    /// The same, for whoever ends its wait.
    place: Arc<TcpStream>,
}

impl Waiting {
    fn begin(server: &Arc<Server>, tcp: TcpStream, address: IpAddr) -> io::Result<Self> {
        let place = Arc::new(tcp.try_clone()?);
        if let Some(evicted) = server.crowd().admit(address, Arc::clone(&place)) {
            // Its thread wakes up; fails only where it has ended already.
            let _ = evicted.shutdown(Shutdown::Both);
        }
        Ok(Self { server: Arc::clone(server), tcp, place })
    }

    /// Gives the place back; false when it was another's already.
    fn end(server: &Server, place: &Arc<TcpStream>) -> bool {
        server.crowd().leave(|member| Arc::ptr_eq(member, place))
    }
}

impl Server {
    fn crowd(&self) -> MutexGuard<'_, Crowd<Arc<TcpStream>>> {
        self.crowd.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Why a connection is not let in.
#[derive(Debug)]
enum Refused {
    Broken(#[allow(dead_code, reason = "shown by Debug")] StreamError),
    /// Others came while it had shown nothing.
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

/// One connection, from its handshake to its end or to where it is a lane.
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
            // Set before the client is answered: what it says over ssh may be faster than this goes on.
            if let Some(main) = registry.set_main(Main::new(stream, near)) {
                main.write(&server.secret.0)?;
                listen(registry, opener, server.idle_timeout, &|| {});
            }
        }
        OURS if secret == server.secret => {
            let line = Line::new(id, stream, false);
            if !registry.add(&line) {
                return Err(Refused::Number);
            }
            registry.announce(line, opener);
        }
        THEIRS if secret == server.secret => {
            if !registry.supply(&Line::new(id, stream, true), opener) {
                return Err(Refused::Number);
            }
        }
        _ => return Err(Refused::Secret),
    }
    Ok(())
}

/// Shakes hands and reads what every connection begins with.
fn open(server: &Server, tcp: TcpStream) -> Result<(Stream, Opener, [u8; OPENING]), StreamError> {
    let end = Instant::now() + HANDSHAKE_TIME;
    let (stream, mut opener) = Stream::server(tcp, Arc::clone(&server.config), HANDSHAKE_TIME)?;
    let mut opening = [0; OPENING];
    read_exactly(&stream, &mut opener, &mut opening, end)?;
    stream.set_read_timeout(None)?;
    Ok((stream, opener, opening))
}

fn read_exactly(
    stream: &Stream,
    opener: &mut Opener,
    buf: &mut [u8],
    end: Instant,
) -> Result<(), StreamError> {
    let mut filled = 0;
    while filled < buf.len() {
        stream.read_until(end)?;
        match opener.read(stream, &mut buf[filled..])? {
            0 => return Err(StreamError::Truncated),
            count => filled += count,
        }
    }
    Ok(())
}

fn opening(kind: u8, near: bool, id: u32, secret: &Token) -> [u8; OPENING] {
    let mut bytes = [0; OPENING];
    bytes[0] = kind;
    bytes[1] = u8::from(near);
    bytes[2..6].copy_from_slice(&id.to_le_bytes());
    bytes[6..].copy_from_slice(&secret.0);
    bytes
}

fn parse_opening(bytes: &[u8; OPENING]) -> (u8, bool, u32, Token) {
    let [kind, near, a, b, c, d, secret @ ..] = *bytes;
    (kind, near != 0, u32::from_le_bytes([a, b, c, d]), Token(secret))
}

/// Leaves a congestion control that paces what a short path takes at once. Where none may be chosen, so be it.
fn prefer_short_path(stream: &Stream) {
    let _ = sockopt::set_tcp_congestion(stream.socket(), "cubic");
}

fn fresh_secret() -> io::Result<Token> {
    let mut secret = Token([0; 32]);
    getrandom::fill(&mut secret.0)?;
    Ok(secret)
}

/// A connection over which nothing was said yet.
pub(crate) struct Probe {
    tcp: TcpStream,
    address: SocketAddr,
    /// How long the peer's system took to answer.
    pub(crate) round_trip: Duration,
}

/// Connects to the first address that answers.
pub(crate) async fn probe<L>(addresses: Addresses<L>, wait: Duration) -> Result<Probe, DialError>
where
    L: Future<Output = Vec<SocketAddr>>,
{
    race(addresses, wait, |address| async move {
        tokio::task::spawn_blocking(move || connect(address, wait)).await.map_err(DialError::system)?.map_err(
            |error| match error.kind() {
                io::ErrorKind::TimedOut | io::ErrorKind::ConnectionRefused => DialError::NoAnswer,
                _ => DialError::Unreachable(Some(error)),
            },
        )
    })
    .await
}

/// The time is taken on a thread of its own around the one system call: on a busy machine a task of the
/// runtime would count what it waits for the processor.
fn connect(address: SocketAddr, wait: Duration) -> io::Result<Probe> {
    let mut probe = connect_once(address, wait)?;
    if (NEAR..UNSURE).contains(&probe.round_trip) {
        // A near peer, or this thread lost the processor for a moment.
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
    /// Who answered.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// True when the path is so short that TCP beats QUIC.
    pub(crate) fn is_near(&self) -> bool {
        self.round_trip < NEAR
    }
}

/// What a client presents.
pub(crate) struct Credentials {
    pub(crate) identity: Identity,
    pub(crate) server: Fingerprint,
    pub(crate) token: Token,
    pub(crate) idle_timeout: Duration,
}

/// Makes the main connection out of a probe, within `wait`. Blocks.
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
    let caller = Arc::new(Caller { config, address, secret, near });
    let (listening, dialing) = (Arc::clone(&registry), Arc::clone(&caller));
    let idle_timeout = credentials.idle_timeout;
    thread::Builder::new()
        .name("dsync-tls".into())
        .spawn(move || listen(&listening, opener, idle_timeout, &|| dialing.call_for_peer(&listening)))
        .map_err(|error| DialError::Unreachable(Some(error)))?;
    Ok(Established { registry, caller: Some(caller) })
}

/// How a client makes further connections.
pub(crate) struct Caller {
    config: Arc<rustls::ClientConfig>,
    address: SocketAddr,
    secret: Token,
    near: bool,
}

impl Caller {
    /// A connection for a lane of this end.
    pub(super) fn open(&self, registry: &Registry, id: u32) -> Result<Arrival, LinkError> {
        let (line, opener) = self.call(OURS, id, true).map_err(link_error)?;
        if registry.add(&line) {
            return Ok((line, opener));
        }
        registry.check()?;
        Err(LinkError::Closed)
    }

    /// A connection that the server asked for, on a thread of its own.
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
        Sealer::default().write(&stream, &opening(kind, self.near, id, &self.secret))?;
        stream.set_read_timeout(None)?;
        Ok((Line::new(id, stream, local), opener))
    }
}

#[cfg(test)]
impl Established {
    /// What further connections have to show.
    pub(super) fn secret(&self) -> Option<Token> {
        self.caller.as_ref().map(|caller| caller.secret.clone())
    }
}

/// Kinds of connections: the main one, one for a lane that the client opens, one for a lane of the server.
const MAIN: u8 = 0;
const OURS: u8 = 1;
const THEIRS: u8 = 2;
/// Bytes of a connection's opening.
const OPENING: usize = 38;
/// A round trip up to this may be a short one that was measured on a busy machine.
const UNSURE: Duration = Duration::from_millis(20);
/// Handshakes that the server works on at a time.
const MAX_HANDSHAKES: usize = 16;
/// Time that a connection has until it has shown what it must.
const HANDSHAKE_TIME: Duration = Duration::from_secs(5);
/// Time that a connection for a further lane may take: the port was open a moment ago.
pub(super) const DIAL_TIME: Duration = Duration::from_secs(20);
/// Pause after a connection could not be taken.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
