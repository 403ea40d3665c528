//! A root that lacks some of root's rights, and limits of the system: each costs what it must, and is told.

use std::{
    fs::{self, Permissions},
    os::unix::fs::{MetadataExt, PermissionsExt, chown},
    path::{Path, PathBuf},
};

use dsync_tests::{
    Node, Outcome, Run, Scope, Scratch, Sshd, Tree, Via, assert_same,
    compare::{is_written_to, temporaries},
    mount::Mount,
    needs_dsync, needs_root, program,
    run::wait_for,
    scratch::slash,
    strace, tree,
};

const OWNER: u32 = 1000;

/// Starts a program as root without a right.
fn without(right: &str) -> [String; 3] {
    ["setpriv".into(), format!("--bounding-set=-{right}"), format!("--inh-caps=-{right}")]
}

/// Plants entries of every type that belong to another user.
fn plant_owned(at: &Path) {
    let owned = |node: Node| Node { owner: Some((OWNER, OWNER)), mtime: (1_000_000_000, 5), ..node };
    Tree::of([
        owned(Node::dir("d")),
        owned(Node::file("d/g", 1, 100)),
        owned(Node { mode: 0o6755, ..Node::file("f", 2, 5_000_000) })
            .with("security.capability", tree::CAPABILITY),
        owned(Node::symlink("l", "f")),
        owned(Node::new("p", dsync_tests::Kind::Fifo)),
    ])
    .plant(at);
    tree::set_mtime(&at.join("d"), (1_000_000_000, 5));
}

/// Asserts that everything of [`plant_owned`] is there but its owner, and that each entry is named.
fn assert_all_but_owners(scratch: &Scratch, outcome: &Outcome) {
    for name in ["d", "d/g", "f", "l", "p"] {
        let (from, to) = (scratch.src().join(name), scratch.dst().join(name));
        let (wanted, got) = (from.symlink_metadata().unwrap(), to.symlink_metadata().unwrap());
        assert_eq!(got.file_type(), wanted.file_type(), "{name}");
        assert_eq!((got.mtime(), got.mtime_nsec()), (wanted.mtime(), wanted.mtime_nsec()), "{name}");
        assert_ne!(got.uid(), OWNER, "{name}");
        let told = format!("cannot set the owner or group of '{name}'");
        assert!(outcome.stderr_text().contains(&told), "{name}: {}", outcome.account());
    }
    assert_eq!(fs::read(scratch.dst().join("f")).unwrap(), fs::read(scratch.src().join("f")).unwrap());
    // As another owner's they would hand out rights that nobody gave.
    assert_eq!(fs::metadata(scratch.dst().join("f")).unwrap().mode() & 0o7777, 0o755);
    assert!(!dsync_tests::survey(&scratch.dst())[&b"f"[..]].xattrs.contains_key("security.capability"));
    assert_eq!(temporaries(&scratch.dst()), [""; 0]);
}

#[test]
fn an_owner_that_may_not_be_given_costs_nothing_but_the_owner() {
    needs_dsync!();
    needs_root!();
    let starters =
        [without("chown").to_vec(), ["unshare", "--user", "--map-root-user"].map(String::from).to_vec()];
    for starter in starters {
        let scratch = Scratch::new();
        plant_owned(&scratch.src());
        fs::create_dir(scratch.dst()).unwrap();
        fs::write(scratch.dst().join("f"), "old").unwrap();
        let run = Run::dsync().behind(&starter).args(["-aX"]).arg(slash(&scratch.src())).arg(scratch.dst());
        let outcome = run.run().expect_code(23);
        assert_all_but_owners(&scratch, &outcome);
        assert!(
            outcome.stderr_text().contains("5 entries copied without some owners"),
            "{}",
            outcome.account()
        );
    }
}

#[test]
fn an_owner_that_the_other_end_may_not_give_is_named_here() {
    needs_dsync!();
    needs_root!();
    let (scratch, sshd) = (Scratch::new(), Sshd::shared());
    plant_owned(&scratch.src());
    let script = scratch.at("without-chown");
    let words = format!("#!/bin/sh\nexec {} {} \"$@\"\n", without("chown").join(" "), program().display());
    fs::write(&script, words).unwrap();
    fs::set_permissions(&script, Permissions::from_mode(0o755)).unwrap();
    let run = sshd.run_serving(Via::Ssh, &script).args(["-aX"]).arg(slash(&scratch.src()));
    let outcome = run.arg(sshd.operand(scratch.dst())).run().expect_code(23);
    assert_all_but_owners(&scratch, &outcome);
}

