//! Runs that are refused because nobody intends them, each with its twin: the nearest run that must
//! work.

use std::{fs, os::unix::fs::symlink, path::Path};

use dsync_tests::{
    Node, Outcome, Run, Scope, Scratch, Sshd, Tree, Via, assert_same, assert_unchanged, every_way,
    mount::Mount, needs_dsync, needs_root, remote_shell, scratch::slash, survey,
};

fn run(scratch: &Scratch, options: &[&str], source: &str, destination: &Path) -> Outcome {
    // Not `Path::join`, which a slash at the end must survive.
    let source = format!("{}/{source}", scratch.path().display());
    Run::dsync().args(options).arg(source).arg(destination).run()
}

fn refused(outcome: Outcome, part: &str) {
    let outcome = outcome.expect_code(42);
    assert!(outcome.stderr_text().contains(part), "no '{part}'\n{}", outcome.account());
}

fn full(path: &Path) {
    Tree::of([Node::dir("d"), Node::file("d/f", 1, 10), Node::file("g", 2, 20)]).plant(path);
}

fn empty(scratch: &Scratch) {
    for dir in ["empty", "other"] {
        fs::create_dir(scratch.at(dir)).unwrap();
    }
    full(&scratch.src());
}

#[test]
fn empty_source_does_not_empty_the_destination() {
    needs_dsync!();
    let scratch = Scratch::new();
    empty(&scratch);
    for options in
        [&["-a", "--delete"][..], &["-an", "--delete"], &["-a", "--del"], &["-a", "--delete-excluded"]]
    {
        if !scratch.dst().exists() {
            full(&scratch.dst());
        }
        refused(
            run(&scratch, options, "empty/", &scratch.dst()),
            "is empty but the destination has 2 entries",
        );
        assert_same(&scratch.src(), &scratch.dst(), Scope::CONTENT);
    }
    // A tree given by name, not its contents.
    full(&scratch.at("dst/empty"));
    refused(run(&scratch, &["-a", "--delete"], "empty", &scratch.dst()), "/dst/empty' is empty");
    assert_same(&scratch.src(), &scratch.at("dst/empty"), Scope::CONTENT);
}

#[test]
fn of_several_sources_an_empty_one_keeps_none_of_the_others() {
    needs_dsync!();
    let sshd = Sshd::shared();
    let list = Scratch::new();
    fs::write(list.at("list"), "empty\nsrc\n").unwrap();
    let from_list = format!("--files-from={}", list.at("list").display());
    for (options, remote) in [
        (&["-a", "--delete"][..], false),
        (&["-a", "--delete-before"], false),
        (&["-a", "--delete"], true),
        (&["-ar", "--delete", &from_list], false),
    ] {
        let scratch = Scratch::new();
        empty(&scratch);
        full(&scratch.at("dst/empty"));
        full(&scratch.at("expected"));
        full(&scratch.dst().join("src"));
        fs::write(scratch.dst().join("src/gone"), "old").unwrap();
        fs::write(scratch.src().join("g"), "new").unwrap();
        let operands = match options {
            [_, _, _] => vec![slash(scratch.path())],
            _ => ["empty", "src"].map(|name| scratch.at(name).into_os_string()).to_vec(),
        };
        for dry in [&["-n"][..], &[]] {
            let run = if remote { sshd.run(Via::Ssh) } else { Run::dsync() };
            let run = run.args(options).args(dry).args(&operands);
            let run = if remote { run.arg(sshd.operand(scratch.dst())) } else { run.arg(scratch.dst()) };
            let outcome = run.run().expect_code(23);
            let said = outcome.stderr_text();
            assert_eq!(said.matches("'empty'").count(), 1, "{}", outcome.account());
            assert!(said.contains("is empty, and may be a disk that is not mounted"), "{said}");
        }
        assert_same(&scratch.src(), &scratch.dst().join("src"), Scope::CONTENT);
        assert_same(&scratch.at("expected"), &scratch.at("dst/empty"), Scope::CONTENT);
    }
}

