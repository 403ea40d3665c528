//! Many legal messages: none breaks a rule of the wire by itself, but all together would fill the
//! memory of the other end.
//!
//! Each scenario is one bound of `docs/threat-model.md`, against `dsync --server` and against the
//! client, over each carrier. The peak of either end is printed, resident and in files that are
//! memory, and checked against [`MOST`].

use std::thread;

use dsync_tests::{
    hostile::{
        Arena, Carrier, Footprint, Item, Message, Peak, Session,
        bytes::{listing_part, lz4, put_int, take_int},
        lanes::kind,
        listing,
        session::Order,
    },
    needs_dsync,
};

use super::{RELAY, STREAM, int, list, list_new, segment};

/// Exit code of a run whose peer does nothing.
const TIMEOUT: i32 = 30;
/// The most that either end may take under its default bound of 256 MiB, in bytes.
pub(super) const MOST: u64 = 300 << 20;
/// The option for the lowest bound that a run works with.
const SMALL: &str = "--max-alloc=67108864";
/// The most that an end may take under that bound, in bytes.
const MOST_OF_SMALL: u64 = 110 << 20;

/// One bound, and a peer's attempt to exceed it.
struct Flood {
    name: &'static str,
    /// dsync's message when it gives up; none if the bound makes it hold less instead.
    text: Option<&'static str>,
    /// Options of the session that the peer starts, and of the client.
    options: &'static str,
    flags: &'static [&'static str],
    /// The bound on dsync's memory, here and on the client's command line.
    bound: Option<&'static str>,
    deed: fn(&mut Session),
}

/// Options of `-a` without events.
const QUIET: &str = r#","recursive":true,"links":true,"perms":true,"times":true,"events":"problems""#;
const QUIET_DRY: &str =
    r#","recursive":true,"links":true,"perms":true,"times":true,"events":"problems","dry-run":true"#;

impl Flood {
    fn most(&self) -> u64 {
        if self.bound.is_some() { MOST_OF_SMALL } else { MOST }
    }

    fn judge(&self, role: &str, peak: Peak) {
        let Peak { memory, memfds, spooled, charged } = peak;
        let charged = charged.map_or_else(String::new, |bytes| format!(", {} MiB charged", bytes >> 20));
        println!(
            "{}: {role}: peak {} MiB resident, {} KiB in memfds, {} MiB in unnamed files{charged}",
            self.name,
            memory >> 20,
            memfds >> 10,
            spooled >> 20
        );
        assert!(memory > 0, "{}: {role}: nothing was seen", self.name);
        assert!(memory <= self.most(), "{}: {role}: {} MiB resident", self.name, memory >> 20);
        assert!(memfds <= 1 << 20, "{}: {role}: {} MiB in memfds", self.name, memfds >> 20);
    }

    /// Runs against `dsync --server`, in the role that `order` gives it.
    fn against_server(&self, arena: &Arena, carrier: Carrier, order: fn(&[u8]) -> Order<'_>) -> Peak {
        let (server, pipe) = arena.server_with(self.bound.as_slice());
        let watched = Footprint::watch(server.id());
        let mut session = Session::greet_over(pipe, carrier).start(order(&arena.tree()), self.options);
        (self.deed)(&mut session);
        self.hear(carrier, &session, Some(STREAM));
        let peak = watched.finish();
        self.judge(&format!("server over {}", carrier.option()), peak);
        let code = server.allow(MOST).end(session);
        assert!(self.text.is_none() || code == STREAM, "exit code {code}");
        peak
    }

    /// Runs against a client that pulls, or pushes.
    fn against_client(&self, arena: &Arena, carrier: Carrier, pulls: bool) -> Peak {
        // This peer shows no signs of life, and a busy machine takes its time.
        let flags = [&["--timeout=3600"], self.flags, self.bound.as_slice()].concat();
        let (client, pipe) = if pulls {
            arena.pull_over(carrier, RELAY, &flags)
        } else {
            arena.push_over(carrier, RELAY, &flags)
        };
        let watched = Footprint::watch(client.id());
        let mut session = Session::serve_over(pipe, carrier).answer();
        (self.deed)(&mut session);
        self.hear(carrier, &session, None);
        let peak = watched.finish();
        self.judge(&format!("client over {}", carrier.option()), peak);
        drop(session);
        let outcome = client.wait();
        if self.text.is_some() {
            let outcome = outcome.expect_code(STREAM);
            assert!(self.is_told(carrier, &outcome.stderr_text()), "{}", outcome.account());
        }
        peak
    }

