//! The lanes of one link that are alive, and how the link ended.
//!
//! The laws it keeps: a lane's connection stays open until both of its halves are gone here *and* its peer's
//! direction has been read to the end, or the link is over (closing a socket that holds unread bytes would make
//! the system reset it, and the peer would lose what it has not read yet); each end opens a bounded number of
//! lanes; once the link has ended, every connection of it is shut, so that whoever waits in one is woken.

use std::{
    collections::{BTreeSet, HashMap, VecDeque},
    io,
    net::Shutdown,
    sync::{
        Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicBool, AtomicU8, Ordering},
    },
    time::{Duration, Instant},
};

use dsync_wire::link::{Carrier, CloseReason, LinkError};

use super::{
    signal::{Main, Signal},
    stream::{Opener, Stream, StreamError},
};
use crate::ending::Counters;

/// One lane's connection.
pub(super) struct Line {
    /// Its number, chosen by the client.
    pub(super) id: u32,
    pub(super) stream: Stream,
    /// This end opened it.
    local: bool,
    /// The peer will read no more of it.
    stopped: AtomicBool,
    /// The peer will not finish it.
    reset: AtomicBool,
    /// The peer's direction was read to its end.
    pub(super) drained: AtomicBool,
    /// Halves of it that are in use here.
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

/// A lane with what has come on it so far.
pub(super) type Arrival = (Arc<Line>, Opener);

/// Which half of a lane found it broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Half {
    Sending,
    Receiving,
}

/// What a link, its lanes and its threads share.
pub(super) struct Registry {
    state: Mutex<State>,
    changed: Condvar,
    main: OnceLock<Main>,
    pub(super) counters: Counters,
}

#[derive(Default)]
struct State {
    ended: Option<LinkError>,
    lines: HashMap<u32, Arc<Line>>,
    /// Lanes of the peer that were not accepted yet.
    arrivals: VecDeque<Arrival>,
    /// At the server: connections that the client made for lanes of this end.
    spares: VecDeque<Arrival>,
    /// Lanes that this end opened and that are alive.
    opened: usize,
    /// At the server: spares that were asked for and have not come; refusals that have.
    asked: usize,
    refused: usize,
    /// At the client: the number of the next connection.
    next_id: u32,
    /// Signals about lanes that are not known here yet: their own connections may be slower.
    early: BTreeSet<(u32, Word)>,
    /// Nothing more will be heard on the main connection.
    main_over: bool,
}

/// What the peer says about its half of a lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Word {
    /// It will read no more.
    Stop,
    /// It will not finish its direction.
    Reset,
}

impl Registry {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::default(),
            changed: Condvar::new(),
            main: OnceLock::new(),
            counters: Counters::default(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the main connection, once.
    pub(super) fn set_main(&self, main: Main) -> Option<&Main> {
        self.main.set(main).ok()?;
        self.main.get()
    }

    /// The main connection, once there is one.
    pub(super) fn main(&self) -> Option<&Main> {
        self.main.get()
    }

    /// Fails once the link has ended.
    pub(super) fn check(&self) -> Result<(), LinkError> {
        self.lock().check()
    }

    /// Takes a place among the lanes that this end opens, waiting for one; and the number of the next connection.
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

    /// Gives back a place of [`reserve`](Self::reserve) whose lane did not come to be.
    pub(super) fn give_back(&self) {
        let mut state = self.lock();
        state.opened = state.opened.saturating_sub(1);
        drop(state);
        self.changed.notify_all();
    }

    /// The number of a connection that the client makes for the server, unless there are too many.
    pub(super) fn number_for_peer(&self) -> Option<u32> {
        let mut state = self.lock();
        (state.lines.len() < 2 * MAX_LANES).then(|| state.next_id())
    }

    /// Notes a lane. False when the link has ended, the number is taken, or the peer has too many.
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

    /// Shows a lane of the peer to [`accept`](Self::accept) once something comes on it; a lane that was given up
    /// before that is forgotten. Blocks until then.
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

    /// At the server: asks the client for a connection and waits for it.
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

    /// At the server: a connection that was asked for. False when it was not.
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

    /// At the server: the client could not make a connection that was asked for.
    pub(super) fn refuse(&self) {
        self.lock().refused += 1;
        self.changed.notify_all();
    }

    /// Tells the peer something, unless the main connection is gone.
    pub(super) fn signal(&self, signal: Signal) {
        if let Some(main) = self.main() {
            main.send(signal);
        }
    }

    /// The peer said something about its half of a lane.
    pub(super) fn told(&self, id: u32, word: Word) {
        let mut state = self.lock();
        if let Some(line) = state.lines.get(&id) {
            line.told(word);
        } else {
            // Of a lane that is over already, as a rule: what is kept is bounded, oldest first.
            state.early.insert((id, word));
            if state.early.len() > MAX_EARLY {
                state.early.pop_first();
            }
        }
        drop(state);
        self.changed.notify_all();
    }

    /// One half of a lane is not used any more.
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

    /// What a broken connection of a lane means. The reason is told on the main connection, which this waits for.
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

    /// Ends the link: `cause` is what every later call says, `farewell` what the peer is told.
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

    /// The main connection is silent from here on.
    pub(super) fn main_is_over(&self) {
        self.lock().main_over = true;
        self.changed.notify_all();
    }

    /// Waits until the peer has taken the last word, or for [`FAREWELL_TIME`].
    pub(super) fn wait_for_farewell(&self) {
        let state = self.lock();
        if self.main().is_some() {
            // The result says whether the time ran out; there is nothing to do about it.
            let _ = self.changed.wait_timeout_while(state, FAREWELL_TIME, |state| !state.main_over);
        }
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

/// A broken rule of TLS as the link's end.
pub(super) fn tls_error(source: rustls::Error) -> LinkError {
    LinkError::Carrier { carrier: Carrier::Tls, source: Arc::new(source) }
}

/// What a failed handshake or main connection means.
pub(super) fn link_error(error: StreamError) -> LinkError {
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

/// The peer dropped its half of a lane.
const ABANDONED: LinkError = LinkError::PeerClosed { reason: CloseReason::Failed };

/// Lanes that each end has open at a time.
pub(super) const MAX_LANES: usize = 72;
/// Signals about unknown lanes that are kept.
const MAX_EARLY: usize = 4 * MAX_LANES;
/// How long the reason of a broken lane may take: it left before the lane broke, by another connection.
const WORD_TIME: Duration = Duration::from_secs(2);
/// How long a link that was closed waits for the peer to have read the reason.
const FAREWELL_TIME: Duration = Duration::from_millis(500);
