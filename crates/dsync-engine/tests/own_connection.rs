//! Both ends of a run in a program of its own, over connections that it makes.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::disallowed_methods, reason = "a test")]

use std::{
    fs,
    future::Future,
    io::{self, Read, Write},
    net::{TcpListener, TcpStream},
    num::NonZeroU64,
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
        mpsc,
    },
    thread,
    time::Duration,
};

use dsync_engine::{
    Access, AlternateUse, Alternates, CancelToken, Carrier, Choice, ConnectOptions, Destination, Excess,
    Fault, Grant, GrantTerms, Job, Limits, Reason, Resources, RunHandle, Server, Silent, Source, Stream,
    Summary, SyncError, SyncOptions, WritePolicy,
    grant::{OptionRules, Request},
};

/// A tree, and the directory of a service.
struct Scene {
    scratch: tempfile::TempDir,
}

impl Scene {
    fn new() -> Self {
        let scratch = tempfile::tempdir().unwrap();
        for dir in ["agent/sub", "service"] {
            fs::create_dir_all(scratch.path().join(dir)).unwrap();
        }
        let scene = Self { scratch };
        fs::write(scene.at("agent/small"), "small").unwrap();
        let big: Vec<u8> = (0..2_000_000_u32).flat_map(u32::to_le_bytes).collect();
        fs::write(scene.at("agent/sub/big"), big).unwrap();
        scene
    }

    fn at(&self, path: &str) -> PathBuf {
        self.scratch.path().join(path)
    }

    fn grant(&self, access: Access) -> Grant {
        Grant::open(GrantTerms::new(self.at("service"), access)).unwrap()
    }

    fn push(&self) -> Job {
        let source = Source::Local { paths: vec![self.at("agent")] };
        // Below the directory that the service grants.
        Job::new(source, Destination::Peer { path: "host".into() }).options(SyncOptions::archive())
    }

    fn is_there(&self, at: &Path) {
        for file in ["small", "sub/big"] {
            let wanted = fs::read(self.at("agent").join(file)).unwrap();
            assert!(fs::read(at.join(file)).unwrap() == wanted, "{file}");
        }
    }
}

/// Serves each stream with a grant, on a thread of its own.
fn serve(stream: Stream, grant: Grant) -> thread::JoinHandle<Result<(), SyncError>> {
    thread::spawn(move || Server::new(stream).grant(grant).serve(&Silent, &CancelToken::new()))
}

fn run(job: Job, connect: impl Fn() -> io::Result<Stream> + Sync) -> Result<Summary, SyncError> {
    job.run_over(&|_: &CancelToken| connect(), &Silent, &CancelToken::new())
}

#[test]
fn a_push_and_a_pull_go_over_a_socket_of_the_programs_own() {
    let scene = Scene::new();
    fs::create_dir(scene.at("service/host")).unwrap();
    let connect = || {
        let (ours, theirs) = UnixStream::pair()?;
        let _ = serve(Stream::from_socket(theirs)?, scene.grant(Access::ReadWrite));
        Stream::from_socket(ours)
    };
    let pushed = run(scene.push(), connect).unwrap();
    assert_eq!((pushed.exit_code(), pushed.report.files_transferred), (0, 2));
    assert_eq!(pushed.connection.unwrap().carrier, Carrier::Stream);
    scene.is_there(&scene.at("service/host/agent"));

    let source = Source::Peer { paths: vec!["host/agent/".into()] };
    let job = Job::new(source, Destination::Local { path: scene.at("restored") });
    let pulled = run(job.options(SyncOptions::archive()), connect).unwrap();
    assert_eq!((pulled.exit_code(), pulled.report.files_transferred), (0, 2));
    scene.is_there(&scene.at("restored"));
    assert_eq!(run(scene.push(), connect).unwrap().report.files_transferred, 0);
}

