//! Sources that change, vanish or cannot be read while they are copied.

use std::{
    fs,
    os::unix::fs::{FileExt, MetadataExt, chown},
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use dsync_tests::{
    Kind, Node, Outcome, Run, Scope, Scratch, Sshd, Tree, Via, assert_same, compare, is_stand_in,
    mount::Mount,
    needs_dsync, needs_root, program,
    run::{catch, is_alive, until_met, wait_for},
    scratch::slash,
    survey, tree,
};

/// A user that exists nowhere and owns nothing.
const NOBODY: u32 = 64_123;

/// Copies the program to a place where every user may run it.
fn public_program(scratch: &Scratch) -> PathBuf {
    let path = scratch.at("program").join(program().file_name().unwrap());
    fs::create_dir(scratch.at("program")).unwrap();
    fs::copy(program(), &path).unwrap();
    tree::set_mode(&path, 0o755);
    path
}

/// Changes the owner of a whole tree to [`NOBODY`].
fn give_away(root: &Path) {
    for path in dsync_tests::survey(root).keys() {
        std::os::unix::fs::lchown(tree::at(root, path), Some(NOBODY), Some(NOBODY)).unwrap();
    }
}

/// Rewrites bytes of a file while `run` runs.
fn while_changing<T>(path: &Path, run: impl FnOnce() -> T) -> T {
    let stop = AtomicBool::new(false);
    let file = fs::OpenOptions::new().write(true).open(path).unwrap();
    let len = file.metadata().unwrap().len();
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut step = 0_u64;
            while !stop.load(Ordering::Acquire) {
                step += 1;
                file.write_all_at(&step.to_le_bytes(), step * 7_919_777 % (len - 8)).unwrap();
                thread::sleep(Duration::from_micros(200));
            }
        });
        let result = run();
        stop.store(true, Ordering::Release);
        result
    })
}

#[test]
fn file_that_keeps_changing_ends_with_24_and_the_old_copy_stays_whole() {
    needs_dsync!();
    let sshd = Sshd::shared();
    for via in [None, Some(Via::Quic), Some(Via::Ssh)] {
        let scratch = Scratch::new();
        Tree::of([Node::file("busy", 1, 24 << 20), Node::file("calm", 2, 5000)]).plant(&scratch.src());
        let old_copy = Tree::of([Node::file("busy", 3, 20 << 20)]);
        let run = || match via {
            None => Run::dsync().arg("-a").arg(slash(&scratch.src())).arg(scratch.dst()),
            Some(via) => sshd.run(via).arg("-a").arg(slash(&scratch.src())).arg(sshd.operand(scratch.dst())),
        };
        // A run between two changes makes a whole copy.
        let (old, outcome) = until_met(|| {
            old_copy.plant(&scratch.dst());
            let old = compare::sum(&scratch.dst().join("busy"));
            let outcome = while_changing(&scratch.src().join("busy"), || run().run());
            (outcome.code() != Some(0)).then_some((old, outcome))
        });
        let outcome = outcome.expect_code(24);
        assert!(outcome.stderr_text().contains("busy"), "{}", outcome.account());
        assert_eq!(compare::sum(&scratch.dst().join("busy")), old, "the old copy was harmed ({via:?})");
        assert_same(&scratch.src().join("calm"), &scratch.dst().join("calm"), Scope::full());
        assert_eq!(compare::temporaries(&scratch.dst()), Vec::<String>::new());
    }
}

/// Pushes a tree whose last files vanish after the first ones arrived.
fn push_while_vanishing(via: Via) -> Outcome {
    let (scratch, sshd) = (Scratch::new(), Sshd::shared());
    let files = (0..3000_u64).map(|index| Node::file(format!("f{index:05}"), index, 20_000));
    let late = (0..300_u64).map(|index| Node::file(format!("zz/z{index:05}"), index, 20_000));
    Tree::of(files.chain([Node::dir("zz")]).chain(late)).plant(&scratch.src());
    let run = sshd.run(via).arg("-a").arg(slash(&scratch.src())).arg(sshd.operand(scratch.dst()));
    let mut running = run.start();
    let arrived = || fs::read_dir(scratch.dst()).map_or(0, Iterator::count);
    while running.is_running() && arrived() < 100 {
        thread::sleep(Duration::from_millis(1));
    }
    for index in (0..300).rev() {
        fs::remove_file(scratch.src().join(format!("zz/z{index:05}"))).unwrap();
    }
    let outcome = running.wait();
    if outcome.code() == Some(24) {
        let text = outcome.stderr_text();
        assert!(text.contains("zz/z") && text.contains("vanished"), "{}", outcome.account());
    }
    // The remaining files must be there, whatever happened to the rest.
    for index in 0..3000 {
        assert!(
            scratch.dst().join(format!("f{index:05}")).exists(),
            "f{index:05} is missing\n{}",
            outcome.account()
        );
    }
    outcome
}

