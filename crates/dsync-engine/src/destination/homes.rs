//! Directories where content is written until it has its name: beside its target or, if so wished,
//! elsewhere.
//!
//! The law: a directory that is named within the destination is one component beside the target and
//! never a link; one of the operator's own is opened once. Whatever is in either is taken for a
//! peer's: see [`dsync_fs::KeptNames`]. A client with limited rights finds only what it has left itself.

use std::{
    ffi::OsStr,
    io,
    os::unix::ffi::OsStrExt,
    path::PathBuf,
    sync::{Arc, OnceLock, atomic::AtomicBool},
};

use dsync_delta::ContentHasher;
use dsync_fs::{Component, Dir, KeptNames, Kind, OwnPlaces, SpoolHome, StagedFile, apart};
use dsync_wire::options::WritePolicy;

use super::refused_places::unusable;
use crate::{SyncError, error::PathRole};

/// The directories of a run's temporaries and unfinished files.
pub(super) struct Homes {
    /// The operator's directory of temporaries.
    temp_dir: Option<PathBuf>,
    temporaries: OnceLock<Arc<Dir>>,
    /// The home of files without a name.
    spools: OnceLock<SpoolHome>,
    parts: PartHome,
    /// The name of the client, if it has one.
    holder: Vec<u8>,
    /// Set when the run ends.
    stopped: Arc<AtomicBool>,
}

/// The surroundings in which the homes of a run are opened.
#[derive(Clone, Copy)]
pub(super) struct Around<'a> {
    /// Directories that belong to the run.
    pub(super) own: &'a Arc<OwnPlaces>,
    /// The home of lists that outgrow memory.
    pub(super) spools: &'a SpoolHome,
    /// Whether the run is local: it keeps no unfinished files.
    pub(super) local: bool,
}

/// A directory of unfinished files.
pub(super) struct Parts {
    pub(super) dir: Arc<Dir>,
    /// It is beside the targets, and dsync's own: the run may remove it once it is empty.
    pub(super) is_own: bool,
    /// It was not there before.
    pub(super) is_new: bool,
}

/// Permissions of a directory of unfinished files beside their targets.
pub(super) const PARTS_MODE: u16 = 0o700;

/// The place of files that may outlive the run.
enum PartHome {
    /// The directory where they are written.
    WithTemporaries,
    /// In a directory of this name beside the target.
    Within(Component),
    /// In a directory of the operator's own.
    Apart(PathBuf, OnceLock<Arc<Dir>>),
}

impl Homes {
    pub(super) fn new(policy: &WritePolicy, holder: &[u8], stopped: &Arc<AtomicBool>) -> Self {
        let path = |dir: &[u8]| PathBuf::from(OsStr::from_bytes(dir));
        let parts = match policy.partial_dir.as_deref() {
            None => PartHome::WithTemporaries,
            Some(dir) => Component::new(dir)
                .map_or_else(|_| PartHome::Apart(path(dir), OnceLock::new()), PartHome::Within),
        };
        let temp_dir = policy.temp_dir.as_deref().map(path);
        let (holder, stopped) = (holder.to_vec(), Arc::clone(stopped));
        let (temporaries, spools) = (OnceLock::new(), OnceLock::new());
        Self { temp_dir, temporaries, spools, parts, holder, stopped }
    }

    /// Opens the operator's own directories that must be there.
    pub(super) fn open(&self, root: &Dir, own: &OwnPlaces) -> Result<(), SyncError> {
        if let Some(path) = &self.temp_dir {
            let dir = root
                .open_operand_here(path)
                .map_err(|source| unusable(PathRole::Temporaries, path, source))?;
            let _ = own.add(&dir);
            let _ = self.temporaries.set(Arc::new(dir));
        }
        if let PartHome::Apart(path, _) = &self.parts
            && let Ok(dir) = root.open_operand_here(path)
        {
            // Whoever uses it, this run or the next.
            let _ = own.add(&dir);
        }
        Ok(())
    }

    /// Makes the operator's own directories ready for content: removes the temporaries of killed
    /// runs, creates missing directories.
    pub(super) fn prepare(&self, root: &Dir, around: &Around<'_>) -> Result<(), SyncError> {
        let Around { own, spools, local } = *around;
        if let Some(dir) = self.temporaries.get() {
            apart::reap_all(dir);
            spools.prefer(Arc::clone(dir));
        }
        let _ = self.spools.set(spools.clone());
        if let PartHome::Apart(path, opened) = &self.parts
            && !local
        {
            let dir = root
                .create_operand_here(path, false)
                .map(|dir| dir.with_fake_super(false))
                .map_err(|source| unusable(PathRole::Partials, path, source))?;
            let _ = own.add(&dir);
            let _ = opened.set(Arc::new(dir));
        }
        Ok(())
    }

