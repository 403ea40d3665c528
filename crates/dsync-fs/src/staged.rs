//! Staging files: new content beside its target or elsewhere, and the finished file that only has
//! to be renamed.
//!
//! The law: until [`PreparedFile::commit`] the target is untouched, and whatever happens the
//! temporary file is removed with its owner. Only a killed process leaves one behind, under a name
//! that [`is_temp_name`](crate::is_temp_name) recognises, for the next run to remove.

use std::{
    cell::RefCell,
    fs::File,
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::{Arc, Mutex, PoisonError, TryLockError, atomic::AtomicBool},
};

use rustix::{
    fs::{
        AtFlags, FallocateFlags, Mode, OFlags, SeekFrom, fallocate, fdatasync, ftruncate, openat, renameat,
        seek, unlinkat,
    },
    io::Errno,
    process::geteuid,
    rand::{GetRandomFlags, getrandom},
};

use crate::{
    attributes::{Handle, Wanted, chmod, set_times},
    blank,
    commit::{CommitError, Durability},
    component::Component,
    dir::{Dir, retry, retry_leased, unless_unknown, wrong_type},
    extended::Withheld,
    extents::{CopyError, Sharing},
    metadata::{Kind, Stamp, Timestamp},
    own_names::{HEX_DIGITS, TEMP_DIGITS, TEMP_PREFIX, hex_name},
    owner::Owner,
    quota::Charge,
    source_file::{SourceFile, read_full_at, stat_fd},
    sys::file_size_limit,
};

mod device;

/// A new file's content while it is being written. Dropping it without
/// [`prepare`](StagedFile::prepare) removes it.
#[derive(Debug)]
pub struct StagedFile {
    /// The directory of the target.
    pub(crate) dir: Arc<Dir>,
    /// Often in another directory than the target. `None` if the content is written into the target
    /// itself.
    pub(crate) temp: Option<TempName>,
    fd: OwnedFd,
    target: Component,
    /// Held while writing. The system permits one write at a time into a file, and a second thread
    /// spins while the first one writes: a tenth of a receiver's processor time if four lanes share
    /// a file. With this lock it sleeps.
    turn: Mutex<()>,
    /// Flag that makes [`prepare`](StagedFile::prepare) end early.
    stopped: Option<Arc<AtomicBool>>,
    /// Whether this is a device: its length and its attributes stay.
    is_device: bool,
    /// The old file's version before this process made it writable, if it had to.
    protected: Option<Stamp>,
    /// The share of a meter's count of a file written in place; a temporary has its own.
    charge: Option<Box<Charge>>,
}

/// A finished file under its temporary name. Dropping it without [`commit`](PreparedFile::commit)
/// removes it.
#[derive(Debug)]
pub struct PreparedFile {
    dir: Arc<Dir>,
    target: Component,
    last_step: LastStep,
    basis: Option<Stamp>,
    displaces: bool,
    /// Whether the name was found free.
    is_new: bool,
    /// Whether an entry that has the name stays.
    gives_way: bool,
    withheld: Withheld,
}

/// The step that a finished file still needs after its data is on the disk.
#[derive(Debug)]
enum LastStep {
    /// The rename to its final name.
    Rename(TempName),
    /// Its time. A file written in place gets the time of the new content last, so that after a
    /// power cut a later run does not mistake a mixture for it. Only this version of the file gets it:
    /// with that time another one would pass for the new content for good.
    Retag(Wanted, Box<Stamp>),
    /// Nothing: a device has its content already.
    Nothing,
}

/// A name that is removed from its directory when dropped.
#[derive(Debug)]
pub(crate) struct TempName {
    dir: Arc<Dir>,
    name: Component,
    armed: bool,
    /// Its share of a meter's count, if it was made or taken up here.
    pub(crate) charge: Option<Box<Charge>>,
}

impl TempName {
    pub(crate) fn new(dir: &Arc<Dir>, name: Component, charge: Option<Box<Charge>>) -> Self {
        Self { dir: Arc::clone(dir), name, armed: true, charge }
    }

