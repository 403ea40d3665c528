//! A peer that keeps to no rule: rows B38 to B52 and B58 of the design's table, and what else a hostile
//! end can do, against `dsync --server` and against the client, in both roles.
//!
//! Each deed has to end the run soon, with the stated line and code, in bounded memory, and must change
//! nothing: not the tree, not what is around it. The peer shares no code with dsync.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use dsync_tests::{
    hostile::{
        Arena, Item, Message, Session,
        arena::{KEPT, assert_ends},
        bytes::{entries, listing_part, put_int, take_int},
        frame, listing, raw_listing,
        session::{ARCHIVE_DELETE, COPY, Order, hello, start},
    },
    needs_dsync,
};

/// The program that the client starts as its remote shell.
const RELAY: &str = env!("CARGO_BIN_EXE_hostile-shell");
/// Exit code of a broken protocol.
const STREAM: i32 = 12;
/// Cases that run at a time: they mostly wait.
const AT_ONCE: usize = 12;

/// A deed and the substance of what dsync says of it.
type Case = (&'static str, fn(&mut Session));

/// Runs every case, several at a time, and fails with all that failed.
fn each(cases: &[Case], run: impl Fn(&str, fn(&mut Session)) + Sync) {
    let (next, failed) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        for _ in 0..AT_ONCE.min(cases.len()) {
            scope.spawn(|| {
                while let Some((text, deed)) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| run(text, *deed))) {
                        let why = panic.downcast_ref::<String>().cloned();
                        let why = why.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).into()));
                        failed.lock().unwrap().push(format!("'{text}': {}", why.unwrap_or_default()));
                    }
                }
            });
        }
    });
    let failed = failed.into_inner().unwrap();
    assert!(failed.is_empty(), "{} of {} cases:\n{}", failed.len(), cases.len(), failed.join("\n\n"));
}

/// Asserts that `dsync --server` gives up for the stated reason and tells the peer.
fn server_gives_up(server: dsync_tests::hostile::arena::Server, session: Session, text: &str) {
    let fatal = session.fatal();
    assert_eq!((i32::from(fatal.code), server.end(session)), (STREAM, STREAM), "{}", fatal.text);
    assert!(fatal.text.contains(text), "it says: {}", fatal.text);
    assert!(!fatal.text.contains("panicked"), "{}", fatal.text);
}

/// A hostile source, against a server that is the destination and against a client that pulls.
fn source_breaks(cases: &[Case]) {
    each(cases, |text, deed| {
        let arena = Arena::new();
        let (server, mut session) = arena.destination(ARCHIVE_DELETE);
        deed(&mut session);
        server_gives_up(server, session, text);
        // The one entry that a deed lists rightly before it breaks a rule.
        arena.assert_unharmed(&["zz"]);
    });
    each(cases, |text, deed| {
        let arena = Arena::new();
        let (client, pipe) = arena.pull(RELAY, &[]);
        let mut session = Session::serve(pipe).answer();
        deed(&mut session);
        let fatal = session.fatal();
        assert_eq!(i32::from(fatal.code), STREAM, "{}", fatal.text);
        drop(session);
        assert_ends(client.wait(), STREAM, text);
        // The one entry that a deed lists rightly before it breaks a rule.
        arena.assert_unharmed(&["zz"]);
    });
}

/// A hostile destination, against a server that is the source and against a client that pushes.
fn destination_breaks(cases: &[Case]) {
    each(cases, |text, deed| {
        let arena = Arena::new();
        let (server, mut session) = arena.source(ARCHIVE_DELETE);
        deed(&mut session);
        server_gives_up(server, session, text);
        arena.assert_unharmed(&[]);
    });
    each(cases, |text, deed| {
        let arena = Arena::new();
        let (client, pipe) = arena.push(RELAY, &[]);
        let mut session = Session::serve(pipe).answer();
        deed(&mut session);
        let fatal = session.fatal();
        assert_eq!(i32::from(fatal.code), STREAM, "{}", fatal.text);
        drop(session);
        assert_ends(client.wait(), STREAM, text);
        arena.assert_unharmed(&[]);
    });
}

/// What a source says of its operands, then any bytes.
fn after_tops(session: &Session, bytes: &[u8]) {
    session.tops();
    session.control(bytes);
}

/// Lists these entries of the root and nothing else; the listing stays open.
fn list(session: &Session, items: &[Item]) {
    after_tops(session, &listing(0, items));
}

/// Lists a file that the destination lacks and waits until it is asked for.
fn list_new(session: &Session) {
    list(session, &[Item::file("new", 5)]);
    assert_eq!(session.expect(10), [1, 0]);
}

/// Lists `kept` with another time and waits for its signature.
fn list_kept(session: &Session) {
    list(session, &[Item::file("kept", KEPT as u64).time(1, 0)]);
    session.expect(11);
    while session.expect(12)[1] == 0 {}
}

/// Lists `new`, and sends frames on the first lane once it is asked for.
fn send_new(session: &mut Session, frames: &[Vec<u8>]) {
    list_new(session);
    send(session, frames);
}

/// Lists `kept`, and sends frames on the first lane once it is signed.
fn send_kept(session: &mut Session, frames: &[Vec<u8>]) {
    list_kept(session);
    send(session, frames);
}

fn send(session: &mut Session, frames: &[Vec<u8>]) {
    let lane = session.lane(0);
    for frame in frames {
        session.lanes.send(lane, frame);
    }
}

/// `Segment` of an entry: attempt 0, one segment of 2^20 bytes, number 0.
fn segment(entry: u64, file_len: u64) -> Vec<u8> {
    Message::new(66).int(entry).byte(0).bytes(&[0; 16]).int(file_len).byte(20).int(0).int(0).frame()
}

