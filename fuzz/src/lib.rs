//! Support for fuzz targets: an allocator that counts, so that "bounded memory" is an oracle.
//!
//! A target that uses this crate gets the allocator; the others keep the system's.

pub mod session;

use std::{
    alloc::{GlobalAlloc, Layout, System},
    sync::atomic::{AtomicUsize, Ordering},
};

use dsync_wire::unprintable::is_unprintable;

/// Runs `work` and fails if the heap grows meanwhile by more than `fixed` bytes plus four times
/// `input_len` (invariant S7). The result of `work` counts as well.
pub fn within_memory<T>(fixed: usize, input_len: usize, work: impl FnOnce() -> T) -> T {
    let before = LIVE.load(Ordering::Relaxed);
    PEAK.store(before, Ordering::Relaxed);
    let result = work();
    let peak = PEAK.load(Ordering::Relaxed).saturating_sub(before);
    let allowed = fixed + 4 * input_len;
    assert!(peak <= allowed, "{peak} bytes of heap for {input_len} bytes of input, allowed {allowed}");
    result
}

/// Returns whether an error's text can go to a terminal as it is.
pub fn is_shown_raw(text: &str) -> bool {
    !text.chars().any(is_unprintable)
}

struct Counting;

static LIVE: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

#[global_allocator]
static ALLOCATOR: Counting = Counting;

// SAFETY: every call is passed on unchanged to the system's allocator; counting has no effect on
// it.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        grow(layout.size());
        // SAFETY: the caller keeps `alloc`'s contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        grow(layout.size());
        // SAFETY: the caller keeps `alloc_zeroed`'s contract.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the pointer came from `alloc` above, that is from the system.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        grow(new_size);
        LIVE.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the pointer came from `alloc` above, that is from the system.
        unsafe { System.realloc(pointer, layout, new_size) }
    }
}

fn grow(size: usize) {
    let live = LIVE.fetch_add(size, Ordering::Relaxed) + size;
    PEAK.fetch_max(live, Ordering::Relaxed);
}
