//! The same property of relative runs (`-R`): operands are paths, directories on the way to them
//! come without their other entries, and all below an operand comes with it.

use super::*;

/// One relative run: operands, and the source's listing.
#[derive(Debug, Clone)]
struct Relative {
    operands: Vec<String>,
    tree: Tree,
}

fn runs() -> impl Strategy<Value = Relative> {
    let operand = vec(select(&NAMES[..3]), 1..4);
    // An honest tree is rare by chance, so every second one loses what no operand names.
    (vec(operand, 1..3), trees(2), any::<bool>()).prop_map(|(paths, mut tree, is_honest)| {
        paths.iter().for_each(|path| insert(&mut tree, path));
        let operands = paths.iter().map(|path| path.join("/")).collect();
        let mut run = Relative { operands, tree: Tree::new() };
        run.tree = run.without_dead_ends("", tree, is_honest);
        run
    })
}

/// Makes a path, with directories on the way, where the tree lacks it.
fn insert(tree: &mut Tree, path: &[&'static str]) {
    let [name, below @ ..] = path else { return };
    let node = tree.entry(name).or_insert(Node::File);
    if below.is_empty() {
        return;
    }
    if !matches!(node, Node::Dir(_)) {
        *node = Node::Dir(Tree::new());
    }
    if let Node::Dir(tree) = node {
        insert(tree, below);
    }
}

impl Relative {
    /// Returns whether an operand is this path, or stands above it.
    fn covers(&self, path: &str) -> bool {
        self.operands.iter().any(|operand| {
            path.strip_prefix(operand.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        })
    }

    /// Returns whether a directory of this path leads to an operand.
    fn is_on_the_way(&self, path: &str) -> bool {
        self.operands
            .iter()
            .any(|operand| operand.strip_prefix(path).is_some_and(|rest| rest.starts_with('/')))
    }

    /// Returns a directory's tree without directories on the way to operands that are not there: no
    /// source lists them, but the destination cannot know. Of an honest tree only what operands name
    /// is kept.
    fn without_dead_ends(&self, of: &str, tree: Tree, is_honest: bool) -> Tree {
        let kept = tree.into_iter().filter_map(|(name, node)| {
            let path = format!("{of}{name}");
            match node {
                Node::Dir(below) if self.is_on_the_way(&path) && !self.covers(&path) => {
                    let below = self.without_dead_ends(&format!("{path}/"), below, is_honest);
                    let leads = below.keys().any(|name| {
                        let path = format!("{path}/{name}");
                        self.covers(&path) || self.is_on_the_way(&path)
                    });
                    leads.then_some((name, Node::Dir(below)))
                }
                node => (!is_honest || self.covers(&path)).then_some((name, node)),
            }
        });
        kept.collect()
    }

    /// Returns whether rsync copies all of it from places that have all of it.
    fn could_be_sent(&self) -> bool {
        let scratch = Scratch::new();
        let mut arguments: Vec<OsString> = vec!["-rlR".into()];
        for (number, operand) in self.operands.iter().enumerate() {
            let place = scratch.at(&format!("source{number}"));
            plant(&place, &self.tree);
            arguments.push(place.join(".").into_os_string());
            if let Some(last) = arguments.last_mut() {
                last.push("/./");
                last.push(operand);
            }
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
        let leads = |name: &&&str| self.covers(name) || self.is_on_the_way(name);
        session.named_tops(self.tree.keys().filter(leads).count() as u64);
        let (mut entries, mut bytes) = (1, 0);
        self.list_directory(session, (0, ""), &self.tree, (&mut entries, &mut bytes));
        session.control(&Message::new(8).int(entries - 1).int(bytes).frame());
    }

    /// Lists a directory and its entries, depth first.
    fn list_directory(
        &self,
        session: &Session,
        (dir, of): (u64, &str),
        tree: &Tree,
        (next, bytes): (&mut u64, &mut u64),
    ) {
        let first = *next;
        let item = |(name, node): (&&str, &Node)| match node {
            Node::File => Item::file(name, 0),
            Node::Link => Item::symlink(name, b"t"),
            Node::Dir(_) if self.covers(&format!("{of}{name}")) => Item::dir(name),
            Node::Dir(_) => Item::dir(name).on_the_way(),
        };
        let is_whole = !of.is_empty() && self.covers(of.trim_end_matches('/'));
        let items: Vec<_> = tree.iter().map(item).collect();
        session.control(&listing_part(dir, 1 | (u8::from(is_whole) << 1), &items));
        *next += tree.len() as u64;
        *bytes += tree.values().filter(|node| matches!(node, Node::Link)).count() as u64;
        for (at, (name, node)) in tree.iter().enumerate() {
            if let Node::Dir(below) = node {
                let path = format!("{of}{name}/");
                self.list_directory(session, (first + at as u64, &path), below, (next, bytes));
            }
        }
    }

    /// Returns whether a client that pulls accepts it.
    fn is_pulled(&self) -> Result<bool, TestCaseError> {
        let arena = Arena::new();
        let operands: Vec<_> =
            self.operands.iter().enumerate().map(|(at, path)| format!("host:{at}/./{path}")).collect();
        let operands: Vec<_> = operands.iter().map(String::as_str).collect();
        let (client, pipe) = arena.pull_of(RELAY, &["-rlnR"], &operands);
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
        let paths: Vec<_> = self.operands.iter().map(String::as_bytes).collect();
        let options = r#","recursive":true,"links":true,"relative":true,"dry-run":true"#;
        let session = Session::greet(pipe).start(Order::DestinationOfPaths(&tree, &paths), options);
        self.list(&session);
        let taken = is_taken(&session)?;
        let _ = server.end(session);
        arena.assert_unharmed(&[]);
        Ok(taken)
    }
}

#[test]
fn a_relative_run_takes_exactly_what_an_honest_source_could_send() {
    needs_dsync!();
    let config =
        Config { cases: CASES, max_shrink_iters: 40, failure_persistence: None, ..Config::default() };
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &[17; 32]);
    let taken = AtomicUsize::new(0);
    TestRunner::new_with_rng(config, rng)
        .run(&runs(), |run| {
            let honest = run.could_be_sent();
            prop_assert_eq!(run.is_pulled()?, honest, "pull");
            prop_assert_eq!(run.is_pushed()?, honest, "push");
            taken.fetch_add(usize::from(honest && !run.tree.is_empty()), Ordering::Relaxed);
            Ok(())
        })
        .unwrap_or_else(|error| panic!("{error}"));
    // Both verdicts occur.
    let taken = taken.into_inner();
    assert!((CASES as usize / 16..CASES as usize * 9 / 10).contains(&taken), "{taken} of {CASES} were taken");
}
