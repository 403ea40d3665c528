//! The threads of a local run. The only test of its program: others would count too.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test")]

use std::{
    fs,
    sync::atomic::{AtomicUsize, Ordering},
    thread,
    time::{Duration, Instant},
};

use dsync_engine::{
    CancelToken, Destination, Event, EventLevel, Job, Observer, Progress, Source, SyncOptions,
};

/// Counts the threads of this process whenever it hears of anything.
#[derive(Default)]
struct Threads {
    most: AtomicUsize,
    events: AtomicUsize,
}

impl Threads {
    fn count(&self) {
        self.most.fetch_max(threads(), Ordering::Relaxed);
    }
}

impl Observer for Threads {
    fn event(&self, _: &Event) {
        self.events.fetch_add(1, Ordering::Relaxed);
        self.count();
    }

    fn progress(&self, _: &Progress) {
        self.count();
    }
}

fn threads() -> usize {
    fs::read_dir("/proc/self/task").unwrap().count()
}

/// Waits until only these threads are left: the system may show one for a moment after it was joined.
fn wait_for(left: usize) {
    let end = Instant::now() + Duration::from_secs(300);
    while threads() > left && Instant::now() < end {
        thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(threads(), left);
}

#[test]
fn a_local_run_without_changes_has_six_threads() {
    let scratch = tempfile::tempdir().unwrap();
    let (from, to) = (scratch.path().join("from"), scratch.path().join("to"));
    fs::create_dir(&from).unwrap();
    for file in 0..10 {
        fs::write(from.join(file.to_string()), file.to_string()).unwrap();
    }
    let before = threads();
    let run = || {
        let source = Source::Local { paths: vec![from.join("")] };
        let job = Job::new(source, Destination::Local { path: to.clone() });
        let counted = Threads::default();
        let summary = job
            .options(SyncOptions::archive().events(EventLevel::All).event_done(true))
            .run(&counted, &CancelToken::new())
            .unwrap();
        // The calling thread is one of the run's.
        let most = counted.most.into_inner() - before + 1;
        (summary.report.files_transferred, counted.events.into_inner(), most)
    };

    let (transferred, events, _) = run();
    assert!((transferred, events) >= (10, 20), "{events} events");
    wait_for(before);
    // Those that copy and commit start with the first file, and here there is none.
    let (transferred, events, most) = run();
    assert!(transferred == 0 && events >= 11, "{events} events");
    // At the least those that plan, listen at both ends, and watch.
    assert!((4..=6).contains(&most), "{most} threads");
    wait_for(before);
}
