//! Times at which the files of a manifest, or those that runs have recorded, were last read and found
//! sound, so that a verification reads the others only, and one that was interrupted goes on where it
//! ended.
//!
//! The times stand in a file of their own, in the order of the manifest's records, or each with the mark
//! of a record: `docs/manifest.md` has its bytes. It can only cost time: whatever is wrong with it makes
//! all files count as unread.
//!
//! The law: a time counts for the version of the file that was read then, in the tree that it was in. Of
//! another disk with a copy of the tree, or a file that was restored, nothing has been read.

use std::{
    io::{self, BufWriter, Write as _},
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use dsync_delta::ContentHasher;
use dsync_fs::{Component, Dir, DirRef, Links, OperatorFiles, Stamp};

use super::Difference;
use crate::{
    Recorded,
    manifest::Manifest,
    whole_file::{WholeFile, place},
};

/// The age up to which a file counts as verified without being read again.
///
/// ```
/// use std::time::Duration;
///
/// use dsync_engine::verify::{MaxAge, Reading};
///
/// // Go on with a verification that was interrupted within the last day.
/// let since_yesterday = MaxAge::new(Duration::from_secs(24 * 3600), "/var/lib/agent/read-at");
/// let reading = Reading::default().max_age(Some(since_yesterday));
/// # let _ = reading;
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct MaxAge {
    /// A file that was read and found sound within this time is compared by size and time only.
    pub age: Duration,
    /// The file that keeps these times: 12 bytes for each entry of the manifest, or for each record of a
    /// run. It is made where it is missing, written anew once a minute and at the end, also of a
    /// verification that is cancelled. A file that begins otherwise than these do is not replaced.
    pub file: PathBuf,
}

impl MaxAge {
    /// Returns an age and the file of the times.
    pub fn new(age: Duration, file: impl Into<PathBuf>) -> Self {
        Self { age, file: file.into() }
    }
}

/// A fault of the file of times. The verification goes on.
#[derive(Debug)]
#[non_exhaustive]
pub enum AgesProblem {
    /// It is damaged, of another version or of another manifest: every file counts as unread.
    Unusable,
    /// It cannot be read: every file counts as unread.
    Unreadable(io::Error),
    /// It cannot be written: the next verification reads again what this one has read.
    Unsaved(io::Error),
}

/// The records that the times are of.
enum Of {
    /// Those of the manifest with this hash, each with the mark of the file that was read.
    Manifest([u8; 32], Vec<u64>),
    /// Those of runs, each by its mark.
    Runs(Vec<u64>),
}

/// The times of the files of a manifest or of runs.
pub(super) struct Ages {
    dir: Arc<Dir>,
    name: Component,
    of: Of,
    /// Seconds since 1970 for each record; 0 is never.
    times: Vec<u32>,
    /// Times up to this one are too old.
    oldest: u32,
    now: u32,
    saved: Instant,
    changed: bool,
}

impl Ages {
    /// Reads the times of a manifest's files.
    ///
    /// # Errors
    /// The system's error for the directory of the file, [`UntrustedLink`](dsync_fs::UntrustedLink)
    /// on the way there, or something else than a regular file of times in its place.
    pub(super) fn open(
        max_age: &MaxAge,
        manifest: &Manifest,
        problem: impl FnOnce(AgesProblem),
    ) -> io::Result<Self> {
        let entries = usize::try_from(manifest.totals().entries).map_err(io::Error::other)?;
        Self::of((Of::Manifest(*manifest.hash(), vec![0; entries]), entries), max_age, problem)
    }

    /// Reads the times of the files that runs have recorded, whose records have these marks.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub(super) fn open_of_runs(
        max_age: &MaxAge,
        marks: Vec<u64>,
        problem: impl FnOnce(AgesProblem),
    ) -> io::Result<Self> {
        let entries = marks.len();
        Self::of((Of::Runs(marks), entries), max_age, problem)
    }

    fn of(
        (mut of, entries): (Of, usize),
        max_age: &MaxAge,
        problem: impl FnOnce(AgesProblem),
    ) -> io::Result<Self> {
        let (dir, name) = place(&max_age.file, &OperatorFiles::new(Links::Trusted))?;

        let times = match of.read(&dir, &name, entries) {
            Ok(Some(times)) => times,
            Ok(None) => {
                problem(AgesProblem::Unusable);
                vec![0; entries]
            }
            Err(error) if NotTimes::is_of(&error) => return Err(error),
            Err(error) => {
                if error.kind() != io::ErrorKind::NotFound {
                    problem(AgesProblem::Unreadable(error));
                }
                vec![0; entries]
            }
        };

        let now = seconds(SystemTime::now());
        let age = u32::try_from(max_age.age.as_secs()).unwrap_or(u32::MAX);
        let (oldest, saved) = (now.saturating_sub(age), Instant::now());
        Ok(Self { dir, name, of, times, oldest, now, saved, changed: false })
    }

    /// Returns whether an entry of a directory is the file that keeps the times.
    pub(super) fn are_at(&self, dir: &DirRef, name: &Component) -> bool {
        // The name first: it costs nothing, and no other entry has it.
        if *name != self.name {
            return false;
        }
        let [Ok(here), Ok(there)] = [self.dir.stat(name), dir.stat(name)] else { return false };
        (here.dev, here.ino) == (there.dev, there.ino)
    }

    /// Returns whether the file of this record, which has this mark by now, has to be read. A time in the
    /// future proves nothing.
    pub(super) fn is_due(&self, record: usize, mark: u64) -> bool {
        let is_other = match &self.of {
            Of::Manifest(_, marks) => marks.get(record) != Some(&mark),
            // Their records are of one version each.
            Of::Runs(_) => false,
        };
        let is_old = |&time: &u32| time == 0 || time <= self.oldest || time > self.now;
        is_other || self.times.get(record).is_none_or(is_old)
    }

    /// Notes the outcome for the file of this record, which has this mark, and whether it was read. Whatever
    /// comes in the place of one that is missing or not sound is read.
    pub(super) fn judge(
        &mut self,
        record: usize,
        mark: u64,
        (is_read, difference): (bool, Option<&Difference>),
    ) {
        match difference {
            None | Some(Difference::Attributes(_)) if is_read => self.note_sound(record, mark),
            None | Some(Difference::Attributes(_)) => {}
            Some(_) => self.note_finding(record),
        }
    }

    fn note_sound(&mut self, record: usize, mark: u64) {
        self.note(record, seconds(SystemTime::now()));
        if let Of::Manifest(_, marks) = &mut self.of
            && let Some(of_record) = marks.get_mut(record)
        {
            *of_record = mark;
        }
    }

    fn note_finding(&mut self, record: usize) {
        self.note(record, 0);
    }

    fn note(&mut self, record: usize, time: u32) {
        if let Some(of_record) = self.times.get_mut(record) {
            *of_record = time;
            self.changed = true;
        }
    }

    /// Saves the times if the last save is long ago, or at the `end`.
    pub(super) fn save(&mut self, end: bool) -> io::Result<()> {
        if !self.changed || !end && self.saved.elapsed() < SAVE_EVERY {
            return Ok(());
        }
        (self.saved, self.changed) = (Instant::now(), false);
        let whole = WholeFile::create(&self.dir, self.name.clone())?;
        let mut out = Hashing { out: BufWriter::new(whole), hasher: ContentHasher::new() };
        self.of.write(&self.times, |bytes| out.write(bytes))?;
        let hash = out.hasher.finish();
        out.out.write_all(&hash)?;
        out.out.into_inner().map_err(io::IntoInnerError::into_error)?.commit()
    }
}

