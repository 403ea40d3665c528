//! `cargo xtask semver`: the public API of the crates that programs depend on is compatible with that of
//! the last tag, as far as their versions promise.
//!
//! Only where there is a tag and the tool (`cargo install cargo-semver-checks`, which builds for minutes and
//! so is not installed from here). Every change of the API is in `docs/api/` in any case.

use std::process::Stdio;

use crate::{
    error::TaskError,
    step::{cargo, command, run as run_command, succeeds},
};

/// The crates that programs depend on.
pub(crate) const CRATES: [&str; 5] =
    ["dsync-delta", "dsync-wire", "dsync-fs", "dsync-transport", "dsync-engine"];

/// Compares with the last tag.
///
/// # Errors
/// [`TaskError::NoBaseline`], or that of the command.
pub(crate) fn run(args: &[String]) -> Result<(), TaskError> {
    if let Some(unknown) = args.first() {
        return Err(TaskError::Argument(unknown.clone()));
    }
    let tag = last_tag().ok_or(TaskError::NoBaseline { lacking: "tag" })?;
    if !succeeds("cargo", &["semver-checks", "--version"]) {
        return Err(TaskError::NoBaseline { lacking: "cargo-semver-checks" });
    }
    let mut check = cargo(&["semver-checks", "--baseline-rev", &tag]);
    CRATES.iter().for_each(|name| {
        check.args(["--package", name]);
    });
    run_command(&mut check)
}

/// Returns the last tag that this commit descends from.
fn last_tag() -> Option<String> {
    let mut describe = command("git", &["describe", "--tags", "--abbrev=0"]);
    let output = describe.stderr(Stdio::null()).output().ok().filter(|output| output.status.success())?;
    let tag = String::from_utf8(output.stdout).ok()?.trim().to_owned();
    (!tag.is_empty()).then_some(tag)
}
