//! `cargo xtask hunt`: random cases, each run with rsync and with dsync on the same trees.

use crate::{
    error::TaskError,
    step::{cargo, command, root, run as run_command},
    tools::{FOR_HUNTING, FOR_TESTS, provide},
};

/// Hunts with the given arguments
/// (`--minutes N --seed S --on tmpfs,ext4,xfs,btrfs --case SEED --without OPTION,...`).
/// `$DSYNC_BIN` is the program under test; otherwise it is built.
///
/// # Errors
/// [`TaskError::Failed`] if there were findings, and those of the commands.
pub(crate) fn run(args: &[String]) -> Result<(), TaskError> {
    provide(FOR_TESTS)?;
    provide(FOR_HUNTING)?;
    let mut build = vec!["build", "--locked", "-p", "dsync-tests", "--bin", "hunt"];
    if std::env::var_os("DSYNC_BIN").is_none() {
        build.extend(["-p", "dsync-cli", "--bin", "dsync"]);
    }
    run_command(&mut cargo(&build))?;
    run_command(command(&root().join("target/debug/hunt").display().to_string(), &[]).args(args))
}
