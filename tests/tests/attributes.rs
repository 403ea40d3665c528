//! Access control lists and extended attributes: kept, compared, and reported if they cannot be
//! held.

use std::{ffi::OsStr, fs, os::unix::fs::MetadataExt, path::Path, process::Command};

use dsync_tests::{
    Node, Run, Scope, Scratch, Tree, assert_same, every_way, every_way_of, mount::Mount, needs_dsync,
    needs_root, oracle, scratch::slash, survey, tree,
};
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestRng, TestRunner};

/// Makes a tree with one of everything that `-AX` copies.
fn dressed() -> Tree {
    let list = tree::acl(5, &[(0, 7), (71_234, 4)], &[(71_235, 6)]);
    let owned = |node: Node| Node { owner: Some((1, 2)), ..node };
    Tree::of([
        owned(Node { mode: 0o4755, ..Node::file("capable", 1, 5000) })
            .with("security.capability", tree::CAPABILITY)
            .with("user.empty", b""),
        Node { mode: 0o444, ..Node::file("read only", 2, 10) }
            .with("user.a", b"1")
            .with("user.b", [0xff; 2000]),
        Node { mode: 0o670, ..Node::file("listed", 3, 10) }.with("system.posix_acl_access", &list),
        Node::file("plain", 4, 10),
        Node { mode: 0o2750, ..Node::dir("dir") }
            .with("system.posix_acl_access", tree::acl(0, &[], &[(3, 5)]))
            .with("system.posix_acl_default", &list)
            .with("trusted.secret", b"x"),
        // Entries made in there start with a list, and have none at the source.
        Node::file("dir/unlisted", 5, 3),
        Node::dir("dir/below"),
        Node::symlink("link", "plain").with("trusted.of.a.link", b"y"),
        Node::new("fifo", tree::Kind::Fifo).with("system.posix_acl_access", tree::acl(4, &[(5, 4)], &[])),
    ])
}

fn set(path: &Path, name: &str, value: &[u8]) {
    rustix::fs::lsetxattr(path, name, value, rustix::fs::XattrFlags::empty()).expect("an attribute");
}

#[test]
fn backups_are_kept_from_whom_their_directory_is() {
    needs_root!();
    let scratch = Scratch::new();
    let list = tree::acl(0, &[(0, 7)], &[(71_235, 4)]);
    let tree = |seed| {
        let dir = Node { mode: 0o770, ..Node::dir("private") }.with("system.posix_acl_access", &list);
        Tree::of([dir, Node::file("private/file", seed, 100 + seed)])
    };
    tree(1).plant(&scratch.dst());
    tree(2).plant(&scratch.src());
    let run = Run::dsync().args(["-a", "--backup-dir=../kept"]).arg(slash(&scratch.src()));
    let _ = run.arg(scratch.dst()).run().expect_quiet_success();
    let [original, backup] = ["dst", "kept"].map(|root| survey(&scratch.at(root)));
    let (original, backup) = (&original[&b"private"[..]], &backup[&b"private"[..]]);
    assert!(original.xattrs.contains_key("system.posix_acl_access"));
    assert_eq!((backup.mode, &backup.xattrs), (original.mode, &original.xattrs));
}

#[test]
fn lists_and_attributes_are_kept_in_every_direction() {
    needs_root!();
    let scratch = Scratch::new();
    dressed().plant(&scratch.src());
    set(&scratch.src(), "user.of the root", b"r");
    every_way(&scratch, &["-aAX"], |copy, to| {
        let _ = copy().run().expect_quiet_success();
        assert_same(&scratch.src(), to, Scope::EVERYTHING);
        let again = copy().arg("-i").run().expect_quiet_success();
        assert_eq!(again.stdout_text(), "", "nothing is left to do");
        oracle::assert_rsync_agrees(&scratch.src(), to);
    });
}

