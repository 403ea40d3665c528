//! Broken connections: the run continues over another one.

use std::{
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt, chown},
    path::{Path, PathBuf},
};

use dsync_tests::{
    Node, Outcome, Run, Scope, Scratch, Sshd, Tree, Via, assert_same, needs_dsync, needs_namespace,
    needs_root, program,
    run::{catch, send, until_met, wait_for},
    scratch::slash,
    tree::set_mode,
    unfinished::{SEGMENT, finished_segments, hidden, kept},
};
use rustix::process::Signal;

/// An event that breaks a run's connection once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Blow {
    /// The remote end is killed.
    Remote,
    /// The local ssh is killed.
    Shell,
}

/// Makes many files, more than the pipes and windows between the ends hold.
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
        let outcome = until_met(|| {
            let _ = fs::remove_dir_all(scratch.dst());
            let remote = sshd.remote();
            let run = sshd.run_serving(via, &remote.script).arg("-av");
            let run = if push {
                run.arg(slash(&scratch.src())).arg(sshd.operand(scratch.dst()))
            } else {
                run.arg(sshd.operand(slash(&scratch.src()))).arg(scratch.dst())
            };
            let running = run.start();
            // Stopped when some files have arrived and others have not.
            let writer = if push { remote.wait_for_id() } else { running.id() };
            let caught = catch(writer, || {
                fs::read_dir(scratch.dst()).is_ok_and(|entries| (21..380).contains(&entries.count()))
            });
            if caught {
                let struck = match blow {
                    Blow::Remote => remote.wait_for_id(),
                    Blow::Shell => running.children()[0],
                };
                send(struck, Signal::KILL);
                send(writer, Signal::CONT);
            }
            let outcome = running.wait().expect_code(0);
            caught.then_some(outcome)
        });
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

#[test]
fn a_run_goes_on_where_a_path_forgets_the_connection_of_a_lane() {
    needs_dsync!();
    let namespace = needs_namespace!();
    let sshd = Sshd::start("127.0.0.1", Some(&namespace));
    let scratch = Scratch::new();
    one_large_file(&scratch);
    // On a busy machine a run may have ended before its connection is forgotten.
    until_met(|| {
        let _ = fs::remove_dir_all(scratch.dst());
        let run = sshd.run(Via::Tls).within(&namespace).args(["-av", "--timeout=5", "--bwlimit=8M"]);
        let mut run = run.arg(slash(&scratch.src())).arg(sshd.operand(scratch.dst())).start();
        let mut busy = None;
        wait_for(|| {
            let is_lane = |ports: &[u16; 2], sent| sent > 1 << 20 && !ports.contains(&sshd.port());
            busy = namespace.connections().into_iter().find(|(ports, sent)| is_lane(ports, *sent));
            busy.is_some() || !run.is_running()
        });
        if let Some(([own, _], _)) = busy {
            namespace.drop_connection(own);
        }
        let outcome = run.wait().expect_code(0);
        assert_same(&scratch.src(), &scratch.dst(), Scope::full());
        outcome.stdout_text().contains("The connection was lost once").then_some(())
    });
}

/// Plants a file of 16 segments, which a run carries in about two seconds.
fn one_large_file(scratch: &Scratch) {
    Tree::of([Node::file("large", 7, FILE_LEN)]).plant(&scratch.src());
}

const FILE_LEN: u64 = 64 << 20;

/// Pushes the large file and kills the remote end after a third of it has arrived.
fn interrupted(scratch: &Scratch, via: Via, options: &[&str]) -> Outcome {
    let sshd = Sshd::shared();
    until_met(|| {
        let _ = fs::remove_dir_all(scratch.dst());
        let remote = sshd.remote();
        let run = sshd.run_serving(via, &remote.script).args(["-av", "--stats", "--bwlimit=32m"]);
        let run = run.args(options).arg(slash(&scratch.src())).arg(sshd.operand(scratch.dst()));
        let running = run.start();
        let id = remote.wait_for_id();
        let caught = catch(id, || (6..16).contains(&finished_segments(&scratch.dst())));
        if caught {
            send(id, Signal::KILL);
        }
        let outcome = running.wait();
        caught.then_some(outcome)
    })
}

