//! `--delay-updates`: every name is old until all content has arrived, then all of them are new.

use std::{fs, os::unix::fs::MetadataExt, path::Path};

use dsync_tests::{
    Node, Run, Scope, Scratch, Sshd, Tree, Via, assert_same,
    compare::temporaries,
    needs_dsync,
    program::program,
    run::{catch, send, until_met},
    scratch::slash,
    strace, survey,
    tree::set_mtime,
    unfinished::finished_segments,
};
use rustix::process::Signal;

/// Makes files of several directories, links and other types; `state` is part of all of them.
fn tree(state: u64) -> Tree {
    let mtime = (1_300_000_000 + i64::try_from(state).unwrap(), 0);
    let dirs = (0..3).map(move |dir| Node { mtime, ..Node::dir(format!("d{dir}")) });
    let small = (0..30_u64).map(move |index| Node {
        mtime,
        ..Node::file(format!("d{}/f{index}", index % 3), state * 100 + index, 3000 + index)
    });
    let large = Node { mtime, ..Node::file("large", state, 9 << 20) };
    let link = Node::symlink("link", if state == 1 { "large" } else { "d0" });
    let only = Node::file(format!("only {state}"), state, 50);
    Tree::of(dirs.chain(small).chain([large, link, only]))
}

/// Plants the old tree at the destination, the new one at the source.
fn plant() -> Scratch {
    let scratch = Scratch::new();
    reset(&scratch);
    plant_at(&scratch.src(), 2, "new, and longer");
    scratch
}

/// Restores the old tree at the destination.
fn reset(scratch: &Scratch) {
    let _ = fs::remove_dir_all(scratch.dst());
    plant_at(&scratch.dst(), 1, "old");
}

fn plant_at(dir: &Path, state: u64, linked: &str) {
    tree(state).plant(dir);
    // Two names at both ends, both of them new.
    fs::write(dir.join("d0/first"), linked).unwrap();
    fs::hard_link(dir.join("d0/first"), dir.join("d1/second")).unwrap();
}

fn local(run: Run, scratch: &Scratch, options: &[&str]) -> Run {
    run.args(["-aH", "--delay-updates"]).args(options).arg(slash(&scratch.src())).arg(scratch.dst())
}

/// Returns the content of each name, without temporaries and directories' times.
fn contents(root: &Path) -> Vec<(String, String)> {
    let shown = survey(root).into_iter().map(|(path, facts)| {
        (String::from_utf8_lossy(&path).into_owned(), format!("{:?} {}", facts.content, facts.kind))
    });
    shown.filter(|(path, _)| !path.contains(".dsync-")).collect()
}

#[test]
fn no_name_is_new_before_all_content_is_on_the_disk() {
    needs_dsync!();
    let scratch = plant();
    let calls = "renameat,renameat2,linkat,unlinkat,pwrite64,copy_file_range,ioctl,syncfs";
    let log = scratch.at("trace");
    let (outcome, calls) = strace::watch(calls, &log, |run| local(run, &scratch, &["--delete"]));
    let _ = outcome.expect_code(0);
    let writes =
        |call: &String| ["pwrite64(", "copy_file_range(", "ioctl("].iter().any(|name| call.starts_with(name));
    // The last name in a call is the one that is made or removed.
    let visible = |call: &String| {
        let name = call.split('"').filter(|part| !part.is_empty()).nth_back(1).unwrap_or_default();
        let changes = ["rename", "link", "unlink"].iter().any(|name| call.starts_with(name));
        changes && !name.starts_with(".dsync-")
    };
    let last_write = calls.iter().rposition(writes).expect("a write");
    let first_name = calls.iter().position(visible).expect("a new name");
    assert!(last_write < first_name, "{} comes before {}", calls[first_name], calls[last_write]);
    let synced = calls[last_write..first_name].iter().any(|call| call.starts_with("syncfs("));
    assert!(synced, "{:#?}", &calls[last_write..=first_name]);
    assert_same(&scratch.src(), &scratch.dst(), Scope::full());
}