#[test]
fn any_pair_of_reader_and_writer_is_a_stream() {
    let scene = Scene::new();
    fs::create_dir(scene.at("service/host")).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let grant = scene.grant(Access::ReadWrite);
    let (ended, is_ended) = mpsc::channel();
    let halves =
        move |socket: TcpStream| Stream::new(Inward(socket.try_clone()?, ended.clone()), Outward(socket));
    let of_service = halves.clone();
    let service = thread::spawn(move || {
        let (socket, _) = listener.accept().unwrap();
        Server::new(of_service(socket).unwrap()).grant(grant).serve(&Silent, &CancelToken::new())
    });
    let pushed = run(scene.push(), || halves(TcpStream::connect(address)?));
    assert_eq!(pushed.unwrap().exit_code(), 0);
    service.join().unwrap().unwrap();
    scene.is_there(&scene.at("service/host/agent"));

    // Neither end's reader waits for the other's for ever.
    for _ in 0..2 {
        is_ended.recv_timeout(Duration::from_secs(120)).unwrap();
    }
}

#[test]
fn another_programs_answer_is_the_peers_fault_and_no_reason_to_try_again() {
    let scene = Scene::new();
    let error = run(scene.push(), || {
        let (ours, mut theirs) = UnixStream::pair()?;
        theirs.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n")?;
        thread::spawn(move || io::copy(&mut theirs, &mut io::sink()));
        Stream::from_socket(ours)
    });
    let error = error.unwrap_err();
    assert!(matches!(error, SyncError::Link(_)), "{error:?}");
    assert_eq!((error.fault(), error.is_retryable(), error.exit_code()), (Fault::Peer, false, 12));
}

/// A socket's reading half, which tells when it is dropped.
struct Inward(TcpStream, mpsc::Sender<()>);

impl Read for Inward {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read(buffer)
    }
}

impl Drop for Inward {
    fn drop(&mut self) {
        let _ = self.1.send(());
    }
}

/// A socket's writing half, which ends the reading one with it.
struct Outward(TcpStream);

impl Write for Outward {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

impl Drop for Outward {
    fn drop(&mut self) {
        let _ = self.0.shutdown(std::net::Shutdown::Both);
    }
}

/// A reader that ends after a number of bytes, as a connection that breaks does.
struct Breaks {
    socket: UnixStream,
    left: usize,
}

impl Read for Breaks {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let most = buf.len().min(self.left);
        let read = self.socket.read(&mut buf[..most])?;
        self.left -= read;
        if self.left == 0 {
            self.socket.shutdown(std::net::Shutdown::Both)?;
        }
        Ok(read)
    }
}

#[test]
fn a_connection_that_breaks_is_asked_for_again() {
    let scene = Scene::new();
    fs::create_dir(scene.at("service/host")).unwrap();
    let calls = AtomicUsize::new(0);
    let connect = || {
        let (ours, theirs) = UnixStream::pair()?;
        // The first breaks in the middle of the content.
        let left = if calls.fetch_add(1, Ordering::Relaxed) == 0 { 1_000_000 } else { usize::MAX };
        let reader = Breaks { socket: theirs.try_clone()?, left };
        let _ = serve(Stream::new(reader, theirs)?, scene.grant(Access::ReadWrite));
        Stream::from_socket(ours)
    };
    let pushed = run(scene.push(), connect).unwrap();
    assert_eq!((pushed.exit_code(), pushed.reconnects), (0, 1));
    assert_eq!(calls.load(Ordering::Relaxed), 2);
    scene.is_there(&scene.at("service/host/agent"));
}

/// Returns the names in a directory that begin like this.
fn beginning(dir: &Path, prefix: &str) -> Vec<PathBuf> {
    let paths = fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path());
    let begins = |path: &PathBuf| path.file_name().unwrap().to_string_lossy().starts_with(prefix);
    paths.filter(begins).collect()
}