/// Pushes without interruption; returns how many bytes of the file crossed.
fn pushed_again(scratch: &Scratch) -> u64 {
    let run = Sshd::shared().run(Via::Ssh).args(["-a", "--stats"]);
    let run = run.arg(slash(&scratch.src())).arg(Sshd::shared().operand(scratch.dst()));
    let outcome = run.run().expect_code(0);
    assert_same(&scratch.src(), &scratch.dst(), Scope::full());
    assert_eq!(hidden(&scratch.dst()), 0, "something is left");
    outcome.stat("Literal data")
}

#[test]
fn an_unfinished_file_is_taken_up_where_it_stood() {
    needs_dsync!();
    for via in [Via::Ssh, Via::Quic] {
        let scratch = Scratch::new();
        one_large_file(&scratch);
        let outcome = interrupted(&scratch, via, &[]).expect_code(0);
        // Six segments had arrived.
        let literal = outcome.stat("Literal data");
        assert!(literal <= FILE_LEN - 6 * SEGMENT, "{literal} bytes came again\n{}", outcome.account());
        assert_same(&scratch.src(), &scratch.dst(), Scope::full());
        assert_eq!(hidden(&scratch.dst()), 0);
    }
}

/// On a slow path no more is lost than the segments under way, one for each lane, and they are short.
#[test]
fn most_of_what_had_arrived_on_a_slow_path_is_not_sent_again() {
    needs_dsync!();
    const LEN: u64 = 24 << 20;
    const ARRIVED: u64 = 12 << 20;
    let (scratch, sshd) = (Scratch::new(), Sshd::shared());
    Tree::of([Node::file("large", 1, LEN)]).plant(&scratch.src());
    let push = || {
        let push = sshd.run(Via::Ssh).args(["-a", "--partial", "--stats"]).arg(slash(&scratch.src()));
        push.arg(sshd.operand(scratch.dst()))
    };
    until_met(|| {
        let _ = fs::remove_dir_all(scratch.dst());
        let running = push().arg("--bwlimit=8m").start();
        let arrived = || {
            kept(&scratch.dst(), ".dsync-part-")
                .map_or(0, |part| fs::metadata(part).map_or(0, |part| part.blocks() * 512))
        };
        let caught = catch(running.id(), || (ARRIVED..LEN).contains(&arrived()));
        running.signal(Signal::INT);
        running.signal(Signal::CONT);
        let outcome = running.wait();
        (caught && outcome.code() == Some(20)).then_some(())
    });
    wait_for(|| kept(&scratch.dst(), ".dsync-lock-").is_none());

    let outcome = push().run().expect_code(0);
    assert_same(&scratch.src(), &scratch.dst(), Scope::full());
    let literal = outcome.stat("Literal data");
    assert!(literal <= LEN - ARRIVED / 3, "{literal} bytes came again\n{}", outcome.account());
}

/// A local run keeps parts only where its rate is limited.
#[test]
fn a_local_run_that_copies_a_file_removes_the_part_that_a_killed_one_left() {
    needs_dsync!();
    let scratch = Scratch::new();
    one_large_file(&scratch);
    let copy =
        |options: &[&str]| Run::dsync().arg("-a").args(options).arg(slash(&scratch.src())).arg(scratch.dst());
    until_met(|| {
        let _ = fs::remove_dir_all(scratch.dst());
        let running = copy(&["--bwlimit=32m"]).start();
        let caught = catch(running.id(), || kept(&scratch.dst(), ".dsync-part-").is_some());
        running.signal(Signal::KILL);
        let _ = running.wait();
        (caught && kept(&scratch.dst(), ".dsync-note-").is_some()).then_some(())
    });
    let _ = copy(&[]).run().expect_quiet_success();
    assert_same(&scratch.src(), &scratch.dst(), Scope::full());
    assert_eq!(hidden(&scratch.dst()), 0, "something is left");
}

