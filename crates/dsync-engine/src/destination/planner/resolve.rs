//! The first step: finds the state of an entry.

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
        let first = group.and_then(|group| self.links.first_name(&self.transfers.succession, group));
        let untrusted = followed.is_err();
        let existing = followed.ok().flatten().map(|existing| self.site.hands.as_found(path, existing));
        Ok(Found { existing, untrusted, group, first })
    }
}
