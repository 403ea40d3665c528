//! Tests of the streams as a whole: any pair, any cut, any damage.

use std::io::{Cursor, Read};

use proptest::prelude::*;

use super::*;
use crate::{
    BlockLen, IndexedSignature,
    testing::{Edited, key, naive_literal_bytes, noise},
};

fn options(block_len: u32) -> SignatureOptions {
    SignatureOptions::new().block_len(BlockLen::new(block_len).unwrap()).key(key())
}

fn signature_of(basis: &[u8], block_len: u32) -> Vec<u8> {
    let mut out = Vec::new();
    let counts = signature(basis, &mut out, &options(block_len)).unwrap();
    assert_eq!((counts.basis_len, counts.signature_len), (basis.len() as u64, out.len() as u64));
    out
}

fn index_of(signature: &[u8]) -> IndexedSignature {
    read_signature(signature, SignatureReader::MAX_BLOCKS).unwrap()
}

fn delta_of(index: &IndexedSignature, new: &[u8]) -> (Vec<u8>, DeltaCounts) {
    let mut out = Vec::new();
    let counts = delta(index, new, &mut out).unwrap();
    assert_eq!((counts.new_len, counts.delta_len), (new.len() as u64, out.len() as u64));
    assert_eq!(counts.new_len, counts.literal_bytes + counts.matched_bytes + counts.zero_bytes);
    (out, counts)
}

fn applied(basis: &[u8], delta: &[u8]) -> Result<Vec<u8>, FormatError> {
    let mut out = Vec::new();
    match apply(Cursor::new(basis), delta, &mut out, &ApplyOptions::new()) {
        Ok(counts) => assert_eq!(counts.new_len, out.len() as u64),
        Err(StreamError::Format(error)) => return Err(error),
        Err(other) => panic!("{other}"),
    }
    Ok(out)
}

/// Writes a delta in parts so small that their borders fall everywhere.
fn delta_in_small_parts(index: &IndexedSignature, new: &[u8], piece: usize) -> (Vec<u8>, DeltaCounts) {
    let mut out = Vec::new();
    let mut writer = DeltaWriter::with_parts(index, 0, &mut out);
    new.chunks(piece).for_each(|piece| writer.push(piece, &mut out));
    let counts = writer.finish(&mut out);
    (out, counts)
}

/// A reader that returns pieces of given lengths, and an interruption before each.
struct Pieces<'a> {
    bytes: &'a [u8],
    lens: std::iter::Cycle<std::slice::Iter<'a, usize>>,
    interrupt: bool,
}

impl<'a> Pieces<'a> {
    fn new(bytes: &'a [u8], lens: &'a [usize]) -> Self {
        Self { bytes, lens: lens.iter().cycle(), interrupt: false }
    }
}

impl Read for Pieces<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        self.interrupt = !self.interrupt;
        if self.interrupt {
            return Err(std::io::ErrorKind::Interrupted.into());
        }
        let len = (*self.lens.next().unwrap()).min(buffer.len()).min(self.bytes.len());
        buffer[..len].copy_from_slice(&self.bytes[..len]);
        self.bytes = &self.bytes[len..];
        Ok(len)
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn law_apply_inverts_delta_and_small_parts_lose_nothing(
        case in Edited::any(1024, 60_000),
        piece in 1_usize..5000,
    ) {
        let Edited { basis, new, .. } = &case;
        let index = index_of(&signature_of(basis, 1024));
        let (whole, counts) = delta_of(&index, new);
        prop_assert!(applied(basis, &whole).unwrap() == *new);

        let (parts, in_parts) = delta_in_small_parts(&index, new, piece);
        prop_assert!(applied(basis, &parts).unwrap() == *new);
        // Where data repeats itself, look-ahead may take the later of two overlapping matches.
        if !case.repeats_itself() {
            let naive = naive_literal_bytes(basis, new, 1024, basis.len() >= 1024);
            prop_assert!(counts.literal_bytes <= naive);
            prop_assert!(in_parts.literal_bytes <= naive, "{in_parts:?} {naive}");
        }
    }

    #[test]
    fn law_output_does_not_depend_on_reads(
        Edited { basis, new, .. } in Edited::any(2048, 60_000),
        lens in prop::collection::vec(1_usize..9000, 1..8),
        out_len in 1_usize..3000,
    ) {
        let signature = signature_of(&basis, 2048);
        let mut pieces = Vec::new();
        super::signature(Pieces::new(&basis, &lens), &mut pieces, &options(2048)).unwrap();
        prop_assert!(pieces == signature);

        let index = read_signature(Pieces::new(&signature, &lens), 1 << 20).unwrap();
        let (delta, _) = delta_of(&index, &new);
        let mut pieces = Vec::new();
        super::delta(&index, Pieces::new(&new, &lens), &mut pieces).unwrap();
        prop_assert!(pieces == delta);
        let (parts, _) = delta_in_small_parts(&index, &new, lens[0]);
        prop_assert!(delta_in_small_parts(&index, &new, usize::MAX).0 == parts);

        let mut rebuilt = Vec::new();
        let input = Pieces::new(&delta, &lens);
        apply(Cursor::new(&basis), input, &mut rebuilt, &ApplyOptions::new()).unwrap();
        prop_assert!(rebuilt == new);
        prop_assert!(pulled(&basis, &delta, &lens, out_len) == new);
    }

    #[test]
    fn law_damage_is_noticed_everywhere(
        Edited { basis, new, .. } in Edited::any(1024, 9000),
        place in any::<prop::sample::Index>(),
        bit in 0..8,
    ) {
        let signature = signature_of(&basis, 1024);
        let (delta, _) = delta_of(&index_of(&signature), &new);
        let damaged = |bytes: &[u8]| {
            let mut bytes = bytes.to_vec();
            *place.get_mut(&mut bytes) ^= 1_u8 << bit;
            bytes
        };
        prop_assert!(read_signature(damaged(&signature).as_slice(), 1 << 20).is_err());
        prop_assert!(applied(&basis, &damaged(&delta)).is_err());

        let cut = |bytes: &[u8]| bytes[..place.index(bytes.len())].to_vec();
        let (short, short_delta) = (cut(&signature), cut(&delta));
        let len = short.len() as u64;
        prop_assert_eq!(rejected(&short), FormatError::Truncated { len });
        let len = short_delta.len() as u64;
        prop_assert_eq!(applied(&basis, &short_delta), Err(FormatError::Truncated { len }));
    }

    #[test]
    fn law_any_bytes_are_read_or_rejected(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        prop_assert!(read_signature(bytes.as_slice(), 1 << 20).is_err());
        prop_assert!(applied(&noise(1, 5000), &bytes).is_err());
    }
}