#[test]
fn files_that_vanish_end_with_24_and_the_rest_is_copied() {
    needs_dsync!();
    // Whether the listing or the removal comes first is a race.
    for via in Via::EACH {
        let outcome = until_met(|| {
            let outcome = push_while_vanishing(via);
            (outcome.code() != Some(0)).then_some(outcome)
        });
        let _ = outcome.expect_code(24);
    }
}

#[test]
fn unreadable_entries_end_with_23_and_delete_nothing() {
    needs_root!();
    for remote in [None, Some(Via::Quic), Some(Via::Ssh)] {
        let scratch = Scratch::new();
        let program = public_program(&scratch);
        Tree::of([
            Node::file("fine", 1, 10),
            Node { mode: 0, ..Node::file("secret", 2, 20) },
            Node::dir("open"),
            Node::file("open/fine", 3, 30),
            Node { mode: 0, ..Node::dir("closed") },
            Node::file("closed/x", 4, 4),
        ])
        .plant(&scratch.src());
        Tree::of([Node::file("extra", 5, 5), Node::dir("closed"), Node::file("closed/x", 9, 9)])
            .plant(&scratch.dst());
        give_away(&scratch.src());
        give_away(&scratch.dst());
        let outcome = match remote {
            None => {
                let run =
                    Run::of(&program).args(["-a", "--delete"]).arg(slash(&scratch.src())).arg(scratch.dst());
                run.as_user(NOBODY, NOBODY).run()
            }
            Some(via) => {
                // The source end runs without privileges; the destination is root's, at the other
                // end.
                let sshd = Sshd::shared();
                let plain = scratch.at("as-nobody");
                let text = format!(
                    "#!/bin/sh\nexec setpriv --reuid={NOBODY} --regid={NOBODY} --clear-groups {} \"$@\"\n",
                    program.display()
                );
                fs::write(&plain, text).unwrap();
                tree::set_mode(&plain, 0o755);
                let run = sshd.run_serving(via, &plain).args(["-a", "--delete"]);
                run.arg(sshd.operand(slash(&scratch.src()))).arg(scratch.dst()).run()
            }
        };
        let outcome = outcome.expect_code(23);
        let text = outcome.stderr_text();
        assert!(text.contains("secret") && text.contains("closed"), "{}", outcome.account());
        assert!(text.contains("Permission denied"), "{}", outcome.account());
        for name in ["fine", "open/fine"] {
            assert_same(&scratch.src().join(name), &scratch.dst().join(name), Scope::full());
        }
        // rsync deletes until it meets the error.
        let kept = scratch.dst().join("extra").exists() || is_stand_in();
        assert!(kept, "something was deleted\n{}", outcome.account());
        assert!(fs::exists(scratch.dst().join("closed/x")).unwrap(), "{}", outcome.account());
    }
}

#[test]
fn a_file_that_cannot_be_hashed_is_told_once_and_only_if_its_content_is_needed() {
    needs_root!();
    needs_dsync!();
    for (options, code, told) in [
        (&["-rc"][..], 23, 1),
        (&["-rc", "--delete-before"], 23, 1),
        (&["-rcn"], 23, 1),
        (&["-rc", "--ignore-existing"], 0, 0),
        (&["-rc", "--max-size=5"], 0, 0),
    ] {
        let scratch = Scratch::new();
        let program = public_program(&scratch);
        Tree::of([Node { mode: 0, ..Node::file("f", 1, 10) }]).plant(&scratch.src());
        Tree::of([Node::file("f", 1, 10)]).plant(&scratch.dst());
        give_away(&scratch.src());
        give_away(&scratch.dst());
        let shell = scratch.at("shell");
        fs::write(&shell, "#!/bin/sh\nshift\nexec sh -c \"$*\"\n").unwrap();
        tree::set_mode(&shell, 0o755);
        for operand in [scratch.dst().into_os_string(), format!("h:{}", scratch.dst().display()).into()] {
            let run = Run::of(&program).args(options).arg("-e").arg(&shell);
            let path = format!("--dsync-path={}", program.display());
            let run = run.arg(path).arg(slash(&scratch.src())).arg(operand);
            let outcome = run.as_user(NOBODY, NOBODY).run().expect_code(code);
            let lines = outcome.stderr_text().matches("cannot read").count();
            assert_eq!(lines, told, "{options:?}\n{}", outcome.account());
        }
    }
}

