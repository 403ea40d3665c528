//! Runs whose source is a manifest.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test")]

use std::{
    fs,
    os::unix::{ffi::OsStringExt as _, fs::symlink, net::UnixStream},
    path::PathBuf,
    sync::Mutex,
    thread,
};

use dsync_engine::{
    AlternateUse, Alternates, CancelToken, Cause, Destination, Event, EventLevel, Job, Manifest,
    ManifestError, Observer, OperatorFiles, Recording, Server, Silent, Source, Stream, Summary, SyncError,
    SyncOptions, WritePolicy,
    verify::{self, Reading},
};

/// A tree with its manifest.
struct Scene(tempfile::TempDir);

/// Files of more than one segment, of one, and small ones.
const FILES: [(&str, usize); 6] =
    [("large", 9 << 20), ("a/mid", 300_000), ("a/small", 10), ("a-b", 10), ("b/c/small", 20), ("empty", 0)];

impl Scene {
    fn new() -> Self {
        let scene = Self(tempfile::tempdir().unwrap());
        for (number, (path, size)) in FILES.into_iter().enumerate() {
            let path = scene.at("src").join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, vec![u8::try_from(number).unwrap() + b'0'; size]).unwrap();
        }
        symlink("a/small", scene.at("src/link")).unwrap();
        fs::create_dir(scene.at("src/bare")).unwrap();
        verify::record_to_file(
            &scene.at("src"),
            &scene.at("manifest"),
            &Reading::default(),
            &Silent,
            &CancelToken::new(),
        )
        .unwrap();
        scene
    }

    fn at(&self, path: &str) -> PathBuf {
        self.0.path().join(path)
    }

    fn manifest(&self) -> Manifest {
        Manifest::open(&self.at("manifest")).unwrap()
    }

    fn source(&self) -> Source {
        Source::Manifest { root: self.at("src"), manifest: self.manifest() }
    }

    fn job(&self) -> Job {
        let destination = Destination::Local { path: self.at("dst") };
        Job::new(self.source(), destination).options(SyncOptions::archive())
    }

    /// Makes the first byte of a file another one, and leaves its size and time as they are.
    fn rot(&self, path: &str) {
        let path = self.at("src").join(path);
        let time = fs::metadata(&path).unwrap().modified().unwrap();
        let mut content = fs::read(&path).unwrap();
        content[0] ^= 1;
        fs::write(&path, content).unwrap();
        fs::File::options().write(true).open(&path).unwrap().set_modified(time).unwrap();
    }

    /// Runs the job here, or over a connection.
    fn run(&self, push: bool, options: SyncOptions, observer: &dyn Observer) -> Result<Summary, SyncError> {
        if !push {
            return self.job().options(options).run(observer, &CancelToken::new());
        }
        let (ours, theirs) = UnixStream::pair().unwrap();
        let theirs = Stream::from_socket(theirs).unwrap();
        let served = thread::spawn(move || Server::new(theirs).serve(&Silent, &CancelToken::new()));
        let ours = Mutex::new(Some(ours));
        let connect = |_: &CancelToken| {
            Stream::from_socket(ours.lock().unwrap().take().ok_or(std::io::ErrorKind::NotConnected)?)
        };
        let destination = Destination::Peer { path: self.at("dst").into() };
        let outcome = Job::new(self.source(), destination).options(options).run_over(
            &connect,
            observer,
            &CancelToken::new(),
        );
        let _ = served.join().unwrap();
        outcome
    }

    /// Returns what a verification of the copy finds wrong with contents.
    fn wrong_contents(&self) -> u64 {
        let (reading, cancel) = (Reading::default(), CancelToken::new());
        let found = verify::verify(&self.at("dst"), &self.manifest(), &reading, &Silent, &cancel).unwrap();
        found.rotten + found.edited + found.missing
    }
}

/// Keeps the failures.
#[derive(Default)]
struct Failures(Mutex<Vec<(String, Cause)>>);

impl Failures {
    fn taken(&self) -> Vec<(String, Cause)> {
        let mut failures = std::mem::take(&mut *self.0.lock().unwrap());
        failures.sort_by(|one, other| one.0.cmp(&other.0));
        failures
    }
}

impl Observer for Failures {
    fn event(&self, event: &Event) {
        if let Event::Failed(problem) = event {
            let path = String::from_utf8_lossy(&problem.path).into_owned();
            self.0.lock().unwrap().push((path, problem.cause));
        }
    }
}

