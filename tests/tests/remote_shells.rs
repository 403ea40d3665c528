//! Remote shells of all kinds: a program that runs its words as they are, one that starts elsewhere than at
//! home, one that asks for something, and their failures, with rsync's exit codes.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use dsync_tests::{
    Node, Run, Scope, Scratch, Tree, assert_same, needs_dsync, program, run::wait_for, scratch::slash,
};

/// Writes a remote shell: a script for bash.
fn shell(at: &Scratch, name: &str, text: &str) -> PathBuf {
    let path = at.at(name);
    fs::write(&path, format!("#!/bin/bash\n{text}\n")).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path
}

/// Takes what is before the words of the remote command off.
const TO_THE_WORDS: &str = "while :; do case $1 in -l) shift 2;; --) shift;; *) shift; break;; esac; done";

/// Returns a run of a program through a remote shell.
fn through(program: &Path, shell: &Path, end: &Path) -> Run {
    let path = if program.ends_with("rsync") { "--rsync-path=" } else { "--dsync-path=" };
    Run::of(program).args(["-a", "-e"]).arg(shell).arg(format!("{path}{}", end.display()))
}

#[test]
fn a_shell_that_runs_words_as_they_are_gets_them_apart() {
    needs_dsync!();
    let scratch = Scratch::new();
    Tree::sample().plant(&scratch.src());
    // As `docker exec -i CONTAINER COMMAND ARG...`.
    let container = shell(&scratch, "container", "shift 3; exec \"$@\"");
    let command = format!("{} exec -i", container.display());
    let run = through(program(), Path::new(&command), program());
    let run = run.arg(slash(&scratch.src())).arg(format!("web:{}", scratch.dst().display()));
    let _ = run.run().expect_code(0);
    assert_same(&scratch.src(), &scratch.dst(), Scope::full());
}

#[test]
fn the_home_is_that_of_the_remote_end_wherever_it_starts() {
    needs_dsync!();
    let scratch = Scratch::new();
    Tree::of([Node::file("new", 1, 5)]).plant(&scratch.src());
    let plant = || {
        for place in ["home/site/old", "elsewhere/site/precious"] {
            fs::create_dir_all(scratch.at(place).parent().unwrap()).unwrap();
            fs::write(scratch.at(place), "old").unwrap();
        }
    };
    let text = format!(
        "{TO_THE_WORDS}\ncd {at}/elsewhere; export HOME={at}/home; exec sh -c \"$*\"",
        at = scratch.path().display()
    );
    let shell = shell(&scratch, "shell", &text);
    for (program, end) in [(program(), program()), (Path::new("rsync"), Path::new("rsync"))] {
        plant();
        let push = through(program, &shell, end).arg("--delete");
        let _ = push.arg(slash(&scratch.src())).arg("host:~/site/").run().expect_code(0);
        assert!(scratch.at("elsewhere/site/precious").exists(), "{}", program.display());
        assert!(scratch.at("home/site/new").exists() && !scratch.at("home/site/old").exists());
        for (operand, landed) in [("host:~/site/new", "new"), ("host:~/", "site/new")] {
            let pull = through(program, &shell, end).arg(operand).arg(slash(&scratch.at("pulled")));
            let _ = pull.run().expect_code(0);
            assert!(scratch.at("pulled").join(landed).exists(), "{operand}, {}", program.display());
            fs::remove_dir_all(scratch.at("pulled")).unwrap();
        }
    }
}

#[test]
fn what_a_slow_login_says_is_shown_and_a_quick_ones_is_not() {
    needs_dsync!();
    let scratch = Scratch::new();
    Tree::of([Node::file("f", 1, 5)]).plant(&scratch.src());
    let at = scratch.path().display();
    let ask = format!(
        "echo 'Visit \x1b[1mhttps://login.example' >&2; while [ ! -e {at}/let-in ]; do sleep .1; done"
    );
    let text = format!("{ask}\n{TO_THE_WORDS}\nexec sh -c \"$*\"");
    let shell = shell(&scratch, "shell", &text);
    let push = || {
        let run = through(program(), &shell, program());
        run.arg(slash(&scratch.src())).arg(format!("host:{}", scratch.dst().display()))
    };

    let mut running = push().start();
    wait_for(|| {
        assert!(running.is_running(), "it ended before anybody was let in");
        running.has_said("Visit \\u{1b}[1mhttps://login.example")
    });
    fs::write(scratch.at("let-in"), "").unwrap();
    let _ = running.wait().expect_code(0);
    assert!(scratch.dst().join("f").exists());
    // Only if the machine is so busy that a quick login takes three seconds is a banner shown.
    let quick = push().run().expect_code(0);
    let banner = quick.stderr_text();
    assert!(banner.is_empty() || banner == "Visit \\u{1b}[1mhttps://login.example\n", "{}", quick.account());

    // Whoever is not let in at all is told what was asked.
    fs::remove_file(scratch.at("let-in")).unwrap();
    let never = push().arg("--contimeout=1").run();
    fs::write(scratch.at("let-in"), "").unwrap();
    let never = never.expect_code(35);
    assert!(never.stderr_text().contains("https://login.example"), "{}", never.account());
}

