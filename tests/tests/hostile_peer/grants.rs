//! A client whose key is restricted, and that asks in its own words: lists, wildcards and home
//! directories lead nowhere but below the key's directory.

use dsync_tests::{
    hostile::{
        Arena, Message, Session,
        session::{COPY, hello},
    },
    needs_dsync,
};

/// Makes a `Start` of a source: its operand, a list at that end if there is one, and more options.
fn source(operand: &[u8], list: Option<&[u8]>, more: &str) -> Vec<u8> {
    let message = Message::new(2).byte(if list.is_some() { 64 } else { 0 }).int(1).text(operand);
    let message = list.into_iter().fold(message, Message::text);
    let options = format!(r#"{{"durability":"none","events":"all"{COPY}{more}}}"#);
    message.int(4).text(options.as_bytes()).frame()
}

/// The answer of a server: its exit code, if it refused at once, everything that it said after its
/// greeting, and what it listed.
struct Answer {
    code: Option<u8>,
    said: Vec<u8>,
    listed: Vec<u8>,
}

/// Asks a server with this access to the tree.
fn ask(arena: &Arena, access: &str, start: &[u8]) -> Answer {
    let (server, pipe) = arena.restricted_server(access);
    let session = Session::greet(pipe);
    session.control(&hello(1));
    session.control(start);
    let (mut said, mut listed) = (Vec::new(), Vec::new());
    let code = loop {
        let (number, payload) = session.hear();
        // But for the random part of its greeting.
        if number != 1 {
            said.extend_from_slice(&payload);
        }
        match number {
            7 => listed.extend_from_slice(&payload),
            4 => break payload.first().copied(),
            8 => break None,
            _ => {}
        }
    };
    let _ = server.end(session);
    Answer { code, said, listed }
}

fn has(said: &[u8], part: &str) -> bool {
    said.windows(part.len()).any(|window| window == part.as_bytes())
}

#[test]
fn a_list_of_a_restricted_key_is_read_below_its_directory_only() {
    needs_dsync!();
    let arena = Arena::new();
    let outside = arena.scratch().at("outside/canary").display().to_string();
    for list in ["peek", "out/canary", "../outside/canary", "sub/../../outside/canary", &outside] {
        for access in ["ro", "rw"] {
            let Answer { code, said, .. } = ask(&arena, access, &source(b"./", Some(list.as_bytes()), ""));
            assert!(code.is_some_and(|code| code != 0), "{list} {access}");
            assert!(!has(&said, "secret"), "{list} {access}: {}", String::from_utf8_lossy(&said));
        }
    }
    // A list of its own it may read, unless the key is for writing only.
    for (access, is_read) in [("ro", true), ("rw", true), ("wo", false), ("append", true)] {
        let Answer { code, said, .. } = ask(&arena, access, &source(b"./", Some(b"sub/inner"), ""));
        assert_eq!(code == Some(42), !is_read, "{access}: {}", String::from_utf8_lossy(&said));
    }
    arena.assert_unharmed(&[]);
}

#[test]
fn neither_wildcards_nor_homes_lead_out_of_a_restricted_directory() {
    needs_dsync!();
    let arena = Arena::new();
    // `~` is the directory of the key.
    for operand in [
        "out/*",
        "*/canary",
        "*/../../outside/*",
        "../outside/*",
        "~/../outside/*",
        "~/./../outside",
        "{out,peek}/c*",
        "p*k/.",
    ] {
        let start = source(operand.as_bytes(), None, r#","wildcards":true"#);
        let Answer { said, listed, .. } = ask(&arena, "ro", &start);
        let is_told = has(&said, "secret") || has(&listed, "canary");
        assert!(!is_told, "{operand}: {}", String::from_utf8_lossy(&said));
    }
    for operand in ["~root", "~root/", "~root/./.ssh"] {
        let Answer { code, said, .. } =
            ask(&arena, "ro", &source(operand.as_bytes(), None, r#","other-homes":true"#));
        assert_eq!(code, Some(1), "{operand}: {}", String::from_utf8_lossy(&said));
        // Nor does the refusal say whether there is such a user.
        let unknown = operand.replace("root", "no-such-user");
        let start = source(unknown.as_bytes(), None, r#","other-homes":true"#);
        let Answer { said: other, .. } = ask(&arena, "ro", &start);
        assert_eq!(
            String::from_utf8_lossy(&said),
            String::from_utf8_lossy(&other).replace("no-such-user", "root")
        );
    }
    arena.assert_unharmed(&[]);
}
