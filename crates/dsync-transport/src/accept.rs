//! The remote side (`dsync --server`): the other end of [`connect`](crate::connect()).
//!
//! The remote shell starts it. It talks over its two standard streams and to nothing else. The
//! session that runs over the link decides what the client may do.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr},
    os::fd::OwnedFd,
    sync::Arc,
    time::Duration,
};

#[cfg(feature = "tls")]
use dsync_wire::version::{CONNECTIONS, MOVES_AGAIN, STREAMS_BESIDE};
use dsync_wire::{
    bootstrap::{
        BootstrapError, BootstrapMessage, ClientBootstrap, ClientChoice, LinkTerms, Refusal, ServerBootstrap,
    },
    budget::Budget,
    link::{Carrier, Link},
};
use tokio::time::timeout;

use crate::{
    AcceptError,
    carried::{Carried, PipeTerms},
    greeting::{GreetingError, receive, send},
    identity::Identity,
    mux::{Role, Seat},
    offers::{Offers, Window},
    pace::paced,
    pipe::{self, PipeReader, PipeWriter},
    reactor::Reactor,
    waits::{NEAR, SHORTEST_IDLE},
};
#[cfg(feature = "tls")]
use crate::{
    mux::beside::Beside,
    standing::further::server::{Inviting, Known},
    waits::FAR,
};

/// A link to the client, and the client's terms.
#[non_exhaustive]
pub struct Accepted {
    /// The link.
    pub link: Arc<dyn Link>,
    /// Longest silence of the peer, as requested by the client.
    pub idle_timeout: Duration,
}

impl fmt::Debug for Accepted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Accepted")
            .field("carrier", &self.link.carrier())
            .field("idle_timeout", &self.idle_timeout)
            .finish_non_exhaustive()
    }
}

/// The way by which a client came.
#[derive(Debug)]
#[non_exhaustive]
pub struct Entrance<'a> {
    /// Receives from the client.
    pub input: OwnedFd,
    /// Sends to the client. Nobody else may write to it.
    pub output: OwnedFd,
    /// The value of the `SSH_CONNECTION` variable: the address of this host that the client reached.
    /// Without it the client only has the host's name.
    pub ssh_connection: Option<&'a str>,
    /// Shortest round trip of the client's connection, if it is known.
    pub round_trip: Option<Duration>,
    /// Source of further connections of the client, if it reached a server that stands.
    #[cfg(feature = "tls")]
    pub handed: Option<crate::standing::Handed>,
}

impl<'a> Entrance<'a> {
    /// Describes a client that holds the other ends of these two, and no more.
    pub fn new(input: OwnedFd, output: OwnedFd) -> Self {
        Self {
            input,
            output,
            ssh_connection: None,
            round_trip: None,
            #[cfg(feature = "tls")]
            handed: None,
        }
    }

    /// Sets [`Entrance::ssh_connection`]; the default is none.
    #[must_use]
    pub fn ssh_connection(self, variable: Option<&'a str>) -> Self {
        Self { ssh_connection: variable, ..self }
    }

    /// Sets [`Entrance::round_trip`]; the default is none.
    #[must_use]
    pub fn round_trip(self, shortest: Option<Duration>) -> Self {
        Self { round_trip: shortest, ..self }
    }

    /// Sets [`Entrance::handed`]; the default is none.
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn handed(self, handed: crate::standing::Handed) -> Self {
        Self { handed: Some(handed), ..self }
    }
}

