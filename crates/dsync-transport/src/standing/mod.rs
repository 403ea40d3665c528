//! The connection to a server that stands: TCP, TLS 1.3, and a key of either end that the other
//! knows beforehand.
//!
//! One connection carries everything. After the handshake the client says which share it wants;
//! the server answers with one byte, and from there on the bytes are those of a remote shell's
//! pipe: the bootstrap and a link, or the text that was asked for.
//!
//! ```text
//! client, first:   number of bytes: u8, the name of a share; none asks for the names of shares
//! server, first:   01
//! ```
//!
//! An authority may stand in for keys that are known beforehand: the module `meeting` has both ends' first
//! words, and `certificate` the statements.
//!
//! No end waits for a word that it knows already: the client's run sends behind the share's name
//! without the server's first byte, and behind its greeting without the server's answer where the
//! handshake agreed on a protocol that names all that the answer would say. The server
//! sends the same bytes either way, and reads a run's only once it has admitted the key.
//!
//! The law: before a client has proved a key that the server knows or that a certificate lets in, it costs the server one
//! connection, 32 KiB and the time limit. A client sends nothing to a server whose
//! key is not the one it was told, but its own public key.

mod certificate;
mod drawing;
pub(crate) mod further;
mod key;
mod meeting;
mod port;
mod versions;

use std::{
    io::{self, Read, Write},
    net::Shutdown,
    os::{fd::OwnedFd, unix::net::UnixStream},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
        mpsc,
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use dsync_wire::{
    bootstrap::{BootstrapError, BootstrapMessage, Fingerprint, Parsed, Reached, Refusal, ServerBootstrap},
    error::PeerText,
    limits::MAX_REFUSAL_TEXT,
    version::{FEATURES, VERSION},
};
use rustls::AlertDescription;

pub use self::certificate::{
    Certificate, CertificateError, CertificateKind, MAX_CERTIFICATE, TOLERANCE, host_fits,
};
pub use self::further::{PREFACE, Prefaced, SessionNumber, parse_preface, preface, server::Handed};
pub use self::key::{NotAKey, PrivateKey, PublicKey, from_hexadecimal, hexadecimal};
pub use self::meeting::{Arrival, ClientEnd, Expected, ServerEnd, answer, dial};
use self::meeting::{NOT_ADMITTED, receive_certificate};
pub use self::port::DatagramPort;
use crate::{
    AddressFamily,
    tls::{
        handshake::read_exactly,
        stream::{Opener, Sealer, Stream, StreamError, deadline},
    },
};

/// A connection whose two ends have proved their keys.
pub struct Channel {
    stream: Arc<Stream>,
    opener: Opener,
    /// The time by which the server's first byte has to come, at its client.
    welcome_by: Option<Instant>,
    /// Whether a certificate comes before it that the client has no use for: the server's key is pinned.
    skips_certificate: bool,
    /// Whether the handshake told the client what the server answers to its greeting.
    is_ahead: bool,
    /// Shortest round trip of the handshake.
    round_trip: Option<Duration>,
}

/// The reason why there is no connection.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ChannelError {
    /// No address of the host answers.
    #[error("no connection to {host} port {port}")]
    Unreachable {
        /// The host.
        host: String,
        /// The port.
        port: u16,
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// The server showed another key than the expected one, or no key was expected.
    #[error("the server has another key than expected")]
    ServerKey {
        /// The key that it showed; it did not have to prove it.
        shown: PublicKey,
    },
    /// The server was to be certified, and what it showed does not fit.
    #[error("the server is not the expected one: {why}")]
    ServerCertificate {
        /// The key that it has proved.
        shown: PublicKey,
        /// The first thing that does not fit.
        why: CertificateError,
    },
    /// The client's key is not pinned, and what it showed for it does not fit.
    #[error("the key is not known, and {why}")]
    ClientCertificate {
        /// The first thing that does not fit.
        why: CertificateError,
    },
    /// The server does not know the client's key, or lets it in no more.
    #[error("the server did not let this key in")]
    Refused,
    /// The peer did not answer in time.
    #[error("the other end did not answer in time")]
    TimedOut,
    /// The server closed the connection before it said anything, as one does that has too many.
    #[error("the server closed the connection before it said anything")]
    Dropped,
    /// The server refused the session that was asked for.
    #[error("the server refused: {text}")]
    Told {
        /// The exit code that it asks for.
        exit_code: u8,
        /// Its explanation; escaped when shown.
        text: PeerText,
    },
    /// The two ends have no version of the protocol in common.
    #[error("{why}")]
    NoVersion {
        /// The versions of either end, as far as they are known.
        why: String,
    },
    /// The client proved a key that this server does not let in.
    #[error("its key is none that this server lets in")]
    UnknownKey,
    /// The client does not take this server for the one that it expects.
    #[error("it expects a server with another key")]
    Distrusted,
    /// The other end speaks something else, or the connection broke.
    #[error("the other end does not speak as dsync does: {why}")]
    NotDsync {
        /// The fault.
        why: String,
    },
}

impl From<StreamError> for ChannelError {
    fn from(error: StreamError) -> Self {
        match error {
            StreamError::Io(error)
                if matches!(error.kind(), io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock) =>
            {
                Self::TimedOut
            }
            StreamError::Io(error) => Self::NotDsync { why: error.to_string() },
            StreamError::Truncated => Self::NotDsync { why: "the connection ended".to_owned() },
            // Whoever has another protocol tells only that: not which.
            StreamError::Tls(
                rustls::Error::NoApplicationProtocol
                | rustls::Error::AlertReceived(AlertDescription::NoApplicationProtocol),
            ) => Self::NoVersion { why: versions::none_in_common() },
            StreamError::Tls(error) => Self::NotDsync { why: error.to_string() },
        }
    }
}

/// The address of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    /// Its name or address.
    pub host: String,
    /// Its TCP port.
    pub port: u16,
    /// The addresses of the name that may be used.
    pub family: AddressFamily,
}

