//! Stage 7: one file being put together from segments on several lanes.
//!
//! Segments are written to their place in the temporary as they come, hashed on the way; a segment
//! is good when its value equals the source's, and the file when all its segments are (invariants
//! D3, D5): the values merge into the file's root, so nothing more would be learned from that.

use std::{
    io,
    ops::Range,
    sync::{
        Arc, Mutex, RwLock,
        atomic::{AtomicBool, Ordering},
    },
};

use dsync_delta::{Applier, Key, Layout, SegmentHasher, Step, StepError};
use dsync_fs::{SourceFile, StagedFile, Stamp};
use dsync_wire::{
    budget::{Held, Share},
    message::{Cause, EntryId, Operation, Segment, Timestamp},
};

use super::{
    Site,
    holes::Holes,
    in_place::{self, Coming, Rewriting},
    journal::{Head, Journal},
    kept::{self, Part},
    room::Room,
    signing::NewSignature,
    slot::Slot,
};
use crate::{
    SyncError,
    content::READ_BYTES,
    halt::lock,
    misbehaved::{PeerMisbehaved, misbehaved},
    runs::Runs,
    state::KnownSignature,
};

/// A file under construction.
pub(super) struct Stage {
    /// Taken when the file is committed.
    file: RwLock<Option<StagedFile>>,
    /// The reason why the temporary could not be made or written; segments are then only read and
    /// dropped.
    broken: Mutex<Option<(Operation, Cause)>>,
    head: Head,
    /// Finished segments.
    done: Mutex<Runs>,
    /// Notes them for a later run, when the file is one to keep.
    journal: Mutex<Option<Journal>>,
    basis: Option<Arc<Basis>>,
    /// Whether the temporary began as a clone of the basis: bytes that are at their place already
    /// are not written.
    cloned: bool,
    /// Zeros are to be holes where the temporary has space already: they must be made.
    punches: bool,
    /// The changes to the old file, when it is written itself.
    rewriting: Option<Mutex<Rewriting>>,
    /// Memory for its pieces.
    pieces: Mutex<Held>,
    /// Offset of the segments in an old file that is added to.
    tail_from: Option<u64>,
    /// The layout that copies count in.
    layout: Option<Layout>,
    /// The key of its segments' values.
    key: Key,
    /// Its signature, for a later run.
    signature: NewSignature,
    /// Set when a segment differed from the source's reading.
    differs: AtomicBool,
    /// The modification time that the source read it with, once it has ended.
    complete: Mutex<Option<Timestamp>>,
    /// Set by the one lane that judges the file.
    judged: AtomicBool,
}

/// The old file that a delta refers to.
pub(super) struct Basis {
    pub(super) file: SourceFile,
    pub(super) layout: Layout,
    /// The key of its sums, and of the values of the segments that are made from it.
    pub(super) key: Key,
    /// Bytes of signature that the source may hold for it.
    pub(super) signature_bytes: u64,
    /// Credit that it holds.
    pub(super) credit: u64,
}

/// The material of a stage besides the data that arrives.
pub(super) struct Sources {
    pub(super) basis: Option<Arc<Basis>>,
    /// The layout that copies count in after a second round of sums.
    pub(super) fine: Option<Layout>,
    /// A clone of the basis.
    pub(super) clone: Option<StagedFile>,
    /// Offset of the segments in an old file that is added to.
    pub(super) tail_from: Option<u64>,
    /// The part that an earlier run left of the file.
    pub(super) part: Option<Part>,
}

/// The verdict on a stage.
pub(super) enum Verdict {
    /// Something is still to come (or another lane has judged).
    Incomplete,
    /// The content is the source's.
    Good,
    /// The content differs, or the basis shrank while it was copied from.
    Mismatch,
    /// The temporary could not be written.
    Broken(Operation, Cause),
}

/// The result of a good stage.
pub(super) enum Taken {
    /// The finished file, and the modification time when it was read.
    File(StagedFile, Timestamp),
    /// There was no temporary.
    Nothing,
    /// The old file, which was to be rewritten, is no longer the basis of the delta.
    Stale,
}

