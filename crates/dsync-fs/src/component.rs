//! Names and relative paths that cannot leave a directory.
//!
//! [`Component`] is one name, [`RelPath`] a chain of them. Both are checked once, when they are
//! made. Every system call of this crate takes one of the two, so no later code can pass `..`, an
//! absolute path or a name with a slash to the kernel. There is deliberately no conversion from or
//! to [`std::path::Path`].

use std::{
    borrow::Cow,
    ffi::{CStr, CString},
    fmt, io,
};

use crate::spelling::{Spelling, unspellable};

/// The longest name that Linux filesystems accept, in bytes.
pub(crate) const MAX_COMPONENT_LEN: usize = 255;

/// One name in a directory: 1 to 255 bytes, not `.` or `..`, without `/` and NUL.
///
/// Ordered by bytes. Kept with its terminating NUL, so system calls need no copy.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Component(CString);

impl Component {
    /// Checks a name.
    ///
    /// # Errors
    /// [`InvalidComponent`] with the rule that the name breaks.
    pub fn new(name: &[u8]) -> Result<Self, InvalidComponent> {
        check(name)?;
        CString::new(name).map(Self).map_err(|_| InvalidComponent::Nul)
    }

    /// Checks a name that the kernel listed in a directory of this spelling. Returns `None` for `.`,
    /// `..` and anything else that is not a component (a broken filesystem can list names with
    /// slashes).
    pub(crate) fn from_kernel(name: &CStr, spelling: Option<&Spelling>) -> Option<Self> {
        check(name.to_bytes()).ok()?;
        match spelling {
            None => Some(Self(name.to_owned())),
            Some(spelling) => Self::new(&spelling.to_there(name.to_bytes())).ok(),
        }
    }

    /// Returns the name as the kernel takes it in a directory of this spelling: the only way from a
    /// component to a system call.
    ///
    /// # Errors
    /// `EILSEQ` for one that the set of names there cannot spell.
    pub(crate) fn on_disk(&self, spelling: Option<&Spelling>) -> io::Result<Cow<'_, CStr>> {
        let Some(spelling) = spelling else { return Ok(Cow::Borrowed(&self.0)) };
        let spelled = spelling.to_here(self.as_bytes()).ok_or_else(unspellable)?;
        match Self::new(&spelled) {
            Ok(name) => Ok(Cow::Owned(name.0)),
            Err(_) => Err(unspellable()),
        }
    }

    /// Returns the name's bytes.
    pub fn as_bytes(&self) -> &[u8] {
        self.0.to_bytes()
    }
}

impl fmt::Debug for Component {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.as_bytes().escape_ascii())
    }
}

/// The reason why a name is not a [`Component`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidComponent {
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
    #[error("the name is {len} bytes long; 255 is the limit")]
    TooLong {
        /// Length in bytes.
        len: usize,
    },
}

fn check(name: &[u8]) -> Result<(), InvalidComponent> {
    match name {
        [] => Err(InvalidComponent::Empty),
        b"." | b".." => Err(InvalidComponent::Dots),
        _ if name.len() > MAX_COMPONENT_LEN => Err(InvalidComponent::TooLong { len: name.len() }),
        _ if name.contains(&b'/') => Err(InvalidComponent::Slash),
        _ if name.contains(&0) => Err(InvalidComponent::Nul),
        _ => Ok(()),
    }
}

/// A path below some directory: components joined with `/`, empty for the directory itself.
///
/// Any number of components: a path may be longer than the kernel's `PATH_MAX`. Ordered by bytes,
/// which is *not* the order of a walk (there `a/b` comes before `a-c`).
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct RelPath(Vec<u8>);

impl RelPath {
    /// Returns the path of the directory itself.
    pub const fn root() -> Self {
        Self(Vec::new())
    }

    /// Returns the path of the directory itself, with room for `bytes`.
    pub(crate) fn with_capacity(bytes: usize) -> Self {
        Self(Vec::with_capacity(bytes))
    }

    /// Checks a path given as bytes, every component by the rules of [`Component`]. The empty
    /// string is the root; a leading, trailing or doubled slash is an error.
    ///
    /// # Errors
    /// [`InvalidComponent`] of the first component that breaks a rule.
    pub fn parse(path: &[u8]) -> Result<Self, InvalidComponent> {
        if !path.is_empty() {
            path.split(|&byte| byte == b'/').try_for_each(check)?;
        }
        Ok(Self(path.to_vec()))
    }

