//! Whether a file's stamp will show every later change of its content.
//!
//! The law: if [`SourceFile::is_settled`] held before a file was read and its [`Stamp`](crate::Stamp)
//! is the same after it, then whoever meets that stamp again on the same filesystem meets that
//! content, as far as writes through this kernel go. Three facts make it one. Nobody has the file
//! open for writing, so no write is under way and no mapping can change it: a write shows in the
//! change time when it begins, and one through a mapping when it first touches a page, which may be
//! long ago. Whoever opens it later writes at a later time than the one recorded. And no process can
//! set a change time.
//!
//! A file's names and attributes may change without its content: each such change has a new change time. A
//! read lease ([`SourceFile::lease`]) that lasts from a look at the old stamp until the clock has passed the
//! new one shows that nobody wrote to the file in between, so that both stamps are of one content.
//!
//! A run that only copies asks for less ([`SourceFile::settle`]): that each change between its opening and
//! its last reading shows. Where the last change before is of the present step of the filesystem's clock, a
//! further one gets the same time, and a mixture of both states would be taken for the file.
//!
//! A disk that rots, and a program that writes to the device below the filesystem, change content
//! without a trace in any stamp: no run that takes a stamp for a content notices either.

use std::{
    io,
    os::fd::{AsFd as _, BorrowedFd, OwnedFd},
    thread,
    time::Duration,
};

use rustix::{
    fs::{fstatfs, fstatvfs, syncfs},
    time::{ClockId, clock_gettime},
};
use xxhash_rust::xxh3::xxh3_64;

use crate::{
    dir::Dir,
    metadata::{Stamp, Timestamp},
    source_file::SourceFile,
    sys,
};

/// A filesystem whose inode numbers and change times tell one version of a file from all others.
#[derive(Debug)]
pub struct StableFilesystem {
    id: u64,
    of_device: u64,
    fd: OwnedFd,
}

impl StableFilesystem {
    fn of(entry: BorrowedFd<'_>, device: u64) -> Option<Self> {
        let found = fstatfs(entry).ok()?;
        let kind = u64::try_from(found.f_type).ok().filter(|kind| STABLE.contains(kind))?;
        let own = fstatvfs(entry).ok()?.f_fsid;
        let id_of = |numbers: [u64; 2], uuid: &[u8]| {
            xxh3_64(&[&kind.to_le_bytes(), &numbers.map(u64::to_le_bytes).concat()[..], uuid].concat())
        };

        // A subvolume of btrfs has inode numbers of its own, and is in the filesystem's own number, as is the
        // UUID on ext4. On xfs that is the device's.
        let of_subvolume = if kind == BTRFS { own } else { 0 };
        let lasting = match sys::filesystem_uuid(entry) {
            Some(uuid) => (uuid != [0; 16]).then(|| id_of([of_subvolume, 0], &uuid)),
            None => (kind != XFS && own != 0).then(|| id_of([own, 0], &[])),
        };
        let of_device = id_of([own, device], &[]);
        let id = lasting.unwrap_or(of_device);
        let fd = rustix::io::fcntl_dupfd_cloexec(entry, 0).ok()?;
        Some(Self { id, of_device, fd })
    }

    /// Returns a number that another filesystem has by chance only, unless one is a copy of the other's disk, and
    /// the same one at a later time, also where its device has another number then. Only where the kernel tells
    /// nothing lasting the device's number is in it.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Takes the device's number into the one of [`id`](Self::id): of a filesystem and a copy of it that are
    /// mounted at once.
    pub fn with_device(mut self) -> Self {
        self.id = self.of_device;
        self
    }

    /// Writes everything of the filesystem to the disk. Reports write errors since the file was
    /// opened that the filesystem was found by.
    ///
    /// # Errors
    /// The system's error.
    pub fn sync(&self) -> io::Result<()> {
        Ok(syncfs(&self.fd)?)
    }
}

impl Dir {
    /// Returns the directory's filesystem, as [`SourceFile::stable_filesystem`] does: its files of the
    /// same device have the same one, also those that cannot be opened.
    pub fn stable_filesystem(&self) -> Option<StableFilesystem> {
        StableFilesystem::of(self.as_fd(), self.metadata().ok()?.dev)
    }
}

impl SourceFile {
    /// Returns the file's filesystem if stamps can be trusted there: ext4, xfs and btrfs keep an
    /// inode's number for its life and the time of a change to the nanosecond, by this kernel's
    /// clock. Network and FUSE filesystems may do neither. On tmpfs a write through a mapping shows
    /// once, and on overlayfs it is counted at another inode.
    pub fn stable_filesystem(&self) -> Option<StableFilesystem> {
        StableFilesystem::of(self.as_fd(), self.metadata().dev)
    }

    /// Returns whether a later change of the content shows in the file's stamp, see the module. It
    /// does not where somebody has the file open for writing, where the last change is of this very
    /// tick of the clock or of the future, on a filesystem that keeps whole seconds, and for the file
    /// of another user, whose writers only root may ask for.
    pub fn is_settled(&self) -> bool {
        // Asked for after the time was read: whoever writes later has a later time.
        is_past(self.metadata().ctime) && !self.is_device() && sys::has_no_writer(self)
    }

