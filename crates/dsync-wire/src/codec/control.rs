//! Payloads of the control lane.

use dsync_delta::{BlockLen, SumsFormat};

use super::{account, listing, names, reader::Reader, ruling, spans, start, writer::Writer};
use crate::{
    compress::{Packer, Unpacker},
    error::{DecodeError, EncodeError, PeerText},
    kind::Kind,
    limits::{
        MAX_FATAL_TEXT, MAX_ID_NAME, MAX_LANDED, MAX_OPERAND, MAX_PATH, MAX_READY_TEXT, MAX_REST_RUNS,
        MAX_SEGMENT_LOG2, MAX_START_PART, MAX_SUMS, MIN_SEGMENT_LOG2,
    },
    message::{
        ControlMessage, EntryId, Fatal, FileKey, FileState, Hello, IdName, Landed, ListingEnd, NeedDelta,
        NeedTail, Reason, Refine, Rest, Sums, Tops,
    },
    name::Name,
};

pub(super) fn encode(
    message: &ControlMessage,
    packer: &mut Packer,
    out: &mut Vec<u8>,
) -> Result<(), EncodeError> {
    if let ControlMessage::Listing(listing) = message {
        return listing::encode(listing, packer, out);
    }

    let w = &mut Writer::new(message.kind(), out);
    match message {
        ControlMessage::Hello(hello) => encode_hello(hello, w),
        ControlMessage::Start(start) => start::encode(start, w)?,
        ControlMessage::StartPart { last, bytes } => encode_start_part(*last, bytes, w)?,
        ControlMessage::Ready { lacks } => {
            w.check(lacks.len() as u64, MAX_READY_TEXT as u64, "text")?;
            w.raw(lacks);
        }
        ControlMessage::Fatal(fatal) => encode_fatal(fatal, w)?,
        ControlMessage::Tops(tops) => encode_tops(tops, w)?,
        ControlMessage::IdName(id) => encode_id_name(id, w)?,
        ControlMessage::ListingEnd(end) => {
            w.u64(end.entries);
            w.u64(end.bytes);
        }
        ControlMessage::Problem(problem) => account::encode_problem(problem, w)?,
        ControlMessage::Need { entry, attempt } => {
            w.entry(*entry);
            w.byte(*attempt);
        }
        ControlMessage::NeedDelta(need) => encode_need_delta(need, w)?,
        ControlMessage::NeedTail(need) => encode_need_tail(need, w)?,
        ControlMessage::Sums(sums) => encode_sums(sums, w)?,
        ControlMessage::Refine(refine) => encode_refine(refine, w)?,
        ControlMessage::Rest(rest) => encode_rest(rest, w)?,
        ControlMessage::Missing(path) => encode_missing(path, w)?,
        ControlMessage::Names(names) => names::encode(names, w)?,
        ControlMessage::Ruling(ruling) => ruling::encode(ruling, w)?,
        ControlMessage::Landed(landed) => encode_landed(landed, w)?,
        ControlMessage::Removed { entries } => w.u64(*entries),
        ControlMessage::RemovedPath(path) => w.bytes(path, MAX_PATH, "path")?,
        ControlMessage::ListingDone { part } => w.u64(*part),
        ControlMessage::Span(span) => spans::encode_span(span, w)?,
        ControlMessage::SpanAnswer(answer) => spans::encode_answer(answer, w)?,
        ControlMessage::Same(same) => spans::encode_same(*same, w)?,
        ControlMessage::Event(event) => account::encode_event(event, w)?,
        ControlMessage::Progress(progress) => account::encode_progress(progress, w),
        ControlMessage::Report(report) => account::encode_report(report, w),

        // Listings were handled above; the others have no fields.
        ControlMessage::Listing(_)
        | ControlMessage::NeedsEnd
        | ControlMessage::Alive
        | ControlMessage::Bye => {}
    }
    Ok(())
}

