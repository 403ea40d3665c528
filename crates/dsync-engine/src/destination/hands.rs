//! The destination's hands: every change that planning, deleting and ending make to its disk.
//!
//! The law: decisions are the same in a run and in its dry run, because they cannot ask which of
//! the two it is. Which one it is shows here only. The hands of a dry run are idle: they change
//! nothing and report success, so that all later steps go on as they would after the change. Where
//! a later step looks at the disk again, they remember what it would have found there
//! ([`as_found`](Hands::as_found)).
//!
//! Content does not pass here: a dry run asks for none ([`Requests`](super::planner)), so nothing
//! is staged or committed.

use std::{
    collections::HashSet,
    io,
    sync::{Arc, Mutex},
    time::{SystemTime, UNIX_EPOCH},
};

use dsync_fs::{
    Component, Dir, DirLock, Kind, Metadata, RelPath, RemoveError, Spare, Special, Timestamp, Wanted,
    Withheld,
};
use dsync_wire::{
    budget::{Budget, Held, OverBudget, Share},
    options::{DeleteTiming, SyncOptions},
};

use crate::halt::lock;

/// The hands of a run.
pub(super) enum Hands {
    /// Those of a run: they do what they are told.
    Working,
    /// Those of a dry run.
    Idle(Imagined),
}

/// Changes that idle hands did not make, as far as the run looks at the disk again.
pub(super) struct Imagined {
    /// Directories in which something would have been removed before they are compared, and their
    /// memory.
    changed: Mutex<(HashSet<RelPath>, Held)>,
    /// Files that would have been removed before what was moved is looked for, and their memory; `None`
    /// where nothing is looked for, or nothing is removed before.
    gone: Option<Mutex<(HashSet<RelPath>, Held)>>,
}

/// The right to change a destination.
pub(super) enum Lock {
    /// No other run has it.
    Held { lock: DirLock },
    /// Nothing is changed.
    Needless,
}

impl Hands {
    /// Returns the hands of a run with these options; what idle hands remember comes out of
    /// `budget`.
    pub(super) fn of(options: &SyncOptions, budget: &Arc<Budget>) -> Self {
        if !options.dry_run {
            return Self::Working;
        }
        let nothing = || Mutex::new((HashSet::new(), budget.nothing(Share::Paths)));
        let goes_first = options.delete_timing == DeleteTiming::Before && options.detects_renamed();
        Self::Idle(Imagined { changed: nothing(), gone: goes_first.then(nothing) })
    }

    fn work<T: Default>(&self, change: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        match self {
            Self::Working => change(),
            Self::Idle(_) => Ok(T::default()),
        }
    }

    /// Takes the lock of a destination; `None` when another run has it.
    pub(super) fn lock(
        &self,
        take: impl FnOnce() -> io::Result<Option<DirLock>>,
    ) -> io::Result<Option<Lock>> {
        match self {
            Self::Working => Ok(take()?.map(|lock| Lock::Held { lock })),
            Self::Idle(_) => Ok(Some(Lock::Needless)),
        }
    }

    /// Creates the destination's root; `None` when it is only imagined.
    pub(super) fn create_root(&self, create: impl FnOnce() -> io::Result<Dir>) -> io::Result<Option<Dir>> {
        self.work(|| create().map(Some))
    }

    /// Makes a directory.
    pub(super) fn make_directory(&self, dir: &Dir, name: &Component, mode: u16) -> io::Result<()> {
        self.work(|| dir.make_dir(name, mode))
    }

    /// Makes a symbolic link.
    pub(super) fn make_symlink(
        &self,
        dir: &Dir,
        name: &Component,
        target: &[u8],
        wanted: &Wanted,
    ) -> io::Result<Withheld> {
        self.work(|| dir.make_symlink(name, target, wanted))
    }

    /// Makes a device, fifo or socket.
    pub(super) fn make_special(
        &self,
        dir: &Dir,
        name: &Component,
        special: Special,
        wanted: &Wanted,
    ) -> io::Result<Withheld> {
        self.work(|| dir.make_special(name, special, wanted))
    }

    /// Links the file `first` of another directory under one more name.
    pub(super) fn make_hard_link(
        &self,
        dir: &Dir,
        name: &Component,
        from: &Dir,
        first: &Component,
    ) -> io::Result<()> {
        self.work(|| dir.make_hard_link(name, from, first))
    }

