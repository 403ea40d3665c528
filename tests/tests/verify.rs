//! `dsync verify`: what rots, what was edited, what is in the way of knowing, and the exit codes.

use std::{
    fs,
    os::unix::{
        ffi::OsStrExt as _,
        fs::{PermissionsExt as _, chown, symlink},
    },
    path::Path,
};

use rustix::fs::{CWD, FileType, Mode, mknodat};

use dsync_tests::{
    Outcome, Run, Scratch, Sshd, Via,
    mount::Mount,
    needs_dsync, program, remote_shell,
    run::wait_for,
    scratch::slash,
    skip::is_root,
    strace::watch,
    tree::{noise, set_mtime},
};

const NOBODY: u32 = 65534;

fn verify(tree: &Path, words: &[&str]) -> Outcome {
    Run::dsync().arg("verify").args(words).arg(tree).run()
}

/// A manifest within its tree, and beside it the times of an earlier verification, which the run records too.
#[test]
fn times_of_reading_beside_a_manifest_in_the_tree_are_no_entry_of_it() {
    needs_dsync!();
    let scratch = Scratch::new();
    [scratch.src(), scratch.dst()].iter().for_each(|dir| fs::create_dir_all(dir).unwrap());
    let manifest = scratch.dst().join("m");
    for run in 1..=3 {
        fs::write(scratch.src().join(format!("f{run}")), "text").unwrap();
        let copy =
            Run::dsync().args(["-a", "--delete"]).arg(format!("--write-manifest={}", manifest.display()));
        let _ = copy.arg(slash(&scratch.src())).arg(scratch.dst()).run().expect_code(0);
        let check = Run::dsync().args(["verify", "--max-age=1d", "--manifest"]).arg(&manifest);
        let _ = check.arg(scratch.dst()).run().expect_code(0);
    }
    assert!(scratch.dst().join("m.verified").exists());
}

/// Plants a tree and records it.
fn recorded() -> Scratch {
    let scratch = Scratch::new();
    let tree = scratch.src();
    fs::create_dir_all(tree.join("sub")).unwrap();
    for file in ["one", "two", "sub/three"] {
        fs::write(tree.join(file), file).unwrap();
    }
    fs::write(tree.join(std::ffi::OsStr::from_bytes(b"sub/\xff")), "odd").unwrap();
    symlink("one", tree.join("link")).unwrap();
    let outcome = verify(&tree, &["--record"]).expect_code(0);
    assert!(outcome.stdout_text().starts_with("7 entries, 4 files of 18 bytes"), "{}", outcome.account());
    scratch
}

/// Changes a byte and nothing else that shows.
fn rot(path: &Path) {
    let before = fs::metadata(path).unwrap().modified().unwrap();
    let mut content = fs::read(path).unwrap();
    content[0] ^= 0x80;
    fs::write(path, content).unwrap();
    fs::File::options().write(true).open(path).unwrap().set_modified(before).unwrap();
}

#[test]
fn a_full_standard_output_is_told_and_findings_keep_their_code() {
    needs_dsync!();
    let scratch = recorded();
    rot(&scratch.src().join("one"));
    let same = scratch.at("same");
    let _ = Run::dsync().arg("-a").arg(slash(&scratch.src())).arg(&same).run().expect_code(0);
    for (words, code) in [
        ("verify src", 23),
        ("verify src --against same", 13),
        ("--help", 13),
        ("-h", 13),
        ("--version", 13),
        ("man", 13),
        ("completions bash", 13),
        ("doctor src", 13),
        ("explain -a src/ dst/ one", 13),
        ("explain -a src/ dst/ nothing", 23),
        ("verify --help", 13),
        ("explain --help", 13),
        ("serve --help", 13),
        ("key --file key", 13),
    ] {
        let full = format!("exec \"$1\" {words} >/dev/full");
        let run = Run::of("sh").args(["-c", &full, "sh"]).arg(program()).cwd(scratch.path()).run();
        let run = run.expect_code(code);
        let said = "dsync: error: cannot write to standard output: the disk is full";
        assert!(run.stderr_text().contains(said), "{words}: {}", run.account());
    }
}

