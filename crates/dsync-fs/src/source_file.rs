//! A regular file open for positional reads: a file of the source, or the basis at the destination.
//! Where a run copies devices, a device is such a file too: its length is where seeking ends.
//!
//! Read with `pread`, never mapped: if another process truncates a mapped file, the reader dies of
//! SIGBUS. Reads take `&self`, so several threads may read different parts at once.

use std::{
    fs::File,
    io,
    num::NonZeroU64,
    ops::Range,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::OnceLock,
};

use rustix::{
    fs::{Advice, AtFlags, OFlags, SeekFrom, fadvise, fcntl_getfl, fcntl_setfl, fstatfs},
    io::{Errno, ReadWriteFlags, preadv2},
};

use crate::metadata::{Kind, Metadata, Origin, Stamp, Timestamp};

/// A regular file open for reading. Made by [`Dir::open_source`](crate::Dir::open_source).
#[derive(Debug)]
pub struct SourceFile {
    fd: OwnedFd,
    metadata: Metadata,
    /// Whether nobody else has the file.
    is_own: bool,
    /// Whether a change might not show in the stamp.
    is_distrusted: bool,
    /// The cached answer of [`has_holes`](Self::has_holes).
    pub(crate) holes: OnceLock<bool>,
}

/// The way in which files of the source are opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Opening {
    /// Without changing their access times, where that is allowed.
    pub noatime: bool,
    /// Devices too, as files of their content.
    pub devices: bool,
}

impl Opening {
    pub(crate) fn flags(self) -> OFlags {
        if self.noatime { OFlags::NOATIME } else { OFlags::empty() }
    }
}

impl SourceFile {
    pub(crate) fn new(fd: OwnedFd, metadata: Metadata) -> Self {
        Self { fd, metadata, is_own: false, is_distrusted: false, holes: OnceLock::new() }
    }

    /// Takes an open entry of whatever type; `None` unless it is a regular file, or a device where
    /// `devices` are taken.
    ///
    /// # Errors
    /// The system's error.
    pub(crate) fn of(fd: OwnedFd, devices: bool) -> io::Result<Option<Self>> {
        let metadata = stat_fd(fd.as_fd())?;
        Ok(match metadata.kind {
            Kind::File => Some(Self::new(fd, metadata)),
            Kind::CharDevice | Kind::BlockDevice if devices => {
                let metadata = as_file(fd.as_fd(), metadata);
                Some(Self::new(fd, metadata))
            }
            _ => None,
        })
    }

    /// Takes a private file of this process in the place of a source's: it never changes, and has
    /// this modification time.
    ///
    /// # Errors
    /// The system's error.
    pub fn of_own(file: File, mtime: Timestamp) -> io::Result<Self> {
        let metadata = stat_fd(file.as_fd())?;
        let own = Self::new(file.into(), Metadata { mtime, ..metadata });
        Ok(Self { is_own: true, ..own })
    }

    /// Returns whether this is a device, whose content ends at its length whatever a read returns.
    pub fn is_device(&self) -> bool {
        self.metadata.origin == Origin::Device
    }

    /// Returns the attributes at the time of opening.
    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// Returns the identity and version at the time of opening.
    pub fn stamp(&self) -> Stamp {
        self.metadata.stamp()
    }

    /// Returns the length in bytes at the time of opening.
    pub fn len(&self) -> u64 {
        self.metadata.size
    }

    /// Returns whether the file was empty at the time of opening.
    pub fn is_empty(&self) -> bool {
        self.metadata.size == 0
    }

    /// Asks the kernel for the file's identity and version once more.
    ///
    /// # Errors
    /// The system's error.
    pub fn restamp(&self) -> io::Result<Stamp> {
        if self.is_own {
            return Ok(self.stamp());
        }
        let now = stat_fd(self.fd.as_fd())?;
        Ok(if self.is_device() { as_file(self.fd.as_fd(), now).stamp() } else { now.stamp() })
    }

