//! The place that a file takes: its name, the old entry of that name, and the material for the
//! file.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU64, Ordering},
};

use dsync_fs::{Component, Dir, Opening, RelPath, Stamp};

use super::{Site, directory::Directory};

/// The place of one file.
pub(super) struct Slot {
    pub(super) directory: Arc<Directory>,
    /// Name at the destination.
    pub(super) name: Component,
    /// The old file itself is written.
    pub(super) in_place: bool,
    /// The old file is a device, which is written directly.
    pub(super) device: bool,
    /// It is added to.
    pub(super) tail: Option<Tail>,
    /// A file of an alternate directory.
    pub(super) twin: Option<Twin>,
    /// Set when the old file's content was kept, before it was written into.
    pub(super) has_backup: AtomicBool,
    /// Bytes of its content that came from the source.
    pub(super) literal_bytes: AtomicU64,
}

/// The beginning of a file that is added to.
#[derive(Clone, Copy)]
pub(super) struct Tail {
    pub(super) from: u64,
    /// The stamp of the old file when this was decided.
    pub(super) stamp: Stamp,
}

/// A local source of a file's content besides the source's data.
#[derive(Clone)]
pub(super) struct Twin {
    /// The directory that has the file.
    pub(super) dir: Arc<Dir>,
    /// The file's name there, if it is another one.
    pub(super) name: Option<Component>,
    /// Whether its content is the source's; else it is a basis.
    pub(super) equal: bool,
}

impl Slot {
    /// Returns the path from the destination's root.
    pub(super) fn path(&self) -> RelPath {
        self.directory.path.join(&self.name)
    }

    /// Counts bytes of the file's content for the file and for the run.
    pub(super) fn received(&self, site: &Site<'_>, literal: u64, matched: u64, zero: u64) {
        self.literal_bytes.fetch_add(literal, Ordering::Relaxed);
        site.account.received(literal, matched, zero);
    }

    /// Returns the way in which the old file is opened.
    pub(super) fn opening(&self) -> Opening {
        Opening { noatime: false, devices: self.device }
    }

    /// Returns the directory that has the old file, and the old file's name there.
    pub(super) fn basis(&self) -> Option<(&Arc<Dir>, &Component)> {
        match &self.twin {
            Some(twin) => Some((&twin.dir, twin.name.as_ref().unwrap_or(&self.name))),
            None => self.directory.dir.as_ref().map(|dir| (dir, &self.name)),
        }
    }
}
