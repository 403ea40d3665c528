//! Signature streams from a peer, with right and wrong checksums: reading ends within memory in
//! proportion to the input, independently of how it is cut, and any signature that is accepted makes
//! deltas.
#![no_main]

mod delta_seal;

use dsync_delta::stream::{DeltaWriter, SignatureReader};
use dsync_fuzz::within_memory;
use libfuzzer_sys::fuzz_target;

/// One frame of 256 KiB, grown by doubling, and the filter of weak sums.
const FIXED: usize = 2 << 20;

fuzz_target!(|data: &[u8]| {
    let Some((&step, stream)) = data.split_first() else { return };
    let mut sealed = stream.to_vec();
    delta_seal::seal(&mut sealed, 56, 8);
    for stream in [stream, &sealed] {
        let whole = within_memory(FIXED, stream.len(), || read(stream, stream.len().max(1)));
        assert_eq!(whole, read(stream, usize::from(step) + 1));
    }
});

/// Returns the length of the basis and that of a delta, or the reason of a refusal.
fn read(stream: &[u8], step: usize) -> Result<(u64, usize), dsync_delta::stream::FormatError> {
    let mut reader = SignatureReader::new(1 << 16);
    for piece in stream.chunks(step) {
        reader.push(piece)?;
    }
    let index = reader.finish()?;
    let mut out = Vec::new();
    // A delta holds sixteen blocks, so it would fill the memory that is checked here.
    if index.layout().block_len().get() <= 8 << 10 {
        let mut delta = DeltaWriter::new(&index, &mut out);
        delta.push(stream, &mut out);
        delta.finish(&mut out);
    }
    Ok((index.layout().file_len(), out.len()))
}