    /// Leaves the file in place.
    ///
    /// # Errors
    /// That of a meter without room for the file beside its target; it is removed then.
    pub(crate) fn keep(&mut self) -> io::Result<()> {
        if let Some(charge) = &self.charge {
            charge.stay()?;
        }
        self.disarm();
        Ok(())
    }

    /// Leaves the entry of this name in place, whatever it is by now.
    fn disarm(&mut self) {
        self.armed = false;
        if let Some(charge) = self.charge.take() {
            charge.forget();
        }
    }
}

impl Drop for TempName {
    fn drop(&mut self) {
        if !self.armed {
            return;
        }
        // There is nobody to report to, and the next run removes leftovers.
        let _ = match &self.charge {
            // It gives back its share itself.
            Some(_) => self
                .dir
                .spelled(&self.name)
                .and_then(|name| Ok(unlinkat(&*self.dir, &*name, AtFlags::empty())?)),
            None => self.dir.unlink(&self.name, AtFlags::empty()),
        };
    }
}

/// Grants the owner of a file read and write permission. Returns the file's version before; `None`
/// if that is not what keeps this process out.
fn make_writable(dir: &Dir, name: &Component) -> io::Result<Option<Stamp>> {
    const OWNER_WRITES: u16 = 0o600;
    let (fd, now) = dir.open_path(name)?;
    let is_locked = now.kind == Kind::File && now.mode & OWNER_WRITES != OWNER_WRITES;
    if !is_locked || now.uid != geteuid().as_raw() {
        return Ok(None);
    }
    chmod(fd.as_fd(), Handle::PathOnly, now.mode | OWNER_WRITES).map(|()| Some(now.stamp()))
}

