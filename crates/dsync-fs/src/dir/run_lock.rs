//! The lock that keeps two runs from writing to one destination at once.
//!
//! The law: only a user who may write to the directory can hold the lock or keep a run waiting.
//! Anybody who may read a directory may lock its handle, so the handle is no lock. The lock is on a
//! file in the directory, which only users who may create one there can open. The file exists as
//! long as the run. The kernel drops a killed run's lock with the process, and the next run takes
//! the file over. The directory's modification time is preserved.
//!
//! A user who may write to another's directory cannot preserve its time. Where everybody who may
//! read it may also write to it, that user locks the handle and makes no file: such a lock is no
//! reader's lever. The other runs there lock the handle before they make their file. An access control list
//! may admit readers, so a directory with one gets a file, and so another time.
//!
//! A user who may not create a file in the directory (it is another's, read-only, or full) locks
//! the handle as the next best: such runs at least keep each other out.

use std::{
    fmt, io,
    os::fd::{AsFd, OwnedFd},
};

use rustix::{
    fs::{AtFlags, FlockOperation, Mode, OFlags, Uid, fgetxattr, flock, fremovexattr, openat, unlinkat},
    io::Errno,
    process::geteuid,
};

use super::{Dir, NO_FOLLOW, retry};
use crate::{
    attributes::{Privileges, Wanted, chmod, set_times},
    metadata::{Kind, Metadata},
    own_names::LOCK_NAME,
    source_file::stat_fd,
    sys,
};

/// A lock that keeps other runs out of a directory until it is dropped. The kernel drops it with
/// the process.
pub struct DirLock {
    /// The locked file and the directory from which to remove it.
    file: Option<(Dir, OwnedFd)>,
    /// The directory's own handle, locked beside the file or instead of it.
    _handle: Option<OwnedFd>,
    /// The file was there before.
    is_left: bool,
}

impl DirLock {
    fn new(file: Option<(Dir, OwnedFd)>, handle: Option<OwnedFd>) -> Self {
        Self { file, _handle: handle, is_left: false }
    }

    /// Lets other runs lock the directory, as dropping it does, and tells when that cost the directory
    /// its mode, its owner or its time.
    ///
    /// # Errors
    /// The system's error, if one of these could not be set again. That the lock's name could not be
    /// removed is none: the next run takes the file over.
    pub fn release(mut self) -> io::Result<()> {
        self.let_go()
    }

    fn let_go(&mut self) -> io::Result<()> {
        let Some((dir, fd)) = self.file.take() else { return Ok(()) };
        let before = stat_fd(dir.fd.as_fd());
        // Remove it under the lock, so that nobody can lock a file that has lost its name without
        // noticing.
        let removal = match dir.remove_lock_file(&fd) {
            Removal { removed: Err(error), restored: Ok(()) }
                if error.kind() == io::ErrorKind::PermissionDenied =>
            {
                dir.taking_back(|| dir.remove_lock_file(&fd))
            }
            removal => removal,
        };
        // A filesystem in user space may give an open file another name, which goes only now.
        drop(fd);

        let time = match before.and_then(|before| dir.restore_time(&before)) {
            // Another user's directory.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(()),
            restored => restored,
        };
        removal.restored.and(time)
    }

    /// Returns whether a run that had the lock before was killed.
    pub fn follows_killed(&self) -> bool {
        self.is_left
    }
}

impl fmt::Debug for DirLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DirLock").field("in_a_file", &self.file.is_some()).finish_non_exhaustive()
    }
}

impl Drop for DirLock {
    fn drop(&mut self) {
        let _ = self.let_go();
    }
}

/// The outcome of a removal for which something of the directory was set otherwise for a moment.
struct Removal {
    removed: io::Result<()>,
    /// Whether the directory is again as it was.
    restored: io::Result<()>,
}

impl Removal {
    /// Removes once something `was_set` otherwise, and restores that.
    fn between(
        was_set: io::Result<()>,
        remove: impl FnOnce() -> Self,
        restore: impl FnOnce() -> io::Result<()>,
    ) -> Self {
        if let Err(error) = was_set {
            return Self { removed: Err(error), restored: Ok(()) };
        }
        let Self { removed, restored } = remove();
        let back = restore();
        Self { removed, restored: restored.and(back) }
    }
}

