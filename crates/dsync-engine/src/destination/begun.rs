//! Notes of files whose rewriting has begun (`--inplace`).
//!
//! A run that is killed while it writes into a file leaves one that is neither old nor new. The next run
//! would keep a backup of that in the place of the one that has the old content, or with `--update` and
//! `--size-only` leave it as it is for good, and with `--append` leave one to which all was added without its
//! attributes. So a note stands beside the file before the first write: this file is being written into, and
//! that is its backup. Every run reads notes, whatever the options of the one that was killed.
//!
//! The law: while a note is true its file is written again (by `--append`, unless it is longer than the
//! source's), and gets no further backup. It is true as long
//! as the file is the same inode, has not yet the size and time that it has at the end, and the backup is
//! the same inode with the same size and time. Whoever writes a file that has a true note ends that note
//! with the file whole. One that is true no more goes with the next run that reads the directory: a later
//! edit would make it true again. A note that cannot be made is no failure.
//!
//! A note is 84 bytes: the size, seconds and nanoseconds that the file has at the end (zeros where its
//! time is not kept); the BLAKE3 hash of those with the file's device and inode; that of the backup's
//! device, inode, size and time (of nothing without one). Numbers are little endian.

use std::{collections::HashMap, io, sync::Arc};

use dsync_delta::ContentHasher;
use dsync_fs::{BackupPlace, Component, Dir, Durability, Metadata, Notes, Timestamp};
use dsync_wire::options::Append;

use super::{Site, backup::Backups, homes::Homes, slot::Slot};

/// The note of one file. Dropping it removes it if the file has not been written into, or may be added to as
/// before.
#[derive(Debug)]
pub(super) struct Begun {
    dir: Arc<Dir>,
    /// The file's name, and that of the note.
    target: Component,
    note: Component,
    /// The file before the first write; `None` if an earlier run has written into it.
    before: Option<Metadata>,
    /// Its size at the end, where the note says nothing that matters before.
    adds_to: Option<u64>,
}

impl Begun {
    /// Finds the note that an earlier run left of a file and its backup, if it is true. A run that makes no
    /// backups leaves the earlier one to the note.
    pub(super) fn find(slot: &Slot, dir: &Arc<Dir>, place: Option<&BackupPlace>) -> Option<Self> {
        let note = left_of(dir, &slot.name)?;
        let is_of_backup = place.is_none() || note.backup == sum_of_backup(place).ok()?;
        is_of_backup.then(|| Self {
            dir: Arc::clone(dir),
            target: slot.name.clone(),
            note: note.name,
            before: None,
            adds_to: None,
        })
    }

    /// Notes that a file is about to be written into, and where its old content is.
    pub(super) fn note(
        site: &Site<'_>,
        slot: &Slot,
        dir: &Arc<Dir>,
        place: Option<&BackupPlace>,
    ) -> Option<Self> {
        match Self::write(site, slot, dir, place) {
            Ok(begun) => Some(begun),
            Err(error) => {
                tracing::debug!(%error, "no note could be made of a file that is rewritten");
                None
            }
        }
    }

    fn write(site: &Site<'_>, slot: &Slot, dir: &Arc<Dir>, place: Option<&BackupPlace>) -> io::Result<Self> {
        let before = dir.stat(&slot.name)?;
        let end = slot.becomes.map_or(UNKNOWN_END, |(size, mtime)| end_bytes(size, mtime));
        let bytes = [&end[..], &sum_of_file(&end, &before), &sum_of_backup(place)?].concat();

        let name = Homes::note_name(&slot.name)?;
        let notes = Notes::create(dir, &name)?;
        slot.directory.touch();
        site.touched(dir);
        notes.claim(NOTE_BYTES as u64)?;
        notes.write_all_at(0, &bytes)?;
        if site.durability() != Durability::None && loses_without(site) {
            notes.sync(dir)?;
        }
        notes.keep();
        let adds_only = site.policy.options.writing.append != Append::No && !loses_without(site);
        let adds_to = slot.becomes.map(|(size, _)| size).filter(|_| adds_only);
        Ok(Self {
            dir: Arc::clone(dir),
            target: slot.name.clone(),
            note: name,
            before: Some(before),
            adds_to,
        })
    }

    /// Removes the note of a file that is whole again.
    pub(super) fn end(self) {
        let _ = self.dir.remove_file(&self.note);
    }
}