    /// Keeps writers off the file: whoever opens it for writing waits until the lease ends, but no longer than
    /// the system lets him (45 seconds by default). Returns `None` where somebody has it open for writing, for the
    /// file of another user unless this is root, and for a device.
    pub fn lease(self) -> Option<LeasedFile> {
        (!self.is_device() && sys::take_read_lease(&self)).then_some(LeasedFile(self))
    }
}

/// A file with a read lease, which ends when this is dropped.
#[derive(Debug)]
pub struct LeasedFile(SourceFile);

impl LeasedFile {
    /// Asks the kernel for the file's identity and version of now.
    ///
    /// # Errors
    /// The system's error.
    pub fn restamp(&self) -> io::Result<Stamp> {
        self.0.restamp()
    }

    /// Returns whether the file has this stamp, nobody has written to it since the lease began, and each later
    /// change shows in the stamp.
    pub fn is_settled_as(&self, stamp: &Stamp) -> bool {
        // The lease is asked about last: it has kept writers off until then.
        is_past(stamp.ctime) && self.restamp().is_ok_and(|now| now == *stamp) && sys::has_read_lease(&self.0)
    }
}

/// Returns whether each change of now gets another time than this one. Filesystems that keep whole seconds
/// give one time for too long.
fn is_past(changed: Timestamp) -> bool {
    changed.nanoseconds != 0 && changed < filesystem_time()
}

impl SourceFile {
    /// Returns the file as it is once each further change of it gets another change time: at once, unless the
    /// last one is of this very step of the clock. Where it changes all the time, it counts as changed from
    /// the beginning. Cost: a look at the clock; after a change of now a tick of at most 10 ms, or up to two
    /// seconds on a filesystem that keeps whole ones.
    ///
    /// # Errors
    /// The system's error.
    pub fn settle(mut self) -> io::Result<Self> {
        for _ in 0..SETTLING_TRIES {
            let changed = self.metadata().ctime;
            let step = step_of(changed);
            if self.is_own() || !is_of_step(changed, step, filesystem_time()) {
                return Ok(self);
            }
            while is_of_step(changed, step, filesystem_time()) {
                thread::sleep(if step < LOOKS { LOOKS } else { LOOKS * 10 });
            }
            self.see_anew()?;
        }
        let changed = self.metadata().ctime;
        if is_of_step(changed, step_of(changed), filesystem_time()) {
            self.distrust();
        }
        Ok(self)
    }
}

/// Returns the longest time for which changes get one change time on the filesystem that has given this one,
/// beyond the tick of the clock. Filesystems keep whole seconds, or two (ext4 with short inodes, FAT), hundredths of
/// one (exFAT), or what the clock tells.
fn step_of(changed: Timestamp) -> Duration {
    match changed.nanoseconds {
        0 => Duration::from_secs(2),
        nanoseconds if nanoseconds % 10_000_000 == 0 => Duration::from_millis(10),
        _ => Duration::ZERO,
    }
}

/// Returns whether a change of now could get the time of an earlier one. A time of the future is another clock's.
fn is_of_step(changed: Timestamp, step: Duration, tick: Timestamp) -> bool {
    is_of_now(changed, tick.earlier_by(step), timestamp_of(ClockId::Realtime))
}

/// Returns the time that the filesystems of [`stable_filesystem`](SourceFile::stable_filesystem)
/// give to a change that happens now: that of the last tick.
pub fn filesystem_time() -> Timestamp {
    timestamp_of(ClockId::RealtimeCoarse)
}

/// Waits until [`filesystem_time`] is past a change that has happened. Some filesystems ask a finer clock
/// for a change's time, which is ahead of that by a tick, or by many where the machine is too busy for
/// ticks. Does not wait for a change of the future.
pub fn wait_until_past(changed: Timestamp) {
    while is_of_now(changed, filesystem_time(), timestamp_of(ClockId::Realtime)) {
        thread::sleep(LOOKS);
    }
}

/// Returns whether a change is of this tick of the clock, or of what has passed since.
fn is_of_now(changed: Timestamp, tick: Timestamp, now: Timestamp) -> bool {
    tick <= changed && changed <= now
}

fn timestamp_of(clock: ClockId) -> Timestamp {
    let now = clock_gettime(clock);
    Timestamp { seconds: now.tv_sec, nanoseconds: u32::try_from(now.tv_nsec).unwrap_or_default() }
}

/// Time between two looks at the clock: the shortest tick of Linux.
const LOOKS: Duration = Duration::from_millis(1);
/// Steps of the clock that a file is waited for which changes all the time.
const SETTLING_TRIES: u32 = 2;
/// The types that `fstatfs` returns for ext2 to ext4, xfs and btrfs.
const STABLE: [u64; 3] = [0xef53, XFS, BTRFS];
const XFS: u64 = 0x5846_5342;
const BTRFS: u64 = 0x9123_683e;

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::disallowed_methods)]
mod tests {
    use std::{fs, io::Write as _, path::Path};

    use rustix::{
        fs::{Mode, OFlags},
        io::Errno,
    };

