//! Recording a tree in a manifest, and verifying a tree against one or against what runs have recorded.
//!
//! Both walk the tree as a run's source does and read contents on all of the caller's threads,
//! while records and findings stay in the manifest's order. Nothing at the tree is changed, and
//! access times stay where the system allows it. What memory holds of a file is dropped before it is
//! verified: else a disk that has lost it since would not be noticed.
//!
//! Verifying tells *rot* from *edits*: whoever edits a file leaves another size or another time,
//! a failing disk, a wrong cable or a careless program leaves neither.

mod ages;
mod batch;
mod error;
mod findings;
mod guard;
mod judge;
mod recorded;
mod remote;

use std::{
    io::{self, BufWriter},
    iter::Peekable,
    path::Path,
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use dsync_fs::{
    DirRef, Kind, Links, Metadata, OperatorFiles, Stamp, Walk, WalkOptions, WalkedEntry, default_readers,
};
use dsync_wire::{event::Progress, path::EntryPath, setters};
use rayon::prelude::*;

use crate::{
    CancelToken, Workers, content,
    manifest::{Manifest, ManifestError, ManifestWriter, Record, Totals, compare_paths},
    plan::{file_type_of, timestamp},
    whole_file::{WholeFile, place},
};
use ages::{Ages, mark_of};
pub use ages::{AgesProblem, MaxAge};
use batch::Batch;
pub use error::VerifyError;
pub use findings::{Difference, Finding, Verified, VerifyObserver};
use guard::guarded;
use judge::{Read, difference};
pub use recorded::verify_recorded;
pub use remote::{RemoteTree, record_remote_to_file, verify_remote};

/// The way in which a tree is read.
///
/// ```
/// use std::time::Duration;
///
/// use dsync_engine::verify::{MaxAge, Reading};
///
/// // Every night, for an hour at most: each file is read once a month. Cancel it, and it goes on tomorrow.
/// let month = Duration::from_secs(30 * 24 * 3600);
/// let nightly = Reading::default().max_age(Some(MaxAge::new(month, "/var/lib/agent/read-at")));
/// // Or a sample: another tenth of all files each day.
/// let today = 20_418;
/// let sample = Reading::default().percent(10).seed(today);
/// # let _ = (nightly, sample);
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Reading {
    /// The share of files whose content is read to verify it, in percent; all others are compared by
    /// size and time. 100 by default, which more than 100 is too.
    pub percent: u8,
    /// The choice of those files: another seed chooses others.
    pub seed: u64,
    /// Read only the files that were not read and found sound within this age. All by default. With it
    /// a verification that was interrupted goes on where it ended.
    pub max_age: Option<MaxAge>,
    /// Stay on the tree's own filesystem.
    pub one_file_system: bool,
    /// The threads that read.
    pub workers: Workers,
}

setters!(Reading {
    percent: u8,
    seed: u64,
    max_age: Option<MaxAge>,
    one_file_system: bool,
    workers: Workers,
});

impl Default for Reading {
    fn default() -> Self {
        Self { percent: 100, seed: 0, max_age: None, one_file_system: false, workers: Workers::default() }
    }
}

/// Records all of a tree: every content is read.
///
/// Entries that change while they are read are read again, and recorded without their content if
/// they change again.
///
/// # Errors
/// [`VerifyError`]; a tree with entries that cannot be read is not recorded.
///
/// ```
/// use dsync_engine::{
///     CancelToken, ManifestWriter,
///     verify::{Reading, record},
/// };
///
/// # let home = tempfile::tempdir()?;
/// # let (from, to) = (home.path().join("from"), home.path().join("to"));
/// # std::fs::create_dir(&from)?;
/// # std::fs::write(from.join("note"), "short")?;
/// // Into memory, a pipe, or a connection.
/// let writer = ManifestWriter::new(Vec::new())?;
/// let (lines, totals) = record(&from, writer, &Reading::default(), &CancelToken::new())?;
/// assert_eq!((totals.files, totals.without_content), (1, 0));
/// # let _ = lines;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn record<W: io::Write>(
    tree: &Path,
    writer: ManifestWriter<W>,
    reading: &Reading,
    cancel: &CancelToken,
) -> Result<(W, Totals), VerifyError> {
    record_but(tree, writer, None, (reading, &crate::Silent), cancel)
}