/// `Tokens` with these bytes, raw.
fn tokens(content: &[u8]) -> Vec<u8> {
    Message::new(67).raw(content).frame()
}

/// An integer as bytes.
fn int(value: u64) -> Vec<u8> {
    let mut out = Vec::new();
    put_int(&mut out, value);
    out
}

// ---- the peer itself -----------------------------------------------------------------------------------

#[test]
fn honest_source_written_by_hand_is_understood() {
    needs_dsync!();
    let arena = Arena::new();
    let (mut server, mut session) = arena.destination(COPY);
    list(&session, &[Item::file("new", 5)]);
    session.control(&Message::new(8).int(1).int(5).frame());
    assert_eq!(session.expect(10), [1, 0]);
    let root = session.root(b"hello");
    for number in 0..4 {
        let lane = session.lane(number);
        if number == 3 {
            session.lanes.send(lane, &Session::batch(1, 0, &root, b"hello"));
            session.expect(14);
        }
        session.lanes.send(lane, &Message::new(70).frame());
        session.lanes.finish(lane);
    }
    session.expect(17);
    session.control(&Message::new(19).frame());
    session.finish_control();
    assert_eq!(server.wait(), 0);
    assert_eq!(std::fs::read(arena.scratch().at("tree/new")).unwrap(), b"hello");
    arena.assert_unharmed(&["new"]);
}

#[test]
fn honest_destination_written_by_hand_is_understood() {
    needs_dsync!();
    let arena = Arena::new();
    let (mut server, session) = arena.source(COPY);
    session.expect(5);
    session.expect(7);
    // The third in order: kept, out, peek, pipe, sub.
    session.control(&Message::new(10).int(5 + 1).byte(0).frame());
    while session.hear().0 != 8 {}
    let lanes = [2, 4, 6, 8];
    let mut contents = Vec::new();
    for part in 0..2 {
        session.control(&Message::new(13).int(part).frame());
    }
    session.control(&Message::new(14).frame());
    for lane in lanes {
        while let Some((number, payload)) = session.lanes.receive(lane) {
            if number == 65 {
                contents.push(payload);
            }
        }
    }
    assert_eq!(contents.len(), 1);
    assert!(contents[0].ends_with(b"\x05inner"), "{contents:?}");
    assert!(contents[0].windows(32).any(|window| window == session.root(b"inner")));
    session.control(&Message::new(17).bytes(&[0; 30]).frame());
    session.expect(19);
    session.finish_control();
    assert_eq!(server.wait(), 0);
    arena.assert_unharmed(&[]);
}

// ---- frames and integers: B38 to B42 -------------------------------------------------------------------

#[test]
fn frames_that_break_the_format_end_the_run() {
    needs_dsync!();
    let cases: &[Case] = &[
        ("frame of 4294967295 bytes exceeds the limit 1114112", |s| {
            s.control(&[0xff, 0xff, 0xff, 0xff, 5]);
        }),
        ("frame of 1114113 bytes exceeds the limit 1114112", |s| {
            s.control(&[&1_114_113_u32.to_le_bytes()[..], &[7]].concat());
        }),
        ("frame without content", |s| s.control(&[0; 4])),
        ("connection ended inside a frame (got 6 of 104 bytes)", |s| {
            s.control(&[100, 0, 0, 0, 5, 0]);
            s.finish_control();
        }),
        ("connection ended inside a frame (got 2 of 4 bytes)", |s| {
            s.control(&[100, 0]);
            s.finish_control();
        }),
        ("malformed integer at offset", |s| s.control(&frame(&[5, 0, 0x81, 0x00]))),
        ("malformed integer at offset", |s| s.control(&frame(&[&[5, 0][..], &[0xff; 10], &[1]].concat()))),
        ("malformed integer at offset", |s| s.control(&frame(&[5, 0, 0xff, 0xff, 0xff, 0xff, 0x7f]))),
        ("unexpected message", |s| s.control(&frame(&[200]))),
        ("unexpected message", |s| s.control(&frame(&[0]))),
        ("unexpected message", |s| s.control(&Message::new(65).raw(b"x").frame())),
        ("1 unread bytes after message", |s| s.control(&Message::new(5).byte(0).int(1).byte(0).frame())),
        ("ends inside its", |s| s.control(&Message::new(5).byte(1).int(1).frame())),
        ("has no meaning for value", |s| s.control(&Message::new(5).byte(128).int(1).frame())),
        ("1 unread bytes after message", |s| {
            after_tops(s, &raw_listing(0, 3, &[&entries(&[Item::dir("sub")])[..], &[0]].concat()));
        }),
    ];
    source_breaks(cases);
}

