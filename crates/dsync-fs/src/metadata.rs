//! The attributes that the kernel reports for an entry: [`Metadata`], and [`Stamp`], the part that
//! shows whether a file is still the one seen before.

use std::{io, os::fd::AsFd, time::Duration};

use rustix::{
    fs::{AtFlags, FileType, Stat, Statx, StatxFlags, StatxTimestamp, major, minor, statat, statx},
    io::Errno,
    path::Arg,
};

/// The type of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Regular file.
    File,
    /// Directory.
    Dir,
    /// Symbolic link.
    Symlink,
    /// Named pipe.
    Fifo,
    /// Socket.
    Socket,
    /// Character device.
    CharDevice,
    /// Block device.
    BlockDevice,
}

impl Kind {
    /// Converts a file type; returns `None` for one that Linux does not have.
    pub(crate) fn from_file_type(file_type: FileType) -> Option<Self> {
        Some(match file_type {
            FileType::RegularFile => Self::File,
            FileType::Directory => Self::Dir,
            FileType::Symlink => Self::Symlink,
            FileType::Fifo => Self::Fifo,
            FileType::Socket => Self::Socket,
            FileType::CharacterDevice => Self::CharDevice,
            FileType::BlockDevice => Self::BlockDevice,
            FileType::Unknown => return None,
        })
    }

    pub(crate) fn file_type(self) -> FileType {
        match self {
            Self::File => FileType::RegularFile,
            Self::Dir => FileType::Directory,
            Self::Symlink => FileType::Symlink,
            Self::Fifo => FileType::Fifo,
            Self::Socket => FileType::Socket,
            Self::CharDevice => FileType::CharacterDevice,
            Self::BlockDevice => FileType::BlockDevice,
        }
    }
}

/// A point in time as filesystems keep it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp {
    /// Seconds since 1970-01-01 UTC; negative before it.
    pub seconds: i64,
    /// Nanoseconds, 0 to 999,999,999.
    pub nanoseconds: u32,
}

impl Timestamp {
    /// Returns the time that was so long before; the earliest one if that has no number.
    #[must_use]
    pub fn earlier_by(self, time: Duration) -> Self {
        let borrows = self.nanoseconds < time.subsec_nanos();
        let seconds = i64::try_from(time.as_secs()).unwrap_or(i64::MAX).saturating_add(borrows.into());
        let nanoseconds = self.nanoseconds + u32::from(borrows) * 1_000_000_000 - time.subsec_nanos();
        Self { seconds: self.seconds.saturating_sub(seconds), nanoseconds }
    }
}

impl From<StatxTimestamp> for Timestamp {
    fn from(time: StatxTimestamp) -> Self {
        Self { seconds: time.tv_sec, nanoseconds: time.tv_nsec }
    }
}

/// A device's number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct DeviceNumber {
    /// Major number.
    pub major: u32,
    /// Minor number.
    pub minor: u32,
}

/// The attributes of an entry itself; links are never followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Metadata {
    /// Type of the entry.
    pub kind: Kind,
    /// Permission bits, 0 to 0o7777.
    pub mode: u16,
    /// Length in bytes; for a symbolic link that of its text.
    pub size: u64,
    /// Time of the last change of content.
    pub mtime: Timestamp,
    /// Time of the last change of content or attributes.
    pub ctime: Timestamp,
    /// Access time, as far as the mount keeps it.
    pub atime: Timestamp,
    /// Time when its inode was made; `None` where the filesystem does not keep it. With the inode's number it
    /// tells an inode from a later one that got the same number.
    pub born: Option<Timestamp>,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Number of its filesystem, major in the upper 32 bits.
    pub dev: u64,
    /// Inode number.
    pub ino: u64,
    /// Number of hard links.
    pub nlink: u32,
    /// Number of the device that it stands for (device nodes only).
    pub rdev: DeviceNumber,
    /// Space taken, in units of 512 bytes.
    pub blocks: u64,
    /// Origin of its type, permission bits, owner, group and device number.
    pub origin: Origin,
}

impl Metadata {
    /// The fields to request from `statx`.
    const WANT: StatxFlags = StatxFlags::BASIC_STATS.union(StatxFlags::BTIME);

