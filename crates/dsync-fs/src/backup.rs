//! Keeps entries that are about to be replaced or removed, under another name.
//!
//! The law: a replaced entry has its backup before its name shows the new content. If the
//! filesystem has hard links, its name is never missing meanwhile. An earlier backup of that name
//! is replaced in one step. A backup that is a copy says what it lacks of its original; without the
//! content there is none. A directory is never kept as a whole. A directory that has the backup's
//! name gives way only if it is a backup itself, and only once the new backup stands.

use std::{
    io,
    sync::{Arc, atomic::AtomicBool},
};

use rustix::io::Errno;

use crate::{
    attributes::Wanted,
    commit::Durability,
    component::Component,
    dir::{Dir, Special},
    extended::{Extended, ExtendedScope, Withheld},
    extents::{CopyError, Sharing},
    metadata::{Kind, Metadata, Timestamp},
    own_places::OwnPlaces,
    remove::Spare,
    staged::{StagedFile, temp_name},
};

/// The name under which one entry is kept.
#[derive(Debug, Clone)]
pub struct BackupPlace {
    dir: Arc<Dir>,
    name: Component,
    /// A backup that was made at this time or later stays.
    since: Option<Timestamp>,
    /// A directory of this name is replaced, but not if it holds one of these places.
    over: Option<Arc<OwnPlaces>>,
    /// Flag that makes a copy end early.
    stopped: Option<Arc<AtomicBool>>,
}

impl BackupPlace {
    /// Makes the place for the entry `name` of `dir`. An empty directory of that name will be
    /// replaced.
    pub fn new(dir: Arc<Dir>, name: Component) -> Self {
        Self { dir, name, since: None, over: None, stopped: None }
    }

    /// Makes a copy of content end early once `stopped` is set.
    #[must_use]
    pub fn until(mut self, stopped: &Arc<AtomicBool>) -> Self {
        self.stopped = Some(Arc::clone(stopped));
        self
    }

    /// Leaves a backup alone that was made at this time or later, as the change times of both tell:
    /// of an entry that has such a one no other is made.
    #[must_use]
    pub fn since(self, time: Option<Timestamp>) -> Self {
        Self { since: time, ..self }
    }

    /// Lets the backup replace a directory of older backups, unless it holds one of `spared`.
    #[must_use]
    pub fn over_older(mut self, spared: &Arc<OwnPlaces>) -> Self {
        self.over = Some(Arc::clone(spared));
        self
    }

    /// Returns the directory of the backup.
    pub fn dir(&self) -> &Arc<Dir> {
        &self.dir
    }

    /// Returns the name of the backup.
    pub fn name(&self) -> &Component {
        &self.name
    }

    /// Keeps the entry `name` of `from`, which is about to be replaced. It also stays in place,
    /// except on a filesystem without hard links. An entry that does not exist needs no backup.
    /// Returns what the backup lacks of the entry: on another filesystem it is a copy.
    ///
    /// # Errors
    /// The system's error; the entry is where it was.
    pub fn keep(&self, from: &Dir, name: &Component) -> io::Result<Withheld> {
        if self.stands(from, name) {
            return Ok(Withheld::default());
        }
        self.over_directory(|| match self.dir.make_hard_link(&self.name, from, name) {
            Err(error) => match Errno::from_io_error(&error) {
                // In a directory that somebody has removed nothing can be made, with the same error.
                Some(Errno::NOENT) if from.lacks(name) => Ok(Withheld::default()),
                Some(Errno::XDEV) if self.may_copy() => self.copy_here(from, name),
                // A directory cannot have a hard link either.
                Some(Errno::PERM) if from.stat(name).is_ok_and(|now| now.kind == Kind::Dir) => {
                    Err(Errno::ISDIR.into())
                }
                // Some filesystems in user space answer with EIO that they know no hard links.
                Some(Errno::PERM | Errno::MLINK | Errno::OPNOTSUPP | Errno::NOSYS | Errno::IO) => {
                    self.take_here(from, name)
                }
                _ => Err(error),
            },
            Ok(()) => Ok(Withheld::default()),
        })
    }

