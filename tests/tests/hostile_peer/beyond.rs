//! A property: a destination accepts exactly the listings that an honest source could have sent.
//! rsync determines those: a listing could have been sent if rsync, given a source with all of it,
//! copies all of it.

mod relative;

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::OsString,
    fs,
    os::unix::fs::symlink,
    path::Path,
    sync::atomic::{AtomicUsize, Ordering},
};

use dsync_tests::{
    Scratch,
    hostile::{Arena, Item, Message, Session, bytes::listing_part, session::Order},
    needs_dsync,
    oracle::rsync,
    survey,
};
use proptest::{
    collection::vec,
    prelude::*,
    sample::select,
    test_runner::{Config, RngAlgorithm, TestCaseError, TestRng, TestRunner},
};

use super::{RELAY, STREAM};

/// A listing: names with their nodes.
type Tree = BTreeMap<&'static str, Node>;

#[derive(Debug, Clone)]
enum Node {
    File,
    Link,
    Dir(Tree),
}

/// One run: operands (an empty one stands for a directory's contents), rules, and the source's
/// listing.
#[derive(Debug, Clone)]
struct Case {
    operands: Vec<&'static str>,
    rules: Vec<(bool, &'static str)>,
    tree: Tree,
}

const NAMES: &[&str] = &["a", "b", "a.o", ".ssh", "\u{e9}\n"];

const PATTERNS: &[(bool, &str)] = &[
    (false, ".ssh"),
    (false, "*.o"),
    (false, "/a"),
    (false, "b/"),
    (false, "a/b"),
    (false, "/*/a"),
    (false, "**/a.o"),
    (false, "*"),
    (true, "*/"),
    (true, "/b/***"),
    (true, "a"),
];

fn trees(depth: u32) -> BoxedStrategy<Tree> {
    let plain = select(vec![Node::File, Node::Link]);
    let node = match depth {
        0 => plain.boxed(),
        _ => prop_oneof![1 => plain, 2 => trees(depth - 1).prop_map(Node::Dir)].boxed(),
    };
    vec((select(NAMES), node), 0..4).prop_map(|nodes| nodes.into_iter().collect()).boxed()
}

fn cases() -> impl Strategy<Value = Case> {
    let operand = prop_oneof![1 => Just(""), 3 => select(NAMES)];
    let parts = (vec(operand, 1..4), vec(select(PATTERNS), 0..3), trees(2));
    parts.prop_map(|(operands, rules, tree)| Case { operands, rules, tree })
}

fn plant(at: &Path, tree: &Tree) {
    fs::create_dir_all(at).unwrap();
    for (name, node) in tree {
        match node {
            Node::File => fs::write(at.join(name), "").unwrap(),
            Node::Link => symlink("t", at.join(name)).unwrap(),
            Node::Dir(tree) => plant(&at.join(name), tree),
        }
    }
}

fn paths(of: &str, tree: &Tree, found: &mut BTreeSet<Vec<u8>>) {
    for (name, node) in tree {
        let path = format!("{of}{name}");
        if let Node::Dir(tree) = node {
            paths(&format!("{path}/"), tree, found);
        }
        found.insert(path.into_bytes());
    }
}

impl Case {
    fn stands_for_contents(&self) -> bool {
        self.operands.contains(&"")
    }

    /// Returns the rules as arguments.
    fn flags(&self) -> Vec<String> {
        let flag = |(include, pattern): &(bool, &str)| {
            format!("--{}={pattern}", if *include { "include" } else { "exclude" })
        };
        self.rules.iter().map(flag).collect()
    }

