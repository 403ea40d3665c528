//! A cancelled run or verification makes no further call, and does not end well after it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::disallowed_methods, reason = "a test")]

use std::{
    fs,
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use dsync_engine::{
    CancelToken, Choice, Destination, Event, EventLevel, Job, Manifest, Observer, Server, Silent, Source,
    Stream, Summary, SyncError, SyncOptions,
    verify::{Finding, Reading, VerifyError, VerifyObserver, record_to_file, verify},
};

/// Files of a source.
const FILES: usize = 400;

/// Calls that may be under way in other threads when the run is cancelled.
const UNDER_WAY: usize = 8;

/// Cancels at the fifth call, and counts all.
#[derive(Default)]
struct Cancels {
    cancel: CancelToken,
    calls: AtomicUsize,
}

impl Cancels {
    fn call(&self) {
        if self.calls.fetch_add(1, Ordering::Relaxed) == 4 {
            self.cancel.cancel();
        }
    }

    fn check<T: std::fmt::Debug>(&self, ended: &Result<T, SyncError>) {
        assert!(matches!(ended, Err(SyncError::Cancelled)), "{ended:?}");
        let calls = self.calls.load(Ordering::Relaxed);
        assert!((5..=5 + UNDER_WAY).contains(&calls), "{calls} calls");
    }
}

impl Observer for Cancels {
    fn event(&self, _: &Event) {
        self.call();
    }
}

impl VerifyObserver for Cancels {
    fn finding(&self, _: &Finding) {
        self.call();
    }
}

/// Makes a directory of many files.
fn plant(home: &Path) -> PathBuf {
    let from = home.join("from");
    fs::create_dir(&from).unwrap();
    (0..FILES).for_each(|number| fs::write(from.join(number.to_string()), "short").unwrap());
    from
}

/// Runs a job, beside a server if it needs a peer.
fn run(job: Job, observer: &dyn Observer, cancel: &CancelToken) -> Result<Summary, SyncError> {
    let connect = |_: &CancelToken| {
        let (ours, theirs) = UnixStream::pair()?;
        let theirs = Stream::from_socket(theirs)?;
        thread::spawn(move || Server::new(theirs).serve(&Silent, &CancelToken::new()));
        Stream::from_socket(ours)
    };
    job.options(SyncOptions::archive().events(EventLevel::All)).run_over(&connect, observer, cancel)
}

#[test]
fn a_cancelled_run_tells_its_observer_nothing_more() {
    for kind in ["local", "push", "pull"] {
        let home = tempfile::tempdir().unwrap();
        let (from, to) = (plant(home.path()).join(""), home.path().join("to"));
        let (source, destination) = match kind {
            "local" => (Source::Local { paths: vec![from] }, Destination::Local { path: to }),
            "push" => (Source::Local { paths: vec![from] }, Destination::Peer { path: to.into() }),
            _ => (Source::Peer { paths: vec![from.into()] }, Destination::Local { path: to }),
        };
        let observer = Cancels::default();
        let job = Job::new(source, destination);
        let ended = match kind {
            "local" => job
                .options(SyncOptions::archive().events(EventLevel::All))
                .run(&observer, &observer.cancel.clone()),
            _ => run(job, &observer, &observer.cancel.clone()),
        };
        observer.check(&ended);
    }
}

#[test]
fn a_cancelled_run_asks_its_filter_nothing_more() {
    let home = tempfile::tempdir().unwrap();
    let (from, to) = (plant(home.path()).join(""), home.path().join("to"));
    let asked = Arc::new(Cancels::default());
    let judge = Arc::clone(&asked);
    let job = Job::new(Source::Local { paths: vec![from] }, Destination::Local { path: to })
        .options(SyncOptions::archive())
        .filter(move |_| {
            judge.call();
            Choice::Copy
        });
    asked.check(&job.run(&Silent, &asked.cancel.clone()));
}

#[test]
fn a_cancelled_verification_tells_no_more_findings_and_is_no_verdict() {
    let home = tempfile::tempdir().unwrap();
    let (from, file) = (plant(home.path()), home.path().join("manifest"));
    let reading = Reading::default();
    record_to_file(&from, &file, &reading, &Silent, &CancelToken::new()).unwrap();
    let manifest = Manifest::open(&file).unwrap();
    (0..FILES).for_each(|number| fs::write(from.join(number.to_string()), "something else").unwrap());

    let observer = Cancels::default();
    let ended = verify(&from, &manifest, &reading, &observer, &observer.cancel.clone());
    assert!(matches!(ended, Err(VerifyError::Cancelled)), "{ended:?}");
    assert_eq!(observer.calls.load(Ordering::Relaxed), 5);
}
