use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::PathBuf,
    sync::{Mutex, atomic::AtomicBool},
};

use dsync_fs::{Component, Dir, SourceFile};
use dsync_wire::event::Changes;

use super::*;
use crate::{
    Silent, State, content,
    verify::{MaxAge, batch::BATCH_ENTRIES},
};

/// A tree, and a directory of states beside it.
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
            Difference::Unrecorded => "unrecorded",
            Difference::EditedSince(changes) if *changes == Changes::NONE => "edited",
            Difference::EditedSince(_) => "edited, other size and time:",
            _ => "other",
        };
        self.0.lock().unwrap().push(format!("{word} {}", finding.path.escape_ascii()));
    }
}

/// The content that a run has read of a file.
enum ReadAs {
    /// Its own bytes.
    Itself,
    /// Other bytes: the disk has lost them since, which leaves no trace in any time.
    Other,
}

impl Scene {
    /// Plants files, and waits until the clock has passed their times.
    fn of(files: &[&str]) -> Self {
        let scene = Self { scratch: tempfile::tempdir().unwrap() };
        for dir in ["tree/sub", "state"] {
            fs::create_dir_all(scene.scratch.path().join(dir)).unwrap();
        }
        fs::set_permissions(scene.state_dir(), fs::Permissions::from_mode(0o700)).unwrap();
        files.iter().for_each(|file| fs::write(scene.at(file), file).unwrap());
        scene
    }

    fn tree(&self) -> PathBuf {
        self.scratch.path().join("tree")
    }

    fn state_dir(&self) -> PathBuf {
        self.scratch.path().join("state")
    }

    fn at(&self, path: &str) -> PathBuf {
        self.tree().join(path)
    }

    fn open(&self, path: &str) -> SourceFile {
        let path = self.at(path);
        let dir = Dir::open_operand(path.parent().unwrap()).unwrap();
        dir.open_source(&Component::new(path.file_name().unwrap().as_encoded_bytes()).unwrap()).unwrap()
    }

    /// Records files as a run of a pair does that reads them.
    fn record(&self, pair: &str, files: &[(&str, ReadAs)]) {
        let (state, trouble) = State::open(&self.state_dir(), Some(pair.as_bytes())).unwrap();
        assert!(trouble.is_none(), "{trouble:?}");
        for (file, as_what) in files {
            while !self.open(file).is_settled() {
                std::thread::yield_now();
            }
            let read = |file: &SourceFile| match as_what {
                ReadAs::Itself => content::hash(file, &AtomicBool::new(false)),
                ReadAs::Other => Ok([7; 32]),
            };
            state.content_or(&self.open(file), read).unwrap();
        }
        state.save(false).unwrap();
    }

    fn try_verify(&self, states: &Path, reading: &Reading) -> (Result<Verified, VerifyError>, Vec<String>) {
        let (recorded, unusable) = State::recorded(states);
        assert!(unusable.is_empty(), "{unusable:?}");
        let heard = Heard::default();
        let verified = verify_recorded(&self.tree(), &recorded, reading, &heard, &CancelToken::new());
        (verified, heard.0.into_inner().unwrap())
    }

    fn verify(&self) -> (Verified, Vec<String>) {
        let (verified, heard) = self.try_verify(&self.state_dir(), &Reading::default());
        (verified.unwrap(), heard)
    }
}

#[test]
fn rot_edits_and_files_without_a_record_are_told_apart() {
    let scene = Scene::of(&["grown", "new", "rotten", "sound", "sub/chmodded", "sub/sound"]);
    scene.record("a", &[("sound", ReadAs::Itself), ("rotten", ReadAs::Other), ("grown", ReadAs::Itself)]);
    scene.record("b", &[("sub/sound", ReadAs::Itself), ("sub/chmodded", ReadAs::Other)]);
    fs::write(scene.at("grown"), "longer than before").unwrap();
    fs::set_permissions(scene.at("sub/chmodded"), fs::Permissions::from_mode(0o600)).unwrap();

    let (verified, heard) = scene.verify();
    let expected =
        ["edited, other size and time: grown", "unrecorded new", "rot rotten", "edited sub/chmodded"];
    assert_eq!(heard, expected);
    assert_eq!((verified.entries, verified.sound, verified.rotten), (6, 2, 1));
    assert_eq!((verified.edited_since, verified.unrecorded, verified.unread), (2, 1, 0));
    assert_eq!((verified.findings(), verified.exit_code()), (1, 23));
    assert_eq!(verified.bytes_read, "rotten".len() as u64 + "sound".len() as u64 + "sub/sound".len() as u64);
}