    /// Renames an entry over the old one of that name.
    pub(super) fn rename(&self, dir: &Dir, from: &Component, to: &Component) -> io::Result<()> {
        self.work(|| dir.rename(from, to))
    }

    /// Renames `temp` to `name`. Returns the new name of the entry that had it until then; `None`
    /// without one.
    pub(super) fn take_name(
        &self,
        dir: &Dir,
        temp: &Component,
        name: &Component,
    ) -> io::Result<Option<Component>> {
        match self {
            Self::Working => Ok(dir.take_name(temp, name)?.then(|| temp.clone())),
            Self::Idle(_) => Ok(Some(name.clone())),
        }
    }

    /// Removes an entry that is no directory.
    pub(super) fn remove_file(&self, dir: &Dir, name: &Component) -> io::Result<()> {
        self.work(|| dir.remove_file(name))
    }

    /// Removes a directory if it is empty.
    pub(super) fn remove_empty_directory(&self, dir: &Dir, name: &Component) -> io::Result<()> {
        self.work(|| dir.remove_empty_dir(name))
    }

    /// Takes an entry that is no directory out of its directory, into its backup if the run keeps
    /// one.
    pub(super) fn set_aside(&self, set_aside: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        self.work(set_aside)
    }

    /// Removes a directory and all in it that is not spared; `removed` is called for each entry.
    /// With `backups_beside` the backups of its entries stay in the directory, so that it stays as
    /// well.
    pub(super) fn remove_tree(
        &self,
        dir: &Dir,
        name: &Component,
        spare: Spare<'_>,
        backups_beside: bool,
        removed: &mut dyn FnMut(&RelPath, Kind),
    ) -> Result<(), RemoveError> {
        match self {
            Self::Working => dir.remove_tree(name, spare, removed),
            Self::Idle(_) => {
                let mut staying = Staying { backups_beside, directories: HashSet::new() };
                dir.list_tree(name, spare, &mut |path, kind| {
                    if staying.goes(path, kind) {
                        removed(path, kind);
                    }
                })
            }
        }
    }

    /// Returns whether directories that their owner may not read are opened up for being removed or
    /// counted.
    pub(super) fn unlocks(&self) -> bool {
        matches!(self, Self::Working)
    }

    /// Sets the attributes of an entry.
    pub(super) fn dress(
        &self,
        dir: &Dir,
        name: &Component,
        kind: Kind,
        wanted: &Wanted,
    ) -> io::Result<Withheld> {
        self.work(|| dir.set_attributes(name, kind, wanted))
    }

    /// Sets the attributes of the directory itself.
    pub(super) fn dress_itself(&self, dir: &Dir, wanted: &Wanted) -> io::Result<Withheld> {
        self.work(|| dir.set_own_attributes(wanted))
    }

    /// Removes an entry that a dead run left. Returns whether something is gone.
    pub(super) fn reap(&self, reap: impl FnOnce() -> bool) -> bool {
        matches!(self, Self::Working) && reap()
    }

    /// Writes the changes to the disk.
    pub(super) fn sync<E>(&self, sync: impl FnOnce() -> Result<(), E>) -> Result<(), E> {
        match self {
            Self::Working => sync(),
            Self::Idle(_) => Ok(()),
        }
    }

    /// Notes that something was removed in a directory which is compared later.
    pub(super) fn note_changed(&self, directory: &RelPath) -> Result<(), OverBudget> {
        if let Self::Idle(imagined) = self {
            let (directories, held) = &mut *lock(&imagined.changed);
            held.grow((directory.as_bytes().len() + CHANGED_BYTES) as u64)?;
            directories.insert(directory.clone());
        }
        Ok(())
    }

    /// Notes that an entry was removed. Of more than there is memory for the dry run goes on to look at files
    /// that a run would not have any more.
    pub(super) fn note_gone(&self, path: &RelPath, kind: Kind) {
        let Self::Idle(Imagined { gone: Some(gone), .. }) = self else { return };
        let (files, held) = &mut *lock(gone);
        if kind == Kind::File && held.grow((path.as_bytes().len() + CHANGED_BYTES) as u64).is_ok() {
            files.insert(path.clone());
        }
    }