impl StagedFile {
    /// Creates an empty temporary file in `dir`, mode 0600, to become `target`.
    ///
    /// # Errors
    /// The system's error.
    pub fn create(dir: &Arc<Dir>, target: Component) -> io::Result<Self> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let (name, charge) = (temp_name()?, dir.charge_new(&target)?);
        let on_disk = dir.spelled(&name)?;
        let fd = retry(|| openat(&**dir, &*on_disk, flags, Mode::from_raw_mode(0o600)))?;
        Ok(Self::assemble(Some(TempName::new(dir, name, charge)), fd, dir, target))
    }

    /// Takes a file without a name for the bytes that go into `target` of `dir` later. It gets no name.
    pub fn without_name(file: File, dir: &Arc<Dir>, target: Component) -> Self {
        Self::assemble(None, file.into(), dir, target)
    }

    pub(crate) fn assemble(temp: Option<TempName>, fd: OwnedFd, dir: &Arc<Dir>, target: Component) -> Self {
        Self {
            dir: Arc::clone(dir),
            temp,
            fd,
            target,
            turn: Mutex::default(),
            stopped: None,
            is_device: false,
            protected: None,
            charge: None,
        }
    }

    /// Makes [`prepare`](Self::prepare) end early once `stopped` is set, with an error of the kind
    /// [`Interrupted`](io::ErrorKind::Interrupted), if it copies from another filesystem.
    #[must_use]
    pub fn until(mut self, stopped: &Arc<AtomicBool>) -> Self {
        self.stopped = Some(Arc::clone(stopped));
        self
    }

    /// Moves a temporary that was made elsewhere beside its target: by a rename, or by a copy from
    /// another filesystem. [`prepare`](Self::prepare) does so too; a caller that does it first can
    /// tell its errors from those of attributes.
    ///
    /// # Errors
    /// The system's error; the temporary file is removed.
    pub fn beside_target(mut self) -> io::Result<Self> {
        let Some(temp) = self.temp.as_mut().filter(|temp| !Arc::ptr_eq(&temp.dir, &self.dir)) else {
            return Ok(self);
        };

        let name = temp_name()?;
        match renameat(&*temp.dir, &*temp.dir.spelled(&temp.name)?, &*self.dir, &*self.dir.spelled(&name)?) {
            Ok(()) => {
                let charge = temp.charge.take();
                temp.disarm();
                self.temp = Some(TempName::new(&self.dir, name.clone(), charge));
                let (moved, own) = (self.dir.stat(&name)?, stat_fd(self.fd.as_fd())?);
                // The other directory may be open to users who have no access to this one.
                let is_own = (moved.dev, moved.ino) == (own.dev, own.ino);
                if is_own { Ok(self) } else { Err(io::ErrorKind::PermissionDenied.into()) }
            }
            Err(Errno::XDEV) => {
                if let Some(charge) = &temp.charge {
                    charge.lend();
                }
                let copy = Self::create(&self.dir, self.target.clone())?;
                let content = SourceFile::new(self.fd.try_clone()?, stat_fd(self.fd.as_fd())?);
                let sharing = self.stopped.iter().fold(Sharing::default(), Sharing::until);
                copy.copy_all(&content, &sharing, false).map_err(CopyError::into_inner)?;
                Ok(copy)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Opens the regular file `target` of `dir` itself: writes are visible at once and stay when
    /// this is dropped. Without privileges, makes the user's own file writable if its mode protects
    /// it from its owner, as rsync does.
    ///
    /// # Errors
    /// The system's error; [`InvalidInput`](io::ErrorKind::InvalidInput) if the entry is of another
    /// type.
    pub fn open_in_place(dir: &Arc<Dir>, target: Component) -> io::Result<Self> {
        let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let on_disk = dir.spelled(&target)?;
        let open = || retry_leased(|| openat(&**dir, &*on_disk, flags, Mode::empty()));
        let mut protected = None;
        let fd = match open() {
            Err(error) if matches!(Errno::from_io_error(&error), Some(Errno::LOOP | Errno::NXIO)) => {
                return Err(wrong_type());
            }
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                protected = make_writable(dir, &target)?;
                if protected.is_none() { return Err(error) } else { open()? }
            }
            result => result?,
        };
        if stat_fd(fd.as_fd())?.kind != Kind::File {
            return Err(wrong_type());
        }
        let charge = dir.charge_in_place(&fd)?;
        Ok(Self { protected, charge, ..Self::assemble(None, fd, dir, target) })
    }

    /// Removes the setuid and setgid bits before the content changes, as the kernel does for
    /// everybody except root: a file that is neither old nor new must not be trusted.
    ///
    /// # Errors
    /// The system's error.
    pub fn distrust(&self) -> io::Result<()> {
        let mode = stat_fd(self.fd.as_fd())?.mode;
        if self.is_device || mode & SETS_ID == 0 {
            Ok(())
        } else {
            crate::sys::chmod_open(self.fd.as_fd(), mode & !SETS_ID)
        }
    }

    /// Returns the identity and version of the file being written.
    ///
    /// # Errors
    /// The system's error.
    pub fn stamp(&self) -> io::Result<Stamp> {
        stat_fd(self.fd.as_fd()).map(|now| now.stamp())
    }

    /// Returns whether the file is of a version that this process has seen. Making it writable has
    /// changed its change time, but no more.
    ///
    /// # Errors
    /// The system's error.
    pub fn is_still(&self, version: &Stamp) -> io::Result<bool> {
        let now = self.stamp()?;
        Ok(match &self.protected {
            Some(before) => before == version && now.is_same_content(version),
            None => now == *version,
        })
    }

    /// Reserves space for `len` bytes, so that a disk that is too small is noticed now. Does
    /// nothing if the filesystem cannot reserve.
    ///
    /// # Errors
    /// The system's error, e.g. `ENOSPC`.
    pub fn reserve(&self, len: u64) -> io::Result<()> {
        if len == 0 || self.is_device {
            return Ok(());
        }
        self.cover(len)?;
        match retry(|| fallocate(&self.fd, FallocateFlags::KEEP_SIZE, 0, len)) {
            Err(error) if cannot_allocate(&error) => Ok(()),
            result => result,
        }
    }

    /// Checks that this process may write up to `end`, so that a limit on the length of files is noticed
    /// while all of the file is old. A device has no such limit.
    ///
    /// # Errors
    /// `EFBIG` if this process's limit or that of the filesystem is lower.
    pub fn check_reach(&self, end: u64) -> io::Result<()> {
        if self.is_device {
            return Ok(());
        }
        if end > file_size_limit() {
            return Err(Errno::FBIG.into());
        }
        // Nobody uses the position. Seeking fails exactly where writing would, and changes nothing.
        match seek(&self.fd, SeekFrom::Start(end)) {
            Err(Errno::INVAL | Errno::OVERFLOW) => Err(Errno::FBIG.into()),
            _ => Ok(()),
        }
    }

    /// Reserves space for what a content of `len` bytes has beyond the end of this file, so that a disk that
    /// is too small is noticed while all of the file is old. Leaves its modification time alone if this
    /// user may set it. Does nothing if the filesystem cannot reserve.
    ///
    /// # Errors
    /// The system's error, e.g. `ENOSPC`; nothing is reserved then.
    pub fn reserve_growth(&self, len: u64) -> io::Result<()> {
        let before = stat_fd(self.fd.as_fd())?;
        let more = len.saturating_sub(before.size);
        if more == 0 || self.is_device {
            return Ok(());
        }

        let at = before.size;
        let reserved = retry(|| fallocate(&self.fd, FallocateFlags::KEEP_SIZE, at, more));
        if reserved.is_err() {
            // Some of it may be.
            let _ = fallocate(&self.fd, FallocateFlags::KEEP_SIZE | FallocateFlags::PUNCH_HOLE, at, more);
        }
        // Content that is the same has the same time, where this user may set one.
        let wanted = Wanted { mtime: Some(before.mtime), ..Wanted::default() };
        let _ = set_times(self.fd.as_fd(), Handle::Open, &wanted, &before);
        match reserved {
            Err(error) if cannot_allocate(&error) => Ok(()),
            reserved => reserved,
        }
    }

    /// Sets the modification time of the file itself, whatever has its name by now.
    ///
    /// # Errors
    /// The system's error.
    pub fn set_time(&self, mtime: Timestamp) -> io::Result<()> {
        let now = stat_fd(self.fd.as_fd())?;
        let wanted = Wanted { mtime: Some(mtime), ..Wanted::default() };
        set_times(self.fd.as_fd(), Handle::Open, &wanted, &now)
    }

    /// Waits until the written data is on the disk.
    ///
    /// # Errors
    /// The system's error. A failed sync is final: a second, successful one proves nothing.
    pub fn sync_data(&self) -> io::Result<()> {
        retry(|| fdatasync(&self.fd))
    }

    /// Returns the name that the file will get.
    pub fn target(&self) -> &Component {
        &self.target
    }

    /// Writes all of `data` at `offset`. Several threads may write different parts at once, in any
    /// order; parts that nobody writes read as zeros.
    ///
    /// # Errors
    /// The system's error, e.g. `ENOSPC`, `EFBIG`.
    pub fn write_all_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.cover(offset.saturating_add(data.len() as u64))?;
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        write_all_at(self.fd.as_fd(), offset, data)
    }

    /// Returns whether another thread writes, so that a caller with other work need not wait for
    /// it.
    pub fn is_being_written(&self) -> bool {
        matches!(self.turn.try_lock(), Err(TryLockError::WouldBlock))
    }

    /// Reads written data back; returns less than `buf.len()` only if the file ends.
    ///
    /// # Errors
    /// The system's error.
    pub fn read_full_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        read_full_at(self.fd.as_fd(), offset, buf)
    }

    /// Returns the number of the filesystem that the file is written on.
    ///
    /// # Errors
    /// The system's error.
    pub fn device(&self) -> io::Result<u64> {
        self.temp.as_ref().map_or(&self.dir, |temp| &temp.dir).device()
    }

    /// Sets the length; a part that was never written is a hole. A device keeps its own.
    ///
    /// # Errors
    /// The system's error.
    pub fn set_len(&self, len: u64) -> io::Result<()> {
        if self.is_device {
            return Ok(());
        }
        self.cover(len)?;
        retry(|| ftruncate(&self.fd, len))?;
        if let Some(charge) = self.charge() {
            charge.cut(len);
        }
        Ok(())
    }

    /// Returns the file's share of a meter's count.
    fn charge(&self) -> Option<&Charge> {
        self.temp.as_ref().map_or(&self.charge, |temp| &temp.charge).as_deref()
    }

    /// Takes room for content up to `end` from the meter.
    pub(crate) fn cover(&self, end: u64) -> io::Result<()> {
        self.charge().map_or(Ok(()), |charge| charge.cover(end))
    }

    /// Makes room for `len` bytes in `old`, which is written in place: this file's content moves there
    /// and does not count from now on.
    ///
    /// # Errors
    /// That of a meter without room.
    pub fn make_room_in(&self, old: &Self, len: u64) -> io::Result<()> {
        if let Some(charge) = self.charge() {
            charge.lend();
        }
        old.cover(len)
    }

    /// Makes a written range a hole again, or writes zeros if the filesystem has no holes or this is a
    /// device.
    ///
    /// # Errors
    /// The system's error.
    pub fn punch_hole(&self, offset: u64, len: u64) -> io::Result<()> {
        if len == 0 {
            return Ok(());
        }
        if self.is_device {
            return self.clear(offset, len);
        }
        let mode = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        match retry(|| fallocate(&self.fd, mode, offset, len)) {
            Err(error) if cannot_allocate(&error) => self.write_zeros(offset, len),
            result => result,
        }
    }

    /// Writes zeros, never a hole, whatever the range was.
    ///
    /// # Errors
    /// The system's error.
    pub fn write_zeros(&self, offset: u64, len: u64) -> io::Result<()> {
        let zeros = [0; 64 * 1024];
        let mut done = 0;
        while done < len {
            let part = usize::try_from(len - done).map_or(zeros.len(), |left| left.min(zeros.len()));
            self.write_all_at(offset + done, &zeros[..part])?;
            done += part as u64;
        }
        Ok(())
    }

    /// Makes a range zeros that may have other bytes. Writes only where it has them, so that a
    /// hole, or an extent shared with another file, stays so. Bytes beyond the file's end are zeros
    /// already.
    ///
    /// # Errors
    /// The system's error.
    pub fn clear(&self, offset: u64, len: u64) -> io::Result<()> {
        let mut old = vec![0; 64 * 1024];
        let mut done = 0;
        while done < len {
            let want = usize::try_from(len - done).map_or(old.len(), |left| left.min(old.len()));
            let read = self.read_full_at(offset + done, &mut old[..want])?;
            blank::for_runs(
                offset + done,
                &old[..read],
                |_| true,
                |run, blank| {
                    if blank {
                        Ok(())
                    } else {
                        self.write_zeros(offset + done + run.start as u64, run.len() as u64)
                    }
                },
            )?;

            if read < want {
                // Of a file, the rest is zeros already; a device may be one that cannot be read.
                if self.is_device {
                    self.write_zeros(offset + done + read as u64, len - done - read as u64)?;
                }
                break;
            }
            done += read as u64;
        }
        Ok(())
    }

    /// Moves the file beside its target, sets its attributes and closes it; under
    /// [`Durability::File`] syncs its data first. With `basis`, the commit will refuse if the
    /// target is no longer the file of this stamp or has other content. Other attributes, or fewer
    /// hard links, do not count.
    ///
    /// # Errors
    /// The system's error; the temporary file is removed.
    pub fn prepare(
        self,
        wanted: &Wanted,
        basis: Option<Stamp>,
        durability: Durability,
    ) -> io::Result<PreparedFile> {
        let Self { dir, temp, fd, target, is_device, .. } = self.beside_target()?;
        if is_device {
            sync_device(&fd, durability)?;
            return Ok(PreparedFile { basis, ..PreparedFile::new(dir, target, LastStep::Nothing) });
        }

        let now = stat_fd(fd.as_fd())?;
        // In place, set the time last, after the data is on the disk.
        let late = temp.is_none();
        let at_once = Wanted { mtime: wanted.mtime.filter(|_| !late), ..wanted.clone() };
        let withheld = dir.apply(fd.as_fd(), Handle::Open, &now, &at_once)?;
        if durability == Durability::File {
            retry(|| fdatasync(&fd))?;
        } else if durability == Durability::Batch && dir.is_synced_by_file() {
            unless_unknown(retry(|| fdatasync(&fd)))?;
        }
        let last_step = match temp {
            Some(temp) => LastStep::Rename(temp),
            None => {
                let written = Box::new(stat_fd(fd.as_fd())?.stamp());
                LastStep::Retag(Wanted { mtime: wanted.mtime, ..Wanted::default() }, written)
            }
        };
        Ok(PreparedFile { basis, withheld, ..PreparedFile::new(dir, target, last_step) })
    }
}

