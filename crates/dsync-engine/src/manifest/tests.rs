use proptest::prelude::*;

use super::*;

fn kind() -> impl Strategy<Value = FileType> {
    prop::sample::select(LETTERS.map(|(_, kind)| kind).to_vec())
}

fn name() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(any::<u8>(), 1..6).prop_filter("a name", |name| {
        !name.contains(&b'/') && !name.contains(&0) && !matches!(name.as_slice(), b"." | b"..")
    })
}

prop_compose! {
    fn record()(
        path in prop::collection::vec(name(), 0..4),
        kind in kind(),
        (mode, uid, gid) in (0..=0o7777_u16, any::<u32>(), any::<u32>()),
        (seconds, nanoseconds) in (any::<i64>(), 0..1_000_000_000_u32),
        size in any::<u64>(),
        text in prop::collection::vec(any::<u8>(), 0..6),
        content in prop::option::of(any::<[u8; 32]>()),
    ) -> Record {
        let is_file = kind == FileType::File;
        Record {
            path: path.join(&b'/').into(),
            kind,
            mode,
            uid,
            gid,
            mtime: Timestamp { seconds, nanoseconds },
            size: if is_file { size } else { 0 },
            text,
            content: content.filter(|_| is_file),
        }
    }
}

fn written(records: &[Record]) -> Vec<u8> {
    let mut writer = ManifestWriter::new(Vec::new()).unwrap();
    records.iter().for_each(|record| writer.push(record).unwrap());
    writer.finish().unwrap()
}

fn read(bytes: &[u8]) -> Result<Vec<Record>, ManifestError> {
    Records::new(bytes)?.collect()
}

fn sample() -> Vec<u8> {
    let file = |path: &str| Record {
        path: path.into(),
        kind: FileType::File,
        mode: 0o644,
        uid: 1,
        gid: 2,
        mtime: Timestamp { seconds: -5, nanoseconds: 7 },
        size: 3,
        text: Vec::new(),
        content: Some([0xab; 32]),
    };
    let link =
        Record { kind: FileType::Symlink, size: 0, content: None, text: b"to 100%".to_vec(), ..file("a b") };
    written(&[link, file("c"), file("c-d"), file("c/x")])
}

#[test]
fn a_manifest_has_this_form() {
    let text = sample();
    let lines: Vec<_> = text.split(|&byte| byte == b'\n').collect();
    assert_eq!(lines[0], b"dsync-manifest 1");
    assert_eq!(lines[1], b"l 644 1 2 -5.000000007 0 - a%20b to%20100%25");
    let hash = "ab".repeat(32);
    assert_eq!(lines[2], format!("f 644 1 2 -5.000000007 3 {hash} c").as_bytes());
    assert!(lines[5].starts_with(b"end 4 "));
}

#[test]
fn every_flipped_bit_and_every_cut_is_noticed() {
    let whole = sample();
    assert_eq!(read(&whole).unwrap().len(), 4);
    for at in 0..whole.len() {
        for bit in 0..8 {
            let mut damaged = whole.clone();
            damaged[at] ^= 1 << bit;
            assert!(read(&damaged).is_err(), "byte {at}, bit {bit}");
        }
        assert!(read(&whole[..at]).is_err(), "cut at {at}");
    }
    assert!(matches!(read(&[&whole[..], b"x"].concat()), Err(ManifestError::Damaged)));
    assert!(matches!(read(&whole[..whole.len() - 80]), Err(ManifestError::Truncated)));
}

#[test]
fn other_files_and_later_versions_are_named() {
    for foreign in [&b""[..], b"dsync-manifest", b"dsync-manifest 0\n", b"dsync-manifest x\n", b"\x7fELF\n"] {
        assert!(matches!(read(foreign), Err(ManifestError::Foreign)), "{foreign:?}");
    }
    let newer = read(b"dsync-manifest 2\nwhatever\n").unwrap_err();
    assert!(matches!(newer, ManifestError::Newer { version: 2 }), "{newer}");
    let long = [b"dsync-manifest 1\n".to_vec(), vec![b'x'; 4 << 20]].concat();
    assert!(matches!(read(&long), Err(ManifestError::Malformed { line: 2 })));
}

#[test]
fn a_record_out_of_order_or_twice_is_refused() {
    let whole = sample();
    let records = read(&whole).unwrap();
    let mut writer = ManifestWriter::new(Vec::new()).unwrap();
    writer.push(&records[1]).unwrap();
    for record in &records[..2] {
        assert!(matches!(writer.push(record), Err(ManifestError::Unsorted { line: 3 })));
    }
    let lines: Vec<_> = whole.split_inclusive(|&byte| byte == b'\n').collect();
    let swapped = [lines[0], lines[2], lines[1]].concat();
    assert!(matches!(read(&swapped), Err(ManifestError::Unsorted { line: 3 })));
}

proptest! {
    #[test]
    fn law_records_come_back_as_they_were_written(mut records in prop::collection::vec(record(), 0..8)) {
        records.sort_by(|one, other| compare_paths(&one.path, &other.path));
        records.dedup_by(|one, other| one.path == other.path);
        prop_assert_eq!(read(&written(&records)).unwrap(), records);
    }

    #[test]
    fn law_reading_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = read(&bytes);
        let _ = read(&[b"dsync-manifest 1\n", &bytes[..]].concat());
        let _ = Record::parse(&bytes);
    }

    #[test]
    fn law_paths_have_one_order(
        paths in prop::collection::vec(prop::collection::vec(name(), 0..3), 3),
    ) {
        let paths: Vec<_> = paths.into_iter().map(|names| names.join(&b'/')).collect();
        let [a, b, c] = [&paths[0], &paths[1], &paths[2]];
        prop_assert_eq!(compare_paths(a, b), compare_paths(b, a).reverse());
        prop_assert_eq!(compare_paths(a, b).is_eq(), a == b);
        if compare_paths(a, b).is_lt() && compare_paths(b, c).is_lt() {
            prop_assert!(compare_paths(a, c).is_lt());
        }
    }
}

#[test]
fn a_record_that_no_reader_takes_is_not_written() {
    let fifo = |path: &str| Record::new(path, FileType::Fifo);
    let most = usize::try_from(MAX_LINE).unwrap();
    for (record, is_taken) in [
        (fifo(&"x".repeat(most - 100)), true),
        (fifo(&"x".repeat(most)), false),
        (fifo(&" ".repeat(most / 2)), false),
        (fifo("a").text(vec![b'x'; most]), false),
        (fifo("a").mode(0o10000), false),
        (fifo("a/../b"), false),
        (fifo("a").size(1), false),
    ] {
        let mut writer = ManifestWriter::new(Vec::new()).unwrap();
        let pushed = writer.push(&record);
        assert_eq!(pushed.is_ok(), is_taken, "{}: {pushed:?}", record.path.len());
        assert!(is_taken || matches!(pushed, Err(ManifestError::Malformed { line: 2 })));

        // Nothing of it is there, and the writer goes on.
        assert_eq!(read(&writer.finish().unwrap()).unwrap().len(), usize::from(is_taken));
    }
}