/// The result of one attempt.
enum Try {
    Held(OwnedFd),
    /// Held as well; a killed run has left the file.
    Left(OwnedFd),
    /// There is no file, and none is needed.
    Needless,
    /// Another run holds the lock.
    Taken,
    /// The lock file cannot exist here.
    Impossible,
    /// The file was created, or lost its name, meanwhile.
    Again,
}

impl Dir {
    /// Locks the directory for one run; returns `None` if another run holds the lock. Keeps out
    /// only runs that lock.
    ///
    /// # Errors
    /// The system's error; [`AlreadyExists`](io::ErrorKind::AlreadyExists) if another kind of entry
    /// has the lock's name.
    pub fn try_lock(&self) -> io::Result<Option<DirLock>> {
        let handle = if self.is_shared() { self.try_lock_handle() } else { Err(Errno::ACCESS.into()) };
        let handle = match handle {
            Ok(None) => return Ok(None),
            Ok(handle) => handle,
            // Then no other run locks it either.
            Err(_) => None,
        };

        let enough = handle.is_some() && self.is_anothers();
        // Where descriptors run out, no file has been made yet.
        let own = self.duplicate()?;
        for _ in 0..MOST_TRIES {
            match self.try_lock_file(!enough)? {
                Try::Held(fd) => return Ok(Some(DirLock::new(Some((own, fd)), handle))),
                Try::Left(fd) => {
                    let mut lock = DirLock::new(Some((own, fd)), handle);
                    lock.is_left = true;
                    return Ok(Some(lock));
                }
                Try::Taken => return Ok(None),
                Try::Impossible if handle.is_none() => {
                    let handle = self.try_lock_handle()?;
                    return Ok(handle.map(|fd| DirLock::new(None, Some(fd))));
                }
                Try::Impossible | Try::Needless => {
                    return Ok(Some(DirLock::new(None, handle)));
                }
                Try::Again => {}
            }
        }
        Ok(None)
    }

    /// Removes the lock file of a killed run. Returns `false` for a lock that is held, and for
    /// another user's that this one may not open.
    pub fn reap_lock(&self) -> bool {
        matches!(self.try_open_lock(), Ok(Try::Held(fd)) if self.has_lock_file(&fd)
            && unlinkat(&self.fd, LOCK_NAME, AtFlags::empty()).is_ok())
    }

    /// Notes that the directory is in use, as long as this handle or a duplicate of it is open.
    ///
    /// # Errors
    /// The system's error, e.g. where the filesystem has no locks.
    pub fn hold(&self) -> io::Result<()> {
        retry(|| flock(&self.fd, FlockOperation::NonBlockingLockShared))
    }

    /// Returns whether somebody else [holds](Self::hold) the directory.
    pub fn is_held(&self) -> bool {
        let taken = retry(|| flock(&self.fd, FlockOperation::NonBlockingLockExclusive));
        if taken.is_ok() {
            let _ = flock(&self.fd, FlockOperation::Unlock);
        }
        taken.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
    }

    /// Removes the name of the lock file that is open as `fd`, also where the run has just made the
    /// directory one that its owner may not change.
    fn remove_lock_file(&self, fd: &OwnedFd) -> Removal {
        let remove = || {
            let is_ours = self.has_lock_file(fd);
            let removed = if is_ours { unlinkat(&self.fd, LOCK_NAME, AtFlags::empty()) } else { Ok(()) };
            Removal { removed: removed.map_err(io::Error::from), restored: Ok(()) }
        };
        let mode = stat_fd(self.fd.as_fd()).map(|dir| dir.mode);
        let is_closed = |mode: &u16| mode & OWNER_CHANGES != OWNER_CHANGES;
        let closed = mode.ok().filter(is_closed);
        let Some(mode) = closed.filter(|_| !Privileges::current().is_root() && !self.is_anothers()) else {
            return remove();
        };

        let set = |mode| chmod(self.fd.as_fd(), self.handle(), mode);
        Removal::between(set(mode | OWNER_CHANGES), remove, || set(mode))
    }

