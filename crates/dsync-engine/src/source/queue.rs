//! The files that the destination asked for, in the order of its requests, shared by all lanes.
//!
//! Lane workers take from one queue: several small files at a time, or the next segment of a large
//! file. A large file stays at the front until all its segments are claimed, so one huge file and
//! many small ones both occupy every lane.

use std::{
    collections::VecDeque,
    ops::Deref,
    sync::{Arc, Condvar, Mutex},
};

use dsync_delta::{BlockLen, IndexedSignature, Layout, Rolling, refined_block_lens};
use dsync_wire::{
    budget::{Held, OverBudget},
    message::{EntryId, Rest},
};

use super::{catalogue::Listed, large::LargeFile};
use crate::{
    halt::{Halt, lock, wait},
    limits::MAX_UNRELEASED_ENTRIES,
};

/// One requested file.
pub(super) struct Request {
    pub(super) entry: EntryId,
    pub(super) attempt: u8,
    pub(super) listed: Listed,
    /// The basis' signature, when a delta was asked for.
    pub(super) signature: Option<KeptSignature>,
    /// The missing segments, when the destination has a part of the file.
    pub(super) rest: Option<KeptRest>,
    /// The wanted end, when the destination has the beginning of the file.
    pub(super) tail: Option<Tail>,
}

/// A basis' signature for one new file, and its memory until the last search in it is done.
#[derive(Clone)]
pub(super) struct KeptSignature {
    signature: Arc<IndexedSignature>,
    /// The record that the searches of all segments share.
    rolling: Arc<Rolling>,
    held: Arc<Mutex<Held>>,
}

impl KeptSignature {
    /// Keeps a signature with the memory that was taken for it.
    pub(super) fn new(signature: Arc<IndexedSignature>, held: Held) -> Self {
        Self { signature, rolling: Arc::default(), held: Arc::new(Mutex::new(held)) }
    }

    /// Returns the record of how far the file's searches have rolled in vain.
    pub(super) fn rolling(&self) -> &Rolling {
        &self.rolling
    }

    /// Takes memory for further sums of it.
    pub(super) fn grow(&self, bytes: u64) -> Result<(), OverBudget> {
        lock(&self.held).grow(bytes)
    }
}

impl Deref for KeptSignature {
    type Target = IndexedSignature;

    fn deref(&self) -> &IndexedSignature {
        &self.signature
    }
}

/// The missing segments of a file that the destination has a part of, and their memory.
pub(super) struct KeptRest {
    pub(super) rest: Rest,
    pub(super) _held: Held,
}

/// The rest of a file behind its beginning.
#[derive(Debug, Clone, Copy)]
pub(super) struct Tail {
    /// Length of the beginning.
    pub(super) from: u64,
    /// Its hash, if it has to be compared.
    pub(super) content: Option<[u8; 32]>,
}

impl Request {
    /// Returns whether a further round of sums may pay.
    pub(super) fn is_refinable(&self) -> bool {
        self.lacks_weak_sums() || self.refinement().is_some()
    }

    /// Returns whether the basis was signed with strong sums only.
    pub(super) fn lacks_weak_sums(&self) -> bool {
        self.signature.as_ref().is_some_and(|signature| !signature.has_weak())
    }

    /// Returns the basis' layout in the signature, and the shorter block length of a further round.
    pub(super) fn refinement(&self) -> Option<(Layout, BlockLen)> {
        let layout = self.signature.as_ref()?.layout();
        let (_, fine) = refined_block_lens(layout.file_len());
        (fine < layout.block_len()).then_some((layout, fine))
    }
}

/// The next task of a lane worker.
pub(super) enum Work {
    /// Send these small files whole.
    Batch(Vec<Request>),
    /// Claim and send a segment of this file.
    Large(Arc<LargeFile>),
}

/// The queue.
#[derive(Default)]
pub(super) struct Queue {
    state: Mutex<State>,
    changed: Condvar,
    /// Wakes workers that leave the work to others: a word for one that takes it must not reach them.
    rested: Condvar,
}

