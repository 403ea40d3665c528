//! The manifest that a run writes of its destination: right after the run it is what the tree is.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test")]

use std::{
    fs, io,
    os::unix::{
        fs::{PermissionsExt as _, symlink},
        net::UnixStream,
    },
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    thread,
};

use dsync_engine::{
    Access, AlternateUse, Alternates, CancelToken, ConnectOptions, Destination, DetectRenamed, Event,
    FileType, FilterRule, Grant, GrantTerms, Job, Manifest, ManifestFile, Observer, Server, Silent, Source,
    Stream, Summary, SyncError, SyncOptions, WritePolicy,
    verify::{self, Finding, Reading, Verified, VerifyObserver},
};

/// The three forms of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Local,
    Push,
    Pull,
}

const WAYS: [Way; 3] = [Way::Local, Way::Push, Way::Pull];

struct Scene {
    scratch: tempfile::TempDir,
    way: Way,
    /// The bytes after which the first connection breaks.
    breaks_after: u64,
    /// Bytes that this end has received over all connections.
    received: Arc<AtomicU64>,
}

impl Scene {
    /// Plants a tree whose order by bytes is not that of a walk.
    fn new(way: Way) -> Self {
        let scratch = tempfile::tempdir().unwrap();
        let scene = Self { scratch, way, breaks_after: u64::MAX, received: Arc::default() };
        for file in ["a/x", "a/deep/y", "a-b", "a.b/z", "ab", "line\nend", "b"] {
            plant(&scene.src(file), file.repeat(10).as_bytes(), 1000);
        }
        symlink("b", scene.src("link")).unwrap();
        fs::create_dir_all(scene.src("empty")).unwrap();
        scene
    }

    fn at(&self, path: &str) -> PathBuf {
        self.scratch.path().join(path)
    }

    fn src(&self, path: &str) -> PathBuf {
        self.at("src").join(path)
    }

    fn dst(&self, path: &str) -> PathBuf {
        self.at("dst").join(path)
    }

    fn list(&self) -> PathBuf {
        self.at("list")
    }

    fn job(&self, options: &SyncOptions) -> Job {
        let (source, destination) = match self.way {
            Way::Local => {
                (Source::Local { paths: vec![self.src("")] }, Destination::Local { path: self.dst("") })
            }
            Way::Push => {
                (Source::Local { paths: vec![self.src("")] }, Destination::Peer { path: "dst".into() })
            }
            Way::Pull => {
                (Source::Peer { paths: vec!["src/".into()] }, Destination::Local { path: self.dst("") })
            }
        };
        Job::new(source, destination).options(options.clone())
    }

    fn run_job(&self, job: Job, access: Access, observer: &dyn Observer) -> Result<Summary, SyncError> {
        let cancel = CancelToken::new();
        if self.way == Way::Local {
            return job.run(observer, &cancel);
        }
        let breaks = Mutex::new(self.breaks_after);
        let connect = |_: &CancelToken| {
            let (ours, theirs) = UnixStream::pair()?;
            let grant = Grant::open(GrantTerms::new(self.scratch.path().to_owned(), access))?;
            let theirs = Stream::from_socket(theirs)?;
            let serve = move || Server::new(theirs).grant(grant).serve(&Silent, &CancelToken::new());
            let _ = thread::spawn(serve);
            let left = std::mem::replace(&mut *breaks.lock().unwrap(), u64::MAX);
            Stream::new(Breaks { socket: ours.try_clone()?, left, bytes: Arc::clone(&self.received) }, ours)
        };
        job.run_over(&connect, observer, &cancel)
    }

    /// Runs with a manifest. Returns the exit code.
    fn run(&self, options: &SyncOptions) -> u8 {
        let job = self.job(options).write_manifest(ManifestFile::new(self.list()));
        self.run_job(job, Access::ReadWrite, &Silent).unwrap().exit_code()
    }

    fn manifest(&self) -> Manifest {
        Manifest::open(&self.list()).unwrap()
    }

    /// Verifies the destination; returns the paths of the findings as well.
    fn verify(&self) -> (Verified, Vec<String>) {
        let (heard, reading) = (Heard::default(), Reading::default());
        let verified =
            verify::verify(&self.dst(""), &self.manifest(), &reading, &heard, &CancelToken::new()).unwrap();
        (verified, heard.0.into_inner().unwrap())
    }

