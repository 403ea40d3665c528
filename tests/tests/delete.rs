//! Deletion: never more than requested, never from a directory that was not read completely.

use std::{fs, os::unix::fs::symlink};

use dsync_tests::{
    Node, Outcome, Run, Scope, Scratch, Sshd, Tree, Via, assert_same, is_stand_in, mount::Mount, needs_dsync,
    oracle, scratch::slash, survey,
};

fn plant(scratch: &Scratch, destinations: &[&str]) {
    Tree::of([
        Node::dir("both"),
        Node::file("both/kept", 1, 10),
        Node::file("new", 2, 20),
        Node::file("log.o", 2, 20),
        Node::dir("skipped"),
        Node::file("skipped/s", 3, 30),
    ])
    .plant(&scratch.src());
    for destination in destinations {
        Tree::of([
            Node::dir("both"),
            Node::file("both/kept", 1, 10),
            Node::file("both/gone", 4, 40),
            Node::dir("both/gone dir"),
            Node::dir("both/gone dir/deep"),
            Node::file("both/gone dir/deep/x", 4, 4),
            Node::symlink("gone link", "both"),
            Node::file("excluded.o", 5, 50),
            Node::dir("only excluded in it"),
            Node::file("only excluded in it/y.o", 5, 50),
            Node::dir("skipped"),
            Node::file("skipped/other", 6, 60),
        ])
        .plant(&scratch.at(destination));
    }
}

/// Returns the itemized changes, sorted. rsync also prints a notice for a directory that keeps
/// something excluded. dsync keeps it silently, as `--delete` without `--delete-excluded` requests.
fn lines(outcome: &Outcome) -> Vec<String> {
    let text = outcome.stdout_text();
    let itemized = text.lines().filter(|line| !line.starts_with("cannot delete non-empty directory"));
    let mut lines: Vec<String> = itemized.map(str::to_owned).collect();
    lines.sort();
    lines
}

#[test]
fn deletes_what_rsync_deletes() {
    for options in [
        &["--delete"][..],
        &["--delete", "--exclude=*.o"],
        &["--delete", "--delete-excluded", "--exclude=*.o"],
        &["--delete", "--exclude=/skipped/"],
        &["--delete", "--exclude=/skipped/", "--delete-excluded"],
        &["--delete", "--include=both/", "--include=both/**", "--exclude=*"],
        &["--delete", "--existing"],
        &["--delete", "--ignore-existing"],
        &["--del"],
        &["--delete-during", "--exclude=*.o"],
        &["--delete-delay"],
        &["--delete-before"],
        &["--delete-before", "--exclude=*.o"],
        &["--delete-before", "--delete-excluded", "--exclude=*.o"],
        &["--delete-before", "--existing"],
        &["--delete-after", "--delete-excluded", "--exclude=*.o"],
        &["--exclude=*.o"],
    ] {
        let scratch = Scratch::new();
        plant(&scratch, &["dst", "rsync"]);
        let results = [(Run::dsync(), "dst"), (Run::of("rsync"), "rsync")].map(|(program, destination)| {
            let run = program.arg("-ai").args(options).arg(slash(&scratch.src()));
            run.arg(scratch.at(destination)).run()
        });
        let scope = Scope { dir_times: false, ..Scope::full() };
        let found = dsync_tests::differences(&scratch.at("rsync"), &scratch.dst(), scope);
        assert!(
            found.is_empty(),
            "{options:?}: {found:?}\n{}\n{}",
            results[0].account(),
            results[1].account()
        );
        assert_eq!(results[0].code(), results[1].code(), "{options:?}");
        assert_eq!(lines(&results[0]), lines(&results[1]), "{options:?}");
    }
}

#[test]
fn deletes_over_the_wire_in_both_directions() {
    for (via, push) in [(Via::Quic, true), (Via::Ssh, true), (Via::Quic, false), (Via::Ssh, false)] {
        let (scratch, sshd) = (Scratch::new(), Sshd::shared());
        plant(&scratch, &["dst"]);
        let run = sshd.run(via).args(["-a", "--delete"]);
        let run = if push {
            run.arg(slash(&scratch.src())).arg(sshd.operand(scratch.dst()))
        } else {
            run.arg(sshd.operand(slash(&scratch.src()))).arg(scratch.dst())
        };
        let _ = run.run().expect_quiet_success();
        assert_same(&scratch.src(), &scratch.dst(), Scope::full());
    }
}

