//! Runs that are killed, and what the next command makes of what they have left: half-written files with
//! their notes and backups, temporaries.

use std::{
    fs::{self, Permissions},
    os::unix::fs::{MetadataExt, PermissionsExt},
};

use dsync_tests::{
    Node, Run, Scope, Scratch, Sshd, Tree, Via, assert_same, compare::temporaries, mount::Mount, needs_dsync,
    scratch::slash, strace, survey, tree, unfinished,
};

/// Rewrites `f` in place with a backup, locally or as a pull.
fn rewriting(scratch: &Scratch, pulls: bool, options: &[&str]) -> Run {
    if pulls {
        let sshd = Sshd::shared();
        let from = sshd.operand(slash(&scratch.src()));
        return sshd.run(Via::Ssh).args(options).arg(from).arg(scratch.dst()).cwd(scratch.path());
    }
    Run::dsync().args(options).args(["src/", "dst/"]).cwd(scratch.path())
}

fn plant_content(scratch: &Scratch, seed: u64, size: u64, old: bool) {
    let (root, mtime) = if old { (scratch.dst(), 1_200_000_000) } else { (scratch.src(), 1_600_000_000) };
    let mtime = (mtime + i64::try_from(seed).unwrap(), 0);
    Tree::of([Node { mtime, ..Node::file("f", seed, size) }]).plant(&root);
}

#[test]
fn what_a_killed_run_half_rewrote_takes_no_backups_place() {
    needs_dsync!();
    let calls =
        "pwrite64,copy_file_range,ftruncate,fsync,fdatasync,syncfs,renameat,renameat2,unlinkat,utimensat";
    for (pulls, options, backup) in [
        (false, &["-ab", "--inplace"][..], "dst/f~"),
        (false, &["-a", "--inplace", "--backup-dir=../kept"], "kept/f"),
        (false, &["-ab", "--append"], "dst/f~"),
        (true, &["-ab", "--inplace"], "dst/f~"),
        (true, &["-a", "--inplace", "--backup-dir=../kept", "--fsync"], "kept/f"),
    ] {
        for when in 1..24 {
            let scratch = Scratch::new();
            let appends = options.contains(&"--append");
            let old_size = if appends { 400_000 } else { 3_000_000 };
            plant_content(&scratch, 1, old_size, true);
            plant_content(&scratch, if appends { 1 } else { 2 }, 3_100_000, false);
            let content = |path: &str| fs::read(scratch.at(path)).unwrap_or_default();
            let old = content("dst/f");

            let killed = rewriting(&scratch, pulls, options);
            let killed = strace::inject_into(killed, calls, &format!("signal=KILL:when={when}")).run();
            let what = format!("{pulls} {options:?}: call {when} was the last\n{}", killed.account());
            let _ = rewriting(&scratch, pulls, options).run().expect_code(0);
            assert!(content(backup) == old, "the backup is another\n{what}");
            assert!(content("dst/f") == content("src/f"), "{what}");
            assert_eq!(temporaries(scratch.path()), Vec::<String>::new(), "{what}");

            // The next change has its own backup.
            let second = content("dst/f");
            plant_content(&scratch, if appends { 1 } else { 3 }, 3_200_000, false);
            let _ = rewriting(&scratch, pulls, options).run().expect_code(0);
            assert!(content(backup) == second && content("dst/f") == content("src/f"), "{what}");
        }
    }
}

