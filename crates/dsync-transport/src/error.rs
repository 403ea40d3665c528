//! Reasons why no link was made: [`ConnectError`] on the side that starts a run, [`AcceptError`] on
//! the remote one.
//!
//! Texts in the fields come from outside; they are already escaped and bounded.

use std::{
    io,
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use dsync_wire::{
    bootstrap::{BootstrapError, PortRange},
    error::PeerText,
    link::LinkError,
};

/// The reason why [`connect`](crate::connect()) made no link.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// An option parser or a shell could misread the host or user; nothing was started.
    #[error("refusing {what} '{text}': {reason}")]
    UnsafeName {
        /// "host" or "user".
        what: &'static str,
        /// The name.
        text: String,
        /// The fault in the name.
        reason: &'static str,
    },
    /// The remote shell's program does not exist, or none was configured.
    #[error("remote shell '{program}' not found")]
    ShellNotFound {
        /// The program.
        program: String,
    },
    /// The remote shell's program could not be started.
    #[error("cannot start remote shell '{program}'")]
    ShellNotStarted {
        /// The program.
        program: String,
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// The caller gave up ([`Abandon`](crate::Abandon)).
    #[error("given up while connecting")]
    Abandoned,
    /// The remote shell ended before the remote dsync answered.
    #[error("{program} {status}{}{}", if stderr.is_empty() { "" } else { ": " }, stderr.last().map_or("", String::as_str))]
    ShellFailed {
        /// The program.
        program: String,
        /// Its end, as in "exited 255" or "was killed by signal 9".
        status: ShellStatus,
        /// The lines of its standard error, escaped; the last 8 KiB.
        stderr: Vec<String>,
    },
    /// The remote side does not have the program.
    #[error("'{program}' not found on {host}")]
    RemoteProgramMissing {
        /// The remote command.
        program: String,
        /// The host.
        host: String,
    },
    /// The remote command ended well without any output, so it was not dsync.
    #[error("'{program}' on {host} ended without a greeting; it is not dsync")]
    NoGreeting {
        /// The remote command.
        program: String,
        /// The host.
        host: String,
    },
    /// Something wrote to the standard output before dsync did.
    #[error("unexpected text from {host} before the greeting: '{text}' (check shell start-up files)")]
    Noise {
        /// The host.
        host: String,
        /// The beginning of the text.
        text: String,
    },
    /// The remote program answered, but not as dsync does.
    #[error("{host} does not speak dsync")]
    NotDsync {
        /// The host.
        host: String,
        /// The fault in the answer; `None` if it is not a greeting at all.
        #[source]
        source: Option<BootstrapError>,
    },
    /// The two programs have no protocol version or feature in common.
    #[error("dsync on {host} and this one do not understand each other")]
    Incompatible {
        /// The host.
        host: String,
        /// The side that lacks something, and what it lacks.
        #[source]
        source: BootstrapError,
    },
    /// The remote dsync refused to serve.
    #[error("{host} refused: {text}")]
    Refused {
        /// The host.
        host: String,
        /// Exit code from the remote dsync.
        exit_code: u8,
        /// Its explanation; escaped when shown.
        text: PeerText,
    },
    /// The remote dsync did not answer in time.
    #[error(
        "no greeting from {host} within {} s{}{}",
        after.as_secs(),
        if stderr.is_empty() { "" } else { ": " },
        stderr.last().map_or("", String::as_str)
    )]
    GreetingTimeout {
        /// The host.
        host: String,
        /// The limit.
        after: Duration,
        /// The lines of the remote shell's standard error, escaped; the last 8 KiB.
        stderr: Vec<String>,
    },
    /// The host did not answer a command in time ([`RemoteShell::ask`](crate::RemoteShell::ask)).
    #[error("no answer from {host} within {} s", after.as_secs())]
    NoAnswer {
        /// The host.
        host: String,
        /// The limit.
        after: Duration,
    },
    /// The host's answer to a command is no answer to it: it is too long.
    #[error("{host} answered with more than {most} bytes")]
    LongAnswer {
        /// The host.
        host: String,
        /// The limit.
        most: usize,
    },
    /// The port of the demanded carrier did not answer.
    #[error(
        "no answer on {protocol} {} within {} s",
        place(host, *address, *port),
        after.as_secs_f32()
    )]
    PortBlocked {
        /// The host.
        host: String,
        /// "UDP" or "TCP".
        protocol: &'static str,
        /// The address that ssh had reached, if known.
        address: Option<IpAddr>,
        /// The port that the remote dsync listens on.
        port: u16,
        /// Time that this end waited.
        after: Duration,
    },
    /// No address is known for certain to lead to the host that ssh reached.
    #[error("{protocol} cannot be used to {host}: {reason}")]
    OnlyPipe {
        /// The host.
        host: String,
        /// "UDP" or "TCP".
        protocol: &'static str,
        /// The reason.
        reason: &'static str,
    },
    /// The remote side could not open the port of the demanded carrier.
    #[error("{host} offers no {protocol} port")]
    PortUnavailable {
        /// The host.
        host: String,
        /// "UDP" or "TCP".
        protocol: &'static str,
    },
    /// A peer showed another key than the one announced over ssh.
    #[error("the {protocol} peer at {address} does not have the key that {host} announced; nothing was sent")]
    PeerKeyMismatch {
        /// The host.
        host: String,
        /// "UDP" or "TCP".
        protocol: &'static str,
        /// Address of the peer.
        address: SocketAddr,
    },
    /// The remote dsync was reached but rejected this client: its key or token was not accepted.
    #[error("{host} did not accept this client over {protocol}")]
    KeyRefused {
        /// The host.
        host: String,
        /// "UDP" or "TCP".
        protocol: &'static str,
        /// The end of the connection.
        #[source]
        source: LinkError,
    },
    /// The operating system refused a resource that a link needs (a thread, a socket, a pipe).
    #[error("cannot set up the connection")]
    System {
        /// The system's error.
        #[source]
        source: io::Error,
    },
}