/// Makes a link to the client that came by `entrance`.
///
/// Data of the client that the link holds is taken from `budget`.
///
/// If the client wants QUIC or TLS, a UDP and a TCP
/// port are open from its greeting until it has chosen, for at most 30 s. Then the chosen one
/// serves that client alone.
/// # Errors
/// [`AcceptError`]. The client has been told the reason if that was possible.
///
/// # Security
/// The bytes on [`Entrance::input`] are the client's, whom sshd has let in. Anybody can reach the ports.
/// Without the client's one-time key and token a connection costs a bounded handshake and gets
/// nothing.
pub fn accept(entrance: Entrance<'_>, budget: &Arc<Budget>) -> Result<Accepted, AcceptError> {
    let Entrance { input, output, ssh_connection, round_trip, .. } = entrance;
    let reactor = Reactor::start().map_err(|source| AcceptError::System { source })?;
    let reached = ssh_connection.map(SshConnection::parse).unwrap_or_default();
    let outcome = reactor.run(async move { negotiate(input, output, &reached, WINDOW).await });
    // None means that a task panicked: there is no link, and the system is not to blame.
    let agreed = outcome.unwrap_or(Err(AcceptError::ClientGone))?;
    #[cfg(feature = "tls")]
    let beside = entrance.handed.and_then(|handed| further(handed, &agreed, round_trip));
    #[cfg(not(feature = "tls"))]
    let beside = None;
    let Agreed { reader, writer, carried, client, .. } = agreed;
    let terms = client.terms;
    let idle_timeout = idle_timeout(terms);

    let is_near = round_trip.is_some_and(|round_trip| round_trip < NEAR);
    let seat = Seat { role: Role::Server, carrier: Carrier::Ssh, is_near };
    let terms_of_pipe = PipeTerms { seat, idle_timeout, budget: Arc::clone(budget), beside };
    let link = carried.into_link(reactor, (reader, writer), terms_of_pipe);
    Ok(Accepted { link: paced(link, terms.bytes_per_second), idle_timeout })
}

/// Begins to take further connections of the client, if it knows of them and its lanes share one.
#[cfg(feature = "tls")]
fn further(
    handed: crate::standing::Handed,
    agreed: &Agreed,
    round_trip: Option<Duration>,
) -> Option<Arc<dyn Beside>> {
    let Agreed { carried, client, identity, features, .. } = agreed;
    if *features & CONNECTIONS == 0 || !matches!(carried, Carried::Pipe) {
        return None;
    }
    let quic = *features & STREAMS_BESIDE != 0;
    let known = Known {
        quic,
        second_moves: quic && *features & MOVES_AGAIN != 0,
        is_far: round_trip.is_some_and(|round_trip| round_trip >= FAR),
    };
    let idle_timeout = idle_timeout(client.terms);
    let inviting = Inviting::start(handed, (identity, client.fingerprint), known, idle_timeout);
    // All that is lost is speed.
    let inviting = inviting.inspect_err(|error| tracing::debug!(%error, "no further connections"));
    inviting.ok().map(|inviting| Arc::new(inviting) as Arc<dyn Beside>)
}

fn idle_timeout(terms: LinkTerms) -> Duration {
    Duration::from_secs(terms.idle_seconds.get().into()).clamp(SHORTEST_IDLE, LONGEST_IDLE)
}

/// The terms on which the two ends agreed.
struct Agreed {
    reader: PipeReader,
    writer: PipeWriter,
    carried: Carried,
    client: ClientBootstrap,
    #[cfg_attr(not(feature = "tls"), expect(dead_code, reason = "nothing but the pipe is tried"))]
    identity: Identity,
    #[cfg_attr(not(feature = "tls"), expect(dead_code, reason = "nothing but the pipe is tried"))]
    features: u64,
}

async fn negotiate(
    input: OwnedFd,
    output: OwnedFd,
    reached: &SshConnection,
    window: Duration,
) -> Result<Agreed, AcceptError> {
    let pipe_error = |source| AcceptError::Pipe { source };
    let (mut reader, mut writer) = pipe::open(input, output).map_err(pipe_error)?;
    let late = |_| AcceptError::TimedOut { after: window };
    let unexpected = AcceptError::NotDsync { source: BootstrapError::Answer };
    let greeting = timeout(window, receive(&mut reader)).await.map_err(late)??;
    let BootstrapMessage::Client(client) = greeting else { return Err(unexpected) };
    let identity =
        Identity::generate().map_err(|error| AcceptError::System { source: std::io::Error::other(error) })?;
    let (offers, features) = answer(&client, &identity, &mut writer, reached, window).await?;
    let choice = timeout(window, receive(&mut reader)).await.map_err(late)??;
    let BootstrapMessage::Choice(choice) = choice else { return Err(unexpected) };
    let carried = match choice {
        ClientChoice::Ssh => client.transports.ssh.then_some(Carried::Pipe),
        choice => offers.take(choice),
    };
    let carried = carried.ok_or(AcceptError::WrongChoice)?;

    send(&mut writer, &[BootstrapMessage::Go]).await?;
    Ok(Agreed { reader, writer, carried, client, identity, features })
}

