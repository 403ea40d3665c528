//! `--link-dest`, `--copy-dest` and `--compare-dest`: the use of alternate directories' files.

use std::{
    ffi::OsString,
    fs,
    os::unix::fs::{FileExt, MetadataExt, PermissionsExt},
    path::Path,
};

use dsync_tests::{
    Kind, Node, Run, Scope, Scratch, Sshd, Tree, Via, assert_same, compare::temporaries, differences,
    every_way, needs_dsync, needs_root, oracle, program::program, run::wait_for, scratch::slash, strace,
    survey, tree,
};

/// Copies the source with other permissions to `alternate`.
fn plant(scratch: &Scratch) {
    Tree::of([
        Node { mode: 0o644, ..Node::file("plain", 1, 100) },
        Node { mode: 0o6711, ..Node::file("special", 2, 300_000) },
        Node { mode: 0o750, ..Node::dir("dir") },
        Node { mode: 0o640, ..Node::file("dir/below", 3, 100) },
        Node { mode: 0o644, ..Node::new("fifo", Kind::Fifo) },
        Node { mode: 0o644, ..Node::file("changed", 4, 400_000) },
    ])
    .plant(&scratch.src());
    Tree::of([
        Node { mode: 0o4777, ..Node::file("plain", 1, 100) },
        Node { mode: 0o600, ..Node::file("special", 2, 300_000) },
        Node { mode: 0o1777, ..Node::dir("dir") },
        Node { mode: 0o6777, ..Node::file("dir/below", 3, 100) },
        Node { mode: 0o666, ..Node::new("fifo", Kind::Fifo) },
        Node { mode: 0o4777, ..Node::file("changed", 5, 400_000) },
    ])
    .plant(&scratch.at("alternate"));
}

#[test]
fn copies_of_an_alternate_get_no_permissions_of_it() {
    needs_root!();
    needs_dsync!();
    let scratch = Scratch::new();
    plant(&scratch);
    for options in [&["-rtD"][..], &["-rtDE"], &["-rtD", "--inplace"], &["-rtD", "--delay-updates"]] {
        let by_rsync = scratch.at("rsync");
        let rsync = [&["--copy-dest=../alternate"], options].concat();
        let rsync = rsync.iter().map(std::ffi::OsString::from);
        let _ = oracle::rsync(rsync.chain([slash(&scratch.src()), by_rsync.clone().into_os_string()]))
            .expect_code(0);
        let options = [options, &["--copy-dest=../alternate"]].concat();
        every_way(&scratch, &options, |copy, to| {
            let _ = copy().run().expect_quiet_success();
            let modes = |root: &std::path::Path| -> Vec<_> {
                survey(root).into_iter().skip(1).map(|(path, facts)| (path, facts.mode)).collect()
            };
            assert_eq!(modes(to), modes(&by_rsync), "{options:?}");
            assert_eq!(copy().arg("-i").run().expect_quiet_success().stdout_text(), "");
            fs::remove_dir_all(to).unwrap();
        });
        fs::remove_dir_all(by_rsync).unwrap();
    }
}

/// Plants a file that the alternate has, over a directory.
fn plant_over_directory(scratch: &Scratch, to: &std::path::Path, fill: bool) {
    let file = || Node::file("f", 1, 100);
    for root in [scratch.src(), scratch.at("alternate")] {
        let _ = fs::remove_dir_all(&root);
        fs::create_dir(&root).unwrap();
        Tree::of([file()]).plant(&root);
    }
    let _ = fs::remove_dir_all(to);
    fs::create_dir_all(to.join("f")).unwrap();
    if fill {
        Tree::of([Node::file("in it", 2, 5), Node::dir("dir")]).plant(&to.join("f"));
    }
}

