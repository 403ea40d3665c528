//! Manifests: the entries of a tree with the hashes of their contents, in a file.
//!
//! A manifest is text that `grep` and `diff` understand: a line that names the version, a line for
//! each entry, and a last line with the number of entries and the BLAKE3 hash of everything before
//! it. `docs/manifest.md` is normative. The laws: entries are in one order and each occurs once;
//! every record has one form, and any other is refused; a manifest that was cut short or changed
//! is refused before its first record is used. Reading and writing take the memory of one record.

use std::{
    cmp::Ordering,
    fs::File,
    io::{self, BufRead, BufReader, Read, Write},
    os::unix::fs::FileExt as _,
    path::Path,
    sync::Arc,
};

use dsync_delta::ContentHasher;
use dsync_fs::{Links, OperatorFiles};
use dsync_wire::{
    event::FileType,
    limits::{MAX_PATH, MAX_SYMLINK},
    message::Timestamp,
    path::EntryPath,
    setters,
};

/// One entry of a tree.
///
/// ```
/// use dsync_engine::{FileType, ManifestWriter, Record};
///
/// // What a program knows of its own: a file, and the hash of its content.
/// let hash = blake3::hash(b"short");
/// let record = Record::new("note", FileType::File)
///     .size(5)
///     .mode(0o644)
///     .content(Some(*hash.as_bytes()));
///
/// let mut writer = ManifestWriter::new(Vec::new())?;
/// writer.push(&Record::new("", FileType::Directory).mode(0o755))?;
/// writer.push(&record)?;
/// assert!(String::from_utf8(writer.finish()?)?.contains("note"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Record {
    /// Path below the root of the tree; empty for the root itself.
    pub path: EntryPath,
    /// Type.
    pub kind: FileType,
    /// Permission bits.
    pub mode: u16,
    /// Owner's number.
    pub uid: u32,
    /// Group's number.
    pub gid: u32,
    /// Modification time.
    pub mtime: Timestamp,
    /// Size of a regular file in bytes, else 0.
    pub size: u64,
    /// Text of a symbolic link; `major,minor` of a device; else empty.
    pub text: Vec<u8>,
    /// BLAKE3 hash of a regular file's content; `None` if it was not read.
    pub content: Option<[u8; 32]>,
}

setters!(Record {
    path: EntryPath,
    kind: FileType,
    mode: u16,
    uid: u32,
    gid: u32,
    mtime: Timestamp,
    size: u64,
    text: Vec<u8>,
    content: Option<[u8; 32]>,
});

impl Record {
    /// Makes the record of an entry without attributes and content.
    pub fn new(path: impl Into<EntryPath>, kind: FileType) -> Self {
        let mtime = Timestamp { seconds: 0, nanoseconds: 0 };
        Self {
            path: path.into(),
            kind,
            mode: 0,
            uid: 0,
            gid: 0,
            mtime,
            size: 0,
            text: Vec::new(),
            content: None,
        }
    }

    /// Returns the record's line, with its end.
    fn line(&self) -> Vec<u8> {
        let Self { path, kind, mode, uid, gid, mtime, size, text, content } = self;
        let letter = LETTERS.iter().find(|(_, known)| known == kind).map_or('?', |(letter, _)| *letter);
        let Timestamp { seconds, nanoseconds } = mtime;
        let content = content.map_or_else(|| "-".to_owned(), |hash| hex(&hash));
        let fields = format!("{letter} {mode:o} {uid} {gid} {seconds}.{nanoseconds:09} {size} {content} ");

        let mut line = fields.into_bytes();
        if path.is_empty() {
            line.push(b'.');
        } else {
            escape(path, &mut line);
        }
        if !text.is_empty() {
            line.push(b' ');
            escape(text, &mut line);
        }
        line.push(b'\n');
        line
    }

