//! Entries that only the destination has: some go, some stay, and some are dsync's own.

use std::iter;

use dsync_fs::{
    Component, Dir, Kind, RelPath, SharedPath, Spare, apart, is_abandoned, is_apart_name, is_finished_name,
    is_kept_name, is_lock_name, is_notes_name, is_temp_name,
};
use dsync_wire::{
    message::{Cause, Operation},
    options::DeleteTiming,
};

use super::{
    super::{directory::Directory, homes, protection::Found},
    comparison::{Comparison, Pass},
    merge::{Merge, known},
};
use crate::SyncError;

/// The fate of an entry that the source does not have.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// It is left alone.
    Stays,
    /// A temporary of a run, which may live.
    Temporary,
    /// The lock of a run, which may live.
    Lock,
    /// Notes of a run that has its temporaries elsewhere, or a part of such a run.
    Apart,
    /// A part of a file, which goes unless it is taken up.
    Part,
    /// It goes, as the source was asked for it by name.
    Missing,
    /// It would go for that, but is a directory with entries.
    Filled,
    /// It goes.
    Extraneous,
}

impl Comparison<'_> {
    /// Notes a destination entry that the source does not have; removes the remains of dead runs.
    pub(super) fn sort_out(
        &mut self,
        merge: &mut Merge,
        directory: &Directory,
        name: Component,
        found: Option<Found>,
    ) -> Result<(), SyncError> {
        let Some(found) = found else { return Ok(()) };
        if is_finished_name(name.as_bytes()) {
            merge.leftovers.note_finished();
        }
        let is_foreign = || directory.dir.as_ref().is_some_and(|dir| self.site.homes.holds(dir));
        if is_notes_name(name.as_bytes()) && self.pass == Pass::Plan && !is_foreign() {
            merge.leftovers.note_notes(name.clone());
        }

        if self.would_remove_home(merge, directory, &name, found) {
            let path = self.site.display_path(&directory.path.join(&name));
            return Err(SyncError::DestinationPrecious { path, home: true });
        }

        let fate = self.fate(merge, directory, &name, found);
        if fate == Fate::Stays && self.has_missing_within(directory, &name, found) {
            merge.astray.push(directory.path.join(&name));
        }
        // One that others may enter was made by somebody else.
        if found.mode == homes::PARTS_MODE && self.site.homes.is_for_parts(&name, found.kind) {
            if matches!(fate, Fate::Extraneous | Fate::Missing) {
                directory.leave_parts();
            } else {
                directory.note_parts();
            }
        }
        match fate {
            // A sweep is followed by another pass.
            Fate::Stays if self.site.asks_why() && self.pass == Pass::Plan && !merge.is_own => {
                self.site.tell_stays((directory, &name), found.kind, &self.protection)?;
            }
            Fate::Stays => {}
            Fate::Temporary => self.reap(directory, |dir| self.reap_temporary(dir, &name)),
            Fate::Lock => self.reap(directory, Dir::reap_lock),
            Fate::Apart => self.reap(directory, |dir| apart::reap(dir, &name)),
            Fate::Part => merge.leftovers.note(name),
            Fate::Missing => merge.missing.push((name, found.kind)),
            Fate::Extraneous => merge.extraneous.push((name, found.kind)),
            Fate::Filled => {
                let path = directory.path.join(&name);
                self.site.problem(Operation::Delete, &path, Cause::DirectoryInTheWay)?;
            }
        }
        Ok(())
    }

    /// Returns whether an entry that only the destination has is the user's home directory, and goes but for
    /// that.
    fn would_remove_home(
        &self,
        merge: &Merge,
        directory: &Directory,
        name: &Component,
        found: Found,
    ) -> bool {
        let goes = self.site.policy.options.delete || self.ground.is_missing(directory, name);
        let is_home = || self.ground.is_home(|| Some((found.device, found.ino)));
        goes && is_home() && !merge.is_own && !self.protection.rules_cover(directory, name, found)
    }

    /// Refuses to remove entries of the user's home directory that the source does not have.
    pub(super) fn guard_home(&self, merge: &Merge, directory: &Directory) -> Result<(), SyncError> {
        let inode = || {
            let found = directory.dir.as_ref()?.metadata().ok()?;
            Some((found.dev, found.ino))
        };
        if merge.extraneous.is_empty() || !self.ground.is_home(inode) {
            return Ok(());
        }
        Err(SyncError::DestinationPrecious { path: self.site.display_path(&directory.path), home: true })
    }

    /// Returns whether something was asked for by name that is in this directory, which only the
    /// destination has.
    fn has_missing_within(&self, directory: &Directory, name: &Component, found: Found) -> bool {
        found.kind == Kind::Dir
            && self.ground.missing_within(&directory.path.join(name)).next().is_some()
            && !self.protection.covers(directory, name, found)
    }

    /// Notes what goes, as it was asked for by name, in directories that only the destination has; they
    /// themselves stay.
    pub(super) fn sort_out_astray(&mut self, merge: &mut Merge) -> Result<(), SyncError> {
        while let Some(path) = merge.astray.pop() {
            let dir = match self.ground.open_beneath(&path) {
                Ok(dir) => dir,
                Err(error) => {
                    self.tell_unreadable(&path, error)?;
                    continue;
                }
            };
            self.protection.enter(&path);
            let steps = path.components().filter_map(|step| Component::new(step).ok());
            let shared = steps.fold(SharedPath::default(), |above, step| above.join(&step));
            let directory = Directory::new(shared, Some(dir), None, false);

            let mut goes = Vec::new();
            for name in self.ground.missing_names(&path) {
                let metadata = directory.dir.as_ref().map(|dir| dir.stat(&name));
                let Some(found) = metadata.as_ref().and_then(known) else { continue };
                match self.fate(merge, &directory, &name, found) {
                    Fate::Missing => goes.push((name, found.kind)),
                    Fate::Filled => {
                        self.site.problem(Operation::Delete, &path.join(&name), Cause::DirectoryInTheWay)?;
                    }
                    Fate::Stays if self.has_missing_within(&directory, &name, found) => {
                        merge.astray.push(path.join(&name));
                    }
                    _ => {}
                }
            }
            self.deletions.note(self.site, &directory, goes)?;
        }
        Ok(())
    }

    fn fate(&self, merge: &Merge, directory: &Directory, name: &Component, found: Found) -> Fate {
        let options = &self.site.policy.options;
        let (bytes, sweeps) = (name.as_bytes(), self.pass == Pass::Sweep);
        let foreign = || directory.dir.as_ref().is_some_and(|dir| self.site.homes.holds(dir));
        let remains = match () {
            () if is_temp_name(bytes) => Some(Fate::Temporary),
            () if is_lock_name(bytes) => Some(Fate::Lock),
            () if is_apart_name(bytes) || is_kept_name(bytes) && foreign() => Some(Fate::Apart),
            () => None,
        };
        if let Some(fate) = remains {
            // The pass after a sweep removes it, once the directory's time is compared.
            return if sweeps { Fate::Stays } else { fate };
        }
        if options.delete && is_kept_name(bytes) {
            return if sweeps { Fate::Stays } else { Fate::Part };
        }

        let missing = self.ground.is_missing(directory, name);
        // After a sweep, the deletions are made.
        let over = options.delete_timing == DeleteTiming::Before && options.delete && !sweeps;
        let may_go = !merge.is_own && !over && (options.delete || missing);
        let stays = !missing && self.is_on_another_filesystem(directory);
        if !may_go || stays || self.protection.covers(directory, name, found) {
            return Fate::Stays;
        }
        let needs_force = found.kind == Kind::Dir && !options.delete && !options.force;
        match missing {
            true if needs_force && is_filled(directory, name) => Fate::Filled,
            true => Fate::Missing,
            false => Fate::Extraneous,
        }
    }

    /// Returns whether something is mounted on a directory of the destination, or above it and below what an
    /// operand stands for, in a run that stays on one filesystem.
    fn is_on_another_filesystem(&self, directory: &Directory) -> bool {
        if !self.site.policy.options.one_file_system {
            return false;
        }
        let Some(here) = directory.dir.as_ref().and_then(|dir| dir.device().ok()) else { return false };
        let mut upwards = iter::successors(Some(directory.path.clone()), RelPath::parent);
        let top = upwards.find(|path| self.bounds.is_operand(path)).unwrap_or_else(RelPath::root);
        // A directory that cannot be looked at is not emptied.
        !self.ground.open_beneath(&top).and_then(|top| top.device()).is_ok_and(|there| there == here)
    }

    /// Removes the remains of a dead run.
    fn reap(&self, directory: &Directory, reap: impl FnOnce(&Dir) -> bool) {
        if let Some(dir) = &directory.dir
            && self.site.hands.reap(|| reap(dir))
        {
            directory.touch();
        }
    }

    /// Removes a temporary, unless the run that made it may live: another run may work below this
    /// one's root, and this one by another name of the directory.
    fn reap_temporary(&self, dir: &Dir, name: &Component) -> bool {
        let stopped = Some(&**self.site.session.halt.stop_flag());
        let spare = Spare { places: Some(&self.ground.own), stopped, ..Spare::NOTHING };
        is_abandoned(dir, name) && dir.remove_tree(name, spare, &mut |_, _| {}).is_ok()
    }

    /// Refuses to empty a directory for an operand without any entry: that is more often a disk
    /// that is not mounted than a tree that was emptied. One whose entries the rules left out is no such
    /// operand. Of one among several the entries stay, which is told, and the others are copied.
    pub(super) fn guard_empty_source(
        &self,
        merge: &mut Merge,
        directory: &Directory,
    ) -> Result<(), SyncError> {
        let is_operand = self.bounds.is_operand(&directory.path);
        let empties = merge.last_name.is_none() && !merge.left_out && !merge.extraneous.is_empty();
        if !is_operand || !empties || self.site.policy.options.allow_empty_source {
            return Ok(());
        }
        let may_tell = self.site.knows_empty_sources();
        if !directory.path.is_root() && self.bounds.has_several_names() && may_tell {
            merge.extraneous.clear();
            return self.site.problem(Operation::Delete, &directory.path, Cause::EmptySource);
        }
        Err(SyncError::EmptySource {
            path: self.site.display_path(&directory.path),
            entries: merge.extraneous.len() as u64,
        })
    }
}

/// Returns whether a directory may have entries.
fn is_filled(directory: &Directory, name: &Component) -> bool {
    let child = directory.dir.as_ref().and_then(|dir| dir.open_child(name).ok());
    child.is_none_or(|child| !child.list().entries.is_empty())
}
