//! A source that sends what rules hide: rules for one end, rules in files of the tree, and rules
//! that options stand for. The destination holds a listing against the command's own rules as far
//! as no file of rules, which only the source knows, can overrule them.
//!
//! Links that would be followed, or are munged, are judged here as well.

use std::{fs, path::Path};

use dsync_tests::{
    hostile::{
        Arena, Item, Message, Session,
        bytes::{listing_part, put_int},
        session::Order,
    },
    needs_dsync,
};

use super::{RELAY, client_gives_up, server_gives_up};

/// A file of rules beside the destination; `RULES` in an option stands for its path.
const RULES: &str = "- *.o\n";

/// Starts a client that pulls a directory's contents under these options.
fn pull(arena: &Arena, options: &[&str]) -> (dsync_tests::run::Running, Session) {
    let rules = arena.scratch().path().with_extension("rules");
    fs::write(&rules, RULES).unwrap();
    let options: Vec<_> =
        options.iter().map(|option| option.replace("RULES", &rules.display().to_string())).collect();
    let options: Vec<_> = options.iter().map(String::as_str).collect();
    let (client, pipe) = arena.pull_of(RELAY, &options, &["host:some/"]);
    let session = Session::serve(pipe).answer();
    session.tops();
    fs::remove_file(rules).unwrap();
    (client, session)
}

/// Lists an entry of the root that the options leave out.
fn is_refused(options: &[&str], item: Item, text: &str) {
    let arena = Arena::new();
    let (client, session) = pull(&arena, options);
    session.control(&listing_part(0, 1, &[item]));
    client_gives_up(client, session, &format!("the source sent {text}"));
    arena.assert_unharmed(&[]);
}

/// Lists an entry of the root, alone; the client finds nothing wrong with it.
fn is_taken(options: &[&str], name: &str, item: Item) -> Arena {
    let arena = Arena::new();
    let (client, session) = pull(&arena, options);
    session.control(&listing_part(0, 1, &[item]));
    assert!(!session.expect_credit().is_empty());
    drop(session);
    let outcome = client.wait();
    let said = outcome.stderr_text();
    assert!(!said.contains("which nobody asked for"), "{name} under {options:?}: {said}");
    arena
}

#[test]
fn an_entry_that_a_rule_for_the_source_hides_is_refused() {
    needs_dsync!();
    let text = "'x.o', which nobody asked for: the filters exclude it";
    for options in [
        &["-r", "-f", "H *.o"][..],
        &["-r", "-f", "-s *.o"],
        &["-r", "--exclude=*.o", "--delete-excluded"],
        &["-r", "-f", "H *.o", "-f", "P *.o"],
        &["-r", "-f", ". RULES"],
        &["-r", "--exclude-from=RULES"],
        &["-rC"],
        // A file of rules counts from its place on, and what only excludes overrules nothing.
        &["-r", "-f", "- *.o", "-f", ": .f"],
        &["-r", "-f", ":- .f", "-f", "- *.o"],
        &["-r", "-f", ":C", "-f", "- *.o"],
        &["-r", "--gitignore", "--exclude=*.o"],
        // Files for the other end alone hide nothing, and show nothing.
        &["-r", "-f", ":r .f", "-f", "- *.o"],
    ] {
        println!("{options:?}");
        is_refused(options, Item::file("x.o", 5), text);
    }
}

#[test]
fn an_entry_that_only_files_of_rules_could_hide_is_taken() {
    needs_dsync!();
    for options in [
        &["-rn", "-f", "P *.o"][..],
        &["-rn", "-f", ": .f", "-f", "- *.o"],
        &["-rF", "-n", "--exclude=*.o"],
        &["-rn", "--gitignore"],
    ] {
        // Some of these rules come after a file that the destination does not have.
        let _ = is_taken(options, "x.o", Item::file("x.o", 5));
    }
}