    /// Reads a line, which has no end any more. `None` if it is no record in its one form.
    fn parse(line: &[u8]) -> Option<Self> {
        let mut fields = line.split(|&byte| byte == b' ');
        let mut text = || fields.next().and_then(|field| std::str::from_utf8(field).ok());
        let letter = text()?;
        let kind = LETTERS.iter().find(|(known, _)| letter.chars().eq([*known]))?.1;
        let mode = u16::from_str_radix(text()?, 8).ok()?;
        let (uid, gid) = (text()?.parse().ok()?, text()?.parse().ok()?);
        let (seconds, nanoseconds) = text()?.split_once('.')?;
        let mtime = Timestamp { seconds: seconds.parse().ok()?, nanoseconds: nanoseconds.parse().ok()? };
        let size = text()?.parse().ok()?;
        let content = match text()? {
            "-" => None,
            hash => Some(unhex(hash)?),
        };
        let path = fields.next().map(unescape)??;
        let path = if path == b"." { EntryPath::default() } else { path.into() };
        let text = fields.next().map_or(Some(Vec::new()), unescape)?;

        let record = Self { path, kind, mode, uid, gid, mtime, size, text, content };
        // One form only: what is written again must be what was read.
        (record.line().strip_suffix(b"\n") == Some(line) && record.has_meaning()).then_some(record)
    }

    fn has_meaning(&self) -> bool {
        let is_file = self.kind == FileType::File;
        let step = |name: &[u8]| !matches!(name, b"" | b"." | b"..") && !name.contains(&0);
        self.mode <= 0o7777
            && self.mtime.nanoseconds < 1_000_000_000
            && (is_file || self.size == 0 && self.content.is_none())
            && (self.path.is_empty() || self.path.split(|&byte| byte == b'/').all(step))
    }
}

/// Compares paths in the order of a manifest: directory by directory, depth first, and in each one
/// by the bytes of names.
///
/// ```
/// use dsync_engine::manifest::compare_paths;
///
/// // Files of a directory come before what its directories hold.
/// let mut paths: Vec<&[u8]> = vec![b"b", b"a/z", b"a", b""];
/// paths.sort_by(|one, other| compare_paths(one, other));
/// assert_eq!(paths, [b"".as_slice(), b"a", b"b", b"a/z"]);
/// ```
pub fn compare_paths(one: &[u8], other: &[u8]) -> Ordering {
    // The root has no directory.
    match (one.is_empty(), other.is_empty()) {
        (false, false) => {}
        (one, other) => return other.cmp(&one),
    }
    let ((one_dir, one_name), (other_dir, other_name)) = (split(one), split(other));
    steps(one_dir).cmp(steps(other_dir)).then_with(|| one_name.cmp(other_name))
}

/// Splits a path into its directory and its name.
fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|&byte| byte == b'/') {
        Some(at) => (&path[..at], &path[at + 1..]),
        None => (&[], path),
    }
}

fn steps(directory: &[u8]) -> impl Iterator<Item = &[u8]> {
    directory.split(|&byte| byte == b'/').filter(|name| !name.is_empty())
}

/// The reason why a manifest cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ManifestError {
    /// The file could not be read or written.
    #[error(transparent)]
    Io {
        /// The reason.
        #[from]
        source: io::Error,
    },
    /// The first line is not that of a manifest.
    #[error("the file is no manifest")]
    Foreign,
    /// The file that a manifest was to replace is something else: part of the tree, or another program's.
    #[error("the file that is there is no manifest, and is not replaced")]
    Precious,
    /// Something took the manifest's name during the run: an entry of the source that was just copied, or
    /// another program's file.
    #[error("an entry of the source, or another program, has taken its name meanwhile")]
    Occupied,
    /// A later version of the format.
    #[error("the manifest has version {version}, and this program reads version {VERSION}")]
    Newer {
        /// Its version.
        version: u32,
    },
    /// The last line is missing.
    #[error("the manifest was cut short")]
    Truncated,
    /// Its content is not what was written.
    #[error("the manifest was changed or damaged: its hash differs")]
    Damaged,
    /// A line that is no record.
    #[error("line {line} of the manifest is no record")]
    Malformed {
        /// The line's number, from 1.
        line: u64,
    },
    /// A record that does not follow the one before it.
    #[error("line {line} of the manifest is out of order")]
    Unsorted {
        /// The line's number, from 1.
        line: u64,
    },
}

