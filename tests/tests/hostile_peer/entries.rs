//! Entries and listings: rows B43 to B47 and B52.

use dsync_tests::{
    hostile::{
        Arena, Item, Message,
        bytes::{listing_part, take_int},
        listing, raw_listing,
        session::ARCHIVE_DELETE,
    },
    needs_dsync,
};

use super::{after_tops, int, list, server_gives_up, source_breaks};

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
        ("got 2 entries, 3 declared", |s| {
            list(s, &[Item::dir("sub")]);
            s.control(&Message::new(8).int(3).int(0).frame());
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
        ("entry 0: invalid mode", |s| list(s, &[Item::file("x", 1).mode(0o10000)])),
        ("entry 0: invalid mode", |s| list(s, &[Item::file("x", 1).mode(u64::MAX)])),
        ("file size 9223372036854775808 exceeds the limit", |s| list(s, &[Item::file("x", 1 << 63)])),
        ("hidden entry", |s| list(s, &[Item::new(b"x", 7, Vec::new())])),
        ("hidden entry", |s| list(s, &[Item::hidden("x").mode(1)])),
        ("hidden entry", |s| list(s, &[Item::hidden("x").at(1)])),
        ("hidden entry", |s| list(s, &[Item::hidden("x").first_of_several()])),
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
    // Requested files that never arrive: nothing is released.
    for part in 0..20_u64 {
        let items: Vec<Item> =
            (0..4096).map(|at| Item::file(format!("{:08}", part * 4096 + at), 1)).collect();
        session.control(&listing_part(0, 2, &items));
    }
    server_gives_up(server, session, "entries ahead of its credit");
    arena.assert_unharmed(&[]);
}
