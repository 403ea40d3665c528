//! Further connections at the server's session, to which its parent hands them.

use std::{
    io::{self, IoSliceMut},
    mem::MaybeUninit,
    net::{TcpStream, UdpSocket},
    os::{fd::OwnedFd, unix::net::UnixStream},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use dsync_wire::{
    bootstrap::{Fingerprint, Token},
    link::{LaneRead, LaneWrite, LinkError, Move, Traffic},
};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketType, recvmsg, sockopt::socket_type,
};

use super::{ADMITTED, Invitation, Pool, SessionNumber, settle, watch::watch};
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
    /// Whether the parent takes datagrams at the port that the client has reached, and leads sockets for them
    /// here.
    pub takes_quic: bool,
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
    known: Known,
    /// Whether the port takes QUIC, and both ends know of it.
    takes_quic: bool,
    /// The loss for which the client is to make the connection over QUIC; 0 for none.
    loss: AtomicU32,
    is_watched: AtomicBool,
    /// Longest silence of a connection.
    idle_timeout: Duration,
    /// Connections that have not shown the secret.
    strangers: AtomicUsize,
}

/// The properties of further connections that both ends know.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Known {
    /// Whether they may be over QUIC.
    pub(crate) quic: bool,
    /// Whether lanes may move again.
    pub(crate) second_moves: bool,
    /// Whether the round trip is one from which on clients take QUIC by themselves.
    pub(crate) is_far: bool,
}

/// [`Hall`] as the mux has it.
pub(crate) struct Inviting(Arc<Hall>);

impl Inviting {
    /// Begins to take connections of the client whose one-time key this is. Those over QUIC end after
    /// `idle_timeout` of silence.
    ///
    /// # Errors
    /// The system's: no random numbers, no thread.
    pub(crate) fn start(
        handed: Handed,
        (identity, client): (&Identity, Fingerprint),
        known: Known,
        idle_timeout: Duration,
    ) -> io::Result<Self> {
        let Handed { session, socket, takes_quic, sent, received, connections } = handed;
        let hall = Arc::new(Hall {
            invitation: Invitation { session, secret: fresh_secret()?, server: identity.fingerprint() },
            config: Arc::new(identity.server_config(client).map_err(io::Error::other)?),
            pool: Arc::new(Pool::new(sent, received)),
            connections,
            known,
            takes_quic: known.quic && takes_quic && cfg!(feature = "quic"),
            loss: AtomicU32::new(0),
            is_watched: AtomicBool::new(false),
            idle_timeout,
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

    /// Notes a loss that holds back what this end sends.
    #[cfg(feature = "quic")]
    pub(super) fn hold_back(&self, per_million: u32) {
        self.0.loss.store(per_million, Ordering::Release);
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

    fn knows_quic(&self) -> bool {
        self.0.known.quic
    }

    fn moves_again(&self) -> bool {
        self.0.known.second_moves
    }

    fn takes_quic(&self) -> bool {
        self.0.takes_quic
    }

    fn told_of_quic(&self) {}

    fn asks_for_quic(&self) -> Option<u32> {
        let loss = &self.0.loss;
        (loss.load(Ordering::Relaxed) > 0).then(|| loss.swap(0, Ordering::AcqRel)).filter(|&loss| loss > 0)
    }

    fn asked_for_quic(&self, _: u32) {}

    fn data_lanes(&self) -> Option<usize> {
        None
    }

    fn sending_lanes(&self) -> usize {
        self.0.pool.sending_lanes()
    }

    fn is_expected(&self) -> bool {
        self.0.takes_quic && self.0.known.is_far
    }

    fn moves(&self) -> Vec<Move> {
        Vec::new()
    }

    fn passed(&self, _: Traffic) {}

    fn take(&self, sent_bytes: u64) -> Option<(u32, Box<dyn LaneWrite>)> {
        self.0.pool.take(sent_bytes)
    }

    fn take_again(&self, from: u32) -> Option<(u32, Box<dyn LaneWrite>)> {
        self.0.pool.take_again(from)
    }

    fn receive(&self, number: u32) -> Result<Box<dyn LaneRead>, LinkError> {
        self.0.pool.receive(number)
    }

    fn has_lost(&self) -> bool {
        self.0.pool.has_lost(self.0.idle_timeout)
    }

    fn end(&self) {
        self.0.pool.end();
    }
}

impl Hall {
    /// Takes connections for as long as there is a parent.
    fn take_all(self: &Arc<Self>, socket: &UnixStream) {
        loop {
            let descriptor = match next(socket) {
                Ok(Some(descriptor)) => descriptor,
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
                let admitted = match socket_type(&descriptor) {
                    Ok(SocketType::DGRAM) => hall.admit_quic(descriptor.into()),
                    _ => hall.admit(descriptor.into()),
                };
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

    /// Lets the client prove itself over QUIC, on a socket that is connected to it.
    #[cfg(feature = "quic")]
    fn admit_quic(&self, socket: UdpSocket) -> Result<(), Refused> {
        let Invitation { session, secret, .. } = &self.invitation;
        if !self.takes_quic {
            return Err(Refused::Kind);
        }
        let proof = (rustls::ServerConfig::clone(&self.config), secret.clone());
        super::quic::admit(socket, proof, session, self.idle_timeout, |link| {
            let is_taken = self.pool.streams.add(link);
            if is_taken {
                self.connections.add(1);
            }
            is_taken
        })
        .map_err(Refused::Quic)
    }

    /// Refuses: this build has no QUIC.
    #[cfg(not(feature = "quic"))]
    fn admit_quic(&self, _: UdpSocket) -> Result<(), Refused> {
        Err(Refused::Kind)
    }

    /// Notes, if the client may do better by QUIC, that losses hold back what this end sends over TLS.
    fn watch_path(self: &Arc<Self>) {
        let asks = self.takes_quic && self.known.second_moves;
        if !self.is_watched.swap(true, Ordering::AcqRel) {
            let hall = Arc::clone(self);
            watch(&self.pool, move |per_million| {
                if asks {
                    hall.loss.store(per_million, Ordering::Release);
                }
            });
        }
    }

    /// Lets a connection prove that it is the client's.
    fn admit(self: &Arc<Self>, tcp: TcpStream) -> Result<(), Refused> {
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
        settle(&stream, is_near, self.idle_timeout)?;

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
                self.watch_path();
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
    #[cfg(feature = "quic")]
    Quic(#[allow(dead_code, reason = "shown by Debug")] super::quic::Failure),
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
