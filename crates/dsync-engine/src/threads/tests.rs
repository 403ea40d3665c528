//! Runs of a process that may start so many threads and no more.

use std::{
    fs,
    path::Path,
    sync::{Arc, mpsc},
    time::{Duration, Instant},
};

use dsync_transport::{
    Stream,
    memory::{self, MemoryLink},
};
use dsync_wire::{
    frame::ControlSender,
    link::{Link, LinkError},
};

use super::limited::with_room_for;
use crate::{
    CancelToken, Destination, Fault, Grant, Job, Server, Silent, Source, SyncError, SyncOptions,
    grant::{Access, GrantTerms},
    halt::Halt,
    session::ControlOut,
};

/// Time after which a run counts as one that never ends.
const HANGS: Duration = Duration::from_secs(180);

/// More threads than a run starts.
const MOST: usize = 60;

/// Makes runs with ever more room, until one goes well. Returns how many did not.
fn refusals(run: impl Fn() -> Result<(), SyncError> + Clone + Send + 'static) -> usize {
    for room in 0..MOST {
        let (told, ended) = mpsc::channel();
        let run = run.clone();
        std::thread::spawn(move || told.send(with_room_for(room, run)));
        match ended.recv_timeout(HANGS) {
            Ok(Ok(())) => return room,
            Ok(Err(error)) => {
                assert!(matches!(error, SyncError::Thread { .. }), "room for {room}: {error:?}");
                assert_eq!(error.fault(), Fault::System);
            }
            Err(error) => panic!("room for {room}: {error}"),
        }
    }
    panic!("no run went well");
}

/// Makes a tree of a few files.
fn plant(tree: &Path) {
    fs::create_dir_all(tree).unwrap();
    for name in ["a", "b", "c"] {
        fs::write(tree.join(name), [7; 5000]).unwrap();
    }
}

#[test]
fn a_local_run_that_may_start_no_more_threads_ends_and_says_so() {
    let home = tempfile::tempdir().unwrap();
    let (from, to) = (home.path().join("from"), home.path().join("to"));
    plant(&from);
    let run = move || {
        let source = Source::Local { paths: vec![from.join("")] };
        let job = Job::new(source, Destination::Local { path: to.clone() });
        job.options(SyncOptions::archive()).run(&Silent, &CancelToken::new()).map(drop)
    };
    assert!(refusals(run) > 3);
}

#[test]
fn a_push_that_may_start_no_more_threads_ends_and_says_so() {
    let home = tempfile::tempdir().unwrap();
    let (from, to) = (home.path().join("from"), home.path().join("to"));
    plant(&from);
    fs::create_dir(&to).unwrap();
    // The service has room, and starts its threads from one without a limit.
    let (calls, called) = mpsc::channel::<MemoryLink>();
    std::thread::spawn(move || {
        for link in called {
            let grant = Grant::open(GrantTerms::new(to.clone(), Access::ReadWrite)).unwrap();
            let server = Server::new(Stream::from_link(Arc::new(link))).grant(grant);
            let _ = server.serve(&Silent, &CancelToken::new());
        }
    });
    let run = move || {
        let source = Source::Local { paths: vec![from.join("")] };
        let job = Job::new(source, Destination::Peer { path: "copy".into() });
        let connect = |_: &CancelToken| {
            let (ours, theirs) = memory::pair();
            calls.send(theirs).map_err(|_| std::io::Error::other("the service is gone"))?;
            Ok(Stream::from_link(Arc::new(ours)))
        };
        job.options(SyncOptions::archive()).run_over(&connect, &Silent, &CancelToken::new()).map(drop)
    };
    assert!(refusals(run) > 3);
}

#[test]
fn a_refused_farewell_still_ends_the_run() {
    let (here, there) = memory::pair();
    let here: Arc<dyn Link> = Arc::new(here);
    let control = ControlOut::new(ControlSender::new(here.open_lane().unwrap().tx));
    let halt = Halt::new(here, Arc::new(control));

    let began = Instant::now();
    with_room_for(0, || {
        std::thread::scope(|scope| assert!(halt.spawn(scope, "work", || Ok(())).is_none()));
    });
    assert!(began.elapsed() < HANGS && halt.stopped());
    assert!(matches!(there.accept_lane().map(drop), Err(LinkError::PeerClosed { .. })));
    assert!(matches!(halt.result(), Err(SyncError::Thread { .. })));
}
