//! The TLS carrier: TLS 1.3 over TCP (RFC 8446) between two processes that learned each other's
//! one-time key over ssh. Each lane is a connection of its own.
//!
//! On a short path it is the fastest carrier by far. TCP needs a fraction of QUIC's processor time,
//! and the engine's own threads encrypt, send, receive and decrypt, so nothing passes through a
//! queue. It is also the way through if UDP is blocked. [`stream`] is one connection, [`mod@lane`]
//! adapts it to a session, [`registry`] keeps the connections of a link together, [`signal`]
//! carries messages between the ends besides the lanes, [`silence`] notices a lane whose path is gone, and
//! [`handshake`] connects and admits.
//!
//! Only the client connects, because nobody can be expected to open ports on a workstation. A lane
//! that the server opens is a connection that it has requested from the client.

pub(crate) mod handshake;
mod lane;
pub(crate) mod meter;
pub(crate) mod registry;
mod signal;
pub(crate) mod silence;
pub(crate) mod stream;
pub(crate) mod tcp_info;

use std::{sync::Arc, thread::available_parallelism};

use dsync_wire::link::{Carrier, CloseReason, Lane, Link, LinkError, Traffic};

use self::{handshake::Caller, lane::lane, registry::Registry, signal::Main};
use crate::{ending::end_of_ssh, pipe::PipeReader, reactor::Reactor};

/// A link of TLS connections. Dropping it closes it as [`Failed`](CloseReason::Failed) unless it
/// was closed before, and allows the peer a moment to receive the reason.
pub(crate) struct TlsLink {
    registry: Arc<Registry>,
    /// Makes connections; none at the server, which requests them.
    caller: Option<Arc<Caller>>,
    /// The runtime of the server's listening socket and of the watch over ssh.
    _reactor: Arc<Reactor>,
}

/// One end of a link whose peer has proved its identity.
pub(crate) struct Established {
    registry: Arc<Registry>,
    caller: Option<Arc<Caller>>,
}

impl TlsLink {
    /// Makes a link from an established end. `bootstrap` is the stream from the ssh process: its
    /// end means that the peer is gone, whatever TCP may still say.
    pub(crate) fn start<K: Send + 'static>(
        reactor: Reactor,
        established: Established,
        bootstrap: PipeReader,
        keep_open: K,
    ) -> Self {
        let reactor = Arc::new(reactor);
        let link = Self::new(Arc::clone(&reactor), established);
        link.registry.relieve(link.data_lanes());
        let lose = link.loser();
        reactor.spawn(async move {
            end_of_ssh(bootstrap).await;
            lose();
            drop(keep_open);
        });
        link
    }

    /// Makes a link that shares its runtime, and the watch over ssh, with another one.
    pub(crate) fn new(reactor: Arc<Reactor>, established: Established) -> Self {
        let Established { registry, caller } = established;
        Self { registry, caller, _reactor: reactor }
    }

    /// Returns the act that ends the link when the peer is known to be gone.
    pub(crate) fn loser(&self) -> impl FnOnce() + Send + 'static {
        let registry = Arc::clone(&self.registry);
        move || registry.end(LinkError::Lost, Some(CloseReason::Failed))
    }

    /// Returns the meter of what the path shows to the lanes.
    #[cfg(feature = "quic")]
    pub(crate) fn meter(&self) -> meter::Meter {
        meter::Meter::of_lanes(Arc::clone(&self.registry))
    }
}

impl Link for TlsLink {
    fn carrier(&self) -> Carrier {
        Carrier::Tls
    }

    fn data_lanes(&self) -> usize {
        // A connection that lost a packet waits for it; the others do not.
        available_parallelism().map_or(MIN_LANES, |cores| cores.get().clamp(MIN_LANES, MAX_DATA_LANES))
    }

    fn sending_lanes(&self) -> usize {
        self.registry.sending_lanes()
    }

    fn is_near(&self) -> bool {
        self.registry.main().is_some_and(Main::is_near)
    }

    fn open_lane(&self) -> Result<Lane, LinkError> {
        let id = self.registry.reserve()?;
        let opened = match &self.caller {
            Some(caller) => caller.open(&self.registry, id),
            None => self.registry.ask(handshake::DIAL_TIME),
        };
        let arrival = opened.inspect_err(|_| self.registry.give_back())?;
        Ok(lane(&self.registry, arrival))
    }

    fn accept_lane(&self) -> Result<Lane, LinkError> {
        Ok(lane(&self.registry, self.registry.accept()?))
    }

    fn traffic(&self) -> Traffic {
        self.registry.counters.traffic()
    }

    fn close(&self, reason: CloseReason) {
        self.registry.end(LinkError::Closed, Some(reason));
    }
}

impl Drop for TlsLink {
    fn drop(&mut self) {
        self.close(CloseReason::Failed);
        self.registry.wait_for_farewell();
        if let Some(main) = self.registry.main() {
            main.end(None);
        }
    }
}

/// Fewest data lanes: while one waits for its packets or its disk, another continues.
const MIN_LANES: usize = 4;
/// Most data lanes: more connections would crowd others out of a shared path.
const MAX_DATA_LANES: usize = 8;

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
