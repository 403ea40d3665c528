//! Hard links: the succession of names when the first one of a file fails.
//!
//! The first name carries the content. While it is in flight, every other name that is planned
//! waits here as one that the source can still be asked for: its listing is not released, its
//! directory stays open. Once the content has arrived their requests are cancelled. If the file
//! vanishes at the source instead, or fails here before its content is whole, the next name is
//! asked for in its place, and further names are linked to that one.
//!
//! Further names are linked only to the inode that a first name got or was found with. Another program
//! may give the name to another file at any time, and a source that removes what it sent would then
//! lose the content.
//!
//! The law: waiting names count as awaited, so requests do not end while one may still follow, and
//! their number is bounded. Memory: that of a file in flight for each waiting name; eight bytes for each
//! first name that is there; some bytes and
//! a path for each name that was lost or took over, out of the session's account, to the end of the
//! run.

use std::{
    collections::{HashMap, HashSet},
    hash::{DefaultHasher, Hash, Hasher},
    sync::{Arc, Mutex},
};

use dsync_fs::{Metadata, Stamp, Timestamp};
use dsync_wire::{
    budget::{Budget, Held, OverBudget, Share},
    message::EntryId,
};

use super::files::Pending;
use crate::halt::lock;

/// First names, by their numbers, that are in flight or failed.
pub(super) struct Succession {
    state: Mutex<State>,
}

struct State {
    first_names: HashMap<u64, Line>,
    /// Names that were asked for in the place of others.
    successors: HashSet<EntryId>,
    /// The digest of the inode of each first name, by the name's number; 0 if it is unknown.
    inodes: Vec<u64>,
    /// Memory that stays to the end of the run.
    held: Held,
}

/// The names that carry one content in turn. There is none for a first name that was there from the
/// beginning, or arrived.
struct Line {
    fate: Fate,
    /// The name that took over.
    successor: Option<Successor>,
}

enum Fate {
    /// Its content is awaited, and these wait for that.
    UnderWay(Vec<Heir>),
    /// It has arrived under the name that took over.
    Arrived,
    /// It failed, and so has every name that waited.
    Lost,
}

/// A name that waits for the content of the first one.
pub(super) struct Heir {
    pub(super) file: Arc<Pending>,
    /// It is a name of the old file that is written in place: so it is not linked, and goes first.
    pub(super) same_inode: bool,
}

/// A name that took over.
#[derive(Clone)]
pub(super) struct Successor {
    pub(super) path: Vec<u8>,
    pub(super) same_inode: bool,
}

/// The next step for a name that was to wait.
pub(super) enum Turn {
    /// Nothing.
    Waits,
    /// The first one has failed meanwhile: this name has to be asked for.
    Now(Arc<Pending>),
    /// The first one has arrived meanwhile: the request for this name is cancelled.
    Needless(Arc<Pending>),
}

impl Succession {
    /// Begins without names; its memory is taken from `budget`.
    pub(super) fn new(budget: &Arc<Budget>) -> Self {
        let held = budget.nothing(Share::HardLinks);
        let (first_names, successors) = <(HashMap<_, _>, HashSet<_>)>::default();
        let state = State { first_names, successors, inodes: Vec::new(), held };
        Self { state: Mutex::new(state) }
    }

    /// Notes that a first name is about to be asked for.
    pub(super) fn begin(&self, number: u64) {
        let under_way = Line { fate: Fate::UnderWay(Vec::new()), successor: None };
        lock(&self.state).first_names.insert(number, under_way);
    }

    /// Returns whether other names may have to wait for a first one: not once it has arrived, or if
    /// it was there from the beginning.
    pub(super) fn is_open(&self, number: u64) -> bool {
        let state = lock(&self.state);
        state.first_names.get(&number).is_some_and(|first| !matches!(first.fate, Fate::Arrived))
    }

    /// Makes a name wait for the first one.
    pub(super) fn wait(&self, number: u64, heir: Heir) -> Result<Turn, OverBudget> {
        let mut state = lock(&self.state);
        let State { first_names, successors, held, .. } = &mut *state;
        let Some(first) = first_names.get_mut(&number) else { return Ok(Turn::Needless(heir.file)) };
        Ok(match &mut first.fate {
            Fate::UnderWay(heirs) => {
                heirs.push(heir);
                Turn::Waits
            }
            Fate::Arrived => Turn::Needless(heir.file),
            Fate::Lost => {
                first.fate = Fate::UnderWay(Vec::new());
                Turn::Now(first.take_over(heir, successors, held)?)
            }
        })
    }

