//! `cargo xtask msrv`: the workspace builds with the oldest toolchain that it promises to.
//!
//! Only where that toolchain is installed (`rustup toolchain install VERSION`): CI has one toolchain,
//! and there clippy's `incompatible_msrv` alone refuses what the standard library got later.

use cargo_metadata::MetadataCommand;

use crate::{
    error::TaskError,
    step::{command, root, run as run_command, succeeds},
};

/// Checks the shipped crates.
///
/// # Errors
/// [`TaskError::NoToolchain`], or that of the command.
pub(crate) fn run(args: &[String]) -> Result<(), TaskError> {
    if let Some(unknown) = args.first() {
        return Err(TaskError::Argument(unknown.clone()));
    }
    let version = promised()?;
    if !succeeds("rustup", &["run", &version, "cargo", "--version"]) {
        return Err(TaskError::NoToolchain { version });
    }
    let check = ["cargo", "check", "--locked", "-p", "dsync-cli", "-p", "dsync-delta-c"];
    run_command(
        command("rustup", &["run", &version])
            .args(check)
            // Two toolchains in one folder would build everything anew in turns.
            .env("CARGO_TARGET_DIR", root().join("target/msrv")),
    )
}

/// Returns the `rust-version` of the workspace.
fn promised() -> Result<String, TaskError> {
    let metadata = MetadataCommand::new().current_dir(root()).no_deps().exec()?;
    let version = metadata.packages.iter().find_map(|package| package.rust_version.clone());
    Ok(version.map_or_else(String::new, |version| version.to_string()))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn the_workspace_promises_a_version() {
        assert!(promised().unwrap().starts_with("1."));
    }
}
