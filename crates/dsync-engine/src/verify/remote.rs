//! Verifying and recording a tree at another end.
//!
//! The other end takes the role of a source whose run is dry and goes nowhere: it lists its tree, and
//! reads the files' contents from its disk for the hashes that `checksum` lists. This end compares the
//! listing with the manifest. No content travels, and whoever may copy a tree from there may verify it.
//!
//! All files are read in one session. If [`Reading`] leaves files out, one session lists the tree without
//! contents, and a second one lists the due files by name, with contents.
//!
//! Law: a peer decides nothing but the findings on its own tree. A file whose hash it does not send is
//! unreadable, never sound; what this end keeps for it is bounded.

use std::{
    collections::BTreeMap,
    ffi::OsString,
    fmt, io,
    io::BufWriter,
    iter::Peekable,
    os::unix::ffi::OsStrExt as _,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
    time::Instant,
};

use dsync_fs::{FileList, FileListError, FileListWriter, Links, OperatorFiles};
use dsync_wire::{
    event::{Event, Facts, FileType, Planned, Progress},
    message::{Cause, Operation, Problem},
    options::{EventLevel, SyncOptions},
    path::EntryPath,
};

use super::{
    Ages, AgesProblem, Difference, Finding, Read, Reading, TELL_EVERY, Verified, VerifyError, VerifyObserver,
    ages::mark_of_tree, difference, guarded,
};
use crate::{
    CancelToken, ConnectOptions, Connector, Destination, FilesFrom, Job, Manifest, ManifestError,
    ManifestWriter, Observer, RemoteHost, Resources, Source, SyncError,
    manifest::{ManifestReader, Record, Totals, compare_paths},
    whole_file::{WholeFile, place},
};

/// A directory at another end, and the way to it.
///
/// ```no_run
/// use dsync_engine::verify::{Reading, RemoteTree, record_remote_to_file, verify_remote};
/// use dsync_engine::{CancelToken, Manifest, RemoteHost, Silent};
///
/// let tree = RemoteTree::on(RemoteHost::new(None, "vault.example")?, "backups/agent-7".into());
/// let (file, cancel) = ("/var/lib/agent/vault", CancelToken::new());
/// record_remote_to_file(&tree, file.as_ref(), &Reading::default(), &cancel)?;
///
/// // A month later.
/// let manifest = Manifest::open(file.as_ref())?;
/// let verified = verify_remote(&tree, &manifest, &Reading::default(), &Silent, &cancel)?;
/// println!("{} files rot at the vault", verified.rotten);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct RemoteTree<'a> {
    source: Source,
    path: OsString,
    connector: Option<&'a dyn Connector>,
    connect: ConnectOptions,
    resources: Resources,
}

impl<'a> RemoteTree<'a> {
    /// Returns a mark of the tree for the times at which its files were read.
    fn mark(&self) -> u64 {
        let host = match &self.source {
            Source::Remote { host, .. } => host.host.as_str(),
            _ => "",
        };
        mark_of_tree(&[host.as_bytes(), self.path.as_bytes()].join(&b':'))
    }

    /// Names a directory of a host that a remote shell reaches.
    pub fn on(host: RemoteHost, path: OsString) -> Self {
        let source = Source::Remote { host, paths: vec![contents_of(&path)] };
        Self {
            source,
            path,
            connector: None,
            connect: ConnectOptions::default(),
            resources: Resources::default(),
        }
    }

