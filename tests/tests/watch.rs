//! `--watch`: what changes at the source is at the destination soon, until an interrupt.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use dsync_tests::{
    Run, Running, Scope, Scratch, Sshd, Via, assert_same, needs_dsync, program, run::wait_for, scratch::slash,
};
use rustix::process::Signal;
use serde_json::Value;

/// Starts a watch of `src` and waits until its first run has made `dst/first`.
fn watch(scratch: &Scratch, run: Run, to: impl AsRef<std::ffi::OsStr>) -> Running {
    fs::write(scratch.at("src/first"), "first").unwrap();
    let run = run.args(["-a", "--delete", "--watch"]).arg(slash(&scratch.src())).arg(to);
    let running = run.start();
    wait_for(|| has(&scratch.at("dst/first"), "first"));
    running
}

fn has(path: &Path, content: &str) -> bool {
    fs::read_to_string(path).is_ok_and(|found| found == content)
}

/// Changes the source in several ways and waits until the destination has followed.
fn change_all(scratch: &Scratch) {
    let (src, dst) = (|name: &str| scratch.src().join(name), |name: &str| scratch.dst().join(name));
    fs::create_dir_all(src("new/deep/er")).unwrap();
    fs::write(src("new/deep/er/file"), "1").unwrap();
    wait_for(|| has(&dst("new/deep/er/file"), "1"));
    // In a directory that came after the watch began.
    fs::write(src("new/deep/er/file"), "22").unwrap();
    wait_for(|| has(&dst("new/deep/er/file"), "22"));
    fs::set_permissions(src("new/deep/er/file"), fs::Permissions::from_mode(0o600)).unwrap();
    let mode = |path: PathBuf| fs::metadata(path).map(|found| found.permissions().mode() & 0o777);
    wait_for(|| mode(dst("new/deep/er/file")).is_ok_and(|mode| mode == 0o600));
    // Changes in a directory that was moved are seen as well.
    fs::rename(src("new/deep"), src("moved")).unwrap();
    wait_for(|| has(&dst("moved/er/file"), "22") && !dst("new/deep").exists());
    fs::write(src("moved/er/file"), "333").unwrap();
    wait_for(|| has(&dst("moved/er/file"), "333"));
    fs::remove_dir_all(src("moved")).unwrap();
    wait_for(|| !dst("moved").exists());
}

/// Ends a watch; the trees are equal, and the exit code is that of an interrupt.
fn end(scratch: &Scratch, running: Running) {
    running.signal(Signal::TERM);
    let outcome = running.wait().expect_code(20);
    assert!(outcome.stderr_text().contains("dsync: interrupted"), "{}", outcome.account());
    assert_same(&scratch.src(), &scratch.dst(), Scope { dir_times: false, ..Scope::full() });
}

#[test]
fn a_local_destination_and_a_remote_one_follow_each_change() {
    needs_dsync!();
    let scratch = Scratch::new();
    let running = watch(&scratch, Run::dsync(), scratch.dst());
    change_all(&scratch);
    end(&scratch, running);

    let (scratch, sshd) = (Scratch::new(), Sshd::shared());
    let running = watch(&scratch, sshd.run(Via::Ssh), sshd.operand(scratch.dst()));
    change_all(&scratch);
    end(&scratch, running);
}

#[test]
fn a_program_reads_a_stream_of_events_for_each_run() {
    needs_dsync!();
    let scratch = Scratch::new();
    let running = watch(&scratch, Run::dsync().arg("--json"), scratch.dst());
    fs::write(scratch.at("src/second"), "second").unwrap();
    wait_for(|| has(&scratch.at("dst/second"), "second"));
    running.signal(Signal::TERM);
    let outcome = running.wait().expect_code(20);

    let stdout = outcome.stdout_text();
    let events = stdout.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let mut runs: Vec<Vec<Value>> = Vec::new();
    for event in events {
        if event["event"] == "start" {
            runs.push(Vec::new());
        }
        runs.last_mut().expect("a run begins with its start").push(event);
    }
    assert!(runs.len() >= 2, "{}", outcome.account());
    for run in &runs {
        assert_eq!(run.last().unwrap()["event"], "summary", "{}", outcome.account());
    }
    let names = |run: &[Value], name: &str| run.iter().any(|event| event["path"] == name);
    assert!(names(&runs[0], "first") && !names(&runs[0], "second"), "{}", outcome.account());
    assert!(runs[1..].iter().any(|run| names(run, "second")), "{}", outcome.account());
}

