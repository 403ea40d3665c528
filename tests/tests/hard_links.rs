//! Hard links: names linked at the source are linked at the destination, in every direction.

use std::{
    fs,
    os::unix::fs::{MetadataExt, symlink},
    path::{Path, PathBuf},
};

use dsync_tests::{
    Node, Outcome, Run, Scope, Scratch, Sshd, Tree, Via, assert_same, every_way,
    mount::Mount,
    needs_dsync, needs_root, oracle,
    power::{Disk, Format},
    program,
    scratch::slash,
    strace, tree,
};

/// Makes groups in one directory, across directories and of every type that a user may make.
fn linked() -> Tree {
    Tree::of([
        Node::file("a", 1, 5000),
        Node::hard_link("b", "a"),
        Node::dir("dir"),
        Node::hard_link("dir/c", "a"),
        Node::file("dir/d", 2, 300_000),
        Node::dir("e"),
        Node::hard_link("e/f", "dir/d"),
        Node::file("e/alone", 3, 7),
        Node::file("empty", 4, 0),
        Node::hard_link("e/empty", "empty"),
        Node::symlink("link", "nowhere"),
        Node::hard_link("e/link", "link"),
        Node::new("fifo", dsync_tests::tree::Kind::Fifo),
        Node::hard_link("fifo2", "fifo"),
    ])
}

/// Returns [`Scope::full`] plus the groups of names.
fn with_links() -> Scope {
    Scope { links: true, ..Scope::full() }
}

fn sorted(text: &str) -> Vec<String> {
    // A push and a pull differ only in their arrows.
    let mut lines: Vec<_> = text.lines().map(|line| line.replacen('<', ">", 1)).collect();
    lines.sort_unstable();
    lines
}

fn same_inode(a: &Path, b: &Path) -> bool {
    let inode = |path: &Path| fs::symlink_metadata(path).map(|entry| entry.ino()).expect("an entry");
    inode(a) == inode(b)
}

#[test]
fn names_are_kept_together_in_every_direction_and_a_second_run_does_nothing() {
    let scratch = Scratch::new();
    linked().plant(&scratch.src());
    every_way(&scratch, &["-aH", "--stats"], |copy, to| {
        let dry = copy().args(["-n", "-i"]).run().expect_code(0);
        assert!(!to.exists());
        let first = copy().arg("-i").run().expect_code(0);
        let listed =
            |text: &str| sorted(text).into_iter().filter(|line| line.contains('+')).collect::<Vec<_>>();
        assert_eq!(listed(&dry.stdout_text()), listed(&first.stdout_text()));
        assert!(first.stdout_text().contains("hf+++++++++ b => a"), "{}", first.account());
        assert!(first.stdout_text().contains("hf+++++++++ e/f => dir/d"), "{}", first.account());
        assert_eq!(first.stat("Number of regular files transferred"), 4, "one for each inode");
        assert_eq!(first.stat("Literal data"), 305_007 - first.stat("Matched data"));
        assert_same(&scratch.src(), to, with_links());
        oracle::assert_rsync_agrees_with(&["-aH", "--delete"], &scratch.src(), to);
        let again = copy().arg("-i").run().expect_code(0);
        assert_eq!(again.stat("Number of regular files transferred"), 0);
        assert!(again.stdout_text().starts_with('\n') || again.stdout_text().starts_with("Number"));
        assert_same(&scratch.src(), to, with_links());
    });
}