    /// Notes that a first name has arrived. Returns the names that waited for it: their requests
    /// are cancelled.
    pub(super) fn arrived(&self, number: u64) -> Vec<Arc<Pending>> {
        let mut state = lock(&self.state);
        let Some(mut first) = state.first_names.remove(&number) else { return Vec::new() };
        let heirs = match std::mem::replace(&mut first.fate, Fate::Arrived) {
            Fate::UnderWay(heirs) => heirs,
            Fate::Arrived | Fate::Lost => Vec::new(),
        };
        if first.successor.is_some() {
            state.first_names.insert(number, first);
        }
        heirs.into_iter().map(|heir| heir.file).collect()
    }

    /// Notes that a first name has failed. Returns the next one, which has to be asked for.
    pub(super) fn lost(&self, number: u64) -> Result<Option<Arc<Pending>>, OverBudget> {
        let mut state = lock(&self.state);
        let State { first_names, successors, held, .. } = &mut *state;
        let first = first_names.entry(number).or_insert(Line { fate: Fate::Lost, successor: None });
        let next = match &mut first.fate {
            Fate::UnderWay(heirs) if !heirs.is_empty() => {
                let kept = heirs.iter().position(|heir| heir.same_inode);
                Some(heirs.remove(kept.unwrap_or(0)))
            }
            _ => None,
        };
        if next.is_none() {
            held.grow(LOST_BYTES)?;
            first.fate = Fate::Lost;
        }
        next.map(|heir| first.take_over(heir, successors, held)).transpose()
    }

    /// Returns whether nothing can be linked to a first name.
    pub(super) fn is_lost(&self, number: u64) -> bool {
        let state = lock(&self.state);
        state.first_names.get(&number).is_some_and(|first| matches!(first.fate, Fate::Lost))
    }

    /// Notes the inode that a first name has, or is about to get. `stays`: whether nobody of this run
    /// gives it another time.
    pub(super) fn note_inode(&self, number: u64, stamp: &Stamp, stays: bool) -> Result<(), OverBudget> {
        let mut state = lock(&self.state);
        let State { inodes, held, .. } = &mut *state;
        let at = usize::try_from(number).unwrap_or(usize::MAX);
        if at >= inodes.capacity() {
            // By an eighth: doubling would cost as much again.
            let more = at.saturating_add(at / 8 + 64) - inodes.len();
            held.grow((more as u64).saturating_mul(size_of::<u64>() as u64))?;
            inodes.reserve_exact(more);
        }
        if at >= inodes.len() {
            inodes.resize(at + 1, 0);
        }
        inodes[at] = digest(stamp, stays.then_some(stamp.mtime));
        Ok(())
    }

    /// Returns whether an entry is the inode that was noted of a first name, or none was.
    pub(super) fn is_inode(&self, number: u64, found: &Metadata) -> bool {
        let state = lock(&self.state);
        let noted = usize::try_from(number).ok().and_then(|at| state.inodes.get(at)).copied().unwrap_or(0);
        let stamp = found.stamp();
        [0, digest(&stamp, None), digest(&stamp, Some(stamp.mtime))].contains(&noted)
    }

    /// Returns whether an entry is the inode that was noted of a first name.
    pub(super) fn has_inode(&self, number: u64, found: &Metadata) -> bool {
        let at = usize::try_from(number).unwrap_or(usize::MAX);
        let is_noted = lock(&self.state).inodes.get(at).is_some_and(|&noted| noted != 0);
        is_noted && self.is_inode(number, found)
    }

    /// Returns the name that took over from a first name.
    pub(super) fn successor(&self, number: u64) -> Option<Successor> {
        lock(&self.state).first_names.get(&number).and_then(|first| first.successor.clone())
    }

    /// Returns whether an entry was asked for in the place of another: it is not linked.
    pub(super) fn took_over(&self, entry: EntryId) -> bool {
        lock(&self.state).successors.contains(&entry)
    }
}

impl Line {
    fn take_over(
        &mut self,
        heir: Heir,
        successors: &mut HashSet<EntryId>,
        held: &mut Held,
    ) -> Result<Arc<Pending>, OverBudget> {
        let Heir { file, same_inode } = heir;
        let path = file.slot.path().as_bytes().to_vec();
        held.grow(LOST_BYTES + path.len() as u64)?;
        if let Some(before) = self.successor.replace(Successor { path, same_inode }) {
            held.shrink(before.path.len() as u64);
        }
        successors.insert(file.entry);
        Ok(file)
    }
}

/// Returns a number, never 0, that another inode has by chance only, and with a time another version.
fn digest(stamp: &Stamp, mtime: Option<Timestamp>) -> u64 {
    let mut hasher = DefaultHasher::new();
    (stamp.dev, stamp.ino, stamp.size, mtime).hash(&mut hasher);
    hasher.finish().max(1)
}

