//! Somebody else changes the tree while it is read, written and removed: nothing outside the root
//! is touched. Each race continues until both sides have won often enough, however busy the machine
//! is.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::disallowed_methods, missing_docs)]

use std::{
    fs, io,
    os::unix::fs::{MetadataExt, symlink},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use dsync_fs::{
    Component, Dir, Durability, Kind, Links, RelPath, Spare, StagedFile, Timestamp, Walk, WalkOptions, Wanted,
};
use rustix::fs::{CWD, RenameFlags, renameat_with};

fn name(text: &str) -> Component {
    Component::new(text.as_bytes()).unwrap()
}

/// A tree beside the root that must not change.
struct Canary {
    root: PathBuf,
    before: Vec<(PathBuf, u32, i64, u64)>,
}

impl Canary {
    fn plant(root: &Path) -> Self {
        fs::create_dir_all(root.join("sub/x")).unwrap();
        for file in ["a", "b", "secret", "sub/c", "sub/x/d"] {
            fs::write(root.join(file), file).unwrap();
        }
        Self { root: root.to_path_buf(), before: Self::look(root) }
    }

    fn look(root: &Path) -> Vec<(PathBuf, u32, i64, u64)> {
        let mut seen = Vec::new();
        let mut todo = vec![root.to_path_buf()];
        while let Some(path) = todo.pop() {
            let metadata = fs::symlink_metadata(&path).unwrap();
            if metadata.is_dir() {
                todo.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
            }
            seen.push((path, metadata.mode(), metadata.mtime(), metadata.ino()));
        }
        seen.sort();
        seen
    }

    fn check(&self) {
        assert_eq!(Self::look(&self.root), self.before, "something outside the root changed");
    }
}

/// A thread that exchanges two names as fast as it can until dropped.
struct Attacker {
    stop: Arc<AtomicBool>,
    flips: Arc<AtomicU64>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Attacker {
    fn flip(a: PathBuf, b: PathBuf) -> Self {
        let (stop, flips) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (stopped, count) = (Arc::clone(&stop), Arc::clone(&flips));
        let thread = thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                let flipped = renameat_with(CWD, &a, CWD, &b, RenameFlags::EXCHANGE).is_ok();
                count.fetch_add(u64::from(flipped), Ordering::Relaxed);
            }
        });
        Self { stop, flips, thread: Some(thread) }
    }

    fn flips(&self) -> u64 {
        self.flips.load(Ordering::Relaxed)
    }
}

impl Drop for Attacker {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = self.thread.take().map(thread::JoinHandle::join);
    }
}

/// Repeats a round until it was a race, as `round` reports.
fn race(mut round: impl FnMut() -> bool) {
    let since = Instant::now();
    while !round() {
        assert!(since.elapsed() < PATIENCE, "no race");
    }
}

/// Longer than any race takes on the busiest machine.
const PATIENCE: Duration = Duration::from_secs(600);

fn is_refusal(error: &io::Error) -> bool {
    use rustix::io::Errno;
    matches!(Errno::from_io_error(error), Some(Errno::NOTDIR | Errno::LOOP))
}

#[test]
fn writes_below_a_directory_that_turns_into_a_link_stay_inside() {
    let scratch = tempfile::tempdir().unwrap();
    let canary = Canary::plant(&scratch.path().join("outside"));
    let tree = scratch.path().join("tree");
    fs::create_dir_all(tree.join("d/sub/x")).unwrap();
    symlink("../outside", tree.join("link")).unwrap();
    let root = Dir::open_operand(&tree).unwrap();
    let attacker = Attacker::flip(tree.join("d"), tree.join("link"));
    let wanted = Wanted {
        mode: Some(0o777),
        mtime: Some(Timestamp { seconds: 1, nanoseconds: 1 }),
        ..Wanted::default()
    };
    let (mut inside, mut refused) = (0u32, 0u32);
    let deep = RelPath::parse(b"d/sub/x").unwrap();
    race(|| {
        for opened in [root.open_child(&name("d")), root.open_beneath(&deep)] {
            match opened {
                Ok(dir) => {
                    inside += 1;
                    let dir = Arc::new(dir);
                    let staged = StagedFile::create(&dir, name("secret")).unwrap();
                    staged.write_all_at(0, b"new").unwrap();
                    staged.prepare(&wanted, None, Durability::None).unwrap().commit().unwrap();
                    dir.make_symlink(&name("a"), b"x", &wanted).unwrap();
                    dir.set_own_attributes(&wanted).unwrap();
                    dir.remove_file(&name("a")).unwrap();
                }
                Err(error) if is_refusal(&error) => refused += 1,
                Err(error) => panic!("{error}"),
            }
        }
        match root.set_attributes(&name("d"), Kind::Dir, &wanted) {
            Ok(_) => inside += 1,
            Err(error) => {
                assert!(dsync_fs::is_wrong_type(&error), "{error}");
                refused += 1;
            }
        }
        assert!(root.open_source(&name("d")).is_err());
        inside > 500 && refused > 500 && attacker.flips() > 10_000
    });
    drop(attacker);
    canary.check();
}

