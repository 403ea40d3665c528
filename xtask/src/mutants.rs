//! `cargo xtask mutants`: shows that the test of each guard against a hostile end can fail.
//!
//! Each row of [`guards`] names a guard, an expression that disables it, and the test that must
//! notice. One build has all of them: in a copy of the checkout each guard becomes a branch on the
//! environment variable [`CHOICE`]. So fifty mutants cost one build, and only the tests that the
//! table names are run: first without a mutant, when they must pass, then each with its own, when
//! it must fail. A test that is killed because it hangs has failed, too.
//!
//! `cargo-mutants` makes its own mutants and builds each: a build and the whole suite for every
//! mutant of a crate. It answers which code is untested, this table which promise is.

mod guard;
mod serving;
mod table;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::Instant,
};

use self::{
    guard::{Guard, TEST_BINARIES},
    table::guards,
};
use crate::{
    error::TaskError,
    step::{command, root, run as run_command},
};

/// The variable that chooses a mutant.
const CHOICE: &str = "DSYNC_MUTANT";
/// Number of mutants that are tested at a time.
const AT_ONCE: usize = 8;
/// Seconds until a test that hangs without its guard is killed.
const PATIENCE: &str = "420";

/// Builds the mutants and runs the test of each.
///
/// # Errors
/// [`TaskError`]: a test fails without a mutant, or a mutant survives.
pub(crate) fn run(args: &[String]) -> Result<(), TaskError> {
    let chosen: Vec<&Guard> =
        guards().filter(|guard| args.is_empty() || args.iter().any(|arg| arg == guard.name)).collect();
    if let Some(other) = args.iter().find(|arg| guards().all(|guard| guard.name != arg.as_str())) {
        return Err(TaskError::Argument(other.clone()));
    }
    let tree = root().join("target/mutants/tree");
    copy_checkout(&tree)?;
    let binaries = build(&tree, &chosen)?;

    let tests: BTreeSet<_> = chosen.iter().map(|guard| (guard.binary, guard.test)).collect();
    let mut wrong = Vec::new();
    for (binary, test) in tests {
        if !passes(&tree, &binaries, (binary, test), "")? {
            wrong.push(format!("{binary} {test} fails without a mutant"));
        }
    }
    // A peer that is no longer refused mostly waits, so several run at a time.
    for group in chosen.chunks(AT_ONCE) {
        let judge = |guard: &Guard| -> Result<(bool, u64), TaskError> {
            let started = Instant::now();
            let survives = passes(&tree, &binaries, (guard.binary, guard.test), guard.name)?;
            Ok((survives, started.elapsed().as_secs()))
        };
        let judged: Vec<_> = thread::scope(|scope| {
            let judge = &judge;
            let threads: Vec<_> = group.iter().map(|guard| scope.spawn(move || judge(guard))).collect();
            threads.into_iter().filter_map(|thread| thread.join().ok()).collect()
        });
        for (guard, judged) in group.iter().zip(judged) {
            let (survives, seconds) = judged?;
            let verdict = if survives { "SURVIVED" } else { "caught" };
            println!("{verdict}: {} ({} {}, {seconds} s)", guard.name, guard.binary, guard.test);
            if survives {
                wrong.push(format!("{} survives {} {}", guard.name, guard.binary, guard.test));
            }
        }
    }

    println!("{} guards, {} findings", chosen.len(), wrong.len());
    if wrong.is_empty() { Ok(()) } else { Err(TaskError::Mutants { wrong }) }
}

/// Copies the files of the checkout and makes each guard a branch; a file that has not changed keeps its time, so that
/// the next build is short.
fn copy_checkout(tree: &Path) -> Result<(), TaskError> {
    let listed = command("git", &["ls-files", "-z", "--cached", "--others", "--exclude-standard"]).output();
    let listed = listed.map_err(|source| TaskError::Start { program: "git".into(), source })?;
    let names = String::from_utf8_lossy(&listed.stdout).into_owned();
    for name in names.split('\0').filter(|name| !name.is_empty()) {
        let Ok(content) = fs::read(root().join(name)) else { continue };
        let content = match guards_of(name) {
            guards if guards.is_empty() => content,
            guards => with_choices(&String::from_utf8_lossy(&content), &guards)?.into_bytes(),
        };
        write(&tree.join(name), &content)?;
    }
    Ok(())
}

fn guards_of(file: &str) -> Vec<&'static Guard> {
    guards().filter(|guard| guard.file == file).collect()
}

/// Replaces each guard by a branch on the chosen mutant.
fn with_choices(text: &str, guards: &[&Guard]) -> Result<String, TaskError> {
    let mut text = text.to_owned();
    for guard in guards {
        let (before, expression, after) = guard.parts();
        let whole = format!("{before}{expression}{after}");
        if text.matches(&whole).count() != 1 {
            let wrong = vec![format!("{}: '{whole}' is not once in {}", guard.name, guard.file)];
            return Err(TaskError::Mutants { wrong });
        }
        let is_chosen =
            format!("::std::env::var_os({CHOICE:?}).is_some_and(|name| name == {:?})", guard.name);
        let branch = format!("(if {is_chosen} {{ {} }} else {{ {expression} }})", guard.instead);
        text = text.replacen(&whole, &format!("{before}{branch}{after}"), 1);
    }
    Ok(text)
}

