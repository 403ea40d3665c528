//! Finds out what a filesystem keeps, by trying it.
//!
//! Everything happens in a new directory of mode 0700 below the one that is asked about; it is
//! removed before [`probe`] returns, whatever failed in between. The name begins as those of
//! temporaries do not, so that no run takes it for one of its own.

use std::{
    ffi::CString,
    fs::File,
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::Path,
};

use rustix::{
    fs::{
        self, AtFlags, Gid, Mode, OFlags, Timespec, Timestamps, Uid, XattrFlags, fsetxattr, fstatvfs,
        futimens, ioctl_ficlone, linkat, mkdirat, openat, statat, symlinkat, unlinkat,
    },
    io::Errno,
};

/// The abilities of a directory's filesystem.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Features {
    /// Bytes that the user may still write.
    pub free_bytes: u64,
    /// Size of the filesystem in bytes.
    pub total_bytes: u64,
    /// Files that can still be made; `None` where the filesystem has no such limit.
    pub free_inodes: Option<u64>,
    /// The results of the trials; an error if no directory can be made there.
    pub trials: Option<Trials>,
    /// The reason why no directory can be made.
    pub unwritable: Option<i32>,
}

/// The results of the trials: each is whether the filesystem can do it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "one independent fact each")]
pub struct Trials {
    /// Files share extents after a clone.
    pub reflinks: bool,
    /// Extended attributes of users.
    pub xattrs: bool,
    /// POSIX access control lists.
    pub acls: bool,
    /// Times are kept to the nanosecond.
    pub nanoseconds: bool,
    /// Names that differ in case are two files.
    pub case_sensitive: bool,
    /// Symbolic links.
    pub symlinks: bool,
    /// Hard links.
    pub hard_links: bool,
    /// A file can be given to another user.
    pub chown: bool,
}

/// Finds out what the filesystem of a directory keeps.
///
/// # Errors
/// If the directory cannot be opened.
///
/// ```
/// use dsync_fs::probe::{Features, Trials, probe};
///
/// # let home = tempfile::tempdir()?;
/// // Before the first backup: will the disk keep what matters?
/// let Features { free_bytes, trials, .. } = probe(home.path())?;
/// let Trials { hard_links, xattrs, .. } = trials.ok_or("no directory can be made there")?;
/// println!("{free_bytes} bytes are free, snapshots: {hard_links}, attributes: {xattrs}");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn probe(dir: &Path) -> io::Result<Features> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let dir = fs::open(dir, flags, Mode::empty())?;
    let space = fstatvfs(&dir)?;
    let mut features = Features {
        free_bytes: space.f_bavail.saturating_mul(space.f_frsize),
        total_bytes: space.f_blocks.saturating_mul(space.f_frsize),
        free_inodes: (space.f_files > 0).then_some(space.f_favail),
        ..Features::default()
    };

    let before = fs::fstat(&dir)?;
    match Ground::make(&dir) {
        Ok(ground) => {
            features.trials = Some(ground.try_all());
            drop(ground);
            put_back(&dir, &before);
        }
        Err(error) => features.unwritable = error.raw_os_error(),
    }
    Ok(features)
}

/// Restores the modification time that a directory had before the trials. Only its owner can.
fn put_back(dir: &OwnedFd, before: &fs::Stat) {
    let last_modification = Timespec { tv_sec: before.st_mtime, tv_nsec: before.st_mtime_nsec as _ };
    let last_access = Timespec { tv_sec: 0, tv_nsec: fs::UTIME_OMIT };
    let _ = futimens(dir, &Timestamps { last_access, last_modification });
}

/// Names that the trials use; all are removed at the end.
const NAMES: [&str; 5] = ["file", "clone", "symlink", "link", "FILE"];

/// A directory for the trials; dropping it removes it.
struct Ground<'a> {
    above: BorrowedFd<'a>,
    name: CString,
    dir: OwnedFd,
}

impl<'a> Ground<'a> {
    fn make(above: &'a OwnedFd) -> io::Result<Self> {
        let number = rustix::time::clock_gettime(rustix::time::ClockId::Realtime).tv_nsec;
        let name = format!(".doctor-dsync-{}-{number}", rustix::process::getpid().as_raw_pid());
        let name = CString::new(name).map_err(io::Error::other)?;
        // A name that is taken is an error: nothing of anybody else's is used or removed.
        mkdirat(above, &name, Mode::RWXU)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        match openat(above, &name, flags, Mode::empty()) {
            Ok(dir) => Ok(Self { above: above.as_fd(), name, dir }),
            Err(error) => {
                let _ = unlinkat(above, &name, AtFlags::REMOVEDIR);
                Err(error.into())
            }
        }
    }

