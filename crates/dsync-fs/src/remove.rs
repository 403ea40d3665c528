//! Removes whole trees by directory handle.
//!
//! The law: nothing outside the directory is removed, whatever somebody else does to the tree
//! meanwhile. Every step opens one name without following links, and checks on the way back up that
//! the directory is still the one it came through. A mount point is never entered. The removal is
//! iterative with a bounded number of open descriptors, so depth costs only memory for names.

use std::{
    io,
    os::fd::AsFd,
    sync::atomic::{AtomicBool, Ordering},
    vec,
};

use rustix::{io::Errno, process::geteuid};

use crate::{
    attributes::{Handle, Privileges, chmod},
    component::{Component, RelPath},
    dir::{Dir, is_no_directory},
    kept::is_left,
    metadata::Kind,
    own_places::OwnPlaces,
};

/// A removal that left something behind.
#[derive(Debug, thiserror::Error)]
#[error("cannot remove '{}'", path.as_bytes().escape_ascii())]
pub struct RemoveError {
    /// The first entry that stayed, relative to the directory where the removal started.
    pub path: RelPath,
    /// The reason.
    #[source]
    pub source: io::Error,
}

/// The entries to keep when a tree is removed, along with the directories above them. Keeping one
/// is no error.
#[derive(Clone, Copy)]
pub struct Spare<'a> {
    /// Returns whether an entry stays, with everything in it.
    pub entries: &'a dyn Fn(&RelPath, Kind) -> bool,
    /// Whether directories on another filesystem are spared. Otherwise they stay as well, but as a
    /// failure.
    pub mounts: bool,
    /// Directories that stay wherever they are found.
    pub places: Option<&'a OwnPlaces>,
    /// Flag that makes the removal end early, with an error of the kind
    /// [`Interrupted`](io::ErrorKind::Interrupted).
    pub stopped: Option<&'a AtomicBool>,
    /// Whether to unlock the user's own directories that cannot be read or written, and to lock
    /// again those that stay. Root needs none of this.
    pub unlocks: bool,
    /// Asked before each removal of an entry, or of a directory that is empty by then: one that it
    /// refuses stays.
    pub permits: &'a dyn Fn() -> bool,
    /// Whether what ended runs [have left](crate::is_left) goes without a word: it is no entry of the tree,
    /// and has no backup.
    pub reaps: bool,
    /// Removes an entry that is not a directory; the path is relative to the start of the removal.
    pub unlink: &'a dyn Fn(&Dir, &Component, &RelPath) -> io::Result<()>,
}

impl Spare<'_> {
    /// Spares nothing.
    pub const NOTHING: Spare<'static> = Spare {
        entries: &|_, _| false,
        mounts: false,
        places: None,
        stopped: None,
        unlocks: false,
        permits: &|| true,
        reaps: false,
        unlink: &|dir, name, _| dir.remove_file(name),
    };
}

impl Dir {
    /// Removes an entry and everything below it, except what `spare` names. Continues after an
    /// entry that cannot be removed.
    ///
    /// Calls `visitor` for each removed entry with its path relative to this directory: in byte
    /// order of names, the entries of a directory before the directory.
    ///
    /// # Errors
    /// [`RemoveError`] for the first entry that stayed. An entry that had already vanished is no
    /// error. A directory on another filesystem stays with `EXDEV`, unless it is spared.
    pub fn remove_tree(
        &self,
        name: &Component,
        spare: Spare<'_>,
        visitor: &mut dyn FnMut(&RelPath, Kind),
    ) -> Result<(), RemoveError> {
        Removal::new(self, name, spare, visitor, false).run()
    }

    /// Visits the entries that [`Dir::remove_tree`] would remove, in the same order, and removes
    /// nothing.
    ///
    /// # Errors
    /// [`RemoveError`] for the first entry that could not be read; it would stay.
    pub fn list_tree(
        &self,
        name: &Component,
        spare: Spare<'_>,
        visitor: &mut dyn FnMut(&RelPath, Kind),
    ) -> Result<(), RemoveError> {
        Removal::new(self, name, spare, visitor, true).run()
    }
}

