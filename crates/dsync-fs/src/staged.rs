//! New content beside its target, and the finished file that only has to be renamed.
//!
//! The law: until [`PreparedFile::commit`] the target is untouched, and whatever happens the temporary
//! file is removed with its owner. Only a killed process leaves one behind, under a name that
//! [`is_temp_name`] knows, for the next run to remove.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::Arc,
};

use rustix::{
    fs::{
        AtFlags, FallocateFlags, Mode, OFlags, fallocate, fdatasync, ftruncate, openat, renameat, unlinkat,
    },
    io::Errno,
    rand::{GetRandomFlags, getrandom},
};

use crate::{
    attributes::{self, Handle, Wanted},
    commit::{CommitError, Durability},
    component::Component,
    dir::{Dir, retry},
    extended::Withheld,
    metadata::{Kind, Stamp},
    source_file::{read_full_at, stat_fd},
};

/// A new file's content while it is being written. Dropped without
/// [`prepare`](StagedFile::prepare) it vanishes.
#[derive(Debug)]
pub struct StagedFile {
    temp: TempName,
    fd: OwnedFd,
    target: Component,
}

/// A finished file under its temporary name. Dropped without [`commit`](PreparedFile::commit) it
/// vanishes.
#[derive(Debug)]
pub struct PreparedFile {
    temp: TempName,
    target: Component,
    basis: Option<Stamp>,
    displaces: bool,
    withheld: Withheld,
}

/// A name that is removed from its directory when dropped.
#[derive(Debug)]
struct TempName {
    dir: Arc<Dir>,
    name: Component,
    armed: bool,
}

impl Drop for TempName {
    fn drop(&mut self) {
        if self.armed {
            // Nobody to tell; the next run removes what is left.
            let _ = unlinkat(&*self.dir, self.name.as_c_str(), AtFlags::empty());
        }
    }
}

impl StagedFile {
    /// Creates an empty temporary file in `dir`, mode 0600, to become `target`.
    ///
    /// # Errors
    /// What the system says.
    pub fn create(dir: &Arc<Dir>, target: Component) -> io::Result<Self> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let name = temp_name()?;
        let fd = retry(|| openat(&**dir, name.as_c_str(), flags, Mode::from_raw_mode(0o600)))?;
        Ok(Self { temp: TempName { dir: Arc::clone(dir), name, armed: true }, fd, target })
    }

    /// The name that the file will get.
    pub fn target(&self) -> &Component {
        &self.target
    }

    /// Writes all of `data` at `offset`. Several threads may write different parts at once, in any
    /// order; what nobody writes reads as zeros.
    ///
    /// # Errors
    /// What the system says, e.g. `ENOSPC`, `EFBIG`.
    pub fn write_all_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut written = 0;
        while written < data.len() {
            match rustix::io::pwrite(&self.fd, &data[written..], offset + written as u64) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => written += count,
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Reads back what was written; returns less than `buf.len()` only where the file ends.
    ///
    /// # Errors
    /// What the system says.
    pub fn read_full_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        read_full_at(self.fd.as_fd(), offset, buf)
    }

    /// The number of the filesystem that the file is on.
    ///
    /// # Errors
    /// What the system says.
    pub fn device(&self) -> io::Result<u64> {
        self.temp.dir.device()
    }

    /// Sets the length; a part that was never written is a hole.
    ///
    /// # Errors
    /// What the system says.
    pub fn set_len(&self, len: u64) -> io::Result<()> {
        retry(|| ftruncate(&self.fd, len))
    }

    /// Makes a written range a hole again; where the filesystem knows no holes, writes zeros.
    ///
    /// # Errors
    /// What the system says.
    pub fn punch_hole(&self, offset: u64, len: u64) -> io::Result<()> {
        if len == 0 {
            return Ok(());
        }
        let mode = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        match fallocate(&self.fd, mode, offset, len) {
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => self.write_zeros(offset, len),
            result => Ok(result?),
        }
    }

    fn write_zeros(&self, offset: u64, len: u64) -> io::Result<()> {
        let zeros = [0; 64 * 1024];
        let mut done = 0;
        while done < len {
            let part = usize::try_from(len - done).map_or(zeros.len(), |left| left.min(zeros.len()));
            self.write_all_at(offset + done, &zeros[..part])?;
            done += part as u64;
        }
        Ok(())
    }

    /// Sets the attributes and closes the file, under [`Durability::File`] after its data is on the
    /// disk. With `basis`, the commit will refuse when the target is no longer the file of this stamp.
    ///
    /// # Errors
    /// What the system says; the temporary file is removed.
    pub fn prepare(
        self,
        wanted: &Wanted,
        basis: Option<Stamp>,
        durability: Durability,
    ) -> io::Result<PreparedFile> {
        let now = stat_fd(self.fd.as_fd())?;
        let withheld = attributes::apply(self.fd.as_fd(), Handle::Open, &now, wanted)?;
        if durability == Durability::File {
            retry(|| fdatasync(&self.fd))?;
        }
        Ok(PreparedFile { temp: self.temp, target: self.target, basis, displaces: false, withheld })
    }
}

