//! `--state`: what an earlier run has read is not read again, and whatever happens to trees, times,
//! filesystems and the state itself costs time only: the destination is the source's in the end.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use dsync_tests::{
    Node, Outcome, Run, Scope, Scratch, Sshd, Tree, Via, assert_same, mount::Mount, needs_dsync,
    run::until_met, scratch::slash, strace,
};

const FILES: u64 = 12;

/// Plants the source; its files are below two directories and have several sizes.
fn plant(at: &Path) {
    let directories = [Node::dir("one"), Node::dir("two")];
    let file = |seed: u64| {
        let directory = if seed.is_multiple_of(2) { "one" } else { "two" };
        Node::file(format!("{directory}/{seed}"), seed, seed * 1000 + 1)
    };
    Tree::of(directories.into_iter().chain((0..FILES).map(file))).plant(at);
}

/// Changes some bytes of a file, and restores its modification time.
fn edit(file: &Path, bytes: &[u8]) {
    let before = fs::metadata(file).unwrap().modified().unwrap();
    let mut content = fs::read(file).unwrap();
    content[..bytes.len()].copy_from_slice(bytes);
    fs::write(file, content).unwrap();
    fs::File::options().write(true).open(file).unwrap().set_modified(before).unwrap();
}

fn state_dir(scratch: &Scratch) -> PathBuf {
    scratch.at("state")
}

/// Compares by content and copies, with a state; the trees are equal then.
fn copy(scratch: &Scratch, options: &[&str]) -> Outcome {
    let run = Run::dsync().args(["-avc", "--delete", "--state"]).args(options);
    let run = run.arg(format!("--state-dir={}", state_dir(scratch).display()));
    let outcome = run.arg(slash(&scratch.src())).arg(scratch.dst()).run().expect_code(0);
    assert_same(&scratch.src(), &scratch.dst(), Scope::full());
    outcome
}

/// Returns the numbers of contents that a run knew and that it read.
fn counts(outcome: &Outcome) -> (u64, u64) {
    let text = outcome.stderr_text();
    let line = text.lines().find(|line| line.starts_with("dsync: contents compared here: "));
    let line = line.unwrap_or_else(|| panic!("{}", outcome.account()));
    let number = |word: &str| {
        let (before, _) = line.split_once(word).unwrap();
        before.rsplit(' ').next().unwrap().parse().unwrap()
    };
    (number(" known of"), number(" read ("))
}

/// Plants and copies a source until nothing of it is read any more: what changed in the last tick of
/// the clock is read once more.
fn known() -> Scratch {
    let scratch = Scratch::new();
    plant(&scratch.src());
    let _ = copy(&scratch, &[]);
    until_met(|| (counts(&copy(&scratch, &[])) == (2 * FILES, 0)).then_some(()));
    scratch
}

#[test]
fn a_run_reads_what_changed_and_nothing_else() {
    needs_dsync!();
    let scratch = known();
    fs::write(scratch.src().join("one/2"), "edited").unwrap();
    let (known, read) = counts(&copy(&scratch, &[]));
    // A file of another size is not read at the destination.
    assert_eq!((known, read), (2 * FILES - 2, 1));
    assert_eq!(counts(&copy(&scratch, &[])), (2 * FILES, 0), "the new copy was recorded when it was written");

    let dry = copy(&scratch, &["-n"]);
    assert_eq!(counts(&dry), (2 * FILES, 0));
    assert!(!copy(&scratch, &["--no-state"]).stderr_text().contains("contents"));
}

#[test]
fn an_entry_of_known_content_is_looked_at_once_at_each_end() {
    needs_dsync!();
    let scratch = known();
    let looks = |options: &[&str]| {
        let (outcome, calls) = strace::watch("statx", &scratch.at("trace"), |run| {
            let state = format!("--state-dir={}", state_dir(&scratch).display());
            run.args(options).arg(state).arg(slash(&scratch.src())).arg(scratch.dst())
        });
        let _ = outcome.expect_code(0);
        calls.iter().filter(|call| call.contains("\"1\"") || call.contains("\"2\"")).count()
    };
    assert_eq!(looks(&["-ac", "--state"]), looks(&["-a"]));
}

