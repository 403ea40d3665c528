//! The way to the other end of a run: a remote shell, or a connection of the caller's own.

#[cfg(feature = "ssh")]
mod shell;

use std::{io, sync::Arc};

use dsync_transport::{Carriers, Sides, Stream, StreamEnd, Throttle, paced, shared_link, throttled};
use dsync_wire::{budget::Budget, link::Link};

#[cfg(feature = "ssh")]
pub use self::shell::{ask_host, host_command_line};
use crate::{
    CancelToken, ConnectOptions, Observer, RemoteHost, SyncError, callbacks::caught, observe::Connection,
};

/// Makes the connections of a run whose other end is a [`Server`](crate::Server) of the same
/// program's making: the first one, and another one whenever one broke. A closure is one.
///
/// A stream that others can reach must be authenticated and encrypted: the engine trusts it as it
/// trusts the pipe to ssh.
///
/// ```
/// use std::{io, os::unix::net::UnixStream, path::PathBuf};
///
/// use dsync_engine::{CancelToken, Connector, Stream};
///
/// /// The way to a service on this machine; a closure does as well.
/// struct Socket(PathBuf);
///
/// impl Connector for Socket {
///     fn connect(&self, cancel: &CancelToken) -> io::Result<Stream> {
///         if cancel.is_cancelled() {
///             return Err(io::ErrorKind::Interrupted.into());
///         }
///         Stream::from_socket(UnixStream::connect(&self.0)?)
///     }
/// }
/// # assert!(Socket("/no/such/socket".into()).connect(&CancelToken::new()).is_err());
/// ```
pub trait Connector: Sync {
    /// Connects. `cancel` is the run's: a call that may take long looks at it.
    ///
    /// # Errors
    /// The reason; the run ends with [`SyncError::Connector`], or tries again if a session had
    /// begun and [`ConnectOptions::retries`] are left.
    fn connect(&self, cancel: &CancelToken) -> io::Result<Stream>;
}

impl<F> Connector for F
where
    F: Fn(&CancelToken) -> io::Result<Stream> + Sync,
{
    fn connect(&self, cancel: &CancelToken) -> io::Result<Stream> {
        self(cancel)
    }
}

/// The way that a run takes.
#[derive(Clone, Copy)]
pub(crate) enum Way<'a> {
    /// The remote shell to a host, and the carrier that it leads to.
    #[cfg(feature = "ssh")]
    Shell(&'a RemoteHost),
    /// A connection of the caller's.
    Own(&'a dyn Connector),
}

/// The other end of a run, once it is reached.
pub(crate) struct Reached {
    pub(crate) link: Arc<dyn Link>,
    pub(crate) connection: Connection,
    #[cfg(feature = "ssh")]
    shell: Option<dsync_transport::Connected>,
}

impl Reached {
    /// Returns the error of a session that did not begin: a way that went ahead of the server's
    /// answer may know why the link ended.
    pub(crate) fn explain(&self, error: SyncError) -> SyncError {
        #[cfg(feature = "ssh")]
        if let (SyncError::Link(_), Some(shell)) = (&error, &self.shell)
            && let Some(refusal) = shell.refusal()
        {
            return refusal.into();
        }
        error
    }
}

impl<'a> Way<'a> {
    /// Returns the way to a host.
    #[cfg(feature = "ssh")]
    #[expect(clippy::unnecessary_wraps, reason = "a build without ssh has no such way")]
    pub(crate) fn shell(host: &'a RemoteHost) -> Result<Self, SyncError> {
        Ok(Self::Shell(host))
    }

    /// Refuses: this build has no way to a host.
    #[cfg(not(feature = "ssh"))]
    pub(crate) fn shell(host: &'a RemoteHost) -> Result<Self, SyncError> {
        let why = format!("'{}' is another host, and this program was built without ssh", host.host);
        Err(SyncError::InvalidOption { option: "host", why })
    }

    /// Connects; data of the peer that waits for a reader is taken from `budget`.
    pub(crate) fn connect(
        self,
        options: &ConnectOptions,
        (budget, throttle, carriers): (&Arc<Budget>, Option<&Throttle>, &Carriers),
        (observer, cancel): (&dyn Observer, &CancelToken),
    ) -> Result<Reached, SyncError> {
        #[cfg(not(feature = "ssh"))]
        let _ = observer;
        match self {
            #[cfg(feature = "ssh")]
            Self::Shell(host) => {
                let shell = shell::connect(host, options, (budget, throttle, carriers), (observer, cancel))?;
                let link = Arc::clone(&shell.link);
                let (carrier, reason) = (link.carrier(), shell.reason.clone());
                let connection = Connection { carrier, reason, moves: Vec::new() };
                Ok(Reached { link, connection, shell: Some(shell) })
            }
            Self::Own(connector) => {
                let link = own(connector, options, (budget, carriers), cancel)?;
                let link = match throttle {
                    Some(throttle) => throttled(link, throttle, Sides::Both),
                    None => paced(link, options.bytes_per_second),
                };

                let connection = Connection { carrier: link.carrier(), reason: None, moves: Vec::new() };
                Ok(Reached {
                    link,
                    connection,
                    #[cfg(feature = "ssh")]
                    shell: None,
                })
            }
        }
    }
}

/// Asks the caller for a connection.
fn own(
    connector: &dyn Connector,
    options: &ConnectOptions,
    (budget, carriers): (&Arc<Budget>, &Carriers),
    cancel: &CancelToken,
) -> Result<Arc<dyn Link>, SyncError> {
    let connect = || {
        let stream = connector.connect(cancel).map_err(|source| SyncError::Connector { source })?;
        let (end, budget) = (StreamEnd::Controller, Arc::clone(budget));
        let link = shared_link(stream, carriers, end, options.timeout, budget);
        link.map_err(SyncError::of_stream)
    };
    let connected = caught(|| Ok(connect()))?;
    if cancel.is_cancelled() {
        return Err(SyncError::Cancelled);
    }
    connected
}