#[test]
fn directory_in_the_way_of_what_is_compared_with_goes_at_once() {
    needs_dsync!();
    let scratch = Scratch::new();
    for more in
        [&["--delete"][..], &["--force"], &["--delete", "--backup-dir=../kept"], &["--delete-before"], &[]]
    {
        let options = [&["-a", "--compare-dest=../alternate"], more].concat();
        every_way(&scratch, &options, |copy, to| {
            for fill in [false, true] {
                if fill && more.is_empty() {
                    continue;
                }
                plant_over_directory(&scratch, to, fill);
                let told = copy().args(["-i", "-n"]).run().expect_quiet_success().stdout_text();
                assert_eq!(copy().arg("-i").run().expect_quiet_success().stdout_text(), told, "{options:?}");
                assert_eq!(fs::read_dir(to).unwrap().count(), 0, "{options:?}");
                assert_eq!(copy().arg("-i").run().expect_quiet_success().stdout_text(), "");
                let kept = to.parent().unwrap().join("kept");
                assert_eq!(kept.join("f/in it").exists(), fill && options.len() == 4, "{options:?}");
                let _ = fs::remove_dir_all(kept);
            }
        });
    }
}

#[test]
fn link_takes_the_name_of_a_directory_at_once() {
    needs_dsync!();
    let scratch = Scratch::new();
    for more in [
        &["--delete"][..],
        &["--force"],
        &["--delete", "--backup-dir=../kept"],
        &["--delete", "--delay-updates"],
    ] {
        let options = [&["-a", "--link-dest=../alternate"], more].concat();
        every_way(&scratch, &options, |copy, to| {
            plant_over_directory(&scratch, to, true);
            let _ = copy().run().expect_quiet_success();
            let inode = |path: &std::path::Path| fs::symlink_metadata(path).unwrap().ino();
            assert_eq!(inode(&to.join("f")), inode(&scratch.at("alternate/f")), "{options:?}");
            assert_same(&scratch.src(), to, Scope::full());
            assert_eq!(copy().arg("-i").run().expect_quiet_success().stdout_text(), "");
            let _ = fs::remove_dir_all(to.parent().unwrap().join("kept"));
        });
    }
}

#[test]
fn directory_gives_way_to_a_copy_where_there_can_be_no_link() {
    needs_root!();
    needs_dsync!();
    let scratch = Scratch::new();
    plant_over_directory(&scratch, &scratch.dst(), true);
    fs::remove_dir_all(scratch.at("alternate")).unwrap();
    fs::create_dir(scratch.at("alternate")).unwrap();
    let Some(other) = dsync_tests::mount::Mount::tmpfs(&scratch.at("alternate"), "size=1m") else { return };
    Tree::of([Node::file("f", 1, 100)]).plant(other.path());
    tree::set_mode(&scratch.src(), 0o755);
    let run = Run::dsync().args(["-a", "--delete", "--link-dest=../alternate"]).arg(slash(&scratch.src()));
    let _ = run.arg(scratch.dst()).run().expect_quiet_success();
    assert_same(&scratch.src(), &scratch.dst(), Scope::full());
    assert_eq!(fs::read_dir(scratch.dst()).unwrap().count(), 1, "no temporary");
}

