//! The lanes and stretches that the peer began and nobody has taken yet, and the link's end.
//!
//! Bounded: the carriers admit a bounded number of the peer's lanes, and each stretch is one.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use dsync_wire::link::{CloseReason, Lane, LinkError};

use super::{SIDES, header::Header};

/// A lane that the peer opened.
pub(super) struct Begun {
    pub(super) id: u32,
    pub(super) side: usize,
    pub(super) lane: Lane,
}

/// A lane's incoming direction: whether the peer opened the lane, and its number.
pub(super) type Row = (bool, u32);

#[derive(Default)]
pub(super) struct Arrivals {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    ended: Option<LinkError>,
    /// The carriers that have ended, and why.
    lost: [Option<LinkError>; SIDES],
    begun: VecDeque<Begun>,
    stretches: HashMap<(Row, u16), Lane>,
    /// Whether the peer gave up a stretch before its header was here: nobody knows whose it was.
    gave_up: bool,
    next_id: u32,
}

impl Arrivals {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Fails once the link has ended.
    pub(super) fn check(&self) -> Result<(), LinkError> {
        self.lock().ended.clone().map_or(Ok(()), Err)
    }

    /// Numbers a lane of this end.
    pub(super) fn next_id(&self) -> u32 {
        let mut state = self.lock();
        let id = state.next_id;
        state.next_id = id.wrapping_add(1);
        id
    }

    /// Adds what the peer began. Returns `false` if a stretch with that number is here already.
    pub(super) fn add(&self, header: Header, side: usize, lane: Lane) -> bool {
        let Header { id, stretch, own, .. } = header;
        let mut state = self.lock();
        let fresh = if stretch == 0 {
            state.begun.push_back(Begun { id, side, lane });
            true
        } else {
            state.stretches.insert(((own, id), stretch), lane).is_none()
        };
        drop(state);
        self.changed.notify_all();
        fresh
    }

    /// Waits for the next lane of the peer.
    pub(super) fn accept(&self) -> Result<Begun, LinkError> {
        self.wait_for(|state| state.begun.pop_front())
    }

    /// Notes that the peer gave up a stretch before its header was here.
    pub(super) fn give_up(&self) {
        self.lock().gave_up = true;
        self.changed.notify_all();
    }

    /// Waits for a stretch of a lane; fails if a carrier ends before, or if the peer has given up a stretch and
    /// this one does not come.
    pub(super) fn stretch(&self, row: Row, stretch: u16) -> Result<Lane, LinkError> {
        let mut overdue = None;
        let mut state = self.lock();
        loop {
            if let Some(ended) = &state.ended {
                return Err(ended.clone());
            }
            if let Some(lane) = state.stretches.remove(&(row, stretch)) {
                return Ok(lane);
            }
            if let Some(lost) = state.lost.iter().flatten().next() {
                return Err(lost.clone());
            }

            state = if state.gave_up {
                let left = overdue
                    .get_or_insert_with(|| Instant::now() + OVERDUE)
                    .saturating_duration_since(Instant::now());
                if left.is_zero() {
                    return Err(LinkError::PeerClosed { reason: CloseReason::Failed });
                }
                self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0
            } else {
                self.changed.wait(state).unwrap_or_else(PoisonError::into_inner)
            };
        }
    }

    fn wait_for<T>(&self, mut found: impl FnMut(&mut State) -> Option<T>) -> Result<T, LinkError> {
        let mut state = self.lock();
        loop {
            if let Some(ended) = &state.ended {
                return Err(ended.clone());
            }
            if let Some(found) = found(&mut state) {
                return Ok(found);
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Waits this long, or until the link has ended; returns whether it has.
    pub(super) fn ends_within(&self, time: Duration) -> bool {
        let waited = self.changed.wait_timeout_while(self.lock(), time, |state| state.ended.is_none());
        waited.unwrap_or_else(PoisonError::into_inner).0.ended.is_some()
    }

    /// Returns whether a carrier has not ended.
    pub(super) fn is_live(&self, side: usize) -> bool {
        self.lock().lost[side].is_none()
    }

    /// Notes that a carrier has ended. Returns whether it was the last.
    pub(super) fn lose(&self, side: usize, cause: &LinkError) -> bool {
        let mut state = self.lock();
        state.lost[side] = Some(cause.clone());
        let last = state.lost.iter().all(Option::is_some);
        drop(state);
        self.changed.notify_all();
        last
    }

    /// Ends the link; returns `false` if it has ended before.
    pub(super) fn end(&self, cause: LinkError) -> bool {
        let mut state = self.lock();
        let first = state.ended.is_none();
        state.ended.get_or_insert(cause);
        let dropped = (std::mem::take(&mut state.begun), std::mem::take(&mut state.stretches));
        drop(state);
        drop(dropped);
        self.changed.notify_all();
        first
    }
}

/// Time in which a stretch comes that the peer has not given up: it is sent with the end of the one before it.
const OVERDUE: Duration = Duration::from_secs(10);
