//! Spans: what one stands for, who may send one, and what an answer may name.

use std::fs;

use dsync_tests::{
    hostile::{
        Arena, Carrier, Item, Message, Session,
        bytes::listing_part,
        listing,
        session::{ARCHIVE_DELETE, COPY},
    },
    needs_dsync,
};

use super::{RELAY, after_tops, client_gives_up, destination_breaks, list, server_gives_up, source_breaks};

/// Makes a `Span` that ends with the root directory.
pub(super) fn span(items: u64) -> Vec<u8> {
    Message::new(30).int(items).text(b"").text(b"").bytes(&[7; 16]).frame()
}

fn same(first: u64, count: u64) -> Vec<u8> {
    Message::new(32).int(first).int(count).frame()
}

fn listing_end(entries: u64) -> Vec<u8> {
    Message::new(8).int(entries).int(0).frame()
}

const ASTRAY: &str = "spans and listings do not fit each other";

#[test]
fn listings_that_do_not_fit_their_span_end_the_run() {
    needs_dsync!();
    source_breaks(&[
        (ASTRAY, |s| after_tops(s, &same(0, 1))),
        (ASTRAY, |s| after_tops(s, &[span(1), same(99, 1)].concat())),
        (ASTRAY, |s| after_tops(s, &[span(1), same(0, 1024)].concat())),
        // The piece has more items than the span.
        (ASTRAY, |s| after_tops(s, &[span(1), same(0, 1)].concat())),
        (ASTRAY, |s| after_tops(s, &[span(50), same(0, 1), same(0, 1)].concat())),
        (ASTRAY, |s| {
            after_tops(s, &[span(2), listing(0, &[Item::dir("sub"), Item::file("zz", 1)])].concat());
        }),
        (ASTRAY, |s| after_tops(s, &[span(9), listing_end(1)].concat())),
        (ASTRAY, |s| after_tops(s, &span(9).repeat(17))),
        ("number of items 32769 exceeds the limit 32768", |s| after_tops(s, &span(32_769))),
        ("number of pieces", |s| after_tops(s, &[span(9), same(0, 0)].concat())),
        ("exceeds the limit 1024", |s| after_tops(s, &[span(9), same(1025, 1)].concat())),
        ("unexpected message ListingEnd while in state 'inside a directory's listing'", |s| {
            after_tops(s, &[listing_part(0, 0, &[]), listing_end(1)].concat());
        }),
        ("got 2 entries, 5 declared", |s| {
            after_tops(s, &[span(2), listing(0, &[Item::file("zz", 1)]), listing_end(5)].concat());
        }),
    ]);
}

