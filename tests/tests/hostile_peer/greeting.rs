//! The greeting, and silence: rows B34, B35 and B58.

use std::thread;

use dsync_tests::{
    hostile::{Arena, Message, Session, arena::assert_ends, session::hello},
    needs_dsync,
};

use super::{Case, RELAY, each};

#[test]
fn text_before_the_greeting_is_shown() {
    needs_dsync!();
    for (bytes, code, text) in [
        (&b"Welcome to \x1b[1mhost\r\n"[..], 2, "unexpected text from host before the greeting: 'Welcome to"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", 2, "unexpected text from host before the greeting: 'HTTP/1.1"),
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
        // Nothing after the greeting.
        ("no sign of life from the peer for 1 s", |_| {}),
        // The carrier lives, but the session does not begin.
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
        // One byte at a time of a frame that never ends: a sign of life, and no progress.
        ("the peer is there but nothing was done for 3 s", |s| {
            let ready = [hello(1), Message::new(3).frame()].concat();
            s.control(&ready);
            s.control(&[100, 0, 0, 0, 5]);
            for _ in 0..99 {
                if s.lanes.is_over() {
                    break;
                }
                s.control(&[0]);
                thread::sleep(std::time::Duration::from_millis(200));
            }
        }),
    ];
    each(cases, |text, deed| {
        let arena = Arena::new();
        let (client, pipe) = arena.pull(RELAY, &["--timeout=1", "--max-stall=3"]);
        let mut session = Session::serve(pipe);
        deed(&mut session);
        assert_ends(client.wait(), 30, text);
        arena.assert_unharmed(&[]);
    });
}

/// Sends signs of life below the messages until the client hangs up anyway.
fn breathe_on(session: &Session) {
    for _ in 0..600 {
        if session.lanes.is_over() {
            return;
        }
        session.breathe();
        thread::sleep(std::time::Duration::from_millis(500));
    }
    panic!("the client lives on signs of life alone");
}
