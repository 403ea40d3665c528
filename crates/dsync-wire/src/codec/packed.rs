//! The header of a compressed piece: codec and raw length. Its bytes are the rest of the message.

use bytes::Bytes;

use super::{reader::Reader, writer::Writer};
use crate::{
    compress::{Codec, Packed},
    error::{DecodeError, EncodeError},
    kind::Kind,
    limits::MAX_RAW_FRAME,
};

/// Appends the header; the bytes must follow.
pub(super) fn encode_header(packed: &Packed, kind: Kind, out: &mut Vec<u8>) -> Result<(), EncodeError> {
    let mut w = Writer::new(kind, out);
    w.check(u64::from(packed.raw_len), u64::from(MAX_RAW_FRAME), "raw length")?;
    w.valid(packed.check_size().is_ok(), "compressed content")?;
    w.byte(packed.codec as u8);
    w.u32(packed.raw_len);
    Ok(())
}

/// Decodes the header and takes the rest of the message; `keep` turns the rest into owned bytes.
pub(super) fn decode<'a>(
    r: &mut Reader<'a>,
    keep: impl FnOnce(&'a [u8]) -> Bytes,
) -> Result<Packed, DecodeError> {
    let codec = r.choice("codec", Codec::from_code)?;
    let offset = r.offset();
    let raw_len = r.u32("raw length")?;
    if raw_len > MAX_RAW_FRAME {
        return Err(DecodeError::Limit {
            kind: r.kind(),
            field: "raw length",
            value: u64::from(raw_len),
            limit: u64::from(MAX_RAW_FRAME),
            offset,
        });
    }
    let packed = Packed { codec, raw_len, bytes: keep(r.take_rest()) };
    packed.check_size().map_err(|source| DecodeError::Packed { kind: r.kind(), source })?;
    Ok(packed)
}
