//! Content: rows B45, B47 and B49 to B51.

use dsync_tests::{
    hostile::{
        Arena, Item, Message, Session,
        arena::{KEPT, assert_ends},
        bytes::listing_part,
        listing,
        session::{ARCHIVE_DELETE, Order},
    },
    needs_dsync,
};

use super::{
    RELAY, after_tops, int, list, list_kept, list_new, segment, send_kept, send_new, server_gives_up,
    source_breaks, tokens,
};

#[test]
fn content_that_does_not_fit_ends_the_run() {
    needs_dsync!();
    source_breaks(&[
        ("entry id 7 out of range", |s| {
            list_new(s);
            let lane = s.lane(0);
            s.lanes.send(lane, &Session::batch(&[0; 32], &Session::record(7, 0, b"hello")));
        }),
        ("entry id 18446744073709551615 out of range", |s| {
            send_new(s, &[Session::file_end(u64::MAX, 0)]);
        }),
        ("entry id 2 out of range", |s| {
            send_new(s, &[segment(2, 5)]);
        }),
        ("attempt not asked for", |s| {
            list_new(s);
            let lane = s.lane(0);
            s.lanes.send(
                lane,
                &Message::new(66).int(1).byte(9).bytes(&[0; 16]).int(5).byte(20).int(0).int(0).frame(),
            );
        }),
        ("file size 9223372036854775808 exceeds the limit", |s| {
            send_new(s, &[segment(1, 1 << 63)]);
        }),
        ("lies outside a file of 5 bytes", |s| {
            list_new(s);
            let lane = s.lane(0);
            s.lanes.send(
                lane,
                &Message::new(66).int(1).byte(0).bytes(&[0; 16]).int(5).byte(20).int(1).int(0).frame(),
            );
        }),
        ("segment", |s| {
            list_new(s);
            let lane = s.lane(0);
            s.lanes.send(
                lane,
                &Message::new(66).int(1).byte(0).bytes(&[0; 16]).int(5).byte(63).int(0).int(0).frame(),
            );
        }),
        ("segment 0 came twice", |s| {
            list_new(s);
            let lane = s.lane(0);
            for _ in 0..2 {
                s.lanes.send(lane, &segment(1, 3));
                s.lanes.send(lane, &tokens(b"\x0cabc"));
                s.lanes.send(lane, &Message::new(68).byte(1).bytes(&[0; 32]).frame());
            }
        }),
        ("segments disagree on the file", |s| {
            send_new(s, &[segment(1, 5), Message::new(68).byte(0).frame(), segment(1, 6)]);
        }),
    ]);
}

#[test]
fn tokens_that_do_not_make_the_file_end_the_run() {
    needs_dsync!();
    source_breaks(&[
        // B49: fewer and more bytes than declared.
        ("tokens end at 3, the segment at 5", |s| {
            list_new(s);
            let lane = s.lane(0);
            s.lanes.send(lane, &segment(1, 5));
            s.lanes.send(lane, &tokens(b"\x0cabc"));
            s.lanes.send(lane, &Message::new(68).byte(1).bytes(&[0; 32]).frame());
        }),
        ("leaves the segment", |s| {
            send_new(s, &[segment(1, 5), tokens(b"\x18abcdef")]);
        }),
        ("leaves the segment", |s| {
            send_new(s, &[segment(1, 5), tokens(&int((1 << 60) * 4 + 2))]);
        }),
        ("malformed token", |s| {
            send_new(s, &[segment(1, 5), tokens(&[3])]);
        }),
        ("malformed token", |s| {
            send_new(s, &[segment(1, 5), tokens(&[0x81, 0x00])]);
        }),
        // B47: copies.
        ("copy without a basis", |s| {
            send_new(s, &[segment(1, 5), tokens(&[0b101, 0])]);
        }),
        ("but the basis has", |s| {
            send_kept(s, &[segment(1, KEPT as u64), tokens(&[int(4 + 1), int(2 * 1_000_000)].concat())]);
        }),
        ("but the basis has", |s| {
            send_kept(s, &[segment(1, KEPT as u64), tokens(&[int((1 << 40) * 4 + 1), int(0)].concat())]);
        }),
        ("malformed token", |s| {
            send_kept(
                s,
                &[
                    segment(1, KEPT as u64),
                    tokens(&[int((u64::MAX >> 2) * 4 + 1), int(u64::MAX - 1)].concat()),
                ],
            );
        }),
        ("malformed token", |s| {
            send_kept(s, &[segment(1, KEPT as u64), tokens(&[int(4 + 1), int(1)].concat())]);
        }),
    ]);
}

