//! Directories while the run works in them, and directories whose names are taken.

use std::{
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt, chown, lchown},
    path::Path,
};

use dsync_tests::{
    Kind, Node, Outcome, Run, Scope, Scratch, Sshd, Tree, Via, assert_same, mount::Mount, needs_dsync,
    needs_root, oracle, scratch::slash, stingy::Stingy, strace, survey, tree,
};

/// A user other than root.
const NOBODY: u32 = 65534;

fn mode(path: &Path) -> u32 {
    fs::metadata(path).expect("an entry").permissions().mode() & 0o7777
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("permissions");
}

fn as_nobody(scratch: &Scratch, options: &[&str]) -> Outcome {
    for path in [scratch.path().to_owned(), scratch.src(), scratch.dst()] {
        chown(path, Some(NOBODY), Some(NOBODY)).expect("an owner");
    }
    for root in ["src", "dst"] {
        for path in survey(&scratch.at(root)).keys() {
            chown(tree::at(&scratch.at(root), path), Some(NOBODY), Some(NOBODY)).expect("an owner");
        }
    }
    let run = Run::dsync().as_user(NOBODY, NOBODY).args(options);
    run.arg(slash(&scratch.src())).arg(scratch.dst()).run()
}

/// Pushes to an end that runs as another user.
fn push_to_nobody(scratch: &Scratch, options: &[&str]) -> Outcome {
    let shell = scratch.at("shell");
    fs::write(
        &shell,
        "#!/bin/sh\nshift\nexec setpriv --reuid=65534 --regid=65534 --clear-groups sh -c \"$*\"\n",
    )
    .expect("a shell");
    set_mode(&shell, 0o755);
    let mut remote = std::ffi::OsString::from("host:");
    remote.push(scratch.dst());
    let run = Run::dsync().args(options).args(["--no-o", "--no-g"]).arg("-e").arg(&shell);
    let program = format!("--dsync-path={}", dsync_tests::program::program().display());
    run.arg(program).arg(slash(&scratch.src())).arg(remote).run()
}

#[test]
fn user_works_in_his_own_directories_whatever_their_permissions_and_leaves_them_as_they_are_to_be() {
    needs_dsync!();
    needs_root!();
    // Old permissions, and the source's.
    for (old, new) in [(0o555, 0o755), (0o365, 0o755), (0o555, 0o555), (0o755, 0o555), (0o100, 0o500)] {
        let scratch = Scratch::new();
        Tree::of([Node::dir("a"), Node::dir("a/x"), Node::file("a/x/f", 1, 10), Node::file("a/g", 2, 10)])
            .plant(&scratch.src());
        Tree::of([Node::dir("a"), Node::dir("a/x"), Node::file("a/old", 3, 10)]).plant(&scratch.dst());
        for dir in ["a", "a/x"] {
            set_mode(&scratch.src().join(dir), new);
            set_mode(&scratch.dst().join(dir), old);
        }
        let _ = as_nobody(&scratch, &["-a", "--delete"]).expect_quiet_success();
        assert_same(&scratch.src(), &scratch.dst(), Scope::full());
        let again = as_nobody(&scratch, &["-ai", "--delete"]).expect_quiet_success();
        assert_eq!(again.stdout_text(), "", "{old:o} to {new:o}");
    }
}

/// As rsync, which needs an entry of the root for that too. A mask of 777 keeps both from a new root.
#[test]
fn a_mask_that_closes_new_directories_to_their_owner_costs_nothing() {
    needs_dsync!();
    needs_root!();
    for mask in ["0222", "0277"] {
        for options in ["-a", "-r", "-rp", "-a --delete", "-a --inplace", "-a --delay-updates", "-aH"] {
            let scratch = Scratch::new();
            Tree::of([
                Node::dir("d"),
                Node::file("d/g", 1, 10),
                Node::dir("d/e"),
                Node::file("d/e/h", 2, 10),
            ])
            .plant(&scratch.src());
            chown(scratch.path(), Some(NOBODY), Some(NOBODY)).expect("an owner");
            fs::remove_dir(scratch.dst()).ok();
            let masked = |program: &str, to: &str| {
                let text = format!("umask {mask}; exec {program} {options} src/ {to}/");
                let run = Run::of("sh").arg("-c").arg(text).as_user(NOBODY, NOBODY);
                run.cwd(scratch.path()).run()
            };

            let ours = dsync_tests::program::program().display().to_string();
            let _ = masked(&ours, "dst").expect_quiet_success();
            if !options.contains("delay") {
                let _ = masked("rsync", "rsync").expect_code(0);
                assert_same(
                    &scratch.at("rsync"),
                    &scratch.dst(),
                    Scope { times: false, dir_times: false, ..Scope::full() },
                );
            }
            let found = fs::read(scratch.dst().join("d/e/h")).expect("a file");
            assert_eq!(found, fs::read(scratch.src().join("d/e/h")).expect("a file"), "{mask} {options}");
        }
    }
}

/// Late links and names need the whole listing first; that look opens nothing up.
#[test]
fn user_moves_files_into_his_own_locked_directories_with_late_work_too() {
    needs_dsync!();
    needs_root!();
    for late in ["-H", "--delay-updates", "-W"] {
        for locked in [0o000, 0o300, 0o600] {
            let scratch = Scratch::new();
            Tree::of([Node::dir("a"), Node::file("a/f", 1, 10)]).plant(&scratch.src());
            Tree::of([Node::dir("a"), Node::file("a/old", 2, 10)]).plant(&scratch.dst());
            set_mode(&scratch.dst().join("a"), locked);
            let _ = as_nobody(&scratch, &["-a", late, "--remove-source-files"]).expect_quiet_success();
            assert!(scratch.dst().join("a/f").exists() && !scratch.src().join("a/f").exists());
            assert_eq!(mode(&scratch.dst().join("a")), mode(&scratch.src().join("a")));
        }
    }
}