#[test]
fn changed_and_broken_groups_are_itemized_as_rsync_does() {
    type Edit = fn(&Path, &Path);
    let edits: [(&str, Edit); 6] = [
        ("a name is missing", |_, to| fs::remove_file(to.join("dir/c")).unwrap()),
        ("a name is a file of its own, and equal", |_, to| {
            let time = fs::metadata(to.join("b")).unwrap().modified().unwrap();
            fs::remove_file(to.join("b")).unwrap();
            fs::copy(to.join("a"), to.join("b")).unwrap();
            fs::File::open(to.join("b")).unwrap().set_modified(time).unwrap();
        }),
        ("a name is another file", |_, to| {
            fs::remove_file(to.join("b")).unwrap();
            fs::write(to.join("b"), "other").unwrap();
        }),
        ("the content changed", |from, _| fs::write(from.join("a"), vec![7; 70_000]).unwrap()),
        ("only attributes changed", |from, _| {
            let later = std::time::SystemTime::now() - std::time::Duration::from_secs(99);
            fs::File::open(from.join("dir/d")).unwrap().set_modified(later).unwrap();
        }),
        ("links and fifos lost their other names", |_, to| {
            fs::remove_file(to.join("fifo2")).unwrap();
            fs::remove_file(to.join("e/link")).unwrap();
            symlink("nowhere", to.join("e/link")).unwrap();
        }),
    ];
    for (what, edit) in edits {
        let scratch = Scratch::new();
        linked().plant(&scratch.src());
        let copy = |to: &Path| {
            let run = Run::dsync().args(["-aH", "-i"]).arg(slash(&scratch.src())).arg(to).run();
            run.expect_quiet_success().stdout_text()
        };
        let to = scratch.dst();
        copy(&to);
        edit(&scratch.src(), &to);
        let twin = scratch.at("twin");
        let _ = Run::of("cp").arg("-a").arg(&to).arg(&twin).run().expect_code(0);
        let rsync =
            oracle::rsync(["-aHi".as_ref(), slash(&scratch.src()).as_os_str(), slash(&twin).as_os_str()]);
        // The time of a link that is made again for another name is particular to rsync.
        let named = |text: String| {
            sorted(&text).into_iter().filter(|line| !line.contains("e/link")).collect::<Vec<_>>()
        };
        assert_eq!(named(copy(&to)), named(rsync.stdout_text()), "{what}");
        assert_same(&scratch.src(), &to, with_links());
        assert_eq!(copy(&to), "", "{what}");
    }
}

#[test]
fn a_group_with_new_content_is_sent_once_in_every_direction() {
    let scratch = Scratch::new();
    linked().plant(&scratch.src());
    every_way(&scratch, &["-aH", "--stats"], |copy, to| {
        let _ = copy().run().expect_code(0);
        let len = 60_000 + to.as_os_str().len();
        fs::write(scratch.src().join("a"), vec![7; len]).unwrap();
        assert_eq!(copy().run().expect_code(0).stat("Number of regular files transferred"), 1);
        assert_same(&scratch.src(), to, with_links());
    });
}

#[test]
fn a_killed_run_is_put_right_by_the_next() {
    let scratch = Scratch::new();
    let nodes = (0..1500_u64).flat_map(|group| {
        let first = format!("d{}/f{group}", group % 7);
        let further = format!("d{}/g{group}", group % 5);
        [Node::file(&first, group, 500), Node::hard_link(further, first)]
    });
    Tree::of((0..7).map(|index| Node::dir(format!("d{index}"))).chain(nodes)).plant(&scratch.src());
    let copy = || Run::dsync().arg("-aH").arg(slash(&scratch.src())).arg(scratch.dst());
    for wait in [20, 60, 120] {
        let run = copy().start();
        std::thread::sleep(std::time::Duration::from_millis(wait));
        run.signal(rustix::process::Signal::KILL);
        let _ = run.wait();
    }
    let _ = copy().run().expect_quiet_success();
    assert_same(&scratch.src(), &scratch.dst(), with_links());
    assert!(dsync_tests::compare::temporaries(&scratch.dst()).is_empty());
}

#[test]
fn the_first_listed_name_leads_whatever_is_left_out() {
    let scratch = Scratch::new();
    linked().plant(&scratch.src());
    every_way(&scratch, &["-aH", "--exclude=/a", "--exclude=/dir/d"], |copy, to| {
        let _ = copy().run().expect_quiet_success();
        assert!(!to.join("a").exists());
        assert!(same_inode(&to.join("b"), &to.join("dir/c")));
        assert_eq!(fs::metadata(to.join("e/f")).unwrap().nlink(), 1);
    });
}

#[test]
fn a_skipped_first_name_leaves_its_place_to_the_next() {
    let scratch = Scratch::new();
    linked().plant(&scratch.src());
    every_way(&scratch, &["-aH", "--existing"], |copy, to| {
        Tree::of([Node::file("b", 8, 9), Node::dir("dir"), Node::file("dir/c", 9, 9)]).plant(to);
        let _ = copy().run().expect_quiet_success();
        assert!(!to.join("a").exists());
        assert!(same_inode(&to.join("b"), &to.join("dir/c")));
        assert_eq!(fs::read(to.join("b")).unwrap(), fs::read(scratch.src().join("a")).unwrap());
    });
}

#[test]
fn a_missing_first_name_is_made_and_the_others_follow() {
    let scratch = Scratch::new();
    linked().plant(&scratch.src());
    every_way(&scratch, &["-aH"], |copy, to| {
        let _ = copy().run().expect_quiet_success();
        fs::remove_file(to.join("a")).unwrap();
        let _ = copy().run().expect_quiet_success();
        assert_same(&scratch.src(), to, with_links());
    });
}

