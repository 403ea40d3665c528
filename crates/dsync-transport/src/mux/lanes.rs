//! The lanes of one pipe: a sans-IO state machine under one lock.
//!
//! Its inputs are the peer's frames ([`Lanes::on_frame`]), calls of the two halves of each lane,
//! and the writer's question what to send next ([`Lanes::next_batch`]). The laws it keeps:
//! - a lane's bytes are passed on in order and once; its end is either clean or an error, never
//!   guessed;
//! - at most [`WINDOW`] bytes per lane wait for a reader, taken from the session's [`Budget`], and
//!   at most [`OUTPUT_BYTES`] per lane wait to be sent; a peer that breaks either bound is an
//!   error;
//! - a lane that can send never waits for one that cannot, and lanes take turns frame by frame.
//!
//! It does not read, write, block or keep time.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Condvar},
};

use bytes::{Bytes, BytesMut};
use dsync_wire::{
    budget::{Budget, Held, OverBudget, Share},
    link::{Carrier, CloseReason, LinkError},
};

use super::{
    beside::INVITATION,
    frame::{Frame, MAX_PAYLOAD, MuxError, encode, header, kind},
};

/// The end of the pipe that this is; decides whose lane numbers are odd.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// The side that started the remote shell: opens odd lanes.
    Client,
    /// The side that was started: opens even lanes.
    Server,
}

/// All lanes of one end.
pub(crate) struct Lanes {
    role: Role,
    /// The name of the carrier in errors.
    carrier: Carrier,
    lanes: HashMap<u32, LaneState>,
    next_local: u32,
    /// Lower bound of the peer's next lane number.
    next_remote: u32,
    live_local: usize,
    live_remote: usize,
    arrivals: VecDeque<u32>,
    /// Lanes with something to send and the credit for it, in the order of their turns.
    ready: VecDeque<u32>,
    /// Encoded frames that precede any data.
    urgent: Vec<u8>,
    ended: Option<LinkError>,
    /// The reason to send to the peer last.
    farewell: Option<CloseReason>,
    /// Features of further connections on which both ends agreed.
    moves: Moves,
    /// Most bytes that may wait to be sent in one lane.
    output_limit: usize,
    /// Wakes threads that wait to accept or to open a lane.
    waiters: Arc<Condvar>,
    budget: Arc<Budget>,
}

/// Further connections that both ends of a mux know of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Moves {
    /// No lane moves.
    Nowhere,
    /// Lanes move to connections over TLS.
    ToTls,
    /// They may move to QUIC too.
    ToQuic,
    /// Those that have moved to TLS may move again.
    Again,
}

/// The writer's next task.
pub(crate) enum Batch {
    /// Send the appended parts.
    Data,
    /// Send nothing for now.
    Idle,
    /// Send the reason, then end the stream.
    Close(CloseReason),
    /// End the stream without a reason.
    Gone,
}

/// Threads that wait for a lane.
#[derive(Default)]
pub(crate) struct Waiters {
    /// Wakes the reader when there is data.
    pub(crate) readable: Condvar,
    /// Wakes the writer when there is room.
    pub(crate) writable: Condvar,
}

struct LaneState {
    waiters: Arc<Waiters>,
    local: bool,
    announced: bool,
    /// Whether somebody here has accepted it.
    accepted: bool,
    /// Whether it no longer counts as a live lane.
    counted_out: bool,
    // Sending.
    output: VecDeque<Bytes>,
    output_bytes: usize,
    credit: usize,
    send: SendState,
    /// The connection that carries on what was not written here, once the output is empty.
    moving: Option<u32>,
    /// Frames that follow the lane's last one here, about what happens on its further connections.
    after: Vec<u8>,
    in_ready: bool,
    // Receiving.
    inbox: VecDeque<BytesMut>,
    /// Budget for the lane itself and its inbox.
    held: Held,
    allowance: usize,
    uncredited: usize,
    receive: ReceiveState,
    /// The peer's last word about its direction since that moved.
    beside: Told,
    reader_gone: bool,
}