    /// Asserts that the destination is what the manifest says, and that these files are without content.
    fn assert_true(&self, without_content: &[&str]) {
        let (verified, findings) = self.verify();
        assert!(findings.is_empty(), "{:?}: {findings:?}", self.way);
        let manifest = self.manifest();
        let unread = manifest.records().unwrap().map(Result::unwrap);
        let unread = unread.filter(|record| record.kind == FileType::File && record.content.is_none());
        let unread: Vec<_> =
            unread.map(|record| String::from_utf8(record.path.into_bytes()).unwrap()).collect();
        assert_eq!(unread, without_content, "{:?}", self.way);
        assert_eq!(verified.sound + verified.unread, manifest.totals().files);
    }
}

/// A socket that ends after some bytes.
struct Breaks {
    socket: UnixStream,
    left: u64,
    bytes: Arc<AtomicU64>,
}

impl io::Read for Breaks {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let room = usize::try_from(self.left).unwrap_or(usize::MAX).min(buf.len());
        if room == 0 {
            let _ = self.socket.shutdown(std::net::Shutdown::Both);
            return Err(io::ErrorKind::ConnectionReset.into());
        }
        let read = self.socket.read(&mut buf[..room])?;
        self.left -= read as u64;
        self.bytes.fetch_add(read as u64, Ordering::Relaxed);
        Ok(read)
    }
}

/// Notes what is found.
#[derive(Default)]
struct Heard(Mutex<Vec<String>>);

impl VerifyObserver for Heard {
    fn finding(&self, finding: &Finding) {
        let Finding { path, difference, .. } = finding;
        self.0.lock().unwrap().push(format!("{} {difference:?}", path.escape_ascii()));
    }
}

/// Plants a file with a time.
fn plant(path: &Path, content: &[u8], seconds: u64) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, content).unwrap();
    let time = std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1_600_000_000 + seconds);
    fs::File::options().write(true).open(path).unwrap().set_modified(time).unwrap();
}

/// Returns bytes that no compression makes shorter.
fn noise(len: usize) -> Vec<u8> {
    let mut state = 1_u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 56) as u8
    };
    (0..len).map(|_| next()).collect()
}

#[test]
fn a_first_and_a_second_run_record_what_the_destination_has() {
    for way in WAYS {
        let scene = Scene::new(way);
        let options = SyncOptions::archive().delete(true);
        assert_eq!(scene.run(&options), 0);
        scene.assert_true(&[]);
        assert_eq!(fs::metadata(scene.list()).unwrap().permissions().mode() & 0o7777, 0o600);
        assert_eq!(scene.manifest().totals().entries, 13, "{way:?}");

        // One is new, one changed, one goes, one comes back, and what a rule protects stays.
        plant(&scene.src("new/file"), b"new", 5);
        plant(&scene.src("b"), b"other", 6);
        fs::remove_file(scene.src("ab")).unwrap();
        plant(&scene.dst("gone"), b"gone", 7);
        plant(&scene.dst("kept"), b"kept", 8);
        let rule = FilterRule::default().pattern(b"kept".to_vec()).modifiers("r".to_owned());
        assert_eq!(scene.run(&options.filters(vec![rule])), 0);
        assert!(!scene.dst("gone").exists() && scene.dst("kept").exists());
        // Files that were up to date, or are not the source's, were not read.
        scene.assert_true(&["a-b", "kept", "line\nend", "a/x", "a/deep/y", "a.b/z"]);
    }
}

/// Contents that are known because both ends hashed them.
#[test]
fn contents_that_were_compared_are_recorded_and_so_are_those_of_other_names() {
    for way in WAYS {
        let scene = Scene::new(way);
        let options = SyncOptions::archive().hard_links(true).checksum(true);
        fs::hard_link(scene.src("b"), scene.src("a/second")).unwrap();
        fs::hard_link(scene.src("b"), scene.src("0-third")).unwrap();
        assert_eq!(scene.run(&options), 0);
        scene.assert_true(&[]);

        // Nothing is transferred; one file gets other permissions, one another time.
        fs::set_permissions(scene.src("ab"), fs::Permissions::from_mode(0o600)).unwrap();
        plant(&scene.src("a-b"), "a-b".repeat(10).as_bytes(), 77);
        fs::remove_file(scene.list()).unwrap();
        let job = scene.job(&options).write_manifest(ManifestFile::new(scene.list()));
        let summary = scene.run_job(job, Access::ReadWrite, &Silent).unwrap();
        assert_eq!(summary.report.files_transferred, 0);
        scene.assert_true(&[]);
    }
}

