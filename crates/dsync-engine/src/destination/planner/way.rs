//! Entries of another type that have the name already.

use std::io;

use dsync_fs::{Dir, Kind, is_left};
use dsync_wire::message::{Cause, EntryKind, Operation, Problem};

use super::{
    super::{Site, delete::Deletions, removal::Doomed},
    subject::Subject,
};
use crate::SyncError;

/// Whether an entry can have its name.
pub(super) enum Way {
    /// The name is free, or its entry is replaced by a rename.
    Free,
    /// It is taken by an entry that goes once the new one is there.
    Taken(Kind),
    /// It is taken by an empty directory, which goes at once: nothing is lost with it.
    Empty,
    /// Its holder must stay, for this reason.
    Blocked(Problem),
}

impl Way {
    /// Returns the way of an entry whose name is taken by one of another type. That stays until the
    /// new entry can take its name.
    pub(super) fn of(
        site: &Site<'_>,
        subject: &Subject<'_>,
        kind: Kind,
        deletions: &Deletions,
    ) -> Result<Self, SyncError> {
        let Some(dir) = &subject.directory.dir else { return Ok(Self::Free) };
        if kind != Kind::Dir {
            // Over anything but a directory the rename of a new entry is atomic.
            let is_directory = matches!(subject.entry.kind, EntryKind::Directory);
            return Ok(if is_directory { Self::Taken(kind) } else { Self::Free });
        }

        let options = &site.policy.options;
        if !options.delete && !options.force {
            return Ok(Self::if_empty(dir, subject));
        }

        let name = &subject.name;
        let doomed = Doomed { parent: &subject.directory.path, name, now: name, kind };
        match deletions.permit_way(site, dir, doomed) {
            Ok(true) => Ok(Self::Taken(kind)),
            // It stays with what is in it: protected, or too much.
            Ok(false) => Ok(Self::if_empty(dir, subject)),
            // Another user's directory that may not be listed: it goes if it is empty, as without the options.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                match Self::if_empty(dir, subject) {
                    Self::Empty => Ok(Self::Empty),
                    _ => Self::blocked(site, subject, error),
                }
            }
            Err(error) => Self::blocked(site, subject, error),
        }
    }

    /// Returns the way where an error keeps its holder, unless the error ends the run.
    fn blocked(site: &Site<'_>, subject: &Subject<'_>, error: io::Error) -> Result<Self, SyncError> {
        let cause = site.cause_or_fatal(Operation::Delete, &subject.path, error)?;
        Ok(Self::Blocked(subject.problem(Operation::Delete, cause)))
    }

    /// Returns the way where nothing may be deleted: only an empty directory gives way, or one that has
    /// nothing but what ended runs have left.
    fn if_empty(dir: &Dir, subject: &Subject<'_>) -> Self {
        let is_empty = |child: Dir| child.list().entries.iter().all(|(name, _)| is_left(&child, name));
        if dir.open_child(&subject.name).is_ok_and(is_empty) {
            Self::Empty
        } else {
            Self::Blocked(subject.problem(Operation::WriteFile, Cause::DirectoryInTheWay))
        }
    }

    /// Returns the type of the entry that has the name until the new one takes it.
    pub(super) fn displaced(&self) -> Option<Kind> {
        if let Self::Taken(kind) = self { Some(*kind) } else { None }
    }
}
