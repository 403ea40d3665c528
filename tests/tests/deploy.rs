//! A remote host without dsync: `--deploy` copies this program there, whole or not at all.

use std::{
    ffi::OsString,
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Command,
};

use dsync_tests::{Outcome, Run, Scratch, Sshd, needs_dsync, program, scratch::slash};

/// Returns the entries of the cache of copies.
fn copies(home: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(home.join(".cache/dsync")) else { return Vec::new() };
    entries.map(|entry| entry.unwrap().path()).collect()
}

/// Writes a remote shell that runs its command in a home of its own, with `before` it.
fn shell(scratch: &Scratch, before: &str) -> PathBuf {
    let (path, home) = (scratch.at("shell"), scratch.at("home"));
    fs::create_dir_all(&home).unwrap();
    let home = home.display();
    let text = format!(
        "#!/bin/sh\nshift\nunset XDG_CACHE_HOME\nexport HOME={home} PATH=/usr/bin:/bin\ncd {home}\n\
         echo \"$*\" >>{home}/../commands\n{before}\nexec sh -c \"$*\"\n"
    );
    fs::write(&path, text).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path
}

fn push(scratch: &Scratch, shell: &Path, options: &[&str]) -> Outcome {
    fs::write(scratch.src().join("file"), "content").unwrap();
    let mut host = OsString::from("host:");
    host.push(scratch.dst());
    let run = Run::dsync().args(["-a", "--transport=ssh", "-e"]).arg(shell).args(options);
    run.arg(slash(&scratch.src())).arg(host).run()
}

#[test]
fn host_without_the_program_gets_a_copy_and_later_runs_use_it() {
    needs_dsync!();
    let scratch = Scratch::new();
    let sshd = Sshd::without_program();
    fs::write(scratch.src().join("file"), "content").unwrap();
    let run = |options: &[&str], to: &Path| {
        let run = Run::dsync().arg("-a").arg("-e").arg(sshd.shell()).args(options);
        run.arg(slash(&scratch.src())).arg(sshd.operand(to)).run()
    };
    let home = sshd.home_of_sessions();

    let without = run(&[], &scratch.at("one"));
    let without = without.expect_code(127);
    let text = without.stderr_text();
    assert!(text.contains("--deploy") && text.contains("by hand, if it runs Linux"), "{}", without.account());
    assert!(copies(&home).is_empty() && !scratch.at("one").exists());

    let first = run(&["--deploy"], &scratch.at("two")).expect_code(0);
    assert!(first.stderr_text().contains("copying this program"), "{}", first.account());
    assert_eq!(fs::read(scratch.at("two/file")).unwrap(), b"content");
    let made = copies(&home);
    let [copy] = made.as_slice() else { panic!("{made:?}") };
    let name = copy.file_name().unwrap().to_str().unwrap();
    assert!(name.starts_with("dsync-") && name.len() > 20, "{name}");
    assert_eq!(fs::read(copy).unwrap(), fs::read(program()).unwrap());
    assert_eq!(fs::metadata(copy).unwrap().permissions().mode() & 0o777, 0o700);
    assert_eq!(fs::metadata(home.join(".cache/dsync")).unwrap().permissions().mode() & 0o777, 0o700);

    // Found again and not sent, over a pull too.
    let again = run(&["--deploy"], &scratch.at("three")).expect_code(0);
    assert_eq!(again.stderr_text(), "", "{}", again.account());
    let pull = Run::dsync().args(["-a", "--deploy", "-e"]).arg(sshd.shell());
    let pull = pull.arg(sshd.operand(slash(&scratch.src()))).arg(scratch.at("four")).run();
    let _ = pull.expect_quiet_success();
    assert_eq!(fs::read(scratch.at("four/file")).unwrap(), b"content");

    // A copy with other bytes is not run but replaced.
    // Made anew: the server of the run before may not have ended yet, and its image is not written to.
    fs::remove_file(copy).unwrap();
    fs::write(copy, "#!/bin/sh\ntouch \"$HOME/was-run\"\n").unwrap();
    fs::set_permissions(copy, fs::Permissions::from_mode(0o700)).unwrap();
    let mended = run(&["--deploy"], &scratch.at("five")).expect_code(0);
    assert!(mended.stderr_text().contains("copying this program"), "{}", mended.account());
    assert!(!home.join("was-run").exists());
    assert_eq!(fs::read(copy).unwrap(), fs::read(program()).unwrap());
}