/// As lsyncd asks for what has gone, and as a mirror of one kind of file whose last one has gone.
#[test]
fn a_source_whose_entries_the_rules_leave_out_is_not_empty() {
    needs_dsync!();
    let sshd = Sshd::shared();
    for (program, remote) in [("dsync", false), ("dsync", true), ("rsync", false)] {
        let scratch = Scratch::new();
        full(&scratch.src());
        full(&scratch.dst());
        fs::write(scratch.dst().join("gone.txt"), "old").unwrap();
        let run = match (program, remote) {
            ("rsync", _) => Run::of("rsync"),
            (_, true) => sshd.run(Via::Ssh),
            _ => Run::dsync(),
        };
        let run = run.args(["-lts", "-r", "--delete", "--force", "--include=/gone.txt", "--include=/"]);
        let run = run.arg("--exclude=*").arg(slash(&scratch.src()));
        let run = if remote { run.arg(sshd.operand(scratch.dst())) } else { run.arg(scratch.dst()) };
        let _ = run.run().expect_code(0);
        assert_same(&scratch.src(), &scratch.dst(), Scope::CONTENT);
    }
}

#[test]
fn source_that_would_be_deleted_is_refused() {
    needs_dsync!();
    let scratch = Scratch::new();
    for tree in ["dst", "expected"] {
        full(&scratch.at(tree).join("sub"));
        full(&scratch.at(tree).join("sub/sub"));
    }
    full(&scratch.src());
    std::os::unix::fs::symlink("dst/sub", scratch.at("link")).unwrap();
    for timing in ["--delete", "--delete-before", "--delete-during", "--delete-after", "--delete-excluded"] {
        for source in ["dst/sub/", "dst/sub/sub/", "link/", "dst/sub/."] {
            refused(run(&scratch, &["-a", timing], source, &scratch.dst()), "would remove it");
        }
        // One operand for another: a file, and a directory named like its parent.
        for sources in [["src/", "dst/sub/g"], ["src/", "dst/sub/d"], ["dst/sub/sub", "src/d"]] {
            let sources = sources.map(|source| format!("{}/{source}", scratch.path().display()));
            let run = Run::dsync().args(["-a", timing]).args(sources).arg(scratch.dst());
            refused(run.run(), "would remove it");
        }
    }
    refused(
        run(&scratch, &["-a", "--delete-excluded", "--exclude=/sub"], "dst/sub/", &scratch.dst()),
        "would remove it",
    );
    assert_same(&scratch.at("expected"), &scratch.dst(), Scope::CONTENT);
}

#[test]
fn source_inside_the_destination_is_copied_where_it_stays() {
    needs_dsync!();
    for (options, source) in [
        (&["-a"][..], "dst/sub/"),
        (&["-a", "--delete", "--exclude=/sub"], "dst/sub/"),
        // A tree onto itself, and a tree whose twin in the destination is elsewhere.
        (&["-a", "--delete"], "dst/sub"),
        (&["-a", "--delete"], "dst/sub/d"),
        (&["-a", "--delete"], "dst/sub/g"),
    ] {
        let scratch = Scratch::new();
        full(&scratch.at("dst/sub"));
        let _ = run(&scratch, options, source, &scratch.dst()).expect_quiet_success();
        full(&scratch.at("expected"));
        assert_same(&scratch.at("expected"), &scratch.at("dst/sub"), Scope::CONTENT);
    }
}

#[test]
fn empty_source_is_copied_where_nothing_is_lost() {
    needs_dsync!();
    let scratch = Scratch::new();
    empty(&scratch);
    for destination in ["new", "other"] {
        let _ = run(&scratch, &["-a", "--delete"], "empty/", &scratch.at(destination)).expect_quiet_success();
    }
    full(&scratch.dst());
    let _ = run(&scratch, &["-a"], "empty/", &scratch.dst()).expect_quiet_success();
    let spared = &["-a", "--delete", "--exclude=*"];
    let _ = run(&scratch, spared, "empty/", &scratch.dst()).expect_quiet_success();
    assert_same(&scratch.src(), &scratch.dst(), Scope::CONTENT);
    let _ = run(&scratch, &["-a", "--delete", "--allow-empty-source"], "empty/", &scratch.dst())
        .expect_quiet_success();
    assert_same(&scratch.at("empty"), &scratch.dst(), Scope::full());
    // Deeper directories may be emptied.
    fs::create_dir(scratch.at("other/d")).unwrap();
    full(&scratch.dst());
    let _ = run(&scratch, &["-a", "--delete"], "other/", &scratch.dst()).expect_quiet_success();
    assert_same(&scratch.at("other"), &scratch.dst(), Scope::full());
}

