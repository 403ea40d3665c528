//! Reads ahead of a comparison in the tree of a destination on a slow disk.
//!
//! Which directories the comparison will list is known only when it has ended their parents. Where
//! each listing waits for a disk, that is a wait for each level of the tree. Most trees are much as
//! they were, so once listings turn out to wait, threads read the directories that are there now, names
//! and attributes, and forget them: the kernel remembers.
//!
//! Laws: this is advice only. It changes nothing, keeps nothing open, and its errors are nobody's. It
//! stays on the filesystem of the directory above, where no mount point can hang or wake a server.
//! It is at most [`MAX_READ`] directories ahead of the consumer, and holds [`MAX_NOTED`] paths of at most
//! [`MAX_PATH`] bytes.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    thread::{Builder, JoinHandle},
};

use crate::{
    dir::Dir,
    list_ahead::{ListedPart, list},
    metadata::Kind,
    shared_path::SharedPath,
    spool::SpoolHome,
    sys::nofile_limit,
};

/// Threads that read ahead once listings wait.
pub(crate) struct Foresight {
    shared: Arc<Shared>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    /// Number of listings that waited.
    slow: AtomicUsize,
}

struct Shared {
    root: Arc<Dir>,
    spools: SpoolHome,
    state: Mutex<State>,
    /// Wakes threads: there is something to read, or no more will be.
    work: Condvar,
}

#[derive(Default)]
struct State {
    /// Directories to read, in the order of the comparison.
    noted: BTreeMap<Place, SharedPath>,
    /// Directories that were read and that the consumer has not come to.
    read: BTreeSet<Place>,
    over: bool,
}

/// A path whose bytes sort in the order of a comparison: name by name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Place(Vec<u8>);

impl Place {
    fn of(path: &SharedPath) -> Self {
        Self(path.to_path().as_bytes().iter().map(|&byte| if byte == b'/' { 0 } else { byte }).collect())
    }
}

impl Foresight {
    /// Makes one for the tree below `root`. No thread starts before listings wait.
    pub(crate) fn new(root: Arc<Dir>, spools: SpoolHome) -> Self {
        let shared = Shared { root, spools, state: Mutex::default(), work: Condvar::new() };
        Self { shared: Arc::new(shared), threads: Mutex::default(), slow: AtomicUsize::new(0) }
    }

    /// Notes the directories of a listing, if this disk is slow; `waited` says whether this listing was.
    pub(crate) fn listed(&self, path: &SharedPath, part: &ListedPart, waited: bool) {
        let slow = self.slow.load(Ordering::Relaxed) + usize::from(waited);
        if waited {
            self.slow.store(slow, Ordering::Relaxed);
        }
        if slow < SLOW_LISTINGS {
            return;
        }
        self.start_threads();
        self.shared.note(path, part);
    }

    /// Notes that the consumer has come to a directory.
    pub(crate) fn passed(&self, path: &SharedPath) {
        if self.slow.load(Ordering::Relaxed) >= SLOW_LISTINGS {
            self.shared.passed(&Place::of(path));
        }
    }

    fn start_threads(&self) {
        let mut threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        if !threads.is_empty() {
            return;
        }
        let start = |_| {
            let shared = Arc::clone(&self.shared);
            Builder::new().name("foresight".into()).spawn(move || shared.work()).ok()
        };
        // Each has two directories open at the most: a small share of what the run may have.
        let few = usize::try_from(nofile_limit() / 64).unwrap_or(THREADS);
        threads.extend((0..THREADS.min(few)).map_while(start));
    }
}

