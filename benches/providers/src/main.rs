//! ring and aws-lc-rs beside each other, as dsync uses them: TLS 1.3 in memory, raw public keys,
//! AES-128-GCM, one thread.
//!
//! `cargo run --release` runs the cases in turn and prints the best of nine rounds.
//! `cargo run --release -- first CASE` prints the time of a process's first handshake. Measured
//! figures: docs/design/crypto.md.

use std::{
    collections::BTreeMap,
    error::Error,
    io::{self, Read, Write},
    sync::Arc,
    time::Instant,
};

use rustls::{
    ClientConfig, ClientConnection, DigitallySignedStruct, ServerConfig, ServerConnection, SignatureScheme,
    client::{
        Resumption,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    },
    crypto::{
        CryptoProvider, WebPkiSupportedAlgorithms, aws_lc_rs, ring, verify_tls13_signature_with_raw_key,
    },
    pki_types::{CertificateDer, PrivatePkcs8KeyDer, ServerName, SubjectPublicKeyInfoDer, UnixTime},
    server::AlwaysResolvesServerRawPublicKeys,
    sign::CertifiedKey,
    version::TLS13,
};

type Outcome<T> = Result<T, Box<dyn Error>>;

fn main() -> Outcome<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if let [first, name] = words.as_slice()
        && first == "first"
    {
        let begun = Instant::now();
        shake(&configurations(name)?)?;
        println!("{name}: first handshake of the process {:?}", begun.elapsed());
        return Ok(());
    }
    let cases = CASES.iter().map(|name| Ok((*name, configurations(name)?))).collect::<Outcome<Vec<_>>>()?;
    let mut best: BTreeMap<&str, Figures> = BTreeMap::new();
    for _ in 0..ROUNDS {
        for (name, ends) in &cases {
            let measured = measure(ends)?;
            best.entry(name).and_modify(|best| best.improve(&measured)).or_insert(measured);
        }
    }
    for (name, Figures { handshake_us, wire_bytes, seal, open }) in best {
        println!(
            "{name:28} {handshake_us:6.1} us both ends, {wire_bytes} bytes; seal {seal:.2} GB/s, open {open:.2} GB/s"
        );
    }
    Ok(())
}

/// The measurements of one case.
struct Figures {
    handshake_us: f64,
    wire_bytes: usize,
    seal: f64,
    open: f64,
}

impl Figures {
    fn improve(&mut self, other: &Self) {
        self.handshake_us = self.handshake_us.min(other.handshake_us);
        self.seal = self.seal.max(other.seal);
        self.open = self.open.max(other.open);
    }
}

type Ends = (Arc<ClientConfig>, Arc<ServerConfig>);

fn configurations(name: &str) -> Outcome<Ends> {
    let mut provider =
        if name.starts_with("ring") { ring::default_provider() } else { aws_lc_rs::default_provider() };
    provider.cipher_suites.retain(|suite| format!("{:?}", suite.suite()) == "TLS13_AES_128_GCM_SHA256");
    let wanted = name.rsplit(' ').next().unwrap_or_default();
    provider.kx_groups.retain(|group| format!("{:?}", group.name()) == wanted);
    if provider.kx_groups.is_empty() {
        return Err(format!("no such case: {name} (use one of {CASES:?})").into());
    }
    of_provider(provider, name.starts_with("ring"))
}

