//! The bytes of version 1 never change: every sample equals its file under `tests/golden/wire-1`.
//!
//! `DSYNC_BLESS=1 cargo test -p dsync-wire` writes the files; do that for new messages only. A changed
//! file of a released version is a broken protocol.

use std::{collections::BTreeMap, env, fs, path::PathBuf};

use bytes::Bytes;
use dsync_wire::{
    bootstrap::{BootstrapMessage, Parsed},
    codec::{self, FRAME_HEADER},
    compress::{Packer, Unpacker},
    kind::Kind,
};

use crate::samples;

#[test]
fn samples_have_their_golden_bytes() {
    let made = encode_samples();
    let directory = golden_directory();
    if env::var_os("DSYNC_BLESS").is_some() {
        fs::create_dir_all(&directory).unwrap();
        for (name, bytes) in &made {
            fs::write(directory.join(format!("{name}.bin")), bytes).unwrap();
        }
    }
    let mut kept = BTreeMap::new();
    for file in fs::read_dir(&directory).unwrap() {
        let path = file.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        kept.insert(name, fs::read(&path).unwrap());
    }
    for (name, bytes) in &made {
        let golden = kept.remove(*name).unwrap_or_else(|| panic!("no golden file for {name}"));
        assert_eq!(golden.escape_ascii().to_string(), bytes.escape_ascii().to_string(), "{name}");
    }
    assert!(kept.is_empty(), "golden files without a sample: {:?}", kept.keys());
}

#[test]
fn golden_bytes_decode_to_their_samples() {
    let read = |name: &str| fs::read(golden_directory().join(format!("{name}.bin"))).unwrap();
    for (name, message) in samples::control() {
        let bytes = read(name);
        let decoded = codec::decode_control(Kind(bytes[4]), &bytes[FRAME_HEADER..], 5, &mut Unpacker::new());
        assert_eq!(decoded.unwrap(), message, "{name}");
    }
    for (name, message) in samples::data() {
        let payload = Bytes::from(read(name).split_off(FRAME_HEADER));
        assert_eq!(codec::decode_data(message.kind(), &payload, 5).unwrap(), message, "{name}");
    }
    assert_eq!(codec::decode_records(&read("records").into()).unwrap(), samples::records());
    for (name, message) in samples::bootstrap() {
        let bytes = read(name);
        let whole = Parsed::Complete { message, consumed: bytes.len() };
        assert_eq!(BootstrapMessage::parse(&bytes).unwrap(), whole, "{name}");
    }
}

#[test]
fn every_kind_has_a_sample() {
    let control: Vec<_> = samples::control().iter().map(|(_, message)| message.kind()).collect();
    let data: Vec<_> = samples::data().iter().map(|(_, message)| message.kind()).collect();
    assert!(Kind::control().all(|kind| control.contains(&kind)));
    assert!(Kind::data().all(|kind| data.contains(&kind)));
}

fn encode_samples() -> Vec<(&'static str, Vec<u8>)> {
    let mut made = Vec::new();
    for (name, message) in samples::control() {
        let mut out = Vec::new();
        codec::encode_control(&message, &mut Packer::new(), &mut out).unwrap();
        made.push((name, out));
    }
    for (name, message) in samples::data() {
        let mut out = Vec::new();
        let tail = codec::encode_data(&message, &mut out).unwrap().cloned().unwrap_or_default();
        out.extend_from_slice(&tail);
        made.push((name, out));
    }
    made.push(("records", codec::encode_records(&samples::records()).unwrap()));
    for (name, message) in samples::bootstrap() {
        let mut out = Vec::new();
        message.encode(&mut out).unwrap();
        made.push((name, out));
    }
    made
}

fn golden_directory() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/wire-1")
}
