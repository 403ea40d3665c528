//! Links that lead out, a fifo and a device at the destination, under the names of a source's
//! entries. A source writes through none of them, unless the run asked for just that.

use std::{fs, os::unix::fs::FileTypeExt};

use dsync_tests::{
    Scratch,
    device::LoopDevice,
    hostile::{Arena, Item, Message, Session, listing, session::Order},
    needs_dsync, needs_root,
    tree::noise,
};

use super::RELAY;

/// The content of every file that the source sends.
const SENT: &[u8] = b"of a hostile source";

/// Options of a client, and the same for a server.
const WAYS: &[(&[&str], &str)] = &[
    (&["-rlpt"], r#","recursive":true,"links":true,"perms":true,"times":true"#),
    (&["-rl", "--inplace"], r#","recursive":true,"links":true,"writing":{"inplace":true}"#),
    (
        &["-rl", "--append"],
        r#","recursive":true,"links":true,"writing":{"inplace":true,"append":"believing"}"#,
    ),
    (
        &["-rl", "-K", "--inplace"],
        r#","recursive":true,"links":true,"keep-dirlinks":true,"writing":{"inplace":true}"#,
    ),
    (
        &["-rl", "--delay-updates", "--partial-dir=.parts"],
        r#","recursive":true,"links":true,"writing":{"delay-updates":true,"partial-dir":".parts"},"keep-partial":"always""#,
    ),
];

/// Sends one file, `name`, whose number is `entry`, in a session whose listing is under way.
fn send_file(session: &mut Session, entry: u64, entries: u64) {
    session.control(&Message::new(8).int(entries).int(SENT.len() as u64).frame());
    // The destination may refuse the entry for good: then it asks for nothing.
    let asked = loop {
        match session.hear() {
            (10, need) => break Some(need),
            (14, _) => break None,
            (4, payload) => panic!("dsync gave up: {}", String::from_utf8_lossy(&payload)),
            _ => {}
        }
    };
    assert!(asked.as_ref().is_none_or(|need| need == &[u8::try_from(entry).unwrap(), 0]), "{asked:?}");

    let lanes = [0, 1, 2, 3].map(|number| session.lane(number));
    if asked.is_some() {
        let record = Session::record(entry, 0, SENT);
        session.lanes.send(lanes[0], &Session::batch(&session.value(&record), &record));
        session.expect_end_of_needs();
    }
    for lane in lanes {
        session.lanes.send(lane, &Message::new(70).frame());
        session.lanes.finish(lane);
    }
    session.expect(17);
    session.control(&Message::new(19).frame());
    session.finish_control();
}

/// Sends one file at a path of one or two names, to a client that pulls and to a server that is
/// pushed to, under each set of options; `judge` sees what is left of both.
fn each_end(path: &[&str], plant: impl Fn(&Arena), judge: impl Fn(&Arena, &str)) {
    let deed = |session: &mut Session| {
        session.tops();
        let size = SENT.len() as u64;
        match path {
            [dir, name] => {
                session.control(&listing(0, &[Item::dir(dir)]));
                session.control(&listing(1, &[Item::file(name, size)]));
                send_file(session, 2, 3);
            }
            _ => {
                session.control(&listing(0, &[Item::file(path[0], size)]));
                send_file(session, 1, 2);
            }
        }
    };
    for (flags, options) in WAYS {
        let arena = Arena::new();
        plant(&arena);
        let (client, pipe) = arena.pull_of(RELAY, flags, &["host:some/"]);
        let mut session = Session::serve(pipe).answer();
        deed(&mut session);
        let outcome = client.wait();
        assert!(matches!(outcome.code(), Some(0 | 23)), "{}", outcome.account());
        judge(&arena, &format!("a client with {flags:?}"));

        let arena = Arena::new();
        plant(&arena);
        let (mut server, pipe) = arena.server();
        let mut session = Session::greet(pipe).start(Order::Destination(&arena.tree()), options);
        deed(&mut session);
        let code = server.wait();
        assert!(matches!(code, 0 | 23), "{code}");
        judge(&arena, &format!("a server with {options}"));
    }
}

#[test]
fn no_file_goes_through_a_link_that_stands_there() {
    needs_dsync!();
    each_end(
        &["out", "canary"],
        |_| {},
        |arena, what| {
            println!("{what}");
            arena.assert_unharmed_but(&["out/canary"], &["out"]);
            // With -K the link stays and the file is refused, else a directory takes its place.
            let taken = fs::read(arena.scratch().at("tree/out/canary")).unwrap();
            let kept = what.contains("-K") || what.contains("keep-dirlinks");
            assert_eq!(taken == SENT, !kept || !arena.scratch().at("tree/out").is_symlink(), "{what}");
        },
    );
    each_end(
        &["peek"],
        |_| {},
        |arena, what| {
            arena.assert_unharmed_but(&[], &["peek"]);
            assert_eq!(fs::read(arena.scratch().at("tree/peek")).unwrap(), SENT, "{what}");
        },
    );
}

#[test]
fn no_file_is_written_into_a_fifo_or_a_device() {
    needs_dsync!();
    each_end(
        &["pipe"],
        |_| {},
        |arena, what| {
            arena.assert_unharmed_but(&[], &["pipe"]);
            assert_eq!(fs::read(arena.scratch().at("tree/pipe")).unwrap(), SENT, "{what}");
        },
    );
    needs_root!();
    let images = Scratch::new();
    let content = noise(4, 64 << 10);
    let Some(device) = LoopDevice::create(images.path(), "image", &content) else { return };
    each_end(
        &["disk"],
        |arena| device.node(&arena.scratch().at("tree/disk")),
        |arena, what| {
            assert_eq!(device.content(), content, "{what}");
            let disk = arena.scratch().at("tree/disk");
            assert!(!fs::symlink_metadata(&disk).unwrap().file_type().is_block_device(), "{what}");
            assert_eq!(fs::read(&disk).unwrap(), SENT, "{what}");
            arena.assert_unharmed(&["disk"]);
        },
    );
}
