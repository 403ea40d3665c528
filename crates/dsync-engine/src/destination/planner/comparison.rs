//! The two trees side by side, a directory at a time: both passes over the source's listing go
//! along here.

use std::{
    io,
    sync::{Arc, atomic::Ordering},
};

use dsync_fs::{Component, Dir, ListedPart, Metadata, RelPath, SharedPath, is_lock_name};
use dsync_wire::{
    budget::{Held, Share},
    message::{Cause, Entry, EntryId, EntryKind, Listing, Operation},
};

use super::{
    super::{Site, asked::Bounds, delete::Deletions, directory::Directory, protection::Protection},
    foreseen::Foreseen,
    frontier::{Ahead, Announced, Frontier, Presence},
    ground::Ground,
    merge::{Merge, entry_path, known},
    requests::Requests,
    shared_inodes::SharedInodes,
};
use crate::{
    SyncError,
    misbehaved::{PeerMisbehaved, misbehaved},
};

/// The comparison of the source's listing with the destination's own.
pub(super) struct Comparison<'a> {
    pub(super) site: &'a Site<'a>,
    /// The bounds on what the source may send.
    pub(super) bounds: Bounds<'a>,
    pub(super) ground: Ground,
    pub(super) frontier: Frontier,
    pub(super) protection: Protection,
    pub(super) deletions: Deletions,
    /// The directory whose listing has begun and not ended.
    current: Option<Merge>,
    pub(super) pass: Pass,
    /// The later names of the part that is being planned.
    pub(super) foreseen: Foreseen,
    pub(super) shared_inodes: SharedInodes,
}

/// A pass over the source's listing.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Pass {
    /// Looks only for entries to delete (`--delete-before`).
    Sweep,
    /// Plans.
    Plan,
}

impl<'a> Comparison<'a> {
    pub(super) fn new(
        site: &'a Site<'a>,
        bounds: Bounds<'a>,
        ground: Ground,
        protection: Protection,
    ) -> Result<Self, SyncError> {
        Ok(Self {
            site,
            bounds,
            frontier: Frontier::new(site)?,
            deletions: Deletions::new(protection.clone(), &site.policy.options, &ground.spools),
            ground,
            protection,
            current: None,
            pass: Pass::Plan,
            foreseen: Foreseen::default(),
            shared_inodes: SharedInodes::new(&site.session.budget)?,
        })
    }

    /// Begins with the root.
    pub(super) fn begin(&mut self, root: Announced) -> Result<(), SyncError> {
        let Ground { target, spools, .. } = &self.ground;
        self.frontier.begin(self.site, root, target.root.as_ref().map(|own| (own, spools)))
    }

    /// Returns the directory that a part of a listing is of: the current one, or the next.
    pub(super) fn turn_to(&mut self, id: EntryId, requests: &mut Requests<'_>) -> Result<Merge, SyncError> {
        if let Some(merge) = self.current.take().filter(|merge| merge.id == id) {
            return Ok(merge);
        }
        let mut merge = self.open(id, requests)?;
        if let Some(directory) = merge.directory.as_ref().filter(|_| self.pass == Pass::Plan) {
            merge.alternates = self.ground.level(&directory.path).unwrap_or_default();
        }
        Ok(merge)
    }

    /// Returns the number of the directory of this path, if a part of its listing may come next.
    pub(super) fn due(&self, path: &RelPath) -> Option<EntryId> {
        let current = self.current.as_ref().filter(|merge| merge.is_at(path));
        current.map(|merge| merge.id).or_else(|| self.frontier.due(path))
    }

    /// Returns the directories where the comparison stands, as far as the destination has them.
    pub(super) fn ahead(&self) -> Ahead {
        let current = self.current.as_ref().and_then(Merge::standing);
        Ahead { current, ..self.frontier.ahead() }
    }

    /// Judges a part of a listing before anything of it is looked at.
    pub(super) fn judge(&mut self, merge: &mut Merge, listing: &Listing) -> Result<(), SyncError> {
        if listing.last && listing.complete {
            self.bounds.whole(&merge.judged).map_err(|unasked| unasked.at(merge.path()))?;
        }
        merge.left_out |= listing.left_out;
        for entry in &listing.entries {
            let judged = self.bounds.entry(&mut merge.judged, entry);
            judged.map_err(|unasked| unasked.at(&entry_path(merge.path(), entry)))?;
        }
        Ok(())
    }

    /// Keeps the names of a listing from being those of backups.
    pub(super) fn claim_names(&self, merge: &Merge, listing: &Listing) -> Result<(), SyncError> {
        if let (Some(directory), Some(backups)) = (&merge.directory, self.site.backups.get()) {
            let names = listing.entries.iter().map(|entry| entry.name.as_bytes());
            backups.claim(&directory.path, names, listing.last)?;
        }
        Ok(())
    }