#[test]
fn what_is_made_in_a_directory_has_the_group_that_the_directory_is_to_give() {
    needs_dsync!();
    needs_root!();
    let scratch = Scratch::new();
    Tree::of([Node { mode: 0o2750, ..Node::dir("x") }, Node::file("x/f", 1, 10)]).plant(&scratch.src());
    for root in ["dst", "rsync"] {
        Tree::of([Node::dir("x")]).plant(&scratch.at(root));
        chown(scratch.at(root).join("x"), None, Some(2)).expect("a group");
    }
    let _ =
        Run::dsync().arg("-rp").arg(slash(&scratch.src())).arg(scratch.dst()).run().expect_quiet_success();
    let rsync = oracle::rsync(["-rp".into(), slash(&scratch.src()), scratch.at("rsync").into()]);
    let _ = rsync.expect_code(0);
    let group = |path: &str| fs::metadata(scratch.at(path)).expect("a file").gid();
    assert_eq!(
        [group("dst/x/f"), mode(&scratch.at("dst/x"))],
        [group("rsync/x/f"), mode(&scratch.at("rsync/x"))]
    );
}

#[test]
fn directory_whose_name_is_taken_is_ignored_under_ignore_existing_and_told_if_anything_is_in_it() {
    needs_dsync!();
    let scratch = Scratch::new();
    Tree::of([Node::dir("x")]).plant(&scratch.src());
    Tree::of([Node::file("x", 1, 5)]).plant(&scratch.dst());
    let run =
        || Run::dsync().args(["-a", "--ignore-existing"]).arg(slash(&scratch.src())).arg(scratch.dst()).run();
    let _ = run().expect_quiet_success();
    Tree::of([Node::file("f", 2, 5)]).plant(&scratch.src().join("x"));
    let outcome = run().expect_code(23);
    assert!(outcome.stderr_text().contains("'x': Not a directory"), "{}", outcome.account());
    assert!(scratch.dst().join("x").is_file());
}

#[test]
fn nothing_is_deleted_when_the_content_of_a_source_file_could_not_be_read() {
    needs_dsync!();
    needs_root!();
    let scratch = Scratch::new();
    Tree::of([Node::file("f", 1, 5)]).plant(&scratch.src());
    Tree::of([Node::file("old", 2, 5)]).plant(&scratch.dst());
    let unreadable = || {
        chown(scratch.src().join("f"), Some(0), Some(0)).expect("an owner");
        set_mode(&scratch.src().join("f"), 0o600);
        let run = Run::dsync().as_user(NOBODY, NOBODY).args(["-r", "--delete"]);
        run.arg(slash(&scratch.src())).arg(scratch.dst()).run()
    };
    let _ = as_nobody(&scratch, &["-rn"]);
    let outcome = unreadable().expect_code(23);
    assert!(outcome.stderr_text().contains("1 deletion withheld"), "{}", outcome.account());
    assert!(scratch.dst().join("old").exists());
}

#[test]
fn a_file_that_cannot_be_read_leaves_its_directory_the_time_that_it_had() {
    needs_dsync!();
    needs_root!();
    fails_and_leaves_the_time(&Scratch::new());
    // Where extents are shared, a temporary waits beside the old file until the source has answered.
    let outer = Scratch::new();
    set_mode(outer.path(), 0o755);
    let Some(disk) = Mount::of_type("btrfs", &outer.at("disk")) else { return };
    fails_and_leaves_the_time(&Scratch::under(disk.path()));
}

/// Pushes a file that cannot be read in the place of an old one.
fn fails_and_leaves_the_time(scratch: &Scratch) {
    for (root, len) in [(scratch.src(), 500_000), (scratch.dst(), 1_500_000)] {
        Tree::of([Node::dir("sub"), Node::file("sub/long", 1, len)]).plant(&root);
    }
    set_mode(&scratch.src().join("sub/long"), 0o600);
    let _ = as_nobody(scratch, &["-rn"]);
    chown(scratch.src().join("sub/long"), Some(0), Some(0)).expect("an owner");
    for path in ["src", "dst", "src/sub", "dst/sub"] {
        tree::set_mtime(&scratch.at(path), (1_000_000_000, 5));
    }
    let shell = scratch.at("shell");
    fs::write(&shell, "#!/bin/sh\nshift\nexec sh -c \"$*\"\n").expect("a shell");
    set_mode(&shell, 0o755);
    let mut remote = std::ffi::OsString::from("host:");
    remote.push(scratch.dst());
    let run = Run::dsync().as_user(NOBODY, NOBODY).args(["-a", "--transport=ssh", "-e"]).arg(&shell);
    let program = format!("--dsync-path={}", dsync_tests::program::program().display());
    let _ = run.arg(program).arg(slash(&scratch.src())).arg(remote).run().expect_code(23);

    has_kept_its_times(scratch);
}

/// Fails unless the destination and its directory have the time that they had.
fn has_kept_its_times(scratch: &Scratch) {
    for path in ["dst", "dst/sub"] {
        let facts = fs::metadata(scratch.at(path)).expect("a directory");
        assert_eq!((facts.mtime(), facts.mtime_nsec()), (1_000_000_000, 5), "{path}");
    }
}

