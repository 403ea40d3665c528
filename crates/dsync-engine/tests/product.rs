//! Holds what a program that embeds the engine relies on: its callbacks may panic, its mistakes are
//! named before anything starts.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::disallowed_methods, reason = "a test")]

use std::{
    fs,
    num::NonZero,
    os::unix::{fs::PermissionsExt, net::UnixStream},
    path::{Path, PathBuf},
    process::Command,
    sync::atomic::{AtomicUsize, Ordering},
    thread,
};

use dsync_engine::{
    AlternateUse, Alternates, Backup, CancelToken, Compression, ConnectOptions, DeleteLimit, Destination,
    Event, EventLevel, FilterRule, IdMatch, IdRule, IdTarget, Job, ModeRule, Observer, Progress, Reason,
    RemoteHost, Resources, Server, Silent, Source, Stream, SyncError, SyncOptions, Workers, WritePolicy,
};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// A source and an empty place for its copy.
struct Scene {
    _scratch: tempfile::TempDir,
    source: String,
    destination: PathBuf,
}

impl Scene {
    fn new() -> Self {
        let scratch = tempfile::tempdir().unwrap();
        let (source, destination) = (scratch.path().join("src"), scratch.path().join("dst"));
        fs::create_dir_all(source.join("sub")).unwrap();
        fs::create_dir_all(destination.join("old")).unwrap();
        fs::write(destination.join("old/gone"), "x").unwrap();
        for file in ["a", "b", "sub/c"] {
            fs::write(source.join(file), vec![7; 100_000]).unwrap();
        }
        fs::hard_link(source.join("a"), source.join("link")).unwrap();
        Self { source: format!("{}/", source.display()), destination, _scratch: scratch }
    }

    fn job(&self) -> Job {
        let options = SyncOptions::archive().events(EventLevel::All).delete(true).hard_links(true);
        Job::new(
            Source::Local { paths: vec![self.source.clone().into()] },
            Destination::Local { path: self.destination.clone() },
        )
        .options(options)
    }
}

/// Panics at the callback of a number, counted from 0.
struct PanicsAt {
    at: usize,
    calls: AtomicUsize,
}

impl PanicsAt {
    fn count(&self) {
        let call = self.calls.fetch_add(1, Ordering::Relaxed);
        assert!(call != self.at, "callback {call}");
    }
}

impl Observer for PanicsAt {
    fn event(&self, _event: &Event) {
        self.count();
    }

    fn progress(&self, _progress: &Progress) {
        self.count();
    }
}

#[test]
fn an_observer_that_panics_at_any_callback_ends_the_run_and_nothing_else() {
    for at in 0.. {
        let scene = Scene::new();
        let observer = PanicsAt { at, calls: AtomicUsize::new(0) };
        let cancel = CancelToken::new();
        let outcome = scene.job().run(&observer, &cancel);
        if observer.calls.load(Ordering::Relaxed) <= at {
            // All callbacks of a run were tried: each entry of either side has one.
            assert!(outcome.is_ok(), "{outcome:?}");
            assert!(at >= 7, "{at} callbacks only");
            return;
        }
        assert!(!cancel.is_cancelled(), "the caller's token is the caller's");
        match outcome.unwrap_err() {
            SyncError::Aborted { message } => assert_eq!(message, format!("callback {at}")),
            other => panic!("callback {at}: {other:?}"),
        }
        // Files that arrived are whole, and the next run ends well.
        let summary = scene.job().run(&Silent, &cancel).unwrap();
        assert_eq!(summary.exit_code(), 0, "callback {at}");
        assert!(!scene.destination.join("old").exists());
        assert_eq!(fs::read(scene.destination.join("sub/c")).unwrap(), vec![7; 100_000]);
    }
}

