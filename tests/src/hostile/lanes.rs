//! Lanes as in 3.1 to 3.3 of `docs/wire.md`, for a peer that need not keep to them.
//!
//! Arriving data is collected and credited at once. A write that fails is no error: the other end
//! may hang up on a hostile peer at any time. On every carrier, lanes have the numbers of the pipe:
//! odd ones are the client's, even ones the server's, in the order of arrival.

use std::{
    collections::HashMap,
    io::{Read, Write},
    sync::{
        Arc, Condvar, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Instant,
};

use super::outlet::{Outlet, PipeOutlet, lock};
use crate::run::PATIENCE;

/// Both directions of a pipe to dsync.
pub struct Pipe {
    /// dsync's output.
    pub reader: Box<dyn Read + Send>,
    /// dsync's input.
    pub writer: Box<dyn Write + Send>,
}

impl std::fmt::Debug for Pipe {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pipe").finish_non_exhaustive()
    }
}

/// The lanes of one connection.
pub struct Lanes {
    out: Arc<dyn Outlet>,
    shared: Arc<Shared>,
    /// The pipe of a session on another carrier: the session lives as long as both.
    pipe: Mutex<Option<Pipe>>,
}

impl std::fmt::Debug for Lanes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lanes").finish_non_exhaustive()
    }
}

/// Data that has arrived.
#[derive(Default)]
pub(super) struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    /// Whether this end has stopped taking data.
    deaf: AtomicBool,
}

#[derive(Default)]
struct State {
    lanes: HashMap<u32, Lane>,
    over: bool,
}

#[derive(Default)]
struct Lane {
    bytes: Vec<u8>,
    finished: bool,
    /// Bytes sent but not yet credited.
    owed: usize,
}

impl Lanes {
    /// Starts to listen on a pipe.
    pub fn over(pipe: Pipe) -> Self {
        let shared = Arc::new(Shared::default());
        Self { out: PipeOutlet::start(pipe, &shared), shared, pipe: Mutex::default() }
    }

    /// Uses another carrier; keeps the pipe open beside it.
    pub(super) fn beside(pipe: Pipe, out: Arc<dyn Outlet>, shared: Arc<Shared>) -> Self {
        Self { out, shared, pipe: Mutex::new(Some(pipe)) }
    }

    /// Writes any frame.
    pub fn write(&self, lane: u32, kind: u8, payload: &[u8]) {
        self.out.put(lane, kind, payload);
    }

    /// Writes any bytes between frames, if the pipe is the carrier.
    pub fn write_raw(&self, bytes: &[u8]) {
        self.out.put_raw(bytes);
    }

    /// Ends the stream to the other end, at whatever point it is.
    pub fn hang_up(&self) {
        self.out.hang_up();
        *lock(&self.pipe) = None;
    }

    /// Stops giving credit: dsync's data fills its lanes and then waits.
    pub fn stop_listening(&self) {
        self.shared.deaf.store(true, Ordering::Release);
    }

    /// Opens a lane.
    pub fn open(&self, lane: u32) {
        self.write(lane, kind::OPEN, &[]);
    }

    /// Sends bytes over a lane, within its credit.
    ///
    /// # Panics
    /// If no credit arrives.
    pub fn send(&self, lane: u32, bytes: &[u8]) {
        for piece in bytes.chunks(65_536) {
            let waited = self.wait(|state| {
                let owed = &mut state.lanes.entry(lane).or_default().owed;
                let room = *owed + piece.len() <= WINDOW;
                *owed += if room { piece.len() } else { 0 };
                (room || state.over).then_some(())
            });
            assert!(waited.is_some(), "no credit for lane {lane}");
            self.write(lane, kind::DATA, piece);
        }
    }

    /// Ends this direction of a lane.
    pub fn finish(&self, lane: u32) {
        self.write(lane, kind::FINISH, &[]);
    }

    /// Returns the next session frame of a lane, its number and payload; `None` at the end of lane
    /// or link.
    ///
    /// # Panics
    /// If nothing arrives for long.
    pub fn receive(&self, lane: u32) -> Option<(u8, Vec<u8>)> {
        let found = self.wait(|state| {
            let over = state.over;
            let lane = state.lanes.entry(lane).or_default();
            let whole = lane.bytes.first_chunk::<4>().map(|len| 4 + u32::from_le_bytes(*len) as usize);
            match whole.filter(|&len| len <= lane.bytes.len()) {
                Some(len) => {
                    let frame: Vec<u8> = lane.bytes.drain(..len).collect();
                    Some(Some((frame[4], frame[5..].to_vec())))
                }
                None if over || lane.finished => Some(None),
                None => None,
            }
        });
        found.unwrap_or_else(|| panic!("nothing came on lane {lane}"))
    }

