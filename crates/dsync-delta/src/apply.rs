//! Applying: tokens become writes, copies and zero runs of one segment, each checked.
//!
//! An [`Applier`] takes the payloads of a segment in order and calls back with [`Step`]s. The steps
//! tile the segment exactly and in order. Tokens may cover bytes before the segment's start (the
//! lead) and after its end: these belong to copies that straddle a border, and the neighbouring
//! segment holds them as well. Steps are clipped to the segment.
//!
//! Every copy is checked against the destination's own layout of the basis. Only copies may cross a
//! border, and the lead and the overshoot stay below one block. The applier does no I/O and hashes
//! nothing.

use std::ops::Range;

use crate::{
    block::{BlockRun, Layout},
    num::len_u64,
    segment::{SegmentError, Segments},
    token::{DecodeError, Token, TokenDecoder},
};

/// One change to the new file. Steps never leave their segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Step<'a> {
    /// Write `bytes` at `offset` of the new file.
    Write {
        /// Offset from the new file's start, in bytes.
        offset: u64,
        /// The bytes to write; not empty.
        bytes: &'a [u8],
    },
    /// Copy from the basis.
    Copy {
        /// Offset of the bytes in the basis.
        basis_offset: u64,
        /// Offset in the new file.
        offset: u64,
        /// Number of bytes, at least 1.
        len: u64,
    },
    /// Make a range of the new file zeros.
    Zero {
        /// Offset from the new file's start, in bytes.
        offset: u64,
        /// Number of bytes, at least 1.
        len: u64,
    },
}

/// Turns the tokens of one segment into steps.
///
/// ```
/// use dsync_delta::{Applier, Segments, Step, StepError, Token, TokenEncoder};
///
/// let mut tokens = TokenEncoder::new();
/// tokens.push(Token::Literal(b"abc"));
/// tokens.push(Token::Zero(5));
///
/// // The file has one segment of eight bytes, and no basis.
/// let mut applier = Applier::new(None, &Segments::for_file(8)?, 0, 0)?;
/// let mut file = [b'?'; 8];
/// applier.push(&tokens.take(), |step| {
///     match step {
///         Step::Write { offset, bytes } => {
///             file[offset as usize..][..bytes.len()].copy_from_slice(bytes)
///         }
///         Step::Zero { offset, len } => file[offset as usize..][..len as usize].fill(0),
///         other => return Err(std::io::Error::other(format!("no basis for {other:?}"))),
///     }
///     Ok(())
/// })?;
/// assert_eq!((applier.position(), &file), (8, b"abc\0\0\0\0\0"));
/// applier.finish()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct Applier {
    basis: Option<Layout>,
    segment: Range<u64>,
    /// Offset in the new file of the next token.
    at: u64,
    /// Number of tokens that may still arrive.
    tokens_left: u64,
}

