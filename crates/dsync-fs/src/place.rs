//! The location of an open directory, for refusing to copy a tree into itself.
//!
//! A path is not enough, because the same directories may be mounted at several places. So a
//! directory also has a [`Location`], its place in the filesystem that holds it. Both are for
//! comparing and for messages only: by the time they are used they may lead elsewhere.

use std::{
    ffi::OsString,
    io,
    os::{
        fd::{AsFd, AsRawFd, BorrowedFd},
        unix::ffi::{OsStrExt, OsStringExt},
    },
    path::PathBuf,
};

use rustix::{
    fs::{AtFlags, Mode, OFlags, StatxFlags, readlink, statx},
    io::Errno,
};

use crate::dir::{Dir, retry};

/// A directory's place in its filesystem, independent of mounts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Location {
    /// The filesystem's device as the kernel writes it, e.g. `8:1`.
    pub filesystem: Vec<u8>,
    /// Path from the filesystem's own root.
    pub path: PathBuf,
}

impl Dir {
    /// Returns the absolute path of the directory without links, as the kernel knows it now. For
    /// comparing and for messages only: by the time it is used it may lead elsewhere.
    ///
    /// # Errors
    /// The system's error, e.g. if `/proc` is not mounted.
    pub fn real_path(&self) -> io::Result<PathBuf> {
        let link = format!("/proc/self/fd/{}", self.as_fd().as_raw_fd());
        Ok(OsString::from_vec(readlink(link, Vec::new())?.into_bytes()).into())
    }

    /// Returns the place of the directory in the filesystem that holds it.
    ///
    /// # Errors
    /// The system's error, e.g. if `/proc` is not mounted; [`NotFound`](io::ErrorKind::NotFound) if
    /// the kernel does not report the directory's mount.
    pub fn location(&self) -> io::Result<Location> {
        let real = self.real_path()?;
        location(&read_mounts()?, self.mount()?, real.as_os_str().as_bytes())
            .ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// Returns the number of the mount through which the directory was opened. Asks the kernel once.
    ///
    /// # Errors
    /// The system's error.
    pub fn mount(&self) -> io::Result<u64> {
        if let Some(&mount) = self.mount.get() {
            return Ok(mount);
        }
        let mount = match statx(self.as_fd(), c"", AtFlags::EMPTY_PATH, StatxFlags::MNT_ID) {
            Ok(found) if StatxFlags::from_bits_retain(found.stx_mask).contains(StatxFlags::MNT_ID) => {
                found.stx_mnt_id
            }
            // Before Linux 5.8, and where a sandbox does not know the call.
            Ok(_) | Err(Errno::NOSYS) => mount_by_proc(self.as_fd())?,
            Err(error) => return Err(error.into()),
        };
        Ok(*self.mount.get_or_init(|| mount))
    }

    /// Returns whether both handles are of the same directory.
    ///
    /// # Errors
    /// The system's error.
    pub fn is_same(&self, other: &Self) -> io::Result<bool> {
        let (here, there) = (self.metadata()?, other.metadata()?);
        Ok((here.dev, here.ino) == (there.dev, there.ino))
    }
}

/// Reads the number of a descriptor's mount from what the kernel tells of the descriptor. See
/// proc_pid_fdinfo(5).
fn mount_by_proc(fd: BorrowedFd<'_>) -> io::Result<u64> {
    let text = read_of_kernel(&format!("/proc/self/fdinfo/{}", fd.as_raw_fd()))?;
    let number = |line: &[u8]| std::str::from_utf8(line.strip_prefix(b"mnt_id:")?).ok()?.trim().parse().ok();
    text.split(|&byte| byte == b'\n').find_map(number).ok_or_else(|| io::ErrorKind::NotFound.into())
}

/// Reads the kernel's table of mounts.
fn read_mounts() -> io::Result<Vec<u8>> {
    read_of_kernel("/proc/self/mountinfo")
}

/// Reads a file of the kernel's about this process.
fn read_of_kernel(path: &str) -> io::Result<Vec<u8>> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let fd = retry(|| rustix::fs::open(path, flags, Mode::empty()))?;
    let mut table = Vec::new();
    let mut part = [0; 16 << 10];
    loop {
        match retry(|| rustix::io::read(&fd, &mut part[..]))? {
            0 => return Ok(table),
            _ if table.len() > MAX_MOUNT_TABLE => return Err(io::ErrorKind::FileTooLarge.into()),
            len => table.extend_from_slice(&part[..len]),
        }
    }
}

