//! Reading a file's content: whole, for the unkeyed hash that `checksum` compares, and by position,
//! for the delta core; and the sum of what shows that it was not touched meanwhile.

use std::{
    io,
    sync::atomic::{AtomicBool, Ordering},
};

use dsync_delta::{ContentHasher, Key, ReadAt};
use dsync_fs::{DISK_UNIT, SourceFile, Stamp};
use dsync_wire::message::FileState;

use crate::State;

/// The contents of the files of one end, for comparing them.
#[derive(Clone, Copy)]
pub(crate) struct Contents<'a> {
    /// Contents that are known of earlier runs.
    pub(crate) state: Option<&'a State>,
    /// Whether contents come from the disk, whatever memory and the state have of them.
    pub(crate) from_disk: bool,
    /// Set when the run ends.
    pub(crate) stopped: &'a AtomicBool,
}

impl Contents<'_> {
    /// Returns the unkeyed hash of a file that had this stamp when it was looked at, and `open`s it
    /// unless the hash is known.
    ///
    /// # Errors
    /// Those of `open`, and as [`hash`]; from the disk also one that
    /// [`has_changed`] knows.
    pub(crate) fn hash(
        &self,
        stamp: impl FnOnce() -> Option<Stamp>,
        open: impl FnOnce() -> io::Result<SourceFile>,
    ) -> io::Result<[u8; 32]> {
        if self.from_disk {
            return self.hash_from_disk(stamp(), &open()?);
        }
        let Some(state) = self.state else { return hash(&open()?, self.stopped) };
        match stamp().and_then(|stamp| state.content_of(&stamp)) {
            Some(known) => Ok(known),
            None => state.content_or(&open()?, |file| hash(file, self.stopped)),
        }
    }

    /// Hashes a file from the disk, which must be the one that was looked at, from the first byte to
    /// the last.
    fn hash_from_disk(&self, listed: Option<Stamp>, file: &SourceFile) -> io::Result<[u8; 32]> {
        let is_listed = listed.is_none_or(|listed| listed == file.stamp());
        file.read_from_disk();
        let hash = hash(file, self.stopped)?;
        if is_listed && file.is_unchanged()? { Ok(hash) } else { Err(io::Error::other(Changed)) }
    }
}

#[derive(Debug, thiserror::Error)]
#[error("the file changed while it was read")]
struct Changed;

/// Returns whether an error of [`Contents::hash`] says that the file changed while it was read.
pub(crate) fn has_changed(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|inner| inner.is::<Changed>())
}

/// Hashes the first `len` bytes of a file.
///
/// # Errors
/// As [`hash`]; [`UnexpectedEof`](io::ErrorKind::UnexpectedEof) when it has fewer.
pub(crate) fn hash_beginning(file: &SourceFile, len: u64, stopped: &AtomicBool) -> io::Result<[u8; 32]> {
    hash_beginning_while(file, len, || !stopped.load(Ordering::Relaxed))
}