    /// Names a directory of the [`Server`](crate::Server) at the other end of the caller's connections.
    ///
    /// ```
    /// use std::os::unix::net::UnixStream;
    ///
    /// use dsync_engine::verify::{Reading, RemoteTree, record_to_file, verify_remote};
    /// use dsync_engine::{CancelToken, Manifest, Server, Silent, Stream};
    ///
    /// # let home = tempfile::tempdir()?;
    /// # let (from, to) = (home.path().join("from"), home.path().join("to"));
    /// # std::fs::create_dir(&from)?;
    /// # std::fs::write(from.join("note"), "short")?;
    /// # let (file, cancel) = (home.path().join("manifest"), CancelToken::new());
    /// # record_to_file(&from, &file, &Reading::default(), &Silent, &cancel)?;
    /// let connect = |_: &CancelToken| {
    ///     let (ours, theirs) = UnixStream::pair()?;
    /// #   let server = Server::new(Stream::from_socket(theirs)?);
    /// #   std::thread::spawn(move || server.serve(&Silent, &CancelToken::new()));
    ///     Stream::from_socket(ours)
    /// };
    /// let tree = RemoteTree::over(&connect, from.into());
    /// let manifest = Manifest::open(&file)?;
    /// let verified = verify_remote(&tree, &manifest, &Reading::default(), &Silent, &cancel)?;
    /// assert_eq!((verified.sound, verified.findings()), (1, 0));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn over(connector: &'a dyn Connector, path: OsString) -> Self {
        let source = Source::Peer { paths: vec![contents_of(&path)] };
        let (connect, resources) = Default::default();
        Self { source, path, connector: Some(connector), connect, resources }
    }

    /// Sets how the host is reached. A connection that breaks ends the verification whatever
    /// [`retries`](ConnectOptions::retries) says; with [`Reading::max_age`] the next one goes on.
    #[must_use]
    pub fn connect(mut self, connect: ConnectOptions) -> Self {
        self.connect = connect;
        self
    }

    /// Sets the limits on what the sessions take of this machine.
    #[must_use]
    pub fn resources(mut self, resources: Resources) -> Self {
        self.resources = resources;
        self
    }

    /// Hears of the tree's entries in the order of a manifest, or of those of a list.
    fn list(
        &self,
        mut options: SyncOptions,
        only: Option<&FileList>,
        cancel: &CancelToken,
        hear: &mut Hear<'_>,
    ) -> Result<(), VerifyError> {
        options.other_homes = self.path.as_bytes().starts_with(b"~");
        let mut connect = self.connect.clone();
        // Another session would list everything again.
        connect.retries = 0;
        let mut job = Job::new(self.source.clone(), Destination::Nowhere)
            .options(options)
            .connect(connect)
            .resources(self.resources.clone());
        if let Some(list) = only {
            job = job.files_from(FilesFrom::List(list.clone()));
        }

        let stop = cancel.part();
        let state = Mutex::new(Heard { hear, last: None, failure: None });
        let ear = Ear { state, stop: &stop };
        let outcome = match self.connector {
            Some(connector) => job.run_over(connector, &ear, &stop),
            None => job.run(&ear, &stop),
        };

        let heard = ear.state.into_inner().unwrap_or_else(PoisonError::into_inner);
        match (heard.failure, outcome) {
            (Some(failure), _) => Err(failure),
            (None, Ok(_)) => Ok(()),
            (None, Err(error)) => Err(self.failed(error)),
        }
    }

    /// Returns the error of a session as one of the verification.
    fn failed(&self, error: SyncError) -> VerifyError {
        match error {
            SyncError::Cancelled => VerifyError::Cancelled,
            SyncError::SourceMissing { .. } | SyncError::ListRootMissing { .. } => {
                self.unusable(io::ErrorKind::NotFound.into())
            }
            SyncError::SourceUnreadable { source, .. } => self.unusable(source),
            error => VerifyError::Session(Box::new(error)),
        }
    }

    fn unusable(&self, source: io::Error) -> VerifyError {
        VerifyError::Tree { path: PathBuf::from(&self.path), source }
    }
}

impl fmt::Debug for RemoteTree<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RemoteTree").field("source", &self.source).finish_non_exhaustive()
    }
}

/// Returns a directory as the operand that stands for its entries.
fn contents_of(path: &OsString) -> OsString {
    let mut contents = path.clone();
    if !path.as_bytes().ends_with(b"/") {
        contents.push("/");
    }
    contents
}

/// Returns the options under which the other end lists its tree as a manifest has it.
fn listing(reading: &Reading, contents: bool) -> SyncOptions {
    let mut options = SyncOptions::archive()
        .numeric_ids(true)
        .one_file_system(reading.one_file_system)
        .open_noatime(true)
        .checksum(contents)
        .contents_from_disk(contents)
        .dry_run(true)
        .events(EventLevel::Changes)
        .event_ends(true)
        .event_contents(contents);
    // Whoever may not make a device may look at it.
    options.fake_super.destination = true;
    options
}

