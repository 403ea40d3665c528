//! The connection that the two ends of a bootstrap agreed on, and the link that it becomes.

use std::{sync::Arc, time::Duration};

use dsync_wire::{
    bootstrap::ClientChoice,
    budget::Budget,
    link::{Carrier, Link},
};
use quinn::{Connection, Endpoint};

use crate::{
    mux::{MuxLink, Role},
    pipe::{PipeReader, PipeWriter},
    quic::QuicLink,
    reactor::Reactor,
    tls::{Established, TlsLink},
};

/// The connection that carries the session.
pub(crate) enum Carried {
    Quic(Connection, Endpoint),
    Tls(Established),
    Pipe,
}

/// What the lanes of a pipe have to know of it.
pub(crate) struct PipeTerms {
    /// This end's role, and the carrier that the pipe counts as.
    pub(crate) seat: (Role, Carrier),
    pub(crate) idle_timeout: Duration,
    pub(crate) budget: Arc<Budget>,
}

impl Carried {
    /// Returns the name of the carrier in the bootstrap.
    pub(crate) fn choice(&self) -> ClientChoice {
        match self {
            Self::Quic(..) => ClientChoice::Quic,
            Self::Tls(_) => ClientChoice::Tls,
            Self::Pipe => ClientChoice::Ssh,
        }
    }

    /// Makes the link. The bootstrap's pipe carries it, or stays to show the end of ssh.
    pub(crate) fn into_link(
        self,
        reactor: Reactor,
        (reader, writer): (PipeReader, PipeWriter),
        terms: PipeTerms,
    ) -> Arc<dyn Link> {
        match self {
            Self::Quic(connection, endpoint) => {
                Arc::new(QuicLink::start(reactor, connection, endpoint, reader, writer))
            }
            Self::Tls(established) => Arc::new(TlsLink::start(reactor, established, reader, writer)),
            Self::Pipe => {
                let PipeTerms { seat, idle_timeout, budget } = terms;
                Arc::new(MuxLink::start(reactor, reader, writer, seat, idle_timeout, budget))
            }
        }
    }
}
