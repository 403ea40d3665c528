//! The receiving half of a lane.
//!
//! On a path whose packets come one by one, a thread that waits for a frame would be woken for each of them: 180 times
//! for a frame of 256 KiB, each time through the kernel. So a thread that wants much ([`LaneRead::fill`])
//! has it gathered where the packets are taken anyway, on the runtime's thread, and is woken once. Nothing is gathered but
//! what a thread waits for, and flow control sees no difference.

use std::{
    sync::Arc,
    task::{Context, Poll, Waker},
};

use bytes::Bytes;
use dsync_wire::link::{LaneRead, LinkError};
use quinn::{ReadError, RecvStream};
use tokio::runtime::Handle;

use super::{ABANDONED, Shared};
use crate::reactor::block_on;

pub(super) struct Reader {
    /// Lent to the runtime's thread while it gathers; gone when that has ended.
    stream: Option<RecvStream>,
    runtime: Handle,
    shared: Arc<Shared>,
}

/// What came until enough had come, or the end.
type Gathered = (RecvStream, Vec<Bytes>, Result<(), ReadError>);

impl Reader {
    pub(super) fn new(stream: RecvStream, runtime: Handle, shared: Arc<Shared>) -> Self {
        Self { stream: Some(stream), runtime, shared }
    }

    /// Reads without waiting; pending when nothing is there.
    fn read_ready(&mut self, buf: &mut [u8]) -> Poll<Result<usize, LinkError>> {
        let Some(stream) = &mut self.stream else { return Poll::Ready(Err(LinkError::Closed)) };
        // Whoever waits next sets a waker of its own.
        let polled = stream.poll_read(&mut Context::from_waker(Waker::noop()), buf);
        polled.map(|read| read.map_err(|error| self.shared.unread(error)))
    }

    /// Waits for `wanted` bytes, or the end; what came, in pieces.
    fn gather(&mut self, wanted: usize) -> Result<Vec<Bytes>, LinkError> {
        let stream = self.stream.take().ok_or(LinkError::Closed)?;
        // Fails only when the runtime has ended, and the link with it.
        let gathered = block_on(self.runtime.spawn(gather(stream, wanted)));
        let (stream, pieces, outcome) = gathered.map_err(|_| self.shared.gone())?;
        self.stream = Some(stream);
        outcome.map_err(|error| self.shared.unread(error))?;
        Ok(pieces)
    }
}

async fn gather(mut stream: RecvStream, wanted: usize) -> Gathered {
    let (mut pieces, mut count) = (Vec::new(), 0);
    while count < wanted {
        match stream.read_chunk(wanted - count, true).await {
            Ok(Some(chunk)) => {
                count += chunk.bytes.len();
                pieces.push(chunk.bytes);
            }
            Ok(None) => break,
            Err(error) => return (stream, pieces, Err(error)),
        }
    }
    (stream, pieces, Ok(()))
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
                Poll::Pending => {
                    let mut count = 0;
                    for piece in self.gather(rest.len())? {
                        rest[count..count + piece.len()].copy_from_slice(&piece);
                        count += piece.len();
                    }
                    self.shared.counters.add_received(count);
                    count
                }
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
    /// What a failed read means to the caller.
    fn unread(&self, error: ReadError) -> LinkError {
        match error {
            ReadError::Reset(_) => ABANDONED,
            ReadError::ConnectionLost(error) => self.lost(error),
            ReadError::ClosedStream | ReadError::IllegalOrderedRead | ReadError::ZeroRttRejected => {
                LinkError::Closed
            }
        }
    }

    /// What the end of the runtime means to the caller.
    fn gone(&self) -> LinkError {
        self.connection.close_reason().map_or(LinkError::Closed, |error| self.lost(error))
    }
}

/// From here on handing a read to the runtime's thread costs less than to be woken for the packets, in bytes.
const GATHERED: usize = 16 << 10;
