//! rsync's rule of the trailing slash, form by form: dsync's result must equal rsync's.

use std::{fs, path::Path};

use dsync_tests::{Node, Run, Scope, Scratch, Sshd, Tree, compare, needs_dsync, survey, tree};

const SOURCES: &[&[&str]] = &[
    &["one"],
    &["one/"],
    &["one/."],
    &["./one"],
    &["one//"],
    &["one/inner"],
    &["one/inner/"],
    &["."],
    &["./"],
    &["file"],
    &["./file"],
    &["one/inner/x"],
    &["link-to-dir"],
    &["link-to-dir/"],
    &["link-to-file"],
    &["dangling"],
    &["one", "two"],
    &["one/", "two"],
    &["one/", "two/"],
    &["one", "file"],
    &["file", "two/"],
    &["one/inner/../../two"],
];

const DESTINATIONS: &[&str] = &[
    "../missing",
    "../missing/",
    "../there",
    "../there/",
    "../there/.",
    "../file-there",
    "../link-there/",
    "../link-there",
];

/// Makes the starting point of each case: sources in `in`, destinations beside it.
fn scene(root: &Path) {
    fs::create_dir_all(root).unwrap();
    Tree::of([
        Node::dir("one"),
        Node::file("one/a", 1, 10),
        Node::dir("one/inner"),
        Node::file("one/inner/x", 2, 20),
        Node::dir("two"),
        Node::file("two/a", 3, 30),
        Node::file("two/b", 4, 40),
        Node::file("file", 5, 50),
        Node::symlink("link-to-dir", "one"),
        Node::symlink("link-to-file", "file"),
        Node::symlink("dangling", "nowhere"),
    ])
    .plant(&root.join("in"));
    Tree::of([Node::dir("one"), Node::file("one/old", 6, 6), Node::file("kept", 7, 7)])
        .plant(&root.join("there"));
    Tree::of([Node::file("kept", 7, 7)]).plant(&root.join("behind link"));
    std::os::unix::fs::symlink("behind link", root.join("link-there")).unwrap();
    fs::write(root.join("file-there"), "old").unwrap();
    for name in ["file-there", "link-there"] {
        tree::set_mtime(&root.join(name), (1_200_000_000, 0));
    }
}

/// Checks that a form means the same everywhere: the same cases, here and over ssh.
fn check(
    place: &str,
    sources: &[&str],
    destination: &str,
    run: &dyn Fn(&Path, Run) -> Run,
) -> Option<String> {
    let scratch = Scratch::new();
    let mut codes = Vec::new();
    for (name, program) in [("dsync", Run::dsync()), ("rsync", Run::of("rsync"))] {
        let root = scratch.at(name);
        scene(&root);
        let program = program.arg("-a").cwd(&root.join("in"));
        let program =
            if name == "dsync" { run(&root, program) } else { program.args(sources).arg(destination) };
        codes.push((name, program.run()));
    }
    let scope = Scope { dir_times: false, root: false, ..Scope::full() };
    let found = compare::compare(&survey(&scratch.at("rsync")), &survey(&scratch.at("dsync")), scope);
    let [(_, dsync), (_, rsync)] = &codes[..] else { unreachable!() };
    if found.is_empty() && (dsync.code() == Some(0)) == (rsync.code() == Some(0)) {
        return None;
    }
    let found = found.join("\n  ");
    Some(format!(
        "{place}: {sources:?} -> {destination}\n  {found}\n{}\n{}",
        dsync.account(),
        rsync.account()
    ))
}

fn assert_none(wrong: &[String]) {
    assert!(wrong.is_empty(), "{} forms differ from rsync:\n{}", wrong.len(), wrong.join("\n\n"));
}

#[test]
fn every_form_means_what_it_means_to_rsync() {
    let mut wrong = Vec::new();
    for sources in SOURCES {
        for destination in DESTINATIONS {
            // "." into a directory that it contains is not tested here: all destinations are beside
            // it.
            let run = |_: &Path, run: Run| run.args(*sources).arg(destination);
            wrong.extend(check("local", sources, destination, &run));
        }
    }
    assert_none(&wrong);
}

#[test]
fn pushed_forms_mean_the_same() {
    needs_dsync!();
    let sshd = Sshd::shared();
    let mut wrong = Vec::new();
    for (sources, destination) in [
        (&["one"][..], "../missing"),
        (&["one/"], "../missing"),
        (&["one/"], "../there/"),
        (&["file"], "../missing"),
        (&["file"], "../missing/"),
        (&["file"], "../there"),
        (&["one", "two/"], "../there"),
        (&["link-to-dir"], "../there"),
        (&["link-to-dir/"], "../link-there"),
    ] {
        let run = |root: &Path, run: Run| {
            let remote = sshd.operand(root.join("in").join(destination).as_os_str());
            let run = run.arg("-e").arg(sshd.shell()).arg("--dsync-path").arg(dsync_tests::program());
            run.arg("--transport=ssh").args(sources).arg(remote)
        };
        wrong.extend(check("push", sources, destination, &run));
    }
    assert_none(&wrong);
}

#[test]
fn pulled_forms_mean_the_same() {
    needs_dsync!();
    let sshd = Sshd::shared();
    let mut wrong = Vec::new();
    for (sources, destination) in [
        (&["one"][..], "../missing"),
        (&["one/"], "../missing"),
        (&["one/."], "../there/"),
        (&["file"], "../missing"),
        (&["file"], "../there"),
        (&["link-to-file"], "../there"),
        (&["two/", "one"], "../missing"),
    ] {
        let run = |root: &Path, run: Run| {
            let run = run.arg("-e").arg(sshd.shell()).arg("--dsync-path").arg(dsync_tests::program());
            let remote = |source: &&str| sshd.operand(format!("{}/{source}", root.join("in").display()));
            run.arg("--transport=quic").args(sources.iter().map(remote)).arg(destination)
        };
        wrong.extend(check("pull", sources, destination, &run));
    }
    assert_none(&wrong);
}
