//! Reading a batch: all of it is checked first, then its messages and contents are found by their
//! offsets.

use std::{
    collections::HashMap,
    fs::File,
    io::{self, Read, Write as _},
    os::unix::fs::{FileExt as _, FileTypeExt as _},
    path::{Path, PathBuf},
    sync::Arc,
};

use dsync_delta::ContentHasher;
use dsync_fs::{OperatorFiles, SourceFile, SpoolHome};
use dsync_wire::{
    codec::decode_control,
    compress::Unpacker,
    kind::Kind,
    limits::MAX_RAW_FRAME,
    message::{Asked, Cause, ControlMessage, EntryId},
    options::SyncOptions,
    state::{DestinationInbox, State},
};

use super::{
    BatchError, BatchFault,
    format::{Content, Piece, Section, SectionReader},
    terms::Terms,
};
use crate::{Resources, SyncError, plan::fs_timestamp};

/// A batch whose every section was read once and found whole.
///
/// ```
/// use std::fs::File;
///
/// use dsync_engine::{Batch, BatchError, BatchFault, Resources};
///
/// # let home = tempfile::tempdir()?;
/// # let path = home.path().join("batch");
/// # std::fs::write(&path, "something else")?;
/// // One that came over a pipe, or that another process has opened, has a name for messages only.
/// let refused = Batch::of_file(File::open(&path)?, &path, &Resources::default());
/// let error: BatchError = refused.err().ok_or("a batch")?;
/// assert!(matches!(error.source, BatchFault::Foreign) && error.exit_code() != 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct Batch(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    path: PathBuf,
    file: File,
    spools: SpoolHome,
    index: Index,
}

/// The sections of a batch, by their offsets.
#[derive(Debug)]
pub(super) struct Index {
    terms: Terms,
    /// Offsets of the messages' sections.
    messages: Vec<u64>,
    contents: HashMap<u64, ContentAt>,
}

/// The place of a file's content.
#[derive(Debug)]
struct ContentAt {
    content: Content,
    /// Offsets of its pieces' sections.
    pieces: Vec<u64>,
}

impl PartialEq for Batch {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Batch {}

/// A recorded message.
type Message = ControlMessage;

impl Batch {
    /// Opens a batch and reads all of it, so that a damaged one is noticed before it is used. What is
    /// not a regular file is copied to a temporary one first.
    ///
    /// # Errors
    /// [`BatchError`].
    pub fn open(path: &Path, files: &OperatorFiles, resources: &Resources) -> Result<Self, BatchError> {
        let fault = |source| BatchError { path: path.to_owned(), source };
        let file = files.open(path).map_err(|error| fault(error.into()))?;
        Self::of_file(file, path, resources)
    }

    /// Returns whether the source of the recorded run munged its links
    /// (`SyncOptions::munge_links`): the run that reads the batch must have that of its source too. Otherwise
    /// links can be munged where they arrive.
    pub fn has_munged_links(&self) -> bool {
        self.0.index.terms.options.munge_links.source
    }

    /// Takes an open batch, which messages call `name`, as [`open`](Self::open) does.
    ///
    /// # Errors
    /// [`BatchError`].
    pub fn of_file(file: File, name: &Path, resources: &Resources) -> Result<Self, BatchError> {
        let spools = resources.spool_home();
        let seekable = seekable(file, &spools);
        let checked = seekable.and_then(|file| {
            let input = io::BufReader::with_capacity(BUFFER, At { file: &file, offset: 0 });
            let index = Index::read(input)?;
            Ok(Inner { path: name.to_owned(), file, spools, index })
        });
        match checked {
            Ok(inner) => Ok(Self(Arc::new(inner))),
            Err(source) => Err(BatchError::new(name, source)),
        }
    }

    /// Returns the error of this batch.
    pub(crate) fn error(&self, source: BatchFault) -> SyncError {
        SyncError::Batch(BatchError { path: self.0.path.clone(), source })
    }

    /// Returns what the recorded run asked for.
    pub(crate) fn asked(&self) -> Asked {
        self.0.index.terms.asked.clone()
    }

    /// Returns the options of a run that reads the batch, with its filter rules where the run has
    /// none.
    ///
    /// # Errors
    /// [`SyncError::BatchOptions`] where its listing is not one of these options.
    pub(crate) fn options(&self, mut options: SyncOptions) -> Result<SyncOptions, SyncError> {
        let differences = self.0.index.terms.differences(&options);
        if !differences.is_empty() {
            let with = |recorded| {
                let differing = differences.iter().filter(move |other| other.recorded == recorded);
                differing.map(|other| other.option).collect()
            };
            let path = self.0.path.clone();
            let (lacking, beyond, other) = (with(Some(true)), with(Some(false)), with(None));
            return Err(SyncError::BatchOptions { path, lacking, beyond, other });
        }
        if options.filters.is_empty() {
            options.filters.clone_from(&self.0.index.terms.options.filters);
        }
        Ok(options)
    }