fn encode_fatal(fatal: &Fatal, w: &mut Writer<'_>) -> Result<(), EncodeError> {
    w.byte(fatal.exit_code);
    w.bytes(&fatal.text, MAX_FATAL_TEXT, "text")?;
    if let Some(reason) = fatal.reason {
        w.byte(reason.code());
    }
    Ok(())
}

fn encode_missing(path: &[Name], w: &mut Writer<'_>) -> Result<(), EncodeError> {
    let names: Vec<_> = path.iter().map(Name::as_bytes).collect();
    w.bytes(&names.join(&b'/'), MAX_OPERAND, "path")
}

fn decode_missing(r: &mut Reader<'_>) -> Result<Vec<Name>, DecodeError> {
    let bytes = r.bytes(MAX_OPERAND, "path")?;
    let invalid = |source| DecodeError::Name { name: PeerText::new(bytes), source };
    bytes.split(|&byte| byte == b'/').map(Name::new).collect::<Result<_, _>>().map_err(invalid)
}

fn encode_sums(sums: &Sums, w: &mut Writer<'_>) -> Result<(), EncodeError> {
    w.entry(sums.entry);
    w.bool(sums.last);
    w.check(sums.bytes.len() as u64, MAX_SUMS as u64, "size of sums")?;
    w.raw(&sums.bytes);
    Ok(())
}

fn encode_id_name(id: &IdName, w: &mut Writer<'_>) -> Result<(), EncodeError> {
    w.bool(id.group);
    w.u32(id.id);
    w.valid(valid_id_name(&id.name), "name")?;
    w.bytes(&id.name, MAX_ID_NAME, "name")
}

fn encode_need_delta(need: &NeedDelta, w: &mut Writer<'_>) -> Result<(), EncodeError> {
    w.entry(need.entry);
    w.byte(need.attempt);
    w.file_len(need.basis_len, "basis length")?;
    w.u32(need.block_len.get());
    w.flags(if need.key.is_some() { WITH_KEY } else { 0 }, &format_bits(need.format));
    need.key.iter().for_each(|key| w.raw(&key.0));
    Ok(())
}

/// Decodes a payload; returns `None` if the kind is not one of the control lane's.
pub(super) fn decode(
    r: &mut Reader<'_>,
    unpacker: &mut Unpacker,
) -> Result<Option<ControlMessage>, DecodeError> {
    Ok(Some(match r.kind() {
        Kind::HELLO => ControlMessage::Hello(Hello {
            version: r.u16("version")?,
            features: u64::from_le_bytes(r.array("features")?),
            key_share: r.array("key share")?,
        }),
        Kind::START => ControlMessage::Start(Box::new(start::decode(r)?)),
        Kind::START_PART => decode_start_part(r)?,
        Kind::READY => decode_ready(r)?,
        Kind::FATAL => ControlMessage::Fatal(Fatal {
            exit_code: r.byte("exit code")?,
            text: r.bytes(MAX_FATAL_TEXT, "text")?.to_vec(),
            reason: if r.remaining() == 0 { None } else { Some(r.choice("reason", Reason::from_code)?) },
        }),
        Kind::TOPS => ControlMessage::Tops(decode_tops(r)?),
        Kind::ID_NAME => ControlMessage::IdName(decode_id_name(r)?),
        Kind::LISTING => ControlMessage::Listing(listing::decode(r, unpacker)?),
        Kind::LISTING_END => {
            ControlMessage::ListingEnd(ListingEnd { entries: r.u64("count")?, bytes: r.u64("count")? })
        }
        Kind::PROBLEM => ControlMessage::Problem(account::decode_problem(r)?),
        Kind::NEED => ControlMessage::Need { entry: r.entry()?, attempt: r.byte("attempt")? },
        Kind::NEED_DELTA => ControlMessage::NeedDelta(decode_need_delta(r)?),
        Kind::NEED_TAIL => ControlMessage::NeedTail(decode_need_tail(r)?),
        Kind::SUMS => ControlMessage::Sums(decode_sums(r)?),
        Kind::LISTING_DONE => ControlMessage::ListingDone { part: r.u64("listing number")? },
        Kind::NEEDS_END => ControlMessage::NeedsEnd,
        Kind::EVENT => ControlMessage::Event(account::decode_event(r)?),
        Kind::PROGRESS => ControlMessage::Progress(account::decode_progress(r)?),
        Kind::REPORT => ControlMessage::Report(Box::new(account::decode_report(r)?)),
        Kind::ALIVE => ControlMessage::Alive,
        Kind::BYE => ControlMessage::Bye,
        Kind::REFINE => ControlMessage::Refine(decode_refine(r)?),
        Kind::REST => ControlMessage::Rest(decode_rest(r)?),
        Kind::MISSING => ControlMessage::Missing(decode_missing(r)?),
        Kind::NAMES => ControlMessage::Names(names::decode(r)?),
        Kind::RULING => ControlMessage::Ruling(ruling::decode(r)?),
        Kind::LANDED => ControlMessage::Landed(decode_landed(r)?),
        Kind::REMOVED_PATH => ControlMessage::RemovedPath(r.bytes(MAX_PATH, "path")?.to_vec()),
        Kind::SPAN => ControlMessage::Span(spans::decode_span(r)?),
        Kind::SPAN_ANSWER => ControlMessage::SpanAnswer(spans::decode_answer(r)?),
        Kind::SAME => ControlMessage::Same(spans::decode_same(r)?),
        Kind::REMOVED => ControlMessage::Removed { entries: r.u64("count")? },

        _ => return Ok(None),
    }))
}