#[test]
fn rot_edits_and_the_rest_are_lines_and_exit_code_23() {
    needs_dsync!();
    let scratch = recorded();
    let tree = scratch.src();
    let sound = verify(&tree, &[]).expect_code(0);
    assert_eq!(sound.stdout_text(), "7 entries compared, 18 bytes read: 4 files are sound\n");
    // With a slash, and without a word.
    let slash = format!("{}/", tree.display());
    assert!(verify(Path::new(&slash), &["-q"]).expect_code(0).stdout_text().is_empty());

    rot(&tree.join(std::ffi::OsStr::from_bytes(b"sub/\xff")));
    fs::write(tree.join("one"), "longer").unwrap();
    fs::remove_file(tree.join("two")).unwrap();
    fs::write(tree.join("zero"), "").unwrap();
    let outcome = verify(&tree, &["-q"]).expect_code(23);
    let expected = "edited     one (size, time)\nmissing    two\nnew        zero\nrot        sub/\\#377\n";
    assert_eq!(outcome.stdout_text(), expected, "{}", outcome.account());

    let json = verify(&tree, &["--json"]).expect_code(23);
    let events: Vec<serde_json::Value> =
        json.stdout_text().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(events.len(), 5, "{}", json.account());
    assert_eq!((&events[3]["kind"], &events[3]["path_hex"]), (&"rot".into(), &"7375622fff".into()));
    assert_eq!((&events[4]["event"], &events[4]["rot"]), (&"verified".into(), &1.into()));

    // Nothing is read, so nothing shows that keeps its size and time.
    assert!(!verify(&tree, &["--percent=0"]).expect_code(23).stdout_text().contains("\nrot "));
    assert!(verify(&tree, &["--record"]).expect_code(0).stderr_text().is_empty());
    let _ = verify(&tree, &[]).expect_code(0);
}

#[test]
fn the_times_of_reading_cost_no_look_at_a_file() {
    needs_dsync!();
    let scratch = Scratch::new();
    let tree = scratch.src();
    (0..300).for_each(|number| fs::write(tree.join(number.to_string()), "").unwrap());
    let _ = verify(&tree, &["--record"]).expect_code(0);
    let looks = |words: &[&str]| {
        let run = |run: Run| run.arg("verify").args(words).arg(&tree);
        let (outcome, calls) = watch("statx,fstat,newfstatat", &scratch.at("trace"), run);
        let _ = outcome.expect_code(0);
        calls.len()
    };
    let (all, lately) = (looks(&[]), looks(&["--max-age=30d"]));
    assert!(all >= 300 && lately < all + 300, "{all} {lately}");
}

#[test]
fn files_that_were_read_lately_are_not_read_again() {
    needs_dsync!();
    let scratch = recorded();
    let tree = scratch.src();
    let times = format!("{}.dsync-manifest.verified", tree.display());
    let verify_lately = |code| {
        let outcome = verify(&tree, &["--json", "--max-age=30d"]).expect_code(code);
        let last = outcome.stdout_text().lines().last().unwrap().to_owned();
        let end: serde_json::Value = serde_json::from_str(&last).unwrap();
        (end["sound"].as_u64(), end["unread"].as_u64(), outcome.stderr_text().to_owned())
    };
    assert_eq!(verify_lately(0), (Some(4), Some(0), String::new()));
    assert_eq!(verify_lately(0), (Some(0), Some(4), String::new()));
    // A file that was written to is another version. A file that is not sound is read again each time.
    rot(&tree.join("one"));
    for _ in 0..2 {
        assert_eq!(verify_lately(23), (Some(0), Some(3), String::new()));
    }
    assert_eq!(verify(&tree, &["-q", "--max-age=0s"]).expect_code(23).stdout_text(), "rot        one\n");
    assert_eq!(verify_lately(23).0, Some(0));

    fs::write(&times, "dsync-verified 1\nnot what follows it").unwrap();
    let (sound, unread, told) = verify_lately(23);
    assert_eq!((sound, unread), (Some(3), Some(0)));
    assert!(told.contains("damaged or out of date; all files are read"), "{told}");
    // The times of another manifest say nothing.
    let _ = verify(&tree, &["--record"]).expect_code(0);
    assert_eq!(verify_lately(0).0, Some(4));

    // A file of somebody's own stays.
    fs::write(&times, "precious").unwrap();
    let outcome = verify(&tree, &["--max-age=30d"]).expect_code(11);
    assert!(outcome.stderr_text().contains("it is no file of dsync's"), "{}", outcome.account());
    assert_eq!(fs::read(&times).unwrap(), b"precious");

    // Nothing but a regular file is read from there, waited for or replaced.
    let beside: [(&str, &dyn Fn()); 3] = [
        ("link", &|| symlink("nowhere/at/all", &times).unwrap()),
        ("fifo", &|| mknodat(CWD, &times, FileType::Fifo, Mode::RWXU, 0).unwrap()),
        ("directory", &|| fs::create_dir(&times).unwrap()),
    ];
    for (what, make) in beside {
        let _ = fs::remove_file(&times);
        make();
        let outcome = verify(&tree, &["--max-age=30d"]).expect_code(11);
        assert!(outcome.stderr_text().contains("it is no regular file"), "{what}: {}", outcome.account());
        assert!(fs::symlink_metadata(&times).is_ok_and(|there| !there.is_file()), "{what}");
    }
    fs::remove_dir(&times).unwrap();
    let inside = tree.join("list");
    let _ =
        Run::dsync().args(["verify", "--record", "--manifest"]).arg(&inside).arg(&tree).run().expect_code(0);
    for sound in [4, 0] {
        let run = Run::dsync().args(["verify", "--max-age=2w", "--manifest"]).arg(&inside).arg(&tree).run();
        let expected = format!("{sound} files are sound");
        assert!(run.expect_code(0).stdout_text().contains(&expected));
    }
    for words in ["--max-age=soon", "--max-age=1month", "--max-age=-1d"] {
        let outcome = verify(&tree, &[words]).expect_code(1);
        assert!(outcome.stderr_text().contains("a number and a unit"), "{}", outcome.account());
    }
}

