//! Keys for one purpose: `dsync --server --restrict PATH,ACCESS` as the forced command of a key.
//! Whatever the client requests, it stays in PATH and does there only what ACCESS allows.

use std::{
    collections::BTreeMap,
    ffi::OsString,
    fs,
    os::unix::fs::{PermissionsExt, symlink},
    path::{Path, PathBuf},
};

use dsync_tests::{
    Facts, Node, Outcome, Run, Scratch, Sshd, Tree, assert_unchanged, needs_dsync, program, scratch::slash,
    survey,
};

/// The words for each access.
const EACH: [&str; 5] = ["rw", "ro", "wo", "append", "write"];

/// Writes a remote shell that runs the forced command, whatever it is told to run.
fn forced(scratch: &Scratch, restriction: &str) -> PathBuf {
    let path = scratch.at("forced");
    let (dsync, floor) = (program().display(), scratch.at("floor"));
    let text = format!(
        "#!/bin/sh\ncd /\nexport SSH_ORIGINAL_COMMAND=\"$*\"\nexec {dsync} --server --restrict {}{restriction}\n",
        floor.display()
    );
    fs::write(&path, text).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path
}

/// Makes a run through a key of this access.
fn through(scratch: &Scratch, access: &str) -> Run {
    let shell = forced(scratch, &format!(",{access}"));
    Run::dsync().args(["--transport=ssh", "-e"]).arg(shell)
}

/// Plants `src` with `new`, `same` and `changed`; `floor/tree` with `same`, `changed` and `extra`;
/// and a file outside.
fn plant(scratch: &Scratch) {
    fs::create_dir_all(scratch.at("floor/tree/sub")).unwrap();
    fs::create_dir(scratch.src().join("sub")).unwrap();
    fs::create_dir(scratch.at("outside")).unwrap();
    fs::write(scratch.at("outside/secret"), "secret").unwrap();
    for (file, source, there) in [
        ("new", Some("new"), None),
        ("sub/new", Some("new too"), None),
        ("same", Some("same"), Some("same")),
        ("changed", Some("changed here"), Some("there")),
        ("extra", None, Some("extra")),
    ] {
        for (root, content) in [(scratch.src(), source), (scratch.at("floor/tree"), there)] {
            if let Some(content) = content {
                fs::write(root.join(file), content).unwrap();
                dsync_tests::tree::set_mtime(&root.join(file), (1_500_000_000, 0));
            }
        }
    }
}

#[test]
fn trees_are_compared_through_a_key_that_may_only_read_the_other_way_round() {
    needs_dsync!();
    let scratch = Scratch::new();
    plant(&scratch);
    let here = scratch.src().display().to_string();
    for access in ["ro", "append"] {
        let shell = forced(&scratch, &format!(",{access}"));
        let verify = |tree: &str, against: &str| {
            let run = Run::dsync().args(["verify", "-q", "-e"]).arg(&shell);
            run.args([tree, "--against", against]).run()
        };
        let refused = verify("host:tree", &here).expect_code(42);
        let cure = format!("dsync verify {here} --against host:tree");
        assert!(refused.stderr_text().contains(&cure), "{access}: {}", refused.account());
        if access == "ro" {
            let _ = verify(&here, "host:tree").expect_code(23);
        }
    }
}

fn push(scratch: &Scratch, access: &str, options: &[&str], to: &str) -> Outcome {
    through(scratch, access)
        .arg("-a")
        .args(options)
        .arg(slash(&scratch.src()))
        .arg(format!("host:{to}"))
        .run()
}

fn pull(scratch: &Scratch, access: &str, options: &[&str], from: &str) -> Outcome {
    through(scratch, access)
        .arg("-a")
        .args(options)
        .arg(format!("host:{from}"))
        .arg(slash(&scratch.at("got")))
        .run()
}

/// Requests that no key may make.
const FOR_NOBODY: [&str; 4] = ["--write-devices", "--keep-dirlinks", "--insecure-links", "--copy-devices"];