#[test]
fn a_run_by_a_list_leaves_the_rest_known() {
    needs_dsync!();
    let scratch = known();
    fs::write(scratch.at("list"), "one/2\n").unwrap();
    let by_list = format!("--files-from={}", scratch.at("list").display());
    fs::write(scratch.src().join("one/2"), "edited").unwrap();
    let _ = copy(&scratch, &[&by_list]);
    let (known, _) = counts(&copy(&scratch, &[]));
    assert!(known >= 2 * FILES - 2, "{known}");
}

#[test]
fn what_was_edited_with_its_time_restored_is_copied() {
    needs_dsync!();
    let scratch = known();
    for (tree, content) in [(scratch.src(), b"edited"), (scratch.dst(), b"broken")] {
        edit(&tree.join("two/11"), content);
        let outcome = copy(&scratch, &["-i"]);
        assert!(outcome.stdout_text().contains("two/11"), "{}", outcome.account());
    }
}

#[test]
fn a_destination_that_was_emptied_restored_or_mixed_up_is_made_whole() {
    needs_dsync!();
    let scratch = known();
    fs::remove_dir_all(scratch.dst()).unwrap();
    let _ = copy(&scratch, &[]);

    // The inodes of two files change places.
    let [one, two, spare] = ["one/4", "two/5", "spare"].map(|name| scratch.dst().join(name));
    for (from, to) in [(&one, &spare), (&two, &one), (&spare, &two)] {
        fs::rename(from, to).unwrap();
    }
    let _ = copy(&scratch, &[]);

    // A copy of the whole destination from before, as a snapshot that is rolled back.
    let old = scratch.at("old");
    let _ = Run::of("cp").args(["-a"]).arg(scratch.dst()).arg(&old).run().expect_code(0);
    fs::write(scratch.src().join("one/4"), "edited").unwrap();
    let _ = copy(&scratch, &[]);
    fs::remove_dir_all(scratch.dst()).unwrap();
    fs::rename(&old, scratch.dst()).unwrap();
    let _ = copy(&scratch, &[]);
}

#[test]
fn another_filesystem_at_the_same_path_is_read() {
    needs_dsync!();
    let scratch = Scratch::new();
    plant(&scratch.src());
    for content in ["first", "second"] {
        let _ = fs::remove_dir_all(scratch.dst());
        let Some(_disk) = Mount::of_type("ext4", &scratch.dst()) else { return };
        // Of the same inodes and times as on the other one, and of other content.
        plant(&scratch.dst());
        edit(&scratch.dst().join("one/2"), content.as_bytes());
        let outcome = Run::dsync()
            .args(["-avc", "--state", "--state-dir"])
            .args([state_dir(&scratch).into_os_string(), slash(&scratch.src()), scratch.dst().into()])
            .run()
            .expect_code(0);
        assert_same(&scratch.src().join("one"), &scratch.dst().join("one"), Scope::full());
        assert!(counts(&outcome).1 >= FILES, "{}", outcome.account());
    }
}

#[test]
fn a_state_that_cannot_be_used_or_kept_is_one_line() {
    needs_dsync!();
    let scratch = known();
    let file = fs::read_dir(state_dir(&scratch)).unwrap().next().unwrap().unwrap().path();
    let whole = fs::read(&file).unwrap();
    let (mut damaged, mut newer) = (whole.clone(), whole.clone());
    damaged[200] ^= 4;
    newer[12] = b'4';
    let told = |outcome: &Outcome, words: &str| {
        let text = outcome.stderr_text();
        assert!(text.contains(words), "{}", outcome.account());
        assert_eq!(text.lines().filter(|line| line.contains("the state")).count(), 1, "{text}");
    };
    for (content, words) in [
        (&damaged[..], "is damaged, and is made anew; the run goes on without"),
        (&whole[..100], "is damaged"),
        (b"", "is damaged"),
        (&newer, "is of a newer version, and stays as it is"),
    ] {
        fs::write(&file, content).unwrap();
        told(&copy(&scratch, &[]), words);
    }
    assert_eq!(fs::read(&file).unwrap(), newer);

    fs::write(&file, &whole).unwrap();
    fs::set_permissions(state_dir(&scratch), fs::Permissions::from_mode(0o777)).unwrap();
    told(&copy(&scratch, &[]), "another user can write to it");
    fs::remove_dir_all(state_dir(&scratch)).unwrap();
    fs::write(state_dir(&scratch), "a file").unwrap();
    told(&copy(&scratch, &[]), "cannot use the state in");
    fs::remove_file(state_dir(&scratch)).unwrap();
    fs::create_dir(state_dir(&scratch)).unwrap();
    let Some(full) = Mount::tmpfs(&state_dir(&scratch), "size=4k,mode=700") else { return };
    fs::write(full.path().join("filler"), [1; 4096]).unwrap();
    told(&copy(&scratch, &[]), "what this run has read is not kept");
    full.remount("ro");
    told(&copy(&scratch, &[]), "what this run has read is not kept");
}

