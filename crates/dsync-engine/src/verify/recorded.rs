//! Verifying a tree against the contents that runs have recorded in their states.
//!
//! There is no manifest: a record is found by a file's filesystem, inode, size and times, so directories
//! above it may have other names by now. Nobody has said which files there should be, so none is missing
//! or new, and an edit is nothing wrong.
//!
//! The law: *rot* is told of the very version that a run has read, and of no other. Whatever is wrong
//! with a state makes its files count as not recorded.

use std::{collections::HashMap, io, path::Path, sync::atomic::Ordering};

use dsync_fs::Kind;
use dsync_wire::path::EntryPath;

use super::{
    Ages, AgesProblem, Batch, Difference, Entries, Finding, Found, Read, Reader, Reading, Verified,
    VerifyError, VerifyObserver, guarded,
};
use crate::{
    CancelToken,
    manifest::Totals,
    state::{Recorded, Standing},
};

/// Verifies the files of a tree against the contents that runs have recorded, see
/// [`State::recorded`](crate::State::recorded). A file is read if a record is of the version that it
/// has now; all others are findings that count as nothing wrong. The tree is walked twice, first to
/// learn whether anything of it is recorded.
///
/// [`Verified::entries`] are its regular files. Each name of a file with several is a file.
///
/// # Errors
/// [`VerifyError::NothingRecorded`] if no file can be verified; [`VerifyError::Ages`],
/// [`Tree`](VerifyError::Tree), [`Threads`](VerifyError::Threads) and
/// [`Cancelled`](VerifyError::Cancelled). Whatever is wrong with the tree's files is a [`Finding`]
/// instead.
///
/// # Example
/// ```
/// use std::path::Path;
///
/// use dsync_engine::{
///     CancelToken, Silent, State,
///     verify::{Reading, VerifyError, verify_recorded},
/// };
///
/// # fn main() -> Result<(), VerifyError> {
/// # let scratch = tempfile::tempdir().unwrap();
/// # let (tree, states) = (scratch.path(), scratch.path().join("none"));
/// let (recorded, unusable) = State::recorded(&states);
/// for why in unusable {
///     eprintln!("a state is left out: {why}");
/// }
/// match verify_recorded(tree, &recorded, &Reading::default(), &Silent, &CancelToken::new()) {
///     Ok(verified) => println!("{} sound, {} rotten", verified.sound, verified.rotten),
///     Err(VerifyError::NothingRecorded { .. }) => println!("no run with a state has read this tree"),
///     Err(error) => return Err(error),
/// }
/// # Ok(())
/// # }
/// ```
pub fn verify_recorded(
    tree: &Path,
    recorded: &Recorded,
    reading: &Reading,
    observer: &dyn VerifyObserver,
    cancel: &CancelToken,
) -> Result<Verified, VerifyError> {
    guarded(observer, cancel, |observer, cancel| verify_guarded(tree, recorded, (reading, observer), cancel))
}

fn verify_guarded(
    tree: &Path,
    recorded: &Recorded,
    (reading, observer): (&Reading, &dyn VerifyObserver),
    cancel: &CancelToken,
) -> Result<Verified, VerifyError> {
    let mut records = Records { recorded, filesystems: HashMap::new() };
    let totals = records.survey(tree, reading, cancel)?;

    let mut check = Check {
        reader: Reader::new(reading, cancel, observer).verifying(totals),
        ages: ages(reading, recorded, observer)?,
        records,
        observer,
        verified: Verified::default(),
        batch: Batch::new(),
    };

    let result = check.all(tree);
    check.save_ages(true);
    result?;
    check.verified.bytes_read = check.reader.bytes.load(Ordering::Relaxed);
    check.reader.tell(true);
    Ok(check.verified)
}

/// Opens the times at which files were found sound, where [`Reading::max_age`] asks for them.
fn ages(
    reading: &Reading,
    recorded: &Recorded,
    observer: &dyn VerifyObserver,
) -> Result<Option<Ages>, VerifyError> {
    let open = |max_age| Ages::open_of_runs(max_age, recorded.marks(), |problem| observer.ages(&problem));
    reading.max_age.as_ref().map(open).transpose().map_err(|source| VerifyError::Ages { source })
}

/// A record is of one version of a file, which needs no further mark.
const NO_MARK: u64 = 0;

/// The records beside a tree.
struct Records<'a> {
    recorded: &'a Recorded,
    /// Filesystems by their device numbers; `None` where stamps prove nothing.
    filesystems: HashMap<u64, Option<u64>>,
}

impl Records<'_> {
    /// Counts the files whose records are of the version that they have now, and their bytes.
    fn survey(
        &mut self,
        tree: &Path,
        reading: &Reading,
        cancel: &CancelToken,
    ) -> Result<Totals, VerifyError> {
        let (mut totals, mut edited_since) = (Totals::default(), 0);

        for found in Entries::open(tree, reading)?.flatten().filter(is_file) {
            if cancel.is_cancelled() {
                return Err(VerifyError::Cancelled);
            }
            totals.entries += 1;
            match self.standing(&found) {
                Standing::Recorded(..) => {
                    totals.files += 1;
                    totals.bytes = totals.bytes.saturating_add(found.metadata.size);
                }
                Standing::EditedSince(_) => edited_since += 1,
                Standing::Unrecorded => {}
            }
        }
        if totals.files == 0 { Err(VerifyError::NothingRecorded { edited_since }) } else { Ok(totals) }
    }

    fn standing(&mut self, found: &Found) -> Standing {
        let device = found.metadata.dev;
        let known = self.filesystems.get(&device).copied();
        let filesystem = known.unwrap_or_else(|| {
            // A directory that has gone meanwhile says nothing of its filesystem.
            let asked = filesystem_of(found).ok()?;
            self.filesystems.insert(device, asked);
            asked
        });
        filesystem.map_or(Standing::Unrecorded, |id| self.recorded.standing(id, &found.metadata.stamp()))
    }
}

