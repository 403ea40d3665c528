//! The listed entries that the destination may still request.
//!
//! Entries are numbered as they are listed; a request names a number, never a path. A listing
//! message is kept until the destination releases it. At most [`MAX_UNRELEASED_ENTRIES`] entries
//! are kept, and entries whose attribute sets take [`MAX_UNRELEASED_SET_BYTES`] there. So the
//! lister waits, and memory stays flat at both ends however large the tree is (invariant S6, load
//! gates). If the destination goes through the listing again, all entries stay, some 200 bytes
//! each.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    hash::{DefaultHasher, Hash, Hasher},
    sync::{
        Arc, Condvar, Mutex,
        atomic::{AtomicBool, AtomicU8, Ordering},
    },
};

use dsync_fs::{Component, DirRef, Kind, Metadata, Origin, RelPath, SharedPath, SourceFile, Stamp, Target};
use dsync_wire::{
    limits::MAX_ATTEMPTS,
    message::{Cause, EntryId},
};

use super::read;
use crate::{
    SyncError,
    batch::Batch,
    halt::{Halt, lock, wait},
    limits::{MAX_UNRELEASED_ENTRIES, MAX_UNRELEASED_SET_BYTES},
};

/// The listed entries that the destination has not released.
#[derive(Default)]
pub(crate) struct Catalogue {
    /// Whether entries stay after their release, which then only stops counting them.
    keeps_all: AtomicBool,
    state: Mutex<State>,
    room: Condvar,
}

#[derive(Default)]
struct State {
    /// Parts by the number of their first entry.
    parts: BTreeMap<u64, Arc<Part>>,
    /// Unreleased listing messages and spans by their numbers.
    unreleased: HashMap<u64, Unreleased>,
    /// The numbers of spans without an answer, the oldest first. They cannot be released: the source
    /// still holds their listings.
    unanswered: VecDeque<u64>,
    next_number: u64,
    entries: usize,
    /// Bytes that their attribute sets take at the destination.
    set_bytes: u64,
    /// The first entry of the part in which a path was found last.
    found: u64,
    /// The lister waits for room: telling nobody would cost a system call for each message.
    waiting: bool,
}

/// The share of a listing message, or of a span, in the counters until it is released.
#[derive(Default)]
struct Unreleased {
    /// The first entry of each of its parts that has entries.
    firsts: Vec<u64>,
    entries: usize,
    set_bytes: u64,
}

/// The message that a part of the listing is released with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PartOf {
    /// Its own.
    Listing,
    /// The span that begins with it.
    NewSpan,
    /// The span of the part before.
    SameSpan,
}

/// The entries of one listing message.
pub(super) struct Part {
    /// The place of their content.
    pub(super) home: Home,
    /// Number of the first of them.
    pub(super) first: u64,
    pub(super) entries: Vec<Kept>,
    /// The state of each when it was listed, if copied entries may be removed; `None` for a
    /// directory.
    pub(super) witnesses: Vec<Option<Witness>>,
    /// Number of requests for each so far.
    pub(super) requests: Vec<AtomicU8>,
    /// Bytes that their attribute sets take at the destination.
    pub(super) set_bytes: u64,
}

/// The place where listed entries have their content.
pub(super) enum Home {
    /// The directory that holds them.
    Directory(DirRef),
    /// A batch, and the path of the directory that held them.
    Batch(Batch, SharedPath),
}

/// A listed entry as the catalogue keeps it.
pub(super) struct Kept {
    pub(super) name: Component,
    /// Its size; 0 for entries that are no regular files.
    pub(super) size: u64,
    /// Its identity, if a link was followed to it.
    pub(super) followed: Option<Target>,
    /// The rights that it was listed with.
    pub(super) rights: Rights,
}

/// A digest of the owner, the group and the permissions that an entry was listed with, which its copy
/// gets: the content of another file must not get them. Of an entry that was listed with an ACL or with
/// extended attributes the inode belongs to it too, as those may be rights as well.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Rights(u64);

impl Rights {
    /// The rights of an entry that is not opened in a tree.
    pub(super) const UNKNOWN: Self = Self(0);

    /// Takes the rights of a listed entry. `with_sets`: whether an ACL or attributes were listed.
    pub(super) fn of(listed: &Metadata, with_sets: bool) -> Self {
        match listed.origin {
            Origin::Inode | Origin::Device => Self::shown(listed, with_sets),
            // Those that it shows are not the inode's.
            _ => Self::kept_aside(listed),
        }
    }

