//! One data lane at the destination: decompresses, writes, verifies, hands on to the committer.

use std::{
    io,
    sync::{Arc, atomic::Ordering},
};

use bytes::Bytes;
use dsync_fs::StagedFile;
use dsync_wire::{
    budget::Share,
    codec::decode_records,
    compress::{Packed, Unpacker},
    frame::DataReceiver,
    limits::MAX_RAW_FRAME,
    message::{Cause, DataMessage, EntryId, FileEnd, Operation, Record, Segment},
    options::WritePolicy,
    state::LaneInbox,
};

use super::{
    Site, asked,
    commit::Outbox,
    files::Pending,
    in_place::{self, Coming},
    settle::Outcome,
    stage::{Incoming, Stage, Taken, Verdict},
    transfers::{Ending, Transfers},
};
use crate::{
    SyncError, content,
    halt::Writing,
    misbehaved::{PeerMisbehaved, misbehaved},
    schedule::{Point, point},
};

/// Memory for the buffers of a lane, in bytes: a frame, its unpacked content, a run of copied
/// blocks, and the decompressor's state.
const LANE_BUFFERS: u64 = 3 << 20;

/// The state of one lane.
struct Lane<'a> {
    transfers: &'a Transfers<'a>,
    site: &'a Site<'a>,
    unpacker: Unpacker,
    /// The segment that is arriving: its file, and where its tokens go unless they are void.
    segment: Option<(Arc<Pending>, Incoming)>,
    outbox: Outbox<'a>,
    /// Set while a message is carried out, and from a segment's begin to its end. Goes last.
    writing: Option<Writing<'a>>,
}

/// Receives over one lane until the source ends it.
pub(super) fn run<'a>(transfers: &'a Transfers<'a>, outbox: Outbox<'a>) -> Result<(), SyncError> {
    let site = transfers.site;
    let _buffers = site.session.budget.take(Share::Lanes, LANE_BUFFERS)?;
    let lane = site.session.link.accept_lane()?;
    // The sending half carries nothing, but dropping it could reset the stream.
    let _held = lane.tx;
    let mut receiver = DataReceiver::new(lane.rx);
    let (segment, writing, unpacker) = (None, None, Unpacker::new());
    let mut lane = Lane { transfers, site, unpacker, segment, outbox, writing };
    let halt = &site.session.halt;
    // The lane stays until the peer was told of a failure.
    let _ = halt.guard(|| {
        let received = halt.stop_if_failed(lane.receive(&mut receiver));
        lane.put_down();
        received
    });
    Ok(())
}

/// Notes that the source ended a lane. It ends its last one when it has heard that nothing more is
/// needed. Before that, the requested files would be awaited without end.
fn lane_over(ending: &Ending) -> Result<(), SyncError> {
    let was_last = ending.live_lanes.fetch_sub(1, Ordering::AcqRel) == 1;
    if was_last && !ending.needs_ended.load(Ordering::Acquire) {
        return Err(misbehaved(PeerMisbehaved::LanesEndedEarly));
    }
    Ok(())
}