#[test]
fn a_directory_without_its_name_has_its_manifest_beside_it_too() {
    needs_dsync!();
    let scratch = recorded();
    let tree = scratch.src();
    for (from, word) in [(&tree, "."), (&tree, "./"), (&tree.join("sub"), ".."), (&tree, "sub/..")] {
        let verify = |words: &[&str]| Run::dsync().cwd(from).arg("verify").args(words).arg(word).run();
        let found = verify(&[]).expect_code(0);
        assert!(found.stdout_text().contains("4 files are sound"), "{word}: {}", found.account());
        let outcome = verify(&["--record"]).expect_code(0);
        assert!(outcome.stdout_text().contains("src.dsync-manifest'"), "{word}: {}", outcome.account());
    }
    let hidden = |name: &std::ffi::OsStr| name.as_bytes().starts_with(b".");
    let inside = fs::read_dir(&tree).unwrap().chain(fs::read_dir(tree.join("sub")).unwrap());
    assert!(!inside.flatten().any(|entry| hidden(&entry.file_name())));
}

#[test]
fn nothing_but_a_regular_file_is_a_manifest_or_is_replaced_by_one() {
    needs_dsync!();
    let scratch = recorded();
    let (tree, place) = (scratch.src(), scratch.at("manifest"));
    fs::write(scratch.at("mine"), "mine").unwrap();
    let kinds: [(&str, &dyn Fn()); 3] = [
        ("fifo", &|| mknodat(CWD, &place, FileType::Fifo, Mode::RWXU, 0).unwrap()),
        ("directory", &|| fs::create_dir(&place).unwrap()),
        ("link", &|| symlink("mine", &place).unwrap()),
    ];
    for (kind, make) in kinds {
        let _ = fs::remove_file(&place).or_else(|_| fs::remove_dir(&place));
        make();
        let before = fs::symlink_metadata(&place).unwrap().file_type();
        let refused = |outcome: Outcome| {
            let outcome = outcome.expect_code(11);
            let told = outcome.stderr_text();
            assert!(told.lines().count() == 1 && told.contains("manifest'"), "{kind}: {told}");
            assert!(!told.contains("verify --record"), "{kind}: {told}");
            assert_eq!(fs::symlink_metadata(&place).unwrap().file_type(), before, "{kind}");
        };
        let manifest = place.to_str().unwrap();
        refused(verify(&tree, &["--manifest", manifest]));
        refused(verify(&tree, &["--record", "--manifest", manifest]));
        let run = Run::dsync().args(["-a", "--write-manifest", manifest]).arg(slash(&tree));
        refused(run.arg(scratch.dst()).run());
        assert!(!scratch.dst().exists(), "{kind}");
    }
    assert_eq!(fs::read(scratch.at("mine")).unwrap(), b"mine");
}

#[test]
fn a_damaged_manifest_is_refused_before_anything_is_compared() {
    needs_dsync!();
    let scratch = recorded();
    let tree = scratch.src();
    let beside = format!("{}.dsync-manifest", tree.display());
    let whole = fs::read(&beside).unwrap();
    let cases: [(&[u8], &str); 4] = [
        (&whole[..whole.len() - 90], "was cut short"),
        (&whole[..0], "is no manifest"),
        (b"dsync-manifest 2\n", "has version 2, and this program reads version 1"),
        (b"\0\0\0", "is no manifest"),
    ];
    for (content, words) in cases {
        fs::write(&beside, content).unwrap();
        let outcome = verify(&tree, &[]).expect_code(11);
        assert!(outcome.stdout_text().is_empty());
        assert!(outcome.stderr_text().contains(words), "{}", outcome.account());
    }
    fs::remove_file(&beside).unwrap();
    let outcome = verify(&tree, &[]).expect_code(11);
    assert!(outcome.stderr_text().contains("dsync verify --record"), "{}", outcome.account());
}

