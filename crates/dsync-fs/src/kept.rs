//! Unfinished files that outlive their run: the content written so far and notes about it, beside
//! the target or in another directory.
//!
//! Both names are derived from a sum of the target's name or path, so that a later run finds them.
//! The law: a later run opens only a regular file of this user alone (owner, mode, a single name)
//! that no other run has open. A complete file has its attributes already, so it may also belong to the
//! owner to whom the run gives it ([`find_finished`]). The caller must check that the content matches the notes: nothing
//! here is trusted.

use std::{
    io,
    os::fd::{AsFd, OwnedFd},
    sync::Arc,
};

use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags, fdatasync, fsync, ftruncate, openat};

use crate::{
    component::Component,
    dir::{Dir, retry},
    metadata::{Kind, Metadata, Stamp},
    own_names::{CONTENT_PREFIX, FINISHED_PREFIX, NOTES_PREFIX, hex_name, is_kept_name, is_temp_name},
    owner::is_abandoned,
    source_file::{read_full_at, stat_fd},
    staged::{StagedFile, TempName, write_all_at},
    sys::lock_file,
};

/// The names of an unfinished file and of its notes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptNames {
    /// Name of the content written so far.
    pub content: Component,
    /// Name of the notes.
    pub notes: Component,
    /// Name of the file if it was complete except for its final name.
    pub finished: Component,
}

impl KeptNames {
    /// Makes the names for a sum of the target's name or path; all have a fixed length.
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

    /// Removes both files; it is no error if one or both are missing.
    pub fn remove(&self, dir: &Dir) {
        let _ = dir.remove_file(&self.content);
        let _ = dir.remove_file(&self.notes);
    }
}

/// Removes a file that has one of the [`KeptNames`], unless a run has it open. Returns whether it
/// did.
pub fn reap_kept(dir: &Dir, name: &Component) -> bool {
    let held = open_own(dir, name);
    let in_use = held.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock);
    is_kept_name(name.as_bytes()) && !in_use && dir.remove_file(name).is_ok()
}

/// Returns the state of a complete file that an earlier run left; `None` unless it is a regular file with a single
/// name that belongs to this user, or to `owner`, to whom the run gives it. Whoever may make files in the directory
/// can plant one.
pub fn find_finished(dir: &Dir, name: &Component, owner: Option<u32>) -> Option<Metadata> {
    let (_, found) = dir.open_path(name).ok()?;
    // Under `--fake-super` all files are this user's, whatever is noted of them.
    let is_given = !dir.is_fake_super() && owner == Some(found.uid);
    let is_own = found.uid == rustix::process::geteuid().as_raw();
    let is_left = found.kind == Kind::File && found.nlink == 1 && (is_own || is_given);
    is_left.then(|| dir.stat(name).ok()).flatten()
}

/// Returns whether an entry is what a run has left that has ended: a temporary that is no directory, or a
/// file that has one of the [`KeptNames`] and is this user's alone.
pub fn is_left(dir: &Dir, name: &Component) -> bool {
    if is_temp_name(name.as_bytes()) {
        return is_abandoned(dir, name) && dir.stat(name).is_ok_and(|found| found.kind != Kind::Dir);
    }
    is_kept_name(name.as_bytes()) && open_own(dir, name).is_ok()
}

/// Removes what [is left](is_left) in a directory.
pub fn reap_left(dir: &Dir) {
    for (name, _) in dir.list().entries {
        if is_left(dir, &name) {
            let _ = dir.remove_file(&name);
        }
    }
}

/// Notes about an unfinished file. Dropping them without [`keep`](Notes::keep) removes them.
#[derive(Debug)]
pub struct Notes {
    temp: TempName,
    fd: OwnedFd,
}

impl Notes {
    /// Creates empty notes in `home`, under a name that a later run finds. Removes this user's earlier
    /// ones of that name.
    ///
    /// # Errors
    /// `WouldBlock` if another run has them open, `PermissionDenied` if they are another user's;
    /// otherwise the system's error.
    pub fn create(home: &Arc<Dir>, name: &Component) -> io::Result<Self> {
        let charge = home.charge_notes(None)?;
        let fd = create_own(home, name)?;
        Ok(Self { temp: TempName::new(home, name.clone(), charge), fd })
    }

    /// Reads at most `limit` bytes of the notes that an earlier run left in `home`, and leaves them there.
    ///
    /// # Errors
    /// `WouldBlock` if another run has them open, `PermissionDenied` if they are not this user's
    /// alone; otherwise the system's error.
    pub fn read_left(home: &Dir, name: &Component, limit: usize) -> io::Result<Vec<u8>> {
        read_notes(&open_own(home, name)?, limit)
    }