#[test]
fn a_copy_whose_source_breaks_off_leaves_its_directory_the_time_that_it_had() {
    needs_dsync!();
    let scratch = Scratch::new();
    for (root, len) in [(scratch.at("behind"), 500_000), (scratch.dst(), 10)] {
        Tree::of([Node::dir("sub"), Node::file("sub/long", len, len)]).plant(&root);
    }
    fs::create_dir(scratch.at("shown")).expect("a mount point");
    let Some(shown) = Stingy::mount_readable_to(100_000, &scratch.at("behind"), &scratch.at("shown")) else {
        return;
    };
    for path in ["behind", "behind/sub", "dst", "dst/sub"] {
        tree::set_mtime(&scratch.at(path), (1_000_000_000, 5));
    }
    let run = Run::dsync().arg("-a").arg(slash(&scratch.at("shown"))).arg(scratch.dst());
    let _ = run.run().expect_code(23);
    drop(shown);
    has_kept_its_times(&scratch);
}

#[test]
fn empty_directory_that_has_the_name_of_the_partial_dir_stays() {
    needs_dsync!();
    let scratch = Scratch::new();
    Tree::of([Node::file("f", 1, 5)]).plant(&scratch.src());
    Tree::of([Node::dir("sub")]).plant(&scratch.dst());
    let run = Run::dsync().args(["-a", "--partial-dir=sub"]).arg(slash(&scratch.src())).arg(scratch.dst());
    let _ = run.run().expect_quiet_success();
    assert!(scratch.dst().join("sub").is_dir());
}

#[test]
fn what_a_user_may_change_the_permissions_of_gives_way_to_him() {
    needs_dsync!();
    needs_root!();
    for locked in [0o555, 0o300, 0o000, 0o1560] {
        for options in [
            &["-a", "--delete"][..],
            &["-a", "--delete-before"],
            &["-a", "--delete", "-b", "--backup-dir=../bk"],
        ] {
            let scratch = Scratch::new();
            Tree::of([Node::file("replaces", 1, 10)]).plant(&scratch.src());
            let old = ["replaces", "extraneous", "empty"];
            Tree::of(old.map(Node::dir)).plant(&scratch.dst());
            for dir in ["replaces", "extraneous"] {
                Tree::of([Node::dir("in"), Node::file("in/f", 2, 10)]).plant(&scratch.dst().join(dir));
                set_mode(&scratch.dst().join(dir).join("in"), locked);
            }
            old.iter().for_each(|dir| set_mode(&scratch.dst().join(dir), locked));
            let _ = as_nobody(&scratch, options).expect_quiet_success();
            assert_same(&scratch.src(), &scratch.dst(), Scope::full());
        }
    }
}

#[test]
fn the_work_at_the_end_of_a_run_finds_no_directory_locked() {
    needs_dsync!();
    needs_root!();
    let nested = ["a", "a/b", "a/b/c"];
    for (options, modes) in [
        (&["-aH"][..], [0o500, 0o666, 0o755]),
        (&["-aH", "--delete"], [0o500, 0o555, 0o400]),
        (&["-a", "--delay-updates"], [0o755, 0o666, 0o600]),
        (&["-aH", "--delay-updates", "--delete", "-b"], [0o000, 0o500, 0o755]),
        (&["-a", "--delete-during"], [0o666, 0o400, 0o755]),
        (&["-a"], [0o601, 0o400, 0o000]),
        (&["-a", "--link-dest=/"], [0o000, 0o300, 0o600]),
    ] {
        let scratch = Scratch::new();
        // Root reads the source, whatever its permissions; the destination is a user's.
        for (root, seed) in [("src", 1), ("dst", 10)] {
            Tree::of(nested.map(Node::dir)).plant(&scratch.at(root));
            Tree::of(nested.iter().map(|dir| Node::file(format!("{dir}/f"), seed, 10)))
                .plant(&scratch.at(root));
        }
        fs::hard_link(scratch.at("src/a/f"), scratch.at("src/a/b/g")).expect("a link");
        fs::hard_link(scratch.at("src/a/f"), scratch.at("src/a/b/c/g")).expect("a link");
        fs::write(scratch.at("dst/a/b/c/gone"), "").expect("a file");
        for root in ["src", "dst"] {
            nested.iter().zip(modes).for_each(|(dir, mode)| set_mode(&scratch.at(root).join(dir), mode));
        }
        set_mode(scratch.path(), 0o755);
        for path in std::iter::once(scratch.dst())
            .chain(survey(&scratch.dst()).keys().map(|path| tree::at(&scratch.dst(), path)))
        {
            chown(path, Some(NOBODY), Some(NOBODY)).expect("an owner");
        }

        let _ = push_to_nobody(&scratch, options).expect_quiet_success();
        let found = nested.map(|dir| mode(&scratch.dst().join(dir)));
        assert_eq!(found, modes, "{options:?}");
        let links = if options[0] == "-aH" { 3 } else { 1 };
        for file in ["a/f", "a/b/g", "a/b/c/g"] {
            assert_eq!(fs::metadata(scratch.dst().join(file)).expect(file).nlink(), links, "{options:?}");
        }
    }
}