impl Dir {
    /// Opens a directory in this one to remove its entries. A directory's owner may lack the
    /// permissions to list or write it but may change them. This function then does so and returns
    /// the directory's previous mode, for [`lock_child`](Self::lock_child).
    ///
    /// # Errors
    /// As [`open_child`](Self::open_child).
    pub fn open_unlocked(&self, name: &Component) -> io::Result<(Self, Option<u16>)> {
        let opened = self.open_child(name);
        let is_refused = |error: &io::Error| error.kind() == io::ErrorKind::PermissionDenied;
        if Privileges::current().is_root() || opened.as_ref().is_err_and(|error| !is_refused(error)) {
            return opened.map(|dir| (dir, None));
        }
        let now = match &opened {
            Ok(dir) => dir.metadata()?,
            Err(_) => self.stat(name)?,
        };
        if now.kind != Kind::Dir || now.mode & OWNER_WORKS == OWNER_WORKS || now.uid != geteuid().as_raw() {
            return opened.map(|dir| (dir, None));
        }
        self.lock_child(name, (now.dev, now.ino), now.mode | OWNER_WORKS)?;
        self.open_child(name).map(|dir| (dir, Some(now.mode)))
    }

    /// Grants this process's user the permissions to work in this directory of his own, if he may
    /// enter but not read it. Returns the directory's previous mode if that changed.
    ///
    /// # Errors
    /// The system's error.
    pub fn unlock(&self) -> io::Result<Option<u16>> {
        // A note of `--fake-super` says nothing about what the directory itself allows.
        let now = self.own_inode()?;
        let is_open = now.mode & OWNER_READS != 0;
        if Privileges::current().is_root() || is_open || now.uid != geteuid().as_raw() {
            return Ok(None);
        }
        self.set_inode_mode(now.mode | OWNER_WORKS)?;
        Ok(Some(now.mode))
    }

    /// Sets the mode of a directory in this one, if it still is the one of this filesystem and
    /// inode.
    ///
    /// # Errors
    /// The system's error.
    pub fn lock_child(&self, name: &Component, identity: (u64, u64), mode: u16) -> io::Result<()> {
        let (fd, now) = self.open_path(name)?;
        if (now.dev, now.ino) == identity {
            chmod(fd.as_fd(), Handle::PathOnly, mode)
        } else {
            Err(io::ErrorKind::NotFound.into())
        }
    }
}

/// Permissions that a directory's owner needs to list it and to work in it.
const OWNER_WORKS: u16 = 0o700;

/// Permission that a directory's owner needs to list it.
const OWNER_READS: u16 = 0o400;

struct Removal<'a> {
    base: &'a Dir,
    spare: Spare<'a>,
    visitor: &'a mut dyn FnMut(&RelPath, Kind),
    dry_run: bool,
    /// Path of the last level.
    path: RelPath,
    levels: Vec<Level>,
    failure: Option<RemoveError>,
}

/// A directory being emptied.
struct Level {
    /// Closed for levels far up; reopened on the way back. Always `None` for the first level, which
    /// is the base.
    dir: Option<Dir>,
    /// Filesystem and inode.
    identity: (u64, u64),
    pending: vec::IntoIter<(Component, Option<Kind>)>,
    /// Whether something in it stays, so that it must stay as well.
    stays: bool,
    /// Its mode before it was unlocked.
    locked: Option<u16>,
    /// Number of times that it was listed.
    listed: usize,
}

