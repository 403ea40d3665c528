//! Copies on this machine.

use std::{fs, os::unix::fs::MetadataExt};

use dsync_tests::{
    Node, Run, Scope, Scratch, Tree, assert_rsync_agrees, assert_same, needs_root, scratch::slash, survey,
    tree,
};

#[test]
fn copy_is_identical_and_quiet() {
    let scratch = Scratch::new();
    Tree::sample().plant(&scratch.src());
    let run = Run::dsync().arg("-a").arg(slash(&scratch.src())).arg(scratch.dst());
    let outcome = run.run().expect_quiet_success();
    assert!(outcome.stdout.is_empty(), "expected no output\n{}", outcome.account());
    assert_same(&scratch.src(), &scratch.dst(), Scope::full());
    assert_rsync_agrees(&scratch.src(), &scratch.dst());
}

#[test]
fn devices_and_foreign_owners_are_kept_as_root() {
    needs_root!();
    let scratch = Scratch::new();
    let owned = |node: Node, uid, gid| Node { owner: Some((uid, gid)), ..node };
    Tree::of([
        owned(Node::file("numeric", 1, 10), 71_234, 71_235),
        owned(Node::file("daemon", 2, 10), 1, 1),
        owned(Node::symlink("link", "daemon"), 1, 2),
        owned(Node::dir("dir"), 2, 3),
        owned(Node { mode: 0o6755, ..Node::file("setuid of another", 3, 9) }, 1, 1),
        Node::new("null", tree::Kind::CharDevice(1, 3)),
        owned(Node { mode: 0o604, ..Node::new("big", tree::Kind::CharDevice(255, 70_000)) }, 1, 1),
        Node::new("fifo", tree::Kind::Fifo),
    ])
    .plant(&scratch.src());
    let _ = Run::dsync().arg("-a").arg(slash(&scratch.src())).arg(scratch.dst()).run().expect_quiet_success();
    assert_same(&scratch.src(), &scratch.dst(), Scope::ALL);
    assert_rsync_agrees(&scratch.src(), &scratch.dst());
}

#[test]
fn holes_stay_cheap_or_at_least_right() {
    let scratch = Scratch::new();
    let content = tree::Content { seed: 5, len: 48 << 20, style: tree::Style::Holes };
    Tree::of([Node::new("sparse", tree::Kind::File(content))]).plant(&scratch.src());
    let _ = Run::dsync().arg("-a").arg(slash(&scratch.src())).arg(scratch.dst()).run().expect_quiet_success();
    assert_same(&scratch.src(), &scratch.dst(), Scope::full());
}

#[test]
fn types_change_both_ways() {
    let scratch = Scratch::new();
    Tree::of([
        Node::file("a", 1, 10),
        Node::dir("b"),
        Node::file("b/in", 1, 10),
        Node::symlink("c", "a"),
        Node::new("d", tree::Kind::Fifo),
        Node::symlink("e", "new text"),
    ])
    .plant(&scratch.src());
    Tree::of([
        Node::dir("a"),
        Node::file("b", 2, 20),
        Node::file("c", 3, 30),
        Node::symlink("d", "c"),
        Node::symlink("e", "old"),
    ])
    .plant(&scratch.dst());
    let _ =
        Run::dsync().args(["-a"]).arg(slash(&scratch.src())).arg(scratch.dst()).run().expect_quiet_success();
    assert_same(&scratch.src(), &scratch.dst(), Scope::full());
}

#[test]
fn first_of_several_sources_wins_and_directories_are_joined() {
    let scratch = Scratch::new();
    Tree::of([Node::file("same", 1, 100), Node::dir("d"), Node::file("d/one", 1, 1)])
        .plant(&scratch.at("one"));
    Tree::of([Node::file("same", 2, 200), Node::dir("d"), Node::file("d/two", 2, 2)])
        .plant(&scratch.at("two"));
    for (program, dst) in [(Run::dsync(), "dst"), (Run::of("rsync"), "rsync")] {
        let run = program.arg("-a").arg(slash(&scratch.at("one"))).arg(slash(&scratch.at("two")));
        let _ = run.arg(scratch.at(dst)).run().expect_quiet_success();
    }
    assert_same(&scratch.at("rsync"), &scratch.dst(), Scope::full());
    assert_eq!(survey(&scratch.dst())[&b"same"[..]].size, 100);
}

#[test]
fn old_file_is_replaced_not_written_into() {
    let scratch = Scratch::new();
    Tree::of([Node::file("file", 1, 5000)]).plant(&scratch.src());
    Tree::of([Node::file("file", 2, 4000)]).plant(&scratch.dst());
    fs::hard_link(scratch.dst().join("file"), scratch.at("witness")).unwrap();
    let _ = Run::dsync().arg("-a").arg(slash(&scratch.src())).arg(scratch.dst()).run().expect_quiet_success();
    assert_same(&scratch.src(), &scratch.dst(), Scope::full());
    assert_eq!(fs::metadata(scratch.at("witness")).unwrap().len(), 4000, "the old file was written into");
}

#[test]
fn attributes_alone_are_set_without_touching_content() {
    let scratch = Scratch::new();
    Tree::of([Node::file("file", 1, 5000), Node::dir("d")]).plant(&scratch.src());
    let copy = || Run::dsync().arg("-a").arg(slash(&scratch.src())).arg(scratch.dst());
    let _ = copy().run().expect_quiet_success();
    let before = fs::metadata(scratch.dst().join("file")).unwrap().ino();
    tree::set_mode(&scratch.src().join("file"), 0o640);
    tree::set_mode(&scratch.src().join("d"), 0o711);
    tree::set_mtime(&scratch.src().join("d"), (7, 8));
    let _ = copy().run().expect_quiet_success();
    assert_same(&scratch.src(), &scratch.dst(), Scope::full());
    assert_eq!(fs::metadata(scratch.dst().join("file")).unwrap().ino(), before);
}
