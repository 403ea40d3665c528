//! How the two ends find each other over UDP.
//!
//! The server [`Offer`]s a port; the client [`dial`]s every address it knows of, a little apart, and
//! takes the first that proves the right key. TLS alone does not tell the client whether the server
//! took *its* key (in TLS 1.3 the client finishes first), so on that connection it sends the run's token
//! on a first stream and counts as connected only when the server has answered it. The token binds the
//! connection to this bootstrap, and the server takes it once.

use std::{
    io,
    net::{IpAddr, SocketAddr},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use dsync_wire::bootstrap::{Fingerprint, Token};
use quinn::{Connection, ConnectionError, Endpoint, Incoming, TokioRuntime, VarInt};
use tokio::{
    task::{AbortHandle, JoinSet},
    time::{sleep, timeout},
};

use super::{identity::Identity, settings};

/// A UDP port that takes one client, once.
pub(crate) struct Offer {
    endpoint: Endpoint,
    identity: Identity,
    accepted: Arc<Mutex<Option<Connection>>>,
    serving: AbortHandle,
}

impl Offer {
    /// Opens a port for the client with the key `client` and the token `token`. It is served until the
    /// client came, or `window` is over, or the offer is dropped. Must be called on the runtime's thread.
    pub(crate) fn open(
        client: Fingerprint,
        token: Token,
        client_address: Option<IpAddr>,
        idle_timeout: Duration,
        window: Duration,
    ) -> io::Result<Self> {
        let identity = Identity::generate().map_err(io::Error::other)?;
        let tls = identity.server_config(client).map_err(io::Error::other)?;
        let config = settings::server(tls, settings::transport(idle_timeout, client_address))
            .map_err(io::Error::other)?;
        let endpoint = Endpoint::new(
            settings::endpoint(client_address),
            Some(config),
            settings::bind_any()?,
            Arc::new(TokioRuntime),
        )?;
        let accepted = Arc::default();
        let server = Arc::new(Server {
            endpoint: endpoint.clone(),
            token,
            used: AtomicBool::new(false),
            accepted: Arc::clone(&accepted),
        });
        let serving = tokio::spawn(async move {
            // Either way the port takes nobody else from here on.
            let _ = timeout(window, serve(&server)).await;
            server.endpoint.set_server_config(None);
        });
        Ok(Self { endpoint, identity, accepted, serving: serving.abort_handle() })
    }

    /// The port.
    pub(crate) fn port(&self) -> io::Result<u16> {
        Ok(self.endpoint.local_addr()?.port())
    }

    /// The fingerprint of the key that the port proves.
    pub(crate) fn fingerprint(&self) -> Fingerprint {
        self.identity.fingerprint()
    }

    /// Closes the port to others and gives the client's connection, if it came.
    pub(crate) fn take(self) -> Option<(Connection, Endpoint)> {
        let connection = self.accepted.lock().unwrap_or_else(PoisonError::into_inner).take()?;
        Some((connection, self.endpoint.clone()))
    }
}

impl Drop for Offer {
    fn drop(&mut self) {
        self.serving.abort();
        self.endpoint.set_server_config(None);
        if let Some(connection) = self.accepted.lock().unwrap_or_else(PoisonError::into_inner).take() {
            connection.close(REFUSED, b"");
        }
    }
}

/// The serving side of an [`Offer`].
struct Server {
    endpoint: Endpoint,
    token: Token,
    used: AtomicBool,
    accepted: Arc<Mutex<Option<Connection>>>,
}

/// Takes handshakes until one client has presented the token; the others end with it.
async fn serve(server: &Arc<Server>) {
    let mut handshakes = JoinSet::new();
    loop {
        let incoming = tokio::select! {
            Some(admitted) = handshakes.join_next() => match admitted {
                Ok(Ok(Ok(()))) => return,
                _ => continue,
            },
            incoming = server.endpoint.accept() => incoming,
        };
        let Some(incoming) = incoming else { return };
        if handshakes.len() >= MAX_HANDSHAKES {
            incoming.refuse();
        } else if handshakes.len() >= UNCHECKED_HANDSHAKES
            && !incoming.remote_address_validated()
            && incoming.may_retry()
        {
            // A sender of forged addresses never gets past this; the client pays a round trip at most.
            // Fails only where a retry makes no sense, which was just asked.
            let _ = incoming.retry();
        } else {
            handshakes.spawn(timeout(HANDSHAKE_TIME, admit(Arc::clone(server), incoming)));
        }
    }
}

/// One client: its key, its token, the answer.
async fn admit(server: Arc<Server>, incoming: Incoming) -> Result<(), ConnectionError> {
    let address = incoming.remote_address();
    let connection = incoming
        .accept()?
        .await
        .inspect_err(|error| tracing::debug!(%address, %error, "UDP handshake refused"))?;
    let (mut send, mut receive) = connection.accept_bi().await?;
    let mut token = Token([0; 32]);
    // The comparison takes the same time wherever they differ.
    let genuine = receive.read_exact(&mut token.0).await.is_ok() && token == server.token;
    if !genuine || server.used.swap(true, Ordering::AcqRel) {
        tracing::debug!(%address, genuine, "UDP session refused");
        connection.close(REFUSED, b"");
        return Err(ConnectionError::LocallyClosed);
    }
    // Recorded first: the client may say over ssh that it has the answer before this goes on.
    *server.accepted.lock().unwrap_or_else(PoisonError::into_inner) = Some(connection.clone());
    let answered = send.write_all(&[WELCOME]).await.is_ok() && send.finish().is_ok();
    if answered { Ok(()) } else { Err(ConnectionError::LocallyClosed) }
}

/// Why no address was reached.
#[derive(Debug)]
pub(crate) enum DialError {
    /// No address is known, or none could be tried; what the last one said.
    Unreachable(Option<io::Error>),
    /// Nothing came back.
    NoAnswer,
    /// Somebody answered, with another key.
    WrongKey(SocketAddr),
    /// The right server answered and sent this client away, or its connection broke.
    Refused(ConnectionError),
}

/// What a client presents.
pub(crate) struct Dialer {
    pub(crate) identity: Identity,
    pub(crate) server: Fingerprint,
    pub(crate) token: Token,
    pub(crate) idle_timeout: Duration,
}

/// Tries `first` at once and what `later` resolves to a little afterwards; the first address that proves
/// the server's key and takes the token wins. Ends after `wait`.
pub(crate) async fn dial(
    dialer: Dialer,
    first: Vec<SocketAddr>,
    later: impl Future<Output = Vec<SocketAddr>>,
    wait: Duration,
) -> Result<(Connection, Endpoint), DialError> {
    let dialer = Arc::new(dialer);
    let mut worst = DialError::Unreachable(None);
    let winner = timeout(wait, race(&dialer, first, later, &mut worst)).await;
    match winner {
        Ok(Some(winner)) => Ok(winner),
        Ok(None) => Err(worst),
        // Nobody but silent addresses is left, unless one has said more.
        Err(_) => Err(match worst {
            DialError::WrongKey(_) | DialError::Refused(_) => worst,
            _ => DialError::NoAnswer,
        }),
    }
}

async fn race(
    dialer: &Arc<Dialer>,
    first: Vec<SocketAddr>,
    later: impl Future<Output = Vec<SocketAddr>>,
    worst: &mut DialError,
) -> Option<(Connection, Endpoint)> {
    let mut tried = first;
    tried.truncate(MAX_ADDRESSES);
    let mut attempts = JoinSet::new();
    for address in &tried {
        attempts.spawn(attempt(Arc::clone(dialer), *address));
    }
    let stagger = async {
        sleep(STAGGER).await;
        later.await
    };
    tokio::pin!(stagger);
    let mut resolved = false;
    loop {
        tokio::select! {
            addresses = &mut stagger, if !resolved => {
                resolved = true;
                for address in addresses {
                    if !tried.contains(&address) && tried.len() < MAX_ADDRESSES {
                        tried.push(address);
                        attempts.spawn(attempt(Arc::clone(dialer), address));
                    }
                }
            }
            Some(outcome) = attempts.join_next() => match outcome {
                Ok(Ok(winner)) => return Some(winner),
                Ok(Err(error)) => *worst = worse(std::mem::replace(worst, DialError::NoAnswer), error),
                // The task panicked: as if the address had not been known.
                Err(_) => {}
            },
            else => return None,
        }
    }
}

/// The error that tells more.
fn worse(a: DialError, b: DialError) -> DialError {
    let rank = |error: &DialError| match error {
        DialError::Unreachable(_) => 0,
        DialError::NoAnswer => 1,
        DialError::WrongKey(_) => 2,
        DialError::Refused(_) => 3,
    };
    if rank(&b) >= rank(&a) { b } else { a }
}

/// One address.
async fn attempt(dialer: Arc<Dialer>, address: SocketAddr) -> Result<(Connection, Endpoint), DialError> {
    let system = |error| DialError::Unreachable(Some(error));
    let peer = Some(address.ip());
    let (tls, mismatch) =
        dialer.identity.client_config(dialer.server).map_err(|error| system(io::Error::other(error)))?;
    let config = settings::client(tls, settings::transport(dialer.idle_timeout, peer))
        .map_err(|error| system(io::Error::other(error)))?;
    let socket = settings::bind_for(address).map_err(system)?;
    let endpoint =
        Endpoint::new(settings::endpoint(peer), None, socket, Arc::new(TokioRuntime)).map_err(system)?;
    // The name is for a header that is not sent.
    let connecting = endpoint
        .connect_with(config, address, "dsync.invalid")
        .map_err(|error| system(io::Error::other(error)))?;
    let connection = connecting.await.map_err(|error| match error {
        _ if mismatch.load(Ordering::Relaxed) => DialError::WrongKey(address),
        ConnectionError::TimedOut => DialError::NoAnswer,
        error => DialError::Refused(error),
    })?;
    let lost = |connection: &Connection| {
        DialError::Refused(connection.close_reason().unwrap_or(ConnectionError::Reset))
    };
    let (mut send, mut receive) = connection.open_bi().await.map_err(DialError::Refused)?;
    if send.write_all(&dialer.token.0).await.is_err() || send.finish().is_err() {
        return Err(lost(&connection));
    }
    let mut answer = [0; 1];
    match receive.read_exact(&mut answer).await {
        Ok(()) if answer == [WELCOME] => Ok((connection, endpoint)),
        _ => Err(lost(&connection)),
    }
}

/// The server's answer to the right token.
const WELCOME: u8 = 1;
/// Application close code of a session that was not admitted; read by nobody.
const REFUSED: VarInt = VarInt::from_u32(0x0100);
/// Head start of the address that ssh itself reached.
const STAGGER: Duration = Duration::from_millis(250);
/// Addresses tried at most; each costs a socket and its buffers.
const MAX_ADDRESSES: usize = 6;
/// Handshakes that the server works on at a time.
const MAX_HANDSHAKES: usize = 8;
/// As many may be without proof that the sender's address is real.
const UNCHECKED_HANDSHAKES: usize = 2;
/// Time that one client has from its first packet to its token.
const HANDSHAKE_TIME: Duration = Duration::from_secs(5);