/// Makes a `Refine` of entry 1 in attempt 0.
fn refine(block_len: u64, format: u8, runs: &[u8]) -> Vec<u8> {
    Message::new(20).int(1).byte(0).int(block_len).byte(format).bytes(runs).frame()
}

#[test]
fn requests_for_sums_that_cannot_be_end_the_run() {
    needs_dsync!();
    // `kept` is signed in blocks of 2 KiB, with both sums.
    source_breaks(&[
        ("entry 1: asked for sums twice or too late", |s| {
            list_kept(s);
            s.control(&refine(2048, 2, &[]));
        }),
        ("entry 1: asked for sums twice or too late", |s| {
            list_kept(s);
            s.control(&refine(1024, 3, &[0b101, 0]));
            s.expect(11);
            s.expect(12);
            s.control(&refine(1024, 3, &[0b101, 0]));
        }),
        ("weak sums are sent of all blocks", |s| {
            list_kept(s);
            s.control(&refine(1024, 2, &[]));
        }),
        ("weak sums are sent of all blocks", |s| {
            list_kept(s);
            s.control(&refine(2048, 2, &[0b101, 0]));
        }),
        ("a request for strong sums only", |s| {
            list_kept(s);
            s.control(&refine(1024, 1, &[0b101, 0]));
        }),
        ("blocks of 2048 bytes do not refine", |s| {
            list_kept(s);
            s.control(&refine(2048, 3, &[0b101, 0]));
        }),
        ("format of sums has no meaning for value 0", |s| s.control(&refine(1024, 0, &[]))),
    ]);
}

#[test]
fn compressed_content_is_held_to_its_bounds() {
    needs_dsync!();
    /// Makes a frame: header with a window or without, content size, then `blocks` runs of 128 KiB.
    fn zstd(window: Option<u8>, size: u32, blocks: usize) -> Vec<u8> {
        let mut out = vec![0x28, 0xb5, 0x2f, 0xfd];
        out.extend(match window {
            Some(window) => vec![0x80, window],
            None => vec![0xa0],
        });
        out.extend_from_slice(&size.to_le_bytes());
        for at in 0..blocks {
            let header = (131_072_u32 << 3) | 2 | u32::from(at + 1 == blocks);
            out.extend_from_slice(&header.to_le_bytes()[..3]);
            out.push(b'x');
        }
        out
    }
    fn in_listing(session: &Session, codec: u8, raw_len: u64, bytes: &[u8]) {
        let message = Message::new(7).int(0).byte(3).packed(codec, raw_len, bytes);
        after_tops(session, &message.frame());
    }
    fn in_lane(session: &mut Session, codec: u8, raw_len: u64, bytes: &[u8]) {
        list_new(session);
        let lane = session.lane(0);
        session.lanes.send(lane, &segment(1, 1 << 20));
        session.lanes.send(lane, &Message::new(67).packed(codec, raw_len, bytes).frame());
    }
    source_breaks(&[
        // 2^31 bytes of window: exponent 21.
        ("asks for a window of 2048 MiB (limit 8)", |s| {
            in_lane(s, 3, 131_072, &zstd(Some(0xa8), 131_072, 1));
        }),
        ("asks for a window of 2048 MiB (limit 8)", |s| {
            in_listing(s, 3, 131_072, &zstd(Some(0xa8), 131_072, 1));
        }),
        ("malformed integer at offset", |s| {
            in_lane(s, 3, 1 << 40, &zstd(None, u32::MAX, 1));
        }),
        ("raw length 1048577 exceeds the limit 1048576", |s| in_listing(s, 2, 1_048_577, &[0x1f; 40])),
        // More than declared, less than declared.
        ("compressed chunk", |s| in_lane(s, 3, 131_072, &zstd(None, 131_072, 2000))),
        ("compressed chunk", |s| in_lane(s, 3, 262_144, &zstd(None, 131_072, 1))),
        ("compressed chunk", |s| in_lane(s, 3, 262_144, &zstd(None, 262_144, 1))),
        ("bytes after its end", |s| {
            in_lane(s, 3, 262_144, &[zstd(None, 262_144, 2), zstd(None, 131_072, 1)].concat());
        }),
        ("compressed chunk", |s| in_lane(s, 3, 100, b"garbage")),
        ("compressed chunk", |s| in_lane(s, 2, 100_000, &[0xff; 300])),
        ("compressed chunk", |s| in_listing(s, 2, 100, b"\x10garbage")),
        ("cannot stand for", |s| in_lane(s, 0, 5, b"abc")),
        ("cannot stand for", |s| in_lane(s, 1, 5, b"abc")),
        ("cannot stand for", |s| in_lane(s, 3, 5, b"abcdef")),
        ("codec", |s| in_lane(s, 9, 5, b"abc")),
    ]);
}

