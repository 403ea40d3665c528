//! Removes entries with everything below them, and reports each: extraneous entries, and those that
//! give way to another.

use std::{cell::RefCell, io};

use dsync_fs::{Component, Dir, Kind, RelPath, Spare, reap_left};
use dsync_wire::{
    event::{Action, Changes, Planned},
    message::Operation,
};

use super::{Site, allowance::Allowance, protection::Protection};
use crate::{SyncError, plan::file_type_of};

/// An entry to remove.
#[derive(Clone, Copy)]
pub(super) struct Doomed<'a> {
    /// The directory that it is in.
    pub(super) parent: &'a RelPath,
    /// The name that it had, for rules and reports.
    pub(super) name: &'a Component,
    /// The name that it has now.
    pub(super) now: &'a Component,
    pub(super) kind: Kind,
}

impl Doomed<'_> {
    /// Returns the former path of an entry that is `below` the directory now.
    pub(super) fn was(&self, below: &RelPath) -> RelPath {
        let mut path = self.parent.join(self.name);
        for name in below.components().skip(1).filter_map(|name| Component::new(name).ok()) {
            path.push(&name);
        }
        path
    }
}

/// Returns the number of entries in a directory that may go as a whole; `None` if something in it
/// must be kept, or would leave its backup there.
///
/// # Errors
/// The system's, when that is not known.
pub(super) fn contents(
    site: &Site<'_>,
    dir: &Dir,
    doomed: Doomed<'_>,
    protection: &Protection,
) -> Result<Option<u64>, io::Error> {
    let backup = site.policy.options.writing.backup.as_ref();
    let keeps_within = backup.is_some_and(|backup| backup.dir.is_none());
    let entries = |below: &RelPath, kind| {
        keeps_within && kind != Kind::Dir
            || protection.filters_out(&doomed.was(below), kind, below.depth() > 1)
    };
    let spare = protection.spare(site, &entries);
    let (mut goes, mut within) = (false, 0);
    let mut count = |below: &RelPath, _| if below.depth() == 1 { goes = true } else { within += 1 };
    dir.list_tree(doomed.now, spare, &mut count).map_err(|error| error.source)?;
    Ok(goes.then_some(within))
}

/// Removes one entry with everything below it, without a limit, and reports each removal.
pub(super) fn remove(
    site: &Site<'_>,
    dir: &Dir,
    doomed: Doomed<'_>,
    protection: &Protection,
) -> Result<(), SyncError> {
    remove_within(site, dir, doomed, protection, &Allowance::of(None)).map(|_| ())
}

/// Removes a directory that gives its name to another entry, or would in a dry run. As with rsync,
/// only the entries that were in it are told.
pub(super) fn displace(
    site: &Site<'_>,
    dir: &Dir,
    doomed: Doomed<'_>,
    protection: &Protection,
) -> Result<(), SyncError> {
    remove_each(site, dir, doomed, protection, (&Allowance::of(None), false)).map(|_| ())
}

/// Removes a directory that gave its name to another entry. Returns whether all of it is gone.
///
/// If something in it cannot be removed, the directory gets its name back and the other entry goes:
/// under a temporary name nobody would look for what is left, and a later run would remove it.
pub(super) fn make_way(
    site: &Site<'_>,
    dir: &Dir,
    doomed: Doomed<'_>,
    protection: &Protection,
) -> Result<io::Result<()>, SyncError> {
    displace(site, dir, doomed, protection)?;
    let Doomed { name, now, .. } = doomed;
    if name == now || site.stopped() || dir.stat(now).is_err() {
        return Ok(Ok(()));
    }
    let back = dir.exchange(now, name).and_then(|()| dir.remove_file(now));
    Ok(back.and_then(|()| Err(io::ErrorKind::DirectoryNotEmpty.into())))
}

/// Removes one entry with everything below it, as far as the allowance reaches, and reports each
/// removal. Returns whether the entry itself went.
pub(super) fn remove_within(
    site: &Site<'_>,
    dir: &Dir,
    doomed: Doomed<'_>,
    protection: &Protection,
    allowance: &Allowance,
) -> Result<bool, SyncError> {
    remove_each(site, dir, doomed, protection, (allowance, true))
}