impl Of {
    /// Returns the times in a file, or `None` if it is not of these records or damaged.
    fn read(&mut self, dir: &Dir, name: &Component, entries: usize) -> io::Result<Option<Vec<u32>>> {
        let file = dir.open_source_noatime(name)?;
        let mut begins = [0; KIND.len()];
        let begun = file.read_full_at(0, &mut begins)?;
        if !begins.get(..begun).is_some_and(|begins| KIND.starts_with(begins)) {
            return Err(io::Error::new(io::ErrorKind::InvalidData, NotTimes));
        }
        let Some(len) = usize::try_from(file.len()).ok().filter(|len| self.may_have(*len, entries)) else {
            return Ok(None);
        };
        let mut raw = vec![0; len];
        if file.read_full_at(0, &mut raw)? != len {
            return Ok(None);
        }
        let Some((body, hash)) = raw.split_last_chunk::<32>() else { return Ok(None) };
        let mut hasher = ContentHasher::new();
        hasher.update(body);
        Ok(if hasher.finish() == *hash { self.times(body) } else { None })
    }

    /// Returns whether a file of these records may have this length. That of runs may be of records that
    /// there are no more.
    fn may_have(&self, len: usize, entries: usize) -> bool {
        match self {
            Self::Manifest(..) => len == MAGIC.len() + 32 + 12 * entries + 32,
            Self::Runs(_) => len <= MAX_RUNS_BYTES,
        }
    }

