//! The delta core: finds the parts of a new file that an old one already holds, and encodes the
//! difference in few bytes.
//!
//! Bytes in, tokens out: this crate opens no file, no socket and no clock. The destination divides
//! its old file, the *basis*, into blocks and sends their sums, a [`Signature`]. The source
//! searches its new file for those blocks at every byte offset and sends [`Token`]s: literal bytes,
//! copies of basis blocks, runs of zeros. The destination applies them and compares the
//! [`FileRoot`].
//!
//! ```text
//! destination  basis --SignatureBuilder--> Signature --encode--> sums
//! source       sums --SignatureDecoder--> Signature --IndexedSignature::new-->
//!              new file --search_segment--> Token* + SegmentValue --RootBuilder--> FileRoot
//! destination  Token* --Applier--> Step* (write, copy, zero) + SegmentHasher --> the same FileRoot
//! ```
//!
//! For signatures and deltas as files or over pipes, as rdiff's, see [`stream`]: three functions over
//! `Read` and `Write`. The rest of this page is for programs with a connection of their own, which
//! send sums and tokens in their own messages, segment by segment.
//!
//! Both ends can work at once: a [`StretchSigner`] returns the sums of a long basis as it makes them,
//! and an [`ArrivingSignature`] is searched before it is whole.
//!
//! With everything in memory this takes a few lines. `examples/streaming.rs` does the same with
//! files.
//!
//! ```
//! use dsync_delta::{BlockLen, IndexedSignature, Key, Layout, MemoryDelta, SignatureBuilder};
//!
//! let basis = b"the old file, some kilobytes of it".repeat(1000);
//! let new = [b"a new line\n".as_slice(), &basis].concat();
//!
//! let key = Key::derive(&[b"random bytes of the source", b"random bytes of the destination"]);
//! let len = basis.len() as u64;
//! let mut builder = SignatureBuilder::new(&key, Layout::new(len, BlockLen::for_file(len)));
//! builder.update(&basis);
//! let index = IndexedSignature::new(builder.finish()?, &key);
//!
//! let delta = MemoryDelta::new(&index, &new)?;
//! assert!(delta.literal_bytes() < 3000);
//! assert_eq!(delta.rebuild(&key, &basis)?, new);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Laws: the tokens of a segment tile it exactly. Applying the tokens of a search rebuilds the new
//! file to the byte. A root built from segments equals [`file_root`] of the whole. Nothing that a
//! peer sends causes a panic, an unbounded allocation or more than linear time.
//!
//! The feature `rayon` (default) lets [`signature_parallel`], [`refine_parallel`] and [`MemoryDelta`]
//! use all threads of the current pool; without it they run on the calling thread, with the same
//! results. The crate needs `std` for three things: [`stream`] reads and writes, weak sums may join an
//! index that threads share already (`OnceLock`), and the weak sum chooses its code for the processor
//! at run time. Without the last, sums of whole blocks take twice the time on x86-64, so the crate
//! does not offer `no_std`.
//!
//! The algorithm is Tridgell's (*Efficient Algorithms for Sorting and Synchronization*, 1999,
//! chapter 3) with two changes. First, the block that follows the last match is tried before any
//! rolling, so unchanged data costs one strong sum per block. Second, strong sums are keyed BLAKE3
//! subtree values (BLAKE3 paper, section 2.1), which merge into the file's root.

mod apply;
mod arriving;
mod block;
mod coverage;
mod cutter;
mod emit;
mod in_place;
mod index;
mod key;
mod memory;
mod num;
mod outcome;
mod parallel;
mod read;
mod refine;
mod root;
mod search;
mod segment;
mod signature;
pub mod stream;
mod stretches;
mod subtree;
mod summing;
mod token;
mod tuning;
mod weak;

pub use crate::{
    apply::{Applier, ApplyError, Step, StepError, most_tokens},
    arriving::ArrivingSignature,
    block::{BlockIndex, BlockLen, BlockLenError, BlockRun, Layout},
    in_place::{BasisCopy, InPlaceError, InPlaceOrder, InPlaceStep},
    index::{AddWeakError, IndexedSignature},
    key::Key,
    memory::{DeltaError, MemoryDelta, RebuildError},
    outcome::{SearchCounters, SegmentOutcome, TokenSink},
    read::ReadAt,
    refine::{RefineError, RefineRequest, SegmentPlan, plan_segment, refine_parallel},
    root::{ContentHasher, FileRoot, file_root},
    search::{Rolling, SearchError, copy_segment, search_segment},
    segment::{RootBuilder, RootError, SegmentError, SegmentHasher, SegmentValue, Segments},
    signature::{
        Signature, SignatureBuilder, SignatureDecoder, SignatureError, SumsError, SumsFormat,
        signature_parallel,
    },
    stretches::StretchSigner,
    summing::{SegmentSums, SignatureCollector},
    token::{DecodeError, MAX_LITERAL, Token, TokenDecoder, TokenEncoder},
    tuning::{block_len, first_format, refined_block_lens, segment_log2, worthwhile},
};

/// Compiles and runs the README's example.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::cast_possible_truncation)]
mod testing;
