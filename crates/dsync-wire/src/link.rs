//! The contract between a session and its carrier.
//!
//! A [`Link`] is one authenticated connection to one peer. A [`Lane`] is one ordered, reliable,
//! bidirectional byte stream of it. Everything here blocks: the engine is threads, and only the
//! carriers know an async runtime. Carriers do not frame messages (see [`crate::frame`]).
//!
//! The law every carrier keeps, checked by one test suite in `dsync-transport`: bytes written to a
//! lane arrive in order, once, or the reader sees an error. A slow reader slows the writer (bounded
//! memory). `finish` shows the reader a clean end. After [`Link::close`] every blocked or later
//! call on either side soon returns an error.

use std::{fmt, io, sync::Arc};

use bytes::Bytes;

use crate::error::EncodeError;

/// The kind of connection that carries a session; named in the summary of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "snake_case"))]
pub enum Carrier {
    /// QUIC over UDP, TLS 1.3 with keys pinned both ways.
    Quic,
    /// TLS 1.3 over TCP, one connection per lane, with keys pinned both ways.
    Tls,
    /// Lanes multiplexed over the standard streams of the ssh process.
    Ssh,
    /// Queues inside this process: a local run.
    Memory,
    /// Lanes multiplexed over a byte stream of the program's own.
    Stream,
}

impl fmt::Display for Carrier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Quic => "quic",
            Self::Tls => "tls",
            Self::Ssh => "ssh",
            Self::Memory => "memory",
            Self::Stream => "stream",
        })
    }
}

/// A move of the data that one end sends to another carrier of the same link.
///
/// ```
/// use dsync_wire::link::{Carrier, Move, MoveCause};
///
/// // As `Connection::moves` has it when QUIC took over from a TLS that lost packets.
/// let step = Move::new(Carrier::Quic, MoveCause::Loss { per_million: 1200 });
/// assert_eq!(step.to, Carrier::Quic);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct Move {
    /// The carrier of what is sent from then on.
    pub to: Carrier,
    /// The reason.
    #[cfg_attr(feature = "serde", serde(flatten))]
    pub cause: MoveCause,
}

impl Move {
    /// Makes a move to a carrier, for this reason.
    pub const fn new(to: Carrier, cause: MoveCause) -> Self {
        Self { to, cause }
    }
}

/// The reason for a [`Move`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(tag = "why", rename_all = "snake_case")
)]
#[non_exhaustive]
pub enum MoveCause {
    /// The path lost packets though it was not full, and the carrier slowed down for that.
    Loss {
        /// Packets lost of a million that were sent.
        per_million: u32,
    },
    /// The carrier was slower than the one before it.
    Slower,
    /// The path lost nothing for a while, and the other carrier costs less processor time.
    Clean,
    /// The other carrier had not been tried for a while.
    Review,
    /// The path is so long that each loss would hold the other carrier back.
    Far,
    /// Whoever started the run asked for it.
    Asked,
}

impl fmt::Display for Move {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "then {}: ", self.to)?;
        match self.cause {
            MoveCause::Loss { per_million } => {
                write!(f, "the path lost {:.2} % of the packets", f64::from(per_million) / 10_000.0)
            }
            MoveCause::Slower => f.write_str("the other carrier was slower"),
            MoveCause::Clean => f.write_str("the path loses nothing any more"),
            MoveCause::Review => f.write_str("to see whether it is faster by now"),
            MoveCause::Far => f.write_str("the path is long"),
            MoveCause::Asked => f.write_str("asked for"),
        }
    }
}

/// One authenticated connection to one peer.
pub trait Link: Send + Sync {
    /// Returns the kind of connection.
    fn carrier(&self) -> Carrier;

    /// Returns the number of data lanes that fill this carrier, 1 to
    /// [`crate::limits::MAX_DATA_LANES`].
    fn data_lanes(&self) -> usize;

    /// Returns the number of data lanes that are to send now, 1 or more: fewer than there are where the path
    /// is full and each lane takes a share of its own from others. All by default.
    fn sending_lanes(&self) -> usize {
        usize::MAX
    }

    /// Returns whether the path is known to be short: a round trip below 2 ms, or none. Such a path
    /// is probably faster than anything that compression could add to.
    fn is_near(&self) -> bool;

    /// Returns the feature bits on which both ends agreed before the link was made; none where nothing
    /// was agreed. An end may use a feature from its first message on if the bit is here.
    fn features(&self) -> u64 {
        0
    }

    /// Returns the moves of data between carriers so far, of both ends, oldest first; none where a
    /// link has one carrier.
    fn moves(&self) -> Vec<Move> {
        Vec::new()
    }

    /// Opens a lane. The peer sees it once the first byte is written.
    ///
    /// # Errors
    /// [`LinkError`] if the link is closed or broken.
    fn open_lane(&self) -> Result<Lane, LinkError>;

    /// Waits for the next lane that the peer opened. Some carriers keep the order of opening, but
    /// callers must not rely on it: a lane's first frame identifies it.
    ///
    /// # Errors
    /// [`LinkError`] if the link is closed or broken.
    fn accept_lane(&self) -> Result<Lane, LinkError>;

    /// Returns the bytes that this end has sent to and received from the carrier, over all lanes.
    fn traffic(&self) -> Traffic;

    /// Closes the link: all lanes of both ends fail from now on. A second call does nothing.
    ///
    /// Data of lanes that were not yet [finished](LaneWrite::finish) *and* acknowledged by the
    /// peer's own protocol may be lost: close only after the session's last message arrived.
    fn close(&self, reason: CloseReason);
}

/// One ordered byte stream in each direction.
pub struct Lane {
    /// The sending half.
    pub tx: Box<dyn LaneWrite>,
    /// The receiving half.
    pub rx: Box<dyn LaneRead>,
}

