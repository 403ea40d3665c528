//! Reading a file's content: whole, for the unkeyed hash that `checksum` compares, and by position, for
//! the delta core.

use std::io;

use dsync_delta::{ContentHasher, ReadAt};
use dsync_fs::SourceFile;

/// Hashes a file from its start to its end.
pub(crate) fn hash(file: &SourceFile) -> io::Result<[u8; 32]> {
    let mut hasher = ContentHasher::new();
    let mut buffer = vec![0; READ_BYTES];
    let mut offset = 0;
    loop {
        match file.read_at(offset, &mut buffer)? {
            0 => return Ok(hasher.finish()),
            n => {
                hasher.update(&buffer[..n]);
                offset += n as u64;
            }
        }
    }
}

/// A file as the delta core reads it.
pub(crate) struct Positional<'a>(pub(crate) &'a SourceFile);

impl ReadAt for Positional<'_> {
    type Error = io::Error;

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read_at(offset, buffer)
    }
}

/// Bytes of one read: what `pread` and the hash both like.
pub(crate) const READ_BYTES: usize = 256 << 10;
