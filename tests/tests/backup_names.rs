//! Backups beside their originals and the names of the source: each has its own; and backups of
//! files of several names.

use std::{fs, path::Path};

use dsync_tests::{
    Node, Run, Scratch, Sshd, Tree, Via, assert_unchanged, needs_dsync, scratch::slash, survey, tree::Kind,
};

/// Returns the contents of all files of a tree, sorted.
fn contents(at: &Path) -> Vec<Vec<u8>> {
    let mut contents: Vec<_> = survey(at).into_values().map(|facts| facts.content).collect();
    contents.sort_unstable();
    contents
}

/// Plants files whose names are those of backups of others, in the source and, older, at the
/// destination.
fn plant_names_of_backups(at: &Path) {
    let new = [
        Node::file("large", 1, 12 << 20),
        Node::file("large~", 2, 30),
        Node::file("same", 3, 9 << 20),
        Node::file("same~", 4, 31),
        Node::file("same~~", 5, 32),
        Node::file("gone~", 6, 33),
        Node::symlink("link", "elsewhere"),
        Node::symlink("link~", "mine"),
        Node::dir("sub"),
        Node::file("sub/large", 7, 10 << 20),
        Node::file("sub/large~", 8, 34),
    ];
    Tree::of(new.clone()).plant(&at.join("src"));
    let is_kept = |node: &Node| [&b"same~"[..], b"same~~", b"link~", b"gone~"].contains(&&node.path[..]);
    let kept = new.iter().filter(|node| is_kept(node)).cloned();
    let old = [
        Node::file("large", 11, 8 << 20),
        Node::file("same", 13, 7 << 20),
        Node::file("gone", 16, 40),
        Node::symlink("link", "old"),
        Node::dir("sub"),
        Node::file("sub/large", 17, 6 << 20),
    ];
    let old = old.into_iter().map(|node| Node { mtime: (1_200_000_000, 0), ..node });
    Tree::of(old.chain(kept).collect::<Vec<_>>()).plant(&at.join("dst"));
}

#[test]
fn a_name_that_the_source_has_is_no_backups() {
    needs_dsync!();
    let sshd = Sshd::shared();
    for options in [
        &["-ab", "--delete-after"][..],
        &["-ab", "--delete-before"],
        &["-ab", "--delete", "--inplace"],
        &["-ab", "--delay-updates"],
    ] {
        for remote in [false, true] {
            let scratch = Scratch::new();
            plant_names_of_backups(&scratch.at(""));
            let old = contents(&scratch.dst());
            let run = if remote { sshd.run(Via::Auto) } else { Run::dsync() };
            let to = if remote { sshd.operand(scratch.dst()) } else { scratch.dst().into() };
            let outcome = run.args(options).arg(slash(&scratch.src())).arg(to).run().expect_quiet_success();

            let (source, found) = (survey(&scratch.src()), survey(&scratch.dst()));
            for (path, facts) in &source {
                let (name, same) = (String::from_utf8_lossy(path), found.get(path));
                assert!(
                    same.is_some_and(|same| (same.kind, &same.content) == (facts.kind, &facts.content)),
                    "{options:?}, remote {remote}: '{name}' is not the source's\n{}",
                    outcome.account()
                );
            }
            let left = contents(&scratch.dst());
            assert!(
                old.iter().all(|old| left.contains(old)),
                "{options:?}, remote {remote}: a backup is lost"
            );
        }
    }
}

