//! Other programs change both trees while a run goes on: nothing of theirs is lost without a word, and
//! nothing of the run's passes for what it is not.
//!
//! Each change is made at a moment that a run likely reaches, while a large file is on its way. Every order
//! of the two is right as long as the law holds.

use std::{
    fs::{self, OpenOptions},
    io::Write,
    os::unix::fs::{FileExt, MetadataExt, PermissionsExt, chown},
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use dsync_tests::{
    Outcome, Run, Scratch, every_way, needs_dsync, needs_root, run::wait_for, scratch::slash, strace, tree,
};

/// Bytes of a file that takes a slowed run seconds.
const SLOW: usize = 3 << 20;
/// The option that slows a run so.
const SLOWLY: &str = "--bwlimit=1m";
const LONG_AGO: (i64, i64) = (1_600_000_000, 0);

/// Writes a file as a careful program does: beside it, then by a rename.
fn save(path: &Path, text: &str) {
    let beside = path.with_file_name("beside it");
    fs::write(&beside, text).unwrap();
    fs::rename(beside, path).unwrap();
}

/// Returns whether a temporary of a run is in a directory.
fn has_temporary(dir: &Path) -> bool {
    let names = fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.file_name());
    let mut names = names.map(|name| name.to_string_lossy().into_owned());
    // The lock is there before anything is compared.
    names.any(|name| name.starts_with(".dsync-") && !name.starts_with(".dsync-lock-"))
}

/// Runs until `seen` or the end, makes a `change`, and waits for the end.
fn during(run: Run, mut seen: impl FnMut() -> bool, change: impl FnOnce()) -> Outcome {
    let mut running = run.start();
    wait_for(|| seen() || !running.is_running());
    change();
    running.wait()
}

fn read(path: &Path) -> Option<String> {
    fs::read_to_string(path).ok()
}

#[test]
fn further_names_get_the_file_that_the_run_named_and_no_other() {
    needs_dsync!();
    for stood in [false, true] {
        for options in [&["-aH", SLOWLY, "--remove-source-files"][..], &["-aH", SLOWLY]] {
            let scratch = Scratch::new();
            every_way(&scratch, options, |copy, to| {
                let from = scratch.src();
                let _ = fs::remove_dir_all(&from);
                fs::create_dir_all(&from).unwrap();
                fs::create_dir_all(to).unwrap();
                fs::write(from.join("a"), "the only copy of the letter").unwrap();
                fs::hard_link(from.join("a"), from.join("b")).unwrap();
                if stood {
                    let _ = Run::dsync().arg("-aH").arg(slash(&from)).arg(to).run().expect_code(0);
                    fs::remove_file(to.join("b")).unwrap();
                }
                fs::write(from.join("z"), tree::noise(1, SLOW)).unwrap();

                let is_under_way = || to.join("a").exists() && has_temporary(to);
                let outcome = during(copy(), is_under_way, || save(&to.join("a"), "edit"));
                let account = format!("{stood} {options:?}\n{}", outcome.account());
                assert!([Some(0), Some(24)].contains(&outcome.code()), "{account}");
                let letters = [from.join("a"), from.join("b"), to.join("b")].map(|path| read(&path));
                let is_kept = letters.iter().flatten().any(|text| text == "the only copy of the letter");
                assert!(is_kept, "the letter is lost\n{account}");
                assert!(letters[2].as_deref() != Some("edit") || outcome.code() != Some(0), "{account}");
            });
        }
    }
}