impl Applier {
    /// Starts segment `index`, whose first token begins `lead` bytes before it.
    ///
    /// # Errors
    /// [`ApplyError::Segment`] if the file has no such segment. [`ApplyError::LeadTooLong`] if the
    /// lead is not below the block length (0 without a basis) or reaches before the start of the
    /// file.
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
            Some(at) => {
                let tokens_left = most_tokens(segment.end - segment.start);
                Ok(Self { basis, segment, at, tokens_left })
            }
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
            let most = most_tokens(self.segment.end - self.segment.start);
            self.tokens_left = self.tokens_left.checked_sub(1).ok_or(ApplyError::TooManyTokens { most })?;
            if let Some(step) = self.step(token)? {
                sink(step).map_err(StepError::Sink)?;
            }
        }
        Ok(())
    }

    /// Returns how many bytes of the segment steps were made for, counted from its start.
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

    /// Checks one token and clips it; returns `None` if no part of it lies in the segment.
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

    /// Advances over bytes that must all lie in the segment.
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
        let source = layout.run_range(run).ok_or_else(|| ApplyError::CopyPastBasis {
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

/// Returns the largest number of tokens that a segment of `len` bytes may have: per KiB a copy of
/// the shortest block with a literal and a zero run beside it, and some for the segment's ends.
/// Each token may cost the receiver a system call. A peer that sends single bytes thus gets no more
/// of them than an honest one.
///
/// ```
/// // A receiver sets aside no more than this for a segment of 1 MiB, whatever its peer announces.
/// let bound = dsync_delta::most_tokens(1 << 20);
/// assert!(bound < 1 << 20);
/// ```
pub const fn most_tokens(len: u64) -> u64 {
    256 + 4 * (len / 1024)
}

/// The reason why the tokens of a segment were rejected; always the peer's fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ApplyError {
    /// The file has no such segment.
    #[error("cannot apply tokens to the segment")]
    Segment(#[source] SegmentError),
    /// The tokens begin too far before the segment.
    #[error("tokens begin {lead} bytes before the segment")]
    LeadTooLong {
        /// Bytes before the segment.
        lead: u32,
    },
    /// There are more tokens than any search makes of that many bytes.
    #[error("more than {most} tokens in a segment")]
    TooManyTokens {
        /// Tokens that the segment may have.
        most: u64,
    },
    /// The payload is malformed.
    #[error("malformed token")]
    Token(#[source] DecodeError),
    /// A copy, although the file has no basis.
    #[error("copy without a basis")]
    NoBasis,
    /// A copy of blocks beyond the end of the basis.
    #[error("copy of {count} blocks from block {first} on, but the basis has {blocks}")]
    CopyPastBasis {
        /// First block.
        first: u64,
        /// Number of blocks.
        count: u64,
        /// Number of blocks in the basis.
        blocks: u64,
    },
    /// A literal or zero run that crosses a border of the segment.
    #[error("literal or zero run at {at} leaves the segment")]
    NotACopyAtBorder {
        /// Offset of its start in the new file.
        at: u64,
    },
    /// Tokens after the segment's end, or a copy a block or more beyond it.
    #[error("tokens reach {at}, the segment ends at {end}")]
    PastEnd {
        /// Offset in the new file that the tokens reach.
        at: u64,
        /// The segment's end in the new file.
        end: u64,
    },
    /// The tokens end before the segment does.
    #[error("tokens end at {at}, the segment at {end}")]
    Incomplete {
        /// Offset in the new file that the tokens reach.
        at: u64,
        /// The segment's end in the new file.
        end: u64,
    },
}

/// The reason why applying stopped: the tokens or the sink, there is no third.
#[derive(Debug, thiserror::Error)]
pub enum StepError<E> {
    /// The applier rejected the tokens.
    #[error(transparent)]
    Apply(#[from] ApplyError),
    /// The sink failed to carry out a step.
    #[error("cannot carry a step out")]
    Sink(#[source] E),
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::convert::Infallible;

    use proptest::prelude::*;

    use super::*;
    use crate::{
        block::{BlockIndex, BlockLen},
        token::TokenEncoder,
    };

    const MIB: u64 = 1 << 20;

    /// Returns a basis of 1000 blocks and a tail of 100 bytes.
    fn layout() -> Layout {
        Layout::new((1000 << 10) + 100, BlockLen::MIN)
    }

    fn segments() -> Segments {
        Segments::new(3 * MIB + 5, 20).unwrap()
    }

    fn copy(first: u64, count: u64) -> Token<'static> {
        Token::Copy(BlockRun::new(BlockIndex(first), count).unwrap())
    }

    /// Applies tokens to a segment and returns (offset, length) of each step.
    fn steps(index: u64, lead: u32, tokens: &[Token<'_>]) -> Result<Vec<(u64, u64)>, ApplyError> {
        let mut encoder = TokenEncoder::new();
        tokens.iter().for_each(|&token| encoder.push(token));
        let mut applier = Applier::new(Some(layout()), &segments(), index, lead)?;
        let mut steps = Vec::new();
        let pushed = applier.push(&encoder.take(), |step| {
            steps.push(match step {
                Step::Write { offset, bytes } => (offset, len_u64(bytes.len())),
                Step::Copy { offset, len, .. } | Step::Zero { offset, len } => (offset, len),
            });
            Ok::<_, Infallible>(())
        });
        match pushed {
            Err(StepError::Apply(error)) => return Err(error),
            Err(StepError::Sink(never)) => match never {},
            Ok(()) => applier.finish()?,
        }
        Ok(steps)
    }

    #[test]
    fn copies_are_clipped_at_both_borders() {
        let tokens = [copy(7, 1), Token::Zero(MIB - 124 - 1), copy(9, 1)];
        let expected = vec![(MIB, 124), (MIB + 124, MIB - 125), (2 * MIB - 1, 1)];
        assert_eq!(steps(1, 900, &tokens), Ok(expected));
    }

    #[test]
    fn short_last_block_has_its_real_length() {
        assert_eq!(
            steps(3, 96, &[copy(1000, 1), Token::Literal(b"x")]),
            Ok(vec![(3 * MIB, 4), (3 * MIB + 4, 1)])
        );
    }

    #[test]
    fn copy_past_last_block_is_rejected() {
        let error = ApplyError::CopyPastBasis { first: 1000, count: 2, blocks: 1001 };
        assert_eq!(steps(0, 0, &[copy(1000, 2)]), Err(error));
        let error = ApplyError::CopyPastBasis { first: 1 << 50, count: 1, blocks: 1001 };
        assert_eq!(steps(0, 0, &[copy(1 << 50, 1)]), Err(error));
    }

    #[test]
    fn only_copies_may_cross_borders() {
        let literal = Token::Literal(b"0123456789");
        assert_eq!(steps(1, 5, &[literal]), Err(ApplyError::NotACopyAtBorder { at: MIB - 5 }));
        assert_eq!(steps(1, 5, &[Token::Zero(9)]), Err(ApplyError::NotACopyAtBorder { at: MIB - 5 }));
        let over = [Token::Zero(MIB - 1), Token::Literal(b"ab")];
        assert_eq!(steps(0, 0, &over), Err(ApplyError::NotACopyAtBorder { at: MIB - 1 }));
        let over = [Token::Zero(u64::MAX >> 2)];
        assert_eq!(steps(2, 0, &over), Err(ApplyError::NotACopyAtBorder { at: 2 * MIB }));
    }

    #[test]
    fn lead_and_overshoot_stay_below_a_block() {
        assert_eq!(steps(1, 1024, &[]), Err(ApplyError::LeadTooLong { lead: 1024 }));
        assert_eq!(steps(0, 1, &[]), Err(ApplyError::LeadTooLong { lead: 1 }));
        let over = [Token::Zero(MIB - 1), copy(0, 2)];
        assert_eq!(steps(0, 0, &over), Err(ApplyError::PastEnd { at: MIB + 2047, end: MIB }));
        let over = [Token::Zero(MIB), copy(0, 1)];
        assert_eq!(steps(0, 0, &over), Err(ApplyError::PastEnd { at: MIB, end: MIB }));
        let no_basis = Applier::new(None, &segments(), 1, 1).unwrap_err();
        assert_eq!(no_basis, ApplyError::LeadTooLong { lead: 1 });
    }

    #[test]
    fn missing_tokens_and_missing_basis_are_errors() {
        assert_eq!(
            steps(3, 0, &[Token::Zero(4)]),
            Err(ApplyError::Incomplete { at: 3 * MIB + 4, end: 3 * MIB + 5 })
        );
        let mut applier = Applier::new(None, &segments(), 0, 0).unwrap();
        let payload = {
            let mut encoder = TokenEncoder::new();
            encoder.push(copy(0, 1));
            encoder.take()
        };
        let error = applier.push(&payload, |_| Ok::<_, Infallible>(())).unwrap_err();
        assert!(matches!(error, StepError::Apply(ApplyError::NoBasis)));
    }

    proptest! {
        #[test]
        fn law_steps_of_any_payload_stay_in_the_segment(
            payload in prop::collection::vec(any::<u8>(), 0..100),
            index in 0_u64..4,
            lead in 0_u32..1024,
        ) {
            let range = segments().range(index);
            let Ok(mut applier) = Applier::new(Some(layout()), &segments(), index, lead) else {
                return Ok(());
            };
            let mut at = range.start;
            let result = applier.push(&payload, |step| {
                let (offset, len) = match step {
                    Step::Write { offset, bytes } => (offset, len_u64(bytes.len())),
                    Step::Zero { offset, len } => (offset, len),
                    Step::Copy { basis_offset, offset, len } => {
                        assert!(basis_offset + len <= layout().file_len());
                        (offset, len)
                    }
                };
                assert!(len > 0);
                assert_eq!(offset, at);
                at += len;
                assert!(at <= range.end);
                Ok::<_, Infallible>(())
            });
            prop_assert_eq!(applier.position(), at - range.start);
            prop_assert_eq!(result.is_ok() && applier.finish().is_ok(), result.is_ok() && at == range.end);
        }
    }
}
