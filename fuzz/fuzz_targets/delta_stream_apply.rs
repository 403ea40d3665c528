//! Delta streams from a peer, with right and wrong checksums: applying ends within bounded memory, in
//! the same bytes however the input is cut, and never past the caller's limit.
#![no_main]

mod delta_seal;

use dsync_delta::stream::{ApplyOptions, DeltaApplier, StreamError};
use dsync_fuzz::within_memory;
use libfuzzer_sys::fuzz_target;

const MAX_LEN: u64 = 1 << 20;
/// One frame of 256 KiB, grown by doubling, and the output.
const FIXED: usize = 4 << 20;

fuzz_target!(|data: &[u8]| {
    let Some((&step, stream)) = data.split_first() else { return };
    let mut sealed = stream.to_vec();
    delta_seal::seal(&mut sealed, 64, 40);
    for stream in [stream, &sealed] {
        let whole = within_memory(FIXED, stream.len(), || apply(stream, stream.len().max(1), 64 << 10));
        assert!(whole.0.len() as u64 <= MAX_LEN);
        let step = usize::from(step) + 1;
        assert!(whole == apply(stream, step, step * 7));
    }
});

/// Returns the output and the error that ended it.
fn apply(stream: &[u8], step: usize, out_len: usize) -> (Vec<u8>, Option<String>) {
    let (mut output, mut out) = (Vec::new(), vec![0; out_len]);
    let mut applier = DeltaApplier::new(&ApplyOptions::new().max_len(MAX_LEN));
    for mut piece in stream.chunks(step) {
        while !piece.is_empty() || applier.has_output() {
            let error = match applier.push(piece) {
                Ok(taken) => {
                    piece = &piece[taken..];
                    let Some(basis_len) = applier.basis_len() else { continue };
                    match applier.pull(&mut out, |offset, bytes| Ok(read(basis_len, offset, bytes))) {
                        Ok(filled) => {
                            output.extend_from_slice(&out[..filled]);
                            continue;
                        }
                        Err(error) => error,
                    }
                }
                Err(error) => StreamError::from(error),
            };
            // What was rebuilt of the piece at hand depends on its length; what came before does not.
            output.clear();
            return (output, Some(format!("{error:?}")));
        }
    }
    let error = applier.finish().err();
    (output, error.map(|error| format!("{error:?}")))
}

/// Reads a basis of that length, in which each byte is the low one of its offset.
fn read(basis_len: u64, offset: u64, bytes: &mut [u8]) -> usize {
    let len = bytes.len().min(usize::try_from(basis_len - offset).unwrap_or(usize::MAX));
    (offset..).zip(&mut bytes[..len]).for_each(|(offset, byte)| *byte = offset.to_le_bytes()[0]);
    len
}
