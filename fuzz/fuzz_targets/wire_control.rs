//! Payloads of the control lane: the first byte is the message's number. A decoded payload encodes
//! to the same message; memory is bounded; errors are printable as they are.
#![no_main]

use dsync_fuzz::{is_shown_raw, within_memory};
use dsync_wire::{
    codec::{FRAME_HEADER, decode_control, encode_control},
    compress::{Packer, Unpacker},
    kind::Kind,
    message::ControlMessage,
};
use libfuzzer_sys::fuzz_target;

/// 4,096 entries with the longest names and 1 MiB of content, and zstd's tables.
const FIXED: usize = 6 << 20;

fuzz_target!(|data: &[u8]| {
    let Some((&number, payload)) = data.split_first() else { return };
    match within_memory(FIXED, payload.len(), || decode(Kind(number), payload)) {
        Ok(message) => {
            let mut frame = Vec::new();
            encode_control(&message, &mut Packer::new(), &mut frame).expect("a decoded message can be sent");
            assert_eq!(frame[4], number);
            assert_eq!(
                decode(Kind(number), &frame[FRAME_HEADER..]).expect("an encoded message decodes"),
                message
            );
        }
        Err(error) => assert!(is_shown_raw(&error.to_string())),
    }
});

fn decode(kind: Kind, payload: &[u8]) -> Result<ControlMessage, dsync_wire::DecodeError> {
    decode_control(kind, payload, 0, &mut Unpacker::new())
}