    /// Creates a temporary file that is to become `target` in `dir`.
    pub(super) fn stage(&self, dir: &Arc<Dir>, target: Component) -> io::Result<StagedFile> {
        match self.temporaries.get() {
            Some(home) => Ok(StagedFile::create_apart(home, dir, target)?.until(&self.stopped)),
            None => StagedFile::create(dir, target),
        }
    }

    /// Creates a temporary file for the new bytes of `target`, which is rewritten from it. Where none can be
    /// made beside it, as its directory may not be written, it is one without a name elsewhere.
    pub(super) fn stage_rewriting(&self, dir: &Arc<Dir>, target: Component) -> io::Result<StagedFile> {
        let error = match self.stage(dir, target.clone()) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => error,
            staged => return staged,
        };
        let Some(Ok(file)) = self.spools.get().map(SpoolHome::scratch_file) else { return Err(error) };
        Ok(StagedFile::without_name(file, dir, target))
    }

    /// Returns whether a directory of the destination is one of the operator's own: entries with
    /// dsync's names there may be another run's, or another directory's.
    pub(super) fn holds(&self, dir: &Dir) -> bool {
        let parts = if let PartHome::Apart(_, opened) = &self.parts { opened.get() } else { None };
        self.temporaries.get().into_iter().chain(parts).any(|own| own.is_same(dir).unwrap_or(true))
    }

    /// Returns whether an entry is the directory of unfinished files beside it.
    pub(super) fn is_for_parts(&self, name: &Component, kind: Kind) -> bool {
        kind == Kind::Dir && matches!(&self.parts, PartHome::Within(within) if within == name)
    }

    /// Opens the directory that keeps the unfinished files of targets in `beside`; makes it if it
    /// is missing and `make` is set.
    pub(super) fn of_parts(&self, beside: &Arc<Dir>, make: bool) -> io::Result<Parts> {
        let elsewhere = |dir| Parts { dir, is_own: false, is_new: false };
        match &self.parts {
            PartHome::WithTemporaries => Ok(elsewhere(Arc::clone(self.temporaries.get().unwrap_or(beside)))),
            PartHome::Apart(_, opened) => {
                opened.get().cloned().map(elsewhere).ok_or_else(|| io::ErrorKind::NotFound.into())
            }
            PartHome::Within(name) => match beside.open_child(name) {
                Err(error) if error.kind() == io::ErrorKind::NotFound && make => {
                    match beside.make_dir(name, PARTS_MODE) {
                        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
                        _ => {}
                    }
                    Ok(Parts { dir: Arc::new(beside.open_child(name)?), is_own: true, is_new: true })
                }
                opened => {
                    let dir = opened?;
                    // One that others may enter was made by somebody else.
                    let is_own = dir.metadata()?.mode == PARTS_MODE;
                    Ok(Parts { dir: Arc::new(dir), is_own, is_new: false })
                }
            },
        }
    }

    /// Returns the name under which a complete file waits beside its target for a later run.
    pub(super) fn finished_name(&self, target: &Component) -> io::Result<Component> {
        kept_names(self.hasher().update(target.as_bytes())).map(|names| names.finished)
    }

    /// Returns the name of the note that the file of an inode is being written into, which stands beside it.
    pub(super) fn note_name(inode: &[u8; 32]) -> io::Result<Component> {
        kept_names(ContentHasher::new().update(inode)).map(|names| names.notes)
    }

    /// Returns the names under which a part of a file is kept there.
    pub(super) fn part_names(&self, dir: &Dir, target: &Component) -> io::Result<KeptNames> {
        let mut hasher = self.hasher();
        let shared = match self.parts {
            PartHome::WithTemporaries => self.temporaries.get().is_some(),
            PartHome::Within(_) => false,
            PartHome::Apart(..) => true,
        };
        if shared {
            hasher.update(dir.real_path()?.as_os_str().as_bytes()).update(b"/");
        }
        kept_names(hasher.update(target.as_bytes()))
    }

    /// Begins the sum of a name: no client takes up what another one left.
    fn hasher(&self) -> ContentHasher {
        let mut hasher = ContentHasher::new();
        if !self.holder.is_empty() {
            // No target has a zero byte.
            hasher.update(&self.holder).update(&[0]);
        }
        hasher
    }

    /// Removes the directory of unfinished files beside this one if it is empty. Returns whether it
    /// did.
    pub(super) fn tidy(&self, beside: &Dir) -> bool {
        let PartHome::Within(name) = &self.parts else { return false };
        beside.remove_empty_dir(name).is_ok()
    }
}

fn kept_names(hasher: &ContentHasher) -> io::Result<KeptNames> {
    let mut name = [0; 16];
    name.copy_from_slice(&hasher.finish()[..16]);
    KeptNames::new(name)
}