#[test]
fn more_changes_than_the_system_keeps_lead_to_another_look() {
    needs_dsync!();
    let scratch = Scratch::new();
    let running = watch(&scratch, Run::dsync(), scratch.dst());
    let kept = fs::read_to_string("/proc/sys/fs/inotify/max_queued_events").unwrap();
    let kept: u64 = kept.trim().parse().unwrap();
    running.signal(Signal::STOP);
    // One after the other on two names, as the system joins equal ones.
    for number in 0..kept.min(200_000) {
        fs::write(scratch.at(if number % 2 == 0 { "src/a" } else { "src/b" }), "x").unwrap();
    }
    fs::create_dir_all(scratch.at("src/late/er")).unwrap();
    fs::write(scratch.at("src/late/er/file"), "1").unwrap();
    running.signal(Signal::CONT);
    wait_for(|| has(&scratch.at("dst/late/er/file"), "1"));
    fs::write(scratch.at("src/late/er/file"), "2").unwrap();
    wait_for(|| has(&scratch.at("dst/late/er/file"), "2"));
    end(&scratch, running);
}

#[test]
fn a_run_that_fails_is_made_again_and_one_that_cannot_begin_ends_the_watch() {
    needs_dsync!();
    let scratch = Scratch::new();
    // A remote shell that fails as long as there is a file, and counts.
    let (shell, broken, tries) = (scratch.at("shell"), scratch.at("broken"), scratch.at("tries"));
    let text = format!(
        "#!/bin/sh\nif test -e {}; then echo >>{}; exit 255; fi\nexec {} --server\n",
        broken.display(),
        tries.display(),
        program().display()
    );
    fs::write(&shell, text).unwrap();
    fs::set_permissions(&shell, fs::Permissions::from_mode(0o755)).unwrap();
    let through = || Run::dsync().args(["--transport=ssh", "--retries=0", "-e"]).arg(&shell);
    let to = format!("host:{}", scratch.dst().display());

    let running = watch(&scratch, through(), &to);
    fs::write(&broken, "").unwrap();
    fs::write(scratch.at("src/second"), "second").unwrap();
    wait_for(|| fs::read(&tries).is_ok_and(|tries| tries.len() >= 2));
    fs::remove_file(&broken).unwrap();
    wait_for(|| has(&scratch.at("dst/second"), "second"));
    running.signal(Signal::INT);
    let outcome = running.wait().expect_code(20);
    let said = outcome.stderr_text();
    assert!(said.contains("dsync: trying again in 1 s") && said.contains("in 2 s"), "{}", outcome.account());

    fs::write(&broken, "").unwrap();
    let run = through().args(["-a", "--watch"]).arg(slash(&scratch.src())).arg(&to);
    let outcome = run.run();
    assert!(outcome.code().is_some_and(|code| code != 0 && code != 20), "{}", outcome.account());
}

#[test]
fn a_watch_that_makes_no_sense_is_refused_with_a_sentence() {
    needs_dsync!();
    let scratch = Scratch::new();
    fs::write(scratch.at("src/file"), "x").unwrap();
    let run = |options: &[&str], from: PathBuf| {
        Run::dsync().args(["-a", "--watch"]).args(options).arg(from).arg(scratch.dst()).run()
    };
    for option in ["-n", "--progress", "--list-only", "-L", "-k", "--files-from=x"] {
        let outcome = run(&[option], scratch.src()).expect_code(1);
        assert!(outcome.stderr_text().contains("--watch"), "{}", outcome.account());
    }
    let outcome = run(&[], scratch.at("src/file")).expect_code(4);
    assert!(outcome.stderr_text().contains("--watch of a file"), "{}", outcome.account());
    let pull = Run::dsync().args(["-a", "--watch", "host:src/"]).arg(scratch.dst()).run();
    let pull = pull.expect_code(4);
    assert!(pull.stderr_text().contains("--watch of a remote source"), "{}", pull.account());
    assert!(!scratch.dst().exists() || fs::read_dir(scratch.dst()).unwrap().next().is_none());
}
