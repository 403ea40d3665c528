//! `--append` and `--append-verify`: shorter files are continued, others stay as they are.

use std::{
    fs,
    io::Write,
    os::unix::fs::{MetadataExt, chown},
    path::Path,
    time::Duration,
};

use dsync_tests::{
    Run, Scope, Scratch, Sshd, Via, assert_same, compare, every_way, needs_dsync, needs_root, oracle,
    program, remote_shell,
    run::{send, wait_for},
    scratch::slash,
    strace, tree,
};
use rustix::process::Signal;

/// Longer than one segment, and not a multiple of a page.
const LEN: usize = (9 << 20) + 77;
const OLD: (i64, i64) = (1_200_000_000, 0);

/// Plants a source and a destination with a part of each file, case by case.
fn plant(source: &Path, destination: &Path) {
    fs::create_dir_all(destination).unwrap();
    let content = tree::noise(1, LEN);
    let other = |len: usize| tree::noise(2, len);
    let small = &content[..3000];
    let cases = [
        ("shorter", &content[..], Some(content[..5_000_001].to_vec())),
        ("shorter by a byte", &content, Some(content[..LEN - 1].to_vec())),
        ("small", small, Some(small[..2000].to_vec())),
        ("other beginning", &content, Some(other(5_000_001))),
        ("small with another", small, Some(other(2000))),
        ("equal in length", small, Some(other(3000))),
        ("longer", &content[..1000], Some(content[..3000].to_vec())),
        ("empty", small, Some(Vec::new())),
        ("new", small, None),
        ("same", small, Some(small.to_vec())),
    ];
    for (name, new, old) in cases {
        fs::write(source.join(name), new).unwrap();
        tree::set_mtime(&source.join(name), (1_300_000_000, 5));
        if let Some(old) = old {
            fs::write(destination.join(name), old).unwrap();
            tree::set_mtime(&destination.join(name), OLD);
        }
    }
    // It needs no content, but its attributes are made equal.
    tree::set_mtime(&destination.join("same"), (1_300_000_000, 5));
    tree::set_mode(&destination.join("same"), 0o600);
    // It needs none either, but is left alone.
    tree::set_mode(&destination.join("longer"), 0o600);
    tree::set_mtime(source, (1_100_000_000, 5));
}

#[test]
fn every_case_comes_out_as_with_rsync() {
    needs_dsync!();
    for option in ["--append", "--append-verify"] {
        let scratch = Scratch::new();
        let by_rsync = scratch.at("rsync");
        plant(&scratch.src(), &by_rsync);
        let rsync = oracle::rsync([
            "-ai".as_ref(),
            option.as_ref(),
            slash(&scratch.src()).as_os_str(),
            by_rsync.as_os_str(),
        ]);
        // rsync lists a file again when it sends it a second time.
        let mut wanted: Vec<_> =
            rsync.expect_code(0).stdout_text().lines().map(|line| line[12..].to_owned()).collect();
        wanted.sort_unstable();
        wanted.dedup();
        every_way(&scratch, &["-a", "-i", option], |copy, to| {
            plant(&scratch.src(), to);
            let inode = fs::metadata(to.join("shorter")).unwrap().ino();
            let outcome = copy().run().expect_quiet_success();
            let text = outcome.stdout_text();
            let mut told: Vec<_> = text.lines().map(|line| line[12..].to_owned()).collect();
            told.sort_unstable();
            assert_eq!(told, wanted);
            assert_same(&by_rsync, to, Scope::full());
            assert_eq!(fs::metadata(to.join("shorter")).unwrap().ino(), inode, "it is the file itself");
            assert_eq!(compare::temporaries(to), Vec::<String>::new());
        });
    }
}

#[test]
fn mebibyte_added_to_a_long_file_is_all_that_is_read_and_sent() {
    needs_dsync!();
    const LONG: u64 = 256 << 20;
    let scratch = Scratch::new();
    let sshd = Sshd::shared();
    let (from, to) = (scratch.src().join("log"), scratch.dst().join("log"));
    fs::create_dir(scratch.dst()).unwrap();
    // Its content must not matter, so a hole suffices.
    for path in [&from, &to] {
        fs::File::create(path).unwrap().set_len(LONG).unwrap();
        tree::set_mtime(path, OLD);
    }
    let local = |run: Run| run.arg(slash(&scratch.src())).arg(scratch.dst());
    let push = |run: Run| run.arg(slash(&scratch.src())).arg(sshd.operand(scratch.dst()));
    let pull = |run: Run| run.arg(sshd.operand(slash(&scratch.src()))).arg(scratch.dst());
    let runs: [(Run, &dyn Fn(Run) -> Run); 4] = [
        (Run::dsync(), &local),
        (sshd.run(Via::Quic), &push),
        (sshd.run(Via::Ssh), &push),
        (sshd.run(Via::Quic), &pull),
    ];
    for (number, (run, operands)) in runs.into_iter().enumerate() {
        let mut log = fs::OpenOptions::new().append(true).open(&from).unwrap();
        log.write_all(&tree::noise(number as u64, 1 << 20)).unwrap();
        let run = operands(run.counting_io().args(["-a", "--append", "--stats"]));
        let outcome = run.run().expect_code(0);
        assert_eq!(outcome.stat("Literal data"), 1 << 20, "{}", outcome.account());
        assert_eq!(outcome.stat("Matched data"), 0, "{}", outcome.account());
        if number > 0 {
            let wire = outcome.stat("Total bytes sent") + outcome.stat("Total bytes received");
            assert!(wire < (1 << 20) + (64 << 10), "{}", outcome.account());
        }
        // Counts reads of the process at this end, including its own files and connections.
        let read = outcome.stat("rchar");
        assert!(read < 16 << 20, "{read} bytes were read\n{}", outcome.account());
        assert_eq!(compare::sum(&to), compare::sum(&from));
    }
}

