//! One data lane at the source: takes requested files from the queue, reads, searches, compresses,
//! sends.

use std::{ops::Range, sync::Arc, time::Instant};

use bytes::Bytes;
use dsync_delta::{Key, SearchError, SegmentPlan, SegmentValue, Token, TokenEncoder, TokenSink};
use dsync_wire::{
    budget::Share,
    codec::{MAX_RECORD_HEADER, RecordsEncoder},
    compress::Packer,
    frame::DataSender,
    link::LinkError,
    message::{Cause, DataMessage, FileEnd, Segment, Timestamp},
    options::Compression,
};

use super::{
    Shared,
    effort::Sent,
    large::{AfterPlan, Claim, LargeFile, Opened, Planned},
    queue::{Request, Work},
    read,
};
use crate::{SyncError, content, slow_reads::ReadGauge};

/// The state of one lane's worker.
pub(super) struct Lane<'a> {
    shared: &'a Shared<'a>,
    reads: ReadGauge,
    out: Out<'a>,
}

/// Compression and sending.
struct Out<'a> {
    shared: &'a Shared<'a>,
    key: Key,
    sender: DataSender,
    packer: Packer,
}

/// Serves the queue over one lane until it is closed and empty.
pub(super) fn run(shared: &Shared<'_>, key: Key, number: u8) -> Result<(), SyncError> {
    let _buffers = shared.session.budget.take(Share::Lanes, lane_buffers(shared))?;
    let lane = shared.session.link.open_lane()?;
    // The receiving half carries nothing, but dropping it could reset the stream.
    let _held = lane.rx;
    let mut out = Out { shared, key, sender: DataSender::new(lane.tx), packer: Packer::new() };
    out.sender.send(&DataMessage::LaneStart { lane: number })?;
    let mut lane = Lane { shared, reads: ReadGauge::default(), out };
    let rests = || usize::from(number) >= shared.session.link.sending_lanes();
    while let Some(work) = shared.queue.take(shared.session.data_lanes, &shared.session.halt, rests) {
        match work {
            Work::Batch(requests) => lane.batch(requests)?,
            Work::Large(file) => lane.large(&file)?,
        }
    }
    // A stopped run sends no `LaneEnd`: the peer would take the lane for one that ended without its
    // files.
    if shared.session.halt.stopped() {
        return Err(SyncError::Link(LinkError::Closed));
    }
    lane.out.sender.send(&DataMessage::LaneEnd)?;
    lane.out.sender.finish()?;
    Ok(())
}

/// Returns the memory for the buffers of a lane, in bytes: content, its packed form, and the
/// compressor, whose tables grow with its level.
fn lane_buffers(shared: &Shared<'_>) -> u64 {
    match shared.session.options.compression {
        Compression::Zstd(10..) => 8 << 20,
        _ => 3 << 20,
    }
}

