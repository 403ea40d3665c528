//! `cargo xtask test`: all tests, on a machine that has their tools.

use std::{
    collections::BTreeMap,
    env,
    fs::{self, File},
    net::TcpListener,
};

use crate::{
    binaries::{self, TestProgram},
    error::TaskError,
    scratch::{self, may_mount},
    step::{build_programs, root, succeeds},
    tools::{FOR_TESTS, is_root, provide},
};

/// Runs every test of the workspace, or those that the arguments select as they do for `cargo test`;
/// fails on a test that was skipped without permission.
///
/// # Errors
/// [`TaskError`] with the missing tools, failed commands or skipped tests.
pub(crate) fn run(args: &[String]) -> Result<(), TaskError> {
    provide(FOR_TESTS)?;
    if let Some(ended) = scratch::run_inside(args) {
        return ended;
    }
    let scratch = scratch::mount();
    // The end-to-end tests run the binary and the examples, which a test build need not contain.
    build_programs(&["dsync"])?;
    let mut parts = args.splitn(2, |arg| arg == "--");
    let mut part = || parts.next().unwrap_or_default();
    let mut programs = binaries::build(part(), part())?;
    if args.is_empty() {
        programs.push(TestProgram::doc_examples());
    }
    let log = root().join("target/skipped-tests");
    let _ = fs::remove_file(&log);
    for program in &mut programs {
        program.set_env("DSYNC_SKIP_LOG", &log);
        if let Some(scratch) = &scratch {
            program.set_env("TMPDIR", scratch);
        }
    }
    let mut ignored = String::new();
    let dir = root().join("target/test-output");
    fs::create_dir_all(&dir).map_err(|source| TaskError::Read { path: "target".into(), source })?;
    let failed = binaries::run(programs, &dir, &mut |output| {
        print!("{output}");
        ignored.push_str(&ignored_in(output));
    })?;
    if !failed.is_empty() {
        return Err(TaskError::Tests { failed });
    }
    let happened = fs::read_to_string(&log).unwrap_or_default() + &ignored;
    check_skips(&read("tests/skips.txt")?, &happened, &holds_here)
}

/// Returns the tests that the tests' output reports as ignored, as skips: no reason permits them.
fn ignored_in(output: &str) -> String {
    let name = |line: &str| {
        let name = line.strip_prefix("test ")?.split_once(" ... ignored")?.0;
        Some(format!("ignored {}\n", name.rsplit("::").next().unwrap_or(name)))
    };
    output.lines().filter_map(name).collect()
}

fn read(path: &str) -> Result<String, TaskError> {
    fs::read_to_string(root().join(path)).map_err(|source| TaskError::Read { path: path.into(), source })
}

/// Compares the skips that happened with those that are allowed; both are lines "reason test".
fn check_skips(allowed: &str, happened: &str, holds: &dyn Fn(&str) -> bool) -> Result<(), TaskError> {
    let pair =
        |line: &str| line.split_once(' ').map(|(reason, test)| (test.trim().to_owned(), reason.to_owned()));
    let lines = allowed.lines().filter(|line| !line.starts_with('#'));
    let mut leave: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (test, reason) in lines.filter_map(pair) {
        leave.entry(test).or_default().push(reason);
    }
    let is_allowed = |test: &String, reason: &String| {
        leave.get(test).is_some_and(|reasons| reasons.contains(reason)) && holds(reason)
    };
    let skipped: Vec<(String, String)> = happened.lines().filter_map(pair).collect();
    for (test, reason) in &skipped {
        println!("skipped: {test} ({reason})");
    }
    let tests: Vec<String> = skipped
        .iter()
        .filter(|(test, reason)| !is_allowed(test, reason))
        .map(|(test, reason)| format!("{test} ({reason})"))
        .collect();
    if tests.is_empty() { Ok(()) } else { Err(TaskError::Skipped { tests }) }
}