#[test]
fn edits_and_files_without_a_record_are_nothing_wrong() {
    let scene = Scene::of(&["sound", "edited", "new"]);
    scene.record("a", &[("sound", ReadAs::Itself), ("edited", ReadAs::Itself)]);
    fs::write(scene.at("edited"), "another").unwrap();
    let (verified, _) = scene.verify();
    assert_eq!((verified.sound, verified.edited_since, verified.unrecorded), (1, 1, 1));
    assert_eq!((verified.findings(), verified.exit_code()), (0, 0));
}

#[test]
fn a_tree_of_which_nothing_is_recorded_is_not_called_sound() {
    let scene = Scene::of(&["one", "two"]);
    let nothing = |edited: u64| {
        let (verified, heard) = scene.try_verify(&scene.state_dir(), &Reading::default());
        assert!(heard.is_empty(), "{heard:?}");
        assert!(
            matches!(verified, Err(VerifyError::NothingRecorded { edited_since }) if edited_since == edited)
        );
    };
    nothing(0);
    scene.record("a", &[("one", ReadAs::Itself)]);
    fs::write(scene.at("one"), "edited").unwrap();
    nothing(1);
}

#[test]
fn a_state_directory_works_wherever_it_is_copied_to() {
    let scene = Scene::of(&["rotten", "sound"]);
    scene.record("a", &[("sound", ReadAs::Itself), ("rotten", ReadAs::Other)]);
    let copy = scene.scratch.path().join("copy");
    fs::create_dir(&copy).unwrap();
    fs::set_permissions(&copy, fs::Permissions::from_mode(0o700)).unwrap();
    for entry in fs::read_dir(scene.state_dir()).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), copy.join(entry.file_name())).unwrap();
    }
    let (verified, heard) = scene.try_verify(&copy, &Reading::default());
    assert_eq!((verified.unwrap().sound, heard), (1, vec!["rot rotten".to_owned()]));

    // The tree moves within its filesystem: all but its root's name is as it was.
    fs::rename(scene.tree(), scene.scratch.path().join("moved")).unwrap();
    let (recorded, _) = State::recorded(&copy);
    let moved = scene.scratch.path().join("moved");
    let verified =
        verify_recorded(&moved, &recorded, &Reading::default(), &Silent, &CancelToken::new()).unwrap();
    assert_eq!((verified.sound, verified.rotten), (1, 1));
}

#[test]
fn each_name_of_a_file_is_a_file_of_its_content() {
    let scene = Scene::of(&["one", "other"]);
    fs::hard_link(scene.at("one"), scene.at("sub/again")).unwrap();
    fs::hard_link(scene.at("other"), scene.at("sub/more")).unwrap();
    // A run that reads one of the names has recorded the file.
    scene.record("a", &[("one", ReadAs::Itself), ("sub/more", ReadAs::Other)]);
    let (verified, heard) = scene.verify();
    assert_eq!(heard, ["rot other", "rot sub/more"]);
    assert_eq!((verified.entries, verified.sound, verified.rotten), (4, 2, 2));
}

#[test]
fn runs_that_read_other_contents_of_one_version_have_met_rot() {
    let scene = Scene::of(&["file"]);
    scene.record("before", &[("file", ReadAs::Other)]);
    scene.record("after", &[("file", ReadAs::Itself)]);
    assert_eq!(scene.verify().1, ["rot file"]);
}

#[test]
fn a_share_of_the_files_is_read() {
    let scene = Scene::of(&["rotten", "sound", "new"]);
    scene.record("a", &[("sound", ReadAs::Itself), ("rotten", ReadAs::Other)]);
    let (verified, heard) = scene.try_verify(&scene.state_dir(), &Reading::default().percent(0));
    let verified = verified.unwrap();
    assert_eq!((verified.sound, verified.unread, verified.bytes_read), (0, 2, 0));
    assert_eq!(heard, ["unrecorded new"]);
    assert_eq!(verified.exit_code(), 0);
}

