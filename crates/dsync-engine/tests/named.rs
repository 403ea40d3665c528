//! Runs whose source is an iterator of names.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test")]

use std::{
    fs, io,
    os::unix::ffi::OsStrExt as _,
    path::{Path, PathBuf},
};

use dsync_engine::{
    CancelToken, Cause, Destination, Event, Job, Observer, RelativePaths, Silent, Source, Summary, SyncError,
    SyncOptions,
};

/// A tree of 100 files in 10 directories, and its copy.
struct Scene(tempfile::TempDir);

impl Scene {
    fn new() -> Self {
        let scene = Self(tempfile::tempdir().unwrap());
        for file in 0..100 {
            let path = scene.root().join(name(file));
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, file.to_string()).unwrap();
        }
        scene
    }

    fn root(&self) -> PathBuf {
        self.0.path().join("root")
    }

    fn copy(&self) -> PathBuf {
        self.0.path().join("copy")
    }

    fn job(&self, relative: RelativePaths) -> Job {
        let source = Source::Files { root: self.root(), relative };
        Job::new(source, Destination::Local { path: self.copy() }).options(SyncOptions::archive())
    }

    fn run(&self, relative: RelativePaths) -> Result<Summary, SyncError> {
        self.job(relative).run(&Silent, &CancelToken::new())
    }

    /// Returns the numbers of the files that were copied.
    fn copied(&self) -> Vec<u32> {
        (0..100).filter(|file| self.copy().join(name(*file)).exists()).collect()
    }
}

fn name(file: u32) -> String {
    format!("d{}/f{file}", file % 10)
}

#[test]
fn what_is_named_is_copied_with_its_path_and_nothing_else() {
    let scene = Scene::new();
    let summary = scene.run(RelativePaths::new((0..100).step_by(7).map(name))).unwrap();
    assert_eq!((summary.exit_code(), summary.report.files_transferred), (0, 15));
    assert_eq!(scene.copied(), (0..100).step_by(7).collect::<Vec<_>>());
    assert_eq!(fs::read(scene.copy().join(name(14))).unwrap(), b"14");

    // A directory is an entry; with a slash at its end it stands for its content.
    let summary = scene.run(["d1", "d2/"].into_iter().collect()).unwrap();
    assert_eq!(summary.report.files_transferred, 9, "f42 is there already");
    assert!(!scene.copy().join("d1/f1").exists() && scene.copy().join("d2/f2").exists());
}

#[test]
fn an_iterator_is_asked_for_each_name_once_and_names_do_not_stay_in_memory() {
    let scene = Scene::new();
    // 3 MB of names, of which a list keeps 1 MiB in memory.
    let names = RelativePaths::new((0..300_000).map(|number| name(number % 100)));
    let job = scene.job(names);
    let first = job.clone().run(&Silent, &CancelToken::new()).unwrap();
    assert_eq!((first.exit_code(), first.report.listed.files, first.report.files_transferred), (0, 100, 100));
    let again = job.run(&Silent, &CancelToken::new()).unwrap();
    assert_eq!((again.report.listed.files, again.report.files_transferred), (100, 0));
}

#[test]
fn a_name_that_can_be_no_entry_ends_the_run_before_anything_starts() {
    for bad in ["/etc/passwd", "d1/../d2/f2", "..", "", ".", "d1/f\0"] {
        let scene = Scene::new();
        let error = scene.run([name(1).as_str(), bad].into_iter().collect()).unwrap_err();
        assert!(
            matches!(&error, SyncError::InvalidPath { path, .. } if path == Path::new(bad)),
            "{bad}: {error:?}"
        );
        assert_eq!((error.exit_code(), error.fault()), (1, dsync_engine::Fault::Caller));
        assert!(!scene.copy().exists());
    }
}

/// Keeps the failures.
#[derive(Default)]
struct Failures(std::sync::Mutex<Vec<(PathBuf, Cause)>>);

impl Observer for Failures {
    fn event(&self, event: &Event) {
        if let Event::Failed(problem) = event {
            let path = String::from_utf8_lossy(&problem.path).into_owned();
            self.0.lock().unwrap().push((path.into(), problem.cause));
        }
    }
}