    /// Reads the recorded messages in their order.
    pub(crate) fn messages(&self) -> impl Iterator<Item = Result<Message, SyncError>> + use<> {
        let inner = Arc::clone(&self.0);
        let mut unpacker = Unpacker::new();
        (0..inner.index.messages.len()).map(move |number| {
            let offset = inner.index.messages.get(number).copied().unwrap_or_default();
            let error = |source| SyncError::Batch(BatchError { path: inner.path.clone(), source });
            let mut reader = SectionReader::resume(inner.at(offset), offset, 0);
            let section = reader.next().map_err(error)?;
            match section.map(|section| decoded(section, &mut unpacker)) {
                Some(Ok(Some(message))) => Ok(message),
                // It was there when the batch was checked.
                _ => Err(error(BatchFault::Damaged)),
            }
        })
    }

    /// Unpacks the content of an entry into a temporary file of its own.
    ///
    /// # Errors
    /// `ENODATA` where the batch has none, `EBADMSG` where it is not what it should be, and the
    /// system's error.
    pub(crate) fn content(&self, entry: EntryId) -> Result<SourceFile, Cause> {
        let Some(found) = self.0.index.contents.get(&entry.0) else { return Err(Cause::Os(NO_CONTENT)) };
        self.0.unpack(found).map_err(|error| Cause::Os(error.raw_os_error().unwrap_or(OTHER_CONTENT)))
    }
}

impl Index {
    /// Reads all of a batch.
    pub(super) fn read(input: impl Read) -> Result<Self, BatchFault> {
        let mut reader = SectionReader::new(input)?;
        let terms = match reader.next()? {
            Some(Section::Terms(payload)) => Terms::decode(&payload).ok().flatten(),
            _ => None,
        };
        let terms = terms.ok_or_else(|| reader.malformed("it does not say what was recorded"))?;
        let mut index = Self { terms, messages: Vec::new(), contents: HashMap::new() };
        let mut arriving = Arriving::default();
        let (mut order, mut unpacker) = (DestinationInbox::peer(), Unpacker::new());

        loop {
            let offset = reader.offset();
            match reader.next()? {
                None => break,
                Some(Section::Terms(_)) => return Err(reader.malformed("it comes a second time")),
                Some(Section::Piece(piece)) => {
                    arriving.piece(&piece, offset).map_err(|what| reader.malformed(what))?;
                }
                Some(Section::Content(content)) => {
                    let found = arriving.content(content).map_err(|what| reader.malformed(what))?;
                    index.contents.insert(content.entry.0, found);
                }
                Some(message) => {
                    let decoded = decoded(message, &mut unpacker).ok().flatten();
                    let message = decoded.ok_or_else(|| reader.malformed("it is no message of a listing"))?;
                    order.check(&message).map_err(|_| reader.malformed("its message is out of order"))?;
                    index.messages.push(offset);
                }
            }
        }

        if order.state() != State::Files {
            return Err(reader.malformed("it is the last one, and the listing has no end"));
        }
        Ok(index)
    }
}

/// Contents whose pieces are arriving: their length so far, and the pieces' offsets.
#[derive(Default)]
struct Arriving(HashMap<u64, (u64, Vec<u64>)>);

impl Arriving {
    fn piece(&mut self, piece: &Piece, at: u64) -> Result<(), &'static str> {
        let (length, pieces) = self.0.entry(piece.entry.0).or_default();
        if piece.offset == 0 {
            (*length, *pieces) = (0, Vec::new());
        }
        let raw_len = piece.packed.raw_len;
        if piece.offset != *length || !(1..=MAX_RAW_FRAME).contains(&raw_len) {
            return Err("it is not the next piece of its file");
        }
        *length = length.checked_add(raw_len.into()).ok_or("its file is too long")?;
        pieces.push(at);
        Ok(())
    }

    fn content(&mut self, content: Content) -> Result<ContentAt, &'static str> {
        let (length, pieces) = self.0.remove(&content.entry.0).unwrap_or_default();
        // An attempt before the file was emptied may have had pieces.
        let (length, pieces) = if content.size == 0 { (0, Vec::new()) } else { (length, pieces) };
        if length != content.size {
            return Err("its file has another length");
        }
        Ok(ContentAt { content, pieces })
    }
}

