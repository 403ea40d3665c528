//! Certificates: short statements, signed by an authority, that a key is a server's or a client's of some name.
//!
//! One line of text: `dsync-ed25519-cert` and the bytes as hexadecimal digits. The bytes:
//!
//! ```text
//! version: u8 = 1
//! kind: u8, 1 a server's, 2 a client's
//! key: 32 bytes
//! first second, and the first second after the last: u64 LE each, since 1970
//! number of bytes: u8, a name: of a key, or a host or `*.` and a domain
//! authority's key: 32 bytes
//! Ed25519 signature: 64 bytes, over SIGNED_FIRST and all bytes before
//! ```
//!
//! The law: a [`Certificate`] is one that its authority has signed, whatever it says, and it has no second
//! spelling. Whether that authority is trusted, and for which names, is for the end that judges it. No chains: an
//! authority's key is pinned where it is trusted, and its certificates end by themselves.

use std::{
    fmt,
    net::{IpAddr, Ipv6Addr},
    str::FromStr,
};

use aws_lc_rs::signature::{ED25519, Ed25519KeyPair, UnparsedPublicKey};

use super::key::{PrivateKey, PublicKey, bytes_of_line, hexadecimal};

/// The end whose key a certificate is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CertificateKind {
    /// A server, whose name is a host or a pattern of hosts.
    Server,
    /// A client, whose name is that of a key in the server's configuration.
    Client,
}

impl CertificateKind {
    /// Returns whether a certificate of this kind can have a name.
    pub fn admits(self, name: &str) -> bool {
        match self {
            Self::Server => is_host(name.strip_prefix("*.").unwrap_or(name)),
            Self::Client => {
                let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
                name.len() <= LONGEST_KEY_NAME
                    && name.starts_with(|first: char| first.is_ascii_alphanumeric())
                    && name.bytes().all(allowed)
            }
        }
    }

    fn number(self) -> u8 {
        match self {
            Self::Server => 1,
            Self::Client => 2,
        }
    }
}

impl fmt::Display for CertificateKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Server => "server",
            Self::Client => "client",
        })
    }
}

/// A statement that an authority has signed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Certificate {
    kind: CertificateKind,
    key: PublicKey,
    from: u64,
    until: u64,
    name: String,
    authority: PublicKey,
    signature: [u8; SIGNATURE],
}

/// The reason why a certificate is none, or does not fit.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CertificateError {
    /// There is none.
    #[error("there is no certificate")]
    Missing,
    /// The text or the bytes are no certificate.
    #[error("is no certificate like '{WORD} 01...'")]
    Malformed,
    /// The authority that it names has not signed it.
    #[error("the certificate is not signed by the authority that it names")]
    Signature,
    /// It is for another key than the one that was proved.
    #[error("the certificate is of another key")]
    Key,
    /// It is for the other end.
    #[error("the certificate is a {found}'s")]
    Kind {
        /// Its kind.
        found: CertificateKind,
    },
    /// It is for another name.
    #[error("the certificate is for '{named}'")]
    Name {
        /// Its name.
        named: String,
    },
    /// Another authority has signed it.
    #[error("the certificate is of another authority, with the fingerprint {}", .found.fingerprint())]
    Authority {
        /// The other authority.
        found: PublicKey,
    },
    /// Its time is to come.
    #[error("the certificate is not valid yet")]
    Early {
        /// Its first second since 1970.
        from: u64,
    },
    /// Its time is over.
    #[error("the certificate has expired")]
    Expired {
        /// The first second since 1970 after its last.
        until: u64,
    },
    /// A name that no certificate of the kind can have.
    #[error("'{name}' is no name of a {kind}")]
    Unnameable {
        /// The kind.
        kind: CertificateKind,
        /// The name.
        name: String,
    },
}

