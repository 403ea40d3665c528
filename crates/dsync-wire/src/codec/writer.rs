//! Appends fields to a payload; refuses whatever the other end would have to refuse.

use crate::{
    error::EncodeError,
    kind::Kind,
    limits::{MAX_FILE_LEN, MAX_MODE},
    message::{EntryId, Timestamp},
};

/// The growing end of one payload.
#[derive(Debug)]
pub(super) struct Writer<'a> {
    out: &'a mut Vec<u8>,
    kind: Kind,
}

impl<'a> Writer<'a> {
    pub(super) fn new(kind: Kind, out: &'a mut Vec<u8>) -> Self {
        Self { out, kind }
    }

    /// Returns the length of the whole output in bytes.
    pub(super) fn size(&self) -> u64 {
        self.out.len() as u64
    }

    pub(super) fn byte(&mut self, byte: u8) {
        self.out.push(byte);
    }

    pub(super) fn bool(&mut self, value: bool) {
        self.byte(u8::from(value));
    }

    /// Appends one byte: `code` and the bits whose condition holds.
    pub(super) fn flags(&mut self, code: u8, bits: &[(u8, bool)]) {
        self.byte(bits.iter().fold(code, |byte, (bit, on)| if *on { byte | bit } else { byte }));
    }

    pub(super) fn raw(&mut self, bytes: &[u8]) {
        self.out.extend_from_slice(bytes);
    }

    /// Appends an integer in its shortest LEB128 form.
    #[expect(clippy::cast_possible_truncation, reason = "seven bits at a time")]
    pub(super) fn u64(&mut self, mut value: u64) {
        while value > 0x7f {
            self.byte(value as u8 | 0x80);
            value >>= 7;
        }
        self.byte(value as u8);
    }

    /// Appends a signed integer: zigzag in LEB128.
    pub(super) fn i64(&mut self, value: i64) {
        self.u64((value << 1).cast_unsigned() ^ (value >> 63).cast_unsigned());
    }

    pub(super) fn u32(&mut self, value: u32) {
        self.u64(u64::from(value));
    }

    pub(super) fn u16(&mut self, value: u16) {
        self.u64(u64::from(value));
    }

    /// Checks a number against its limit.
    pub(super) fn check(&self, value: u64, limit: u64, field: &'static str) -> Result<(), EncodeError> {
        if value <= limit { Ok(()) } else { Err(self.refused(field, value, Some(limit))) }
    }

    /// Appends a number of at most `limit`.
    pub(super) fn at_most(&mut self, value: u64, limit: u64, field: &'static str) -> Result<(), EncodeError> {
        self.check(value, limit, field)?;
        self.u64(value);
        Ok(())
    }

    /// Appends a count of at most `limit`.
    pub(super) fn count(
        &mut self,
        count: usize,
        limit: usize,
        field: &'static str,
    ) -> Result<(), EncodeError> {
        self.at_most(count as u64, limit as u64, field)
    }

    /// Appends a length of at most `limit` and the bytes.
    pub(super) fn bytes(
        &mut self,
        bytes: &[u8],
        limit: usize,
        field: &'static str,
    ) -> Result<(), EncodeError> {
        self.count(bytes.len(), limit, field)?;
        self.raw(bytes);
        Ok(())
    }

    pub(super) fn entry(&mut self, entry: EntryId) {
        self.u64(entry.0);
    }

    pub(super) fn file_len(&mut self, len: u64, field: &'static str) -> Result<(), EncodeError> {
        self.at_most(len, MAX_FILE_LEN, field)
    }

    pub(super) fn mode(&mut self, mode: u16) -> Result<(), EncodeError> {
        self.at_most(u64::from(mode), u64::from(MAX_MODE), "mode")
    }

    pub(super) fn timestamp(&mut self, timestamp: Timestamp) -> Result<(), EncodeError> {
        self.valid(timestamp.is_valid(), "timestamp")?;
        self.i64(timestamp.seconds);
        self.u32(timestamp.nanoseconds);
        Ok(())
    }

    /// Fails unless `valid`.
    pub(super) fn valid(&self, valid: bool, field: &'static str) -> Result<(), EncodeError> {
        if valid { Ok(()) } else { Err(self.refused(field, 0, None)) }
    }

    /// Makes the error for a value beyond its limit or without a meaning.
    pub(super) fn refused(&self, field: &'static str, value: u64, limit: Option<u64>) -> EncodeError {
        match limit {
            Some(limit) => EncodeError::Limit { kind: self.kind, field, value, limit },
            None => EncodeError::Value { kind: self.kind, field },
        }
    }
}
