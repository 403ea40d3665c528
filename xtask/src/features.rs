//! `cargo xtask features`: the library builds with each of its features alone, and with none of
//! them it has no carrier and no runtime.
//!
//! All of them together are what every other step builds. `serde` adds traits only: the wire's options are
//! JSON, so that every build has the crate. `--cost` measures builds in place of checking them.

mod cost;

use std::process::Stdio;

use crate::{
    error::TaskError,
    step::{cargo, line, run as run_command},
    tools::provide_component,
};

/// The sets of features that are built, each beside what its build must not contain.
const BUILDS: &[(&str, &[&str])] = &[
    ("", &["tokio", "mio", "quinn", "quinn-proto", "rustls", "aws-lc-rs", "aws-lc-sys"]),
    ("serde", &["tokio", "mio", "quinn", "quinn-proto", "rustls", "aws-lc-rs", "aws-lc-sys"]),
    ("stream", &["quinn", "quinn-proto", "rustls", "aws-lc-rs", "aws-lc-sys"]),
    ("tokio", &["quinn", "quinn-proto", "rustls", "aws-lc-rs", "aws-lc-sys"]),
    ("ssh", &["quinn", "quinn-proto", "rustls", "aws-lc-rs", "aws-lc-sys"]),
    ("tls", &["quinn", "quinn-proto"]),
];

/// Checks every build of the table, or with `--cost` measures them.
///
/// # Errors
/// [`TaskError::Features`] names what a build contains and should not; or that of a command.
pub(crate) fn run(args: &[String]) -> Result<(), TaskError> {
    match args.split_first() {
        None => check(),
        Some((cost, names)) if cost == "--cost" => measure(names),
        Some((unknown, _)) => Err(TaskError::Argument(unknown.clone())),
    }
}

/// Measures builds with the features of these names, or all of the table and the default.
fn measure(names: &[String]) -> Result<(), TaskError> {
    let known = || BUILDS.iter().map(|(feature, _)| *feature).chain(["quic"]);
    if let Some(unknown) = names.iter().find(|name| !known().any(|feature| feature == name.as_str())) {
        return Err(TaskError::Argument(unknown.clone()));
    }
    let is_chosen = |feature: &&str| names.is_empty() || names.iter().any(|name| name == feature);
    cost::print(known().filter(is_chosen))
}

/// Checks every build of the table.
fn check() -> Result<(), TaskError> {
    let mut faults = Vec::new();
    for (feature, never) in BUILDS {
        let tree = tree(feature)?;
        let contained = never.iter().filter(|name| contains(&tree, name));
        faults.extend(contained.map(|name| format!("dsync-engine with {} has {name}", named(feature))));
    }
    if !faults.is_empty() {
        return Err(TaskError::Features { faults });
    }

    provide_component("clippy", "clippy")?;
    for (feature, _) in BUILDS {
        println!("features: {}", named(feature));
        let arguments = ["clippy", "--locked", "-p", "dsync-transport", "-p", "dsync-engine"];
        let chosen = ["--no-default-features", "--features", feature, "--", "-D", "warnings"];
        run_command(cargo(&arguments).args(chosen))?;
    }
    Ok(())
}

/// Returns the crates of a build, one a line.
fn tree(feature: &str) -> Result<String, TaskError> {
    let mut command = cargo(&["tree", "--locked", "-p", "dsync-engine", "--edges", "normal,build"]);
    command.args(["--prefix", "none", "--format", "{p}", "--no-default-features", "--features", feature]);
    let program = line(&command);
    let output = command.stderr(Stdio::inherit()).output();
    let output = output.map_err(|source| TaskError::Start { program: program.clone(), source })?;
    if !output.status.success() {
        return Err(TaskError::Failed { command: program, status: output.status });
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Returns whether a crate of this name is in a tree.
fn contains(tree: &str, name: &str) -> bool {
    tree.lines().any(|line| line.split(' ').next() == Some(name))
}

fn named(feature: &str) -> String {
    if feature.is_empty() { "no feature".to_owned() } else { format!("`{feature}`") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crate_is_found_by_its_whole_name() {
        let tree = "dsync-engine v0.1.0 (/x)\nquinn-proto v0.11.19\ntokio v1.50.0 (*)\n";
        assert!(contains(tree, "tokio") && contains(tree, "quinn-proto"));
        assert!(!contains(tree, "quinn") && !contains(tree, "proto"));
    }
}
