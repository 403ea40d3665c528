//! `--stop-after`: a run that ends by itself leaves what it had finished, deletes nothing and can be
//! taken up again. And one that is told to end does so at once, whatever it does.

use std::{
    fs,
    os::{fd::AsFd, unix::fs::symlink},
    path::Path,
    process::{Command, Stdio},
    time::{Duration, UNIX_EPOCH},
};

use dsync_tests::{
    Node, Run, Scope, Scratch, Sshd, Tree, Via, assert_same,
    compare::temporaries,
    needs_dsync, program,
    run::{is_stopped, send, wait_for},
    scratch::slash,
};
use rustix::{io::ioctl_fionread, pipe::fcntl_setpipe_size, process::Signal};

/// The shortest limit is a minute, and a run that would take hours is what it has to end.
#[test]
fn a_run_stops_after_its_time_and_is_taken_up_again() {
    needs_dsync!();
    let scratch = Scratch::new();
    Tree::of([Node::file("a", 1, 1000), Node::file("b", 2, 64 << 20)]).plant(&scratch.src());
    Tree::of([Node::file("extra", 3, 10)]).plant(&scratch.dst());
    let run = || Run::dsync().args(["-a", "--delete"]).arg(slash(&scratch.src())).arg(scratch.dst());
    let slow = run().args(["--bwlimit=4", "--partial", "--time-limit=1"]).limit(Duration::from_secs(1800));
    let outcome = slow.run().expect_code(30);
    let said = "stopping at requested limit; what was finished is kept (exit code 30)";
    assert!(outcome.stderr_text().contains(said), "{}", outcome.account());
    assert!(scratch.dst().join("extra").exists() && !scratch.dst().join("b").exists());
    let _ = run().run().expect_quiet_success();
    assert_same(&scratch.src(), &scratch.dst(), Scope::full());
    assert!(temporaries(&scratch.dst()).is_empty());
}

#[test]
fn times_that_have_passed_are_refused_before_anything_is_done() {
    needs_dsync!();
    let scratch = Scratch::new();
    fs::write(scratch.src().join("f"), "x").unwrap();
    for option in ["--stop-at=2020-01-01T00:00", "--stop-at=x", "--stop-after=0", "--stop-after=1m"] {
        let run = Run::dsync().args(["-a", option]).arg(slash(&scratch.src())).arg(scratch.dst());
        let _ = run.run().expect_code(1);
        assert!(!scratch.dst().exists(), "{option}");
    }
    // The last one counts.
    let run = Run::dsync().args(["-a", "--stop-at=2020-01-01", "--stop-after=60"]);
    let _ = run.arg(slash(&scratch.src())).arg(scratch.dst()).run().expect_quiet_success();
}

/// Returns whether a process has a file of this name open.
fn has_open(pid: u32, name: &str) -> bool {
    let fds = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    fds.filter_map(|fd| fs::read_link(fd.path()).ok()).any(|target| target.ends_with(name))
}

/// The files are one hole each, which costs no disk and takes minutes to read.
#[test]
fn a_run_that_is_told_to_end_does_not_read_a_large_file_to_its_end() {
    needs_dsync!();
    const LEN: u64 = 256 << 30;
    let (scratch, sshd) = (Scratch::new(), Sshd::shared());
    for (path, len, seconds) in [(scratch.src(), LEN, 2), (scratch.dst(), LEN / 2, 1)] {
        fs::create_dir_all(&path).unwrap();
        let file = fs::File::create(path.join("large")).unwrap();
        file.set_len(len).unwrap();
        file.set_modified(UNIX_EPOCH + Duration::from_secs(seconds)).unwrap();
    }

    let ways: [&[&str]; 4] = [&["-a"], &["-a", "--inplace"], &["-ac"], &["-a", "--append-verify"]];
    for options in ways {
        for (from, to) in [(false, false), (true, false), (false, true)] {
            // A local copy passes over holes.
            if !from && !to && !["-ac", "--append-verify"].contains(&options[options.len() - 1]) {
                continue;
            }
            let remote = sshd.remote();
            let mut run = if from || to { sshd.run_serving(Via::Ssh, &remote.script) } else { Run::dsync() };
            // With the same length for what compares content.
            let old = fs::File::options().write(true).open(scratch.dst().join("large")).unwrap();
            old.set_len(if options == ["-ac"] { LEN } else { LEN / 2 }).unwrap();
            old.set_modified(UNIX_EPOCH + Duration::from_secs(1)).unwrap();

            let at = |is_remote, path: &Path| if is_remote { sshd.operand(path) } else { path.into() };
            run = run.args(options).arg(at(from, slash(&scratch.src()).as_ref())).arg(at(to, &scratch.dst()));
            let running = run.start();
            let mut ends = vec![running.id()];
            if from || to {
                ends.push(remote.wait_for_id());
            }
            wait_for(|| ends.iter().any(|&pid| has_open(pid, "large")));
            running.signal(Signal::TERM);
            let _ = running.wait().expect_code(20);
            remote.wait_until_gone();
            // The note of a file that has its length already, and not its attributes, is for the next run.
            let mut left = temporaries(&scratch.dst());
            let has_length = || fs::metadata(scratch.dst().join("large")).unwrap().len() == LEN;
            if options.contains(&"--append-verify") && has_length() {
                left.retain(|name| !name.contains(".dsync-note-"));
            }
            assert!(left.is_empty(), "{options:?}: {left:?}");
            for name in fs::read_dir(scratch.dst()).unwrap().map(|entry| entry.unwrap().path()) {
                if name.to_string_lossy().contains(".dsync-note-") {
                    fs::remove_file(name).unwrap();
                }
            }
        }
    }
}