/// Finds the place of `real`, which is below the mount of number `id`. See proc_pid_mountinfo(5).
fn location(mounts: &[u8], id: u64, real: &[u8]) -> Option<Location> {
    let id = id.to_string().into_bytes();
    let mut line = mounts
        .split(|&byte| byte == b'\n')
        .map(|line| line.split(|&byte| byte == b' '))
        .find_map(|mut fields| (fields.next()? == id).then_some(fields))?;
    let (_parent, filesystem) = (line.next()?, line.next()?.to_vec());
    let (root, point) = (unescape(line.next()?), unescape(line.next()?));
    let point = PathBuf::from(OsString::from_vec(point));
    let below = PathBuf::from(OsString::from_vec(real.to_vec())).strip_prefix(point).ok()?.to_path_buf();
    Some(Location { filesystem, path: PathBuf::from(OsString::from_vec(root)).join(below) })
}

/// Decodes blanks, tabs, line ends and backslashes, which are written as `\` and three octal
/// digits.
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&first, tail)) = rest.split_first() {
        let code =
            tail.get(..3).filter(|_| first == b'\\').and_then(|digits| std::str::from_utf8(digits).ok());
        match code.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => {
                plain.push(byte);
                rest = tail.get(3..).unwrap_or_default();
            }
            None => {
                plain.push(first);
                rest = tail;
            }
        }
    }
    plain
}

/// Longest table of mounts in bytes: a hundred thousand mounts.
const MAX_MOUNT_TABLE: usize = 16 << 20;

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::disallowed_methods)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_reached_through_a_link_is_where_the_link_leads() {
        let scratch = tempfile::tempdir().unwrap();
        let real = scratch.path().join("real");
        std::fs::create_dir(&real).unwrap();
        std::os::unix::fs::symlink(&real, scratch.path().join("link")).unwrap();
        let dir = Dir::open_operand(&scratch.path().join("link")).unwrap();
        assert_eq!(dir.real_path().unwrap(), real.canonicalize().unwrap());
    }

    #[test]
    fn a_directory_has_one_location_under_all_its_mounts() {
        let mounts = b"21 1 8:1 / / rw - ext4 /dev/sda1 rw\n\
            40 21 8:1 /srv/my\\040data /mnt/x\\011y rw,noatime master:1 - ext4 /dev/sda1 rw\n";
        let direct = location(mounts, 21, b"/srv/my data/sub").unwrap();
        let bound = location(mounts, 40, b"/mnt/x\ty/sub").unwrap();
        assert_eq!(direct, bound);
        assert_eq!(direct.path, PathBuf::from("/srv/my data/sub"));
        assert_eq!(location(mounts, 40, b"/mnt/x\ty").unwrap().path, PathBuf::from("/srv/my data/"));
        assert_eq!(location(mounts, 41, b"/mnt"), None);
        assert_eq!(location(mounts, 40, b"/elsewhere"), None);
        assert_eq!(location(b"40", 40, b"/"), None);
    }

    #[test]
    fn the_location_of_a_real_directory_is_known() {
        let scratch = tempfile::tempdir().unwrap();
        let here = Dir::open_operand(scratch.path()).unwrap();
        let again = Dir::open_operand(&scratch.path().join(".")).unwrap();
        assert_eq!(here.location().unwrap(), again.location().unwrap());
        assert!(here.is_same(&again).unwrap());
        assert!(!here.is_same(&Dir::open_operand(std::path::Path::new("/")).unwrap()).unwrap());
    }
}