#[test]
fn empty_source_is_refused_over_the_wire_in_both_directions() {
    needs_dsync!();
    let (scratch, sshd) = (Scratch::new(), Sshd::shared());
    empty(&scratch);
    full(&scratch.dst());
    let run = || sshd.run(Via::Auto).args(["-a", "--delete"]);
    let part = "nothing was deleted. Is the source mounted, and do rules leave anything of it? \
                --allow-empty-source deletes all the same.";
    refused(run().arg(slash(&scratch.at("empty"))).arg(sshd.operand(scratch.dst())).run(), part);
    refused(run().arg(sshd.operand(slash(&scratch.at("empty")))).arg(scratch.dst()).run(), part);
    assert_same(&scratch.src(), &scratch.dst(), Scope::CONTENT);
}

#[test]
fn root_and_home_are_not_deleted_in() {
    needs_dsync!();
    let scratch = Scratch::new();
    full(&scratch.src());
    // Dry runs: if one were not refused, it would do no harm.
    let dry = &["-an", "--delete", "--exclude=/proc/", "--exclude=/sys/", "--exclude=/*/*/"];
    refused(run(&scratch, dry, "src/", Path::new("/")), "refusing to delete in '/'. --force-root");
    refused(run(&scratch, dry, "src/", Path::new("/tmp/..")), "--force-root deletes there");
    let home = Run::of("sh").args(["-c", "getent passwd \"$(id -u)\" | cut -d: -f6"]).run().stdout_text();
    let home = Path::new(home.trim());
    if home.is_dir() && home != Path::new("/") {
        refused(run(&scratch, dry, "src/", home), "refusing to delete in your home directory '");
        // A tree of its own in there is harmless, and so is a copy that deletes nothing.
        let _ = run(&scratch, &["-an", "--delete"], "src", home).expect_quiet_success();
        let _ = run(&scratch, &["-an"], "src/", home).expect_quiet_success();
    }
    let forced = [dry, &["--force-root", "--max-delete=0", "--delete-all-or-nothing"][..]].concat();
    let _ = run(&scratch, &forced, "src/", Path::new("/")).expect_code(25);
}

/// Makes a run of a user whose home directory is `home/me` below the scratch directory.
fn run_at_home(scratch: &Scratch, options: &[&str], operands: [&str; 2]) -> Outcome {
    run_with_home(scratch, "home/me", options, operands)
}

/// Makes a run of a user with a home directory below the scratch directory.
fn run_with_home(scratch: &Scratch, home: &str, options: &[&str], operands: [&str; 2]) -> Outcome {
    let accounts = format!("root:x:0:0::{}:/bin/sh\n", scratch.at(home).display());
    fs::write(scratch.at("passwd"), accounts).unwrap();
    let words = "mount --bind passwd /etc/passwd && exec \"$@\"";
    let run = Run::of("unshare").args(["-m", "sh", "-c", words, "sh"]).arg(dsync_tests::program());
    run.args(options).args(operands).cwd(scratch.path()).run()
}

