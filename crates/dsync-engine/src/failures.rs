//! The paths of a run's failures, in a form that takes a bounded part of memory.

use std::sync::{
    Mutex,
    atomic::{AtomicBool, Ordering},
};

use dsync_fs::{Naming, OperandPaths, PathSorter, RelPath, SpoolError, SpoolHome};
use dsync_wire::message::{Cause, Operation, Problem};

use crate::halt::lock;

/// Collects the paths of entries that failed.
pub(crate) struct Failures {
    home: SpoolHome,
    paths: Mutex<PathSorter>,
    has_root: AtomicBool,
}

/// The paths of entries that failed.
#[derive(Debug)]
pub(crate) struct Failed {
    paths: OperandPaths,
    has_root: bool,
}

impl Failures {
    /// Makes an empty list that grows into `home`.
    pub(crate) fn new(home: &SpoolHome) -> Self {
        let paths = Mutex::new(PathSorter::new(home));
        Self { home: home.clone(), paths, has_root: AtomicBool::new(false) }
    }

    /// Notes a problem, if it is a failure of an entry of the destination.
    pub(crate) fn note(&self, problem: &Problem) -> Result<(), SpoolError> {
        if problem.cause == Cause::Skipped || problem.operation == Operation::RemoveSource {
            return Ok(());
        }
        // Whatever is no path below the root is no entry of it.
        let Ok(path) = RelPath::parse(&problem.path) else { return Ok(()) };
        if path.is_root() {
            self.has_root.store(true, Ordering::Relaxed);
            return Ok(());
        }
        lock(&self.paths).push(&path, 0, Naming::Entry)
    }

    /// Returns the list as it stands, and begins another one.
    pub(crate) fn take(&self) -> Result<Failed, SpoolError> {
        let paths = std::mem::replace(&mut *lock(&self.paths), PathSorter::new(&self.home)).seal()?;
        Ok(Failed { paths, has_root: self.has_root.load(Ordering::Relaxed) })
    }
}

impl Failed {
    /// Returns whether the entry of this path has failed.
    pub(crate) fn has(&self, path: &RelPath) -> bool {
        if path.is_root() { self.has_root } else { self.paths.standing(path.as_bytes()).named }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_has_failed_if_it_is_told_of_and_no_other_has() {
        let failures = Failures::new(&SpoolHome::default());
        let note = |operation, path: &str, cause| {
            failures.note(&Problem::new(operation, path, cause)).unwrap();
        };
        note(Operation::Commit, "a/b", Cause::Os(21));
        note(Operation::ReadFile, "c", Cause::Vanished);
        note(Operation::ReadFile, "d", Cause::Skipped);
        note(Operation::RemoveSource, "e", Cause::Changed);
        note(Operation::Stat, "../f", Cause::Os(2));
        let failed = failures.take().unwrap();
        let has = |path: &str| failed.has(&RelPath::parse(path.as_bytes()).unwrap());
        assert_eq!(
            ["a/b", "c", "a", "a/b/x", "d", "e", "f"].map(has),
            [true, true, false, false, false, false, false]
        );
        assert!(!failed.has(&RelPath::root()));
        note(Operation::SetAttributes, "", Cause::Os(1));
        let failed = failures.take().unwrap();
        assert!(failed.has(&RelPath::root()));
    }
}
