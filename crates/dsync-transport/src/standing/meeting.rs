//! The first words of a connection to a server that stands: who proves which key, and who passes.
//!
//! Where the handshake agrees on a protocol with certificates, either end says its own one first: its length,
//! u16 LE, and its bytes; no bytes are no certificate. The client says nothing before it knows that the
//! server is the right one: by its pinned key, in the handshake, or by its certificate.
//!
//! The law: a key passes if it is pinned, or if a certificate for that very key, which the handshake has
//! proved, fits what the other end was told. Without that protocol only a pinned key passes.

use std::{
    io,
    net::{SocketAddr, TcpStream, ToSocketAddrs as _},
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use super::{
    Address, Channel, ChannelError, WELCOME,
    certificate::{Certificate, CertificateError, MAX_CERTIFICATE},
    key::{PrivateKey, PublicKey},
    versions::{Offers, certified, is_ahead, is_certified, protocols},
};
use crate::tls::{
    handshake::read_exactly,
    stream::{Opener, Sealer, Stream, StreamError, deadline},
    tcp_info::TcpInfo,
};

/// A server, and the clients that it lets in.
#[derive(Debug, Clone, Copy)]
pub struct ServerEnd<'a> {
    /// Its own key.
    pub key: &'a PrivateKey,
    /// The certificate that it shows.
    pub certificate: Option<&'a Certificate>,
    /// The keys of clients that are pinned.
    pub clients: &'a [PublicKey],
    /// The authorities whose certificates let clients in, each with the one name for which it may.
    pub authorities: &'a [(String, PublicKey)],
}

/// A client that was let in.
pub struct Arrival {
    /// The connection.
    pub channel: Channel,
    /// The key that it has proved.
    pub key: PublicKey,
    /// The certificate by which it came in; `None` if its key is pinned.
    pub certificate: Option<Certificate>,
    /// The share that it wants.
    pub share: String,
}

/// Performs the server's part for a client that has connected.
///
/// # Errors
/// [`ChannelError`]; a client that is not let in is told so, and not why.
///
/// # Security
/// Anybody can connect. A stranger can make this take `limit` and 32 KiB, and learns the certificate.
pub fn answer(tcp: TcpStream, end: &ServerEnd<'_>, limit: Duration) -> Result<Arrival, ChannelError> {
    let until = deadline(limit);
    let pins = end.clients.iter().map(PublicKey::pin).collect();
    let certifies = end.certificate.is_some() || !end.authorities.is_empty();
    let certifying = if certifies { certified() } else { Vec::new() };
    let config = end.key.identity().certifying_server(pins, certifying, protocols());
    let mut config = config.map_err(|error| ChannelError::NotDsync { why: error.to_string() })?;
    let offers = Offers::noted_by(&mut config);
    let shaken = Stream::server(tcp, Arc::new(config), limit);
    let (stream, mut opener) = shaken.map_err(|error| match error {
        StreamError::Tls(rustls::Error::NoApplicationProtocol) => offers.none_in_common(),
        StreamError::Tls(rustls::Error::InvalidCertificate(
            rustls::CertificateError::ApplicationVerificationFailure,
        )) => ChannelError::UnknownKey,
        StreamError::Tls(rustls::Error::AlertReceived(rustls::AlertDescription::AccessDenied)) => {
            ChannelError::Distrusted
        }
        error => error.into(),
    })?;
    let key = proved_key(&stream)?;

    let certifies = is_certified(stream.protocol().as_deref());
    let mut shown = Vec::new();
    if certifies {
        send_certificate(&stream, end.certificate, &[])?;
        shown = receive_certificate(&stream, &mut opener, until)?;
    }
    let mut len = [0];
    read_exactly(&stream, &mut opener, &mut len, until)?;
    let mut share = vec![0; usize::from(len[0])];
    read_exactly(&stream, &mut opener, &mut share, until)?;
    let share = String::from_utf8(share)
        .map_err(|_| ChannelError::NotDsync { why: "the name of a share is no text".to_owned() })?;

    // Of a protocol without certificates the handshake has judged this; a client that says its offer twice in one
    // handshake is judged here.
    let is_pinned = end.clients.contains(&key);
    let certificate = if is_pinned { Ok(None) } else { admitting(&shown, &key, end.authorities).map(Some) };
    let certificate = certificate.map_err(|why| {
        let told = Sealer::default().write(&stream, &NOT_ADMITTED);
        let _ = told.and_then(|()| Sealer::default().finish(&stream));
        ChannelError::ClientCertificate { why }
    })?;

    Sealer::default().write(&stream, &WELCOME)?;
    stream.set_read_timeout(None).map_err(StreamError::Io)?;
    let round_trip = round_trip(&stream);
    let channel = Channel {
        stream: Arc::new(stream),
        opener,
        welcome_by: None,
        skips_certificate: false,
        is_ahead: false,
        round_trip,
    };
    Ok(Arrival { channel, key, certificate, share })
}