    use super::*;
    use crate::{Component, Dir};

    fn open(dir: &Path) -> SourceFile {
        Dir::open_operand(dir).unwrap().open_source(&Component::new(b"file").unwrap()).unwrap()
    }

    #[test]
    fn a_file_that_somebody_may_write_to_is_not_settled() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("file");
        fs::write(&path, "content").unwrap();
        // Until the clock has passed the time of that.
        while !open(scratch.path()).is_settled() {
            std::thread::yield_now();
        }
        assert!(open(scratch.path()).is_settled(), "asking leaves nothing behind");

        let mut writer = fs::OpenOptions::new().append(true).open(&path).unwrap();
        assert!(!open(scratch.path()).is_settled());
        drop(fs::File::open(&path).unwrap());
        writer.write_all(b" more").unwrap();
        drop(writer);
        while !open(scratch.path()).is_settled() {
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_lease_shows_that_nobody_has_written_between_two_stamps() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("file");
        fs::write(&path, "content").unwrap();
        let writer = fs::OpenOptions::new().append(true).open(&path).unwrap();
        assert!(open(scratch.path()).lease().is_none(), "somebody may write to it");
        drop(writer);

        let leased = open(scratch.path()).lease().unwrap();
        fs::hard_link(&path, scratch.path().join("other")).unwrap();
        let stamp = leased.restamp().unwrap();
        wait_until_past(stamp.ctime);
        assert!(leased.is_settled_as(&stamp));
        let earlier = Stamp { ctime: Timestamp { seconds: 1, ..stamp.ctime }, ..stamp };
        assert!(!leased.is_settled_as(&earlier), "it is another version");

        // Whoever wants to write and does not wait is turned away, and the lease tells of him.
        let eager = rustix::fs::open(&path, OFlags::WRONLY | OFlags::NONBLOCK, Mode::empty());
        assert_eq!(eager.err(), Some(Errno::AGAIN));
        assert!(!leased.is_settled_as(&stamp));
        drop(leased);
        assert!(fs::OpenOptions::new().append(true).open(&path).is_ok());
    }

    #[test]
    fn a_filesystem_keeps_its_number_and_memory_has_none() {
        let scratch = tempfile::tempdir().unwrap();
        fs::write(scratch.path().join("file"), "content").unwrap();
        let id = || open(scratch.path()).stable_filesystem().map(|found| found.id());
        assert_eq!(id(), id());
        let of_directory = Dir::open_operand(scratch.path()).unwrap().stable_filesystem();
        assert_eq!(id(), of_directory.map(|found| found.id()), "a directory and its file");

        let memory = tempfile::tempdir_in("/dev/shm").unwrap();
        fs::write(memory.path().join("file"), "content").unwrap();
        assert!(open(memory.path()).stable_filesystem().is_none());
        assert!(Dir::open_operand(memory.path()).unwrap().stable_filesystem().is_none());
    }

    #[test]
    fn a_file_that_has_settled_shows_each_change() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("file");
        for round in 0..100_u8 {
            fs::write(&path, [round; 10]).unwrap();
            let file = open(scratch.path()).settle().unwrap();
            assert!(file.is_unchanged().unwrap());
            fs::write(&path, [round + 1; 10]).unwrap();
            assert!(!file.is_unchanged().unwrap(), "{round}");
        }
    }

    #[test]
    fn a_change_counts_as_one_of_now_for_as_long_as_its_time_is_given() {
        let at = |seconds, nanoseconds| Timestamp { seconds, nanoseconds };
        for (changed, tick, is_of_step) in [
            (at(5, 0), at(6, 999_000_000), true),
            (at(5, 0), at(7, 1), false),
            (at(5, 20_000_000), at(5, 29_000_000), true),
            (at(5, 20_000_000), at(5, 30_000_001), false),
            (at(5, 1), at(5, 1), true),
            (at(5, 1), at(5, 2), false),
        ] {
            assert_eq!(
                super::is_of_step(changed, step_of(changed), tick),
                is_of_step,
                "{changed:?} {tick:?}"
            );
        }
        let later = Timestamp { seconds: filesystem_time().seconds + 3600, nanoseconds: 0 };
        assert!(!super::is_of_step(later, step_of(later), filesystem_time()), "another clock's");
    }

    #[test]
    fn a_change_of_now_is_waited_for_and_no_other() {
        let at = |seconds, nanoseconds| Timestamp { seconds, nanoseconds };
        // Ticks that come late leave the clock of changes far ahead.
        for tick in [at(5, 0), at(4, 900_000_000), at(1, 0)] {
            assert!(is_of_now(at(5, 0), tick, at(5, 1)), "{tick:?}");
        }
        assert!(!is_of_now(at(5, 0), at(5, 1), at(5, 1)), "it is past");
        assert!(!is_of_now(at(5, 2), at(5, 0), at(5, 1)), "it is of the future");

        let now = timestamp_of(ClockId::Realtime);
        wait_until_past(now);
        assert!(now < filesystem_time());
        wait_until_past(Timestamp { seconds: now.seconds + 3600, ..now });
    }
}
