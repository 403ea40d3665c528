//! Stages 3 to 7 of a local run: content goes from file to file and crosses no link.
//!
//! The source lists and the planner decides as in every run; then, instead of asking for a file,
//! the destination opens it by the source's own directory handle. It shares the source's extents
//! where both are on one filesystem that can; else it shares those of the old file, where the
//! destination's filesystem can, and writes only what differs; else it copies, a large file by all
//! workers at once. Holes stay holes.
//!
//! The law: a copy is submitted only if the source file was unchanged from its opening to the end
//! of the last read (invariant D7). If it only grew, copy and source are compared once more: while the
//! source still begins with the copy, the copy is one state of it. A copy that is submitted takes the
//! same way to its name as one that came over a link. Nothing is hashed: there is no peer to distrust,
//! and no wire corrupts bytes that the kernel copies.

use std::{
    io,
    ops::Range,
    sync::{
        Arc, Mutex, RwLock,
        atomic::{AtomicU64, Ordering},
    },
    thread::available_parallelism,
    time::Instant,
};

use crossbeam_channel::{Receiver, Sender, select, unbounded};
use dsync_fs::{CopyError, Opening, Patched, SourceFile, StagedFile, sys::file_size_limit};
use dsync_wire::{
    event::Action,
    message::{Cause, Operation},
    options::{Append, WritePolicy},
};

use super::{
    Site,
    commit::Outbox,
    files::Pending,
    in_place::{self, Coming},
    room::is_full,
    settle::Outcome,
    slot::Tail,
    transfers::Transfers,
    twin,
};
use crate::{
    SyncError,
    content::READ_BYTES,
    halt::lock,
    plan::timestamp,
    schedule::{Point, point},
    slow_reads::ReadGauge,
    source::ListedFiles,
};

/// State that the workers share.
pub(super) struct Local {
    files: ListedFiles,
    /// Large files, of which every worker copies segments as long as there are any.
    large: (Sender<Arc<Large>>, Receiver<Arc<Large>>),
    /// Files to be copied again: they changed while they were read.
    again: Receiver<Arc<Pending>>,
}

/// One copy in flight.
struct Copy {
    file: Arc<Pending>,
    source: SourceFile,
    /// The copy holds an old file's bytes: only what differs is written.
    patch: bool,
    /// Zeros that fill blocks are left out.
    sparse: bool,
    /// The copy has space already where holes go.
    punch: bool,
    /// The end of what can be read, where the source ends before its length. The copy ends there as well if
    /// the source is [made as it is read](SourceFile::is_made_as_read), as in `/sys`.
    end: AtomicU64,
}

/// A copy that all workers take part in.
struct Large {
    copy: Copy,
    /// Taken when the last segment is done.
    staged: RwLock<Option<StagedFile>>,
    next: AtomicU64,
    left: AtomicU64,
    failed: Mutex<Option<Failure>>,
}

/// The reason why a copy failed.
enum Failure {
    /// The source could not be read, or changed.
    Source(Cause),
    /// The copy could not be written.
    Written(std::io::Error),
}

/// One worker's state.
struct Worker<'a> {
    transfers: &'a Transfers<'a>,
    site: &'a Site<'a>,
    local: &'a Local,
    buffers: (Vec<u8>, Vec<u8>),
    reads: ReadGauge,
    outbox: Outbox<'a>,
}

/// Returns the number of workers of a run: copying is done by the kernel, so more than a few
/// only wait for each other.
pub(super) fn workers() -> usize {
    available_parallelism().map_or(2, |cores| cores.get().clamp(2, 8))
}

/// Copies files until no more come.
pub(super) fn run<'a>(
    transfers: &'a Transfers<'a>,
    local: &'a Local,
    outbox: Outbox<'a>,
    files: &Receiver<Vec<Arc<Pending>>>,
) -> Result<(), SyncError> {
    let site = transfers.site;
    let buffers = <(Vec<u8>, Vec<u8>)>::default();
    let mut worker = Worker { transfers, site, local, buffers, reads: ReadGauge::default(), outbox };

    while !site.session.halt.stopped() {
        select! {
            recv(local.large.1) -> large => match large {
                Ok(large) => worker.segments(&large)?,
                Err(_) => return Ok(()),
            },
            recv(local.again) -> file => match file {
                Ok(file) => worker.copy(&file)?,
                Err(_) => return Ok(()),
            },
            // The planner ends when every file has arrived: no job is left then.
            recv(files) -> files => match files {
                Ok(files) => worker.copy_all(&files)?,
                Err(_) => return Ok(()),
            },
        }
        point(Point::Receive);
        worker.outbox.flush()?;
    }

    Ok(())
}

