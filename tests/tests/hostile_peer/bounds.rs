//! The table of bounds in `docs/threat-model.md`, row by row: what reaches a bound is accepted, and one
//! more is refused.
//!
//! The value of a scenario is the page's, so a page that says something else than the program does
//! fails, and so does a row that has no scenario.

use std::fs;

use dsync_tests::{
    hostile::{
        Arena, Item, Message, Session,
        bytes::{lz4, put_int, take_int},
        listing,
        session::{COPY, Order},
    },
    needs_dsync,
};

use super::{
    list_new,
    many::{MOST, large_set},
    segment, server_gives_up,
    spans::span,
};

/// Rows whose bound no exact number of messages reaches, with what shows them.
const ELSEWHERE: &[(&str, &str)] = &[
    ("MAX_UNRELEASED_ENTRIES", "those that the planner has looked at meanwhile do not count"),
    ("LANES_RESERVE", "lanes are closed by it, which ends the pipe without a word"),
    ("MAX_UNRELEASED_SET_BYTES", "the source waits: its catalogue's own test counts what it lets through"),
    ("MAX_OPEN_PATH_BYTES", "the destination holds its credit back: paths have several owners"),
    ("MAX_SPOOLS_IN_MEMORY", "no disk is missing here: the spool's own test has none"),
    ("MAX_STALL_SECONDS", "an hour; the tests of phases set another deadline"),
];

/// Returns the names and the values of the table's rows.
fn rows() -> Vec<(String, u64)> {
    let page = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/threat-model.md")).unwrap();
    let (_, table) = page.split_once("<!-- table: bounds -->\n").unwrap();
    let rows = table.lines().skip(2).take_while(|line| line.starts_with('|'));
    rows.map(|row| {
        let cells: Vec<_> = row.trim_matches('|').split('|').map(str::trim).collect();
        (cells[0].trim_matches('`').to_owned(), cells[1].replace(',', "").parse().unwrap())
    })
    .collect()
}

/// Sends so many of what is bounded.
type Send = fn(&mut Session, u64);
/// Waits until dsync has accepted so many.
type Accepted = fn(&mut Session, u64);

/// A bound that exact numbers reach.
struct Scenario {
    send: Send,
    accepted: Accepted,
    /// dsync's message when it gives up.
    text: String,
}

