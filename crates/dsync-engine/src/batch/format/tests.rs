//! The bytes of a batch: one form, and no damage goes unnoticed.

use dsync_wire::{
    codec::encode_control,
    compress::{Effort, Packer},
    message::{Asked, Attributes, ControlMessage, Entry, EntryKind, Listing, ListingEnd, Tops},
    name::Name,
    options::SyncOptions,
};
use proptest::prelude::*;

use super::{super::terms::Terms, *};
use crate::batch::read_any;

/// Returns a section with a message.
fn message(message: &ControlMessage) -> Section {
    let mut frame = Vec::new();
    encode_control(message, &mut Packer::new(), &mut frame).unwrap();
    Section::Message(frame[4], frame[5..].to_vec())
}

/// Returns the sections of a batch of one file with 11 bytes.
pub(in crate::batch) fn sections() -> Vec<Section> {
    let mtime = Timestamp { seconds: 1_700_000_000, nanoseconds: 5 };
    let attributes = Attributes { mode: 0o644, mtime, ..Attributes::default() };
    let root = Attributes { mode: 0o755, mtime, ..Attributes::default() };
    let content = b"hello world";
    let (name, kind) = (Name::new(b"f").unwrap(), EntryKind::File { size: 11, content: None });
    let entry = Entry { name, kind, attributes, hard_link: None, implied: false };
    let asked = Asked { contents: true, names: Some(Vec::new()), paths: Vec::new() };
    let packed = Packer::new().pack(content.to_vec().into(), Effort::Raw);
    let hash = ContentHasher::new().update(content).finish();
    let listing =
        Listing { dir: EntryId(0), last: true, complete: true, left_out: false, entries: vec![entry] };

    vec![
        Section::Terms(Terms::new(asked, &SyncOptions::archive()).encode().unwrap()),
        message(&ControlMessage::Tops(Tops { root: Some(root), named: 0, single_file: false })),
        message(&ControlMessage::Listing(listing)),
        Section::Piece(Piece { entry: EntryId(1), offset: 0, packed }),
        Section::Content(Content { entry: EntryId(1), size: 11, mtime, hash }),
        message(&ControlMessage::ListingEnd(ListingEnd { entries: 2, bytes: 11 })),
    ]
}

/// Returns the bytes of a batch with these sections.
pub(in crate::batch) fn written(sections: &[Section]) -> Vec<u8> {
    let mut writer = SectionWriter::new(Vec::new()).unwrap();
    sections.iter().for_each(|section| writer.push(section).unwrap());
    writer.finish().unwrap()
}

fn read(bytes: &[u8]) -> Result<Vec<Section>, BatchFault> {
    let mut reader = SectionReader::new(bytes)?;
    std::iter::from_fn(|| reader.next().transpose()).collect()
}

#[test]
fn golden_batch_is_written_and_read_byte_for_byte() {
    let golden = include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/golden/batch-1/one-file.batch"));
    let bytes = written(&sections());
    assert_eq!(bytes, golden);
    assert_eq!(read(&bytes).unwrap(), sections());
    read_any(&bytes).unwrap();
    assert_eq!(sealed(&bytes[12..bytes.len() - 45]), bytes);
}

#[test]
fn every_flipped_bit_and_every_cut_is_noticed() {
    let bytes = written(&sections());
    for at in 0..bytes.len() {
        assert!(read_any(&bytes[..at]).is_err(), "cut at {at}");
        for bit in 0..8 {
            let mut flipped = bytes.clone();
            flipped[at] ^= 1 << bit;
            assert!(read_any(&flipped).is_err(), "bit {bit} of byte {at}");
        }
    }
    assert!(matches!(read_any(&[bytes.as_slice(), b"x"].concat()), Err(BatchFault::Damaged)));
}

#[test]
fn each_fault_has_its_own_error() {
    let bytes = written(&sections());
    let with = |at: usize, byte: u8| {
        let mut changed = bytes.clone();
        changed[at] = byte;
        read_any(&changed).unwrap_err()
    };
    assert!(matches!(with(8, 2), BatchFault::Newer { version: 2 }));
    assert!(matches!(with(10, 9), BatchFault::OtherMessages { version: 9 }));
    assert!(matches!(with(0, b'x'), BatchFault::Foreign));
    assert!(matches!(read_any(b""), Err(BatchFault::Foreign)));
    assert!(matches!(read_any(&MAGIC[..3]), Err(BatchFault::Truncated)));
    assert!(matches!(read_any(&bytes[..bytes.len() - 1]), Err(BatchFault::Truncated)));
    // Flags, then the version 32 of its protocol.
    let of_rsync = [0x9f, 0, 0, 0, 0x20, 0, 0, 0, 0x81, 0xff];
    assert!(matches!(read_any(&of_rsync), Err(BatchFault::OfRsync)));
}

#[test]
fn sections_that_make_no_batch_are_refused_however_well_sealed() {
    let good = sections();
    let without = |number: usize| {
        let mut sections = good.clone();
        sections.remove(number);
        written(&sections)
    };
    // The terms, what the operands are, the piece that a content needs, and the listing's end.
    for number in [0, 1, 3, 5] {
        let error = read_any(&without(number)).unwrap_err();
        assert!(matches!(error, BatchFault::Malformed { .. }), "without {number}: {error}");
    }
    // A content that nobody recorded is lacking, and no fault.
    let mut lacking = good.clone();
    lacking.drain(3..5);
    read_any(&written(&lacking)).unwrap();

    let more = [
        Section::Terms(Vec::new()),
        good[0].clone(),
        good[2].clone(),
        message(&ControlMessage::Alive),
        message(&ControlMessage::Bye),
        Section::Message(255, Vec::new()),
    ];
    for section in more {
        let mut sections = good.clone();
        sections.push(section.clone());
        let error = read_any(&written(&sections)).unwrap_err();
        assert!(matches!(error, BatchFault::Malformed { .. }), "{section:?}: {error}");
    }
}

fn piece() -> impl Strategy<Value = Section> {
    (any::<u64>(), any::<u64>(), proptest::collection::vec(any::<u8>(), 1..300)).prop_map(
        |(entry, offset, raw)| {
            let packed = Packer::new().pack(raw.into(), Effort::Zstd(1));
            Section::Piece(Piece { entry: EntryId(entry), offset, packed })
        },
    )
}

fn any_section() -> impl Strategy<Value = Section> {
    let bytes = || proptest::collection::vec(any::<u8>(), 0..300);
    let content = (any::<u64>(), any::<u64>(), -9_000_000_i64..9_000_000, any::<[u8; 32]>()).prop_map(
        |(entry, size, seconds, hash)| {
            let mtime = Timestamp { seconds, nanoseconds: 999_999_999 };
            Section::Content(Content { entry: EntryId(entry), size, mtime, hash })
        },
    );
    prop_oneof![
        bytes().prop_map(Section::Terms),
        (any::<u8>(), bytes()).prop_map(|(kind, payload)| Section::Message(kind, payload)),
        piece(),
        content,
    ]
}

proptest! {
    #[test]
    fn what_is_written_is_read_and_has_one_form(
        sections in proptest::collection::vec(any_section(), 0..20),
    ) {
        let bytes = written(&sections);
        prop_assert_eq!(read(&bytes).unwrap(), sections);
        prop_assert_eq!(sealed(&bytes[12..bytes.len() - 45]), bytes);
    }

    #[test]
    fn no_bytes_make_a_reader_panic(body in proptest::collection::vec(any::<u8>(), 0..400)) {
        let _ = read_any(&body);
        let _ = read_any(&sealed(&body));
    }
}