#[test]
fn this_end_of_a_push_and_of_a_pull_knows_its_files() {
    needs_dsync!();
    let sshd = Sshd::shared();
    for pulls in [false, true] {
        let scratch = Scratch::new();
        plant(&scratch.src());
        let (from, to) = (slash(&scratch.src()), scratch.dst().into_os_string());
        let copy = || {
            let run = sshd.run(Via::Ssh).args(["-avc", "--state", "--state-dir"]).arg(state_dir(&scratch));
            let run = if pulls {
                run.arg(sshd.operand(&from)).arg(&to)
            } else {
                run.arg(&from).arg(sshd.operand(&to))
            };
            let outcome = run.run().expect_code(0);
            assert_same(&scratch.src(), &scratch.dst(), Scope::full());
            outcome
        };
        let _ = copy();
        until_met(|| (counts(&copy()) == (FILES, 0)).then_some(()));
        fs::write(scratch.dst().join("one/2"), vec![7; 2001]).unwrap();
        let _ = copy();
    }
}

/// A remote end whose states are in a directory of the test's, and which tells what it opens.
struct RemoteEnd {
    program: PathBuf,
    opened: PathBuf,
    states: PathBuf,
}

impl RemoteEnd {
    fn new(scratch: &Scratch) -> Self {
        let [program, opened, states] = ["remote", "opened", "states"].map(|name| scratch.at(name));
        let script = format!(
            "#!/bin/sh\nexport XDG_STATE_HOME='{}'\nexec strace -f -qq -o '{}' -e trace=openat,openat2 '{}' \"$@\"\n",
            states.display(),
            opened.display(),
            dsync_tests::program().display()
        );
        fs::write(&program, script).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        Self { program, opened, states }
    }

    /// Compares by content and copies; the trees are equal then.
    fn copy(&self, scratch: &Scratch, pulls: bool, options: &[&str]) -> Outcome {
        let sshd = Sshd::shared();
        let run =
            sshd.run_serving(Via::Ssh, &self.program).args(["-avc", "--delete", "--no-state"]).args(options);
        let (from, to) = (slash(&scratch.src()), scratch.dst().into_os_string());
        let run =
            if pulls { run.arg(sshd.operand(from)).arg(to) } else { run.arg(from).arg(sshd.operand(to)) };
        let outcome = run.arg(format!("--state-dir={}", state_dir(scratch).display())).run().expect_code(0);
        assert_same(&scratch.src(), &scratch.dst(), Scope::full());
        outcome
    }

    /// Returns how many of the tree's files the last run opened.
    fn files_opened(&self) -> usize {
        let text = fs::read_to_string(&self.opened).unwrap();
        let is_of = |line: &&str| (0..FILES).any(|file| line.contains(&format!("\"{file}\"")));
        text.lines().filter(is_of).count()
    }

    fn state_file(&self) -> PathBuf {
        fs::read_dir(self.states.join("dsync")).unwrap().next().unwrap().unwrap().path()
    }
}

