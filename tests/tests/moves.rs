//! Moves: files leave the source once they are durable at the destination, and requested entries
//! that the source does not have leave the destination.

use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
};

use dsync_tests::{
    Node, Run, Scope, Scratch, Sshd, Tree, Via, assert_same, assert_unchanged, compare, differences,
    needs_dsync, oracle, program,
    run::{catch, until_met},
    scratch::slash,
    strace, survey,
    tree::{noise, set_mode},
};
use rustix::process::Signal;

fn plant(at: &Path) {
    Tree::of([
        Node::file("new", 1, 3000),
        Node::file("changed", 2, 5000),
        Node::file("same", 3, 300),
        Node::file("other mode", 4, 40),
        Node::symlink("link", "new"),
        Node::symlink("same link", "x"),
        Node::new("pipe", dsync_tests::Kind::Fifo),
        Node::dir("sub"),
        Node::file("sub/large", 5, 9 << 20),
        Node::dir("empty"),
        Node::file("left out.o", 6, 6),
        Node::file("older", 7, 7),
    ])
    .plant(&at.join("src"));
    fs::hard_link(at.join("src/new"), at.join("src/new too")).unwrap();
    Tree::of([
        Node { mtime: (1_200_000_000, 0), ..Node::file("changed", 9, 5000) },
        Node::file("same", 3, 300),
        Node { mode: 0o600, ..Node::file("other mode", 4, 40) },
        Node::symlink("same link", "x"),
        Node { mtime: (1_900_000_000, 0), ..Node::file("older", 8, 8) },
    ])
    .plant(&at.join("dst"));
}

#[test]
fn files_leave_the_source_as_with_rsync() {
    for options in [
        &["-a", "--remove-source-files"][..],
        &["-aH", "--remove-source-files", "--exclude=*.o"],
        &["-au", "--remove-source-files"],
        &["-a", "--ignore-existing", "--remove-source-files"],
        &["-a", "--existing", "--remove-source-files"],
        &["-an", "--remove-source-files"],
        &["-r", "--remove-source-files"],
        &["-a", "--remove-source-files", "--max-size=1m"],
    ] {
        let scratch = Scratch::new();
        for (program, at) in [("rsync", "theirs"), ("", "ours")] {
            let at = scratch.at(at);
            fs::create_dir(&at).unwrap();
            plant(&at);
            let run = if program.is_empty() { Run::dsync() } else { Run::of(program) };
            let _ = run.args(options).args(["src/", "dst/"]).cwd(&at).run().expect_code(0);
        }
        let scope = if options[0] == "-r" { Scope::CONTENT } else { Scope::full() };
        let scope = Scope { dir_times: false, root: false, ..scope };
        let found = differences(&scratch.at("theirs"), &scratch.at("ours"), scope);
        assert!(found.is_empty(), "{options:?}: {found:?}");
    }
}

#[test]
fn files_leave_the_source_over_the_wire_in_both_directions() {
    let sshd = Sshd::shared();
    for (via, push) in [(Via::Quic, true), (Via::Ssh, true), (Via::Tls, false), (Via::Ssh, false)] {
        let scratch = Scratch::new();
        plant(scratch.path());
        let whole = Scratch::new();
        plant(whole.path());
        let run = sshd.run(via).args(["-aH", "--remove-source-files"]);
        let (src, dst) = (slash(&scratch.src()), slash(&scratch.dst()));
        let run =
            if push { run.arg(src).arg(sshd.operand(dst)) } else { run.arg(sshd.operand(src)).arg(dst) };
        let _ = run.run().expect_quiet_success();
        assert_same(&whole.src(), &scratch.dst(), Scope { dir_times: false, root: false, ..Scope::full() });
        let left: Vec<String> = survey(&scratch.src()).keys().map(|path| compare::show(path)).collect();
        assert_eq!(left, ["(root)", "'empty'", "'sub'"], "{via:?}");
    }
}

