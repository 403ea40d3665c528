//! Compressed pieces: two bytes choose codec and raw length, the rest is the piece. Unpacking ends
//! in exactly the declared length or an error, within bounded memory; packing the same bytes
//! survives.
#![no_main]

use bytes::Bytes;
use dsync_fuzz::within_memory;
use dsync_wire::{
    compress::{Codec, Effort, Packed, Packer, Unpacker},
    limits::MAX_RAW_FRAME,
};
use libfuzzer_sys::fuzz_target;

/// The largest content and zstd's tables.
const FIXED: usize = 2 << 20;

fuzz_target!(|data: &[u8]| {
    let [codec, low, high, rest @ ..] = data else { return };
    let rest = Bytes::copy_from_slice(rest);
    if let Some(codec) = Codec::from_code(codec & 3) {
        let scale = [1, 16, 4096, 1 << 16][usize::from(codec as u8 ^ low & 3)];
        let raw_len = u32::from(u16::from_le_bytes([*low, *high])) * scale;
        let packed = Packed { codec, raw_len, bytes: rest.clone() };
        let raw = within_memory(FIXED, rest.len(), || Unpacker::new().unpack(&packed, MAX_RAW_FRAME));
        if let Ok(raw) = raw {
            assert_eq!(raw.len(), raw_len as usize);
        }
    }
    for effort in [Effort::Raw, Effort::Lz4, Effort::Zstd(1)] {
        let packed = Packer::new().pack(rest.clone(), effort);
        assert!(packed.bytes.len() <= rest.len());
        let raw = Unpacker::new().unpack(&packed, MAX_RAW_FRAME).expect("what was packed is unpacked");
        assert_eq!(raw, rest);
    }
});
