//! Further connections at the server's session, to which its parent hands them.

use std::{
    io::{self, IoSliceMut},
    mem::MaybeUninit,
    net::TcpStream,
    os::{fd::OwnedFd, unix::net::UnixStream},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::Instant,
};

use dsync_wire::{
    bootstrap::{Fingerprint, Token},
    link::{LaneRead, LaneWrite, LinkError, Traffic},
};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};

use super::{ADMITTED, Invitation, Pool, SessionNumber, settle};
use crate::{
    identity::Identity,
    mux::beside::{Beside, INVITATION},
    standing::Count,
    tls::{
        handshake::{HANDSHAKE_TIME, OPENING, OURS, THEIRS, fresh_secret, parse_opening, read_exactly},
        stream::{Sealer, Stream, StreamError},
    },
};

/// The socket by which the parent hands connections to its session, one descriptor with one byte.
#[derive(Debug)]
pub struct Handed {
    /// The session's number, by which the parent knows it.
    pub session: SessionNumber,
    /// The session's end of the socket.
    pub socket: UnixStream,
    /// The bytes that are sent on further connections; those of the first one may be counted here too.
    pub sent: Count,
    /// The bytes that are received on further connections.
    pub received: Count,
    /// The further connections that were admitted.
    pub connections: Count,
}

/// The server's end.
pub(crate) struct Hall {
    invitation: Invitation,
    config: Arc<rustls::ServerConfig>,
    pool: Arc<Pool>,
    connections: Count,
    /// Connections that have not shown the secret.
    strangers: AtomicUsize,
}

/// [`Hall`] as the mux has it.
pub(crate) struct Inviting(Arc<Hall>);

impl Inviting {
    /// Begins to take connections of the client whose one-time key this is.
    ///
    /// # Errors
    /// The system's: no random numbers, no thread.
    pub(crate) fn start(handed: Handed, identity: &Identity, client: Fingerprint) -> io::Result<Self> {
        let Handed { session, socket, sent, received, connections } = handed;
        let hall = Arc::new(Hall {
            invitation: Invitation { session, secret: fresh_secret()?, server: identity.fingerprint() },
            config: Arc::new(identity.server_config(client).map_err(io::Error::other)?),
            pool: Arc::new(Pool { sent, received, ..Pool::default() }),
            connections,
            strangers: AtomicUsize::default(),
        });
        let taking = Arc::clone(&hall);
        thread::Builder::new().name("dsync-further".into()).spawn(move || taking.take_all(&socket))?;
        Ok(Self(hall))
    }
}

#[cfg(test)]
impl Inviting {
    /// Returns the connections that have not shown the secret.
    pub(super) fn strangers(&self) -> usize {
        self.0.strangers.load(Ordering::Acquire)
    }

    /// Returns the bytes that were sent and received on further connections.
    pub(super) fn counts(&self) -> [Count; 2] {
        [self.0.pool.sent.clone(), self.0.pool.received.clone()]
    }
}

impl Beside for Inviting {
    fn invitation(&self) -> Option<[u8; INVITATION]> {
        Some(self.0.invitation.encode())
    }

    fn invited(&self, _: &[u8; INVITATION]) {}

    fn passed(&self, _: Traffic) {}

    fn take(&self) -> Option<(u32, Box<dyn LaneWrite>)> {
        self.0.pool.take()
    }

    fn receive(&self, number: u32) -> Result<Box<dyn LaneRead>, LinkError> {
        self.0.pool.receive(number)
    }

    fn end(&self) {
        self.0.pool.end();
    }
}

impl Hall {
    /// Takes connections for as long as there is a parent.
    fn take_all(self: &Arc<Self>, socket: &UnixStream) {
        loop {
            let tcp = match next(socket) {
                Ok(Some(descriptor)) => TcpStream::from(descriptor),
                Ok(None) => return,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => {
                    tracing::debug!(%error, "no more connections from the parent");
                    return;
                }
            };
            // Only this thread adds.
            if self.strangers.load(Ordering::Acquire) >= MOST_STRANGERS {
                continue;
            }
            self.strangers.fetch_add(1, Ordering::AcqRel);

            let hall = Arc::clone(self);
            let admission = thread::Builder::new().name("dsync-further".into()).spawn(move || {
                let admitted = hall.admit(tcp);
                hall.strangers.fetch_sub(1, Ordering::AcqRel);
                if let Err(error) = admitted {
                    tracing::debug!(?error, "further connection refused");
                }
            });
            if admission.is_err() {
                self.strangers.fetch_sub(1, Ordering::AcqRel);
            }
        }
    }

    /// Lets a connection prove that it is the client's.
    fn admit(&self, tcp: TcpStream) -> Result<(), Refused> {
        tcp.set_nonblocking(false).map_err(StreamError::Io)?;
        let end = Instant::now() + HANDSHAKE_TIME;
        let (stream, mut opener) = Stream::server(tcp, Arc::clone(&self.config), HANDSHAKE_TIME)?;
        let mut opening = [0; OPENING];
        read_exactly(&stream, &mut opener, &mut opening, end)?;
        let (kind, is_near, number, secret): (u8, bool, u32, Token) = parse_opening(&opening);
        // The comparison takes the same time wherever the values differ.
        if secret != self.invitation.secret {
            return Err(Refused::Secret);
        }
        settle(&stream, is_near)?;

        // Of those that it sends on the client may use one as soon as it hears so; the others carry
        // nothing before the word.
        let stream = Arc::new(stream);
        let is_taken = match kind {
            OURS => {
                self.pool.add_awaited(number, Arc::clone(&stream), opener)
                    && Sealer::default().write(&stream, &ADMITTED).is_ok()
            }
            THEIRS => {
                Sealer::default().write(&stream, &ADMITTED)?;
                self.pool.add_free(number, stream)
            }
            _ => return Err(Refused::Kind),
        };
        if is_taken {
            self.connections.add(1);
        }
        is_taken.then_some(()).ok_or(Refused::Number)
    }
}

/// Waits for the next connection; `None` if there is no parent any more.
fn next(socket: &UnixStream) -> io::Result<Option<OwnedFd>> {
    loop {
        let mut byte = [0];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut parts = [IoSliceMut::new(&mut byte)];
        let message = recvmsg(socket, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC)?;
        let descriptor = control.drain().find_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
            _ => None,
        });
        // A byte whose descriptor did not fit in the table has none.
        match (descriptor, message.bytes) {
            (Some(descriptor), _) => return Ok(Some(descriptor)),
            (None, 0) => return Ok(None),
            (None, _) => {}
        }
    }
}

/// The reason why a connection is not admitted.
#[derive(Debug)]
enum Refused {
    Broken(#[allow(dead_code, reason = "shown by Debug")] StreamError),
    Secret,
    Number,
    Kind,
}

impl From<StreamError> for Refused {
    fn from(error: StreamError) -> Self {
        Self::Broken(error)
    }
}

/// Handshakes at a time. Whoever reads a session's number on the path can take these places, for
/// [`HANDSHAKE_TIME`] each; the session's lanes then stay where they are.
pub(super) const MOST_STRANGERS: usize = 8;
