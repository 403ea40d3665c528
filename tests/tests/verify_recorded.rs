//! `dsync verify` without a manifest: what runs with `--state` have read is checked, rot is told from
//! edits, and whatever is wrong with a state makes no file look sound or rotten.

use std::{
    fs,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown},
    path::{Path, PathBuf},
};

use dsync_tests::{
    Outcome, Run, Scratch, Sshd, Via, mount::Mount, needs_dsync, run::until_met, scratch::slash, tree::noise,
};

const FILES: u64 = 5;
const NOBODY: u32 = 65_534;

fn verify(states: &Path, tree: &Path, words: &[&str]) -> Outcome {
    Run::dsync().arg("verify").args(words).arg("--state-dir").arg(states).arg(tree).run()
}

/// Returns the last event of a verification.
fn counts(outcome: &Outcome) -> serde_json::Value {
    let text = outcome.stdout_text();
    serde_json::from_str(text.lines().last().unwrap_or_else(|| panic!("{}", outcome.account()))).unwrap()
}

/// A tree on a disk of its own that runs have copied and read.
struct Scene {
    scratch: Scratch,
    disk: Mount,
}

impl Scene {
    /// Returns `None` where nothing can be mounted.
    fn new(kind: &str) -> Option<Self> {
        let scratch = Scratch::new();
        let disk = Mount::of_type(kind, &scratch.at("disk"))?;
        fs::create_dir_all(scratch.src().join("sub")).unwrap();
        for (number, name) in ["edited", "linked", "rotten", "sound", "sub/deep"].into_iter().enumerate() {
            fs::write(scratch.src().join(name), noise(number as u64 + 1, 4096)).unwrap();
        }
        fs::hard_link(scratch.src().join("linked"), scratch.src().join("sub/again")).unwrap();
        let scene = Self { scratch, disk };
        // What was written in the last tick of the clock is read once more.
        until_met(|| {
            scene.copy();
            scene.is_known().then_some(())
        });
        Some(scene)
    }

    fn copy(&self) {
        let run = Run::dsync().args(["-acH", "--state", "--state-dir"]).arg(self.states());
        let _ = run.arg(slash(&self.scratch.src())).arg(self.tree()).run().expect_quiet_success();
    }

    /// Returns whether the content of each file is recorded.
    fn is_known(&self) -> bool {
        self.verify(&["-n"])
            .stdout_text()
            .ends_with(": 0 files are as recorded, 6 compared by size and times only\n")
    }

    fn states(&self) -> PathBuf {
        self.scratch.at("states")
    }

    fn state_file(&self) -> PathBuf {
        fs::read_dir(self.states()).unwrap().next().unwrap().unwrap().path()
    }

    fn tree(&self) -> PathBuf {
        self.disk.path().join("tree")
    }

    fn verify(&self, words: &[&str]) -> Outcome {
        verify(&self.states(), &self.tree(), words)
    }
}

#[test]
fn rot_is_found_without_a_manifest_and_edits_are_nothing_wrong() {
    needs_dsync!();
    for kind in ["ext4", "xfs", "btrfs"] {
        let Some(scene) = Scene::new(kind) else { return };
        let tree = scene.tree();
        fs::write(tree.join("edited"), "shorter").unwrap();
        fs::write(tree.join("new"), "new").unwrap();
        fs::set_permissions(tree.join("sub/deep"), fs::Permissions::from_mode(0o600)).unwrap();
        let sound = scene.verify(&[]).expect_code(0);
        let expected = "edited     edited (size, time)\nunrecorded new\nedited     sub/deep\n7 files found, 16,384 bytes \
             read: 4 files are as recorded, 2 edited since, 1 not recorded\n";
        assert_eq!(sound.stdout_text(), expected, "{kind}: {}", sound.account());
        assert!(sound.stderr_text().is_empty(), "{kind}: {}", sound.account());

        let _ = Run::of("sync").run().expect_code(0);
        scene.disk.lose_block(&noise(3, 4096));
        scene.disk.lose_block(&noise(2, 4096));
        let rotten = scene.verify(&["-q"]).expect_code(23);
        // Sums of the filesystem's own turn rot into an error of the disk.
        let (word, why) =
            if kind == "btrfs" { ("unreadable", " (Input/output error)") } else { ("rot       ", "") };
        let expected = format!(
            "edited     edited (size, time)\n{word} linked{why}\nunrecorded new\n{word} rotten{why}\n\
             {word} sub/again{why}\nedited     sub/deep\n"
        );
        assert_eq!(rotten.stdout_text(), expected, "{kind}: {}", rotten.account());
        let counts = counts(&scene.verify(&["--json"]).expect_code(23));
        let (rot, unreadable) = if kind == "btrfs" { (0, 3) } else { (3, 0) };
        let numbers =
            ["entries", "sound", "rot", "unreadable", "edited_since", "unrecorded", "edited", "exit_code"];
        let expected = [7, 1, rot, unreadable, 2, 1, 0, 23];
        assert_eq!(numbers.map(|number| counts[number].as_u64().unwrap()), expected, "{kind}");

        for words in [["-n", "-q"], ["--percent=0", "-q"]] {
            let unread = scene.verify(&words).expect_code(0);
            assert!(!unread.stdout_text().contains("rot "), "{}", unread.account());
        }
    }
}

