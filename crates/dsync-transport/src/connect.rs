//! The side that starts a run: remote shell, bootstrap, choice of the carrier.
//!
//! One round trip over ssh, then the QUIC handshake. Everything that ssh does (aliases, ports, keys,
//! passwords, jump hosts) is ssh's; the address for QUIC is the one that ssh really reached, as the
//! remote side was told it, and the addresses of the host's name second.

use std::{fmt, net::SocketAddr, os::fd::OwnedFd, sync::Arc, time::Duration};

use dsync_wire::{
    bootstrap::{
        BootstrapError, BootstrapMessage, ClientBootstrap, ClientChoice, Fingerprint, MAGIC, ServerBootstrap,
        Token, Transports, VersionRange,
    },
    link::{Carrier, CloseReason, Lane, Link, LinkError, Traffic},
    version::FEATURES,
};
use quinn::{Connection, Endpoint};
use tokio::time::timeout;

use crate::{
    ConnectError, RemoteShell, TransportChoice,
    accept::SHORTEST_IDLE,
    error::ShellStatus,
    greeting::{GreetingError, receive, send},
    mux::{MuxLink, Role},
    pipe::{self, PipeReader, PipeWriter},
    quic::{
        QuicLink,
        handshake::{DialError, Dialer, dial},
        identity::Identity,
        link_error,
    },
    reactor::Reactor,
    shell::ShellProcess,
    text::printable,
};

/// How [`connect()`] goes about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConnectOptions {
    /// Which carrier to use. Default [`TransportChoice::Auto`].
    pub transport: TransportChoice,
    /// Longest silence of the peer before the link counts as lost; less than 3 s counts
    /// as 3 s. Default 60 s.
    pub idle_timeout: Duration,
    /// How long to wait for an answer over UDP. Default 2 s; more than 20 s counts as 20 s, because the
    /// remote side waits 30 s for what comes of it.
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
    /// The link. It holds the remote shell's process: dropping the last handle waits for that to end (2 s at
    /// most, then it is killed), and whatever else is left of this struct may go before or after.
    pub link: Arc<dyn Link>,
    /// Why QUIC does not carry it although it might have, in words for the summary; `None` when it does
    /// or was not wanted.
    pub fallback: Option<String>,
    process: Arc<ShellProcess>,
}

impl Connected {
    /// The last lines that the remote shell or the remote dsync wrote to standard error so far, escaped,
    /// oldest first; 8 KiB at most.
    pub fn remote_stderr(&self) -> Vec<String> {
        self.process.last_lines()
    }
}

impl fmt::Debug for Connected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connected")
            .field("carrier", &self.link.carrier())
            .field("fallback", &self.fallback)
            .finish_non_exhaustive()
    }
}

/// Starts dsync on another host and makes a link to it.
///
/// Blocks while ssh connects and asks whatever it has to ask (it uses the terminal for that, not the
/// pipes), up to [`ConnectOptions::greeting_timeout`], then for [`ConnectOptions::quic_wait`] at most.
/// The remote shell's standard error is not shown; see [`Connected::remote_stderr`].
///
/// # Errors
/// [`ConnectError`]; nothing is left running.
///
/// # Security
/// Only public keys and a token of one use cross the pipe, and nothing secret is in an argument or the
/// environment. A UDP peer without the very key that was announced over ssh gets no byte of the session.
pub fn connect(shell: &RemoteShell, options: &ConnectOptions) -> Result<Connected, ConnectError> {
    let system = |source| ConnectError::System { source };
    let (process, input, output) = ShellProcess::start(shell)?;
    let reactor = Reactor::start().map_err(system)?;
    let mut options = options.clone();
    options.quic_wait = options.quic_wait.min(LONGEST_QUIC_WAIT);
    let options = &options;
    let bootstrap = Bootstrap { host: shell.host.clone(), options: options.clone() };
    let outcome = reactor.run(async move { bootstrap.run(input, output).await });
    let agreed = match outcome {
        Some(Ok(agreed)) => agreed,
        Some(Err(failure)) => return Err(failure.explain(shell, options, &process)),
        // A task panicked; the hook has printed where.
        None => return Err(Failure::Ended { seen: Vec::new() }.explain(shell, options, &process)),
    };
    let idle_timeout = options.idle_timeout.max(SHORTEST_IDLE);
    let process = Arc::new(process);
    let link: Box<dyn Link> = match agreed.quic {
        Some((connection, endpoint)) => {
            Box::new(QuicLink::start(reactor, connection, endpoint, agreed.reader, agreed.writer))
        }
        None => Box::new(MuxLink::start(reactor, agreed.reader, agreed.writer, Role::Client, idle_timeout)),
    };
    let link = Arc::new(ShellLink { link, process: Arc::clone(&process) });
    Ok(Connected { link, fallback: agreed.fallback, process })
}

