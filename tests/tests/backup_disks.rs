//! `--backup-dir` on another disk: each old entry is whole on one of the two, whatever that disk loses with its
//! power.

use std::{
    collections::BTreeMap,
    ffi::OsStr,
    fs,
    ops::Range,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _},
    path::Path,
};

use dsync_tests::{
    Facts, Kind, Node, Outcome, Run, Scope, Scratch, Tree, assert_same,
    compare::{self, temporaries},
    mount::Mount,
    needs_dsync, needs_root,
    power::{Disk, Format},
    strace, survey, tree,
};

/// Plants entries of which each is replaced, removed or rewritten by a run with `--delete`. Returns those.
fn plant_replaced(scratch: &Scratch, backups: &Path) -> BTreeMap<Vec<u8>, Facts> {
    for dir in [&scratch.src(), &scratch.dst(), backups] {
        let _ = fs::remove_dir_all(dir);
    }
    fs::create_dir(backups).unwrap();
    let links = (0..6).map(|number| Node::symlink(format!("link {number}"), format!("text {number}")));
    let old = [
        Node::file("f", 1, 3000),
        Node::dir("sub"),
        Node::file("sub/large", 2, 700_000),
        Node::symlink("to", "old"),
        Node::file("gone", 3, 40),
        Node::new("pipe", Kind::Fifo),
        Node::dir("way"),
        Node::symlink("way/link", "in it"),
        Node::file("way/file", 4, 50),
    ];
    Tree::of(old.into_iter().chain(links)).plant(&scratch.dst());
    let new = [
        Node::file("f", 5, 3001),
        Node::dir("sub"),
        Node::file("sub/large", 6, 700_001),
        Node::symlink("to", "new"),
        Node::file("way", 7, 60),
    ];
    Tree::of(new).plant(&scratch.src());
    let _ = Run::of("sync").arg("-f").arg(backups).run().expect_code(0);
    let mut old = survey(&scratch.dst());
    old.retain(|_, facts| facts.kind != "dir");
    old
}

/// Kills runs at one of these calls after the other, with backups on another disk. Each time that disk loses
/// its power, while all changes at the destination are on the destination's.
fn cut_the_disk_of_backups(options: &[&str], cuts: &[(&str, Range<u32>)]) {
    let scratch = Scratch::new();
    let Some(disk) = Disk::create(scratch.path(), Format::Ext4, 32) else { return };
    let backups = disk.path().join("bk");
    let run = |run: Run| {
        let run = run.args(["-a", "--delete", "--backup-dir=../disk/bk"]).args(options);
        run.args(["src/", "dst/"]).cwd(scratch.path())
    };
    let (mut killed, mut lost) = (0, Vec::new());
    for (call, when) in cuts.iter().flat_map(|(calls, counts)| counts.clone().map(move |when| (calls, when)))
    {
        let mut old = plant_replaced(&scratch, &backups);
        if options.contains(&"--durability=none") {
            // Only what is overwritten has its backup on the disk first.
            old.retain(|path, _| path == b"f" || path == b"sub/large");
        }
        let outcome = run(strace::inject(call, &format!("signal=KILL:when={when}"))).run();
        killed += u32::from(outcome.code().is_none());
        disk.cut_power();

        let what = format!("{options:?}: {call} {when} was the last");
        let gone = missing(&old, &[&scratch.dst(), &backups]);
        let _ = run(Run::dsync()).run().expect_quiet_success();
        let unkept = missing(&old, &[&backups]);
        for (fault, names) in [
            ("in neither place after the cut", gone),
            ("without a backup after the next run", unkept),
            ("left", temporaries(scratch.path())),
        ] {
            lost.extend((!names.is_empty()).then(|| format!("{fault}: {names:?}, {what}")));
        }
        assert_same(&scratch.src(), &scratch.dst(), Scope::full());
    }
    assert!(lost.is_empty(), "{}", lost.join("\n"));
    assert!(killed > 3, "{options:?}: {killed} runs were killed");
}

/// Returns which of the old entries are whole in none of these trees.
fn missing(old: &BTreeMap<Vec<u8>, Facts>, trees: &[&Path]) -> Vec<String> {
    let found: Vec<_> = trees.iter().map(|tree| survey(tree)).collect();
    let same = |now: &Facts, was: &Facts| (now.kind, &now.content) == (was.kind, &was.content);
    let is_somewhere = |path: &Vec<u8>, was: &Facts| {
        found.iter().any(|tree| tree.get(path).is_some_and(|now| same(now, was)))
    };
    let gone = old.iter().filter(|(path, was)| !is_somewhere(path, was));
    gone.map(|(path, _)| compare::show(path)).collect()
}