    /// Moves the entry `name` of `from` here, or removes it where its backup stands already. An entry
    /// that does not exist needs no backup. Returns what the backup lacks, as [`keep`](Self::keep)
    /// does.
    ///
    /// # Errors
    /// The system's error; the entry is where it was.
    pub fn take(&self, from: &Dir, name: &Component) -> io::Result<Withheld> {
        if self.stands(from, name) {
            return from.remove_file(name).map(|()| Withheld::default());
        }
        self.over_directory(|| self.take_here(from, name))
    }

    /// Returns whether entries of another filesystem are copied here. Where only additions are allowed an
    /// unfinished copy could not be removed.
    fn may_copy(&self) -> bool {
        !self.dir.adds_only()
    }

    fn take_here(&self, from: &Dir, name: &Component) -> io::Result<Withheld> {
        let Err(error) = self.dir.give_name(from, name, &self.name) else { return Ok(Withheld::default()) };
        match Errno::from_io_error(&error) {
            Some(Errno::NOENT) if from.lacks(name) => Ok(Withheld::default()),
            Some(Errno::XDEV) if self.may_copy() => {
                let withheld = self.copy_here(from, name)?;
                from.remove_file(name).map(|()| withheld)
            }
            // It has its backup already, where nothing may be replaced.
            Some(Errno::EXIST) if self.holds(from, name) => {
                from.remove_file(name).map(|()| Withheld::default())
            }
            _ => Err(error),
        }
    }

    /// Returns whether a backup of the entry has the name that must stay.
    fn stands(&self, from: &Dir, name: &Component) -> bool {
        let Some(since) = self.since else { return false };
        let is_new = |found: &Metadata| found.kind != Kind::Dir && found.ctime >= since;
        if !self.dir.stat(&self.name).is_ok_and(|backup| is_new(&backup)) {
            return false;
        }
        // Another name of an older backup may have come or gone meanwhile, which its change time does not
        // tell from a new backup. An entry that has a new one was replaced since, or is that backup.
        from.stat(name).is_ok_and(|entry| is_new(&entry)) || self.holds(from, name)
    }

    /// Returns whether the backup is a further name of an entry.
    fn holds(&self, from: &Dir, name: &Component) -> bool {
        let (Ok(here), Ok(there)) = (self.dir.stat(&self.name), from.stat(name)) else { return false };
        (here.dev, here.ino) == (there.dev, there.ino)
    }

    /// Copies the entry `name` of `from` here, as needed before a write into the entry itself.
    /// Returns what the copy lacks of it.
    ///
    /// # Errors
    /// The system's error; `EISDIR` for a directory.
    pub fn copy(&self, from: &Dir, name: &Component) -> io::Result<Withheld> {
        // A write into the entry would change its further names as well.
        if self.stands(from, name) && !self.holds(from, name) {
            return Ok(Withheld::default());
        }
        self.over_directory(|| self.copy_here(from, name))
    }

    /// Makes the backup. A directory of its name is first moved aside, and moved back if the backup
    /// fails.
    fn over_directory(&self, make: impl Fn() -> io::Result<Withheld>) -> io::Result<Withheld> {
        let error = match make() {
            Ok(withheld) => return Ok(withheld),
            Err(error) => error,
        };
        if !self.dir.stat(&self.name).is_ok_and(|now| now.kind == Kind::Dir)
            || !self.may_replace_directory()?
        {
            return Err(error);
        }
        let aside = temp_name()?;
        self.dir.rename(&self.name, &aside)?;
        match make() {
            Ok(withheld) => {
                // The backup stands, so leftovers of an older one are no reason to fail.
                let _ = self.dir.remove_tree(&aside, Spare::NOTHING, &mut |_, _| {});
                Ok(withheld)
            }
            Err(error) => {
                self.dir.rename(&aside, &self.name)?;
                Err(error)
            }
        }
    }