    fn shown(found: &Metadata, with_inode: bool) -> Self {
        Self::digest((found.mode, found.uid, found.gid, with_inode.then_some(found.ino)))
    }

    fn kept_aside(found: &Metadata) -> Self {
        Self::digest(found.ino)
    }

    fn digest(facts: impl Hash) -> Self {
        let mut hasher = DefaultHasher::new();
        facts.hash(&mut hasher);
        Self(hasher.finish().max(1))
    }

    /// Returns whether an open file has the rights that were listed.
    fn are_of(self, opened: &Metadata) -> bool {
        let shown = [false, true].map(|with_inode| Self::shown(opened, with_inode));
        self == Self::UNKNOWN || shown.contains(&self) || self == Self::kept_aside(opened)
    }
}

/// The state of an entry when it was listed.
#[derive(Clone, Copy)]
pub(super) struct Witness {
    stamp: Stamp,
    /// Whether it had no other name. Changes through other names touch the ctime too, so only then
    /// the ctime counts.
    only_name: bool,
    /// Whether the source's entry has what its copy lacks.
    stays: bool,
}

impl Witness {
    pub(super) fn of(metadata: &Metadata) -> Option<Self> {
        let only_name = metadata.nlink < 2;
        (metadata.kind != Kind::Dir).then(|| Self { stamp: metadata.stamp(), only_name, stays: false })
    }

    /// Returns the same of an entry that is not removed if `stays`: its copy lacks something.
    pub(super) fn staying(self, stays: bool) -> Self {
        Self { stays, ..self }
    }

    /// Returns whether the entry is not removed though its copy has landed.
    pub(super) fn stays(&self) -> bool {
        self.stays
    }

    /// Returns the stamp from the listing.
    pub(super) fn stamp(&self) -> &Stamp {
        &self.stamp
    }

    /// Returns whether an entry has not changed since.
    pub(super) fn is(&self, now: &Metadata) -> bool {
        let mut stamp = now.stamp();
        if !self.only_name {
            stamp.ctime = self.stamp.ctime;
        }
        now.kind != Kind::Dir && stamp == self.stamp
    }
}

/// One listed entry.
#[derive(Clone)]
pub(super) struct Listed {
    part: Arc<Part>,
    index: usize,
}

impl Listed {
    /// Returns the directory that holds the entry; `None` for one of a batch.
    pub(super) fn dir(&self) -> Option<&DirRef> {
        match &self.part.home {
            Home::Directory(dir) => Some(dir),
            Home::Batch(..) => None,
        }
    }

    /// Returns the entry's path below the root of the tree.
    pub(super) fn path(&self) -> RelPath {
        match &self.part.home {
            Home::Directory(dir) => dir.path().join(self.name()),
            Home::Batch(_, path) => path.to_path().join(self.name()),
        }
    }

    /// Returns the entry's number.
    pub(super) fn number(&self) -> EntryId {
        EntryId(self.part.first + self.index as u64)
    }

    /// Opens the entry's content, so that each later change of it shows, unless it has other rights than were
    /// listed for it: then it counts as changed.
    pub(super) fn open(&self) -> Result<SourceFile, Cause> {
        match &self.part.home {
            Home::Directory(dir) => {
                let opened = dir.open_source(self.name(), self.followed());
                let file = opened.map_err(|error| read::cause(&error))?;
                let file = file.settle().map_err(|error| read::cause(&error))?;
                let rights = self.part.entries[self.index].rights;
                if rights.are_of(file.metadata()) { Ok(file) } else { Err(Cause::Changed) }
            }
            Home::Batch(batch, _) => batch.content(self.number()),
        }
    }

