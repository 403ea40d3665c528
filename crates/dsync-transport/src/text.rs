//! Makes text from outside (ssh, the remote shell, a peer) fit for a message: one line, printable,
//! bounded.

use dsync_wire::unprintable::is_unprintable;

/// Returns at most `max` characters of `bytes`. Those that [`is_unprintable`] rejects become `\xNN`
/// or `\u{N}` escapes, and bytes that are not UTF-8 become U+FFFD. A cut is marked by `...`.
pub(crate) fn printable(bytes: &[u8], max: usize) -> String {
    // A character has at most four bytes. Bytes beyond that cannot be shown, so do not examine
    // them.
    let window = &bytes[..bytes.len().min(max.saturating_add(1).saturating_mul(4))];
    let text = String::from_utf8_lossy(window);
    let mut out = String::new();
    for (count, character) in text.chars().enumerate() {
        if count == max {
            out.push_str("...");
            break;
        }
        if is_unprintable(character) {
            out.extend(character.escape_default());
        } else {
            out.push(character);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escape_sequences_and_bidi_marks_are_written_out() {
        assert_eq!(printable(b"a\x1b[31mb\r\n", 99), "a\\u{1b}[31mb\\r\\n");
        assert_eq!(printable("x\u{202e}y\u{9b}".as_bytes(), 99), "x\\u{202e}y\\u{9b}");
    }

    #[test]
    fn long_text_is_cut_and_marked() {
        assert_eq!(printable(b"abcdef", 3), "abc...");
        assert_eq!(printable(b"abc", 3), "abc");
        assert_eq!(printable(&[0xff; 100], 2), "\u{fffd}\u{fffd}...");
    }
}
