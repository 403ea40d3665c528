//! The live lanes of one link, and the link's end.
//!
//! The laws it keeps: a lane's connection stays open until both of its halves are gone here *and*
//! its peer's direction has been read to the end, or the link is over. (Closing a socket that holds
//! unread bytes would make the system reset it, and the peer would lose data that it has not yet
//! read.) Each end opens a bounded number of lanes. After the link has ended, each of its
//! connections is shut, so that everybody who waits in one is woken.

use std::{
    collections::{BTreeSet, HashMap, VecDeque},
    io,
    net::Shutdown,
    sync::{
        Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use dsync_wire::link::{Carrier, CloseReason, LinkError};

use super::{
    signal::{Main, Signal},
    silence::is_lost,
    stream::{Opener, Stream, StreamError},
};
use crate::counters::Counters;

/// One lane's connection.
pub(super) struct Line {
    /// Number of the lane, chosen by the client.
    pub(super) id: u32,
    pub(super) stream: Stream,
    /// Whether this end opened it.
    local: bool,
    /// Whether the peer has stopped reading it.
    stopped: AtomicBool,
    /// Whether the peer will not finish it.
    reset: AtomicBool,
    /// Whether the peer's direction was read to its end.
    pub(super) drained: AtomicBool,
    /// Number of its halves in use here.
    halves: AtomicU8,
}

impl Line {
    pub(super) fn new(id: u32, stream: Stream, local: bool) -> Arc<Self> {
        Arc::new(Self {
            id,
            stream,
            local,
            stopped: AtomicBool::new(false),
            reset: AtomicBool::new(false),
            drained: AtomicBool::new(false),
            halves: AtomicU8::new(2),
        })
    }

    fn told(&self, word: Word) {
        match word {
            Word::Stop => {
                self.stopped.store(true, Ordering::Release);
                self.stream.shut(Shutdown::Write);
            }
            Word::Reset => self.reset.store(true, Ordering::Release),
        }
    }
}

/// A lane with the bytes that have arrived on it so far.
pub(super) type Arrival = (Arc<Line>, Opener);

/// The half of a lane that found it broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Half {
    Sending,
    Receiving,
}

/// State that a link, its lanes and its threads share.
pub(super) struct Registry {
    state: Mutex<State>,
    changed: Condvar,
    main: OnceLock<Main>,
    pub(super) counters: Counters,
    /// Number of data lanes that are to send.
    senders: AtomicUsize,
    /// Number of data lanes of a link that cares for its path itself.
    relieved: OnceLock<usize>,
}

#[derive(Default)]
struct State {
    ended: Option<LinkError>,
    lines: HashMap<u32, Arc<Line>>,
    /// Lanes of the peer that were not yet accepted.
    arrivals: VecDeque<Arrival>,
    /// At the server: connections that the client made for lanes of this end.
    spares: VecDeque<Arrival>,
    /// Number of live lanes that this end opened.
    opened: usize,
    /// At the server: numbers of requested spares that have not arrived, and of refusals that have.
    asked: usize,
    refused: usize,
    /// At the client: the number of the next connection.
    next_id: u32,
    /// Signals about lanes that are not known here yet, because their own connections may be
    /// slower.
    early: BTreeSet<(u32, Word)>,
    /// Whether the main connection has ended.
    main_over: bool,
}

/// The peer's message about its half of a lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Word {
    /// The peer has stopped reading.
    Stop,
    /// The peer will not finish its direction.
    Reset,
}

