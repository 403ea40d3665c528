//! The content of a `Batch`: small files, each with its outcome, one after the other.

use bytes::Bytes;

use super::{
    account::{decode_outcome, encode_outcome},
    reader::Reader,
    writer::Writer,
};
use crate::{
    error::{DecodeError, EncodeError},
    kind::Kind,
    limits::{MAX_BATCH_RECORDS, MAX_RAW_FRAME},
    message::{Cause, EntryId, Record, Timestamp},
};

/// Makes the raw content of a batch file by file. File contents are read straight into their place,
/// without another copy.
#[derive(Debug, Default)]
pub struct RecordsEncoder {
    out: Vec<u8>,
    count: u64,
    /// Start of the last record.
    last: usize,
}

impl RecordsEncoder {
    /// Begins a batch of about `bytes` bytes.
    pub fn with_capacity(bytes: usize) -> Self {
        Self { out: Vec::with_capacity(bytes), ..Self::default() }
    }

    /// Returns the number of bytes so far.
    pub fn size(&self) -> usize {
        self.out.len()
    }

    /// Returns whether the batch holds no file.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Appends a file with room for `len` bytes of content, which are zeros until written.
    ///
    /// # Errors
    /// [`EncodeError`] if the time is no point in time or the content is too long; nothing is
    /// appended then.
    pub fn file(
        &mut self,
        (entry, attempt): (EntryId, u8),
        mtime: Timestamp,
        len: usize,
    ) -> Result<&mut [u8], EncodeError> {
        self.append((entry, attempt), Ok(mtime), |w| w.count(len, MAX_RAW_FRAME as usize, "file content"))?;
        let start = self.out.len();
        self.out.resize(start + len, 0);
        Ok(&mut self.out[start..])
    }

    /// Appends a file that could not be read.
    ///
    /// # Errors
    /// [`EncodeError`], which an honest cause never meets.
    pub fn failure(&mut self, (entry, attempt): (EntryId, u8), cause: Cause) -> Result<(), EncodeError> {
        self.append((entry, attempt), Err(cause), |_| Ok(()))
    }

    /// Removes the file that was appended last.
    pub fn undo(&mut self) {
        if self.last < self.out.len() {
            self.out.truncate(self.last);
            self.count -= 1;
        }
    }

    /// Returns the raw content.
    ///
    /// # Errors
    /// [`EncodeError`] if there are more than [`MAX_BATCH_RECORDS`] files or [`MAX_RAW_FRAME`]
    /// bytes.
    pub fn finish(self) -> Result<Vec<u8>, EncodeError> {
        let Self { mut out, count, .. } = self;
        let w = Writer::new(Kind::BATCH, &mut out);
        w.check(count, MAX_BATCH_RECORDS as u64, "number of files")?;
        w.check(w.size(), u64::from(MAX_RAW_FRAME), "size of files")?;
        Ok(out)
    }

    fn append(
        &mut self,
        (entry, attempt): (EntryId, u8),
        outcome: Result<Timestamp, Cause>,
        rest: impl FnOnce(&mut Writer<'_>) -> Result<(), EncodeError>,
    ) -> Result<(), EncodeError> {
        self.last = self.out.len();
        let mut w = Writer::new(Kind::BATCH, &mut self.out);
        w.entry(entry);
        w.byte(attempt);
        let result = encode_outcome(outcome, &mut w).and_then(|()| rest(&mut w));
        match result {
            Ok(()) => self.count += 1,
            Err(_) => self.out.truncate(self.last),
        }
        result
    }
}

/// Encodes the raw content of a batch, at most [`MAX_BATCH_RECORDS`] files and [`MAX_RAW_FRAME`]
/// bytes.
///
/// # Errors
/// [`EncodeError`] if there are too many files or bytes, or a timestamp is no point in time.
pub fn encode_records(records: &[Record]) -> Result<Vec<u8>, EncodeError> {
    let mut encoder = RecordsEncoder::default();
    for record in records {
        let key = (record.entry, record.attempt);
        match record.outcome {
            Ok(mtime) => {
                encoder.file(key, mtime, record.content.len())?.copy_from_slice(&record.content);
            }
            Err(_) if !record.content.is_empty() => {
                return Err(EncodeError::Value { kind: Kind::BATCH, field: "content of a failed file" });
            }
            Err(cause) => encoder.failure(key, cause)?,
        }
    }
    encoder.finish()
}

/// Decodes the raw content of a batch. The contents of the records share the memory of `raw`.
///
/// # Errors
/// [`DecodeError`] if `raw` is not in the form that [`encode_records`] makes.
pub fn decode_records(raw: &Bytes) -> Result<Vec<Record>, DecodeError> {
    let mut r = Reader::new(Kind::BATCH, raw, 0);
    let mut records = Vec::new();
    while r.remaining() > 0 {
        let offset = r.offset();
        if records.len() == MAX_BATCH_RECORDS {
            return Err(DecodeError::Limit {
                kind: Kind::BATCH,
                field: "number of files",
                value: records.len() as u64 + 1,
                limit: MAX_BATCH_RECORDS as u64,
                offset,
            });
        }
        records.push(decode_record(&mut r, raw)?);
    }
    Ok(records)
}

fn decode_record(r: &mut Reader<'_>, raw: &Bytes) -> Result<Record, DecodeError> {
    let entry = r.entry()?;
    let attempt = r.byte("attempt")?;
    let outcome = decode_outcome(entry, r)?;
    let content = match outcome {
        Ok(_) => {
            let len = r.len(MAX_RAW_FRAME as usize, "file content")?;
            let start = r.position();
            r.slice(len, "file content")?;
            raw.slice(start..start + len)
        }
        Err(_) => Bytes::new(),
    };
    Ok(Record { entry, attempt, outcome, content })
}

/// Most bytes of a record beside its content: entry 10, attempt 1, outcome 1, time 10 + 5, length
/// 3.
pub const MAX_RECORD_HEADER: usize = 30;
