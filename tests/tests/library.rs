//! The engine as a library: its examples do what they claim.

use std::fs;

use dsync_tests::{
    Node, Run, Scope, Scratch, Sshd, Tree, assert_same, needs_dsync,
    program::{example, program},
    remote_shell::{self, PLAIN},
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

#[test]
fn many_pushes_at_once_share_their_threads() {
    needs_dsync!();
    let scratch = Scratch::new();
    Tree::of((0..50).map(|file| Node::file(format!("f{file}"), file, 300_000))).plant(&scratch.src());
    // No session begins before all shells have started, so all jobs are under way at once.
    let gate = scratch.at("gate");
    fs::create_dir(&gate).unwrap();
    let script = format!(
        ": >{0}/$$\nwhile [ $(ls {0} | wc -l) -lt {JOBS} ]; do sleep 0.01; done\n{PLAIN}",
        gate.display()
    );
    let shell = remote_shell::write(scratch.at("shell"), &script);

    // A job has the thread that calls it, one that lists, one that sends and with TLS one that listens; all
    // share further ones that send, those that carry bytes, and a few.
    let processors = std::thread::available_parallelism().unwrap().get();
    let shared = (2 * processors).max(16) + processors + 8;
    for (carrier, own) in [("ssh", 3), ("quic", 3), ("tls", 4)] {
        let target = scratch.at(carrier);
        let push = Run::of(example("push_many")).arg(JOBS.to_string()).arg(scratch.src());
        let push = push.arg(format!("127.0.0.1:{}", target.display())).env("DSYNC_SHELL", &shell);
        let push = push.env("DSYNC_PROGRAM", program()).env("DSYNC_TRANSPORT", carrier).run().expect_code(0);
        let said = push.stdout_text();
        let threads = said.split(' ').next().and_then(|count| count.parse::<usize>().ok());
        assert!(
            threads.is_some_and(|threads| (JOBS..=own * JOBS + shared).contains(&threads)),
            "{carrier}: {said}"
        );
        for job in 0..JOBS {
            assert_same(&scratch.src(), &target.join(job.to_string()), Scope::full());
        }
        for shell in fs::read_dir(&gate).unwrap() {
            fs::remove_file(shell.unwrap().path()).unwrap();
        }
    }
}

/// Jobs at once.
const JOBS: usize = 20;
