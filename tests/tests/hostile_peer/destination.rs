//! A destination's requests and signatures: row B48.

use dsync_tests::{
    hostile::{
        Arena, Footprint, Message, Session,
        session::{ARCHIVE_DELETE, COPY, Order},
    },
    needs_dsync,
};

use super::{Case, RELAY, client_gives_up, destination_breaks, each, int, server_gives_up};

fn need_delta(entry: u64, basis_len: u64, block_len: u64) -> Vec<u8> {
    need_sums(entry, basis_len, block_len, 3)
}

/// Makes a `NeedDelta`. The format's bits: 1 strong sums, 2 weak ones.
fn need_sums(entry: u64, basis_len: u64, block_len: u64, format: u8) -> Vec<u8> {
    Message::new(11).int(entry).byte(0).int(basis_len).int(block_len).byte(format).frame()
}

fn sums(entry: u64, last: u8, bytes: &[u8]) -> Vec<u8> {
    Message::new(12).int(entry).byte(last).bytes(bytes).frame()
}

/// Makes a `Landed` of these entries.
fn landed(entries: &[u64]) -> Vec<u8> {
    let message = Message::new(23).int(entries.len() as u64);
    entries.iter().fold(message, |message, &entry| message.int(entry).byte(0)).frame()
}

#[test]
fn a_destination_has_nothing_removed_but_files_that_were_listed() {
    needs_dsync!();
    let cases: &[Case] = &[
        ("entry 99 landed, which is no listed file", |s| s.control(&landed(&[99]))),
        ("entry 0 landed, which is no listed file", |s| s.control(&landed(&[0]))),
        // In order: kept, out, peek, pipe, sub.
        ("entry 5 landed, which is no listed file", |s| s.control(&landed(&[5]))),
        ("exceeds the limit 4096", |s| s.control(&landed(&vec![99; 4097]))),
    ];
    for removes in [true, false] {
        each(cases, |text, deed| {
            let arena = Arena::new();
            let options = format!(r#"{COPY},"remove-source-files":{removes}"#);
            let (server, mut session) = arena.source(&options);
            session.expect(7);
            session.expect(7);
            deed(&mut session);
            let is_bound = text.contains("limit");
            let text = if removes || is_bound { text } else { "asked to remove what is to stay" };
            server_gives_up(server, session, text);
            arena.assert_unharmed(&[]);
        });
        each(cases, |text, deed| {
            let arena = Arena::new();
            let flags: &[&str] = if removes { &["--no-delete", "--remove-source-files"] } else { &[] };
            let (client, pipe) = arena.push(RELAY, flags);
            let mut session = Session::serve(pipe).answer();
            session.expect(7);
            session.expect(7);
            deed(&mut session);
            let is_bound = text.contains("limit");
            let text = if removes || is_bound { text } else { "asked to remove what is to stay" };
            client_gives_up(client, session, text);
            arena.assert_unharmed(&[]);
        });
    }
}

#[test]
fn a_source_remembers_some_hundred_bytes_of_each_entry_of_its_tree() {
    needs_dsync!();
    let options = format!(r#"{ARCHIVE_DELETE},"delete-timing":"before""#);
    // The whole listing is needed twice, so nothing that is released is forgotten.
    let [small, large] = [1_000_u64, 61_000].map(|entries| {
        let arena = Arena::new();
        let tree = arena.scratch().at("tree");
        for at in 0..entries {
            let dir = tree.join(format!("{:04}", at / 1000));
            std::fs::create_dir_all(&dir).unwrap();
            std::os::unix::fs::symlink("x", dir.join(format!("{at:08}"))).unwrap();
        }
        let (server, pipe) = arena.server();
        let watched = Footprint::watch(server.id());
        let session = Session::greet(pipe).start(Order::Source(&arena.tree()), &options);
        let mut part = 0;
        loop {
            match session.hear() {
                (7, _) => {
                    session.control(&Message::new(13).int(part).frame());
                    part += 1;
                }
                (8, _) => break,
                (4, payload) => panic!("dsync gave up: {}", String::from_utf8_lossy(&payload)),
                _ => {}
            }
        }
        let peak = watched.finish().memory;
        let _ = server.allow(64 << 20).end(session);
        peak
    });
    let each = large.saturating_sub(small) / 60_000;
    println!("{} KiB with 1,000 entries, {} KiB with 61,000: {each} bytes each", small >> 10, large >> 10);
    assert!(each < 400, "{each} bytes for each entry");
}

#[test]
fn signature_headers_that_cannot_be_end_the_run() {
    needs_dsync!();
    destination_breaks(&[
        ("invalid signature header: block length 0", |s| {
            s.expect(7);
            s.control(&need_delta(1, 1000, 0));
        }),
        ("invalid signature header: block length 1", |s| {
            s.expect(7);
            s.control(&need_delta(1, 1000, 1));
        }),
        ("invalid signature header: block length 1500", |s| {
            s.expect(7);
            s.control(&need_delta(1, 1000, 1500));
        }),
        ("invalid signature header: block length 8388608", |s| {
            s.expect(7);
            s.control(&need_delta(1, 1000, 1 << 23));
        }),
        ("invalid signature header: block length 2147483648", |s| {
            s.expect(7);
            s.control(&need_delta(1, 1000, 1 << 31));
        }),
        ("invalid signature header: block length 1099511627776", |s| {
            s.expect(7);
            s.control(&need_delta(1, 1000, 1 << 40));
        }),
        ("basis length 9223372036854775808 exceeds the limit", |s| {
            s.expect(7);
            s.control(&need_delta(1, 1 << 63, 1024));
        }),
        ("signature of 1099511627776 blocks, at most", |s| {
            s.expect(7);
            s.control(&need_delta(1, 1 << 50, 1024));
        }),
        ("format of sums has no meaning for value 0", |s| {
            s.expect(7);
            s.control(&need_sums(1, 4096, 1024, 0));
        }),
        ("format of sums has no meaning for value 4", |s| {
            s.expect(7);
            s.control(&need_sums(1, 4096, 1024, 4));
        }),
    ]);
}

#[test]
fn sums_that_do_not_fit_their_signature_end_the_run() {
    needs_dsync!();
    destination_breaks(&[
        ("size of sums 262145 exceeds the limit 262144", |s| {
            s.expect(7);
            s.control(&need_delta(1, 1 << 30, 1024));
            s.control(&sums(1, 0, &vec![0; 262_145]));
        }),
        ("more sums than the 4 blocks", |s| {
            s.expect(7);
            s.control(&need_delta(1, 4096, 1024));
            s.control(&sums(1, 0, &[0; 4096]));
        }),
        ("sums of 0 blocks out of 4", |s| {
            s.expect(7);
            s.control(&need_delta(1, 4096, 1024));
            s.control(&sums(1, 1, &[0; 3]));
        }),
        ("entry 1: not the sums that were asked for", |s| {
            s.expect(7);
            s.control(&need_sums(1, 4096, 1024, 2));
        }),
        ("more sums than the 4 blocks", |s| {
            s.expect(7);
            s.control(&need_sums(1, 4096, 1024, 1));
            s.control(&sums(1, 1, &[0; 33]));
        }),
        ("entry 1: sums without a signature that waits for them", |s| {
            s.expect(7);
            s.control(&sums(1, 1, &[0; 12]));
        }),
        ("entry 1: asked for again before its sums are complete", |s| {
            s.expect(7);
            s.control(&need_delta(1, 4096, 1024));
            s.control(&need_delta(1, 4096, 1024));
        }),
        ("request for entry 7, which is not listed", |s| {
            // The most blocks that are accepted: nothing may be allocated for them, nor for more
            // files than exist.
            s.expect(7);
            s.expect(7);
            for entry in [1, 2, 3, 4, 5, 7, 6, 8] {
                s.control(&need_delta(entry, 4 << 30, 1024));
            }
        }),
    ]);
}

#[test]
fn weak_sums_that_were_not_asked_for_end_the_run() {
    needs_dsync!();
    /// Sends strong sums that match nothing; the source requests the weak ones.
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
        ("entry 1: not the sums that were asked for", |s| {
            strong_sums(s);
            // The key of further sums is that of the first ones.
            let need = Message::new(11).int(1).byte(0).int(4096).int(1024).byte(2 | 4);
            s.control(&need.bytes(&[7; 32]).frame());
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
    destination_breaks(&[("entry 1: attempt 0 is not its next request", |s| {
        s.expect(7);
        s.lanes.stop_listening();
        let one = Message::new(10).int(1).byte(0).frame();
        // Nothing that arrives is read: the lanes fill, and the queue behind them.
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
    // Signatures of 65,536 blocks, complete, whose deltas cannot be sent: the source may hold the
    // sums that it received (law S7), and nothing for those that were only announced.
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