#[derive(Default)]
struct State {
    items: VecDeque<Item>,
    /// Files whose next segment cannot be searched before more sums are here.
    parked: Vec<Arc<LargeFile>>,
    closed: bool,
    /// Workers that wait: telling nobody would cost a system call for each file.
    idle: usize,
}

/// There are more requests than an honest destination makes.
pub(super) struct Full;

enum Item {
    Small(Request),
    Large(Arc<LargeFile>),
}

impl Item {
    fn is(&self, file: &Arc<LargeFile>) -> bool {
        matches!(self, Self::Large(other) if Arc::ptr_eq(other, file))
    }
}

impl State {
    /// Removes a large file that workers know if `is_due`. Returns whether it was here. Since they
    /// take from the front, it is before the first small file, behind which thousands more may
    /// wait.
    fn remove(&mut self, file: &Arc<LargeFile>, is_due: impl Fn(&LargeFile) -> bool) -> bool {
        let mut known = self.items.iter().take_while(|item| matches!(item, Item::Large(_)));
        let found = known.position(|item| item.is(file)).filter(|_| is_due(file));
        found.is_some_and(|index| self.items.remove(index).is_some())
    }
}

impl Queue {
    /// Appends a request. Returns its file if that is sent in segments.
    ///
    /// # Errors
    /// [`Full`] when there are more than the destination can have a use for.
    pub(super) fn push(&self, request: Request) -> Result<Option<Arc<LargeFile>>, Full> {
        let small = request.signature.is_none()
            && request.rest.is_none()
            && request.tail.is_none()
            && request.listed.size() <= SMALL_FILE_BYTES;
        let item = if small { Item::Small(request) } else { Item::Large(Arc::new(LargeFile::new(request))) };
        let file = if let Item::Large(file) = &item { Some(Arc::clone(file)) } else { None };
        let mut state = lock(&self.state);
        if state.items.len() >= MAX_QUEUED_REQUESTS {
            return Err(Full);
        }
        state.items.push_back(item);
        let idle = state.idle > 0;
        drop(state);
        match (idle, small) {
            (false, _) => {}
            (true, true) => self.changed.notify_one(),
            (true, false) => self.changed.notify_all(),
        }
        Ok(file)
    }

    /// Tells workers that more of a file's segments can be claimed. If they had claimed all that
    /// could be, and so removed it, it is put back in the first place.
    pub(super) fn wake(&self, file: &Arc<LargeFile>) {
        let mut state = lock(&self.state);
        if let Some(at) = state.parked.iter().position(|parked| Arc::ptr_eq(parked, file)) {
            let file = state.parked.swap_remove(at);
            state.items.push_front(Item::Large(file));
            drop(state);
            self.changed.notify_all();
        }
    }

    /// Puts a file back whose segments can be claimed again, unless it is still here. It goes first
    /// because it is the oldest.
    pub(super) fn push_again(&self, file: Arc<LargeFile>) {
        let mut state = lock(&self.state);
        state.remove(&file, |_| true);
        state.items.push_front(Item::Large(file));
        drop(state);
        self.changed.notify_all();
    }

    /// Announces that no more requests will come: workers end when the queue is empty.
    pub(super) fn close(&self) {
        lock(&self.state).closed = true;
        self.changed.notify_all();
    }

    /// Waits for work; `None` when there will be none. A worker for whom `rests` holds leaves it to others.
    pub(super) fn take(&self, lanes: usize, halt: &Halt, rests: impl Fn() -> bool) -> Option<Work> {
        let mut state = lock(&self.state);
        loop {
            if halt.stopped() {
                return None;
            }

            match state.items.front() {
                Some(_) if rests() => {
                    // The word that woke this one may have been for a single worker.
                    if state.idle > 0 {
                        self.changed.notify_one();
                    }
                    state = wait(&self.rested, state);
                }
                Some(Item::Large(file)) => return Some(Work::Large(Arc::clone(file))),
                Some(Item::Small(_)) => return Some(Work::Batch(take_batch(&mut state.items, lanes))),
                None if state.closed => {
                    self.rested.notify_all();
                    return None;
                }
                None => {
                    state.idle += 1;
                    state = wait(&self.changed, state);
                    state.idle -= 1;
                }
            }
        }
    }

