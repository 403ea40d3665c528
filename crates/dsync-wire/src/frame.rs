//! Frames over lanes: whole messages in, whole messages out.
//!
//! Senders turn a message into one frame; receivers read frames and return checked messages. The
//! law: a receiver checks a frame's length before it allocates, holds at most one frame (and grows
//! its buffer only as bytes arrive), and reports an end inside a frame as an error, never as a
//! clean end. Small messages cost no allocation of their own. The bytes of compressed pieces are
//! not copied when sent and share the frame's memory when received.
//!
//! [`crate::state`] checks the order of messages.

use bytes::{Bytes, BytesMut};

use crate::{
    codec::{FRAME_HEADER, decode_control, decode_data, encode_control, encode_data, encode_start},
    compress::{Packer, Unpacker},
    error::DecodeError,
    kind::Kind,
    limits::{MAX_FRAME, MAX_START_PART},
    link::{LaneRead, LaneWrite, LinkError},
    message::{ControlMessage, DataMessage, Start},
};

/// Sends control messages over one lane.
pub struct ControlSender {
    tx: Box<dyn LaneWrite>,
    packer: Packer,
    pending: Vec<u8>,
}

impl std::fmt::Debug for ControlSender {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ControlSender").field("pending_bytes", &self.pending.len()).finish_non_exhaustive()
    }
}

impl ControlSender {
    /// Makes a sender from the sending half of the control lane.
    pub fn new(tx: Box<dyn LaneWrite>) -> Self {
        Self { tx, packer: Packer::new(), pending: Vec::new() }
    }

    /// Sends a message and everything [queued](Self::queue) before it; waits while the peer is
    /// slow.
    ///
    /// # Errors
    /// [`LinkError`] if the lane is gone, or [`LinkError::Message`] if the message exceeds a limit.
    /// In the latter case nothing of it was sent, and the lane stays usable.
    pub fn send(&mut self, message: &ControlMessage) -> Result<(), LinkError> {
        encode_control(message, &mut self.packer, &mut self.pending)?;
        self.flush()
    }

    /// Sends a `Start`: as one message if it fits a frame, else in pieces.
    ///
    /// # Errors
    /// As for [`send`](Self::send).
    pub fn send_start(&mut self, start: Start) -> Result<(), LinkError> {
        let payload = encode_start(&start)?;
        if payload.len() <= MAX_START_PART {
            return self.send(&ControlMessage::Start(Box::new(start)));
        }

        let mut pieces = payload.chunks(MAX_START_PART).peekable();
        while let Some(piece) = pieces.next() {
            let last = pieces.peek().is_none();
            self.send(&ControlMessage::StartPart { last, bytes: piece.to_vec() })?;
        }
        Ok(())
    }

    /// Queues a message to send it with later ones in one write; sends at 32 KiB. A message may
    /// wait without bound until the next [`flush`](Self::flush) or [`send`](Self::send).
    ///
    /// # Errors
    /// As for [`send`](Self::send).
    pub fn queue(&mut self, message: &ControlMessage) -> Result<(), LinkError> {
        encode_control(message, &mut self.packer, &mut self.pending)?;
        if self.pending.len() < QUEUE_LEN { Ok(()) } else { self.flush() }
    }

    /// Sends the queued messages.
    ///
    /// # Errors
    /// [`LinkError`] if the lane is gone.
    pub fn flush(&mut self) -> Result<(), LinkError> {
        if self.pending.is_empty() {
            return Ok(());
        }
        let bytes = Bytes::copy_from_slice(&self.pending);
        self.pending.clear();
        // A large listing must not keep its memory for the rest of the session.
        self.pending.shrink_to(2 * QUEUE_LEN);
        self.tx.write(bytes)
    }

    /// Sends the queued messages and ends this direction of the lane.
    ///
    /// # Errors
    /// [`LinkError`] if the lane is gone.
    pub fn finish(&mut self) -> Result<(), LinkError> {
        self.flush()?;
        self.tx.finish()
    }
}

/// Receives control messages from one lane.
#[derive(Debug)]
pub struct ControlReceiver {
    frames: FrameReader,
    unpacker: Unpacker,
}

impl ControlReceiver {
    /// Makes a receiver from the receiving half of the control lane.
    pub fn new(rx: Box<dyn LaneRead>) -> Self {
        Self { frames: FrameReader::new(rx), unpacker: Unpacker::new() }
    }

    /// Waits for the next message; returns `None` at the clean end of the lane.
    ///
    /// # Errors
    /// [`RecvError`]; the lane is unusable afterwards.
    pub fn recv(&mut self) -> Result<Option<ControlMessage>, RecvError> {
        let Some(header) = self.frames.header()? else { return Ok(None) };
        let payload = self.frames.payload(header)?;
        Ok(Some(decode_control(header.kind, payload, header.payload_offset(), &mut self.unpacker)?))
    }
}

