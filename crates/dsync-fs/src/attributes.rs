//! Setting mode, times and owners, in the one order that keeps all of them.
//!
//! Owner first, because the kernel clears setuid and setgid bits and file capabilities on a change
//! of owner. Then extended attributes, while the entry is still writable. Access control lists are
//! added before the mode and removed after it, so that the entry is never open to more than it will
//! be. Times last, because nothing after them may count as a change. Every change goes through an
//! open descriptor, so the checked entry is the changed entry. Attributes that an unprivileged user
//! may not set are left alone as `rsync -a` leaves them: the owner always, the group unless the
//! user is in it.

use std::{cell::RefCell, io, os::fd::BorrowedFd, rc::Rc, sync::Arc};

use rustix::{
    fs::{AtFlags, Gid, Timespec, Timestamps, UTIME_OMIT, Uid},
    io::Errno,
    process::{getegid, geteuid, getgroups},
};

use crate::{
    extended::{Extended, Keeping, Place, Reconciling, Withheld},
    metadata::{Kind, Metadata, Timestamp},
    sys,
};

/// The attributes that an entry should get; `None` leaves one as it is.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Wanted {
    /// Permission bits, 0 to 0o7777. Ignored for symbolic links, which have none.
    pub mode: Option<u16>,
    /// Modification time.
    pub mtime: Option<Timestamp>,
    /// Access time.
    pub atime: Option<Timestamp>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Access control lists and extended attributes.
    pub extended: Option<Arc<Extended>>,
}

/// The rights of a thread to change owners; all threads of a process have the same, unless one of
/// them became [another user](crate::ActingUser).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Privileges {
    root: bool,
    user: u32,
    groups: Vec<u32>,
}

impl Privileges {
    /// Returns the privileges of the calling thread. Asks the kernel once for each thread.
    pub fn current() -> Rc<Self> {
        CURRENT.with_borrow_mut(|current| Rc::clone(current.get_or_insert_with(|| Rc::new(Self::asked()))))
    }

    fn asked() -> Self {
        let mut groups: Vec<u32> = getgroups().unwrap_or_default().into_iter().map(Gid::as_raw).collect();
        groups.push(getegid().as_raw());
        Self { root: geteuid().is_root(), user: geteuid().as_raw(), groups }
    }

    /// Asks the kernel anew, as the calling thread's rights have changed.
    pub(crate) fn forget() {
        CURRENT.with_borrow_mut(|current| *current = None);
    }

    /// Returns the privileges of a process that does without those of root.
    #[must_use]
    pub fn without_root(&self) -> Self {
        Self { root: false, ..self.clone() }
    }

    /// Returns whether the process may set any owner and make device nodes.
    pub fn is_root(&self) -> bool {
        self.root
    }

    /// Returns whether the process runs as this user, who owns the files that it makes.
    pub fn is_user(&self, uid: u32) -> bool {
        self.user == uid
    }

    /// Returns whether the process may give its files to this group.
    pub fn may_set_group(&self, gid: u32) -> bool {
        self.root || self.groups.contains(&gid)
    }

    /// Returns `wanted` without the attributes that the process may not set. This is what an entry
    /// can have afterwards, so a comparison does not find the same difference for ever.
    #[must_use]
    pub fn narrow(&self, wanted: &Wanted) -> Wanted {
        Wanted {
            uid: wanted.uid.filter(|_| self.root),
            gid: wanted.gid.filter(|&gid| self.may_set_group(gid)),
            ..wanted.clone()
        }
    }
}

thread_local! {
    static CURRENT: RefCell<Option<Rc<Privileges>>> = const { RefCell::new(None) };
}

/// The kind of a descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Handle {
    /// Opened for reading or writing.
    Open,
    /// Opened with `O_PATH`: names the entry without touching it.
    PathOnly,
}