#[test]
fn a_run_that_gave_up_keeps_its_part_for_the_next() {
    needs_dsync!();
    let scratch = Scratch::new();
    one_large_file(&scratch);
    let outcome = interrupted(&scratch, Via::Ssh, &["--retries=0"]);
    assert!(matches!(outcome.code(), Some(10 | 12 | 30)), "{}", outcome.account());
    assert!(outcome.stderr_text().contains("run the same command again"), "{}", outcome.account());
    let names =
        fs::read_dir(scratch.dst()).expect("the destination").flatten().map(|entry| entry.file_name());
    // A killed process cannot remove its lock file: the next run does.
    let left = names.filter(|name| !name.to_string_lossy().starts_with(".dsync-lock-")).count();
    assert_eq!(left, 2, "the part and its notes");
    assert!(pushed_again(&scratch) <= FILE_LEN - 6 * SEGMENT);
}

#[test]
fn a_part_that_the_other_end_still_writes_to_the_disk_is_waited_for() {
    needs_dsync!();
    let (scratch, sshd) = (Scratch::new(), Sshd::shared());
    one_large_file(&scratch);
    // The end that loses its connection writes the part for three seconds before it leaves it.
    let slow = slow_to_sync(&scratch, 3);
    until_met(|| {
        let _ = fs::remove_dir_all(scratch.dst());
        let run = sshd.run_serving(Via::Ssh, &slow).args(["-a", "--bwlimit=32m"]);
        let running = run.arg(slash(&scratch.src())).arg(sshd.operand(scratch.dst())).start();
        let caught = catch(running.id(), || (6..16).contains(&finished_segments(&scratch.dst())));
        running.signal(Signal::KILL);
        let _ = running.wait();
        caught.then_some(())
    });

    let push = || sshd.run(Via::Ssh).args(["-a", "--stats"]).arg(slash(&scratch.src()));
    let again = || push().arg(sshd.operand(scratch.dst())).run();
    let outcome = until_met(|| Some(again()).filter(|outcome| outcome.code() != Some(41))).expect_code(0);
    assert_same(&scratch.src(), &scratch.dst(), Scope::full());
    assert_eq!(hidden(&scratch.dst()), 0, "something is left\n{}", outcome.account());
    let literal = outcome.stat("Literal data");
    assert!(literal <= FILE_LEN - 6 * SEGMENT, "{literal} bytes came again\n{}", outcome.account());
}

#[test]
fn a_run_waits_for_its_own_end_that_a_slow_disk_holds_up() {
    needs_dsync!();
    let (scratch, sshd) = (Scratch::new(), Sshd::shared());
    one_large_file(&scratch);
    // Far beyond the time after which the peer is gone, and what is added to it for another run.
    let slow = slow_to_sync(&scratch, 12);
    let outcome = until_met(|| {
        let _ = fs::remove_dir_all(scratch.dst());
        let run = sshd.run_serving(Via::Ssh, &slow).args(["-av", "--bwlimit=32m", "--timeout=2"]);
        let running = run.arg(slash(&scratch.src())).arg(sshd.operand(scratch.dst())).start();
        let caught = catch(running.id(), || (6..16).contains(&finished_segments(&scratch.dst())));
        if caught {
            send(running.children()[0], Signal::KILL);
            send(running.id(), Signal::CONT);
        }
        let outcome = running.wait().expect_code(0);
        caught.then_some(outcome)
    });
    assert!(outcome.stdout_text().contains("The connection was lost once"), "{}", outcome.account());
    assert_same(&scratch.src(), &scratch.dst(), Scope::full());
    assert_eq!(hidden(&scratch.dst()), 0, "something is left\n{}", outcome.account());
}

/// Writes a program for the remote end whose disk takes so many seconds for each file.
fn slow_to_sync(scratch: &Scratch, seconds: u32) -> PathBuf {
    let (script, syncs, program) = (scratch.at("slow"), "fdatasync", program().display().to_string());
    let text = format!(
        "#!/bin/sh\nexec strace -f -qq -o /dev/null -e trace={syncs} \\\n  -e inject={syncs}:delay_enter={seconds}s {program} \"$@\"\n"
    );
    fs::write(&script, text).expect("the remote script");
    set_mode(&script, 0o755);
    script
}