/// News of the other end's tree.
enum Told {
    /// An entry; a device without its numbers.
    Entry(Record),
    /// A path that could not be read. It comes before the entries that follow it in the listing.
    Lost(Problem),
}

type Hear<'a> = dyn FnMut(Told) -> Result<(), VerifyError> + Send + 'a;

/// Listens to a session.
struct Ear<'a> {
    state: Mutex<Heard<'a>>,
    stop: &'a CancelToken,
}

struct Heard<'a> {
    hear: &'a mut Hear<'a>,
    /// The path of the last entry.
    last: Option<EntryPath>,
    failure: Option<VerifyError>,
}

impl Heard<'_> {
    fn take(&mut self, told: Told) -> Result<(), VerifyError> {
        if let Told::Entry(record) = &told {
            if self.last.as_deref().is_some_and(|last| compare_paths(last, &record.path).is_ge()) {
                return Err(VerifyError::Disorder { path: record.path.clone() });
            }
            self.last = Some(record.path.clone());
        }
        (self.hear)(told)
    }
}

impl Observer for Ear<'_> {
    fn event(&self, event: &Event) {
        let told = match event {
            Event::Planned(planned) => Told::Entry(record(planned)),
            Event::Failed(problem) if problem.cause != Cause::Skipped => Told::Lost(problem.clone()),
            _ => return,
        };

        let mut heard = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if heard.failure.is_some() {
            return;
        }
        if let Err(failure) = heard.take(told) {
            heard.failure = Some(failure);
            self.stop.cancel();
        }
    }
}

/// Returns the record of an entry that the other end has listed.
fn record(planned: &Planned) -> Record {
    let Facts { mode, mtime, uid, gid, content, .. } = planned.facts.unwrap_or_default();
    let text = if planned.kind == FileType::Symlink { planned.target.clone() } else { Vec::new() };
    let (path, kind, size) = (planned.path.clone(), planned.kind, planned.size);
    Record { path, kind, mode, uid, gid, mtime, size, text, content }
}

/// Verifies a tree at another end against a manifest of this one, as [`verify`](super::verify()) does a
/// tree of this machine. The numbers of devices are not compared.
///
/// The other end must know the option `contents-from-disk`; under a grant it must allow
/// [`Demand::Read`](crate::grant::Demand::Read).
///
/// # Errors
/// [`VerifyError`]; whatever is wrong with the tree's entries is a [`Finding`] instead.
///
/// # Security
/// The other end's findings are its own word: whoever controls it can make its tree look sound.
pub fn verify_remote(
    tree: &RemoteTree<'_>,
    manifest: &Manifest,
    reading: &Reading,
    observer: &dyn VerifyObserver,
    cancel: &CancelToken,
) -> Result<Verified, VerifyError> {
    guarded(observer, cancel, |observer, cancel| verify_guarded(tree, manifest, (reading, observer), cancel))
}

fn verify_guarded(
    tree: &RemoteTree<'_>,
    manifest: &Manifest,
    (reading, observer): (&Reading, &dyn VerifyObserver),
    cancel: &CancelToken,
) -> Result<Verified, VerifyError> {
    let mut audit = Audit {
        manifest,
        reading,
        observer,
        ages: super::ages(reading, manifest, observer)?,
        mark: tree.mark(),
        verified: Verified::default(),
        problems: Problems::default(),
        files_read: 0,
        told: Instant::now(),
    };

    let result = audit.all(tree, cancel);
    audit.save_ages(true);
    result?;
    audit.tell(true);
    Ok(audit.verified)
}

/// A verification under way.
struct Audit<'a> {
    manifest: &'a Manifest,
    reading: &'a Reading,
    observer: &'a dyn VerifyObserver,
    ages: Option<Ages>,
    /// The mark of the tree, of whose files no version is known.
    mark: u64,
    verified: Verified,
    problems: Problems,
    files_read: u64,
    /// The time of the last report of progress.
    told: Instant,
}

