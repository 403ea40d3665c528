//! The delta core for C: `include/dsync_delta.h`, a shared and a static library.
//!
//! A *job* makes a signature, loads one, makes a delta or applies one. As with librsync's
//! `rs_job_iter`, the caller owns an input and an output buffer and calls [`dsync_delta_iter`] until
//! it returns something else than "blocked": no job reads or writes a file, and none blocks. The
//! formats and their guarantees are those of [`dsync_delta::stream`].
//!
//! Rules for all functions:
//!
//! - **Pointers** may be null only where a function says so. A null or misaligned pointer where none
//!   is allowed is answered with null or `ERROR_ARGUMENT`, as are overlapping buffers. What cannot be
//!   checked is the caller's: a pointer to a job or signature must be one that this library returned
//!   and that was not freed since.
//! - **Threads**: one job is used by one thread at a time. A signature may be shared by jobs on
//!   different threads. The library starts no threads, keeps no global state and takes no locks.
//! - **Panics** never cross the boundary: a fault of this library ends the job with `ERROR_INTERNAL`, in a
//!   build whose panics unwind. In one with `panic = "abort"` it ends the program.
//! - **Memory** that the system refuses aborts the program.
//! - **After an error** a job answers every call with the same error. Free it. `ERROR_ARGUMENT` alone is
//!   about the call, not the job, which is as it was before.
//!
//! The output buffer is only written, never read, so it need not be initialised.
#![allow(unsafe_code)]

mod job;

use std::{
    ffi::{c_char, c_int, c_void},
    io,
    panic::{AssertUnwindSafe, catch_unwind},
    ptr, slice,
    sync::Arc,
};

use dsync_delta::{
    BlockLen, IndexedSignature, Key,
    stream::{ApplyOptions, SignatureOptions, SignatureReader},
};

pub use crate::job::Job;

/// A signature in memory, ready for any number of deltas.
#[derive(Debug)]
pub struct LoadedSignature(Arc<IndexedSignature>);

/// The result of a call. Values from 100 on are errors, and final but for `ERROR_ARGUMENT`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub enum Outcome {
    /// The job is done, and all of its output was written.
    Done = 0,
    /// All input was taken, or the output buffer is full: call again with more of either.
    Blocked = 1,
    /// A pointer is null, misaligned or overlaps another, or a length is out of range. The job is as it
    /// was before the call.
    ErrorArgument = 100,
    /// The callback failed to read the basis.
    ErrorRead = 101,
    /// The input is not what the job reads: neither a signature nor a delta, or the other one.
    ErrorForeign = 102,
    /// The input has a version or a parameter that this library does not read.
    ErrorVersion = 103,
    /// The input ends too early.
    ErrorTruncated = 104,
    /// The input is damaged or malformed.
    ErrorDamaged = 105,
    /// The input exceeds a limit of the caller's.
    ErrorLimit = 106,
    /// The delta belongs to another basis: its length or the root of the output is wrong.
    ErrorBasis = 107,
    /// A fault of this library.
    ErrorInternal = 108,
}

/// The caller's buffers. Each call advances the pointers and reduces the lengths by what it used.
#[derive(Debug)]
#[repr(C)]
pub struct Buffers {
    /// Next byte of input. May be null if `avail_in` is 0.
    pub next_in: *const u8,
    /// Number of bytes at `next_in`, all initialised.
    pub avail_in: usize,
    /// Not 0 if no input follows the bytes at `next_in`.
    pub eof_in: c_int,
    /// Next byte of output. May be null if `avail_out` is 0. Need not be initialised.
    pub next_out: *mut u8,
    /// Room at `next_out` in bytes.
    pub avail_out: usize,
}

/// Reads up to `*len` bytes of the basis from `offset` on into `buffer` and sets `*len` to the number
/// of bytes read: 0 only at the end. Returns 0, or another number for an error. Must not throw, and
/// must not call a function of this library on the job that called it.
pub type ReadBasis =
    Option<unsafe extern "C" fn(opaque: *mut c_void, offset: u64, buffer: *mut u8, len: *mut usize) -> c_int>;