impl Lane<'_> {
    /// Sends small files in one frame; those with holes by themselves.
    fn batch(&mut self, requests: Vec<Request>) -> Result<(), SyncError> {
        let keeps_holes = !self.shared.session.options.writing.sparse;
        let listed: u64 = requests.iter().map(|request| request.listed.size() + RECORD_HEADER).sum();
        let expected = usize::try_from(listed).unwrap_or(usize::MAX).min(MAX_BATCH_BYTES);
        let mut records = RecordsEncoder::with_capacity(expected);
        let mut requests = requests.into_iter();
        self.reads.next_group();

        while let Some(request) = requests.next() {
            let started = Instant::now();
            if !append(&mut records, &request, keeps_holes)? {
                self.alone(request)?;
                continue;
            }
            self.reads.read(request.listed.size(), started);
            if self.reads.asks_now() {
                let rest = requests.as_slice().iter();
                self.reads.ask_for(rest.filter_map(|next| read::open(&next.listed).ok()));
            }
            self.shared.grew(&request, request.listed.size());
            // Files may have grown since they were listed.
            if records.size() >= MAX_BATCH_BYTES {
                self.send_records(std::mem::take(&mut records))?;
            }
        }
        self.send_records(records)
    }

    fn send_records(&mut self, records: RecordsEncoder) -> Result<(), SyncError> {
        if records.is_empty() {
            return Ok(());
        }
        let raw = records.finish().map_err(LinkError::from)?;
        let value = content::batch_value(&self.out.key, &raw);
        self.out.packed(raw.into(), |files| DataMessage::Batch { value, files })
    }

    /// Sends a small file as a large one is: only segments tell of holes, and it may be large by now.
    fn alone(&mut self, request: Request) -> Result<(), SyncError> {
        let file = Arc::new(LargeFile::new(request));
        while !file.is_exhausted() {
            self.large(&file)?;
        }
        Ok(())
    }

    /// Sends the next segment of a large file, or its outcome.
    fn large(&mut self, file: &Arc<LargeFile>) -> Result<(), SyncError> {
        match file.claim(self.shared.session.halt.stop_flag()) {
            Claim::Exhausted => self.shared.queue.retire(file),
            Claim::Empty => {
                let mut records = RecordsEncoder::default();
                if append(&mut records, &file.request, false)? {
                    self.send_records(records)?;
                } else {
                    // It has grown a lot just now: the next request finds it so.
                    self.end(&file.request, Err(Cause::Changed))?;
                }
            }
            Claim::Failed(cause) => self.end(&file.request, Err(cause))?,

            Claim::Plan(opened, index, earlier) => self.plan(file, opened, index, earlier.as_deref())?,
            Claim::Segment(opened, index, planned) => {
                let result = self.out.segment(&file.request, opened, index, planned)?;
                let value = result.map(SegmentValue::to_bytes);
                self.out.sender.send(&DataMessage::SegmentEnd { value: value.ok() })?;
                if let Some(ended) = file.finish(opened, value) {
                    let outcome = ended.and_then(|sent| {
                        let key = file.request.signature.as_ref().map_or(&self.out.key, |sums| sums.key());
                        opened.outcome(&sent, key, self.shared.session.halt.stop_flag())
                    });
                    self.end(&file.request, outcome)?;
                }
            }
        }
        Ok(())
    }

    /// Searches a segment, to be sent in a later round of a delta.
    fn plan(
        &mut self,
        file: &Arc<LargeFile>,
        opened: &Opened,
        index: u64,
        earlier: Option<&SegmentPlan>,
    ) -> Result<(), SyncError> {
        let Some(signature) = &file.request.signature else { return Ok(()) };
        let halt = &self.shared.session.halt;
        let new = opened.content(halt.stop_flag());
        let rolling = signature.rolling();
        let plan = match earlier {
            Some(earlier) => earlier.search_again(signature, &new, rolling),
            None => dsync_delta::plan_segment(signature, &new, &opened.segments, index, rolling),
        };

        if plan.is_err() && halt.stopped() {
            return Err(SyncError::Link(LinkError::Closed));
        }
        let plan = plan.map_err(|error| match error {
            SearchError::Read(error) => read::cause(&error),
            _ => Cause::Changed,
        });

        match file.planned(opened, index, plan) {
            AfterPlan::Wait => Ok(()),
            AfterPlan::End(cause) => self.end(&file.request, Err(cause)),
            AfterPlan::Send => {
                self.shared.queue.push_again(Arc::clone(file));
                Ok(())
            }
            AfterPlan::Refine(request) => self.shared.refine(file, request),
        }
    }

    fn end(&mut self, request: &Request, outcome: Result<Timestamp, Cause>) -> Result<(), SyncError> {
        let end = FileEnd { entry: request.entry, attempt: request.attempt, outcome };
        Ok(self.out.sender.send(&DataMessage::FileEnd(end))?)
    }
}

/// Reads a small file into a batch, or notes why it cannot be read. Returns `false` for one that goes by
/// itself: with holes that are to be `kept`, or no longer small.
fn append(records: &mut RecordsEncoder, request: &Request, kept: bool) -> Result<bool, SyncError> {
    let key = (request.entry, request.attempt);
    match read::whole(&request.listed, kept, key, records) {
        Ok(taken) => Ok(taken),
        Err(cause) => {
            records.failure(key, cause).map_err(LinkError::from)?;
            Ok(true)
        }
    }
}

