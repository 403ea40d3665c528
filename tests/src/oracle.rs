//! rsync's own judgement of a result.

use std::{ffi::OsStr, path::Path, process::Command, sync::LazyLock};

use crate::{
    run::{Outcome, Run},
    scratch::slash,
};

/// Runs the real rsync, here.
pub fn rsync<I>(args: I) -> Outcome
where
    I: IntoIterator,
    I::Item: AsRef<OsStr>,
{
    Run::of(PROGRAM).args(args).run()
}

/// The first rsync in `PATH`, of whatever version it is.
const PROGRAM: &str = "rsync";

/// The three numbers of a version.
pub type Version = (u32, u32, u32);

/// Returns whether it is of this version or later. What an older one does otherwise is no
/// reference.
pub fn is_since(version: Version) -> bool {
    static FOUND: LazyLock<Version> = LazyLock::new(|| version_of(Path::new(PROGRAM)));
    *FOUND >= version
}

/// Returns the version of an rsync.
///
/// # Panics
/// If it cannot be run or tells no version.
pub fn version_of(program: &Path) -> Version {
    let output = Command::new(program).arg("--version").output().expect("rsync");
    parse(&String::from_utf8_lossy(&output.stdout)).expect("a version in the first line of `rsync --version`")
}

fn parse(text: &str) -> Option<Version> {
    let word = text.lines().next()?.split("version ").nth(1)?.split_whitespace().next()?;
    let mut numbers =
        word.split(|letter: char| !letter.is_ascii_digit()).filter_map(|part| part.parse().ok());
    Some((numbers.next()?, numbers.next()?, numbers.next().unwrap_or(0)))
}

/// Asserts that `rsync -aHAX --delete -n -i` would have nothing to do between two directories.
///
/// # Panics
/// If it would, with its list.
pub fn assert_rsync_agrees(source: &Path, destination: &Path) {
    assert_rsync_agrees_with(&["-aHAX", "--delete"], source, destination);
}

/// Asserts the same with options of the caller's choice, plus `-n -i`.
///
/// # Panics
/// If rsync would do anything.
pub fn assert_rsync_agrees_with(options: &[&str], source: &Path, destination: &Path) {
    let outcome = Run::of(PROGRAM)
        .args(options)
        .args(["-n", "-i"])
        .arg(slash(source))
        .arg(slash(destination))
        .run()
        .expect_code(0);
    let text = outcome.stdout_text();
    let head: Vec<&str> = text.lines().take(20).collect();
    assert!(head.is_empty(), "rsync would still do:\n{}", head.join("\n"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_read_from_its_line() {
        assert_eq!(parse("rsync  version 3.2.7  protocol version 31\nCopyright"), Some((3, 2, 7)));
        assert_eq!(parse("rsync  version v3.4.0pre1  protocol version 32"), Some((3, 4, 0)));
        assert_eq!(parse("openrsync: protocol version 29"), None);
    }
}
