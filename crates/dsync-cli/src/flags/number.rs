//! Whole numbers as values of options.

use std::{error::Error, fmt};

/// The error for a value that is not a whole number in its range.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NotInRange {
    pub(super) value: String,
    pub(super) lowest: u64,
    pub(super) highest: u64,
}

impl fmt::Display for NotInRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "'{}' is not a whole number from {} to {}", self.value, self.lowest, self.highest)
    }
}

impl Error for NotInRange {}

/// Parses a whole number: digits only, so `+5`, `0x5`, `5K` and an empty value are refused.
pub(crate) fn whole_number(value: &str, lowest: u64, highest: u64) -> Result<u64, NotInRange> {
    let refuse = || NotInRange { value: value.to_owned(), lowest, highest };
    if !value.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(refuse());
    }
    value.parse().ok().filter(|number| (lowest..=highest).contains(number)).ok_or_else(refuse)
}