#[test]
fn a_file_that_somebody_saved_before_its_time_was_set_is_never_taken_for_the_sources() {
    needs_dsync!();
    let by_rename = |path: &Path| save(path, "users own txt");
    let in_place = |path: &Path| {
        OpenOptions::new().write(true).open(path).unwrap().write_all_at(b"users own txt", 0).unwrap();
    };
    let rotated = |path: &Path| {
        fs::rename(path, path.with_file_name("rotated")).unwrap();
        fs::write(path, "users own txt").unwrap();
    };
    let changes: [&dyn Fn(&Path); 3] = [&by_rename, &in_place, &rotated];
    for (option, old) in [("--inplace", "previous copy"), ("--append", "of th")] {
        for change in changes {
            let scratch = Scratch::new();
            let (from, to) = (scratch.src().join("f"), scratch.dst().join("f"));
            for (path, text) in [(&from, "of the source"), (&to, old)] {
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, text).unwrap();
            }
            tree::set_mtime(&from, LONG_AGO);
            tree::set_mtime(&to, (LONG_AGO.0 - 1, 0));

            let copy = |run: Run| run.args(["-a", option]).arg(slash(&scratch.src())).arg(scratch.dst());
            let slow = copy(strace::inject("syncfs", "delay_enter=2000000"));
            let is_written = || read(&to).is_some_and(|text| text == "of the source");
            // The run looks at what it has written right after it: what comes between is its own to it.
            let outcome = during(slow, is_written, || {
                thread::sleep(Duration::from_millis(500));
                change(&to);
            });
            let account = format!("{option}\n{}", outcome.account());
            assert_ne!(fs::metadata(&to).unwrap().mtime(), LONG_AGO.0, "{account}");
            if outcome.code() != Some(0) {
                let told = outcome.stderr_text();
                assert!(told.contains("another program changed it at the destination"), "{account}");
                let _ = outcome.expect_code(24);
            }
            // Whoever makes it like the source finds that it is not.
            let _ = Run::dsync().arg("-a").arg(slash(&scratch.src())).arg(scratch.dst()).run().expect_code(0);
            assert_eq!(read(&to).as_deref(), Some("of the source"), "{account}");
        }
    }
}

/// Replaces the file `f` of a source after it was listed, and checks the copy: each content may only have
/// the rights that come with it.
fn rights_belong_to_contents(options: &[&str], of: [(&str, u32, u32); 2]) {
    let scratch = Scratch::new();
    every_way(&scratch, options, |copy, to| {
        let place = |path: PathBuf, (text, mode, owner): (&str, u32, u32)| {
            let beside = path.with_file_name("beside it");
            fs::write(&beside, text).unwrap();
            if owner != 0 {
                chown(&beside, Some(owner), Some(owner)).unwrap();
            }
            tree::set_mode(&beside, mode);
            fs::rename(beside, path).unwrap();
        };
        let from = scratch.src();
        fs::create_dir_all(from.join("in")).unwrap();
        fs::write(from.join("big"), tree::noise(1, SLOW)).unwrap();
        place(from.join("in/f"), of[0]);
        let outcome = during(copy(), || has_temporary(to), || place(from.join("in/f"), of[1]));
        assert!([Some(0), Some(24)].contains(&outcome.code()), "{}", outcome.account());

        let copied = to.join("in/f");
        if let Ok(found) = fs::metadata(&copied) {
            let text = read(&copied).unwrap();
            let (_, mode, owner) = of.into_iter().find(|(of, ..)| *of == text).expect("one of the two");
            assert_eq!(found.permissions().mode() & 0o7777, mode, "{text}\n{}", outcome.account());
            assert!(owner == 0 || found.uid() == owner, "{text}\n{}", outcome.account());
        }
        let _ = Run::dsync().arg("-a").arg(slash(&from)).arg(to).run().expect_code(0);
        assert_eq!(read(&copied).as_deref(), Some(of[1].0));
        assert_eq!(fs::metadata(&copied).unwrap().permissions().mode() & 0o7777, of[1].1);
    });
}

#[test]
fn a_file_that_took_the_name_of_a_listed_one_does_not_get_its_permissions() {
    needs_dsync!();
    rights_belong_to_contents(&["-a", SLOWLY], [("public", 0o644, 0), ("secret key", 0o600, 0)]);
}

#[test]
fn content_of_another_user_gets_no_setuid_bit_that_was_listed() {
    needs_dsync!();
    needs_root!();
    rights_belong_to_contents(&["-a", SLOWLY], [("#!trusted", 0o4755, 0), ("#!of another", 0o755, 1000)]);
}