/// Returns the number of the device that a path is on.
fn device(path: &Path) -> u64 {
    fs::metadata(path).unwrap().dev()
}

#[test]
fn a_disk_that_is_another_device_after_it_was_plugged_in_again_is_verified_by_its_records() {
    needs_dsync!();
    for kind in ["ext4", "xfs", "btrfs"] {
        let Some(Scene { scratch, disk }) = Scene::new(kind) else { return };
        let (at, before) = (disk.path().to_owned(), device(disk.path()));
        drop(disk);
        // Others take the number that it had.
        let mut others = Vec::new();
        let disk = until_met(|| {
            others.push(Mount::of_type(kind, &scratch.at(&format!("other{}", others.len()))));
            let image = at.with_extension("img");
            let disk = Mount::with(&["-o".as_ref(), "loop".as_ref(), image.as_os_str()], &at)?;
            (device(disk.path()) != before).then_some(disk)
        });

        let scene = Scene { scratch, disk };
        assert!(scene.is_known(), "{kind}: {}", scene.verify(&["-n"]).account());
        let _ = scene.verify(&[]).expect_code(0);
        disk_rots(&scene, kind);
    }
}

/// Damages a file below its filesystem, and finds it.
fn disk_rots(scene: &Scene, kind: &str) {
    // btrfs would not return it.
    if kind != "btrfs" {
        scene.disk.lose_block(&noise(3, 4096));
        assert!(scene.verify(&[]).expect_code(23).stdout_text().contains("rotten"), "{kind}");
    }
}

#[test]
fn a_copy_of_a_disk_that_is_mounted_beside_it_is_not_taken_for_it() {
    needs_dsync!();
    let Some(scene) = Scene::new("ext4") else { return };
    let Scene { scratch, disk } = scene;
    let at = disk.path().to_owned();
    let mount = |image: &str, at: &Path| {
        let image = scratch.at(image);
        Mount::with(&["-o".as_ref(), "loop".as_ref(), image.as_os_str()], at)
    };
    drop(disk);
    fs::copy(scratch.at("disk.img"), scratch.at("copy.img")).unwrap();
    fs::create_dir(scratch.at("copy")).unwrap();
    let (Some(_disk), Some(_copy)) = (mount("disk.img", &at), mount("copy.img", &scratch.at("copy"))) else {
        return;
    };

    // One file of both changes in the same step of the clock, to other contents of one size.
    let [own, other] = [&at, &scratch.at("copy")].map(|tree| tree.join("tree/edited"));
    let stamp = |path: &Path| {
        let found = fs::metadata(path).unwrap();
        (found.ino(), found.len(), found.mtime_nsec(), found.ctime_nsec(), found.ctime())
    };
    until_met(|| {
        for (path, content) in [(&own, "this one"), (&other, "that one")] {
            fs::write(path, content).unwrap();
        }
        (stamp(&own) == stamp(&other)).then_some(())
    });
    let compare = |from: &Path, to: &Path| {
        let run = Run::dsync().args(["-acin", "--state", "--state-dir"]).arg(scratch.at("states"));
        let outcome = run.arg(slash(&from.join("tree"))).arg(to.join("tree")).run().expect_code(0);
        outcome.stdout_text().contains("edited")
    };
    let copy = scratch.at("copy");
    for _ in 0..3 {
        assert!(compare(&at, &copy) && compare(&copy, &at));
    }
}

