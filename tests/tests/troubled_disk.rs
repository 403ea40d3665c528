//! Failing disks: the exit code, a message that names the file and the cause, no temporary left,
//! the old content whole, and a next run that repairs everything.

use std::{collections::BTreeMap, fs, path::Path};

use dsync_tests::{
    Facts, Node, Outcome, Run, Scope, Scratch, Tree, assert_same, compare, differences, every_way,
    mount::Mount,
    needs_dsync,
    power::{Disk, Format},
    program,
    scratch::slash,
    strace, survey, tree,
};

fn plant(scratch: &Scratch, destination: &Path) {
    Tree::of([
        Node::dir("dir"),
        Node::file("dir/a", 1, 4000),
        Node::file("b", 2, 300_000),
        Node::symlink("link", "b"),
        Node::dir("new"),
        Node::file("new/c", 3, 30),
    ])
    .plant(&scratch.src());
    Tree::of([
        Node::dir("dir"),
        Node { mtime: (1_200_000_000, 0), ..Node::file("dir/a", 4, 5000) },
        Node { mtime: (1_200_000_000, 0), ..Node::file("b", 5, 200_000) },
        Node::file("extra", 6, 60),
    ])
    .plant(destination);
}

fn finish(run: Run, scratch: &Scratch, options: &[&str]) -> Outcome {
    run.arg("-a").args(options).arg(slash(&scratch.src())).arg(scratch.dst()).run()
}

/// Asserts that everything at the destination is old or new, and no temporary is left.
fn assert_whole(scratch: &Scratch, old: &BTreeMap<Vec<u8>, Facts>, account: &str) {
    let new = survey(&scratch.src());
    for (path, facts) in survey(&scratch.dst()) {
        let held = [old, &new].iter().any(|state| {
            state.get(&path).is_some_and(|was| (was.kind, &was.content) == (facts.kind, &facts.content))
        });
        assert!(held, "{} is neither old nor new\n{account}", compare::show(&path));
    }
    assert_eq!(compare::temporaries(&scratch.dst()), Vec::<String>::new(), "{account}");
}

#[test]
fn failing_calls_end_with_the_code_of_their_kind_and_harm_nothing() {
    needs_dsync!();
    let each_file = &["--durability=file"][..];
    for (calls, what, options, code, parts) in [
        ("pwrite64,copy_file_range", "error=EIO", &[][..], 11, &["cannot write '", "Input/output error"][..]),
        (
            "pwrite64,copy_file_range",
            "error=EDQUOT",
            &[],
            11,
            &["the quota is used up", "The old copy is untouched"],
        ),
        ("pwrite64,copy_file_range", "error=ENOSPC", &[], 11, &["the disk is full"]),
        ("pwrite64,copy_file_range", "error=EINTR:when=1..3", &[], 0, &[]),
        ("mkdirat", "error=ENOSPC", &[], 11, &["cannot create directory '", "/new'", "the disk is full"]),
        ("renameat,renameat2", "error=EROFS", &[], 11, &["Read-only file system"]),
        ("renameat,renameat2", "error=EACCES", &[], 23, &["cannot write 'b'", "Permission denied"]),
        ("renameat,renameat2", "error=EBUSY", &[], 23, &["cannot write 'b'", "busy"]),
        ("renameat,renameat2", "error=EXDEV", &[], 23, &["cannot write 'dir/a'"]),
        // A failed sync is final, even though the next one would succeed.
        ("syncfs", "error=EIO:when=1", &[], 11, &["cannot write '", "Input/output error"]),
        ("fsync", "error=EIO:when=1", each_file, 11, &["cannot write '", "Input/output error"]),
        ("fdatasync", "error=EIO:when=1", each_file, 11, &["Input/output error"]),
        (
            "fchmod",
            "error=EPERM",
            &[],
            23,
            &["cannot set attributes of '", "its permissions or times: Operation not permitted"],
        ),
        (
            "utimensat",
            "error=EPERM",
            &[],
            23,
            &["cannot set attributes of '", "its permissions or times: Operation not permitted"],
        ),
        ("symlinkat", "error=EPERM", &[], 23, &["cannot create the link 'link'"]),
        ("unlinkat", "error=EPERM", &["--delete"], 23, &["cannot delete 'extra'"]),
        ("getdents64", "error=EIO", &["--delete"], 23, &["cannot read directory '", "Input/output error"]),
    ] {
        let scratch = Scratch::new();
        plant(&scratch, &scratch.dst());
        let old = survey(&scratch.dst());
        let outcome = finish(strace::inject(calls, what), &scratch, options);
        let account = format!("{calls} {what}\n{}", outcome.account());
        assert_eq!(outcome.code(), Some(code), "{account}");
        for part in parts {
            assert!(outcome.stderr_text().contains(part), "no '{part}'\n{account}");
        }
        // Entries that cannot be removed, leftovers included, stay until they can.
        if calls != "unlinkat" {
            assert_whole(&scratch, &old, &account);
        }
        assert!(scratch.dst().join("extra").exists(), "{account}");
        let _ = finish(Run::dsync(), &scratch, &["--delete"]).expect_quiet_success();
        assert_same(&scratch.src(), &scratch.dst(), Scope::full());
    }
}

