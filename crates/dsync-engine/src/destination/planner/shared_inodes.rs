//! `--inplace`, and files of the destination that have several names: what is written by one name is
//! there by all of them, also by those for which the source has another file.
//!
//! The law: as long as the run keeps or writes an inode for one file of the source, no other file's
//! content is written into it, nor is it taken for that one's. The first entry that meets the inode has
//! it. A later one that was listed with another content gets a file of its own, under its name, which
//! is replaced then. rsync writes one into the other, in turns with each run.
//!
//! Under options that leave some files as they are (`--update`, `--append`, limits of size) nobody writes into
//! an inode with several names: one of them may be such a file, and come later.
//!
//! The bound: two files are known apart by the size, the time and, with `--checksum`, the hash that
//! they are listed with, as by the quick check. Attributes do not count: what sets those of one name
//! sets them for all, with and without `--inplace`.

use std::{collections::HashMap, hash::BuildHasher as _, sync::Arc};

use dsync_fs::Metadata;
use dsync_wire::{
    budget::{Budget, Held, Share},
    message::{Entry, EntryKind},
};

use crate::SyncError;

/// The files of the source that have the inodes with several names, each the first one to meet its inode.
pub(super) struct SharedInodes {
    inodes: HashMap<(u64, u64), Holder>,
    held: Held,
}

struct Holder {
    /// A hash of what its content was listed with.
    listed: u64,
    is_written: bool,
}

/// Bytes of one inode in the table, with its share of what the table keeps free.
const INODE_BYTES: u64 = 2 * size_of::<((u64, u64), Holder)>() as u64;

/// Inodes that are remembered: 32 MiB.
const MAX_INODES: usize = 1 << 19;

impl SharedInodes {
    pub(super) fn new(budget: &Arc<Budget>) -> Result<Self, SyncError> {
        Ok(Self { inodes: HashMap::new(), held: budget.take(Share::HardLinks, 0)? })
    }

    /// Returns whether an entry may have the inode, whose content it `writes` or takes for its own: if
    /// nobody has it, or a file that was listed with the same content, or if neither writes. Beyond the
    /// inodes that can be remembered nobody writes.
    pub(super) fn admit(&mut self, entry: &Entry, existing: &Metadata, writes: bool) -> bool {
        let inode = (existing.dev, existing.ino);
        let listed = self.listed(entry);
        if let Some(holder) = self.inodes.get_mut(&inode) {
            let is_admitted = holder.listed == listed || !(holder.is_written || writes);
            holder.is_written |= is_admitted && writes;
            return is_admitted;
        }

        if !self.has_room() {
            return !writes;
        }
        self.inodes.insert(inode, Holder { listed, is_written: writes });
        true
    }

    fn has_room(&mut self) -> bool {
        if self.inodes.len() < self.inodes.capacity() {
            return true;
        }
        let more = self.inodes.len().max(64).min(MAX_INODES - self.inodes.len().min(MAX_INODES));
        let has_room = more > 0 && self.held.grow(more as u64 * INODE_BYTES).is_ok();
        if has_room {
            self.inodes.reserve(more);
        }
        has_room
    }

    fn listed(&self, entry: &Entry) -> u64 {
        let content = match &entry.kind {
            EntryKind::File { size, content } => Some((size, content)),
            _ => None,
        };
        let mtime = entry.attributes.mtime;
        self.inodes.hasher().hash_one((content, mtime.seconds, mtime.nanoseconds))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use dsync_wire::{
        message::{Attributes, Timestamp},
        name::Name,
    };

    use super::*;

    fn entry(size: u64, seconds: i64) -> Entry {
        let mtime = Timestamp { seconds, nanoseconds: 0 };
        Entry {
            name: Name::new(b"file").unwrap(),
            kind: EntryKind::File { size, content: None },
            attributes: Attributes { mtime, ..Attributes::default() },
            hard_link: None,
            implied: false,
        }
    }

    fn inode() -> Metadata {
        let scratch = tempfile::tempdir().unwrap();
        dsync_fs::Dir::open_operand(scratch.path()).unwrap().metadata().unwrap()
    }

    #[test]
    fn nobody_writes_where_another_file_is_kept_or_written() {
        let inode = inode();
        for first_writes in [false, true] {
            let mut shared = SharedInodes::new(&Budget::unbounded()).unwrap();
            assert!(shared.admit(&entry(5, 1), &inode, first_writes));
            assert!(shared.admit(&entry(5, 1), &inode, first_writes), "the same content");
            for other in [entry(6, 1), entry(5, 2)] {
                assert!(!shared.admit(&other, &inode, true));
                assert_eq!(shared.admit(&other, &inode, false), !first_writes);
            }
        }
    }

    #[test]
    fn nobody_writes_into_an_inode_that_cannot_be_remembered() {
        let mut shared = SharedInodes::new(&Budget::new(1)).unwrap();
        let inode = inode();
        assert!(shared.admit(&entry(5, 1), &inode, false));
        assert!(!shared.admit(&entry(5, 1), &inode, true));
        assert_eq!(shared.held.bytes(), 0);
    }
}
