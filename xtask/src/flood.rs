//! `cargo xtask flood`: a standing server with 200 clients at once, and all the time 500 silent connections and
//! 100 idle sessions, while 5,000 handshakes fail.

use crate::{
    error::TaskError,
    step::{build_programs, cargo, run as run_command},
};

/// Runs the test of floods with its full numbers, and prints what each connection costs.
///
/// # Errors
/// [`TaskError::Argument`] for any argument, and those of the commands.
pub(crate) fn run(args: &[String]) -> Result<(), TaskError> {
    if let Some(unknown) = args.first() {
        return Err(TaskError::Argument(unknown.clone()));
    }
    build_programs(&["dsync"])?;
    let test = ["test", "--locked", "--workspace", "--test", "serve", "flood::", "--", "--nocapture"];
    run_command(cargo(&test).env("DSYNC_FLOOD", "full").env_remove("DSYNC_BIN"))
}
