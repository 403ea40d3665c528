//! Keeping what is about to be replaced or removed, under another name.
//!
//! The law: an entry that is replaced has its backup before its name shows the new content, and where the
//! filesystem has hard links its name is never missing meanwhile. What was a backup of that name before is
//! replaced in one step. A directory is never kept as a whole.

use std::{io, sync::Arc};

use rustix::{fs::renameat, io::Errno};

use crate::{
    attributes::Wanted,
    commit::Durability,
    component::Component,
    dir::{Dir, Special},
    extended::{Extended, ExtendedScope},
    extents::{CopyError, Sharing},
    metadata::{Kind, Metadata},
    staged::StagedFile,
};

/// The name under which one entry is kept.
#[derive(Debug, Clone)]
pub struct BackupPlace {
    dir: Arc<Dir>,
    name: Component,
}

impl BackupPlace {
    /// The entry `name` of `dir`.
    pub fn new(dir: Arc<Dir>, name: Component) -> Self {
        Self { dir, name }
    }

    /// The directory of the backup.
    pub fn dir(&self) -> &Arc<Dir> {
        &self.dir
    }

    /// Keeps the entry `name` of `from`, which is about to be replaced: it stays where it is as well, except where
    /// the filesystem has no hard links. An entry that does not exist needs nothing.
    ///
    /// # Errors
    /// What the system says; the entry is where it was.
    pub fn keep(&self, from: &Dir, name: &Component) -> io::Result<()> {
        match self.dir.make_hard_link(&self.name, from, name) {
            Err(error) => match Errno::from_io_error(&error) {
                Some(Errno::NOENT) => Ok(()),
                Some(Errno::XDEV) => self.copy(from, name),
                Some(Errno::PERM | Errno::MLINK | Errno::OPNOTSUPP) => self.take(from, name),
                _ => Err(error),
            },
            Ok(()) => Ok(()),
        }
    }

    /// Moves the entry `name` of `from` here. An entry that does not exist needs nothing.
    ///
    /// # Errors
    /// What the system says; the entry is where it was.
    pub fn take(&self, from: &Dir, name: &Component) -> io::Result<()> {
        match renameat(from, name.as_c_str(), &*self.dir, self.name.as_c_str()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(Errno::XDEV) => {
                self.copy(from, name)?;
                from.remove_file(name)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Copies the entry `name` of `from` here, as it must be kept when it is written into.
    ///
    /// # Errors
    /// What the system says; `EISDIR` for a directory.
    pub fn copy(&self, from: &Dir, name: &Component) -> io::Result<()> {
        let now = match from.stat(name) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            now => now?,
        };
        let wanted = wanted(&now, from.extended(name, EVERYTHING).ok());
        let special = match now.kind {
            Kind::Dir => return Err(Errno::ISDIR.into()),
            Kind::File => return self.copy_file(from, name, &wanted),
            Kind::Symlink => {
                let text = from.read_link(name)?;
                return self.dir.make_symlink(&self.name, &text, &wanted).map(|_| ());
            }
            Kind::Fifo => Special::Fifo,
            Kind::Socket => Special::Socket,
            Kind::CharDevice => Special::CharDevice(now.rdev),
            Kind::BlockDevice => Special::BlockDevice(now.rdev),
        };
        self.dir.make_special(&self.name, special, &wanted).map(|_| ())
    }

    fn copy_file(&self, from: &Dir, name: &Component, wanted: &Wanted) -> io::Result<()> {
        let old = from.open_source(name)?;
        let staged = StagedFile::create(&self.dir, self.name.clone())?;
        staged.copy_all(&old, &Sharing::default(), false).map_err(CopyError::into_inner)?;
        // On the disk before the original is written into, whatever the run's durability.
        staged.prepare(wanted, None, Durability::File)?.commit().map_err(io::Error::other)
    }
}

fn wanted(now: &Metadata, extended: Option<Extended>) -> Wanted {
    Wanted {
        extended: extended.map(Arc::new),
        mode: Some(now.mode),
        mtime: Some(now.mtime),
        atime: None,
        uid: Some(now.uid),
        gid: Some(now.gid),
    }
}

const EVERYTHING: ExtendedScope = ExtendedScope { acls: true, xattrs: true };

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::disallowed_methods)]
mod tests {
    use std::{fs, os::unix::fs::MetadataExt};

    use super::*;

    fn name(text: &str) -> Component {
        Component::new(text.as_bytes()).unwrap()
    }

    fn dir(path: &std::path::Path) -> Arc<Dir> {
        fs::create_dir_all(path).unwrap();
        Arc::new(Dir::open_operand(path).unwrap())
    }

    #[test]
    fn kept_entry_stays_and_taken_entry_goes() {
        let scratch = tempfile::tempdir().unwrap();
        let at = |path: &str| scratch.path().join(path);
        let (tree, old) = (dir(&at("tree")), dir(&at("old")));
        fs::write(at("tree/a"), "one").unwrap();
        fs::write(at("old/a"), "older backup").unwrap();
        let place = BackupPlace::new(old, name("a"));
        place.keep(&tree, &name("a")).unwrap();
        assert_eq!(fs::metadata(at("tree/a")).unwrap().ino(), fs::metadata(at("old/a")).unwrap().ino());
        // Once more: both names are of one file already.
        place.keep(&tree, &name("a")).unwrap();
        assert_eq!(fs::read_dir(at("old")).unwrap().count(), 1);
        place.take(&tree, &name("a")).unwrap();
        place.keep(&tree, &name("gone")).unwrap();
        place.take(&tree, &name("gone")).unwrap();
        assert_eq!(fs::read(at("old/a")).unwrap(), b"one");
    }

    #[test]
    fn copied_entry_is_another_file_with_the_same_attributes() {
        let scratch = tempfile::tempdir().unwrap();
        let tree = dir(scratch.path());
        fs::write(scratch.path().join("a"), "one").unwrap();
        std::os::unix::fs::symlink("text", scratch.path().join("l")).unwrap();
        for from in ["a", "l"] {
            let to = name(&format!("{from}~"));
            BackupPlace::new(Arc::clone(&tree), to.clone()).copy(&tree, &name(from)).unwrap();
            let (old, new) = (tree.stat(&name(from)).unwrap(), tree.stat(&to).unwrap());
            assert_ne!(old.ino, new.ino);
            assert_eq!((old.kind, old.mode, old.mtime, old.size), (new.kind, new.mode, new.mtime, new.size));
        }
        let place = BackupPlace::new(Arc::clone(&tree), name("d~"));
        fs::create_dir(scratch.path().join("d")).unwrap();
        assert!(place.copy(&tree, &name("d")).is_err());
    }
}
