//! Reasons why a run could not start or not go on.

use std::{
    fmt, io,
    path::{Path, PathBuf},
    time::Duration,
};

use dsync_fs::{ActingUserError, FileListError, LeadsOut, SpoolError, UntrustedLink};
use dsync_transport::{AcceptError, ConnectError};
use dsync_wire::{
    budget::OverBudget,
    link::{Carrier, CloseReason, LinkError},
    message::{Cause, Operation, Reason},
    options::AlternateUse,
};

use crate::{
    BatchError, ManifestError, exit_code,
    grant::{Demand, Excess, GrantTerms},
    misbehaved::PeerMisbehaved,
};

/// The reason why a run ended early. Problems with single entries are not errors of the run: they
/// are [`Event::Failed`](crate::Event::Failed) and counted in the [`Summary`](crate::Summary).
///
/// ```
/// use dsync_engine::{Fault, SyncError};
///
/// fn advice(error: &SyncError) -> &'static str {
///     match (error, error.fault()) {
///         (SyncError::SourceMissing { .. } | SyncError::EmptySource { .. }, _) => {
///             "is the disk mounted?"
///         }
///         _ if error.is_retryable() => "try again later",
///         (_, Fault::Caller) => "mend the job",
///         (_, Fault::Peer) => "update the other end",
///         _ => "ask the administrator",
///     }
/// }
/// let error = SyncError::BothRemote;
/// assert_eq!((advice(&error), error.exit_code()), ("mend the job", 1));
/// assert!(error.shell_stderr().is_empty());
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SyncError {
    /// An option has a value that makes no sense. Found before anything has started.
    #[error("{option}: {why}")]
    InvalidOption {
        /// The option's name in this API, as in `writing.temp_dir`.
        option: &'static str,
        /// The fault of the value.
        why: String,
    },
    /// The caller could not connect, or gave a stream that no link can be made of.
    #[error("cannot connect")]
    Connector {
        /// The caller's error.
        #[source]
        source: io::Error,
    },
    /// Both ends are remote.
    #[error("both source and destination are remote; one must be local")]
    BothRemote,
    /// A source path does not exist (and there is no other source to copy).
    #[error("source '{}': no such file or directory", path.display())]
    SourceMissing {
        /// The path as given.
        path: PathBuf,
    },
    /// The directory in which the paths of a list begin does not exist.
    #[error("source '{}': no such file or directory", path.display())]
    ListRootMissing {
        /// The path as given.
        path: PathBuf,
    },
    /// A file of filter rules above a tree cannot be followed.
    #[error("cannot follow the filter rules of '{}'", path.display())]
    RuleFile {
        /// Path of the file, which is no entry of the tree.
        path: PathBuf,
        /// The reason.
        cause: Cause,
    },
    /// The list of the paths to copy cannot be read, or kept.
    #[error(
        "cannot read the list of files{}",
        path.as_ref().map_or_else(String::new, |path| format!(" '{}'", path.display()))
    )]
    FileList {
        /// Path of the list, if it is a file.
        path: Option<PathBuf>,
        /// The reason.
        #[source]
        source: FileListError,
    },
    /// A path of [`Source::Files`](crate::Source::Files) can be no entry below its root. Found before
    /// anything has started.
    #[error("cannot take '{}' as a path below the source: {why}", path.display())]
    InvalidPath {
        /// The path as given.
        path: PathBuf,
        /// The fault of the path.
        why: &'static str,
    },
    /// A manifest was changed while the run read it.
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    /// The manifest of the destination cannot be written. The run itself may have ended well.
    #[error("cannot write the manifest '{}'", path.display())]
    ManifestFile {
        /// The file as named.
        path: PathBuf,
        /// The reason.
        #[source]
        source: ManifestError,
    },
    /// A batch file cannot be read, or written.
    #[error(transparent)]
    Batch(#[from] BatchError),
    /// A batch was recorded under other options than those of the run that reads it.
    #[error("the batch file '{}' was recorded with other options", path.display())]
    BatchOptions {
        /// The file as named.
        path: PathBuf,
        /// Options that the recorded run had and this one lacks, by their names in this API.
        lacking: Vec<&'static str>,
        /// Options that this run has and the recorded one lacked.
        beyond: Vec<&'static str>,
        /// Options with a value that differs.
        other: Vec<&'static str>,
    },
    /// A source path cannot be opened.
    #[error("cannot open source '{}'", path.display())]
    SourceUnreadable {
        /// The path as given.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// The destination's parent does not exist.
    #[error("destination parent '{}' does not exist", path.display())]
    DestinationParentMissing {
        /// The parent.
        path: PathBuf,
    },
    /// A directory or several files would go where a file is, or below one.
    #[error("the destination has to be a directory, and '{}' is none", path.display())]
    DestinationIsFile {
        /// The destination, or what is on the way to it.
        path: PathBuf,
    },
    /// The destination cannot be opened or created.
    #[error("cannot use destination '{}'", path.display())]
    DestinationUnusable {
        /// The destination.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// A directory beside the destination cannot be opened or created.
    #[error("cannot use '{}' as {role}", path.display())]
    DirectoryUnusable {
        /// The purpose of the directory.
        role: PathRole,
        /// The directory.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// None of the alternate directories exists, so that the run would copy everything.
    #[error("none of the alternate directories exists: {}", quoted(paths))]
    AlternatesMissing {
        /// The use of the directories.
        way: AlternateUse,
        /// The directories as given.
        paths: Vec<PathBuf>,
    },
    /// The destination, or a directory that an option names, is reached through another user's
    /// link, or through one that a source may have made.
    #[error("refusing {role} '{}': {link}, and could lead anywhere", path.display())]
    UntrustedLink {
        /// The purpose of the path.
        role: PathRole,
        /// The path as given.
        path: PathBuf,
        /// The link.
        link: UntrustedLink,
    },
    /// A client asked for what its grant does not allow.
    #[error("{demand} in {} is not allowed: the key that you logged in with is for {} only",
            terms.place(), terms.access.purpose())]
    NotGranted {
        /// The refused demand.
        demand: Demand,
        /// The terms of the grant.
        terms: GrantTerms,
    },
    /// A client went beyond a limit of its grant.
    #[error("{excess}: the limit '{}' of the key that you logged in with, in {}", excess.limit(), terms.place())]
    LimitExceeded {
        /// The step beyond the limit.
        excess: Excess,
        /// The terms of the grant.
        terms: GrantTerms,
    },
    /// A client's path leads out of the directory that was granted, or to a file of dsync's own in it.
    #[error("refusing {role} '{}': {step}{}", path.display(), start_of_paths(step))]
    LeadsOut {
        /// The purpose of the path.
        role: PathRole,
        /// The path as given.
        path: PathBuf,
        /// The step that does.
        step: LeadsOut,
    },
    /// The destination is the directory whose content would be copied.
    #[error("destination '{}' is the source itself; there is nothing to copy", path.display())]
    DestinationIsSource {
        /// The destination.
        path: PathBuf,
    },
    /// A directory would be copied into itself.
    #[error("destination '{}' lies inside the source; this would copy it into itself", path.display())]
    DestinationInsideSource {
        /// The destination.
        path: PathBuf,
    },
    /// A source is where `delete` would remove it.
    #[error("source '{}' lies inside the destination, where the run would remove it; nothing was changed",
            path.display())]
    SourceInsideDestination {
        /// The source.
        path: PathBuf,
    },
    /// A source operand has no entry, and with `delete` the destination would lose all of its own.
    #[error("the source of '{}' is empty but the destination has {entries} {}; nothing was deleted",
            path.display(),
            if *entries == 1 { "entry" } else { "entries" })]
    EmptySource {
        /// The directory at the destination.
        path: PathBuf,
        /// Number of its entries that would have been removed, without their content.
        entries: u64,
    },
    /// With `delete` the destination is a directory that nobody means to empty.
    #[error("refusing to delete in {}'{}'", if *home { "your home directory " } else { "" }, path.display())]
    DestinationPrecious {
        /// The destination.
        path: PathBuf,
        /// It is the user's home directory, not the root.
        home: bool,
    },
    /// Another run is writing to the destination.
    #[error("destination '{}' is in use by another dsync run", path.display())]
    Locked {
        /// The destination.
        path: PathBuf,
    },
    /// A filter pattern is malformed.
    #[error("bad pattern '{pattern}' at column {column}: {reason}")]
    BadPattern {
        /// The pattern, lossily decoded.
        pattern: String,
        /// 1-based byte position.
        column: usize,
        /// The fault of the pattern.
        reason: &'static str,
    },
    /// A path begins at the home directory of a user that its end does not have.
    #[error("there is no user '{user}' at the end where a path begins with '~{user}'")]
    UnknownHome {
        /// The name, lossily decoded.
        user: String,
    },
    /// An owner or group that entries are to get does not exist at the destination.
    #[error("the destination knows no {} named '{name}'; give a number, or make it first",
            if *group { "group" } else { "user" })]
    UnknownOwner {
        /// It is a group.
        group: bool,
        /// Its name, lossily decoded.
        name: String,
    },
    /// An end cannot work as the user that the run asks of it (`copy_as`).
    #[error("cannot work as user '{user}'{}", group.as_ref().map_or_else(String::new, |group| format!(" in group '{group}'")))]
    ActingUser {
        /// The user's name or number, lossily decoded.
        user: String,
        /// The group's, if one was named.
        group: Option<String>,
        /// The reason.
        #[source]
        source: ActingUserError,
    },
    /// The remote end could not be started or reached.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// This end, started as the remote one, was not reached by its client.
    #[error(transparent)]
    Accept(#[from] AcceptError),
    /// The connection broke during the run, or [no peer](LinkError::OtherProtocol) was at its other end.
    #[error("the connection broke")]
    Link(#[from] LinkError),
    /// The connection broke, and no other could be made or lasted.
    #[error("the connection was lost and {retries} {} to go on failed", if *retries == 1 { "try" } else { "tries" })]
    GaveUp {
        /// Tries in a row.
        retries: u32,
        /// The exit code of the error that broke the connection.
        exit_code: u8,
        /// The error of the last try.
        #[source]
        source: Box<Self>,
    },
    /// Nothing was heard from the peer for the timeout. The carrier may notice first: then it is
    /// [`Link`](Self::Link) with [`LinkError::TimedOut`], and the same exit code.
    #[error("no sign of life from the peer for {} s", after.as_secs())]
    Timeout {
        /// The timeout.
        after: Duration,
    },
    /// The peer shows signs of life, and nothing else has happened for long.
    #[error("the peer is there but nothing was done for {} s", after.as_secs())]
    Stalled {
        /// Time without progress.
        after: Duration,
    },
    /// The peer broke the protocol.
    #[error("protocol error: {0}")]
    PeerMisbehaved(#[from] PeerMisbehaved),
    /// The source sent something that its operands and the run's options do not ask for.
    #[error("the source sent {what}, which nobody asked for: {rule}")]
    NotAskedFor {
        /// The data that it sent, already free of control characters.
        what: String,
        /// The rule that it breaks.
        rule: &'static str,
    },
    /// The peer would make this end hold more memory than it may.
    #[error(transparent)]
    OverBudget(#[from] OverBudget),
    /// The peer gave up and said why.
    #[error("{text}")]
    Peer {
        /// The exit code that it asked for.
        exit_code: u8,
        /// Its message, unescaped: escape before printing.
        text: String,
        /// The kind of reason; of a peer that does not say, what its exit code tells.
        reason: Reason,
    },
    /// The filesystem failed in a way that ends the run (disk full, read-only, a failed sync).
    #[error("cannot {} '{}'", operation_words(*operation), path.display())]
    Filesystem {
        /// The operation that failed.
        operation: Operation,
        /// The path.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// A list outgrew memory, and no directory takes it as a temporary file.
    #[error("no directory for temporary files can be used, and {list} is too long for memory")]
    NoSpool {
        /// The list's name.
        list: &'static str,
    },
    /// A thread could not be started.
    #[error("cannot start a thread")]
    Thread {
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// The system gave no random numbers.
    #[error("the system gave no random numbers")]
    Random {
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// Cancelled by the caller of this end. The other end has [`Peer`](Self::Peer).
    #[error("cancelled")]
    Cancelled,
    /// Code of the program's panicked (an observer, a filter, a connector, an iterator, a rule of a grant),
    /// or the engine has a bug.
    #[error("code of the program, or the engine, panicked: {message}")]
    Aborted {
        /// The panic's message.
        message: String,
    },
}

/// The side that an error is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "snake_case"))]
pub enum Fault {
    /// The caller: the operands, the options, or a run that this end's program cancelled. A run that the other
    /// end's cancelled is [`Peer`](Self::Peer).
    Caller,
    /// This machine: a disk, a permission, a limit of the system.
    System,
    /// The way to the peer. [`SyncError::is_retryable`] says whether another try may help.
    Connection,
    /// The peer: it broke the protocol, went beyond what was asked or allowed, or gave up itself.
    Peer,
    /// Code of the program's that the engine called and that panicked (an observer, a filter, a connector, an
    /// iterator, a rule of a grant), or the engine, which has a bug then. The panic's message tells which.
    Engine,
}

/// The use that a run makes of a path.
///
/// ```
/// use dsync_engine::{PathRole, SyncError};
///
/// fn setting(error: &SyncError) -> Option<&'static str> {
///     match error {
///         SyncError::DirectoryUnusable { role: PathRole::Temporaries, .. } => {
///             Some("staging directory")
///         }
///         SyncError::DirectoryUnusable { role: PathRole::Backups, .. } => {
///             Some("directory of old versions")
///         }
///         _ => None,
///     }
/// }
/// # assert_eq!(setting(&SyncError::Cancelled), None);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum PathRole {
    /// A source operand.
    Source,
    /// The destination operand.
    Destination,
    /// The home of temporary files.
    Temporaries,
    /// The home of partial files.
    Partials,
    /// The home of backups.
    Backups,
    /// An alternate directory.
    Alternate(AlternateUse),
}

impl fmt::Display for PathRole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Source => "source",
            Self::Destination => "destination",
            Self::Temporaries => "directory for temporary files",
            Self::Partials => "directory for partial files",
            Self::Backups => "directory for backups",
            Self::Alternate(_) => "alternate directory",
        })
    }
}

/// Returns the words for where a client's paths start, behind a step that leads out.
fn start_of_paths(step: &LeadsOut) -> &'static str {
    if step.is_own_name() { "" } else { "; all paths start at the directory that the key is for" }
}