#[test]
fn directories_in_the_way_give_way_and_what_is_deleted_does_not_matter() {
    for timing in ["--delete-after", "--delete-during"] {
        let scratch = Scratch::new();
        linked().plant(&scratch.src());
        every_way(&scratch, &["-aH", timing], |copy, to| {
            Tree::of([
                Node::dir("b"),
                Node::file("b/in the way", 1, 1),
                Node::dir("dir"),
                Node::file("dir/extraneous", 1, 1),
                Node::hard_link("dir/extraneous too", "dir/extraneous"),
                Node::dir("dir/c"),
            ])
            .plant(to);
            let _ = copy().run().expect_quiet_success();
            assert_same(&scratch.src(), to, with_links());
        });
    }
}

#[test]
fn groups_span_several_operands() {
    let scratch = Scratch::new();
    linked().plant(&scratch.src());
    let operands = [scratch.src().join("dir"), scratch.src().join("e"), scratch.src().join("b")];
    let _ = Run::dsync().arg("-aH").args(operands).arg(scratch.dst()).run().expect_quiet_success();
    assert!(same_inode(&scratch.dst().join("b"), &scratch.dst().join("dir/c")));
    assert!(same_inode(&scratch.dst().join("e/f"), &scratch.dst().join("dir/d")));
}

#[test]
fn without_the_option_every_name_is_a_file() {
    let scratch = Scratch::new();
    linked().plant(&scratch.src());
    let _ = Run::dsync().arg("-a").arg(slash(&scratch.src())).arg(scratch.dst()).run().expect_quiet_success();
    assert_same(&scratch.src(), &scratch.dst(), Scope::full());
    assert!(!same_inode(&scratch.dst().join("a"), &scratch.dst().join("b")));
}

#[test]
fn old_names_of_one_file_become_files_of_their_own_without_the_option() {
    let scratch = Scratch::new();
    let old = |name: &str| Node { mtime: (1_200_000_000, 0), ..Node::file(name, 9, 3_000_000) };
    let further = ["b", "c"].map(|name| Node::hard_link(name, "a"));
    Tree::of(["a", "b", "c"].map(old)).plant(&scratch.src());
    for (name, at) in [("a", 1000), ("b", 1_500_000), ("c", 2_900_000)] {
        let path = scratch.src().join(name);
        let mut content = fs::read(&path).unwrap();
        content[at..at + 500].fill(at as u8);
        fs::write(path, content).unwrap();
    }
    every_way(&scratch, &["-a", "--stats"], |copy, to| {
        Tree::of([old("a")].into_iter().chain(further.clone())).plant(to);
        // Each is made from its old content, though the others have just left that.
        let outcome = copy().run().expect_code(0);
        assert_eq!(outcome.stderr_text(), "");
        assert_same(&scratch.src(), to, Scope::full());
        assert_eq!(outcome.stat("Number of regular files transferred"), 3);
    });
}

/// Asserts the report of a run that had to copy files instead of linking them.
fn expect_copies(run: Run, told: &str) {
    let outcome = run.run().expect_code(23);
    let stderr = outcome.stderr_text();
    assert!(stderr.contains(told), "{}", outcome.account());
    assert_eq!(stderr.lines().count(), 1, "{}", outcome.account());
}

#[test]
fn names_beyond_the_limit_of_the_disk_are_copies_and_told() {
    let scratch = Scratch::new();
    let source = scratch.at("memory");
    fs::create_dir(&source).unwrap();
    let mount = Mount::tmpfs(&source, "size=64m");
    let (Some(_mount), Some(disk)) = (mount, Disk::create(scratch.path(), Format::Ext4, 64)) else { return };
    // ext4 allows 65,000 names per file.
    let name = |index: u32| format!("n{index:05}");
    Tree::of([Node::file(name(0), 1, 9000)]).plant(&source);
    (1..65_003).for_each(|index| fs::hard_link(source.join(name(0)), source.join(name(index))).unwrap());
    let to = disk.path().join("dst");
    let copy = || Run::dsync().arg("-aH").arg(slash(&source)).arg(&to);
    expect_copies(copy(), "3 hard links became copies");
    let alone = |index| fs::metadata(to.join(name(index))).unwrap();
    assert_eq!(alone(0).nlink(), 65_000);
    let copies: Vec<_> = (0..65_003).filter(|&index| alone(index).ino() != alone(0).ino()).collect();
    assert_eq!(copies.len(), 3);
    let inodes = || copies.iter().map(|&index| alone(index).ino()).collect::<Vec<_>>();
    for &index in &copies {
        assert_same(&source.join(name(0)), &to.join(name(index)), Scope::full());
    }
    // A further run finds them as they should be, and still reports them.
    let before = inodes();
    expect_copies(copy(), "3 hard links became copies");
    assert_eq!(inodes(), before);
}