#[test]
fn a_home_directory_below_the_destination_is_not_deleted_in_either() {
    needs_root!();
    let plant = |scratch: &Scratch| {
        full(&scratch.at("home/me"));
        full(&scratch.at("new/they"));
        fs::create_dir_all(scratch.at("bk/me")).unwrap();
        fs::write(scratch.at("bk/me/new"), "new").unwrap();
        fs::create_dir_all(scratch.at("up/home")).unwrap();
        fs::write(scratch.at("up/home/new"), "new").unwrap();
    };
    for timing in ["--delete", "--delete-before", "--delete-during", "--delete-after"] {
        for (more, operands) in [
            // Entries in it, the directory itself, and one on the way to it.
            ("-a", ["bk/me", "home"]),
            ("-aR", ["bk/./me", "home"]),
            ("-a", ["new/", "home"]),
            ("-a", ["up/", "."]),
        ] {
            let scratch = Scratch::new();
            plant(&scratch);
            let rules = ["--exclude=/bk", "--exclude=/new", "--exclude=/up", "--exclude=/passwd"];
            let outcome = run_at_home(&scratch, &[&[more, timing][..], &rules].concat(), operands);
            refused(outcome, "refusing to delete in your home directory '");
            full(&scratch.at("expected"));
            for name in ["d/f", "g"] {
                assert!(scratch.at("home/me").join(name).exists(), "{timing} {operands:?}: {name} is gone");
            }

            // On purpose, without deletions, and where a rule keeps it.
            let _ = run_at_home(&scratch, &["-a", "--exclude=passwd"], operands).expect_code(0);
            let kept = [&["-a", timing, "--exclude=me"][..], &rules].concat();
            let _ = run_at_home(&scratch, &kept, operands).expect_code(0);
            assert!(scratch.at("home/me/g").exists(), "{timing} {operands:?}");
            let insists = [&[more, timing, "--force-root"][..], &rules].concat();
            let _ = run_at_home(&scratch, &insists, operands).expect_code(0);
            assert!(!scratch.at("home/me/g").exists(), "{timing} {operands:?}");
        }
    }
}

#[test]
fn a_home_directory_within_what_goes_stays() {
    needs_root!();
    for (options, source, destination) in [
        (&["-a", "--delete"][..], "other/", "top"),
        (&["-a", "--delete-before"], "other/", "top"),
        (&["-a", "--delete-during"], "other/", "top"),
        (&["-r", "--delete-missing-args", "--force"], "other/up", "top"),
        (&["-a", "--delete"], "other/", "host:top"),
    ] {
        for insists in [false, true] {
            let scratch = Scratch::new();
            full(&scratch.at("top/up/home/me"));
            full(&scratch.at("top/up/else"));
            full(&scratch.at("other/new"));
            remote_shell::write(scratch.at("shell"), remote_shell::PLAIN);
            let remote = ["-e", "./shell", "--dsync-path", dsync_tests::program().to_str().unwrap()];
            let forced = ["--force-root"].into_iter().filter(|_| insists);
            let options: Vec<&str> = options.iter().copied().chain(remote).chain(forced).collect();
            let outcome = run_with_home(&scratch, "top/up/home/me", &options, [source, destination]);
            let outcome = outcome.expect_code(0);
            let stays = scratch.at("top/up/home/me/d/f").exists();
            assert!(stays != insists && !scratch.at("top/up/else").exists(), "{}", outcome.account());
        }
    }
}

#[test]
fn a_source_that_a_followed_link_names_is_not_deleted() {
    needs_dsync!();
    let scratch = Scratch::new();
    full(&scratch.at("dst/link/x"));
    std::os::unix::fs::symlink("dst/link/x", scratch.at("link")).unwrap();
    full(&scratch.at("expected/link/x"));
    for options in [&["-aL", "--max-size=10"][..], &["-ak", "--exclude=g"], &["-aLR"]] {
        for timing in ["--delete", "--delete-before", "--delete-during", "--delete-after"] {
            let options = [options, &[timing]].concat();
            let source = if options.contains(&"-aLR") { "./link" } else { "link" };
            refused(run(&scratch, &options, source, &scratch.dst()), "would remove it");
            assert_same(&scratch.at("expected"), &scratch.dst(), Scope::CONTENT);
        }
    }
    // A link that is copied as one has no tree.
    let _ = run(&scratch, &["-a", "--delete"], "link", &scratch.at("other")).expect_code(0);
}