/// Returns paths as a list of quoted names.
fn quoted(paths: &[PathBuf]) -> String {
    let quoted: Vec<String> = paths.iter().map(|path| format!("'{}'", path.display())).collect();
    quoted.join(", ")
}

/// The words in which an end that serves tells its client why it ends the run.
///
/// A library knows facts; the command knows which option mends them, and the words of the remote
/// end are shown as they are. So the command at that end phrases its errors. The default is the
/// error and its causes.
///
/// ```
/// use dsync_engine::{SyncError, Wording};
///
/// // The client of a service reads no paths of the service's machine.
/// const WORDING: Wording = Wording::new(|error| match error {
///     SyncError::NotGranted { .. } | SyncError::LimitExceeded { .. } => error.to_string(),
///     _ => "the service has a problem; its log says more".into(),
/// });
/// # let _ = WORDING;
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Wording(fn(&SyncError) -> String);

impl Wording {
    /// Returns the wording of a function; at most 500 characters of its text are sent.
    pub const fn new(phrase: fn(&SyncError) -> String) -> Self {
        Self(phrase)
    }

    /// Phrases an error.
    pub(crate) fn phrase(self, error: &SyncError) -> String {
        self.0(error)
    }
}

impl Default for Wording {
    fn default() -> Self {
        Self(|error| with_causes(error))
    }
}

