//! The cage of the end that faces a peer: the rights that it gives up, the cost, and the rights
//! that it keeps.

use std::{fs, os::unix::fs::symlink, path::PathBuf};

use dsync_tests::{
    Outcome, Run, Scope, Scratch, Tree, assert_same, needs_dsync, program, remote_shell, scratch::slash,
    sshd, strace,
};

/// Writes a remote shell that runs the remote end here, under strace with the trace in `trace`.
fn watched(scratch: &Scratch) -> PathBuf {
    let trace = scratch.at("trace");
    let script = format!("exec strace -f -qq -s 4096 -o {} sh -c \"$command\"", trace.display());
    remote_shell::write(scratch.at("watched"), &script)
}

/// Writes a remote shell that runs the remote end here.
fn plain(scratch: &Scratch) -> PathBuf {
    remote_shell::write(scratch.at("plain"), remote_shell::PLAIN)
}

fn over(shell: PathBuf, carrier: &str) -> Run {
    let carrier = format!("--transport={carrier}");
    Run::dsync().args(["-aHAXS", &carrier, "-e"]).arg(shell).arg("--dsync-path").arg(program())
}

/// Returns the remote end's calls from its start on.
fn calls(scratch: &Scratch) -> Vec<String> {
    strace::whole_calls(&fs::read_to_string(scratch.at("trace")).unwrap())
}

/// Checks that the remote end was caged before it looked at its tree, and refused nothing; returns
/// the number of calls.
fn assert_caged(scratch: &Scratch, outcome: Outcome, name: &str) -> usize {
    let _ = outcome.expect_code(0);
    let calls = calls(scratch);
    let at = |wanted: &str| {
        calls
            .iter()
            .position(|call| call.starts_with(wanted))
            .unwrap_or_else(|| panic!("{name}: no {wanted}"))
    };
    let (begin, end) = (at("prlimit64(0, RLIMIT_CORE"), at("seccomp(SECCOMP_SET_MODE_FILTER"));
    assert!(calls[end].contains("FLAG_TSYNC"), "{name}: {}", calls[end]);
    for wanted in [
        "prctl(PR_SET_DUMPABLE, SUID_DUMP_DISABLE",
        "prctl(PR_SET_NO_NEW_PRIVS, 1",
        "landlock_restrict_self(",
    ] {
        assert!(calls[begin..end].iter().any(|call| call.starts_with(wanted)), "{name}: {wanted}");
    }
    // The threads that carry bytes are caged before they begin: they start from a caged
    // one.
    assert!(
        at("landlock_restrict_self(") < at("epoll_create1("),
        "{name}: carriers were there before their cage"
    );
    let refused: Vec<_> = calls[end..]
        .iter()
        .filter(|call| ["EACCES", "EPERM", "ENOSYS", "EXDEV"].iter().any(|error| call.contains(error)))
        // The C library then makes its threads the older way.
        .filter(|call| !call.contains("clone3"))
        // The guard asks whether the destination is one of these; a handle for passing through
        // suffices.
        .filter(|call| {
            let guarded = [PathBuf::from("/"), sshd::home()];
            !guarded.iter().any(|dir| call.starts_with(&format!("openat(AT_FDCWD, \"{}\"", dir.display())))
        })
        .collect();
    assert!(refused.is_empty(), "{name}: the cage is too small: {refused:#?}");
    assert!(!calls[..begin].iter().any(|call| call.contains("getdents64")), "{name}: it listed before");
    end - begin + 1
}