#[test]
fn tree_is_not_copied_into_itself_through_a_second_mount() {
    needs_dsync!();
    needs_root!();
    let scratch = Scratch::new();
    full(&scratch.src());
    for dir in ["again", "part"] {
        fs::create_dir(scratch.at(dir)).unwrap();
    }
    let Some(_again) = Mount::bind(&scratch.at("src"), &scratch.at("again")) else { return };
    let Some(_part) = Mount::bind(&scratch.at("src/d"), &scratch.at("part")) else { return };
    for destination in ["again", "again/d", "again/new", "part", "part/new"] {
        let why = if destination == "again" { "is the source itself" } else { "inside the source" };
        for options in [&["-a"][..], &["-ax"]] {
            refused(run(&scratch, options, "src/", &scratch.at(destination)), why);
        }
    }
    // Upwards is no circle, and an exclude breaks one.
    let _ = run(&scratch, &["-a"], "part/", &scratch.at("src")).expect_quiet_success();
    let _ = run(&scratch, &["-a", "--exclude=/d/"], "src/", &scratch.at("part/new")).expect_quiet_success();
}

#[test]
fn disk_mounted_in_the_source_is_a_destination_under_x() {
    needs_dsync!();
    needs_root!();
    let scratch = Scratch::new();
    full(&scratch.src());
    fs::create_dir(scratch.src().join("backup")).unwrap();
    let Some(mount) = Mount::tmpfs(&scratch.src().join("backup"), "size=1m") else { return };
    refused(run(&scratch, &["-a"], "src/", mount.path()), "inside the source");
    let _ = run(&scratch, &["-ax"], "src/", mount.path()).expect_quiet_success();
    assert!(mount.path().join("d/f").exists() && !mount.path().join("backup/d").exists());
}

#[test]
fn under_x_nothing_is_deleted_on_another_filesystem_of_the_destination() {
    needs_dsync!();
    needs_root!();
    for options in [
        &["-ax", "--delete"][..],
        &["-ax", "--delete-before"],
        &["-ax", "--delete-during"],
        &["-ax", "--delete-delay"],
        &["-ax", "--delete-after"],
        &["-ax", "--delete-excluded", "--exclude=extra"],
        &["-ax", "--delete", "-b"],
    ] {
        let scratch = Scratch::new();
        full(&scratch.src());
        fs::create_dir_all(scratch.at("src/mounted/sub")).unwrap();
        every_way(&scratch, options, |copy, to| {
            full(to);
            fs::write(to.join("extra"), "").unwrap();
            fs::create_dir(to.join("mounted")).unwrap();
            let Some(mount) = Mount::tmpfs(&to.join("mounted"), "size=1m") else { return };
            fs::create_dir(mount.path().join("sub")).unwrap();
            for extra in ["extra", "sub/extra"] {
                fs::write(mount.path().join(extra), "data").unwrap();
            }

            let _ = copy().run().expect_quiet_success();
            assert!(!to.join("extra").exists(), "{options:?}");
            for extra in ["extra", "sub/extra"] {
                assert!(mount.path().join(extra).exists(), "{options:?}: {extra}");
            }
            // An operand's own directory may be on a filesystem of its own.
            let _ = run(&scratch, options, "src/mounted", to).expect_quiet_success();
            assert!(!mount.path().join("sub/extra").exists(), "{options:?}");
        });
    }
}

#[test]
fn an_operand_on_a_filesystem_of_its_own_is_copied_under_x() {
    needs_dsync!();
    needs_root!();
    for (options, operand) in [(&["-ax"][..], "src/home"), (&["-axR"], "src/./home"), (&["-axL"], "link")] {
        let scratch = Scratch::new();
        full(&scratch.src());
        fs::create_dir(scratch.at("src/home")).unwrap();
        symlink("src/home", scratch.at("link")).unwrap();
        let Some(mount) = Mount::tmpfs(&scratch.at("src/home"), "size=1m") else { return };
        fs::create_dir(mount.path().join("mounted")).unwrap();
        let Some(further) = Mount::tmpfs(&mount.path().join("mounted"), "size=1m") else { return };
        fs::write(mount.path().join("file"), "data").unwrap();
        fs::write(further.path().join("file"), "data").unwrap();

        let _ = run(&scratch, options, operand, &scratch.dst()).expect_quiet_success();
        let copied = scratch.dst().join(Path::new(operand).file_name().unwrap());
        assert!(copied.join("file").exists(), "{options:?}");
        assert!(copied.join("mounted").exists() && !copied.join("mounted/file").exists(), "{options:?}");
    }
}

