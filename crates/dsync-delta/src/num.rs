//! Saturating integer conversions: a length that does not fit becomes one that no check accepts.

/// Converts to `usize`, saturating on targets where it is narrower.
pub(crate) fn saturating_usize(value: u64) -> usize {
    usize::try_from(value).unwrap_or(usize::MAX)
}

/// Converts a length in memory; never saturates on targets of up to 64 bits.
pub(crate) fn len_u64(len: usize) -> u64 {
    u64::try_from(len).unwrap_or(u64::MAX)
}