    /// Returns whether a locked handle is enough: this user could not restore the directory's time.
    fn is_anothers(&self) -> bool {
        let privileges = Privileges::current();
        let owner = stat_fd(self.fd.as_fd()).map(|dir| dir.uid);
        owner.is_ok_and(|owner| !privileges.is_root() && !privileges.is_user(owner))
    }

    /// Returns whether other users may write to the directory, and everybody who may read it.
    fn is_shared(&self) -> bool {
        let Ok(dir) = stat_fd(self.fd.as_fd()) else { return false };
        let may = |who: u16| dir.mode & who != 0;
        let readers_write = (!may(0o040) || may(0o020)) && (!may(0o004) || may(0o002));
        let list = fgetxattr(&self.fd, c"system.posix_acl_access", &mut [0_u8; 0]);
        may(0o022) && readers_write && list.is_err()
    }

    fn try_lock_handle(&self) -> io::Result<Option<OwnedFd>> {
        let own = self.reopen()?;
        match retry(|| flock(&own.fd, FlockOperation::NonBlockingLockExclusive)) {
            Ok(()) => Ok(Some(own.fd)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            // A directory takes no other lock.
            Err(error) if sys::is_unknown_call(&error) => Ok(Some(own.fd)),
            // A handle of a directory that may not be read can only look up names.
            Err(error) if Errno::from_io_error(&error) == Some(Errno::BADF) => Err(Errno::ACCESS.into()),
            Err(error) => Err(error),
        }
    }

    /// Locks the file, which it `makes` if there is none.
    fn try_lock_file(&self, makes: bool) -> io::Result<Try> {
        match self.try_open_lock() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Ok(Try::Held(fd)) => return Ok(Try::Left(fd)),
            tried => return tried,
        }
        if !makes {
            return Ok(Try::Needless);
        }

        let flags = OPEN | OFlags::CREATE | OFlags::EXCL;
        let made =
            self.keeping_time(|| retry(|| openat(&self.fd, LOCK_NAME, flags, Mode::from_raw_mode(0o600))));
        let fd = match made {
            Ok(fd) => fd,
            Err(error) => {
                return match Errno::from_io_error(&error) {
                    Some(Errno::EXIST) => Ok(Try::Again),
                    Some(Errno::ACCESS | Errno::PERM | Errno::ROFS | Errno::NOSPC | Errno::DQUOT) => {
                        Ok(Try::Impossible)
                    }
                    _ => Err(error),
                };
            }
        };
        // If the filesystem knows no owners or permissions, its mount determines access.
        let _ = self.admit_writers(&fd);
        self.lock(fd)
    }

    /// Opens and locks an existing file; `NotFound` without one.
    fn try_open_lock(&self) -> io::Result<Try> {
        let fd = match retry(|| openat(&self.fd, LOCK_NAME, OPEN, Mode::empty())) {
            Ok(fd) => fd,
            Err(error) => {
                return match Errno::from_io_error(&error) {
                    // It belongs to a user whose writing this one may not join; without its name it
                    // would not be found.
                    Some(Errno::ACCESS) => Ok(Try::Taken),
                    Some(Errno::ROFS) => Ok(Try::Impossible),
                    Some(Errno::LOOP | Errno::ISDIR | Errno::NXIO) => Err(occupied()),
                    _ => Err(error),
                };
            }
        };
        if stat_fd(fd.as_fd())?.kind != Kind::File {
            return Err(occupied());
        }
        self.lock(fd)
    }