/// Whatever its owner may do in the directory that a run makes, the run leaves no lock there.
#[test]
fn no_lock_is_left_in_a_directory_that_locks_its_owner_out() {
    needs_dsync!();
    needs_root!();
    for (options, mode) in [&["-a"][..], &["-a", "--delete"], &["-a", "--delay-updates"]]
        .into_iter()
        .flat_map(|options| (0..8).map(move |owners| (options, owners << 6 | 0o055)))
    {
        let scratch = Scratch::new();
        Tree::of([Node::dir("d"), Node::file("d/f", 1, 10)]).plant(&scratch.src());
        set_mode(&scratch.src(), mode);
        set_mode(scratch.path(), 0o755);
        chown(scratch.path(), Some(NOBODY), Some(NOBODY)).expect("an owner");
        let outcome = push_to_nobody(&scratch, options);
        let _ = outcome.expect_quiet_success();
        assert_eq!(self::mode(&scratch.dst()), mode, "{options:?} {mode:o}");
        let names: Vec<_> = fs::read_dir(scratch.dst()).expect("a list").flatten().collect();
        assert_eq!(names.len(), 1, "{options:?} {mode:o}: {names:?}");
        assert!(scratch.dst().join("d/f").exists(), "{options:?} {mode:o}");
    }
}

#[test]
fn a_root_that_locks_its_owner_out_is_worked_in_and_has_its_permissions_in_the_end() {
    needs_dsync!();
    needs_root!();
    for (options, old) in [&["-a"][..], &["-rt"], &["-rt", "--delete"], &["-rt", "--delay-updates"]]
        .into_iter()
        .flat_map(|options| [0o100, 0o300, 0o500].map(|old| (options, old)))
    {
        let scratch = Scratch::new();
        Tree::of([Node::dir("d"), Node::file("d/f", 1, 10)]).plant(&scratch.src());
        Tree::of([Node::file("old", 2, 10)]).plant(&scratch.dst());
        set_mode(&scratch.dst(), old);
        let _ = as_nobody(&scratch, options).expect_quiet_success();
        let wanted = if options == ["-a"] { mode(&scratch.src()) } else { old };
        assert_eq!(mode(&scratch.dst()), wanted, "{options:?} {old:o}");
        let deletes = options.contains(&"--delete");
        let names: Vec<_> = survey(&scratch.dst()).into_keys().collect();
        let wanted: &[&[u8]] = if deletes { &[b"", b"d", b"d/f"] } else { &[b"", b"d", b"d/f", b"old"] };
        assert_eq!(names, wanted, "{options:?} {old:o}");
        let again = as_nobody(&scratch, &[options, &["-i"]].concat()).expect_quiet_success();
        assert_eq!(again.stdout_text(), "", "{options:?} {old:o}");
    }
}

#[test]
fn a_root_that_locks_its_owner_out_is_locked_again_where_only_a_file_goes_in() {
    needs_dsync!();
    needs_root!();
    let scratch = Scratch::new();
    Tree::of([Node::file("f", 1, 10)]).plant(&scratch.src());
    Tree::of([]).plant(&scratch.dst());
    chown(scratch.dst(), Some(NOBODY), Some(NOBODY)).expect("an owner");
    for to in ["dst/", "dst/new"] {
        set_mode(&scratch.dst(), 0o100);
        let run = Run::dsync().as_user(NOBODY, NOBODY).args(["-r", "--chmod=F644"]);
        let _ = run.arg(scratch.src().join("f")).arg(scratch.at(to)).run().expect_quiet_success();
        assert_eq!(mode(&scratch.dst()), 0o100, "{to}");
    }
    assert!(scratch.dst().join("f").exists() && scratch.dst().join("new").exists());
}

#[test]
fn a_source_that_may_not_be_entered_gives_its_permissions_to_nothing() {
    needs_dsync!();
    needs_root!();
    for locked in [0o000, 0o400, 0o600, 0o200] {
        let scratch = Scratch::new();
        Tree::of([Node::file("f", 1, 10)]).plant(&scratch.src());
        Tree::of([Node::file("old", 2, 10)]).plant(&scratch.dst());
        let before = mode(&scratch.dst());
        set_mode(&scratch.src(), locked);
        let outcome = as_nobody(&scratch, &["-a", "--delete"]).expect_code(23);
        assert!(outcome.stderr_text().contains("Permission denied"), "{}", outcome.account());
        assert_eq!(mode(&scratch.dst()), before, "{locked:o}");
        assert!(scratch.dst().join("old").exists(), "{locked:o}");
    }
}

#[test]
fn what_stays_in_a_locked_directory_finds_it_locked_as_before() {
    needs_dsync!();
    needs_root!();
    let scratch = Scratch::new();
    Tree::of([Node::file("f", 1, 10)]).plant(&scratch.src());
    Tree::of([Node::dir("d"), Node::file("d/f", 2, 10), Node::dir("d/keep")]).plant(&scratch.dst());
    set_mode(&scratch.dst().join("d"), 0o500);
    let _ = as_nobody(&scratch, &["-a", "--delete", "--exclude=keep"]).expect_code(0);
    assert_eq!(mode(&scratch.dst().join("d")), 0o500);
    assert!(scratch.dst().join("d/keep").exists() && !scratch.dst().join("d/f").exists());
}

#[test]
fn a_directory_that_stays_with_its_backups_is_locked_as_before() {
    needs_dsync!();
    needs_root!();
    for locked in [0o400, 0o500, 0o000] {
        let scratch = Scratch::new();
        Tree::of([Node::file("f", 1, 10)]).plant(&scratch.src());
        Tree::of([Node::dir("d"), Node::file("d/f", 2, 10)]).plant(&scratch.dst());
        set_mode(&scratch.dst().join("d"), locked);
        let _ = as_nobody(&scratch, &["-a", "--delete", "-b"]).expect_code(0);
        assert!(scratch.dst().join("d/f~").exists() && !scratch.dst().join("d/f").exists());
        assert_eq!(mode(&scratch.dst().join("d")), locked, "{locked:o}");
    }
}

