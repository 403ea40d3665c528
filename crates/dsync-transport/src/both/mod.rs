//! A link of two carriers: TLS and QUIC to the same peer, side by side.
//!
//! A lane of it is a row of *stretches*, each a lane of one carrier, and each direction has a row of
//! its own. What is written goes over the last stretch. When an end decides that its data does
//! better over the other carrier ([`choice`]), every writer begins a new stretch there with its next
//! piece, and tells in the old one that it goes on elsewhere. The reader empties the old one first.
//! So order holds, nothing is sent twice or lost, and nobody above notices.
//!
//! Each end decides for what it sends, since only the sender knows of losses; the end that sends
//! little goes where the other one's data goes. [`header`] is how a stretch begins, [`lane`] the
//! two halves of a lane, [`arrivals`] what the peer began and nobody has taken yet. This module has
//! the link.
//!
//! A carrier that ends takes the run with it only if a lane was using it.

mod arrivals;
mod choice;
mod header;
mod lane;

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicUsize, Ordering},
    },
    thread::{self, JoinHandle},
};

use dsync_wire::link::{Carrier, CloseReason, Lane, Link, LinkError, Move, Traffic};

use self::{
    arrivals::Arrivals,
    choice::Choice,
    header::{Header, Why},
    lane::{Reader, Writer},
};
use crate::{
    counters::Counters,
    ending::end_of_ssh,
    losses::{SAMPLE_TIME, Sample},
    pipe::PipeReader,
    quic::QuicLink,
    reactor::Reactor,
    share::Senders,
    tls::TlsLink,
};

/// A link over two others. Dropping it closes them as [`Failed`](CloseReason::Failed) unless it was
/// closed before.
pub(crate) struct BothLink {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    // Behind the threads: the last to be dropped.
    sides: Sides,
}

/// TLS, QUIC.
type Sides = [Arc<dyn Link>; 2];

/// Samples each carrier.
type Meters = [Box<dyn FnMut() -> Sample + Send>; 2];

/// State that the link, its lanes and its threads share.
struct Shared {
    /// The carriers, as long as the link lives.
    sides: [Weak<dyn Link>; 2],
    /// The number of decisions so far; the last one, or its absence, is even for TLS.
    decisions: AtomicUsize,
    route: Mutex<Route>,
    /// Number of data lanes that are to send over TLS.
    senders: AtomicUsize,
    arrivals: Arrivals,
    counters: Counters,
}

/// The decisions so far.
struct Route {
    choice: Choice,
    /// The reason for the side of what is written next.
    why: Why,
    /// The moves of this end.
    moves: Vec<Move>,
    /// The peer's, by their numbers: the first word of one may come before that of an earlier one,
    /// which took the other carrier.
    theirs: BTreeMap<u16, Move>,
}

impl BothLink {
    /// Makes a link from the established ends of both carriers. `bootstrap` is the stream from the
    /// ssh process: its end means that the peer is gone.
    pub(crate) fn start<K: Send + 'static>(
        reactor: &Reactor,
        tls: TlsLink,
        quic: QuicLink,
        bootstrap: PipeReader,
        keep_open: K,
    ) -> Self {
        let (lose_tls, lose_quic) = (tls.loser(), quic.loser());
        reactor.spawn(async move {
            end_of_ssh(bootstrap).await;
            lose_tls();
            lose_quic();
            drop(keep_open);
        });
        let (mut over_tcp, mut over_udp) = (tls.meter(), quic.meter());
        let meters: Meters = [Box::new(move || over_tcp.sample()), Box::new(move || over_udp.sample())];
        Self::over([Arc::new(tls), Arc::new(quic)], Some(meters))
    }

    fn over(sides: Sides, meters: Option<Meters>) -> Self {
        let shared = Arc::new(Shared {
            sides: [Arc::downgrade(&sides[0]), Arc::downgrade(&sides[1])],
            decisions: AtomicUsize::new(TLS),
            route: Mutex::new(Route {
                choice: Choice::new(),
                why: Why::Began,
                moves: Vec::new(),
                theirs: BTreeMap::new(),
            }),
            senders: AtomicUsize::new(usize::MAX),
            arrivals: Arrivals::default(),
            counters: Counters::default(),
        });

        let mut threads = Vec::new();
        let mut spawn = |name: &str, work: Box<dyn FnOnce() + Send>| match thread::Builder::new()
            .name(name.into())
            .spawn(work)
        {
            Ok(thread) => threads.push(thread),
            Err(error) => shared.end(LinkError::io(error), CloseReason::Failed),
        };
        for (side, link) in sides.iter().enumerate() {
            let (link, shared) = (Arc::clone(link), Arc::clone(&shared));
            spawn("dsync-accept", Box::new(move || shared.accept_from(side, &*link)));
        }
        if let Some(meters) = meters {
            let (shared, lanes) = (Arc::clone(&shared), sides[TLS].data_lanes());
            spawn("dsync-choice", Box::new(move || shared.choose(meters, lanes)));
        }

        Self { shared, threads, sides }
    }
}