/// Returns whether a file of this length is complete, and has no name yet.
fn waits_for_its_name(dir: &Path, length: u64) -> bool {
    let is_whole = |path: &PathBuf| fs::metadata(path).is_ok_and(|found| found.len() == length);
    let part = beginning(dir, ".dsync-part-");
    !part.is_empty() && part.iter().all(is_whole) && beginning(dir, ".dsync-note-").is_empty()
}

/// Asserts that a complete file is not sent again when the connection breaks before it has its name. `path`
/// is pushed, and the file comes into `sub` below the host's directory.
fn assert_sent_once(path: &str, sub: &str) {
    let scene = Scene::new();
    let (host, big) = (scene.at("service/host"), scene.at("agent/sub/big"));
    let length = fs::metadata(&big).unwrap().len();
    loop {
        let _ = fs::remove_dir_all(&host);
        fs::create_dir(&host).unwrap();
        let (calls, sent) = (AtomicUsize::new(0), Arc::new(AtomicUsize::new(0)));
        let was_nameless = Arc::new(AtomicBool::new(false));
        let connect = || {
            let (ours, theirs) = UnixStream::pair()?;
            let line = theirs.try_clone()?;
            let session = serve(Stream::from_socket(theirs)?, scene.grant(Access::ReadWrite));
            if calls.fetch_add(1, Ordering::Relaxed) > 0 {
                return Stream::new(ours.try_clone()?, Counted(Arc::clone(&sent), Arc::new(ours)));
            }
            let (sub, nameless) = (host.join(sub), Arc::clone(&was_nameless));
            thread::spawn(move || {
                while !waits_for_its_name(&sub, length) && !session.is_finished() {
                    thread::yield_now();
                }
                line.shutdown(std::net::Shutdown::Both).unwrap();
                let _ = session.join().unwrap();
                nameless.store(!sub.join("big").exists(), Ordering::Release);
            });
            Stream::from_socket(ours)
        };
        let source = Source::Local { paths: vec![scene.at(path)] };
        let job = Job::new(source, Destination::Peer { path: "host".into() }).options(SyncOptions::archive());
        let pushed = run(job, connect).unwrap();
        assert_eq!(pushed.exit_code(), 0);
        assert!(fs::read(host.join(sub).join("big")).unwrap() == fs::read(&big).unwrap());
        let own: Vec<_> = beginning(&host.join(sub), ".dsync-");
        assert!(own.is_empty(), "{own:?}");
        if pushed.reconnects > 0 && was_nameless.load(Ordering::Acquire) {
            assert!((sent.load(Ordering::Relaxed) as u64) < length / 10, "{sent:?} of {length}");
            return;
        }
    }
}

#[test]
fn a_complete_file_whose_connection_breaks_before_it_is_named_is_not_sent_again() {
    assert_sent_once("agent", "agent/sub");
    // Whose directory is not read.
    assert_sent_once("agent/sub/big", "");
}

#[test]
fn what_is_not_granted_is_refused_and_the_client_learns_it() {
    let scene = Scene::new();
    let connect = || {
        let (ours, theirs) = UnixStream::pair()?;
        let _ = serve(Stream::from_socket(theirs)?, scene.grant(Access::ReadOnly));
        Stream::from_socket(ours)
    };
    let error = run(scene.push(), connect).unwrap_err();
    assert!(matches!(error, SyncError::Peer { exit_code: 42, .. }), "{error:?}");
    assert_eq!(error.reason(), Reason::NotGranted);
    assert!(fs::read_dir(scene.at("service")).unwrap().next().is_none());
}

