//! Who may talk over the network: a key pair made for this one run on each side, each known to the other by its
//! fingerprint, which travelled over ssh.
//!
//! The keys are raw public keys (RFC 7250): no certificate is made, parsed or checked against a clock.
//! A verifier takes exactly the one key whose fingerprint it was given, and it still verifies the
//! TLS 1.3 handshake signature, without which a pin proves nothing. TLS 1.3 only, no resumption, no
//! tickets, no early data: a recorded handshake is worth nothing later.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use dsync_wire::{bootstrap::Fingerprint, version::ALPN};
use ring::{digest, rand::SystemRandom, signature::Ed25519KeyPair};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, PeerIncompatible, SignatureScheme,
    client::{
        AlwaysResolvesClientRawPublicKeys, Resumption,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    },
    crypto::{
        CryptoProvider, WebPkiSupportedAlgorithms, ring as provider, verify_tls13_signature_with_raw_key,
    },
    pki_types::{CertificateDer, PrivatePkcs8KeyDer, ServerName, SubjectPublicKeyInfoDer, UnixTime},
    server::{
        AlwaysResolvesServerRawPublicKeys, NoServerSessionStorage,
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
    /// Makes a key pair from the system's random numbers.
    pub(crate) fn generate() -> Result<Self, Error> {
        let document = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new())
            .map_err(|_| Error::FailedToGetRandomBytes)?;
        let signer = provider::sign::any_eddsa_type(&PrivatePkcs8KeyDer::from(document.as_ref()))?;
        let spki = signer
            .public_key()
            .map(|spki| spki.as_ref().to_vec())
            .ok_or(Error::General("no public key".into()))?;
        let fingerprint = fingerprint(&spki);
        Ok(Self { key: Arc::new(CertifiedKey::new(vec![CertificateDer::from(spki)], signer)), fingerprint })
    }

    /// What the peer is told over ssh.
    pub(crate) fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }

    /// The TLS side that takes the client with the key `client` and no other.
    pub(crate) fn server_config(&self, client: Fingerprint) -> Result<rustls::ServerConfig, Error> {
        let provider = Arc::new(provider());
        let pin = Arc::new(Pin::new(client, &provider));
        let mut config = rustls::ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .with_client_cert_verifier(pin)
            .with_cert_resolver(Arc::new(AlwaysResolvesServerRawPublicKeys::new(Arc::clone(&self.key))));
        config.alpn_protocols = vec![ALPN.to_vec()];
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        config.max_early_data_size = 0;
        Ok(config)
    }

    /// The TLS side that talks to the server with the key `server` and no other, and the flag that is
    /// set when it met another.
    pub(crate) fn client_config(
        &self,
        server: Fingerprint,
    ) -> Result<(rustls::ClientConfig, Arc<AtomicBool>), Error> {
        let provider = Arc::new(provider());
        let pin = Arc::new(Pin::new(server, &provider));
        let mismatch = Arc::clone(&pin.mismatch);
        let mut config = rustls::ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .dangerous()
            .with_custom_certificate_verifier(pin)
            .with_client_cert_resolver(Arc::new(AlwaysResolvesClientRawPublicKeys::new(Arc::clone(
                &self.key,
            ))));
        config.alpn_protocols = vec![ALPN.to_vec()];
        config.resumption = Resumption::disabled();
        config.enable_early_data = false;
        config.enable_sni = false;
        Ok((config, mismatch))
    }
}

fn fingerprint(spki: &[u8]) -> Fingerprint {
    let mut bytes = [0; 32];
    bytes.copy_from_slice(digest::digest(&digest::SHA256, spki).as_ref());
    Fingerprint(bytes)
}

/// AES-128-GCM first: fastest wherever the CPU has AES instructions, and 128 bits outlast the run.
fn provider() -> CryptoProvider {
    let mut provider = provider::default_provider();
    provider.cipher_suites = vec![
        provider::cipher_suite::TLS13_AES_128_GCM_SHA256,
        provider::cipher_suite::TLS13_CHACHA20_POLY1305_SHA256,
    ];
    provider
}

/// Takes one key.
#[derive(Debug)]
struct Pin {
    expected: Fingerprint,
    algorithms: WebPkiSupportedAlgorithms,
    /// Another key was shown.
    mismatch: Arc<AtomicBool>,
}

impl Pin {
    fn new(expected: Fingerprint, provider: &CryptoProvider) -> Self {
        let algorithms = provider.signature_verification_algorithms;
        Self { expected, algorithms, mismatch: Arc::default() }
    }

    fn check(&self, shown: &CertificateDer<'_>, more: &[CertificateDer<'_>]) -> Result<(), Error> {
        if more.is_empty() && fingerprint(shown) == self.expected {
            return Ok(());
        }
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
    /// Shows `other`'s public key and signs with its own private one.
    pub(crate) fn pretending_to_be(&self, other: &Self) -> Self {
        let key = CertifiedKey::new(other.key.cert.clone(), Arc::clone(&self.key.key));
        Self { key: Arc::new(key), fingerprint: other.fingerprint }
    }
}
