//! The place that a file takes: its name, the old entry of that name, and the material for the
//! file.

use std::{
    io,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use dsync_fs::{Component, Dir, Opening, RelPath, SourceFile, Stamp, Timestamp};

use super::{Site, begun::Begun, directory::Directory, elsewhere::FoundElsewhere};
use crate::halt::lock;

/// The place of one file.
pub(super) struct Slot {
    pub(super) directory: Arc<Directory>,
    /// Name at the destination.
    pub(super) name: Component,
    /// The name was found free.
    pub(super) is_new: bool,
    /// The old file itself is written.
    pub(super) in_place: bool,
    /// The old file is left to its other names, by which it may be written to meanwhile.
    pub(super) is_apart: bool,
    /// The old file is a device, which is written directly.
    pub(super) device: bool,
    /// It is added to.
    pub(super) tail: Option<Tail>,
    /// A file of an alternate directory, or an old one of another name or place.
    pub(super) twin: Option<Twin>,
    /// Set when the old file's content was kept, before it was written into.
    pub(super) has_backup: AtomicBool,
    /// A note says that it is rewritten, while it is.
    pub(super) is_noted: bool,
    /// The note, once it is made.
    pub(super) begun: Mutex<Option<Begun>>,
    /// Its size and time once it is whole, if its time is kept.
    pub(super) becomes: Option<(u64, Timestamp)>,
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
pub(super) enum Twin {
    /// Its content is the source's: the directory that has it under the same name, and the version that was
    /// compared.
    Equal(Arc<Dir>, Stamp),
    /// A basis of the same name, in another directory.
    Basis(Arc<Dir>),
    /// A basis of another name: its directory, and its name.
    Fuzzy(Arc<Dir>, Component),
    /// A basis of another place.
    Elsewhere(FoundElsewhere),
}

impl Slot {
    /// Returns the path from the destination's root.
    pub(super) fn path(&self) -> RelPath {
        self.directory.path.join(&self.name)
    }

    /// Finds the note of a half-written file in whose place the new one comes: then it goes too, unless the
    /// old file has other names.
    pub(super) fn find_note(&self) {
        let is_last = |dir: &Arc<Dir>| dir.stat(&self.name).is_ok_and(|now| now.nlink == 1);
        let dir = self.directory.dir.as_ref().filter(|dir| is_last(dir));
        let begun = dir.and_then(|dir| Begun::find(self, dir, None));
        *lock(&self.begun) = begun;
    }

    /// Notes that the file is whole.
    pub(super) fn note_whole(&self) {
        if let Some(begun) = lock(&self.begun).take() {
            begun.end();
        }
    }

    /// Counts bytes of the file's content for the file and for the run.
    pub(super) fn received(&self, site: &Site<'_>, literal: u64, matched: u64, zero: u64) {
        self.literal_bytes.fetch_add(literal, Ordering::Relaxed);
        site.account.received(literal, matched, zero);
    }

    /// Returns the way in which the old file is opened. That a run reads it is no use of it that
    /// its access time should show: it may be an older backup's, or stay where it is.
    pub(super) fn opening(&self) -> Opening {
        Opening { noatime: true, devices: self.device }
    }

    /// Returns the directory that has a file of equal content under the same name, if there is one, and the
    /// version of that file.
    pub(super) fn equal(&self) -> Option<(&Arc<Dir>, Stamp)> {
        if let Some(Twin::Equal(dir, stamp)) = &self.twin { Some((dir, *stamp)) } else { None }
    }

    /// Opens the old file, or the one that stands for it; `None` if there is none.
    pub(super) fn open_basis(&self, opening: Opening) -> Option<io::Result<SourceFile>> {
        let dir = self.directory.dir.as_ref();
        match &self.twin {
            Some(Twin::Equal(dir, _) | Twin::Basis(dir)) => Some(dir.open_source_as(&self.name, opening)),
            Some(Twin::Fuzzy(dir, name)) => Some(dir.open_source_as(name, opening)),
            Some(Twin::Elsewhere(found)) => Some(found.open(opening)),
            None => dir.map(|dir| dir.open_source_as(&self.name, opening)),
        }
    }

    /// Returns the path of the file of another place that it is made from.
    pub(super) fn made_from(&self) -> Option<Vec<u8>> {
        if let Some(Twin::Elsewhere(found)) = &self.twin { found.path() } else { None }
    }
}
