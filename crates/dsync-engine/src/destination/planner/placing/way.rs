//! What has an entry's name already and is of another type.

use dsync_fs::{Dir, Kind};
use dsync_wire::message::{Cause, Entry, EntryKind, Operation};

use super::{super::Planner, Place};
use crate::{SyncError, destination::delete};

/// Whether an entry can have its name.
pub(in super::super) enum Way {
    /// The name is free, or what has it is replaced by a rename.
    Free,
    /// It is taken by what must go once the entry is there.
    Taken,
    /// What has it must stay, which was reported.
    Blocked,
}

impl Planner<'_> {
    /// Looks at what has the wrong type for the entry: it stays until the new entry can take its name.
    pub(in super::super) fn clear_way(
        &self,
        place: &Place<'_>,
        entry: &Entry,
        kind: Kind,
    ) -> Result<Way, SyncError> {
        let Some(dir) = &place.directory.dir else { return Ok(Way::Free) };
        let options = &self.site.policy.options;
        if kind != Kind::Dir {
            // Over anything but a directory the rename of a new entry is atomic.
            let is_directory = matches!(entry.kind, EntryKind::Directory);
            return Ok(if is_directory && !options.dry_run { Way::Taken } else { Way::Free });
        }
        // Backups beside what they are of would stay in the directory.
        let kept_within = options.writing.backup.as_ref().is_some_and(|backup| backup.dir.is_none());
        if !options.delete && !options.force || kept_within {
            return self.clear_empty_directory(place, dir);
        }
        let doomed = place.doomed(place.name, Kind::Dir);
        match delete::goes_whole(self.site, dir, doomed, &self.protection) {
            Ok(true) if options.dry_run => {
                delete::remove(self.site, dir, doomed, &self.protection)?;
                Ok(Way::Free)
            }
            Ok(true) => Ok(Way::Taken),
            // What a rule protects stays, but for a directory with nothing in it.
            Ok(false) => self.clear_empty_directory(place, dir),
            Err(error) => {
                self.report(Operation::Delete, place, Err(error))?;
                Ok(Way::Blocked)
            }
        }
    }

    /// Where nothing may be deleted only an empty directory gives way, and at once: nothing is lost with it.
    fn clear_empty_directory(&self, place: &Place<'_>, dir: &Dir) -> Result<Way, SyncError> {
        let empty = dir.open_child(place.name).is_ok_and(|child| child.list().entries.is_empty());
        if !empty {
            self.site.problem(Operation::WriteFile, place.path, Cause::DirectoryInTheWay)?;
            return Ok(Way::Blocked);
        }
        if self.site.policy.options.dry_run {
            return Ok(Way::Free);
        }
        let removed = self.done(Operation::Delete, place, dir.remove_empty_dir(place.name))?;
        Ok(if removed { Way::Free } else { Way::Blocked })
    }
}
