//! One file that is sent in segments, shared by the lanes that send them.
//!
//! The first worker opens it; each worker claims the next segment; the worker that finishes the
//! last one checks that the file did not change meanwhile and reports its outcome (invariant D7). If it
//! only grew, that worker reads what was sent once more: where nothing else changed, it is one state.
//! After a failed read no further segment is claimed. A destination that has some segments of the
//! file in this very state gets the others only.
//!
//! A delta whose basis is long takes rounds: first every segment is searched, with strong sums
//! only, as soon as those around its place have arrived, and only its plan is kept. Where the data has shifted, the destination is asked for weak
//! sums, and the segments that they may change are searched again. Then it is asked for shorter
//! blocks' sums where the plans found nothing, and the segments are sent with those. A round
//! without anything to ask for is left out.

use std::{
    io,
    ops::Range,
    sync::{Arc, Mutex, OnceLock, atomic::AtomicBool},
};

use dsync_delta::{
    AddWeakError, Key, ReadAt as _, RefineRequest, SegmentHasher, SegmentPlan, Segments, Signature,
};
use dsync_fs::{SourceFile, Stamp};
use dsync_wire::{
    budget::Held,
    limits::{MAX_HOLES, MAX_SUMS},
    message::{Cause, FileState, Timestamp},
};

use super::{
    queue::{KeptSignature, Request, Tail},
    read,
};
use crate::{
    content::{self, Positional, READ_BYTES},
    halt::lock,
    limits::MAX_FINE_BLOCKS,
    plan::timestamp,
};

/// A large file in transfer.
pub(super) struct LargeFile {
    pub(super) request: Request,
    opened: OnceLock<Result<Opened, Cause>>,
    claims: Mutex<Claims>,
}

/// The file once it is open.
pub(super) struct Opened {
    pub(super) file: SourceFile,
    pub(super) stamp: Stamp,
    pub(super) segments: Segments,
    /// Offset of the first byte to send.
    from: u64,
    pub(super) state: FileState,
    /// The segments to send; all of them when `None`.
    wanted: Option<Vec<Range<u64>>>,
}

struct Claims {
    round: Round,
    /// The first segment that may take part in the round and is not claimed.
    begin_at: u64,
    in_flight: u64,
    failed: Option<Cause>,
    ended: bool,
    plans: Vec<Option<Arc<SegmentPlan>>>,
    /// The values of the segments that were sent.
    sent: Values,
    fine: Option<KeptSignature>,
    /// Memory for weak sums that came later.
    weak: Option<Held>,
}

/// The sum, without carries, of the values of some segments. Each value is made with the segment's place.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Values([u8; 32]);

impl Values {
    fn add(&mut self, value: &[u8; 32]) {
        self.0.iter_mut().zip(value).for_each(|(sum, byte)| *sum ^= byte);
    }
}

/// The task for each segment.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Round {
    /// Search it and keep the plan, unless an earlier search of it is as good.
    Plan,
    /// Nothing, until the sums that were asked for are here.
    Await,
    /// Send it.
    Send,
}

/// The segment to claim next.
enum Next {
    Segment(u64),
    /// It waits for sums that are still to come.
    Sums,
    None,
}

