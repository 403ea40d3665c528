//! The side that starts a run: remote shell, bootstrap, and the link over the carrier that got
//! through.
//!
//! One round trip over ssh, then whatever [`crate::reach`] finds. ssh remains responsible for
//! aliases, ports, keys, passwords and jump hosts. The address for the other carriers is the one
//! that ssh really reached, as the remote side was told. The addresses of the host's name come
//! second.

use std::{
    fmt,
    num::{NonZeroU16, NonZeroU32, NonZeroU64},
    os::fd::OwnedFd,
    sync::Arc,
    time::Duration,
};

use dsync_wire::{
    bootstrap::{
        BootstrapError, BootstrapMessage, ClientBootstrap, ClientChoice, Fingerprint, LinkTerms, MAGIC,
        PortRange, Reached, ServerBootstrap, Token, Transports, VersionRange,
    },
    budget::Budget,
    link::{Carrier, CloseReason, Lane, Link, LinkError, Move, Traffic},
    version::FEATURES,
};
#[cfg(feature = "tls")]
use dsync_wire::{
    link::MoveCause,
    version::{CONNECTIONS, MOVES_AGAIN, STREAMS_BESIDE},
};
use tokio::{sync::Notify, time::timeout};

use crate::{
    AddressFamily, ConnectError, RemoteShell, TransportChoice,
    carried::{Carried, PipeTerms},
    error::ShellStatus,
    greeting::{GreetingError, receive, send},
    identity::Identity,
    mux::{Role, Seat},
    pace::{Sides, Throttle, paced, throttled},
    pipe::{self, PipeReader, PipeWriter},
    reactor::Carriers,
    shell::{EXIT_TIME, ShellLines, ShellProcess},
    text::printable,
    waits::{LONGEST_PORT_WAIT, NEAR, SHORTEST_IDLE},
};
#[cfg(feature = "tls")]
use crate::{
    mux::beside::Beside,
    reach::{CarrierFailure, Reach},
    reactor::on_thread,
    standing::further::client::{Calling, Plan},
    tls::handshake::Credentials,
    waits::FAR,
    whereabouts::Whereabouts,
};

/// Options of [`connect()`].
#[derive(Debug, Clone)]
pub struct ConnectOptions {
    /// The carrier to use. Default [`TransportChoice::Auto`].
    pub transport: TransportChoice,
    /// The carrier to which the lanes of a long run move, where the way is a dialler to a server that stands.
    /// [`TransportChoice::Auto`], the default, takes QUIC from a round trip of 40 ms on and else TLS, and TLS where QUIC does not get
    /// through; `Quic` tries that on any path. The others leave it to TLS.
    pub further: TransportChoice,
    /// Longest silence of the peer before the link counts as lost. Less than 3 s counts as 3 s.
    /// Default 60 s.
    pub idle_timeout: Duration,
    /// Time to wait for an answer over UDP and TCP. Default 1.5 s. More than 10 s counts as 10 s,
    /// because the remote side waits 30 s for the choice. If the choice is free and TCP has
    /// answered, UDP has six round trips, and at least half a second, before TCP is tried as well.
    pub port_wait: Duration,
    /// Time from the start of the remote shell to the answer of the remote dsync. Default 300 s: a
    /// person may be typing a password. It is longer than the 127 s after which Linux gives up
    /// connecting and the 120 s that sshd allows for logging in. Its purpose is that a job without
    /// a person ends at all.
    pub greeting_timeout: Duration,
    /// Ports that the remote side may open. Default `None`: any that its system chooses.
    pub ports: Option<PortRange>,
    /// Payload bytes per second that each end may send. Default `None`: no limit.
    pub bytes_per_second: Option<NonZeroU64>,
    /// Account of the peer's data that the link holds. Default: one of the usual bound.
    pub budget: Arc<Budget>,
    /// The speed of this end, if it may change. Default: none, and `bytes_per_second` stays.
    pub throttle: Option<Throttle>,
    /// The way to give up while the link is being made. Default: one that nobody uses.
    pub abandon: Abandon,
    /// The lines that the remote shell writes to standard error meanwhile, for another thread. Default: nobody
    /// reads them.
    pub shell_lines: ShellLines,
    /// The threads that carry bytes. Default: ones that no other link has.
    pub carriers: Carriers,
}