#[test]
fn names_on_another_filesystem_are_copies_and_told() {
    let scratch = Scratch::new();
    linked().plant(&scratch.src());
    let below = scratch.dst().join("e");
    fs::create_dir_all(&below).unwrap();
    let Some(_mount) = Mount::tmpfs(&below, "size=8m") else { return };
    let sshd = Sshd::shared();
    let pushed = || sshd.run(Via::Tls).arg("-aH").arg(slash(&scratch.src())).arg(sshd.operand(scratch.dst()));
    let copied = || Run::dsync().arg("-aH").arg(slash(&scratch.src())).arg(scratch.dst());
    expect_copies(pushed(), "3 hard links became copies");
    assert_same(&scratch.src(), &scratch.dst(), Scope::full());
    let inode = || fs::metadata(below.join("f")).unwrap().ino();
    let before = inode();
    expect_copies(copied(), "3 hard links became copies");
    assert_eq!(inode(), before);
    // New content reaches the copy.
    fs::write(scratch.src().join("dir/d"), vec![9; 70_000]).unwrap();
    expect_copies(copied(), "3 hard links became copies");
    assert_same(&scratch.src(), &scratch.dst(), Scope::full());
}

#[test]
fn disk_without_hard_links_gets_copies() {
    let scratch = Scratch::new();
    linked().plant(&scratch.src());
    for error in ["EPERM", "EMLINK", "EOPNOTSUPP"] {
        let to = scratch.at(error);
        let run = strace::inject("linkat", &format!("error={error}"));
        expect_copies(run.arg("-aH").arg(slash(&scratch.src())).arg(&to), "6 hard links became copies");
        assert_same(&scratch.src(), &to, Scope::full());
    }
}

/// Writes a program that finds no file of the names `a` and `b` when it reads them.
fn without_first_names(scratch: &Scratch) -> PathBuf {
    let script = scratch.at("without");
    let vanished = "-P a -P b -e trace=openat -e inject=openat:error=ENOENT";
    let program = program().display();
    fs::write(&script, format!("#!/bin/sh\nexec strace -f -qq -o /dev/null {vanished} {program} \"$@\"\n"))
        .unwrap();
    tree::set_mode(&script, 0o755);
    script
}

/// Copies in every direction from a source whose first names vanish after they were listed. `each`
/// gets such a run, one from the same intact source, and their destination.
fn vanishing(scratch: &Scratch, options: &[&str], each: impl Fn(&dyn Fn() -> Run, &dyn Fn() -> Run, &Path)) {
    let (sshd, without, from) = (Sshd::shared(), without_first_names(scratch), slash(&scratch.src()));
    let (local, push, pull) = (scratch.at("local"), scratch.at("push"), scratch.at("pull"));
    let here = |run: Run| run.args(options).arg(&from).arg(&local);
    each(&|| here(Run::of(&without)), &|| here(Run::dsync()), &local);
    let away = |run: Run| {
        let run = run.args(options).arg("-e").arg(sshd.shell()).arg("--dsync-path").arg(program());
        run.arg("--transport=quic").arg(&from).arg(sshd.operand(&push))
    };
    each(&|| away(Run::of(&without)), &|| away(Run::dsync()), &push);
    let back = |run: Run| run.args(options).arg(sshd.operand(&from)).arg(&pull);
    each(&|| back(sshd.run_serving(Via::Ssh, &without)), &|| back(sshd.run(Via::Ssh)), &pull);
}

#[test]
fn names_get_the_content_though_the_first_ones_vanish() {
    needs_dsync!();
    let scratch = Scratch::new();
    linked().plant(&scratch.src());
    fs::hard_link(scratch.src().join("a"), scratch.src().join("z")).unwrap();
    for options in [&["-aH"][..], &["-aH", "--delay-updates"], &["-aH", "--delete-before"]] {
        vanishing(&scratch, options, |copy, again, to| {
            let outcome = copy().arg("--stats").run().expect_code(24);
            let problems: Vec<_> =
                outcome.stderr_text().lines().filter(|line| line.contains('\'')).map(str::to_owned).collect();
            for name in ["'a'", "'b'"] {
                let told = problems.iter().filter(|line| line.contains(name) && line.contains("vanished"));
                assert_eq!(told.count(), 1, "{name}\n{}", outcome.account());
            }
            assert_eq!(problems.len(), 2, "{}", outcome.account());
            assert!(!to.join("a").exists() && !to.join("b").exists(), "{}", outcome.account());
            assert!(same_inode(&to.join("z"), &to.join("dir/c")), "{}", outcome.account());
            assert_eq!(fs::metadata(to.join("z")).unwrap().nlink(), 2);
            assert_eq!(fs::read(to.join("z")).unwrap(), fs::read(scratch.src().join("a")).unwrap());
            assert_eq!(outcome.stat("Number of regular files transferred"), 4, "one for each inode");
            assert_eq!(outcome.stat("Total transferred file size"), 305_007);
            let _ = again().run().expect_code(0);
            assert_same(&scratch.src(), to, with_links());
            fs::remove_dir_all(to).unwrap();
        });
    }
}

