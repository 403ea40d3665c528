//! Generated trees and edits: dsync always makes the destination equal, and rsync agrees.

use std::{fs::File, path::Path};

use dsync_tests::{
    Edit, Run, Scope, Scratch, Sshd, Tree, Via, assert_rsync_agrees,
    compare::{allocated, compare, show},
    differences, needs_root,
    oracle::assert_rsync_agrees_with,
    scratch::slash,
    survey, tree,
};
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestRng, TestRunner};

/// Runs a property on `cases` trees, each with two rounds of edits; the same ones on every machine.
fn for_trees(
    cases: u32,
    max_len: u64,
    seed: u8,
    property: impl Fn(&Tree, &[Edit], &[Edit]) -> Result<(), String>,
) {
    let config = Config { cases, max_shrink_iters: 40, failure_persistence: None, ..Config::default() };
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &[seed; 32]);
    let strategy = (tree::trees(60, max_len), tree::edits(12), tree::edits(12));
    TestRunner::new_with_rng(config, rng)
        .run(&strategy, |(tree, first, second)| property(&tree, &first, &second).map_err(TestCaseError::fail))
        .unwrap_or_else(|error| panic!("{error}"));
}

fn same(source: &Path, destination: &Path, what: &str) -> Result<(), String> {
    let found = differences(source, destination, Scope::full());
    if found.is_empty() { Ok(()) } else { Err(format!("{what}: {}", found[..found.len().min(8)].join("\n"))) }
}

/// Copies a tree three times with edits between, deleting missing entries.
fn three_rounds(tree: &Tree, rounds: [&[Edit]; 2], copy: &dyn Fn(&Scratch) -> Run) -> Result<(), String> {
    let scratch = Scratch::new();
    tree.plant(&scratch.src());
    for (round, edits) in [&[][..], rounds[0], rounds[1]].into_iter().enumerate() {
        edits.iter().for_each(|edit| edit.apply(&scratch.src()));
        let outcome = copy(&scratch).run();
        if outcome.code() != Some(0) || !outcome.stderr.is_empty() {
            return Err(format!("round {round}: {}", outcome.account()));
        }
        same(&scratch.src(), &scratch.dst(), &format!("round {round}"))?;
        let before = survey(&scratch.dst());
        let again = copy(&scratch).arg("-i").run();
        let changed = compare(&before, &survey(&scratch.dst()), Scope::EVERYTHING);
        if again.code() != Some(0) || !again.stdout.is_empty() || !changed.is_empty() {
            return Err(format!("round {round}, once more: {}\n{}", again.account(), changed.join("\n")));
        }
    }
    assert_rsync_agrees(&scratch.src(), &scratch.dst());
    assert_rsync_agrees_with(&["-aHAXc", "--delete"], &scratch.src(), &scratch.dst());
    Ok(())
}

#[test]
fn local_copies_of_any_tree_are_identical() {
    for_trees(40, 4 << 20, 1, |tree, first, second| {
        three_rounds(tree, [first, second], &|scratch| {
            Run::dsync().args(["-a", "--delete"]).arg(slash(&scratch.src())).arg(scratch.dst())
        })
    });
}

#[test]
fn pushes_of_any_tree_are_identical() {
    let sshd = Sshd::shared();
    for (via, seed) in [(Via::Quic, 2), (Via::Ssh, 3)] {
        for_trees(6, 2 << 20, seed, |tree, first, second| {
            three_rounds(tree, [first, second], &|scratch| {
                let run = sshd.run(via).args(["-a", "--delete"]).arg(slash(&scratch.src()));
                run.arg(sshd.operand(scratch.dst()))
            })
        });
    }
}

#[test]
fn pulls_of_any_tree_are_identical() {
    let sshd = Sshd::shared();
    for (via, seed) in [(Via::Quic, 4), (Via::Ssh, 5)] {
        for_trees(6, 2 << 20, seed, |tree, first, second| {
            three_rounds(tree, [first, second], &|scratch| {
                let run = sshd.run(via).args(["-a", "--delete"]).arg(sshd.operand(slash(&scratch.src())));
                run.arg(scratch.dst())
            })
        });
    }
}

