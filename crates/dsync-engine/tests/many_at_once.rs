//! The threads of twenty runs at once, with both ends of each in this process. The only test of its
//! program: others would count too.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test")]

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::OsString,
    fs,
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    sync::{
        Arc, Barrier, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use dsync_engine::{
    CancelToken, Destination, Event, EventLevel, Job, Observer, Resources, Server, Silent, Source, Stream,
    SyncOptions,
};

/// Runs at once.
const RUNS: usize = 20;

/// Counts the threads of this process by name whenever a run tells of anything, and keeps the greatest count.
/// At one of its first entries each run waits for all others, so that all of them are under way at once.
struct Counts {
    greatest: Mutex<BTreeMap<String, usize>>,
    all: Barrier,
}

/// One run's observer.
struct Counted<'a> {
    counts: &'a Counts,
    events: AtomicUsize,
}

impl Observer for Counted<'_> {
    fn event(&self, _: &Event) {
        if self.events.fetch_add(1, Ordering::Relaxed) == 8 {
            self.counts.all.wait();
        }
        let now = settled_threads();
        let mut greatest = self.counts.greatest.lock().unwrap();
        if total(&now) > total(&greatest) {
            *greatest = now;
        }
    }
}

fn total(threads: &BTreeMap<String, usize>) -> usize {
    threads.values().sum()
}

/// Returns the number of this process's threads of each name.
fn threads() -> BTreeMap<String, usize> {
    let mut named = BTreeMap::new();
    for task in fs::read_dir("/proc/self/task").unwrap() {
        // One may end meanwhile.
        if let Ok(name) = fs::read_to_string(task.unwrap().path().join("comm")) {
            *named.entry(name.trim_end().to_owned()).or_default() += 1;
        }
    }
    named
}

/// Returns the number of this process's threads of each name. A thread that was just started has the name of
/// the one that starts it: those of the clock are looked at again until each has its own.
fn settled_threads() -> BTreeMap<String, usize> {
    let end = Instant::now() + Duration::from_secs(60);
    loop {
        let now = threads();
        if now.get("clock").is_none_or(|clocks| *clocks < 2) || Instant::now() > end {
            return now;
        }
        thread::yield_now();
    }
}

/// Returns the threads that carry bytes, by their numbers.
fn carriers() -> BTreeSet<OsString> {
    let tasks = fs::read_dir("/proc/self/task").unwrap().map(Result::unwrap);
    let is_carrier = |task: &fs::DirEntry| {
        fs::read_to_string(task.path().join("comm")).is_ok_and(|name| name.starts_with("dsync-carrier"))
    };
    tasks.filter(is_carrier).map(|task| task.file_name()).collect()
}

/// Plants files of which all are small but one, which differs from an old one.
fn plant(tree: &Path, old: &Path) {
    fs::create_dir_all(tree.join("sub")).unwrap();
    fs::create_dir_all(old).unwrap();
    for file in 0..100 {
        fs::write(tree.join("sub").join(file.to_string()), vec![7; 20_000]).unwrap();
    }
    let long: Vec<u8> = (0..1_000_000_u32).flat_map(u32::to_le_bytes).collect();
    fs::write(tree.join("long"), &long).unwrap();
    fs::write(old.join("long"), &long[..3_000_000]).unwrap();
}

fn push(from: &Path, to: &Path, resources: &Resources, observer: &dyn Observer) {
    let source = Source::Local { paths: vec![from.join("")] };
    let options = SyncOptions::archive().events(EventLevel::All);
    let job = Job::new(source, Destination::Peer { path: to.into() }).options(options);
    let connect = |_: &CancelToken| {
        let (ours, theirs) = UnixStream::pair()?;
        let server = Server::new(Stream::from_socket(theirs)?).resources(resources.clone());
        thread::Builder::new()
            .name("session".into())
            .spawn(move || server.serve(&Silent, &CancelToken::new()))?;
        Stream::from_socket(ours)
    };
    let job = job.resources(resources.clone());
    let summary = job.run_over(&connect, observer, &CancelToken::new()).unwrap();
    assert_eq!((summary.exit_code(), summary.report.files_transferred), (0, 101));
}

#[test]
fn twenty_runs_at_once_and_the_sessions_that_serve_them_share_their_threads() {
    let scratch = tempfile::tempdir().unwrap();
    let trees: Vec<_> = (0..RUNS)
        .map(|run| {
            let (from, to) =
                (scratch.path().join(format!("from/{run}")), scratch.path().join(format!("to/{run}")));
            plant(&from, &to);
            (from, to)
        })
        .collect();
    let (resources, before) = (Resources::default(), threads());
    let counts = Arc::new(Counts { greatest: Mutex::default(), all: Barrier::new(RUNS) });
    thread::scope(|scope| {
        for (from, to) in &trees {
            let (resources, counts) = (&resources, &counts);
            let run = move || push(from, to, resources, &Counted { counts, events: AtomicUsize::new(0) });
            thread::Builder::new().name("run".into()).spawn_scoped(scope, run).unwrap();
        }
    });
    let greatest = counts.greatest.lock().unwrap();
    let most = total(&greatest) - total(&before);
    println!("{most} threads: {greatest:?}");
    // Eight for each run and its session, of which two are this test's; those that all share; some that come
    // and go.
    let processors = thread::available_parallelism().unwrap().get();
    assert!(most <= 10 * RUNS + 8 * processors.max(8), "{most} threads: {greatest:?}");
    for (name, limit) in [("dsync-carrier", processors), ("dsync-work", processors), ("clock", 1)] {
        let started: usize =
            greatest.iter().filter(|(full, _)| full.starts_with(name)).map(|(_, count)| count).sum();
        assert!(started <= limit, "{started} of {name}");
    }

    // The next run takes those that are there, and they end with the last clone.
    let carriers = carriers();
    let (from, _) = &trees[0];
    push(from, &scratch.path().join("again"), &resources, &Silent);
    assert_eq!(self::carriers(), carriers);
    drop(resources);
    let end = Instant::now() + Duration::from_secs(300);
    while total(&threads()) > total(&before) && Instant::now() < end {
        thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(threads(), before);

    mirror_all(&trees, &scratch.path().join("mirrors"));
}

/// Mirrors each tree on this machine, all at once: there are fewer copiers than two for each run, and a run with
/// one copies large files whole.
fn mirror_all(trees: &[(PathBuf, PathBuf)], to: &Path) {
    fs::create_dir(to).unwrap();
    let (resources, counts) =
        (Resources::default(), Counts { greatest: Mutex::default(), all: Barrier::new(RUNS) });
    thread::scope(|scope| {
        for (number, (from, _)) in trees.iter().enumerate() {
            let (resources, counts, to) = (&resources, &counts, to.join(number.to_string()));
            scope.spawn(move || {
                let source = Source::Local { paths: vec![from.join("")] };
                let job =
                    Job::new(source, Destination::Local { path: to.clone() }).resources(resources.clone());
                let job = job.options(SyncOptions::archive().events(EventLevel::All));
                let observer = Counted { counts, events: AtomicUsize::new(0) };
                assert_eq!(job.run(&observer, &CancelToken::new()).unwrap().exit_code(), 0);
                assert!(fs::read(to.join("long")).unwrap() == fs::read(from.join("long")).unwrap());
            });
        }
    });
    let copiers = counts.greatest.lock().unwrap().get("copy").copied().unwrap_or(0);
    let processors = thread::available_parallelism().unwrap().get();
    assert!((1..=RUNS + (2 * processors).max(16)).contains(&copiers), "{copiers} copiers");
}
