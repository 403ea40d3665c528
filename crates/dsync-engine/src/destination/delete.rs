//! Deletions: noted while planning, carried out when all content has arrived or, if so wished, with each
//! directory.
//!
//! Nothing is removed when something of the source could not be read (unless `ignore_errors`), when the run did
//! not come to its end, or when there are more deletions than allowed (invariants S5, D13). With
//! [`DeleteTiming::During`] this holds for what was known when the directory was compared, with
//! [`DeleteTiming::Before`] for what was known when everything was listed. The list is kept out of memory.

use std::{
    collections::HashSet,
    io,
    os::unix::ffi::OsStrExt,
    sync::{Arc, Mutex},
};

use dsync_fs::{
    Component, Dir, FilterSet, Kind, OwnPlaces, RelPath, SealedSpool, Spare, Spool, SpoolError, SpoolHome,
};
use dsync_wire::{
    event::{Action, Planned},
    message::Operation,
    options::{DeleteLimit, DeleteTiming, SyncOptions},
};

use super::{
    Site,
    backup::Kept,
    directory::{Deferred, Directory, settle},
    records::{self, KINDS, push_name, take, take_name},
};
use crate::{SyncError, halt::lock, plan::file_type_of};

/// Deletions by directory.
pub(super) struct Deletions {
    spool: Spool,
    /// Extraneous entries noted, without what is in them.
    entries: u64,
    /// Entries of the destination that were compared.
    compared: u64,
    protection: Protection,
}

/// What is never removed, in a directory that is removed as well.
#[derive(Clone)]
pub(super) struct Protection {
    filter: Option<Arc<FilterSet>>,
    /// Directories of this name are unfinished files'; they go with a directory that goes as a whole.
    parts: Option<Component>,
    mounts: bool,
    kept: Kept,
    /// Directories that a link leads to which stands for a directory of the source (`keep_dirlinks`): what is in them is
    /// that directory's.
    led_to: Arc<Mutex<HashSet<RelPath>>>,
    /// The run's own places.
    own: Arc<OwnPlaces>,
}

impl Protection {
    /// The excluded entries, unless they are to be removed as well, and with `one_file_system` whatever is
    /// mounted.
    pub(super) fn new(filter: &Arc<FilterSet>, options: &SyncOptions, own: &Arc<OwnPlaces>) -> Self {
        let filter = (!options.delete_excluded).then(|| Arc::clone(filter));
        let kept = Kept::of(&options.writing);
        let parts = options.writing.partial_dir.as_deref().and_then(|dir| Component::new(dir).ok());
        let (mounts, own, led_to) = (options.one_file_system, Arc::clone(own), Arc::default());
        Self { filter, parts, mounts, kept, own, led_to }
    }

    /// Protects a directory that a link of the destination leads to, if it is in the destination as well.
    pub(super) fn note_led_to(&self, root: &Dir, target: &Dir) {
        let (Ok(root), Ok(target)) = (root.real_path(), target.real_path()) else { return };
        let below = target.strip_prefix(root).ok().map(|below| RelPath::parse(below.as_os_str().as_bytes()));
        if let Some(Ok(below)) = below {
            lock(&self.led_to).insert(below);
        }
    }

    /// Returns what stays in a directory that is removed.
    fn spare<'a>(&'a self, site: &'a Site<'_>, entries: &'a dyn Fn(&RelPath, Kind) -> bool) -> Spare<'a> {
        let stopped = Some(&**site.session.halt.stop_flag());
        let unlocks = site.hands.unlocks();
        Spare { entries, mounts: self.mounts, places: Some(&self.own), stopped, unlocks, ..Spare::NOTHING }
    }

    /// True when the entry of the directory stays.
    pub(super) fn covers(&self, directory: &Directory, name: &Component, found: Found) -> bool {
        let mounted = || {
            let here = directory.dir.as_ref().and_then(|dir| dir.device().ok());
            found.kind == Kind::Dir && here.is_some_and(|here| here != found.device)
        };
        let path = directory.path.join(name);
        self.spares(&path, found.kind, (found.device, found.ino))
            || self.keeps_parts(&path, name, found.kind)
            || self.mounts && mounted()
    }

    /// As with rsync a rule that includes the directory of unfinished files gives it up, and so does
    /// `delete_excluded`.
    fn keeps_parts(&self, path: &RelPath, name: &Component, kind: Kind) -> bool {
        let undecided = |filter: &Arc<FilterSet>| filter.check(path.as_bytes(), true).is_none();
        kind == Kind::Dir && self.parts.as_ref() == Some(name) && self.filter.as_ref().is_some_and(undecided)
    }