#[test]
fn unreadable_content_ends_with_23_and_makes_no_file() {
    needs_dsync!();
    let scratch = Scratch::new();
    plant(&scratch, &scratch.dst());
    let old = survey(&scratch.dst());
    let run = Run::of("strace").args(["-f", "-qq", "-o", "/dev/null"]);
    let run = ["b", "new/c"].iter().fold(run, |run, file| run.arg("-P").arg(scratch.src().join(file)));
    // All ways to read, including those that let the kernel copy.
    let reads = "read,pread64,readv,preadv,copy_file_range,sendfile,splice,ioctl";
    let run = run.args(["-e".to_owned(), format!("inject={reads}:error=EIO")]).arg(program());
    let outcome = finish(run, &scratch, &[]).expect_code(23);
    for part in ["cannot read 'b': Input/output error", "cannot read 'new/c': Input/output error"] {
        assert!(outcome.stderr_text().contains(part), "no '{part}'\n{}", outcome.account());
    }
    assert_whole(&scratch, &old, &outcome.account());
    assert!(!scratch.dst().join("new/c").exists(), "{}", outcome.account());
    let _ = finish(Run::dsync(), &scratch, &["--delete"]).expect_quiet_success();
    assert_same(&scratch.src(), &scratch.dst(), Scope::full());
}

