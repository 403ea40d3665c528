//! Where content is written until it has its name: beside its target or, if so wished, in another directory.
//!
//! The law: a directory that is named within the destination is one component beside the target and never a link; one
//! of the operator's own is opened once. Whatever is in either is taken for a peer's: see [`dsync_fs::KeptNames`].

use std::{
    ffi::OsStr,
    io,
    os::unix::ffi::OsStrExt,
    path::PathBuf,
    sync::{Arc, OnceLock},
};

use dsync_delta::ContentHasher;
use dsync_fs::{Component, Dir, KeptNames, Kind};
use dsync_wire::options::WritePolicy;

use super::{Site, directory::Directory};
use crate::SyncError;

/// The directories of a run's unfinished files.
pub(super) struct Homes {
    parts: PartHome,
}

/// Where files are kept that may outlive the run.
enum PartHome {
    Beside,
    /// In a directory of this name beside the target.
    Within(Component),
    /// In a directory of the operator's own.
    Apart(PathBuf, OnceLock<Arc<Dir>>),
}

impl Homes {
    pub(super) fn new(policy: &WritePolicy) -> Self {
        let parts = match policy.partial_dir.as_deref() {
            None => PartHome::Beside,
            Some(dir) => Component::new(dir).map_or_else(
                |_| PartHome::Apart(PathBuf::from(OsStr::from_bytes(dir)), OnceLock::new()),
                PartHome::Within,
            ),
        };
        Self { parts }
    }

    /// Opens the operator's own directories.
    pub(super) fn open(&self) -> Result<(), SyncError> {
        if let PartHome::Apart(path, opened) = &self.parts {
            let dir = Dir::create_operand(path, false)
                .map_err(|source| SyncError::DestinationUnusable { path: path.clone(), source })?;
            let _ = opened.set(Arc::new(dir));
        }
        Ok(())
    }

    /// True for an entry that is the directory of unfinished files beside it.
    pub(super) fn is_for_parts(&self, name: &Component, kind: Kind) -> bool {
        kind == Kind::Dir && matches!(&self.parts, PartHome::Within(within) if within == name)
    }

    /// The directory that unfinished files of this one are kept in, made if it is missing and `make`.
    pub(super) fn of_parts(&self, site: &Site<'_>, beside: &Directory, make: bool) -> io::Result<Arc<Dir>> {
        let dir = beside.dir.as_ref().ok_or(io::ErrorKind::NotFound)?;
        match &self.parts {
            PartHome::Beside => Ok(Arc::clone(dir)),
            PartHome::Apart(_, opened) => opened.get().cloned().ok_or_else(|| io::ErrorKind::NotFound.into()),
            PartHome::Within(name) => {
                let opened = match dir.open_child(name) {
                    Err(error) if error.kind() == io::ErrorKind::NotFound && make => {
                        beside.touch();
                        site.touched(dir);
                        match dir.make_dir(name, 0o700) {
                            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
                            _ => dir.open_child(name)?,
                        }
                    }
                    opened => opened?,
                };
                beside.note_parts();
                Ok(Arc::new(opened))
            }
        }
    }

    /// The names under which a part of a file is kept there.
    pub(super) fn part_names(&self, dir: &Dir, target: &Component) -> io::Result<KeptNames> {
        let mut hasher = ContentHasher::new();
        if let PartHome::Apart(..) = self.parts {
            hasher.update(dir.real_path()?.as_os_str().as_bytes()).update(b"/");
        }
        let sum = hasher.update(target.as_bytes()).finish();
        let mut name = [0; 16];
        name.copy_from_slice(&sum[..16]);
        KeptNames::new(name)
    }

    /// Removes the directory of unfinished files beside this one if it is empty. True when it did.
    pub(super) fn tidy(&self, beside: &Directory) -> bool {
        let (PartHome::Within(name), Some(dir)) = (&self.parts, &beside.dir) else { return false };
        dir.remove_empty_dir(name).is_ok()
    }
}
