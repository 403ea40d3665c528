//! Payloads of spans.

use super::{reader::Reader, writer::Writer};
use crate::{
    error::{DecodeError, EncodeError, PeerText},
    limits::{MAX_NAME, MAX_PATH, MAX_SPAN_ITEMS, MAX_SPAN_PIECES},
    message::{Digest, Same, Span, SpanAnswer},
    name::Name,
};

/// Numbers of the answers.
const EQUAL: u8 = 0;
const PIECES: u8 = 1;
const NOTHING: u8 = 2;

pub(super) fn encode_span(span: &Span, w: &mut Writer<'_>) -> Result<(), EncodeError> {
    w.at_most(u64::from(span.items), u64::from(MAX_SPAN_ITEMS), "number of items")?;
    w.bytes(&span.directory, MAX_PATH, "path")?;
    w.bytes(span.name.as_ref().map_or(b"", Name::as_bytes), MAX_NAME, "name")?;
    w.raw(&span.digest);
    Ok(())
}

pub(super) fn decode_span(r: &mut Reader<'_>) -> Result<Span, DecodeError> {
    let items = r.at_most(u64::from(MAX_SPAN_ITEMS), "number of items")?;
    let directory = r.bytes(MAX_PATH, "path")?.to_vec();
    let name = r.bytes(MAX_NAME, "name")?;
    let name = (!name.is_empty())
        .then(|| Name::new(name).map_err(|source| DecodeError::Name { name: PeerText::new(name), source }));
    Ok(Span {
        items: u32::try_from(items).unwrap_or(MAX_SPAN_ITEMS),
        directory,
        name: name.transpose()?,
        digest: r.array("digest")?,
    })
}

pub(super) fn encode_answer(answer: &SpanAnswer, w: &mut Writer<'_>) -> Result<(), EncodeError> {
    match answer {
        SpanAnswer::Equal => w.byte(EQUAL),
        SpanAnswer::Pieces(pieces) => {
            w.byte(PIECES);
            w.count(pieces.len(), MAX_SPAN_PIECES, "number of pieces")?;
            pieces.iter().for_each(|piece| w.raw(piece));
        }
        SpanAnswer::Nothing => w.byte(NOTHING),
    }
    Ok(())
}

pub(super) fn decode_answer(r: &mut Reader<'_>) -> Result<SpanAnswer, DecodeError> {
    let offset = r.offset();
    match r.byte("answer")? {
        EQUAL => Ok(SpanAnswer::Equal),
        PIECES => {
            let count = r.count(MAX_SPAN_PIECES, size_of::<Digest>(), "number of pieces")?;
            let pieces = (0..count).map(|_| r.array("digest")).collect::<Result<_, _>>()?;
            Ok(SpanAnswer::Pieces(pieces))
        }
        NOTHING => Ok(SpanAnswer::Nothing),
        other => Err(r.value(u64::from(other), offset, "answer")),
    }
}

pub(super) fn encode_same(same: Same, w: &mut Writer<'_>) -> Result<(), EncodeError> {
    w.at_most(u64::from(same.first), MAX_SPAN_PIECES as u64, "number of a piece")?;
    w.valid(same.count > 0, "number of pieces")?;
    w.at_most(u64::from(same.count), MAX_SPAN_PIECES as u64, "number of pieces")
}

pub(super) fn decode_same(r: &mut Reader<'_>) -> Result<Same, DecodeError> {
    let first = r.at_most(MAX_SPAN_PIECES as u64, "number of a piece")?;
    let offset = r.offset();
    let count = r.at_most(MAX_SPAN_PIECES as u64, "number of pieces")?;
    if count == 0 {
        return Err(r.value(count, offset, "number of pieces"));
    }
    let narrow = |value| u32::try_from(value).unwrap_or(u32::MAX);
    Ok(Same { first: narrow(first), count: narrow(count) })
}
