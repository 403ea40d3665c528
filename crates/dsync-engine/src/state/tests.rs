use std::{
    fs,
    os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _},
    path::PathBuf,
};

use super::*;
use crate::content;

/// A directory of files and one of states.
struct Place {
    scratch: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        let scratch = tempfile::tempdir().unwrap();
        for dir in ["tree", "state"] {
            fs::create_dir(scratch.path().join(dir)).unwrap();
        }
        fs::set_permissions(scratch.path().join("state"), fs::Permissions::from_mode(0o700)).unwrap();
        Self { scratch }
    }

    fn state_dir(&self) -> PathBuf {
        self.scratch.path().join("state")
    }

    fn file(&self, name: &str) -> PathBuf {
        self.scratch.path().join("tree").join(name)
    }

    /// Returns the file of the only state.
    fn state_file(&self) -> PathBuf {
        let mut files = fs::read_dir(self.state_dir()).unwrap().map(|entry| entry.unwrap().path());
        let file = files.next().unwrap();
        assert!(files.next().is_none(), "one file and nothing beside it");
        file
    }

    fn open(&self) -> State {
        let (state, trouble) = State::open(&self.state_dir(), Some(b"pair")).unwrap();
        assert!(trouble.is_none(), "{trouble:?}");
        state
    }

    fn source(&self, name: &str) -> SourceFile {
        let dir = Dir::open_operand(&self.scratch.path().join("tree")).unwrap();
        dir.open_source(&Component::new(name.as_bytes()).unwrap()).unwrap()
    }

    /// Returns a file's content as a run with this state has it.
    fn content(&self, state: &State, name: &str) -> [u8; 32] {
        let go_on = AtomicBool::new(false);
        state.content_or(&self.source(name), |file| content::hash(file, &go_on)).unwrap()
    }

    /// Writes a file, and waits until the clock has passed the time of that.
    fn plant(&self, name: &str, content: &str) {
        fs::write(self.file(name), content).unwrap();
        self.settle(name);
    }

    fn settle(&self, name: &str) {
        while !self.source(name).is_settled() {
            std::thread::yield_now();
        }
    }

    /// Records the content of these files.
    fn record(&self, names: &[&str]) {
        let state = self.open();
        names.iter().for_each(|name| _ = self.content(&state, name));
        state.save(true).unwrap();
    }

    /// Returns the files that a run knows and reads.
    fn knows(&self, name: &str) -> bool {
        let state = self.open();
        let content = self.content(&state, name);
        assert_eq!(content, hash(&fs::read_to_string(self.file(name)).unwrap()), "{name}");
        state.used().known_files == 1
    }
}

fn hash(content: &str) -> [u8; 32] {
    dsync_delta::ContentHasher::new().update(content.as_bytes()).finish()
}

fn set_mtime(path: &Path, of: &fs::Metadata) {
    fs::File::open(path).unwrap().set_modified(of.modified().unwrap()).unwrap();
}

#[test]
fn a_second_run_reads_nothing_and_writes_nothing() {
    let place = Place::new();
    place.plant("one", "first");
    place.plant("two", "second");
    place.record(&["one", "two"]);
    let written = fs::metadata(place.state_file()).unwrap();

    let state = place.open();
    assert_eq!(place.content(&state, "one"), hash("first"));
    assert_eq!(place.content(&state, "two"), hash("second"));
    let used = StateUse { known_files: 2, known_bytes: 11, read_files: 0, read_bytes: 0 };
    assert_eq!(state.used(), used);
    state.save(true).unwrap();
    assert_eq!(fs::metadata(place.state_file()).unwrap().ino(), written.ino());
    assert_eq!(written.mode() & 0o777, 0o600);
}