/// Asserts that a run was refused for its request, by a line that names the rule and the remedy, if another
/// key is one.
fn assert_refused(outcome: Outcome, demand: &str, access: &str) {
    let outcome = outcome.expect_code(42);
    let text = outcome.stderr_text();
    if FOR_NOBODY.contains(&demand) {
        let refusal = format!("error: {demand}: no key that is for one directory (--restrict) allows it");
        assert!(text.contains(&refusal) && !text.contains("authorized_keys"), "{}", outcome.account());
        return;
    }
    for part in [demand, &format!(",{access})"), "authorized_keys"] {
        assert!(text.contains(part), "{part}: {}", outcome.account());
    }
}

#[test]
fn wildcards_stay_in_the_directory_of_a_restricted_key() {
    needs_dsync!();
    let scratch = Scratch::new();
    plant(&scratch);
    symlink(scratch.at("outside"), scratch.at("floor/tree/out")).unwrap();
    fs::create_dir(scratch.at("got")).unwrap();
    let _ = pull(&scratch, "ro", &[], "tree/s*").expect_code(0);
    assert!(scratch.at("got/same").exists() && scratch.at("got/sub").exists());
    assert!(!scratch.at("got/extra").exists());
    // The link leads out: nothing matches in it.
    for path in ["tree/*/secret", "../outside/s*", "/../outside/s*"] {
        let outcome = pull(&scratch, "ro", &[], path);
        assert!(outcome.code() != Some(0), "{}", outcome.account());
        assert!(!scratch.at("got/secret").exists(), "{path}");
    }
}

#[test]
fn each_access_allows_the_pushes_that_it_says_and_no_others() {
    needs_dsync!();
    // The requests, and which of EACH allow them.
    let pushes: &[(&[&str], &str, [bool; 5])] = &[
        (&[], "copying to there", [true, false, true, true, true]),
        (&["-n"], "copying to there", [true, false, true, true, true]),
        (&["--delete"], "--delete", [true, false, true, false, false]),
        (&["--delete-excluded", "--delete"], "--delete", [true, false, true, false, false]),
        (&["--delete-missing-args"], "--delete", [true, false, true, false, false]),
        (&["--force"], "--force", [true, false, true, false, false]),
        (&["--inplace"], "--inplace", [true, false, true, false, true]),
        (&["--append"], "--inplace", [true, false, true, false, true]),
        (&["--append-verify"], "--inplace", [true, false, true, false, true]),
        (&["-b"], "--backup", [true, false, true, false, false]),
        (&["--backup-dir=/old"], "--backup", [true, false, true, false, false]),
        (&["--delay-updates"], "--delay-updates", [true, false, true, false, false]),
        (&["--partial-dir=.part"], "--partial-dir", [true, false, true, false, false]),
        (&["--temp-dir=/temp"], "--temp-dir", [true, false, true, true, true]),
        (&["--link-dest=/tree"], "--link-dest", [true, false, true, true, true]),
        (&["--mkpath"], "--mkpath", [true, false, true, true, true]),
        (&["--detect-renamed"], "--detect-renamed", [true, false, false, true, true]),
        (&["--write-devices"], "--write-devices", [false; 5]),
        (&["-K"], "--keep-dirlinks", [false; 5]),
        (&["-M--insecure-links"], "--insecure-links", [false; 5]),
    ];
    for (options, demand, allowed) in pushes {
        for (access, allowed) in EACH.into_iter().zip(allowed) {
            let scratch = Scratch::new();
            plant(&scratch);
            fs::create_dir(scratch.at("floor/temp")).unwrap();
            let before = survey(&scratch.at("floor"));
            let outcome = push(&scratch, access, options, "tree");
            if *allowed {
                // Different entries stay under `append`, which is a failure of one entry.
                let _ = outcome.expect_code(if access == "append" { 23 } else { 0 });
                continue;
            }
            // The message names the first request that is not allowed.
            let demand = if access == "ro" { "copying to there" } else { demand };
            assert_refused(outcome, demand, access);
            assert_unchanged(&before, &scratch.at("floor"));
        }
    }
}

