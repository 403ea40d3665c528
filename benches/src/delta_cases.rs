//! The four pairs of files that the delta benches share, and a search of all segments.

use std::{convert::Infallible, hint::black_box};

use dsync_delta::{
    BlockLen, IndexedSignature, Key, Layout, ReadAt, RootBuilder, Segments, SumsFormat, Token, TokenSink,
    search_segment, signature_parallel,
};
use rayon::prelude::*;

/// Block length of all cases: what rsync chooses for 1 GiB.
pub const BLOCK_LEN: u32 = 32 << 10;

/// A new file beside its basis.
pub type Case = (&'static str, Vec<u8>);

/// *identical*; *overwritten*: 1 % of the blocks get a random 4 KiB page; *inserted*: about one insertion
/// of 1 to 64 bytes per MiB; *different*: an unrelated file.
pub fn cases(basis: &[u8]) -> [Case; 4] {
    let (mut overwritten, mut inserted) = (basis.to_vec(), Vec::with_capacity(basis.len() + (1 << 20)));
    for (page, block) in overwritten.chunks_mut(BLOCK_LEN as usize).enumerate() {
        if page % 100 == 7 && block.len() >= 24 << 10 {
            block[16 << 10..20 << 10].copy_from_slice(&noise(page as u64, 4 << 10));
        }
    }
    for (piece, bytes) in basis.chunks(1_074_000).enumerate() {
        inserted.extend_from_slice(bytes);
        inserted.extend_from_slice(&noise(piece as u64, 1 + piece * 7 % 64));
    }
    [
        ("identical", basis.to_vec()),
        ("overwritten", overwritten),
        ("inserted", inserted),
        ("different", noise(99, basis.len())),
    ]
}

/// Signature and index of a basis, on the current rayon pool.
pub fn index(basis: &[u8], format: SumsFormat) -> Option<IndexedSignature> {
    let key = Key::derive(&[b"bench"]);
    let layout = Layout::new(basis.len() as u64, BlockLen::new(BLOCK_LEN).ok()?);
    let signature = signature_parallel(&key, layout, format, &basis).ok()?;
    Some(IndexedSignature::new(signature, &key))
}

/// Searches all segments on the current rayon pool, merges the root, and returns the literal bytes.
pub fn search<R>(index: Option<&IndexedSignature>, new: &R, len: usize) -> Option<u64>
where
    R: ReadAt + Sync + ?Sized,
{
    let index = index?;
    let segments = Segments::for_file(len as u64).ok()?;
    let outcomes: Option<Vec<_>> = (0..segments.count())
        .into_par_iter()
        .map(|segment| search_segment(index, new, &segments, segment, &mut Nowhere).ok())
        .collect();
    let mut root = RootBuilder::new(&Key::derive(&[b"bench"]), &segments);
    let mut literal_bytes = 0;
    for (segment, outcome) in (0..).zip(outcomes?) {
        root.set(segment, outcome.value).ok()?;
        literal_bytes += outcome.literal_bytes;
    }
    black_box(root.finish().ok()?);
    Some(literal_bytes)
}

/// A file that has to be read, as from a disk's cache.
pub struct Cached<'f>(pub &'f [u8]);

impl ReadAt for Cached<'_> {
    type Error = Infallible;

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<usize, Infallible> {
        self.0.read_at(offset, buf)
    }
}

struct Nowhere;

impl TokenSink for Nowhere {
    type Error = Infallible;

    fn start(&mut self, _lead: u32) -> Result<(), Infallible> {
        Ok(())
    }

    fn token(&mut self, token: Token<'_>) -> Result<(), Infallible> {
        black_box(token);
        Ok(())
    }
}

/// Random-looking bytes (xorshift), the same for the same seed.
pub fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.wrapping_mul(0x2545_f491_4f6c_dd1d).to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}
