//! The connection that the two ends of a bootstrap agreed on, and the link that it becomes.

use std::{sync::Arc, time::Duration};

use dsync_wire::{bootstrap::ClientChoice, budget::Budget, link::Link};
#[cfg(feature = "quic")]
use quinn::{Connection, Endpoint};

#[cfg(feature = "tls")]
use crate::tls::{Established, TlsLink};
#[cfg(feature = "quic")]
use crate::{both::BothLink, quic::QuicLink};
use crate::{
    mux::{MuxLink, Seat, beside::Beside},
    pipe::{PipeReader, PipeWriter},
    reactor::Reactor,
};

/// The connection that carries the session.
pub(crate) enum Carried {
    #[cfg(feature = "quic")]
    Quic(Connection, Endpoint),
    #[cfg(feature = "tls")]
    Tls(Established),
    /// Both, side by side.
    #[cfg(feature = "quic")]
    Both(Established, Connection, Endpoint),
    Pipe,
}

/// Terms of the lanes over the pipe.
pub(crate) struct PipeTerms {
    pub(crate) seat: Seat,
    pub(crate) idle_timeout: Duration,
    pub(crate) budget: Arc<Budget>,
    /// Further connections of the two ends.
    pub(crate) beside: Option<Arc<dyn Beside>>,
}

impl Carried {
    /// Returns the name of the carrier in the bootstrap.
    pub(crate) fn choice(&self) -> ClientChoice {
        match self {
            #[cfg(feature = "quic")]
            Self::Quic(..) => ClientChoice::Quic,
            #[cfg(feature = "tls")]
            Self::Tls(_) => ClientChoice::Tls,
            #[cfg(feature = "quic")]
            Self::Both(..) => ClientChoice::Both,
            Self::Pipe => ClientChoice::Ssh,
        }
    }

    /// Returns both carriers side by side, or this one if they are not TLS and QUIC.
    #[cfg(feature = "tls")]
    pub(crate) fn beside(self, other: Self) -> Self {
        match (self, other) {
            #[cfg(feature = "quic")]
            (Self::Tls(established), Self::Quic(connection, endpoint)) => {
                Self::Both(established, connection, endpoint)
            }
            (one, _) => one,
        }
    }

    /// Makes the link. The bootstrap's pipe carries it, or stays to show the end of ssh.
    pub(crate) fn into_link(
        self,
        reactor: Reactor,
        (reader, writer): (PipeReader, PipeWriter),
        terms: PipeTerms,
    ) -> Arc<dyn Link> {
        let PipeTerms { seat, idle_timeout, budget, beside } = terms;

        match self {
            #[cfg(feature = "quic")]
            Self::Quic(connection, endpoint) => {
                Arc::new(QuicLink::start(reactor, connection, endpoint, reader, writer))
            }
            #[cfg(feature = "tls")]
            Self::Tls(established) => Arc::new(TlsLink::start(reactor, established, reader, writer)),
            #[cfg(feature = "quic")]
            Self::Both(established, connection, endpoint) => {
                let reactor = Arc::new(reactor);
                let tls = TlsLink::new(Arc::clone(&reactor), established);
                let quic = QuicLink::new(Arc::clone(&reactor), connection, endpoint);
                Arc::new(BothLink::start(&reactor, tls, quic, reader, writer))
            }
            Self::Pipe => {
                Arc::new(MuxLink::start(reactor, reader, writer, seat, idle_timeout, budget, beside))
            }
        }
    }
}
