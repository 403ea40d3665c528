//! The session key that enters every strong sum, weak sum and file root.
//!
//! Short sums are safe only while whoever wrote a file's content could not know the key. With a
//! known key, colliding blocks for 8-byte sums can be prepared offline. Both ends contribute random
//! bytes, so neither can fix the key alone.

use std::fmt;

use blake3::hazmat::Mode;

/// A 32-byte session key. `Debug` does not show it.
///
/// ```
/// use dsync_delta::Key;
///
/// // Each end draws 32 random bytes and sends them; both derive the same key.
/// let (ours, theirs) = ([1; 32], [2; 32]);
/// let key = Key::derive(&[&ours, &theirs]);
/// // A program that keeps a signature keeps its key as well.
/// assert_eq!(Key::from_bytes(*key.as_bytes()).as_bytes(), key.as_bytes());
/// ```
#[derive(Clone)]
pub struct Key([u8; 32]);

impl Key {
    /// Derives the key from the shares of both ends, in an order that both ends agree on.
    ///
    /// Shares are hashed with their lengths, so that moving bytes from one to the next changes the
    /// key. Each end's share should be 32 bytes from the system's random generator.
    pub fn derive(shares: &[&[u8]]) -> Self {
        let mut hasher = blake3::Hasher::new_derive_key(KEY_CONTEXT);
        for share in shares {
            hasher.update(&crate::num::len_u64(share.len()).to_le_bytes());
            hasher.update(share);
        }
        Self(*hasher.finalize().as_bytes())
    }

    /// Restores a key from its bytes.
    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// Returns the key's bytes, so that content hashed with it can be verified later.
    ///
    /// # Security
    /// Short sums made with the key are evidence only as long as nobody else knows it.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// Starts a keyed BLAKE3 hasher.
    pub(crate) fn hasher(&self) -> blake3::Hasher {
        blake3::Hasher::new_keyed(&self.0)
    }

    /// Returns the mode for merging subtree values under this key.
    pub(crate) fn mode(&self) -> Mode<'_> {
        Mode::KeyedHash(&self.0)
    }

    /// Returns 32 secret bytes for the weak sum, independent of the strong sums' use of the key.
    pub(crate) fn weak_secret(&self) -> [u8; 32] {
        let mut hasher = blake3::Hasher::new_derive_key(WEAK_CONTEXT);
        hasher.update(&self.0);
        *hasher.finalize().as_bytes()
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(..)")
    }
}

/// Context strings are part of the wire format: a different string makes a different protocol.
const KEY_CONTEXT: &str = "dsync session key v1";
const WEAK_CONTEXT: &str = "dsync weak sum secret v1";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moving_bytes_between_shares_changes_the_key() {
        let one = Key::derive(&[b"ab", b"c"]);
        let other = Key::derive(&[b"a", b"bc"]);
        assert_ne!(one.0, other.0);
        assert_eq!(one.0, Key::derive(&[b"ab", b"c"]).0);
    }

    /// A different key here means a different protocol version.
    #[test]
    fn golden_key_of_version_1() {
        let key = Key::derive(&[&[1; 32], &[2; 32]]);
        let hex = |bytes: [u8; 32]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        assert_eq!(hex(key.0), "abb028c19f3d4d9615637ea3f9628274da2b0712d47d671b0b07d51f2e4a76b3");
        assert_eq!(
            hex(key.weak_secret()),
            "1b81d406c4971e9ace09a9390d4e6ac32863f318f832d71eb82b1e61d297b5c3"
        );
    }

    #[test]
    fn debug_hides_the_key() {
        assert_eq!(format!("{:?}", Key::derive(&[b"a"])), "Key(..)");
    }
}