#[test]
fn new_content_gets_to_the_names_that_are_left() {
    needs_dsync!();
    for options in [&["-aH"][..], &["-aH", "--inplace"], &["-aH", "--append-verify"]] {
        let scratch = Scratch::new();
        linked().plant(&scratch.src());
        vanishing(&scratch, options, |copy, again, to| {
            let _ = again().run().expect_code(0);
            let new = vec![7; 200_000 + fs::metadata(scratch.src().join("a")).unwrap().len() as usize];
            fs::write(scratch.src().join("a"), &new).unwrap();
            let outcome = copy().run().expect_code(24);
            assert!(fs::read(to.join("dir/c")).unwrap() == new, "{options:?}\n{}", outcome.account());
            let _ = again().run().expect_code(0);
            assert_same(&scratch.src(), to, with_links());
        });
    }
}

#[test]
fn what_took_over_leaves_the_source_and_what_failed_does_not() {
    needs_dsync!();
    let scratch = Scratch::new();
    vanishing(&scratch, &["-aH", "--remove-source-files"], |copy, _, to| {
        let from = scratch.src();
        if from.exists() {
            fs::remove_dir_all(&from).unwrap();
        }
        linked().plant(&from);
        fs::hard_link(from.join("a"), from.join("z")).unwrap();
        let outcome = copy().run().expect_code(24);
        assert!(same_inode(&to.join("z"), &to.join("dir/c")), "{}", outcome.account());
        let stays = ["a", "b", "z", "dir/c", "dir/d", "fifo2"].map(|name| from.join(name).exists());
        assert_eq!(stays, [true, true, false, false, false, false], "{}", outcome.account());
        assert_eq!(fs::read(to.join("z")).unwrap(), fs::read(from.join("a")).unwrap());
    });
}

/// Makes three names of one file in a directory, and another file.
fn three_names() -> Tree {
    Tree::of([
        Node::dir("d"),
        Node::file("d/a", 1, 200_000),
        Node::hard_link("d/b", "d/a"),
        Node::hard_link("d/c", "d/a"),
        Node::file("d/other", 2, 10),
    ])
}

/// Makes a change to the copy of [`three_names`].
type Change = fn(&Path);

/// Changes after which a later name is up to date and the first one is not.
const LATER_NAME_STANDS: [(&str, Change); 6] = [
    ("the first is missing", |to| fs::remove_file(to.join("d/a")).unwrap()),
    ("the first two are missing", |to| {
        fs::remove_file(to.join("d/a")).unwrap();
        fs::remove_file(to.join("d/b")).unwrap();
    }),
    ("the first is another file", |to| {
        fs::remove_file(to.join("d/a")).unwrap();
        fs::write(to.join("d/a"), "short").unwrap();
        tree::set_mtime(&to.join("d/a"), (1_000_000, 0));
    }),
    ("the first is a link to nowhere", |to| {
        fs::remove_file(to.join("d/a")).unwrap();
        symlink("nowhere", to.join("d/a")).unwrap();
    }),
    ("the later one has other permissions", |to| {
        fs::remove_file(to.join("d/a")).unwrap();
        tree::set_mode(&to.join("d/b"), 0o600);
    }),
    ("the names are of two files", |to| {
        let copied = to.join("copied");
        let _ = Run::of("cp").arg("-p").arg(to.join("d/c")).arg(&copied).run().expect_code(0);
        fs::rename(copied, to.join("d/c")).unwrap();
        fs::remove_file(to.join("d/a")).unwrap();
    }),
];