#[test]
fn directory_of_one_operand_that_is_closed_hides_nothing_of_anothers() {
    needs_root!();
    for (mode, code) in [(0o444, 0), (0, 23)] {
        let scratch = Scratch::new();
        let program = public_program(&scratch);
        let trees =
            [("one", Vec::new()), ("two", vec![Node::file("sub/f", 1, 10), Node::symlink("sub/l", "f")])];
        for (name, nodes) in trees {
            Tree::of([Node::dir("sub")].into_iter().chain(nodes).collect::<Vec<_>>())
                .plant(&scratch.at(name));
        }
        tree::set_mode(&scratch.at("one/sub"), mode);
        let shell = scratch.at("shell");
        fs::write(&shell, "#!/bin/sh\nshift\nexec sh -c \"$*\"\n").unwrap();
        tree::set_mode(&shell, 0o755);
        for remote in ["", "h:"] {
            let to = scratch.at(if remote.is_empty() { "local" } else { "pulled" });
            fs::create_dir(&to).unwrap();
            chown(&to, Some(NOBODY), Some(NOBODY)).unwrap();
            let operand = |name: &str| format!("{remote}{}/", scratch.at(name).display());
            let run = Run::of(&program).arg("-rl").arg("-e").arg(&shell);
            let run = run.arg(format!("--dsync-path={}", program.display()));
            let run = run.arg(operand("one")).arg(operand("two")).arg(&to).as_user(NOBODY, NOBODY);
            let _ = run.run().expect_code(code);
            assert!(to.join("sub/f").is_file() && to.join("sub/l").is_symlink(), "{mode:o} {remote}");
        }
    }
}

#[test]
fn a_name_that_one_operand_could_not_list_is_anothers_and_so_is_its_content() {
    needs_root!();
    // A directory that may be entered and not listed, or whose rules are not known; `.` is the operand.
    for (closed, options) in [(".", "-rltp"), ("sub", "-rltp"), ("rules", "-rltpF"), ("sub/rules", "-rltpF")]
    {
        let scratch = Scratch::new();
        let program = public_program(&scratch);
        for (name, seed) in [("one", 1), ("two", 2)] {
            let target = format!("of {name}");
            let nodes = ["", "sub/"].map(|at| {
                let link = Node::symlink(format!("{at}l"), &target);
                [Node::file(format!("{at}f"), seed, 10), Node::file(format!("{at}g"), seed, 9_000_000), link]
            });
            let nodes = [Node::dir("sub")].into_iter().chain(nodes.into_iter().flatten());
            Tree::of(nodes.collect::<Vec<_>>()).plant(&scratch.at(name));
        }
        let path = scratch.at("one").join(closed);
        if path.is_dir() {
            tree::set_mode(&path, 0o111);
        } else {
            fs::write(path.with_file_name(".rsync-filter"), "- x\n").unwrap();
            tree::set_mode(&path.with_file_name(".rsync-filter"), 0);
        }

        let at =
            Path::new(closed).parent().filter(|_| closed.ends_with("rules")).unwrap_or(Path::new(closed));
        for from in ["", "h:"] {
            let shell = scratch.at("shell");
            fs::write(&shell, "#!/bin/sh\nshift\nexec sh -c \"$*\"\n").unwrap();
            tree::set_mode(&shell, 0o755);
            let to = scratch.at(if from.is_empty() { "local" } else { "pulled" });
            fs::create_dir(&to).unwrap();
            chown(&to, Some(NOBODY), Some(NOBODY)).unwrap();
            let run = Run::of(&program).args([options, "-e"]).arg(&shell);
            let run = run.arg(format!("--dsync-path={}", program.display()));
            let operand = |name: &str| format!("{from}{}/", scratch.at(name).display());
            let run = run.arg(operand("one")).arg(operand("two")).arg(&to).as_user(NOBODY, NOBODY);
            let _ = run.run().expect_code(23);
            for name in ["f", "g", "l"] {
                let of = |tree: &Path| {
                    fs::read_link(tree.join(at).join(name)).map_or_else(
                        |_| fs::read(tree.join(at).join(name)).unwrap(),
                        |target| target.into_os_string().into_encoded_bytes(),
                    )
                };
                assert!(of(&to) == of(&scratch.at("two")), "{closed} {from}{name}");
            }
        }
    }
}

