//! A file of the operator's that appears whole, readable for its owner only, or not at all.
//!
//! It is written beside its name and takes it when it is on the disk: a manifest, the times of
//! reading, a batch, the state of a pair.

use std::{io, os::unix::ffi::OsStrExt as _, path::Path, sync::Arc};

use dsync_fs::{
    CommitGroup, Component, Dir, Durability, Kind, OperatorFiles, StagedFile, Wanted, reap_abandoned,
};

/// A file under way to its name. It is written from its start on.
pub(crate) struct WholeFile {
    staged: StagedFile,
    offset: u64,
}

impl WholeFile {
    /// Begins a file. Removes what killed runs have left of theirs in the directory.
    pub(crate) fn create(dir: &Arc<Dir>, name: Component) -> io::Result<Self> {
        reap_abandoned(dir);
        Ok(Self { staged: StagedFile::create(dir, name)?, offset: 0 })
    }

    /// Makes the file durable and gives it its name. It replaces an old one.
    pub(crate) fn commit(self) -> io::Result<()> {
        self.commit_with(Durability::File)
    }

    /// Renames the file to its name without a wait for the disk: for content that tells whether it is whole.
    pub(crate) fn commit_unsynced(self) -> io::Result<()> {
        self.commit_with(Durability::None)
    }

    fn commit_with(self, durability: Durability) -> io::Result<()> {
        let wanted = Wanted { mode: Some(MODE), ..Wanted::default() };
        let prepared = self.staged.prepare(&wanted, None, durability)?;
        let mut group = CommitGroup::new(durability);
        group.add(prepared, ());
        for ((), result) in group.flush() {
            result.map_err(io::Error::other)?;
        }
        group.finish().map_err(io::Error::other)
    }
}

impl io::Write for WholeFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.staged.write_all_at(self.offset, bytes)?;
        self.offset += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A name that something else than a regular file has.
///
/// The system needs its devices, and a link or a fifo was put there for a purpose that a file in its
/// place would not serve.
#[derive(Debug, thiserror::Error)]
#[error("it is no regular file, and stays as it is")]
pub(crate) struct NotRegular;

impl NotRegular {
    /// Returns whether this is the reason of an error.
    pub(crate) fn is_of(error: &io::Error) -> bool {
        error.get_ref().is_some_and(|inner| inner.is::<Self>())
    }
}

/// Opens the directory of a file that is to be made or replaced; returns it and the file's name.
///
/// # Errors
/// The system's error; [`NotRegular`] for a name that cannot be replaced.
pub(crate) fn place(path: &Path, files: &OperatorFiles) -> io::Result<(Arc<Dir>, Component)> {
    let name = path.file_name().and_then(|name| Component::new(name.as_bytes()).ok());
    let name = name.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;

    let dir = files.directory_of(path)?;
    if dir.stat(&name).is_ok_and(|there| there.kind != Kind::File) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, NotRegular));
    }
    Ok((Arc::new(dir), name))
}

/// Permission bits: what such a file tells of a tree may not be meant for others.
const MODE: u16 = 0o600;