#[test]
fn deleting_before_makes_room_for_what_comes() {
    let (scratch, sshd) = (Scratch::new(), Sshd::shared());
    Tree::of([Node::dir("a"), Node::file("a/new", 1, 700 << 10)]).plant(&scratch.src());
    fs::create_dir(scratch.dst()).unwrap();
    let Some(disk) = Mount::tmpfs(&scratch.dst(), "size=1m") else { return };
    for remote in [false, true] {
        let _ = fs::remove_dir_all(disk.path().join("a"));
        Tree::of([Node::dir("z"), Node::file("z/old", 2, 700 << 10)]).plant(disk.path());
        let run = |option: &str| {
            let run = if remote { sshd.run(Via::Ssh) } else { Run::dsync() };
            let run = run.args(["-ai", option]).arg(slash(&scratch.src()));
            if remote { run.arg(sshd.operand(disk.path())).run() } else { run.arg(disk.path()).run() }
        };
        let _ = run("--delete-after").expect_code(11);
        assert!(disk.path().join("z/old").exists());
        let outcome = run("--delete-before").expect_code(0);
        let told = outcome.stdout_text();
        let at = |end: &str| told.lines().position(|line| line.ends_with(end)).expect("a line of the list");
        assert!(at("*deleting   z/") < at("f+++++++++ a/new"), "{}", outcome.account());
        assert_same(&scratch.src(), disk.path(), Scope { dir_times: false, ..Scope::full() });
    }
}

#[test]
fn deleting_before_keeps_to_the_limit_and_to_dry_runs() {
    needs_dsync!();
    let scratch = Scratch::new();
    plant(&scratch, &["dst"]);
    let run = |options: &[&str]| {
        let run = Run::dsync().args(["-ai", "--delete-before"]).args(options).arg(slash(&scratch.src()));
        run.arg(scratch.dst()).run()
    };
    let promised = run(&["-n"]).expect_code(0);
    assert!(scratch.dst().join("both/gone").exists());
    let _ = run(&["--max-delete=3", "--delete-all-or-nothing"]).expect_code(25);
    assert!(scratch.dst().join("both/gone").exists());
    fs::remove_file(scratch.dst().join("new")).unwrap();
    let kept = run(&["--max-delete=9"]).expect_code(0);
    let deleted = |outcome: &Outcome| {
        lines(outcome).into_iter().filter(|line| line.starts_with("*deleting")).collect::<Vec<_>>()
    };
    assert_eq!(deleted(&promised), deleted(&kept));
    assert_eq!(deleted(&kept).len(), 9);
    assert_same(&scratch.src(), &scratch.dst(), Scope::full());
}

#[test]
fn links_are_deleted_not_followed() {
    let scratch = Scratch::new();
    Tree::of([Node::file("outside", 1, 1)]).plant(&scratch.at("elsewhere"));
    Tree::of([
        Node::symlink("link", "../elsewhere"),
        Node::dir("d"),
        Node::symlink("d/link", "../../elsewhere"),
    ])
    .plant(&scratch.dst());
    let _ = Run::dsync()
        .args(["-a", "--delete"])
        .args((!is_stand_in()).then_some("--allow-empty-source"))
        .arg(slash(&scratch.src()))
        .arg(scratch.dst())
        .run()
        .expect_code(0);
    assert_same(&scratch.src(), &scratch.dst(), Scope::full());
    assert_eq!(survey(&scratch.at("elsewhere")).len(), 2);
}