impl Link for BothLink {
    fn carrier(&self) -> Carrier {
        carrier(self.shared.side())
    }

    fn data_lanes(&self) -> usize {
        // QUIC needs as many on a path of this length, and each lane may be on either.
        self.sides[TLS].data_lanes()
    }

    fn sending_lanes(&self) -> usize {
        // Streams of QUIC share one connection's part of the path.
        if self.shared.side() == TLS { self.shared.senders.load(Ordering::Relaxed) } else { usize::MAX }
    }

    fn is_near(&self) -> bool {
        self.sides[TLS].is_near()
    }

    fn moves(&self) -> Vec<Move> {
        let route = self.shared.route();
        route.moves.iter().chain(route.theirs.values()).copied().collect()
    }

    fn open_lane(&self) -> Result<Lane, LinkError> {
        self.shared.arrivals.check()?;
        let side = self.shared.side();
        let lane = self.sides[side].open_lane().map_err(|error| self.shared.explain(error))?;
        let id = self.shared.arrivals.next_id();
        Ok(Lane {
            tx: Box::new(Writer::new(&self.shared, lane.tx, (true, id), side)),
            rx: Box::new(Reader::new(&self.shared, lane.rx, (false, id))),
        })
    }

    fn accept_lane(&self) -> Result<Lane, LinkError> {
        let arrivals::Begun { id, side, lane } = self.shared.arrivals.accept()?;
        Ok(Lane {
            tx: Box::new(Writer::new(&self.shared, lane.tx, (false, id), side)),
            rx: Box::new(Reader::new(&self.shared, lane.rx, (true, id))),
        })
    }

    fn traffic(&self) -> Traffic {
        self.shared.counters.traffic()
    }

    fn close(&self, reason: CloseReason) {
        self.shared.end(LinkError::Closed, reason);
    }
}