#[test]
fn each_access_allows_the_pulls_that_it_says_and_no_others() {
    needs_dsync!();
    // The requests, and which of EACH allow them.
    let pulls: &[(&[&str], &str, [bool; 5])] = &[
        (&[], "copying from there", [true, true, false, true, true]),
        (&["-n"], "copying from there", [true, true, false, true, true]),
        (&["--remove-source-files"], "--remove-source-files", [true, false, false, false, false]),
        (&["--copy-devices"], "--copy-devices", [false; 5]),
        // The client may do what it likes to its own tree.
        (&["--delete"], "", [true, true, false, true, true]),
        (&["--inplace", "--insecure-links"], "", [true, true, false, true, true]),
    ];
    for (options, demand, allowed) in pulls {
        for (access, allowed) in EACH.into_iter().zip(allowed) {
            let scratch = Scratch::new();
            plant(&scratch);
            let before = survey(&scratch.at("floor"));
            let outcome = pull(&scratch, access, options, "tree/");
            if *allowed {
                let _ = outcome.expect_code(0);
            } else {
                assert_refused(outcome, if access == "wo" { "copying from there" } else { demand }, access);
                assert!(!scratch.at("got").exists());
            }
            if !options.contains(&"--remove-source-files") || !allowed {
                assert_unchanged(&before, &scratch.at("floor"));
            }
        }
    }
}

/// Surveys the entries of a tree other than directories, whose times change with additions.
fn contents(root: &Path) -> BTreeMap<Vec<u8>, Facts> {
    let mut found = survey(root);
    // The survey itself reads them.
    found.values_mut().for_each(|facts| facts.atime = None);
    found.retain(|path, _| !path.is_empty() && !root.join(String::from_utf8_lossy(path).as_ref()).is_dir());
    found
}

#[test]
fn append_adds_what_is_new_and_changes_nothing_that_is_there() {
    needs_dsync!();
    let scratch = Scratch::new();
    plant(&scratch);
    let tree = scratch.at("floor/tree");
    // Each way to change an existing entry: content, attributes alone, type, a link, further names,
    // a directory's mode.
    for (name, there, here) in
        [("retimed", "same", "same"), ("retyped", "file", ""), ("shadowed", "", "file")]
    {
        for (root, content) in [(&tree, there), (&scratch.src(), here)] {
            if content.is_empty() {
                fs::create_dir(root.join(name)).unwrap();
                fs::write(root.join(name).join("in_it"), "in it").unwrap();
            } else {
                fs::write(root.join(name), content).unwrap();
            }
        }
    }
    dsync_tests::tree::set_mtime(&tree.join("retimed"), (1_400_000_000, 0));
    symlink("here", scratch.src().join("link")).unwrap();
    symlink("there", tree.join("link")).unwrap();
    fs::hard_link(scratch.src().join("new"), scratch.src().join("new_too")).unwrap();
    fs::hard_link(scratch.src().join("same"), scratch.src().join("same_too")).unwrap();
    fs::write(tree.join("same_too"), "another").unwrap();
    fs::set_permissions(scratch.src().join("sub"), fs::Permissions::from_mode(0o700)).unwrap();
    fs::set_permissions(tree.join("sub"), fs::Permissions::from_mode(0o750)).unwrap();
    let before = contents(&tree);
    let outcome = push(&scratch, "append", &["-H"], "tree").expect_code(23);
    let text = outcome.stderr_text();
    for name in ["changed", "retimed", "retyped", "shadowed", "link", "same_too"] {
        assert!(text.contains(&format!("'{name}': it is there already")), "{name}: {}", outcome.account());
    }
    let mut after = contents(&tree);
    for new in ["new", "new_too", "sub/new"] {
        assert!(after.remove(new.as_bytes()).is_some(), "{new}");
        assert_eq!(fs::read(tree.join(new)).unwrap(), fs::read(scratch.src().join(new)).unwrap());
    }
    assert_eq!(before, after, "something that was there has changed");
    assert_eq!(fs::metadata(tree.join("sub")).unwrap().permissions().mode() & 0o7777, 0o750);
    // A second run has nothing to add, and equal entries are no failure.
    for name in ["changed", "retimed", "retyped/in_it", "link", "shadowed", "same_too"] {
        let _ = fs::remove_file(scratch.src().join(name));
    }
    let _ = fs::remove_dir(scratch.src().join("retyped"));
    let _ = push(&scratch, "append", &["-H"], "tree").expect_quiet_success();
    // With --ignore-existing nobody requests a change.
    fs::write(scratch.src().join("changed"), "changed again").unwrap();
    let _ = push(&scratch, "append", &["--ignore-existing"], "tree").expect_quiet_success();
    let restored = pull(&scratch, "append", &[], "tree/").expect_quiet_success();
    drop(restored);
    assert_eq!(fs::read(scratch.at("got/changed")).unwrap(), b"there");
}