#[test]
fn deletes_nothing_over_the_limit() {
    needs_dsync!();
    let scratch = Scratch::new();
    plant(&scratch, &["dst"]);
    let run = |limit: &str| {
        let run = Run::dsync().args(["-a", "--delete", "--delete-all-or-nothing"]);
        let run = run.arg(format!("--max-delete={limit}"));
        run.arg(slash(&scratch.src())).arg(scratch.dst()).run()
    };
    let outcome = run("3").expect_code(25);
    assert!(outcome.stderr_text().contains("nothing extraneous was deleted"), "{}", outcome.account());
    assert!(scratch.dst().join("both/gone").exists());
    assert!(scratch.dst().join("new").exists(), "the rest of the run was not carried out");
    // With the 3 files that arrived there are 15 entries, and 9 are to be deleted.
    let _ = run("59%").expect_code(25);
    let outcome = run("0%").expect_code(25);
    assert!(
        outcome.stderr_text().contains("exceed the limit --max-delete=0%; nothing extraneous was deleted"),
        "{}",
        outcome.account()
    );
    assert!(scratch.dst().join("both/gone").exists());
    let _ = run("100").expect_code(0);
    assert_same(&scratch.src(), &scratch.dst(), Scope::full());
}

/// As with rsync so many go, whichever they are, the others stay, and the run says so.
#[test]
fn deletes_as_many_as_the_limit_allows() {
    needs_dsync!();
    for (limit, timing, code) in [
        ("0", "--delete", 25),
        ("-1", "--del", 25),
        ("2", "--delete-before", 25),
        ("4", "--delete", 25),
        ("4", "--del", 25),
        ("9", "--delete-after", 0),
        ("9", "--del", 0),
    ] {
        let run = |program: Run, dry: &str| {
            let scratch = Scratch::new();
            plant(&scratch, &["dst"]);
            let before = survey(&scratch.dst()).len();
            let run = program.args(["-ai", timing, dry]).arg(format!("--max-delete={limit}"));
            let outcome = run.arg(slash(&scratch.src())).arg(scratch.dst()).run().expect_code(code);
            let deleted = lines(&outcome).iter().filter(|line| line.starts_with("*deleting")).count();
            let (arrived, gone) = if dry == "-n" { (0, 0) } else { (3, deleted) };
            assert_eq!(survey(&scratch.dst()).len(), before + arrived - gone, "{}", outcome.account());
            (deleted, outcome)
        };
        for dry in ["-n", "-t"] {
            let ((theirs, rsync), (ours, dsync)) = (run(Run::of("rsync"), dry), run(Run::dsync(), dry));
            assert_eq!(ours, theirs, "{timing}\n{}\n{}", dsync.account(), rsync.account());
            let says = dsync.stderr_text().contains("deletions stopped at the limit --max-delete=");
            assert_eq!(says, code == 25, "{}", dsync.account());
        }
    }
}

/// A directory goes with all that is in it or stays, so no more is removed than the limit says.
#[test]
fn what_is_in_a_directory_that_gives_way_counts() {
    needs_dsync!();
    let plant = |scratch: &Scratch, file: bool| {
        fs::write(scratch.src().join("x"), "file").unwrap();
        if !file {
            fs::remove_file(scratch.src().join("x")).unwrap();
            symlink("target", scratch.src().join("x")).unwrap();
        }
        fs::create_dir_all(scratch.dst().join("x/y")).unwrap();
        for name in ["x/a", "x/y/b", "z"] {
            fs::write(scratch.dst().join(name), name).unwrap();
        }
    };
    let cases: &[(&[&str], i32, &[&str])] = &[
        (&["--delete", "--max-delete=0"], 23, &["x", "x/a", "x/y", "x/y/b", "z"]),
        (&["--delete", "--max-delete=2"], 23, &["x", "x/a", "x/y", "x/y/b"]),
        (&["--delete", "--max-delete=3"], 25, &["x", "z"]),
        (&["--delete", "--max-delete=4"], 0, &["x"]),
        (&["--delete-before", "--max-delete=3"], 23, &["x", "x/a", "x/y", "x/y/b"]),
        (&["--delete-before", "--max-delete=4"], 0, &["x"]),
        (&["--del", "--max-delete=3"], 25, &["x", "z"]),
        (&["--delete", "--delete-all-or-nothing", "--max-delete=2"], 23, &["x", "x/a", "x/y", "x/y/b", "z"]),
        (&["--delete", "--delete-all-or-nothing", "--max-delete=3"], 25, &["x", "z"]),
        (&["--delete", "--delete-all-or-nothing", "--max-delete=4"], 0, &["x"]),
        (&["--force", "--max-delete=2"], 23, &["x", "x/a", "x/y", "x/y/b", "z"]),
        (&["--force", "--max-delete=3"], 0, &["x", "z"]),
        (&["--delete", "--delay-updates", "--max-delete=2"], 23, &["x", "x/a", "x/y", "x/y/b"]),
        // Of a share it is known at the end: then the rest stays.
        (&["--delete", "--max-delete=50%"], 25, &["x", "z"]),
    ];
    for (options, code, left) in cases {
        for (file, way) in [(true, None), (false, None), (true, Some(Via::Tls)), (true, Some(Via::Ssh))] {
            let (scratch, sshd) = (Scratch::new(), Sshd::shared());
            plant(&scratch, file);
            let run = |dry: &str| {
                let run = way.map_or_else(Run::dsync, |way| sshd.run(way)).args(["-ai", dry]).args(*options);
                let to = if way.is_some() { sshd.operand(scratch.dst()) } else { scratch.dst().into() };
                run.arg(slash(&scratch.src())).arg(to).run().expect_code(*code)
            };
            let planned = lines(&run("-n"));
            let outcome = run("-t");
            assert_eq!(lines(&outcome), planned, "{options:?}");
            let now: Vec<_> = survey(&scratch.dst()).into_keys().collect();
            let mut now: Vec<_> = now.into_iter().map(|path| String::from_utf8(path).unwrap()).collect();
            now.retain(|path| !path.is_empty());
            assert_eq!(now, *left, "{options:?} {}", outcome.account());
        }
    }
}

