//! Stage 1 at the source: walks the operands and sends what is found, a directory at a time.

use std::{collections::HashSet, os::unix::ffi::OsStrExt, path::PathBuf};

use dsync_fs::{Component, DirRef, Kind, Metadata, RelPath, Walk, WalkOperation, WalkedDir, WalkedEntry};
use dsync_wire::{
    limits::{MAX_ID_NAME, MAX_LISTING_ENTRIES},
    message::{
        Attributes, Cause, ControlMessage, Entry, EntryId, EntryKind, IdName, Listing, ListingEnd, Operation,
        Problem, Tops,
    },
    name::Name,
};
use rayon::prelude::*;

use super::{Shared, catalogue::Part, read};
use crate::{
    SyncError,
    plan::{device_number, timestamp},
};

/// The lister's state.
struct Lister<'a> {
    shared: &'a Shared<'a>,
    names: dsync_fs::Names,
    known_ids: HashSet<(bool, u32)>,
    /// Numbers of directories that are still to be walked, the last one next; `None` for one that was not
    /// listed as an entry.
    directories: Vec<Option<EntryId>>,
    /// Those of the current directory.
    children: Vec<Option<EntryId>>,
    /// The current directory, while parts of it are to come.
    current: Option<Option<EntryId>>,
    next_entry: u64,
    bytes: u64,
}

/// Lists the whole tree.
pub(super) fn run(shared: &Shared<'_>, operands: &[PathBuf], walk: Walk) -> Result<(), SyncError> {
    let mut lister = Lister {
        shared,
        names: dsync_fs::Names::new(),
        known_ids: HashSet::new(),
        directories: vec![Some(EntryId(0))],
        children: Vec::new(),
        current: None,
        next_entry: 1,
        bytes: 0,
    };
    let root = walk.root().copied();
    if let Some(root) = &root {
        lister.announce_ids(root)?;
    }
    let tops =
        Tops { root: root.as_ref().map(attributes), named: walk.named(), single_file: walk.single_file() };
    shared.session.control.send(&ControlMessage::Tops(tops))?;
    for problem in walk.operand_problems() {
        let path =
            operands.get(problem.index).map_or_else(Vec::new, |path| path.as_os_str().as_bytes().to_vec());
        // The user named it: that it is missing is an error, not a change during the run.
        let cause = problem.error.raw_os_error().map_or(Cause::Unrepresentable, Cause::Os);
        let problem = Problem { operation: Operation::Stat, path, cause };
        shared.session.control.send(&ControlMessage::Problem(problem))?;
    }
    for dir in walk {
        if shared.session.halt.stopped() {
            return Ok(());
        }
        lister.directory(&dir)?;
    }
    let end = ListingEnd { entries: lister.next_entry - u64::from(root.is_none()), bytes: lister.bytes };
    shared.session.control.send(&ControlMessage::ListingEnd(end))
}

