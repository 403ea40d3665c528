//! A directory's two listings side by side: what the destination has of each name, and what only it has.

use std::{collections::HashSet, iter::Peekable, sync::Arc, vec};

use dsync_fs::{
    Component, Dir, Kind, ListAhead, ListedPart, Metadata, RelPath, SharedPath, Spare, apart, is_apart_name,
    is_finished_name, is_kept_name, is_lock_name, is_temp_name, kept, owner::is_abandoned,
};
use dsync_wire::{
    budget::{Held, Share},
    message::{Cause, Entry, EntryId, Listing, Operation},
    options::DeleteTiming,
};

use super::{Announced, Planner, Presence};
use crate::{
    SyncError,
    destination::{
        alternate::Level,
        asked::Judged,
        delete::Found,
        directory::{Directory, settle},
        homes, weight,
    },
    misbehaved::{PeerMisbehaved, misbehaved},
};

/// A directory whose listing is arriving.
pub(super) struct Merge {
    pub(super) id: EntryId,
    /// Its path, also where it is ignored.
    shared: SharedPath,
    /// For judging what the source says is in it.
    pub(super) judged: Judged,
    pub(super) directory: Option<Arc<Directory>>,
    /// The destination's entries from the current name on, as far as they were read.
    pub(super) local: Peekable<vec::IntoIter<(Component, std::io::Result<Metadata>)>>,
    /// More of them are to come.
    pub(super) local_goes_on: bool,
    /// True when all of the destination's entries could be read.
    pub(super) local_complete: bool,
    pub(super) last_name: Option<Vec<u8>>,
    /// Where entries of this directory may be as well.
    pub(super) alternates: Level,
    pub(super) extraneous: Vec<(Component, Kind)>,
    /// What goes because the source was asked for it and does not have it.
    pub(super) missing: Vec<(Component, Kind)>,
    /// An earlier run may have left complete files here.
    pub(super) has_finished: bool,
    /// The directory's path, if another entry has its name: to be told when the source has something in it.
    pub(super) covered: Option<RelPath>,
    /// Parts that earlier runs left here, and the names of those that this run takes up.
    pub(super) parts: (Vec<Component>, HashSet<Component>),
    /// It belongs to the run's backups: nothing in it is extraneous.
    pub(super) is_own: bool,
}