/// Works as [`remove_within`]; `tells_itself`: whether the entry itself is reported, not only what is
/// in it.
fn remove_each(
    site: &Site<'_>,
    dir: &Dir,
    doomed: Doomed<'_>,
    protection: &Protection,
    (allowance, tells_itself): (&Allowance, bool),
) -> Result<bool, SyncError> {
    if doomed.kind != Kind::Dir && !allowance.permits() {
        return site.tell_spared(&doomed.parent.join(doomed.name), doomed.kind).map(|()| false);
    }
    let rulings = RefCell::new(Ok(()));
    let entries = |below: &RelPath, kind| {
        let (path, perishing) = (doomed.was(below), below.depth() > 1);
        let stays = protection.filters_out(&path, kind, perishing);
        let mut told = rulings.borrow_mut();
        if stays && told.is_ok() {
            *told = site.tell_protected(&path, (kind, perishing), protection);
        }
        stays
    };
    let unlink = |dir: &Dir, now: &Component, below: &RelPath| set_aside(site, dir, now, &doomed.was(below));
    let permits = || allowance.permits();
    let spare = Spare { unlink: &unlink, permits: &permits, ..protection.spare(site, &entries) };

    let (mut told, mut went) = (Ok(()), false);
    let mut tell = |below: &RelPath, kind: Kind| {
        allowance.spend();
        went |= below.depth() == 1;
        site.hands.note_gone(&doomed.was(below), kind);
        if told.is_ok() && (tells_itself || below.depth() > 1) {
            told = site.account.planned(deleted(&doomed.was(below), kind));
        }
    };

    let Doomed { now, kind, .. } = doomed;
    let result = match kind {
        Kind::Dir => {
            let beside = protection.keeps_backups_beside();
            let removed = site.hands.remove_tree(dir, now, spare, beside, &mut tell);
            removed.map_err(|error| (error.path, error.source))
        }
        _ => {
            let path = RelPath::root().join(now);
            let result = site.hands.set_aside(|| set_aside(site, dir, now, &doomed.was(&path)));
            if result.is_ok() {
                tell(&path, kind);
            }
            result.map_err(|error| (path, error))
        }
    };

    told?;
    rulings.into_inner()?;
    // Something in it stays, and with it the directory.
    if !went && result.is_ok() && tells_itself {
        site.tell_spared(&doomed.parent.join(doomed.name), kind)?;
    }
    report_left(site, dir, doomed, result)?;
    Ok(went)
}

/// Reports an entry that could not be removed, unless it is gone or the run was stopped.
fn report_left(
    site: &Site<'_>,
    dir: &Dir,
    doomed: Doomed<'_>,
    removed: Result<(), (RelPath, io::Error)>,
) -> Result<(), SyncError> {
    match removed {
        // An entry that is gone already needs no removal; a stopped run reports nothing more.
        Err((_, error)) if error.kind() == io::ErrorKind::Interrupted && site.stopped() => Ok(()),
        // If the entry is still there, something else was not found: a place for its backup.
        Err((path, error)) if error.kind() != io::ErrorKind::NotFound || dir.stat(doomed.now).is_ok() => {
            let path = doomed.was(&path);
            let cause = site.cause_or_fatal(Operation::Delete, &path, error)?;
            site.problem(Operation::Delete, &path, cause)
        }
        _ => Ok(()),
    }
}

/// Moves all that is in a directory to its backup and reports it; the emptied directory keeps its
/// name. The inner error means that something had to stay, which was reported.
pub(super) fn empty(
    site: &Site<'_>,
    dir: &Dir,
    parent: &RelPath,
    name: &Component,
    protection: &Protection,
) -> Result<io::Result<()>, SyncError> {
    let (child, locked) = match dir.open_unlocked(name) {
        Ok(opened) => opened,
        Err(error) => return Ok(Err(error)),
    };
    let emptied = empty_child(site, &child, &parent.join(name), protection);
    if let (Err(_) | Ok(Err(_)), Some(mode), Ok(now)) = (&emptied, locked, child.metadata()) {
        let _ = dir.lock_child(name, (now.dev, now.ino), mode);
    }
    emptied
}

fn empty_child(
    site: &Site<'_>,
    child: &Dir,
    path: &RelPath,
    protection: &Protection,
) -> Result<io::Result<()>, SyncError> {
    let _ = site.hands.reap(|| {
        reap_left(child);
        true
    });
    for (name, found) in child.list().entries {
        if site.stopped() {
            return Ok(Err(io::ErrorKind::Interrupted.into()));
        }
        let Ok(found) = found else { continue };
        let (kind, device, ino) = (found.kind, found.dev, found.ino);
        if !protection.spares(&path.join(&name), kind, (device, ino)) {
            remove(site, child, Doomed { parent: path, name: &name, now: &name, kind }, protection)?;
        }
    }

    let left = child.list();
    Ok(match left.error {
        Some(error) => Err(error),
        None if left.complete && left.entries.is_empty() => Ok(()),
        None => Err(io::ErrorKind::DirectoryNotEmpty.into()),
    })
}

/// Takes an entry that was `path` out of its directory, where it is called `now`: into its backup
/// if the run keeps one.
pub(super) fn set_aside(site: &Site<'_>, dir: &Dir, now: &Component, path: &RelPath) -> io::Result<()> {
    let (parent, name) = (path.parent().unwrap_or_else(RelPath::root), path.file_name());
    let name = name.as_ref().unwrap_or(now);
    let Some(place) = site.backup_beside(dir, &parent, name)? else { return dir.remove_file(now) };
    let withheld = place.take(dir, now)?;
    site.tell_backup(&parent, name, &place, withheld).map_err(io::Error::other)
}

fn deleted(path: &RelPath, kind: Kind) -> Planned {
    Planned::new(Action::Delete, file_type_of(kind), path.as_bytes().to_vec())
        .changes(Changes::NONE)
        .target(Vec::new())
        .size(0)
        .facts(None)
}