impl Inner {
    fn at(&self, offset: u64) -> At<'_> {
        At { file: &self.file, offset }
    }

    /// Unpacks a content, and checks it.
    fn unpack(&self, ContentAt { content, pieces }: &ContentAt) -> io::Result<SourceFile> {
        let other = || io::Error::from_raw_os_error(OTHER_CONTENT);
        let mut scratch = self.spools.scratch_file()?;
        let (mut hasher, mut unpacker) = (ContentHasher::new(), Unpacker::new());
        let mut length = 0;

        for &offset in pieces {
            let Ok(Some(Section::Piece(piece))) = SectionReader::resume(self.at(offset), offset, 0).next()
            else {
                return Err(other());
            };
            let raw = unpacker.unpack(&piece.packed, MAX_RAW_FRAME).map_err(|_| other())?;
            hasher.update(&raw);
            scratch.write_all(&raw)?;
            length += raw.len() as u64;
        }

        if length != content.size || hasher.finish() != content.hash {
            return Err(other());
        }
        SourceFile::of_own(scratch, fs_timestamp(content.mtime))
    }
}

/// Reads any bytes as a batch, for the fuzzer.
#[doc(hidden)]
pub fn read_any(bytes: &[u8]) -> Result<(), BatchFault> {
    Index::read(bytes).map(drop)
}

/// Reads a file from an offset on, whoever else reads it.
struct At<'a> {
    file: &'a File,
    offset: u64,
}

impl Read for At<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.file.read_at(buffer, self.offset)?;
        self.offset += count as u64;
        Ok(count)
    }
}

/// Returns a file that can be read from any offset: a copy of one that cannot.
fn seekable(file: File, spools: &SpoolHome) -> Result<File, BatchFault> {
    let kind = file.metadata()?.file_type();
    if kind.is_file() {
        return Ok(file);
    }
    if !kind.is_fifo() && !kind.is_socket() {
        return Err(BatchFault::NotRegular);
    }
    let mut scratch = spools.scratch_file()?;
    io::copy(&mut &file, &mut scratch)?;
    Ok(scratch)
}

/// Returns the message of a section; `None` for one that no listing has.
fn decoded(
    section: Section,
    unpacker: &mut Unpacker,
) -> Result<Option<Message>, dsync_wire::error::DecodeError> {
    use ControlMessage as M;
    let Section::Message(kind, payload) = section else { return Ok(None) };
    let message = decode_control(Kind(kind), &payload, 0, unpacker)?;
    let is_listed = matches!(
        message,
        M::Tops(_) | M::Missing(_) | M::IdName(_) | M::Listing(_) | M::Problem(_) | M::ListingEnd(_)
    );
    Ok(is_listed.then_some(message))
}

/// `ENODATA`: a batch does not have a file's content.
pub(crate) const NO_CONTENT: i32 = 61;
/// `EBADMSG`: a batch has other content than it says.
const OTHER_CONTENT: i32 = 74;
/// Bytes that are read at once.
const BUFFER: usize = 256 << 10;

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::disallowed_methods)]
mod tests {
    use super::{
        super::format::tests::{sections, written},
        *,
    };

    /// Returns a batch of these sections.
    fn batch(sections: &[Section]) -> Batch {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&written(sections)).unwrap();
        Batch::of_file(file, Path::new("test"), &Resources::default()).unwrap()
    }

    #[test]
    fn a_content_is_unpacked_with_its_time() {
        let batch = batch(&sections());
        let file = batch.content(EntryId(1)).unwrap();
        let mut content = [0; 20];
        let count = file.read_full_at(0, &mut content).unwrap();
        assert_eq!(&content[..count], b"hello world");
        assert_eq!(file.stamp().mtime, dsync_fs::Timestamp { seconds: 1_700_000_000, nanoseconds: 5 });
        assert!(file.is_unchanged().unwrap());
        assert_eq!(batch.content(EntryId(2)).err(), Some(Cause::Os(NO_CONTENT)));
        assert_eq!(batch.messages().map(Result::unwrap).count(), 3);
    }

    #[test]
    fn a_content_with_another_hash_is_refused() {
        let mut lying = sections();
        for section in &mut lying {
            if let Section::Content(content) = section {
                content.hash[0] ^= 1;
            }
        }
        assert_eq!(batch(&lying).content(EntryId(1)).err(), Some(Cause::Os(OTHER_CONTENT)));
    }

    #[test]
    fn a_batch_turns_no_option_on() {
        let batch = batch(&sections());
        let archive = SyncOptions::archive();
        assert_eq!(batch.options(archive.clone()).unwrap(), archive);
        let refused = batch.options(archive.devices(false).acls(true)).unwrap_err();
        let SyncError::BatchOptions { lacking, beyond, other, .. } = refused else { panic!("{refused}") };
        assert_eq!((lacking, beyond, other), (vec!["devices"], vec!["acls"], Vec::new()));
    }
}