/// Returns the reason why bytes are not a signature.
fn rejected(bytes: &[u8]) -> FormatError {
    match read_signature(bytes, 1 << 20) {
        Err(StreamError::Format(error)) => error,
        other => panic!("{other:?}"),
    }
}

/// Applies a delta with output of `out_len` bytes at a time and short reads of the basis.
fn pulled(basis: &[u8], delta: &[u8], lens: &[usize], out_len: usize) -> Vec<u8> {
    let (mut rebuilt, mut out) = (Vec::new(), vec![0; out_len]);
    let mut applier = DeltaApplier::new(&ApplyOptions::new());
    let mut rest = delta;
    let mut lens = lens.iter().cycle();
    while !applier.is_done() {
        let len = (*lens.next().unwrap()).min(rest.len());
        rest = &rest[applier.push(&rest[..len]).unwrap()..];
        let filled = applier.pull(&mut out, |offset, bytes| {
            let offset = usize::try_from(offset).unwrap();
            let len = bytes.len().min(700);
            bytes[..len].copy_from_slice(&basis[offset..offset + len]);
            Ok(len)
        });
        rebuilt.extend_from_slice(&out[..filled.unwrap()]);
    }
    applier.finish().unwrap();
    rebuilt
}

#[test]
fn long_streams_lose_no_match_between_parts() {
    let basis = noise(1, 9 << 20);
    let mut new = basis.clone();
    for at in [100, 1 << 20, (1 << 20) + 300_000, 5_000_001, 8 << 20] {
        new.splice(at..at, noise(2, 77));
    }
    new.extend(vec![0; 3 << 20]);
    new.extend_from_slice(&basis[..2_000_003]);
    for block_len in [1 << 10, 8 << 10, 1 << 20, 4 << 20] {
        let index = index_of(&signature_of(&basis, block_len));
        let (delta, counts) = delta_of(&index, &new);
        let naive = naive_literal_bytes(&basis, &new, block_len as usize, true);
        assert!(counts.literal_bytes <= naive, "{block_len}: {} {naive}", counts.literal_bytes);
        assert!(applied(&basis, &delta).unwrap() == new);
    }
}

/// A zero run that begins in one part and ends in the next was cut in two, and the shorter half sent.
#[test]
fn zeros_over_a_border_of_two_parts_are_no_literals() {
    let basis = noise(0, 42_000);
    for at in 17_000..23_000 {
        let mut new = basis.clone();
        new[16_000..24_000].copy_from_slice(&noise(1, 8000));
        new[at..at + 1024].fill(0);
        let index = index_of(&signature_of(&basis, 1024));
        let (delta, counts) = delta_in_small_parts(&index, &new, usize::MAX);
        assert!(counts.literal_bytes <= naive_literal_bytes(&basis, &new, 1024, true), "{at}");
        assert!(applied(&basis, &delta).unwrap() == new, "{at}");
    }
}

#[test]
fn every_length_around_a_part_and_a_chunk_rebuilds() {
    let basis = noise(3, 300_000);
    let index = index_of(&signature_of(&basis, 1024));
    for part in [0, 1024, 16 << 10, 32 << 10, 256 << 10] {
        for len in [part, part + 1, part + 1023, part + 1024, part + 1025] {
            for new in [&basis[..len], &basis[basis.len() - len..], &noise(4, len), &vec![0; len]] {
                assert!(applied(&basis, &delta_of(&index, new).0).unwrap() == *new, "{len}");
                let (delta, _) = delta_in_small_parts(&index, new, usize::MAX);
                assert!(applied(&basis, &delta).unwrap() == *new, "{len}");
            }
        }
    }
}