#[test]
fn run_killed_before_the_first_name_leaves_all_old_and_the_next_one_nothing() {
    needs_dsync!();
    for options in [&["--delete"][..], &["--remove-source-files"], &["-b", "--backup-dir=../kept"]] {
        let scratch = plant();
        let old = contents(&scratch.dst());
        let outcome = local(strace::inject("syncfs", "signal=KILL:when=1"), &scratch, options).run();
        assert_ne!(outcome.code(), Some(0), "{}", outcome.account());
        assert!(temporaries(&scratch.dst()).len() > 30, "the files were not there yet");
        assert_eq!(contents(&scratch.dst()), old);
        let _ = local(Run::dsync(), &scratch, &["--delete"]).run().expect_quiet_success();
        assert_eq!(temporaries(&scratch.dst()), Vec::<String>::new());
        assert_same(&scratch.src(), &scratch.dst(), Scope::full());
    }
}

#[test]
fn updates_are_delayed_in_both_directions_and_moved_files_leave_the_source() {
    needs_dsync!();
    let sshd = Sshd::shared();
    for (push, moves) in [(true, false), (false, false), (true, true), (false, true)] {
        let scratch = plant();
        let wanted = scratch.at("wanted");
        let _ = Run::of("cp").arg("-a").arg(scratch.src()).arg(&wanted).run().expect_code(0);
        let option = if moves { "--remove-source-files" } else { "--delete" };
        let run = sshd.run(Via::Auto).args(["-aH", "--delay-updates", option]);
        let run = if push {
            run.arg(slash(&scratch.src())).arg(sshd.operand(scratch.dst()))
        } else {
            run.arg(sshd.operand(slash(&scratch.src()))).arg(scratch.dst())
        };
        let _ = run.run().expect_code(0);
        if moves {
            fs::remove_file(scratch.dst().join("only 1")).unwrap();
            let left = survey(&scratch.src());
            assert!(left.values().all(|facts| facts.kind == "dir"), "{:?}", left.keys());
        }
        assert_same(&wanted, &scratch.dst(), Scope { dir_times: !moves, root: !moves, ..Scope::full() });
        let inode = |name: &str| fs::metadata(scratch.dst().join(name)).unwrap().ino();
        assert_eq!(inode("d0/first"), inode("d1/second"));
    }
}

#[test]
fn interrupted_run_changes_no_name_and_leaves_nothing() {
    needs_dsync!();
    let sshd = Sshd::shared();
    let scratch = plant();
    Tree::of([Node::file("z huge", 3, 64 << 20)]).plant(&scratch.src());
    let old = contents(&scratch.dst());
    let outcome = until_met(|| {
        reset(&scratch);
        let run = sshd.run(Via::Ssh).args(["-aH", "--delay-updates", "--bwlimit=32m"]);
        let running = run.arg(sshd.operand(slash(&scratch.src()))).arg(scratch.dst()).start();
        let caught = catch(running.id(), || temporaries(&scratch.dst()).len() > 30);
        running.signal(Signal::INT);
        running.signal(Signal::CONT);
        let outcome = running.wait();
        (caught && outcome.code() != Some(0)).then_some(outcome)
    });
    let _ = outcome.expect_code(20);
    assert_eq!(temporaries(&scratch.dst()), Vec::<String>::new());
    assert_eq!(contents(&scratch.dst()), old);
}

#[test]
fn no_directory_is_held_open_for_what_waits() {
    needs_dsync!();
    let scratch = Scratch::new();
    let dirs = (0..400)
        .flat_map(|index| [Node::dir(format!("d{index}")), Node::file(format!("d{index}/f"), index, 100)]);
    Tree::of(dirs).plant(&scratch.src());
    let _ = local(Run::of("prlimit").arg("--nofile=512").arg(program()), &scratch, &[]).run().expect_code(0);
    assert_same(&scratch.src(), &scratch.dst(), Scope::full());
}

