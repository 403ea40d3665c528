//! Law: whatever can be encoded decodes to the same; any other bytes decode to a message that
//! encodes again, or to an error.

use bytes::Bytes;
use dsync_wire::{
    codec::{self, FRAME_HEADER, MAX_RECORD_HEADER, RecordsEncoder, decode_records, encode_records},
    compress::{Effort, Packer, Unpacker},
    kind::Kind,
    limits::{MAX_BLOCK_LEN, MAX_LISTING_ENTRIES, MAX_RAW_FRAME},
    message::{Cause, ControlMessage, DataMessage, EntryId, EntryKind, Listing, Record, Timestamp},
};
use proptest::prelude::*;

use crate::{samples, strategies};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn control_messages_survive(message in strategies::control_message()) {
        let bytes = encode_control(&message);
        prop_assert_eq!(decode_control(&bytes), Ok(message));
    }

    #[test]
    fn data_messages_survive(message in strategies::data_message()) {
        let bytes = encode_data(&message);
        prop_assert_eq!(decode_data(&bytes), Ok(message));
    }

    #[test]
    fn records_survive(records in strategies::records()) {
        let raw = Bytes::from(encode_records(&records).unwrap());
        prop_assert_eq!(decode_records(&raw), Ok(records));
    }

    /// A valid message with a few bytes changed, cut or added is refused, or is another valid
    /// message.
    #[test]
    fn damaged_control_messages_do_no_harm(
        message in strategies::control_message(),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        cut in any::<Option<prop::sample::Index>>(),
    ) {
        let mut bytes = encode_control(&message);
        damage_bytes(&mut bytes, &damage, cut);
        if let Ok(message) = decode_control(&bytes) {
            let again = encode_control(&message);
            prop_assert_eq!(decode_control(&again), Ok(message));
        }
    }

    #[test]
    fn damaged_data_messages_do_no_harm(
        message in strategies::data_message(),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        cut in any::<Option<prop::sample::Index>>(),
    ) {
        let mut bytes = encode_data(&message);
        damage_bytes(&mut bytes, &damage, cut);
        if let Ok(message) = decode_data(&bytes) {
            let again = encode_data(&message);
            prop_assert_eq!(decode_data(&again), Ok(message));
        }
    }

    #[test]
    fn damaged_records_do_no_harm(
        records in strategies::records(),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let mut bytes = encode_records(&records).unwrap();
        damage_bytes(&mut bytes, &damage, None);
        if let Ok(records) = decode_records(&bytes.into()) {
            let again = Bytes::from(encode_records(&records).unwrap());
            prop_assert_eq!(decode_records(&again), Ok(records));
        }
    }

    #[test]
    fn noise_does_no_harm(bytes in prop::collection::vec(any::<u8>(), 5..200), kind in 0..80u8) {
        let mut bytes = bytes;
        bytes[4] = kind;
        let _ = decode_control(&bytes);
        let _ = decode_data(&bytes);
        let _ = decode_records(&bytes.into());
    }
}

#[test]
fn a_typical_listing_takes_at_most_25_bytes_per_entry() {
    let entries: Vec<_> = (0..MAX_LISTING_ENTRIES as u64)
        .map(|number| {
            let mut entry =
                samples::file(format!("IMG_{number:05}.jpeg").as_bytes(), 2_000_000 + number * 997);
            entry.attributes.mtime.seconds += i64::try_from(number * 37 % 5000).unwrap();
            entry.attributes.mtime.nanoseconds = (number * 7_919_999 % 1_000_000_000) as u32;
            entry
        })
        .collect();
    let message = ControlMessage::Listing(Listing {
        dir: EntryId(1),
        last: true,
        complete: true,
        left_out: false,
        entries,
    });
    let bytes = encode_control(&message);
    assert!(bytes.len() <= 25 * MAX_LISTING_ENTRIES, "{} bytes per entry", bytes.len() / MAX_LISTING_ENTRIES);
    assert_eq!(decode_control(&bytes), Ok(message));
}

#[test]
fn times_of_all_seconds_arrive_beside_each_other() {
    let seconds = [i64::MAX, i64::MIN, 0, i64::MAX, -1, i64::MIN, i64::MIN, 1 << 45];
    let entries = seconds.iter().enumerate().map(|(number, &seconds)| {
        let mut entry = samples::file(format!("f{number}").as_bytes(), 1);
        (entry.attributes.mtime.seconds, entry.attributes.atime) =
            (seconds, Some(Timestamp { seconds, nanoseconds: 1 }));
        entry
    });
    let listing =
        Listing { dir: EntryId(1), last: true, complete: true, left_out: false, entries: entries.collect() };
    let message = ControlMessage::Listing(listing);
    assert_eq!(decode_control(&encode_control(&message)), Ok(message));
}