    /// Returns the options of a server.
    fn options(&self) -> String {
        let rule =
            |(include, pattern): &(bool, &str)| format!(r#"{{"include":{include},"pattern":"{pattern}"}}"#);
        let rules: Vec<_> = self.rules.iter().map(rule).collect();
        format!(r#","recursive":true,"links":true,"dry-run":true,"filters":[{}]"#, rules.join(","))
    }

    /// Returns whether rsync copies all of it from places that have all of it.
    fn could_be_sent(&self) -> bool {
        let scratch = Scratch::new();
        let mut arguments: Vec<OsString> = vec!["-rl".into()];
        arguments.extend(self.flags().into_iter().map(OsString::from));
        for (number, operand) in self.operands.iter().enumerate() {
            let place = scratch.at(&format!("source{number}"));
            plant(&place, &self.tree);
            arguments.push(place.join(operand).into_os_string());
        }
        let copy = scratch.at("copy");
        fs::create_dir(&copy).unwrap();
        arguments.push(copy.clone().into_os_string());
        // Missing operands are not the subject of this test.
        let _ = rsync(&arguments);
        let mut listed = BTreeSet::new();
        paths("", &self.tree, &mut listed);
        let copied = survey(&copy).into_keys().filter(|path| !matches!(path.as_slice(), b"" | b"."));
        copied.collect::<BTreeSet<_>>() == listed
    }

    /// Lists the tree and ends the listing.
    fn list(&self, session: &Session) {
        let named: BTreeSet<_> = self.operands.iter().filter(|name| self.tree.contains_key(*name)).collect();
        let contents = self.stands_for_contents();
        let tops = Message::new(5).byte(u8::from(contents));
        let tops = if contents { tops.attributes() } else { tops };
        session.control(&tops.int(named.len() as u64).frame());
        let (mut entries, mut bytes) = (1, 0);
        list(session, 0, &self.tree, contents, (&mut entries, &mut bytes));
        session.control(&Message::new(8).int(entries - u64::from(!contents)).int(bytes).frame());
    }

    /// Returns whether a client that pulls accepts it.
    fn is_pulled(&self) -> Result<bool, TestCaseError> {
        let arena = Arena::new();
        let flags = self.flags();
        let flags: Vec<_> = ["-rln"].into_iter().chain(flags.iter().map(String::as_str)).collect();
        let operands: Vec<_> =
            self.operands.iter().enumerate().map(|(at, name)| format!("host:{at}/{name}")).collect();
        let operands: Vec<_> = operands.iter().map(String::as_str).collect();
        let (client, pipe) = arena.pull_of(RELAY, &flags, &operands);
        let session = Session::serve(pipe).answer();
        self.list(&session);
        let taken = is_taken(&session)?;
        drop(session);
        let _ = client.wait();
        arena.assert_unharmed(&[]);
        Ok(taken)
    }

    /// Returns whether a server that is pushed to accepts it.
    fn is_pushed(&self) -> Result<bool, TestCaseError> {
        let arena = Arena::new();
        let (server, pipe) = arena.server();
        let tree = arena.tree();
        let names: Vec<_> =
            self.operands.iter().filter(|name| !name.is_empty()).map(|name| name.as_bytes()).collect();
        let order = if self.stands_for_contents() {
            Order::DestinationAlsoOf(&tree, &names)
        } else {
            Order::DestinationOf(&tree, &names)
        };
        let session = Session::greet(pipe).start(order, &self.options());
        self.list(&session);
        let taken = is_taken(&session)?;
        let _ = server.end(session);
        arena.assert_unharmed(&[]);
        Ok(taken)
    }
}

/// Returns whether dsync accepts the source's listing.
fn is_taken(session: &Session) -> Result<bool, TestCaseError> {
    loop {
        match session.hear() {
            (14, _) => return Ok(true),
            (4, payload) => {
                let text = String::from_utf8_lossy(&payload).into_owned();
                prop_assert_eq!(i32::from(payload[0]), STREAM, "{}", text);
                prop_assert!(text.contains("which nobody asked for"), "{}", text);
                return Ok(false);
            }
            _ => {}
        }
    }
}

/// Lists a directory and its entries, depth first.
fn list(session: &Session, dir: u64, tree: &Tree, is_whole: bool, (next, bytes): (&mut u64, &mut u64)) {
    let first = *next;
    let item = |(name, node): (&&str, &Node)| match node {
        Node::File => Item::file(name, 0),
        Node::Link => Item::symlink(name, b"t"),
        Node::Dir(_) => Item::dir(name),
    };
    session.control(&listing_part(
        dir,
        1 | (u8::from(is_whole) << 1),
        &tree.iter().map(item).collect::<Vec<_>>(),
    ));
    *next += tree.len() as u64;
    *bytes += tree.values().filter(|node| matches!(node, Node::Link)).count() as u64;
    for (at, node) in tree.values().enumerate() {
        if let Node::Dir(below) = node {
            list(session, first + at as u64, below, true, (next, bytes));
        }
    }
}

#[test]
fn a_destination_takes_exactly_what_an_honest_source_could_send() {
    needs_dsync!();
    let config =
        Config { cases: CASES, max_shrink_iters: 40, failure_persistence: None, ..Config::default() };
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &[13; 32]);
    let taken = AtomicUsize::new(0);
    TestRunner::new_with_rng(config, rng)
        .run(&cases(), |case| {
            let honest = case.could_be_sent();
            prop_assert_eq!(case.is_pulled()?, honest, "pull");
            prop_assert_eq!(case.is_pushed()?, honest, "push");
            taken.fetch_add(usize::from(honest), Ordering::Relaxed);
            Ok(())
        })
        .unwrap_or_else(|error| panic!("{error}"));
    // Both verdicts occur.
    let taken = taken.into_inner();
    assert!((CASES as usize / 10..CASES as usize * 9 / 10).contains(&taken), "{taken} of {CASES} were taken");
}

/// Number of runs in each direction.
const CASES: u32 = 48;