/// Returns the number of a file's filesystem, of the directory that it is in: the file may be one that
/// cannot be opened. A file that is mounted by itself has no other way.
fn filesystem_of(found: &Found) -> io::Result<Option<u64>> {
    let (Some(dir), Some(name)) = (&found.dir, &found.name) else { return Ok(None) };
    let of_directory = dir.stable_filesystem(found.metadata.dev)?;
    if of_directory.is_some() {
        return Ok(of_directory);
    }
    let file = dir.open_source(name, None)?;
    let is_it = file.stamp().dev == found.metadata.dev;
    Ok(file.stable_filesystem().filter(|_| is_it).map(|filesystem| filesystem.id()))
}

fn is_file(found: &Found) -> bool {
    found.metadata.kind == Kind::File
}

/// A verification under way.
struct Check<'a> {
    reader: Reader<'a>,
    records: Records<'a>,
    ages: Option<Ages>,
    observer: &'a dyn VerifyObserver,
    verified: Verified,
    /// Files that wait.
    batch: Batch<(Found, Standing)>,
}

impl Check<'_> {
    fn all(&mut self, tree: &Path) -> Result<(), VerifyError> {
        for found in Entries::open(tree, self.reader.reading)? {
            match found {
                Ok(found) if is_file(&found) => self.push(found)?,
                Ok(_) => {}
                Err((path, error)) => {
                    self.flush()?;
                    let has_gone = error.kind() == io::ErrorKind::NotFound;
                    self.report(
                        path,
                        if has_gone { Difference::Busy } else { Difference::Unreadable(error) },
                    );
                }
            }
        }
        self.flush()
    }

    fn push(&mut self, found: Found) -> Result<(), VerifyError> {
        self.verified.entries += 1;
        let standing = self.records.standing(&found);
        // No other file is read.
        let bytes = if matches!(standing, Standing::Recorded(..)) { found.metadata.size } else { 0 };
        if self.batch.push((found, standing), bytes) { self.flush() } else { Ok(()) }
    }

    /// Reads what waits, and reports it in the tree's order.
    fn flush(&mut self) -> Result<(), VerifyError> {
        let (found, standings): (Vec<_>, Vec<_>) = self.batch.take().into_iter().unzip();
        let is_due = |number| self.ages.as_ref().is_none_or(|ages| ages.is_due(number, NO_MARK));
        let wants = |(found, standing): (&Found, &Standing)| match standing {
            Standing::Recorded(_, number) => self.reader.reading.samples(&found.path) && is_due(*number),
            _ => false,
        };
        let wanted: Vec<bool> = found.iter().zip(&standings).map(wants).collect();
        let read = self.reader.read_all(found, |index| wanted.get(index).copied().unwrap_or_default())?;
        let is_cancelled = self.reader.cancel.is_cancelled();

        self.judge(read, standings);
        self.save_ages(false);
        if is_cancelled { Err(VerifyError::Cancelled) } else { Ok(()) }
    }

    /// Compares what was read, also by a verification that was cancelled meanwhile: the next one need not
    /// read it again.
    fn judge(&mut self, read: Vec<(Found, Read)>, standings: Vec<Standing>) {
        for ((found, read), standing) in read.into_iter().zip(standings) {
            if matches!(read, Read::Ended) {
                continue;
            }
            let is_read = matches!(read, Read::Content(_));
            let number = if let Standing::Recorded(_, number) = standing { Some(number) } else { None };
            let difference = difference(standing, read);
            if let (Some(number), Some(ages)) = (number, &mut self.ages) {
                ages.judge(number, NO_MARK, (is_read, difference.as_ref()));
            }
            match difference {
                Some(difference) => self.report(found.path, difference),
                None if is_read => self.verified.sound += 1,
                None => self.verified.unread += 1,
            }
        }
    }

    /// Saves the times of reading now and then, and at the `end`.
    fn save_ages(&mut self, end: bool) {
        if let Some(Err(error)) = self.ages.as_mut().map(|ages| ages.save(end)) {
            self.observer.ages(&AgesProblem::Unsaved(error));
        }
    }

    fn report(&mut self, path: EntryPath, difference: Difference) {
        self.verified.count(&difference);
        self.observer.finding(&Finding { path, difference });
    }
}

/// Compares a file, whose content may have been read, with what runs have recorded of it.
fn difference(standing: Standing, read: Read) -> Option<Difference> {
    let contents = match standing {
        Standing::Unrecorded => return Some(Difference::Unrecorded),
        Standing::EditedSince(changes) => return Some(Difference::EditedSince(changes)),
        Standing::Recorded(contents, _) => contents,
    };
    match read {
        Read::Not | Read::Ended => None,
        Read::Busy => Some(Difference::Busy),
        Read::Failed(error) => Some(Difference::Unreadable(error)),
        // Two runs that have read other contents of one version have met rot between them.
        Read::Content(hash) => contents.iter().any(|content| *content != hash).then_some(Difference::Rot),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::disallowed_methods)]
mod tests;
