//! Setting mode, times and owners, in the one order that keeps all of them.
//!
//! Owner first, because the kernel clears setuid and setgid bits on a change of owner; then the mode;
//! times last, because nothing after them may count as a change. Always through an open descriptor,
//! so the entry that was checked is the entry that is changed. What an unprivileged user may not set
//! is left alone as `rsync -a` leaves it: the owner always, the group unless the user is in it.

use std::{io, os::fd::BorrowedFd, sync::OnceLock};

use rustix::{
    fs::{AtFlags, Gid, Mode, Timespec, Timestamps, UTIME_OMIT, Uid},
    process::{getegid, geteuid, getgroups},
};

use crate::{
    metadata::{Kind, Metadata, Timestamp},
    sys,
};

/// The attributes that an entry should get; `None` leaves one as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Wanted {
    /// Permission bits, 0 to 0o7777. Ignored for symbolic links, which have none.
    pub mode: Option<u16>,
    /// Modification time.
    pub mtime: Option<Timestamp>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
}

/// What this process may do to owners.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Privileges {
    root: bool,
    groups: Vec<u32>,
}

impl Privileges {
    /// Those of this process, asked of the kernel once.
    pub fn current() -> &'static Self {
        static CURRENT: OnceLock<Privileges> = OnceLock::new();
        CURRENT.get_or_init(|| {
            let mut groups: Vec<u32> = getgroups().unwrap_or_default().into_iter().map(Gid::as_raw).collect();
            groups.push(getegid().as_raw());
            Self { root: geteuid().is_root(), groups }
        })
    }

    /// True when the process may set any owner and make device nodes.
    pub fn is_root(&self) -> bool {
        self.root
    }

    /// True when the process may give its files to this group.
    pub fn may_set_group(&self, gid: u32) -> bool {
        self.root || self.groups.contains(&gid)
    }

    /// `wanted` without what the process may not set: what an entry can be expected to have
    /// afterwards, so that a comparison does not find the same difference for ever.
    #[must_use]
    pub fn narrow(&self, wanted: &Wanted) -> Wanted {
        Wanted {
            uid: wanted.uid.filter(|_| self.root),
            gid: wanted.gid.filter(|&gid| self.may_set_group(gid)),
            ..*wanted
        }
    }
}

/// How the descriptor in hand may be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Handle {
    /// Opened for reading or writing.
    Open,
    /// Opened with `O_PATH`: names the entry without touching it.
    PathOnly,
}

/// Sets what `wanted` asks of the entry behind `fd`, whose present attributes are `now`.
pub(crate) fn apply(fd: BorrowedFd<'_>, handle: Handle, now: &Metadata, wanted: &Wanted) -> io::Result<()> {
    let wanted = Privileges::current().narrow(wanted);
    let uid = wanted.uid.filter(|&uid| uid != now.uid);
    let gid = wanted.gid.filter(|&gid| gid != now.gid);
    let chowned = uid.is_some() || gid.is_some();
    if chowned {
        let (uid, gid) = (uid.map(Uid::from_raw), gid.map(Gid::from_raw));
        rustix::fs::chownat(fd, c"", uid, gid, AtFlags::EMPTY_PATH)?;
    }
    if let Some(mode) = wanted.mode
        && now.kind != Kind::Symlink
        && (chowned || mode != now.mode)
    {
        match handle {
            Handle::Open => rustix::fs::fchmod(fd, Mode::from_raw_mode(u32::from(mode & 0o7777)))?,
            Handle::PathOnly => sys::chmod_by_handle(fd, mode & 0o7777)?,
        }
    }
    if let Some(mtime) = wanted.mtime {
        let times = Timestamps {
            last_access: Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
            last_modification: Timespec {
                tv_sec: mtime.seconds,
                tv_nsec: i64::from(mtime.nanoseconds.min(999_999_999)),
            },
        };
        match handle {
            Handle::Open => rustix::fs::futimens(fd, &times)?,
            Handle::PathOnly => rustix::fs::utimensat(fd, c"", &times, AtFlags::EMPTY_PATH)?,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_not_be_set_is_not_asked_for() {
        let wanted = Wanted { mode: Some(0o4755), uid: Some(7), gid: Some(20), ..Wanted::default() };
        let user = Privileges { root: false, groups: vec![20, 30] };
        assert_eq!(user.narrow(&wanted), Wanted { uid: None, ..wanted });
        let other = Privileges { root: false, groups: vec![30] };
        assert_eq!(other.narrow(&wanted), Wanted { uid: None, gid: None, ..wanted });
        let root = Privileges { root: true, groups: Vec::new() };
        assert_eq!(root.narrow(&wanted), wanted);
    }
}