    /// Returns whether the directory in the way is empty or one of older backups.
    fn may_replace_directory(&self) -> io::Result<bool> {
        let Some(over) = &self.over else {
            let found = self.dir.open_child(&self.name)?.list();
            return Ok(found.complete && found.entries.is_empty());
        };
        let mut goes_whole = false;
        let spare = Spare { places: Some(over), ..Spare::NOTHING };
        let listed = self.dir.list_tree(&self.name, spare, &mut |path, _| goes_whole |= path.depth() == 1);
        Ok(listed.is_ok() && goes_whole)
    }

    /// Copies the entry, and writes the copy with its name to the disk: nothing else orders it before what
    /// happens to the original, whatever the run's durability.
    fn copy_here(&self, from: &Dir, name: &Component) -> io::Result<Withheld> {
        let withheld = self.copy_entry(from, name)?;
        self.dir.sync().map(|()| withheld)
    }

    fn copy_entry(&self, from: &Dir, name: &Component) -> io::Result<Withheld> {
        let now = match from.stat(name) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Withheld::default()),
            now => now?,
        };
        // An entry that cannot be read gets no backup: nobody would know what the copy lacks.
        let wanted = wanted(&now, from.extended(name, EVERYTHING)?);
        let special = match now.kind {
            Kind::Dir => return Err(Errno::ISDIR.into()),
            Kind::File => return self.copy_file(from, name, &wanted),
            Kind::Symlink => {
                let text = from.read_link(name)?;
                return self.dir.make_symlink(&self.name, &text, &wanted);
            }
            Kind::Fifo => Special::Fifo,
            Kind::Socket => Special::Socket,
            Kind::CharDevice => Special::CharDevice(now.rdev),
            Kind::BlockDevice => Special::BlockDevice(now.rdev),
        };
        self.dir.make_special(&self.name, special, &wanted)
    }

    fn copy_file(&self, from: &Dir, name: &Component, wanted: &Wanted) -> io::Result<Withheld> {
        let old = from.open_source(name)?;
        let staged = StagedFile::create(&self.dir, self.name.clone())?;
        let sharing = self.stopped.iter().fold(Sharing::default(), Sharing::until);
        staged.copy_all(&old, &sharing, false).map_err(CopyError::into_inner)?;

        let prepared = staged.prepare(wanted, None, Durability::File)?;
        let withheld = prepared.withheld();
        prepared.commit().map_err(io::Error::other).map(|()| withheld)
    }
}

fn wanted(now: &Metadata, extended: Extended) -> Wanted {
    Wanted {
        extended: Some(Arc::new(extended)),
        mode: Some(now.mode),
        mtime: Some(now.mtime),
        atime: None,
        uid: Some(now.uid),
        gid: Some(now.gid),
    }
}

const EVERYTHING: ExtendedScope = ExtendedScope { acls: true, xattrs: true, users_only: false };

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
        // Once more: both names already refer to one file.
        place.keep(&tree, &name("a")).unwrap();
        assert_eq!(fs::read_dir(at("old")).unwrap().count(), 1);
        place.take(&tree, &name("a")).unwrap();
        assert!(!at("tree/a").exists(), "what has its backup already goes all the same");
        place.keep(&tree, &name("gone")).unwrap();
        place.take(&tree, &name("gone")).unwrap();
        assert_eq!(fs::read(at("old/a")).unwrap(), b"one");
    }

    #[test]
    fn entry_stays_where_its_backup_cannot_be_as_the_directory_of_backups_is_gone() {
        let scratch = tempfile::tempdir().unwrap();
        let at = |path: &str| scratch.path().join(path);
        let (tree, old) = (dir(&at("tree")), dir(&at("old")));
        fs::write(at("tree/a"), "one").unwrap();
        let place = BackupPlace::new(old, name("a"));
        fs::remove_dir(at("old")).unwrap();
        for kept in
            [place.keep(&tree, &name("a")), place.take(&tree, &name("a")), place.copy(&tree, &name("a"))]
        {
            assert_eq!(kept.unwrap_err().kind(), io::ErrorKind::NotFound);
        }
        assert_eq!(fs::read(at("tree/a")).unwrap(), b"one");
        // Of what is not there none is missing.
        place.keep(&tree, &name("gone")).unwrap();
        place.take(&tree, &name("gone")).unwrap();
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