#[test]
fn backups_go_to_a_tree_whatever_the_permissions_of_their_directories_are() {
    needs_dsync!();
    needs_root!();
    for locked in [0o517, 0o500, 0o300, 0o000] {
        let scratch = Scratch::new();
        Tree::of([Node::dir("d"), Node::file("d/f", 1, 10)]).plant(&scratch.src());
        Tree::of([Node::dir("d"), Node::file("d/f", 2, 20), Node::file("d/g", 3, 30)]).plant(&scratch.dst());
        set_mode(&scratch.dst().join("d"), locked);
        let options = ["-a", "--delete", "--backup-dir=../kept"];
        let _ = as_nobody(&scratch, &options).expect_quiet_success();
        assert_same(&scratch.src(), &scratch.dst(), Scope::CONTENT);
        assert_eq!(mode(&scratch.at("kept/d")), locked | 0o700);

        // A tree that an earlier version has left.
        set_mode(&scratch.at("kept/d"), locked);
        fs::write(scratch.src().join("d/f"), tree::noise(4, 40)).expect("a file");
        let _ = as_nobody(&scratch, &options).expect_quiet_success();
        assert_same(&scratch.src(), &scratch.dst(), Scope::CONTENT);
        assert_eq!(fs::read(scratch.at("kept/d/f")).expect("a backup").len(), 10);
        assert_eq!(fs::read(scratch.at("kept/d/g")).expect("a backup").len(), 30);
    }
}

#[test]
fn a_file_that_its_owner_may_not_write_is_rewritten_in_place() {
    needs_dsync!();
    needs_root!();
    for (options, left) in [(&["-a", "--inplace"][..], 0o644), (&["-rt", "--inplace"], 0o444)] {
        let scratch = Scratch::new();
        Tree::of([Node::file("f", 1, 3000)]).plant(&scratch.src());
        Tree::of([Node::file("f", 2, 4000)]).plant(&scratch.dst());
        tree::set_mtime(&scratch.dst().join("f"), (1, 1));
        set_mode(&scratch.dst().join("f"), 0o444);
        let _ = as_nobody(&scratch, options).expect_quiet_success();
        let content = |at: &Path| fs::read(at.join("f")).expect("a file");
        assert_eq!(content(&scratch.src()), content(&scratch.dst()));
        assert_eq!(mode(&scratch.dst().join("f")), left);
    }
}

#[test]
fn a_file_is_rewritten_in_place_where_nothing_can_be_made_beside_it() {
    needs_dsync!();
    needs_root!();
    let options: [&[&str]; 4] = [
        &["-rtO", "--inplace"],
        &["-rpO", "--inplace", "-W"],
        &["-rtO", "--append-verify"],
        &["-rtO", "--append", "--preallocate"],
    ];
    for options in options {
        for remote in [false, true] {
            let scratch = Scratch::new();
            let content = tree::noise(1, 3_000_000);
            Tree::of([]).plant(&scratch.src());
            Tree::of([]).plant(&scratch.dst());
            fs::write(scratch.src().join("f"), &content).expect("a file");
            fs::write(scratch.dst().join("f"), &content[..2_000_000]).expect("a file");
            tree::set_mtime(&scratch.dst().join("f"), (1, 1));
            chown(scratch.dst().join("f"), Some(NOBODY), Some(NOBODY)).expect("an owner");
            set_mode(&scratch.dst(), 0o755);

            let outcome = if remote {
                push_to_nobody(&scratch, options)
            } else {
                let run = Run::dsync().as_user(NOBODY, NOBODY).args(options);
                run.arg(slash(&scratch.src())).arg(scratch.dst()).run()
            };
            let _ = outcome.expect_quiet_success();
            assert_same(&scratch.src(), &scratch.dst(), Scope::CONTENT);
        }
    }
}

#[test]
fn an_empty_directory_gives_way_whatever_rule_protects_it() {
    needs_dsync!();
    let scratch = Scratch::new();
    for options in
        [&["-a"][..], &["-a", "--delete"], &["-a", "--force"], &["-a", "--delete", "--delete-excluded"]]
    {
        Tree::of([Node::file("x", 1, 10)]).plant(&scratch.src());
        Tree::of([Node::dir("x")]).plant(&scratch.dst());
        let run = Run::dsync().args(options).arg("--exclude=*/");
        let _ = run.arg(slash(&scratch.src())).arg(scratch.dst()).run().expect_code(0);
        assert!(scratch.dst().join("x").is_file(), "{options:?}");
        fs::remove_file(scratch.dst().join("x")).expect("a file");
    }
}