#[test]
fn what_the_manifest_names_is_copied_and_nothing_else() {
    for push in [false, true] {
        let scene = Scene::new();
        fs::write(scene.at("src/a/later"), "unknown").unwrap();
        let first = scene.run(push, SyncOptions::archive(), &Silent).unwrap();
        assert_eq!((first.exit_code(), first.report.files_transferred), (0, 6), "{push}");
        assert_eq!(scene.wrong_contents(), 0);
        assert!(!scene.at("dst/a/later").exists() && scene.at("dst/bare").is_dir());
        assert_eq!(fs::read_link(scene.at("dst/link")).unwrap(), PathBuf::from("a/small"));
        let again = scene.run(push, SyncOptions::archive(), &Silent).unwrap();
        assert_eq!((again.exit_code(), again.report.files_transferred), (0, 0), "{push}");
    }
}

#[test]
fn a_file_of_another_content_fails_and_the_old_one_stays() {
    for push in [false, true] {
        let scene = Scene::new();
        fs::create_dir_all(scene.at("dst/a")).unwrap();
        fs::write(scene.at("dst/a/small"), "before").unwrap();
        for path in ["large", "a/mid", "a/small"] {
            scene.rot(path);
        }
        fs::write(scene.at("src/b/c/small"), "longer than it was recorded").unwrap();
        fs::remove_file(scene.at("src/a-b")).unwrap();
        fs::remove_file(scene.at("src/link")).unwrap();
        fs::write(scene.at("src/link"), "no link").unwrap();

        let failures = Failures::default();
        let run = scene.run(push, SyncOptions::archive(), &failures).unwrap();
        assert_eq!((run.exit_code(), run.report.failed), (23, 6), "{push}");
        let gone = scene.at("src/a-b").to_str().unwrap().to_owned();
        let expected = [
            (gone.as_str(), Cause::Os(2)),
            ("a/mid", Cause::OtherContent),
            ("a/small", Cause::OtherContent),
            ("b/c/small", Cause::OtherContent),
            ("large", Cause::OtherContent),
            ("link", Cause::TypeChanged),
        ];
        let expected = expected.map(|(path, cause)| (path.to_owned(), cause));
        assert_eq!(failures.taken(), expected, "{push}");
        assert_eq!(fs::read(scene.at("dst/a/small")).unwrap(), b"before");
        let left: Vec<_> = fs::read_dir(scene.at("dst/a")).unwrap().map(|e| e.unwrap().file_name()).collect();
        assert_eq!(left, ["small"]);
        assert!(!scene.at("dst/large").exists() && !scene.at("dst/link").exists());
    }
}

/// Rots a file once the run has planned to copy it, or has asked for it.
struct Rots<'a>(&'a Scene, Mutex<bool>);

impl Observer for Rots<'_> {
    fn event(&self, event: &Event) {
        let is_planned = matches!(event, Event::Planned(planned) if planned.path == b"large");
        if is_planned && !std::mem::replace(&mut *self.1.lock().unwrap(), true) {
            self.0.rot("large");
        }
    }
}

#[test]
fn whatever_happens_during_the_run_no_content_is_wrong() {
    for push in [false, true] {
        let scene = Scene::new();
        let rots = Rots(&scene, Mutex::default());
        let run = scene.run(push, SyncOptions::archive().events(EventLevel::All), &rots).unwrap();
        assert!(*rots.1.lock().unwrap());
        let copied = scene.at("dst/large").exists();
        assert_eq!(run.exit_code(), if copied { 0 } else { 23 });
        assert_eq!(scene.wrong_contents(), u64::from(!copied));
    }
}

#[test]
fn a_copy_that_looks_equal_is_compared_by_content() {
    let scene = Scene::new();
    assert_eq!(scene.run(false, SyncOptions::archive(), &Silent).unwrap().exit_code(), 0);
    for (by, rotten) in [("dst", "a/mid"), ("alt", "a/small")] {
        let path = scene.at(by).join(rotten);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let time = fs::metadata(scene.at("src").join(rotten)).unwrap().modified().unwrap();
        let size = fs::read(scene.at("src").join(rotten)).unwrap().len();
        fs::write(&path, vec![b'#'; size]).unwrap();
        fs::File::options().write(true).open(&path).unwrap().set_modified(time).unwrap();
    }
    fs::remove_file(scene.at("dst/a/small")).unwrap();
    let alternates = Alternates::new(AlternateUse::Link, vec![scene.at("alt").into_os_string().into_vec()]);
    let options = SyncOptions::archive().writing(WritePolicy::default().alternates(Some(alternates)));
    let run = scene.run(false, options, &Silent).unwrap();
    assert_eq!((run.exit_code(), run.report.files_transferred), (0, 2));
    assert_eq!(scene.wrong_contents(), 0);
}