/// Builds the program and the test binaries; returns the path of each binary.
fn build(tree: &Path, chosen: &[&Guard]) -> Result<BTreeMap<&'static str, PathBuf>, TaskError> {
    let cargo = |args: &[&str]| {
        let mut cargo = Command::new(std::env::var("CARGO").unwrap_or_else(|_| "cargo".into()));
        cargo.current_dir(tree).args(args).stdin(Stdio::null());
        cargo.arg("-q").env("CARGO_TARGET_DIR", root().join("target/mutants/target"));
        cargo
    };
    run_command(&mut cargo(&["build", "-p", "dsync-cli"]))?;
    let mut binaries = BTreeMap::new();
    for (name, args) in TEST_BINARIES {
        if chosen.iter().all(|guard| guard.binary != *name) {
            continue;
        }
        let mut build = cargo(&["test", "--no-run", "--message-format=json"]);
        let built = build.args(*args).stderr(Stdio::inherit()).output();
        let built = built.map_err(|source| TaskError::Start { program: "cargo".into(), source })?;
        let messages = String::from_utf8_lossy(&built.stdout).into_owned();
        let path = messages.lines().find_map(executable);
        let path = path.ok_or_else(|| TaskError::Failed { command: args.join(" "), status: built.status })?;
        binaries.insert(*name, path);
    }
    Ok(binaries)
}

/// Returns the test binary of one of cargo's messages.
fn executable(message: &str) -> Option<PathBuf> {
    // The target's own word `test` says only that it could be one.
    let (_, profile) = message.split_once(r#""profile":{"#)?;
    let is_test = profile.split('}').next().is_some_and(|profile| profile.contains(r#""test":true"#));
    let (_, rest) = message.split_once(r#""executable":""#).filter(|_| is_test)?;
    Some(PathBuf::from(rest.split_once('"')?.0))
}

/// Returns whether a test passes beside a mutant.
fn passes(
    tree: &Path,
    binaries: &BTreeMap<&str, PathBuf>,
    (binary, test): (&str, &str),
    mutant: &str,
) -> Result<bool, TaskError> {
    let Some(path) = binaries.get(binary) else { return Ok(false) };
    // With a group of its own, so that what a killed test has started goes, too.
    let mut run = Command::new("timeout");
    run.args(["-k", "5", PATIENCE]).arg(path).args(["--exact", test]);
    let directory =
        if binary.starts_with("dsync-") { tree.join("crates").join(binary) } else { tree.join("tests") };
    run.current_dir(directory).env(CHOICE, mutant).stdin(Stdio::null());
    let output = run.output().map_err(|source| TaskError::Start { program: "timeout".into(), source })?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    if !said.contains("running 1 test") {
        return Err(TaskError::Mutants { wrong: vec![format!("{binary} has no test {test}")] });
    }
    if mutant.is_empty() && !output.status.success() {
        println!("{said}");
    }
    Ok(output.status.success())
}

fn write(path: &Path, content: &[u8]) -> Result<(), TaskError> {
    if fs::read(path).is_ok_and(|old| old == content) {
        return Ok(());
    }
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent).map_err(unreadable(parent))?;
    }
    fs::write(path, content).map_err(unreadable(path))
}

fn unreadable(path: &Path) -> impl FnOnce(std::io::Error) -> TaskError {
    let path = path.display().to_string();
    move |source| TaskError::Read { path, source }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the text of a file of the checkout.
    fn text(file: &str) -> String {
        fs::read_to_string(root().join(file)).unwrap_or_default()
    }

    #[test]
    fn every_guard_is_where_the_table_says_and_its_test_exists() {
        let mut wrong = Vec::new();
        let mut names = BTreeSet::new();
        for guard in guards() {
            let at_once = with_choices(&text(guard.file), &guards_of(guard.file));
            wrong.extend(at_once.err().map(|error| error.to_string()));
            let function = guard.test.rsplit("::").next().unwrap_or_default();
            let source = guard.source();
            if !text(&source).contains(&format!("fn {function}(")) {
                wrong.push(format!("{}: {source} has no test {function}", guard.name));
            }
            if !names.insert(guard.name) {
                wrong.push(format!("{} is there twice", guard.name));
            }
            if TEST_BINARIES.iter().all(|(name, _)| *name != guard.binary) {
                wrong.push(format!("{} is no test binary", guard.binary));
            }
        }
        assert_eq!(wrong, Vec::<String>::new());
        assert!(guards().count() > 30, "{} guards", guards().count());
    }

    #[test]
    fn a_guard_becomes_a_branch() {
        let guard = Guard {
            name: "small",
            file: "a.rs",
            guard: "if «a > 3» {",
            instead: "false",
            binary: "hostile_peer",
            test: "asked::b",
        };
        let is_chosen = r#"::std::env::var_os("DSYNC_MUTANT").is_some_and(|name| name == "small")"#;
        let branch = format!("if (if {is_chosen} {{ false }} else {{ a > 3 }}) {{ }}");
        assert_eq!(with_choices("if a > 3 { }", &[&guard]).ok(), Some(branch));
        assert!(with_choices("if a > 4 { }", &[&guard]).is_err(), "it is elsewhere");
        assert!(with_choices("if a > 3 { if a > 3 {", &[&guard]).is_err(), "it is there twice");
    }
}