impl Merge {
    /// A directory of which nothing is known at the destination: what is listed of it is judged and passed over.
    fn ignored(id: EntryId, shared: SharedPath, judged: Judged) -> Self {
        Self {
            id,
            shared,
            judged,
            directory: None,
            local: Vec::new().into_iter().peekable(),
            local_goes_on: false,
            local_complete: true,
            last_name: None,
            alternates: Level::default(),
            extraneous: Vec::new(),
            missing: Vec::new(),
            has_finished: false,
            covered: None,
            parts: Default::default(),
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

    /// The path of an entry of the directory.
    pub(super) fn path_of(&self, entry: &Entry) -> SharedPath {
        let name = Component::new(entry.name.as_bytes());
        name.map_or_else(|_| self.shared.clone(), |name| self.shared.join(&name))
    }
}

impl Planner<'_> {
    /// The directory that a part of a listing is of: the current one, or the next.
    pub(super) fn turn_to_merge(&mut self, id: EntryId) -> Result<Merge, SyncError> {
        if let Some(merge) = self.current.take().filter(|merge| merge.id == id) {
            return Ok(merge);
        }
        let mut merge = self.begin(id)?;
        let alternates = self.alternates.as_ref().filter(|_| self.sweep.is_none());
        if let (Some(alternates), Some(directory)) = (alternates, &merge.directory) {
            merge.alternates = alternates.level(&directory.path);
        }
        Ok(merge)
    }

    /// Ends a part of a listing, and with the last one its directory.
    pub(super) fn end_part(&mut self, merge: Merge, listing: &Listing) -> Result<(), SyncError> {
        if !listing.last {
            self.current = Some(merge);
            return Ok(());
        }
        self.finish(merge, listing.complete)?;
        let children = std::mem::take(&mut self.children);
        self.expect(children);
        Ok(())
    }

    /// Opens the directory whose listing begins.
    pub(super) fn begin(&mut self, id: EntryId) -> Result<Merge, SyncError> {
        let Announced { path: shared, sets, wanted, state, .. } = self.turn_to(id)?;
        let path = shared.to_path();
        let judged = self.bounds.directory(id, &path);
        let judged = judged.map_err(|unasked| unasked.at(path.as_bytes()))?;
        let merge = Merge::ignored(id, shared.clone(), judged);
        let dirty = match state {
            Presence::Ignored => return Ok(merge),
            Presence::Covered => return Ok(Merge { covered: Some(path), ..merge }),
            Presence::Imagined => false,
            Presence::New => true,
            Presence::Old { dirty } => dirty,
        };
        let Some(held) = self.take_place(&shared)? else { return Ok(merge) };
        if state == Presence::Imagined {
            let directory = Directory::new(shared, None, wanted, dirty).holding(held, sets);
            return Ok(Merge { directory: Some(Arc::new(directory)), ..merge });
        }
        let (opened, listed) = self.open_announced(&path, state);
        let dir = match opened {
            Ok(dir) => dir,
            Err(error) => {
                self.site.open.count.release();
                self.site.open.paths.give(shared.len() as u64);
                let cause = self.site.cause_or_fatal(Operation::ReadDestination, &path, error)?;
                self.site.problem(Operation::ReadDestination, &path, cause)?;
                return Ok(merge);
            }
        };
        let is_own = self.is_own(&path, &dir);
        let directory = Arc::new(Directory::new(shared, Some(dir), wanted, dirty).holding(held, sets));
        let mut merge = Merge { is_own, directory: Some(Arc::clone(&directory)), ..merge };
        if let Some(part) = listed {
            self.take_local(&mut merge, &directory, part)?;
        }
        Ok(merge)
    }

    /// Opens a directory that was announced; one that was there comes with what was listed of it ahead.
    fn open_announced(
        &mut self,
        path: &RelPath,
        state: Presence,
    ) -> (std::io::Result<Arc<Dir>>, Option<ListedPart>) {
        if state == Presence::New {
            return (self.open(path), None);
        }
        match self.ahead.as_mut().and_then(ListAhead::next_part) {
            Some(ListedPart { dir: None, error, .. }) => (Err(error.unwrap_or_else(gone)), None),
            Some(mut part) => (part.dir.take().ok_or_else(gone), Some(part)),
            None => (Err(gone()), None),
        }
    }

    /// Takes the right to have one more directory open, waiting for it; `None` when the run has ended.
    fn take_place(&mut self, path: &SharedPath) -> Result<Option<Held>, SyncError> {
        let (site, bytes) = (self.site, path.len() as u64);
        if !self.take_one(&site.open.count)? || !self.take_some(&site.open.paths, bytes)? {
            return Ok(None);
        }
        Ok(Some(site.session.budget.take(Share::Paths, bytes)?))
    }

    /// Tells that what the source has in a directory cannot be copied, as another entry has the directory's name.
    pub(super) fn tell_covered(&self, merge: &mut Merge) -> Result<(), SyncError> {
        merge.covered.take().map_or(Ok(()), |path| {
            self.site.problem(Operation::ReadDestination, &path, Cause::Os(NOT_A_DIRECTORY))
        })
    }

    /// Returns whether a directory belongs to the run's backups, which the source may have a directory for.
    fn is_own(&mut self, path: &RelPath, dir: &Dir) -> bool {
        let below = |own: &RelPath| own.components().zip(path.components()).all(|(a, b)| a == b);
        let within = |own: &RelPath| own.depth() <= path.depth() && below(own);
        if self.own_paths.iter().any(within) {
            return true;
        }
        let is_own = !path.is_root() && self.own.has_whole(dir);
        if is_own {
            self.own_paths.push(path.clone());
        }
        is_own
    }

    /// Notes directories that come next, and has them listed meanwhile.
    pub(super) fn expect(&mut self, directories: Vec<Announced>) {
        if let Some(ahead) = &mut self.ahead {
            let old = directories.iter().filter(|directory| directory.is_old());
            ahead.expect(old.map(|directory| directory.path.clone()));
        }
        self.announced.extend(directories.into_iter().rev());
    }

    /// Goes to the directory whose listing begins; those that the source passes over are settled.
    pub(super) fn turn_to(&mut self, id: EntryId) -> Result<Announced, SyncError> {
        while let Some(announced) = self.announced.pop() {
            self.waiting.shrink(weight::of_announced(&announced));
            if announced.id == id {
                return Ok(announced);
            }
            if announced.is_old() {
                while self.ahead.as_mut().and_then(ListAhead::next_part).is_some_and(|part| !part.last) {}
            }
            self.settle_unlisted(&announced)?;
        }
        Err(misbehaved(PeerMisbehaved::NoSuchParent { parent: id }))
    }

    /// Takes a part of the destination's own entries.
    pub(super) fn take_local(
        &mut self,
        merge: &mut Merge,
        directory: &Directory,
        part: ListedPart,
    ) -> Result<(), SyncError> {
        if let Some(error) = part.error {
            let cause = self.site.cause_or_fatal(Operation::ReadDestination, &directory.path, error)?;
            self.site.problem(Operation::ReadDestination, &directory.path, cause)?;
        }
        // The lock of a run is nothing of the destination's.
        let own = part.entries.iter().filter(|(name, _)| is_lock_name(name.as_bytes())).count();
        self.deletions.compare(part.entries.len() - own);
        merge.local = part.entries.into_iter().peekable();
        merge.local_goes_on = !part.last;
        merge.local_complete &= part.complete;
        Ok(())
    }

    /// Takes the destination's next entry if it is one that is asked for.
    pub(super) fn next_local(
        &mut self,
        merge: &mut Merge,
        directory: &Directory,
        is_wanted: impl Fn(&Component) -> bool,
    ) -> Result<Option<(Component, std::io::Result<Metadata>)>, SyncError> {
        while merge.local_goes_on && merge.local.peek().is_none() {
            match self.ahead.as_mut().and_then(ListAhead::next_part) {
                Some(part) => self.take_local(merge, directory, part)?,
                None => merge.local_goes_on = false,
            }
        }
        Ok(merge.local.next_if(|(name, _)| is_wanted(name)))
    }

    pub(super) fn open(&self, path: &RelPath) -> std::io::Result<Arc<Dir>> {
        match self.target.as_ref().and_then(|target| target.root.as_ref()) {
            Some(root) if path.is_root() => Ok(Arc::clone(root)),
            Some(root) => root.open_beneath(path).map(Arc::new),
            None => Err(std::io::ErrorKind::NotFound.into()),
        }
    }

    /// Finds the destination's entry of this name; what comes before it is extraneous.
    pub(super) fn meet(
        &mut self,
        merge: &mut Merge,
        directory: &Directory,
        name: &Component,
    ) -> Result<Option<Metadata>, SyncError> {
        // The one source file that gets another name is the only one: all others are extraneous.
        let renamed = self.target.as_ref().is_some_and(|target| target.rename.is_some());
        while let Some((found, metadata)) =
            self.next_local(merge, directory, |found| renamed || found <= name)?
        {
            if found == *name {
                return Ok(metadata.ok());
            }
            self.extraneous(merge, directory, found, known(&metadata))?;
        }
        Ok(None)
    }

    /// Notes a destination entry that the source does not have; removes leftovers of killed runs.
    pub(super) fn extraneous(
        &self,
        merge: &mut Merge,
        directory: &Directory,
        name: Component,
        found: Option<Found>,
    ) -> Result<(), SyncError> {
        let Some(found) = found else { return Ok(()) };
        let options = &self.site.policy.options;
        if is_temp_name(name.as_bytes()) {
            // Another run may work below this one's root, and this one by another name of the directory.
            let stopped = Some(&**self.site.session.halt.stop_flag());
            let spare = Spare { places: Some(&self.own), stopped, ..Spare::NOTHING };
            if let (false, Some(dir)) = (options.dry_run, &directory.dir)
                && is_abandoned(dir, &name)
                && dir.remove_tree(&name, spare, &mut |_, _| {}).is_ok()
            {
                directory.touch();
            }
            return Ok(());
        }
        if is_lock_name(name.as_bytes()) {
            // This run's own is held, as is one of a run below.
            if let (false, Some(dir)) = (options.dry_run, &directory.dir)
                && dir.reap_lock()
            {
                directory.touch();
            }
            return Ok(());
        }
        // One that others may enter was made by somebody else.
        let own = found.mode == homes::PARTS_MODE && self.site.homes.is_for_parts(&name, found.kind);
        if own && !options.dry_run {
            directory.note_parts();
        }
        merge.has_finished |= is_finished_name(name.as_bytes());
        let foreign = || directory.dir.as_ref().is_some_and(|dir| self.site.homes.holds(dir));
        if is_apart_name(name.as_bytes()) || is_kept_name(name.as_bytes()) && foreign() {
            if let (false, Some(dir)) = (options.dry_run, &directory.dir)
                && apart::reap(dir, &name)
            {
                directory.touch();
            }
            return Ok(());
        }
        let sweeping = self.sweep.is_some();
        if options.delete && is_kept_name(name.as_bytes()) {
            if !sweeping {
                merge.parts.0.push(name);
            }
            return Ok(());
        }
        let missing = directory.path.is_root() && self.missing.contains(&name);
        // After a sweep, what was to go has gone.
        if merge.is_own {
            return Ok(());
        }
        let over = options.delete_timing == DeleteTiming::Before && options.delete && !sweeping;
        if over || !(options.delete || missing) || self.protection.covers(directory, &name, found) {
            return Ok(());
        }
        if !missing {
            merge.extraneous.push((name, found.kind));
        } else if found.kind == Kind::Dir && !options.delete && !options.force && is_filled(directory, &name)
        {
            let path = directory.path.join(&name);
            self.site.problem(Operation::Delete, &path, Cause::DirectoryInTheWay)?;
        } else {
            merge.missing.push((name, found.kind));
        }
        Ok(())
    }

    /// Ends a directory: notes its deletions, releases it.
    pub(super) fn finish(&mut self, mut merge: Merge, complete: bool) -> Result<(), SyncError> {
        let Some(directory) = merge.directory.take() else { return Ok(()) };
        while let Some((name, metadata)) = self.next_local(&mut merge, &directory, |_| true)? {
            self.extraneous(&mut merge, &directory, name, known(&metadata))?;
        }
        self.links.end_directory()?;
        self.deletions.note(self.site, &directory, std::mem::take(&mut merge.missing))?;
        if complete && merge.local_complete {
            self.guard_empty_source(&merge, &directory)?;
            if !merge.extraneous.is_empty() {
                self.note_swept(&directory.path)?;
            }
            self.deletions.note(self.site, &directory, std::mem::take(&mut merge.extraneous))?;
            self.remove_parts(&merge, &directory);
        }
        if merge.is_own {
            self.deletions.settle_last(&directory)?;
        }
        directory.release(self.site)
    }

    /// With `delete`, removes parts of files that are not asked for any more.
    pub(super) fn remove_parts(&self, merge: &Merge, directory: &Directory) {
        let (parts, taken_up) = &merge.parts;
        let Some(dir) = directory.dir.as_ref().filter(|_| !self.site.policy.options.dry_run) else { return };
        for name in parts.iter().filter(|name| !taken_up.contains(name)) {
            if kept::reap(dir, name) {
                directory.touch();
            }
        }
    }

    /// An operand without any entry is more often a disk that is not mounted than a tree that was emptied.
    pub(super) fn guard_empty_source(&self, merge: &Merge, directory: &Directory) -> Result<(), SyncError> {
        let is_operand = match self.bounds.is_contents() {
            true => directory.path.is_root(),
            false => directory.path.depth() == 1,
        };
        let empties = merge.last_name.is_none() && !merge.extraneous.is_empty();
        if !is_operand || !empties || self.site.policy.options.allow_empty_source {
            return Ok(());
        }
        Err(SyncError::EmptySource {
            path: self.site.display_path(&directory.path),
            entries: merge.extraneous.len() as u64,
        })
    }

    /// Gives a directory its attributes that the source does not list.
    pub(super) fn settle_unlisted(&self, announced: &Announced) -> Result<(), SyncError> {
        let dirty = match announced.state {
            Presence::New => true,
            Presence::Old { dirty } => dirty,
            Presence::Imagined | Presence::Ignored | Presence::Covered => false,
        };
        if !dirty {
            return Ok(());
        }
        let path = announced.path.to_path();
        if let Ok(dir) = self.open(&path) {
            settle(self.site, &path, Some(&dir), announced.wanted.as_ref())?;
        }
        Ok(())
    }
}

/// True unless the directory is known to be empty.
fn is_filled(directory: &Directory, name: &Component) -> bool {
    let child = directory.dir.as_ref().and_then(|dir| dir.open_child(name).ok());
    child.is_none_or(|child| !child.list().entries.is_empty())
}

/// Linux's `ENOTDIR`.
const NOT_A_DIRECTORY: i32 = 20;

fn gone() -> std::io::Error {
    std::io::ErrorKind::NotFound.into()
}

/// What a listed entry is; `None` when it vanished or could not be looked at.
fn known(metadata: &std::io::Result<Metadata>) -> Option<Found> {
    let metadata = metadata.as_ref().ok()?;
    Some(Found { kind: metadata.kind, mode: metadata.mode, device: metadata.dev, ino: metadata.ino })
}

/// Names of one directory ascend strictly, so none comes twice.
pub(super) fn check_order(merge: &mut Merge, entry: &Entry, id: EntryId) -> Result<(), SyncError> {
    let name = entry.name.as_bytes();
    if merge.last_name.as_deref().is_some_and(|last| last >= name) {
        return Err(misbehaved(PeerMisbehaved::NamesOutOfOrder { entry: id }));
    }
    merge.last_name = Some(name.to_vec());
    Ok(())
}