#[test]
fn a_large_new_file_and_one_with_a_basis_elsewhere_are_added() {
    needs_dsync!();
    let scratch = Scratch::new();
    plant(&scratch);
    let big = dsync_tests::tree::noise(5, 3 << 20);
    fs::write(scratch.src().join("big"), &big).unwrap();
    fs::write(scratch.at("floor/tree/big"), &big[..2 << 20]).unwrap();
    fs::remove_file(scratch.src().join("changed")).unwrap();
    let snapshot = |options: &[&str]| push(&scratch, "append", options, "snapshots/2").expect_quiet_success();
    drop(snapshot(&["--mkpath", "--link-dest=../../tree"]));
    assert_eq!(fs::read(scratch.at("floor/snapshots/2/big")).unwrap(), big);
    assert_eq!(fs::read(scratch.at("floor/tree/big")).unwrap(), &big[..2 << 20]);
    let ino = |path: &str| std::os::unix::fs::MetadataExt::ino(&fs::metadata(scratch.at(path)).unwrap());
    assert_eq!(ino("floor/snapshots/2/same"), ino("floor/tree/same"));
}

#[test]
fn paths_start_at_the_directory_and_end_in_it() {
    needs_dsync!();
    let scratch = Scratch::new();
    plant(&scratch);
    for (text, link) in [("../outside", "out"), ("/", "root"), ("tree", "in")] {
        symlink(text, scratch.at("floor").join(link)).unwrap();
    }
    symlink(scratch.at("outside"), scratch.at("floor/tree/far")).unwrap();
    let absolute = scratch.at("outside").display().to_string();
    for path in ["../outside", "tree/../../outside", "out", "out/", "root/etc", "tree/far/", "..", "/.."] {
        // A link given by name is copied as a link; only its target is out of reach.
        if path != "out" {
            let refused = pull(&scratch, "rw", &[], path).expect_code(42);
            assert!(refused.stderr_text().contains("leads out"), "{path}: {}", refused.account());
        }
        let refused = push(&scratch, "rw", &[], path).expect_code(42);
        assert!(refused.stderr_text().contains("leads out"), "{path}: {}", refused.account());
        for option in ["--backup-dir", "--temp-dir", "--link-dest", "--copy-dest", "--compare-dest"] {
            let option = format!("{option}=/{path}");
            let refused = push(&scratch, "rw", &[&option], "tree/").expect_code(42);
            // A link in the destination is followed for none of these, wherever it leads.
            let words = ["leads out", "is within the destination"];
            let is_told = words.iter().any(|words| refused.stderr_text().contains(words));
            assert!(is_told, "{option}: {}", refused.account());
        }
        let option = format!("--partial-dir=/{path}/x");
        let _ = push(&scratch, "rw", &[&option], "tree/").expect_code(42);
    }
    // `/` is the directory itself: an absolute path of the system does not exist there.
    let _ = pull(&scratch, "rw", &[], &absolute).expect_code(23);
    assert_eq!(fs::read_dir(scratch.at("outside")).unwrap().count(), 1);
    for path in ["/tree/", "tree/", "in/", "in/sub/../", "/in/"] {
        let _ = fs::remove_dir_all(scratch.at("got"));
        let _ = pull(&scratch, "ro", &["--no-l"], path).expect_code(0);
        assert!(scratch.at("got").exists(), "{path}");
    }
    let _ = push(&scratch, "wo", &[], "/new").expect_quiet_success();
    assert_eq!(fs::read(scratch.at("floor/new/sub/new")).unwrap(), b"new too");
}