/// Returns whether a filesystem cannot reserve space or make holes, or a sandbox does not know the call. Where the
/// refusal is of the file, writing meets it too.
fn cannot_allocate(error: &io::Error) -> bool {
    let refusals = [Errno::OPNOTSUPP, Errno::NOSYS, Errno::PERM];
    Errno::from_io_error(error).is_some_and(|error| refusals.contains(&error))
}

impl AsFd for StagedFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl PreparedFile {
    /// Returns the directory of the file.
    pub fn dir(&self) -> &Arc<Dir> {
        &self.dir
    }

    /// Returns the name that the file will get.
    pub fn target(&self) -> &Component {
        &self.target
    }

    /// Returns the identity and version that the file has under its name now, a temporary one unless it
    /// is written in place; `None` for a device.
    ///
    /// # Errors
    /// The system's error.
    pub fn stamp(&self) -> io::Result<Option<Stamp>> {
        let now = match &self.last_step {
            LastStep::Rename(temp) => temp.dir.stat(&temp.name)?,
            LastStep::Retag(..) => self.dir.stat(&self.target)?,
            LastStep::Nothing => return Ok(None),
        };
        Ok(Some(now.stamp()))
    }

    /// Lets the file replace a directory. Returns the name that the directory will get, for the
    /// caller to remove. Until the commit succeeds, that name is missing or another entry's.
    /// Returns `None` for a file written in place.
    pub fn displace(&mut self) -> Option<Component> {
        self.displaces = true;
        match &self.last_step {
            LastStep::Rename(temp) => Some(temp.name.clone()),
            LastStep::Retag(..) | LastStep::Nothing => None,
        }
    }