#[test]
fn entries_whose_backups_could_have_one_name_keep_both() {
    needs_dsync!();
    let sshd = Sshd::shared();
    for options in [
        &["-ab"][..],
        &["-ab", "--delete-before"],
        &["-ab", "--delete-after"],
        &["-ab", "--inplace"],
        &["-ab", "--delay-updates"],
        &["-ab", "--suffix=.old"],
    ] {
        for remote in [false, true] {
            let scratch = Scratch::new();
            let suffix = if options.contains(&"--suffix=.old") { ".old" } else { "~" };
            // The large one comes last, in the order of names and of sizes.
            for (name, len) in [("a", 9 << 20), ("b", 10), ("c", 20)] {
                for (times, len) in [(0, len), (1, 30), (2, 40)] {
                    let name = format!("{name}{}", suffix.repeat(times));
                    Tree::of([Node::file(&name, 1, len)]).plant(&scratch.at("new"));
                    fs::rename(scratch.at("new").join(&name), scratch.src().join(&name)).unwrap();
                    fs::create_dir_all(scratch.dst()).unwrap();
                    fs::write(scratch.dst().join(&name), format!("old {name}")).unwrap();
                    fs::remove_dir_all(scratch.at("new")).unwrap();
                }
            }
            let old = contents(&scratch.dst());
            let run = if remote { sshd.run(Via::Auto) } else { Run::dsync() };
            let to = if remote { sshd.operand(scratch.dst()) } else { scratch.dst().into() };
            let outcome = run.args(options).arg(slash(&scratch.src())).arg(to).run().expect_quiet_success();
            let left = contents(&scratch.dst());
            let new = contents(&scratch.src());
            assert!(new.iter().all(|new| left.contains(new)), "{options:?}, remote {remote}");
            let lost = old.iter().filter(|old| !left.contains(old)).count();
            assert_eq!(lost, 0, "{options:?}, remote {remote}: backups are lost\n{}", outcome.account());
        }
    }
}

#[test]
fn a_directory_of_the_source_gives_way_to_no_backup() {
    needs_dsync!();
    for options in [
        &["-ab"][..],
        &["-ab", "--delete"],
        &["-ab", "--delete-during"],
        &["-ab", "--delete-before"],
        &["-ab", "--delete-after"],
        &["-ab", "--delay-updates"],
        &["-ab", "--inplace"],
    ] {
        for is_old in [false, true] {
            let scratch = Scratch::new();
            let new = [
                Node::file("f", 1, 30),
                Node::dir("f~"),
                Node::symlink("l", "new"),
                Node::dir("l~"),
                Node::dir("gone~"),
                Node::dir("full"),
                Node::dir("full~"),
                Node::file("full~/in", 2, 5),
            ];
            Tree::of(new.clone()).plant(&scratch.src());
            let old = [
                Node::file("f", 11, 40),
                Node::symlink("l", "old"),
                Node::file("gone", 12, 41),
                Node::file("full", 13, 42),
            ];
            let old = old.into_iter().map(|node| Node { mtime: (1_200_000_000, 0), ..node });
            let dirs = new.into_iter().filter(|node| is_old && node.path.ends_with(b"~"));
            Tree::of(old.chain(dirs).collect::<Vec<_>>()).plant(&scratch.dst());
            let before = contents(&scratch.dst());

            let run = || Run::dsync().args(options).arg(slash(&scratch.src())).arg(scratch.dst()).run();
            let outcome = run().expect_quiet_success();
            let (source, found) = (survey(&scratch.src()), survey(&scratch.dst()));
            for (path, facts) in &source {
                let kind = found.get(path).map(|same| same.kind);
                let name = String::from_utf8_lossy(path);
                assert_eq!(kind, Some(facts.kind), "{options:?}: '{name}'\n{}", outcome.account());
            }
            let left = contents(&scratch.dst());
            assert!(before.iter().all(|old| left.contains(old)), "{options:?}: a backup is lost");
            let again =
                Run::dsync().arg("-i").args(options).arg(slash(&scratch.src())).arg(scratch.dst()).run();
            assert_eq!(again.expect_quiet_success().stdout_text(), "", "{options:?}");
        }
    }
}

