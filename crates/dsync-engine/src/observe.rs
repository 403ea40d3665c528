//! Reports of a run while it goes on.

use std::time::Duration;

use dsync_wire::{
    event::{Event, Progress},
    link::Carrier,
};

use crate::SyncError;

/// Listens to a run. Called from several of the engine's threads; keep it short, a slow observer
/// slows the run. A panic in an observer aborts the run with an error, not the process.
pub trait Observer: Send + Sync {
    /// Reports that the peer is connected and authenticated; not called for local runs, again after
    /// each [`reconnecting`](Self::reconnecting).
    fn connected(&self, _connection: &Connection) {}

    /// Reports what the remote end's system lacks to confine the process there: a sentence each, in
    /// that end's words. Called when the session begins, and only if something is lacking.
    fn peer_lacks(&self, _lacks: &[String]) {}

    /// Reports that the connection broke, or a new one could not be made; another try follows.
    fn reconnecting(&self, _reconnect: &Reconnect<'_>) {}

    /// Reports that something happened to one entry.
    /// [`SyncOptions::events`](crate::SyncOptions::events) sets how much is reported.
    fn event(&self, _event: &Event) {}

    /// Reports the progress of the run, a few times a second. After a lost connection the counts
    /// start anew: they are those of the work that was left.
    fn progress(&self, _progress: &Progress) {}
}

/// An observer that ignores everything.
#[derive(Debug, Clone, Copy, Default)]
pub struct Silent;

impl Observer for Silent {}

/// The way in which the peer was reached.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Connection {
    /// The carrier of the data.
    pub carrier: Carrier,
    /// The reason for this carrier, in words; `None` when no other was allowed.
    pub reason: Option<String>,
}

/// A try to go on after the connection broke.
#[derive(Debug)]
#[non_exhaustive]
pub struct Reconnect<'a> {
    /// The error that broke the session, or kept the last try from becoming one.
    pub cause: &'a SyncError,
    /// The number of this try in a row, from 1.
    pub number: u32,
    /// Most tries in a row: [`ConnectOptions::retries`](crate::ConnectOptions::retries).
    pub limit: u32,
    /// Pause before the try.
    pub wait: Duration,
}
