//! The content of a `Batch`: small files, each with its outcome, one after the other.

use bytes::Bytes;

use super::{
    account::{decode_cause, encode_cause},
    reader::Reader,
    writer::Writer,
};
use dsync_delta::FileRoot;

use crate::{
    error::{DecodeError, EncodeError},
    kind::Kind,
    limits::{MAX_BATCH_RECORDS, MAX_RAW_FRAME},
    message::{EntryId, FileOutcome, Record},
};

/// Encodes the raw content of a batch, at most [`MAX_BATCH_RECORDS`] files and [`MAX_RAW_FRAME`] bytes.
///
/// # Errors
/// [`EncodeError`] when there are too many files or bytes, or a timestamp is no point in time.
pub fn encode_records(records: &[Record]) -> Result<Vec<u8>, EncodeError> {
    let size: usize = records.iter().map(|record| record.content.len() + MAX_RECORD_HEADER).sum();
    let mut out = Vec::with_capacity(size.min(MAX_RAW_FRAME as usize));
    let mut w = Writer::new(Kind::BATCH, &mut out);
    w.check(records.len() as u64, MAX_BATCH_RECORDS as u64, "number of files")?;
    for record in records {
        w.entry(record.entry);
        w.byte(record.attempt);
        encode_outcome(&record.outcome, &mut w)?;
        if let FileOutcome::Complete { .. } = record.outcome {
            w.bytes(&record.content, MAX_RAW_FRAME as usize, "file content")?;
        } else {
            w.valid(record.content.is_empty(), "content of a failed file")?;
        }
    }
    w.check(w.size(), u64::from(MAX_RAW_FRAME), "size of files")?;
    Ok(out)
}

/// Decodes the raw content of a batch. The contents of the records share the memory of `raw`.
///
/// # Errors
/// [`DecodeError`] when `raw` is not what [`encode_records`] makes.
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
        FileOutcome::Complete { .. } => {
            let len = r.len(MAX_RAW_FRAME as usize, "file content")?;
            let start = r.position();
            r.slice(len, "file content")?;
            raw.slice(start..start + len)
        }
        FileOutcome::Failed { .. } => Bytes::new(),
    };
    Ok(Record { entry, attempt, outcome, content })
}

fn encode_outcome(outcome: &FileOutcome, w: &mut Writer<'_>) -> Result<(), EncodeError> {
    match outcome {
        FileOutcome::Complete { mtime, root } => {
            w.byte(0);
            w.timestamp(*mtime)?;
            w.raw(root.as_bytes());
        }
        FileOutcome::Failed { cause } => {
            w.byte(1);
            encode_cause(*cause, w);
        }
    }
    Ok(())
}

fn decode_outcome(entry: EntryId, r: &mut Reader<'_>) -> Result<FileOutcome, DecodeError> {
    let offset = r.offset();
    Ok(match r.byte("outcome")? {
        0 => FileOutcome::Complete {
            mtime: r.timestamp(entry)?,
            root: FileRoot::from_bytes(r.array("file root")?),
        },
        1 => FileOutcome::Failed { cause: decode_cause(r)? },
        other => return Err(r.value(u64::from(other), offset, "outcome")),
    })
}

/// Bytes of a record beside its content, at most: entry 10, attempt 1, outcome 1, time 10 + 5, root 32,
/// length 3.
pub const MAX_RECORD_HEADER: usize = 62;