    /// Finds the destination's entry of this name; the entries before it are extraneous.
    pub(super) fn meet(
        &mut self,
        merge: &mut Merge,
        directory: &Directory,
        name: &Component,
    ) -> Result<Option<Metadata>, SyncError> {
        // The one source file that gets another name is the only one: all others are extraneous.
        let renamed = self.ground.renames();
        while let Some((found, metadata)) =
            self.next_own(merge, directory, |found| renamed || found <= name)?
        {
            if found == *name {
                return Ok(metadata.ok());
            }
            self.sort_out(merge, directory, found, known(&metadata))?;
        }
        Ok(None)
    }

    /// Returns the destination's state of an entry: under `keep_dirlinks` a directory where a link
    /// leads to one.
    ///
    /// # Errors
    /// Of a link that may neither be followed nor give way, which is the operator's to decide.
    pub(super) fn follow(
        &self,
        directory: &Directory,
        name: &Component,
        entry: &Entry,
        existing: Option<Metadata>,
    ) -> io::Result<Option<Metadata>> {
        match entry.kind {
            EntryKind::Directory
                if self.site.policy.options.keep_dirlinks
                    || entry.implied && self.site.policy.options.no_implied_dirs =>
            {
                self.ground.through_own_link((directory, name), existing, &self.protection)
            }
            _ => Ok(existing),
        }
    }

    /// Ends a part of a listing, and with the last one its directory.
    pub(super) fn end_part(&mut self, merge: Merge, listing: &Listing) -> Result<(), SyncError> {
        if !listing.last {
            self.current = Some(merge);
            return Ok(());
        }
        let path = merge.shared().clone();
        self.finish(merge, listing.complete)?;
        self.frontier.descend(&path);
        Ok(())
    }

    /// Sets the attributes of the directories that the source did not list.
    pub(super) fn end(&mut self) -> Result<(), SyncError> {
        while let Some(announced) = self.frontier.pop() {
            self.ground.settle_unlisted(self.site, &announced)?;
        }
        Ok(())
    }

    /// Goes to the directory whose listing begins; those that the source passes over are settled.
    fn go_to(&mut self, id: EntryId) -> Result<Announced, SyncError> {
        while let Some(announced) = self.frontier.pop() {
            if announced.id == id {
                return Ok(announced);
            }
            self.ground.settle_unlisted(self.site, &announced)?;
        }
        Err(misbehaved(PeerMisbehaved::NoSuchParent { parent: id }))
    }

    /// Opens the directory whose listing begins.
    fn open(&mut self, id: EntryId, requests: &mut Requests<'_>) -> Result<Merge, SyncError> {
        let Announced { path: shared, sets, wanted, state, .. } = self.go_to(id)?;
        let path = shared.to_path();
        let judged = self.bounds.directory(id, &path);
        let judged = judged.map_err(|unasked| unasked.at(path.as_bytes()))?;
        let mut merge = Merge::ignored(id, shared.clone(), judged);
        let dirty = match state {
            Presence::Ignored => return Ok(merge),
            Presence::Covered => {
                merge.covered = Some((path, Cause::Os(NOT_A_DIRECTORY)));
                return Ok(merge);
            }
            Presence::Imagined => false,
            Presence::New => true,
            Presence::Old { dirty } => dirty,
        };

        let Some(held) = self.take_place(&shared, requests)? else { return Ok(merge) };
        // Before anything of it is asked for: what arrives may be a file of rules.
        self.protection.enter(&path);
        self.protection.tell(self.site)?;
        let (dir, listed) = match self.open_announced((&shared, &path), state) {
            Ok(opened) => opened,
            Err(error) => {
                self.site.open.close(shared.len() as u64);
                self.note_unreadable(&mut merge, path, error)?;
                return Ok(merge);
            }
        };

        merge.is_own = dir.as_ref().is_some_and(|dir| self.ground.is_own(&path, dir));
        let directory = Arc::new(Directory::new(shared, dir, wanted, dirty).holding(held, sets));
        if let Some(mut part) = listed {
            if let Some(error) = part.error.take() {
                self.note_unreadable(&mut merge, path, error)?;
            }
            self.take_own(&mut merge, &directory, part)?;
        } else {
            // It is new, or imagined.
            directory.note_lack_of_notes();
        }
        merge.directory = Some(directory);
        Ok(merge)
    }

    /// Opens a directory that was announced, unless it is imagined. One that existed comes with the
    /// entries that were listed ahead.
    fn open_announced(
        &mut self,
        (shared, path): (&SharedPath, &RelPath),
        state: Presence,
    ) -> io::Result<(Option<Arc<Dir>>, Option<ListedPart>)> {
        let gone = || io::Error::from(io::ErrorKind::NotFound);
        match state {
            Presence::Imagined => Ok((None, None)),
            Presence::New => Ok((Some(self.ground.open_beneath(path)?), None)),
            _ => {
                let mut part = self.frontier.next_part(shared).ok_or_else(gone)?;
                match part.dir.take() {
                    Some(dir) => Ok((Some(dir), Some(part))),
                    None => Err(part.error.unwrap_or_else(gone)),
                }
            }
        }
    }

