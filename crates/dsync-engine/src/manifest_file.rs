//! A run's manifest of its destination: the file, and the listener that writes it.
//!
//! The destination tells of each entry of its tree when the run has ended ([`Event::Present`]); the
//! records go to the file as they come. The law: the file takes its name only when the run has ended
//! well, and then it has all of them.

use std::{
    io::{self, BufWriter, Read as _},
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

use dsync_fs::OperatorFiles;
use dsync_wire::{
    event::{Event, Present, Progress},
    setters,
};

use crate::{
    Connection, FileProgress, Links, Observer, Reconnect, SyncError,
    halt::lock,
    manifest::{MAGIC, ManifestError, ManifestWriter, Record},
    whole_file::{WholeFile, place},
};

/// A file for the manifest of a run's destination: see [`Job::write_manifest`](crate::Job::write_manifest).
///
/// ```
/// use dsync_engine::ManifestFile;
///
/// // Sizes and times are enough where each file would be read a second time for its hash.
/// let file = ManifestFile::new("/var/lib/agent/last-run").contents(false);
/// # assert!(!file.contents);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ManifestFile {
    /// The file. An old manifest of this name is replaced, and so is an empty file; anything else is refused.
    pub path: PathBuf,
    /// Whether contents are recorded of the files that the run writes, each of which is read once more for
    /// it, and with [`checksum`](crate::SyncOptions::checksum) of those that it compares. True by default.
    pub contents: bool,
    /// The links that the way to the file may pass through.
    pub links: Links,
}

impl ManifestFile {
    /// Names the file of a manifest with contents.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), contents: true, links: Links::Trusted }
    }
}

setters!(ManifestFile { path: PathBuf, contents: bool, links: Links });

/// Writes what the destination tells of its tree, and passes everything else on.
pub(crate) struct ManifestHears<'a> {
    observer: &'a dyn Observer,
    /// Whether the caller wants to hear of the tree as well.
    passes: bool,
    path: PathBuf,
    files: OperatorFiles,
    /// The old file of the name: its filesystem and its inode.
    old: Option<(u64, u64)>,
    writing: Mutex<Writing>,
}

/// The file, or why it cannot be written.
type Writing = Result<ManifestWriter<BufWriter<WholeFile>>, ManifestError>;

impl<'a> ManifestHears<'a> {
    /// Begins the file; `passes` is whether the caller's observer hears of the tree as well.
    pub(crate) fn begin(
        path: PathBuf,
        files: OperatorFiles,
        (observer, passes): (&'a dyn Observer, bool),
    ) -> Result<Self, SyncError> {
        let begun = old_manifest(&path, &files).and_then(|old| Ok((old, create(&path, &files)?)));
        match begun {
            Ok((old, writer)) => {
                Ok(Self { observer, passes, path, files, old, writing: Mutex::new(Ok(writer)) })
            }
            Err(source) => Err(SyncError::ManifestFile { path, source }),
        }
    }

    /// Commits the file under its name, when the run has ended well.
    pub(crate) fn finish(self) -> Result<(), SyncError> {
        let Self { path, files, old, writing, .. } = self;
        let now = inode(&path, &files);
        let finished = match writing.into_inner().unwrap_or_else(PoisonError::into_inner) {
            Ok(_) if now.is_some() && now != old => Err(ManifestError::Occupied),
            Ok(writer) => commit(writer).map_err(ManifestError::from),
            Err(failure) => Err(failure),
        };
        finished.map_err(|source| SyncError::ManifestFile { path, source })
    }

    fn write(&self, present: &Present) {
        let mut writing = lock(&self.writing);
        if let Ok(writer) = &mut *writing
            && let Err(failure) = writer.push(&record(present))
        {
            *writing = Err(failure);
        }
    }
}

/// Returns the inode of the file that the manifest replaces, if there is one: it is a manifest, or empty.
fn old_manifest(path: &Path, files: &OperatorFiles) -> Result<Option<(u64, u64)>, ManifestError> {
    let Some(old) = inode(path, files) else { return Ok(None) };
    let mut first = Vec::new();
    files.open_regular(path)?.take(MAGIC.len() as u64).read_to_end(&mut first)?;
    if first.is_empty() || first == MAGIC.as_bytes() { Ok(Some(old)) } else { Err(ManifestError::Precious) }
}

/// Returns the inode of the file that has the manifest's name, with its filesystem.
fn inode(path: &Path, files: &OperatorFiles) -> Option<(u64, u64)> {
    let (dir, name) = place(path, files).ok()?;
    dir.stat(&name).ok().map(|found| (found.dev, found.ino))
}

/// Makes the temporary file that becomes the manifest.
fn create(path: &Path, files: &OperatorFiles) -> io::Result<ManifestWriter<BufWriter<WholeFile>>> {
    let (dir, name) = place(path, files)?;
    let whole = WholeFile::create(&dir, name)?;
    ManifestWriter::new(BufWriter::with_capacity(BUFFER, whole))
}

fn commit(writer: ManifestWriter<BufWriter<WholeFile>>) -> io::Result<()> {
    writer.finish()?.into_inner().map_err(io::IntoInnerError::into_error)?.commit()
}

fn record(present: &Present) -> Record {
    let facts = present.facts;
    Record::new(present.path.clone(), present.kind)
        .mode(facts.mode)
        .uid(facts.uid)
        .gid(facts.gid)
        .mtime(facts.mtime)
        .size(present.size)
        .text(present.text.clone())
        .content(facts.content)
}

impl Observer for ManifestHears<'_> {
    fn connected(&self, connection: &Connection) {
        self.observer.connected(connection);
    }

    fn shell_says(&self, lines: &[String]) {
        self.observer.shell_says(lines);
    }

    fn peer_lacks(&self, lacks: &[String]) {
        self.observer.peer_lacks(lacks);
    }

    fn reconnecting(&self, reconnect: &Reconnect<'_>) {
        // The next session tells of the whole tree.
        let begun = create(&self.path, &self.files);
        *lock(&self.writing) = begun.map_err(ManifestError::from);
        self.observer.reconnecting(reconnect);
    }

    fn event(&self, event: &Event) {
        if let Event::Present(present) = event {
            self.write(present);
            if !self.passes {
                return;
            }
        }
        self.observer.event(event);
    }

    fn progress(&self, progress: &Progress) {
        self.observer.progress(progress);
    }

    fn file(&self, file: &FileProgress) {
        self.observer.file(file);
    }
}

/// Bytes that are collected before they are written.
const BUFFER: usize = 256 << 10;
