//! A run that finds nothing to do, by the library: ten files, here and over a connection that is open.
//!
//! Prints for each form the best time, the median, and the processor time of a run. The best is what the
//! code needs; the others also say how busy the machine was. Words choose forms, a number the rounds:
//! `cargo bench -p dsync-benches --bench no_op -- local 5000`.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a bench")]

use std::{
    env, fs,
    os::unix::net::UnixStream,
    path::Path,
    thread,
    time::{Duration, Instant},
};

use dsync_engine::{
    Access, CancelToken, Destination, Grant, GrantTerms, Job, Server, Silent, Source, Stream, SyncOptions,
};
use rustix::time::{ClockId, clock_gettime};

/// Runs of each form.
const ROUNDS: usize = 1000;

fn main() {
    let words: Vec<String> = env::args().skip(1).filter(|word| !word.starts_with("--")).collect();
    let rounds = words.iter().find_map(|word| word.parse().ok()).unwrap_or(ROUNDS);
    let is_chosen = |name: &str| {
        let mut forms = words.iter().filter(|word| word.parse::<usize>().is_err()).peekable();
        forms.peek().is_none() || forms.any(|word| word == name)
    };
    let scratch = tempfile::tempdir().unwrap();
    let (from, to) = (scratch.path().join("from"), scratch.path().join("to"));
    fs::create_dir(&from).unwrap();
    for file in 0..10 {
        fs::write(from.join(file.to_string()), file.to_string()).unwrap();
    }
    let job = |source, destination| Job::new(source, destination).options(SyncOptions::archive());
    let here = || Source::Local { paths: vec![from.join("")] };
    let local = job(here(), Destination::Local { path: to.clone() });
    local.clone().run(&Silent, &CancelToken::new()).unwrap();

    if is_chosen("local") {
        measure("local", rounds, || {
            let summary = local.clone().run(&Silent, &CancelToken::new()).unwrap();
            assert_eq!(summary.report.files_transferred, 0);
        });
    }
    let push = job(here(), Destination::Peer { path: "to".into() });
    let pull = job(Source::Peer { paths: vec!["from/".into()] }, Destination::Local { path: to });
    for (name, job) in [("push", push), ("pull", pull)] {
        if is_chosen(name) {
            measure(name, rounds, || over(scratch.path(), &job));
        }
    }
}

/// Runs over a new socket pair, both ends in this process.
fn over(scratch: &Path, job: &Job) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let grant = Grant::open(GrantTerms::new(scratch.to_owned(), Access::ReadWrite)).unwrap();
    let theirs = Stream::from_socket(theirs).unwrap();
    let serving = thread::spawn(move || Server::new(theirs).grant(grant).serve(&Silent, &CancelToken::new()));
    let connect = |_: &CancelToken| Stream::from_socket(ours.try_clone()?);
    let summary = job.clone().run_over(&connect, &Silent, &CancelToken::new()).unwrap();
    assert_eq!(summary.report.files_transferred, 0);
    serving.join().unwrap().unwrap();
}

fn measure(name: &str, rounds: usize, mut run: impl FnMut()) {
    let before = processor_time();
    let mut times: Vec<Duration> = (0..rounds)
        .map(|_| {
            let begun = Instant::now();
            run();
            begun.elapsed()
        })
        .collect();
    let spent = (processor_time() - before) / u32::try_from(rounds.max(1)).unwrap();
    times.sort_unstable();
    let (best, median) = (times[0], times[times.len() / 2]);
    println!("no-op of 10 files, {name}: best {best:?}, median {median:?}, processor time {spent:?} a run");
}

/// Returns the processor time of this process.
fn processor_time() -> Duration {
    let now = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(now.tv_sec.unsigned_abs(), u32::try_from(now.tv_nsec).unwrap())
}