#[test]
fn what_was_linked_keeps_its_attributes_in_the_alternate() {
    needs_root!();
    let scratch = Scratch::new();
    let nodes = || {
        [
            Node { mode: 0o644, ..Node::file("big", 1, 300_000) },
            Node { mode: 0o644, ..Node::file("d/small", 2, 100) },
            Node::symlink("d/link", "small"),
            Node { mode: 0o644, ..Node::new("fifo", Kind::Fifo) },
        ]
    };
    let changed = || nodes().map(|node| Node { mode: 0o600, owner: Some((5, 6)), ..node });
    let old = || Tree::of([Node::dir("d")].into_iter().chain(nodes()));
    let new = || Tree::of([Node::dir("d")].into_iter().chain(changed()));
    let others =
        || Tree::of([Node::dir("d")].into_iter().chain(nodes().map(|node| Node { mode: 0o666, ..node })));
    old().plant(&scratch.at("alternate"));
    others().plant(&scratch.at("other"));

    for more in [&[][..], &["-H"], &["-c"], &["-AX"], &["--delay-updates"], &["--link-dest=../other"]] {
        let _ = fs::remove_dir_all(scratch.src());
        old().plant(&scratch.src());
        every_way(&scratch, &[&["-a", "--link-dest=../alternate"], more].concat(), |copy, to| {
            let _ = fs::remove_dir_all(scratch.src());
            old().plant(&scratch.src());
            let _ = copy().run().expect_code(0);
            let inode = |root: &std::path::Path| fs::metadata(root.join("big")).unwrap().ino();
            assert_eq!(inode(to), inode(&scratch.at("alternate")));

            let alternate = || -> Vec<_> {
                let facts = survey(&scratch.at("alternate")).into_iter();
                facts
                    .map(|(path, facts)| (path, facts.mode, facts.owner, facts.mtime, facts.content))
                    .collect()
            };
            let before = alternate();
            fs::remove_dir_all(scratch.src()).unwrap();
            new().plant(&scratch.src());
            let foreseen = copy().args(["-i", "-n"]).run().expect_code(0).stdout_text();
            assert_eq!(copy().arg("-i").run().expect_code(0).stdout_text(), foreseen, "{more:?}");
            assert_same(&scratch.src(), to, Scope::full());
            assert_eq!(alternate(), before, "{more:?}");
            assert_eq!(copy().arg("-i").run().expect_code(0).stdout_text(), "", "{more:?}");
            fs::remove_dir_all(to).unwrap();
        });
    }
}

#[test]
fn a_destination_that_is_its_own_alternate_adds_nothing() {
    needs_root!();
    needs_dsync!();
    let scratch = Scratch::new();
    let nodes = |mode| {
        [
            Node { mode, ..Node::dir("sub") },
            Node { mode, ..Node::file("sub/a", 1, 50_000) },
            Node::hard_link("sub/b", "sub/a"),
            Node { mode, ..Node::new("fifo", Kind::Fifo) },
            Node::hard_link("pipe", "fifo"),
            Node::symlink("link", "sub"),
        ]
    };
    for way in ["--link-dest=.", "--copy-dest=.", "--compare-dest=.", "--link-dest=sub/.."] {
        for more in [&["-aH"][..], &["-a"], &["-a", "--delete", "--delay-updates"]] {
            let _ = fs::remove_dir_all(scratch.src());
            Tree::of(nodes(0o755)).plant(&scratch.src());
            every_way(&scratch, &[&[way], more].concat(), |copy, to| {
                Tree::of(nodes(0o700)).plant(to);
                let inodes =
                    || ["sub/a", "sub/b", "fifo"].map(|name| fs::metadata(to.join(name)).unwrap().ino());
                let before = inodes();
                let _ = copy().run().expect_quiet_success();
                assert_same(&scratch.src(), to, Scope::full());
                assert_eq!(inodes(), before, "{way} {more:?}");
                fs::remove_dir_all(to).unwrap();
            });
        }
    }
}

#[test]
fn a_second_run_with_an_alternate_on_another_filesystem_does_nothing() {
    needs_dsync!();
    let scratch = Scratch::new();
    let far = Scratch::under(std::path::Path::new("/dev/shm"));
    let nodes = || [Node::file("a", 1, 50_000), Node::hard_link("b", "a"), Node::file("c", 2, 10)];
    Tree::of(nodes()).plant(&scratch.src());
    Tree::of(nodes()).plant(&far.at("alternate"));
    let link_dest = format!("--link-dest={}", far.at("alternate").display());
    let run = || Run::dsync().args(["-iaH", &link_dest]).arg(slash(&scratch.src())).arg(scratch.dst()).run();
    let _ = run().expect_quiet_success();
    assert_same(&scratch.src(), &scratch.dst(), Scope { links: true, ..Scope::full() });
    assert_eq!(run().expect_quiet_success().stdout_text(), "");
}