    /// Receives dsync's last message, if there must be one.
    fn hear(&self, carrier: Carrier, session: &Session, code: Option<i32>) {
        if self.text.is_none() {
            return;
        }
        let fatal = session.last_word();
        assert!(fatal.is_some() || carrier != Carrier::Pipe, "{}: no last word", self.name);
        if let Some(fatal) = fatal {
            assert!(code.is_none_or(|code| i32::from(fatal.code) == code), "{}", fatal.text);
            assert!(self.is_told(carrier, &fatal.text), "it says: {}", fatal.text);
        }
    }

    /// Returns whether dsync's message is the expected one. On a busy machine a client takes the path
    /// for a long one and asks for 16 lanes, whose buffers are then most of a small bound.
    fn is_told(&self, carrier: Carrier, said: &str) -> bool {
        let is_over = said.contains("hold more than 64 MiB of memory, of which lanes have");
        let may_have_lanes = carrier == Carrier::Quic && self.bound == Some(SMALL);
        // The flood may also reach the bound before anybody has looked at its first entry.
        let is_full = self.text == Some(UNASKED_SETS) && said.contains("attribute sets have");
        self.text.is_none_or(|text| said.contains(text) || may_have_lanes && is_over || is_full)
    }

    /// Runs with dsync as the destination.
    fn of_source(&self) -> Vec<Peak> {
        self.of_source_in(Arena::new)
    }

    /// Runs with dsync as the destination in such a tree.
    fn of_source_in(&self, arena: fn() -> Arena) -> Vec<Peak> {
        let each = |carrier| {
            [
                self.against_server(&arena(), carrier, |tree| Order::Destination(tree)),
                self.against_client(&arena(), carrier, true),
            ]
        };
        Carrier::ALL.into_iter().flat_map(each).collect()
    }

    /// Runs with dsync as the source.
    fn of_destination(&self) {
        for carrier in Carrier::ALL {
            self.against_server(&Arena::new(), carrier, |tree| Order::Source(tree));
            self.against_client(&Arena::new(), carrier, false);
        }
    }
}

/// Makes a `Listing` of the root, not its last part, with LZ4 content.
fn packed_listing(dir: u64, content: &[u8]) -> Vec<u8> {
    Message::new(7).int(dir).byte(2).packed(2, content.len() as u64, &lz4(content)).frame()
}

/// Makes an attribute set of nearly 1 MiB.
pub(super) fn large_set() -> Vec<u8> {
    let mut set = vec![0];
    put_int(&mut set, 15);
    for at in 0..15 {
        let name = format!("user.{at:02}");
        put_int(&mut set, name.len() as u64);
        set.extend_from_slice(name.as_bytes());
        put_int(&mut set, 65_536);
        set.resize(set.len() + 65_536, 0);
    }
    set
}

/// Lists files, each with an attribute set of its own that is as large as a message permits.
fn attribute_sets(s: &mut Session) {
    s.tops();
    let set = large_set();
    for at in 0..2000 {
        if s.lanes.is_over() {
            return;
        }
        let mut content = Vec::new();
        put_int(&mut content, 1);
        content.extend_from_slice(&set);
        // One entry: a file with more flags, one of which is the set's.
        content.extend_from_slice(&[1, 128, 1, 0]);
        let name = format!("{at:08}");
        content.extend_from_slice(&[8]);
        content.extend_from_slice(name.as_bytes());
        // Mode, owner, group, seconds, number of the set, size.
        content.extend_from_slice(&[0, 0, 0, 0, 0, 5]);
        s.control(&packed_listing(0, &content));
    }
}

/// Words of the refusal of attributes that nobody has asked for.
const UNASKED_SETS: &str = "neither ACLs nor extended attributes are copied";

#[test]
fn attribute_sets_are_taken_from_the_budget() {
    needs_dsync!();
    let kept = r#","recursive":true,"xattrs":true,"events":"problems""#;
    for (name, text, options, flags) in [
        ("attribute sets", "attribute sets have", kept, &["-X"][..]),
        ("attribute sets without -X", UNASKED_SETS, QUIET, &[]),
    ] {
        Flood { name, text: Some(text), options, flags, bound: None, deed: attribute_sets }.of_source();
    }
}

