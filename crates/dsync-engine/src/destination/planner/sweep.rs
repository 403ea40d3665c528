//! `--delete-before`: a first pass over the listing that only looks for what is to go.
//!
//! The source's listing is kept, out of memory, while it is compared with the destination's own; when it is
//! complete the deletions are made, and only then the same listing is planned. The source counts each message as
//! forgotten once it was compared, so it never waits, and keeps its entries for the requests of the second pass.

use std::{
    sync::{Arc, atomic::Ordering},
    time::{SystemTime, UNIX_EPOCH},
};

use dsync_fs::{Kind, Metadata, RelPath, SharedPath, Spool, SpoolError, SpoolHome, Timestamp};
use dsync_wire::{
    budget::Share,
    codec::{FRAME_HEADER, decode_control, encode_control},
    compress::{Packer, Unpacker},
    event::Report,
    kind::Kind as MessageKind,
    link::LinkError,
    message::{ControlMessage, Entry, EntryId, EntryKind, Listing, Operation, Tops},
    options::SyncOptions,
};

use super::{
    Announced, Planner, Presence,
    merge::{Merge, check_order},
};
use crate::{
    SyncError,
    destination::{delete::Deletions, records},
    set_bytes,
};

/// What the first pass keeps for the second.
pub(super) struct Sweep {
    tops: Option<Tops>,
    listings: Spool,
    packer: Packer,
    next_entry: u64,
}

impl Sweep {
    /// A sweep, if the run makes one.
    pub(super) fn wanted(options: &SyncOptions, spools: &SpoolHome) -> Option<Self> {
        if !options.needs_whole_listing() {
            return None;
        }
        Some(Self { tops: None, listings: Spool::new(spools), packer: Packer::new(), next_entry: 1 })
    }

    fn keep(&mut self, listing: Listing) -> Result<(), SyncError> {
        let mut record = Vec::new();
        encode_control(&ControlMessage::Listing(listing), &mut self.packer, &mut record)
            .map_err(LinkError::from)?;
        self.listings.push(&record).map(|_| ()).map_err(spool_error)
    }
}

impl Planner<'_> {
    /// Begins the first pass.
    pub(super) fn begin_sweep(&mut self, tops: Tops, state: Presence) -> Result<(), SyncError> {
        if let Some(sweep) = &mut self.sweep {
            sweep.tops = Some(tops);
        }
        let path = SharedPath::root();
        self.list_own(Announced { id: EntryId(0), path, sets: None, wanted: None, state })
    }

    /// Compares one part of a directory's listing, and keeps it.
    pub(super) fn sweep(&mut self, listing: Listing) -> Result<(), SyncError> {
        let mut merge = self.turn_to_merge(listing.dir)?;
        self.judge(&mut merge, &listing)?;
        for entry in &listing.entries {
            let Some(sweep) = &mut self.sweep else { return Ok(()) };
            let id = EntryId(sweep.next_entry);
            sweep.next_entry += 1;
            check_order(&mut merge, entry, id)?;
            self.look_at(&mut merge, entry, id)?;
            self.site.account.progress.entries_checked.fetch_add(1, Ordering::Relaxed);
        }
        self.end_part(merge, &listing)?;
        if let Some(sweep) = &mut self.sweep {
            sweep.keep(listing)?;
        }
        if let Some(part) = self.next_part {
            self.next_part = Some(part + 1);
            self.site.session.control.queue(&ControlMessage::ListingDone { part })?;
        }
        self.site.session.control.flush()
    }

    /// Looks at what the destination has of an entry.
    fn look_at(&mut self, merge: &mut Merge, entry: &Entry, id: EntryId) -> Result<(), SyncError> {
        let mut state = Presence::Ignored;
        if let Some(directory) = merge.directory.clone() {
            let name = self.own_name(entry, id)?;
            let existing = self.meet(merge, &directory, &name)?;
            // What may not be followed is told when the entry is compared.
            let existing = self.through_own_link(&directory, &name, entry, existing).unwrap_or_default();
            if existing.is_some_and(|existing| existing.kind == Kind::Dir) && self.is_copied(&entry.kind) {
                state = Presence::Old { dirty: false };
            }
        }
        if matches!(entry.kind, EntryKind::Directory) {
            let path = merge.path_of(entry);
            self.announce(Announced { id, path, sets: None, wanted: None, state })?;
        }
        Ok(())
    }

    /// Notes a directory in which the first pass will remove something.
    pub(super) fn note_swept(&mut self, path: &RelPath) -> Result<(), SyncError> {
        if self.sweep.is_some() && self.site.policy.options.dry_run {
            self.swept_held.grow((path.as_bytes().len() + SWEPT_BYTES) as u64)?;
            self.swept.insert(path.clone());
        }
        Ok(())
    }

    /// Returns what a directory would be after the first pass: removing an entry changes its time.
    pub(super) fn as_swept(&self, path: &RelPath, existing: Metadata) -> Metadata {
        if existing.kind != Kind::Dir || !self.swept.contains(path) {
            return existing;
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let seconds = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
        Metadata { mtime: Timestamp { seconds, nanoseconds: now.subsec_nanos() }, ..existing }
    }

    /// Ends the first pass: deletes, then plans what was listed.
    pub(super) fn end_sweep(&mut self) -> Result<(), SyncError> {
        let Some(Sweep { tops: Some(tops), listings, .. }) = self.sweep.take() else { return Ok(()) };
        self.announced.clear();
        self.waiting.shrink(self.waiting.bytes());
        let deletions =
            std::mem::replace(&mut self.deletions, Deletions::new(self.protection.clone(), &self.spools));
        let root = self.target.as_ref().and_then(|target| target.root.clone());
        deletions.carry_out(self.site, root.as_ref())?;
        let kept = |report: &Report| report.deletions_withheld + report.deletions_over_limit > 0;
        if kept(&self.site.account.report()) {
            self.swept.clear();
            self.swept_held.shrink(u64::MAX);
        }
        // Every listing was released; from now on none is.
        self.next_part = None;
        self.root_directory(&tops)?;
        let mut unpacker = Unpacker::new();
        for record in listings.seal().map_err(spool_error)?.iter() {
            if self.site.session.halt.stopped() {
                return Ok(());
            }
            let record = record.map_err(spool_error)?;
            let payload = record.get(FRAME_HEADER..).unwrap_or_default();
            match decode_control(MessageKind::LISTING, payload, 0, &mut unpacker) {
                Ok(ControlMessage::Listing(listing)) => {
                    let sets = set_bytes::of_sets(&listing);
                    let sets = self.site.session.budget.take(Share::AttributeSets, sets)?;
                    self.listing(&listing, Some(Arc::new(sets)))?;
                }
                _ => return Err(spool_error(SpoolError::Damaged { index: 0 })),
            }
        }
        Ok(())
    }
}

fn spool_error(error: SpoolError) -> SyncError {
    records::failed(Operation::Delete, "the listing of the source", error)
}

/// What a swept directory takes beside its path: an entry of a set that has just doubled, and an allocation.
const SWEPT_BYTES: usize = 3 * size_of::<RelPath>() + 32;