/// CIFS does so at times, procfs always.
#[test]
fn a_kernel_that_copies_nothing_and_reports_no_error_cuts_no_file() {
    needs_dsync!();
    let far = Scratch::under(Path::new("/dev/shm"));
    let backups = format!("--backup-dir={}", far.at("backup").display());
    let alternate = format!("--copy-dest={}", far.at("copy").display());
    let mut faults = Vec::new();
    for options in [
        &[][..],
        &["--inplace"],
        &["--delay-updates"],
        &["--remove-source-files"],
        &[&backups],
        &[&backups, "--inplace"],
        &["--backup-dir=../kept", "--inplace"],
        &["--copy-dest=../alternate"],
        &[&alternate],
    ] {
        for what in ["retval=0", "retval=0:when=1", "retval=0:when=2+"] {
            let scratch = Scratch::new();
            for root in ["src", "wanted", "alternate"] {
                Tree::of(long_and_short(1)).plant(&scratch.at(root));
            }
            let has_old = !options.iter().any(|option| option.starts_with("--copy-dest"));
            Tree::of(long_and_short(2).into_iter().filter(|_| has_old)).plant(&scratch.dst());
            let old = survey(&scratch.dst());
            Tree::of(long_and_short(1)).plant(&far.at("copy"));
            let run = strace::inject("copy_file_range", what).arg("-a").args(options);
            let outcome = run.args(["src/", "dst/"]).cwd(scratch.path()).run();

            let scope = Scope { root: false, ..Scope::full() };
            let mut found = differences(&scratch.at("wanted"), &scratch.dst(), scope);
            if options.iter().any(|option| option.starts_with("--backup-dir")) {
                let kept = [scratch.at("kept"), far.at("backup")].into_iter().find(|dir| dir.exists());
                let kept = kept.map(|kept| survey(&kept)).unwrap_or_default();
                let backups = compare::compare(&old, &kept, scope);
                found.extend(backups.into_iter().map(|line| format!("backup: {line}")));
            }
            let is_fault = outcome.code() != Some(0) || !found.is_empty();
            faults.extend(is_fault.then(|| format!("{found:?}\n{}", outcome.account())));
            for dir in ["copy", "backup"] {
                let _ = fs::remove_dir_all(far.at(dir));
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// Makes files of several lengths; the kernel is asked several times for the longest.
fn long_and_short(state: u64) -> [Node; 4] {
    [("long", 9 << 20), ("a", 300_000), ("b", 5000), ("c", 1)].map(|(name, len)| Node {
        mtime: (1_300_000_000, 0),
        ..Node::file(name, state * 10_000_019 + len, len + state * 100)
    })
}

#[test]
fn read_only_destination_ends_with_11_and_the_cause() {
    needs_dsync!();
    let scratch = Scratch::new();
    fs::create_dir(scratch.dst()).unwrap();
    let Some(mount) = Mount::tmpfs(&scratch.dst(), "size=8m") else { return };
    plant(&scratch, &scratch.dst());
    let old = survey(&scratch.dst());
    mount.remount("ro");
    let outcome = finish(Run::dsync(), &scratch, &[]).expect_code(11);
    assert!(outcome.stderr_text().contains("Read-only file system"), "{}", outcome.account());
    let found = compare::compare(&old, &survey(&scratch.dst()), Scope::full());
    assert!(found.is_empty(), "{found:?}");
    mount.remount("rw");
    let _ = finish(Run::dsync(), &scratch, &["--delete"]).expect_quiet_success();
    assert_same(&scratch.src(), &scratch.dst(), Scope::full());
}

#[test]
fn disk_without_inodes_ends_with_11_and_harms_nothing() {
    needs_dsync!();
    let scratch = Scratch::new();
    fs::create_dir(scratch.dst()).unwrap();
    let Some(disk) = Mount::tmpfs(&scratch.dst(), "size=8m,nr_inodes=16") else { return };
    plant(&scratch, disk.path());
    Tree::of((0..30_u64).map(|index| Node::file(format!("many {index}"), index, 10))).plant(&scratch.src());
    let old = survey(disk.path());
    let outcome = finish(Run::dsync(), &scratch, &[]).expect_code(11);
    assert!(outcome.stderr_text().contains("the disk is full"), "{}", outcome.account());
    assert_whole(&scratch, &old, &outcome.account());
}

#[test]
fn a_disk_that_has_room_for_one_new_file_at_a_time_is_enough_for_all() {
    needs_dsync!();
    let scratch = Scratch::new();
    let files = |seed: u64, len: u64| {
        (0..60).map(move |number| Node::file(format!("f{number:02}"), seed + number, len))
    };
    Tree::of(files(1, 100_000)).plant(&scratch.src());
    for options in [&["-a"][..], &["-a", "--durability=none"], &["-a", "--no-whole-file"]] {
        every_way(&scratch, options, |copy, to| {
            fs::create_dir(to).unwrap();
            let Some(disk) = Mount::tmpfs(to, "size=8m") else { return };
            Tree::of(files(1000, 110_000)).plant(to);
            let _ = copy().run().expect_quiet_success();
            assert_same(&scratch.src(), to, Scope::CONTENT);
            drop(disk);
            fs::remove_dir(to).unwrap();
        });
    }
}

#[test]
fn what_was_finished_when_the_disk_became_full_is_there() {
    needs_dsync!();
    let scratch = Scratch::new();
    let small = (0..300).map(|number| Node::file(format!("a{number:03}"), number, 1000));
    Tree::of(small.chain([Node::file("m", 9, 12 << 20)])).plant(&scratch.src());
    every_way(&scratch, &["-a"], |copy, to| {
        fs::create_dir(to).unwrap();
        let Some(disk) = Mount::tmpfs(to, "size=8m") else { return };
        let outcome = copy().run().expect_code(11);
        let there = survey(to).into_iter().filter(|(path, _)| !path.is_empty());
        let source = survey(&scratch.src());
        let there: Vec<_> =
            there.inspect(|(path, facts)| assert_eq!(facts.content, source[path].content)).collect();
        assert!(!there.is_empty(), "{}", outcome.account());
        drop(disk);
        fs::remove_dir(to).unwrap();
    });
}

#[test]
fn few_descriptors_are_enough_or_named() {
    needs_dsync!();
    for limit in [64, 32, 16] {
        let scratch = Scratch::new();
        let tree = (0..12_u64).flat_map(|dir| {
            let files = (0..12_u64).map(move |file| Node::file(format!("{dir}/{file}"), dir * file, 70_000));
            [Node::dir(format!("{dir}"))].into_iter().chain(files)
        });
        Tree::of(tree).plant(&scratch.src());
        let run = Run::of("prlimit").arg(format!("--nofile={limit}:{limit}")).arg(program());
        let outcome = finish(run, &scratch, &[]);
        match outcome.code() {
            Some(0) => assert_same(&scratch.src(), &scratch.dst(), Scope::full()),
            Some(3 | 11 | 23) => {
                let text = outcome.stderr_text();
                assert!(text.contains("Too many open files"), "{}", outcome.account());
                assert!(limit < 64, "{}", outcome.account());
            }
            _ => panic!("{}", outcome.account()),
        }
        assert_eq!(compare::temporaries(&scratch.dst()), Vec::<String>::new(), "{}", outcome.account());
        let _ = finish(Run::dsync(), &scratch, &[]).expect_quiet_success();
        assert_same(&scratch.src(), &scratch.dst(), Scope::full());
    }
}

#[test]
fn disk_with_whole_seconds_is_up_to_date_after_one_run() {
    needs_dsync!();
    let scratch = Scratch::new();
    let Some(disk) = Disk::create(scratch.path(), Format::Ext4Seconds, 16) else { return };
    let to = disk.path().join("dst");
    plant(&scratch, &to);
    tree::set_mtime(&scratch.src().join("b"), (1_300_000_000, 123_456_789));
    let run = |options: &[&str]| Run::dsync().args(options).arg(slash(&scratch.src())).arg(&to).run();
    let _ = run(&["-a", "--delete"]).expect_quiet_success();
    assert_eq!(run(&["-ai", "--delete"]).expect_quiet_success().stdout_text(), "");
    // A different second is noticed, and a different size whatever the second is.
    tree::set_mtime(&scratch.src().join("b"), (1_300_000_007, 0));
    fs::write(scratch.src().join("dir/a"), "short").unwrap();
    let text = run(&["-ai"]).expect_quiet_success().stdout_text();
    assert!(text.contains(" b\n") && text.contains(" dir/a\n"), "{text}");
}

#[test]
fn file_whose_time_the_disk_cannot_hold_is_copied_again_with_a_hint() {
    needs_dsync!();
    let scratch = Scratch::new();
    let Some(disk) = Disk::create(scratch.path(), Format::Ext4Seconds, 16) else { return };
    let to = disk.path().join("dst");
    // Its seconds end in 2038.
    fs::write(scratch.src().join("late"), "from 2096").unwrap();
    tree::set_mtime(&scratch.src().join("late"), (4_000_000_000, 0));
    let run = |options: &[&str]| Run::dsync().args(options).arg(slash(&scratch.src())).arg(&to).run();
    let _ = run(&["-a"]).expect_quiet_success();
    for _ in 0..2 {
        let again = run(&["-ai"]).expect_code(0);
        assert!(again.stdout_text().ends_with(" late\n"), "{}", again.account());
        assert!(again.stderr_text().contains("1 file is copied again only because"), "{}", again.account());
        assert_eq!(again.stderr_text().lines().count(), 1);
    }
    assert_eq!(run(&["-ai", "--size-only", "--no-t"]).expect_quiet_success().stdout_text(), "");
    let _ = run(&["-aq"]).expect_quiet_success();
}

#[test]
fn times_in_steps_of_two_seconds_are_equal_within_a_window_of_one() {
    needs_dsync!();
    let scratch = Scratch::new();
    // As FAT keeps them: whole, even, rounded down.
    for index in 0..6_i64 {
        let (name, mtime) = (format!("f{index}"), 1_300_000_000 + index);
        for (dir, time) in [(scratch.src(), (mtime, 500)), (scratch.dst(), (mtime / 2 * 2, 0))] {
            fs::create_dir_all(&dir).unwrap();
            fs::write(dir.join(&name), "same").unwrap();
            tree::set_mtime(&dir.join(&name), time);
        }
    }
    [scratch.src(), scratch.dst()].iter().for_each(|dir| tree::set_mtime(dir, (1_100_000_000, 5)));
    let run = |options: &[&str]| {
        Run::dsync().args(options).arg(slash(&scratch.src())).arg(scratch.dst()).run().expect_code(0)
    };
    let exact = run(&["-ain"]);
    assert_eq!(exact.stdout_text().lines().count(), 3, "{}", exact.account());
    // This filesystem could hold the times, and its own change time shows that: no hint.
    assert_eq!(exact.stderr_text(), "", "{}", exact.account());
    let windowed = run(&["-ain", "--modify-window=1"]);
    assert_eq!((windowed.stdout_text(), windowed.stderr_text()), (String::new(), String::new()));
}

#[test]
fn depth_of_two_thousand_and_names_of_255_bytes_are_copied_and_deleted() {
    let scratch = Scratch::new();
    let (long, dir) = ("n".repeat(255), "m".repeat(255));
    let dig = "chdir $ARGV[0]; for (1..2000) { mkdir 'd' or die; chdir 'd' or die } \
               open F, '>', $ARGV[1] or die; print F 'deep'; mkdir $ARGV[2] or die";
    let _ = Run::of("perl").args(["-e", dig]).arg(scratch.src()).args([long, dir]).run().expect_code(0);
    let facts = |root: &Path| {
        let listing = "cd \"$1\" && find . -mindepth 1 -printf '%d %y %m %f %T@\\n' | sort";
        Run::of("bash").args(["-c", listing, "-"]).arg(root).run().expect_code(0).stdout_text()
    };
    let _ = finish(Run::dsync(), &scratch, &[]).expect_quiet_success();
    assert_eq!(facts(&scratch.dst()).lines().count(), 2002);
    assert!(facts(&scratch.src()) == facts(&scratch.dst()), "the deep trees differ");
    let _ = Run::of("rm").arg("-rf").arg(scratch.src().join("d")).run().expect_code(0);
    fs::write(scratch.src().join("left"), "").unwrap();
    let _ = finish(Run::dsync(), &scratch, &["--delete"]).expect_quiet_success();
    assert_same(&scratch.src(), &scratch.dst(), Scope::full());
}
