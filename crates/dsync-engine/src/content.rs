//! Content comparison for `checksum`: the unkeyed BLAKE3 hash of a file, read in one pass.

use std::io;

use dsync_delta::ContentHasher;
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

/// Bytes of one read: what `pread` and the hash both like.
pub(crate) const READ_BYTES: usize = 256 << 10;