/// Hashes the first `len` bytes of a file, for as long as `go_on` says so.
///
/// # Errors
/// As [`hash_beginning`].
pub(crate) fn hash_beginning_while(
    file: &SourceFile,
    len: u64,
    go_on: impl Fn() -> bool,
) -> io::Result<[u8; 32]> {
    let (hash, count) = hash_pieces(file, len, &mut |_| go_on())?;
    if count == len { Ok(hash) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
}

/// Hashes a file from its start to its end.
///
/// # Errors
/// The system's error; [`Interrupted`](io::ErrorKind::Interrupted) once the run is `stopped`: a
/// large file takes minutes.
pub(crate) fn hash(file: &SourceFile, stopped: &AtomicBool) -> io::Result<[u8; 32]> {
    // A device may have no end, as /dev/zero has none.
    let end = if file.is_device() { file.len() } else { u64::MAX };
    hash_up_to(file, end, stopped).map(|(hash, _)| hash)
}

/// Hashes a file from its start to its end. `go_on` hears of each piece that was read, and says
/// whether another one is.
///
/// # Errors
/// As [`hash`].
pub(crate) fn hash_while(file: &SourceFile, mut go_on: impl FnMut(u64) -> bool) -> io::Result<[u8; 32]> {
    hash_pieces(file, u64::MAX, &mut go_on).map(|(hash, _)| hash)
}

/// Hashes at most `len` bytes from the start of a file, and counts them.
fn hash_up_to(file: &SourceFile, len: u64, stopped: &AtomicBool) -> io::Result<([u8; 32], u64)> {
    hash_pieces(file, len, &mut |_| !stopped.load(Ordering::Relaxed))
}

fn hash_pieces(
    file: &SourceFile,
    len: u64,
    go_on: &mut dyn FnMut(u64) -> bool,
) -> io::Result<([u8; 32], u64)> {
    let mut hasher = ContentHasher::new();
    let piece = if file.passes_memory_by() {
        // Nobody reads ahead for whoever asks the disk.
        let whole = usize::try_from(file.len()).unwrap_or(usize::MAX);
        whole.saturating_add(1).min(DISK_READ_BYTES).next_multiple_of(DISK_UNIT)
    } else {
        READ_BYTES
    };
    let mut buffer = vec![0; piece + DISK_UNIT];
    let start = buffer.as_ptr().align_offset(DISK_UNIT).min(DISK_UNIT);
    let buffer = &mut buffer[start..start + piece];

    let (mut offset, mut last) = (0, 0);
    while offset < len {
        if !go_on(last) {
            return Err(io::ErrorKind::Interrupted.into());
        }
        let want = usize::try_from(len - offset).unwrap_or(usize::MAX).min(buffer.len());
        match file.read_at(offset, &mut buffer[..want])? {
            0 => break,
            n => {
                hasher.update(&buffer[..n]);
                last = n as u64;
                offset += last;
            }
        }
    }
    Ok((hasher.finish(), offset))
}

/// Returns the value of a batch of small files: the keyed hash of its raw content.
pub(crate) fn batch_value(key: &Key, raw: &[u8]) -> [u8; 32] {
    *dsync_delta::file_root(key, raw).as_bytes()
}

/// A file as the delta core reads it: with an error once the run is stopped, as a large file takes
/// minutes.
pub(crate) struct Positional<'a> {
    file: &'a SourceFile,
    /// Offset that the core sees as 0.
    from: u64,
    stopped: &'a AtomicBool,
}

impl<'a> Positional<'a> {
    pub(crate) fn whole(file: &'a SourceFile, stopped: &'a AtomicBool) -> Self {
        Self { file, from: 0, stopped }
    }

    /// Returns the content behind the first `from` bytes.
    pub(crate) fn tail(file: &'a SourceFile, from: u64, stopped: &'a AtomicBool) -> Self {
        Self { file, from, stopped }
    }
}

impl ReadAt for Positional<'_> {
    type Error = io::Error;

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        if self.stopped.load(Ordering::Relaxed) {
            return Err(io::ErrorKind::Interrupted.into());
        }
        self.file.read_at(self.from + offset, buffer)
    }
}

/// Returns the state of a file in a form that another run recognizes and that tells a peer nothing.
/// The filesystem's number is not in it: a reboot may change that.
pub(crate) fn state(stamp: &Stamp) -> FileState {
    let mut hasher = ContentHasher::new();
    hasher.update(b"dsync file state v1").update(&stamp.size.to_le_bytes()).update(&stamp.ino.to_le_bytes());
    for time in [stamp.mtime, stamp.ctime] {
        hasher.update(&time.seconds.to_le_bytes()).update(&time.nanoseconds.to_le_bytes());
    }
    let mut state = [0; 16];
    state.copy_from_slice(&hasher.finish()[..16]);
    FileState(state)
}

/// Bytes of one read: what `pread` and the hash both like.
pub(crate) const READ_BYTES: usize = 256 << 10;

/// The same of a file that is read from the disk.
const DISK_READ_BYTES: usize = 2 << 20;
