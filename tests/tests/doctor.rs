//! `dsync doctor`: a directory here and on a host, what is wrong there, and that nothing is left.

use std::{fs, os::unix::fs::PermissionsExt, path::Path};

use dsync_tests::{Outcome, Run, Scratch, Sshd, needs_dsync, program};

/// Returns the names of the lines that have a verdict.
fn of(outcome: &Outcome, verdict: &str) -> Vec<String> {
    let text = outcome.stdout_text();
    let lines =
        text.lines().filter(|line| line.starts_with(verdict) && line.as_bytes().get(4) == Some(&b' '));
    lines.filter_map(|line| line.split_whitespace().nth(1)).map(str::to_owned).collect()
}

fn is_empty(dir: &Path) -> bool {
    fs::read_dir(dir).unwrap().count() == 0
}

fn remote(sshd: &Sshd, program: &Path) -> Run {
    Run::dsync().arg("doctor").arg("-e").arg(sshd.shell()).arg("--dsync-path").arg(program)
}

#[test]
fn directory_here_is_examined_and_left_as_it_was() {
    needs_dsync!();
    let scratch = Scratch::new();
    let outcome = Run::dsync().arg("doctor").arg(scratch.src()).run().expect_code(0);
    for name in ["user", "space", "symlinks", "hardlinks", "case"] {
        assert!(of(&outcome, "ok").contains(&name.to_owned()), "{name}: {}", outcome.account());
    }
    assert!(is_empty(&scratch.src()), "{}", outcome.account());
}

#[test]
fn directory_that_cannot_be_opened_fails_with_what_to_do() {
    needs_dsync!();
    let scratch = Scratch::new();
    let outcome = Run::dsync().arg("doctor").arg(scratch.at("no/such")).run().expect_code(1);
    assert_eq!(of(&outcome, "fail"), ["directory"]);
    assert!(outcome.stdout_text().contains("--mkpath"), "{}", outcome.account());
    let outcome = Run::dsync().arg("doctor").arg(scratch.at("new")).run().expect_code(0);
    assert!(outcome.stdout_text().contains("does not exist"), "{}", outcome.account());
    assert!(!scratch.at("new").exists());
    let outcome = Run::dsync().arg("doctor").arg("/proc").run().expect_code(1);
    assert_eq!(of(&outcome, "fail"), ["write"]);
    let _ = Run::dsync().arg("doctor").run().expect_code(1);
}

#[test]
fn host_is_examined_through_a_real_login_and_no_shell_reads_the_path() {
    needs_dsync!();
    let (scratch, sshd) = (Scratch::new(), Sshd::shared());
    let odd = scratch.at("it's $(touch x) a \"dir\"");
    fs::create_dir(&odd).unwrap();
    let outcome = remote(sshd, program()).arg(sshd.operand(&odd)).run().expect_code(0);
    for name in ["login", "program", "clock", "quic", "tls", "user", "symlinks"] {
        assert!(of(&outcome, "ok").contains(&name.to_owned()), "{name}: {}", outcome.account());
    }
    assert!(is_empty(&odd), "{}", outcome.account());

    let json = remote(sshd, program()).arg("--json").arg(sshd.operand(&odd)).run().expect_code(0);
    let text = json.stdout_text();
    assert!(text.starts_with('{') && text.contains("\"schema\":1") && text.lines().count() == 1, "{text}");
}

#[test]
fn a_remote_shell_that_tells_no_address_is_no_firewall() {
    needs_dsync!();
    let scratch = Scratch::new();
    let shell = scratch.at("shell");
    fs::write(&shell, "#!/bin/sh\n[ \"$1\" = -- ] && shift\nshift\nexec sh -c \"$*\"\n").unwrap();
    fs::set_permissions(&shell, fs::Permissions::from_mode(0o755)).unwrap();
    let there = format!("box.invalid:{}", scratch.src().display());
    let through = |run: Run| run.arg("-e").arg(&shell).arg("--dsync-path").arg(program()).arg(&there);
    let outcome = through(Run::dsync().arg("doctor")).run().expect_code(0);
    assert_eq!(of(&outcome, "warn"), ["quic", "tls"], "{}", outcome.account());
    let said = outcome.stdout_text();
    assert!(said.contains("UDP cannot be used to box.invalid: no address of it is known"), "{said}");
    assert!(said.contains("the pipe of the remote shell, which needs no open port"), "{said}");
    for strange in ["irewall", "within", "--transport"] {
        assert!(!said.contains(strange), "{strange}: {said}");
    }

    let demanded = through(Run::dsync().args(["-a", "--transport=quic"])).arg(scratch.dst()).run();
    let demanded = demanded.expect_code(35);
    let said = demanded.stderr_text();
    assert!(said.contains("no address of it is known") && !said.contains("irewall"), "{said}");
}

#[test]
fn host_without_the_program_and_host_out_of_reach_are_told_apart() {
    needs_dsync!();
    let (scratch, sshd) = (Scratch::new(), Sshd::shared());
    let outcome = remote(sshd, Path::new("/no/such/dsync")).arg(sshd.operand(scratch.src())).run();
    let outcome = outcome.expect_code(1);
    assert_eq!(of(&outcome, "fail"), ["program"]);
    assert!(outcome.stdout_text().contains("--dsync-path"), "{}", outcome.account());

    let lost = Run::dsync().args(["doctor", "-e", "ssh -o BatchMode=yes -p 1", "127.0.0.1:dir"]).run();
    let lost = lost.expect_code(1);
    assert_eq!(of(&lost, "fail"), ["login"]);
    assert!(lost.stdout_text().contains("Connection refused"), "{}", lost.account());
}

#[test]
fn host_that_answers_without_end_is_given_up() {
    needs_dsync!();
    let scratch = Scratch::new();
    for (flood, verdict) in [
        ("exec yes", "answered with more than"),
        ("exec cat /dev/zero", "answered with more than"),
        ("yes >&2 & sleep 1; kill $!; exit 255", "cannot be reached: y"),
        ("echo '{\"schema\": 1, '; exec yes ' '", "answered with more than"),
    ] {
        let shell = scratch.at("shell");
        fs::write(&shell, format!("#!/bin/sh\n{flood}\n")).unwrap();
        fs::set_permissions(&shell, fs::Permissions::from_mode(0o755)).unwrap();
        let outcome = Run::dsync().args(["doctor", "-e"]).arg(&shell).arg("h:/x").run().expect_code(1);
        assert!(outcome.stdout_text().contains(verdict), "{flood}: {}", outcome.account());
    }
}

#[test]
fn host_that_says_nothing_is_given_up() {
    needs_dsync!();
    let scratch = Scratch::new();
    let shell = scratch.at("shell");
    fs::write(&shell, "#!/bin/sh\nexec sleep 10000\n").unwrap();
    fs::set_permissions(&shell, fs::Permissions::from_mode(0o755)).unwrap();
    let run = Run::dsync().args(["doctor", "--contimeout=1", "-e"]).arg(&shell).arg("h:/x").run();
    let outcome = run.expect_code(1);
    assert!(outcome.stdout_text().contains("no answer from h within 1 s"), "{}", outcome.account());
}