/// What the two ends agreed on.
struct Agreed {
    reader: PipeReader,
    writer: PipeWriter,
    /// The connection, when QUIC carries the session.
    quic: Option<(Connection, Endpoint)>,
    fallback: Option<String>,
}

/// The client's side of the bootstrap.
struct Bootstrap {
    host: String,
    options: ConnectOptions,
}

impl Bootstrap {
    async fn run(self, input: OwnedFd, output: OwnedFd) -> Result<Agreed, Failure> {
        let identity = Identity::generate().map_err(|error| Failure::System(std::io::Error::other(error)))?;
        let offered = self.offer(identity.fingerprint())?;
        // What the shell writes is what is read here.
        let (mut reader, mut writer) = pipe::open(output, input).map_err(Failure::System)?;
        let limit = self.options.greeting_timeout;
        let greeting = timeout(limit, self.greet(&offered, &mut reader, &mut writer)).await;
        let server = match greeting {
            Ok(Ok(server)) => server,
            Ok(Err(error)) => return Err(Failure::from_greeting(error, reader).await),
            Err(_) => return Err(Failure::GreetingTimeout),
        };
        let (quic, fallback) = match self.options.transport {
            TransportChoice::Ssh => (None, None),
            choice => match self.try_quic(identity, &server, offered.token).await {
                Ok(winner) => (Some(winner), None),
                Err(failure) if choice == TransportChoice::Quic => return Err(Failure::Quic(failure)),
                Err(failure) => (None, Some(failure.in_words(&self.options))),
            },
        };
        // In a run that is bound to ssh this went with the greeting.
        if self.options.transport != TransportChoice::Ssh {
            let choice = if quic.is_some() { ClientChoice::Quic } else { ClientChoice::Ssh };
            if let Err(error) = send(&mut writer, &[BootstrapMessage::Choice(choice)]).await {
                return Err(Failure::from_greeting(error, reader).await);
            }
        }
        if quic.is_none() {
            // What follows belongs to the lanes. Over QUIC nothing follows, and nobody waits.
            match timeout(limit, receive(&mut reader)).await {
                Ok(Ok(BootstrapMessage::Go)) => {}
                Ok(Ok(_)) => return Err(Failure::NotDsync(BootstrapError::Answer)),
                Ok(Err(error)) => return Err(Failure::from_greeting(error, reader).await),
                Err(_) => return Err(Failure::GreetingTimeout),
            }
        }
        Ok(Agreed { reader, writer, quic, fallback })
    }

    fn offer(&self, fingerprint: Fingerprint) -> Result<ClientBootstrap, Failure> {
        let mut token = Token([0; 32]);
        getrandom::fill(&mut token.0).map_err(|error| Failure::System(error.into()))?;
        let transports = match self.options.transport {
            TransportChoice::Auto => Transports { quic: true, ssh: true },
            TransportChoice::Quic => Transports { quic: true, ssh: false },
            TransportChoice::Ssh => Transports { quic: false, ssh: true },
        };
        Ok(ClientBootstrap {
            versions: VersionRange::OURS,
            features: FEATURES,
            required: 0,
            transports,
            fingerprint,
            token,
        })
    }

    async fn greet(
        &self,
        offered: &ClientBootstrap,
        reader: &mut PipeReader,
        writer: &mut PipeWriter,
    ) -> Result<ServerBootstrap, GreetingError> {
        let mut messages = vec![BootstrapMessage::Client(offered.clone())];
        if self.options.transport == TransportChoice::Ssh {
            messages.push(BootstrapMessage::Choice(ClientChoice::Ssh));
        }
        // A shell that ended at once shows in what it wrote, or did not, better than in this.
        let sent = send(writer, &messages).await;
        let server = match receive(reader).await {
            Ok(BootstrapMessage::Server(server)) => server,
            Ok(BootstrapMessage::Refusal(refusal)) => return Err(GreetingError::Wrong(refusal.into_error())),
            Ok(_) => return Err(GreetingError::Wrong(BootstrapError::Answer)),
            Err(error) => return Err(error),
        };
        sent?;
        server.check(offered).map_err(GreetingError::Wrong)?;
        Ok(server)
    }

