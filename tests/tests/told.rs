//! The lines of a run: of what was done, in the order of the listing, in each direction.

use std::fs;

use dsync_tests::{
    Node, Outcome, Run, Scratch, Sshd, Tree, Via, mount::Mount, needs_dsync, scratch::slash, strace,
};

fn plant(scratch: &Scratch) {
    Tree::of([
        Node::dir("dir"),
        Node::file("dir/a", 1, 4000),
        Node::file("b", 2, 300_000),
        Node::symlink("link", "b"),
        Node::dir("new"),
        Node::file("new/c", 3, 30),
    ])
    .plant(&scratch.src());
    Tree::of([Node::dir("dir"), Node::file("dir/a", 4, 5000), Node::file("extra", 6, 60)])
        .plant(&scratch.dst());
}

/// Returns the names of a list of `%n`, and those of the log.
fn names(outcome: &Outcome, scratch: &Scratch) -> (Vec<String>, Vec<String>) {
    let log = fs::read_to_string(scratch.at("log")).unwrap();
    let logged = log.lines().filter_map(|line| line.split_once("] + ")).map(|(_, name)| name.to_owned());
    let told = outcome.stdout_text();
    // As with rsync only a format with %i or %o is that of deletions, too.
    let name = |line: &str| line.strip_prefix("+ ").or(line.strip_prefix("deleting ")).map(str::to_owned);
    let told = told.lines().filter_map(name);
    (told.collect(), logged.collect())
}

fn with_lists(run: Run, scratch: &Scratch) -> Run {
    let run = run.args(["-ai", "--out-format=+ %n", "--log-file-format=+ %n", "--log-file"]);
    run.arg(scratch.at("log"))
}

#[test]
fn what_fails_is_in_no_list() {
    needs_dsync!();
    for (calls, what, fails) in [
        ("renameat,renameat2", "error=EACCES", &["b", "dir/a", "link", "new/c"][..]),
        ("symlinkat", "error=EPERM", &["link"]),
        ("mkdirat", "error=EPERM", &["new/", "new/c"]),
        ("unlinkat", "error=EPERM", &["extra"]),
    ] {
        let scratch = Scratch::new();
        plant(&scratch);
        let run = with_lists(strace::inject(calls, what), &scratch);
        let outcome = run.arg("--delete").arg(slash(&scratch.src())).arg(scratch.dst()).run();
        assert_eq!(outcome.code(), Some(23), "{calls}\n{}", outcome.account());
        let (told, logged) = names(&outcome, &scratch);
        // The directories that were there are listed or not as their times are.
        let is_named = |name: &str| !["dir/", "./"].contains(&name);
        let all = ["b", "dir/a", "link", "new/", "new/c", "extra"];
        let expected: Vec<_> = all.into_iter().filter(|name| !fails.contains(name)).collect();
        let sorted = |mut names: Vec<String>| {
            names.retain(|name| is_named(name));
            names.sort();
            names
        };
        let mut expected: Vec<_> = expected.into_iter().map(str::to_owned).collect();
        expected.sort();
        let told = sorted(told);
        assert_eq!(told, expected, "{calls}\n{}", outcome.account());
        expected.retain(|name| name != "extra");
        assert_eq!(sorted(logged), expected, "{calls}");
    }
}

#[test]
fn what_a_run_did_not_come_to_is_in_no_list() {
    needs_dsync!();
    let scratch = Scratch::new();
    Tree::of([Node::file("a", 1, 4000), Node::file("large", 2, 3 << 20)]).plant(&scratch.src());
    fs::create_dir(scratch.dst()).unwrap();
    let Some(_disk) = Mount::tmpfs(&scratch.dst(), "size=1m") else { return };
    let run = with_lists(Run::dsync(), &scratch);
    let outcome = run.arg(slash(&scratch.src())).arg(scratch.dst()).run().expect_code(11);
    let (told, logged) = names(&outcome, &scratch);
    assert!(!told.contains(&"large".to_owned()), "{}", outcome.account());
    assert_eq!(told, logged);
    for name in told.iter().filter(|name| *name != "./") {
        assert!(scratch.dst().join(name).exists(), "{name}\n{}", outcome.account());
    }
}

