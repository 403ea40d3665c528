//! Batch files: one run, recorded, for any number of destinations.
//!
//! A batch has what a source tells a destination: the listing, as the messages that carry it, and
//! the content of each file that the recorded run transferred. Whoever reads it plays the part of
//! the source, so planning, checks and commits are those of every other run. `docs/batch.md` is
//! normative for the bytes. The laws: a batch that was cut short or changed is refused before its
//! first message is used; no length in it makes a reader allocate more than one section takes; a
//! batch takes its name only when it is complete and on the disk.

mod format;
mod recorder;
mod recording;
mod replay;
mod terms;

use std::{
    io,
    path::{Path, PathBuf},
};

pub(crate) use self::recorder::Recorder;
#[doc(hidden)]
pub use self::{format::sealed, replay::read_any};
pub use self::{recording::Recording, replay::Batch};

use crate::exit_code;

/// The reason why a batch file cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BatchFault {
    /// The file could not be read or written.
    #[error("it cannot be read or written")]
    Io {
        /// The reason.
        #[from]
        source: io::Error,
    },
    /// It is neither a regular file nor a pipe.
    #[error("it is not a regular file")]
    NotRegular,
    /// It does not begin like a batch.
    #[error("it is no batch file of dsync")]
    Foreign,
    /// It begins like a batch of rsync.
    #[error("it is a batch file of rsync, which only rsync reads")]
    OfRsync,
    /// A later version of the format.
    #[error("it has version {version} of the format, and this program reads version {VERSION}")]
    Newer {
        /// Its version.
        version: u16,
    },
    /// Its messages are of another protocol version.
    #[error(
        "its messages have version {version}, and this program reads version {}",
        dsync_wire::version::VERSION
    )]
    OtherMessages {
        /// Their version.
        version: u16,
    },
    /// It ends before its last section.
    #[error("it was cut short")]
    Truncated,
    /// It is not what was written.
    #[error("it was changed or damaged: its hash differs")]
    Damaged,
    /// A section that has no meaning.
    #[error("section {section} of it is malformed: {what}")]
    Malformed {
        /// The section's number, from 1.
        section: u64,
        /// The fault.
        what: &'static str,
    },
}

/// A batch file that cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("cannot use the batch file '{}'", path.display())]
#[non_exhaustive]
pub struct BatchError {
    /// The file as named.
    pub path: PathBuf,
    /// The reason.
    pub source: BatchFault,
}

impl BatchError {
    /// Makes the error of a batch file.
    pub fn new(path: &Path, source: BatchFault) -> Self {
        Self { path: path.to_owned(), source }
    }

    /// Returns the exit code of a run that ends with this error: rsync's for its own batches.
    pub fn exit_code(&self) -> u8 {
        match self.source {
            BatchFault::Io { .. } | BatchFault::NotRegular => exit_code::FILE_IO,
            BatchFault::Foreign | BatchFault::OfRsync => exit_code::USAGE,
            BatchFault::Newer { .. } | BatchFault::OtherMessages { .. } => exit_code::INCOMPATIBLE,
            BatchFault::Truncated | BatchFault::Damaged | BatchFault::Malformed { .. } => exit_code::STREAM,
        }
    }
}

/// The version of the format that is written.
pub const VERSION: u16 = 1;