/// Starts a job that reads a basis and writes its signature.
///
/// `block_len` is a power of two from 1024 to 4194304, or 0 for 8192. `key` points to 32 bytes, best
/// random ones, or is null for a fixed key; see "Odds of a false match" in the crate's documentation.
/// Returns null if `block_len` is another number. Free the job with `dsync_delta_job_free`.
///
/// # Safety
/// `key` is null or points to 32 initialised bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dsync_delta_signature_begin(block_len: u32, key: *const u8) -> *mut Job {
    let mut options = SignatureOptions::new();
    if block_len > 0 {
        let Ok(block_len) = BlockLen::new(block_len) else { return ptr::null_mut() };
        options = options.block_len(block_len);
    }
    if !key.is_null() {
        // SAFETY: the caller's contract: 32 initialised bytes. Bytes have no alignment.
        options = options.key(Key::from_bytes(unsafe { key.cast::<[u8; 32]>().read() }));
    }
    boxed(|| Job::signature(&options))
}

/// Starts a job that reads a signature and writes nothing. Once it is done,
/// `dsync_delta_take_signature` returns the signature.
///
/// `max_blocks` bounds the memory, at most 60 bytes for each; 0 stands for 2^32.
/// Returns null only if there is a fault in this library.
#[unsafe(no_mangle)]
pub extern "C" fn dsync_delta_load_begin(max_blocks: u64) -> *mut Job {
    let max_blocks = if max_blocks == 0 { SignatureReader::MAX_BLOCKS } else { max_blocks };
    boxed(|| Job::load(max_blocks))
}

/// Returns the signature of a loading job that is done, once. Returns null from any other job.
/// Free the signature with `dsync_delta_signature_free`.
///
/// # Safety
/// `job` is null or a job that was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dsync_delta_take_signature(job: *mut Job) -> *mut LoadedSignature {
    if !is_usable(job) {
        return ptr::null_mut();
    }
    // SAFETY: not null and aligned; a job of this library that is used by one thread, by contract.
    let job = unsafe { &mut *job };
    match job.take_signature() {
        Some(index) => boxed(|| LoadedSignature(index)),
        None => ptr::null_mut(),
    }
}

/// Starts a job that reads a new file and writes its delta against the basis of a signature.
///
/// The signature may be freed at once: the job keeps what it needs. Returns null if it is null.
///
/// # Safety
/// `signature` is null or a signature that was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dsync_delta_delta_begin(signature: *const LoadedSignature) -> *mut Job {
    if !is_usable(signature) {
        return ptr::null_mut();
    }
    // SAFETY: not null and aligned; a signature of this library, which never changes, by contract.
    let index = unsafe { &(*signature).0 };
    boxed(|| Job::delta(Arc::clone(index)))
}

/// Starts a job that reads a delta, applies it to the basis that `read` returns, and writes the new
/// file. Only `DONE` means that the output is the new file: do not use it before.
///
/// `opaque` is passed to `read` and may be null. `max_len` bounds the new file in bytes; 0 stands for
/// no limit. Returns null if `read` is null.
///
/// # Safety
/// `read` keeps the contract of its type, and `opaque` is valid for it, as long as the job is used.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dsync_delta_apply_begin(
    read: ReadBasis,
    opaque: *mut c_void,
    max_len: u64,
) -> *mut Job {
    let Some(read) = read else { return ptr::null_mut() };
    let max_len = if max_len == 0 { u64::MAX } else { max_len };
    let read_basis = move |offset: u64, bytes: &mut [u8]| {
        let mut len = bytes.len();
        // SAFETY: the caller's contract: `read` writes at most `len` bytes to a buffer of that length
        // and sets `len`; both live until it returns.
        let status = unsafe { read(opaque, offset, bytes.as_mut_ptr(), &raw mut len) };
        if status != 0 || len > bytes.len() {
            return Err(io::Error::other("the callback failed"));
        }
        Ok(len)
    };
    boxed(|| Job::apply(&ApplyOptions::new().max_len(max_len), Box::new(read_basis)))
}

