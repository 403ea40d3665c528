//! Keys that outlive a run: of a client that has no login, and of the server that it goes to.
//!
//! An Ed25519 key pair. The public key is 32 bytes, written as `dsync-ed25519` and 64 hexadecimal
//! digits. The private key is a PKCS #8 document (RFC 8410), which only its owner's file holds.
//!
//! The law: a dropped private key leaves nothing of itself in the process's memory. aws-lc overwrites its own
//! copy when it frees it.

use std::{fmt, io, str::FromStr};

use aws_lc_rs::{digest, rand::SystemRandom, signature::Ed25519KeyPair};
use dsync_wire::bootstrap::Fingerprint;
use zeroize::Zeroizing;

use super::drawing::draw;
use crate::identity::Identity;

/// A key pair.
#[derive(Clone)]
pub struct PrivateKey {
    document: Zeroizing<Vec<u8>>,
    identity: Identity,
    public: PublicKey,
}

impl PrivateKey {
    /// Generates a key pair from the system's random numbers.
    ///
    /// # Errors
    /// The system has no random numbers.
    pub fn generate() -> io::Result<Self> {
        let document = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).map_err(io::Error::other)?;
        Self::from_pkcs8(document.as_ref())
    }

    /// Reads the document of a key pair.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidData`] for anything else than the document of an Ed25519 key.
    pub fn from_pkcs8(document: &[u8]) -> io::Result<Self> {
        let wrong = |_| io::Error::from(io::ErrorKind::InvalidData);
        let (identity, spki) = Identity::from_pkcs8(document).map_err(wrong)?;
        let public = PublicKey::from_spki(&spki).ok_or(io::ErrorKind::InvalidData)?;
        Ok(Self { document: Zeroizing::new(document.to_vec()), identity, public })
    }

    /// Returns the document, which is the secret.
    pub fn pkcs8(&self) -> &[u8] {
        &self.document
    }

    /// Returns the public key.
    pub fn public(&self) -> PublicKey {
        self.public
    }

    pub(super) fn identity(&self) -> &Identity {
        &self.identity
    }
}

impl fmt::Debug for PrivateKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PrivateKey").field("public", &self.public).finish_non_exhaustive()
    }
}

/// The public half of a key pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PublicKey([u8; 32]);

impl PublicKey {
    /// Returns the key of a SubjectPublicKeyInfo, if it is an Ed25519 one.
    pub(super) fn from_spki(spki: &[u8]) -> Option<Self> {
        spki.strip_prefix(&SPKI).and_then(|key| key.try_into().ok()).map(Self)
    }

    /// Returns the key of its 32 bytes.
    pub(super) fn of_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// Returns its 32 bytes.
    pub(super) fn bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// Returns what a handshake knows the key by.
    pub(super) fn pin(&self) -> Fingerprint {
        crate::identity::fingerprint(&[&SPKI[..], &self.0].concat())
    }

    /// Returns a short form for people to compare: 128 bits in groups of four digits.
    pub fn fingerprint(&self) -> String {
        let groups = self.compared().chunks(2).map(hexadecimal).collect::<Vec<_>>();
        groups.join("-")
    }

    /// Returns a drawing of the same 128 bits, which people compare at a glance: 11 lines of 19
    /// characters, as OpenSSH draws its keys.
    pub fn drawing(&self) -> String {
        draw(&self.compared())
    }

    /// Returns the bytes that people compare: half of a sum of the key.
    fn compared(&self) -> Vec<u8> {
        digest::digest(&digest::SHA256, &self.0).as_ref().iter().take(16).copied().collect()
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{KIND} {}", hexadecimal(&self.0))
    }
}

/// The error for text that is no public key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("is no key like '{KIND} 0123...', 64 hexadecimal digits")]
pub struct NotAKey;

impl FromStr for PublicKey {
    type Err = NotAKey;

    /// Reads the two words of a key; a comment may follow.
    fn from_str(text: &str) -> Result<Self, NotAKey> {
        let bytes = bytes_of_line(KIND, text);
        bytes.and_then(|bytes| bytes.try_into().ok()).map(Self).ok_or(NotAKey)
    }
}

/// Returns the bytes of a line that begins with this word; a comment may follow them.
pub(super) fn bytes_of_line(word: &str, line: &str) -> Option<Vec<u8>> {
    let mut words = line.split_ascii_whitespace();
    let (first, digits) = (words.next(), words.next().unwrap_or_default());
    from_hexadecimal(digits).filter(|_| first == Some(word))
}

/// Writes bytes as lower-case hexadecimal digits.
pub fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Reads hexadecimal digits.
pub fn from_hexadecimal(text: &str) -> Option<Vec<u8>> {
    let digits = text.bytes().map(|digit| char::from(digit).to_digit(16)).collect::<Option<Vec<_>>>()?;
    let pair = |pair: &[u32]| u8::try_from(pair[0] * 16 + pair[1]).ok();
    (digits.len() % 2 == 0).then(|| digits.chunks(2).map(pair).collect())?
}

/// The word before a key.
const KIND: &str = "dsync-ed25519";

/// The bytes before an Ed25519 key in its SubjectPublicKeyInfo (RFC 8410, section 4).
const SPKI: [u8; 12] = [0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00];

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn keys_come_back_from_their_text_and_document() {
        let key = PrivateKey::generate().unwrap();
        let again = PrivateKey::from_pkcs8(key.pkcs8()).unwrap();
        assert_eq!(again.public(), key.public());
        assert_eq!(again.public().pin(), key.identity().fingerprint());
        let text = key.public().to_string();
        assert_eq!(text.parse(), Ok(key.public()));
        assert_eq!(format!(" {text} alice@laptop").parse(), Ok(key.public()));
        assert_eq!(key.public().fingerprint().len(), 39);
        assert_ne!(PrivateKey::generate().unwrap().public(), key.public());
    }

    #[test]
    fn other_text_is_no_key() {
        let good = PrivateKey::generate().unwrap().public().to_string();
        for text in ["", "dsync-ed25519", &good[1..], &good[..good.len() - 1], &good.replace("ed", "x")] {
            assert_eq!(text.parse::<PublicKey>(), Err(NotAKey), "{text}");
        }
        assert_eq!(good.replace(' ', " é").parse::<PublicKey>(), Err(NotAKey));
        assert!(PrivateKey::from_pkcs8(b"no key").is_err());
    }
}