/// Opens lanes, sends one byte on each and ends them, so that others can be opened.
fn lanes_that_nobody_takes_up(s: &mut Session) {
    const OPEN: u8 = 1;
    const DATA: u8 = 2;
    const FINISH: u8 = 3;
    const STOP: u8 = 5;
    s.tops();
    for _ in 0..1500 {
        let mut frames = Vec::new();
        for _ in 0..100 {
            let lane = s.next_lane().to_le_bytes();
            for (kind, payload) in [(OPEN, &[][..]), (DATA, &[7]), (STOP, &[]), (FINISH, &[])] {
                frames.extend_from_slice(&lane);
                frames.extend_from_slice(&[kind, payload.len().to_le_bytes()[0], 0, 0]);
                frames.extend_from_slice(payload);
            }
        }
        s.lanes.write_raw(&frames);
        if s.lanes.is_over() {
            return;
        }
    }
}

#[test]
fn lanes_that_ended_unread_are_still_open_ones() {
    needs_dsync!();
    // The pipe itself is broken, so the reason only appears in this end's own output.
    let arena = Arena::new();
    let (mut server, pipe) = arena.server();
    let watched = Footprint::watch(server.id());
    let mut session = Session::greet(pipe).start(Order::Destination(&arena.tree()), QUIET);
    lanes_that_nobody_takes_up(&mut session);
    session.lanes.wait_for_end();
    let flood = Flood {
        name: "retired lanes",
        text: None,
        options: QUIET,
        flags: &[],
        bound: None,
        deed: lanes_that_nobody_takes_up,
    };
    flood.judge("server", watched.finish());
    assert_eq!(server.wait(), STREAM);
    let (client, pipe) = arena.pull(RELAY, &[]);
    let watched = Footprint::watch(client.id());
    let mut session = Session::serve(pipe).answer();
    lanes_that_nobody_takes_up(&mut session);
    session.lanes.wait_for_end();
    flood.judge("client", watched.finish());
    let outcome = client.wait().expect_code(STREAM);
    // The lanes that were taken up end inside a frame; either may be noticed first.
    let reasons = ["more than 72 lanes", "connection ended inside a frame"];
    let text = outcome.stderr_text();
    assert!(reasons.iter().any(|reason| text.contains(reason)), "{}", outcome.account());
}

#[test]
fn full_lanes_that_nobody_reads_are_taken_from_the_budget() {
    needs_dsync!();
    let arena = Arena::new();
    let (mut server, pipe) = arena.server_with(&[SMALL]);
    let watched = Footprint::watch(server.id());
    let mut session = Session::greet(pipe).start(Order::Destination(&arena.tree()), QUIET);
    session.tops();
    // Those that are read: a lane without a message would end the run as a broken one.
    for number in 0..4 {
        session.lane(number);
    }
    let full = vec![7; 2 << 20];
    for _ in 0..60 {
        let lane = session.bare_lane();
        session.lanes.send(lane, &full);
    }
    session.lanes.wait_for_end();
    let peak = watched.finish();
    println!("full lanes: server: peak {} MiB resident", peak.memory >> 20);
    assert!(peak.memory <= MOST_OF_SMALL, "{} MiB resident", peak.memory >> 20);
    assert_eq!(server.wait(), STREAM);
}

/// Fills all lanes with as much as the other end holds unread, each by a thread that ends with the
/// link.
fn fill_lanes(s: &mut Session) {
    for number in 0..4 {
        s.lane(number);
    }
    let full = vec![7; 2 << 20];
    let lanes: Vec<_> = (0..56).map(|_| s.next_lane()).collect();
    thread::scope(|scope| {
        for &lane in &lanes {
            let (s, full) = (&*s, &full);
            scope.spawn(move || {
                s.lanes.open(lane);
                s.lanes.send(lane, full);
            });
        }
    });
}