impl Lane<'_> {
    /// Receives until the source ends the lane.
    fn receive(&mut self, receiver: &mut DataReceiver) -> Result<(), SyncError> {
        let session = self.site.session;
        let mut order = LaneInbox::new(session.data_lanes);
        while let Some(message) = receiver.recv()? {
            point(Point::Receive);
            order.check(&message)?;
            session.note_alive();
            session.note_progress();
            // After a failure the rest is read and left: a lane that is hung up would reach the peer
            // before the reason does.
            if self.may_write() {
                self.message(message)?;
                self.outbox.flush()?;
            }
            if self.segment.is_none() {
                self.writing = None;
            }
        }
        if order.is_over() {
            return lane_over(&self.transfers.ending);
        }
        Err(misbehaved(PeerMisbehaved::LaneCutShort))
    }

    /// Ends what this thread writes.
    fn put_down(&mut self) {
        self.segment = None;
        self.outbox.give_up();
        self.writing = None;
    }

    /// Counts this thread as a writer, unless the run has failed.
    fn may_write(&mut self) -> bool {
        let halt = &self.site.session.halt;
        if halt.stopped() {
            self.put_down();
            return false;
        }
        if self.writing.is_none() {
            self.writing = halt.writers().enter();
        }
        self.writing.is_some()
    }

    fn message(&mut self, message: DataMessage) -> Result<(), SyncError> {
        match message {
            DataMessage::Batch { value, files } => self.batch(&value, &files),
            DataMessage::Segment(header) => self.begin(&header),
            DataMessage::Holes(holes) => {
                let path = |(file, _): &(Arc<Pending>, Incoming)| file.slot.path();
                let path = self.segment.as_ref().map(path).unwrap_or_default();
                asked::holes(&self.site.policy.options).map_err(|unasked| unasked.at(path.as_bytes()))?;
                if let Some((_, incoming)) = &mut self.segment {
                    incoming.holes(&holes);
                }
                Ok(())
            }
            DataMessage::Tokens(packed) => self.tokens(&packed),
            DataMessage::SegmentEnd { value } => self.end(value),
            DataMessage::FileEnd(end) => self.file_end(&end),
            _ => Ok(()),
        }
    }

    fn unpack(&mut self, packed: &Packed) -> Result<Bytes, SyncError> {
        self.unpacker.unpack(packed, MAX_RAW_FRAME).map_err(misbehaved)
    }

    fn batch(&mut self, value: &[u8; 32], files: &Packed) -> Result<(), SyncError> {
        let raw = self.unpack(files)?;
        let intact = content::batch_value(&self.site.key, &raw) == *value;
        for record in decode_records(&raw).map_err(misbehaved)? {
            self.record(&record, intact)?;
        }
        Ok(())
    }

    /// Stages one small file of a batch, or asks for it again when the batch is not `intact`.
    fn record(&mut self, record: &Record, intact: bool) -> Result<(), SyncError> {
        let Some(file) = self.find(record.entry)? else { return Ok(()) };
        if file.attempt() != Some(record.attempt) {
            return Ok(());
        }
        file.slot.received(self.site, record.content.len() as u64, 0, 0);
        file.grew(self.site, record.content.len() as u64);
        self.site.check_length(record.content.len() as u64, &file.slot.path())?;
        let selected = self.site.policy.selects_size(record.content.len() as u64);
        let mtime = match record.outcome {
            _ if !intact => Err(Cause::ContentMismatch),
            Ok(_) if !selected => Err(Cause::Changed),
            outcome => outcome,
        };
        let mtime = match mtime {
            Ok(mtime) => mtime,
            Err(cause) => return self.transfers.settle(&file, Outcome::Unsound(cause)),
        };

        let staged = self.site.room.retrying(|| self.whole(&file, &record.content));
        self.outbox.submit(&file, staged, mtime)
    }

    /// Writes a file whose whole content is here.
    fn whole(&self, file: &Pending, content: &[u8]) -> io::Result<StagedFile> {
        let (len, in_place) = (content.len() as u64, file.slot.in_place);
        let WritePolicy { sparse, preallocate, .. } = self.site.policy.options.writing;
        let staged = in_place::create(self.site, &file.slot, &Coming::whole(len))?;
        if in_place || sparse {
            staged.set_len(len)?;
        }
        if sparse {
            _ = staged.write_sparse_at(0, content, in_place || preallocate)?;
        } else {
            staged.write_all_at(0, content)?;
        }
        Ok(staged)
    }

    fn begin(&mut self, header: &Segment) -> Result<(), SyncError> {
        let Some(file) = self.find(header.entry)? else { return Ok(()) };
        if let Some(stage) = file.stage(self.site, header)? {
            let incoming = stage.begin_segment(self.site, header)?;
            self.segment = Some((file, incoming));
        }
        Ok(())
    }

    fn tokens(&mut self, packed: &Packed) -> Result<(), SyncError> {
        // Checked even when the tokens are void.
        let raw = self.unpack(packed)?;
        match &mut self.segment {
            Some((file, incoming)) => {
                let bytes = incoming.push(self.site, &file.slot, &raw)?;
                file.grew(self.site, bytes);
                Ok(())
            }
            None => Ok(()),
        }
    }

    fn end(&mut self, value: Option<[u8; 32]>) -> Result<(), SyncError> {
        let Some((file, incoming)) = self.segment.take() else { return Ok(()) };
        let stage = incoming.end(value)?;
        self.judge(&file, &stage)
    }

    fn file_end(&mut self, end: &FileEnd) -> Result<(), SyncError> {
        let Some(file) = self.find(end.entry)? else { return Ok(()) };
        match end.outcome {
            Err(_) if file.attempt() != Some(end.attempt) => Ok(()),
            Err(cause) => self.transfers.settle(&file, Outcome::Unsound(cause)),
            Ok(mtime) => match file.complete(end.attempt, mtime) {
                Some(stage) => self.judge(&file, &stage),
                None => Ok(()),
            },
        }
    }

    /// Hands a staged file on once all its segments and its outcome are here.
    fn judge(&mut self, file: &Arc<Pending>, stage: &Stage) -> Result<(), SyncError> {
        let outcome = match stage.verdict() {
            Verdict::Incomplete => return Ok(()),
            Verdict::Mismatch => Outcome::Unsound(Cause::ContentMismatch),
            Verdict::Broken(operation, cause) => Outcome::Failed(operation, cause),
            Verdict::Good => {
                file.set_signature(stage.take_signature());
                match stage.take(self.site, &file.slot, file.basis_stamp()) {
                    Ok(Taken::File(staged, mtime)) => return self.outbox.submit(file, Ok(staged), mtime),
                    Ok(Taken::Nothing) => return Ok(()),
                    Ok(Taken::Stale) => Outcome::Unsound(Cause::ContentMismatch),
                    Err(error) => Outcome::Broke(Operation::WriteFile, error),
                }
            }
        };
        self.transfers.settle(file, outcome)
    }

    /// Returns the file of an entry number; `None` when its data is void. A number that was never
    /// listed is the peer's fault.
    fn find(&self, entry: EntryId) -> Result<Option<Arc<Pending>>, SyncError> {
        if !self.transfers.was_listed(entry) {
            return Err(misbehaved(PeerMisbehaved::OutOfRange { entry }));
        }
        Ok(self.transfers.files.get(entry))
    }
}