fn place(host: &str, address: Option<IpAddr>, port: u16) -> String {
    address.map_or_else(|| format!("{host}:{port}"), |address| SocketAddr::new(address, port).to_string())
}

/// The end of the remote shell's process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ShellStatus {
    /// The exit code.
    Exited(i32),
    /// The signal that killed it.
    Killed(i32),
    /// None yet: it closed its output but did not end.
    Silent,
}

impl std::fmt::Display for ShellStatus {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Exited(code) => write!(f, "exited {code}"),
            Self::Killed(signal) => write!(f, "was killed by signal {signal}"),
            Self::Silent => f.write_str("closed its output"),
        }
    }
}

impl ConnectError {
    /// Returns what the remote shell wrote to its standard error before it failed, a line each,
    /// escaped.
    pub fn shell_stderr(&self) -> &[String] {
        match self {
            Self::ShellFailed { stderr, .. } | Self::GreetingTimeout { stderr, .. } => stderr,
            _ => &[],
        }
    }

    /// Returns whether the same attempt may succeed later: the network or the host may be back by
    /// then. Nothing that was refused or answered wrongly is worth asking again.
    pub fn is_retryable(&self) -> bool {
        match self {
            // ssh exits with 255 for all failures of its own; the server's refusals are told by
            // their words.
            Self::ShellFailed { status, stderr, .. } => {
                let busy = i32::from(BUSY);
                let by_itself = match status {
                    // A session that broke may still hold the place of this one, and a host that was silent may
                    // answer.
                    ShellStatus::Exited(code) => [255, busy, i32::from(SILENT)].contains(code),
                    status => matches!(status, ShellStatus::Killed(_)),
                };
                let refused = |line: &String| REFUSALS.iter().any(|words| line.contains(words));
                by_itself && !stderr.iter().any(refused)
            }
            // The session that broke may still hold the place of this one.
            Self::Refused { exit_code, .. } => *exit_code == BUSY,
            Self::GreetingTimeout { .. }
            | Self::NoAnswer { .. }
            | Self::PortBlocked { .. }
            | Self::System { .. } => true,
            _ => false,
        }
    }

