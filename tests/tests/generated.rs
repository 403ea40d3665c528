//! Generated trees and edits: whatever comes out, dsync makes the destination the same, and rsync agrees.

use std::path::Path;

use dsync_tests::{
    Edit, Run, Scope, Scratch, Sshd, Tree, Via, assert_rsync_agrees, differences,
    oracle::assert_rsync_agrees_with, scratch::slash, survey, tree,
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

/// Copies a tree three times with edits between, deleting what is gone.
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
        if again.code() != Some(0) || !again.stdout.is_empty() || survey(&scratch.dst()) != before {
            return Err(format!("round {round}, once more: {}", again.account()));
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
