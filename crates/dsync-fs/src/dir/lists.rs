//! Reading the lists and attributes of a directory's entries.

use std::io;

use super::Dir;
use crate::{
    component::Component,
    extended::{Extended, ExtendedScope, Keeping, MAX_EXTENDED_BYTES, MAX_LOCAL_BYTES, read},
    metadata::Metadata,
};

impl Dir {
    /// Reads the lists and attributes of an entry; a link's own. A filesystem that supports none
    /// has none.
    ///
    /// # Errors
    /// The system's error; [`InvalidData`](io::ErrorKind::InvalidData) for a damaged list, `E2BIG` if all
    /// together exceed 64 MiB.
    pub fn extended(&self, name: &Component, scope: ExtendedScope) -> io::Result<Extended> {
        if scope.is_empty() {
            return Ok(Extended::default());
        }
        let keeping = self.keeping(scope, || self.stat(name))?;
        read(&self.place_of(name)?, scope, keeping, MAX_LOCAL_BYTES)
    }

    /// Reads the lists and attributes that a source reports for an entry. Works as
    /// [`Dir::extended`], but under `--fake-super` also reads the attributes that the entry itself
    /// has in root's name spaces. Kept attributes take precedence over those.
    ///
    /// # Errors
    /// As [`Dir::extended`], but `E2BIG` if all together exceed [`MAX_EXTENDED_BYTES`](crate::MAX_EXTENDED_BYTES).
    pub fn source_extended(&self, name: &Component, scope: ExtendedScope) -> io::Result<Extended> {
        if scope.is_empty() {
            return Ok(Extended::default());
        }
        let keeping = self.keeping(scope, || self.stat(name))?;
        read(&self.place_of(name)?, scope, keeping.with_own(), MAX_EXTENDED_BYTES)
    }

    /// Reads the lists and attributes that a source reports for the directory itself: see
    /// [`Dir::source_extended`].
    ///
    /// # Errors
    /// As [`Dir::source_extended`].
    pub fn own_source_extended(&self, scope: ExtendedScope) -> io::Result<Extended> {
        let keeping = self.keeping(scope, || self.metadata())?;
        read(&self.own_place(), scope, keeping.with_own(), MAX_EXTENDED_BYTES)
    }

    /// Reads the lists and attributes of the directory itself.
    ///
    /// # Errors
    /// As [`Dir::extended`].
    pub fn own_extended(&self, scope: ExtendedScope) -> io::Result<Extended> {
        let keeping = self.keeping(scope, || self.metadata())?;
        read(&self.own_place(), scope, keeping, MAX_LOCAL_BYTES)
    }

    /// Returns the form in which an entry's lists and attributes are kept here.
    pub(super) fn keeping(
        &self,
        scope: ExtendedScope,
        stat: impl FnOnce() -> io::Result<Metadata>,
    ) -> io::Result<Keeping> {
        Ok(match (self.is_fake_super(), scope.acls) {
            (false, _) => Keeping::Own,
            (true, false) => Keeping::FakeSuper { mode: 0, own: false },
            (true, true) => Keeping::FakeSuper { mode: stat()?.mode, own: false },
        })
    }
}