#[test]
fn what_is_mounted_at_the_destination_is_not_deleted() {
    needs_dsync!();
    needs_root!();
    for (options, code) in [(&["-ax", "--delete"][..], 0), (&["-ax", "--del"], 0), (&["-a", "--delete"], 23)]
    {
        let scratch = Scratch::new();
        full(&scratch.src());
        full(&scratch.dst());
        fs::create_dir_all(scratch.at("dst/mounted")).unwrap();
        fs::create_dir_all(scratch.at("dst/gone/deep/mounted")).unwrap();
        fs::write(scratch.at("dst/gone/file"), "").unwrap();
        let mounts =
            ["dst/mounted", "dst/gone/deep/mounted"].map(|at| Mount::tmpfs(&scratch.at(at), "size=1m"));
        let [Some(first), Some(second)] = &mounts else { return };
        for mount in [first, second] {
            fs::write(mount.path().join("precious"), "data").unwrap();
        }
        let outcome = run(&scratch, options, "src/", &scratch.dst()).expect_code(code);
        for mount in [first, second] {
            assert!(mount.path().join("precious").exists(), "{}", outcome.account());
        }
        assert!(!scratch.at("dst/gone/file").exists(), "{}", outcome.account());
    }
}

#[test]
fn what_is_bound_at_the_destination_is_not_deleted() {
    needs_dsync!();
    needs_root!();
    for options in
        [&["-a", "--delete"][..], &["-a", "--del"], &["-a", "--delete", "-b"], &["-a", "--delete-before"]]
    {
        let scratch = Scratch::new();
        full(&scratch.src());
        full(&scratch.dst());
        fs::write(scratch.at("dst/gone"), "extraneous").unwrap();
        full(&scratch.at("other"));
        let bound = ["bound", "deep/er/bound"].map(|at| {
            let (other, at) = (scratch.at("other"), scratch.dst().join(at));
            fs::create_dir_all(&at).unwrap();
            Mount::bind(&other, &at)
        });
        let [Some(_first), Some(_second)] = &bound else { return };
        let before = survey(&scratch.at("other"));
        let outcome = run(&scratch, options, "src/", &scratch.dst()).expect_code(23);
        assert_unchanged(&before, &scratch.at("other"));
        assert!(!scratch.at("dst/gone").exists(), "{}", outcome.account());
    }
}

#[test]
fn a_directory_with_something_bound_in_it_gives_way_to_no_file() {
    needs_dsync!();
    needs_root!();
    let each = [&["--delete"][..], &["--force"], &["--delete", "-b"], &["--delete", "--delay-updates"]];
    for options in each {
        let scratch = Scratch::new();
        full(&scratch.src());
        fs::write(scratch.at("src/way"), "a file").unwrap();
        full(&scratch.at("other"));
        let at = scratch.at("dst/way/deep/bound");
        fs::create_dir_all(&at).unwrap();
        let Some(_bound) = Mount::bind(&scratch.at("other"), &at) else { return };
        let before = survey(&scratch.at("other"));

        let outcome = run(&scratch, &[&["-a"], options].concat(), "src/", &scratch.dst()).expect_code(23);
        assert_unchanged(&before, &scratch.at("other"));
        assert!(at.join("d/f").exists(), "{}", outcome.account());
        assert!(outcome.stderr_text().contains("way"), "{}", outcome.account());
        assert!(scratch.at("dst/d/f").exists(), "{}", outcome.account());
    }
}