#[test]
fn every_name_of_a_file_that_is_rewritten_in_place_has_a_backup_of_the_old_content() {
    needs_dsync!();
    let sshd = Sshd::shared();
    let old = "old\n".repeat(40_000);
    for options in [&["--append-verify"][..], &["--append"], &["--inplace"], &["--inplace", "-W"]] {
        for backup in ["--backup-dir=../kept", "--backup"] {
            for remote in [false, true] {
                let scratch = Scratch::new();
                for directory in ["a", "b", "c"] {
                    fs::create_dir_all(scratch.src().join(directory)).unwrap();
                    fs::create_dir_all(scratch.dst().join(directory)).unwrap();
                    let new = format!("{old}new in {directory}\n");
                    fs::write(scratch.src().join(directory).join("name"), new).unwrap();
                }
                let first = scratch.dst().join("a/name");
                fs::write(&first, &old).unwrap();
                for other in ["b/name", "c/name"] {
                    fs::hard_link(&first, scratch.dst().join(other)).unwrap();
                }

                let run = if remote { sshd.run(Via::Auto) } else { Run::dsync() };
                let to = if remote { sshd.operand(scratch.dst()) } else { scratch.dst().into() };
                let run = run.arg("-r").args(options).arg(backup).arg(slash(&scratch.src())).arg(to);
                let outcome = run.run();

                let kept = if backup == "--backup" { scratch.dst() } else { scratch.at("kept") };
                let is_kept = |name: &str| if backup == "--backup" { name.ends_with('~') } else { true };
                let backups: Vec<_> = survey(&kept)
                    .into_iter()
                    .filter(|(path, facts)| facts.kind == "file" && is_kept(&String::from_utf8_lossy(path)))
                    .collect();
                assert!(!backups.is_empty(), "{options:?} {backup}\n{}", outcome.account());
                for (path, facts) in backups {
                    assert_eq!(
                        facts.size,
                        old.len() as u64,
                        "{options:?} {backup}, remote {remote}: {}\n{}",
                        String::from_utf8_lossy(&path),
                        outcome.account()
                    );
                }
            }
        }
    }
}

/// The old `a` looks like the source's `a~`, and entries of some types are made at once, before
/// `a~` is looked at.
#[test]
fn a_backup_that_looks_like_an_entry_of_the_source_is_not_taken_for_it() {
    needs_dsync!();
    let ways: [&[&str]; 4] = [&["-ab"], &["-abH"], &["-ab", "--delete"], &["-ab", "--inplace"]];
    let file = |name: &str, seed| Node { mtime: (1_200_000_000, 0), ..Node::file(name, seed, 30) };
    for (options, older) in ways.into_iter().flat_map(|options| [(options, false), (options, true)]) {
        for new in
            [Node::symlink("a", "x"), Node::new("a", Kind::Fifo), Node::dir("a"), Node::file("a", 3, 9)]
        {
            let scratch = Scratch::new();
            Tree::of([new.clone(), file("a~", 1)]).plant(&scratch.src());
            let older = older.then(|| Node::file("a~", 4, 20));
            Tree::of([file("a", 2)].into_iter().chain(older)).plant(&scratch.dst());
            let old = contents(&scratch.dst());
            let run = || Run::dsync().args(options).arg(slash(&scratch.src())).arg(scratch.dst()).run();

            let _ = run().expect_quiet_success();
            let read = |at: &Path| fs::read(at.join("a~")).unwrap();
            assert!(read(&scratch.dst()) == read(&scratch.src()), "{options:?} {new:?}");
            let left = contents(&scratch.dst());
            assert!(old.iter().all(|old| left.contains(old)), "{options:?} {new:?}: a backup is lost");
            let before = survey(&scratch.dst());
            let _ = run().expect_quiet_success();
            assert_unchanged(&before, &scratch.dst());
        }
    }
}

#[test]
fn what_is_deleted_first_takes_no_name_of_the_sources_for_its_backup() {
    needs_dsync!();
    for delete in ["--delete-before", "--delete-during", "--delete-after"] {
        let scratch = Scratch::new();
        Tree::of([Node::file("gone~", 1, 30), Node::dir("sub"), Node::file("sub/gone~", 2, 30)])
            .plant(&scratch.src());
        let old = ["gone", "gone~", "sub/gone", "sub/gone~"].into_iter().zip(11..);
        let old = old.map(|(name, seed)| Node { mtime: (1_200_000_000, 0), ..Node::file(name, seed, 40) });
        Tree::of([Node::dir("sub")].into_iter().chain(old).collect::<Vec<_>>()).plant(&scratch.dst());
        let before = contents(&scratch.dst());
        let run = Run::dsync().args(["-ab", delete]).arg(slash(&scratch.src())).arg(slash(&scratch.dst()));
        let _ = run.run().expect_quiet_success();
        let after = contents(&scratch.dst());
        assert!(
            before.iter().all(|old| after.contains(old)),
            "{delete}: {:?}",
            survey(&scratch.dst()).keys()
        );
    }
}
