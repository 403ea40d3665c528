//! The file of a state.
//!
//! All numbers are little-endian. `dsync-state 3` and a line feed; the pair's name as a length of 4
//! bytes and its bytes; the time when it was written; the number of the system's start in 8 bytes, 0 if
//! it was unknown; the number of filesystems in 4 bytes, and of each its number and that of its device in 8 bytes
//! each, in the order of the first; the number of records in 8 bytes; the records; the BLAKE3 hash of all before it. A
//! time is 8 bytes of seconds since 1970 and 4 of nanoseconds. A record has the filesystem's number, the inode's number and the size in 8 bytes each, modification
//! and change time, and 32 bytes of content hash. Records are in the order of the first two, and no
//! two have the same.
//!
//! The device's number is not in a filesystem's own where that has anything lasting, so that the records of a disk
//! can be found after it was plugged in again. Whoever takes a record for the content itself compares it as well:
//! a copy of the disk has the same inodes and times.
//!
//! The law: one set of records has one form, and a file with any other byte is refused.

use std::{collections::BTreeMap, io};

use dsync_delta::ContentHasher;
use dsync_fs::{Component, Stamp, Timestamp};

use super::error::StateError;

/// A filesystem's number and an inode's.
pub(super) type Key = (u64, u64);

/// The device's number of each filesystem, by its own number.
pub(super) type Devices = BTreeMap<u64, u64>;

/// One version of a file, told from all others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Version {
    pub(super) key: Key,
    pub(super) size: u64,
    pub(super) mtime: Timestamp,
    pub(super) ctime: Timestamp,
}

/// The content of one version of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Record {
    pub(super) version: Version,
    pub(super) content: [u8; 32],
}

/// The content of a state's file.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Content {
    pub(super) pair: Vec<u8>,
    pub(super) saved: Timestamp,
    /// The start of the system that it was written in; 0 if that was unknown.
    pub(super) boot: u64,
    /// The filesystems of the records, and the device's number of each.
    pub(super) devices: Devices,
    pub(super) records: Vec<Record>,
}

impl Version {
    pub(super) fn new(key: Key, stamp: &Stamp) -> Self {
        let Stamp { size, mtime, ctime, .. } = *stamp;
        Self { key, size, mtime, ctime }
    }

    /// Returns whether this is the version of the file with its key that has this stamp.
    pub(super) fn is_of(&self, stamp: &Stamp) -> bool {
        self.key.1 == stamp.ino
            && (self.size, self.mtime, self.ctime) == (stamp.size, stamp.mtime, stamp.ctime)
    }

    pub(super) fn to_bytes(self) -> [u8; VERSION_BYTES] {
        let mut bytes = [0; VERSION_BYTES];
        let numbers = [self.key.0, self.key.1, self.size].map(u64::to_le_bytes);
        for (field, number) in bytes.chunks_exact_mut(8).zip(numbers) {
            field.copy_from_slice(&number);
        }
        bytes[24..36].copy_from_slice(&time_bytes(self.mtime));
        bytes[36..].copy_from_slice(&time_bytes(self.ctime));
        bytes
    }

    pub(super) fn take(rest: &mut &[u8]) -> Option<Self> {
        let [filesystem, inode, size] = [take(rest)?, take(rest)?, take(rest)?].map(u64::from_le_bytes);
        Some(Self { key: (filesystem, inode), size, mtime: time(rest)?, ctime: time(rest)? })
    }
}

impl Record {
    pub(super) fn new(key: Key, stamp: &Stamp, content: [u8; 32]) -> Self {
        Self { version: Version::new(key, stamp), content }
    }

    pub(super) fn key(&self) -> Key {
        self.version.key
    }
}

/// Writes a state, piece by piece.
pub(super) fn write(
    pair: &[u8],
    (saved, boot): (Timestamp, u64),
    (devices, records): (&Devices, &[&Record]),
    mut out: impl FnMut(&[u8]) -> io::Result<()>,
) -> io::Result<()> {
    let mut hasher = ContentHasher::new();
    let mut piece = MAGIC.to_vec();
    piece.extend(u32::try_from(pair.len()).unwrap_or(u32::MAX).to_le_bytes());
    piece.extend(pair);
    piece.extend(time_bytes(saved));
    piece.extend(boot.to_le_bytes());
    let devices = devices.iter().take(MAX_FILESYSTEMS);
    piece.extend(u32::try_from(devices.len()).unwrap_or_default().to_le_bytes());
    for (filesystem, device) in devices {
        piece.extend(filesystem.to_le_bytes());
        piece.extend(device.to_le_bytes());
    }
    piece.extend((records.len() as u64).to_le_bytes());

    for record in records {
        if piece.len() >= PIECE_BYTES {
            hasher.update(&piece);
            out(&piece)?;
            piece.clear();
        }
        piece.extend(record.version.to_bytes());
        piece.extend(record.content);
    }
    hasher.update(&piece);
    piece.extend(hasher.finish());
    out(&piece)
}

/// Reads a state.
///
/// # Errors
/// [`StateError::Newer`] and [`StateError::Damaged`].
pub(super) fn parse(bytes: &[u8]) -> Result<Content, StateError> {
    fields(body_of(bytes, KIND, MAGIC)?).ok_or(StateError::Damaged)
}