#[test]
fn user_without_privileges_copies_what_rsync_copies() {
    needs_root!();
    let scratch = Scratch::new();
    let program = public_program(&scratch);
    Tree::sample().plant(&scratch.src());
    Tree::of([
        Node { owner: Some((1, 1)), ..Node::file("of another", 1, 10) },
        Node { owner: Some((NOBODY, NOBODY)), mode: 0o6755, ..Node::file("own setuid", 2, 10) },
        Node { owner: Some((1, NOBODY)), mode: 0o2755, ..Node::file("own group", 3, 10) },
        Node::new("device", Kind::CharDevice(1, 3)),
    ])
    .plant(&scratch.src());
    // Readable for everybody, owned by root: owners cannot be kept.
    for path in dsync_tests::survey(&scratch.src()).keys().filter(|path| !path.is_empty()) {
        let path = tree::at(&scratch.src(), path);
        if !path.is_symlink() {
            let mode = std::os::unix::fs::PermissionsExt::mode(&fs::metadata(&path).unwrap().permissions());
            tree::set_mode(&path, mode | if path.is_dir() { 0o555 } else { 0o444 });
        }
    }
    let results = [(&program, "dst"), (&PathBuf::from("rsync"), "rsync")].map(|(program, name)| {
        let to = scratch.at(name);
        fs::create_dir(&to).unwrap();
        chown(&to, Some(NOBODY), Some(NOBODY)).unwrap();
        Run::of(program).arg("-a").arg(slash(&scratch.src())).arg(&to).as_user(NOBODY, NOBODY).run()
    });
    assert_eq!(results[0].code(), results[1].code(), "{}\n{}", results[0].account(), results[1].account());
    for outcome in &results {
        let told = r#"skipping non-regular file "device""#;
        assert!(outcome.all_text().contains(told), "{}", outcome.account());
    }
    assert!(!scratch.dst().join("device").exists());
    if !is_stand_in() {
        // A file whose owner has changed loses special bits (docs/from-rsync.md).
        for of_others in ["setuid", "own group"] {
            tree::set_mode(&scratch.at("rsync").join(of_others), 0o755);
        }
    }
    assert_same(&scratch.at("rsync"), &scratch.dst(), Scope::ALL);
}

#[test]
fn file_in_a_destination_that_cannot_be_written_ends_with_23() {
    needs_root!();
    let scratch = Scratch::new();
    let program = public_program(&scratch);
    Tree::of([Node::dir("d"), Node::file("d/f", 1, 10), Node::file("g", 2, 20)]).plant(&scratch.src());
    Tree::of([Node { mode: 0o555, ..Node::dir("d") }]).plant(&scratch.dst());
    // The destination's root belongs to the user, "d" to root.
    chown(scratch.dst(), Some(NOBODY), Some(NOBODY)).unwrap();
    let run =
        Run::of(&program).arg("-a").arg(slash(&scratch.src())).arg(scratch.dst()).as_user(NOBODY, NOBODY);
    let outcome = run.run().expect_code(23);
    let named = if is_stand_in() { "d/.f." } else { "d/f" };
    assert!(outcome.stderr_text().contains(named), "{}", outcome.account());
    assert_same(&scratch.src().join("g"), &scratch.dst().join("g"), Scope::NO_OWNERS);
}

#[test]
fn immutable_target_ends_with_23_and_keeps_the_old_file() {
    needs_root!();
    let scratch = Scratch::new();
    Tree::of([Node::file("frozen", 1, 10), Node::file("other", 2, 20)]).plant(&scratch.src());
    Tree::of([Node::file("frozen", 3, 30)]).plant(&scratch.dst());
    let frozen = scratch.dst().join("frozen");
    if Run::of("chattr").arg("+i").arg(&frozen).run().code() != Some(0) {
        dsync_tests::skip::record(dsync_tests::skip::Reason::NeedsImmutable);
        return;
    }
    let outcome = Run::dsync().arg("-a").arg(slash(&scratch.src())).arg(scratch.dst()).run();
    let _ = Run::of("chattr").arg("-i").arg(&frozen).run().expect_code(0);
    let outcome = outcome.expect_code(23);
    assert!(outcome.stderr_text().contains("frozen"), "{}", outcome.account());
    assert_eq!(fs::metadata(&frozen).unwrap().len(), 30);
    assert!(scratch.dst().join("other").exists());
    assert_eq!(compare::temporaries(&scratch.dst()), Vec::<String>::new());
}

