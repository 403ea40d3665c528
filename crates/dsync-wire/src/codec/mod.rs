//! The encoding of messages: one frame per message.
//!
//! A frame is the length of the rest (4 bytes, little endian), the message's number (one byte) and
//! its payload. Integers are LEB128 in their shortest form, signed ones zigzag first; byte strings
//! carry their length before them. The options of a run are JSON. `docs/wire.md` is normative.
//!
//! The laws: `decode(encode(m)) == m` for every message that [`encode_control`] or [`encode_data`]
//! accepts. Decoding is strict: unknown numbers, flags and values, overlong integers and left-over
//! bytes are errors. It never panics, and allocates only what its checked lengths need.
//! [`crate::state`] checks the order of messages, not this module. No input or output happens here:
//! see [`crate::frame`].

mod account;
mod control;
mod data;
mod extended;
mod listing;
mod names;
mod options;
mod packed;
mod reader;
mod records;
mod ruling;
mod spans;
mod start;
mod writer;

use bytes::Bytes;

pub use self::records::{MAX_RECORD_HEADER, RecordsEncoder, decode_records, encode_records};
use self::{reader::Reader, writer::Writer};
use crate::{
    compress::{Packer, Unpacker},
    error::{DecodeError, EncodeError},
    kind::Kind,
    limits::MAX_FRAME,
    message::{ControlMessage, DataMessage, Start},
};

/// Number of frame bytes before the payload: length and kind.
pub const FRAME_HEADER: usize = 5;

/// Appends one frame to `out`.
///
/// # Errors
/// [`EncodeError`] if the message exceeds a limit or holds a value that the wire cannot express;
/// `out` then stays unchanged.
pub fn encode_control(
    message: &ControlMessage,
    packer: &mut Packer,
    out: &mut Vec<u8>,
) -> Result<(), EncodeError> {
    let start = out.len();
    let result = frame(message.kind(), out, |out| control::encode(message, packer, out).map(|()| 0));
    if result.is_err() {
        out.truncate(start);
    }
    result
}

/// Decodes the payload of one frame of the control lane. The payload begins at `offset` in the
/// lane, and errors count from there.
///
/// # Errors
/// [`DecodeError`] if the payload is not exactly one message of this kind.
pub fn decode_control(
    kind: Kind,
    payload: &[u8],
    offset: u64,
    unpacker: &mut Unpacker,
) -> Result<ControlMessage, DecodeError> {
    let mut r = Reader::new(kind, payload, offset);
    let message = control::decode(&mut r, unpacker)?.ok_or_else(|| DecodeError::UnknownKind {
        kind,
        lane: "control",
        offset: frame_offset(offset),
    })?;
    r.finish()?;
    Ok(message)
}

/// Returns the payload of a `Start`, which may be longer than a frame.
///
/// # Errors
/// [`EncodeError`] if it exceeds a limit of its own.
pub fn encode_start(start: &Start) -> Result<Vec<u8>, EncodeError> {
    let mut payload = Vec::new();
    start::encode(start, &mut Writer::new(Kind::START, &mut payload))?;
    Ok(payload)
}

/// Decodes the payload of a `Start`; offsets in errors count from its beginning.
///
/// # Errors
/// [`DecodeError`] if the payload is not exactly one `Start`.
pub fn decode_start(payload: &[u8]) -> Result<Start, DecodeError> {
    let mut r = Reader::new(Kind::START, payload, 0);
    let start = start::decode(&mut r)?;
    r.finish()?;
    Ok(start)
}

/// Appends one frame to `out` except for the bytes of a compressed piece. Those are returned and
/// must be sent right after, so that they need no copy.
///
/// # Errors
/// As for [`encode_control`].
pub fn encode_data<'a>(
    message: &'a DataMessage,
    out: &mut Vec<u8>,
) -> Result<Option<&'a Bytes>, EncodeError> {
    let start = out.len();
    let mut tail = None;
    let result = frame(message.kind(), out, |out| {
        tail = data::encode(message, out)?;
        Ok(tail.map_or(0, Bytes::len))
    });
    if result.is_err() {
        out.truncate(start);
    }
    result.map(|()| tail)
}

/// Decodes the payload of one frame of a data lane; compressed pieces share the memory of
/// `payload`. The payload begins at `offset` in the lane, and errors count from there.
///
/// # Errors
/// [`DecodeError`] if the payload is not exactly one message of this kind.
pub fn decode_data(kind: Kind, payload: &Bytes, offset: u64) -> Result<DataMessage, DecodeError> {
    let mut r = Reader::new(kind, payload, offset);
    let message = data::decode(&mut r, payload)?.ok_or_else(|| DecodeError::UnknownKind {
        kind,
        lane: "data",
        offset: frame_offset(offset),
    })?;
    r.finish()?;
    Ok(message)
}

/// Appends a frame's header and whatever `payload` appends. `payload` returns the number of bytes
/// that follow later.
fn frame(
    kind: Kind,
    out: &mut Vec<u8>,
    payload: impl FnOnce(&mut Vec<u8>) -> Result<usize, EncodeError>,
) -> Result<(), EncodeError> {
    let start = out.len();
    out.extend_from_slice(&[0, 0, 0, 0, kind.0]);
    let later = payload(out)?;
    let len = out.len() - start - 4 + later;
    let limit = u64::from(MAX_FRAME);
    let too_long = EncodeError::Limit { kind, field: "size", value: len as u64, limit };
    let len = u32::try_from(len).ok().filter(|&len| len <= MAX_FRAME).ok_or(too_long)?;
    out[start..start + 4].copy_from_slice(&len.to_le_bytes());
    Ok(())
}

fn frame_offset(payload_offset: u64) -> u64 {
    payload_offset.saturating_sub(FRAME_HEADER as u64)
}