    /// Lets the file replace nothing but an entry of its very name, as the name was found free. Where a
    /// filesystem takes two spellings for one name, the file would else replace that of the other one.
    pub fn take_free_name(&mut self) {
        self.is_new = true;
    }

    /// Makes the commit fail with [`CommitError::NameTaken`] if any entry has the name by then. Where the
    /// filesystem cannot name a file without replacing another, an entry of that moment is replaced.
    pub fn give_way(&mut self) {
        self.gives_way = true;
    }

    /// Returns whether its filesystem could not hold some of its attributes.
    pub fn withheld(&self) -> Withheld {
        self.withheld
    }

    /// Leaves the file under its temporary name, for [`waiting`](Self::waiting) or for the next run
    /// to remove. Returns the name, and the state that its target must have. Returns `None` for a
    /// file written in place, which is dropped.
    ///
    /// # Errors
    /// That of a meter without room for it beside its target; the temporary file is removed.
    pub fn wait(self) -> io::Result<Option<(Component, Option<Stamp>)>> {
        match self.last_step {
            LastStep::Rename(mut temp) => {
                temp.keep()?;
                Ok(Some((temp.name.clone(), self.basis)))
            }
            LastStep::Retag(..) | LastStep::Nothing => Ok(None),
        }
    }

    /// Resumes a file that waits in `dir` under the name `temp`. Dropping it removes it.
    pub fn waiting(dir: &Arc<Dir>, temp: Component, target: Component) -> Self {
        Self::new(Arc::clone(dir), target, LastStep::Rename(TempName::new(dir, temp, None)))
    }

