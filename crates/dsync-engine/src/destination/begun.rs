//! Notes of files whose rewriting has begun (`--inplace` with backups).
//!
//! A run that is killed while it writes into a file leaves one that is neither old nor new. The next
//! run would keep a backup of that, in the place of the one that has the old content. So a note stands
//! beside the file before the first write: this file is being written into, and that is its backup.
//!
//! The law: while a note is true, its file gets no further backup. It is true as long as the file is
//! the same inode, the backup is the same inode with the same size and time, and the file has not yet
//! the size and time that it has at the end. A run without backups, or one that replaces files, removes
//! the notes of the directories that it reads. A note that cannot be made is no failure.
//!
//! A note is 52 bytes: the size, seconds and nanoseconds that the file has at the end (zeros where its
//! time is not kept), and the BLAKE3 hash of those and of the facts above. Numbers are little endian.

use std::{io, sync::Arc};

use dsync_delta::ContentHasher;
use dsync_fs::{BackupPlace, Component, Dir, Durability, Metadata, Notes, Timestamp};

use super::{Site, homes::Homes, slot::Slot};

/// The note of one file. Dropping it removes it if the file has not been written into.
#[derive(Debug)]
pub(super) struct Begun {
    dir: Arc<Dir>,
    /// The file's name, and that of the note.
    target: Component,
    note: Component,
    /// The file before the first write; `None` if an earlier run has written into it.
    before: Option<Metadata>,
}

impl Begun {
    /// Finds the note that an earlier run left of a file, if it is true.
    pub(super) fn find(slot: &Slot, dir: &Arc<Dir>, place: &BackupPlace) -> Option<Self> {
        let note = Homes::note_name(&slot.name).ok()?;
        let left = Notes::open(dir, &note).ok()?;
        let is_true = left.read(NOTE_BYTES + 1).is_ok_and(|found| is_true(&found, slot, dir, place));
        // The name stays until the file is whole.
        left.keep();
        is_true.then(|| Self { dir: Arc::clone(dir), target: slot.name.clone(), note, before: None })
    }

    /// Notes that a file is about to be written into, and where its old content is.
    pub(super) fn note(site: &Site<'_>, slot: &Slot, dir: &Arc<Dir>, place: &BackupPlace) -> Option<Self> {
        match Self::write(site, slot, dir, place) {
            Ok(begun) => Some(begun),
            Err(error) => {
                tracing::debug!(%error, "no note could be made of a file that is rewritten");
                None
            }
        }
    }

    fn write(site: &Site<'_>, slot: &Slot, dir: &Arc<Dir>, place: &BackupPlace) -> io::Result<Self> {
        let (before, backup) = (dir.stat(&slot.name)?, place.dir().stat(place.name())?);
        let note = Homes::note_name(&slot.name)?;
        let notes = Notes::create(dir, &note)?;
        slot.directory.touch();
        site.touched(dir);

        notes.claim(NOTE_BYTES as u64)?;
        notes.write_all_at(0, &note_of(end_of(slot), &before, &backup))?;
        if site.durability() != Durability::None {
            notes.sync(dir)?;
        }
        notes.keep();
        Ok(Self { dir: Arc::clone(dir), target: slot.name.clone(), note, before: Some(before) })
    }

    /// Removes the note of a file that is whole again.
    pub(super) fn end(self) {
        let _ = self.dir.remove_file(&self.note);
    }
}

impl Drop for Begun {
    fn drop(&mut self) {
        let Some(before) = self.before else { return };
        let now = self.dir.stat(&self.target).ok();
        if now.is_some_and(|now| now.stamp().is_same_content(&before.stamp())) {
            let _ = self.dir.remove_file(&self.note);
        }
    }
}

/// Returns whether a note is about this file as it is now, and its backup.
fn is_true(found: &[u8], slot: &Slot, dir: &Dir, place: &BackupPlace) -> bool {
    let (Ok(now), Ok(backup)) = (dir.stat(&slot.name), place.dir().stat(place.name())) else { return false };
    let Some(end) = found.first_chunk::<END_BYTES>() else { return false };
    let is_whole = *end != [0; END_BYTES] && *end == end_bytes(now.size, now.mtime);
    !is_whole && found == note_of(*end, &now, &backup)
}

/// Returns the size and time that a file has once it is whole; zeros if its time is not kept.
fn end_of(slot: &Slot) -> [u8; END_BYTES] {
    slot.becomes.map_or([0; END_BYTES], |(size, mtime)| end_bytes(size, mtime))
}

fn end_bytes(size: u64, mtime: Timestamp) -> [u8; END_BYTES] {
    let mut bytes = [0; END_BYTES];
    bytes[..8].copy_from_slice(&size.to_le_bytes());
    bytes[8..16].copy_from_slice(&mtime.seconds.to_le_bytes());
    bytes[16..].copy_from_slice(&mtime.nanoseconds.to_le_bytes());
    bytes
}

/// Returns the note of a file and its backup.
fn note_of(end: [u8; END_BYTES], file: &Metadata, backup: &Metadata) -> Vec<u8> {
    let mut hasher = ContentHasher::new();
    hasher.update(CONTEXT).update(&end);
    for number in [file.dev, file.ino, backup.dev, backup.ino] {
        hasher.update(&number.to_le_bytes());
    }
    hasher.update(&end_bytes(backup.size, backup.mtime));
    [&end[..], &hasher.finish()].concat()
}

const CONTEXT: &[u8] = b"dsync: a file that is rewritten, and its backup";
const END_BYTES: usize = 20;
const NOTE_BYTES: usize = END_BYTES + 32;