    /// Returns the attributes of an entry of an open directory, or with an empty path and the flag for
    /// that of the directory itself.
    ///
    /// # Errors
    /// The system's error; [`InvalidData`](io::ErrorKind::InvalidData) for a type that Linux does not have.
    pub(crate) fn of_entry<P: Arg + Copy>(at: impl AsFd, path: P, flags: AtFlags) -> io::Result<Self> {
        let found = match statx(&at, path, flags, Self::WANT) {
            // A sandbox that does not know the call refuses it, often with `EPERM`; rustix tells that from a
            // refusal of the entry. The older call lacks the time of birth only.
            Err(Errno::NOSYS) => Self::from_stat(&statat(&at, path, flags)?),
            found => Self::from_statx(&found?),
        };
        found.ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    /// Converts the result of the call before `statx`.
    #[expect(clippy::useless_conversion, reason = "the types of the fields differ between architectures")]
    fn from_stat(stat: &Stat) -> Option<Self> {
        let time = |seconds, nanoseconds: u64| {
            let nanoseconds = u32::try_from(nanoseconds).unwrap_or_default();
            Timestamp { seconds, nanoseconds }
        };
        Some(Self {
            kind: Kind::from_file_type(FileType::from_raw_mode(stat.st_mode))?,
            mode: u16::try_from(stat.st_mode & 0o7777).ok()?,
            size: u64::try_from(stat.st_size).ok()?,
            mtime: time(stat.st_mtime.into(), u64::try_from(stat.st_mtime_nsec).ok()?),
            ctime: time(stat.st_ctime.into(), u64::try_from(stat.st_ctime_nsec).ok()?),
            atime: time(stat.st_atime.into(), u64::try_from(stat.st_atime_nsec).ok()?),
            born: None,
            uid: stat.st_uid,
            gid: stat.st_gid,
            dev: u64::from(major(stat.st_dev)) << 32 | u64::from(minor(stat.st_dev)),
            ino: stat.st_ino.into(),
            nlink: u32::try_from(stat.st_nlink).unwrap_or(u32::MAX),
            rdev: DeviceNumber { major: major(stat.st_rdev), minor: minor(stat.st_rdev) },
            blocks: u64::try_from(stat.st_blocks).ok()?,
            origin: Origin::Inode,
        })
    }

    /// Converts a `statx` result; returns `None` for a type that Linux does not have.
    fn from_statx(stat: &Statx) -> Option<Self> {
        let is_born = StatxFlags::from_bits_retain(stat.stx_mask).contains(StatxFlags::BTIME);
        Some(Self {
            kind: Kind::from_file_type(FileType::from_raw_mode(u32::from(stat.stx_mode)))?,
            mode: stat.stx_mode & 0o7777,
            size: stat.stx_size,
            mtime: stat.stx_mtime.into(),
            ctime: stat.stx_ctime.into(),
            atime: stat.stx_atime.into(),
            born: is_born.then(|| stat.stx_btime.into()),
            uid: stat.stx_uid,
            gid: stat.stx_gid,
            dev: u64::from(stat.stx_dev_major) << 32 | u64::from(stat.stx_dev_minor),
            ino: stat.stx_ino,
            nlink: stat.stx_nlink,
            rdev: DeviceNumber { major: stat.stx_rdev_major, minor: stat.stx_rdev_minor },
            blocks: stat.stx_blocks,
            origin: Origin::Inode,
        })
    }

    /// Returns whether this is a device itself, not a file that stands for one.
    pub fn is_device(&self) -> bool {
        matches!(self.kind, Kind::CharDevice | Kind::BlockDevice) && self.origin == Origin::Inode
    }

    /// Returns whether only this process's user and root can change it, by its owner and bits.
    pub fn is_own(&self) -> bool {
        let user = rustix::process::geteuid().as_raw();
        [0, user].contains(&self.uid) && self.mode & 0o022 == 0
    }

    /// Returns the part that shows whether this is still the same file with the same content.
    pub fn stamp(&self) -> Stamp {
        Stamp { dev: self.dev, ino: self.ino, size: self.size, mtime: self.mtime, ctime: self.ctime }
    }
}

/// Identity and content version of a file. Equal stamps mean that it was neither replaced nor,
/// within the resolution of the filesystem's clock, changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Stamp {
    /// Number of the filesystem.
    pub dev: u64,
    /// Inode number.
    pub ino: u64,
    /// Length in bytes.
    pub size: u64,
    /// Time of the last change of content.
    pub mtime: Timestamp,
    /// Time of the last change of content or attributes; a process cannot set it.
    pub ctime: Timestamp,
}

impl Stamp {
    /// Returns the identity and version of an open file.
    ///
    /// # Errors
    /// The system's error.
    pub fn of_file(file: &std::fs::File) -> std::io::Result<Self> {
        crate::source_file::stat_fd(file.as_fd()).map(|metadata| metadata.stamp())
    }

    /// Returns whether this is the same file with the same content, according to its modification
    /// time. Ignores the change time, which also changes with attributes and with every hard link
    /// made or removed.
    pub fn is_same_content(&self, other: &Self) -> bool {
        let facts = |stamp: &Self| (stamp.dev, stamp.ino, stamp.size, stamp.mtime);
        facts(self) == facts(other)
    }
}

/// The origin of an entry's owner, permission bits and type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Origin {
    /// The inode.
    #[default]
    Inode,
    /// `user.rsync.%stat`.
    Stored,
    /// The inode, because `user.rsync.%stat` exists but cannot be read.
    Damaged,
    /// The inode, because this process may not read the attributes of the directory.
    Unreadable,
    /// The inode of a device that stands for a regular file of its content.
    Device,
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::disallowed_methods)]
mod tests {
    use super::*;

    #[test]
    fn the_older_call_tells_all_but_the_time_of_birth() {
        let scratch = tempfile::tempdir().unwrap();
        std::fs::write(scratch.path().join("file"), "content").unwrap();
        std::os::unix::fs::symlink("file", scratch.path().join("link")).unwrap();
        let dir = std::fs::File::open(scratch.path()).unwrap();
        let null = std::fs::File::open("/dev").unwrap();
        for (at, name) in [(&dir, "file"), (&dir, "link"), (&dir, "."), (&null, "null")] {
            let flags = AtFlags::SYMLINK_NOFOLLOW;
            let newer = Metadata::of_entry(at, name, flags).unwrap();
            let older = Metadata::from_stat(&statat(at, name, flags).unwrap()).unwrap();
            assert_eq!(older, Metadata { born: None, ..newer }, "{name}");
        }
    }

    #[test]
    fn a_time_before_another_has_whole_nanoseconds() {
        let time = |seconds, nanoseconds| Timestamp { seconds, nanoseconds };
        for (from, before, at) in [
            (time(5, 100), Duration::ZERO, time(5, 100)),
            (time(5, 100), Duration::from_nanos(100), time(5, 0)),
            (time(5, 100), Duration::from_nanos(101), time(4, 999_999_999)),
            (time(0, 0), Duration::from_millis(1_500), time(-2, 500_000_000)),
            (time(-3, 999_999_999), Duration::from_secs(7), time(-10, 999_999_999)),
            (time(0, 7), Duration::from_secs(u64::MAX), time(-i64::MAX, 7)),
        ] {
            assert_eq!(from.earlier_by(before), at);
        }
    }
}
