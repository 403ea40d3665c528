//! The listing of a batch: sends recorded messages as the lister sends those of a walk.
//!
//! The destination cannot tell the two apart, and holds both to the same bounds. Paths share those of their
//! parents: a short batch could else name many long ones.

use std::{collections::HashMap, sync::atomic::AtomicU8};

use dsync_fs::{Component, SharedPath};
use dsync_wire::message::{ControlMessage, EntryKind, Listing};

use super::{
    Shared,
    catalogue::{Home, Kept, Part, Rights},
    spans::Outlet,
};
use crate::{
    SyncError,
    batch::{Batch, BatchFault},
    set_bytes,
};

/// Sends the listing that a batch has.
pub(super) fn run(shared: &Shared<'_>, batch: &Batch) -> Result<(), SyncError> {
    let mut replay = Replay {
        shared,
        batch,
        outlet: Outlet::new(None),
        paths: HashMap::from([(0, SharedPath::root())]),
        next_entry: 1,
    };
    for message in batch.messages() {
        if shared.session.halt.stopped() {
            return Ok(());
        }
        match message? {
            ControlMessage::Listing(listing) => replay.listing(listing)?,
            message @ ControlMessage::ListingEnd(_) => shared.session.control.send(&message)?,
            message => shared.session.control.queue(&message)?,
        }
    }
    Ok(())
}

/// A listing that is sent again.
struct Replay<'a> {
    shared: &'a Shared<'a>,
    batch: &'a Batch,
    outlet: Outlet,
    /// Paths of the directories whose own listing is not over.
    paths: HashMap<u64, SharedPath>,
    next_entry: u64,
}

impl Replay<'_> {
    fn listing(&mut self, listing: Listing) -> Result<(), SyncError> {
        let options = &self.shared.session.options;
        let damaged = || self.batch.error(BatchFault::Damaged);
        let path = self.paths.get(&listing.dir.0).cloned().ok_or_else(damaged)?;
        let first = self.next_entry;
        let mut entries = Vec::with_capacity(listing.entries.len());

        for entry in &listing.entries {
            let name = Component::new(entry.name.as_bytes()).map_err(|_| damaged())?;
            let size = if let EntryKind::File { size, .. } = entry.kind { size } else { 0 };
            if entry.kind == EntryKind::Directory {
                self.paths.insert(self.next_entry, path.join(&name));
            }
            self.shared.session.note_length(size);
            entries.push(Kept { name, size, followed: None, rights: Rights::UNKNOWN });
            self.next_entry += 1;
        }
        if listing.last {
            self.paths.remove(&listing.dir.0);
        }

        let requests = entries.iter().map(|_| AtomicU8::new(0)).collect();
        let set_bytes = if options.acls || options.xattrs { set_bytes::of_sets(&listing) } else { 0 };
        let home = Home::Batch(self.batch.clone(), path.clone());
        let part = Part { home, first, entries, witnesses: Vec::new(), requests, set_bytes };
        self.outlet.send(self.shared, part, listing, path.to_path().as_bytes())
    }
}
