//! The two standard streams that lead to the peer, read and written without blocking.
//!
//! They may be pipes, sockets or terminals: anything that epoll accepts. sshd provides socket pairs
//! or pipes, depending on how it was built.

use std::{
    io::{self, IoSlice},
    os::fd::{AsFd, OwnedFd},
};

use bytes::{Buf, Bytes};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use tokio::io::{Interest, unix::AsyncFd};

/// Takes over both streams. Must be called on the runtime's thread.
pub(crate) fn open(input: OwnedFd, output: OwnedFd) -> io::Result<(PipeReader, PipeWriter)> {
    let output_was = fcntl_getfl(&output)?;
    let mut reader = PipeReader::new(input)?;
    // Two descriptors of one socket, as sshd provides them, share the mode. Restoring it for the
    // stream dropped first would make the other one block.
    let one_file = !output_was.contains(OFlags::NONBLOCK) && fcntl_getfl(&output)?.contains(OFlags::NONBLOCK);
    let mut end = PipeEnd::new(output, Interest::WRITABLE)?;
    if one_file {
        reader.end.was = None;
        end.was = None;
    }
    Ok((reader, PipeWriter { end }))
}

/// A descriptor in non-blocking mode. Dropping it restores the mode, which belongs to the open file
/// and may be shared by others (a shell, say).
struct PipeEnd {
    fd: AsyncFd<OwnedFd>,
    /// The mode to restore.
    was: Option<OFlags>,
}

impl PipeEnd {
    #[allow(
        deprecated,
        reason = "deprecated for types that may change or close their descriptor; an OwnedFd does neither"
    )]
    fn new(fd: OwnedFd, interest: Interest) -> io::Result<Self> {
        let was = fcntl_getfl(&fd)?;
        fcntl_setfl(&fd, was | OFlags::NONBLOCK)?;
        Ok(Self { fd: AsyncFd::with_interest(fd, interest)?, was: Some(was) })
    }
}

impl Drop for PipeEnd {
    fn drop(&mut self) {
        if let Some(was) = self.was {
            // Fails only for a bad descriptor, which this cannot be.
            let _ = fcntl_setfl(self.fd.as_fd(), was);
        }
    }
}

/// The stream from the peer, with the bytes that were read but not yet used.
pub(crate) struct PipeReader {
    end: PipeEnd,
    buffer: Box<[u8]>,
    start: usize,
    filled: usize,
}

impl PipeReader {
    /// Takes over the descriptor. Must be called on the runtime's thread.
    pub(crate) fn new(fd: OwnedFd) -> io::Result<Self> {
        let buffer = vec![0; READ_BUFFER].into_boxed_slice();
        Ok(Self { end: PipeEnd::new(fd, Interest::READABLE)?, buffer, start: 0, filled: 0 })
    }

    /// Returns the bytes that were read but not yet used.
    pub(crate) fn unread(&self) -> &[u8] {
        &self.buffer[self.start..self.filled]
    }

    /// Marks the first `count` bytes of [`unread`](Self::unread) as used.
    pub(crate) fn consume(&mut self, count: usize) {
        self.start = self.filled.min(self.start.saturating_add(count));
    }

    /// Waits for more bytes; returns their number, 0 at the end of the stream. Cancelling it loses
    /// nothing.
    ///
    /// # Errors
    /// The system's error, or `OutOfMemory` if the buffer is full (callers use up to 64 KiB of it
    /// and then consume).
    pub(crate) async fn fill(&mut self) -> io::Result<usize> {
        if self.start > 0 {
            self.buffer.copy_within(self.start..self.filled, 0);
            self.filled -= self.start;
            self.start = 0;
        }
        let room = &mut self.buffer[self.filled..];
        if room.is_empty() {
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        let count = self
            .end
            .fd
            .async_io_mut(Interest::READABLE, |fd| Ok(rustix::io::read(&*fd, &mut *room)?))
            .await?;
        self.filled += count;
        Ok(count)
    }
}

/// The stream to the peer. Dropping it shows the peer the end.
pub(crate) struct PipeWriter {
    end: PipeEnd,
}

impl PipeWriter {
    /// Writes all of `bytes`.
    pub(crate) async fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut parts = [Bytes::copy_from_slice(bytes)];
        self.write_all_parts(&mut parts).await
    }

    /// Writes all of `parts` in order. Cancelling it may leave a part written incompletely.
    pub(crate) async fn write_all_parts(&mut self, mut parts: &mut [Bytes]) -> io::Result<()> {
        while let Some(first) = parts.iter().position(|part| !part.is_empty()) {
            parts = &mut parts[first..];
            let mut slices = [IoSlice::new(&[]); MAX_SLICES];
            let count = parts.len().min(MAX_SLICES);
            for (slice, part) in slices.iter_mut().zip(parts.iter()) {
                *slice = IoSlice::new(part);
            }
            let slices = &slices[..count];
            let written =
                self.end.fd.async_io(Interest::WRITABLE, |fd| Ok(rustix::io::writev(fd, slices)?)).await?;
            if written == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            advance(parts, written);
        }
        Ok(())
    }
}

/// Drops the first `count` bytes of `parts`.
fn advance(parts: &mut [Bytes], mut count: usize) {
    for part in parts {
        let here = part.len().min(count);
        part.advance(here);
        count -= here;
        if count == 0 {
            break;
        }
    }
}

/// Read buffer in bytes: several of the mux's largest frames in one system call.
const READ_BUFFER: usize = 256 << 10;
/// Slices per `writev`: eight frames of a header and a payload.
const MAX_SLICES: usize = 16;