/// Returns the certificate by which a client whose key is not pinned is let in.
fn admitting(
    shown: &[u8],
    key: &PublicKey,
    authorities: &[(String, PublicKey)],
) -> Result<Certificate, CertificateError> {
    if shown.is_empty() {
        return Err(CertificateError::Missing);
    }
    let certificate = Certificate::parse(shown)?;
    certificate.admits_client(key, authorities, now())?;
    Ok(certificate)
}

/// A client of a server that stands.
#[derive(Debug, Clone, Copy)]
pub struct ClientEnd<'a> {
    /// Its own key.
    pub key: &'a PrivateKey,
    /// The certificate that it shows to a server that takes certificates.
    pub certificate: Option<&'a Certificate>,
    /// The server that it expects.
    pub server: Expected<'a>,
}

/// The server that a client expects.
#[derive(Debug, Clone, Copy)]
pub enum Expected<'a> {
    /// None: the key of the server is the error.
    Unknown,
    /// The one with this key.
    Key(PublicKey),
    /// One that one of these authorities certifies for the host.
    CertifiedBy(&'a [PublicKey]),
}

/// Connects to a server and asks for a share. Does not wait for the answer, which is
/// the reader's first ([`ChannelReader::hear_welcome`](super::ChannelReader::hear_welcome)).
///
/// # Errors
/// [`ChannelError`]; not yet that the server does not let the client in.
pub fn dial(
    address: &Address,
    end: &ClientEnd<'_>,
    share: &str,
    limit: Duration,
) -> Result<Channel, ChannelError> {
    let until = deadline(limit);
    let tcp = connect(address, limit)?;
    let (stream, mut opener) = shake(tcp, end, limit)?;
    let agreed = stream.protocol();
    let certifies = is_certified(agreed.as_deref());
    let mut skips_certificate = certifies;
    if let Expected::CertifiedBy(authorities) = end.server {
        let shown = proved_key(&stream)?;
        let judged = if certifies {
            skips_certificate = false;
            vouched(&receive_certificate(&stream, &mut opener, until)?, (&address.host, &shown), authorities)
        } else {
            Err(CertificateError::Missing)
        };
        judged.map_err(|why| ChannelError::ServerCertificate { shown, why })?;
    }

    let len = u8::try_from(share.len()).map_err(|_| ChannelError::Refused)?;
    let wanted = [&[len], share.as_bytes()].concat();
    if certifies {
        send_certificate(&stream, end.certificate, &wanted)?;
    } else {
        Sealer::default().write(&stream, &wanted)?;
    }
    let is_ahead = !share.is_empty() && is_ahead(agreed.as_deref());
    let round_trip = round_trip(&stream);
    let welcome_by = Some(until);
    Ok(Channel { stream: Arc::new(stream), opener, welcome_by, skips_certificate, is_ahead, round_trip })
}

/// Performs the client's handshake.
fn shake(tcp: TcpStream, end: &ClientEnd<'_>, limit: Duration) -> Result<(Stream, Opener), ChannelError> {
    let wrong = |error: rustls::Error| ChannelError::NotDsync { why: error.to_string() };
    let identity = end.key.identity();
    let both = || [certified(), protocols()].concat();
    let pins = match end.server {
        Expected::CertifiedBy(_) => {
            let config = identity.certifying_client(both()).map_err(wrong)?;
            let shaken = Stream::client(tcp, Arc::new(config), limit);
            return shaken
                .map_err(|error| if is_drop(&error) { ChannelError::Dropped } else { error.into() });
        }
        Expected::Key(pinned) => vec![pinned.pin()],
        Expected::Unknown => Vec::new(),
    };

    let offered = if end.certificate.is_some() { both() } else { protocols() };
    let (config, seen) = identity.standing_client(pins, offered).map_err(wrong)?;
    Stream::client(tcp, Arc::new(config), limit).map_err(|error| {
        let shown = seen.shown().as_deref().and_then(PublicKey::from_spki);
        match shown.filter(|_| seen.mismatch.load(Ordering::Relaxed)) {
            Some(shown) => ChannelError::ServerKey { shown },
            None if is_drop(&error) => ChannelError::Dropped,
            None => error.into(),
        }
    })
}

