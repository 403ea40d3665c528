//! Verifying a tree at another end: judged as one of this machine, read where it is due, and no more
//! than the other end allows.
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
    time::Duration,
};

use dsync_engine::{
    Access, CancelToken, Grant, GrantTerms, Manifest, Server, Silent, Stream, SyncError,
    verify::{self, Finding, MaxAge, Reading, RemoteTree, Verified, VerifyError, VerifyObserver},
};

/// Names whose order by bytes is not the order of a walk, and some that a shell or a list would take
/// for something else.
const FILES: [&str; 9] = ["a/x", "a/deep/y", "a-b", "a.b/z", "ab", "#note", "line\nend", "-n", "b"];

struct Scene {
    scratch: tempfile::TempDir,
    /// Bytes that the other end has sent.
    sent: Arc<AtomicU64>,
}

impl Scene {
    fn new() -> Self {
        let scratch = tempfile::tempdir().unwrap();
        let scene = Self { scratch, sent: Arc::default() };
        for file in FILES {
            let path = scene.at(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, file.repeat(10)).unwrap();
        }
        symlink("b", scene.at("link")).unwrap();
        scene
    }

    /// Returns a path in the tree.
    fn at(&self, path: &str) -> PathBuf {
        self.scratch.path().join("service/tree").join(path)
    }

    /// Returns a path beside the directory that the other end serves.
    fn beside(&self, path: &str) -> PathBuf {
        self.scratch.path().join(path)
    }

    fn record(&self) -> Manifest {
        let (file, reading) = (self.beside("manifest"), Reading::default());
        verify::record_to_file(&self.at(""), &file, &reading, &Silent, &CancelToken::new()).unwrap();
        Manifest::open(&file).unwrap()
    }

