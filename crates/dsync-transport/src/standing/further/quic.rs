//! The further connection over QUIC: how its two ends find and prove each other.
//!
//! The client knocks: it sends the preface as a datagram, again and again, until the session answers. The
//! server's parent reads the first one, and leads a socket that is connected to its sender to the session;
//! from there on the kernel does. So nobody waits in vain for a handshake where UDP does not get through, and no packet of
//! one is lost on the way to the session. The answer is shorter than the preface, and no preface itself: who
//! forges an address makes the session send less than it was sent, and nobody answers that.

use std::{
    io::{self, ErrorKind},
    net::{SocketAddr, UdpSocket},
    sync::Arc,
    time::{Duration, Instant},
};

use dsync_wire::{bootstrap::Token, link::Link};
use tokio::time::timeout;

use super::{Invitation, PREFACE, Prefaced, SessionNumber, parse_preface, preface};
use crate::{
    identity::Identity,
    quic::{
        QuicLink,
        handshake::{Dialer, answer, attempt, open_served, socket_to, welcome},
    },
    race::DialError,
    reactor::{Reactor, block_on},
    tls::handshake::{DIAL_TIME, HANDSHAKE_TIME},
};

/// The reason why there is no connection.
#[derive(Debug)]
pub(super) enum Failure {
    System(#[allow(dead_code, reason = "shown by Debug")] io::Error),
    /// Nothing answered.
    Silence,
    /// The other end proved nothing.
    Dial(#[allow(dead_code, reason = "shown by Debug")] DialError),
    /// There is a connection already, or the link has ended.
    Late,
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::System(error)
    }
}

/// Makes the connection, as the client.
///
/// # Errors
/// [`Failure`].
pub(super) fn call(
    identity: &Identity,
    address: SocketAddr,
    invitation: &Invitation,
    idle_timeout: Duration,
) -> Result<Arc<dyn Link>, Failure> {
    let socket = socket_to(address)?;
    knock(&socket, &invitation.session)?;
    socket.set_nonblocking(true)?;

    let dialer = Arc::new(Dialer {
        identity: identity.clone(),
        server: invitation.server,
        token: invitation.secret.clone(),
        idle_timeout,
    });
    let reactor = Arc::new(Reactor::start()?);
    let dialled =
        reactor.run(async move { timeout(DIAL_TIME, attempt(dialer, address, Some(socket))).await });
    match dialled {
        Some(Ok(Ok((connection, endpoint)))) => Ok(Arc::new(QuicLink::new(reactor, connection, endpoint))),
        Some(Ok(Err(error))) => Err(Failure::Dial(error)),
        Some(Err(_)) | None => Err(Failure::Silence),
    }
}

/// Sends prefaces until the session answers.
fn knock(socket: &UdpSocket, session: &SessionNumber) -> Result<(), Failure> {
    socket.set_read_timeout(Some(BETWEEN_KNOCKS))?;
    for _ in 0..KNOCKS {
        socket.send(&preface(session))?;
        let mut heard = [0; ANSWER.len() + 1];
        match socket.recv(&mut heard) {
            Ok(count) if heard[..count] == ANSWER => return Ok(()),
            Ok(_) => {}
            Err(error) if is_silence(&error) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(Failure::Silence)
}

/// Lets the client prove itself on a socket that is connected to it. `add` takes the link before the client
/// hears that it was let in.
///
/// # Errors
/// [`Failure`].
pub(super) fn admit(
    socket: UdpSocket,
    (tls, secret): (rustls::ServerConfig, Token),
    session: &SessionNumber,
    idle_timeout: Duration,
    add: impl FnOnce(Arc<dyn Link>) -> bool,
) -> Result<(), Failure> {
    let end = Instant::now() + HANDSHAKE_TIME;
    hear_knocks(&socket, session, end)?;
    socket.set_nonblocking(true)?;

    let reactor = Arc::new(Reactor::start()?);
    let left = end.saturating_duration_since(Instant::now());
    let heard = reactor.run(async move {
        let endpoint = open_served(socket, tls, idle_timeout)?;
        let heard = timeout(left, answer(&endpoint, &secret)).await;
        let (connection, send) = heard.ok().flatten().ok_or(Failure::Silence)?;
        Ok::<_, Failure>((connection, endpoint, send))
    });
    let (connection, endpoint, send) = heard.unwrap_or(Err(Failure::Silence))?;
    if !add(Arc::new(QuicLink::new(reactor, connection, endpoint))) {
        return Err(Failure::Late);
    }
    // A client that did not hear it finds the connection closed in time.
    block_on(welcome(send));
    Ok(())
}

/// Answers prefaces, of which the parent has read one, until something else has arrived.
fn hear_knocks(socket: &UdpSocket, session: &SessionNumber, end: Instant) -> Result<(), Failure> {
    // The socket was the parent's until now.
    socket.set_nonblocking(false)?;
    let mut answers = 0;
    let mut is_asked = true;
    loop {
        if is_asked && answers < MOST_ANSWERS {
            answers += 1;
            // If it does not leave, the client asks again.
            let _ = socket.send(&ANSWER);
        }

        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(Failure::Silence);
        }
        socket.set_read_timeout(Some(left))?;
        let mut seen = [0; PREFACE + 1];
        is_asked = match socket.peek(&mut seen) {
            Ok(count) if parse_preface(&seen[..count]) == Prefaced::Of(*session) && count == PREFACE => true,
            Ok(_) => return Ok(()),
            Err(error) if is_silence(&error) || error.kind() == ErrorKind::ConnectionRefused => false,
            Err(error) => return Err(error.into()),
        };
        if is_asked {
            // It is there, and nobody else reads.
            let _ = socket.recv(&mut seen);
        }
    }
}

fn is_silence(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}

/// The session's answer to a preface.
pub(super) const ANSWER: [u8; 8] = *b"\x89dsync!\n";
/// Most answers of a session to one sender.
const MOST_ANSWERS: u32 = 16;
/// Prefaces that a client sends before it gives UDP up: for 3 s, several round trips of the longest path.
/// The run goes on meanwhile.
const KNOCKS: u32 = 12;
const BETWEEN_KNOCKS: Duration = Duration::from_millis(250);
