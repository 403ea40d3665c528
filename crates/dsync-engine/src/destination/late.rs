//! The notes of `--delay-updates` until the end of a run, out of memory.

use std::sync::{Arc, Mutex};

use dsync_fs::{Component, Dir, RelPath, SealedSpool, Spool, SpoolError, SpoolHome, Stamp, Timestamp};
use dsync_wire::{
    event::{Action, FileType},
    message::{EntryId, Operation},
};

use super::records::{
    self, KINDS, push_counted, push_name, push_time, take, take_counted, take_name, take_time,
};
use crate::{SyncError, halt::lock, plan::file_type_of};

/// The entries that wait for their names.
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
    /// Its name was found free.
    pub(super) is_new: bool,
    /// Its number as the first of several names.
    pub(super) first_name: Option<u64>,
    /// The time that was listed, under `--update`: a newer file that has the name by then stays.
    pub(super) keeps_newer: Option<Timestamp>,
    /// The old file that it was made from.
    pub(super) basis: Option<Stamp>,
    /// Whether this run brought it ([`Site::removes`](super::Site::removes)).
    pub(super) sent: bool,
    /// Whether its content shares the source's blocks.
    pub(super) cloned: bool,
}

impl Delayed {
    pub(super) fn new(root: &Arc<Dir>) -> Self {
        let home = SpoolHome::default();
        home.prefer(Arc::clone(root));
        let waiting = Waiting { entries: Spool::new(&home), directories: Spool::new(&home) };
        Self { root: Arc::clone(root), waiting: Mutex::new(waiting) }
    }

    /// Returns the destination's root.
    pub(super) fn root(&self) -> &Arc<Dir> {
        &self.root
    }

    /// Notes an entry that is in its directory under a temporary name.
    pub(super) fn push(&self, late: &Late) -> Result<(), SyncError> {
        lock(&self.waiting).entries.push(&late.encode()).map(|_| ()).map_err(spool_error)
    }

    /// Notes a directory, by its record.
    pub(super) fn push_directory(&self, record: &[u8]) -> Result<(), SyncError> {
        lock(&self.waiting).directories.push(record).map(|_| ()).map_err(spool_error)
    }

    /// Takes the entries that were noted.
    pub(super) fn take_entries(&self) -> Result<SealedSpool, SyncError> {
        self.take(|waiting| &mut waiting.entries)
    }

    /// Takes the directories that were noted.
    pub(super) fn take_directories(&self) -> Result<SealedSpool, SyncError> {
        self.take(|waiting| &mut waiting.directories)
    }

    fn take(&self, which: impl Fn(&mut Waiting) -> &mut Spool) -> Result<SealedSpool, SyncError> {
        let empty = Spool::new(&SpoolHome::default());
        std::mem::replace(which(&mut lock(&self.waiting)), empty).seal().map_err(spool_error)
    }
}

impl Late {
    /// Integers in this machine's byte order, because the record never leaves the process.
    fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        push_counted(&mut bytes, self.directory.as_bytes());
        push_name(&mut bytes, &self.name);
        push_name(&mut bytes, &self.temp);

        bytes.extend(self.entry.0.to_ne_bytes());
        let flags = [
            self.action == Action::Create,
            self.displaces,
            self.is_new,
            self.first_name.is_some(),
            self.basis.is_some(),
            self.sent,
            self.cloned,
            self.keeps_newer.is_some(),
        ];
        bytes.extend(flags.map(u8::from));
        bytes.push(self.kind as u8);
        bytes.extend(self.size.to_ne_bytes());
        bytes.extend(self.first_name.unwrap_or_default().to_ne_bytes());
        if let Some(time) = self.keeps_newer {
            push_time(&mut bytes, time);
        }
        if let Some(Stamp { dev, ino, size, mtime, .. }) = self.basis {
            for field in [dev, ino, size] {
                bytes.extend(field.to_ne_bytes());
            }
            push_time(&mut bytes, mtime);
        }
        bytes
    }

    pub(super) fn decode(mut rest: &[u8]) -> Option<Self> {
        let rest = &mut rest;
        let directory = RelPath::parse(take_counted(rest)?).ok()?;
        let (name, temp) = (take_name(rest)?, take_name(rest)?);
        let entry = EntryId(u64::from_ne_bytes(take(rest)?));
        let [creates, displaces, is_new, has_others, has_basis, sent, cloned, keeps_newer] =
            take(rest)?.map(|flag: u8| flag == 1);
        let [kind] = take(rest)?;
        let kind = file_type_of(KINDS.get(usize::from(kind)).copied()?);
        let size = u64::from_ne_bytes(take(rest)?);
        let first_name = Some(u64::from_ne_bytes(take(rest)?)).filter(|_| has_others);

        let keeps_newer = if keeps_newer { Some(take_time(rest)?) } else { None };
        let mut number = || take(rest).map(u64::from_ne_bytes);
        let basis = if has_basis {
            let (dev, ino, size) = (number()?, number()?, number()?);
            let mtime = take_time(rest)?;
            Some(Stamp { dev, ino, size, mtime, ctime: mtime })
        } else {
            None
        };
        let action = if creates { Action::Create } else { Action::Update };
        Some(Self {
            directory,
            name,
            temp,
            entry,
            action,
            kind,
            size,
            displaces,
            is_new,
            first_name,
            keeps_newer,
            basis,
            sent,
            cloned,
        })
    }
}

/// Returns the error of a record that is not as it was written.
pub(super) fn damaged() -> SyncError {
    spool_error(SpoolError::Damaged { index: 0 })
}

/// Returns the error of a run that cannot keep its list.
pub(super) fn spool_error(error: SpoolError) -> SyncError {
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
            is_new: false,
            first_name: Some(3),
            keeps_newer: Some(mtime),
            basis: Some(Stamp { dev: 1, ino: 2, size: 3, mtime, ctime: mtime }),
            sent: true,
            cloned: true,
        };
        let link = Late {
            directory: RelPath::root(),
            action: Action::Create,
            kind: FileType::Symlink,
            displaces: false,
            is_new: true,
            first_name: None,
            keeps_newer: None,
            basis: None,
            sent: false,
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