/// The way to give up a [`connect()`] that another thread waits in; clones share it.
#[derive(Debug, Clone, Default)]
pub struct Abandon(Arc<Notify>);

impl Abandon {
    /// Makes `connect` return [`ConnectError::Abandoned`] within about a second, now or when it is
    /// called. The remote shell is asked to end and then killed.
    pub fn abandon(&self) {
        self.0.notify_one();
    }
}

impl Default for ConnectOptions {
    fn default() -> Self {
        Self {
            transport: TransportChoice::Auto,
            further: TransportChoice::Auto,
            idle_timeout: Duration::from_secs(60),
            port_wait: Duration::from_millis(1500),
            greeting_timeout: Duration::from_secs(300),
            ports: None,
            bytes_per_second: None,
            budget: Arc::default(),
            throttle: None,
            abandon: Abandon::default(),
            shell_lines: ShellLines::default(),
            carriers: Carriers::default(),
        }
    }
}

impl ConnectOptions {
    /// Returns the terms that both ends must keep.
    fn terms(&self) -> LinkTerms {
        let idle = self.idle_timeout.max(SHORTEST_IDLE).as_secs();
        LinkTerms {
            idle_seconds: NonZeroU32::new(u32::try_from(idle).unwrap_or(u32::MAX)).unwrap_or(NonZeroU32::MIN),
            bytes_per_second: self.bytes_per_second,
            ports: self.ports,
        }
    }
}

/// A link to a remote dsync.
#[non_exhaustive]
pub struct Connected {
    /// The link. It holds the remote shell's process. Dropping the last handle waits for that to
    /// end (at most 2 s, then it is killed); the rest of this struct may be dropped before or
    /// after. After a session that was [done](CloseReason::Done) over another carrier than ssh
    /// nobody waits: the process ends by itself a round trip later.
    pub link: Arc<dyn Link>,
    /// The reason for this carrier, in words for the summary; `None` if no other was allowed.
    pub reason: Option<String>,
    process: Arc<ShellProcess>,
    /// The program that is the way, if it is no ssh.
    dialler: Option<String>,
}

impl Connected {
    /// Returns the reason for which a way that is no ssh ended, if it told one. Such a one may have
    /// made the link before the other end let it in. Waits for its end, for at most 2 s.
    pub fn refusal(&self) -> Option<ConnectError> {
        let program = self.dialler.clone()?;
        let status = self.process.status(EXIT_TIME);
        let stderr = self.process.last_lines();
        let has_told = matches!(status, ShellStatus::Exited(code) if code != 0) && !stderr.is_empty();
        has_told.then_some(ConnectError::ShellFailed { program, status, stderr })
    }

    /// Returns the last lines that the remote shell or the remote dsync has written to standard
    /// error so far, escaped, oldest first; at most 8 KiB.
    pub fn remote_stderr(&self) -> Vec<String> {
        self.process.last_lines()
    }
}

impl fmt::Debug for Connected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connected")
            .field("carrier", &self.link.carrier())
            .field("reason", &self.reason)
            .finish_non_exhaustive()
    }
}

