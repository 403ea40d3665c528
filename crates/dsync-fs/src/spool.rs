//! Byte records that need not stay in memory.
//!
//! A spool is written once front to back, then read any number of times. Up to 1 MiB stays in
//! memory; beyond it the records go to a file without a name, in one of the directories of a
//! [`SpoolHome`]. The file is in the kernel's memory only if none of them can be used, and then all
//! spools of the home share 32 MiB.
//!
//! Reading back maps 1 MiB at a time. The file is private to this process, so nobody can truncate
//! it under the map, and it is never resident as a whole. Every record carries its XXH3 sum, so a
//! disk that returns other bytes than were written is detected.

use std::{
    borrow::Cow,
    fmt,
    fs::File,
    io, mem,
    os::fd::{AsFd, OwnedFd},
    path::PathBuf,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering},
    },
};

use memmap2::Mmap;
use rustix::{
    fs::{AtFlags, MemfdFlags, Mode, OFlags, memfd_create, openat, unlinkat},
    io::Errno,
};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::{
    dir::{Dir, retry},
    source_file::read_full_at,
    staged::temp_name,
    sys,
};

/// The directories for a run's spools that outgrow memory. Cheap to clone; clones are the same
/// home.
#[derive(Clone, Default)]
pub struct SpoolHome(Arc<Home>);

#[derive(Debug, Default)]
struct Home {
    preferred: OnceLock<Arc<Dir>>,
    paths: Vec<PathBuf>,
    /// The paths that could be opened.
    opened: OnceLock<Vec<Dir>>,
    /// Bytes of spools whose files are in memory.
    in_memory: AtomicU64,
}

impl SpoolHome {
    /// Makes a home in the first of these directories, the operator's own, in which a file can be
    /// made.
    pub fn new(paths: Vec<PathBuf>) -> Self {
        Self(Arc::new(Home { paths, ..Home::default() }))
    }

    /// Puts a directory before all others; only the first call has an effect.
    pub fn prefer(&self, dir: Arc<Dir>) {
        let _ = self.0.preferred.set(dir);
    }

