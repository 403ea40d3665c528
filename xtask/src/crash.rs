//! `cargo xtask crash`: killed runs, disks that lose power, failing networks.

use crate::{
    error::TaskError,
    step::{build_programs, cargo, run as run_command},
    tools::{FOR_TESTS, provide},
};

/// Runs the tests of crashes, power cuts, failing disks and failing networks. With `--long` it also
/// runs a power cut at every system call that changes the disk, network cuts of a minute, and
/// [`SCHEDULES`] orders of the engine's threads, which takes minutes.
///
/// # Errors
/// [`TaskError::Argument`] for any other argument, and those of the commands.
pub(crate) fn run(args: &[String]) -> Result<(), TaskError> {
    if let Some(unknown) = args.iter().find(|arg| *arg != "--long") {
        return Err(TaskError::Argument(unknown.clone()));
    }
    provide(FOR_TESTS)?;
    build_programs(&["dsync"])?;
    let mut test = cargo(&["test", "--locked", "--workspace"]);
    for name in ["crash", "durability", "network", "power_cut", "race", "survive", "troubled_disk"] {
        test.args(["--test", name]);
    }
    test.args(["--", "--nocapture"]).env_remove("DSYNC_BIN");
    if args.is_empty() {
        return run_command(&mut test);
    }
    run_command(test.env("DSYNC_CRASH", "long"))?;
    let mut schedules = cargo(&["test", "--locked", "-p", "dsync-engine", "--lib", "schedules"]);
    run_command(schedules.env("DSYNC_SCHEDULES", SCHEDULES))
}

/// Number of orders of the threads' steps: each direction with each setting and beginning some 64
/// times.
const SCHEDULES: &str = "10000";
