//! `--delay-updates`: arrived files wait under temporary names beside their targets until
//! everything has arrived.
//!
//! The names are noted, out of memory, and no directory is held open for them. At the end one sync
//! writes all content to the disk. Then all files are renamed in one go, before hard links and
//! deletions, and the directories get their attributes last. The law: no name shows new content
//! before all content is on the disk. A run that ends early removes the waiting files, or keeps
//! them for the next run like unfinished ones: under names that the next run finds, and only once
//! their content is on the disk. The temporaries that a killed run leaves are removed by the next,
//! as always.
//!
//! Directories are made and attributes set as always, and so is what takes another type's place in
//! a directory's favour.

use std::{io, sync::Arc};

use dsync_fs::{
    CommitError, CommitGroup, Component, Dir, Kind, PreparedFile, RelPath, SealedSpool, Stamp,
    is_finished_name,
};
use dsync_wire::{
    event::{FileType, WhyLeft},
    message::{Cause, Landed, Operation},
};

use super::{
    Site,
    directory::{self, Deferred, Directory, LastOpened},
    files::Pending,
    kept,
    landed::sync_names,
    late::{Delayed, Late, damaged, spool_error},
    overtaken,
    protection::Protection,
    removal::{self, Doomed},
    secure,
    site::cause,
    succession::Succession,
};
use crate::SyncError;

/// Makes an entry wait that is in its directory under a temporary name.
pub(super) fn note(
    site: &Site<'_>,
    delayed: &Delayed,
    directory: &Directory,
    late: &Late,
) -> Result<(), SyncError> {
    directory.delay();
    if let Some(dir) = &directory.dir {
        site.touched(dir);
    }
    delayed.push(late)
}

/// Makes a finished file wait. Returns the name that it has until then; `None` for one that was written in place.
pub(super) fn note_file(
    site: &Site<'_>,
    delayed: &Delayed,
    file: &Pending,
    prepared: PreparedFile,
) -> Result<Option<Component>, SyncError> {
    let no_room = |source| SyncError::Filesystem {
        operation: Operation::WriteFile,
        path: site.display_path(&file.slot.path()),
        source,
    };
    let Some((temp, basis)) = prepared.wait().map_err(no_room)? else { return Ok(None) };
    file.note_signature(site, &temp);

    let late = Late {
        directory: file.slot.directory.path.clone(),
        name: file.slot.name.clone(),
        temp: temp.clone(),
        entry: file.entry,
        action: file.action,
        kind: FileType::File,
        size: file.size,
        displaces: file.displaced.is_some(),
        is_new: file.slot.is_new,
        first_name: file.first_name,
        keeps_newer: file.keeps_newer.filter(|_| !file.slot.is_apart),
        basis,
        sent: file.is_sent(),
        cloned: file.is_cloned(),
    };
    note(site, delayed, &file.slot.directory, &late).map(|()| Some(temp))
}

/// Writes all content to the disk, then renames everything. Returns the entries that the source may
/// remove then.
pub(super) fn carry_out(
    (site, succession): (&Site<'_>, &Succession),
    delayed: &Delayed,
    protection: &Protection,
    group: &mut CommitGroup<Arc<Pending>>,
) -> Result<Vec<Landed>, SyncError> {
    let entries = delayed.take_entries()?;
    let placed =
        sync_names(site, group).and_then(|()| place_all((site, succession), delayed, protection, &entries));
    if placed.is_err() {
        remove(delayed, &entries);
    }
    placed
}

/// Sets the attributes of the directories.
pub(super) fn settle(site: &Site<'_>, delayed: &Delayed) -> Result<(), SyncError> {
    let directories = delayed.take_directories()?;
    for record in directories.iter() {
        let record = record.map_err(spool_error)?;
        let Deferred { path, wanted } = Deferred::decode(&mut &*record).ok_or_else(damaged)?;
        match delayed.root().open_beneath(&path) {
            Ok(dir) => directory::settle(site, &path, Some(&dir), wanted.as_ref())?,
            // Deleted since, or moved away by somebody.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => {
                site.problem(Operation::SetAttributes, &path, cause(&error))?;
            }
        }
    }
    Ok(())
}

/// Removes the waiting files, as the run failed, or keeps them for the next one.
pub(super) fn abandon(site: &Site<'_>, delayed: &Delayed) {
    let Ok(entries) = delayed.take_entries() else { return };
    if site.keeps_unfinished() && site.sync_touched().is_ok() {
        each(delayed, &entries, |dir, late| {
            if late.kind == FileType::File {
                let _ = kept::keep_waiting(site, dir, &late.temp, &late.name);
            }
        });
    }
    remove(delayed, &entries);
}

fn remove(delayed: &Delayed, entries: &SealedSpool) {
    each(delayed, entries, |dir, late| {
        // One that has another name is not there any more.
        if !is_finished_name(late.temp.as_bytes()) {
            let _ = dir.remove_file(&late.temp);
        }
    });
}