#[test]
fn relative_paths_are_those_of_the_directory_whatever_the_access() {
    needs_dsync!();
    for (access, pushes, pulls) in [
        ("rw", true, true),
        ("ro", false, true),
        ("wo", true, false),
        ("append", true, true),
        ("write", true, true),
    ] {
        let scratch = Scratch::new();
        plant(&scratch);
        fs::create_dir(scratch.at("floor/new")).unwrap();
        fs::write(scratch.at("floor/tree/sub/there"), "there").unwrap();
        symlink(scratch.at("outside"), scratch.at("floor/tree/far")).unwrap();
        let relative = |run: Run| run.arg("-aR").args(["--no-l", "--no-t"]);

        let mut below = scratch.src().into_os_string();
        below.push("/./sub/new");
        let pushed = relative(through(&scratch, access)).arg(&below).arg("host:new").run();
        if pushes {
            let _ = pushed.expect_code(0);
            assert_eq!(fs::read(scratch.at("floor/new/sub/new")).unwrap(), b"new too");
        } else {
            assert_refused(pushed, "copying to there", access);
        }
        // The path of the operand leads nowhere else, however it is written.
        for to in ["tree/far", "tree/../../outside"] {
            let _ = relative(through(&scratch, access))
                .arg(&below)
                .arg(format!("host:{to}"))
                .run()
                .expect_code(42);
        }

        let pull = |from: &str, to: &str| {
            relative(through(&scratch, access)).arg(format!("host:{from}")).arg(slash(&scratch.at(to))).run()
        };
        let pulled = pull("tree/./sub/there", "got");
        if pulls {
            let _ = pulled.expect_code(0);
            assert_eq!(fs::read(scratch.at("got/sub/there")).unwrap(), b"there");
        } else {
            assert_refused(pulled, "copying from there", access);
        }
        for from in ["tree/far/./secret", "tree/./far/secret", "tree/../../outside/./secret"] {
            let _ = pull(from, "none").expect_code(42);
            assert!(!scratch.at("none").exists(), "{from}");
        }
        assert_eq!(fs::read_dir(scratch.at("outside")).unwrap().count(), 1);
    }
}

#[test]
fn a_link_that_was_sent_before_is_no_way_out() {
    needs_dsync!();
    let scratch = Scratch::new();
    plant(&scratch);
    symlink(scratch.at("outside"), scratch.src().join("door")).unwrap();
    let _ = push(&scratch, "append", &["--ignore-existing"], "tree").expect_quiet_success();
    assert!(scratch.at("floor/tree/door").is_symlink());
    for access in EACH {
        for path in ["tree/door/", "tree/door/new", "tree/door/secret"] {
            let _ = push(&scratch, access, &["--mkpath"], path).expect_code(42);
            let _ = pull(&scratch, access, &[], path).expect_code(42);
        }
    }
    assert_eq!(fs::read_dir(scratch.at("outside")).unwrap().count(), 1);
    assert!(!scratch.at("got/secret").exists());
}

#[test]
fn a_command_with_a_slip_in_it_lets_nobody_do_anything() {
    needs_dsync!();
    let scratch = Scratch::new();
    plant(&scratch);
    let before = survey(&scratch.at("floor"));
    for (restriction, code, word) in [
        (",apend", 1, "none of rw, ro, wo, append and write"),
        (",", 1, "none of rw, ro, wo, append and write"),
        ("/missing,ro", 3, "--restrict"),
        (" ro", 2, "--restrict"),
        (",ro --delete", 2, "--restrict"),
    ] {
        let shell = forced(&scratch, restriction);
        let server = Run::of(&shell).run().expect_code(code);
        assert!(server.stderr_text().contains(word), "{}", server.account());
        let run = Run::dsync().args(["--transport=ssh", "-a", "-e"]).arg(&shell);
        let _ = run.arg(slash(&scratch.src())).arg("host:tree").run().expect_code(12);
    }
    assert_unchanged(&before, &scratch.at("floor"));
    let _ = Run::dsync().args(["--restrict", "/srv", "a", "b"]).run().expect_code(1);
}

#[test]
fn the_command_of_a_key_holds_whatever_the_client_tells_sshd_to_run() {
    needs_dsync!();
    let sshd = Sshd::start("127.0.0.1", None);
    let scratch = Scratch::new();
    plant(&scratch);
    let home = sshd.config().parent().unwrap().to_owned();
    let key = fs::read_to_string(home.join("user_key.pub")).unwrap();
    let command =
        format!("{} --server --restrict {},append", program().display(), scratch.at("floor").display());
    fs::write(home.join("authorized_keys"), format!("command=\"{command}\",restrict {key}")).unwrap();
    for via in dsync_tests::Via::EACH {
        let run = |args: &[OsString]| sshd.run(via).arg("-a").args(args).run();
        let into = format!("tree-{via:?}");
        let _ = run(&[slash(&scratch.src()), sshd.operand(&into)]).expect_quiet_success();
        assert_eq!(fs::read(scratch.at("floor").join(&into).join("new")).unwrap(), b"new");
        let refused = run(&["--delete".into(), slash(&scratch.src()), sshd.operand(&into)]);
        assert_refused(refused, "--delete", "append");
        let _ = run(&[sshd.operand(scratch.at("outside/")), scratch.at("got").into()]).expect_code(23);
    }
    // No other command is run.
    let touch = scratch.at("floor/touched");
    let _ = Run::of("ssh")
        .arg("-F")
        .arg(sshd.config())
        .arg("dsync-test")
        .arg(format!("touch {}", touch.display()))
        .run();
    assert!(!touch.exists());
}