/// The next task of a worker for a large file.
pub(super) enum Claim<'a> {
    /// Search this segment, again if it has a plan, and hand in its plan.
    Plan(&'a Opened, u64, Option<Arc<SegmentPlan>>),
    /// Send this segment, planned or not.
    Segment(&'a Opened, u64, Option<Planned>),
    /// It is empty now: it goes as a record.
    Empty,
    /// Report this failure: it could not be opened.
    Failed(Cause),
    /// All segments are claimed.
    Exhausted,
}

/// A segment that was searched.
pub(super) struct Planned {
    pub(super) plan: Arc<SegmentPlan>,
    pub(super) fine: Option<KeptSignature>,
}

/// The step after a search.
pub(super) enum AfterPlan {
    /// Other segments are still being searched.
    Wait,
    /// Ask for further sums.
    Refine(RefineRequest),
    /// Send the segments.
    Send,
    /// Report this failure.
    End(Cause),
}

impl LargeFile {
    pub(super) fn new(request: Request) -> Self {
        let round = if request.is_refinable() { Round::Plan } else { Round::Send };
        let claims = Claims {
            round,
            begin_at: 0,
            in_flight: 0,
            failed: None,
            ended: false,
            plans: Vec::new(),
            sent: Values::default(),
            fine: None,
            weak: None,
        };
        Self { request, opened: OnceLock::new(), claims: Mutex::new(claims) }
    }

    /// Claims the next segment.
    pub(super) fn claim(&self, stopped: &AtomicBool) -> Claim<'_> {
        let opened = self.opened.get_or_init(|| self.open(stopped));
        let mut claims = lock(&self.claims);
        if claims.ended {
            return Claim::Exhausted;
        }
        match opened {
            Err(cause) => {
                claims.ended = true;
                Claim::Failed(*cause)
            }
            Ok(opened) if opened.stamp.size == 0 => {
                claims.ended = true;
                Claim::Empty
            }
            Ok(opened) => claims.claim(opened, &self.request),
        }
    }

    /// Takes the plan of a claimed segment.
    pub(super) fn planned(
        &self,
        opened: &Opened,
        index: u64,
        result: Result<SegmentPlan, Cause>,
    ) -> AfterPlan {
        let mut claims = lock(&self.claims);
        claims.in_flight -= 1;
        match result {
            Ok(plan) => claims.set_plan(index, plan),
            Err(cause) => _ = claims.failed.get_or_insert(cause),
        }
        if !claims.round_is_over(opened) {
            return AfterPlan::Wait;
        }

        if let Some(cause) = claims.failed {
            claims.ended = true;
            return AfterPlan::End(cause);
        }

        match self.refinement(&claims.plans) {
            Some(request) => {
                claims.begin(Round::Await);
                AfterPlan::Refine(request)
            }
            None => {
                claims.begin(Round::Send);
                AfterPlan::Send
            }
        }
    }

    /// Takes the weak sums that were asked for: segments may be searched again.
    pub(super) fn weak_sums(&self, sums: Signature, held: Held) -> Result<(), AddWeakError> {
        if let Some(signature) = &self.request.signature {
            signature.add_weak(sums)?;
        }
        let mut claims = lock(&self.claims);
        claims.weak = Some(held);
        claims.begin(Round::Plan);
        Ok(())
    }

    /// Takes the sums of shorter blocks: the segments may be sent.
    pub(super) fn refined(&self, fine: KeptSignature) {
        let mut claims = lock(&self.claims);
        claims.fine = Some(fine);
        claims.begin(Round::Send);
    }

    /// Returns whether nothing can be claimed, for now or for good.
    pub(super) fn is_exhausted(&self) -> bool {
        match self.opened.get() {
            Some(Ok(opened)) => !matches!(lock(&self.claims).next(opened, &self.request), Next::Segment(_)),
            // Whoever opens it claims it, or its failure.
            Some(Err(_)) => lock(&self.claims).ended,
            None => false,
        }
    }

    /// Returns whether the next segment cannot be searched before more sums are here.
    pub(super) fn awaits_sums(&self) -> bool {
        let Some(Ok(opened)) = self.opened.get() else { return false };
        matches!(lock(&self.claims).next(opened, &self.request), Next::Sums)
    }

    /// Takes the value of a sent segment, or why it could not be read. Returns those of all segments when
    /// it was the last one out, for [`Opened::outcome`].
    pub(super) fn finish(
        &self,
        opened: &Opened,
        value: Result<[u8; 32], Cause>,
    ) -> Option<Result<Values, Cause>> {
        let mut claims = lock(&self.claims);
        claims.in_flight -= 1;
        match value {
            Ok(value) => claims.sent.add(&value),
            Err(cause) => _ = claims.failed.get_or_insert(cause),
        }
        if claims.ended || !claims.round_is_over(opened) {
            return None;
        }
        claims.ended = true;
        Some(claims.failed.map_or(Ok(claims.sent), Err))
    }

    /// Returns the request to make after a search of all segments: weak sums if the signature has
    /// none and data has shifted, else shorter blocks' sums. `None` when nothing is dirty, or so
    /// much that the request itself would not fit in a message.
    fn refinement(&self, plans: &[Option<Arc<SegmentPlan>>]) -> Option<RefineRequest> {
        let plans = || plans.iter().flatten().map(Arc::as_ref);
        if let Some(signature) = self.request.signature.as_ref().filter(|signature| !signature.has_weak())
            && let Some(request) = RefineRequest::weak_sums(signature.layout(), plans())
        {
            return Some(request);
        }
        let (layout, fine) = self.request.refinement()?;
        RefineRequest::collect(layout, fine, plans())
            .filter(|request| request.block_count() <= MAX_FINE_BLOCKS)
            .filter(|request| request.encode().len() <= MAX_SUMS)
    }

    fn open(&self, stopped: &AtomicBool) -> Result<Opened, Cause> {
        let listed = &self.request.listed;
        let file = read::open(listed)?;
        let stamp = file.stamp();
        if !timestamp(stamp.mtime).is_valid() {
            return Err(Cause::Unrepresentable);
        }
        let state = content::state(&stamp);
        let from = self.begin_tail(&file, stopped)?;
        let rest = self.request.rest.as_ref().map(|kept| &kept.rest).filter(|rest| rest.state == state);
        let segments = match rest {
            Some(rest) => Segments::new(stamp.size, rest.length_log2),
            None => Segments::for_file(stamp.size - from),
        };
        let segments = segments.map_err(|_| Cause::Unrepresentable)?;
        let wanted = rest.map(|rest| rest.runs.clone());
        file.advise_sequential();
        Ok(Opened { file, stamp, segments, from, state, wanted })
    }

    /// Returns the offset where the wanted part of the file begins.
    fn begin_tail(&self, file: &SourceFile, stopped: &AtomicBool) -> Result<u64, Cause> {
        let Some(Tail { from, content }) = self.request.tail else { return Ok(0) };
        if file.len() <= from {
            return Err(Cause::Changed);
        }
        let ours = |theirs| Ok((theirs, content::hash_beginning(file, from, stopped)?));
        match content.map(ours).transpose() {
            Ok(Some((theirs, ours))) if theirs != ours => Err(Cause::ContentMismatch),
            Ok(_) => Ok(from),
            Err(error) => Err(read::cause(&error)),
        }
    }
}

