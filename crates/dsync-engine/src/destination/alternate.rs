//! Files of other directories that the destination may use instead of the source's (`--link-dest`
//! and its like).
//!
//! The directories are the operator's own paths; below them every step is one component without
//! links, as in the destination. The law: an entry is taken from there only when everything that
//! the run compares is equal, by the same rules as those for an old file in the destination itself.

use std::{
    ffi::{OsStr, OsString},
    io,
    os::unix::ffi::{OsStrExt, OsStringExt},
    path::Path,
    sync::Arc,
};

use dsync_fs::{Component, Dir, Kind, Metadata, RelPath, Timestamp};
use dsync_wire::{
    event::{Action, Changes},
    message::{Cause, Entry, Operation, Problem},
    options::{AlternateUse, Alternates as Options},
};

use super::{Site, planner::Here};
use crate::{
    SyncError,
    error::PathRole,
    footprint::from_missing,
    plan::{Decision, Mapped, file_type, file_type_of},
};

/// The alternate directories of a run.
pub(super) struct Alternates {
    pub(super) way: AlternateUse,
    roots: Vec<Dir>,
    /// The roots' paths as they were given.
    named: Vec<Vec<u8>>,
    /// Those that do not exist, as they were given.
    missing: Vec<Vec<u8>>,
}

/// The directories that may hold entries of one directory.
#[derive(Default)]
pub(super) struct Level(Vec<Arc<Dir>>);

/// The entry of an alternate directory that stands for one of the source's.
pub(super) struct Alternate {
    pub(super) dir: Arc<Dir>,
    pub(super) metadata: Metadata,
    /// The decision for it, with the differences.
    pub(super) decision: Box<Decision>,
    /// Whether the destination itself has the same content.
    pub(super) adds_nothing: bool,
    /// The decision without this alternate, for an old file that may stay where this entry cannot take its
    /// place.
    pub(super) own: Option<Box<Decision>>,
    /// The access time that an equal file gets: the source's, if it has another.
    pub(super) access_time: Option<Timestamp>,
}

/// Opens a directory; a relative path starts at `below`, which need not exist, in `base`.
fn open(base: &Dir, below: &Path, path: &Path) -> io::Result<Dir> {
    if below.as_os_str().is_empty() {
        base.open_operand_here(path)
    } else {
        base.open_operand_above(&from_missing(below, path))
    }
}

/// Returns whether no other directory than the destination is where a missing one should be: a script
/// that makes a row of copies and links to the last one has made none yet.
fn is_first(base: &Dir, below: &Path, path: &Path) -> bool {
    let above = path.parent().filter(|above| !above.as_os_str().is_empty()).unwrap_or_else(|| Path::new("."));
    let above = match open(base, below, above) {
        Ok(above) => above,
        // It is where the destination will be made.
        Err(error) => return error.kind() == io::ErrorKind::NotFound && path.is_relative(),
    };
    let destination = base.metadata().ok().filter(|_| below.as_os_str().is_empty());
    let is_destination = |entry: &Metadata| {
        destination.as_ref().is_some_and(|own| (own.dev, own.ino) == (entry.dev, entry.ino))
    };
    let is_other = |entry: &Metadata| entry.kind == Kind::Dir && !is_destination(entry);
    !above.list().entries.iter().flat_map(|(_, entry)| entry).any(is_other)
}

impl Alternates {
    /// Opens the directories; one of several that does not exist has nothing, as with rsync, and
    /// neither has the destination itself. Relative ones start at `below`, which need not exist, in
    /// `base`.
    ///
    /// # Errors
    ///
    /// [`SyncError::AlternatesMissing`] where none exists, and this is not the first of a row of copies: a
    /// name that is wrong would cost a whole copy unnoticed.
    pub(super) fn open(options: &Options, base: &Dir, below: &Path) -> Result<Self, SyncError> {
        let (mut roots, mut named, mut missing) = (Vec::new(), Vec::new(), Vec::new());
        let is_own = |dir: &Dir| below.as_os_str().is_empty() && dir.is_same(base).unwrap_or(false);
        for dir in &options.dirs {
            let path = Path::new(OsStr::from_bytes(dir));
            match open(base, below, path) {
                Ok(opened) if is_own(&opened) => {}
                Ok(opened) => {
                    roots.push(opened);
                    named.push(dir.clone());
                }
                Err(error) if error.kind() == io::ErrorKind::NotFound => missing.push(dir.clone()),
                Err(source) => {
                    let role = PathRole::Alternate(options.way);
                    return Err(SyncError::of_path(role, path, source, |path, source| {
                        SyncError::DirectoryUnusable { role, path, source }
                    }));
                }
            }
        }

        let is_first = |dir: &Vec<u8>| is_first(base, below, Path::new(OsStr::from_bytes(dir)));
        if roots.is_empty() && !missing.is_empty() && !missing.iter().all(is_first) {
            let paths = missing.into_iter().map(|path| OsString::from_vec(path).into()).collect();
            return Err(SyncError::AlternatesMissing { way: options.way, paths });
        }
        Ok(Self { way: options.way, roots, named, missing })
    }