#[test]
fn a_peers_reason_is_one_to_match_and_not_only_words() {
    let scene = Scene::new();
    fs::create_dir_all(scene.at("service/full")).unwrap();
    fs::write(scene.at("service/full/kept"), "kept").unwrap();
    fs::create_dir(scene.at("empty")).unwrap();
    let connect = || {
        let (ours, theirs) = UnixStream::pair()?;
        let _ = serve(Stream::from_socket(theirs)?, scene.grant(Access::ReadWrite));
        Stream::from_socket(ours)
    };
    let job = |source: &str, to: &str| {
        let source = Source::Local { paths: vec![scene.at(source).join("")] };
        let options = SyncOptions::archive().delete(true);
        Job::new(source, Destination::Peer { path: to.into() }).options(options)
    };

    for (job, reason) in [
        (job("agent", "no/such/place"), Reason::Missing),
        (job("agent", "../outside"), Reason::NotGranted),
        (job("agent", "full/kept"), Reason::Invalid),
        (job("empty", "full"), Reason::EmptySource),
    ] {
        let error = run(job, connect).unwrap_err();
        assert!(matches!(error, SyncError::Peer { .. }), "{error:?}");
        assert_eq!(error.reason(), reason, "{error}");
    }
    assert!(scene.at("service/full/kept").exists());
}

#[test]
fn a_session_ends_when_its_time_is_over_whatever_it_is_doing() {
    let rate = NonZeroU64::new(64 << 10);
    // Two minutes' bytes: the end comes first. And one that is over before it began.
    for time in [Duration::from_secs(1), Duration::ZERO] {
        let scene = Scene::new();
        let serving = std::sync::Mutex::new(Vec::new());
        let connect = || {
            let (ours, theirs) = UnixStream::pair()?;
            let ends = Some(std::time::Instant::now() + time);
            let limits = Limits::default().ends(ends).bytes_per_second(rate);
            let grant = scene.grant(Access::ReadWrite).limited(limits);
            serving.lock().unwrap().push(serve(Stream::from_socket(theirs)?, grant));
            Stream::from_socket(ours)
        };
        let error = run(scene.push(), connect).unwrap_err();
        let over = matches!(&error, SyncError::Peer { exit_code: 42, text, reason: Reason::Limit } if text.contains("the limit 'hours'"));
        assert!(over, "{error:?}");
        let mut serving = serving.into_inner().unwrap();
        assert_eq!(serving.len(), 1, "it is not tried again");
        let ended = serving.remove(0).join().unwrap();
        assert!(matches!(ended, Err(SyncError::LimitExceeded { excess: Excess::Hours, .. })), "{ended:?}");
        assert!(!scene.at("service/host/agent/sub/big").exists());
    }
}

#[test]
fn a_connector_that_fails_or_panics_ends_the_run() {
    let scene = Scene::new();
    let calls = AtomicUsize::new(0);
    let error = run(scene.push(), || {
        calls.fetch_add(1, Ordering::Relaxed);
        Err(io::ErrorKind::ConnectionRefused.into())
    });
    let error = error.unwrap_err();
    assert!(matches!(error, SyncError::Connector { .. }), "{error:?}");
    assert_eq!(calls.load(Ordering::Relaxed), 1, "no session had begun");
    let error = run(scene.push(), || panic!("no connection")).unwrap_err();
    assert!(matches!(error, SyncError::Aborted { message } if message == "no connection"));
    // A stream that ends at once.
    let connect = ConnectOptions::default().retries(0);
    let error = run(scene.push().connect(connect), || Stream::new(io::empty(), io::sink())).unwrap_err();
    assert!(matches!(error, SyncError::Link(_)), "{error:?}");
}

#[test]
fn a_peer_needs_a_connection_and_a_connection_a_peer() {
    let scene = Scene::new();
    let error = scene.push().run(&Silent, &CancelToken::new()).unwrap_err();
    assert!(matches!(error, SyncError::InvalidOption { .. }), "{error:?}");
    let local = Job::new(
        Source::Local { paths: vec![scene.at("agent")] },
        Destination::Local { path: scene.at("copy") },
    );
    let error = run(local, || unreachable!("nothing to connect")).unwrap_err();
    assert!(matches!(error, SyncError::InvalidOption { .. }), "{error:?}");
}