    fn lock(&self, fd: OwnedFd) -> io::Result<Try> {
        match sys::lock_file(&fd, FlockOperation::NonBlockingLockExclusive) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(Try::Taken),
            // Neither can a sandbox that knows no locks at all.
            Err(error) if sys::is_unknown_call(&error) => {}
            // A network filesystem without locks cannot keep anybody out.
            Err(error) if !matches!(Errno::from_io_error(&error), Some(Errno::NOLCK | Errno::OPNOTSUPP)) => {
                return Err(error);
            }
            _ => {}
        }
        Ok(if self.has_lock_file(&fd) { Try::Held(fd) } else { Try::Again })
    }

    /// Returns whether the lock's name refers to this file and the file has no other name.
    fn has_lock_file(&self, fd: &OwnedFd) -> bool {
        let named = Metadata::of_entry(&self.fd, LOCK_NAME, NO_FOLLOW);
        let own = stat_fd(fd.as_fd());
        matches!((named, own), (Ok(named), Ok(own)) if (named.dev, named.ino) == (own.dev, own.ino) && own.nlink == 1)
    }

    /// Makes a new lock accessible to the users who may write to the directory, and to nobody else.
    fn admit_writers(&self, fd: &OwnedFd) -> io::Result<()> {
        let dir = stat_fd(self.fd.as_fd())?;
        // A default list of the directory may admit users who can only read.
        let _ = fremovexattr(fd, c"system.posix_acl_access");
        // Root hands the file to the directory's owner; a member of its group at least to the
        // group.
        let (uid, gid) = (rustix::fs::Uid::from_raw(dir.uid), rustix::fs::Gid::from_raw(dir.gid));
        if sys::chown_by_handle(fd.as_fd(), Some(uid), Some(gid)).is_err() {
            let _ = sys::chown_by_handle(fd.as_fd(), None, Some(gid));
        }
        let group = dir.mode & 0o020 != 0 && stat_fd(fd.as_fd())?.gid == dir.gid;
        let others = dir.mode & 0o002 != 0;
        let mode = 0o600 | if group { 0o060 } else { 0 } | if others { 0o006 } else { 0 };
        sys::chmod_open(fd.as_fd(), mode)
    }

    /// Removes a name from a directory that this process has given away: a root that may give files away
    /// need not have the right to write into those of others.
    fn taking_back(&self, remove: impl FnOnce() -> Removal) -> Removal {
        let now = match stat_fd(self.fd.as_fd()) {
            Ok(now) => now,
            Err(error) => return Removal { removed: Err(error), restored: Ok(()) },
        };
        let give = |owner| sys::chown_by_handle(self.fd.as_fd(), Some(owner), None);
        Removal::between(give(geteuid()), remove, || {
            give(Uid::from_raw(now.uid))?;
            chmod(self.fd.as_fd(), self.handle(), now.mode)
        })
    }

    /// Changes the directory's names and preserves its time, if this user may set it.
    fn keeping_time<T>(&self, change: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        let before = stat_fd(self.fd.as_fd())?;
        let changed = change()?;
        let _ = self.restore_time(&before);
        Ok(changed)
    }

    fn restore_time(&self, before: &Metadata) -> io::Result<()> {
        let wanted = Wanted { mtime: Some(before.mtime), ..Wanted::default() };
        set_times(self.fd.as_fd(), self.handle(), &wanted, before)
    }
}

fn occupied() -> io::Error {
    let name = LOCK_NAME.to_string_lossy();
    io::Error::new(
        io::ErrorKind::AlreadyExists,
        format!("'{name}', the name of its lock, is something else: remove it"),
    )
}

/// Permissions that a directory's owner needs to look names up and to remove them.
const OWNER_CHANGES: u16 = 0o300;

const OPEN: OFlags =
    OFlags::RDWR.union(OFlags::NOFOLLOW).union(OFlags::NONBLOCK).union(OFlags::NOCTTY).union(OFlags::CLOEXEC);