/// Records all of a tree but its manifest's `own` file.
fn record_but<W: io::Write>(
    tree: &Path,
    mut writer: ManifestWriter<W>,
    own: Option<Stamp>,
    (reading, observer): (&Reading, &dyn VerifyObserver),
    cancel: &CancelToken,
) -> Result<(W, Totals), VerifyError> {
    let reader = Reader::new(reading, cancel, observer);
    let mut totals = Totals::default();
    let mut batch = Batch::new();

    let mut write = |batch: &mut Batch<Found>| {
        let read = reader.read_all(batch.take(), |_| true)?;
        if cancel.is_cancelled() {
            return Err(VerifyError::Cancelled);
        }

        for (found, read) in read {
            let content = match read {
                Read::Content(hash) => Some(hash),
                Read::Failed(source) => return Err(VerifyError::Entry { path: found.path, source }),
                Read::Not | Read::Busy | Read::Ended => None,
            };
            let record = Record { content, ..found.record() };
            totals.add(&record);
            writer.push(&record)?;
        }
        Ok(())
    };
    for found in Entries::open(tree, reading)? {
        let found = found.map_err(|(path, source)| VerifyError::Entry { path, source })?;
        if own.is_some_and(|own| found.is_file(&own)) {
            continue;
        }
        let bytes = found.metadata.size;
        if batch.push(found, bytes) {
            write(&mut batch)?;
        }
    }
    write(&mut batch)?;

    Ok((writer.finish().map_err(ManifestError::from)?, totals))
}

/// Records all of a tree in a file, which appears whole, readable for its owner only, or not at all.
/// An old file of this name is replaced; in the tree it is left out.
///
/// # Errors
/// As [`record`]; an [`UntrustedLink`](dsync_fs::UntrustedLink) on the way to the file.
pub fn record_to_file(
    tree: &Path,
    file: &Path,
    reading: &Reading,
    observer: &dyn VerifyObserver,
    cancel: &CancelToken,
) -> Result<Totals, VerifyError> {
    let failed = |source| VerifyError::Manifest(ManifestError::Io { source });
    let (dir, name) = place(file, &OperatorFiles::new(Links::Trusted)).map_err(failed)?;
    let own = dir.stat(&name).ok().map(|metadata| metadata.stamp());
    let whole = WholeFile::create(&dir, name).map_err(failed)?;

    let writer = ManifestWriter::new(BufWriter::new(whole)).map_err(failed)?;
    let (writer, totals) = guarded(observer, cancel, |observer, cancel| {
        record_but(tree, writer, own, (reading, observer), cancel)
    })?;
    let whole = writer.into_inner().map_err(|error| failed(error.into_error()))?;
    whole.commit().map_err(failed)?;
    Ok(totals)
}

/// Opens the times at which files were found sound, where [`Reading::max_age`] asks for them.
fn ages(
    reading: &Reading,
    manifest: &Manifest,
    observer: &dyn VerifyObserver,
) -> Result<Option<Ages>, VerifyError> {
    let open = |max_age| Ages::open(max_age, manifest, |problem| observer.ages(&problem));
    reading.max_age.as_ref().map(open).transpose().map_err(|source| VerifyError::Ages { source })
}

