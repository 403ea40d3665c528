//! `cargo xtask rivals`: builds what is measured, then runs the race of the tests package.

use crate::{
    error::TaskError,
    step::{cargo, command, root, run as run_command},
    tools::{FOR_TESTS, is_root, provide},
};

/// Runs the race with the given arguments; as root in a network namespace of its own, so that the
/// bytes on the wire are those of the race alone.
///
/// # Errors
/// Those of the commands.
pub(crate) fn run(args: &[String]) -> Result<(), TaskError> {
    provide(FOR_TESTS)?;
    run_command(&mut cargo(&["build", "--locked", "--release", "-p", "dsync-cli"]))?;
    run_command(&mut cargo(&["build", "--locked", "-p", "dsync-tests", "--bin", "rivals"]))?;
    let race = root().join("target/debug/rivals").display().to_string();
    let mut run = if is_root() { command("unshare", &["--net", &race]) } else { command(&race, &[]) };
    if std::env::var_os("DSYNC_BIN").is_none() {
        run.env("DSYNC_BIN", root().join("target/release/dsync"));
    }
    run_command(run.args(args))
}
