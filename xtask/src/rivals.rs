//! `cargo xtask rivals`, `figures` and `scaling`: build the programs to measure, then run the race of the
//! tests package.

use std::process::Command;

use crate::{
    error::TaskError,
    step::{build_programs, cargo, command, root, run as run_command},
    tools::{FOR_TESTS, provide},
};

/// Runs the race with the given arguments. `$DSYNC_BIN` takes part; otherwise dsync is built for
/// release, unless nothing is to be measured.
///
/// # Errors
/// Those of the commands.
pub(crate) fn run(args: &[String]) -> Result<(), TaskError> {
    // Installing the rivals or drawing needs no dsync.
    let alone = args.iter().any(|arg| arg == "--install" || arg == "--draw");
    let mut race = if alone { race_alone()? } else { prepare()? };
    run_command(race.args(args))
}

/// Measures the rows that have a bar. `$LAB_PUMP` sends from memory to memory; otherwise
/// the example is built for release.
///
/// # Errors
/// Those of the commands.
pub(crate) fn figures(args: &[String]) -> Result<(), TaskError> {
    let mut race = prepare()?;
    if std::env::var_os("LAB_PUMP").is_none() {
        run_command(&mut cargo(&[
            "build",
            "--locked",
            "--release",
            "-p",
            "dsync-transport",
            "--example",
            "pump",
        ]))?;
        race.env("LAB_PUMP", root().join("target/release/examples/pump"));
    }
    run_command(race.arg("--figures").args(args))
}

/// Measures the share of each workload that one thread does alone.
///
/// # Errors
/// Those of the commands.
pub(crate) fn scaling(args: &[String]) -> Result<(), TaskError> {
    run_command(prepare()?.arg("--scaling").args(args))
}

/// Makes the race without the program to measure.
fn race_alone() -> Result<Command, TaskError> {
    provide(FOR_TESTS)?;
    build_programs(&["rivals"])?;
    Ok(command(&root().join("target/debug/rivals").display().to_string(), &[]))
}

/// Makes the race with the program to measure.
fn prepare() -> Result<Command, TaskError> {
    let mut race = race_alone()?;
    if std::env::var_os("DSYNC_BIN").is_none() {
        run_command(&mut cargo(&["build", "--locked", "--release", "-p", "dsync-cli"]))?;
        race.env("DSYNC_BIN", root().join("target/release/dsync"));
    }
    Ok(race)
}
