//! Notes of files whose rewriting has begun (`--inplace`).
//!
//! A run that is killed while it writes into a file leaves one that is neither old nor new. The next run
//! would keep a backup of that in the place of the one that has the old content, or with `--update` and
//! `--size-only` leave it as it is for good, and with `--append` leave one to which all was added without its
//! attributes. So a note stands beside the file before the first write: this file is being written into, and
//! that is its backup. Every run reads notes, whatever the options of the one that was killed.
//!
//! The law: while a note is true its file is written again (by `--append`, unless it is longer than the
//! source's), and gets no further backup. It is true as long as the file is the same inode, by number and
//! birth time, has not yet the size and time that it has at the end, and the backup is the same inode with
//! the same size and time. Its name is made of the inode, so it is true of all names that the file has in
//! the directory. Whoever writes a file that has a true note ends that note with the file whole. One that
//! is true no more goes with the next run that reads the directory: a later edit would make it true again.
//! A note that cannot be made is no failure.
//!
//! A note is 84 bytes: the size, seconds and nanoseconds that the file has at the end (zeros where its
//! time is not kept); the BLAKE3 hash of those with the way of writing and the file's inode number and
//! birth time; that of the backup's inode number, birth time, size and time (of nothing without one), and
//! one more for the backup of each further name, 64 at the most. Numbers are little endian.

use std::{
    collections::HashMap,
    io,
    ops::Deref,
    sync::{Arc, atomic::Ordering},
};

use dsync_delta::ContentHasher;
use dsync_fs::{
    BackupPlace, Component, Dir, Durability, Kind, Metadata, Notes, Timestamp, Wanted, is_notes_name,
    reap_kept,
};

