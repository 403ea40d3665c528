//! A filter that is the program's own code.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::disallowed_methods, reason = "a test")]

use std::{
    collections::BTreeSet,
    fs,
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    thread,
};

use dsync_engine::{
    CancelToken, Candidate, Choice, DeleteTiming, Destination, FileType, FilterRule, Job, OperatorFiles,
    Recording, RelativePaths, Server, Silent, Source, Stream, Summary, SyncError, SyncOptions,
};

/// A source and a destination that has an entry of each kind.
struct Scene(tempfile::TempDir);

/// Files of the source: `big` ones are hidden by [`judge`].
const SOURCE: [(&str, usize); 7] = [
    ("big", 9000),
    ("big-new", 9000),
    ("small", 10),
    ("cache/here", 10),
    ("sub/big", 9000),
    ("sub/small", 10),
    ("secret/deep/file", 10),
];

/// Files of the destination before a run.
const BEFORE: [&str; 7] = ["big", "extra", "cache/there", "sub/big", "sub/extra", "secret/old", "gone/big"];

/// Hides large files and `secret`, and leaves what is in `cache` alone.
fn judge(entry: &Candidate<'_>) -> Choice {
    match (entry.kind, entry.path.as_bytes()) {
        (FileType::File, _) if entry.size > 1000 => Choice::Hide,
        (FileType::Directory, b"secret") => Choice::Hide,
        (FileType::Directory, b"cache") => Choice::CopyAlone,
        _ => Choice::Copy,
    }
}

impl Scene {
    fn new() -> Self {
        let scene = Self(tempfile::tempdir().unwrap());
        for (path, size) in SOURCE {
            scene.write(&format!("src/{path}"), &vec![b's'; size]);
        }
        for path in BEFORE {
            scene.write(&format!("dst/{path}"), b"old");
        }
        scene
    }

    fn at(&self, path: &str) -> PathBuf {
        self.0.path().join(path)
    }