    /// Opens the notes that an earlier run left in `home`, to add to them.
    ///
    /// # Errors
    /// As [`read_left`](Self::read_left).
    pub fn open(home: &Arc<Dir>, name: &Component) -> io::Result<Self> {
        let fd = open_own(home, name)?;
        let charge = home.charge_notes(Some(&fd))?;
        Ok(Self { temp: TempName::new(home, name.clone(), charge), fd })
    }

    /// Writes the notes and their name to the disk.
    ///
    /// # Errors
    /// The system's error.
    pub fn sync(&self, home: &Dir) -> io::Result<()> {
        retry(|| fsync(&self.fd))?;
        home.sync()
    }

    /// Reads at most `limit` bytes of the notes, from their start.
    ///
    /// # Errors
    /// The system's error.
    pub fn read(&self, limit: usize) -> io::Result<Vec<u8>> {
        read_notes(&self.fd, limit)
    }

    /// Writes at an offset.
    ///
    /// # Errors
    /// The system's error.
    pub fn write_all_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        write_all_at(self.fd.as_fd(), offset, bytes)
    }

    /// Truncates the notes to `len` bytes.
    ///
    /// # Errors
    /// The system's error.
    pub fn set_len(&self, len: u64) -> io::Result<()> {
        Ok(ftruncate(&self.fd, len)?)
    }

    /// Makes sure that there is room for the notes, with so many bytes, to [`keep`](Self::keep) them.
    ///
    /// # Errors
    /// That of a meter without room.
    pub fn claim(&self, bytes: u64) -> io::Result<()> {
        self.temp.charge.as_ref().map_or(Ok(()), |charge| charge.claim(bytes))
    }

    /// Leaves the notes where they are.
    pub fn keep(mut self) {
        // They replace nothing, so no room is missing.
        let _ = self.temp.keep();
    }
}

fn read_notes(fd: &OwnedFd, limit: usize) -> io::Result<Vec<u8>> {
    let len = usize::try_from(stat_fd(fd.as_fd())?.size).unwrap_or(limit).min(limit);
    let mut bytes = vec![0; len];
    let read = read_full_at(fd.as_fd(), 0, &mut bytes)?;
    bytes.truncate(read);
    Ok(bytes)
}

impl StagedFile {
    /// Creates an empty temporary file and its notes in `home`, to become `target` in `dir`, under
    /// names that a later run finds. Removes this user's earlier files of these names.
    ///
    /// # Errors
    /// `WouldBlock` if another run is writing them, `PermissionDenied` if they are another user's;
    /// otherwise the system's error.
    pub fn create_kept(
        home: &Arc<Dir>,
        dir: &Arc<Dir>,
        target: Component,
        names: &KeptNames,
    ) -> io::Result<(Self, Notes)> {
        let charge = dir.charge_new(&target)?;
        let fd = create_own(home, &names.content)?;
        let staged =
            Self::assemble(Some(TempName::new(home, names.content.clone(), charge)), fd, dir, target);
        Ok((staged, Notes::create(home, &names.notes)?))
    }

    /// Opens the unfinished file of an earlier run in `home`, with its notes.
    ///
    /// # Errors
    /// `WouldBlock` if another run is writing it, `PermissionDenied` if it is not this user's
    /// alone; otherwise the system's error.
    pub fn open_kept(
        home: &Arc<Dir>,
        dir: &Arc<Dir>,
        target: Component,
        names: &KeptNames,
    ) -> io::Result<(Self, Notes)> {
        let content = open_own(home, &names.content)?;
        let notes = Notes::open(home, &names.notes)?;
        let charge = dir.charge_kept(&content, &target)?;
        let temp = TempName::new(home, names.content.clone(), charge);
        Ok((Self::assemble(Some(temp), content, dir, target), notes))
    }

    /// Writes the file's data to the disk and leaves it under its temporary name.
    ///
    /// # Errors
    /// The system's error; the file is removed.
    pub fn keep(mut self) -> io::Result<Stamp> {
        retry(|| fdatasync(self.as_fd()))?;
        let stamp = self.stamp()?;
        if let Some(temp) = &mut self.temp {
            temp.keep()?;
        }
        Ok(stamp)
    }
}

/// Creates a file that did not exist, and locks it.
fn create_own(dir: &Dir, name: &Component) -> io::Result<OwnedFd> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let on_disk = dir.spelled(name)?;
    let create = || retry(|| openat(dir, &*on_disk, flags, Mode::from_raw_mode(0o600)));
    let fd = match create() {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            // A file that cannot be opened belongs to nobody that matters; a locked one is being
            // written.
            if open_own(dir, name).is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock) {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            if dir.stat(name)?.uid != rustix::process::geteuid().as_raw() {
                return Err(io::ErrorKind::PermissionDenied.into());
            }
            dir.unlink(name, AtFlags::empty())?;
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
    let on_disk = dir.spelled(name)?;
    let fd = retry(|| openat(dir, &*on_disk, flags, Mode::empty()))?;
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
    lock_file(fd, FlockOperation::NonBlockingLockExclusive)
}
