//! Stage 7: one file being put together from segments on several lanes.
//!
//! Segments are written to their place in the temporary as they come, hashed on the way; the file is
//! good when the root of what was written equals the source's root (invariants D3, D5).

use std::{
    io,
    sync::{
        Arc, Mutex, RwLock,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use dsync_delta::{Applier, Layout, RootBuilder, SegmentHasher, Segments, Step, StepError};
use dsync_fs::StagedFile;
use dsync_wire::message::{Cause, FileOutcome, Operation, Segment, Timestamp};

use super::{
    Site,
    files::{Basis, Pending},
    in_place::{self, Rewriting},
};
use crate::{SyncError, halt::lock, session};

/// A file under construction.
pub(super) struct Stage {
    /// Taken when the file is committed.
    file: RwLock<Option<StagedFile>>,
    /// Why the temporary could not be made or written; segments are then only read and dropped.
    broken: Mutex<Option<(Operation, Cause)>>,
    segments: Segments,
    basis: Option<Arc<Basis>>,
    /// The temporary began as a clone of the basis: what is at its place already is not written.
    cloned: bool,
    /// What becomes of the old file, when it is written itself.
    rewriting: Option<Mutex<Rewriting>>,
    /// What copies count in.
    layout: Option<Layout>,
    root: Mutex<Option<RootBuilder>>,
    left: AtomicU64,
    outcome: Mutex<Option<FileOutcome>>,
    /// Set by the one lane that judges the file.
    judged: AtomicBool,
}

/// What a stage is made from besides what arrives.
pub(super) struct Sources {
    pub(super) basis: Option<Arc<Basis>>,
    /// The layout that copies count in after a second round of sums.
    pub(super) fine: Option<Layout>,
    /// A clone of the basis.
    pub(super) clone: Option<StagedFile>,
}

/// What a stage is worth.
pub(super) enum Verdict {
    /// Something is still to come (or another lane has judged).
    Incomplete,
    /// The content is the source's.
    Good,
    /// The content differs.
    Mismatch,
    /// The temporary could not be written.
    Broken(Operation, Cause),
}

/// What a good stage has become.
pub(super) enum Taken {
    /// The finished file, and the modification time when it was read.
    File(StagedFile, Timestamp),
    /// There was no temporary.
    Nothing,
    /// The old file, which was to be rewritten, is not the one that the delta was made from any more.
    Stale,
}

/// One segment on its way through a lane.
pub(super) struct Incoming {
    pub(super) stage: Arc<Stage>,
    /// What this segment adds to its file's.
    rewriting: Rewriting,
    applier: Applier,
    hasher: SegmentHasher,
    index: u64,
    /// Reused for copies.
    buffer: Vec<u8>,
}

impl Stage {
    /// Makes the temporary for the first segment that arrives.
    pub(super) fn create(
        site: &Site<'_>,
        file: &Pending,
        header: &Segment,
        sources: Sources,
    ) -> Result<Self, SyncError> {
        let segments = Segments::new(header.file_len, header.length_log2).map_err(protocol)?;
        let Sources { basis, fine, clone } = sources;
        let mut broken = None;
        let cloned = clone.is_some();
        let create = |dir| in_place::create_beside(site, dir, file, header.file_len);
        let created = clone.map(Ok).or_else(|| file.directory.dir.as_ref().map(create));
        let staged = match created {
            Some(Ok(staged)) => Some(staged),
            Some(Err(error)) => {
                let path = file.directory.path.join(&file.name);
                broken =
                    Some((Operation::WriteFile, site.cause_or_fatal(Operation::WriteFile, &path, error)?));
                None
            }
            None => None,
        };
        Ok(Self {
            file: RwLock::new(staged),
            broken: Mutex::new(broken),
            layout: basis.as_ref().map(|basis| fine.unwrap_or(basis.layout)),
            basis,
            cloned,
            rewriting: file.circumstances.in_place.then(Mutex::default),
            root: Mutex::new(Some(RootBuilder::new(&site.session.key, &segments))),
            left: AtomicU64::new(segments.count()),
            outcome: Mutex::new(None),
            judged: AtomicBool::new(false),
            segments,
        })
    }

    /// Segments of one file agree on its length and theirs.
    pub(super) fn check_header(&self, header: &Segment) -> Result<(), SyncError> {
        if header.file_len == self.segments.file_len() && header.length_log2 == self.segments.length_log2() {
            return Ok(());
        }
        Err(SyncError::Protocol {
            detail: format!("entry {}: segments disagree on the file", header.entry.0),
        })
    }

    pub(super) fn set_outcome(&self, outcome: FileOutcome) {
        *lock(&self.outcome) = Some(outcome);
    }

    /// Starts one segment.
    pub(super) fn begin(self: &Arc<Self>, site: &Site<'_>, header: &Segment) -> Result<Incoming, SyncError> {
        let applier =
            Applier::new(self.layout, &self.segments, header.index, header.lead).map_err(protocol)?;
        let hasher = SegmentHasher::new(&site.session.key, &self.segments, header.index).map_err(protocol)?;
        let rewriting = Rewriting::default();
        let (stage, index, buffer) = (Arc::clone(self), header.index, Vec::new());
        Ok(Incoming { stage, rewriting, applier, hasher, index, buffer })
    }

    /// Judges the file, once everything is here; exactly one caller hears more than `Incomplete`.
    pub(super) fn verdict(&self) -> Result<Verdict, SyncError> {
        let outcome = *lock(&self.outcome);
        let Some(FileOutcome::Complete { root, .. }) = outcome else { return Ok(Verdict::Incomplete) };
        if self.left.load(Ordering::Acquire) > 0 || self.judged.swap(true, Ordering::AcqRel) {
            return Ok(Verdict::Incomplete);
        }
        if let Some((operation, cause)) = self.broken() {
            return Ok(Verdict::Broken(operation, cause));
        }
        let Some(builder) = lock(&self.root).take() else { return Ok(Verdict::Incomplete) };
        let written = builder.finish().map_err(protocol)?;
        let excessive = self.rewriting.as_ref().is_some_and(|rewriting| lock(rewriting).is_excessive());
        Ok(if written == root && !excessive { Verdict::Good } else { Verdict::Mismatch })
    }

    /// What broke the stage, if anything did.
    pub(super) fn broken(&self) -> Option<(Operation, Cause)> {
        *lock(&self.broken)
    }

    /// The finished temporary with its length set, or the old file rewritten from it.
    pub(super) fn take(&self, site: &Site<'_>, pending: &Pending) -> io::Result<Taken> {
        let file = self.file.write().unwrap_or_else(std::sync::PoisonError::into_inner).take();
        let Some(FileOutcome::Complete { mtime, .. }) = *lock(&self.outcome) else {
            return Ok(Taken::Nothing);
        };
        let Some(file) = file else { return Ok(Taken::Nothing) };
        let len = self.segments.file_len();
        if let Some(rewriting) = &self.rewriting
            && let Some(old) = in_place::open(site, pending)?
        {
            let now = old.stamp()?;
            if pending.basis_stamp().is_some_and(|signed| signed != now) {
                return Ok(Taken::Stale);
            }
            std::mem::take(&mut *lock(rewriting)).carry_out(&file, &old, len)?;
            return Ok(Taken::File(old, mtime));
        }
        file.set_len(len)?;
        Ok(Taken::File(file, mtime))
    }

    /// Carries out one step of a segment.
    fn write(
        &self,
        step: &Step<'_>,
        hasher: &mut SegmentHasher,
        rewriting: &mut Rewriting,
        buffer: &mut Vec<u8>,
    ) -> io::Result<()> {
        let guard = self.file.read().unwrap_or_else(std::sync::PoisonError::into_inner);
        let file = guard.as_ref();
        match *step {
            Step::Write { offset, bytes } => {
                hasher.update(bytes);
                rewriting.literal(offset, bytes.len() as u64);
                file.map_or(Ok(()), |file| file.write_all_at(offset, bytes))
            }
            Step::Zero { offset, len } => {
                hasher.update_zeros(len);
                rewriting.zero(offset, len);
                match file {
                    Some(file) if self.cloned => file.punch_hole(offset, len),
                    // Left as a hole: the temporary has no bytes there yet.
                    _ => Ok(()),
                }
            }
            // Tokens tile the file, so nobody writes there: what is hashed is what stays.
            Step::Copy { basis_offset, offset, len } if self.cloned && basis_offset == offset => {
                let read = |at, buffer: &mut [u8]| file.map_or(Ok(0), |file| file.read_full_at(at, buffer));
                copy(read, |_, _| Ok(()), (offset, offset), len, hasher, buffer)
            }
            Step::Copy { basis_offset, offset, len } => {
                let Some(basis) = &self.basis else { return Err(io::ErrorKind::InvalidData.into()) };
                rewriting.copy(basis_offset, offset, len);
                let write = |at, bytes: &[u8]| match file {
                    // Hashed now; it is moved inside the old file at the end.
                    Some(file) if self.rewriting.is_none() => file.write_all_at(at, bytes),
                    _ => Ok(()),
                };
                let read = |at, buffer: &mut [u8]| basis.file.read_at(at, buffer);
                copy(read, write, (basis_offset, offset), len, hasher, buffer)
            }
            _ => Err(io::ErrorKind::Unsupported.into()),
        }
    }
}

impl Incoming {
    /// Applies a payload of whole tokens.
    pub(super) fn push(&mut self, site: &Site<'_>, file: &Pending, payload: &[u8]) -> Result<(), SyncError> {
        if self.stage.broken().is_some() {
            return Ok(());
        }
        let Self { stage, rewriting, applier, hasher, buffer, .. } = self;
        let (mut literal, mut matched, mut zero) = (0, 0, 0);
        let result = applier.push(payload, |step: Step<'_>| {
            match step {
                Step::Write { bytes, .. } => literal += bytes.len() as u64,
                Step::Copy { len, .. } => matched += len,
                Step::Zero { len, .. } => zero += len,
                _ => {}
            }
            stage.write(&step, hasher, rewriting, buffer)
        });
        site.account.received(literal, matched, zero);
        match result {
            Ok(()) => Ok(()),
            Err(StepError::Sink(error)) => {
                let cause = match error.kind() {
                    // The basis shrank under the copy.
                    io::ErrorKind::UnexpectedEof => Cause::ContentMismatch,
                    _ => {
                        let path = file.directory.path.join(&file.name);
                        site.cause_or_fatal(Operation::WriteFile, &path, error)?
                    }
                };
                lock(&self.stage.broken).get_or_insert((Operation::WriteFile, cause));
                Ok(())
            }
            Err(error) => Err(protocol(session::with_causes(&error))),
        }
    }

    /// Ends the segment; `complete` is false when the source could not read it.
    pub(super) fn end(self, complete: bool) -> Result<Arc<Stage>, SyncError> {
        if let Some(rewriting) = &self.stage.rewriting {
            lock(rewriting).append(self.rewriting);
        }
        if complete && self.stage.broken().is_none() {
            self.applier.finish().map_err(protocol)?;
            let value = self.hasher.finish().map_err(protocol)?;
            if let Some(root) = lock(&self.stage.root).as_mut() {
                root.set(self.index, value).map_err(protocol)?;
            }
        }
        if complete {
            self.stage.left.fetch_sub(1, Ordering::AcqRel);
        }
        Ok(self.stage)
    }
}

/// Copies a run of the basis. A basis that shrank meanwhile gives other bytes, and the root differs.
fn copy(
    read: impl Fn(u64, &mut [u8]) -> io::Result<usize>,
    write: impl Fn(u64, &[u8]) -> io::Result<()>,
    (mut from, mut to): (u64, u64),
    mut len: u64,
    hasher: &mut SegmentHasher,
    buffer: &mut Vec<u8>,
) -> io::Result<()> {
    buffer.resize(crate::content::READ_BYTES, 0);
    while len > 0 {
        let want = usize::try_from(len).unwrap_or(usize::MAX).min(buffer.len());
        let n = read(from, &mut buffer[..want])?;
        if n == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        hasher.update(&buffer[..n]);
        write(to, &buffer[..n])?;
        from += n as u64;
        to += n as u64;
        len -= n as u64;
    }
    Ok(())
}

/// An error of the delta core about what the peer sent.
pub(super) fn protocol(error: impl std::fmt::Display) -> SyncError {
    SyncError::Protocol { detail: error.to_string() }
}