/// Returns whether a reason to skip really holds on this machine.
fn holds_here(reason: &str) -> bool {
    match reason {
        "needs-root" => !is_root(),
        "needs-namespace" => !succeeds("unshare", &["--net", "true"]),
        "needs-tun" => !succeeds("unshare", &["--net", "ip", "tuntap", "add", "lab", "mode", "tun"]),
        "needs-ipv6" => TcpListener::bind("[::1]:0").is_err(),
        "needs-loop" => !(may_mount() && succeeds("losetup", &["-f"])),
        "needs-fuse" => !(may_mount() && File::options().read(true).write(true).open("/dev/fuse").is_ok()),
        "needs-immutable" => {
            let probe = env::temp_dir().join(format!("dsync-immutable-{}", std::process::id()));
            let path = probe.to_string_lossy().into_owned();
            let works = fs::write(&probe, "").is_ok() && succeeds("chattr", &["+i", &path]);
            let _ = succeeds("chattr", &["-i", &path]);
            let _ = fs::remove_file(&probe);
            !works
        }
        _ => false,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    const ALLOWED: &str = "# comment\nneeds-root one\nneeds-root two\nneeds-ipv6 two\n";

    #[test]
    fn listed_skip_whose_reason_holds_is_allowed() {
        assert!(check_skips(ALLOWED, "needs-root one\nneeds-ipv6 two\n", &|_| true).is_ok());
        assert!(check_skips(ALLOWED, "", &|_| false).is_ok());
    }

    /// Returns the tests of a file with what each is: its name by module, and its text.
    fn tests_of<'a>(module: &str, text: &'a str) -> Vec<(String, &'a str)> {
        let tests = text.split("\n#[test]\n").skip(1);
        let name = |test: &str| {
            test.split_once("fn ").and_then(|(_, rest)| rest.split_once('(')).map(|(name, _)| name.to_owned())
        };
        let own = |test: &'a str| test.split_once("\n}\n").map_or(test, |(own, _)| own);
        tests.filter_map(|test| Some((format!("{module}{}", name(test)?), own(test)))).collect()
    }

    #[test]
    fn every_test_that_may_leave_itself_out_is_listed() {
        let list = read("tests/skips.txt").unwrap();
        let listed: Vec<_> = list.lines().collect();
        let reasons = [
            ("needs_root!", "needs-root"),
            ("needs_namespace!", "needs-namespace"),
            ("needs_lab!", "needs-tun"),
        ];
        let mut seen = 0;
        let mut unlisted = Vec::new();
        let mut dirs = vec![root().join("tests/tests")];
        while let Some(dir) = dirs.pop() {
            for entry in fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().path()) {
                if entry.is_dir() {
                    dirs.push(entry);
                    continue;
                }
                let stem = entry.file_stem().unwrap().to_str().unwrap();
                let is_root = dir.ends_with("tests/tests") || stem == "main";
                let module = if is_root { String::new() } else { format!("{stem}::") };
                for (name, text) in tests_of(&module, &fs::read_to_string(&entry).unwrap()) {
                    for (_, reason) in reasons.iter().filter(|(word, _)| text.contains(word)) {
                        seen += 1;
                        let line = format!("{reason} {name}");
                        if !listed.contains(&line.as_str()) {
                            unlisted.push(line);
                        }
                    }
                }
            }
        }
        assert!(seen > 100, "{seen} tests found");
        assert!(unlisted.is_empty(), "tests/skips.txt lacks {unlisted:#?}");
    }

    #[test]
    fn unlisted_skip_fails() {
        assert!(check_skips(ALLOWED, "needs-root three\n", &|_| true).is_err());
        assert!(check_skips(ALLOWED, "needs-ipv6 one\n", &|_| true).is_err());
    }

    #[test]
    fn listed_skip_whose_reason_does_not_hold_fails() {
        assert!(check_skips(ALLOWED, "needs-root one\n", &|_| false).is_err());
    }

    #[test]
    fn stand_in_is_never_a_reason() {
        assert!(!holds_here("stand-in"));
    }

    #[test]
    fn ignored_tests_are_skips_without_leave() {
        let output = "test a::b::rate ... ignored, takes long\ntest c ... ok\ntest d ... ignored\n";
        let happened = ignored_in(output);
        assert_eq!(happened, "ignored rate\nignored d\n");
        assert!(check_skips(&happened, &happened, &holds_here).is_err());
    }
}