#[test]
fn messages_of_a_source_in_the_wrong_state_end_the_run() {
    needs_dsync!();
    source_breaks(&[
        ("while in state 'waiting for Tops'", |s| s.control(&listing(0, &[]))),
        ("while in state 'waiting for Tops'", |s| s.control(&Message::new(8).int(0).int(0).frame())),
        ("while in state 'waiting for Tops'", |s| s.control(&Message::new(19).frame())),
        ("while in state 'listing'", |s| after_tops(s, &Message::new(5).byte(0).int(1).frame())),
        ("while in state 'listing'", |s| after_tops(s, &Message::new(3).frame())),
        ("while in state 'listing'", |s| after_tops(s, &Message::new(14).frame())),
        ("while in state 'listing'", |s| after_tops(s, &Message::new(10).int(1).byte(0).frame())),
        ("while in state 'inside a directory's listing'", |s| {
            after_tops(s, &listing_part(0, 2, &[]));
            s.control(&Message::new(8).int(0).int(0).frame());
        }),
        ("missing operands that nobody asked for", |s| {
            after_tops(s, &Message::new(22).text(b"kept").frame());
            s.control(&listing(0, &[]));
        }),
        ("while in state 'inside a directory's listing'", |s| {
            after_tops(s, &listing_part(0, 0, &[]));
            s.control(&Message::new(22).text(b"kept").frame());
        }),
        ("while in state 'receiving files'", |s| {
            list_new(s);
            s.control(&Message::new(8).int(1).int(5).frame());
            s.control(&Message::new(19).frame());
        }),
        ("while in state 'waiting for LaneStart'", |s| {
            let lane = s.bare_lane();
            s.lanes.send(lane, &Session::batch(1, 0, &[0; 32], b"x"));
        }),
        ("while in state 'between files'", |s| {
            let lane = s.lane(0);
            s.lanes.send(lane, &tokens(b"\x04x"));
        }),
        ("while in state 'between files'", |s| {
            let lane = s.lane(0);
            s.lanes.send(lane, &Message::new(64).byte(1).frame());
        }),
        ("while in state 'lane over'", |s| {
            let lane = s.lane(0);
            s.lanes.send(lane, &Message::new(70).frame());
            s.lanes.send(lane, &Message::new(70).frame());
        }),
        ("lane number 4 exceeds the limit 3", |s| {
            s.lane(4);
        }),
        ("on a data lane", |s| {
            let lane = s.lane(0);
            s.lanes.send(lane, &Message::new(18).frame());
        }),
        ("a data lane ended without its last message", |s| {
            let lane = s.lane(0);
            s.lanes.finish(lane);
        }),
        ("connection ended inside a frame", |s| {
            let lane = s.lane(0);
            s.lanes.send(lane, &[9, 0, 0, 0, 65]);
            s.lanes.finish(lane);
        }),
    ]);
}

#[test]
fn messages_of_a_destination_in_the_wrong_state_end_the_run() {
    needs_dsync!();
    destination_breaks(&[
        ("while in state 'serving requests'", |s| s.control(&Message::new(17).bytes(&[0; 30]).frame())),
        ("while in state 'serving requests'", |s| s.control(&Message::new(5).byte(0).int(1).frame())),
        ("while in state 'serving requests'", |s| s.control(&Message::new(19).frame())),
        ("while in state 'waiting for Report'", |s| {
            s.control(&Message::new(14).frame());
            s.control(&Message::new(10).int(1).byte(0).frame());
        }),
        ("while in state 'waiting for Report'", |s| {
            s.control(&Message::new(14).frame());
            s.control(&Message::new(14).frame());
        }),
    ]);
}

// ---- entries: B43 to B47, B52 --------------------------------------------------------------------------

#[test]
fn names_that_are_no_single_component_end_the_run() {
    needs_dsync!();
    source_breaks(&[
        ("peer sent an invalid name '..'; session ended", |s| list(s, &[Item::file("..", 1)])),
        ("peer sent an invalid name '.'; session ended", |s| list(s, &[Item::dir(".")])),
        ("peer sent an invalid name 'a/b'; session ended", |s| list(s, &[Item::file("a/b", 1)])),
        ("peer sent an invalid name '/etc'; session ended", |s| list(s, &[Item::dir("/etc")])),
        ("peer sent an invalid name '../outside/x'", |s| list(s, &[Item::file("../outside/x", 1)])),
        ("peer sent an invalid name ''; session ended", |s| list(s, &[Item::file("", 1)])),
        ("peer sent an invalid name 'a\\x00b'; session ended", |s| list(s, &[Item::file("a\0b", 1)])),
        ("peer sent an invalid name 'nnnn", |s| list(s, &[Item::file([b'n'; 256], 1)])),
        ("name 1099511627776 exceeds the limit", |s| {
            let content = [&[0, 1, 0, 0][..], &int(1 << 40)].concat();
            after_tops(s, &raw_listing(0, 3, &content));
        }),
        ("shared part of the name", |s| {
            after_tops(s, &raw_listing(0, 3, &[0, 1, 0, 200, 1, 1, b'x']));
        }),
    ]);
}

#[test]
fn listings_that_are_no_tree_end_the_run() {
    needs_dsync!();
    source_breaks(&[
        ("its name 'a' repeats or precedes the name before it", |s| {
            list(s, &[Item::file("a", 1), Item::file("a", 1)]);
        }),
        ("its name 'a' repeats or precedes the name before it", |s| {
            list(s, &[Item::file("b", 1), Item::file("a", 1)]);
        }),
        ("its name 'zz' repeats or precedes the name before it", |s| {
            after_tops(s, &listing_part(0, 2, &[Item::symlink("zz", b"../outside")]));
            s.control(&listing(0, &[Item::dir("zz")]));
        }),
        ("parent 1 is not a directory", |s| {
            after_tops(s, &listing(1, &[Item::file("x", 1)]));
        }),
        ("parent 1 is not a directory", |s| {
            list(s, &[Item::file("kept", 1)]);
            s.control(&listing(1, &[Item::file("x", 1)]));
        }),
        // A link, and then something "under" it.
        ("parent 1 is not a directory", |s| {
            list(s, &[Item::symlink("out", b"../outside")]);
            s.control(&listing(1, &[Item::file("canary", 1)]));
        }),
        ("parent 0 is not a directory", |s| {
            list(s, &[Item::dir("sub")]);
            s.control(&listing(0, &[Item::file("x", 1)]));
        }),
        ("parent 1 is not a directory", |s| {
            list(s, &[Item::dir("sub")]);
            s.control(&listing(1, &[Item::file("w", 1)]));
            s.control(&listing(1, &[Item::file("x", 1)]));
        }),
        ("parent 18446744073709551615 is not a directory", |s| {
            after_tops(s, &listing(u64::MAX, &[]));
        }),
        ("got 1 entries, 2 declared", |s| {
            list(s, &[Item::dir("sub")]);
            s.control(&Message::new(8).int(2).int(0).frame());
        }),
        ("number of entries 4097 exceeds the limit 4096", |s| {
            after_tops(s, &raw_listing(0, 3, &[&[0][..], &int(4097)].concat()));
        }),
        ("number of entries", |s| after_tops(s, &raw_listing(0, 3, &[&[0][..], &int(4096)].concat()))),
    ]);
}

