//! The bounds of memory in `stream`'s table hold, whatever the length of the data.
#![allow(unsafe_code, clippy::unwrap_used)]

use std::{
    alloc::{GlobalAlloc, Layout, System},
    io::{Cursor, Read, sink},
    sync::atomic::{AtomicUsize, Ordering},
};

use dsync_delta::{
    BlockLen,
    stream::{self, ApplyOptions, SignatureOptions},
};

struct Counting;

static LIVE: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

#[global_allocator]
static ALLOCATOR: Counting = Counting;

// SAFETY: every call is passed on unchanged to the system's allocator; counting has no effect on it.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        grow(layout.size());
        // SAFETY: the caller keeps `alloc`'s contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the pointer came from `alloc` above, that is from the system.
        unsafe { System.dealloc(pointer, layout) }
    }
}

fn grow(size: usize) {
    let live = LIVE.fetch_add(size, Ordering::Relaxed) + size;
    PEAK.fetch_max(live, Ordering::Relaxed);
}

/// Runs `work`; returns its result and the most bytes of heap that it added.
fn peak_of<T>(work: impl FnOnce() -> T) -> (T, usize) {
    let before = LIVE.load(Ordering::Relaxed);
    PEAK.store(before, Ordering::Relaxed);
    let result = work();
    (result, PEAK.load(Ordering::Relaxed) - before)
}

/// A stream of random-looking bytes that is never in memory.
#[derive(Clone)]
struct Noise {
    state: u64,
    left: usize,
}

impl Noise {
    fn new(seed: u64, left: usize) -> Self {
        Self { state: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1, left }
    }
}

impl Read for Noise {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        // Whole words only, so that the stream does not depend on the length of the reads.
        let len = buffer.len().min(self.left) / 8 * 8;
        for word in buffer[..len].chunks_exact_mut(8) {
            self.state ^= self.state << 13;
            self.state ^= self.state >> 7;
            self.state ^= self.state << 17;
            word.copy_from_slice(&self.state.to_le_bytes());
        }
        self.left -= len;
        Ok(len)
    }
}

const MIB: usize = 1 << 20;

// One test, as the allocator counts for the whole process.
#[test]
fn memory_depends_on_the_signature_and_the_block_length_only() {
    for (block_len, len) in
        [(1 << 10, 8 * MIB), (1 << 10, 32 * MIB), (8 << 10, 64 * MIB), (4 * MIB, 64 * MIB)]
    {
        let options =
            SignatureOptions::new().block_len(BlockLen::new(block_len.try_into().unwrap()).unwrap());
        let basis = Noise::new(1, len);
        let (counts, peak) = peak_of(|| stream::signature(basis.clone(), sink(), &options).unwrap());
        assert!(peak <= 6 * MIB / 10 + block_len, "signature, blocks of {block_len}: {peak}");

        let mut signature = Vec::with_capacity(counts.signature_len.try_into().unwrap());
        stream::signature(basis.clone(), &mut signature, &options).unwrap();
        let (before, len_of) = (LIVE.load(Ordering::Relaxed), signature.len());
        let (index, peak) = peak_of(|| stream::read_signature(signature.as_slice(), u64::MAX).unwrap());
        let kept = LIVE.load(Ordering::Relaxed) - before;
        // The fixed part is a read, a frame and the filter of weak sums.
        assert!(peak <= 5 * len_of + MIB, "reading {len_of} bytes: {peak}");
        assert!(kept <= 2 * len_of + 3 * MIB / 10, "{len_of} bytes of signature: {kept}");

        // Some data of the basis, more that is new: the search copies, rolls and gives up.
        let new = || Noise::new(1, len).chain(Noise::new(2, len));
        let (counts, peak) = peak_of(|| stream::delta(&index, new(), sink()).unwrap());
        assert_eq!(counts.matched_bytes, len as u64);
        assert!(peak <= 2 * MIB + 16 * block_len, "delta, blocks of {block_len}: {peak}");
    }

    let (basis, options) = (vec![7_u8; 4 * MIB], SignatureOptions::new());
    let (mut signature, mut delta) = (Vec::new(), Vec::new());
    stream::signature(basis.as_slice(), &mut signature, &options).unwrap();
    let index = stream::read_signature(signature.as_slice(), u64::MAX).unwrap();
    let new = basis.as_slice().chain(std::io::repeat(0).take(64 << 20)).chain(Noise::new(3, 16 * MIB));
    stream::delta(&index, new, &mut delta).unwrap();
    let apply =
        || stream::apply(Cursor::new(&basis), delta.as_slice(), sink(), &ApplyOptions::new()).unwrap();
    let (counts, peak) = peak_of(apply);
    assert_eq!(counts.new_len, 84 << 20);
    assert!(peak <= 12 * MIB / 10, "apply: {peak}");
}