/// Makes each change to a copy, and checks that the next run of `copy` sends nothing.
fn nothing_is_sent(scratch: &Scratch, options: &[&str], copy: &dyn Fn() -> Run, to: &Path) {
    let listed = |run: &Outcome| {
        let text = run.stdout_text();
        let changes = text.split("Number of files:").next().unwrap_or_default();
        sorted(changes).into_iter().filter(|line| !line.is_empty()).collect::<Vec<_>>()
    };

    for (what, change) in LATER_NAME_STANDS {
        let _ = copy().run().expect_code(0);
        change(to);
        let kept = ["d/b", "d/c"].into_iter().find(|name| to.join(name).exists()).unwrap();
        let inode = fs::metadata(to.join(kept)).unwrap().ino();

        let dry = listed(&copy().args(["-n", "-i"]).run().expect_code(0));
        let run = copy().arg("-i").run().expect_code(0);
        let context = format!("{options:?}, {what}\n{}", run.account());
        assert_eq!(run.stat("Literal data"), 0, "{context}");
        assert_eq!(run.stat("Number of regular files transferred"), 0, "{context}");
        assert_eq!(fs::metadata(to.join("d/a")).unwrap().ino(), inode, "{context}");
        assert_eq!(dry, listed(&run), "{context}");
        // What is kept needs no backup.
        let backups = scratch.at("old");
        assert!(!backups.join(kept).exists(), "{context}");
        let _ = fs::remove_dir_all(backups);

        assert_same(&scratch.src(), to, with_links());
        let again = copy().arg("-i").run().expect_code(0);
        assert_eq!(listed(&again), [""; 0], "{context}");
    }
}

#[test]
fn a_first_name_is_linked_to_a_later_one_that_is_there_and_nothing_is_sent() {
    let scratch = Scratch::new();
    three_names().plant(&scratch.src());
    let options = ["-aH", "--stats"];
    every_way(&scratch, &options, |copy, to| nothing_is_sent(&scratch, &options, copy, to));

    let further: [&[&str]; 12] = [
        &["-c"],
        &["-b", "--backup-dir=../old"],
        &["-u"],
        &["-y"],
        &["--inplace"],
        &["--append"],
        &["--delay-updates"],
        &["--delete-before"],
        &["--delete-after"],
        &["--partial-dir=.part"],
        &["--size-only"],
        &["-AX", "--numeric-ids", "--checksum"],
    ];
    for further in further {
        let options = [&options, further].concat();
        let to = scratch.at("further");
        let copy = || Run::dsync().args(&options).arg(slash(&scratch.src())).arg(&to);
        nothing_is_sent(&scratch, &options, &copy, &to);
        fs::remove_dir_all(&to).unwrap();
    }
}

#[test]
fn a_later_name_that_is_not_up_to_date_or_not_the_runs_leads_nobody() {
    // The option, the change, and the names that the source's content is sent to.
    let cases: [(&str, Change, [&str; 3]); 4] = [
        ("--ignore-existing", |to| fs::remove_file(to.join("d/a")).unwrap(), ["d/a", "", ""]),
        ("-I", |to| fs::remove_file(to.join("d/a")).unwrap(), ["d/a", "d/b", "d/c"]),
        (
            "-u",
            |to| {
                fs::remove_file(to.join("d/a")).unwrap();
                fs::remove_file(to.join("d/c")).unwrap();
                tree::set_mtime(&to.join("d/b"), (2_000_000_000, 0));
            },
            ["d/a", "d/c", ""],
        ),
        (
            "-c",
            |to| {
                fs::remove_file(to.join("d/a")).unwrap();
                let time = fs::metadata(to.join("d/b")).unwrap().modified().unwrap();
                fs::write(to.join("d/b"), vec![1; 200_000]).unwrap();
                fs::File::open(to.join("d/b")).unwrap().set_modified(time).unwrap();
            },
            ["d/a", "d/b", "d/c"],
        ),
    ];
    for (option, change, names) in cases {
        let scratch = Scratch::new();
        three_names().plant(&scratch.src());
        let content = fs::read(scratch.src().join("d/a")).unwrap();
        every_way(&scratch, &["-aH", "--stats"], |copy, to| {
            let _ = copy().run().expect_code(0);
            change(to);
            let twin = scratch.at("twin");
            let _ = Run::of("cp").arg("-aT").arg(to).arg(&twin).run().expect_code(0);
            let run = copy().arg(option).run().expect_code(0);
            // All others are sent again, too.
            let others = if option == "-I" { 10 } else { 0 };
            assert_eq!(run.stat("Literal data"), 200_000 + others, "{option}\n{}", run.account());
            for name in names.iter().filter(|name| !name.is_empty()) {
                assert!(same_inode(&to.join(name), &to.join("d/a")), "{option}, {name}");
                assert!(fs::read(to.join(name)).unwrap() == content, "{option}, {name}");
            }
            let from = slash(&scratch.src());
            let _ =
                oracle::rsync(["-aH".as_ref(), option.as_ref(), from.as_os_str(), slash(&twin).as_os_str()]);
            if option != "-u" {
                assert_same(&twin, to, with_links());
            }
            fs::remove_dir_all(twin).unwrap();
        });
    }
}

