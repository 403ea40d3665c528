//! `--fake-super`: attributes that only root may set are kept in extended attributes, in rsync's
//! form, and restored from there.

use std::{
    ffi::{OsStr, OsString},
    fs,
    os::unix::{fs::MetadataExt, net::UnixListener},
    path::{Path, PathBuf},
};

use dsync_tests::{
    Kind, Node, Outcome, Run, Scope, Scratch, Tree, assert_same, mount::Mount, needs_dsync, needs_root,
    oracle, program, scratch::slash, strace, survey, tree,
};

/// A user that exists nowhere and owns nothing.
const NOBODY: u32 = 64_123;

const STAT: &str = "user.rsync.%stat";

/// Plants one of everything that only root may set.
fn privileged(scratch: &Scratch) {
    let owned = |node: Node| Node { owner: Some((1234, 2345)), ..node };
    let list = tree::acl(5, &[(0, 7), (71_234, 4)], &[(71_235, 6)]);
    let same_group = tree::acl(4, &[(5, 4)], &[]);
    Tree::of([
        owned(Node { mode: 0o4750, ..Node::file("setuid", 1, 5000) })
            .with("security.capability", tree::CAPABILITY)
            .with("user.own", b"u"),
        Node::hard_link("another name", "setuid"),
        Node { mode: 0, ..Node::file("closed", 2, 10) }.with("trusted.t", b"t"),
        Node::file("plain", 3, 10),
        Node { mode: 0o674, ..Node::file("listed", 4, 10) }.with("system.posix_acl_access", &list),
        owned(Node { mode: 0o640, ..Node::file("group listed", 5, 10) })
            .with("system.posix_acl_access", &same_group),
        owned(Node { mode: 0o3555, ..Node::dir("dir") }).with("system.posix_acl_default", &list),
        Node::file("dir/below", 6, 100),
        owned(Node::new("fifo", Kind::Fifo)),
        Node { mode: 0o620, ..Node::new("device", Kind::CharDevice(5, 300)) },
        owned(Node::symlink("link", "no such file")),
    ])
    .plant(&scratch.src());
    drop(UnixListener::bind(scratch.src().join("socket")).unwrap());
    tree::set_mtime(&scratch.src().join("socket"), (1_200_000_000, 7));
    tree::set_mtime(&scratch.src(), (1_100_000_000, 5));
}

/// Writes a remote shell that leads to this host, and there to a user.
fn shell(scratch: &Scratch, user: Option<u32>) -> PathBuf {
    let path = scratch.at(&format!("shell-{}", user.unwrap_or(0)));
    let become_user =
        user.map_or_else(String::new, |user| format!("setpriv --reuid={user} --regid={user} --clear-groups"));
    fs::write(&path, format!("#!/bin/sh\nshift\nexec {become_user} sh -c \"$*\"\n")).unwrap();
    tree::set_mode(&path, 0o755);
    path
}

/// Returns the two programs, with the arguments that each needs to run over a shell.
fn programs() -> [Vec<OsString>; 2] {
    let mut path = OsString::from("--dsync-path=");
    path.push(program());
    [vec![program().into(), path, "--transport=ssh".into()], vec!["rsync".into()]]
}

/// Copies over a shell, the remote end with `--fake-super`.
fn over(shell: &Path, program: &[OsString], from: OsString, to: OsString) -> Outcome {
    let run = Run::of(&program[0]).args(&program[1..]).args(["-aHAX", "-i", "-M--fake-super", "-e"]);
    run.arg(shell).arg(from).arg(to).run().expect_code(0)
}

fn remote(path: &Path) -> OsString {
    let mut operand = OsString::from("host:");
    operand.push(slash(path));
    operand
}

