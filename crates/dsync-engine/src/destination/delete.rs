//! Deletions: noted while planning, carried out when all content has arrived.
//!
//! Nothing is removed when the source could not list everything, when the run did not come to its end,
//! or when there are more deletions than allowed (invariants S5, D13). The list is kept out of memory.

use std::sync::Arc;

use dsync_fs::{Component, Dir, FilterSet, Kind, RelPath, SealedSpool, Spool, SpoolError, Timestamp, Wanted};
use dsync_wire::{
    event::{Action, Planned},
    message::Operation,
};

use super::{
    Site,
    directory::{Directory, settle},
};
use crate::{SyncError, plan::file_type_of};

/// Deletions by directory.
pub(super) struct Deletions {
    spool: Spool,
    entries: u64,
    filter: Protection,
}

/// What is never removed, in a directory that is removed as well.
#[derive(Clone)]
pub(super) struct Protection(Option<Arc<FilterSet>>);

impl Protection {
    /// The excluded entries, unless they are to be removed as well.
    pub(super) fn new(filter: &Arc<FilterSet>, delete_excluded: bool) -> Self {
        Self((!delete_excluded).then(|| Arc::clone(filter)))
    }

    /// True when the entry stays.
    pub(super) fn covers(&self, path: &RelPath, kind: Kind) -> bool {
        self.0.as_ref().is_some_and(|filter| filter.excludes(path.as_bytes(), kind == Kind::Dir))
    }
}

/// The extraneous entries of one directory.
struct Record {
    path: RelPath,
    wanted: Option<Wanted>,
    entries: Vec<(Component, Kind)>,
}

impl Deletions {
    pub(super) fn new(filter: Protection) -> Result<Self, SyncError> {
        Ok(Self { spool: Spool::new(None).map_err(spool_error)?, entries: 0, filter })
    }

    /// Notes the extraneous entries of a directory, whose attributes are then set after the deletions.
    pub(super) fn note(
        &mut self,
        directory: &Directory,
        entries: Vec<(Component, Kind)>,
    ) -> Result<(), SyncError> {
        if entries.is_empty() {
            return Ok(());
        }
        directory.defer();
        self.entries += entries.len() as u64;
        let record = Record { path: directory.path.clone(), wanted: directory.wanted().copied(), entries };
        self.spool.push(&record.encode()).map_err(spool_error)
    }

    /// Carries the deletions out (in a dry run: reports them) and sets the directories' attributes.
    pub(super) fn carry_out(self, site: &Site<'_>, root: Option<&Arc<Dir>>) -> Result<(), SyncError> {
        let Some(root) = root else { return Ok(()) };
        let spool = self.spool.seal().map_err(spool_error)?;
        let allowed = allowed(site, root, &spool, self.entries, &self.filter)?;
        for record in spool.iter() {
            if site.session.halt.stopped() {
                return Ok(());
            }
            let Some(record) = Record::decode(record.map_err(spool_error)?) else {
                return Err(spool_error(SpoolError::Damaged { index: 0 }));
            };
            directory(site, root, &record, allowed, &self.filter)?;
        }
        Ok(())
    }
}

/// Whether the deletions may be made; counts them where they may not.
fn allowed(
    site: &Site<'_>,
    root: &Dir,
    spool: &SealedSpool,
    entries: u64,
    filter: &Protection,
) -> Result<bool, SyncError> {
    if entries == 0 {
        return Ok(true);
    }
    if site.account.listing_damaged() {
        site.account.amend(|report| report.deletions_withheld = entries);
        return Ok(false);
    }
    let Some(limit) = site.policy.options.max_delete else { return Ok(true) };
    let mut count = 0;
    for record in spool.iter() {
        let Some(record) = Record::decode(record.map_err(spool_error)?) else { continue };
        let Ok(dir) = root.open_beneath(&record.path) else { continue };
        for (name, kind) in &record.entries {
            if *kind == Kind::Dir {
                let keeps = |below: &RelPath, kind| filter.covers(&under(&record.path, below), kind);
                // A directory that cannot be listed fails when it is removed.
                let _ = dir.list_tree(name, &keeps, &mut |_, _| count += 1);
            } else {
                count += 1;
            }
        }
    }
    if count > limit {
        site.account.amend(|report| report.deletions_over_limit = count);
        return Ok(false);
    }
    Ok(true)
}

/// Removes the extraneous entries of one directory, then sets its attributes.
fn directory(
    site: &Site<'_>,
    root: &Dir,
    record: &Record,
    allowed: bool,
    filter: &Protection,
) -> Result<(), SyncError> {
    let dir = match root.open_beneath(&record.path) {
        Ok(dir) => Arc::new(dir),
        Err(error) => {
            let cause = site.cause_or_fatal(Operation::Delete, &record.path, error)?;
            return site.problem(Operation::Delete, &record.path, cause);
        }
    };
    if allowed {
        for (name, kind) in &record.entries {
            remove(site, &dir, &record.path, (name, *kind), filter)?;
        }
        site.touched(&dir);
    }
    if site.policy.options.dry_run {
        return Ok(());
    }
    settle(site, &record.path, Some(&dir), record.wanted.as_ref())
}

