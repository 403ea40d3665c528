//! Why a filter rule is refused, for whoever says it in words.

/// Why a rule is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refused {
    /// No program reads it.
    Malformed,
    /// rsync does.
    Unsupported,
}
