//! Faults of patterns.

/// A malformed pattern.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("bad pattern '{}' at column {column}: {reason}", pattern.escape_ascii())]
pub struct FilterError {
    /// The pattern.
    pub pattern: Vec<u8>,
    /// Byte position of the fault, 1-based.
    pub column: usize,
    /// The fault.
    pub reason: FilterReason,
}

/// The fault in a pattern.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FilterReason {
    /// The pattern is empty.
    #[error("{}", self.as_str())]
    Empty,
    /// The pattern is too long.
    #[error("{}", self.as_str())]
    TooLong,
    /// The pattern contains a NUL byte.
    #[error("{}", self.as_str())]
    Nul,
    /// A `[` without its `]`.
    #[error("{}", self.as_str())]
    OpenClass,
    /// A `[:name:]` that is not a POSIX class.
    #[error("{}", self.as_str())]
    UnknownClass,
    /// A backslash at the end.
    #[error("{}", self.as_str())]
    TrailingBackslash,
    /// The pattern is too complex to match in bounded memory.
    #[error("{}", self.as_str())]
    TooComplex,
}

impl FilterReason {
    /// Returns whether rsync takes a pattern with this fault as one that matches nothing.
    pub(super) fn matches_nothing(self) -> bool {
        matches!(self, Self::OpenClass | Self::UnknownClass | Self::TrailingBackslash)
    }

    /// Returns the same text as `Display`, for errors with static fields.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Empty => "the pattern is empty",
            Self::TooLong => "the pattern is too long",
            Self::Nul => "a NUL byte cannot be part of a name",
            Self::OpenClass => "'[' without ']'",
            Self::UnknownClass => "unknown character class",
            Self::TrailingBackslash => "a backslash at the end escapes nothing",
            Self::TooComplex => "the pattern is too complex",
        }
    }
}