impl Registry {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::default(),
            changed: Condvar::new(),
            main: OnceLock::new(),
            counters: Counters::default(),
            senders: AtomicUsize::new(usize::MAX),
            relieved: OnceLock::new(),
        })
    }

    /// Returns the number of data lanes that are to send: all at first.
    pub(super) fn sending_lanes(&self) -> usize {
        self.senders.load(Ordering::Relaxed)
    }

    /// Sets the number of data lanes that are to send.
    pub(super) fn let_send(&self, lanes: usize) {
        self.senders.store(lanes, Ordering::Relaxed);
    }

    /// Tells whoever listens to care for the path of the link, which has so many data lanes.
    pub(super) fn relieve(&self, lanes: usize) {
        let _ = self.relieved.set(lanes);
    }

    /// Returns the number of data lanes of a link that cares for its path itself.
    pub(super) fn relieved(&self) -> Option<usize> {
        self.relieved.get().copied()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the main connection, once.
    pub(super) fn set_main(&self, main: Main) -> Option<&Main> {
        self.main.set(main).ok()?;
        self.main.get()
    }

    /// Returns the main connection, if there is one yet.
    pub(super) fn main(&self) -> Option<&Main> {
        self.main.get()
    }

    /// Fails once the link has ended.
    pub(super) fn check(&self) -> Result<(), LinkError> {
        self.lock().check()
    }

    /// Waits for a place among the lanes that this end opens and takes it; returns the number of
    /// the next connection.
    pub(super) fn reserve(&self) -> Result<u32, LinkError> {
        let mut state = self.lock();
        loop {
            state.check()?;
            if state.opened < MAX_LANES {
                state.opened += 1;
                return Ok(state.next_id());
            }
            state = self.wait(state);
        }
    }

    /// Releases a place from [`reserve`](Self::reserve) whose lane was not made.
    pub(super) fn give_back(&self) {
        let mut state = self.lock();
        state.opened = state.opened.saturating_sub(1);
        drop(state);
        self.changed.notify_all();
    }

    /// Returns the number for a connection that the client makes for the server, unless there are
    /// too many.
    pub(super) fn number_for_peer(&self) -> Option<u32> {
        let mut state = self.lock();
        (state.lines.len() < 2 * MAX_LANES).then(|| state.next_id())
    }

    /// Records a lane. Returns `false` if the link has ended, the number is taken, or the peer has
    /// too many.
    pub(super) fn add(&self, line: &Arc<Line>) -> bool {
        let mut state = self.lock();
        let theirs = state.lines.values().filter(|line| !line.local).count();
        if state.ended.is_some() || state.lines.contains_key(&line.id) || (!line.local && theirs >= MAX_LANES)
        {
            return false;
        }
        state.insert(line);
        true
    }

    /// Makes a lane of the peer visible to [`accept`](Self::accept) as soon as something arrives on
    /// it. Forgets a lane that was abandoned before that. Blocks until then.
    pub(super) fn announce(&self, line: Arc<Line>, mut opener: Opener) {
        match opener.wait(&line.stream) {
            Ok(_) => {
                let mut state = self.lock();
                if state.ended.is_none() {
                    state.arrivals.push_back((line, opener));
                    drop(state);
                    self.changed.notify_all();
                }
            }
            Err(StreamError::Tls(error)) => self.end(tls_error(error), Some(CloseReason::Protocol)),
            Err(StreamError::Truncated | StreamError::Io(_)) => {
                self.lock().lines.remove(&line.id);
            }
        }
    }

    /// Waits for the next lane of the peer.
    pub(super) fn accept(&self) -> Result<Arrival, LinkError> {
        let mut state = self.lock();
        loop {
            state.check()?;
            if let Some(arrival) = state.arrivals.pop_front() {
                return Ok(arrival);
            }
            state = self.wait(state);
        }
    }

    /// Requests a connection from the client and waits for it; at the server.
    pub(super) fn ask(&self, limit: Duration) -> Result<Arrival, LinkError> {
        self.lock().asked += 1;
        self.signal(Signal::Dial);
        let end = Instant::now() + limit;
        let mut state = self.lock();
        loop {
            state.check()?;
            if let Some(spare) = state.spares.pop_front() {
                return Ok(spare);
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() || state.refused > 0 {
                state.refused = state.refused.saturating_sub(1);
                state.asked = state.asked.saturating_sub(1);
                drop(state);
                self.end(LinkError::Lost, Some(CloseReason::Failed));
                return Err(LinkError::Lost);
            }
            state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Hands over a connection that the server requested; at the server. Returns `false` if it was
    /// not requested.
    pub(super) fn supply(&self, line: &Arc<Line>, opener: Opener) -> bool {
        let mut state = self.lock();
        if state.ended.is_some() || state.asked == 0 || state.lines.contains_key(&line.id) {
            return false;
        }
        state.asked -= 1;
        state.insert(line);
        state.spares.push_back((Arc::clone(line), opener));
        drop(state);
        self.changed.notify_all();
        true
    }

    /// Records that the client could not make a requested connection; at the server.
    pub(super) fn refuse(&self) {
        self.lock().refused += 1;
        self.changed.notify_all();
    }

    /// Sends the peer a signal, unless the main connection is gone.
    pub(super) fn signal(&self, signal: Signal) {
        if let Some(main) = self.main() {
            main.send(signal);
        }
    }

    /// Handles the peer's message about its half of a lane.
    pub(super) fn told(&self, id: u32, word: Word) {
        let mut state = self.lock();
        if let Some(line) = state.lines.get(&id) {
            line.told(word);
        } else {
            // Usually about a lane that is already over. The number kept is bounded, oldest dropped
            // first.
            state.early.insert((id, word));
            if state.early.len() > MAX_EARLY {
                state.early.pop_first();
            }
        }
        drop(state);
        self.changed.notify_all();
    }

    /// Releases one half of a lane.
    pub(super) fn release(&self, line: &Line) {
        if line.halves.fetch_sub(1, Ordering::AcqRel) != 1 {
            return;
        }
        let mut state = self.lock();
        if line.local {
            state.opened = state.opened.saturating_sub(1);
        }
        if line.drained.load(Ordering::Acquire) {
            state.lines.remove(&line.id);
        }
        drop(state);
        self.changed.notify_all();
    }

    /// Returns the link's error for a broken connection of a lane. Waits for the reason, which
    /// arrives on the main connection.
    pub(super) fn explain(&self, line: &Line, half: Half, error: StreamError) -> LinkError {
        if let StreamError::Tls(error) = error {
            self.end(tls_error(error), Some(CloseReason::Protocol));
        }

        let end = Instant::now() + WORD_TIME;
        let mut state = self.lock();
        loop {
            if let Some(cause) = &state.ended {
                return cause.clone();
            }
            let told = match half {
                Half::Sending => &line.stopped,
                Half::Receiving => &line.reset,
            };
            if told.load(Ordering::Acquire) {
                return ABANDONED;
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }

        drop(state);
        // Something between the two ends cut this one connection.
        self.end(LinkError::Lost, Some(CloseReason::Failed));
        LinkError::Lost
    }

    /// Ends the link. Every later call reports `cause`; the peer is sent `farewell`.
    pub(super) fn end(&self, cause: LinkError, farewell: Option<CloseReason>) {
        let mut state = self.lock();
        if state.ended.is_some() {
            return;
        }
        state.ended = Some(cause);
        state.arrivals.clear();
        state.spares.clear();
        let lines = std::mem::take(&mut state.lines);
        drop(state);
        if let Some(main) = self.main() {
            main.end(farewell);
        }
        for line in lines.values() {
            line.stream.shut(Shutdown::Both);
        }
        self.changed.notify_all();
    }

    /// Records that the main connection has ended.
    pub(super) fn main_is_over(&self) {
        self.lock().main_over = true;
        self.changed.notify_all();
    }

    /// Waits until the peer has received the reason, or for [`FAREWELL_TIME`].
    pub(super) fn wait_for_farewell(&self) {
        let state = self.lock();
        if self.main().is_some() {
            // The result says whether the time ran out, which changes nothing.
            let _ = self.changed.wait_timeout_while(state, FAREWELL_TIME, |state| !state.main_over);
        }
    }

    /// Returns the live lanes.
    pub(super) fn lines(&self) -> Vec<Arc<Line>> {
        self.lock().lines.values().cloned().collect()
    }

    /// Returns whether the path of a live lane is gone.
    pub(super) fn has_lost(&self, idle_timeout: Duration) -> bool {
        self.lines().iter().any(|line| is_lost(line.stream.socket(), idle_timeout))
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        self.changed.wait(state).unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn check(&self) -> Result<(), LinkError> {
        self.ended.clone().map_or(Ok(()), Err)
    }

    fn insert(&mut self, line: &Arc<Line>) {
        self.lines.insert(line.id, Arc::clone(line));
        for word in [Word::Stop, Word::Reset] {
            if self.early.remove(&(line.id, word)) {
                line.told(word);
            }
        }
    }

    fn next_id(&mut self) -> u32 {
        let id = self.next_id;
        self.next_id = self.next_id.wrapping_add(1);
        id
    }
}

/// Turns a broken rule of TLS into the link's error.
pub(super) fn tls_error(source: rustls::Error) -> LinkError {
    LinkError::Carrier { carrier: Carrier::Tls, source: Arc::new(source) }
}

/// Returns the link's error for a failed handshake or main connection.
pub(crate) fn link_error(error: StreamError) -> LinkError {
    match error {
        StreamError::Tls(error) => tls_error(error),
        StreamError::Truncated => LinkError::Lost,
        StreamError::Io(error) => match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => LinkError::TimedOut,
            io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => LinkError::Lost,
            _ => LinkError::io(error),
        },
    }
}

/// The error after the peer dropped its half of a lane.
const ABANDONED: LinkError = LinkError::PeerClosed { reason: CloseReason::Failed };

/// Most lanes that each end may have open at a time.
pub(super) const MAX_LANES: usize = 72;
/// Most signals about unknown lanes that are kept.
const MAX_EARLY: usize = 4 * MAX_LANES;
/// Time for the reason of a broken lane to arrive: it was sent before the lane broke, on another
/// connection.
const WORD_TIME: Duration = Duration::from_secs(2);
/// Time that a closed link waits for the peer to read the reason.
const FAREWELL_TIME: Duration = Duration::from_millis(500);