/// Makes a slow pull that loses its connection while a large file arrives, when all others wait.
fn broken_off(scratch: &Scratch) {
    let sshd = Sshd::shared();
    Tree::of([Node::file("z huge", 3, HUGE)]).plant(&scratch.src());
    let outcome = until_met(|| {
        reset(scratch);
        let remote = sshd.remote();
        let run = sshd.run_serving(Via::Ssh, &remote.script).args(["-aH", "--delay-updates"]);
        let run = run.args(["--bwlimit=32m", "--no-compress", "--retries=0"]);
        let running = run.arg(sshd.operand(slash(&scratch.src()))).arg(scratch.dst()).start();
        let caught = catch(running.id(), || {
            temporaries(&scratch.dst()).len() > 32 && (1..12).contains(&finished_segments(&scratch.dst()))
        });
        if caught {
            send(remote.wait_for_id(), Signal::KILL);
            running.signal(Signal::CONT);
        }
        let outcome = running.wait();
        caught.then_some(outcome)
    });
    assert!(matches!(outcome.code(), Some(10 | 12 | 30)), "{}", outcome.account());
}

const HUGE: u64 = 64 << 20;

#[test]
fn what_waited_when_the_connection_was_lost_is_not_sent_again() {
    needs_dsync!();
    for options in
        [&["--delay-updates", "--delete"][..], &["--delete"], &["--delay-updates", "-I", "--delete"]]
    {
        let scratch = plant();
        let old = contents(&scratch.dst());
        broken_off(&scratch);
        assert_eq!(contents(&scratch.dst()), old);
        let left = temporaries(&scratch.dst());
        let done = left.iter().filter(|name| name.contains(".dsync-done-")).count();
        assert!(done >= 30 && left.iter().all(|name| !name.contains("-tmp-")), "{left:?}");
        // One of them no longer equals the source's.
        fs::write(scratch.src().join("d0/f0"), "changed since").unwrap();
        let sshd = Sshd::shared();
        let run = sshd.run(Via::Ssh).args(["-aH", "--stats", "--no-W"]).args(options);
        let outcome = run.arg(sshd.operand(slash(&scratch.src()))).arg(scratch.dst()).run().expect_code(0);
        assert_same(&scratch.src(), &scratch.dst(), Scope::full());
        assert_eq!(temporaries(&scratch.dst()), Vec::<String>::new());
        // If times count for nothing, what waited is sent again; of the file that was under way whole
        // segments of 1 MiB are left in any case.
        let taken_up = outcome.stat("Matched data") % (1 << 20);
        assert_eq!(taken_up > 80_000, !options.contains(&"-I"), "{taken_up}\n{}", outcome.account());
    }
}

#[test]
fn what_waited_is_taken_up_only_if_it_is_the_sources_to_the_nanosecond() {
    needs_dsync!();
    let day = (86_400 * 400, 0);
    for options in [&["--size-only"][..], &["--modify-window=99999999"], &["--size-only", "--delay-updates"]]
    {
        let scratch = plant();
        broken_off(&scratch);
        let file = scratch.src().join("d0/f0");
        // Of the same size, as a database that was written to is.
        let mut content = fs::read(&file).unwrap();
        content.iter_mut().for_each(|byte| *byte ^= 1);
        fs::write(&file, &content).unwrap();
        set_mtime(&file, day);
        fs::remove_file(scratch.dst().join("d0/f0")).unwrap_or_default();
        let run = Run::dsync().args(["-aH", "--delete"]).args(options);
        let outcome = run.arg(slash(&scratch.src())).arg(scratch.dst()).run().expect_code(0);
        assert!(
            fs::read(scratch.dst().join("d0/f0")).unwrap() == content,
            "{options:?}\n{}",
            outcome.account()
        );
        assert_eq!(temporaries(&scratch.dst()), Vec::<String>::new());
    }
}
