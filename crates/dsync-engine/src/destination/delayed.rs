//! `--delay-updates`: what has arrived waits under a temporary name beside its target until everything has.
//!
//! The names are noted, out of memory, and no directory is held open for them. At the end one sync writes all content
//! to the disk; then all of it gets its names in one go, before hard links and deletions, and the directories get their
//! attributes last. The law: no name shows new content before all content is on the disk. A run that ends early removes
//! what waits, or keeps the files for the next like unfinished ones: under names that the next finds, which they only
//! get when their content is on the disk. What a killed one leaves is removed by the next like every temporary.
//!
//! Directories are made and attributes set as always, and so is what takes another type's place in a directory's favour.

use std::{
    io,
    sync::{Arc, Mutex},
};

use dsync_fs::{
    CommitGroup, Component, Dir, Kind, PreparedFile, RelPath, SealedSpool, Spool, SpoolError, SpoolHome,
    Stamp, Timestamp, is_finished_name,
};
use dsync_wire::{
    event::{Action, FileType},
    message::{Cause, EntryId, Landed, Operation},
};

use super::{
    Site,
    commit::commit_cause,
    delete::{self, Doomed, KINDS, Protection},
    directory::{Deferred, Directory, LastOpened, settle},
    files::Pending,
    homes::Homes,
    records::{self, push_counted, push_name, take, take_counted, take_name},
};
use crate::{SyncError, halt::lock, plan::file_type_of};

/// What waits for its name.
pub(super) struct Delayed {
    root: Arc<Dir>,
    waiting: Mutex<Waiting>,
}

struct Waiting {
    entries: Spool,
    /// Directories that get their attributes afterwards.
    directories: Spool,
}

/// An entry that is complete but for its name.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Late {
    /// The directory's path from the destination's root.
    pub(super) directory: RelPath,
    pub(super) name: Component,
    /// The name that it has until then.
    pub(super) temp: Component,
    pub(super) entry: EntryId,
    pub(super) action: Action,
    pub(super) kind: FileType,
    /// Size as listed.
    pub(super) size: u64,
    /// A directory gives way to it.
    pub(super) displaces: bool,
    /// Its number as the first of several names.
    pub(super) first_name: Option<u64>,
    /// The old file that it was made from.
    pub(super) basis: Option<Stamp>,
}

impl Delayed {
    pub(super) fn new(root: &Arc<Dir>) -> Self {
        let home = SpoolHome::default();
        home.prefer(Arc::clone(root));
        let waiting = Waiting { entries: Spool::new(&home), directories: Spool::new(&home) };
        Self { root: Arc::clone(root), waiting: Mutex::new(waiting) }
    }

    /// Has an entry wait that is in its directory under a temporary name.
    pub(super) fn note(&self, site: &Site<'_>, directory: &Directory, late: &Late) -> Result<(), SyncError> {
        directory.delay();
        if let Some(dir) = &directory.dir {
            site.touched(dir);
        }
        lock(&self.waiting).entries.push(&late.encode()).map(|_| ()).map_err(spool_error)
    }

    /// Has a finished file wait.
    pub(super) fn note_file(
        &self,
        site: &Site<'_>,
        file: &Pending,
        prepared: PreparedFile,
    ) -> Result<(), SyncError> {
        let Some((temp, basis)) = prepared.wait() else { return Ok(()) };
        let late = Late {
            directory: file.directory.path.clone(),
            name: file.name.clone(),
            temp,
            entry: file.entry,
            action: file.action,
            kind: FileType::File,
            size: file.size,
            displaces: file.displaced.is_some(),
            first_name: file.first_name,
            basis,
        };
        self.note(site, &file.directory, &late)
    }

    /// Notes a directory whose entries have all come.
    pub(super) fn note_directory(&self, directory: &Directory) -> Result<(), SyncError> {
        let mut record = Vec::new();
        Deferred::new(directory).encode(&mut record);
        lock(&self.waiting).directories.push(&record).map(|_| ()).map_err(spool_error)
    }

    /// Writes all content to the disk, then gives everything its name. Gives the entries that the source may remove then.
    pub(super) fn carry_out(
        &self,
        site: &Site<'_>,
        protection: &Protection,
        group: &mut CommitGroup<Arc<Pending>>,
    ) -> Result<Vec<Landed>, SyncError> {
        let entries = self.take(|waiting| &mut waiting.entries)?;
        let placed = site.sync_names(group).and_then(|()| self.place_all(site, protection, &entries));
        if placed.is_err() {
            self.remove(&entries);
        }
        placed
    }