/// Starts dsync on another host and makes a link to it.
///
/// Blocks while ssh connects and asks its questions (on the terminal, not on the pipes), up to
/// [`ConnectOptions::greeting_timeout`], then for at most twice [`ConnectOptions::port_wait`]. The
/// remote shell's standard error is not shown; see [`Connected::remote_stderr`].
///
/// # Errors
/// [`ConnectError`]; no process is left running.
///
/// # Security
/// Only public keys and a one-time token cross the pipe, and nothing secret is in an argument or
/// the environment. A peer over UDP or TCP without the very key that was announced over ssh gets no
/// byte of the session.
pub fn connect(shell: &RemoteShell, options: &ConnectOptions) -> Result<Connected, ConnectError> {
    let system = |source| ConnectError::System { source };
    let transport = options
        .transport
        .in_this_build()
        .map_err(|(protocol, reason)| ConnectError::OnlyPipe { host: shell.host_text(), protocol, reason })?;
    let (process, input, output) =
        ShellProcess::start(shell, &shell.argv()?, &options.shell_lines, &options.carriers)?;
    let reactor = options.carriers.share().map_err(system)?;
    let mut options = options.clone();
    options.port_wait = options.port_wait.min(LONGEST_PORT_WAIT);
    options.transport = transport;
    let options = &options;
    let bootstrap = Bootstrap {
        host: shell.host.clone(),
        shell: process.id(),
        family: shell.family,
        is_dialled: shell.pipe != Carrier::Ssh,
        options: options.clone(),
    };

    let abandon = options.abandon.clone();
    let outcome = reactor.run(async move {
        tokio::select! {
            agreed = bootstrap.run(input, output) => agreed,
            () = abandon.0.notified() => Err(Failure::Abandoned),
        }
    });
    let agreed = match outcome {
        Some(Ok(agreed)) => agreed,
        Some(Err(failure)) => return Err(failure.explain(shell, options, &process)),
        // A task panicked; the hook has printed where.
        None => return Err(Failure::Ended { seen: Vec::new() }.explain(shell, options, &process)),
    };

    let idle_timeout = options.idle_timeout.max(SHORTEST_IDLE);
    let process = Arc::new(process);
    #[cfg(feature = "tls")]
    let beside = further(&agreed, options);
    #[cfg(not(feature = "tls"))]
    let beside = None;
    let Agreed { reader, writer, carried, reason, features, reached, .. } = agreed;
    let is_pipe = matches!(carried, Carried::Pipe);
    let is_near = reached.is_some_and(|reached| reached.round_trip < NEAR);
    let seat = Seat { role: Role::Client, carrier: shell.pipe, is_near };
    let terms = PipeTerms { seat, idle_timeout, budget: Arc::clone(&options.budget), beside };
    let link = carried.into_link(reactor, (reader, writer), terms);
    let link = ShellLink { link, is_pipe, features, process: Arc::clone(&process) };

    let link = match &options.throttle {
        Some(throttle) => throttled(Arc::new(link), throttle, Sides::Both),
        None => paced(Arc::new(link), options.bytes_per_second),
    };
    let dialler = (shell.pipe != Carrier::Ssh).then(|| shell.program());
    Ok(Connected { link, reason, process, dialler })
}

/// Returns the means to make further connections, to where the way to a server that stands has gone. Its
/// dialler knows that: no address is the server's word.
#[cfg(feature = "tls")]
fn further(agreed: &Agreed, options: &ConnectOptions) -> Option<Arc<dyn Beside>> {
    let reached = agreed.reached.filter(|_| agreed.features & CONNECTIONS != 0)?;
    let knows_quic = agreed.features & STREAMS_BESIDE != 0;
    let moves_again = knows_quic && agreed.features & MOVES_AGAIN != 0;
    let quic = match options.further {
        TransportChoice::Quic => Some(MoveCause::Asked),
        TransportChoice::Auto if reached.round_trip >= FAR => Some(MoveCause::Far),
        _ => None,
    };
    let plan = Plan {
        knows_quic,
        moves_again,
        by_loss: moves_again && options.further == TransportChoice::Auto,
        quic: quic.filter(|_| knows_quic && cfg!(feature = "quic")),
        round_trip: reached.round_trip,
        idle_timeout: options.idle_timeout.max(SHORTEST_IDLE),
    };
    Some(Arc::new(Calling::new(agreed.identity.clone(), reached.address, plan)))
}

/// The terms on which the two ends agreed.
struct Agreed {
    reader: PipeReader,
    writer: PipeWriter,
    carried: Carried,
    reason: Option<String>,
    features: u64,
    /// The word of the program that dialled a server that stands.
    reached: Option<Reached>,
    #[cfg_attr(not(feature = "tls"), expect(dead_code, reason = "nothing but the pipe is tried"))]
    identity: Identity,
}