/// Words about a direction that goes on by a further connection.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Told {
    Nothing,
    /// It moves again, to this connection.
    Again(u32),
    /// It has moved again.
    Moved,
    /// It ended on the connection that it had moved to last.
    End,
    /// It ends on this connection.
    EndOf(u32),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum SendState {
    Open,
    /// Will be finished when the output is empty.
    Finishing,
    /// The end was sent or is among the urgent frames.
    Ended,
    /// Ended early, because the peer stopped reading or this end gave up.
    Reset,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum ReceiveState {
    Open,
    Finished,
    Reset,
    /// The rest comes on this further connection.
    Moved(u32),
}

/// The result of a read.
pub(crate) enum Received {
    /// The next bytes.
    Data(BytesMut),
    /// The clean end.
    End,
    /// The rest comes on this further connection.
    Moved(u32),
    /// Nothing yet.
    Wait,
}

impl LaneState {
    fn new(local: bool, budget: &Arc<Budget>) -> Result<Self, OverBudget> {
        Ok(Self {
            waiters: Arc::default(),
            local,
            announced: false,
            accepted: local,
            counted_out: false,
            output: VecDeque::new(),
            output_bytes: 0,
            credit: WINDOW,
            send: SendState::Open,
            moving: None,
            after: Vec::new(),
            in_ready: false,
            inbox: VecDeque::new(),
            held: budget.take(Share::Lanes, LANE_BYTES)?,
            allowance: WINDOW,
            uncredited: 0,
            receive: ReceiveState::Open,
            beside: Told::Nothing,
            reader_gone: false,
        })
    }

    fn send_ended(&self) -> bool {
        matches!(self.send, SendState::Ended | SendState::Reset)
    }

    fn ended_both_ways(&self) -> bool {
        self.send_ended() && self.receive != ReceiveState::Open
    }

    fn can_send(&self) -> bool {
        match self.send {
            SendState::Open => self.output_bytes > 0 && self.credit > 0,
            SendState::Finishing => self.output_bytes == 0 || self.credit > 0,
            SendState::Ended | SendState::Reset => false,
        }
    }

    fn drop_output(&mut self) {
        self.output = VecDeque::new();
        self.output_bytes = 0;
    }

    fn drop_inbox(&mut self) {
        self.inbox = VecDeque::new();
        self.held.shrink(self.held.bytes().saturating_sub(LANE_BYTES));
    }

    /// Ends the sending direction before it is complete, unless it has ended.
    fn reset(&mut self, id: u32, urgent: &mut Vec<u8>) {
        if self.send_ended() {
            return;
        }
        self.send = SendState::Reset;
        self.drop_output();
        self.waiters.writable.notify_all();
        encode(id, Frame::Reset, urgent);
    }

    /// Takes the peer's word about its direction, which goes on by a further connection.
    fn hear_beside(&mut self, id: u32, frame: Frame<'_>) -> Result<(), MuxError> {
        self.beside = match (self.receive, self.beside, frame) {
            // It crossed with the word that nobody reads.
            (ReceiveState::Reset, told, _) => told,
            (ReceiveState::Moved(_), Told::Nothing, Frame::Moved(connection)) => Told::Again(connection),
            (ReceiveState::Moved(_), Told::Nothing | Told::Moved, Frame::Finish) => Told::End,
            (ReceiveState::Moved(_), Told::Again(connection), Frame::Finish) => Told::EndOf(connection),
            _ => return Err(MuxError::BadLane { kind: frame.kind(), lane: id }),
        };
        self.waiters.readable.notify_all();
        Ok(())
    }

    /// Stores data from the peer; returns whether somebody may read it.
    fn take_data(&mut self, id: u32, data: &[u8]) -> Result<bool, MuxError> {
        if self.receive != ReceiveState::Open {
            return Err(MuxError::BadLane { kind: kind::DATA, lane: id });
        }

        let left = self.allowance;
        let Some(allowance) = left.checked_sub(data.len()) else {
            return Err(MuxError::WindowExceeded { lane: id, length: data.len(), left });
        };
        self.allowance = allowance;
        if self.reader_gone {
            return Ok(false);
        }

        // Small pieces share a buffer, so that the memory stays within twice the received bytes.
        match self.inbox.back_mut() {
            Some(tail) if tail.capacity() - tail.len() >= data.len() => tail.extend_from_slice(data),
            _ => {
                let capacity = data.len().max(SMALLEST_PIECE);
                self.held.grow(capacity as u64)?;
                let mut piece = BytesMut::with_capacity(capacity);
                piece.extend_from_slice(data);
                self.inbox.push_back(piece);
            }
        }
        self.waiters.readable.notify_all();
        Ok(true)
    }
}

impl Lanes {
    pub(crate) fn new(
        (role, carrier): (Role, Carrier),
        moves: Moves,
        waiters: Arc<Condvar>,
        budget: Arc<Budget>,
    ) -> Self {
        let (next_local, next_remote) = match role {
            Role::Client => (1, 2),
            Role::Server => (2, 1),
        };

        Self {
            role,
            carrier,
            lanes: HashMap::new(),
            next_local,
            next_remote,
            live_local: 0,
            live_remote: 0,
            arrivals: VecDeque::new(),
            ready: VecDeque::new(),
            urgent: Vec::new(),
            ended: None,
            farewell: None,
            moves,
            output_limit: OUTPUT_BYTES,
            waiters,
            budget,
        }
    }

    /// Turns a broken rule of the mux into the link's error.
    pub(crate) fn carrier_error(&self, source: MuxError) -> LinkError {
        LinkError::Carrier { carrier: self.carrier, source: Arc::new(source) }
    }

    /// Turns a broken rule in the peer's first bytes into the link's error.
    pub(crate) fn stranger_error(&self, source: MuxError) -> LinkError {
        LinkError::OtherProtocol { carrier: self.carrier, source: Arc::new(source) }
    }

    /// Fails with the link's error if it has ended.
    pub(crate) fn check(&self) -> Result<(), LinkError> {
        self.ended.clone().map_or(Ok(()), Err)
    }

    /// Opens a lane; returns its number and its waiters, or `None` while too many are open.
    pub(crate) fn open(&mut self) -> Result<Option<(u32, Arc<Waiters>)>, LinkError> {
        self.check()?;
        if self.live_local >= MAX_LANES {
            return Ok(None);
        }
        let id = self.next_local;
        let Some(next) = id.checked_add(2) else {
            return Err(self.carrier_error(MuxError::BadLane { kind: kind::OPEN, lane: id }));
        };
        self.next_local = next;
        self.live_local += 1;
        let lane = LaneState::new(true, &self.budget).map_err(|error| self.carrier_error(error.into()))?;
        let waiters = Arc::clone(&lane.waiters);
        self.lanes.insert(id, lane);
        encode(id, Frame::Open, &mut self.urgent);
        Ok(Some((id, waiters)))
    }

    /// Returns the next lane that the peer used first.
    pub(crate) fn accept(&mut self) -> Result<Option<(u32, Arc<Waiters>)>, LinkError> {
        self.check()?;
        while let Some(id) = self.arrivals.pop_front() {
            if let Some(lane) = self.lanes.get_mut(&id) {
                lane.accepted = true;
                let waiters = Arc::clone(&lane.waiters);
                self.retire(id);
                return Ok(Some((id, waiters)));
            }
        }
        Ok(None)
    }

    /// Takes as much of `data` as fits; returns the number of bytes. 0 means: wait.
    pub(crate) fn write(&mut self, id: u32, data: &mut Bytes) -> Result<usize, LinkError> {
        self.check()?;
        let Some(lane) = self.lanes.get_mut(&id) else { return Err(ABANDONED) };
        match lane.send {
            SendState::Open => {}
            SendState::Reset => return Err(ABANDONED),
            SendState::Finishing | SendState::Ended => return Err(LinkError::Closed),
        }
        let count = data.len().min(self.output_limit.saturating_sub(lane.output_bytes));
        if count > 0 {
            lane.output.push_back(data.split_to(count));
            lane.output_bytes += count;
            self.make_ready(id);
        }
        Ok(count)
    }

    /// Ends the sending direction after all written data is sent.
    pub(crate) fn finish(&mut self, id: u32) -> Result<(), LinkError> {
        self.check()?;
        let Some(lane) = self.lanes.get_mut(&id) else { return Err(ABANDONED) };
        match lane.send {
            SendState::Open => lane.send = SendState::Finishing,
            SendState::Reset => return Err(ABANDONED),
            SendState::Finishing | SendState::Ended => return Ok(()),
        }
        self.make_ready(id);
        Ok(())
    }

    /// Ends the sending direction here after all written data is sent: the rest goes by a further
    /// connection.
    pub(crate) fn move_on(&mut self, id: u32, connection: u32) -> Result<(), LinkError> {
        self.finish(id)?;
        if let Some(lane) = self.lanes.get_mut(&id) {
            lane.moving = Some(connection);
        }
        Ok(())
    }

    /// Tells the peer that a direction which has moved goes on by another further connection.
    pub(crate) fn move_again(&mut self, id: u32, connection: u32) -> Result<(), LinkError> {
        self.tell_after(id, Frame::Moved(connection))
    }

    /// Tells the peer that a direction which has moved has ended there.
    pub(crate) fn finish_beside(&mut self, id: u32) -> Result<(), LinkError> {
        if self.moves < Moves::Again { self.check() } else { self.tell_after(id, Frame::Finish) }
    }

    /// Sends a frame behind the last one of the lane's direction.
    fn tell_after(&mut self, id: u32, frame: Frame<'_>) -> Result<(), LinkError> {
        self.check()?;
        match self.lanes.get_mut(&id) {
            Some(lane) if lane.send == SendState::Reset => return Err(ABANDONED),
            Some(lane) if lane.send != SendState::Ended => encode(id, frame, &mut lane.after),
            // A lane that is forgotten here has sent its last frame.
            _ => encode(id, frame, &mut self.urgent),
        }
        Ok(())
    }

    /// Lets less wait to be sent: lanes may move, or are about to, and the reader of one that has moved waits
    /// for what is under way here.
    pub(crate) fn keep_little(&mut self, moves_soon: bool) {
        self.output_limit = if moves_soon { LITTLE_OUTPUT_BYTES } else { LESS_OUTPUT_BYTES };
    }

    /// Tells the peer how to make further connections.
    pub(crate) fn invite(&mut self, invitation: &[u8; INVITATION]) {
        encode(0, Frame::Invite(invitation), &mut self.urgent);
    }

    /// Asks the peer for the connection over QUIC.
    pub(crate) fn ask_for_quic(&mut self, per_million: u32) {
        encode(0, Frame::WantsQuic(per_million), &mut self.urgent);
    }

    /// Tells the peer that the port takes QUIC.
    pub(crate) fn tell_of_quic(&mut self) {
        encode(0, Frame::TakesQuic, &mut self.urgent);
    }

    /// Handles the drop of a sending half: without a finish, the peer must not mistake its data for
    /// the whole.
    pub(crate) fn writer_dropped(&mut self, id: u32) {
        let Some(lane) = self.lanes.get_mut(&id) else { return };
        if lane.send == SendState::Open && self.ended.is_none() {
            lane.reset(id, &mut self.urgent);
        }
        self.retire(id);
    }

    /// Returns the next bytes of a lane, and sends the peer new credit when enough was taken.
    pub(crate) fn read(&mut self, id: u32) -> Result<Received, LinkError> {
        self.check()?;
        let Some(lane) = self.lanes.get_mut(&id) else { return Err(ABANDONED) };
        let Some(data) = lane.inbox.pop_front() else {
            return match lane.receive {
                ReceiveState::Open => Ok(Received::Wait),
                ReceiveState::Finished => Ok(Received::End),
                ReceiveState::Reset => Err(ABANDONED),
                ReceiveState::Moved(connection) => Ok(Received::Moved(connection)),
            };
        };

        lane.uncredited += data.len();
        lane.held.shrink(data.capacity() as u64);
        if lane.receive == ReceiveState::Open && lane.uncredited >= CREDIT_STEP {
            let credit = lane.uncredited;
            lane.allowance += credit;
            lane.uncredited = 0;
            // Within WINDOW, hence within u32.
            encode(id, Frame::Credit(u32::try_from(credit).unwrap_or(u32::MAX)), &mut self.urgent);
        }

        let is_over = lane.receive != ReceiveState::Open;
        if is_over {
            self.retire(id);
        }
        Ok(Received::Data(data))
    }

    /// Returns how a direction goes on that has ended on the further connection where it was.
    pub(crate) fn read_on(&mut self, id: u32) -> Result<Received, LinkError> {
        self.check()?;
        if self.moves < Moves::Again {
            return Ok(Received::End);
        }
        let Some(lane) = self.lanes.get_mut(&id) else { return Err(ABANDONED) };
        let (told, received) = match lane.beside {
            Told::Nothing | Told::Moved => (lane.beside, Received::Wait),
            Told::Again(connection) => (Told::Moved, Received::Moved(connection)),
            Told::EndOf(connection) => (Told::End, Received::Moved(connection)),
            Told::End => (Told::End, Received::End),
        };
        lane.beside = told;
        Ok(received)
    }

    /// Handles the drop of a receiving half: tells the peer to stop.
    pub(crate) fn reader_dropped(&mut self, id: u32) {
        let Some(lane) = self.lanes.get_mut(&id) else { return };
        lane.reader_gone = true;
        lane.drop_inbox();
        if lane.receive == ReceiveState::Open && self.ended.is_none() {
            encode(id, Frame::Stop, &mut self.urgent);
        }
        self.retire(id);
    }

    /// Returns whether the writer has work.
    pub(crate) fn has_output(&self) -> bool {
        self.ended.is_some() || !self.urgent.is_empty() || !self.ready.is_empty()
    }

    /// Appends the next data to send to `parts`: the urgent frames, then one frame of each lane in
    /// turn.
    pub(crate) fn next_batch(&mut self, parts: &mut Vec<Bytes>) -> Batch {
        if self.ended.is_some() {
            return self.farewell.take().map_or(Batch::Gone, Batch::Close);
        }
        if !self.urgent.is_empty() {
            parts.push(Bytes::from(std::mem::take(&mut self.urgent)));
        }
        let mut total = 0;
        while total < BATCH_BYTES
            && parts.len() < BATCH_PARTS
            && let Some(id) = self.ready.pop_front()
        {
            total += self.next_frame(id, parts);
        }
        if parts.is_empty() { Batch::Idle } else { Batch::Data }
    }

    /// Appends one frame of a lane and queues the lane again if it has more; returns the payload's
    /// length.
    fn next_frame(&mut self, id: u32, parts: &mut Vec<Bytes>) -> usize {
        let Some(lane) = self.lanes.get_mut(&id) else { return 0 };
        lane.in_ready = false;
        if !lane.can_send() {
            return 0;
        }
        if lane.output_bytes == 0 {
            lane.send = SendState::Ended;
            let mut frame = Vec::new();
            encode(id, lane.moving.map_or(Frame::Finish, Frame::Moved), &mut frame);
            frame.append(&mut lane.after);
            parts.push(frame.into());
            self.retire(id);
            return 0;
        }

        let Some(mut first) = lane.output.pop_front() else { return 0 };
        let count = first.len().min(MAX_PAYLOAD).min(lane.credit);
        let payload = first.split_to(count);
        if !first.is_empty() {
            lane.output.push_front(first);
        }

        lane.output_bytes -= count;
        lane.credit -= count;
        lane.waiters.writable.notify_all();
        parts.push(Bytes::copy_from_slice(&header(id, kind::DATA, count)));
        parts.push(payload);
        self.make_ready(id);
        count
    }

    /// Handles a frame of the peer.
    ///
    /// # Errors
    /// [`MuxError`] if the frame breaks a rule; the link must end.
    pub(crate) fn on_frame(&mut self, id: u32, frame: Frame<'_>) -> Result<(), MuxError> {
        match frame {
            Frame::Alive => Ok(()),
            Frame::Close(code) => {
                self.end(LinkError::PeerClosed { reason: CloseReason::from_code(u64::from(code)) }, None);
                Ok(())
            }
            Frame::Open => self.on_open(id),
            Frame::Moved(_) | Frame::Invite(_) if self.moves < Moves::ToTls => {
                Err(MuxError::UnknownKind { kind: frame.kind() })
            }
            Frame::TakesQuic if self.moves < Moves::ToQuic => {
                Err(MuxError::UnknownKind { kind: frame.kind() })
            }
            Frame::WantsQuic(_) if self.moves < Moves::Again => {
                Err(MuxError::UnknownKind { kind: frame.kind() })
            }
            // Not of the lanes.
            Frame::Invite(_) | Frame::TakesQuic | Frame::WantsQuic(_) => Ok(()),
            _ => self.on_frame_of_lane(id, frame),
        }
    }

    /// Handles a frame of the peer about a lane that was opened.
    fn on_frame_of_lane(&mut self, id: u32, frame: Frame<'_>) -> Result<(), MuxError> {
        let Some(lane) = self.lanes.get_mut(&id) else { return self.on_frame_of_ended_lane(id, frame) };
        match frame {
            Frame::Data(data) => {
                if lane.take_data(id, data)? {
                    self.announce(id);
                }
            }
            Frame::Finish | Frame::Moved(_)
                if self.moves >= Moves::Again && lane.receive != ReceiveState::Open =>
            {
                lane.hear_beside(id, frame)?;
            }
            Frame::Finish | Frame::Reset | Frame::Moved(_) => {
                if lane.receive != ReceiveState::Open {
                    return Err(MuxError::BadLane { kind: frame.kind(), lane: id });
                }
                lane.receive = match frame {
                    Frame::Finish => ReceiveState::Finished,
                    Frame::Moved(connection) => ReceiveState::Moved(connection),
                    _ => ReceiveState::Reset,
                };
                let clean = lane.receive != ReceiveState::Reset;
                lane.waiters.readable.notify_all();
                if clean || lane.announced || lane.local {
                    self.announce(id);
                } else {
                    // The peer opened it and gave up before its first byte, so nobody here needs to
                    // know.
                    lane.reader_gone = true;
                    lane.reset(id, &mut self.urgent);
                }
            }
            Frame::Stop => lane.reset(id, &mut self.urgent),
            Frame::Credit(credit) => {
                let sum = lane.credit.saturating_add(credit as usize);
                if sum > WINDOW {
                    return Err(MuxError::CreditExceeded { lane: id, credit });
                }
                lane.credit = sum;
                self.make_ready(id);
            }

            Frame::Open
            | Frame::Alive
            | Frame::Close(_)
            | Frame::Invite(_)
            | Frame::TakesQuic
            | Frame::WantsQuic(_) => {}
        }
        self.retire(id);
        if self.urgent.len() > MAX_URGENT_BYTES { Err(MuxError::Flooded) } else { Ok(()) }
    }

    fn on_open(&mut self, id: u32) -> Result<(), MuxError> {
        let theirs = (id % 2 == 1) == (self.role == Role::Server);
        if !theirs || id < self.next_remote {
            return Err(MuxError::BadLane { kind: kind::OPEN, lane: id });
        }
        if self.live_remote >= MAX_LANES {
            return Err(MuxError::TooManyLanes { limit: MAX_LANES });
        }
        // At the very end of the numbers every further open is refused as too low.
        self.next_remote = id.saturating_add(1);
        self.live_remote += 1;
        self.lanes.insert(id, LaneState::new(false, &self.budget)?);
        Ok(())
    }

    /// Accepts a stop or credit that crossed with the lane's end, and words about its further connections.
    /// Any other frame is for a lane that never existed.
    fn on_frame_of_ended_lane(&self, id: u32, frame: Frame<'_>) -> Result<(), MuxError> {
        let local = (id % 2 == 1) == (self.role == Role::Client);
        let known = id < if local { self.next_local } else { self.next_remote };
        match frame {
            Frame::Stop | Frame::Credit(_) if known => Ok(()),
            Frame::Finish | Frame::Moved(_) if known && self.moves >= Moves::Again => Ok(()),
            _ => Err(MuxError::BadLane { kind: frame.kind(), lane: id }),
        }
    }

    /// Makes a lane of the peer visible to `accept`, the first time something arrives on it.
    fn announce(&mut self, id: u32) {
        if let Some(lane) = self.lanes.get_mut(&id)
            && !lane.local
            && !lane.announced
        {
            lane.announced = true;
            self.arrivals.push_back(id);
            self.waiters.notify_all();
        }
    }

    /// Ends the link. Every later call reports `cause`; the peer is sent `farewell`. Returns
    /// `false` if the link had ended before.
    pub(crate) fn end(&mut self, cause: LinkError, farewell: Option<CloseReason>) -> bool {
        if self.ended.is_some() {
            return false;
        }
        self.ended = Some(cause);
        self.farewell = farewell;
        self.urgent = Vec::new();
        self.ready = VecDeque::new();
        self.arrivals = VecDeque::new();
        self.waiters.notify_all();
        for lane in self.lanes.values_mut() {
            lane.drop_output();
            lane.drop_inbox();
            lane.waiters.readable.notify_all();
            lane.waiters.writable.notify_all();
        }
        true
    }

    fn make_ready(&mut self, id: u32) {
        if let Some(lane) = self.lanes.get_mut(&id)
            && lane.can_send()
            && !lane.in_ready
        {
            lane.in_ready = true;
            self.ready.push_back(id);
        }
    }

    /// Counts a lane as closed after both directions have ended and no data is held for a reader.
    /// Forgets it when nobody reads it any more. A peer that ends lanes which nobody here has
    /// accepted has not closed them.
    fn retire(&mut self, id: u32) {
        let Some(lane) = self.lanes.get_mut(&id) else { return };
        if !lane.ended_both_ways() {
            return;
        }
        let is_read = lane.reader_gone || lane.accepted && lane.inbox.is_empty();
        if is_read && !lane.counted_out {
            lane.counted_out = true;
            let live = if lane.local { &mut self.live_local } else { &mut self.live_remote };
            *live = live.saturating_sub(1);
            self.waiters.notify_all();
        }
        if lane.reader_gone {
            self.lanes.remove(&id);
        }
    }
}

/// The error after the peer dropped its half of a lane.
const ABANDONED: LinkError = LinkError::PeerClosed { reason: CloseReason::Failed };

/// Most bytes that may wait for a reader in one lane: as many as ssh itself lets through per round
/// trip (its channel window), so that with a second lane ssh is already the bottleneck.
pub(crate) const WINDOW: usize = 2 << 20;
/// Bytes that the reader takes before the peer gets new credit.
const CREDIT_STEP: usize = WINDOW / 4;
/// Bytes that may wait to be sent in one lane: enough that the writer always finds some.
const OUTPUT_BYTES: usize = 512 << 10;
/// The same where lanes may move to further connections: it is left after a few megabytes.
const LESS_OUTPUT_BYTES: usize = 128 << 10;
/// The same on a path that is left soon: with 16 lanes of the larger bound a path of 80 ms that loses 1 % took
/// 20 s for what had been written before.
const LITTLE_OUTPUT_BYTES: usize = 32 << 10;
/// Most lanes that each side may have open at a time.
pub(crate) const MAX_LANES: usize = 72;
/// Payload of one round of the writer, in bytes: the most that an urgent frame waits for.
const BATCH_BYTES: usize = 256 << 10;
/// Most parts in one round.
const BATCH_PARTS: usize = 64;
/// Smallest buffer of a received piece, in bytes.
const SMALLEST_PIECE: usize = 8 << 10;
/// Cost of an open lane without its content, in bytes.
const LANE_BYTES: u64 = 1 << 10;
/// Most bytes of answers that wait for a peer which does not read: credits of 72 lanes are under 10
/// KiB.
const MAX_URGENT_BYTES: usize = 64 << 10;