    /// True when the entry at this path stays.
    fn spares(&self, path: &RelPath, kind: Kind, inode: (u64, u64)) -> bool {
        self.own.has_inode(inode) || self.filters_out(path, kind)
    }

    fn filters_out(&self, path: &RelPath, kind: Kind) -> bool {
        let excluded = |filter: &Arc<FilterSet>| filter.excludes(path.as_bytes(), kind == Kind::Dir);
        let led_to = || kind == Kind::Dir && lock(&self.led_to).contains(path);
        self.filter.as_ref().is_some_and(excluded) || self.kept.covers(path, kind) || led_to()
    }
}

/// What is known of an extraneous entry.
#[derive(Clone, Copy)]
pub(super) struct Found {
    pub(super) kind: Kind,
    pub(super) mode: u16,
    pub(super) device: u64,
    pub(super) ino: u64,
}

/// The extraneous entries of one directory.
struct Record {
    directory: Deferred,
    entries: Vec<(Component, Kind)>,
}

impl Deletions {
    pub(super) fn new(protection: Protection, spools: &SpoolHome) -> Self {
        Self { spool: Spool::new(spools), entries: 0, compared: 0, protection }
    }

    /// What stays.
    pub(super) fn protection(&self) -> &Protection {
        &self.protection
    }

    /// Counts entries of the destination that are compared with the source's.
    pub(super) fn compare(&mut self, entries: usize) {
        self.compared += entries as u64;
    }

    /// Removes the extraneous entries of a directory that was compared to its end, now or, as a rule,
    /// later; then its attributes are set after that.
    pub(super) fn note(
        &mut self,
        site: &Site<'_>,
        directory: &Directory,
        entries: Vec<(Component, Kind)>,
    ) -> Result<(), SyncError> {
        if entries.is_empty() {
            return Ok(());
        }
        if at_once(&site.policy.options)
            && let Some(dir) = &directory.dir
        {
            return self.remove_at_once(site, directory, dir, &entries);
        }
        self.entries += entries.len() as u64;
        let record = Record { directory: Deferred::new(directory), entries };
        self.spool.push(&record.encode()).map_err(spool_error)?;
        Ok(())
    }

    /// Sets a directory's attributes at the end of the run: until then backups may be put into it.
    pub(super) fn settle_last(&mut self, directory: &Directory) -> Result<(), SyncError> {
        let record = Record { directory: Deferred::new(directory), entries: Vec::new() };
        self.spool.push(&record.encode()).map(|_| ()).map_err(spool_error)
    }

    fn remove_at_once(
        &self,
        site: &Site<'_>,
        directory: &Directory,
        dir: &Arc<Dir>,
        entries: &[(Component, Kind)],
    ) -> Result<(), SyncError> {
        if withheld(site) {
            site.account.amend(|report| report.deletions_withheld += entries.len() as u64);
            return Ok(());
        }
        site.touched(dir);
        directory.touch();
        for (name, kind) in entries {
            if site.stopped() {
                return Ok(());
            }
            let doomed = Doomed { parent: &directory.path, name, now: name, kind: *kind };
            remove(site, dir, doomed, &self.protection)?;
        }
        Ok(())
    }

    /// Carries the deletions out and sets the directories' attributes; `changed` hears of each directory.
    pub(super) fn carry_out(
        self,
        site: &Site<'_>,
        root: Option<&Arc<Dir>>,
        changed: &mut dyn FnMut(&RelPath),
    ) -> Result<(), SyncError> {
        let Some(root) = root else { return Ok(()) };
        let Self { spool, entries, compared, protection } = self;
        let spool = spool.seal().map_err(spool_error)?;
        let allowed = if entries == 0 {
            true
        } else if withheld(site) {
            site.account.amend(|report| report.deletions_withheld += entries);
            false
        } else {
            within_limit(site, root, &spool, compared, &protection)?
        };
        for record in spool.iter() {
            if site.session.halt.stopped() {
                return Ok(());
            }
            let Some(record) = Record::decode(&record.map_err(spool_error)?) else {
                return Err(spool_error(SpoolError::Damaged { index: 0 }));
            };
            directory(site, root, &record, allowed, &protection)?;
            if allowed {
                changed(&record.directory.path);
            }
        }
        Ok(())
    }
}

