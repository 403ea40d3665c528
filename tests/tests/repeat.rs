//! The effect of a second run, and the rules of comparison.

use std::{fs, path::Path};

use dsync_tests::{Node, Outcome, Run, Scope, Scratch, Sshd, Tree, Via, assert_same, scratch::slash, tree};

fn itemized(source: &Path, destination: &Path, options: &[&str]) -> Outcome {
    Run::dsync().args(options).arg("-i").arg(slash(source)).arg(destination).run().expect_quiet_success()
}

fn lines(outcome: &Outcome) -> Vec<String> {
    let mut lines: Vec<String> = outcome.stdout_text().lines().map(str::to_owned).collect();
    lines.sort();
    lines
}

#[test]
fn second_run_sends_no_file_data() {
    for via in Via::EACH {
        let (scratch, sshd) = (Scratch::new(), Sshd::shared());
        Tree::sample().plant(&scratch.src());
        let copy = || {
            let run = sshd.run(via).args(["-a", "--stats"]).arg(slash(&scratch.src()));
            run.arg(sshd.operand(scratch.dst())).run().expect_code(0)
        };
        assert!(copy().stat("Literal data") > 0);
        let second = copy();
        assert_eq!(second.stat("Number of regular files transferred"), 0);
        assert_eq!(second.stat("Literal data") + second.stat("Matched data"), 0);
        assert!(second.stat("Total bytes sent") < 5000, "{}", second.account());
    }
}

#[test]
fn second_run_itemizes_nothing() {
    let scratch = Scratch::new();
    Tree::sample().plant(&scratch.src());
    assert!(!lines(&itemized(&scratch.src(), &scratch.dst(), &["-a"])).is_empty());
    let second = itemized(&scratch.src(), &scratch.dst(), &["-a"]);
    assert!(second.stdout.is_empty(), "{}", second.account());
}

#[test]
fn dry_run_prints_what_the_real_run_does_and_changes_nothing() {
    let scratch = Scratch::new();
    Tree::sample().plant(&scratch.src());
    Tree::of([
        Node::file("plain", 9, 9_000),
        Node { mode: 0o4755, mtime: (5, 6), ..Node::file("setuid", 3, 77) },
        Node { mode: 0o640, ..Node::file("read only", 4, 70_000) },
        Node::dir("extra"),
        Node::file("extra/x", 4, 4),
        Node::symlink("link", "elsewhere"),
        Node::file("fifo", 3, 3),
    ])
    .plant(&scratch.dst());
    let before = dsync_tests::survey(&scratch.dst());
    let plan = itemized(&scratch.src(), &scratch.dst(), &["-a", "--delete", "-n"]);
    dsync_tests::assert_unchanged(&before, &scratch.dst());
    let rsync = Run::of("rsync").args(["-a", "--delete", "-n", "-i"]).arg(slash(&scratch.src()));
    let rsync = rsync.arg(scratch.dst()).run().expect_code(0);
    let real = itemized(&scratch.src(), &scratch.dst(), &["-a", "--delete"]);
    assert_eq!(plan.stdout_text(), real.stdout_text());
    assert_eq!(lines(&plan), lines(&rsync), "dsync's plan is not rsync's");
    assert_same(&scratch.src(), &scratch.dst(), Scope::full());
}

#[test]
fn dry_run_over_the_wire_prints_what_the_real_run_does() {
    for via in Via::EACH {
        let (scratch, sshd) = (Scratch::new(), Sshd::shared());
        Tree::sample().plant(&scratch.src());
        Tree::of([Node::file("plain", 9, 10_000), Node::file("old", 1, 1)]).plant(&scratch.dst());
        let run = |options: &[&str]| {
            let run = sshd.run(via).args(["-a", "-i", "--delete"]).args(options).arg(slash(&scratch.src()));
            run.arg(sshd.operand(scratch.dst())).run().expect_quiet_success().stdout_text()
        };
        let before = dsync_tests::survey(&scratch.dst());
        let plan = run(&["-n"]);
        dsync_tests::assert_unchanged(&before, &scratch.dst());
        assert_eq!(plan, run(&[]));
        assert!(plan.contains("*deleting   old"), "{plan}");
        assert!(plan.contains("<f"), "{plan}");
    }
}

