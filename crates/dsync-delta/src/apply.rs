//! Applying: tokens become writes, copies and zero runs of one segment, each checked.
//!
//! An [`Applier`] takes the payloads of a segment in order and calls back with [`Step`]s that tile the
//! segment exactly, in order, clipped to it: what the tokens cover before the segment's start (the
//! lead) and after its end belongs to copies that straddle a border, which the neighbouring segment
//! holds as well.
//!
//! Every copy is checked against the destination's own layout of the basis; only copies may cross a
//! border; the lead and the overshoot stay below one block. It does no I/O and hashes nothing.

use std::ops::Range;

use crate::{
    block::{BlockRun, Layout},
    num::len_u64,
    segment::{SegmentError, Segments},
    token::{DecodeError, Token, TokenDecoder},
};

/// One thing to do to the new file. Steps never leave their segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Step<'a> {
    /// Write `bytes` at `offset` of the new file.
    Write {
        /// Where, in bytes from the new file's start.
        offset: u64,
        /// What; not empty.
        bytes: &'a [u8],
    },
    /// Copy from the basis.
    Copy {
        /// Where the bytes are in the basis.
        basis_offset: u64,
        /// Where they go in the new file.
        offset: u64,
        /// How many; at least 1.
        len: u64,
    },
    /// The new file has zeros here.
    Zero {
        /// Where, in bytes from the new file's start.
        offset: u64,
        /// How many; at least 1.
        len: u64,
    },
}

/// Turns the tokens of one segment into steps.
#[derive(Debug, Clone)]
pub struct Applier {
    basis: Option<Layout>,
    segment: Range<u64>,
    /// Where in the new file the next token starts.
    at: u64,
}

impl Applier {
    /// Starts segment `index` whose first token begins `lead` bytes before it.
    ///
    /// # Errors
    /// [`ApplyError::Segment`] for a segment that the file has not, [`ApplyError::LeadTooLong`] when
    /// the lead is not below the block length (without a basis: 0) or reaches before the file.
    pub fn new(
        basis: Option<Layout>,
        segments: &Segments,
        index: u64,
        lead: u32,
    ) -> Result<Self, ApplyError> {
        segments.check(index).map_err(ApplyError::Segment)?;
        let segment = segments.range(index);
        let allowed = basis.map_or(1, |layout| layout.block_len().get());
        let at = segment.start.checked_sub(u64::from(lead)).filter(|_| lead < allowed);
        match at {
            Some(at) => Ok(Self { basis, segment, at }),
            None => Err(ApplyError::LeadTooLong { lead }),
        }
    }

    /// Takes the next payload and calls `sink` with its steps.
    ///
    /// # Errors
    /// [`StepError::Apply`] for a malformed or impossible token, [`StepError::Sink`] with the sink's
    /// own error. After an error the segment cannot be continued.
    pub fn push<E>(
        &mut self,
        payload: &[u8],
        mut sink: impl FnMut(Step<'_>) -> Result<(), E>,
    ) -> Result<(), StepError<E>> {
        for token in TokenDecoder::new(payload) {
            let token = token.map_err(ApplyError::Token)?;
            if let Some(step) = self.step(token)? {
                sink(step).map_err(StepError::Sink)?;
            }
        }
        Ok(())
    }

    /// Bytes of the segment that steps were made for, in order from its start.
    pub fn position(&self) -> u64 {
        self.at.clamp(self.segment.start, self.segment.end) - self.segment.start
    }

    /// Checks that the tokens reached the segment's end.
    ///
    /// # Errors
    /// [`ApplyError::Incomplete`].
    pub fn finish(self) -> Result<(), ApplyError> {
        if self.at < self.segment.end {
            return Err(ApplyError::Incomplete { at: self.at, end: self.segment.end });
        }
        Ok(())
    }

    /// Checks one token and clips it; `None` when nothing of it lies in the segment.
    fn step<'a>(&mut self, token: Token<'a>) -> Result<Option<Step<'a>>, ApplyError> {
        if self.at >= self.segment.end {
            return Err(ApplyError::PastEnd { at: self.at, end: self.segment.end });
        }
        let offset = self.at;
        match token {
            Token::Literal(bytes) => {
                self.advance_within(len_u64(bytes.len()))?;
                Ok(Some(Step::Write { offset, bytes }))
            }
            Token::Zero(len) => {
                self.advance_within(len)?;
                Ok(Some(Step::Zero { offset, len }))
            }
            Token::Copy(run) => self.copy(run),
        }
    }

    /// Moves on over bytes that must all lie in the segment.
    fn advance_within(&mut self, len: u64) -> Result<(), ApplyError> {
        let end = self.at.checked_add(len).filter(|&end| end <= self.segment.end);
        match end {
            Some(end) if self.at >= self.segment.start => {
                self.at = end;
                Ok(())
            }
            _ => Err(ApplyError::NotACopyAtBorder { at: self.at }),
        }
    }

    fn copy(&mut self, run: BlockRun) -> Result<Option<Step<'static>>, ApplyError> {
        let layout = self.basis.ok_or(ApplyError::NoBasis)?;
        let source = layout.run_range(run).ok_or(ApplyError::CopyPastBasis {
            first: run.first().0,
            count: run.count(),
            blocks: layout.block_count(),
        })?;
        let end = self.at.saturating_add(source.end - source.start);
        let overshoot = end.saturating_sub(self.segment.end);
        if overshoot >= u64::from(layout.block_len().get()) {
            return Err(ApplyError::PastEnd { at: end, end: self.segment.end });
        }
        let cut = self.segment.start.saturating_sub(self.at);
        let offset = self.at + cut;
        self.at = end;
        if end <= offset {
            return Ok(None);
        }
        let len = end - overshoot - offset;
        Ok(Some(Step::Copy { basis_offset: source.start + cut, offset, len }))
    }
}

/// Why the tokens of a segment were rejected. The peer's fault, always.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ApplyError {
    /// There is no such segment.
    #[error("cannot apply tokens to the segment")]
    Segment(#[source] SegmentError),
    /// The tokens begin too far before the segment.
    #[error("tokens begin {lead} bytes before the segment")]
    LeadTooLong {
        /// Bytes before the segment.
        lead: u32,
    },
    /// The payload is malformed.
    #[error("malformed token")]
    Token(#[source] DecodeError),
    /// A copy, but the file has no basis.
    #[error("copy without a basis")]
    NoBasis,
    /// A copy of blocks that the basis has not.
    #[error("copy of {count} blocks from block {first} on, but the basis has {blocks}")]
    CopyPastBasis {
        /// First block.
        first: u64,
        /// Number of blocks.
        count: u64,
        /// Blocks of the basis.
        blocks: u64,
    },
    /// A literal or zero run that crosses a border of the segment.
    #[error("literal or zero run at {at} leaves the segment")]
    NotACopyAtBorder {
        /// Where it starts in the new file.
        at: u64,
    },
    /// Tokens after the segment's end, or a copy a block or more beyond it.
    #[error("tokens reach {at}, the segment ends at {end}")]
    PastEnd {
        /// How far they reach in the new file.
        at: u64,
        /// The segment's end in the new file.
        end: u64,
    },
    /// The tokens end before the segment does.
    #[error("tokens end at {at}, the segment at {end}")]
    Incomplete {
        /// How far they reach in the new file.
        at: u64,
        /// The segment's end in the new file.
        end: u64,
    },
}

/// Why applying stopped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StepError<E> {
    /// The tokens were rejected.
    #[error(transparent)]
    Apply(#[from] ApplyError),
    /// The sink could not carry a step out.
    #[error("cannot carry a step out")]
    Sink(#[source] E),
}
