//! A mistake in a configuration: its place, and words for it.

use std::ops::Range;

/// A mistake in the text.
#[derive(Debug)]
pub(super) struct Mistake {
    pub(super) at: Option<usize>,
    pub(super) text: String,
}

impl Mistake {
    pub(super) fn at(at: &Range<usize>, text: String) -> Self {
        Self { at: Some(at.start), text }
    }

    /// Says in words what the parser found; an unknown key with the one that was probably meant, or
    /// all that there are.
    pub(super) fn of_toml(error: &toml::de::Error) -> Self {
        let message = error.message();
        let mut quoted = message.split('`').skip(1).step_by(2);
        let text = match quoted.next() {
            Some(unknown) if message.starts_with("unknown field") => {
                let known: Vec<_> = quoted.collect();
                let next = match nearest(unknown, known.iter().copied()) {
                    Some(near) => meant(Some(near)),
                    None => format!("; the keys here are {}", known.join(", ")),
                };
                format!("this version knows no key '{unknown}' here{next}")
            }
            Some(unknown) if message.starts_with("unknown variant") => {
                let known: Vec<_> = quoted.collect();
                format!("'{unknown}' is none of {}", known.join(", "))
            }
            _ => message.lines().next().unwrap_or_default().to_owned(),
        };
        Self { at: error.span().map(|span| span.start), text }
    }
}

/// Returns the candidate that was probably meant.
pub(super) fn nearest<'a>(word: &str, candidates: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    candidates
        .map(|candidate| (strsim::jaro_winkler(word, candidate), candidate))
        .filter(|(likeness, _)| *likeness > ALIKE)
        .max_by(|one, other| one.0.total_cmp(&other.0))
        .map(|(_, candidate)| candidate)
}

/// Returns the question whether a word was meant, for the end of a message.
pub(super) fn meant(near: Option<&str>) -> String {
    near.map_or_else(String::new, |near| format!("; did you mean '{near}'?"))
}

/// Returns the number of the line that a byte is in.
pub(super) fn line_of(text: &str, at: usize) -> usize {
    text.bytes().take(at).filter(|byte| *byte == b'\n').count() + 1
}

/// Likeness above which one word is probably a slip for another.
const ALIKE: f64 = 0.8;