    fn new(dir: Arc<Dir>, target: Component, last_step: LastStep) -> Self {
        Self {
            dir,
            target,
            last_step,
            basis: None,
            displaces: false,
            is_new: false,
            gives_way: false,
            withheld: Withheld::default(),
        }
    }

    /// Renames the file over its target. Makes nothing durable: see
    /// [`CommitGroup`](crate::CommitGroup).
    ///
    /// # Errors
    /// [`CommitError`]; the target is unchanged and the temporary file is removed.
    pub fn commit(self) -> Result<(), CommitError> {
        self.commit_after(|| Ok(()))
    }

    /// Renames the file as [`commit`](Self::commit) does, after `secure` has confirmed that the
    /// entry with its name may give way. Does not ask it about a file written in place, which keeps the
    /// time that it has if anybody has replaced it or written to it since it was prepared.
    ///
    /// # Errors
    /// [`CommitError`]; [`CommitError::Backup`] with the error of `secure`.
    pub fn commit_after(self, secure: impl FnOnce() -> io::Result<()>) -> Result<(), CommitError> {
        let Self { dir, target, last_step, basis, displaces, is_new, gives_way, .. } = self;
        let mut temp = match last_step {
            LastStep::Rename(temp) => temp,
            LastStep::Nothing => return Ok(()),
            LastStep::Retag(wanted, written) => return retag(&dir, &target, &wanted, &written),
        };

        if let Some(basis) = basis {
            match dir.stat(&target) {
                Ok(now) if now.stamp().is_same_content(&basis) => {}
                Ok(now) if now.kind == Kind::Dir => return Err(CommitError::TargetIsDirectory),
                Ok(_) => return Err(CommitError::BasisChanged),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    return Err(CommitError::BasisChanged);
                }
                Err(source) => return Err(CommitError::Stat { source: Arc::new(source) }),
            }
        }

