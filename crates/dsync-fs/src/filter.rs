//! Include and exclude rules in rsync's pattern language.

/// Compiled rules.
#[derive(Debug, Clone, Default)]
pub struct FilterSet {}

impl FilterSet {
    /// Compiles rules: include (true) or exclude (false), and the pattern without prefix.
    ///
    /// # Errors
    /// [`FilterError`] for the first pattern that is malformed.
    pub fn compile(rules: &[(bool, &[u8])]) -> Result<Self, FilterError> {
        let _ = rules;
        Ok(Self {})
    }

    /// True when there are no rules.
    pub fn is_empty(&self) -> bool {
        true
    }

    /// The verdict of the first rule that matches: true to include; `None` when none matches.
    pub fn check(&self, path: &[u8], is_dir: bool) -> Option<bool> {
        let _ = (path, is_dir);
        None
    }

    /// True when the first rule that matches is an exclude.
    pub fn excludes(&self, path: &[u8], is_dir: bool) -> bool {
        self.check(path, is_dir) == Some(false)
    }
}

/// A malformed pattern.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("bad pattern '{}' at column {column}: {reason}", pattern.escape_ascii())]
pub struct FilterError {
    /// The pattern.
    pub pattern: Vec<u8>,
    /// 1-based byte position.
    pub column: usize,
    /// What is wrong there.
    pub reason: FilterReason,
}

/// What is wrong with a pattern.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FilterReason {
    /// It has no bytes.
    #[error("the pattern is empty")]
    Empty,
    /// It is too long.
    #[error("the pattern is too long")]
    TooLong,
    /// It has a NUL byte.
    #[error("a NUL byte cannot be part of a name")]
    Nul,
    /// A `[` without its `]`.
    #[error("'[' without ']'")]
    OpenClass,
    /// A `[:name:]` that is none of the POSIX classes.
    #[error("unknown character class")]
    UnknownClass,
    /// A backslash at the end.
    #[error("a backslash at the end escapes nothing")]
    TrailingBackslash,
    /// Too complex to be matched in bounded memory.
    #[error("the pattern is too complex")]
    TooComplex,
}

impl FilterReason {
    /// The same text as `Display`, for errors with static fields.
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