impl Drop for Foresight {
    fn drop(&mut self) {
        self.shared.lock().over = true;
        self.shared.work.notify_all();
        let threads = std::mem::take(&mut *self.threads.lock().unwrap_or_else(PoisonError::into_inner));
        threads.into_iter().for_each(|thread| drop(thread.join()));
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes the directories of a listing that are on its own filesystem.
    fn note(&self, path: &SharedPath, part: &ListedPart) {
        let Some(device) = part.dir.as_ref().and_then(|dir| dir.metadata().ok()).map(|own| own.dev) else {
            return;
        };
        let is_below = |entry: &&crate::Metadata| entry.kind == Kind::Dir && entry.dev == device;
        let below = part.entries.iter().filter(|(_, entry)| entry.as_ref().ok().filter(is_below).is_some());
        let below = below.map(|(name, _)| path.join(name)).filter(|path| path.len() <= MAX_PATH);
        let below: Vec<_> = below.map(|path| (Place::of(&path), path)).collect();

        let mut state = self.lock();
        // Whoever has listed it needs it no more.
        let _ = state.noted.remove(&Place::of(path));
        state.noted.extend(below);
        while state.noted.len() > MAX_NOTED {
            let _ = state.noted.pop_last();
        }
        drop(state);
        self.work.notify_all();
    }

    /// Forgets all up to a directory.
    fn passed(&self, place: &Place) {
        let mut state = self.lock();
        let was_full = state.read.len() >= MAX_READ;
        while state.noted.first_key_value().is_some_and(|(first, _)| first <= place) {
            let _ = state.noted.pop_first();
        }
        while state.read.first().is_some_and(|first| first <= place) {
            let _ = state.read.pop_first();
        }
        let wakes = was_full && state.read.len() < MAX_READ;
        drop(state);
        if wakes {
            self.work.notify_all();
        }
    }

    /// Runs a thread's loop until the end.
    fn work(&self) {
        while let Some(path) = self.take() {
            if let Some(part) = list(&self.root, &path, &self.spools).output {
                self.note(&path, &part);
            }
        }
    }

    /// Waits for a directory to read; `None` at the end.
    fn take(&self) -> Option<SharedPath> {
        let mut state = self.lock();
        loop {
            if state.over {
                return None;
            }
            let next = if state.read.len() < MAX_READ { state.noted.pop_first() } else { None };
            if let Some((place, path)) = next {
                state.read.insert(place);
                return Some(path);
            }
            state = self.work.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// Listings that wait before threads start: a busy machine has a few.
const SLOW_LISTINGS: usize = 4;
/// Threads that read: half the requests that a SATA disk takes at once (NCQ, 32).
const THREADS: usize = 16;
/// Most directories that were read and that the consumer has not come to: a second of a hard disk, if
/// the consumer has no use for them.
const MAX_READ: usize = 256;
/// Most directories noted, of some 100 bytes and their paths.
const MAX_NOTED: usize = 1024;
/// Longest path in bytes: deeper directories, which a disk may have without end, are not read ahead.
const MAX_PATH: usize = 4096;

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::disallowed_methods)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;
    use crate::component::Component;

    fn foresight(tree: &std::path::Path) -> Foresight {
        Foresight::new(Arc::new(Dir::open_operand(tree).unwrap()), SpoolHome::default())
    }

    fn listed(foresight: &Foresight, path: &SharedPath) -> ListedPart {
        list(&foresight.shared.root, path, &foresight.shared.spools).output.unwrap()
    }

    fn path(names: &str) -> SharedPath {
        names
            .split('/')
            .fold(SharedPath::root(), |path, name| path.join(&Component::new(name.as_bytes()).unwrap()))
    }

    /// Waits until so many directories were read.
    fn until_read(foresight: &Foresight, count: usize) {
        let end = Instant::now() + Duration::from_secs(300);
        while foresight.shared.lock().read.len() < count {
            assert!(Instant::now() < end, "{} were read", foresight.shared.lock().read.len());
            std::thread::yield_now();
        }
    }

    #[test]
    fn all_below_is_read_once_listings_wait_and_forgotten_as_the_consumer_comes() {
        let scratch = tempfile::tempdir().unwrap();
        ["a/b/c", "a/d", "e/f"]
            .iter()
            .for_each(|dir| std::fs::create_dir_all(scratch.path().join(dir)).unwrap());
        std::fs::write(scratch.path().join("file"), "").unwrap();
        let foresight = foresight(scratch.path());
        let root = listed(&foresight, &SharedPath::root());

        (1..SLOW_LISTINGS).for_each(|_| foresight.listed(&SharedPath::root(), &root, true));
        assert!(foresight.threads.lock().unwrap().is_empty());
        foresight.listed(&SharedPath::root(), &root, true);
        until_read(&foresight, 6);

        foresight.passed(&path("a/b"));
        let left: Vec<_> = foresight.shared.lock().read.iter().cloned().collect();
        assert_eq!(left, ["a/b/c", "a/d", "e", "e/f"].map(|left| Place::of(&path(left))));
    }

    #[test]
    fn a_consumer_that_does_not_come_stops_it() {
        let scratch = tempfile::tempdir().unwrap();
        (0..2 * MAX_READ)
            .for_each(|dir| std::fs::create_dir(scratch.path().join(format!("{dir:04}"))).unwrap());
        let foresight = foresight(scratch.path());
        let root = listed(&foresight, &SharedPath::root());
        (0..SLOW_LISTINGS).for_each(|_| foresight.listed(&SharedPath::root(), &root, true));

        until_read(&foresight, MAX_READ);
        foresight.passed(&path(&format!("{:04}", MAX_READ - 1)));
        until_read(&foresight, MAX_READ);
        let state = foresight.shared.lock();
        assert_eq!((state.read.len(), state.noted.len()), (MAX_READ, 0));
    }

    #[test]
    fn what_is_noted_has_a_bound_in_number_and_length() {
        let scratch = tempfile::tempdir().unwrap();
        (0..2 * MAX_NOTED)
            .for_each(|dir| std::fs::create_dir(scratch.path().join(format!("{dir:04}"))).unwrap());
        let foresight = foresight(scratch.path());
        let root = listed(&foresight, &SharedPath::root());
        foresight.shared.note(&SharedPath::root(), &root);
        assert_eq!(foresight.shared.lock().noted.len(), MAX_NOTED);

        let name = Component::new(&[b'n'; 255]).unwrap();
        let deep = (0..MAX_PATH / 256).fold(SharedPath::root(), |path, _| path.join(&name));
        foresight.shared.lock().noted.clear();
        foresight.shared.note(&deep, &root);
        assert!(foresight.shared.lock().noted.is_empty());
    }

    #[test]
    fn directories_sort_as_they_are_compared() {
        let mut places = ["a-b", "a/b", "a", "a/b/c", "b"].map(|names| Place::of(&path(names)));
        places.sort();
        assert_eq!(places, ["a", "a/b", "a/b/c", "a-b", "b"].map(|names| Place::of(&path(names))));
    }
}