        secure().map_err(|error| CommitError::Backup { source: Arc::new(error) })?;
        let named = if gives_way {
            dir.add_name(&temp.dir, &temp.name, &target, &mut temp.charge)
        } else if is_new {
            dir.give_free_name(&temp.dir, &temp.name, &target, &mut temp.charge)
        } else {
            dir.give_name_to(&temp.dir, &temp.name, &target, &mut temp.charge)
        };
        let error = match named {
            Ok(()) => {
                temp.armed = false;
                return Ok(());
            }
            Err(error) => error,
        };
        let is_in_the_way = match Errno::from_io_error(&error) {
            Some(Errno::EXIST) if gives_way && dir.lists(&target).unwrap_or(true) => {
                return Err(CommitError::NameTaken);
            }
            Some(Errno::ISDIR | Errno::NOTEMPTY) => true,
            Some(Errno::EXIST) => !is_new,
            _ => false,
        };

        match error {
            _ if is_in_the_way && !dir.adds_only() => {
                if !displaces {
                    return Err(CommitError::TargetIsDirectory);
                }
                let exchanged = dir.exchange(&temp.name, &target);
                if exchanged.is_ok() {
                    // The temporary name now belongs to the directory.
                    temp.disarm();
                }
                exchanged.map_err(|source| CommitError::Rename { source: Arc::new(source) })
            }
            error => Err(CommitError::Rename { source: Arc::new(error) }),
        }
    }
}

/// Sets the time of a file written in place, unless its name is another file's or somebody wrote to it
/// since.
fn retag(dir: &Dir, target: &Component, wanted: &Wanted, written: &Stamp) -> Result<(), CommitError> {
    let failed = |error| CommitError::Attributes { source: Arc::new(error) };
    let (fd, now) = match dir.open_path(target) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(CommitError::BasisChanged),
        opened => opened.map_err(failed)?,
    };

    let stamp = now.stamp();
    let is_same = (stamp.dev, stamp.ino) == (written.dev, written.ino);
    let is_still = if dir.numbers_inodes() {
        // The run itself may write to it by another name.
        is_same && (now.nlink > 1 || stamp.is_same_content(written))
    } else {
        // A filesystem in user space may number the file anew, and take the time of its last write later.
        now.kind == Kind::File && stamp.size == written.size
    };
    if !is_still {
        return Err(CommitError::BasisChanged);
    }
    let set = dir.apply(fd.as_fd(), Handle::PathOnly, &now, wanted);
    set.and_then(Withheld::unless_plain).map_err(failed)
}