/// Works until all input is taken, the output buffer is full, or the job is done.
///
/// Returns `BLOCKED` as long as the job needs more input or room, `DONE` when it is done (also when
/// called again), or an error.
///
/// # Safety
/// `job` is null or a job that was not freed. `buffers` is null or points to initialised buffers:
/// `avail_in` bytes at `next_in` can be read, and `avail_out` bytes at `next_out` written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dsync_delta_iter(job: *mut Job, buffers: *mut Buffers) -> Outcome {
    if !is_usable(job) || !is_usable(buffers) {
        return Outcome::ErrorArgument;
    }
    // SAFETY: neither is null or misaligned. By contract both are valid, and no other thread uses the
    // job. The library never hands out a pointer into either.
    let (job, buffers) = unsafe { (&mut *job, &mut *buffers) };
    if !buffers.are_valid() {
        return Outcome::ErrorArgument;
    }
    catch_unwind(AssertUnwindSafe(|| iterate(job, buffers))).unwrap_or_else(|_| {
        job.fail(Outcome::ErrorInternal);
        Outcome::ErrorInternal
    })
}

/// Frees a job in any state. Does nothing with null.
///
/// # Safety
/// `job` is null or a job that was not freed. It must not be used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dsync_delta_job_free(job: *mut Job) {
    if is_usable(job) {
        // SAFETY: the pointer came from `boxed`, and by contract it is freed once.
        free(unsafe { Box::from_raw(job) });
    }
}

/// Frees a signature. Jobs that were started with it go on. Does nothing with null.
///
/// # Safety
/// `signature` is null or a signature that was not freed. It must not be used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dsync_delta_signature_free(signature: *mut LoadedSignature) {
    if is_usable(signature) {
        // SAFETY: the pointer came from `boxed`, and by contract it is freed once.
        free(unsafe { Box::from_raw(signature) });
    }
}

/// Returns a sentence about a result, in English. It is a constant and must not be freed.
#[unsafe(no_mangle)]
pub extern "C" fn dsync_delta_message(result: c_int) -> *const c_char {
    let text = MESSAGES.iter().find(|&&(known, _)| known as c_int == result);
    text.map_or(c"unknown result", |&(_, text)| text).as_ptr()
}

/// Returns the version of the formats that this library writes and reads.
#[unsafe(no_mangle)]
pub extern "C" fn dsync_delta_format_version() -> u32 {
    1
}

impl Buffers {
    /// Returns whether the job may read and write through the pointers, as far as that can be checked.
    fn are_valid(&self) -> bool {
        let limit = usize::MAX >> 1;
        let input = (self.next_in.addr(), self.avail_in);
        let output = (self.next_out.addr(), self.avail_out);
        let is_range = |(start, len): (usize, usize)| {
            len == 0 || (start != 0 && len <= limit && start.checked_add(len).is_some())
        };
        let apart = input.1 == 0
            || output.1 == 0
            || input.0.saturating_add(input.1) <= output.0
            || output.0.saturating_add(output.1) <= input.0;
        is_range(input) && is_range(output) && apart
    }

    /// Returns the input.
    fn input(&self) -> &[u8] {
        if self.avail_in == 0 {
            return &[];
        }
        // SAFETY: not null, not longer than half the address space (`are_valid`), and by contract
        // initialised. The output does not overlap it, so nothing writes to it meanwhile.
        unsafe { slice::from_raw_parts(self.next_in, self.avail_in) }
    }

    /// Advances behind input that was taken.
    fn take(&mut self, len: usize) {
        let len = len.min(self.avail_in);
        self.next_in = self.next_in.wrapping_add(len);
        self.avail_in -= len;
    }

