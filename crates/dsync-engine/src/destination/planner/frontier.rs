//! The directories that come next: those that the source has listed as entries, and the
//! destination's own beside them.
//!
//! The source lists a directory after its parent, in the order of its parent's listing, and
//! everything below it before the next. So the directories that were announced form a stack. The
//! destination's own listings are read ahead in the same order, by threads.

use std::sync::Arc;

use dsync_fs::{Dir, ListedPart, RelPath, SharedPath, SpoolHome, Wanted};
use dsync_wire::{
    budget::{Held, Share},
    message::EntryId,
};

use super::{super::Site, listings::Listings};
use crate::{SyncError, set_bytes::ALLOCATION};

/// A directory that the source will list.
pub(in super::super) struct Announced {
    pub(super) id: EntryId,
    /// Below the root; of one that is ignored, nothing.
    pub(in super::super) path: SharedPath,
    /// Memory of its attributes.
    pub(super) sets: Option<Arc<Held>>,
    pub(super) wanted: Option<Wanted>,
    /// Its state at the destination.
    pub(super) state: Presence,
    /// Whether the source may list its entries.
    pub(super) expected: bool,
}

/// The state of an announced directory at the destination.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Presence {
    /// It existed and has to be compared.
    Old { dirty: bool },
    /// It was just made and is empty.
    New,
    /// It is not made, so everything in it is new.
    Imagined,
    /// It is left alone with all that is in it.
    Ignored,
    /// An entry that is no directory has its name and is left alone.
    Covered,
}

impl Announced {
    /// Returns the bytes of a directory that waits for its listing, here and where it is listed
    /// ahead.
    fn weight(&self) -> u64 {
        let path =
            if self.path.is_root() { 0 } else { SharedPath::OVERHEAD + self.path.name_len() + ALLOCATION };
        (size_of::<Self>() + 2 * ALLOCATION + path) as u64
    }

    /// Returns the root of the transfer.
    pub(super) fn root(wanted: Option<Wanted>, state: Presence) -> Self {
        Self { id: EntryId(0), path: SharedPath::root(), sets: None, wanted, state, expected: true }
    }

    /// Returns a directory that is passed over with all that is in it.
    pub(super) fn ignored(id: EntryId, path: SharedPath) -> Self {
        Self { id, path, sets: None, wanted: None, state: Presence::Ignored, expected: true }
    }

    /// Returns whether the destination has it and its entries have to be compared.
    pub(super) fn is_old(&self) -> bool {
        self.expected && matches!(self.state, Presence::Old { .. })
    }
}

/// The directories where the comparison stands.
#[derive(Default)]
pub(super) struct Ahead {
    /// The one whose listing has begun and not ended, and the last name of that listing.
    pub(super) current: Option<(SharedPath, Option<Vec<u8>>)>,
    /// The directories of the current one that were announced.
    pub(super) children: Vec<SharedPath>,
    /// The others that were announced, the next one last.
    pub(super) next: Vec<SharedPath>,
}

/// The directories whose listings have not begun.
pub(super) struct Frontier {
    /// Those that were announced before the current directory's listing, the next one last.
    next: Vec<Announced>,
    /// Those of the current directory, in order.
    children: Vec<Announced>,
    /// Memory of both.
    held: Held,
    /// The destination's own listings; none where there is nothing to list.
    listings: Option<Listings>,
}

impl Frontier {
    /// Returns one without directories.
    pub(super) fn new(site: &Site<'_>) -> Result<Self, SyncError> {
        let held = site.session.budget.take(Share::Paths, 0)?;
        Ok(Self { next: Vec::new(), children: Vec::new(), held, listings: None })
    }

    /// Begins with the root; `own` is its directory at the destination, and the home of its
    /// listings.
    pub(super) fn begin(
        &mut self,
        site: &Site<'_>,
        root: Announced,
        own: Option<(&Arc<Dir>, &SpoolHome)>,
    ) -> Result<(), SyncError> {
        self.next.clear();
        self.children.clear();
        self.held.shrink(self.held.bytes());

        if let Some((own, spools)) = own {
            let ahead = usize::try_from(site.open.count.limit() / 4).unwrap_or(usize::MAX);
            let waiting = usize::try_from(site.open.most_waiting).unwrap_or(usize::MAX);
            let held = site.session.budget.nothing(Share::Listings);
            self.listings = Some(Listings::new((own, spools), (ahead, waiting), held));
        }

        if let Some(listings) = self.listings.as_mut().filter(|_| root.is_old()) {
            listings.begin();
        }
        self.announce(root)?;
        self.next.append(&mut self.children);
        Ok(())
    }

    /// Adds a directory of the current one.
    pub(super) fn announce(&mut self, announced: Announced) -> Result<(), SyncError> {
        self.held.grow(announced.weight())?;
        self.children.push(announced);
        Ok(())
    }

    /// Ends the current directory: its own directories come next, and are listed ahead.
    pub(super) fn descend(&mut self, current: &SharedPath) {
        if let Some(listings) = &mut self.listings {
            let old = self.children.iter().filter(|directory| directory.is_old());
            listings.descend(current, old.map(|directory| directory.path.clone()).collect());
        }
        self.next.extend(self.children.drain(..).rev());
    }

    /// Takes the next directory.
    pub(super) fn pop(&mut self) -> Option<Announced> {
        let announced = self.next.pop()?;
        self.held.shrink(announced.weight());
        Some(announced)
    }

    /// Returns the next part of the destination's own listing of a directory.
    pub(super) fn next_part(&mut self, path: &SharedPath) -> Option<ListedPart> {
        self.listings.as_mut()?.next_part(path)
    }

    /// Returns the destination's own listings, for the walk that answers spans.
    pub(super) fn listings(&mut self) -> Option<&mut Listings> {
        self.listings.as_mut()
    }

    /// Returns the number of the directory of this path, if its listing may come next.
    pub(super) fn due(&self, path: &RelPath) -> Option<EntryId> {
        let is_it = |directory: &&Announced| directory.path.to_path() == *path;
        self.next.iter().rev().find(is_it).map(|directory| directory.id)
    }

    /// Returns the paths of the directories that the destination has and that come next.
    pub(super) fn ahead(&self) -> Ahead {
        let old = |announced: &[Announced]| {
            let old = announced.iter().filter(|directory| directory.is_old());
            old.map(|directory| directory.path.clone()).collect()
        };
        Ahead { current: None, children: old(&self.children), next: old(&self.next) }
    }
}
