//! The selection of a run's entries: sizes, links that lead out, links to directories, missing
//! operands; each as the real rsync decides it.

use std::{
    fs,
    os::unix::fs::{lchown, symlink},
};

use dsync_tests::{
    Node, Outcome, Run, Scope, Scratch, Sshd, Tree, Via, assert_same, differences, needs_dsync, needs_root,
    oracle, rsync, scratch::slash, tree,
};

/// Runs dsync to `dst` and rsync to `rsync`, which start equal; asserts the same result.
fn as_rsync(scratch: &Scratch, options: &[&str], sources: &[&str]) -> Outcome {
    let sources: Vec<_> =
        sources.iter().map(|source| format!("{}/{source}", scratch.path().display())).collect();
    let ours = Run::dsync().args(options).args(&sources).arg(scratch.dst()).run();
    let arguments = options.iter().map(|&option| option.to_owned()).chain(sources);
    // Otherwise rsync treats times in the same second as equal.
    let exact = [String::from("--modify-window=-1")];
    let theirs = rsync(exact.into_iter().chain(arguments).chain([scratch.at("rsync").display().to_string()]));
    let scope = Scope { dir_times: false, root: false, ..Scope::full() };
    let (account, oracle) = (ours.account(), theirs.account());
    if scratch.dst().exists() || scratch.at("rsync").exists() {
        let found = differences(&scratch.at("rsync"), &scratch.dst(), scope);
        assert!(found.is_empty(), "{found:?}\n{account}\n{oracle}");
    }
    assert_eq!(ours.code(), theirs.code(), "{account}\n{oracle}");
    ours
}

#[test]
fn files_outside_the_sizes_are_left_alone() {
    for options in [
        &["-a", "--max-size=1K"][..],
        &["-a", "--min-size=1k", "--max-size=2KB"],
        &["-a", "--min-size=1K+1"],
        &["-a", "--max-size=1K-1", "--delete"],
    ] {
        let scratch = Scratch::new();
        let files =
            |seed| [0, 1023, 1024, 1025, 2000, 2001].map(|size| Node::file(format!("{size}"), seed, size));
        Tree::of(files(1)).plant(&scratch.src());
        for destination in ["dst", "rsync"] {
            Tree::of([
                Node { mtime: (1_200_000_000, 0), ..Node::file("2001", 5, 9) },
                Node::file("extra", 5, 5000),
            ])
            .plant(&scratch.at(destination));
        }
        let _ = as_rsync(&scratch, options, &["src/"]);
    }
}

#[test]
fn times_within_the_window_are_equal() {
    for (window, apart, fresh) in [("-@2", 2, false), ("-@1", 2, true), ("--modify-window=0", 0, false)] {
        let scratch = Scratch::new();
        let node = |seed, second| Node { mtime: (second, 400_000_000), ..Node::file("f", seed, 10) };
        Tree::of([node(1, 1_300_000_000)]).plant(&scratch.src());
        for destination in ["dst", "rsync"] {
            Tree::of([node(2, 1_300_000_000 - apart)]).plant(&scratch.at(destination));
            tree::set_mtime(&scratch.at(destination).join("f"), (1_300_000_000 - apart, 900_000_000));
        }
        let _ = as_rsync(&scratch, &["-rt", window], &["src/"]);
        let same = fs::read(scratch.dst().join("f")).unwrap() == fs::read(scratch.src().join("f")).unwrap();
        assert_eq!(same, fresh, "{window}");
    }
}

#[test]
fn links_that_lead_out_are_skipped() {
    let scratch = Scratch::new();
    Tree::of([Node::dir("a"), Node::dir("a/b"), Node::file("a/f", 1, 1)]).plant(&scratch.src());
    for (index, text) in [
        "a",
        "a/f",
        "../a",
        "..",
        ".",
        "./a",
        "/etc/passwd",
        "/",
        "a/../a/f",
        "../src/a",
        "../../x",
        "../a/../..",
        "a//f",
        "a/b/../../..",
        "../",
        "b/../../a/f",
    ]
    .iter()
    .enumerate()
    {
        for dir in ["", "a/", "a/b/"] {
            symlink(text, scratch.src().join(format!("{dir}link{index:02}"))).unwrap();
        }
    }
    for (options, told) in [
        (&["-av", "--info=symsafe0"][..], true),
        (&["-a", "--info=name"], true),
        (&["-av", "--info=name0"], false),
        (&["-a", "--info=symsafe"], false),
        (&["-ai"], false),
        (&["-av"], true),
    ] {
        let outcome = as_rsync(&scratch, &[options, &["--safe-links"]].concat(), &["src/"]);
        let is_told = outcome.all_text().contains("ignoring unsafe symlink \"a/link06\"");
        assert_eq!(is_told, told, "{options:?} {}", outcome.account());
    }
    assert!(scratch.dst().join("a/link02").is_symlink() && !scratch.dst().join("link02").is_symlink());
}