#[test]
fn full_disk_ends_with_11_names_the_cause_and_leaves_no_temporary() {
    needs_root!();
    for (options, cause) in [("size=1m", "space"), ("nr_inodes=8", "space")] {
        let scratch = Scratch::new();
        let many = (0..30).map(|index| Node::file(format!("f{index}"), index, 100_000));
        Tree::of(many).plant(&scratch.src());
        fs::create_dir(scratch.dst()).unwrap();
        let Some(_mount) = Mount::tmpfs(&scratch.dst(), options) else { return };
        let outcome = Run::dsync().arg("-a").arg(slash(&scratch.src())).arg(scratch.dst()).run();
        let left = compare::temporaries(&scratch.dst());
        let outcome = outcome.expect_code(if is_stand_in() && options != "size=1m" { 23 } else { 11 });
        assert!(outcome.stderr_text().to_lowercase().contains(cause), "{}", outcome.account());
        assert_eq!(left, Vec::<String>::new());
    }
}

#[test]
fn a_disk_too_small_for_a_file_that_grows_in_place_is_noticed_while_it_is_old() {
    needs_root!();
    needs_dsync!();
    let sshd = Sshd::shared();
    for options in
        [&["--inplace"][..], &["--inplace", "-c"], &["--inplace", "--size-only"], &["--inplace", "-W"]]
    {
        for push in [false, true] {
            let scratch = Scratch::new();
            Tree::of([Node::file("file", 1, 1_400_000)]).plant(&scratch.src());
            fs::create_dir(scratch.dst()).unwrap();
            let Some(_mount) = Mount::tmpfs(&scratch.dst(), "size=1m") else { return };
            Tree::of([Node::file("file", 2, 600_000)]).plant(&scratch.dst());
            tree::set_mtime(&scratch.dst().join("file"), (1_400_000_000, 5));
            let before = survey(&scratch.dst());

            let (from, to) = (slash(&scratch.src()), scratch.dst());
            let outcome = if push {
                sshd.run(Via::Ssh).arg("-a").args(options).arg(&from).arg(sshd.operand(&to)).run()
            } else {
                Run::dsync().arg("-a").args(options).arg(&from).arg(&to).run()
            };
            let outcome = outcome.expect_code(11);
            let found = compare::compare(&before, &survey(&scratch.dst()), Scope::BELOW);
            assert!(found.is_empty(), "{options:?} {found:?}\n{}", outcome.account());
        }
    }
}

#[test]
fn one_file_system_stays_on_it() {
    needs_root!();
    let scratch = Scratch::new();
    Tree::of([Node::dir("mounted"), Node::file("here", 1, 1)]).plant(&scratch.src());
    let mounted = scratch.src().join("mounted");
    let Some(_mount) = Mount::tmpfs(&mounted, "size=1m") else { return };
    fs::write(mounted.join("there"), "x").unwrap();
    tree::set_mtime(&mounted, (1_400_000_000, 0));
    let results = [(Run::dsync(), "dst"), (Run::of("rsync"), "rsync")]
        .map(|(program, to)| program.args(["-a", "-x"]).arg(slash(&scratch.src())).arg(scratch.at(to)).run());
    for outcome in results {
        let _ = outcome.expect_quiet_success();
    }
    assert_same(&scratch.at("rsync"), &scratch.dst(), Scope::full());
    assert!(scratch.dst().join("mounted").is_dir() && !scratch.dst().join("mounted/there").exists());
}

