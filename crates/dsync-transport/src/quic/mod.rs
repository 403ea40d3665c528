//! The QUIC carrier: one connection between two processes that learned each other's one-time key
//! over ssh. Each lane is one bidirectional stream of it (RFC 9000).
//!
//! [`crate::identity`] authenticates, [`settings`] configures quinn with reasons, [`handshake`]
//! connects the two ends, [`congestion`] limits the bytes in flight, and [`reader`] passes received
//! data to the thread that waits for it. This module has the link.

mod batch;
mod congestion;
mod ending;
pub(crate) mod handshake;
mod meter;
mod reader;
mod settings;
mod steady;
mod turns;

use std::{num::NonZero, sync::Arc, thread::available_parallelism, time::Duration};

use bytes::Bytes;
use dsync_wire::link::{Carrier, CloseReason, Lane, LaneWrite, Link, LinkError, Traffic};
use quinn::{Connection, ConnectionError, Endpoint, RecvStream, SendStream, VarInt, WriteError};
use tokio::time::timeout;

use crate::{
    counters::Counters,
    ending::end_of_ssh,
    pipe::PipeReader,
    reactor::{Reactor, block_on},
    waits::NEAR,
};
use ending::Ending;
pub(crate) use meter::Meter;
use reader::Reader;

/// A link over one QUIC connection. Dropping it closes it as [`Failed`](CloseReason::Failed) unless
/// it was closed before, and allows the last packet a moment to leave.
pub(crate) struct QuicLink {
    endpoint: Endpoint,
    shared: Arc<Shared>,
    reactor: Arc<Reactor>,
}

/// State that the link and its lanes share.
struct Shared {
    connection: Connection,
    ending: Ending,
    counters: Counters,
}

impl QuicLink {
    /// Wraps a connection whose peer has proved its identity. `bootstrap` is the stream from the
    /// ssh process: its end means that the peer is gone, whatever UDP may still say.
    pub(crate) fn start<K: Send + 'static>(
        reactor: Reactor,
        connection: Connection,
        endpoint: Endpoint,
        bootstrap: PipeReader,
        keep_open: K,
    ) -> Self {
        let reactor = Arc::new(reactor);
        let link = Self::new(Arc::clone(&reactor), connection, endpoint);
        let lose = link.loser();
        reactor.spawn(async move {
            end_of_ssh(bootstrap).await;
            lose();
            drop(keep_open);
        });
        link
    }

    /// Makes a link that shares its runtime, and the watch over ssh, with another one.
    pub(crate) fn new(reactor: Arc<Reactor>, connection: Connection, endpoint: Endpoint) -> Self {
        let ending = Ending::default();
        let shared = Arc::new(Shared { connection, ending, counters: Counters::default() });
        Self { endpoint, shared, reactor }
    }

    /// Returns the act that ends the link when the peer is known to be gone.
    pub(crate) fn loser(&self) -> impl FnOnce() + Send + 'static {
        let shared = Arc::clone(&self.shared);
        move || shared.end(LinkError::Lost, CloseReason::Failed)
    }

    /// Returns the meter of what the path shows to the connection.
    pub(crate) fn meter(&self) -> Meter {
        Meter::new(self.shared.connection.clone())
    }

    fn lane(&self, (send, receive): (SendStream, RecvStream)) -> Lane {
        Lane {
            tx: Box::new(Writer { stream: send, finished: false, shared: Arc::clone(&self.shared) }),
            rx: Box::new(Reader::new(receive, self.reactor.tasks(), Arc::clone(&self.shared))),
        }
    }
}

impl Link for QuicLink {
    fn carrier(&self) -> Carrier {
        Carrier::Quic
    }

    fn data_lanes(&self) -> usize {
        let cores = available_parallelism().map_or(1, NonZero::get);
        data_lanes(self.shared.connection.rtt(), cores)
    }

    fn is_near(&self) -> bool {
        self.shared.connection.rtt() < NEAR
    }

    fn open_lane(&self) -> Result<Lane, LinkError> {
        let streams = block_on(self.shared.connection.open_bi()).map_err(|error| self.shared.lost(error))?;
        Ok(self.lane(streams))
    }

    fn accept_lane(&self) -> Result<Lane, LinkError> {
        let streams =
            block_on(self.shared.connection.accept_bi()).map_err(|error| self.shared.lost(error))?;
        Ok(self.lane(streams))
    }

    fn traffic(&self) -> Traffic {
        self.shared.counters.traffic()
    }

    fn close(&self, reason: CloseReason) {
        self.shared.end(LinkError::Closed, reason);
    }
}

impl Drop for QuicLink {
    fn drop(&mut self) {
        self.close(CloseReason::Failed);
        let endpoint = self.endpoint.clone();
        // Idle would mean waiting out the closing period of three probe timeouts. The one packet
        // with the reason leaves within a moment of its start. Losing it costs the peer little,
        // because it sees the end of the ssh stream too.
        self.reactor.run(async move { timeout(CLOSING_TIME, endpoint.wait_idle()).await.is_ok() });
    }
}

