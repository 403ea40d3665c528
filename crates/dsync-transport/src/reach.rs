//! Which carrier a run gets: what the ports of the remote end answer, and how fast.
//!
//! The rule of `--transport=auto`. The remote end has opened a UDP and a TCP port. The cheapest probe there is
//! comes first: a TCP connection, whose time is the round trip, as the peer's system answers it by itself. Below
//! 2 ms it becomes the link, because TCP needs a fraction of QUIC's processor time and loses nothing on such a
//! path. Otherwise QUIC is tried; without an answer over UDP in time the TCP connection is taken after all, and
//! without one over TCP either the ssh pipe, which is there anyway.

use std::{
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use dsync_wire::bootstrap::ServerBootstrap;
use quinn::{Connection, Endpoint};
use tokio::time::sleep;

use crate::{
    AddressFamily, ConnectError, TransportChoice,
    quic::{self, handshake::Dialer},
    race::{Addresses, DialError},
    tls::{
        Established,
        handshake::{self, Credentials, Probe},
    },
};

/// What carries the session.
pub(crate) enum Reached {
    Quic(Connection, Endpoint),
    Tls(Established),
    Pipe,
}

/// The remote end as the bootstrap showed it, and what this end has to show.
pub(crate) struct Reach {
    pub(crate) host: String,
    pub(crate) family: AddressFamily,
    pub(crate) server: ServerBootstrap,
    pub(crate) credentials: Arc<Credentials>,
    /// Longest wait for an answer.
    pub(crate) wait: Duration,
}

impl Reach {
    /// Finds the carrier, and the reason for it where there was a choice.
    pub(crate) async fn run(
        &self,
        choice: TransportChoice,
    ) -> Result<(Reached, Option<String>), CarrierFailure> {
        Ok(match choice {
            TransportChoice::Ssh => (Reached::Pipe, None),
            TransportChoice::Quic => (self.quic().await?, None),
            TransportChoice::Tls => (self.tls(self.probe().await?).await?, None),
            TransportChoice::Auto => {
                let (reached, reason) = self.choose().await;
                (reached, Some(reason))
            }
        })
    }

    async fn choose(&self) -> (Reached, String) {
        let probe = self.probe();
        tokio::pin!(probe);
        let mut probed = tokio::select! {
            outcome = &mut probe => Some(outcome),
            () = sleep(HEAD_START) => None,
        };
        let quic = self.quic();
        tokio::pin!(quic);
        let udp = loop {
            if let Some(Ok(near)) = probed.take_if(|outcome| outcome.as_ref().is_ok_and(Probe::is_near)) {
                let reason = round_trip(&near);
                match self.tls(near).await {
                    Ok(reached) => return (reached, reason),
                    Err(failure) => probed = Some(Err(failure)),
                }
            }
            tokio::select! {
                outcome = &mut quic => break outcome,
                outcome = &mut probe, if probed.is_none() => probed = Some(outcome),
            }
        };
        let udp = match udp {
            Ok(reached) => {
                let reason = match &probed {
                    Some(Ok(probe)) => round_trip(probe),
                    _ => "no answer over TCP".to_owned(),
                };
                return (reached, reason);
            }
            Err(failure) => failure.in_words(self.wait),
        };
        let probed = match probed {
            Some(outcome) => outcome,
            None => probe.await,
        };
        let tls = match probed {
            Ok(probe) => self.tls(probe).await,
            Err(failure) => Err(failure),
        };
        match tls {
            Ok(reached) => (reached, udp),
            Err(failure) => (Reached::Pipe, format!("{udp}; {}", failure.in_words(self.wait))),
        }
    }

    async fn quic(&self) -> Result<Reached, CarrierFailure> {
        let port = self.server.udp_port.ok_or_else(|| CarrierFailure::no_port(UDP))?.get();
        let Credentials { identity, server, token, idle_timeout } = &*self.credentials;
        let dialer = Dialer {
            identity: identity.clone(),
            server: *server,
            token: token.clone(),
            idle_timeout: *idle_timeout,
        };
        let dialed = quic::handshake::dial(dialer, self.addresses(port), self.wait).await;
        let (connection, endpoint) = dialed.map_err(|error| self.failure(UDP, port, error))?;
        Ok(Reached::Quic(connection, endpoint))
    }

    async fn probe(&self) -> Result<Probe, CarrierFailure> {
        let port = self.server.tcp_port.ok_or_else(|| CarrierFailure::no_port(TCP))?.get();
        let probed = handshake::probe(self.addresses(port), self.wait).await;
        probed.map_err(|error| self.failure(TCP, port, error))
    }

    async fn tls(&self, probe: Probe) -> Result<Reached, CarrierFailure> {
        let port = probe.address().port();
        let (credentials, wait) = (Arc::clone(&self.credentials), self.wait);
        let dialed = tokio::task::spawn_blocking(move || handshake::dial(probe, &credentials, wait)).await;
        let dialed = dialed.unwrap_or_else(|error| Err(DialError::system(error)));
        Ok(Reached::Tls(dialed.map_err(|error| self.failure(TCP, port, error))?))
    }

    /// What ssh itself reached, and what the host's name resolves to.
    fn addresses(&self, port: u16) -> Addresses<impl Future<Output = Vec<SocketAddr>>> {
        let (host, family) = (self.host.clone(), self.family);
        let first = self.server.addresses.iter().filter(|address| family.admits(**address));
        Addresses {
            first: first.map(|address| SocketAddr::new(*address, port)).collect(),
            later: async move {
                let resolved = tokio::net::lookup_host((host.as_str(), port)).await;
                let resolved = resolved.map(Iterator::collect::<Vec<_>>).unwrap_or_default();
                resolved.into_iter().filter(|address| family.admits(address.ip())).collect()
            },
        }
    }

    fn failure(&self, protocol: &'static str, port: u16, error: DialError) -> CarrierFailure {
        let address = self.server.addresses.iter().copied().find(|address| self.family.admits(*address));
        CarrierFailure { protocol, dialed: Some(Dialed { address, port, error }) }
    }
}

fn round_trip(probe: &Probe) -> String {
    format!("round trip {:.1} ms", probe.round_trip.as_secs_f64() * 1000.0)
}

/// Why a carrier of the network does not carry the session.
#[derive(Debug)]
pub(crate) struct CarrierFailure {
    protocol: &'static str,
    /// What was tried; `None` when the remote side opened no port.
    dialed: Option<Dialed>,
}

#[derive(Debug)]
struct Dialed {
    /// The address that ssh reached.
    address: Option<IpAddr>,
    port: u16,
    error: DialError,
}

impl CarrierFailure {
    fn no_port(protocol: &'static str) -> Self {
        Self { protocol, dialed: None }
    }

    fn in_words(&self, wait: Duration) -> String {
        let protocol = self.protocol;
        let Some(Dialed { address, port, error }) = &self.dialed else {
            return format!("the remote side could not open a {protocol} port");
        };
        match error {
            DialError::Unreachable(None) => format!("no address is known for {protocol} port {port}"),
            DialError::Unreachable(Some(error)) => format!("{protocol} cannot be used: {error}"),
            DialError::NoAnswer => {
                let place = address.map(|address| SocketAddr::new(address, *port).to_string());
                let place = place.unwrap_or_else(|| format!("port {port}"));
                format!("no answer on {protocol} {place} within {} s", wait.as_secs_f32())
            }
            DialError::WrongKey(address) => format!("the {protocol} peer at {address} showed a wrong key"),
            DialError::Refused(_) => format!("the {protocol} handshake failed"),
        }
    }

    /// As the run's failure, where no other carrier may be taken.
    pub(crate) fn explain(self, host: String, after: Duration) -> ConnectError {
        let protocol = self.protocol;
        let Some(Dialed { address, port, error }) = self.dialed else {
            return ConnectError::PortUnavailable { host, protocol };
        };
        match error {
            DialError::WrongKey(address) => ConnectError::PeerKeyMismatch { host, protocol, address },
            DialError::Refused(source) => ConnectError::KeyRefused { host, protocol, source },
            DialError::Unreachable(Some(source)) => ConnectError::System { source },
            DialError::Unreachable(None) | DialError::NoAnswer => {
                ConnectError::PortBlocked { host, protocol, address, port, after }
            }
        }
    }
}

const UDP: &str = "UDP";
const TCP: &str = "TCP";
/// How long the TCP probe runs alone: a peer that is near has answered by then.
const HEAD_START: Duration = Duration::from_millis(5);