#[test]
fn reader_of_the_destination_keeps_no_run_out() {
    needs_root!();
    needs_dsync!();
    let scratch = Scratch::new();
    fs::write(scratch.src().join("f"), "content").unwrap();
    fs::create_dir(scratch.dst()).unwrap();
    for (dir, mode) in [(scratch.at(""), 0o755), (scratch.dst(), 0o755)] {
        tree::set_mode(&dir, mode);
    }
    // Anybody who may read a directory may lock it, and any file in it that he may open.
    let mut attacker = std::process::Command::new("setpriv")
        .args(["--reuid=64401", "--regid=64401", "--clear-groups", "sh", "-c"])
        .arg("exec 9< \"$0\"; flock 9; echo held; while :; do for f in \"$0\"/.* \"$0\"/*; do flock -n \"$f\" true; done; done")
        .arg(scratch.dst())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let mut line = [0; 5];
    std::io::Read::read_exact(attacker.stdout.as_mut().unwrap(), &mut line).unwrap();
    for _ in 0..20 {
        fs::write(scratch.src().join("f"), "content").unwrap();
        let run = Run::dsync().args(["-a", "--delete"]).arg(slash(&scratch.src())).arg(scratch.dst());
        let _ = run.run().expect_quiet_success();
    }
    attacker.kill().unwrap();
    let _ = attacker.wait();
    assert_same(&scratch.src(), &scratch.dst(), Scope::full());
}

#[test]
fn runs_of_several_users_keep_out_each_other_and_leave_no_lock() {
    needs_root!();
    needs_dsync!();
    let scratch = Scratch::new();
    Tree::of([Node::file("huge", 3, 512 << 20)]).plant(&scratch.src());
    fs::create_dir(scratch.dst()).unwrap();
    for dir in [scratch.at(""), scratch.src()] {
        tree::set_mode(&dir, 0o755);
    }
    tree::set_mode(&scratch.dst(), 0o777);
    let copy = || Run::dsync().arg("-r").arg(slash(&scratch.src())).arg(scratch.dst());
    let first = until_met(|| {
        let _ = fs::remove_file(scratch.at("dst/huge"));
        let first = copy().start();
        if catch(first.id(), || compare::is_written_to(&scratch.dst())) {
            return Some(first);
        }
        let _ = first.wait().expect_quiet_success();
        None
    });
    for user in [64_401, 64_402] {
        let _ = copy().as_user(user, user).run().expect_code(41);
    }
    first.signal(rustix::process::Signal::KILL);
    let _ = first.wait();
    // A killed run's lock belongs to nobody: a user's run takes it over, if that user may write
    // there.
    let before = fs::metadata(scratch.dst()).unwrap().modified().unwrap();
    assert!(compare::temporaries(&scratch.dst()).iter().any(|name| name.contains("lock")));
    let _ = copy().as_user(64_401, 64_401).arg("-n").run();
    assert_eq!(fs::metadata(scratch.dst()).unwrap().modified().unwrap(), before);
    let _ = copy().run().expect_quiet_success();
    assert_eq!(compare::temporaries(&scratch.dst()), Vec::<String>::new());
}

#[test]
fn a_users_run_in_a_directory_that_all_share_keeps_others_out_and_changes_no_time() {
    needs_root!();
    needs_dsync!();
    let scratch = Scratch::new();
    Tree::of([Node::dir("d"), Node::file("d/huge", 3, 512 << 20), Node::file("f", 1, 10)])
        .plant(&scratch.src());
    Tree::of([Node::dir("d"), Node::file("f", 1, 10)]).plant(&scratch.dst());
    for dir in [scratch.at(""), scratch.src()] {
        tree::set_mode(&dir, 0o755);
    }
    for dir in [scratch.dst(), scratch.dst().join("d")] {
        tree::set_mode(&dir, 0o777);
    }
    let times = || {
        let root = fs::metadata(scratch.dst()).unwrap();
        [root.mtime(), root.mtime_nsec(), root.ctime(), root.ctime_nsec()]
    };
    let before = times();
    let copy = || Run::dsync().args(["-rt", "-O"]).arg(slash(&scratch.src())).arg(scratch.dst());
    let first = until_met(|| {
        let _ = fs::remove_file(scratch.at("dst/d/huge"));
        let first = copy().as_user(64_401, 64_401).start();
        if catch(first.id(), || compare::is_written_to(&scratch.dst().join("d"))) {
            return Some(first);
        }
        let _ = first.wait().expect_quiet_success();
        None
    });
    let _ = copy().as_user(64_402, 64_402).run().expect_code(41);
    let _ = copy().run().expect_code(41);
    first.signal(rustix::process::Signal::CONT);
    let _ = first.wait().expect_quiet_success();

    assert_same(&scratch.src().join("d"), &scratch.dst().join("d"), Scope::CONTENT);
    let _ = copy().as_user(64_402, 64_402).run().expect_quiet_success();
    assert_eq!(times(), before);
}