/// Makes the frames of one attempt to send `kept`, with content under a wrong value.
type WrongContent = fn(attempt: u8) -> Vec<u8>;

/// Makes a batch of it.
fn wrong_batch(attempt: u8) -> Vec<u8> {
    Session::batch(&[0xab; 32], &Session::record(1, attempt, b"not the content"))
}

/// Makes a segment of it, complete in all other respects.
fn wrong_segment(attempt: u8) -> Vec<u8> {
    let content = b"not the content";
    let head = Message::new(66).int(1).byte(attempt).bytes(&[0; 16]).int(content.len() as u64);
    let literal = u8::try_from(content.len() << 2).unwrap();
    [
        head.byte(20).int(0).int(0).frame(),
        tokens(&[&[literal], &content[..]].concat()),
        Message::new(68).byte(1).bytes(&[0xab; 32]).frame(),
        Session::file_end(1, attempt),
    ]
    .concat()
}

/// Answers every request for `kept` with content under a wrong value, until no more arrive; returns
/// their number.
fn serve_wrong_values(session: &mut Session, first_lane: u32, content: WrongContent) -> u8 {
    let mut attempts = 0;
    loop {
        match session.hear() {
            (10, payload) => {
                assert_eq!(payload, [1, attempts]);
                session.lanes.send(first_lane, &content(attempts));
                attempts += 1;
            }
            (14, _) => return attempts,
            (13, _) => {}
            (other, _) => panic!("message {other}"),
        }
    }
}

#[test]
fn content_with_a_wrong_value_keeps_the_old_file() {
    keeps_the_old_file(wrong_batch);
}

#[test]
fn a_segment_with_a_wrong_value_keeps_the_old_file() {
    keeps_the_old_file(wrong_segment);
}

fn keeps_the_old_file(content: WrongContent) {
    needs_dsync!();
    let arena = Arena::new();
    let (client, pipe) = arena.pull(RELAY, &["--whole-file"]);
    let mut session = Session::serve(pipe).answer();
    list(&session, &[Item::file("kept", 5).time(1, 0)]);
    session.control(&Message::new(8).int(2).int(5).frame());
    let lanes: Vec<u32> = (0..4).map(|number| session.lane(number)).collect();
    assert_eq!(serve_wrong_values(&mut session, lanes[0], content), 3);
    for lane in lanes {
        session.lanes.send(lane, &Message::new(70).frame());
        session.lanes.finish(lane);
    }
    session.expect(17);
    session.control(&Message::new(19).frame());
    session.finish_control();
    let _ = session.lanes.receive(1);
    drop(session);
    assert_ends(
        client.wait(),
        23,
        "'kept': content check failed three times; what had the name stays as it was",
    );
    // A source whose listing was complete may delete unlisted entries; the file is whole.
    assert!(arena.has_old_kept());
}

#[test]
fn one_file_that_turns_out_to_be_many_stays_under_its_name() {
    needs_dsync!();
    // Its one entry is renamed to the operand's last name and then becomes a directory with
    // content.
    let arena = Arena::new();
    let (server, pipe) = arena.server();
    let mut operand = arena.tree();
    operand.extend_from_slice(b"name");
    let session = Session::greet(pipe).start(Order::DestinationOf(&operand, &[b"b"]), ARCHIVE_DELETE);
    session.control(&Message::new(5).byte(2).int(1).frame());
    session.control(&listing_part(0, 1, &[Item::dir("b")]));
    session.control(&listing(1, &[Item::file("canary", 1), Item::symlink("new", b"x")]));
    session.control(&Message::new(8).int(3).int(2).frame());
    server_gives_up(server, session, "entry 1: not a single file");
    arena.assert_unharmed(&["name"]);
}

#[test]
fn names_and_problems_without_end_stay_in_memory_bounds() {
    needs_dsync!();
    let arena = Arena::new();
    let (server, session) = arena.destination(ARCHIVE_DELETE);
    session.tops();
    let problem = Message::new(9).byte(0).byte(1).text(&[b'x'; 100_000]).frame();
    for _ in 0..600 {
        session.control(&problem);
    }
    for id in 1..20_000 {
        session.control(&Message::new(6).byte(0).int(id).text(&[b'n'; 250]).frame());
    }
    let _ = server.end(session);
    arena.assert_unharmed(&[]);
}