/// The version of the format that is written.
pub const VERSION: u32 = 1;

/// Writes a manifest, a record at a time.
///
/// ```
/// use dsync_engine::{FileType, ManifestError, ManifestWriter, Record};
///
/// let mut writer = ManifestWriter::new(Vec::new())?;
/// writer.push(&Record::new("b", FileType::Fifo))?;
/// // Records come in the order of `compare_paths`.
/// let late = writer.push(&Record::new("a", FileType::Fifo));
/// assert!(matches!(late, Err(ManifestError::Unsorted { line: 3 })));
/// assert!(writer.finish()?.starts_with(b"dsync"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct ManifestWriter<W> {
    out: W,
    hasher: ContentHasher,
    entries: u64,
    last: Option<EntryPath>,
}

impl<W> std::fmt::Debug for ManifestWriter<W> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ManifestWriter").field("entries", &self.entries).finish_non_exhaustive()
    }
}

impl<W: Write> ManifestWriter<W> {
    /// Begins a manifest.
    ///
    /// # Errors
    /// The writer's.
    pub fn new(out: W) -> io::Result<Self> {
        let mut writer = Self { out, hasher: ContentHasher::new(), entries: 0, last: None };
        writer.write(format!("{MAGIC}{VERSION}\n").as_bytes())?;
        Ok(writer)
    }

    fn write(&mut self, line: &[u8]) -> io::Result<()> {
        self.hasher.update(line);
        self.out.write_all(line)
    }

    /// Adds a record.
    ///
    /// # Errors
    /// The writer's; [`ManifestError::Unsorted`] unless [`compare_paths`] puts it behind the last one;
    /// [`ManifestError::Malformed`] for a record that no reader takes: a path that is none of a tree, more
    /// permission bits than there are, a size or a content of what is no file, or names so long that the line
    /// has more than 3 MiB.
    pub fn push(&mut self, record: &Record) -> Result<(), ManifestError> {
        let line = self.entries + 2;
        if !record.has_meaning() {
            return Err(ManifestError::Malformed { line });
        }
        if self.last.as_deref().is_some_and(|last| compare_paths(last, &record.path).is_ge()) {
            return Err(ManifestError::Unsorted { line });
        }
        let text = record.line();
        if text.len() as u64 > MAX_LINE {
            return Err(ManifestError::Malformed { line });
        }
        self.write(&text)?;
        self.entries += 1;
        self.last = Some(record.path.clone());
        Ok(())
    }

    /// Ends the manifest. Returns what it was written to.
    ///
    /// # Errors
    /// The writer's.
    pub fn finish(mut self) -> io::Result<W> {
        let end = format!("{END}{} {}\n", self.entries, hex(&self.hasher.finish()));
        self.out.write_all(end.as_bytes())?;
        self.out.flush()?;
        Ok(self.out)
    }
}

/// Reads the records of a manifest in their order.
///
/// ```
/// use dsync_engine::manifest::Records;
///
/// # let mut writer = dsync_engine::ManifestWriter::new(Vec::new())?;
/// # writer.push(&dsync_engine::Record::new("a", dsync_engine::FileType::Fifo))?;
/// # let download = writer.finish()?;
/// // From a stream, which is read once. The fault of a cut one comes after its whole records.
/// let mut records = Records::new(&download[..download.len() - 1])?;
/// assert_eq!(records.next().transpose()?.map(|record| record.path), Some("a".into()));
/// assert!(records.next().is_some_and(|end| end.is_err()));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Records<R> {
    input: R,
    hasher: ContentHasher,
    line: u64,
    last: Option<EntryPath>,
    is_over: bool,
}

impl<R> std::fmt::Debug for Records<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Records").field("line", &self.line).finish_non_exhaustive()
    }
}

