//! `Names`: lines of a list, each as what it shares with the line before it, and the rest.

use super::{reader::Reader, writer::Writer};
use crate::{
    error::{DecodeError, EncodeError},
    limits::{MAX_LINE, MAX_NAMES, MAX_NAMES_BYTES},
    message::Names,
};

pub(super) fn encode(Names { last, lines }: &Names, w: &mut Writer<'_>) -> Result<(), EncodeError> {
    let total: usize = lines.iter().map(Vec::len).sum();
    w.check(total as u64, MAX_NAMES_BYTES as u64, "size of lines")?;
    w.bool(*last);
    w.count(lines.len(), MAX_NAMES, "number of lines")?;

    let mut before: &[u8] = &[];
    for line in lines {
        w.check(line.len() as u64, MAX_LINE as u64, "line")?;
        w.valid(!line.is_empty(), "line")?;
        let shared = line.iter().zip(before).take_while(|(one, other)| one == other).count();
        w.u64(shared as u64);
        w.bytes(line.get(shared..).unwrap_or_default(), MAX_LINE, "line")?;
        before = line;
    }
    Ok(())
}

pub(super) fn decode(r: &mut Reader<'_>) -> Result<Names, DecodeError> {
    let last = r.bool("flag")?;
    let count = r.count(MAX_NAMES, 2, "number of lines")?;
    let mut lines: Vec<Vec<u8>> = Vec::with_capacity(count);
    let mut total = 0;

    for _ in 0..count {
        let offset = r.offset();
        let before = lines.last().map_or(&[][..], Vec::as_slice);
        let shared = r.at_most(before.len() as u64, "shared beginning")?;
        let kept = usize::try_from(shared).ok().and_then(|shared| before.get(..shared)).unwrap_or_default();
        let rest = r.bytes(MAX_LINE, "line")?;
        // The one form of a line: what it shares is as long as it can be, and it is not empty.
        let is_longest = rest.first().is_some_and(|first| before.get(kept.len()) != Some(first));
        let is_prefix = rest.is_empty() && !kept.is_empty();
        if !is_longest && !is_prefix {
            return Err(r.value(shared, offset, "shared beginning"));
        }
        total += kept.len() + rest.len();
        for (value, limit, field) in
            [(kept.len() + rest.len(), MAX_LINE, "line"), (total, MAX_NAMES_BYTES, "size of lines")]
        {
            let (value, limit) = (value as u64, limit as u64);
            if value > limit {
                return Err(DecodeError::Limit { kind: r.kind(), field, value, limit, offset });
            }
        }
        lines.push([kept, rest].concat());
    }
    Ok(Names { last, lines })
}