    /// Makes a file without a name in one of the directories, for content of any length.
    ///
    /// # Errors
    /// That of the last directory; [`NotFound`](io::ErrorKind::NotFound) if there is none.
    pub fn scratch_file(&self) -> io::Result<File> {
        let opened = || self.0.paths.iter().filter_map(|path| Dir::open_operand(path).ok()).collect();
        let dirs = self.0.preferred.get().into_iter().map(Arc::as_ref);
        // Open them only when they are needed.
        let dirs = dirs.chain(std::iter::once_with(|| self.0.opened.get_or_init(opened)).flatten());
        let mut last = io::ErrorKind::NotFound.into();
        for dir in dirs {
            match unnamed_file(dir) {
                Ok(file) => return Ok(file.into()),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// Makes a file without a name; returns its share of memory too if the file is in memory.
    pub(crate) fn file(&self) -> io::Result<(OwnedFd, Option<Room>)> {
        if let Ok(file) = self.scratch_file() {
            return Ok((file.into(), None));
        }
        let file = memfd_create(c"dsync-spool", MemfdFlags::CLOEXEC)?;
        Ok((file, Some(Room { home: Arc::clone(&self.0), bytes: 0 })))
    }
}

/// Share of a spool in the memory of its home's spools. Dropping it returns the bytes.
#[derive(Debug)]
pub(crate) struct Room {
    home: Arc<Home>,
    bytes: u64,
}

impl Room {
    /// Reserves more bytes; returns false if the home has too few left.
    pub(crate) fn grow(&mut self, bytes: u64) -> bool {
        let before = self.home.in_memory.fetch_add(bytes, Ordering::Relaxed);
        let fits = before.saturating_add(bytes) <= MAX_SPOOLS_IN_MEMORY;
        if fits {
            self.bytes += bytes;
        } else {
            self.home.in_memory.fetch_sub(bytes, Ordering::Relaxed);
        }
        fits
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        self.home.in_memory.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl fmt::Debug for SpoolHome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SpoolHome").field(&self.0.paths).finish()
    }
}

/// A spool that collects records.
#[derive(Debug)]
pub struct Spool {
    place: Place,
    buffer: Vec<u8>,
    /// Bytes already written out of the buffer.
    written: u64,
    count: u64,
}

/// Address of a record, for reading it out of order.
#[derive(Debug, Clone, Copy, Default)]
pub struct RecordAt {
    offset: u64,
    index: u64,
}

impl RecordAt {
    /// Returns the position of the record, 0-based.
    pub fn index(&self) -> u64 {
        self.index
    }

    /// Encodes the address, to keep it in another record of this process.
    pub fn to_bytes(&self) -> [u8; 16] {
        (u128::from(self.offset) << 64 | u128::from(self.index)).to_ne_bytes()
    }

    /// Decodes an address from [`to_bytes`](Self::to_bytes).
    pub fn from_bytes(bytes: [u8; 16]) -> Self {
        let both = u128::from_ne_bytes(bytes);
        let low = |value: u128| u64::try_from(value & u128::from(u64::MAX)).unwrap_or_default();
        Self { offset: low(both >> 64), index: low(both) }
    }
}

/// Storage for records that outgrow memory.
#[derive(Debug)]
enum Place {
    /// None yet.
    Memory(SpoolHome),
    /// A file, with its share of memory if it is in memory.
    File(OwnedFd, Option<Room>),
}

/// A spool whose records can be read.
#[derive(Debug)]
pub struct SealedSpool {
    bytes: Bytes,
    count: u64,
}

#[derive(Debug)]
enum Bytes {
    Memory(Vec<u8>),
    File { file: OwnedFd, len: u64, _room: Option<Room> },
}

/// The reason why records could not be kept or read back.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SpoolError {
    /// No directory accepts the records, and there are too many for memory.
    #[error(
        "no directory for temporary files can be used, and there are more than {} MiB",
        MAX_SPOOLS_IN_MEMORY >> 20
    )]
    NoPlace,
    /// The file could not be written or read.
    #[error("cannot keep records in a temporary file")]
    Io {
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// The record is longer than 4 GiB.
    #[error("a record of {len} bytes is too long")]
    TooLong {
        /// Length in bytes.
        len: usize,
    },
    /// The bytes differ from those that were written: the disk or the memory is failing.
    #[error("record {index} of a temporary file is damaged")]
    Damaged {
        /// Position of the record, 0-based.
        index: u64,
    },
}

impl From<io::Error> for SpoolError {
    fn from(source: io::Error) -> Self {
        Self::Io { source }
    }
}

impl Spool {
    /// Makes an empty spool. Once it outgrows memory it goes to an unnamed file in `home`.
    pub fn new(home: &SpoolHome) -> Self {
        Self { place: Place::Memory(home.clone()), buffer: Vec::new(), written: 0, count: 0 }
    }

    /// Appends a record; returns its address.
    ///
    /// # Errors
    /// [`SpoolError::Io`], e.g. if the disk is full; [`SpoolError::TooLong`];
    /// [`SpoolError::NoPlace`].
    pub fn push(&mut self, record: &[u8]) -> Result<RecordAt, SpoolError> {
        let len = u32::try_from(record.len()).map_err(|_| SpoolError::TooLong { len: record.len() })?;
        if !self.buffer.is_empty() && self.buffer.len() + HEADER_LEN + record.len() > MAX_IN_MEMORY {
            self.write_out()?;
        }
        let at = RecordAt { offset: self.written + self.buffer.len() as u64, index: self.count };
        self.buffer.extend_from_slice(&len.to_le_bytes());
        self.buffer.extend_from_slice(&xxh3_64_with_seed(record, self.count).to_le_bytes());
        self.buffer.extend_from_slice(record);
        self.count += 1;
        Ok(at)
    }

    /// Reads one record while writing continues.
    ///
    /// # Errors
    /// [`SpoolError::Io`]; [`SpoolError::Damaged`] if it is not the record that was written there.
    pub fn get(&self, at: &RecordAt) -> Result<Vec<u8>, SpoolError> {
        let damaged = SpoolError::Damaged { index: at.index };
        let here = at.offset.checked_sub(self.written).and_then(|at| usize::try_from(at).ok());
        let out;
        let mut rest: &[u8] = match (here, &self.place) {
            (Some(here), _) => self.buffer.get(here..).unwrap_or_default(),
            (None, Place::Memory(_)) => return Err(damaged),
            (None, Place::File(file, _)) => {
                out = read_record(file, self.written, at.offset)?.ok_or(damaged)?;
                return take_record(&mut out.as_slice(), at.index)
                    .map(<[u8]>::to_vec)
                    .ok_or(SpoolError::Damaged { index: at.index });
            }
        };
        take_record(&mut rest, at.index).map(<[u8]>::to_vec).ok_or(damaged)
    }