/// Sends messages over one data lane.
pub struct DataSender {
    tx: Box<dyn LaneWrite>,
    buffer: Vec<u8>,
}

impl std::fmt::Debug for DataSender {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DataSender").finish_non_exhaustive()
    }
}

impl DataSender {
    /// Makes a sender from the sending half of a data lane.
    pub fn new(tx: Box<dyn LaneWrite>) -> Self {
        Self { tx, buffer: Vec::new() }
    }

    /// Sends a message; waits while the peer is slow. The bytes of a large compressed piece go to
    /// the lane without a copy.
    ///
    /// # Errors
    /// As for [`ControlSender::send`].
    pub fn send(&mut self, message: &DataMessage) -> Result<(), LinkError> {
        self.buffer.clear();
        match encode_data(message, &mut self.buffer)? {
            Some(tail) if tail.len() >= SEPARATE_LEN => {
                self.tx.write_both(Bytes::copy_from_slice(&self.buffer), tail.clone())
            }
            tail => {
                self.buffer.extend_from_slice(tail.map_or(&[], |tail| &tail[..]));
                self.tx.write(Bytes::copy_from_slice(&self.buffer))
            }
        }
    }

    /// Ends this direction of the lane.
    ///
    /// # Errors
    /// [`LinkError`] if the lane is gone.
    pub fn finish(&mut self) -> Result<(), LinkError> {
        self.tx.finish()
    }
}

/// Receives messages from one data lane.
#[derive(Debug)]
pub struct DataReceiver {
    frames: FrameReader,
}

impl DataReceiver {
    /// Makes a receiver from the receiving half of a data lane.
    pub fn new(rx: Box<dyn LaneRead>) -> Self {
        Self { frames: FrameReader::new(rx) }
    }

    /// Waits for the next message; returns `None` at the clean end of the lane.
    ///
    /// # Errors
    /// [`RecvError`]; the lane is unusable afterwards.
    pub fn recv(&mut self) -> Result<Option<DataMessage>, RecvError> {
        let Some(header) = self.frames.header()? else { return Ok(None) };
        let payload = self.frames.owned_payload(header)?;
        Ok(Some(decode_data(header.kind, &payload, header.payload_offset())?))
    }
}

/// The reason why no message could be received: the lane or the peer, there is no third.
#[derive(Debug, Clone, thiserror::Error)]
pub enum RecvError {
    /// The lane failed.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// The peer sent something that the protocol forbids.
    #[error(transparent)]
    Decode(#[from] DecodeError),
}

/// A frame's first bytes.
#[derive(Debug, Clone, Copy)]
struct Header {
    kind: Kind,
    /// Length of the payload in bytes, at most [`MAX_FRAME`] less the kind byte.
    payload_len: usize,
    /// Offset of the frame in the lane.
    offset: u64,
}

impl Header {
    fn payload_offset(self) -> u64 {
        self.offset.saturating_add(FRAME_HEADER as u64)
    }
}

/// Cuts a lane into frames.
struct FrameReader {
    rx: Box<dyn LaneRead>,
    /// Bytes read ahead: `buffer[start..end]`.
    buffer: Box<[u8]>,
    start: usize,
    end: usize,
    /// A payload that does not fit the buffer.
    large: BytesMut,
    /// The last payload with memory of its own, which is reused once the message made of it is
    /// gone.
    lent: Bytes,
    /// Bytes of the lane consumed as frames.
    offset: u64,
}

impl std::fmt::Debug for FrameReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FrameReader").field("offset", &self.offset).finish_non_exhaustive()
    }
}

impl FrameReader {
    fn new(rx: Box<dyn LaneRead>) -> Self {
        let buffer = vec![0; BUFFER_LEN].into();
        Self { rx, buffer, start: 0, end: 0, large: BytesMut::new(), lent: Bytes::new(), offset: 0 }
    }

    /// Reads the next frame's header; returns `None` at a clean end.
    fn header(&mut self) -> Result<Option<Header>, RecvError> {
        self.shed();
        let offset = self.offset;
        if !self.fill(4)? {
            return match self.buffered() {
                0 => Ok(None),
                got => Err(truncated(got as u64, 4).into()),
            };
        }
        let length = self.take::<4>().map(u32::from_le_bytes).unwrap_or_default();
        if length == 0 {
            return Err(DecodeError::FrameEmpty { offset }.into());
        }
        // Read the kind even if the frame is too long: the error names it.
        if !self.fill(1)? {
            return Err(truncated(4, 4 + u64::from(length)).into());
        }
        let kind = Kind(self.take::<1>().map_or(0, |[kind]| kind));
        if length > MAX_FRAME {
            let (len, limit) = (u64::from(length), MAX_FRAME);
            return Err(DecodeError::FrameTooLong { len, limit, kind, offset }.into());
        }
        Ok(Some(Header { kind, payload_len: length as usize - 1, offset }))
    }