#[test]
fn the_remote_end_is_caged_before_it_looks_and_is_refused_nothing_that_it_needs() {
    needs_dsync!();
    for carrier in ["ssh", "tls", "quic"] {
        let scratch = Scratch::new();
        Tree::sample().plant(&scratch.src());
        fs::create_dir(scratch.dst()).unwrap();
        fs::write(scratch.dst().join("old"), "old").unwrap();
        for round in ["push", "again", "pull"] {
            let run = over(watched(&scratch), carrier);
            let run = match round {
                "pull" => run.arg(format!("localhost:{}/", scratch.src().display())).arg(scratch.at("got")),
                _ => run
                    .args(["--delete", "-b", "--backup-dir=../old", "--temp-dir=../dst"])
                    .arg(slash(&scratch.src()))
                    .arg(format!("localhost:{}", scratch.dst().display())),
            };
            let calls = assert_caged(&scratch, run.run(), &format!("{carrier} {round}"));
            println!("{carrier} {round}: the cage took {calls} calls");
            assert!(calls <= 200, "{calls} calls");
        }
        assert_same(&scratch.src(), &scratch.dst(), Scope::full());
        assert_same(&scratch.src(), &scratch.at("got"), Scope::full());
        assert_eq!(fs::read(scratch.at("old/old")).unwrap(), b"old");
    }
}

#[test]
fn the_new_name_of_a_file_has_its_directories_beside_it() {
    needs_dsync!();
    for pull in [false, true] {
        let scratch = Scratch::new();
        fs::write(scratch.src().join("f"), "newer").unwrap();
        fs::create_dir(scratch.at("temp")).unwrap();
        fs::create_dir(scratch.dst()).unwrap();
        fs::write(scratch.dst().join("old"), "old").unwrap();
        for name in ["old", "added"] {
            let (from, to) = (scratch.src().join("f"), scratch.dst().join(name));
            let remote = |path: &PathBuf| format!("localhost:{}", path.display());
            let run = over(plain(&scratch), "tls")
                .args(["--temp-dir=../temp", "--backup-dir=../bk", "--link-dest=../dst", "--partial-dir=.p"])
                // Of the places for spools the scratch directory is none.
                .env("TMPDIR", "/var/tmp");
            let run = if pull { run.arg(remote(&from)).arg(to) } else { run.arg(from).arg(remote(&to)) };
            let _ = run.run().expect_code(0);
            assert_eq!(fs::read(scratch.dst().join(name)).unwrap(), b"newer", "pull: {pull}");
        }
        assert_eq!(fs::read(scratch.at("bk/old")).unwrap(), b"old", "pull: {pull}");
    }
}

#[test]
fn the_cage_says_in_the_log_what_it_cost() {
    needs_dsync!();
    let scratch = Scratch::new();
    fs::write(scratch.src().join("f"), "f").unwrap();
    for round in 0..5 {
        let log = scratch.at("log");
        let script = format!("{} 2>{}", remote_shell::PLAIN, log.display());
        let shell = remote_shell::write(scratch.at("logging"), &script);
        let run = over(shell, "ssh").env("DSYNC_LOG", "debug").arg(slash(&scratch.src()));
        let _ = run.arg(format!("localhost:{}", scratch.dst().display())).run().expect_code(0);
        let log = fs::read_to_string(log).unwrap();
        let line = log.lines().find(|line| line.contains("is caged, in")).unwrap_or_else(|| panic!("{log}"));
        let cost = line.rsplit_once("is caged, in ").unwrap().1;
        assert!(cost.strip_suffix(" ms").is_some_and(|ms| ms.parse::<f64>().is_ok()), "{line}");
        println!("round {round}: {cost}");
    }
}

#[test]
fn a_link_that_the_source_sends_does_not_lead_a_backup_out() {
    needs_dsync!();
    for pull in [false, true] {
        let scratch = Scratch::new();
        fs::create_dir(scratch.dst()).unwrap();
        fs::create_dir(scratch.at("outside")).unwrap();
        fs::write(scratch.dst().join("keys"), "operator's").unwrap();
        fs::write(scratch.src().join("keys"), "the source's own").unwrap();
        symlink(scratch.at("outside"), scratch.src().join("bak")).unwrap();
        let run = over(plain(&scratch), "ssh").args(["-b", "--backup-dir=bak"]);
        let remote = |path: PathBuf| format!("localhost:{}/", path.display());
        let run = if pull {
            run.arg(remote(scratch.src())).arg(slash(&scratch.dst()))
        } else {
            run.arg(slash(&scratch.src())).arg(remote(scratch.dst()))
        };
        let outcome = run.run();
        assert_ne!(outcome.code(), Some(0), "{}", outcome.account());
        assert_eq!(fs::read_dir(scratch.at("outside")).unwrap().count(), 0, "{}", outcome.account());
    }
}

