use std::{
    fs,
    os::unix::{ffi::OsStrExt as _, fs::PermissionsExt as _},
    path::PathBuf,
    sync::Mutex,
};

use super::*;

/// A tree and its manifest beside it.
struct Scene {
    scratch: tempfile::TempDir,
}

/// Keeps the findings, as words.
#[derive(Default)]
struct Heard(Mutex<Vec<String>>);

impl VerifyObserver for Heard {
    fn finding(&self, finding: &Finding) {
        let word = match &finding.difference {
            Difference::Rot => "rot",
            Difference::Edited(_) => "edited",
            Difference::Attributes(_) => "attributes",
            Difference::Missing => "missing",
            Difference::New => "new",
            Difference::Unreadable(_) => "unreadable",
            Difference::Busy => "busy",
            Difference::Unrecorded | Difference::EditedSince(_) => "of no manifest",
        };
        self.0.lock().unwrap().push(format!("{word} {}", finding.path.escape_ascii()));
    }
}

impl Scene {
    fn new() -> Self {
        let scene = Self { scratch: tempfile::tempdir().unwrap() };
        for directory in ["a", "a/deep", "a-b"] {
            fs::create_dir_all(scene.tree().join(directory)).unwrap();
        }
        for file in ["top", "a/one", "a/two", "a/deep/three", "a-b/four"] {
            fs::write(scene.tree().join(file), file).unwrap();
        }
        fs::write(scene.tree().join(std::ffi::OsStr::from_bytes(b"a/\xff \n")), "odd").unwrap();
        std::os::unix::fs::symlink("one", scene.tree().join("a/link")).unwrap();
        scene
    }

    fn tree(&self) -> PathBuf {
        self.scratch.path().join("tree")
    }

    fn at(&self, path: &str) -> PathBuf {
        self.tree().join(path)
    }

    fn record(&self) -> Manifest {
        let path = self.scratch.path().join("manifest");
        let writer = ManifestWriter::new(fs::File::create(&path).unwrap()).unwrap();
        record(&self.tree(), writer, &Reading::default(), &CancelToken::new()).unwrap();
        Manifest::open(&path).unwrap()
    }

    fn verify(&self, manifest: &Manifest, reading: &Reading) -> (Verified, Vec<String>) {
        let heard = Heard::default();
        let verified = verify(&self.tree(), manifest, reading, &heard, &CancelToken::new()).unwrap();
        let heard = heard.0.into_inner().unwrap();
        assert_eq!(verified.findings(), heard.len() as u64);
        (verified, heard)
    }

    /// Changes a file and puts its time back, as no editor does.
    fn rot(&self, path: &str) {
        let before = fs::metadata(self.at(path)).unwrap();
        let mut content = fs::read(self.at(path)).unwrap();
        content[0] ^= 1;
        fs::write(self.at(path), content).unwrap();
        let file = fs::File::options().write(true).open(self.at(path)).unwrap();
        file.set_modified(before.modified().unwrap()).unwrap();
    }
}

#[test]
fn an_untouched_tree_is_what_its_manifest_says() {
    let scene = Scene::new();
    let manifest = scene.record();
    let totals = manifest.totals();
    assert_eq!((totals.entries, totals.files, totals.without_content), (11, 6, 0));
    let (verified, heard) = scene.verify(&manifest, &Reading::default());
    assert!(heard.is_empty(), "{heard:?}");
    assert_eq!((verified.entries, verified.sound, verified.unread, verified.exit_code()), (11, 6, 0, 0));
    assert_eq!(verified.bytes_read, totals.bytes);
    // Twice from one manifest.
    assert_eq!(scene.verify(&manifest, &Reading::default()).0, verified);
}