#[test]
fn mistakes_are_named() {
    needs_dsync!();
    let scratch = recorded();
    let _ = verify(&scratch.at("none"), &["--record"]).expect_code(3);
    for (words, text) in [
        (&["--percent=101"][..], "--percent"),
        (&["--no-such-option"], "--no-such-option"),
        (&["--record", "--percent=5", "."], "--percent"),
        (&["one", "two"], "'two' is one word too many"),
    ] {
        let outcome = Run::dsync().arg("verify").args(words).run().expect_code(1);
        assert!(outcome.stderr_text().contains(text), "{}", outcome.account());
    }
    let outcome = Run::dsync().arg("verify").run().expect_code(1);
    assert!(outcome.stderr_text().contains("takes a directory"), "{}", outcome.account());
    let help = Run::dsync().args(["verify", "--help"]).run().expect_code(0);
    assert!(help.stdout_text().contains("--percent"), "{}", help.account());
    // A manifest inside its tree is no part of it.
    let inside = scratch.src().join("list");
    for words in [["--record", "--manifest"], ["--record", "--manifest"], ["-q", "--manifest"]] {
        let outcome = Run::dsync().arg("verify").args(words).arg(&inside).arg(scratch.src()).run();
        let _ = outcome.expect_code(0);
    }
}

#[test]
fn what_the_disk_lost_is_found_although_memory_still_has_it() {
    needs_dsync!();
    let scratch = Scratch::new();
    let Some(disk) = Mount::of_type("ext4", &scratch.at("disk")) else { return };
    let (tree, manifest) = (disk.path().join("tree"), scratch.at("list"));
    fs::create_dir(&tree).unwrap();
    fs::write(tree.join("sound"), noise(1, 4096)).unwrap();
    fs::write(tree.join("file"), noise(2, 4096)).unwrap();
    let verify =
        |word: &str| Run::dsync().args(["verify", word, "--manifest"]).arg(&manifest).arg(&tree).run();
    let _ = verify("--record").expect_code(0);
    let _ = Run::of("sync").run().expect_code(0);

    disk.lose_block(&noise(2, 4096));

    let outcome = verify("-q").expect_code(23);
    assert_eq!(outcome.stdout_text(), "rot        file\n", "{}", outcome.account());
}

