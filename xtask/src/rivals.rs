//! `cargo xtask rivals`: builds what is measured, then runs the race of the tests package.

use crate::{
    error::TaskError,
    step::{cargo, command, root, run as run_command},
    tools::{FOR_TESTS, provide},
};

/// Runs the race with the given arguments; `$DSYNC_BIN` takes part, else dsync is built for release.
///
/// # Errors
/// Those of the commands.
pub(crate) fn run(args: &[String]) -> Result<(), TaskError> {
    provide(FOR_TESTS)?;
    run_command(&mut cargo(&["build", "--locked", "-p", "dsync-tests", "--bin", "rivals"]))?;
    let mut race = command(&root().join("target/debug/rivals").display().to_string(), &[]);
    if std::env::var_os("DSYNC_BIN").is_none() {
        run_command(&mut cargo(&["build", "--locked", "--release", "-p", "dsync-cli"]))?;
        race.env("DSYNC_BIN", root().join("target/release/dsync"));
    }
    run_command(race.args(args))
}
