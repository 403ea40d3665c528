//! The bytes that a peer may not send, and the resulting sentences (rows B38 to B52 of the table of
//! bad input; frame lengths and ends are in `frames`, order in `order`).

use bytes::Bytes;
use dsync_wire::{
    DecodeError, codec,
    compress::Unpacker,
    kind::Kind,
    limits::{
        MAX_BATCH_RECORDS, MAX_LISTING_ENTRIES, MAX_OPERAND, MAX_OPERANDS, MAX_OPTIONS, MAX_PATH,
        MAX_RAW_FRAME, MAX_SUMS,
    },
    message::{ControlMessage, Entry, EntryId, EntryKind, HardLink, Listing, Names, Record, Timestamp},
};

use crate::{
    round_trip::{decode_control, encode_control},
    samples,
};

#[test]
fn integers_have_one_form() {
    // B40: overlong, too long, too large for 64 bits.
    for bytes in [
        &[0x80, 0x00][..],
        &[0xff, 0x80, 0x00],
        &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02],
        &[0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x01],
    ] {
        let error = refuse(Kind::LISTING_DONE, bytes);
        assert_eq!(error, "malformed integer at offset 5 (message ListingDone)");
    }
    let largest = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01];
    assert_eq!(control(Kind::LISTING_DONE, &largest), Ok(ControlMessage::ListingDone { part: u64::MAX }));
}

#[test]
fn fields_must_be_whole() {
    assert_eq!(refuse(Kind::NEED, &[]), "message Need ends inside its entry number (offset 5)");
    assert_eq!(refuse(Kind::NEED, &[0x80]), "message Need ends inside its entry number (offset 6)");
    assert_eq!(refuse(Kind::HELLO, &[1, 0, 0]), "message Hello ends inside its features (offset 6)");
    assert_eq!(refuse(Kind::FATAL, &[1, 9, b'x']), "message Fatal ends inside its text (offset 7)");
    assert!(refuse(Kind::FATAL, &[1, 1, b'x', 19]).contains("reason"));
}

#[test]
fn nothing_may_follow_a_message() {
    for (name, message) in samples::control() {
        // These end with whatever is left.
        use ControlMessage::{Listing, Ready, Refine, StartPart, Sums};
        let may_have_reason = matches!(&message, ControlMessage::Fatal(fatal) if fatal.reason.is_none());
        if may_have_reason
            || matches!(message, Sums(_) | Refine(_) | Listing(_) | Ready { .. } | StartPart { .. })
        {
            continue;
        }
        let mut bytes = encode_control(&message);
        bytes.extend([0; 3]);
        let sentence = format!("3 unread bytes after message {}", message.name());
        assert_eq!(decode_control(&bytes).unwrap_err().to_string(), sentence, "{name}");
    }
    let mut content = vec![1];
    content.extend(entry(b"a", &[]));
    content.push(0);
    assert_eq!(refuse_listing(&content), "1 unread bytes after message Listing");
}

#[test]
fn names_are_single_components() {
    for (name, shown) in [
        (&b".."[..], ".."),
        (b".", "."),
        (b"a/b", "a/b"),
        (b"", ""),
        (b"a\0b", "a\\x00b"),
        (b"\x1b[2J/", "\\x1b[2J/"),
    ] {
        let mut content = vec![1];
        content.extend(entry(name, &[]));
        let sentence = format!("peer sent an invalid name '{shown}'; session ended");
        // An empty name makes the entry shorter than the minimum; padding lets the decoder reach
        // the name.
        content.push(0);
        assert_eq!(refuse_listing(&content), sentence);
    }
    let mut content = vec![1];
    content.extend(entry(&[b'x'; 256], &[]));
    assert!(refuse_listing(&content).starts_with("peer sent an invalid name 'xxx"));
    let mut content = vec![1];
    content.extend(entry(&[b'x'; 257], &[]));
    assert_eq!(refuse_listing(&content), "message Listing: name 257 exceeds the limit 256 (offset 4)");
}