#[test]
fn second_run_on_one_destination_ends_with_41() {
    needs_dsync!();
    let scratch = Scratch::new();
    Tree::of([Node::file("huge", 3, 512 << 20)]).plant(&scratch.src());
    let copy = || Run::dsync().arg("-a").arg(slash(&scratch.src())).arg(scratch.dst());
    let first = until_met(|| {
        let _ = fs::remove_dir_all(scratch.dst());
        let first = copy().start();
        if catch(first.id(), || compare::is_written_to(&scratch.dst())) {
            return Some(first);
        }
        let _ = first.wait().expect_quiet_success();
        None
    });
    let second = copy().run();
    first.signal(rustix::process::Signal::CONT);
    let second = second.expect_code(41);
    assert!(second.stderr_text().contains("in use by another dsync run"), "{}", second.account());
    let _ = first.wait().expect_quiet_success();
    assert_same(&scratch.src(), &scratch.dst(), Scope::full());
}

/// Makes `depth` nested directories; a path of all their names would be too long for the system.
fn chain(top: &Path, depth: usize) {
    use rustix::fs::{CWD, Mode, OFlags, mkdirat, openat};
    fs::create_dir(top).unwrap();
    let flags = OFlags::RDONLY | OFlags::DIRECTORY;
    let mut dir = openat(CWD, top, flags, Mode::empty()).unwrap();
    for _ in 0..depth {
        mkdirat(&dir, "d", Mode::RWXU).unwrap();
        dir = openat(&dir, "d", flags, Mode::empty()).unwrap();
    }
}

#[test]
fn a_chain_of_directories_costs_only_what_is_too_deep_in_it() {
    needs_dsync!();
    let scratch = Scratch::new();
    let (source, destination) = (scratch.at("src"), scratch.at("dst"));
    fs::create_dir_all(&source).unwrap();
    chain(&source.join("chain"), 6000);
    fs::write(source.join("after"), "a sibling").unwrap();
    fs::write(source.join("before"), "another").unwrap();
    fs::create_dir(source.join("zz")).unwrap();
    fs::write(source.join("zz/last"), "the last").unwrap();
    for _ in 0..2 {
        let run = Run::dsync().args(["-a", "--durability=none"]).arg(slash(&source)).arg(&destination);
        let outcome = run.run().expect_code(23);
        let said = outcome.stderr_text();
        assert_eq!(said.lines().filter(|line| line.contains("too long")).count(), 1, "{}", outcome.account());
        for (name, content) in [("after", "a sibling"), ("before", "another"), ("zz/last", "the last")] {
            assert_eq!(fs::read_to_string(destination.join(name)).unwrap(), content);
        }
        assert!(destination.join("chain/d/d/d/d").is_dir());
    }
    // Too deep for the code that removes the scratch directory.
    for tree in [source, destination] {
        assert!(std::process::Command::new("rm").arg("-rf").arg(tree).status().unwrap().success());
    }
}

/// Holds a lease on the file ARGV[0] until another program wants it.
const LEASE: &str = r#"
    $SIG{IO} = sub { $wanted = 1 };
    open(my $file, "+<", $ARGV[0]) or die;
    fcntl($file, 1024, 1) or die "no leases here: $!";
    print STDERR "held\n";
    select(undef, undef, undef, 0.01) until $wanted;
    fcntl($file, 1024, 2);
"#;

#[test]
fn a_file_with_a_lease_is_copied_when_its_holder_gives_it_up() {
    needs_dsync!();
    let scratch = Scratch::new();
    for (held, words) in [("src/f", &["-aI"][..]), ("dst/f", &["-aI", "--inplace"])] {
        // The holder may be slow to hear of it.
        until_met(|| {
            fs::write(scratch.src().join("f"), "new").unwrap();
            let _ = fs::create_dir(scratch.dst());
            fs::write(scratch.dst().join("f"), "old").unwrap();
            let mut holder = Run::of("perl").args(["-e", LEASE]).arg(scratch.at(held)).start();
            wait_for(|| holder.has_said("held") || !is_alive(holder.id()));
            let outcome = Run::dsync().args(words).args(["src/", "dst/"]).cwd(scratch.path()).run();
            holder.kill();
            (outcome.code() == Some(0)).then_some(())
        });
        assert_eq!(fs::read(scratch.dst().join("f")).unwrap(), b"new", "{held}");
    }
}
