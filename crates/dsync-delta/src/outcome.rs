//! The output of a search: the tokens of a segment as they are found, and the outcome at its end.

use crate::{segment::SegmentValue, token::Token};

/// A receiver for the tokens of one segment, in order.
///
/// ```
/// use std::convert::Infallible;
///
/// use dsync_delta::{Token, TokenEncoder, TokenSink};
///
/// /// The messages of one segment, as a program would send them.
/// #[derive(Default)]
/// struct Messages {
///     lead: u32,
///     tokens: TokenEncoder,
///     sent: Vec<Vec<u8>>,
/// }
///
/// impl TokenSink for Messages {
///     type Error = Infallible;
///
///     fn start(&mut self, lead: u32) -> Result<(), Infallible> {
///         self.lead = lead;
///         Ok(())
///     }
///
///     fn token(&mut self, token: Token<'_>) -> Result<(), Infallible> {
///         self.tokens.push(token);
///         if self.tokens.len() >= 64 << 10 {
///             self.sent.push(self.tokens.take());
///         }
///         Ok(())
///     }
/// }
/// # let mut messages = Messages::default();
/// # messages.start(0).and_then(|()| messages.token(Token::Literal(&[1; 65 << 10])))?;
/// # assert!(messages.sent.len() == 1 && messages.tokens.is_empty());
/// # Ok::<(), Infallible>(())
/// ```
pub trait TokenSink {
    /// The reason why a token was refused.
    type Error;

    /// Starts the segment; called once, before the first token. The first token begins `lead` bytes
    /// before the segment's start, less than the block length.
    ///
    /// # Errors
    /// The sink's own, which ends the search.
    fn start(&mut self, lead: u32) -> Result<(), Self::Error>;

    /// Takes the next token. Literals are at most [`MAX_LITERAL`](crate::token::MAX_LITERAL) bytes
    /// long.
    ///
    /// # Errors
    /// The sink's own, which ends the search.
    fn token(&mut self, token: Token<'_>) -> Result<(), Self::Error>;
}

/// The result of a segment's search.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct SegmentOutcome {
    /// The segment's contribution to the file's root.
    pub value: SegmentValue,
    /// Bytes of the segment sent as literals.
    pub literal_bytes: u64,
    /// Bytes of the segment copied from the basis.
    pub matched_bytes: u64,
    /// Bytes of the segment sent as zero runs.
    pub zero_bytes: u64,
    /// The cost of the search.
    pub counters: SearchCounters,
}

/// The cost of a search, for tuning and for the tests that bound it.
///
/// ```
/// use dsync_delta::SearchCounters;
///
/// /// Returns whether a file was searched for shifts that it does not have, and is better sent whole.
/// fn is_new(counters: &SearchCounters, len: u64) -> bool {
///     counters.rolled_bytes > len / 2 && counters.weak_hits == 0
/// }
/// # assert!(!is_new(&SearchCounters::default(), 1));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct SearchCounters {
    /// Offsets that the rolling sum visited.
    pub rolled_bytes: u64,
    /// Bytes hashed to compare windows with blocks.
    pub compared_bytes: u64,
    /// Windows that passed the filter and had the weak sum of a block or of zeros.
    pub weak_hits: u64,
    /// Comparisons that followed a weak hit and failed.
    pub false_matches: u64,
    /// Gaps of about one block that were crossed without rolling over all of them.
    pub look_aheads: u64,
    /// Offsets where rolling would have begun or continued if there had been weak sums.
    pub unrolled_bytes: u64,
}

impl SearchCounters {
    /// Adds the cost of another search.
    pub(crate) fn add(&mut self, other: &Self) {
        self.rolled_bytes += other.rolled_bytes;
        self.compared_bytes += other.compared_bytes;
        self.weak_hits += other.weak_hits;
        self.false_matches += other.false_matches;
        self.look_aheads += other.look_aheads;
        self.unrolled_bytes += other.unrolled_bytes;
    }
}
