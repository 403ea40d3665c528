//! Runs of a process that may start so many threads and no more.

use std::{
    fs,
    os::unix::net::UnixStream,
    path::Path,
    sync::mpsc,
    time::{Duration, Instant},
};

use dsync_transport::Stream;

use super::limited::with_room_for;
use crate::{
    CancelToken, Destination, Fault, Grant, Job, Server, Silent, Source, SyncError, SyncOptions,
    grant::{Access, GrantTerms},
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
    let (calls, called) = mpsc::channel::<UnixStream>();
    std::thread::spawn(move || {
        for socket in called {
            let grant = Grant::open(GrantTerms::new(to.clone(), Access::ReadWrite)).unwrap();
            let server = Server::new(Stream::from_socket(socket).unwrap()).grant(grant);
            let _ = server.serve(&Silent, &CancelToken::new());
        }
    });
    let run = move || {
        let source = Source::Local { paths: vec![from.join("")] };
        let job = Job::new(source, Destination::Peer { path: "copy".into() });
        let connect = |_: &CancelToken| {
            let (ours, theirs) = UnixStream::pair()?;
            calls.send(theirs).map_err(std::io::Error::other)?;
            Stream::from_socket(ours)
        };
        job.options(SyncOptions::archive()).run_over(&connect, &Silent, &CancelToken::new()).map(drop)
    };
    assert!(refusals(run) > 3);
}

#[test]
fn a_refused_farewell_still_ends_the_run() {
    let (here, there) = dsync_transport::memory::pair();
    let here: std::sync::Arc<dyn dsync_wire::link::Link> = std::sync::Arc::new(here);
    let sender = dsync_wire::frame::ControlSender::new(here.open_lane().unwrap().tx);
    let control = std::sync::Arc::new(crate::session::ControlOut::new(sender));
    let halt = crate::halt::Halt::new(here, control);

    let began = Instant::now();
    with_room_for(0, || {
        std::thread::scope(|scope| assert!(halt.spawn(scope, "work", || Ok(())).is_none()));
    });
    assert!(began.elapsed() < HANGS && halt.stopped());
    assert!(dsync_wire::link::Link::accept_lane(&there).is_err());
    assert!(matches!(halt.into_result(), Err(SyncError::Thread { .. })));
}
