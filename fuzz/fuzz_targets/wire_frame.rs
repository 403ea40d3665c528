//! Whole lanes in reads of a chosen size: both receivers end, within bounded memory, in the same
//! messages however the reads are cut.
#![no_main]

use bytes::Bytes;
use dsync_fuzz::{is_shown_raw, within_memory};
use dsync_wire::{
    frame::{ControlReceiver, DataReceiver, RecvError},
    link::{LaneRead, LinkError},
    state::{DestinationInbox, LaneInbox, SourceInbox},
};
use libfuzzer_sys::fuzz_target;

/// One frame in the making, its decoded form, the read-ahead and zstd's tables.
const FIXED: usize = 10 << 20;

fuzz_target!(|data: &[u8]| {
    let Some((&step, lane)) = data.split_first() else { return };
    let step = 1 + usize::from(step) * usize::from(step);
    let control = within_memory(FIXED, lane.len(), || control(lane, step));
    assert_eq!(control, self::control(lane, usize::MAX));
    let messages = within_memory(FIXED, lane.len(), || messages(lane, step));
    assert_eq!(messages, self::messages(lane, usize::MAX));
});

/// Returns the number of messages on a control lane and the error that ended it.
fn control(lane: &[u8], step: usize) -> (usize, Option<String>) {
    let mut receiver = ControlReceiver::new(Box::new(Lane { bytes: Bytes::copy_from_slice(lane), step }));
    let (mut source, mut destination) = (SourceInbox::peer(), DestinationInbox::peer());
    let mut count = 0;
    loop {
        match receiver.recv() {
            Ok(Some(message)) => {
                // Each role would stop at the first refusal; continuing only tries more states.
                let _ = source.check(&message);
                let _ = destination.check(&message);
                count += 1;
            }
            other => return (count, shown(other.err())),
        }
    }
}

/// Returns the same for a data lane.
fn messages(lane: &[u8], step: usize) -> (usize, Option<String>) {
    let mut receiver = DataReceiver::new(Box::new(Lane { bytes: Bytes::copy_from_slice(lane), step }));
    let mut order = LaneInbox::new(16);
    let mut count = 0;
    loop {
        match receiver.recv() {
            Ok(Some(message)) => {
                let _ = order.check(&message);
                count += 1;
            }
            other => return (count, shown(other.err())),
        }
    }
}

fn shown(error: Option<RecvError>) -> Option<String> {
    let text = error?.to_string();
    assert!(is_shown_raw(&text));
    Some(text)
}

struct Lane {
    bytes: Bytes,
    step: usize,
}

impl LaneRead for Lane {
    fn read(&mut self, buf: &mut [u8]) -> Result<usize, LinkError> {
        let len = self.bytes.len().min(buf.len()).min(self.step);
        buf[..len].copy_from_slice(&self.bytes.split_to(len));
        Ok(len)
    }
}
