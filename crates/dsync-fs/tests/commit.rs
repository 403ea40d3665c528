//! Staging and committing: the old file or the new one, never a mix, never a leftover.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::disallowed_methods, missing_docs)]

use std::{
    fs,
    os::unix::fs::{FileTypeExt, MetadataExt},
    path::Path,
    sync::Arc,
};

use dsync_fs::{
    CommitError, CommitGroup, Component, Dir, Durability, Kind, RelPath, Spare, Special, StagedFile,
    Timestamp, Wanted, is_temp_name,
};

fn name(text: &str) -> Component {
    Component::new(text.as_bytes()).unwrap()
}

fn open(path: &Path) -> Arc<Dir> {
    Arc::new(Dir::open_operand(path).unwrap())
}

fn staged(dir: &Arc<Dir>, target: &str, text: &str) -> StagedFile {
    let file = StagedFile::create(dir, name(target)).unwrap();
    file.write_all_at(0, text.as_bytes()).unwrap();
    file
}

fn names(path: &Path) -> Vec<String> {
    let mut names: Vec<_> =
        fs::read_dir(path).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn a_group_replaces_files_under_every_durability() {
    for (durability, syncs) in [(Durability::Batch, 2), (Durability::File, 6), (Durability::None, 0)] {
        let scratch = tempfile::tempdir().unwrap();
        fs::write(scratch.path().join("f0"), "old").unwrap();
        let dir = open(scratch.path());
        let wanted = Wanted {
            mode: Some(0o4750),
            mtime: Some(Timestamp { seconds: -5, nanoseconds: 123_456_789 }),
            ..Wanted::default()
        };
        let mut group = CommitGroup::new(durability);
        for number in 0..4 {
            let file = staged(&dir, &format!("f{number}"), "new");
            group.add(file.prepare(&wanted, None, durability).unwrap(), number);
        }
        assert_eq!(fs::read(scratch.path().join("f0")).unwrap(), b"old");
        assert_eq!(group.len(), 4);
        let outcomes = group.flush();
        assert!(outcomes.iter().all(|(_, result)| result.is_ok()));
        assert_eq!(outcomes.iter().map(|(tag, _)| *tag).collect::<Vec<_>>(), [0, 1, 2, 3]);
        group.finish().unwrap();
        assert_eq!(group.syncs(), syncs, "{durability:?}");
        assert_eq!(names(scratch.path()), ["f0", "f1", "f2", "f3"]);
        for file in ["f0", "f3"] {
            let metadata = fs::metadata(scratch.path().join(file)).unwrap();
            assert_eq!(fs::read(scratch.path().join(file)).unwrap(), b"new");
            assert_eq!(
                (metadata.mode() & 0o7777, metadata.mtime(), metadata.mtime_nsec()),
                (0o4750, -5, 123_456_789)
            );
        }
    }
}

#[test]
fn dropped_files_leave_nothing_behind() {
    let scratch = tempfile::tempdir().unwrap();
    fs::write(scratch.path().join("f"), "old").unwrap();
    let dir = open(scratch.path());
    let file = staged(&dir, "f", "new");
    let [temp, _] = names(scratch.path()).try_into().unwrap();
    assert!(is_temp_name(temp.as_bytes()));
    assert_eq!(fs::metadata(scratch.path().join(&temp)).unwrap().mode() & 0o7777, 0o600);
    drop(file);
    drop(staged(&dir, "f", "new").prepare(&Wanted::default(), None, Durability::None).unwrap());
    let mut group = CommitGroup::new(Durability::Batch);
    group.add(staged(&dir, "f", "new").prepare(&Wanted::default(), None, Durability::Batch).unwrap(), ());
    drop(group);
    assert_eq!(names(scratch.path()), ["f"]);
    assert_eq!(fs::read(scratch.path().join("f")).unwrap(), b"old");
}

#[test]
fn commit_keeps_the_old_file_when_it_changed_meanwhile() {
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("f");
    fs::write(&path, "old").unwrap();
    let dir = open(scratch.path());
    let basis = dir.open_source(&name("f")).unwrap();
    let prepare = || {
        staged(&dir, "f", "new").prepare(&Wanted::default(), Some(basis.stamp()), Durability::None).unwrap()
    };
    let file = prepare();
    fs::write(&path, "somebody else's").unwrap();
    assert!(!basis.is_unchanged().unwrap());
    assert!(matches!(file.commit(), Err(CommitError::BasisChanged)));
    assert_eq!(fs::read(&path).unwrap(), b"somebody else's");
    let file = prepare();
    fs::remove_file(&path).unwrap();
    assert!(matches!(file.commit(), Err(CommitError::BasisChanged)));
    fs::write(&path, "again").unwrap();
    let basis = dir.open_source(&name("f")).unwrap();
    let file =
        staged(&dir, "f", "new").prepare(&Wanted::default(), Some(basis.stamp()), Durability::None).unwrap();
    file.commit().unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"new");
    assert_eq!(names(scratch.path()), ["f"]);
}

