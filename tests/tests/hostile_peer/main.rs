//! A peer that keeps to no rule: rows B38 to B52 and B58 of the design's table, and everything else
//! that a hostile end can do, against `dsync --server` and against the client, in both roles.
//!
//! Each attack must end the run soon, with the stated line and code, in bounded memory, and must
//! change nothing, neither in the tree nor around it. The peer shares no code with dsync.

mod asked;
mod beyond;
mod bounds;
mod destination;
mod entries;
mod files;
mod frames;
mod grants;
mod greeting;
mod honest;
mod lists;
mod many;
mod opening;
mod phases;
mod rules;
mod spans;
mod spelling;
mod standing;
mod verify;

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
        bytes::put_int,
        listing,
        session::ARCHIVE_DELETE,
    },
    run::Running,
};

/// The program that the client starts as its remote shell.
const RELAY: &str = env!("CARGO_BIN_EXE_hostile-shell");
/// Exit code of a broken protocol.
const STREAM: i32 = 12;
/// Number of cases that run at a time: they mostly wait.
const AT_ONCE: usize = 12;

/// An attack and the substance of dsync's message about it.
type Case = (&'static str, fn(&mut Session));

/// Runs every case, several at a time, and reports all failures at the end.
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

/// Asserts that a client gives up for the stated reason and tells the peer.
fn client_gives_up(client: Running, session: Session, text: &str) {
    let fatal = session.fatal();
    assert_eq!(i32::from(fatal.code), STREAM, "{}", fatal.text);
    drop(session);
    assert_ends(client.wait(), STREAM, text);
}

/// The one entry that an attack lists correctly before it breaks a rule.
const LISTED_RIGHTLY: &[&str] = &["zz"];

/// Attacks as a hostile source: a server that is the destination, and a client that pulls.
fn source_breaks(cases: &[Case]) {
    each(cases, |text, deed| {
        let arena = Arena::new();
        let (server, mut session) = arena.destination(ARCHIVE_DELETE);
        deed(&mut session);
        server_gives_up(server, session, text);
        arena.assert_unharmed(LISTED_RIGHTLY);
    });
    each(cases, |text, deed| {
        let arena = Arena::new();
        let (client, pipe) = arena.pull(RELAY, &[]);
        let mut session = Session::serve(pipe).answer();
        deed(&mut session);
        client_gives_up(client, session, text);
        arena.assert_unharmed(LISTED_RIGHTLY);
    });
}

/// Attacks as a hostile destination: a server that is the source, and a client that pushes.
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
        client_gives_up(client, session, text);
        arena.assert_unharmed(&[]);
    });
}

/// Sends a source's operands, then any bytes.
fn after_tops(session: &Session, bytes: &[u8]) {
    session.tops();
    session.control(bytes);
}

/// Lists these entries of the root and nothing else; the listing stays open.
fn list(session: &Session, items: &[Item]) {
    after_tops(session, &listing(0, items));
}

/// Lists a file that the destination lacks and waits until it is requested.
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

/// Lists `new`, and sends frames on the first lane once it is requested.
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

/// Makes a `Segment` of an entry: attempt 0, one segment of 2^20 bytes, number 0.
fn segment(entry: u64, file_len: u64) -> Vec<u8> {
    Message::new(66).int(entry).byte(0).bytes(&[0; 16]).int(file_len).byte(20).int(0).int(0).frame()
}

/// Makes a `Tokens` with these bytes, raw.
fn tokens(content: &[u8]) -> Vec<u8> {
    Message::new(67).raw(content).frame()
}

/// Encodes an integer.
fn int(value: u64) -> Vec<u8> {
    let mut out = Vec::new();
    put_int(&mut out, value);
    out
}
