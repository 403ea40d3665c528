//! Chooses a run's carrier by the answers of the remote end's ports and their speed.
//!
//! The rule of `--transport=auto`: the remote end has opened a UDP and a TCP port. The cheapest
//! probe comes first: a TCP connection. Its time is the round trip, because the peer's system
//! answers it by itself. Below 2 ms it becomes the link, because TCP needs a fraction of QUIC's
//! processor time and loses nothing on such a path. Below 40 ms both are connected and carry the
//! session together ([`both`](crate::both)), TLS first. Otherwise QUIC is tried. If UDP does not
//! answer within six round trips, and at least half a second, the TCP connection is tried as well
//! and the first of the two wins. If TCP does not answer either, the session uses the ssh pipe,
//! which exists anyway.

use std::{
    net::{IpAddr, SocketAddr, ToSocketAddrs as _},
    num::NonZeroU16,
    pin::{Pin, pin},
    sync::Arc,
    time::Duration,
};

use dsync_wire::{bootstrap::ServerBootstrap, version::TWO_CARRIERS};
use tokio::time::{Instant, sleep, sleep_until, timeout, timeout_at};

#[cfg(feature = "quic")]
use crate::quic::{self, handshake::Dialer};
use crate::{
    AddressFamily, ConnectError, TransportChoice,
    carried::Carried,
    race::{Addresses, DialError},
    reactor::on_thread,
    tls::handshake::{self, Credentials, Probe},
    waits::{FAR, LONGEST_PORT_WAIT},
    whereabouts::Whereabouts,
};

/// The remote end as the bootstrap showed it, and this end's credentials.
pub(crate) struct Reach {
    /// Location of the remote end, whatever addresses the bootstrap names.
    pub(crate) whereabouts: Whereabouts,
    pub(crate) family: AddressFamily,
    pub(crate) server: ServerBootstrap,
    pub(crate) credentials: Arc<Credentials>,
    /// Longest wait for an answer.
    pub(crate) wait: Duration,
}

impl Reach {
    /// Chooses the carrier; also returns the reason if there was a choice.
    pub(crate) async fn run(
        &self,
        choice: TransportChoice,
    ) -> Result<(Carried, Option<String>), CarrierFailure> {
        if let Whereabouts::Unknown(reason) = self.whereabouts {
            return match choice {
                TransportChoice::Ssh => Ok((Carried::Pipe, None)),
                TransportChoice::Auto => Ok((Carried::Pipe, Some(reason.to_owned()))),
                TransportChoice::Quic => Err(CarrierFailure::no_way(UDP, reason)),
                TransportChoice::Tls => Err(CarrierFailure::no_way(TCP, reason)),
            };
        }
        Ok(match choice {
            TransportChoice::Ssh => (Carried::Pipe, None),
            TransportChoice::Quic => (self.quic(self.wait).await?, None),
            TransportChoice::Tls => (self.tls(self.probe().await?).await?, None),
            TransportChoice::Auto => {
                let (reached, reason) = self.choose().await;
                (reached, Some(reason))
            }
        })
    }

    async fn choose(&self) -> (Carried, String) {
        let began = Instant::now();
        let mut probe = pin!(self.probe());
        let mut probed = tokio::select! {
            outcome = &mut probe => Some(outcome),
            () = sleep(HEAD_START) => None,
        };

        // Its limit follows below, when the round trip is known.
        let mut quic = pin!(self.quic(LONGEST_PORT_WAIT));
        let udp = loop {
            let decides = |probe: &Probe| probe.is_near() || self.takes_both(probe);
            match probed.take_if(|outcome| outcome.as_ref().is_ok_and(decides)) {
                Some(Ok(near)) if near.is_near() => {
                    let reason = round_trip(&near);
                    match self.tls(near).await {
                        Ok(reached) => return (reached, reason),
                        Err(failure) => probed = Some(Err(failure)),
                    }
                }
                Some(Ok(probe)) => return self.side_by_side(quic, probe, began).await,
                _ => {}
            }
            let patience = match &probed {
                Some(Ok(probe)) => patience(probe.round_trip),
                _ => self.wait,
            };
            tokio::select! {
                outcome = &mut quic => break outcome.map_err(|failure| failure.in_words(self.wait)),
                outcome = &mut probe, if probed.is_none() => probed = Some(outcome),
                () = sleep_until(began + patience) => match probed.take() {
                    Some(Ok(probe)) => return self.race(quic, probe, patience).await,
                    outcome => {
                        probed = outcome;
                        break Err(self.udp_silence().in_words(patience));
                    }
                },
            }
        };

        let udp = match (udp, &probed) {
            (Ok(reached), Some(Ok(probe))) => return (reached, round_trip(probe)),
            (Ok(reached), _) => return (reached, "no answer over TCP".to_owned()),
            (Err(udp), _) => udp,
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
            Err(failure) => (Carried::Pipe, both(udp, &failure.in_words(self.wait))),
        }
    }