/// Makes the options of a server from rules: whether each includes, its pattern, its modifiers.
fn recursive(rules: &[(bool, &str, &str)], more: &str) -> String {
    let rule = |(include, pattern, modifiers): &(bool, &str, &str)| {
        format!(r#"{{"include":{include},"pattern":"{pattern}","modifiers":"{modifiers}"}}"#)
    };
    let rules: Vec<_> = rules.iter().map(rule).collect();
    format!(r#","recursive":true,"filters":[{}]{more}"#, rules.join(","))
}

#[test]
fn a_server_that_is_pushed_to_holds_the_source_to_the_same_rules() {
    needs_dsync!();
    let hidden: &[&[(bool, &str, &str)]] = &[
        &[(false, "*.o", "s")],
        &[(true, "*.x", "s"), (false, "*.x", ""), (false, "*.o", "s"), (false, "*.o", "r")],
        &[(false, "*.o", ""), (false, ".f", ":")],
        &[(false, ".f", ":-"), (false, "*.o", "")],
        &[(false, ".gitignore", ":G"), (false, "*.o", "")],
        &[(false, ".f", ":r"), (false, "*.o", "")],
    ];
    for rules in hidden {
        for more in ["", r#","delete":true"#, r#","dry-run":true"#] {
            let arena = Arena::new();
            let (server, pipe) = arena.server();
            let options = recursive(rules, more);
            let session = Session::greet(pipe).start(Order::Destination(&arena.tree()), &options);
            session.tops();
            session.control(&listing_part(0, 1, &[Item::file("x.o", 5)]));
            let text = "the source sent 'x.o', which nobody asked for: the filters exclude it";
            server_gives_up(server, session, text);
            arena.assert_unharmed(&[]);
        }
    }
    // The nearest ones that only a file could hide, or that hide at the other end alone.
    for rules in [&[(false, "*.o", "r")][..], &[(false, ".f", ":"), (false, "*.o", "")]] {
        let arena = Arena::new();
        let (server, pipe) = arena.server();
        let options = recursive(rules, r#","dry-run":true"#);
        let session = Session::greet(pipe).start(Order::Destination(&arena.tree()), &options);
        session.tops();
        session.control(&listing_part(0, 1, &[Item::file("x.o", 5)]));
        assert!(!session.expect_credit().is_empty());
        let _ = server.end(session);
    }
}

#[test]
fn no_file_of_rules_that_a_hostile_receiver_names_tells_what_is_in_it() {
    needs_dsync!();
    let arena = Arena::new();
    // Rules, so that reading them would show in the listing.
    fs::write(arena.scratch().at("outside/rules"), "- kept\n").unwrap();
    std::os::unix::fs::symlink("../outside/rules", arena.scratch().at("tree/.f")).unwrap();
    let secret = b"secret of";
    for name in [".f", "peek", "out/canary", "out/rules", "../outside/canary", "../outside/rules"] {
        for modifiers in [":", ":-", ":w"] {
            for more in ["", r#","rulings":true"#] {
                let (server, pipe) = arena.server();
                let mut session = Session::greet(pipe);
                let options = recursive(&[(false, name, modifiers)], more);
                session = match session.try_start(Order::Source(&arena.tree()), &options) {
                    Ok(session) => session,
                    // Names are single ones.
                    Err(fatal) => {
                        assert!(name.contains('/'), "{name}: {}", fatal.text);
                        continue;
                    }
                };
                let mut all = Vec::new();
                loop {
                    let (number, payload) = session.hear();
                    all.extend_from_slice(&payload);
                    put_int(&mut all, u64::from(number));
                    if matches!(number, 4 | 8) {
                        break;
                    }
                }
                let has = |part: &[u8]| all.windows(part.len()).any(|window| window == part);
                assert!(!has(secret) && !has(b"canary\0"), "{name} as {modifiers}{more}");
                // A file that leads out is a fault of its directory, which is then left out as a whole.
                assert_eq!(
                    has(b"kept"),
                    has(b"sub"),
                    "{name} as {modifiers}{more}: a rule of outside counts"
                );
                let _ = server.end(session);
            }
        }
    }
}

#[test]
fn a_rule_that_protects_is_not_taken_back_by_files_that_arrive() {
    needs_dsync!();
    // The listing is complete and empty but for one entry: all else would go.
    let options =
        ["-r", "--delete-during", "-f", "P kept", "-f", "P sub", "-f", "P out", "-f", "P peek", "-f"];
    let options: Vec<_> = options.into_iter().chain(["P pipe", "-f", ": .f"]).collect();
    let arena = Arena::new();
    fs::write(arena.scratch().at("tree/.f"), "R *\n!\n").unwrap();
    fs::write(arena.scratch().at("tree/gone"), "").unwrap();
    let (client, mut session) = pull(&arena, &options);
    session.control(&listing_part(0, 3, &[Item::dir("zz")]));
    session.control(&listing_part(1, 3, &[]));
    session.control(&Message::new(8).int(2).int(0).frame());
    session.expect_end_of_needs();
    for number in 0..4 {
        let lane = session.lane(number);
        session.lanes.send(lane, &Message::new(70).frame());
        session.lanes.finish(lane);
    }
    session.expect(17);
    drop(session);
    let _ = client.wait();
    assert!(!arena.scratch().at("tree/gone").exists(), "nothing was deleted at all");
    fs::write(arena.scratch().at("tree/.f"), "").unwrap();
    arena.assert_unharmed(&["zz", ".f"]);
}

#[test]
fn a_link_that_would_have_been_followed_is_refused() {
    needs_dsync!();
    let link = || Item::symlink("link", b"../outside");
    is_refused(&["-rlL"], link(), "'link', which nobody asked for: links are replaced by what they lead to");
    is_refused(
        &["-rl", "--copy-unsafe-links"],
        link(),
        "'link', which nobody asked for: links that lead out",
    );
}

#[test]
fn a_munged_link_leads_nowhere_whatever_the_source_writes() {
    needs_dsync!();
    for text in [&b"../outside"[..], b"/rsyncd-munged/../outside", b"/etc"] {
        let arena = Arena::new();
        let (client, session) = pull(&arena, &["-rl", "--munge-links"]);
        session.control(&listing_part(0, 1, &[Item::symlink("link", text)]));
        session.control(&Message::new(8).int(2).int(text.len() as u64).frame());
        session.expect_end_of_needs();
        drop(session);
        let _ = client.wait();
        let stored = fs::read_link(arena.scratch().at("tree/link")).unwrap();
        let expected = [b"/rsyncd-munged/", text].concat();
        assert_eq!(std::os::unix::ffi::OsStrExt::as_bytes(stored.as_os_str()), expected);
        arena.assert_unharmed(&["link"]);
    }
}

/// A further name is linked to the first one, so its text is that one's, whatever the source lists:
/// safe where the first is, and not where the further one is.
#[test]
fn a_further_name_of_a_link_is_judged_by_the_text_that_it_gets() {
    needs_dsync!();
    const TEXT: &[u8] = b"../../zz";
    for option in ["--safe-links", "--copy-unsafe-links"] {
        let arena = Arena::new();
        let (client, mut session) = pull(&arena, &["-rlH", option]);
        session.control(&listing_part(0, 3, &[Item::dir("a"), Item::dir("e")]));
        session.control(&listing_part(1, 3, &[Item::dir("b")]));
        let first = Item::symlink("l", TEXT).first_of_several();
        session.control(&listing_part(3, 3, &[first, Item::symlink("n", TEXT).another_name_of(4)]));
        session.control(&listing_part(2, 3, &[Item::symlink("m", b"zz").another_name_of(4)]));
        session.control(&Message::new(8).int(7).int(2 * TEXT.len() as u64 + 2).frame());
        session.expect_end_of_needs();
        for number in 0..4 {
            let lane = session.lane(number);
            session.lanes.send(lane, &Message::new(70).frame());
            session.lanes.finish(lane);
        }
        session.expect(17);
        drop(session);
        let outcome = client.wait();
        let text_of = |path: &str| fs::read_link(arena.scratch().at("tree").join(path)).ok();
        let text = Path::new("../../zz");
        assert_eq!(text_of("a/b/l").as_deref(), Some(text), "{}", outcome.account());
        assert_eq!(text_of("a/b/n").as_deref(), Some(text), "{}", outcome.account());
        assert_eq!(text_of("e/m"), None, "{option}: {}", outcome.account());
    }
}