impl<'a> Removal<'a> {
    fn new(
        base: &'a Dir,
        name: &Component,
        spare: Spare<'a>,
        visitor: &'a mut dyn FnMut(&RelPath, Kind),
        dry_run: bool,
    ) -> Self {
        let pending = vec![(name.clone(), None)].into_iter();
        let first = Level { dir: None, identity: (0, 0), pending, stays: false, locked: None, listed: 1 };
        Self { base, spare, visitor, dry_run, path: RelPath::root(), levels: vec![first], failure: None }
    }

    fn run(mut self) -> Result<(), RemoveError> {
        while let Some(level) = self.levels.last_mut() {
            if self.spare.stopped.is_some_and(|stopped| stopped.load(Ordering::Acquire)) {
                let path = self.path.clone();
                self.relock_all();
                return Err(RemoveError { path, source: io::ErrorKind::Interrupted.into() });
            }

            match level.pending.next() {
                Some((name, kind)) => {
                    if let Err(error) = self.enter(&name, kind, 1) {
                        self.fail(self.path.join(&name), error);
                    }
                }
                None => self.leave(),
            }
        }
        self.failure.map_or(Ok(()), Err)
    }

    /// Removes an entry of the last level, or descends into it.
    fn enter(&mut self, name: &Component, kind: Option<Kind>, listed: usize) -> io::Result<()> {
        let (dry_run, reaps) = (self.dry_run, self.spare.reaps);
        let parent = self.last_dir()?;
        let kind = match kind.map_or_else(|| parent.stat(name).map(|found| found.kind), Ok) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            kind => kind?,
        };

        if reaps && is_left(parent, name) {
            return if dry_run { Ok(()) } else { parent.remove_file(name) };
        }
        if (self.spare.entries)(&self.path.join(name), kind) {
            return self.keep();
        }

        let spare @ Spare { unlink, .. } = self.spare;
        let path = self.path.join(name);
        let parent = self.last_dir()?;
        if kind == Kind::Dir {
            match open_level(parent, name, listed, spare) {
                Ok(Some(level)) => {
                    self.push(name, level);
                    return Ok(());
                }
                Ok(None) => {
                    return self.keep();
                }
                // It has become something else, which is removed like anything else.
                Err(error) if is_no_directory(&error) => {}
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
                // A directory that cannot be listed may still be empty.
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied && !dry_run => {
                    if !(spare.permits)() {
                        return self.keep();
                    }
                    return parent
                        .remove_empty_dir(name)
                        .map(|()| (self.visitor)(&path, kind))
                        .map_err(|_| error);
                }
                Err(error) if self.spare.mounts && error.kind() == io::ErrorKind::CrossesDevices => {
                    return self.keep();
                }
                Err(error) => return Err(error),
            }
        }

        if !(spare.permits)() {
            return self.keep();
        }
        let parent = self.last_dir()?;
        if !dry_run {
            match unlink(parent, name, &path) {
                // Else the place of its backup was not found.
                Err(error) if error.kind() == io::ErrorKind::NotFound && parent.lacks(name) => {
                    return Ok(());
                }
                result => result?,
            }
        }