#[test]
fn dry_run_of_a_missing_destination_makes_nothing() {
    let scratch = Scratch::new();
    Tree::sample().plant(&scratch.src());
    let plan = itemized(&scratch.src(), &scratch.dst(), &["-a", "-n"]);
    assert!(plan.stdout_text().contains("f+++++++++ plain"), "{}", plan.account());
    assert!(!scratch.dst().exists());
}

/// Plants files of the same size and time with other content.
fn plant_lookalikes(scratch: &Scratch) {
    Tree::of([Node::file("f", 1, 5000), Node::file("same", 3, 3000)]).plant(&scratch.src());
    Tree::of([Node::file("f", 2, 5000), Node::file("same", 3, 3000)]).plant(&scratch.dst());
}

#[test]
fn checksum_finds_what_size_and_time_hide() {
    for via in Via::EACH {
        let (scratch, sshd) = (Scratch::new(), Sshd::shared());
        plant_lookalikes(&scratch);
        let run = |options: &[&str]| {
            let run = sshd.run(via).args(["-a", "--stats"]).args(options).arg(slash(&scratch.src()));
            run.arg(sshd.operand(scratch.dst())).run().expect_code(0)
        };
        assert_eq!(run(&[]).stat("Number of regular files transferred"), 0);
        assert_eq!(run(&["-c"]).stat("Number of regular files transferred"), 1);
        assert_same(&scratch.src(), &scratch.dst(), Scope::full());
        assert_eq!(run(&["-c"]).stat("Number of regular files transferred"), 0);
    }
}

#[test]
fn comparison_options_mean_what_they_mean_to_rsync() {
    for options in [
        &["-a", "-c"][..],
        &["-a", "-I"],
        &["-a", "--size-only"],
        &["-a", "-u"],
        &["-a", "--existing"],
        &["-a", "--ignore-existing"],
        &["-a", "-W"],
        &["-a", "-O"],
        &["-rlt"],
        &["-r"],
        // Without owners dsync keeps no setuid bit (docs/from-rsync.md).
        &["-rlptD", "--chmod=Fu-s"],
        &["-a", "--no-perms"],
        &["-a", "--no-t"],
        &["-a", "--no-links"],
    ] {
        let scratch = Scratch::new();
        Tree::sample().plant(&scratch.src());
        Tree::of([Node::file("same size", 4, 44), Node { mtime: (1, 0), ..Node::file("older here", 6, 60) }])
            .plant(&scratch.src());
        for dst in ["dst", "rsync"] {
            Tree::of([
                Node::file("plain", 1, 10_000),
                Node { mtime: (9, 0), ..Node::file("same size", 5, 44) },
                Node { mtime: (2_000_000_000, 0), ..Node::file("older here", 7, 61) },
                Node { mode: 0o640, ..Node::file("empty", 2, 0) },
            ])
            .plant(&scratch.at(dst));
        }
        let (dsync, rsync) = (Run::dsync(), Run::of("rsync"));
        let results = [(dsync, "dst"), (rsync, "rsync")].map(|(program, dst)| {
            program
                .args(options)
                .arg("-i")
                .arg(slash(&scratch.src()))
                .arg(scratch.at(dst))
                .run()
                .expect_code(0)
        });
        assert_eq!(lines(&results[0]), lines(&results[1]), "{options:?}: another plan than rsync's");
        // Times that are not preserved become those of the run, which cannot be the same in both.
        let times = !(options.contains(&"-r") || options.contains(&"--no-t"));
        let scope = Scope { times, dir_times: times && !options.contains(&"-O"), ..Scope::full() };
        let scope = Scope { times: scope.times && !options.contains(&"-rlt"), ..scope };
        assert_same(&scratch.at("rsync"), &scratch.dst(), scope);
    }
}

#[test]
fn nanoseconds_survive() {
    let scratch = Scratch::new();
    Tree::of([Node::file("f", 1, 5)]).plant(&scratch.src());
    tree::set_mtime(&scratch.src().join("f"), (1_234_567_890, 999_999_999));
    let _ = itemized(&scratch.src(), &scratch.dst(), &["-a"]);
    assert_same(&scratch.src(), &scratch.dst(), Scope::full());
    assert!(fs::metadata(scratch.dst().join("f")).is_ok());
}
