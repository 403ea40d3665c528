//! A source that sends entries nobody requested: names, deletions and attributes beyond the
//! operands and the options.
//!
//! Each attack targets a client that pulls and a server that is pushed to. (Before the destination
//! knew its operands, the first ones succeeded with exit code 0.)

use dsync_tests::{
    hostile::{
        Arena, Item, Message, Session,
        bytes::{listing_part, put_int, raw_listing},
        listing,
        session::Order,
    },
    needs_dsync,
};

use super::{RELAY, client_gives_up, int, segment, server_gives_up, tokens};

/// A request to a source, and the attack that it makes instead.
struct Deed {
    /// The operands' names; none for an operand that stands for its contents.
    names: &'static [&'static str],
    /// The client's options, and the same for a server.
    flags: &'static [&'static str],
    options: &'static str,
    /// The message about the attack.
    text: &'static str,
    deed: fn(&mut Session),
}

const RECURSIVE: (&[&str], &str) = (&["-r"], r#","recursive":true"#);
const DELETE: (&[&str], &str) = (&["-r", "--delete"], r#","recursive":true,"delete":true"#);

impl Deed {
    /// Makes an attack under some options against a run of the names.
    const fn of(
        names: &'static [&'static str],
        (flags, options): (&'static [&'static str], &'static str),
        text: &'static str,
        deed: fn(&mut Session),
    ) -> Self {
        Self { names, flags, options, text, deed }
    }

    /// Attacks a client, then a server: both refuse, and nothing changes.
    fn is_refused(&self) {
        let text = format!("the source sent {}", self.text);
        let arena = Arena::new();
        let remote = |name: &&str| format!("host:some/{name}");
        let operands: Vec<_> = self.names.iter().map(remote).collect();
        let operands: Vec<_> = match operands.as_slice() {
            [] => vec!["host:some/"],
            some => some.iter().map(String::as_str).collect(),
        };
        let (client, pipe) = arena.pull_of(RELAY, self.flags, &operands);
        let mut session = Session::serve(pipe).answer();
        (self.deed)(&mut session);
        client_gives_up(client, session, &text);
        arena.assert_unharmed(&[]);

        let arena = Arena::new();
        let (server, pipe) = arena.server();
        let (tree, names) = (arena.tree(), self.names.iter().map(|name| name.as_bytes()).collect::<Vec<_>>());
        let order = match names.as_slice() {
            [] => Order::Destination(&tree),
            names => Order::DestinationOf(&tree, names),
        };
        let mut session = Session::greet(pipe).start(order, self.options);
        (self.deed)(&mut session);
        server_gives_up(server, session, &text);
        arena.assert_unharmed(&[]);
    }
}

fn all_are_refused(deeds: &[Deed]) {
    needs_dsync!();
    for deed in deeds {
        deed.is_refused();
    }
}

/// Sends a part of the root's listing, after announcing how many entries the operands name.
fn list_named(session: &Session, named: u64, items: &[Item]) {
    session.named_tops(named);
    session.control(&listing_part(0, 1, items));
}

/// Sends a part of the listing of the operand's contents.
fn list_contents(session: &Session, items: &[Item]) {
    session.tops();
    session.control(&listing_part(0, 1, items));
}

#[test]
fn an_entry_that_no_operand_names_is_refused() {
    all_are_refused(&[
        Deed::of(&["report1"], (&[], ""), "'.bashrc', which nobody asked for: no operand names it", |s| {
            list_named(s, 1, &[Item::file(".bashrc", 5)]);
        }),
        Deed::of(&["report1"], RECURSIVE, "'report10', which", |s| {
            list_named(s, 1, &[Item::dir("report1"), Item::file("report10", 5)]);
        }),
        Deed::of(&["a", "b"], RECURSIVE, "'b', which nobody asked for: the source said that no", |s| {
            list_named(s, 1, &[Item::file("a", 5), Item::file("b", 5)]);
        }),
        Deed::of(&["a", "b"], RECURSIVE, "more entries of the destination directory itself, which", |s| {
            s.named_tops(3);
        }),
        Deed::of(&["a", "b"], RECURSIVE, "word that a file takes the place of the destination", |s| {
            s.control(&Message::new(5).byte(2).int(1).frame());
        }),
        // Many names, one of which is wrong, in a later part.
        Deed::of(&["a", "kept", "z"], RECURSIVE, "'pipe', which nobody asked for", |s| {
            s.named_tops(3);
            s.control(&listing_part(0, 0, &[Item::file("a", 5)]));
            s.control(&listing_part(0, 1, &[Item::file("pipe", 5)]));
        }),
    ]);
}

/// Attacks a client that pulls these operands.
fn pull_is_refused(operand: &str, (flags, _): (&[&str], &str), text: &str, deed: fn(&mut Session)) {
    let arena = Arena::new();
    let (client, pipe) = arena.pull_of(RELAY, flags, &[operand]);
    let mut session = Session::serve(pipe).answer();
    deed(&mut session);
    client_gives_up(client, session, &format!("the source sent {text}"));
    arena.assert_unharmed(&[]);
}

#[test]
fn an_entry_that_no_wildcard_stands_for_is_refused() {
    needs_dsync!();
    const NOT_NAMED: &str = "'.bashrc', which nobody asked for: no operand names it";
    for operand in ["host:some/*.pdf", "host:some/*", "host:some/[a-z]*", "host:some/{a,b}"] {
        pull_is_refused(operand, RECURSIVE, NOT_NAMED, |s| {
            list_named(s, 1, &[Item::file(".bashrc", 5)]);
        });
    }
    pull_is_refused("host:a*", RECURSIVE, "word that a file takes the place", |s| {
        s.control(&Message::new(5).byte(2).int(2).frame());
    });
    // A path that only a pattern could name is never missing; one that was typed may be.
    pull_is_refused("host:k*", (&["--delete-missing-args"], ""), "the absence of 'kept', which", |s| {
        s.named_tops(0);
        s.control(&Message::new(22).text(b"kept").frame());
    });
    let relative: (&[&str], &str) = (&["-rR"], "");
    pull_is_refused("host:a*/x", relative, "'b', which nobody asked for", |s| {
        list_named(s, 1, &[Item::dir("b")]);
    });
}

#[test]
fn what_is_in_a_directory_is_refused_without_recursion() {
    all_are_refused(&[
        Deed::of(
            &["sub"],
            (&[], ""),
            "the entries of 'sub', which nobody asked for: directories are copied without",
            |s| {
                list_named(s, 1, &[Item::dir("sub")]);
                s.control(&listing_part(1, 1, &[Item::file("inner", 1)]));
            },
        ),
        Deed::of(&[], (&[], ""), "'new', which nobody asked for: no operand names it", |s| {
            list_contents(s, &[Item::file("new", 5)]);
        }),
    ]);
}

#[test]
fn an_entry_that_the_filters_exclude_is_refused() {
    const EXCLUDE: (&[&str], &str) = (
        &["-r", "--include=/sub/kept.o", "--exclude=.ssh", "--exclude=*.o"],
        concat!(
            r#","recursive":true,"filters":[{"include":true,"pattern":"/sub/kept.o"},"#,
            r#"{"include":false,"pattern":".ssh"},{"include":false,"pattern":"*.o"}]"#,
        ),
    );
    const PARTS: (&[&str], &str) = (
        &["-r", "--partial-dir=.parts"],
        r#","recursive":true,"writing":{"partial-dir":".parts"},"keep-partial":"always""#,
    );
    all_are_refused(&[
        Deed::of(&[], EXCLUDE, "'.ssh', which nobody asked for: the filters exclude it", |s| {
            list_contents(s, &[Item::dir(".ssh")]);
        }),
        Deed::of(&[".ssh"], EXCLUDE, "'.ssh', which nobody asked for: the filters exclude it", |s| {
            list_named(s, 1, &[Item::dir(".ssh")]);
        }),
        Deed::of(&["sub"], EXCLUDE, "'sub/.ssh', which nobody asked for: the filters exclude it", |s| {
            list_named(s, 1, &[Item::dir("sub")]);
            s.control(&listing(1, &[Item::dir(".ssh"), Item::file("kept.o", 0)]));
        }),
        Deed::of(&[], EXCLUDE, "'sub/lost.o', which nobody asked for: the filters exclude it", |s| {
            list_contents(s, &[Item::dir("sub")]);
            s.control(&listing(1, &[Item::file("kept.o", 0), Item::file("lost.o", 0)]));
        }),
        // The directory in which this end keeps its unfinished files.
        Deed::of(&[], PARTS, "'.parts', which nobody asked for: the filters exclude it", |s| {
            list_contents(s, &[Item::dir(".parts")]);
        }),
        Deed::of(&[], RECURSIVE, "'.dsync-tmp-00000000000000000000000000000000', which", |s| {
            list_contents(s, &[Item::file(".dsync-tmp-00000000000000000000000000000000", 5)]);
        }),
    ]);
}

#[test]
fn an_excluded_entry_in_a_directory_that_is_not_made_is_refused() {
    const EXISTING: (&[&str], &str) = (
        &["-r", "--existing", "--exclude=*.o"],
        r#","recursive":true,"existing":true,"filters":[{"include":false,"pattern":"*.o"}]"#,
    );
    const BEFORE: (&[&str], &str) = (
        &["-r", "--delete-before", "--exclude=/new/deep/*.o"],
        concat!(
            r#","recursive":true,"delete":true,"delete-timing":"before","#,
            r#""filters":[{"include":false,"pattern":"/new/deep/*.o"}]"#,
        ),
    );
    let deed: fn(&mut Session) = |s| {
        list_contents(s, &[Item::dir("new")]);
        s.control(&listing(1, &[Item::dir("deep")]));
        s.control(&listing(2, &[Item::file("lost.o", 1)]));
    };
    all_are_refused(&[
        Deed::of(&[], EXISTING, "'new/deep/lost.o', which nobody asked for: the filters exclude it", deed),
        Deed::of(&[], BEFORE, "'new/deep/lost.o', which nobody asked for: the filters exclude it", deed),
    ]);
}

#[test]
fn a_claim_to_list_what_stands_beside_the_operands_is_refused() {
    const ROOT: &str = "word that it lists all of the destination directory itself, which nobody asked for: no operand \
                        stands for what is in it";
    const BEFORE: (&[&str], &str) =
        (&["-r", "--delete-before"], r#","recursive":true,"delete":true,"delete-timing":"before""#);
    const DURING: (&[&str], &str) =
        (&["-r", "--delete-during"], r#","recursive":true,"delete":true,"delete-timing":"during""#);
    let neighbours: fn(&mut Session) = |s| {
        s.named_tops(1);
        s.control(&listing(0, &[Item::dir("photos")]));
    };
    all_are_refused(&[
        // `dsync -a --delete host:photos /bk/` deleted everything in /bk beside photos.
        Deed::of(&["photos"], DELETE, ROOT, neighbours),
        Deed::of(&["photos"], BEFORE, ROOT, neighbours),
        Deed::of(&["photos"], DURING, ROOT, neighbours),
        Deed::of(&["photos"], DELETE, "attributes of the destination directory itself, which", |s| s.tops()),
        Deed::of(&[], DELETE, "word that it lists all of the destination directory itself, which", |s| {
            s.named_tops(0);
            s.control(&listing(0, &[]));
        }),
    ]);
}

#[test]
fn an_operand_that_is_missing_is_one_that_was_named() {
    const MISSING: (&[&str], &str) =
        (&["-r", "--delete-missing-args"], r#","recursive":true,"delete-missing-args":true"#);
    all_are_refused(&[
        Deed::of(
            &["gone"],
            MISSING,
            "the absence of 'kept', which nobody asked for: no operand names it",
            |s| {
                s.control(&Message::new(5).byte(2).int(0).frame());
                s.control(&Message::new(22).text(b"kept").frame());
            },
        ),
        Deed::of(&[], MISSING, "the absence of 'kept', which nobody asked for: no operand names it", |s| {
            s.tops();
            s.control(&Message::new(22).text(b"kept").frame());
        }),
        Deed::of(
            &["kept"],
            DELETE,
            "the absence of 'kept', which nobody asked for: what is missing is not",
            |s| {
                s.named_tops(0);
                s.control(&Message::new(22).text(b"kept").frame());
            },
        ),
    ]);
}

#[test]
fn the_guard_of_the_root_does_not_wait_for_the_source_to_announce_it() {
    needs_dsync!();
    let text = "refusing to delete in '/'";
    let arena = Arena::new();
    let (server, pipe) = arena.server();
    let options = r#","recursive":true,"delete":true,"dry-run":true"#;
    let session = Session::greet(pipe).start(Order::Destination(b"/"), options);
    session.named_tops(0);
    let fatal = session.fatal();
    assert_eq!((fatal.code, server.end(session)), (42, 42), "{}", fatal.text);
    assert!(fatal.text.contains(text), "{}", fatal.text);
}

/// Makes the only entry of a listing, a file `x` of one byte, with these flags, owner and group,
/// and more fields after its seconds.
fn odd_entry(flags: [u8; 2], owner: u64, group: u64, middle: &[u8], end: &[u8]) -> Vec<u8> {
    let mut entry = vec![flags[0] | 128, flags[1], 0, 1, b'x'];
    for field in [0o644, owner, group, 0] {
        put_int(&mut entry, field);
    }
    [&entry, middle, &int(1), end].concat()
}

/// Lists that entry alone, with these attribute sets.
fn list_odd(session: &Session, sets: &[&[u8]], entry: &[u8]) {
    session.tops();
    let content = [&int(sets.len() as u64)[..], &sets.concat(), &int(1), entry].concat();
    session.control(&raw_listing(0, 1, &content));
}

const XATTRS: (&[&str], &str) = (&["-rX"], r#","recursive":true,"xattrs":true"#);
const RULED: (&[&str], &str) = (
    &["-rX", "-f-x user.b", "-f+x user.*", "-f-xs *"],
    r#","recursive":true,"xattrs":true,"filters":[{"include":false,"pattern":"user.b","modifiers":"x"},
        {"include":true,"pattern":"user.*","modifiers":"x"},{"include":false,"pattern":"*","modifiers":"sx"}]"#,
);
const ACLS: (&[&str], &str) = (&["-rA", "--no-X"], r#","recursive":true,"perms":true,"acls":true"#);
const CONTENT: (&[&str], &str) =
    (&["-rD", "--copy-devices"], r#","recursive":true,"devices":true,"specials":true,"copy-devices":true"#);
const NUMERIC: (&[&str], &str) =
    (&["-ro", "--numeric-ids"], r#","recursive":true,"owner":true,"numeric-ids":true"#);
/// No lists and the attribute `user.a` with one byte.
const XATTR: &[u8] = b"\x00\x01\x06user.a\x01v";
/// An access list that names nobody, and no attribute.
const ACL: &[u8] = &[1, 6, 4, 8, 4, 0, 0, 0];

#[test]
fn a_name_that_would_protect_an_entry_is_refused_unless_the_run_hears_of_them() {
    let refused = "'x', which nobody asked for: no entries are named that are left out";
    all_are_refused(&[
        Deed::of(&[], RECURSIVE, refused, |s| list_contents(s, &[Item::hidden("x")])),
        Deed::of(&[], DELETE, refused, |s| list_contents(s, &[Item::hidden("x")])),
    ]);

    // Only a server can be in a run that hears of such names.
    let options =
        r#","recursive":true,"delete":true,"names-hidden":true,"filters":[{"include":false,"pattern":"y"}]"#;
    type Deeds = fn(&Session);
    let cases: [(&str, Deeds); 2] = [
        ("the source sent 'y', which nobody asked for: the filters exclude it", |s| {
            list_contents(s, &[Item::hidden("x"), Item::hidden("y")]);
        }),
        ("parent 1 is not a directory", |s| {
            list_contents(s, &[Item::hidden("x")]);
            s.control(&listing_part(1, 3, &[]));
        }),
    ];
    for (text, deed) in cases {
        let arena = Arena::new();
        let (server, pipe) = arena.server();
        let session = Session::greet(pipe).start(Order::Destination(&arena.tree()), options);
        deed(&session);
        server_gives_up(server, session, text);
        arena.assert_unharmed(&[]);
    }
}

#[test]
fn attributes_that_were_not_asked_for_are_refused() {
    all_are_refused(&[
        Deed::of(&[], RECURSIVE, "the owner of 'x', which nobody asked for: owners are not copied", |s| {
            list_odd(s, &[], &odd_entry([0, 0], 1000, 0, b"", b""));
        }),
        Deed::of(&[], RECURSIVE, "the group of 'x', which nobody asked for: groups are not copied", |s| {
            list_odd(s, &[], &odd_entry([0, 0], 0, 1000, b"", b""));
        }),
        Deed::of(&[], RECURSIVE, "the access time of 'x', which nobody asked for: access times", |s| {
            list_odd(s, &[], &odd_entry([0, 8], 0, 0, &[2, 0], b""));
        }),
        Deed::of(&[], RECURSIVE, "a checksum of 'x', which nobody asked for: files are not compared", |s| {
            list_odd(s, &[], &odd_entry([64, 0], 0, 0, b"", &[7; 32]));
        }),
        Deed::of(&[], RECURSIVE, "other names of 'x', which nobody asked for: hard links are not", |s| {
            list_odd(s, &[], &odd_entry([0, 2], 0, 0, b"", b""));
        }),
        Deed::of(&[], RECURSIVE, "an attribute set of 'x', which nobody asked for: neither ACLs", |s| {
            list_odd(s, &[XATTR], &odd_entry([0, 1], 0, 0, &[0], b""));
        }),
        Deed::of(&[], ACLS, "extended attributes of 'x', which nobody asked for: extended", |s| {
            list_odd(s, &[XATTR], &odd_entry([0, 1], 0, 0, &[0], b""));
        }),
        Deed::of(&[], XATTRS, "an access control list of 'x', which nobody asked for: ACLs are not", |s| {
            list_odd(s, &[ACL], &odd_entry([0, 1], 0, 0, &[0], b""));
        }),
        Deed::of(&[], XATTRS, "an extended attribute of 'x', which nobody asked for: no source", |s| {
            let set = b"\x00\x01\x17system.posix_acl_access\x01v";
            list_odd(s, &[set], &odd_entry([0, 1], 0, 0, &[0], b""));
        }),
        Deed::of(&[], RULED, "an extended attribute of 'x', which nobody asked for: the filters", |s| {
            list_odd(s, &[b"\x00\x01\x06user.b\x01v"], &odd_entry([0, 1], 0, 0, &[0], b""));
        }),
        Deed::of(&[], RULED, "an extended attribute of 'x', which nobody asked for: the filters", |s| {
            list_odd(s, &[b"\x00\x01\x09trusted.t\x01v"], &odd_entry([0, 1], 0, 0, &[0], b""));
        }),
        Deed::of(&[], RECURSIVE, "the link text of 'link', which nobody asked for: links are not", |s| {
            list_contents(s, &[Item::symlink("link", b"../outside")]);
        }),
        Deed::of(&[], RECURSIVE, "the device number of 'disk', which nobody asked for: devices", |s| {
            list_contents(s, &[Item::new(b"disk", 6, [int(8), int(1)].concat())]);
        }),
        Deed::of(&[], CONTENT, "'disk', which nobody asked for: devices are copied as files", |s| {
            list_contents(s, &[Item::new(b"disk", 6, [int(8), int(1)].concat())]);
        }),
        Deed::of(&[], RECURSIVE, "'alice', which nobody asked for: owners are not copied", |s| {
            s.tops();
            s.control(&Message::new(6).byte(0).int(1000).text(b"alice").frame());
        }),
        Deed::of(&[], NUMERIC, "'alice', which nobody asked for: owners and groups go by", |s| {
            s.tops();
            s.control(&Message::new(6).byte(0).int(1000).text(b"alice").frame());
        }),
    ]);
}

#[test]
fn a_ruling_that_nobody_wants_or_the_source_cannot_give_is_refused() {
    const ASKS: (&[&str], &str) = (&["-r", "-vv"], r#","recursive":true,"rulings":true"#);
    fn rule(session: &Session, reason: u8) {
        session.tops();
        session.control(&Message::new(28).byte(reason).byte(0).text(b"x").byte(0).int(0).frame());
    }
    let text = "a ruling, which nobody asked for: the run does not ask why";
    all_are_refused(&[
        Deed::of(&[], RECURSIVE, text, |s| rule(s, 0)),
        // Shown, which only `explain` asks for; protected, which is the destination's word.
        Deed::of(&[], ASKS, text, |s| rule(s, 1)),
        Deed::of(&[], ASKS, text, |s| rule(s, 5)),
    ]);
}

#[test]
fn paths_of_removed_files_that_nobody_asked_for_are_refused() {
    const MOVES: (&[&str], &str) =
        (&["-r", "--remove-source-files"], r#","recursive":true,"remove-source-files":true"#);
    fn removed(session: &Session) {
        session.tops();
        session.control(&Message::new(29).text(b"x").frame());
    }
    let text = "the path of a removed file, which nobody asked for: the run does not ask for these";
    all_are_refused(&[
        Deed::of(&[], RECURSIVE, text, |s| removed(s)),
        Deed::of(&[], MOVES, text, |s| removed(s)),
    ]);
}

#[test]
fn holes_that_were_not_asked_for_are_refused() {
    const SPARSE: (&[&str], &str) = (&["-rS"], r#","recursive":true,"writing":{"sparse":true}"#);
    all_are_refused(&[Deed::of(
        &[],
        SPARSE,
        "holes of 'new', which nobody asked for: all zeros become",
        |s| {
            list_contents(s, &[Item::file("new", 5)]);
            assert_eq!(s.expect(10), [1, 0]);
            let lane = s.lane(0);
            s.lanes.send(lane, &segment(1, 1 << 20));
            s.lanes.send(lane, &Message::new(71).int(1).int(0).int(4096).frame());
        },
    )]);
}

#[test]
fn a_file_that_grows_beyond_what_was_asked_for_is_not_taken() {
    needs_dsync!();
    let arena = Arena::new();
    let (client, pipe) = arena.pull_of(RELAY, &["-r", "--max-size=100"], &["host:some/"]);
    let mut session = Session::serve(pipe).answer();
    session.tops();
    session.control(&listing(0, &[Item::file("batch", 5), Item::file("segment", 5)]));
    session.control(&Message::new(8).int(3).int(10).frame());
    let needs = [session.expect(10), session.expect(10)];
    assert_eq!(needs, [[1, 0], [2, 0]]);
    let lanes = [0, 1, 2, 3].map(|number| session.lane(number));
    // A terabyte is declared and only some of it arrives: nothing is made of it.
    let changed = |attempt| Message::new(69).int(2).byte(attempt).byte(1).byte(2).frame();
    session.lanes.send(lanes[1], &segment(2, 1 << 40));
    session.lanes.send(lanes[1], &tokens(b"\x0cabc"));
    session.lanes.send(lanes[1], &Message::new(68).byte(0).frame());
    for attempt in 0..3 {
        let record = Session::record(1, attempt, &[b'x'; 101]);
        session.lanes.send(lanes[0], &Session::batch(&session.value(&record), &record));
        session.lanes.send(lanes[1], &changed(attempt));
    }
    session.expect_end_of_needs();
    for lane in lanes {
        session.lanes.send(lane, &Message::new(70).frame());
        session.lanes.finish(lane);
    }
    session.expect(17);
    session.control(&Message::new(19).frame());
    session.finish_control();
    let _ = session.lanes.receive(1);
    drop(session);
    let _ = client.wait().expect_code(24);
    arena.assert_unharmed(&[]);
}

#[test]
fn permissions_that_chmod_cannot_have_given_are_refused() {
    const CHMOD: (&[&str], &str) = (
        &["-rp", "--chmod=Fgo-w"],
        concat!(
            r#","recursive":true,"perms":true,"mode-rules":[{"files":true,"directories":false,"#,
            r#""if-executable":false,"keep":4077,"set":0}]"#,
        ),
    );
    all_are_refused(&[Deed::of(
        &[],
        CHMOD,
        "the permissions of 'new', which nobody asked for: the changes of modes",
        |s| {
            list_contents(s, &[Item::dir("dir").mode(0o777), Item::file("new", 5).mode(0o666)]);
        },
    )]);
}
