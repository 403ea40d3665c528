//! The four pairs of files that the delta benches share, and their deltas.

use std::{convert::Infallible, hint::black_box};

use dsync_delta::{
    BlockLen, IndexedSignature, Key, Layout, ReadAt, RefineRequest, Rolling, RootBuilder, SegmentPlan,
    Segments, Signature, SumsFormat, Token, TokenSink, plan_segment, search_segment, signature_parallel,
};
use rayon::prelude::*;

/// Block length of all cases: rsync's choice for 1 GiB.
pub const BLOCK_LEN: u32 = 32 << 10;

/// A new file with the name of its case.
pub type Case = (&'static str, Vec<u8>);

/// The names of the cases. *identical*; *overwritten*: 1 % of the blocks get a random 4 KiB page;
/// *inserted*: about one insertion of 1 to 64 bytes per MiB; *different*: an unrelated file.
pub const NAMES: [&str; 4] = ["identical", "overwritten", "inserted", "different"];

/// Returns the new file of a case.
pub fn case(name: &'static str, basis: &[u8]) -> Case {
    let new = match name {
        "overwritten" => {
            let mut new = basis.to_vec();
            for (page, block) in new.chunks_mut(BLOCK_LEN as usize).enumerate() {
                if page % 100 == 7 && block.len() >= 24 << 10 {
                    block[16 << 10..20 << 10].copy_from_slice(&noise(page as u64, 4 << 10));
                }
            }
            new
        }
        "inserted" => {
            let mut new = Vec::with_capacity(basis.len() + (1 << 20));
            for (piece, bytes) in basis.chunks(1_074_000).enumerate() {
                new.extend_from_slice(bytes);
                new.extend_from_slice(&noise(piece as u64, 1 + piece * 7 % 64));
            }
            new
        }
        "different" => noise(99, basis.len()),
        _ => basis.to_vec(),
    };
    (name, new)
}

/// Signs a basis on the current rayon pool.
pub fn sign(basis: &[u8], format: SumsFormat) -> Option<Signature> {
    let layout = Layout::new(basis.len() as u64, BlockLen::new(BLOCK_LEN).ok()?);
    signature_parallel(&key(), layout, format, &basis).ok()
}

/// Signs and indexes a basis on the current rayon pool.
pub fn index(basis: &[u8], format: SumsFormat) -> Option<IndexedSignature> {
    Some(IndexedSignature::new(sign(basis, format)?, &key()))
}

/// The cost of a delta.
pub struct Delta {
    /// CPU seconds of all sums.
    pub destination: f64,
    /// CPU seconds of index, searches and root.
    pub source: f64,
    /// Length of the sums in bytes.
    pub sum_bytes: u64,
    /// Bytes of the new file that were not found.
    pub literal_bytes: u64,
}

/// Makes the sums and searches that a new file needs before anything is sent, with weak sums on
/// demand, on the current rayon pool. The literal bytes are those before short blocks' sums.
pub fn sum_and_search(basis: &[u8], new: &[u8], cpu_seconds: impl Fn() -> f64) -> Option<Delta> {
    let (mut destination, mut source, mut sum_bytes) = (0.0, 0.0, 0);
    let mut at = cpu_seconds();
    let mut lap = |total: &mut f64| {
        let now = cpu_seconds();
        *total += now - std::mem::replace(&mut at, now);
    };
    let (signature, weak) = sign(basis, SumsFormat::StrongAndWeak)?.split();
    let layout = signature.layout();
    sum_bytes += signature.encode().len() as u64;
    lap(&mut destination);
    let index = IndexedSignature::new(signature, &key());
    let segments = Segments::for_file(new.len() as u64).ok()?;
    let rolling = Rolling::new();
    let mut plans = (0..segments.count())
        .into_par_iter()
        .map(|segment| plan_segment(&index, new, &segments, segment, &rolling).ok())
        .collect::<Option<Vec<SegmentPlan>>>()?;
    lap(&mut source);
    if RefineRequest::weak_sums(layout, &plans).is_some() {
        sum_bytes += weak.encode().len() as u64;
        index.add_weak(weak).ok()?;
        let again = |plan: SegmentPlan| {
            if plan.wants_weak_sums() { plan.search_again(&index, new, &rolling).ok() } else { Some(plan) }
        };
        // One segment at a time, as the program's lanes take them: the first ones are rolled over,
        // later ones sampled.
        plans = plans.into_par_iter().with_max_len(1).map(again).collect::<Option<Vec<_>>>()?;
    }
    let mut root = RootBuilder::new(&key(), &segments);
    let mut literal_bytes = 0;
    for (segment, plan) in (0..).zip(&plans) {
        root.set(segment, plan.outcome().value).ok()?;
        literal_bytes += plan.outcome().literal_bytes;
    }
    black_box(root.finish().ok()?);
    lap(&mut source);
    Some(Delta { destination, source, sum_bytes, literal_bytes })
}

/// Searches a new file in one round, on the current rayon pool; returns the literal bytes.
pub fn search<R>(index: Option<&IndexedSignature>, new: &R, len: usize) -> Option<u64>
where
    R: ReadAt + Sync + ?Sized,
{
    let index = index?;
    let segments = Segments::for_file(len as u64).ok()?;
    let rolling = Rolling::new();
    let outcomes: Option<Vec<_>> = (0..segments.count())
        .into_par_iter()
        .map(|segment| search_segment(index, new, &segments, segment, &rolling, &mut Nowhere).ok())
        .collect();
    let mut root = RootBuilder::new(&key(), &segments);
    let mut literal_bytes = 0;
    for (segment, outcome) in (0..).zip(outcomes?) {
        root.set(segment, outcome.value).ok()?;
        literal_bytes += outcome.literal_bytes;
    }
    black_box(root.finish().ok()?);
    Some(literal_bytes)
}

fn key() -> Key {
    Key::derive(&[b"bench"])
}

/// A file that must be read, as from a disk's cache.
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

/// Returns random-looking bytes (xorshift), the same for the same seed.
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
