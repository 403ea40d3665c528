//! Random access to a file, and a window that moves over it.
//!
//! Files are read with positional reads into a reused buffer, never mapped. Another process that
//! truncates a mapped file kills the reader, and positional reads of 256 KiB and more are as fast.

use std::convert::Infallible;

use crate::num::{len_u64, saturating_usize};

/// A file that several threads can read at any offset.
///
/// ```
/// use std::{fs::File, io, os::unix::fs::FileExt};
///
/// use dsync_delta::{BlockLen, Key, Layout, ReadAt, SumsFormat, signature_parallel};
///
/// struct Positional(File);
///
/// impl ReadAt for Positional {
///     type Error = io::Error;
///
///     fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
///         self.0.read_at(buf, offset)
///     }
/// }
///
/// # let scratch = tempfile::NamedTempFile::new()?;
/// # std::fs::write(scratch.path(), [1; 5000])?;
/// # let path = scratch.path();
/// let basis = Positional(File::open(path)?);
/// let layout = Layout::new(basis.0.metadata()?.len(), BlockLen::MIN);
/// let signature =
///     signature_parallel(&Key::from_bytes([7; 32]), layout, SumsFormat::default(), &basis)?;
/// assert_eq!(signature.encode().len(), 5 * 12);
/// // What is in memory is read by itself, and not copied.
/// assert_eq!(b"basis".as_slice().as_slice(), Some(b"basis".as_slice()));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait ReadAt {
    /// The error of a failed read.
    type Error;

    /// Reads bytes from `offset` on into `buf` and returns their number. Returns 0 only at or after
    /// the end, or for an empty `buf`.
    ///
    /// # Errors
    /// Whatever the reader returns.
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<usize, Self::Error>;

    /// Returns the whole file if it is in memory and stays there. It is then used in place, not
    /// copied.
    ///
    /// Not for mapped files: they may shrink under the reader.
    fn as_slice(&self) -> Option<&[u8]> {
        None
    }
}

impl ReadAt for [u8] {
    type Error = Infallible;

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<usize, Infallible> {
        let rest = self.get(saturating_usize(offset)..).unwrap_or_default();
        let len = rest.len().min(buf.len());
        buf[..len].copy_from_slice(&rest[..len]);
        Ok(len)
    }

    fn as_slice(&self) -> Option<&[u8]> {
        Some(self)
    }
}

impl ReadAt for Vec<u8> {
    type Error = Infallible;

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<usize, Infallible> {
        self[..].read_at(offset, buf)
    }

    fn as_slice(&self) -> Option<&[u8]> {
        Some(self)
    }
}

impl<T: ReadAt + ?Sized> ReadAt for &T {
    type Error = T::Error;

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<usize, Self::Error> {
        (**self).read_at(offset, buf)
    }

    fn as_slice(&self) -> Option<&[u8]> {
        (**self).as_slice()
    }
}

/// Reads until `buf` is full or the file ends; returns the number of bytes read.
pub(crate) fn read_full<R: ReadAt + ?Sized>(
    reader: &R,
    offset: u64,
    buf: &mut [u8],
) -> Result<usize, R::Error> {
    let mut filled = 0;
    while filled < buf.len() {
        let at = offset.saturating_add(len_u64(filled));
        let got = reader.read_at(at, &mut buf[filled..])?;
        if got == 0 {
            break;
        }
        filled += got.min(buf.len() - filled);
    }
    Ok(filled)
}

/// A part of a file in memory that moves forward.
#[derive(Debug)]
pub(crate) struct Window<'r, R: ?Sized> {
    reader: &'r R,
    file_len: u64,
    /// Offset in the file of the buffer's first byte.
    base: u64,
    /// Its first `held` bytes are the window. The rest is spare room that need not be cleared
    /// again.
    buffer: Vec<u8>,
    held: usize,
    /// Number of bytes per read.
    stride: usize,
    /// Bytes that need no reading, and their offset in the file: the whole file, or all that the
    /// window will ever be moved over.
    held_by_caller: Option<(u64, &'r [u8])>,
}

/// The reason why a window could not move.
#[derive(Debug)]
pub(crate) enum WindowError<E> {
    Read(E),
    /// The file ends before its known length.
    Short {
        actual: u64,
    },
}

impl<'r, R: ReadAt + ?Sized> Window<'r, R> {
    /// Makes a window at `start` that holds nothing yet.
    pub(crate) fn new(reader: &'r R, file_len: u64, start: u64, stride: usize) -> Self {
        let held_by_caller = reader.as_slice().map(|file| (0, file));
        Self { reader, file_len, base: start, buffer: Vec::new(), held: 0, stride, held_by_caller }
    }

    /// Makes a window over bytes in memory that lie at `offset` of a file. `reader` is not used.
    pub(crate) fn over(reader: &'r R, offset: u64, bytes: &'r [u8]) -> Self {
        let file_len = offset.saturating_add(len_u64(bytes.len()));
        let held_by_caller = Some((offset, bytes));
        Self { reader, file_len, base: offset, buffer: Vec::new(), held: 0, stride: 0, held_by_caller }
    }

    /// Moves an empty window.
    pub(crate) fn move_to(&mut self, start: u64) {
        if self.held == 0 {
            self.base = start;
        }
    }

    /// Loads the window so that it holds everything from `low` to `high` (or the file's end), and
    /// drops the bytes before `low`. `low` never decreases.
    pub(crate) fn fill(&mut self, low: u64, high: u64) -> Result<(), WindowError<R::Error>> {
        let high = high.min(self.file_len);
        if let Some((offset, bytes)) = self.held_by_caller {
            let actual = offset + len_u64(bytes.len());
            return if high <= actual { Ok(()) } else { Err(WindowError::Short { actual }) };
        }
        let end = self.base + len_u64(self.held);
        if high <= end {
            return Ok(());
        }

        let forget = saturating_usize(low.saturating_sub(self.base)).min(self.held);
        self.buffer.copy_within(forget..self.held, 0);
        self.base += len_u64(forget);
        self.held -= forget;
        let want = saturating_usize(high - end).max(self.stride);
        let want = want.min(saturating_usize(self.file_len - end));
        let full = self.held + want;
        if self.buffer.len() < full {
            self.buffer.resize(full, 0);
        }

        let got = read_full(self.reader, end, &mut self.buffer[self.held..full]);
        let got = got.map_err(WindowError::Read)?;
        self.held += got;
        if got < want {
            return Err(WindowError::Short { actual: end + len_u64(got) });
        }
        Ok(())
    }

    /// Returns the bytes from `start` to `end`, as far as the window holds them.
    pub(crate) fn bytes(&self, start: u64, end: u64) -> &[u8] {
        let (base, buffer) = self.held_by_caller.unwrap_or((self.base, &self.buffer[..self.held]));
        let (start, end) = (start.min(self.file_len), end.min(self.file_len));
        let from = saturating_usize(start.saturating_sub(base)).min(buffer.len());
        let to = saturating_usize(end.saturating_sub(base)).min(buffer.len());
        buffer.get(from..to).unwrap_or_default()
    }
}