#[test]
fn a_source_file_that_changed_since_is_sent_anew() {
    needs_dsync!();
    let scratch = Scratch::new();
    one_large_file(&scratch);
    let _ = interrupted(&scratch, Via::Ssh, &["--retries=0"]);
    let file = scratch.src().join("large");
    let mtime = fs::metadata(&file).expect("the file").modified().expect("its time");
    let mut content = fs::read(&file).expect("the file");
    content[5] ^= 1;
    fs::write(&file, content).expect("the file");
    // Only the change time shows it.
    fs::File::options().write(true).open(&file).and_then(|file| file.set_modified(mtime)).expect("its time");
    assert_eq!(pushed_again(&scratch), FILE_LEN);
}

/// A change to a file's bytes.
type Damage = fn(&mut Vec<u8>);

#[test]
fn a_damaged_part_costs_time_only() {
    needs_dsync!();
    let damage: [(&str, Damage); 3] = [
        (".dsync-part-", |bytes| bytes[5] ^= 1),
        (".dsync-note-", |bytes| bytes[3 * 64 + 20] ^= 1),
        (".dsync-note-", |bytes| bytes.truncate(30)),
    ];
    for (name, damage) in damage {
        let scratch = Scratch::new();
        one_large_file(&scratch);
        let _ = interrupted(&scratch, Via::Ssh, &["--retries=0"]);
        let path = kept(&scratch.dst(), name).expect("what was kept");
        let mut bytes = fs::read(&path).expect("what was kept");
        damage(&mut bytes);
        fs::write(&path, bytes).expect("what was kept");
        assert!(pushed_again(&scratch) > FILE_LEN - 16 * SEGMENT);
    }
}

#[test]
fn without_partial_an_interrupted_run_leaves_nothing() {
    needs_dsync!();
    for (options, left) in [(&["--no-partial"][..], 0), (&["--partial"], 2), (&[], 0)] {
        let scratch = Scratch::new();
        one_large_file(&scratch);
        let outcome = until_met(|| {
            let _ = fs::remove_dir_all(scratch.dst());
            let run = Sshd::shared().run(Via::Ssh).args(["-a", "--bwlimit=32m"]).args(options);
            let from = Sshd::shared().operand(slash(&scratch.src()));
            let running = run.arg(from).arg(scratch.dst()).start();
            let caught = catch(running.id(), || is_half_way(&scratch.dst()));
            running.signal(Signal::INT);
            running.signal(Signal::CONT);
            let outcome = running.wait();
            (caught && outcome.code() != Some(0)).then_some(outcome)
        });
        let outcome = outcome.expect_code(20);
        assert_eq!(hidden(&scratch.dst()), left, "{options:?}\n{}", outcome.account());
    }
}

/// Returns whether the temporary of the large file exists and is long enough for finished segments.
fn is_half_way(dst: &Path) -> bool {
    let entries = fs::read_dir(dst).into_iter().flatten().flatten();
    let temporaries = entries.filter(|entry| entry.file_name() != "large");
    temporaries.filter_map(|entry| entry.metadata().ok()).any(|found| found.len() > 24 << 20)
}

/// A user who is not root, and another.
const USER: u32 = 1234;
const OTHER: u32 = 4321;

/// Pulls the large file as a user, or as root, by a shell that runs the command here.
fn pull(scratch: &Scratch, user: Option<u32>) -> Run {
    let shell = scratch.at("shell");
    fs::write(&shell, "#!/bin/sh\nshift\nexec sh -c \"$*\"\n").unwrap();
    set_mode(&shell, 0o755);
    let run = Run::dsync().args(["-a", "--partial", "--stats", "--transport=ssh", "-e"]).arg(shell);
    let run = run.arg(format!("--dsync-path={}", program().display()));
    let run = run.arg(format!("h:{}", slash(&scratch.src()).display())).arg(scratch.dst());
    match user {
        Some(user) => run.as_user(user, user),
        None => run,
    }
}

