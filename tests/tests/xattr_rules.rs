//! Filter rules about the names of extended attributes (`x`), beside rsync.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::disallowed_methods, reason = "a test")]

use std::{ffi::OsString, fs, path::Path};

use dsync_tests::{Node, Run, Scratch, Tree, needs_dsync, needs_root, program, scratch::slash, survey, tree};

/// Plants a tree whose entries have attributes of several names.
fn plant(at: &Path) {
    let dressed = |node: Node| {
        node.with("user.a", b"1").with("user.b", b"2").with("user.b.c", b"3").with("trusted.t", b"4")
    };
    Tree::of([
        dressed(Node::file("same", 1, 20)),
        dressed(Node::file("changed", 2, 5000)),
        dressed(Node::file("new", 3, 30)),
        dressed(Node::dir("dir")),
        dressed(Node::file("dir/below", 4, 40)),
        Node::file("bare", 5, 50),
    ])
    .plant(at);
}

/// Plants an older copy with attributes of its own.
fn plant_old(at: &Path) {
    let old = |node: Node| node.with("user.b", b"old").with("user.own", b"own").with("trusted.own", b"o");
    Tree::of([
        old(Node::file("same", 1, 20)),
        old(Node::file("changed", 9, 400)),
        old(Node::dir("dir")),
        old(Node::file("dir/below", 4, 40)),
        old(Node::file("bare", 5, 50)),
    ])
    .plant(at);
}

fn shell(scratch: &Scratch) -> OsString {
    let path = scratch.at("shell");
    fs::write(&path, "#!/bin/sh\nshift\nexec sh -c \"$*\"\n").unwrap();
    tree::set_mode(&path, 0o755);
    path.into()
}

/// Runs one of the programs in one direction; returns its lines, sorted.
fn run(run: Run, way: &str, options: &[&str], scratch: &Scratch, to: &Path) -> Vec<String> {
    let remote = |path: &Path| {
        let mut operand = OsString::from("host:");
        operand.push(slash(path));
        operand
    };
    let (from, to) = match way {
        "push" => (slash(&scratch.src()), remote(to)),
        "pull" => (remote(&scratch.src()), slash(to)),
        _ => (slash(&scratch.src()), slash(to)),
    };
    // rsync sends rules to a remote destination for deletions only, and there removes attributes by none.
    let run = run.args((way == "push").then_some("--delete"));
    let run = run.args(["-aXi", "-e"]).arg(shell(scratch)).args(options);
    let outcome = run.arg(from).arg(to).run().expect_code(0);
    let mut lines: Vec<String> =
        outcome.stdout_text().lines().filter(|line| !line.ends_with(" ./")).map(str::to_owned).collect();
    lines.sort();
    lines
}

fn dsync() -> Run {
    let mut path = OsString::from("--dsync-path=");
    path.push(program());
    Run::dsync().arg(path).arg("--transport=ssh")
}

#[test]
fn rules_decide_which_attributes_are_set_and_removed_as_with_rsync() {
    needs_dsync!();
    needs_root!();
    for way in ["local", "push", "pull"] {
        for options in [
            &["-f-x user.a"][..],
            &["-f-x! user.*"],
            &["-f-xr *"],
            &["-f-xs user.b"],
            &["-f-xr user.own"],
            &["-f-x user.b"],
            &["-f-x user.own", "--delete", "--delete-excluded"],
            &["-f+x user.a", "-f-x *"],
            &["-fP,x user.own"],
            &["-fH,x user.a", "-fR,x user.b", "-f-xr *"],
            &["-fexclude,x user.b*"],
            &["-f-x /user.a", "--inplace"],
            &["-f-x ser.a"],
            &["-f-x trusted.*", "-f- /bare", "--delete"],
        ] {
            let scratch = Scratch::new();
            plant(&scratch.src());
            let [theirs, ours] = ["theirs", "ours"].map(|name| scratch.at(name));
            for at in [&theirs, &ours] {
                fs::create_dir(at).unwrap();
                plant_old(at);
            }
            let context = format!("{way} {options:?}");
            for round in ["first", "second"] {
                let listed = run(Run::of("rsync"), way, options, &scratch, &theirs);
                let planned = run(dsync().arg("-n"), way, options, &scratch, &ours);
                let done = run(dsync(), way, options, &scratch, &ours);
                assert_eq!(done, listed, "{context}, {round}");
                assert_eq!(planned, done, "{context}, {round}");
            }
            let attributes = |root: &Path| {
                let found = survey(root).into_iter();
                found.map(|(path, facts)| (path, facts.xattrs)).collect::<Vec<_>>()
            };
            assert_eq!(attributes(&ours), attributes(&theirs), "{context}");
        }
    }
}

#[test]
fn a_file_of_rules_in_the_tree_has_none_for_attributes() {
    needs_dsync!();
    let scratch = Scratch::new();
    fs::create_dir(scratch.src().join("dir")).unwrap();
    fs::write(scratch.src().join("dir/.rsync-filter"), "-x user.a\n").unwrap();
    fs::write(scratch.src().join("dir/f"), "f").unwrap();
    fs::write(scratch.src().join("g"), "g").unwrap();
    let outcome = Run::dsync().args(["-aX", "-F"]).arg(slash(&scratch.src())).arg(scratch.dst()).run();
    let outcome = outcome.expect_code(23);
    assert!(outcome.stderr_text().contains("dir/.rsync-filter"), "{}", outcome.all_text());
    assert!(scratch.dst().join("g").exists() && !scratch.dst().join("dir/f").exists());
    for rule in [":x .rules", ".x rules", "-Cx"] {
        let run = Run::dsync().args(["-aX", "-f", rule]).arg(slash(&scratch.src())).arg(scratch.dst());
        let outcome = run.run().expect_code(4);
        assert!(outcome.stderr_text().contains(rule), "{}", outcome.all_text());
    }
}
