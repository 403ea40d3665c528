//! The receiving half of a lane.
//!
//! On a path whose packets arrive one by one, a thread that waits for a frame would be woken for
//! each of them: 180 times for a frame of 256 KiB, each time through the kernel. So if a thread
//! wants much ([`LaneRead::fill`]), the runtime's thread, which receives the packets anyway,
//! gathers the data and wakes it once. It gathers only data that a thread waits for, so flow
//! control sees no difference. On fast paths one wake-up brings many packets. There the thread is
//! woken directly, because the runtime's thread has enough to do.

use std::{
    future::{Future, poll_fn},
    pin::pin,
    sync::Arc,
    task::{Context, Poll, Waker},
};

use bytes::Bytes;
use dsync_wire::link::{LaneRead, LinkError};
use quinn::{ReadError, RecvStream};

use super::{ABANDONED, Shared};
use crate::reactor::{Tasks, block_on};

pub(super) struct Reader {
    /// Lent to the runtime's thread while it gathers; gone after that thread has ended.
    stream: Option<RecvStream>,
    /// Whether a wake-up brings less than [`MUCH`].
    sparse: bool,
    tasks: Arc<Tasks>,
    shared: Arc<Shared>,
}

/// Data gathered until there was enough, or the end.
struct Gathered {
    stream: RecvStream,
    pieces: Vec<Bytes>,
    /// Number of wake-ups for them.
    wakes: usize,
    outcome: Result<(), ReadError>,
}

impl Reader {
    pub(super) fn new(stream: RecvStream, tasks: Arc<Tasks>, shared: Arc<Shared>) -> Self {
        Self { stream: Some(stream), sparse: false, tasks, shared }
    }

    /// Reads without waiting; returns pending if there is nothing.
    fn read_ready(&mut self, buf: &mut [u8]) -> Poll<Result<usize, LinkError>> {
        let Some(stream) = &mut self.stream else { return Poll::Ready(Err(LinkError::Closed)) };
        // Whoever waits next sets a waker of its own.
        let polled = stream.poll_read(&mut Context::from_waker(Waker::noop()), buf);
        polled.map(|read| read.map_err(|error| self.shared.unread(error)))
    }

    /// Waits for more of `buf`: all of it if packets arrive one by one, else the first data.
    fn read_much(&mut self, buf: &mut [u8]) -> Result<usize, LinkError> {
        if !self.sparse {
            let count = self.read(buf)?;
            self.sparse = count < MUCH;
            return Ok(count);
        }
        let (pieces, wakes) = self.gather(buf.len())?;
        let mut count = 0;
        for piece in pieces {
            buf[count..count + piece.len()].copy_from_slice(&piece);
            count += piece.len();
        }
        self.sparse = count / wakes.max(1) < MUCH;
        self.shared.counters.add_received(count);
        Ok(count)
    }

    /// Waits for `wanted` bytes or the end; returns the data and the number of wake-ups.
    fn gather(&mut self, wanted: usize) -> Result<(Vec<Bytes>, usize), LinkError> {
        let stream = self.stream.take().ok_or(LinkError::Closed)?;
        // Fails only if the runtime has ended, and the link with it.
        let gathered = self.tasks.run(gather(stream, wanted));
        let Gathered { stream, pieces, wakes, outcome } = gathered.ok_or_else(|| self.shared.gone())?;
        self.stream = Some(stream);
        outcome.map_err(|error| self.shared.unread(error))?;
        Ok((pieces, wakes))
    }
}

async fn gather(mut stream: RecvStream, wanted: usize) -> Gathered {
    let (mut pieces, mut count, mut wakes) = (Vec::new(), 0, 0);
    let outcome = loop {
        if count >= wanted {
            break Ok(());
        }
        let mut chunk = pin!(stream.read_chunk(wanted - count, true));
        let chunk = poll_fn(|context| {
            let polled = chunk.as_mut().poll(context);
            wakes += usize::from(polled.is_pending());
            polled
        });
        match chunk.await {
            Ok(Some(chunk)) => {
                count += chunk.bytes.len();
                pieces.push(chunk.bytes);
            }
            Ok(None) => break Ok(()),
            Err(error) => break Err(error),
        }
    };
    Gathered { stream, pieces, wakes, outcome }
}

impl LaneRead for Reader {
    fn read(&mut self, buf: &mut [u8]) -> Result<usize, LinkError> {
        let stream = self.stream.as_mut().ok_or(LinkError::Closed)?;
        let read = block_on(stream.read(buf)).map_err(|error| self.shared.unread(error))?;
        let count = read.unwrap_or(0);
        self.shared.counters.add_received(count);
        Ok(count)
    }

    fn fill(&mut self, buf: &mut [u8]) -> Result<usize, LinkError> {
        let mut filled = 0;
        while filled < buf.len() {
            let rest = &mut buf[filled..];
            let count = match self.read_ready(rest) {
                Poll::Ready(count) => {
                    let count = count?;
                    self.shared.counters.add_received(count);
                    count
                }
                Poll::Pending if rest.len() < GATHERED => self.read(rest)?,
                Poll::Pending => self.read_much(rest)?,
            };
            if count == 0 {
                break;
            }
            filled += count;
        }
        Ok(filled)
    }
}

impl Shared {
    /// Returns the link's error for a failed read.
    fn unread(&self, error: ReadError) -> LinkError {
        match error {
            ReadError::Reset(_) => ABANDONED,
            ReadError::ConnectionLost(error) => self.lost(error),
            ReadError::ClosedStream | ReadError::IllegalOrderedRead | ReadError::ZeroRttRejected => {
                LinkError::Closed
            }
        }
    }

    /// Returns the link's error for the end of the runtime.
    fn gone(&self) -> LinkError {
        self.connection.close_reason().map_or(LinkError::Closed, |error| self.lost(error))
    }
}

/// Length in bytes from which passing a read to the runtime's thread costs less than being woken
/// for the packets.
const GATHERED: usize = 16 << 10;
/// Bytes that make a wake-up worthwhile: some packets of an Ethernet.
const MUCH: usize = 6 << 10;