    /// Ends writing.
    ///
    /// # Errors
    /// [`SpoolError::Io`].
    pub fn seal(mut self) -> Result<SealedSpool, SpoolError> {
        if let Place::File(..) = self.place {
            self.write_out()?;
        }
        let bytes = match self.place {
            Place::Memory(_) => Bytes::Memory(self.buffer),
            Place::File(file, room) => Bytes::File { file, len: self.written, _room: room },
        };
        Ok(SealedSpool { bytes, count: self.count })
    }

    fn write_out(&mut self) -> Result<(), SpoolError> {
        if let Place::Memory(home) = &self.place {
            let (file, room) = home.file()?;
            self.place = Place::File(file, room);
        }

        let Place::File(file, room) = &mut self.place else { return Ok(()) };
        let file = &*file;
        if room.as_mut().is_some_and(|room| !room.grow(self.buffer.len() as u64)) {
            return Err(SpoolError::NoPlace);
        }

        let mut rest = self.buffer.as_slice();
        while !rest.is_empty() {
            let written = retry(|| rustix::io::write(file, rest))?;
            if written == 0 {
                return Err(io::Error::from(io::ErrorKind::WriteZero).into());
            }
            rest = rest.get(written..).unwrap_or_default();
        }
        self.written += self.buffer.len() as u64;
        let mut emptied = mem::take(&mut self.buffer);
        emptied.clear();
        emptied.shrink_to(MAX_IN_MEMORY);
        self.buffer = emptied;
        Ok(())
    }
}

impl SealedSpool {
    /// Returns the number of records.
    pub fn len(&self) -> u64 {
        self.count
    }

    /// Returns whether there are no records.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Returns the records in the order of writing. After an error the iterator ends.
    ///
    /// Each item fails with [`SpoolError::Damaged`] if the record is not the one that was written.
    pub fn iter(&self) -> impl Iterator<Item = Result<Cow<'_, [u8]>, SpoolError>> {
        let mut reader = Reader { bytes: &self.bytes, at: 0, window: None };
        let mut index = 0;
        std::iter::from_fn(move || {
            if index >= self.count {
                return None;
            }
            let record = reader.next(index);
            index = if record.is_ok() { index + 1 } else { self.count };
            Some(record)
        })
    }

    /// Reads one record.
    ///
    /// # Errors
    /// [`SpoolError::Damaged`] if it is not the record that was written there.
    pub fn get(&self, at: &RecordAt) -> Result<Cow<'_, [u8]>, SpoolError> {
        let damaged = || SpoolError::Damaged { index: at.index };
        match &self.bytes {
            Bytes::Memory(bytes) => {
                let offset = usize::try_from(at.offset).ok();
                let mut rest = offset.and_then(|offset| bytes.get(offset..)).unwrap_or_default();
                take_record(&mut rest, at.index).map(Cow::Borrowed).ok_or_else(damaged)
            }
            Bytes::File { file, len, .. } => {
                let record = read_record(file, *len, at.offset)?.ok_or_else(damaged)?;
                let content = take_record(&mut record.as_slice(), at.index).map(<[u8]>::to_vec);
                content.map(Cow::Owned).ok_or_else(damaged)
            }
        }
    }
}

/// Reads consecutive records.
struct Reader<'a> {
    bytes: &'a Bytes,
    /// Offset of the next record.
    at: u64,
    /// Offset and map of a part of the file.
    window: Option<(u64, Mmap)>,
}

