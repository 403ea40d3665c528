//! Payloads of data lanes: the first byte is the message's number. A decoded payload encodes to the
//! same message; memory is bounded; errors are printable as they are.
#![no_main]

use bytes::Bytes;
use dsync_fuzz::{is_shown_raw, within_memory};
use dsync_wire::{
    codec::{FRAME_HEADER, decode_data, encode_data},
    kind::Kind,
};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some((&number, payload)) = data.split_first() else { return };
    let payload = Bytes::copy_from_slice(payload);
    match within_memory(64 << 10, payload.len(), || decode_data(Kind(number), &payload, 0)) {
        Ok(message) => {
            let mut frame = Vec::new();
            let tail = encode_data(&message, &mut frame).expect("a decoded message can be sent");
            frame.extend_from_slice(tail.map_or(&[], |tail| &tail[..]));
            let again = Bytes::from(frame).slice(FRAME_HEADER..);
            assert_eq!(again, payload, "a data message has one form");
        }
        Err(error) => assert!(is_shown_raw(&error.to_string())),
    }
});