/// One segment on its way through a lane.
pub(super) struct Incoming {
    pub(super) stage: Arc<Stage>,
    applier: Applier,
    work: Work,
    entry: EntryId,
    index: u64,
    /// Offset where the segment begins.
    start: u64,
    /// Reused for copies.
    buffer: Vec<u8>,
}

/// The work on one segment.
struct Work {
    hasher: SegmentHasher,
    holes: Holes,
    /// The changes that this segment adds to its file's.
    rewriting: Rewriting,
}

impl Sources {
    /// Returns the key of the segments' values, and the signature to be made.
    fn signing(&self, site: &Site<'_>, slot: &Slot, head: &Head) -> (Key, NewSignature) {
        let key = self.basis.as_ref().map_or(&site.key, |basis| &basis.key).clone();
        // Of a part only the rest passes here, and of a tail nothing before it.
        let is_rest = self.tail_from.is_some() || self.part.as_ref().is_some_and(|part| part.head == *head);
        (key, NewSignature::of(site, head.segments.file_len(), !is_rest && !slot.device))
    }
}

impl Stage {
    /// Takes up the part that is there of the file, or makes the temporary, for the first segment
    /// that arrives.
    pub(super) fn create(
        site: &Site<'_>,
        slot: &Slot,
        header: &Segment,
        sources: Sources,
    ) -> Result<Self, SyncError> {
        let head = kept::head(header)?;
        let (key, signature) = sources.signing(site, slot, &head);
        let Sources { basis, fine, clone, tail_from, part } = sources;
        let part = part.filter(|part| part.head == head);
        // A device is written directly: it has the bytes of its basis where they were.
        let cloned = part.is_none() && clone.is_some() || slot.device && basis.is_some();
        // As with rsync, whose basis such a part is.
        site.account.resumed(part.as_ref().map_or(0, Part::done_bytes));
        let writing = &site.policy.options.writing;
        // A file that has grown since it was listed, as an honest source's can, is not the
        // requested one.
        let len = tail_from.unwrap_or(0).saturating_add(head.segments.file_len());
        site.check_length(len, &slot.path())?;
        let unselected = (!site.policy.selects_size(len)).then_some((Operation::ReadFile, Cause::Changed));
        let beginning = match (part, clone) {
            _ if unselected.is_some() => Err(io::ErrorKind::Unsupported.into()),
            (Some(part), _) => Ok((part.done, part.file, Some(part.journal))),
            (None, Some(clone)) => Ok((Runs::default(), clone, None)),
            (None, None) => site.room.retrying(|| Self::begin(site, slot, &head, &key)),
        };

        // At once: where a file grows as it is written, XFS reserves space ahead, over holes as
        // well.
        let sized = beginning.and_then(|(done, staged, journal)| {
            staged.set_len(head.segments.file_len()).map(|()| (done, Some(staged), journal, None))
        });

        let (done, staged, journal, broken) = match sized {
            Ok(sized) => sized,
            Err(_) if unselected.is_some() => (Runs::default(), None, None, unselected),
            Err(error) => {
                let path = slot.path();
                let cause = site.cause_or_fatal(Operation::WriteFile, &path, error)?;
                (Runs::default(), None, None, Some((Operation::WriteFile, cause)))
            }
        };

        Ok(Self {
            file: RwLock::new(staged),
            broken: Mutex::new(broken),
            head,
            done: Mutex::new(done),
            journal: Mutex::new(journal),
            layout: basis.as_ref().map(|basis| fine.unwrap_or(basis.layout)),
            basis,
            key,
            signature,
            cloned,
            punches: cloned || slot.device || writing.sparse && writing.preallocate,
            rewriting: (slot.in_place && !slot.device).then(Mutex::default),
            pieces: Mutex::new(site.session.budget.take(Share::Pieces, 0)?),
            tail_from,
            differs: AtomicBool::new(false),
            complete: Mutex::new(None),
            judged: AtomicBool::new(false),
        })
    }

