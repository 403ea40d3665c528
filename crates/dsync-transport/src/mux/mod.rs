//! Lanes over one pair of pipes: the carrier that works wherever ssh does.
//!
//! Turns the standard streams of the remote shell, after the bootstrap, into a [`Link`]. [`frame`]
//! is the byte format, [`lanes`] the state machine, [`beside`] where lanes go on if they may. This
//! module has the two tasks that move bytes between them and the pipes.
//!
//! Why not the yamux crate: it shows a reset lane to its reader as a clean end, and it cannot say
//! why a connection was closed nor that one direction of a lane is no longer read. It also copies
//! every write. Curing that from outside takes a second protocol inside its streams and more code
//! than this. The shape (credit per lane, half-close, reset) is that of
//! [yamux](https://github.com/hashicorp/yamux/blob/master/spec.md) and of HTTP/2 (RFC 9113, section
//! 5).

pub(crate) mod beside;
mod frame;
mod lanes;

use std::{
    io,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use bytes::{Buf, Bytes, BytesMut};
use dsync_wire::{
    budget::Budget,
    link::{Carrier, CloseReason, Lane, LaneRead, LaneWrite, Link, LinkError, Move, Traffic},
};
use tokio::{
    sync::{Notify, oneshot},
    time::{sleep, timeout},
};

pub(crate) use self::lanes::Role;
use self::{
    beside::Beside,
    frame::{Frame, MuxError, encode, parse},
    lanes::{Batch, Lanes, Moves, Received, Waiters},
};
use crate::{
    counters::Counters,
    pipe::{PipeReader, PipeWriter},
    reactor::{Reactor, block_on},
};

/// The place of a link's end.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Seat {
    pub(crate) role: Role,
    /// The carrier that the pipe counts as.
    pub(crate) carrier: Carrier,
    /// Whether the path behind the pipe is known to be short.
    pub(crate) is_near: bool,
}

/// A link over two pipes, or over another stream's two directions. Dropping it closes it as [`Failed`](CloseReason::Failed) unless it was
/// closed before, and allows the peer up to [`FAREWELL_TIME`] to receive the reason.
pub(crate) struct MuxLink {
    shared: Arc<Shared>,
    seat: Seat,
    /// Resolves after the writer has sent the last frame.
    written: Option<oneshot::Receiver<()>>,
    /// The runtime of the tasks; ends with the link.
    _reactor: Reactor,
}

impl MuxLink {
    /// Starts the tasks. Data that waits for a reader is taken from `budget`. Bytes that `reader`
    /// has read beyond the bootstrap belong to the mux. Lanes move to connections of `beside`, which
    /// is there only if the peer knows of them.
    pub(crate) fn start(
        reactor: Reactor,
        reader: PipeReader,
        writer: PipeWriter,
        seat: Seat,
        idle_timeout: Duration,
        budget: Arc<Budget>,
        beside: Option<Arc<dyn Beside>>,
    ) -> Self {
        let shared = Arc::new(Shared::new((seat.role, seat.carrier), budget, beside));
        let (done, written) = oneshot::channel();
        reactor.spawn(read_frames(Arc::clone(&shared), reader, idle_timeout));
        let alive_interval = (idle_timeout / 3).min(ALIVE_INTERVAL);
        if let Some(beside) = shared.beside.clone() {
            reactor.spawn(watch(Arc::clone(&shared), beside, alive_interval));
        }
        let output = Arc::clone(&shared);
        reactor.spawn(async move {
            write_frames(&output, writer, alive_interval).await;
            // The link may be gone already.
            let _ = done.send(());
        });
        Self { shared, seat, written: Some(written), _reactor: reactor }
    }
}

impl Link for MuxLink {
    fn carrier(&self) -> Carrier {
        self.seat.carrier
    }

    fn data_lanes(&self) -> usize {
        self.shared.beside.as_ref().and_then(|beside| beside.data_lanes()).unwrap_or(DATA_LANES)
    }

    fn sending_lanes(&self) -> usize {
        self.shared.beside.as_ref().map_or(usize::MAX, |beside| beside.sending_lanes())
    }

    fn moves(&self) -> Vec<Move> {
        self.shared.beside.as_ref().map_or_else(Vec::new, |beside| beside.moves())
    }

