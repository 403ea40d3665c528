//! A file that appears whole, readable for its owner only, or not at all.

use std::{io, os::unix::ffi::OsStrExt as _, path::Path, sync::Arc};

use dsync_fs::{CommitGroup, Component, Dir, Durability, Links, StagedFile, Stamp, Wanted};

/// A file under way to its place.
pub(super) struct WholeFile {
    staged: StagedFile,
    replaced: Option<Stamp>,
}

impl WholeFile {
    /// Begins a file for a path, which may pass through links of root and of this process's user.
    pub(super) fn create(path: &Path) -> io::Result<Self> {
        let name = path.file_name().map(|name| Component::new(name.as_bytes()));
        let Some(Ok(name)) = name else { return Err(io::ErrorKind::InvalidInput.into()) };
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        let dir = Arc::new(Dir::open_destination(parent.unwrap_or_else(|| Path::new(".")), Links::Trusted)?);
        let replaced = dir.stat(&name).ok().map(|metadata| metadata.stamp());
        Ok(Self { staged: StagedFile::create(&dir, name)?, replaced })
    }

    /// Returns the stamp of the file that has the name now.
    pub(super) fn replaced(&self) -> Option<Stamp> {
        self.replaced
    }

    /// Returns a writer from the file's start on.
    pub(super) fn writer(&self) -> impl io::Write {
        InOrder { staged: &self.staged, offset: 0 }
    }

    /// Names the file once it is on the disk.
    pub(super) fn commit(self) -> io::Result<()> {
        let wanted = Wanted { mode: Some(0o600), ..Wanted::default() };
        let prepared = self.staged.prepare(&wanted, None, Durability::File)?;
        let mut group = CommitGroup::new(Durability::File);
        group.add(prepared, ());
        for ((), result) in group.flush() {
            result.map_err(io::Error::other)?;
        }
        group.finish().map_err(io::Error::other)
    }
}

/// Writes a file from its start on.
struct InOrder<'a> {
    staged: &'a StagedFile,
    offset: u64,
}

impl io::Write for InOrder<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.staged.write_all_at(self.offset, bytes)?;
        self.offset += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
