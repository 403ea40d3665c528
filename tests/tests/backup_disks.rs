//! `--backup-dir` on another disk: each old entry is whole on one of the two, whatever that disk loses with its
//! power.

use std::{collections::BTreeMap, fs, ops::Range, path::Path};

use dsync_tests::{
    Facts, Kind, Node, Run, Scope, Scratch, Tree, assert_same,
    compare::{self, temporaries},
    needs_dsync,
    power::{Disk, Format},
    strace, survey,
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
