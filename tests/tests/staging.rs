//! The place of new content until it has its name, and the leftovers of a run that ends early.

use std::{
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink},
    path::{Path, PathBuf},
};

use dsync_tests::{
    Node, Run, Scope, Scratch, Sshd, Tree, Via, assert_same,
    mount::Mount,
    needs_dsync, program,
    run::{catch, send, until_met, wait_for},
    scratch::slash,
    skip, strace,
    unfinished::{SEGMENT, finished_segments, hidden, kept},
};
use rustix::process::Signal;

const FILE_LEN: u64 = 64 << 20;

/// Plants a file of 64 segments in a directory.
fn plant_large(scratch: &Scratch) {
    Tree::of([Node::dir("sub"), Node::file("sub/large", 7, FILE_LEN)]).plant(&scratch.src());
}

/// Pulls, or pushes, over ssh.
fn transfer(scratch: &Scratch, push: bool, options: &[&str]) -> Run {
    transfer_serving(scratch, push, program(), options)
}

/// Makes the same run with another program at the remote end.
fn transfer_serving(scratch: &Scratch, push: bool, remote: &Path, options: &[&str]) -> Run {
    let sshd = Sshd::shared();
    let run = sshd.run_serving(Via::Ssh, remote).args(["-a", "--stats"]).args(options);
    if push {
        run.arg(slash(&scratch.src())).arg(sshd.operand(scratch.dst()))
    } else {
        run.arg(sshd.operand(slash(&scratch.src()))).arg(scratch.dst())
    }
}

/// Interrupts a slow transfer after a third of the file is finished in `parts`.
fn interrupted(scratch: &Scratch, push: bool, options: &[&str], parts: &Path) {
    let sshd = Sshd::shared();
    let outcome = until_met(|| {
        let _ = fs::remove_dir_all(scratch.dst());
        let remote = sshd.remote();
        let run = transfer_serving(scratch, push, &remote.script, &[&["--bwlimit=32m"], options].concat());
        let running = run.start();
        // Stopped while it writes.
        let writer = if push { remote.wait_for_id() } else { running.id() };
        let caught = catch(writer, || (6..16).contains(&finished_segments(parts)));
        running.signal(Signal::INT);
        send(writer, Signal::CONT);
        let outcome = running.wait();
        remote.wait_until_gone();
        (caught && outcome.code() != Some(0)).then_some(outcome)
    });
    let _ = outcome.expect_code(20);
    // The far end reacts a moment later.
    wait_for(|| hidden(parts) == 2);
}

/// Completes the transfer, for which little must be sent.
fn taken_up(scratch: &Scratch, push: bool, options: &[&str]) {
    let outcome = transfer(scratch, push, options).run().expect_code(0);
    assert_same(&scratch.src(), &scratch.dst(), Scope::full());
    let literal = outcome.stat("Literal data");
    assert!(literal <= FILE_LEN - 6 * SEGMENT, "{literal} bytes came again\n{}", outcome.account());
    // The part that was there counts as matched.
    assert_eq!(literal + outcome.stat("Matched data"), FILE_LEN, "{}", outcome.account());
}

#[test]
fn unfinished_files_wait_in_a_directory_beside_their_targets() {
    needs_dsync!();
    for push in [true, false] {
        let scratch = Scratch::new();
        plant_large(&scratch);
        let options = &["--partial-dir=.parts"];
        let parts = scratch.dst().join("sub/.parts");
        interrupted(&scratch, push, options, &parts);
        assert_eq!(fs::metadata(&parts).unwrap().mode() & 0o7777, 0o700);
        assert_eq!(hidden(&scratch.dst().join("sub")), 0, "something is beside the target");
        // `--delete` does not remove it; it vanishes with its last entry.
        taken_up(&scratch, push, &["--partial-dir=.parts", "--delete"]);
        assert!(!parts.exists());
    }
}

#[test]
fn unfinished_files_wait_in_a_directory_of_their_own() {
    needs_dsync!();
    let (scratch, parts) = (Scratch::new(), Scratch::new());
    plant_large(&scratch);
    let parts = parts.at("made");
    let option = format!("--partial-dir={}", parts.display());
    interrupted(&scratch, true, &[&option], &parts);
    assert_eq!(fs::read_dir(scratch.dst().join("sub")).unwrap().count(), 0);
    taken_up(&scratch, true, &[&option]);
    assert_eq!(fs::read_dir(&parts).unwrap().count(), 0, "something is left");
}

