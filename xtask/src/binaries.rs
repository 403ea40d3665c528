//! Test binaries: built by cargo, then run several at a time. `cargo test` runs one after the other,
//! although most of them wait for disks and timers more than they calculate.

use std::{
    fs::{self, File},
    io::{self, BufReader},
    num::NonZero,
    path::Path,
    process::{Command, ExitStatus, Stdio},
    sync::{Mutex, PoisonError, mpsc},
    thread,
    time::Instant,
};

use cargo_metadata::{Artifact, Message, MetadataCommand, Package};

use crate::{
    error::TaskError,
    step::{cargo, command, line, root},
};

/// A program with tests, and the words that run it again.
#[derive(Debug)]
pub(crate) struct TestProgram {
    again: String,
    command: Command,
}

impl TestProgram {
    /// Returns the examples in the documentation of all crates, which cargo alone can run.
    pub(crate) fn doc_examples() -> Self {
        let command = cargo(&["test", "--workspace", "--locked", "--doc"]);
        Self { again: line(&command), command }
    }

    /// Sets a variable of its environment.
    pub(crate) fn set_env(&mut self, name: &str, value: &Path) {
        self.command.env(name, value);
    }

    /// Runs it to its end, with its output in a file.
    fn run(mut self, path: &Path) -> Result<End, TaskError> {
        let since = Instant::now();
        let mut run = || -> io::Result<_> {
            let file = File::create(path)?;
            let status = self.command.stdout(file.try_clone()?).stderr(file).status()?;
            Ok((status, String::from_utf8_lossy(&fs::read(path)?).into_owned()))
        };
        let start = |source| TaskError::Start { program: self.again.clone(), source };
        let (status, output) = run().map_err(start)?;
        Ok(End { again: self.again, status, seconds: since.elapsed().as_secs_f64(), output })
    }

    /// Returns a test binary of `package`, in the surroundings that cargo would run it in.
    fn of(package: &Package, name: &str, binary: &str, args: &[String]) -> Self {
        // Signals that are ignored, as INT is in the background of a script, would be for the tests too.
        let mut command = command("env", &["--default-signal=HUP,INT,QUIT,PIPE,TERM", binary]);
        let dir = package.manifest_path.parent().map_or_else(root, |dir| dir.as_std_path().into());
        if WAITING.contains(&name) && args.is_empty() {
            command.env("RUST_TEST_THREADS", WAITING_AT_ONCE);
        }
        command
            .args(args)
            .env_remove("DSYNC_BIN")
            .env("CARGO_MANIFEST_DIR", &dir)
            .env("CARGO_PKG_NAME", package.name.as_str())
            .env("CARGO_PKG_VERSION", package.version.to_string())
            .current_dir(dir);
        Self { again: format!("cargo test -p {} {name}", package.name), command }
    }
}

/// Builds the tests that `select` names to `cargo test`, and returns their binaries, which get
/// `args`.
///
/// # Errors
/// [`TaskError`] if cargo fails, or a message of its cannot be read.
pub(crate) fn build(select: &[String], args: &[String]) -> Result<Vec<TestProgram>, TaskError> {
    let packages = MetadataCommand::new().manifest_path(root().join("Cargo.toml")).no_deps().exec()?.packages;
    let mut command = cargo(&["test", "--workspace", "--locked", "--no-run"]);
    command.args(select).arg("--message-format=json-render-diagnostics").stdout(Stdio::piped());
    let command_line = line(&command);
    let start = |source| TaskError::Start { program: command_line.clone(), source };
    let mut child = command.spawn().map_err(start)?;
    let mut programs = Vec::new();
    let messages = child.stdout.take().map(|out| Message::parse_stream(BufReader::new(out)));
    for message in messages.into_iter().flatten() {
        if let Message::CompilerArtifact(artifact) = message.map_err(start)? {
            programs.extend(program(&packages, &artifact, args));
        }
    }
    let status = child.wait().map_err(start)?;
    if status.success() { Ok(programs) } else { Err(TaskError::Failed { command: command_line, status }) }
}