impl<'a> Reader<'a> {
    fn next(&mut self, index: u64) -> Result<Cow<'a, [u8]>, SpoolError> {
        let damaged = SpoolError::Damaged { index };
        match self.bytes {
            Bytes::Memory(bytes) => {
                let used = usize::try_from(self.at).unwrap_or(usize::MAX);
                let mut rest = bytes.get(used..).unwrap_or_default();
                let record = take_record(&mut rest, index).ok_or(damaged)?;
                self.at = (bytes.len() - rest.len()) as u64;
                Ok(Cow::Borrowed(record))
            }
            Bytes::File { file, len, .. } => {
                let header = self.window(file, *len, HEADER_LEN as u64)?.first_chunk();
                let record_len =
                    header.map(|len| u32::from_le_bytes(*len)).ok_or(SpoolError::Damaged { index })?;
                let whole = HEADER_LEN as u64 + u64::from(record_len);
                let mut rest = self.window(file, *len, whole)?;
                let record = take_record(&mut rest, index).map(<[u8]>::to_vec).ok_or(damaged)?;
                self.at += whole;
                Ok(Cow::Owned(record))
            }
        }
    }

    /// Returns the bytes of the file from the next record on, as far as mapped: at least `wanted`
    /// bytes, if the file's `len` has them.
    fn window(&mut self, file: &OwnedFd, len: u64, wanted: u64) -> io::Result<&[u8]> {
        let wanted = wanted.min(len.saturating_sub(self.at));
        let begins = self.window.as_ref().map_or(0, |(begins, _)| *begins);
        let mapped = self.window.as_ref().map_or(0, |(_, map)| map.len() as u64);
        if self.at + wanted > begins + mapped {
            let size = wanted.max(WINDOW).min(len - self.at);
            self.window = Some((self.at, sys::map_own_file(file, self.at, size)?));
        }
        let Some((begins, map)) = &self.window else { return Ok(&[]) };
        let used = usize::try_from(self.at - begins).unwrap_or(usize::MAX);
        Ok(map.get(used..).unwrap_or_default())
    }
}

/// Reads the record with its header at an offset of a file of `len` bytes; returns `None` if there
/// is none.
fn read_record(file: &OwnedFd, len: u64, offset: u64) -> io::Result<Option<Vec<u8>>> {
    let mut header = [0; HEADER_LEN];
    if offset.saturating_add(HEADER_LEN as u64) > len {
        return Ok(None);
    }
    read_full_at(file.as_fd(), offset, &mut header)?;
    let record_len = header.first_chunk().map_or(0, |len| u32::from_le_bytes(*len));
    let end = offset.saturating_add(HEADER_LEN as u64 + u64::from(record_len));
    if end > len {
        return Ok(None);
    }
    let mut record = vec![0; usize::try_from(end - offset).unwrap_or_default()];
    read_full_at(file.as_fd(), offset, &mut record)?;
    Ok(Some(record))
}

fn take_record<'a>(rest: &mut &'a [u8], index: u64) -> Option<&'a [u8]> {
    let (len, tail) = rest.split_first_chunk::<4>()?;
    let (sum, tail) = tail.split_first_chunk::<8>()?;
    let len = usize::try_from(u32::from_le_bytes(*len)).ok()?;
    let (record, tail) = tail.split_at_checked(len)?;
    if xxh3_64_with_seed(record, index) != u64::from_le_bytes(*sum) {
        return None;
    }
    *rest = tail;
    Some(record)
}

fn unnamed_file(dir: &Dir) -> io::Result<OwnedFd> {
    let mode = Mode::from_raw_mode(0o600);
    let flags = OFlags::RDWR | OFlags::CLOEXEC;
    match retry(|| openat(dir, c".", flags | OFlags::TMPFILE, mode)) {
        Ok(file) => return Ok(file),
        Err(error) => match Errno::from_io_error(&error) {
            // The kernel or the filesystem does not know the call.
            Some(Errno::OPNOTSUPP | Errno::ISDIR | Errno::NOENT | Errno::INVAL) => {}
            _ => return Err(error),
        },
    }
    let name = temp_name()?;
    let name = dir.spelled(&name)?;
    let flags = flags | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
    let file = retry(|| openat(dir, &*name, flags, mode))?;
    unlinkat(dir, &*name, AtFlags::empty())?;
    Ok(file)
}

/// Limit for the spools of a home that are in memory together, in bytes.
pub const MAX_SPOOLS_IN_MEMORY: u64 = 32 << 20;

/// Length of the mapped part of a spool, in bytes.
const WINDOW: u64 = 1 << 20;

/// Length and sum before each record, in bytes.
const HEADER_LEN: usize = 4 + 8;

/// Limit for records in memory, in bytes; also the unit in which they are written out.
const MAX_IN_MEMORY: usize = 1 << 20;

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::cast_possible_truncation)]
mod tests {
    use super::*;

    fn record(index: u64) -> Vec<u8> {
        vec![index as u8; (index * 7919 % 4001) as usize]
    }

    fn filled(home: &SpoolHome, count: u64) -> Spool {
        with_places(home, count).0
    }

    fn with_places(home: &SpoolHome, count: u64) -> (Spool, Vec<RecordAt>) {
        let mut spool = Spool::new(home);
        let places = (0..count).map(|index| spool.push(&record(index)).unwrap()).collect();
        (spool, places)
    }

