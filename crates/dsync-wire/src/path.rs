//! Paths of entries, as a run tells them and as another run takes them.
//!
//! The law: the bytes are passed on as they are. A path is no checked name: whoever opens one goes
//! step by step through `dsync_fs`, which checks each [`Name`](crate::name::Name) on the way.

use std::{
    ffi::{OsStr, OsString},
    fmt,
    ops::Deref,
    os::unix::ffi::{OsStrExt as _, OsStringExt as _},
    path::{Path, PathBuf},
};

use crate::unprintable::is_unprintable;

/// The path of an entry below the root of a transfer: names joined with `/`, of any bytes. Empty for
/// the root itself. Of an operand that is missing it is the operand.
///
/// A path is a slice of bytes and a [`Path`]. To a person it is shown without characters that a
/// terminal would obey.
///
/// ```
/// use std::path::Path;
///
/// use dsync_wire::path::EntryPath;
///
/// let path = EntryPath::from("photos/one");
/// assert!(path.starts_with(b"photos/") && !path.is_root());
/// // Its place in another copy of the tree.
/// assert_eq!(Path::new("/mnt/copy").join(&path), Path::new("/mnt/copy/photos/one"));
/// assert_eq!(EntryPath::from(b"bell\x07".to_vec()).to_string(), "bell\\u{7}");
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct EntryPath(Vec<u8>);

impl EntryPath {
    /// Returns whether this is the root of the transfer.
    pub fn is_root(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the path's bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Returns the path's bytes, without a copy.
    pub fn into_bytes(self) -> Vec<u8> {
        self.0
    }
}

impl Deref for EntryPath {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl AsRef<[u8]> for EntryPath {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl AsRef<Path> for EntryPath {
    fn as_ref(&self) -> &Path {
        Path::new(OsStr::from_bytes(&self.0))
    }
}

impl From<Vec<u8>> for EntryPath {
    fn from(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }
}

impl From<&[u8]> for EntryPath {
    fn from(bytes: &[u8]) -> Self {
        Self(bytes.to_vec())
    }
}

impl From<&str> for EntryPath {
    fn from(text: &str) -> Self {
        Self(text.as_bytes().to_vec())
    }
}

impl From<PathBuf> for EntryPath {
    fn from(path: PathBuf) -> Self {
        Self(path.into_os_string().into_vec())
    }
}

impl From<EntryPath> for PathBuf {
    fn from(path: EntryPath) -> Self {
        OsString::from_vec(path.0).into()
    }
}

impl fmt::Display for EntryPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for chunk in self.0.utf8_chunks() {
            for character in chunk.valid().chars() {
                if is_unprintable(character) {
                    write!(f, "{}", character.escape_unicode())?;
                } else {
                    write!(f, "{character}")?;
                }
            }
            write!(f, "{}", chunk.invalid().escape_ascii())?;
        }
        Ok(())
    }
}

impl fmt::Debug for EntryPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{self}\"")
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Law: bytes are passed on as they are, whichever type carries them.
        #[test]
        fn bytes_stay_what_they_are(bytes: Vec<u8>) {
            let path = EntryPath::from(bytes.clone());
            prop_assert_eq!(EntryPath::from(PathBuf::from(path.clone())).into_bytes(), bytes);
        }

        /// Law: nothing that a terminal would obey is shown.
        #[test]
        fn a_shown_path_has_no_control_characters(bytes: Vec<u8>) {
            prop_assert!(!EntryPath::from(bytes).to_string().contains(is_unprintable));
        }
    }

    #[test]
    fn text_is_shown_as_it_is_and_other_bytes_in_hexadecimal() {
        assert_eq!(EntryPath::from("Fotos/Grüße").to_string(), "Fotos/Grüße");
        assert_eq!(format!("{:?}", EntryPath::from(b"n\xff".as_slice())), r#""n\xff""#);
    }
}