#[test]
fn a_directory_in_the_way_is_a_typed_error() {
    let scratch = tempfile::tempdir().unwrap();
    fs::create_dir_all(scratch.path().join("empty")).unwrap();
    fs::create_dir_all(scratch.path().join("full/x")).unwrap();
    let dir = open(scratch.path());
    for target in ["empty", "full"] {
        let file = staged(&dir, target, "new").prepare(&Wanted::default(), None, Durability::None).unwrap();
        assert!(matches!(file.commit(), Err(CommitError::TargetIsDirectory)));
    }
    assert_eq!(names(scratch.path()), ["empty", "full"]);
}

#[test]
fn names_of_255_bytes_can_be_targets() {
    let scratch = tempfile::tempdir().unwrap();
    let dir = open(scratch.path());
    let target = Component::new(&[0xee; 255]).unwrap();
    let file = StagedFile::create(&dir, target.clone()).unwrap();
    file.prepare(&Wanted::default(), None, Durability::None).unwrap().commit().unwrap();
    dir.make_symlink(&target, b"over a file", &Wanted::default()).unwrap();
    assert_eq!(dir.read_link(&target).unwrap(), b"over a file");
    dir.make_special(&target, Special::Fifo, &Wanted::default()).unwrap();
    assert_eq!(dir.list().entries.len(), 1);
}

#[test]
fn segments_written_in_any_order_by_several_threads_make_the_file() {
    let scratch = tempfile::tempdir().unwrap();
    let dir = open(scratch.path());
    let file = StagedFile::create(&dir, name("big")).unwrap();
    const PART: usize = 100_003;
    let content: Vec<u8> = (0..PART * 8).map(|at| u8::try_from(at % 251).unwrap()).collect();
    std::thread::scope(|scope| {
        for (index, part) in content.chunks(PART).enumerate().rev() {
            let file = &file;
            scope.spawn(move || file.write_all_at((index * PART) as u64, part).unwrap());
        }
    });
    let mut back = vec![0; content.len() + 10];
    assert_eq!(file.read_full_at(0, &mut back).unwrap(), content.len());
    assert_eq!(&back[..content.len()], content);
}

#[test]
fn holes_stay_holes() {
    const MIB: u64 = 1 << 20;
    let scratch = tempfile::tempdir().unwrap();
    let dir = open(scratch.path());
    let file = StagedFile::create(&dir, name("sparse")).unwrap();
    file.set_len(64 * MIB).unwrap();
    file.write_all_at(8 * MIB, &[1; 1 << 20]).unwrap();
    file.write_all_at(16 * MIB, &[2; 2 << 20]).unwrap();
    file.punch_hole(16 * MIB, MIB).unwrap();
    file.punch_hole(0, 0).unwrap();
    file.prepare(&Wanted::default(), None, Durability::None).unwrap().commit().unwrap();
    let file = dir.open_source(&name("sparse")).unwrap();
    assert_eq!(file.len(), 64 * MIB);
    assert!(file.metadata().blocks * 512 <= 4 * MIB);
    let mut byte = [9; 1];
    assert_eq!(file.read_at(16 * MIB, &mut byte).unwrap(), 1);
    assert_eq!(byte, [0]);
    assert_eq!(file.next_data(0).unwrap(), Some(8 * MIB));
    assert_eq!(file.next_hole(8 * MIB).unwrap(), 9 * MIB);
    assert_eq!(file.next_data(9 * MIB).unwrap(), Some(17 * MIB));
    assert_eq!(file.next_data(20 * MIB).unwrap(), None);
    assert_eq!(file.next_hole(100 * MIB).unwrap(), 64 * MIB);
    file.advise_sequential();
}