/// Checks as root and as a user that both programs make the same tree, find nothing left to do in
/// the other's, and restore from it the original.
#[test]
fn trees_of_rsync_and_of_dsync_are_interchangeable() {
    needs_root!();
    needs_dsync!();
    let scratch = Scratch::new();
    privileged(&scratch);
    for user in [None, Some(NOBODY)] {
        let shell = shell(&scratch, user);
        let home = scratch.at(&format!("home-{}", user.unwrap_or(0)));
        fs::create_dir(&home).unwrap();
        std::os::unix::fs::chown(&home, user, user).unwrap();
        let [ours, theirs] = [home.join("ours"), home.join("theirs")];
        for (program, kept) in programs().iter().zip([&ours, &theirs]) {
            let _ = over(&shell, program, slash(&scratch.src()), remote(kept));
        }
        // Byte for byte, attributes included.
        assert_same(&theirs, &ours, Scope::EVERYTHING);
        if let Some(user) = user {
            assert!(survey(&ours).values().all(|facts| facts.owner == (user, user)));
        }
        assert!(survey(&ours).values().all(|facts| ["file", "dir"].contains(&facts.kind)));
        for (number, program) in programs().iter().enumerate() {
            for kept in [&ours, &theirs] {
                let again = over(&shell, program, slash(&scratch.src()), remote(kept));
                assert_eq!(again.stdout_text(), "", "{}", again.account());
                let restored = home.join(format!("restored-{number}"));
                let _ = over(&shell, program, remote(kept), slash(&restored));
                assert_same(&scratch.src(), &restored, Scope::EVERYTHING);
                fs::remove_dir_all(&restored).unwrap();
            }
        }
    }
}

#[test]
fn local_run_keeps_at_both_ends_or_at_the_one_that_is_named() {
    needs_root!();
    needs_dsync!();
    let scratch = Scratch::new();
    privileged(&scratch);
    let run = |options: &[&str], from: &Path, to: &Path| {
        let outcome = Run::dsync().args(["-aHAX", "-i"]).args(options).arg(slash(from)).arg(to).run();
        outcome.expect_quiet_success().stdout_text()
    };
    let (kept, copy, restored) = (scratch.at("kept"), scratch.at("copy"), scratch.at("restored"));
    let _ = run(&["-M--fake-super"], &scratch.src(), &kept);
    assert_eq!(run(&["-M--fake-super"], &scratch.src(), &kept), "");
    let _ = run(&["--fake-super"], &kept, &copy);
    assert_same(&kept, &copy, Scope::EVERYTHING);
    assert_eq!(run(&["--fake-super"], &kept, &copy), "");
    let _ = run(&["--fake-super", "-M--super"], &copy, &restored);
    assert_same(&scratch.src(), &restored, Scope::EVERYTHING);
    // Without the option the files are ordinary, and dsync leaves their attributes alone.
    let _ = run(&[], &kept, &scratch.at("files"));
    assert!(survey(&scratch.at("files")).values().all(|facts| !facts.xattrs.contains_key(STAT)));
}

#[test]
fn a_users_own_names_in_rsyncs_name_space_are_kept_and_come_back() {
    needs_root!();
    needs_dsync!();
    let scratch = Scratch::new();
    let names = [
        "user.rsync.NAME",
        "user.rsync.trusted.x",
        "user.rsync.user.rsync.security.x",
        "trusted.x",
        "user.own",
    ];
    let dressed = |seed: u8| names.iter().fold(Node::file("f", 1, 10), |node, name| node.with(name, [seed]));
    Tree::of([dressed(1)]).plant(&scratch.src());
    let (kept, restored) = (scratch.at("kept"), scratch.at("restored"));
    let run = |options: &[&str], from: &Path, to: &Path| {
        let run = Run::dsync().args(["-aX", "-i"]).args(options).arg(slash(from)).arg(to);
        run.run().expect_quiet_success().stdout_text()
    };
    let _ = run(&["-M--fake-super"], &scratch.src(), &kept);
    assert_eq!(run(&["-M--fake-super"], &scratch.src(), &kept), "");
    let stored = &survey(&kept)[&b"f"[..]].xattrs;
    assert!(stored.contains_key("user.rsync.NAME") && stored.keys().all(|name| name.starts_with("user.")));
    let _ = run(&["--fake-super", "-M--super"], &kept, &restored);
    assert_same(&scratch.src(), &restored, Scope::EVERYTHING);
    // An attribute removed at the source is removed here.
    for name in names {
        rustix::fs::lremovexattr(scratch.src().join("f"), name).unwrap();
    }
    assert_eq!(run(&["-M--fake-super"], &scratch.src(), &kept), ".f........x f\n");
    assert!(survey(&kept)[&b"f"[..]].xattrs.is_empty());
}