    /// Takes the right to have one more directory open, waiting for it; `None` when the run has
    /// ended.
    fn take_place(&self, path: &SharedPath, requests: &mut Requests<'_>) -> Result<Option<Held>, SyncError> {
        let (site, bytes) = (self.site, path.len() as u64);
        if !requests.take(&site.open.count, 1)? || !requests.take(&site.open.paths, bytes)? {
            return Ok(None);
        }
        Ok(Some(site.session.budget.take(Share::Paths, bytes)?))
    }

    /// Reports a directory that cannot be read. One that is closed to this user is told only when the
    /// source has something in it, or where the run looks for what is to go.
    fn note_unreadable(&self, merge: &mut Merge, path: RelPath, error: io::Error) -> Result<(), SyncError> {
        let options = &self.site.policy.options;
        let removes = options.delete || options.delete_missing_args;
        if removes || error.kind() != io::ErrorKind::PermissionDenied {
            return self.tell_unreadable(&path, error);
        }

        let cause = self.site.cause_or_fatal(Operation::ReadDestination, &path, error)?;
        // The second pass may open it up.
        merge.covered = Some((path, cause)).filter(|_| self.pass != Pass::Sweep);
        Ok(())
    }

    /// Reports that the source's entries in a directory cannot be copied, as another entry has the
    /// directory's name or it is closed.
    pub(super) fn tell_covered(&self, merge: &mut Merge) -> Result<(), SyncError> {
        merge
            .covered
            .take()
            .map_or(Ok(()), |(path, cause)| self.site.problem(Operation::ReadDestination, &path, cause))
    }

    pub(super) fn tell_unreadable(&self, path: &RelPath, error: io::Error) -> Result<(), SyncError> {
        let cause = self.site.cause_or_fatal(Operation::ReadDestination, path, error)?;
        // A first pass that deletes nothing misses nothing there, and the second may open it up.
        if self.pass == Pass::Sweep && !self.site.policy.options.delete {
            return Ok(());
        }
        self.site.problem(Operation::ReadDestination, path, cause)
    }

    /// Takes a part of the destination's own entries.
    fn take_own(
        &mut self,
        merge: &mut Merge,
        directory: &Directory,
        mut part: ListedPart,
    ) -> Result<(), SyncError> {
        if let Some(error) = part.error.take() {
            self.tell_unreadable(&directory.path, error)?;
        }

        // Names that are listed but may not be looked at are of a directory that is closed too. With notes of
        // `--fake-super` a single entry may be refused, for its note.
        let is_refused = |found: &io::Result<_>| {
            found.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied)
        };
        let closed = part.entries.iter().any(|(_, found)| is_refused(found)) && merge.own.complete;
        if let Some(Err(error)) = directory.dir.as_ref().filter(|_| closed).map(|dir| dir.reopen()) {
            part.complete = false;
            self.note_unreadable(merge, directory.path.clone(), error)?;
        }
        // The lock of a run is nothing of the destination's.
        let locks = part.entries.iter().filter(|(name, _)| is_lock_name(name.as_bytes())).count();
        self.deletions.compare(part.entries.len() - locks);
        merge.own.extend(part);
        if merge.own.lacks_notes() {
            directory.note_lack_of_notes();
        } else if merge.own.has_notes() {
            self.site.tree.had_notes.store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Takes the destination's next entry if it is one that is asked for.
    fn next_own(
        &mut self,
        merge: &mut Merge,
        directory: &Directory,
        is_wanted: impl Fn(&Component) -> bool,
    ) -> Result<Option<(Component, io::Result<Metadata>)>, SyncError> {
        while merge.own.wants_part() {
            match self.frontier.next_part(&directory.shared) {
                Some(part) => self.take_own(merge, directory, part)?,
                None => merge.own.end(),
            }
        }
        Ok(merge.own.next_if(is_wanted))
    }

    /// Ends a directory: notes its deletions, releases it.
    fn finish(&mut self, mut merge: Merge, complete: bool) -> Result<(), SyncError> {
        let Some(directory) = merge.directory.take() else { return Ok(()) };
        while let Some((name, metadata)) = self.next_own(&mut merge, &directory, |_| true)? {
            self.sort_out(&mut merge, &directory, name, known(&metadata))?;
        }

        self.deletions.note(self.site, &directory, std::mem::take(&mut merge.missing))?;
        self.sort_out_astray(&mut merge)?;
        merge.leftovers.settle_notes(self.site, &directory);
        // Where not all is known of both, nothing is known to be extraneous.
        if complete && merge.own.complete {
            self.guard_empty_source(&mut merge, &directory)?;
            self.guard_home(&merge, &directory)?;
            self.deletions.note(self.site, &directory, std::mem::take(&mut merge.extraneous))?;
            merge.leftovers.remove_rest(self.site, &directory);
        } else {
            self.deletions.keep_unsure(merge.extraneous.len());
            for (name, kind) in merge.extraneous.iter().filter(|_| self.pass == Pass::Plan) {
                self.site.tell_spared(&directory.path.join(name), *kind)?;
            }
        }

        if merge.is_own {
            self.deletions.settle_last(&directory)?;
        }
        directory.release(self.site)
    }
}

/// Linux's `ENOTDIR`.
const NOT_A_DIRECTORY: i32 = 20;
