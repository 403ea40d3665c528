//! The filter rules at the destination's end: those of the command, and those of the files that it
//! has looked for in the destination's own directories.
//!
//! Files of rules are read on the way down and kept until another branch is asked about, so that a
//! directory is judged by one set of rules even while its files of rules change or go. A file that
//! cannot be followed protects all that is in its directory and below, and is reported.

use std::{
    io::ErrorKind,
    mem,
    sync::{Arc, Mutex},
};

use dsync_fs::{
    Component, Dir, FilterSet, RelPath, RuleFileError, RuleFileFault, Scope, Subject, is_no_directory,
};
use dsync_wire::{
    budget::{Budget, Held, Share},
    message::{Cause, Operation, Problem},
    ruling::RulePlace,
};

use super::{Site, site::cause};
use crate::{SyncError, halt::lock};

/// The rules that protect entries of the destination.
pub(super) struct LocalRules {
    /// The rules before any file of rules is read.
    top: Scope,
    /// The destination's root; none where it does not exist.
    root: Option<Arc<Dir>>,
    /// Whether only named entries of the root take part, so that its own files say nothing.
    named: bool,
    budget: Arc<Budget>,
    /// The directories on the way to the one that was asked about last, the root first.
    levels: Mutex<Vec<Level>>,
    problems: Arc<Mutex<Vec<Problem>>>,
}

/// A directory with the rules in force in it.
struct Level {
    name: Vec<u8>,
    /// None where they are not known.
    scope: Option<Scope>,
    _held: Option<Held>,
}

/// The verdict of the rules on an entry of the destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Protected {
    Yes,
    No,
    /// No rule decides.
    Undecided,
}

impl LocalRules {
    pub(super) fn new(
        filter: &FilterSet,
        root: Option<&Arc<Dir>>,
        named: bool,
        budget: &Arc<Budget>,
    ) -> Self {
        Self {
            top: Scope::begin(filter, root, named),
            root: root.cloned(),
            named,
            budget: Arc::clone(budget),
            levels: Mutex::default(),
            problems: Arc::default(),
        }
    }

    /// Returns whether files of rules are looked for.
    pub(super) fn reads_files(&self) -> bool {
        self.top.reads_files()
    }

    /// Reads the files of rules on the way to a directory, unless it did already.
    pub(super) fn enter(&self, directory: &RelPath) {
        if self.reads_files() {
            self.descend(&mut lock(&self.levels), directory);
        }
    }

    /// Forgets what was read.
    pub(super) fn begin_anew(&self) {
        lock(&self.levels).clear();
    }

    /// Judges an entry; `perishing` in a directory that is being removed.
    pub(super) fn judge(&self, path: &RelPath, is_dir: bool, perishing: bool) -> Protected {
        let subject = Subject { path: path.as_bytes(), is_dir, perishing };
        let judge = |scope: &Scope| match scope.verdict(subject) {
            Some(verdict) if verdict.include => Protected::No,
            Some(_) => Protected::Yes,
            None => Protected::Undecided,
        };
        self.in_force(path, judge).unwrap_or(Protected::Yes)
    }

    /// Returns the place of the rule that protects an entry; `None` where none does.
    pub(super) fn place_of(&self, path: &RelPath, is_dir: bool, perishing: bool) -> Option<RulePlace> {
        let subject = Subject { path: path.as_bytes(), is_dir, perishing };
        let verdict = self.in_force(path, |scope| scope.verdict(subject)).flatten();
        verdict.filter(|verdict| !verdict.include).map(|verdict| crate::rules::place(&verdict.origin))
    }

    /// Asks the rules in force where a path is; `None` where they are not known.
    fn in_force<T>(&self, path: &RelPath, ask: impl FnOnce(&Scope) -> T) -> Option<T> {
        if !self.reads_files() {
            return Some(ask(&self.top));
        }
        let mut levels = lock(&self.levels);
        let directory = path.parent().unwrap_or_else(RelPath::root);
        self.descend(&mut levels, &directory);
        levels.last().and_then(|level| level.scope.as_ref()).map(ask)
    }

    /// Reports the files that could not be followed.
    pub(super) fn tell(&self, site: &Site<'_>) -> Result<(), SyncError> {
        let problems = mem::take(&mut *lock(&self.problems));
        problems.into_iter().try_for_each(|problem| site.account.problem(problem))
    }

    fn descend(&self, levels: &mut Vec<Level>, directory: &RelPath) {
        let steps: Vec<_> = directory.components().collect();
        let known =
            levels.iter().skip(1).zip(&steps).take_while(|(level, step)| level.name == **step).count();
        levels.truncate(known + 1);
        if levels.is_empty() {
            let root = self.root.as_ref().filter(|_| !self.named);
            levels.push(self.level(&self.top, b"", root.map(|root| Ok(Arc::clone(root))), &RelPath::root()));
        }

        let mut path = RelPath::root();
        for (at, step) in steps.iter().enumerate() {
            if let Ok(name) = Component::new(step) {
                path.push(&name);
            }
            if at < known {
                continue;
            }
            let level = match levels.last().and_then(|above| above.scope.as_ref()) {
                Some(above) => {
                    let dir = self.root.as_ref().map(|root| root.open_beneath(&path).map(Arc::new));
                    self.level(above, step, dir, &path)
                }
                None => Level { name: step.to_vec(), scope: None, _held: None },
            };
            levels.push(level);
        }
    }

    /// Reads the files of rules of one directory.
    fn level(
        &self,
        above: &Scope,
        name: &[u8],
        dir: Option<std::io::Result<Arc<Dir>>>,
        path: &RelPath,
    ) -> Level {
        let entered = match dir {
            None => Ok(above.below()),
            // Only a directory has rules; in a dry run it may not be there yet.
            Some(Err(error)) if error.kind() == ErrorKind::NotFound || is_no_directory(&error) => {
                Ok(above.below())
            }
            Some(Err(error)) => {
                let path = path.as_bytes().to_vec();
                Err(RuleFileError { path, fault: RuleFileFault::Read(error) })
            }
            Some(Ok(dir)) => above.enter(&dir, path),
        };

        let held = entered.and_then(|scope| {
            let own = scope.text_bytes().saturating_sub(above.text_bytes()) as u64;
            match self.budget.take(Share::Paths, own * BYTES_OF_TEXT) {
                Ok(held) => Ok((scope, held)),
                Err(_) => {
                    Err(RuleFileError { path: path.as_bytes().to_vec(), fault: RuleFileFault::TooMuch })
                }
            }
        });
        match held {
            Ok((scope, held)) => Level { name: name.to_vec(), scope: Some(scope), _held: Some(held) },
            Err(error) => {
                let cause = cause_of(&error.fault);
                lock(&self.problems).push(Problem::new(Operation::ReadRules, error.path, cause));
                Level { name: name.to_vec(), scope: None, _held: None }
            }
        }
    }
}

/// Each user has its own way down, so that none makes another forget; problems are shared.
impl Clone for LocalRules {
    fn clone(&self) -> Self {
        Self {
            top: self.top.clone(),
            root: self.root.clone(),
            named: self.named,
            budget: Arc::clone(&self.budget),
            levels: Mutex::default(),
            problems: Arc::clone(&self.problems),
        }
    }
}

fn cause_of(fault: &RuleFileFault) -> Cause {
    match fault {
        RuleFileFault::Read(error) => cause(error),
        fault => crate::rules::cause(fault),
    }
}

/// Bytes of memory for a byte of a file of rules: a token for each byte of a pattern, and what
/// holds a rule of two bytes.
const BYTES_OF_TEXT: u64 = 64;
