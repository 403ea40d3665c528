//! Numbers for people: rsync's four formats of a count, and sizes, rates and spans for the summary.

use std::{fmt, time::Duration};

/// The format that `-h` selects.
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

/// A number of bytes in rsync's notation: `100`, `1.5m`, `10KB`, `512b`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Size(pub(crate) u64);

/// The error for a word that is not a number of bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NotASize {
    value: String,
    fault: SizeFault,
}

/// The reason why a word is no number of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SizeFault {
    /// The word has another form.
    Form,
    /// The number is beyond [`u64::MAX`].
    TooLarge,
}

impl fmt::Display for NotASize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = &self.value;
        match self.fault {
            SizeFault::Form => write!(
                f,
                "'{value}' is no size: a number, then nothing or B, K, M, G, T or P (KB, MB: of 1000)"
            ),
            SizeFault::TooLarge => write!(f, "'{value}' is too large: {} bytes are the most", u64::MAX),
        }
    }
}

impl std::error::Error for NotASize {}

impl Size {
    /// Parses a size. Its unit is `unit` (a letter of the suffixes) if none is typed.
    ///
    /// K or KiB is 1024 bytes, KB 1000, and so on; the case does not matter. rsync's `+1` and `-1`
    /// behind the unit add and subtract one byte.
    pub(crate) fn parse(word: &str, unit: char) -> Result<Self, NotASize> {
        Self::read(word, unit).map(Self).map_err(|fault| NotASize { value: word.to_owned(), fault })
    }

    fn read(word: &str, unit: char) -> Result<u64, SizeFault> {
        let (word, shift) = match (word.strip_suffix("+1"), word.strip_suffix("-1")) {
            (Some(rest), _) => (rest, 1),
            (_, Some(rest)) => (rest, -1),
            _ => (word, 0),
        };
        let end = word.bytes().position(|byte| !byte.is_ascii_digit() && byte != b'.').unwrap_or(word.len());
        let (number, suffix) = word.split_at(end);
        let suffix = if suffix.is_empty() { unit.to_string() } else { suffix.to_owned() };
        let unit = unit_bytes(&suffix.to_ascii_uppercase()).ok_or(SizeFault::Form)?;
        let (whole, part) = number.split_once('.').unwrap_or((number, ""));
        if whole.is_empty() && part.is_empty() || part.contains('.') {
            return Err(SizeFault::Form);
        }

        // All of them are digits: more than the type holds is all that can be wrong.
        let digits = |text: &str| match text {
            "" => Ok(0_u128),
            text => text.parse().map_err(|_| SizeFault::TooLarge),
        };
        let whole = digits(whole)?;
        // More digits than this do not change a byte.
        let part = &part[..part.len().min(18)];
        let scale = 10_u128.pow(u32::try_from(part.len()).map_err(|_| SizeFault::Form)?);
        let part = digits(part)? * unit / scale;

        let bytes = whole.checked_mul(unit).and_then(|bytes| bytes.checked_add(part));
        let bytes = bytes.and_then(|bytes| u64::try_from(bytes).ok()).ok_or(SizeFault::TooLarge)?;
        let shifted = bytes.checked_add_signed(shift);
        shifted.ok_or(if shift < 0 { SizeFault::Form } else { SizeFault::TooLarge })
    }
}

/// Returns the bytes of a unit in capital letters.
fn unit_bytes(suffix: &str) -> Option<u128> {
    if suffix == "B" {
        return Some(1);
    }
    let (letter, rest) = suffix.split_at_checked(1)?;
    let base: u128 = match rest {
        "" | "IB" => 1024,
        "B" => 1000,
        _ => return None,
    };
    let power = ["K", "M", "G", "T", "P"].iter().position(|known| *known == letter)?;
    base.checked_pow(u32::try_from(power).ok()? + 1)
}

/// Returns the bytes per second over a span; a span below a millisecond counts as one.
pub(crate) fn rate(bytes: u64, span: Duration) -> u64 {
    let millis = span.as_millis().max(1);
    u64::try_from(u128::from(bytes) * 1000 / millis).unwrap_or(u64::MAX)
}

/// Formats a count with its noun: `1 file`, `2 files`, `1,234 files`.
pub(crate) fn counted(number: u64, one: &str, many: &str) -> String {
    format!("{} {}", with_commas(number), if number == 1 { one } else { many })
}

/// Formats a number in groups of three digits.
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

/// Returns the number in the largest unit that leaves at least 1, or `None` below the first unit.
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
    fn sizes_are_read_as_rsync_reads_them() {
        for (word, bytes) in [
            ("7", Some(7 * 1024)),
            ("7b", Some(7)),
            ("1.5K", Some(1536)),
            (".5m", Some(1 << 19)),
            ("2kib", Some(2048)),
            ("2kB", Some(2000)),
            ("1g-1", Some((1 << 30) - 1)),
            ("1P+1", Some((1 << 50) + 1)),
            ("0", Some(0)),
            ("", None),
            (".", None),
            ("k", None),
            ("-1", None),
            ("0-1", None),
            ("1.2.3", None),
            ("1 k", None),
            ("1x", None),
            ("1kbb", None),
            ("20000P", None),
            ("99999999999999999999999999999999999999999", None),
        ] {
            assert_eq!(Size::parse(word, 'K').ok().map(|size| size.0), bytes, "{word}");
        }
        let refused = |word| Size::parse(word, 'B').map_err(|error| error.to_string());
        for word in ["99999999P", "18446744073709551616", "99999999999999999999999999999999999999999"] {
            let text = format!("'{word}' is too large: 18446744073709551615 bytes are the most");
            assert_eq!(refused(word), Err(text));
        }
        assert!(refused("0-1").is_err_and(|text| text.starts_with("'0-1' is no size")));
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
