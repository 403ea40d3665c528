//! The state of a pair of trees: the content hashes that this end has read, by what tells each
//! version of a file from all others, kept in a file of the operator's for later runs; and beside it
//! the signatures of the large files that this end has written.
//!
//! The law: a hash is taken for a content only if it was read from that very version of that very
//! file, see `dsync_fs::SourceFile::is_settled`. Whatever else is in the file, or happens to it, costs
//! time: those contents are read again. What it holds comes from this end's own reading, never from a
//! peer.
//!
//! A new file is written beside the old one and takes its name when it is on the disk, after the
//! contents that it speaks of: a power cut cannot leave a hash without its content. But it can leave a
//! later content under the times of the recorded one, so that what was recorded before the system's last
//! start is read again. Of two runs at once the later one's file stays. `docs/design/state-index.md` has
//! the reasons.

mod carried;
mod error;
mod format;
mod recorded;
mod signatures;

use std::{
    collections::{BTreeMap, HashMap},
    fmt,
    io::{self, Write as _},
    path::Path,
    sync::{
        Arc, Mutex, PoisonError, RwLock,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use dsync_delta::BlockLen;
use dsync_fs::{
    Component, Dir, Kind, Links, SourceFile, StableFilesystem, Stamp, Timestamp, boot_number,
    filesystem_time, reap_abandoned, wait_until_past,
};

pub use self::error::StateError;
pub(crate) use self::recorded::Standing;
pub(crate) use self::signatures::{KnownSignature, MIN_FILE_BYTES, Written};
use self::{
    carried::Carrying,
    format::{Content, Devices, Key, MAX_FILE_BYTES as MAX_STATE_BYTES, Record},
    signatures::Signatures,
};
pub use self::{recorded::Recorded, signatures::SignatureUse};
use crate::whole_file::WholeFile;

/// Hashes of contents that are known of earlier runs. Clones share them.
///
/// ```
/// use dsync_engine::{
///     CancelToken, Destination, Job, Resources, Silent, Source, State, StateUse, SyncOptions,
/// };
///
/// # let home = tempfile::tempdir()?;
/// # let (from, to) = (home.path().join("from"), home.path().join("to"));
/// # std::fs::create_dir(&from)?;
/// # std::fs::write(from.join("note"), "short")?;
/// # let dir = home.path().join("state");
/// let mut options = SyncOptions::archive();
/// options.checksum = true;
/// let source = Source::Local { paths: vec![from.join("")] };
/// let job = Job::new(source, Destination::Local { path: to.clone() }).options(options);
///
/// // The second of two runs that compare contents need not read what the first has read.
/// for _ in 0..2 {
///     let (state, trouble) = State::open(&dir, Some(b"notes to disk"))?;
///     if let Some(trouble) = trouble {
///         eprintln!("all contents are read: {trouble}");
///     }
///     let resources = Resources::default().state(Some(state.clone()));
///     let summary = job.clone().resources(resources).run(&Silent, &CancelToken::new())?;
///     state.save(summary.exit_code() == 0)?;
///     let StateUse { known_files, read_files, .. } = state.used();
///     println!("{known_files} files were known, {read_files} were read");
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct State(Arc<Inner>);

struct Inner {
    dir: Arc<Dir>,
    /// The pair and its file; `None` where no contents are compared.
    pair: Option<(Vec<u8>, Component)>,
    signatures: Signatures,
    carrying: Carrying,
    /// The records of earlier runs in the order of their keys, and whether this run met each.
    old: Vec<(Record, AtomicBool)>,
    /// The devices that these runs found their filesystems on.
    old_devices: Devices,
    new: Mutex<BTreeMap<Key, Record>>,
    /// Filesystems by their device numbers; `None` where stamps prove nothing.
    filesystems: RwLock<HashMap<u64, Option<StableFilesystem>>>,
    known: Counters,
    read: Counters,
}

#[derive(Default)]
struct Counters {
    files: AtomicU64,
    bytes: AtomicU64,
}

/// The contents that a run compared, of both ends that share the state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct StateUse {
    /// Files whose content was known.
    pub known_files: u64,
    /// Their bytes.
    pub known_bytes: u64,
    /// Files that were read.
    pub read_files: u64,
    /// Their bytes.
    pub read_bytes: u64,
}

/// The state of one pair, as it is on the disk.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct KeptState {
    /// The pair's name, as [`State::open`] was told it.
    pub pair: Vec<u8>,
    /// The number of files whose contents are known.
    pub files: u64,
    /// The time of the last run that added something.
    pub saved: SystemTime,
}