#[test]
fn copy_that_did_not_arrive_whole_never_has_its_name() {
    needs_dsync!();
    for (cut, words) in [
        ("case \"$*\" in *umask*) head -c 5000 | sh -c \"$*\"; exit;; esac", "did not arrive whole"),
        ("case \"$*\" in *umask*) { cat; echo; } | sh -c \"$*\"; exit;; esac", "did not arrive whole"),
        ("case \"$*\" in *umask*) exit 255;; esac", "broke off"),
        ("case \"$*\" in *uname*) exit 1;; esac", "knows no sh, uname or HOME"),
        ("case \"$*\" in *umask*) exec yes;; esac", "answered with more than"),
        ("case \"$*\" in *uname*) exec cat /dev/zero;; esac", "answered with more than"),
        ("case \"$*\" in *uname*) printf 'why\\033[2J\\n' >&2; exit 1;; esac", "HOME (why\\u{1b}[2J)"),
        ("mkdir -p .cache; touch .cache/dsync", "cache directory cannot be made"),
        (
            "mkdir -m 755 -p .cache elsewhere; ln -sfn ../elsewhere .cache/dsync",
            "cache directory cannot be made",
        ),
    ] {
        let scratch = Scratch::new();
        let outcome = push(&scratch, &shell(&scratch, cut), &["--deploy"]).expect_code(127);
        assert!(outcome.stderr_text().contains(words), "{cut}: {}", outcome.account());
        assert!(copies(&scratch.at("home")).is_empty(), "{cut}: {:?}", copies(&scratch.at("home")));
        // Where a link has the directory's name, it leads to nothing that changes.
        let elsewhere =
            fs::metadata(scratch.at("home/elsewhere")).map(|found| found.permissions().mode() & 0o777);
        assert_eq!(elsewhere.ok(), cut.contains("elsewhere").then_some(0o755), "{cut}");
    }
}

#[test]
fn program_of_another_platform_is_not_sent() {
    needs_dsync!();
    let scratch = Scratch::new();
    let tools = scratch.at("tools");
    fs::create_dir(&tools).unwrap();
    fs::write(tools.join("uname"), "#!/bin/sh\necho Linux sparc64\n").unwrap();
    fs::set_permissions(tools.join("uname"), fs::Permissions::from_mode(0o755)).unwrap();
    let before = format!("PATH={}:$PATH", tools.display());
    let outcome = push(&scratch, &shell(&scratch, &before), &["--deploy"]).expect_code(127);
    assert!(outcome.stderr_text().contains("the host is Linux sparc64"), "{}", outcome.account());
    assert!(copies(&scratch.at("home")).is_empty());
    assert!(!fs::read_to_string(scratch.at("commands")).unwrap().contains("umask"));
}

#[test]
fn host_without_sha256sum_compares_by_cksum_and_a_banner_is_passed_over() {
    needs_dsync!();
    let scratch = Scratch::new();
    let tools = scratch.at("tools");
    fs::create_dir(&tools).unwrap();
    for tool in ["sh", "uname", "cksum", "mkdir", "chmod", "rm", "cat", "mv"] {
        let found = Command::new("sh").args(["-c", &format!("command -v {tool}")]).output().unwrap();
        let found = String::from_utf8(found.stdout).unwrap();
        std::os::unix::fs::symlink(found.trim(), tools.join(tool)).unwrap();
    }
    let before = format!("PATH={}; case \"$*\" in *uname*) echo Welcome; esac", tools.display());
    let shell = shell(&scratch, &before);
    let first = push(&scratch, &shell, &["--deploy"]).expect_code(0);
    assert!(first.stderr_text().contains("copying this program"), "{}", first.account());
    assert_eq!(copies(&scratch.at("home")).len(), 1);
    let again = push(&scratch, &shell, &["--deploy"]).expect_code(0);
    assert!(!again.stderr_text().contains("copying this program"), "{}", again.account());
}

#[test]
fn nothing_is_asked_or_sent_without_a_terminal_and_without_the_option() {
    needs_dsync!();
    let scratch = Scratch::new();
    let outcome = push(&scratch, &shell(&scratch, ""), &[]).expect_code(127);
    assert!(outcome.stderr_text().contains("it was not copied there"), "{}", outcome.account());
    // The one command that found no program.
    assert_eq!(fs::read_to_string(scratch.at("commands")).unwrap().lines().count(), 1);
    // Nor is anything sent for a program that was named.
    let named = push(&scratch, &shell(&scratch, ""), &["--dsync-path=/none/dsync"]).expect_code(127);
    assert!(!named.stderr_text().contains("by hand"), "{}", named.account());
}

#[test]
fn person_on_a_terminal_is_asked_and_only_a_yes_sends() {
    needs_dsync!();
    for (answer, code, copied) in [("n", 127, 0), ("", 127, 0), ("y", 0, 1)] {
        let scratch = Scratch::new();
        fs::write(scratch.src().join("file"), "content").unwrap();
        let shell = shell(&scratch, "");
        let (dsync, shell) = (program().display().to_string(), shell.display().to_string());
        let (from, to) = (scratch.src().display().to_string(), scratch.dst().display().to_string());
        let command = format!("{dsync} -r --transport=ssh -e {shell} {from}/ host:{to}");
        // script(1) makes the terminal.
        let typed = format!("printf '{answer}\\n' | script -qec '{command}' /dev/null");
        let outcome = Run::of("sh").args(["-c", &typed]).run().expect_code(code);
        let text = outcome.stdout_text();
        assert!(text.contains("dsync is not installed on host. Copy this program"), "{}", outcome.account());
        assert_eq!(copies(&scratch.at("home")).len(), copied, "{}", outcome.account());
        assert_eq!(scratch.dst().join("file").exists(), copied == 1);
    }
}
