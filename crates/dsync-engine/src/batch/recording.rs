//! Writing a batch: the messages of a listing as they go, and contents as they are transferred.

use std::{
    io::{self, BufWriter},
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use dsync_delta::ContentHasher;
use dsync_fs::{OperatorFiles, SourceFile, StagedFile};
use dsync_wire::{
    codec::{FRAME_HEADER, encode_control},
    compress::{Effort, Packer},
    limits::MAX_RAW_FRAME,
    message::{Asked, Cause, ControlMessage, EntryId, Operation, Timestamp},
    options::{Compression, SyncOptions},
};

use super::{
    BatchError, BatchFault,
    format::{Content, Piece, Section, SectionWriter},
    terms::Terms,
};
use crate::{
    SyncError, content,
    plan::timestamp,
    whole_file::{NotRegular, WholeFile, place},
};

/// A batch file that is being written. It takes its name when the run has ended well.
///
/// ```
/// use dsync_engine::{Batch, CancelToken, Destination, Job, Links, OperatorFiles, Recording};
/// use dsync_engine::{Resources, Silent, Source, SyncOptions};
///
/// # let home = tempfile::tempdir()?;
/// # let (from, to) = (home.path().join("from"), home.path().join("to"));
/// # std::fs::create_dir(&from)?;
/// # std::fs::write(from.join("note"), "short")?;
/// # let (batch, other) = (home.path().join("batch"), home.path().join("other"));
/// let files = OperatorFiles::new(Links::Trusted);
/// let source = Source::Local { paths: vec![from.join("")] };
/// Job::new(source, Destination::Local { path: to })
///     .options(SyncOptions::archive())
///     .record(Recording::create(&batch, false, &files)?)
///     .run(&Silent, &CancelToken::new())?;
///
/// // The same run once more, at a place that the source cannot reach.
/// let batch = Batch::open(&batch, &files, &Resources::default())?;
/// Job::new(Source::Batch(batch), Destination::Local { path: other.clone() })
///     .options(SyncOptions::archive())
///     .run(&Silent, &CancelToken::new())?;
/// assert!(other.join("note").exists());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct Recording(Arc<Inner>);

struct Inner {
    path: PathBuf,
    only: bool,
    state: Mutex<State>,
    /// Files whose content could not be recorded.
    lacking: AtomicU64,
    /// Set once a session of the run has ended.
    stopped: Mutex<Vec<Arc<AtomicBool>>>,
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for Inner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Recording")
            .field("path", &self.path)
            .field("only", &self.only)
            .finish_non_exhaustive()
    }
}

/// The file, as far as it got.
struct State {
    /// `None` when it is finished, or cannot be.
    writer: Option<SectionWriter<BufWriter<WholeFile>>>,
    failure: Option<io::Error>,
    packer: Packer,
    effort: Effort,
    /// Whether what was asked for is written.
    is_begun: bool,
    /// Whether names were left out of what was asked for.
    is_open: bool,
}

impl Recording {
    /// Begins a batch file beside the name that it will take. With `only` the run that it records
    /// changes nothing.
    ///
    /// # Errors
    /// [`BatchError`], also where the name is that of something else than a regular file.
    pub fn create(path: &Path, only: bool, files: &OperatorFiles) -> Result<Self, BatchError> {
        let writer = create(path, files).map_err(|source| BatchError::new(path, source))?;
        let (failure, packer, effort) = (None, Packer::new(), Effort::Raw);
        let state = Mutex::new(State {
            writer: Some(writer),
            failure,
            packer,
            effort,
            is_begun: false,
            is_open: false,
        });
        Ok(Self(Arc::new(Inner {
            path: path.to_owned(),
            only,
            state,
            lacking: AtomicU64::new(0),
            stopped: Mutex::default(),
        })))
    }

    /// Reads no file to its end once this is set: a large one takes minutes.
    pub(crate) fn until(&self, stopped: &Arc<AtomicBool>) {
        self.stop_flags().push(Arc::clone(stopped));
    }

    fn stop_flags(&self) -> MutexGuard<'_, Vec<Arc<AtomicBool>>> {
        self.0.stopped.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the error of a reading that the end of the run interrupts.
    fn check_stop(&self) -> io::Result<()> {
        let is_over = self.stop_flags().iter().any(|stopped| stopped.load(Ordering::Relaxed));
        if is_over { Err(io::ErrorKind::Interrupted.into()) } else { Ok(()) }
    }

