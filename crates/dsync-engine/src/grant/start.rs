//! The start of a session's own paths: the process's own directory, or that of a client's grant.
//!
//! The law: whatever a client may not do is refused here for all parts of an end, which ask a [`Start`]
//! and do not know whether there is a grant.

use std::{
    ffi::OsStr,
    io,
    num::NonZeroU64,
    path::{Component as Part, Path, PathBuf},
    sync::Arc,
};

use dsync_fs::{Dir, Spelling};
use dsync_wire::{options::SyncOptions, path::EntryPath};

use super::Grant;
use crate::{SyncError, Tally, keep::Keep};

/// The directory where a session's own paths start: the process's own, or that of a grant.
#[derive(Clone, Default)]
pub(crate) struct Start {
    pub(crate) grant: Option<Arc<Grant>>,
    /// The character sets of the names below.
    pub(crate) spelling: Option<Spelling>,
    /// The directory that `~` stands for, if it is not this process's user's home.
    pub(crate) home: Option<PathBuf>,
}

impl Start {
    /// Makes the start of a serving end.
    pub(crate) fn of(grant: Option<Grant>, home: Option<PathBuf>) -> Self {
        Self { grant: grant.map(Arc::new), spelling: None, home }
    }

    /// Opens a path as [`Dir::open_destination`] does.
    pub(crate) fn open(&self, path: &Path, links: dsync_fs::Links) -> io::Result<Dir> {
        let opened = match &self.grant {
            // The client has no say in whose links are followed.
            Some(grant) => Ok(grant.writable()?.open_operand_above(path)?.adding_only(grant.adds_only())),
            None => Dir::open_destination(path, links),
        };
        opened.map(|dir| dir.with_spelling(self.spelling))
    }

    /// Creates a path as [`Dir::create_destination`] does.
    pub(crate) fn create(&self, path: &Path, mkpath: bool, links: dsync_fs::Links) -> io::Result<Dir> {
        let Some(grant) = &self.grant else {
            let made = Dir::create_destination(path, mkpath, links);
            return made.map(|dir| dir.with_spelling(self.spelling));
        };
        let made = grant.writable()?.create_operand_above(path, mkpath);
        Ok(made?.adding_only(grant.adds_only()))
    }

    /// Opens a directory that a source operand names.
    pub(crate) fn open_source(&self, path: &Path) -> io::Result<Dir> {
        match &self.grant {
            Some(grant) => grant.floor.open_operand_above(path),
            None => Dir::open_operand(path),
        }
    }

    /// Returns a path for a message to the client: one of a share with the share's name before it, as `.` alone
    /// says of no share which it is.
    pub(crate) fn named(&self, path: PathBuf) -> PathBuf {
        match self.grant.as_ref().and_then(|grant| grant.terms.share.as_ref()) {
            // The components have no `.` but at the beginning.
            Some(share) => {
                let named = path.components().filter(|part| !matches!(part, Part::CurDir | Part::RootDir));
                std::iter::once(OsStr::new(share)).chain(named.map(|part| part.as_os_str())).collect()
            }
            None => path,
        }
    }

    /// Returns whether an entry may go that nothing replaces.
    pub(crate) fn may_remove(&self, options: &SyncOptions) -> bool {
        self.grant.as_ref().is_none_or(|grant| grant.may_remove(options))
    }

    /// Returns whether nothing that exists may change.
    pub(crate) fn adds_only(&self) -> bool {
        self.grant.as_ref().is_some_and(|grant| grant.adds_only())
    }

    /// Returns the name of the client, which is empty where nobody gave it one.
    pub(crate) fn holder(&self) -> &[u8] {
        self.grant.as_ref().map_or(&[], |grant| &grant.holder)
    }

    /// Returns the place of what is replaced and removed.
    pub(crate) fn keep(&self) -> Option<&Arc<Keep>> {
        self.grant.as_ref().and_then(|grant| grant.keep.as_ref())
    }

    /// Returns the counts of the session.
    pub(crate) fn tally(&self) -> Tally {
        self.grant.as_ref().map_or_else(Tally::default, |grant| grant.tally())
    }

    /// Returns the rate of the session in bytes per second.
    pub(crate) fn bytes_per_second(&self) -> Option<NonZeroU64> {
        self.grant.as_ref().and_then(|grant| grant.limits.bytes_per_second)
    }

    /// Checks the length of a file that the client writes.
    pub(crate) fn check_length(&self, bytes: u64, path: impl FnOnce() -> EntryPath) -> Result<(), SyncError> {
        self.grant.as_ref().map_or(Ok(()), |grant| grant.check_length(bytes, path))
    }

    /// Returns the directory that the paths are confined to.
    pub(crate) fn floor(&self) -> Option<Arc<Dir>> {
        self.grant.as_ref().map(|grant| Arc::clone(grant.floor()))
    }
}