#[test]
fn entries_that_lack_attributes_are_named_and_without_v_only_the_first_of_many() {
    needs_dsync!();
    needs_root!();
    let scratch = Scratch::new();
    let files = (0..15).map(|at| Node::file(format!("f{at:02}"), at, 10).with("security.t", b"t"));
    Tree::of(files).plant(&scratch.src());
    let run = |options: &[&str]| {
        let _ = fs::remove_dir_all(scratch.dst());
        let run = Run::dsync().behind(without("sys_admin")).args(options).arg(slash(&scratch.src()));
        run.arg(scratch.dst()).run().expect_code(23)
    };
    let named = |outcome: &Outcome| {
        let line = |line: &&str| line.contains("cannot set some ACLs or extended attributes of 'f");
        outcome.stderr_text().lines().filter(line).count()
    };
    let few = run(&["-aX"]);
    assert_eq!(named(&few), 10, "{}", few.account());
    assert!(few.stderr_text().contains("-v names the other entries"), "{}", few.account());
    assert!(few.stderr_text().contains("15 entries copied without"), "{}", few.account());
    assert_eq!(named(&run(&["-aXv"])), 15);
    let told = run(&["-aX", "--json"]);
    let lacking = |line: &&str| {
        line.contains(r#""event":"problem""#)
            && line.contains(r#""cause":"lacking""#)
            && line.contains("EPERM")
    };
    assert_eq!(told.stdout_text().lines().filter(lacking).count(), 15, "{}", told.account());
}

#[test]
fn a_read_only_filesystem_below_the_destination_costs_only_what_goes_there() {
    needs_dsync!();
    let scratch = Scratch::new();
    let dirs = ["ro", "zz"].map(Node::dir);
    let files = ["a", "ro/f", "zz/1", "zz/2"].map(|path| Node::file(path, 1, 100));
    Tree::of(dirs.into_iter().chain(files)).plant(&scratch.src());
    fs::create_dir_all(scratch.dst().join("ro")).unwrap();
    let Some(mount) = Mount::tmpfs(&scratch.dst().join("ro"), "size=1m") else { return };
    mount.remount("ro");
    let run = || Run::dsync().arg("-a").arg(slash(&scratch.src())).arg(scratch.dst()).run();
    let outcome = run().expect_code(23);
    assert!(
        outcome.stderr_text().contains("cannot write 'ro/f': Read-only file system"),
        "{}",
        outcome.account()
    );
    for path in ["a", "zz/1", "zz/2"] {
        assert!(scratch.dst().join(path).exists(), "{path}: {}", outcome.account());
    }
    assert_eq!(fs::metadata(scratch.dst().join("zz")).unwrap().mode() & 0o777, 0o755);
    mount.remount("rw");
    let _ = run().expect_quiet_success();
}

#[test]
fn a_root_that_gives_its_destination_away_leaves_no_lock_there() {
    needs_dsync!();
    needs_root!();
    let scratch = Scratch::new();
    Tree::of([Node::file("a", 1, 100)]).plant(&scratch.src());
    fs::set_permissions(scratch.src(), Permissions::from_mode(0o2755)).unwrap();
    chown(scratch.src(), Some(OWNER), Some(OWNER)).unwrap();
    tree::set_mtime(&scratch.src(), (1_000_000_000, 5));
    let run = Run::dsync().behind(without("dac_override")).arg("-a").arg(slash(&scratch.src()));
    let _ = run.arg(scratch.dst()).run().expect_quiet_success();
    assert_eq!(temporaries(&scratch.dst()), [""; 0]);
    let root = fs::metadata(scratch.dst()).unwrap();
    assert_eq!(
        (root.uid(), root.gid(), root.mode() & 0o7777, root.mtime()),
        (OWNER, OWNER, 0o2755, 1_000_000_000)
    );
}

#[test]
fn a_root_that_is_not_given_back_to_its_owner_is_told() {
    needs_dsync!();
    needs_root!();
    let mut is_told = false;
    for (calls, when) in ["fchown,fchownat", "fchmod", "utimensat"]
        .iter()
        .flat_map(|calls| (1..8).map(move |when| (calls, when)))
    {
        let scratch = Scratch::new();
        fs::set_permissions(scratch.src(), Permissions::from_mode(0o2755)).unwrap();
        chown(scratch.src(), Some(OWNER), Some(OWNER)).unwrap();
        tree::set_mtime(&scratch.src(), (1_000_000_000, 5));
        let run = Run::dsync().behind(without("dac_override")).args(["-a", "--allow-empty-source"]);
        let run = run.arg(slash(&scratch.src())).arg(scratch.dst());
        let outcome = strace::inject_into(run, calls, &format!("error=EIO:when={when}")).run();

        let root = fs::metadata(scratch.dst()).unwrap();
        let is_as_meant = (root.uid(), root.mode() & 0o7777, root.mtime()) == (OWNER, 0o2755, 1_000_000_000);
        is_told |= !is_as_meant && outcome.code() == Some(23);
        assert!(is_as_meant || outcome.code() != Some(0), "{calls} {when}: {root:?} {}", outcome.account());
    }
    assert!(is_told);
}

/// Writes a script that runs the program under test after a command of the shell, and behind what `exec` begins
/// with.
fn limited(scratch: &Scratch, command: &str) -> PathBuf {
    let script = scratch.at("limited");
    let words = format!("#!/bin/sh\n{command} {} \"$@\"\n", program().display());
    fs::write(&script, words).unwrap();
    fs::set_permissions(&script, Permissions::from_mode(0o755)).unwrap();
    script
}

#[test]
fn a_limit_on_file_sizes_costs_the_files_beyond_it_and_leaves_nothing() {
    needs_dsync!();
    let sshd = Sshd::shared();
    for remote in [false, true] {
        let scratch = Scratch::new();
        Tree::of([Node::file("big", 1, 3_000_000), Node::file("a", 2, 10)]).plant(&scratch.src());
        fs::create_dir(scratch.dst()).unwrap();
        fs::write(scratch.dst().join("big"), "old").unwrap();
        let limited = limited(&scratch, "ulimit -f 1000; exec");
        let outcome = if remote {
            let run = sshd.run_serving(Via::Ssh, &limited).arg("-a").arg(slash(&scratch.src()));
            run.arg(sshd.operand(scratch.dst())).run()
        } else {
            Run::of(&limited).arg("-a").arg(slash(&scratch.src())).arg(scratch.dst()).run()
        };
        let outcome = outcome.expect_code(23);
        assert!(outcome.stderr_text().contains("'big': File too large"), "{}", outcome.account());
        assert_eq!(fs::read(scratch.dst().join("big")).unwrap(), b"old");
        assert!(scratch.dst().join("a").exists());
        assert_eq!(temporaries(&scratch.dst()), [""; 0]);
    }
}

#[test]
fn a_file_beyond_the_limit_on_file_sizes_is_old_or_new_when_it_is_rewritten_in_place() {
    needs_dsync!();
    let sshd = Sshd::shared();
    // The limit is 8,000 blocks of 512 bytes. Halves that change places need room for one of them meanwhile.
    let old = tree::noise(1, 8_000_000);
    let halves = [&old[2_000_000..4_000_000], &old[..2_000_000]].concat();
    let head = [&tree::noise(2, 100_000), &old[100_000..]].concat();
    for (name, before, after, code) in [
        ("same length", &old[..], &tree::noise(3, 8_000_000)[..], [23, 23]),
        ("shorter", &old, &tree::noise(4, 7_000_000), [23, 23]),
        ("longer", &old[..100_000], &tree::noise(5, 8_000_000), [23, 23]),
        ("halves", &old[..4_000_000], &halves, [0, 23]),
        ("only its head", &old, &head, [0, 23]),
    ] {
        for (remote, code) in [false, true].into_iter().zip(code) {
            let scratch = Scratch::new();
            fs::write(scratch.src().join("f"), after).unwrap();
            fs::create_dir(scratch.dst()).unwrap();
            fs::write(scratch.dst().join("f"), before).unwrap();
            tree::set_mtime(&scratch.dst().join("f"), (1_400_000_000, 0));
            let limited = limited(&scratch, "ulimit -f 8000; exec");
            let outcome = if remote {
                let run = sshd.run_serving(Via::Ssh, &limited).args(["-a", "--inplace"]);
                run.arg(slash(&scratch.src())).arg(sshd.operand(scratch.dst())).run()
            } else {
                let run = Run::of(&limited).args(["-a", "--inplace"]);
                run.arg(slash(&scratch.src())).arg(scratch.dst()).run()
            };

            let outcome = outcome.expect_code(code);
            let found = fs::read(scratch.dst().join("f")).unwrap();
            let (wanted, says) = if code == 0 { (after, "") } else { (before, "'f': File too large") };
            assert!(found == wanted, "{name} {remote} {}", outcome.account());
            assert!(outcome.stderr_text().contains(says), "{name} {remote} {}", outcome.account());
            let left = fs::read_dir(scratch.dst()).unwrap().count();
            assert_eq!(left, 1, "{name} {remote}: nothing but the file");
        }
    }
}

/// Old container runtimes, and filters of systemd, answer `EPERM` to calls that they do not know.
#[test]
fn a_call_that_a_sandbox_does_not_know_gives_way_to_an_older_one() {
    needs_dsync!();
    let sshd = Sshd::shared();
    let newer = "statx,renameat2,prlimit64,copy_file_range,openat2,preadv2,syncfs,flock,fallocate";
    for error in ["EPERM", "ENOSYS"] {
        for options in [&[][..], &["--inplace"], &["--preallocate", "-S"]] {
            for remote in [false, true] {
                let scratch = Scratch::new();
                Tree::sample().plant(&scratch.src());
                Tree::of([Node::dir("in_the_way"), Node::file("long", 1, 3_000_000)]).plant(&scratch.dst());
                tree::set_mtime(&scratch.dst().join("long"), (1_400_000_000, 0));
                Tree::of([Node::file("in_the_way", 2, 100), Node::file("long", 3, 3_000_000)])
                    .plant(&scratch.src());
                let refused = format!(
                    "exec strace -f --seccomp-bpf -qq -o /dev/null -e trace={newer} -e inject={newer}:error={error}"
                );
                let script = limited(&scratch, &refused);
                let run = if remote { sshd.run_serving(Via::Ssh, &script) } else { Run::of(&script) };
                let run = run.args(["-aH", "--delete"]).args(options).arg(slash(&scratch.src()));
                let to = if remote { sshd.operand(scratch.dst()) } else { scratch.dst().into() };

                let outcome = run.arg(to).run().expect_code(0);
                let what = format!("{error} {options:?} {remote} {}", outcome.account());
                assert!(outcome.stderr_text().is_empty(), "{what}");
                assert_same(&scratch.src(), &scratch.dst(), Scope::full());
                assert_eq!(temporaries(&scratch.dst()), [""; 0], "{what}");
            }
        }
    }
}

#[test]
fn two_runs_of_a_sandbox_without_flock_keep_each_other_out() {
    needs_dsync!();
    let scratch = Scratch::new();
    Tree::of([Node::file("a", 1, 60_000_000)]).plant(&scratch.src());
    let refused = "exec strace -f -qq -o /dev/null -e trace=flock -e inject=flock:error=ENOSYS";
    let script = limited(&scratch, refused);
    let run = |options: &[&str]| {
        Run::of(&script).arg("-a").args(options).arg(slash(&scratch.src())).arg(scratch.dst())
    };
    // Minutes, so that it holds the lock until the second one has given up.
    let mut first = run(&["--bwlimit=100k"]).in_own_group().start();
    wait_for(|| is_written_to(&scratch.dst()) || !first.is_running());
    let _ = run(&[]).run().expect_code(41);
    first.kill();
    let _ = run(&[]).run().expect_quiet_success();
}

#[test]
fn a_limit_on_memory_ends_a_run_without_a_panic() {
    needs_dsync!();
    let scratch = Scratch::new();
    Tree::of([Node::file("a", 1, 100_000)]).plant(&scratch.src());
    let serving = scratch.at("serving");
    fs::write(&serving, format!("#!/bin/sh\nexec {} --server\n", program().display())).unwrap();
    fs::set_permissions(&serving, Permissions::from_mode(0o755)).unwrap();
    // Too little for the program itself, for some of its threads, and enough.
    for kib in (36_000..72_000).step_by(2_000) {
        let limited = limited(&scratch, &format!("ulimit -v {kib}; exec"));
        let run = Run::of(&limited).arg("-a").arg("-e").arg(&serving).arg(slash(&scratch.src()));
        let outcome = run.arg(format!("host.invalid:{}", scratch.dst().display())).run();
        assert!(!outcome.stderr_text().contains("panicked"), "{kib} {}", outcome.account());
        // A refusal of memory itself ends the process, which the language leaves no choice.
        if outcome.code() == Some(0) {
            assert_eq!(
                fs::read(scratch.dst().join("a")).unwrap(),
                fs::read(scratch.src().join("a")).unwrap()
            );
        }
        assert_ne!(outcome.code(), Some(101), "{kib} {}", outcome.account());
    }
}

#[test]
fn a_log_that_nobody_reads_is_not_waited_for() {
    needs_dsync!();
    let scratch = Scratch::new();
    Tree::of([Node::file("a", 1, 100)]).plant(&scratch.src());
    let fifo = scratch.at("fifo");
    Tree::of([Node::new("fifo", dsync_tests::Kind::Fifo)]).plant(scratch.path());
    let run = Run::dsync().arg("-a").arg("--log-file").arg(&fifo).arg(slash(&scratch.src()));
    let outcome = run.arg(scratch.dst()).run().expect_code(0);
    assert!(outcome.stderr_text().contains("the run goes on without it"), "{}", outcome.account());
    assert!(scratch.dst().join("a").exists());
}

#[test]
fn a_source_that_ends_before_its_size_says_gives_what_can_be_read() {
    needs_dsync!();
    // Of 4,096 bytes by its size.
    let source = Path::new("/sys/class/net/lo/mtu");
    let content = fs::read(source).unwrap();
    assert!((content.len() as u64) < fs::metadata(source).unwrap().len());
    for options in [
        &[][..],
        &["-S"],
        &["--inplace"],
        &["-S", "--inplace"],
        &["-S", "--preallocate"],
        &["-S", "--append"],
    ] {
        let scratch = Scratch::new();
        fs::create_dir(scratch.dst()).unwrap();
        // Old bytes beyond its end, except where `--append` would keep them.
        if options.last() != Some(&"--append") {
            fs::write(scratch.dst().join("mtu"), [b'x'; 9000]).unwrap();
        }
        let _ =
            Run::dsync().arg("-rt").args(options).arg(source).arg(scratch.dst()).run().expect_quiet_success();
        assert_eq!(fs::read(scratch.dst().join("mtu")).unwrap(), content, "{options:?}");
    }
}

#[test]
fn the_directory_that_is_full_is_named() {
    needs_dsync!();
    for option in ["--temp-dir", "--backup-dir"] {
        let scratch = Scratch::new();
        Tree::of([Node::file("f", 1, 3_000_000)]).plant(&scratch.src());
        Tree::of([Node::file("f", 2, 2_900_000)]).plant(&scratch.dst());
        let full = scratch.at("full");
        fs::create_dir(&full).unwrap();
        let Some(_mount) = Mount::tmpfs(&full, "size=1m") else { return };
        let run =
            Run::dsync().arg("-a").arg(format!("{option}={}", full.display())).arg(slash(&scratch.src()));
        let outcome = run.arg(scratch.dst()).run().expect_code(11);
        let told = format!("cannot write '{}': the disk is full", full.display());
        assert!(outcome.stderr_text().contains(&told), "{}", outcome.account());
        assert_eq!(fs::metadata(scratch.dst().join("f")).unwrap().len(), 2_900_000);
    }

    // The temporaries have room, and the destination has not.
    let scratch = Scratch::new();
    Tree::of([Node::file("f", 1, 700_000)]).plant(&scratch.src());
    for dir in [scratch.dst(), scratch.at("there")] {
        fs::create_dir(dir).unwrap();
    }
    let Some(_mount) = Mount::tmpfs(&scratch.dst(), "size=1m") else { return };
    fs::write(scratch.dst().join("old"), [b'x'; 800_000]).unwrap();
    let run = Run::dsync().args(["-a", "--temp-dir=../there"]).arg(slash(&scratch.src())).arg(scratch.dst());
    let outcome = run.run().expect_code(11);
    let told = format!("cannot write '{}': the disk is full", scratch.dst().join("f").display());
    assert!(outcome.stderr_text().contains(&told), "{}", outcome.account());
}

#[test]
fn what_cannot_be_made_is_not_counted_as_made() {
    needs_dsync!();
    needs_root!();
    let scratch = Scratch::new();
    let device = Node { mode: 0o600, ..Node::new("c", dsync_tests::Kind::CharDevice(1, 3)) };
    Tree::of([device, Node::new("p", dsync_tests::Kind::Fifo)]).plant(&scratch.src());
    let run = Run::dsync().behind(without("mknod")).args(["-a", "--stats"]).arg(slash(&scratch.src()));
    let outcome = run.arg(scratch.dst()).run().expect_code(23);
    let told = "Number of created files: 2 (dir: 1, special: 1)";
    assert!(outcome.stdout_text().contains(told), "{}", outcome.account());
}
