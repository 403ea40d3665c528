//! The four kinds of jobs, without pointers.
#![deny(unsafe_code)]

use std::{fmt, io, sync::Arc};

use dsync_delta::{
    IndexedSignature,
    stream::{
        ApplyOptions, DeltaApplier, DeltaWriter, FormatError, SignatureOptions, SignatureReader,
        SignatureWriter, StreamError,
    },
};

use crate::Outcome;

/// A job between two calls. C knows it only by its address.
#[derive(Debug)]
pub struct Job {
    work: Work,
    /// Output that did not fit the caller's buffer, from `written` on.
    pending: Vec<u8>,
    written: usize,
    end: Option<Outcome>,
}

#[derive(Debug)]
enum Work {
    Signature(Box<SignatureWriter>),
    Load(Box<SignatureReader>),
    Loaded(Arc<IndexedSignature>),
    Delta(Box<DeltaWriter<Arc<IndexedSignature>>>),
    Apply(Box<Apply>),
    Nothing,
}

/// A delta that is applied.
#[derive(Debug)]
struct Apply {
    applier: DeltaApplier,
    basis: Basis,
    /// Room for the output of a step, at most [`STEP_LEN`]. It is kept, as a caller with short buffers
    /// makes a step for every few bytes.
    room: Vec<u8>,
}

/// A function that reads the basis.
type BasisReader = Box<dyn FnMut(u64, &mut [u8]) -> io::Result<usize>>;

struct Basis(BasisReader);

impl fmt::Debug for Basis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Basis(..)")
    }
}

impl Job {
    pub(crate) fn signature(options: &SignatureOptions) -> Self {
        let mut pending = Vec::new();
        let work = Work::Signature(Box::new(SignatureWriter::new(options, &mut pending)));
        Self { pending, ..Self::of(work) }
    }

    pub(crate) fn load(max_blocks: u64) -> Self {
        Self::of(Work::Load(Box::new(SignatureReader::new(max_blocks))))
    }

    pub(crate) fn delta(index: Arc<IndexedSignature>) -> Self {
        let mut pending = Vec::new();
        let work = Work::Delta(Box::new(DeltaWriter::new(index, &mut pending)));
        Self { pending, ..Self::of(work) }
    }

    pub(crate) fn apply(options: &ApplyOptions, read: BasisReader) -> Self {
        let (applier, basis) = (DeltaApplier::new(options), Basis(read));
        Self::of(Work::Apply(Box::new(Apply { applier, basis, room: Vec::new() })))
    }

    fn of(work: Work) -> Self {
        Self { work, pending: Vec::new(), written: 0, end: None }
    }

    /// Returns the output that the caller has not got yet.
    pub(crate) fn output(&self) -> &[u8] {
        self.pending.get(self.written..).unwrap_or_default()
    }

    /// Forgets output that the caller has got.
    pub(crate) fn release(&mut self, len: usize) {
        self.written += len;
        if self.written >= self.pending.len() {
            self.pending.clear();
            self.written = 0;
        }
    }

    /// Returns how the job ended, if it has.
    pub(crate) fn ended(&self) -> Option<Outcome> {
        self.end
    }

    /// Ends the job with an error and drops its output.
    pub(crate) fn fail(&mut self, outcome: Outcome) {
        (self.work, self.end) = (Work::Nothing, Some(outcome));
        self.release(usize::MAX >> 1);
    }

    /// Returns whether the job can go on without input.
    pub(crate) fn has_work(&self) -> bool {
        matches!(&self.work, Work::Apply(apply) if apply.applier.has_output())
    }

    /// Takes a loaded signature, once.
    pub(crate) fn take_signature(&mut self) -> Option<Arc<IndexedSignature>> {
        match std::mem::replace(&mut self.work, Work::Nothing) {
            Work::Loaded(index) => Some(index),
            other => {
                self.work = other;
                None
            }
        }
    }

    /// Works on some input; returns the number of bytes taken. With `is_last`, the end of the input
    /// ends the job.
    pub(crate) fn step(&mut self, input: &[u8], is_last: bool) -> usize {
        let piece = &input[..input.len().min(STEP_LEN)];
        let is_end = is_last && input.is_empty();
        match self.advance(piece, is_end) {
            Ok(taken) => taken,
            Err(error) => {
                self.fail(outcome(&error));
                0
            }
        }
    }

    fn advance(&mut self, piece: &[u8], is_end: bool) -> Result<usize, StreamError> {
        match &mut self.work {
            Work::Signature(writer) => writer.push(piece, &mut self.pending),
            Work::Load(reader) => reader.push(piece)?,
            Work::Delta(writer) => writer.push(piece, &mut self.pending),
            Work::Apply(apply) => {
                let taken = apply.applier.push(piece)?;
                let is_done = is_end && !apply.applier.has_output();
                apply.pull(&mut self.pending)?;
                if is_done {
                    self.finish()?;
                }
                return Ok(taken);
            }
            Work::Loaded(_) | Work::Nothing => {}
        }

        if is_end {
            self.finish()?;
        }
        Ok(piece.len())
    }

    /// Ends the job at the end of its input.
    fn finish(&mut self) -> Result<(), FormatError> {
        match std::mem::replace(&mut self.work, Work::Nothing) {
            Work::Signature(writer) => drop(writer.finish(&mut self.pending)),
            Work::Load(reader) => self.work = Work::Loaded(Arc::new(reader.finish()?)),
            Work::Delta(writer) => drop(writer.finish(&mut self.pending)),
            Work::Apply(apply) => drop(apply.applier.finish()?),
            other @ Work::Loaded(_) => self.work = other,
            Work::Nothing => {}
        }
        self.end = Some(Outcome::Done);
        Ok(())
    }
}

impl Apply {
    /// Appends output of at most one step to `pending`.
    fn pull(&mut self, pending: &mut Vec<u8>) -> Result<(), StreamError> {
        if !self.applier.has_output() {
            return Ok(());
        }

        self.room.resize(STEP_LEN, 0);
        let filled = self.applier.pull(&mut self.room, &mut self.basis.0)?;
        pending.extend_from_slice(&self.room[..filled]);
        Ok(())
    }
}

/// Returns the result for an error.
fn outcome(error: &StreamError) -> Outcome {
    let StreamError::Format(error) = error else { return Outcome::ErrorRead };
    match error {
        FormatError::Foreign | FormatError::NotASignature | FormatError::NotADelta => Outcome::ErrorForeign,
        FormatError::Version { .. } | FormatError::Parameter => Outcome::ErrorVersion,
        FormatError::Truncated { .. } => Outcome::ErrorTruncated,
        FormatError::TooManyBlocks { .. } | FormatError::TooLong { .. } => Outcome::ErrorLimit,
        FormatError::BasisLength { .. } | FormatError::WrongRoot => Outcome::ErrorBasis,
        FormatError::Ended => Outcome::ErrorInternal,
        _ => Outcome::ErrorDamaged,
    }
}

/// Bytes of input taken, and of output made, in one step: BLAKE3 and reads of files are fast from
/// here on, and a job holds at most two such pieces.
const STEP_LEN: usize = 256 << 10;
