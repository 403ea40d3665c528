//! Connection setup over UDP.
//!
//! The server [`Offer`]s a port. The client [`dial`]s every address it knows of, a little apart,
//! and takes the first one that proves the right key. TLS alone does not tell the client whether
//! the server accepted *its* key (in TLS 1.3 the client finishes first). So the client sends the
//! run's token on a first stream of that connection, and counts as connected only after the server
//! has answered it. The token binds the connection to this bootstrap, and the server accepts it
//! once.
//!
//! A session of a server that stands has its socket from its parent, connected to the client
//! ([`open_served`], [`answer`]).

use std::{
    io,
    net::{IpAddr, SocketAddr, UdpSocket},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use dsync_wire::bootstrap::{Fingerprint, PortRange, Token};
use quinn::{
    Connection, ConnectionError, Endpoint, EndpointConfig, Incoming, SendStream, ServerConfig, VarInt,
};
use tokio::{
    task::{AbortHandle, JoinSet},
    time::timeout,
};

use super::{link_error, settings, steady::Steady, turns::Turns};
use crate::{
    crowd::Crowd,
    identity::Identity,
    race::{Addresses, DialError, race},
    reactor::{ForQuinn, spawn},
};

/// A UDP port that accepts one client, once.
pub(crate) struct Offer {
    endpoint: Endpoint,
    accepted: Arc<Mutex<Option<Connection>>>,
    serving: AbortHandle,
}

impl Offer {
    /// Opens a port for the client with the key `client` and the token `token`. It is served until
    /// the client has connected, `window` is over, or the offer is dropped. Must be called on the
    /// runtime's thread.
    pub(crate) fn open(
        identity: &Identity,
        (client, token): (Fingerprint, Token),
        range: Option<PortRange>,
        client_address: Option<IpAddr>,
        idle_timeout: Duration,
        window: Duration,
    ) -> io::Result<Self> {
        let tls = identity.server_config(client).map_err(io::Error::other)?;
        let config = settings::server(tls, settings::transport(idle_timeout, client_address))
            .map_err(io::Error::other)?;
        let endpoint =
            endpoint(settings::bind_any(range)?, settings::endpoint(client_address), Some(config))?;

        let accepted = Arc::default();
        let server = Arc::new(Server {
            endpoint: endpoint.clone(),
            token,
            used: AtomicBool::new(false),
            client_address,
            accepted: Arc::clone(&accepted),
        });
        let serving = spawn(async move {
            // Either way the port accepts nobody else from here on.
            let _ = timeout(window, serve(&server)).await;
            server.endpoint.set_server_config(None);
        })?;

        Ok(Self { endpoint, accepted, serving })
    }

    /// Returns the port.
    pub(crate) fn port(&self) -> io::Result<u16> {
        Ok(self.endpoint.local_addr()?.port())
    }

    /// Closes the port to others and returns the client's connection, if there is one.
    pub(crate) fn take(self) -> Option<(Connection, Endpoint)> {
        let connection = self.accepted.lock().unwrap_or_else(PoisonError::into_inner).take()?;
        Some((connection, self.endpoint.clone()))
    }
}

#[cfg(test)]
impl Offer {
    /// Returns whether the port accepts nobody any more.
    pub(super) fn is_over(&self) -> bool {
        self.serving.is_finished()
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
    client_address: Option<IpAddr>,
    accepted: Arc<Mutex<Option<Connection>>>,
}

/// Accepts handshakes until one client has presented the token; the others end with it.
async fn serve(server: &Arc<Server>) {
    let mut handshakes = JoinSet::new();
    let mut crowd = Crowd::<AbortHandle>::new(MAX_HANDSHAKES, server.client_address);

    loop {
        let incoming = tokio::select! {
            Some(admitted) = handshakes.join_next_with_id() => {
                let id = match admitted {
                    Ok((_, Ok(Ok(())))) => return,
                    Ok((id, _)) => id,
                    Err(error) => error.id(),
                };
                crowd.leave(|member| member.id() == id);
                continue;
            }
            incoming = server.endpoint.accept() => incoming,
        };
        let Some(incoming) = incoming else { return };

        if crowd.len() >= UNCHECKED_HANDSHAKES && !incoming.remote_address_validated() && incoming.may_retry()
        {
            // A sender of forged addresses never gets past this; the client pays at most one round
            // trip. It fails only if a retry makes no sense, which was just ruled out.
            let _ = incoming.retry();
            continue;
        }
        let address = incoming.remote_address().ip();
        let handshake = handshakes.spawn(timeout(HANDSHAKE_TIME, admit(Arc::clone(server), incoming)));

        if let Some(evicted) = crowd.admit(address, handshake) {
            evicted.abort();
        }
    }
}

/// Handles one client: its key, its token, the answer.
async fn admit(server: Arc<Server>, incoming: Incoming) -> Result<(), ConnectionError> {
    let (connection, send) = hear(incoming, &server.token).await?;
    if server.used.swap(true, Ordering::AcqRel) {
        return Err(refuse(&connection));
    }
    // Record it first: the client may report the answer over ssh before this task continues.
    *server.accepted.lock().unwrap_or_else(PoisonError::into_inner) = Some(connection.clone());
    if welcome(send).await { Ok(()) } else { Err(ConnectionError::LocallyClosed) }
}

/// Waits for a client's proof: its key, and the token.
async fn hear(incoming: Incoming, expected: &Token) -> Result<(Connection, SendStream), ConnectionError> {
    let address = incoming.remote_address();
    let connection = incoming
        .accept()?
        .await
        .inspect_err(|error| tracing::debug!(%address, %error, "UDP handshake refused"))?;
    let (send, mut receive) = connection.accept_bi().await?;
    let mut token = Token([0; 32]);
    // The comparison takes the same time wherever they differ.
    if receive.read_exact(&mut token.0).await.is_ok() && token == *expected {
        return Ok((connection, send));
    }
    Err(refuse(&connection))
}

fn refuse(connection: &Connection) -> ConnectionError {
    tracing::debug!(address = %connection.remote_address(), "UDP session refused");
    connection.close(REFUSED, b"");
    ConnectionError::LocallyClosed
}

/// Tells a client that it was accepted; returns whether that could be said.
pub(crate) async fn welcome(mut send: SendStream) -> bool {
    send.write_all(&[WELCOME]).await.is_ok() && send.finish().is_ok()
}

/// Makes the server's endpoint on a socket that is connected to the client. Must be called on the runtime's
/// thread.
///
/// # Errors
/// The system's.
pub(crate) fn open_served(
    socket: UdpSocket,
    tls: rustls::ServerConfig,
    idle_timeout: Duration,
) -> io::Result<Endpoint> {
    // A session may open no socket, by which the route would be asked for larger packets.
    let transport = settings::transport(idle_timeout, None);
    let config = settings::server(tls, transport).map_err(io::Error::other)?;
    settings::ask_for_buffers(&socket);
    endpoint(socket, settings::endpoint(None), Some(config))
}

/// Makes an endpoint on a socket. Must be called on the runtime's thread.
fn endpoint(socket: UdpSocket, config: EndpointConfig, server: Option<ServerConfig>) -> io::Result<Endpoint> {
    let socket = Steady::new(socket)?;
    let turns = Turns::new(Arc::clone(&socket), ForQuinn::current()?);
    Endpoint::new_with_abstract_socket(config, server, socket, turns)
}

/// Waits on such an endpoint for the client with the right key and this token, who is to be [told](welcome)
/// yet. `None` if the socket is of no use any more.
pub(crate) async fn answer(endpoint: &Endpoint, token: &Token) -> Option<(Connection, SendStream)> {
    let heard = loop {
        // One at a time: only one sender's packets arrive here.
        if let Ok(heard) = hear(endpoint.accept().await?, token).await {
            break heard;
        }
    };
    endpoint.set_server_config(None);
    Some(heard)
}

/// The client's proof of identity.
pub(crate) struct Dialer {
    pub(crate) identity: Identity,
    pub(crate) server: Fingerprint,
    pub(crate) token: Token,
    pub(crate) idle_timeout: Duration,
}

/// Tries every address. The first that proves the server's key and accepts the token wins. Ends
/// after `wait`.
pub(crate) async fn dial<L>(
    dialer: Dialer,
    addresses: Addresses<L>,
    wait: Duration,
) -> Result<(Connection, Endpoint), DialError>
where
    L: Future<Output = Vec<SocketAddr>>,
{
    let dialer = Arc::new(dialer);
    race(addresses, wait, |address| attempt(Arc::clone(&dialer), address, None)).await
}

/// Opens a socket that is connected to an address.
///
/// # Errors
/// The system's.
pub(crate) fn socket_to(address: SocketAddr) -> io::Result<UdpSocket> {
    let socket = settings::bind_for(address)?;
    socket.connect(address)?;
    Ok(socket)
}

/// Tries one address, by a socket that is connected to it or by a new one.
pub(crate) async fn attempt(
    dialer: Arc<Dialer>,
    address: SocketAddr,
    socket: Option<UdpSocket>,
) -> Result<(Connection, Endpoint), DialError> {
    let peer = Some(address.ip());
    let (tls, mismatch) = dialer.identity.client_config(dialer.server).map_err(DialError::system)?;
    let config =
        settings::client(tls, settings::transport(dialer.idle_timeout, peer)).map_err(DialError::system)?;
    let system = |error| DialError::Unreachable(Some(error));
    let socket = socket.map_or_else(|| settings::bind_for(address), Ok).map_err(system)?;
    let endpoint = endpoint(socket, settings::endpoint(peer), None).map_err(system)?;
    // The name is for a header that is not sent.
    let connecting = endpoint.connect_with(config, address, "dsync.invalid").map_err(DialError::system)?;
    let refused = |error| DialError::Refused(link_error(error));
    let connection = connecting.await.map_err(|error| match error {
        _ if mismatch.load(Ordering::Relaxed) => DialError::WrongKey(address),
        ConnectionError::TimedOut => DialError::NoAnswer,
        error => refused(error),
    })?;

    let lost = |connection: &Connection| refused(connection.close_reason().unwrap_or(ConnectionError::Reset));
    let (mut send, mut receive) = connection.open_bi().await.map_err(refused)?;
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
/// Application close code of a session that was not admitted; nobody reads it.
const REFUSED: VarInt = VarInt::from_u32(0x0100);
/// Handshakes that the server processes at a time.
const MAX_HANDSHAKES: usize = 8;
/// Most of them without proof that the sender's address is real.
const UNCHECKED_HANDSHAKES: usize = 2;
/// Time for one client from its first packet to its token.
const HANDSHAKE_TIME: Duration = Duration::from_secs(5);