/// Verifies a tree against a manifest. The manifest's own file is left out where it is in the tree,
/// like that of [`Reading::max_age`].
///
/// # Errors
/// [`VerifyError`]; whatever is wrong with the tree's entries is a [`Finding`] instead.
///
/// ```
/// use dsync_engine::verify::{
///     Difference, Finding, Reading, VerifyObserver, record_to_file, verify,
/// };
/// use dsync_engine::{CancelToken, Manifest, Silent};
///
/// /// Calls somebody when a disk loses what nobody has edited.
/// struct Alarm;
///
/// impl VerifyObserver for Alarm {
///     fn finding(&self, finding: &Finding) {
///         if matches!(finding.difference, Difference::Rot) {
///             eprintln!("restore {}", finding.path);
///         }
///     }
/// }
///
/// # let home = tempfile::tempdir()?;
/// # let (from, to) = (home.path().join("from"), home.path().join("to"));
/// # std::fs::create_dir(&from)?;
/// # std::fs::write(from.join("note"), "short")?;
/// # let (file, cancel) = (home.path().join("manifest"), CancelToken::new());
/// record_to_file(&from, &file, &Reading::default(), &Silent, &cancel)?;
/// std::fs::write(from.join("note"), "edited")?;
///
/// let manifest = Manifest::open(&file)?;
/// let verified = verify(&from, &manifest, &Reading::default(), &Alarm, &cancel)?;
/// assert_eq!((verified.edited, verified.rotten, verified.exit_code()), (1, 0, 23));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn verify(
    tree: &Path,
    manifest: &Manifest,
    reading: &Reading,
    observer: &dyn VerifyObserver,
    cancel: &CancelToken,
) -> Result<Verified, VerifyError> {
    guarded(observer, cancel, |observer, cancel| verify_guarded(tree, manifest, (reading, observer), cancel))
}

fn verify_guarded(
    tree: &Path,
    manifest: &Manifest,
    (reading, observer): (&Reading, &dyn VerifyObserver),
    cancel: &CancelToken,
) -> Result<Verified, VerifyError> {
    let mut check = Check {
        reader: Reader::new(reading, cancel, observer).verifying(manifest.totals()),
        ages: ages(reading, manifest, observer)?,
        observer,
        verified: Verified::default(),
        batch: Batch::new(),
        records: 0,
        unreadable: Vec::new(),
    };

    let result = check.all(tree, manifest);
    check.save_ages(true);
    result?;
    check.verified.bytes_read = check.reader.bytes.load(Ordering::Relaxed);
    check.reader.tell(true);
    Ok(check.verified)
}

/// A verification under way.
struct Check<'a> {
    reader: Reader<'a>,
    observer: &'a dyn VerifyObserver,
    ages: Option<Ages>,
    verified: Verified,
    /// Entries that wait, with their records and the numbers of these.
    batch: Batch<(Found, (usize, Record))>,
    /// Records of the manifest so far.
    records: usize,
    /// Paths below which the tree could not be read.
    unreadable: Vec<EntryPath>,
}

