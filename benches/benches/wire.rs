//! The codec and frame compression: bytes of input per second on one core.
//!
//! Input: a listing of 4,096 photographs with names as a camera makes them, a batch of 64 files of
//! 4 KiB, and pieces of 256 KiB of noise, text or zeros.
#![allow(
    clippy::unwrap_used,
    missing_docs,
    reason = "a bench fails by panicking; criterion's macros make functions"
)]

use std::hint::black_box;

use bytes::Bytes;
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use dsync_wire::{
    codec::{FRAME_HEADER, decode_control, decode_records, encode_control, encode_records},
    compress::{Effort, Packer, Unpacker},
    kind::Kind,
    limits::MAX_RAW_FRAME,
    message::{Attributes, ControlMessage, Entry, EntryId, EntryKind, Listing, Record, Timestamp},
    name::Name,
};

fn listings(criterion: &mut Criterion) {
    let message = ControlMessage::Listing(listing());
    let mut frame = Vec::new();
    encode_control(&message, &mut Packer::new(), &mut frame).unwrap();
    let mut group = criterion.benchmark_group("listing of 4096 files");
    group.throughput(Throughput::Elements(4096));
    group.bench_function("encode", |bench| {
        let mut packer = Packer::new();
        let mut out = Vec::new();
        bench.iter(|| {
            out.clear();
            encode_control(black_box(&message), &mut packer, &mut out).unwrap();
        });
    });
    group.bench_function("decode", |bench| {
        let mut unpacker = Unpacker::new();
        bench.iter(|| {
            decode_control(Kind::LISTING, black_box(&frame[FRAME_HEADER..]), 0, &mut unpacker).unwrap()
        });
    });
    group.finish();
}

fn records(criterion: &mut Criterion) {
    let records: Vec<_> = (0..64)
        .map(|number| Record {
            entry: EntryId(number),
            attempt: 0,
            outcome: Ok(time(number)),
            content: Bytes::from(noise(4096)),
        })
        .collect();
    let raw = Bytes::from(encode_records(&records).unwrap());
    let mut group = criterion.benchmark_group("batch of 64 files");
    group.throughput(Throughput::Bytes(raw.len() as u64));
    group.bench_function("encode", |bench| bench.iter(|| encode_records(black_box(&records)).unwrap()));
    group.bench_function("decode", |bench| bench.iter(|| decode_records(black_box(&raw)).unwrap()));
    group.finish();
}

fn pieces(criterion: &mut Criterion) {
    const LEN: usize = 256 << 10;
    let sentence = b"It was a bright cold day in April, and the clocks were striking thirteen. ";
    let inputs =
        [("noise", noise(LEN)), ("text", sentence.repeat(LEN / sentence.len())), ("zeros", vec![0; LEN])];
    let mut group = criterion.benchmark_group("piece of 256 KiB");
    for (name, input) in inputs {
        let input = Bytes::from(input);
        group.throughput(Throughput::Bytes(input.len() as u64));
        for (effort, label) in [(Effort::Raw, "raw"), (Effort::Lz4, "lz4"), (Effort::Zstd(1), "zstd 1")] {
            let mut packer = Packer::new();
            group.bench_function(format!("pack {name}, {label}"), |bench| {
                bench.iter(|| packer.pack(black_box(input.clone()), effort));
            });
            let packed = packer.pack(input.clone(), effort);
            let mut unpacker = Unpacker::new();
            group.bench_function(format!("unpack {name}, {label}"), |bench| {
                bench.iter(|| unpacker.unpack(black_box(&packed), MAX_RAW_FRAME).unwrap());
            });
        }
    }
    group.finish();
}

fn listing() -> Listing {
    let entries = (0..4096)
        .map(|number| Entry {
            name: Name::new(format!("IMG_{number:05}.jpeg").as_bytes()).unwrap(),
            kind: EntryKind::File { size: 2_000_000 + number * 997, content: None },
            attributes: Attributes {
                mode: 0o644,
                mtime: time(number),
                uid: 1000,
                gid: 1000,
                ..Attributes::default()
            },
            hard_link: None,
            implied: false,
        })
        .collect();
    Listing { dir: EntryId(0), last: true, complete: true, left_out: false, entries }
}

fn time(number: u64) -> Timestamp {
    let seconds = 1_700_000_000 + i64::try_from(number * 37 % 5000).unwrap_or_default();
    Timestamp { seconds, nanoseconds: u32::try_from(number * 7_919_999 % 1_000_000_000).unwrap_or_default() }
}

/// Returns incompressible bytes.
fn noise(len: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut out = Vec::with_capacity(len + 8);
    while out.len() < len {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        out.extend(state.wrapping_mul(0x2545_f491_4f6c_dd1d).to_le_bytes());
    }
    out.truncate(len);
    out
}

criterion_group!(benches, listings, records, pieces);
criterion_main!(benches);
