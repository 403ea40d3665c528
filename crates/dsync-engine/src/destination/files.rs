//! The files that were asked for and have not arrived.
//!
//! A file is asked for at most [`MAX_ATTEMPTS`] times: again without a basis when what came is not what the source
//! sent, again when it changed while the source read it.

use std::{
    collections::HashMap,
    io,
    sync::{
        Arc, Mutex, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
};

use dsync_delta::{Layout, Signature};
use dsync_fs::{Component, Dir, Kind, PreparedFile, SourceFile, StagedFile, Stamp, Wanted};
use dsync_wire::{
    event::Action,
    limits::MAX_ATTEMPTS,
    message::{Cause, ControlMessage, EntryId, NeedTail, Operation, Segment, Timestamp},
};

use super::{
    Site,
    alternate::Twin,
    credit::PartTicket,
    delete::{self, Doomed, Protection},
    directory::Directory,
    kept::Part,
    stage::{self, Stage, Verdict},
};
use crate::{
    SyncError,
    halt::lock,
    misbehaved::{PeerMisbehaved, misbehaved},
};

/// One requested file.
pub(super) struct Pending {
    pub(super) entry: EntryId,
    pub(super) directory: Arc<Directory>,
    pub(super) part: Arc<PartTicket>,
    /// Name at the destination.
    pub(super) name: Component,
    pub(super) action: Action,
    pub(super) wanted: Wanted,
    /// Size as listed.
    pub(super) size: u64,
    pub(super) circumstances: Circumstances,
    /// The directory that has the file's name until then, and what of it must not be removed.
    displaced: OnceLock<Displaced>,
    /// A delta to an old file may pay.
    pub(super) has_basis: bool,
    /// Its number as the first of several names.
    first_name: OnceLock<u64>,
    /// Set when the old file's content was kept, before it was written into.
    has_backup: AtomicBool,
    transfer: Mutex<Transfer>,
}

/// A directory that a file takes the name of.
struct Displaced {
    protection: Protection,
    /// The name that the directory gets.
    now: OnceLock<Component>,
}

/// What stands where a file goes, and what it may be made from.
#[derive(Default)]
pub(super) struct Circumstances {
    /// The old file itself is written.
    pub(super) in_place: bool,
    /// It is added to.
    pub(super) tail: Option<Tail>,
    /// A file of an alternate directory.
    pub(super) twin: Option<Twin>,
}

/// What there is of a file that is added to.
#[derive(Clone, Copy)]
pub(super) struct Tail {
    pub(super) from: u64,
    /// What the old file was when this was decided.
    pub(super) stamp: Stamp,
}

/// The state of a file's transfer.
#[derive(Default)]
struct Transfer {
    attempt: u8,
    basis: Option<Arc<Basis>>,
    /// A copy of the basis that shares its extents, to be made the new file by writing what differs.
    clone: Option<StagedFile>,
    stage: Option<Arc<Stage>>,
    /// The basis' weak sums, until they are asked for; `None` when they were sent.
    weak_sums: Option<Signature>,
    /// The layout that the tokens count in when sums of shorter blocks were asked for.
    fine: Option<Layout>,
    /// When the source had read it, if that came before the first segment.
    early: Option<Timestamp>,
    /// What an earlier run left of it.
    part: Option<Part>,
    /// What was asked for, when that was the end of the file only.
    tail: Option<NeedTail>,
}

/// The old file that a delta refers to.
pub(super) struct Basis {
    pub(super) file: SourceFile,
    pub(super) layout: Layout,
    /// Bytes of signature that the source may hold for it.
    pub(super) signature_bytes: u64,
}

/// A file that has come to its end, one way or the other.
pub(super) enum Verified {
    /// Its content is right.
    Good(Arc<Stage>),
    /// It was asked for again, or has failed; nothing is left to do.
    Settled,
}

impl Pending {
    pub(super) fn new(
        entry: EntryId,
        directory: Arc<Directory>,
        part: Arc<PartTicket>,
        name: Component,
        action: Action,
        wanted: Wanted,
        size: u64,
    ) -> Self {
        let (circumstances, transfer) = (Circumstances::default(), Mutex::default());
        let (displaced, first_name, has_basis) = (OnceLock::new(), OnceLock::new(), false);
        Self {
            entry,
            directory,
            part,
            name,
            action,
            wanted,
            size,
            circumstances,
            displaced,
            has_basis,
            first_name,
            has_backup: AtomicBool::new(false),
            transfer,
        }
    }

    /// Returns whether the old file's content was kept.
    pub(super) fn has_backup(&self) -> bool {
        self.has_backup.load(Ordering::Acquire)
    }

    /// Notes that the old file's content was kept.
    pub(super) fn set_backup(&self) {
        self.has_backup.store(true, Ordering::Release);
    }

    /// Notes that other names will be linked to this one.
    pub(super) fn set_first_name(&self, number: u64) {
        let _ = self.first_name.set(number);
    }

    /// The file will not have its name; another one may take over.
    pub(super) fn lost(&self, site: &Site<'_>) -> Result<(), SyncError> {
        site.account.transfer_failed(self.action, self.size);
        let next = self.first_name().map(|number| site.succession.lost(number)).transpose()?.flatten();
        next.map_or(Ok(()), |next| next.take_over(site))
    }

    /// Asks for the file in the place of one that had the same content.
    pub(super) fn take_over(self: &Arc<Self>, site: &Site<'_>) -> Result<(), SyncError> {
        site.account.transfer_added(self.size);
        match &site.local {
            Some(local) => local.again(self),
            None => {
                site.files.insert(self);
                site.session.control.send(&ControlMessage::Need { entry: self.entry, attempt: 0 })
            }
        }
    }

    /// The file need not be asked for.
    pub(super) fn let_go(&self, site: &Site<'_>) -> Result<(), SyncError> {
        site.awaited.release();
        self.directory.release(site)?;
        self.part.release(&site.session.control)
    }

    /// Lets the file take the name of a directory, which is removed then.
    pub(super) fn displace(&self, protection: Protection) {
        let _ = self.displaced.set(Displaced { protection, now: OnceLock::new() });
    }

    /// True when it may.
    pub(super) fn displaces(&self) -> bool {
        self.displaced.get().is_some()
    }

    /// Its number, where other names will be linked to it.
    pub(super) fn first_name(&self) -> Option<u64> {
        self.first_name.get().copied()
    }

    /// Tells a finished file whether it may take a directory's name.
    pub(super) fn instruct(&self, prepared: &mut PreparedFile) {
        if let Some(displaced) = self.displaced.get()
            && let Some(now) = prepared.displace()
        {
            let _ = displaced.now.set(now);
        }
    }

    /// Keeps what has the file's name until then; the inner error says why it must stay.
    pub(super) fn secure(&self, site: &Site<'_>) -> Result<io::Result<()>, SyncError> {
        let Some(dir) = &self.directory.dir else { return Ok(Ok(())) };
        let protection = self.displaced.get().map(|displaced| &displaced.protection);
        site.secure(dir, &self.directory.path, &self.name, protection)
    }

    /// The file has its name: removes the directory that had it.
    pub(super) fn remove_displaced(&self, site: &Site<'_>) -> Result<(), SyncError> {
        let (Some(displaced), Some(dir)) = (self.displaced.get(), &self.directory.dir) else { return Ok(()) };
        let Some(now) = displaced.now.get() else { return Ok(()) };
        let doomed = Doomed { parent: &self.directory.path, name: &self.name, now, kind: Kind::Dir };
        delete::remove(site, dir, doomed, &displaced.protection)
    }

    /// Adds what stands where the file goes.
    pub(super) fn onto(mut self, circumstances: Circumstances) -> Self {
        self.circumstances = circumstances;
        self
    }

    /// The directory that has the old file, and whether that is the destination's own.
    pub(super) fn basis_dir(&self) -> Option<(&Arc<Dir>, bool)> {
        match &self.circumstances.twin {
            Some(twin) => Some((&twin.dir, false)),
            None => self.directory.dir.as_ref().map(|dir| (dir, true)),
        }
    }

    /// Notes the basis that the source is about to be told of, its clone if it has one, and the weak sums that
    /// the source is not told.
    pub(super) fn set_basis(&self, basis: Basis, clone: Option<StagedFile>, weak_sums: Option<Signature>) {
        let mut transfer = lock(&self.transfer);
        transfer.basis = Some(Arc::new(basis));
        transfer.clone = clone;
        transfer.weak_sums = weak_sums;
    }

    /// The old file that the delta is made from.
    pub(super) fn basis(&self) -> Option<Arc<Basis>> {
        lock(&self.transfer).basis.clone()
    }

    /// The basis' weak sums, for a source that asks; `None` when it has them, or is past the need for them.
    pub(super) fn weak_sums(&self) -> Option<Signature> {
        let mut transfer = lock(&self.transfer);
        if transfer.fine.is_some() || transfer.stage.is_some() { None } else { transfer.weak_sums.take() }
    }

    /// Notes that the tokens will count in shorter blocks; false when they do so already or have begun.
    pub(super) fn refine(&self, fine: Layout) -> bool {
        let mut transfer = lock(&self.transfer);
        let first = transfer.fine.is_none() && transfer.stage.is_none();
        transfer.fine = Some(fine);
        // They come first or never.
        transfer.weak_sums = None;
        first
    }

    /// The state of the old file that the delta was made from.
    pub(super) fn basis_stamp(&self) -> Option<Stamp> {
        let transfer = lock(&self.transfer);
        if let (Some(_), Some(tail)) = (&transfer.tail, &self.circumstances.tail) {
            return Some(tail.stamp);
        }
        transfer.basis.as_ref().filter(|_| self.circumstances.twin.is_none()).map(|basis| basis.file.stamp())
    }

    /// Notes that the end of the file is asked for.
    pub(super) fn want_tail(&self, from: u64, content: Option<[u8; 32]>) -> NeedTail {
        let mut transfer = lock(&self.transfer);
        let need = NeedTail { entry: self.entry, attempt: transfer.attempt, from, content };
        *transfer.tail.insert(need)
    }

    /// Notes what an earlier run left of the file, of which the source is about to be told.
    pub(super) fn set_part(&self, part: Part) {
        lock(&self.transfer).part = Some(part);
    }

    /// Leaves what there is of the file where the next run finds it.
    fn keep(&self) {
        let (part, stage) = {
            let mut transfer = lock(&self.transfer);
            (transfer.part.take(), transfer.stage.take())
        };
        if let Some(part) = part.or_else(|| stage.and_then(|stage| stage.take_part()))
            && let Err(error) = part.keep()
        {
            tracing::debug!(%error, "an unfinished file could not be kept");
        }
    }

    /// The current attempt.
    pub(super) fn attempt(&self) -> u8 {
        lock(&self.transfer).attempt
    }

    /// The stage that a segment belongs to, made for the first one; `None` when it is void because the
    /// file was asked for again since.
    pub(super) fn stage(&self, site: &Site<'_>, header: &Segment) -> Result<Option<Arc<Stage>>, SyncError> {
        let mut transfer = lock(&self.transfer);
        if header.attempt < transfer.attempt {
            return Ok(None);
        }
        if header.attempt > transfer.attempt {
            return Err(misbehaved(PeerMisbehaved::UnaskedAttempt { entry: self.entry }));
        }
        if let Some(stage) = &transfer.stage {
            stage.check_header(header)?;
            return Ok(Some(Arc::clone(stage)));
        }
        let sources = stage::Sources {
            basis: transfer.basis.clone(),
            fine: transfer.fine,
            clone: transfer.clone.take(),
            tail_from: transfer.tail.map(|tail| tail.from),
            part: transfer.part.take(),
        };
        let stage = Arc::new(Stage::create(site, self, header, sources)?);
        if let Some(mtime) = transfer.early.take() {
            stage.set_complete(mtime);
        }
        transfer.stage = Some(Arc::clone(&stage));
        Ok(Some(stage))
    }

    /// Takes what the source said of a file that went in segments.
    pub(super) fn file_end(
        self: &Arc<Self>,
        site: &Site<'_>,
        attempt: u8,
        outcome: Result<Timestamp, Cause>,
    ) -> Result<Verified, SyncError> {
        let mut transfer = lock(&self.transfer);
        if attempt != transfer.attempt {
            return Ok(Verified::Settled);
        }
        match (outcome, transfer.stage.clone()) {
            (Ok(mtime), Some(stage)) => {
                drop(transfer);
                stage.set_complete(mtime);
                self.verify(site, &stage)
            }
            // The end may overtake the file's only segment.
            (Ok(mtime), None) => {
                transfer.early = Some(mtime);
                Ok(Verified::Settled)
            }
            (Err(cause), _) => {
                drop(transfer);
                self.give_up_or_retry(site, cause)?;
                Ok(Verified::Settled)
            }
        }
    }

    /// Checks a staged file once all its segments and its outcome are here.
    pub(super) fn verify(
        self: &Arc<Self>,
        site: &Site<'_>,
        stage: &Arc<Stage>,
    ) -> Result<Verified, SyncError> {
        match stage.verdict() {
            Verdict::Incomplete => return Ok(Verified::Settled),
            Verdict::Good => return Ok(Verified::Good(Arc::clone(stage))),
            Verdict::Mismatch => self.give_up_or_retry(site, Cause::ContentMismatch)?,
            Verdict::Broken(operation, cause) => self.fail(site, operation, cause)?,
        }
        Ok(Verified::Settled)
    }

    /// Asks for the file again, whole, if its failure may be one of this attempt only; else records it.
    pub(super) fn give_up_or_retry(self: &Arc<Self>, site: &Site<'_>, cause: Cause) -> Result<(), SyncError> {
        let (again, request, basis) = {
            let mut transfer = lock(&self.transfer);
            transfer.stage = None;
            transfer.early = None;
            transfer.part = None;
            transfer.fine = None;
            transfer.weak_sums = None;
            transfer.clone = None;
            let retryable = matches!(cause, Cause::Changed | Cause::ContentMismatch);
            let again = retryable && transfer.attempt + 1 < MAX_ATTEMPTS;
            if again {
                transfer.attempt += 1;
            }
            let (entry, attempt) = (self.entry, transfer.attempt);
            // A beginning that is another one is of no use; one that changed may be as it was.
            transfer.tail = transfer.tail.filter(|_| cause == Cause::Changed);
            let request = match &mut transfer.tail {
                Some(tail) => {
                    tail.attempt = attempt;
                    ControlMessage::NeedTail(*tail)
                }
                None => ControlMessage::Need { entry, attempt },
            };
            (again, request, transfer.basis.take())
        };
        if let Some(basis) = basis {
            site.signatures.give(basis.signature_bytes);
        }
        if again {
            return match &site.local {
                Some(local) => local.again(self),
                None => site.session.control.send(&request),
            };
        }
        let operation = match cause {
            Cause::ContentMismatch => Operation::WriteFile,
            _ => Operation::ReadFile,
        };
        self.give_up(site, operation, cause)
    }

    /// Records what the system said at the destination; what every other file would meet ends the run.
    pub(super) fn broke(
        self: &Arc<Self>,
        site: &Site<'_>,
        operation: Operation,
        error: io::Error,
    ) -> Result<(), SyncError> {
        let cause = site.cause_or_fatal(operation, &self.directory.path.join(&self.name), error)?;
        self.fail(site, operation, cause)
    }

    /// Records a failure at the destination.
    pub(super) fn fail(
        self: &Arc<Self>,
        site: &Site<'_>,
        operation: Operation,
        cause: Cause,
    ) -> Result<(), SyncError> {
        {
            let mut transfer = lock(&self.transfer);
            transfer.stage = None;
            // What still arrives for it is void.
            transfer.attempt = u8::MAX;
        }
        self.give_up(site, operation, cause)
    }

    /// Records why the file will not have its name, and ends it.
    fn give_up(&self, site: &Site<'_>, operation: Operation, cause: Cause) -> Result<(), SyncError> {
        site.problem(operation, &self.directory.path.join(&self.name), cause)?;
        self.lost(site)?;
        self.done(site)
    }

    /// The file's content is here: no other name need carry it.
    pub(super) fn arrived(&self, site: &Site<'_>) -> Result<(), SyncError> {
        self.owed_no_more(site);
        let waited = self.first_name().map(|number| site.succession.arrived(number));
        waited.into_iter().flatten().try_for_each(|other| other.let_go(site))
    }

    /// The source owes nothing more for this file.
    fn owed_no_more(&self, site: &Site<'_>) {
        if let Some(basis) = lock(&self.transfer).basis.take() {
            site.signatures.give(basis.signature_bytes);
        }
        lock(&self.transfer).stage = None;
        if site.local.is_none() {
            site.files.remove(self.entry);
        }
        site.awaited.release();
    }

    /// Ends a file that arrived or failed: releases its listing and its directory.
    fn done(&self, site: &Site<'_>) -> Result<(), SyncError> {
        self.owed_no_more(site);
        self.finished(site)
    }

    /// The file is in place, or never will be.
    pub(super) fn finished(&self, site: &Site<'_>) -> Result<(), SyncError> {
        site.account.file_done();
        self.directory.release(site)?;
        self.part.release(&site.session.control)
    }
}

/// Files under way by entry number.
#[derive(Default)]
pub(super) struct Files {
    by_entry: Mutex<HashMap<EntryId, Arc<Pending>>>,
}

impl Files {
    /// Notes a file.
    pub(super) fn insert(&self, file: &Arc<Pending>) {
        lock(&self.by_entry).insert(file.entry, Arc::clone(file));
    }

    /// The file of this number, unless it has arrived or failed (or was never asked for).
    pub(super) fn get(&self, entry: EntryId) -> Option<Arc<Pending>> {
        lock(&self.by_entry).get(&entry).cloned()
    }

    /// Leaves unfinished files where the next run finds them; no thread may be writing them any more.
    pub(super) fn keep_unfinished(&self) {
        for (_, file) in std::mem::take(&mut *lock(&self.by_entry)) {
            file.keep();
        }
    }

    fn remove(&self, entry: EntryId) {
        lock(&self.by_entry).remove(&entry);
    }
}