/// Removes one entry with everything below it and reports each removal; a dry run only reports.
pub(super) fn remove(
    site: &Site<'_>,
    dir: &Dir,
    parent: &RelPath,
    (name, kind): (&Component, Kind),
    filter: &Protection,
) -> Result<(), SyncError> {
    let keeps = |below: &RelPath, kind| filter.covers(&under(parent, below), kind);
    let dry_run = site.policy.options.dry_run;
    let mut told = Ok(());
    let mut tell = |below: &RelPath, kind: Kind| {
        if told.is_ok() {
            told = site.account.planned(deleted(&under(parent, below), kind));
        }
    };
    let result = match kind {
        Kind::Dir if dry_run => {
            dir.list_tree(name, &keeps, &mut tell).map_err(|error| (error.path, error.source))
        }
        Kind::Dir => dir.remove_tree(name, &keeps, &mut tell).map_err(|error| (error.path, error.source)),
        _ => {
            let result = if dry_run { Ok(()) } else { dir.remove_file(name) };
            if result.is_ok() {
                told = site.account.planned(deleted(&parent.join(name), kind));
            }
            let mut path = RelPath::root();
            path.push(name);
            result.map_err(|error| (path, error))
        }
    };
    told?;
    match result {
        // Gone already is what was wanted.
        Err((path, error)) if error.kind() != std::io::ErrorKind::NotFound => {
            let path = under(parent, &path);
            let cause = site.cause_or_fatal(Operation::Delete, &path, error)?;
            site.problem(Operation::Delete, &path, cause)
        }
        _ => Ok(()),
    }
}

fn under(parent: &RelPath, below: &RelPath) -> RelPath {
    let mut path = parent.clone();
    for name in below.components().filter_map(|name| Component::new(name).ok()) {
        path.push(&name);
    }
    path
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
    let source = match error {
        SpoolError::Io { source } => source,
        other => std::io::Error::other(other),
    };
    SyncError::Filesystem { operation: Operation::Delete, path: "the list of deletions".into(), source }
}

impl Record {
    /// Path, attributes, then names with their types; integers in this machine's byte order, because the
    /// record never leaves the process.
    fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let path = self.path.as_bytes();
        bytes.extend((path.len() as u64).to_ne_bytes());
        bytes.extend(path);
        let wanted = self.wanted.unwrap_or_default();
        let mtime = wanted.mtime.map(|time| (time.seconds, time.nanoseconds));
        for field in [wanted.mode.map(u32::from), wanted.uid, wanted.gid, mtime.map(|(_, n)| n)] {
            bytes.push(u8::from(field.is_some()));
            bytes.extend(field.unwrap_or(0).to_ne_bytes());
        }
        bytes.extend(mtime.map_or(0, |(seconds, _)| seconds).to_ne_bytes());
        for (name, kind) in &self.entries {
            let name = name.as_bytes();
            bytes.push(u8::try_from(name.len()).unwrap_or(u8::MAX));
            bytes.extend(name);
            bytes.push(file_type_of(*kind) as u8);
        }
        bytes
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let mut rest = bytes;
        let len = usize::try_from(u64::from_ne_bytes(take(&mut rest)?)).ok()?;
        let (path, tail) = rest.split_at_checked(len)?;
        rest = tail;
        let path = RelPath::parse(path).ok()?;
        let mut field = || {
            let [present] = take(&mut rest)?;
            let value = u32::from_ne_bytes(take(&mut rest)?);
            Some((present == 1).then_some(value))
        };
        let (mode, uid, gid, nanoseconds) = (field()?, field()?, field()?, field()?);
        let seconds = i64::from_ne_bytes(take(&mut rest)?);
        let wanted = Wanted {
            mode: mode.and_then(|mode| u16::try_from(mode).ok()),
            mtime: nanoseconds.map(|nanoseconds| Timestamp { seconds, nanoseconds }),
            uid,
            gid,
        };
        let mut entries = Vec::new();
        while !rest.is_empty() {
            let [len] = take(&mut rest)?;
            let (name, tail) = rest.split_at_checked(usize::from(len))?;
            rest = tail;
            let [kind] = take(&mut rest)?;
            entries.push((Component::new(name).ok()?, KINDS.get(usize::from(kind)).copied()?));
        }
        Some(Self { path, wanted: Some(wanted), entries })
    }
}

fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (head, tail) = rest.split_first_chunk::<N>()?;
    *rest = tail;
    Some(*head)
}

/// Types in the order of their wire values.
const KINDS: [Kind; 7] =
    [Kind::File, Kind::Dir, Kind::Symlink, Kind::Fifo, Kind::Socket, Kind::CharDevice, Kind::BlockDevice];

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
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
            uid: None,
            gid: Some(u32::MAX),
        };
        let entries = vec![(component(&[b'x'; 255]), Kind::Dir), (component(b"y"), Kind::BlockDevice)];
        let record = Record { path: path.clone(), wanted: Some(wanted), entries: entries.clone() };
        let bytes = record.encode();
        let back = Record::decode(&bytes).unwrap();
        assert_eq!((back.path, back.wanted, back.entries), (path, Some(wanted), entries));
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
