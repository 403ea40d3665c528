//! Backups of entries that are about to lose their names.

use std::{io, sync::Arc};

use dsync_fs::{Component, Dir, Kind, RelPath};

use super::{Site, directory::Directory, protection::Protection, removal};
use crate::SyncError;

/// Keeps the entry of a name that another one is about to take; the inner error is the reason why
/// it must not. Without backups everything may give way.
///
/// With a `protection` a directory may give way as well: all that is in it is moved to its backup,
/// and the emptied directory keeps its name.
pub(super) fn secure(
    site: &Site<'_>,
    dir: &Arc<Dir>,
    parent: &RelPath,
    name: &Component,
    protection: Option<&Protection>,
) -> Result<io::Result<()>, SyncError> {
    if site.backups.get().is_none() {
        return Ok(Ok(()));
    }

    let old = match dir.stat(name) {
        Ok(old) => old,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Ok(())),
        Err(error) => return Ok(Err(error)),
    };

    if old.kind != Kind::Dir {
        let place = match site.backup_of(dir, parent, name) {
            Ok(Some(place)) => place,
            Ok(None) => return Ok(Ok(())),
            Err(error) => return Ok(Err(error)),
        };
        return match place.keep(dir, name) {
            Ok(withheld) => site.tell_backup(parent, name, &place, withheld).map(Ok),
            Err(error) => Ok(Err(error)),
        };
    }
    match protection {
        Some(protection) => removal::empty(site, dir, parent, name, protection),
        // It was not there when the run decided; the rename fails.
        None => Ok(Ok(())),
    }
}

/// Works as [`secure`], for an entry that never takes a directory's name.
pub(super) fn keep(
    site: &Site<'_>,
    directory: &Directory,
    name: &Component,
) -> Result<io::Result<()>, SyncError> {
    let Some(dir) = &directory.dir else { return Ok(Ok(())) };
    secure(site, dir, &directory.path, name, None)
}