    /// Returns whether the recorded run changes nothing.
    pub(crate) fn is_only(&self) -> bool {
        self.0.only
    }

    /// Writes what the run asks for.
    pub(crate) fn begin(&self, asked: Asked, options: &SyncOptions) -> Result<(), SyncError> {
        let mut state = self.0.lock();
        // A run that is tried again, as the other end had no program.
        if std::mem::replace(&mut state.is_begun, true) {
            return Ok(());
        }
        state.is_open = asked.names.is_none();
        state.effort = match options.compression {
            Compression::Off => Effort::Raw,
            Compression::Lz4 => Effort::Lz4,
            Compression::Zstd(level) => Effort::Zstd(level),
            _ => Effort::Zstd(LEVEL),
        };
        let terms = Terms::new(asked, options).encode().map_err(io::Error::other);
        let pushed = terms.and_then(|payload| state.push(&Section::Terms(payload)));
        drop(state);
        self.written(&pushed)
    }

    /// Records a message of the source, if it belongs to the listing.
    pub(crate) fn message(&self, message: &ControlMessage) -> Result<(), SyncError> {
        use ControlMessage as M;
        let mut state = self.0.lock();
        let recorded = match message {
            M::Problem(problem) if problem.operation == Operation::RemoveSource => return Ok(()),
            // Only an operand that is known may give its entry another name.
            M::Tops(tops) if state.is_open => &M::Tops({
                let mut tops = tops.clone();
                tops.single_file = false;
                tops
            }),
            M::Tops(_) | M::Missing(_) | M::IdName(_) | M::Listing(_) | M::Problem(_) | M::ListingEnd(_) => {
                message
            }
            _ => return Ok(()),
        };
        let pushed = state.message(recorded);
        drop(state);
        self.written(&pushed)
    }

    /// Records the content of a file in one consistent state.
    ///
    /// # Errors
    /// The cause, if it cannot be read. A batch that cannot be written is an error of
    /// [`check`](Self::check).
    pub(crate) fn content(
        &self,
        entry: EntryId,
        open: &dyn Fn() -> Result<SourceFile, Cause>,
        cause: &dyn Fn(&io::Error) -> Cause,
    ) -> Result<(), Cause> {
        let mut found = Cause::Changed;
        for _ in 0..READ_ATTEMPTS {
            let read = open().and_then(|file| self.pieces(entry, &file).map_err(|error| cause(&error)));
            match read {
                Ok(true) => return Ok(()),
                Ok(false) => {}
                Err(cause) => {
                    found = cause;
                    break;
                }
            }
        }
        self.0.lacking.fetch_add(1, Ordering::Relaxed);
        Err(found)
    }

    /// Records the content of a file that has arrived whole and was verified, with the time that the
    /// source told.
    ///
    /// # Errors
    /// [`SyncError::Batch`] if the batch cannot be written.
    pub(crate) fn staged(
        &self,
        entry: EntryId,
        staged: &StagedFile,
        mtime: Timestamp,
    ) -> Result<(), SyncError> {
        let read = staged.stamp().and_then(|stamp| {
            let hash = self.bytes(entry, stamp.size, &|offset, raw| staged.read_full_at(offset, raw))?;
            Ok(hash.map(|hash| (stamp.size, hash)))
        });
        match read {
            Ok(Some((size, hash))) => {
                let content = Section::Content(Content { entry, size, mtime, hash });
                let _ = self.0.lock().push(&content);
            }
            Ok(None) | Err(_) => _ = self.0.lacking.fetch_add(1, Ordering::Relaxed),
        }
        self.check()
    }

    /// Records the content of a file; returns whether that is of one state of it.
    fn pieces(&self, entry: EntryId, file: &SourceFile) -> io::Result<bool> {
        file.advise_sequential();
        let size = file.len();
        let hash = self.bytes(entry, size, &|offset, raw| file.read_full_at(offset, raw))?;
        let Some(hash) = hash else { return Ok(false) };
        // One that only grows is recorded as it was when it was opened, as it is copied.
        let begins_so = || {
            let go_on = || self.check_stop().is_ok();
            content::hash_beginning_while(file, size, go_on).map(|again| again == hash)
        };
        if !(file.is_unchanged()? || file.needs_another_reading()? && begins_so()?) {
            return Ok(false);
        }

        let mtime = timestamp(file.stamp().mtime);
        let _ = self.0.lock().push(&Section::Content(Content { entry, size, mtime, hash }));
        Ok(true)
    }