/// Sets the wanted attributes of the entry behind `fd`, whose present attributes are `now`. An owner that
/// may not be given, what the filesystem does not set, and lists and extended attributes that the target cannot
/// hold are left out and reported.
pub(crate) fn apply(
    fd: BorrowedFd<'_>,
    handle: Handle,
    now: &Metadata,
    wanted: &Wanted,
) -> io::Result<Withheld> {
    let wanted = Privileges::current().narrow(wanted);
    let uid = wanted.uid.filter(|&uid| uid != now.uid);
    let gid = wanted.gid.filter(|&gid| gid != now.gid);
    let chowned = uid.is_some() || gid.is_some();
    let owner = if chowned { set_owner(fd, uid, gid)? } else { None };
    let wanted = if owner.is_some() && now.kind != Kind::Dir { without_rights(wanted) } else { wanted };

    let mode = wanted.mode.filter(|_| now.kind != Kind::Symlink);
    let known = (!chowned).then_some(now.mode);
    let withheld = match &wanted.extended {
        None => Withheld { plain: plain_refusal(set_mode(fd, handle, mode, known))?, ..Withheld::default() },
        Some(extended) => set_extended(fd, handle, now, extended, mode, known)?,
    };
    let times = match plain_refusal(set_times(fd, handle, &wanted, now)) {
        // Some filesystems in user space set those of what a link leads to (sshfs).
        Err(error) if now.kind == Kind::Symlink && error.kind() == io::ErrorKind::NotFound => {
            error.raw_os_error()
        }
        times => times?,
    };
    Ok(Withheld { owner, plain: withheld.plain.or(times), ..withheld })
}

/// Sets the owner and the group. Returns the error number if one of them may not be given: a root without
/// that right, or an owner that its user namespace does not know.
fn set_owner(fd: BorrowedFd<'_>, uid: Option<u32>, gid: Option<u32>) -> io::Result<Option<i32>> {
    let (uid, gid) = (uid.map(Uid::from_raw), gid.map(Gid::from_raw));
    let Some(number) = refusal(sys::chown_by_handle(fd, uid, gid))? else { return Ok(None) };
    if uid.is_some() && gid.is_some() {
        // The group alone may be allowed.
        refusal(sys::chown_by_handle(fd, None, gid))?;
    }
    Ok(Some(number))
}

/// Returns the error number with which an owner was refused; other errors are failures.
fn refusal(result: io::Result<()>) -> io::Result<Option<i32>> {
    unless_refused(result, &[Errno::ACCESS, Errno::OVERFLOW])
}

/// Returns the error number with which a filesystem refused a mode or times.
fn plain_refusal(result: io::Result<()>) -> io::Result<Option<i32>> {
    unless_refused(result, &[])
}

fn unless_refused(result: io::Result<()>, others: &[Errno]) -> io::Result<Option<i32>> {
    const REFUSALS: &[Errno] = &[Errno::PERM, Errno::INVAL, Errno::NOSYS, Errno::OPNOTSUPP];
    let is_refusal = |error: &Errno| REFUSALS.contains(error) || others.contains(error);
    match result {
        Ok(()) => Ok(None),
        Err(error) if Errno::from_io_error(&error).as_ref().is_some_and(is_refusal) => {
            Ok(error.raw_os_error())
        }
        Err(error) => Err(error),
    }
}

/// Returns a file's attributes without the rights that it would hand out as another owner's.
fn without_rights(wanted: Wanted) -> Wanted {
    let extended =
        wanted.extended.map(|extended| Arc::new(Extended::clone(&extended).without_capabilities()));
    Wanted { mode: wanted.mode.map(|mode| mode & !(SETUID | SETGID)), extended, ..wanted }
}

/// Sets the mode, unless the entry is known to have it.
fn set_mode(fd: BorrowedFd<'_>, handle: Handle, mode: Option<u16>, known: Option<u16>) -> io::Result<()> {
    match mode.filter(|_| mode != known) {
        None => Ok(()),
        Some(mode) => chmod(fd, handle, mode),
    }
}