    /// Returns whether the other end has no room for another session now.
    ///
    /// ```
    /// use dsync_transport::{ConnectError, ShellStatus};
    ///
    /// let status = ShellStatus::Exited(41);
    /// let error = ConnectError::ShellFailed { program: "dsync".to_owned(), status, stderr: Vec::new() };
    /// assert!(error.is_busy());
    /// ```
    pub fn is_busy(&self) -> bool {
        match self {
            Self::ShellFailed { status, .. } => *status == ShellStatus::Exited(BUSY.into()),
            Self::Refused { exit_code, .. } => *exit_code == BUSY,
            _ => false,
        }
    }

    /// Returns the exit code for a command: rsync's numbers where the meaning matches.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::UnsafeName { .. } => 1,
            Self::ShellNotFound { .. } | Self::ShellNotStarted { .. } => 14,
            // ssh's own failures, and what a shell says of a command that it cannot run or find.
            Self::ShellFailed { status: ShellStatus::Exited(code @ (126 | 127 | 255)), .. } => {
                u8::try_from(*code).unwrap_or(u8::MAX)
            }
            Self::RemoteProgramMissing { .. } => 127,
            Self::ShellFailed { .. }
            | Self::NoGreeting { .. }
            | Self::NotDsync { .. }
            | Self::LongAnswer { .. } => 12,
            Self::Incompatible { .. } | Self::Noise { .. } => 2,
            Self::Refused { exit_code, .. } => *exit_code,

            Self::GreetingTimeout { .. }
            | Self::NoAnswer { .. }
            | Self::PortBlocked { .. }
            | Self::OnlyPipe { .. }
            | Self::PortUnavailable { .. } => 35,
            Self::Abandoned => 20,
            Self::PeerKeyMismatch { .. } | Self::KeyRefused { .. } => 40,
            Self::System { .. } => 10,
        }
    }
}

/// The exit code of a server that has no room for now.
const BUSY: u8 = 41;
/// The exit code of a program in ssh's place whose server has not answered in time.
const SILENT: u8 = 35;
/// Messages of an ssh that reached a server and was not let in, or did not trust it.
const REFUSALS: [&str; 3] =
    ["Permission denied", "Host key verification failed", "Too many authentication failures"];

/// The reason why [`accept`](crate::accept()) made no link.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AcceptError {
    /// The client's end of the pipe closed before a link was made.
    #[error("the client went away before the session began")]
    ClientGone,
    /// The client's greeting is invalid.
    #[error("the client does not speak dsync")]
    NotDsync {
        /// The fault in the greeting.
        #[source]
        source: BootstrapError,
    },
    /// The two programs have no protocol version or feature in common; the client has been told.
    #[error("the client's dsync and this one do not understand each other")]
    Incompatible,
    /// The client chose a carrier that it did not offer or did not reach.
    #[error("the client chose a carrier that it had not reached")]
    WrongChoice,
    /// The client sent nothing for the bootstrap's window.
    #[error("no word from the client within {} s", after.as_secs())]
    TimedOut {
        /// The window.
        after: Duration,
    },
    /// Reading or writing the standard streams failed.
    #[error("cannot use the standard streams")]
    Pipe {
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// None of the ports that the client allows is free; the client has been told.
    #[error("no port in {ports} is free")]
    NoPort {
        /// The ports.
        ports: PortRange,
    },
    /// The operating system refused a resource that a link needs.
    #[error("cannot set up the connection")]
    System {
        /// The system's error.
        #[source]
        source: io::Error,
    },
}

impl AcceptError {
    /// Returns the exit code for `dsync --server`.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::TimedOut { .. } => 30,
            Self::NotDsync { .. } | Self::WrongChoice => 12,
            Self::Incompatible => 2,
            Self::ClientGone | Self::Pipe { .. } | Self::NoPort { .. } | Self::System { .. } => 10,
        }
    }
}