#[test]
fn a_remote_end_reads_what_changed_and_nothing_else() {
    needs_dsync!();
    for pulls in [false, true] {
        let scratch = Scratch::new();
        plant(&scratch.src());
        let remote = RemoteEnd::new(&scratch);
        let own = if pulls { scratch.src() } else { scratch.dst() };
        let _ = remote.copy(&scratch, pulls, &["--state"]);
        until_met(|| {
            let _ = remote.copy(&scratch, pulls, &["--state"]);
            // One of each filesystem is opened, to learn which it is.
            (remote.files_opened() <= 1).then_some(())
        });
        let _ = remote.copy(&scratch, pulls, &[]);
        assert!(remote.files_opened() >= 12, "it reads all without --state");

        edit(&own.join("two/11"), b"edited");
        let outcome = remote.copy(&scratch, pulls, &["--state", "-i"]);
        assert!(outcome.stdout_text().contains("two/11"), "{}", outcome.account());
        fs::remove_dir_all(scratch.dst()).unwrap();
        let _ = remote.copy(&scratch, pulls, &["--state"]);

        let mut damaged = fs::read(remote.state_file()).unwrap();
        damaged[200] ^= 4;
        fs::write(remote.state_file(), damaged).unwrap();
        let told = remote.copy(&scratch, pulls, &["--state"]).stderr_text();
        assert_eq!(told.matches("dsync: at the remote end the state in '").count(), 1, "{told}");
        assert!(told.contains("is damaged, and is made anew; the run goes on without"), "{told}");
    }
}

#[test]
fn what_a_push_has_written_is_not_read_by_the_next_one() {
    needs_dsync!();
    let scratch = Scratch::new();
    plant(&scratch.src());
    let remote = RemoteEnd::new(&scratch);
    let _ = remote.copy(&scratch, false, &["--state"]);
    let _ = remote.copy(&scratch, false, &["--state"]);
    // One of each filesystem is opened, to learn which it is.
    assert!(remote.files_opened() <= 1, "{}", remote.files_opened());
}

#[test]
fn what_is_written_by_any_option_is_recorded_right_or_read_again() {
    needs_dsync!();
    for options in [
        &[][..],
        &["--inplace"],
        &["--append"],
        &["-S"],
        &["-W"],
        &["-b", "--backup-dir=../kept"],
        &["--copy-dest=../alt"],
        &["--delay-updates"],
        &["--link-dest=../alt"],
        &["--link-dest=../alt", "--delay-updates"],
    ] {
        let scratch = Scratch::new();
        plant(&scratch.src());
        plant(&scratch.at("alt"));
        let _ = copy(&scratch, options);
        // A file that somebody has changed at once is not taken for what was written; with `--append`
        // it is left alone, as it is not shorter.
        if options != ["--append"] {
            edit(&scratch.dst().join("two/11"), b"broken");
        }
        let (_, read) = counts(&copy(&scratch, options));
        assert!(read <= 1, "{options:?}: {read}");
    }
}

#[test]
fn a_file_stays_known_when_the_run_gives_it_names_or_attributes() {
    needs_dsync!();
    for options in [&["-H"][..], &["-H", "--delay-updates"]] {
        let scratch = known();
        for number in 0..200 {
            fs::write(scratch.src().join(format!("two/new {number}")), "new").unwrap();
        }
        // New names of a new file and of an old one, in both directories.
        for (first, other) in [("two/new 0", "two/new 0 too"), ("two/new 0", "one/new 0"), ("two/1", "one/1")]
        {
            fs::hard_link(scratch.src().join(first), scratch.src().join(other)).unwrap();
        }
        let touched = fs::File::options().write(true).open(scratch.src().join("two/3")).unwrap();
        touched.set_modified(SystemTime::UNIX_EPOCH).unwrap();
        drop(touched);
        fs::set_permissions(scratch.src().join("one/2"), fs::Permissions::from_mode(0o600)).unwrap();
        wait_for_step(&scratch);
        let _ = copy(&scratch, options);
        assert_eq!(counts(&copy(&scratch, options)).1, 0, "{options:?}");

        edit(&scratch.dst().join("one/new 0"), b"odd");
        let outcome = copy(&scratch, &[options, &["-i"]].concat());
        assert!(outcome.stdout_text().contains("new 0"), "{}", outcome.account());
    }
}

