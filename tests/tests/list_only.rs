//! `--list-only` and a single operand: the source's entries as rsync lists them.

use std::{
    ffi::OsStr,
    fs,
    os::unix::{ffi::OsStrExt as _, fs::symlink},
};

use dsync_tests::{
    Node, Outcome, Run, Scratch, Sshd, Tree, Via, is_stand_in, needs_dsync, scratch::slash, tree,
};

fn plant(scratch: &Scratch) {
    Tree::of([
        Node::dir("dir"),
        Node::file("dir/a", 1, 4000),
        Node::dir("dir/deep"),
        Node::file("dir/deep/x", 1, 4),
        Node::file("b.o", 2, 1_234_567),
        Node::file("line\nbreak \\#012", 2, 30),
        Node::symlink("link", "b.o"),
    ])
    .plant(&scratch.src());
    fs::write(scratch.src().join(OsStr::from_bytes(b"n\xff\xc3\xa9")), "name").unwrap();
    symlink("no where\n", scratch.src().join("dangling")).unwrap();
    fs::hard_link(scratch.src().join("b.o"), scratch.src().join("c")).unwrap();
    tree::set_mode(&scratch.src().join("c"), 0o4750);
    tree::set_mode(&scratch.src().join("dir"), 0o1777);
    let fifo = std::process::Command::new("mkfifo").arg(scratch.src().join("fifo")).status();
    assert!(fifo.unwrap().success());
}

/// Returns the lines in one order; a directory's size is the filesystem's own, and none here.
fn lines(outcome: &Outcome) -> Vec<String> {
    let line = |line: &[u8]| {
        let line = line.escape_ascii().to_string();
        if !line.starts_with('d') {
            return line;
        }
        let words: Vec<_> = line.split_whitespace().collect();
        format!("{} {}", words[0], words[2..].join(" "))
    };
    let mut lines: Vec<String> = outcome.stdout.split(|&byte| byte == b'\n').map(line).collect();
    lines.sort();
    lines
}

#[test]
fn sources_are_listed_as_by_rsync() {
    needs_dsync!();
    let cases: &[(&[&str], &[&str])] = &[
        (&[], &["src/"]),
        (&["-r"], &["src/"]),
        (&["-a"], &["src/"]),
        (&["-a"], &["src"]),
        (&["-l"], &["src/"]),
        (&["-d"], &["src/"]),
        (&["-h"], &["src/"]),
        (&["-hh", "-r"], &["src/"]),
        (&["--no-h"], &["src/"]),
        (&["-8"], &["src/"]),
        (&["-n"], &["src/"]),
        (&["-i"], &["src/"]),
        (&["-q"], &["src/"]),
        (&["-r", "--exclude=*.o"], &["src/"]),
        (&["-r", "--include=*/", "--include=*.o", "--exclude=*"], &["src/"]),
        (&[], &["src"]),
        (&[], &["src/b.o"]),
        (&[], &["src/link"]),
        (&["-l"], &["src/dangling"]),
        (&[], &["src/dir/", "."]),
        (&["--list-only"], &["src/b.o", "src/dir/a", "nowhere"]),
        (&["--list-only", "-a", "--delete"], &["src/", "dst"]),
    ];
    let scratch = Scratch::new();
    plant(&scratch);
    fs::create_dir(scratch.at("dst")).unwrap();
    fs::write(scratch.at("dst/kept"), "").unwrap();
    for &(options, operands) in cases {
        // With two operands only the option makes it a list.
        let options = if operands.len() > 1 && options.is_empty() { &["--list-only"][..] } else { options };
        let run = |program: Run| {
            let run = program.env("TZ", "UTC-05:30").env("LC_ALL", "C.UTF-8").args(options);
            operands.iter().fold(run, |run, operand| run.arg(scratch.at(operand))).run()
        };
        let (ours, theirs) = (run(Run::dsync()), run(Run::of("rsync")));
        assert_eq!(ours.code(), theirs.code(), "{}", ours.account());
        assert_eq!(lines(&ours), lines(&theirs), "{options:?} {operands:?}\n{}", ours.account());
    }
    assert!(scratch.at("dst/kept").exists() && !scratch.at("nowhere").exists());
}

#[test]
fn remote_directories_are_listed_without_a_trace() {
    needs_dsync!();
    let (scratch, sshd) = (Scratch::new(), Sshd::shared());
    plant(&scratch);
    for via in [Via::Tls, Via::Ssh] {
        let here = Run::dsync().arg("-rl").arg(slash(&scratch.src())).run().expect_code(0);
        let there = sshd.run(via).arg("-rl").arg(sshd.operand(slash(&scratch.src()))).run().expect_code(0);
        assert_eq!(here.stdout_text(), there.stdout_text());
        assert_eq!(there.stderr_text(), "");
    }
    // rsync's limits of size count for copies only.
    let small =
        sshd.run(Via::Tls).args(["-r", "--max-size=10"]).arg(sshd.operand(slash(&scratch.src()))).run();
    assert!(small.stdout_text().contains(" dir/deep/x\n"), "{}", small.account());
    assert!(!small.stdout_text().contains(" b.o"), "{}", small.account());

    let missing = sshd.run(Via::Tls).arg(sshd.operand(scratch.at("missing"))).run();
    assert!(missing.stderr_text().contains("missing"), "{}", missing.account());
    assert!(missing.code() != Some(0) && !is_stand_in());
}
