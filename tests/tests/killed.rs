//! Runs that are killed, and what the next command makes of what they have left: half-written files with
//! their notes and backups, temporaries.

use std::{
    ffi::OsStr,
    fs::{self, Permissions},
    ops::Range,
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
};

use dsync_tests::{
    Node, Outcome, Run, Scope, Scratch, Sshd, Tree, Via, assert_same, compare::temporaries,
    device::LoopDevice, mount::Mount, needs_dsync, run::until_met, scratch::slash, strace, survey, tree,
    unfinished,
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
    plant_named(scratch, "f", (seed, size), old);
}

/// Plants a file of this seed and size: an old one at the destination, or a new one at the source.
fn plant_named(scratch: &Scratch, name: &str, (seed, size): (u64, u64), old: bool) {
    let (root, mtime) = if old { (scratch.dst(), 1_200_000_000) } else { (scratch.src(), 1_600_000_000) };
    let mtime = (mtime + i64::try_from(seed).unwrap(), 0);
    Tree::of([Node { mtime, ..Node::file(name, seed, size) }]).plant(&root);
}

/// Plants one old file with the names `a` and `b`, and a new one with the same names.
fn plant_two_names(scratch: &Scratch, old: (u64, u64), new: (u64, u64)) {
    for (content, is_old, root) in [(old, true, scratch.dst()), (new, false, scratch.src())] {
        plant_named(scratch, "a", content, is_old);
        fs::hard_link(root.join("a"), root.join("b")).unwrap();
    }
}

/// Kills a run at its `when`-th call of these, which each thread counts for itself.
fn killed_at(run: Run, calls: &str, when: u32) -> Outcome {
    strace::inject_into(run, calls, &format!("signal=KILL:when={when}")).run()
}

/// Kills runs of `first` on what `plant` makes, until one leaves `dst/NAME` with neither content.
fn leave_half(scratch: &Scratch, first: &[&str], name: &str, plant: impl Fn()) {
    let is_left = (2..24).any(|when| {
        for dir in ["src", "dst", "bk"] {
            let _ = fs::remove_dir_all(scratch.at(dir));
        }
        plant();
        let content = |root: PathBuf| fs::read(root.join(name)).unwrap();
        let (old, new) = (content(scratch.dst()), content(scratch.src()));
        let killed = killed_at(rewriting(scratch, false, first), "pwrite64,copy_file_range", when);
        let now = content(scratch.dst());
        killed.code().is_none() && now != old && now != new
    });
    assert!(is_left, "{first:?}: no run left {name} half written");
}