impl Audit<'_> {
    fn all(&mut self, tree: &RemoteTree<'_>, cancel: &CancelToken) -> Result<(), VerifyError> {
        if self.reading.percent >= 100 && self.ages.is_none() {
            return self.compare(tree, None, cancel);
        }

        let mut due = Due { list: tree.resources.file_list(true), numbers: Numbers::default() };
        self.compare(tree, Some(&mut due), cancel)?;
        let Due { list, numbers } = due;
        let list = list.finish().map_err(kept)?;
        if numbers.0.is_empty() { Ok(()) } else { self.read(tree, (&list, &numbers), cancel) }
    }

    /// Compares the whole tree with the manifest. Files that are due go to the list if there is one;
    /// else all contents are compared.
    fn compare(
        &mut self,
        tree: &RemoteTree<'_>,
        mut due: Option<&mut Due>,
        cancel: &CancelToken,
    ) -> Result<(), VerifyError> {
        let mut records = Numbered::new(self.manifest)?;
        let mut has_root = false;
        let options = listing(self.reading, due.is_none());

        tree.list(options, None, cancel, &mut |told| {
            let now = match told {
                Told::Entry(now) => now,
                Told::Lost(problem) => return self.lost(problem),
            };
            if !has_root && (!now.path.is_empty() || now.kind != FileType::Directory) {
                return Err(tree.unusable(io::ErrorKind::NotADirectory.into()));
            }
            has_root = true;
            self.verified.entries += 1;

            let record = records.up_to(&now.path, |number, record| self.missing(number, record))?;
            match (record, &mut due) {
                (None, _) => self.report(now.path, Difference::New),
                (Some((number, record)), Some(due)) if self.is_due(number, &now, &record) => {
                    due.list.push(&now.path).map_err(kept)?;
                    due.numbers.add(number);
                }
                (Some((number, record)), Some(_)) => self.judge(now, Read::Not, (number, &record)),
                (Some((number, record)), None) => {
                    let is_due = self.is_due(number, &now, &record);
                    let read = if is_due { self.content_of(&now) } else { Read::Not };
                    self.judge(now, read, (number, &record));
                }
            }
            self.tell(false);
            Ok(())
        })?;

        if !has_root {
            return Err(tree.unusable(io::ErrorKind::NotFound.into()));
        }
        records.rest(|number, record| self.missing(number, record))
    }

    /// Compares the contents of the files of a list, which have these numbers and had the length that
    /// the manifest has.
    fn read(
        &mut self,
        tree: &RemoteTree<'_>,
        (list, numbers): (&FileList, &Numbers),
        cancel: &CancelToken,
    ) -> Result<(), VerifyError> {
        let mut records = Numbered::new(self.manifest)?;
        // The first session has told of what cannot be listed.
        self.problems = Problems::default();
        let options = listing(self.reading, true).recursive(false).dirs(true).relative(true);

        tree.list(options, Some(list), cancel, &mut |told| {
            let now = match told {
                Told::Entry(now) => now,
                Told::Lost(problem) => return self.problems.note(problem),
            };
            let record = records.up_to(&now.path, |number, record| self.gone(numbers.has(number), record))?;
            // Else a directory on the way to a file.
            if let Some((number, record)) = record.filter(|(number, _)| numbers.has(*number)) {
                let read = if now.kind == FileType::File { self.content_of(&now) } else { Read::Not };
                self.judge(now, read, (number, &record));
            }
            self.save_ages(false);
            self.tell(false);
            Ok(())
        })?;

        records.rest(|number, record| self.gone(numbers.has(number), record))
    }

    fn is_due(&self, number: usize, now: &Record, record: &Record) -> bool {
        self.reading.wants(now, record)
            && self.ages.as_ref().is_none_or(|ages| ages.is_due(number, self.mark))
    }

    /// Returns the result of the other end's reading of a file.
    fn content_of(&mut self, now: &Record) -> Read {
        let cause = self.problems.take(&now.path);
        match (now.content, cause) {
            (Some(hash), None) => Read::Content(hash),
            (_, Some(Cause::Vanished | Cause::Changed)) => Read::Busy,
            (_, Some(cause)) => Read::Failed(error_of(cause)),
            (None, None) => Read::Failed(io::Error::other("the other end sent no hash of it")),
        }
    }

    /// Compares an entry with its record.
    fn judge(&mut self, now: Record, read: Read, (number, record): (usize, &Record)) {
        let is_read = matches!(read, Read::Content(_));
        if is_read {
            self.files_read += 1;
            self.verified.bytes_read = self.verified.bytes_read.saturating_add(now.size);
        }
        let difference = difference(&now, read, record);
        if let Some(ages) = &mut self.ages {
            ages.judge(number, self.mark, (is_read, difference.as_ref()));
        }
        match difference {
            Some(difference) => self.report(now.path, difference),
            None if now.kind != FileType::File => {}
            None if is_read => self.verified.sound += 1,
            None => self.verified.unread += 1,
        }
    }

    /// Notes a path that the other end could not read.
    fn lost(&mut self, problem: Problem) -> Result<(), VerifyError> {
        // Of a file that could not be read the entry follows, and is the finding.
        if problem.operation != Operation::ReadFile {
            let difference = match problem.cause {
                Cause::Vanished | Cause::Changed => Difference::Busy,
                cause => Difference::Unreadable(error_of(cause)),
            };
            self.report(problem.path.clone(), difference);
        }
        self.problems.note(problem)
    }

    /// Reports a file that the first session listed and the second did not, if it was due there.
    fn gone(&mut self, was_due: bool, record: Record) {
        if was_due {
            self.report(record.path, Difference::Busy);
        }
    }

    fn missing(&mut self, number: usize, record: Record) {
        if !self.problems.cover(&record.path) {
            self.verified.entries += 1;
            if let Some(ages) = &mut self.ages {
                ages.judge(number, self.mark, (false, Some(&Difference::Missing)));
            }
            self.report(record.path, Difference::Missing);
        }
    }

    fn report(&mut self, path: EntryPath, difference: Difference) {
        self.verified.count(&difference);
        self.observer.finding(&Finding { path, difference });
    }

    /// Saves the times of reading now and then, and at the `end`.
    fn save_ages(&mut self, end: bool) {
        if let Some(Err(error)) = self.ages.as_mut().map(|ages| ages.save(end)) {
            self.observer.ages(&AgesProblem::Unsaved(error));
        }
    }

    /// Reports progress if it is time, or at the `end`.
    fn tell(&mut self, end: bool) {
        if !end && self.told.elapsed() < TELL_EVERY {
            return;
        }
        self.told = Instant::now();
        let totals = self.manifest.totals();
        self.observer.progress(
            &Progress::default()
                .entries_checked(self.verified.entries)
                .entries_listed(totals.entries)
                .files_needed(totals.files)
                .bytes_needed(totals.bytes)
                .files_done(self.files_read)
                .bytes_done(self.verified.bytes_read)
                .totals_final(true),
        );
    }
}

