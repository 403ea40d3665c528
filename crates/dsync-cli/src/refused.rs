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
    /// Its pattern is longer than a run takes.
    TooLong,
    /// With those before it there are more rules than a run takes.
    TooMany,
    /// With those before it the patterns are longer than a run takes.
    TooMuch,
}