    /// Reads a payload into this reader's own memory.
    fn payload(&mut self, header: Header) -> Result<&[u8], RecvError> {
        let len = header.payload_len;
        if len > self.buffer.len() {
            let large = std::mem::take(&mut self.large);
            self.large = self.assemble(large, len)?;
            return Ok(&self.large);
        }
        if !self.fill(len)? {
            return Err(cut_short(self.buffered(), len).into());
        }
        let start = self.start;
        self.consume(len);
        Ok(&self.buffer[start..start + len])
    }

    /// Reads a payload into memory of its own.
    fn owned_payload(&mut self, header: Header) -> Result<Bytes, RecvError> {
        let len = header.payload_len;
        if len <= self.buffered() {
            let start = self.start;
            self.consume(len);
            return Ok(Bytes::copy_from_slice(&self.buffer[start..start + len]));
        }
        let used = std::mem::take(&mut self.lent).try_into_mut().unwrap_or_default();
        let payload = self.assemble(used, len)?.freeze();
        if len <= FIRST_LEN {
            self.lent = payload.clone();
        }
        Ok(payload)
    }

    /// Reads `len` bytes into `payload`, past the buffer, and overwrites its content. Memory grows
    /// with the bytes that have arrived: a declared length alone costs [`FIRST_LEN`].
    fn assemble(&mut self, mut payload: BytesMut, len: usize) -> Result<BytesMut, RecvError> {
        let ready = self.buffered().min(len);
        let mut goal = len.min(payload.len().max(FIRST_LEN).max(ready));
        let mut filled = 0;
        while filled < len {
            // This clears only the added bytes: those of an earlier payload are as good as zeros.
            payload.resize(goal, 0);
            if filled == 0 {
                payload[..ready].copy_from_slice(&self.buffer[self.start..self.start + ready]);
                self.consume(ready);
                filled = ready;
            }
            let got = self.rx.fill(&mut payload[filled..])?.min(goal - filled);
            self.offset = self.offset.saturating_add(got as u64);
            filled += got;
            if filled < goal {
                return Err(cut_short(filled, len).into());
            }
            goal = len.min(2 * goal);
        }
        payload.truncate(len);
        Ok(payload)
    }

    /// Reads until `len` bytes, at most the buffer's size, are buffered. Returns `false` if the
    /// lane ended before.
    fn fill(&mut self, len: usize) -> Result<bool, LinkError> {
        if self.start + len > self.buffer.len() {
            self.buffer.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        while self.buffered() < len {
            match self.rx.read(&mut self.buffer[self.end..])? {
                0 => return Ok(false),
                // A lane that claims more than it had room for breaks its law, not our memory.
                got => self.end = (self.end + got).min(self.buffer.len()),
            }
        }
        Ok(true)
    }

    fn buffered(&self) -> usize {
        self.end - self.start
    }

    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let bytes = self.buffer[self.start..self.end].first_chunk::<N>().copied();
        if bytes.is_some() {
            self.consume(N);
        }
        bytes
    }

    fn consume(&mut self, len: usize) {
        self.start += len;
        self.offset = self.offset.saturating_add(len as u64);
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
    }

    /// Frees the memory of a large frame after decoding.
    fn shed(&mut self) {
        if self.large.capacity() > 0 {
            self.large = BytesMut::new();
        }
    }
}

/// Makes the error of a lane that ended `got` bytes into a payload of `len`.
fn cut_short(got: usize, len: usize) -> DecodeError {
    let header = FRAME_HEADER as u64;
    truncated(header + got as u64, header + len as u64)
}

fn truncated(got: u64, expected: u64) -> DecodeError {
    DecodeError::Truncated { got, expected }
}

/// Length at which queued control messages are sent, in bytes.
const QUEUE_LEN: usize = 32 << 10;
/// Length from which a piece is written apart from its header, in bytes. Copying a shorter one
/// costs less than a second write.
const SEPARATE_LEN: usize = 8 << 10;
/// Bytes read ahead. Larger payloads bypass the buffer, except for the bytes already in it, which
/// are copied once more.
const BUFFER_LEN: usize = 16 << 10;
/// Memory that a large frame gets before any of it has arrived: 256 KiB of tokens and their
/// headers, so that an ordinary frame is not moved when its last bytes arrive.
const FIRST_LEN: usize = 288 << 10;
