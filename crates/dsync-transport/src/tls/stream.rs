//! One TLS 1.3 connection over TCP whose two directions work independently: one thread seals and
//! sends while another receives and opens. Neither delays the other while the system does its part.
//!
//! rustls is used without buffers of its own. Records are opened in the receive buffer and sealed
//! into the send buffer, many per system call. The lock is held for the cryptography only, never
//! for a system call. The clean end of a direction is TLS's close_notify (RFC 8446, section 6.1).
//! The end of the TCP stream without one is [`StreamError::Truncated`].

use std::{
    io::{self, Read, Write},
    net::{Shutdown, TcpStream},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use rustls::{
    client::UnbufferedClientConnection,
    pki_types::ServerName,
    server::UnbufferedServerConnection,
    unbuffered::{ConnectionState, EncodeError, EncryptError, UnbufferedStatus, WriteTraffic},
};
use socket2::SockRef;

/// The reason why a connection is unusable.
#[derive(Debug)]
pub(crate) enum StreamError {
    /// The system refused an operation, or the peer reset the connection.
    Io(io::Error),
    /// The TCP stream ended without the end of the TLS one.
    Truncated,
    /// The data breaks TLS, or shows that the peer is somebody else.
    Tls(rustls::Error),
}

impl From<io::Error> for StreamError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// A connection whose peer has proved its key.
pub(crate) struct Stream {
    tcp: TcpStream,
    tls: Mutex<Tls>,
}

/// Both sides of rustls as one type.
enum Tls {
    Client(UnbufferedClientConnection),
    Server(UnbufferedServerConnection),
}

/// The next thing to do.
#[derive(Debug, PartialEq, Eq)]
enum Step {
    /// Ask again: content was delivered, or something was sealed.
    Again,
    /// Send the sealed bytes.
    Send,
    /// The peer ended its direction.
    Ended,
    /// Wait for more bytes; the handshake is under way.
    Blocked,
    /// Wait for more bytes, or for content to send.
    Idle,
}

impl Stream {
    /// Performs the handshake as the client.
    pub(crate) fn client(
        tcp: TcpStream,
        config: Arc<rustls::ClientConfig>,
        limit: Duration,
    ) -> Result<(Self, Opener), StreamError> {
        // The name is for a header that is not sent.
        let name = ServerName::try_from("dsync.invalid").map_err(io::Error::other)?;
        let tls = UnbufferedClientConnection::new(config, name).map_err(StreamError::Tls)?;
        Self::shake_hands(tcp, Tls::Client(tls), limit)
    }

    /// Performs the handshake as the server.
    pub(crate) fn server(
        tcp: TcpStream,
        config: Arc<rustls::ServerConfig>,
        limit: Duration,
    ) -> Result<(Self, Opener), StreamError> {
        let tls = UnbufferedServerConnection::new(config).map_err(StreamError::Tls)?;
        Self::shake_hands(tcp, Tls::Server(tls), limit)
    }

    fn shake_hands(tcp: TcpStream, tls: Tls, limit: Duration) -> Result<(Self, Opener), StreamError> {
        let end = deadline(limit);
        // Without it the last, small piece of a message would wait for an acknowledgement.
        tcp.set_nodelay(true)?;
        // A kernel that does not know it queues more.
        let _ = SockRef::from(&tcp).set_tcp_notsent_lowat(MOST_UNSENT);
        tcp.set_write_timeout(Some(limit))?;
        let stream = Self { tcp, tls: Mutex::new(tls) };
        let mut opener = Opener::new(HANDSHAKE_BUFFER);
        let mut outgoing = Vec::new();
        let mut received = 0;

        loop {
            // Not in the head of the match, which would hold the lock throughout.
            let step = opener.step(&mut stream.lock(), &mut outgoing);
            match step {
                Ok(Step::Again) => {}
                Ok(Step::Send) => {
                    stream.send(&outgoing)?;
                    outgoing.clear();
                }
                Ok(Step::Blocked) => {
                    received += opener.fill(&stream, Some(end))?;
                    if received > MAX_HANDSHAKE {
                        return Err(StreamError::Tls(rustls::Error::General("a long handshake".into())));
                    }
                }
                Ok(Step::Idle) => break,
                // The peer's whole content arrived with the end of its handshake.
                Ok(Step::Ended) if !stream.lock().is_handshaking() => break,
                Ok(Step::Ended) => return Err(StreamError::Truncated),
                Err(error) => {
                    stream.send_alert(&mut opener, &error);
                    return Err(StreamError::Tls(error));
                }
            }
        }

        stream.tcp.set_write_timeout(None)?;
        Ok((stream, opener))
    }

    /// Sends the peer the reason for its rejection; it may not care.
    fn send_alert(&self, opener: &mut Opener, error: &rustls::Error) {
        let mut alert = Vec::new();
        // A record that cannot be opened would be read again, and be a second fault.
        let most = if is_of_record(error) { 1 } else { MAX_ALERTS };
        for _ in 0..most {
            if !matches!(opener.step(&mut self.lock(), &mut alert), Ok(Step::Again)) {
                break;
            }
        }
        let _ = self.send(&alert);
    }

    fn lock(&self) -> MutexGuard<'_, Tls> {
        self.tls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn send(&self, bytes: &[u8]) -> io::Result<()> {
        (&self.tcp).write_all(bytes)
    }

    /// Makes the next read fail if nothing arrives by `end`.
    fn read_until(&self, end: Instant) -> io::Result<()> {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.tcp.set_read_timeout(Some(left))
    }

    /// Returns the SubjectPublicKeyInfo of the key that the peer has proved.
    pub(crate) fn peer_key(&self) -> Option<Vec<u8>> {
        let tls = self.lock();
        let shown = match &*tls {
            Tls::Client(tls) => tls.peer_certificates(),
            Tls::Server(tls) => tls.peer_certificates(),
        };
        Some(shown?.first()?.to_vec())
    }

    /// Returns the protocol that the handshake agreed on.
    pub(crate) fn protocol(&self) -> Option<Vec<u8>> {
        let tls = self.lock();
        let agreed = match &*tls {
            Tls::Client(tls) => tls.alpn_protocol(),
            Tls::Server(tls) => tls.alpn_protocol(),
        };
        agreed.map(<[u8]>::to_vec)
    }

    /// Returns the socket, for its options.
    pub(crate) fn socket(&self) -> &TcpStream {
        &self.tcp
    }

    /// Limits how long a read may wait; `None` for no limit.
    pub(crate) fn set_read_timeout(&self, limit: Option<Duration>) -> io::Result<()> {
        self.tcp.set_read_timeout(limit)
    }

    /// Limits how long a write may wait; `None` for no limit.
    pub(crate) fn set_write_timeout(&self, limit: Option<Duration>) -> io::Result<()> {
        self.tcp.set_write_timeout(limit)
    }

    /// Ends one or both directions of the TCP stream and wakes everybody who waits in one of them.
    pub(crate) fn shut(&self, how: Shutdown) {
        // Fails only if it has already ended.
        let _ = self.tcp.shutdown(how);
    }
}

/// Returns the end of a time that begins now. A time that no clock holds has no end that anybody meets.
pub(crate) fn deadline(limit: Duration) -> Instant {
    Instant::now() + limit.min(ENDLESS)
}

/// Returns whether an error is of a record, and not of the message in it.
fn is_of_record(error: &rustls::Error) -> bool {
    use rustls::Error as E;
    matches!(
        error,
        E::InvalidMessage(_)
            | E::DecryptError
            | E::PeerSentOversizedRecord
            | E::PeerMisbehaved(rustls::PeerMisbehaved::IllegalMiddleboxChangeCipherSpec)
    )
}

impl Tls {
    fn is_handshaking(&self) -> bool {
        match self {
            Self::Client(tls) => tls.is_handshaking(),
            Self::Server(tls) => tls.is_handshaking(),
        }
    }

    /// Advances by one step, with the bytes that arrived and are not yet used; returns how many of
    /// them were used. Content goes to `sink`; bytes to send are appended to `outgoing`.
    fn step(
        &mut self,
        incoming: &mut [u8],
        sink: &mut dyn FnMut(&[u8]),
        outgoing: &mut Vec<u8>,
    ) -> (usize, Result<Step, rustls::Error>) {
        match self {
            Self::Client(tls) => advance(tls.process_tls_records(incoming), sink, outgoing),
            Self::Server(tls) => advance(tls.process_tls_records(incoming), sink, outgoing),
        }
    }

    /// Runs `seal` with the writing side, which exists from the end of the handshake on.
    fn write(
        &mut self,
        seal: impl FnOnce(&mut dyn Seal) -> Result<usize, EncryptError>,
    ) -> Result<usize, rustls::Error> {
        fn with<D>(
            status: UnbufferedStatus<'_, '_, D>,
            seal: impl FnOnce(&mut dyn Seal) -> Result<usize, EncryptError>,
        ) -> Result<usize, rustls::Error> {
            match status.state? {
                ConnectionState::WriteTraffic(mut traffic) => {
                    seal(&mut traffic).map_err(|_| rustls::Error::EncryptError)
                }
                _ => Err(rustls::Error::HandshakeNotComplete),
            }
        }
        match self {
            Self::Client(tls) => with(tls.process_tls_records(&mut []), seal),
            Self::Server(tls) => with(tls.process_tls_records(&mut []), seal),
        }
    }
}

/// The writing side of either kind of connection.
trait Seal {
    fn content(&mut self, content: &[u8], outgoing: &mut [u8]) -> Result<usize, EncryptError>;
    fn end(&mut self, outgoing: &mut [u8]) -> Result<usize, EncryptError>;
}

impl<D> Seal for WriteTraffic<'_, D> {
    fn content(&mut self, content: &[u8], outgoing: &mut [u8]) -> Result<usize, EncryptError> {
        self.encrypt(content, outgoing)
    }

    fn end(&mut self, outgoing: &mut [u8]) -> Result<usize, EncryptError> {
        self.queue_close_notify(outgoing)
    }
}