impl fmt::Debug for Lane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lane").finish_non_exhaustive()
    }
}

/// The sending half of a lane.
pub trait LaneWrite: Send {
    /// Sends all of `data`; waits while the peer's window is full. Needs no flush.
    ///
    /// # Errors
    /// [`LinkError`] if the lane or the link is gone.
    fn write(&mut self, data: Bytes) -> Result<(), LinkError>;

    /// Sends all of `head`, then all of `body`: a message whose content lies apart from its header.
    /// Override this if two writes cost more than one.
    ///
    /// # Errors
    /// As for [`write`](Self::write).
    fn write_both(&mut self, head: Bytes, body: Bytes) -> Result<(), LinkError> {
        self.write(head)?;
        self.write(body)
    }

    /// Ends this direction; the peer reads everything written, then a clean end.
    ///
    /// # Errors
    /// [`LinkError`] if the lane or the link is gone.
    fn finish(&mut self) -> Result<(), LinkError>;
}

/// The receiving half of a lane.
pub trait LaneRead: Send {
    /// Waits for at least one byte and reads into `buf`; `Ok(0)` is the clean end.
    ///
    /// # Errors
    /// [`LinkError`] if the lane or the link is gone.
    fn read(&mut self, buf: &mut [u8]) -> Result<usize, LinkError>;

    /// Reads until `buf` is full or the clean end is reached. Returns the number of bytes, less
    /// than requested only at the end. Override this if waking up for every piece is costly.
    ///
    /// # Errors
    /// As for [`read`](Self::read); the bytes read before are lost.
    fn fill(&mut self, buf: &mut [u8]) -> Result<usize, LinkError> {
        let mut filled = 0;
        while filled < buf.len() {
            match self.read(&mut buf[filled..])? {
                0 => break,
                // A lane that claims more than it had room for breaks its law, not our memory.
                count => filled += count.min(buf.len() - filled),
            }
        }
        Ok(filled)
    }
}

/// Byte counts of one end of a link: payload passed to the carrier, before encryption.
///
/// ```
/// use dsync_wire::link::Traffic;
///
/// // The bill of a month, of the `Summary` of each run.
/// let runs = [Traffic::new(100, 2000), Traffic::new(100, 300)];
/// assert_eq!(runs.iter().map(|run| run.sent_bytes + run.received_bytes).sum::<u64>(), 2500);
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct Traffic {
    /// Bytes sent.
    pub sent_bytes: u64,
    /// Bytes received.
    pub received_bytes: u64,
}

impl Traffic {
    /// Counts the bytes sent and received so far.
    pub fn new(sent_bytes: u64, received_bytes: u64) -> Self {
        Self { sent_bytes, received_bytes }
    }
}

/// The reason why a link was closed; sent to the peer if the carrier can.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CloseReason {
    /// The session ended as agreed.
    Done,
    /// The user or the embedding program cancelled.
    Cancelled,
    /// The peer broke the protocol.
    Protocol,
    /// This end failed (its error message went over the control lane, if that still worked).
    Failed,
}

impl fmt::Display for CloseReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Done => "it was done",
            Self::Cancelled => "it was stopped",
            Self::Protocol => "it refused what was sent",
            Self::Failed => "it failed",
        })
    }
}

impl CloseReason {
    /// Returns the code on the wire (QUIC application error code).
    pub fn code(self) -> u32 {
        match self {
            Self::Done => 0,
            Self::Cancelled => 1,
            Self::Protocol => 2,
            Self::Failed => 3,
        }
    }

    /// Returns the reason for a code; unknown codes read as [`CloseReason::Failed`].
    pub fn from_code(code: u64) -> Self {
        match code {
            0 => Self::Done,
            1 => Self::Cancelled,
            2 => Self::Protocol,
            _ => Self::Failed,
        }
    }
}

/// The reason why an operation on a link or lane failed.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum LinkError {
    /// This end closed the link earlier.
    #[error("the link is closed")]
    Closed,
    /// The peer closed the link.
    #[error("the peer closed the connection: {reason}")]
    PeerClosed {
        /// Reason that the peer sent.
        reason: CloseReason,
    },
    /// The connection ended without notice: the process or the machine behind it is gone.
    #[error("the connection to the peer was lost")]
    Lost,
    /// The peer was silent for the carrier's idle time.
    #[error("the peer did not answer in time")]
    TimedOut,
    /// The operating system refused an operation.
    #[error("network input or output failed")]
    Io {
        /// The system's error.
        #[source]
        source: Arc<io::Error>,
    },
    /// The carrier itself failed (a QUIC or multiplexer protocol error).
    #[error("the {carrier} carrier failed")]
    Carrier {
        /// The carrier.
        carrier: Carrier,
        /// Error of the carrier's library.
        #[source]
        source: Arc<dyn std::error::Error + Send + Sync>,
    },
    /// The first bytes of the peer are none of this protocol: another program answers there.
    #[error("the other end speaks another protocol")]
    OtherProtocol {
        /// The carrier.
        carrier: Carrier,
        /// The fault in the bytes.
        #[source]
        source: Arc<dyn std::error::Error + Send + Sync>,
    },
    /// This end was asked to send something that the protocol does not allow; nothing was sent.
    #[error("a message cannot be sent")]
    Message {
        /// The reason.
        #[from]
        source: EncodeError,
    },
}

impl LinkError {
    /// Wraps an I/O error.
    pub fn io(source: io::Error) -> Self {
        Self::Io { source: Arc::new(source) }
    }

    /// Returns whether a new connection may succeed where this one failed.
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::Lost | Self::TimedOut | Self::Io { .. } | Self::Carrier { .. })
    }
}
