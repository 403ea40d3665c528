//! `--delete-before`: a first pass over the listing that only looks for entries to delete.
//!
//! The source's listing is kept, out of memory, while it is compared with the destination's own;
//! when it is complete the deletions are made, and only then the same listing is planned. The
//! source counts each message as forgotten once it was compared, so it never waits, and keeps its
//! entries for the requests of the second pass.

use dsync_fs::{Kind, RelPath, SealedSpool, Spool, SpoolError};
use dsync_wire::{
    codec::{FRAME_HEADER, decode_control, encode_control},
    compress::{Packer, Unpacker},
    kind::Kind as MessageKind,
    link::LinkError,
    message::{ControlMessage, Entry, EntryId, EntryKind, Listing, Operation, Tops},
    options::SyncOptions,
};

use super::{
    super::{delete::Deletions, records},
    comparison::{Comparison, Pass},
    frontier::{Announced, Presence},
    merge::Merge,
    requests::Requests,
};
use crate::SyncError;

/// The first pass, and the listings that it keeps for the second.
pub(super) struct Sweep {
    tops: Tops,
    listings: Spool,
    packer: Packer,
    next_entry: u64,
    next_part: u64,
}

/// The listing of the source as the first pass kept it.
pub(super) struct Kept {
    pub(super) tops: Tops,
    listings: SealedSpool,
}

impl Sweep {
    /// Begins the first pass, if the run makes one.
    pub(super) fn begin(
        options: &SyncOptions,
        tops: &Tops,
        comparison: &mut Comparison<'_>,
    ) -> Result<Option<Self>, SyncError> {
        if !options.needs_whole_listing() {
            return Ok(None);
        }
        comparison.pass = Pass::Sweep;
        comparison.begin(Announced::root(None, comparison.ground.presence()))?;
        let (tops, listings) = (tops.clone(), Spool::new(&comparison.ground.spools));
        Ok(Some(Self { tops, listings, packer: Packer::new(), next_entry: 1, next_part: 0 }))
    }

    /// Compares one part of a directory's listing, and keeps it.
    pub(super) fn listing(
        &mut self,
        listing: Listing,
        comparison: &mut Comparison<'_>,
        requests: &mut Requests<'_>,
    ) -> Result<(), SyncError> {
        let mut merge = comparison.turn_to(listing.dir, requests)?;
        comparison.judge(&mut merge, &listing)?;
        comparison.claim_names(&merge, &listing)?;
        for entry in &listing.entries {
            let id = EntryId(self.next_entry);
            self.next_entry += 1;
            merge.check_order(entry, id)?;
            look_at(comparison, &mut merge, entry, id)?;
            comparison.site.account.entry_checked();
        }
        comparison.end_part(merge, &listing)?;

        self.keep(listing)?;
        let part = self.next_part;
        self.next_part += 1;
        let control = &comparison.site.session.control;
        control.queue(&ControlMessage::ListingDone { part })?;
        control.flush()
    }

    fn keep(&mut self, listing: Listing) -> Result<(), SyncError> {
        let mut record = Vec::new();
        encode_control(&ControlMessage::Listing(listing), &mut self.packer, &mut record)
            .map_err(LinkError::from)?;
        self.listings.push(&record).map(|_| ()).map_err(spool_error)
    }

    /// Ends the first pass: makes the deletions, and returns the listings.
    pub(super) fn end(self, comparison: &mut Comparison<'_>) -> Result<Kept, SyncError> {
        let site = comparison.site;
        let next =
            Deletions::new(comparison.protection.clone(), &site.policy.options, &comparison.ground.spools);
        let deletions = std::mem::replace(&mut comparison.deletions, next);
        let mut changed = |directory: &RelPath| site.hands.note_changed(directory);
        let left = deletions.carry_out(site, comparison.ground.root(), &mut changed)?;
        comparison.deletions.go_on(left);

        comparison.pass = Pass::Plan;
        Ok(Kept { tops: self.tops, listings: self.listings.seal().map_err(spool_error)? })
    }
}

impl Kept {
    /// Returns the parts of the listing, in order.
    pub(super) fn listings(&self) -> impl Iterator<Item = Result<Listing, SyncError>> {
        let mut unpacker = Unpacker::new();
        self.listings.iter().map(move |record| {
            let record = record.map_err(spool_error)?;
            let payload = record.get(FRAME_HEADER..).unwrap_or_default();
            match decode_control(MessageKind::LISTING, payload, 0, &mut unpacker) {
                Ok(ControlMessage::Listing(listing)) => Ok(listing),
                _ => Err(spool_error(SpoolError::Damaged { index: 0 })),
            }
        })
    }
}

/// Looks at the destination's state of an entry.
fn look_at(
    comparison: &mut Comparison<'_>,
    merge: &mut Merge,
    entry: &Entry,
    id: EntryId,
) -> Result<(), SyncError> {
    let mut state = Presence::Ignored;
    if let Some(directory) = merge.directory.clone() {
        let name = comparison.ground.name_of(entry, id)?;
        let met = comparison.meet(merge, &directory, &name)?;
        // A link that may not be followed is reported when the entry is compared.
        let existing = comparison.follow(&directory, &name, entry, met).unwrap_or_default();
        let is_directory = existing.is_some_and(|existing| existing.kind == Kind::Dir);
        if is_directory && comparison.site.policy.copies(&entry.kind) {
            state = Presence::Old { dirty: false };
        }
    }
    if matches!(entry.kind, EntryKind::Directory) {
        let path = merge.path_of(entry);
        let expected = comparison.bounds.may_list(&path.to_path());
        comparison.frontier.announce(Announced { id, path, sets: None, wanted: None, state, expected })?;
    }
    Ok(())
}

fn spool_error(error: SpoolError) -> SyncError {
    records::failed(Operation::Delete, "the listing of the source", error)
}