fn advance<D>(
    status: UnbufferedStatus<'_, '_, D>,
    sink: &mut dyn FnMut(&[u8]),
    outgoing: &mut Vec<u8>,
) -> (usize, Result<Step, rustls::Error>) {
    let mut used = status.discard;
    let state = match status.state {
        Ok(state) => state,
        Err(error) => return (used, Err(error)),
    };
    let step = match state {
        ConnectionState::ReadTraffic(mut traffic) => {
            while let Some(record) = traffic.next_record() {
                match record {
                    Ok(record) => {
                        used += record.discard;
                        sink(record.payload);
                    }
                    Err(error) => return (used, Err(error)),
                }
            }
            Step::Again
        }
        ConnectionState::EncodeTlsData(mut data) => {
            let start = outgoing.len();
            let needed = match data.encode(&mut []) {
                Err(EncodeError::InsufficientSize(error)) => error.required_size,
                _ => 0,
            };
            outgoing.resize(start + needed, 0);
            let written = data.encode(&mut outgoing[start..]).unwrap_or(0);
            outgoing.truncate(start + written);
            Step::Again
        }
        ConnectionState::TransmitTlsData(data) => {
            data.done();
            Step::Send
        }
        ConnectionState::PeerClosed | ConnectionState::Closed => Step::Ended,
        ConnectionState::BlockedHandshake => Step::Blocked,
        ConnectionState::WriteTraffic(_) => Step::Idle,

        // Early data is off, and there is no other state.
        _ => return (used, Err(rustls::Error::General("unexpected state".into()))),
    };

    (used, Ok(step))
}

