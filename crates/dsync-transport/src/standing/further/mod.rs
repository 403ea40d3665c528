//! Further connections of a session with a server that stands: the lanes of a long run move to them
//! ([`crate::mux::beside`]).
//!
//! The server invites its client inside the session: the number of the session, a secret, and the
//! fingerprint of a key that the session has made for itself. The client connects to the address that
//! it has reached before, and no other. The first bytes of such a connection are the preface, which is
//! all that the server's parent reads of it: it passes the connection to the session of that number. TLS
//! follows, with the one-time keys of both ends, and then the opening of a TLS carrier's lane.
//!
//! ```text
//! client, before TLS:  magic: 8 bytes, number of the session: 16 bytes
//! client, first:       kind: u8 (1 the client sends on it, 2 the server does)
//!                      1 on a short path, else 0: u8
//!                      number of the connection: u32 LE, chosen by the client
//!                      32 bytes: the secret of the invitation
//! server, first:       01
//! ```
//!
//! Where both ends know of it and the server's port takes it, one connection over QUIC may be made in their
//! place ([`quic`]), whose streams carry a direction of a lane each ([`streams`]). There the preface is a
//! datagram of its own, to which the session answers. The secret follows on the first stream. On a short
//! path it is made only when losses hold back what TLS carries ([`watch`]): the end that sends knows of
//! them, and a server asks its client.
//!
//! The law: a connection carries one direction of one lane. The server admits one only with the key that
//! the client announced *and* the secret, and has a bounded number of them. Who knows a session's number,
//! which anybody on the path can read, makes the session fail some handshakes and nothing else.

pub(crate) mod client;
#[cfg(feature = "quic")]
mod quic;
pub(crate) mod server;
mod streams;
mod watch;

use std::{
    collections::{BTreeMap, VecDeque},
    net::Shutdown,
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use dsync_wire::{
    bootstrap::{Fingerprint, Token},
    link::{Carrier, LaneRead, LaneWrite, LinkError},
};

use self::streams::Streams;
use super::Count;
use crate::{
    mux::beside::INVITATION,
    tls::{
        registry::link_error,
        silence::{is_lost, keep_alive},
        stream::{Opener, Sealer, Stream, StreamError},
    },
};

/// The number of a session, by which its parent knows it. It is no secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct SessionNumber(pub [u8; 16]);

/// Length of a preface in bytes.
pub const PREFACE: usize = MAGIC.len() + 16;

/// Returns the first bytes of a further connection of this session.
pub fn preface(session: &SessionNumber) -> [u8; PREFACE] {
    let mut bytes = [0; PREFACE];
    bytes[..MAGIC.len()].copy_from_slice(&MAGIC);
    bytes[MAGIC.len()..].copy_from_slice(&session.0);
    bytes
}

/// Reads what has arrived of a connection's first bytes.
pub fn parse_preface(seen: &[u8]) -> Prefaced {
    let magic = &MAGIC[..MAGIC.len().min(seen.len())];
    if seen.is_empty() || !seen.starts_with(magic) {
        return Prefaced::No;
    }
    let number = seen.get(MAGIC.len()..PREFACE).and_then(|number| number.try_into().ok());
    number.map_or(Prefaced::Unfinished, |number| Prefaced::Of(SessionNumber(number)))
}

/// The meaning of a connection's first bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Prefaced {
    /// It is a further connection of this session.
    Of(SessionNumber),
    /// It may become one when more bytes arrive.
    Unfinished,
    /// It is none.
    No,
}

/// A server's invitation to make further connections.
pub(super) struct Invitation {
    pub(super) session: SessionNumber,
    pub(super) secret: Token,
    pub(super) server: Fingerprint,
}

impl Invitation {
    fn encode(&self) -> [u8; INVITATION] {
        let mut bytes = [0; INVITATION];
        bytes[..16].copy_from_slice(&self.session.0);
        bytes[16..48].copy_from_slice(&self.secret.0);
        bytes[48..].copy_from_slice(&self.server.0);
        bytes
    }

    fn parse(bytes: &[u8; INVITATION]) -> Self {
        let (mut session, mut secret, mut server) = ([0; 16], [0; 32], [0; 32]);
        session.copy_from_slice(&bytes[..16]);
        secret.copy_from_slice(&bytes[16..48]);
        server.copy_from_slice(&bytes[48..]);
        Self { session: SessionNumber(session), secret: Token(secret), server: Fingerprint(server) }
    }
}