fn of_provider(provider: CryptoProvider, of_ring: bool) -> Outcome<Ends> {
    let provider = Arc::new(provider);
    let rng = ::ring::rand::SystemRandom::new();
    let document = ::ring::signature::Ed25519KeyPair::generate_pkcs8(&rng).map_err(|_| "no key")?;
    let document = PrivatePkcs8KeyDer::from(document.as_ref().to_vec());
    let signer = if of_ring {
        ring::sign::any_eddsa_type(&document)?
    } else {
        aws_lc_rs::sign::any_eddsa_type(&document)?
    };
    let spki = signer.public_key().ok_or("no public key")?.as_ref().to_vec();
    let key = Arc::new(CertifiedKey::new(vec![CertificateDer::from(spki)], signer));
    let mut server = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&[&TLS13])?
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(AlwaysResolvesServerRawPublicKeys::new(key)));
    server.send_tls13_tickets = 0;
    let anybody = Arc::new(Anybody(provider.signature_verification_algorithms));
    let mut client = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(anybody)
        .with_no_client_auth();
    client.resumption = Resumption::disabled();
    Ok((Arc::new(client), Arc::new(server)))
}

/// Performs a handshake in memory; returns both ends and the bytes that crossed.
fn shake((client, server): &Ends) -> Outcome<(ClientConnection, ServerConnection, usize)> {
    let mut client = ClientConnection::new(Arc::clone(client), ServerName::try_from("dsync")?)?;
    let mut server = ServerConnection::new(Arc::clone(server))?;
    let (mut wire_bytes, mut bytes) = (0, Vec::new());
    while client.is_handshaking() || server.is_handshaking() {
        bytes.clear();
        client.write_tls(&mut bytes)?;
        wire_bytes += bytes.len();
        let mut rest = bytes.as_slice();
        while !rest.is_empty() {
            server.read_tls(&mut rest)?;
            server.process_new_packets()?;
        }
        bytes.clear();
        server.write_tls(&mut bytes)?;
        wire_bytes += bytes.len();
        let mut rest = bytes.as_slice();
        while !rest.is_empty() {
            client.read_tls(&mut rest)?;
            client.process_new_packets()?;
        }
    }
    Ok((client, server, wire_bytes))
}

fn measure(ends: &Ends) -> Outcome<Figures> {
    let begun = Instant::now();
    let mut wire_bytes = 0;
    for _ in 0..HANDSHAKES {
        wire_bytes = shake(ends)?.2;
    }
    let handshake_us = begun.elapsed().as_secs_f64() * 1e6 / f64::from(HANDSHAKES);
    let (mut client, mut server, _) = shake(ends)?;
    let data = vec![7_u8; PIECE];
    let (mut sealed, mut opened) = (Vec::new(), vec![0_u8; PIECE]);
    let (mut sealing, mut opening) = (0.0, 0.0);
    for _ in 0..PIECES {
        sealed.clear();
        let begun = Instant::now();
        client.writer().write_all(&data)?;
        while client.wants_write() {
            client.write_tls(&mut sealed)?;
        }
        sealing += begun.elapsed().as_secs_f64();
        let begun = Instant::now();
        let (mut rest, mut got) = (sealed.as_slice(), 0);
        while got < PIECE {
            if !rest.is_empty() {
                server.read_tls(&mut rest)?;
                server.process_new_packets()?;
            }
            got += match server.reader().read(&mut opened) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => 0,
                result => result?,
            };
        }
        opening += begun.elapsed().as_secs_f64();
    }
    let gigabytes = (PIECE * PIECES) as f64 / 1e9;
    Ok(Figures { handshake_us, wire_bytes, seal: gigabytes / sealing, open: gigabytes / opening })
}

/// A verifier that accepts every key but checks its owner's signature.
#[derive(Debug)]
struct Anybody(WebPkiSupportedAlgorithms);

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Err(rustls::PeerIncompatible::Tls12NotOffered.into())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        key: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let spki = SubjectPublicKeyInfoDer::from(key.as_ref());
        verify_tls13_signature_with_raw_key(message, &spki, signature, &self.0)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

/// Provider and key exchange of each case.
const CASES: [&str; 3] = ["ring X25519", "aws-lc-rs X25519", "aws-lc-rs X25519MLKEM768"];
const ROUNDS: usize = 9;
const HANDSHAKES: u32 = 200;
/// Bytes per call: as many as a lane seals at once.
const PIECE: usize = 64 << 10;
const PIECES: usize = 3072;