    async fn try_quic(
        &self,
        identity: Identity,
        server: &ServerBootstrap,
        token: Token,
    ) -> Result<(Connection, Endpoint), QuicFailure> {
        let Some(port) = server.udp_port else { return Err(QuicFailure::NoPort) };
        let port = port.get();
        let first: Vec<_> = server.addresses.iter().map(|ip| SocketAddr::new(*ip, port)).collect();
        let address = first.first().copied();
        let host = self.host.clone();
        let later = async move {
            let resolved = tokio::net::lookup_host((host.as_str(), port)).await;
            resolved.map(Iterator::collect).unwrap_or_default()
        };
        let idle_timeout = self.options.idle_timeout.max(SHORTEST_IDLE);
        let dialer = Dialer { identity, server: server.fingerprint, token, idle_timeout };
        dial(dialer, first, later, self.options.quic_wait).await.map_err(|error| QuicFailure::Dial {
            address,
            port,
            error,
        })
    }
}

/// Why QUIC does not carry the session.
#[derive(Debug)]
enum QuicFailure {
    /// The remote side opened no port.
    NoPort,
    /// Nobody who should have answered did.
    Dial {
        /// The address that ssh reached.
        address: Option<SocketAddr>,
        port: u16,
        error: DialError,
    },
}

impl QuicFailure {
    fn in_words(&self, options: &ConnectOptions) -> String {
        match self {
            Self::NoPort => "the remote side could not open a UDP port".into(),
            Self::Dial { address, port, error } => match error {
                DialError::Unreachable(None) => format!("no address is known for UDP port {port}"),
                DialError::Unreachable(Some(error)) => format!("UDP cannot be used: {error}"),
                DialError::NoAnswer => {
                    let place = address.map_or_else(|| format!("port {port}"), |address| address.to_string());
                    format!("no answer on UDP {place} within {} s", options.quic_wait.as_secs_f32())
                }
                DialError::WrongKey(address) => format!("the UDP peer at {address} showed a wrong key"),
                DialError::Refused(_) => "the UDP handshake failed".into(),
            },
        }
    }

    fn explain(self, host: String, options: &ConnectOptions) -> ConnectError {
        let after = options.quic_wait;
        match self {
            Self::NoPort => ConnectError::QuicUnavailable { host },
            Self::Dial { address, port, error } => match error {
                DialError::WrongKey(address) => ConnectError::PeerKeyMismatch { host, address },
                DialError::Refused(error) => ConnectError::KeyRefused { host, source: link_error(error) },
                DialError::Unreachable(Some(source)) => ConnectError::System { source },
                DialError::Unreachable(None) | DialError::NoAnswer => ConnectError::UdpBlocked {
                    host,
                    address: address.map(|address| address.ip()),
                    port,
                    after,
                },
            },
        }
    }
}

/// Why the bootstrap failed, before the remote shell's exit status has been asked for.
#[derive(Debug)]
enum Failure {
    /// The stream ended; what had come until then.
    Ended {
        seen: Vec<u8>,
    },
    /// Bytes that are no greeting.
    Noise {
        seen: Vec<u8>,
    },
    NotDsync(BootstrapError),
    GreetingTimeout,
    Quic(QuicFailure),
    System(std::io::Error),
}

impl Failure {
    /// Judges a broken bootstrap by what is in the pipe.
    async fn from_greeting(error: GreetingError, mut reader: PipeReader) -> Self {
        match error {
            GreetingError::Wrong(BootstrapError::Noise { .. }) => {
                // The line that began may come in pieces; a message with half of it helps nobody.
                let _ = timeout(NOISE_TIME, async {
                    while reader.unread().len() < NOISE_BYTES
                        && reader.fill().await.is_ok_and(|count| count > 0)
                    {}
                })
                .await;
                Self::Noise { seen: reader.unread().to_vec() }
            }
            GreetingError::Wrong(error) => Self::NotDsync(error),
            // A write to a shell that has ended fails; why it ended is what counts.
            GreetingError::Ended | GreetingError::Pipe(_) => Self::Ended { seen: reader.unread().to_vec() },
        }
    }

