//! Requests of the planner to other threads: for the content of files from the source, for old
//! files from the threads that read them, and to the committer to tell of entries that needed no
//! content.
//!
//! The law: the planner hands over everything that it has noted before it waits for anything: the
//! credit that it waits for may come back only when these files have come.

use std::sync::{Arc, atomic::Ordering};

use crossbeam_channel::Sender;
use dsync_fs::{Kind, Metadata};
use dsync_wire::{
    event::Planned,
    link::LinkError,
    message::{ControlMessage, EntryId},
    options::Append,
};

use super::{
    super::{
        Site,
        call::Call,
        commit::Outbox,
        credit::{Credit, PartTicket},
        files::Pending,
        hands::Hands,
        landed::Unsent,
        removal,
        settle::Outcome,
        transfers::Transfers,
    },
    place::Place,
};
use crate::{
    SyncError,
    halt::lock,
    schedule::{Point, point},
};

/// The planner's ways to the other threads and to the source.
pub(super) struct Requests<'a> {
    transfers: &'a Transfers<'a>,
    handover: Handover<'a>,
    outbox: Outbox<'a>,
}

/// A file that is about to be asked for; it holds its credit, its directory and its part of the
/// listing.
pub(super) struct Request {
    pub(super) file: Arc<Pending>,
    /// An earlier run may have left a part of it.
    pub(super) has_part: bool,
}

impl<'a> Requests<'a> {
    pub(super) fn new(
        transfers: &'a Transfers<'a>,
        readers: Sender<Vec<Arc<Pending>>>,
        outbox: Outbox<'a>,
    ) -> Self {
        Self {
            transfers,
            handover: Handover { call: &transfers.call, readers, files: Vec::new(), bytes: 0 },
            outbox,
        }
    }

    /// Acquires `amount` of a credit, blocking until it is free. Returns `false` when the run has
    /// ended.
    pub(super) fn take(&mut self, credit: &Credit, amount: u64) -> Result<bool, SyncError> {
        if credit.try_take(amount) {
            return Ok(true);
        }
        self.flush()?;
        Ok(credit.take(amount, &self.transfers.site.session.halt))
    }

    /// Acquires the credit of a file in flight: one of the awaited, its directory and its part of
    /// the listing.
    pub(super) fn admit(&mut self, file: Pending) -> Result<Arc<Pending>, SyncError> {
        file.slot.directory.hold();
        file.part.hold();
        // The bound on files in flight: a source that lists more meanwhile gets ahead of its
        // credit.
        self.take(&self.transfers.awaited, 1)?;
        Ok(Arc::new(file))
    }

    /// Asks for a file. Idle hands ask for none: they only tell what would go when it arrived.
    pub(super) fn send(
        &mut self,
        place: &Place<'_>,
        request: Request,
        planned: Option<Planned>,
    ) -> Result<(), SyncError> {
        let site = self.transfers.site;
        let number = planned.map_or(Ok(0), |planned| site.account.announced(planned))?;
        request.file.number.store(number, Ordering::Relaxed);
        let progress = &site.account.progress;
        let there = request.file.slot.tail.map_or(0, |tail| tail.from);
        progress.files_needed.fetch_add(1, Ordering::Relaxed);
        progress.bytes_needed.fetch_add(request.file.size - there, Ordering::Relaxed);

        match site.hands {
            Hands::Working => self.ask(request),
            Hands::Idle(_) => {
                tell_displaced(site, place)?;
                self.transfers.settle(&request.file, Outcome::Needless)
            }
        }
    }

    fn ask(&mut self, Request { file, has_part }: Request) -> Result<(), SyncError> {
        let transfers = self.transfers;
        if let Some(number) = file.first_name {
            transfers.succession.begin(number);
        }
        // In a local run nothing comes by number.
        if !transfers.is_local() {
            transfers.files.insert(&file);
        }

        let site = transfers.site;
        let append = site.policy.options.writing.append;
        let believed = file.slot.tail.filter(|_| append == Append::Believing && !transfers.is_local());
        if let Some(tail) = believed {
            let need = file.want_tail(tail.from, None);
            site.session.control.queue(&ControlMessage::NeedTail(need))
        } else if file.has_basis || has_part || transfers.is_local() {
            self.handover.add(file)
        } else {
            site.session.control.queue(&ControlMessage::Need { entry: file.entry, attempt: 0 })
        }
    }

    /// Tells the source that an entry needed no content, once the disk has it; `before` is its
    /// metadata before the run, if the run did not make it. `sent`: whether this run brought it all
    /// the same. The first of several names waits for the others.
    pub(super) fn landed(
        &mut self,
        id: EntryId,
        part: &Arc<PartTicket>,
        place: &Place<'_>,
        before: Option<&Metadata>,
        sent: bool,
    ) -> Result<(), SyncError> {
        let site = self.transfers.site;
        if !site.removes(sent) {
            return Ok(());
        }
        if let Some(dir) = &place.directory.dir {
            site.touched(dir);
        }
        let unsent = Unsent::new(id, part, before);
        if place.first_name.is_none() {
            return self.outbox.submit_unsent(unsent);
        }
        lock(&self.transfers.first_names).note(unsent.landed)?;
        unsent.part.release(&site.session.control)
    }

    /// Hands over all that is noted.
    pub(super) fn flush(&mut self) -> Result<(), SyncError> {
        self.handover.flush()?;
        self.transfers.site.session.control.flush()
    }
}

/// Tells what would go with the arrival of an entry that idle hands do not ask for.
pub(super) fn tell_displaced(site: &Site<'_>, place: &Place<'_>) -> Result<(), SyncError> {
    match (&place.directory.dir, place.displaced) {
        (Some(dir), Some(Kind::Dir)) => {
            removal::displace(site, dir, place.doomed(place.name, Kind::Dir), place.protection)
        }
        _ => Ok(()),
    }
}

/// The way of files that this end reads something of first: old files to sign or, in a local run,
/// all. They go together, so that many small ones wake a reader once.
struct Handover<'a> {
    call: &'a Call,
    readers: Sender<Vec<Arc<Pending>>>,
    files: Vec<Arc<Pending>>,
    bytes: u64,
}

impl Handover<'_> {
    fn add(&mut self, file: Arc<Pending>) -> Result<(), SyncError> {
        self.bytes = self.bytes.saturating_add(file.size);
        self.files.push(file);
        let full = self.files.len() >= MAX_TOGETHER || self.bytes >= MAX_BYTES_TOGETHER;
        if full { self.flush() } else { Ok(()) }
    }

    /// Hands over everything that is noted.
    fn flush(&mut self) -> Result<(), SyncError> {
        if self.files.is_empty() {
            return Ok(());
        }
        self.bytes = 0;
        point(Point::Send);
        self.call.work();
        // They end early only when the run has failed.
        self.readers.send(std::mem::take(&mut self.files)).map_err(|_| SyncError::Link(LinkError::Closed))
    }
}

/// Files that are handed over together: so many of one directory that two readers seldom want its
/// lock at once.
const MAX_TOGETHER: usize = 256;
/// Bytes of files that are handed over together, before the last is added: a few milliseconds of
/// copying.
const MAX_BYTES_TOGETHER: u64 = 4 << 20;