#[test]
fn limit_is_kept_at_the_remote_end() {
    for (push, options, left) in [
        (true, &["--max-delete=4"][..], 6),
        (false, &["--max-delete=4"], 6),
        (true, &["--max-delete=4", "--delete-all-or-nothing"], 10),
        (false, &["--max-delete=40%"], 6),
    ] {
        let (scratch, sshd) = (Scratch::new(), Sshd::shared());
        Tree::of([Node::dir("d"), Node::file("d/kept", 1, 10)]).plant(&scratch.src());
        let files = (0..10).map(|index| Node::file(format!("d/gone{index}"), index, 10));
        Tree::of([Node::dir("d")].into_iter().chain(files)).plant(&scratch.dst());
        let run = sshd.run(Via::Tls).args(["-a", "--delete"]).args(options);
        let run = if push {
            run.arg(slash(&scratch.src())).arg(sshd.operand(scratch.dst()))
        } else {
            run.arg(sshd.operand(slash(&scratch.src()))).arg(scratch.dst())
        };
        let outcome = run.run().expect_code(25);
        let gone = |name: &str| name.starts_with("gone");
        let names = fs::read_dir(scratch.dst().join("d")).unwrap();
        let names = names.filter(|entry| gone(&entry.as_ref().unwrap().file_name().to_string_lossy()));
        assert_eq!(names.count(), left, "{options:?}\n{}", outcome.account());
        assert!(scratch.dst().join("d/kept").exists());
    }
}

#[test]
fn share_of_the_destination_is_a_limit() {
    needs_dsync!();
    for (removed, limit, code) in
        [(30, "30%", 0), (31, "30%", 25), (30, "29%", 25), (1, "1%", 0), (1, "0%", 25)]
    {
        let scratch = Scratch::new();
        let files =
            |count: u64| Tree::of((0..count).map(|index| Node::file(format!("d/f{index:03}"), index, 5)));
        Tree::of([Node::dir("d")]).plant(&scratch.src());
        Tree::of([Node::dir("d")]).plant(&scratch.dst());
        files(99 - removed).plant(&scratch.src());
        files(99).plant(&scratch.dst());
        let run = Run::dsync().args(["-a", "--delete-during", "--delete-all-or-nothing"]);
        let run = run.arg(format!("--max-delete={limit}"));
        let outcome = run.arg(slash(&scratch.src())).arg(scratch.dst()).run().expect_code(code);
        let left = std::fs::read_dir(scratch.dst().join("d")).unwrap().count() as u64;
        assert_eq!(left, if code == 0 { 99 - removed } else { 99 }, "{}", outcome.account());
    }
}

