//! Names from the disk and from a peer, made safe for a terminal, a mail and a script that reads lines.
//!
//! The one law (reliability design, invariant S10): what is printed holds no control character (C0, DEL,
//! C1), no line or paragraph separator and no bidirectional control, whatever the bytes were. Each byte of
//! what may not be printed, and of what is not UTF-8, becomes `\#ooo` with three octal digits, which is
//! rsync's notation and which wrappers already decode; a backslash that would start such a sequence by
//! accident is written `\#134`. So the way back is exact.

use std::{borrow::Cow, fmt};

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

/// Escapes a message that may hold names. Text of our own is never changed by it.
pub(crate) fn escape_text(text: &str) -> Cow<'_, str> {
    if clean_prefix(text.as_bytes()).len() == text.len() {
        Cow::Borrowed(text)
    } else {
        Cow::Owned(Escaped(text.as_bytes()).to_string())
    }
}

/// The longest start of `bytes` that is printed as it is.
fn clean_prefix(bytes: &[u8]) -> &str {
    let valid = match std::str::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) => std::str::from_utf8(&bytes[..error.valid_up_to()]).unwrap_or_default(),
    };
    let end = valid
        .char_indices()
        .find(|&(at, character)| is_dangerous(character) || looks_escaped(&bytes[at..]))
        .map_or(valid.len(), |(at, _)| at);
    &valid[..end]
}

/// How many bytes at the start, where something must be escaped, belong to it.
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

/// True for `\#` and three digits, which a reader would take for an escape.
fn looks_escaped(bytes: &[u8]) -> bool {
    matches!(bytes, [b'\\', b'#', a, b, c, ..] if [a, b, c].iter().all(|digit| digit.is_ascii_digit()))
}

fn is_dangerous(character: char) -> bool {
    character.is_control()
        || matches!(character,
            // Line and paragraph separator.
            '\u{2028}' | '\u{2029}'
            // Bidirectional marks, embeddings, overrides and isolates.
            | '\u{061c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn escaped(bytes: &[u8]) -> String {
        Escaped(bytes).to_string()
    }

    /// What a wrapper does with a line.
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
    fn clean_text_is_not_copied() {
        assert!(matches!(escape_text("cannot read 'é'"), Cow::Borrowed(_)));
        assert_eq!(escape_text("a\nb"), "a\\#012b");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(512))]

        #[test]
        fn nothing_dangerous_is_ever_printed(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            let text = escaped(&bytes);
            prop_assert!(!text.chars().any(is_dangerous), "{text:?}");
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