/// The receiving half: bytes received but not opened, and content opened but not taken.
pub(crate) struct Opener {
    incoming: Vec<u8>,
    start: usize,
    filled: usize,
    /// Opened content for which the caller had no room.
    content: Vec<u8>,
    taken: usize,
    /// Whether the peer ended its direction.
    ended: bool,
}

impl Opener {
    fn new(capacity: usize) -> Self {
        Self { incoming: vec![0; capacity], start: 0, filled: 0, content: Vec::new(), taken: 0, ended: false }
    }

    /// Enlarges the buffer to many records, for bulk data.
    pub(crate) fn widen(&mut self) {
        self.incoming.resize(BULK_BUFFER.max(self.incoming.len()), 0);
    }

    /// Returns whether the peer has ended its direction and all of it was taken.
    pub(crate) fn is_ended(&self) -> bool {
        self.ended && self.taken == self.content.len()
    }

    /// Waits for content without taking any; returns `false` if the clean end comes first.
    pub(crate) fn wait(&mut self, stream: &Stream) -> Result<bool, StreamError> {
        loop {
            if self.taken < self.content.len() {
                return Ok(true);
            }
            if self.ended {
                return Ok(false);
            }
            if self.open(&mut stream.lock(), &mut [])?.1 {
                self.fill(stream, None)?;
            }
        }
    }