/// Mounts a memory filesystem; returns `None` with the test recorded as skipped.
fn other_filesystem(scratch: &Scratch) -> Option<(Mount, PathBuf)> {
    let at = scratch.at("other");
    fs::create_dir(&at).unwrap();
    let mount = Mount::tmpfs(&at, "size=200m");
    if mount.is_none() {
        skip::record(skip::Reason::NeedsLoop);
    }
    mount.map(|mount| (mount, at))
}

#[test]
fn unfinished_files_wait_on_another_filesystem() {
    needs_dsync!();
    let scratch = Scratch::new();
    plant_large(&scratch);
    let Some((_mount, other)) = other_filesystem(&scratch) else { return };
    let option = format!("--partial-dir={}", other.display());
    interrupted(&scratch, false, &[&option], &other);
    taken_up(&scratch, false, &[&option]);
    assert_eq!(hidden(&other), 0);
}

#[test]
fn link_in_the_place_of_a_directory_of_unfinished_files_is_not_followed() {
    needs_dsync!();
    let scratch = Scratch::new();
    plant_large(&scratch);
    let outside = scratch.at("outside");
    fs::create_dir(&outside).unwrap();
    fs::create_dir_all(scratch.dst().join("sub")).unwrap();
    symlink(&outside, scratch.dst().join("sub/.parts")).unwrap();
    let before = fs::metadata(&outside).unwrap();
    let _ = transfer(&scratch, true, &["--partial-dir=.parts"]).run().expect_code(0);
    let after = fs::metadata(&outside).unwrap();
    assert_eq!((before.mtime(), before.mtime_nsec()), (after.mtime(), after.mtime_nsec()));
    assert!(fs::symlink_metadata(scratch.dst().join("sub/.parts")).unwrap().is_symlink());
    fs::remove_file(scratch.dst().join("sub/.parts")).unwrap();
    assert_same(&scratch.src(), &scratch.dst(), Scope { dir_times: false, ..Scope::full() });
}

#[test]
fn empty_directory_of_unfinished_files_is_removed_by_the_next_run() {
    needs_dsync!();
    let scratch = Scratch::new();
    Tree::of([Node::dir("sub"), Node::file("sub/f", 7, 70)]).plant(&scratch.src());
    let parts = scratch.dst().join("sub/.parts");
    fs::create_dir_all(&parts).unwrap();
    // As a run makes it. A directory that others may enter belongs to somebody else and stays.
    dsync_tests::tree::set_mode(&parts, 0o700);
    let run =
        || Run::dsync().args(["-a", "--partial-dir=.parts"]).arg(slash(&scratch.src())).arg(scratch.dst());
    let _ = run().arg("-n").run().expect_code(0);
    assert!(parts.exists(), "a dry run removed it");
    let _ = run().run().expect_code(0);
    assert_same(&scratch.src(), &scratch.dst(), Scope::full());
}

#[test]
fn temporaries_are_in_their_directory_and_unfinished_files_stay_there() {
    needs_dsync!();
    let scratch = Scratch::new();
    plant_large(&scratch);
    let Some((_mount, other)) = other_filesystem(&scratch) else { return };
    for (push, dir) in [(true, scratch.at("temporaries")), (false, other)] {
        fs::create_dir_all(&dir).unwrap();
        let _ = fs::remove_dir_all(scratch.dst());
        let option = format!("--temp-dir={}", dir.display());
        interrupted(&scratch, push, &[&option, "--partial"], &dir);
        assert_eq!(fs::read_dir(scratch.dst().join("sub")).unwrap().count(), 0);
        taken_up(&scratch, push, &[&option]);
        assert_eq!(fs::read_dir(&dir).unwrap().count(), 0, "something is left");
    }
}

/// Plants a source of one file; returns a directory for temporaries that already holds another
/// user's.
fn plant_shared(scratch: &Scratch) -> PathBuf {
    Tree::of([Node::file("f", 7, 3 << 20)]).plant(&scratch.src());
    let shared = scratch.at("shared");
    Tree::of([Node::file("theirs", 1, 10), Node::file(".dsync-tmp-1", 2, 20)]).plant(&shared);
    shared
}

