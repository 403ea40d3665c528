//! System errors in words for people.

use std::io;

/// Returns a system error in words.
pub(crate) fn system_words(error: &io::Error) -> String {
    let text = error.to_string();
    let words = without_number(&text);
    match error.kind() {
        io::ErrorKind::StorageFull => format!("the disk is full ({words})"),
        io::ErrorKind::QuotaExceeded => format!("the quota is used up ({words})"),
        _ => words.to_owned(),
    }
}

/// Shortens "Permission denied (os error 13)" to "Permission denied".
pub(crate) fn without_number(text: &str) -> &str {
    match text.rfind(" (os error ") {
        Some(at) if text.ends_with(')') => &text[..at],
        _ => text,
    }
}