fn decode_ready(r: &mut Reader<'_>) -> Result<ControlMessage, DecodeError> {
    let (offset, len) = (r.offset(), r.remaining());
    if len > MAX_READY_TEXT {
        return Err(DecodeError::Limit {
            kind: Kind::READY,
            field: "text",
            value: len as u64,
            limit: MAX_READY_TEXT as u64,
            offset,
        });
    }
    Ok(ControlMessage::Ready { lacks: r.take_rest().to_vec() })
}

fn encode_hello(hello: &Hello, w: &mut Writer<'_>) {
    w.u16(hello.version);
    w.raw(&hello.features.to_le_bytes());
    w.raw(&hello.key_share);
}

fn encode_start_part(last: bool, bytes: &[u8], w: &mut Writer<'_>) -> Result<(), EncodeError> {
    w.bool(last);
    w.check(bytes.len() as u64, MAX_START_PART as u64, "size of a piece")?;
    w.raw(bytes);
    Ok(())
}

fn decode_start_part(r: &mut Reader<'_>) -> Result<ControlMessage, DecodeError> {
    let last = r.bool("flag")?;
    let (offset, len) = (r.offset(), r.remaining());
    if len > MAX_START_PART {
        let (value, limit) = (len as u64, MAX_START_PART as u64);
        let (kind, field) = (Kind::START_PART, "size of a piece");
        return Err(DecodeError::Limit { kind, field, value, limit, offset });
    }
    Ok(ControlMessage::StartPart { last, bytes: r.take_rest().to_vec() })
}

fn encode_tops(tops: &Tops, w: &mut Writer<'_>) -> Result<(), EncodeError> {
    w.flags(0, &[(ROOT, tops.root.is_some()), (SINGLE_FILE, tops.single_file)]);
    if let Some(root) = &tops.root {
        listing::encode_attributes(root, w)?;
    }
    w.u32(tops.named);
    Ok(())
}

fn decode_tops(r: &mut Reader<'_>) -> Result<Tops, DecodeError> {
    let flags = r.flags(ROOT | SINGLE_FILE, "flags")?;
    let root = if flags & ROOT != 0 { Some(listing::decode_attributes(EntryId(0), r)?) } else { None };
    Ok(Tops { root, named: r.u32("count")?, single_file: flags & SINGLE_FILE != 0 })
}

