//! Runs whose system calls are watched, or made to fail.

use std::{fs, path::Path};

use crate::{
    program::program,
    run::{Outcome, Run},
};

/// A run of the program under test in which `calls` (names with commas between) meet `what`, e.g.
/// `error=EIO:when=2+`. strace counts the calls of each thread for itself.
pub fn inject(calls: &str, what: &str) -> Run {
    let run = Run::of("strace").args(["-f", "-qq", "-o", "/dev/null", "-e"]).arg(format!("trace={calls}"));
    run.arg("-e").arg(format!("inject={calls}:{what}")).arg(program())
}

/// Runs the program under test with `args` and gives what it did, one call with its arguments each.
///
/// # Panics
/// When the trace cannot be read.
pub fn watch(calls: &str, log: &Path, args: impl FnOnce(Run) -> Run) -> (Outcome, Vec<String>) {
    let run = Run::of("strace").args(["-f", "-qq", "-s", "4096", "-e"]).arg(format!("trace={calls}"));
    let outcome = args(run.arg("-o").arg(log).arg(program())).run();
    let text = fs::read(log).expect("the trace");
    let text = String::from_utf8_lossy(&text);
    let calls = text.lines().filter_map(|line| line.split_once(' ').map(|(_, call)| call.trim().to_owned()));
    (outcome, calls.filter(|call| !call.starts_with("<...") && !call.starts_with("+++")).collect())
}
