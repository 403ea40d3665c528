//! Hard links: entries with several names at the source get them here, across the whole transfer.
//!
//! The first of the names that the destination takes is an entry like any other, unless it gives way to
//! a later one that needs no content ([`other_names`](super::planner)). Each further one is compared
//! with it. Unless it is a name of the same inode already, it is noted, out of memory, and
//! linked when every requested file has its name, before deletions and before its directory gets
//! its attributes. So a link is only made to a file that is complete and, by the order of syncs, on
//! the disk.
//!
//! If the first name is skipped or fails, the next one takes its place and its content is asked
//! for, also if it was noted before that ([`succession`](super::succession)). If the filesystem
//! takes no further name (`EMLINK`, `EXDEV`), a file is copied ([`linking`](super::linking)).
//!
//! Cost: 54 bytes of memory for each inode with several names, nothing for its further names once
//! it has arrived.

use std::{borrow::Cow, io, sync::Arc};

use dsync_fs::{
    Component, Metadata, RecordAt, RelPath, SealedSpool, Spool, SpoolError, SpoolHome, Timestamp as FileTime,
};
use dsync_wire::{
    budget::{Budget, Held, Share},
    event::{Action, Changes, Facts, FileType},
    message::{Entry, EntryId, HardLink, Operation},
};

use super::{
    directory::{Deferred, Directory},
    protection::Protection,
    records::{self, KINDS, push_name, push_time, take, take_name, take_time},
    succession::Succession,
};
use crate::{
    SyncError,
    misbehaved::{PeerMisbehaved, misbehaved},
    plan::{file_type, file_type_of, fs_timestamp, timestamp},
};

/// The names to link.
pub(super) struct Links {
    /// The entries with several names, in the order of listing.
    groups: Vec<Group>,
    /// Memory for the groups.
    held: Held,
    /// Filesystems that first names are on, from 1 on.
    devices: Vec<u64>,
    /// Paths of first names.
    first_names: Spool,
    /// Names to be linked, by directory.
    noted: Spool,
    current: Option<Record>,
    protection: Protection,
}

/// The knowledge of an entry with several names.
struct Group {
    /// The first one that was listed.
    entry: EntryId,
    /// The inode that has the first name already and keeps it, on the filesystem of this number in
    /// [`Links::devices`]; none where that is 0.
    ino: u64,
    device: u16,
    kind: FileType,
    /// Whether the destination has a first name, or will.
    placed: bool,
    /// Its path; not in an `Option`, which would take eight bytes more.
    path: RecordAt,
}

/// A name that others are linked to.
#[derive(Clone, Copy)]
pub(super) struct FirstName {
    path: RecordAt,
    inode: Option<(u64, u64)>,
}

/// A name to link.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Further {
    pub(super) entry: EntryId,
    pub(super) name: Component,
    pub(super) action: Action,
    pub(super) kind: FileType,
    /// Whether a directory has the name until then.
    pub(super) displaces: bool,
    /// The time that was listed, under `--update`: a newer file that has the name by then stays.
    pub(super) keeps_newer: Option<FileTime>,
    /// The facts to tell of it when it is made, if anybody listens.
    pub(super) told: Option<Told>,
}

/// A name's differences and facts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Told {
    pub(super) changes: Changes,
    pub(super) size: u64,
    pub(super) facts: Facts,
}

impl Told {
    fn encode(&self, bytes: &mut Vec<u8>) {
        // The number is of the plan, not of the entry.
        const { assert!(Facts::FIELDS.len() == 6, "a field is neither kept nor left out") };
        let Self { changes, size, facts: Facts { mode, mtime, uid, gid, content, .. } } = *self;
        bytes.extend(changes.bits().to_ne_bytes());
        bytes.extend(size.to_ne_bytes());
        bytes.extend(mode.to_ne_bytes());
        push_time(bytes, fs_timestamp(mtime));
        bytes.extend(uid.to_ne_bytes());
        bytes.extend(gid.to_ne_bytes());
        bytes.push(u8::from(content.is_some()));
        bytes.extend(content.unwrap_or_default());
    }

    fn decode(rest: &mut &[u8]) -> Option<Self> {
        let changes = Changes::from_bits(u16::from_ne_bytes(take(rest)?))?;
        let size = u64::from_ne_bytes(take(rest)?);
        let mode = u16::from_ne_bytes(take(rest)?);
        let mtime = timestamp(take_time(rest)?);
        let (uid, gid) = (u32::from_ne_bytes(take(rest)?), u32::from_ne_bytes(take(rest)?));
        let ([has_content], content) = (take(rest)?, take(rest)?);
        let content = (has_content == 1).then_some(content);
        let facts = Facts::default().number(0).mode(mode).mtime(mtime).uid(uid).gid(gid).content(content);
        Some(Self { changes, size, facts })
    }
}

