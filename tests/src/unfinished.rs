//! The leftovers of an interrupted run beside its files, seen from outside.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// Length of a segment of a file of less than 4 GiB.
pub const SEGMENT: u64 = 1 << 20;

/// Length of a record of the notes beside an unfinished file, in bytes.
const RECORD: usize = 64;

/// Number of records before the segments: head and key.
const OPENING: usize = 2;

/// Returns the number of dsync's own names in a directory.
///
/// # Panics
/// If the directory cannot be listed.
pub fn hidden(dir: &Path) -> usize {
    let names = fs::read_dir(dir).expect("the destination").flatten();
    names.filter(|entry| entry.file_name().to_string_lossy().starts_with(".dsync-")).count()
}

/// Returns the first name in a directory that begins with `prefix`, if there is one.
pub fn kept(dir: &Path, prefix: &str) -> Option<PathBuf> {
    let entries = fs::read_dir(dir).ok()?.flatten();
    entries
        .map(|entry| entry.path())
        .find(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(prefix)))
}

/// Returns the number of segments of a directory's first unfinished file that are written and
/// verified.
pub fn finished_segments(dir: &Path) -> usize {
    let notes = kept(dir, ".dsync-note-").and_then(|path| fs::read(path).ok());
    notes.map_or(0, |notes| (notes.len() / RECORD).saturating_sub(OPENING))
}