    /// Notes a request. Returns `false` when `attempt` does not count the earlier ones, or there
    /// were enough of them.
    pub(super) fn ask(&self, attempt: u8) -> bool {
        let Some(requests) = self.part.requests.get(self.index) else { return false };
        let next = attempt.saturating_add(1);
        attempt < MAX_ATTEMPTS
            && requests.compare_exchange(attempt, next, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Returns the entry's name.
    pub(super) fn name(&self) -> &Component {
        &self.part.entries[self.index].name
    }

    /// Returns the entry's identity, if a link was followed to it.
    pub(super) fn followed(&self) -> Option<Target> {
        self.part.entries[self.index].followed
    }

    /// Returns the state of the entry when it was listed; `None` for a directory, and in a run that
    /// removes nothing.
    pub(super) fn witness(&self) -> Option<Witness> {
        self.part.witnesses.get(self.index).copied().flatten()
    }

    /// Returns the size that was listed.
    pub(super) fn size(&self) -> u64 {
        self.part.entries[self.index].size
    }
}

impl Catalogue {
    /// Makes all entries stay to the end of the run, for a destination that comes back to them.
    pub(super) fn keep_all(&self) {
        self.keeps_all.store(true, Ordering::Relaxed);
    }

    /// Keeps one part of the listing, waiting until there is room, and calls `before_wait` before that.
    /// Returns `false` when the run has ended.
    pub(super) fn add(
        &self,
        part: Part,
        place: PartOf,
        halt: &Halt,
        before_wait: impl FnOnce() -> Result<(), SyncError>,
    ) -> Result<bool, SyncError> {
        // A part is let through by itself, however large.
        let is_full = |state: &State| {
            let is_over = |held: u64, more: u64, most: u64| held > 0 && more > 0 && held + more > most;
            is_over(state.entries as u64, part.entries.len() as u64, MAX_UNRELEASED_ENTRIES as u64)
                || is_over(state.set_bytes, part.set_bytes, MAX_UNRELEASED_SET_BYTES)
        };
        if is_full(&lock(&self.state)) {
            before_wait()?;
        }

        let mut state = lock(&self.state);
        while is_full(&state) {
            if halt.stopped() {
                return Ok(false);
            }
            state.waiting = true;
            state = wait(&self.room, state);
        }

        state.waiting = false;
        state.entries += part.entries.len();
        state.set_bytes += part.set_bytes;
        if place != PartOf::SameSpan {
            state.next_number += 1;
        }
        let number = state.next_number.saturating_sub(1);
        if place == PartOf::NewSpan {
            state.unanswered.push_back(number);
        }
        let unreleased = state.unreleased.entry(number).or_default();
        unreleased.entries += part.entries.len();
        unreleased.set_bytes += part.set_bytes;
        if !part.entries.is_empty() {
            unreleased.firsts.push(part.first);
            state.parts.insert(part.first, Arc::new(part));
        }

        Ok(true)
    }

    /// Notes the answer to the oldest span, which can then be released.
    pub(super) fn answered(&self) {
        lock(&self.state).unanswered.pop_front();
    }

    /// Forgets a listing message, or all parts of a span. Returns `false` when none has this number, or
    /// it is that of a span without an answer.
    pub(super) fn release(&self, number: u64) -> bool {
        let mut state = lock(&self.state);
        if state.unanswered.contains(&number) {
            return false;
        }
        let Some(Unreleased { firsts, entries, set_bytes }) = state.unreleased.remove(&number) else {
            return false;
        };
        state.entries -= entries;
        state.set_bytes -= set_bytes;
        if !self.keeps_all.load(Ordering::Relaxed) {
            firsts.iter().for_each(|first| _ = state.parts.remove(first));
        }
        // For some room, not for each part: the lister fills it at once and waits again.
        if state.waiting && state.entries <= AMPLE_ROOM && state.set_bytes <= AMPLE_SET_ROOM {
            self.room.notify_all();
        }
        true
    }

    /// Finds a listed entry by its path. Entries that are asked for in the order of the listing are
    /// found at once.
    pub(super) fn find_path(&self, path: &[u8]) -> Option<Listed> {
        let (directory, name) = match path.iter().rposition(|&byte| byte == b'/') {
            Some(at) => (&path[..at], &path[at + 1..]),
            None => (&[][..], path),
        };
        let mut state = lock(&self.state);
        let from = state.found;
        let parts = state.parts.range(from..).chain(state.parts.range(..from));
        let found = parts.filter_map(|(first, part)| {
            let Home::Directory(dir) = &part.home else { return None };
            let index = part.entries.binary_search_by(|kept| kept.name.as_bytes().cmp(name)).ok()?;
            (dir.path().as_bytes() == directory).then(|| (*first, Arc::clone(part), index))
        });
        let (first, part, index) = { found }.next()?;
        state.found = first;
        Some(Listed { part, index })
    }

    /// Finds a listed entry by its number.
    pub(super) fn find(&self, entry: EntryId) -> Option<Listed> {
        let state = lock(&self.state);
        let (first, part) = state.parts.range(..=entry.0).next_back()?;
        let index = usize::try_from(entry.0 - first).ok()?;
        let is_told =
            part.requests.get(index).is_some_and(|requests| requests.load(Ordering::Relaxed) != NEVER);
        is_told.then(|| Listed { part: Arc::clone(part), index })
    }
}

/// The number of requests of an entry that is named and never served: a hidden one.
pub(super) const NEVER: u8 = u8::MAX;

/// Unreleased entries at which a waiting lister is woken: a part of a listing is much shorter than
/// the room that is free then.
const AMPLE_ROOM: usize = MAX_UNRELEASED_ENTRIES - MAX_UNRELEASED_ENTRIES / 8;
/// The same for these.
const AMPLE_SET_ROOM: u64 = MAX_UNRELEASED_SET_BYTES - MAX_UNRELEASED_SET_BYTES / 8;

#[cfg(test)]
#[allow(clippy::unwrap_used)]
pub(super) mod tests {
    use dsync_wire::{frame::ControlSender, link::Link};

    use super::*;
    use crate::session::ControlOut;

    /// Returns a halt that nobody pulls.
    pub(in super::super) fn halt() -> Halt {
        let (here, there) = dsync_transport::memory::pair();
        // The peer's end lives as long as the test.
        std::mem::forget(there);
        let here: Arc<dyn Link> = Arc::new(here);
        let control = Arc::new(ControlOut::new(ControlSender::new(here.open_lane().unwrap().tx)));
        Halt::new(here, control)
    }

    fn part(first: u64, set_bytes: u64) -> Part {
        let operand = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/");
        let mut walk = dsync_fs::Walk::open(&[&operand], dsync_fs::WalkOptions::default()).unwrap();
        let dir = walk.next().unwrap().dir;
        let entries = vec![Kept {
            name: Component::new(b"name").unwrap(),
            size: 0,
            followed: None,
            rights: Rights::UNKNOWN,
        }];
        Part {
            home: Home::Directory(dir),
            first,
            entries,
            witnesses: vec![None],
            requests: vec![AtomicU8::new(0)],
            set_bytes,
        }
    }

    /// Returns a listed file.
    pub(in super::super) fn listed() -> Listed {
        Listed { part: Arc::new(part(1, 0)), index: 0 }
    }

    #[test]
    fn a_hidden_entry_is_never_found() {
        let (catalogue, halt) = (Catalogue::default(), halt());
        let requests = vec![AtomicU8::new(0), AtomicU8::new(NEVER)];
        let name = |name: &[u8]| {
            let (name, rights) = (Component::new(name).unwrap(), Rights::UNKNOWN);
            Kept { name, size: 0, followed: None, rights }
        };
        let entries = vec![name(b"name"), name(b"secret")];
        let part = Part { entries, requests, witnesses: vec![None; 2], ..part(7, 0) };
        assert!(catalogue.add(part, PartOf::Listing, &halt, || Ok(())).unwrap());
        assert!(catalogue.find(EntryId(7)).is_some_and(|listed| listed.ask(0)));
        assert!(catalogue.find(EntryId(8)).is_none());
    }

    #[test]
    fn a_listing_waits_while_its_attribute_sets_would_be_too_many_there() {
        let (catalogue, halt) = (Catalogue::default(), halt());
        let large = MAX_UNRELEASED_SET_BYTES - 10;
        let at_once = || Err(SyncError::Cancelled);
        assert!(catalogue.add(part(1, large), PartOf::Listing, &halt, at_once).unwrap());
        assert!(catalogue.add(part(2, 10), PartOf::Listing, &halt, at_once).unwrap());
        // Without sets of its own a part has nothing to wait for.
        assert!(catalogue.add(part(3, 0), PartOf::Listing, &halt, at_once).unwrap());
        assert!(matches!(
            catalogue.add(part(4, 1), PartOf::Listing, &halt, at_once),
            Err(SyncError::Cancelled)
        ));
        std::thread::scope(|scope| {
            let (told, asked) = std::sync::mpsc::channel();
            let (catalogue, halt) = (&catalogue, &halt);
            let waiting = scope.spawn(move || {
                catalogue.add(part(4, 2 * MAX_UNRELEASED_SET_BYTES), PartOf::Listing, halt, || {
                    told.send(()).unwrap();
                    Ok(())
                })
            });
            asked.recv().unwrap();
            // All others with sets have to go before one that is larger than the bound.
            assert!(catalogue.release(0) && !waiting.is_finished());
            assert!(catalogue.release(1));
            assert!(waiting.join().unwrap().unwrap());
        });
    }
}