    fn times(&mut self, body: &[u8]) -> Option<Vec<u32>> {
        let mark = |kept: &[u8; 12]| kept.first_chunk::<8>().map_or(0, |mark| u64::from_le_bytes(*mark));
        let time = |kept: &[u8; 12]| kept.last_chunk::<4>().map_or(0, |time| u32::from_le_bytes(*time));
        match self {
            Self::Manifest(hash, marks) => {
                let kept = body.strip_prefix(MAGIC)?.strip_prefix(&hash[..])?;
                let (kept, []) = kept.as_chunks::<12>() else { return None };
                marks.iter_mut().zip(kept).for_each(|(of_record, kept)| *of_record = mark(kept));
                Some(kept.iter().map(time).collect())
            }
            Self::Runs(marks) => {
                let (kept, []) = body.strip_prefix(RUNS_MAGIC)?.as_chunks::<12>() else { return None };
                let time = |at: usize| kept.get(at).map_or(0, time);
                // In a file with a right hash they are in this order; in another one nothing is found.
                let times =
                    marks.iter().map(|wanted| kept.binary_search_by_key(wanted, mark).map_or(0, time));
                Some(times.collect())
            }
        }
    }

    /// Writes the times of these records, piece by piece.
    fn write(&self, times: &[u32], mut out: impl FnMut(&[u8]) -> io::Result<()>) -> io::Result<()> {
        match self {
            Self::Manifest(hash, marks) => {
                out(MAGIC)?;
                out(hash)?;
                marks.iter().zip(times).try_for_each(|(mark, time)| {
                    out(&mark.to_le_bytes())?;
                    out(&time.to_le_bytes())
                })
            }
            Self::Runs(marks) => {
                let mut kept: Vec<_> = marks.iter().zip(times).filter(|(_, time)| **time != 0).collect();
                kept.sort_unstable();
                out(RUNS_MAGIC)?;
                kept.into_iter().try_for_each(|(mark, time)| {
                    out(&mark.to_le_bytes())?;
                    out(&time.to_le_bytes())
                })
            }
        }
    }
}

/// Something else than a file of times has its name.
#[derive(Debug, thiserror::Error)]
#[error("it is no file of dsync's that keeps the times of reading, and stays as it is")]
struct NotTimes;

impl NotTimes {
    fn is_of(error: &io::Error) -> bool {
        error.get_ref().is_some_and(|inner| inner.is::<Self>())
    }
}

/// Returns a mark of the version of a local file that another one has by chance only.
pub(super) fn mark_of(stamp: &Stamp) -> u64 {
    let Stamp { ino, size, mtime, ctime, .. } = *stamp;
    let mut hasher = ContentHasher::new();
    // The filesystem's number is not in it: a reboot may change that.
    for number in [ino, size] {
        hasher.update(&number.to_le_bytes());
    }
    for time in [mtime, ctime] {
        hasher.update(&time.seconds.to_le_bytes()).update(&time.nanoseconds.to_le_bytes());
    }
    first_of(&hasher)
}

