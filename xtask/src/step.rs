//! Running programs, in the root of the checkout and without a terminal.

use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use crate::error::TaskError;

/// Returns the root of the checkout.
pub(crate) fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_path_buf()
}

/// Makes a command in the root of the checkout, with an empty stdin.
pub(crate) fn command(program: &str, args: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.args(args).current_dir(root()).stdin(Stdio::null());
    command
}

/// Runs a command to its end.
///
/// # Errors
/// [`TaskError::Start`], or [`TaskError::Failed`] if it ends with anything but 0.
pub(crate) fn run(command: &mut Command) -> Result<(), TaskError> {
    let program = command.get_program().to_string_lossy().into_owned();
    let status = command.status().map_err(|source| TaskError::Start { program, source })?;
    if status.success() { Ok(()) } else { Err(TaskError::Failed { command: line(command), status }) }
}

/// Returns whether a command can be started and ends with 0; discards its output.
pub(crate) fn succeeds(program: &str, args: &[&str]) -> bool {
    let mut command = command(program, args);
    command.stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
}

/// Makes a command of the cargo that runs this.
pub(crate) fn cargo(args: &[&str]) -> Command {
    command(&std::env::var("CARGO").unwrap_or_else(|_| "cargo".into()), args)
}

/// Builds debug programs of the workspace, and the examples, as `cargo test --workspace` builds them.
///
/// cargo unites the features that the chosen packages ask for of a crate, with those of the tests if
/// tests or examples are built. For any other choice it would compile our crates once more, which
/// takes two processors minutes.
///
/// # Errors
/// Those of cargo.
pub(crate) fn build_programs(names: &[&str]) -> Result<(), TaskError> {
    let mut build = cargo(&["build", "--locked", "--workspace", "--examples"]);
    for name in names {
        build.args(["--bin", name]);
    }
    run(&mut build)
}

/// Returns a command as a person would type it.
pub(crate) fn line(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" ")
}
