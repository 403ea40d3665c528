//! Runs whose system calls are traced or made to fail.

use std::{collections::HashMap, fs, path::Path};

use crate::{
    program::program,
    run::{Outcome, Run},
};

/// Makes a run of the program under test in which `calls` (names with commas between) meet `what`,
/// e.g. `error=EIO:when=2+`. strace counts the calls of each thread separately.
pub fn inject(calls: &str, what: &str) -> Run {
    inject_into(Run::of(program()), calls, what)
}

/// Injects as [`inject`] does, into an existing run and all its child processes.
pub fn inject_into(run: Run, calls: &str, what: &str) -> Run {
    let (trace, inject) = (format!("trace={calls}"), format!("inject={calls}:{what}"));
    run.behind(["strace", "-f", "-qq", "-o", "/dev/null", "-e", &trace, "-e", &inject])
}

/// Runs the program under test with `args`. Returns the result and its calls, one call with its
/// arguments and its result each, in the order in which they began.
///
/// # Panics
/// If the trace cannot be read.
pub fn watch(calls: &str, log: &Path, args: impl FnOnce(Run) -> Run) -> (Outcome, Vec<String>) {
    let run = Run::of("strace").args(["-f", "-qq", "-s", "4096", "-e"]).arg(format!("trace={calls}"));
    let outcome = args(run.arg("-o").arg(log).arg(program())).run();
    let text = fs::read(log).expect("the trace");
    let text = String::from_utf8_lossy(&text);
    (outcome, whole_calls(&text))
}

/// Returns the calls of a trace of several threads. strace splits a call into two lines if another
/// thread's came between.
pub fn whole_calls(trace: &str) -> Vec<String> {
    let mut calls: Vec<String> = Vec::new();
    let mut begun = HashMap::new();
    for (thread, call) in trace.lines().filter_map(|line| line.split_once(' ')) {
        let call = call.trim();
        if let Some(head) = call.strip_suffix(" <unfinished ...>") {
            begun.insert(thread, calls.len());
            calls.push(head.to_owned());
        } else if call.starts_with("<... ") {
            let rest = call.split_once(" resumed>").map(|(_, rest)| rest);
            if let (Some(at), Some(rest)) = (begun.remove(thread), rest) {
                calls[at].push_str(rest);
            }
        } else if !call.starts_with("+++") {
            calls.push(call.to_owned());
        }
    }
    calls
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_that_others_came_between_is_one() {
        let trace = "1 fsync(3 <unfinished ...>\n2 rename(\"a\", \"b\") = 0\n1 <... fsync resumed>) = 0\n1 +++ exited with 0 +++\n";
        assert_eq!(whole_calls(trace), ["fsync(3) = 0", "rename(\"a\", \"b\") = 0"]);
    }
}