impl Claims {
    fn claim<'a>(&mut self, opened: &'a Opened, request: &Request) -> Claim<'a> {
        let Next::Segment(index) = self.next(opened, request) else { return Claim::Exhausted };
        self.begin_at = index + 1;
        self.in_flight += 1;
        if self.round == Round::Plan {
            return Claim::Plan(opened, index, self.plan(index).cloned());
        }
        let plan = usize::try_from(index).ok().and_then(|index| self.plans.get_mut(index)?.take());
        Claim::Segment(opened, index, plan.map(|plan| Planned { plan, fine: self.fine.clone() }))
    }

    fn begin(&mut self, round: Round) {
        self.round = round;
        self.begin_at = 0;
    }

    /// Returns the next segment that takes part in the round; past the last when there is none.
    fn upcoming(&self, opened: &Opened) -> u64 {
        let takes_part = |index: &u64| {
            // After a search, only segments that it left open are searched again.
            let settled =
                self.round == Round::Plan && self.plan(*index).is_some_and(|plan| !plan.wants_weak_sums());
            opened.wants(*index) && !settled
        };
        let count = opened.segments.count();
        (self.begin_at..count).find(takes_part).unwrap_or(count)
    }

    fn plan(&self, index: u64) -> Option<&Arc<SegmentPlan>> {
        self.plans.get(usize::try_from(index).ok()?)?.as_ref()
    }

    fn set_plan(&mut self, index: u64, plan: SegmentPlan) {
        let Ok(index) = usize::try_from(index) else { return };
        if self.plans.len() <= index {
            self.plans.resize(index + 1, None);
        }
        self.plans[index] = Some(Arc::new(plan));
    }

    /// Returns the next segment to claim, unless there is none now.
    fn next(&self, opened: &Opened, request: &Request) -> Next {
        if self.ended || self.failed.is_some() || self.round == Round::Await {
            return Next::None;
        }
        let index = self.upcoming(opened);
        if index >= opened.segments.count() {
            return Next::None;
        }
        let signature = request.signature.as_ref().filter(|_| self.round == Round::Plan);
        match signature {
            Some(signature) if !signature.is_ready_for(opened.segments, index) => Next::Sums,
            _ => Next::Segment(index),
        }
    }

    /// Returns whether every segment was claimed and none is being worked on.
    fn round_is_over(&self, opened: &Opened) -> bool {
        self.in_flight == 0 && (self.failed.is_some() || self.upcoming(opened) >= opened.segments.count())
    }
}

