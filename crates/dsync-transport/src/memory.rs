//! The carrier of a local run: queues of `Bytes` between two threads of one process.
//!
//! Passes [`Bytes`] on without copying them; the one copy is into the reader's buffer. It keeps the
//! law in [`dsync_wire::link`] to the letter, so that a session which finishes or closes wrongly
//! fails in a local test and not first on a network. A lane appears at the peer with its first
//! byte, a dropped unfinished writer is an error for the reader, and closing discards unread data.
//!
//! Memory: at most 4 MiB per lane and direction.

use std::{
    collections::VecDeque,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak},
    thread::available_parallelism,
};

use bytes::{Buf, Bytes};
use dsync_wire::link::{Carrier, CloseReason, Lane, LaneRead, LaneWrite, Link, LinkError, Traffic};

use crate::counters::Counters;

/// Makes two links that are peers of each other.
///
/// Cost: two small allocations; lanes allocate as they are opened.
pub fn pair() -> (MemoryLink, MemoryLink) {
    pair_with(available_parallelism().map_or(2, |cores| cores.get().clamp(2, 4)))
}

/// Makes two links as [`pair`] does, with this number of data lanes.
pub fn pair_with(data_lanes: usize) -> (MemoryLink, MemoryLink) {
    let hub = Arc::new(Hub::default());
    let end = |side| MemoryLink { hub: Arc::clone(&hub), side, data_lanes, traffic: Arc::default() };
    (end(Side::A), end(Side::B))
}

/// One end of a link inside the process. Dropping it closes the link as
/// [`Failed`](CloseReason::Failed) unless it was closed before.
pub struct MemoryLink {
    hub: Arc<Hub>,
    side: Side,
    data_lanes: usize,
    traffic: Arc<Counters>,
}

impl Link for MemoryLink {
    fn carrier(&self) -> Carrier {
        Carrier::Memory
    }

    fn data_lanes(&self) -> usize {
        self.data_lanes
    }

    fn is_near(&self) -> bool {
        true
    }

    fn open_lane(&self) -> Result<Lane, LinkError> {
        let mut state = self.hub.lock();
        state.check(self.side)?;
        let outward = Arc::new(Queue::default());
        let inward = Arc::new(Queue::default());
        state.queues.retain(|queue| queue.strong_count() > 0);
        state.queues.extend([Arc::downgrade(&outward), Arc::downgrade(&inward)]);
        drop(state);
        let arrival = Arrival { inward: Arc::clone(&outward), outward: Arc::clone(&inward) };
        Ok(self.lane(inward, outward, Some(arrival)))
    }

