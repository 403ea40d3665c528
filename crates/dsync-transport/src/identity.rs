//! Authentication over the network: each side makes a key pair for this one run and knows the
//! other's by its fingerprint, which was sent over ssh.
//!
//! The keys are raw public keys (RFC 7250): no certificate is made, parsed or checked against a
//! clock. A verifier accepts exactly the keys whose fingerprints it was given. It still verifies
//! the TLS 1.3 handshake signature, without which a pin proves nothing. TLS 1.3 only, no
//! resumption, no tickets, no early data: a recorded handshake is worthless later.

use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicBool, Ordering},
};

use aws_lc_rs::{digest, rand::SystemRandom, signature::Ed25519KeyPair};
use dsync_wire::{bootstrap::Fingerprint, version::ALPN};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, PeerIncompatible, SignatureScheme,
    client::{
        AlwaysResolvesClientRawPublicKeys, Resumption,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    },
    crypto::{
        CryptoProvider, WebPkiSupportedAlgorithms, aws_lc_rs as provider, verify_tls13_signature_with_raw_key,
    },
    pki_types::{CertificateDer, PrivatePkcs8KeyDer, ServerName, SubjectPublicKeyInfoDer, UnixTime},
    server::{
        ClientHello, NoServerSessionStorage, ResolvesServerCert,
        danger::{ClientCertVerified, ClientCertVerifier},
    },
    sign::CertifiedKey,
};

/// One side's key pair of one run. The private key exists only in this process's memory.
#[derive(Clone)]
pub(crate) struct Identity {
    key: Arc<CertifiedKey>,
    fingerprint: Fingerprint,
}

impl Identity {
    /// Generates a key pair from the system's random numbers.
    pub(crate) fn generate() -> Result<Self, Error> {
        let document = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new())
            .map_err(|_| Error::FailedToGetRandomBytes)?;
        Ok(Self::from_pkcs8(document.as_ref())?.0)
    }

    /// Reads a key pair from its PKCS #8 document; also returns its SubjectPublicKeyInfo.
    pub(crate) fn from_pkcs8(document: &[u8]) -> Result<(Self, Vec<u8>), Error> {
        let signer = provider::sign::any_eddsa_type(&PrivatePkcs8KeyDer::from(document))?;
        let spki = signer
            .public_key()
            .map(|spki| spki.as_ref().to_vec())
            .ok_or(Error::General("no public key".into()))?;
        let fingerprint = fingerprint(&spki);
        let key = Arc::new(CertifiedKey::new(vec![CertificateDer::from(spki.clone())], signer));
        Ok((Self { key, fingerprint }, spki))
    }

    /// Returns the fingerprint to send to the peer over ssh.
    pub(crate) fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }

    /// Returns a TLS server configuration that accepts the client with the key `client` and no
    /// other.
    pub(crate) fn server_config(&self, client: Fingerprint) -> Result<rustls::ServerConfig, Error> {
        self.standing_server(vec![client], vec![ALPN.to_vec()])
    }

    /// Returns a TLS server configuration that accepts clients with one of these keys, for the first
    /// of these protocols that the client knows.
    pub(crate) fn standing_server(
        &self,
        clients: Vec<Fingerprint>,
        protocols: Vec<Vec<u8>>,
    ) -> Result<rustls::ServerConfig, Error> {
        self.certifying_server(clients, Vec::new(), protocols)
    }

    /// Returns a TLS server configuration that accepts clients with one of these keys, and any client that
    /// offers one of the protocols `certified`, which come before the others: who that is its caller has to
    /// judge after the handshake. The configuration is for one connection.
    pub(crate) fn certifying_server(
        &self,
        clients: Vec<Fingerprint>,
        certified: Vec<Vec<u8>>,
        protocols: Vec<Vec<u8>>,
    ) -> Result<rustls::ServerConfig, Error> {
        let provider = Arc::new(provider());
        let pin = Arc::new(Pin::new(clients, &provider));
        let mut all = certified.clone();
        all.extend(protocols);
        let shown = Shown { key: Arc::clone(&self.key), certified, pin: Arc::clone(&pin) };
        let mut config = rustls::ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .with_client_cert_verifier(pin)
            .with_cert_resolver(Arc::new(shown));
        config.alpn_protocols = all;
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        config.max_early_data_size = 0;
        Ok(config)
    }

    /// Returns a TLS client configuration that accepts the server with the key `server` and no
    /// other, and a flag that is set if it meets another.
    pub(crate) fn client_config(
        &self,
        server: Fingerprint,
    ) -> Result<(rustls::ClientConfig, Arc<AtomicBool>), Error> {
        let (config, pin) = self.standing_client(vec![server], vec![ALPN.to_vec()])?;
        Ok((config, Arc::clone(&pin.mismatch)))
    }

    /// Returns a TLS client configuration that accepts a server with one of these keys, for one of
    /// these protocols, and the judge of the key that it shows.
    pub(crate) fn standing_client(
        &self,
        servers: Vec<Fingerprint>,
        protocols: Vec<Vec<u8>>,
    ) -> Result<(rustls::ClientConfig, Arc<Pin>), Error> {
        let provider = Arc::new(provider());
        let pin = Pin::new(servers, &provider);
        self.client(pin, provider, protocols)
    }

    /// Returns a TLS client configuration that accepts any server that proves the key that it shows: which one
    /// that is its caller has to judge before it says a word.
    pub(crate) fn certifying_client(&self, protocols: Vec<Vec<u8>>) -> Result<rustls::ClientConfig, Error> {
        let provider = Arc::new(provider());
        let pin = Pin::new(Vec::new(), &provider);
        pin.admits_any.store(true, Ordering::Relaxed);
        Ok(self.client(pin, provider, protocols)?.0)
    }

    fn client(
        &self,
        pin: Pin,
        provider: Arc<CryptoProvider>,
        protocols: Vec<Vec<u8>>,
    ) -> Result<(rustls::ClientConfig, Arc<Pin>), Error> {
        let pin = Arc::new(pin);
        let judge = Arc::clone(&pin);
        let mut config = rustls::ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .dangerous()
            .with_custom_certificate_verifier(pin)
            .with_client_cert_resolver(Arc::new(AlwaysResolvesClientRawPublicKeys::new(Arc::clone(
                &self.key,
            ))));
        config.alpn_protocols = protocols;
        config.resumption = Resumption::disabled();
        config.enable_early_data = false;
        config.enable_sni = false;
        Ok((config, judge))
    }
}