#[test]
fn what_a_source_really_has_of_roots_attributes_is_kept_too() {
    needs_root!();
    let scratch = Scratch::new();
    let entry = |node: Node| node.with("trusted.t", b"really").with("user.rsync.security.kept", b"kept");
    Tree::of([
        entry(Node::file("file", 1, 10)).with("security.kept", b"not this").with("security.own", b"s"),
        entry(Node::dir("dir")),
    ])
    .plant(&scratch.src());
    let made = ["rsync", "dsync"].map(|name| {
        let to = scratch.at(name);
        let program = if name == "dsync" { program() } else { Path::new("rsync") };
        let copy =
            || Run::of(program).args(["-aX", "-i", "--fake-super"]).arg(slash(&scratch.src())).arg(&to);
        let _ = copy().run().expect_code(0);
        if !dsync_tests::is_stand_in() && name == "dsync" {
            assert_eq!(copy().run().expect_code(0).stdout_text(), "");
        }
        ["file", "dir"].map(|entry| survey(&to)[entry.as_bytes()].xattrs.clone())
    });
    assert_eq!(made[1][0]["user.rsync.security.kept"], b"kept");
    assert_eq!(made[1][0]["user.rsync.security.own"], b"s");
    for [file, dir] in &made {
        for name in ["user.rsync.trusted.t", "user.rsync.security.kept"] {
            assert!(file.contains_key(name) && dir.contains_key(name), "{file:?} {dir:?}");
        }
    }
}

#[test]
fn changed_attributes_alone_are_kept_anew_and_go_where_nothing_is_special() {
    needs_root!();
    needs_dsync!();
    let scratch = Scratch::new();
    privileged(&scratch);
    let run = |options: &[&str]| {
        let outcome = Run::dsync().args(["-aHAX", "-i", "-M--fake-super", "--stats"]).args(options);
        outcome.arg(slash(&scratch.src())).arg(scratch.dst()).run().expect_quiet_success()
    };
    let _ = run(&[]);
    std::os::unix::fs::chown(scratch.src().join("setuid"), Some(0), Some(0)).unwrap();
    tree::set_mode(&scratch.src().join("setuid"), 0o755);
    rustix::fs::lremovexattr(scratch.src().join("listed"), "system.posix_acl_access").unwrap();
    tree::set_mode(&scratch.src().join("plain"), 0o2644);
    let outcome = run(&[]);
    assert_eq!(outcome.stat("Number of regular files transferred"), 0);
    let facts = survey(&scratch.dst());
    assert!(!facts[&b"setuid"[..]].xattrs.contains_key(STAT));
    assert!(facts[&b"listed"[..]].xattrs.is_empty());
    assert_eq!(facts[&b"plain"[..]].xattrs[STAT], b"102644 0,0 0:0");
    // Older ones lose -M in a local copy.
    if oracle::is_since((3, 4, 0)) {
        let options = &["-aHAX", "--delete", "-M--fake-super"];
        oracle::assert_rsync_agrees_with(options, &scratch.src(), &scratch.dst());
    }
}