    /// Makes the temporary, one to keep if that is possible.
    fn begin(site: &Site<'_>, slot: &Slot, head: &Head, key: &Key) -> io::Result<Beginning> {
        if slot.device {
            let device = in_place::create(site, slot, &Coming::whole(head.segments.file_len()))?;
            return Ok((Runs::default(), device, None));
        }
        if let Some(part) = Part::begin(site, slot, head, key) {
            return Ok((part.done, part.file, Some(part.journal)));
        }
        let staged = in_place::create_beside(site, slot, head.segments.file_len())?;
        Ok((Runs::default(), staged, None))
    }

    /// Segments of one file agree on its state, its length and theirs.
    pub(super) fn check_header(&self, header: &Segment) -> Result<(), SyncError> {
        if kept::head(header)? == self.head {
            return Ok(());
        }
        Err(misbehaved(PeerMisbehaved::SegmentsDisagree { entry: header.entry }))
    }

    /// Notes that the source has read the whole file without a change.
    pub(super) fn set_complete(&self, mtime: Timestamp) {
        *lock(&self.complete) = Some(mtime);
    }

    /// Starts one segment.
    pub(super) fn begin_segment(
        self: &Arc<Self>,
        site: &Site<'_>,
        header: &Segment,
    ) -> Result<Incoming, SyncError> {
        let (segments, index) = (&self.head.segments, header.index);
        if lock(&self.done).contains(index) {
            return Err(again(header.entry, index));
        }
        let applier = Applier::new(self.layout, segments, index, header.lead).map_err(misbehaved)?;
        let hasher = self.signature.hasher(&self.key, segments, index).map_err(misbehaved)?;
        let holes = Holes::unsaid(site.policy.options.writing.sparse);
        let work = Work { hasher, holes, rewriting: Rewriting::of_segment(self.rewriting.is_some()) };
        let (stage, entry, start) = (Arc::clone(self), header.entry, segments.range(index).start);
        Ok(Incoming { stage, applier, work, entry, index, start, buffer: Vec::new() })
    }

    /// Judges the file, once everything is here. Exactly one caller gets more than `Incomplete`.
    pub(super) fn verdict(&self) -> Verdict {
        let whole = lock(&self.done).is_all_below(self.head.segments.count());
        if !whole || lock(&self.complete).is_none() || self.judged.swap(true, Ordering::AcqRel) {
            return Verdict::Incomplete;
        }
        match self.broken() {
            // The next request has no basis, so another writer of the old file cannot spoil it.
            Some((_, Cause::ContentMismatch)) => return Verdict::Mismatch,
            Some((operation, cause)) => return Verdict::Broken(operation, cause),
            None => {}
        }
        let excessive = self.rewriting.as_ref().is_some_and(|rewriting| lock(rewriting).is_excessive());
        let differs = self.differs.load(Ordering::Acquire);
        if differs || excessive { Verdict::Mismatch } else { Verdict::Good }
    }

    /// Takes the signature of a good file, if a later run may use it.
    pub(super) fn take_signature(&self) -> Option<KnownSignature> {
        let signature = self.signature.take()?;
        Some(KnownSignature { key: *self.key.as_bytes(), signature })
    }

    /// Returns the error that broke the stage, if one did.
    pub(super) fn broken(&self) -> Option<(Operation, Cause)> {
        *lock(&self.broken)
    }

    /// Returns the finished temporary, or the old file rewritten from it, unless that is no longer
    /// the `basis`.
    pub(super) fn take(&self, site: &Site<'_>, slot: &Slot, basis: Option<Stamp>) -> io::Result<Taken> {
        // Of a finished file nothing need be known.
        drop(lock(&self.journal).take());
        let file = self.file.write().unwrap_or_else(std::sync::PoisonError::into_inner).take();
        let (Some(file), Some(mtime)) = (file, *lock(&self.complete)) else { return Ok(Taken::Nothing) };

        if let Some(rewriting) = &self.rewriting
            && let Some(old) = in_place::open(slot)?
        {
            if let Some(signed) = basis
                && !old.is_still(&signed)?
            {
                return Ok(Taken::Stale);
            }

            let len = self.head.segments.file_len();
            // Before the first write: a file that grows too long must stay as it is.
            let end = self.tail_from.unwrap_or(0).saturating_add(len);
            let mut rewriting = std::mem::take(&mut *lock(rewriting));
            let order = rewriting.order()?;
            let coming = Coming { has_holes: rewriting.has_holes(), ..Coming::whole(end) };
            in_place::keep_content(site, slot, || {
                file.make_room_in(&old, end)?;
                in_place::make_scratch_room(&file, len, &order)?;
                in_place::make_room(site, &old, &coming)
            })?;
            old.distrust()?;

            let stopped = site.session.halt.stop_flag();
            match self.tail_from {
                Some(from) => rewriting.add_to(&file, &old, from, len, site.durability(), stopped)?,
                None => rewriting.carry_out(&order, &file, &old, len, stopped)?,
            }
            return Ok(Taken::File(old, mtime));
        }
        Ok(Taken::File(file, mtime))
    }