#[test]
fn users_own_file_that_its_mode_protects_is_continued_at_the_first_attempt() {
    needs_dsync!();
    needs_root!();
    const NOBODY: u32 = 65_534;
    let content = tree::noise(7, 300_000);
    for option in ["--append", "--append-verify", "--inplace"] {
        for remote in [false, true] {
            let scratch = Scratch::new();
            let (from, to) = (scratch.src().join("log"), scratch.dst().join("log"));
            fs::create_dir(scratch.dst()).unwrap();
            fs::write(&from, &content).unwrap();
            fs::write(&to, &content[..200_000]).unwrap();
            tree::set_mtime(&to, OLD);
            tree::set_mode(&to, 0o444);
            for path in [scratch.path(), &scratch.dst(), &to] {
                chown(path, Some(NOBODY), Some(NOBODY)).unwrap();
            }
            let shell = remote_shell::write(scratch.at("shell"), remote_shell::PLAIN);
            let run = Run::dsync().args(["-a", option, "--no-W", "--stats", "-e"]).arg(shell);
            let run = run.arg("--dsync-path").arg(program()).arg(slash(&scratch.src()));
            let to_dir = scratch.dst().display().to_string();
            let operand = if remote { format!("localhost:{to_dir}") } else { to_dir };
            let inode = fs::metadata(&to).unwrap().ino();
            let outcome = run.arg(operand).as_user(NOBODY, NOBODY).run().expect_code(0);
            let sent = outcome.stat("Literal data");
            // In place, a block that the file ends within is sent whole.
            assert!((100_000..110_000).contains(&sent), "{option}: {}", outcome.account());
            assert_eq!(fs::read(&to).unwrap(), content, "{option}");
            assert_eq!(fs::metadata(&to).unwrap().ino(), inode, "{option}");
        }
    }
}

#[test]
fn old_content_is_not_read_where_it_is_believed_and_is_where_it_is_compared() {
    needs_dsync!();
    for (option, reads) in [("--append", false), ("--append-verify", true)] {
        let scratch = Scratch::new();
        let content = tree::noise(5, 3 << 20);
        fs::create_dir(scratch.dst()).unwrap();
        fs::write(scratch.src().join("log"), &content).unwrap();
        fs::write(scratch.dst().join("log"), &content[..2 << 20]).unwrap();
        let (outcome, calls) =
            strace::watch("pread64,preadv,preadv2,copy_file_range,ioctl,mmap", &scratch.at("trace"), |run| {
                run.args(["-a", option]).arg(slash(&scratch.src())).arg(scratch.dst())
            });
        let _ = outcome.expect_code(0);
        // The last argument is the offset of a read.
        let early = |call: &&String| {
            let arguments = call.strip_prefix("pread64(").and_then(|rest| rest.rsplit_once(") = "));
            let offset =
                arguments.and_then(|(arguments, _)| arguments.rsplit(", ").next()?.parse::<u64>().ok());
            offset.is_some_and(|offset| offset < 2 << 20)
        };
        let early: Vec<_> = calls.iter().filter(early).collect();
        let of_content = early.iter().any(|call| call.contains("262144"));
        assert_eq!(of_content, reads, "{option}: {early:#?}");
    }
}

