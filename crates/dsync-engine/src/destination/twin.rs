//! Files whose content an alternate directory has: they are copied from there, not asked for.

use std::sync::Arc;

use dsync_fs::{CopyError, Dir, StagedFile, Stamp};
use dsync_wire::message::Operation;

use super::{commit::Outbox, files::Pending, settle::Outcome, transfers::Transfers};
use crate::{SyncError, plan::timestamp};

/// Copies a file of equal content from an alternate directory. Returns `false` when it cannot be read or is
/// no longer the version `compared`: then the content has to come from the source.
pub(super) fn copy(
    transfers: &Transfers<'_>,
    outbox: &mut Outbox<'_>,
    file: &Arc<Pending>,
    (twin, compared): (&Arc<Dir>, Stamp),
) -> Result<bool, SyncError> {
    let site = transfers.site;
    if file.slot.directory.dir.is_none() {
        return Ok(true);
    }
    let Ok(source) = twin.open_source_noatime(&file.slot.name) else { return Ok(false) };
    if !source.stamp().is_same_content(&compared) {
        return Ok(false);
    }

    let directory = file.slot.directory.for_temporary();
    let staged = directory.and_then(|dir| site.homes.stage(dir, file.slot.name.clone()));
    let sparse = site.policy.options.writing.sparse;
    let copy = |staged: &StagedFile| staged.copy_all(&source, &transfers.sharing, sparse);
    let copied = staged.map_err(CopyError::Write).and_then(|staged| copy(&staged).map(|()| staged));

    let staged = match copied {
        Ok(staged) => staged,
        Err(CopyError::Read(_)) => return Ok(false),
        Err(error) => {
            let broke = Outcome::Broke(Operation::WriteFile, error.into_inner());
            return transfers.settle(file, broke).map(|()| true);
        }
    };
    if !source.is_unchanged().is_ok_and(|unchanged| unchanged) {
        return Ok(false);
    }

    let mtime = file.wanted.mtime.map(timestamp).unwrap_or_default();
    site.account.received(0, source.len(), 0);
    outbox.submit(file, Ok(staged), mtime).map(|()| true)
}