#[test]
fn temporary_of_a_killed_run_is_removed_by_the_next_and_nothing_else() {
    needs_dsync!();
    let scratch = Scratch::new();
    let shared = plant_shared(&scratch);
    let option = format!("-T{}", shared.display());
    let finish = |run: Run| run.args(["-a", &option]).arg(slash(&scratch.src())).arg(scratch.dst()).run();
    let killed = finish(strace::inject("copy_file_range,pwrite64", "signal=KILL:when=1"));
    assert!(killed.code().is_none_or(|code| code == 137), "{}", killed.account());
    assert_eq!(fs::read_dir(&shared).unwrap().count(), 3, "the temporary was elsewhere");
    let _ = finish(Run::dsync()).expect_quiet_success();
    assert_eq!(fs::read_dir(&shared).unwrap().count(), 2);
    assert_same(&scratch.src(), &scratch.dst(), Scope::full());
}

#[test]
fn runs_that_share_a_directory_leave_each_other_alone() {
    needs_dsync!();
    let scratch = Scratch::new();
    let shared = plant_shared(&scratch);
    let option = format!("-T{}", shared.display());
    Tree::of([Node::file("large", 9, 16 << 20)]).plant(&scratch.at("large/src"));
    let slow = until_met(|| {
        let _ = fs::remove_dir_all(scratch.at("large/dst"));
        let slow = Sshd::shared().run(Via::Ssh).args(["-a", "--no-partial", "--bwlimit=16m", &option]);
        let from = Sshd::shared().operand(slash(&scratch.at("large/src")));
        let slow = slow.arg(from).arg(scratch.at("large/dst")).start();
        // Stopped while the other run comes and goes. Before its temporary has a length it may not
        // be locked, and would be made again.
        let length = |path: PathBuf| fs::metadata(path).map_or(0, |found| found.len());
        let caught = catch(slow.id(), || kept(&shared, ".dsync-away-").map(length) > Some(0));
        if caught {
            return Some(slow);
        }
        let _ = slow.wait().expect_code(0);
        None
    });
    let run = Run::dsync().args(["-a", &option]).arg(slash(&scratch.src())).arg(scratch.dst());
    let _ = run.run().expect_quiet_success();
    assert_eq!(fs::read_dir(&shared).unwrap().count(), 3, "the other run's temporary is gone");
    slow.signal(Signal::CONT);
    let _ = slow.wait().expect_code(0);
    assert_same(&scratch.at("large/src"), &scratch.at("large/dst"), Scope::full());
    assert_eq!(fs::read_dir(&shared).unwrap().count(), 2);
}

#[test]
fn directory_of_temporaries_in_the_destination_is_not_removed() {
    needs_dsync!();
    let scratch = Scratch::new();
    Tree::of([Node::dir("sub"), Node::file("sub/f", 7, 70)]).plant(&scratch.src());
    for timing in ["--delete-before", "--delete-during", "--delete-after"] {
        let _ = fs::remove_dir_all(scratch.dst());
        Tree::of([Node::dir("tmp"), Node::file("tmp/theirs", 1, 1), Node::file("gone", 1, 1)])
            .plant(&scratch.dst());
        let run = Run::dsync().args(["-a", timing, "--temp-dir=tmp"]).arg(slash(&scratch.src()));
        let _ = run.arg(scratch.dst()).run().expect_quiet_success();
        assert!(scratch.dst().join("tmp/theirs").exists() && !scratch.dst().join("gone").exists());
        fs::remove_dir_all(scratch.dst().join("tmp")).unwrap();
        assert_same(&scratch.src(), &scratch.dst(), Scope { root: false, ..Scope::full() });
    }
}

#[test]
fn temporary_that_cannot_move_to_its_directory_is_a_file_that_cannot_be_written() {
    needs_dsync!();
    let scratch = Scratch::new();
    for dir in [scratch.src(), scratch.dst(), scratch.at("temporaries")] {
        fs::create_dir_all(&dir).unwrap();
    }
    fs::write(scratch.src().join("file"), "new").unwrap();
    fs::write(scratch.dst().join("file"), "old content").unwrap();
    // Another user may write in the temporaries' directory, but not in the destination.
    fs::set_permissions(scratch.at("."), fs::Permissions::from_mode(0o755)).unwrap();
    chown(scratch.at("temporaries"), Some(65534), Some(65534)).unwrap();

    let option = format!("--temp-dir={}", scratch.at("temporaries").display());
    let run = Run::dsync().args(["-rt", &option]).arg(slash(&scratch.src())).arg(scratch.dst());
    let outcome = run.as_user(65534, 65534).run().expect_code(23);
    let told = outcome.stderr_text();
    assert!(told.contains("cannot write 'file': Permission denied"), "{}", outcome.account());
    assert_eq!(fs::read(scratch.dst().join("file")).unwrap(), b"old content");
    assert_eq!(fs::read_dir(scratch.at("temporaries")).unwrap().count(), 0, "something is left");
}