    fn try_all(&self) -> Trials {
        let Ok(file) = self.create("file") else { return Trials::default() };
        Trials {
            reflinks: self.shares_extents(&file),
            xattrs: fsetxattr(&file, "user.dsync-doctor", b"1", XattrFlags::empty()).is_ok(),
            acls: has_acls(&file),
            nanoseconds: keeps_nanoseconds(&file),
            case_sensitive: statat(&self.dir, "FILE", AtFlags::SYMLINK_NOFOLLOW) == Err(Errno::NOENT),
            symlinks: symlinkat("file", &self.dir, "symlink").is_ok(),
            hard_links: linkat(&self.dir, "file", &self.dir, "link", AtFlags::empty()).is_ok(),
            // The last trial: afterwards the file may be somebody else's.
            chown: fs::fchown(&file, Some(Uid::from_raw(NOBODY)), Some(Gid::from_raw(NOBODY))).is_ok(),
        }
    }

    fn create(&self, name: &str) -> io::Result<File> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(File::from(openat(&self.dir, name, flags, Mode::RUSR | Mode::WUSR)?))
    }

    fn shares_extents(&self, file: &File) -> bool {
        use std::os::unix::fs::FileExt as _;
        let Ok(clone) = self.create("clone") else { return false };
        file.write_all_at(&[1; 4096], 0).is_ok() && ioctl_ficlone(&clone, file).is_ok()
    }
}

impl Drop for Ground<'_> {
    fn drop(&mut self) {
        for name in NAMES {
            let _ = unlinkat(&self.dir, name, AtFlags::empty());
        }
        let _ = unlinkat(self.above, &self.name, AtFlags::REMOVEDIR);
    }
}

/// A user that every system has and nobody logs in as.
const NOBODY: u32 = 65_534;

/// Returns whether the file can have a list with an entry of a named user.
fn has_acls(file: &File) -> bool {
    // Version 2, then tag, permissions and id of each entry: owner, user 1, group, mask, others.
    let mut list = 2_u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in
        [(1_u16, 6_u16, u32::MAX), (2, 4, 1), (4, 4, u32::MAX), (16, 4, u32::MAX), (32, 0, u32::MAX)]
    {
        list.extend_from_slice(&tag.to_le_bytes());
        list.extend_from_slice(&permissions.to_le_bytes());
        list.extend_from_slice(&id.to_le_bytes());
    }
    fsetxattr(file, "system.posix_acl_access", &list, XattrFlags::empty()).is_ok()
}

fn keeps_nanoseconds(file: &File) -> bool {
    let time = Timespec { tv_sec: 1_700_000_000, tv_nsec: 123_456_789 };
    let times = Timestamps { last_access: time, last_modification: time };
    let kept = || Some(fs::fstat(file).ok()?.st_mtime_nsec);
    futimens(file, &times).is_ok() && kept().is_some_and(|kept| kept == 123_456_789)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::disallowed_methods)]
mod tests {
    use super::*;

    #[test]
    fn trials_leave_nothing_behind() {
        let dir = tempfile::tempdir().unwrap();
        let old = std::time::UNIX_EPOCH + std::time::Duration::new(1_000_000_000, 5);
        std::fs::File::open(dir.path()).unwrap().set_modified(old).unwrap();
        let features = probe(dir.path()).unwrap();
        let trials = features.trials.unwrap();
        assert!(trials.symlinks && trials.hard_links && trials.case_sensitive, "{trials:?}");
        assert!(features.free_bytes > 0 && features.total_bytes >= features.free_bytes);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
        assert_eq!(dir.path().metadata().unwrap().modified().unwrap(), old);
    }

    #[test]
    fn directory_that_cannot_be_written_is_told_with_its_space() {
        let features = probe(Path::new("/proc")).unwrap();
        assert!(features.trials.is_none() && features.unwritable.is_some());
        assert!(probe(Path::new("/proc/no-such-directory")).is_err());
    }
}