#[test]
fn names_ascend_within_a_listing() {
    for (first, second) in [(&b"b"[..], &b"a"[..]), (b"a", b"a"), (b"ab", b"a")] {
        let mut content = vec![2];
        content.extend(entry(first, &[]));
        content.extend(entry(second, &[]));
        content.push(0);
        let error = refuse_listing(&content);
        let name = second.escape_ascii();
        assert_eq!(error, format!("entry 1: its name '{name}' repeats or precedes the name before it"));
    }
    // A name that declares a shorter shared part than it has could hide its order: refused as well.
    let mut content = vec![2];
    content.extend(entry(b"ab", &[]));
    content.extend(entry(b"ac", &[]));
    assert!(refuse_listing(&content).starts_with("entry 1: its name"));
    // And one that shares more than exists.
    let content = [1, 8 | 16, 1, 1, b'a', 0, 0];
    let sentence = "message Listing: shared part of the name 1 exceeds the limit 0 (offset 3)";
    assert_eq!(refuse_listing(&content), sentence);
}

#[test]
fn attributes_are_checked() {
    // Tops with a root: flags, mode, seconds, nanoseconds, uid, gid, no lists, named.
    let mode = refuse(Kind::TOPS, &[1, 0x80, 0x20, 0, 0, 0, 0, 0, 0]);
    assert_eq!(mode, "entry 0: invalid mode 0o10000");
    let nanoseconds = refuse(Kind::TOPS, &[1, 0, 0, 0x80, 0x94, 0xeb, 0xdc, 0x03, 0, 0, 0, 0]);
    assert_eq!(nanoseconds, "entry 0: invalid timestamp");
    // The same in a listing, at the second entry.
    let mut content = vec![2];
    content.extend(entry(b"a", &[]));
    content.extend([8 | 16 | 32, 0, 1, b'b', 0]);
    content.extend(1_000_000_000_u32.to_le_bytes());
    content.push(0);
    assert_eq!(refuse_listing(&content), "entry 1: invalid timestamp");
    let content = [1, 16, 0, 1, b'a', 0x80, 0x20, 0, 0];
    assert_eq!(refuse_listing(&content), "entry 0: invalid mode 0o10000");
}

#[test]
fn lists_and_attributes_are_checked() {
    let refuse_set = |set: &[u8]| {
        let error = refuse_sets(&[&[1][..], set, &[0; 40]].concat());
        error.strip_prefix("message Listing: ").unwrap_or(&error).to_owned()
    };
    for (set, sentence) in [
        (&[4][..], "flags has no meaning for value 4 (offset 1)"),
        (&[1, 8, 0, 8, 0, 0, 0], "permissions has no meaning for value 8 (offset 2)"),
        (&[1, 7, 0, 9, 0, 0, 0], "mask has no meaning for value 9 (offset 4)"),
        (&[1, 7, 0, 8, 0, 2, 5, 7, 5, 7], "number in a list has no meaning for value 5 (offset 9)"),
        (&[1, 7, 0, 8, 0, 1, 5, 8], "permissions has no meaning for value 8 (offset 8)"),
        (&[0, 1, 0, 0, 0], "name of an attribute has no meaning for value 0 (offset 3)"),
        (&[0, 1, 1, 0, 0], "name of an attribute has no meaning for value 1 (offset 3)"),
        (&[0, 2, 1, b'b', 0, 1, b'b', 0], "name of an attribute has no meaning for value 1 (offset 6)"),
        (&[0, 1, 1, b'a', 0x81, 0x80, 0x04], "attribute 65537 exceeds the limit 65536 (offset 5)"),
    ] {
        assert_eq!(refuse_set(set), sentence);
    }
    // An entry with a set that does not exist.
    let error = refuse_sets(&[1, 0, 0, 1, 128 | 8 | 16, 1, 0, 1, b'a', 0, 1, 0]);
    assert_eq!(error, "message Listing: number of an attribute set has no meaning for value 1 (offset 10)");
}

#[test]
fn sizes_are_below_two_to_the_63() {
    let mut content = vec![1];
    content.extend([8 | 16, 0, 1, b'a', 0]);
    content.extend(leb(1 << 63));
    let error = refuse_listing(&content);
    assert!(error.starts_with("message Listing: file size 9223372036854775808 exceeds the limit"), "{error}");
}

#[test]
fn unknown_flags_of_what_was_done_are_refused() {
    let sentence = "message Event: flags has no meaning for value 16 (offset 6)";
    assert_eq!(refuse(Kind::EVENT, &[9, 16]), sentence);
}

