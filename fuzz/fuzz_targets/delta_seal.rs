//! Right checksums for a fuzzer's stream: without them nothing behind a header would be reached.

use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Sets the checksum of the header, of each frame as far as its length says, and of the end.
pub fn seal(stream: &mut [u8], header_len: usize, end_len: usize) {
    let (mut at, mut len, mut chain) = (0, header_len, 0);
    while let Some(piece) = stream.get_mut(at..at + len) {
        let (sealed, checksum) = piece.split_at_mut(len - 8);
        chain = xxh3_64_with_seed(sealed, chain);
        checksum.copy_from_slice(&chain.to_le_bytes());
        at += len;
        let Some(&payload) = stream.get(at..).and_then(|rest| rest.first_chunk::<4>()) else { return };
        let payload = u32::from_le_bytes(payload) as usize;
        len = 4 + 8 + if payload == 0 { end_len } else { payload };
    }
}
