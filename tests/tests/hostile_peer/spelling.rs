//! `--iconv`: names of a hostile source that this end's character set has no spelling for, or has
//! another one for, and names that a spelling would make dangerous.

use std::{collections::BTreeSet, fs};

use dsync_tests::{
    Outcome,
    hostile::{Arena, Item, Message, Session, listing},
    needs_dsync, survey,
};

use super::RELAY;

/// Pulls into a tree whose names are in this set from a source whose names are UTF-8, and lists links of
/// these names; returns the outcome and the new names.
fn pull(set: &str, names: &[&[u8]]) -> (Outcome, BTreeSet<Vec<u8>>) {
    let arena = Arena::new();
    let before = survey(arena.scratch().path());
    let set = format!("--iconv={set},utf8");
    let (client, pipe) = arena.pull_of(RELAY, &["-rli", &set], &["host:some/"]);
    let mut session = Session::serve(pipe).answer();
    session.tops();
    let items: Vec<_> = names.iter().map(|name| Item::symlink(name, b"t")).collect();
    session.control(&listing(0, &items));
    let count = names.len() as u64;
    session.control(&Message::new(8).int(count + 1).int(count).frame());
    // It may have given up.
    if session.hear_to_end_of_needs() {
        for number in 0..4 {
            let lane = session.lane(number);
            session.lanes.send(lane, &Message::new(70).frame());
            session.lanes.finish(lane);
        }
        session.expect(17);
        session.control(&Message::new(19).frame());
    }
    drop(session);
    let outcome = client.wait();
    assert!(!outcome.stderr_text().contains("panicked"), "{}", outcome.account());
    let _ = fs::remove_file(arena.scratch().at("shell.socket"));
    let now: BTreeSet<_> = survey(arena.scratch().path()).into_keys().collect();
    assert!(before.keys().all(|path| now.contains(path)), "{}", outcome.account());
    let made = now.iter().filter(|path| !before.contains_key(*path));
    let made = made.map(|path| path.strip_prefix(b"tree/").unwrap_or(path).to_vec()).collect();
    (outcome, made)
}

#[test]
fn no_name_gets_past_its_spelling() {
    needs_dsync!();
    const GOOD: &[u8] = "é".as_bytes();
    let bad: &[&[u8]] = &[
        // The mark of names without a spelling, before `..`, nothing, and names that have one.
        b"\x01\xff",
        b"\x01\xff.",
        b"\x01\xff..",
        b"\x01\xffkept",
        b"\x01\xff\xe9",
        // `..` and `/` in more bytes than they need, and half a letter.
        b"\xc0\xae\xc0\xae",
        b"\xc0\xaf",
        b"\xc3",
        b"\xe9",
        // A letter that the set lacks, and one that looks like two others.
        "€".as_bytes(),
        "e\u{301}".as_bytes(),
        "\u{2044}".as_bytes(),
        "\u{ff0e}\u{ff0e}".as_bytes(),
    ];
    for name in bad {
        let mut names = [GOOD, name];
        names.sort_unstable();
        let (outcome, made) = pull("latin1", &names);
        assert!([Some(12), Some(23)].contains(&outcome.code()), "{name:?}: {}", outcome.account());
        let good = BTreeSet::from([b"\xe9".to_vec()]);
        assert!(made.is_subset(&good), "{name:?} made {made:?}: {}", outcome.account());
        // A name that cannot be spelled is an error of that entry alone.
        assert!(outcome.code() == Some(12) || made == good, "{name:?}: {}", outcome.account());
    }
}

#[test]
fn control_characters_of_a_set_reach_no_screen() {
    needs_dsync!();
    // In latin1 the byte 0x9b alone is a control character, CSI.
    let (outcome, made) = pull("latin1", &["\u{9b}31m".as_bytes()]);
    assert_eq!(made, BTreeSet::from([b"\x9b31m".to_vec()]), "{}", outcome.account());
    let text = [outcome.stdout_text(), outcome.stderr_text()].concat();
    assert!(text.contains("31m") && !text.contains('\u{9b}'), "{}", outcome.account());
    assert!(text.contains("\\#"), "{}", outcome.account());
    // Bytes that are a letter in this set, and a control character in UTF-8.
    let (outcome, made) = pull("latin1", &["Â\u{9b}31m".as_bytes()]);
    assert_eq!(made, BTreeSet::from([b"\xc2\x9b31m".to_vec()]), "{}", outcome.account());
    let text = [outcome.stdout_text(), outcome.stderr_text()].concat();
    assert!(!text.contains('\u{9b}'), "{}", outcome.account());
}