/// Waits until the filesystem's clock is a step past all that was changed.
fn wait_for_step(scratch: &Scratch) {
    let probe = scratch.at("probe");
    let now = || {
        fs::write(&probe, "").unwrap();
        fs::metadata(&probe).unwrap().modified().unwrap()
    };
    let before = now();
    until_met(|| (now() > before + Duration::from_millis(20)).then_some(()));
}

#[test]
fn a_row_of_linked_copies_reads_nothing_that_is_known() {
    needs_dsync!();
    let scratch = known();
    for day in ["monday", "tuesday", "wednesday"] {
        fs::rename(scratch.dst(), scratch.at(day)).unwrap();
        assert_eq!(counts(&copy(&scratch, &[&format!("--link-dest=../{day}")])), (2 * FILES, 0), "{day}");
    }
}

#[test]
fn a_remote_end_that_is_bound_to_a_directory_keeps_nothing() {
    needs_dsync!();
    let scratch = Scratch::new();
    plant(&scratch.src());
    let remote = RemoteEnd::new(&scratch);
    let text = fs::read_to_string(&remote.program).unwrap();
    let bound = format!("--server --restrict '{}'", scratch.path().display());
    fs::write(&remote.program, text.replace("\"$@\"", &bound)).unwrap();
    let (from, to) = (slash(&scratch.src()), scratch.dst());
    let sshd = Sshd::shared();
    for _ in 0..2 {
        let run = sshd.run_serving(Via::Ssh, &remote.program).args(["-avc", "--state", "--state-dir"]);
        let run = run.arg(state_dir(&scratch)).arg(&from).arg(sshd.operand(to.file_name().unwrap()));
        let _ = run.run().expect_code(0);
    }
    assert!(!remote.states.exists());
}

#[test]
fn one_file_is_known_as_one() {
    needs_dsync!();
    let scratch = Scratch::new();
    fs::write(scratch.src().join("only"), "text").unwrap();
    // The run before knows what it wrote as well, so this one writes nothing. A file that was made just now is
    // not kept.
    let listed = until_met(|| {
        let run = Run::dsync().args(["-acn", "--state", "--state-dir"]).arg(state_dir(&scratch));
        let _ = run.arg(slash(&scratch.src())).arg(scratch.dst()).run().expect_code(0);
        let listed = Run::dsync().args(["state", "--state-dir"]).arg(state_dir(&scratch)).run();
        Some(listed.expect_code(0).stdout_text()).filter(|text| text.contains(" known  "))
    });
    assert!(listed.starts_with("1 file known  "), "{listed}");
}

#[test]
fn states_are_listed_and_cleared() {
    needs_dsync!();
    let scratch = known();
    let state = |words: &[&str]| {
        Run::dsync().args(["state", "--state-dir"]).arg(state_dir(&scratch)).args(words).run()
    };
    let listed = state(&[]).expect_code(0);
    let pair = format!("{}/ -> {}\n", scratch.src().display(), scratch.dst().display());
    assert_eq!(listed.stdout_text(), format!("{} files known  {pair}", 2 * FILES));
    fs::set_permissions(state_dir(&scratch), fs::Permissions::from_mode(0o777)).unwrap();
    let shared = state(&[]).expect_code(0).stdout_text();
    assert!(shared.contains(" is not used: another user can write to it\n"), "{shared}");
    fs::set_permissions(state_dir(&scratch), fs::Permissions::from_mode(0o700)).unwrap();
    assert!(state(&["--clear"]).expect_code(0).stdout_text().starts_with("1 removed from '"));
    assert!(state(&[]).expect_code(0).stdout_text().starts_with("nothing is kept in '"));
    assert_eq!(counts(&copy(&scratch, &[])), (0, 2 * FILES));

    let home = Run::dsync().arg("state").env("XDG_STATE_HOME", scratch.path()).run().expect_code(0);
    assert!(home.stdout_text().contains("/dsync'"), "{}", home.account());
    let wrong = Run::dsync().args(["state", "dst"]).run().expect_code(1);
    assert!(wrong.stderr_text().contains("takes no words"), "{}", wrong.account());
}