/// Returns the option that a job is refused for before anything of it has happened.
fn refused(change: impl FnOnce(&mut SyncOptions)) -> (&'static str, String) {
    let scratch = tempfile::tempdir().unwrap();
    let mut options = SyncOptions::archive();
    change(&mut options);
    let source = Source::Local { paths: vec!["/etc/hostname".into()] };
    let path = scratch.path().join("new");
    // Of three forms of a run; the remote ones would fail otherwise, and not be refused.
    let host = RemoteHost::new(None, "no-such-host.invalid").unwrap();
    let remote_source = Source::Remote { host: host.clone(), paths: vec!["x".into()] };
    let remote_destination = Destination::Remote { host, path: "x".into() };
    let local_destination = Destination::Local { path: path.clone() };
    let forms = [
        (source.clone(), local_destination.clone()),
        (source, remote_destination),
        (remote_source, local_destination),
    ];
    let connect = ConnectOptions::default().shell(vec!["/no/such/shell".into()]);
    let mut found = None;
    for (source, destination) in forms {
        let job = Job::new(source, destination).options(options.clone()).connect(connect.clone());
        let error = job.run(&Silent, &CancelToken::new()).unwrap_err();
        assert!(!error.is_retryable(), "{error}");
        assert!(!path.exists(), "something was made");
        let SyncError::InvalidOption { option, why } = error else { panic!("{error:?}") };
        assert!(!why.is_empty());
        if let Some((earlier, _)) = found.replace((option, why)) {
            assert_eq!(option, earlier, "each form says the same");
        }
    }
    found.unwrap()
}

fn rules(count: usize, bytes: usize) -> Vec<FilterRule> {
    vec![FilterRule::default().pattern(vec![b'x'; bytes]); count]
}

#[test]
fn a_mistake_in_an_option_is_named_before_anything_starts() {
    let alternates = |count| {
        let dirs = vec![b"../old".to_vec(); count];
        Some(Alternates::new(AlternateUse::Link, dirs))
    };
    let backup = |suffix: &[u8]| Some(Backup::new(suffix.to_vec()));
    let rule = ModeRule::new(0o777, 0);
    let reversed = IdRule::new(IdMatch::Numbers(9, 3), IdTarget::Number(0));
    type Change<'a> = Box<dyn FnOnce(&mut SyncOptions) + 'a>;
    let cases: Vec<(&str, Change<'_>)> = vec![
        ("filters", Box::new(|o| o.filters = rules(65_537, 1))),
        ("filters", Box::new(|o| o.filters = rules(1, 4097))),
        ("filters", Box::new(|o| o.filters = rules(1000, 3000))),
        ("writing.alternates", Box::new(|o| o.writing.alternates = alternates(0))),
        ("writing.alternates", Box::new(|o| o.writing.alternates = alternates(21))),
        ("mode_rules", Box::new(|o| o.mode_rules = vec![rule; 257])),
        ("max_delete", Box::new(|o| o.max_delete = Some(DeleteLimit::Percent(200)))),
        ("compression", Box::new(|o| o.compression = Compression::Zstd(0))),
        ("compression", Box::new(|o| o.compression = Compression::Zstd(20))),
        ("writing.backup", Box::new(|o| o.writing.backup = backup(b"a/b"))),
        ("writing.backup", Box::new(|o| o.writing.backup = backup(b""))),
        ("writing.backup", Box::new(|o| o.writing.backup = backup(&[b'~'; 256]))),
        ("writing.partial_dir", Box::new(|o| o.writing.partial_dir = Some(b"a/b".to_vec()))),
        ("writing.partial_dir", Box::new(|o| o.writing.partial_dir = Some(b"..".to_vec()))),
        (
            "writing.backup",
            Box::new(|o| o.writing.backup = Some(Backup::new(b"~".to_vec()).dir(Some(Vec::new())))),
        ),
        ("id_rules", Box::new(|o| o.id_rules = vec![reversed.clone()])),
        ("writing.temp_dir", Box::new(|o| o.writing.temp_dir = Some(Vec::new()))),
        ("writing.temp_dir", Box::new(|o| o.writing.temp_dir = Some(b"a\0b".to_vec()))),
        (
            "writing.delay_updates",
            Box::new(|o| o.writing = WritePolicy::default().inplace(true).delay_updates(true)),
        ),
    ];
    for (option, change) in cases {
        assert_eq!(refused(change).0, option);
    }
    let (_, why) = refused(|o| o.filters = rules(65_537, 1));
    assert_eq!(why, "number of filters 65537 exceeds the limit 65536");
}

