//! Lists of paths (`--files-from`): a source that sends what the list does not name, a client whose
//! list breaks the protocol.

use std::fs;

use dsync_tests::{
    Scratch,
    hostile::{
        Arena, Item, Message, Session,
        bytes::listing_part,
        session::{COPY, Order, hello, start},
    },
    needs_dsync,
};

use super::{Case, RELAY, client_gives_up, each, server_gives_up};

/// Pulls with a list that is here; the source sends something else.
fn is_refused(lines: &str, flags: &[&str], text: &str, deed: fn(&Session)) {
    let scratch = Scratch::new();
    let list = scratch.at("list");
    fs::write(&list, lines).unwrap();
    let list = format!("--files-from={}", list.display());
    let arena = Arena::new();
    let flags: Vec<_> = [list.as_str()].into_iter().chain(flags.iter().copied()).collect();
    let (client, pipe) = arena.pull_of(RELAY, &flags, &["host:some"]);
    let session = Session::serve(pipe).answer();
    // The list has come before anything is sent.
    let names = session.expect(27);
    assert_eq!(names.first(), Some(&1), "one part");
    deed(&session);
    client_gives_up(client, session, &format!("the source sent {text}"));
    // A directory that the list names is made.
    arena.assert_unharmed(&["a"]);
}

#[test]
fn an_entry_that_the_list_does_not_name_is_refused() {
    needs_dsync!();
    is_refused("report1\n", &[], "'.bashrc', which nobody asked for: no operand names it", |s| {
        s.named_tops(1);
        s.control(&listing_part(0, 1, &[Item::file(".bashrc", 5)]));
    });
    is_refused("a/b\n", &["-r"], "'a', which nobody asked for: no operand names it", |s| {
        s.named_tops(1);
        // As one that is named, so that all of it may come.
        s.control(&listing_part(0, 1, &[Item::dir("a")]));
    });
    is_refused("a\nb\n", &[], "more entries of the destination directory itself", |s| s.named_tops(3));
    is_refused("a\n", &[], "the entries of 'a', which nobody asked for", |s| {
        s.named_tops(1);
        s.control(&listing_part(0, 1, &[Item::dir("a")]));
        s.control(&listing_part(1, 1, &[Item::file("x", 1)]));
    });
    is_refused("x/a\n", &["--no-R"], "'x', which nobody asked for: no operand names it", |s| {
        s.named_tops(1);
        s.control(&listing_part(0, 1, &[Item::file("x", 5)]));
    });
    is_refused("a\n", &["-r", "--delete"], "word that it lists all of the destination directory", |s| {
        s.named_tops(0);
        s.control(&listing_part(0, 3, &[]));
    });
}

#[test]
fn a_list_of_a_client_is_held_to_the_format() {
    needs_dsync!();
    let begun = |s: &Session| {
        s.control(&hello(1));
        s.control(&start(Order::SourceOfList(b"tree/"), COPY));
    };
    let cases: &[Case] = &[
        ("while in state 'waiting for Names'", |s| s.control(&Message::new(10).int(1).byte(0).frame())),
        ("number of lines 4097 exceeds the limit", |s| {
            s.control(&Message::new(27).byte(0).int(4097).frame());
        }),
        ("shared beginning", |s| s.control(&Message::new(27).byte(0).int(1).int(1).text(b"a").frame())),
        ("more than 1000 lines are no paths", |s| {
            let long = vec![b'x'; 256];
            let many = (0..1001).fold(Message::new(27).byte(1).int(1001), |message, line| {
                if line == 0 { message.int(0).text(&long) } else { message.int(256).text(b"") }
            });
            s.control(&many.frame());
        }),
    ];
    for (text, deed) in cases {
        let arena = Arena::new();
        let (server, pipe) = arena.server();
        let mut session = Session::greet(pipe);
        begun(&session);
        deed(&mut session);
        if text.contains("1000") {
            let fatal = session.fatal();
            assert_eq!((fatal.code, server.end(session)), (1, 1), "{}", fatal.text);
        } else {
            server_gives_up(server, session, text);
        }
        arena.assert_unharmed(&[]);
    }
}

#[test]
fn a_list_that_was_not_announced_is_refused() {
    needs_dsync!();
    let cases: &[Case] = &[("while in state 'serving requests'", |s| {
        s.control(&Message::new(27).byte(1).int(1).int(0).text(b"a").frame());
    })];
    each(cases, |text, deed| {
        let arena = Arena::new();
        let (server, pipe) = arena.server();
        let mut session = Session::greet(pipe).start(Order::Source(&arena.tree()), COPY);
        deed(&mut session);
        server_gives_up(server, session, text);
        arena.assert_unharmed(&[]);
    });
}

/// Nobody else's disk keeps it: the lines share their beginnings, so it costs the client some megabytes.
#[test]
fn a_list_of_a_restricted_client_has_a_bound() {
    needs_dsync!();
    let arena = Arena::new();
    let (server, pipe) = arena.restricted_server("ro");
    let session = Session::greet(pipe);
    session.control(&hello(1));
    session.control(&start(Order::SourceOfList(b"./"), COPY));
    let line = vec![vec![b'x'; 255]; 16].join(&b"/"[..]);
    let first = Message::new(27).byte(0).int(64).int(0).text(&line);
    let part = (1..64).fold(first, |message, _| message.int(line.len() as u64).text(b"")).frame();
    // 256 MiB are reached with the last one.
    (0..1019).for_each(|_| session.control(&part));
    session.control(&Message::new(27).byte(1).int(1).int(0).text(b"a").frame());
    let fatal = session.fatal();
    assert_eq!(fatal.code, 1, "{}", fatal.text);
    assert!(fatal.text.contains("longer than the 256 MiB"), "{}", fatal.text);
    assert_eq!(server.end(session), 1);
    arena.assert_unharmed(&[]);
}