#[test]
fn unknown_values_are_refused() {
    for (kind, payload, sentence) in [
        (Kind::START, &[4][..], "message Start: role has no meaning for value 4 (offset 5)"),
        (Kind::TOPS, &[4, 0], "message Tops: flags has no meaning for value 4 (offset 5)"),
        (Kind::ID_NAME, &[2, 0, 1, b'a'], "message IdName: flag has no meaning for value 2 (offset 5)"),
        (Kind::ID_NAME, &[0, 0, 0], "message IdName: name has no meaning for value 0 (offset 7)"),
        (Kind::PROBLEM, &[99, 1, 0], "message Problem: operation has no meaning for value 99 (offset 5)"),
        (Kind::PROBLEM, &[0, 18, 0], "message Problem: cause has no meaning for value 18 (offset 6)"),
        (Kind::EVENT, &[12], "message Event: type of event has no meaning for value 12 (offset 5)"),
        (Kind::RULING, &[8, 0, 0], "message Ruling: reason has no meaning for value 8 (offset 5)"),
        (
            Kind::RULING,
            &[0, 0, 0, 3],
            "message Ruling: place of a rule has no meaning for value 3 (offset 8)",
        ),
        (Kind::EVENT, &[4, 0, 5, 0], "message Event: reason has no meaning for value 5 (offset 7)"),
        (Kind::EVENT, &[0, 7, 0, 0, 0, 0, 0], "message Event: action has no meaning for value 7 (offset 6)"),
        (
            Kind::EVENT,
            &[0, 0, 7, 0, 0, 0, 0],
            "message Event: type of entry has no meaning for value 7 (offset 7)",
        ),
        (
            Kind::EVENT,
            &[0, 0, 0, 0x80, 0x80, 2, 0, 0, 0],
            "message Event: changes has no meaning for value 32768 (offset 8)",
        ),
        (Kind::SUMS, &[0, 2], "message Sums: flag has no meaning for value 2 (offset 6)"),
        (Kind::LISTING, &[0, 8, 0, 0], "message Listing: flags has no meaning for value 8 (offset 6)"),
        (Kind::LISTING, &[0, 0, 4, 0], "message Listing: codec has no meaning for value 4 (offset 7)"),
    ] {
        assert_eq!(refuse(kind, payload), sentence);
    }
    assert_eq!(
        refuse_listing(&[1, 23, 0, 1, b'a', 1, 0]),
        "message Listing: hidden entry has no meaning for value 23 (offset 2)"
    );
    assert_eq!(
        refuse_listing(&[1, 128, 128, 0, 1, b'a', 0, 0]),
        "message Listing: flags has no meaning for value 128 (offset 3)"
    );
    assert_eq!(
        refuse_listing(&[1, 128 | 8 | 16, 6, 0, 1, b'a', 0, 0]),
        "message Listing: flags has no meaning for value 6 (offset 3)",
        "first name and another one"
    );
    for flag in [2, 4] {
        assert_eq!(
            refuse_listing(&[1, 128 | 8 | 16 | 1, flag, 0, 1, b'a', 0, 0]),
            format!("message Listing: flags has no meaning for value {flag} (offset 3)"),
            "a directory with several names"
        );
    }
    assert_eq!(
        refuse_listing(&[1, 64 | 8 | 16 | 1, 0, 1, b'a', 0, 0]),
        "message Listing: flags has no meaning for value 89 (offset 2)"
    );
    assert_eq!(
        refuse_listing(&[1, 2 | 8 | 16, 0, 1, b'a', 0, 1, 0]),
        "message Listing: link text has no meaning for value 1 (offset 7)"
    );
}