#[test]
fn removal_of_a_tree_whose_directories_turn_into_links_stays_inside() {
    let scratch = tempfile::tempdir().unwrap();
    let canary = Canary::plant(&scratch.path().join("outside"));
    let root = Dir::open_operand(scratch.path()).unwrap();
    let tree = scratch.path().join("tree");
    let attacker = Attacker::flip(tree.join("p/d"), tree.join("p/link"));
    let mut rounds = 0;
    race(|| {
        // The attacker may move the directory while it is being made.
        let _ = fs::create_dir_all(tree.join("p/d/sub/x"));
        for file in ["p/d/a", "p/d/sub/c", "p/d/sub/x/d", "p/z"] {
            if fs::symlink_metadata(tree.join("p/d")).is_ok_and(|metadata| metadata.is_dir()) && file == "p/z"
            {
                let _ = fs::write(tree.join(file), "");
            }
        }
        let _ = symlink("../../outside", tree.join("p/link"));
        thread::sleep(Duration::from_micros(200));
        for _ in 0..10 {
            match root.remove_tree(&name("tree"), Spare::NOTHING, &mut |_, _| {}) {
                Ok(()) => break,
                // An attacker who moves entries can make the removal miss some, but no more than
                // that.
                Err(error) => assert!(error.path.as_bytes().starts_with(b"tree"), "{error:?}"),
            }
        }
        rounds += 1;
        rounds > 500 && attacker.flips() > 500
    });
    drop(attacker);
    canary.check();
    root.remove_tree(&name("tree"), Spare::NOTHING, &mut |_, _| {}).unwrap();
    assert!(!tree.exists());
}

#[test]
fn a_walk_never_lists_what_a_link_leads_to() {
    let scratch = tempfile::tempdir().unwrap();
    let canary = Canary::plant(&scratch.path().join("outside"));
    let tree = scratch.path().join("tree");
    fs::create_dir_all(tree.join("d")).unwrap();
    for file in 0..50 {
        fs::write(tree.join(format!("d/mine{file}")), "").unwrap();
    }
    symlink("../outside", tree.join("link")).unwrap();
    let attacker = Attacker::flip(tree.join("d"), tree.join("link"));
    let mut operand = tree.into_os_string();
    operand.push("/");
    let (mut listed, mut refused) = (0, 0);
    race(|| {
        let options = WalkOptions { recursive: true, ..WalkOptions::default() };
        for dir in Walk::open(&[Path::new(&operand)], options).unwrap().skip(1) {
            refused += dir.problems.len();
            for entry in &dir.entries {
                assert!(entry.name.as_bytes().starts_with(b"mine"), "{entry:?}");
                listed += 1;
            }
        }
        listed > 0 && refused > 0 && attacker.flips() > 10_000
    });
    drop(attacker);
    canary.check();
}

/// The twin of the refusals: the operator's own links are followed.
#[test]
fn an_operand_that_is_a_link_works() {
    let scratch = tempfile::tempdir().unwrap();
    fs::create_dir_all(scratch.path().join("real/sub")).unwrap();
    symlink("real", scratch.path().join("link")).unwrap();
    let dir = Dir::open_operand(&scratch.path().join("link")).unwrap();
    assert!(dir.open_child(&name("sub")).is_ok());
    assert!(Dir::create_destination(&scratch.path().join("link/new"), false, Links::Trusted).is_ok());
    assert!(Dir::create_destination(&scratch.path().join("link/a/b/c"), true, Links::Trusted).is_ok());
    let missing =
        Dir::create_destination(&scratch.path().join("link/x/y"), false, Links::Trusted).unwrap_err();
    assert_eq!(missing.kind(), io::ErrorKind::NotFound);
}

/// Planted, not raced: every kind of step refuses a link.
#[test]
fn planted_links_are_refused_by_every_step() {
    let scratch = tempfile::tempdir().unwrap();
    let canary = Canary::plant(&scratch.path().join("outside"));
    let tree = scratch.path().join("tree");
    fs::create_dir_all(tree.join("real")).unwrap();
    symlink("../outside", tree.join("d")).unwrap();
    symlink("../outside/secret", tree.join("f")).unwrap();
    symlink("../../outside", tree.join("real/d")).unwrap();
    let root = Arc::new(Dir::open_operand(&tree).unwrap());
    let wanted = Wanted { mode: Some(0o777), ..Wanted::default() };
    assert!(is_refusal(&root.open_child(&name("d")).unwrap_err()));
    assert!(is_refusal(&root.open_beneath(&RelPath::parse(b"d/sub").unwrap()).unwrap_err()));
    assert!(is_refusal(&root.open_beneath(&RelPath::parse(b"real/d").unwrap()).unwrap_err()));
    assert!(dsync_fs::is_wrong_type(&root.open_source(&name("f")).unwrap_err()));
    assert!(root.set_attributes(&name("f"), Kind::File, &wanted).is_err());
    assert_eq!(root.stat(&name("f")).unwrap().kind, Kind::Symlink);
    root.remove_tree(&name("real"), Spare::NOTHING, &mut |_, _| {}).unwrap();
    let staged = StagedFile::create(&root, name("f")).unwrap();
    staged.write_all_at(0, b"mine").unwrap();
    staged.prepare(&wanted, None, Durability::File).unwrap().commit().unwrap();
    assert_eq!(root.stat(&name("f")).unwrap().kind, Kind::File);
    canary.check();
}