impl Certificate {
    /// Signs a certificate with an authority's key, for the seconds since 1970 from the first one up to, and
    /// without, the second one.
    ///
    /// # Errors
    /// [`CertificateError::Unnameable`], and [`CertificateError::Expired`] for one that would never be valid.
    pub fn sign(
        authority: &PrivateKey,
        (kind, name): (CertificateKind, &str),
        key: PublicKey,
        (from, until): (u64, u64),
    ) -> Result<Self, CertificateError> {
        // A certificate with a port in its name is one, but would fit no client: none is made.
        let is_address = || name.parse::<Ipv6Addr>().is_ok();
        let has_port = kind == CertificateKind::Server && name.contains(':') && !is_address();
        if has_port || !kind.admits(name) {
            return Err(CertificateError::Unnameable { kind, name: name.to_owned() });
        }
        if until <= from {
            return Err(CertificateError::Expired { until });
        }
        let signer =
            Ed25519KeyPair::from_pkcs8(authority.pkcs8()).map_err(|_| CertificateError::Signature)?;
        let (name, authority) = (name.to_owned(), authority.public());
        let mut made = Self { kind, key, from, until, name, authority, signature: [0; SIGNATURE] };
        let signature = signer.sign(&signed(&made.statement()));
        made.signature.copy_from_slice(signature.as_ref());
        Ok(made)
    }

    /// Parses the bytes of a certificate and verifies its signature.
    ///
    /// # Errors
    /// [`CertificateError::Malformed`] and [`CertificateError::Signature`].
    ///
    /// # Security
    /// Anybody can send the bytes. At most [`MAX_CERTIFICATE`] are looked at, and one signature is verified.
    pub fn parse(bytes: &[u8]) -> Result<Self, CertificateError> {
        let wrong = CertificateError::Malformed;
        let read = |bytes: &[u8]| read(bytes).filter(|found| found.kind.admits(&found.name));
        let found = Some(bytes).filter(|bytes| bytes.len() <= MAX_CERTIFICATE).and_then(read).ok_or(wrong)?;

        let verifier = UnparsedPublicKey::new(&ED25519, found.authority.bytes());
        let verified = verifier.verify(&signed(&found.statement()), &found.signature);
        verified.map_err(|_| CertificateError::Signature)?;
        Ok(found)
    }

    /// Returns its bytes.
    pub fn bytes(&self) -> Vec<u8> {
        [&self.statement()[..], &self.signature].concat()
    }

    /// Returns the bytes before the signature.
    fn statement(&self) -> Vec<u8> {
        let Self { kind, key, from, until, name, authority, .. } = self;
        // A name that `admits` lets pass fits.
        let len = u8::try_from(name.len()).unwrap_or(u8::MAX);
        let mut bytes = vec![VERSION, kind.number()];
        bytes.extend(key.bytes());
        bytes.extend(from.to_le_bytes());
        bytes.extend(until.to_le_bytes());
        bytes.push(len);
        bytes.extend(name.as_bytes());
        bytes.extend(authority.bytes());
        bytes
    }

    /// Returns the end that it is for.
    pub fn kind(&self) -> CertificateKind {
        self.kind
    }

    /// Returns the key that it is for.
    pub fn key(&self) -> PublicKey {
        self.key
    }

    /// Returns the name that it gives the key.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the authority that has signed it.
    pub fn authority(&self) -> PublicKey {
        self.authority
    }

    /// Returns its first second since 1970.
    pub fn from(&self) -> u64 {
        self.from
    }

    /// Returns the first second since 1970 after its last.
    pub fn until(&self) -> u64 {
        self.until
    }

    /// Judges whose it is: the end, and the key that it must be for.
    ///
    /// # Errors
    /// [`CertificateError::Kind`] and [`CertificateError::Key`].
    pub fn belongs_to(&self, kind: CertificateKind, key: &PublicKey) -> Result<(), CertificateError> {
        if self.kind != kind {
            return Err(CertificateError::Kind { found: self.kind });
        }
        if self.key != *key {
            return Err(CertificateError::Key);
        }
        Ok(())
    }

    /// Judges its time. A clock that is slow by [`TOLERANCE`] seconds does not refuse one that was just made.
    ///
    /// # Errors
    /// [`CertificateError::Early`] and [`CertificateError::Expired`].
    pub fn is_in_time(&self, now: u64) -> Result<(), CertificateError> {
        if now.saturating_add(TOLERANCE) < self.from {
            return Err(CertificateError::Early { from: self.from });
        }
        if now >= self.until {
            return Err(CertificateError::Expired { until: self.until });
        }
        Ok(())
    }