#[test]
fn errors_are_ignored_on_demand_but_not_where_they_were_met() {
    needs_dsync!();
    for options in [&["--delete"][..], &["--delete", "--ignore-errors"], &["--del", "--ignore-errors"]] {
        let scratch = Scratch::new();
        plant(&scratch, &["dst"]);
        let run = Run::dsync().arg("-a").args(options).arg(slash(&scratch.src())).arg(scratch.at("no such"));
        let outcome = run.arg(scratch.dst()).run().expect_code(23);
        let ignores = options.len() > 1;
        assert_eq!(!scratch.dst().join("both/gone").exists(), ignores, "{}", outcome.account());
        // The entries that the missing operand would have brought to the root are unknown.
        assert!(scratch.dst().join("excluded.o").exists(), "{}", outcome.account());
    }
}

#[test]
fn directory_gives_way_by_force_as_with_rsync() {
    for options in [&["-a", "--force"][..], &["-a", "--delete"]] {
        let scratch = Scratch::new();
        Tree::of([Node::file("file", 1, 10), Node::symlink("link", "file"), Node::file("other", 1, 1)])
            .plant(&scratch.src());
        let results = [(Run::dsync(), "dst"), (Run::of("rsync"), "rsync")].map(|(program, destination)| {
            let destination = scratch.at(destination);
            for dir in ["file", "link", "extra"] {
                Tree::of([Node::dir(dir), Node::file(format!("{dir}/full"), 2, 2)]).plant(&destination);
            }
            Tree::of([Node::dir("file/sub"), Node::file("file/sub/kept", 2, 2)]).plant(&destination);
            program.args(options).arg(slash(&scratch.src())).arg(destination).run()
        });
        let scope = Scope { dir_times: false, ..Scope::full() };
        let found = dsync_tests::differences(&scratch.at("rsync"), &scratch.dst(), scope);
        let accounts = (results[0].account(), results[1].account());
        assert!(found.is_empty(), "{options:?}: {found:?}\n{}\n{}", accounts.0, accounts.1);
        assert_eq!(results[0].code(), results[1].code(), "{options:?}\n{}\n{}", accounts.0, accounts.1);
    }
}

#[test]
fn withheld_when_a_source_is_missing() {
    // rsync deletes regardless.
    needs_dsync!();
    let scratch = Scratch::new();
    plant(&scratch, &["dst"]);
    let run = Run::dsync().args(["-a", "--delete"]).arg(slash(&scratch.src())).arg(scratch.at("no such"));
    let outcome = run.arg(scratch.dst()).run().expect_code(23);
    assert!(scratch.dst().join("both/gone").exists(), "{}", outcome.account());
    assert!(scratch.dst().join("new").exists(), "{}", outcome.account());
}

#[test]
fn directory_in_the_way_of_a_file_goes_as_with_rsync() {
    for options in [&["-a"][..], &["-a", "--delete"]] {
        let scratch = Scratch::new();
        Tree::of([Node::file("x", 1, 10), Node::file("y", 1, 10)]).plant(&scratch.src());
        let results = [(Run::dsync(), "dst"), (Run::of("rsync"), "rsync")].map(|(program, destination)| {
            let destination = scratch.at(destination);
            Tree::of([Node::dir("x"), Node::dir("y"), Node::file("y/full", 2, 2)]).plant(&destination);
            program.args(options).arg(slash(&scratch.src())).arg(destination).run()
        });
        let scope = Scope { dir_times: false, ..Scope::full() };
        let found = dsync_tests::differences(&scratch.at("rsync"), &scratch.dst(), scope);
        assert!(
            found.is_empty(),
            "{options:?}: {found:?}\n{}\n{}",
            results[0].account(),
            results[1].account()
        );
        assert_eq!(results[0].code(), results[1].code(), "{options:?}\n{}", results[0].account());
    }
}

#[test]
fn directory_with_something_protected_stays_whole_in_the_way() {
    // rsync removes as much of it as it may, and then cannot use the name either.
    needs_dsync!();
    let scratch = Scratch::new();
    Tree::of([Node::file("file", 1, 10)]).plant(&scratch.src());
    Tree::of([Node::dir("file"), Node::file("file/other", 2, 2), Node::file("file/kept", 2, 2)])
        .plant(&scratch.dst());
    let run = Run::dsync().args(["-a", "--force", "--exclude=kept"]).arg(slash(&scratch.src()));
    let outcome = run.arg(scratch.dst()).run().expect_code(23);
    assert!(
        outcome.stderr_text().contains("a directory that is not empty is in the way"),
        "{}",
        outcome.account()
    );
    assert!(scratch.dst().join("file/other").exists() && scratch.dst().join("file/kept").exists());
}