#[test]
fn what_is_added_is_on_the_disk_before_the_file_has_its_length() {
    needs_dsync!();
    let scratch = Scratch::new();
    let content = [tree::noise(5, 3 << 20), vec![1]].concat();
    fs::create_dir(scratch.dst()).unwrap();
    fs::write(scratch.src().join("log"), &content).unwrap();
    fs::write(scratch.dst().join("log"), &content[..2 << 20]).unwrap();
    let calls = "fdatasync,pwrite64,copy_file_range,ftruncate";
    let (outcome, calls) = strace::watch(calls, &scratch.at("trace"), |run| {
        run.args(["-a", "--append"]).arg(slash(&scratch.src())).arg(scratch.dst())
    });
    let _ = outcome.expect_code(0);
    let last = calls.iter().position(|call| call.starts_with("pwrite64") && call.contains(", 1, 3145728)"));
    let last = last.unwrap_or_else(|| panic!("the last byte comes by itself: {calls:#?}"));
    let synced = calls.iter().position(|call| call.starts_with("fdatasync")).expect("a sync");
    let added =
        calls.iter().position(|call| call.starts_with("copy_file_range") || call.starts_with("pwrite64"));
    assert!(added.expect("a write") < synced && synced < last, "{calls:#?}");
}

#[test]
fn holes_and_zeros_at_the_end_are_added_too() {
    needs_dsync!();
    let scratch = Scratch::new();
    for (options, number) in [(&["--append"][..], 0), (&["--append-verify", "-S"], 1)] {
        every_way(&scratch, &[&["-a"], options].concat(), |copy, to| {
            fs::create_dir_all(to).unwrap();
            let content = [tree::noise(number, 1 << 20), vec![0; 300_000], tree::noise(9, 70_000)].concat();
            fs::write(scratch.src().join("f"), &content).unwrap();
            fs::write(scratch.src().join("zeros"), [&content[..5000], &[0; 5000]].concat()).unwrap();
            for name in ["f", "zeros"] {
                let file = fs::OpenOptions::new().write(true).open(scratch.src().join(name)).unwrap();
                file.set_len(file.metadata().unwrap().len() + (1 << 20)).unwrap();
                fs::write(to.join(name), &content[..4000]).unwrap();
            }
            let _ = copy().run().expect_quiet_success();
            assert_same(&scratch.src(), to, Scope { root: false, ..Scope::full() });
        });
    }
}

#[test]
fn old_files_that_are_added_to_have_backups() {
    needs_dsync!();
    let scratch = Scratch::new();
    every_way(&scratch, &["-a", "--append", "-b"], |copy, to| {
        fs::create_dir_all(to).unwrap();
        fs::write(scratch.src().join("f"), b"one two").unwrap();
        fs::write(to.join("f"), b"one").unwrap();
        let _ = copy().run().expect_quiet_success();
        assert_eq!(fs::read(to.join("f")).unwrap(), b"one two");
        assert_eq!(fs::read(to.join("f~")).unwrap(), b"one");
    });
}

/// Appends to a file whose source becomes shorter when all but the last byte is written, where the
/// run stops itself. Returns `false` when strace lost the race for the stopped run, which proves
/// nothing.
fn shrinks_meanwhile(content: &[u8], option: &str, shorter: usize) -> bool {
    let scratch = Scratch::new();
    let (source, target) = (scratch.src().join("f"), scratch.dst().join("f"));
    fs::write(&source, content).unwrap();
    fs::create_dir(scratch.dst()).unwrap();
    fs::write(&target, &content[..2_000_000]).unwrap();
    tree::set_mtime(&target, OLD);
    let run = Run::dsync().args(["-a", option]).arg(slash(&scratch.src())).arg(scratch.dst());
    let mut run = strace::inject_into(run, "fdatasync", "signal=SIGSTOP:when=1").start();
    wait_for(|| fs::metadata(&target).unwrap().len() == LEN as u64 - 1);
    let stopped = run.children();
    fs::OpenOptions::new().write(true).open(&source).unwrap().set_len(shorter as u64).unwrap();
    tree::set_mtime(&source, (1_300_000_000, 5));
    // Another thread that reaches the call stops the run again.
    while run.is_running() {
        stopped.iter().for_each(|&pid| send(pid, Signal::CONT));
        std::thread::sleep(Duration::from_millis(20));
    }

    let outcome = run.wait();
    if outcome.stderr_text().starts_with("strace: ptrace(") {
        return false;
    }
    let there = fs::read(&target).unwrap();
    if shorter > 2_000_000 {
        let _ = outcome.expect_quiet_success();
        assert!(there == content[..shorter], "{option}: {} bytes for {shorter}", there.len());
        assert_same(&scratch.src(), &scratch.dst(), Scope::full());
    } else {
        let _ = outcome.expect_code(24);
        assert!(there == content[..2_000_000], "{option}: {} bytes", there.len());
        assert_ne!(fs::metadata(&target).unwrap().mtime(), 1_300_000_000);
    }
    true
}

#[test]
fn source_that_shrinks_while_it_is_added_leaves_nothing_beyond_its_end() {
    needs_dsync!();
    let content = tree::noise(1, LEN);
    for option in ["--append", "--append-verify"] {
        for shorter in [LEN - 1_000_000, 3_000_000, 1_000_000] {
            let shown = (0..10).any(|_| shrinks_meanwhile(&content, option, shorter));
            assert!(shown, "{option} {shorter}: strace fails each time");
        }
    }
}