#[test]
fn rot_is_told_from_edits() {
    let scene = Scene::new();
    let manifest = scene.record();
    scene.rot("a/one");
    fs::write(scene.at("a/two"), "longer than before").unwrap();
    fs::remove_file(scene.at("a/link")).unwrap();
    std::os::unix::fs::symlink("two", scene.at("a/link")).unwrap();
    fs::remove_dir_all(scene.at("a-b")).unwrap();
    fs::set_permissions(scene.at("top"), fs::Permissions::from_mode(0o600)).unwrap();
    fs::write(scene.at("a/deep/zero"), "x").unwrap();
    let three = fs::File::options().write(true).open(scene.at("a/deep/three")).unwrap();
    three.set_modified(std::time::UNIX_EPOCH).unwrap();

    let (verified, heard) = scene.verify(&manifest, &Reading::default());
    let expected = [
        "missing a-b",
        "attributes top",
        "edited a/link",
        "rot a/one",
        "edited a/two",
        "attributes a/deep/three",
        "new a/deep/zero",
        "missing a-b/four",
    ];
    assert_eq!(heard, expected);
    assert_eq!((verified.rotten, verified.edited, verified.missing, verified.new), (1, 2, 2, 1));
    assert_eq!(verified.exit_code(), 23);
}

#[test]
fn a_share_of_the_files_is_read_and_the_seed_chooses_it() {
    let scene = Scene::new();
    for number in 0..300 {
        fs::write(scene.at(&number.to_string()), "x").unwrap();
    }
    let manifest = scene.record();
    let read = |percent, seed| {
        let (verified, heard) = scene.verify(&manifest, &Reading { percent, seed, ..Reading::default() });
        assert!(heard.is_empty() && verified.sound + verified.unread == 306);
        verified.sound
    };
    assert_eq!((read(0, 1), read(100, 1)), (0, 306));
    assert!((90..216).contains(&read(50, 1)));
    // What one seed leaves out, some other one reads.
    scene.rot("7");
    let finds = |seed| {
        let reading = Reading { percent: 50, seed, ..Reading::default() };
        scene.verify(&manifest, &reading).0.rotten == 1
    };
    assert!((0..32).any(finds) && !(0..32).all(finds));
}

#[test]
fn the_manifest_itself_may_be_in_the_tree() {
    let scene = Scene::new();
    scene.record();
    let inside = scene.at("a/manifest");
    fs::copy(scene.scratch.path().join("manifest"), &inside).unwrap();
    let (_, heard) = scene.verify(&Manifest::open(&inside).unwrap(), &Reading::default());
    assert!(heard.is_empty(), "{heard:?}");
}

#[test]
fn a_directory_that_cannot_be_read_is_not_missing() {
    // Root reads everything.
    if rustix::process::geteuid().is_root() {
        return;
    }
    let scene = Scene::new();
    let manifest = scene.record();
    fs::set_permissions(scene.at("a"), fs::Permissions::from_mode(0o0)).unwrap();
    let (verified, heard) = scene.verify(&manifest, &Reading::default());
    fs::set_permissions(scene.at("a"), fs::Permissions::from_mode(0o755)).unwrap();
    assert_eq!(heard, ["attributes a", "unreadable a"]);
    assert_eq!((verified.unreadable, verified.missing), (1, 0));
}

#[test]
fn a_cancelled_verification_ends() {
    let scene = Scene::new();
    let manifest = scene.record();
    let cancel = CancelToken::new();
    cancel.cancel();
    let error = verify(&scene.tree(), &manifest, &Reading::default(), &crate::Silent, &cancel).unwrap_err();
    assert!(matches!(error, VerifyError::Cancelled), "{error}");
    let error = verify(&scene.at("none"), &manifest, &Reading::default(), &crate::Silent, &cancel);
    assert!(matches!(error, Err(VerifyError::Tree { .. })));
}

