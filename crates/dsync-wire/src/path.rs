//! Paths of entries, as a run tells them and as another run takes them.
//!
//! The law: the bytes are passed on as they are. A path is no checked name: whoever opens one goes
//! step by step through `dsync_fs`, which checks each [`Name`](crate::name::Name) on the way.

use std::{
    borrow::Borrow,
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
/// Whatever a run reports of an entry has this type: events, progress, problems, records, findings. A
/// backup, or a file of filter rules, outside the tree has a path from the root too, or an absolute
/// one. A file or directory that a program named (an operand, a manifest, a list), or that this
/// machine has above the tree, is a [`PathBuf`]. The text of a symbolic link is bytes, and so is
/// [`Planned::target`](crate::event::Planned::target), which may be one.
///
/// A path is a slice of bytes and a [`Path`], and compares with text and bytes. The order is that of
/// the bytes, not [`Path`]'s: `a-b` comes before `a/b`. To a person it is shown without characters
/// that a terminal would obey. With the feature `serde` it has the fields `path` and, if it is not
/// UTF-8, `path_hex`, as in `docs/events.schema.json`, where the root is `.`.
///
/// ```
/// use std::path::Path;
///
/// use dsync_wire::path::EntryPath;
///
/// let path = EntryPath::from("photos/one");
/// assert!(path == "photos/one" && path.starts_with(b"photos/") && !path.is_root());
/// // Its place in another copy of the tree.
/// assert_eq!(Path::new("/mnt/copy").join(&path), Path::new("/mnt/copy/photos/one"));
/// assert_eq!(path.as_path().file_name(), Some("one".as_ref()));
/// assert_eq!(path.as_os_str(), path.as_path());
/// assert_eq!(EntryPath::from(b"bell\x07").to_string(), "bell\\u{7}");
/// ```
#[derive(Clone, Eq, PartialOrd, Ord, Hash, Default)]
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

    /// Returns the path as the system's calls take it.
    pub fn as_os_str(&self) -> &OsStr {
        OsStr::from_bytes(&self.0)
    }

    /// Returns the path as the standard library takes it.
    pub fn as_path(&self) -> &Path {
        Path::new(self.as_os_str())
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

impl AsRef<OsStr> for EntryPath {
    fn as_ref(&self) -> &OsStr {
        self.as_os_str()
    }
}

impl AsRef<Path> for EntryPath {
    fn as_ref(&self) -> &Path {
        self.as_path()
    }
}

/// Maps and sets by path are asked with bytes: order, equality and hash are those of the bytes.
impl Borrow<[u8]> for EntryPath {
    fn borrow(&self) -> &[u8] {
        &self.0
    }
}

/// Compares the bytes with those of another path, of text, or with bytes.
impl<T: AsRef<[u8]> + ?Sized> PartialEq<T> for EntryPath {
    fn eq(&self, other: &T) -> bool {
        self.as_bytes() == other.as_ref()
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

impl<const LEN: usize> From<&[u8; LEN]> for EntryPath {
    fn from(bytes: &[u8; LEN]) -> Self {
        Self(bytes.to_vec())
    }
}

impl From<&str> for EntryPath {
    fn from(text: &str) -> Self {
        Self(text.as_bytes().to_vec())
    }
}

impl From<String> for EntryPath {
    fn from(text: String) -> Self {
        Self(text.into_bytes())
    }
}

impl From<OsString> for EntryPath {
    fn from(path: OsString) -> Self {
        Self(path.into_vec())
    }
}

impl From<&Path> for EntryPath {
    fn from(path: &Path) -> Self {
        Self(path.as_os_str().as_bytes().to_vec())
    }
}

impl From<PathBuf> for EntryPath {
    fn from(path: PathBuf) -> Self {
        Self(path.into_os_string().into_vec())
    }
}

impl From<EntryPath> for Vec<u8> {
    fn from(path: EntryPath) -> Self {
        path.0
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
    use std::{
        collections::{BTreeSet, HashSet},
        hash::{BuildHasher as _, RandomState},
    };

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Law: bytes are passed on as they are, whichever type carries them.
        #[test]
        fn bytes_stay_what_they_are(bytes: Vec<u8>) {
            let path = EntryPath::from(bytes.clone());
            prop_assert_eq!(&EntryPath::from(PathBuf::from(path.clone())), &bytes);
            prop_assert_eq!(&EntryPath::from(path.as_path()), &bytes);
            prop_assert_eq!(&EntryPath::from(path.as_os_str().to_owned()), &bytes);
            prop_assert_eq!(Vec::from(path), bytes);
        }

        /// Law: a map by path is asked with bytes, so order, equality and hash are those of the bytes.
        #[test]
        fn paths_are_ordered_and_hashed_as_their_bytes(one: Vec<u8>, other: Vec<u8>) {
            let (path, second) = (EntryPath::from(one.clone()), EntryPath::from(other.clone()));
            prop_assert_eq!(path.cmp(&second), one.cmp(&other));
            prop_assert_eq!(path == second, one == other);
            prop_assert_eq!(path == other, one == other);

            let hasher = RandomState::new();
            prop_assert_eq!(hasher.hash_one(&path), hasher.hash_one(one.as_slice()));
            let (sorted, hashed) = (BTreeSet::from([path.clone()]), HashSet::from([path]));
            prop_assert!(sorted.contains(one.as_slice()) && hashed.contains(one.as_slice()));
            prop_assert_eq!(sorted.contains(other.as_slice()), one == other);
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
