//! Frames over lanes: any cut into reads yields the same messages; ends and lengths are checked.

use bytes::Bytes;
use dsync_wire::{
    DecodeError,
    compress::{Effort, Packer},
    error::EncodeError,
    frame::{ControlReceiver, ControlSender, DataReceiver, DataSender, RecvError},
    kind::Kind,
    limits::{MAX_FATAL_TEXT, MAX_FRAME},
    link::LinkError,
    message::{ControlMessage, DataMessage, Fatal},
};
use proptest::prelude::*;

use crate::{
    lanes, samples,
    strategies::{self, noise},
};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn control_messages_arrive_however_reads_are_cut(
        messages in prop::collection::vec(strategies::control_message(), 0..8),
        step in 1..200_000usize,
    ) {
        let (tx, written) = lanes::writer();
        let mut sender = ControlSender::new(tx);
        for message in &messages {
            sender.send(message).unwrap();
        }
        prop_assert_eq!(written.writes().len(), messages.len());
        prop_assert_eq!(receive_control(&written.concat(), step).unwrap(), messages);
    }

    #[test]
    fn data_messages_arrive_however_reads_are_cut(
        messages in prop::collection::vec(strategies::data_message(), 0..8),
        step in 1..200_000usize,
    ) {
        let (tx, written) = lanes::writer();
        let mut sender = DataSender::new(tx);
        for message in &messages {
            sender.send(message).unwrap();
        }
        prop_assert_eq!(receive_data(&written.concat(), step).unwrap(), messages);
    }

    /// A lane that ends anywhere except between frames is an error (B39).
    #[test]
    fn an_end_inside_a_frame_is_an_error(
        message in strategies::data_message(),
        cut in any::<prop::sample::Index>(),
        step in 1..100_000usize,
    ) {
        let (tx, written) = lanes::writer();
        DataSender::new(tx).send(&message).unwrap();
        let bytes = written.concat();
        let cut = 1 + cut.index(bytes.len() - 1);
        let error = receive_data(&bytes[..cut], step).unwrap_err();
        if cut < bytes.len() {
            let expected = if cut < 4 { 4 } else { bytes.len() };
            let wanted = format!("connection ended inside a frame (got {cut} of {expected} bytes)");
            prop_assert_eq!(error.to_string(), wanted);
        }
    }
}

#[test]
fn all_samples_arrive_one_byte_at_a_time() {
    let (tx, written) = lanes::writer();
    let mut sender = ControlSender::new(tx);
    let messages: Vec<_> = samples::control().into_iter().map(|(_, message)| message).collect();
    for message in &messages {
        sender.queue(message).unwrap();
    }
    sender.finish().unwrap();
    assert_eq!(written.writes().len(), 1, "queued messages go in one write");
    assert_eq!(receive_control(&written.concat(), 1).unwrap(), messages);
}

#[test]
fn memory_of_a_frame_serves_the_next_one_unless_it_is_kept() {
    let (tx, written) = lanes::writer();
    let mut sender = DataSender::new(tx);
    let pieces = [noise(1, 200_000), noise(2, 100_000), noise(3, 150_000), noise(4, 200_000)];
    for piece in &pieces {
        let packed = Packer::new().pack(Bytes::copy_from_slice(piece), Effort::Raw);
        sender.send(&DataMessage::Tokens(packed)).unwrap();
    }
    let mut receiver = DataReceiver::new(lanes::reader(&written.concat(), usize::MAX));
    let mut next = || match receiver.recv().unwrap() {
        Some(DataMessage::Tokens(packed)) => packed.bytes,
        other => panic!("{other:?}"),
    };
    let first = next();
    assert!(first == pieces[0]);
    let memory = first.as_ptr();
    drop(first);
    // Take the block that the allocator would hand out again.
    let between = vec![0_u8; 288 << 10];
    let second = next();
    assert!(second == pieces[1]);
    assert_eq!(second.as_ptr(), memory);
    let third = next();
    assert!(third == pieces[2] && second == pieces[1], "what is still held was overwritten");
    drop((second, third, between));
    assert!(next() == pieces[3]);
}

#[test]
fn a_full_queue_is_sent() {
    let (tx, written) = lanes::writer();
    let mut sender = ControlSender::new(tx);
    for _ in 0..10_000 {
        sender.queue(&ControlMessage::Ready { lacks: Vec::new() }).unwrap();
    }
    assert!(!written.writes().is_empty());
}