#[test]
fn only_what_was_sent_leaves_the_source_as_with_rsync() {
    for options in [
        &["-a"][..],
        &["-ac"],
        &["-au"],
        &["-aI"],
        &["-a", "--inplace"],
        &["-a", "--delay-updates"],
        &["-a", "--ignore-existing"],
        &["-a", "--existing"],
        &["-an"],
        &["-r"],
        &["-a", "--exclude=*.o", "--max-size=1m"],
        &["-a", "--link-dest=../had"],
        &["-a", "--link-dest=../had", "--delay-updates"],
        &["-a", "--copy-dest=../had"],
        &["-a", "--copy-dest=../had", "--delay-updates"],
        &["-a", "--compare-dest=../had"],
        &["-a", "-b", "--suffix=.old"],
        &["-a", "--remove-source-files"],
        &["-aR", "--files-from=../names"],
    ] {
        let scratch = Scratch::new();
        fs::write(scratch.at("names"), "new\nsame\nsub/large\nlink\n").unwrap();
        for (program, at) in [("rsync", "theirs"), ("", "ours")] {
            let at = scratch.at(at);
            fs::create_dir(&at).unwrap();
            plant(&at);
            fs::remove_file(at.join("src/new too")).unwrap();
            // Of the alternate directory: equal, of other times, and a link of the same text.
            Tree::of([
                Node::file("new", 1, 3000),
                Node::dir("sub"),
                Node { mtime: (1_200_000_000, 0), ..Node::file("sub/large", 5, 9 << 20) },
                Node::symlink("link", "new"),
            ])
            .plant(&at.join("had"));
            let run = if program.is_empty() { Run::dsync() } else { Run::of(program) };
            // Of the two options the later counts.
            let (before, after): (Vec<&str>, Vec<&str>) =
                options.iter().partition(|option| **option == "--remove-source-files");
            let run = run.args(before).arg("--remove-sent-files").args(after);
            let _ = run.args(["src/", "dst/"]).cwd(&at).run().expect_code(0);
        }
        let scope = if options[0] == "-r" { Scope::CONTENT } else { Scope::full() };
        let scope = Scope { dir_times: false, root: false, ..scope };
        let found = differences(&scratch.at("theirs"), &scratch.at("ours"), scope);
        assert!(found.is_empty(), "{options:?}: {found:?}");
    }
}

#[test]
fn only_what_was_sent_leaves_the_source_over_the_wire_in_both_directions() {
    let sshd = Sshd::shared();
    for (via, push) in [(Via::Quic, true), (Via::Ssh, true), (Via::Tls, false), (Via::Ssh, false)] {
        let scratch = Scratch::new();
        plant(scratch.path());
        let run = sshd.run(via).args(["-aH", "--remove-sent-files"]);
        let (src, dst) = (slash(&scratch.src()), slash(&scratch.dst()));
        let run =
            if push { run.arg(src).arg(sshd.operand(dst)) } else { run.arg(sshd.operand(src)).arg(dst) };
        let _ = run.run().expect_quiet_success();

        // One of the two names of a file was sent, and the other linked to it.
        let mut left: Vec<String> = survey(&scratch.src()).keys().map(|path| compare::show(path)).collect();
        let names = ["'new'".to_owned(), "'new too'".to_owned()];
        assert_eq!(left.iter().filter(|name| names.contains(name)).count(), 1, "{via:?}: {left:?}");
        left.retain(|name| !names.contains(name));
        let stay = ["(root)", "'empty'", "'other mode'", "'pipe'", "'same'", "'same link'", "'sub'"];
        assert_eq!(left, stay, "{via:?}");
        assert!(scratch.dst().join("new").exists() && scratch.dst().join("new too").exists());
    }
}