#[test]
fn two_trees_are_compared_by_content_and_left_as_they_are() {
    needs_dsync!();
    let scratch = Scratch::new();
    let (source, tree) = (scratch.src(), scratch.dst());
    for (name, content) in [("same", "same"), ("rotten", "rotten"), ("edited", "edited"), ("gone", "gone")] {
        fs::write(source.join(name), content).unwrap();
    }
    let _ = Run::dsync().arg("-a").arg(slash(&source)).arg(&tree).run().expect_quiet_success();
    let against = |words: &[&str]| {
        Run::dsync().arg("verify").args(words).arg(&tree).arg("--against").arg(&source).run()
    };
    let equal = against(&[]).expect_code(0);
    assert_eq!(equal.stdout_text(), "5 entries compared: 4 files are equal\n");

    rot(&tree.join("rotten"));
    fs::write(tree.join("edited"), "longer").unwrap();
    fs::remove_file(tree.join("gone")).unwrap();
    fs::write(tree.join("new"), "").unwrap();
    fs::set_permissions(tree.join("same"), std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    let outcome = against(&["-q"]).expect_code(23);
    let mut lines: Vec<_> = outcome.stdout_text().lines().map(str::to_owned).collect();
    lines.sort();
    let expected = [
        "attributes same (permissions)",
        "differs    rotten",
        "edited     edited (content, time)",
        "missing    gone",
        "new        new",
    ];
    assert_eq!(lines, expected, "{}", outcome.account());
    let last = against(&["--json"]).expect_code(23).stdout_text();
    let last: serde_json::Value = serde_json::from_str(last.lines().last().unwrap()).unwrap();
    assert_eq!((&last["differs"], &last["missing"], &last["sound"]), (&1.into(), &1.into(), &0.into()));
    assert!(!tree.join("gone").exists() && tree.join("new").exists());
}

#[test]
fn a_verification_that_fails_as_a_whole_is_an_event() {
    needs_dsync!();
    let scratch = Scratch::new();
    fs::write(scratch.at("manifest"), "none").unwrap();
    for (words, code) in [
        (&["none", "--against", "src"][..], 3),
        (&["src", "--against", "none"], 3),
        (&["src", "--manifest", "manifest"], 11),
        (&["src", "--state", "--state-dir", "none"], 11),
    ] {
        let run = Run::dsync().cwd(scratch.path()).args(["verify", "--json"]).args(words);
        let outcome = run.run().expect_code(code);
        let text = outcome.stdout_text();
        let event: serde_json::Value = serde_json::from_str(&text).expect(&text);
        assert_eq!((&event["event"], &event["exit_code"]), (&"failed".into(), &code.into()), "{text}");
        let error = event["error"].as_str().unwrap();
        assert!(outcome.stderr_text().contains(error), "{}", outcome.account());
    }
}

#[test]
fn what_cannot_be_read_or_has_another_type_is_told_as_that() {
    needs_dsync!();
    let scratch = Scratch::new();
    let (source, tree) = (scratch.src(), scratch.dst());
    for dir in [&source, &tree] {
        fs::create_dir_all(dir.join("sub")).unwrap();
        for name in ["closed", "sub/same"] {
            fs::write(dir.join(name), name).unwrap();
            set_mtime(&dir.join(name), (1_000_000_000, 0));
        }
    }
    symlink("closed", source.join("kind")).unwrap();
    fs::create_dir(tree.join("kind")).unwrap();
    // The directory of the same name is reached through a link, so nothing is known of what is in it.
    fs::create_dir(source.join("led")).unwrap();
    fs::write(source.join("led/same"), "").unwrap();
    symlink("sub", tree.join("led")).unwrap();
    fs::set_permissions(source.join("closed"), fs::Permissions::from_mode(0o000)).unwrap();
    if is_root() {
        for path in ["", "src", "dst", "src/closed", "dst/closed"] {
            chown(scratch.at(path), Some(NOBODY), Some(NOBODY)).unwrap();
        }
    }

    let run = Run::dsync().arg("verify").arg(&tree).arg("--against").arg(&source);
    let run = if is_root() { run.as_user(NOBODY, NOBODY) } else { run };
    let outcome = run.run().expect_code(23);
    let text = outcome.stdout_text();
    assert!(text.contains("unreadable closed") && !text.contains("differs "), "{text}");
    assert!(text.contains("edited     kind (content, a directory here, a symbolic link at SRC)\n"), "{text}");
    assert!(text.contains("missing    led/same\n"), "{text}");
    assert!(text.contains("1 file is equal") && text.contains(" 1 unreadable"), "{text}");
}

#[test]
fn a_tree_on_another_host_is_compared_and_no_content_is_sent() {
    needs_dsync!();
    let sshd = Sshd::shared();
    let scratch = Scratch::new();
    let (source, tree) = (scratch.src(), scratch.dst());
    let content = noise(7, 3 << 20);
    fs::create_dir(&tree).unwrap();
    for dir in [&source, &tree] {
        fs::write(dir.join("file"), &content).unwrap();
    }
    for file in [source.join("file"), tree.join("file")] {
        set_mtime(&file, (1_000_000_000, 0));
    }
    let compare = |operands: [std::ffi::OsString; 2], code| {
        let [tree, source] = operands;
        let run = Run::dsync().arg("verify").arg(tree).arg("--against").arg(source);
        run.arg("-e").arg(sshd.shell()).arg("--dsync-path").arg(program()).run().expect_code(code)
    };
    let both = || {
        let (here, there) = (tree.clone().into_os_string(), sshd.operand(&tree));
        [[here, sshd.operand(&source)], [there, source.clone().into_os_string()]]
    };
    for operands in both() {
        assert!(compare(operands, 0).stdout_text().ends_with("compared: 1 file is equal\n"));
    }
    rot(&tree.join("file"));
    for operands in both() {
        assert!(compare(operands, 23).stdout_text().starts_with("differs    file\n"));
    }
}

#[test]
fn a_host_alone_is_compared_as_its_home_directory() {
    needs_dsync!();
    let scratch = Scratch::new();
    let home = scratch.at("home");
    // A directory of this machine is no host, whatever its name ends with.
    for tree in [&home, &scratch.dst(), &scratch.at("odd:")] {
        fs::create_dir(tree).unwrap();
        fs::write(tree.join("file"), "content").unwrap();
        set_mtime(&tree.join("file"), (1_000_000_000, 0));
    }
    let script = format!("cd {}\n{}", home.display(), remote_shell::PLAIN);
    let shell = remote_shell::write(scratch.at("shell"), &script);

    let compare = |tree: &str, other: &str| {
        let run = Run::dsync().args(["verify", tree, "--against", other]).arg("-e").arg(&shell);
        run.arg("--dsync-path").arg(program()).cwd(scratch.path()).run()
    };
    let odd = scratch.at("odd:");
    for (tree, other) in [
        ("dst", "host:"),
        ("host:", "dst"),
        ("dst", "user@host:"),
        ("dst", "[::1]:"),
        ("dst", "./odd:"),
        ("./odd:", "dst"),
        (odd.to_str().unwrap(), "dst"),
    ] {
        let equal = compare(tree, other).expect_code(0).stdout_text();
        assert!(equal.ends_with("compared: 1 file is equal\n"), "{tree} {other}: {equal}");
    }
    let nameless = compare("dst", "host::").expect_code(1);
    assert!(nameless.stderr_text().contains("names no share"), "{}", nameless.account());
}

#[test]
fn an_empty_source_and_a_missing_tree_are_told_apart() {
    needs_dsync!();
    let scratch = Scratch::new();
    fs::create_dir(scratch.dst()).unwrap();
    fs::write(scratch.dst().join("file"), "").unwrap();
    let against =
        |tree: &Path| Run::dsync().arg("verify").arg(tree).arg("--against").arg(scratch.src()).run();
    assert!(against(&scratch.dst()).expect_code(23).stdout_text().starts_with("new        file\n"));
    let missing = against(&scratch.at("none")).expect_code(3);
    assert!(missing.stderr_text().contains("there is none"), "{}", missing.account());
    let both = Run::dsync().args(["verify", "--record", "--against", "x"]).arg(scratch.dst()).run();
    assert!(both.expect_code(1).stderr_text().contains("--against"));
}

/// Verifies a tree of another host.
fn verify_there(sshd: &Sshd, tree: &Path, words: &[&str]) -> Outcome {
    let run = Run::dsync().args(["verify", "-e"]).arg(sshd.shell()).arg("--dsync-path").arg(program());
    run.args(words).arg(sshd.operand(tree)).run()
}

#[test]
fn a_tree_on_another_host_is_recorded_and_verified_from_here() {
    needs_dsync!();
    let (sshd, scratch) = (Sshd::shared(), recorded());
    let tree = scratch.src();
    let manifest = scratch.at("list").display().to_string();
    let there = |words: &[&str]| verify_there(sshd, &tree, &[words, &["--manifest", &manifest]].concat());
    let recorded = there(&["--record"]).expect_code(0);
    assert!(recorded.stdout_text().starts_with("7 entries, 4 files of 18 bytes"), "{}", recorded.account());
    let own = fs::read(scratch.at("src.dsync-manifest")).unwrap();
    assert!(fs::read(&manifest).unwrap() == own, "another manifest than on that host");
    let sound = there(&[]).expect_code(0);
    assert_eq!(sound.stdout_text(), "7 entries compared, 18 bytes read: 4 files are sound\n");

    rot(&tree.join("two"));
    fs::write(tree.join("one"), "longer").unwrap();
    fs::remove_file(tree.join("sub/three")).unwrap();
    let outcome = there(&["-q"]).expect_code(23);
    let expected = "edited     one (size, time)\nrot        two\nmissing    sub/three\n";
    assert_eq!(outcome.stdout_text(), expected, "{}", outcome.account());

    let (json, with_ages) = (there(&["--json"]).expect_code(23), there(&["--json", "--max-age=1h"]));
    for outcome in [json, with_ages.expect_code(23)] {
        let last = outcome.stdout_text();
        let last: serde_json::Value = serde_json::from_str(last.lines().last().unwrap()).unwrap();
        let counts = [&last["rot"], &last["edited"], &last["missing"], &last["sound"]];
        assert_eq!(counts, [1, 1, 1, 1], "{last}");
    }
    // Rot shows by reading only.
    for words in [["-n"], ["--percent=0"]] {
        let unread = there(&words).expect_code(23).stdout_text();
        assert!(unread.contains("0 bytes read") && !unread.contains("rot"), "{unread}");
    }
}

#[test]
fn a_run_writes_the_manifest_that_its_destination_is_verified_by() {
    needs_dsync!();
    let sshd = Sshd::shared();
    for (via, pulls) in [(None, false), (Some(Via::Tls), false), (Some(Via::Ssh), true)] {
        let scratch = Scratch::new();
        let (source, tree, list) = (scratch.src(), scratch.dst(), scratch.at("list"));
        fs::create_dir_all(source.join("sub")).unwrap();
        for file in ["one", "two", "sub/three"] {
            fs::write(source.join(file), file).unwrap();
        }
        symlink("one", source.join("link")).unwrap();
        let mut option = std::ffi::OsString::from("--write-manifest=");
        option.push(&list);
        let copy = |words: &[&str], code| {
            let run = via.map_or_else(Run::dsync, |via| sshd.run(via)).arg("-aH").arg(&option).args(words);
            let run = match via {
                None => run.arg(slash(&source)).arg(&tree),
                Some(_) if pulls => {
                    let mut from = sshd.operand(&source);
                    from.push("/");
                    run.arg(from).arg(&tree)
                }
                Some(_) => run.arg(slash(&source)).arg(sshd.operand(&tree)),
            };
            run.run().expect_code(code)
        };
        let check = |code| {
            let run = Run::dsync().args(["verify", "--manifest"]).arg(&list).arg(&tree).run();
            run.expect_code(code).stdout_text().to_owned()
        };
        let dry = copy(&["-n"], 0);
        assert!(!list.exists() && dry.stderr_text().is_empty(), "{}", dry.account());
        let first = copy(&[], 0);
        assert!(first.stdout_text().is_empty(), "{}", first.account());
        assert_eq!(check(0), "6 entries compared, 15 bytes read: 3 files are sound\n");

        fs::write(source.join("one"), "longer").unwrap();
        let _ = copy(&[], 0);
        let second = check(0);
        assert!(second.contains("6 bytes read: 1 file is sound"), "{second}");
        let _ = copy(&["-c"], 0);
        assert!(check(0).contains("18 bytes read: 3 files are sound"));
        // A file that cannot take its place is the only finding.
        fs::remove_file(tree.join("two")).unwrap();
        fs::create_dir_all(tree.join("two/held")).unwrap();
        let _ = copy(&[], 23);
        assert_eq!(check(23).lines().next(), Some("new        two"));
    }
}

#[test]
fn mistakes_about_a_remote_tree_are_named() {
    needs_dsync!();
    let (sshd, scratch) = (Sshd::shared(), recorded());
    let manifest = scratch.at("src.dsync-manifest").display().to_string();
    let there = |tree: &Path, words: &[&str], code, text: &str| {
        let outcome = verify_there(sshd, tree, words).expect_code(code);
        assert!(outcome.stderr_text().contains(text), "{}", outcome.account());
    };
    there(&scratch.src(), &[], 1, "name it with --manifest FILE");
    let given = ["--manifest", &manifest];
    there(&scratch.at("none"), &given, 3, "no such file or directory");
    there(&scratch.src().join("one"), &given, 3, "ot a directory");
    there(&scratch.src(), &["--manifest", "/nowhere/list"], 11, "cannot read the manifest");
    // A record that fails leaves no manifest.
    let wanted = scratch.at("wanted").display().to_string();
    there(&scratch.at("none"), &["--record", "--manifest", &wanted], 3, "no such file or directory");
    assert!(!scratch.at("wanted").exists());

    let share = |words: &[&str]| Run::dsync().args(["verify", "--manifest", &manifest]).args(words).run();
    let outcome = share(&["host::"]).expect_code(1);
    assert!(outcome.stderr_text().contains("host::"), "{}", outcome.account());
    let outcome = share(&["-e", "ssh", "host::nas"]).expect_code(1);
    assert!(outcome.stderr_text().contains("--rsh"), "{}", outcome.account());
}

#[test]
fn what_a_disk_of_another_host_lost_is_found_although_its_memory_still_has_it() {
    needs_dsync!();
    let (sshd, scratch) = (Sshd::shared(), Scratch::new());
    let Some(disk) = Mount::of_type("ext4", &scratch.at("disk")) else { return };
    let tree = disk.path().join("tree");
    fs::create_dir(&tree).unwrap();
    fs::write(tree.join("file"), noise(2, 4096)).unwrap();
    let list = scratch.at("list").display().to_string();
    let _ = verify_there(sshd, &tree, &["--record", "--manifest", &list]).expect_code(0);
    let _ = Run::of("sync").run().expect_code(0);
    disk.lose_block(&noise(2, 4096));

    let outcome = verify_there(sshd, &tree, &["-q", "--manifest", &list]).expect_code(23);
    assert_eq!(outcome.stdout_text(), "rot        file\n", "{}", outcome.account());
}

/// Pages that a program has mapped cannot be dropped from memory.
#[test]
fn what_a_disk_lost_of_a_program_that_runs_is_found() {
    needs_dsync!();
    for of_type in ["ext4", "xfs"] {
        let scratch = Scratch::new();
        let Some(disk) = Mount::of_type(of_type, &scratch.at("disk")) else { continue };
        let tree = disk.path().join("tree");
        fs::create_dir(&tree).unwrap();
        // Of an odd length, as files are.
        let program = [&fs::read("/bin/sleep").unwrap()[..], b"odd"].concat();
        fs::write(tree.join("program"), &program).unwrap();
        fs::set_permissions(tree.join("program"), fs::Permissions::from_mode(0o755)).unwrap();
        let _ = verify(&tree, &["--record"]).expect_code(0);
        let _ = Run::of("sync").run().expect_code(0);

        let mut running = std::process::Command::new(tree.join("program")).arg("600").spawn().unwrap();
        let maps = format!("/proc/{}/maps", running.id());
        wait_for(|| fs::read_to_string(&maps).is_ok_and(|maps| maps.contains("/tree/program")));
        disk.lose_block(&program[..4096]);
        let found = verify(&tree, &["-q"]);
        running.kill().unwrap();
        let _ = running.wait().unwrap();
        assert_eq!(found.expect_code(23).stdout_text(), "rot        program\n", "{of_type}");
    }
}

/// Copies an entry with its times, as a restore does.
fn copy_whole(from: &Path, to: &Path) {
    let copied = std::process::Command::new("cp").arg("-a").args([from, to]).status().unwrap();
    assert!(copied.success());
}

#[test]
fn nothing_that_was_never_read_counts_as_read_lately() {
    needs_dsync!();
    let scratch = recorded();
    let tree = scratch.src();
    let manifest = format!("{}.dsync-manifest", tree.display());
    let lately = |tree: &Path| {
        Run::dsync().args(["verify", "-q", "--max-age=30d", "--manifest", &manifest]).arg(tree).run()
    };
    let _ = lately(&tree).expect_code(0);

    // Another tree, the copy of a disk, of which a file has rotted.
    let copy = scratch.at("copy");
    copy_whole(&tree, &copy);
    rot(&copy.join("two"));
    assert_eq!(lately(&copy).expect_code(23).stdout_text(), "rot        two\n");
    let _ = lately(&tree).expect_code(0);

    // A file that was lost, or cut, and came back from a copy that has rotted.
    for lose in [|path: &Path| fs::remove_file(path).unwrap(), |path: &Path| fs::write(path, "t").unwrap()] {
        let good = fs::read(tree.join("two")).unwrap();
        lose(&tree.join("two"));
        let _ = lately(&tree).expect_code(23);
        copy_whole(&copy.join("two"), &tree.join("two"));
        assert_eq!(lately(&tree).expect_code(23).stdout_text(), "rot        two\n");
        let time = fs::metadata(tree.join("two")).unwrap().modified().unwrap();
        fs::write(tree.join("two"), good).unwrap();
        fs::File::options().write(true).open(tree.join("two")).unwrap().set_modified(time).unwrap();
        let _ = lately(&tree).expect_code(0);
    }
    // Trees of two hosts, of which no version of a file is known.
    let sshd = Sshd::shared();
    let far = |tree: &Path| verify_there(sshd, tree, &["-q", "--max-age=30d", "--manifest", &manifest]);
    let _ = far(&tree).expect_code(0);
    assert_eq!(far(&copy).expect_code(23).stdout_text(), "rot        two\n");
}

#[test]
fn a_manifest_of_a_file_that_gets_another_name_is_refused_in_words_of_the_command_line() {
    needs_dsync!();
    let scratch = Scratch::new();
    fs::write(scratch.at("one"), "one").unwrap();
    let run = Run::dsync().args(["-a", "--write-manifest=list", "one", "other"]).cwd(scratch.path()).run();
    let said = run.expect_code(1).stderr_text().to_owned();
    assert_eq!(
        said,
        "dsync: error: --write-manifest: needs a directory as destination, and this one is the name of a file\n"
    );
    assert!(!scratch.at("other").exists() && !scratch.at("list").exists());
}

#[test]
fn a_manifest_takes_the_place_of_no_entry_of_the_tree_and_of_no_other_file() {
    needs_dsync!();
    let scratch = Scratch::new();
    for name in ["list", "other"] {
        fs::write(scratch.src().join(name), name).unwrap();
    }
    let copy = |file: &str| {
        let option = format!("--write-manifest={file}");
        Run::dsync().args(["-a", &option, "src/", "dst/"]).cwd(scratch.path()).run()
    };
    let is_whole = || fs::read(scratch.dst().join("list")).unwrap() == b"list";

    // It is made by this run, then it is there.
    let _ = fs::create_dir(scratch.dst());
    for words in
        ["an entry of the source, or another program, has taken its name", "no manifest, and is not replaced"]
    {
        let outcome = copy("dst/list").expect_code(11);
        assert!(outcome.stderr_text().contains(words) && is_whole(), "{}", outcome.account());
    }
    fs::write(scratch.at("precious"), "data").unwrap();
    let _ = copy("precious").expect_code(11);
    assert_eq!(fs::read(scratch.at("precious")).unwrap(), b"data");

    // An old one is replaced, and so is an empty file, as mktemp(1) makes it.
    fs::write(scratch.at("new"), "").unwrap();
    for _ in 0..2 {
        let _ = copy("new").expect_quiet_success();
    }
    let _ =
        Run::dsync().args(["verify", "--manifest", "new", "dst"]).cwd(scratch.path()).run().expect_code(0);
}