impl AsFd for StagedFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl PreparedFile {
    /// The directory that the file is in.
    pub fn dir(&self) -> &Arc<Dir> {
        &self.temp.dir
    }

    /// The name that the file will get.
    pub fn target(&self) -> &Component {
        &self.target
    }

    /// Lets the file take the name of a directory. The name is returned that the directory gets then, for
    /// the caller to remove it; it is gone or another entry's before.
    pub fn displace(&mut self) -> Component {
        self.displaces = true;
        self.temp.name.clone()
    }

    /// What its filesystem could not hold of its attributes.
    pub fn withheld(&self) -> Withheld {
        self.withheld
    }

    /// Renames the file over its target. Makes nothing durable: see
    /// [`CommitGroup`](crate::CommitGroup).
    ///
    /// # Errors
    /// [`CommitError`]; the target is what it was and the temporary file is removed.
    pub fn commit(mut self) -> Result<(), CommitError> {
        let dir = &self.temp.dir;
        if let Some(basis) = self.basis {
            match dir.stat(&self.target) {
                Ok(now) if now.stamp() == basis => {}
                Ok(now) if now.kind == Kind::Dir => return Err(CommitError::TargetIsDirectory),
                Ok(_) => return Err(CommitError::BasisChanged),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    return Err(CommitError::BasisChanged);
                }
                Err(source) => return Err(CommitError::Stat { source: Arc::new(source) }),
            }
        }
        match renameat(&**dir, self.temp.name.as_c_str(), &**dir, self.target.as_c_str()) {
            Ok(()) => {
                self.temp.armed = false;
                Ok(())
            }
            Err(Errno::ISDIR | Errno::NOTEMPTY | Errno::EXIST) if self.displaces => {
                let exchanged = dir.exchange(&self.temp.name, &self.target);
                // The temporary name is the directory's now.
                self.temp.armed = exchanged.is_err();
                exchanged.map_err(|source| CommitError::Rename { source: Arc::new(source) })
            }
            Err(Errno::ISDIR | Errno::NOTEMPTY | Errno::EXIST) => Err(CommitError::TargetIsDirectory),
            Err(error) => Err(CommitError::Rename { source: Arc::new(error.into()) }),
        }
    }
}

/// True for names that this crate gives to temporary files. Such entries are never copied, and a run
/// that holds the directory's lock may remove them.
pub fn is_temp_name(name: &[u8]) -> bool {
    name.strip_prefix(TEMP_PREFIX).is_some_and(|random| {
        random.len() == TEMP_RANDOM_DIGITS
            && random.iter().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
    })
}

/// A fresh name for a temporary file: 128 random bits, and of fixed length, so that a target name of
/// 255 bytes works.
///
/// # Errors
/// What the system says when it has no random numbers.
pub fn temp_name() -> io::Result<Component> {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut random = [0u8; TEMP_RANDOM_DIGITS / 2];
    let mut filled = 0;
    while filled < random.len() {
        filled += retry(|| getrandom(&mut random[filled..], GetRandomFlags::empty()))?;
    }
    let mut name = Vec::with_capacity(TEMP_PREFIX.len() + TEMP_RANDOM_DIGITS);
    name.extend_from_slice(TEMP_PREFIX);
    for byte in random {
        name.push(DIGITS[usize::from(byte >> 4)]);
        name.push(DIGITS[usize::from(byte & 15)]);
    }
    Component::new(&name).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

const TEMP_PREFIX: &[u8] = b".dsync-tmp-";

const TEMP_RANDOM_DIGITS: usize = 32;