/// Judges the certificate of a server that has proved its key.
fn vouched(
    shown: &[u8],
    (host, key): (&str, &PublicKey),
    authorities: &[PublicKey],
) -> Result<(), CertificateError> {
    if shown.is_empty() {
        return Err(CertificateError::Missing);
    }
    Certificate::parse(shown)?.vouches_for((host, key), authorities, now())
}

/// Returns the key that the peer has proved.
fn proved_key(stream: &Stream) -> Result<PublicKey, ChannelError> {
    let proved = stream.peer_key().as_deref().and_then(PublicKey::from_spki);
    proved.ok_or_else(|| ChannelError::NotDsync { why: "no key was shown".to_owned() })
}

/// Sends a certificate, or word that there is none, and what follows it.
fn send_certificate(
    stream: &Stream,
    certificate: Option<&Certificate>,
    then: &[u8],
) -> Result<(), StreamError> {
    let bytes = certificate.map(Certificate::bytes).unwrap_or_default();
    // Certificates are shorter by far.
    let len = u16::try_from(bytes.len()).unwrap_or(u16::MAX);
    Sealer::default().write(stream, &[&len.to_le_bytes()[..], &bytes, then].concat())
}

/// Waits for the bytes of the peer's certificate; there are none if it has none.
pub(super) fn receive_certificate(
    stream: &Stream,
    opener: &mut Opener,
    until: Instant,
) -> Result<Vec<u8>, ChannelError> {
    let mut len = [0; 2];
    read_exactly(stream, opener, &mut len, until)?;
    let len = usize::from(u16::from_le_bytes(len));
    if len > MAX_CERTIFICATE {
        return Err(ChannelError::NotDsync { why: format!("a certificate of {len} bytes") });
    }
    let mut bytes = vec![0; len];
    read_exactly(stream, opener, &mut bytes, until)?;
    Ok(bytes)
}

/// Returns the seconds since 1970.
fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

/// Returns the shortest round trip of a connection. The kernel measures it, so a busy machine does not
/// make a path longer.
fn round_trip(stream: &Stream) -> Option<Duration> {
    TcpInfo::of(stream.socket()).map(|info| info.least_round_trip).filter(|least| !least.is_zero())
}

/// Returns whether a handshake failed because the connection was closed.
fn is_drop(error: &StreamError) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset};
    match error {
        StreamError::Truncated => true,
        StreamError::Io(error) => {
            matches!(error.kind(), BrokenPipe | ConnectionAborted | ConnectionReset)
        }
        StreamError::Tls(_) => false,
    }
}

/// Connects to the first address that answers.
fn connect(address: &Address, limit: Duration) -> Result<TcpStream, ChannelError> {
    let Address { host, port, family } = address;
    let failed = |source| ChannelError::Unreachable { host: host.clone(), port: *port, source };
    let found = (host.as_str(), *port).to_socket_addrs().map_err(failed)?;
    let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
    for address in found.filter(|address: &SocketAddr| family.admits(address.ip())) {
        match TcpStream::connect_timeout(&address, limit) {
            Ok(tcp) => return Ok(tcp),
            Err(error) => last = error,
        }
    }
    Err(failed(last))
}