pub(crate) fn fingerprint(spki: &[u8]) -> Fingerprint {
    let mut bytes = [0; 32];
    bytes.copy_from_slice(digest::digest(&digest::SHA256, spki).as_ref());
    Fingerprint(bytes)
}

/// Returns the cryptography: AES-128-GCM first, the fastest wherever the CPU has AES instructions,
/// and 128 bits outlast the run.
///
/// There is one key exchange: both ends have one version, and a second one would only permit a
/// downgrade. It is secure as long as one of X25519 and ML-KEM-768 is, so somebody who records a
/// run today cannot decrypt it once X25519 falls.
fn provider() -> CryptoProvider {
    let mut provider = provider::default_provider();
    provider.cipher_suites = vec![
        provider::cipher_suite::TLS13_AES_128_GCM_SHA256,
        provider::cipher_suite::TLS13_CHACHA20_POLY1305_SHA256,
    ];
    provider.kx_groups = vec![provider::kx_group::X25519MLKEM768];
    provider
}

/// Returns the key exchanges and ciphers of QUIC and TLS, by their names in RFC 8446 and its
/// registries, the preferred ones first.
///
/// ```
/// // For an audit:
/// let (exchanges, ciphers) = dsync_transport::cryptography();
/// println!("key exchange: {}; ciphers: {}", exchanges.join(", "), ciphers.join(", "));
/// # assert!(!exchanges.is_empty() && !ciphers.is_empty());
/// ```
pub fn cryptography() -> (Vec<String>, Vec<String>) {
    let provider = provider();
    let name = |text: String| text.trim_start_matches("TLS13_").to_owned();
    let exchanges = provider.kx_groups.iter().map(|group| format!("{:?}", group.name())).collect();
    let ciphers = provider.cipher_suites.iter().map(|suite| name(format!("{:?}", suite.suite()))).collect();
    (exchanges, ciphers)
}

/// A server's key, for a client whose offer decides whether keys that nobody expects are let through the
/// handshake.
#[derive(Debug)]
struct Shown {
    key: Arc<CertifiedKey>,
    certified: Vec<Vec<u8>>,
    pin: Arc<Pin>,
}