#[test]
fn the_bound_of_an_entry_holds_for_the_largest() {
    let mut entry = samples::entry(&[0xff; 255], EntryKind::Symlink { target: vec![b'x'; 4095] });
    entry.attributes.uid = u32::MAX;
    entry.attributes.gid = u32::MAX;
    entry.attributes.mode = 0o7777;
    entry.attributes.mtime.seconds = i64::MIN;
    let bound = entry.max_encoded_len();
    for kind in [entry.kind.clone(), EntryKind::File { size: i64::MAX as u64, content: Some([0; 32]) }] {
        entry.kind = kind;
        let listing = Listing {
            dir: EntryId(u64::MAX),
            last: true,
            complete: true,
            left_out: false,
            entries: vec![entry.clone()],
        };
        let header = FRAME_HEADER + 10 + 1 + 1 + 3 + 1;
        assert!(encode_control(&ControlMessage::Listing(listing)).len() <= bound + header);
    }
}

#[test]
fn contents_of_records_share_the_batch() {
    let raw = Bytes::from(encode_records(&samples::records()).unwrap());
    let records = decode_records(&raw).unwrap();
    assert!(raw.as_ptr_range().contains(&records[0].content.as_ptr()));
}

#[test]
fn a_file_that_is_taken_out_again_leaves_nothing_in_the_batch() {
    let records = samples::records();
    let mut encoder = RecordsEncoder::default();
    encoder.undo();
    encoder.file((EntryId(1), 0), records[0].outcome.unwrap(), 5).unwrap().copy_from_slice(b"small");
    encoder.file((EntryId(2), 1), Timestamp { seconds: 5, nanoseconds: 0 }, 70_000).unwrap().fill(7);
    encoder.undo();
    encoder.undo();
    let no_time = Timestamp { seconds: 0, nanoseconds: 1_000_000_000 };
    assert!(encoder.file((EntryId(2), 1), no_time, 5).is_err());
    encoder.failure((EntryId(2), 1), Cause::Os(2)).unwrap();
    encoder.file((EntryId(300), 0), records[2].outcome.unwrap(), 0).unwrap();
    assert_eq!(encoder.finish(), encode_records(&records));
}

#[test]
fn the_bound_of_a_record_holds_for_the_largest() {
    let mut record = samples::records().remove(0);
    record.entry = EntryId(u64::MAX);
    record.outcome = Ok(Timestamp { seconds: i64::MIN, nanoseconds: 999_999_999 });
    let len = MAX_RAW_FRAME as usize - MAX_RECORD_HEADER;
    let record = Record { content: vec![1; len].into(), ..record };
    assert!(encode_records(&[record]).unwrap().len() <= MAX_RAW_FRAME as usize);
}

#[test]
fn the_longest_block_is_that_of_the_delta_crate() {
    assert_eq!(MAX_BLOCK_LEN, dsync_delta::BlockLen::MAX.get());
}

#[test]
fn the_largest_pieces_fit_a_frame() {
    let noise = Bytes::from(strategies::noise(1, MAX_RAW_FRAME as usize));
    for effort in [Effort::Raw, Effort::Lz4, Effort::Zstd(1)] {
        let message = DataMessage::Tokens(Packer::new().pack(noise.clone(), effort));
        let bytes = encode_data(&message);
        assert!(bytes.len() - noise.len() < 16);
        assert_eq!(decode_data(&bytes), Ok(message));
    }
}

pub(crate) fn encode_control(message: &ControlMessage) -> Vec<u8> {
    let mut out = Vec::new();
    codec::encode_control(message, &mut Packer::new(), &mut out).unwrap();
    out
}

pub(crate) fn decode_control(frame: &[u8]) -> Result<ControlMessage, dsync_wire::DecodeError> {
    codec::decode_control(Kind(frame[4]), &frame[FRAME_HEADER..], FRAME_HEADER as u64, &mut Unpacker::new())
}

pub(crate) fn encode_data(message: &DataMessage) -> Vec<u8> {
    let mut out = Vec::new();
    let tail = codec::encode_data(message, &mut out).unwrap().cloned().unwrap_or_default();
    out.extend_from_slice(&tail);
    out
}

pub(crate) fn decode_data(frame: &[u8]) -> Result<DataMessage, dsync_wire::DecodeError> {
    codec::decode_data(Kind(frame[4]), &Bytes::copy_from_slice(&frame[FRAME_HEADER..]), FRAME_HEADER as u64)
}

/// Changes bytes behind the header, then cuts.
fn damage_bytes(bytes: &mut Vec<u8>, damage: &[(prop::sample::Index, u8)], cut: Option<prop::sample::Index>) {
    for (index, byte) in damage {
        let at = index.index(bytes.len() + 1);
        if at >= FRAME_HEADER && at < bytes.len() {
            bytes[at] = *byte;
        }
    }
    if let Some(cut) = cut {
        bytes.truncate(FRAME_HEADER.max(cut.index(bytes.len() + 1)));
    }
}
