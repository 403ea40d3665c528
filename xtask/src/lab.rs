//! `cargo xtask lab`: builds the lab's programs, then starts the lab of the tests package.

use std::{os::unix::process::CommandExt, process::Stdio};

use crate::{
    error::TaskError,
    step::{build_programs, cargo, command, root, run as run_command},
    tools::{FOR_TESTS, provide},
};

/// Becomes the lab. `$DSYNC_BIN` is the program under test; otherwise it is built for release.
///
/// # Errors
/// Those of the commands.
pub(crate) fn run(args: &[String]) -> Result<(), TaskError> {
    provide(FOR_TESTS)?;
    build_programs(&["lab"])?;
    let mut lab = command(&root().join("target/debug/lab").display().to_string(), &[]);
    // The command belongs to the person who started it, so run it in that directory.
    if let Ok(here) = std::env::current_dir() {
        lab.current_dir(here);
    }
    if std::env::var_os("DSYNC_BIN").is_none() {
        run_command(&mut cargo(&["build", "--locked", "--release", "-p", "dsync-cli"]))?;
        lab.env("DSYNC_BIN", root().join("target/release/dsync"));
    }
    // Replace this process, to pass on the exit code.
    let source = lab.stdin(Stdio::inherit()).args(args).exec();
    Err(TaskError::Start { program: "lab".into(), source })
}
