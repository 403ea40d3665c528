//! Holds that a panic in an observer ends its run and nothing else, over a connection as well:
//! whichever callback it is in, before, in and after a reconnect.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::disallowed_methods, reason = "a test")]

use std::{
    collections::BTreeSet,
    fs,
    io::{self, Read},
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread::{self, JoinHandle},
};

use dsync_engine::{
    CancelToken, ConnectOptions, Connection, Destination, Event, EventLevel, FileProgress, Job, Observer,
    Progress, Reason, Reconnect, Server, Silent, Source, Stream, Summary, SyncError, SyncOptions,
};

/// Panics at the callback of a number, counted from 0.
struct PanicsAt {
    at: usize,
    calls: AtomicUsize,
    kinds: Mutex<BTreeSet<&'static str>>,
}

impl PanicsAt {
    fn new(at: usize) -> Self {
        Self { at, calls: AtomicUsize::new(0), kinds: Mutex::default() }
    }

    fn count(&self, kind: &'static str) {
        self.kinds.lock().unwrap().insert(kind);
        let call = self.calls.fetch_add(1, Ordering::Relaxed);
        assert!(call != self.at, "callback {call}");
    }
}

impl Observer for PanicsAt {
    fn connected(&self, _: &Connection) {
        self.count("connected");
    }

    fn peer_lacks(&self, _: &[String]) {
        self.count("peer_lacks");
    }

    fn reconnecting(&self, _: &Reconnect<'_>) {
        self.count("reconnecting");
    }

    fn event(&self, _: &Event) {
        self.count("event");
    }

    fn progress(&self, _: &Progress) {
        self.count("progress");
    }

    fn file(&self, _: &FileProgress) {
        self.count("file");
    }
}

/// Panics at the event of a number, counted from 0.
struct PanicsAtEvent(PanicsAt);

impl Observer for PanicsAtEvent {
    fn event(&self, event: &Event) {
        self.0.event(event);
    }
}

/// A source, a destination with an entry too many, and the sessions of its server.
struct Scene {
    scratch: tempfile::TempDir,
    /// Whether the next connection ends early.
    breaks: AtomicBool,
    /// The observer of the serving end.
    served: Arc<dyn Observer>,
    sessions: Mutex<Vec<JoinHandle<Result<(), SyncError>>>>,
}

impl Scene {
    fn new(breaks: bool) -> Self {
        let scratch = tempfile::tempdir().unwrap();
        fs::create_dir_all(scratch.path().join("src/sub")).unwrap();
        fs::create_dir_all(scratch.path().join("dst/old")).unwrap();
        for file in ["a", "b", "sub/c"] {
            fs::write(scratch.path().join("src").join(file), content()).unwrap();
        }
        let (breaks, served) = (AtomicBool::new(breaks), Arc::new(Silent));
        Self { scratch, breaks, served, sessions: Mutex::default() }
    }

    fn at(&self, path: &str) -> PathBuf {
        self.scratch.path().join(path)
    }

    fn connect(&self) -> io::Result<Stream> {
        let (ours, theirs) = UnixStream::pair()?;
        let theirs = Stream::from_socket(theirs)?;
        let served = Arc::clone(&self.served);
        let session = thread::spawn(move || Server::new(theirs).serve(&*served, &CancelToken::new()));
        self.sessions.lock().unwrap().push(session);
        if self.breaks.swap(false, Ordering::Relaxed) {
            // The session has begun by then, and most of the content is missing.
            return Stream::new(ours.try_clone()?.take(100_000), ours);
        }
        Stream::from_socket(ours)
    }

    fn run(&self, job: Job, observer: &dyn Observer, cancel: &CancelToken) -> Result<Summary, SyncError> {
        let options = SyncOptions::archive().events(EventLevel::All).delete(true);
        let job = job.options(options).connect(ConnectOptions::default().retries(1));
        let outcome = job.run_over(&|_: &CancelToken| self.connect(), observer, cancel);
        // No session outlives its run.
        for session in std::mem::take(&mut *self.sessions.lock().unwrap()) {
            let _ = session.join().expect("the serving end does not panic");
        }
        outcome
    }
}

