//! The first step: finds the state of an entry.

use dsync_fs::{Kind, Metadata, Opening, Origin};

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
        let met = self.comparison.meet(merge, directory, name)?;
        let followed = self.comparison.follow(directory, name, entry, met);
        if let Err(error) = &followed {
            tracing::debug!(%error, "a link is not followed");
        }

        let group = self.links.group_of(entry, *id);
        let untrusted = followed.is_err();
        let existing = followed.ok().flatten().map(|existing| self.site.hands.as_found(path, existing));
        let existing = existing.map(|existing| self.device(subject, existing));
        // No name is linked to a device that is written, nor is that linked to a name.
        let group = group.filter(|_| existing.is_none_or(|existing| existing.origin != Origin::Device));
        if let Some(group) = group.filter(|_| self.comparison.foreseen.leads(*id)) {
            // It is planned as the first one: others may have linked to it already.
            self.links.displace(group);
        }
        let first = group.and_then(|group| self.links.first_name(&self.transfers.succession, group));
        Ok(Found { existing, untrusted, group, first })
    }

    /// Returns a device that the run writes a file's content into as a file of its content.
    fn device(&self, subject: &Subject<'_>, existing: Metadata) -> Metadata {
        let writes = self.site.policy.options.writing.devices && subject.file_size().is_some();
        if !writes || !existing.is_device() {
            return existing;
        }
        let how = Opening { noatime: false, devices: true };
        let opened = subject.directory.dir.as_ref().map(|dir| dir.open_source_as(&subject.name, how));
        // One that cannot be read may still be written; if not, that is told then.
        let size = opened.and_then(Result::ok).map_or(0, |device| device.len());
        Metadata { kind: Kind::File, origin: Origin::Device, size, ..existing }
    }
}
