//! The reasons why a tree could not be recorded or verified, and what each means for a caller.

use std::{io, path::PathBuf};

use dsync_wire::path::EntryPath;

use crate::{Fault, Reason, SyncError, error::reason_of_system, exit_code, manifest::ManifestError};

/// The reason why a tree could not be recorded or verified.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum VerifyError {
    /// The tree's root cannot be read.
    #[error("cannot read '{}'", .path.display())]
    Tree {
        /// The root.
        path: PathBuf,
        /// The reason.
        #[source]
        source: io::Error,
    },
    /// An entry cannot be recorded, as it cannot be read.
    #[error("cannot record '{path}'")]
    Entry {
        /// Path below the root.
        path: EntryPath,
        /// The reason.
        #[source]
        source: io::Error,
    },
    /// The manifest.
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    /// Another user's link leads to the file of [`Reading::max_age`](super::Reading::max_age), its
    /// directory cannot be opened, or something else than a regular file has its name.
    #[error("cannot use the file that keeps the times of reading")]
    Ages {
        /// The reason.
        #[source]
        source: io::Error,
    },
    /// No run has recorded the content of a file of the tree as the file is now.
    #[error("no run has recorded the contents of its files")]
    NothingRecorded {
        /// Files of which an earlier version is recorded.
        edited_since: u64,
    },
    /// The session with the other end of a [`RemoteTree`](super::RemoteTree) failed.
    #[error("the other end cannot be verified")]
    Session(#[from] Box<SyncError>),
    /// The other end listed an entry that belongs before the last one.
    #[error("the other end listed '{path}' out of order")]
    Disorder {
        /// Path below the root.
        path: EntryPath,
    },
    /// The other end failed to read more paths than this end keeps.
    #[error("the other end cannot read too many of its directories")]
    TooManyProblems,
    /// The threads that read could not be started.
    #[error("cannot start threads")]
    Threads,
    /// The [`VerifyObserver`](super::VerifyObserver) panicked.
    #[error("the observer panicked: {message}")]
    Aborted {
        /// The panic's text.
        message: String,
    },
    /// Cancelled by the caller.
    #[error("cancelled")]
    Cancelled,
}

impl VerifyError {
    /// Returns whether the same verification may go well over a new connection, as
    /// [`SyncError::is_retryable`] says it of the session.
    ///
    /// ```
    /// use dsync_engine::verify::VerifyError;
    ///
    /// fn is_tried_again(error: &VerifyError, tries: u32) -> bool {
    ///     error.is_retryable() && tries < 3
    /// }
    /// # assert!(!is_tried_again(&VerifyError::Threads, 0));
    /// ```
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::Session(error) if error.is_retryable())
    }

    /// Returns who or what is to be mended before the same verification can go well.
    ///
    /// ```
    /// use dsync_engine::{Fault, verify::VerifyError};
    ///
    /// /// Returns whom a service should tell.
    /// fn addressee(error: &VerifyError) -> &'static str {
    ///     match error.fault() {
    ///         Fault::Caller => "the user",
    ///         Fault::System | Fault::Connection => "the operator",
    ///         _ => "the developers",
    ///     }
    /// }
    /// # assert_eq!(addressee(&VerifyError::Cancelled), "the user");
    /// ```
    pub fn fault(&self) -> Fault {
        match self {
            Self::NothingRecorded { .. } | Self::Cancelled => Fault::Caller,
            Self::Tree { .. }
            | Self::Entry { .. }
            | Self::Manifest(_)
            | Self::Ages { .. }
            | Self::TooManyProblems
            | Self::Threads => Fault::System,
            Self::Session(error) => error.fault(),
            Self::Disorder { .. } => Fault::Peer,
            Self::Aborted { .. } => Fault::Engine,
        }
    }

    /// Returns the kind of reason, as [`SyncError::reason`] says it of the session.
    ///
    /// ```
    /// use dsync_engine::{Reason, verify::VerifyError};
    ///
    /// fn advice(error: &VerifyError) -> &'static str {
    ///     match error.reason() {
    ///         Reason::NoPermission => "run as a user that may read the tree",
    ///         Reason::Missing => "has the tree been moved?",
    ///         _ => "see the message",
    ///     }
    /// }
    /// # assert_eq!(advice(&VerifyError::Threads), "see the message");
    /// ```
    pub fn reason(&self) -> Reason {
        match self {
            Self::Tree { source, .. } | Self::Entry { source, .. } | Self::Ages { source } => {
                reason_of_system(source)
            }
            Self::NothingRecorded { .. } => Reason::Missing,
            Self::Manifest(_) | Self::TooManyProblems | Self::Threads => Reason::System,
            Self::Session(error) => error.reason(),
            Self::Disorder { .. } => Reason::Protocol,
            Self::Aborted { .. } => Reason::Aborted,
            Self::Cancelled => Reason::Cancelled,
        }
    }

    /// Returns the exit code that a command should end with. For a tree that is missing, here or at the
    /// other end, it is 3: 23 are findings.
    ///
    /// ```
    /// use dsync_engine::verify::{Verified, VerifyError};
    ///
    /// fn code(outcome: &Result<Verified, VerifyError>) -> u8 {
    ///     outcome.as_ref().map_or_else(VerifyError::exit_code, Verified::exit_code)
    /// }
    /// # assert_eq!(code(&Err(VerifyError::Cancelled)), 20);
    /// ```
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Tree { .. } => exit_code::FILE_SELECTION,
            Self::Entry { .. } | Self::TooManyProblems => exit_code::PARTIAL,
            Self::Manifest(_) | Self::Ages { .. } | Self::NothingRecorded { .. } => exit_code::FILE_IO,
            // A run's code for a source that is not there means findings here.
            Self::Session(error) if error.exit_code() == exit_code::PARTIAL => exit_code::FILE_SELECTION,
            Self::Session(error) => error.exit_code(),
            Self::Disorder { .. } | Self::Aborted { .. } => exit_code::STREAM,
            Self::Threads => exit_code::START,
            Self::Cancelled => exit_code::INTERRUPTED,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_error_has_a_reason() {
        let of_system =
            |kind: io::ErrorKind| VerifyError::Tree { path: "tree".into(), source: kind.into() }.reason();
        assert_eq!(of_system(io::ErrorKind::NotFound), Reason::Missing);
        assert_eq!(of_system(io::ErrorKind::PermissionDenied), Reason::NoPermission);
        let session = VerifyError::Session(Box::new(SyncError::Locked { path: "tree".into() }));
        assert_eq!(session.reason(), Reason::Busy);
        assert_eq!(VerifyError::Cancelled.reason(), Reason::Cancelled);
    }

    #[test]
    fn a_missing_tree_at_the_other_end_is_no_finding() {
        let missing = SyncError::SourceMissing { path: "gone".into() };
        assert_eq!(missing.exit_code(), exit_code::PARTIAL);
        let error = VerifyError::Session(Box::new(missing));
        assert_eq!((error.exit_code(), error.fault()), (exit_code::FILE_SELECTION, Fault::Caller));
        assert!(!error.is_retryable());
    }
}