#[test]
fn what_somebody_makes_after_the_comparison_is_left_alone_as_if_it_had_been_there() {
    needs_dsync!();
    for more in [&[SLOWLY][..], &[SLOWLY, "--delay-updates"]] {
        let scratch = Scratch::new();
        let options: Vec<_> = ["-aH"].iter().chain(more).copied().collect();
        every_way(&scratch, &options, |copy, to| {
            let from = scratch.src();
            for dir in [&from, &to.to_owned()] {
                let _ = fs::remove_dir_all(dir);
                fs::create_dir_all(dir).unwrap();
            }
            fs::write(from.join("a big one"), tree::noise(1, SLOW)).unwrap();
            for name in ["first", "new", "old"] {
                fs::write(from.join(name), "of the source").unwrap();
                tree::set_mtime(&from.join(name), LONG_AGO);
            }
            fs::hard_link(from.join("first"), from.join("further")).unwrap();
            fs::write(from.join("z"), tree::noise(2, SLOW)).unwrap();
            fs::write(to.join("old"), "previous").unwrap();
            tree::set_mtime(&to.join("old"), (LONG_AGO.0 - 1, 0));

            let work = || ["new", "further"].map(|name| save(&to.join(name), "new work"));
            let outcome = during(copy().arg("--ignore-existing"), || has_temporary(to), || _ = work());
            for name in ["new", "further"] {
                assert_eq!(
                    read(&to.join(name)).as_deref(),
                    Some("new work"),
                    "{name}\n{}",
                    outcome.account()
                );
            }
            assert_eq!(read(&to.join("old")).as_deref(), Some("previous"));
            assert!(!has_temporary(to), "{}", outcome.account());
            let _ = outcome.expect_code(0);

            fs::remove_file(to.join("a big one")).unwrap();
            fs::remove_file(to.join("new")).unwrap();
            let work = || ["old", "new", "further"].map(|name| save(&to.join(name), "newer work"));
            let outcome = during(copy().arg("--update"), || has_temporary(to), || _ = work());
            for name in ["old", "new", "further"] {
                let text = read(&to.join(name));
                assert_eq!(text.as_deref(), Some("newer work"), "{name}\n{}", outcome.account());
            }
            let _ = outcome.expect_code(0);
        });
    }
}

/// Runs while a file has lines added to it all the time.
fn while_adding(path: &Path, run: impl FnOnce()) {
    let (stop, begun) = (AtomicBool::new(false), AtomicBool::new(false));
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut log = OpenOptions::new().append(true).open(path).unwrap();
            while !stop.load(Ordering::Acquire) {
                log.write_all(b"one more line\n").unwrap();
                begun.store(true, Ordering::Release);
                thread::yield_now();
            }
        });
        wait_for(|| begun.load(Ordering::Acquire));
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(run));
        stop.store(true, Ordering::Release);
        if let Err(failure) = result {
            std::panic::resume_unwind(failure);
        }
    });
}

#[test]
fn a_log_that_grows_all_the_time_is_copied_as_it_was_when_it_was_opened() {
    needs_dsync!();
    for len in [20_000, 20 << 20] {
        for options in [&["-a"][..], &["-a", "--inplace", "--no-W"], &["-a", "--append"], &["-a", "-S"]] {
            let scratch = Scratch::new();
            every_way(&scratch, options, |copy, to| {
                let from = scratch.src();
                fs::create_dir_all(&from).unwrap();
                fs::write(from.join("log"), tree::noise(1, len)).unwrap();
                fs::create_dir_all(to).unwrap();
                if options.len() > 1 {
                    // The old copy has less, and another beginning where that may be.
                    let mut old = tree::noise(1, len * 3 / 4);
                    old[0] ^= u8::from(options[1] != "--append");
                    fs::write(to.join("log"), &old).unwrap();
                }
                while_adding(&from.join("log"), || {
                    let outcome = copy().run().expect_code(0);
                    let (log, copied) =
                        (fs::read(from.join("log")).unwrap(), fs::read(to.join("log")).unwrap());
                    assert!(copied.len() >= len, "{options:?} {}\n{}", copied.len(), outcome.account());
                    assert!(log.starts_with(&copied), "{options:?}\n{}", outcome.account());
                });
                // The rest comes with the next run.
                let _ = Run::dsync().arg("-a").arg(slash(&from)).arg(to).run().expect_code(0);
                assert!(fs::read(from.join("log")).unwrap() == fs::read(to.join("log")).unwrap());
            });
        }
    }
}