#[test]
fn frames_at_the_limit_arrive_and_one_byte_more_is_refused() {
    let noise = Bytes::from(noise(3, 1 << 20));
    let message = DataMessage::Tokens(Packer::new().pack(noise, Effort::Raw));
    let (tx, written) = lanes::writer();
    DataSender::new(tx).send(&message).unwrap();
    assert_eq!(written.writes().len(), 2, "a large piece is not copied");
    for step in [1000, 65_536, 1 << 20] {
        assert_eq!(receive_data(&written.concat(), step).unwrap(), std::slice::from_ref(&message));
    }
    let mut bytes = (MAX_FRAME + 1).to_le_bytes().to_vec();
    bytes.extend([Kind::TOKENS.0; 9]);
    let error = receive_data(&bytes, 1).unwrap_err();
    assert_eq!(error.to_string(), "frame of 1114113 bytes exceeds the limit 1114112 (type Tokens, offset 0)");
}

#[test]
fn frame_lengths_beyond_the_limit_are_refused_with_type_and_offset() {
    let mut bytes = vec![1, 0, 0, 0, Kind::READY.0];
    bytes.extend([0xff, 0xff, 0xff, 0xff, Kind::LISTING.0]);
    let error = receive_control(&bytes, 64).unwrap_err();
    let sentence = "frame of 4294967295 bytes exceeds the limit 1114112 (type Listing, offset 5)";
    assert_eq!(error.to_string(), sentence);
}

#[test]
fn a_frame_without_content_is_refused() {
    let error = receive_control(&[0, 0, 0, 0, 1], 64).unwrap_err();
    assert!(matches!(error, RecvError::Decode(DecodeError::FrameEmpty { offset: 0 })));
}

#[test]
fn messages_of_the_other_lane_are_refused() {
    let error = receive_data(&[1, 0, 0, 0, Kind::READY.0], 64).unwrap_err();
    assert_eq!(error.to_string(), "unexpected message Ready on a data lane (offset 0)");
    let error = receive_control(&[1, 0, 0, 0, Kind::LANE_END.0], 64).unwrap_err();
    assert_eq!(error.to_string(), "unexpected message LaneEnd on a control lane (offset 0)");
    let error = receive_control(&[1, 0, 0, 0, 0], 64).unwrap_err();
    assert_eq!(error.to_string(), "unexpected message number 0 on a control lane (offset 0)");
}

#[test]
fn offsets_of_errors_count_from_the_start_of_the_lane() {
    let mut bytes = vec![1, 0, 0, 0, Kind::READY.0];
    // Need: entry 0x80 0x00 is overlong.
    bytes.extend([4, 0, 0, 0, Kind::NEED.0, 0x80, 0x00, 0]);
    let error = receive_control(&bytes, 64).unwrap_err();
    assert_eq!(error.to_string(), "malformed integer at offset 10 (message Need)");
}

#[test]
fn a_broken_lane_is_a_link_error_even_inside_a_frame() {
    let mut receiver = ControlReceiver::new(lanes::broken_reader(&[9, 0, 0, 0, 1, 2]));
    assert!(matches!(receiver.recv(), Err(RecvError::Link(LinkError::Lost))));
}

#[test]
fn a_message_beyond_a_limit_is_not_sent_and_the_lane_goes_on() {
    let (tx, written) = lanes::writer();
    let mut sender = ControlSender::new(tx);
    let text = vec![b'x'; MAX_FATAL_TEXT + 1];
    let error = sender.send(&ControlMessage::Fatal(Fatal { exit_code: 1, text, reason: None })).unwrap_err();
    assert!(matches!(error, LinkError::Message { source: EncodeError::Limit { .. } }));
    sender.send(&ControlMessage::Ready { lacks: Vec::new() }).unwrap();
    assert_eq!(
        receive_control(&written.concat(), 64).unwrap(),
        [ControlMessage::Ready { lacks: Vec::new() }]
    );
}

pub(crate) fn receive_control(bytes: &[u8], step: usize) -> Result<Vec<ControlMessage>, RecvError> {
    let mut receiver = ControlReceiver::new(lanes::reader(bytes, step));
    let mut messages = Vec::new();
    while let Some(message) = receiver.recv()? {
        messages.push(message);
    }
    Ok(messages)
}

fn receive_data(bytes: &[u8], step: usize) -> Result<Vec<DataMessage>, RecvError> {
    let mut receiver = DataReceiver::new(lanes::reader(bytes, step));
    let mut messages = Vec::new();
    while let Some(message) = receiver.recv()? {
        messages.push(message);
    }
    Ok(messages)
}