/// Names of one directory.
pub(super) struct Record {
    pub(super) directory: Deferred,
    pub(super) links: Vec<(Further, RecordAt)>,
}

/// All names to link.
pub(super) struct Noted {
    first_names: SealedSpool,
    noted: SealedSpool,
    /// Entries that stay in a directory which a link takes the name of.
    pub(super) protection: Protection,
}

impl FirstName {
    /// Returns its number.
    pub(super) fn number(&self) -> u64 {
        self.path.index()
    }

    /// Returns whether an entry is a name of the same inode already.
    pub(super) fn is_of(&self, existing: &Metadata) -> bool {
        self.inode == Some((existing.dev, existing.ino))
    }
}

impl Links {
    pub(super) fn new(
        protection: Protection,
        budget: &Arc<Budget>,
        spools: &SpoolHome,
    ) -> Result<Self, SyncError> {
        let (first_names, noted) = (Spool::new(spools), Spool::new(spools));
        let held = budget.take(Share::HardLinks, 0)?;
        Ok(Self {
            groups: Vec::new(),
            held,
            devices: Vec::new(),
            first_names,
            noted,
            current: None,
            protection,
        })
    }

    /// Checks the source's words on an entry's names.
    pub(super) fn learn(&mut self, entry: &Entry, id: EntryId) -> Result<(), SyncError> {
        let (Some(link), Some(kind)) = (entry.hard_link, file_type(&entry.kind)) else { return Ok(()) };

        match link {
            HardLink::First => {
                if self.groups.len() == self.groups.capacity() {
                    // By an eighth: doubling would cost as much again.
                    let more = self.groups.len() / 8 + 64;
                    self.held.grow((more * size_of::<Group>()) as u64)?;
                    self.groups.reserve_exact(more);
                }
                self.groups.push(Group {
                    entry: id,
                    ino: 0,
                    device: 0,
                    kind,
                    placed: false,
                    path: RecordAt::default(),
                });
            }
            HardLink::To(first) => {
                let known = self.find(first).and_then(|group| self.groups.get(group));
                if known.is_none_or(|group| group.kind != kind) {
                    return Err(misbehaved(PeerMisbehaved::NoSuchGroup { entry: id, first }));
                }
            }
        }

        Ok(())
    }

    /// Returns the group of an entry that was learned.
    pub(super) fn group_of(&self, entry: &Entry, id: EntryId) -> Option<usize> {
        match entry.hard_link? {
            HardLink::First => self.find(id),
            HardLink::To(first) => self.find(first),
        }
    }

    fn find(&self, first: EntryId) -> Option<usize> {
        self.groups.binary_search_by_key(&first, |group| group.entry).ok()
    }

    /// Returns the name that further ones of the group are linked to; `None` when there is none
    /// yet.
    pub(super) fn first_name(&self, succession: &Succession, group: usize) -> Option<FirstName> {
        let group = self.groups.get(group)?;
        if !group.placed || succession.is_lost(group.path.index()) {
            return None;
        }
        // Another name that took over is of another inode, unless it is written in place.
        let moved = succession.successor(group.path.index()).is_some_and(|name| !name.same_inode);
        let device = usize::from(group.device).checked_sub(1).filter(|_| !moved);
        let device = device.and_then(|number| self.devices.get(number));
        Some(FirstName { path: group.path, inode: device.map(|&device| (device, group.ino)) })
    }

    /// Notes the group's first name, and the inode that has it and keeps it. Returns its number: the
    /// one that it has already, if it was noted `again`.
    pub(super) fn place(
        &mut self,
        group: usize,
        path: &RelPath,
        stays: Option<&Metadata>,
        again: bool,
    ) -> Result<Option<u64>, SyncError> {
        let known = self.groups.get(group).filter(|_| again).map(|group| group.path);
        let at = match known {
            Some(at) => at,
            None => self.first_names.push(path.as_bytes()).map_err(spool_error)?,
        };
        let device = stays.map_or(0, |stays| self.device_number(stays.dev));
        let Some(group) = self.groups.get_mut(group) else { return Ok(None) };
        (group.placed, group.path) = (true, at);
        (group.ino, group.device) = (stays.map_or(0, |stays| stays.ino), device);
        Ok(Some(at.index()))
    }