    /// Returns whether the path is one on which both carriers are worth a connection.
    fn takes_both(&self, probe: &Probe) -> bool {
        cfg!(feature = "quic")
            && self.server.features & TWO_CARRIERS != 0
            && self.server.udp_port.is_some()
            && probe.round_trip < FAR
    }

    /// Connects over both carriers. Whichever does not answer is left out.
    async fn side_by_side(
        &self,
        mut quic: Pin<&mut impl Future<Output = Result<Carried, CarrierFailure>>>,
        probe: Probe,
        began: Instant,
    ) -> (Carried, String) {
        let (reason, patience) = (round_trip(&probe), patience(probe.round_trip));
        let (udp, tls) = tokio::join!(timeout_at(began + patience, &mut quic), self.tls(probe));

        let udp = match udp {
            Ok(Ok(reached)) => {
                let carried = match tls {
                    Ok(tls) => tls.beside(reached),
                    Err(_) => reached,
                };
                return (carried, reason);
            }
            Ok(Err(refused)) => refused.in_words(patience),
            Err(_) => self.udp_silence().in_words(patience),
        };
        let tls = match tls {
            Ok(reached) => return (reached, udp),
            Err(failure) => failure.in_words(self.wait),
        };
        (Carried::Pipe, both(udp, &tls))
    }

    /// Races TLS against QUIC after TCP has answered and UDP should have. A remote end that is only
    /// busy still gets its QUIC, which began earlier.
    async fn race(
        &self,
        mut quic: Pin<&mut impl Future<Output = Result<Carried, CarrierFailure>>>,
        probe: Probe,
        patience: Duration,
    ) -> (Carried, String) {
        let reason = round_trip(&probe);
        let mut tls = pin!(self.tls(probe));
        let mut refused = None;
        let tls = loop {
            tokio::select! {
                outcome = &mut quic, if refused.is_none() => match outcome {
                    Ok(reached) => return (reached, reason),
                    Err(failure) => refused = Some(failure.in_words(patience)),
                },
                outcome = &mut tls => break outcome,
            }
        };
        let tls = match tls {
            Ok(reached) => {
                return (reached, refused.unwrap_or_else(|| self.udp_silence().in_words(patience)));
            }
            Err(failure) => failure.in_words(self.wait),
        };

        if refused.is_none()
            && let Ok(Ok(reached)) = timeout(self.wait, quic).await
        {
            return (reached, reason);
        }
        let udp = refused.unwrap_or_else(|| self.udp_silence().in_words(patience + self.wait));

        (Carried::Pipe, both(udp, &tls))
    }

    fn udp_silence(&self) -> CarrierFailure {
        let port = self.server.udp_port.map_or(0, NonZeroU16::get);
        self.failure(UDP, port, DialError::NoAnswer)
    }

    #[cfg(feature = "quic")]
    async fn quic(&self, wait: Duration) -> Result<Carried, CarrierFailure> {
        let port = self.server.udp_port.ok_or_else(|| CarrierFailure::no_port(UDP))?.get();
        let Credentials { identity, server, token, idle_timeout } = &*self.credentials;
        let dialer = Dialer {
            identity: identity.clone(),
            server: *server,
            token: token.clone(),
            idle_timeout: *idle_timeout,
        };
        let dialed = quic::handshake::dial(dialer, self.addresses(port), wait).await;
        let (connection, endpoint) = dialed.map_err(|error| self.failure(UDP, port, error))?;
        Ok(Carried::Quic(connection, endpoint))
    }

    /// Fails: this build has no QUIC.
    #[cfg(not(feature = "quic"))]
    async fn quic(&self, _: Duration) -> Result<Carried, CarrierFailure> {
        Err(CarrierFailure::no_way(UDP, "this program was built without QUIC"))
    }

    async fn probe(&self) -> Result<Probe, CarrierFailure> {
        let port = self.server.tcp_port.ok_or_else(|| CarrierFailure::no_port(TCP))?.get();
        let probed = handshake::probe(self.addresses(port), self.wait).await;
        probed.map_err(|error| self.failure(TCP, port, error))
    }

    async fn tls(&self, probe: Probe) -> Result<Carried, CarrierFailure> {
        let port = probe.address().port();
        let (credentials, wait) = (Arc::clone(&self.credentials), self.wait);
        let dialed = on_thread(move || handshake::dial(probe, &credentials, wait)).await;
        let dialed = dialed.unwrap_or_else(|error| Err(DialError::system(error)));
        Ok(Carried::Tls(dialed.map_err(|error| self.failure(TCP, port, error))?))
    }