/// Returns an error's sentence and those of its causes.
pub(crate) fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        let cause_text = cause.to_string();
        // The standard library's decoration of system errors tells a person nothing.
        text.push_str(cause_text.split(" (os error ").next().unwrap_or(&cause_text));
        source = cause.source();
    }
    text
}

/// Returns an operation in the words of a message: "cannot ... 'path'".
///
/// ```
/// use dsync_engine::{Problem, error::operation_words};
///
/// /// Returns the line of a log for an entry that failed.
/// fn line(problem: &Problem) -> String {
///     format!("cannot {} '{}'", operation_words(problem.operation), problem.path)
/// }
/// # use dsync_engine::{Cause, Operation};
/// # let problem = Problem::new(Operation::Delete, "a", Cause::Os(13));
/// # assert!(line(&problem).ends_with(" 'a'"));
/// ```
pub fn operation_words(operation: Operation) -> &'static str {
    operation.words()
}

impl SyncError {
    /// Returns the error for a path that cannot be opened: the refusal of another user's link, or
    /// the error that `otherwise` makes.
    pub(crate) fn of_path(
        role: PathRole,
        path: &Path,
        source: io::Error,
        otherwise: impl FnOnce(PathBuf, io::Error) -> Self,
    ) -> Self {
        match UntrustedLink::of(&source) {
            Some(link) => Self::UntrustedLink { role, path: path.to_owned(), link: link.clone() },
            None => match LeadsOut::of(&source) {
                Some(step) => Self::LeadsOut { role, path: path.to_owned(), step: step.clone() },
                None => otherwise(path.to_owned(), source),
            },
        }
    }

