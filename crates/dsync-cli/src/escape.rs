//! Escapes names from the disk and from a peer for a terminal, a mail and a script that reads
//! lines.
//!
//! The one law (reliability design, invariant S10): printed or logged text holds no character that
//! [`is_unprintable`] rejects, whatever the bytes were. Each byte of such a character, and each
//! that is not UTF-8, becomes `\#ooo` with three octal digits. This is rsync's notation, which
//! wrappers already decode. A backslash that would start such a sequence by accident is written
//! `\#134`, so decoding is exact.

use std::{
    borrow::Cow,
    fmt,
    io::{self, Write},
};

use dsync_engine::is_unprintable;
use serde::Serialize;
use serde_json::ser::Formatter;

/// Bytes that are printed in escaped form.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Escaped<'a>(pub(crate) &'a [u8]);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = self.0;
        while !rest.is_empty() {
            let clean = clean_prefix(rest);
            f.write_str(clean)?;
            rest = &rest[clean.len()..];
            let dirty = dirty_len(rest);
            for byte in &rest[..dirty] {
                write!(f, "\\#{byte:03o}")?;
            }
            rest = &rest[dirty..];
        }
        Ok(())
    }
}

/// Returns a name as `-8` prints it: all bytes from 0x80 on as they are, control characters still
/// escaped.
pub(crate) fn eight_bit(name: &[u8]) -> Vec<u8> {
    let mut text = Vec::with_capacity(name.len());
    for (at, &byte) in name.iter().enumerate() {
        if byte < 0x20 || byte == 0x7f || looks_escaped(&name[at..]) {
            text.extend_from_slice(format!("\\#{byte:03o}").as_bytes());
        } else {
            text.push(byte);
        }
    }
    text
}

/// Escapes a message that may hold names. Text of our own is never changed by it.
pub(crate) fn escape_text(text: &str) -> Cow<'_, str> {
    if clean_prefix(text.as_bytes()).len() == text.len() {
        Cow::Borrowed(text)
    } else {
        Cow::Owned(Escaped(text.as_bytes()).to_string())
    }
}

/// Returns a value as one line of JSON in which no character is unprintable: it is written as
/// `\uXXXX`, which every reader of JSON decodes. Empty for a value that JSON cannot hold.
pub(crate) fn json_line(value: &impl Serialize) -> String {
    let mut line = Vec::new();
    let mut writer = serde_json::Serializer::with_formatter(&mut line, Printable);
    let written = value.serialize(&mut writer);
    written.ok().and_then(|()| String::from_utf8(line).ok()).unwrap_or_default()
}

/// serde_json's compact form, with escapes for what is unprintable. Its own escapes are for C0 only.
struct Printable;

impl Formatter for Printable {
    fn write_string_fragment<W: ?Sized + Write>(&mut self, writer: &mut W, fragment: &str) -> io::Result<()> {
        let mut units = [0; 2];
        for part in fragment.split_inclusive(is_unprintable) {
            let last = part.chars().next_back().filter(|last| is_unprintable(*last));
            let clean = part.len() - last.map_or(0, char::len_utf8);
            writer.write_all(&part.as_bytes()[..clean])?;
            for unit in last.iter().flat_map(|last| last.encode_utf16(&mut units).to_vec()) {
                write!(writer, "\\u{unit:04x}")?;
            }
        }
        Ok(())
    }
}

/// A stream of lines; each call writes whole ones, e.g. an entry of a log.
#[derive(Debug)]
pub(crate) struct EscapedLines<W>(pub(crate) W);

impl<W: Write> Write for EscapedLines<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // Everything within an entry is part of it, line ends too: nobody can write an entry of his
        // own.
        let entry = bytes.strip_suffix(b"\n").unwrap_or(bytes);
        let end = if entry.len() < bytes.len() { "\n" } else { "" };
        self.0.write_all(format!("{}{end}", Escaped(entry)).as_bytes())?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// Returns the longest prefix of `bytes` that is printed unchanged.
fn clean_prefix(bytes: &[u8]) -> &str {
    let valid = match std::str::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) => std::str::from_utf8(&bytes[..error.valid_up_to()]).unwrap_or_default(),
    };
    let end = valid
        .char_indices()
        .find(|&(at, character)| is_unprintable(character) || looks_escaped(&bytes[at..]))
        .map_or(valid.len(), |(at, _)| at);
    &valid[..end]
}