#[test]
fn directories_without_anything_to_back_up_give_way_beside_backups() {
    needs_dsync!();
    for (within, code) in [(None, 0), (Some("f"), 23)] {
        let scratch = Scratch::new();
        fs::write(scratch.src().join("a"), "new").unwrap();
        let old = scratch.dst().join("a/sub/deep");
        fs::create_dir_all(&old).unwrap();
        if let Some(name) = within {
            fs::write(old.join(name), "old").unwrap();
        }
        let run = |options: &[&str]| {
            let run = Run::dsync().args(["-r", "-b", "-i", "--delete"]).args(options);
            run.arg(slash(&scratch.src())).arg(scratch.dst()).run().expect_code(code)
        };
        let (planned, done) = (run(&["-n"]), run(&[]));
        assert_eq!(planned.stdout_text(), done.stdout_text(), "{within:?}");
        assert_eq!(scratch.dst().join("a").is_file(), within.is_none(), "{within:?}");
        assert_eq!(old.is_dir(), within.is_some(), "{within:?}");
    }
}

#[test]
fn dry_run_foresees_no_change_of_a_directory_that_keeps_all_that_it_has() {
    needs_dsync!();
    let scratch = Scratch::new();
    fs::write(scratch.src().join("new"), "new").unwrap();
    fs::create_dir_all(scratch.dst().join("b")).unwrap();
    fs::write(scratch.dst().join("b/kept"), "kept").unwrap();
    let time = fs::metadata(scratch.src()).unwrap().modified().unwrap();
    for timing in ["--delete-before", "--delete-during", "--delete-delay", "--delete-after"] {
        let run = |options: &[&str]| {
            fs::File::open(scratch.dst()).unwrap().set_modified(time).unwrap();
            let run = Run::dsync().args(["-a", "-i", "--exclude=kept", timing]).args(options);
            run.arg(slash(&scratch.src())).arg(scratch.dst()).run().expect_code(0).stdout_text()
        };
        let (planned, done) = (run(&["-n"]), run(&[]));
        assert_eq!(planned, done, "{timing}");
        assert_eq!(done, ">f+++++++++ new\n", "{timing}");
        fs::remove_file(scratch.dst().join("new")).unwrap();
    }
}

#[test]
fn a_missing_operand_that_may_be_missing_withholds_no_deletion() {
    needs_dsync!();
    let sshd = Sshd::shared();
    for (options, deletes) in
        [(&[][..], false), (&["--ignore-missing-args"], true), (&["--delete-missing-args"], true)]
    {
        for missing in ["nothing", "src/nothing"] {
            for is_first in [true, false] {
                let mut listings = Vec::new();
                // Before 3.4.0 its receiver refused what its sender said of a missing path.
                let is_reference = options != ["--delete-missing-args"] || oracle::is_since((3, 4, 0));
                for program in ["dsync", "dsync over ssh", "rsync"] {
                    if program == "rsync" && !is_reference {
                        continue;
                    }
                    let scratch = Scratch::new();
                    plant(&scratch, &["dst"]);
                    let (there, missing) = (slash(&scratch.src()), scratch.at(missing).into_os_string());
                    let operands = if is_first { [missing, there] } else { [there, missing] };
                    let (run, to) = match program {
                        "dsync" => (Run::dsync(), scratch.dst().into_os_string()),
                        "rsync" => (Run::of("rsync"), scratch.dst().into_os_string()),
                        _ => (sshd.run(Via::Ssh), sshd.operand(scratch.dst())),
                    };
                    let run = run.args(["-a", "--delete"]).args(options).args(operands);
                    let outcome = run.arg(to).run().expect_code(if deletes { 0 } else { 23 });
                    let stays = scratch.dst().join("gone link").is_symlink();
                    listings.push(survey(&scratch.dst()).into_keys().collect::<Vec<_>>());
                    // Whose deletions rsync withholds as well, but not always.
                    assert!(stays != deletes || program == "rsync", "{options:?}: {}", outcome.account());
                }
                assert_eq!(listings[0], listings[1], "{options:?} {missing}");
                let theirs = listings.get(2).filter(|_| deletes);
                assert!(
                    theirs.is_none_or(|theirs| listings[0] == *theirs),
                    "{options:?} {missing}: {listings:?}"
                );
            }
        }
    }
}

