//! The first step: finds the state of an entry.

use dsync_fs::Metadata;
use dsync_wire::message::EntryKind;

use super::{
    Planner,
    merge::Merge,
    subject::{Found, Subject},
};
use crate::SyncError;

impl Planner<'_> {
    /// Finds the destination's state of an entry, and of the other names of its file.
    pub(super) fn resolve(&mut self, merge: &mut Merge, subject: &Subject<'_>) -> Result<Found, SyncError> {
        let Subject { id, entry, directory, name, path, .. } = subject;
        let listed = self.comparison.meet(merge, directory, name)?;
        let met = self.claim(subject)?.unwrap_or(listed);
        let followed = self.comparison.follow(directory, name, entry, met);
        if let Err(error) = &followed {
            tracing::debug!(%error, "a link is not followed");
        }

        let group = self.links.group_of(entry, *id);
        let first = group.and_then(|group| self.links.first_name(&self.transfers.succession, group));
        let untrusted = followed.is_err();
        let existing = followed.ok().flatten().map(|existing| self.site.hands.as_found(path, existing));
        Ok(Found { existing, untrusted, group, first })
    }

    /// Claims an entry's name where backups stay in their directories. Returns what is there now if
    /// a backup may have come there since the directory was listed.
    fn claim(&self, subject: &Subject<'_>) -> Result<Option<Option<Metadata>>, SyncError> {
        let Subject { entry, directory, name, path, .. } = subject;
        let Some(backups) = self.site.backups.get() else { return Ok(None) };
        // A directory gives way to no backup.
        if matches!(entry.kind, EntryKind::Directory) || !backups.claim(path)? {
            return Ok(None);
        }
        Ok(directory.dir.as_ref().map(|dir| dir.stat(name).ok()))
    }
}
