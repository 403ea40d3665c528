//! The bytes of version 1 never change: every sample equals its file under `tests/golden/wire-1`.
//!
//! `DSYNC_BLESS=1 cargo test -p dsync-wire` writes the files, and the fuzz targets' seeds from
//! them. Do that for new messages only. A changed file of a released version is a broken protocol.

use std::{collections::BTreeMap, env, fs, path::PathBuf};

use bytes::Bytes;
use dsync_wire::{
    bootstrap::{BootstrapMessage, Parsed},
    codec::{self, FRAME_HEADER},
    compress::Unpacker,
    kind::Kind,
    message::DataMessage,
};

use crate::{
    round_trip::{encode_control, encode_data},
    samples,
};

#[test]
fn samples_have_their_golden_bytes() {
    let made = encode_samples();
    let directory = golden_directory();
    if env::var_os("DSYNC_BLESS").is_some() {
        fs::create_dir_all(&directory).unwrap();
        for (name, bytes) in &made {
            fs::write(directory.join(format!("{name}.bin")), bytes).unwrap();
        }
        write_seeds();
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
    let control = samples::control().into_iter().map(|(name, message)| (name, encode_control(&message)));
    let data = samples::data().into_iter().map(|(name, message)| (name, encode_data(&message)));
    let mut made: Vec<_> = control.chain(data).collect();
    made.push(("records", codec::encode_records(&samples::records()).unwrap()));
    for (name, message) in samples::bootstrap() {
        let mut out = Vec::new();
        message.encode(&mut out).unwrap();
        made.push((name, out));
    }
    made
}

/// Writes the seeds, in the form that each fuzz target reads.
fn write_seeds() {
    let write = |target: &str, name: &str, bytes: &[u8]| {
        let directory = repository().join("fuzz/seeds").join(target);
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join(name), bytes).unwrap();
    };
    let mut lanes = [vec![9], vec![9]];
    for (name, message) in samples::control() {
        let frame = encode_control(&message);
        write("wire_control", name, &frame[4..]);
        lanes[0].extend(frame);
    }
    for (name, message) in samples::data() {
        let frame = encode_data(&message);
        write("wire_data", name, &frame[4..]);
        if let DataMessage::Batch { files: packed, .. } | DataMessage::Tokens(packed) = &message {
            let raw_len = (packed.raw_len as u16).to_le_bytes();
            write("wire_packed", name, &[&[packed.codec as u8], &raw_len[..], &packed.bytes].concat());
        }
        lanes[1].extend(frame);
    }
    write("wire_frame", "control", &lanes[0]);
    write("wire_frame", "data", &lanes[1]);
    write("wire_records", "records", &codec::encode_records(&samples::records()).unwrap());
    for (name, message) in samples::bootstrap() {
        let mut out = Vec::new();
        message.encode(&mut out).unwrap();
        write("wire_bootstrap", name, &out);
    }
}

/// A field that the samples leave at zero could be left out by the codec, and no byte would tell.
#[test]
fn samples_fill_every_count_of_the_account() {
    for name in ["report", "progress"] {
        let all = samples::control();
        let (_, message) = all.iter().find(|(sample, _)| *sample == name).unwrap();
        let text = format!("{message:?}");
        assert!(!text.contains(": 0,") && !text.contains(": 0 "), "{text}");
    }
}

fn golden_directory() -> PathBuf {
    repository().join("tests/golden/wire-1")
}

fn repository() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..")
}