/// Leaves `f` half written by a run of `first`.
fn leave_half_f(scratch: &Scratch, first: &[&str]) {
    leave_half(scratch, first, "f", || {
        plant_content(scratch, 1, 3_000_000, true);
        plant_content(scratch, 2, 3_000_000, false);
    });
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
fn the_note_of_a_half_written_file_goes_with_the_file() {
    needs_dsync!();
    for how in [
        &["--delete"][..],
        &["--delete-before"],
        &["--delete-during"],
        &["--delete-delay"],
        &["--delete-after"],
        &["--delete", "--max-delete=1"],
        &["-b", "--backup-dir=../bk", "--delete"],
        &["--delete-missing-args", "--files-from=list"],
    ] {
        for pulls in [false, true] {
            let scratch = Scratch::new();
            kill_rewriting(&scratch, &["-a", "--inplace"], false);
            fs::rename(scratch.src().join("f"), scratch.src().join("g")).unwrap();
            fs::write(scratch.at("list"), "f\ng\n").unwrap();
            let _ = rewriting(&scratch, pulls, &[&["-a", "--inplace"], how].concat()).run().expect_code(0);
            assert!(!scratch.dst().join("f").exists(), "{how:?} {pulls}");
            assert_eq!(temporaries(&scratch.dst()), Vec::<String>::new(), "{how:?} {pulls}");
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

/// Kills runs that rewrite a log, which has the beginning of the source's, until one leaves no beginning of it.
/// A program that writes in ascending order leaves none.
fn leave_no_beginning(scratch: &Scratch, pulls: bool, mut whens: Range<u32>) {
    let _ = whens.any(|when| {
        let _ = fs::remove_dir_all(scratch.dst());
        plant_content(scratch, 1, 1_000_000, true);
        plant_content(scratch, 1, 5_000_000, false);
        let killed = killed_at(rewriting(scratch, pulls, &["-a", "--inplace"]), "pwrite64", when);
        let content = |path: &str| fs::read(scratch.at(path)).unwrap();
        killed.code().is_none() && !content("src/f").starts_with(&content("dst/f"))
    });
}

#[test]
fn a_half_rewritten_log_is_made_whole_by_a_run_that_only_adds() {
    needs_dsync!();
    for second in [
        &["-a", "--append"][..],
        &["-au", "--append"],
        &["-ab", "--append"],
        &["-a", "--append", "--remove-source-files"],
    ] {
        for (pulls, whens, grows) in
            [(false, 1..4, false), (false, 1..4, true), (false, 4..7, true), (true, 12..18, true)]
        {
            let scratch = Scratch::new();
            leave_no_beginning(&scratch, pulls, whens.clone());
            if grows {
                plant_content(&scratch, 1, 5_100_000, false);
            }
            let wanted = fs::read(scratch.at("src/f")).unwrap();

            let _ = rewriting(&scratch, pulls, second).run().expect_code(0);
            let what = format!("{pulls} {whens:?} {grows} {second:?}");
            assert!(fs::read(scratch.at("dst/f")).unwrap() == wanted, "{what}");
            assert_eq!(temporaries(&scratch.dst()), Vec::<String>::new(), "{what}");
        }
    }
}

/// Leaves `f` half written by a run of `first`, with a source that was changed just before. Returns the source's
/// content.
fn leave_half_within_the_window(scratch: &Scratch, first: &[&str]) -> Vec<u8> {
    leave_half_f(scratch, first);
    let begun = fs::metadata(scratch.at("dst/f")).unwrap().mtime();
    tree::set_mtime(&scratch.at("src/f"), (begun - 1, 0));
    fs::read(scratch.at("src/f")).unwrap()
}

#[test]
fn a_half_rewritten_file_within_the_window_of_times_is_made_whole() {
    needs_dsync!();
    for first in [&["-a", "--inplace", "--modify-window=2"][..], &["-ab", "--inplace"]] {
        for second in [
            &["-a", "--modify-window=2"][..],
            &["-au", "--modify-window=2"],
            &["-a", "--modify-window=2", "--inplace"],
            &["-a", "--modify-window=2", "--append"],
            &["-a", "--modify-window=2", "--remove-source-files"],
        ] {
            for (pulls, changes_mode) in [(false, false), (false, true), (true, false)] {
                let scratch = Scratch::new();
                let wanted = leave_half_within_the_window(&scratch, first);
                if changes_mode {
                    tree::set_mode(&scratch.at("src/f"), 0o600);
                }
                let _ = rewriting(&scratch, pulls, second).run().expect_code(0);
                let what = format!("{first:?} {second:?} {pulls} {changes_mode}");
                assert!(fs::read(scratch.at("dst/f")).unwrap() == wanted, "{what}");
                // A note may stay for one further run.
                fs::write(scratch.at("src/other"), "other").unwrap();
                let _ = rewriting(&scratch, pulls, second).run().expect_code(0);
                assert_eq!(temporaries(&scratch.dst()), Vec::<String>::new(), "{what}");
            }
        }
    }
}

#[test]
fn a_half_rewritten_file_within_the_window_of_times_is_no_alternate() {
    needs_dsync!();
    for pulls in [false, true] {
        for alternate in ["--link-dest=../half", "--copy-dest=../half", "--compare-dest=../half"] {
            let scratch = Scratch::new();
            let wanted = leave_half_within_the_window(&scratch, &["-a", "--inplace", "--modify-window=2"]);
            fs::rename(scratch.dst(), scratch.at("half")).unwrap();
            let _ = rewriting(&scratch, pulls, &["-a", "--modify-window=2", alternate]).run().expect_code(0);
            let now = fs::read(scratch.at("dst/f")).unwrap_or_default();
            assert!(now == wanted, "{pulls} {alternate}: {} bytes", now.len());
        }
    }
}

#[test]
fn two_files_in_the_place_of_two_names_are_both_whole_after_a_kill() {
    needs_dsync!();
    for (pulls, counts) in [(false, &[2, 4, 6, 8][..]), (true, &[12])] {
        for first in [&["-au", "--inplace"][..], &["-a", "--size-only", "--inplace"]] {
            let moves = [first, &["--remove-source-files"]].concat();
            for second in [first, &first[..first.len() - 1], &moves] {
                for &when in counts {
                    let scratch = Scratch::new();
                    plant_two_names(&scratch, (1, 3_000_000), (2, 3_000_001));
                    fs::remove_file(scratch.at("src/b")).unwrap();
                    plant_named(&scratch, "b", (3, 3_000_001), false);
                    let wanted = ["a", "b"].map(|name| fs::read(scratch.src().join(name)).unwrap());

                    let killed = killed_at(rewriting(&scratch, pulls, first), "pwrite64", when);
                    let _ = rewriting(&scratch, pulls, second).run().expect_code(0);
                    let what = format!("{pulls} {second:?}: call {when} was the last\n{}", killed.account());
                    for (name, wanted) in ["a", "b"].into_iter().zip(wanted) {
                        assert!(fs::read(scratch.dst().join(name)).unwrap() == wanted, "{name}: {what}");
                    }
                }
            }
        }
    }
}

/// Asserts that the names of the source are whole at the destination, and one file if they are to be.
fn assert_names_whole(scratch: &Scratch, are_one: bool, what: &str) {
    for path in survey(&scratch.src()).keys().filter(|path| !path.is_empty()) {
        let [ours, theirs] = [scratch.dst(), scratch.src()].map(|root| tree::at(&root, path));
        let is_whole = fs::read(&ours).unwrap() == fs::read(theirs).unwrap();
        assert!(is_whole, "{} is not whole: {what}", ours.display());
    }
    if are_one {
        let scope = Scope { dir_times: false, root: false, links: true, ..Scope::full() };
        assert_same(&scratch.src(), &scratch.dst(), scope);
    }
}

/// Leaves one file with two names half written by a run of `first`, and makes a run of `second` for which the
/// source lacks the name `gone`, then one with both names again.
fn rewrite_without(pulls: bool, first: &[&str], second: &[&str], gone: Option<&str>) {
    let scratch = Scratch::new();
    leave_half(&scratch, first, "a", || plant_two_names(&scratch, (1, 3_000_000), (2, 3_000_001)));
    let what = format!("{pulls} {first:?} {second:?} without {gone:?}");
    let run = || rewriting(&scratch, pulls, second).run().expect_code(0);
    if let Some(gone) = gone {
        let elsewhere = scratch.at("elsewhere");
        fs::rename(scratch.src().join(gone), &elsewhere).unwrap();
        let _ = run();
        assert_names_whole(&scratch, false, &what);
        fs::rename(elsewhere, scratch.src().join(gone)).unwrap();
    }
    let _ = run();
    assert_names_whole(&scratch, second[0].contains('H'), &format!("{what}, at the end"));
    // A note may stay for one further run.
    let _ = run();
    assert_eq!(temporaries(&scratch.dst()), Vec::<String>::new(), "{what}");
}

#[test]
fn every_name_of_a_half_rewritten_file_is_made_whole() {
    needs_dsync!();
    // With -u nobody writes into a file of several names, but finds one that is half written.
    let first = &["-aH", "--size-only", "--inplace"];
    for second in [&first[..], &first[..2], &["-aHu", "--inplace"], &["-aHu"], &["-au", "--inplace"]] {
        for (pulls, gone) in [(false, None), (false, Some("a")), (false, Some("b")), (true, Some("a"))] {
            rewrite_without(pulls, first, second, gone);
        }
    }
}

#[test]
fn further_names_of_a_half_rewritten_file_are_linked_to_it_once_it_is_whole() {
    needs_dsync!();
    let first = &["-aH", "--size-only", "--inplace", "--files-from=names"];
    for second in [&["-aH", "--size-only", "--inplace"][..], &["-aHu", "--inplace"], &["-aHu"]] {
        for pulls in [false, true] {
            let scratch = Scratch::new();
            fs::write(scratch.at("names"), "b\n").unwrap();
            leave_half(&scratch, first, "b", || {
                plant_two_names(&scratch, (1, 3_000_000), (2, 3_000_001));
            });
            fs::hard_link(scratch.at("src/a"), scratch.at("src/c")).unwrap();
            let _ = rewriting(&scratch, pulls, second).run().expect_code(0);
            assert_names_whole(&scratch, true, &format!("{second:?} {pulls}"));
        }
    }
}

#[test]
fn a_file_that_took_the_place_of_a_half_rewritten_one_is_its_users_own() {
    needs_dsync!();
    for first in [&["-a", "--inplace"][..], &["-au", "--inplace"], &["-ab", "--inplace"]] {
        for (second, kept) in [
            (&["-au"][..], "dst/f"),
            (&["-au", "--inplace"], "dst/f"),
            (&["-ab", "--inplace"], "dst/f~"),
            (&["-a", "--inplace", "--backup-dir=../bk"], "bk/f"),
        ] {
            for pulls in [false, true] {
                let scratch = Scratch::new();
                leave_half_f(&scratch, first);
                // ext4 gives its inode number to the next file.
                fs::remove_file(scratch.at("dst/f")).unwrap();
                fs::write(scratch.at("dst/f"), "my own work").unwrap();
                let _ = rewriting(&scratch, pulls, second).run().expect_code(0);
                let what = format!("{first:?} {second:?} {pulls}");
                let now = fs::read(scratch.at(kept)).unwrap_or_default();
                assert!(now == b"my own work", "{kept} has {} bytes: {what}", now.len());
            }
        }
    }
}

/// Mounts an image that was just unmounted, so that the number of its filesystem is not `old`. Returns the mount,
/// and a device that takes a number before it; `None`, recorded as a skip, if the process may not.
fn mount_elsewhere(scratch: &Scratch, image: &Path, old: u64) -> Option<(Mount, LoopDevice)> {
    until_met(|| {
        let Some(other) = LoopDevice::create(scratch.path(), "other.img", &[0; 4096]) else {
            return Some(None);
        };
        let options = [OsStr::new("-o"), OsStr::new("loop"), image.as_os_str()];
        let Some(disk) = Mount::with(&options, &scratch.dst()) else { return Some(None) };
        let is_another = fs::metadata(scratch.dst()).unwrap().dev() != old;
        is_another.then_some(Some((disk, other)))
    })
}

#[test]
fn a_half_rewritten_file_is_made_whole_after_its_disk_got_another_number() {
    needs_dsync!();
    for (options, backup) in [
        (&["-au", "--inplace"][..], None),
        (&["-a", "--size-only", "--inplace"], None),
        (&["-ab", "--inplace"], Some("dst/f~")),
    ] {
        let scratch = Scratch::new();
        let Some(disk) = Mount::of_type("ext4", &scratch.dst()) else { return };
        let plant = || {
            plant_content(&scratch, 1, 3_000_000, true);
            plant_content(&scratch, 2, 3_000_001, false);
        };
        leave_half(&scratch, options, "f", plant);
        let number = fs::metadata(scratch.dst()).unwrap().dev();
        drop(disk);
        let Some(_mounts) = mount_elsewhere(&scratch, &scratch.at("dst.img"), number) else { return };

        let _ = rewriting(&scratch, false, options).run().expect_code(0);
        let content = |path: &str| fs::read(scratch.at(path)).unwrap();
        assert!(content("dst/f") == content("src/f"), "{options:?}");
        assert_eq!(temporaries(&scratch.dst()), Vec::<String>::new(), "{options:?}");
        if let Some(backup) = backup {
            plant_content(&scratch, 1, 3_000_000, true);
            assert!(content(backup) == content("dst/f"), "{options:?}: the backup is another");
        }
    }
}

/// Kills runs that back up two names of an old file at these calls, and makes each again.
fn back_up_two_names(pulls: bool, whens: &[u32]) {
    let calls = "pwrite64,copy_file_range,ftruncate,fsync,fdatasync,syncfs,renameat,renameat2,utimensat";
    for (options, dir, suffix, are_two) in [
        (&["-ab", "--inplace"][..], "dst", "~", false),
        (&["-ab", "--inplace"], "dst", "~", true),
        (&["-abH", "--inplace"], "dst", "~", false),
        (&["-a", "--inplace", "--backup-dir=../kept"], "kept", "", false),
        (&["-ab", "--append"], "dst", "~", false),
    ] {
        for when in whens {
            let scratch = Scratch::new();
            let appends = options.contains(&"--append");
            let old = (1, if appends { 400_000 } else { 3_000_000 });
            plant_two_names(&scratch, old, (if appends { 1 } else { 2 }, 3_100_000));
            if are_two {
                fs::remove_file(scratch.at("src/b")).unwrap();
                plant_named(&scratch, "b", (3, 3_100_000), false);
            }
            let old = fs::read(scratch.at("dst/a")).unwrap();

            let killed = killed_at(rewriting(&scratch, pulls, options), calls, *when);
            let _ = rewriting(&scratch, pulls, options).run().expect_code(0);
            let account = killed.account();
            let what = format!("{pulls} {options:?} {are_two}: call {when} was the last\n{account}");
            assert_names_whole(&scratch, false, &what);
            // The second name needs none if it was whole with the first one.
            let backup = |name| fs::read(scratch.at(dir).join(format!("{name}{suffix}"))).ok();
            let backups = [("a", backup("a")), ("b", backup("b"))];
            assert!(backups.iter().any(|(_, found)| found.is_some()), "there is no backup: {what}");
            for (name, found) in backups {
                let found = found.unwrap_or_else(|| old.clone());
                assert!(found == old, "the backup of {name} has {} bytes: {what}", found.len());
            }
        }
    }
}

#[test]
fn the_backups_of_two_names_are_of_the_old_content_after_a_kill() {
    needs_dsync!();
    back_up_two_names(false, &[1, 2, 3, 4, 5, 6, 8, 10]);
}

#[test]
fn the_backups_of_two_names_are_of_the_old_content_after_a_pull_was_killed() {
    needs_dsync!();
    back_up_two_names(true, &[14, 18]);
}

#[test]
fn a_file_that_could_not_be_added_to_is_no_newer_than_before() {
    needs_dsync!();
    let calls = "copy_file_range,pwrite64";
    for first in ["--append", "--append-verify"] {
        // The disk is full, or the run is interrupted and has time to notice it within a call.
        for fault in [
            "error=ENOSPC:when=1+",
            "error=ENOSPC:when=2+",
            "error=ENOSPC:when=4+",
            "signal=TERM:when=2:delay_exit=300000",
        ] {
            let scratch = Scratch::new();
            plant_content(&scratch, 1, 1_000_000, true);
            plant_content(&scratch, 1, 30_000_000, false);
            let failed = rewriting(&scratch, false, &["-a", first]);
            let failed = strace::inject_into(failed, calls, fault).run();
            let _ = rewriting(&scratch, false, &["-au"]).run().expect_code(0);
            let content = |path: &str| fs::read(scratch.at(path)).unwrap();
            let what = format!("{first} {fault}\n{}", failed.account());
            assert!(content("dst/f") == content("src/f"), "{what}");
            assert_eq!(temporaries(&scratch.dst()), Vec::<String>::new(), "{what}");
        }
    }
}