/// Returns the program of an artifact, if it is one with tests.
fn program(packages: &[Package], artifact: &Artifact, args: &[String]) -> Option<TestProgram> {
    let binary = artifact.executable.as_ref().filter(|_| artifact.profile.test)?;
    let package = packages.iter().find(|package| package.id == artifact.package_id)?;
    let target = &artifact.target;
    let name = if target.is_test() {
        format!("--test {}", target.name)
    } else if target.is_bin() {
        format!("--bin {}", target.name)
    } else {
        "--lib".into()
    };
    Some(TestProgram::of(package, &name, binary.as_str(), args))
}

/// Runs all programs, two more at a time than there are processors, as most wait for disks and timers:
/// with one for each, a third of two processors was idle. The longest begin first, so that none is
/// left alone at the end. Passes each one's output to `told` when it ends, and returns the words that
/// run those again that failed. The directory `output` has a file for each, which one can look at
/// before the end.
///
/// # Errors
/// [`TaskError::Start`] if a program cannot be started, or the file for its output cannot be made.
pub(crate) fn run(
    mut programs: Vec<TestProgram>,
    output: &Path,
    told: &mut dyn FnMut(&str),
) -> Result<Vec<String>, TaskError> {
    programs.sort_by_key(|program| !LONGEST.iter().any(|name| program.again.ends_with(name)));
    let queue = Mutex::new(programs.into_iter().enumerate());
    let next = || queue.lock().unwrap_or_else(PoisonError::into_inner).next();
    let at_once = thread::available_parallelism().map_or(1, NonZero::get) + 2;
    let (end, ended) = mpsc::channel();
    thread::scope(|scope| {
        for _ in 0..at_once {
            let (end, next) = (end.clone(), &next);
            scope.spawn(move || {
                while let Some((number, program)) = next() {
                    let _ = end.send(program.run(&output.join(format!("{number}.log"))));
                }
            });
        }
        drop(end);

        let mut failed = Vec::new();
        for end in ended {
            let End { again, status, seconds, output } = end?;
            told(&format!("==> {again}: {status}, {seconds:.1} s\n{output}"));
            if !status.success() {
                failed.push(again);
            }
        }
        Ok(failed)
    })
}

/// The programs that took more than a minute of the sixteen that all took on two processors.
const LONGEST: &[&str] = &[
    "--test hostile_peer",
    "--test spans",
    "--test serve",
    "--test real_tree",
    "--test network",
    "--test generated",
    "--test stopping",
    "--test killed",
];

/// The programs whose tests wait for peers and timers nearly all of their time, and how many of those
/// run at once: with one for each processor `hostile_peer` takes 227 s, with six 92 s.
const WAITING: &[&str] = &["--test hostile_peer", "--test serve"];
const WAITING_AT_ONCE: &str = "6";

/// A program that ended.
struct End {
    again: String,
    status: ExitStatus,
    seconds: f64,
    output: String,
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn shell(script: &str) -> TestProgram {
        TestProgram { again: script.to_owned(), command: command("sh", &["-c", script]) }
    }

    #[test]
    fn every_program_is_run_and_told_whole_and_those_that_fail_are_named() {
        let programs = vec![shell("echo one; exit 3"), shell("echo two >&2"), shell("kill -9 $$")];
        let dir = std::env::temp_dir().join(format!("dsync-outputs-{}", std::process::id()));
        fs::create_dir(&dir).unwrap();
        let mut told = Vec::new();
        let failed = run(programs, &dir, &mut |text| told.push(text.to_owned())).unwrap();
        fs::remove_dir_all(&dir).unwrap();
        let is_told = |end: &str| told.iter().any(|text| text.ends_with(end));
        assert!(told.len() == 3 && is_told(" s\none\n") && is_told(" s\ntwo\n"), "{told:?}");
        assert_eq!(failed.len(), 2, "{failed:?}");
        assert!(failed.iter().all(|again| again != "echo two >&2"));
    }
}