    /// Notes that the first name could not be made: the next one will be it.
    pub(super) fn displace(&mut self, group: usize) {
        if let Some(group) = self.groups.get_mut(group) {
            group.placed = false;
        }
    }

    /// Returns the number of a filesystem; 0 for one beyond so many that links are made without
    /// knowing.
    fn device_number(&mut self, device: u64) -> u16 {
        let known = self.devices.iter().position(|&known| known == device);
        let index = known.unwrap_or(self.devices.len());
        let number = u16::try_from(index + 1).unwrap_or(0);
        if known.is_none() && number > 0 {
            self.devices.push(device);
        }
        number
    }

    /// Returns the path of a first name, or of its successor.
    pub(super) fn path(&self, succession: &Succession, first: &FirstName) -> Result<Vec<u8>, SyncError> {
        match succession.successor(first.number()) {
            Some(successor) => Ok(successor.path),
            None => self.first_names.get(&first.path).map_err(spool_error),
        }
    }

    /// Notes a name to link in the directory that is being planned.
    pub(super) fn note(
        &mut self,
        directory: &Directory,
        further: Further,
        first: &FirstName,
    ) -> Result<(), SyncError> {
        let record = self
            .current
            .get_or_insert_with(|| Record { directory: Deferred::new(directory), links: Vec::new() });
        record.links.push((further, first.path));
        if record.links.len() < MAX_RECORD_LINKS { Ok(()) } else { self.end_directory() }
    }

    /// Ends the notes of the current directory.
    pub(super) fn end_directory(&mut self) -> Result<(), SyncError> {
        let Some(record) = self.current.take() else { return Ok(()) };
        self.noted.push(&record.encode()).map(|_| ()).map_err(spool_error)
    }

    /// Ends the noting. Returns the noted names, to be linked.
    pub(super) fn seal(self) -> Result<Noted, SyncError> {
        let Self { first_names, noted, protection, .. } = self;
        let (first_names, noted) =
            (first_names.seal().map_err(spool_error)?, noted.seal().map_err(spool_error)?);
        Ok(Noted { first_names, noted, protection })
    }
}

impl Noted {
    /// Returns the names by directory.
    pub(super) fn records(&self) -> impl Iterator<Item = Result<Record, SyncError>> {
        let damaged = || spool_error(SpoolError::Damaged { index: 0 });
        self.noted.iter().map(move |record| Record::decode(&record.map_err(spool_error)?).ok_or_else(damaged))
    }

    /// Returns the path of a first name.
    pub(super) fn first_name(&self, at: &RecordAt) -> io::Result<Cow<'_, [u8]>> {
        self.first_names.get(at).map_err(io::Error::other)
    }
}

impl Record {
    /// Writes the directory, then for each link its name, its entry, a byte of flags, its type,
    /// where its first name is, and what is told of it.
    fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.directory.encode(&mut bytes);
        for (Further { entry, name, action, kind, displaces, keeps_newer, told }, first) in &self.links {
            push_name(&mut bytes, name);
            bytes.extend(entry.0.to_ne_bytes());
            let (is_new, is_link) = (*action == Action::Create, *action == Action::Link);
            let flags = [is_new, *displaces, told.is_some(), keeps_newer.is_some(), is_link];
            bytes.push((0..).zip(flags).fold(0, |all, (bit, flag)| all | u8::from(flag) << bit));
            bytes.push(*kind as u8);
            bytes.extend(first.to_bytes());
            if let Some(time) = keeps_newer {
                push_time(&mut bytes, *time);
            }
            if let Some(told) = told {
                told.encode(&mut bytes);
            }
        }
        bytes
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let mut rest = bytes;
        let directory = Deferred::decode(&mut rest)?;
        let mut links = Vec::new();
        while !rest.is_empty() {
            let name = take_name(&mut rest)?;
            let entry = EntryId(u64::from_ne_bytes(take(&mut rest)?));
            let [flags, kind] = take(&mut rest)?;
            let action = match (flags & 1, flags & 16) {
                (0, 0) => Action::Update,
                (0, _) => Action::Link,
                _ => Action::Create,
            };
            let kind = file_type_of(KINDS.get(usize::from(kind)).copied()?);
            let first = RecordAt::from_bytes(take(&mut rest)?);
            let keeps_newer = if flags & 8 != 0 { Some(take_time(&mut rest)?) } else { None };
            let told = if flags & 4 != 0 { Some(Told::decode(&mut rest)?) } else { None };
            let displaces = flags & 2 != 0;
            links.push((Further { entry, name, action, kind, displaces, keeps_newer, told }, first));
        }
        Some(Self { directory, links })
    }
}

