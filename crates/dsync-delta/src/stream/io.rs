//! The machines, with a reader on one side and a writer on the other.

use std::io::{self, ErrorKind, Read, Seek, SeekFrom, Write};

use super::{
    apply::{ApplyCounts, ApplyOptions, DeltaApplier},
    delta::{DeltaCounts, DeltaWriter},
    error::{FormatError, StreamError},
    signature::{SignatureCounts, SignatureOptions, SignatureReader, SignatureWriter},
};
use crate::{index::IndexedSignature, num::len_u64};

/// Reads a basis to its end and writes its signature.
///
/// # Errors
/// [`StreamError::File`] and [`StreamError::Output`].
///
/// ```
/// use dsync_delta::stream::{SignatureOptions, signature};
///
/// let mut out = Vec::new();
/// let counts = signature([7; 20_000].as_slice(), &mut out, &SignatureOptions::new())?;
/// assert_eq!((counts.block_count, counts.signature_len), (3, 124));
/// # Ok::<(), dsync_delta::stream::StreamError>(())
/// ```
pub fn signature(
    mut basis: impl Read,
    mut out: impl Write,
    options: &SignatureOptions,
) -> Result<SignatureCounts, StreamError> {
    let (mut buffer, mut pending) = (vec![0; READ_LEN], Vec::new());
    let mut writer = SignatureWriter::new(options, &mut pending);
    loop {
        let got = read(&mut basis, &mut buffer).map_err(StreamError::File)?;
        if got == 0 {
            break;
        }
        writer.push(&buffer[..got], &mut pending);
        write(&mut out, &mut pending)?;
    }

    let counts = writer.finish(&mut pending);
    write(&mut out, &mut pending)?;
    out.flush().map_err(StreamError::Output)?;
    Ok(counts)
}

/// Reads a signature of at most `max_blocks` blocks to its end and makes it searchable.
///
/// # Errors
/// [`StreamError::Input`] and [`StreamError::Format`].
///
/// # Security
/// Whoever wrote the signature decides on its length: memory is at most five times the bytes that
/// really arrive, and `max_blocks` bounds them (12 bytes per block).
pub fn read_signature(mut input: impl Read, max_blocks: u64) -> Result<IndexedSignature, StreamError> {
    let mut buffer = vec![0; READ_LEN];
    let mut reader = SignatureReader::new(max_blocks);
    loop {
        let got = read(&mut input, &mut buffer).map_err(StreamError::Input)?;
        if got == 0 {
            break;
        }
        reader.push(&buffer[..got])?;
    }
    Ok(reader.finish()?)
}

/// Reads a new file to its end and writes its delta against the basis of a signature.
///
/// # Errors
/// [`StreamError::File`] and [`StreamError::Output`].
pub fn delta(
    index: &IndexedSignature,
    mut new: impl Read,
    mut out: impl Write,
) -> Result<DeltaCounts, StreamError> {
    let (mut buffer, mut pending) = (vec![0; READ_LEN], Vec::new());
    let mut writer = DeltaWriter::new(index, &mut pending);
    loop {
        let got = read(&mut new, &mut buffer).map_err(StreamError::File)?;
        if got == 0 {
            break;
        }
        writer.push(&buffer[..got], &mut pending);
        write(&mut out, &mut pending)?;
    }

    let counts = writer.finish(&mut pending);
    write(&mut out, &mut pending)?;
    out.flush().map_err(StreamError::Output)?;
    Ok(counts)
}

/// Reads a delta to its end, applies it to the basis, writes the new file and verifies it.
///
/// The output is not verified before success is returned; see [`crate::stream`].
///
/// # Errors
/// [`StreamError`]. A basis of another length is [`FormatError::BasisLength`] before anything is
/// written, one of the same length and other content [`FormatError::WrongRoot`] at the end.
///
/// # Security
/// A short delta can write without end; [`ApplyOptions::max_len`] bounds it.
pub fn apply(
    mut basis: impl Read + Seek,
    mut delta: impl Read,
    mut out: impl Write,
    options: &ApplyOptions,
) -> Result<ApplyCounts, StreamError> {
    let (mut buffer, mut rebuilt) = (vec![0; READ_LEN], vec![0; READ_LEN]);
    let mut applier = DeltaApplier::new(options);
    let mut position = basis.seek(SeekFrom::End(0)).map_err(StreamError::File)?;
    let found = position;
    let mut read_at = |offset: u64, bytes: &mut [u8]| {
        if position != offset {
            position = basis.seek(SeekFrom::Start(offset))?;
        }
        let got = read(&mut basis, bytes)?;
        position += len_u64(got);
        Ok(got)
    };

    loop {
        let got = read(&mut delta, &mut buffer).map_err(StreamError::Input)?;
        if got == 0 {
            break;
        }
        let mut piece = &buffer[..got];
        while !piece.is_empty() || applier.has_output() {
            piece = &piece[applier.push(piece)?..];
            if let Some(expected) = applier.basis_len().filter(|&expected| expected != found) {
                return Err(FormatError::BasisLength { expected, found }.into());
            }
            let filled = applier.pull(&mut rebuilt, &mut read_at)?;
            out.write_all(&rebuilt[..filled]).map_err(StreamError::Output)?;
        }
    }

    let counts = applier.finish()?;
    out.flush().map_err(StreamError::Output)?;
    Ok(counts)
}

/// Reads some bytes; 0 only at the end.
fn read(reader: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    loop {
        match reader.read(buffer) {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            other => return other,
        }
    }
}

/// Writes what is pending.
fn write(out: &mut impl Write, pending: &mut Vec<u8>) -> Result<(), StreamError> {
    if !pending.is_empty() {
        out.write_all(pending).map_err(StreamError::Output)?;
        pending.clear();
    }
    Ok(())
}

/// Bytes per read: from 256 KiB on reads of files are fastest.
const READ_LEN: usize = 256 << 10;