#[test]
fn what_failed_names_the_entries_of_another_job() {
    let scene = Scene::new();
    let taken = scene.copy().join(name(3));
    fs::create_dir_all(taken.join("filled")).unwrap();
    let outcome = scene.job(RelativePaths::new([name(3), name(4)])).start(Silent).unwrap().join();
    assert_eq!((outcome.failed.len(), scene.copied()), (1, vec![3, 4]));
    assert_eq!(scene.copy().join(&outcome.failed[0]), taken);

    fs::remove_dir_all(&taken).unwrap();
    let again = scene.run(RelativePaths::new(outcome.failed)).unwrap();
    assert_eq!((again.exit_code(), again.report.files_transferred, taken.is_file()), (0, 1, true));
}

#[test]
fn names_that_are_too_long_or_missing_fail_alone_and_can_be_tried_again() {
    let scene = Scene::new();
    let long = "x".repeat(300);
    let job = scene.job([name(1), "d1/gone".to_owned(), long.clone()].into_iter().collect());
    let failures = Failures::default();
    let summary = job.clone().run(&failures, &CancelToken::new()).unwrap();
    assert_eq!((summary.exit_code(), summary.report.files_transferred), (23, 1));
    let failures = failures.0.into_inner().unwrap();
    assert!(failures.contains(&(long.into(), Cause::Os(36))), "{failures:?}");

    fs::write(scene.root().join("d1/gone"), "back").unwrap();
    let again = job.only(&[scene.root().join("d1/gone").into()]).run(&Silent, &CancelToken::new()).unwrap();
    assert_eq!((again.exit_code(), again.report.files_transferred), (0, 1));
    assert_eq!(fs::read(scene.copy().join("d1/gone")).unwrap(), b"back");
}

#[test]
fn an_iterator_that_fails_or_panics_ends_the_run_with_its_words() {
    let scene = Scene::new();
    let rows = vec![Ok(name(1).into()), Err(io::Error::other("the database is gone")), Ok(name(2).into())];
    let job = scene.job(RelativePaths::fallible(rows));
    let error = job.clone().run(&Silent, &CancelToken::new()).unwrap_err();
    let source = std::error::Error::source(&error).unwrap().to_string();
    assert!(matches!(error, SyncError::FileList { path: None, .. }) && source == "the database is gone");
    // Its first name alone would be a selection that nobody made.
    let error = job.run(&Silent, &CancelToken::new()).unwrap_err();
    assert!(matches!(error, SyncError::FileList { .. }), "{error:?}");

    let panics = RelativePaths::new((0..3).map(|file| if file < 2 { name(file) } else { panic!("a bug") }));
    let outcome = scene.job(panics).start(Silent).unwrap().join();
    assert!(matches!(outcome.error, Some(SyncError::Aborted { message }) if message == "a bug"));
    assert!(!scene.copy().exists());
}

#[test]
fn an_endless_iterator_ends_when_the_run_is_cancelled() {
    let scene = Scene::new();
    let cancel = CancelToken::new();
    let canceller = cancel.clone();
    let names = (0_u64..).map(move |number| {
        if number == 1000 {
            canceller.cancel();
        }
        "d1/f1"
    });
    let error = scene.job(RelativePaths::new(names)).run(&Silent, &cancel).unwrap_err();
    assert!(matches!(error, SyncError::Cancelled), "{error:?}");
}

#[test]
fn names_and_a_list_are_refused_together() {
    let scene = Scene::new();
    let list = dsync_engine::Resources::default().file_list(true).finish().unwrap();
    let job = scene.job(RelativePaths::new([name(1)])).files_from(dsync_engine::FilesFrom::List(list));
    let error = job.run(&Silent, &CancelToken::new()).unwrap_err();
    assert!(matches!(error, SyncError::InvalidOption { option: "files_from", .. }), "{error:?}");
}

