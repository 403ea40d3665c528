//! The file whose content is under way, for a person who watches the run.
//!
//! Each end counts what it does itself: a destination the bytes that it laid out, a source the
//! bytes that it sent. Nothing is measured for it and nothing crosses the wire. Several files are
//! in flight at once; the one that is shown stays until it is complete or rests, so that a reader
//! can read its name.

use std::sync::Mutex;

use dsync_wire::{message::EntryId, path::EntryPath};

use crate::{halt::lock, observe::FileProgress};

/// Files that are kept at the same time: more than the lanes of a session.
const KEPT: usize = 32;

/// The files in flight at this end.
#[derive(Default)]
pub(crate) struct UnderWay(Mutex<Files>);

#[derive(Default)]
struct Files {
    /// The one that was touched last is at the end.
    kept: Vec<File>,
    /// The one that was told last.
    shown: Option<EntryId>,
}

struct File {
    entry: EntryId,
    progress: FileProgress,
    /// Whether it has grown since it was last told.
    moved: bool,
}

impl UnderWay {
    /// Counts bytes of a file; its path is only asked for if the file is new.
    pub(crate) fn add(&self, entry: EntryId, size: u64, bytes: u64, path: impl FnOnce() -> EntryPath) {
        let mut files = lock(&self.0);
        let mut file = match files.kept.iter().position(|file| file.entry == entry) {
            // The end of a file's content carries no bytes, and a complete file is not asked for again by it.
            Some(_) if bytes == 0 => return,
            Some(at) => files.kept.remove(at),
            None => File { entry, progress: FileProgress::new(path(), size), moved: true },
        };

        // A file that is asked for again starts anew.
        let before = if file.progress.done_bytes >= size { 0 } else { file.progress.done_bytes };
        file.progress.done_bytes = before.saturating_add(bytes).min(size);
        file.moved = true;

        if files.kept.len() >= KEPT {
            files.kept.remove(0);
        }
        files.kept.push(file);
    }

    /// Returns the file to show now.
    pub(crate) fn now(&self) -> Option<FileProgress> {
        let mut files = lock(&self.0);
        let stays = files.shown.and_then(|shown| {
            let is_it = |file: &&File| file.entry == shown && file.moved && !file.progress.is_complete();
            files.kept.iter().find(is_it).map(|file| file.progress.clone())
        });

        let found = stays.or_else(|| {
            let grows = files.kept.iter().rev().find(|file| file.moved && !file.progress.is_complete());
            let (entry, progress) =
                grows.or_else(|| files.kept.last()).map(|file| (file.entry, file.progress.clone()))?;
            files.shown = Some(entry);
            Some(progress)
        });

        files.kept.iter_mut().for_each(|file| file.moved = false);
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn add(files: &UnderWay, entry: u64, size: u64, bytes: u64) {
        files.add(EntryId(entry), size, bytes, || entry.to_string().into());
    }

    fn shown(files: &UnderWay) -> Option<(String, u64)> {
        let file = files.now()?;
        Some((file.path.to_string(), file.done_bytes))
    }

    #[test]
    fn shown_file_stays_until_it_is_complete() {
        let files = UnderWay::default();
        assert_eq!(shown(&files), None);
        add(&files, 1, 100, 10);
        assert_eq!(shown(&files), Some(("1".to_owned(), 10)));
        add(&files, 1, 100, 10);
        add(&files, 2, 100, 10);
        assert_eq!(shown(&files), Some(("1".to_owned(), 20)));
        add(&files, 2, 100, 10);
        add(&files, 1, 100, 80);
        assert_eq!(shown(&files), Some(("2".to_owned(), 20)));
    }

    #[test]
    fn file_that_rests_gives_way_and_the_last_one_remains() {
        let files = UnderWay::default();
        add(&files, 1, 100, 10);
        assert_eq!(shown(&files), Some(("1".to_owned(), 10)));
        add(&files, 2, 100, 10);
        assert_eq!(shown(&files), Some(("2".to_owned(), 10)));
        assert_eq!(shown(&files), Some(("2".to_owned(), 10)));
        add(&files, 3, 5, 5);
        assert_eq!(shown(&files), Some(("3".to_owned(), 5)));
    }

    #[test]
    fn bytes_never_exceed_the_size_and_a_second_attempt_starts_anew() {
        let files = UnderWay::default();
        add(&files, 1, 100, 300);
        assert_eq!(shown(&files), Some(("1".to_owned(), 100)));
        add(&files, 1, 100, 30);
        assert_eq!(shown(&files), Some(("1".to_owned(), 30)));
    }

    #[test]
    fn a_complete_file_stays_complete_when_its_end_carries_no_bytes() {
        let files = UnderWay::default();
        add(&files, 1, 100, 100);
        add(&files, 2, 100, 60);
        add(&files, 2, 100, 40);
        add(&files, 2, 100, 0);
        assert_eq!(shown(&files), Some(("2".to_owned(), 100)));
        add(&files, 1, 100, 0);
        assert_eq!(shown(&files), Some(("2".to_owned(), 100)));
    }

    #[test]
    fn few_files_are_kept() {
        let files = UnderWay::default();
        (0..1000).for_each(|entry| add(&files, entry, 10, 1));
        assert_eq!(lock(&files.0).kept.len(), KEPT);
        assert_eq!(shown(&files), Some(("999".to_owned(), 1)));
    }
}