#[test]
fn lists_are_the_same_in_every_direction_and_as_planned() {
    needs_dsync!();
    let format = "--out-format=%i %n%L %l %B %M %U %G %'b";
    let sent = |line: &str| line.rsplit_once(' ').map(|(_, sent)| sent.to_owned());
    let mut first: Option<Vec<String>> = None;
    for direction in ["local", "push", "pull"] {
        for dry in [true, false] {
            let (scratch, sshd) = (Scratch::new(), Sshd::shared());
            plant(&scratch);
            fs::hard_link(scratch.src().join("b"), scratch.src().join("linked")).unwrap();
            fs::hard_link(scratch.dst().join("extra"), scratch.dst().join("extra 2")).unwrap();
            // The roots' times are in the lists, and differ.
            for (dir, seconds) in [(scratch.src(), 1_000_000_100), (scratch.dst(), 1_000_000_200)] {
                dsync_tests::tree::set_mode(&dir, 0o755);
                dsync_tests::tree::set_mtime(&dir, (seconds, 0));
            }
            let (source, target) = (slash(&scratch.src()), scratch.dst());
            let run = if direction == "local" { Run::dsync() } else { sshd.run(Via::Tls) };
            let run = run.env("TZ", "UTC-05:30").args(["-aH", "--delete", format]).args(dry.then_some("-n"));
            let run = match direction {
                "push" => run.arg(source).arg(sshd.operand(target)),
                "pull" => run.arg(sshd.operand(source)).arg(target),
                _ => run.arg(source).arg(target),
            };
            let outcome = run.run().expect_code(0);
            let told = outcome.stdout_text();
            let mut lines: Vec<String> = told.lines().map(|line| line.replacen('<', ">", 1)).collect();
            let is_file = |line: &String| line.starts_with('>');
            for line in lines.iter().filter(|line| is_file(line)) {
                let size = line.split(' ').nth(2).unwrap_or_default();
                let sent = sent(line).unwrap_or_default().replace(',', "");
                assert_eq!(if dry { "0" } else { size }, sent, "{line}\n{}", outcome.account());
            }
            // Links are made when all files have arrived.
            lines.sort();
            let lines: Vec<String> =
                lines.into_iter().filter_map(|line| Some(line.rsplit_once(' ')?.0.to_owned())).collect();
            assert!(lines.iter().any(|line| line.starts_with("hf")), "{}", outcome.account());
            assert_eq!(*first.get_or_insert_with(|| lines.clone()), lines, "{}", outcome.account());
        }
    }
}

#[test]
fn what_options_leave_alone_is_told_as_by_rsync() {
    needs_dsync!();
    for options in [
        &["-avvu"][..],
        &["-avv", "--ignore-existing"],
        &["-avv", "--existing"],
        &["-avv", "--max-size=2000", "--min-size=10"],
        &["-au", "--info=skip"],
        &["-avvu", "--info=skip0"],
        &["-avvun"],
    ] {
        let told = |program: Run| {
            let scratch = Scratch::new();
            plant(&scratch);
            fs::write(scratch.src().join("small"), "x").unwrap();
            fs::write(scratch.dst().join("small"), "xy").unwrap();
            let later = std::time::SystemTime::now() + std::time::Duration::from_secs(90_000);
            fs::File::open(scratch.dst().join("small")).unwrap().set_modified(later).unwrap();
            let run = program.args(options).arg(slash(&scratch.src())).arg(scratch.dst());
            let outcome = run.run().expect_code(0);
            let is_told = |line: &&str| {
                let ends = [" is newer", " exists", " is over max-size", " is under min-size"];
                line.starts_with("not creating new ") || ends.iter().any(|end| line.ends_with(end))
            };
            let text = outcome.stdout_text();
            let mut lines: Vec<String> = text.lines().filter(is_told).map(str::to_owned).collect();
            lines.sort();
            (lines, outcome)
        };
        let ((ours, dsync), (theirs, rsync)) = (told(Run::dsync()), told(Run::of("rsync")));
        assert_eq!(ours, theirs, "{options:?}\n{}\n{}", dsync.account(), rsync.account());
        assert_eq!(ours.is_empty(), options.contains(&"--info=skip0"), "{}", dsync.account());
    }
}

#[test]
fn debug_says_ports_carrier_and_why() {
    needs_dsync!();
    let (scratch, sshd) = (Scratch::new(), Sshd::shared());
    plant(&scratch);
    let run = |flags: &str| {
        let run = sshd.run(Via::Tls).args(["-a", flags]).arg(slash(&scratch.src()));
        run.arg(sshd.operand(scratch.dst())).run().expect_code(0).stderr_text()
    };
    let files = run("--debug=recv,connect0");
    assert!(files.contains("path=b") && files.contains("not there"), "{files}");
    assert!(!files.contains("carrier"), "{files}");
    let connection = run("--debug=CONNECT2");
    assert!(connection.contains("carrier=tls") && connection.contains("tcp="), "{connection}");
    assert!(!connection.contains("path=b"), "{connection}");
    assert_eq!(run("--debug=none"), "");
}