/// Ends a pull when the unfinished file has more segments than before.
fn pull_some(scratch: &Scratch, user: Option<u32>) {
    let before = finished_segments(&scratch.dst());
    until_met(|| {
        let running = pull(scratch, user).arg("--bwlimit=32m").start();
        let caught = catch(running.id(), || {
            let now = finished_segments(&scratch.dst());
            (before + 3..before + 12).contains(&now)
        });
        running.signal(Signal::TERM);
        running.signal(Signal::CONT);
        let outcome = running.wait();
        let stopped = outcome.code() == Some(20);
        assert!(stopped || outcome.code() == Some(0), "{}", outcome.account());
        (caught && stopped).then_some(())
    });
}

fn part_and_notes(dst: &Path) -> [PathBuf; 2] {
    [".dsync-part-", ".dsync-note-"].map(|name| kept(dst, name).expect("what was kept"))
}

/// Neither the file nor, the second time, its part may be written by their owner.
#[test]
fn a_part_of_a_read_only_file_is_taken_up_as_often_as_it_is_left() {
    needs_dsync!();
    needs_root!();
    for user in [None, Some(USER)] {
        let scratch = Scratch::new();
        one_large_file(&scratch);
        set_mode(&scratch.src().join("large"), 0o444);
        fs::create_dir_all(scratch.dst()).unwrap();
        for path in [scratch.src(), scratch.src().join("large"), scratch.dst()] {
            chown(path, user, user).unwrap();
        }

        pull_some(&scratch, user);
        part_and_notes(&scratch.dst()).iter().for_each(|path| set_mode(path, 0o400));
        pull_some(&scratch, user);
        for path in part_and_notes(&scratch.dst()) {
            let mode = fs::metadata(&path).unwrap().permissions().mode();
            assert_eq!(mode & 0o077, 0, "{user:?}: {}", path.display());
        }
        let outcome = pull(&scratch, user).run().expect_code(0);
        assert_same(&scratch.src(), &scratch.dst(), Scope::full());
        let most = FILE_LEN - 4 * SEGMENT;
        assert!(outcome.stat("Literal data") <= most, "{user:?}: {}", outcome.account());
        assert_eq!(hidden(&scratch.dst()), 0, "{user:?}");
    }
}

/// In a directory where everybody may make names and nobody may remove another's
/// (`fs.protected_regular` lets not even root open such a file with `O_CREAT`).
#[test]
fn a_part_of_another_user_in_a_sticky_directory_stops_no_run() {
    needs_dsync!();
    needs_root!();
    for (user, theirs) in [(None, Some(OTHER)), (Some(USER), Some(OTHER)), (Some(USER), None)] {
        let scratch = Scratch::new();
        one_large_file(&scratch);
        chown(scratch.src().join("large"), user, user).unwrap();
        chown(scratch.src(), user, user).unwrap();
        fs::create_dir_all(scratch.dst()).unwrap();
        set_mode(&scratch.dst(), 0o1777);

        pull_some(&scratch, user);
        let left = part_and_notes(&scratch.dst());
        left.iter().for_each(|path| chown(path, theirs.or(Some(0)), theirs.or(Some(0))).unwrap());
        // The directory itself is not the user's.
        let outcome = pull(&scratch, user).args(["--no-p", "--no-o", "--no-g", "-O"]).run().expect_code(0);
        assert_same(&scratch.src().join("large"), &scratch.dst().join("large"), Scope::full());
        assert_eq!(outcome.stat("Literal data"), FILE_LEN, "{user:?} {theirs:?}: {}", outcome.account());
        assert_eq!(hidden(&scratch.dst()), 2, "{user:?} {theirs:?}");
    }
}