impl Check<'_> {
    /// Compares all entries of the tree and of the manifest.
    fn all(&mut self, tree: &Path, manifest: &Manifest) -> Result<(), VerifyError> {
        let own = Stamp::of_file(manifest.file()).map_err(ManifestError::from)?;
        let mut records = manifest.reader()?.peekable();

        for found in Entries::open(tree, self.reader.reading)? {
            let found = match found {
                Ok(found) if found.is_file(&own) => continue,
                Ok(found) if self.keeps_ages(&found) => {
                    // A run may have recorded what an earlier verification left there.
                    self.up_to(&found.path, &mut records)?;
                    continue;
                }
                found => found,
            };
            let path = match &found {
                Ok(found) => &found.path,
                Err((path, _)) => path,
            };
            let record = self.up_to(path, &mut records)?;
            match found {
                Ok(found) => self.push(found, record)?,
                Err((path, error)) => self.unread(path, error)?,
            }
        }
        while let Some(record) = records.next().transpose()? {
            self.records += 1;
            self.missing(record)?;
        }
        self.flush()
    }

    /// Reports the records before a path as missing. Returns the record of the path itself.
    fn up_to(
        &mut self,
        path: &[u8],
        records: &mut Peekable<impl Iterator<Item = Result<Record, ManifestError>>>,
    ) -> Result<Option<Record>, VerifyError> {
        loop {
            let due = |next: &Result<Record, _>| match next {
                Ok(record) => compare_paths(&record.path, path).is_le(),
                Err(_) => true,
            };
            let next = records.next_if(due).transpose()?;
            self.records += usize::from(next.is_some());
            match next {
                Some(record) if record.path.as_bytes() == path => return Ok(Some(record)),
                Some(record) => self.missing(record)?,
                None => return Ok(None),
            }
        }
    }

    fn missing(&mut self, record: Record) -> Result<(), VerifyError> {
        let is_below = |above: &EntryPath| {
            above.is_empty()
                || record.path.strip_prefix(above.as_bytes()).is_some_and(|rest| rest.starts_with(b"/"))
        };
        if self.unreadable.iter().any(is_below) {
            return Ok(());
        }
        self.verified.entries += 1;
        if let Some(ages) = &mut self.ages {
            ages.judge(self.records - 1, 0, (false, Some(&Difference::Missing)));
        }
        self.find(record.path, Difference::Missing)
    }

    fn unread(&mut self, path: EntryPath, error: io::Error) -> Result<(), VerifyError> {
        if error.kind() == io::ErrorKind::NotFound {
            return self.find(path, Difference::Busy);
        }
        self.unreadable.push(path.clone());
        self.find(path, Difference::Unreadable(error))
    }

    /// Reports a difference after those of the entries before it.
    fn find(&mut self, path: EntryPath, difference: Difference) -> Result<(), VerifyError> {
        self.flush()?;
        self.report(path, difference);
        Ok(())
    }

    fn report(&mut self, path: EntryPath, difference: Difference) {
        self.verified.count(&difference);
        self.observer.finding(&Finding { path, difference });
    }

    fn push(&mut self, found: Found, record: Option<Record>) -> Result<(), VerifyError> {
        self.verified.entries += 1;
        match record {
            None => self.find(found.path, Difference::New),
            Some(record) => {
                let bytes = found.metadata.size;
                let is_full = self.batch.push((found, (self.records - 1, record)), bytes);
                if is_full { self.flush() } else { Ok(()) }
            }
        }
    }

    /// Returns whether an entry is the file that keeps the times of reading, which is written anew
    /// meanwhile.
    fn keeps_ages(&self, found: &Found) -> bool {
        match (&self.ages, &found.dir, &found.name) {
            (Some(ages), Some(dir), Some(name)) => ages.are_at(dir, name),
            _ => false,
        }
    }

    /// Reads and compares what waits.
    fn flush(&mut self) -> Result<(), VerifyError> {
        let (found, records): (Vec<_>, Vec<_>) = self.batch.take().into_iter().unzip();
        let is_due = |number, found: &Found| {
            self.ages.as_ref().is_none_or(|ages| ages.is_due(number, mark_of(&found.metadata.stamp())))
        };
        let wants = |(found, (number, record)): (&Found, &(usize, Record))| {
            self.reader.reading.wants(&found.record(), record) && is_due(*number, found)
        };
        let wanted: Vec<bool> = found.iter().zip(&records).map(wants).collect();
        let read = self.reader.read_all(found, |index| wanted.get(index).copied().unwrap_or_default())?;
        let is_cancelled = self.reader.cancel.is_cancelled();

        self.judge(read, records);
        self.save_ages(false);
        if is_cancelled { Err(VerifyError::Cancelled) } else { Ok(()) }
    }

    /// Compares what was read, also by a verification that was cancelled meanwhile: the next one need not
    /// read it again.
    fn judge(&mut self, read: Vec<(Found, Read)>, records: Vec<(usize, Record)>) {
        for ((found, read), (number, record)) in read.into_iter().zip(records) {
            if matches!(read, Read::Ended) {
                continue;
            }
            let is_read = matches!(read, Read::Content(_));
            let difference = difference(&found.record(), read, &record);
            if let Some(ages) = &mut self.ages {
                ages.judge(number, mark_of(&found.metadata.stamp()), (is_read, difference.as_ref()));
            }
            match difference {
                Some(difference) => self.report(found.path, difference),
                None if found.metadata.kind != Kind::File => {}
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
}

/// An entry of the tree.
struct Found {
    path: EntryPath,
    dir: Option<DirRef>,
    name: Option<dsync_fs::Component>,
    metadata: Metadata,
    text: Vec<u8>,
}

impl Found {
    fn of(dir: &dsync_fs::WalkedDir, entry: WalkedEntry) -> Self {
        let metadata = entry.metadata;
        let text = match metadata.kind {
            Kind::CharDevice | Kind::BlockDevice => {
                format!("{},{}", metadata.rdev.major, metadata.rdev.minor).into_bytes()
            }
            _ => entry.link_target.unwrap_or_default(),
        };
        let path = dir.path.join(&entry.name).as_bytes().into();
        Self { path, dir: Some(dir.dir.clone()), name: Some(entry.name), metadata, text }
    }

    /// Returns whether it is the file of this stamp, changed or not.
    fn is_file(&self, stamp: &Stamp) -> bool {
        (self.metadata.dev, self.metadata.ino) == (stamp.dev, stamp.ino)
    }

    /// Returns its record, without the content.
    fn record(&self) -> Record {
        let Metadata { kind, mode, uid, gid, mtime, size, .. } = self.metadata;
        Record {
            path: self.path.clone(),
            kind: file_type_of(kind),
            mode,
            uid,
            gid,
            mtime: timestamp(mtime),
            size: if kind == Kind::File { size } else { 0 },
            text: self.text.clone(),
            content: None,
        }
    }
}

/// The entries of a tree in the manifest's order, or the paths that could not be read.
struct Entries {
    walk: Walk,
    ready: std::vec::IntoIter<Result<Found, (EntryPath, io::Error)>>,
}

impl Entries {
    fn open(tree: &Path, reading: &Reading) -> Result<Self, VerifyError> {
        let failed = |source| VerifyError::Tree { path: tree.to_owned(), source };
        let options = WalkOptions {
            recursive: true,
            one_file_system: reading.one_file_system,
            readers: default_readers(),
            open_noatime: true,
            ..WalkOptions::default()
        };
        let contents = tree.join("");
        let walk = Walk::open(&[contents.as_path()], options)
            .map_err(|error| failed(io::Error::new(io::ErrorKind::InvalidInput, error)))?;
        if let Some(problem) = walk.operand_problems().first() {
            let kind = problem.error.kind();
            return Err(failed(
                problem.error.raw_os_error().map_or_else(|| kind.into(), io::Error::from_raw_os_error),
            ));
        }
        let root = walk.root().map(|&metadata| {
            Ok(Found { path: EntryPath::default(), dir: None, name: None, metadata, text: Vec::new() })
        });
        Ok(Self { walk, ready: root.into_iter().collect::<Vec<_>>().into_iter() })
    }
}

impl Iterator for Entries {
    type Item = Result<Found, (EntryPath, io::Error)>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(next) = self.ready.next() {
                return Some(next);
            }
            let mut dir = self.walk.next()?;
            let entries = std::mem::take(&mut dir.entries).into_iter();
            let found = entries.map(|entry| Ok(Found::of(&dir, entry)));
            let mut ready: Vec<_> = found.collect();
            ready.extend(
                dir.problems.drain(..).map(|problem| Err((problem.path.as_bytes().into(), problem.error))),
            );
            let key = |found: &Self::Item| match found {
                Ok(found) => found.path.clone(),
                Err((path, _)) => path.clone(),
            };
            if ready.iter().any(Result::is_err) {
                ready.sort_by(|one, other| compare_paths(&key(one), &key(other)));
            }
            self.ready = ready.into_iter();
        }
    }
}

