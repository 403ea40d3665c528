//! `cargo xtask semver`: the public API of the crates that programs depend on is compatible with that of
//! the last tag, as far as their versions promise.
//!
//! Only where there is a tag and the tool (`cargo install cargo-semver-checks`, which builds for minutes and
//! so is not installed from here). Every change of the API is in `docs/api/` in any case.

use std::{fs, path::PathBuf, process::Stdio};

use crate::{
    error::TaskError,
    step::{cargo, command, root, run as run_command, succeeds},
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
    let baseline = check_out(&tag)?;
    let mut check = cargo(&["semver-checks", "--baseline-root"]);
    check.arg(baseline);
    CRATES.iter().for_each(|name| {
        check.args(["--package", name]);
    });
    run_command(&mut check)
}

/// Clones the repository as it is at a tag, and returns where. The tool's own clone refuses the symbolic links with
/// absolute targets that some tests begin with.
fn check_out(tag: &str) -> Result<PathBuf, TaskError> {
    let (root, baseline) = (root(), root().join("target/semver-baseline"));
    // There is none, or one of another tag.
    let _ = fs::remove_dir_all(&baseline);
    let mut clone = command("git", &["clone", "--quiet", "--branch", tag]);
    run_command(clone.args(["-c", "advice.detachedHead=false"]).args([&root, &baseline]))?;
    Ok(baseline)
}

/// Returns the last tag that this commit descends from.
fn last_tag() -> Option<String> {
    let mut describe = command("git", &["describe", "--tags", "--abbrev=0"]);
    let output = describe.stderr(Stdio::null()).output().ok().filter(|output| output.status.success())?;
    let tag = String::from_utf8(output.stdout).ok()?.trim().to_owned();
    (!tag.is_empty()).then_some(tag)
}