    /// Returns whether this is the directory itself.
    pub fn is_root(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the path's bytes, without a leading or trailing slash.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Appends a component.
    pub fn push(&mut self, name: &Component) {
        if !self.0.is_empty() {
            self.0.push(b'/');
        }
        self.0.extend_from_slice(name.as_bytes());
    }

    /// Removes the last component; returns `false` if there is none.
    pub fn pop(&mut self) -> bool {
        if self.0.is_empty() {
            return false;
        }
        let keep = self.0.iter().rposition(|&byte| byte == b'/').unwrap_or(0);
        self.0.truncate(keep);
        true
    }

    /// Returns this path with one more component.
    #[must_use]
    pub fn join(&self, name: &Component) -> Self {
        let mut bytes = Vec::with_capacity(self.0.len() + 1 + name.as_bytes().len());
        bytes.extend_from_slice(&self.0);
        let mut joined = Self(bytes);
        joined.push(name);
        joined
    }

    /// Returns the path as seen from a directory on the way to it; `None` from any other.
    pub fn below(&self, directory: &Self) -> Option<Self> {
        let rest = self.0.strip_prefix(directory.0.as_slice())?;
        match rest.split_first() {
            _ if directory.is_root() => Some(self.clone()),
            Some((b'/', rest)) => Some(Self(rest.to_vec())),
            None => Some(Self::root()),
            Some(_) => None,
        }
    }

    /// Returns the path without its last component; `None` for the root.
    pub fn parent(&self) -> Option<Self> {
        let mut parent = self.clone();
        parent.pop().then_some(parent)
    }

    /// Returns the last component; `None` for the root.
    pub fn file_name(&self) -> Option<Component> {
        let last = self.0.rsplit(|&byte| byte == b'/').next()?;
        Component::new(last).ok()
    }

    /// Returns the names along the path, outermost first.
    pub fn components(&self) -> impl Iterator<Item = &[u8]> {
        self.0.split(|&byte| byte == b'/').filter(|name| !name.is_empty())
    }

    /// Returns the number of components.
    pub fn depth(&self) -> usize {
        self.components().count()
    }
}

impl From<Component> for RelPath {
    fn from(name: Component) -> Self {
        Self(name.0.into_bytes())
    }
}

impl fmt::Debug for RelPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.0.escape_ascii())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_that_could_leave_a_directory_are_rejected() {
        for (name, reason) in [
            (&b""[..], InvalidComponent::Empty),
            (b".", InvalidComponent::Dots),
            (b"..", InvalidComponent::Dots),
            (b"a/b", InvalidComponent::Slash),
            (b"/", InvalidComponent::Slash),
            (b"a\0", InvalidComponent::Nul),
            (&[b'x'; 256], InvalidComponent::TooLong { len: 256 }),
        ] {
            assert_eq!(Component::new(name), Err(reason));
        }
        assert!(Component::new(&[0xff; 255]).is_ok());
        assert!(Component::new(b"...").is_ok());
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(256) })]

        /// Law S1: every accepted name is 1 to 255 bytes, no dots, no slash, no NUL; and unchanged.
        #[test]
        fn accepted_names_keep_the_law(name in prop::collection::vec(any::<u8>(), 0..300)) {
            match Component::new(&name) {
                Ok(component) => {
                    prop_assert_eq!(component.as_bytes(), name.as_slice());
                    prop_assert!((1..=255).contains(&name.len()));
                    prop_assert!(!name.contains(&b'/') && !name.contains(&0));
                    prop_assert!(name != b"." && name != b"..");
                }
                Err(reason) => prop_assert!(!reason.to_string().is_empty()),
            }
        }

        /// Law: push, pop, join, parent and parse agree with each other; order is that of the
        /// bytes.
        #[test]
        fn paths_are_their_components(names in prop::collection::vec("[^/\0]{1,8}", 0..6)) {
            let names: Vec<_> = names.iter().filter_map(|name| Component::new(name.as_bytes()).ok()).collect();
            let mut path = RelPath::root();
            for name in &names {
                let joined = path.join(name);
                prop_assert_eq!(joined.parent(), Some(path.clone()));
                path.push(name);
                prop_assert_eq!(&joined, &path);
                prop_assert_eq!(path.file_name(), Some(name.clone()));
            }
            prop_assert_eq!(RelPath::parse(path.as_bytes()), Ok(path.clone()));
            prop_assert_eq!(path.depth(), names.len());
            let bytes: Vec<_> = path.components().collect();
            prop_assert_eq!(bytes, names.iter().map(Component::as_bytes).collect::<Vec<_>>());
            for _ in &names {
                prop_assert!(path.pop());
            }
            prop_assert!(path.is_root() && !path.pop());
        }
    }

    #[test]
    fn paths_with_empty_or_dot_components_are_rejected() {
        for path in [&b"/a"[..], b"a/", b"a//b", b"a/../b", b"./a", b"a/."] {
            assert!(RelPath::parse(path).is_err(), "{}", path.escape_ascii());
        }
    }
}
