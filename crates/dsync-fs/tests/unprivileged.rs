//! Limits of a user without privileges: directories that may be passed but not read, owners that
//! cannot be set. Runs as root, which drops its rights in the test's own thread.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::disallowed_methods, missing_docs)]

use std::{
    fs, io,
    os::unix::fs::{PermissionsExt, chown},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use dsync_fs::{Component, Dir, Kind, RelPath, Spare, Walk, WalkOperation, WalkOptions, Wanted};
use rustix::{process::Uid, thread::set_thread_res_uid};

const USER: u32 = 65534;

fn name(text: &str) -> Component {
    Component::new(text.as_bytes()).unwrap()
}

fn chmod(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// Runs `test` as another user in a directory that belongs to that user; skips it without root.
fn as_user(prepare: impl FnOnce(&Path), test: impl FnOnce(PathBuf) + Send + 'static) {
    if !dsync_fs::Privileges::current().is_root() {
        eprintln!("skipped: needs root");
        return;
    }
    let scratch = tempfile::tempdir().unwrap();
    chmod(scratch.path(), 0o755);
    let home = scratch.path().join("home");
    fs::create_dir(&home).unwrap();
    prepare(&home);
    chown(&home, Some(USER), None).unwrap();
    let thread = std::thread::spawn(move || {
        // The raw call changes this thread only, and drops its capabilities too.
        let user = Uid::from_raw(USER);
        set_thread_res_uid(user, user, user).unwrap();
        test(home);
    });
    thread.join().unwrap();
}

#[test]
fn directories_without_read_permission_can_be_passed_but_not_listed() {
    as_user(
        |home| {
            fs::create_dir_all(home.join("closed/open")).unwrap();
            fs::write(home.join("closed/open/f"), "text").unwrap();
            chmod(&home.join("closed"), 0o711);
        },
        |home| {
            let closed = Dir::open_operand(&home.join("closed")).unwrap();
            let listing = closed.list();
            assert!(!listing.complete && listing.entries.is_empty());
            assert_eq!(listing.error.unwrap().kind(), io::ErrorKind::PermissionDenied);
            let open = closed.open_child(&name("open")).unwrap();
            assert_eq!(open.open_source(&name("f")).unwrap().len(), 4);
            let root = Dir::open_operand(&home).unwrap();
            assert!(root.open_beneath(&RelPath::parse(b"closed/open").unwrap()).unwrap().list().complete);
            let operand = home.join("closed/open/f");
            let walk = Walk::open(&[&operand], WalkOptions::default()).unwrap();
            assert!(walk.single_file());
        },
    );
}

#[test]
fn what_may_not_be_read_is_a_problem_and_the_rest_is_walked() {
    as_user(
        |home| {
            fs::create_dir_all(home.join("secret/x")).unwrap();
            fs::create_dir_all(home.join("z/y")).unwrap();
            chmod(&home.join("secret"), 0o700);
        },
        |home| {
            let operand = PathBuf::from(format!("{}/", home.display()));
            let options = WalkOptions { recursive: true, ..WalkOptions::default() };
            let dirs: Vec<_> = Walk::open(&[&operand], options).unwrap().collect();
            let paths: Vec<_> = dirs.iter().map(|dir| dir.path.as_bytes().to_vec()).collect();
            assert_eq!(paths, [&b""[..], b"secret", b"z", b"z/y"]);
            let secret = &dirs[1];
            assert!(!secret.complete && dirs[0].complete && dirs[2].complete);
            assert_eq!(secret.problems[0].operation, WalkOperation::ReadDirectory);
            assert_eq!(secret.problems[0].error.kind(), io::ErrorKind::PermissionDenied);
        },
    );
}

#[test]
fn own_directories_get_any_mode_and_read_only_ones_can_be_removed_from_above() {
    as_user(
        |_| {},
        |home| {
            let root = Arc::new(Dir::open_operand(&home).unwrap());
            root.make_dir(&name("d"), 0o700).unwrap();
            for mode in [0o300, 0, 0o311, 0o755] {
                let wanted = Wanted { mode: Some(mode), ..Wanted::default() };
                root.set_attributes(&name("d"), Kind::Dir, &wanted).unwrap();
                assert_eq!(root.stat(&name("d")).unwrap().mode, mode);
            }
            let wanted = Wanted { mode: Some(0o300), ..Wanted::default() };
            let d = root.open_child(&name("d")).unwrap();
            d.set_own_attributes(&wanted).unwrap();
            let d = root.open_child(&name("d")).unwrap();
            d.make_dir(&name("e"), 0o755).unwrap();
            d.set_own_attributes(&Wanted { mode: Some(0o700), ..Wanted::default() }).unwrap();
            d.set_own_attributes(&wanted).unwrap();
            let failed = root.remove_tree(&name("d"), Spare::NOTHING, &mut |_, _| {}).unwrap_err();
            assert_eq!(failed.path.as_bytes(), b"d");
            assert_eq!(failed.source.kind(), io::ErrorKind::PermissionDenied);
        },
    );
}

#[test]
fn removal_goes_on_after_what_stays() {
    as_user(
        |home| {
            fs::create_dir_all(home.join("t/a")).unwrap();
            fs::create_dir_all(home.join("t/foreign")).unwrap();
            fs::write(home.join("t/foreign/f"), "").unwrap();
            fs::write(home.join("t/a/f"), "").unwrap();
            fs::write(home.join("t/z"), "").unwrap();
            for dir in ["t", "t/a"] {
                chown(home.join(dir), Some(USER), None).unwrap();
            }
        },
        |home| {
            let root = Dir::open_operand(&home).unwrap();
            let mut removed = Vec::new();
            let failed = root
                .remove_tree(&name("t"), Spare::NOTHING, &mut |path, _| {
                    removed.push(path.as_bytes().to_vec());
                })
                .unwrap_err();
            assert_eq!(failed.path.as_bytes(), b"t/foreign/f");
            assert_eq!(removed, [&b"t/a/f"[..], b"t/a", b"t/z"]);
        },
    );
}

#[test]
fn directories_of_a_removal_that_ends_early_are_locked_as_before() {
    as_user(
        |home| {
            for path in ["x", "x/ro", "x/ro/deep", "x/ro/deep/a", "x/ro/deep/b"] {
                fs::create_dir(home.join(path)).unwrap();
                chown(home.join(path), Some(USER), None).unwrap();
            }
            for (path, mode) in [("x/ro/deep", 0o500), ("x/ro", 0o555), ("x", 0o100)] {
                chmod(&home.join(path), mode);
            }
        },
        |home| {
            let stopped = AtomicBool::new(false);
            let spare = Spare { unlocks: true, stopped: Some(&stopped), ..Spare::NOTHING };
            let root = Dir::open_operand(&home).unwrap();
            let ended =
                root.remove_tree(&name("x"), spare, &mut |_, _| stopped.store(true, Ordering::Release));
            assert_eq!(ended.unwrap_err().source.kind(), io::ErrorKind::Interrupted);

            let deep = home.join("x/ro/deep");
            for (path, mode) in [(home.join("x"), 0o100), (home.join("x/ro"), 0o555), (deep.clone(), 0o500)] {
                let now = fs::metadata(&path).unwrap().permissions().mode() & 0o777;
                assert_eq!(now, mode, "{}", path.display());
            }
            assert_eq!(
                fs::read_dir(deep).unwrap().count(),
                1,
                "it ended before the first entry or after all"
            );

            // Without an end it is removed, locks and all.
            let spare = Spare { unlocks: true, ..Spare::NOTHING };
            root.remove_tree(&name("x"), spare, &mut |_, _| {}).unwrap();
            assert_eq!(fs::read_dir(home).unwrap().count(), 0);
        },
    );
}
