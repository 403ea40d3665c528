//! A mistake in a configuration: its place, and words for it.

use std::ops::Range;

use super::tables::Role;

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
    pub(super) fn of_toml(error: &toml::de::Error, file: &str) -> Self {
        let message = error.message();
        let place = error.span().unwrap_or_default();

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
            _ if message.starts_with("duplicate key") => {
                let name = file.get(place).unwrap_or_default().trim();
                format!("'{name}' is there twice")
            }
            _ => of_kind(message, file, &place)
                .unwrap_or_else(|| message.lines().next().unwrap_or_default().to_owned()),
        };
        Self { at: error.span().map(|span| span.start), text }
    }
}

/// Says of a value of another kind than its key takes which key it is, what it is and what it should be; `None`
/// if the parser found something else.
fn of_kind(message: &str, file: &str, place: &Range<usize>) -> Option<String> {
    let first = message.lines().next()?;
    let is_kind = ["invalid type: ", "invalid value: "].iter().any(|kind| first.starts_with(kind));
    let wanted = first.rsplit_once(", expected ").map(|(_, wanted)| wanted).filter(|_| is_kind);
    // One key only takes a few words: the role.
    let wanted = wanted.or_else(|| (first == "wanted string or table").then_some(Role::NAMES))?;
    let value = file.get(place.clone())?.lines().next()?.trim();
    let wanted = match wanted {
        "u32" | "u64" => "a whole number, without a unit or a sign".to_owned(),
        "a sequence" if value.starts_with(['"', '\'']) => format!("a list: [{value}]"),
        "a sequence" => "a list of texts".to_owned(),
        "a boolean" => "true or false".to_owned(),
        "a string" | "path string" => "a text in quotes".to_owned(),
        "a map" => "a table".to_owned(),
        "a TOML datetime" => "a day without quotes, like 2027-12-31".to_owned(),
        table if table.starts_with("struct ") => "a table".to_owned(),
        other => other.to_owned(),
    };

    // The key stands before the value, unless that is one of a list.
    let line = file.get(..place.start)?.rsplit('\n').next()?;
    let key = line.split_once('=').map(|(key, _)| key.trim());
    let key = key.map_or_else(|| "this".to_owned(), |key| format!("'{key}'"));
    Some(format!("{key} is {value}, and should be {wanted}"))
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