    /// Judges it as a server that has proved `key`: it must be a client's, of an authority for its name.
    ///
    /// # Errors
    /// [`CertificateError`]: the first thing that does not fit.
    pub(super) fn admits_client(
        &self,
        key: &PublicKey,
        authorities: &[(String, PublicKey)],
        now: u64,
    ) -> Result<(), CertificateError> {
        self.belongs_to(CertificateKind::Client, key)?;
        let mut of_name = authorities.iter().filter(|(name, _)| *name == self.name).peekable();
        if of_name.peek().is_none() {
            return Err(CertificateError::Name { named: self.name.clone() });
        }
        if !of_name.any(|(_, authority)| *authority == self.authority) {
            return Err(CertificateError::Authority { found: self.authority });
        }
        self.is_in_time(now)
    }

    /// Judges it as a client of a host that has proved `key`: it must be a server's, of one of these authorities.
    ///
    /// # Errors
    /// [`CertificateError`]: the first thing that does not fit.
    pub(super) fn vouches_for(
        &self,
        (host, key): (&str, &PublicKey),
        authorities: &[PublicKey],
        now: u64,
    ) -> Result<(), CertificateError> {
        self.belongs_to(CertificateKind::Server, key)?;
        if !authorities.contains(&self.authority) {
            return Err(CertificateError::Authority { found: self.authority });
        }
        if !host_fits(&self.name, host) {
            return Err(CertificateError::Name { named: self.name.clone() });
        }
        self.is_in_time(now)
    }
}

impl fmt::Display for Certificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{WORD} {}", hexadecimal(&self.bytes()))
    }
}

impl FromStr for Certificate {
    type Err = CertificateError;

    /// Reads the two words of a certificate; a comment may follow.
    fn from_str(text: &str) -> Result<Self, CertificateError> {
        Self::parse(&bytes_of_line(WORD, text).ok_or(CertificateError::Malformed)?)
    }
}

/// Returns whether a host has a name, or one of a pattern: `*.example.org` stands for one label before the rest,
/// and never for a part of an address.
pub fn host_fits(pattern: &str, host: &str) -> bool {
    let host = host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase();
    match pattern.strip_prefix("*.") {
        None => pattern == host,
        Some(domain) => {
            let rest = host.split_once('.').filter(|(label, _)| !label.is_empty());
            rest.is_some_and(|(_, rest)| rest == domain) && host.parse::<IpAddr>().is_err()
        }
    }
}

/// Returns whether a text can be a host's name or address, in lower case.
fn is_host(name: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"._:-".contains(&byte);
    (1..=LONGEST_HOST).contains(&name.len()) && !name.starts_with('.') && name.bytes().all(allowed)
}

/// Returns the bytes that a signature is over.
fn signed(statement: &[u8]) -> Vec<u8> {
    [SIGNED_FIRST, statement].concat()
}

/// Reads the fields; `None` unless they are all there and nothing else is.
fn read(bytes: &[u8]) -> Option<Certificate> {
    let ([VERSION, kind], rest) = bytes.split_first_chunk()? else { return None };
    let kind = match kind {
        1 => CertificateKind::Server,
        2 => CertificateKind::Client,
        _ => return None,
    };
    let (key, rest) = rest.split_first_chunk()?;
    let (from, rest) = rest.split_first_chunk()?;
    let (until, rest) = rest.split_first_chunk()?;

    let (len, rest) = rest.split_first()?;
    let (name, rest) = rest.split_at_checked(usize::from(*len))?;
    let name = std::str::from_utf8(name).ok()?.to_owned();
    let (authority, rest) = rest.split_first_chunk()?;
    let signature = rest.try_into().ok()?;

    let [from, until] = [*from, *until].map(u64::from_le_bytes);
    let [key, authority] = [*key, *authority].map(PublicKey::of_bytes);
    Some(Certificate { kind, key, from, until, name, authority, signature })
}

