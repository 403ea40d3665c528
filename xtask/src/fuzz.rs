//! `cargo xtask fuzz-smoke`: every fuzz target for a short while, as many at once as there are
//! cores.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
};

use cargo_metadata::MetadataCommand;

use crate::{
    error::TaskError,
    step::{cargo, line, root, run as run_command},
    tools::{FOR_FUZZING, provide, provide_subcommand},
};

const FUZZ_VERSION: &str = "0.13.2";

/// Default time for each target, in seconds. The corpora are small, so this finds at once what a
/// change broke, and all targets together take a minute on two cores, behind the build.
const SECONDS: &str = "6";

/// The same in the long run (`--long`).
const LONG_SECONDS: &str = "600";

/// Builds all targets and runs each.
///
/// # Errors
/// [`TaskError`]: a target does not build, or found something.
pub(crate) fn run(args: &[String]) -> Result<(), TaskError> {
    let seconds = match args {
        [] => SECONDS,
        [flag] if flag == "--long" => LONG_SECONDS,
        [flag, seconds] if flag == "--seconds" => seconds,
        [other, ..] => return Err(TaskError::Argument(other.clone())),
    };
    provide(FOR_FUZZING)?;
    provide_subcommand("fuzz", FUZZ_VERSION)?;
    // cargo-fuzz itself would silently update the lock file.
    run_command(&mut cargo(&["fetch", "--locked", "--manifest-path", "fuzz/Cargo.toml"]))?;
    // Sanitizers are unstable; the variable lets the one installed toolchain use its own.
    // In one unit for each crate, as cargo-fuzz has it, one core would wait for the other.
    run_command(cargo(&["fuzz", "build", "--codegen-units", "16"]).env("RUSTC_BOOTSTRAP", "1"))?;
    let targets = targets()?;
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let mut failed = Vec::new();
    for group in targets.chunks(cores) {
        let started: Vec<(&String, Command, Child)> = group
            .iter()
            .map(|target| {
                let mut command = fuzzer(target, seconds)?;
                let program = target.clone();
                let child = command.spawn().map_err(|source| TaskError::Start { program, source })?;
                Ok((target, command, child))
            })
            .collect::<Result<_, TaskError>>()?;
        for (target, command, mut child) in started {
            let status =
                child.wait().map_err(|source| TaskError::Start { program: target.clone(), source })?;
            println!("fuzz {target}: {}", if status.success() { "ok".into() } else { status.to_string() });
            if !status.success() {
                eprintln!("{}\nsee fuzz/artifacts/{target} and {}", line(&command), log(target).display());
                tell_finding(target);
                failed.push(target.clone());
            }
        }
    }
    if failed.is_empty() { Ok(()) } else { Err(TaskError::Steps { names: failed }) }
}

/// Returns the targets: the binaries of the fuzz package.
fn targets() -> Result<Vec<String>, TaskError> {
    let metadata = MetadataCommand::new().manifest_path(root().join("fuzz/Cargo.toml")).no_deps().exec()?;
    let all = metadata.packages.iter().flat_map(|package| &package.targets);
    let mut found: Vec<String> =
        all.filter(|target| target.is_bin()).map(|target| target.name.clone()).collect();
    found.sort();
    Ok(found)
}

/// Makes one target's run: from its checked-in seeds, with a corpus of its own to grow.
fn fuzzer(target: &str, seconds: &str) -> Result<Command, TaskError> {
    let root = root();
    let io = |path: &Path| {
        let path = path.display().to_string();
        move |source| TaskError::Read { path, source }
    };
    let corpus = root.join("fuzz/corpus").join(target);
    let artifacts = root.join("fuzz/artifacts").join(target);
    for dir in [&corpus, &artifacts] {
        fs::create_dir_all(dir).map_err(io(dir))?;
    }
    let mut command = Command::new(binary(&root, target));
    command.current_dir(&root).stdin(Stdio::null());
    let limits = ["-rss_limit_mb=1024", "-print_final_stats=1", &format!("-max_total_time={seconds}")];
    command.args(limits);
    if is_session(target) {
        // Threads of a session that has just ended still hold what the leak check looks for; hangs
        // are the target's to find.
        command.args(["-timeout=60", "-detect_leaks=0", "-max_len=1500", "-len_control=0"]);
    } else {
        command.arg("-timeout=10");
    }
    command.arg(format!("-artifact_prefix={}/", artifacts.display()));
    command.arg(&corpus);
    let seeds = root.join("fuzz/seeds").join(target);
    if seeds.is_dir() {
        command.arg(seeds);
    }
    let log = log(target);
    let file = fs::File::create(&log).map_err(io(&log))?;
    let copy = file.try_clone().map_err(io(&log))?;
    command.stdout(file).stderr(copy);
    Ok(command)
}

/// Prints what a log tells of a finding, with the input: the artifacts of a CI run are gone after it.
fn tell_finding(target: &str) {
    let told = ["panicked at", "assertion", "left: ", "right: ", "ERROR:", "SUMMARY:", "Base64:"];
    let text = fs::read(log(target)).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    for line in text.lines().filter(|line| told.iter().any(|word| line.contains(word))) {
        eprintln!("  {}", line.chars().take(2000).collect::<String>());
    }
}

/// Returns the path of a target's log.
fn log(target: &str) -> PathBuf {
    root().join(format!("target/fuzz-{target}.log"))
}

/// Returns the path where `cargo fuzz` puts a target.
fn binary(root: &Path, target: &str) -> PathBuf {
    let arch = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    root.join("fuzz/target").join(arch).join("release").join(target)
}

/// Returns whether a target runs whole sessions.
fn is_session(target: &str) -> bool {
    target.starts_with("session_")
}