#[test]
fn links_and_devices_that_are_real_ones_are_replaced() {
    needs_root!();
    needs_dsync!();
    let scratch = Scratch::new();
    privileged(&scratch);
    let run = |options: &[&str]| {
        let run = Run::dsync().args(["-aHAX", "-i"]).args(options);
        run.arg(slash(&scratch.src())).arg(scratch.dst()).run().expect_quiet_success().stdout_text()
    };
    let _ = run(&[]);
    let _ = run(&["-M--fake-super"]);
    assert!(survey(&scratch.dst()).values().all(|facts| ["file", "dir"].contains(&facts.kind)));
    assert_eq!(run(&["-M--fake-super"]), "");
    // And back.
    let _ = run(&[]);
    assert_same(&scratch.src(), &scratch.dst(), Scope { xattrs: false, ..Scope::EVERYTHING });
}

#[test]
fn text_of_a_link_is_on_the_disk_before_it_replaces_another() {
    needs_dsync!();
    let scratch = Scratch::new();
    let copy = |text: &str, log: &str| {
        let _ = fs::remove_file(scratch.src().join("link"));
        Tree::of([Node::symlink("link", text)]).plant(&scratch.src());
        let (outcome, calls) = strace::watch("fdatasync,renameat", &scratch.at(log), |run| {
            run.args(["-a", "-M--fake-super"]).arg(slash(&scratch.src())).arg(scratch.dst())
        });
        let _ = outcome.expect_code(0);
        assert_eq!(fs::read_to_string(scratch.dst().join("link")).unwrap(), text);
        // strace may list calls that it has no name for.
        let wanted = ["fdatasync", "renameat"];
        let names = calls.iter().map(|call| call.split('(').next().unwrap_or_default().to_owned());
        names.filter(|name| wanted.contains(&name.as_str())).collect::<Vec<_>>()
    };
    assert_eq!(copy("old", "first"), ["renameat"]);
    assert_eq!(copy("new", "second"), ["fdatasync", "renameat"]);
}

/// Values that are invalid, or impossible for the file.
const ODD: [&str; 9] = [
    "",
    "garbage",
    "100644 0,0",
    "100644 0,0 -1:-1",
    "777777777777 0,0 0:0",
    "170644 0,0 1:1",
    "40755 0,0 1:1",
    "20644 99999999999,1 0:0",
    // A link whose text is invalid.
    "120777 0,0 0:0",
];

fn set_stat(path: &Path, value: &[u8]) {
    rustix::fs::lsetxattr(path, STAT, value, rustix::fs::XattrFlags::empty()).expect("an attribute");
}

#[test]
fn damaged_values_at_the_source_are_named_and_the_rest_is_copied() {
    needs_dsync!();
    let scratch = Scratch::new();
    for (number, value) in ODD.iter().enumerate() {
        let path = scratch.src().join(format!("odd{number}"));
        fs::write(&path, b"").unwrap();
        set_stat(&path, value.as_bytes());
    }
    fs::write(scratch.src().join("long"), b"x").unwrap();
    set_stat(&scratch.src().join("long"), &[b'1'; 300]);
    fs::create_dir(scratch.src().join("dir")).unwrap();
    set_stat(&scratch.src().join("dir"), b"100644 0,0 1:1");
    Tree::of([Node::file("fine", 1, 10)]).plant(&scratch.src());
    let run = Run::dsync().args(["-rlD", "--fake-super", "-M--super"]);
    let outcome = run.arg(slash(&scratch.src())).arg(scratch.dst()).run().expect_code(23);
    let text = outcome.stderr_text();
    for name in (0..ODD.len()).map(|number| format!("odd{number}")).chain(["long".into(), "dir".into()]) {
        let named = text.lines().any(|line| line.contains(&name) && line.contains(STAT));
        assert!(named, "{name}: {}", outcome.account());
    }
    let names: Vec<_> = survey(&scratch.dst()).into_keys().filter(|path| !path.is_empty()).collect();
    assert_eq!(names, [b"fine"]);
}

