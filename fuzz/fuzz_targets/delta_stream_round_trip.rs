//! Streams of edited files in pieces of any length: applying the delta rebuilds the new file, and no
//! damaged delta does.
#![no_main]

mod delta_edits;

use std::io::Cursor;

use dsync_delta::{
    BlockLen,
    stream::{
        ApplyOptions, DeltaWriter, SignatureOptions, SignatureReader, SignatureWriter, apply, read_signature,
    },
};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some((&[log2, step, place, bit], rest)) = data.split_first_chunk::<4>() else { return };
    let (basis, new) = delta_edits::edited_files(rest);
    let Ok(block_len) = BlockLen::new(1 << (10 + log2 % 8)) else { return };
    let options = SignatureOptions::new().block_len(block_len);
    let step = 1 + usize::from(step) * usize::from(step);

    let mut signature = Vec::new();
    let mut writer = SignatureWriter::new(&options, &mut signature);
    basis.chunks(step).for_each(|piece| writer.push(piece, &mut signature));
    writer.finish(&mut signature);
    let index = read_signature(signature.as_slice(), SignatureReader::MAX_BLOCKS).unwrap();

    let mut delta = Vec::new();
    let mut writer = DeltaWriter::new(&index, &mut delta);
    new.chunks(step).for_each(|piece| writer.push(piece, &mut delta));
    writer.finish(&mut delta);

    let mut rebuilt = Vec::new();
    apply(Cursor::new(&basis), delta.as_slice(), &mut rebuilt, &ApplyOptions::new()).unwrap();
    assert!(rebuilt == new);
    let at = delta.len() * usize::from(place) / 256;
    delta[at] ^= 1 << (bit % 8);
    let limit = ApplyOptions::new().max_len(4 << 20);
    apply(Cursor::new(&basis), delta.as_slice(), std::io::sink(), &limit).unwrap_err();
});