/// The records of a manifest with their numbers, beside a listing in the same order.
struct Numbered {
    records: Peekable<ManifestReader>,
    /// Records that were passed.
    count: usize,
}

impl Numbered {
    fn new(manifest: &Manifest) -> Result<Self, VerifyError> {
        Ok(Self { records: manifest.reader()?.peekable(), count: 0 })
    }

    /// Returns the record of a path and its number, after handing over those before it.
    fn up_to(
        &mut self,
        path: &[u8],
        mut passed: impl FnMut(usize, Record),
    ) -> Result<Option<(usize, Record)>, VerifyError> {
        let due = |next: &Result<Record, _>| match next {
            Ok(record) => compare_paths(&record.path, path).is_le(),
            Err(_) => true,
        };
        while let Some(record) = self.records.next_if(due).transpose()? {
            self.count += 1;
            if record.path.as_bytes() == path {
                return Ok(Some((self.count - 1, record)));
            }
            passed(self.count - 1, record);
        }
        Ok(None)
    }

    /// Hands over all that is left.
    fn rest(self, mut passed: impl FnMut(usize, Record)) -> Result<(), VerifyError> {
        for (record, number) in self.records.zip(self.count..) {
            passed(number, record?);
        }
        Ok(())
    }
}

/// The files that the second session reads.
struct Due {
    list: FileListWriter,
    numbers: Numbers,
}

/// A set of the numbers of records, a bit for each.
#[derive(Default)]
struct Numbers(Vec<u64>);