    fn explain(self, shell: &RemoteShell, options: &ConnectOptions, process: &ShellProcess) -> ConnectError {
        let host = shell.host_text();
        match self {
            Self::Ended { seen } if !seen.is_empty() => noise(host, &seen),
            Self::Ended { .. } => ended(shell, process),
            Self::Noise { seen } => noise(host, &seen),
            Self::NotDsync(BootstrapError::Refused { exit_code, text }) => {
                ConnectError::Refused { host, exit_code, text }
            }
            Self::NotDsync(source @ (BootstrapError::Version { .. } | BootstrapError::Feature { .. })) => {
                ConnectError::Incompatible { host, source }
            }
            Self::NotDsync(source) => ConnectError::NotDsync { host, source: Some(source) },
            Self::GreetingTimeout => ConnectError::GreetingTimeout { host, after: options.greeting_timeout },
            Self::Quic(failure) => failure.explain(host, options),
            Self::System(source) => ConnectError::System { source },
        }
    }
}

/// Text is a banner or an error message, also when a greeting follows it; anything else is another
/// program's protocol, or a greeting cut off.
fn noise(host: String, seen: &[u8]) -> ConnectError {
    let text = seen.windows(MAGIC.len()).position(|window| window == MAGIC).map_or(seen, |at| &seen[..at]);
    let text = text[..text.len().min(NOISE_BYTES)].trim_ascii();
    let binary = text.iter().any(|byte| matches!(byte, 0..=6 | 14..=26 | 28..=31));
    if text.is_empty() || binary || MAGIC.starts_with(seen) {
        return ConnectError::NotDsync { host, source: None };
    }
    ConnectError::Noise { host, text: printable(text, NOISE_CHARACTERS) }
}

/// The shell ended without a greeting.
fn ended(shell: &RemoteShell, process: &ShellProcess) -> ConnectError {
    let status = process.status(EXIT_TIME);
    let last_line = process.last_lines().pop().unwrap_or_default();
    let missing = status == ShellStatus::Exited(COMMAND_NOT_FOUND)
        || (matches!(status, ShellStatus::Exited(_)) && last_line.contains("command not found"));
    let program = || printable(shell.remote_program.as_bytes(), NOISE_CHARACTERS);
    if missing {
        return ConnectError::RemoteProgramMissing { program: program(), host: shell.host_text() };
    }
    if status == ShellStatus::Exited(0) {
        return ConnectError::NoGreeting { program: program(), host: shell.host_text() };
    }
    ConnectError::ShellFailed { program: shell.program(), status, last_line }
}

/// A link and the process that it depends on, ended in that order.
struct ShellLink {
    link: Box<dyn Link>,
    #[expect(dead_code, reason = "held for its drop")]
    process: Arc<ShellProcess>,
}

impl Link for ShellLink {
    fn carrier(&self) -> Carrier {
        self.link.carrier()
    }

    fn data_lanes(&self) -> usize {
        self.link.data_lanes()
    }

    fn open_lane(&self) -> Result<Lane, LinkError> {
        self.link.open_lane()
    }

    fn accept_lane(&self) -> Result<Lane, LinkError> {
        self.link.accept_lane()
    }

    fn traffic(&self) -> Traffic {
        self.link.traffic()
    }

    fn close(&self, reason: CloseReason) {
        self.link.close(reason);
    }
}

/// The exit status of a POSIX shell that did not find the command.
const COMMAND_NOT_FOUND: i32 = 127;
/// How long a shell whose output ended may take to end.
const EXIT_TIME: Duration = Duration::from_secs(2);
/// The server's window of 30 s, less the time that both ends' messages take.
const LONGEST_QUIC_WAIT: Duration = Duration::from_secs(20);
/// How long to wait for the rest of an unexpected line.
const NOISE_TIME: Duration = Duration::from_millis(200);
/// Bytes of unexpected text that are looked at.
const NOISE_BYTES: usize = 512;
/// Characters of it that are shown.
const NOISE_CHARACTERS: usize = 160;