#[test]
fn entries_with_impossible_attributes_end_the_run() {
    needs_dsync!();
    source_breaks(&[
        ("entry 0: invalid timestamp", |s| list(s, &[Item::file("x", 1).time(0, 1_000_000_000)])),
        ("entry 0: invalid timestamp", |s| list(s, &[Item::file("x", 1).time(i64::MAX, 0)])),
        ("entry 0: invalid timestamp", |s| list(s, &[Item::file("x", 1).time(i64::MIN, 0)])),
        ("entry 1: invalid timestamp", |s| {
            // Each difference is possible, their sum is not.
            list(s, &[Item::dir("a").time(1 << 45, 0), Item::dir("b").time(1 << 46, 0)]);
        }),
        ("entry 0: invalid mode", |s| list(s, &[Item::file("x", 1).mode(0o10000)])),
        ("entry 0: invalid mode", |s| list(s, &[Item::file("x", 1).mode(u64::MAX)])),
        ("file size 9223372036854775808 exceeds the limit", |s| list(s, &[Item::file("x", 1 << 63)])),
        ("type of entry", |s| list(s, &[Item::new(b"x", 7, Vec::new())])),
        ("flags", |s| list(s, &[Item::new(b"x", 64 | 1, vec![1])])),
        ("link text", |s| list(s, &[Item::symlink("x", b"")])),
        ("link text", |s| list(s, &[Item::symlink("x", b"a\0b")])),
        ("link text 4096 exceeds the limit", |s| list(s, &[Item::symlink("x", &[b'x'; 4096])])),
        ("malformed integer", |s| {
            list(s, &[Item::new(b"x", 5, [int(1 << 32), int(0)].concat())]);
        }),
    ]);
}

