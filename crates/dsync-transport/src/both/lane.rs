//! The two halves of a lane. Each piece that is written goes behind its length, so that a reader
//! knows a stretch that goes on elsewhere from a lane that ends.
//!
//! ```text
//! stretch: header, then pieces
//! piece:   length: u32 LE, not 0 | that many bytes
//! moved:   0: u32 LE, then the clean end: the next stretch follows
//! ```

use std::sync::{Arc, atomic::Ordering};

use bytes::{BufMut, Bytes, BytesMut};
use dsync_wire::link::{CloseReason, LaneRead, LaneWrite, LinkError};

use super::{
    SIDES, Shared,
    arrivals::Row,
    header::{self, Header, Why},
};

pub(super) struct Writer {
    shared: Arc<Shared>,
    tx: Box<dyn LaneWrite>,
    /// The receiving half of a stretch that was begun in the middle of the lane: nothing comes
    /// there.
    spare: Option<Box<dyn LaneRead>>,
    header: Header,
    /// Whether the header has to be sent.
    begins: bool,
    side: usize,
    /// The number of decisions when this lane last looked.
    seen: usize,
    finished: bool,
}

impl Writer {
    /// Makes the writer of a row that begins on this side. If this end opened the lane, the header
    /// goes first.
    pub(super) fn new(shared: &Arc<Shared>, tx: Box<dyn LaneWrite>, (own, id): Row, side: usize) -> Self {
        let header = Header { id, stretch: 0, own, why: Why::Began, decision: 0 };
        let shared = Arc::clone(shared);
        Self { shared, tx, spare: None, header, begins: own, side, seen: 0, finished: false }
    }

    /// Goes on over the other carrier if that has been decided. Stays if that cannot be opened.
    fn follow_the_route(&mut self) -> Result<(), LinkError> {
        let decisions = self.shared.decisions.load(Ordering::Acquire);
        // A stretch that has not begun has told nobody its number: its lane moves with the next piece.
        if decisions == self.seen || self.begins {
            return Ok(());
        }
        self.seen = decisions;
        let side = decisions % SIDES;
        let (Some(stretch), Ok(decision)) = (self.header.stretch.checked_add(1), u16::try_from(decisions))
        else {
            return Ok(());
        };
        if side == self.side {
            return Ok(());
        }
        let lane = match self.shared.open(side) {
            Ok(lane) => lane,
            Err(error) => {
                self.shared.arrivals.check()?;
                tracing::debug!(%error, "a lane stays with its carrier");
                return Ok(());
            }
        };

        self.tx.write(Bytes::from_static(&MOVED)).map_err(|error| self.shared.explain(error))?;
        self.tx.finish().map_err(|error| self.shared.explain(error))?;
        self.tx = lane.tx;
        self.spare = Some(lane.rx);
        self.header = Header { stretch, why: self.shared.route().why, decision, ..self.header };
        self.begins = true;
        self.side = side;
        Ok(())
    }

    /// Sends one piece.
    fn piece(&mut self, head: &[u8], body: Bytes) -> Result<(), LinkError> {
        let length = head.len() + body.len();
        let mut lead = BytesMut::with_capacity(header::LENGTH + LENGTH + head.len());
        if self.begins {
            lead.put_slice(&self.header.encode());
        }
        // At most MAX_PIECE.
        lead.put_u32_le(u32::try_from(length).unwrap_or(u32::MAX));
        lead.put_slice(head);
        self.tx.write_both(lead.freeze(), body).map_err(|error| self.shared.explain(error))?;
        self.begins = false;
        self.shared.counters.add_sent(length);
        Ok(())
    }
}

impl LaneWrite for Writer {
    fn write(&mut self, data: Bytes) -> Result<(), LinkError> {
        self.write_both(Bytes::new(), data)
    }