impl Out<'_> {
    /// Sends one segment's header and tokens. The inner error is the file's, the outer one the
    /// run's.
    fn segment(
        &mut self,
        request: &Request,
        opened: &Opened,
        index: u64,
        planned: Option<Planned>,
    ) -> Result<Result<SegmentValue, Cause>, SyncError> {
        let header = Segment {
            entry: request.entry,
            attempt: request.attempt,
            state: opened.state,
            file_len: opened.segments.file_len(),
            length_log2: opened.segments.length_log2(),
            index,
            lead: 0,
        };

        let halt = &self.shared.session.halt;
        let new = opened.content(halt.stop_flag());
        let key = self.key.clone();
        let holes = if self.shared.session.options.writing.sparse { Vec::new() } else { opened.holes(index) };

        let mut sink = SegmentSink {
            out: self,
            request,
            header,
            holes,
            encoder: TokenEncoder::new(),
            started: false,
            counted: 0,
        };
        let outcome = match (planned, &request.signature) {
            (Some(Planned { plan, fine: Some(fine) }), _) => {
                plan.emit_refined(&fine, &new, fine.rolling(), &mut sink).map(|_| plan.outcome().value)
            }
            (Some(Planned { plan, fine: None }), _) => {
                plan.emit(&new, &mut sink).map(|()| plan.outcome().value)
            }
            (None, Some(signature)) => {
                let (segments, rolling) = (&opened.segments, signature.rolling());
                dsync_delta::search_segment(signature, &new, segments, index, rolling, &mut sink)
                    .map(|outcome| outcome.value)
            }
            (None, None) => dsync_delta::copy_segment(&new, &opened.segments, index, &key, &mut sink)
                .map(|outcome| outcome.value),
        };

        sink.flush()?;
        let Range { start, end } = opened.segments.range(index);
        let length = end.saturating_sub(start);
        sink.count(length.saturating_sub(sink.counted));
        match outcome {
            Ok(value) => Ok(Ok(value)),
            Err(SearchError::Read(_)) if halt.stopped() => Err(SyncError::Link(LinkError::Closed)),
            Err(SearchError::Read(error)) => Ok(Err(read::cause(&error))),
            Err(SearchError::Sink(error)) => Err(error),
            Err(_) => Ok(Err(Cause::Changed)),
        }
    }

    /// Compresses and sends one payload.
    fn packed(
        &mut self,
        raw: Bytes,
        message: impl FnOnce(dsync_wire::compress::Packed) -> DataMessage,
    ) -> Result<(), SyncError> {
        let effort = self.shared.effort.now();
        let content_bytes = raw.len() as u64;
        let packed = self.packer.pack(raw, effort);
        let wire_bytes = packed.bytes.len() as u64;
        let started = Instant::now();
        self.sender.send(&message(packed))?;
        self.shared.session.note_progress();
        let waited = started.elapsed();
        self.shared.effort.sent(Sent { effort, content_bytes, wire_bytes, waited });
        Ok(())
    }
}

/// Turns tokens into frames.
struct SegmentSink<'a, 'b> {
    out: &'a mut Out<'b>,
    request: &'a Request,
    header: Segment,
    holes: Vec<Range<u32>>,
    encoder: TokenEncoder,
    started: bool,
    /// Literal bytes that were counted for whoever watches.
    counted: u64,
}

impl TokenSink for SegmentSink<'_, '_> {
    type Error = SyncError;

    fn start(&mut self, lead: u32) -> Result<(), SyncError> {
        self.header.lead = lead;
        self.started = true;
        self.out.sender.send(&DataMessage::Segment(self.header))?;
        if self.holes.is_empty() {
            return Ok(());
        }
        Ok(self.out.sender.send(&DataMessage::Holes(std::mem::take(&mut self.holes)))?)
    }

    fn token(&mut self, token: Token<'_>) -> Result<(), SyncError> {
        let mut token = token;
        // A long literal fills several frames.
        while let Token::Literal(bytes) = token
            && bytes.len() > TOKEN_FRAME_BYTES
        {
            let (head, tail) = bytes.split_at(TOKEN_FRAME_BYTES);
            self.encoder.push(Token::Literal(head));
            self.count(head.len() as u64);
            self.send_tokens()?;
            token = Token::Literal(tail);
        }
        if let Token::Literal(bytes) = token {
            self.count(bytes.len() as u64);
        }
        self.encoder.push(token);
        if self.encoder.len() >= TOKEN_FRAME_BYTES { self.send_tokens() } else { Ok(()) }
    }
}

impl SegmentSink<'_, '_> {
    fn count(&mut self, bytes: u64) {
        self.counted += bytes;
        self.out.shared.grew(self.request, bytes);
    }

    fn send_tokens(&mut self) -> Result<(), SyncError> {
        let raw = self.encoder.take();
        self.out.packed(raw.into(), DataMessage::Tokens)
    }

    /// Sends the remaining tokens; a segment that failed before its first token still gets its
    /// header.
    fn flush(&mut self) -> Result<(), SyncError> {
        if !self.started {
            self.start(0)?;
        }
        if self.encoder.is_empty() { Ok(()) } else { self.send_tokens() }
    }
}

/// Raw bytes of one frame of tokens: large enough for the compressors, small enough that sixteen
/// lanes of them stay within the memory bound.
const TOKEN_FRAME_BYTES: usize = 256 << 10;
/// Bytes of one batch frame at the most, before the last file is added.
const MAX_BATCH_BYTES: usize = 384 << 10;
/// Bytes of a batch that a file needs beside its content.
const RECORD_HEADER: u64 = MAX_RECORD_HEADER as u64;