#[test]
fn a_first_name_is_linked_to_what_an_alternate_directory_has_under_a_later_one() {
    let scratch = Scratch::new();
    three_names().plant(&scratch.src());
    let alternate = scratch.at("alternate");
    let _ = Run::of("cp").arg("-aT").arg(scratch.src()).arg(&alternate).run().expect_code(0);
    fs::remove_file(alternate.join("d/a")).unwrap();
    fs::remove_file(alternate.join("d/c")).unwrap();
    for option in ["--link-dest", "--copy-dest"] {
        let option = format!("{option}={}", alternate.display());
        every_way(&scratch, &["-aH", "--stats", &option], |copy, to| {
            let dry = copy().args(["-n", "-i"]).run().expect_code(0);
            let run = copy().arg("-i").run().expect_code(0);
            let listed = |run: &Outcome| sorted(run.stdout_text().split("Number").next().unwrap());
            assert_eq!(listed(&dry), listed(&run));
            assert_eq!(run.stat("Literal data"), 0, "{}", run.account());
            assert_same(&scratch.src(), to, with_links());
            assert_eq!(same_inode(&to.join("d/a"), &alternate.join("d/b")), option.starts_with("--link"));
            fs::remove_dir_all(to).unwrap();
        });
    }
}

#[test]
fn names_of_several_directories_and_far_apart_are_sent_once_and_right() {
    let scratch = Scratch::new();
    let nodes = (0..9000).map(|number| Node::file(format!("wide/n{number:05}-{}", "x".repeat(40)), 1, 1));
    let links = [
        Node::file("early/a", 5, 70_000),
        Node::hard_link("late/b", "early/a"),
        Node::file("wide/a", 6, 80_000),
        Node::hard_link("wide/z", "wide/a"),
    ];
    let dirs = ["early", "late", "wide"].map(Node::dir);
    Tree::of(dirs.into_iter().chain(nodes).chain(links)).plant(&scratch.src());
    every_way(&scratch, &["-aH", "--stats"], |copy, to| {
        let _ = copy().run().expect_code(0);
        fs::remove_file(to.join("early/a")).unwrap();
        fs::remove_file(to.join("wide/a")).unwrap();
        let run = copy().run().expect_code(0);
        assert_eq!(run.stat("Literal data"), 150_000, "{}", run.account());
        assert_same(&scratch.src(), to, with_links());
    });
}

#[test]
fn an_inode_that_is_rewritten_in_place_by_another_name_leads_nobody() {
    let scratch = Scratch::new();
    three_names().plant(&scratch.src());
    Tree::of([Node::file("d/zz", 7, 100)]).plant(&scratch.src());
    for options in [&["--inplace"][..], &["--append"]] {
        every_way(&scratch, &[&["-aH"], options].concat(), |copy, to| {
            let _ = copy().run().expect_code(0);
            fs::remove_file(to.join("d/a")).unwrap();
            fs::remove_file(to.join("d/c")).unwrap();
            fs::remove_file(to.join("d/zz")).unwrap();
            fs::hard_link(to.join("d/b"), to.join("d/zz")).unwrap();
            let _ = copy().run().expect_code(0);
            for name in ["d/a", "d/b", "d/c"] {
                assert!(fs::read(to.join(name)).unwrap() == fs::read(scratch.src().join(name)).unwrap());
            }
            assert!(same_inode(&to.join("d/a"), &to.join("d/b")));
            fs::remove_dir_all(to).unwrap();
        });
    }
}