#[test]
fn two_recorded_contents_of_one_inode_are_two_files() {
    let scene = Scene::new();
    // Of one length when they were recorded, and one file now.
    fs::remove_file(scene.at("src/a-b")).unwrap();
    fs::hard_link(scene.at("src/a/small"), scene.at("src/a-b")).unwrap();
    for push in [false, true] {
        let failures = Failures::default();
        let run = scene.run(push, SyncOptions::archive().hard_links(true), &failures).unwrap();
        assert_eq!(run.exit_code(), 23);
        assert_eq!(failures.taken(), [("a-b".to_owned(), Cause::OtherContent)]);
        assert!(!scene.at("dst/a-b").exists());
        assert_eq!(scene.wrong_contents(), 1, "the one that is missing");
    }
}

#[test]
fn what_failed_can_be_tried_again() {
    let scene = Scene::new();
    let kept = fs::read(scene.at("src/a/mid")).unwrap();
    scene.rot("a/mid");
    fs::rename(scene.at("src/a-b"), scene.at("away")).unwrap();
    let outcome = scene.job().start(Silent).unwrap().join();
    assert_eq!((outcome.summary.unwrap().exit_code(), outcome.failed.len()), (23, 2));

    fs::write(scene.at("src/a/mid"), kept).unwrap();
    fs::rename(scene.at("away"), scene.at("src/a-b")).unwrap();
    scene.rot("a/small");
    let again = scene.job().only(&outcome.failed).run(&Silent, &CancelToken::new()).unwrap();
    assert_eq!((again.exit_code(), again.report.files_transferred), (0, 2));
    assert_eq!(scene.wrong_contents(), 0);
}

#[test]
fn a_manifest_that_cannot_be_used_is_refused_before_anything_changes() {
    let scene = Scene::new();
    let text = fs::read(scene.at("manifest")).unwrap();
    let mut damaged = text.clone();
    damaged[60] ^= 1;
    for (content, expected) in [
        (&b"a list of names\n"[..], "the file is no manifest"),
        (&text[..text.len() - 5], "the manifest was cut short"),
        (&damaged, "the manifest was changed or damaged: its hash differs"),
        (b"dsync-manifest 2\nend 0\n", "the manifest has version 2, and this program reads version 1"),
    ] {
        fs::write(scene.at("other"), content).unwrap();
        let error = Manifest::open(&scene.at("other")).unwrap_err().to_string();
        assert!(error == expected || error.contains("is no record"), "{error}");
    }

    let refused = |job: Job| match job.run(&Silent, &CancelToken::new()) {
        Err(SyncError::InvalidOption { option, .. }) => option,
        other => panic!("{other:?}"),
    };
    let archive = SyncOptions::archive;
    assert_eq!(refused(scene.job().options(archive().delete(true))), "delete");
    let inplace = archive().writing(WritePolicy::default().inplace(true));
    assert_eq!(refused(scene.job().options(inplace)), "writing.inplace");
    let recording = Recording::create(&scene.at("batch"), true, &OperatorFiles::default()).unwrap();
    assert_eq!(refused(scene.job().record(recording)), "recording");
    let alone = Job::new(Source::Local { paths: vec![scene.at("src/")] }, Destination::Nowhere);
    assert_eq!(
        refused(alone.options(archive().contents_as_listed(true).dry_run(true))),
        "contents_as_listed"
    );

    // Changed after it was opened: another content with the sums of the old one.
    let job = scene.job();
    let text = String::from_utf8(text).unwrap().replacen("f 644 0 0 ", "f 644 0 1 ", 1);
    fs::write(scene.at("manifest"), text).unwrap();
    let error = job.run(&Silent, &CancelToken::new()).unwrap_err();
    assert!(
        matches!(&error, SyncError::FileList { .. } | SyncError::Manifest(ManifestError::Damaged)),
        "{error:?}"
    );
    assert!(!scene.at("dst").exists());
}
