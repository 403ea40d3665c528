//! The reason why a filter rule is refused, for whoever puts it into words.

/// The reason why a rule is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refused {
    /// No program reads it.
    Malformed,
    /// It has a modifier that its kind does not know.
    UnknownModifier,
    /// It has no pattern.
    NoPattern,
    /// It states the side that its file's rule has stated.
    SideStatedTwice,
    /// It has a NUL byte.
    Nul,
    /// rsync does.
    Unsupported,
}