#[test]
fn directory_given_by_name_keeps_its_own_lists_and_attributes_in_every_direction() {
    needs_root!();
    let scratch = Scratch::new();
    dressed().plant(&scratch.src());
    set(&scratch.src(), "user.of the top", b"t");
    set(&scratch.src(), "system.posix_acl_default", &tree::acl(5, &[(0, 7)], &[]));
    every_way_of(&scratch, &[scratch.src().into()], &["-aAX"], |copy, to| {
        let _ = copy().run().expect_quiet_success();
        assert_same(&scratch.src(), &to.join("src"), Scope::EVERYTHING);
        let again = copy().arg("-i").run().expect_quiet_success();
        assert_eq!(again.stdout_text(), "", "nothing is left to do");
    });
}

#[test]
fn directory_given_by_name_and_within_another_operand_has_the_first_ones_attributes() {
    needs_root!();
    let (here, rsync) = (Scratch::new(), Scratch::new());
    let plant = |scratch: &Scratch| {
        for (path, value) in [("one", "by name"), ("two/one", "within")] {
            fs::create_dir_all(scratch.at(path)).expect("a directory");
            fs::write(scratch.at(path).join(value.replace(' ', "-")), value).expect("a file");
            set(&scratch.at(path), "user.who", value.as_bytes());
        }
    };
    plant(&here);
    plant(&rsync);
    for operands in [["one", "two/"], ["two/", "one"]] {
        let expected = rsync.at("expected");
        let within = |scratch: &Scratch| operands.map(|operand| scratch.at(operand).into_os_string());
        let run = Run::of("rsync").arg("-aX").args(within(&rsync)).arg(&expected);
        let _ = run.run().expect_code(0);
        every_way_of(&here, &within(&here), &["-aX"], |copy, to| {
            let _ = copy().run().expect_quiet_success();
            assert_same(&expected, to, Scope { dir_times: false, times: false, ..Scope::EVERYTHING });
            fs::remove_dir_all(to).expect("a destination");
        });
        fs::remove_dir_all(expected).expect("a destination");
    }
}

#[test]
fn changed_lists_and_attributes_alone_are_itemized_as_rsync_does_and_move_no_content() {
    needs_root!();
    let scratch = Scratch::new();
    dressed().plant(&scratch.src());
    let edit = || {
        set(&scratch.src().join("read only"), "user.a", b"2");
        set(&scratch.src().join("listed"), "system.posix_acl_access", &tree::acl(5, &[(0, 6)], &[]));
        rustix::fs::lremovexattr(scratch.src().join("capable"), "security.capability").expect("removed");
        rustix::fs::lremovexattr(scratch.src().join("dir"), "system.posix_acl_default").expect("removed");
        set(&scratch.src().join("link"), "trusted.more", b"");
    };
    every_way(&scratch, &["-aAX"], |copy, to| {
        dressed_again(&scratch);
        let _ = copy().run().expect_quiet_success();
        edit();
        let sorted = |text: String| {
            let mut lines: Vec<_> = text.lines().map(str::to_owned).collect();
            lines.sort_unstable();
            lines
        };
        let rsync =
            oracle::rsync(["-aAXni".as_ref(), slash(&scratch.src()).as_os_str(), slash(to).as_os_str()]);
        let outcome = copy().args(["-i", "--stats"]).run().expect_quiet_success();
        assert_eq!(outcome.stat("Number of regular files transferred"), 0);
        let listed: Vec<_> = sorted(outcome.stdout_text());
        let wanted = sorted(rsync.stdout_text());
        assert_eq!(wanted.len(), 5, "{wanted:?}");
        for line in wanted {
            assert!(listed.contains(&line), "{line} is missing in {listed:?}");
        }
        assert_same(&scratch.src(), to, Scope::EVERYTHING);
    });
}

/// Plants the source anew.
fn dressed_again(scratch: &Scratch) {
    fs::remove_dir_all(scratch.src()).expect("a source to remove");
    dressed().plant(&scratch.src());
}