#[test]
fn what_a_run_has_written_is_known_at_once_and_its_rot_is_found() {
    needs_dsync!();
    let scratch = Scratch::new();
    let Some(disk) = Mount::of_type("ext4", &scratch.at("disk")) else { return };
    let (states, tree, sshd) = (scratch.at("states"), disk.path().join("tree"), Sshd::shared());
    let copy = |pulls: bool, options: &[&str]| {
        let run = if pulls { sshd.run(Via::Ssh) } else { Run::dsync() };
        let source = slash(&scratch.src());
        let source = if pulls { sshd.operand(source) } else { source };
        let run = run.args(["-avc", "--state", "--state-dir"]).arg(&states).args(options);
        run.arg(source).arg(&tree).run().expect_code(0)
    };
    // New files; then old ones that are rewritten, by deltas and in place.
    for (round, pulls, options) in
        [(1, false, &[][..]), (2, true, &[]), (3, false, &["--inplace"]), (4, true, &["--inplace"])]
    {
        fs::create_dir_all(scratch.src()).unwrap();
        for (name, len, seed) in [("small", 4096, round), ("large", 9 << 20, round + 100)] {
            let mut content = noise(7, len);
            content[..4096].copy_from_slice(&noise(seed, 4096));
            fs::write(scratch.src().join(name), content).unwrap();
        }
        let _ = copy(pulls, options);
        let known = verify(&states, &tree, &["-n"]).expect_code(0).stdout_text();
        assert!(known.ends_with(": 0 files are as recorded, 2 compared by size and times only\n"), "{known}");
    }

    let _ = Run::of("sync").run().expect_code(0);
    disk.lose_block(&noise(104, 4096));
    disk.lose_block(&noise(4, 4096));
    let rotten = verify(&states, &tree, &["-q"]).expect_code(23);
    assert_eq!(rotten.stdout_text(), "rot        large\nrot        small\n", "{}", rotten.account());
}

#[test]
fn a_directory_without_a_manifest_is_verified_by_what_runs_have_read() {
    needs_dsync!();
    let Some(scene) = Scene::new("ext4") else { return };
    let home = scene.scratch.at("home");
    fs::create_dir(&home).unwrap();
    fs::rename(scene.states(), home.join("dsync")).unwrap();
    let run = |words: &[&str]| {
        Run::dsync().arg("verify").args(words).arg(scene.tree()).env("XDG_STATE_HOME", &home).run()
    };
    let by_runs = run(&[]).expect_code(0);
    assert!(by_runs.stdout_text().contains("6 files are as recorded"), "{}", by_runs.account());
    let told = by_runs.stderr_text();
    assert!(told.contains("there is no manifest '") && told.lines().count() == 1, "{told}");
    assert!(run(&["--state"]).expect_code(0).stderr_text().is_empty());

    // A manifest that is there is what the words mean, and one that cannot be read is no reason to do without.
    let _ = run(&["--record"]).expect_code(0);
    assert!(run(&[]).expect_code(0).stdout_text().contains("files are sound"));
    assert!(run(&["--state"]).expect_code(0).stdout_text().contains("as recorded"));
    fs::write(scene.disk.path().join("tree.dsync-manifest"), "no manifest").unwrap();
    assert!(run(&[]).expect_code(11).stderr_text().contains("is no manifest"));
}

#[test]
fn files_that_were_read_lately_are_not_read_again_although_runs_record_more() {
    needs_dsync!();
    let Some(scene) = Scene::new("ext4") else { return };
    let read = || {
        let outcome = scene.verify(&["--json", "--max-age=30d"]).expect_code(0);
        assert!(outcome.stderr_text().is_empty(), "{}", outcome.account());
        ["sound", "unread"].map(|count| counts(&outcome)[count].as_u64().unwrap())
    };
    assert_eq!(read(), [6, 0]);
    assert_eq!(read(), [0, 6]);
    fs::write(scene.scratch.src().join("sound"), "edited").unwrap();
    until_met(|| {
        scene.copy();
        scene.is_known().then_some(())
    });
    assert_eq!(read(), [1, 5]);

    let times = scene.states().join("verified");
    fs::write(&times, "dsync-verified-runs 1\nnot what follows it").unwrap();
    let told = scene.verify(&["--max-age=30d"]).expect_code(0);
    assert!(told.stderr_text().contains("out of date; all files are read"), "{}", told.account());
    fs::remove_file(&times).unwrap();
    fs::create_dir(&times).unwrap();
    let told = scene.verify(&["--max-age=30d"]).expect_code(11);
    assert!(
        told.stderr_text().contains("/verified' for --max-age: it is no regular file"),
        "{}",
        told.account()
    );
}

#[test]
fn a_tree_of_which_nothing_is_recorded_is_refused() {
    needs_dsync!();
    let Some(scene) = Scene::new("ext4") else { return };
    let refused = |outcome: Outcome, words: &str| {
        let told = outcome.expect_code(11);
        assert!(told.stdout_text().is_empty(), "{}", told.account());
        let text = told.stderr_text();
        assert!(text.contains(words) && text.contains("`dsync -ac --state`"), "{}", told.account());
        text.lines().count()
    };
    let none = scene.scratch.at("none");
    assert_eq!(refused(verify(&none, &scene.tree(), &[]), "no run with --state has kept contents of"), 1);
    assert!(!none.exists(), "nothing is made");

    // A copy of the tree has other inodes, and one elsewhere another filesystem.
    for copy in [scene.disk.path().join("copy"), scene.scratch.at("copy")] {
        let _ = Run::of("cp").arg("-a").arg(scene.tree()).arg(&copy).run().expect_code(0);
        let _ = refused(verify(&scene.states(), &copy, &[]), "no run with --state has kept contents of");
    }
    let _ = Run::of("chmod").args(["-R", "u-w"]).arg(scene.tree()).run().expect_code(0);
    let _ = refused(scene.verify(&[]), "were edited since (6 files)");

    let missing = scene.tree().join("missing");
    let told = verify(&scene.states(), &missing, &[]).expect_code(3).stderr_text().to_owned();
    assert!(told.contains("cannot read the directory"), "{told}");
}