impl State {
    /// Opens the state of a pair of trees in a directory, which is made if it is missing. `pair` names
    /// the pair: whoever names another one has another state. Without a pair no contents are known or
    /// kept, only signatures, which are of files and not of pairs.
    ///
    /// A second value says why nothing is known of earlier runs although there is a file.
    ///
    /// # Errors
    /// [`StateError`], where nothing can be kept either.
    pub fn open(dir: &Path, pair: Option<&[u8]>) -> Result<(Self, Option<StateError>), StateError> {
        Self::open_at(dir, pair, (filesystem_time(), boot_number()))
    }

    fn open_at(
        dir: &Path,
        pair: Option<&[u8]>,
        (now, boot): (Timestamp, Option<u64>),
    ) -> Result<(Self, Option<StateError>), StateError> {
        let dir = Arc::new(Dir::create_destination(dir, true, Links::Trusted)?);
        if !dir.metadata()?.is_own() {
            return Err(StateError::Shared);
        }
        let pair =
            pair.map(|pair| Ok::<_, io::Error>((pair.to_vec(), format::name_of(pair)?))).transpose()?;
        let found = pair.as_ref().map_or(Ok(None), |(_, name)| read(&dir, name));
        let is_of = |content: &Content| pair.as_ref().is_some_and(|(pair, _)| content.pair == *pair);
        let none = || (Vec::new(), Devices::new());
        let ((old, old_devices), trouble) = match found {
            Ok(None) => (none(), None),
            Ok(Some(content)) if !is_of(&content) => (none(), Some(StateError::Damaged)),
            Ok(Some(content)) if content.saved > now => (none(), Some(StateError::ClockWentBack)),
            Ok(Some(content)) if boot != Some(content.boot) => (none(), Some(StateError::Restarted)),
            Ok(Some(content)) => ((content.records, content.devices), None),
            // Kept for the program that it belongs to.
            Err(error @ StateError::Newer) => return Err(error),
            Err(error) => (none(), Some(error)),
        };

        let (signatures, carrying, new, filesystems, known, read) = Default::default();
        let old = old.into_iter().map(|record| (record, AtomicBool::new(false))).collect();
        let inner =
            Inner { dir, pair, signatures, carrying, old, old_devices, new, filesystems, known, read };
        Ok((Self(Arc::new(inner)), trouble))
    }

