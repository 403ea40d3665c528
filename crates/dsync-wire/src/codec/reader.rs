//! Reads fields off a payload; checks every length before allocating.
//!
//! The law: a reader never passes the end of its bytes and never panics. Each error names the
//! field, the message and the place.

use crate::{
    error::DecodeError,
    kind::Kind,
    limits::{MAX_FILE_LEN, MAX_MODE},
    message::{EntryId, Timestamp},
};

/// A position in one payload.
#[derive(Debug, Clone)]
pub(super) struct Reader<'a> {
    rest: &'a [u8],
    len: usize,
    kind: Kind,
    base: u64,
}

impl<'a> Reader<'a> {
    /// Starts at the first of `bytes`, which is at offset `base` of the lane.
    pub(super) fn new(kind: Kind, bytes: &'a [u8], base: u64) -> Self {
        Self { rest: bytes, len: bytes.len(), kind, base }
    }

    /// Returns how many bytes were read.
    pub(super) fn position(&self) -> usize {
        self.len - self.rest.len()
    }

    /// Returns how many bytes remain.
    pub(super) fn remaining(&self) -> usize {
        self.rest.len()
    }

    pub(super) fn kind(&self) -> Kind {
        self.kind
    }

    /// Returns the offset of the next byte in the lane.
    pub(super) fn offset(&self) -> u64 {
        self.base.saturating_add(self.position() as u64)
    }