/// Waits until a device has what was written, which the sync of a directory's filesystem does not
/// cover.
fn sync_device(fd: &OwnedFd, durability: Durability) -> io::Result<()> {
    if durability == Durability::None {
        return Ok(());
    }
    match retry(|| fdatasync(fd)) {
        // A character device may have nothing to sync.
        Err(error) if Errno::from_io_error(&error) == Some(Errno::INVAL) => Ok(()),
        result => result,
    }
}

/// Writes all of `data` at `offset`.
pub(crate) fn write_all_at(fd: BorrowedFd<'_>, offset: u64, data: &[u8]) -> io::Result<()> {
    let mut written = 0;
    while written < data.len() {
        match rustix::io::pwrite(fd, &data[written..], offset + written as u64) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => written += count,
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Makes a fresh name for a temporary file: 128 random bits and the process, of fixed length, so
/// that a target name of 255 bytes works.
///
/// # Errors
/// The system's error if it has no random numbers.
pub fn temp_name() -> io::Result<Component> {
    temp_name_of(Owner::this())
}

/// Makes a fresh name for a temporary file of a process.
pub(crate) fn temp_name_of(owner: Owner) -> io::Result<Component> {
    let mut bytes = [0; TEMP_DIGITS / 2];
    let (random, process) = bytes.split_at_mut(HEX_DIGITS / 2);
    random.copy_from_slice(&random_bytes()?);
    process.copy_from_slice(&owner.to_bytes());
    hex_name(TEMP_PREFIX, &bytes)
}

/// Returns bytes for a name that nobody can guess.
pub(crate) fn random_bytes() -> io::Result<[u8; HEX_DIGITS / 2]> {
    RANDOM.with_borrow_mut(RandomPool::take)
}

/// Random bytes that a thread requested from the kernel in one call, which costs as much for many
/// names as for one.
struct RandomPool {
    bytes: [u8; RANDOM_NAMES * HEX_DIGITS / 2],
    used: usize,
}

impl RandomPool {
    const EMPTY: Self = Self { bytes: [0; RANDOM_NAMES * HEX_DIGITS / 2], used: RANDOM_NAMES };

    /// Returns bytes that were never returned before.
    fn take(&mut self) -> io::Result<[u8; HEX_DIGITS / 2]> {
        if self.used == RANDOM_NAMES {
            let mut filled = 0;
            while filled < self.bytes.len() {
                filled += retry(|| getrandom(&mut self.bytes[filled..], GetRandomFlags::empty()))?;
            }
            self.used = 0;
        }
        let (names, _) = self.bytes.as_chunks();
        self.used += 1;
        names.get(self.used - 1).copied().ok_or_else(|| io::ErrorKind::InvalidData.into())
    }
}

thread_local! {
    static RANDOM: RefCell<RandomPool> = const { RefCell::new(RandomPool::EMPTY) };
}

/// Number of names per call to the kernel's generator.
const RANDOM_NAMES: usize = 64;

/// The setuid and setgid bits.
const SETS_ID: u16 = 0o6000;

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::own_names::is_temp_name;

    #[test]
    fn no_two_temporary_names_are_equal_in_any_thread() {
        let names = || (0..5 * RANDOM_NAMES).map(|_| temp_name()).collect::<io::Result<Vec<_>>>();
        let threads: Vec<_> = (0..3).map(|_| std::thread::spawn(names)).collect();
        let mut seen = HashSet::new();
        for thread in threads {
            for name in thread.join().unwrap().unwrap() {
                assert!(is_temp_name(name.as_bytes()));
                assert!(seen.insert(name.as_bytes().to_vec()), "a name came twice");
            }
        }
        assert_eq!(seen.len(), 15 * RANDOM_NAMES);
    }
}