    /// Returns the states in a directory; those that cannot be read have an error. None where there is
    /// no directory. A directory that another user can write to has [`StateError::Shared`] as the first
    /// one, as no run uses what is in it.
    ///
    /// # Errors
    /// The directory cannot be read.
    ///
    /// ```
    /// use dsync_engine::{KeptState, State};
    ///
    /// # let home = tempfile::tempdir()?;
    /// # let dir = home.path().join("state");
    /// for state in State::list(&dir)? {
    ///     match state {
    ///         Ok(KeptState { pair, files, .. }) => {
    ///             println!("{}: {files} files", pair.escape_ascii())
    ///         }
    ///         Err(error) => println!("a state cannot be used: {error}"),
    ///     }
    /// }
    /// let (signatures, bytes) = State::signatures(&dir)?;
    /// println!("{signatures} signatures, {bytes} bytes");
    /// assert_eq!(State::clear(&dir)?, 0);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn list(dir: &Path) -> io::Result<Vec<Result<KeptState, StateError>>> {
        let Some(dir) = existing(dir)? else { return Ok(Vec::new()) };
        let unused = (!dir.metadata()?.is_own()).then_some(Err(StateError::Shared));
        let files = kept_files(&dir, format::PREFIX)?;
        let kept = files.iter().map(|file| {
            let Content { pair, records, saved, .. } = read(&dir, &file.name)?.ok_or(StateError::Damaged)?;
            Ok(KeptState { pair, files: records.len() as u64, saved: system_time(saved) })
        });
        Ok(unused.into_iter().chain(kept).collect())
    }

    /// Returns the number of signatures of large files in a directory, and the bytes that they take.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub fn signatures(dir: &Path) -> io::Result<(u64, u64)> {
        existing(dir)?.map_or(Ok((0, 0)), |dir| signatures::count(&dir))
    }

    /// Removes all states and signatures in a directory; returns the number of both.
    ///
    /// # Errors
    /// The directory cannot be read, or a file not removed.
    pub fn clear(dir: &Path) -> io::Result<u64> {
        let Some(dir) = existing(dir)? else { return Ok(0) };
        reap_abandoned(&dir);
        let mut files = kept_files(&dir, format::PREFIX)?;
        files.extend(kept_files(&dir, signatures::PREFIX)?);
        files.iter().try_for_each(|file| dir.remove_file(&file.name))?;
        dir.sync()?;
        Ok(files.len() as u64)
    }

    /// Returns what a run that uses this state has compared so far.
    pub fn used(&self) -> StateUse {
        let Inner { known, read, .. } = &*self.0;
        let [known_files, known_bytes, read_files, read_bytes] =
            [&known.files, &known.bytes, &read.files, &read.bytes].map(|count| count.load(Ordering::Relaxed));
        StateUse { known_files, known_bytes, read_files, read_bytes }
    }

    /// Returns the signatures that a run which uses this state has taken so far.
    ///
    /// ```
    /// use dsync_engine::{SignatureUse, State};
    ///
    /// /// Returns the line that an agent logs after a run.
    /// fn line(state: &State) -> String {
    ///     let SignatureUse { files, bytes, .. } = state.signatures_used();
    ///     let unused = state
    ///         .unused_signature()
    ///         .map_or_else(String::new, |why| format!("; one was not used: {why}"));
    ///     format!("{files} old files of {bytes} bytes were not read{unused}")
    /// }
    /// # let home = tempfile::tempdir()?;
    /// # let (state, _) = State::open(home.path(), None)?;
    /// # assert_eq!(line(&state), "0 old files of 0 bytes were not read");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn signatures_used(&self) -> SignatureUse {
        self.0.signatures.used()
    }

    /// Returns the first reason why a signature that is kept could not be used, once.
    pub fn unused_signature(&self) -> Option<StateError> {
        self.0.signatures.take_unused()
    }

    /// Keeps the signatures of what the run has written, and writes the state if this run has read something.
    /// Pass `whole = true` only after a complete run: records of files that it did not meet are then deleted.
    ///
    /// # Errors
    /// [`StateError`]: the older state is as it was, or a signature could not be kept.
    pub fn save(&self, whole: bool) -> Result<(), StateError> {
        while self.settle_oldest() {}
        let signed = self.0.signatures.close(&self.0.dir);
        self.save_contents(whole)?;
        signed
    }

    fn save_contents(&self, whole: bool) -> Result<(), StateError> {
        let new = lock(&self.0.new);
        let Some(pair) = self.0.pair.as_ref().filter(|_| !new.is_empty()) else { return Ok(()) };
        // A hash may not outlive its content in a power cut.
        let filesystems = self.0.filesystems.read().unwrap_or_else(PoisonError::into_inner);
        filesystems.values().flatten().try_for_each(StableFilesystem::sync)?;

        let here = filesystems.iter().filter_map(|(device, found)| Some((found.as_ref()?.id(), *device)));
        let mut devices = self.0.old_devices.clone();
        devices.extend(here);
        let old = self.0.old.iter().filter(|(_, met)| !whole || met.load(Ordering::Relaxed));
        let old = old.map(|(record, _)| record).filter(|record| {
            let filesystem = record.key().0;
            // Of another device than this run has met no record is taken, and there is one place for both.
            let is_here = devices.get(&filesystem) == self.0.old_devices.get(&filesystem);
            is_here && !new.contains_key(&record.key())
        });
        let mut records: Vec<&Record> = old.chain(new.values()).collect();
        records.sort_unstable_by_key(|record| record.key());
        let is_used = |filesystem: &u64| {
            let at = records.partition_point(|record| record.key().0 < *filesystem);
            records.get(at).is_some_and(|record| record.key().0 == *filesystem)
        };
        devices.retain(|filesystem, _| is_used(filesystem));
        self.write(pair, (&devices, &records), (filesystem_time(), boot_number().unwrap_or_default()))
    }

    fn write(
        &self,
        (pair, name): &(Vec<u8>, Component),
        content: (&Devices, &[&Record]),
        written: (Timestamp, u64),
    ) -> Result<(), StateError> {
        let dir = &self.0.dir;
        reap_abandoned(dir);
        let mut whole = WholeFile::create(dir, name.clone())?;
        format::write(pair, written, content, |bytes| whole.write_all(bytes))?;
        whole.commit()?;
        make_room(dir)?;
        Ok(())
    }

    /// Opens the directory that it is kept in once more.
    pub(crate) fn directory(&self) -> io::Result<Dir> {
        self.0.dir.duplicate()
    }

    /// Returns the content of the version of a file that has this stamp, if it is known.
    pub(crate) fn content_of(&self, stamp: &Stamp) -> Option<[u8; 32]> {
        let content = self.find_content(stamp)?;
        self.0.known.count(stamp.size);
        Some(content)
    }

    fn find_content(&self, stamp: &Stamp) -> Option<[u8; 32]> {
        let Inner { filesystems, old, old_devices, new, .. } = &*self.0;
        let filesystem = {
            let filesystems = filesystems.read().unwrap_or_else(PoisonError::into_inner);
            filesystems.get(&stamp.dev)?.as_ref()?.id()
        };
        let key = (filesystem, stamp.ino);
        if let Some(record) = lock(new).get(&key) {
            return record.version.is_of(stamp).then_some(record.content);
        }
        // A copy of the disk has all of that but the number of its device.
        if old_devices.get(&filesystem) != Some(&stamp.dev) {
            return None;
        }
        let at = old.binary_search_by_key(&key, |(record, _)| record.key()).ok()?;
        let (record, met) = old.get(at).filter(|(record, _)| record.version.is_of(stamp))?;
        met.store(true, Ordering::Relaxed);
        Some(record.content)
    }

    /// Reads a file's content by `read`, unless it is known, and notes it if its stamp will tell.
    ///
    /// # Errors
    /// Those of `read`.
    pub(crate) fn content_or(
        &self,
        file: &SourceFile,
        read: impl FnOnce(&SourceFile) -> io::Result<[u8; 32]>,
    ) -> io::Result<[u8; 32]> {
        let stamp = file.stamp();
        let keeps = self.0.pair.is_some();
        let Some(filesystem) = self.meet(file).filter(|_| keeps) else { return self.counted(file, read) };
        if let Some(content) = self.content_of(&stamp) {
            return Ok(content);
        }

        let is_settled = file.is_settled();
        let content = self.counted(file, read)?;
        if is_settled && file.is_unchanged()? {
            self.note(filesystem, &stamp, content);
        }
        Ok(content)
    }

    /// Returns whether contents are known and kept, not only signatures.
    pub(crate) fn keeps_contents(&self) -> bool {
        self.0.pair.is_some()
    }

    /// Reads a file that this run has written by `read`, and notes its content if its stamp will tell.
    /// What fails costs the next run that reading.
    pub(crate) fn note_written(
        &self,
        dir: &Dir,
        name: &Component,
        read: impl FnOnce(&SourceFile) -> io::Result<[u8; 32]>,
    ) {
        let Ok(file) = dir.open_source_noatime(name) else { return };
        let stamp = file.stamp();
        let Some(filesystem) = self.meet(&file).filter(|_| self.keeps_contents()) else { return };
        // It got its name and its times in this tick of the clock, or in the one before.
        wait_until_past(stamp.ctime);
        if !file.is_settled() {
            return;
        }
        if let Ok(content) = read(&file)
            && file.is_unchanged().is_ok_and(|is_unchanged| is_unchanged)
        {
            self.note(filesystem, &stamp, content);
        }
    }

    fn note(&self, filesystem: u64, stamp: &Stamp, content: [u8; 32]) {
        let (mut new, key) = (lock(&self.0.new), (filesystem, stamp.ino));
        if new.contains_key(&key) || self.0.old.len() + new.len() < format::MAX_RECORDS {
            new.insert(key, Record::new(key, stamp, content));
        }
    }

    /// Returns the signature of an old file in blocks of this length, if an earlier run kept it.
    pub(crate) fn signature_of(&self, file: &SourceFile, block_len: BlockLen) -> Option<KnownSignature> {
        let filesystem = self.meet(file)?;
        self.0.signatures.find(&self.0.dir, filesystem, &file.stamp(), block_len)
    }

    /// Notes the signature of a file that this run has written, to be kept if its stamp will tell.
    pub(crate) fn note_signature(&self, written: Written) {
        let Ok(file) = written.dir.open_source_noatime(&written.name) else { return };
        let (named, before) = (file.stamp(), written.stamp);
        // Whoever wrote to it since it got its name has changed its time, or is about to.
        let is_same = (named.ino, named.size, named.mtime) == (before.ino, before.size, before.mtime);
        if let Some(filesystem) = self.meet(&file).filter(|_| is_same) {
            self.0.signatures.note(&self.0.dir, filesystem, named, written);
        }
    }

    fn counted(
        &self,
        file: &SourceFile,
        read: impl FnOnce(&SourceFile) -> io::Result<[u8; 32]>,
    ) -> io::Result<[u8; 32]> {
        let content = read(file)?;
        self.0.read.count(file.len());
        Ok(content)
    }

    /// Returns the number of a file's filesystem; `None` where stamps prove nothing.
    fn meet(&self, file: &SourceFile) -> Option<u64> {
        if file.is_device() {
            return None;
        }
        let device = file.stamp().dev;
        let known = |filesystems: &HashMap<u64, Option<StableFilesystem>>| {
            filesystems.get(&device).map(|found| found.as_ref().map(StableFilesystem::id))
        };
        let filesystems = &self.0.filesystems;
        if let Some(found) = known(&filesystems.read().unwrap_or_else(PoisonError::into_inner)) {
            return found;
        }

        let mut filesystems = filesystems.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = known(&filesystems) {
            return found;
        }
        let found = file.stable_filesystem().map(|found| {
            // A copy of a disk that is mounted as well may have changed in the same step of the clock.
            let is_copy = filesystems.values().flatten().any(|other| other.id() == found.id());
            if is_copy { found.with_device() } else { found }
        });
        let id = found.as_ref().map(StableFilesystem::id);
        filesystems.insert(device, found);
        id
    }
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("State").field("known", &self.0.old.len()).finish_non_exhaustive()
    }
}