/// Returns a mark of a tree at another end, of whose files no version is known.
pub(super) fn mark_of_tree(name: &[u8]) -> u64 {
    let mut hasher = ContentHasher::new();
    hasher.update(b"tree ").update(name);
    first_of(&hasher)
}

fn first_of(hasher: &ContentHasher) -> u64 {
    hasher.finish().first_chunk::<8>().map_or(0, |first| u64::from_le_bytes(*first))
}

/// Hashes what it writes.
struct Hashing<W> {
    out: W,
    hasher: ContentHasher,
}

impl<W: io::Write> Hashing<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.hasher.update(bytes);
        self.out.write_all(bytes)
    }
}

/// Returns whole seconds since 1970, up to the year 2106.
fn seconds(time: SystemTime) -> u32 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u32::try_from(since.as_secs()).unwrap_or(u32::MAX)
}

/// The beginning of each file of times.
const KIND: &[u8] = b"dsync-verified";
const MAGIC: &[u8] = b"dsync-verified 2\n";
const RUNS_MAGIC: &[u8] = b"dsync-verified-runs 1\n";
/// Longest file that is read: one time for each record that is kept in memory.
const MAX_RUNS_BYTES: usize = 12 * Recorded::MAX_RECORDS + 64;
/// Interval between two saves: so much reading is lost with the power.
const SAVE_EVERY: Duration = Duration::from_secs(60);

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::disallowed_methods)]
mod tests {
    use std::{fs, path::Path};

    use super::*;
    use crate::manifest::{ManifestWriter, Record};
    use dsync_wire::event::FileType;

    fn manifest(at: &Path, files: u8) -> Manifest {
        let mut writer = ManifestWriter::new(fs::File::create(at).unwrap()).unwrap();
        for file in 0..files {
            writer.push(&Record::new(vec![b'a' + file], FileType::File)).unwrap();
        }
        writer.finish().unwrap();
        Manifest::open(at).unwrap()
    }

    fn due(max_age: &MaxAge, manifest: &Manifest) -> (Vec<bool>, bool) {
        let mut told = false;
        let ages = Ages::open(max_age, manifest, |_| told = true).unwrap();
        ((0..5).map(|record| ages.is_due(record, 7)).collect(), told)
    }

    #[test]
    fn what_is_not_exactly_as_it_was_saved_counts_as_unread() {
        let at = tempfile::tempdir().unwrap();
        let one = manifest(&at.path().join("one"), 4);
        let max_age = MaxAge::new(Duration::from_secs(1000), at.path().join("ages"));
        assert_eq!(due(&max_age, &one), (vec![true; 5], false), "no file, no complaint");

        let mut ages = Ages::open(&max_age, &one, |_| {}).unwrap();
        [0, 2, 3, 9].into_iter().for_each(|at| ages.note_sound(at, 7));
        ages.note_finding(3);
        ages.save(true).unwrap();
        assert_eq!(due(&max_age, &one), (vec![false, true, false, true, true], false));
        // Of another version of the files nothing was read.
        let ages = Ages::open(&max_age, &one, |_| {}).unwrap();
        assert!((0..5).all(|record| ages.is_due(record, 8)));
        let none = MaxAge { age: Duration::ZERO, ..max_age.clone() };
        assert_eq!(due(&none, &one), (vec![true; 5], false));
        assert_eq!(due(&max_age, &manifest(&at.path().join("two"), 5)), (vec![true; 5], true));

        let right = fs::read(&max_age.file).unwrap();
        for index in 0..right.len() {
            let mut wrong = right.clone();
            wrong[index] ^= 1;
            fs::write(&max_age.file, &wrong).unwrap();
            if index < KIND.len() {
                // Whatever it is, somebody may need it.
                assert!(Ages::open(&max_age, &one, |_| {}).is_err(), "byte {index}");
                assert_eq!(fs::read(&max_age.file).unwrap(), wrong);
            } else {
                assert_eq!(due(&max_age, &one), (vec![true; 5], true), "byte {index}");
            }
            fs::write(&max_age.file, &right[..index]).unwrap();
            assert_eq!(due(&max_age, &one), (vec![true; 5], true), "cut to {index}");
        }
        fs::write(&max_age.file, [&right[..], b"x"].concat()).unwrap();
        assert_eq!(due(&max_age, &one), (vec![true; 5], true));
    }