/// The server's first byte to a client with whom it speaks of certificates and that it does not let in.
pub(super) const NOT_ADMITTED: [u8; 1] = [0];

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::{io::Write as _, net::TcpListener, thread};

    use dsync_wire::bootstrap::Fingerprint;

    use super::{
        super::{
            certificate::CertificateKind,
            tests::{LIMIT, keys},
            versions::ALPN,
        },
        *,
    };
    use crate::AddressFamily;

    /// An authority, and the keys of a client and a server.
    struct Parties {
        authority: PrivateKey,
        client: PrivateKey,
        server: PrivateKey,
    }

    const HOST: &str = "127.0.0.1";

    fn parties() -> Parties {
        let (client, server) = keys();
        Parties { authority: PrivateKey::generate().unwrap(), client, server }
    }

    fn certify(authority: &PrivateKey, kind: CertificateKind, name: &str, key: &PrivateKey) -> Certificate {
        Certificate::sign(authority, (kind, name), key.public(), (now(), now() + 3600)).unwrap()
    }

    impl Parties {
        fn of_client(&self) -> Certificate {
            certify(&self.authority, CertificateKind::Client, "web1", &self.client)
        }

        fn of_server(&self) -> Certificate {
            certify(&self.authority, CertificateKind::Server, HOST, &self.server)
        }

        fn authorities(&self) -> [(String, PublicKey); 1] {
            [("web1".to_owned(), self.authority.public())]
        }

        /// Returns a server that shows no certificate.
        fn house<'a>(
            &'a self,
            clients: &'a [PublicKey],
            authorities: &'a [(String, PublicKey)],
        ) -> ServerEnd<'a> {
            ServerEnd { key: &self.server, certificate: None, clients, authorities }
        }
    }

    /// Runs both ends over the loopback.
    fn both<N: Send, F: Send>(
        near: impl FnOnce(Address) -> N + Send,
        far: impl FnOnce(TcpStream) -> F + Send,
    ) -> (N, F) {
        let listener = TcpListener::bind((HOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let address = Address { host: HOST.into(), port, family: AddressFamily::Any };
        thread::scope(|scope| {
            let far = scope.spawn(move || far(listener.accept().unwrap().0));
            (near(address), far.join().unwrap())
        })
    }

    /// Dials, and waits for the server's word.
    fn enter(address: &Address, end: &ClientEnd<'_>) -> Result<Option<Vec<u8>>, ChannelError> {
        let channel = dial(address, end, "nas", LIMIT)?;
        let agreed = channel.stream.protocol();
        channel.split().0.hear_welcome().map(|()| agreed)
    }

    #[test]
    fn each_end_is_let_in_by_its_key_or_by_an_authority() {
        let parties = parties();
        let (of_client, of_server) = (parties.of_client(), parties.of_server());
        let (pinned, authorities) = ([parties.client.public()], parties.authorities());
        let known = [parties.authority.public()];
        for (client_is_certified, server_is_certified) in
            [(false, false), (true, false), (false, true), (true, true)]
        {
            let server = if server_is_certified {
                Expected::CertifiedBy(&known)
            } else {
                Expected::Key(parties.server.public())
            };
            let end = ClientEnd {
                key: &parties.client,
                certificate: Some(&of_client).filter(|_| client_is_certified),
                server,
            };
            let clients = if client_is_certified { &[][..] } else { &pinned };
            let house = ServerEnd {
                key: &parties.server,
                certificate: Some(&of_server).filter(|_| server_is_certified),
                clients,
                authorities: &authorities,
            };

            let (near, far) = both(|address| enter(&address, &end), |tcp| answer(tcp, &house, LIMIT));
            let (agreed, arrival) = (near.unwrap(), far.unwrap());
            let shows = is_certified(agreed.as_deref());
            assert_eq!(shows, client_is_certified || server_is_certified, "{agreed:?}");
            assert!(is_ahead(agreed.as_deref()));
            let by = Some(of_client.clone()).filter(|_| client_is_certified);
            assert_eq!((arrival.certificate, arrival.share.as_str()), (by, "nas"));
            assert_eq!(arrival.key, parties.client.public());
        }
    }

    #[test]
    fn a_limit_beyond_every_clock_is_none() {
        let parties = parties();
        let server = Expected::Key(parties.server.public());
        let end = ClientEnd { key: &parties.client, certificate: None, server };
        let pinned = [parties.client.public()];
        let house = parties.house(&pinned, &[]);
        let near = |address| {
            let mut reader = dial(&address, &end, "nas", Duration::MAX)?.split().0;
            reader.hear_welcome()?;
            reader.read_all(4, Duration::MAX)
        };
        let far = |tcp| {
            let channel = answer(tcp, &house, Duration::MAX)?.channel;
            Ok::<_, ChannelError>(Sealer::default().write(&channel.stream, b"text")?)
        };
        let (near, far) = both(near, far);
        far.unwrap();
        assert_eq!(near.unwrap(), b"text");
    }

    /// Enters as a client that says this in place of its certificate; returns the server's verdict and the
    /// byte that the client got.
    fn intrude(parties: &Parties, protocols: &[&[u8]], says: &[u8]) -> (ChannelError, Option<u8>) {
        let authorities = parties.authorities();
        let pins = [PrivateKey::generate().unwrap().public()];
        let house = parties.house(&pins, &authorities);
        let offered = protocols.iter().map(|name| name.to_vec()).collect();
        let config = parties.client.identity().certifying_client(offered).unwrap();

        let near = |address: Address| {
            let tcp = TcpStream::connect((HOST, address.port)).unwrap();
            let (stream, mut opener) = Stream::client(tcp, Arc::new(config), LIMIT).ok()?;
            let end = Instant::now() + LIMIT;
            if is_certified(stream.protocol().as_deref()) {
                receive_certificate(&stream, &mut opener, end).ok()?;
            }
            let _ = Sealer::default().write(&stream, says);
            let mut told = [0xff];
            read_exactly(&stream, &mut opener, &mut told, end).ok().map(|()| told[0])
        };
        let (told, refused) = both(near, |tcp| answer(tcp, &house, LIMIT).map(drop));
        (refused.unwrap_err(), told)
    }

    fn framed(certificate: &[u8]) -> Vec<u8> {
        let len = u16::try_from(certificate.len()).unwrap();
        [&len.to_le_bytes()[..], certificate, b"\x03nas"].concat()
    }

    #[test]
    fn no_key_passes_without_a_pin_or_a_certificate_that_fits() {
        let parties = parties();
        let other = PrivateKey::generate().unwrap();
        let good = parties.of_client();
        let mut forged = good.bytes();
        *forged.last_mut().unwrap() ^= 1;
        let client = CertificateKind::Client;
        let cases = [
            (Vec::new(), CertificateError::Missing),
            (vec![7; MAX_CERTIFICATE], CertificateError::Malformed),
            (forged, CertificateError::Signature),
            // A line that was stolen without its key.
            (certify(&parties.authority, client, "web1", &other).bytes(), CertificateError::Key),
            (
                certify(&parties.authority, client, "web2", &parties.client).bytes(),
                CertificateError::Name { named: "web2".to_owned() },
            ),
            (
                certify(&other, client, "web1", &parties.client).bytes(),
                CertificateError::Authority { found: other.public() },
            ),
            (
                certify(&parties.authority, CertificateKind::Server, "web1", &parties.client).bytes(),
                CertificateError::Kind { found: CertificateKind::Server },
            ),
        ];
        for (shown, expected) in cases {
            let (refused, told) = intrude(&parties, &[b"dsync-share-cert/1"], &framed(&shown));
            let ChannelError::ClientCertificate { why } = refused else { panic!("{refused:?}") };
            assert_eq!((why, told), (expected, Some(NOT_ADMITTED[0])));
        }

        // One that is too long ends it before it is read, and so does another handshake.
        for says in [&[0xff; 2][..], &[1, 2]] {
            let (refused, told) = intrude(&parties, &[b"dsync-share-cert/1"], says);
            assert!(matches!(refused, ChannelError::NotDsync { .. }) && told.is_none(), "{refused:?}");
        }
        let (refused, told) = intrude(&parties, &[ALPN], b"\x03nas");
        assert!(matches!(refused, ChannelError::UnknownKey) && told.is_none(), "{refused:?}");
    }

    /// Dials a server that does this after the handshake; returns the verdict.
    fn meet(
        parties: &Parties,
        protocols: Vec<Vec<u8>>,
        limit: Duration,
        acts: impl FnOnce(&Stream, &mut Opener) + Send,
    ) -> Result<(), ChannelError> {
        let known = [parties.authority.public()];
        let end =
            ClientEnd { key: &parties.client, certificate: None, server: Expected::CertifiedBy(&known) };
        let anybody: Vec<Fingerprint> = vec![parties.client.public().pin()];
        let config = parties.server.identity().standing_server(anybody, protocols).unwrap();
        let far = |tcp| {
            // A client with a short limit may have gone by then.
            let Ok((stream, mut opener)) = Stream::server(tcp, Arc::new(config), LIMIT) else { return };
            acts(&stream, &mut opener);
        };
        both(|address| dial(&address, &end, "nas", limit).map(drop), far).0
    }

    /// Waits for the client's end; it has said nothing.
    fn hear_nothing(stream: &Stream, opener: &mut Opener) {
        let heard = read_exactly(stream, opener, &mut [0], Instant::now() + LIMIT);
        assert!(matches!(heard, Err(StreamError::Truncated | StreamError::Io(_))), "{heard:?}");
    }

    #[test]
    fn a_client_says_nothing_to_a_server_whose_certificate_does_not_fit() {
        let parties = parties();
        let other = PrivateKey::generate().unwrap();
        let server = CertificateKind::Server;
        let cases = [
            (Vec::new(), CertificateError::Missing),
            (vec![7; 100], CertificateError::Malformed),
            (certify(&parties.authority, server, HOST, &other).bytes(), CertificateError::Key),
            (
                certify(&parties.authority, server, "nas", &parties.server).bytes(),
                CertificateError::Name { named: "nas".to_owned() },
            ),
            (
                certify(&other, server, HOST, &parties.server).bytes(),
                CertificateError::Authority { found: other.public() },
            ),
            (
                certify(&parties.authority, CertificateKind::Client, HOST, &parties.server).bytes(),
                CertificateError::Kind { found: CertificateKind::Client },
            ),
        ];
        for (shown, expected) in cases {
            let refused = meet(&parties, certified(), LIMIT, |stream, opener| {
                let framed = framed(&shown);
                Sealer::default().write(stream, &framed[..2 + shown.len()]).unwrap();
                hear_nothing(stream, opener);
            });
            let Err(ChannelError::ServerCertificate { shown, why }) = refused else { panic!("{refused:?}") };
            assert_eq!((shown, why), (parties.server.public(), expected));
        }

        // Without the protocol there is no certificate, whatever follows.
        let refused = meet(&parties, protocols(), LIMIT, hear_nothing);
        let Err(ChannelError::ServerCertificate { why, .. }) = refused else { panic!("{refused:?}") };
        assert_eq!(why, CertificateError::Missing);
        let refused = meet(&parties, certified(), LIMIT, |stream, opener| {
            Sealer::default().write(stream, &[0xff; 2]).unwrap();
            hear_nothing(stream, opener);
        });
        assert!(matches!(refused, Err(ChannelError::NotDsync { .. })), "{refused:?}");
    }

    #[test]
    fn a_silent_peer_is_given_up_and_a_slow_one_is_not() {
        let parties = parties();
        let shown = parties.of_server().bytes();
        let whole = framed(&shown)[..2 + shown.len()].to_vec();
        let slowly = |stream: &Stream, opener: &mut Opener| {
            let mut sealer = Sealer::default();
            whole.iter().for_each(|byte| sealer.write(stream, &[*byte]).unwrap());
            read_exactly(stream, opener, &mut [0; 6], Instant::now() + LIMIT).unwrap();
        };
        meet(&parties, certified(), LIMIT, slowly).unwrap();

        let short = Duration::from_millis(300);
        let part = &whole[..whole.len() - 1];
        let refused = meet(&parties, certified(), short, |stream, opener| {
            let _ = Sealer::default().write(stream, part);
            hear_nothing(stream, opener);
        });
        // A busy machine may not even have shaken hands by then.
        assert!(matches!(refused, Err(ChannelError::TimedOut)), "{refused:?}");

        let authorities = parties.authorities();
        let house = parties.house(&[], &authorities);
        let config = parties.client.identity().certifying_client(certified()).unwrap();
        let near = |address: Address| {
            let tcp = TcpStream::connect((HOST, address.port)).unwrap();
            if let Ok((stream, mut opener)) = Stream::client(tcp, Arc::new(config), LIMIT) {
                while read_exactly(&stream, &mut opener, &mut [0], Instant::now() + LIMIT).is_ok() {}
            }
        };
        let refused = both(near, |tcp| answer(tcp, &house, short).map(drop)).1;
        assert!(matches!(refused, Err(ChannelError::TimedOut)), "{refused:?}");
    }

    #[test]
    fn a_record_that_comes_byte_by_byte_gets_no_more_time_than_one_that_does_not_come() {
        let parties = parties();
        let authorities = parties.authorities();
        let house = parties.house(&[], &authorities);
        let config = parties.client.identity().certifying_client(certified()).unwrap();
        // A whole record would take minutes.
        let near = |address: Address| {
            let tcp = TcpStream::connect((HOST, address.port)).unwrap();
            let Ok((stream, _opener)) = Stream::client(tcp, Arc::new(config), LIMIT) else { return None };
            let record = Sealer::sealed(&stream, &[0; 16 << 10]);
            let is_sent = |byte: &&u8| {
                thread::sleep(Duration::from_millis(10));
                stream.socket().write_all(&[**byte]).is_ok()
            };
            Some(record.len() - record.iter().take_while(is_sent).count())
        };
        let far = |tcp| answer(tcp, &house, Duration::from_millis(300)).map(drop);
        let (left, refused) = both(near, far);
        // A busy machine may not even have shaken hands by then.
        assert!(matches!(refused, Err(ChannelError::TimedOut)), "{refused:?}");
        assert_ne!(left, Some(0), "the whole record was waited for");
    }
}
