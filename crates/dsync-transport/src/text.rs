//! Text from outside (ssh, the remote shell, a peer) made fit for a message: one line, printable,
//! bounded.

use dsync_wire::unprintable::is_unprintable;

/// At most `max` characters of `bytes`, without those that [`is_unprintable`] knows: they
/// become `\xNN` or `\u{N}` escapes. Bytes that are not UTF-8 become U+FFFD. A cut is marked by `...`.
pub(crate) fn printable(bytes: &[u8], max: usize) -> String {
    // Four bytes per character at most: what lies beyond cannot be shown, so do not look at it.
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
