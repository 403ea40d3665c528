//! Values of a log line's fields, in logfmt: `name=value name="a value"`.
//!
//! The law: the text of a client, or of a session that was taken over, stays within the value of its
//! own field. It ends neither the value nor the line, so it adds no field and forges no line.

use std::borrow::Cow;

use crate::escape::json_line;

/// Returns a field's value. A short text of letters, digits, `.`, `_` and `-` stays bare, and so does an
/// empty one; any other is in quotes, with the escapes of a JSON string.
pub(super) fn value(text: &str) -> Cow<'_, str> {
    let is_bare = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    if text.len() <= LONGEST_BARE && text.bytes().all(is_bare) {
        return Cow::Borrowed(text);
    }
    Cow::Owned(json_line(&text))
}

/// Bytes of the longest value without quotes: as many as a name in the configuration may have.
const LONGEST_BARE: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_text_leaves_its_field_or_its_line() {
        for (text, written) in [
            ("", ""),
            ("web1", "web1"),
            ("a.b_c-D9", "a.b_c-D9"),
            ("nas role=full code=0", r#""nas role=full code=0""#),
            ("a=b", r#""a=b""#),
            (r#"" code=0 x=""#, r#""\" code=0 x=\"""#),
            (r"ends with \", r#""ends with \\""#),
            ("two\nlines\r\t", r#""two\nlines\r\t""#),
            ("\u{1b}[2J", r#""\u001b[2J""#),
            ("\u{85}\u{202e}", r#""\u0085\u202e""#),
            ("größe", r#""größe""#),
        ] {
            assert_eq!(value(text), written, "{text:?}");
        }
        let long = "a".repeat(LONGEST_BARE + 1);
        assert_eq!(value(&long), format!("\"{long}\""));
    }
}