#[test]
fn links_and_specials_get_their_attributes_and_replace_what_was_there() {
    let scratch = tempfile::tempdir().unwrap();
    let dir = open(scratch.path());
    let wanted = Wanted {
        mode: Some(0o640),
        mtime: Some(Timestamp { seconds: 1_000_000_000, nanoseconds: 7 }),
        ..Wanted::default()
    };
    for text in [&b"one"[..], b"/absolute/../two", &[b'x'; 4095], b"\xff\xfe\n"] {
        dir.make_symlink(&name("link"), text, &wanted).unwrap();
        assert_eq!(dir.read_link(&name("link")).unwrap(), text);
        assert_eq!(dir.stat(&name("link")).unwrap().mtime, wanted.mtime.unwrap());
    }
    assert!(dir.make_symlink(&name("link"), &[b'x'; 4096], &wanted).is_err());
    assert!(dir.make_symlink(&name("link"), b"", &wanted).is_err());
    for (special, kind) in [(Special::Fifo, Kind::Fifo), (Special::Socket, Kind::Socket)] {
        dir.make_special(&name("link"), special, &wanted).unwrap();
        let metadata = dir.stat(&name("link")).unwrap();
        assert_eq!((metadata.kind, metadata.mode, metadata.mtime), (kind, 0o640, wanted.mtime.unwrap()));
    }
    let device = dsync_fs::DeviceNumber { major: 1, minor: 3 };
    match dir.make_special(&name("null"), Special::CharDevice(device), &wanted) {
        Ok(_) => {
            let metadata = dir.stat(&name("null")).unwrap();
            assert_eq!((metadata.kind, metadata.rdev, metadata.mode), (Kind::CharDevice, device, 0o640));
            assert!(fs::metadata(scratch.path().join("null")).unwrap().file_type().is_char_device());
            dir.remove_file(&name("null")).unwrap();
        }
        Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::PermissionDenied),
    }
    dir.make_dir(&name("dir"), 0o700).unwrap();
    assert!(dir.make_symlink(&name("dir"), b"x", &wanted).is_err());
    assert!(dsync_fs::is_wrong_type(&dir.open_source(&name("link")).unwrap_err()));
    assert_eq!(names(scratch.path()), ["dir", "link"]);
}

#[test]
fn directories_get_their_attributes_whatever_their_mode_is() {
    let scratch = tempfile::tempdir().unwrap();
    let dir = open(scratch.path());
    dir.make_dir(&name("d"), 0o700).unwrap();
    for mode in [0, 0o2755, 0o1777, 0o500] {
        let wanted = Wanted {
            mode: Some(mode),
            mtime: Some(Timestamp { seconds: 5, nanoseconds: 5 }),
            ..Wanted::default()
        };
        dir.set_attributes(&name("d"), Kind::Dir, &wanted).unwrap();
        let metadata = dir.stat(&name("d")).unwrap();
        assert_eq!((metadata.mode, metadata.mtime), (mode, wanted.mtime.unwrap()));
    }
    let wanted = Wanted { mode: Some(0o711), ..Wanted::default() };
    dir.open_child(&name("d")).unwrap().set_own_attributes(&wanted).unwrap();
    assert_eq!(dir.stat(&name("d")).unwrap().mode, 0o711);
    assert!(dsync_fs::is_wrong_type(&dir.set_attributes(&name("d"), Kind::File, &wanted).unwrap_err()));
}