impl Numbers {
    fn add(&mut self, number: usize) {
        let word = number / 64;
        if word >= self.0.len() {
            self.0.resize(word + 1, 0);
        }
        if let Some(bits) = self.0.get_mut(word) {
            *bits |= 1 << (number % 64);
        }
    }

    fn has(&self, number: usize) -> bool {
        self.0.get(number / 64).is_some_and(|bits| bits >> (number % 64) & 1 == 1)
    }
}

/// Returns the error of a list that cannot be kept.
fn kept(source: FileListError) -> VerifyError {
    VerifyError::Session(Box::new(SyncError::FileList { path: None, source }))
}

/// Paths that the other end could not read.
#[derive(Default)]
struct Problems(BTreeMap<EntryPath, Cause>);

impl Problems {
    /// Notes a path.
    ///
    /// # Errors
    /// [`VerifyError::TooManyProblems`].
    fn note(&mut self, problem: Problem) -> Result<(), VerifyError> {
        if self.0.len() >= MAX_PROBLEMS {
            return Err(VerifyError::TooManyProblems);
        }
        self.0.insert(problem.path, problem.cause);
        Ok(())
    }

    /// Returns why a listed file could not be read.
    fn take(&mut self, path: &[u8]) -> Option<Cause> {
        self.0.remove(path)
    }

    /// Returns whether a path, or a directory above it, could not be read.
    fn cover(&self, path: &[u8]) -> bool {
        let above = path.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| &path[..at]);
        !self.0.is_empty() && above.chain([path, &[]]).any(|above| self.0.contains_key(above))
    }
}

/// Returns the error that a cause of the other end stands for.
fn error_of(cause: Cause) -> io::Error {
    match cause {
        Cause::Os(number) => io::Error::from_raw_os_error(number),
        Cause::LeadsOut => io::Error::other("it leads out of the directory that the other end offers"),
        Cause::Unrepresentable => io::Error::other("its name cannot be sent"),
        _ => io::Error::other("the other end could not read it"),
    }
}

/// Records all of a tree at another end, in a file of this machine, as
/// [`record_to_file`](super::record_to_file) does a tree of this machine. A device is recorded without
/// its numbers.
///
/// # Errors
/// As [`verify_remote`]; a tree with entries that cannot be read is not recorded.
pub fn record_remote_to_file(
    tree: &RemoteTree<'_>,
    file: &Path,
    reading: &Reading,
    cancel: &CancelToken,
) -> Result<Totals, VerifyError> {
    let failed = |source| VerifyError::Manifest(ManifestError::Io { source });
    let (dir, name) = place(file, &OperatorFiles::new(Links::Trusted)).map_err(failed)?;
    let whole = WholeFile::create(&dir, name).map_err(failed)?;
    let mut writer = ManifestWriter::new(BufWriter::new(whole)).map_err(failed)?;
    let mut totals = Totals::default();
    let mut busy = Problems::default();

    tree.list(listing(reading, true), None, cancel, &mut |told| match told {
        Told::Entry(record) => {
            if totals.entries == 0 && !record.path.is_empty() {
                return Err(tree.unusable(io::ErrorKind::NotADirectory.into()));
            }
            let is_busy = busy.take(&record.path).is_some();
            if record.kind == FileType::File && record.content.is_none() && !is_busy {
                let source = io::Error::other("the other end sent no hash of it");
                return Err(VerifyError::Entry { path: record.path, source });
            }
            totals.add(&record);
            writer.push(&record)?;
            Ok(())
        }
        Told::Lost(problem) if matches!(problem.cause, Cause::Vanished | Cause::Changed) => {
            busy.note(problem)
        }
        Told::Lost(Problem { path, cause, .. }) => Err(VerifyError::Entry { path, source: error_of(cause) }),
    })?;
    if totals.entries == 0 {
        return Err(tree.unusable(io::ErrorKind::NotFound.into()));
    }

    let whole = writer.finish().map_err(failed)?.into_inner().map_err(|error| failed(error.into_error()))?;
    whole.commit().map_err(failed)?;
    Ok(totals)
}

/// Paths that the other end may fail to read, beside files: it decides how many there are.
const MAX_PROBLEMS: usize = 65_536;