#[test]
fn a_file_that_has_changed_since_it_was_listed_stays() {
    needs_dsync!();
    let (scratch, sshd) = (Scratch::new(), Sshd::shared());
    let changed = noise(99, 3 << 20);
    let outcome = until_met(|| {
        let _ = fs::remove_dir_all(scratch.dst());
        fs::create_dir(scratch.dst()).unwrap();
        Tree::of([Node::file("a", 1, 3 << 20), Node::file("b", 2, 100), Node::file("c", 3, 100)])
            .plant(&scratch.src());
        // Everything is listed before the first bytes arrive, and the slow file keeps the run from
        // ending.
        let run = sshd.run(Via::Ssh).args(["-a", "--remove-source-files", "--bwlimit=1m"]);
        let running = run.arg(slash(&scratch.src())).arg(sshd.operand(scratch.dst())).start();
        // Stopped when it is listed but has not arrived.
        let caught = catch(running.id(), || {
            fs::read_dir(scratch.dst()).unwrap().next().is_some() && !scratch.dst().join("a").exists()
        });
        if caught {
            fs::write(scratch.src().join("a"), &changed).unwrap();
            running.signal(Signal::CONT);
        }
        let outcome = running.wait();
        caught.then_some(outcome)
    });
    let outcome = outcome.expect_code(24);
    assert!(outcome.stderr_text().contains("it stays"), "{}", outcome.account());
    assert_eq!(fs::read(scratch.src().join("a")).unwrap(), changed);
    assert!(!scratch.src().join("b").exists() && !scratch.src().join("c").exists());
    // The next run moves it, with its present content.
    let run = sshd.run(Via::Ssh).args(["-a", "--remove-source-files"]);
    let _ = run.arg(slash(&scratch.src())).arg(sshd.operand(scratch.dst())).run().expect_code(0);
    assert_eq!(fs::read(scratch.dst().join("a")).unwrap(), changed);
    assert!(!scratch.src().join("a").exists());
}

#[test]
fn a_file_that_is_its_own_copy_stays() {
    needs_dsync!();
    let (scratch, sshd) = (Scratch::new(), Sshd::shared());
    Tree::of([Node::file("a", 1, 3000), Node::symlink("link", "a")]).plant(&scratch.src());
    let before = survey(&scratch.src());
    let run = sshd.run(Via::Ssh).args(["-a", "--remove-source-files"]);
    let outcome = run.arg(slash(&scratch.src())).arg(sshd.operand(scratch.src())).run().expect_code(23);
    assert!(outcome.stderr_text().contains("it is the same file as its copy"), "{}", outcome.account());
    assert_unchanged(&before, &scratch.src());
}

#[test]
fn a_file_that_could_not_be_copied_stays() {
    needs_dsync!();
    let scratch = Scratch::new();
    Tree::of([Node::file("a", 1, 3000), Node::file("in the way", 2, 200)]).plant(&scratch.src());
    Tree::of([Node::dir("in the way"), Node::file("in the way/x", 3, 3)]).plant(&scratch.dst());
    let run = Run::dsync().args(["-a", "--remove-source-files"]).arg(slash(&scratch.src()));
    let _ = run.arg(scratch.dst()).run().expect_code(23);
    assert!(scratch.src().join("in the way").exists());
    assert!(!scratch.src().join("a").exists());
}

#[test]
fn nothing_leaves_the_source_before_its_copy_and_the_name_of_it_are_on_the_disk() {
    needs_dsync!();
    for options in [&["-aH"][..], &["-aH", "--durability=file"]] {
        let scratch = Scratch::new();
        plant(scratch.path());
        let traced = "renameat,renameat2,linkat,symlinkat,mknodat,fchmod,fchmodat,utimensat,syncfs,unlinkat";
        let (outcome, calls) = strace::watch(traced, &scratch.at("trace"), |run| {
            run.args(options).arg("--remove-source-files").args(["src/", "dst/"]).cwd(scratch.path())
        });
        let _ = outcome.expect_code(0);
        let names = [
            "\"new\"",
            "\"changed\"",
            "\"same\"",
            "\"other mode\"",
            "\"link\"",
            "\"same link\"",
            "\"large\"",
        ];
        for name in names {
            let removed = calls.iter().position(|call| call.starts_with("unlinkat") && call.contains(name));
            let removed = removed.unwrap_or_else(|| panic!("{name} was not removed"));
            let last = calls[..removed].iter().rposition(|call| changes(call, name)).unwrap_or(0);
            let synced = calls[last..removed].iter().any(|call| call.starts_with("syncfs"));
            assert!(synced, "{name} was removed before a sync: {calls:#?}");
        }
    }
}

/// Returns whether a call makes or changes the entry of this name. In a call that makes a link, the
/// link's source or text comes first.
fn changes(call: &str, name: &str) -> bool {
    let from = call.starts_with("linkat") || call.starts_with("symlinkat");
    let named = if from { call.split_once("\", ").map_or(call, |(_, rest)| rest) } else { call };
    !call.starts_with("unlinkat") && named.contains(name)
}

