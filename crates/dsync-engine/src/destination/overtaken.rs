//! Entries that somebody made or changed after they were compared, and that an option protects.
//!
//! The law: `--ignore-existing` replaces nothing that has the name when it is given, and `--update`
//! nothing that is newer then. Between the comparison and that moment lies the rest of the transfer, with
//! `--delay-updates` the rest of the run. What is overtaken is left alone, as if it had been found so, and
//! is no failure.

use std::io;

use dsync_fs::{Component, Dir, Kind, RelPath, Timestamp};
use dsync_wire::event::{FileType, LeftAlone, WhyLeft};

use super::Site;
use crate::SyncError;

/// The error of a name that stays with the entry which has it.
#[derive(Debug, thiserror::Error)]
#[error("the entry that has the name is left alone")]
pub(super) struct Overtaken(WhyLeft);

impl Overtaken {
    /// Returns why an entry is left alone, if an error is this one.
    pub(super) fn of(error: &io::Error) -> Option<WhyLeft> {
        error.get_ref().and_then(|inner| inner.downcast_ref::<Self>()).map(|overtaken| overtaken.0)
    }
}

impl From<Overtaken> for io::Error {
    fn from(overtaken: Overtaken) -> Self {
        Self::other(overtaken)
    }
}

/// Refuses a name if the entry that has it is to be left alone.
pub(super) fn check(
    site: &Site<'_>,
    dir: &Dir,
    name: &Component,
    listed: Option<Timestamp>,
) -> io::Result<()> {
    why_left(site, dir, name, listed).map_or(Ok(()), |why| Err(Overtaken(why).into()))
}

/// Returns why the entry that has a name is to be left alone; `None` if another may take it. `listed` is the
/// time of the source's file, under `--update` only. The run itself may have set the time of a file with
/// several names by another.
pub(super) fn why_left(
    site: &Site<'_>,
    dir: &Dir,
    name: &Component,
    listed: Option<Timestamp>,
) -> Option<WhyLeft> {
    let ignores = site.policy.options.ignore_existing;
    if !ignores && listed.is_none() {
        return None;
    }
    let now = dir.stat(name).ok()?;
    let is_newer = listed.is_some_and(|time| now.kind == Kind::File && now.nlink < 2 && now.mtime > time);
    ignores.then_some(WhyLeft::Exists).or_else(|| is_newer.then_some(WhyLeft::Newer))
}

/// Tells of an entry that is left alone, if anybody listens.
pub(super) fn tell(site: &Site<'_>, kind: FileType, path: &RelPath, why: WhyLeft) -> Result<(), SyncError> {
    if !site.account.hears_all() {
        return Ok(());
    }
    site.account.left_alone(LeftAlone::new(kind, path.as_bytes().to_vec(), why))
}