    /// Removes a large file whose segments are all claimed. Since a worker found that, the file's
    /// next round may have begun: then it stays.
    pub(super) fn retire(&self, file: &Arc<LargeFile>) {
        let mut state = lock(&self.state);
        if !state.remove(file, LargeFile::is_exhausted) {
            return;
        }
        if file.awaits_sums() {
            state.parked.push(Arc::clone(file));
        }
        let idle = state.idle > 0;
        drop(state);
        if idle {
            self.changed.notify_all();
        }
    }
}

/// Takes small files from the front: a lane's fair share of the queue, bounded in count and bytes.
fn take_batch(items: &mut VecDeque<Item>, lanes: usize) -> Vec<Request> {
    let share = (items.len() / lanes.max(1)).clamp(MIN_BATCH_FILES, MAX_BATCH_FILES);
    let mut batch = Vec::new();
    let mut bytes = 0;
    while batch.len() < share {
        match items.front() {
            Some(Item::Small(request))
                if batch.is_empty() || bytes + request.listed.size() <= BATCH_BYTES =>
            {
                bytes += request.listed.size();
            }
            _ => break,
        }
        if let Some(Item::Small(request)) = items.pop_front() {
            batch.push(request);
        }
    }
    batch
}

/// Most waiting requests. An entry is asked for again only when its last content has arrived, and
/// released entries not at all, so an honest destination stays below the bound on unreleased
/// entries.
const MAX_QUEUED_REQUESTS: usize = 2 * MAX_UNRELEASED_ENTRIES;
/// Files up to this size go whole in batches; larger ones in segments, whose setup would cost a
/// small file more than its content.
pub(super) const SMALL_FILE_BYTES: u64 = 128 << 10;
/// Content of one batch frame. Large enough that frame costs vanish, small enough that lanes share
/// a tree of a few hundred files.
const BATCH_BYTES: u64 = 256 << 10;
const MIN_BATCH_FILES: usize = 8;
const MAX_BATCH_FILES: usize = 256;

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::{
        sync::atomic::{AtomicBool, AtomicUsize, Ordering},
        thread,
    };

    use super::*;
    use crate::source::catalogue::tests::{halt, listed};

    fn request(entry: u64) -> Request {
        let (signature, rest, tail) = Default::default();
        Request { entry: EntryId(entry), attempt: 0, listed: listed(), signature, rest, tail }
    }

    #[test]
    fn a_worker_that_rests_takes_nothing_until_it_may_and_ends_with_the_others() {
        let (queue, halt, rests) = (Queue::default(), halt(), AtomicBool::new(true));
        let (asked, taken) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let asks = || {
            asked.fetch_add(1, Ordering::Release);
            rests.load(Ordering::Acquire)
        };
        let until = |is_so: &dyn Fn() -> bool| {
            while !is_so() {
                thread::yield_now();
            }
        };

        thread::scope(|scope| {
            scope.spawn(|| {
                while queue.take(1, &halt, asks).is_some() {
                    taken.fetch_add(1, Ordering::Release);
                }
            });
            queue.push(request(1)).ok().unwrap();
            until(&|| asked.load(Ordering::Acquire) > 1);
            assert_eq!(taken.load(Ordering::Acquire), 0);
            // Another one takes it.
            assert!(matches!(queue.take(1, &halt, || false), Some(Work::Batch(_))));

            queue.push(request(2)).ok().unwrap();
            rests.store(false, Ordering::Release);
            until(&|| taken.load(Ordering::Acquire) == 1);
            rests.store(true, Ordering::Release);
            queue.close();
        });
    }
}