/// Plants three files with two names each, and one that takes a while.
fn plant_groups(root: &Path) {
    for (seed, name) in ["1", "2", "3"].into_iter().enumerate() {
        Tree::of([Node::file(format!("a{name}"), seed as u64, 300_000)]).plant(root);
        fs::hard_link(root.join(format!("a{name}")), root.join(format!("b{name}"))).unwrap();
    }
    Tree::of([Node::file("z", 9, 2 << 20)]).plant(root);
}

/// Asserts that everything was moved, and that the names of a file are one file.
fn assert_groups_moved(scratch: &Scratch, what: &str) {
    plant_groups(&scratch.at("whole"));
    let scope = Scope { dir_times: false, root: false, links: true, ..Scope::full() };
    let found = differences(&scratch.at("whole"), &scratch.dst(), scope);
    assert!(found.is_empty(), "{found:#?}\n{what}");
    assert_eq!(survey(&scratch.src()).len(), 1, "something is left at the source\n{what}");
}

#[test]
fn names_of_one_file_stay_one_file_wherever_a_move_is_interrupted() {
    needs_dsync!();
    for (calls, counts, signal) in [
        ("unlinkat", &[2, 4, 6][..], "KILL"),
        ("unlinkat", &[2, 4], "INT"),
        ("linkat", &[1, 2, 3], "KILL"),
        ("renameat,renameat2", &[2, 4], "KILL"),
    ] {
        for when in counts {
            let scratch = Scratch::new();
            plant_groups(&scratch.src());
            let moving = |run: Run| {
                let run = run.args(["-aH", "--remove-source-files", "--bwlimit=3m"]);
                run.args(["src/", "dst/"]).cwd(scratch.path()).run()
            };
            let broken = moving(strace::inject(calls, &format!("signal={signal}:when={when}")));
            let _ = moving(Run::dsync().arg("--allow-empty-source")).expect_code(0);
            assert_groups_moved(&scratch, &format!("{signal} at {calls} {when}\n{}", broken.account()));
        }
    }
}

/// Makes a program for the far end whose first process is killed at its `when`-th call of these.
fn killed_once(scratch: &Scratch, calls: &str, when: u32) -> PathBuf {
    let (script, once) = (scratch.at("far"), scratch.at("once"));
    let program = program().display().to_string();
    let strace =
        format!("strace -f -qq -o /dev/null -e trace={calls} -e inject={calls}:signal=KILL:when={when}");
    let text = format!(
        "#!/bin/sh\nmkdir {} 2>/dev/null || exec {program} \"$@\"\nexec {strace} {program} \"$@\"\n",
        once.display()
    );
    fs::write(&script, text).unwrap();
    set_mode(&script, 0o755);
    script
}

#[test]
fn names_of_one_file_stay_one_file_when_a_move_loses_its_connection() {
    needs_dsync!();
    let sshd = Sshd::shared();
    for (pulls, calls, when) in [(false, "linkat", 1), (true, "unlinkat", 2), (true, "unlinkat", 4)] {
        let scratch = Scratch::new();
        plant_groups(&scratch.src());
        let run = sshd.run_serving(Via::Ssh, &killed_once(&scratch, calls, when));
        let run = run.args(["-aH", "--remove-source-files", "--allow-empty-source", "--bwlimit=3m"]);
        let (src, dst) = (slash(&scratch.src()), slash(&scratch.dst()));
        let run =
            if pulls { run.arg(sshd.operand(src)).arg(dst) } else { run.arg(src).arg(sshd.operand(dst)) };
        let outcome = run.run().expect_code(0);
        let what = format!("{pulls}: the far end ended at {calls} {when}\n{}", outcome.account());
        assert!(scratch.at("once").exists(), "{what}");
        assert_groups_moved(&scratch, &what);
    }
}