/// Reads contents, and tells how far it is.
struct Reader<'a> {
    reading: &'a Reading,
    cancel: &'a CancelToken,
    observer: &'a dyn VerifyObserver,
    /// Contents come from the disk, not from memory.
    from_disk: bool,
    totals: Totals,
    bytes: AtomicU64,
    files: AtomicU64,
    told: Mutex<Instant>,
}

impl<'a> Reader<'a> {
    fn new(reading: &'a Reading, cancel: &'a CancelToken, observer: &'a dyn VerifyObserver) -> Self {
        let (bytes, files) = (AtomicU64::new(0), AtomicU64::new(0));
        let (totals, told) = (Totals::default(), Mutex::new(Instant::now()));
        Self { reading, cancel, observer, from_disk: false, totals, bytes, files, told }
    }

    /// Makes it read from the disk what a manifest with these sums has.
    fn verifying(self, totals: Totals) -> Self {
        Self { from_disk: true, totals, ..self }
    }

    /// Reads the contents of the files that are `wanted`, by their number, on all threads. Files that are
    /// not read to their end when the work is cancelled are [`Read::Ended`].
    fn read_all(
        &self,
        batch: Vec<Found>,
        wanted: impl Fn(usize) -> bool + Sync,
    ) -> Result<Vec<(Found, Read)>, VerifyError> {
        let read = || {
            let each = batch.into_par_iter().with_max_len(1).enumerate();
            each.map(|(index, found)| {
                let read = if wanted(index) { self.read(&found) } else { Read::Not };
                (found, read)
            })
            .collect()
        };
        self.reading.workers.install(read).map_err(|_| VerifyError::Threads)
    }

