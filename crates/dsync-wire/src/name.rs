//! One name in a directory, checked on entry.
//!
//! The law: a [`Name`] is 1 to 255 bytes, neither `.` nor `..`, and holds no `/` and no NUL. It can
//! therefore be joined to an open directory and never leave it. Names are bytes, not text. They are
//! ordered as bytes, which is the order of every listing. Whoever prints one escapes it.

use std::{borrow::Borrow, fmt};

use crate::limits::MAX_NAME;

/// A validated name of one directory entry.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(Box<[u8]>);

impl Name {
    /// Checks and copies a name.
    ///
    /// # Errors
    /// [`InvalidName`] says which rule the bytes break.
    pub fn new(bytes: &[u8]) -> Result<Self, InvalidName> {
        Self::check(bytes)?;
        Ok(Self(bytes.into()))
    }

    /// Checks bytes against the rules for names.
    ///
    /// # Errors
    /// [`InvalidName`] says which rule the bytes break.
    pub fn check(bytes: &[u8]) -> Result<(), InvalidName> {
        match bytes {
            [] => return Err(InvalidName::Empty),
            b"." | b".." => return Err(InvalidName::Dots),
            _ if bytes.len() > MAX_NAME => return Err(InvalidName::TooLong { len: bytes.len() }),
            _ => {}
        }
        match bytes.iter().find(|&&byte| byte == b'/' || byte == 0) {
            Some(b'/') => Err(InvalidName::Slash),
            Some(_) => Err(InvalidName::Nul),
            None => Ok(()),
        }
    }

    /// Returns the name's bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl TryFrom<&[u8]> for Name {
    type Error = InvalidName;

    fn try_from(bytes: &[u8]) -> Result<Self, InvalidName> {
        Self::new(bytes)
    }
}

impl TryFrom<Vec<u8>> for Name {
    type Error = InvalidName;

    fn try_from(bytes: Vec<u8>) -> Result<Self, InvalidName> {
        Self::check(&bytes)?;
        Ok(Self(bytes.into()))
    }
}

impl AsRef<[u8]> for Name {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Borrow<[u8]> for Name {
    fn borrow(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.0.escape_ascii())
    }
}

/// The reason why bytes are not a [`Name`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidName {
    /// The name is empty.
    #[error("the name is empty")]
    Empty,
    /// The name is `.` or `..`.
    #[error("the name is '.' or '..'")]
    Dots,
    /// The name contains a slash.
    #[error("the name contains a slash")]
    Slash,
    /// The name contains a NUL byte.
    #[error("the name contains a NUL byte")]
    Nul,
    /// The name is longer than 255 bytes.
    #[error("the name is {len} bytes long, the limit is 255")]
    TooLong {
        /// Length in bytes.
        len: usize,
    },
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_that_leave_a_directory_are_refused() {
        for (bytes, error) in [
            (&b""[..], InvalidName::Empty),
            (b".", InvalidName::Dots),
            (b"..", InvalidName::Dots),
            (b"a/b", InvalidName::Slash),
            (b"/", InvalidName::Slash),
            (b"../x", InvalidName::Slash),
            (b"a\0", InvalidName::Nul),
            (&[b'x'; 256], InvalidName::TooLong { len: 256 }),
        ] {
            assert_eq!(Name::new(bytes), Err(error));
        }
    }

    #[test]
    fn odd_but_harmless_names_are_taken() {
        for bytes in [&b"..."[..], b".a", b"-rf", b" ", b"\n", b"\xff\xfe", b"a\\b", &[b'x'; 255]] {
            assert_eq!(Name::new(bytes).unwrap().as_bytes(), bytes);
        }
    }

    proptest! {
        /// Law S1: an accepted name is one component and is kept unchanged, whatever the bytes.
        #[test]
        fn accepted_names_are_single_components(
            bytes in prop::collection::vec(prop_oneof![3 => any::<u8>(), 1 => Just(b'.'), 1 => Just(b'/')], 0..300),
        ) {
            let harmless = !bytes.is_empty()
                && bytes.len() <= 255
                && bytes != b"."
                && bytes != b".."
                && !bytes.contains(&b'/')
                && !bytes.contains(&0);
            match Name::new(&bytes) {
                Ok(name) => {
                    prop_assert!(harmless);
                    prop_assert_eq!(name.as_bytes(), &bytes[..]);
                }
                Err(_) => prop_assert!(!harmless),
            }
        }

        /// Names are in byte order.
        #[test]
        fn order_is_by_bytes(
            left in prop::collection::vec(1..=255u8, 3..9),
            right in prop::collection::vec(1..=255u8, 3..9),
        ) {
            if let (Ok(a), Ok(b)) = (Name::new(&left), Name::new(&right)) {
                prop_assert_eq!(a.cmp(&b), left.cmp(&right));
            }
        }
    }
}
