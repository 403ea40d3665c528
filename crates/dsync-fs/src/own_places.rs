//! Entries that belong to a run: its root, its backups, its temporaries, files that it writes itself.
//!
//! The law: a place is identified by filesystem and inode number, so it is recognised through any
//! path, link or bind mount. A place that is made in the middle of a run is known from then on.

use std::{
    io,
    sync::{PoisonError, RwLock},
};

use crate::{dir::Dir, metadata::Metadata};

/// The places of one run; a handful.
#[derive(Debug, Default)]
pub struct OwnPlaces {
    known: RwLock<Vec<Place>>,
}

#[derive(Debug, Clone, Copy)]
struct Place {
    dev: u64,
    ino: u64,
    /// Whether everything in it must stay as well.
    whole: bool,
}

impl OwnPlaces {
    /// Adds a directory, which must keep its name. A directory that is already known keeps its
    /// kind.
    ///
    /// # Errors
    /// The system's error.
    pub fn add(&self, dir: &Dir) -> io::Result<()> {
        self.insert(dir, false)
    }

    /// Adds a directory as [`add`](Self::add) does; everything in it must stay as well.
    ///
    /// # Errors
    /// The system's error.
    pub fn add_whole(&self, dir: &Dir) -> io::Result<()> {
        self.insert(dir, true)
    }

    /// Adds a file that must stay, by its filesystem and inode number.
    pub fn add_file(&self, inode: (u64, u64)) {
        self.insert_inode(inode, false);
    }

    fn insert(&self, dir: &Dir, whole: bool) -> io::Result<()> {
        let Metadata { dev, ino, .. } = dir.metadata()?;
        self.insert_inode((dev, ino), whole);
        Ok(())
    }

    fn insert_inode(&self, (dev, ino): (u64, u64), whole: bool) {
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        if !known.iter().any(|place| (place.dev, place.ino) == (dev, ino)) {
            known.push(Place { dev, ino, whole });
        }
    }

    /// Returns whether the entry is one of the places.
    pub fn has(&self, entry: &Metadata) -> bool {
        self.find((entry.dev, entry.ino)).is_some()
    }

    /// Returns whether the directory of this filesystem and inode number is one of the places.
    pub fn has_inode(&self, inode: (u64, u64)) -> bool {
        self.find(inode).is_some()
    }

    /// Returns whether the directory is a place whose whole content must stay.
    pub fn has_whole(&self, dir: &Dir) -> bool {
        // Most runs have none and need not ask the system.
        let any = self.known.read().unwrap_or_else(PoisonError::into_inner).iter().any(|place| place.whole);
        let found = || dir.metadata().ok().and_then(|now| self.find((now.dev, now.ino)));
        any && found().is_some_and(|place| place.whole)
    }

    fn find(&self, inode: (u64, u64)) -> Option<Place> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        known.iter().find(|place| (place.dev, place.ino) == inode).copied()
    }
}
