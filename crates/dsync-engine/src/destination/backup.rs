//! Where what the run replaces or removes is kept (`-b`).
//!
//! Without a directory of its own a backup stays in its directory under another name; then names that end like
//! backups are never removed. With one, the backups form a tree of the same shape, whose directories are made
//! when they are needed and look like the originals; below the destination that tree is left alone.

use std::{
    ffi::OsStr,
    io,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
};

use dsync_fs::{BackupPlace, Component, Dir, ExtendedScope, Kind, RelPath, Wanted};
use dsync_wire::options::{Backup, WritePolicy};

use super::directory::Directory;
use crate::halt::lock;

/// Keeps what is replaced.
pub(super) struct Backups {
    /// The destination's root.
    root: Arc<Dir>,
    /// Where the tree of backups is; `None`: each stays in its directory.
    tree: Option<PathBuf>,
    suffix: Vec<u8>,
    opened: Mutex<Opened>,
}

/// The tree of backups once there is one.
#[derive(Default)]
struct Opened {
    root: Option<Arc<Dir>>,
    /// The last directory that was asked for.
    last: Option<(RelPath, Arc<Dir>)>,
}

impl Backups {
    pub(super) fn new(root: &Arc<Dir>, backup: &Backup) -> Self {
        let tree = backup.dir.as_ref().map(|dir| PathBuf::from(OsStr::from_bytes(dir)));
        Self { root: Arc::clone(root), tree, suffix: backup.suffix.clone(), opened: Mutex::default() }
    }

    /// Where the entry `name` of a directory is kept.
    pub(super) fn place(&self, dir: &Arc<Dir>, path: &RelPath, name: &Component) -> io::Result<BackupPlace> {
        let kept = [name.as_bytes(), &self.suffix].concat();
        // A name that is too long for its suffix.
        let kept =
            Component::new(&kept).map_err(|error| io::Error::new(io::ErrorKind::InvalidFilename, error))?;
        let dir = match &self.tree {
            None => Arc::clone(dir),
            Some(tree) => self.twin(tree, path)?,
        };
        Ok(BackupPlace::new(dir, kept))
    }

    /// The directory of the tree that stands for a directory of the destination.
    fn twin(&self, tree: &Path, path: &RelPath) -> io::Result<Arc<Dir>> {
        let mut opened = lock(&self.opened);
        if let Some((known, dir)) = &opened.last
            && known == path
        {
            return Ok(Arc::clone(dir));
        }
        let root = match &opened.root {
            Some(root) => Arc::clone(root),
            None => Arc::clone(opened.root.insert(self.open_tree(tree)?)),
        };
        let mut twin = root;
        let mut original = Some(Arc::clone(&self.root));
        for name in path.components() {
            let name =
                Component::new(name).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
            original = original.and_then(|dir| dir.open_child(&name).ok()).map(Arc::new);
            twin = Arc::new(match twin.open_child(&name) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    twin.make_dir(&name, 0o700)?;
                    let made = twin.open_child(&name)?;
                    if let Some(access) = original.as_ref().and_then(|dir| access_to(dir).ok()) {
                        made.set_own_attributes(&access)?;
                    }
                    made
                }
                opened => opened?,
            });
        }
        opened.last = Some((path.clone(), Arc::clone(&twin)));
        Ok(twin)
    }

    /// Opens the tree, made where it is missing. In the destination that is no change of the destination.
    fn open_tree(&self, tree: &Path) -> io::Result<Arc<Dir>> {
        let before = self.root.metadata()?.mtime;
        let opened = self.root.create_operand_here(tree)?;
        if self.root.metadata()?.mtime != before {
            self.root.set_own_attributes(&Wanted { mtime: Some(before), ..Wanted::default() })?;
        }
        Ok(Arc::new(opened))
    }
}

/// Who may do what in a directory.
fn access_to(dir: &Dir) -> io::Result<Wanted> {
    let now = dir.metadata()?;
    // Without its list a directory's mode admits more than the list does.
    let lists = dir.own_extended(ExtendedScope { acls: true, xattrs: false }).ok();
    let (mode, uid, gid) = (Some(now.mode), Some(now.uid), Some(now.gid));
    Ok(Wanted { mode, uid, gid, extended: lists.map(Arc::new), ..Wanted::default() })
}

/// What a run never removes of its own.
#[derive(Clone, Default)]
pub(super) struct Kept {
    suffix: Option<Vec<u8>>,
    trees: Vec<RelPath>,
}

impl Kept {
    pub(super) fn of(policy: &WritePolicy) -> Self {
        let suffix = policy.backup.as_ref().filter(|backup| backup.dir.is_none());
        let suffix = suffix.map(|backup| backup.suffix.clone());
        let dirs = policy.backup.iter().filter_map(|backup| backup.dir.as_ref()).chain(&policy.temp_dir);
        let below = |dir: &Vec<u8>| {
            let dir = dir.strip_prefix(b"./").unwrap_or(dir);
            let dir = dir.strip_suffix(b"/").unwrap_or(dir);
            RelPath::parse(dir).ok().filter(|path| !path.is_root())
        };
        Self { suffix, trees: dirs.filter_map(below).collect() }
    }

    /// True for a backup, for the tree of them, and for the directory of temporaries.
    pub(super) fn covers(&self, path: &RelPath, kind: Kind) -> bool {
        let named = |suffix: &Vec<u8>| kind != Kind::Dir && path.as_bytes().ends_with(suffix);
        self.suffix.as_ref().is_some_and(named) || self.trees.contains(path)
    }
}

impl super::Site<'_> {
    /// Where an entry that is about to be replaced or removed is kept; `None` when it need not be.
    pub(super) fn backup_of(
        &self,
        dir: &Arc<Dir>,
        path: &RelPath,
        name: &Component,
    ) -> io::Result<Option<BackupPlace>> {
        let Some(backups) = self.backups.get() else { return Ok(None) };
        let place = backups.place(dir, path, name)?;
        self.touched(place.dir());
        Ok(Some(place))
    }

    /// As [`backup_of`](Self::backup_of), with a directory that is only borrowed.
    pub(super) fn backup_beside(
        &self,
        dir: &Dir,
        path: &RelPath,
        name: &Component,
    ) -> io::Result<Option<BackupPlace>> {
        if self.backups.get().is_none() {
            return Ok(None);
        }
        self.backup_of(&Arc::new(dir.duplicate()?), path, name)
    }

    /// Keeps the entry of a directory that is about to be replaced.
    pub(super) fn keep(&self, directory: &Directory, name: &Component) -> io::Result<()> {
        let Some(dir) = &directory.dir else { return Ok(()) };
        match self.backup_of(dir, &directory.path, name)? {
            Some(place) => place.keep(dir, name),
            None => Ok(()),
        }
    }
}