fn decode_id_name(r: &mut Reader<'_>) -> Result<IdName, DecodeError> {
    let group = r.bool("flag")?;
    let id = r.u32("number")?;
    let offset = r.offset();
    let name = r.bytes(MAX_ID_NAME, "name")?;
    if !valid_id_name(name) {
        return Err(r.value(name.len() as u64, offset, "name"));
    }
    Ok(IdName { group, id, name: name.to_vec() })
}

fn decode_need_delta(r: &mut Reader<'_>) -> Result<NeedDelta, DecodeError> {
    let entry = r.entry()?;
    let attempt = r.byte("attempt")?;
    let basis_len = r.file_len("basis length")?;
    let block_len = decode_block_len(r)?;
    let (format, has_key) =
        r.choice("format of sums", |bits| Some((format_of(bits & !WITH_KEY)?, bits & WITH_KEY != 0)))?;
    let key = has_key.then(|| r.array("key of a file").map(FileKey)).transpose()?;
    Ok(NeedDelta { entry, attempt, basis_len, block_len, format, key })
}

fn decode_block_len(r: &mut Reader<'_>) -> Result<BlockLen, DecodeError> {
    let block_len = r.u64("block length")?;
    u32::try_from(block_len)
        .ok()
        .and_then(|len| BlockLen::new(len).ok())
        .ok_or(DecodeError::BlockLen { block_len })
}

fn encode_format(format: SumsFormat, w: &mut Writer<'_>) {
    w.flags(0, &format_bits(format));
}

fn decode_format(r: &mut Reader<'_>) -> Result<SumsFormat, DecodeError> {
    r.choice("format of sums", format_of)
}

fn format_bits(format: SumsFormat) -> [(u8, bool); 2] {
    [(1, format.has_strong()), (2, format.has_weak())]
}

fn format_of(bits: u8) -> Option<SumsFormat> {
    match bits {
        1 => Some(SumsFormat::StrongOnly),
        2 => Some(SumsFormat::WeakOnly),
        3 => Some(SumsFormat::StrongAndWeak),
        _ => None,
    }
}

/// Set in the format byte of a `NeedDelta` that a key follows.
const WITH_KEY: u8 = 4;

fn encode_refine(refine: &Refine, w: &mut Writer<'_>) -> Result<(), EncodeError> {
    w.entry(refine.entry);
    w.byte(refine.attempt);
    w.u32(refine.block_len.get());
    encode_format(refine.format, w);
    w.check(refine.runs.len() as u64, MAX_SUMS as u64, "size of runs")?;
    w.raw(&refine.runs);
    Ok(())
}

fn decode_refine(r: &mut Reader<'_>) -> Result<Refine, DecodeError> {
    let entry = r.entry()?;
    let attempt = r.byte("attempt")?;
    let block_len = decode_block_len(r)?;
    let format = decode_format(r)?;
    let runs = take_sums(r, Kind::REFINE, "size of runs")?.to_vec();
    Ok(Refine { entry, attempt, block_len, format, runs })
}

fn encode_need_tail(need: &NeedTail, w: &mut Writer<'_>) -> Result<(), EncodeError> {
    w.entry(need.entry);
    w.byte(need.attempt);
    w.file_len(need.from, "length")?;
    w.bool(need.content.is_some());
    w.raw(need.content.as_ref().map_or(&[][..], |content| &content[..]));
    Ok(())
}

fn decode_need_tail(r: &mut Reader<'_>) -> Result<NeedTail, DecodeError> {
    let (entry, attempt) = (r.entry()?, r.byte("attempt")?);
    let offset = r.offset();
    let from = r.file_len("length")?;
    if from == 0 {
        return Err(r.value(0, offset, "length"));
    }
    let content = if r.bool("flag")? { Some(r.array("content hash")?) } else { None };
    Ok(NeedTail { entry, attempt, from, content })
}