/// True when a directory's deletions are made as soon as it was compared: only at the end is it known
/// whether they are within a limit.
fn at_once(options: &SyncOptions) -> bool {
    options.delete_timing == DeleteTiming::During && options.max_delete.is_none()
}

/// Returns whether something of the source could not be read, so that nothing may be removed.
fn withheld(site: &Site<'_>) -> bool {
    site.account.source_damaged() && !site.policy.options.ignore_errors
}

/// Whether there are no more deletions than the limit allows; counts them where there are.
fn within_limit(
    site: &Site<'_>,
    root: &Dir,
    spool: &SealedSpool,
    compared: u64,
    protection: &Protection,
) -> Result<bool, SyncError> {
    let Some(limit) = site.policy.options.max_delete else { return Ok(true) };
    // Below what is removed there are entries that were not compared.
    let (mut count, mut known) = (0, compared);
    for record in spool.iter() {
        if site.stopped() {
            return Ok(false);
        }
        let Some(record) = Record::decode(&record.map_err(spool_error)?) else { continue };
        let Ok(dir) = root.open_beneath(&record.directory.path) else { continue };
        for (name, kind) in &record.entries {
            if *kind != Kind::Dir {
                count += 1;
                continue;
            }
            let mut within = 0_u64;
            let doomed = Doomed { parent: &record.directory.path, name, now: name, kind: *kind };
            let entries = |below: &RelPath, kind| protection.filters_out(&doomed.was(below), kind);
            let spare = protection.spare(site, &entries);
            // A directory that cannot be listed fails when it is removed.
            let _ = dir.list_tree(name, spare, &mut |_, _| within += 1);
            count += within;
            known += within.saturating_sub(1);
        }
    }
    let most = match limit {
        DeleteLimit::Entries(most) => most,
        DeleteLimit::Percent(percent) => {
            u64::try_from(u128::from(known) * u128::from(percent) / 100).unwrap_or(u64::MAX)
        }
        _ => 0,
    };
    if count > most {
        site.account.amend(|report| report.deletions_over_limit = count);
    }
    Ok(count <= most)
}

/// Removes the extraneous entries of one directory, then sets its attributes.
fn directory(
    site: &Site<'_>,
    root: &Dir,
    record: &Record,
    allowed: bool,
    protection: &Protection,
) -> Result<(), SyncError> {
    site.session.note_progress();
    let Deferred { path, wanted } = &record.directory;
    let dir = match root.open_beneath(path) {
        Ok(dir) => Arc::new(dir),
        Err(error) => {
            let cause = site.cause_or_fatal(Operation::Delete, path, error)?;
            return site.problem(Operation::Delete, path, cause);
        }
    };
    if allowed {
        for (name, kind) in &record.entries {
            if site.stopped() {
                return Ok(());
            }
            let doomed = Doomed { parent: path, name, now: name, kind: *kind };
            remove(site, &dir, doomed, protection)?;
        }
        site.touched(&dir);
    }
    settle(site, path, Some(&dir), wanted.as_ref())
}

/// An entry that is to be removed.
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
    /// Where an entry was that is `below` the directory now.
    fn was(&self, below: &RelPath) -> RelPath {
        let mut path = self.parent.join(self.name);
        for name in below.components().skip(1).filter_map(|name| Component::new(name).ok()) {
            path.push(&name);
        }
        path
    }
}

/// True when nothing in the directory is to be kept, so that it can go as a whole. An error if that is not
/// known.
pub(super) fn goes_whole(
    site: &Site<'_>,
    dir: &Dir,
    doomed: Doomed<'_>,
    protection: &Protection,
) -> Result<bool, std::io::Error> {
    let entries = |below: &RelPath, kind| protection.filters_out(&doomed.was(below), kind);
    let spare = protection.spare(site, &entries);
    let mut goes = false;
    dir.list_tree(doomed.now, spare, &mut |below, _| goes |= below.depth() == 1)
        .map_err(|error| error.source)?;
    Ok(goes)
}