#[test]
fn a_file_that_is_made_in_any_way_has_its_content() {
    type Change = (&'static str, fn(SyncOptions) -> SyncOptions);
    let ways: [Change; 6] = [
        ("delta", |options| options),
        ("whole", |options| options.whole_file(true)),
        ("in place", |options| options.writing(WritePolicy::default().inplace(true))),
        ("delayed", |options| options.writing(WritePolicy::default().delay_updates(true))),
        ("moved", |options| options.detect_renamed(DetectRenamed::Always)),
        ("no times", |options| options.times(false)),
    ];
    for (name, change) in ways {
        for way in WAYS {
            let scene = Scene::new(way);
            let options = change(SyncOptions::archive().delete(true));
            let mut content = noise(900_000);
            plant(&scene.src("large"), &content, 1);
            assert_eq!(scene.run(&options), 0, "{name}");
            scene.assert_true(&[]);

            content[450_000] ^= 1;
            plant(&scene.src("large"), &content, 2);
            fs::rename(scene.src("a/x"), scene.src("moved")).unwrap();
            assert_eq!(scene.run(&options), 0, "{name}");
            let (verified, findings) = scene.verify();
            assert!(findings.is_empty(), "{name} {way:?}: {findings:?}");
            assert!(verified.sound >= 2, "{name} {way:?}: {verified:?}");
            let records = scene.manifest();
            let of = |path: &str| {
                let mut records = records.records().unwrap().map(Result::unwrap);
                records.find(|record| record.path.as_bytes() == path.as_bytes()).unwrap().content
            };
            assert_eq!(of("large"), Some(*blake3::hash(&content).as_bytes()), "{name} {way:?}");
        }
    }
}

#[test]
fn links_to_an_alternate_directory_are_recorded_without_the_contents_that_nobody_read() {
    for way in WAYS {
        let scene = Scene::new(way);
        plant(&scene.at("before/b"), "b".repeat(10).as_bytes(), 1000);
        let alternates = Alternates::new(AlternateUse::Link, vec![b"../before".to_vec()]);
        let writing = WritePolicy::default().alternates(Some(alternates));
        assert_eq!(scene.run(&SyncOptions::archive().owner(false).group(false).writing(writing)), 0);
        scene.assert_true(&["b"]);
    }
}

#[test]
fn an_entry_that_failed_is_not_recorded() {
    for way in WAYS {
        let scene = Scene::new(way);
        // No file takes the place of a directory that is not empty.
        plant(&scene.dst("b/held"), b"held", 1);
        plant(&scene.dst("a/x/held"), b"held", 1);
        assert_eq!(scene.run(&SyncOptions::archive()), 23);
        let (_, findings) = scene.verify();
        assert_eq!(findings, ["b New", "a/x New"], "{way:?}");
    }
}

#[test]
fn a_run_that_is_dry_or_fails_leaves_the_old_manifest() {
    for way in WAYS {
        let scene = Scene::new(way);
        fs::write(scene.list(), "old").unwrap();
        assert_eq!(scene.run(&SyncOptions::archive().dry_run(true)), 0);
        assert_eq!(fs::read(scene.list()).unwrap(), b"old");

        fs::rename(scene.at("src"), scene.at("away")).unwrap();
        let job = scene.job(&SyncOptions::archive()).write_manifest(ManifestFile::new(scene.list()));
        scene.run_job(job, Access::ReadWrite, &Silent).unwrap_err();
        assert_eq!(fs::read(scene.list()).unwrap(), b"old");
        let names: Vec<_> =
            fs::read_dir(scene.scratch.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert!(
            names.iter().all(|name| ["list", "away", "dst"].iter().any(|known| name == known)),
            "{names:?}"
        );
    }
}

#[test]
fn a_place_where_no_manifest_can_be_ends_the_run_before_it_begins() {
    let scene = Scene::new(Way::Local);
    let job = scene.job(&SyncOptions::archive()).write_manifest(ManifestFile::new(scene.at("none/list")));
    let error = job.run(&Silent, &CancelToken::new()).unwrap_err();
    assert!(
        matches!(&error, SyncError::ManifestFile { path, .. } if *path == scene.at("none/list")),
        "{error:?}"
    );
    assert!(!scene.dst("").exists());

    let source = Source::Local { paths: vec![scene.src("b")] };
    let job = Job::new(source, Destination::Local { path: scene.at("file") }).options(SyncOptions::archive());
    let error = job.write_manifest(ManifestFile::new(scene.list())).run(&Silent, &CancelToken::new());
    assert!(matches!(error, Err(SyncError::InvalidOption { option: "event_tree", .. })), "{error:?}");
    assert!(!scene.at("file").exists() && !scene.list().exists());
}

#[test]
fn a_manifest_in_the_tree_that_it_is_of_is_no_entry_of_it() {
    for way in [Way::Local, Way::Pull] {
        let scene = Scene::new(way);
        assert_eq!(scene.run(&SyncOptions::archive()), 0);
        let inside = scene.dst("a/list");
        for _ in 0..2 {
            let job = scene.job(&SyncOptions::archive()).write_manifest(ManifestFile::new(&inside));
            scene.run_job(job, Access::ReadWrite, &Silent).unwrap();
            let (manifest, heard) = (Manifest::open(&inside).unwrap(), Heard::default());
            assert_eq!(manifest.totals().entries, 13, "{way:?}");
            verify::verify(&scene.dst(""), &manifest, &Reading::default(), &heard, &CancelToken::new())
                .unwrap();
            assert_eq!(heard.0.into_inner().unwrap(), Vec::<String>::new());
        }
    }
}

#[test]
fn contents_are_not_read_for_a_manifest_that_is_to_have_none() {
    let scene = Scene::new(Way::Push);
    let job = scene.job(&SyncOptions::archive());
    let job = job.write_manifest(ManifestFile::new(scene.list()).contents(false));
    assert_eq!(scene.run_job(job, Access::ReadWrite, &Silent).unwrap().exit_code(), 0);
    assert_eq!(scene.manifest().totals().without_content, 7);
    assert!(scene.verify().1.is_empty());
}

#[test]
fn whoever_may_not_read_gets_no_manifest() {
    let scene = Scene::new(Way::Push);
    for (access, allowed) in [(Access::WriteOnly, false), (Access::Write, true), (Access::Append, true)] {
        let job = scene.job(&SyncOptions::archive()).write_manifest(ManifestFile::new(scene.list()));
        let outcome = scene.run_job(job, access, &Silent);
        assert_eq!(outcome.is_ok(), allowed, "{access:?}: {outcome:?}");
        assert_eq!(scene.list().exists(), allowed);
        assert_eq!(scene.dst("b").exists(), allowed);
    }
    scene.assert_true(&["a-b", "ab", "b", "line\nend", "a/x", "a/deep/y", "a.b/z"]);
}

/// Counts entries of the tree, and other events.
#[derive(Default)]
struct Counts(AtomicU64, AtomicU64);

impl Observer for Counts {
    fn event(&self, event: &Event) {
        let count = if matches!(event, Event::Present(_)) { &self.0 } else { &self.1 };
        count.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn an_observer_hears_of_the_tree_only_if_it_asks() {
    for way in WAYS {
        for asks in [false, true] {
            let scene = Scene::new(way);
            let counts = Counts::default();
            let options = SyncOptions::archive().event_tree(asks);
            let job = scene.job(&options).write_manifest(ManifestFile::new(scene.list()));
            scene.run_job(job, Access::ReadWrite, &counts).unwrap();
            assert_eq!(counts.0.into_inner(), if asks { 13 } else { 0 }, "{way:?}");
            assert_eq!(counts.1.into_inner(), 0, "{way:?}");
            scene.assert_true(&[]);
        }
    }
}

#[test]
fn a_connection_that_breaks_while_the_tree_is_told_leaves_one_whole_manifest() {
    let run = |breaks_after| {
        let mut scene = Scene::new(Way::Push);
        (0..400).for_each(|number| plant(&scene.src(&format!("many/{number}")), b"", 1));
        scene.breaks_after = breaks_after;
        let connect = ConnectOptions::default().retries(2);
        let job = scene.job(&SyncOptions::archive()).connect(connect);
        let job = job.write_manifest(ManifestFile::new(scene.list()));
        let summary = scene.run_job(job, Access::ReadWrite, &Silent).unwrap();
        assert_eq!(summary.exit_code(), 0);
        let (_, findings) = scene.verify();
        assert!(findings.is_empty(), "{findings:?}");
        (scene.received.load(Ordering::Relaxed), summary.reconnects)
    };
    let (whole, _) = run(u64::MAX);
    // The tree is the last that is told: half of it, most of it.
    let broken: u64 = [1000, 2000].map(|before| run(whole - before).1.into()).iter().sum();
    assert!(broken > 0);
}

#[test]
fn a_mistake_of_the_job_is_found_before_the_file_is_begun() {
    let scene = Scene::new(Way::Local);
    let job = scene.job(&SyncOptions::archive().names_hidden(true));
    let job = job.write_manifest(ManifestFile::new(scene.at("no/such/directory")));
    let error = job.run(&Silent, &CancelToken::new()).unwrap_err();
    assert!(matches!(error, SyncError::InvalidOption { option: "names_hidden", .. }), "{error:?}");
}