    /// Returns the part of an unfinished file, if it is one to keep.
    pub(super) fn take_part(&self) -> Option<Part> {
        let journal = lock(&self.journal).take()?;
        let file = self.file.write().unwrap_or_else(std::sync::PoisonError::into_inner).take()?;
        let done = std::mem::take(&mut *lock(&self.done));
        Some(Part { file, journal, head: self.head, done })
    }

    /// Takes the values of a segment, this end's and the source's. Returns `false` when it has come
    /// before.
    fn finish_segment(&self, index: u64, ours: Option<[u8; 32]>, theirs: &[u8; 32]) -> bool {
        if !lock(&self.done).insert(index) {
            return false;
        }
        if ours.as_ref() != Some(theirs) {
            self.differs.store(true, Ordering::Release);
            return true;
        }
        let mut journal = lock(&self.journal);
        if let Some(Err(error)) = journal.as_mut().map(|journal| journal.finished(index, theirs)) {
            // The file itself may still be finished.
            tracing::debug!(%error, "the journal of a file cannot be written");
            *journal = None;
        }
        true
    }

    /// Carries out one step of a segment.
    fn write(&self, step: &Step<'_>, work: &mut Work, buffer: &mut Vec<u8>, room: &Room) -> io::Result<()> {
        let guard = self.file.read().unwrap_or_else(std::sync::PoisonError::into_inner);
        let file = guard.as_ref();
        let Work { hasher, holes, rewriting } = work;

        match *step {
            Step::Write { offset, bytes } => {
                hasher.update(bytes);
                holes.for_content(offset, bytes, |run, hole| {
                    let (at, bytes) = (offset + run.start as u64, &bytes[run]);
                    if hole {
                        return self.leave_hole(file, rewriting, at..at + bytes.len() as u64);
                    }
                    rewriting.literal(at, bytes.len() as u64);
                    file.map_or(Ok(()), |file| room.retrying(|| file.write_all_at(at, bytes)))
                })
            }
            Step::Zero { offset, len } => {
                hasher.update_zeros(len);
                holes.for_zeros(offset..offset + len, |part, hole| {
                    if hole {
                        self.leave_hole(file, rewriting, part)
                    } else {
                        self.write_zeros(file, rewriting, part)
                    }
                })
            }

            // Tokens tile the file, so nobody writes there: the hashed bytes are those that stay.
            Step::Copy { basis_offset, offset, len } if self.cloned && basis_offset == offset => {
                let read = |at, buffer: &mut [u8]| file.map_or(Ok(0), |file| file.read_full_at(at, buffer));
                let write = |at, bytes: &[u8]| {
                    holes.for_content(at, bytes, |run, hole| match (file, hole) {
                        (Some(file), true) => file.punch_hole(at + run.start as u64, run.len() as u64),
                        _ => Ok(()),
                    })
                };
                copy(read, write, || false, (offset, offset), len, hasher, buffer)
            }
            Step::Copy { basis_offset, offset, len } => {
                let Some(basis) = &self.basis else { return Err(io::ErrorKind::InvalidData.into()) };
                rewriting.copy(basis_offset, offset, len);
                let write = |at, bytes: &[u8]| self.write_copy((file, room), holes, rewriting, at, bytes);
                let read = |at, buffer: &mut [u8]| basis.file.read_at(at, buffer);
                let must_wait = || file.is_some_and(StagedFile::is_being_written);
                copy(read, write, must_wait, (basis_offset, offset), len, hasher, buffer)
            }

            _ => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// Writes bytes of the basis.
    fn write_copy(
        &self,
        (file, room): (Option<&StagedFile>, &Room),
        holes: &Holes,
        rewriting: &mut Rewriting,
        offset: u64,
        bytes: &[u8],
    ) -> io::Result<()> {
        holes.for_content(offset, bytes, |run, hole| {
            let (at, bytes) = (offset + run.start as u64, &bytes[run]);
            match (&self.rewriting, hole) {
                // Hashed now; they are moved inside the old file at the end.
                (Some(_), true) => rewriting.blank(at, bytes.len() as u64),
                (Some(_), false) => {}
                (None, true) => self.leave_hole(file, rewriting, at..at + bytes.len() as u64)?,
                (None, false) => {
                    file.map_or(Ok(()), |file| room.retrying(|| file.write_all_at(at, bytes)))?;
                }
            }
            Ok(())
        })
    }

    /// Makes a range of zeros a hole.
    fn leave_hole(
        &self,
        file: Option<&StagedFile>,
        rewriting: &mut Rewriting,
        range: Range<u64>,
    ) -> io::Result<()> {
        let len = range.end - range.start;
        rewriting.hole(range.start, len);
        match file {
            Some(file) if self.punches => file.punch_hole(range.start, len),
            // The temporary has no bytes there yet.
            _ => Ok(()),
        }
    }

    /// Writes a range of zeros that is no hole.
    fn write_zeros(
        &self,
        file: Option<&StagedFile>,
        rewriting: &mut Rewriting,
        range: Range<u64>,
    ) -> io::Result<()> {
        let len = range.end - range.start;
        rewriting.zero(range.start, len);
        match file {
            // The old file is cleared there in its turn.
            _ if self.rewriting.is_some() => Ok(()),
            Some(file) if self.cloned => file.clear(range.start, len),
            Some(file) => file.write_zeros(range.start, len),
            None => Ok(()),
        }
    }
}

impl Incoming {
    /// Takes the source's holes in the segment.
    pub(super) fn holes(&mut self, holes: &[Range<u32>]) {
        self.work.holes.say(self.start, holes);
    }

    /// Applies a payload of whole tokens. Returns the bytes of the file that they stand for.
    pub(super) fn push(&mut self, site: &Site<'_>, slot: &Slot, payload: &[u8]) -> Result<u64, SyncError> {
        if self.stage.broken().is_some() {
            return Ok(0);
        }

        let Self { stage, work, applier, buffer, .. } = self;
        let before = work.rewriting.bytes();
        let (mut literal, mut matched, mut zero) = (0, 0, 0);
        let result = applier.push(payload, |step: Step<'_>| {
            match step {
                Step::Write { bytes, .. } => literal += bytes.len() as u64,
                Step::Copy { len, .. } => matched += len,
                Step::Zero { len, .. } => zero += len,
                _ => {}
            }
            stage.write(&step, work, buffer, &site.room)
        });

        slot.received(site, literal, matched, zero);
        let noted = work.rewriting.bytes().saturating_sub(before);
        if noted > 0 {
            lock(&stage.pieces).grow(noted)?;
        }
        match result {
            Ok(()) => Ok(literal + matched + zero),
            Err(StepError::Sink(error)) => {
                let cause = match error.kind() {
                    // The basis shrank under the copy.
                    io::ErrorKind::UnexpectedEof => Cause::ContentMismatch,
                    _ => site.cause_or_fatal(Operation::WriteFile, &slot.path(), error)?,
                };
                lock(&self.stage.broken).get_or_insert((Operation::WriteFile, cause));
                Ok(0)
            }
            Err(StepError::Apply(error)) => Err(misbehaved(error)),
        }
    }

    /// Ends the segment with the source's value of it; none when the source could not read it.
    pub(super) fn end(self, theirs: Option<[u8; 32]>) -> Result<Arc<Stage>, SyncError> {
        let Some(theirs) = theirs else { return Ok(self.stage) };
        if let Some(rewriting) = &self.stage.rewriting {
            lock(rewriting).append(self.work.rewriting);
        }
        let ours = match self.stage.broken() {
            Some(_) => None,
            None => {
                self.applier.finish().map_err(misbehaved)?;
                let (value, sums) = self.work.hasher.finish_with_sums().map_err(misbehaved)?;
                sums.into_iter().for_each(|sums| self.stage.signature.add(sums));
                Some(value.to_bytes())
            }
        };
        if !self.stage.finish_segment(self.index, ours, &theirs) {
            return Err(again(self.entry, self.index));
        }
        Ok(self.stage)
    }
}

fn again(entry: EntryId, index: u64) -> SyncError {
    misbehaved(PeerMisbehaved::SegmentTwice { entry, index })
}

/// The beginning of a stage: finished segments, temporary, journal.
type Beginning = (Runs, StagedFile, Option<Journal>);

/// Copies a run of the basis. If the basis shrank meanwhile, the bytes differ, and so does the
/// root.
///
/// The system lets one lane at a time write a file: one that `must_wait` goes on reading and
/// hashing instead, and writes more at once when its turn comes.
fn copy(
    read: impl Fn(u64, &mut [u8]) -> io::Result<usize>,
    mut write: impl FnMut(u64, &[u8]) -> io::Result<()>,
    must_wait: impl Fn() -> bool,
    (mut from, mut to): (u64, u64),
    mut len: u64,
    hasher: &mut SegmentHasher,
    buffer: &mut Vec<u8>,
) -> io::Result<()> {
    let mut held = 0;
    while len > 0 {
        let want = usize::try_from(len).unwrap_or(usize::MAX).min(READ_BYTES);
        if buffer.len() < held + want {
            buffer.resize(held + want, 0);
        }
        let n = read(from, &mut buffer[held..held + want])?;
        if n == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        hasher.update(&buffer[held..held + n]);
        held += n;
        from += n as u64;
        len -= n as u64;
        if len == 0 || held >= WAIT_BYTES || !must_wait() {
            write(to, &buffer[..held])?;
            to += held as u64;
            held = 0;
        }
    }

    Ok(())
}

/// With this many bytes of a copy read ahead, a lane waits for its turn: 1 MiB is written in half a
/// millisecond.
const WAIT_BYTES: usize = 4 * READ_BYTES;

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use dsync_delta::{Key, Segments};