impl Lister<'_> {
    /// Sends the entries of one directory, or of a part of it.
    fn directory(&mut self, dir: &WalkedDir) -> Result<(), SyncError> {
        for problem in &dir.problems {
            self.problem(problem.operation, problem.path.as_bytes(), &problem.error)?;
        }
        // The walk goes depth first: what it gives is always the directory that was noted last.
        let number = self.current.take().unwrap_or_else(|| self.directories.pop().flatten());
        let mut rest = dir.entries.as_slice();
        while let Some(number) = number {
            let (part, tail) = rest.split_at(part_len(rest));
            rest = tail;
            self.part(number, dir, part, dir.last && rest.is_empty())?;
            if rest.is_empty() {
                break;
            }
        }
        if dir.last {
            self.directories.extend(self.children.drain(..).rev());
        } else {
            self.current = Some(number);
        }
        Ok(())
    }

    fn part(
        &mut self,
        number: EntryId,
        dir: &WalkedDir,
        walked: &[WalkedEntry],
        last: bool,
    ) -> Result<(), SyncError> {
        let contents = self.contents(&dir.dir, walked);
        let mut entries = Vec::with_capacity(walked.len());
        let mut kept = Vec::with_capacity(walked.len());
        let first = self.next_entry;
        for (walked, content) in walked.iter().zip(contents) {
            let content = match content {
                Ok(content) => content,
                Err(cause) => {
                    self.send_problem(Operation::ReadFile, &dir.path.join(&walked.name), cause)?;
                    None
                }
            };
            let Some(entry) = entry(walked, content) else {
                let path = dir.path.join(&walked.name);
                self.send_problem(Operation::Stat, &path, Cause::Unrepresentable)?;
                self.note_directory(walked, None);
                continue;
            };
            self.announce_ids(&walked.metadata)?;
            self.note_directory(walked, Some(EntryId(self.next_entry)));
            let size = if walked.metadata.kind == Kind::File { walked.metadata.size } else { 0 };
            let text_len = walked.link_target.as_ref().map_or(0, |text| text.len() as u64);
            // Sparse files may add up to more than 64 bits hold.
            self.bytes = self.bytes.saturating_add(size).saturating_add(text_len);
            kept.push((walked.name.clone(), size));
            entries.push(entry);
            self.next_entry += 1;
        }
        let part = Part { dir: dir.dir.clone(), first, entries: kept };
        if !self.shared.catalogue.add(part, &self.shared.session.halt) {
            return Ok(());
        }
        let listing = Listing { dir: number, last, complete: dir.complete, entries };
        self.shared.session.control.send(&ControlMessage::Listing(listing))
    }

    /// Notes a directory that the walk will come to.
    fn note_directory(&mut self, walked: &WalkedEntry, number: Option<EntryId>) {
        if walked.metadata.kind == Kind::Dir && self.shared.session.options.recursive {
            self.children.push(number);
        }
    }

    /// Content hashes of the regular files of a part, with `checksum` only.
    fn contents(&self, dir: &DirRef, walked: &[WalkedEntry]) -> Vec<Result<Option<[u8; 32]>, Cause>> {
        if !self.shared.session.options.checksum {
            return vec![Ok(None); walked.len()];
        }
        walked
            .par_iter()
            .map(|entry| match entry.metadata.kind {
                Kind::File => content(dir, &entry.name).map(Some),
                _ => Ok(None),
            })
            .collect()
    }

    /// Sends the names of owner and group before the first entry that has them.
    fn announce_ids(&mut self, metadata: &Metadata) -> Result<(), SyncError> {
        let options = &self.shared.session.options;
        if options.numeric_ids {
            return Ok(());
        }
        let wanted = [(false, metadata.uid, options.owner), (true, metadata.gid, options.group)];
        for (group, id, preserved) in wanted {
            if !preserved || !self.known_ids.insert((group, id)) {
                continue;
            }
            let name = if group { self.names.group_name(id) } else { self.names.user_name(id) };
            let sendable = |name: &Vec<u8>| (1..=MAX_ID_NAME).contains(&name.len()) && !name.contains(&0);
            if let Some(name) = name.filter(sendable) {
                self.shared.session.control.send(&ControlMessage::IdName(IdName { group, id, name }))?;
            }
        }
        Ok(())
    }

    fn problem(&self, step: WalkOperation, path: &[u8], error: &std::io::Error) -> Result<(), SyncError> {
        let operation = match step {
            WalkOperation::ReadDirectory => Operation::ReadDirectory,
            WalkOperation::ReadLink => Operation::ReadLink,
            _ => Operation::Stat,
        };
        let problem = Problem { operation, path: path.to_vec(), cause: read::cause(error) };
        self.shared.session.control.send(&ControlMessage::Problem(problem))
    }

    fn send_problem(&self, operation: Operation, path: &RelPath, cause: Cause) -> Result<(), SyncError> {
        let problem = Problem { operation, path: path.as_bytes().to_vec(), cause };
        self.shared.session.control.send(&ControlMessage::Problem(problem))
    }
}

/// How many of these entries fit in one message.
fn part_len(entries: &[WalkedEntry]) -> usize {
    let mut bytes = 0;
    entries
        .iter()
        .take(MAX_LISTING_ENTRIES)
        .take_while(|entry| {
            bytes +=
                ENTRY_BYTES + entry.name.as_bytes().len() + entry.link_target.as_ref().map_or(0, Vec::len);
            bytes <= MAX_PART_BYTES
        })
        .count()
        .max(1)
        .min(entries.len())
}

/// The wire's form of a walked entry; `None` for one that it cannot express, such as a time that is
/// further off than the sun's end.
fn entry(walked: &WalkedEntry, content: Option<[u8; 32]>) -> Option<Entry> {
    let metadata = &walked.metadata;
    let kind = match metadata.kind {
        Kind::File => EntryKind::File { size: metadata.size, content },
        Kind::Dir => EntryKind::Directory,
        Kind::Symlink => EntryKind::Symlink { target: walked.link_target.clone()? },
        Kind::Fifo => EntryKind::Fifo,
        Kind::Socket => EntryKind::Socket,
        Kind::CharDevice => EntryKind::CharDevice { device: device_number(metadata.rdev) },
        Kind::BlockDevice => EntryKind::BlockDevice { device: device_number(metadata.rdev) },
    };
    let name = Name::try_from(walked.name.as_bytes()).ok()?;
    if !timestamp(metadata.mtime).is_valid() {
        return None;
    }
    Some(Entry { name, kind, attributes: attributes(metadata) })
}

fn attributes(metadata: &Metadata) -> Attributes {
    Attributes { mode: metadata.mode, mtime: timestamp(metadata.mtime), uid: metadata.uid, gid: metadata.gid }
}

/// The unkeyed hash of a file's content.
fn content(dir: &DirRef, name: &Component) -> Result<[u8; 32], Cause> {
    let file = dir.open_source(name).map_err(|error| read::cause(&error))?;
    crate::content::hash(&file).map_err(|error| read::cause(&error))
}

/// Fixed part of an entry's estimated size.
const ENTRY_BYTES: usize = 48;
/// Estimated bytes of one listing message: well under the frame limit, and small enough that the
/// destination starts on a large directory before it is listed to its end.
const MAX_PART_BYTES: usize = 128 << 10;
