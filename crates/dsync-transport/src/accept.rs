//! The remote side (`dsync --server`): the other end of [`connect`](crate::connect()).
//!
//! It is started by the remote shell and talks over the two streams that it is given, and to nothing
//! else: whatever the client may do is decided by the session that runs over the link.

use std::{
    net::{IpAddr, Ipv4Addr},
    num::NonZeroU16,
    os::fd::OwnedFd,
    time::Duration,
};

use dsync_wire::{
    bootstrap::{
        BootstrapError, BootstrapMessage, ClientBootstrap, ClientChoice, Fingerprint, ServerBootstrap,
    },
    link::Link,
};
use quinn::{Connection, Endpoint};
use tokio::time::timeout;

use crate::{
    AcceptError,
    greeting::{GreetingError, receive, send},
    mux::{MuxLink, Role},
    pipe::{self, PipeReader, PipeWriter},
    quic::{QuicLink, handshake::Offer},
    reactor::Reactor,
};

/// How [`accept()`] goes about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AcceptOptions {
    /// The value of the `SSH_CONNECTION` variable: which of this host's addresses the client reached.
    /// Without it the client has only the host's name to go by. Default `None`.
    pub ssh_connection: Option<String>,
    /// Longest silence of the peer before the link counts as lost; less than 3 s counts
    /// as 3 s. Default 60 s.
    pub idle_timeout: Duration,
}

impl Default for AcceptOptions {
    fn default() -> Self {
        Self { ssh_connection: None, idle_timeout: Duration::from_secs(60) }
    }
}

/// Makes a link to the client whose remote shell holds the other ends of `input` and `output`.
///
/// Nobody else may write to `output` from here on. When the client wants QUIC, a UDP port is open from
/// its greeting until it has chosen, for 30 s at most; then it serves that client alone.
///
/// # Errors
/// [`AcceptError`]; where the client can be told why, it has been.
///
/// # Security
/// The bytes on `input` are the client's, who has been let in by sshd. Packets on the UDP port are
/// anybody's: without the client's one-time key and token they cost a bounded handshake and get nothing.
pub fn accept(
    input: OwnedFd,
    output: OwnedFd,
    options: &AcceptOptions,
) -> Result<Box<dyn Link>, AcceptError> {
    accept_within(input, output, options, WINDOW)
}

/// As [`accept()`], with a given time for the client to greet and to choose.
pub(crate) fn accept_within(
    input: OwnedFd,
    output: OwnedFd,
    options: &AcceptOptions,
    window: Duration,
) -> Result<Box<dyn Link>, AcceptError> {
    let reactor = Reactor::start().map_err(|source| AcceptError::System { source })?;
    let options = options.clone();
    let idle_timeout = options.idle_timeout.max(SHORTEST_IDLE);
    let outcome = reactor.run(async move { negotiate(input, output, &options, window).await });
    // None means that a task panicked: there is no link, and nothing of the system's to blame.
    let agreed = outcome.unwrap_or(Err(AcceptError::ClientGone))?;
    Ok(match agreed.quic {
        Some((connection, endpoint)) => {
            Box::new(QuicLink::start(reactor, connection, endpoint, agreed.reader, agreed.writer))
        }
        None => Box::new(MuxLink::start(reactor, agreed.reader, agreed.writer, Role::Server, idle_timeout)),
    })
}

/// What the two ends agreed on.
struct Agreed {
    reader: PipeReader,
    writer: PipeWriter,
    /// The connection, when QUIC carries the session.
    quic: Option<(Connection, Endpoint)>,
}

async fn negotiate(
    input: OwnedFd,
    output: OwnedFd,
    options: &AcceptOptions,
    window: Duration,
) -> Result<Agreed, AcceptError> {
    let pipe_error = |source| AcceptError::Pipe { source };
    let (mut reader, mut writer) = pipe::open(input, output).map_err(pipe_error)?;
    let late = |_| AcceptError::TimedOut { after: window };
    let unexpected = AcceptError::NotDsync { source: BootstrapError::Answer };
    let greeting = timeout(window, receive(&mut reader)).await.map_err(late)??;
    let BootstrapMessage::Client(client) = greeting else { return Err(unexpected) };
    let offer = answer(&client, &mut writer, options, window).await?;
    let choice = timeout(window, receive(&mut reader)).await.map_err(late)??;
    let BootstrapMessage::Choice(choice) = choice else { return Err(unexpected) };
    let quic = match choice {
        ClientChoice::Quic => Some(offer.and_then(Offer::take).ok_or(AcceptError::WrongChoice)?),
        ClientChoice::Ssh if client.transports.ssh => None,
        ClientChoice::Ssh => return Err(AcceptError::WrongChoice),
    };
    send(&mut writer, &[BootstrapMessage::Go]).await?;
    Ok(Agreed { reader, writer, quic })
}

/// Answers the client's greeting, with an open port when it wants one and there can be one.
async fn answer(
    client: &ClientBootstrap,
    writer: &mut PipeWriter,
    options: &AcceptOptions,
    window: Duration,
) -> Result<Option<Offer>, AcceptError> {
    let (version, features) = match client.agree() {
        Ok(agreed) => agreed,
        Err(refusal) => {
            send(writer, &[BootstrapMessage::Refusal(refusal)]).await?;
            return Err(AcceptError::Incompatible);
        }
    };
    let reached = options.ssh_connection.as_deref().map(SshConnection::parse).unwrap_or_default();
    let offer = if client.transports.quic {
        let idle_timeout = options.idle_timeout.max(SHORTEST_IDLE);
        Offer::open(client.fingerprint, client.token.clone(), reached.client, idle_timeout, window)
            .inspect_err(|error| tracing::debug!(%error, "no UDP port"))
            .ok()
    } else {
        None
    };
    let udp_port = offer.as_ref().and_then(|offer| offer.port().ok()).and_then(NonZeroU16::new);
    let bootstrap = ServerBootstrap {
        version,
        features,
        fingerprint: offer.as_ref().map_or(Fingerprint([0; 32]), Offer::fingerprint),
        udp_port,
        addresses: reached.server.into_iter().collect(),
    };
    send(writer, &[BootstrapMessage::Server(bootstrap)]).await?;
    Ok(offer)
}

/// The addresses of the connection that ssh made: "client-address port server-address port".
#[derive(Debug, Default, PartialEq, Eq)]
struct SshConnection {
    client: Option<IpAddr>,
    server: Option<IpAddr>,
}

impl SshConnection {
    /// Reads the variable's value; what is no usable address is left out.
    fn parse(value: &str) -> Self {
        let mut words = value.split_ascii_whitespace();
        let client = words.next().and_then(usable);
        let server = words.nth(1).and_then(usable);
        Self { client, server }
    }
}

/// An address that means the same on the other end: not one that is tied to an interface of this host.
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

/// How long the client may take to greet, and then to choose. It has the answer to its greeting within a
/// round trip, and waits 2 s for UDP by default.
const WINDOW: Duration = Duration::from_secs(30);
/// Silence below this would end healthy links: the other end, which does not know this end's limit, shows
/// a sign of life every second.
pub(crate) const SHORTEST_IDLE: Duration = Duration::from_secs(3);

#[cfg(test)]
mod tests {
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
}