#[test]
fn a_run_that_is_told_to_end_reads_no_large_file_to_its_end_for_a_manifest_or_a_batch() {
    needs_dsync!();
    let scratch = Scratch::new();
    let file = fs::File::create(scratch.src().join("large")).unwrap();
    file.set_len(256 << 30).unwrap();
    for option in ["--write-manifest", "--only-write-batch", "--write-batch"] {
        let told = format!("{option}={}", scratch.at("told").display());
        let run = Run::dsync().arg("-a").arg(&told).arg(slash(&scratch.src())).arg(scratch.dst());
        let running = run.start();
        // The hole is made at once, and then it is read.
        let is_read = || {
            fs::read_to_string(format!("/proc/{}/io", running.id()))
                .is_ok_and(|io| bytes_read(&io) > 64 << 20)
        };
        wait_for(is_read);
        running.signal(Signal::TERM);
        let outcome = running.wait().expect_code(20);
        assert!(temporaries(&scratch.dst()).is_empty(), "{}", outcome.account());
        assert!(!scratch.at("told").exists(), "{}", outcome.account());
    }
}

/// Returns the bytes that a process has read, by its file in /proc.
fn bytes_read(io: &str) -> u64 {
    io.lines().find_map(|line| line.strip_prefix("rchar: ")).and_then(|bytes| bytes.parse().ok()).unwrap_or(0)
}

#[test]
fn two_signals_at_once_end_a_run_in_order() {
    needs_dsync!();
    // As timeout(1) sends them: to the command and to its group.
    for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
        for _ in 0..5 {
            let scratch = Scratch::new();
            fs::write(scratch.src().join("large"), vec![7; 30_000_000]).unwrap();
            let run = Run::dsync().args(["-a", "--bwlimit=2M", "src/", "dst/"]).cwd(scratch.path());
            let running = run.in_own_group().start();
            wait_for(|| has_open(running.id(), "large"));
            running.signal(signal);
            running.signal_group(signal);
            let outcome = running.wait().expect_code(20);
            assert!(outcome.stderr_text().contains("interrupted"), "{}", outcome.account());
            assert_eq!(temporaries(&scratch.dst()), Vec::<String>::new(), "{signal:?}");
        }
    }
}

/// As with `2>&1 | tee LOG` while the disk of LOG hangs.
#[test]
fn a_run_whose_lines_nobody_reads_is_stopped_and_ended_by_a_signal_all_the_same() {
    needs_dsync!();
    let scratch = Scratch::new();
    for number in 0..200 {
        symlink("/no/such/file", scratch.src().join(format!("{number:0200}"))).unwrap();
    }
    let mut command = Command::new(program());
    command.args(["-rL", "src/", "dst/"]).current_dir(scratch.path());
    let mut run = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let unread = run.stderr.take().unwrap();
    wait_until_full(&unread);

    send(run.id(), Signal::USR1);
    send(run.id(), Signal::TSTP);
    wait_for(|| is_stopped(run.id()));
    send(run.id(), Signal::CONT);
    send(run.id(), Signal::TERM);
    assert_eq!(run.wait().unwrap().code(), Some(20));
    drop(unread);
}

/// Makes a pipe a page long, and waits until something is in it: `poll` calls it full then.
fn wait_until_full(pipe: &impl AsFd) {
    fcntl_setpipe_size(pipe, 4096).unwrap();
    wait_for(|| ioctl_fionread(pipe).unwrap() > 0);
}

#[test]
fn a_run_whose_list_nobody_reads_ends_at_the_first_signal_and_lets_go_of_its_lock() {
    needs_dsync!();
    let scratch = Scratch::new();
    for number in 0..200 {
        fs::write(scratch.src().join(format!("{number:0200}")), "").unwrap();
    }
    let _ = Run::dsync().args(["-a", "src/", "same/"]).cwd(scratch.path()).run().expect_quiet_success();
    for words in [
        &["-ai", "src/", "dst/"][..],
        &["-a", "--json", "src/", "dst/"],
        &["-ai", "--watch", "src/", "dst/"],
        &["-a", "src/"],
        &["verify", "src", "--against", "empty"],
    ] {
        let _ = fs::remove_dir_all(scratch.dst());
        let _ = fs::create_dir(scratch.at("empty"));
        let mut command = Command::new(program());
        command.args(words).current_dir(scratch.path());
        let mut run = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let unread = run.stdout.take().unwrap();
        wait_until_full(&unread);
        send(run.id(), Signal::TERM);
        assert_eq!(run.wait().unwrap().code(), Some(20), "{words:?}");
        drop(unread);
    }
    let _ = Run::dsync().args(["-a", "src/", "dst/"]).cwd(scratch.path()).run().expect_quiet_success();
}

/// A terminal sends Ctrl-C to all of its foreground group, so the remote shell ends before dsync has told the
/// other end.
#[test]
fn an_interrupt_that_ends_the_remote_shell_as_well_is_an_interrupt() {
    needs_dsync!();
    let (scratch, sshd) = (Scratch::new(), Sshd::shared());
    Tree::of([Node::file("small", 1, 10), Node::file("large", 2, 64 << 20)]).plant(&scratch.src());
    for pulls in [false, true] {
        let _ = fs::remove_dir_all(scratch.dst());
        let at = |is_remote, path: &Path| if is_remote { sshd.operand(path) } else { path.into() };
        let running = sshd
            .run(Via::Ssh)
            .args(["-a", "--bwlimit=2M"])
            .arg(at(pulls, slash(&scratch.src()).as_ref()))
            .arg(at(!pulls, &scratch.dst()))
            .in_own_group()
            .start();
        wait_for(|| scratch.dst().exists());
        running.signal_group(Signal::INT);
        let outcome = running.wait().expect_code(20);
        assert!(outcome.stderr_text().contains("interrupted"), "{}", outcome.account());
    }
}
