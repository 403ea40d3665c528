//! The engine as a library: its two examples do what they claim.

use std::fs;

use dsync_tests::{
    Node, Run, Scope, Scratch, Sshd, Tree, assert_same, needs_dsync,
    program::{example, program},
    scratch::slash,
    sshd,
};

#[test]
fn mirror_with_progress_mirrors_and_counts() {
    needs_dsync!();
    let scratch = Scratch::new();
    Tree::sample().plant(&scratch.src());
    Tree::of([Node::file("gone", 1, 1)]).plant(&scratch.dst());
    let mirror = || Run::of(example("mirror_with_progress")).arg(scratch.src()).arg(scratch.dst()).run();
    let first = mirror().expect_code(0);
    assert_same(&scratch.src(), &scratch.dst(), Scope::full());
    assert!(first.stdout_text().contains("1 entries deleted"), "{}", first.account());
    let second = mirror().expect_code(0);
    assert!(second.stdout_text().starts_with("0 files transferred, 0 bytes new"), "{}", second.account());
}

#[test]
fn push_to_host_pushes_and_gives_a_verdict() {
    needs_dsync!();
    let (scratch, sshd) = (Scratch::new(), Sshd::shared());
    Tree::of([Node::file("f", 1, 100_000), Node::dir("d"), Node::symlink("d/l", "x")]).plant(&scratch.src());
    let push = |target: std::ffi::OsString| {
        let run = Run::of(example("push_to_host")).arg(scratch.src()).arg(target);
        run.env("DSYNC_SHELL", sshd.shell()).env("DSYNC_PROGRAM", program()).run()
    };
    let outcome = push(sshd.operand(scratch.dst())).expect_code(0);
    assert_same(&scratch.src(), &scratch.dst(), Scope::full());
    let text = outcome.stdout_text();
    assert!(text.contains("0 files not saved") && text.contains("1 files saved"), "{}", outcome.account());
    let _ = push("no host here".into()).expect_code(1);
    let refused = push(format!("no-such-user@{}:x", sshd::ALIAS).into()).expect_code(255);
    assert!(refused.stderr_text().contains("the run failed"), "{}", refused.account());
}

#[test]
fn examples_of_the_readme_do_not_touch_the_source() {
    needs_dsync!();
    let scratch = Scratch::new();
    Tree::sample().plant(&scratch.src());
    let before = dsync_tests::survey(&scratch.src());
    let _ = Run::of(example("mirror_with_progress"))
        .arg(slash(&scratch.src()))
        .arg(scratch.dst())
        .run()
        .expect_code(0);
    dsync_tests::assert_unchanged(&before, &scratch.src());
    assert!(fs::exists(scratch.dst()).unwrap());
}