#[test]
fn what_the_run_itself_writes_in_its_destination_stays() {
    needs_dsync!();
    let kept: &[&[&str]] = &[
        &["own/log", "--log-file="],
        &["own/list", "--write-manifest="],
        &["own/state", "-c", "--state", "--state-dir="],
    ];
    for deletion in [&["--delete"][..], &["--delete-before"], &["--delete-excluded", "-b"]] {
        for options in kept {
            let (scratch, sshd) = (Scratch::new(), Sshd::shared());
            plant(&scratch, &["dst"]);
            fs::create_dir(scratch.at("dst/own")).unwrap();
            symlink(scratch.dst(), scratch.at("other")).unwrap();
            let [path, words @ .., option] = options else { unreachable!() };
            for (through, remote) in [("dst", false), ("other", true), ("dst", false)] {
                fs::write(scratch.at("dst/extra"), "x").unwrap();
                if path.ends_with("list") {
                    fs::write(scratch.at("dst/own/list.verified"), "times").unwrap();
                }
                let option = format!("{option}{}", scratch.at(through).join(path).display());
                let run = |more: &[&str]| {
                    let (run, from) = match remote {
                        true => (sshd.run(Via::Ssh), sshd.operand(slash(&scratch.src()))),
                        false => (Run::dsync(), slash(&scratch.src())),
                    };
                    let run = run.args(["-ai"]).args(more).args(deletion).args(words).arg(&option);
                    run.arg(from).arg(scratch.dst()).run().expect_code(0)
                };
                let told = |outcome: &Outcome| -> Vec<String> {
                    outcome
                        .stdout_text()
                        .lines()
                        .filter(|line| line.contains("own"))
                        .map(str::to_owned)
                        .collect()
                };
                // In a dry run there may be nothing yet that keeps its directory.
                let before = scratch.at("dst").join(path).exists();
                let dry = run(&["-n"]);
                assert!(!before || told(&dry).is_empty(), "{options:?} {deletion:?}: {}", dry.account());
                let done = run(&[]);
                assert_eq!(told(&done), [""; 0], "{options:?} {deletion:?}: {}", done.account());
                assert!(!scratch.at("dst/extra").exists(), "{}", done.account());
                assert!(scratch.at("dst").join(path).exists(), "{}", done.account());
                if path.ends_with("list") {
                    assert_eq!(fs::read(scratch.at("dst/own/list.verified")).unwrap(), b"times");
                }
            }
        }
    }
}

#[test]
fn deletions_in_a_directory_that_is_not_listed_completely_are_counted_as_withheld() {
    needs_dsync!();
    for (options, goes) in [
        (&["--delete"][..], false),
        (&["--delete", "--ignore-errors"], true),
        (&["--del", "--ignore-errors"], true),
        (&["--delete-before", "--ignore-errors"], true),
    ] {
        let scratch = Scratch::new();
        for dir in ["src/sub", "dst/sub"] {
            fs::create_dir_all(scratch.at(dir)).unwrap();
        }
        for extra in ["dst/one", "dst/two", "dst/sub/three"] {
            fs::write(scratch.at(extra), "").unwrap();
        }
        let run = Run::dsync().arg("-a").args(options).args(["src/", "missing", "dst"]).cwd(scratch.path());
        let outcome = run.run().expect_code(23);
        assert!(scratch.at("dst/one").exists() && scratch.at("dst/two").exists());
        assert_eq!(scratch.at("dst/sub/three").exists(), !goes, "{}", outcome.account());
        let count = if goes { "2 deletions withheld" } else { "3 deletions withheld" };
        assert!(outcome.stderr_text().contains(count), "{options:?}: {}", outcome.account());
    }
}