use super::{Site, backup::Backups, homes::Homes, slot::Slot};
use crate::plan;

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
        let left = left_of(dir, &slot.name)?;
        let is_of_backup = place.is_none() || left.keeps(&sum_of_backup(place).ok()?);
        is_of_backup.then(|| Self::of_earlier(slot, dir, left))
    }

    /// Returns a note that was made before.
    fn of_earlier(slot: &Slot, dir: &Arc<Dir>, left: Left) -> Self {
        let target = slot.name.clone();
        Self { dir: Arc::clone(dir), target, note: left.name, before: None, adds_to: None }
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

    /// Adds a further backup to a note that is true of the file.
    fn add(
        site: &Site<'_>,
        (slot, dir): (&Slot, &Arc<Dir>),
        left: Left,
        place: Option<&BackupPlace>,
    ) -> io::Result<Self> {
        let at = END_BYTES + 32 + left.backups.len();
        if place.is_some() && at < MAX_NOTE_BYTES {
            let notes = Notes::open(dir, &left.name)?;
            notes.claim(at as u64 + 32)?;
            notes.write_all_at(at as u64, &sum_of_backup(place)?)?;
            if site.durability() != Durability::None {
                notes.sync(dir)?;
            }
            notes.keep();
        }
        Ok(Self::of_earlier(slot, dir, left))
    }

    fn write(site: &Site<'_>, slot: &Slot, dir: &Arc<Dir>, place: Option<&BackupPlace>) -> io::Result<Self> {
        let before = dir.stat(&slot.name)?;
        // Of a file with one name only an earlier run can have made one.
        let may_be_there = before.nlink > 1 || slot.directory.may_have_notes();
        if let Some(left) = may_be_there.then(|| left_of(dir, &slot.name)).flatten() {
            return Self::add(site, (slot, dir), left, place);
        }

        let inode = Inode::of(&before);
        let end = slot.becomes.map_or(UNKNOWN_END, |(size, mtime)| end_bytes(size, mtime));
        let by = if slot.tail.is_some() { plan::Interrupted::Adding } else { plan::Interrupted::Rewriting };
        let file = inode.sum(word_of(by), &end);
        let bytes = [&end[..], &file, &sum_of_backup(place)?].concat();

        let name = inode.note_name()?;
        let notes = Notes::create(dir, &name)?;
        slot.directory.touch();
        site.touched(dir);
        notes.claim(NOTE_BYTES as u64)?;
        notes.write_all_at(0, &bytes)?;
        if site.durability() != Durability::None && loses_without(site) {
            notes.sync(dir)?;
        }
        notes.keep();
        let adds_only = slot.tail.is_some() && !loses_without(site);
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
    pub(super) fn end(mut self) {
        self.before = None;
        let _ = self.dir.remove_file(&self.note);
    }
}

impl Drop for Begun {
    fn drop(&mut self) {
        let Some(before) = self.before else { return };
        let Ok(now) = self.dir.stat(&self.target) else { return };
        let is_same = now.stamp().is_same_content(&before.stamp());
        let is_shorter = self.adds_to.is_some_and(|end| now.size < end);
        // Its new time would make it newer than the source's to `--update`.
        let old_time = Wanted { mtime: Some(before.mtime), ..Wanted::default() };
        let set = |wanted| self.dir.set_attributes(&self.target, Kind::File, wanted).is_ok();
        if is_same || is_shorter && set(&old_time) {
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

/// Returns how a run that was killed was writing into the file, if one has left it half written.
pub(super) fn left_by(dir: &Dir, name: &Component) -> Option<plan::Interrupted> {
    left_of(dir, name).map(|left| left.by)
}

/// Returns whether notes in a directory are true of their files; `None` for notes of another kind, and those
/// of a live run. Lists the directory.
pub(super) fn are_true(dir: &Dir, notes: &[Component]) -> Vec<Option<bool>> {
    // A power cut may leave one without its bytes.
    let is_ours = |note: &Component| {
        Notes::read_left(dir, note, MAX_NOTE_BYTES + 1).is_ok_and(|bytes| bytes.is_empty() || is_note(&bytes))
    };
    let ours = notes.iter().filter(|note| is_ours(note));
    let mut verdicts: HashMap<&Component, bool> = ours.map(|note| (note, false)).collect();
    if !verdicts.is_empty() {
        for left in dir.list().entries.iter().filter_map(|(name, _)| left_of(dir, name)) {
            if let Some(is_true) = verdicts.get_mut(&left.name) {
                *is_true = true;
            }
        }
    }
    notes.iter().map(|note| verdicts.get(note).copied()).collect()
}

/// Removes the notes in a directory whose files have lost their last name there to this run.
pub(super) fn reap_untrue(site: &Site<'_>, dir: &Dir) {
    if site.tree.had_notes.load(Ordering::Relaxed) {
        let _ = site.hands.reap(|| {
            reap_all_untrue(dir);
            true
        });
    }
}

fn reap_all_untrue(dir: &Dir) {
    let listed = dir.list().entries.into_iter().map(|(name, _)| name);
    let notes: Vec<_> = listed.filter(|name| is_notes_name(name.as_bytes())).collect();
    for (note, is_true) in notes.iter().zip(are_true(dir, &notes)) {
        if is_true == Some(false) {
            reap_kept(dir, note);
        }
    }
}

/// The note of a file that is half written.
struct Left {
    name: Component,
    by: plan::Interrupted,
    /// The sums of the facts of its backups, one for each of its names that has one.
    backups: Vec<u8>,
}

impl Left {
    fn keeps(&self, backup: &[u8; 32]) -> bool {
        self.backups.chunks(32).any(|sum| sum == backup)
    }
}

/// Returns whether bytes are a note, by their number.
fn is_note(bytes: &[u8]) -> bool {
    (NOTE_BYTES..=MAX_NOTE_BYTES).contains(&bytes.len()) && (bytes.len() - NOTE_BYTES).is_multiple_of(32)
}

/// Finds another name of a half-written file, in its directory, that has a backup by `place_of`.
pub(super) fn other_name_with_backup<P: Deref<Target = BackupPlace>>(
    dir: &Dir,
    target: &Component,
    mut place_of: impl FnMut(&Component) -> io::Result<Option<P>>,
) -> io::Result<Option<(Component, P)>> {
    let Some(left) = left_of(dir, target) else { return Ok(None) };
    let ino = dir.stat(target)?.ino;
    for (name, found) in dir.list().entries {
        if name == *target || !found.is_ok_and(|found| found.ino == ino) {
            continue;
        }
        let Some(place) = place_of(&name)? else { continue };
        if sum_of_backup(Some(&place)).is_ok_and(|sum| left.keeps(&sum)) {
            return Ok(Some((name, place)));
        }
    }
    Ok(None)
}

/// Reads the note that an earlier run left of a file; `None` unless it is true of the file.
fn left_of(dir: &Dir, target: &Component) -> Option<Left> {
    let now = dir.stat(target).ok().filter(|now| now.kind == Kind::File)?;
    let inode = Inode::of(&now);
    let name = inode.note_name().ok()?;
    let bytes = Notes::read_left(dir, &name, MAX_NOTE_BYTES + 1).ok().filter(|bytes| is_note(bytes))?;
    let (end, sums) = bytes.split_first_chunk::<END_BYTES>()?;
    let (file, backups) = sums.split_first_chunk::<32>()?;
    let is_whole = *end != UNKNOWN_END && *end == end_bytes(now.size, now.mtime);
    let is_by = |by: &plan::Interrupted| inode.sum(word_of(*by), end) == *file;
    let by = [plan::Interrupted::Adding, plan::Interrupted::Rewriting].into_iter().find(is_by)?;
    (!is_whole).then_some(Left { name, by, backups: backups.to_vec() })
}

/// Returns the name that the note of a file has or would get.
pub(super) fn note_of(dir: &Dir, target: &Component) -> Option<Component> {
    Inode::of(&dir.stat(target).ok()?).note_name().ok()
}

/// An inode, as it is known after the next boot too: the number of its filesystem may be another one then.
struct Inode {
    number: u64,
    born: Option<Timestamp>,
}

impl Inode {
    fn of(found: &Metadata) -> Self {
        Self { number: found.ino, born: found.born }
    }

    /// Returns the sum of the inode and `more`, for one purpose.
    fn sum(&self, purpose: &[u8], more: &[u8]) -> [u8; 32] {
        let born = self.born.map_or(UNKNOWN_END, |born| end_bytes(0, born));
        let mut hasher = ContentHasher::new();
        hasher.update(CONTEXT).update(purpose).update(&self.number.to_le_bytes()).update(&born);
        hasher.update(more).finish()
    }

    /// Returns the name of its note: all its names in a directory are half written.
    fn note_name(&self) -> io::Result<Component> {
        Homes::note_name(&self.sum(b"name", &[]))
    }
}

fn word_of(by: plan::Interrupted) -> &'static [u8] {
    match by {
        plan::Interrupted::Adding => b"added to",
        plan::Interrupted::Rewriting => b"rewritten",
    }
}

fn end_bytes(size: u64, mtime: Timestamp) -> [u8; END_BYTES] {
    let mut bytes = UNKNOWN_END;
    bytes[..8].copy_from_slice(&size.to_le_bytes());
    bytes[8..16].copy_from_slice(&mtime.seconds.to_le_bytes());
    bytes[16..].copy_from_slice(&mtime.nanoseconds.to_le_bytes());
    bytes
}

fn sum_of_backup(place: Option<&BackupPlace>) -> io::Result<[u8; 32]> {
    let Some(place) = place else { return Ok([0; 32]) };
    let backup = place.dir().stat(place.name())?;
    let inode = Inode::of(&backup);
    Ok(inode.sum(b"backup", &end_bytes(backup.size, backup.mtime)))
}

const CONTEXT: &[u8] = b"dsync: a file that is rewritten: ";
const END_BYTES: usize = 20;
/// The end of a file whose time is not kept.
const UNKNOWN_END: [u8; END_BYTES] = [0; END_BYTES];
const NOTE_BYTES: usize = END_BYTES + 2 * 32;
/// Those of a note with 64 backups.
const MAX_NOTE_BYTES: usize = END_BYTES + 65 * 32;
