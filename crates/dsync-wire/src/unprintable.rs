//! Characters that never reach a terminal or a log unescaped, whoever sent them.
//!
//! The one law: a character that can move a cursor, end a line, change the direction of writing, or
//! not be seen at all is never printed. That is every character of Unicode's categories Cc, Cf, Zl
//! and Zp, the tags' whole plane of invisible characters, and those that are ignored wherever they
//! stand. Variation selectors 1 to 16 are exempt: emoji are written with them.

/// Returns whether a character is printed only in escaped form.
///
/// ```
/// use dsync_wire::unprintable::is_unprintable;
///
/// // A name that would clear the screen is shown, not obeyed.
/// let shown = |name: &str| -> String {
///     name.chars()
///         .map(|c| if is_unprintable(c) { c.escape_unicode().to_string() } else { c.to_string() })
///         .collect()
/// };
/// assert_eq!(shown("a\x1b[2J"), "a\\u{1b}[2J");
/// ```
pub fn is_unprintable(character: char) -> bool {
    character.is_control()
        || matches!(character,
            // Soft hyphen, combining joiner, fillers and invisible vowels.
            '\u{ad}' | '\u{34f}' | '\u{115f}'..='\u{1160}' | '\u{17b4}'..='\u{17b5}' | '\u{3164}' | '\u{ffa0}'
            // Arabic and Syriac marks of format.
            | '\u{600}'..='\u{605}' | '\u{61c}' | '\u{6dd}' | '\u{70f}' | '\u{890}'..='\u{891}' | '\u{8e2}'
            // Mongolian selectors and separator.
            | '\u{180b}'..='\u{180f}'
            // Spaces of no width, joiners, marks of direction; separators of lines and paragraphs;
            // embeddings, overrides.
            | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            // Word joiner, invisible operators, isolates, old marks of format.
            | '\u{2060}'..='\u{206f}'
            // Byte order mark, interlinear annotations and what is reserved before them.
            | '\u{feff}' | '\u{fff0}'..='\u{fffb}'
            // Kaithi, hieroglyphs, shorthand, music.
            | '\u{110bd}' | '\u{110cd}' | '\u{13430}'..='\u{1343f}' | '\u{1bca0}'..='\u{1bca3}'
            | '\u{1d173}'..='\u{1d17a}'
            // Tags and further variation selectors.
            | '\u{e0000}'..='\u{e0fff}')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_people_write_is_printed() {
        let text =
            "plain é ü ß Ελληνικά русский עברית العربية हिन्दी 日本語 한국어 😀 ❤\u{fe0f} \u{fffd} \u{a0}";
        assert!(!text.chars().any(is_unprintable));
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(2048) })]

        /// Law: nothing of these categories of Unicode is printed.
        #[test]
        fn law_controls_formats_and_separators_are_unprintable(text in r"[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]{8}") {
            prop_assert!(text.chars().all(is_unprintable), "{text:?}");
        }

        /// Law: every letter, mark, number, punctuation, symbol or space is printed, except for the
        /// few that cannot be seen.
        #[test]
        fn law_what_can_be_seen_is_printed(text in r"[\p{L}\p{M}\p{N}\p{P}\p{S}\p{Zs}]{8}") {
            let hidden = |c: char| matches!(c, '\u{34f}' | '\u{115f}'..='\u{1160}' | '\u{17b4}'..='\u{17b5}'
                | '\u{180b}'..='\u{180f}' | '\u{3164}' | '\u{ffa0}' | '\u{e0100}'..='\u{e01ef}');
            prop_assert!(text.chars().all(|c| hidden(c) || !is_unprintable(c)), "{text:?}");
        }
    }
}