impl<R: BufRead> Records<R> {
    /// Begins to read. Records that come before a fault are returned before it: use [`Manifest`]
    /// where the first one must not be used then.
    ///
    /// # Errors
    /// [`ManifestError`] if this is no manifest of a known version.
    pub fn new(input: R) -> Result<Self, ManifestError> {
        let mut records = Self { input, hasher: ContentHasher::new(), line: 1, last: None, is_over: false };
        let line = records.read_line()?;
        records.hasher.update(&line);
        let version = std::str::from_utf8(&line)
            .ok()
            .and_then(|line| line.strip_prefix(MAGIC)?.strip_suffix('\n')?.parse().ok())
            .ok_or(ManifestError::Foreign)?;
        match version {
            VERSION => Ok(records),
            0 => Err(ManifestError::Foreign),
            version => Err(ManifestError::Newer { version }),
        }
    }

    /// Reads a line with its end; one without it is returned as it is.
    fn read_line(&mut self) -> io::Result<Vec<u8>> {
        let mut line = Vec::new();
        (&mut self.input).take(MAX_LINE).read_until(b'\n', &mut line)?;
        Ok(line)
    }

    fn read(&mut self) -> Result<Option<Record>, ManifestError> {
        let raw = self.read_line()?;
        self.line += 1;
        let number = self.line;
        let Some(line) = raw.strip_suffix(b"\n") else {
            let is_long = raw.len() as u64 >= MAX_LINE;
            return Err(if is_long {
                ManifestError::Malformed { line: number }
            } else {
                ManifestError::Truncated
            });
        };
        if line.starts_with(END.as_bytes()) {
            let expected = format!("{END}{} {}", number - 2, hex(&self.hasher.finish()));
            let rest = self.read_line()?;
            return if line == expected.as_bytes() && rest.is_empty() {
                Ok(None)
            } else {
                Err(ManifestError::Damaged)
            };
        }

        self.hasher.update(&raw);
        let record = Record::parse(line).ok_or(ManifestError::Malformed { line: number })?;
        if self.last.as_deref().is_some_and(|last| compare_paths(last, &record.path).is_ge()) {
            return Err(ManifestError::Unsorted { line: number });
        }
        self.last = Some(record.path.clone());
        Ok(Some(record))
    }
}

impl<R: BufRead> Iterator for Records<R> {
    type Item = Result<Record, ManifestError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.is_over {
            return None;
        }
        let next = self.read().transpose();
        self.is_over = !matches!(next, Some(Ok(_)));
        next
    }
}

/// A manifest whose every record was checked. Clones share the open file; two are equal if their lines
/// are.
///
/// ```
/// use dsync_engine::{
///     CancelToken, Manifest, Silent,
///     manifest::Totals,
///     verify::{Reading, record_to_file},
/// };
///
/// # let home = tempfile::tempdir()?;
/// # let (from, to) = (home.path().join("from"), home.path().join("to"));
/// # std::fs::create_dir(&from)?;
/// # std::fs::write(from.join("note"), "short")?;
/// # let file = home.path().join("manifest");
/// record_to_file(&from, &file, &Reading::default(), &Silent, &CancelToken::new())?;
///
/// let manifest = Manifest::open(&file)?;
/// let Totals { files, bytes, .. } = manifest.totals();
/// assert_eq!((files, bytes), (1, 5));
/// for record in manifest.records()? {
///     println!("{}", record?.path);
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct Manifest {
    file: Arc<File>,
    totals: Totals,
    hash: [u8; 32],
}

/// The sums over a manifest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(default))]
pub struct Totals {
    /// Entries of all types.
    pub entries: u64,
    /// Regular files.
    pub files: u64,
    /// Their sizes together, in bytes.
    pub bytes: u64,
    /// Regular files whose content is not recorded.
    pub without_content: u64,
}

impl Totals {
    /// Adds a record.
    pub(crate) fn add(&mut self, record: &Record) {
        self.entries += 1;
        if record.kind == FileType::File {
            self.files += 1;
            self.bytes = self.bytes.saturating_add(record.size);
            self.without_content += u64::from(record.content.is_none());
        }
    }
}