impl Channel {
    /// Returns the shortest round trip of the connection so far, if the kernel tells it.
    pub fn round_trip(&self) -> Option<Duration> {
        self.round_trip
    }

    /// Returns the message that tells a run of this host where the connection goes, for the start of what
    /// the run reads. It is empty if the kernel does not know.
    pub fn reached(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        if let (Ok(address), Some(round_trip)) = (self.stream.socket().peer_addr(), self.round_trip) {
            // It has no part that could be too long.
            let _ = BootstrapMessage::Reached(Reached { address, round_trip }).encode(&mut bytes);
        }
        bytes
    }

    /// Returns the server's part of the bootstrap if the handshake told it: the run needs not wait
    /// for it, and [`ChannelReader::hear_go`] has to hear it.
    pub fn answer_ahead(&self) -> Option<Vec<u8>> {
        let server = ServerBootstrap {
            version: VERSION,
            features: FEATURES,
            // There is no other connection for it to prove a key on.
            fingerprint: Fingerprint([0; 32]),
            udp_port: None,
            tcp_port: None,
            addresses: Vec::new(),
        };
        let mut bytes = Vec::new();
        for message in [BootstrapMessage::Server(server), BootstrapMessage::Go] {
            message.encode(&mut bytes).ok()?;
        }
        self.is_ahead.then_some(bytes)
    }

    /// Returns the two directions, for a thread each.
    pub fn split(mut self) -> (ChannelReader, ChannelWriter) {
        self.opener.widen();
        let stream = Arc::clone(&self.stream);
        let writer = ChannelWriter { stream, sealer: Sealer::default(), count: Count::default() };
        let Self { stream, opener, welcome_by, skips_certificate, .. } = self;
        (ChannelReader { stream, opener, welcome_by, skips_certificate, count: Count::default() }, writer)
    }