/// Returns the length of the prefix that must be escaped.
fn dirty_len(bytes: &[u8]) -> usize {
    match std::str::from_utf8(bytes) {
        Ok(text) => text.chars().next().map_or(0, char::len_utf8),
        Err(error) if error.valid_up_to() == 0 => error.error_len().unwrap_or(bytes.len()),
        Err(error) => {
            let valid = std::str::from_utf8(&bytes[..error.valid_up_to()]).unwrap_or_default();
            valid.chars().next().map_or(1, char::len_utf8)
        }
    }
}

/// Returns whether this is `\#` and three digits, which a reader would mistake for an escape.
fn looks_escaped(bytes: &[u8]) -> bool {
    matches!(bytes, [b'\\', b'#', a, b, c, ..] if [a, b, c].iter().all(|digit| digit.is_ascii_digit()))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn escaped(bytes: &[u8]) -> String {
        Escaped(bytes).to_string()
    }

    /// Decodes a line as a wrapper does.
    fn unescape(text: &str) -> Vec<u8> {
        let mut bytes = text.as_bytes();
        let mut out = Vec::new();
        while let Some(&first) = bytes.first() {
            if looks_escaped(bytes) {
                out.push(u8::from_str_radix(std::str::from_utf8(&bytes[2..5]).unwrap(), 8).unwrap());
                bytes = &bytes[5..];
            } else {
                out.push(first);
                bytes = &bytes[1..];
            }
        }
        out
    }

    #[test]
    fn escapes_are_those_of_rsync() {
        assert_eq!(escaped(b"new\nline"), "new\\#012line");
        assert_eq!(escaped(b"\x1b[31mred"), "\\#033[31mred");
        assert_eq!(escaped(b"esc\\#123x"), "esc\\#134#123x");
        assert_eq!(escaped(b"esc\\#12x"), "esc\\#12x");
        assert_eq!(escaped(b"a\xffb"), "a\\#377b");
        assert_eq!(escaped(b"\xe2\x82"), "\\#342\\#202");
        assert_eq!(escaped("é€😀 \\ plain".as_bytes()), "é€😀 \\ plain");
        assert_eq!(escaped("a\u{202e}b".as_bytes()), "a\\#342\\#200\\#256b");
        assert_eq!(escaped("a\u{85}b".as_bytes()), "a\\#302\\#205b");
        assert_eq!(escaped(b"\t"), "\\#011");
    }

    #[test]
    fn eight_bit_names_keep_what_is_no_control_character() {
        assert_eq!(eight_bit(b"a\xff\n\xc3\xa9\x1b[m\\#123"), b"a\xff\\#012\xc3\xa9\\#033[m\\#134#123");
    }

    #[test]
    fn what_cannot_be_seen_is_written_out() {
        for character in
            ['\u{200b}', '\u{feff}', '\u{e0041}', '\u{2066}', '\u{9b}', '\u{2028}', '\u{2029}', '\u{ad}']
        {
            let text = format!("a{character}b");
            assert!(escaped(text.as_bytes()).starts_with("a\\#"), "{character:?}");
            assert_eq!(unescape(&escaped(text.as_bytes())), text.as_bytes());
        }
    }

    #[test]
    fn entry_of_a_log_is_one_line_whatever_it_quotes() {
        let mut log = EscapedLines(Vec::new());
        log.write_all("DEBUG line=\"x\nERROR forged\u{200b}\u{1b}[2J\"\n".as_bytes()).unwrap();
        log.write_all(b"DEBUG next\n").unwrap();
        let text = String::from_utf8(log.0).unwrap();
        assert_eq!(text, "DEBUG line=\"x\\#012ERROR forged\\#342\\#200\\#213\\#033[2J\"\nDEBUG next\n");
    }

    #[test]
    fn clean_text_is_not_copied() {
        assert!(matches!(escape_text("cannot read 'é'"), Cow::Borrowed(_)));
        assert_eq!(escape_text("a\nb"), "a\\#012b");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(512))]

        #[test]
        fn nothing_dangerous_is_ever_printed(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            let text = escaped(&bytes);
            prop_assert!(!text.chars().any(is_unprintable), "{text:?}");
            prop_assert!(text.bytes().all(|byte| byte >= 0x20 && byte != 0x7f));
        }

        #[test]
        fn escaping_is_lossless(bytes in r"([\\#0-7\n\x1b]|\PC|\p{C}){0,24}", tail in any::<[u8; 3]>()) {
            let bytes = [bytes.as_bytes(), &tail].concat();
            prop_assert_eq!(unescape(&escaped(&bytes)), bytes);
        }

        #[test]
        fn printable_text_is_kept(text in "[a-zA-Z0-9 ./_é€😀-]{0,32}") {
            prop_assert_eq!(escaped(text.as_bytes()), text);
        }
    }
}
