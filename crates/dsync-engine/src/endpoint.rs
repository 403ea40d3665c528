//! The two ends of a run and how it is started: [`Source`], [`Destination`], [`Job`], [`serve`].

use std::{ffi::OsString, os::fd::OwnedFd, path::PathBuf, time::Duration};

use dsync_transport::TransportChoice;
use dsync_wire::options::SyncOptions;

use crate::{CancelToken, Observer, Summary, SyncError};

/// Where the new files are.
///
/// Paths keep rsync's trailing-slash rule: `dir` is copied as an entry named `dir`, `dir/` (and `.`,
/// `dir/.`) stands for what is in it. Several paths are merged into one tree; where two bring the
/// same name the first wins, and directories are joined.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Source {
    /// On this machine.
    Local {
        /// One or more paths.
        paths: Vec<PathBuf>,
    },
    /// On another host.
    Remote {
        /// The host.
        host: RemoteHost,
        /// One or more paths; relative ones start at the remote home directory.
        paths: Vec<OsString>,
    },
}

/// Where the files go.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Destination {
    /// On this machine.
    Local {
        /// A directory; or, for one source that is not a directory, the name of a file.
        path: PathBuf,
    },
    /// On another host.
    Remote {
        /// The host.
        host: RemoteHost,
        /// As for [`Destination::Local`]; relative paths start at the remote home directory.
        path: OsString,
    },
}

/// A host as ssh is to be told of it. Made by [`Operand::parse`](crate::Operand::parse), which refuses
/// what could be read as an option or by a shell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemoteHost {
    /// Login name, when given.
    pub user: Option<String>,
    /// Host name, ssh alias or address (IPv6 without brackets).
    pub host: String,
}

/// How a remote end is started and reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConnectOptions {
    /// The remote shell and its arguments, before the host. Default `["ssh"]`.
    pub shell: Vec<OsString>,
    /// The command that starts dsync on the remote host, as its shell reads it. Default `dsync`.
    pub remote_program: String,
    /// Which carrier to use. Default [`TransportChoice::Auto`].
    pub transport: TransportChoice,
    /// Longest silence of the peer before the run ends with exit code 30; at least 1 s. Default 60 s:
    /// both ends send a sign of life every second whatever they are busy with.
    pub timeout: Duration,
}

impl Default for ConnectOptions {
    fn default() -> Self {
        Self {
            shell: vec!["ssh".into()],
            remote_program: "dsync".into(),
            transport: TransportChoice::Auto,
            timeout: Duration::from_secs(60),
        }
    }
}

/// One run, described but not started.
#[derive(Debug, Clone)]
pub struct Job {
    source: Source,
    destination: Destination,
    options: SyncOptions,
    connect: ConnectOptions,
}

impl Job {
    /// Describes a run with default options (see [`SyncOptions`]: nothing recursive, nothing preserved).
    pub fn new(source: Source, destination: Destination) -> Self {
        Self { source, destination, options: SyncOptions::default(), connect: ConnectOptions::default() }
    }

    /// Sets the run's policy.
    #[must_use]
    pub fn options(mut self, options: SyncOptions) -> Self {
        self.options = options;
        self
    }

    /// Sets how a remote end is reached.
    #[must_use]
    pub fn connect(mut self, connect: ConnectOptions) -> Self {
        self.connect = connect;
        self
    }

    /// Carries the run out on the calling thread and the engine's own, and returns when it is over and,
    /// under the default durability, on the disk.
    ///
    /// # Errors
    /// [`SyncError`] when the run could not start or not go on; what failed for single entries is in
    /// the summary and the events instead.
    pub fn run(self, observer: &dyn Observer, cancel: &CancelToken) -> Result<Summary, SyncError> {
        let _ = (observer, cancel, &self.source, &self.destination, &self.options, &self.connect);
        Err(SyncError::Cancelled)
    }
}

/// Serves one session as the remote end (`dsync --server`): the bootstrap comes in on `input`, answers
/// go out on `output`; returns when the session is over.
///
/// `ssh_connection` is the value of the `SSH_CONNECTION` variable, from which the address that the
/// client really reached is taken.
///
/// # Errors
/// [`SyncError`]; the peer has been told, where it could be.
pub fn serve(input: OwnedFd, output: OwnedFd, ssh_connection: Option<&str>) -> Result<(), SyncError> {
    let _ = (input, output, ssh_connection);
    Err(SyncError::Cancelled)
}