#[test]
fn a_half_rewritten_file_is_made_whole_whatever_its_size_and_time_are() {
    needs_dsync!();
    let calls = "pwrite64,copy_file_range,ftruncate,fsync,fdatasync,syncfs,utimensat";
    let at_any = (1..16).map(|when| (calls, when)).collect::<Vec<_>>();
    // Once all is added, `--append` passes over the file, whose attributes are not set yet.
    let at_last = [("fdatasync", 1), ("syncfs", 1), ("syncfs", 2), ("utimensat", 2)];
    for (pulls, options) in [
        (false, &["-au", "--inplace"][..]),
        (false, &["-a", "--size-only", "--inplace"]),
        (true, &["-au", "--inplace"]),
        (true, &["-rp", "--size-only", "--inplace", "--no-whole-file"]),
        (false, &["-aub", "--inplace"]),
        (false, &["-au", "--append"]),
        (true, &["-au", "--append"]),
        (false, &["-a", "--append"]),
        (true, &["-a", "--append"]),
        (true, &["-a", "--append-verify"]),
    ] {
        let adds_only = options[0] == "-a" && options[1].starts_with("--append");
        for &(calls, when) in if adds_only { &at_last[..] } else { &at_any } {
            let scratch = Scratch::new();
            let appends = options.iter().any(|option| option.starts_with("--append"));
            let by_size = options.contains(&"--size-only");
            plant_content(&scratch, 1, if appends { 400_000 } else { 3_000_000 }, true);
            let size = if by_size { 3_000_001 } else { 3_000_000 };
            plant_content(&scratch, if appends { 1 } else { 2 }, size, false);
            fs::set_permissions(scratch.at("src/f"), Permissions::from_mode(0o640)).unwrap();
            let killed = rewriting(&scratch, pulls, options);
            let killed = strace::inject_into(killed, calls, &format!("signal=KILL:when={when}")).run();
            let what = format!("{pulls} {options:?}: {calls} {when} was the last\n{}", killed.account());
            let _ = rewriting(&scratch, pulls, options).run().expect_code(0);
            let content = |path: &str| fs::read(scratch.at(path)).unwrap();
            assert!(content("dst/f") == content("src/f"), "{what}");
            let facts = |path: &str| fs::metadata(scratch.at(path)).unwrap();
            let (ours, theirs) = (facts("dst/f"), facts("src/f"));
            assert_eq!(ours.mode(), theirs.mode(), "{what}");
            assert!(by_size || ours.mtime() == theirs.mtime(), "the time is another\n{what}");
            assert_eq!(temporaries(scratch.path()), Vec::<String>::new(), "{what}");
            // A file that somebody else has made newer stays.
            if options.contains(&"-au") {
                fs::write(scratch.at("dst/f"), "newer").unwrap();
                let _ = rewriting(&scratch, pulls, options).run().expect_code(0);
                assert_eq!(content("dst/f"), b"newer", "{what}");
            }
        }
    }
}

/// Kills runs of `first` until one leaves a note, and `dst/f` with its time if it is to be `whole`, without
/// otherwise.
fn kill_rewriting(scratch: &Scratch, first: &[&str], whole: bool) {
    // strace counts the calls of each thread, and the last one is the note's end.
    let calls = if whole { "unlinkat" } else { "pwrite64,copy_file_range,ftruncate,fdatasync,utimensat" };
    let is_left = (1..24).any(|when| {
        for dir in ["dst", "bk"] {
            let _ = fs::remove_dir_all(scratch.at(dir));
        }
        plant_content(scratch, 1, 3_000_000, true);
        plant_content(scratch, 2, 3_000_000, false);
        let killed = rewriting(scratch, false, first);
        let killed = strace::inject_into(killed, calls, &format!("signal=KILL:when={when}")).run();
        let time = |path: &str| fs::metadata(scratch.at(path)).unwrap().modified().unwrap();
        let has_note = unfinished::kept(&scratch.dst(), ".dsync-note-").is_some();
        killed.code().is_none() && has_note && (time("dst/f") == time("src/f")) == whole
    });
    assert!(is_left, "{first:?}: no run left what is wanted");
}