#[test]
fn no_edit_is_missed_whatever_becomes_of_the_times() {
    let place = Place::new();
    struct Edit(&'static str, fn(&Path));
    let edits = [
        Edit("content, with its time restored", |path| {
            let before = fs::metadata(path).unwrap();
            fs::write(path, "CONTENT").unwrap();
            set_mtime(path, &before);
        }),
        Edit("another file of its size and time in its place", |path| {
            let before = fs::metadata(path).unwrap();
            let other = path.with_extension("new");
            fs::write(&other, "CONTENT").unwrap();
            set_mtime(&other, &before);
            fs::rename(&other, path).unwrap();
        }),
        Edit("two files changed places", |path| {
            let before = fs::metadata(path).unwrap();
            let (other, spare) = (path.with_extension("other"), path.with_extension("spare"));
            fs::write(&other, "OTHER  ").unwrap();
            set_mtime(&other, &before);
            fs::rename(path, &spare).unwrap();
            fs::rename(&other, path).unwrap();
            fs::rename(&spare, &other).unwrap();
        }),
        Edit("longer", |path| fs::write(path, "content and more").unwrap()),
        Edit("cut short", |path| fs::OpenOptions::new().write(true).open(path).unwrap().set_len(3).unwrap()),
    ];
    for Edit(what, edit) in edits {
        place.plant("file", "content");
        place.record(&["file"]);
        assert!(place.knows("file"), "{what}: known before");
        edit(&place.file("file"));
        // `knows` compares with what is there.
        assert!(!place.knows("file"), "{what}");
    }
}

#[test]
fn a_file_that_is_open_for_writing_is_not_recorded() {
    let place = Place::new();
    place.plant("file", "content");
    let writer = fs::OpenOptions::new().write(true).open(place.file("file")).unwrap();
    place.record(&["file"]);
    assert!(!place.knows("file"));
    drop(writer);
    place.record(&["file"]);
    assert!(place.knows("file"));
}

#[test]
fn a_change_of_this_very_tick_or_of_the_future_is_not_recorded() {
    let place = Place::new();
    for _ in 0..50 {
        fs::write(place.file("file"), "content").unwrap();
        let state = place.open();
        let file = place.source("file");
        let (settled, before) = (file.is_settled(), filesystem_time());
        place.content(&state, "file");
        // Whatever the clock did, what is recorded is older than any later change.
        assert!(!settled || file.stamp().ctime < before);
    }
}

#[test]
fn a_file_that_was_just_written_is_recorded_unless_it_changes_while_it_is_read() {
    let place = Place::new();
    let dir = Dir::open_operand(&place.scratch.path().join("tree")).unwrap();
    let name = Component::new(b"file").unwrap();
    let go_on = AtomicBool::new(false);
    let note = |changes: bool| {
        fs::write(place.file("file"), "content").unwrap();
        let state = place.open();
        state.note_written(&dir, &name, |file| {
            let content = content::hash(file, &go_on);
            if changes {
                fs::write(place.file("file"), "another").unwrap();
            }
            content
        });
        state.save(true).unwrap();
        place.knows("file")
    };
    assert!(!note(true));
    assert!(note(false));

    // One that is gone is no failure.
    fs::remove_file(place.file("file")).unwrap();
    let state = place.open();
    state.note_written(&dir, &name, |_| panic!("nothing is there to read"));
}

#[test]
fn every_changed_byte_and_every_cut_is_noticed() {
    let place = Place::new();
    place.plant("file", "content");
    place.record(&["file"]);
    let path = place.state_file();
    let whole = fs::read(&path).unwrap();
    let refused = |bytes: &[u8], what: &str| {
        fs::write(&path, bytes).unwrap();
        match State::open(&place.state_dir(), Some(b"pair")) {
            Ok((state, trouble)) => {
                assert!(matches!(trouble, Some(StateError::Damaged)), "{what}: {trouble:?}");
                place.content(&state, "file");
                assert_eq!(state.used().known_files, 0, "{what}");
            }
            Err(error) => assert!(matches!(error, StateError::Newer), "{what}: {error}"),
        }
    };

    for at in 0..whole.len() {
        for bit in [0x01, 0x80] {
            let mut bytes = whole.clone();
            bytes[at] ^= bit;
            refused(&bytes, &format!("byte {at}"));
        }
        refused(&whole[..at], &format!("cut at {at}"));
    }
    refused(&[whole.clone(), vec![0]].concat(), "longer");
    // The next run that reads something makes a good one of it.
    let (state, _) = State::open(&place.state_dir(), Some(b"pair")).unwrap();
    place.content(&state, "file");
    state.save(true).unwrap();
    assert!(place.knows("file"));
}

#[test]
fn a_newer_versions_file_stays_and_another_pairs_is_none() {
    let place = Place::new();
    place.plant("file", "content");
    place.record(&["file"]);
    let path = place.state_file();
    let newer = b"dsync-state 4\nwhatever it is";
    let own = fs::read(&path).unwrap();
    fs::write(&path, newer).unwrap();
    assert!(matches!(State::open(&place.state_dir(), Some(b"pair")), Err(StateError::Newer)));
    assert_eq!(fs::read(&path).unwrap(), newer);

    let other =
        path.with_file_name(std::str::from_utf8(format::name_of(b"other").unwrap().as_bytes()).unwrap());
    fs::write(other, own).unwrap();
    let (_, trouble) = State::open(&place.state_dir(), Some(b"other")).unwrap();
    assert!(matches!(trouble, Some(StateError::Damaged)), "{trouble:?}");
}

#[test]
fn nothing_is_known_when_the_clock_went_back() {
    let place = Place::new();
    place.plant("file", "content");
    place.record(&["file"]);
    let earlier = Timestamp { seconds: filesystem_time().seconds - 3600, nanoseconds: 1 };
    let (state, trouble) =
        State::open_at(&place.state_dir(), Some(b"pair"), (earlier, boot_number())).unwrap();
    assert!(matches!(trouble, Some(StateError::ClockWentBack)), "{trouble:?}");
    place.content(&state, "file");
    assert_eq!(state.used().known_files, 0);
}

#[test]
fn nothing_is_known_of_before_the_systems_last_start() {
    let place = Place::new();
    place.plant("file", "content");
    place.record(&["file"]);
    for boot in [Some(1), None] {
        let now = (filesystem_time(), boot);
        let (state, trouble) = State::open_at(&place.state_dir(), Some(b"pair"), now).unwrap();
        assert!(matches!(trouble, Some(StateError::Restarted)), "{trouble:?}");
        place.content(&state, "file");
        assert_eq!(state.used().known_files, 0);
    }
    assert!(place.knows("file"));
}

#[test]
fn what_another_filesystem_has_is_not_known() {
    let place = Place::new();
    place.plant("file", "content");
    place.record(&["file"]);
    let changed = |change: &dyn Fn(&mut Content)| {
        let mut content = format::parse(&fs::read(place.state_file()).unwrap()).unwrap();
        change(&mut content);
        let mut bytes = Vec::new();
        let all: Vec<_> = content.records.iter().collect();
        format::write(b"pair", (content.saved, content.boot), (&content.devices, &all), |piece| {
            bytes.extend(piece);
            Ok(())
        })
        .unwrap();
        fs::write(place.state_file(), bytes).unwrap();
    };
    changed(&|_| {});
    assert!(place.knows("file"));

    // As if the device's number had been given to another filesystem, with that inode and those times.
    changed(&|content| content.records[0].version.key.0 ^= 1);
    assert!(!place.knows("file"));

    // A copy of the disk has another device.
    place.record(&["file"]);
    changed(&|content| content.devices.values_mut().for_each(|device| *device ^= 1));
    let recorded = State::recorded(&place.state_dir()).0;
    assert!(!place.knows("file"));

    // For whoever compares contents with records the device says nothing.
    let file = place.source("file");
    let filesystem = file.stable_filesystem().unwrap().id();
    assert!(matches!(recorded.standing(filesystem, &file.stamp()), Standing::Recorded(..)));

    // One record has one device.
    place.record(&["file"]);
    assert!(place.knows("file"));
}

#[test]
fn files_of_memory_are_read_each_time() {
    let memory = tempfile::tempdir_in("/dev/shm").unwrap();
    fs::write(memory.path().join("file"), "content").unwrap();
    let place = Place::new();
    for _ in 0..2 {
        let state = place.open();
        let file = Dir::open_operand(memory.path()).unwrap();
        let file = file.open_source(&Component::new(b"file").unwrap()).unwrap();
        let go_on = AtomicBool::new(false);
        state.content_or(&file, |file| content::hash(file, &go_on)).unwrap();
        assert_eq!(state.used().read_files, 1);
        state.save(true).unwrap();
    }
    assert_eq!(fs::read_dir(place.state_dir()).unwrap().count(), 0);
}

#[test]
fn what_a_whole_run_met_no_more_is_dropped() {
    let place = Place::new();
    for name in ["one", "two", "three"] {
        place.plant(name, name);
    }
    place.record(&["one"]);
    let state = place.open();
    place.content(&state, "two");
    state.save(false).unwrap();
    assert!(place.knows("one") && place.knows("two"));

    let state = place.open();
    place.content(&state, "two");
    place.content(&state, "three");
    state.save(true).unwrap();
    assert!(!place.knows("one") && place.knows("two") && place.knows("three"));
}

#[test]
fn two_runs_at_once_leave_a_whole_state() {
    let place = Place::new();
    place.plant("one", "first");
    place.plant("two", "second");
    let (here, there) = (place.open(), place.open());
    place.content(&here, "one");
    place.content(&there, "two");
    std::thread::scope(|scope| {
        for state in [&here, &there] {
            scope.spawn(|| state.save(true).unwrap());
        }
    });
    assert!(place.knows("one") != place.knows("two"));
}

#[test]
fn a_directory_that_others_can_write_to_is_refused() {
    let place = Place::new();
    fs::set_permissions(place.state_dir(), fs::Permissions::from_mode(0o770)).unwrap();
    assert!(matches!(State::open(&place.state_dir(), Some(b"pair")), Err(StateError::Shared)));
    fs::set_permissions(place.state_dir(), fs::Permissions::from_mode(0o700)).unwrap();
    place.plant("file", "content");
    place.record(&["file"]);
    fs::set_permissions(place.state_file(), fs::Permissions::from_mode(0o666)).unwrap();
    let (_, trouble) = State::open(&place.state_dir(), Some(b"pair")).unwrap();
    assert!(matches!(trouble, Some(StateError::Shared)), "{trouble:?}");
}

#[test]
fn states_are_listed_cleared_and_bounded_in_number() {
    let place = Place::new();
    place.plant("file", "content");
    for number in 0..format::MAX_PAIRS + 3 {
        let (state, _) = State::open(&place.state_dir(), Some(format!("pair {number}").as_bytes())).unwrap();
        place.content(&state, "file");
        state.save(true).unwrap();
    }
    fs::write(place.state_dir().join("notes"), "of the operator").unwrap();
    fs::write(place.state_dir().join(format!("pair-{}", "0".repeat(32))), "damaged").unwrap();
    let listed = State::list(&place.state_dir()).unwrap();
    let (sound, damaged): (Vec<_>, Vec<_>) = listed.into_iter().partition(Result::is_ok);
    assert_eq!((sound.len(), damaged.len()), (format::MAX_PAIRS, 1));
    assert!(sound.iter().flatten().all(|kept| kept.files == 1 && kept.pair.starts_with(b"pair ")));

    fs::set_permissions(place.state_dir(), fs::Permissions::from_mode(0o777)).unwrap();
    let listed = State::list(&place.state_dir()).unwrap();
    assert!(matches!(listed[0], Err(StateError::Shared)) && listed.len() == format::MAX_PAIRS + 2);
    fs::set_permissions(place.state_dir(), fs::Permissions::from_mode(0o700)).unwrap();
    assert_eq!(State::clear(&place.state_dir()).unwrap(), format::MAX_PAIRS as u64 + 1);
    assert!(State::list(&place.state_dir()).unwrap().is_empty());
    assert_eq!(fs::read_dir(place.state_dir()).unwrap().count(), 1, "what is not ours stays");
    assert!(State::list(&place.scratch.path().join("none")).unwrap().is_empty());
}

/// Opens the directory of the files.
fn tree(place: &Place) -> (Dir, Component) {
    let dir = Dir::open_operand(&place.scratch.path().join("tree")).unwrap();
    (dir, Component::new(b"one").unwrap())
}

#[test]
fn a_content_stays_known_through_changes_of_names_and_attributes() {
    let place = Place::new();
    place.plant("one", "first");
    place.record(&["one"]);
    let (dir, name) = tree(&place);
    let state = place.open();
    // One after another, most of them in one step of the clock.
    for number in 0..3 * 64 {
        state.carry(&dir, &name, || {
            fs::hard_link(place.file("one"), place.file(&format!("link {number}"))).unwrap();
        });
        state.carry(&dir, &name, || {
            set_mtime(&place.file("one"), &fs::metadata(place.file("link 0")).unwrap());
        });
        let name = format!("other {number}");
        place.plant(&name, "other");
        place.content(&state, &name);
        state.carry(&dir, &Component::new(name.as_bytes()).unwrap(), || {
            fs::rename(place.file(&name), place.file("moved")).unwrap();
        });
    }
    state.save(false).unwrap();
    assert!(place.knows("one") && place.knows("link 100") && place.knows("moved"));
}

#[test]
fn nothing_is_kept_where_somebody_may_have_written_meanwhile() {
    let place = Place::new();
    struct Change(&'static str, fn(&Place));
    let changes = [
        Change("written and its time restored", |place| {
            let before = fs::metadata(place.file("one")).unwrap();
            // It waits for the end of the lease, which lasts as long as the change.
            let path = place.file("one");
            let eager = fs::File::options().write(true).custom_flags(O_NONBLOCK).open(&path);
            assert_eq!(eager.unwrap_err().kind(), io::ErrorKind::WouldBlock);
            set_mtime(&path, &before);
        }),
        Change("replaced by another file of the same size and time", |place| {
            let before = fs::metadata(place.file("one")).unwrap();
            fs::write(place.file("two"), "FIRST").unwrap();
            set_mtime(&place.file("two"), &before);
            fs::rename(place.file("two"), place.file("one")).unwrap();
        }),
    ];
    for Change(name, change) in changes {
        place.plant("one", "first");
        place.record(&["one"]);
        let (dir, one) = tree(&place);
        let state = place.open();
        state.carry(&dir, &one, || change(&place));
        state.save(false).unwrap();
        assert!(!place.knows("one"), "{name}");
    }

    // Whoever has it open for writing could write at any time.
    place.plant("one", "first");
    place.record(&["one"]);
    let (dir, one) = tree(&place);
    let writer = fs::File::options().write(true).open(place.file("one")).unwrap();
    let state = place.open();
    state.carry(&dir, &one, || fs::hard_link(place.file("one"), place.file("link")).unwrap());
    state.save(false).unwrap();
    drop(writer);
    assert!(!place.knows("link"));
}

/// The flag of open(2).
const O_NONBLOCK: i32 = 0o4000;
