//! What a run reports while it goes on.

use std::time::Duration;

use dsync_wire::{
    event::{Event, Progress},
    link::Carrier,
};

use crate::SyncError;

/// Listens to a run. Called from several of the engine's threads; keep it short, a slow observer
/// slows the run. A panic in an observer aborts the run with an error, not the process.
pub trait Observer: Send + Sync {
    /// The peer is connected and authenticated; not called for local runs, again after each
    /// [`reconnecting`](Self::reconnecting).
    fn connected(&self, _connection: &Connection) {}

    /// The remote end's system lacks something of what is to confine the process there: a sentence each, as that end says
    /// it. Called when the session begins, and only where there is something.
    fn peer_lacks(&self, _lacks: &[String]) {}

    /// The connection broke, or a new one could not be made; another try follows.
    fn reconnecting(&self, _reconnect: &Reconnect<'_>) {}

    /// Something happened to one entry. How much is reported is set by
    /// [`SyncOptions::events`](crate::SyncOptions::events).
    fn event(&self, _event: &Event) {}

    /// How far the run is; a few times a second. After a lost connection the counts start anew: they are
    /// those of what was left to do.
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
    /// Why it is this carrier, in words; `None` when no other was allowed.
    pub reason: Option<String>,
}

/// A try to go on after the connection broke.
#[derive(Debug)]
#[non_exhaustive]
pub struct Reconnect<'a> {
    /// What broke the session, or kept the last try from becoming one.
    pub cause: &'a SyncError,
    /// Which try in a row it is, from 1.
    pub number: u32,
    /// How many tries in a row there may be: [`ConnectOptions::retries`](crate::ConnectOptions::retries).
    pub limit: u32,
    /// How long after this.
    pub wait: Duration,
}
