//! The remote side (`dsync --server`): the other end of [`connect`](crate::connect()).

use std::{os::fd::OwnedFd, time::Duration};

use dsync_wire::link::Link;

use crate::AcceptError;

/// How [`accept()`] goes about it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct AcceptOptions {
    /// The value of the `SSH_CONNECTION` variable: which of this host's addresses the client reached.
    pub ssh_connection: Option<String>,
    /// Longest silence of the peer before the link counts as lost; at least 1 s. Default 60 s.
    pub idle_timeout: Duration,
}

impl Default for AcceptOptions {
    fn default() -> Self {
        Self {
            ssh_connection: None,
            idle_timeout: Duration::from_secs(60),
        }
    }
}

/// Makes a link to the client whose remote shell holds the other ends of `input` and `output`.
///
/// # Errors
/// [`AcceptError`].
pub fn accept(
    input: OwnedFd,
    output: OwnedFd,
    options: &AcceptOptions,
) -> Result<Box<dyn Link>, AcceptError> {
    let _ = (input, output, options);
    Err(AcceptError::System {
        source: std::io::ErrorKind::Unsupported.into(),
    })
}