/// Runs to or from a remote end that is killed in the middle. Two files come after each other, and the
/// first is there when the second breaks off.
fn run_on(scratch: &Scratch, via: Via, options: &[&str], push: bool) -> Outcome {
    let sshd = Sshd::shared();
    until_met(|| {
        let _ = fs::remove_dir_all(scratch.at("all"));
        for (path, content) in [("src/a", "new content"), ("dst/a", "old"), ("dst/gone/x", "x")] {
            let path = scratch.at("all").join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }
        Tree::of([Node::file("z", 7, 12 << 20)]).plant(&scratch.at("all/more"));
        fs::rename(scratch.at("all/more/z"), scratch.at("all/src/z")).unwrap();

        let (src, dst) = (slash(&scratch.at("all/src")), slash(&scratch.at("all/dst")));
        let remote = sshd.remote();
        let run = sshd.run_serving(via, &remote.script).args(["-i", "--bwlimit=6m"]).args(options);
        let run =
            if push { run.arg(&src).arg(sshd.operand(&dst)) } else { run.arg(sshd.operand(&src)).arg(&dst) };
        let running = run.start();
        let writer = if push { remote.wait_for_id() } else { running.id() };
        let is_first_there = || fs::read(scratch.at("all/dst/a")).is_ok_and(|a| a == b"new content");
        let caught = catch(writer, || is_first_there() && !scratch.at("all/dst/z").exists());
        if caught {
            send(remote.wait_for_id(), Signal::KILL);
            send(writer, Signal::CONT);
        }
        let outcome = running.wait();
        (caught && outcome.stderr_text().contains("reconnecting (1 of 5)")).then_some(outcome)
    })
}

#[test]
fn a_backup_is_made_once_also_of_a_file_that_is_written_in_each_session() {
    needs_dsync!();
    // On another filesystem a backup is a copy.
    let far = Scratch::under(Path::new("/dev/shm"));
    let there = format!("--backup-dir={}", far.at("bk").display());
    for (options, backup) in [
        (&["-r", "-b"][..], "dst/a~"),
        (&["-a", "-I", "--backup-dir=../bk"], "bk/a"),
        (&["-a", "-I", &there], "far"),
        (&["-a", "-I", "--inplace", "-b"], "dst/a~"),
    ] {
        for (via, push) in [(Via::Ssh, true), (Via::Ssh, false), (Via::Quic, true), (Via::Tls, false)] {
            let scratch = Scratch::new();
            let outcome = run_on(&scratch, via, options, push).expect_code(0);
            let what = format!("{options:?} {via:?} push={push}\n{}", outcome.account());
            let all = |path: &str| scratch.at("all").join(path);
            let backup = if backup == "far" { far.at("bk/a") } else { all(backup) };
            let found = [backup, all("dst/a")].map(|path| fs::read_to_string(path).unwrap());
            assert_eq!(found, ["old", "new content"], "{what}");
        }
    }
}

#[test]
fn no_more_than_the_limit_is_deleted_over_several_connections() {
    needs_dsync!();
    for push in [true, false] {
        let scratch = Scratch::new();
        let options = &["-a", "--delete-before", "--max-delete=1"];
        let outcome = run_on(&scratch, Via::Ssh, options, push).expect_code(25);
        let what = format!("push={push}\n{}", outcome.account());
        // Of the directory and the file in it one went, whichever session it was.
        assert!(scratch.at("all/dst/gone").exists() && !scratch.at("all/dst/gone/x").exists(), "{what}");
        assert!(
            outcome
                .stderr_text()
                .contains("--max-delete=1 when the connection was lost: 1 deletion not made"),
            "{what}"
        );

        let options = &["-a", "--delete", "--max-delete=2", "--delete-all-or-nothing"];
        let outcome = run_on(&scratch, Via::Ssh, options, push).expect_code(25);
        let what = format!("push={push}\n{}", outcome.account());
        assert!(scratch.at("all/dst/gone/x").exists(), "{what}");
        assert!(
            outcome.stderr_text().contains("when the connection was lost: 2 deletions not made"),
            "{what}"
        );
        // The next run is another one.
        let mut again = Run::dsync().args(*options);
        again = again.arg(slash(&scratch.at("all/src"))).arg(scratch.at("all/dst"));
        let _ = again.run().expect_code(0);
        assert!(!scratch.at("all/dst/gone").exists());
    }
}
