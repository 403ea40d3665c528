//! A source whose disk lets every reader wait: dsync asks it for many things at once.

use std::{fs, path::Path};

use dsync_tests::{
    Node, Scope, Scratch, SlowDisk, Sshd, Tree, Via, assert_same, every_way, scratch::slash,
    slow_disk::ENOUGH,
};

/// Directories of the tree, and files in each.
const DIRS: u64 = 100;
const FILES: u64 = 5;
/// Bytes of a file: enough for a delta to be asked for.
const LEN: u64 = 20_000;

/// Plants a tree whose files have contents of their own for each `seed`.
fn plant(behind: &Path, seed: u64) {
    let nodes = (0..DIRS).flat_map(|dir| {
        let files =
            (0..FILES).map(move |file| Node::file(format!("d{dir}/f{file}"), seed + dir * FILES + file, LEN));
        std::iter::once(Node::dir(format!("d{dir}"))).chain(files)
    });
    Tree::of(nodes).plant(behind);
}

#[test]
fn content_and_names_are_asked_for_ahead() {
    let scratch = Scratch::new();
    let behind = scratch.at("behind");
    plant(&behind, 0);

    every_way(&scratch, &["-a"], |run, destination| {
        let Some(disk) = SlowDisk::mount(&behind, &scratch.src()) else { return };
        let outcome = run().run().expect_quiet_success();
        assert_same(&behind, destination, Scope::full());

        let (reads, listings) = (disk.reads_at_once(), disk.listings_at_once());
        assert!(reads >= ENOUGH, "{reads} reads at once\n{}", outcome.account());
        assert!(listings >= ENOUGH, "{listings} listings at once\n{}", outcome.account());
    });
}

#[test]
fn old_files_are_asked_for_ahead() {
    let scratch = Scratch::new();
    let behind = scratch.at("behind");
    plant(&behind, 0);
    plant(&scratch.src(), 7_000);
    fs::create_dir(scratch.at("old")).unwrap();
    let Some(disk) = SlowDisk::mount(&behind, &scratch.at("old")) else { return };

    let sshd = Sshd::shared();
    let run = sshd.run(Via::Ssh).args(["-a", "--ignore-times", "--copy-dest"]).arg(scratch.at("old"));
    let outcome =
        run.arg(slash(&scratch.src())).arg(sshd.operand(scratch.dst())).run().expect_quiet_success();
    assert_same(&scratch.src(), &scratch.dst(), Scope::full());
    assert!(disk.reads_at_once() >= ENOUGH, "{} reads at once\n{}", disk.reads_at_once(), outcome.account());
}