impl Drop for Begun {
    fn drop(&mut self) {
        let Some(before) = self.before else { return };
        let Ok(now) = self.dir.stat(&self.target) else { return };
        let is_shorter = self.adds_to.is_some_and(|end| now.size < end);
        if is_shorter || now.stamp().is_same_content(&before.stamp()) {
            let _ = self.dir.remove_file(&self.note);
        }
    }
}

/// Returns whether a power cut may cost content or a backup of this very kind of run if notes are not on
/// disk. To `--append` alone it may cost some of what was added, with or without notes; a killed process costs
/// no note.
fn loses_without(site: &Site<'_>) -> bool {
    let options = &site.policy.options;
    let loses_backup = site.backups.get().is_some_and(Backups::replace_older);
    loses_backup || options.update || options.size_only
}

/// Returns whether a run that was killed has left the file half written.
pub(super) fn is_half_written(dir: &Dir, name: &Component) -> bool {
    left_of(dir, name).is_some()
}

/// Returns whether notes in a directory are true of their files; `None` for notes of another kind, and those
/// of a live run. Lists the directory.
pub(super) fn are_true(dir: &Dir, notes: &[Component]) -> Vec<Option<bool>> {
    // A power cut may leave one without its bytes.
    let is_ours = |note: &Component| {
        Notes::read_left(dir, note, NOTE_BYTES + 1).is_ok_and(|bytes| [0, NOTE_BYTES].contains(&bytes.len()))
    };
    let ours = notes.iter().filter(|note| is_ours(note));
    let mut verdicts: HashMap<&Component, bool> = ours.map(|note| (note, false)).collect();
    if !verdicts.is_empty() {
        for (name, _) in dir.list().entries {
            let note = Homes::note_name(&name).ok();
            if let Some(is_true) = note.and_then(|note| verdicts.get_mut(&note)) {
                *is_true = is_half_written(dir, &name);
            }
        }
    }
    notes.iter().map(|note| verdicts.get(note).copied()).collect()
}

/// The note of a file that is half written.
struct Left {
    name: Component,
    /// The sum of the facts of its backup.
    backup: [u8; 32],
}

/// Reads the note that an earlier run left of a file; `None` unless it is true of the file.
fn left_of(dir: &Dir, target: &Component) -> Option<Left> {
    let name = Homes::note_name(target).ok()?;
    let bytes = Notes::read_left(dir, &name, NOTE_BYTES + 1).ok()?;
    let bytes: [u8; NOTE_BYTES] = bytes.try_into().ok()?;

    let now = dir.stat(target).ok()?;
    let (end, sums) = bytes.split_first_chunk::<END_BYTES>()?;
    let (file, backup) = sums.split_first_chunk::<32>()?;
    let is_whole = *end != UNKNOWN_END && *end == end_bytes(now.size, now.mtime);
    let is_of_file = *file == sum_of_file(end, &now);
    (is_of_file && !is_whole).then_some(Left { name, backup: *backup.first_chunk()? })
}

fn end_bytes(size: u64, mtime: Timestamp) -> [u8; END_BYTES] {
    let mut bytes = UNKNOWN_END;
    bytes[..8].copy_from_slice(&size.to_le_bytes());
    bytes[8..16].copy_from_slice(&mtime.seconds.to_le_bytes());
    bytes[16..].copy_from_slice(&mtime.nanoseconds.to_le_bytes());
    bytes
}

fn sum_of_file(end: &[u8; END_BYTES], file: &Metadata) -> [u8; 32] {
    sum(b"file", file, end)
}

fn sum_of_backup(place: Option<&BackupPlace>) -> io::Result<[u8; 32]> {
    let Some(place) = place else { return Ok([0; 32]) };
    let backup = place.dir().stat(place.name())?;
    Ok(sum(b"backup", &backup, &end_bytes(backup.size, backup.mtime)))
}

fn sum(kind: &[u8], file: &Metadata, more: &[u8]) -> [u8; 32] {
    let mut hasher = ContentHasher::new();
    hasher.update(CONTEXT).update(kind).update(&file.dev.to_le_bytes()).update(&file.ino.to_le_bytes());
    hasher.update(more).finish()
}

const CONTEXT: &[u8] = b"dsync: a file that is rewritten: ";
const END_BYTES: usize = 20;
/// The end of a file whose time is not kept.
const UNKNOWN_END: [u8; END_BYTES] = [0; END_BYTES];
const NOTE_BYTES: usize = END_BYTES + 2 * 32;