    #[test]
    fn records_are_found_out_of_their_turn() {
        for count in [10, 2000] {
            let (spool, places) = with_places(&SpoolHome::default(), count);
            for (index, at) in places.iter().enumerate() {
                assert_eq!(spool.get(&RecordAt::from_bytes(at.to_bytes())).unwrap(), record(index as u64));
            }
            assert!(spool.get(&RecordAt { offset: 1 << 40, index: 0 }).is_err());
            let sealed = spool.seal().unwrap();
            for index in (0..count).rev() {
                assert_eq!(*sealed.get(&places[index as usize]).unwrap(), record(index));
            }
            let nowhere = RecordAt { offset: 1 << 40, index: 0 };
            assert!(matches!(sealed.get(&nowhere), Err(SpoolError::Damaged { index: 0 })));
        }
    }

    #[test]
    fn records_come_back_in_order_from_memory_file_and_memfd() {
        let scratch = tempfile::tempdir().unwrap();
        let dir = Arc::new(Dir::open_operand(scratch.path()).unwrap());
        let preferred = SpoolHome::new(vec!["/nonexistent".into()]);
        preferred.prefer(Arc::clone(&dir));
        let second = SpoolHome::new(vec!["/nonexistent".into(), scratch.path().to_owned()]);
        for (home, count) in
            [SpoolHome::default(), preferred, second].iter().flat_map(|home| [(home, 10), (home, 2000)])
        {
            let sealed = filled(home, count).seal().unwrap();
            assert_eq!(matches!(sealed.bytes, Bytes::File { .. }), count == 2000);
            assert_eq!(sealed.len(), count);
            for _ in 0..2 {
                let mut index = 0;
                for item in sealed.iter() {
                    assert_eq!(*item.unwrap(), record(index));
                    index += 1;
                }
                assert_eq!(index, count);
            }
        }
        assert!(dir.list().entries.is_empty(), "a spool file must have no name");
    }

    #[test]
    fn without_a_directory_a_spool_is_refused_before_it_fills_memory() {
        let mut spool = Spool::new(&SpoolHome::new(vec!["/nonexistent".into()]));
        let record = vec![7; 1 << 20];
        let kept = (0..64).take_while(|_| spool.push(&record).is_ok()).count();
        assert!((30..34).contains(&kept), "{kept}");
        assert!(matches!(spool.push(&record), Err(SpoolError::NoPlace)));
    }

    #[test]
    fn spools_without_a_directory_share_one_bound() {
        let home = SpoolHome::new(vec!["/nonexistent".into()]);
        let record = vec![7; 1 << 20];
        let fill = |spool: &mut Spool| (0..64).take_while(|_| spool.push(&record).is_ok()).count();
        let mut spools: Vec<_> = (0..4).map(|_| Spool::new(&home)).collect();
        // Each spool buffers up to 1 MiB outside its share.
        let kept: usize = spools.iter_mut().map(fill).sum();
        assert!((30..38).contains(&kept), "{kept}");
        // A sealed spool keeps its share; a dropped one returns it.
        let sealed = spools.remove(0).seal();
        assert!(matches!(sealed, Err(SpoolError::NoPlace)));
        drop(spools);
        let kept = fill(&mut Spool::new(&home));
        assert!((30..34).contains(&kept), "{kept}");
    }

    #[test]
    fn empty_spool_has_no_records() {
        let sealed = Spool::new(&SpoolHome::default()).seal().unwrap();
        assert!(sealed.is_empty() && sealed.iter().next().is_none());
    }

    #[test]
    fn a_flipped_bit_is_noticed_at_its_record() {
        let spool = filled(&SpoolHome::default(), 2000);
        let Place::File(file, _) = &spool.place else { panic!("2000 records outgrow memory") };
        let at: u64 = (0..1000).map(|index| HEADER_LEN as u64 + record(index).len() as u64).sum();
        let mut byte = [0];
        rustix::io::pread(file.as_fd(), &mut byte[..], at + 20).unwrap();
        rustix::io::pwrite(file.as_fd(), &[byte[0] ^ 1], at + 20).unwrap();
        let sealed = spool.seal().unwrap();
        let mut items = sealed.iter().skip(1000);
        assert!(matches!(items.next(), Some(Err(SpoolError::Damaged { index: 1000 }))));
        assert!(items.next().is_none());
    }
}
