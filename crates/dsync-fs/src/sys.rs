//! System calls for which rustix has no safe function, and the process's own limits. The only
//! `unsafe` of the crate.
#![allow(unsafe_code)]

use std::{
    ffi::{CStr, CString},
    io,
    os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd},
    sync::{
        LazyLock,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use linux_raw_sys::general::{__NR_getxattrat, __NR_listxattrat, xattr_args};
use memmap2::{Mmap, MmapOptions};
use nix::{
    libc::{c_long, c_void, syscall},
    // Of rustix the question cannot fail, and a sandbox may refuse it.
    sys::resource::{Resource, getrlimit, setrlimit},
};
use rustix::{
    fs::{AtFlags, CWD, FlockOperation, Gid, Mode, Uid, flock},
    io::Errno,
};

/// Makes a system call until no signal interrupts it. One that lacks a descriptor is made again when another thread
/// may have closed one: half a second passes at the most.
pub(crate) fn retry<T>(mut call: impl FnMut() -> rustix::io::Result<T>) -> io::Result<T> {
    let mut pauses = 0..10;
    loop {
        match call() {
            Err(Errno::INTR) => {}
            Err(error @ (Errno::MFILE | Errno::NFILE)) => match pauses.next() {
                Some(doublings) => thread::sleep(Duration::from_millis(1 << doublings) / 2),
                None => return Err(error.into()),
            },
            result => return Ok(result?),
        }
    }
}

/// Opens a file that another program may hold a lease on (`F_SETLEASE`, as Samba does for its clients). The first
/// try asks it to give the lease up, which takes a moment; more than a second and a half is not waited, since a run
/// must be able to end.
pub(crate) fn retry_leased<T>(mut open: impl FnMut() -> rustix::io::Result<T>) -> io::Result<T> {
    let mut pauses = 0..30;
    loop {
        match retry(&mut open) {
            Err(error) if Errno::from_io_error(&error) == Some(Errno::AGAIN) && pauses.next().is_some() => {
                thread::sleep(Duration::from_millis(50));
            }
            result => return result,
        }
    }
}

/// Returns the soft limit of this process's open files (`u64::MAX`: none).
pub fn nofile_limit() -> u64 {
    getrlimit(Resource::RLIMIT_NOFILE).map_or(COMMON_NOFILE_LIMIT, |(limit, _)| limit)
}

/// Raises the soft limit of open files to the hard one; returns the limit in force (`u64::MAX`:
/// none). It is the whole process's, so a program decides on that, never a run: with the default of
/// 1024 a run keeps fewer directories open, and opens some of them again.
///
/// The default exists for programs that use `select`, which this crate does not. Never fails: a
/// limit that cannot be raised is returned unchanged.
///
/// ```
/// // First thing in `main`, before threads start; the library never does it by itself.
/// let limit = dsync_fs::sys::raise_nofile_limit();
/// dsync_fs::sys::reserve_descriptors();
/// assert!(limit > 0);
/// ```
pub fn raise_nofile_limit() -> u64 {
    if let Ok((current, maximum)) = getrlimit(Resource::RLIMIT_NOFILE)
        && current != maximum
    {
        // Refused only to those who may not: then the old limit counts.
        let _ = setrlimit(Resource::RLIMIT_NOFILE, maximum, maximum);
    }
    nofile_limit()
}

/// Returns the length beyond which this process may not write into a file (`u64::MAX`: none).
///
/// ```
/// // Read anew each time: a program may change it while it runs.
/// assert!(dsync_fs::sys::file_size_limit() > 0);
/// ```
pub fn file_size_limit() -> u64 {
    getrlimit(Resource::RLIMIT_FSIZE).map_or(u64::MAX, |(limit, _)| limit)
}

/// Makes room in this process's table of descriptors for as many as a run holds open, as far as the limit
/// of open files allows. For a program to call before it starts threads, and after
/// [`raise_nofile_limit`].
///
/// The kernel doubles the table whenever it is full. Of a process with several threads it then waits
/// until all processors have let go of the old one (RCU), and with it waits each thread that opens a file:
/// 15 ms, measured, in a run of 300 ms. The room is 36 KB of kernel memory, which a process that this one
/// starts does not inherit.
pub fn reserve_descriptors() {
    let last = nofile_limit().min(DESCRIPTORS).saturating_sub(1);
    // Without standard output, or room, the table grows as it always does.
    let _ = i32::try_from(last).map(|last| rustix::io::fcntl_dupfd_cloexec(io::stdout(), last));
}

/// Limit of open files where the system does not tell it: its default.
const COMMON_NOFILE_LIMIT: u64 = 1024;

/// Descriptors that runs hold open at most, rounded up: directories that are listed ahead at both ends of a
/// local run, that wait for the comparison, and that have files in flight.
const DESCRIPTORS: u64 = 4096;

/// Returns the permission bits that this process's file creation mask removes, 0 to 0o777.
///
/// Reads them from `/proc`, because the system call can only read the mask by changing it, which
/// other threads would see. Assumes the customary 0o022 if `/proc` is missing.
///
/// ```
/// // `u=rwX` means what it means to chmod: the mask is left alone only where it is not named.
/// let mask = dsync_fs::sys::file_creation_mask();
/// assert!(mask <= 0o777);
/// ```
pub fn file_creation_mask() -> u16 {
    read_mask().unwrap_or(0o022)
}

/// Returns whether the mask keeps the owner out of what this process makes. Reads it once: it is a person's choice for
/// the whole process.
pub(crate) fn mask_locks_owner_out() -> bool {
    static LOCKS_OUT: LazyLock<bool> = LazyLock::new(|| file_creation_mask() & 0o700 != 0);
    *LOCKS_OUT
}

fn read_mask() -> Option<u16> {
    use rustix::fs::OFlags;
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let fd = rustix::fs::open(c"/proc/thread-self/status", flags, Mode::empty()).ok()?;
    let mut text = [0u8; 4096];
    let len = rustix::io::read(&fd, &mut text[..]).ok()?;
    let line = text[..len].split(|&byte| byte == b'\n').find_map(|line| line.strip_prefix(b"Umask:"))?;
    let digits = std::str::from_utf8(line).ok()?.trim();
    u16::from_str_radix(digits, 8).ok().map(|mask| mask & 0o777)
}

/// Returns whether a library stands before the C library's functions, as fakeroot's and
/// fakechroot's do. A question that bypasses it gets another answer than other programs there get,
/// and a node made past it is not the requested one.
pub(crate) fn is_interposed() -> bool {
    static INTERPOSED: LazyLock<bool> =
        LazyLock::new(|| std::env::var_os("LD_PRELOAD").is_some_and(|libraries| !libraries.is_empty()));
    *INTERPOSED
}

/// Returns the path in `/proc` that leads to the object of a descriptor, and nowhere else.
pub(crate) fn proc_link(fd: BorrowedFd<'_>) -> String {
    format!("/proc/self/fd/{}", fd.as_raw_fd())
}

/// Changes the owner and group of a descriptor's object; a link's own.
pub(crate) fn chown_by_handle(fd: BorrowedFd<'_>, uid: Option<Uid>, gid: Option<Gid>) -> io::Result<()> {
    if is_interposed() {
        // fakeroot drops the flag for an empty path.
        return Ok(rustix::fs::chownat(CWD, proc_link(fd), uid, gid, AtFlags::empty())?);
    }
    Ok(rustix::fs::chownat(fd, c"", uid, gid, AtFlags::EMPTY_PATH)?)
}

/// Changes the mode of the object of an open descriptor of a file or directory.
pub(crate) fn chmod_open(fd: BorrowedFd<'_>, mode: u16) -> io::Result<()> {
    if is_interposed() {
        return chmod_by_libc(fd, mode);
    }
    Ok(rustix::fs::fchmod(fd, Mode::from_raw_mode(u32::from(mode)))?)
}

/// Changes the mode of a descriptor's object by the C library's function, because rustix asks the
/// kernel directly.
fn chmod_by_libc(fd: BorrowedFd<'_>, mode: u16) -> io::Result<()> {
    let link = CString::new(proc_link(fd))?;
    // SAFETY: `chmod` reads a NUL-terminated string that lives for the call, and an integer; it
    // writes no memory of ours.
    match unsafe { nix::libc::chmod(link.as_ptr(), mode.into()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Changes the mode of an `O_PATH` descriptor's object.
///
/// `fchmodat2` (Linux 6.6) takes the descriptor itself. Older kernels reach it through the
/// descriptor's own link in `/proc`, which leads to the opened inode and nowhere else.
pub(crate) fn chmod_by_handle(fd: BorrowedFd<'_>, mode: u16) -> io::Result<()> {
    let by_link =
        || rustix::fs::chmodat(CWD, proc_link(fd), Mode::from_raw_mode(u32::from(mode)), AtFlags::empty());
    if is_interposed() {
        return chmod_by_libc(fd, mode);
    }

    let empty = c"";
    // SAFETY: `fchmodat2` reads the descriptor, a NUL-terminated string that lives for the call,
    // and two integers; it writes no memory of ours.
    let result = unsafe {
        nix::libc::syscall(
            nix::libc::SYS_fchmodat2,
            fd.as_raw_fd(),
            empty.as_ptr(),
            nix::libc::c_uint::from(mode),
            AtFlags::EMPTY_PATH.bits(),
        )
    };
    if result == 0 {
        return Ok(());
    }

    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        // Missing, filtered by a sandbox, or refused by a filesystem that still accepts the old
        // call.
        Some(nix::libc::ENOSYS | nix::libc::EPERM | nix::libc::EOPNOTSUPP | nix::libc::EINVAL) => {
            match by_link() {
                Err(Errno::NOENT) => Err(error),
                result => Ok(result?),
            }
        }
        _ => Err(error),
    }
}

/// Reads an extended attribute of an entry of an open directory; a link's own. Returns `None` if
/// the kernel is older than Linux 6.13, a sandbox does not know the call, or a library stands
/// before the C library's.
pub(crate) fn get_xattr_at(
    dir: BorrowedFd<'_>,
    entry: &CStr,
    name: &CStr,
    buffer: &mut [u8],
) -> Option<rustix::io::Result<usize>> {
    let size = u32::try_from(buffer.len()).unwrap_or(u32::MAX);
    let args = xattr_args { value: buffer.as_mut_ptr().expose_provenance() as u64, size, flags: 0 };

    ask_at(|| {
        // SAFETY: `getxattrat` reads the descriptor, two NUL-terminated strings and `args`, which
        // all live for the call, and writes at most `size` bytes to `value`: the buffer, which is
        // borrowed for as long.
        unsafe {
            syscall(
                c_long::from(__NR_getxattrat),
                dir.as_raw_fd(),
                entry.as_ptr(),
                AtFlags::SYMLINK_NOFOLLOW.bits(),
                name.as_ptr(),
                &raw const args,
                size_of_val(&args),
            )
        }
    })
}

/// Lists the names of the extended attributes of an entry of an open directory; a link's own.
/// Returns `None` as [`get_xattr_at`] does.
pub(crate) fn list_xattrs_at(
    dir: BorrowedFd<'_>,
    entry: &CStr,
    buffer: &mut [u8],
) -> Option<rustix::io::Result<usize>> {
    ask_at(|| {
        // SAFETY: `listxattrat` reads the descriptor and a NUL-terminated string that lives for the
        // call, and writes at most as many bytes as it is told to the buffer, which is borrowed for
        // as long.
        unsafe {
            syscall(
                c_long::from(__NR_listxattrat),
                dir.as_raw_fd(),
                entry.as_ptr(),
                AtFlags::SYMLINK_NOFOLLOW.bits(),
                buffer.as_mut_ptr(),
                buffer.len(),
            )
        }
    })
}

/// Makes a call of the `xattrat` family; returns `None` if there is no such call.
fn ask_at(call: impl FnOnce() -> c_long) -> Option<rustix::io::Result<usize>> {
    if is_interposed() || !XATTRAT_WORKS.load(Ordering::Relaxed) {
        return None;
    }
    if let Ok(len) = usize::try_from(call()) {
        return Some(Ok(len));
    }
    match Errno::from_io_error(&io::Error::last_os_error())? {
        Errno::NOSYS => {
            XATTRAT_WORKS.store(false, Ordering::Relaxed);
            None
        }
        // Some sandboxes answer this to calls that they do not know; the other way shows whether it
        // is a real refusal.
        Errno::PERM => None,
        error => Some(Err(error)),
    }
}

/// Whether the kernel has such calls: cleared when it reports that it does not.
static XATTRAT_WORKS: AtomicBool = AtomicBool::new(true);

/// Returns whether nobody, this process included, has the file of a descriptor open for writing. The
/// descriptor is open for reading only.
///
/// A read lease is granted only then, and given back at once. Whoever opens the file in between waits
/// for that and no longer.
pub(crate) fn has_no_writer(fd: impl AsFd) -> bool {
    let fd = fd.as_fd().as_raw_fd();
    takes_read_lease(fd) && fcntl(fd, nix::libc::F_SETLEASE, nix::libc::F_UNLCK) == 0
}

/// Takes a read lease on the file of a descriptor, which is open for reading only. Returns `false` where
/// somebody has the file open for writing, and to whoever is neither its owner nor root. Whoever opens the
/// file for writing later waits until the descriptor is closed, or for as long as the system lets him wait.
pub(crate) fn take_read_lease(fd: impl AsFd) -> bool {
    takes_read_lease(fd.as_fd().as_raw_fd())
}

/// Returns whether a descriptor has its read lease still, and nobody waits for its end.
pub(crate) fn has_read_lease(fd: impl AsFd) -> bool {
    fcntl(fd.as_fd().as_raw_fd(), nix::libc::F_GETLEASE, 0) == nix::libc::F_RDLCK
}

fn takes_read_lease(fd: RawFd) -> bool {
    // The signal of who opens it meanwhile would end a process that expects none; this one is ignored.
    fcntl(fd, F_SETSIG, nix::libc::SIGURG) == 0 && fcntl(fd, nix::libc::F_SETLEASE, nix::libc::F_RDLCK) == 0
}

/// Makes one of the calls about leases.
fn fcntl(fd: RawFd, command: nix::libc::c_int, value: nix::libc::c_int) -> nix::libc::c_int {
    // SAFETY: these commands of `fcntl` take an integer and touch no memory of ours.
    unsafe { nix::libc::fcntl(fd, command, value) }
}

/// Returns the UUID of the filesystem of a descriptor; `None` where the kernel (before Linux 6.9) or the
/// filesystem does not tell it.
pub(crate) fn filesystem_uuid(fd: impl AsFd) -> Option<[u8; UUID_BYTES]> {
    let mut answer = [0_u8; 1 + UUID_BYTES];
    // SAFETY: the kernel writes a length of one byte and 16 bytes after it, which is all of the buffer.
    let result = unsafe {
        nix::libc::ioctl(fd.as_fd().as_raw_fd(), FS_IOC_GETFSUUID, answer.as_mut_ptr().cast::<c_void>())
    };
    let (len, uuid) = answer.split_first_chunk::<1>()?;
    if result != 0 || usize::from(len[0]) != UUID_BYTES {
        return None;
    }
    uuid.first_chunk().copied()
}

/// Bytes of a UUID.
const UUID_BYTES: usize = 16;
/// The request of ioctl(2) for it, which the C library's crate lacks: `_IOR(0x15, 0, struct fsuuid2)`.
const FS_IOC_GETFSUUID: nix::libc::Ioctl = 0x8011_1500_u32 as nix::libc::Ioctl;

/// The command of fcntl(2) that chooses a lease's signal, which the C library's crate lacks.
const F_SETSIG: nix::libc::c_int = 10;

/// Locks a file that is open for writing, until its last descriptor is closed. Where a sandbox does not know
/// `flock`, locks it by a record lock of its open description, which keeps out other processes of the sandbox.
///
/// # Errors
/// The system's error; [`WouldBlock`](io::ErrorKind::WouldBlock) if another description has the lock.
pub(crate) fn lock_file(fd: impl AsFd, operation: FlockOperation) -> io::Result<()> {
    match retry(|| flock(&fd, operation)) {
        Err(error) if is_unknown_call(&error) => lock_by_record(fd),
        locked => locked,
    }
}

/// Returns whether an error is a sandbox's answer to a call that it does not know. It may be a refusal of what was
/// asked too, so only for calls that no kernel refuses so.
pub(crate) fn is_unknown_call(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::NOSYS | Errno::PERM))
}

fn lock_by_record(fd: impl AsFd) -> io::Result<()> {
    let lock = nix::libc::flock { l_type: WRITE_LOCK, l_whence: FROM_START, l_start: 0, l_len: 0, l_pid: 0 };
    // SAFETY: this command of `fcntl` reads one `flock`, which lives for the call.
    let result = unsafe { nix::libc::fcntl(fd.as_fd().as_raw_fd(), nix::libc::F_OFD_SETLK, &raw const lock) };
    match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The kind and the origin of a record lock, in the type of their fields.
const WRITE_LOCK: nix::libc::c_short = 1;
const FROM_START: nix::libc::c_short = 0;

/// Returns whether this process may sync a filesystem by itself. Every kernel that dsync runs on can; where a
/// filter of system calls is in place, the kernel is asked once.
pub(crate) fn has_syncfs() -> bool {
    static HAS_SYNCFS: LazyLock<bool> = LazyLock::new(|| {
        // SAFETY: this question of `prctl` takes no further argument.
        let is_filtered = unsafe { nix::libc::prctl(nix::libc::PR_GET_SECCOMP) != 0 };
        // SAFETY: the call takes an integer and touches no memory of ours; no descriptor has this number.
        let asked = || unsafe { nix::libc::syncfs(-1) };
        !is_filtered || asked() == 0 || !is_unknown_call(&io::Error::last_os_error())
    });
    *HAS_SYNCFS
}

/// Maps `len` bytes of a spool file from `offset` on, for reading.
///
/// The caller passes only descriptors of files that it created without a name, or whose name it
/// removed before the first write, and that it will not write again.
pub(crate) fn map_own_file(fd: impl AsFd, offset: u64, len: u64) -> io::Result<Mmap> {
    let fd = fd.as_fd().as_raw_fd();
    let len = usize::try_from(len).map_err(|_| io::ErrorKind::OutOfMemory)?;
    // SAFETY: the file has no name and its only descriptor is ours, so no other process can
    // truncate or change it while it is mapped; this crate writes nothing to it after this call.
    unsafe { MmapOptions::new().offset(offset).len(len).map(fd) }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::disallowed_methods)]
mod tests {
    use super::*;

    #[test]
    fn a_mapping_is_a_writer_although_nobody_has_the_file_open() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("file");
        std::fs::write(&path, [0; 4096]).unwrap();
        let writer = std::fs::File::options().read(true).write(true).open(&path).unwrap();
        // SAFETY: nobody else knows the file, and nothing reads the mapping.
        let mapping = unsafe { MmapOptions::new().map_mut(&writer) }.unwrap();
        drop(writer);

        let reader = std::fs::File::open(&path).unwrap();
        assert!(!has_no_writer(&reader));
        drop(mapping);
        assert!(has_no_writer(&reader));
        assert!(has_no_writer(&reader), "asking leaves nothing behind");
    }

    #[test]
    fn the_limit_of_open_files_is_raised_to_the_hard_one() {
        let limit = raise_nofile_limit();
        assert_eq!(limit, getrlimit(Resource::RLIMIT_NOFILE).unwrap().1);
        assert_eq!(raise_nofile_limit(), limit);
    }

    #[test]
    fn the_table_of_descriptors_has_room_before_they_are_opened() {
        let limit = raise_nofile_limit();
        reserve_descriptors();
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let size = status.lines().find_map(|line| line.strip_prefix("FDSize:")).unwrap();
        assert!(size.trim().parse::<u64>().unwrap() >= limit.min(DESCRIPTORS), "{size}");
    }

    #[test]
    fn the_creation_mask_is_read_without_changing_it() {
        let mask = file_creation_mask();
        assert!(mask <= 0o777);
        assert_eq!(file_creation_mask(), mask);
    }
}