#[test]
fn a_log_that_grows_all_the_time_is_recorded_in_a_batch() {
    needs_dsync!();
    for len in [20_000, 20 << 20] {
        let scratch = Scratch::new();
        fs::create_dir_all(scratch.src()).unwrap();
        let (log, batch) = (scratch.src().join("log"), scratch.at("batch"));
        fs::write(&log, tree::noise(1, len)).unwrap();
        let option = |name: &str| format!("--{name}={}", batch.display());
        while_adding(&log, || {
            let run = Run::dsync().arg("-a").arg(option("only-write-batch")).arg(slash(&scratch.src()));
            let _ = run.arg(scratch.dst()).run().expect_code(0);
        });
        let _ = Run::dsync().arg("-a").arg(option("read-batch")).arg(scratch.dst()).run().expect_code(0);
        let (log, copied) = (fs::read(&log).unwrap(), fs::read(scratch.dst().join("log")).unwrap());
        assert!(copied.len() >= len && log.starts_with(&copied), "{}", copied.len());
    }
}

#[test]
fn a_file_that_grows_and_changes_elsewhere_too_is_never_a_mixture_with_exit_0() {
    needs_dsync!();
    const LEN: u64 = 20 << 20;
    let scratch = Scratch::new();
    every_way(&scratch, &["-a"], |copy, to| {
        let from = scratch.src();
        fs::create_dir_all(&from).unwrap();
        let path = from.join("database");
        fs::write(&path, vec![0; LEN as usize]).unwrap();
        let stop = AtomicBool::new(false);
        let outcome = thread::scope(|scope| {
            scope.spawn(|| {
                let file = OpenOptions::new().write(true).open(&path).unwrap();
                let mut step = 0_u64;
                while !stop.load(Ordering::Acquire) {
                    step += 1;
                    file.write_all_at(&step.to_le_bytes(), 0).unwrap();
                    file.write_all_at(&step.to_le_bytes(), LEN - 8).unwrap();
                    file.write_all_at(b"more", LEN + 4 * step).unwrap();
                }
            });
            let outcome = copy().run();
            stop.store(true, Ordering::Release);
            outcome
        });
        if outcome.code() == Some(0) {
            let copied = fs::read(to.join("database")).unwrap();
            let step = |at: usize| u64::from_le_bytes(copied[at..at + 8].try_into().unwrap());
            let (first, last) = (step(0), step(LEN as usize - 8));
            assert!(first == last || first == last + 1, "{first} {last}\n{}", outcome.account());
        } else {
            let _ = outcome.expect_code(24);
            assert!(!to.join("database").exists());
        }
    });
}

#[test]
fn a_file_that_was_listed_small_and_is_large_by_its_turn_is_copied() {
    needs_dsync!();
    let scratch = Scratch::new();
    every_way(&scratch, &["-a", SLOWLY], |copy, to| {
        let from = scratch.src();
        fs::create_dir_all(&from).unwrap();
        fs::write(from.join("a big one"), tree::noise(1, SLOW)).unwrap();
        for (name, len) in [("small", 65_536), ("empty", 0)] {
            fs::write(from.join(name), tree::noise(2, len)).unwrap();
        }
        let grow = || {
            for name in ["small", "empty"] {
                let mut file = OpenOptions::new().append(true).open(from.join(name)).unwrap();
                file.write_all(&tree::noise(3, 1_000_000)).unwrap();
            }
        };
        let outcome = during(copy(), || has_temporary(to), grow).expect_code(0);
        for name in ["small", "empty"] {
            let (new, copied) = (fs::read(from.join(name)).unwrap(), fs::read(to.join(name)).unwrap());
            assert!(new.starts_with(&copied), "{name}\n{}", outcome.account());
        }
    });
}
