//! Unfinished files that outlive their run: what was written so far, and notes about it, beside the target or in
//! another directory.
//!
//! Both names are made of a sum of the target's name or path, so that a later run finds them. The law: what a later run
//! opens here is a regular file of this user alone (owner, mode, a single name) that no other run has open.
//! Whether its content is what the notes say is the caller's to check: nothing here is trusted.

use std::{
    io,
    os::fd::{AsFd, OwnedFd},
    sync::Arc,
};

use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags, fdatasync, flock, ftruncate, openat, unlinkat};

use crate::{
    apart::is_apart_name,
    component::Component,
    dir::{Dir, is_lock_name, retry},
    metadata::{Kind, Stamp},
    source_file::{read_full_at, stat_fd},
    staged::{StagedFile, TempName, hex_name, is_hex_name, is_temp_name, write_all_at},
};

/// The names of an unfinished file and of its notes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptNames {
    /// What was written so far.
    pub content: Component,
    /// What is known about it.
    pub notes: Component,
    /// The file, if it was complete but for its name.
    pub finished: Component,
}

impl KeptNames {
    /// The names that belong to a sum of the target's name or path, both of fixed length.
    ///
    /// # Errors
    /// None in practice: the names are well-formed.
    pub fn new(sum: [u8; 16]) -> io::Result<Self> {
        let name = |prefix| hex_name(prefix, &sum);
        Ok(Self {
            content: name(CONTENT_PREFIX)?,
            notes: name(NOTES_PREFIX)?,
            finished: name(FINISHED_PREFIX)?,
        })
    }

    /// Removes both files; that one or both are missing is no error.
    pub fn remove(&self, dir: &Dir) {
        let _ = dir.remove_file(&self.content);
        let _ = dir.remove_file(&self.notes);
    }
}

/// True for the names that [`KeptNames`] makes. Such entries are never copied.
pub fn is_kept_name(name: &[u8]) -> bool {
    is_hex_name(CONTENT_PREFIX, name) || is_hex_name(NOTES_PREFIX, name) || is_finished_name(name)
}

/// True for those of them that are of complete files.
pub fn is_finished_name(name: &[u8]) -> bool {
    is_hex_name(FINISHED_PREFIX, name)
}

/// True for every name that this crate gives to files of its own. No walk lists them, unless an operand names one.
pub fn is_own_name(name: &[u8]) -> bool {
    is_temp_name(name) || is_kept_name(name) || is_apart_name(name) || is_lock_name(name)
}

/// Removes what [`KeptNames`] names, unless a run has it open. True when it did.
pub fn reap(dir: &Dir, name: &Component) -> bool {
    let held = open_own(dir, name);
    let in_use = held.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock);
    is_kept_name(name.as_bytes()) && !in_use && dir.remove_file(name).is_ok()
}

/// Notes about an unfinished file. Dropped without [`keep`](Notes::keep) they vanish.
#[derive(Debug)]
pub struct Notes {
    temp: TempName,
    fd: OwnedFd,
}

impl Notes {
    /// Reads the notes from their start, `limit` bytes at most.
    ///
    /// # Errors
    /// What the system says.
    pub fn read(&self, limit: usize) -> io::Result<Vec<u8>> {
        let len = usize::try_from(stat_fd(self.fd.as_fd())?.size).unwrap_or(limit).min(limit);
        let mut bytes = vec![0; len];
        let read = read_full_at(self.fd.as_fd(), 0, &mut bytes)?;
        bytes.truncate(read);
        Ok(bytes)
    }

    /// Writes at an offset.
    ///
    /// # Errors
    /// What the system says.
    pub fn write_all_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        write_all_at(self.fd.as_fd(), offset, bytes)
    }

    /// Cuts off what lies after `len` bytes.
    ///
    /// # Errors
    /// What the system says.
    pub fn set_len(&self, len: u64) -> io::Result<()> {
        Ok(ftruncate(&self.fd, len)?)
    }

    /// Leaves the notes where they are.
    pub fn keep(mut self) {
        self.temp.disarm();
    }
}

impl StagedFile {
    /// Creates an empty temporary file and its notes in `home`, to become `target` in `dir`, under names that a later
    /// run finds. What this user has under these names is removed.
    ///
    /// # Errors
    /// `WouldBlock` when another run is writing them, `PermissionDenied` when they are another user's; what the
    /// system says.
    pub fn create_kept(
        home: &Arc<Dir>,
        dir: &Arc<Dir>,
        target: Component,
        names: &KeptNames,
    ) -> io::Result<(Self, Notes)> {
        let fd = create_own(home, &names.content)?;
        let staged = Self::assemble(TempName::new(home, names.content.clone()), fd, dir, target);
        let fd = create_own(home, &names.notes)?;
        Ok((staged, Notes { temp: TempName::new(home, names.notes.clone()), fd }))
    }

    /// Opens what an earlier run left in `home`, with its notes.
    ///
    /// # Errors
    /// `WouldBlock` when another run is writing it, `PermissionDenied` when it is not this user's alone; what
    /// the system says.
    pub fn open_kept(
        home: &Arc<Dir>,
        dir: &Arc<Dir>,
        target: Component,
        names: &KeptNames,
    ) -> io::Result<(Self, Notes)> {
        let content = open_own(home, &names.content)?;
        let notes = open_own(home, &names.notes)?;
        let notes = Notes { temp: TempName::new(home, names.notes.clone()), fd: notes };
        Ok((Self::assemble(TempName::new(home, names.content.clone()), content, dir, target), notes))
    }

    /// Writes the file's data to the disk and leaves it under its temporary name.
    ///
    /// # Errors
    /// What the system says; the file is removed.
    pub fn keep(mut self) -> io::Result<Stamp> {
        retry(|| fdatasync(self.as_fd()))?;
        let stamp = self.stamp()?;
        if let Some(temp) = &mut self.temp {
            temp.disarm();
        }
        Ok(stamp)
    }
}

/// Creates a file that did not exist, and locks it.
fn create_own(dir: &Dir, name: &Component) -> io::Result<OwnedFd> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let create = || retry(|| openat(dir, name.as_c_str(), flags, Mode::from_raw_mode(0o600)));
    let fd = match create() {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            // One that cannot be opened is nobody's that counts; one that is locked is being written.
            if open_own(dir, name).is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock) {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            if dir.stat(name)?.uid != rustix::process::geteuid().as_raw() {
                return Err(io::ErrorKind::PermissionDenied.into());
            }
            unlinkat(dir, name.as_c_str(), AtFlags::empty())?;
            create()?
        }
        result => result?,
    };
    lock(&fd)?;
    Ok(fd)
}

/// Opens a file that is this user's alone, and locks it.
pub(crate) fn open_own(dir: &Dir, name: &Component) -> io::Result<OwnedFd> {
    let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let fd = retry(|| openat(dir, name.as_c_str(), flags, Mode::empty()))?;
    let found = stat_fd(fd.as_fd())?;
    let own = found.kind == Kind::File
        && found.uid == rustix::process::geteuid().as_raw()
        && found.nlink == 1
        && found.mode & 0o177 == 0;
    if !own {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    lock(&fd)?;
    Ok(fd)
}

fn lock(fd: &OwnedFd) -> io::Result<()> {
    retry(|| flock(fd, FlockOperation::NonBlockingLockExclusive))
}

const CONTENT_PREFIX: &[u8] = b".dsync-part-";
const NOTES_PREFIX: &[u8] = b".dsync-note-";
const FINISHED_PREFIX: &[u8] = b".dsync-done-";