#[test]
fn missing_operands_are_ignored_on_demand() {
    let scratch = Scratch::new();
    Tree::of([Node::file("f", 1, 1)]).plant(&scratch.src());
    for (options, sources) in [
        (&["-a", "--ignore-missing-args"][..], &["src", "no such"][..]),
        (&["-a", "--ignore-missing-args"], &["no such"]),
        (&["-a", "--ignore-missing-args"], &["no such", "neither"]),
        (&["-a"], &["src", "no such"]),
    ] {
        let _ = as_rsync(&scratch, options, sources);
    }
    assert!(scratch.dst().join("src/f").exists());
}

/// Makes a destination whose `inner` leads to a directory in it and whose `outer` leads elsewhere.
fn linked(scratch: &Scratch) {
    let dirs = ["inner", "outer", "outer/sub", "plain"].map(Node::dir);
    let files = ["inner/f", "outer/sub/f", "plain/f"].map(|path| Node::file(path, 1, 300));
    Tree::of(dirs.into_iter().chain(files)).plant(&scratch.src());
    let target = scratch.at("target");
    fs::create_dir_all(target.join("sub")).unwrap();
    for destination in ["dst", "rsync"] {
        let root = scratch.at(destination);
        fs::create_dir_all(root.join("real")).unwrap();
        symlink("real", root.join("inner")).unwrap();
        symlink(&target, root.join("outer")).unwrap();
        symlink("nowhere", root.join("plain")).unwrap();
    }
}

fn theirs() -> Run {
    Run::of("rsync")
}

#[test]
fn links_to_directories_are_kept_and_written_through() {
    let leave = "--insecure-links";
    for options in [&["-aK", leave][..], &["-aK", leave, "--delete", "--exclude=/real/"]] {
        let scratch = Scratch::new();
        linked(&scratch);
        let scope = Scope { dir_times: false, ..Scope::full() };
        let sources = slash(&scratch.src());
        let ours = Run::dsync().args(options).arg(&sources).arg(scratch.dst()).run().expect_quiet_success();
        // Older ones need no leave.
        let known = options.iter().filter(|option| **option != leave || oracle::is_since((3, 5, 0)));
        let theirs = theirs().args(known).arg(sources);
        let _ = theirs.arg(scratch.at("rsync")).run().expect_code(0);
        for (mine, other) in [("dst/real", "rsync/real"), ("dst/plain", "rsync/plain")] {
            let found = differences(&scratch.at(other), &scratch.at(mine), scope);
            assert!(found.is_empty(), "{options:?}: {found:?}\n{}", ours.account());
        }
        for link in ["inner", "outer"] {
            assert!(scratch.dst().join(link).is_symlink(), "{}", ours.account());
        }
        assert!(scratch.at("target/sub/f").exists() && scratch.at("dst/real/f").exists());
        let again = Run::dsync().args(options).arg("-i").arg(slash(&scratch.src())).arg(scratch.dst()).run();
        assert_eq!(again.expect_quiet_success().stdout_text(), "");
    }
}

#[test]
fn links_to_directories_are_kept_over_the_wire() {
    needs_dsync!();
    let (scratch, sshd) = (Scratch::new(), Sshd::shared());
    linked(&scratch);
    let run = |leave: &[&str]| {
        let run = sshd.run(Via::Auto).arg("-aK").args(leave).arg(slash(&scratch.src()));
        run.arg(sshd.operand(scratch.dst())).run()
    };
    // Only the destination can grant this permission.
    for leave in [&[][..], &["--insecure-links"]] {
        let outcome = run(leave).expect_code(23);
        let text = outcome.stderr_text();
        assert!(text.contains("'outer': a link") && text.contains("-M--insecure-links"), "{text}");
        assert!(!scratch.at("target/sub/f").exists() && scratch.dst().join("outer").is_symlink());
        assert!(scratch.at("dst/real/f").exists() && scratch.dst().join("inner").is_symlink());
    }
    let _ = run(&["-M--insecure-links"]).expect_quiet_success();
    assert!(scratch.at("target/sub/f").exists() && scratch.dst().join("outer").is_symlink());
}