/// Number of attempts: a run that ends while another begins causes another one.
const MOST_TRIES: usize = 100;

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::disallowed_methods)]
mod tests {
    use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};

    use super::*;

    fn name() -> &'static str {
        LOCK_NAME.to_str().unwrap()
    }

    #[test]
    fn directory_is_held_until_the_last_handle_is_closed() {
        let scratch = tempfile::tempdir().unwrap();
        let open = || Dir::open_operand(scratch.path()).unwrap();
        let held = open();
        assert!(!open().is_held());
        held.hold().unwrap();
        let further = held.duplicate().unwrap();
        drop(held);
        assert!(open().is_held());
        open().hold().unwrap();
        drop(further);
        assert!(!open().is_held());
    }

    #[test]
    fn lock_leaves_neither_a_file_nor_another_time() {
        let scratch = tempfile::tempdir().unwrap();
        let dir = Dir::open_operand(scratch.path()).unwrap();
        let before = dir.metadata().unwrap().mtime;
        let held = dir.try_lock().unwrap().unwrap();
        assert!(!held.follows_killed());
        assert!(scratch.path().join(name()).exists());
        assert!(dir.try_lock().unwrap().is_none() && !dir.reap_lock());
        assert_eq!(dir.metadata().unwrap().mtime, before);
        drop(held);
        assert_eq!(std::fs::read_dir(scratch.path()).unwrap().count(), 0);
        assert_eq!(dir.metadata().unwrap().mtime, before);
        assert!(dir.try_lock().unwrap().is_some());
    }

    #[test]
    fn locked_handle_of_a_reader_keeps_nobody_out() {
        let scratch = tempfile::tempdir().unwrap();
        let dir = Dir::open_operand(scratch.path()).unwrap();
        let readers = Dir::open_operand(scratch.path()).unwrap();
        flock(&readers.fd, FlockOperation::NonBlockingLockExclusive).unwrap();
        assert!(dir.try_lock().unwrap().is_some());
    }

    #[test]
    fn what_a_killed_run_left_is_taken_over_or_removed() {
        let scratch = tempfile::tempdir().unwrap();
        let dir = Dir::open_operand(scratch.path()).unwrap();
        let left = scratch.path().join(name());
        for _ in 0..2 {
            std::fs::write(&left, "").unwrap();
            let held = dir.try_lock().unwrap().unwrap();
            assert!(held.follows_killed() && dir.try_lock().unwrap().is_none());
            drop(held);
            assert!(!left.exists());
            std::fs::write(&left, "").unwrap();
            assert!(dir.reap_lock() && !left.exists() && !dir.reap_lock());
        }
    }

    #[test]
    fn something_else_of_its_name_is_refused() {
        let scratch = tempfile::tempdir().unwrap();
        let dir = Dir::open_operand(scratch.path()).unwrap();
        let at = scratch.path().join(name());
        symlink("/etc/passwd", &at).unwrap();
        assert_eq!(dir.try_lock().unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        std::fs::remove_file(&at).unwrap();
        std::fs::create_dir(&at).unwrap();
        assert!(dir.try_lock().unwrap_err().to_string().contains(name()) && !dir.reap_lock());
    }

    #[test]
    fn only_writers_may_open_it() {
        let scratch = tempfile::tempdir().unwrap();
        let dir = Dir::open_operand(scratch.path()).unwrap();
        let root = rustix::process::geteuid().is_root();
        if root {
            chown(scratch.path(), Some(64_301), Some(64_302)).unwrap();
        }
        for (mode, expected) in
            [(0o755, 0o600), (0o775, 0o660), (0o1777, 0o666), (0o500, 0o600), (0o757, 0o606)]
        {
            if !root && mode == 0o500 {
                continue;
            }
            std::fs::set_permissions(scratch.path(), std::fs::Permissions::from_mode(mode)).unwrap();
            let held = dir.try_lock().unwrap().unwrap();
            let found = std::fs::metadata(scratch.path().join(name())).unwrap();
            assert_eq!(found.mode() & 0o7777, expected, "{mode:o}");
            if root {
                assert_eq!((found.uid(), found.gid()), (64_301, 64_302));
            }
            drop(held);
        }
    }

    #[test]
    fn of_many_at_once_one_holds_it() {
        let scratch = tempfile::tempdir().unwrap();
        let inside = std::sync::atomic::AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    let dir = Dir::open_operand(scratch.path()).unwrap();
                    for _ in 0..200 {
                        let Some(held) = dir.try_lock().unwrap() else { continue };
                        assert_eq!(inside.fetch_add(1, std::sync::atomic::Ordering::SeqCst), 0);
                        inside.fetch_sub(1, std::sync::atomic::Ordering::SeqCst);
                        drop(held);
                    }
                });
            }
        });
        assert_eq!(std::fs::read_dir(scratch.path()).unwrap().count(), 0);
    }
}