    fn write_both(&mut self, head: Bytes, mut body: Bytes) -> Result<(), LinkError> {
        self.shared.arrivals.check()?;
        if self.finished {
            return Err(LinkError::Closed);
        }
        if head.is_empty() && body.is_empty() {
            return Ok(());
        }
        self.follow_the_route()?;
        if head.len() > MAX_PIECE {
            self.write_both(Bytes::new(), head)?;
            return self.write_both(Bytes::new(), body);
        }

        let first = body.split_to(body.len().min(MAX_PIECE - head.len()));
        self.piece(&head, first)?;
        while !body.is_empty() {
            let next = body.split_to(body.len().min(MAX_PIECE));
            self.piece(&[], next)?;
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<(), LinkError> {
        self.shared.arrivals.check()?;
        if self.finished {
            return Ok(());
        }
        self.finished = true;
        if self.begins {
            let header = Bytes::copy_from_slice(&self.header.encode());
            self.tx.write(header).map_err(|error| self.shared.explain(error))?;
        }
        self.tx.finish().map_err(|error| self.shared.explain(error))
    }
}

pub(super) struct Reader {
    shared: Arc<Shared>,
    rx: Box<dyn LaneRead>,
    /// The sending half of a stretch that the peer began in the middle of the lane.
    spare: Option<Box<dyn LaneWrite>>,
    row: Row,
    stretch: u16,
    buffer: Box<[u8]>,
    start: usize,
    end: usize,
    /// Bytes of the piece that have not been read.
    left: usize,
    ended: bool,
}

impl Reader {
    pub(super) fn new(shared: &Arc<Shared>, rx: Box<dyn LaneRead>, row: Row) -> Self {
        Self {
            shared: Arc::clone(shared),
            rx,
            spare: None,
            row,
            stretch: 0,
            buffer: vec![0; BUFFER].into(),
            start: 0,
            end: 0,
            left: 0,
            ended: false,
        }
    }

    /// Reads into the buffer until it has a length. Returns `false` at the clean end.
    fn gather(&mut self) -> Result<bool, LinkError> {
        self.buffer.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.start = 0;
        while self.end < LENGTH {
            match self.rx.read(&mut self.buffer[self.end..])? {
                0 if self.end == 0 => return Ok(false),
                0 => return Err(self.broken()),
                count => self.end = (self.end + count).min(BUFFER),
            }
        }
        Ok(true)
    }

    /// Begins the next piece, if necessary in the next stretch. Returns `false` at the lane's end.
    fn begin_piece(&mut self) -> Result<bool, LinkError> {
        while self.left == 0 {
            if self.end - self.start < LENGTH && !self.gather()? {
                self.ended = true;
                return Ok(false);
            }
            let length = self.buffer[self.start..].first_chunk().copied().map_or(0, u32::from_le_bytes);
            self.start += LENGTH;
            match length as usize {
                0 => self.go_on()?,
                length if length > MAX_PIECE => return Err(self.broken()),
                length => self.left = length,
            }
        }
        Ok(true)
    }

    /// Goes on with the next stretch. Nothing may follow in this one.
    fn go_on(&mut self) -> Result<(), LinkError> {
        let next = self.stretch.checked_add(1).ok_or_else(|| self.broken())?;
        if self.start < self.end || self.rx.read(&mut self.buffer[..1])? > 0 {
            return Err(self.broken());
        }
        let lane = self.shared.arrivals.stretch(self.row, next)?;
        (self.start, self.end) = (0, 0);
        self.rx = lane.rx;
        self.spare = Some(lane.tx);
        self.stretch = next;
        Ok(())
    }

    /// Ends a link whose peer broke the rules of this module.
    fn broken(&self) -> LinkError {
        let error = LinkError::PeerClosed { reason: CloseReason::Protocol };
        self.shared.end(error.clone(), CloseReason::Protocol);
        error
    }

    fn take(&mut self, buf: &mut [u8], fills: bool) -> Result<usize, LinkError> {
        if self.ended || buf.is_empty() || !self.begin_piece()? {
            return Ok(0);
        }
        let wanted = buf.len().min(self.left);
        let ready = wanted.min(self.end - self.start);
        let count = if ready > 0 {
            buf[..ready].copy_from_slice(&self.buffer[self.start..self.start + ready]);
            self.start += ready;
            ready
        } else if fills {
            self.rx.fill(&mut buf[..wanted])?.min(wanted)
        } else {
            self.rx.read(&mut buf[..wanted])?.min(wanted)
        };
        if count == 0 {
            // A clean end in the middle of a piece.
            return Err(self.broken());
        }

        self.left -= count;
        self.shared.counters.add_received(count);
        Ok(count)
    }
}

impl LaneRead for Reader {
    fn read(&mut self, buf: &mut [u8]) -> Result<usize, LinkError> {
        self.shared.arrivals.check()?;
        self.take(buf, false).map_err(|error| self.shared.explain(error))
    }

    fn fill(&mut self, buf: &mut [u8]) -> Result<usize, LinkError> {
        self.shared.arrivals.check()?;
        let mut filled = 0;
        while filled < buf.len() {
            match self.take(&mut buf[filled..], true).map_err(|error| self.shared.explain(error))? {
                0 => break,
                count => filled += count,
            }
        }
        Ok(filled)
    }
}

/// Length of a piece's length in bytes.
const LENGTH: usize = 4;
/// Stands for a length where a stretch goes on elsewhere.
const MOVED: [u8; LENGTH] = [0; LENGTH];
/// Most bytes of a piece; longer writes are several.
const MAX_PIECE: usize = 16 << 20;
/// Bytes that are read ahead for the next length and small pieces behind it.
const BUFFER: usize = 4096;
