//! Batch files of somebody else, with right and wrong last sections: reading ends within memory in
//! proportion to the input, and what is taken for a batch stays one when it is sealed again.
#![no_main]

use dsync_engine::batch::{read_any, sealed};
use dsync_fuzz::{is_shown_raw, within_memory};
use libfuzzer_sys::fuzz_target;

/// One section, and the tables of the decompressors.
const FIXED: usize = 32 << 20;

/// Bytes of the head, and of the last section.
const HEAD: usize = 12;
const END: usize = 45;

fuzz_target!(|data: &[u8]| {
    if let Err(fault) = within_memory(FIXED, data.len(), || read_any(data)) {
        assert!(is_shown_raw(&fault.to_string()));
    }
    let whole = sealed(data.get(HEAD..).unwrap_or_default());
    if within_memory(FIXED, whole.len(), || read_any(&whole)).is_ok() {
        assert_eq!(sealed(&whole[HEAD..whole.len() - END]), whole);
    }
});
