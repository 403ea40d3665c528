//! The bootstrap: bytes are noise, incomplete, refused, or a message that encodes to the same
//! bytes.
#![no_main]

use dsync_fuzz::{is_shown_raw, within_memory};
use dsync_wire::{
    bootstrap::{BootstrapMessage, Parsed},
    limits::MAX_BOOTSTRAP,
};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    match within_memory(MAX_BOOTSTRAP, 0, || BootstrapMessage::parse(data)) {
        Ok(Parsed::Incomplete { needed }) => assert!(needed > data.len() && needed <= MAX_BOOTSTRAP),
        Ok(Parsed::Complete { message, consumed }) => {
            let mut again = Vec::new();
            message.encode(&mut again).expect("a decoded message can be sent");
            assert_eq!(again, &data[..consumed]);
        }
        Err(error) => assert!(is_shown_raw(&error.to_string())),
    }
});