#[test]
fn options_beyond_their_bounds_are_refused() {
    let no_meaning = "has no meaning for value 0 (offset 21)";
    for (options, sentence) in [
        (r#"{"filters":FILTERS}"#, "number of filters 65537 exceeds the limit 65536 (offset 21)".to_owned()),
        (
            r#"{"filters":[{"include":true,"pattern":LONG}]}"#,
            "filter 5000 exceeds the limit 4096 (offset 21)".to_owned(),
        ),
        (
            r#"{"mode-rules":[{"files":true,"directories":true,"if-executable":false,"keep":4096,"set":0}]}"#,
            "mode rule 4096 exceeds the limit 4095 (offset 21)".to_owned(),
        ),
        (
            r#"{"id-rules":[{"group":true,"from":{"numbers":[0,1]},"to":{"name":LONG}}]}"#,
            "owner rule 5000 exceeds the limit 256 (offset 21)".to_owned(),
        ),
        (
            r#"{"max-delete":{"percent":101}}"#,
            "deletion limit 101 exceeds the limit 100 (offset 21)".to_owned(),
        ),
        (
            r#"{"compression":{"zstd":20}}"#,
            "compression level 20 exceeds the limit 19 (offset 21)".to_owned(),
        ),
        (r#"{"compression":{"zstd":0}}"#, format!("compression level {no_meaning}")),
        (r#"{"writing":{"backup":{"dir":null,"suffix":""}}}"#, format!("backup suffix {no_meaning}")),
        (r#"{"writing":{"backup":{"dir":null,"suffix":"/a"}}}"#, format!("backup suffix {no_meaning}")),
        (r#"{"writing":{"backup":{"dir":[97,0],"suffix":"a"}}}"#, format!("directory {no_meaning}")),
        (r#"{"writing":{"partial-dir":"a/b"}}"#, format!("directory of unfinished files {no_meaning}")),
        (r#"{"writing":{"temp-dir":""}}"#, format!("directory of temporaries {no_meaning}")),
        (r#"{"writing":{"partial-dir":".."}}"#, format!("directory of unfinished files {no_meaning}")),
        (
            r#"{"writing":{"alternates":{"way":"link","dirs":[]}}}"#,
            format!("number of alternate directories {no_meaning}"),
        ),
        (
            r#"{"writing":{"alternates":{"way":"copy","dirs":[LONG]}}}"#,
            "directory 5000 exceeds the limit 4095 (offset 21)".to_owned(),
        ),
    ] {
        let filters = format!("[{}]", vec![r#"{"include":true,"pattern":""}"#; 65_537].join(","));
        let text = options.replace("FILTERS", &filters).replace("LONG", &format!("\"{}\"", "x".repeat(5000)));
        assert_eq!(refuse_options(text.as_bytes()), format!("message Start: {sentence}"));
    }
}

#[test]
fn options_that_are_not_understood_are_named() {
    for (options, detail) in [
        (&br#"{"time-travel":true}"#[..], "unknown field `time-travel`"),
        (br#"{"writing":{"undo":1}}"#, "unknown field `undo`"),
        (br#"{"durability":"sometimes"}"#, "unknown variant `sometimes`"),
        (br#"{"recursive":1}"#, "invalid type: integer `1`, expected a boolean"),
        (br#"{"recursive":true,"recursive":true}"#, "duplicate field `recursive`"),
        (br#"{"min-size":-1}"#, "invalid value: integer `-1`, expected u64"),
        (b"{} {}", "trailing characters"),
        (b"{", "EOF while parsing"),
        (b"\xff", "expected value"),
    ] {
        let error = refuse_options(options);
        let start = format!("message Start: its options are not understood: {detail}");
        assert!(error.starts_with(&start), "{error}");
        assert!(error.ends_with("(offset 21)"), "{error}");
    }
    assert!(refuse_options("{\"\u{1b}[2J\":1}".as_bytes()).is_ascii());
}

#[test]
fn a_start_without_lanes_is_refused() {
    let mut payload = up_to_the_options();
    *payload.last_mut().unwrap() = 0;
    let error = refuse(Kind::START, &payload);
    assert_eq!(error, "message Start: number of data lanes has no meaning for value 0 (offset 20)");
}

/// Returns the error for a `Start` with these options.
fn refuse_options(options: &[u8]) -> String {
    let payload = [up_to_the_options(), leb(options.len() as u64), options.to_vec()].concat();
    refuse(Kind::START, &payload)
}

/// Makes the payload of a `Start`: role, a path of 12 bytes, no names, one data lane.
fn up_to_the_options() -> Vec<u8> {
    [&[1, 12][..], b"/srv/mirror/", &[0, 1]].concat()
}

#[test]
fn what_a_destination_may_get_is_checked() {
    let names = |names: &[&[u8]]| {
        let names = names.iter().map(|name| [leb(name.len() as u64), name.to_vec()].concat());
        [&[1, 1, b'd'][..], &leb(names.len() as u64), &names.collect::<Vec<_>>().concat()].concat()
    };
    for (payload, sentence) in [
        (names(&[b"a", b".."]), "peer sent an invalid name '..'"),
        (names(&[b"a/b"]), "peer sent an invalid name 'a/b'"),
        (names(&[b"", b"aaaa"]), "peer sent an invalid name ''"),
        (names(&[&[b'x'; 256]]), "peer sent an invalid name 'xxx"),
        (names(&[&[b'x'; 200][..]; 3000]), "message Start: size of names 524400 exceeds the limit 524288"),
        (names(&[&b"x"[..]; 4097]), "message Start: number of names 4097 exceeds the limit 4096"),
        (vec![4, 1, 1, b'a'], "message Start: role has no meaning for value 4"),
        (vec![8, 1, 1, b'a'], "message Start: role has no meaning for value 8"),
    ] {
        let error = refuse(Kind::START, &payload);
        assert!(error.starts_with(sentence), "{error}");
    }
}

#[test]
fn signature_headers_are_checked() {
    for block_len in [0, 1, 512, 8191, 8 << 20, 1 << 31, 1 << 40] {
        let mut payload = vec![1, 0, 0];
        payload.extend(leb(block_len));
        let sentence = format!("invalid signature header: block length {block_len}");
        assert_eq!(refuse(Kind::NEED_DELTA, &payload), sentence);
    }
    let payload = [1, 0].into_iter().chain(leb(1 << 63)).chain(leb(8192)).collect::<Vec<_>>();
    assert!(
        refuse(Kind::NEED_DELTA, &payload).contains("basis length 9223372036854775808 exceeds the limit")
    );
}

#[test]
fn segments_lie_in_their_files() {
    // Entry, attempt, state, file length, log2, index, lead.
    let segment = |file_len: u64, log2: u8, index: u64, lead: u64| {
        let payload: Vec<u8> = [7, 0]
            .into_iter()
            .chain([6; 16])
            .chain(leb(file_len))
            .chain([log2])
            .chain(leb(index))
            .chain(leb(lead))
            .collect();
        codec::decode_data(Kind::SEGMENT, &payload.into(), 5).map_err(|error| error.to_string())
    };
    assert!(segment(0, 20, 0, 0).is_ok());
    assert!(segment(1 << 20, 20, 0, 0).is_ok());
    assert!(segment((1 << 20) + 1, 20, 1, 1023).is_ok());
    let outside =
        |index| format!("file 7: segment {index} of 2^20 bytes lies outside a file of 1048576 bytes");
    assert_eq!(segment(1 << 20, 20, 1, 0), Err(outside(1)));
    assert_eq!(segment(1 << 20, 20, u64::MAX, 0), Err(outside(u64::MAX)));
    assert!(segment(1 << 20, 20, 0, 1).is_err(), "a lead before the file");
    assert!(segment(1 << 30, 20, 9, 4 << 20).is_err(), "a lead of a whole block");
    assert!(segment(1 << 63, 20, 0, 0).is_err());
    for log2 in [0, 19, 27, 63, 64, 255] {
        let sentence = format!("message Segment: segment length has no meaning for value {log2} (offset 26)");
        assert_eq!(segment(1 << 20, log2, 0, 0), Err(sentence));
    }
}

#[test]
fn holes_are_in_order_and_in_a_segment() {
    // Count, then distance and length of each.
    let holes = |numbers: &[u64]| {
        let payload: Vec<u8> = numbers.iter().flat_map(|&number| leb(number)).collect();
        codec::decode_data(Kind::HOLES, &payload.into(), 5).map_err(|error| error.to_string())
    };
    assert!(holes(&[2, 0, 1, 0, (1 << 26) - 1]).is_ok());
    let refused = |len| Err(format!("message Holes: hole has no meaning for value {len} (offset 6)"));
    assert_eq!(holes(&[1, 0, 0]), refused(0));
    assert_eq!(holes(&[1, 1, 1 << 26]), refused(1 << 26));
    assert_eq!(holes(&[1, u64::from(u32::MAX), 1]), refused(1));
    assert!(holes(&[0]).is_err());
    assert!(holes(&[16_385]).unwrap_err().contains("exceeds the limit 16384"));
}

#[test]
fn counts_and_lengths_are_checked_before_memory_is_taken() {
    let huge = leb(u64::MAX);
    for (kind, prefix) in [
        (Kind::START, &[0][..]),
        (Kind::START, &[1]),
        (Kind::FATAL, &[1]),
        (Kind::ID_NAME, &[0, 0]),
        (Kind::PROBLEM, &[0, 1]),
        (Kind::EVENT, &[0, 0, 0, 0]),
        (Kind::EVENT, &[0, 0, 0, 0, 0]),
    ] {
        let error = refuse(kind, &[prefix, &huge].concat());
        assert!(error.contains("18446744073709551615 exceeds the limit"), "{error}");
    }
    // Within the limit, but more bytes than follow.
    for (kind, prefix, count) in [
        (Kind::START, &[0][..], MAX_OPERANDS),
        (Kind::START, &[1], MAX_OPERAND),
        (Kind::START, &up_to_the_options(), MAX_OPTIONS),
        (Kind::EVENT, &[0, 0, 0, 0], MAX_PATH),
    ] {
        let error = refuse(kind, &[prefix, &leb(count as u64)].concat());
        assert!(error.contains("ends inside its"), "{error}");
    }
    let error = refuse_listing(&leb(MAX_LISTING_ENTRIES as u64));
    assert!(error.contains("ends inside its number of entries"), "{error}");
    let error = refuse_listing(&leb(MAX_LISTING_ENTRIES as u64 + 1));
    assert!(error.contains("number of entries 4097 exceeds the limit 4096"), "{error}");
    let error = refuse(Kind::SUMS, &vec![0; MAX_SUMS + 3]);
    assert_eq!(error, "message Sums: size of sums 262145 exceeds the limit 262144 (offset 7)");
}

#[test]
fn sums_of_lengths_are_bounded() {
    // 4200 operands of 4000 bytes each are within their own limits.
    let operand = [leb(4000), vec![b'x'; 4000]].concat();
    let payload = [&[0][..], &leb(4200), &operand.repeat(4200)].concat();
    let error = codec::decode_start(&payload).unwrap_err().to_string();
    assert!(error.contains("size of operands 16780000 exceeds the limit 16777216"), "{error}");
    let filter = format!(r#"{{"include":true,"pattern":"{}"}}"#, "*".repeat(4000));
    let options = format!(r#"{{"filters":[{}]}}"#, vec![filter; 600].join(","));
    let error = refuse_options(options.as_bytes());
    assert!(error.contains("size of filters 2400000 exceeds the limit 2097152"), "{error}");
}

#[test]
fn encoders_refuse_what_decoders_would() {
    let entries = vec![samples::file(b"b", 1), samples::file(b"a", 1)];
    assert!(!encodes(&ControlMessage::Listing(Listing {
        dir: EntryId(0),
        last: true,
        complete: true,
        left_out: false,
        entries
    })));
    let good = samples::file(b"a", 1);
    let link = |target: &[u8]| samples::entry(b"a", EntryKind::Symlink { target: target.to_vec() });
    let attributes = |mode, seconds, nanoseconds| {
        let mut entry = good.clone();
        entry.attributes = samples::attributes(mode, seconds, nanoseconds);
        entry
    };
    let mut read_directory = samples::directory(b"a");
    read_directory.attributes.atime = Some(Timestamp { seconds: 5, nanoseconds: 0 });
    let linked_directory = Entry { hard_link: Some(HardLink::First), ..samples::directory(b"a") };
    for bad in [
        samples::file(b"a", 1 << 63),
        link(b"a\0"),
        link(&[b'a'; 4096]),
        attributes(0o10000, 0, 0),
        attributes(0, 0, 1_000_000_000),
        linked_directory,
        read_directory,
    ] {
        let entries = vec![bad.clone()];
        let listing = Listing { dir: EntryId(0), last: true, complete: true, left_out: false, entries };
        assert!(!encodes(&ControlMessage::Listing(listing)), "{bad:?}");
    }
    let mut out = vec![1, 2, 3];
    let message = dsync_wire::message::DataMessage::LaneStart { lane: 64 };
    assert!(codec::encode_data(&message, &mut out).is_err());
    assert_eq!(out, [1, 2, 3], "a refused message leaves nothing behind");
}

#[test]
fn batches_are_bounded() {
    let record = samples::records().remove(1);
    let records = vec![record.clone(); MAX_BATCH_RECORDS + 1];
    assert!(codec::encode_records(&records).is_err());
    let raw = codec::encode_records(&records[1..]).unwrap();
    assert_eq!(codec::decode_records(&Bytes::from(raw.clone())).unwrap().len(), MAX_BATCH_RECORDS);
    let more = [raw, codec::encode_records(&[record]).unwrap()].concat();
    let error = codec::decode_records(&more.into()).unwrap_err();
    assert!(
        error.to_string().starts_with("message Batch: number of files 4097 exceeds the limit 4096"),
        "{error}"
    );
    let content = Bytes::from(vec![0; MAX_RAW_FRAME as usize]);
    assert!(codec::encode_records(&[Record { content, ..samples::records().remove(0) }]).is_err());
}

#[test]
fn compressed_listings_are_bounded() {
    // Codec zstd, raw length beyond the limit.
    let payload = [&[0, 3, 3][..], &leb(u64::from(MAX_RAW_FRAME) + 1), &[0; 9]].concat();
    let sentence = "message Listing: raw length 1048577 exceeds the limit 1048576 (offset 8)";
    assert_eq!(refuse(Kind::LISTING, &payload), sentence);
    // A megabyte of zeros: far more entries than fit, refused at the count.
    let payload = [&[0, 3, 1][..], &leb(u64::from(MAX_RAW_FRAME))].concat();
    assert!(refuse(Kind::LISTING, &payload).contains("unread bytes"));
}

fn encodes(message: &ControlMessage) -> bool {
    let mut out = Vec::new();
    let encoded = codec::encode_control(message, &mut dsync_wire::compress::Packer::new(), &mut out).is_ok();
    assert_eq!(encoded, !out.is_empty());
    encoded
}

/// Decodes the payload of a lane's first frame.
fn control(kind: Kind, payload: &[u8]) -> Result<ControlMessage, DecodeError> {
    codec::decode_control(kind, payload, 5, &mut Unpacker::new())
}

fn refuse(kind: Kind, payload: &[u8]) -> String {
    control(kind, payload).unwrap_err().to_string()
}

/// Returns the error for the raw content of a listing. The entries have no lists and attributes.
fn refuse_listing(entries: &[u8]) -> String {
    refuse_sets(&[&[0][..], entries].concat())
}

fn refuse_sets(content: &[u8]) -> String {
    refuse(Kind::LISTING, &[&[0, 3, 0][..], &leb(content.len() as u64), content].concat())
}

/// Encodes a file that shares only mode and owner with the one before.
fn entry(name: &[u8], rest: &[u8]) -> Vec<u8> {
    [&[8 | 16, 0][..], &leb(name.len() as u64), name, &[0, 0], rest].concat()
}

/// Encodes LEB128, independently of the code under test.
fn leb(mut value: u64) -> Vec<u8> {
    let mut out = Vec::new();
    loop {
        let byte = (value & 0x7f) as u8;
        value >>= 7;
        if value == 0 {
            out.push(byte);
            return out;
        }
        out.push(byte | 0x80);
    }
}

#[test]
fn lines_of_a_list_have_one_form_and_bounds() {
    for (payload, sentence) in [
        (&[2][..], "message Names: flag has no meaning for value 2 (offset 5)"),
        (&[1, 1, 0, 0], "message Names: shared beginning has no meaning for value 0 (offset 7)"),
        (&[1, 1, 1, 1, b'a'], "message Names: shared beginning 1 exceeds the limit 0 (offset 7)"),
        (
            &[1, 2, 0, 2, b'a', b'b', 0, 1, b'a'],
            "message Names: shared beginning has no meaning for value 0 (offset 11)",
        ),
        (
            &[0, 0x81, 0x20, 0, 1, b'a'],
            "message Names: number of lines 4097 exceeds the limit 4096 (offset 6)",
        ),
    ] {
        assert_eq!(refuse(Kind::NAMES, payload), sentence);
    }
    // 4,096 bytes, and then lines of two bytes that repeat it and one more or less.
    let mut payload = vec![0, 100, 0, 0x80, 0x20];
    payload.extend([b'x'; 4096]);
    (1..100).for_each(|_| payload.extend([0xff, 0x1f, 0]));
    let refused = refuse(Kind::NAMES, &payload);
    assert!(refused.contains("size of lines 26"), "{refused}");
    let lines: Vec<_> = (0..100).map(|line| vec![b'x'; 4000 + line % 2]).collect();
    assert!(!encodes(&ControlMessage::Names(Names { last: true, lines })), "400 KB");
    assert!(!encodes(&ControlMessage::Names(Names { last: true, lines: vec![vec![b'x'; 4097]] })));
    assert!(encodes(&ControlMessage::Names(Names { last: true, lines: vec![vec![b'x'; 4096]] })));
}
