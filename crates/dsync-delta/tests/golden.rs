//! Golden bytes of the formats of streams: other bytes here mean another version.
//!
//! Not in the package: with `DSYNC_BLESS=1` it writes the seeds of the fuzz targets.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test")]

use std::{env, fs, io::Cursor, path::Path};

use dsync_delta::{
    BlockLen, Key,
    stream::{self, ApplyOptions, SignatureOptions, SignatureReader},
};

#[test]
fn golden_streams_of_version_1() {
    let basis: Vec<u8> = (0..2500_u32).flat_map(u32::to_le_bytes).take(2500).collect();
    let new = [b"new", &basis[1024..], &basis[..1024], &[0; 5000]].concat();
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();

    let key = Key::derive(&[b"source share", b"destination share"]);
    let options = SignatureOptions::new().block_len(BlockLen::new(1024).unwrap()).key(key);
    let mut signature = Vec::new();
    stream::signature(basis.as_slice(), &mut signature, &options).unwrap();
    assert_eq!(hex(&signature), SIGNATURE);

    let index = stream::read_signature(signature.as_slice(), SignatureReader::MAX_BLOCKS).unwrap();
    let mut delta = Vec::new();
    stream::delta(&index, new.as_slice(), &mut delta).unwrap();
    assert_eq!(hex(&delta), DELTA);

    let mut made = Vec::new();
    stream::apply(Cursor::new(&basis), delta.as_slice(), &mut made, &ApplyOptions::new()).unwrap();
    assert!(made == new);
    write_seeds(&signature, &delta);
}

/// Writes the fuzz targets' seeds, if asked to as in the tests of the wire.
fn write_seeds(signature: &[u8], delta: &[u8]) {
    if env::var_os("DSYNC_BLESS").is_none() {
        return;
    }
    let seeds = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds");
    // The first byte is the length of the reads.
    for (target, bytes) in [("delta_stream_signature", signature), ("delta_stream_apply", delta)] {
        fs::create_dir_all(seeds.join(target)).unwrap();
        fs::write(seeds.join(target).join("golden"), [&[9], bytes].concat()).unwrap();
    }
}

const SIGNATURE: &str = "4453594e4353494701000a0000000000382ec42feee3c48c70cdc32ebe99ec1290c0e39cd83696b0a43ec17ea1f4cfd14bf7ae98405ebca9240000009ee6c488b132a7c18033271fb7066306a2c9881b80211dd68cfc0191826f6dec3857f013b7b5210e3125451b00000000c409000000000000c5a0fcc47147dea6";
const DELTA: &str = "4453594e43444c5401000a0000000000382ec42feee3c48c70cdc32ebe99ec1290c0e39cd83696b0a43ec17ea1f4cfd1c40900000000000036b0a591a3f687c60b0000000c6e657709020505a29c01a978fec8f3f95211000000004f1d000000000000752395ba3a5668969c8444b2cc885b86e32cc3bbda3cdac2cfb0faea238e04d64af047fd4df0435d";