/// Answers the client's greeting and opens a port for each carrier that it wants, where possible. Also
/// returns the features that both ends know.
async fn answer(
    client: &ClientBootstrap,
    identity: &Identity,
    writer: &mut PipeWriter,
    reached: &SshConnection,
    window: Duration,
) -> Result<(Offers, u64), AcceptError> {
    let (version, features) = match client.agree() {
        Ok(agreed) => agreed,
        Err(refusal) => {
            send(writer, &[BootstrapMessage::Refusal(refusal)]).await?;
            return Err(AcceptError::Incompatible);
        }
    };
    let window = Window { idle_timeout: idle_timeout(client.terms), choice: window };
    let offers = Offers::open(client, identity, reached.client, window);

    if let Some(ports) = client.terms.ports
        && offers.lacks_all(client)
    {
        let error = AcceptError::NoPort { ports };
        let text = format!("{error} on this host").into_bytes();
        let refusal = Refusal::Other { exit_code: error.exit_code(), text };
        send(writer, &[BootstrapMessage::Refusal(refusal)]).await?;
        return Err(error);
    }
    let bootstrap = ServerBootstrap {
        version,
        features,
        fingerprint: identity.fingerprint(),
        udp_port: offers.udp_port(),
        tcp_port: offers.tcp_port(),
        addresses: reached.server.into_iter().collect(),
    };

    send(writer, &[BootstrapMessage::Server(bootstrap)]).await?;
    Ok((offers, features))
}

/// The addresses of ssh's connection: "client-address port server-address port".
#[derive(Debug, Default, PartialEq, Eq)]
struct SshConnection {
    client: Option<IpAddr>,
    server: Option<IpAddr>,
}

impl SshConnection {
    /// Parses the variable's value; omits addresses that are not usable.
    fn parse(value: &str) -> Self {
        let mut words = value.split_ascii_whitespace();
        let client = words.next().and_then(usable);
        let server = words.nth(1).and_then(usable);
        Self { client, server }
    }
}

/// Returns an address that means the same on the other end: not one tied to an interface of this
/// host.
fn usable(word: &str) -> Option<IpAddr> {
    let address = word.parse::<IpAddr>().ok()?.to_canonical();
    match address {
        IpAddr::V4(v4) if v4 != Ipv4Addr::UNSPECIFIED => Some(address),
        IpAddr::V6(v6) if !v6.is_unspecified() && !v6.is_unicast_link_local() => Some(address),
        _ => None,
    }
}

impl From<GreetingError> for AcceptError {
    fn from(error: GreetingError) -> Self {
        match error {
            GreetingError::Ended => Self::ClientGone,
            GreetingError::Wrong(source) => Self::NotDsync { source },
            GreetingError::Pipe(source) => Self::Pipe { source },
        }
    }
}

