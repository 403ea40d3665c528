//! The ports that the remote side opens for its client, one for each carrier that the client wants.

use std::{net::IpAddr, num::NonZeroU16, time::Duration};

use dsync_wire::bootstrap::{ClientBootstrap, ClientChoice};

#[cfg(feature = "quic")]
use crate::quic;
use crate::{carried::Carried, identity::Identity, tls};

/// The open ports.
pub(crate) struct Offers {
    #[cfg(feature = "quic")]
    quic: Option<quic::handshake::Offer>,
    tls: Option<tls::handshake::Offer>,
}

/// The times that a port keeps to.
#[derive(Clone, Copy)]
pub(crate) struct Window {
    /// Longest silence of a connection.
    pub(crate) idle_timeout: Duration,
    /// Time that the client has for its choice.
    pub(crate) choice: Duration,
}

impl Offers {
    /// Opens a port for each carrier that the client wants, where possible. `reached` is the
    /// client's address, as ssh saw it.
    pub(crate) fn open(
        client: &ClientBootstrap,
        identity: &Identity,
        reached: Option<IpAddr>,
        window: Window,
    ) -> Self {
        let ClientBootstrap { transports, terms, fingerprint, token, .. } = client;
        let Window { idle_timeout, choice } = window;
        #[cfg(feature = "quic")]
        let quic = transports.quic.then(|| {
            let whom = (*fingerprint, token.clone());
            quic::handshake::Offer::open(identity, whom, terms.ports, reached, idle_timeout, choice)
                .inspect_err(|error| tracing::debug!(%error, "no UDP port"))
                .ok()
        });

        let tls = transports.tls.then(|| {
            let whom = (*fingerprint, token.clone());
            tls::handshake::Offer::open(identity, whom, terms.ports, reached, idle_timeout, choice)
                .inspect_err(|error| tracing::debug!(%error, "no TCP port"))
                .ok()
        });

        Self {
            #[cfg(feature = "quic")]
            quic: quic.flatten(),
            tls: tls.flatten(),
        }
    }

    /// Returns whether the client wants ports, and not one of them could be opened.
    pub(crate) fn lacks_all(&self, client: &ClientBootstrap) -> bool {
        let wants_udp = client.transports.quic && cfg!(feature = "quic");
        (wants_udp || client.transports.tls) && self.udp_port().is_none() && self.tcp_port().is_none()
    }

    #[cfg(feature = "quic")]
    pub(crate) fn udp_port(&self) -> Option<NonZeroU16> {
        self.quic.as_ref().and_then(|offer| offer.port().ok()).and_then(NonZeroU16::new)
    }

    /// Returns none: this build has no QUIC.
    #[cfg(not(feature = "quic"))]
    pub(crate) fn udp_port(&self) -> Option<NonZeroU16> {
        None
    }

    pub(crate) fn tcp_port(&self) -> Option<NonZeroU16> {
        self.tls.as_ref().and_then(|offer| NonZeroU16::new(offer.port()))
    }

    /// Returns the connection over the chosen port if the client is there; closes the other ports.
    pub(crate) fn take(self, choice: ClientChoice) -> Option<Carried> {
        match choice {
            #[cfg(feature = "quic")]
            ClientChoice::Quic => {
                let (connection, endpoint) = self.quic?.take()?;
                Some(Carried::Quic(connection, endpoint))
            }
            ClientChoice::Tls => self.tls?.take().map(Carried::Tls),
            #[cfg(feature = "quic")]
            ClientChoice::Both => {
                let (connection, endpoint) = self.quic?.take()?;
                Some(Carried::Both(self.tls?.take()?, connection, endpoint))
            }
            #[cfg(not(feature = "quic"))]
            ClientChoice::Quic | ClientChoice::Both => None,
            ClientChoice::Ssh => None,
        }
    }
}