    /// Hands a tree to `act`, over connections to a server with a grant.
    fn over<T>(&self, access: Access, path: &str, act: impl FnOnce(&RemoteTree<'_>) -> T) -> T {
        let connect = |_: &CancelToken| {
            let (ours, theirs) = UnixStream::pair()?;
            let grant = Grant::open(GrantTerms::new(self.beside("service"), access))?;
            let theirs = Stream::from_socket(theirs)?;
            let serve = move || Server::new(theirs).grant(grant).serve(&Silent, &CancelToken::new());
            let _ = thread::spawn(serve);
            let counted = Counted { socket: ours.try_clone()?, bytes: Arc::clone(&self.sent) };
            Stream::new(counted, ours)
        };
        act(&RemoteTree::over(&connect, path.into()))
    }

    fn verify(&self, manifest: &Manifest, reading: &Reading) -> (Verified, Vec<String>) {
        let heard = Heard::default();
        let verified = self.over(Access::ReadOnly, "tree", |tree| {
            verify::verify_remote(tree, manifest, reading, &heard, &CancelToken::new()).unwrap()
        });
        let mut heard = heard.0.into_inner().unwrap();
        heard.sort();
        (verified, heard)
    }

    fn verify_here(&self, manifest: &Manifest) -> (Verified, Vec<String>) {
        let (heard, reading) = (Heard::default(), Reading::default());
        let verified = verify::verify(&self.at(""), manifest, &reading, &heard, &CancelToken::new()).unwrap();
        let mut heard = heard.0.into_inner().unwrap();
        heard.sort();
        (verified, heard)
    }
}

/// A socket whose bytes are counted.
struct Counted {
    socket: UnixStream,
    bytes: Arc<AtomicU64>,
}

impl io::Read for Counted {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let read = self.socket.read(buf)?;
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

/// Reads what was not read within the last hour.
fn within_an_hour(scene: &Scene) -> Reading {
    Reading::default().max_age(Some(MaxAge::new(Duration::from_secs(3600), scene.beside("ages"))))
}

/// Changes a byte and nothing else that shows.
fn rot(path: &Path) {
    let before = fs::metadata(path).unwrap().modified().unwrap();
    let mut content = fs::read(path).unwrap();
    content[0] ^= 0x80;
    fs::write(path, content).unwrap();
    fs::File::options().write(true).open(path).unwrap().set_modified(before).unwrap();
}

/// Changes a tree in each way that there is.
fn damage(scene: &Scene) {
    rot(&scene.at("a/deep/y"));
    rot(&scene.at("line\nend"));
    fs::write(scene.at("b"), "longer than it was before, by far, as somebody has edited it").unwrap();
    fs::set_permissions(scene.at("ab"), fs::Permissions::from_mode(0o600)).unwrap();
    fs::remove_file(scene.at("a-b")).unwrap();
    fs::remove_dir_all(scene.at("a.b")).unwrap();
    fs::write(scene.at("a/new"), "new").unwrap();
    fs::remove_file(scene.at("link")).unwrap();
    symlink("elsewhere", scene.at("link")).unwrap();
}

#[test]
fn a_remote_tree_is_judged_as_one_of_this_machine() {
    let scene = Scene::new();
    let manifest = scene.record();
    let in_parts = within_an_hour(&scene);
    for reading in [Reading::default(), in_parts.clone()] {
        let (verified, heard) = scene.verify(&manifest, &reading);
        assert_eq!((verified, heard), scene.verify_here(&manifest), "{reading:?}");
        assert_eq!((verified.sound, verified.exit_code()), (FILES.len() as u64, 0));
    }

    damage(&scene);
    fs::remove_file(scene.beside("ages")).unwrap();
    let here = scene.verify_here(&manifest);
    assert_eq!((here.0.rotten, here.0.missing, here.0.new, here.0.edited), (2, 3, 1, 2), "{here:?}");
    for reading in [Reading::default(), in_parts] {
        assert_eq!(scene.verify(&manifest, &reading), here, "{reading:?}");
    }
}

#[test]
fn a_remote_tree_is_recorded_as_one_of_this_machine() {
    let scene = Scene::new();
    let here = scene.record();
    let there = scene.over(Access::ReadOnly, "tree/", |tree| {
        let (file, reading) = (scene.beside("remote"), Reading::default());
        let totals = verify::record_remote_to_file(tree, &file, &reading, &CancelToken::new()).unwrap();
        assert_eq!(totals, here.totals());
        Manifest::open(&file).unwrap()
    });
    assert!(here == there);
}

#[test]
fn only_due_files_are_read_and_no_content_is_sent() {
    let scene = Scene::new();
    let big = vec![7; 5 << 20];
    fs::write(scene.at("big"), &big).unwrap();
    let manifest = scene.record();
    let files = manifest.totals().files;

    let reading = within_an_hour(&scene);
    let (first, _) = scene.verify(&manifest, &reading);
    assert_eq!((first.bytes_read, first.sound, first.unread), (manifest.totals().bytes, files, 0));
    assert!(scene.sent.load(Ordering::Relaxed) < 64 << 10, "{:?}", scene.sent);
    // A file that rots now was sound a moment ago, and an edit shows without reading.
    rot(&scene.at("ab"));
    fs::write(scene.at("b"), "edited").unwrap();
    let (second, heard) = scene.verify(&manifest, &reading);
    assert_eq!((second.bytes_read, second.unread, second.edited), (0, files - 1, 1), "{heard:?}");

    let (none, _) = scene.verify(&manifest, &Reading::default().percent(0));
    assert_eq!((none.bytes_read, none.unread), (0, files - 1));
    // Each seed reads some files, and all of them together every one.
    let read: Vec<u64> = (0..40)
        .map(|seed| scene.verify(&manifest, &Reading::default().percent(30).seed(seed)).0)
        .map(|verified| verified.sound + verified.rotten)
        .collect();
    assert!(read.iter().all(|&count| count < files) && read.iter().any(|&count| count > 0), "{read:?}");
}

#[test]
fn an_interrupted_verification_goes_on_with_the_rest() {
    /// Interrupts at the first finding.
    struct Stops(CancelToken);
    impl VerifyObserver for Stops {
        fn finding(&self, _: &Finding) {
            self.0.cancel();
        }
    }

    let scene = Scene::new();
    let manifest = scene.record();
    rot(&scene.at("b"));
    let reading = within_an_hour(&scene);
    let stops = Stops(CancelToken::new());
    let outcome = scene.over(Access::ReadOnly, "tree", |tree| {
        verify::verify_remote(tree, &manifest, &reading, &stops, &stops.0)
    });
    assert!(matches!(outcome, Err(VerifyError::Cancelled)), "{outcome:?}");

    // `b` is behind four other files of the root, and before all those of the directories.
    let (verified, heard) = scene.verify(&manifest, &reading);
    assert_eq!((verified.rotten, verified.findings()), (1, 1), "{heard:?}");
    assert!(verified.unread >= 4, "{verified:?}");
    assert_eq!(verified.unread + verified.sound + 1, manifest.totals().files, "{verified:?}");
}

#[test]
fn who_may_copy_from_a_directory_may_verify_it() {
    let scene = Scene::new();
    let manifest = scene.record();
    let verify = |tree: &RemoteTree<'_>| {
        verify::verify_remote(tree, &manifest, &Reading::default(), &Silent, &CancelToken::new())
    };
    for access in Access::EACH {
        let outcome = scene.over(access, "tree", verify);
        match access {
            Access::WriteOnly => match outcome {
                Err(VerifyError::Session(error)) => {
                    assert!(matches!(*error, SyncError::Peer { exit_code: 42, .. }), "{error:?}");
                }
                other => panic!("{other:?}"),
            },
            _ => assert_eq!(outcome.unwrap().exit_code(), 0, "{access:?}"),
        }
    }
    // Nothing beyond the directory is told.
    fs::create_dir(scene.beside("other")).unwrap();
    let beyond = scene.over(Access::ReadOnly, "../other", verify);
    assert!(matches!(beyond, Err(VerifyError::Session(_) | VerifyError::Tree { .. })), "{beyond:?}");
}

#[test]
fn what_is_no_directory_is_named() {
    let scene = Scene::new();
    let manifest = scene.record();
    for path in ["nothing", "tree/b"] {
        let outcome = scene.over(Access::ReadOnly, path, |tree| {
            verify::verify_remote(tree, &manifest, &Reading::default(), &Silent, &CancelToken::new())
        });
        let Err(VerifyError::Session(error)) = outcome else { panic!("{path}: {outcome:?}") };
        assert_eq!(error.exit_code(), 23, "{error:?}");
        assert!(error.to_string().contains(path), "{error}");
    }
}

/// Panics at the first finding.
struct Panics;

impl VerifyObserver for Panics {
    fn finding(&self, _: &Finding) {
        panic!("a bug in the observer")
    }
}

#[test]
fn a_panic_of_the_observer_ends_the_verification_and_nothing_else() {
    let scene = Scene::new();
    let manifest = scene.record();
    fs::write(scene.at("new"), "").unwrap();
    let outcome = scene.over(Access::ReadOnly, "tree", |tree| {
        verify::verify_remote(tree, &manifest, &Reading::default(), &Panics, &CancelToken::new())
    });
    let Err(VerifyError::Aborted { message }) = outcome else { panic!("{outcome:?}") };
    assert_eq!(message, "a bug in the observer");
}