#[test]
fn anothers_empty_directory_that_may_not_be_listed_gives_way_whatever_may_be_deleted() {
    needs_dsync!();
    needs_root!();
    for options in [
        &[][..],
        &["--force"],
        &["--delete"],
        &["--delete-before"],
        &["--delete-after"],
        &["--delete", "--delay-updates"],
        &["--delete", "-b", "--backup-dir=../bk"],
        &["--delete", "--inplace"],
    ] {
        for is_empty in [true, false] {
            let scratch = Scratch::new();
            let nodes = [Node::file("f", 1, 10), Node::symlink("link", "f"), Node::new("pipe", Kind::Fifo)];
            let owner = Some((NOBODY, NOBODY));
            Tree::of(nodes.map(|node| Node { owner, ..node })).plant(&scratch.src());
            fs::create_dir(scratch.dst()).expect("a directory");
            for name in ["f", "link", "pipe"] {
                let within = (!is_empty).then(|| Node::file("kept", 2, 5));
                Tree::of(within).plant(&scratch.dst().join(name));
                set_mode(&scratch.dst().join(name), 0o700);
            }
            for path in [scratch.path().to_owned(), scratch.src(), scratch.dst()] {
                chown(path, Some(NOBODY), Some(NOBODY)).expect("an owner");
            }

            let run = Run::dsync().as_user(NOBODY, NOBODY).arg("-a").args(options);
            let outcome = run.arg(slash(&scratch.src())).arg(scratch.dst()).run();
            if is_empty {
                let _ = outcome.expect_quiet_success();
                assert_same(&scratch.src(), &scratch.dst(), Scope::full());
            } else {
                let _ = outcome.expect_code(23);
                assert!(
                    ["f", "link", "pipe"].iter().all(|name| scratch.dst().join(name).join("kept").exists())
                );
            }
        }
    }
}

#[test]
fn a_destination_that_may_not_be_entered_is_told_as_that() {
    needs_dsync!();
    needs_root!();
    for locked in [0o000, 0o200, 0o400, 0o600] {
        let scratch = Scratch::new();
        Tree::of([Node::file("f", 1, 10)]).plant(&scratch.src());
        Tree::of([]).plant(&scratch.dst());
        set_mode(&scratch.dst(), locked);
        // rsync ends with 3, too.
        let refused = as_nobody(&scratch, &["-a"]).expect_code(3);
        assert!(refused.stderr_text().contains("Permission denied"), "{}", refused.account());
        assert_eq!(mode(&scratch.dst()), locked);
    }
}

#[test]
fn a_destination_of_another_user_that_may_not_be_read_is_told_as_that() {
    needs_dsync!();
    needs_root!();
    let scratch = Scratch::new();
    Tree::of([Node::file("f", 1, 10)]).plant(&scratch.src());
    Tree::of([]).plant(&scratch.dst());
    set_mode(&scratch.dst(), 0o711);
    let run = Run::dsync().as_user(NOBODY, NOBODY).arg("-r");
    let refused = run.arg(slash(&scratch.src())).arg(scratch.dst()).run().expect_code(3);
    assert!(refused.stderr_text().contains("Permission denied"), "{}", refused.account());
    assert_eq!(mode(&scratch.dst()), 0o711);
}

#[test]
fn a_directory_that_cannot_be_removed_keeps_its_name() {
    needs_dsync!();
    needs_root!();
    let names = ["file", "further", "link"];
    for options in [
        &["-aH", "--delete"][..],
        &["-aH", "--delete-before"],
        &["-aH", "--delete", "--delay-updates"],
        &["-aH", "--delete", "--backup-dir=../bk"],
    ] {
        let scratch = Scratch::new();
        Tree::of([Node::file("file", 1, 10), Node::file("first", 2, 10), Node::symlink("link", "first")])
            .plant(&scratch.src());
        fs::hard_link(scratch.src().join("first"), scratch.src().join("further")).unwrap();
        tree::set_mtime(&scratch.src(), (1_300_000_000, 0));
        let old = names.iter().flat_map(|name| {
            let at = |below: &str| format!("{name}/{below}");
            [
                Node::dir(name),
                Node::file(at("goes"), 3, 5),
                Node::dir(at("own")),
                Node::file(at("own/kept"), 4, 5),
            ]
        });
        Tree::of(old).plant(&scratch.dst());
        let _ = as_nobody(&scratch, &["-n"]);
        lchown(scratch.src().join("link"), Some(NOBODY), Some(NOBODY)).expect("an owner");
        let own = |owner| {
            for name in names {
                chown(scratch.dst().join(name).join("own"), Some(owner), Some(owner)).expect("an owner");
            }
        };

        own(0);
        let run = || {
            let run = Run::dsync().as_user(NOBODY, NOBODY).args(options);
            run.arg(slash(&scratch.src())).arg(scratch.dst()).run()
        };
        for _ in 0..2 {
            let outcome = run().expect_code(23);
            for name in names {
                assert!(scratch.dst().join(name).join("own/kept").exists(), "{name}: {}", outcome.account());
            }
            let left: Vec<_> = survey(&scratch.dst()).into_keys().collect();
            assert!(left.iter().all(|path| !path.starts_with(b".dsync")), "{left:?}");
            let made = fs::metadata(scratch.dst()).unwrap().mtime();
            assert_eq!(made, 1_300_000_000, "{options:?}: {}", outcome.account());
        }

        own(NOBODY);
        let _ = run().expect_quiet_success();
        assert_same(&scratch.src(), &scratch.dst(), Scope::full());
    }
}

#[test]
fn a_root_that_locks_its_owner_out_is_worked_in_under_fake_super_too() {
    needs_dsync!();
    needs_root!();
    for old in [0o300, 0o100, 0o500, 0o1500] {
        for options in [&["-rt"][..], &["-rtO"], &["-rt", "--delete"]] {
            let scratch = Scratch::new();
            Tree::of([Node::file("f", 1, 10)]).plant(&scratch.src());
            Tree::of([Node::file("old", 2, 10)]).plant(&scratch.dst());
            set_mode(&scratch.dst(), old);
            let options = [options, &["--fake-super"]].concat();
            let _ = as_nobody(&scratch, &options).expect_quiet_success();
            let has_old = scratch.dst().join("old").exists();
            assert_eq!(has_old, !options.contains(&"--delete"), "{options:?} {old:o}");
            assert!(scratch.dst().join("f").exists(), "{options:?} {old:o}");
            // The directory's own permissions let its user in, and a note keeps the others.
            assert_eq!(mode(&scratch.dst()), 0o700, "{options:?} {old:o}");
            let noted = &survey(&scratch.dst())[&b""[..]].xattrs["user.rsync.%stat"];
            let wanted = format!("{:o} ", 0o40_000 | old);
            assert!(noted.starts_with(wanted.as_bytes()), "{}", noted.escape_ascii());
            let again = as_nobody(&scratch, &[&options[..], &["-i"]].concat()).expect_quiet_success();
            assert_eq!(again.stdout_text(), "", "{options:?} {old:o}");
        }
    }
}