    /// Returns the number of the next session frame of a lane, and leaves the frame there; `None`
    /// at the end of lane or link.
    ///
    /// # Panics
    /// If nothing arrives for long.
    pub fn peek(&self, lane: u32) -> Option<u8> {
        let found = self.wait(|state| {
            let over = state.over;
            let lane = state.lanes.entry(lane).or_default();
            let whole = lane.bytes.first_chunk::<4>().map(|len| 4 + u32::from_le_bytes(*len) as usize);
            match whole.filter(|&len| len <= lane.bytes.len()) {
                Some(_) => Some(lane.bytes.get(4).copied()),
                None => (over || lane.finished).then_some(None),
            }
        });
        found.unwrap_or_else(|| panic!("nothing came on lane {lane}"))
    }

    /// Returns the number of the next session frame of a lane, if it has arrived, and leaves the
    /// frame there.
    pub fn peek_now(&self, lane: u32) -> Option<u8> {
        let mut state = lock(&self.shared.state);
        let lane = state.lanes.entry(lane).or_default();
        let whole = lane.bytes.first_chunk::<4>().map(|len| 4 + u32::from_le_bytes(*len) as usize);
        whole.filter(|&len| len <= lane.bytes.len()).and_then(|_| lane.bytes.get(4).copied())
    }

    /// Waits until the other end has opened a lane.
    ///
    /// # Panics
    /// If it does not.
    pub fn wait_for_lane(&self, lane: u32) {
        let opened = self.wait(|state| (state.over || state.lanes.contains_key(&lane)).then_some(()));
        assert!(opened.is_some(), "lane {lane} is not opened");
    }

    /// Returns whether the other end has hung up.
    pub fn is_over(&self) -> bool {
        self.shared.is_over()
    }

    /// Waits until the other end has hung up.
    ///
    /// # Panics
    /// If it does not.
    pub fn wait_for_end(&self) {
        assert!(self.wait(|state| state.over.then_some(())).is_some(), "the other end does not hang up");
    }

    fn wait<T>(&self, mut look: impl FnMut(&mut State) -> Option<T>) -> Option<T> {
        let deadline = Instant::now() + PATIENCE;
        let mut state = lock(&self.shared.state);
        loop {
            if let Some(found) = look(&mut state) {
                return Some(found);
            }
            let left = deadline.checked_duration_since(Instant::now())?;
            state = self.shared.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl Drop for Lanes {
    fn drop(&mut self) {
        self.hang_up();
    }
}

impl Shared {
    /// Handles a frame of the other end.
    pub(super) fn take(&self, lane: u32, kind: u8, payload: &[u8]) {
        let mut state = lock(&self.state);
        match kind {
            kind::OPEN => {
                state.lanes.entry(lane).or_default();
            }
            kind::DATA => state.lanes.entry(lane).or_default().bytes.extend_from_slice(payload),
            kind::FINISH | kind::RESET => state.lanes.entry(lane).or_default().finished = true,
            kind::CREDIT => {
                let credit = payload.first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes)) as usize;
                let lane = state.lanes.entry(lane).or_default();
                lane.owed = lane.owed.saturating_sub(credit);
            }
            _ => {}
        }
        drop(state);
        self.changed.notify_all();
    }

    /// Records that a carrier took bytes; its own windows bound them.
    pub(super) fn credit(&self, lane: u32, bytes: usize) {
        let mut state = lock(&self.state);
        let lane = state.lanes.entry(lane).or_default();
        lane.owed = lane.owed.saturating_sub(bytes);
    }

    /// Records that the other end has hung up.
    pub(super) fn end(&self) {
        lock(&self.state).over = true;
        self.changed.notify_all();
    }

    /// Returns whether the other end has hung up.
    pub(super) fn is_over(&self) -> bool {
        lock(&self.state).over
    }

    /// Returns whether this end has stopped taking data.
    pub(super) fn is_deaf(&self) -> bool {
        self.deaf.load(Ordering::Acquire)
    }
}

/// Numbers of the kinds of frames.
pub mod kind {
    /// The sender will use this lane.
    pub const OPEN: u8 = 1;
    /// The next bytes of the lane.
    pub const DATA: u8 = 2;
    /// Clean end of the sender's direction.
    pub const FINISH: u8 = 3;
    /// End of the sender's direction before it is complete.
    pub const RESET: u8 = 4;
    /// The sender will read no more of the lane.
    pub const STOP: u8 = 5;
    /// This many more bytes may come.
    pub const CREDIT: u8 = 6;
    /// Sent if there was nothing else to send.
    pub const ALIVE: u8 = 7;
}

/// Credit that each direction of a lane starts with.
const WINDOW: usize = 2 << 20;
