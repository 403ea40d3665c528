//! System errors in words for people.

use std::io;

use crate::in_place_of_rsync;

/// Returns a system error in words.
pub(crate) fn system_words(error: &io::Error) -> String {
    let text = error.to_string();
    let words = without_number(&text);
    let words = match error.kind() {
        io::ErrorKind::StorageFull => format!("the disk is full ({words})"),
        io::ErrorKind::QuotaExceeded => format!("the quota is used up ({words})"),
        _ => words.to_owned(),
    };
    in_place_of_rsync::numbered(words, error)
}

/// Shortens "Permission denied (os error 13)" to "Permission denied".
pub(crate) fn without_number(text: &str) -> &str {
    let number = |rest: &str| {
        let digits = rest.strip_suffix(')').unwrap_or_default();
        !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_digit())
    };
    match text.rsplit_once(" (os error ") {
        Some((words, rest)) if number(rest) => words,
        _ => text,
    }
}