        (self.visitor)(&self.path.join(name), kind);
        Ok(())
    }

    fn push(&mut self, name: &Component, level: Level) {
        self.path.push(name);
        self.levels.push(level);
        let close = self.levels.len().checked_sub(MAX_OPEN + 1);
        if let Some(level) = close.and_then(|index| self.levels.get_mut(index)) {
            level.dir = None;
        }
    }

    /// Removes the last level's directory, which is now empty.
    fn leave(&mut self) {
        let Some(level) = self.levels.pop() else { return };
        let Some(name) = self.path.file_name() else { return };
        let path = self.path.clone();
        self.path.pop();
        let stays = level.stays || !(self.spare.permits)();
        if (stays || self.dry_run)
            && let Err(error) = self.relock(&name, &level)
        {
            self.fail(path.clone(), error);
        }
        if stays {
            return self.keep_level();
        }

        match self.remove_emptied(&name) {
            Ok(()) => (self.visitor)(&path, Kind::Dir),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            // Somebody added an entry meanwhile, or the entries' backups are beside them.
            Err(error) if is_not_empty(&error) && level.listed < MAX_LISTED => {
                let _ = self.relock(&name, &level);
                if let Err(error) = self.enter(&name, Some(Kind::Dir), level.listed + 1) {
                    self.fail(path, error);
                }
            }
            Err(error) => {
                let _ = self.relock(&name, &level);
                self.fail(path, error);
            }
        }
    }

    /// Relocks the directories that a removal which ends early leaves half emptied, from the deepest up.
    fn relock_all(&mut self) {
        while let (Some(level), Some(name)) = (self.levels.pop(), self.path.file_name()) {
            self.path.pop();
            let _ = self.relock(&name, &level);
        }
    }

    /// Takes back the permissions that a directory which stays got for its entries' removal.
    fn relock(&mut self, name: &Component, level: &Level) -> io::Result<()> {
        let Some(mode) = level.locked else { return Ok(()) };
        match self.last_dir().and_then(|parent| parent.lock_child(name, level.identity, mode)) {
            // Somebody has moved it away.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            relocked => relocked,
        }
    }

    fn remove_emptied(&mut self, name: &Component) -> io::Result<()> {
        if self.dry_run {
            return Ok(());
        }
        self.last_dir()?.remove_empty_dir(name)
    }

    /// Returns the last level's directory; reopens it if it was closed.
    fn last_dir(&mut self) -> io::Result<&Dir> {
        let is_base = self.levels.len() <= 1;
        match self.levels.last_mut() {
            Some(level) if !is_base => {
                if level.dir.is_none() {
                    let dir = self.base.open_beneath(&self.path)?;
                    let now = dir.metadata()?;
                    if (now.dev, now.ino) != level.identity {
                        return Err(io::ErrorKind::NotFound.into());
                    }
                    level.dir = Some(dir);
                }
                level.dir.as_ref().ok_or_else(|| io::ErrorKind::NotFound.into())
            }
            _ => Ok(self.base),
        }
    }

    /// Passes over an entry, which then keeps the last level.
    fn keep(&mut self) -> io::Result<()> {
        self.keep_level();
        Ok(())
    }

    /// Marks the last level's directory as staying, because something in it stays.
    fn keep_level(&mut self) {
        if let Some(level) = self.levels.last_mut() {
            level.stays = true;
        }
    }

    fn fail(&mut self, path: RelPath, source: io::Error) {
        self.keep_level();
        self.failure.get_or_insert(RemoveError { path, source });
    }
}

/// Opens and lists a directory; returns `None` for one of `places`.
fn open_level(
    parent: &Dir,
    name: &Component,
    listed: usize,
    Spare { places, unlocks, .. }: Spare<'_>,
) -> io::Result<Option<Level>> {
    let (dir, locked) = if unlocks { parent.open_unlocked(name)? } else { (parent.open_child(name)?, None) };
    let metadata = dir.metadata()?;
    if places.is_some_and(|places| places.has(&metadata)) {
        return Ok(None);
    }
    // A bound directory is of the same filesystem, and of another mount.
    if metadata.dev != parent.device()? || dir.mount()? != parent.mount()? {
        return Err(Errno::XDEV.into());
    }

    let mut names = Vec::new();
    let mut complete = true;
    let error = dir.for_each_name_once(&mut complete, |name, _, kind| names.push((name, kind)));
    if let Some(error) = error {
        return Err(error);
    }
    names.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
    let identity = (metadata.dev, metadata.ino);
    Ok(Some(Level { dir: Some(dir), identity, pending: names.into_iter(), stays: false, locked, listed }))
}

fn is_not_empty(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::NOTEMPTY | Errno::EXIST))
}

/// Number of levels kept open, counted from the deepest.
const MAX_OPEN: usize = 64;

/// Number of times to list a directory that others fill while it is emptied.
const MAX_LISTED: usize = 3;