    /// Copies as many bytes as there is room for; returns their number.
    fn put(&mut self, bytes: &[u8]) -> usize {
        let len = bytes.len().min(self.avail_out);
        if len > 0 {
            // SAFETY: `next_out` is not null and has room for `avail_out` bytes by contract; the bytes
            // are the library's own and cannot overlap it.
            unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), self.next_out, len) };
        }
        self.next_out = self.next_out.wrapping_add(len);
        self.avail_out -= len;
        len
    }
}

/// Moves output to the caller and input to the job until one of them is used up.
fn iterate(job: &mut Job, buffers: &mut Buffers) -> Outcome {
    loop {
        let put = buffers.put(job.output());
        job.release(put);
        if !job.output().is_empty() {
            return Outcome::Blocked;
        }
        if let Some(end) = job.ended() {
            return end;
        }
        let is_last = buffers.eof_in != 0;
        if buffers.avail_in == 0 && !is_last && !job.has_work() {
            return Outcome::Blocked;
        }
        let taken = job.step(buffers.input(), is_last);
        buffers.take(taken);
    }
}

/// Makes a value on the heap, or null if that panics.
fn boxed<T>(make: impl FnOnce() -> T) -> *mut T {
    catch_unwind(AssertUnwindSafe(|| Box::into_raw(Box::new(make())))).unwrap_or(ptr::null_mut())
}

/// Drops a value; a panic meanwhile stays here.
fn free<T>(value: Box<T>) {
    // There is nobody to tell, and nothing to do about it.
    let _: Result<(), _> = catch_unwind(AssertUnwindSafe(|| drop(value)));
}

/// Returns whether a pointer can be one that this library returned or a caller's structure.
fn is_usable<T>(pointer: *const T) -> bool {
    !pointer.is_null() && pointer.is_aligned()
}

/// A sentence for each result.
const MESSAGES: &[(Outcome, &std::ffi::CStr)] = &[
    (Outcome::Done, c"done"),
    (Outcome::Blocked, c"more input or room for output is needed"),
    (Outcome::ErrorArgument, c"a pointer is null, misaligned or overlaps another"),
    (Outcome::ErrorRead, c"the basis could not be read"),
    (Outcome::ErrorForeign, c"the input is not a signature or not a delta"),
    (Outcome::ErrorVersion, c"the input has a version that this library does not read"),
    (Outcome::ErrorTruncated, c"the input ends too early"),
    (Outcome::ErrorDamaged, c"the input is damaged"),
    (Outcome::ErrorLimit, c"the input exceeds the caller's limit"),
    (Outcome::ErrorBasis, c"the delta belongs to another basis"),
    (Outcome::ErrorInternal, c"a fault of the library"),
];

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::panic;

    use dsync_delta::stream;

    use super::*;

    #[test]
    fn panic_inside_a_job_is_an_error_and_final() {
        let basis = [7; 5000];
        let mut signature = Vec::new();
        stream::signature(basis.as_slice(), &mut signature, &SignatureOptions::new()).unwrap();
        let index = stream::read_signature(signature.as_slice(), 10).unwrap();
        let mut delta = Vec::new();
        stream::delta(&index, basis.as_slice(), &mut delta).unwrap();

        let mut job = Job::apply(&ApplyOptions::new(), Box::new(|_, _| panic!("a fault")));
        let mut out = [0; 100];
        let mut buffers = Buffers {
            next_in: delta.as_ptr(),
            avail_in: delta.len(),
            eof_in: 1,
            next_out: out.as_mut_ptr(),
            avail_out: out.len(),
        };
        for _ in 0..2 {
            // SAFETY: the job and the buffers are borrowed from above, where their memory lives.
            let outcome = unsafe { dsync_delta_iter(&raw mut job, &raw mut buffers) };
            assert_eq!(outcome, Outcome::ErrorInternal);
        }
        assert!(panic::catch_unwind(|| boxed::<u8>(|| panic!("a fault"))).unwrap().is_null());
        assert_eq!(buffers.avail_out, out.len());
    }
}
