//! rsync's own judgement of a result.

use std::{ffi::OsStr, path::Path};

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
    Run::of("/usr/bin/rsync").args(args).run()
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
    let outcome = Run::of("/usr/bin/rsync")
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