#[test]
fn a_path_with_a_zero_byte_is_a_mistake_before_anything_starts() {
    let here = Source::Local { paths: vec!["/etc/hostname".into()] };
    let host = || RemoteHost::new(None, "no-such-host.invalid").unwrap();
    let zero = "a\0b";
    let local = |path: &str| Destination::Local { path: path.into() };
    let cases = [
        ("destination", here.clone(), local(zero)),
        ("destination", here.clone(), Destination::Peer { path: zero.into() }),
        ("destination", here, Destination::Remote { host: host(), path: zero.into() }),
        ("sources", Source::Local { paths: vec![zero.into()] }, local("/nowhere")),
        ("sources", Source::Peer { paths: vec!["a".into(), zero.into()] }, local("/nowhere")),
        ("sources", Source::Remote { host: host(), paths: vec![zero.into()] }, local("/nowhere")),
    ];
    for (named, source, destination) in cases {
        let is_over =
            matches!(source, Source::Peer { .. }) || matches!(destination, Destination::Peer { .. });
        let job = Job::new(source, destination);
        let connect = |_: &CancelToken| -> std::io::Result<Stream> { panic!("nothing connects") };
        let error = if is_over {
            job.run_over(&connect, &Silent, &CancelToken::new())
        } else {
            job.run(&Silent, &CancelToken::new())
        };
        let error = error.unwrap_err();
        assert!(matches!(error, SyncError::InvalidOption { option, .. } if option == named), "{error:?}");
        assert_eq!(error.reason(), Reason::Invalid);
    }
}

#[test]
fn lists_longer_than_a_message_cross_a_connection() {
    let scratch = tempfile::tempdir().unwrap();
    let (from, to) = (scratch.path().join("from"), scratch.path().join("to"));
    fs::create_dir_all(&from).unwrap();
    // More than one listing has, and more bytes than a message.
    let names: Vec<String> = (0..9000).map(|number| number.to_string()).collect();
    names.iter().for_each(|name| fs::write(from.join(name), "x").unwrap());

    let mut options = SyncOptions::archive();
    options.filters = rules(5000, 60);
    options.filters.push(FilterRule::default().pattern(names[7].clone().into_bytes()));
    let paths = names.iter().map(|name| from.join(name).into()).collect();
    let job = Job::new(Source::Peer { paths }, Destination::Local { path: to.clone() }).options(options);
    let connect = |_: &CancelToken| {
        let (ours, theirs) = UnixStream::pair()?;
        let theirs = Stream::from_socket(theirs)?;
        thread::spawn(move || Server::new(theirs).serve(&Silent, &CancelToken::new()));
        Stream::from_socket(ours)
    };
    let summary = job.run_over(&connect, &Silent, &CancelToken::new()).unwrap();
    assert_eq!((summary.exit_code(), summary.report.files_transferred), (0, 8999));
    assert!(!to.join(&names[7]).exists() && to.join(&names[8999]).exists());
}

#[test]
fn a_job_without_a_source_or_a_destination_is_a_mistake() {
    let destination = Destination::Local { path: Path::new("/nowhere").into() };
    let job = Job::new(Source::Local { paths: Vec::new() }, destination);
    let error = job.run(&Silent, &CancelToken::new()).unwrap_err();
    assert!(matches!(error, SyncError::InvalidOption { option: "sources", .. }), "{error:?}");
    let source = Source::Local { paths: vec!["/etc/hostname".into()] };
    let job = Job::new(source, Destination::Local { path: PathBuf::new() });
    let error = job.run(&Silent, &CancelToken::new()).unwrap_err();
    assert!(matches!(error, SyncError::InvalidOption { option: "destination", .. }), "{error:?}");
}