    /// Waits for at least one byte and reads into `buf`; returns 0 at the clean end.
    pub(crate) fn read(&mut self, stream: &Stream, buf: &mut [u8]) -> Result<usize, StreamError> {
        self.read_within(stream, buf, None)
    }

    /// Does the same, and fails at `end`, in however many pieces a record arrives.
    pub(crate) fn read_by(
        &mut self,
        stream: &Stream,
        buf: &mut [u8],
        end: Instant,
    ) -> Result<usize, StreamError> {
        self.read_within(stream, buf, Some(end))
    }

    fn read_within(
        &mut self,
        stream: &Stream,
        buf: &mut [u8],
        end: Option<Instant>,
    ) -> Result<usize, StreamError> {
        if buf.is_empty() {
            return Ok(0);
        }

        loop {
            if self.taken < self.content.len() {
                let left = &self.content[self.taken..];
                let count = left.len().min(buf.len());
                buf[..count].copy_from_slice(&left[..count]);
                self.taken += count;
                return Ok(count);
            }
            if self.ended {
                return Ok(0);
            }
            let (count, starved) = self.open(&mut stream.lock(), buf)?;
            if count > 0 {
                return Ok(count);
            }
            if starved {
                self.fill(stream, end)?;
            }
        }
    }

    /// Opens records until `buf` is full; returns the length of the content, and whether nothing is
    /// left to open.
    fn open(&mut self, tls: &mut Tls, buf: &mut [u8]) -> Result<(usize, bool), StreamError> {
        self.content.clear();
        self.taken = 0;

        let mut count = 0;
        // Key updates are sealed with the next content to send; alerts would be for a peer that is
        // lost.
        let mut unsent = Vec::new();

        loop {
            let Self { incoming, start, filled, content, .. } = self;
            let mut sink = |record: &[u8]| {
                let room = buf.len() - count;
                let (fits, rest) = record.split_at(record.len().min(room));
                buf[count..count + fits.len()].copy_from_slice(fits);
                count += fits.len();
                content.extend_from_slice(rest);
            };
            let (used, step) = tls.step(&mut incoming[*start..*filled], &mut sink, &mut unsent);
            *start += used;
            match step.map_err(StreamError::Tls)? {
                Step::Ended => self.ended = true,
                Step::Idle | Step::Blocked => return Ok((count, true)),
                Step::Again | Step::Send => {}
            }
            if self.ended || (count == buf.len() && !self.content.is_empty()) {
                return Ok((count, false));
            }
        }
    }

    /// Takes one step of the handshake; keeps content that follows it.
    fn step(&mut self, tls: &mut Tls, outgoing: &mut Vec<u8>) -> Result<Step, rustls::Error> {
        let Self { incoming, start, filled, content, .. } = self;
        let mut sink = |record: &[u8]| content.extend_from_slice(record);
        let (used, step) = tls.step(&mut incoming[*start..*filled], &mut sink, outgoing);
        *start += used;
        if matches!(step, Ok(Step::Ended)) {
            self.ended = true;
        }
        step
    }