#[test]
fn moved_files_are_looked_for_unasked_only_where_a_client_may_ask_for_it() {
    needs_dsync!();
    for (access, looks) in [("rw", true), ("append", true), ("wo", false)] {
        let scratch = Scratch::new();
        fs::create_dir_all(scratch.at("floor/tree")).unwrap();
        Tree::of([Node::dir("new"), Node::file("new/film", 1, 2 << 20)]).plant(&scratch.src());
        Tree::of([Node::file("film", 1, 2 << 20)]).plant(&scratch.at("floor/tree"));
        let outcome = push(&scratch, access, &["--stats"], "tree/").expect_code(0);
        assert_eq!(outcome.stat("Literal data") == 0, looks, "{access}: {}", outcome.account());
    }
}

#[test]
fn a_path_of_a_list_that_leads_out_is_told_as_that() {
    needs_dsync!();
    let scratch = Scratch::new();
    plant(&scratch);
    symlink(scratch.at("outside"), scratch.at("floor/tree/far")).unwrap();
    fs::write(scratch.at("list"), "far/.\nsame\n").unwrap();
    let list = format!("--files-from={}", scratch.at("list").display());
    let outcome = pull(&scratch, "rw", &[&list], "tree/").expect_code(23);
    let says = outcome.stderr_text();
    assert!(says.contains("leads out") && !says.contains("Input/output"), "{}", outcome.account());
    assert!(scratch.at("got/same").exists());
}

#[test]
fn rules_speak_of_the_path_that_was_typed_below_the_directory_of_a_key_too() {
    needs_dsync!();
    for by_file in [true, false] {
        let scratch = Scratch::new();
        let (real, links) = (scratch.at("floor/real"), scratch.at("floor/links"));
        for (directory, names) in [("s", ["secret", "f"]), ("d", ["keep", "gone"])] {
            fs::create_dir_all(real.join(directory)).unwrap();
            names.iter().for_each(|name| fs::write(real.join(directory).join(name), name).unwrap());
        }
        fs::create_dir(&links).unwrap();
        symlink("../real/s", links.join("s")).unwrap();
        symlink("../real/d", links.join("d")).unwrap();
        let rules = if by_file { "- /s/secret\nP /d/keep\n" } else { "" };
        fs::write(links.join(".rsync-filter"), rules).unwrap();
        // Not asked, as nobody has typed that directory.
        fs::write(real.join(".rsync-filter"), "- f\nP gone\n").unwrap();

        let rule = |kind: &str, path: &Path| format!("--filter={kind} {}", path.display());
        let (hides, protects) = (rule("-/", &links.join("s/secret")), rule("P/", &links.join("d/keep")));
        let options: &[&str] = if by_file { &["-F"] } else { &[&hides, &protects] };
        let pull = through(&scratch, "ro").arg("-a").args(options).arg("host:links/s/").arg(scratch.dst());
        let outcome = pull.run().expect_code(0);
        let names = survey(&scratch.dst()).into_keys().filter(|path| !path.is_empty()).collect::<Vec<_>>();
        assert_eq!(names.len(), 1, "{by_file} {}", outcome.account());

        fs::write(scratch.src().join("new"), "new").unwrap();
        let push = through(&scratch, "rw").args(["-a", "--delete"]).args(options).arg(slash(&scratch.src()));
        let outcome = push.arg("host:links/d/").run().expect_code(0);
        let left = |name: &str| real.join("d").join(name).exists();
        assert!(left("keep") && left("new") && !left("gone"), "{by_file} {}", outcome.account());
    }
}
