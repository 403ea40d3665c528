//! What a run reports while it goes on.

use dsync_wire::{
    event::{Event, Progress},
    link::Carrier,
};

/// Listens to a run. Called from several of the engine's threads; keep it short, a slow observer
/// slows the run. A panic in an observer aborts the run with an error, not the process.
pub trait Observer: Send + Sync {
    /// The peer is connected and authenticated; not called for local runs.
    fn connected(&self, _connection: &Connection) {}

    /// Something happened to one entry. How much is reported is set by
    /// [`SyncOptions::events`](crate::SyncOptions::events).
    fn event(&self, _event: &Event) {}

    /// How far the run is; a few times a second.
    fn progress(&self, _progress: &Progress) {}
}

/// An observer that ignores everything.
#[derive(Debug, Clone, Copy, Default)]
pub struct Silent;

impl Observer for Silent {}

/// How the peer was reached.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Connection {
    /// What carries the data.
    pub carrier: Carrier,
    /// Why it is not the preferred carrier, in words; `None` when it is.
    pub fallback: Option<String>,
}