/// A writer that counts the bytes that it passes on.
#[derive(Clone)]
struct Counted(Arc<AtomicUsize>, Arc<UnixStream>);

impl Write for Counted {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = (&*self.1).write(bytes)?;
        self.0.fetch_add(written, Ordering::Relaxed);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn all_that_a_session_carries_is_in_the_stream() {
    let scene = Scene::new();
    fs::create_dir(scene.at("service/host")).unwrap();
    let sent = Arc::new(AtomicUsize::new(0));
    let connect = || {
        let (ours, theirs) = UnixStream::pair()?;
        let _ = serve(Stream::from_socket(theirs)?, scene.grant(Access::ReadWrite));
        let writer = Counted(Arc::clone(&sent), Arc::new(ours.try_clone()?));
        Stream::new(ours, writer)
    };
    let summary = run(scene.push(), connect).unwrap();
    let carried = sent.load(Ordering::Relaxed) as u64;
    assert!(carried >= summary.traffic.sent_bytes, "{carried} {:?}", summary.traffic);
}

/// Counts of a run, which settle when nothing moves any more.
fn settled(run: &RunHandle) -> u64 {
    let done = || run.progress().bytes_done;
    loop {
        let before = done();
        // Several times the pause between two reports.
        thread::sleep(Duration::from_secs(1));
        if before > 0 && done() == before {
            return before;
        }
    }
}

/// Starts a run of incompressible content that takes minutes at its rate.
fn slow(scene: &Scene, local: bool) -> RunHandle {
    let noise: Vec<u8> = (0..100_u32)
        .flat_map(|at| *blake3::hash(&at.to_le_bytes()).as_bytes())
        .cycle()
        .take(40_000)
        .collect();
    for file in 0..1000 {
        let mut content = noise.clone();
        content.rotate_left(file);
        content.iter_mut().for_each(|byte| *byte = byte.wrapping_mul(file.to_le_bytes()[0] | 1));
        fs::write(scene.at("agent").join(format!("noise-{file}")), content).unwrap();
    }
    let connect = ConnectOptions::default().bytes_per_second(NonZeroU64::new(1_000_000));
    if local {
        let source = Source::Local { paths: vec![scene.at("agent")] };
        let job = Job::new(source, Destination::Local { path: scene.at("service/host") });
        return job.options(SyncOptions::archive()).connect(connect).start(Silent).unwrap();
    }
    let root = scene.at("service");
    let connector = move |_: &CancelToken| {
        let (ours, theirs) = UnixStream::pair()?;
        let grant = Grant::open(GrantTerms::new(root.clone(), Access::ReadWrite))?;
        let _ = serve(Stream::from_socket(theirs)?, grant);
        Stream::from_socket(ours)
    };
    scene.push().connect(connect).start_over(connector, Silent).unwrap()
}

#[test]
fn a_run_pauses_goes_on_and_changes_its_rate() {
    for local in [false, true] {
        let scene = Scene::new();
        fs::create_dir(scene.at("service/host")).unwrap();
        let run = slow(&scene, local);
        while run.progress().bytes_done == 0 {
            thread::sleep(Duration::from_millis(10));
        }
        run.pause();
        let stood_at = settled(&run);
        assert!(!run.is_finished());
        assert!(stood_at < 40_000_000, "local {local}: all of it was copied in a pause");
        run.set_rate(None);
        run.resume();
        let outcome = run.join();
        let summary = outcome.summary.expect("a summary");
        assert_eq!((summary.exit_code(), summary.report.files_transferred), (0, 1002), "local {local}");
        assert!(outcome.progress.bytes_done > stood_at && outcome.error.is_none());
        scene.is_there(&scene.at("service/host/agent"));
    }
}

#[test]
fn a_paused_run_can_be_cancelled_and_its_counts_survive() {
    for local in [false, true] {
        let scene = Scene::new();
        fs::create_dir(scene.at("service/host")).unwrap();
        let run = slow(&scene, local);
        while run.progress().files_done == 0 {
            thread::sleep(Duration::from_millis(10));
        }
        run.pause();
        run.cancel();
        let outcome = run.join();
        assert!(matches!(outcome.error, Some(SyncError::Cancelled)), "{outcome:?}");
        assert!(outcome.progress.files_done > 0 && outcome.summary.is_none(), "{outcome:?}");
    }
}

#[test]
fn a_pause_holds_copies_that_have_no_bytes_to_wait_for() {
    let scratch = tempfile::tempdir().unwrap();
    let at = |path: &str| scratch.path().join(path);
    let time = std::time::SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    // An equal file beside the destination is copied from there.
    for dir in ["from", "before"] {
        fs::create_dir_all(at(dir)).unwrap();
        let mut file = fs::File::create(at(dir).join("equal")).unwrap();
        file.write_all(b"content").unwrap();
        file.set_modified(time).unwrap();
    }
    let before = Alternates::new(AlternateUse::Copy, vec![b"../before".to_vec()]);
    let options = SyncOptions::archive().writing(WritePolicy::default().alternates(Some(before)));
    let job =
        Job::new(Source::Local { paths: vec![at("from").join("")] }, Destination::Local { path: at("to") });

    // Nothing is planned before the run is paused.
    let (go, wait) = mpsc::channel::<()>();
    let wait = std::sync::Mutex::new(wait);
    let run = job
        .options(options)
        .filter(move |_| {
            let _ = wait.lock().map(|wait| wait.recv());
            Choice::Copy
        })
        .start(Silent)
        .unwrap();
    run.pause();
    drop(go);
    // Makes a wrong copy likely, and decides nothing.
    thread::sleep(Duration::from_millis(500));
    assert!(!run.is_finished());
    assert!(!at("to").join("equal").exists());

    run.resume();
    assert_eq!(run.join().summary.unwrap().exit_code(), 0);
    assert_eq!(fs::read(at("to").join("equal")).unwrap(), b"content");
}

/// Knows when its future may be looked at again.
struct Woken(std::sync::mpsc::Sender<()>);

impl std::task::Wake for Woken {
    fn wake(self: Arc<Self>) {
        let _ = self.0.send(());
    }
}

#[test]
fn a_run_is_a_future_and_dropping_it_cancels() {
    let scene = Scene::new();
    let source = Source::Local { paths: vec![scene.at("agent")] };
    let job = Job::new(source, Destination::Local { path: scene.at("copy") });
    let mut run = job.options(SyncOptions::archive()).start(Silent).unwrap();
    let (woken_tx, woken) = std::sync::mpsc::channel();
    let waker = std::task::Waker::from(Arc::new(Woken(woken_tx)));
    let outcome = loop {
        match std::pin::pin!(&mut run).poll(&mut std::task::Context::from_waker(&waker)) {
            std::task::Poll::Ready(outcome) => break outcome,
            std::task::Poll::Pending => woken.recv().unwrap(),
        }
    };
    assert_eq!(outcome.summary.unwrap().exit_code(), 0);

    let held = slow(&scene, true);
    let copied = || fs::read_dir(scene.at("service/host/agent")).map_or(0, Iterator::count);
    while copied() == 0 {
        thread::sleep(Duration::from_millis(10));
    }
    drop(held);
    // Nothing of it writes any more once its lock is free.
    let again = slow(&scene, true);
    again.set_rate(None);
    assert_eq!(again.join().summary.unwrap().exit_code(), 0);
}

#[test]
fn a_server_refuses_limits_that_no_session_could_keep() {
    let cancel = CancelToken::new();
    let stall = Resources::default().max_stall(Duration::ZERO);
    for (with, option) in [
        (
            Box::new(|server: Server| server.timeout(Duration::from_secs(2)))
                as Box<dyn Fn(Server) -> Server>,
            "timeout",
        ),
        (Box::new(move |server: Server| server.resources(stall.clone())), "max_stall"),
        (
            Box::new(|server: Server| server.resources(Resources::default().max_alloc((16 << 20) - 1))),
            "max_alloc",
        ),
    ] {
        let (_client, socket) = UnixStream::pair().unwrap();
        let error =
            with(Server::new(Stream::from_socket(socket).unwrap())).serve(&Silent, &cancel).unwrap_err();
        let is_named = matches!(&error, SyncError::InvalidOption { option: found, .. } if *found == option);
        assert!(is_named, "{error:?}");
    }
}

/// Rules with a bug.
#[derive(Debug)]
struct Buggy;

impl OptionRules for Buggy {
    fn refused(&self, _: &Request<'_>) -> Option<String> {
        panic!("a bug in the rules")
    }
}

#[test]
fn a_panic_in_the_rules_of_a_grant_ends_its_session_only() {
    let scene = Scene::new();
    let (sender, served) = std::sync::mpsc::channel();
    let connect = || {
        let (ours, theirs) = UnixStream::pair()?;
        let limits = Limits::default().options(Some(Arc::new(Buggy)));
        let (stream, grant) = (Stream::from_socket(theirs)?, scene.grant(Access::ReadWrite).limited(limits));
        let (session, sender) = (serve(stream, grant), sender.clone());
        thread::spawn(move || sender.send(session.join()));
        Stream::from_socket(ours)
    };
    // A client that is told does not try again.
    let told = run(scene.push(), connect).unwrap_err();
    assert!(matches!(told, SyncError::Peer { reason: Reason::Aborted, .. }), "{told:?}");
    assert!(!told.is_retryable());
    let ended = served.recv().unwrap();
    let Ok(Err(SyncError::Aborted { message })) = ended else { panic!("{ended:?}") };
    assert_eq!(message, "a bug in the rules");
}

#[test]
fn both_ends_can_be_cancelled_while_the_other_one_is_silent() {
    let scene = Scene::new();
    let pull =
        Job::new(Source::Peer { paths: vec!["host".into()] }, Destination::Local { path: scene.at("copy") });
    // Longer than anybody waits for a test.
    let connect = ConnectOptions::default().timeout(Duration::from_secs(3600));
    for job in [scene.push(), pull] {
        let (other, _kept) = UnixStream::pair().unwrap();
        let connector = move |_: &CancelToken| Stream::from_socket(other.try_clone()?);
        let run = job.connect(connect.clone()).start_over(connector, Silent).unwrap();
        thread::sleep(Duration::from_millis(300));
        run.cancel();
        let outcome = run.join();
        assert!(matches!(outcome.error, Some(SyncError::Cancelled)), "{:?}", outcome.error);
    }

    let (socket, _kept) = UnixStream::pair().unwrap();
    let server = Server::new(Stream::from_socket(socket).unwrap()).timeout(Duration::from_secs(3600));
    let cancel = CancelToken::new();
    let stop = cancel.clone();
    let serving = thread::spawn(move || server.serve(&Silent, &stop));
    thread::sleep(Duration::from_millis(300));
    cancel.cancel();
    let ended = serving.join().unwrap();
    assert!(matches!(ended, Err(SyncError::Cancelled)), "{ended:?}");
}

/// A reader with a bug.
struct BuggyReader;

impl Read for BuggyReader {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        panic!("a bug in the reader")
    }
}

#[test]
fn a_reader_that_panics_ends_its_connection_at_once() {
    let scene = Scene::new();
    // A silence of an hour would end it as well.
    let connect = ConnectOptions::default().retries(0).timeout(Duration::from_secs(3600));
    let error = run(scene.push().connect(connect), || Stream::new(BuggyReader, io::sink())).unwrap_err();
    assert!(matches!(error, SyncError::Link(_)), "{error:?}");
}