    /// Tells of each directory that does not exist: all that it was to have is copied again.
    pub(super) fn tell_missing(&self, site: &Site<'_>) -> Result<(), SyncError> {
        let problem = |path: &Vec<u8>| Problem::new(Operation::ReadBasis, path.as_slice(), Cause::Skipped);
        self.missing.iter().try_for_each(|path| site.account.problem(problem(path)))
    }

    /// Returns the directories themselves.
    pub(super) fn roots(&self) -> impl Iterator<Item = &Dir> {
        self.roots.iter()
    }

    /// Returns the directories with their paths as they were given.
    pub(super) fn named_roots(&self) -> impl Iterator<Item = (&[u8], &Dir)> {
        self.named.iter().map(Vec::as_slice).zip(&self.roots)
    }

    /// Opens the directories that stand for a directory of the destination.
    pub(super) fn level(&self, path: &RelPath) -> Level {
        Level(self.roots.iter().filter_map(|root| root.open_beneath(path).ok()).map(Arc::new).collect())
    }

    /// Returns the decision for an entry that an alternate directory has, in view of the
    /// destination's own entry; `None` when the alternate does not matter.
    ///
    /// An old entry of the destination gives way to an equal file of an alternate, as with rsync,
    /// unless that would only be copied over another file.
    pub(super) fn decision(&self, found: &Alternate, existing: Option<&Metadata>) -> Option<Decision> {
        let mut decision = (*found.decision).clone();
        let equal = decision.action == Action::Keep;
        let is_file = found.metadata.kind == Kind::File;
        if let Some(existing) = existing {
            let same_inode = (existing.dev, existing.ino) == (found.metadata.dev, found.metadata.ino);
            let stands =
                existing.kind == Kind::File && (!equal || self.way == AlternateUse::Copy || same_inode);
            if !is_file || stands {
                return None;
            }
        }
        decision.action = match (decision.action, self.way) {
            (Action::Keep, AlternateUse::Compare) if found.metadata.kind != Kind::Dir => Action::Keep,
            (Action::Keep, AlternateUse::Link) if found.metadata.kind != Kind::Dir => Action::Link,
            (Action::Keep | Action::Retag, _) => Action::Reuse,
            (other, _) => other,
        };
        decision.placed = decision.action != Action::Keep;
        Some(decision)
    }
}

impl Level {
    /// Returns the directories.
    pub(super) fn dirs(&self) -> impl Iterator<Item = &Arc<Dir>> {
        self.0.iter()
    }

    /// Returns whether an entry of this name is the inode that `is_it` knows.
    pub(super) fn has_name_of(&self, name: &Component, is_it: impl Fn(&Metadata) -> bool) -> bool {
        self.0.iter().any(|dir| dir.stat(name).is_ok_and(|other| other.nlink > 1 && is_it(&other)))
    }

    /// Returns whether an entry of the destination is one of these directories' as well, by a hard link.
    pub(super) fn has(&self, name: &Component, existing: &Metadata) -> bool {
        let is_same = |other: Metadata| (other.dev, other.ino) == (existing.dev, existing.ino);
        let is_linked = existing.kind != Kind::Dir && existing.nlink > 1;
        is_linked && self.0.iter().any(|dir| dir.stat(name).is_ok_and(is_same))
    }

    /// Returns the most similar entry of that name and type: the first without a difference, else
    /// the first of equal content, else the first.
    pub(super) fn find(
        &self,
        site: &Site<'_>,
        entry: &Entry,
        mapped: &Mapped,
        name: &Component,
    ) -> Option<Alternate> {
        let mut best: Option<Alternate> = None;
        for dir in &self.0 {
            let Ok(metadata) = dir.stat(name) else { continue };
            if Some(file_type_of(metadata.kind)) != file_type(&entry.kind) {
                continue;
            }

            let contents = site.session.contents();
            let here = Here { dir: Some(dir), name: Some(name), within: None, link_text: None, contents };
            let mut decision = site.policy.compare(entry, mapped, &metadata, &here);
            // It would be set for the name that is there as well.
            let may_set = !site.policy.adds_only;
            let access_time = may_set.then(|| access_time_apart(&mut decision)).flatten();
            let action = decision.action;
            let better = |best: &Alternate| {
                best.decision.action == Action::Update && matches!(action, Action::Keep | Action::Retag)
            };
            if action == Action::Keep || best.as_ref().is_none_or(better) {
                let dir = Arc::clone(dir);
                let (decision, adds_nothing, own) = (Box::new(decision), false, None);
                best = Some(Alternate { dir, metadata, decision, adds_nothing, own, access_time });
            }
            if action == Action::Keep {
                break;
            }
        }

        best
    }
}

/// Makes an entry that differs in its access time only an equal one, as reading alone changes that time:
/// whoever backs up what somebody has read needs no copy of it. Returns the time to be set.
fn access_time_apart(decision: &mut Decision) -> Option<Timestamp> {
    if decision.action != Action::Retag || decision.changes != Changes::ACCESS_TIME {
        return None;
    }
    decision.action = Action::Keep;
    decision.changes = Changes::NONE;
    decision.wanted.atime
}
