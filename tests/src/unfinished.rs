//! What an interrupted run leaves beside its files, seen from outside.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// Bytes of a record of the notes beside an unfinished file.
const RECORD: usize = 64;

/// Head and key, before the segments.
const OPENING: usize = 2;

/// Names in a directory that are dsync's own.
///
/// # Panics
/// When the directory cannot be listed.
pub fn hidden(dir: &Path) -> usize {
    let names = fs::read_dir(dir).expect("the destination").flatten();
    names.filter(|entry| entry.file_name().to_string_lossy().starts_with(".dsync-")).count()
}

/// The first name in a directory that begins like this, once there is one.
pub fn kept(dir: &Path, prefix: &str) -> Option<PathBuf> {
    let entries = fs::read_dir(dir).ok()?.flatten();
    entries
        .map(|entry| entry.path())
        .find(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(prefix)))
}

/// Segments of the first unfinished file of a directory that are written and verified.
pub fn finished_segments(dir: &Path) -> usize {
    let notes = kept(dir, ".dsync-note-").and_then(|path| fs::read(path).ok());
    notes.map_or(0, |notes| (notes.len() / RECORD).saturating_sub(OPENING))
}
