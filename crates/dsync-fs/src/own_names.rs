//! The names that this crate gives to its own files, and the predicates that recognize them.
//!
//! The law: such a name has a prefix and as many digits as its kind always has, so that whoever
//! lists a directory recognizes it without opening anything.

use std::{ffi::CStr, io};

use crate::component::Component;

/// Returns whether this crate gives such a name to temporary files. Such entries are never copied,
/// and a run may remove those that are [abandoned](crate::is_abandoned).
pub fn is_temp_name(name: &[u8]) -> bool {
    let digits = name.strip_prefix(TEMP_PREFIX);
    digits.is_some_and(|digits| is_hex(digits) && [HEX_DIGITS, TEMP_DIGITS].contains(&digits.len()))
}

/// Returns whether a name is a prefix and 32 lower-case hexadecimal digits.
pub(crate) fn is_hex_name(prefix: &[u8], name: &[u8]) -> bool {
    let digits = name.strip_prefix(prefix);
    digits.is_some_and(|digits| is_hex(digits) && digits.len() == HEX_DIGITS)
}

fn is_hex(digits: &[u8]) -> bool {
    digits.iter().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// Makes a name from a prefix and bytes in hexadecimal digits.
pub(crate) fn hex_name(prefix: &[u8], bytes: &[u8]) -> io::Result<Component> {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut name = Vec::with_capacity(prefix.len() + 2 * bytes.len());
    name.extend_from_slice(prefix);
    for byte in bytes {
        name.push(DIGITS[usize::from(byte >> 4)]);
        name.push(DIGITS[usize::from(byte & 15)]);
    }
    Component::new(&name).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

/// Returns whether this is the name of a temporary file outside its target's directory. Such
/// entries are never copied.
pub fn is_apart_name(name: &[u8]) -> bool {
    is_hex_name(APART_PREFIX, name)
}

/// Returns whether this is a name that [`KeptNames`](crate::KeptNames) makes. Such entries are
/// never copied.
pub fn is_kept_name(name: &[u8]) -> bool {
    is_hex_name(CONTENT_PREFIX, name) || is_hex_name(NOTES_PREFIX, name) || is_finished_name(name)
}

/// Returns whether this is the name of notes.
pub fn is_notes_name(name: &[u8]) -> bool {
    is_hex_name(NOTES_PREFIX, name)
}

/// Returns whether a name comes after those of all notes in the order of bytes: whoever reads a sorted listing
/// has then met every note of its directory.
pub fn is_behind_notes(name: &[u8]) -> bool {
    let last_digits = [b'f'; HEX_DIGITS];
    name > [NOTES_PREFIX, &last_digits].concat().as_slice()
}

/// Returns whether this is the name of a complete file.
pub fn is_finished_name(name: &[u8]) -> bool {
    is_hex_name(FINISHED_PREFIX, name)
}

/// Returns whether this crate gives such a name to files of its own. No walk lists them, unless an
/// operand names one.
pub fn is_own_name(name: &[u8]) -> bool {
    is_temp_name(name) || is_kept_name(name) || is_apart_name(name) || is_lock_name(name)
}

/// Returns whether this is the name of the locked file.
pub fn is_lock_name(name: &[u8]) -> bool {
    name == LOCK_NAME.to_bytes()
}

/// The prefix of temporary names.
pub(crate) const TEMP_PREFIX: &[u8] = b".dsync-tmp-";
pub(crate) const APART_PREFIX: &[u8] = b".dsync-away-";
pub(crate) const CONTENT_PREFIX: &[u8] = b".dsync-part-";
pub(crate) const NOTES_PREFIX: &[u8] = b".dsync-note-";
pub(crate) const FINISHED_PREFIX: &[u8] = b".dsync-done-";
/// The name of the locked file; such entries are never copied.
pub(crate) const LOCK_NAME: &CStr = c".dsync-lock-00000000000000000000000000000000";
/// Digits of a name that nobody can guess.
pub(crate) const HEX_DIGITS: usize = 32;
/// Digits of a temporary's name: random ones, then its process.
pub(crate) const TEMP_DIGITS: usize = HEX_DIGITS + 2 * OWNER_BYTES;
/// Bytes of the process in a temporary's name.
pub(crate) const OWNER_BYTES: usize = 16;

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn no_note_follows_a_name_that_is_behind_notes() {
        let notes = [[0; 16], [0xff; 16]].map(|bytes| hex_name(NOTES_PREFIX, &bytes).unwrap());
        for note in &notes {
            assert!(is_notes_name(note.as_bytes()) && !is_behind_notes(note.as_bytes()));
        }
        for before in [&b"+"[..], b".a", b".dsync-note-", b".dsync-done-ff"] {
            assert!(!is_behind_notes(before), "{}", before.escape_ascii());
        }
        for behind in [&b".dsync-note-g"[..], b".dsync-part-00", b".e", b"g"] {
            assert!(is_behind_notes(behind), "{}", behind.escape_ascii());
        }
    }
}