    /// Takes all remaining bytes.
    pub(super) fn take_rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.rest)
    }

    /// Checks that no bytes remain.
    pub(super) fn finish(&self) -> Result<(), DecodeError> {
        match self.rest.len() {
            0 => Ok(()),
            count => Err(DecodeError::Trailing { count: count as u64, kind: self.kind }),
        }
    }

    /// Takes `len` bytes.
    pub(super) fn slice(&mut self, len: usize, field: &'static str) -> Result<&'a [u8], DecodeError> {
        let Some((head, rest)) = self.rest.split_at_checked(len) else {
            return Err(self.short(field));
        };
        self.rest = rest;
        Ok(head)
    }

    pub(super) fn array<const N: usize>(&mut self, field: &'static str) -> Result<[u8; N], DecodeError> {
        let Some((head, rest)) = self.rest.split_first_chunk::<N>() else {
            return Err(self.short(field));
        };
        self.rest = rest;
        Ok(*head)
    }

    pub(super) fn byte(&mut self, field: &'static str) -> Result<u8, DecodeError> {
        self.array::<1>(field).map(|[byte]| byte)
    }

    /// Reads one byte that is 0 or 1.
    pub(super) fn bool(&mut self, field: &'static str) -> Result<bool, DecodeError> {
        Ok(self.flags(1, field)? == 1)
    }

    /// Reads one byte in which only the bits of `known` may be set.
    pub(super) fn flags(&mut self, known: u8, field: &'static str) -> Result<u8, DecodeError> {
        let offset = self.offset();
        let byte = self.byte(field)?;
        if byte & !known == 0 { Ok(byte) } else { Err(self.value(u64::from(byte), offset, field)) }
    }

    /// Reads one byte that stands for a value.
    pub(super) fn choice<T>(
        &mut self,
        field: &'static str,
        meaning: impl FnOnce(u8) -> Option<T>,
    ) -> Result<T, DecodeError> {
        let offset = self.offset();
        let byte = self.byte(field)?;
        meaning(byte).ok_or_else(|| self.value(u64::from(byte), offset, field))
    }

    /// Reads an integer in its shortest LEB128 form.
    pub(super) fn u64(&mut self, field: &'static str) -> Result<u64, DecodeError> {
        let offset = self.offset();
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte(field)?;
            let bits = u64::from(byte & 0x7f);
            let overflows = shift == 63 && byte > 1;
            let overlong = byte == 0 && shift > 0;
            if overflows || overlong {
                return Err(DecodeError::Integer { kind: self.kind, offset });
            }
            value |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(DecodeError::Integer { kind: self.kind, offset })
    }

    /// Reads a signed integer: zigzag in LEB128.
    pub(super) fn i64(&mut self, field: &'static str) -> Result<i64, DecodeError> {
        let folded = self.u64(field)?;
        Ok((folded >> 1).cast_signed() ^ -(folded & 1).cast_signed())
    }

    /// Reads an integer of at most `limit`.
    pub(super) fn at_most(&mut self, limit: u64, field: &'static str) -> Result<u64, DecodeError> {
        let offset = self.offset();
        let value = self.u64(field)?;
        if value <= limit {
            Ok(value)
        } else {
            Err(DecodeError::Limit { kind: self.kind, field, value, limit, offset })
        }
    }

    pub(super) fn u32(&mut self, field: &'static str) -> Result<u32, DecodeError> {
        let offset = self.offset();
        let value = self.u64(field)?;
        u32::try_from(value).map_err(|_| DecodeError::Integer { kind: self.kind, offset })
    }

    pub(super) fn u16(&mut self, field: &'static str) -> Result<u16, DecodeError> {
        let offset = self.offset();
        let value = self.u64(field)?;
        u16::try_from(value).map_err(|_| DecodeError::Integer { kind: self.kind, offset })
    }

    /// Reads a count or length of at most `limit`.
    pub(super) fn len(&mut self, limit: usize, field: &'static str) -> Result<usize, DecodeError> {
        let offset = self.offset();
        let value = self.at_most(limit as u64, field)?;
        usize::try_from(value).map_err(|_| DecodeError::Integer { kind: self.kind, offset })
    }

    /// Reads a count of at most `limit` items of at least `item_len` bytes each. They must fit the
    /// remaining bytes, so memory for that many items may be allocated.
    pub(super) fn count(
        &mut self,
        limit: usize,
        item_len: usize,
        field: &'static str,
    ) -> Result<usize, DecodeError> {
        let count = self.len(limit, field)?;
        if count.saturating_mul(item_len) <= self.remaining() { Ok(count) } else { Err(self.short(field)) }
    }

    /// Reads a length of at most `limit` and that many bytes.
    pub(super) fn bytes(&mut self, limit: usize, field: &'static str) -> Result<&'a [u8], DecodeError> {
        let len = self.len(limit, field)?;
        self.slice(len, field)
    }

    pub(super) fn entry(&mut self) -> Result<EntryId, DecodeError> {
        self.u64("entry number").map(EntryId)
    }

    pub(super) fn file_len(&mut self, field: &'static str) -> Result<u64, DecodeError> {
        self.at_most(MAX_FILE_LEN, field)
    }

    pub(super) fn mode(&mut self, entry: EntryId) -> Result<u16, DecodeError> {
        let mode = self.u64("mode")?;
        match u16::try_from(mode) {
            Ok(bits) if bits <= MAX_MODE => Ok(bits),
            _ => Err(DecodeError::Mode { entry, mode }),
        }
    }

    /// Reads seconds and nanoseconds.
    pub(super) fn timestamp(&mut self, entry: EntryId) -> Result<Timestamp, DecodeError> {
        let seconds = self.i64("seconds")?;
        let nanoseconds = self.u32("nanoseconds")?;
        checked_timestamp(seconds, nanoseconds, entry)
    }

    /// Makes the error for a value without a meaning.
    pub(super) fn value(&self, value: u64, offset: u64, field: &'static str) -> DecodeError {
        DecodeError::Value { kind: self.kind, field, value, offset }
    }

    fn short(&self, field: &'static str) -> DecodeError {
        DecodeError::Short { kind: self.kind, field, offset: self.offset() }
    }
}

/// Makes a timestamp after checking that its parts are in range.
pub(super) fn checked_timestamp(
    seconds: i64,
    nanoseconds: u32,
    entry: EntryId,
) -> Result<Timestamp, DecodeError> {
    let timestamp = Timestamp { seconds, nanoseconds };
    if timestamp.is_valid() { Ok(timestamp) } else { Err(DecodeError::Timestamp { entry }) }
}