    fn write(&self, path: &str, content: &[u8]) {
        let path = self.at(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    fn source(&self) -> Source {
        Source::Local { paths: vec![self.at("src/")] }
    }

    /// Runs a job of this source, to a directory of this machine or over a connection.
    fn run(&self, to: &str, push: bool, job: impl FnOnce(Job) -> Job) -> Result<Summary, SyncError> {
        let path = self.at(to);
        if !push {
            let destination = Destination::Local { path };
            return job(Job::new(self.source(), destination)).run(&Silent, &CancelToken::new());
        }

        let (ours, theirs) = UnixStream::pair().unwrap();
        let theirs = Stream::from_socket(theirs).unwrap();
        let served = thread::spawn(move || Server::new(theirs).serve(&Silent, &CancelToken::new()));
        let ours = Mutex::new(Some(ours));
        let connect = |_: &CancelToken| {
            let socket = ours.lock().unwrap().take().ok_or(std::io::ErrorKind::NotConnected)?;
            Stream::from_socket(socket)
        };
        let job = job(Job::new(self.source(), Destination::Peer { path: path.into() }));
        let outcome = job.run_over(&connect, &Silent, &CancelToken::new());
        drop(ours);
        let _ = served.join().unwrap();
        outcome
    }
}

/// Returns the paths of all files below a directory.
fn files(at: &Path) -> BTreeSet<String> {
    fn walk(at: &Path, above: &str, found: &mut BTreeSet<String>) {
        for entry in fs::read_dir(at).into_iter().flatten() {
            let entry = entry.unwrap();
            let path = format!("{above}{}", entry.file_name().to_str().unwrap());
            if entry.file_type().unwrap().is_dir() {
                walk(&entry.path(), &format!("{path}/"), found);
            } else {
                found.insert(path);
            }
        }
    }
    let mut found = BTreeSet::new();
    walk(at, "", &mut found);
    found
}

fn set(paths: &[&str]) -> BTreeSet<String> {
    paths.iter().map(|&path| path.to_owned()).collect()
}

const TIMINGS: [DeleteTiming; 4] =
    [DeleteTiming::Before, DeleteTiming::During, DeleteTiming::After, DeleteTiming::AfterArrival];

#[test]
fn what_is_hidden_is_not_copied_and_directories_may_be_closed() {
    for push in [false, true] {
        let scene = Scene::new();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&asked);
        let run = scene.run("new", push, |job| {
            job.options(SyncOptions::archive()).filter(move |entry| {
                seen.lock().unwrap().push(String::from_utf8(entry.path.to_vec()).unwrap());
                judge(entry)
            })
        });
        assert_eq!(run.unwrap().exit_code(), 0);
        assert_eq!(files(&scene.at("new")), set(&["small", "sub/small"]));
        assert!(scene.at("new/cache").is_dir() && !scene.at("new/secret").exists());
        // Each entry once, and none of a directory that is not descended into.
        let mut asked = asked.lock().unwrap().clone();
        asked.sort();
        assert_eq!(asked, ["big", "big-new", "cache", "secret", "small", "sub", "sub/big", "sub/small"]);
    }
}

#[test]
fn a_hidden_name_is_protected_and_what_only_the_destination_has_is_not() {
    for (push, timing) in [false, true].into_iter().flat_map(|push| TIMINGS.map(|timing| (push, timing))) {
        let scene = Scene::new();
        let options = SyncOptions::archive().delete(true).delete_timing(timing);
        let mut summaries = Vec::new();
        for dry_run in [true, false, false] {
            let options = options.clone().dry_run(dry_run);
            summaries.push(scene.run("dst", push, |job| job.options(options).filter(judge)).unwrap());
        }
        let deleted: Vec<_> = summaries.iter().map(|summary| summary.report.deleted.total()).collect();
        // extra, sub/extra, gone/big and gone; nothing is left for the second run.
        assert_eq!(deleted, [4, 4, 0], "{push} {timing:?}");
        assert!(summaries.iter().all(|summary| summary.exit_code() == 0));
        let left = set(&["big", "small", "cache/there", "sub/big", "sub/small", "secret/old"]);
        assert_eq!(files(&scene.at("dst")), left, "{push} {timing:?}");
        assert_eq!(fs::read(scene.at("dst/big")).unwrap(), b"old");
    }
}

#[test]
fn a_hidden_name_is_deleted_with_delete_excluded() {
    for (push, timing) in [false, true].into_iter().flat_map(|push| TIMINGS.map(|timing| (push, timing))) {
        let scene = Scene::new();
        let options = SyncOptions::archive().delete(true).delete_excluded(true).delete_timing(timing);
        let run = scene.run("dst", push, |job| job.options(options).filter(judge)).unwrap();
        assert_eq!(run.exit_code(), 0);
        // A directory that is copied alone is none of the run's.
        assert_eq!(files(&scene.at("dst")), set(&["small", "cache/there", "sub/small"]), "{push} {timing:?}");
    }
}

#[test]
fn the_rules_come_first_and_types_that_they_tell_apart_do_not_matter() {
    // Directories are included, and nothing else: a hidden directory has no type at the destination.
    let scene = Scene::new();
    let rule = |include, pattern: &str| FilterRule::default().include(include).pattern(pattern.into());
    let rules = vec![rule(true, "*/"), rule(false, "*")];
    let options = SyncOptions::archive().delete(true).filters(rules);
    let run = scene.run("dst", true, |job| {
        job.options(options).filter(|entry| {
            assert_eq!(entry.kind, FileType::Directory, "a rule has excluded it");
            judge(entry)
        })
    });
    assert_eq!(run.unwrap().exit_code(), 0);
    // The rules protect all files.
    assert_eq!(files(&scene.at("dst")), set(&BEFORE));
    assert!(scene.at("dst/sub").is_dir() && !scene.at("dst/secret/deep").exists());
}

#[test]
fn what_one_operand_hides_another_may_bring() {
    let scene = Scene::new();
    scene.write("more/big", b"little");
    scene.write("more/secret/x", b"little");
    for delete in [false, true] {
        let source = Source::Local { paths: vec![scene.at("src/"), scene.at("more/")] };
        let job = Job::new(source, Destination::Local { path: scene.at("dst") });
        let options = SyncOptions::archive().delete(delete);
        let judge = |entry: &Candidate<'_>| match entry.kind {
            FileType::File if entry.size > 1000 => Choice::Hide,
            _ => Choice::Copy,
        };
        assert_eq!(
            job.options(options).filter(judge).run(&Silent, &CancelToken::new()).unwrap().exit_code(),
            0
        );
        assert_eq!(fs::read(scene.at("dst/big")).unwrap(), b"little");
        assert!(scene.at("dst/secret/x").exists() && scene.at("dst/secret/deep/file").exists());
    }
}

