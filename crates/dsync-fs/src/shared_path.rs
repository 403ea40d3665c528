//! Paths of many waiting directories, at the cost of their names.
//!
//! A [`RelPath`] of a deep directory may have a mebibyte, and a peer that lists directories decides
//! how many of them wait. A [`SharedPath`] refers to its parent's instead of repeating it. It costs
//! its own name and at most 64 bytes, and becomes a [`RelPath`] when needed.

use std::{fmt, mem, sync::Arc};

use crate::component::{Component, RelPath};

/// A path below some directory that shares all but its last component; cheap to clone.
#[derive(Clone, Default)]
pub struct SharedPath(Option<Arc<Link>>);

struct Link {
    parent: SharedPath,
    name: Component,
    /// Length of the whole path in bytes.
    len: usize,
}

impl SharedPath {
    /// Bytes that a path takes besides its own name.
    pub const OVERHEAD: usize = mem::size_of::<Link>() + 2 * mem::size_of::<usize>() + 24;

    /// Returns the path of the directory itself.
    pub const fn root() -> Self {
        Self(None)
    }

    /// Returns this path with one more component.
    #[must_use]
    pub fn join(&self, name: &Component) -> Self {
        let before = if self.is_root() { 0 } else { self.len() + 1 };
        let len = before + name.as_bytes().len();
        Self(Some(Arc::new(Link { parent: self.clone(), name: name.clone(), len })))
    }

    /// Returns whether this is the directory itself.
    pub fn is_root(&self) -> bool {
        self.0.is_none()
    }

    /// Returns the length of the whole path in bytes.
    pub fn len(&self) -> usize {
        self.0.as_ref().map_or(0, |link| link.len)
    }

    /// Returns whether the path has no bytes: it is the directory itself.
    pub fn is_empty(&self) -> bool {
        self.is_root()
    }

    /// Returns the length of the last component in bytes, 0 for the root.
    pub fn name_len(&self) -> usize {
        self.0.as_ref().map_or(0, |link| link.name.as_bytes().len())
    }

    /// Builds the whole path.
    pub fn to_path(&self) -> RelPath {
        let mut names = Vec::new();
        let mut at = self;
        while let Some(link) = &at.0 {
            names.push(&link.name);
            at = &link.parent;
        }
        let mut path = RelPath::with_capacity(self.len());
        names.iter().rev().for_each(|name| path.push(name));
        path
    }
}

impl fmt::Debug for SharedPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.to_path().fmt(f)
    }
}

impl Drop for Link {
    /// Drops a chain of thousands without as many nested calls.
    fn drop(&mut self) {
        let mut parent = mem::take(&mut self.parent);
        while let Some(mut link) = parent.0.take().and_then(Arc::into_inner) {
            parent = mem::take(&mut link.parent);
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_shared_path_is_the_path_of_its_names() {
        let (a, b) = (Component::new(b"a").unwrap(), Component::new(b"bc").unwrap());
        let path = SharedPath::root().join(&a).join(&b);
        assert_eq!(path.to_path().as_bytes(), b"a/bc");
        assert_eq!((path.len(), path.name_len(), path.is_root()), (4, 2, false));
        assert!(SharedPath::root().is_root() && SharedPath::root().to_path().is_root());
        assert!(SharedPath::root().is_empty());
    }

    #[test]
    fn a_chain_of_a_million_is_dropped_on_a_small_stack() {
        let name = Component::new(b"d").unwrap();
        let deep = (0..1_000_000).fold(SharedPath::root(), |path, _| path.join(&name));
        let thread = std::thread::Builder::new().stack_size(64 << 10).spawn(move || drop(deep));
        thread.unwrap().join().unwrap();
    }
}
