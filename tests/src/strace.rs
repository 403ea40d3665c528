//! Runs whose system calls are traced or made to fail.

use std::{
    collections::{HashMap, HashSet},
    fs,
    path::Path,
};

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
    by_thread(trace).into_iter().map(|(_, call)| call).collect()
}

/// Returns the calls of the threads of one process, of a trace that has the calls by which threads
/// start.
pub fn calls_of_process(trace: &str, process: u32) -> Vec<String> {
    let mut threads = HashSet::from([process.to_string()]);
    let mut found = Vec::new();
    for (thread, call) in by_thread(trace) {
        if !threads.contains(thread) {
            continue;
        }
        let started = call.rsplit_once(" = ").map(|(_, result)| result.split(' ').next().unwrap_or_default());
        if call.contains("CLONE_THREAD") {
            threads.extend(started.map(str::to_owned));
        }
        found.push(call);
    }
    found
}

/// Returns whole calls, each with its thread.
fn by_thread(trace: &str) -> Vec<(&str, String)> {
    let mut calls: Vec<(&str, String)> = Vec::new();
    let mut begun = HashMap::new();
    for (thread, call) in trace.lines().filter_map(|line| line.split_once(' ')) {
        let call = call.trim();
        if let Some(head) = call.strip_suffix(" <unfinished ...>") {
            begun.insert(thread, calls.len());
            calls.push((thread, head.to_owned()));
        } else if call.starts_with("<... ") {
            let rest = call.split_once(" resumed>").map(|(_, rest)| rest);
            if let (Some(at), Some(rest)) = (begun.remove(thread), rest) {
                calls[at].1.push_str(rest);
            }
        } else if !call.starts_with("+++") {
            calls.push((thread, call.to_owned()));
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

    #[test]
    fn a_process_is_its_threads_and_not_what_it_starts() {
        let trace = "7 clone3({flags=CLONE_THREAD} <unfinished ...>\n8 open(\"a\") = 3\n7 <... clone3 resumed> => {}, 88) = 8\n7 vfork() = 9\n9 open(\"b\") = 3\n8 open(\"c\") = 4\n";
        let calls = calls_of_process(trace, 7);
        assert_eq!(calls[1..], ["open(\"a\") = 3", "vfork() = 9", "open(\"c\") = 4"]);
        assert_eq!(calls.len(), 4);
    }
}