#[test]
fn what_rsync_copied_needs_nothing() {
    needs_root!();
    let scratch = Scratch::new();
    dressed().plant(&scratch.src());
    let copied =
        oracle::rsync(["-aAX".as_ref(), slash(&scratch.src()).as_os_str(), scratch.dst().as_os_str()]);
    let _ = copied.expect_code(0);
    let again = Run::dsync().args(["-aAX", "-i"]).arg(slash(&scratch.src())).arg(scratch.dst()).run();
    assert_eq!(again.expect_quiet_success().stdout_text(), "");
}

#[test]
fn lists_alone_and_attributes_alone_leave_the_others_as_they_are() {
    needs_root!();
    let scratch = Scratch::new();
    Tree::of([Node::file("f", 1, 5).with("user.a", b"new")]).plant(&scratch.src());
    Tree::of([Node::file("f", 1, 5)
        .with("user.a", b"old")
        .with("user.b", b"old")
        .with("system.posix_acl_access", tree::acl(4, &[(5, 4)], &[]))])
    .plant(&scratch.dst());
    let run = |options: &str| {
        let run = Run::dsync().args([options, "-i"]).arg(slash(&scratch.src())).arg(scratch.dst());
        run.run().expect_quiet_success().stdout_text()
    };
    assert_eq!(run("-rt"), "");
    assert_eq!(run("-rtX"), ".f........x f\n");
    assert_eq!(run("-rtX"), "");
    assert_eq!(run("-rtA"), ".f.......a. f\n");
    assert_eq!(run("-rtAX"), "");
    assert_same(&scratch.src(), &scratch.dst(), Scope::EVERYTHING);
}

#[test]
fn target_that_holds_no_attributes_is_named_and_23_and_has_the_data() {
    needs_root!();
    let scratch = Scratch::new();
    dressed().plant(&scratch.src());
    fs::create_dir(scratch.dst()).expect("a mount point");
    let mounted = Command::new("mount").args(["-t", "ramfs", "ramfs"]).arg(scratch.dst()).status();
    assert!(mounted.expect("mount").success());
    let outcome =
        Run::dsync().args(["-aAX", "-i"]).arg(slash(&scratch.src())).arg(scratch.dst().join("d")).run();
    let found = dsync_tests::differences(&scratch.src(), &scratch.dst().join("d"), Scope::ALL);
    let unmounted = Command::new("umount").arg(scratch.dst()).status();
    assert!(unmounted.expect("umount").success());
    let outcome = outcome.expect_code(23);
    assert!(
        outcome.stderr_text().contains("6 entries copied without some owners, ACLs or extended attributes"),
        "{}",
        outcome.account()
    );
    let lines = |words: &str| outcome.stderr_text().lines().filter(|line| line.contains(words)).count();
    assert_eq!((lines("without some"), lines("cannot set some ACLs or extended attributes of")), (1, 6));
    assert_eq!(found, Vec::<String>::new());
}

#[test]
fn user_without_privileges_copies_what_he_may_set() {
    needs_root!();
    let scratch = Scratch::new();
    Tree::of([
        Node { mode: 0o444, ..Node::file("f", 1, 5) }.with("user.a", b"1").with("trusted.t", b"2"),
        Node { mode: 0o555, ..Node::dir("d") }.with("user.a", b"1"),
    ])
    .plant(&scratch.src());
    let home = scratch.at("home");
    fs::create_dir(&home).expect("a directory");
    std::os::unix::fs::chown(&home, Some(65_534), Some(65_534)).expect("an owner");
    tree::set_mode(scratch.path(), 0o755);
    let copy = || {
        let run = Run::dsync().args(["-rptX", "-i"]).arg(slash(&scratch.src())).arg(home.join("d"));
        run.as_user(65_534, 65_534).run().expect_quiet_success().stdout_text()
    };
    let _ = copy();
    assert_eq!(copy(), "", "what may not be set is not missed");
    let facts = dsync_tests::survey(&home.join("d"));
    for name in [&b"f"[..], b"d"] {
        assert_eq!(facts[name].xattrs.keys().collect::<Vec<_>>(), ["user.a"]);
    }
    // Also on an existing file that is read-only.
    set(&scratch.src().join("f"), "user.a", b"3");
    assert_eq!(copy(), ".f........x f\n");
    assert_eq!(fs::metadata(home.join("d/f")).expect("the file").mode() & 0o7777, 0o444);
    // And on one whose mode keeps its owner out.
    for (mode, value) in [(0o052, b"4"), (0o252, b"5"), (0o452, b"6")] {
        set(&scratch.src().join("f"), "user.a", value);
        tree::set_mode(&home.join("d/f"), mode);
        let _ = copy();
        let facts = &dsync_tests::survey(&home.join("d"))[&b"f"[..]];
        assert_eq!(facts.xattrs.get("user.a").map(Vec::as_slice), Some(&value[..]), "{mode:o}");
        assert_eq!(fs::metadata(home.join("d/f")).expect("the file").mode() & 0o7777, 0o444);
    }
}

