//! A filter that is the caller's own code: [`Job::filter`](crate::Job::filter).
//!
//! Laws: it is asked at the source's end only, about what [`SyncOptions::filters`](crate::SyncOptions::filters)
//! leave; what it hides takes the same way out of the walk as what a rule excludes. A panic in it ends the
//! run as an observer's does, and nothing is deleted on the word of a filter that panicked.

use std::{fmt, sync::Arc};

use dsync_fs::{Choice, Chooser, Metadata, Spelling};
use dsync_wire::{event::FileType, message::Timestamp, options::SyncOptions, path::EntryPath};

use crate::{
    Source, SyncError,
    callbacks::Callbacks,
    plan::{file_type_of, timestamp},
};

/// An entry of the source that a filter judges, with the attributes that would be copied: of what a
/// link leads to where the run follows links.
///
/// ```
/// use dsync_engine::{Candidate, Choice, FileType};
///
/// /// Leaves out sockets, and what nobody but its owner may read.
/// fn backed_up(entry: &Candidate<'_>) -> Choice {
///     let is_secret = entry.kind == FileType::File && entry.mode & 0o077 == 0;
///     if is_secret || entry.kind == FileType::Socket { Choice::Hide } else { Choice::Copy }
/// }
/// # use dsync_engine::{Destination, Job, Source};
/// let job = Job::new(Source::Local { paths: vec!["home/".into()] }, Destination::Nowhere)
///     .filter(backed_up);
/// # drop(job);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Candidate<'a> {
    /// Path below the transfer's root, without slashes at its ends; never empty.
    pub path: &'a EntryPath,
    /// Type.
    pub kind: FileType,
    /// Size in bytes of a regular file; of any other type what the system says.
    pub size: u64,
    /// Modification time.
    pub mtime: Timestamp,
    /// Permission bits.
    pub mode: u16,
    /// Owner's number.
    pub uid: u32,
    /// Group's number.
    pub gid: u32,
}

/// A job's own filter.
#[derive(Clone)]
pub(crate) struct Filter(Arc<Judge>);

type Judge = dyn Fn(&Candidate<'_>) -> Choice + Send + Sync;

impl Filter {
    pub(crate) fn new(judge: impl Fn(&Candidate<'_>) -> Choice + Send + Sync + 'static) -> Self {
        Self(Arc::new(judge))
    }

    /// Checks that a run can ask the filter, and sets what its ends must know of it.
    ///
    /// # Errors
    /// [`SyncError::InvalidOption`].
    pub(crate) fn prepare(
        &self,
        source: &Source,
        is_recorded: bool,
        options: &mut SyncOptions,
    ) -> Result<(), SyncError> {
        let invalid = |why: &str| Err(SyncError::InvalidOption { option: "filter", why: why.to_owned() });
        match source {
            Source::Local { .. } | Source::Files { .. } | Source::Manifest { .. } => {}
            Source::Remote { .. } | Source::Peer { .. } => {
                return invalid(
                    "is this program's code, and the source is at the other end: use options.filters",
                );
            }
            Source::Batch(_) => return invalid("chooses entries of a source, and a batch has its own"),
        }

        options.names_hidden = options.delete && !options.delete_excluded;
        if options.names_hidden && options.prune_empty_dirs {
            return invalid(
                "protects no entries of directories that prune_empty_dirs leaves out: set delete_excluded",
            );
        }
        if options.names_hidden && is_recorded {
            return invalid("protects no entries where a batch is read: set delete_excluded");
        }
        Ok(())
    }

    /// Returns the judge of a walk whose names are in this spelling.
    pub(crate) fn chooser(&self, callbacks: Callbacks, spelling: Option<Spelling>) -> Chooser {
        let judge = Arc::clone(&self.0);
        Chooser::new(move |path, metadata| {
            let path = spelling.map_or_else(|| path.into(), |spelling| spelling.path_to_here(path).into());
            let candidate = candidate(&path, metadata);
            callbacks.call(|| judge(&candidate))
        })
    }
}

fn candidate<'a>(path: &'a EntryPath, metadata: &Metadata) -> Candidate<'a> {
    let &Metadata { kind, size, mtime, mode, uid, gid, .. } = metadata;
    Candidate { path, kind: file_type_of(kind), size, mtime: timestamp(mtime), mode, uid, gid }
}

impl fmt::Debug for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Filter").finish_non_exhaustive()
    }
}