    /// Returns whether a file would not be there any more.
    pub(super) fn is_gone(&self, path: impl FnOnce() -> RelPath) -> bool {
        let Self::Idle(Imagined { gone: Some(gone), .. }) = self else { return false };
        lock(gone).0.contains(&path())
    }

    /// Returns the metadata that a look at an entry would find after the changes so far: removing
    /// an entry changes the time of its directory.
    pub(super) fn as_found(&self, path: &RelPath, found: Metadata) -> Metadata {
        match self {
            Self::Idle(imagined) if found.kind == Kind::Dir && lock(&imagined.changed).0.contains(path) => {
                Metadata { mtime: now(), ..found }
            }
            _ => found,
        }
    }
}

/// Directories that would stay because the backups of their entries stay in them.
struct Staying {
    backups_beside: bool,
    directories: HashSet<RelPath>,
}

impl Staying {
    /// Returns whether an entry would be removed; everything in a directory is asked for before the
    /// directory.
    fn goes(&mut self, path: &RelPath, kind: Kind) -> bool {
        if kind == Kind::Dir {
            return !self.directories.contains(path);
        }
        let mut above = path.parent().filter(|_| self.backups_beside);
        while let Some(directory) = above.filter(|directory| !directory.is_root()) {
            above = directory.parent();
            self.directories.insert(directory);
        }
        true
    }
}

fn now() -> Timestamp {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let seconds = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
    Timestamp { seconds, nanoseconds: now.subsec_nanos() }
}

/// Bytes of a remembered directory beside its path: an entry of a set that has just doubled, and an
/// allocation.
const CHANGED_BYTES: usize = 3 * size_of::<RelPath>() + 32;

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::disallowed_methods)]
mod tests {
    use super::*;

    #[test]
    fn idle_hands_change_nothing_and_say_that_they_did() {
        let scratch = tempfile::tempdir().unwrap();
        std::fs::write(scratch.path().join("f"), b"old").unwrap();
        let dir = Dir::open_operand(scratch.path()).unwrap();
        let [file, other] = [b"f", b"g"].map(|name| Component::new(name).unwrap());
        let hands = Hands::of(&SyncOptions::default().dry_run(true), &Arc::default());
        hands.make_directory(&dir, &other, 0o700).unwrap();
        hands.rename(&dir, &file, &other).unwrap();
        hands.remove_file(&dir, &file).unwrap();
        assert_eq!(hands.take_name(&dir, &other, &file).unwrap(), Some(file.clone()));
        assert!(!hands.reap(|| unreachable!()));
        let mut gone = Vec::new();
        let name = Component::new(b"d").unwrap();
        std::fs::create_dir(scratch.path().join("d")).unwrap();
        std::fs::write(scratch.path().join("d/x"), b"").unwrap();
        let mut tell = |path: &RelPath, _| gone.push(path.as_bytes().to_vec());
        hands.remove_tree(&dir, &name, Spare::NOTHING, false, &mut tell).unwrap();
        assert_eq!(gone, [b"d/x".to_vec(), b"d".to_vec()]);
        assert_eq!(std::fs::read(scratch.path().join("f")).unwrap(), b"old");
        assert!(scratch.path().join("d/x").exists() && !scratch.path().join("g").exists());
    }

    #[test]
    fn a_directory_that_lost_an_entry_is_found_with_a_new_time() {
        let scratch = tempfile::tempdir().unwrap();
        let found = Dir::open_operand(scratch.path()).unwrap().metadata().unwrap();
        let old = Metadata { mtime: Timestamp { seconds: 5, nanoseconds: 0 }, ..found };
        let (path, other) = (RelPath::parse(b"a").unwrap(), RelPath::parse(b"b").unwrap());
        let idle = Hands::of(&SyncOptions::default().dry_run(true), &Arc::default());
        idle.note_changed(&path).unwrap();
        assert!(idle.as_found(&path, old).mtime.seconds > 5);
        assert_eq!(idle.as_found(&other, old).mtime, old.mtime);
        Hands::Working.note_changed(&path).unwrap();
        assert_eq!(Hands::Working.as_found(&path, old).mtime, old.mtime);
    }
}