#[test]
fn what_is_not_named_is_not_deleted() {
    let scene = Scene::new();
    scene.run(RelativePaths::new((0..100).map(name))).unwrap();
    fs::remove_file(scene.root().join(name(3))).unwrap();
    let delete = |names: &[&str]| {
        let job = scene.job(names.iter().collect()).options(SyncOptions::archive().delete(true));
        job.run(&Silent, &CancelToken::new()).unwrap();
        scene.copied().len()
    };
    assert_eq!(delete(&["d3/f13"]), 100);
    assert_eq!(delete(&["d3"]), 100);
    // The whole content of this one is listed.
    assert_eq!(delete(&["d3/"]), 99);
}

#[test]
fn what_failed_of_a_list_can_be_tried_again() {
    // Lines that give entries their paths, part of them, and their last names only.
    for (lines, relative, to) in [
        (&["d1/f1", "d2/f2", "d3/f3", "d4/gone", "d5/"][..], true, ["d1/f1", "d2/f2", "d4/gone", "d5/f5"]),
        (&["./d1/f1", "d2/./f2", "./d3/f3", "d4/./gone", "d5/."], true, ["d1/f1", "f2", "gone", "d5/f5"]),
        (&["d1/f1", "d2/f2", "d3/f3", "d4/gone", "d5/"], false, ["f1", "f2", "gone", "f5"]),
        (&["d1/f1", "d2/f2", "d3/f3", "d4/gone", "."], true, ["d1/f1", "d2/f2", "d4/gone", "d5/f5"]),
    ] {
        let scene = Scene::new();
        // Directories in the way of two files, and a file that is not there yet.
        for taken in [to[0], to[3]] {
            fs::create_dir_all(scene.copy().join(taken).join("filled")).unwrap();
        }
        let mut list = dsync_engine::Resources::default().file_list(relative);
        lines.iter().for_each(|line| list.push(line.as_bytes()).unwrap());
        let options = SyncOptions::archive().recursive(lines.contains(&".")).dirs(true).relative(relative);
        let source = Source::Local { paths: vec![scene.root()] };
        let job = Job::new(source, Destination::Local { path: scene.copy() }).options(options);
        let job = job.files_from(dsync_engine::FilesFrom::List(list.finish().unwrap()));

        let outcome = job.clone().start(Silent).unwrap().join();
        assert_eq!(outcome.summary.unwrap().exit_code(), 23, "{lines:?}");
        assert_eq!(outcome.failed.len(), 3, "{:?}", outcome.failed);

        for taken in [to[0], to[3]] {
            fs::remove_dir_all(scene.copy().join(taken)).unwrap();
        }
        fs::write(scene.root().join("d4/gone"), "back").unwrap();
        fs::write(scene.root().join("d3/f3"), "another one").unwrap();
        let again = job.only(&outcome.failed).run(&Silent, &CancelToken::new()).unwrap();
        assert_eq!((again.exit_code(), again.report.files_transferred), (0, 3), "{lines:?}");
        for entry in [to[0], to[2], to[3]] {
            assert!(scene.copy().join(entry).is_file(), "{lines:?} {entry}");
        }
    }
}

#[test]
fn a_mistake_of_the_job_is_found_before_an_iterator_is_asked() {
    let scene = Scene::new();
    let job = |paths: &RelativePaths, to| {
        Job::new(Source::Files { root: scene.root(), relative: paths.clone() }, to)
            .options(SyncOptions::archive())
    };
    let asked = RelativePaths::new((0..3).map(|_| -> PathBuf { panic!("it was asked") }));
    let peer = || Destination::Peer { path: "there".into() };
    for (to, options) in [
        (Destination::Nowhere, SyncOptions::archive()),
        (peer(), SyncOptions::archive()),
        (Destination::Local { path: scene.copy() }, SyncOptions::archive().names_hidden(true)),
    ] {
        let error = job(&asked, to).options(options).run(&Silent, &CancelToken::new()).unwrap_err();
        assert!(matches!(error, SyncError::InvalidOption { .. }), "{error:?}");
    }
    let stall = dsync_engine::Resources::default().max_stall(std::time::Duration::ZERO);
    let error = job(&asked, Destination::Local { path: scene.copy() }).resources(stall);
    let error = error.run(&Silent, &CancelToken::new()).unwrap_err();
    assert!(matches!(error, SyncError::InvalidOption { option: "max_stall", .. }), "{error:?}");
    assert!(!scene.copy().exists());
}

