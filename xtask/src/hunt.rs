//! `cargo xtask hunt`: random cases, each run with rsync and with dsync on the same trees.

use std::process::Command;

use crate::{
    error::TaskError,
    step::{build_programs, command, root, run as run_command},
    tools::{FOR_HUNTING, FOR_TESTS, provide},
};

/// Hunts with the given arguments (`--minutes N --cases N --seed S --on tmpfs,ext4,xfs,btrfs --case
/// SEED
/// --without OPTION,...`); `$DSYNC_BIN` is the program under test, else it is built.
///
/// # Errors
/// [`TaskError::Failed`] if there were findings, and those of the commands.
pub(crate) fn run(args: &[String]) -> Result<(), TaskError> {
    run_command(&mut ready(args)?)
}

/// Hunts as [`run`] does; what is found is told with its seed and fails nothing.
///
/// # Errors
/// Those of the commands that the hunt needs.
pub(crate) fn report(args: &[String]) -> Result<(), TaskError> {
    if let Err(error) = run_command(&mut ready(args)?) {
        println!("{error}; this step only reports: each finding is told above with its case and its script");
    }
    Ok(())
}

/// Returns the hunt as a command, once all that it needs is there.
fn ready(args: &[String]) -> Result<Command, TaskError> {
    provide(FOR_TESTS)?;
    provide(FOR_HUNTING)?;
    build_programs(if std::env::var_os("DSYNC_BIN").is_none() { &["hunt", "dsync"] } else { &["hunt"] })?;
    let mut hunt = command(&root().join("target/debug/hunt").display().to_string(), &[]);
    hunt.args(args);
    Ok(hunt)
}
