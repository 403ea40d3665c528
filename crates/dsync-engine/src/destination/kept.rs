//! Unfinished files: kept when a run ends before its end, taken up by the next.
//!
//! A part is of use only while the source's file is in the state that the part is of; the source
//! sees to that. Here the law is: a segment counts as finished only if it was verified when it
//! came, and is unchanged since. Content that nobody has touched since its journal was sealed is
//! believed after a look at a few segments; otherwise every segment is hashed again. Segments that
//! fail are sent again.

use std::{io, sync::Arc};

use dsync_delta::{Key, SegmentHasher, Segments};
use dsync_fs::{Component, Dir, KeptNames, PreparedFile, StagedFile};
use dsync_wire::{
    limits::MAX_REST_RUNS,
    message::{EntryId, Rest, Segment},
    options::KeepPartial,
};

use super::{
    Site,
    directory::Directory,
    journal::{Entries, Head, Journal},
    slot::Slot,
};
use crate::{SyncError, content::READ_BYTES, misbehaved::misbehaved, runs::Runs};

/// A file under construction that may outlive the run.
pub(super) struct Part {
    pub(super) file: StagedFile,
    pub(super) journal: Journal,
    pub(super) head: Head,
    /// The segments that are finished.
    pub(super) done: Runs,
}

impl Part {
    /// Begins a file, whose segments are verified under `key`; `None` when it will not be kept, or cannot
    /// be.
    pub(super) fn begin(site: &Site<'_>, slot: &Slot, head: &Head, key: &Key) -> Option<Self> {
        let worth = may_keep(site) && is_worth_keeping(head.segments);
        let dir = slot.directory.dir.as_ref().filter(|_| worth)?;
        let create = || {
            let names = site.homes.part_names(dir, &slot.name)?;
            let home = home(site, &slot.directory, true)?;
            let dir = slot.directory.for_temporary()?;
            let (staged, notes) = StagedFile::create_kept(&home, dir, slot.name.clone(), &names)?;
            Ok::<_, io::Error>((staged, Journal::begin(notes, head, key)?))
        };
        let created = create();
        match created {
            Ok((file, journal)) => Some(Self { file, journal, head: *head, done: Runs::default() }),
            Err(error) => {
                tracing::debug!(%error, "an unfinished file could not be kept");
                None
            }
        }
    }

    /// Takes up the part that an earlier run left of a file; `None` when there is none, or none of
    /// use, which is then removed.
    pub(super) fn find(site: &Site<'_>, slot: &Slot) -> Option<Self> {
        if !may_keep(site) {
            return None;
        }
        match open(site, slot) {
            Ok(part) => part,
            Err(error) => {
                tracing::debug!(%error, "what was kept of a file cannot be used");
                None
            }
        }
    }

    /// Returns the request for the missing segments.
    pub(super) fn rest(&self, entry: EntryId, attempt: u8) -> Rest {
        Rest {
            entry,
            attempt,
            state: self.head.state,
            length_log2: self.head.segments.length_log2(),
            runs: self.done.missing_below(self.head.segments.count()),
        }
    }

    /// Returns the number of bytes of the finished segments.
    pub(super) fn done_bytes(&self) -> u64 {
        let segments = self.head.segments;
        let missing = self.done.missing_below(segments.count()).into_iter();
        let missing = missing.map(|run| segments.range(run.end - 1).end - segments.range(run.start).start);
        segments.file_len() - missing.sum::<u64>()
    }

    /// Leaves the file where the next run finds it.
    pub(super) fn keep(self) -> io::Result<()> {
        // Content without its journal would be of no use.
        self.journal.claim()?;
        let stamp = self.file.keep()?;
        self.journal.seal(&stamp)
    }
}

/// Keeps complete files that got no name, given with their sizes, for the next run. Writes them to the
/// disk first. Removes small ones, which are sent again as quickly, and all of them if the disk fails.
pub(super) fn keep_complete(site: &Site<'_>, mut files: Vec<(PreparedFile, u64)>) {
    files.retain(|(_, size)| is_size_worth_keeping(*size));
    for (file, _) in &files {
        site.touched(file.dir());
    }
    if files.is_empty() || site.sync_touched().is_err() {
        return;
    }
    for (file, _) in files {
        let (dir, target) = (Arc::clone(file.dir()), file.target().clone());
        let kept = file.wait().and_then(|waiting| {
            let Some((temp, _)) = waiting else { return Ok(()) };
            keep_waiting(site, &dir, &temp, &target).inspect_err(|_| drop(dir.remove_file(&temp)))
        });
        if let Err(error) = kept {
            tracing::debug!(%error, "a complete file could not be kept");
        }
    }
}

/// Renames a complete file that waits under a temporary name to the one that the next run looks for.
pub(super) fn keep_waiting(
    site: &Site<'_>,
    dir: &Dir,
    temp: &Component,
    target: &Component,
) -> io::Result<()> {
    dir.rename(temp, &site.homes.finished_name(target)?)
}

/// Returns the state and segments of the file that a header belongs to.
pub(super) fn head(header: &Segment) -> Result<Head, SyncError> {
    let segments = Segments::new(header.file_len, header.length_log2).map_err(misbehaved)?;
    Ok(Head { state: header.state, segments })
}