    /// Returns whether the file is still what it was when opened. Ask after the last read: a file
    /// that changed meanwhile must not be reported as copied.
    ///
    /// # Errors
    /// The system's error.
    pub fn is_unchanged(&self) -> io::Result<bool> {
        Ok(!self.is_distrusted && self.restamp()? == self.stamp())
    }

    /// Returns whether this is a private file of the process.
    pub(crate) fn is_own(&self) -> bool {
        self.is_own
    }

    /// Takes the attributes of now for those of the time of opening.
    pub(crate) fn see_anew(&mut self) -> io::Result<()> {
        let now = stat_fd(self.fd.as_fd())?;
        self.metadata = if self.is_device() { as_file(self.fd.as_fd(), now) } else { now };
        Ok(())
    }

    /// Makes the file count as changed, whatever its stamp says.
    pub(crate) fn distrust(&mut self) {
        self.is_distrusted = true;
    }

    /// Returns whether the kernel makes the content as it is read, so that the size says nothing of its end.
    pub fn is_made_as_read(&self) -> bool {
        fstatfs(&self.fd).is_ok_and(|found| MADE_AS_READ.contains(&found.f_type))
    }

    /// Returns whether only another reading can tell if what was read is of one state, after
    /// [`is_unchanged`](Self::is_unchanged) has denied it: the file is longer than when it was opened, or it
    /// changed just before that, and a further change need not show.
    ///
    /// # Errors
    /// The system's error.
    pub fn needs_another_reading(&self) -> io::Result<bool> {
        let now = self.restamp()?;
        Ok(now.size > self.len() || self.is_distrusted && now == self.stamp())
    }

    /// Reads up to `buf.len()` bytes at `offset`; returns 0 only if the file ends there. May return
    /// fewer bytes than the file has.
    ///
    /// # Errors
    /// The system's error; an interrupted call is repeated.
    pub fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        match read_at(self.fd.as_fd(), offset, buf) {
            // Where the disk cannot be asked for that range, memory can.
            Err(error) if Errno::from_io_error(&error) == Some(Errno::INVAL) => {
                if self.read_through_memory()? { read_at(self.fd.as_fd(), offset, buf) } else { Err(error) }
            }
            result => result,
        }
    }

    /// Fills `buf` from `offset` on; returns less than `buf.len()` only if the file ends.
    ///
    /// # Errors
    /// The system's error.
    pub fn read_full_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        fill(offset, buf, |offset, buf| self.read_at(offset, buf))
    }

    /// Tells the kernel that the file will be read from front to back.
    pub fn advise_sequential(&self) {
        // Only advice: nothing is lost if a filesystem ignores it.
        let _ = fadvise(&self.fd, 0, None, Advice::Sequential);
    }

    /// Makes reads ask the disk: drops what memory holds of the file and the disk has too, and passes by
    /// what stays, as mapped pages do, where the filesystem can (`O_DIRECT`). See [`DISK_UNIT`].
    pub fn read_from_disk(&self) {
        let _ = fadvise(&self.fd, 0, None, Advice::DontNeed);
        let _ = fcntl_getfl(&self.fd).and_then(|flags| fcntl_setfl(&self.fd, flags | OFlags::DIRECT));
    }

    /// Returns whether reads pass by what memory holds of the file.
    pub fn passes_memory_by(&self) -> bool {
        fcntl_getfl(&self.fd).is_ok_and(|flags| flags.contains(OFlags::DIRECT))
    }

    /// Reads through memory from now on, if reads have passed it by. Returns whether they had.
    fn read_through_memory(&self) -> io::Result<bool> {
        let flags = fcntl_getfl(&self.fd)?;
        fcntl_setfl(&self.fd, flags - OFlags::DIRECT)?;
        Ok(flags.contains(OFlags::DIRECT))
    }

    /// Returns whether reading the first byte would wait for a disk. Where the filesystem cannot say
    /// so (FUSE and network filesystems cannot), yes, unless it is memory itself.
    pub fn waits_for_disk(&self) -> bool {
        let mut first = [0];
        let mut first = [io::IoSliceMut::new(&mut first)];
        match preadv2(&self.fd, &mut first, 0, ReadWriteFlags::NOWAIT) {
            Ok(_) => false,
            Err(Errno::AGAIN) => true,
            Err(_) => !fstatfs(&self.fd).is_ok_and(|found| found.f_type == TMPFS),
        }
    }

    /// Tells the kernel that a range of the file will be read soon, and does not wait for it.
    pub fn advise_needed(&self, range: Range<u64>) {
        let len = NonZeroU64::new(range.end.saturating_sub(range.start));
        if len.is_some() {
            let _ = fadvise(&self.fd, range.start, len, Advice::WillNeed);
        }
    }

    /// Returns the first offset at or after `offset` that is not in a hole; `None` if only a hole
    /// follows. Filesystems without holes answer `offset`.
    ///
    /// # Errors
    /// The system's error. Not for use by several threads at once on one file: the answers are
    /// right, but the kernel serialises them.
    pub fn next_data(&self, offset: u64) -> io::Result<Option<u64>> {
        if offset >= self.len() {
            return Ok(None);
        }
        match rustix::fs::seek(&self.fd, SeekFrom::Data(offset)) {
            Ok(data) => Ok(Some(data)),
            Err(Errno::NXIO) => Ok(None),
            Err(Errno::INVAL | Errno::OPNOTSUPP) => Ok(Some(offset)),
            Err(error) => Err(error.into()),
        }
    }

    /// Returns the first offset at or after `offset` that is in a hole; the end of the file counts
    /// as one.
    ///
    /// # Errors
    /// The system's error.
    pub fn next_hole(&self, offset: u64) -> io::Result<u64> {
        if offset >= self.len() {
            return Ok(self.len());
        }
        match rustix::fs::seek(&self.fd, SeekFrom::Hole(offset)) {
            Ok(hole) => Ok(hole),
            Err(Errno::NXIO | Errno::INVAL | Errno::OPNOTSUPP) => Ok(self.len()),
            Err(error) => Err(error.into()),
        }
    }
}

