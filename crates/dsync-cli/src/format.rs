//! The formats of `--out-format` and `--log-file-format`: text in which `%` and a letter stand for
//! a fact about an entry.
//!
//! rsync's grammar: `%`, then any number of `'`, a `-` for the left side, a width, any number of `'` again, and the
//! letter.
//! Other text stands for itself, as do the letters that rsync fills only in its
//! daemon.

use crate::numbers::Style;

/// A line's format, read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Format {
    parts: Vec<Part>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Text(Vec<u8>),
    Value { field: Field, style: Style, left: bool, width: usize },
}

/// A fact about an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Field {
    /// `%i`: the eleven characters of `-i`.
    Itemized,
    /// `%l`: length in bytes.
    Length,
    /// `%L`: ` -> TEXT` of a link, ` => NAME` of a hard link.
    Target,
    /// `%n`: name, with a `/` behind a directory's.
    Name,
    /// `%f`: name, behind the operand's directory where this end is the source.
    Path,
    /// `%o`: `send`, `recv` or `del.`.
    Operation,
    /// `%p`: number of the process.
    Process,
    /// `%t`: the time now.
    Time,
    /// `%m`: the module of a daemon.
    Nothing,
    /// `%B`: permissions, as `rwxr-xr-x`.
    Permissions,
    /// `%M`: modification time.
    Modified,
    /// `%U`: the owner's number.
    Owner,
    /// `%G`: the group's number.
    Group,
    /// `%b`: bytes of content that came over the wire.
    Transferred,
    /// `%c`: bytes of sums of the old file.
    Sums,
    /// `%C`: BLAKE3 hash of a regular file's content, blanks for anything else.
    Content,
}

impl Format {
    /// Reads a format.
    pub(crate) fn parse(text: &[u8]) -> Self {
        let mut parts = Vec::new();
        let mut plain = Vec::new();
        let mut rest = text;

        while let Some((&first, after)) = rest.split_first() {
            let value = if first == b'%' { value(after) } else { None };
            let Some((part, used)) = value else {
                plain.push(first);
                // `%%` is one.
                rest = if rest.starts_with(b"%%") { &rest[2..] } else { after };
                continue;
            };
            if !plain.is_empty() {
                parts.push(Part::Text(std::mem::take(&mut plain)));
            }
            parts.push(part);
            rest = &after[used..];
        }
        if !plain.is_empty() {
            parts.push(Part::Text(plain));
        }
        Self { parts }
    }

    /// Returns whether the format shows this fact.
    pub(crate) fn has(&self, wanted: Field) -> bool {
        self.parts.iter().any(|part| matches!(part, Part::Value { field, .. } if *field == wanted))
    }

    /// Writes a line: each fact as `fact` says it, filled up to its width, then made printable by
    /// `shown`.
    pub(crate) fn line(
        &self,
        fact: &dyn Fn(Field, Style) -> Vec<u8>,
        shown: &dyn Fn(&[u8]) -> Vec<u8>,
    ) -> Vec<u8> {
        let mut line = Vec::new();
        for part in &self.parts {
            match *part {
                Part::Text(ref text) => line.extend_from_slice(text),
                Part::Value { field, style, left, width } => {
                    let value = fact(field, style);
                    let padding = vec![b' '; width.saturating_sub(value.len())];
                    let [before, behind] = if left { [&value, &padding] } else { [&padding, &value] };
                    line.extend(shown(before));
                    line.extend(shown(behind));
                }
            }
        }
        line
    }
}

/// Reads what follows a `%`: the value and how many bytes it takes; `None` where it stands for
/// itself.
fn value(text: &[u8]) -> Option<(Part, usize)> {
    let marks_at = |at: usize| text[at..].iter().take_while(|byte| **byte == b'\'').count();
    let marks = marks_at(0);
    let left = text.get(marks) == Some(&b'-');
    let digits_at = marks + usize::from(left);
    let digits = text[digits_at..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    let width = text[digits_at..digits_at + digits]
        .iter()
        .fold(0, |width: usize, digit| (width * 10 + usize::from(digit - b'0')).min(MAX_WIDTH));
    // They count together, on whichever side of the width they are.
    let marks_behind = marks_at(digits_at + digits);
    let letter_at = digits_at + digits + marks_behind;

    let field = match text.get(letter_at) {
        Some(b'i') => Field::Itemized,
        Some(b'l') => Field::Length,
        Some(b'L') => Field::Target,
        Some(b'n') => Field::Name,
        Some(b'f') => Field::Path,
        Some(b'o') => Field::Operation,
        Some(b'p') => Field::Process,
        Some(b't') => Field::Time,
        Some(b'm') => Field::Nothing,
        Some(b'B') => Field::Permissions,
        Some(b'M') => Field::Modified,
        Some(b'U') => Field::Owner,
        Some(b'G') => Field::Group,
        Some(b'b') => Field::Transferred,
        Some(b'c') => Field::Sums,
        Some(b'C') => Field::Content,
        _ => return None,
    };
    let style = match marks + marks_behind {
        0 => Style::Plain,
        1 => Style::Commas,
        2 => Style::Thousands,
        _ => Style::Binary,
    };
    Some((Part::Value { field, style, left, width }, letter_at + 1))
}

/// Widest column: more is a typing error that would fill the disk.
const MAX_WIDTH: usize = 4096;

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn line(format: &str) -> String {
        let fact = |field: Field, style| match field {
            Field::Name => b"dir/".to_vec(),
            Field::Length => crate::numbers::Number(4096, style).to_string().into_bytes(),
            Field::Nothing => Vec::new(),
            _ => b"?".to_vec(),
        };
        String::from_utf8(Format::parse(format.as_bytes()).line(&fact, &<[u8]>::to_vec)).unwrap()
    }

    /// Each as rsync 3.5.0 printed it.
    #[test]
    fn widths_marks_and_what_is_no_escape_are_those_of_rsync() {
        for (format, expected) in [
            ("%n", "dir/"),
            ("%z %% %-10n|%10l|", "%z % dir/      |      4096|"),
            ("%'l|%''l|%3n|%n%", "4,096|4.10K|dir/|dir/%"),
            ("%10'l|%'10l|%'8'l|%-10'l|%'-10l|", "     4,096|     4,096|   4.10K|4,096     |4,096     |"),
            ("%-'10l|%1'0l|", "%-'10l|%1'0l|"),
            ("a=%a m=%m P=%P u=%u h=%h", "a=%a m= P=%P u=%u h=%h"),
            ("", ""),
            ("%", "%"),
            ("%-", "%-"),
        ] {
            assert_eq!(line(format), expected, "{format}");
        }
    }

    #[test]
    fn no_column_fills_the_disk() {
        assert!(line("%999999999999999999999999n").len() == MAX_WIDTH);
    }
}