#[test]
fn what_is_replaced_has_its_backup_though_the_disk_of_backups_loses_its_power() {
    needs_dsync!();
    let cuts = [("syncfs", 1..4), ("renameat,renameat2", 1..6), ("symlinkat", 2..4), ("fdatasync", 2..4)];
    cut_the_disk_of_backups(&[], &cuts);
    cut_the_disk_of_backups(&["--delay-updates"], &[("renameat,renameat2", 1..8)]);
}

#[test]
fn what_is_removed_has_its_backup_though_the_disk_of_backups_loses_its_power() {
    needs_dsync!();
    for timing in ["--delete-before", "--delete-during", "--delete-after"] {
        cut_the_disk_of_backups(&[timing], &[("unlinkat", 2..9)]);
    }
}

#[test]
fn what_is_rewritten_in_place_has_its_backup_though_the_disk_of_backups_loses_its_power() {
    needs_dsync!();
    let cuts = [("pwrite64,copy_file_range,ftruncate", 1..8), ("syncfs", 1..3)];
    for durability in ["--durability=batch", "--durability=none"] {
        cut_the_disk_of_backups(&["--inplace", durability], &cuts);
    }
}

/// Mounts a filesystem of this kind that one test has for itself.
fn mounted(scratch: &Scratch, kind: &str, name: &str) -> Mount {
    let at = scratch.at(name);
    fs::create_dir(&at).unwrap();
    Mount::with(&["-t", kind, "none"].map(OsStr::new), &at).expect("a filesystem in memory")
}

/// Makes a run in the directory of two trees `src` and `dst`, with backups at this place.
fn with_backups(trees: &Path, options: &[&str], backups: &Path) -> Outcome {
    let run = Run::dsync().args(["-aAX", "--delete"]).args(options);
    run.arg("--backup-dir").arg(backups).args(["src/", "dst/"]).cwd(trees).run()
}

#[test]
fn a_backup_that_lacks_what_its_original_had_is_told_and_23() {
    needs_root!();
    needs_dsync!();
    let scratch = Scratch::new();
    let (trees, disk) = (mounted(&scratch, "tmpfs", "trees"), mounted(&scratch, "ramfs", "disk"));
    let (src, dst, backups) = (trees.path().join("src"), trees.path().join("dst"), disk.path().join("kept"));
    let list = tree::acl(6, &[(71_235, 4)], &[]);
    let listed = |name: &str, seed| Node::file(name, seed, 3000).with("system.posix_acl_access", &list);

    for options in [&[][..], &["--inplace"], &["--delay-updates"], &["--delete-before"]] {
        for place in [&src, &dst, &backups] {
            let _ = fs::remove_dir_all(place);
        }
        let link = Node::symlink("link", "old").with("trusted.note", b"x");
        let plain = Node::file("plain", 4, 10);
        Tree::of([listed("f", 1), listed("gone", 2), link, plain]).plant(&dst);
        fs::hard_link(dst.join("f"), dst.join("g")).unwrap();
        let new = [Node::file("f", 5, 3001), Node::file("plain", 7, 11), Node::symlink("link", "new")];
        Tree::of(new).plant(&src);
        fs::hard_link(src.join("f"), src.join("g")).unwrap();

        let outcome = with_backups(trees.path(), options, &backups).expect_code(23);
        for name in ["f", "g", "gone", "link"] {
            let told =
                format!("cannot set some ACLs or extended attributes of '{}/{name}'", backups.display());
            assert!(outcome.stderr_text().contains(&told), "{options:?}, {name}: {}", outcome.account());
        }
        assert!(!outcome.stderr_text().contains("plain"), "{}", outcome.account());
        for (name, len) in [("f", 3000), ("g", 3000), ("gone", 3000), ("plain", 10)] {
            assert_eq!(fs::metadata(backups.join(name)).unwrap().len(), len, "{options:?}, {name}");
        }
        let _ = with_backups(trees.path(), options, &backups).expect_quiet_success();
    }
}

