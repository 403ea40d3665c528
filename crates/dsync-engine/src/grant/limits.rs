//! Limits that an administrator sets for a client beside its [`Access`](super::Access).
//!
//! The law: each limit is kept by the end that serves, on what it receives and writes itself.
//! Nothing that the client says of its files or of its own speed is believed.

use std::{fmt, num::NonZeroU64, sync::Arc, time::Instant};

use dsync_fs::Quota;
use dsync_wire::{options::SyncOptions, path::EntryPath, setters};

use super::{OwnerRule, OwnerRules};

/// The limits of a client. The default has none.
///
/// ```
/// use std::time::{Duration, Instant};
///
/// use dsync_engine::{Limits, grant::Quota};
///
/// let limits = Limits::default()
///     .largest_file(Some(4 << 30))
///     .quota(Quota::new(Some(100 << 30), None))
///     .ends(Some(Instant::now() + Duration::from_secs(3600)));
/// assert!(!limits.quota.is_endless());
/// ```
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct Limits {
    /// Bytes of the longest file that the client may write.
    pub largest_file: Option<u64>,
    /// The most that may lie in the client's directory, with what is kept of it elsewhere. Sessions
    /// that write there at once do not count each other's files: the caller lets in one at a time.
    pub quota: Quota,
    /// Bytes per second of a session, in each direction, before encryption.
    pub bytes_per_second: Option<NonZeroU64>,
    /// The moment at which the session ends, whatever it is doing.
    pub ends: Option<Instant>,
    /// The options that the client may not use.
    pub options: Option<Arc<dyn OptionRules>>,
    /// The rules for owners.
    pub owners: OwnerRules,
}

setters!(Limits {
    largest_file: Option<u64>,
    quota: Quota,
    bytes_per_second: Option<NonZeroU64>,
    ends: Option<Instant>,
    options: Option<Arc<dyn OptionRules>>,
    owners: OwnerRules,
});

/// The options of a run as its client asks for them.
///
/// ```
/// use dsync_engine::{SyncOptions, grant::Request};
///
/// // Rules are tested without a client.
/// let options = SyncOptions::archive();
/// let pull = Request::new(&options, false).reads_list(true);
/// assert!(pull.reads_list && !pull.writes);
/// ```
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Request<'a> {
    /// The options.
    pub options: &'a SyncOptions,
    /// Whether this end is to be the destination.
    pub writes: bool,
    /// Whether the client names a list of paths that this end is to read.
    pub reads_list: bool,
}

impl<'a> Request<'a> {
    /// Makes the request of a client that names no list of paths.
    pub fn new(options: &'a SyncOptions, writes: bool) -> Self {
        Self { options, writes, reads_list: false }
    }

    /// Sets the field `reads_list`.
    #[must_use]
    pub fn reads_list(self, reads_list: bool) -> Self {
        Self { reads_list, ..self }
    }
}

/// An administrator's rules on options.
///
/// ```
/// use dsync_engine::grant::{OptionRules, Request};
///
/// /// No sparse files and no checksums on a small machine.
/// #[derive(Debug)]
/// struct SmallMachine;
///
/// impl OptionRules for SmallMachine {
///     fn refused(&self, request: &Request<'_>) -> Option<String> {
///         let asks_for_all_contents = request.options.checksum && !request.writes;
///         asks_for_all_contents.then(|| "--checksum".to_owned())
///     }
/// }
///
/// let mut options = dsync_engine::SyncOptions::archive();
/// options.checksum = true;
/// let request = Request::new(&options, false).reads_list(true);
/// assert_eq!(SmallMachine.refused(&request).as_deref(), Some("--checksum"));
/// ```
pub trait OptionRules: fmt::Debug + Send + Sync {
    /// Returns the first refused option of a request, as a person would type it.
    fn refused(&self, request: &Request<'_>) -> Option<String>;
}

/// The step beyond a limit that ended a run.
///
/// ```
/// use dsync_engine::{Excess, SyncError};
///
/// /// Returns the setting that ended a session, for the server's log.
/// fn limit(error: &SyncError) -> Option<&'static str> {
///     match error {
///         SyncError::LimitExceeded { excess, .. } => Some(Excess::limit(excess)),
///         _ => None,
///     }
/// }
/// # assert_eq!(limit(&SyncError::Cancelled), None);
/// # assert_eq!(Excess::Hours.limit(), "hours");
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Excess {
    /// A file was too long.
    LongFile {
        /// Its path below the root of the transfer.
        path: EntryPath,
        /// Its length in bytes.
        bytes: u64,
        /// The length that is allowed.
        most: u64,
    },
    /// The time of the session was over.
    Hours,
    /// An option was refused.
    Option {
        /// The option, as a person would type it.
        name: String,
    },
    /// An option contradicts a rule for owners.
    Owners {
        /// The rule.
        rule: OwnerRule,
    },
}

impl Excess {
    /// Returns the name of the limit in the configuration of `dsync serve`.
    pub fn limit(&self) -> &'static str {
        match self {
            Self::LongFile { .. } => "largest-file",
            Self::Hours => "hours",
            Self::Option { .. } => "refuse",
            Self::Owners { rule } => rule.name(),
        }
    }
}

impl fmt::Display for Excess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::LongFile { path, bytes, most } => {
                write!(f, "'{}' has {bytes} bytes, and {most} are allowed", path.as_path().display())
            }
            Self::Hours => f.write_str("the allowed hours are over"),
            Self::Option { name } => write!(f, "{name} is refused"),
            Self::Owners { rule } => rule.fmt(f),
        }
    }
}

impl Limits {
    /// Returns the excess of a file of this length.
    pub(crate) fn excess_of_file(&self, bytes: u64, path: impl FnOnce() -> EntryPath) -> Option<Excess> {
        let most = self.largest_file.filter(|&most| bytes > most)?;
        Some(Excess::LongFile { path: path(), bytes, most })
    }

    /// Returns the excess of a session that is not over by now.
    pub(crate) fn excess_of_time(&self, now: Instant) -> Option<Excess> {
        self.ends.is_some_and(|ends| now >= ends).then_some(Excess::Hours)
    }

    /// Returns the excess of a request.
    pub(crate) fn excess_of_request(&self, request: &Request<'_>) -> Option<Excess> {
        let refused = self.options.as_ref().and_then(|rules| rules.refused(request));
        refused.map(|name| Excess::Option { name }).or_else(|| self.owners.contradiction(request))
    }
}