#[test]
fn permissions_are_changed_on_the_way_as_rsync_changes_them() {
    let scratch = Scratch::new();
    Tree::sample().plant(&scratch.src());
    let changes = ["--chmod=Dg+s,ug+w,Fo-rwx", "--chmod=F-X,+X"];
    let copied = Run::of("rsync").arg("-a").args(changes).arg(slash(&scratch.src())).arg(scratch.at("r"));
    let _ = copied.run().expect_code(0);
    every_way(&scratch, &["-a", changes[0], changes[1]], |copy, to| {
        let _ = copy().run().expect_quiet_success();
        assert_same(&scratch.at("r"), to, Scope::full());
        assert_eq!(copy().arg("-i").run().expect_quiet_success().stdout_text(), "", "nothing is left to do");
    });
    let refused =
        Run::dsync().args(["-a", "--chmod=u~x"]).arg(slash(&scratch.src())).arg(scratch.dst()).run();
    let refused = refused.expect_code(1);
    assert!(refused.stderr_text().contains("--chmod: 'u~x' is no change"), "{}", refused.account());
}

/// Checks the kernel's rule, which a mask would only tighten: `acl(5)`, "object creation and
/// default ACLs".
#[test]
fn without_perms_a_default_list_takes_the_place_of_the_mask_as_with_rsync() {
    let scratch = Scratch::new();
    let made = [
        Node { mode: 0o666, ..Node::file("old/file", 1, 10) },
        Node { mode: 0o777, ..Node::dir("old/dir") },
        Node { mode: 0o773, ..Node::file("old/dir/below", 2, 10) },
    ];
    let old = || Node::dir("old");
    Tree::of([old()].into_iter().chain(made)).plant(&scratch.src());
    let begin = |root: &Path| {
        Tree::of([old().with("system.posix_acl_default", tree::acl(7, &[(71_234, 7)], &[]))]).plant(root);
    };
    begin(&scratch.at("r"));
    let copied = Run::of("rsync").arg("-rt").arg(slash(&scratch.src())).arg(scratch.at("r"));
    let _ = copied.run().expect_code(0);
    every_way(&scratch, &["-rt"], |copy, to| {
        begin(to);
        let _ = copy().run().expect_quiet_success();
        assert_same(&scratch.at("r"), to, Scope::full());
        let below = fs::metadata(to.join("old/dir/below")).expect("the file").mode();
        assert_eq!(below & 0o022, 0o020, "the list allows more than the mask");
    });
}

#[test]
fn a_default_list_that_the_run_gives_or_takes_away_counts_for_what_is_new() {
    let scratch = Scratch::new();
    let list = tree::acl(7, &[(71_234, 7)], &[]);
    let file = |path| Node { mode: 0o777, ..Node::file(path, 3, 10) };
    let given = Node::dir("given").with("system.posix_acl_default", list.clone());
    Tree::of([given, file("given/file"), Node::dir("taken"), file("taken/file")]).plant(&scratch.src());
    let begin = |to: &Path| {
        Tree::of([Node::dir("taken").with("system.posix_acl_default", list.clone())]).plant(to);
    };
    let options = ["-rtA", "--no-p"];
    begin(&scratch.at("r"));
    let copied = Run::of("rsync").args(options).arg(slash(&scratch.src())).arg(scratch.at("r"));
    let _ = copied.run().expect_code(0);
    every_way(&scratch, &options, |copy, to| {
        begin(to);
        let _ = copy().run().expect_quiet_success();
        assert_same(&scratch.at("r"), to, Scope::full());
    });
}