impl ResolvesServerCert for Shown {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let mut offered = hello.alpn().into_iter().flatten();
        let certifies = offered.any(|name| self.certified.iter().any(|known| known == name));
        self.pin.admits_any.store(certifies, Ordering::Relaxed);
        Some(Arc::clone(&self.key))
    }

    fn only_raw_public_keys(&self) -> bool {
        true
    }
}

/// A verifier that accepts some keys, mostly one.
#[derive(Debug)]
pub(crate) struct Pin {
    expected: Vec<Fingerprint>,
    /// Whether another key is left to a judge after the handshake.
    admits_any: AtomicBool,
    algorithms: WebPkiSupportedAlgorithms,
    /// Set when the peer shows another key.
    pub(crate) mismatch: Arc<AtomicBool>,
    /// The other key.
    shown: Mutex<Option<Vec<u8>>>,
}

impl Pin {
    fn new(expected: Vec<Fingerprint>, provider: &CryptoProvider) -> Self {
        let algorithms = provider.signature_verification_algorithms;
        let admits_any = AtomicBool::default();
        Self { expected, admits_any, algorithms, mismatch: Arc::default(), shown: Mutex::default() }
    }

    /// Returns the SubjectPublicKeyInfo that the peer showed in place of an expected one; it did
    /// not have to prove it.
    pub(crate) fn shown(&self) -> Option<Vec<u8>> {
        self.shown.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn check(&self, shown: &CertificateDer<'_>, more: &[CertificateDer<'_>]) -> Result<(), Error> {
        let is_admitted =
            self.admits_any.load(Ordering::Relaxed) || self.expected.contains(&fingerprint(shown));
        if more.is_empty() && is_admitted {
            return Ok(());
        }
        *self.shown.lock().unwrap_or_else(PoisonError::into_inner) = Some(shown.to_vec());
        self.mismatch.store(true, Ordering::Relaxed);
        Err(CertificateError::ApplicationVerificationFailure.into())
    }

    fn signature(
        &self,
        message: &[u8],
        key: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let spki = SubjectPublicKeyInfoDer::from(key.as_ref());
        verify_tls13_signature_with_raw_key(message, &spki, signature, &self.algorithms)
            .inspect_err(|_| self.mismatch.store(true, Ordering::Relaxed))
    }
}