    /// Returns the error of a stream that no link can be made of.
    pub(crate) fn of_stream(source: io::Error) -> Self {
        // The system's word for no more threads. A descriptor that cannot be waited for has another.
        match source.kind() {
            io::ErrorKind::WouldBlock => Self::Thread { source },
            _ => Self::Connector { source },
        }
    }

    /// Returns the error of a run whose own list, called `list`, cannot be kept.
    pub(crate) fn of_list(operation: Operation, list: &'static str, error: SpoolError) -> Self {
        let source = match error {
            SpoolError::NoPlace => return Self::NoSpool { list },
            SpoolError::Io { source } => source,
            other => io::Error::other(other),
        };
        Self::Filesystem { operation, path: list.into(), source }
    }

    /// Returns whether the same run may go well if it is started again later, with nothing mended: its
    /// connection broke or could not be made, also where the engine itself has
    /// [tried to go on](Self::GaveUp), or another run was using the destination.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Locked { .. } | Self::Peer { exit_code: exit_code::LOCKED, .. } => true,
            Self::GaveUp { source, .. } => source.is_retryable(),
            _ => self.may_reconnect(),
        }
    }

    /// Returns whether a new connection may bring the run to its end: this one broke, or the peer
    /// said so of its side, and nobody refused anything.
    pub(crate) fn may_reconnect(&self) -> bool {
        match self {
            Self::Link(LinkError::PeerClosed { reason }) => *reason == CloseReason::Failed,
            Self::Link(error) => error.is_retryable(),
            Self::Timeout { .. } | Self::Connector { .. } => true,
            Self::Peer { exit_code, .. } => matches!(*exit_code, exit_code::SOCKET | exit_code::TIMEOUT),
            Self::Connect(error) => error.is_retryable(),
            _ => false,
        }
    }

    /// Returns the text that the remote shell wrote to its standard error before it failed, a line
    /// each, escaped.
    pub fn shell_stderr(&self) -> &[String] {
        match self {
            Self::Connect(error) => error.shell_stderr(),
            Self::GaveUp { source, .. } => source.shell_stderr(),
            _ => &[],
        }
    }

    /// Returns who or what is to be mended before the same run can go well.
    pub fn fault(&self) -> Fault {
        match self {
            Self::InvalidOption { .. }
            | Self::InvalidPath { .. }
            | Self::BothRemote
            | Self::SourceMissing { .. }
            | Self::ListRootMissing { .. }
            | Self::AlternatesMissing { .. }
            | Self::DestinationParentMissing { .. }
            | Self::DestinationIsFile { .. }
            | Self::UntrustedLink { .. }
            | Self::NotGranted { .. }
            | Self::LimitExceeded { .. }
            | Self::LeadsOut { .. }
            | Self::DestinationIsSource { .. }
            | Self::DestinationInsideSource { .. }
            | Self::SourceInsideDestination { .. }
            | Self::EmptySource { .. }
            | Self::DestinationPrecious { .. }
            | Self::Locked { .. }
            | Self::BadPattern { .. }
            | Self::UnknownOwner { .. }
            | Self::ActingUser { .. }
            | Self::UnknownHome { .. }
            | Self::Batch(_)
            | Self::BatchOptions { .. }
            | Self::Cancelled => Fault::Caller,

            Self::SourceUnreadable { .. }
            | Self::RuleFile { .. }
            | Self::FileList { .. }
            | Self::Manifest(_)
            | Self::ManifestFile { .. }
            | Self::DestinationUnusable { .. }
            | Self::DirectoryUnusable { .. }
            | Self::Filesystem { .. }
            | Self::NoSpool { .. }
            | Self::Thread { .. }
            | Self::Random { .. } => Fault::System,

            Self::Link(LinkError::OtherProtocol { .. }) => Fault::Peer,
            Self::Connect(_)
            | Self::Connector { .. }
            | Self::Accept(_)
            | Self::Link(_)
            | Self::Timeout { .. }
            | Self::Stalled { .. } => Fault::Connection,

            Self::PeerMisbehaved(_) | Self::NotAskedFor { .. } | Self::OverBudget(_) | Self::Peer { .. } => {
                Fault::Peer
            }

            Self::GaveUp { source, .. } => source.fault(),
            Self::Aborted { .. } => Fault::Engine,
        }
    }

    /// Returns the kind of reason, which is the same at the end where something failed and at the one that
    /// hears of it.
    ///
    /// ```
    /// use dsync_engine::{Reason, SyncError};
    ///
    /// fn advice(error: &SyncError) -> &'static str {
    ///     match error.reason() {
    ///         Reason::NoSpace => "make room, at whichever end it is",
    ///         Reason::Busy => "try again when the other run is over",
    ///         Reason::NotGranted | Reason::Limit => "ask whoever runs the service",
    ///         _ => "see the message",
    ///     }
    /// }
    /// let error = SyncError::Locked { path: "/vault".into() };
    /// assert_eq!(advice(&error), "try again when the other run is over");
    /// ```
    pub fn reason(&self) -> Reason {
        match self {
            Self::Peer { reason, .. } => *reason,
            Self::GaveUp { source, .. } => source.reason(),
            Self::SourceMissing { .. }
            | Self::ListRootMissing { .. }
            | Self::DestinationParentMissing { .. }
            | Self::AlternatesMissing { .. } => Reason::Missing,
            Self::EmptySource { .. } => Reason::EmptySource,
            Self::NotGranted { .. } | Self::LeadsOut { .. } => Reason::NotGranted,
            Self::LimitExceeded { .. } => Reason::Limit,
            Self::Locked { .. } => Reason::Busy,
            Self::UntrustedLink { .. }
            | Self::DestinationIsSource { .. }
            | Self::DestinationInsideSource { .. }
            | Self::SourceInsideDestination { .. }
            | Self::DestinationPrecious { .. } => Reason::Unsafe,

            Self::SourceUnreadable { source, .. }
            | Self::DestinationUnusable { source, .. }
            | Self::DirectoryUnusable { source, .. }
            | Self::Filesystem { source, .. } => reason_of_system(source),
            Self::RuleFile { cause: Cause::Os(errno), .. } => {
                reason_of_system(&io::Error::from_raw_os_error(*errno))
            }
            Self::ActingUser { .. } => Reason::NoPermission,

            Self::PeerMisbehaved(PeerMisbehaved::OtherVersion { .. }) => Reason::Version,
            Self::PeerMisbehaved(_) | Self::NotAskedFor { .. } => Reason::Protocol,
            Self::OverBudget(_) | Self::NoSpool { .. } => Reason::Memory,
            Self::Timeout { .. } | Self::Stalled { .. } | Self::Link(LinkError::TimedOut) => Reason::Timeout,
            Self::Cancelled => Reason::Cancelled,
            Self::Aborted { .. } => Reason::Aborted,
            other => reason_of_fault(other),
        }
    }

    /// Returns the exit code that a command should end with.
    pub fn exit_code(&self) -> u8 {
        let code = match self {
            Self::InvalidOption { .. }
            | Self::InvalidPath { .. }
            | Self::BothRemote
            | Self::BatchOptions { .. }
            | Self::BadPattern { .. }
            | Self::DirectoryUnusable { .. }
            | Self::UnknownOwner { .. }
            | Self::ActingUser { .. }
            | Self::UnknownHome { .. } => exit_code::USAGE,
            // rsync's code for a source that is not there, alone or among others.
            Self::SourceMissing { .. } | Self::SourceUnreadable { .. } => exit_code::PARTIAL,
            Self::ListRootMissing { .. }
            | Self::AlternatesMissing { .. }
            | Self::DestinationParentMissing { .. }
            | Self::DestinationIsFile { .. } => exit_code::FILE_SELECTION,
            Self::DestinationUnusable { source, .. } => code_of_destination(source),
            Self::DestinationIsSource { .. }
            | Self::DestinationInsideSource { .. }
            | Self::SourceInsideDestination { .. }
            | Self::UntrustedLink { .. }
            | Self::NotGranted { .. }
            | Self::LimitExceeded { .. }
            | Self::LeadsOut { .. }
            | Self::EmptySource { .. }
            | Self::DestinationPrecious { .. } => exit_code::POLICY,
            Self::Locked { .. } => exit_code::LOCKED,
            Self::Connect(error) => error.exit_code(),
            Self::Accept(error) => error.exit_code(),
            Self::Timeout { .. } | Self::Stalled { .. } => exit_code::TIMEOUT,
            Self::Link(error) => code_of_link(error),
            Self::Connector { .. } => exit_code::SOCKET,

            Self::PeerMisbehaved(_)
            | Self::NotAskedFor { .. }
            | Self::OverBudget(_)
            | Self::Aborted { .. } => exit_code::STREAM,
            Self::Peer { exit_code, .. } | Self::GaveUp { exit_code, .. } => *exit_code,
            // As rsync: there is nothing to begin with.
            Self::FileList {
                source: FileListError::Read(_) | FileListError::NoNames | FileListError::TooLong { .. },
                ..
            } => exit_code::USAGE,
            Self::FileList { .. }
            | Self::Manifest(_)
            | Self::ManifestFile { .. }
            | Self::RuleFile { .. }
            | Self::Filesystem { .. }
            | Self::NoSpool { .. }
            | Self::Random { .. } => exit_code::FILE_IO,
            Self::Thread { .. } => exit_code::MEMORY,

            Self::Batch(error) => error.exit_code(),
            Self::Cancelled => exit_code::INTERRUPTED,
        };

        // A peer may ask for any code, but an error is never a success.
        if code == exit_code::OK { exit_code::STREAM } else { code }
    }
}