#[test]
fn damaged_values_at_the_destination_are_written_anew() {
    needs_dsync!();
    let scratch = Scratch::new();
    let nodes = (0..ODD.len()).map(|number| Node::file(format!("f{number}"), 1, 10));
    Tree::of(nodes.chain([Node { mode: 0o2644, ..Node::file("special", 1, 10) }])).plant(&scratch.src());
    let run = || {
        let run = Run::dsync().args(["-a", "-i", "-M--fake-super"]);
        run.arg(slash(&scratch.src())).arg(scratch.dst()).run().expect_quiet_success().stdout_text()
    };
    let _ = run();
    let good = survey(&scratch.dst());
    for (number, value) in ODD.iter().enumerate() {
        set_stat(&scratch.dst().join(format!("f{number}")), value.as_bytes());
    }
    set_stat(&scratch.dst().join("special"), b"1");
    assert_eq!(run().lines().count(), ODD.len() + 1);
    dsync_tests::assert_unchanged(&good, &scratch.dst());
    assert_eq!(run(), "");
}

#[test]
fn target_without_attributes_is_one_line_and_23_and_has_the_files() {
    needs_root!();
    needs_dsync!();
    let scratch = Scratch::new();
    privileged(&scratch);
    fs::remove_file(scratch.src().join("socket")).unwrap();
    fs::remove_file(scratch.src().join("fifo")).unwrap();
    fs::remove_file(scratch.src().join("device")).unwrap();
    fs::create_dir(scratch.at("mount")).unwrap();
    let mount = Mount::with(&["-t", "ramfs", "none"].map(OsStr::new), &scratch.at("mount"));
    let mount = mount.expect("a filesystem without attributes");
    let to = mount.path().join("d");
    let run = Run::dsync().args(["-a", "-M--fake-super"]).arg(slash(&scratch.src())).arg(&to);
    let outcome = run.run().expect_code(23);
    let text = outcome.stderr_text();
    assert_eq!(text.lines().filter(|line| line.contains("without some")).count(), 1, "{text}");
    assert!(text.contains("link"), "what would be something else is not made: {text}");
    assert!(!to.join("link").exists());
    assert_eq!(fs::read(to.join("closed")).unwrap().len(), 10);
    assert_eq!(fs::metadata(to.join("setuid")).unwrap().mode() & 0o7777, 0o750);
}

#[test]
fn a_directory_that_only_takes_files_in_stays_as_it_is() {
    needs_dsync!();
    needs_root!();
    let scratch = Scratch::new();
    Tree::of([Node::file("f", 1, 10), Node::file("g", 2, 10)]).plant(&scratch.src());
    fs::create_dir(scratch.dst()).unwrap();
    for options in [&["-a"][..], &["-a", "--delay-updates"], &["-a", "-b"], &["-a", "--delete-missing-args"]]
    {
        tree::set_mode(&scratch.dst(), 0o1777);
        let run = Run::dsync().args(options).arg("--fake-super");
        let operands = ["f", "g"].map(|name| scratch.src().join(name));
        let _ = run.args(operands).arg(slash(&scratch.dst())).run().expect_quiet_success();
        let root = &survey(&scratch.dst())[&b""[..]];
        assert_eq!((root.mode, root.xattrs.len()), (0o1777, 0), "{options:?}");
    }
}

#[test]
fn a_dry_run_to_a_missing_destination_reads_the_notes_of_alternate_directories() {
    needs_dsync!();
    needs_root!();
    let scratch = Scratch::new();
    privileged(&scratch);
    let run = |options: &[&str], to: &str| {
        let run = Run::dsync().args(["-aHAXi", "--fake-super"]).args(options);
        run.arg(slash(&scratch.src())).arg(scratch.at(to)).run().expect_quiet_success().stdout_text()
    };
    let _ = run(&[], "alt");
    let listed = run(&["-n", "--link-dest=../alt"], "new");
    assert_eq!(run(&["--link-dest=../alt"], "new"), listed);
    assert!(!listed.contains("device"), "what has its equal there is linked and not listed: {listed}");
}