impl ServerCertVerifier for Pin {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.check(end_entity, intermediates).map(|()| ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(PeerIncompatible::Tls12NotOffered.into())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

impl ClientCertVerifier for Pin {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.check(end_entity, intermediates).map(|()| ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(PeerIncompatible::Tls12NotOffered.into())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

#[cfg(test)]
impl Identity {
    /// Returns an identity that shows `other`'s public key and signs with its own private one.
    pub(crate) fn pretending_to_be(&self, other: &Self) -> Self {
        let key = CertifiedKey::new(other.key.cert.clone(), Arc::clone(&self.key.key));
        Self { key: Arc::new(key), fingerprint: other.fingerprint }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::io::Cursor;

    use rustls::{ClientConfig, ClientConnection, ServerConfig, ServerConnection, SideData};

    use super::*;

    /// Both sides of a completed handshake.
    type Both = (ClientConnection, ServerConnection);

    /// Performs a handshake between the two configurations.
    fn shake(client: ClientConfig, server: ServerConfig) -> Result<Both, Error> {
        let name = ServerName::try_from("dsync").unwrap();
        let mut client = ClientConnection::new(Arc::new(client), name)?;
        let mut server = ServerConnection::new(Arc::new(server))?;
        while client.wants_write() || server.wants_write() {
            let (mut there, mut back) = (Vec::new(), Vec::new());
            while client.wants_write() {
                client.write_tls(&mut there).unwrap();
            }
            hear(&mut server, &there)?;
            while server.wants_write() {
                server.write_tls(&mut back).unwrap();
            }
            hear(&mut client, &back)?;
        }
        Ok((client, server))
    }

    fn hear<S: SideData>(side: &mut rustls::ConnectionCommon<S>, bytes: &[u8]) -> Result<(), Error> {
        let mut bytes = Cursor::new(bytes);
        while bytes.position() < bytes.get_ref().len() as u64 {
            side.read_tls(&mut bytes).unwrap();
            side.process_new_packets()?;
        }
        Ok(())
    }

    fn configurations() -> (ClientConfig, ServerConfig) {
        let (near, far) = (Identity::generate().unwrap(), Identity::generate().unwrap());
        let (client, _) = near.client_config(far.fingerprint()).unwrap();
        (client, far.server_config(near.fingerprint()).unwrap())
    }

    #[test]
    fn the_two_keys_that_know_each_other_meet() {
        let (client, server) = configurations();
        let (client, server) = shake(client, server).unwrap();
        assert_eq!(client.protocol_version(), Some(rustls::ProtocolVersion::TLSv1_3));
        assert_eq!(server.alpn_protocol(), Some(ALPN));
        for group in [client.negotiated_key_exchange_group(), server.negotiated_key_exchange_group()] {
            assert_eq!(group.unwrap().name(), rustls::NamedGroup::X25519MLKEM768);
        }
    }

    /// With the processor's noise among its random numbers, each process would pay 25 ms before its
    /// first handshake. See `.cargo/config.toml`, which cargo reads below the checkout.
    #[test]
    fn random_numbers_are_the_systems() {
        assert_eq!(option_env!("AWS_LC_SYS_NO_JITTER_ENTROPY"), Some("1"));
    }

    #[test]
    fn a_key_exchange_that_a_quantum_computer_breaks_is_refused() {
        let (_, server) = configurations();
        let (near, far) = (Identity::generate().unwrap(), Identity::generate().unwrap());
        let mut old = super::provider();
        old.kx_groups = vec![provider::kx_group::X25519];
        let pin = Arc::new(Pin::new(vec![far.fingerprint()], &old));
        let client = ClientConfig::builder_with_provider(Arc::new(old))
            .with_protocol_versions(&[&rustls::version::TLS13])
            .unwrap()
            .dangerous()
            .with_custom_certificate_verifier(pin)
            .with_client_cert_resolver(Arc::new(AlwaysResolvesClientRawPublicKeys::new(near.key)));
        let refused = shake(client, server).unwrap_err();
        assert!(
            matches!(refused, Error::PeerIncompatible(PeerIncompatible::NoKxGroupsInCommon)),
            "{refused:?}"
        );
    }

    #[test]
    fn nothing_is_resumed_and_no_data_comes_early() {
        let (mut client, server) = configurations();
        // As if the client were another program that wants both.
        client.resumption = Resumption::in_memory_sessions(8);
        client.enable_early_data = true;
        let (client, server) = (Arc::new(client), Arc::new(server));
        for _ in 0..2 {
            let (mut near, far) = shake((*client).clone(), (*server).clone()).unwrap();
            assert_eq!(near.tls13_tickets_received(), 0);
            assert_eq!(near.handshake_kind(), Some(rustls::HandshakeKind::Full));
            assert_eq!(far.handshake_kind(), Some(rustls::HandshakeKind::Full));
            assert!(near.early_data().is_none() && !near.is_early_data_accepted());
        }
    }

    #[test]
    fn another_protocol_or_version_of_it_is_refused() {
        for offered in [&b"dsync/0"[..], b"h3", b"http/1.1"] {
            let (mut client, server) = configurations();
            client.alpn_protocols = vec![offered.to_vec()];
            assert!(matches!(shake(client, server), Err(Error::NoApplicationProtocol)));
        }
    }

    #[test]
    fn an_older_tls_is_refused() {
        let (_, server) = configurations();
        let mut server = ServerConnection::new(Arc::new(server)).unwrap();
        // A ClientHello of TLS 1.2: version, random, no session,
        // TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256, no compression, and the extensions that it needs
        // (groups: x25519, signatures: Ed25519).
        let body = [
            &[3, 3][..],
            &[7; 32],
            &[0, 0, 2, 0xc0, 0x2f, 1, 0],
            &[0, 16, 0, 10, 0, 4, 0, 2, 0, 29, 0, 13, 0, 4, 0, 2, 8, 7],
        ]
        .concat();
        let handshake = [&[1, 0, 0, u8::try_from(body.len()).unwrap()][..], &body].concat();
        let record = [&[22, 3, 1, 0, u8::try_from(handshake.len()).unwrap()][..], &handshake].concat();
        let refused = hear(&mut server, &record).unwrap_err();
        assert!(
            matches!(refused, Error::PeerIncompatible(PeerIncompatible::SupportedVersionsExtensionRequired)),
            "{refused:?}"
        );
    }
}