#[test]
fn owners_are_set_before_the_mode_so_that_setuid_bits_stay() {
    if !dsync_fs::Privileges::current().is_root() {
        eprintln!("skipped: needs root");
        return;
    }
    let scratch = tempfile::tempdir().unwrap();
    let dir = open(scratch.path());
    let wanted = Wanted { mode: Some(0o6755), uid: Some(12345), gid: Some(54321), ..Wanted::default() };
    let file = staged(&dir, "f", "x").prepare(&wanted, None, Durability::None).unwrap();
    file.commit().unwrap();
    dir.make_symlink(&name("l"), b"f", &wanted).unwrap();
    for (entry, mode) in [("f", 0o6755), ("l", 0o777)] {
        let metadata = dir.stat(&name(entry)).unwrap();
        assert_eq!((metadata.uid, metadata.gid, metadata.mode), (12345, 54321, mode), "{entry}");
    }
    let wanted = Wanted { uid: Some(1), ..wanted };
    dir.set_attributes(&name("f"), Kind::File, &wanted).unwrap();
    assert_eq!(dir.stat(&name("f")).unwrap().mode, 0o6755);
}

#[test]
fn a_lock_keeps_the_second_run_out_until_it_is_dropped() {
    let scratch = tempfile::tempdir().unwrap();
    let (first, second) = (open(scratch.path()), open(scratch.path()));
    let held = first.try_lock().unwrap().unwrap();
    assert!(second.try_lock().unwrap().is_none());
    assert!(first.try_lock().unwrap().is_none());
    drop(held);
    assert!(second.try_lock().unwrap().is_some());
}

#[test]
fn removed_entries_are_visited_children_first_and_as_the_dry_run_said() {
    let scratch = tempfile::tempdir().unwrap();
    for dir in ["t/a/b", "t/a/c", "t/z"] {
        fs::create_dir_all(scratch.path().join(dir)).unwrap();
    }
    for file in ["t/a/b/1", "t/a-", "t/z/2", "keep"] {
        fs::write(scratch.path().join(file), "").unwrap();
    }
    let dir = open(scratch.path());
    let (mut planned, mut removed) = (Vec::new(), Vec::new());
    dir.list_tree(&name("t"), Spare::NOTHING, &mut |path, kind| planned.push((path.clone(), kind))).unwrap();
    dir.remove_tree(&name("t"), Spare::NOTHING, &mut |path, kind| removed.push((path.clone(), kind)))
        .unwrap();
    assert_eq!(planned, removed);
    let paths: Vec<_> =
        removed.iter().map(|(path, _)| std::str::from_utf8(path.as_bytes()).unwrap()).collect();
    assert_eq!(paths, ["t/a/b/1", "t/a/b", "t/a/c", "t/a", "t/a-", "t/z/2", "t/z", "t"]);
    assert_eq!(names(scratch.path()), ["keep"]);
    let mut visited = 0;
    dir.remove_tree(&name("keep"), Spare::NOTHING, &mut |_, _| visited += 1).unwrap();
    dir.remove_tree(&name("keep"), Spare::NOTHING, &mut |_, _| visited += 1).unwrap();
    assert_eq!(visited, 1);
}

#[test]
fn what_is_kept_keeps_its_directories() {
    let scratch = tempfile::tempdir().unwrap();
    let base = Dir::open_operand(scratch.path()).unwrap();
    let at = |path: &str| scratch.path().join(path);
    fs::create_dir_all(at("tree/full/deep")).unwrap();
    fs::create_dir_all(at("tree/other")).unwrap();
    fs::write(at("tree/full/deep/kept.o"), "").unwrap();
    fs::write(at("tree/full/gone"), "").unwrap();
    let entries = |path: &RelPath, _: Kind| path.as_bytes().ends_with(b".o");
    let spare = Spare { entries: &entries, ..Spare::NOTHING };
    for dry_run in [true, false] {
        let mut removed = Vec::new();
        let mut visit = |path: &RelPath, _: Kind| removed.push(path.as_bytes().to_vec());
        if dry_run {
            base.list_tree(&name("tree"), spare, &mut visit).unwrap();
        } else {
            base.remove_tree(&name("tree"), spare, &mut visit).unwrap();
        }
        assert_eq!(removed, [b"tree/full/gone".to_vec(), b"tree/other".to_vec()]);
    }
    assert!(at("tree/full/deep/kept.o").exists() && !at("tree/other").exists());
}