#[test]
fn names_of_one_file_that_is_written_in_place_get_each_its_own_content() {
    let scratch = Scratch::new();
    let later = |node: Node| Node { mtime: (1_300_000_000, 0), ..node };
    let files = [
        ("a", Node::file("a", 1, 6000)),
        ("alike", later(Node::file("alike", 2, 6000))),
        ("d/b", Node::file("d/b", 1, 7000)),
        ("e/c", Node::file("e/c", 1, 900_000)),
    ];
    let nodes = files.each_ref().map(|(_, node)| node.clone());
    let dirs = [Node::dir("d"), Node::dir("e")];
    Tree::of(dirs.iter().cloned().chain(nodes)).plant(&scratch.src());

    // One of the names is up to date, or none, which alone `--append` goes on with.
    let short = later(Node::file("a", 1, 5000));
    let modes: [&[&str]; 5] = [
        &["--inplace"],
        &["--inplace", "-c"],
        &["--inplace", "-H"],
        &["--inplace", "-W"],
        &["-b", "--inplace"],
    ];
    let all = files.iter().flat_map(|(name, node)| modes.map(|options| (*name, node, options)));
    let none = modes.into_iter().chain([&["--append"][..]]).map(|options| ("a", &short, options));
    for (first, old, options) in all.chain(none) {
        every_way(&scratch, &[&["-a"], options].concat(), |copy, to| {
            let others = files.iter().filter(|(name, _)| *name != first);
            let links = others.map(|(name, _)| Node::hard_link(name, first));
            Tree::of(dirs.iter().cloned().chain([old.clone()]).chain(links)).plant(to);
            let outside = scratch.at("outside");
            fs::hard_link(to.join(first), &outside).unwrap();

            let outcome = copy().run().expect_code(0);
            for (name, _) in &files {
                let is_right =
                    fs::read(to.join(name)).unwrap() == fs::read(scratch.src().join(name)).unwrap();
                assert!(is_right, "{name}, of one file with {first}: {}", outcome.account());
            }
            // Under `--append` nobody writes into it.
            let is_first = same_inode(&to.join("a"), &outside);
            assert_eq!(is_first, options != ["--append"], "whoever comes first keeps the inode");
            assert_eq!(copy().arg("-i").run().expect_code(0).stdout_text(), "");
            fs::remove_dir_all(to).unwrap();
            fs::remove_file(&outside).unwrap();
        });
    }
}

/// Options that leave a file as it is, and that file is one with another that they do not: it is written nowhere.
#[test]
fn a_name_that_is_left_as_it_is_keeps_its_content() {
    let scratch = Scratch::new();
    let at = |name: &str, seed, len, mtime| Node { mtime: (mtime, 0), ..Node::file(name, seed, len) };
    let (old, new) = (1_300_000_000, 1_500_000_000);
    // The one that is left alone comes before the other, or behind it.
    for (left, other) in [("a", "z"), ("z", "a")] {
        for (options, left_node, other_node) in [
            (&["-u", "--inplace"][..], at(left, 1, 12, old), at(other, 2, 12, new)),
            (&["-uH", "--inplace"], at(left, 1, 12, old), at(other, 2, 12, new)),
            (&["--append"], at(left, 1, 5, old), at(other, 2, 40, new)),
            (&["--append-verify"], at(left, 1, 5, old), at(other, 2, 40, new)),
            (&["--inplace", "--max-size=20"], at(left, 1, 40, new), at(other, 2, 12, new)),
            (&["--inplace", "--min-size=20"], at(left, 1, 12, new), at(other, 2, 40, new)),
        ] {
            let _ = fs::remove_dir_all(scratch.src());
            Tree::of([left_node, other_node]).plant(&scratch.src());
            let to = scratch.dst();
            Tree::of([at(left, 3, 20, 1_400_000_000), Node::hard_link(other, left)]).plant(&to);
            let before = fs::read(to.join(left)).unwrap();
            for _ in 0..2 {
                let run = Run::dsync().arg("-a").args(options).arg(slash(&scratch.src())).arg(&to);
                let outcome = run.run().expect_code(0);
                assert!(fs::read(to.join(left)).unwrap() == before, "{left}: {}", outcome.account());
            }
            if !options.iter().any(|option| option.starts_with("--append")) {
                assert_eq!(fs::read(to.join(other)).unwrap(), fs::read(scratch.src().join(other)).unwrap());
            }
            fs::remove_dir_all(&to).unwrap();
        }
    }
}

#[test]
fn anothers_file_leads_nobody() {
    needs_root!();
    let scratch = Scratch::new();
    three_names().plant(&scratch.src());
    let to = scratch.dst();
    let copy = || Run::dsync().args(["-rltpH", "--stats"]).arg(slash(&scratch.src())).arg(&to);
    let _ = copy().run().expect_code(0);
    fs::remove_file(to.join("d/a")).unwrap();
    let nobody = Some(65534);
    for path in [to.clone(), to.join("d")] {
        std::os::unix::fs::chown(path, nobody, nobody).unwrap();
    }
    for path in [scratch.src(), scratch.src().join("d/a"), to.join("d/b")] {
        let mode = if path.is_dir() { 0o755 } else { 0o644 };
        tree::set_mode(&path, mode);
    }
    let run = copy().as_user(65534, 65534).run().expect_code(0);
    assert_eq!(run.stat("Literal data"), 200_000, "{}", run.account());
    assert!(["b", "c"].iter().all(|name| same_inode(&to.join("d/a"), &to.join("d").join(name))));
}
