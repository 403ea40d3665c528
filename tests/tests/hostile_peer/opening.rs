//! The opening of a session and its end.

use dsync_tests::{
    hostile::{
        Arena, Message, Session,
        arena::assert_ends,
        session::{ARCHIVE_DELETE, Order, hello, start},
    },
    needs_dsync,
};

use super::{Case, RELAY, STREAM, each, list_new, segment, server_gives_up, source_breaks, tokens};

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
        ("role has no meaning for value 16", |s| {
            s.control(&hello(1));
            s.control(&Message::new(2).byte(16).frame());
        }),
        ("number of data lanes 65 exceeds the limit 64", |s| {
            s.control(&hello(1));
            s.control(&Message::new(2).byte(1).text(b"x").int(0).int(65).frame());
        }),
        ("number of data lanes has no meaning for value 0", |s| {
            s.control(&hello(1));
            s.control(&Message::new(2).byte(1).text(b"x").int(0).int(0).frame());
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
        ("duplicate field `durability`", |s| {
            s.control(&hello(1));
            s.control(&start(Order::Source(b"."), r#","durability":"none""#));
        }),
        ("while in state 'inside a Start'", |s| {
            let part = Message::new(26).byte(0).byte(1).frame();
            s.control(&[hello(1), part, hello(1)].concat());
        }),
        ("ends inside its options", |s| {
            s.control(&hello(1));
            s.control(&Message::new(2).byte(1).text(b"x").int(0).int(4).int(1 << 19).frame());
        }),
        ("options 16777216 exceeds the limit", |s| {
            s.control(&hello(1));
            s.control(&Message::new(2).byte(1).text(b"x").int(0).int(4).int(1 << 24).frame());
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
        s.control(&Message::new(8).int(2).int(5).frame());
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
