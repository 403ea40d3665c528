//! Further connections at the client, which makes them.

use std::{
    io::Write as _,
    net::{SocketAddr, TcpStream},
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use dsync_wire::link::{Carrier, LaneRead, LaneWrite, Link, LinkError, Move, MoveCause, Traffic};

#[cfg(feature = "quic")]
use super::quic;
use super::{ADMITTED, Awaited, CONNECTIONS, Invitation, Pool, preface, settle, watch::watch};
use crate::{
    identity::Identity,
    mux::beside::{Beside, INVITATION},
    standing::Count,
    tls::{
        handshake::{DIAL_TIME, OURS, THEIRS, opening, read_exactly},
        stream::{Opener, Sealer, Stream, StreamError},
    },
    waits::NEAR,
};

/// The way of the further connections.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Plan {
    /// Whether both ends know of connections over QUIC.
    pub(crate) knows_quic: bool,
    /// Whether both ends know of second moves.
    pub(crate) moves_again: bool,
    /// Whether lanes go on by QUIC where losses hold TLS back.
    pub(crate) by_loss: bool,
    /// The reason to go on by QUIC, if the port takes it; `None` leaves it to TLS.
    pub(crate) quic: Option<MoveCause>,
    /// Shortest round trip of the first connection.
    pub(crate) round_trip: Duration,
    /// Longest silence of a connection.
    pub(crate) idle_timeout: Duration,
}

/// The client's end. It makes connections once: one over QUIC if it may and is to, else some over TLS for
/// each direction in which much passes, and one over QUIC beside them if losses hold them back.
pub(crate) struct Caller {
    identity: Identity,
    address: SocketAddr,
    plan: Plan,
    /// Whether the port takes QUIC, as far as it is known.
    takes_quic: AtomicBool,
    has_called_quic: AtomicBool,
    /// The reason why it was made.
    cause: OnceLock<MoveCause>,
    invitation: OnceLock<Invitation>,
    pool: Arc<Pool>,
    next: AtomicU32,
    /// Whether connections were made to send on, and to receive from.
    has_called: [AtomicBool; 2],
}

/// [`Caller`] as the mux has it: its calls outlive the call that starts them.
#[derive(Clone)]
pub(crate) struct Calling(Arc<Caller>);

impl Calling {
    /// Makes the client's end. `identity` is the one that the bootstrap announced, `address` that of the
    /// connection to the server.
    pub(crate) fn new(identity: Identity, address: SocketAddr, plan: Plan) -> Self {
        Self(Arc::new(Caller {
            identity,
            address,
            plan,
            takes_quic: AtomicBool::new(false),
            has_called_quic: AtomicBool::new(false),
            cause: OnceLock::new(),
            invitation: OnceLock::new(),
            pool: Arc::new(Pool::new(Count::default(), Count::default())),
            next: AtomicU32::default(),
            has_called: Default::default(),
        }))
    }
}

impl Beside for Calling {
    fn invitation(&self) -> Option<[u8; INVITATION]> {
        None
    }

    fn invited(&self, invitation: &[u8; INVITATION]) {
        // A second one changes nothing.
        let _ = self.0.invitation.set(Invitation::parse(invitation));
    }

    fn knows_quic(&self) -> bool {
        self.0.plan.knows_quic
    }

    fn moves_again(&self) -> bool {
        self.0.plan.moves_again
    }

    fn takes_quic(&self) -> bool {
        false
    }

    fn told_of_quic(&self) {
        self.0.takes_quic.store(true, Ordering::Release);
    }

    fn asks_for_quic(&self) -> Option<u32> {
        None
    }

    fn asked_for_quic(&self, per_million: u32) {
        if self.0.plan.by_loss {
            self.0.go_by_quic(MoveCause::Loss { per_million });
        }
    }

    fn data_lanes(&self) -> Option<usize> {
        self.0.plan.quic.and_then(|_| data_lanes(self.0.plan.round_trip))
    }

    fn sending_lanes(&self) -> usize {
        self.0.pool.sending_lanes()
    }

    fn is_expected(&self) -> bool {
        self.0.plan.quic.is_some()
    }

    fn moves(&self) -> Vec<Move> {
        let cause = self.0.cause.get().filter(|_| self.0.pool.streams.is_used());
        cause.into_iter().map(|&cause| Move::new(Carrier::Quic, cause)).collect()
    }

    fn passed(&self, traffic: Traffic) {
        if let Some(cause) = self.0.plan.quic
            && self.0.takes_quic.load(Ordering::Acquire)
        {
            if traffic.sent_bytes.saturating_add(traffic.received_bytes) >= QUIC_PAYS_AFTER {
                self.0.go_by_quic(cause);
            }
            return;
        }
        let passed = [traffic.sent_bytes, traffic.received_bytes];
        for ((bytes, has_called), kind) in passed.into_iter().zip(&self.0.has_called).zip([OURS, THEIRS]) {
            if bytes >= PAYS_AFTER
                && !has_called.load(Ordering::Relaxed)
                && self.0.invitation.get().is_some()
                && !has_called.swap(true, Ordering::AcqRel)
            {
                self.0.call_all(kind);
            }
        }
    }

    fn take(&self, sent_bytes: u64) -> Option<(u32, Box<dyn LaneWrite>)> {
        self.0.pool.take(sent_bytes)
    }

    fn take_again(&self, from: u32) -> Option<(u32, Box<dyn LaneWrite>)> {
        self.0.pool.take_again(from)
    }

    fn receive(&self, number: u32) -> Result<Box<dyn LaneRead>, LinkError> {
        self.0.pool.receive(number)
    }

    fn has_lost(&self) -> bool {
        self.0.pool.has_lost(self.0.plan.idle_timeout)
    }