#[test]
fn an_equal_file_of_another_user_is_replaced_where_it_cannot_be_linked() {
    needs_root!();
    needs_dsync!();
    let scratch = Scratch::new();
    for (root, mode, owner) in [("src", 0o644, NOBODY), ("alternate", 0o644, 0), ("dst", 0o600, 0)] {
        let node = Node { mode, owner: Some((owner, owner)), ..Node::file("f", 1, 100) };
        Tree::of([node]).plant(&scratch.at(root));
    }
    for path in [scratch.path().to_owned(), scratch.src(), scratch.dst()] {
        std::os::unix::fs::chown(&path, Some(NOBODY), Some(NOBODY)).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    let run = Run::dsync().as_user(NOBODY, NOBODY).args(["-rpt", "--link-dest=../alternate"]);
    let _ = run.arg(slash(&scratch.src())).arg(scratch.dst()).run().expect_quiet_success();
    let mode = fs::metadata(scratch.dst().join("f")).unwrap().mode();
    assert_eq!(mode & 0o777, 0o644);
}

/// A user other than root.
const NOBODY: u32 = 65534;

/// Plants, in directories that a user may not write to, his files: equal ones, and one that has other permissions
/// at the destination.
fn plant_in_closed_directories(scratch: &Scratch) {
    for root in ["src", "alternate", "dst"] {
        let _ = fs::remove_dir_all(scratch.at(root));
        let changed = if root == "dst" { 0o600 } else { 0o644 };
        let nodes = [
            Node::file("equal", 1, 50_000),
            Node { mode: changed, ..Node::file("changed", 2, 100) },
            Node::file("first", 3, 100),
            Node::hard_link("second", "first"),
        ];
        Tree::of(nodes.map(|node| Node { owner: Some((NOBODY, NOBODY)), ..node })).plant(&scratch.at(root));
        tree::set_mode(&scratch.at(root), 0o755);
    }
}

#[test]
fn an_equal_file_stays_where_that_of_an_alternate_cannot_take_its_place() {
    needs_root!();
    needs_dsync!();
    let scratch = Scratch::new();
    let shell = scratch.at("shell");
    fs::write(&shell, "#!/bin/sh\nshift\nexec sh -c \"$*\"\n").unwrap();
    for path in [scratch.path(), &shell] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let program = format!("--dsync-path={}", dsync_tests::program::program().display());
    let remote = |path: OsString| [OsString::from("host:"), path].join("".as_ref());

    for way in ["--link-dest=../alternate", "--compare-dest=../alternate"] {
        for more in [&[][..], &["-H"], &["-c"], &["--delete-before"], &["--delay-updates"]] {
            let options = [&["-rptOii", way], more].concat();
            plant_in_closed_directories(&scratch);
            let (from, to) = (slash(&scratch.src()), slash(&scratch.dst()));
            let rsync = Run::of("rsync").as_user(NOBODY, NOBODY).args(&options).arg(&from).arg(&to).run();
            let of_files = |outcome: &dsync_tests::Outcome| -> Vec<String> {
                let mut lines: Vec<_> = outcome.stdout_text().lines().map(String::from).collect();
                lines.retain(|line| !line.ends_with(" ./"));
                lines.sort();
                lines
            };

            for (from, to) in
                [(from.clone(), to.clone()), (from.clone(), remote(to.clone())), (remote(from), to)]
            {
                plant_in_closed_directories(&scratch);
                let inodes = || {
                    ["equal", "changed", "first"]
                        .map(|name| fs::metadata(scratch.dst().join(name)).unwrap().ino())
                };
                let before = inodes();
                let run = Run::dsync().as_user(NOBODY, NOBODY).arg("-e").arg(&shell).arg(&program);
                let outcome = run.args(&options).arg(from).arg(to).run().expect_quiet_success();
                assert_eq!(of_files(&outcome), of_files(&rsync), "{options:?} {}", rsync.account());
                assert_eq!(inodes(), before, "{options:?}");
                assert_same(&scratch.src(), &scratch.dst(), Scope { root: false, ..Scope::full() });
            }
        }
    }
}

/// Plants files of which an alternate directory has equal ones: many large ones, and small ones after them.
fn plant_queue(alternate: &Path, scratch: &Scratch) {
    let large = (0..24).map(|number| Node::file(format!("a{number:02}"), number, 300_000));
    let small = ["in another file", "in place", "of another length", "removed"];
    let small = (100..).zip(small).map(|(seed, name)| Node::file(format!("z {name}"), seed, 500));
    let tree = Tree::of(large.chain(small));
    ["src", "wanted"].iter().for_each(|root| tree.plant(&scratch.at(root)));
    tree.plant(alternate);
}

/// Changes each of the small files in its way, as another run that writes there does.
fn change_small_ones(alternate: &Path) {
    let at = |name: &str| alternate.join(format!("z {name}"));
    let new = tree::noise(7, 500);
    fs::write(at("new"), &new).unwrap();
    tree::set_mtime(&at("new"), (1_600_000_000, 0));
    fs::rename(at("new"), at("in another file")).unwrap();
    fs::File::options().write(true).open(at("in place")).unwrap().write_all_at(&new, 0).unwrap();
    fs::write(at("of another length"), &new[..400]).unwrap();
    fs::remove_file(at("removed")).unwrap();
}

#[test]
fn a_file_of_an_alternate_that_changes_after_the_comparison_comes_from_the_source() {
    needs_dsync!();
    let far = Scratch::under(Path::new("/dev/shm"));
    let there = format!("--link-dest={}", far.at("alternate").display());
    let mut faults = Vec::new();
    for options in [
        &["--copy-dest=../alternate"][..],
        &["--copy-dest=../alternate", "--remove-source-files"],
        &["--copy-dest=../alternate", "--inplace"],
        &["--copy-dest=../alternate", "--delay-updates"],
        // On another filesystem there is no link.
        &[&there],
    ] {
        let scratch = Scratch::new();
        let alternate = if options[0] == there { far.at("alternate") } else { scratch.at("alternate") };
        plant_queue(&alternate, &scratch);
        // Each copy of a large file takes some time, so that the small ones wait for theirs.
        let run = strace::inject("copy_file_range", "delay_enter=150000").arg("-a").args(options);
        let running = run.args(["src/", "dst/"]).cwd(scratch.path()).start();
        let has_content = |entry: fs::DirEntry| entry.metadata().is_ok_and(|now| now.blocks() > 0);
        wait_for(|| fs::read_dir(scratch.dst()).is_ok_and(|dir| dir.flatten().any(has_content)));
        change_small_ones(&alternate);

        let outcome = running.wait().expect_code(0);
        let scope = Scope { root: false, ..Scope::full() };
        let found = differences(&scratch.at("wanted"), &scratch.dst(), scope);
        faults.extend((!found.is_empty()).then(|| format!("{found:?}\n{}", outcome.account())));
        let _ = fs::remove_dir_all(far.at("alternate"));
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn a_file_of_an_alternate_that_cannot_be_read_comes_from_the_source() {
    needs_dsync!();
    let far = Scratch::under(Path::new("/dev/shm"));
    let there = far.at("alternate").display().to_string();
    let linked = format!("--link-dest={there}");
    let reads = "read,pread64,readv,preadv,copy_file_range";
    for options in [
        &["--copy-dest=../alternate"][..],
        &["--copy-dest=../alternate", "-c"],
        &["--copy-dest=../alternate", "--inplace"],
        &["--copy-dest=../alternate", "--sparse"],
        &[&linked],
    ] {
        // From the start, from the middle, and as a file that is shorter than its length says.
        for what in ["error=EIO", "error=EIO:when=2+", "retval=0"] {
            for &pulls in if options.len() == 1 { &[false, true][..] } else { &[false] } {
                let scratch = Scratch::new();
                let nodes = [("a", 9 << 20), ("b", 300), ("c", 300_000), ("d", 4000)];
                let alternate =
                    if options[0] == linked { far.at("alternate") } else { scratch.at("alternate") };
                for root in [scratch.src(), alternate.clone()] {
                    Tree::of(nodes.map(|(name, len)| Node::file(name, len, len))).plant(&root);
                }
                let inject = format!("inject={reads}:{what}");
                let trace = ["strace", "-f", "-qq", "-o", "/dev/null", "-e", &inject].map(OsString::from);
                let watched = ["a", "c"].map(|name| ["-P".into(), alternate.join(name).into_os_string()]);
                let (run, from) = if pulls {
                    (Sshd::shared().run(Via::Ssh), Sshd::shared().operand(slash(&scratch.src())))
                } else {
                    (Run::of(program()), slash(&scratch.src()))
                };
                let run = run.behind(trace.into_iter().chain(watched.into_iter().flatten()));
                let outcome = run.arg("-a").args(options).arg(from).arg(scratch.dst()).run();

                let account = format!("{what} pulls={pulls}\n{}", outcome.account());
                assert_eq!(outcome.code(), Some(0), "{account}");
                let found = differences(&scratch.src(), &scratch.dst(), Scope::full());
                assert!(found.is_empty(), "{found:?} {account}");
                assert_eq!(temporaries(&scratch.dst()), [""; 0], "{account}");
                let _ = fs::remove_dir_all(&alternate);
            }
        }
    }
}

#[test]
fn names_of_one_file_that_an_alternate_links_just_so_are_no_changes() {
    needs_dsync!();
    let scratch = Scratch::new();
    Tree::of([Node::file("a", 1, 10), Node::dir("d"), Node::file("d/g", 2, 10)]).plant(&scratch.src());
    std::os::unix::fs::symlink("nowhere", scratch.src().join("l")).unwrap();
    for (old, new) in [("a", "b"), ("a", "d/c"), ("l", "m")] {
        fs::hard_link(scratch.src().join(old), scratch.src().join(new)).unwrap();
    }
    let _ =
        Run::dsync().arg("-aH").arg(slash(&scratch.src())).arg(scratch.at("alternate")).run().expect_code(0);

    every_way(&scratch, &["-aHi", "--link-dest=../alternate"], |copy, to| {
        fs::create_dir(to).unwrap();
        for run in [copy().arg("-n"), copy()] {
            let outcome = run.run().expect_code(0);
            let lines: Vec<_> = outcome.stdout_text().lines().map(str::to_owned).collect();
            // The destination itself, and the directory that no link can be made to.
            let others = lines.iter().filter(|line| !line.ends_with(" ./") && !line.ends_with(" d/"));
            assert_eq!(others.count(), 0, "{}", outcome.account());
        }
        assert_same(&scratch.src(), to, Scope::full());
    });

    // From another filesystem no name can be linked, and a dry run knows that.
    let other = Scratch::under(Path::new("/dev/shm"));
    let _ =
        Run::dsync().arg("-aH").arg(slash(&scratch.src())).arg(other.at("alternate")).run().expect_code(0);
    let option = format!("--link-dest={}", other.at("alternate").display());
    for to in [scratch.at("missing"), scratch.at("empty")] {
        if to.ends_with("empty") {
            fs::create_dir(&to).unwrap();
        }
        let list = |dry: &str| {
            let run = Run::dsync().args(["-aHi", dry, &option]).arg(slash(&scratch.src())).arg(&to);
            let text = run.run().stdout_text();
            let mut lines: Vec<_> = text.lines().map(str::to_owned).collect();
            lines.sort();
            lines
        };
        let foreseen = list("-n");
        assert_eq!(foreseen, list("-t"));
        assert!(foreseen.iter().any(|line| line.ends_with(" b => a")), "{foreseen:?}");
    }
}