#[test]
fn the_note_of_a_file_that_is_whole_again_says_nothing_of_a_later_edit() {
    needs_dsync!();
    for first in [&["-ab", "--inplace"][..], &["-au", "--inplace"]] {
        for second in [first, &["-a", "--inplace"], &["-a"], &["-a", "--delete"], &["-ac"]] {
            // Half written, or whole but for the end of its note.
            for whole in [false, true] {
                let scratch = Scratch::new();
                kill_rewriting(&scratch, first, whole);
                let dst = |name: &str| scratch.dst().join(name);
                // Whatever has made the file whole, the run after it finds it so.
                let _ = rewriting(&scratch, false, second).run().expect_code(0);
                let _ = rewriting(&scratch, false, &["-a"]).run().expect_code(0);
                let what = format!("{first:?} {second:?} {whole}");
                assert!(fs::read(dst("f")).unwrap() == fs::read(scratch.src().join("f")).unwrap(), "{what}");
                assert_eq!(temporaries(&scratch.dst()), Vec::<String>::new(), "{what}");

                fs::write(dst("f"), "edit").unwrap();
                let _ = rewriting(&scratch, false, first).run().expect_code(0);
                let edit = if first.contains(&"-ab") { "f~" } else { "f" };
                assert_eq!(fs::read(dst(edit)).unwrap(), b"edit", "{what}");
            }
        }
    }
}

#[test]
fn a_half_rewritten_file_is_made_whole_by_a_run_of_another_kind() {
    needs_dsync!();
    for first in [&["-a", "--inplace"][..], &["-au", "--inplace"], &["-ab", "--inplace"]] {
        for second in [
            &["-au"][..],
            &["-a", "--size-only"],
            &["-rlpgo", "--size-only"],
            &["-au", "--inplace"],
            &["-a", "--size-only", "--inplace"],
            &["-au", "--delay-updates"],
            &["-au", "--append"],
        ] {
            for pulls in [false, true] {
                let scratch = Scratch::new();
                kill_rewriting(&scratch, first, false);
                // Names on both sides of those of notes.
                for name in ["+", ".a", ".e", "g"] {
                    Tree::of([Node::file(name, 7, 10)]).plant(&scratch.src());
                    Tree::of([Node::file(name, 7, 10)]).plant(&scratch.dst());
                }
                let _ = rewriting(&scratch, pulls, second).run().expect_code(0);
                let what = format!("{first:?} {second:?} {pulls}");
                let content = |path: &str| fs::read(scratch.at(path)).unwrap();
                assert!(content("dst/f") == content("src/f"), "{what}");
                // The note of a file that another took the place of goes with the run after that.
                let _ = rewriting(&scratch, pulls, second).run().expect_code(0);
                assert_eq!(temporaries(&scratch.dst()), Vec::<String>::new(), "{what}");
            }
        }
    }
}

#[test]
fn the_note_of_a_half_written_file_stays_until_a_run_writes_it() {
    needs_dsync!();
    for first in
        [&["-ab", "--inplace"][..], &["-au", "--inplace"], &["-aub", "--inplace", "--backup-dir=../bk"]]
    {
        let between = [&["--delete", "--exclude=f"][..], &["--delete", "--max-size=1K"], &["--exclude=f"]];
        for options in between {
            let scratch = Scratch::new();
            plant_content(&scratch, 1, 3_000_000, true);
            let old = fs::read(scratch.dst().join("f")).unwrap();
            kill_rewriting(&scratch, first, false);
            let _ = rewriting(&scratch, false, &[first, options].concat()).run().expect_code(0);
            let _ = rewriting(&scratch, false, first).run().expect_code(0);
            let what = format!("{first:?} {options:?}");
            let content = |path: &str| fs::read(scratch.at(path)).ok();
            assert!(content("dst/f") == content("src/f"), "{what}");
            let backup = [content("dst/f~"), content("bk/f")].into_iter().flatten().next();
            assert!(backup.is_none() || backup == Some(old), "the backup is another: {what}");
            assert_eq!(temporaries(scratch.path()), Vec::<String>::new(), "{what}");
        }
    }
}