impl Manifest {
    /// Opens a manifest and reads it once, so that a damaged one is noticed before it is used. Its
    /// path may pass through links of root and of this process's user. It is a regular file, as it is
    /// read again.
    ///
    /// # Errors
    /// [`ManifestError`].
    pub fn open(path: &Path) -> Result<Self, ManifestError> {
        let file = OperatorFiles::new(Links::Trusted).open_regular(path)?;
        let mut totals = Totals::default();
        let mut records = Records::new(BufReader::new(&file))?;
        for record in &mut records {
            totals.add(&record?);
        }
        let hash = records.hasher.finish();
        Ok(Self { file: Arc::new(file), totals, hash })
    }

    /// Returns the sums over its records.
    pub fn totals(&self) -> Totals {
        self.totals
    }

    /// Returns the BLAKE3 hash of all its lines but the last, which has it: what one manifest has that
    /// no other has.
    pub fn hash(&self) -> &[u8; 32] {
        &self.hash
    }

    /// Reads the records from the beginning, beside other readers of this manifest and of its clones.
    ///
    /// # Errors
    /// As [`Manifest::open`].
    pub fn records(&self) -> Result<Records<impl BufRead + use<>>, ManifestError> {
        self.reader()
    }

    /// Reads as [`records`](Self::records) does, by a type that has a name here.
    ///
    /// # Errors
    /// As [`Manifest::open`].
    pub(crate) fn reader(&self) -> Result<ManifestReader, ManifestError> {
        Records::new(BufReader::new(FromStart { file: Arc::clone(&self.file), at: 0 }))
    }

    /// Returns the open file.
    pub(crate) fn file(&self) -> &File {
        &self.file
    }
}

impl PartialEq for Manifest {
    fn eq(&self, other: &Self) -> bool {
        self.hash == other.hash
    }
}

impl Eq for Manifest {}

/// The records of a manifest, read with a position of their own.
pub(crate) type ManifestReader = Records<BufReader<FromStart>>;

/// A file that is read from its start, whatever its other readers do.
#[derive(Debug)]
pub(crate) struct FromStart {
    file: Arc<File>,
    at: u64,
}

impl Read for FromStart {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read_at(buf, self.at)?;
        self.at += read as u64;
        Ok(read)
    }
}

/// Appends a name without spaces, line ends and control characters: those and `%` become `%XX`.
fn escape(name: &[u8], line: &mut Vec<u8>) {
    for &byte in name {
        if byte <= b' ' || byte == 0x7f || byte == b'%' {
            line.extend(format!("%{byte:02X}").bytes());
        } else {
            line.push(byte);
        }
    }
}

fn unescape(text: &[u8]) -> Option<Vec<u8>> {
    let mut name = Vec::with_capacity(text.len());
    let mut rest = text.iter();
    while let Some(&byte) = rest.next() {
        if byte == b'%' {
            let digits = [*rest.next()?, *rest.next()?];
            name.push(u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?);
        } else {
            name.push(byte);
        }
    }
    Some(name)
}

fn hex(hash: &[u8; 32]) -> String {
    hash.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Option<[u8; 32]> {
    let mut hash = [0; 32];
    if text.len() != 64 {
        return None;
    }
    for (byte, digits) in hash.iter_mut().zip(text.as_bytes().chunks(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
    }
    Some(hash)
}

/// The beginning of the first line; the version follows.
pub(crate) const MAGIC: &str = "dsync-manifest ";
/// The beginning of the last line; no record begins like this.
const END: &str = "end ";
/// Bytes of a line: a path and a link text, every byte of them escaped, and the other fields.
const MAX_LINE: u64 = 3 * (MAX_PATH + MAX_SYMLINK) as u64 + 256;
/// The letters of types.
const LETTERS: [(char, FileType); 7] = [
    ('f', FileType::File),
    ('d', FileType::Directory),
    ('l', FileType::Symlink),
    ('p', FileType::Fifo),
    ('s', FileType::Socket),
    ('c', FileType::CharDevice),
    ('b', FileType::BlockDevice),
];

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
