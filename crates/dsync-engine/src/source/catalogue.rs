//! What the source has listed and the destination may still ask for.
//!
//! Entries are numbered as they are listed; a request names a number, never a path. A listing message is
//! kept until the destination releases it, and at most [`MAX_UNRELEASED_ENTRIES`] entries are kept, so the
//! lister waits and memory stays flat however large the tree is (invariant S6, load gates).

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Condvar, Mutex},
};

use dsync_fs::{Component, DirRef};
use dsync_wire::message::EntryId;

use crate::halt::{Halt, lock, wait};

/// The listed entries that the destination has not released.
#[derive(Default)]
pub(crate) struct Catalogue {
    state: Mutex<State>,
    room: Condvar,
}

#[derive(Default)]
struct State {
    /// Parts by the number of their first entry.
    parts: BTreeMap<u64, Arc<Part>>,
    /// First entry of each unreleased part by the part's number; `None` for a part without entries.
    firsts: HashMap<u64, Option<u64>>,
    next_part: u64,
    entries: usize,
}

/// The entries of one listing message.
pub(super) struct Part {
    /// The directory that holds them.
    pub(super) dir: DirRef,
    /// Number of the first of them.
    pub(super) first: u64,
    /// Name and size of each; the size is 0 for what is not a regular file.
    pub(super) entries: Vec<(Component, u64)>,
}

/// One listed entry.
#[derive(Clone)]
pub(super) struct Listed {
    part: Arc<Part>,
    index: usize,
}

impl Listed {
    /// The directory that holds the entry.
    pub(super) fn dir(&self) -> &DirRef {
        &self.part.dir
    }

    /// The entry's name.
    pub(super) fn name(&self) -> &Component {
        &self.part.entries[self.index].0
    }

    /// The size that was listed.
    pub(super) fn size(&self) -> u64 {
        self.part.entries[self.index].1
    }
}

impl Catalogue {
    /// Keeps one listing message, waiting until there is room. False when the run has ended.
    pub(super) fn add(&self, part: Part, halt: &Halt) -> bool {
        let mut state = lock(&self.state);
        while state.entries > 0 && state.entries + part.entries.len() > MAX_UNRELEASED_ENTRIES {
            if halt.stopped() {
                return false;
            }
            state = wait(&self.room, state);
        }
        let number = state.next_part;
        state.next_part += 1;
        state.entries += part.entries.len();
        let first = (!part.entries.is_empty()).then_some(part.first);
        state.firsts.insert(number, first);
        if let Some(first) = first {
            state.parts.insert(first, Arc::new(part));
        }
        true
    }

    /// Forgets a listing message; false when there is none of this number.
    pub(super) fn release(&self, number: u64) -> bool {
        let mut state = lock(&self.state);
        let Some(first) = state.firsts.remove(&number) else { return false };
        if let Some(part) = first.and_then(|first| state.parts.remove(&first)) {
            state.entries -= part.entries.len();
        }
        self.room.notify_all();
        true
    }

    /// Finds a listed entry by its number.
    pub(super) fn find(&self, entry: EntryId) -> Option<Listed> {
        let state = lock(&self.state);
        let (first, part) = state.parts.range(..=entry.0).next_back()?;
        let index = usize::try_from(entry.0 - first).ok()?;
        (index < part.entries.len()).then(|| Listed { part: Arc::clone(part), index })
    }
}

/// Bound on listed and unreleased entries. With about 60 bytes each this is some 2 MB; it must exceed
/// what the destination collects before it commits a group, or both would wait.
pub(crate) const MAX_UNRELEASED_ENTRIES: usize = 32_768;