/// Copies a tree with everything that an entry can have, over an older one, and compares the result
/// with the source and with rsync's result.
fn everything(seed: u8, cases: u32, copy: &dyn Fn(&Path, &Path) -> Run) {
    let config = Config { cases, max_shrink_iters: 40, failure_persistence: None, ..Config::default() };
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &[seed; 32]);
    let strategy = (tree::rich_trees(40, 2 << 20), tree::rich_trees(30, 300_000));
    let check = |(tree, old): (Tree, Tree)| -> Result<(), String> {
        let scratch = Scratch::new();
        let (ours, theirs) = (scratch.dst(), scratch.at("theirs"));
        tree.plant(&scratch.src());
        [&ours, &theirs].into_iter().for_each(|to| old.plant(to));
        let options = ["-aHAXSUU", "--delete"];
        let rsync = Run::of("rsync").args(options).arg(slash(&scratch.src())).arg(&theirs).run();
        let outcome = copy(&scratch.src(), &ours).args(options).run();
        if (outcome.code(), rsync.code()) != (Some(0), Some(0)) || !outcome.stderr.is_empty() {
            return Err(format!("{}\n{}", outcome.account(), rsync.account()));
        }
        // The first survey of the trees, which reads them.
        let surveys = [survey(&scratch.src()), survey(&ours), survey(&theirs)];
        let scope = Scope { atimes: true, ..Scope::EVERYTHING };
        let mut found = compare(&surveys[0], &surveys[1], scope);
        // rsync leaves changes for a further run on names that belonged to other files before.
        found.extend(compare(&surveys[2], &surveys[1], Scope { atimes: false, ..scope }));
        for (path, facts) in surveys[0].iter().filter(|(_, facts)| facts.kind == "file") {
            let [ours, theirs] = [&ours, &theirs].map(|root| {
                let path = tree::at(root, path);
                // Before a sync the filesystem has not settled the allocated space.
                File::open(&path).and_then(|file| file.sync_all()).expect("a file to sync");
                allocated(&path)
            });
            // Except for the blocks that the filesystem itself needs.
            if ours > theirs + 8192 {
                found.push(format!(
                    "{}: {ours} of {} bytes take space, rsync {theirs}",
                    show(path),
                    facts.size
                ));
            }
        }
        if found.is_empty() { Ok(()) } else { Err(found[..found.len().min(8)].join("\n")) }
    };
    TestRunner::new_with_rng(config, rng)
        .run(&strategy, |trees| check(trees).map_err(TestCaseError::fail))
        .unwrap_or_else(|error| panic!("{error}"));
}

#[test]
fn local_copies_with_everything_are_those_of_rsync() {
    needs_root!();
    everything(11, 16, &|from, to| Run::dsync().arg(slash(from)).arg(to));
}

#[test]
fn pushes_with_everything_are_those_of_rsync() {
    needs_root!();
    let sshd = Sshd::shared();
    everything(12, 8, &|from, to| sshd.run(Via::Tls).arg(slash(from)).arg(sshd.operand(to)));
}

#[test]
fn pulls_with_everything_are_those_of_rsync() {
    needs_root!();
    let sshd = Sshd::shared();
    everything(13, 8, &|from, to| sshd.run(Via::Ssh).arg(sshd.operand(slash(from))).arg(to));
}

#[test]
fn large_files_of_every_kind_are_identical() {
    let sshd = Sshd::shared();
    for (index, via) in Via::EACH.into_iter().enumerate() {
        let scratch = Scratch::new();
        let seed = 7 + index as u64;
        let file = |name: &str, len, style| {
            dsync_tests::Node::new(name, dsync_tests::Kind::File(dsync_tests::Content { seed, len, style }))
        };
        let mib = 1 << 20;
        Tree::of([
            file("random", 64 * mib, dsync_tests::Style::Random),
            file("text", 33 * mib + 1, dsync_tests::Style::Text),
            file("holes", 64 * mib - 1, dsync_tests::Style::Holes),
        ])
        .plant(&scratch.src());
        let copy = || {
            let run = sshd.run(via).arg("-a").arg(slash(&scratch.src())).arg(sshd.operand(scratch.dst()));
            let _ = run.run().expect_quiet_success();
            assert_eq!(differences(&scratch.src(), &scratch.dst(), Scope::full()), Vec::<String>::new());
        };
        copy();
        for pick in 0..6 {
            let at = [0, 1, 16 * mib - 1, 16 * mib, 32 * mib + 1, 33 * mib][pick];
            let span = tree::Span { at, len: 70_000, seed: at };
            let change =
                if pick % 2 == 0 { tree::Change::Insert(span) } else { tree::Change::Overwrite(span) };
            Edit { pick, change }.apply(&scratch.src());
        }
        copy();
    }
}