    /// Sets the attributes of the directories.
    pub(super) fn settle(&self, site: &Site<'_>) -> Result<(), SyncError> {
        let directories = self.take(|waiting| &mut waiting.directories)?;
        for record in directories.iter() {
            let record = record.map_err(spool_error)?;
            let Deferred { path, wanted } = Deferred::decode(&mut &*record).ok_or_else(damaged)?;
            match self.root.open_beneath(&path) {
                Ok(dir) => settle(site, &path, Some(&dir), wanted.as_ref())?,
                // Deleted since, or moved away by somebody.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => {
                    site.problem(Operation::SetAttributes, &path, super::directory::cause(&error))?;
                }
            }
        }
        Ok(())
    }

    /// Removes what waits, as the run came to nothing, or keeps the files for the next one.
    pub(super) fn abandon(&self, site: &Site<'_>) {
        let Ok(entries) = self.take(|waiting| &mut waiting.entries) else { return };
        let sync = || lock(&site.touched).values().try_for_each(|dir| dir.sync_filesystem());
        if site.keeps_unfinished() && sync().is_ok() {
            self.each(&entries, |dir, late| {
                if late.kind == FileType::File
                    && let Ok(kept) = Homes::finished_name(&late.name)
                {
                    let _ = dir.rename(&late.temp, &kept);
                }
            });
        }
        self.remove(&entries);
    }

    fn take(&self, which: impl Fn(&mut Waiting) -> &mut Spool) -> Result<SealedSpool, SyncError> {
        let empty = Spool::new(&SpoolHome::default());
        std::mem::replace(which(&mut lock(&self.waiting)), empty).seal().map_err(spool_error)
    }

    fn remove(&self, entries: &SealedSpool) {
        self.each(entries, |dir, late| {
            // One that has another name is not there any more.
            if !is_finished_name(late.temp.as_bytes()) {
                let _ = dir.remove_file(&late.temp);
            }
        });
    }

    fn each(&self, entries: &SealedSpool, mut act: impl FnMut(&Dir, &Late)) {
        let mut parent = LastOpened::default();
        for late in entries.iter().flatten().filter_map(|record| Late::decode(&record)) {
            if let Ok(dir) = parent.open(&self.root, &late.directory) {
                act(&dir, &late);
            }
        }
    }

    /// Once it has begun nothing stops it: that would leave the tree half old and half new.
    fn place_all(
        &self,
        site: &Site<'_>,
        protection: &Protection,
        entries: &SealedSpool,
    ) -> Result<Vec<Landed>, SyncError> {
        let (mut parent, mut landed) = (LastOpened::default(), Vec::new());
        for record in entries.iter() {
            let late = Late::decode(&record.map_err(spool_error)?).ok_or_else(damaged)?;
            let path = late.directory.join(&late.name);
            let cause = match parent.open(&self.root, &late.directory) {
                Ok(dir) => late.place(site, &dir, &path, protection)?,
                Err(error) => Some(site.cause_or_fatal(Operation::Commit, &path, error)?),
            };
            match cause {
                Some(cause) => late.failed(site, &path, cause)?,
                None if site.removes_source() => landed.push(Landed { entry: late.entry, stood: None }),
                None => {}
            }
        }
        Ok(landed)
    }
}

impl Late {
    /// Gives the entry its name; tells why that could not be.
    fn place(
        &self,
        site: &Site<'_>,
        dir: &Arc<Dir>,
        path: &RelPath,
        protection: &Protection,
    ) -> Result<Option<Cause>, SyncError> {
        let mut prepared = PreparedFile::waiting(dir, self.temp.clone(), self.name.clone());
        let is_still =
            |basis: &Stamp| dir.stat(&self.name).is_ok_and(|now| now.stamp().is_same_content(basis));
        if self.basis.is_some_and(|basis| !is_still(&basis)) {
            return Ok(Some(Cause::Changed));
        }
        let secured = site.secure(dir, &self.directory, &self.name, self.displaces.then_some(protection))?;
        if let Err(error) = secured {
            return site.cause_or_fatal(Operation::Commit, path, error).map(Some);
        }
        let now = if self.displaces { prepared.displace() } else { None };
        if let Err(error) = prepared.commit() {
            return commit_cause(site, path, error).map(Some);
        }
        if let Some(now) = now {
            let doomed = Doomed { parent: &self.directory, name: &self.name, now: &now, kind: Kind::Dir };
            delete::remove(site, dir, doomed, protection)?;
        }
        Ok(None)
    }