impl AsFd for SourceFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Returns the attributes of an open device as those of a file with its content. A device that
/// cannot be sought in has the length 0, as with rsync.
pub(crate) fn as_file(fd: BorrowedFd<'_>, device: Metadata) -> Metadata {
    let size = rustix::fs::seek(fd, SeekFrom::End(0)).unwrap_or(0);
    Metadata { kind: Kind::File, origin: Origin::Device, size, ..device }
}

pub(crate) fn stat_fd(fd: BorrowedFd<'_>) -> io::Result<Metadata> {
    Metadata::of_entry(fd, c"", AtFlags::EMPTY_PATH)
}

pub(crate) fn read_at(fd: BorrowedFd<'_>, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
    loop {
        match rustix::io::pread(fd, &mut *buf, offset) {
            Err(Errno::INTR) => {}
            result => return Ok(result?),
        }
    }
}

pub(crate) fn read_full_at(fd: BorrowedFd<'_>, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
    fill(offset, buf, |offset, buf| read_at(fd, offset, buf))
}

/// Fills `buf` from `offset` on, unless the file ends.
fn fill(
    offset: u64,
    buf: &mut [u8],
    read: impl Fn(u64, &mut [u8]) -> io::Result<usize>,
) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buf.len() {
        match read(offset + filled as u64, &mut buf[filled..])? {
            0 => break,
            count => filled += count,
        }
    }
    Ok(filled)
}

/// Bytes of which the address of a buffer, its length and the offset are to be multiples where a file is
/// [read from the disk](SourceFile::read_from_disk); otherwise it is read through memory from then on. The
/// largest logical block of disks.
pub const DISK_UNIT: usize = 4096;

/// The type that `fstatfs` returns for tmpfs.
const TMPFS: rustix::fs::FsWord = 0x0102_1994;
/// The types of proc, sysfs, debugfs, tracefs, cgroup and cgroup2.
const MADE_AS_READ: [rustix::fs::FsWord; 6] =
    [0x9fa0, 0x6265_6572, 0x6462_6720, 0x7472_6163, 0x0027_e0eb, 0x6367_7270];