/// Sends one byte on a lane and ends it, lane after lane until the link ends.
fn retire_lanes(s: &mut Session) {
    for number in 0..4 {
        s.lane(number);
    }
    while !s.lanes.is_over() {
        let lane = s.next_lane();
        s.lanes.open(lane);
        s.lanes.send(lane, &[7]);
        s.lanes.write(lane, kind::STOP, &[]);
        s.lanes.finish(lane);
    }
}

#[test]
fn lanes_over_a_network_are_bounded_by_what_carries_them() {
    needs_dsync!();
    // The other end reads none of them and sends nothing: the lack of progress ends the run.
    const STALL: &str = "--max-stall=2";
    let deeds: [(_, fn(&mut Session)); 2] = [("full lanes", fill_lanes), ("retired lanes", retire_lanes)];
    for (name, deed) in deeds {
        let flood = Flood { name, text: None, options: QUIET, flags: &[], bound: Some(SMALL), deed };
        for carrier in [Carrier::Tls, Carrier::Quic] {
            let arena = Arena::new();
            let (mut server, pipe) = arena.server_with(&[SMALL, STALL]);
            let watched = Footprint::watch(server.id());
            let session = Session::greet_over(pipe, carrier);
            let mut session = session.start(Order::Destination(&arena.tree()), QUIET);
            session.tops();
            deed(&mut session);
            session.lanes.wait_for_end();
            flood.judge(&format!("server over {}", carrier.option()), watched.finish());
            let code = server.wait();
            assert!([STREAM, TIMEOUT].contains(&code), "exit code {code}");
            let (client, pipe) = arena.pull_over(carrier, RELAY, &[SMALL, STALL]);
            let watched = Footprint::watch(client.id());
            let mut session = Session::serve_over(pipe, carrier).answer();
            session.tops();
            deed(&mut session);
            session.lanes.wait_for_end();
            flood.judge(&format!("client over {}", carrier.option()), watched.finish());
            let outcome = client.wait();
            let code = outcome.code();
            assert!([Some(STREAM), Some(TIMEOUT)].contains(&code), "{}", outcome.account());
        }
    }
}

#[test]
fn directories_that_wait_share_the_paths_of_their_parents() {
    needs_dsync!();
    fn deed(s: &mut Session) {
        s.tops();
        let depth = 3000;
        for dir in 0..depth {
            s.control(&listing(dir, &[Item::dir([b'd'; 255])]));
        }
        let items: Vec<_> = (0..4096).map(|at| Item::dir(format!("{at:08}"))).collect();
        s.control(&listing(depth, &items));
        // Until the last of them is planned.
        let mut done = s.expect_credit();
        while take_int(&mut &done[..]) < depth {
            done = s.expect_credit();
        }
    }
    let (name, options) = ("announced directories", QUIET_DRY);
    Flood { name, text: None, options, flags: &["-n"], bound: None, deed }.of_source();
}

/// Lists entries of the root without end, as credit arrives; each entry has a name and these
/// fields.
fn list_without_end(s: &mut Session, code: u8, more: Option<u8>, size: bool) {
    s.tops();
    for part in 0..2000_u64 {
        let mut content = vec![0];
        put_int(&mut content, 4096);
        let mut before = String::new();
        for at in 0..4096 {
            let name = format!("{:07}", part * 4096 + at);
            let shared = name.bytes().zip(before.bytes()).take_while(|(a, b)| a == b).count();
            // Same mode and owner as before.
            content.push(code | 8 | 16 | if more.is_some() { 128 } else { 0 });
            content.extend(more);
            content.push(shared.to_le_bytes()[0]);
            content.push((name.len() - shared).to_le_bytes()[0]);
            content.extend_from_slice(&name.as_bytes()[shared..]);
            content.push(0);
            if size {
                content.push(0);
            }
            before = name;
        }
        s.control(&Message::new(7).int(0).byte(2).raw(&content).frame());
        loop {
            if s.lanes.is_over() {
                return;
            }
            match s.peek() {
                Some(4) | None => return,
                Some(13) => {
                    s.expect_credit();
                    break;
                }
                Some(_) => _ = s.lanes.receive(1),
            }
        }
    }
}

#[test]
fn inodes_with_several_names_are_taken_from_the_budget() {
    needs_dsync!();
    Flood {
        name: "hard links",
        text: Some("hard links have"),
        options: r#","recursive":true,"hard-links":true,"dry-run":true,"events":"problems""#,
        flags: &["-Hn"],
        bound: Some(SMALL),
        deed: |s| list_without_end(s, 0, Some(2), true),
    }
    .of_source();
}