impl Counters {
    fn count(&self, bytes: u64) {
        self.files.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Reads a state; `None` where there is no file.
fn read(dir: &Dir, name: &Component) -> Result<Option<Content>, StateError> {
    read_whole(dir, name, MAX_STATE_BYTES)?.map(|bytes| format::parse(&bytes)).transpose()
}

/// Reads a file of at most `max` bytes that nobody else can write to; `None` where there is none.
fn read_whole(dir: &Dir, name: &Component, max: usize) -> Result<Option<Vec<u8>>, StateError> {
    let file = match dir.open_source_noatime(name) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    if !file.metadata().is_own() {
        return Err(StateError::Shared);
    }
    let len = usize::try_from(file.len()).ok().filter(|len| *len <= max);
    let mut bytes = vec![0; len.ok_or(StateError::Damaged)?];
    if file.read_full_at(0, &mut bytes)? != bytes.len() {
        return Err(StateError::Damaged);
    }
    Ok(Some(bytes))
}

fn existing(dir: &Path) -> io::Result<Option<Dir>> {
    match Dir::open_destination(dir, Links::Trusted) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        opened => opened.map(Some),
    }
}

/// A file in a directory of states.
struct KeptFile {
    name: Component,
    time: Timestamp,
    size: u64,
}

/// Returns the files of a directory of states whose names begin so.
fn kept_files(dir: &Dir, prefix: &[u8]) -> io::Result<Vec<KeptFile>> {
    let listing = dir.list();
    if let Some(error) = listing.error {
        return Err(error);
    }
    let found = listing.entries.into_iter().filter_map(|(name, found)| Some((name, found.ok()?)));
    let files =
        found.filter(|(name, found)| found.kind == Kind::File && format::is_name(name.as_bytes(), prefix));
    Ok(files.map(|(name, found)| KeptFile { name, time: found.mtime, size: found.size }).collect())
}

/// Removes the oldest states where there are too many.
fn make_room(dir: &Dir) -> io::Result<()> {
    let mut files = kept_files(dir, format::PREFIX)?;
    files.sort_by_key(|file| file.time);
    let surplus = files.len().saturating_sub(format::MAX_PAIRS);
    files.iter().take(surplus).try_for_each(|file| dir.remove_file(&file.name))
}

fn system_time(time: Timestamp) -> SystemTime {
    let seconds = u64::try_from(time.seconds).unwrap_or_default();
    UNIX_EPOCH.checked_add(Duration::new(seconds, time.nanoseconds)).unwrap_or(UNIX_EPOCH)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::disallowed_methods)]
mod tests;