impl Opened {
    fn wants(&self, index: u64) -> bool {
        self.wanted.as_ref().is_none_or(|runs| runs.iter().any(|run| run.contains(&index)))
    }

    /// Returns the content to send, which cannot be read any more once the run is `stopped`.
    pub(super) fn content<'a>(&'a self, stopped: &'a AtomicBool) -> Positional<'a> {
        Positional::tail(&self.file, self.from, stopped)
    }

    /// Returns the holes of a segment, from its start on; none if the filesystem cannot tell.
    pub(super) fn holes(&self, index: u64) -> Vec<Range<u32>> {
        let Range { start, end } = self.segments.range(index);
        let segment = start + self.from..end + self.from;
        let within = |at: u64| u32::try_from(at - segment.start).ok();
        let holes = self.file.holes(segment.clone()).unwrap_or_default().into_iter();
        holes.map_while(|hole| Some(within(hole.start)?..within(hole.end)?)).take(MAX_HOLES).collect()
    }

    /// Returns the outcome after all segments were read, of which `sent` are the values. Reads a file that
    /// has grown once more.
    pub(super) fn outcome(&self, sent: &Values, key: &Key, stopped: &AtomicBool) -> Result<Timestamp, Cause> {
        let is_one_state = || {
            // Of a part that an earlier run got no values are here.
            let is_unclear = self.wanted.is_none() && self.file.needs_another_reading()?;
            Ok(self.file.is_unchanged()? || is_unclear && self.values(key, stopped)? == Some(*sent))
        };
        match is_one_state() {
            Ok(true) => Ok(timestamp(self.stamp.mtime)),
            Ok(false) => Err(Cause::Changed),
            Err(error) => Err(read::cause(&error)),
        }
    }

    /// Reads all segments. Returns their values; `None` if the file ends before them.
    fn values(&self, key: &Key, stopped: &AtomicBool) -> io::Result<Option<Values>> {
        let (content, mut values) = (self.content(stopped), Values::default());
        let mut buffer = vec![0; READ_BYTES];
        for index in 0..self.segments.count() {
            let Ok(mut hasher) = SegmentHasher::new(key, &self.segments, index) else { return Ok(None) };
            let Range { start: mut at, end } = self.segments.range(index);
            while at < end {
                let most = usize::try_from(end - at).map_or(READ_BYTES, |left| left.min(READ_BYTES));
                let read = content.read_at(at, &mut buffer[..most])?;
                if read == 0 {
                    return Ok(None);
                }
                hasher.update(&buffer[..read]);
                at += read as u64;
            }
            let Ok(value) = hasher.finish() else { return Ok(None) };
            values.add(&value.to_bytes());
        }
        Ok(Some(values))
    }
}