#[test]
fn what_is_kept_for_later_is_on_a_disk() {
    needs_dsync!();
    fn deed(s: &mut Session) {
        s.tops();
        let mut state = 88_172_645_463_325_252_u64;
        for part in 0..40_u64 {
            let items: Vec<_> = (0..4096)
                .map(|at| {
                    // Names that hardly compress.
                    let noise: String = (0..12)
                        .map(|_| {
                            state ^= state << 13;
                            state ^= state >> 7;
                            state ^= state << 17;
                            format!("{state:016x}")
                        })
                        .collect();
                    Item::file(format!("{:08}{noise}", part * 4096 + at), 1)
                })
                .collect();
            s.control(&listing_part(0, 2, &items));
            s.expect_credit();
        }
    }
    let options = r#","recursive":true,"delete":true,"delete-timing":"before","events":"problems""#;
    let (name, flags) = ("list of --delete-before", &["--delete-before"][..]);
    for peak in (Flood { name, text: None, options, flags, bound: None, deed }).of_source() {
        assert!(peak.spooled >= 8 << 20, "{} MiB in unnamed files", peak.spooled >> 20);
        assert!(peak.memory <= 64 << 20, "{} MiB resident", peak.memory >> 20);
    }
}

#[test]
fn directories_that_are_ignored_are_taken_from_the_budget() {
    needs_dsync!();
    Flood {
        name: "ignored directories",
        text: Some("paths have"),
        options: r#","recursive":true,"existing":true,"dry-run":true,"events":"problems""#,
        flags: &["-n", "--existing", "--no-delete"],
        bound: Some(SMALL),
        deed: |s| list_without_end(s, 1, None, false),
    }
    .of_source();
}