#[test]
fn owners_are_mapped_as_rsync_maps_them() {
    needs_root!();
    let scratch = Scratch::new();
    let owned = |path: &str, owner| Node { owner: Some((owner, owner)), ..Node::file(path, 1, 1) };
    Tree::of([0, 1, 2, 5, 7_001, 7_002].map(|id: u32| owned(&format!("f{id}"), id))).plant(&scratch.src());
    let listed = tree::acl(5, &[(7_001, 4)], &[(1, 6)]);
    set(&scratch.src().join("f0"), "system.posix_acl_access", &listed);
    let rules: &[&[&str]] = &[
        &["-r", "--chown=bin:games"],
        &["-r", "--chown=5"],
        &["-aA", "--chown=:7001"],
        &["-aA", "--usermap=root:5,bin:7,7001-7002:9,:11"],
        &["-a", "--usermap=:11,daemon:bin,2:3"],
        &["-aA", "--usermap=*:3", "--groupmap=b*:60,[dp]*:61,0-5:4000"],
        &["-a", "--numeric-ids", "--usermap=bin:7,*:9", "--groupmap=2:7,:9"],
        &["-a", "--usermap=0:77", "--no-o", "--chown=:8"],
        &["-a", "--usermap=root:7", "--chown=:6"],
    ];
    for (index, rules) in rules.iter().enumerate() {
        let (rsync, dsync) = (scratch.at(&format!("rsync{index}")), scratch.at(&format!("dsync{index}")));
        let source = slash(&scratch.src());
        let _ = Run::of("rsync").args(*rules).arg(&source).arg(&rsync).run().expect_code(0);
        let copy = || Run::dsync().args(*rules).arg(&source).arg(&dsync).arg("-i");
        let _ = copy().run().expect_quiet_success();
        assert_same(&rsync, &dsync, Scope { times: false, dir_times: false, ..Scope::EVERYTHING });
        let again = copy().arg("--size-only").run().expect_quiet_success();
        assert_eq!(again.stdout_text(), "", "{rules:?}: nothing is left to do");
    }
    every_way(&scratch, &["-aA", "--usermap=root:5,bin:7,7001-7002:9,:11"], |copy, to| {
        let _ = copy().run().expect_quiet_success();
        assert_same(&scratch.at("rsync3"), to, Scope::EVERYTHING);
    });
}

#[test]
fn owner_that_the_destination_does_not_know_changes_nothing() {
    let scratch = Scratch::new();
    Tree::sample().plant(&scratch.src());
    every_way(&scratch, &["-a", "--groupmap=*:no such group"], |copy, to| {
        let refused = copy().run().expect_code(1);
        assert!(
            refused.stderr_text().contains("knows no group named 'no such group'"),
            "{}",
            refused.account()
        );
        assert!(!to.exists());
    });
}