/// Most bytes of a certificate: those of the longest name, and some room.
pub const MAX_CERTIFICATE: usize = 512;
/// Seconds by which the clock of an end that judges may be behind that of the authority.
pub const TOLERANCE: u64 = 300;
/// The word before a certificate.
const WORD: &str = "dsync-ed25519-cert";
/// The bytes before a statement, so that no signature over anything else is one of a certificate.
const SIGNED_FIRST: &[u8] = b"dsync certificate 1\0";
const VERSION: u8 = 1;
/// Bytes of an Ed25519 signature.
const SIGNATURE: usize = 64;
/// Bytes of the longest name of a key, as in a server's configuration.
const LONGEST_KEY_NAME: usize = 64;
/// Bytes of the longest name of a host (RFC 1035, section 2.3.4), as text.
const LONGEST_HOST: usize = 253;

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TIMES: (u64, u64) = (1_000_000, 2_000_000);

    fn key() -> PrivateKey {
        PrivateKey::generate().unwrap()
    }

    fn certificate(authority: &PrivateKey, kind: CertificateKind, name: &str) -> Certificate {
        Certificate::sign(authority, (kind, name), key().public(), TIMES).unwrap()
    }

    #[test]
    fn a_certificate_comes_back_from_its_text_and_bytes() {
        let authority = key();
        let longest = "h".repeat(LONGEST_HOST);
        let pattern = format!("*.{}", &longest[2..]);
        for (kind, name) in [
            (CertificateKind::Client, "web1"),
            (CertificateKind::Client, "k".repeat(LONGEST_KEY_NAME).as_str()),
            (CertificateKind::Server, "nas.example.org"),
            (CertificateKind::Server, "*.example.org"),
            (CertificateKind::Server, "2001:db8::1"),
            (CertificateKind::Server, longest.as_str()),
            (CertificateKind::Server, pattern.as_str()),
        ] {
            let made = certificate(&authority, kind, name);
            assert_eq!(Certificate::parse(&made.bytes()), Ok(made.clone()));
            assert_eq!(format!(" {made} of the nas\n").parse(), Ok(made.clone()));
            assert!(made.bytes().len() <= MAX_CERTIFICATE);
            assert_eq!((made.name(), made.kind(), made.authority()), (name, kind, authority.public()));
            assert_eq!((made.from(), made.until()), TIMES);
        }
    }

    #[test]
    fn names_that_could_be_taken_for_others_are_not_certified() {
        let authority = key();
        let long = "h".repeat(LONGEST_HOST + 1);
        for (kind, name) in [
            (CertificateKind::Client, ""),
            (CertificateKind::Client, "-rf"),
            (CertificateKind::Client, "a/b"),
            (CertificateKind::Client, "a\nb"),
            (CertificateKind::Client, "k".repeat(LONGEST_KEY_NAME + 1).as_str()),
            (CertificateKind::Server, ""),
            (CertificateKind::Server, "*"),
            (CertificateKind::Server, "*."),
            (CertificateKind::Server, "*.*.org"),
            (CertificateKind::Server, "a*.org"),
            (CertificateKind::Server, "NAS"),
            (CertificateKind::Server, ".org"),
            (CertificateKind::Server, long.as_str()),
        ] {
            let refused = Certificate::sign(&authority, (kind, name), key().public(), TIMES);
            assert_eq!(refused, Err(CertificateError::Unnameable { kind, name: name.to_owned() }));

            // As a hostile peer could have it signed by a key of its own.
            let (name, authority_key) = (name.to_owned(), authority.public());
            let bytes = Certificate {
                kind,
                key: key().public(),
                from: 0,
                until: 1,
                name,
                authority: authority_key,
                signature: [0; SIGNATURE],
            }
            .bytes();
            assert_eq!(Certificate::parse(&bytes), Err(CertificateError::Malformed));
        }
        for times in [(5, 5), (6, 5)] {
            let signed = Certificate::sign(&authority, (CertificateKind::Client, "a"), key().public(), times);
            assert_eq!(signed, Err(CertificateError::Expired { until: 5 }));
        }
    }

    #[test]
    fn a_server_is_certified_for_no_port() {
        let sign =
            |name: &str| Certificate::sign(&key(), (CertificateKind::Server, name), key().public(), TIMES);
        for name in ["nas:8731", "192.0.2.1:8730", "*.lan:8730", "*.::1", "nas:"] {
            let refused =
                CertificateError::Unnameable { kind: CertificateKind::Server, name: name.to_owned() };
            assert_eq!(sign(name), Err(refused));
        }
        for name in ["nas", "192.0.2.1", "::1", "2001:db8::1", "*.lan"] {
            assert!(sign(name).is_ok(), "{name}");
        }
    }

    #[test]
    fn a_client_is_let_in_by_its_names_authority_for_its_own_key_and_in_time() {
        let (authority, other) = (key(), key());
        let made = certificate(&authority, CertificateKind::Client, "web1");
        let names = |name: &str, by: &PrivateKey| (name.to_owned(), by.public());
        let known = [names("web2", &other), names("web1", &authority), names("web1", &other)];
        let judge = |known: &[_], now| made.admits_client(&made.key(), known, now);
        for now in [TIMES.0 - TOLERANCE, TIMES.0, TIMES.1 - 1] {
            assert_eq!(judge(&known, now), Ok(()));
        }

        assert_eq!(judge(&known, TIMES.0 - TOLERANCE - 1), Err(CertificateError::Early { from: TIMES.0 }));
        assert_eq!(judge(&known, TIMES.1), Err(CertificateError::Expired { until: TIMES.1 }));
        let named = CertificateError::Name { named: "web1".to_owned() };
        assert_eq!(judge(&[names("web2", &authority)], TIMES.0), Err(named.clone()));
        assert_eq!(judge(&[], TIMES.0), Err(named));
        let found = authority.public();
        let by_another = [names("web1", &other), names("web2", &authority)];
        assert_eq!(judge(&by_another, TIMES.0), Err(CertificateError::Authority { found }));
        let stolen = made.admits_client(&other.public(), &known, TIMES.0);
        assert_eq!(stolen, Err(CertificateError::Key));
        let servers = certificate(&authority, CertificateKind::Server, "web1");
        let kind = CertificateError::Kind { found: CertificateKind::Server };
        assert_eq!(servers.admits_client(&servers.key(), &known, TIMES.0), Err(kind));
    }

    #[test]
    fn a_server_is_one_of_the_host_that_its_authority_names() {
        let (authority, other) = (key(), key());
        let made = certificate(&authority, CertificateKind::Server, "*.example.org");
        let (own, known) = (made.key(), [other.public(), authority.public()]);
        let judge = |host, known: &[_]| made.vouches_for((host, &own), known, TIMES.0);
        assert_eq!(judge("nas.example.org", &known), Ok(()));
        let found = authority.public();
        assert_eq!(judge("nas.example.org", &[other.public()]), Err(CertificateError::Authority { found }));
        let named = CertificateError::Name { named: "*.example.org".to_owned() };
        assert_eq!(judge("example.org", &known), Err(named));

        let late = made.vouches_for(("nas.example.org", &own), &known, TIMES.1);
        assert_eq!(late, Err(CertificateError::Expired { until: TIMES.1 }));
        let stolen = made.vouches_for(("nas.example.org", &other.public()), &known, TIMES.0);
        assert_eq!(stolen, Err(CertificateError::Key));
        let clients = certificate(&authority, CertificateKind::Client, "nas");
        let kind = CertificateError::Kind { found: CertificateKind::Client };
        assert_eq!(clients.vouches_for(("nas", &clients.key()), &known, TIMES.0), Err(kind));
    }

    #[test]
    fn a_pattern_stands_for_one_label_and_no_address() {
        for (pattern, host, fits) in [
            ("nas", "nas", true),
            ("nas", "NAS.", true),
            ("nas", "nas2", false),
            ("*.example.org", "nas.example.org", true),
            ("*.example.org", "Nas.Example.Org.", true),
            ("*.example.org", "example.org", false),
            ("*.example.org", ".example.org", false),
            ("*.example.org", "a.nas.example.org", false),
            ("*.example.org", "nasexample.org", false),
            ("*.0.2.1", "192.0.2.1", false),
            ("192.0.2.1", "192.0.2.1", true),
        ] {
            assert_eq!(host_fits(pattern, host), fits, "{pattern} {host}");
        }
    }

    proptest! {
        #[test]
        fn every_changed_or_missing_byte_is_refused(at in 0_usize..400, bits in 1_u8.., name in "[a-z0-9]{1,64}") {
            let good = certificate(&key(), CertificateKind::Client, &name).bytes();
            let mut changed = good.clone();
            let at = at % good.len();
            changed[at] ^= bits;
            prop_assert!(Certificate::parse(&changed).is_err());
            prop_assert!(Certificate::parse(&good[..at]).is_err());
            prop_assert!(Certificate::parse(&[&good[..], &[bits]].concat()).is_err());
        }

        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
            prop_assert!(Certificate::parse(&bytes).is_err());
            prop_assert!(Certificate::parse(&[&[1, 2][..], &bytes].concat()).is_err());
        }
    }
}
