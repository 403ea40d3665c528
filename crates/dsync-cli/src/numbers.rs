//! Numbers for people: rsync's four ways to write a count, and sizes, rates and spans for the summary.

use std::{fmt, time::Duration};

/// How `-h` wants numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Style {
    /// `1234567` (`--no-h`).
    Plain,
    /// `1,234,567`.
    Commas,
    /// `1.23M`, units of 1000 (`-h`).
    Thousands,
    /// `1.18M`, units of 1024 (`-hh`).
    Binary,
}

/// A number in a style.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Number(pub(crate) u64, pub(crate) Style);

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(number, style) = *self;
        let unit = match style {
            Style::Plain => return write!(f, "{number}"),
            Style::Commas => return f.write_str(&with_commas(number)),
            Style::Thousands => 1000,
            Style::Binary => 1024,
        };
        match scaled(number, unit) {
            Some((value, letter)) => write!(f, "{value:.2}{letter}"),
            None => f.write_str(&with_commas(number)),
        }
    }
}

/// A number of bytes with its unit: `0 bytes`, `1.2 GB`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bytes(pub(crate) u64);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match scaled(self.0, 1000) {
            Some((value, letter)) => write!(f, "{value:.1} {}B", if letter == 'K' { 'k' } else { letter }),
            None if self.0 == 1 => f.write_str("1 byte"),
            None => write!(f, "{} bytes", self.0),
        }
    }
}

/// Whole seconds as `H:MM:SS`, or `M:SS` below an hour.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Clock(pub(crate) Duration);

impl fmt::Display for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0.as_secs();
        let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
        if hours > 0 {
            write!(f, "{hours}:{minutes:02}:{seconds:02}")
        } else {
            write!(f, "{minutes}:{seconds:02}")
        }
    }
}

/// Bytes in each second of a span; a span of under a millisecond counts as one.
pub(crate) fn rate(bytes: u64, span: Duration) -> u64 {
    let millis = span.as_millis().max(1);
    u64::try_from(u128::from(bytes) * 1000 / millis).unwrap_or(u64::MAX)
}

/// `1 file`, `2 files`, `1,234 files`.
pub(crate) fn counted(number: u64, one: &str, many: &str) -> String {
    format!("{} {}", with_commas(number), if number == 1 { one } else { many })
}

/// Groups of three digits.
pub(crate) fn with_commas(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// The number in the largest unit that leaves at least 1, or `None` below the first unit.
fn scaled(number: u64, unit: u64) -> Option<(f64, char)> {
    if number < unit {
        return None;
    }
    #[expect(clippy::cast_precision_loss, reason = "two decimals are shown")]
    let (mut value, unit) = (number as f64 / unit as f64, unit as f64);
    let mut letters = ['K', 'M', 'G', 'T', 'P', 'E'].into_iter();
    let mut letter = letters.next()?;
    while value >= unit {
        value /= unit;
        letter = letters.next()?;
    }
    Some((value, letter))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn styles_are_those_of_rsync() {
        let all = |number| {
            [Style::Plain, Style::Commas, Style::Thousands, Style::Binary]
                .map(|style| Number(number, style).to_string())
        };
        assert_eq!(all(0), ["0", "0", "0", "0"]);
        assert_eq!(all(999), ["999", "999", "999", "999"]);
        assert_eq!(all(1000), ["1000", "1,000", "1.00K", "1,000"]);
        assert_eq!(all(1_234_567), ["1234567", "1,234,567", "1.23M", "1.18M"]);
        assert_eq!(all(u64::MAX)[2..], ["18.45E", "16.00E"]);
    }

    #[test]
    fn sizes_rates_and_spans_read_well() {
        let sizes = [0, 1, 999, 1000, 1_250_000, 3_000_000_000].map(|size| Bytes(size).to_string());
        assert_eq!(sizes, ["0 bytes", "1 byte", "999 bytes", "1.0 kB", "1.2 MB", "3.0 GB"]);
        let spans =
            [0, 59, 60, 3599, 3600, 100_000].map(|seconds| Clock(Duration::from_secs(seconds)).to_string());
        assert_eq!(spans, ["0:00", "0:59", "1:00", "59:59", "1:00:00", "27:46:40"]);
        assert_eq!(rate(1000, Duration::from_millis(500)), 2000);
        assert_eq!(rate(5, Duration::ZERO), 5000);
        assert_eq!(rate(u64::MAX, Duration::ZERO), u64::MAX);
        assert_eq!(counted(1, "file", "files"), "1 file");
        assert_eq!(counted(1234, "file", "files"), "1,234 files");
    }
}