#[test]
fn executability_alone_and_times_of_links_are_as_rsync_has_them() {
    let scratch = Scratch::new();
    let file = |path: &str, mode| Node { mode, ..Node::file(path, 1, 1) };
    Tree::of([
        file("gains", 0o755),
        file("loses", 0o640),
        file("keeps", 0o755),
        file("new", 0o750),
        Node::symlink("link", "gains"),
    ])
    .plant(&scratch.src());
    let old = Tree::of([file("gains", 0o640), file("loses", 0o755), file("keeps", 0o710)]);
    let (rsync, source) = (scratch.at("rsync"), slash(&scratch.src()));
    old.plant(&rsync);
    let options = ["-rltE", "-J", "-i"];
    let theirs = Run::of("rsync").args(options).arg(&source).arg(&rsync).run().expect_code(0);
    every_way(&scratch, &options, |copy, to| {
        old.plant(to);
        let ours = copy().run().expect_quiet_success();
        let sorted = |text: String| {
            let mut lines: Vec<_> = text.lines().map(str::to_owned).collect();
            lines.retain(|line| !line.contains("./"));
            lines.sort_unstable();
            // A sent file is '>' in a copy and a pull, '<' in a push.
            lines.iter().map(|line| line.replace('<', ">")).collect::<Vec<_>>()
        };
        assert_eq!(sorted(ours.stdout_text()), sorted(theirs.stdout_text()));
        for name in ["gains", "loses", "keeps", "new"] {
            let mode = |dir: &Path| fs::metadata(dir.join(name)).expect("a file").mode();
            assert_eq!(mode(to), mode(&rsync), "{name}");
        }
        let modified = |dir: &Path| fs::symlink_metadata(dir.join("link")).expect("a link").mtime();
        assert_ne!(modified(to), modified(&scratch.src()), "the link's time is left alone");
        assert_eq!(copy().run().expect_quiet_success().stdout_text(), "", "nothing is left to do");
    });
}

#[test]
fn files_are_read_without_a_trace_when_that_is_asked_for() {
    let scratch = Scratch::new();
    Tree::of([Node::file("small", 1, 100), Node::file("large", 2, 3_000_000)]).plant(&scratch.src());
    let old = |name: &str| {
        let file = fs::File::open(scratch.src().join(name)).expect("a file");
        let times = fs::FileTimes::new().set_accessed(std::time::UNIX_EPOCH);
        file.set_times(times).expect("an access time");
    };
    let accessed = |name: &str| fs::metadata(scratch.src().join(name)).expect("a file").atime();
    for option in ["--open-noatime", "--no-open-noatime"] {
        every_way(&scratch, &["-rc", option], |copy, to| {
            let _ = ["small", "large"].map(old);
            let _ = copy().run().expect_quiet_success();
            let untouched = ["small", "large"].map(accessed) == [0, 0];
            assert_eq!(untouched, option == "--open-noatime", "{option}");
            fs::remove_dir_all(to).expect("a copy to remove");
        });
    }
}

#[test]
fn dry_run_changes_no_directory() {
    let scratch = Scratch::new();
    Tree::of([Node::dir("d")]).plant(&scratch.src());
    Tree::of([Node { mode: 0o700, ..Node::dir("d") }]).plant(&scratch.dst());
    let before = dsync_tests::survey(&scratch.dst());
    let run = Run::dsync().args(["-a", "-n", "-i"]).arg(slash(&scratch.src())).arg(scratch.dst()).run();
    assert_eq!(run.expect_quiet_success().stdout_text(), ".d...p..... d/\n");
    dsync_tests::assert_unchanged(&before, &scratch.dst());
}

#[test]
fn any_tree_with_lists_and_attributes_is_identical_and_rsync_agrees() {
    needs_root!();
    let config = Config { cases: 24, max_shrink_iters: 40, failure_persistence: None, ..Config::default() };
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &[9; 32]);
    let strategy = (tree::rich_trees(40, 200_000), tree::rich_trees(40, 200_000));
    TestRunner::new_with_rng(config, rng)
        .run(&strategy, |(tree, old)| {
            let scratch = Scratch::new();
            tree.plant(&scratch.src());
            old.plant(&scratch.dst());
            let copy = || {
                Run::dsync().args(["-aAX", "--delete", "-i"]).arg(slash(&scratch.src())).arg(scratch.dst())
            };
            let outcome = copy().run();
            if outcome.code() != Some(0) || !outcome.stderr.is_empty() {
                return Err(TestCaseError::fail(outcome.account()));
            }
            let scope = Scope { links: false, ..Scope::EVERYTHING };
            let found = dsync_tests::differences(&scratch.src(), &scratch.dst(), scope);
            if !found.is_empty() {
                return Err(TestCaseError::fail(found.join("\n")));
            }
            let again = copy().run().expect_quiet_success();
            oracle::assert_rsync_agrees_with(&["-aAX", "--delete"], &scratch.src(), &scratch.dst());
            if again.stdout.is_empty() { Ok(()) } else { Err(TestCaseError::fail(again.account())) }
        })
        .unwrap_or_else(|error| panic!("{error}"));
}

