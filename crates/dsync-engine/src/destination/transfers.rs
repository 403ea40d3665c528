//! State of the threads that move content: files in flight, and their bounds.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
};

use crossbeam_channel::Sender;
use dsync_fs::{PreparedFile, Sharing};
use dsync_wire::message::EntryId;

use super::{
    Site,
    call::Call,
    credit::Credit,
    files::{Files, Pending},
    landed::FirstNames,
    succession::Succession,
};
use crate::limits::MAX_UNRELEASED_ENTRIES;

/// The files in flight of a run.
pub(super) struct Transfers<'a> {
    pub(super) site: &'a Site<'a>,
    /// The files that the source was asked for, by number.
    pub(super) files: Files,
    /// The succession of the first names of files that have several.
    pub(super) succession: Succession,
    /// The files that a local run copies again; `None` in any other run.
    pub(super) copied_again: Option<Sender<Arc<Pending>>>,
    /// The call for the threads that write.
    pub(super) call: Call,
    /// The filesystems that share extents.
    pub(super) sharing: Sharing,
    /// Files asked for that have neither arrived nor failed, and names that wait for one of them.
    pub(super) awaited: Credit,
    /// Entries that the source may remove and has not seen to.
    pub(super) unremoved: Credit,
    /// First names that have landed.
    pub(super) first_names: Mutex<FirstNames>,
    /// Names of missing operands that wait for the planner.
    pub(super) missing: Credit,
    /// Old files of which the source has not got the last sums. The file itself may be over.
    pub(super) signing: Credit,
    /// Bytes of signatures that the source holds.
    pub(super) signatures: Credit,
    /// The number that the next listed entry gets.
    listed: AtomicU64,
    /// Complete files that get no name, as the run has failed, and their sizes.
    pub(super) nameless: Mutex<Vec<(PreparedFile, u64)>>,
    pub(super) ending: Ending,
}

/// The progress of a run towards its end.
pub(super) struct Ending {
    /// Data lanes that the source has not ended.
    pub(super) live_lanes: AtomicUsize,
    /// Set just before the source is told that nothing more is needed.
    pub(super) needs_ended: AtomicBool,
    /// Set just before the report is sent.
    pub(super) reporting: AtomicBool,
}

impl<'a> Transfers<'a> {
    pub(super) fn new(site: &'a Site<'a>, copied_again: Option<Sender<Arc<Pending>>>, call: Call) -> Self {
        Self {
            site,
            files: Files::default(),
            succession: Succession::new(&site.session.budget),
            copied_again,
            call,
            sharing: Sharing::default().until(site.session.halt.stop_flag()),
            awaited: Credit::new(MAX_UNRELEASED_ENTRIES as u64),
            unremoved: Credit::new(u64::MAX),
            first_names: Mutex::new(FirstNames::new(&site.session.budget)),
            missing: Credit::new(MAX_QUEUED_MISSING),
            signing: Credit::new(u64::MAX),
            signatures: Credit::new(MAX_SIGNATURE_BYTES),
            listed: AtomicU64::new(1),
            nameless: Mutex::default(),
            ending: Ending {
                live_lanes: AtomicUsize::new(site.session.data_lanes),
                needs_ended: AtomicBool::new(false),
                reporting: AtomicBool::new(false),
            },
        }
    }

    /// Returns whether content is read here, not asked for.
    pub(super) fn is_local(&self) -> bool {
        self.copied_again.is_some()
    }

    /// Numbers the next listed entry.
    pub(super) fn next_entry(&self) -> EntryId {
        EntryId(self.listed.fetch_add(1, Ordering::AcqRel))
    }

    /// Returns whether the listing has reached a number.
    pub(super) fn was_listed(&self, entry: EntryId) -> bool {
        entry.0 < self.listed.load(Ordering::Acquire)
    }
}

/// Names of missing operands that may wait for the planner: enough that neither thread waits for
/// each name, and at most some megabytes of the longest paths.
const MAX_QUEUED_MISSING: u64 = 1024;
/// Signature bytes that the source may be made to hold; one larger signature is always admitted.
const MAX_SIGNATURE_BYTES: u64 = 16 << 20;
