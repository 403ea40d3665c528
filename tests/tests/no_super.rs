//! `--no-super`: as root, nothing is set that only root may.

use std::{ffi::OsString, fs, os::unix::net::UnixListener, path::Path};

use dsync_tests::{
    Kind, Node, Run, Scope, Scratch, Tree, assert_same, differences, needs_dsync, needs_root, program,
    scratch::slash, survey, tree,
};

/// Plants one of everything that only root may set, and what any user may.
fn plant(at: &Path) {
    let owned = |node: Node| Node { owner: Some((1234, 2345)), ..node };
    let list = tree::acl(5, &[(0, 7), (71_234, 4)], &[(71_235, 6)]);
    Tree::of([
        owned(Node::file("owned", 1, 5000)).with("user.own", b"u").with("trusted.t", b"t"),
        Node { owner: Some((0, 2345)), ..Node::file("group", 2, 10) },
        Node { mode: 0o4755, ..Node::file("setuid", 3, 10) },
        Node::file("capable", 4, 10).with("security.capability", tree::CAPABILITY),
        Node { mode: 0o674, ..Node::file("listed", 5, 10) }.with("system.posix_acl_access", &list),
        owned(Node { mode: 0o1777, ..Node::dir("dir") }).with("trusted.d", b"d"),
        Node::file("dir/below", 6, 100),
        owned(Node::new("fifo", Kind::Fifo)),
        Node { mode: 0o620, ..Node::new("device", Kind::CharDevice(5, 300)) },
        owned(Node::symlink("link", "no such file")),
    ])
    .plant(at);
    drop(UnixListener::bind(at.join("socket")).unwrap());
    tree::set_mtime(&at.join("socket"), (1_200_000_000, 7));
    tree::set_mtime(&at.join("dir"), (1_100_000_000, 5));
}

/// Plants what a destination has already of other owners, and with root's attributes.
fn plant_old(at: &Path) {
    let owned = |node: Node| Node { owner: Some((7, 8)), ..node };
    Tree::of([
        owned(Node::file("owned", 1, 5000)).with("trusted.own", b"stays").with("user.old", b"goes"),
        owned(Node::file("group", 9, 12)),
        owned(Node::dir("dir")).with("trusted.mine", b"stays"),
        owned(Node::symlink("link", "no such file")),
        owned(Node::file("extra", 3, 3)),
    ])
    .plant(at);
}

/// Writes a remote shell that leads to this host.
fn shell(scratch: &Scratch) -> OsString {
    let path = scratch.at("shell");
    fs::write(&path, "#!/bin/sh\nshift\nexec sh -c \"$*\"\n").unwrap();
    tree::set_mode(&path, 0o755);
    path.into()
}

fn remote(path: &Path) -> OsString {
    let mut operand = OsString::from("host:");
    operand.push(slash(path));
    operand
}

/// A direction of a run: with the option for the destination.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Way {
    Local,
    Push,
    Pull,
}

#[test]
fn root_sets_what_a_user_could_as_with_rsync() {
    needs_dsync!();
    needs_root!();
    for way in [Way::Local, Way::Push, Way::Pull] {
        for options in [&["-aHAX"][..], &["-a"], &["-aX", "--delete"], &["-aX", "--inplace"], &["-rlD"]] {
            for has_old in [false, true] {
                let scratch = Scratch::new();
                plant(&scratch.src());
                let shell = shell(&scratch);
                let mut listed = Vec::new();
                for name in ["theirs", "ours"] {
                    let to = scratch.at(name);
                    fs::create_dir(&to).unwrap();
                    if has_old {
                        plant_old(&to);
                    }
                    let run = match name {
                        "theirs" => Run::of("rsync"),
                        _ => {
                            let mut path = OsString::from("--dsync-path=");
                            path.push(program());
                            Run::dsync().arg(path).arg("--transport=ssh")
                        }
                    };
                    let run = run.args(options).args(["-i", "-e"]).arg(&shell);
                    let option = if way == Way::Push { "-M--no-super" } else { "--no-super" };
                    let (from, to) = match way {
                        Way::Local => (slash(&scratch.src()), slash(&to)),
                        Way::Push => (slash(&scratch.src()), remote(&to)),
                        Way::Pull => (remote(&scratch.src()), slash(&to)),
                    };
                    let outcome = run.arg(option).arg(from).arg(to).run().expect_code(0);
                    let text = outcome.stdout_text();
                    // The root's time is when it was made, to the second or to the nanosecond.
                    let tells = |line: &&str| !line.starts_with("skipping") && !line.ends_with(" ./");
                    let mut lines: Vec<String> = text.lines().filter(tells).map(str::to_owned).collect();
                    lines.sort();
                    listed.push(lines);
                }

                let context = format!("{way:?} {options:?} {has_old}");
                assert!(!survey(&scratch.at("ours")).contains_key(&b"device"[..]), "{context}");
                let scope = if options[0] == "-rlD" { Scope::CONTENT } else { Scope::full() };
                let scope = Scope { dir_times: false, root: false, ..scope };
                let found = differences(&scratch.at("theirs"), &scratch.at("ours"), scope);
                assert!(found.is_empty(), "{context}: {found:?}");
                assert_eq!(listed[0], listed[1], "{context}");
            }
        }
    }
}

#[test]
fn what_could_not_be_set_is_not_found_to_differ_for_ever() {
    needs_dsync!();
    needs_root!();
    let scratch = Scratch::new();
    plant(&scratch.src());
    let run = |options: &[&str]| {
        let run = Run::dsync().args(["-aHAXi", "--no-super"]).args(options);
        run.arg(slash(&scratch.src())).arg(scratch.dst()).run().expect_code(0).stdout_text()
    };
    let planned = run(&["-n"]);
    let listed = run(&[]);
    assert_eq!(planned, listed);
    assert!(listed.contains(">f+++++++++ owned"), "{listed}");
    assert!(!run(&[]).contains(" owned"));
    let owned = &survey(&scratch.dst())[&b"owned"[..]];
    assert_eq!(owned.owner, (0, 0));
}

#[test]
fn a_file_of_another_owner_is_no_setuid_file_of_roots() {
    needs_dsync!();
    needs_root!();
    let scratch = Scratch::new();
    let owner = Some((1234, 2345));
    Tree::of([Node { mode: 0o6755, owner, ..Node::file("f", 1, 10) }]).plant(&scratch.src());
    let run = Run::dsync().args(["-a", "--no-super"]).arg(slash(&scratch.src())).arg(scratch.dst());
    let _ = run.run().expect_quiet_success();
    let made = &survey(&scratch.dst())[&b"f"[..]];
    assert_eq!((made.mode, made.owner), (0o755, (0, 0)));
}

#[test]
fn super_takes_it_back() {
    needs_dsync!();
    needs_root!();
    let scratch = Scratch::new();
    plant(&scratch.src());
    let run = Run::dsync().args(["-aHAX", "--no-super", "--super"]).arg(slash(&scratch.src()));
    let _ = run.arg(scratch.dst()).run().expect_quiet_success();
    assert_same(&scratch.src(), &scratch.dst(), Scope { root: false, ..Scope::full() });
}
