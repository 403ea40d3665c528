//! Lanes over the one QUIC connection that a link may have beside its mux.
//!
//! Whoever sends opens a stream and begins it with its number, which the mux's frame names: 4 bytes, the
//! highest bit set, never used again by that end. The other direction of a stream carries nothing. The law: at most [`MOST`]
//! streams of an end, all in all, so opening one never waits; nobody waits for a connection that is being
//! made but a reader whose peer has it already.

use std::{
    collections::BTreeMap,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread,
};

use bytes::Bytes;
use dsync_wire::link::{Carrier, CloseReason, Lane, LaneRead, LaneWrite, Link, LinkError};

use super::NoSuchConnection;
use crate::standing::Count;

/// The streams of one end.
pub(super) struct Streams {
    state: Mutex<State>,
    changed: Condvar,
    sent: Count,
    received: Count,
}

#[derive(Default)]
struct State {
    connection: Connection,
    /// Streams that this end has opened.
    opened: u32,
    /// Streams that the peer has opened, and no lane of this end receives from.
    arrived: BTreeMap<u32, Box<dyn LaneRead>>,
    /// Whether a lane has moved to one, in either direction.
    is_used: bool,
}

#[derive(Default)]
enum Connection {
    #[default]
    None,
    /// It is being made.
    Called,
    Here(Arc<dyn Link>),
    /// It could not be made, or has ended.
    Gone,
}

/// Returns whether the number is a stream's.
pub(super) fn is_stream(number: u32) -> bool {
    number & STREAM != 0
}

impl Streams {
    pub(super) fn new(sent: Count, received: Count) -> Self {
        Self { state: Mutex::default(), changed: Condvar::new(), sent, received }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that the connection is being made.
    pub(super) fn call(&self) {
        let mut state = self.lock();
        if matches!(state.connection, Connection::None) {
            state.connection = Connection::Called;
        }
    }

    /// Notes that the connection could not be made.
    pub(super) fn fail(&self) {
        let mut state = self.lock();
        if matches!(state.connection, Connection::None | Connection::Called) {
            state.connection = Connection::Gone;
        }
        drop(state);
        self.changed.notify_all();
    }

    /// Takes the connection. Returns `false` if there is or was one, or the link has ended.
    pub(super) fn add(self: &Arc<Self>, link: Arc<dyn Link>) -> bool {
        let mut state = self.lock();
        if !matches!(state.connection, Connection::None | Connection::Called) {
            return false;
        }
        let (taking, own) = (Arc::clone(self), Arc::clone(&link));
        let name = thread::Builder::new().name("dsync-further".into());
        let started = name.spawn(move || taking.accept_all(&own)).is_ok();
        state.connection = if started { Connection::Here(link) } else { Connection::Gone };
        drop(state);
        self.changed.notify_all();
        started
    }

    /// Takes the peer's streams for as long as the connection lasts.
    fn accept_all(&self, link: &Arc<dyn Link>) {
        while let Ok(Lane { mut rx, .. }) = link.accept_lane() {
            let mut number = [0; 4];
            let is_begun = matches!(rx.fill(&mut number), Ok(4));
            if is_begun && !self.keep(u32::from_le_bytes(number), rx) {
                link.close(CloseReason::Protocol);
            }
        }
        self.lock().connection = Connection::Gone;
        self.changed.notify_all();
    }

    /// Keeps a stream of the peer for its lane; returns `false` if it has no place.
    fn keep(&self, number: u32, rx: Box<dyn LaneRead>) -> bool {
        let mut state = self.lock();
        let has_place = is_stream(number) && state.arrived.len() < MOST as usize;
        let is_new = has_place && state.arrived.insert(number, rx).is_none();
        drop(state);
        self.changed.notify_all();
        is_new
    }

    /// Opens a stream; `None` if there is no connection, or no stream is left.
    pub(super) fn take(&self) -> Option<(u32, Box<dyn LaneWrite>)> {
        let (link, number) = {
            let mut state = self.lock();
            let Connection::Here(link) = &state.connection else { return None };
            let link = Arc::clone(link);
            if state.opened >= MOST {
                return None;
            }
            state.opened += 1;
            (link, STREAM | state.opened)
        };

        let Lane { mut tx, .. } = link.open_lane().ok()?;
        tx.write(Bytes::copy_from_slice(&number.to_le_bytes())).ok()?;
        self.lock().is_used = true;
        Some((number, Box::new(Writer { tx, sent: self.sent.clone() })))
    }

    /// Waits for a stream of the peer.
    ///
    /// # Errors
    /// There is no connection that could bring it, or it has ended.
    pub(super) fn receive(&self, number: u32) -> Result<Box<dyn LaneRead>, LinkError> {
        let mut state = self.lock();
        loop {
            if let Some(rx) = state.arrived.remove(&number) {
                state.is_used = true;
                return Ok(Box::new(Reader { rx, received: self.received.clone() }));
            }
            match state.connection {
                Connection::Called | Connection::Here(_) => {
                    state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                }
                Connection::Gone => return Err(LinkError::Lost),
                Connection::None => {
                    let source = Arc::new(NoSuchConnection { number });
                    return Err(LinkError::Carrier { carrier: Carrier::Quic, source });
                }
            }
        }
    }

    /// Returns whether a lane has moved to a stream.
    pub(super) fn is_used(&self) -> bool {
        self.lock().is_used
    }

    /// Ends the connection and wakes everybody who waits.
    pub(super) fn end(&self) {
        let mut state = self.lock();
        let connection = std::mem::replace(&mut state.connection, Connection::Gone);
        state.arrived.clear();
        drop(state);
        // The mux's own connection tells the reason.
        if let Connection::Here(link) = connection {
            link.close(CloseReason::Failed);
        }
        self.changed.notify_all();
    }
}

/// The sending direction of a lane, counted.
struct Writer {
    tx: Box<dyn LaneWrite>,
    sent: Count,
}

impl LaneWrite for Writer {
    fn write(&mut self, data: Bytes) -> Result<(), LinkError> {
        let len = data.len();
        self.tx.write(data)?;
        self.sent.add(len);
        Ok(())
    }

    fn write_both(&mut self, head: Bytes, body: Bytes) -> Result<(), LinkError> {
        let len = head.len() + body.len();
        self.tx.write_both(head, body)?;
        self.sent.add(len);
        Ok(())
    }

    fn finish(&mut self) -> Result<(), LinkError> {
        self.tx.finish()
    }
}

/// The receiving direction of a lane, counted.
struct Reader {
    rx: Box<dyn LaneRead>,
    received: Count,
}

impl LaneRead for Reader {
    fn read(&mut self, buf: &mut [u8]) -> Result<usize, LinkError> {
        let count = self.rx.read(buf)?;
        self.received.add(count);
        Ok(count)
    }

    fn fill(&mut self, buf: &mut [u8]) -> Result<usize, LinkError> {
        let count = self.rx.fill(buf)?;
        self.received.add(count);
        Ok(count)
    }
}

/// The bit of a stream's number.
const STREAM: u32 = 1 << 31;
/// Most streams of an end, fewer than a QUIC connection lets be open: the lanes of a run are fewer.
const MOST: u32 = 64;