#[test]
fn a_directory_that_locks_its_owner_out_is_worked_in_under_fake_super_too() {
    needs_dsync!();
    needs_root!();
    for (old, options) in
        [0o500, 0o300, 0o100, 0].into_iter().flat_map(|old| [(old, &["-rt"][..]), (old, &["-rtp"])])
    {
        let scratch = Scratch::new();
        Tree::of([Node::dir("d"), Node::file("d/f", 1, 10)]).plant(&scratch.src());
        Tree::of([Node::dir("d"), Node::file("d/old", 2, 10), Node::dir("left")]).plant(&scratch.dst());
        let sub = scratch.dst().join("d");
        set_mode(&sub, old);
        set_mode(&scratch.dst().join("left"), old);
        let options = [options, &["--fake-super", "--delete"]].concat();
        let _ = as_nobody(&scratch, &options).expect_quiet_success();
        assert!(sub.join("f").exists() && !sub.join("old").exists(), "{options:?} {old:o}");
        assert!(!scratch.dst().join("left").exists(), "{options:?} {old:o}");
        if options.contains(&"-rt") {
            assert_eq!(mode(&sub), 0o700 | old);
            let noted = &survey(&sub)[&b""[..]].xattrs["user.rsync.%stat"];
            assert!(
                noted.starts_with(format!("{:o} ", 0o40_000 | old).as_bytes()),
                "{}",
                noted.escape_ascii()
            );
        } else {
            assert_eq!(mode(&sub), mode(&scratch.src().join("d")), "{old:o}");
        }
        let again = as_nobody(&scratch, &[&options[..], &["-i"]].concat()).expect_quiet_success();
        assert_eq!(again.stdout_text(), "", "{options:?} {old:o}");
    }
}

#[test]
fn a_closed_directory_that_the_source_has_nothing_for_is_no_failure() {
    needs_dsync!();
    needs_root!();
    for (options, has_entry, code) in
        [(&["-r"][..], false, 0), (&["-r"], true, 23), (&["-r", "--delete"], false, 23)]
    {
        let mut codes = Vec::new();
        for program in ["", "rsync"] {
            let scratch = Scratch::new();
            Tree::of([Node::dir("closed"), Node::file("f", 1, 10)]).plant(&scratch.src());
            if has_entry {
                fs::write(scratch.src().join("closed/x"), "x").expect("a file");
            }
            Tree::of([Node::dir("closed")]).plant(&scratch.dst());
            for path in [scratch.path().to_owned(), scratch.src(), scratch.dst()] {
                chown(path, Some(NOBODY), Some(NOBODY)).expect("an owner");
            }
            set_mode(&scratch.dst().join("closed"), 0o710);

            let run = if program.is_empty() { Run::dsync() } else { Run::of(program) };
            let run = run.as_user(NOBODY, NOBODY).args(options).arg(slash(&scratch.src()));
            let outcome = run.arg(scratch.dst()).run();
            assert!(scratch.dst().join("f").exists(), "{options:?}: {}", outcome.account());
            assert_eq!(outcome.code(), Some(code), "{options:?} {has_entry}: {}", outcome.account());
            codes.push(outcome.code());
        }
        assert_eq!(codes[0], codes[1], "{options:?} {has_entry}");
    }
}

#[test]
fn directories_of_a_run_that_was_killed_have_their_modes_in_the_end_whether_modes_are_copied_or_not() {
    needs_dsync!();
    let cases = [
        (&["-rt"][..], "src/"),
        (&["-rtE"], "src/"),
        (&["-a"], "src/"),
        (&["-aR", "--no-implied-dirs"], "src/./sub/deep/f"),
        (&["-rt", "--delay-updates"], "src/"),
    ];
    for (pulls, (options, operand)) in
        [false, true].into_iter().flat_map(|pulls| cases.map(|case| (pulls, case)))
    {
        let scratch = Scratch::new();
        for dir in ["sub", "sub/deep"] {
            fs::create_dir(scratch.src().join(dir)).unwrap();
            set_mode(&scratch.src().join(dir), 0o755);
        }
        fs::write(scratch.src().join("sub/deep/f"), vec![7; 3_000_000]).unwrap();
        let sshd = Sshd::shared();
        let with = |run: Run| match pulls {
            false => run.args(options).args([operand, "dst/"]).cwd(scratch.path()),
            true => {
                let from = sshd.operand(format!("{}/{operand}", scratch.path().display()));
                run.args(options).arg(from).arg(slash(&scratch.dst()))
            }
        };
        let own = || if pulls { sshd.run(Via::Ssh) } else { Run::dsync() };
        let calls = "pwrite64,copy_file_range";
        let killed = with(strace::inject_into(own(), calls, "signal=KILL:when=1")).run();
        assert!(killed.code().is_none() && scratch.dst().join("sub/deep").exists(), "{}", killed.account());
        let _ = with(own()).run().expect_quiet_success();
        for dir in ["sub", "sub/deep"] {
            assert_eq!(mode(&scratch.dst().join(dir)), 0o755, "{pulls} {options:?} {dir}");
        }
    }
}

