//! The side that starts a run: remote shell, bootstrap, choice of the carrier.

use std::time::Duration;

use dsync_wire::link::Link;

use crate::{ConnectError, RemoteShell, TransportChoice};

/// How [`connect()`] goes about it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConnectOptions {
    /// Which carrier to use. Default [`TransportChoice::Auto`].
    pub transport: TransportChoice,
    /// Longest silence of the peer before the link counts as lost; at least 1 s. Default 60 s.
    pub idle_timeout: Duration,
    /// How long to wait for an answer over UDP. Default 2 s.
    pub quic_wait: Duration,
    /// How long the remote shell may take until the remote dsync answers. Default 300 s: a person may be
    /// typing a password, so it is longer than the 127 s in which Linux gives up connecting and the
    /// 120 s that sshd gives for logging in; its use is that a job without a person ends at all.
    pub greeting_timeout: Duration,
}

impl Default for ConnectOptions {
    fn default() -> Self {
        Self {
            transport: TransportChoice::Auto,
            idle_timeout: Duration::from_secs(60),
            quic_wait: Duration::from_secs(2),
            greeting_timeout: Duration::from_secs(300),
        }
    }
}

/// A link to a remote dsync.
#[non_exhaustive]
pub struct Connected {
    /// The link.
    pub link: Box<dyn Link>,
    /// Why QUIC does not carry it although it might have, in words for the summary.
    pub fallback: Option<String>,
}

/// Starts dsync on another host and makes a link to it.
///
/// # Errors
/// [`ConnectError`].
pub fn connect(shell: &RemoteShell, options: &ConnectOptions) -> Result<Connected, ConnectError> {
    let _ = (shell, options);
    Err(ConnectError::System {
        source: std::io::ErrorKind::Unsupported.into(),
    })
}

impl Connected {
    /// The last lines that the remote shell or the remote dsync wrote to standard error.
    pub fn remote_stderr(&self) -> String {
        String::new()
    }
}