    /// Records the pieces of a content, and returns its hash; `None` if it has become shorter.
    fn bytes(
        &self,
        entry: EntryId,
        size: u64,
        read: &dyn Fn(u64, &mut [u8]) -> io::Result<usize>,
    ) -> io::Result<Option<[u8; 32]>> {
        let mut hasher = ContentHasher::new();
        let mut offset = 0;

        while offset < size {
            let want = usize::try_from(size - offset).unwrap_or(usize::MAX).min(MAX_RAW_FRAME as usize);
            let mut raw = vec![0; want];
            self.check_stop()?;
            if read(offset, &mut raw)? < want {
                return Ok(None);
            }
            hasher.update(&raw);
            let mut state = self.0.lock();
            let effort = state.effort;
            let packed = state.packer.pack(raw.into(), effort);
            // The failure is the batch's, and not that of the file.
            let _ = state.push(&Section::Piece(Piece { entry, offset, packed }));
            drop(state);
            offset += want as u64;
        }
        Ok(Some(hasher.finish()))
    }

    /// Returns the number of files whose content is lacking.
    pub(crate) fn lacking(&self) -> u64 {
        self.0.lacking.load(Ordering::Relaxed)
    }

    /// Returns whether the batch can still be written.
    pub(crate) fn is_sound(&self) -> bool {
        self.0.lock().failure.is_none()
    }

    /// Returns the failure to write the batch, if there was one.
    pub(crate) fn check(&self) -> Result<(), SyncError> {
        match self.0.lock().failure.take() {
            Some(error) => Err(self.error(error)),
            None => Ok(()),
        }
    }

    /// Ends the batch, and gives it its name when it is on the disk.
    pub(crate) fn finish(&self) -> Result<(), SyncError> {
        self.check()?;
        let Some(writer) = self.0.lock().writer.take() else { return Ok(()) };
        let finished =
            writer.finish().and_then(|buffered| buffered.into_inner().map_err(|error| error.into_error()));
        finished.and_then(WholeFile::commit).map_err(|error| self.error(error))
    }

    /// Returns the error of the run that a failure to write is.
    fn written(&self, result: &io::Result<()>) -> Result<(), SyncError> {
        if result.is_ok() { Ok(()) } else { self.check() }
    }

    fn error(&self, error: io::Error) -> SyncError {
        SyncError::Batch(BatchError { path: self.0.path.clone(), source: error.into() })
    }
}

impl State {
    /// Adds a section. The first failure is kept and ends the batch.
    fn push(&mut self, section: &Section) -> io::Result<()> {
        let Some(writer) = &mut self.writer else { return Ok(()) };
        if let Err(error) = writer.push(section) {
            self.writer = None;
            self.failure = Some(error);
            return Err(io::ErrorKind::Other.into());
        }
        Ok(())
    }

    fn message(&mut self, message: &ControlMessage) -> io::Result<()> {
        let mut frame = Vec::new();
        encode_control(message, &mut self.packer, &mut frame).map_err(io::Error::other)?;
        match frame.get(FRAME_HEADER - 1..).and_then(<[u8]>::split_first) {
            Some((kind, payload)) => self.push(&Section::Message(*kind, payload.to_vec())),
            None => Err(io::ErrorKind::InvalidData.into()),
        }
    }
}

/// Makes the temporary file that becomes the batch, and writes its head.
fn create(path: &Path, files: &OperatorFiles) -> Result<SectionWriter<BufWriter<WholeFile>>, BatchFault> {
    let fault =
        |error| if NotRegular::is_of(&error) { BatchFault::NotRegular } else { BatchFault::from(error) };
    let (dir, name) = place(path, files).map_err(fault)?;
    let whole = WholeFile::create(&dir, name)?;
    Ok(SectionWriter::new(BufWriter::with_capacity(BUFFER, whole))?)
}

/// zstd's level where the run names none.
const LEVEL: u8 = 3;
/// Attempts to read a file before it is given up as changing.
const READ_ATTEMPTS: usize = 3;
/// Bytes that are collected before they are written.
const BUFFER: usize = 256 << 10;