    fn failed(&self, site: &Site<'_>, path: &RelPath, cause: Cause) -> Result<(), SyncError> {
        match self.kind {
            FileType::File => site.account.transfer_failed(self.action, self.size),
            kind => site.account.link_failed(self.action, kind),
        }
        if let Some(number) = self.first_name {
            // Everything has arrived: no other name waits to be asked for.
            let _ = site.succession.lost(number)?;
        }
        site.problem(Operation::Commit, path, cause)
    }

    /// Integers in this machine's byte order, because the record never leaves the process.
    fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        push_counted(&mut bytes, self.directory.as_bytes());
        push_name(&mut bytes, &self.name);
        push_name(&mut bytes, &self.temp);
        bytes.extend(self.entry.0.to_ne_bytes());
        let flags =
            [self.action == Action::Create, self.displaces, self.first_name.is_some(), self.basis.is_some()];
        bytes.extend(flags.map(u8::from));
        bytes.push(self.kind as u8);
        bytes.extend(self.size.to_ne_bytes());
        bytes.extend(self.first_name.unwrap_or_default().to_ne_bytes());
        if let Some(Stamp { dev, ino, size, mtime, .. }) = self.basis {
            for field in [dev, ino, size] {
                bytes.extend(field.to_ne_bytes());
            }
            bytes.extend(mtime.seconds.to_ne_bytes());
            bytes.extend(mtime.nanoseconds.to_ne_bytes());
        }
        bytes
    }

    fn decode(mut rest: &[u8]) -> Option<Self> {
        let rest = &mut rest;
        let directory = RelPath::parse(take_counted(rest)?).ok()?;
        let (name, temp) = (take_name(rest)?, take_name(rest)?);
        let entry = EntryId(u64::from_ne_bytes(take(rest)?));
        let [creates, displaces, has_others, has_basis] = take(rest)?.map(|flag: u8| flag == 1);
        let [kind] = take(rest)?;
        let kind = file_type_of(KINDS.get(usize::from(kind)).copied()?);
        let size = u64::from_ne_bytes(take(rest)?);
        let first_name = Some(u64::from_ne_bytes(take(rest)?)).filter(|_| has_others);
        let mut number = || take(rest).map(u64::from_ne_bytes);
        let basis = match has_basis {
            true => {
                let (dev, ino, size) = (number()?, number()?, number()?);
                let (seconds, nanoseconds) =
                    (i64::from_ne_bytes(take(rest)?), u32::from_ne_bytes(take(rest)?));
                let mtime = Timestamp { seconds, nanoseconds };
                Some(Stamp { dev, ino, size, mtime, ctime: mtime })
            }
            false => None,
        };
        let action = if creates { Action::Create } else { Action::Update };
        Some(Self { directory, name, temp, entry, action, kind, size, displaces, first_name, basis })
    }
}

fn damaged() -> SyncError {
    spool_error(SpoolError::Damaged { index: 0 })
}

fn spool_error(error: SpoolError) -> SyncError {
    records::failed(Operation::Commit, "the list of delayed updates", error)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_record_comes_back_as_it_was_written() {
        let mtime = Timestamp { seconds: -5, nanoseconds: 7 };
        let file = Late {
            directory: RelPath::parse(b"a/b").unwrap(),
            name: Component::new(&[b'n'; 255]).unwrap(),
            temp: Component::new(b"t").unwrap(),
            entry: EntryId(u64::MAX),
            action: Action::Update,
            kind: FileType::File,
            size: 1 << 40,
            displaces: true,
            first_name: Some(3),
            basis: Some(Stamp { dev: 1, ino: 2, size: 3, mtime, ctime: mtime }),
        };
        let link = Late {
            directory: RelPath::root(),
            action: Action::Create,
            kind: FileType::Symlink,
            displaces: false,
            first_name: None,
            basis: None,
            name: file.name.clone(),
            temp: file.temp.clone(),
            ..file
        };
        for late in [file, link] {
            let bytes = late.encode();
            assert_eq!(Late::decode(&bytes).unwrap(), late);
            for cut in 0..bytes.len() {
                assert_eq!(Late::decode(&bytes[..cut]), None);
            }
        }
    }
}
