//! `cargo xtask ci`: every check, each named and timed. All of them run, then the verdict.
//!
//! A check may be left out only if its tool is neither installed nor available, because there is no
//! network or no other toolchain, or if there is nothing to compare with; the table then says so.

use std::time::Instant;

use crate::{
    deb,
    error::TaskError,
    features, fuzz, hunt, layers, msrv, package, semver, shape,
    step::{cargo, run as run_command},
    suite,
    tools::{provide_component, provide_subcommand},
};

const DENY_VERSION: &str = "0.20.2";

/// A step: its name and its function.
type Step = (&'static str, fn() -> Result<(), TaskError>);

const STEPS: &[Step] = &[
    ("format", format),
    ("clippy", clippy),
    ("features", || features::run(&[])),
    ("layers", || layers::run(&[])),
    ("msrv", || msrv::run(&[])),
    ("semver", || semver::run(&[])),
    ("shape", || shape::run(&[])),
    ("deny", || deny(&[])),
    ("rustdoc", rustdoc),
    ("package", || package::run(&[])),
    ("test", || suite::run(&[])),
    ("deb", deb::check),
    ("fuzz-smoke", || fuzz::run(&[])),
    ("hunt-fixed", || hunt::run(&words(HUNT_FIXED))),
    ("hunt-new", || hunt::report(&words(HUNT_NEW))),
];

/// Cases that are the same in every run, and were without a finding beside rsync 3.2.7 and 3.5.0.
const HUNT_FIXED: &[&str] = &["--seed", "12", "--cases", "300"];

/// Cases that nobody has seen before: what they find is told and is no verdict, as long as hunts of
/// an hour find something.
const HUNT_NEW: &[&str] = &["--minutes", "1"];

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

/// Runs all steps, or those that are named.
///
/// # Errors
/// [`TaskError::Steps`] names those that failed.
pub(crate) fn run(args: &[String]) -> Result<(), TaskError> {
    if let Some(unknown) = args.iter().find(|arg| !STEPS.iter().any(|(name, _)| name == arg)) {
        return Err(TaskError::Argument(unknown.clone()));
    }
    let mut table = Vec::new();
    let mut names = Vec::new();
    for (name, step) in STEPS.iter().filter(|(name, _)| args.is_empty() || args.iter().any(|arg| arg == name))
    {
        println!("==> {name}");
        let since = Instant::now();
        let result = step();
        let verdict = match &result {
            Ok(()) => "ok",
            Err(TaskError::Unreachable { .. }) => "left out: no network",
            Err(TaskError::NoBaseline { .. }) => "left out: no tag, or no cargo-semver-checks",
            Err(TaskError::NoToolchain { .. }) => "left out: no toolchain of that version",
            Err(_) => {
                names.push((*name).to_owned());
                "FAILED"
            }
        };
        if let Err(error) = result {
            eprintln!("{name}: {error}");
        }
        table.push(format!("{name:<12} {:>6.1} s  {verdict}", since.elapsed().as_secs_f64()));
    }
    println!("\n{}", table.join("\n"));
    if names.is_empty() { Ok(()) } else { Err(TaskError::Steps { names }) }
}

/// Checks bans, licences and sources; advisories need a database from the network and are left to
/// releases.
///
/// # Errors
/// Those of the command.
pub(crate) fn deny(_args: &[String]) -> Result<(), TaskError> {
    provide_subcommand("deny", DENY_VERSION)?;
    run_command(&mut cargo(&["fetch", "--locked"]))?;
    run_command(&mut cargo(&[
        "deny",
        "--offline",
        "--log-level",
        "error",
        "check",
        "bans",
        "licenses",
        "sources",
    ]))
}

fn format() -> Result<(), TaskError> {
    provide_component("fmt", "rustfmt")?;
    run_command(&mut cargo(&["fmt", "--all", "--check"]))?;
    run_command(&mut cargo(&["fmt", "--manifest-path", "fuzz/Cargo.toml", "--check"]))
}

fn clippy() -> Result<(), TaskError> {
    provide_component("clippy", "clippy")?;
    run_command(&mut cargo(&["clippy", "--locked", "--workspace", "--all-targets", "--", "-D", "warnings"]))
}

fn rustdoc() -> Result<(), TaskError> {
    let mut command = cargo(&["doc", "--locked", "--workspace", "--no-deps"]);
    run_command(command.env("RUSTDOCFLAGS", "-D warnings"))
}