impl Local {
    pub(super) fn new(files: ListedFiles, again: Receiver<Arc<Pending>>) -> Self {
        Self { files, large: unbounded(), again }
    }

    /// Asks a further worker to help with a large file.
    fn help(&self, large: &Arc<Large>) -> Result<(), SyncError> {
        point(Point::Send);
        // Cannot fail: this end of the channel lives as long as the other.
        let sent = self.large.0.send(Arc::clone(large));
        sent.map_err(|_| SyncError::Aborted { message: "no copier is left".to_owned() })
    }
}

impl Worker<'_> {
    /// Copies files that were handed over together, as long as the run goes on. Where reads wait
    /// for a disk, it is asked for all that are left.
    fn copy_all(&mut self, files: &[Arc<Pending>]) -> Result<(), SyncError> {
        self.reads.next_group();
        for (at, file) in files.iter().enumerate() {
            if self.site.session.halt.stopped() {
                break;
            }
            if self.reads.asks_now() {
                let rest = files.get(at..).unwrap_or_default().iter();
                self.reads.ask_for(rest.filter_map(|next| self.local.files.open(next.entry).ok()));
            }
            self.copy(file)?;
        }
        Ok(())
    }

    /// Waits until so many bytes may be copied; returns `false` when the run has ended.
    fn admit(&self, bytes: u64) -> bool {
        let stopped = || self.site.stopped();
        self.site.session.throttle.as_ref().is_none_or(|throttle| throttle.admit(bytes, &stopped))
            && !stopped()
    }

    /// Copies one file, or begins a large one. A clone, or a copy of an equal file, has no bytes to wait for,
    /// and a pause holds it too.
    fn copy(&mut self, file: &Arc<Pending>) -> Result<(), SyncError> {
        if !self.admit(0) {
            return Ok(());
        }
        if let Some(twin) = file.slot.equal()
            && twin::copy(self.transfers, &mut self.outbox, file, twin)?
        {
            return Ok(());
        }
        let source = match self.local.files.open(file.entry) {
            Ok(source) if timestamp(source.stamp().mtime).is_valid() => source,
            Ok(_) => return self.transfers.settle(file, Outcome::Unsound(Cause::Unrepresentable)),
            Err(cause) => return self.transfers.settle(file, Outcome::Unsound(cause)),
        };

        if let Some(tail) = file.slot.tail
            && let Some(done) = self.tail(file, &source, tail)?
        {
            return Ok(done);
        }
        let (len, coming) = (source.len(), self.coming(file, &source));
        let create = || in_place::create(self.site, &file.slot, &coming);
        let staged = match self.site.room.retrying(create) {
            Ok(staged) => staged,
            Err(error) => return self.transfers.settle(file, Outcome::Broke(Operation::WriteFile, error)),
        };
        let WritePolicy { sparse, preallocate, .. } = self.site.policy.options.writing;

        // Shared extents would keep the source's zeros.
        let cloned = len > 0 && !sparse && self.transfers.sharing.clone_whole(&staged, &source);
        file.cloned.store(cloned, Ordering::Relaxed);
        if cloned {
            file.slot.received(self.site, len, 0, 0);
            file.grew(self.site, len);
            if file.slot.in_place
                && let Err(error) = staged.set_len(len)
            {
                return self.give_up(file, staged, Failure::Written(error));
            }
            return self.submit(file, &source, staged);
        }

        let patch = file.slot.in_place || self.clone_old(file, &staged);
        // The length first: it leaves holes where nothing is written, and cuts off the end of an
        // old file that is longer.
        if (patch || sparse || source.has_holes() || len > SEGMENT_BYTES)
            && let Err(error) = staged.set_len(len)
        {
            return self.give_up(file, staged, Failure::Written(error));
        }
        let punch = patch || sparse && preallocate;
        let copy = Copy { file: Arc::clone(file), source, patch, sparse, punch, end: AtomicU64::new(len) };
        if len > SEGMENT_BYTES {
            return self.large(copy, staged);
        }

        if !self.admit(len) {
            return Ok(());
        }
        match self.range_with_room(&copy, &staged, 0..len) {
            Ok(()) => self.submit_copy(&copy, staged),
            Err(failure) => self.give_up(file, staged, failure),
        }
    }

    /// Hands a finished copy on, with the length that could be read where the size says nothing.
    fn submit_copy(&mut self, copy: &Copy, staged: StagedFile) -> Result<(), SyncError> {
        let end = copy.end.load(Ordering::Relaxed);
        if end < copy.source.len() {
            if !copy.source.is_made_as_read() {
                return self.give_up(&copy.file, staged, Failure::Source(Cause::Changed));
            }
            if let Err(error) = staged.set_len(end) {
                return self.give_up(&copy.file, staged, Failure::Written(error));
            }
        }
        self.submit(&copy.file, &copy.source, staged)
    }

    /// Appends to an old file the end that the source has beyond it; `None` when all of it has to
    /// be copied.
    fn tail(
        &mut self,
        file: &Arc<Pending>,
        source: &SourceFile,
        Tail { from, stamp }: Tail,
    ) -> Result<Option<()>, SyncError> {
        let len = source.len();
        if len <= from {
            return self.transfers.settle(file, Outcome::Unsound(Cause::Changed)).map(Some);
        }

        let old = match in_place::open(&file.slot)
            .and_then(|old| old.ok_or_else(|| io::ErrorKind::NotFound.into()))
        {
            Ok(old) => old,
            Err(error) => {
                return self.transfers.settle(file, Outcome::Broke(Operation::WriteFile, error)).map(Some);
            }
        };
        // A further attempt finds it as long as it was, but not as old.
        let changed = match file.attempt() {
            Some(0) => !old.is_still(&stamp).unwrap_or(false),
            _ => !old.stamp().is_ok_and(|now| now.size == from),
        };
        let verifies = self.site.policy.options.writing.append == Append::Verifying;
        let read_old = |at, buffer: &mut [u8]| old.read_full_at(at, buffer);
        if changed || verifies && !self.are_alike(source, read_old, 0..from) {
            return Ok(None);
        }
        let check = || old.check_reach(len);
        if let Err(error) = in_place::keep_content(self.site, &file.slot, check).and_then(|()| old.distrust())
        {
            return self.transfers.settle(file, Outcome::Broke(Operation::WriteFile, error)).map(Some);
        }

        let added = self.add(source, &old, from..len);
        let failure = match added.map(|()| self.changed_since(source, &old, from)) {
            Ok(None) => return self.commit(file, source, old).map(Some),
            Ok(Some(cause)) => Failure::Source(cause),
            Err(failure) => failure,
        };

        // The appended bytes are no state of the source's, or not all of one: a later run would
        // believe them, and a file that is longer than the source would stay so.
        if let Err(error) = old.set_len(from) {
            return self.transfers.settle(file, Outcome::Broke(Operation::WriteFile, error)).map(Some);
        }
        // With a newer time `--update` would leave the old content for good. Where this fails the file
        // counts as changed.
        let _ = old.set_time(stamp.mtime);
        self.failed(file, failure).map(Some)
    }

    /// Describes the content that a file is about to get.
    fn coming(&mut self, file: &Pending, source: &SourceFile) -> Coming {
        let written_to = self.written_to(file, source);
        Coming { len: source.len(), has_holes: source.has_holes(), written_to }
    }

    /// Returns the end of what is written into a file. An old one that is longer than this process may write is
    /// rewritten where all that differs lies before that limit.
    fn written_to(&mut self, file: &Pending, source: &SourceFile) -> u64 {
        let (len, limit) = (source.len(), file_size_limit());
        if len <= limit || !file.slot.in_place || source.has_holes() {
            return len;
        }
        let Some(Ok(old)) = file.slot.open_basis(Opening::default()) else { return len };
        let read_old = |at, buffer: &mut [u8]| old.read_full_at(at, buffer);
        if self.are_alike(source, read_old, limit..len) { limit } else { len }
    }

    /// Returns whether two files have the same bytes in a range.
    fn are_alike(
        &mut self,
        source: &SourceFile,
        read_old: impl Fn(u64, &mut [u8]) -> io::Result<usize>,
        range: Range<u64>,
    ) -> bool {
        let (ours, theirs) = &mut self.buffers;
        ours.resize(READ_BYTES, 0);
        theirs.resize(READ_BYTES, 0);
        let Range { start: mut at, end } = range;

        while at < end {
            if self.site.stopped() {
                return false;
            }
            let want = usize::try_from(end - at).unwrap_or(usize::MAX).min(READ_BYTES);
            let (ours, theirs) = (&mut ours[..want], &mut theirs[..want]);
            let read = source.read_full_at(at, ours).is_ok_and(|read| read == want)
                && read_old(at, theirs).is_ok_and(|read| read == want);
            if !read || ours != theirs {
                return false;
            }
            at += want as u64;
        }
        true
    }

    /// Adds a range of the source, which is its end.
    fn add(&mut self, source: &SourceFile, old: &StagedFile, range: Range<u64>) -> Result<(), Failure> {
        let sparse = self.site.policy.options.writing.sparse;
        let failed = |error: io::Error| Failure::Source(ListedFiles::cause(&error));
        let (mut literal, end) = (0, range.end - 1);
        for data in source.data_ranges(range.start..end) {
            let Range { start, end } = data.map_err(failed)?;
            for from in (start..end).step_by(SEGMENT_STEP) {
                let data = from..end.min(from + SEGMENT_BYTES);
                if !self.admit(data.end - data.start) {
                    return Err(Failure::Written(io::ErrorKind::Interrupted.into()));
                }
                literal += if sparse {
                    old.copy_sparse(source, data, false, &mut self.buffers.0)?.written
                } else {
                    old.copy_from(source, data, &mut self.buffers.0)?
                };
            }
        }

        let mut last = [0];
        if source.read_full_at(end, &mut last).map_err(failed)? == 0 {
            return Err(Failure::Source(Cause::Changed));
        }

        in_place::end_tail(old, range.end, last[0], self.site.durability()).map_err(Failure::Written)?;
        literal += u64::from(last[0] != 0);
        let zero = (range.end - range.start).saturating_sub(literal);
        self.site.account.received(literal, 0, zero);
        Ok(())
    }

    /// Makes the empty copy one of the old file, where that costs nothing. Returns whether it did.
    fn clone_old(&self, file: &Pending, staged: &StagedFile) -> bool {
        let whole = self.site.policy.options.whole_file || file.action != Action::Update;
        if whole || !staged.device().is_ok_and(|device| self.transfers.sharing.may_share(device, device)) {
            return false;
        }
        let Some(old) = file.slot.open_basis(Opening::default()) else { return false };
        old.is_ok_and(|old| !old.is_empty() && self.transfers.sharing.clone_whole(staged, &old))
    }

    /// Begins a large file: every worker is asked to help.
    fn large(&mut self, copy: Copy, staged: StagedFile) -> Result<(), SyncError> {
        let large = Arc::new(Large {
            left: AtomicU64::new(copy.source.len().div_ceil(SEGMENT_BYTES)),
            copy,
            staged: RwLock::new(Some(staged)),
            next: AtomicU64::new(0),
            failed: Mutex::default(),
        });
        for _ in 1..workers() {
            self.local.help(&large)?;
        }
        self.segments(&large)
    }

    /// Copies segments of a large file until all are claimed. The worker that ends the last one
    /// submits the file.
    fn segments(&mut self, large: &Large) -> Result<(), SyncError> {
        let len = large.copy.source.len();

        while !self.site.session.halt.stopped() {
            let start = large.next.fetch_add(1, Ordering::Relaxed).saturating_mul(SEGMENT_BYTES);
            if start >= len {
                return Ok(());
            }
            // After a failure the rest is claimed and left.
            if lock(&large.failed).is_none() {
                let staged = large.staged.read().unwrap_or_else(std::sync::PoisonError::into_inner);
                let Some(staged) = staged.as_ref() else { return Ok(()) };
                let end = len.min(start + SEGMENT_BYTES);
                if !self.admit(end - start) {
                    return Ok(());
                }
                if let Err(failure) = self.range_with_room(&large.copy, staged, start..end) {
                    lock(&large.failed).get_or_insert(failure);
                }
            }
            if large.left.fetch_sub(1, Ordering::AcqRel) == 1 {
                return self.end(large);
            }
        }
        Ok(())
    }

    fn end(&mut self, large: &Large) -> Result<(), SyncError> {
        let staged = large.staged.write().unwrap_or_else(std::sync::PoisonError::into_inner).take();
        match (lock(&large.failed).take(), staged) {
            (Some(failure), Some(staged)) => self.give_up(&large.copy.file, staged, failure),
            (Some(failure), None) => self.failed(&large.copy.file, failure),
            (None, Some(staged)) => self.submit_copy(&large.copy, staged),
            (None, None) => Ok(()),
        }
    }

    /// Copies a range of a file, and again whenever room could be made for it.
    fn range_with_room(
        &mut self,
        copy: &Copy,
        staged: &StagedFile,
        range: Range<u64>,
    ) -> Result<(), Failure> {
        loop {
            let before = self.site.room.replaced();
            match self.range(copy, staged, range.clone()) {
                Err(Failure::Written(error)) if is_full(&error) && self.site.room.make(before) => {}
                result => return result,
            }
        }
    }

    /// Copies a range of a file: its data, and where the copy has old bytes its holes.
    fn range(&mut self, copy: &Copy, staged: &StagedFile, range: Range<u64>) -> Result<(), Failure> {
        let started = Instant::now();
        if self.reads.is_slow() && copy.source.len() > SEGMENT_BYTES {
            copy.source.advise_needed(range.start..range.end + SEGMENT_BYTES);
        }
        let (mut literal, mut matched) = (0, 0);
        let mut at = range.start;

        for data in copy.source.data_ranges(range.clone()) {
            let data = data.map_err(|error| Failure::Source(ListedFiles::cause(&error)))?;
            let Range { start, end } = data;
            if copy.punch {
                staged.punch_hole(at, start - at).map_err(Failure::Written)?;
            }
            let made = if copy.patch {
                staged.patch_from(&copy.source, data, copy.sparse, &mut self.buffers)?
            } else if copy.sparse {
                staged.copy_sparse(&copy.source, data, copy.punch, &mut self.buffers.0)?
            } else {
                let written = staged.copy_from(&copy.source, data, &mut self.buffers.0)?;
                Patched { read: written, equal: 0, written }
            };

            literal += made.written;
            matched += made.equal;
            if made.read < end - start {
                copy.end.fetch_min(start + made.read, Ordering::Relaxed);
            }
            at = end;
        }
        if copy.punch {
            staged.punch_hole(at, range.end - at).map_err(Failure::Written)?;
        }

        self.reads.read(range.end - range.start, started);
        let zero = (range.end - range.start).saturating_sub(literal + matched);
        copy.file.slot.received(self.site, literal, matched, zero);
        copy.file.grew(self.site, range.end - range.start);
        Ok(())
    }

    /// Hands a finished copy on, if it is of one state of the source.
    fn submit(
        &mut self,
        file: &Arc<Pending>,
        source: &SourceFile,
        staged: StagedFile,
    ) -> Result<(), SyncError> {
        match self.changed_since(source, &staged, 0) {
            None => self.commit(file, source, staged),
            Some(cause) => self.give_up(file, staged, Failure::Source(cause)),
        }
    }

    /// Hands a copy of one state on, with the time that the source had when it was opened.
    fn commit(
        &mut self,
        file: &Arc<Pending>,
        source: &SourceFile,
        staged: StagedFile,
    ) -> Result<(), SyncError> {
        self.outbox.submit(file, Ok(staged), timestamp(source.stamp().mtime))
    }

    /// Returns the reason why the part of a copy from an offset on is not of one state that the source
    /// had since it was opened; `None` when it is.
    fn changed_since(&mut self, source: &SourceFile, staged: &StagedFile, from: u64) -> Option<Cause> {
        let is_one_state = match source.is_unchanged() {
            Ok(false) if source.needs_another_reading().is_ok_and(|is_unclear| is_unclear) => {
                // A clone has the new end too.
                let read_copy = |at, buffer: &mut [u8]| staged.read_full_at(at, buffer);
                let is_alike = self.are_alike(source, read_copy, from..source.len());
                Ok(is_alike && staged.set_len(source.len()).is_ok())
            }
            unchanged => unchanged,
        };
        match is_one_state {
            Ok(true) => None,
            Ok(false) => Some(Cause::Changed),
            Err(error) => Some(ListedFiles::cause(&error)),
        }
    }

    /// Removes a copy that failed, and then settles its file: so the copy is gone when its directory gets its time.
    fn give_up(&self, file: &Arc<Pending>, staged: StagedFile, failure: Failure) -> Result<(), SyncError> {
        drop(staged);
        self.failed(file, failure)
    }

    fn failed(&self, file: &Arc<Pending>, failure: Failure) -> Result<(), SyncError> {
        match failure {
            Failure::Source(cause) => self.transfers.settle(file, Outcome::Unsound(cause)),
            Failure::Written(error) => {
                self.transfers.settle(file, Outcome::Broke(Operation::WriteFile, error))
            }
        }
    }
}

impl From<CopyError> for Failure {
    fn from(error: CopyError) -> Self {
        match error {
            CopyError::Write(error) => Self::Written(error),
            CopyError::Read(error) => Self::Source(ListedFiles::cause(&error)),
            _ => Self::Source(Cause::Unrepresentable),
        }
    }
}

/// Bytes of a large file that one worker copies at a time: 8 MiB take a few milliseconds, so that
/// the workers end together and an interrupt is heard.
const SEGMENT_BYTES: u64 = SEGMENT_STEP as u64;
const SEGMENT_STEP: usize = 8 << 20;