#[test]
fn what_a_killed_run_left_is_no_entry_of_the_directory_that_it_is_in() {
    needs_dsync!();
    for (becomes_file, options) in [
        (false, &["-a", "--delete"][..]),
        (false, &["-ab", "--delete"]),
        (false, &["-a", "--delete", "-b", "--backup-dir=../bk"]),
        (true, &["-a"]),
        (true, &["-ab"]),
        (true, &["-a", "-b", "--backup-dir=../bk"]),
        (true, &["-ab", "--delete"]),
        (true, &["-a", "--force"]),
    ] {
        let scratch = Scratch::new();
        let sub = scratch.src().join("sub");
        fs::create_dir(&sub).unwrap();
        fs::write(sub.join("f"), "content").unwrap();
        let run = |run: Run| run.args(["src/", "dst/"]).cwd(scratch.path());
        let killed = run(strace::inject("renameat,renameat2,linkat", "signal=KILL:when=1").arg("-a")).run();
        let left = temporaries(&scratch.dst().join("sub"));
        assert!(killed.code().is_none() && left.len() == 1, "{left:?}\n{}", killed.account());

        fs::remove_dir_all(&sub).unwrap();
        fs::write(scratch.src().join("other"), "other").unwrap();
        if becomes_file {
            fs::write(&sub, "a file").unwrap();
        }
        let dry = run(Run::dsync().args(options).args(["-n", "-i"])).run().expect_code(0);
        let outcome = run(Run::dsync().args(options).arg("-i")).run().expect_code(0);
        let what = format!("{options:?}\n{}", outcome.account());
        assert_eq!(dry.stdout_text(), outcome.stdout_text(), "{what}");
        assert!(!outcome.stdout_text().contains(".dsync-"), "{what}");
        assert_same(&scratch.src(), &scratch.dst(), Scope { dir_times: false, ..Scope::full() });
        assert!(!scratch.at("bk").exists() || survey(&scratch.at("bk")).len() <= 2, "{what}");
        assert_eq!(temporaries(scratch.path()), Vec::<String>::new(), "{what}");
    }
}

#[test]
fn no_temporary_of_a_killed_run_stays_among_backups() {
    needs_dsync!();
    for options in [&["-a", "--backup-dir=../kept"][..], &["-a", "--inplace", "--backup-dir=../kept"]] {
        let scratch = Scratch::new();
        let kept = scratch.at("kept");
        fs::create_dir(&kept).unwrap();
        let Some(_other) = Mount::tmpfs(&kept, "size=8m") else { return };
        plant_content(&scratch, 1, 3_000_000, true);
        plant_content(&scratch, 2, 3_000_000, false);
        fs::create_dir(kept.join("sub")).unwrap();
        let old = fs::read(scratch.at("dst/f")).unwrap();
        // Calls of one thread: the new content may be written before, and by another one.
        let killed = |when: u32| {
            let killed = rewriting(&scratch, false, options);
            let calls = "copy_file_range,pwrite64,fsync";
            strace::inject_into(killed, calls, &format!("signal=KILL:when={when}")).run()
        };
        let left = (1..12).any(|when| killed(when).code().is_none() && !temporaries(&kept).is_empty());
        assert!(left, "{options:?}: no run left a temporary");

        let _ = rewriting(&scratch, false, options).run().expect_quiet_success();
        assert_eq!(temporaries(scratch.path()), Vec::<String>::new());
        assert_eq!(fs::read(kept.join("f")).unwrap(), old);
    }
}

#[test]
fn what_is_changed_after_a_run_that_wrote_nothing_is_backed_up() {
    needs_dsync!();
    for pulls in [false, true] {
        let scratch = Scratch::new();
        plant_content(&scratch, 1, 3_000_000, true);
        plant_content(&scratch, 2, 3_000_000, false);
        let options = &["-a", "--inplace", "--backup-dir=../kept"];
        // The last step before the first write: the setuid bit goes.
        tree::set_mode(&scratch.at("dst/f"), 0o4755);
        let failed = strace::inject_into(rewriting(&scratch, pulls, options), "fchmod", "error=EIO:when=1+");
        let _ = failed.run();
        assert_eq!(fs::metadata(scratch.at("dst/f")).unwrap().mtime(), 1_200_000_001, "nothing was written");
        assert_eq!(temporaries(scratch.path()), Vec::<String>::new());

        fs::write(scratch.at("dst/f"), "mine").unwrap();
        let _ = rewriting(&scratch, pulls, options).run().expect_code(0);
        assert_eq!(fs::read(scratch.at("kept/f")).unwrap(), b"mine");
    }
}
