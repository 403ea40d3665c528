//! The ways by which paths and links lead to what a run reads.
//!
//! The law: each name is watched before it is looked up, whatever it turns out to be. So a link that
//! leads elsewhere, a directory on the way that is replaced, and what a dangling link waits for are
//! seen. A way ends where the kernel's ends: after 40 links.

use std::{
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::Path,
};

use rustix::{
    fs::{AtFlags, CWD, FileType, Mode, OFlags, openat, readlinkat, statat},
    io::{self, Errno},
};

use super::{EVENTS, MOVES, TreeWatch};
use crate::dir::Target;

/// The steps of a way that matter.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Steps {
    /// A link at the end is followed.
    pub(crate) follow_last: bool,
    /// The attributes of each directory on the way are copied, not only those at its end.
    pub(crate) all: bool,
}

impl TreeWatch {
    /// Watches each name of a path that begins at a directory, as far as there is something.
    pub(crate) fn way(&self, from: BorrowedFd<'_>, path: &[u8], steps: Steps) {
        // The walk tells why its own way ends.
        let _ = self.go(from, path, steps);
    }

    fn go(&self, from: BorrowedFd<'_>, path: &[u8], steps: Steps) -> io::Result<()> {
        let mut rest = names(path);
        let mut dir = begin(from, path)?;
        let mut links = 0;
        while let Some(step) = rest.pop() {
            if *step == *b".." {
                dir = open(dir.as_fd(), b"..")?;
                continue;
            }
            self.add(dir.as_fd(), if steps.all { EVENTS } else { MOVES }, Some(&step));
            let found = statat(&dir, &*step, AtFlags::SYMLINK_NOFOLLOW)?;
            let is_last = rest.is_empty();

            match FileType::from_raw_mode(found.st_mode) {
                FileType::Symlink if !is_last || steps.follow_last => {
                    links += 1;
                    if links > MAX_LINKS {
                        return Err(Errno::LOOP);
                    }
                    let text = readlinkat(&dir, &*step, Vec::new())?;
                    dir = begin(dir.as_fd(), text.as_bytes())?;
                    rest.extend(names(text.as_bytes()));
                }
                FileType::Directory => dir = open(dir.as_fd(), &step)?,
                // Of a file the content counts, which the run reads after this.
                _ if is_last => {
                    self.add(dir.as_fd(), EVENTS, Some(&step));
                }
                _ => return Err(Errno::NOTDIR),
            }
        }
        Ok(())
    }
}

/// Returns what a path leads to now.
pub(super) fn end(path: &Path, follows: bool) -> Option<Target> {
    let how = if follows { AtFlags::empty() } else { AtFlags::SYMLINK_NOFOLLOW };
    statat(CWD, path, how).ok().map(|found| Target { dev: found.st_dev, ino: found.st_ino })
}

/// Opens the directory in which a path begins.
fn begin(from: BorrowedFd<'_>, path: &[u8]) -> io::Result<OwnedFd> {
    open(from, if path.starts_with(b"/") { b"/" } else { b"." })
}

fn open(dir: BorrowedFd<'_>, name: &[u8]) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat(dir, name, flags, Mode::empty())
}

/// Returns the names of a path, the first one last.
fn names(path: &[u8]) -> Vec<Box<[u8]>> {
    let steps = path.split(|&byte| byte == b'/').filter(|step| !matches!(*step, b"" | b"."));
    steps.rev().map(Into::into).collect()
}

/// Most links on one path, as in the kernel.
const MAX_LINKS: usize = 40;