#[test]
fn a_directory_that_may_be_listed_but_not_entered_is_told_by_a_run_that_may_not_open_it() {
    needs_dsync!();
    needs_root!();
    let told = |outcome: &Outcome| {
        let said = "cannot read destination directory 'sub': Permission denied";
        assert!(outcome.stderr_text().contains(said), "{}", outcome.account());
    };
    let plant = || {
        let scratch = Scratch::new();
        for root in [scratch.src(), scratch.dst()] {
            Tree::of([Node::dir("sub"), Node::file("sub/f", 1, 10)]).plant(&root);
        }
        fs::write(scratch.dst().join("sub/extra"), "x").expect("a file");
        scratch
    };
    for closed in [0o600, 0o400, 0o200, 0] {
        let scratch = plant();
        set_mode(&scratch.dst().join("sub"), closed);
        told(&as_nobody(&scratch, &["-rtn"]).expect_code(23));
        assert_eq!(mode(&scratch.dst().join("sub")), closed);
        let _ = as_nobody(&scratch, &["-rt", "--delete"]).expect_quiet_success();
        assert!(!scratch.dst().join("sub/extra").exists());
    }

    // One of another user's stays closed.
    let scratch = plant();
    set_mode(&scratch.dst().join("sub"), 0o744);
    for path in ["dst", ""] {
        chown(scratch.at(path), Some(NOBODY), Some(NOBODY)).expect("an owner");
    }
    fs::remove_file(scratch.src().join("sub/f")).expect("a file");
    let run = Run::dsync().as_user(NOBODY, NOBODY).args(["-rt", "--delete"]);
    told(&run.arg(slash(&scratch.src())).arg(scratch.dst()).run().expect_code(23));
    assert!(scratch.dst().join("sub/extra").exists());

    // One entry whose note may not be read is no closed directory.
    let scratch = plant();
    set_mode(&scratch.dst().join("sub/extra"), 0o600);
    for path in ["dst/sub/f", "dst/sub", "dst", ""] {
        chown(scratch.at(path), Some(NOBODY), Some(NOBODY)).expect("an owner");
    }
    let run = Run::dsync().as_user(NOBODY, NOBODY).args(["-rt", "--fake-super"]);
    let _ = run.arg(slash(&scratch.src())).arg(scratch.dst()).run().expect_quiet_success();
}

#[test]
fn a_root_that_a_failing_disk_leaves_open_is_told() {
    needs_dsync!();
    needs_root!();
    // The source's permissions, the old ones, and those that a run leaves.
    for (options, new, old, left) in
        [(&["-a", "--delete-after"][..], 0o500, 0o755, 0o500), (&["-rt"], 0o755, 0o300, 0o300)]
    {
        let mut is_told = false;
        for when in 1..6 {
            let scratch = Scratch::new();
            for (root, mode) in [(scratch.src(), new), (scratch.dst(), old)] {
                fs::create_dir_all(root.join("sub")).unwrap();
                for (path, mode) in [(root.join("sub"), 0o755), (root, mode)] {
                    chown(&path, Some(NOBODY), Some(NOBODY)).unwrap();
                    set_mode(&path, mode);
                }
            }
            let run = Run::dsync().as_user(NOBODY, NOBODY).args(options);
            let run = run.arg(slash(&scratch.src())).arg(slash(&scratch.dst()));
            let fails = strace::inject_into(run, "fchmod,fchmodat", &format!("error=EIO:when={when}"));
            let outcome = fails.run();

            let is_open = mode(&scratch.dst()) != left;
            is_told |= is_open && outcome.code() == Some(23);
            assert!(!is_open || outcome.code() != Some(0), "{when}: {}", outcome.account());
        }
        assert!(is_told, "{options:?}");
    }
}

#[test]
fn an_extraneous_directory_that_a_failing_disk_leaves_open_is_told() {
    needs_dsync!();
    needs_root!();
    let mut is_told = false;
    for when in 1..6 {
        let scratch = Scratch::new();
        fs::create_dir_all(scratch.dst().join("gone/kept")).unwrap();
        fs::write(scratch.dst().join("gone/f"), "").unwrap();
        for (path, mode) in
            [("src", 0o755), ("dst/gone/f", 0o644), ("dst/gone/kept", 0o755), ("dst/gone", 0o500)]
        {
            chown(scratch.at(path), Some(NOBODY), Some(NOBODY)).unwrap();
            set_mode(&scratch.at(path), mode);
        }
        chown(scratch.dst(), Some(NOBODY), Some(NOBODY)).unwrap();
        let run = Run::dsync().as_user(NOBODY, NOBODY).args(["-r", "--delete", "--exclude=kept"]);
        let run = run.arg("--allow-empty-source").arg(slash(&scratch.src())).arg(scratch.dst());
        // Only calls that have its name.
        let fails = format!("inject=openat:error=EIO:when={when}");
        let strace =
            ["strace", "-f", "-qq", "-o", "/dev/null", "-P", "gone", "-e", "trace=openat", "-e", &fails];
        let outcome = run.behind(strace).run();

        let is_open = mode(&scratch.dst().join("gone")) != 0o500;
        is_told |= is_open && outcome.code() == Some(23);
        assert!(!is_open || outcome.code() != Some(0), "{when}: {}", outcome.account());
    }
    assert!(is_told);
}
