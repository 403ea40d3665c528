//! The way of files from the planner to the threads that read what this end has.

use std::sync::Arc;

use crossbeam_channel::Sender;
use dsync_wire::link::LinkError;

use crate::{
    SyncError,
    destination::files::Pending,
    schedule::{Point, point},
};

/// The way of files that this end reads something of first: old files to sign or, in a local run, all. They go
/// together, so that many small ones wake a reader once.
pub(super) struct Handover {
    readers: Sender<Vec<Arc<Pending>>>,
    files: Vec<Arc<Pending>>,
    bytes: u64,
}

impl Handover {
    pub(super) fn new(readers: Sender<Vec<Arc<Pending>>>) -> Self {
        Self { readers, files: Vec::new(), bytes: 0 }
    }

    pub(super) fn add(&mut self, file: Arc<Pending>) -> Result<(), SyncError> {
        self.bytes = self.bytes.saturating_add(file.size);
        self.files.push(file);
        let full = self.files.len() >= MAX_TOGETHER || self.bytes >= MAX_BYTES_TOGETHER;
        if full { self.flush() } else { Ok(()) }
    }

    /// Hands over what is noted: to be called before the planner waits for anything.
    pub(super) fn flush(&mut self) -> Result<(), SyncError> {
        if self.files.is_empty() {
            return Ok(());
        }
        self.bytes = 0;
        point(Point::Send);
        // They end early only when the run has failed.
        self.readers.send(std::mem::take(&mut self.files)).map_err(|_| SyncError::Link(LinkError::Closed))
    }
}

/// Files that are handed over together: so many of one directory that two readers seldom want its lock at once.
const MAX_TOGETHER: usize = 256;
/// Bytes of files that are handed over together, before the last is added: a few milliseconds of copying.
const MAX_BYTES_TOGETHER: u64 = 4 << 20;