    use super::*;

    /// Copies 3 MiB with short reads. Returns the lengths of the writes.
    fn writes(must_wait: bool) -> Vec<usize> {
        let basis: Vec<u8> = (0..3_u32 << 20).map(|at| (at % 251) as u8).collect();
        let segments = Segments::new(basis.len() as u64, 22).unwrap();
        let key = Key::derive(&[b"one share", b"the other"]);
        let mut hasher = SegmentHasher::new(&key, &segments, 0).unwrap();
        let read = |at: u64, buffer: &mut [u8]| {
            let rest = &basis[usize::try_from(at).unwrap()..];
            let n = rest.len().min(buffer.len()).min(200_000);
            buffer[..n].copy_from_slice(&rest[..n]);
            Ok(n)
        };
        let (mut written, mut lengths) = (Vec::new(), Vec::new());
        let write = |at: u64, bytes: &[u8]| {
            assert_eq!(at, written.len() as u64);
            written.extend_from_slice(bytes);
            lengths.push(bytes.len());
            Ok(())
        };
        copy(read, write, || must_wait, (0, 0), segments.file_len(), &mut hasher, &mut Vec::new()).unwrap();
        assert!(written == basis);
        let mut whole = SegmentHasher::new(&key, &segments, 0).unwrap();
        whole.update(&basis);
        assert_eq!(hasher.finish().unwrap(), whole.finish().unwrap());
        lengths
    }

    #[test]
    fn copy_goes_on_reading_while_another_lane_writes() {
        assert!(writes(false).iter().all(|&len| len <= READ_BYTES));
        let held = writes(true);
        assert!(held.iter().all(|&len| len < WAIT_BYTES + READ_BYTES) && held.len() <= 3, "{held:?}");
    }
}
