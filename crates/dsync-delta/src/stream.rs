//! Signatures and deltas as streams: `signature`, `delta` and `apply` over [`Read`] and [`Write`].
//!
//! For programs that keep or send signatures and deltas as files, without a session between two ends.
//! Lengths need not be known, so all three work on pipes. `examples/delta.rs` is a command of these
//! functions, with the operands of `rdiff`.
//!
//! ```
//! use std::io::Cursor;
//!
//! use dsync_delta::stream::{self, ApplyOptions, SignatureOptions, SignatureReader};
//!
//! let basis = b"the old file, some kilobytes of it".repeat(1000);
//! let new = [b"a new line\n".as_slice(), &basis].concat();
//!
//! let (mut signature, mut delta, mut rebuilt) = (Vec::new(), Vec::new(), Vec::new());
//! stream::signature(basis.as_slice(), &mut signature, &SignatureOptions::for_file(34_000))?;
//! let index = stream::read_signature(signature.as_slice(), SignatureReader::MAX_BLOCKS)?;
//! stream::delta(&index, new.as_slice(), &mut delta)?;
//! stream::apply(Cursor::new(&basis), delta.as_slice(), &mut rebuilt, &ApplyOptions::new())?;
//!
//! assert_eq!(rebuilt, new);
//! assert!(delta.len() < 3000);
//! # Ok::<(), stream::StreamError>(())
//! ```
//!
//! The functions are loops around machines that do no input or output: [`SignatureWriter`],
//! [`SignatureReader`], [`DeltaWriter`] and [`DeltaApplier`]. They take pieces of any length, and
//! their output does not depend on how the input is cut.
//!
//! # Cost
//!
//! Each runs on the calling thread, in time proportional to its input and output.
//!
//! | | memory in bytes, `S` the length of the signature, `B` of a block | passes over the data |
//! |---|---|---|
//! | [`signature()`] | 0.6 MiB + `B` | BLAKE3 and the weak sum |
//! | [`read_signature`] | 5 `S` + 1 MiB while reading, 2 `S` + 0.3 MiB afterwards | |
//! | [`delta()`] | 2 MiB + 16 `B`, beside the signature | BLAKE3, twice where data has shifted; rolling over new data |
//! | [`apply()`] | 1.2 MiB | BLAKE3 |
//!
//! After rolling over 64 MiB of new data without a match, [`delta()`] rolls over the first sixteenth
//! of every 4 MiB (or every 32 blocks, if they are longer) until it finds one, so that new data does
//! not cost more than it can save. Shifted data is then found later, and a short stretch of it may be
//! missed.
//!
//! # What is checked
//!
//! Every length is checked before memory is set aside for it, and memory grows only with bytes that
//! arrive. A damaged, truncated, foreign or newer input is a [`FormatError`]. At its end, [`apply()`]
//! compares the root of its output, 32 bytes of keyed BLAKE3, with the root of the new file: success
//! means that the output *is* the new file. Its output before that is not verified. Write it to a
//! staging file, and rename that after success.
//!
//! **Odds of a false match.** A strong sum has 8 bytes. A search that tests `t` windows takes a wrong
//! block with odds below `t / 2^64`: for 1 TiB of new data beside 2^20 blocks about 2^-44, as a window
//! is tested only if it has a block's weak sum. A false match makes `apply` fail, never a wrong file.
//! Whoever chooses content and knows the key can prepare two blocks of the same strong sum in about
//! 2^32 hashes, and so make `apply` fail. [`SignatureOptions::key`] prevents that with a random key.
//!
//! # Format
//!
//! All integers are little-endian. A file is a header, frames, and an end. Each frame's checksum is
//! XXH3-64 of the frame's length field and payload, with the checksum before it as the seed, so that
//! frames cannot be lost, repeated or exchanged unnoticed. Checksums detect accidents; the root alone
//! decides whether a file was rebuilt.
//!
//! | offset | length | header of both |
//! |---|---|---|
//! | 0 | 8 | `DSYNCSIG` for a signature, `DSYNCDLT` for a delta |
//! | 8 | 2 | version: 1 |
//! | 10 | 1 | log2 of the block length in bytes: 10 to 22 |
//! | 11 | 1 | contents: 0 |
//! | 12 | 4 | flags: 0 |
//! | 16 | 32 | key of all strong sums, weak sums and roots |
//! | 48 | 8 | delta only: length of the basis in bytes |
//! | 48 or 56 | 8 | checksum: XXH3-64 of everything before it, seed 0 |
//!
//! | length | frame |
//! |---|---|
//! | 4 | length `n` of the payload in bytes: 1 to 262,144 |
//! | `n` | payload |
//! | 8 | checksum |
//!
//! | length | end |
//! |---|---|
//! | 4 | 0, where a frame would have its length |
//! | 8 | length in bytes of the basis (signature) or of the new file (delta); at most 2^63 - 1 |
//! | 32 | delta only: root of the new file, keyed BLAKE3 |
//! | 8 | checksum of the end, like that of a frame |
//!
//! A payload of a signature is a whole number of sums, one per block in order: 8 bytes of strong sum
//! (the first of the block's subtree value in the keyed BLAKE3 tree of the basis) and 4 bytes of weak
//! sum (`crate::weak` defines it). Their number is the basis' length divided by the block length, rounded
//! up. A payload of a delta is a sequence of whole tokens as [`Token`](crate::Token) encodes them.
//! Nothing may follow the end.
//!
//! A reader of version 1 rejects every other version, contents and flag. A change of the sums, the
//! tokens or the frames gets a new version.

mod apply;
mod delta;
mod error;
mod format;
mod io;
mod signature;

pub use self::{
    apply::{ApplyCounts, ApplyOptions, DeltaApplier},
    delta::{DeltaCounts, DeltaWriter},
    error::{FormatError, StreamError},
    io::{apply, delta, read_signature, signature},
    signature::{SignatureCounts, SignatureOptions, SignatureReader, SignatureWriter},
};

#[cfg(doc)]
use std::io::{Read, Write};

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::cast_possible_truncation)]
mod tests;
