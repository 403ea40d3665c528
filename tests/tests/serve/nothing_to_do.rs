//! Runs through a server in which nothing has to be copied, counted by their system calls.

use std::{fs, path::Path, process::Command};

use dsync_tests::{
    Outcome, needs_dsync, program,
    run::{until_met, wait_for},
    scratch::slash,
    strace::whole_calls,
    tree::set_mtime,
};

use crate::nas::{LONG_AGO, Nas};

/// Directories of the tree, its root included.
const DIRECTORIES: usize = 41;
/// Files of each: so many entries that a listing would go as digests on a long path.
const FILES: usize = 30;
/// Other directories that an end may read.
const OTHERS: usize = 4;

/// The calls that are traced: reading directories, syncing, sleeping, and the end.
const CALLS: &str =
    "trace=getdents64,fsync,fdatasync,syncfs,sync,sync_file_range,clock_nanosleep,nanosleep,exit_group";

/// Plants the tree.
fn plant(root: &Path) {
    for dir in 1..DIRECTORIES {
        let dir = root.join(format!("d{dir}"));
        fs::create_dir_all(&dir).unwrap();
        for file in 0..FILES {
            fs::write(dir.join(format!("f{file}")), "x").unwrap();
            set_mtime(&dir.join(format!("f{file}")), LONG_AGO);
        }
        set_mtime(&dir, LONG_AGO);
    }
    set_mtime(root, LONG_AGO);
}

/// Begins a command whose calls, and those of what it starts, go to a file. The command keeps its
/// process.
fn traced(log: &Path) -> Vec<String> {
    let words = ["strace", "-D", "-f", "-qq", "-e", CALLS, "-o"];
    words.into_iter().map(str::to_owned).chain([log.display().to_string()]).collect()
}

/// The calls of both ends of a run.
struct Calls {
    client: Vec<String>,
    server: Vec<String>,
}

impl Calls {
    /// Returns how many directories each end has read to their ends.
    fn directories(&self) -> [usize; 2] {
        [&self.client, &self.server].map(|calls| {
            let read = calls.iter().filter(|call| call.starts_with("getdents64("));
            read.filter(|call| call.ends_with(" = 0")).count()
        })
    }

    fn count(calls: &[String], names: &[&str]) -> usize {
        let is_one = |call: &&String| call.split('(').next().is_some_and(|name| names.contains(&name));
        calls.iter().filter(is_one).count()
    }
}

/// Carries a run out through a server of its own, both traced.
fn trace(nas: &mut Nas, key: &str, pulls: bool) -> Calls {
    let [client, server] = ["client.calls", "server.calls"].map(|name| nas.scratch.at(name));
    let [first, rest @ ..] = &traced(&server)[..] else { unreachable!() };
    let mut command = Command::new(first);
    command.args(rest).arg(program()).args(["serve", "--config"]).arg(nas.scratch.at("serve.toml"));
    nas.stand_by(command);
    nas.know(key);

    let (here, there) = (slash(&nas.scratch.src()), nas.operand("tree/"));
    let run = nas.run().arg("-a");
    let run = if pulls { run.arg(there).arg(here) } else { run.arg(here).arg(there) };
    let outcome: Outcome = run.behind(traced(&client)).run();
    let _ = outcome.expect_quiet_success();
    // The session ends after its client.
    let read = |path: &Path| fs::read_to_string(path).unwrap_or_default();
    wait_for(|| read(&server).contains("exit_group(") && read(&client).contains("exit_group("));
    nas.server = None;
    Calls { client: whole_calls(&read(&client)), server: whole_calls(&read(&server)) }
}

#[test]
fn a_run_with_nothing_to_do_reads_each_directory_once_and_syncs_and_sleeps_never() {
    needs_dsync!();
    let (mut nas, key) = Nas::offering("full");
    plant(&nas.scratch.src());
    plant(&nas.tree());
    for pulls in [false, true] {
        // A machine that is busy for milliseconds while the two ends connect has a long path.
        let calls = until_met(|| {
            let calls = trace(&mut nas, &key, pulls);
            let read = calls.directories();
            println!("pulls: {pulls}, directories read: {read:?}");
            assert!(read.iter().all(|count| *count >= DIRECTORIES), "{read:?}");
            read.iter().all(|count| *count <= DIRECTORIES + OTHERS).then_some(calls)
        });
        let syncs = ["fsync", "fdatasync", "syncfs", "sync", "sync_file_range"];
        for calls in [&calls.client, &calls.server] {
            assert_eq!(Calls::count(calls, &syncs), 0, "{calls:?}");
        }
        assert_eq!(Calls::count(&calls.client, &["nanosleep", "clock_nanosleep"]), 0);
    }
}