/// Returns bytes that do not get smaller: xorshift (Marsaglia, 2003).
fn content() -> Vec<u8> {
    let mut state = 1_u64;
    let next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        Some(state.to_le_bytes()[0])
    };
    std::iter::from_fn(next).take(100_000).collect()
}

/// Panics at one callback after another, until a run has no more of them. Returns their kinds.
fn panic_everywhere(breaks: bool, job: impl Fn(&Path) -> Job) -> BTreeSet<&'static str> {
    for at in 0.. {
        let scene = Scene::new(breaks);
        let (observer, cancel) = (PanicsAt::new(at), CancelToken::new());
        let outcome = scene.run(job(scene.scratch.path()), &observer, &cancel);
        if observer.calls.load(Ordering::Relaxed) <= at {
            assert!(outcome.is_ok(), "{outcome:?}");
            return observer.kinds.into_inner().unwrap();
        }

        assert!(!cancel.is_cancelled(), "the caller's token is the caller's");
        let error = outcome.unwrap_err();
        let SyncError::Aborted { message } = error else { panic!("callback {at}: {error:?}") };
        assert_eq!(message, format!("callback {at}"));

        // Files that arrived are whole, and the next run ends well.
        scene.breaks.store(false, Ordering::Relaxed);
        let summary = scene.run(job(scene.scratch.path()), &Silent, &cancel).unwrap();
        assert_eq!(summary.exit_code(), 0, "callback {at}");
        assert!(!scene.at("dst/old").exists());
        assert_eq!(fs::read(scene.at("dst/sub/c")).unwrap(), content());
    }
    unreachable!("every run has an end")
}

fn push(scratch: &Path) -> Job {
    let source = Source::Local { paths: vec![scratch.join("src").join("")] };
    Job::new(source, Destination::Peer { path: scratch.join("dst").into() })
}

fn pull(scratch: &Path) -> Job {
    let source = Source::Peer { paths: vec![scratch.join("src").join("").into()] };
    Job::new(source, Destination::Local { path: scratch.join("dst") })
}

#[test]
fn a_panic_at_any_callback_of_a_push_ends_the_run_and_its_session() {
    let kinds = panic_everywhere(false, push);
    assert!(kinds.is_superset(&["connected", "event", "progress"].into()), "{kinds:?}");
}

#[test]
fn a_panic_at_any_callback_of_a_pull_ends_the_run_and_its_session() {
    let kinds = panic_everywhere(false, pull);
    assert!(kinds.is_superset(&["connected", "event", "progress"].into()), "{kinds:?}");
}

#[test]
fn a_panic_at_any_callback_around_a_reconnect_ends_the_run_and_its_sessions() {
    let kinds = panic_everywhere(true, pull);
    assert!(kinds.is_superset(&["connected", "event", "progress", "reconnecting"].into()), "{kinds:?}");
}

#[test]
fn a_panic_at_any_event_of_the_serving_end_is_no_success_for_the_caller() {
    for at in 0.. {
        let mut scene = Scene::new(false);
        let observer = Arc::new(PanicsAtEvent(PanicsAt::new(at)));
        scene.served = observer.clone();
        let outcome = scene.run(push(scene.scratch.path()), &Silent, &CancelToken::new());
        if observer.0.calls.load(Ordering::Relaxed) <= at {
            assert!(at >= 4 && outcome.is_ok(), "{at}: {outcome:?}");
            return;
        }
        // The service's failure, not its cancelling. The connection may end before the reason is there.
        let error = outcome.unwrap_err();
        let is_told = matches!(&error, SyncError::Peer { exit_code: 12, text, reason: Reason::Aborted } if text.contains("callback"));
        assert!(is_told || matches!(&error, SyncError::Link(_)), "event {at}: {error:?}");
    }
}
