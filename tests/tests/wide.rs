//! Directories with more names than are kept in memory: they are listed, sent and compared in
//! parts.

use std::{fs, path::Path};

use dsync_tests::{Node, Run, Scope, Scratch, Sshd, Tree, Via, assert_same, scratch::slash};

/// More names than are simply sorted in memory, at either end.
const NAMES: usize = 9000;

fn make_wide(dir: &Path, skip: usize) {
    fs::create_dir_all(dir).unwrap();
    for number in (0..NAMES).filter(|number| number % skip != 0) {
        fs::write(dir.join(format!("{:x}-{number}", number * 7919 % NAMES)), "").unwrap();
    }
}

#[test]
fn a_very_wide_directory_is_copied_compared_and_pruned() {
    let (scratch, sshd) = (Scratch::new(), Sshd::shared());
    make_wide(&scratch.src().join("wide"), 2);
    make_wide(&scratch.dst().join("wide"), 3);
    let inner = |name: &str| [Node::dir(format!("wide/{name}")), Node::file(format!("wide/{name}/x"), 1, 90)];
    Tree::of(["0", "7-in", "m", "zz"].into_iter().flat_map(inner)).plant(&scratch.src());
    Tree::of(["1-in", "m", "zz"].into_iter().flat_map(inner)).plant(&scratch.dst());
    let copy = || {
        let run = sshd.run(Via::Quic).args(["-a", "--delete", "--stats"]).arg(slash(&scratch.src()));
        run.arg(sshd.operand(scratch.dst())).run().expect_code(0)
    };
    copy();
    assert_same(&scratch.src(), &scratch.dst(), Scope::full());
    let second = copy();
    assert_eq!(second.stat("Number of regular files transferred"), 0);
    assert_eq!(second.stat("Number of deleted files"), 0);
}

#[test]
fn a_listing_longer_than_the_sources_credit_is_deleted_from_before_it_is_copied() {
    /// More entries than a source lists ahead.
    const ENTRIES: usize = 33_500;
    let (scratch, sshd) = (Scratch::new(), Sshd::shared());
    fs::create_dir_all(scratch.src().join("wide")).unwrap();
    for number in 0..ENTRIES {
        fs::write(scratch.src().join(format!("wide/{number}")), "").unwrap();
    }
    Tree::of([Node::dir("wide"), Node::file("wide/7", 1, 9), Node::file("gone", 1, 1)]).plant(&scratch.dst());
    let run = sshd.run(Via::Ssh).args(["-a", "--delete-before", "--existing"]).arg(slash(&scratch.src()));
    let _ = run.arg(sshd.operand(scratch.dst())).run().expect_code(0);
    assert!(!scratch.dst().join("gone").exists());
    assert_eq!(fs::metadata(scratch.dst().join("wide/7")).unwrap().len(), 0);
}

#[test]
fn as_many_operands_as_a_command_line_takes_are_copied() {
    /// More files than one message or one part of a listing holds.
    const FILES: usize = 10_000;
    let (scratch, sshd) = (Scratch::new(), Sshd::shared());
    fs::create_dir_all(scratch.src()).unwrap();
    let names: Vec<_> = (0..FILES).map(|number| scratch.src().join(format!("f{number}"))).collect();
    names.iter().for_each(|name| fs::write(name, "").unwrap());
    let local = scratch.at("local");
    let _ = Run::dsync().arg("-a").args(&names).arg(slash(&local)).run().expect_code(0);
    let push = sshd.run(Via::Ssh).arg("-a").args(&names).arg(sshd.operand(scratch.dst()));
    let _ = push.run().expect_code(0);
    let remote = names.iter().map(|name| sshd.operand(name));
    let pulled = scratch.at("pulled");
    let _ = sshd.run(Via::Ssh).arg("-a").args(remote).arg(slash(&pulled)).run().expect_code(0);
    for to in [local, scratch.dst(), pulled] {
        assert_eq!(fs::read_dir(to).unwrap().count(), FILES);
    }
}