/// The connections of one end.
struct Pool {
    state: Mutex<State>,
    changed: Condvar,
    /// Those over QUIC.
    streams: Arc<Streams>,
    sent: Count,
    received: Count,
    /// Number of lanes that are to send over TLS.
    senders: AtomicUsize,
}

#[derive(Default)]
struct State {
    is_over: bool,
    /// Those that this end may send on, and no lane of it does.
    free: VecDeque<(u32, Arc<Stream>)>,
    /// Those that the peer may send on, and no lane of this end receives from.
    awaited: BTreeMap<u32, Awaited>,
    /// All of them with their numbers, as long as a lane or the pool has them.
    all: Vec<(u32, Weak<Stream>)>,
}

/// A connection that the peer may send on.
enum Awaited {
    /// It is being made.
    Called,
    Here(Arc<Stream>, Opener),
    Failed,
}

impl Pool {
    /// Makes one that counts bytes sent and received.
    fn new(sent: Count, received: Count) -> Self {
        let streams = Arc::new(Streams::new(sent.clone(), received.clone()));
        let senders = AtomicUsize::new(usize::MAX);
        Self { state: Mutex::default(), changed: Condvar::new(), streams, sent, received, senders }
    }

    /// Returns the number of lanes that are to send: all at first.
    fn sending_lanes(&self) -> usize {
        self.senders.load(Ordering::Relaxed)
    }

    /// Sets the number of lanes that are to send.
    fn let_send(&self, lanes: usize) {
        self.senders.store(lanes, Ordering::Relaxed);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a connection that this end may send on. Returns `false` if there are too many, or the
    /// link has ended.
    fn add_free(&self, number: u32, stream: Arc<Stream>) -> bool {
        let mut state = self.lock();
        let taken = state.keep(number, &stream);
        if taken {
            state.free.push_back((number, stream));
        }
        taken
    }

    /// Takes a connection that the peer may send on. Returns `false` if there are too many, the number is
    /// in use, or the link has ended.
    fn add_awaited(&self, number: u32, stream: Arc<Stream>, opener: Opener) -> bool {
        let mut state = self.lock();
        let is_known = matches!(state.awaited.get(&number), Some(Awaited::Here(..)));
        let taken = !is_known && state.keep(number, &stream);
        if taken {
            state.awaited.insert(number, Awaited::Here(stream, opener));
            drop(state);
            self.changed.notify_all();
        }
        taken
    }

    /// Notes that a connection is being made for the peer to send on, or that it was not.
    fn expect(&self, number: u32, awaited: Awaited) {
        self.lock().awaited.insert(number, awaited);
        self.changed.notify_all();
    }

    /// Takes a connection for a lane that has sent this many bytes.
    fn take(self: &Arc<Self>, sent_bytes: u64) -> Option<(u32, Box<dyn LaneWrite>)> {
        // A stream costs nothing, and what a lane leaves on the mux is what its reader waits for.
        if let Some(taken) = self.streams.take() {
            return Some(taken);
        }
        if sent_bytes < MOVES_AFTER {
            return None;
        }
        let (number, stream) = self.lock().free.pop_front()?;
        let writer = Writer { pool: Arc::clone(self), stream, sealer: Sealer::default(), is_finished: false };
        Some((number, Box::new(writer)))
    }

    /// Takes a connection for a lane that sends on this one.
    fn take_again(&self, from: u32) -> Option<(u32, Box<dyn LaneWrite>)> {
        if streams::is_stream(from) { None } else { self.streams.take() }
    }

    fn receive(self: &Arc<Self>, number: u32) -> Result<Box<dyn LaneRead>, LinkError> {
        if streams::is_stream(number) {
            return self.streams.receive(number);
        }

        let mut state = self.lock();
        loop {
            if state.is_over {
                return Err(LinkError::Closed);
            }
            match state.awaited.remove(&number) {
                Some(Awaited::Here(stream, mut opener)) => {
                    opener.widen();
                    return Ok(Box::new(Reader { pool: Arc::clone(self), stream, opener }));
                }
                Some(Awaited::Called) => {
                    state.awaited.insert(number, Awaited::Called);
                    state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                }
                Some(Awaited::Failed) => return Err(LinkError::Lost),
                None => {
                    let source = Arc::new(NoSuchConnection { number });
                    return Err(LinkError::Carrier { carrier: Carrier::Tls, source });
                }
            }
        }
    }

    /// Returns the live connections over TLS, by their numbers.
    fn live(&self) -> Vec<(u32, Arc<Stream>)> {
        let state = self.lock();
        state.all.iter().filter_map(|(number, stream)| Some((*number, stream.upgrade()?))).collect()
    }

    /// Returns whether the path of a connection is gone. QUIC notices that itself.
    fn has_lost(&self, idle_timeout: Duration) -> bool {
        self.live().iter().any(|(_, stream)| is_lost(stream.socket(), idle_timeout))
    }

    fn end(&self) {
        let mut state = self.lock();
        state.is_over = true;
        state.free.clear();
        state.awaited.clear();
        let all = std::mem::take(&mut state.all);
        drop(state);
        self.streams.end();
        for stream in all.iter().filter_map(|(_, stream)| stream.upgrade()) {
            stream.shut(Shutdown::Both);
        }
        self.changed.notify_all();
    }
}

impl State {
    /// Counts a connection among those of the link; returns `false` if there is no place for it.
    fn keep(&mut self, number: u32, stream: &Arc<Stream>) -> bool {
        self.all.retain(|(_, kept)| kept.strong_count() > 0);
        let has_place = !self.is_over && self.all.len() < MOST;
        if has_place {
            self.all.push((number, Arc::downgrade(stream)));
        }
        has_place
    }
}

/// The peer goes on by a connection that it may not use.
#[derive(Debug, thiserror::Error)]
#[error("a lane moved to connection {number}, which does not exist")]
struct NoSuchConnection {
    number: u32,
}

/// The sending direction of a lane, on a connection of its own.
struct Writer {
    pool: Arc<Pool>,
    stream: Arc<Stream>,
    sealer: Sealer,
    is_finished: bool,
}

impl LaneWrite for Writer {
    fn write(&mut self, data: Bytes) -> Result<(), LinkError> {
        self.write_both(Bytes::new(), data)
    }