#[test]
fn what_a_cancelled_verification_has_read_is_told_and_not_read_again() {
    let scene = Scene::new();
    let manifest = scene.record();
    scene.rot("a/two");
    let cancel = CancelToken::new();
    let max_age = MaxAge::new(Duration::from_secs(1_000_000), scene.scratch.path().join("ages"));
    let (reading, heard) = (Reading::default().max_age(Some(max_age)), Heard::default());
    let mut check = Check {
        reader: Reader::new(&reading, &cancel, &heard),
        ages: ages(&reading, &manifest, &heard).unwrap(),
        observer: &heard,
        verified: Verified::default(),
        batch: Batch::new(),
        records: 0,
        unreadable: Vec::new(),
    };

    // Two files were read, and all others of the batch were not when the work was cancelled.
    let all = || Entries::open(&scene.tree(), &reading).unwrap().map(|found| found.ok().unwrap());
    let was_read = |found: &Found| matches!(found.path.as_bytes(), b"a/one" | b"a/two");
    let mut read: Vec<_> =
        all().map(|found| (check.reader.read(&found), found)).filter(|(_, found)| was_read(found)).collect();
    cancel.cancel();
    read.extend(all().filter(|found| !was_read(found)).map(|found| {
        let is_file = found.metadata.kind == Kind::File;
        let read = check.reader.read(&found);
        assert_eq!(matches!(read, Read::Ended), is_file, "{}", found.path);
        (read, found)
    }));

    let numbered: Vec<_> = manifest.reader().unwrap().map(Result::unwrap).enumerate().collect();
    let of = |found: &Found| numbered.iter().find(|(_, record)| record.path == found.path).unwrap().clone();
    let records = read.iter().map(|(_, found)| of(found)).collect();
    check.judge(read.into_iter().map(|(read, found)| (found, read)).collect(), records);
    check.save_ages(true);
    assert_eq!(check.verified.sound, 1);
    assert_eq!(*heard.0.lock().unwrap(), ["rot a/two"]);

    let (verified, heard) = scene.verify(&manifest, &reading);
    assert_eq!((verified.unread, heard), (1, vec!["rot a/two".to_owned()]), "{verified:?}");
}

#[test]
fn a_file_that_changes_while_it_is_read_is_busy() {
    let scene = Scene::new();
    let _ = scene.record();
    // Listed with one state and read with another: a reader sees this when it opens the file.
    let reading = Reading::default();
    let cancel = CancelToken::new();
    let reader = Reader::new(&reading, &cancel, &crate::Silent);
    let found = Entries::open(&scene.tree(), &reading).unwrap().map(|found| found.ok().unwrap());
    let one = found.into_iter().find(|found| found.path.as_bytes() == b"a/one").unwrap();
    fs::write(scene.at("a/one"), "another").unwrap();
    assert!(matches!(reader.read(&one), Read::Busy));
    fs::remove_file(scene.at("a/one")).unwrap();
    assert!(matches!(reader.read(&one), Read::Busy));
}

/// Panics in one of the callbacks, and counts how often it is called.
struct Panics {
    in_finding: bool,
    calls: Mutex<u32>,
}

impl Panics {
    fn call(&self, is_mine: bool) {
        *self.calls.lock().unwrap() += u32::from(is_mine);
        assert!(!is_mine, "mine");
    }
}

impl VerifyObserver for Panics {
    fn finding(&self, _: &Finding) {
        self.call(self.in_finding);
    }

    fn progress(&self, _: &Progress) {
        self.call(!self.in_finding);
    }
}

#[test]
fn a_panic_of_the_observer_ends_the_verification_and_nothing_else() {
    let scene = Scene::new();
    let manifest = scene.record();
    fs::write(scene.at("new"), "").unwrap();
    fs::write(scene.at("newer"), "").unwrap();
    let cancel = CancelToken::new();

    for in_finding in [true, false] {
        let panics = Panics { in_finding, calls: Mutex::default() };
        let reading = Reading::default();
        let error = verify(&scene.tree(), &manifest, &reading, &panics, &cancel).unwrap_err();
        assert!(matches!(&error, VerifyError::Aborted { message } if message == "mine"), "{error:?}");
        assert!(!cancel.is_cancelled());
        assert_eq!(panics.calls.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner), 1);
    }
}

#[test]
fn one_manifest_serves_many_readers_at_once() {
    let scene = Scene::new();
    // Many times what a reader takes at a go.
    (0..2000).for_each(|number| fs::write(scene.at(&format!("a/file-{number}")), "").unwrap());
    let manifest = scene.record();

    let (one, other) = (manifest.records().unwrap(), manifest.records().unwrap());
    let together = one.zip(other).map(|(one, other)| assert_eq!(one.unwrap(), other.unwrap())).count();
    assert_eq!(together as u64, manifest.totals().entries);

    std::thread::scope(|scope| {
        let verify = || {
            let (tree, manifest) = (scene.tree(), manifest.clone());
            verify(&tree, &manifest, &Reading::default(), &crate::Silent, &CancelToken::new()).unwrap()
        };
        let verified = [scope.spawn(verify), scope.spawn(verify)].map(|thread| thread.join().unwrap());
        assert!(verified.iter().all(|verified| verified.findings() == 0 && verified.sound >= 2000));
    });
}