    fn read(&self, found: &Found) -> Read {
        let (Kind::File, Some(dir), Some(name)) = (found.metadata.kind, &found.dir, &found.name) else {
            return Read::Not;
        };
        for _ in 0..2 {
            let attempt = || -> io::Result<_> {
                let file = dir.open_source(name, None)?;
                if self.from_disk {
                    file.read_from_disk();
                }
                let hash = content::hash_while(&file, |bytes| self.go_on(bytes))?;
                let is_steady = file.is_unchanged()? && file.stamp() == found.metadata.stamp();
                Ok(is_steady.then_some(hash))
            };

            match attempt() {
                Ok(Some(hash)) => {
                    self.files.fetch_add(1, Ordering::Relaxed);
                    return Read::Content(hash);
                }
                Ok(None) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted && self.cancel.is_cancelled() => {
                    return Read::Ended;
                }
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Read::Busy,
                Err(error) => return Read::Failed(error),
            }
        }
        Read::Busy
    }

    /// Counts bytes that were read; returns whether to go on.
    fn go_on(&self, bytes: u64) -> bool {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.tell(false);
        !self.cancel.is_cancelled()
    }

    /// Reports progress if it is time, or at the `end`.
    fn tell(&self, end: bool) {
        let Ok(mut told) = self.told.try_lock() else { return };
        if !end && told.elapsed() < TELL_EVERY {
            return;
        }
        *told = Instant::now();
        self.observer.progress(
            &Progress::default()
                .entries_checked(self.totals.entries)
                .entries_listed(self.totals.entries)
                .files_needed(self.totals.files)
                .bytes_needed(self.totals.bytes)
                .files_done(self.files.load(Ordering::Relaxed))
                .bytes_done(self.bytes.load(Ordering::Relaxed))
                .totals_final(true),
        );
    }
}

/// Interval of progress reports.
const TELL_EVERY: Duration = Duration::from_millis(250);

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::disallowed_methods)]
mod tests;