fn spool_error(error: SpoolError) -> SyncError {
    records::failed(Operation::HardLink, "the list of hard links", error)
}

/// Links that are noted in one record, so that a wide directory's do not stay in memory.
const MAX_RECORD_LINKS: usize = 1024;

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::Arc;

    use dsync_fs::{FilterSet, Wanted};
    use dsync_wire::{
        message::{Attributes, EntryKind},
        name::Name,
        options::SyncOptions,
    };

    use super::{super::local_rules::LocalRules, *};

    fn links() -> Links {
        let rules = LocalRules::new(&FilterSet::default(), None, true, &Arc::default());
        let protection = Protection::new(rules, &SyncOptions::archive(), &Arc::default());
        Links::new(protection, &Arc::default(), &SpoolHome::default()).unwrap()
    }

    fn entry(kind: EntryKind, hard_link: Option<HardLink>) -> Entry {
        let name = Name::try_from(b"f".as_slice()).unwrap();
        Entry { name, kind, attributes: Attributes::default(), hard_link, implied: false }
    }

    const FILE: EntryKind = EntryKind::File { size: 0, content: None };

    #[test]
    fn only_first_names_of_the_same_type_have_others() {
        let mut links = links();
        let to = |id| Some(HardLink::To(EntryId(id)));
        let mut learn = |id, kind, link| links.learn(&entry(kind, link), EntryId(id)).is_ok();
        assert!(learn(1, FILE, Some(HardLink::First)));
        assert!(learn(2, FILE, None));
        assert!(learn(3, FILE, to(1)));
        for (kind, first) in
            [(FILE, 2), (FILE, 3), (FILE, 4), (FILE, 0), (FILE, u64::MAX), (EntryKind::Fifo, 1)]
        {
            assert!(!learn(4, kind, to(first)), "{first}");
        }
    }

    #[test]
    fn a_first_name_is_found_until_it_is_displaced() {
        let mut links = links();
        for id in 1..=300 {
            links.learn(&entry(FILE, Some(HardLink::First)), EntryId(id)).unwrap();
        }
        let group = links.group_of(&entry(FILE, Some(HardLink::To(EntryId(250)))), EntryId(999)).unwrap();
        assert_eq!(links.groups[group].entry, EntryId(250));
        let path = RelPath::parse(b"a/b").unwrap();
        assert_eq!(links.place(group, &path, None, false).unwrap(), Some(0));
        let at = links.groups[group].path;
        assert_eq!(links.first_names.get(&at).unwrap(), b"a/b");
        links.displace(group);
        assert!(!links.groups[group].placed);
    }

    #[test]
    fn a_record_comes_back_as_it_was_written() {
        let at = Spool::new(&SpoolHome::default()).push(b"x").unwrap();
        let directory = Deferred { path: RelPath::parse(b"d").unwrap(), wanted: Some(Wanted::default()) };
        let further = |name: &[u8], action, kind, displaces| Further {
            entry: EntryId(7),
            name: Component::new(name).unwrap(),
            action,
            kind,
            displaces,
            keeps_newer: displaces.then_some(FileTime { seconds: -1, nanoseconds: 7 }),
            told: displaces.then_some(Told {
                changes: Changes::SIZE,
                size: 5,
                facts: Facts::default().uid(7).content(Some([9; 32])),
            }),
        };
        let links = vec![
            (further(&[b'n'; 255], Action::Create, FileType::Fifo, true), at),
            (further(b"m", Action::Update, FileType::File, false), at),
            (further(b"l", Action::Link, FileType::File, false), at),
        ];
        let bytes = Record { directory: directory.clone(), links }.encode();
        let back = Record::decode(&bytes).unwrap();
        assert_eq!(back.directory, directory);
        assert_eq!(back.links[0].0, further(&[b'n'; 255], Action::Create, FileType::Fifo, true));
        assert_eq!(back.links[1].0, further(b"m", Action::Update, FileType::File, false));
        assert_eq!(back.links[2].0, further(b"l", Action::Link, FileType::File, false));
        for cut in 1..bytes.len() {
            let _ = Record::decode(&bytes[..cut]);
        }
    }

    #[test]
    fn a_group_costs_45_bytes() {
        // Grown by an eighth.
        assert_eq!(size_of::<Group>() * 9 / 8, 45);
    }
}