    /// Waits for more bytes and returns their number. Every wait for a peer's bytes is this one, so
    /// `end` is the end of the whole wait.
    fn fill(&mut self, stream: &Stream, end: Option<Instant>) -> Result<usize, StreamError> {
        if self.start > 0 {
            self.incoming.copy_within(self.start..self.filled, 0);
            self.filled -= self.start;
            self.start = 0;
        }
        let room = &mut self.incoming[self.filled..];
        if room.is_empty() {
            return Err(StreamError::Tls(rustls::Error::General("a record without end".into())));
        }

        loop {
            if let Some(end) = end {
                stream.read_until(end)?;
            }
            match (&stream.tcp).read(room) {
                Ok(0) => return Err(StreamError::Truncated),
                Ok(count) => {
                    self.filled += count;
                    return Ok(count);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// The sending half.
#[derive(Default)]
pub(crate) struct Sealer {
    outgoing: Vec<u8>,
}

impl Sealer {
    /// Sends all of `content`, waiting while the peer is slow.
    pub(crate) fn write(&mut self, stream: &Stream, content: &[u8]) -> Result<(), StreamError> {
        self.write_both(stream, &[], content)
    }

    /// Sends all of `head`, then all of `content`, waiting while the peer is slow.
    pub(crate) fn write_both(
        &mut self,
        stream: &Stream,
        head: &[u8],
        content: &[u8],
    ) -> Result<(), StreamError> {
        let (mut head, mut rest) = (head, content);
        while !(head.is_empty() && rest.is_empty()) {
            // Send a little more than one piece along: the rest would cost a call here and a
            // wake-up there.
            let len = if rest.len() <= PIECE + PIECE / 8 { rest.len() } else { PIECE };
            let piece;
            (piece, rest) = rest.split_at(len);
            self.send(stream, [std::mem::take(&mut head), piece])?;
        }
        Ok(())
    }

    /// Seals both parts, each in records of its own, and sends them in one call.
    fn send(&mut self, stream: &Stream, parts: [&[u8]; 2]) -> Result<(), StreamError> {
        let records = parts.iter().map(|part| part.len() / RECORD + 1).sum::<usize>();
        let bound = parts[0].len() + parts[1].len() + records * RECORD_OVERHEAD + KEY_UPDATE;
        if self.outgoing.len() < bound {
            self.outgoing.resize(bound, 0);
        }
        let outgoing = &mut self.outgoing[..];
        let seal_parts = |seal: &mut dyn Seal| {
            let mut parts = parts.into_iter().filter(|part| !part.is_empty());
            parts.try_fold(0, |sealed, part| Ok(sealed + seal.content(part, &mut outgoing[sealed..])?))
        };
        let count = stream.lock().write(seal_parts).map_err(StreamError::Tls)?;
        Ok(stream.send(&self.outgoing[..count])?)
    }

    /// Ends this direction cleanly.
    pub(crate) fn finish(&mut self, stream: &Stream) -> Result<(), StreamError> {
        self.outgoing.resize(self.outgoing.len().max(RECORD_OVERHEAD + KEY_UPDATE), 0);
        let outgoing = &mut self.outgoing[..];
        let count = stream.lock().write(|seal| seal.end(outgoing)).map_err(StreamError::Tls)?;
        stream.send(&self.outgoing[..count])?;
        stream.shut(Shutdown::Write);
        Ok(())
    }
}

#[cfg(test)]
impl Sealer {
    /// Returns the record of a content, unsent.
    #[allow(clippy::unwrap_used)]
    pub(crate) fn sealed(stream: &Stream, content: &[u8]) -> Vec<u8> {
        let mut record = vec![0; content.len() + RECORD_OVERHEAD + KEY_UPDATE];
        let count = stream.lock().write(|seal| seal.content(content, &mut record)).unwrap();
        record.truncate(count);
        record
    }
}

/// A time that nobody waits for, and that every clock holds: 30 years.
const ENDLESS: Duration = Duration::from_secs(30 * 366 * 86_400);
/// Bytes that a peer may send before its key is known: a handshake has 3 kB.
const MAX_HANDSHAKE: usize = 32 << 10;
/// Bytes that the system queues beyond what the congestion window lets out. A lane that goes on by another
/// carrier waits for them at the path's speed, where losses hold that down; half of it lasts 1 ms at 1
/// Gbit/s, in which this process is woken.
const MOST_UNSENT: u32 = 256 << 10;
/// Content sealed at a time, in bytes: its records are still in the second-level cache when the
/// system copies them.
const PIECE: usize = 128 << 10;
/// Content of a TLS record, in bytes (RFC 8446, section 5.1).
const RECORD: usize = 16 << 10;
/// Header, type and tag of a record, in bytes, rounded up.
const RECORD_OVERHEAD: usize = 64;
/// Room for a key update before the content, in bytes.
const KEY_UPDATE: usize = 1024;
/// Receive buffer of a connection that carries no bulk data, in bytes: a whole record and its
/// overhead.
const HANDSHAKE_BUFFER: usize = 20 << 10;
/// Receive buffer of a data lane, in bytes: 16 records for each system call.
const BULK_BUFFER: usize = 256 << 10;
/// Records of an alert and of whatever was sealed before it.
const MAX_ALERTS: usize = 8;