/// Mounts a filesystem in memory, which takes any attributes and times, for one test.
fn memory(scratch: &Scratch) -> (Mount, Scratch) {
    fs::create_dir(scratch.at("memory")).unwrap();
    let mount = Mount::with(&["-t", "tmpfs", "-o", "noatime", "none"].map(OsStr::new), &scratch.at("memory"));
    let mount = mount.expect("a filesystem in memory");
    let inside = Scratch::under(mount.path());
    (mount, inside)
}

#[test]
fn a_source_file_whose_attributes_are_too_many_to_send_is_told_and_stays() {
    needs_root!();
    needs_dsync!();
    let outer = Scratch::new();
    let (_mount, scratch) = memory(&outer);
    let many = |name: &str| {
        (0..9).fold(Node::file(name, 1, 10), |node, at| node.with(&format!("trusted.{at}"), [at; 65_536]))
    };
    every_way(&scratch, &["-aX", "--remove-source-files"], |run, to| {
        let few = Node::file("few", 2, 10).with("user.a", b"b");
        Tree::of([many("many"), many("other"), few, Node::file("none", 3, 10)]).plant(&scratch.src());
        let before = survey(&scratch.src());

        let outcome = run().run().expect_code(23);
        let left = survey(&scratch.src());
        assert_eq!(left.keys().collect::<Vec<_>>(), [&b""[..], b"many", b"other"], "{to:?}");
        for name in [&b"many"[..], b"other"] {
            assert_eq!(left[name].xattrs, before[name].xattrs);
            let told =
                format!("of '{}': together they have more than 512 KiB", String::from_utf8_lossy(name));
            assert!(outcome.stderr_text().contains(&told), "{}", outcome.account());
        }
        let copies = survey(to);
        assert!(["few", "many", "none", "other"].iter().all(|name| copies.contains_key(name.as_bytes())));
    });
}

#[test]
fn any_time_that_a_filesystem_keeps_is_copied() {
    needs_root!();
    needs_dsync!();
    let outer = Scratch::new();
    let (_mount, scratch) = memory(&outer);
    let far = [i64::MAX, 1 << 45, (1 << 45) + 1, -(1 << 45) - 1, i64::MIN, 0, i64::MAX - 1];
    Tree::of((0..far.len()).flat_map(|number| {
        [Node::dir(format!("d{number}")), Node::file(format!("d{number}/f"), number as u64, 10)]
    }))
    .plant(&scratch.src());
    let set = |path: &Path, tv_sec: i64| {
        let time = rustix::fs::Timespec { tv_sec, tv_nsec: 5 };
        let times = rustix::fs::Timestamps { last_access: time, last_modification: time };
        rustix::fs::utimensat(rustix::fs::CWD, path, &times, rustix::fs::AtFlags::empty()).unwrap();
    };
    for (number, &time) in far.iter().enumerate() {
        set(&scratch.src().join(format!("d{number}/f")), time);
        set(&scratch.src().join(format!("d{number}")), time);
    }
    set(&scratch.src(), i64::MAX);

    every_way(&scratch, &["-aU"], |run, to| {
        let _ = run().run().expect_quiet_success();
        let [source, copy] = [&scratch.src(), to].map(|root| {
            let times = |name: &str| fs::metadata(root.join(name)).map(|now| (now.mtime(), now.mtime_nsec()));
            let names = (0..far.len()).flat_map(|number| [format!("d{number}"), format!("d{number}/f")]);
            names.chain([String::new()]).map(|name| times(&name).unwrap()).collect::<Vec<_>>()
        });
        assert_eq!(source, copy, "{to:?}");
        let again = run().arg("-i").run().expect_code(0);
        assert_eq!(again.stdout_text(), "", "{to:?}");
    });
}