impl Scenario {
    /// Sends as many as the bound permits, then, to another server, one more.
    fn holds(&self, arena: &Arena, (order, options): (Order<'_>, &str), bound: u64) {
        for (count, is_refused) in [(bound, false), (bound + 1, true)] {
            let (server, pipe) = arena.server();
            let server = server.allow(MOST);
            let mut session = Session::greet(pipe).start(order, options);
            (self.send)(&mut session, count);
            if is_refused {
                server_gives_up(server, session, &self.text);
            } else {
                (self.accepted)(&mut session, count);
                let _ = server.end(session);
            }
        }
    }

    /// Runs with dsync as the destination.
    fn of_source(&self, options: &str, bound: u64) {
        let arena = Arena::new();
        self.holds(&arena, (Order::Destination(&arena.tree()), options), bound);
    }

    /// Runs with dsync as the source of so many files, beside those of the arena.
    fn of_destination(&self, files: u64, bound: u64) {
        let arena = Arena::new();
        (0..files).for_each(|at| fs::write(arena.scratch().at(&format!("tree/sub/{at:06}")), b"").unwrap());
        // With these there are no spans, which would have to be answered.
        let options = format!(r#"{COPY},"hard-links":true"#);
        self.holds(&arena, (Order::Source(&arena.tree()), &options), bound);
    }
}

#[test]
fn each_bound_of_the_table_is_reached_and_not_exceeded() {
    needs_dsync!();
    let rows = rows();
    assert!(rows.len() > 10, "{rows:?}");
    for (name, bound) in rows {
        println!("{name}: {bound}");
        match name.as_str() {
            "DEFAULT_MAX_ALLOC" => account(bound),
            "MAX_OPEN_SPANS" => open_spans(bound),
            "MAX_SPAN_ITEMS" => span_items(bound),
            "MAX_SPAN_PIECES" => span_pieces(bound),
            "MAX_PATH_DEPTH" => depth(bound),
            "MAX_ATTEMPTS" => attempts(bound),
            "MAX_OPEN_SIGNATURES" => open_signatures(bound),
            "MAX_FINE_BLOCKS" => fine_blocks(bound),
            "MAX_TOKENS_PER_MIB" => tokens_of_a_segment(bound),
            other => assert!(ELSEWHERE.iter().any(|(name, _)| *name == other), "{other} has no scenario"),
        }
    }
}

/// Returns the refusal of one more than a limit of the wire.
fn beyond(what: &str, bound: u64) -> String {
    format!("{what} {} exceeds the limit {bound}", bound + 1)
}

fn open_spans(bound: u64) {
    let scenario = Scenario {
        send: |s, count| {
            s.tops();
            (0..count).for_each(|_| s.control(&span(9)));
        },
        accepted: |s, count| (0..count).for_each(|_| _ = s.expect(31)),
        text: "spans and listings do not fit each other".to_owned(),
    };
    scenario.of_source(COPY, bound);
}

fn span_items(bound: u64) {
    let scenario = Scenario {
        send: |s, count| {
            s.tops();
            s.control(&span(count));
        },
        accepted: |s, _| _ = s.expect(31),
        text: beyond("number of items", bound),
    };
    scenario.of_source(COPY, bound);
}

fn span_pieces(bound: u64) {
    let scenario = Scenario {
        send: |s, count| {
            let digests = vec![7; 16 * usize::try_from(count).unwrap()];
            s.control(&Message::new(31).byte(1).int(count).bytes(&digests).frame());
        },
        // It is understood, and answers nothing.
        accepted: |s, _| assert!(s.fatal().text.contains("an answer to no span")),
        text: beyond("number of pieces", bound),
    };
    scenario.of_destination(0, bound);
}

fn depth(bound: u64) {
    let scenario = Scenario {
        send: |s, count| {
            s.tops();
            (0..count).for_each(|dir| s.control(&listing(dir, &[Item::dir("d")])));
        },
        // The credit of the last listing.
        accepted: |s, count| while take_int(&mut &s.expect_credit()[..]) + 1 < count {},
        text: beyond("depth", bound),
    };
    scenario.of_source(&format!(r#"{COPY},"dry-run":true"#), bound);
}

fn attempts(bound: u64) {
    let scenario = Scenario {
        send: |s, count| {
            s.expect(7);
            for attempt in 0..count {
                s.control(&Message::new(10).int(1).byte(attempt.to_le_bytes()[0]).frame());
            }
        },
        accepted: |s, _| is_heard(s),
        text: format!("attempt {bound} is not its next request"),
    };
    scenario.of_destination(0, bound);
}

fn open_signatures(bound: u64) {
    let scenario = Scenario {
        send: |s, count| {
            while s.hear().0 != 8 {}
            // Those of the root come before those of its directory.
            for entry in 6..6 + count {
                s.control(&Message::new(11).int(entry).byte(0).int(9).int(1024).byte(3).frame());
            }
        },
        accepted: |s, _| is_heard(s),
        text: beyond("number of incomplete signatures", bound),
    };
    scenario.of_destination(bound + 1, bound);
}

/// Waits for the refusal of a message that comes after all others.
fn is_heard(s: &mut Session) {
    s.control(&Message::new(19).frame());
    let text = s.fatal().text;
    assert!(text.contains("unexpected message Bye"), "{text}");
}

fn tokens_of_a_segment(bound: u64) {
    let scenario = Scenario {
        send: |s, count| {
            list_new(s);
            let lane = s.lane(0);
            let pieces = vec![0b110; usize::try_from(count).unwrap()];
            s.lanes.send(lane, &segment(1, 1 << 20));
            s.lanes.send(lane, &Message::new(67).packed(2, count, &lz4(&pieces)).frame());
            // The file has changed: it is asked for again.
            s.lanes.send(lane, &Message::new(68).byte(0).frame());
            s.lanes.send(lane, &Message::new(69).int(1).byte(0).byte(1).byte(2).frame());
        },
        accepted: |s, _| assert_eq!(s.expect(10), [1, 1]),
        text: format!("more than {bound} tokens in a segment"),
    };
    scenario.of_source(COPY, bound);
}

/// Takes attribute sets from the account up to half of it, then until it is exceeded.
fn account(bound: u64) {
    const XATTRS: &str = r#","recursive":true,"xattrs":true,"dry-run":true"#;
    let set = large_set();
    for is_refused in [false, true] {
        let arena = Arena::new();
        let (server, pipe) = arena.server();
        let session = Session::greet(pipe).start(Order::Destination(&arena.tree()), XATTRS);
        session.tops();
        let sets = if is_refused { bound } else { bound / 2 } / set.len() as u64 + 1;
        for at in 0..sets {
            let mut content = vec![1];
            content.extend_from_slice(&set);
            // A directory, which keeps its set until its own listing comes: flags, name, mode, owner,
            // group, seconds, number of the set.
            content.extend_from_slice(&[1, 128 | 1, 1, 0, 8]);
            content.extend_from_slice(format!("{at:08}").as_bytes());
            content.extend_from_slice(&[0; 5]);
            let packed = Message::new(7).int(0).byte(0).packed(2, content.len() as u64, &lz4(&content));
            session.control(&packed.frame());
        }
        if is_refused {
            let text = format!("more than {} MiB of memory, of which attribute sets have", bound >> 20);
            server_gives_up(server.allow(MOST), session, &text);
        } else {
            assert!(!session.expect_credit().is_empty());
            let _ = server.allow(MOST).end(session);
        }
    }
}

/// Asks for the sums of short blocks of an old file, once its long blocks were summed.
fn fine_blocks(bound: u64) {
    const FINE: u64 = 1024;
    for (count, is_refused) in [(bound, false), (bound + 1, true)] {
        let len = 2 * FINE * bound;
        let arena = Arena::new().with_hole("vast", len);
        let (server, session) = arena.destination(COPY);
        session.tops();
        session.control(&listing(0, &[Item::file("vast", len).time(1, 0)]));
        let need = session.expect(11);
        let mut fields = &need[2..];
        let (basis, block) = (take_int(&mut fields), take_int(&mut fields));
        assert_eq!(basis, len);
        while session.expect(12)[1] == 0 {}
        // Whole blocks from the beginning of the old file.
        let blocks = (count * FINE).div_ceil(block);
        // One copy from block 0 on.
        let mut runs = Vec::new();
        put_int(&mut runs, blocks << 2 | 1);
        runs.push(0);
        session.control(&Message::new(20).int(1).byte(0).int(FINE).byte(3).bytes(&runs).frame());
        if is_refused {
            server_gives_up(server.allow(MOST), session, &format!("blocks, at most {bound} are allowed"));
        } else {
            assert_eq!(session.expect(11)[0], 1);
            let _ = server.allow(MOST).end(session);
        }
    }
}