impl Shared {
    /// Fails once the link has ended.
    fn check(&self) -> Result<(), LinkError> {
        self.connection.close_reason().map_or(Ok(()), |error| Err(self.lost(error)))
    }

    /// Ends the link from this side, unless it has ended.
    fn end(&self, cause: LinkError, reason: CloseReason) {
        // If the peer closed first, later calls keep reporting its reason.
        if self.connection.close_reason().is_none() && self.ending.set(cause) {
            self.connection.close(VarInt::from_u32(reason.code()), &[]);
        }
    }

    /// Returns the link's error for a failed connection.
    fn lost(&self, error: ConnectionError) -> LinkError {
        self.ending.get().unwrap_or_else(|| link_error(error))
    }
}

struct Writer {
    stream: SendStream,
    finished: bool,
    shared: Arc<Shared>,
}

impl Writer {
    fn send(&mut self, chunks: &mut [Bytes]) -> Result<(), LinkError> {
        let length = chunks.iter().map(Bytes::len).sum();
        block_on(self.stream.write_all_chunks(chunks)).map_err(|error| match error {
            WriteError::Stopped(_) => ABANDONED,
            WriteError::ConnectionLost(error) => self.shared.lost(error),
            WriteError::ClosedStream | WriteError::ZeroRttRejected => LinkError::Closed,
        })?;
        self.shared.counters.add_sent(length);
        Ok(())
    }
}

impl LaneWrite for Writer {
    fn write(&mut self, mut data: Bytes) -> Result<(), LinkError> {
        while !data.is_empty() {
            let chunk = data.split_to(data.len().min(CHUNK));
            self.send(&mut [chunk])?;
        }
        Ok(())
    }

    fn write_both(&mut self, head: Bytes, mut body: Bytes) -> Result<(), LinkError> {
        let chunk = body.split_to(body.len().min(CHUNK));
        self.send(&mut [head, chunk])?;
        self.write(body)
    }

    fn finish(&mut self) -> Result<(), LinkError> {
        // quinn permits finishing a stream of a closed connection.
        self.shared.check()?;
        if !self.finished {
            self.finished = true;
            self.stream.finish().map_err(|_| LinkError::Closed)?;
        }
        Ok(())
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        // quinn would finish the stream, and the peer would mistake the data for the whole.
        if !self.finished {
            // Fails if it is already closed.
            let _ = self.stream.reset(VarInt::from_u32(CloseReason::Failed.code()));
        }
    }
}

/// Translates quinn's reasons into the link's.
pub(crate) fn link_error(error: ConnectionError) -> LinkError {
    match error {
        ConnectionError::ApplicationClosed(close) => {
            LinkError::PeerClosed { reason: CloseReason::from_code(close.error_code.into_inner()) }
        }
        ConnectionError::TimedOut => LinkError::TimedOut,
        ConnectionError::LocallyClosed => LinkError::Closed,
        ConnectionError::Reset => LinkError::Lost,
        error => LinkError::Carrier { carrier: Carrier::Quic, source: Arc::new(error) },
    }
}

/// The error after the peer dropped its half of a lane.
const ABANDONED: LinkError = LinkError::PeerClosed { reason: CloseReason::Failed };

/// Returns the number of lanes for a path of this round trip: enough for their windows to hold 10
/// Gbit/s of it, and one for each core.
///
/// More lanes would be no faster and cost both ends processor time. quinn gives streams turns
/// packet by packet, so each reader would be woken for less at a time.
pub(crate) fn data_lanes(round_trip: Duration, cores: usize) -> usize {
    let in_flight = round_trip.as_micros().saturating_mul(FULL_RATE);
    let windows = usize::try_from(in_flight.div_ceil(settings::STREAM_WINDOW.into())).unwrap_or(usize::MAX);
    windows.max(cores.min(CORE_LANES)).clamp(MIN_LANES, MAX_LANES)
}

/// Rate that lanes are opened for, in bytes per microsecond: 10 Gbit/s.
const FULL_RATE: u128 = 1250;
/// Fewest data lanes: while one waits for its disk, another continues.
const MIN_LANES: usize = 4;
/// Most data lanes on account of the cores.
const CORE_LANES: usize = 8;
/// Most data lanes, from a round trip of 23 ms on: 16 windows hold 2.3 times the content of 1
/// Gbit/s at 100 ms.
const MAX_LANES: usize = 16;
/// Bytes per write. quinn keeps a piece in memory, and in its send window, until all of it is
/// acknowledged.
const CHUNK: usize = 256 << 10;
/// Time that a dropped link keeps its socket so that its last packet leaves.
const CLOSING_TIME: Duration = Duration::from_millis(10);

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
