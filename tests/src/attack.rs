//! An unprivileged user who turns a directory of his into a link and back while others run.

use std::{
    fs,
    os::unix::fs::{lchown, symlink},
    path::Path,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread,
    time::Duration,
};

use rustix::fs::{CWD, RenameFlags, renameat_with};

use crate::{Outcome, compare::survey, run::until_met, tree};

/// The attacker's user.
pub const ATTACKER: u32 = 64_501;

/// Exchanges `dir` with the attacker's link to `outside`, which is made beside it as `flipped`,
/// repeatedly during `runs`, which gets the count.
///
/// # Panics
/// If the link cannot be made.
pub fn while_flipping(dir: &Path, outside: &Path, runs: impl FnOnce(&AtomicU64)) {
    let link = dir.with_file_name("flipped");
    symlink(outside, &link).expect("the attacker's link");
    lchown(&link, Some(ATTACKER), Some(ATTACKER)).expect("its owner");
    let (stop, flips) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Acquire) {
                if renameat_with(CWD, dir, CWD, &link, RenameFlags::EXCHANGE).is_ok() {
                    flips.fetch_add(1, Ordering::AcqRel);
                }
                thread::sleep(Duration::from_micros(300));
            }
        });
        let _stops = Stops(&stop);
        runs(&flips);
    });
}

/// A guard that sets its flag when dropped.
struct Stops<'a>(&'a AtomicBool);

impl Drop for Stops<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// Repeats a run often enough for a race.
///
/// # Panics
/// If a run ends with a code that no attacker explains.
pub fn race(flips: &AtomicU64, mut once: impl FnMut(u64) -> Outcome) {
    let mut runs = 0;
    until_met(|| {
        runs += 1;
        let outcome = once(runs);
        // Refused, also by a server, a failure of one directory, or nothing noticed.
        assert!(matches!(outcome.code(), Some(0 | 1 | 3 | 5 | 11 | 23 | 24 | 42)), "{}", outcome.account());
        (runs >= 8 && flips.load(Ordering::Acquire) >= 500).then_some(())
    });
}

/// Asserts that a tree has no file that begins with `!!`, as those outside do.
///
/// # Panics
/// If it has one.
pub fn assert_nothing_came_in(root: &Path, what: &str) {
    for path in survey(root).keys() {
        let at = tree::at(root, path);
        let is_file = fs::symlink_metadata(&at).is_ok_and(|now| now.is_file());
        let foreign = is_file && fs::read(&at).expect("a file's content").starts_with(b"!!");
        assert!(!foreign, "{what}: {} came from outside", at.display());
    }
}