    /// Returns descriptors that two threads copy to and from the channel.
    ///
    /// # Errors
    /// The system's: no descriptors, no threads.
    pub fn into_descriptors(self) -> io::Result<Copying> {
        let (ours, theirs) = UnixStream::pair()?;
        let (mut reader, mut writer) = self.split();
        let (sent, received) = (writer.count.clone(), reader.count.clone());
        let stream = Arc::clone(&writer.stream);
        let (mut to_session, mut from_session) = (ours.try_clone()?, ours);

        spawn(move || {
            // However it ends, the session sees the end.
            let _ = io::copy(&mut reader, &mut to_session);
            let _ = to_session.shutdown(Shutdown::Write);
        })?;
        let thread = spawn(move || {
            let _ = copy(&mut from_session, &mut writer);
            let _ = from_session.shutdown(Shutdown::Read);
        })?;
        let sending = Sending { thread, stream };

        let input = theirs.try_clone()?.into();
        Ok(Copying { input, output: theirs.into(), sending, sent, received })
    }

    /// Sends a text and ends the channel.
    ///
    /// # Errors
    /// The system's error.
    pub fn say(self, text: &str) -> io::Result<()> {
        self.end_with(text.as_bytes())
    }

    /// Tells a client whose run is about to begin why it does not: the server's part of a bootstrap
    /// that is over at once. Whoever went away does not hear it.
    pub fn refuse(self, exit_code: u8, why: &str) {
        let _ = self.end_with(&refusal(exit_code, why));
    }

