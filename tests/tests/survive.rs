//! Connections that break: the run goes on over another one.

use std::{fs, thread, time::Duration};

use dsync_tests::{
    Node, Scope, Scratch, Sshd, Tree, Via, assert_same, needs_dsync, run::send, scratch::slash,
};
use rustix::process::Signal;

/// Something that breaks a run's connection once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Blow {
    /// The remote end is killed.
    Remote,
    /// The local ssh is killed.
    Shell,
}

/// Many files, more than the pipes and windows between the ends hold.
fn many_files() -> Tree {
    Tree::of((0..400).map(|number| Node::file(format!("f{number:03}"), number, 200_000)))
}

#[test]
fn killed_processes_do_not_end_a_run() {
    needs_dsync!();
    for (via, blow, push) in [
        (Via::Ssh, Blow::Shell, true),
        (Via::Ssh, Blow::Remote, false),
        (Via::Quic, Blow::Remote, true),
        (Via::Quic, Blow::Remote, false),
    ] {
        let (scratch, sshd) = (Scratch::new(), Sshd::shared());
        many_files().plant(&scratch.src());
        let remote = sshd.remote();
        let run = sshd.run_serving(via, &remote.script).args(["-av", "--timeout=4"]);
        let run = if push {
            run.arg(slash(&scratch.src())).arg(sshd.operand(scratch.dst()))
        } else {
            run.arg(sshd.operand(slash(&scratch.src()))).arg(scratch.dst())
        };
        let running = run.start();
        let id = remote.wait_for_id();
        wait_for(|| fs::read_dir(scratch.dst()).is_ok_and(|entries| entries.count() > 20));
        match blow {
            Blow::Remote => send(id, Signal::KILL),
            Blow::Shell => send(child_of(running.id()), Signal::KILL),
        }
        let outcome = running.wait().expect_code(0);
        let text = outcome.stderr_text();
        assert!(
            text.contains("reconnecting (1 of 5) in 1 s") || text.contains("in 2 s"),
            "{}",
            outcome.account()
        );
        assert!(outcome.stdout_text().contains("The connection was lost once"), "{}", outcome.account());
        assert_same(&scratch.src(), &scratch.dst(), Scope::full());
    }
}

/// Waits for what will be.
fn wait_for(mut seen: impl FnMut() -> bool) {
    for _ in 0..20_000 {
        if seen() {
            return;
        }
        thread::sleep(Duration::from_millis(1));
    }
    panic!("it did not come");
}

/// The first child of a process.
fn child_of(parent: u32) -> u32 {
    let children = fs::read_to_string(format!("/proc/{parent}/task/{parent}/children"));
    let children = children.unwrap_or_default();
    // Started by a thread of its own, perhaps.
    let all = fs::read_dir(format!("/proc/{parent}/task"))
        .expect("its threads")
        .flatten()
        .map(|task| fs::read_to_string(task.path().join("children")).unwrap_or_default());
    let all: Vec<u32> = all
        .chain([children])
        .flat_map(|text| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
        .filter_map(|word| word.parse().ok())
        .collect();
    *all.first().expect("a child")
}
