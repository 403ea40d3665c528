//! Removing whole trees by directory handle.

use std::io;

use crate::{
    component::{Component, RelPath},
    dir::Dir,
    metadata::Kind,
};

impl Dir {
    /// Removes an entry and everything below it, children before their directory.
    ///
    /// # Errors
    /// The first error; what was removed until then stays removed.
    pub fn remove_tree(&self, name: &Component, visitor: &mut dyn FnMut(&RelPath, Kind)) -> io::Result<()> {
        let _ = (name, visitor);
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Visits what [`Dir::remove_tree`] would remove, in the same order, and removes nothing.
    ///
    /// # Errors
    /// The first error.
    pub fn list_tree(&self, name: &Component, visitor: &mut dyn FnMut(&RelPath, Kind)) -> io::Result<()> {
        let _ = (name, visitor);
        Err(io::ErrorKind::Unsupported.into())
    }
}