/// Returns whether an earlier run may have left a file of this length, whole or in part.
pub(super) fn may_be_left(site: &Site<'_>, size: u64) -> bool {
    may_keep(site) && is_size_worth_keeping(size)
}

/// Returns the names under which an earlier run keeps a part of a file of this length; `None` if it
/// left none.
pub(super) fn existing(
    site: &Site<'_>,
    directory: &Directory,
    target: &Component,
    size: u64,
) -> Option<KeptNames> {
    if !may_be_left(site, size) {
        return None;
    }
    let names = site.homes.part_names(directory.dir.as_ref()?, target).ok()?;
    let home = home(site, directory, false).ok()?;
    home.stat(&names.notes).is_ok().then_some(names)
}

/// Opens the directory that keeps unfinished files of this one; makes it if it is missing and
/// `make` is set.
fn home(site: &Site<'_>, beside: &Directory, make: bool) -> io::Result<Arc<Dir>> {
    let dir = beside.dir.as_ref().ok_or(io::ErrorKind::NotFound)?;
    let parts = site.homes.of_parts(dir, make)?;
    if parts.is_new {
        beside.touch();
        site.touched(dir);
        beside.note_new_parts();
    } else if parts.is_own {
        beside.note_parts();
    }
    Ok(parts.dir)
}

/// Returns whether the run may leave, and take up, unfinished files: not where the old file itself
/// is written, nor where space is reserved for the whole of the new one.
fn may_keep(site: &Site<'_>) -> bool {
    let options = &site.policy.options;
    options.keep_partial != KeepPartial::Never && !options.writing.inplace && !options.writing.preallocate
}

/// Returns whether a file of this length is worth keeping, whole or in part.
fn is_size_worth_keeping(size: u64) -> bool {
    Segments::for_file(size).is_ok_and(is_worth_keeping)
}

/// Returns whether a part of such a file may be worth keeping: a file of one segment has no
/// finished part.
fn is_worth_keeping(segments: Segments) -> bool {
    segments.count() > 1
}

fn open(site: &Site<'_>, slot: &Slot) -> io::Result<Option<Part>> {
    let dir = slot.directory.dir.as_ref().ok_or(io::ErrorKind::NotFound)?;
    let names = site.homes.part_names(dir, &slot.name)?;
    let home = home(site, &slot.directory, false)?;
    let (file, notes) = StagedFile::open_kept(&home, dir, slot.name.clone(), &names)?;
    let Some(entries) = Entries::read(&notes)? else { return Ok(None) };
    let mut done = verified(&file, &entries)?;
    let segments = entries.head.segments;
    done.limit_missing(segments.count(), MAX_REST_RUNS);
    if done.is_all_below(segments.count()) {
        // Something must be asked for, or no message would ever complete the file.
        done = (0..segments.count() - 1).collect();
    }
    // Zeros that come are not written, so nothing else may be where they go.
    for run in done.missing_below(segments.count()) {
        let (from, to) = (segments.range(run.start).start, segments.range(run.end - 1).end);
        file.punch_hole(from, to - from)?;
    }
    let journal = Journal::resume(notes, &entries, &site.key)?;
    Ok(Some(Part { file, journal, head: entries.head, done }))
}

/// Returns the finished segments whose content is as it was when they were verified.
fn verified(file: &StagedFile, entries: &Entries) -> io::Result<Runs> {
    let all = || entries.segments.keys().copied();
    if entries.is_untouched(&file.stamp()?) {
        let mut sample = Vec::new();
        for _ in 0..SAMPLE.min(entries.segments.len()) {
            let random = getrandom::u64().map_err(io::Error::from)?;
            let count = entries.segments.len() as u64;
            sample.extend(all().nth(usize::try_from(random % count).unwrap_or(0)));
        }
        if sample.iter().all(|&index| is_right(file, entries, index)) {
            return Ok(all().collect());
        }
    }
    Ok(all().filter(|&index| is_right(file, entries, index)).collect())
}

/// Hashes one segment of the file.
fn is_right(file: &StagedFile, entries: &Entries, index: u64) -> bool {
    let segments = entries.head.segments;
    let Some((key, value)) = entries.segments.get(&index) else { return false };
    let Ok(mut hasher) = SegmentHasher::new(key, &segments, index) else { return false };
    let range = segments.range(index);
    let mut buffer = vec![0; READ_BYTES];
    let mut at = range.start;
    while at < range.end {
        let want = usize::try_from(range.end - at).unwrap_or(usize::MAX).min(buffer.len());
        match file.read_full_at(at, &mut buffer[..want]) {
            // A hole at the end that the file's length does not cover yet reads as nothing.
            Ok(0) => {
                hasher.update_zeros(range.end - at);
                break;
            }
            Ok(read) => {
                hasher.update(&buffer[..read]);
                at += read as u64;
            }
            Err(_) => return false,
        }
    }
    hasher.finish().is_ok_and(|found| found.to_bytes() == *value)
}

/// Segments of an untouched file that are hashed again: enough to notice a disk that lost written
/// data, which rarely spares most of a file, and a second's work at the most.
const SAMPLE: usize = 4;
