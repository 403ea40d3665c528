//! `--inplace`, and files of the destination that have several names: what is written by one name is
//! there by all of them, also by those for which the source has another file.
//!
//! The law: as long as the run keeps or writes an inode for one file of the source, no other file's
//! content is written into it, nor is it taken for that one's. The first entry that meets the inode has
//! it. A later one that was listed with another content gets a file of its own, under its name, which
//! is replaced then. rsync writes one into the other, in turns with each run.
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
pub(super) struct Tenants {
    inodes: HashMap<(u64, u64), Tenant>,
    held: Held,
}

struct Tenant {
    /// A hash of what its content was listed with.
    listed: u64,
    is_written: bool,
}

/// Bytes of one inode in the table, with its share of what the table keeps free.
const INODE_BYTES: u64 = 2 * size_of::<((u64, u64), Tenant)>() as u64;

impl Tenants {
    pub(super) fn new(budget: &Arc<Budget>) -> Result<Self, SyncError> {
        Ok(Self { inodes: HashMap::new(), held: budget.take(Share::HardLinks, 0)? })
    }

    /// Returns whether an entry may have the inode, whose content it `writes` or takes for its own: if
    /// nobody has it, or a file that was listed with the same content, or if neither writes.
    ///
    /// # Errors
    /// Beyond the budget of hard links.
    pub(super) fn admit(
        &mut self,
        entry: &Entry,
        existing: &Metadata,
        writes: bool,
    ) -> Result<bool, SyncError> {
        let inode = (existing.dev, existing.ino);
        let listed = self.listed(entry);
        if let Some(tenant) = self.inodes.get_mut(&inode) {
            let is_admitted = tenant.listed == listed || !(tenant.is_written || writes);
            tenant.is_written |= is_admitted && writes;
            return Ok(is_admitted);
        }

        if self.inodes.len() == self.inodes.capacity() {
            let more = self.inodes.len().max(64);
            self.held.grow(more as u64 * INODE_BYTES)?;
            self.inodes.reserve(more);
        }
        self.inodes.insert(inode, Tenant { listed, is_written: writes });
        Ok(true)
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
