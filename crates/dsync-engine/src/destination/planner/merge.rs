//! A directory's two listings side by side: the destination's state of each name, and the entries
//! that only it has.

use std::{io, iter::Peekable, sync::Arc, vec};

use dsync_fs::{Component, Kind, ListedPart, Metadata, RelPath, SharedPath, is_behind_notes, is_notes_name};
use dsync_wire::message::{Cause, Entry, EntryId};

use super::{
    super::{alternate::Level, asked::Judged, directory::Directory, protection::Found},
    leftovers::Leftovers,
};
use crate::{
    SyncError,
    misbehaved::{PeerMisbehaved, misbehaved},
};

/// A directory whose listing is arriving.
pub(super) struct Merge {
    pub(super) id: EntryId,
    /// Its path, also where it is ignored.
    shared: SharedPath,
    /// The state of judging the source's words on its entries.
    pub(super) judged: Judged,
    /// The destination's directory; `None` for one that is ignored.
    pub(super) directory: Option<Arc<Directory>>,
    pub(super) own: OwnEntries,
    /// The last name of the source's listing.
    pub(super) last_name: Option<Vec<u8>>,
    /// Whether rules left out entries of the source's.
    pub(super) left_out: bool,
    /// Alternate directories that may hold entries of this one.
    pub(super) alternates: Level,
    /// Entries that only the destination has.
    pub(super) extraneous: Vec<(Component, Kind)>,
    /// Entries that go because the source was asked for them and does not have them.
    pub(super) missing: Vec<(Component, Kind)>,
    /// Directories among them that stay, with something below that goes for that.
    pub(super) astray: Vec<RelPath>,
    pub(super) leftovers: Leftovers,
    /// The directory's path and why nothing can be copied into it, as another entry has its name or it is
    /// closed to this user: to be told when the source has something in it.
    pub(super) covered: Option<(RelPath, Cause)>,
    /// It belongs to the run's backups: nothing in it is extraneous.
    pub(super) is_own: bool,
}

/// The destination's own listing of the directory.
pub(super) struct OwnEntries {
    /// Its entries from the current name on, as far as they were read.
    read: Peekable<vec::IntoIter<(Component, io::Result<Metadata>)>>,
    /// More of them are to come.
    goes_on: bool,
    /// Set while all of them could be read.
    pub(super) complete: bool,
    /// Whether notes of half-written files are among those that were read.
    has_notes: bool,
    /// Whether those that are to come cannot be notes.
    is_behind_notes: bool,
}

impl OwnEntries {
    fn none() -> Self {
        Self {
            read: Vec::new().into_iter().peekable(),
            goes_on: false,
            complete: true,
            has_notes: false,
            is_behind_notes: false,
        }
    }

    /// Adds a part.
    pub(super) fn extend(&mut self, part: ListedPart) {
        self.has_notes |= part.entries.iter().any(|(name, _)| is_notes_name(name.as_bytes()));
        self.is_behind_notes =
            part.last || part.entries.last().is_some_and(|(name, _)| is_behind_notes(name.as_bytes()));
        self.read = part.entries.into_iter().peekable();
        self.goes_on = !part.last;
        self.complete &= part.complete;
    }

    /// Returns whether notes of half-written files are among those that were read.
    pub(super) fn has_notes(&self) -> bool {
        self.has_notes
    }

    /// Returns whether the directory is known to have no notes of half-written files.
    pub(super) fn lacks_notes(&self) -> bool {
        self.complete && self.is_behind_notes && !self.has_notes
    }

    /// Returns whether the next part has to be read.
    pub(super) fn wants_part(&mut self) -> bool {
        self.goes_on && self.read.peek().is_none()
    }

    /// Returns whether there are no further entries.
    pub(super) fn is_over(&self) -> bool {
        !self.goes_on && self.read.len() == 0
    }

    /// Notes that no part follows.
    pub(super) fn end(&mut self) {
        self.goes_on = false;
    }

    /// Takes the next entry if it is one that is asked for.
    pub(super) fn next_if(
        &mut self,
        is_wanted: impl Fn(&Component) -> bool,
    ) -> Option<(Component, io::Result<Metadata>)> {
        self.read.next_if(|(name, _)| is_wanted(name))
    }
}

impl Merge {
    /// Returns the merge of a directory without a known state at the destination: its listed
    /// entries are judged and passed over.
    pub(super) fn ignored(id: EntryId, shared: SharedPath, judged: Judged) -> Self {
        Self {
            id,
            shared,
            judged,
            directory: None,
            own: OwnEntries::none(),
            last_name: None,
            left_out: false,
            alternates: Level::default(),
            extraneous: Vec::new(),
            missing: Vec::new(),
            astray: Vec::new(),
            leftovers: Leftovers::default(),
            covered: None,
            is_own: false,
        }
    }

    /// Returns the path of the directory, as far as that is known of one that is ignored.
    pub(super) fn path(&self) -> &[u8] {
        match &self.directory {
            Some(directory) => directory.path.as_bytes(),
            None => self.judged.path(),
        }
    }

    /// Returns the path of an entry of the directory.
    pub(super) fn path_of(&self, entry: &Entry) -> SharedPath {
        let name = Component::new(entry.name.as_bytes());
        name.map_or_else(|_| self.shared.clone(), |name| self.shared.join(&name))
    }

    /// Returns whether the directory has this path.
    pub(super) fn is_at(&self, path: &RelPath) -> bool {
        // Also of one that is ignored.
        self.shared.to_path() == *path
    }

    /// Returns the directory's path below the root.
    pub(super) fn shared(&self) -> &SharedPath {
        &self.shared
    }

    /// Returns the path of a directory that the destination has, and the last name of the source's
    /// listing.
    pub(super) fn standing(&self) -> Option<(SharedPath, Option<Vec<u8>>)> {
        let is_here = self.directory.as_ref().is_some_and(|directory| directory.dir.is_some());
        is_here.then(|| (self.shared.clone(), self.last_name.clone()))
    }

    /// Checks that names ascend strictly, so that none comes twice.
    pub(super) fn check_order(&mut self, entry: &Entry, id: EntryId) -> Result<(), SyncError> {
        let name = entry.name.as_bytes();
        if self.last_name.as_deref().is_some_and(|last| last >= name) {
            return Err(misbehaved(PeerMisbehaved::NamesOutOfOrder { entry: id }));
        }
        self.last_name = Some(name.to_vec());
        Ok(())
    }
}

/// Returns the metadata of a listed entry; `None` when it vanished or could not be looked at.
pub(super) fn known(metadata: &io::Result<Metadata>) -> Option<Found> {
    let metadata = metadata.as_ref().ok()?;
    Some(Found { kind: metadata.kind, mode: metadata.mode, device: metadata.dev, ino: metadata.ino })
}

/// Returns the path of an entry of the directory at this path, as the source names it.
pub(super) fn entry_path(directory: &[u8], entry: &Entry) -> Vec<u8> {
    let mut path = directory.to_vec();
    if !path.is_empty() {
        path.push(b'/');
    }
    path.extend_from_slice(entry.name.as_bytes());
    path
}