#[test]
fn index_is_used_again_without_a_trace_of_its_last_delta() {
    let basis = noise(5, 1 << 20);
    let index = index_of(&signature_of(&basis, 8192));
    let shifted = [&noise(6, 100)[..], &basis].concat();
    let first = delta_of(&index, &shifted);
    // Rolls in vain over so much that the search gives up.
    delta_of(&index, &noise(7, 80 << 20));
    assert_eq!(delta_of(&index, &shifted), first);
}

#[test]
fn foreign_and_newer_input_is_named() {
    let basis = noise(8, 5000);
    let signature = signature_of(&basis, 1024);
    let (delta, _) = delta_of(&index_of(&signature), &basis);
    let read = rejected;
    assert_eq!(read(b"rs\x016"), FormatError::Foreign);
    assert_eq!(read(b""), FormatError::Truncated { len: 0 });
    assert_eq!(read(&delta), FormatError::NotASignature);
    assert_eq!(applied(&basis, &signature), Err(FormatError::NotADelta));

    let mut newer = signature.clone();
    newer[8] = 2;
    assert_eq!(read(&newer), FormatError::Version { version: 2, supported: 1 });
    let mut with_flag = signature[..48].to_vec();
    with_flag[12] = 1;
    let seal = xxhash_rust::xxh3::xxh3_64_with_seed(&with_flag, 0);
    with_flag.extend_from_slice(&seal.to_le_bytes());
    assert_eq!(read(&with_flag), FormatError::Parameter);

    let longer = [&signature[..], b"x"].concat();
    assert_eq!(read(&longer), FormatError::Trailing { offset: signature.len() as u64 });
    let longer = [&delta[..], b"x"].concat();
    assert_eq!(applied(&basis, &longer), Err(FormatError::Trailing { offset: delta.len() as u64 }));
    let mut long_frame = signature[..56].to_vec();
    long_frame.extend_from_slice(&u32::MAX.to_le_bytes());
    assert_eq!(read(&long_frame), FormatError::FrameLength { offset: 56, len: u32::MAX });
}

#[test]
fn limits_hold() {
    let basis = noise(9, 100_000);
    let signature = signature_of(&basis, 1024);
    let error = read_signature(signature.as_slice(), 97).unwrap_err();
    assert!(matches!(error, StreamError::Format(FormatError::TooManyBlocks { max: 97 })));
    assert!(read_signature(signature.as_slice(), 98).is_ok());

    let (delta, _) = delta_of(&index_of(&signature), &basis);
    let apply = |max| {
        let options = ApplyOptions::new().max_len(max);
        apply(Cursor::new(&basis), delta.as_slice(), std::io::sink(), &options)
    };
    let error = apply(99_999).unwrap_err();
    assert!(matches!(error, StreamError::Format(FormatError::TooLong { max: 99_999 })));
    assert!(apply(100_000).is_ok());
}

#[test]
fn another_basis_is_rejected() {
    let basis = noise(10, 100_000);
    let (delta, _) = delta_of(&index_of(&signature_of(&basis, 1024)), &basis);
    let error = FormatError::BasisLength { expected: 100_000, found: 99_999 };
    assert_eq!(applied(&basis[1..], &delta), Err(error));
    assert_eq!(applied(&noise(11, 100_000), &delta), Err(FormatError::WrongRoot));
}

#[test]
fn delta_does_not_depend_on_other_jobs_with_its_signature() {
    let basis = noise(51, 1 << 20);
    // All of it lies behind what is sampled at the start of a period.
    let new = [noise(52, (1 << 20) + 1), basis.clone()].concat();
    let index = index_of(&signature_of(&basis, 8 << 10));
    let (alone, counts) = delta_of(&index, &new);
    assert_eq!(counts.matched_bytes, 1 << 20);

    // Another job reads so much noise meanwhile that it gives up rolling.
    let (mut out, mut theirs) = (Vec::new(), Vec::new());
    let mut writer = DeltaWriter::new(&index, &mut out);
    let mut other = DeltaWriter::new(&index, &mut theirs);
    let stretch = noise(53, 1 << 20);
    for _ in 0..66 {
        other.push(&stretch, &mut theirs);
        theirs.clear();
    }
    writer.push(&new, &mut out);
    writer.finish(&mut out);
    assert!(out == alone);

    // A job that begins makes the other roll no further.
    DeltaWriter::new(&index, &mut Vec::new()).finish(&mut Vec::new());
    other.push(&noise(54, (3 << 20) + (1 << 19)), &mut theirs);
    other.push(&basis, &mut theirs);
    assert_eq!(other.finish(&mut theirs).matched_bytes, 0);
}