/// The client's side of the bootstrap.
#[cfg_attr(not(feature = "tls"), expect(dead_code, reason = "nothing but the pipe is tried"))]
struct Bootstrap {
    host: String,
    /// The remote shell's process.
    shell: u32,
    family: AddressFamily,
    /// Whether the process is a program of this host that dials, and no remote shell.
    is_dialled: bool,
    options: ConnectOptions,
}

impl Bootstrap {
    async fn run(self, input: OwnedFd, output: OwnedFd) -> Result<Agreed, Failure> {
        let identity = Identity::generate().map_err(|error| Failure::System(std::io::Error::other(error)))?;
        let offered = self.offer(identity.fingerprint())?;
        // The shell's output is this end's input.
        let (mut reader, mut writer) = pipe::open(output, input).map_err(Failure::System)?;
        let limit = self.options.greeting_timeout;
        let greeting = timeout(limit, self.greet(&offered, &mut reader, &mut writer)).await;
        let (reached, server) = match greeting {
            Ok(Ok(answer)) => answer,
            Ok(Err(error)) => return Err(Failure::from_greeting(error, reader).await),
            Err(_) => return Err(Failure::GreetingTimeout),
        };

        tracing::debug!(
            udp = server.udp_port.map_or(0, NonZeroU16::get),
            tcp = server.tcp_port.map_or(0, NonZeroU16::get),
            addresses = ?server.addresses,
            "the remote end listens"
        );
        let features = server.features;
        let own = identity.clone();
        let (carried, reason) = self.reach(identity, offered.token, server).await?;
        let choice = carried.choice();

        tracing::debug!(carrier = ?choice, reason = reason.as_deref().unwrap_or("asked for"), "carrier chosen");
        // In a run that is bound to ssh this went with the greeting.
        if self.options.transport != TransportChoice::Ssh
            && let Err(error) = send(&mut writer, &[BootstrapMessage::Choice(choice)]).await
        {
            return Err(Failure::from_greeting(error, reader).await);
        }
        if choice == ClientChoice::Ssh {
            // On this pipe the remaining bytes belong to the lanes. Other carriers send none here,
            // so do not wait for them.
            match timeout(limit, receive(&mut reader)).await {
                Ok(Ok(BootstrapMessage::Go)) => {}
                Ok(Ok(_)) => return Err(Failure::NotDsync(BootstrapError::Answer)),
                Ok(Err(error)) => return Err(Failure::from_greeting(error, reader).await),
                Err(_) => return Err(Failure::GreetingTimeout),
            }
        }

        Ok(Agreed { reader, writer, carried, reason, features, reached, identity: own })
    }

    /// Connects to the remote end's ports, or leaves the session to the pipe.
    #[cfg(feature = "tls")]
    async fn reach(
        &self,
        identity: Identity,
        token: Token,
        server: ServerBootstrap,
    ) -> Result<(Carried, Option<String>), Failure> {
        let credentials = Credentials {
            identity,
            server: server.fingerprint,
            token,
            idle_timeout: self.options.idle_timeout.max(SHORTEST_IDLE),
        };
        let reach = Reach {
            whereabouts: self.whereabouts().await.logged(),
            family: self.family,
            server,
            credentials: Arc::new(credentials),
            wait: self.options.port_wait,
        };
        reach.run(self.options.transport).await.map_err(Failure::Carrier)
    }

    /// Leaves the session to the pipe: this build has no other carrier.
    #[cfg(not(feature = "tls"))]
    async fn reach(
        &self,
        _: Identity,
        _: Token,
        _: ServerBootstrap,
    ) -> Result<(Carried, Option<String>), Failure> {
        Ok((Carried::Pipe, None))
    }

    /// Returns the location of the remote end; a run bound to ssh does not need it.
    #[cfg(feature = "tls")]
    async fn whereabouts(&self) -> Whereabouts {
        let unknown = Whereabouts::Unknown("where ssh goes could not be found out in time");
        if self.options.transport == TransportChoice::Ssh {
            return unknown;
        }
        let (shell, host) = (self.shell, self.host.clone());
        let asked = on_thread(move || Whereabouts::find(shell, &host));
        timeout(LONGEST_PORT_WAIT, asked).await.ok().and_then(Result::ok).unwrap_or(unknown)
    }

