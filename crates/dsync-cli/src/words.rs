//! System errors, and types of entries, in words for people.

use std::io;

use dsync_engine::FileType;

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

/// Returns a type of entries with its article.
pub(crate) fn type_in_words(kind: FileType) -> &'static str {
    match kind {
        FileType::File => "a file",
        FileType::Directory => "a directory",
        FileType::Symlink => "a symbolic link",
        FileType::Fifo => "a fifo",
        FileType::Socket => "a socket",
        FileType::CharDevice | FileType::BlockDevice => "a device",
        _ => "an entry of another type",
    }
}
