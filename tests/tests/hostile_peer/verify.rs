//! A source that lies to a client that verifies its tree: it decides the findings on its own tree and
//! nothing else, and no silence of it counts as a sound file.

use std::{fs, os::unix::fs::PermissionsExt as _};

use dsync_tests::{
    Outcome, Run,
    hostile::{Arena, Item, Message, Session, listing},
    needs_dsync,
    tree::set_mtime,
};

use super::{RELAY, client_gives_up, int};

/// Content and time of the file that the client's manifest has.
const CONTENT: &[u8] = b"sound";
const TIME: (i64, i64) = (1_000_000_000, 0);

/// Makes an arena with a manifest of a tree of one file, `file`.
fn arena() -> Arena {
    let arena = Arena::new();
    let tree = arena.scratch().at("recorded");
    fs::create_dir(&tree).unwrap();
    fs::write(tree.join("file"), CONTENT).unwrap();
    fs::set_permissions(tree.join("file"), fs::Permissions::from_mode(0o755)).unwrap();
    set_mtime(&tree.join("file"), TIME);
    let _ = Run::dsync().args(["verify", "--record"]).arg(tree).run().expect_code(0);
    arena
}

/// Starts a client that verifies, and a source that has answered it.
fn verifying(arena: &Arena) -> (dsync_tests::run::Running, Session) {
    let (client, pipe) = arena.verify(RELAY, "recorded.dsync-manifest");
    (client, Session::serve(pipe).answer())
}

/// Lists one file to a client that verifies, keeping to all rules, and returns what it says.
fn told_of(item: Item) -> Outcome {
    let arena = arena();
    let (client, mut session) = verifying(&arena);
    session.tops();
    session.control(&listing(0, &[item]));
    session.control(&Message::new(8).int(2).int(5).frame());
    let lanes = [0, 1, 2, 3].map(|number| session.lane(number));
    // The last lane ends after the last request.
    while session.hear().0 != 14 {}
    for lane in lanes {
        session.lanes.send(lane, &Message::new(70).frame());
        session.lanes.finish(lane);
    }
    while session.hear().0 != 17 {}
    session.control(&Message::new(19).frame());
    session.finish_control();
    client.wait()
}

/// Makes the file of the manifest, with a hash.
fn hashed(hash: [u8; 32]) -> Item {
    let mut details = int(CONTENT.len() as u64);
    details.extend(hash);
    Item::new(b"file", 64, details)
}

#[test]
fn a_hash_decides_and_its_absence_is_no_sound_file() {
    needs_dsync!();
    let honest = *blake3::hash(CONTENT).as_bytes();
    let sound = told_of(hashed(honest));
    assert!(sound.stdout_text().contains("1 file is sound"), "{}", sound.account());

    let wrong = told_of(hashed([7; 32])).expect_code(23);
    assert!(wrong.stdout_text().starts_with("rot        file\n"), "{}", wrong.account());

    let silent = told_of(Item::file("file", CONTENT.len() as u64)).expect_code(23);
    let text = silent.stdout_text();
    assert!(text.contains("unreadable file (the other end sent no hash of it)"), "{}", silent.account());
    assert!(text.contains("0 files are sound"), "{text}");
}

#[test]
fn problems_without_end_are_not_kept() {
    needs_dsync!();
    let arena = arena();
    let (client, session) = verifying(&arena);
    session.tops();
    for number in 0..70_000_u64 {
        // It could not read this directory: permission denied.
        let path = format!("{number:0200}");
        session.control(&Message::new(9).byte(1).byte(0).sint(13).text(path.as_bytes()).frame());
    }
    let outcome = client.wait();
    assert_eq!(outcome.code(), Some(23), "{}", outcome.stderr_text());
    assert!(outcome.stderr_text().contains("cannot read too many directories"), "{}", outcome.stderr_text());
}

#[test]
fn a_verifying_client_keeps_all_rules_of_a_listing() {
    needs_dsync!();
    for (text, items) in [
        ("repeats or precedes", vec![Item::file("b", 1), Item::file("a", 1)]),
        ("invalid name '..'", vec![Item::file("..", 1)]),
    ] {
        let arena = arena();
        let (client, session) = verifying(&arena);
        session.tops();
        session.control(&listing(0, &items));
        client_gives_up(client, session, text);
    }
}
