//! The files that were asked for and have not arrived.

use std::{
    collections::HashMap,
    io,
    sync::{
        Arc, Mutex, OnceLock,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use dsync_fs::{Component, Kind, PreparedFile, StagedFile, Stamp, Timestamp as FileTime, Wanted};
use dsync_wire::{
    event::{Action, Changes, Done, Ended, Facts, FileType, Planned},
    message::{Cause, EntryId, NeedTail, Segment, Timestamp},
};

use super::{
    Site,
    credit::PartTicket,
    in_place,
    kept::Part,
    overtaken,
    phase::{Again, Phase, Request, Signed},
    protection::Protection,
    removal::{self, Doomed},
    secure,
    slot::Slot,
    stage::Stage,
};
use crate::{
    SyncError,
    halt::lock,
    misbehaved::{PeerMisbehaved, misbehaved},
    state::{KnownSignature, Written},
};

/// One requested file.
pub(super) struct Pending {
    pub(super) entry: EntryId,
    pub(super) slot: Slot,
    pub(super) part: Arc<PartTicket>,
    pub(super) action: Action,
    pub(super) wanted: Wanted,
    /// Size as listed.
    pub(super) size: u64,
    /// The time that was listed, under `--update`: a newer file that has the name by then stays.
    pub(super) keeps_newer: Option<FileTime>,
    /// The directory that has the file's name until then.
    pub(super) displaced: Option<Displaced>,
    /// A delta to an old file may pay.
    pub(super) has_basis: bool,
    /// Its number, where other names will be linked to it.
    pub(super) first_name: Option<u64>,
    pub(super) phase: Mutex<Phase>,
    /// The plan's number until its end is told.
    pub(super) number: AtomicU64,
    /// The facts to tell of it if it takes the place of another name.
    pub(super) facts: Option<Facts>,
    /// Bytes of sums that the source got.
    pub(super) signature_bytes: AtomicU64,
    /// Whether its content shares the source's blocks.
    pub(super) cloned: AtomicBool,
    /// The hash of the content as listed.
    pub(super) listed_content: Option<[u8; 32]>,
    /// The hash of the content that was written, if anybody wants to hear of it.
    pub(super) content: Mutex<Option<[u8; 32]>>,
    /// The signature of the content that was written, for a later run.
    pub(super) signature: Mutex<Option<NewlySigned>>,
}

/// The signature of a file that has not got its name yet.
pub(super) struct NewlySigned {
    pub(super) known: KnownSignature,
    /// The stamp of the file, once its attributes are set.
    pub(super) stamp: Option<Stamp>,
    /// The inode that had the name before.
    pub(super) replaced: Option<u64>,
}

impl Pending {
    /// Returns whether its content comes from the source, and not from a file of an alternate
    /// directory that is equal.
    pub(super) fn is_sent(&self) -> bool {
        self.slot.equal().is_none()
    }

    /// Counts bytes of it for whoever watches.
    pub(super) fn grew(&self, site: &Site<'_>, bytes: u64) {
        site.account.file_grew(self.entry, self.size, bytes, || self.slot.path().as_bytes().into());
    }
}

/// A directory that a file takes the name of, and that is removed then.
pub(super) struct Displaced {
    /// The entries of it that must not be removed.
    protection: Protection,
    /// The name that the directory gets.
    now: OnceLock<Component>,
}

impl Displaced {
    pub(super) fn new(protection: Protection) -> Self {
        Self { protection, now: OnceLock::new() }
    }
}

impl Pending {
    /// Tells of a file that takes the place of another name.
    pub(super) fn announce(&self, site: &Site<'_>) -> Result<(), SyncError> {
        let number = site.account.announced(
            Planned::new(self.action, FileType::File, self.slot.path().as_bytes().to_vec())
                .changes(Changes::NONE)
                .target(Vec::new())
                .size(self.size)
                .facts(self.facts),
        )?;
        self.number.store(number, Ordering::Relaxed);
        Ok(())
    }

    /// Tells the plan's end, once.
    pub(super) fn tell_end(&self, site: &Site<'_>, done: bool) -> Result<(), SyncError> {
        let ended = Ended::default()
            .number(self.number.swap(0, Ordering::Relaxed))
            .done(done)
            .literal_bytes(self.slot.literal_bytes.load(Ordering::Relaxed))
            .signature_bytes(self.signature_bytes.load(Ordering::Relaxed));
        site.account.ended(ended, || {
            Done::new(self.action, FileType::File, self.slot.path().as_bytes().to_vec())
                .bytes(self.size)
                .content(*lock(&self.content))
                .durable(site.syncs_before_telling())
                .cloned(self.is_cloned())
        })
    }

    /// Returns whether its content shares the source's blocks.
    pub(super) fn is_cloned(&self) -> bool {
        self.cloned.load(Ordering::Relaxed)
    }

    /// Tells a finished file whether it may take a directory's name.
    pub(super) fn instruct(&self, prepared: &mut PreparedFile) {
        if let Some(displaced) = &self.displaced
            && let Some(now) = prepared.displace()
        {
            let _ = displaced.now.set(now);
        }
    }

    /// Keeps the signature of the content until the file has its name.
    pub(super) fn set_signature(&self, known: Option<KnownSignature>) {
        let replaces = self.slot.twin.is_none();
        let replaced = self.basis_stamp().filter(|_| replaces).map(|stamp| stamp.ino);
        *lock(&self.signature) = known.map(|known| NewlySigned { known, stamp: None, replaced });
    }

    /// Notes the stamp that the signed content will have with this modification time. A signature of an
    /// earlier attempt, of another length, is none.
    pub(super) fn expect_signed(&self, staged: &StagedFile, mtime: Option<FileTime>) {
        if let Some(signed) = &mut *lock(&self.signature) {
            let len = signed.known.signature.layout().file_len();
            let written = staged.stamp().ok().filter(|stamp| stamp.size == len);
            signed.stamp = written.map(|stamp| Stamp { mtime: mtime.unwrap_or(stamp.mtime), ..stamp });
        }
    }

    /// Notes the signature of a file that has this name now.
    pub(super) fn note_signature(&self, site: &Site<'_>, name: &Component) {
        let Some(NewlySigned { known, stamp: Some(stamp), replaced }) = lock(&self.signature).take() else {
            return;
        };
        if let (Some(state), Some(dir)) = (&site.session.state, &self.slot.directory.dir) {
            let (dir, name) = (Arc::clone(dir), name.clone());
            state.note_signature(Written { dir, name, stamp, replaced, known });
        }
    }

    /// Keeps the entry that has had the file's name until then; the inner error is the reason why
    /// it must stay.
    pub(super) fn secure(&self, site: &Site<'_>) -> Result<io::Result<()>, SyncError> {
        let Some(dir) = &self.slot.directory.dir else { return Ok(Ok(())) };
        if self.slot.is_apart {
            // Under this name, too, the old file may be new by now; its first backup is not.
            return Ok(in_place::keep_content(site, &self.slot, || Ok(())));
        }
        if let Err(overtaken) = overtaken::check(site, dir, &self.slot.name, self.keeps_newer) {
            return Ok(Err(overtaken));
        }
        let protection = self.displaced.as_ref().map(|displaced| &displaced.protection);
        secure::secure(site, dir, &self.slot.directory.path, &self.slot.name, protection)
    }

    /// Removes the directory that had the file's name, once the file has it. The inner error means
    /// that it had to get its name back.
    pub(super) fn remove_displaced(&self, site: &Site<'_>) -> Result<io::Result<()>, SyncError> {
        let (Some(displaced), Some(dir)) = (&self.displaced, &self.slot.directory.dir) else {
            return Ok(Ok(()));
        };
        let Some(now) = displaced.now.get() else { return Ok(Ok(())) };
        let doomed =
            Doomed { parent: &self.slot.directory.path, name: &self.slot.name, now, kind: Kind::Dir };
        removal::make_way(site, dir, doomed, &displaced.protection)
    }

    /// Notes the basis of an attempt, whose last sums the source is about to get. Returns whether
    /// nothing of the file had come before, and the attempt is not over.
    pub(super) fn set_basis(&self, attempt: u8, signed: Signed) -> bool {
        match &mut *lock(&self.phase) {
            Phase::Asked { request, attempt: now, .. } if *now == attempt => {
                *request = Request::Delta(Box::new(signed));
                true
            }
            _ => false,
        }
    }

    /// Looks at the basis of an attempt, of which the source asks for further sums; `None` when the
    /// attempt is over.
    ///
    /// # Errors
    /// [`PeerMisbehaved`] when the attempt has no basis, has begun to arrive, or `take` has nothing
    /// left.
    pub(super) fn further_sums<T>(
        &self,
        attempt: u8,
        take: impl FnOnce(&mut Signed) -> Option<T>,
    ) -> Result<Option<T>, SyncError> {
        let entry = self.entry;
        let too_late = || misbehaved(PeerMisbehaved::RefinedTooLate { entry });
        let mut phase = lock(&self.phase);
        if phase.attempt() != Some(attempt) {
            return Ok(None);
        }

        match &mut *phase {
            Phase::Asked { request: Request::Delta(signed), .. } => {
                take(signed).map(Some).ok_or_else(too_late)
            }
            Phase::Staged { request: Request::Delta(_), .. } => Err(too_late()),
            _ => Err(misbehaved(PeerMisbehaved::NothingToRefine { entry })),
        }
    }

    /// Returns the state of the old file that the content was made from.
    pub(super) fn basis_stamp(&self) -> Option<Stamp> {
        let phase = lock(&self.phase);
        match (phase.tail(), &self.slot) {
            (Some(_), Slot { tail: Some(tail), .. }) => Some(tail.stamp),
            (_, Slot { twin: Some(_), .. }) => None,
            _ => phase.basis_stamp(),
        }
    }

    /// Notes that the end of the file is asked for. Returns the request.
    pub(super) fn want_tail(&self, from: u64, content: Option<[u8; 32]>) -> NeedTail {
        let mut phase = lock(&self.phase);
        let need = NeedTail { entry: self.entry, attempt: phase.attempt().unwrap_or(0), from, content };
        if let Phase::Asked { request, .. } = &mut *phase {
            *request = Request::Tail(need);
        }
        need
    }

    /// Notes the part that an earlier run left of the file, which the source is about to be told
    /// of.
    pub(super) fn set_part(&self, found: Part) {
        if let Phase::Asked { part, .. } = &mut *lock(&self.phase) {
            *part = Some(Box::new(found));
        }
    }

    /// Leaves the part of the file that has arrived where the next run finds it.
    fn keep(&self) {
        let part = match self.end() {
            Phase::Asked { part, .. } => part.map(|part| *part),
            Phase::Staged { stage, .. } => stage.take_part(),
            Phase::Over => None,
        };
        if let Some(Err(error)) = part.map(Part::keep) {
            tracing::debug!(%error, "an unfinished file could not be kept");
        }
    }

    /// Returns the requests before the current one; `None` once the file is over.
    pub(super) fn attempt(&self) -> Option<u8> {
        lock(&self.phase).attempt()
    }

    /// Ends the file. Returns the phase that it was in.
    pub(super) fn end(&self) -> Phase {
        std::mem::replace(&mut *lock(&self.phase), Phase::Over)
    }

    /// Moves on to the next request, or to the end. Returns the next step and the phase before.
    pub(super) fn again(&self, cause: Cause) -> (Again, Phase) {
        lock(&self.phase).again(self.entry, cause)
    }

    /// Returns the stage that a segment belongs to, made for the first one; `None` when the segment
    /// is void because the file was asked for again since, or is over.
    pub(super) fn stage(&self, site: &Site<'_>, header: &Segment) -> Result<Option<Arc<Stage>>, SyncError> {
        let mut phase = lock(&self.phase);
        let Some(attempt) = phase.attempt().filter(|&attempt| header.attempt >= attempt) else {
            return Ok(None);
        };
        if header.attempt > attempt {
            return Err(misbehaved(PeerMisbehaved::UnaskedAttempt { entry: self.entry }));
        }

        let (mut request, part, early) = match std::mem::replace(&mut *phase, Phase::Over) {
            Phase::Over => return Ok(None),
            Phase::Asked { request, part, early, .. } => (request, part.map(|part| *part), early),
            Phase::Staged { request, stage, .. } => {
                *phase = Phase::Staged { attempt, request, stage: Arc::clone(&stage) };
                stage.check_header(header)?;
                return Ok(Some(stage));
            }
        };

        let stage = Arc::new(Stage::create(site, &self.slot, header, request.sources(part))?);
        if let Some(mtime) = early {
            stage.set_complete(mtime);
        }
        *phase = Phase::Staged { attempt, request, stage: Arc::clone(&stage) };
        Ok(Some(stage))
    }

    /// Notes that the source has read the whole file without a change; returns its stage. `None`
    /// where nothing has arrived yet, as the end may overtake the file's only segment, and where
    /// the attempt is over.
    pub(super) fn complete(&self, attempt: u8, mtime: Timestamp) -> Option<Arc<Stage>> {
        let mut phase = lock(&self.phase);
        if phase.attempt() != Some(attempt) {
            return None;
        }
        match &mut *phase {
            Phase::Asked { early, .. } => {
                *early = Some(mtime);
                None
            }
            Phase::Staged { stage, .. } => {
                stage.set_complete(mtime);
                Some(Arc::clone(stage))
            }
            Phase::Over => None,
        }
    }
}

/// Files in flight by entry number.
#[derive(Default)]
pub(super) struct Files {
    by_entry: Mutex<HashMap<EntryId, Arc<Pending>>>,
}

impl Files {
    /// Notes a file.
    pub(super) fn insert(&self, file: &Arc<Pending>) {
        lock(&self.by_entry).insert(file.entry, Arc::clone(file));
    }

    /// Returns the file of this number, unless it has arrived or failed (or was never asked for).
    pub(super) fn get(&self, entry: EntryId) -> Option<Arc<Pending>> {
        lock(&self.by_entry).get(&entry).cloned()
    }

    /// Leaves unfinished files where the next run finds them, or removes them; no thread may be
    /// writing them any more.
    pub(super) fn leave(&self, keep: bool) {
        for (_, file) in std::mem::take(&mut *lock(&self.by_entry)) {
            if keep {
                file.keep();
            } else {
                drop(file.end());
            }
        }
    }

    /// Forgets a file that has arrived or failed.
    pub(super) fn remove(&self, entry: EntryId) {
        lock(&self.by_entry).remove(&entry);
    }
}
