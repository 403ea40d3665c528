//! State that the source's threads share.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
};

use dsync_delta::RefineRequest;
use dsync_wire::message::{ControlMessage, EntryId, Refine};

use super::{
    catalogue::Catalogue,
    effort::EffortGauge,
    large::LargeFile,
    queue::{Queue, Request},
    spans::Spans,
};
use crate::{SyncError, halt::lock, reconnect::Attempt, session::Session, under_way::UnderWay};

/// State that the source's threads share.
pub(super) struct Shared<'a> {
    pub(super) session: &'a Session,
    pub(super) catalogue: Arc<Catalogue>,
    pub(super) queue: Queue,
    /// The spans that wait for an answer.
    pub(super) spans: Spans,
    pub(super) effort: EffortGauge,
    /// Files whose further sums are awaited.
    pub(super) refining: Mutex<HashMap<EntryId, Refining>>,
    /// Present when this end is the controller.
    pub(super) attempt: Option<&'a Attempt<'a>>,
    /// Files whose content is being sent.
    pub(super) under_way: UnderWay,
    /// Whether the destination knows listings that say that rules left out entries.
    pub(super) tells_left_out: bool,
}

/// A file whose further sums are awaited.
pub(super) struct Refining {
    pub(super) file: Arc<LargeFile>,
    pub(super) request: RefineRequest,
}

impl Shared<'_> {
    /// Counts bytes of a file for whoever watches at this end.
    pub(super) fn grew(&self, request: &Request, bytes: u64) {
        if self.attempt.is_some() {
            let listed = &request.listed;
            let path = || listed.path().as_bytes().into();
            self.under_way.add(request.entry, listed.size(), bytes, path);
        }
    }

    /// Asks for further sums.
    pub(super) fn refine(&self, file: &Arc<LargeFile>, request: RefineRequest) -> Result<(), SyncError> {
        let Request { entry, attempt, .. } = file.request;
        let (block_len, format) = (request.layout().block_len(), request.format());
        let refine = Refine { entry, attempt, block_len, format, runs: request.encode() };
        // First noted, then asked: the answer may be fast.
        lock(&self.refining).insert(entry, Refining { file: Arc::clone(file), request });
        self.session.control.send(&ControlMessage::Refine(refine))
    }
}