#[test]
fn a_destination_in_its_source_is_refused_only_where_the_run_would_enter_it() {
    needs_dsync!();
    // The options and operands, the content of `.rsync-filter`, and whether the run is refused.
    let cases = [
        ("-a ./ bk/", "", true),
        ("-a --exclude=/bk ./ bk/", "", false),
        ("-aF --exclude=/bk ./ bk/", "", false),
        ("-aF --exclude=/bk ./ bk/", "- *.o\n", false),
        ("-aF --exclude=/bk ./ bk/", "+ /bk\n", true),
        ("-aF ./ bk/", "- /bk\n", false),
        ("-a --exclude=/bk/* ./ bk", "", false),
        ("-a --exclude=/bk/** ./ bk", "", false),
        ("-a --exclude=/bk/*.o ./ bk", "", true),
        ("-a --include=/bk/bk --exclude=/bk/* ./ bk", "", true),
        ("-a --filter=dir-merge,n_.rsync-filter --exclude=/bk/* ./ bk", "+ *\n", true),
        ("-aF --exclude=/bk/* ./ bk", "", true),
        ("-v f d bk bk/", "", false),
        ("-d ./ bk", "", false),
        ("-d ./ ./", "", true),
        ("-r f bk bk/", "", true),
    ];
    for (words, rules, is_refused) in cases {
        let scratch = Scratch::new();
        fs::create_dir_all(scratch.at("bk")).unwrap();
        full(&scratch.at("d"));
        fs::write(scratch.at("f"), "f").unwrap();
        if !rules.is_empty() {
            fs::write(scratch.at(".rsync-filter"), rules).unwrap();
        }
        let outcome = Run::dsync().args(words.split(' ')).cwd(scratch.path()).run();
        let what = format!("{rules:?}\n{}", outcome.account());
        assert_eq!(outcome.code(), Some(if is_refused { 42 } else { 0 }), "{what}");
        assert_eq!(scratch.at("bk/f").exists(), !is_refused, "{what}");
        assert!(!scratch.at("bk/bk/f").exists(), "{what}");
    }
}

/// A source in its destination is safe only by rules that nothing of the run can change, and only as a whole.
#[test]
fn a_source_in_its_destination_is_never_deleted_by_rules_that_spare_a_part_of_it() {
    needs_dsync!();
    // The options, and the content of the source's `.rsync-filter`.
    let cases = [
        ("-aF --exclude=/in", "+ /in\n"),
        ("-aF --exclude=/in", ""),
        ("-a --include=/in/keep --exclude=/in/*", ""),
        ("-a --exclude=/in/*", ""),
        ("-a --exclude=/in/**", ""),
        ("-a --exclude=/in", ""),
        ("-a --exclude=/in --filter=:_.rules", ""),
    ];
    for timing in ["--delete", "--delete-before", "--delete-after", "--delete-delay"] {
        for (words, rules) in cases {
            let scratch = Scratch::new();
            full(&scratch.at("top/in"));
            fs::write(scratch.at("top/in/keep"), "keep").unwrap();
            fs::write(scratch.at("top/gone"), "extraneous").unwrap();
            if !rules.is_empty() {
                fs::write(scratch.at("top/in/.rsync-filter"), rules).unwrap();
            }
            let before = survey(&scratch.at("top/in"));
            let run = Run::dsync().args(words.split(' ')).args([timing, "top/in/", "top/"]);
            let outcome = run.cwd(scratch.path()).run();
            assert_unchanged(&before, &scratch.at("top/in"));
            let is_spared = words.starts_with("-a --exclude=/in") && !words.contains('*');
            assert_eq!(outcome.code(), Some(if is_spared { 0 } else { 42 }), "{}", outcome.account());
            assert_eq!(scratch.at("top/gone").exists(), !is_spared, "{}", outcome.account());
        }
    }
}

#[test]
fn a_destination_behind_a_directory_that_is_missing_is_no_way_around_the_guards() {
    needs_dsync!();
    let scratch = Scratch::new();
    Tree::of([Node::file("f", 1, 10)]).plant(&scratch.src());
    let source = slash(&scratch.src());
    for (path, options) in
        [("new/..", &["--delete"][..]), ("src/new/../..", &[]), ("src/x/y/../../z", &["-n"])]
    {
        let run = Run::dsync().args(["-a", "--mkpath"]).args(options).arg(&source).arg(scratch.at(path));
        let outcome = run.run().expect_code(3);
        let told = "'..' follows a directory that does not exist";
        assert!(outcome.stderr_text().contains(told), "{}", outcome.account());
        assert!(!scratch.at("new").exists() && !scratch.src().join("new").exists(), "{path}");
    }
}