fn each(delayed: &Delayed, entries: &SealedSpool, mut act: impl FnMut(&Dir, &Late)) {
    let mut parent = LastOpened::default();
    for late in entries.iter().flatten().filter_map(|record| Late::decode(&record)) {
        if let Ok(dir) = parent.open(delayed.root(), &late.directory) {
            act(&dir, &late);
        }
    }
}

/// Moves all waiting entries to their names. Once it has begun nothing stops it: that would leave
/// the tree half old and half new.
fn place_all(
    (site, succession): (&Site<'_>, &Succession),
    delayed: &Delayed,
    protection: &Protection,
    entries: &SealedSpool,
) -> Result<Vec<Landed>, SyncError> {
    let (mut parent, mut landed) = (LastOpened::default(), Vec::new());
    for record in entries.iter() {
        let late = Late::decode(&record.map_err(spool_error)?).ok_or_else(damaged)?;
        let path = late.directory.join(&late.name);
        let placed = match parent.open(delayed.root(), &late.directory) {
            Ok(dir) => {
                note_inode(succession, &dir, &late)?;
                place(site, &late, &dir, &path, protection)?
            }
            Err(error) => Err(Refusal::Failed(site.cause_or_fatal(Operation::Commit, &path, error)?)),
        };

        match placed {
            Err(refusal) => failed((site, succession), &late, &path, refusal)?,
            Ok(()) if site.removes(late.sent) => landed.push(Landed { entry: late.entry, stood: None }),
            Ok(()) => {}
        }
    }
    Ok(landed)
}

/// Notes the inode of an entry that others will be linked to.
fn note_inode(succession: &Succession, dir: &Dir, late: &Late) -> Result<(), SyncError> {
    let Some(number) = late.first_name.filter(|_| dir.numbers_inodes()) else { return Ok(()) };
    // Without its stamp nothing is known of it.
    dir.stat(&late.temp).map_or(Ok(()), |now| Ok(succession.note_inode(number, &now.stamp(), true)?))
}

/// The reason why an entry did not get its name.
#[derive(Clone, Copy)]
enum Refusal {
    /// The one that has it is left alone.
    Left(WhyLeft),
    Failed(Cause),
}

/// Moves the entry to its name.
fn place(
    site: &Site<'_>,
    late: &Late,
    dir: &Arc<Dir>,
    path: &RelPath,
    protection: &Protection,
) -> Result<Result<(), Refusal>, SyncError> {
    let mut prepared = PreparedFile::waiting(dir, late.temp.clone(), late.name.clone());
    if late.is_new {
        prepared.take_free_name();
    }
    if site.policy.options.ignore_existing {
        prepared.give_way();
    }
    let is_still = |basis: &Stamp| dir.stat(&late.name).is_ok_and(|now| now.stamp().is_same_content(basis));
    if let Some(why) = overtaken::why_left(site, dir, &late.name, late.keeps_newer) {
        return Ok(Err(Refusal::Left(why)));
    }
    if late.basis.is_some_and(|basis| !is_still(&basis)) {
        return Ok(Err(Refusal::Failed(Cause::Changed)));
    }

    let failed = |cause| Ok(Err(Refusal::Failed(cause)));
    let secured =
        secure::secure(site, dir, &late.directory, &late.name, late.displaces.then_some(protection))?;
    if let Err(error) = secured {
        return failed(site.cause_or_fatal(Operation::Commit, path, error)?);
    }

    let now = if late.displaces { prepared.displace() } else { None };
    match site.carrying(dir, &late.temp, || prepared.commit()) {
        Ok(()) => {}
        Err(CommitError::NameTaken) => return Ok(Err(Refusal::Left(WhyLeft::Exists))),
        Err(error) => return failed(site.commit_cause(path, error)?),
    }
    if let Some(now) = now {
        let doomed = Doomed { parent: &late.directory, name: &late.name, now: &now, kind: Kind::Dir };
        if let Err(error) = removal::make_way(site, dir, doomed, protection)? {
            return failed(site.cause_or_fatal(Operation::Commit, path, error)?);
        }
    }
    Ok(Ok(()))
}

fn failed(
    (site, succession): (&Site<'_>, &Succession),
    late: &Late,
    path: &RelPath,
    refusal: Refusal,
) -> Result<(), SyncError> {
    match late.kind {
        FileType::File => site.account.transfer_failed(late.action, late.size),
        kind => site.account.link_failed(late.action, kind),
    }
    if late.cloned {
        site.account.clone_failed();
    }
    if let Some(number) = late.first_name {
        // Everything has arrived: no other name waits to be asked for.
        let _ = succession.lost(number)?;
    }
    match refusal {
        Refusal::Left(why) => overtaken::tell(site, late.kind, path, why),
        Refusal::Failed(cause) => site.problem(Operation::Commit, path, cause),
    }
}