#[test]
fn failures_of_the_shell_have_rsyncs_exit_codes() {
    needs_dsync!();
    let scratch = Scratch::new();
    Tree::of([Node::file("f", 1, 5)]).plant(&scratch.src());
    for (text, code) in
        [("exit 255", 255), ("exit 126", 126), ("exit 127", 127), ("exit 1", 12), ("exit 0", 12)]
    {
        let shell = shell(&scratch, "shell", text);
        let run = through(program(), &shell, program());
        let ours = run.arg(slash(&scratch.src())).arg("host:dst/").run();
        assert_eq!(ours.code(), Some(code), "{text}: {}", ours.account());
        // Whoever starts the run may let the system reap all children.
        let shell = format!("--rsh={}", shell.display());
        let run = Run::of("env").args(["--ignore-signal=CHLD"]).arg(program()).args(["-a", &shell]);
        let deaf = run.arg(slash(&scratch.src())).arg("host:dst/").run();
        assert_eq!(deaf.code(), Some(code), "{text}: {}", deaf.account());
    }
    let run = through(program(), Path::new("/no/such/shell"), program());
    let _ = run.arg(slash(&scratch.src())).arg("host:dst/").run().expect_code(14);
    let noisy = shell(&scratch, "noisy", &format!("echo Welcome; {TO_THE_WORDS}\nexec sh -c \"$*\""));
    let run = through(program(), &noisy, program());
    let run = run.arg(slash(&scratch.src())).arg(format!("host:{}", scratch.dst().display())).run();
    assert!(run.expect_code(2).stderr_text().contains("shell start-up files"));
}

#[test]
fn rsync_at_the_other_end_is_named_as_such_without_its_help() {
    needs_dsync!();
    let scratch = Scratch::new();
    Tree::of([Node::file("f", 1, 5)]).plant(&scratch.src());
    let shell = shell(&scratch, "shell", &format!("{TO_THE_WORDS}\nexec sh -c \"$*\""));
    let run = || through(program(), &shell, Path::new("rsync"));
    let there = format!("host:{}", scratch.dst().display());
    for run in [run().arg(slash(&scratch.src())).arg(&there), run().arg(&there).arg(scratch.at("got"))] {
        let outcome = run.run().expect_code(12);
        let text = outcome.stderr_text();
        assert!(text.contains("the program at the other end is rsync, not dsync"), "{}", outcome.account());
        assert!(text.contains("--dsync-path='sudo dsync'"), "{}", outcome.account());
        assert_eq!(text.lines().count(), 1, "{}", outcome.account());
    }
}

#[test]
fn addresses_and_paths_with_two_colons_are_those_of_ssh() {
    needs_dsync!();
    let scratch = Scratch::new();
    Tree::of([Node::file("File::Copy.3pm", 1, 5)]).plant(&scratch.src());
    let log = scratch.at("log");
    let text = format!(
        "echo \"$*\" >>{}\n{TO_THE_WORDS}\ncd {}; exec sh -c \"$*\"",
        log.display(),
        scratch.src().display()
    );
    let shell = shell(&scratch, "shell", &text);
    let name = "File::Copy.3pm";
    for operand in [
        format!("host:{name}"),
        format!("me@host:{name}"),
        format!("me@[2001:db8::1]:{name}"),
        format!("me@[fe80::1%lo]:{name}"),
        format!("[::1]:{name}"),
        format!("CORP\\me@host:{name}"),
        format!("me%gate@host:{name}"),
    ] {
        let pull = through(program(), &shell, program()).arg("--transport=ssh");
        let _ = pull.arg(&operand).arg(slash(&scratch.dst())).run().expect_code(0);
        assert!(scratch.dst().join(name).exists(), "{operand}");
        fs::remove_dir_all(scratch.dst()).unwrap();
    }
    let log = fs::read_to_string(log).unwrap();
    assert!(log.contains("-l CORP\\me ") && log.contains("-l me%gate "), "{log}");
}