    fn accept_lane(&self) -> Result<Lane, LinkError> {
        let mut state = self.hub.lock();
        loop {
            state.check(self.side)?;
            if let Some(Arrival { inward, outward }) = state.arrivals[self.side.index()].pop_front() {
                return Ok(self.lane(inward, outward, None));
            }
            state = self.hub.arrived.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn traffic(&self) -> Traffic {
        self.traffic.traffic()
    }

    fn close(&self, reason: CloseReason) {
        let mut state = self.hub.lock();
        if state.closed.is_some() {
            return;
        }
        state.closed = Some((self.side, reason));
        state.arrivals = [VecDeque::new(), VecDeque::new()];
        let queues = std::mem::take(&mut state.queues);
        drop(state);
        self.hub.arrived.notify_all();
        for queue in queues.iter().filter_map(Weak::upgrade) {
            queue.close();
        }
    }
}

impl MemoryLink {
    fn lane(&self, inward: Arc<Queue>, outward: Arc<Queue>, arrival: Option<Arrival>) -> Lane {
        let end = |queue| Half {
            queue,
            hub: Arc::clone(&self.hub),
            side: self.side,
            traffic: Arc::clone(&self.traffic),
        };
        Lane {
            tx: Box::new(Writer { half: end(outward), arrival }),
            rx: Box::new(Reader { half: end(inward), current: Bytes::new() }),
        }
    }
}

impl Drop for MemoryLink {
    fn drop(&mut self) {
        self.close(CloseReason::Failed);
    }
}

/// State that both halves of a lane share.
struct Half {
    queue: Arc<Queue>,
    hub: Arc<Hub>,
    side: Side,
    traffic: Arc<Counters>,
}

impl Half {
    /// Returns the error for a lane whose queue is closed.
    fn gone(&self) -> LinkError {
        let abandoned = LinkError::PeerClosed { reason: CloseReason::Failed };
        self.hub.lock().check(self.side).err().unwrap_or(abandoned)
    }
}

struct Writer {
    half: Half,
    /// The lane for the peer to accept, until it has been announced.
    arrival: Option<Arrival>,
}

impl Writer {
    fn announce(&mut self) -> Result<(), LinkError> {
        if let Some(arrival) = self.arrival.take() {
            let mut state = self.half.hub.lock();
            state.check(self.half.side)?;
            state.arrivals[self.half.side.peer().index()].push_back(arrival);
            drop(state);
            self.half.hub.arrived.notify_all();
        }
        Ok(())
    }
}

impl LaneWrite for Writer {
    fn write(&mut self, mut data: Bytes) -> Result<(), LinkError> {
        if data.is_empty() {
            return Ok(());
        }
        self.announce()?;
        while data.has_remaining() {
            let sent = self.half.queue.push(&mut data).ok_or_else(|| self.half.gone())?;
            self.half.traffic.add_sent(sent);
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<(), LinkError> {
        self.announce()?;
        if self.half.queue.finish() { Ok(()) } else { Err(self.half.gone()) }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.half.queue.abandon_unfinished();
    }
}

struct Reader {
    half: Half,
    /// Data from the queue that the caller has not yet taken.
    current: Bytes,
}

impl LaneRead for Reader {
    fn read(&mut self, buf: &mut [u8]) -> Result<usize, LinkError> {
        if buf.is_empty() {
            return Ok(0);
        }
        if self.half.queue.is_closed() {
            return Err(self.half.gone());
        }
        if self.current.is_empty() {
            match self.half.queue.pop().ok_or_else(|| self.half.gone())? {
                Some(data) => self.current = data,
                None => return Ok(0),
            }
        }
        let count = self.current.len().min(buf.len());
        self.current.copy_to_slice(&mut buf[..count]);
        self.half.traffic.add_received(count);
        Ok(count)
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.half.queue.close();
    }
}

/// One direction of one lane.
#[derive(Default)]
struct Queue {
    state: Mutex<QueueState>,
    changed: Condvar,
}

#[derive(Default)]
struct QueueState {
    data: VecDeque<Bytes>,
    queued_bytes: usize,
    finished: bool,
    /// Whether the link was closed, the reader was dropped, or the writer was dropped unfinished.
    closed: bool,
    /// Number of waiting threads: waking nobody would cost a system call per frame.
    waiting: usize,
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a change.
    fn wait<'a>(&'a self, mut state: MutexGuard<'a, QueueState>) -> MutexGuard<'a, QueueState> {
        state.waiting += 1;
        let mut state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        state.waiting -= 1;
        state
    }

    /// Notifies waiting threads of a change.
    fn tell(&self, state: MutexGuard<'_, QueueState>) {
        let waiting = state.waiting > 0;
        drop(state);
        if waiting {
            self.changed.notify_all();
        }
    }

    /// Moves as much of `data` into the queue as fits, waiting for room. Returns the number of
    /// bytes, or `None` if nobody will read them.
    fn push(&self, data: &mut Bytes) -> Option<usize> {
        let mut state = self.lock();
        while !state.closed && !state.finished && state.queued_bytes >= QUEUE_BYTES {
            state = self.wait(state);
        }
        if state.closed || state.finished {
            return None;
        }
        let count = data.len().min(QUEUE_BYTES - state.queued_bytes);
        state.queued_bytes += count;
        state.data.push_back(data.split_to(count));
        self.tell(state);
        Some(count)
    }

    /// Returns the next data, `Some(None)` at the clean end, or `None` if the queue was closed.
    fn pop(&self) -> Option<Option<Bytes>> {
        let mut state = self.lock();
        loop {
            if state.closed {
                return None;
            }
            if let Some(data) = state.data.pop_front() {
                state.queued_bytes -= data.len();
                self.tell(state);
                return Some(Some(data));
            }
            if state.finished {
                return Some(None);
            }
            state = self.wait(state);
        }
    }

    fn is_closed(&self) -> bool {
        self.lock().closed
    }

    fn finish(&self) -> bool {
        let mut state = self.lock();
        if state.closed {
            return false;
        }
        state.finished = true;
        self.tell(state);
        true
    }

    fn abandon_unfinished(&self) {
        if !self.lock().finished {
            self.close();
        }
    }

    fn close(&self) {
        let mut state = self.lock();
        state.closed = true;
        state.data = VecDeque::new();
        state.queued_bytes = 0;
        self.tell(state);
    }
}

/// State that both ends share.
#[derive(Default)]
struct Hub {
    state: Mutex<HubState>,
    arrived: Condvar,
}

impl Hub {
    fn lock(&self) -> MutexGuard<'_, HubState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Default)]
struct HubState {
    /// Lanes that wait to be accepted, by the side that accepts them.
    arrivals: [VecDeque<Arrival>; 2],
    closed: Option<(Side, CloseReason)>,
    /// All queues whose lane is still in use, for close to wake.
    queues: Vec<Weak<Queue>>,
}

impl HubState {
    fn check(&self, side: Side) -> Result<(), LinkError> {
        match self.closed {
            None => Ok(()),
            Some((closer, _)) if closer == side => Err(LinkError::Closed),
            Some((_, reason)) => Err(LinkError::PeerClosed { reason }),
        }
    }
}

/// A lane as its accepting end will hold it.
struct Arrival {
    inward: Arc<Queue>,
    outward: Arc<Queue>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    A,
    B,
}

impl Side {
    fn peer(self) -> Self {
        match self {
            Self::A => Self::B,
            Self::B => Self::A,
        }
    }

    fn index(self) -> usize {
        match self {
            Self::A => 0,
            Self::B => 1,
        }
    }
}

/// Most bytes that wait in one direction of one lane: a few of the largest frames, so that neither
/// side waits for the other at every frame, and few enough to stay in the last level of cache.
const QUEUE_BYTES: usize = 4 << 20;

#[cfg(test)]
mod tests {
    use crate::suite::Pair;

    fn pair() -> Pair {
        let (a, b) = super::pair();
        (std::sync::Arc::new(a), std::sync::Arc::new(b))
    }

    crate::suite::suite!(super::pair);
}
