//! Payloads of data lanes.

use std::ops::Range;

use bytes::Bytes;

use super::{account, packed, reader::Reader, writer::Writer};
use crate::{
    error::{DecodeError, EncodeError},
    kind::Kind,
    limits::{MAX_BLOCK_LEN, MAX_DATA_LANES, MAX_FILE_LEN, MAX_HOLES, MAX_SEGMENT_LOG2, MIN_SEGMENT_LOG2},
    message::{DataMessage, FileEnd, FileState, Segment},
};

/// Appends the message except for the bytes of a compressed piece, which are returned.
pub(super) fn encode<'a>(
    message: &'a DataMessage,
    out: &mut Vec<u8>,
) -> Result<Option<&'a Bytes>, EncodeError> {
    let kind = message.kind();
    let w = &mut Writer::new(kind, out);
    match message {
        DataMessage::LaneStart { lane } => {
            w.valid(usize::from(*lane) < MAX_DATA_LANES, "lane number")?;
            w.byte(*lane);
        }
        DataMessage::Batch { value, files } => {
            w.raw(value);
            packed::encode_header(files, kind, out)?;
            return Ok(Some(&files.bytes));
        }
        DataMessage::Tokens(packed) => {
            packed::encode_header(packed, kind, out)?;
            return Ok(Some(&packed.bytes));
        }
        DataMessage::Segment(segment) => {
            w.valid(lies_in_file(segment), "segment")?;
            w.entry(segment.entry);
            w.byte(segment.attempt);
            w.raw(&segment.state.0);
            w.u64(segment.file_len);
            w.byte(segment.length_log2);
            w.u64(segment.index);
            w.u32(segment.lead);
        }
        DataMessage::SegmentEnd { value } => {
            w.bool(value.is_some());
            w.raw(value.as_ref().map_or(&[][..], |value| &value[..]));
        }
        DataMessage::FileEnd(end) => {
            w.entry(end.entry);
            w.byte(end.attempt);
            account::encode_outcome(end.outcome, w)?;
        }
        DataMessage::Holes(holes) => {
            w.valid(!holes.is_empty(), "number of holes")?;
            w.count(holes.len(), MAX_HOLES, "number of holes")?;
            let mut at = 0;
            for hole in holes {
                w.valid(hole.start >= at && hole.end > hole.start && hole.end <= LONGEST_SEGMENT, "hole")?;
                w.u32(hole.start - at);
                w.u32(hole.end - hole.start);
                at = hole.end;
            }
        }

        DataMessage::LaneEnd => {}
    }

    Ok(None)
}

/// Decodes a payload; returns `None` if the kind is not one of a data lane's. `r` reads `payload`.
pub(super) fn decode(r: &mut Reader<'_>, payload: &Bytes) -> Result<Option<DataMessage>, DecodeError> {
    Ok(Some(match r.kind() {
        Kind::LANE_START => DataMessage::LaneStart {
            lane: r.choice("lane number", |lane| (usize::from(lane) < MAX_DATA_LANES).then_some(lane))?,
        },
        Kind::BATCH => {
            let value = r.array("value")?;
            DataMessage::Batch { value, files: packed::decode(r, |rest| payload.slice_ref(rest))? }
        }
        Kind::TOKENS => DataMessage::Tokens(packed::decode(r, |rest| payload.slice_ref(rest))?),
        Kind::SEGMENT => DataMessage::Segment(decode_segment(r)?),
        Kind::SEGMENT_END => {
            let value = if r.bool("flag")? { Some(r.array("segment value")?) } else { None };
            DataMessage::SegmentEnd { value }
        }
        Kind::FILE_END => {
            let entry = r.entry()?;
            let attempt = r.byte("attempt")?;
            DataMessage::FileEnd(FileEnd { entry, attempt, outcome: account::decode_outcome(entry, r)? })
        }
        Kind::LANE_END => DataMessage::LaneEnd,
        Kind::HOLES => DataMessage::Holes(decode_holes(r)?),

        _ => return Ok(None),
    }))
}

fn decode_segment(r: &mut Reader<'_>) -> Result<Segment, DecodeError> {
    let segment = Segment {
        entry: r.entry()?,
        attempt: r.byte("attempt")?,
        state: FileState(r.array("file state")?),
        file_len: r.file_len("file size")?,
        length_log2: r.choice("segment length", |log2| {
            (MIN_SEGMENT_LOG2..=MAX_SEGMENT_LOG2).contains(&log2).then_some(log2)
        })?,
        index: r.u64("segment number")?,
        lead: r.u32("lead")?,
    };
    if lies_in_file(&segment) {
        return Ok(segment);
    }
    let Segment { entry, index, length_log2, file_len, .. } = segment;
    Err(DecodeError::SegmentRange { entry, index, length_log2, file_len })
}

fn decode_holes(r: &mut Reader<'_>) -> Result<Vec<Range<u32>>, DecodeError> {
    let offset = r.offset();
    let count = r.count(MAX_HOLES, 2, "number of holes")?;
    if count == 0 {
        return Err(r.value(0, offset, "number of holes"));
    }
    let mut holes = Vec::with_capacity(count);
    let mut at = 0_u32;
    for _ in 0..count {
        let offset = r.offset();
        let (gap, len) = (r.u32("hole")?, r.u32("hole")?);
        let hole = at.checked_add(gap).and_then(|start| Some(start..start.checked_add(len)?));
        let Some(hole) = hole.filter(|hole| !hole.is_empty() && hole.end <= LONGEST_SEGMENT) else {
            return Err(r.value(len.into(), offset, "hole"));
        };
        at = hole.end;
        holes.push(hole);
    }
    Ok(holes)
}

/// Returns whether a segment has a known length, begins inside its file (an empty file has one
/// empty segment), and has a valid lead. A lead is shorter than any block and does not reach before
/// the file.
fn lies_in_file(segment: &Segment) -> bool {
    let Segment { file_len, length_log2, index, lead, .. } = *segment;
    if file_len > MAX_FILE_LEN || !(MIN_SEGMENT_LOG2..=MAX_SEGMENT_LOG2).contains(&length_log2) {
        return false;
    }
    let count = file_len.div_ceil(1 << length_log2).max(1);
    // An index below the count cannot overflow here.
    index < count && lead < MAX_BLOCK_LEN && u64::from(lead) <= index << length_log2
}

/// Length of the longest segment in bytes.
const LONGEST_SEGMENT: u32 = 1 << MAX_SEGMENT_LOG2;