#[test]
fn missing_operands_go_at_the_destination_as_with_rsync() {
    for options in [
        &["--delete-missing-args"][..],
        &["-r", "--delete-missing-args", "--force"],
        &["-a", "--delete-missing-args", "-n"],
        &["-a", "--delete-missing-args", "--exclude=gone"],
        &["-a", "--ignore-missing-args"],
    ] {
        // Older ones end with 2 ("invalid file mode 00"), whatever is missing.
        if options.contains(&"--delete-missing-args") && !oracle::is_since((3, 4, 0)) {
            continue;
        }
        let scratch = Scratch::new();
        let mut listed = Vec::new();
        for (program, at) in [("rsync", "theirs"), ("", "ours")] {
            let at = scratch.at(at);
            Tree::of([Node::file("a", 1, 10), Node::file("elsewhere", 1, 10)]).plant(&at.join("src"));
            let old = |name: &str| Node::file(name, 9, 9);
            Tree::of([
                old("a"),
                old("gone"),
                old("kept"),
                Node::dir("empty"),
                Node::dir("full"),
                old("full/x"),
            ])
            .plant(&at.join("dst"));
            let run = if program.is_empty() { Run::dsync() } else { Run::of(program) };
            let operands = ["src/a", "src/gone", "src/empty", "src/nowhere", "dst/"];
            let force = options.contains(&"--force").then_some("src/full");
            let outcome =
                run.arg("-i").args(options).args(force).args(operands).cwd(&at).run().expect_code(0);
            let mut lines: Vec<String> = outcome.stdout_text().lines().map(str::to_owned).collect();
            lines.sort();
            listed.push(lines);
        }
        assert_eq!(listed[0], listed[1], "{options:?}");
        let scope = Scope { dir_times: false, root: false, ..Scope::CONTENT };
        assert_same(&scratch.at("theirs/dst"), &scratch.at("ours/dst"), scope);
    }
}

#[test]
fn a_missing_operand_takes_no_full_directory_and_nothing_where_its_own_directory_is_missing() {
    needs_dsync!();
    let (scratch, sshd) = (Scratch::new(), Sshd::shared());
    Tree::of([Node::dir("full"), Node::file("full/x", 1, 1), Node::file("file", 1, 1)]).plant(&scratch.dst());
    for remote in [false, true] {
        let run = |operand: &str, to: &Path| {
            let run = if remote { sshd.run(Via::Ssh) } else { Run::dsync() };
            let run = run.args(["-a", "--delete-missing-args"]);
            let to = if remote { sshd.operand(to) } else { to.as_os_str().to_owned() };
            run.arg(scratch.path().join(operand)).arg(to).run()
        };
        let outcome = run("src/full", &scratch.dst()).expect_code(23);
        assert!(outcome.stderr_text().contains("not empty"), "{}", outcome.account());
        let _ = run("not mounted/file", &scratch.dst()).expect_code(0);
        assert!(scratch.dst().join("full/x").exists() && scratch.dst().join("file").exists());
        // By its other name, as a single file may have one.
        fs::write(scratch.dst().join("renamed"), "x").unwrap();
        let _ = run("src/file", &scratch.dst().join("renamed")).expect_code(0);
        assert!(!scratch.dst().join("renamed").exists() && scratch.dst().join("file").exists());
        // A link goes itself, wherever it leads.
        for to in ["nowhere", "file"] {
            symlink(to, scratch.dst().join("link")).unwrap();
            let _ = run("src/file", &scratch.dst().join("link")).expect_code(0);
            assert!(fs::symlink_metadata(scratch.dst().join("link")).is_err(), "{to}");
        }
        assert!(scratch.dst().join("file").exists());
    }
}

#[test]
fn what_would_lose_files_is_refused() {
    needs_dsync!();
    for other in ["--delete", "--delete-missing-args", "--durability=none"] {
        let outcome =
            Run::dsync().args(["-a", "--remove-source-files", other, "a", "b"]).run().expect_code(1);
        let text = format!("'--remove-source-files' cannot be combined with '{other}'");
        assert!(outcome.stderr_text().contains(&text), "{}", outcome.account());
    }
}

#[test]
fn file_that_was_moved_under_another_name_needs_nothing_the_second_time() {
    needs_dsync!();
    let scratch = Scratch::new();
    Tree::of([Node::file("f", 1, 10)]).plant(&scratch.src());
    fs::create_dir(scratch.dst()).unwrap();
    for _ in 0..2 {
        let run = Run::dsync().args(["-a", "--remove-source-files", "--ignore-missing-args"]);
        let _ = run.arg(scratch.src().join("f")).arg(scratch.dst().join("new")).run().expect_quiet_success();
        assert_eq!(fs::metadata(scratch.dst().join("new")).expect("the file").len(), 10);
    }
}