#[test]
fn depth_has_a_limit() {
    needs_dsync!();
    let arena = Arena::new();
    let (server, session) = arena.destination(&[ARCHIVE_DELETE, r#","dry-run":true"#].concat());
    session.tops();
    for depth in 0..=4096 {
        session.control(&listing(depth, &[Item::dir("d")]));
    }
    server_gives_up(server, session, "depth 4097 exceeds the limit 4096");
    arena.assert_unharmed(&[]);
}

#[test]
fn listing_without_end_stays_in_memory_bounds() {
    needs_dsync!();
    let arena = Arena::new();
    let (server, session) = arena.destination(&[ARCHIVE_DELETE, r#","dry-run":true"#].concat());
    session.tops();
    for part in 0..50_u64 {
        let items: Vec<Item> = (0..4096)
            .map(|at| {
                let name = format!("{:08}", part * 4096 + at);
                if at % 2 == 0 { Item::dir(name) } else { Item::file(name, u64::MAX >> 1) }
            })
            .collect();
        session.control(&listing_part(0, 2, &items));
        let mut done = session.expect_credit();
        while take_int(&mut &done[..]) < part {
            done = session.expect_credit();
        }
    }
    let _ = server.end(session);
    arena.assert_unharmed(&[]);
}

#[test]
fn source_ahead_of_its_credit_ends_the_run() {
    needs_dsync!();
    let arena = Arena::new();
    let (server, session) = arena.destination(ARCHIVE_DELETE);
    session.tops();
    // Files that are asked for and never come: nothing is released.
    for part in 0..20_u64 {
        let items: Vec<Item> =
            (0..4096).map(|at| Item::file(format!("{:08}", part * 4096 + at), 1)).collect();
        session.control(&listing_part(0, 2, &items));
    }
    server_gives_up(server, session, "entries ahead of its credit");
    arena.assert_unharmed(&[]);
}

// ---- files: B45, B47, B49 to B51 -----------------------------------------------------------------------

#[test]
fn content_that_does_not_fit_ends_the_run() {
    needs_dsync!();
    source_breaks(&[
        ("entry id 7 out of range", |s| {
            list_new(s);
            let lane = s.lane(0);
            s.lanes.send(lane, &Session::batch(7, 0, &[0; 32], b"hello"));
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

/// `Refine` of entry 1 in attempt 0.
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
    /// A frame: header with a window or without, content size, then `blocks` runs of 128 KiB.
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

/// Answers every request for `kept` with content under a wrong root, until no more come.
fn serve_wrong_roots(session: &mut Session, first_lane: u32) -> u8 {
    let mut attempts = 0;
    loop {
        match session.hear() {
            (10, payload) => {
                assert_eq!(payload, [1, attempts]);
                let batch = Session::batch(1, attempts, &[0xab; 32], b"not the content");
                session.lanes.send(first_lane, &batch);
                attempts += 1;
            }
            (14, _) => return attempts,
            (13, _) => {}
            (other, _) => panic!("message {other}"),
        }
    }
}

#[test]
fn content_with_a_wrong_root_keeps_the_old_file() {
    needs_dsync!();
    let arena = Arena::new();
    let (client, pipe) = arena.pull(RELAY, &["--whole-file"]);
    let mut session = Session::serve(pipe).answer();
    list(&session, &[Item::file("kept", 5).time(1, 0)]);
    session.control(&Message::new(8).int(1).int(5).frame());
    let lanes: Vec<u32> = (0..4).map(|number| session.lane(number)).collect();
    assert_eq!(serve_wrong_roots(&mut session, lanes[0]), 3);
    for lane in lanes {
        session.lanes.send(lane, &Message::new(70).frame());
        session.lanes.finish(lane);
    }
    session.expect(17);
    session.control(&Message::new(19).frame());
    session.finish_control();
    let _ = session.lanes.receive(1);
    drop(session);
    assert_ends(client.wait(), 23, "'kept': content check failed twice; old file kept");
    // A source that was heard to its end may delete what it does not list; the file is whole.
    assert!(arena.has_old_kept());
}

#[test]
fn one_file_that_turns_out_to_be_many_stays_under_its_name() {
    needs_dsync!();
    // The source claims a single file, so that its one entry is renamed to the operand's last name; then it
    // lists a link out of the tree and a directory with content, which all get that one name.
    let arena = Arena::new();
    let (server, pipe) = arena.server();
    let mut operand = arena.tree();
    operand.extend_from_slice(b"name");
    let session = Session::greet(pipe).start(Order::Destination(&operand), ARCHIVE_DELETE);
    session.control(&Message::new(5).byte(2).int(1).frame());
    session.control(&listing(0, &[Item::symlink("a", b"../outside"), Item::dir("b"), Item::file("c", 5)]));
    session.control(&listing(2, &[Item::file("canary", 1), Item::symlink("new", b"x")]));
    session.control(&Message::new(8).int(5).int(17).frame());
    server_gives_up(server, session, "entry 2: not a single file");
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

// ---- the destination: B48, and requests ----------------------------------------------------------------

fn need_delta(entry: u64, basis_len: u64, block_len: u64) -> Vec<u8> {
    need_sums(entry, basis_len, block_len, 3)
}

/// The format's bits: 1 strong sums, 2 weak ones.
fn need_sums(entry: u64, basis_len: u64, block_len: u64, format: u8) -> Vec<u8> {
    Message::new(11).int(entry).byte(0).int(basis_len).int(block_len).byte(format).frame()
}

fn sums(entry: u64, last: u8, bytes: &[u8]) -> Vec<u8> {
    Message::new(12).int(entry).byte(last).bytes(bytes).frame()
}

#[test]
fn signatures_that_cannot_be_end_the_run() {
    needs_dsync!();
    destination_breaks(&[
        ("invalid signature header: block length 0", |s| s.control(&need_delta(1, 1000, 0))),
        ("invalid signature header: block length 1", |s| s.control(&need_delta(1, 1000, 1))),
        ("invalid signature header: block length 1500", |s| s.control(&need_delta(1, 1000, 1500))),
        ("invalid signature header: block length 8388608", |s| s.control(&need_delta(1, 1000, 1 << 23))),
        ("invalid signature header: block length 2147483648", |s| s.control(&need_delta(1, 1000, 1 << 31))),
        ("invalid signature header: block length 1099511627776", |s| {
            s.control(&need_delta(1, 1000, 1 << 40));
        }),
        ("basis length 9223372036854775808 exceeds the limit", |s| s.control(&need_delta(1, 1 << 63, 1024))),
        ("signature of 1099511627776 blocks, at most", |s| s.control(&need_delta(1, 1 << 50, 1024))),
        ("size of sums 262145 exceeds the limit 262144", |s| {
            s.control(&need_delta(1, 1 << 30, 1024));
            s.control(&sums(1, 0, &vec![0; 262_145]));
        }),
        ("more sums than the 4 blocks", |s| {
            s.control(&need_delta(1, 4096, 1024));
            s.control(&sums(1, 0, &[0; 4096]));
        }),
        ("sums of 0 blocks out of 4", |s| {
            s.control(&need_delta(1, 4096, 1024));
            s.control(&sums(1, 1, &[0; 3]));
        }),
        ("format of sums has no meaning for value 0", |s| s.control(&need_sums(1, 4096, 1024, 0))),
        ("format of sums has no meaning for value 4", |s| s.control(&need_sums(1, 4096, 1024, 4))),
        ("entry 1: not the sums that were asked for", |s| s.control(&need_sums(1, 4096, 1024, 2))),
        ("more sums than the 4 blocks", |s| {
            s.control(&need_sums(1, 4096, 1024, 1));
            s.control(&sums(1, 1, &[0; 33]));
        }),
        ("entry 1: sums without a signature that waits for them", |s| s.control(&sums(1, 1, &[0; 12]))),
        ("entry 1: asked for again before its sums are complete", |s| {
            s.control(&need_delta(1, 4096, 1024));
            s.control(&need_delta(1, 4096, 1024));
        }),
        ("number of incomplete signatures 1025 exceeds the limit 1024", |s| {
            // The most blocks that are taken: nothing may be set aside for them.
            for entry in 0..=1024 {
                s.control(&need_delta(entry, 4 << 30, 1024));
            }
        }),
    ]);
}

#[test]
fn weak_sums_that_were_not_asked_for_end_the_run() {
    needs_dsync!();
    /// Strong sums that match nothing; the source asks for the weak ones.
    fn strong_sums(s: &mut Session) {
        for listing in [7, 7, 8] {
            s.expect(listing);
        }
        s.control(&need_sums(1, 4096, 1024, 1));
        s.control(&sums(1, 1, &[0; 32]));
        assert_eq!(s.expect(20), [int(1), vec![0], int(1024), vec![2]].concat());
    }
    destination_breaks(&[
        ("entry 1: not the sums that were asked for", |s| s.control(&need_sums(1, 4096, 1024, 2))),
        ("entry 1: not the sums that were asked for", |s| {
            strong_sums(s);
            s.control(&need_sums(1, 4096, 2048, 2));
        }),
        ("entry 1: not the sums that were asked for", |s| {
            strong_sums(s);
            s.control(&need_sums(1, 4096, 1024, 3));
        }),
        ("entry 1: not the sums that were asked for", |s| {
            strong_sums(s);
            s.control(&need_sums(1, 4096, 1024, 2));
            s.control(&sums(1, 1, &[0; 16]));
            s.control(&need_sums(1, 4096, 1024, 2));
        }),
        ("more sums than the 4 blocks", |s| {
            strong_sums(s);
            s.control(&need_sums(1, 4096, 1024, 2));
            s.control(&sums(1, 1, &[0; 17]));
        }),
        ("sums of 3 blocks out of 4", |s| {
            strong_sums(s);
            s.control(&need_sums(1, 4096, 1024, 2));
            s.control(&sums(1, 1, &[0; 15]));
        }),
    ]);
}

#[test]
fn requests_for_what_was_not_listed_end_the_run() {
    needs_dsync!();
    destination_breaks(&[
        ("request for entry 99, which is not listed", |s| {
            s.control(&Message::new(10).int(99).byte(0).frame());
        }),
        ("request for entry 0, which is not listed", |s| {
            s.control(&Message::new(10).int(0).byte(0).frame());
        }),
        ("request for entry 18446744073709551615, which is not listed", |s| {
            s.control(&Message::new(10).int(u64::MAX).byte(0).frame());
        }),
        ("request for entry 99, which is not listed", |s| {
            s.control(&need_delta(99, 1024, 1024));
            s.control(&sums(99, 1, &[0; 12]));
        }),
        ("listing 1000 released twice or never sent", |s| {
            s.control(&Message::new(13).int(1000).frame());
        }),
        ("listing 0 released twice or never sent", |s| {
            s.expect(7);
            s.control(&Message::new(13).int(0).frame());
            s.control(&Message::new(13).int(0).frame());
        }),
        ("request for entry 1, which is not listed", |s| {
            s.expect(7);
            s.control(&Message::new(13).int(0).frame());
            s.control(&Message::new(10).int(1).byte(0).frame());
        }),
        ("asked to remove what is to stay", |s| {
            s.expect(7);
            s.control(&Message::new(23).int(1).int(1).byte(0).frame());
        }),
    ]);
}

#[test]
fn requests_for_links_fifos_and_directories_give_no_content() {
    needs_dsync!();
    let arena = Arena::new();
    let (server, session) = arena.source(ARCHIVE_DELETE);
    session.expect(7);
    // kept, out, peek, pipe, sub: all but the first.
    for entry in 2..=5 {
        session.control(&Message::new(10).int(entry).byte(0).frame());
    }
    session.control(&Message::new(14).frame());
    let mut records = Vec::new();
    for lane in [2, 4, 6, 8] {
        while let Some((number, payload)) = session.lanes.receive(lane) {
            if matches!(number, 65..=67) {
                records.push(payload);
            }
        }
    }
    let all = records.concat();
    assert!(!all.windows(6).any(|window| window == b"secret"), "content of the canary: {all:?}");
    let _ = server.end(session);
    arena.assert_unharmed(&[]);
}

#[test]
fn requests_without_end_stay_in_memory_bounds() {
    needs_dsync!();
    destination_breaks(&[("more requests than there are entries", |s| {
        s.expect(7);
        s.lanes.stop_listening();
        let one = Message::new(10).int(1).byte(0).frame();
        // Nothing that comes is read: the lanes fill, and the queue behind them.
        let many = one.repeat(10_000);
        for _ in 0..200 {
            s.control(&many);
        }
    })]);
}

#[test]
fn signatures_cost_no_more_than_their_bytes() {
    needs_dsync!();
    let arena = Arena::new();
    let (server, session) = arena.source(ARCHIVE_DELETE);
    session.expect(7);
    session.lanes.stop_listening();
    // Signatures of 65,536 blocks, complete, whose deltas cannot be sent: the source may hold what it
    // got (law S7), and nothing for what was only announced.
    let part = vec![0x5a; 196_608];
    for _ in 0..100 {
        session.control(&need_delta(1, 64 << 20, 1024));
        for last in [0, 0, 0, 1] {
            session.control(&sums(1, last, &part));
        }
    }
    let sent = 100 * 4 * part.len() as u64;
    let _ = server.allow(sent * 3 / 2).end(session);
    arena.assert_unharmed(&[]);
}

// ---- the opening and the end ---------------------------------------------------------------------------

#[test]
fn hello_and_start_of_a_client_are_held_to_the_format() {
    needs_dsync!();
    let cases: &[Case] = &[
        ("frame of 4294967295 bytes exceeds the limit", |s| s.control(&[0xff; 5])),
        ("while in state 'waiting for Hello'", |s| s.control(&Message::new(3).frame())),
        ("while in state 'waiting for Hello'", |s| s.control(&start(Order::Source(b"."), ""))),
        ("peer speaks version 2, agreed was 1", |s| s.control(&hello(2))),
        ("malformed integer", |s| s.control(&hello(65_537))),
        ("while in state 'waiting for Start'", |s| s.control(&[hello(1), hello(1)].concat())),
        ("role has no meaning for value 9", |s| {
            s.control(&hello(1));
            s.control(&Message::new(2).byte(9).frame());
        }),
        ("number of data lanes 65 exceeds the limit 64", |s| {
            s.control(&hello(1));
            s.control(&Message::new(2).byte(1).text(b"x").int(65).frame());
        }),
        ("number of data lanes has no meaning for value 0", |s| {
            s.control(&hello(1));
            s.control(&Message::new(2).byte(1).text(b"x").int(0).frame());
        }),
        ("number of operands", |s| {
            s.control(&hello(1));
            s.control(&Message::new(2).byte(0).int(1 << 40).frame());
        }),
        ("operand", |s| {
            s.control(&hello(1));
            s.control(&Message::new(2).byte(1).text(b"a\0b").frame());
        }),
        ("unknown field `time-travel`", |s| {
            s.control(&hello(1));
            s.control(&start(Order::Source(b"."), r#","time-travel":true"#));
        }),
        ("duplicate field `events`", |s| {
            s.control(&hello(1));
            s.control(&start(Order::Source(b"."), r#","events":"all""#));
        }),
        ("ends inside its options", |s| {
            s.control(&hello(1));
            s.control(&Message::new(2).byte(1).text(b"x").int(4).int(1 << 19).frame());
        }),
        ("options 1048576 exceeds the limit", |s| {
            s.control(&hello(1));
            s.control(&Message::new(2).byte(1).text(b"x").int(4).int(1 << 20).frame());
        }),
    ];
    each(cases, |text, deed| {
        let arena = Arena::new();
        let (server, pipe) = arena.server();
        let mut session = Session::greet(pipe);
        deed(&mut session);
        server_gives_up(server, session, text);
        arena.assert_unharmed(&[]);
    });
}

#[test]
fn hello_of_a_server_is_held_to_the_format() {
    needs_dsync!();
    let cases: &[Case] = &[
        ("while in state 'waiting for Hello'", |s| s.control(&Message::new(3).frame())),
        ("while in state 'waiting for Ready'", |s| s.control(&[hello(1), hello(1)].concat())),
        ("peer speaks version 2, agreed was 1", |s| s.control(&hello(2))),
        ("frame of 4294967295 bytes exceeds the limit", |s| s.control(&[0xff; 5])),
    ];
    each(cases, |text, deed| {
        let arena = Arena::new();
        let (client, pipe) = arena.pull(RELAY, &[]);
        let mut session = Session::serve(pipe);
        deed(&mut session);
        assert_ends(client.wait(), STREAM, text);
        arena.assert_unharmed(&[]);
    });
}

#[test]
fn frames_of_the_pipe_are_held_to_the_format() {
    needs_dsync!();
    let cases: &[Case] = &[
        ("unknown mux frame kind 99", |s| s.lanes.write(1, 99, &[])),
        ("mux frame kind 2 with a payload of 16777215 bytes", |s| {
            s.lanes.write_raw(&[1, 0, 0, 0, 2, 0xff, 0xff, 0xff]);
        }),
        ("mux frame kind 2 on lane 77", |s| s.lanes.write(77, 2, b"x")),
        ("mux frame kind 1 on lane", |s| s.lanes.open(1)),
        ("credit of 4294967295 bytes", |s| s.lanes.write(1, 6, &[0xff; 4])),
        ("more than 72 lanes", |s| {
            for _ in 0..100 {
                s.bare_lane();
            }
        }),
        ("whose window has", |s| {
            // A fifth data lane: nobody reads it.
            for number in 0..4 {
                s.lane(number);
            }
            let lane = s.bare_lane();
            for _ in 0..40 {
                s.lanes.write(lane, 2, &[0; 65_536]);
            }
        }),
    ];
    each(cases, |text, deed| {
        let arena = Arena::new();
        let (client, pipe) = arena.pull(RELAY, &[]);
        let mut session = Session::serve(pipe).answer();
        session.tops();
        deed(&mut session);
        session.lanes.wait_for_end();
        drop(session);
        assert_ends(client.wait(), STREAM, text);
        arena.assert_unharmed(&[]);
    });
    each(cases, |_, deed| {
        let arena = Arena::new();
        let (server, mut session) = arena.destination(ARCHIVE_DELETE);
        session.tops();
        deed(&mut session);
        session.lanes.wait_for_end();
        assert_eq!(server.end(session), STREAM);
        arena.assert_unharmed(&[]);
    });
}

#[test]
fn peer_that_hangs_up_ends_the_run_and_keeps_the_tree() {
    needs_dsync!();
    let cases: &[Case] = &[
        ("connection", |s| s.lanes.hang_up()),
        ("connection", |s| {
            list_new(s);
            s.lanes.hang_up();
        }),
        ("connection", |s| {
            list_new(s);
            let lane = s.lane(0);
            s.lanes.send(lane, &segment(1, 5));
            s.lanes.send(lane, &tokens(b"\x0cabc"));
            s.lanes.hang_up();
        }),
        ("connection", |s| {
            list_new(s);
            s.lanes.write_raw(&[1, 0, 0, 0, 2, 9, 0, 0, 1]);
            s.lanes.hang_up();
        }),
    ];
    each(cases, |text, deed| {
        let arena = Arena::new();
        let (client, pipe) = arena.pull(RELAY, &[]);
        let mut session = Session::serve(pipe).answer();
        deed(&mut session);
        assert_ends(client.wait(), 10, text);
        arena.assert_unharmed(&[]);
    });
    each(cases, |_, deed| {
        let arena = Arena::new();
        let (server, mut session) = arena.destination(ARCHIVE_DELETE);
        deed(&mut session);
        assert_eq!(server.end(session), 10);
        arena.assert_unharmed(&[]);
    });
}

#[test]
fn entry_that_is_listed_and_never_sent_ends_the_run() {
    needs_dsync!();
    source_breaks(&[("the last data lane ended before all files came", |s| {
        list_new(s);
        s.control(&Message::new(8).int(1).int(5).frame());
        for number in 0..4 {
            let lane = s.lane(number);
            s.lanes.send(lane, &Message::new(70).frame());
            s.lanes.finish(lane);
        }
    })]);
}

#[test]
fn last_words_of_the_peer_are_escaped_and_never_a_success() {
    needs_dsync!();
    for (code, expected) in [(0, STREAM), (3, 3), (23, 23)] {
        let arena = Arena::new();
        let (client, pipe) = arena.pull(RELAY, &[]);
        let session = Session::serve(pipe).answer();
        session.control(&Message::new(4).byte(code).text(b"all \x1b[2Jfine\r\nerror: x").frame());
        session.lanes.wait_for_end();
        drop(session);
        assert_ends(client.wait(), expected, "all \\#033[2Jfine\\#015\\#012error: x");
        arena.assert_unharmed(&[]);
    }
}

#[test]
fn absurd_numbers_in_a_report_are_only_shown() {
    needs_dsync!();
    let arena = Arena::new();
    let (client, pipe) = arena.push(RELAY, &["-v", "--stats"]);
    let session = Session::serve(pipe).answer();
    while session.hear().0 != 8 {}
    let huge = |message: Message, count: usize| (0..count).fold(message, |m, _| m.int(u64::MAX));
    session.control(&huge(Message::new(16), 6).byte(1).frame());
    // Made: a file whose name is an escape sequence.
    let made = Message::new(15).byte(0).bytes(&[1, 0, 0]).text(b"\x1b]0;x\x07").text(b"").int(u64::MAX);
    session.control(&made.frame());
    for part in 0..2 {
        session.control(&Message::new(13).int(part).frame());
    }
    session.control(&Message::new(14).frame());
    session.control(&huge(Message::new(17), 29).frame());
    let outcome = client.wait();
    assert!(matches!(outcome.code(), Some(0 | 12 | 23..=25)), "{}", outcome.account());
    let text = outcome.all_text();
    assert!(!text.contains("panicked"), "{}", outcome.account());
    assert!(!text.chars().any(|c| c.is_control() && c != '\n'), "{}", outcome.account());
    arena.assert_unharmed(&[]);
}

// ---- the greeting and silence: B34, B35, B58 -----------------------------------------------------------

#[test]
fn text_before_the_greeting_is_shown() {
    needs_dsync!();
    for (bytes, code, text) in [
        (&b"Welcome to \x1b[1mhost\r\n"[..], 5, "unexpected text from host before the greeting: 'Welcome to"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", 5, "unexpected text from host before the greeting: 'HTTP/1.1"),
        (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", 12, "host does not speak dsync"),
        (&[0; 400], 12, "host does not speak dsync"),
        (b"\x89dsync\r\n\x1a\n\x02\xff\xff", 12, "host does not speak dsync"),
        (b"\x89dsync\r\n\x1a\n\x05\0\0", 12, "host does not speak dsync"),
        // A server that agrees to version 0, to features, to a port that nobody offered.
        (b"\x89dsync\r\n\x1a\n\x02\x01\0\0", 12, "host does not speak dsync"),
        // "peer speaks versions 2-3".
        (b"\x89dsync\r\n\x1a\n\x03\x05\0\x01\x02\0\x03\0", 2, "upgrade this side"),
        (b"\x89dsync\r\n\x1a\n\x03\x04\0\x03\0ok", 12, "host refused: ok"),
    ] {
        let arena = Arena::new();
        let (client, mut pipe) = arena.pull(RELAY, &[]);
        pipe.writer.write_all(bytes).and_then(|()| pipe.writer.flush()).unwrap();
        drop(pipe);
        assert_ends(client.wait(), code, text);
        arena.assert_unharmed(&[]);
    }
}

#[test]
fn silence_has_a_limit() {
    needs_dsync!();
    let cases: &[Case] = &[
        // Not a word after the greeting.
        ("no sign of life from the peer for 1 s", |_| {}),
        // The carrier lives, the session does not begin.
        ("no sign of life from the peer for 1 s", |s| breathe_on(s)),
        ("no sign of life from the peer for 1 s", |s| {
            s.control(&hello(1));
            breathe_on(s);
        }),
        ("no sign of life from the peer for 1 s", |s| {
            let ready = [hello(1), Message::new(3).frame()].concat();
            s.control(&ready);
            breathe_on(s);
        }),
        // One byte at a time of a frame that never ends.
        ("no sign of life from the peer for 1 s", |s| {
            let ready = [hello(1), Message::new(3).frame()].concat();
            s.control(&ready);
            s.control(&[100, 0, 0, 0, 5]);
            for _ in 0..20 {
                s.control(&[0]);
                thread::sleep(std::time::Duration::from_millis(200));
            }
        }),
    ];
    each(cases, |text, deed| {
        let arena = Arena::new();
        let (client, pipe) = arena.pull(RELAY, &["--timeout=1"]);
        let mut session = Session::serve(pipe);
        deed(&mut session);
        assert_ends(client.wait(), 30, text);
        arena.assert_unharmed(&[]);
    });
}

/// Shows signs of life below the messages for 5 s.
fn breathe_on(session: &Session) {
    for _ in 0..10 {
        session.breathe();
        thread::sleep(std::time::Duration::from_millis(500));
    }
}
