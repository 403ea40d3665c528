//! Roots: the sums of whole files that decide whether a rebuilt file is installed.
//!
//! A [`FileRoot`] is keyed BLAKE3 of the content. It equals [`blake3::keyed_hash`], whether
//! computed in one go here or from segments in [`crate::segment`]. [`ContentHasher`] is plain
//! BLAKE3, for comparing files without a session (`-c`).

use std::fmt;

use crate::key::Key;

/// The keyed BLAKE3 hash of a whole file.
///
/// ```
/// use dsync_delta::{FileRoot, Key, file_root};
///
/// let key = Key::from_bytes([7; 32]);
/// // The source sends 32 bytes; the destination compares them with the file that it rebuilt.
/// let sent = *file_root(&key, b"new file").as_bytes();
/// assert_eq!(FileRoot::from_bytes(sent), file_root(&key, b"new file"));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct FileRoot([u8; 32]);

impl FileRoot {
    /// Makes a root from the bytes received.
    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// Returns the root's bytes.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Debug for FileRoot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FileRoot(")?;
        for byte in self.0 {
            write!(f, "{byte:02x}")?;
        }
        f.write_str(")")
    }
}

/// Computes the root of a file in memory.
///
/// Cost: one BLAKE3 pass on the calling thread.
pub fn file_root(key: &Key, content: &[u8]) -> FileRoot {
    // Hash all at once: a hasher fed in parts splits a length that is no power of two into pieces,
    // each of which fills fewer lanes.
    FileRoot(*blake3::keyed_hash(key.as_bytes(), content).as_bytes())
}

/// Computes the unkeyed BLAKE3 hash of a file, fed in pieces of any length.
///
/// ```
/// let mut hasher = dsync_delta::ContentHasher::new();
/// hasher.update(b"new ").update(b"file");
/// assert_eq!(hasher.finish(), *blake3::hash(b"new file").as_bytes());
/// ```
#[derive(Debug, Clone, Default)]
pub struct ContentHasher {
    hasher: blake3::Hasher,
}

impl ContentHasher {
    /// Starts with no bytes.
    pub fn new() -> Self {
        Self::default()
    }

    /// Hashes the next bytes. Pieces of 64 KiB and more are hashed at full speed.
    pub fn update(&mut self, bytes: &[u8]) -> &mut Self {
        self.hasher.update(bytes);
        self
    }

    /// Returns the hash of all bytes so far.
    pub fn finish(&self) -> [u8; 32] {
        *self.hasher.finalize().as_bytes()
    }
}