#[test]
fn a_directory_of_backups_without_its_list_is_its_owners_alone() {
    needs_root!();
    needs_dsync!();
    let scratch = Scratch::new();
    let (trees, disk) = (mounted(&scratch, "tmpfs", "trees"), mounted(&scratch, "ramfs", "disk"));
    let (src, dst, backups) = (trees.path().join("src"), trees.path().join("dst"), disk.path().join("kept"));
    let list = tree::acl(0, &[(71_235, 5)], &[]);
    let tree = |seed| {
        let dir = Node { mode: 0o2750, owner: Some((1000, 2000)), ..Node::dir("private") };
        let open = Node { mode: 0o775, owner: Some((1000, 2000)), ..Node::dir("open") };
        let dir = dir.with("system.posix_acl_access", &list);
        Tree::of([dir, Node::file("private/f", seed, 9), open, Node::file("open/f", seed, 9)])
    };
    tree(1).plant(&dst);
    tree(2).plant(&src);

    let outcome = with_backups(trees.path(), &["-I"], &backups).expect_code(23);
    let told = |name: &str| outcome.stderr_text().contains(&format!("of '{}/{name}'", backups.display()));
    assert!(told("private") && !told("open"), "{}", outcome.account());
    let mode = |name: &str| fs::metadata(backups.join(name)).unwrap().mode() & 0o7777;
    assert_eq!((mode("private"), mode("open")), (0o2700, 0o775));
    assert!(backups.join("private/f").exists());
}

#[test]
fn a_directory_of_backups_of_another_group_admits_no_more_than_the_original() {
    needs_root!();
    needs_dsync!();
    let scratch = Scratch::new();
    let tree = |root: &Path, seed| {
        let dirs = [("a", 0o750), ("b", 0o775), ("c", 0o705)];
        let nodes = dirs.into_iter().flat_map(|(name, mode)| {
            let dir = Node { mode, owner: Some((1000, 2000)), ..Node::dir(name) };
            [dir, Node { owner: Some((1000, 1000)), ..Node::file(format!("{name}/f"), seed, 9) }]
        });
        Tree::of(nodes).plant(root);
    };
    tree(&scratch.dst(), 1);
    tree(&scratch.src(), 2);
    for dir in [scratch.path(), &scratch.src(), &scratch.dst()] {
        std::os::unix::fs::chown(dir, Some(1000), Some(1000)).unwrap();
        fs::set_permissions(dir, fs::Permissions::from_mode(0o755)).unwrap();
    }
    // Who is not of a group cannot give it to a directory.
    let run = Run::dsync().as_user(1000, 1000).args(["-rtI", "--backup-dir=../kept", "src/", "dst/"]);
    let _ = run.cwd(scratch.path()).run().expect_quiet_success();
    let mode = |name: &str| fs::metadata(scratch.at("kept").join(name)).unwrap().mode() & 0o7777;
    assert_eq!(["a", "b", "c"].map(mode), [0o700, 0o755, 0o700]);
}

#[test]
fn a_backup_on_another_disk_has_as_many_attributes_as_its_original() {
    needs_root!();
    needs_dsync!();
    let scratch = Scratch::new();
    let (trees, disk) = (mounted(&scratch, "tmpfs", "trees"), mounted(&scratch, "tmpfs", "disk"));
    let (src, dst, backups) = (trees.path().join("src"), trees.path().join("dst"), disk.path().join("kept"));
    // More than a source sends of one file.
    let many = |name: &str, seed| {
        let node =
            Node::file(name, seed, 30).with("system.posix_acl_access", tree::acl(6, &[(71_235, 4)], &[]));
        (0..9).fold(node, |node, number| node.with(&format!("trusted.{number}"), [number; 65_536]))
    };
    Tree::of([many("f", 1), many("gone", 2), many("same", 3)]).plant(&dst);
    Tree::of([Node::file("f", 4, 31), Node::file("same", 3, 30)]).plant(&src);
    let old = survey(&dst);

    // The file that stays loses all of them, as its source has none.
    let _ = with_backups(trees.path(), &[], &backups).expect_code(0);
    assert_same(&src, &dst, Scope::ALL);
    let kept = survey(&backups);
    for name in [&b"f"[..], b"gone"] {
        assert_eq!((old[name].xattrs.len(), &kept[name].xattrs), (10, &old[name].xattrs));
    }
    let _ = with_backups(trees.path(), &[], &backups).expect_quiet_success();
}