#[test]
fn a_span_where_none_may_be_ends_the_run() {
    needs_dsync!();
    for (options, text) in [
        (r#","hard-links":true"#, "unexpected message Span"),
        (r#","checksum":true"#, "unexpected message Span"),
        (r#","delete-timing":"before""#, "unexpected message Span"),
    ] {
        let arena = Arena::new();
        let (server, session) = arena.destination(&format!("{ARCHIVE_DELETE}{options}"));
        after_tops(&session, &span(1));
        server_gives_up(server, session, text);
        arena.assert_unharmed(&[]);
    }
}

#[test]
fn answers_to_no_span_end_the_run() {
    needs_dsync!();
    destination_breaks(&[
        ("an answer to no span", |s| s.control(&Message::new(31).byte(0).frame())),
        ("an answer to no span", |s| s.control(&Message::new(31).byte(2).frame())),
        ("an answer to no span", |s| s.control(&Message::new(31).byte(1).int(1).bytes(&[7; 16]).frame())),
        ("answer", |s| s.control(&Message::new(31).byte(3).frame())),
        ("exceeds the limit 1024", |s| s.control(&Message::new(31).byte(1).int(1025).frame())),
    ]);
}

#[test]
fn a_source_that_lies_about_a_digest_changes_nothing() {
    needs_dsync!();
    // Spans that nobody has are listed, and the listing is judged like any other.
    let arena = Arena::new();
    let (server, session) = arena.destination(ARCHIVE_DELETE);
    after_tops(&session, &span(2));
    let answer = session.expect(31);
    assert_eq!(answer[0], 1, "the destination's own pieces: {answer:?}");
    session.control(&listing(0, &[Item::file("../outside/x", 1)]));
    server_gives_up(server, session, "peer sent an invalid name '../outside/x'");
    arena.assert_unharmed(&[]);
}

/// Fills the tree with so many files that a source sends spans of them.
fn fill(arena: &Arena) {
    (0..600).for_each(|file| fs::write(arena.scratch().at(&format!("tree/sub/file{file}")), b"").unwrap());
}

#[test]
fn an_older_destination_gets_the_listing_as_it_is() {
    needs_dsync!();
    for (features, spans) in [([0; 8], false), (dsync_tests::hostile::session::FEATURES, true)] {
        let arena = Arena::new();
        fill(&arena);
        let (client, pipe) = arena.push(RELAY, &[]);
        let session = Session::serve_knowing(pipe, Carrier::Pipe, features).answer();
        let last = loop {
            match session.hear().0 {
                5..=7 => {}
                other => break other,
            }
        };
        assert_eq!(last, if spans { 30 } else { 8 });
        // A carrier that breaks while spans are open.
        drop(session);
        let outcome = client.wait();
        assert!(outcome.code().is_some_and(|code| code > 0), "{}", outcome.account());
    }
}

#[test]
fn a_span_that_stands_for_much_more_is_listed() {
    needs_dsync!();
    let arena = Arena::new();
    (0..3000).for_each(|file| fs::write(arena.scratch().at(&format!("tree/sub/file{file}")), b"").unwrap());
    let (_server, session) = arena.destination(COPY);
    list(&session, &[Item::dir("sub")]);
    // Its own walk goes no further than the span could.
    session.control(&Message::new(30).int(1).text(b"sub").text(b"").bytes(&[7; 16]).frame());
    assert_eq!(session.expect(31), [1, 0]);
}

/// A walk of the destination's own tree copies the paths of all directories to come, and a listing
/// between two spans makes the next span begin another.
#[test]
fn spans_of_a_short_listing_begin_few_walks() {
    needs_dsync!();
    let arena = Arena::new();
    let (server, session) = arena.destination(&format!(r#"{COPY},"dry-run":true"#));
    session.tops();
    let mut walks = 0;
    for round in 0..100 {
        let items = [0, 1].map(|half| [Item::file(format!("a{:04}", 2 * round + half), 1)]);
        session.control(&listing_part(0, 2, &items[0]));
        session.control(&span(1));
        session.control(&listing_part(0, 2, &items[1]));
        // It has pieces only if the destination has looked at its tree.
        let answer = session.expect(31);
        assert_eq!(answer[0], 1, "{answer:?}");
        walks += u32::from(answer[1] > 0);
    }
    assert!((1..=16).contains(&walks), "{walks} walks for 200 entries");
    drop(session);
    drop(server);
}

/// A span that is released before it is answered would let the source gather the next ones: their
/// listings stay in its memory until then.
#[test]
fn a_span_without_an_answer_cannot_be_released() {
    needs_dsync!();
    let arena = Arena::new();
    fill(&arena);
    let (client, pipe) = arena.push(RELAY, &[]);
    let session = Session::serve(pipe).answer();
    let mut listings = 0;
    loop {
        match session.hear().0 {
            7 => listings += 1,
            30 => break,
            _ => {}
        }
    }
    // The span has the number after theirs. Without an answer the source would hear the next message.
    session.control(&Message::new(13).int(listings).frame());
    session.control(&Message::new(19).frame());
    client_gives_up(client, session, "released twice or never sent");
}