/// Returns the reason of an error that has none of its own, by who is to mend it.
fn reason_of_fault(error: &SyncError) -> Reason {
    match (error.exit_code(), error.fault()) {
        (exit_code::INCOMPATIBLE, _) => Reason::Version,
        (exit_code::LOCKED, _) => Reason::Busy,
        (_, Fault::Caller) => Reason::Invalid,
        (_, Fault::System) => Reason::System,
        (_, Fault::Connection) => Reason::Connection,
        (_, Fault::Peer) => Reason::Protocol,
        (_, Fault::Engine) => Reason::Aborted,
    }
}

/// Returns the reason that an error of the system stands for.
pub(crate) fn reason_of_system(error: &io::Error) -> Reason {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Reason::NoSpace,
        io::ErrorKind::PermissionDenied => Reason::NoPermission,
        io::ErrorKind::ReadOnlyFilesystem => Reason::ReadOnly,
        io::ErrorKind::NotFound => Reason::Missing,
        _ => Reason::System,
    }
}

/// Returns the exit code for a destination that cannot be used: one without room is no wrong one.
fn code_of_destination(source: &io::Error) -> u8 {
    match source.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => exit_code::FILE_IO,
        _ => exit_code::FILE_SELECTION,
    }
}

/// Returns the exit code for a connection that ended.
fn code_of_link(error: &LinkError) -> u8 {
    match error {
        LinkError::TimedOut => exit_code::TIMEOUT,
        // Over a pipe the carrier's bytes are the peer's own.
        LinkError::Carrier { carrier: Carrier::Ssh | Carrier::Stream, .. }
        | LinkError::OtherProtocol { .. } => exit_code::STREAM,
        _ => exit_code::SOCKET,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_that_gave_up_is_the_fault_of_what_ended_its_last_try() {
        let gave_up = |source| SyncError::GaveUp { retries: 2, exit_code: 30, source: Box::new(source) };
        let silent = SyncError::Timeout { after: Duration::from_secs(1) };
        assert_eq!(gave_up(silent).fault(), Fault::Connection);
        assert_eq!(gave_up(PeerMisbehaved::NoOperands.into()).fault(), Fault::Peer);
        assert_eq!(SyncError::BothRemote.fault(), Fault::Caller);
    }

    #[test]
    fn a_destination_without_room_ends_with_the_code_of_a_full_disk() {
        let code = |kind: io::ErrorKind| {
            SyncError::DestinationUnusable { path: "new".into(), source: kind.into() }.exit_code()
        };
        assert_eq!(code(io::ErrorKind::StorageFull), exit_code::FILE_IO);
        assert_eq!(code(io::ErrorKind::QuotaExceeded), exit_code::FILE_IO);
        assert_eq!(code(io::ErrorKind::PermissionDenied), exit_code::FILE_SELECTION);
    }

    #[test]
    fn a_program_tries_more_again_than_the_engine_goes_on_after() {
        let lost = || SyncError::Link(LinkError::Lost);
        let gave_up = SyncError::GaveUp { retries: 5, exit_code: 10, source: Box::new(lost()) };
        let locked = SyncError::Locked { path: "/vault".into() };
        let locked_there =
            SyncError::Peer { exit_code: exit_code::LOCKED, text: String::new(), reason: Reason::Busy };
        assert!(lost().is_retryable() && lost().may_reconnect());
        for error in [gave_up, locked, locked_there] {
            assert!(error.is_retryable() && !error.may_reconnect(), "{error:?}");
        }
        for error in [SyncError::BothRemote, SyncError::Cancelled, PeerMisbehaved::NoOperands.into()] {
            assert!(!error.is_retryable() && !error.may_reconnect(), "{error:?}");
        }
    }
}