    /// Sends the last bytes. An end with unread bytes of the client would take them with it: the
    /// client has sent its greeting by then, and what its run says behind it. A client that neither
    /// takes them nor hangs up is left after [`LAST_WORD`].
    fn end_with(self, bytes: &[u8]) -> io::Result<()> {
        let _limit = Limit::start(&self.stream)?;
        let (mut reader, mut writer) = self.split();
        writer.write_all(bytes)?;
        writer.finish()?;

        let (mut heard, mut piece) = (0, vec![0; COPY_BYTES]);
        while heard < MAX_LAST_WORD {
            match reader.read(&mut piece) {
                Ok(0) => break,
                Ok(count) => heard += count,
                // Who has all bytes may hang up without a farewell.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => break,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// A limit of the time for a last word: after [`LAST_WORD`] the connection is shut, which ends every
/// read and write of it. A time limit of the socket would begin anew with each byte.
struct Limit {
    /// Dropped first, which ends the thread.
    is_over: Option<mpsc::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Limit {
    fn start(stream: &Arc<Stream>) -> io::Result<Self> {
        let stream = Arc::clone(stream);
        let (is_over, told) = mpsc::channel::<()>();
        let thread = spawn(move || {
            if told.recv_timeout(LAST_WORD) == Err(mpsc::RecvTimeoutError::Timeout) {
                stream.shut(Shutdown::Both);
            }
        })?;
        Ok(Self { is_over: Some(is_over), thread: Some(thread) })
    }
}

impl Drop for Limit {
    fn drop(&mut self) {
        drop(self.is_over.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Tells a client at the other end of a remote shell's pipe why its run does not begin. Whoever went
/// away does not hear it.
pub fn refuse(output: &mut impl Write, exit_code: u8, why: &str) {
    let _ = output.write_all(&refusal(exit_code, why)).and_then(|()| output.flush());
}

/// Returns the server's part of a bootstrap that is over at once.
fn refusal(exit_code: u8, why: &str) -> Vec<u8> {
    let text = why.bytes().take(MAX_REFUSAL_TEXT).collect();
    let mut bytes = Vec::new();
    // A text of this length can always be encoded.
    let _ = BootstrapMessage::Refusal(Refusal::Other { exit_code, text }).encode(&mut bytes);
    bytes
}

/// Returns the exit code and the reason of a server that sent a refusal in place of what was asked
/// for; escape the reason before printing.
pub fn refusal_of(answer: &[u8]) -> Option<(u8, String)> {
    match BootstrapMessage::parse(answer) {
        Ok(Parsed::Complete {
            message: BootstrapMessage::Refusal(Refusal::Other { exit_code, text }),
            ..
        }) => Some((exit_code, String::from_utf8_lossy(&text).into_owned())),
        _ => None,
    }
}

/// The descriptors of a channel that two threads copy.
pub struct Copying {
    /// Receives from the peer.
    pub input: OwnedFd,
    /// Sends to the peer.
    pub output: OwnedFd,
    /// The thread that sends. A process that ends before it cuts off what was written last.
    pub sending: Sending,
    /// The bytes that were sent.
    pub sent: Count,
    /// The bytes that were received.
    pub received: Count,
}

/// The thread that sends to the peer of a channel.
pub struct Sending {
    thread: JoinHandle<()>,
    stream: Arc<Stream>,
}

impl Sending {
    /// Waits until all that was written is sent, for 5 s at most: then the connection ends, so that
    /// a peer which does not read keeps nobody.
    pub fn finish(self) {
        let Self { thread, stream } = self;
        match Limit::start(&stream) {
            Ok(_limit) => drop(thread.join()),
            Err(_) => stream.shut(Shutdown::Both),
        }
    }
}

/// A number that grows: of bytes, or of connections.
#[derive(Debug, Clone, Default)]
pub struct Count(Arc<AtomicU64>);

impl Count {
    /// Returns the number so far.
    pub fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    pub(crate) fn add(&self, more: usize) {
        self.0.fetch_add(more as u64, Ordering::Relaxed);
    }
}

fn spawn(work: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    thread::Builder::new().name("dsync-channel".into()).spawn(work)
}

/// Copies everything and ends the channel's direction cleanly.
///
/// # Errors
/// The system's error.
pub fn copy(from: &mut impl Read, to: &mut ChannelWriter) -> io::Result<()> {
    let mut buffer = vec![0; COPY_BYTES];
    loop {
        match from.read(&mut buffer) {
            Ok(0) => return to.finish(),
            Ok(count) => to.write_all(&buffer[..count])?,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// The receiving direction.
pub struct ChannelReader {
    stream: Arc<Stream>,
    opener: Opener,
    /// The time by which the server's first byte has to come, until it has.
    welcome_by: Option<Instant>,
    /// Whether a certificate comes before it.
    skips_certificate: bool,
    count: Count,
}

impl ChannelReader {
    /// Waits, as the client, until the server has let its key in.
    ///
    /// # Errors
    /// [`ChannelError::Refused`] if it does not, and the others of a connection.
    pub fn hear_welcome(&mut self) -> Result<(), ChannelError> {
        let Some(end) = self.welcome_by.take() else { return Ok(()) };
        if self.skips_certificate {
            receive_certificate(&self.stream, &mut self.opener, end)?;
        }
        let mut welcome = [0];
        let heard = read_exactly(&self.stream, &mut self.opener, &mut welcome, end);
        heard.map_err(|error| match error {
            // The server judges the client's key after its own part of the handshake.
            StreamError::Tls(rustls::Error::AlertReceived(_)) => ChannelError::Refused,
            error => error.into(),
        })?;
        match welcome {
            WELCOME => {}
            NOT_ADMITTED => return Err(ChannelError::Refused),
            _ => return Err(ChannelError::NotDsync { why: "no welcome".to_owned() }),
        }
        Ok(self.stream.set_read_timeout(None).map_err(StreamError::Io)?)
    }

    /// Reads what the server says to its end, at most `most` bytes, within `limit`.
    ///
    /// # Errors
    /// [`ChannelError::TimedOut`], and the others of a connection.
    pub fn read_all(&mut self, most: usize, limit: Duration) -> Result<Vec<u8>, ChannelError> {
        let end = deadline(limit);
        let (mut said, mut piece) = (Vec::new(), vec![0; COPY_BYTES]);
        while said.len() < most {
            match self.opener.read_by(&self.stream, &mut piece, end)? {
                0 => break,
                count => said.extend_from_slice(&piece[..count]),
            }
        }
        said.truncate(most);
        Ok(said)
    }

    /// Waits for the server's part of a bootstrap that the run has [ahead](Channel::answer_ahead).
    /// Returns the bytes behind it, the first of the link's.
    ///
    /// # Errors
    /// [`ChannelError::Told`] if the server refuses the session.
    pub fn hear_go(&mut self) -> Result<Vec<u8>, ChannelError> {
        let wrong = |why: &str| ChannelError::NotDsync { why: why.to_owned() };
        let (mut heard, mut piece) = (Vec::new(), vec![0; COPY_BYTES]);
        loop {
            // The codec bounds what can be incomplete.
            while !heard.is_empty()
                && let Parsed::Complete { message, consumed } =
                    BootstrapMessage::parse(&heard).map_err(|error| wrong(&error.to_string()))?
            {
                heard.drain(..consumed);
                match message {
                    BootstrapMessage::Go => return Ok(heard),
                    BootstrapMessage::Server(server)
                        if (server.version, server.features) == (VERSION, FEATURES) => {}
                    BootstrapMessage::Refusal(refusal) => return Err(refused(refusal)),
                    _ => return Err(wrong("another answer than its handshake told")),
                }
            }
            match self.read(&mut piece).map_err(StreamError::Io)? {
                0 => return Err(StreamError::Truncated.into()),
                count => heard.extend_from_slice(&piece[..count]),
            }
        }
    }
}

/// Returns the error for a refusal in the bootstrap.
fn refused(refusal: Refusal) -> ChannelError {
    match refusal.into_error() {
        BootstrapError::Refused { exit_code, text } => ChannelError::Told { exit_code, text },
        error @ (BootstrapError::Version { .. } | BootstrapError::Feature { .. }) => {
            ChannelError::NoVersion { why: error.to_string() }
        }
        error => ChannelError::NotDsync { why: error.to_string() },
    }
}

impl Read for ChannelReader {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        if self.welcome_by.is_some() {
            self.hear_welcome().map_err(io::Error::other)?;
        }
        let read = self.opener.read(&self.stream, buf).map_err(into_io)?;
        self.count.add(read);
        Ok(read)
    }
}

/// The sending direction.
pub struct ChannelWriter {
    stream: Arc<Stream>,
    sealer: Sealer,
    count: Count,
}

impl ChannelWriter {
    /// Ends the direction cleanly: the peer knows that nothing is missing.
    ///
    /// # Errors
    /// The system's error.
    pub fn finish(&mut self) -> io::Result<()> {
        self.sealer.finish(&self.stream).map_err(into_io)
    }
}

impl Write for ChannelWriter {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.sealer.write(&self.stream, buf).map_err(into_io)?;
        self.count.add(buf.len());
        Ok(buf.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn into_io(error: StreamError) -> io::Error {
    match error {
        StreamError::Io(error) => error,
        StreamError::Truncated => io::ErrorKind::UnexpectedEof.into(),
        StreamError::Tls(error) => io::Error::new(io::ErrorKind::InvalidData, error),
    }
}

/// The server's first byte.
const WELCOME: [u8; 1] = [1];
/// Time for the client to take a last word.
const LAST_WORD: Duration = Duration::from_secs(5);
/// Bytes that are read of a client that is told a last word: some lanes' windows, which its run may
/// have filled before it hears.
const MAX_LAST_WORD: usize = 16 << 20;
/// Bytes that are copied at a time: a few records.
const COPY_BYTES: usize = 128 << 10;

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::{
        versions::{ALPN, protocols},
        *,
    };

    pub(super) const LIMIT: Duration = Duration::from_secs(60);

    /// Connects, and waits for the server's word.
    fn enter(
        address: &Address,
        client: &PrivateKey,
        expected: Option<PublicKey>,
    ) -> Result<(ChannelReader, ChannelWriter), ChannelError> {
        let (mut reader, writer) = knock(address, client, expected)?.split();
        reader.hear_welcome()?;
        Ok((reader, writer))
    }

    /// Dials with a key for a server that is pinned, or not known.
    pub(super) fn knock(
        address: &Address,
        client: &PrivateKey,
        expected: Option<PublicKey>,
    ) -> Result<Channel, ChannelError> {
        let server = expected.map_or(Expected::Unknown, Expected::Key);
        dial(address, &ClientEnd { key: client, certificate: None, server }, "nas", LIMIT)
    }

    /// Answers as a server that pins its clients.
    fn receive(tcp: TcpStream, key: &PrivateKey, clients: &[PublicKey], limit: Duration) -> Answered {
        answer(tcp, &ServerEnd { key, certificate: None, clients, authorities: &[] }, limit)
    }

    type Answered = Result<Arrival, ChannelError>;

    /// Performs both parts over the loopback.
    fn meet(
        client: &PrivateKey,
        expected: Option<PublicKey>,
        server: &PrivateKey,
        known: &[PublicKey],
    ) -> (Result<(ChannelReader, ChannelWriter), ChannelError>, Answered) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let address = Address { host: "127.0.0.1".into(), port, family: AddressFamily::Any };
        thread::scope(|scope| {
            let answering = scope.spawn(|| receive(listener.accept().unwrap().0, server, known, LIMIT));
            let dialled = enter(&address, client, expected);
            (dialled, answering.join().unwrap())
        })
    }

    pub(super) fn keys() -> (PrivateKey, PrivateKey) {
        (PrivateKey::generate().unwrap(), PrivateKey::generate().unwrap())
    }

    #[test]
    fn two_that_know_each_other_have_a_channel_both_ways() {
        let (client, server) = keys();
        let (near, far) = meet(&client, Some(server.public()), &server, &[client.public()]);
        let Arrival { channel: far, key, share, certificate } = far.unwrap();
        assert_eq!((key, share.as_str(), certificate), (client.public(), "nas", None));
        let ((mut near_in, mut near_out), (mut far_in, mut far_out)) = (near.unwrap(), far.split());
        near_out.write_all(b"there").unwrap();
        near_out.finish().unwrap();
        let mut text = String::new();
        far_in.read_to_string(&mut text).unwrap();
        far_out.write_all(b"and back").unwrap();
        far_out.finish().unwrap();
        near_in.read_to_string(&mut text).unwrap();
        assert_eq!(text, "thereand back");
    }

    /// Dials a server that knows these protocols and says this once it has heard the share's name.
    pub(super) fn dial_one_that(protocols: Vec<Vec<u8>>, says: &[u8]) -> (Option<Vec<u8>>, ChannelReader) {
        let (client, server) = keys();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let address = Address { host: "127.0.0.1".into(), port, family: AddressFamily::Any };
        let config = server.identity().standing_server(vec![client.public().pin()], protocols).unwrap();
        thread::scope(|scope| {
            scope.spawn(move || {
                let (stream, mut opener) =
                    Stream::server(listener.accept().unwrap().0, Arc::new(config), LIMIT).unwrap();
                read_exactly(&stream, &mut opener, &mut [0; 4], Instant::now() + LIMIT).unwrap();
                let mut sealer = Sealer::default();
                sealer.write(&stream, says).unwrap();
                sealer.finish(&stream).unwrap();
            });
            let channel = knock(&address, &client, Some(server.public())).unwrap();
            let ahead = channel.answer_ahead();
            (ahead, channel.split().0)
        })
    }

    #[test]
    fn a_client_goes_ahead_only_of_a_server_of_its_own_version_and_features() {
        let (ahead, _) = dial_one_that(protocols(), &WELCOME);
        let Ok(Parsed::Complete { message: BootstrapMessage::Server(answer), .. }) =
            BootstrapMessage::parse(&ahead.unwrap())
        else {
            panic!("no answer")
        };
        assert_eq!((answer.version, answer.features), (VERSION, FEATURES));
        let other = format!("dsync-share/2 {VERSION} {:x}", FEATURES ^ 1).into_bytes();
        for known in [vec![ALPN.to_vec()], vec![other, ALPN.to_vec()]] {
            let (ahead, _) = dial_one_that(known, &WELCOME);
            assert_eq!(ahead, None);
        }
    }

    #[test]
    fn both_ends_know_the_round_trip_and_the_client_where_it_is() {
        let (client, server) = keys();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let there = listener.local_addr().unwrap();
        let address = Address { host: "127.0.0.1".into(), port: there.port(), family: AddressFamily::Any };
        let known = [client.public()];
        let (near, far) = thread::scope(|scope| {
            let answering = scope.spawn(|| receive(listener.accept().unwrap().0, &server, &known, LIMIT));
            (knock(&address, &client, Some(server.public())), answering.join().unwrap())
        });
        let (near, far) = (near.unwrap(), far.unwrap().channel);
        let told = BootstrapMessage::parse(&near.reached());
        let Ok(Parsed::Complete { message: BootstrapMessage::Reached(reached), .. }) = told else {
            panic!("{told:?}")
        };
        assert_eq!((reached.address, Some(reached.round_trip)), (there, near.round_trip()));
        assert!(far.round_trip().is_some_and(|round_trip| round_trip < LIMIT));
    }

    #[test]
    fn whoever_goes_ahead_hears_the_answer_all_the_same() {
        let heard = |answer: &[u8]| {
            let (_, mut reader) = dial_one_that(protocols(), &[&WELCOME[..], answer].concat());
            reader.hear_go()
        };
        let answer = dial_one_that(protocols(), &WELCOME).0.unwrap();
        assert_eq!(heard(&[&answer[..], b"link"].concat()).unwrap(), b"link");

        let told = heard(&refusal(42, "no"));
        assert!(matches!(told, Err(ChannelError::Told { exit_code: 42, .. })), "{told:?}");
        let Ok(Parsed::Complete { message: BootstrapMessage::Server(server), .. }) =
            BootstrapMessage::parse(&answer)
        else {
            panic!("no answer")
        };
        let mut another = Vec::new();
        let server = ServerBootstrap { features: FEATURES ^ 1, ..server };
        for message in [BootstrapMessage::Server(server), BootstrapMessage::Go] {
            message.encode(&mut another).unwrap();
        }
        for broken in [&b""[..], &answer[..answer.len() - 1], b"220 mail", &another] {
            let ended = heard(broken);
            assert!(matches!(ended, Err(ChannelError::NotDsync { .. })), "{ended:?}");
        }
    }

    #[test]
    fn a_server_that_is_not_known_or_has_another_key_is_named_and_gets_nothing() {
        let (client, server) = keys();
        let other = PrivateKey::generate().unwrap().public();
        for expected in [None, Some(other)] {
            let (near, far) = meet(&client, expected, &server, &[client.public()]);
            let shown = matches!(near, Err(ChannelError::ServerKey { shown }) if shown == server.public());
            assert!(shown && far.is_err());
        }
    }

    #[test]
    fn a_client_that_is_not_known_is_refused() {
        let (client, server) = keys();
        let other = PrivateKey::generate().unwrap().public();
        for known in [&[][..], &[other]] {
            let (near, far) = meet(&client, Some(server.public()), &server, known);
            assert!(matches!(near.err(), Some(ChannelError::Refused)) && far.is_err());
        }
    }

    #[test]
    fn garbage_and_endless_handshakes_end_early() {
        let (client, server) = keys();
        // A record of a handshake that never ends, and text of another protocol.
        let endless = [&[22, 3, 3, 0x40, 0][..], &[1, 0xff, 0xff, 0xff], &vec![0; 0x4000 - 4]].concat();
        for garbage in [b"GET / HTTP/1.1\r\n\r\n".to_vec(), endless.repeat(8)] {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let mut stranger = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let tcp = listener.accept().unwrap().0;
            let sending = thread::spawn(move || {
                let _ = stranger.write_all(&garbage);
                stranger
            });
            let error = receive(tcp, &server, &[client.public()], LIMIT).err();
            assert!(matches!(error, Some(ChannelError::NotDsync { .. })), "{error:?}");
            drop(sending.join());
        }
    }

    #[test]
    fn a_client_that_says_nothing_is_given_up() {
        let (client, server) = keys();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let silent = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let tcp = listener.accept().unwrap().0;
        let error = receive(tcp, &server, &[client.public()], Duration::from_millis(50)).err();
        assert!(matches!(error, Some(ChannelError::TimedOut)), "{error:?}");
        drop(silent);
    }
}
