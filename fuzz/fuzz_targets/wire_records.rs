//! The content of batches: a decoded batch encodes to the same bytes; memory is bounded.
#![no_main]

use bytes::Bytes;
use dsync_fuzz::{is_shown_raw, within_memory};
use dsync_wire::codec::{decode_records, encode_records};
use libfuzzer_sys::fuzz_target;

/// 4,096 records, while the list of them doubles.
const FIXED: usize = 2 << 20;

fuzz_target!(|data: &[u8]| {
    let raw = Bytes::copy_from_slice(data);
    match within_memory(FIXED, raw.len(), || decode_records(&raw)) {
        Ok(records) => {
            let again = encode_records(&records).expect("decoded records can be sent");
            assert_eq!(again, raw, "records have one form");
        }
        Err(error) => assert!(is_shown_raw(&error.to_string())),
    }
});