/// Time that the client may take to greet, and then to choose. It has the answer to its greeting
/// within a round trip, and waits 1.5 s for the ports by default.
const WINDOW: Duration = Duration::from_secs(30);
/// Longest silence that a client may request: an hour. A server that nobody talks to ends by
/// itself.
const LONGEST_IDLE: Duration = Duration::from_secs(3600);

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::io::Write;

    use dsync_wire::{bootstrap::Parsed, version::FEATURES};

    use super::*;

    #[test]
    fn the_servers_address_is_the_third_word() {
        let parsed = SshConnection::parse("192.0.2.1 50000 198.51.100.7 22");
        assert_eq!(parsed.client, "192.0.2.1".parse().ok());
        assert_eq!(parsed.server, "198.51.100.7".parse().ok());
        let mapped = SshConnection::parse("::ffff:192.0.2.1 1 2001:db8::1 22");
        assert_eq!(mapped.client, "192.0.2.1".parse().ok());
        assert_eq!(mapped.server, "2001:db8::1".parse().ok());
    }

    #[test]
    fn addresses_of_one_interface_or_none_are_left_out() {
        for value in ["", "x", "fe80::1%eth0 1 fe80::2%eth0 22", "fe80::1 1 fe80::2 22", "UNKNOWN 65535 :: 0"]
        {
            assert_eq!(SshConnection::parse(value), SshConnection::default(), "{value}");
        }
    }

    /// Returns the server's error for a client that sends `said` and then nothing, without hanging
    /// up.
    fn of_a_silent_client(said: &[BootstrapMessage]) -> AcceptError {
        let (input, mut client) = std::io::pipe().unwrap();
        let (answers, output) = std::io::pipe().unwrap();
        let mut bytes = Vec::new();
        said.iter().for_each(|message| message.encode(&mut bytes).unwrap());
        client.write_all(&bytes).unwrap();
        let reactor = Reactor::start().unwrap();
        let window = Duration::from_millis(50);
        let outcome = reactor.run(async move {
            negotiate(input.into(), output.into(), &SshConnection::default(), window).await.map(|_| ())
        });
        drop((client, answers));
        outcome.unwrap().unwrap_err()
    }

    fn greeting(features: u64) -> BootstrapMessage {
        BootstrapMessage::Client(ClientBootstrap {
            versions: dsync_wire::bootstrap::VersionRange::OURS,
            features,
            required: 0,
            transports: dsync_wire::bootstrap::Transports { quic: true, ssh: true, tls: true },
            terms: LinkTerms { idle_seconds: std::num::NonZeroU32::MIN, bytes_per_second: None, ports: None },
            fingerprint: Identity::generate().unwrap().fingerprint(),
            token: dsync_wire::bootstrap::Token([0; 32]),
        })
    }

    #[test]
    fn a_client_that_never_greets_or_never_chooses_is_given_up() {
        for said in [vec![], vec![greeting(FEATURES)]] {
            let error = of_a_silent_client(&said);
            assert!(matches!(error, AcceptError::TimedOut { .. }), "{said:?}: {error:?}");
        }
    }
    #[cfg(feature = "tls")]
    #[test]
    fn only_a_client_that_knows_of_further_connections_is_invited_to_make_some() {
        use std::{io::Read, os::unix::net::UnixStream};

        use dsync_wire::version::SPANS;

        use crate::standing::Handed;

        /// The kind of the mux's invitation.
        const INVITE: u8 = 10;
        for features in [FEATURES, SPANS] {
            let (input, mut client) = std::io::pipe().unwrap();
            let (mut answers, output) = std::io::pipe().unwrap();
            let (_parent, socket) = UnixStream::pair().unwrap();
            let mut said = Vec::new();
            for message in [greeting(features), BootstrapMessage::Choice(ClientChoice::Ssh)] {
                message.encode(&mut said).unwrap();
            }
            client.write_all(&said).unwrap();
            let handed = Handed {
                session: crate::standing::SessionNumber([1; 16]),
                socket,
                takes_quic: false,
                sent: Default::default(),
                received: Default::default(),
                connections: Default::default(),
            };
            let entrance = Entrance::new(input.into(), output.into()).handed(handed);
            let accepted = accept(entrance, &Arc::default()).unwrap();

            // The first frame behind the answer; there is always one of life.
            let mut heard = Vec::new();
            let mut frame = None;
            while frame.is_none() {
                let mut byte = [0];
                answers.read_exact(&mut byte).unwrap();
                heard.push(byte[0]);
                let mut rest = &heard[..];
                while let Ok(Parsed::Complete { consumed, .. }) = BootstrapMessage::parse(rest) {
                    rest = &rest[consumed..];
                }
                frame = (rest.len() >= 8 && rest[0] == 0).then(|| rest[4]);
            }
            assert_eq!(frame == Some(INVITE), features == FEATURES);
            drop((accepted, client));
        }
    }
}