/// Writes a remote shell that never answers, with a process of its own that holds its streams.
fn hanging_shell(dir: &Path) -> PathBuf {
    let shell = dir.join("ssh");
    // It ignores the request to end, as a shell in the middle of something may.
    let script = format!(
        "#!/bin/sh\ntrap '' TERM\nsleep 600 &\necho $! > {0}/child\necho $$ > {0}/pid\nwait\n",
        dir.display()
    );
    fs::write(&shell, script).unwrap();
    fs::set_permissions(&shell, fs::Permissions::from_mode(0o755)).unwrap();
    shell
}

/// Counts the threads of this process with a name that begins so.
fn threads(beginning: &str) -> usize {
    let named = |task: fs::DirEntry| fs::read_to_string(task.path().join("comm")).unwrap_or_default();
    let tasks = fs::read_dir("/proc/self/task").unwrap().map(|task| named(task.unwrap()));
    tasks.filter(|name| name.starts_with(beginning)).count()
}

#[test]
fn cancelling_while_the_shell_hangs_leaves_no_process_and_no_thread() {
    let scratch = tempfile::tempdir().unwrap();
    let shell = hanging_shell(scratch.path());
    let host = RemoteHost::new(None, "h").unwrap();
    let job = Job::new(
        Source::Remote { host, paths: vec!["x".into()] },
        Destination::Local { path: scratch.path().join("new") },
    );
    let job = job.connect(ConnectOptions::default().shell(vec![shell.into()]));
    let (pid_file, cancel) = (scratch.path().join("pid"), CancelToken::new());
    let error = std::thread::scope(|scope| {
        let run = scope.spawn(|| job.run(&Silent, &cancel).unwrap_err());
        while !fs::read_to_string(&pid_file).is_ok_and(|pid| pid.ends_with('\n')) {
            std::thread::yield_now();
        }
        cancel.cancel();
        run.join().unwrap()
    });
    assert!(matches!(error, SyncError::Cancelled), "{error:?}");
    let pid = fs::read_to_string(&pid_file).unwrap();
    assert!(!Path::new("/proc").join(pid.trim()).exists(), "the shell is left");
    // The last one is told to end and not waited for.
    while ["connect", "dsync-stderr", "dsync-carrier", "dsync-reaper"]
        .into_iter()
        .any(|name| threads(name) > 0)
    {
        std::thread::yield_now();
    }
    let child = fs::read_to_string(scratch.path().join("child")).unwrap();
    assert!(Command::new("kill").args(["-9", child.trim()]).status().unwrap().success());
}

#[test]
fn a_run_leaves_the_process_as_it_was() {
    let limit = || getrlimit(Resource::Nofile);
    // Room to raise it, which a run has no right to.
    let before = Rlimit { current: Some(512), ..limit() };
    setrlimit(Resource::Nofile, before).unwrap();
    // Attributes are read by the pool; so are sums, in the second run.
    let scene = Scene::new();
    let options = SyncOptions::archive().xattrs(true).checksum(true);
    let workers = Workers::new(NonZero::<usize>::MIN);
    let resources = Resources::default().workers(workers.clone());
    for _ in 0..2 {
        let job = scene.job().options(options.clone()).resources(resources.clone());
        job.run(&Silent, &CancelToken::new()).unwrap();
    }
    assert_eq!(limit(), before, "the limit of open files is the program's own");
    // Tests run side by side in one process, and others have no reason to start any.
    assert_eq!(threads("dsync-work-"), 1, "runs share the pool that they were given");
    drop((workers, resources));
}

#[test]
fn a_way_without_a_program_is_a_mistake() {
    let scene = Scene::new();
    for (connect, named) in [
        (ConnectOptions::default().remote_program(String::new()), "remote_program"),
        (ConnectOptions::default().remote_program(" ".to_owned()), "remote_program"),
        (ConnectOptions::default().shell(vec!["".into()]), "shell"),
    ] {
        let source = Source::Local { paths: vec![scene.source.clone().into()] };
        let host = RemoteHost::new(None, "vault.example").unwrap();
        let job = Job::new(source, Destination::Remote { host, path: "there".into() }).connect(connect);
        let error = job.run(&Silent, &CancelToken::new()).unwrap_err();
        assert!(matches!(error, SyncError::InvalidOption { option, .. } if option == named), "{error:?}");
    }
}