#[test]
fn segments_have_no_more_tokens_than_an_honest_one() {
    needs_dsync!();
    fn deed(s: &mut Session) {
        list_new(s);
        let lane = s.lane(0);
        // Half a million single zeros, which LZ4 packs into two kilobytes.
        let pieces = vec![0b110; 500_000];
        let message = Message::new(67).packed(2, pieces.len() as u64, &lz4(&pieces)).frame();
        s.lanes.send(lane, &segment(1, 1 << 20));
        for _ in 0..200 {
            s.lanes.send(lane, &message);
        }
    }
    for (options, flags) in
        [(QUIET, &[][..]), (r#","recursive":true,"writing":{"inplace":true}"#, &["--inplace"])]
    {
        let text = Some("more than 4352 tokens in a segment");
        Flood { name: "one-byte pieces", text, options, flags, bound: None, deed }.of_source();
    }
}

#[test]
fn requests_for_sums_are_taken_from_the_budget() {
    needs_dsync!();
    const VAST: u64 = 64 << 30;
    // Each of the two signers is busy with a file, so requests wait.
    fn arena() -> Arena {
        Arena::new().with_hole("vast", VAST).with_hole("vaster", VAST)
    }
    fn deed(s: &mut Session) {
        list(s, &[Item::file("vast", VAST).time(1, 0), Item::file("vaster", VAST).time(1, 0)]);
        // About a later attempt, so those that a signer sees before it is busy are passed over.
        let runs: Vec<u8> = (0..50_000).flat_map(|_| [0b101, 2]).collect();
        let refine = Message::new(20).int(1).byte(1).int(1024).byte(3).bytes(&runs).frame();
        for _ in 0..4000 {
            if s.lanes.is_over() {
                return;
            }
            s.control(&refine);
        }
    }
    let text = Some("signatures have");
    Flood { name: "requests for sums", text, options: QUIET, flags: &[], bound: None, deed }
        .of_source_in(arena);
}

#[test]
fn sums_are_taken_from_the_budget_and_only_of_what_was_listed() {
    needs_dsync!();
    fn need_delta(entry: u64) -> Vec<u8> {
        Message::new(11).int(entry).byte(0).int(4 << 30).int(1024).byte(3).frame()
    }
    Flood {
        name: "sums of what was not listed",
        text: Some("request for entry 99, which is not listed"),
        options: QUIET,
        flags: &[],
        bound: None,
        deed: |s| {
            s.expect(7);
            s.control(&need_delta(99));
        },
    }
    .of_destination();
    Flood {
        name: "sums",
        text: Some("signatures have"),
        options: QUIET,
        flags: &[],
        bound: None,
        deed: |s| {
            while s.hear().0 != 8 {}
            let part = vec![0; 262_140];
            for entry in 1..=6 {
                s.control(&need_delta(entry));
                for _ in 0..150 {
                    if s.lanes.is_over() {
                        return;
                    }
                    s.control(&Message::new(12).int(entry).byte(0).bytes(&part).frame());
                }
            }
        },
    }
    .of_destination();
}

#[test]
fn a_file_is_asked_for_three_times_and_counted() {
    needs_dsync!();
    fn ask(s: &Session, attempts: &[u8]) {
        s.expect(7);
        for &attempt in attempts {
            s.control(&Message::new(10).int(1).byte(attempt).frame());
        }
    }
    let cases: [(_, fn(&mut Session)); 3] = [
        ("entry 1: attempt 0 is not its next request", |s| ask(s, &[0, 0])),
        ("entry 1: attempt 1 is not its next request", |s| ask(s, &[1])),
        ("entry 1: attempt 3 is not its next request", |s| ask(s, &[0, 1, 2, 3])),
    ];
    for (text, deed) in cases {
        Flood { name: "requests", text: Some(text), options: QUIET, flags: &[], bound: None, deed }
            .of_destination();
    }
}

/// Sends `sign` several times a second, until dsync has hung up.
pub(super) fn breathe(s: &Session, sign: &[u8]) {
    use std::time::{Duration, Instant};
    let since = Instant::now();
    while !s.lanes.is_over() && s.peek_now() != Some(4) {
        assert!(since.elapsed() < Duration::from_secs(240), "it waits on");
        s.control(sign);
        s.breathe();
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn signs_of_life_alone_do_not_outlive_the_deadline() {
    needs_dsync!();
    const STALL: &str = "--max-stall=2";
    let alive = || Message::new(18).frame();
    let progress = || Message::new(16).bytes(&[0; 7]).frame();
    let said = "nothing was done for";
    // A source that lists nothing, and one that sends nothing of its listing.
    let deeds: [fn(&mut Session); 2] = [
        |s| s.tops(),
        |s| {
            list_new(s);
            s.control(&Message::new(8).int(2).int(5).frame());
        },
    ];
    for deed in deeds {
        let arena = Arena::new();
        let (mut server, pipe) = arena.server_with(&[STALL]);
        let mut session = Session::greet(pipe).start(Order::Destination(&arena.tree()), QUIET);
        deed(&mut session);
        breathe(&session, &alive());
        let fatal = session.fatal();
        assert_eq!(i32::from(fatal.code), TIMEOUT, "{}", fatal.text);
        assert_eq!(server.wait(), TIMEOUT);
        let (client, pipe) = arena.pull(RELAY, &[STALL]);
        let mut session = Session::serve(pipe).answer();
        deed(&mut session);
        breathe(&session, &alive());
        let outcome = client.wait().expect_code(TIMEOUT);
        assert!(outcome.stderr_text().contains(said), "{}", outcome.account());
    }
    // A destination that requests nothing.
    let arena = Arena::new();
    let (mut server, pipe) = arena.server_with(&[STALL]);
    let session = Session::greet(pipe).start(Order::Source(&arena.tree()), QUIET);
    breathe(&session, &progress());
    assert_eq!(server.wait(), TIMEOUT);
    let (client, pipe) = arena.push(RELAY, &[STALL]);
    let session = Session::serve(pipe).answer();
    breathe(&session, &progress());
    let outcome = client.wait().expect_code(TIMEOUT);
    assert!(outcome.stderr_text().contains(said), "{}", outcome.account());
}

#[test]
fn int_is_what_the_wire_says() {
    assert_eq!(int(300), [0xac, 2]);
    // The output of `lz4`, read by hand: a literal, a run of 20, twelve literals.
    let content = [[7; 21].as_slice(), &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]].concat();
    assert_eq!(lz4(&content), [&[0x1f, 7, 1, 0, 1, 0xc0][..], &content[21..]].concat());
}