    fn offer(&self, fingerprint: Fingerprint) -> Result<ClientBootstrap, Failure> {
        let mut token = Token([0; 32]);
        getrandom::fill(&mut token.0).map_err(|error| Failure::System(error.into()))?;
        let choice = self.options.transport;
        let wanted = |carrier| choice == TransportChoice::Auto || choice == carrier;
        let transports = Transports {
            quic: cfg!(feature = "quic") && wanted(TransportChoice::Quic),
            ssh: wanted(TransportChoice::Ssh),
            tls: cfg!(feature = "tls") && wanted(TransportChoice::Tls),
        };
        Ok(ClientBootstrap {
            versions: VersionRange::OURS,
            features: FEATURES,
            required: 0,
            transports,
            terms: self.options.terms(),
            fingerprint,
            token,
        })
    }

    /// Sends the greeting and waits for the answer; also returns the dialler's word before it.
    async fn greet(
        &self,
        offered: &ClientBootstrap,
        reader: &mut PipeReader,
        writer: &mut PipeWriter,
    ) -> Result<(Option<Reached>, ServerBootstrap), GreetingError> {
        let mut messages = vec![BootstrapMessage::Client(offered.clone())];
        if self.options.transport == TransportChoice::Ssh {
            messages.push(BootstrapMessage::Choice(ClientChoice::Ssh));
        }
        // If the shell ended at once, its output, or the lack of it, shows the reason better than
        // this error.
        let sent = send(writer, &messages).await;

        let (mut reached, mut answer) = (None, receive(reader).await);
        // The first message is the dialler's; behind it a server speaks.
        if let (true, Ok(BootstrapMessage::Reached(told))) = (self.is_dialled, &answer) {
            (reached, answer) = (Some(*told), receive(reader).await);
        }

        let server = match answer {
            Ok(BootstrapMessage::Server(server)) => server,
            Ok(BootstrapMessage::Refusal(refusal)) => return Err(GreetingError::Wrong(refusal.into_error())),
            Ok(_) => return Err(GreetingError::Wrong(BootstrapError::Answer)),
            Err(error) => return Err(error),
        };
        sent?;
        server.check(offered).map_err(GreetingError::Wrong)?;
        Ok((reached, server))
    }
}

/// The reason why the bootstrap failed, before the remote shell's exit status is known.
#[derive(Debug)]
enum Failure {
    /// The stream ended, with the bytes received until then.
    Ended {
        seen: Vec<u8>,
    },
    /// Bytes that are not a greeting.
    Noise {
        seen: Vec<u8>,
    },
    NotDsync(BootstrapError),
    GreetingTimeout,
    #[cfg(feature = "tls")]
    Carrier(CarrierFailure),
    System(std::io::Error),
    Abandoned,
}

impl Failure {
    /// Classifies a broken bootstrap by the content of the pipe.
    async fn from_greeting(error: GreetingError, mut reader: PipeReader) -> Self {
        match error {
            GreetingError::Wrong(BootstrapError::Noise { .. }) => {
                // The line may arrive in pieces, and a message with half of it helps nobody.
                let _ = timeout(NOISE_TIME, async {
                    while reader.unread().len() < NOISE_BYTES
                        && reader.fill().await.is_ok_and(|count| count > 0)
                    {}
                })
                .await;
                Self::Noise { seen: reader.unread().to_vec() }
            }
            GreetingError::Wrong(error) => Self::NotDsync(error),
            // Writing to a shell that has ended fails, but the reason for its end is what matters.
            GreetingError::Ended | GreetingError::Pipe(_) => Self::Ended { seen: reader.unread().to_vec() },
        }
    }