    #[test]
    fn times_of_runs_are_of_records_and_not_of_their_places() {
        let at = tempfile::tempdir().unwrap();
        let max_age = MaxAge::new(Duration::from_secs(1000), at.path().join("ages"));
        let open = |marks: &[u64]| {
            let mut told = false;
            let ages = Ages::open_of_runs(&max_age, marks.to_vec(), |_| told = true).unwrap();
            (ages, told)
        };
        let due = |marks: &[u64]| {
            let (ages, told) = open(marks);
            ((0..marks.len()).map(|record| ages.is_due(record, 7)).collect::<Vec<_>>(), told)
        };
        let (mut ages, _) = open(&[u64::MAX, 5, 7, 9]);
        [0, 1, 2].into_iter().for_each(|at| ages.note_sound(at, 7));
        ages.note_finding(2);
        ages.save(true).unwrap();
        assert_eq!(due(&[9, 7, 5, 3, u64::MAX]), (vec![true, true, false, true, false], false));
        assert_eq!(due(&[]), (vec![], false));

        // Times of records that there are no more go when it is written again.
        let (mut ages, _) = open(&[5]);
        ages.note_sound(0, 7);
        ages.save(true).unwrap();
        assert_eq!(due(&[5, u64::MAX]), (vec![false, true], false));
        let right = fs::read(&max_age.file).unwrap();
        assert_eq!(right.len(), RUNS_MAGIC.len() + 12 + 32);
        for index in 0..right.len() {
            let mut wrong = right.clone();
            wrong[index] ^= 1;
            fs::write(&max_age.file, wrong).unwrap();
            if index >= KIND.len() {
                assert_eq!(due(&[5]), (vec![true], true), "byte {index}");
            }
            fs::write(&max_age.file, &right[..index]).unwrap();
            assert_eq!(due(&[5]), (vec![true], true), "cut to {index}");
        }
        // The times of a manifest are none of these.
        let one = manifest(&at.path().join("one"), 1);
        Ages::open(&max_age, &one, |_| {}).unwrap().note_sound(0, 7);
        fs::write(&max_age.file, &right).unwrap();
        assert!(self::due(&max_age, &one).1);
    }

    #[test]
    fn the_file_of_times_is_reached_through_no_link_of_others() {
        let at = tempfile::tempdir().unwrap();
        let one = manifest(&at.path().join("one"), 1);
        fs::create_dir(at.path().join("real")).unwrap();
        let link = at.path().join("theirs");
        std::os::unix::fs::symlink("real", &link).unwrap();
        let max_age = MaxAge::new(Duration::from_secs(1), link.join("ages"));
        assert!(Ages::open(&max_age, &one, |_| {}).is_ok());
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::lchown(&link, Some(65_534), None).unwrap();
            let refused = Ages::open(&max_age, &one, |_| {}).map(drop).unwrap_err();
            assert!(dsync_fs::UntrustedLink::of(&refused).is_some(), "{refused}");
        }
    }

    #[test]
    fn times_that_are_too_old_or_in_the_future_count_as_unread() {
        let at = tempfile::tempdir().unwrap();
        let one = manifest(&at.path().join("one"), 3);
        let max_age = MaxAge::new(Duration::from_secs(1000), at.path().join("ages"));
        let mut ages = Ages::open(&max_age, &one, |_| {}).unwrap();
        let now = ages.now;
        ages.of = Of::Manifest(*one.hash(), vec![7; 3]);
        ages.times = vec![now - 1001, now - 900, now + 3000];
        ages.changed = true;
        ages.save(true).unwrap();
        assert_eq!(due(&max_age, &one), (vec![true, false, true, true, true], false));
    }
}