    fn end(&self) {
        self.0.pool.end();
    }
}

impl Caller {
    /// Makes the connection over QUIC once, on a thread of its own, if the port takes it. Where it cannot be
    /// made, the lanes are left to TLS.
    fn go_by_quic(self: &Arc<Self>, cause: MoveCause) {
        if self.has_called_quic.load(Ordering::Relaxed)
            || !self.takes_quic.load(Ordering::Acquire)
            || self.invitation.get().is_none()
            || self.has_called_quic.swap(true, Ordering::AcqRel)
        {
            return;
        }

        // Only the one that has just won the right to call sets it.
        let _ = self.cause.set(cause);
        self.pool.streams.call();
        let caller = Arc::clone(self);
        let work = move || {
            if !caller.call_quic() {
                caller.pool.streams.fail();
                caller.takes_quic.store(false, Ordering::Release);
            }
        };
        if thread::Builder::new().name("dsync-further".into()).spawn(work).is_err() {
            self.pool.streams.fail();
            self.takes_quic.store(false, Ordering::Release);
        }
    }

    /// Makes the connection over QUIC; returns whether it is there.
    fn call_quic(&self) -> bool {
        let Some(invitation) = self.invitation.get() else { return false };
        let called = quic::call(&self.identity, self.address, invitation, self.plan.idle_timeout);
        let link: Arc<dyn Link> = match called {
            Ok(link) => link,
            Err(error) => {
                tracing::debug!(address = %self.address, ?error, "no further connection over QUIC");
                return false;
            }
        };
        tracing::debug!(address = %self.address, "further connection over QUIC");
        self.pool.streams.add(link)
    }

    /// Goes on by QUIC, if that may be, once losses hold back what this end sends over TLS.
    fn watch_path(self: &Arc<Self>) {
        let caller = Arc::clone(self);
        watch(&self.pool, move |per_million| {
            if caller.plan.by_loss && caller.takes_quic.load(Ordering::Acquire) {
                caller.go_by_quic(MoveCause::Loss { per_million });
            }
        });
    }

    /// Makes the connections for one direction, each on a thread of its own. What fails stays on the mux.
    fn call_all(self: &Arc<Self>, kind: u8) {
        if kind == OURS {
            self.watch_path();
        }
        for _ in 0..CONNECTIONS {
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            if kind == THEIRS {
                self.pool.expect(number, Awaited::Called);
            }

            let caller = Arc::clone(self);
            let work = move || {
                let called = caller.call(kind, number);
                let is_made = match called {
                    Ok((stream, _)) if kind == OURS => caller.pool.add_free(number, stream),
                    Ok((stream, opener)) => caller.pool.add_awaited(number, stream, opener),
                    Err(error) => {
                        tracing::debug!(?error, "no further connection");
                        false
                    }
                };
                if !is_made && kind == THEIRS {
                    caller.pool.expect(number, Awaited::Failed);
                }
            };
            let started = thread::Builder::new().name("dsync-further".into()).spawn(work);
            if started.is_err() && kind == THEIRS {
                self.pool.expect(number, Awaited::Failed);
            }
        }
    }

    /// Makes a connection that the server has admitted.
    fn call(&self, kind: u8, number: u32) -> Result<(Arc<Stream>, Opener), StreamError> {
        let Some(Invitation { session, secret, server }) = self.invitation.get() else {
            return Err(StreamError::Truncated);
        };
        let (config, _) = self.identity.client_config(*server).map_err(StreamError::Tls)?;

        let begun = Instant::now();
        let mut tcp = TcpStream::connect_timeout(&self.address, DIAL_TIME)?;
        let is_near = begun.elapsed() < NEAR;
        tcp.set_nodelay(true)?;
        tcp.write_all(&preface(session))?;

        let end = begun + DIAL_TIME;
        let (stream, mut opener) = Stream::client(tcp, Arc::new(config), DIAL_TIME)?;
        Sealer::default().write(&stream, &opening(kind, is_near, number, secret))?;
        let mut admitted = [0];
        read_exactly(&stream, &mut opener, &mut admitted, end)?;
        if admitted != ADMITTED {
            return Err(StreamError::Truncated);
        }
        settle(&stream, is_near, self.plan.idle_timeout)?;
        tracing::debug!(address = %self.address, number, kind, "further connection");
        Ok((Arc::new(stream), opener))
    }
}

/// Returns the number of lanes that fill QUIC on a path of this round trip.
#[cfg(feature = "quic")]
fn data_lanes(round_trip: Duration) -> Option<usize> {
    Some(crate::quic::data_lanes(round_trip, 1))
}

/// Returns none: this build has no QUIC.
#[cfg(not(feature = "quic"))]
fn data_lanes(_: Duration) -> Option<usize> {
    None
}

/// QUIC of a build without: no plan asks for it.
#[cfg(not(feature = "quic"))]
mod quic {
    use super::{Arc, Duration, Identity, Invitation, Link, SocketAddr};

    pub(super) fn call(
        _: &Identity,
        _: SocketAddr,
        _: &Invitation,
        _: Duration,
    ) -> Result<Arc<dyn Link>, std::io::Error> {
        Err(std::io::ErrorKind::Unsupported.into())
    }
}

/// Bytes in a direction after which connections pay for their handshakes: those of four take some
/// milliseconds of both ends, in which as much passes as this over a fast path.
const PAYS_AFTER: u64 = 2 << 20;
/// Bytes in both directions after which the connection over QUIC pays. On a long path that is more than
/// asking about a tree without changes takes, and less than TCP carries in its first round trips.
const QUIC_PAYS_AFTER: u64 = 64 << 10;