#[test]
fn a_job_for_no_entry_does_nothing_whatever_its_source_is() {
    let scene = Scene::new();
    let mut list = dsync_engine::Resources::default().file_list(true);
    list.push(b"d1/f1").unwrap();
    let list = dsync_engine::FilesFrom::List(list.finish().unwrap());
    let local = |paths| {
        Job::new(Source::Local { paths }, Destination::Local { path: scene.copy() })
            .options(SyncOptions::archive().relative(true))
    };
    let far =
        Job::new(Source::Peer { paths: vec!["there".into()] }, Destination::Local { path: scene.copy() });
    for (name, job, is_over) in [
        ("operands", local(vec![scene.root()]), false),
        ("a list", local(vec![scene.root()]).files_from(list), false),
        ("an iterator", scene.job(RelativePaths::new([name(1)])), false),
        ("a peer", far, true),
    ] {
        let job = job.only(&[]);
        let connect = |_: &CancelToken| -> io::Result<dsync_engine::Stream> { panic!("nothing to connect") };
        let summary = if is_over {
            job.run_over(&connect, &Silent, &CancelToken::new())
        } else {
            job.run(&Silent, &CancelToken::new())
        };
        let summary = summary.unwrap();
        assert_eq!((summary.exit_code(), summary.report.listed.total()), (0, 0), "{name}");
        assert!(!scene.copy().exists(), "{name}");
    }
    let error = local(Vec::new()).only(&[]).run(&Silent, &CancelToken::new()).unwrap_err();
    assert!(matches!(error, SyncError::InvalidOption { .. }), "{error:?}");
}

#[test]
fn a_job_is_narrowed_whatever_the_order_of_its_setters_is() {
    type Setter = fn(Job) -> Job;
    let options: Setter = |job| job.options(SyncOptions::archive());
    let none: Setter = |job| job.only(&[]);
    let one: Setter = |job| job.only(&["root/d1/f1".into()]);
    let two: Setter = |job| job.only(&["root/d2/f2".into()]);
    for (setters, expected) in [
        (&[options, one][..], Some("root/d1/f1")),
        (&[one, options], Some("root/d1/f1")),
        (&[none, options, one], Some("root/d1/f1")),
        (&[one, two, options], Some("root/d2/f2")),
        (&[one, options, none], None),
    ] {
        let scene = Scene::new();
        for number in [1, 2] {
            let (dir, file) = (format!("d{number}"), format!("d{number}/f{number}"));
            fs::create_dir_all(scene.root().join(dir)).unwrap();
            fs::write(scene.root().join(file), "content").unwrap();
        }
        let source = Source::Local { paths: vec![scene.root()] };
        let job = Job::new(source, Destination::Local { path: scene.copy() });
        let job = setters.iter().fold(job, |job, set| set(job));
        let summary = job.run(&Silent, &CancelToken::new()).unwrap();

        assert_eq!(summary.report.files_transferred, u64::from(expected.is_some()));
        for entry in ["root/d1/f1", "root/d2/f2"] {
            assert_eq!(scene.copy().join(entry).is_file(), expected == Some(entry), "{entry}");
        }
    }
}

#[test]
fn an_operand_that_was_missing_is_tried_again() {
    for relative in [false, true] {
        let scene = Scene::new();
        let (later, root) = (scene.0.path().join("later"), scene.root().join(""));
        let source = Source::Local { paths: vec![root, later.clone()] };
        let job = Job::new(source, Destination::Local { path: scene.copy() })
            .options(SyncOptions::archive().relative(relative));
        let outcome = job.clone().start(Silent).unwrap().join();
        assert_eq!(outcome.failed, [later.as_os_str().as_bytes()], "{:?}", outcome.error);

        fs::write(&later, "here by now").unwrap();
        fs::write(scene.root().join(name(1)), "not among them").unwrap();
        let again = job.only(&outcome.failed).run(&Silent, &CancelToken::new()).unwrap();
        assert_eq!((again.exit_code(), again.report.files_transferred), (0, 1));
        let to = if relative { later.strip_prefix("/").unwrap() } else { Path::new("later") };
        assert_eq!(fs::read(scene.copy().join(to)).unwrap(), b"here by now");
    }
}