#[test]
fn files_that_were_read_lately_are_not_read_again() {
    let scene = Scene::of(&["rotten", "sound", "sub/later"]);
    scene.record("a", &[("sound", ReadAs::Itself), ("rotten", ReadAs::Other)]);
    let max_age = MaxAge::new(std::time::Duration::from_secs(1_000_000), scene.scratch.path().join("ages"));
    let verify = || {
        let reading = Reading::default().max_age(Some(max_age.clone()));
        let (verified, heard) = scene.try_verify(&scene.state_dir(), &reading);
        let verified = verified.unwrap();
        (verified.sound, verified.unread, heard.iter().any(|line| line == "rot rotten"))
    };
    assert_eq!(verify(), (1, 0, true));
    assert_eq!(verify(), (0, 1, true), "rot is read each time");
    // Other runs record more, and the times stay with their records.
    scene.record("b", &[("sub/later", ReadAs::Itself), ("sound", ReadAs::Itself)]);
    assert_eq!(verify(), (1, 1, true));
    assert_eq!(verify(), (0, 2, true));
    let none = Reading::default().max_age(Some(MaxAge::new(std::time::Duration::ZERO, &max_age.file)));
    assert_eq!(scene.try_verify(&scene.state_dir(), &none).0.unwrap().sound, 2);
}

#[test]
fn a_cancelled_verification_keeps_the_times_of_what_it_has_read() {
    /// Cancels at the first finding.
    struct Cancels(CancelToken);

    impl VerifyObserver for Cancels {
        fn finding(&self, _: &Finding) {
            self.0.cancel();
        }
    }

    let scene = Scene::of(&["sound"]);
    for number in 0..BATCH_ENTRIES {
        fs::write(scene.at(&format!("sub/{number}")), "x").unwrap();
    }
    scene.record("a", &[("sound", ReadAs::Itself), ("sub/1", ReadAs::Itself)]);
    let (recorded, _) = State::recorded(&scene.state_dir());
    let max_age = MaxAge::new(std::time::Duration::from_secs(1_000_000), scene.scratch.path().join("ages"));
    let reading = Reading::default().max_age(Some(max_age));
    let cancel = CancelToken::new();
    let cancels = Cancels(cancel.clone());
    let ended = verify_recorded(&scene.tree(), &recorded, &reading, &cancels, &cancel);
    assert!(matches!(ended, Err(VerifyError::Cancelled)));
    let verified = verify_recorded(&scene.tree(), &recorded, &reading, &Silent, &CancelToken::new()).unwrap();
    assert!(verified.unread >= 1 && verified.sound + verified.unread == 2, "{verified:?}");
}

#[test]
fn a_file_that_cannot_be_read_is_not_sound() {
    let recorded = || Standing::Recorded(vec![[1; 32]], 0);
    let failed = Read::Failed(io::Error::other("a bad block"));
    assert!(matches!(difference(recorded(), failed), Some(Difference::Unreadable(_))));
    assert!(matches!(difference(recorded(), Read::Busy), Some(Difference::Busy)));
}

#[test]
fn what_a_cancelled_verification_has_read_is_told() {
    let scene = Scene::of(&["rotten", "sound"]);
    scene.record("a", &[("rotten", ReadAs::Other), ("sound", ReadAs::Itself)]);
    let (recorded, _) = State::recorded(&scene.state_dir());
    let (reading, heard, cancel) = (Reading::default(), Heard::default(), CancelToken::new());
    let mut check = Check {
        reader: Reader::new(&reading, &cancel, &heard),
        ages: None,
        records: Records { recorded: &recorded, filesystems: HashMap::new() },
        observer: &heard,
        verified: Verified::default(),
        batch: Batch::new(),
    };

    let found = Entries::open(&scene.tree(), &reading).unwrap().flatten().filter(is_file);
    let read = found.map(|found| {
        let read = check.reader.read(&found);
        cancel.cancel();
        (found, read)
    });
    let read: Vec<_> = read.collect();
    let standings = read.iter().map(|(found, _)| check.records.standing(found)).collect();
    check.judge(read, standings);
    assert_eq!((check.verified.rotten, check.verified.sound), (1, 0));
    assert_eq!(*heard.0.lock().unwrap(), ["rot rotten"]);
}

#[test]
fn a_cancelled_verification_ends() {
    let scene = Scene::of(&["file"]);
    scene.record("a", &[("file", ReadAs::Itself)]);
    let (recorded, _) = State::recorded(&scene.state_dir());
    let cancel = CancelToken::new();
    cancel.cancel();
    let error = verify_recorded(&scene.tree(), &recorded, &Reading::default(), &Silent, &cancel).unwrap_err();
    assert!(matches!(error, VerifyError::Cancelled), "{error}");
    let gone =
        verify_recorded(&scene.at("none"), &recorded, &Reading::default(), &Silent, &CancelToken::new());
    assert!(matches!(gone, Err(VerifyError::Tree { .. })));
}