#[test]
fn kept_link_leads_nobody_out_of_the_destination() {
    // The source makes the link in one run and lists a directory of its name in the next, as with
    // rsync.
    let scratch = Scratch::new();
    let outside = scratch.at("outside");
    fs::create_dir(&outside).unwrap();
    fs::create_dir(scratch.src().join("deep")).unwrap();
    let links = [("../outside".into(), "d"), (outside.clone(), "e"), ("../../outside".into(), "deep/d")];
    for (text, name) in &links {
        symlink(text, scratch.src().join(name)).unwrap();
    }
    let run = |program: Run, options: &[&str], to: &std::path::Path| {
        program.args(options).arg(slash(&scratch.src())).arg(to).run()
    };
    // Older ones follow the link.
    let rsync = oracle::is_since((3, 5, 0)).then(|| (theirs as fn() -> Run, scratch.at("rsync")));
    let programs: Vec<_> = [(Run::dsync as fn() -> Run, scratch.dst())].into_iter().chain(rsync).collect();
    for (program, to) in &programs {
        let _ = run(program(), &["-aK"], to).expect_code(0);
    }
    for (_, name) in &links {
        fs::remove_file(scratch.src().join(name)).unwrap();
        fs::create_dir(scratch.src().join(name)).unwrap();
        fs::write(scratch.src().join(name).join("f"), "planted").unwrap();
    }
    for (program, to) in &programs {
        for options in
            [&["-aK"][..], &["-aKn"], &["-aK", "--delete"], &["-aK", "--inplace", "--delete-before"]]
        {
            let _ = run(program(), options, to).expect_code(23);
            assert!(fs::read_dir(&outside).unwrap().next().is_none(), "{options:?}");
            assert!(links.iter().all(|(_, name)| to.join(name).is_symlink()), "{options:?}");
        }
    }
}

#[test]
fn kept_link_that_the_run_itself_made_is_not_followed() {
    needs_dsync!();
    let scratch = Scratch::new();
    Tree::of([
        Node::dir("a"),
        Node::symlink("a/x", "../private"),
        Node::dir("d"),
        Node::dir("d/x"),
        Node::file("d/x/f", 1, 10),
    ])
    .plant(&scratch.src());
    fs::create_dir_all(scratch.dst().join("a")).unwrap();
    fs::create_dir(scratch.dst().join("private")).unwrap();
    symlink("a", scratch.dst().join("d")).unwrap();
    let run = Run::dsync().args(["-aK", "--exclude=/private/"]).arg(slash(&scratch.src()));
    let outcome = run.arg(scratch.dst()).run().expect_code(23);
    // The message depends on whether the directory was read before the link was made.
    assert!(outcome.stderr_text().contains("cannot create directory 'd/x': "), "{}", outcome.account());
    assert!(fs::read_dir(scratch.dst().join("private")).unwrap().next().is_none());
}

#[test]
fn links_of_other_users_are_not_written_through() {
    // dsync refuses them; rsync follows them.
    needs_dsync!();
    needs_root!();
    let scratch = Scratch::new();
    linked(&scratch);
    lchown(scratch.dst().join("outer"), Some(64_123), Some(64_123)).unwrap();
    let run =
        |options: &[&str]| Run::dsync().args(options).arg(slash(&scratch.src())).arg(scratch.dst()).run();
    let _ = run(&["-aK"]).expect_quiet_success();
    assert!(!scratch.at("target/sub/f").exists());
    assert!(scratch.at("dst/outer/sub/f").exists() && !scratch.dst().join("outer").is_symlink());
    // Without -K no links are followed.
    let _ = run(&["-a"]).expect_quiet_success();
    assert_same(&scratch.src().join("inner"), &scratch.dst().join("inner"), Scope::full());
    assert!(!scratch.at("dst/real/f").exists() || !scratch.dst().join("inner").is_symlink());
}

#[test]
fn what_an_operand_has_in_the_place_of_an_excluded_directory_of_another_is_copied() {
    needs_dsync!();
    let scratch = Scratch::new();
    Tree::of([Node::dir("x"), Node::dir("link")]).plant(&scratch.at("one"));
    Tree::of([Node::file("x", 1, 3000), Node::symlink("link", "text")]).plant(&scratch.at("two"));
    let args = ["-a", "--exclude=*/", "one/", "two/"];
    let _ = Run::of("rsync").args(args).arg("rsync/").cwd(scratch.path()).run().expect_code(0);
    let _ = Run::dsync().args(args).arg("dst/").cwd(scratch.path()).run().expect_quiet_success();
    assert_same(&scratch.at("rsync"), &scratch.dst(), Scope::ALL);
    assert!(scratch.dst().join("x").is_file());
}