/// Returns what is between the first line of a file, which is `magic` and begins with its `kind`, and
/// the hash over everything, which is right.
///
/// # Errors
/// [`StateError::Newer`] and [`StateError::Damaged`].
pub(super) fn body_of<'a>(bytes: &'a [u8], kind: &[u8], magic: &[u8]) -> Result<&'a [u8], StateError> {
    if !bytes.starts_with(magic) {
        let version = |bytes: &[u8]| {
            let line = bytes.strip_prefix(kind)?.split(|byte| *byte == b'\n').next()?;
            std::str::from_utf8(line).ok()?.parse::<u32>().ok()
        };
        let is_newer = version(bytes).is_some_and(|its| Some(its) > version(magic));
        return Err(if is_newer { StateError::Newer } else { StateError::Damaged });
    }
    let (body, sum) = bytes.split_last_chunk::<32>().ok_or(StateError::Damaged)?;
    let mut hasher = ContentHasher::new();
    hasher.update(body);
    if hasher.finish() != *sum {
        return Err(StateError::Damaged);
    }
    Ok(body.strip_prefix(magic).unwrap_or_default())
}

fn fields(mut rest: &[u8]) -> Option<Content> {
    let len = u32::from_le_bytes(take(&mut rest)?);
    let (pair, after) = rest.split_at_checked(usize::try_from(len).ok()?)?;
    rest = after;
    let saved = time(&mut rest)?;
    let boot = u64::from_le_bytes(take(&mut rest)?);
    let devices = take_devices(&mut rest)?;
    let count = usize::try_from(u64::from_le_bytes(take(&mut rest)?)).ok()?;
    if count > MAX_RECORDS || rest.len() != count * RECORD_BYTES {
        return None;
    }

    let mut records = Vec::with_capacity(count);
    for _ in 0..count {
        let record = Record { version: Version::take(&mut rest)?, content: take(&mut rest)? };
        if records.last().is_some_and(|last: &Record| last.key() >= record.key()) {
            return None;
        }
        records.push(record);
    }
    Some(Content { pair: pair.to_vec(), saved, boot, devices, records })
}

fn take_devices(rest: &mut &[u8]) -> Option<Devices> {
    let count = usize::try_from(u32::from_le_bytes(take(rest)?)).ok()?;
    let mut devices = Devices::new();
    for _ in 0..Some(count).filter(|count| *count <= MAX_FILESYSTEMS)? {
        let [filesystem, device] = [take(rest)?, take(rest)?].map(u64::from_le_bytes);
        if devices.last_key_value().is_some_and(|(last, _)| *last >= filesystem) {
            return None;
        }
        devices.insert(filesystem, device);
    }
    Some(devices)
}

pub(super) fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (first, after) = rest.split_first_chunk::<N>()?;
    *rest = after;
    Some(*first)
}

fn time(rest: &mut &[u8]) -> Option<Timestamp> {
    let (seconds, nanoseconds) = (i64::from_le_bytes(take(rest)?), u32::from_le_bytes(take(rest)?));
    (nanoseconds < 1_000_000_000).then_some(Timestamp { seconds, nanoseconds })
}

fn time_bytes(time: Timestamp) -> [u8; 12] {
    let mut bytes = [0; 12];
    bytes[..8].copy_from_slice(&time.seconds.to_le_bytes());
    bytes[8..].copy_from_slice(&time.nanoseconds.to_le_bytes());
    bytes
}

/// Returns the name of a pair's file.
pub(super) fn name_of(pair: &[u8]) -> io::Result<Component> {
    if pair.len() > MAX_PAIR_BYTES {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut hasher = ContentHasher::new();
    hasher.update(b"dsync pair ").update(pair);
    name(PREFIX, &hasher)
}

/// Returns a file's name: a prefix and the digits of a hash.
pub(super) fn name(prefix: &[u8], hasher: &ContentHasher) -> io::Result<Component> {
    let mut name = prefix.to_vec();
    for byte in &hasher.finish()[..16] {
        name.extend(format!("{byte:02x}").bytes());
    }
    Component::new(&name).map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))
}

/// Returns whether a file of this name has this prefix and is a state's.
pub(super) fn is_name(name: &[u8], prefix: &[u8]) -> bool {
    name.strip_prefix(prefix).is_some_and(|digits| {
        digits.len() == 32 && digits.iter().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'))
    })
}

/// The first part of the name of a pair's file.
pub(super) const PREFIX: &[u8] = b"pair-";
const KIND: &[u8] = b"dsync-state ";
const MAGIC: &[u8] = b"dsync-state 3\n";
const VERSION_BYTES: usize = 48;
const RECORD_BYTES: usize = VERSION_BYTES + 32;
/// Bytes that are written together.
const PIECE_BYTES: usize = 256 << 10;
/// Records of a state: what a run keeps in memory of them is below 64 MiB. Files beyond that are read.
pub(super) const MAX_RECORDS: usize = 1 << 19;
/// Filesystems of a state. Files on others are read.
const MAX_FILESYSTEMS: usize = 1024;
/// Longest name of a pair: several operands of the longest path.
pub(super) const MAX_PAIR_BYTES: usize = 1 << 20;
/// Longest file that is read.
pub(super) const MAX_FILE_BYTES: usize =
    MAX_RECORDS * RECORD_BYTES + MAX_FILESYSTEMS * 16 + MAX_PAIR_BYTES + 128;
/// States in a directory; the one that was written longest ago goes first.
pub(super) const MAX_PAIRS: usize = 64;