    /// Returns the address that ssh itself reached, or else those of the host's name from the
    /// operator. Addresses named by the server are never tried: it could make this host knock at
    /// any door.
    fn addresses(&self, port: u16) -> Addresses<impl Future<Output = Vec<SocketAddr>> + use<>> {
        let family = self.family;
        let name = match &self.whereabouts {
            Whereabouts::Named(name) => Some(name.clone()),
            _ => None,
        };
        Addresses {
            first: self.reached().map(|address| SocketAddr::new(address, port)).into_iter().collect(),
            later: async move {
                let Some(name) = name else { return Vec::new() };
                let looked_up = on_thread(move || (name.as_str(), port).to_socket_addrs()).await;
                let resolved = looked_up.and_then(|found| found).map(Iterator::collect::<Vec<_>>);
                let resolved = resolved.unwrap_or_default();
                resolved.into_iter().filter(|address| family.admits(address.ip())).collect()
            },
        }
    }

    /// Returns the address that ssh reached.
    fn reached(&self) -> Option<IpAddr> {
        match self.whereabouts {
            Whereabouts::Reached(address) => Some(address).filter(|address| self.family.admits(*address)),
            _ => None,
        }
    }

    fn failure(&self, protocol: &'static str, port: u16, error: DialError) -> CarrierFailure {
        CarrierFailure { protocol, dialed: Dial::Failed(Dialed { address: self.reached(), port, error }) }
    }
}

/// Returns why neither carrier was reached, which may be one reason.
fn both(udp: String, tls: &str) -> String {
    if udp == tls { udp } else { format!("{udp}; {tls}") }
}

fn round_trip(probe: &Probe) -> String {
    format!("round trip {:.1} ms", probe.round_trip.as_secs_f64() * 1000.0)
}

/// The reason why a network carrier does not carry the session.
#[derive(Debug)]
pub(crate) struct CarrierFailure {
    protocol: &'static str,
    dialed: Dial,
}

/// The attempt that was made.
#[derive(Debug)]
enum Dial {
    /// None: the remote side opened no port.
    NoPort,
    /// None: no address is known that ssh reached, with the reason in words.
    NoWay(&'static str),
    Failed(Dialed),
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
        Self { protocol, dialed: Dial::NoPort }
    }

    fn no_way(protocol: &'static str, reason: &'static str) -> Self {
        Self { protocol, dialed: Dial::NoWay(reason) }
    }

    fn in_words(&self, wait: Duration) -> String {
        let protocol = self.protocol;
        let Dialed { address, port, error } = match &self.dialed {
            Dial::NoPort => return format!("the remote side could not open a {protocol} port"),
            Dial::NoWay(reason) => return (*reason).to_owned(),
            Dial::Failed(dialed) => dialed,
        };
        match error {
            DialError::Unreachable(None) => "no address of the host is known".to_owned(),
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

    /// Turns the failure into the run's error, if no other carrier may be used.
    pub(crate) fn explain(self, host: String, after: Duration) -> ConnectError {
        let protocol = self.protocol;
        let Dialed { address, port, error } = match self.dialed {
            Dial::NoPort => return ConnectError::PortUnavailable { host, protocol },
            Dial::NoWay(reason) => return ConnectError::OnlyPipe { host, protocol, reason },
            Dial::Failed(dialed) => dialed,
        };
        match error {
            DialError::WrongKey(address) => ConnectError::PeerKeyMismatch { host, protocol, address },
            DialError::Refused(source) => ConnectError::KeyRefused { host, protocol, source },
            DialError::Unreachable(Some(source)) => ConnectError::System { source },
            // Nothing was sent, so no firewall was in the way.
            DialError::Unreachable(None) => ConnectError::OnlyPipe { host, protocol, reason: NO_ADDRESS },
            DialError::NoAnswer => ConnectError::PortBlocked { host, protocol, address, port, after },
        }
    }
}

/// Returns how long UDP may be silent on a path of this round trip. A handshake takes two, and its
/// first packet, if lost, is sent again three hundred milliseconds later.
fn patience(round_trip: Duration) -> Duration {
    (6 * round_trip).clamp(LEAST_PATIENCE, LONGEST_PORT_WAIT)
}

/// The reason where ssh told no address, as a remote shell of another kind, and the host's name has none.
const NO_ADDRESS: &str = "no address of it is known";
const UDP: &str = "UDP";
const TCP: &str = "TCP";
/// Time that the TCP probe runs alone: a peer that is near has answered by then.
const HEAD_START: Duration = Duration::from_millis(5);
/// Shortest patience with UDP; if it is blocked, each run waits this long.
const LEAST_PATIENCE: Duration = Duration::from_millis(500);