/// Memory for a first name that is lost or has a successor, and for a name that took over, beside
/// the path: an entry of a map that has just doubled.
const LOST_BYTES: u64 = 3 * (size_of::<(u64, Line)>() + size_of::<EntryId>() + 32) as u64;

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicU64};

    use dsync_fs::{Component, SharedPath, Wanted};
    use dsync_wire::event::Action;

    use super::*;
    use crate::destination::{credit::PartTicket, directory::Directory, slot::Slot};

    fn heir(entry: u64, same_inode: bool) -> Heir {
        let directory = Arc::new(Directory::new(
            SharedPath::root().join(&Component::new(b"d").unwrap()),
            None,
            None,
            false,
        ));
        let file = Pending {
            entry: EntryId(entry),
            slot: Slot {
                directory,
                name: Component::new(&[b'a'; 3]).unwrap(),
                is_new: false,
                in_place: false,
                is_apart: false,
                device: false,
                tail: None,
                twin: None,
                has_backup: AtomicBool::new(false),
                is_noted: false,
                begun: Mutex::default(),
                becomes: None,
                literal_bytes: AtomicU64::new(0),
            },
            part: Arc::new(PartTicket::new(None)),
            action: Action::Create,
            wanted: Wanted::default(),
            size: 0,
            keeps_newer: None,
            displaced: None,
            has_basis: false,
            first_name: None,
            phase: Mutex::default(),
            number: AtomicU64::new(0),
            facts: None,
            signature_bytes: AtomicU64::new(0),
            cloned: AtomicBool::new(false),
            listed_content: None,
            content: Mutex::default(),
            signature: Mutex::default(),
        };
        Heir { file: Arc::new(file), same_inode }
    }

    fn names() -> Succession {
        Succession::new(&Arc::default())
    }

    fn entries(files: impl IntoIterator<Item = Arc<Pending>>) -> Vec<u64> {
        files.into_iter().map(|file| file.entry.0).collect()
    }

    #[test]
    fn names_take_over_in_turn_those_of_the_old_inode_first() {
        let names = names();
        names.begin(5);
        for (entry, same_inode) in [(1, false), (2, true), (3, false), (4, false)] {
            assert!(matches!(names.wait(5, heir(entry, same_inode)).unwrap(), Turn::Waits));
        }
        assert_eq!(entries(names.lost(5).unwrap()), [2]);
        assert!(names.successor(5).unwrap().same_inode);
        assert_eq!(entries(names.lost(5).unwrap()), [1]);
        assert!(!names.successor(5).unwrap().same_inode);
        assert_eq!(entries(names.arrived(5)), [3, 4]);
        let took_over = (1..5).map(|entry| names.took_over(EntryId(entry)));
        assert!(took_over.eq([true, true, false, false]));
        assert_eq!(names.successor(5).unwrap().path, b"d/aaa");
        assert!(!names.is_open(5) && !names.is_lost(5));
        assert!(matches!(names.wait(5, heir(6, false)).unwrap(), Turn::Needless(_)));
    }

    #[test]
    fn a_name_that_comes_after_the_loss_is_asked_for_and_one_after_the_arrival_is_not() {
        let names = names();
        names.begin(5);
        assert!(names.lost(5).unwrap().is_none() && names.is_lost(5) && names.is_open(5));
        assert!(matches!(names.wait(5, heir(1, false)).unwrap(), Turn::Now(_)));
        assert!(matches!(names.wait(5, heir(2, false)).unwrap(), Turn::Waits));
        assert_eq!(entries(names.arrived(5)), [2]);
        names.begin(7);
        assert!(names.arrived(7).is_empty() && !names.is_open(7));
        assert!(matches!(names.wait(7, heir(3, false)).unwrap(), Turn::Needless(_)));
        // It could not get its name: nothing is kept of those that did.
        assert!(names.lost(7).unwrap().is_none() && names.is_lost(7));
        assert_eq!(lock(&names.state).first_names.len(), 2);
    }

    #[test]
    fn names_that_are_lost_or_took_over_are_taken_from_the_budget() {
        let budget = Budget::new(100_000);
        let names = Succession::new(&budget);
        let mut number = 0;
        let refused = loop {
            names.begin(number);
            // The first ones of each pair have no other name, the second ones have.
            if number % 2 == 1 {
                names.wait(number, heir(number, false)).unwrap();
            }
            let held = budget.held_by(Share::HardLinks);
            match names.lost(number) {
                Ok(next) => assert_eq!(next.is_some(), number % 2 == 1),
                Err(refused) => break refused,
            }
            assert!(budget.held_by(Share::HardLinks) > held);
            number += 1;
        };
        assert_eq!(refused.share, Share::HardLinks);
        assert!(number > 100, "{number}");
        drop(names);
        assert_eq!(budget.held_by(Share::HardLinks), 0);
    }
}