/// Removes one entry with everything below it and reports each removal.
pub(super) fn remove(
    site: &Site<'_>,
    dir: &Dir,
    doomed: Doomed<'_>,
    protection: &Protection,
) -> Result<(), SyncError> {
    let entries = |below: &RelPath, kind| protection.filters_out(&doomed.was(below), kind);
    let unlink = |dir: &Dir, now: &Component, below: &RelPath| set_aside(site, dir, now, &doomed.was(below));
    let spare = Spare { unlink: &unlink, ..protection.spare(site, &entries) };
    let mut told = Ok(());
    let mut tell = |below: &RelPath, kind: Kind| {
        if told.is_ok() {
            told = site.account.planned(deleted(&doomed.was(below), kind));
        }
    };
    let Doomed { now, kind, .. } = doomed;
    let result = match kind {
        Kind::Dir => {
            let beside = protection.kept.stay_beside();
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
    match result {
        // Gone already is what was wanted; a run that is stopped has no more to say.
        Err((_, error)) if error.kind() == io::ErrorKind::Interrupted && site.stopped() => Ok(()),
        // What is still there was not found elsewhere: a place for its backup.
        Err((path, error)) if error.kind() != io::ErrorKind::NotFound || dir.stat(now).is_ok() => {
            let path = doomed.was(&path);
            let cause = site.cause_or_fatal(Operation::Delete, &path, error)?;
            site.problem(Operation::Delete, &path, cause)
        }
        _ => Ok(()),
    }
}

/// Moves all that is in a directory to its backup and reports it; the emptied directory keeps its name. The inner error
/// says that something had to stay, which was reported.
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
    let emptied = empty_child(site, &child, &parent.join(name), protection)?;
    if let (Err(_), Some(mode), Ok(now)) = (&emptied, locked, child.metadata()) {
        let _ = dir.lock_child(name, (now.dev, now.ino), mode);
    }
    Ok(emptied)
}

fn empty_child(
    site: &Site<'_>,
    child: &Dir,
    path: &RelPath,
    protection: &Protection,
) -> Result<io::Result<()>, SyncError> {
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

/// Takes an entry that was `path` out of its directory, where it is called `now`: to its backup if there is to
/// be one.
pub(super) fn set_aside(site: &Site<'_>, dir: &Dir, now: &Component, path: &RelPath) -> std::io::Result<()> {
    let (parent, name) = (path.parent().unwrap_or_else(RelPath::root), path.file_name());
    match site.backup_beside(dir, &parent, name.as_ref().unwrap_or(now))? {
        Some(place) => place.take(dir, now),
        None => dir.remove_file(now),
    }
}

fn deleted(path: &RelPath, kind: Kind) -> Planned {
    Planned {
        action: Action::Delete,
        kind: file_type_of(kind),
        changes: dsync_wire::event::Changes::NONE,
        path: path.as_bytes().to_vec(),
        target: Vec::new(),
        size: 0,
    }
}

fn spool_error(error: SpoolError) -> SyncError {
    records::failed(Operation::Delete, "the list of deletions", error)
}

impl Record {
    /// The directory, then names with their types.
    fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.directory.encode(&mut bytes);
        for (name, kind) in &self.entries {
            push_name(&mut bytes, name);
            bytes.push(file_type_of(*kind) as u8);
        }
        bytes
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let mut rest = bytes;
        let directory = Deferred::decode(&mut rest)?;
        let mut entries = Vec::new();
        while !rest.is_empty() {
            let name = take_name(&mut rest)?;
            let [kind] = take(&mut rest)?;
            entries.push((name, KINDS.get(usize::from(kind)).copied()?));
        }
        Some(Self { directory, entries })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use dsync_fs::{Extended, Timestamp, Wanted};

    use super::*;

    fn component(name: &[u8]) -> Component {
        Component::new(name).unwrap()
    }

    #[test]
    fn a_record_comes_back_as_it_was_written() {
        let mut path = RelPath::root();
        path.push(&component(b"a b"));
        path.push(&component(&[0xff, b'\n']));
        let wanted = Wanted {
            mode: Some(0o755),
            mtime: Some(Timestamp { seconds: -5, nanoseconds: 7 }),
            atime: None,
            uid: None,
            gid: Some(u32::MAX),
            extended: Some(Arc::new(Extended::default())),
        };
        let entries = vec![(component(&[b'x'; 255]), Kind::Dir), (component(b"y"), Kind::BlockDevice)];
        let directory = Deferred { path, wanted: Some(wanted) };
        let record = Record { directory: directory.clone(), entries: entries.clone() };
        let bytes = record.encode();
        let back = Record::decode(&bytes).unwrap();
        assert_eq!((back.directory, back.entries), (directory, entries));
        for cut in 1..bytes.len() {
            // Damage is found or at least harmless: no panic, no name that was not written.
            let _ = Record::decode(&bytes[..cut]);
        }
    }

    #[test]
    fn types_are_numbered_as_on_the_wire() {
        for (number, kind) in KINDS.iter().enumerate() {
            assert_eq!(file_type_of(*kind) as usize, number);
        }
    }
}