#[test]
fn a_state_that_cannot_be_used_is_one_line_and_counts_as_not_recorded() {
    needs_dsync!();
    let Some(scene) = Scene::new("ext4") else { return };
    // A directory of states is as good elsewhere.
    let copy = scene.scratch.at("copied");
    let _ = Run::of("cp").arg("-a").arg(scene.states()).arg(&copy).run().expect_code(0);
    assert!(verify(&copy, &scene.tree(), &[]).expect_code(0).stderr_text().is_empty());

    let file = scene.state_file();
    let whole = fs::read(&file).unwrap();
    let (mut damaged, mut newer) = (whole.clone(), whole.clone());
    damaged[200] ^= 4;
    newer[12] = b'4';
    for (content, words) in [
        (&damaged[..], "is damaged"),
        (&whole[..100], "is damaged"),
        (b"of another program", "is damaged"),
        (&newer, "is of a newer version"),
    ] {
        fs::write(&file, content).unwrap();
        let told = scene.verify(&[]).expect_code(11);
        let lines: Vec<_> = told.stderr_text().lines().map(str::to_owned).collect();
        assert_eq!(lines.len(), 2, "{}", told.account());
        assert!(lines[0].contains(words) && lines[0].ends_with("; what it has counts as not recorded"));
        assert_eq!(fs::read(&file).unwrap(), content, "it stays as it is");

        // What is wrong with one state takes nothing from another.
        fs::write(copy.join(file.file_name().unwrap()), &whole).unwrap();
        fs::write(copy.join(format!("pair-{}", "0".repeat(32))), content).unwrap();
        let told = verify(&copy, &scene.tree(), &["--json"]).expect_code(0);
        assert_eq!(counts(&told)["sound"], FILES + 1);
        assert_eq!(told.stderr_text().lines().count(), 1, "{}", told.account());
    }
    fs::set_permissions(&copy, fs::Permissions::from_mode(0o777)).unwrap();
    let told = verify(&copy, &scene.tree(), &[]).expect_code(11);
    assert!(told.stderr_text().contains("another user can write to it"), "{}", told.account());
}

#[test]
fn a_recorded_file_that_cannot_be_read_is_not_sound() {
    needs_dsync!();
    let Some(scene) = Scene::new("ext4") else { return };
    // Copied with this mode, so that the change time is that of the record.
    fs::set_permissions(scene.scratch.src().join("sound"), fs::Permissions::from_mode(0o600)).unwrap();
    until_met(|| {
        scene.copy();
        scene.is_known().then_some(())
    });
    for of_nobody in [scene.state_file(), scene.states()] {
        chown(of_nobody, Some(NOBODY), Some(NOBODY)).unwrap();
    }
    fs::set_permissions(scene.scratch.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let program = scene.scratch.at("dsync");
    fs::copy(dsync_tests::program(), &program).unwrap();

    let run = Run::of(&program).args(["verify", "-q", "--state-dir"]).arg(scene.states());
    let told = run.arg(scene.tree()).as_user(NOBODY, NOBODY).run().expect_code(23);
    let expected = "unreadable sound (Permission denied)\n";
    assert_eq!(told.stdout_text(), expected, "{}", told.account());
}

#[test]
fn words_that_need_a_manifest_are_refused_before_anything_is_read() {
    needs_dsync!();
    let scratch = Scratch::new();
    let tree = scratch.src().display().to_string();
    for (words, text) in [
        (&["--state", "host:dir"][..], "name it with --manifest FILE"),
        (&["host:dir"], "name it with --manifest FILE"),
        (&["--state", "--record", &tree], "--record"),
        (&["--state", "--manifest=list", &tree], "--manifest"),
        (&["--state-dir=states", "--against=src", &tree], "--against"),
    ] {
        let outcome = Run::dsync().arg("verify").args(words).run().expect_code(1);
        assert!(outcome.stderr_text().contains(text), "{words:?}: {}", outcome.account());
        assert!(outcome.stdout_text().is_empty());
    }
}