#[test]
fn paths_that_are_named_are_judged_too() {
    let scene = Scene::new();
    let relative = RelativePaths::new(["big", "small", "secret/", "cache/here", "sub/small"]);
    let source = Source::Files { root: scene.at("src"), relative };
    let job = Job::new(source, Destination::Local { path: scene.at("new") }).filter(judge);
    assert_eq!(job.run(&Silent, &CancelToken::new()).unwrap().exit_code(), 0);
    // The way to a path that is named is not judged.
    assert_eq!(files(&scene.at("new")), set(&["small", "cache/here", "sub/small"]));
    assert!(!scene.at("new/secret").exists());
}

#[test]
fn directories_of_hidden_entries_only_are_pruned() {
    let scene = Scene::new();
    scene.write("src/deep/er/big", &[b's'; 9000]);
    let options = SyncOptions::archive().prune_empty_dirs(true);
    let run = scene.run("new", false, |job| job.options(options.clone()).filter(judge));
    assert_eq!(run.unwrap().exit_code(), 0);
    assert_eq!(files(&scene.at("new")), set(&["small", "sub/small"]));
    assert!(!scene.at("new/deep").exists() && !scene.at("new/cache").exists());
}

#[test]
fn a_filter_that_panics_ends_the_run_and_deletes_nothing() {
    for (push, excluded) in [(false, false), (false, true), (true, false), (true, true)] {
        for timing in TIMINGS {
            let scene = Scene::new();
            let options = SyncOptions::archive().delete(true).delete_excluded(excluded).delete_timing(timing);
            let run = scene.run("dst", push, |job| {
                job.options(options).filter(|entry| match entry.path.as_bytes() {
                    b"sub/small" => panic!("no idea"),
                    _ => Choice::Copy,
                })
            });
            let error = run.unwrap_err();
            assert!(matches!(&error, SyncError::Aborted { message } if message == "no idea"), "{error:?}");
            let left = files(&scene.at("dst"));
            assert!(left.contains("sub/big") && left.contains("sub/extra"), "{left:?}");
        }
    }
}

#[test]
fn a_source_at_the_other_end_and_jobs_that_would_not_protect_are_refused() {
    let scene = Scene::new();
    let refused = |job: Job| match job.run(&Silent, &CancelToken::new()) {
        Err(SyncError::InvalidOption { option, why }) => format!("{option} {why}"),
        other => panic!("{other:?}"),
    };
    let here = || Destination::Local { path: scene.at("dst") };
    let pull = Job::new(Source::Peer { paths: vec!["x".into()] }, here());
    assert_eq!(
        refused(pull.filter(judge)),
        "filter is this program's code, and the source is at the other end: use options.filters"
    );

    let push = || Job::new(scene.source(), here()).filter(judge);
    let options = SyncOptions::archive().delete(true);
    let pruned = push().options(options.clone().prune_empty_dirs(true));
    assert!(refused(pruned).ends_with("set delete_excluded"));
    let recording = Recording::create(&scene.at("batch"), true, &OperatorFiles::default()).unwrap();
    let recorded = push().options(options.clone()).record(recording);
    assert!(refused(recorded).ends_with("set delete_excluded"));
    let by_hand = Job::new(scene.source(), here()).options(SyncOptions::archive().names_hidden(true));
    assert_eq!(refused(by_hand), "names_hidden needs delete, without delete_excluded");
    assert_eq!(files(&scene.at("dst")), set(&BEFORE));
}