    fn is_near(&self) -> bool {
        // Neither ssh nor a caller's stream reports its round trip, and ssh's pipe is used only if
        // neither port can be reached. Who dials a server that stands reports it.
        self.seat.is_near
    }

    fn open_lane(&self) -> Result<Lane, LinkError> {
        self.wait_for_lane(Lanes::open)
    }

    fn accept_lane(&self) -> Result<Lane, LinkError> {
        self.wait_for_lane(Lanes::accept)
    }

    fn traffic(&self) -> Traffic {
        self.shared.counters.traffic()
    }

    fn close(&self, reason: CloseReason) {
        self.shared.end(LinkError::Closed, Some(reason));
    }
}

impl MuxLink {
    fn wait_for_lane(
        &self,
        take: impl Fn(&mut Lanes) -> Result<Option<(u32, Arc<Waiters>)>, LinkError>,
    ) -> Result<Lane, LinkError> {
        let mut lanes = self.shared.lock();
        loop {
            if let Some((id, waiters)) = take(&mut lanes)? {
                drop(lanes);
                self.shared.output.notify_one();
                let half = Half { shared: Arc::clone(&self.shared), id, waiters };
                return Ok(Lane {
                    tx: Box::new(Writer {
                        half: half.clone(),
                        sent_bytes: 0,
                        is_finished: false,
                        moved: None,
                    }),
                    rx: Box::new(Reader { half, current: BytesMut::new(), moved: None }),
                });
            }
            lanes = self.shared.changed.wait(lanes).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Drop for MuxLink {
    fn drop(&mut self) {
        self.close(CloseReason::Failed);
        if let Some(written) = self.written.take() {
            // The writer bounds its own time, and a task that panicked drops the other end.
            let _ = block_on(written);
        }
    }
}

/// State that the link, its lanes and its tasks share.
struct Shared {
    lanes: Mutex<Lanes>,
    /// Signals that a lane can be accepted or opened.
    changed: Arc<Condvar>,
    /// Signals that the writer has work.
    output: Notify,
    /// Signals that the reader has nothing left to do.
    ended: Notify,
    counters: Counters,
    beside: Option<Arc<dyn Beside>>,
}

impl Shared {
    fn new(seat: (Role, Carrier), budget: Arc<Budget>, beside: Option<Arc<dyn Beside>>) -> Self {
        let changed = Arc::new(Condvar::new());
        let moves = match &beside {
            Some(beside) if beside.moves_again() => Moves::Again,
            Some(beside) if beside.knows_quic() => Moves::ToQuic,
            Some(_) => Moves::ToTls,
            None => Moves::Nowhere,
        };

        let mut lanes = Lanes::new(seat, moves, Arc::clone(&changed), budget);
        if let Some(invitation) = beside.as_ref().and_then(|beside| beside.invitation()) {
            lanes.invite(&invitation);
        }
        if beside.as_ref().is_some_and(|beside| beside.takes_quic()) {
            lanes.tell_of_quic();
        }
        if let Some(beside) = &beside {
            lanes.keep_little(beside.is_expected());
        }
        Self {
            lanes: Mutex::new(lanes),
            changed,
            output: Notify::new(),
            ended: Notify::new(),
            counters: Counters::default(),
            beside,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Lanes> {
        self.lanes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn end(&self, cause: LinkError, farewell: Option<CloseReason>) {
        if self.lock().end(cause, farewell) {
            self.output.notify_one();
            self.ended.notify_one();
            if let Some(beside) = &self.beside {
                beside.end();
            }
        }
    }

    /// Counts bytes that a lane has passed on.
    fn count(&self, sent: usize, received: usize) {
        self.counters.add_sent(sent);
        self.counters.add_received(received);
        if let Some(beside) = &self.beside {
            beside.passed(self.counters.traffic());
            if let Some(per_million) = beside.asks_for_quic() {
                self.lock().ask_for_quic(per_million);
                self.output.notify_one();
            }
        }
    }

    /// Waits for the further connection on which the peer goes on.
    fn receive(&self, connection: u32) -> Result<Box<dyn LaneRead>, LinkError> {
        let beside = self.beside.as_ref().ok_or(LinkError::Closed)?;
        beside.receive(connection).map_err(|error| self.explain(error))
    }

    /// Returns the link's error for a further connection that broke. Waits for the reason, which
    /// comes on the mux's own.
    fn explain(&self, error: LinkError) -> LinkError {
        let end = Instant::now() + FAREWELL_TIME * 4;
        let mut lanes = self.lock();
        loop {
            if let Err(cause) = lanes.check() {
                return cause;
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            lanes = self.changed.wait_timeout(lanes, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        drop(lanes);
        self.end(error.clone(), Some(CloseReason::Failed));
        error
    }
}

/// State that both halves of a lane share.
#[derive(Clone)]
struct Half {
    shared: Arc<Shared>,
    id: u32,
    waiters: Arc<Waiters>,
}

struct Writer {
    half: Half,
    /// Bytes sent over the mux, while they count.
    sent_bytes: u64,
    /// Whether the peer was told of its end.
    is_finished: bool,
    /// The further connection on which the lane goes on, and its number.
    moved: Option<(u32, Box<dyn LaneWrite>)>,
}

impl Writer {
    /// Returns the further connection of the lane; takes one where there is one for a lane as long as this,
    /// or one that does better.
    fn beside(&mut self) -> Result<Option<&mut Box<dyn LaneWrite>>, LinkError> {
        let Half { shared, id, .. } = &self.half;
        let Some(beside) = &shared.beside else { return Ok(None) };
        let taken = match &self.moved {
            None => beside.take(self.sent_bytes),
            Some((from, _)) if beside.moves_again() => beside.take_again(*from),
            Some(_) => None,
        };

        if let Some((connection, writer)) = taken {
            if let Some((_, mut left)) = self.moved.take() {
                shared.lock().move_again(*id, connection)?;
                left.finish().map_err(|error| shared.explain(error))?;
            } else {
                shared.lock().move_on(*id, connection)?;
            }
            shared.output.notify_one();
            self.moved = Some((connection, writer));
        }
        Ok(self.moved.as_mut().map(|(_, writer)| writer))
    }

    /// Takes as much as there is room for in the mux, at least a byte, and waits for that.
    fn write_some(&self, data: &mut Bytes) -> Result<usize, LinkError> {
        let Half { shared, id, waiters } = &self.half;
        let mut lanes = shared.lock();
        loop {
            let had_output = lanes.has_output();
            let count = lanes.write(*id, data)?;
            if count > 0 {
                if !had_output {
                    shared.output.notify_one();
                }
                return Ok(count);
            }
            lanes = waiters.writable.wait(lanes).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Sends by the lane's further connection; returns `false` if it has none.
    fn write_beside(&mut self, head: &Bytes, body: &Bytes) -> Result<bool, LinkError> {
        let shared = Arc::clone(&self.half.shared);
        let Some(moved) = self.beside()? else { return Ok(false) };
        shared.lock().check()?;
        moved.write_both(head.clone(), body.clone()).map_err(|error| shared.explain(error))?;
        shared.count(head.len() + body.len(), 0);
        Ok(true)
    }
}

impl LaneWrite for Writer {
    fn write(&mut self, mut data: Bytes) -> Result<(), LinkError> {
        while !data.is_empty() {
            // It may have come while this waited for room.
            if self.write_beside(&Bytes::new(), &data)? {
                return Ok(());
            }
            let count = self.write_some(&mut data)?;
            self.sent_bytes += count as u64;
            self.half.shared.count(count, 0);
        }
        Ok(())
    }

    fn write_both(&mut self, head: Bytes, body: Bytes) -> Result<(), LinkError> {
        if self.write_beside(&head, &body)? {
            return Ok(());
        }
        self.write(head)?;
        self.write(body)
    }

    fn finish(&mut self) -> Result<(), LinkError> {
        let Half { shared, id, .. } = &self.half;
        if let Some((_, moved)) = &mut self.moved {
            shared.lock().check()?;
            moved.finish().map_err(|error| shared.explain(error))?;
            if !self.is_finished {
                shared.lock().finish_beside(*id)?;
            }
        } else {
            shared.lock().finish(*id)?;
        }
        self.is_finished = true;
        shared.output.notify_one();
        Ok(())
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.half.shared.lock().writer_dropped(self.half.id);
        self.half.shared.output.notify_one();
    }
}

struct Reader {
    half: Half,
    /// Data taken from the lane but not yet by the caller, so that it is copied outside the lock.
    current: BytesMut,
    /// The further connection on which the peer goes on.
    moved: Option<Box<dyn LaneRead>>,
}

impl Reader {
    /// Goes on by the next further connection, behind the end of the one where the lane was; returns `false`
    /// at the lane's own end. Waits for the word about it, which may be behind that end.
    fn goes_on(&mut self) -> Result<bool, LinkError> {
        let Half { shared, id, waiters } = &self.half;
        let mut lanes = shared.lock();
        loop {
            match lanes.read_on(*id)? {
                Received::Moved(connection) => {
                    drop(lanes);
                    self.moved = Some(shared.receive(connection)?);
                    return Ok(true);
                }
                Received::Wait => {
                    lanes = waiters.readable.wait(lanes).unwrap_or_else(PoisonError::into_inner);
                }
                Received::Data(_) | Received::End => return Ok(false),
            }
        }
    }

    /// Reads from the further connections of the lane until `buf` is full or the lane ends, or has some bytes
    /// if `is_some_enough`.
    fn read_beside(&mut self, buf: &mut [u8], is_some_enough: bool) -> Result<usize, LinkError> {
        let shared = Arc::clone(&self.half.shared);
        let mut filled = 0;
        while let Some(moved) = &mut self.moved {
            shared.lock().check()?;
            let rest = &mut buf[filled..];
            // It may know better than the caller how to wait for much.
            let read = if is_some_enough { moved.read(rest) } else { moved.fill(rest) };
            let count = read.map_err(|error| shared.explain(error))?;
            shared.count(0, count);
            filled += count;
            let is_enough = filled == buf.len() || is_some_enough && filled > 0;
            if is_enough || !self.goes_on()? {
                break;
            }
        }
        Ok(filled)
    }
}

impl LaneRead for Reader {
    fn read(&mut self, buf: &mut [u8]) -> Result<usize, LinkError> {
        if buf.is_empty() {
            return Ok(0);
        }
        let Half { shared, id, waiters } = &self.half;
        let mut lanes = shared.lock();
        lanes.check()?;
        while self.moved.is_none() && self.current.is_empty() {
            match lanes.read(*id)? {
                Received::Data(data) => self.current = data,
                Received::End => return Ok(0),
                Received::Moved(connection) => {
                    drop(lanes);
                    self.moved = Some(shared.receive(connection)?);
                    lanes = shared.lock();
                }
                Received::Wait => {
                    lanes = waiters.readable.wait(lanes).unwrap_or_else(PoisonError::into_inner);
                }
            }
        }

        let has_output = lanes.has_output();
        drop(lanes);
        if has_output {
            shared.output.notify_one();
        }

        if self.moved.is_some() {
            return self.read_beside(buf, true);
        }
        let count = self.current.len().min(buf.len());
        self.current.copy_to_slice(&mut buf[..count]);
        shared.count(0, count);
        Ok(count)
    }

    fn fill(&mut self, buf: &mut [u8]) -> Result<usize, LinkError> {
        let mut filled = 0;
        while filled < buf.len() {
            if self.moved.is_some() {
                return Ok(filled + self.read_beside(&mut buf[filled..], false)?);
            }
            match self.read(&mut buf[filled..])? {
                0 => break,
                count => filled += count,
            }
        }
        Ok(filled)
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.half.shared.lock().reader_dropped(self.half.id);
        self.half.shared.output.notify_one();
    }
}

/// Reads frames from the pipe until the link ends.
async fn read_frames(shared: Arc<Shared>, mut reader: PipeReader, idle_timeout: Duration) {
    let mut is_first = true;
    loop {
        if let Err(error) = take_frames(&shared, &mut reader, &mut is_first) {
            let lanes = shared.lock();
            let error = if is_first { lanes.stranger_error(error) } else { lanes.carrier_error(error) };
            drop(lanes);
            shared.end(error, Some(CloseReason::Protocol));
        }
        let (ended, has_output) = {
            let lanes = shared.lock();
            (lanes.check().is_err(), lanes.has_output())
        };
        if has_output {
            shared.output.notify_one();
        }
        if ended {
            // The peer's own reason does not pass `end`.
            if let Some(beside) = &shared.beside {
                beside.end();
            }
            return;
        }

        let filled = tokio::select! {
            filled = timeout(idle_timeout, reader.fill()) => filled,
            () = shared.ended.notified() => return,
        };

        match filled {
            Ok(Ok(0)) => shared.end(LinkError::Lost, None),
            Ok(Ok(_)) => {}
            Ok(Err(error)) => shared.end(pipe_error(error), None),
            Err(_) => shared.end(LinkError::TimedOut, None),
        }
    }
}

/// Ends the link once the path of a further connection is gone, until it has ended. The peer takes that for
/// a lost connection.
async fn watch(shared: Arc<Shared>, beside: Arc<dyn Beside>, interval: Duration) {
    while shared.lock().check().is_ok() {
        if beside.has_lost() {
            shared.end(LinkError::TimedOut, None);
        }
        sleep(interval).await;
    }
}

/// Passes every complete frame to the lanes. `is_first` is set until the header of one was right.
fn take_frames(shared: &Shared, reader: &mut PipeReader, is_first: &mut bool) -> Result<(), MuxError> {
    while let Some((lane, frame, used)) = parse(reader.unread())? {
        *is_first = false;
        shared.lock().on_frame(lane, frame)?;
        match (frame, &shared.beside) {
            (Frame::Invite(invitation), Some(beside)) => beside.invited(invitation),
            (Frame::TakesQuic, Some(beside)) => beside.told_of_quic(),
            (Frame::WantsQuic(per_million), Some(beside)) => beside.asked_for_quic(per_million),
            _ => {}
        }
        reader.consume(used);
    }
    Ok(())
}

/// Sends the lanes' data until the link has ended and the peer has been told.
async fn write_frames(shared: &Shared, mut writer: PipeWriter, alive_interval: Duration) {
    let mut parts = Vec::new();
    loop {
        parts.clear();
        let batch = shared.lock().next_batch(&mut parts);

        match batch {
            Batch::Data => {}
            Batch::Idle => {
                if timeout(alive_interval, shared.output.notified()).await.is_ok() {
                    continue;
                }
                let mut frame = Vec::new();
                encode(0, Frame::Alive, &mut frame);
                parts.push(Bytes::from(frame));
            }
            Batch::Close(reason) => {
                let mut frame = Vec::new();
                encode(0, Frame::Close(reason.code()), &mut frame);
                // A peer that does not read will find the pipe closed.
                let _ = timeout(FAREWELL_TIME, writer.write_all(&frame)).await;
                return;
            }
            Batch::Gone => return,
        }

        let written = tokio::select! {
            biased;
            written = writer.write_all_parts(&mut parts) => written,
            // A frame was cut off in the middle, so no farewell can follow it.
            () = farewell_over(shared) => return,
        };

        if let Err(error) = written {
            peer_heard_out(shared).await;
            shared.end(pipe_error(error), None);
        }
    }
}

/// Resolves when the reader has found the end of the link, at the latest after [`FAREWELL_TIME`]:
/// if a write fails, the peer's own reason may still lie unread in the other pipe.
async fn peer_heard_out(shared: &Shared) {
    let over = async {
        while shared.lock().check().is_ok() {
            sleep(FAREWELL_TIME / 50).await;
        }
    };
    let _ = timeout(FAREWELL_TIME, over).await;
}

/// Resolves when the link has been over for [`FAREWELL_TIME`].
async fn farewell_over(shared: &Shared) {
    while shared.lock().check().is_ok() {
        sleep(FAREWELL_TIME / 4).await;
    }
    sleep(FAREWELL_TIME).await;
}

/// Returns the link's error for a failed read or write of the pipe.
fn pipe_error(error: io::Error) -> LinkError {
    match error.kind() {
        io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => LinkError::Lost,
        _ => LinkError::io(error),
    }
}

/// Data lanes that fill an ssh connection. It is one TCP connection and one cipher thread, so more
/// than a few only help to overlap the two ends' disk work.
const DATA_LANES: usize = 4;
/// Longest silence of this end, so that the peer can tell a quiet link from a dead one.
const ALIVE_INTERVAL: Duration = Duration::from_secs(1);
/// Time that a closed link waits for the pipe to take the reason.
const FAREWELL_TIME: Duration = Duration::from_millis(500);

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