    fn write_both(&mut self, head: Bytes, body: Bytes) -> Result<(), LinkError> {
        if self.is_finished {
            return Err(LinkError::Closed);
        }
        self.sealer.write_both(&self.stream, &head, &body).map_err(link_error)?;
        self.pool.sent.add(head.len() + body.len());
        Ok(())
    }

    fn finish(&mut self) -> Result<(), LinkError> {
        if self.is_finished {
            return Ok(());
        }
        self.is_finished = true;
        self.sealer.finish(&self.stream).map_err(link_error)
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        // The end of TCP without the end of TLS: the peer cannot take it for the whole.
        if !self.is_finished {
            self.stream.shut(Shutdown::Both);
        }
    }
}

/// The receiving direction of a lane, on a connection of its own.
struct Reader {
    pool: Arc<Pool>,
    stream: Arc<Stream>,
    opener: Opener,
}

impl LaneRead for Reader {
    fn read(&mut self, buf: &mut [u8]) -> Result<usize, LinkError> {
        let count = self.opener.read(&self.stream, buf).map_err(link_error)?;
        self.pool.received.add(count);
        Ok(count)
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        if !self.opener.is_ended() {
            self.stream.shut(Shutdown::Both);
        }
    }
}

/// Readies a connection for a lane.
///
/// # Errors
/// The system's.
fn settle(stream: &Stream, is_near: bool, idle_timeout: Duration) -> Result<(), StreamError> {
    keep_alive(stream.socket(), idle_timeout)?;
    if is_near {
        crate::tls::handshake::prefer_short_path(stream);
    }
    Ok(stream.set_read_timeout(None)?)
}

/// No greeting of the bootstrap, no record of TLS, and no text.
const MAGIC: [u8; 8] = *b"\x89dsync+\n";
/// The server's first byte: the connection is one of the session's.
const ADMITTED: [u8; 1] = [1];
/// Bytes that a lane has sent before it moves: a shorter one is over before it would gain anything.
const MOVES_AFTER: u64 = 1 << 20;
/// Connections for a direction: as many as the mux has data lanes.
const CONNECTIONS: usize = 4;
/// Most connections of a session at a time: those of four lanes in each direction, and as many again
/// whose ends have not been heard.
const MOST: usize = 16;

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