#[test]
fn what_the_kernel_lacks_is_said_under_v_and_ends_nothing() {
    needs_dsync!();
    for (call, error, word) in [
        ("landlock_create_ruleset", "ENOSYS", "without Landlock"),
        ("landlock_create_ruleset", "EOPNOTSUPP", "lsm="),
        ("landlock_restrict_self", "E2BIG", "without Landlock"),
        ("seccomp", "EINVAL", "without a seccomp list"),
        ("prctl", "EINVAL", "without"),
    ] {
        let scratch = Scratch::new();
        fs::write(scratch.src().join("f"), "f").unwrap();
        let pull = |options: &[&str], to: &str| {
            let run = over(plain(&scratch), "ssh").args(options);
            let run = run.arg(format!("localhost:{}/", scratch.src().display())).arg(slash(&scratch.at(to)));
            strace::inject_into(run, call, &format!("error={error}")).run().expect_code(0)
        };
        let told = pull(&["-v"], "one");
        assert!(told.all_text().contains(word), "{call}: {}", told.account());
        let silent = pull(&[], "two");
        assert!(silent.all_text().is_empty(), "{call}: {}", silent.account());
        assert_eq!(fs::read(scratch.at("two/f")).unwrap(), b"f");
    }
}

#[test]
fn what_the_remote_kernel_lacks_is_said_here_under_v() {
    needs_dsync!();
    for pull in [false, true] {
        let scratch = Scratch::new();
        fs::write(scratch.src().join("f"), "f").unwrap();
        // Only the remote end's kernel has no Landlock.
        let script = "exec strace -f -qq -o /dev/null -e inject=landlock_create_ruleset:error=ENOSYS sh -c \"$command\"";
        let shell = remote_shell::write(scratch.at("lacking"), script);
        let run = |options: &[&str], to: &str| {
            let run = over(shell.clone(), "ssh").args(options);
            let there = |path: &std::path::Path| format!("localhost:{}/", path.display());
            let run = if pull {
                run.arg(there(&scratch.src())).arg(slash(&scratch.at(to)))
            } else {
                run.arg(slash(&scratch.src())).arg(there(&scratch.at(to)))
            };
            run.run().expect_code(0)
        };
        let told = run(&["-v"], "one");
        let word = "dsync: at the remote end the run is caged without Landlock";
        assert!(told.all_text().contains(word), "pull {pull}: {}", told.account());
        let silent = run(&[], "two");
        assert!(silent.all_text().is_empty(), "pull {pull}: {}", silent.account());
    }
}

#[test]
fn links_to_directories_lead_a_run_elsewhere_when_the_operator_says_so() {
    needs_dsync!();
    let scratch = Scratch::new();
    fs::create_dir_all(scratch.src().join("d")).unwrap();
    fs::write(scratch.src().join("d/f"), "f").unwrap();
    for dir in ["dst", "elsewhere"] {
        fs::create_dir(scratch.at(dir)).unwrap();
    }
    symlink(scratch.at("elsewhere"), scratch.dst().join("d")).unwrap();
    let run = over(plain(&scratch), "ssh").args(["-Kv", "-M--insecure-links"]).arg(slash(&scratch.src()));
    let _ = run.arg(format!("localhost:{}", scratch.dst().display())).run().expect_code(0);
    assert_eq!(fs::read(scratch.at("elsewhere/f")).unwrap(), b"f");
}