    fn explain(self, shell: &RemoteShell, options: &ConnectOptions, process: &ShellProcess) -> ConnectError {
        let host = shell.host_text();

        match self {
            Self::Ended { seen } => cut_off(&seen, shell, process),
            Self::Noise { seen } => noise(host, &seen),
            Self::NotDsync(BootstrapError::Refused { exit_code, text }) => {
                ConnectError::Refused { host, exit_code, text }
            }
            Self::NotDsync(source @ (BootstrapError::Version { .. } | BootstrapError::Feature { .. })) => {
                ConnectError::Incompatible { host, source }
            }
            Self::NotDsync(source) => ConnectError::NotDsync { host, source: Some(source) },
            Self::GreetingTimeout => {
                let (after, stderr) = (options.greeting_timeout, process.last_lines());
                ConnectError::GreetingTimeout { host, after, stderr }
            }
            #[cfg(feature = "tls")]
            Self::Carrier(failure) => failure.explain(host, options.port_wait),
            Self::System(source) => ConnectError::System { source },
            Self::Abandoned => {
                process.hurry();
                ConnectError::Abandoned
            }
        }
    }
}

/// Classifies an end of the pipe. Where this end could not answer a greeting any more, the other one says
/// why it has ended.
fn cut_off(seen: &[u8], shell: &RemoteShell, process: &ShellProcess) -> ConnectError {
    let has_failed = || matches!(process.status(EXIT_TIME), ShellStatus::Exited(code) if code != 0);
    if seen.is_empty() || seen.starts_with(&MAGIC) && has_failed() {
        return ended(shell, process);
    }
    noise(shell.host_text(), seen)
}

/// Classifies unexpected output. Text is a banner or an error message, even if a greeting follows
/// it. Anything else is another program's protocol, or a greeting cut off.
fn noise(host: String, seen: &[u8]) -> ConnectError {
    let text = seen.windows(MAGIC.len()).position(|window| window == MAGIC).map_or(seen, |at| &seen[..at]);
    let text = text[..text.len().min(NOISE_BYTES)].trim_ascii();
    let binary = text.iter().any(|byte| matches!(byte, 0..=6 | 14..=26 | 28..=31));
    if text.is_empty() || binary || MAGIC.starts_with(seen) {
        return ConnectError::NotDsync { host, source: None };
    }
    ConnectError::Noise { host, text: printable(text, NOISE_CHARACTERS) }
}

/// Makes the error for a shell that ended without a greeting.
fn ended(shell: &RemoteShell, process: &ShellProcess) -> ConnectError {
    let status = process.status(EXIT_TIME);
    let stderr = process.last_lines();
    let missing = status == ShellStatus::Exited(COMMAND_NOT_FOUND)
        || (matches!(status, ShellStatus::Exited(_))
            && stderr.last().is_some_and(|line| line.contains("command not found")));
    let program = || printable(shell.remote_program.as_bytes(), NOISE_CHARACTERS);
    if missing {
        return ConnectError::RemoteProgramMissing { program: program(), host: shell.host_text() };
    }
    if status == ShellStatus::Exited(0) {
        return ConnectError::NoGreeting { program: program(), host: shell.host_text() };
    }
    ConnectError::ShellFailed { program: shell.program(), status, stderr }
}

/// A link and the process that it depends on, closed in that order.
struct ShellLink {
    link: Arc<dyn Link>,
    /// Whether the process carries the link's bytes.
    is_pipe: bool,
    /// Those that the bootstrap agreed on.
    features: u64,
    process: Arc<ShellProcess>,
}

impl Link for ShellLink {
    fn carrier(&self) -> Carrier {
        self.link.carrier()
    }

    fn data_lanes(&self) -> usize {
        self.link.data_lanes()
    }

    fn sending_lanes(&self) -> usize {
        self.link.sending_lanes()
    }

    fn is_near(&self) -> bool {
        self.link.is_near()
    }

    fn moves(&self) -> Vec<Move> {
        self.link.moves()
    }

    fn features(&self) -> u64 {
        self.features
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
        if reason == CloseReason::Done && !self.is_pipe {
            self.process.dismiss();
        }
        self.link.close(reason);
    }
}

/// The exit status of a POSIX shell that did not find the command.
const COMMAND_NOT_FOUND: i32 = 127;
/// Time to wait for the rest of an unexpected line.
const NOISE_TIME: Duration = Duration::from_millis(200);
/// Bytes of unexpected text to examine.
const NOISE_BYTES: usize = 512;
/// Characters of unexpected text to show.
const NOISE_CHARACTERS: usize = 160;
