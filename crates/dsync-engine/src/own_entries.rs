//! Files that a run, or its caller, writes while it goes on, in a destination on this machine.
//!
//! The law: no deletion removes them, nor the directory that they are in. A dry run knows them too.

use std::{path::Path, sync::Arc};

use dsync_fs::{Dir, OperatorFiles, OwnPlaces};

use crate::whole_file::place;

/// Files of a run itself in its destination.
#[derive(Debug, Clone, Default)]
pub(crate) struct OwnEntries {
    /// The old file of the manifest's name, which is no entry of the tree: its filesystem and its inode.
    pub(crate) left_out: Option<(u64, u64)>,
    files: Vec<(u64, u64)>,
    dirs: Vec<Arc<Dir>>,
}

impl OwnEntries {
    /// Notes a file, and its directory, as far as they are there.
    pub(crate) fn note(&mut self, path: &Path, files: &OperatorFiles) -> Option<(u64, u64)> {
        let (dir, name) = place(path, files).ok()?;
        let there = dir.stat(&name).ok().map(|now| (now.dev, now.ino));
        self.files.extend(there);
        self.dirs.push(dir);
        there
    }

    /// Adds them to the run's places.
    pub(crate) fn add_to(&self, own: &OwnPlaces) {
        self.files.iter().for_each(|&inode| own.add_file(inode));
        // A directory that cannot be looked at is none of the destination's.
        self.dirs.iter().for_each(|dir| _ = own.add(dir));
    }
}