fn encode_rest(rest: &Rest, w: &mut Writer<'_>) -> Result<(), EncodeError> {
    w.entry(rest.entry);
    w.byte(rest.attempt);
    w.raw(&rest.state.0);
    w.byte(rest.length_log2);
    w.valid(!rest.runs.is_empty(), "number of runs")?;
    w.count(rest.runs.len(), MAX_REST_RUNS, "number of runs")?;
    let mut at = 0;
    for run in &rest.runs {
        w.valid(run.start >= at && run.end > run.start, "run of segments")?;
        w.u64(run.start - at);
        w.u64(run.end - run.start);
        at = run.end;
    }
    Ok(())
}

fn encode_landed(landed: &[Landed], w: &mut Writer<'_>) -> Result<(), EncodeError> {
    w.count(landed.len(), MAX_LANDED, "number of entries")?;
    for Landed { entry, stood } in landed {
        w.entry(*entry);
        w.bool(stood.is_some());
        if let Some(state) = stood {
            w.raw(&state.0);
        }
    }
    Ok(())
}

fn decode_landed(r: &mut Reader<'_>) -> Result<Vec<Landed>, DecodeError> {
    let count = r.count(MAX_LANDED, 2, "number of entries")?;
    let mut landed = Vec::with_capacity(count);
    for _ in 0..count {
        let entry = r.entry()?;
        let stood = if r.bool("flag")? { Some(FileState(r.array("file state")?)) } else { None };
        landed.push(Landed { entry, stood });
    }
    Ok(landed)
}

fn decode_rest(r: &mut Reader<'_>) -> Result<Rest, DecodeError> {
    let entry = r.entry()?;
    let attempt = r.byte("attempt")?;
    let state = FileState(r.array("file state")?);
    let length_log2 = r.choice("segment length", |log2| {
        (MIN_SEGMENT_LOG2..=MAX_SEGMENT_LOG2).contains(&log2).then_some(log2)
    })?;
    let offset = r.offset();
    let count = r.count(MAX_REST_RUNS, 2, "number of runs")?;
    if count == 0 {
        return Err(r.value(0, offset, "number of runs"));
    }

    let mut runs = Vec::with_capacity(count);
    let mut at = 0_u64;
    for _ in 0..count {
        let offset = r.offset();
        let (gap, len) = (r.u64("run of segments")?, r.u64("run of segments")?);
        let run = at.checked_add(gap).and_then(|start| Some(start..start.checked_add(len)?));
        let Some(run) = run.filter(|run| !run.is_empty()) else {
            return Err(r.value(len, offset, "run of segments"));
        };
        at = run.end;
        runs.push(run);
    }

    Ok(Rest { entry, attempt, state, length_log2, runs })
}

/// Takes the rest of the message, at most `MAX_SUMS` bytes.
fn take_sums<'a>(r: &mut Reader<'a>, kind: Kind, field: &'static str) -> Result<&'a [u8], DecodeError> {
    let offset = r.offset();
    let bytes = r.take_rest();
    let (value, limit) = (bytes.len() as u64, MAX_SUMS as u64);
    if value > limit { Err(DecodeError::Limit { kind, field, value, limit, offset }) } else { Ok(bytes) }
}

fn decode_sums(r: &mut Reader<'_>) -> Result<Sums, DecodeError> {
    let entry = r.entry()?;
    let last = r.bool("flag")?;
    let bytes = take_sums(r, Kind::SUMS, "size of sums")?;
    Ok(Sums { entry, bytes: bytes.to_vec(), last })
}

/// Returns whether a user's or group's name is valid: at least one byte and no NUL, because it goes
/// to the C library.
fn valid_id_name(name: &[u8]) -> bool {
    !name.is_empty() && !name.contains(&0)
}

/// Bit of the tops: the root's attributes follow.
const ROOT: u8 = 1;
/// Bit of the tops: there is one operand, and it is not a directory.
const SINGLE_FILE: u8 = 2;
