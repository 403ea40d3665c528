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
    files::{Pending, Verified},
    in_place,
    stage::{Incoming, Taken},
};
use crate::{
    SyncError, content,
    misbehaved::{PeerMisbehaved, misbehaved},
    schedule::{Point, point},
};

/// What the buffers of a lane take, in bytes: a frame, what it unfolds to, a run of copied blocks, and what the
/// decompressor keeps.
const LANE_BUFFERS: u64 = 3 << 20;

/// The state of one lane.
struct Lane<'a> {
    site: &'a Site<'a>,
    unpacker: Unpacker,
    /// The segment that is arriving: its file, and where its tokens go unless they are void.
    segment: Option<(Arc<Pending>, Incoming)>,
    outbox: Outbox<'a>,
}

/// Receives over one lane until the source ends it.
pub(super) fn run<'a>(site: &'a Site<'a>, outbox: Outbox<'a>) -> Result<(), SyncError> {
    let _buffers = site.session.budget.take(Share::Lanes, LANE_BUFFERS)?;
    let lane = site.session.link.accept_lane()?;
    // The sending half carries nothing, but dropping it could reset the stream.
    let _held = lane.tx;
    let mut receiver = DataReceiver::new(lane.rx);
    let mut order = LaneInbox::new(site.session.data_lanes);
    let mut lane = Lane { site, unpacker: Unpacker::new(), segment: None, outbox };
    while let Some(message) = receiver.recv()? {
        point(Point::Receive);
        order.check(&message)?;
        site.session.note_alive();
        site.session.note_progress();
        lane.message(message)?;
        lane.outbox.flush()?;
    }
    if order.is_over() {
        return lane_over(site);
    }
    Err(misbehaved(PeerMisbehaved::LaneCutShort))
}

/// Notes that the source ended a lane. It ends its last one when it has heard that nothing more is needed;
/// before that, what was asked for would be waited for without end.
fn lane_over(site: &Site<'_>) -> Result<(), SyncError> {
    let was_last = site.live_lanes.fetch_sub(1, Ordering::AcqRel) == 1;
    if was_last && !site.needs_ended.load(Ordering::Acquire) {
        return Err(misbehaved(PeerMisbehaved::LanesEndedEarly));
    }
    Ok(())
}

impl Lane<'_> {
    fn message(&mut self, message: DataMessage) -> Result<(), SyncError> {
        match message {
            DataMessage::Batch { value, files } => self.batch(&value, &files),
            DataMessage::Segment(header) => self.begin(&header),
            DataMessage::Holes(holes) => {
                let path = |(file, _): &(Arc<Pending>, Incoming)| file.directory.path.join(&file.name);
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
        if record.attempt != file.attempt() {
            return Ok(());
        }
        self.site.account.received(record.content.len() as u64, 0, 0);
        let mtime = match record.outcome {
            Ok(_) if intact && !self.site.policy.selects_size(record.content.len() as u64) => {
                return file.give_up_or_retry(self.site, Cause::Changed);
            }
            Ok(mtime) if intact => mtime,
            Err(cause) if intact => return file.give_up_or_retry(self.site, cause),
            _ => return file.give_up_or_retry(self.site, Cause::ContentMismatch),
        };
        let staged = self.whole(&file, &record.content);
        self.outbox.submit(&file, staged, mtime)
    }

    /// Writes a file whose whole content is here.
    fn whole(&self, file: &Pending, content: &[u8]) -> io::Result<StagedFile> {
        let (len, in_place) = (content.len() as u64, file.circumstances.in_place);
        let WritePolicy { sparse, preallocate, .. } = self.site.policy.options.writing;
        let staged = in_place::create(self.site, file, len)?;
        if in_place || sparse {
            staged.set_len(len)?;
        }
        match sparse {
            true => _ = staged.write_sparse_at(0, content, in_place || preallocate)?,
            false => staged.write_all_at(0, content)?,
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
            Some((file, incoming)) => incoming.push(self.site, file, &raw),
            None => Ok(()),
        }
    }

    fn end(&mut self, value: Option<[u8; 32]>) -> Result<(), SyncError> {
        let Some((file, incoming)) = self.segment.take() else { return Ok(()) };
        let stage = incoming.end(value)?;
        let verified = file.verify(self.site, &stage)?;
        self.commit_if_good(&file, verified)
    }

    fn file_end(&mut self, end: &FileEnd) -> Result<(), SyncError> {
        let Some(file) = self.find(end.entry)? else { return Ok(()) };
        let verified = file.file_end(self.site, end.attempt, end.outcome)?;
        self.commit_if_good(&file, verified)
    }

    fn commit_if_good(&mut self, file: &Arc<Pending>, verified: Verified) -> Result<(), SyncError> {
        let Verified::Good(stage) = verified else { return Ok(()) };
        match stage.take(self.site, file) {
            Ok(Taken::File(staged, mtime)) => self.outbox.submit(file, Ok(staged), mtime),
            Ok(Taken::Nothing) => Ok(()),
            Ok(Taken::Stale) => file.give_up_or_retry(self.site, Cause::ContentMismatch),
            Err(error) => file.broke(self.site, Operation::WriteFile, error),
        }
    }

    /// The file of an entry number; `None` when what comes for it is void. A number that was never
    /// listed is the peer's fault.
    fn find(&self, entry: EntryId) -> Result<Option<Arc<Pending>>, SyncError> {
        if !self.site.was_listed(entry) {
            return Err(misbehaved(PeerMisbehaved::OutOfRange { entry }));
        }
        Ok(self.site.files.get(entry))
    }
}