/// Sets lists, attributes and the mode, which the access list is a part of.
fn set_extended(
    fd: BorrowedFd<'_>,
    handle: Handle,
    now: &Metadata,
    extended: &Extended,
    mode: Option<u16>,
    mut known: Option<u16>,
) -> io::Result<Withheld> {
    let place = Place::of(fd, handle);
    let mut mode = mode;
    // Only who may read a file may ask for its attributes, and only who may write it may set them. Its
    // owner may grant himself both.
    let mut unlock = |granted: u16| -> io::Result<()> {
        mode = mode.or(Some(now.mode)).filter(|_| now.kind != Kind::Symlink);
        if mode.is_some() {
            chmod(fd, handle, now.mode | granted)?;
            known = None;
        }
        Ok(())
    };
    let is_root = Privileges::current().is_root();
    let begin = || Reconciling::begin(&place, extended, Keeping::Own);
    let mut changes = match begin() {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied && !is_root => {
            unlock(OWNER_READS | OWNER_WRITES).map_err(|_| error)?;
            // In vain: the file keeps the mode that it had.
            begin().inspect_err(|_| drop(chmod(fd, handle, now.mode)))?
        }
        begun => begun?,
    };
    if changes.changes_xattrs() && now.mode & OWNER_WRITES == 0 && !is_root {
        unlock(OWNER_READS | OWNER_WRITES)?;
    }

    changes.xattrs()?;
    let permissions = mode.unwrap_or(now.mode);
    if changes.set_acls(permissions)? {
        known = known.map(|known| known & !0o777 | permissions & 0o777);
    }

    set_mode(fd, handle, mode, known)?;
    changes.finish()
}

pub(crate) fn chmod(fd: BorrowedFd<'_>, handle: Handle, mode: u16) -> io::Result<()> {
    match handle {
        Handle::Open => sys::chmod_open(fd, mode & 0o7777),
        Handle::PathOnly => sys::chmod_by_handle(fd, mode & 0o7777),
    }
}

/// Sets the times of an entry whose attributes were `now`. The access time always goes with the other one:
/// many filesystems in user space (those of libfuse 2) silently set neither where one is left out.
pub(crate) fn set_times(
    fd: BorrowedFd<'_>,
    handle: Handle,
    wanted: &Wanted,
    now: &Metadata,
) -> io::Result<()> {
    if wanted.mtime.is_none() && wanted.atime.is_none() {
        return Ok(());
    }
    let time = |time: Option<Timestamp>| match time {
        None => Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
        Some(time) => {
            Timespec { tv_sec: time.seconds, tv_nsec: i64::from(time.nanoseconds.min(999_999_999)) }
        }
    };
    let last_access = time(wanted.atime.or(Some(now.atime)));
    let times = Timestamps { last_access, last_modification: time(wanted.mtime) };
    match handle {
        Handle::Open => rustix::fs::futimens(fd, &times)?,
        Handle::PathOnly => rustix::fs::utimensat(fd, c"", &times, AtFlags::EMPTY_PATH)?,
    }
    Ok(())
}

/// Permission bits that lend the rights of a file's owner and of its group.
const SETUID: u16 = 0o4000;
const SETGID: u16 = 0o2000;
const OWNER_WRITES: u16 = 0o200;
/// Permission bit by which the owner may read.
const OWNER_READS: u16 = 0o400;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_not_be_set_is_not_asked_for() {
        let wanted = Wanted { mode: Some(0o4755), uid: Some(7), gid: Some(20), ..Wanted::default() };
        let user = Privileges { root: false, user: 9, groups: vec![20, 30] };
        assert_eq!(user.narrow(&wanted), Wanted { uid: None, ..wanted.clone() });
        let other = Privileges { root: false, user: 9, groups: vec![30] };
        assert_eq!(other.narrow(&wanted), Wanted { uid: None, gid: None, ..wanted.clone() });
        let root = Privileges { root: true, user: 0, groups: Vec::new() };
        assert_eq!(root.narrow(&wanted), wanted);
    }
}