impl Drop for BothLink {
    fn drop(&mut self) {
        self.close(CloseReason::Failed);
        for thread in self.threads.drain(..) {
            // The hook has printed a panic.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn route(&self) -> MutexGuard<'_, Route> {
        self.route.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the side of what is written next.
    fn side(&self) -> usize {
        self.decisions.load(Ordering::Acquire) % SIDES
    }

    /// Returns whether this end sends most of what the link carries: then it decides for both.
    fn leads(&self) -> bool {
        let Traffic { sent_bytes, received_bytes, .. } = self.counters.traffic();
        sent_bytes > received_bytes
    }

    /// Opens a lane of one carrier.
    fn open(&self, side: usize) -> Result<Lane, LinkError> {
        self.sides[side].upgrade().ok_or(LinkError::Closed)?.open_lane()
    }

    /// Takes what the peer begins on one carrier, until that ends.
    fn accept_from(&self, side: usize, link: &dyn Link) {
        let cause = loop {
            let mut lane = match link.accept_lane() {
                Ok(lane) => lane,
                Err(cause) => break cause,
            };
            let mut bytes = [0; header::LENGTH];
            let header = match lane.rx.fill(&mut bytes) {
                Ok(header::LENGTH) => Header::decode(bytes),
                Ok(_) => None,
                Err(_) => {
                    self.arrivals.give_up();
                    continue;
                }
            };
            if let Some(header) = header {
                self.heed(side, &header);
                if self.arrivals.add(header, side, lane) {
                    continue;
                }
            }
            self.end(LinkError::PeerClosed { reason: CloseReason::Protocol }, CloseReason::Protocol);
            return;
        };

        match cause {
            LinkError::Closed | LinkError::PeerClosed { .. } => {
                let reason =
                    if let LinkError::PeerClosed { reason } = cause { reason } else { CloseReason::Failed };
                self.end(cause, reason);
            }
            cause => {
                tracing::debug!(carrier = %carrier(side), %cause, "one of two carriers ended");
                if self.arrivals.lose(side, &cause) {
                    self.end(cause, CloseReason::Failed);
                }
            }
        }
    }

    /// Notes where the peer's data goes, and goes there as well if this end sends less.
    fn heed(&self, side: usize, header: &Header) {
        let Why::Decided(cause) = header.why else { return };
        let (to, mut route) = (carrier(side), self.route());
        let newest = route.theirs.last_key_value().is_none_or(|(last, _)| header.decision > *last);
        if route.theirs.insert(header.decision, Move::new(to, cause)).is_some() {
            return;
        }
        if route.theirs.len() > MOST_TOLD {
            route.theirs.pop_first();
        }
        tracing::debug!(%to, ?cause, "the peer's data moves");
        if newest && !self.leads() && route.choice.follow(to) {
            route.why = Why::Followed;
            self.decisions.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// Watches what the carrier in use shows, and decides.
    fn choose(&self, mut meters: Meters, lanes: usize) {
        let mut senders = Senders::of(lanes);
        while !self.arrivals.ends_within(SAMPLE_TIME) {
            let side = self.side();
            let sample = meters[side]();
            if side == TLS {
                self.senders.store(senders.take(sample), Ordering::Relaxed);
            }

            let open = self.arrivals.is_live(SIDES - 1 - side) && self.leads();
            let mut route = self.route();
            if side != self.side() {
                continue;
            }
            if let Some(moved) = route.choice.take(sample, open) {
                tracing::debug!(to = %moved.to, cause = ?moved.cause, "the data moves");
                if route.moves.len() == MOST_TOLD {
                    route.moves.remove(0);
                }
                route.moves.push(moved);
                route.why = Why::Decided(moved.cause);
                self.decisions.fetch_add(1, Ordering::AcqRel);
                // The next sample begins here: nobody has looked at this carrier meanwhile.
                let _ = meters[SIDES - 1 - side]();
            }
        }
    }

    /// Ends the link, unless it has ended.
    fn end(&self, cause: LinkError, reason: CloseReason) {
        if self.arrivals.end(cause) {
            for side in self.sides.iter().filter_map(Weak::upgrade) {
                side.close(reason);
            }
        }
    }

    /// Returns the link's error for one of a lane.
    fn explain(&self, error: LinkError) -> LinkError {
        match error {
            // That is also the word for a peer that dropped its half of this lane.
            LinkError::PeerClosed { reason: CloseReason::Failed } => {}
            // The lane may hear of it before those who accept do.
            LinkError::PeerClosed { reason } => self.end(error.clone(), reason),
            _ => {}
        }
        self.arrivals.check().err().unwrap_or(error)
    }
}

fn carrier(side: usize) -> Carrier {
    if side == TLS { Carrier::Tls } else { Carrier::Quic }
}

const SIDES: usize = 2;
const TLS: usize = 0;
/// Most moves of each end that are kept, the last ones.
const MOST_TOLD: usize = 4 * choice::MOST_AT_ONCE as usize;

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
