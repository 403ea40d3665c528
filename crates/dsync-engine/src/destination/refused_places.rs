//! Refusals of the directories that options name and that cannot be used: before anything is made.

use std::{
    ffi::OsStr,
    io,
    os::unix::ffi::OsStrExt,
    path::{self, Path, PathBuf},
};

use dsync_fs::{Component, Dir, LeadsOut, UntrustedLink};
use dsync_wire::options::WritePolicy;

use crate::{SyncError, error::PathRole, footprint::from_missing};

/// Refuses a directory that is made only when it is needed, if it is something else, has a name that is too
/// long, or another user's link is on the way.
pub(super) fn refuse(role: PathRole, path: &Path, opened: io::Result<Dir>) -> Result<(), SyncError> {
    match opened {
        Err(error)
            if UntrustedLink::of(&error).is_some()
                || LeadsOut::of(&error).is_some()
                || matches!(error.kind(), io::ErrorKind::NotADirectory | io::ErrorKind::InvalidFilename) =>
        {
            Err(unusable(role, path, error))
        }
        _ => Ok(()),
    }
}

/// Refuses the directories that a run writes into beside its tree, if its root, `below` the
/// directory `base`, does not exist yet. Relative ones start at that root.
pub(super) fn refuse_from_missing(policy: &WritePolicy, base: &Dir, below: &Path) -> Result<(), SyncError> {
    let open = |dir: &[u8]| {
        let path = Path::new(OsStr::from_bytes(dir));
        (path.to_owned(), base.open_operand_above(&from_missing(below, path)))
    };
    // The root itself will be there.
    let is_root = |dir: &&Vec<u8>| {
        Path::new(OsStr::from_bytes(dir)).components().all(|part| part == path::Component::CurDir)
    };
    if let Some(dir) = policy.temp_dir.as_ref().filter(|dir| !is_root(dir)) {
        let (path, opened) = open(dir);
        opened.map_err(|source| unusable(PathRole::Temporaries, &path, source))?;
    }
    let partial = policy.partial_dir.as_ref().filter(|dir| Component::new(dir).is_err());
    let backup = policy.backup.as_ref().and_then(|backup| backup.dir.as_ref());
    for (role, dir) in [(PathRole::Partials, partial), (PathRole::Backups, backup)] {
        if let Some((path, opened)) = dir.map(|dir| open(dir)) {
            refuse(role, &path, opened)?;
        }
    }
    Ok(())
}

/// Returns the error for a directory that an option names.
pub(super) fn unusable(role: PathRole, path: &Path, source: io::Error) -> SyncError {
    SyncError::of_path(role, path, source, |path: PathBuf, source| SyncError::DirectoryUnusable {
        role,
        path,
        source,
    })
}
