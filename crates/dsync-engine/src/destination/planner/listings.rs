//! The destination's own listings, each read once: by the comparison, or before it by the walk that
//! answers spans ([`super::own_walk`]).
//!
//! Both go through the tree in one order. The parts that the walk has taken are kept for the comparison until it
//! comes there. The walk is never far ahead: by the spans that may wait, and a part of a listing.
//!
//! Law: the comparison gets each part of each directory that it asks for, in order, however far the walk
//! went and wherever it was given up. A directory that neither of them has announced is listed when it is asked for.

use std::{cmp::Ordering, collections::VecDeque, io, sync::Arc};

use dsync_fs::{Component, Dir, ListAhead, ListedPart, Metadata, SharedPath, SpoolHome, default_readers};
use dsync_wire::budget::Held;

/// The listings of the destination's directories.
pub(super) struct Listings {
    root: Arc<Dir>,
    spools: SpoolHome,
    /// Reads the announced directories.
    ahead: ListAhead,
    /// The paths of these directories, the next one last.
    announced: Vec<SharedPath>,
    /// Whether a part of the next one was taken.
    is_begun: bool,
    /// Parts that the walk has taken and the comparison has not, in order.
    kept: VecDeque<Kept>,
    /// The number of kept parts that the walk has seen.
    seen: usize,
    /// The last directory that the walk has ended.
    walked: Option<SharedPath>,
    /// A directory that was not announced, and its listing.
    apart: Option<(SharedPath, ListAhead)>,
    /// Memory of the kept parts.
    held: Held,
}

/// A part that waits for the comparison. Its directory is not open: there may be very many.
struct Kept {
    path: SharedPath,
    part: ListedPart,
    is_first: bool,
    /// Device and inode of the directory, if it could be opened.
    identity: Option<(u64, u64)>,
    weight: u64,
}

impl Listings {
    /// Makes the listings below a root. Holds at most `open` directories open ahead of both readers.
    pub(super) fn new(root: &Arc<Dir>, spools: &SpoolHome, open: usize, held: Held) -> Self {
        let (announced, kept, walked, apart) = Default::default();
        let ahead = ListAhead::new(Arc::clone(root), default_readers(), open, spools.clone());
        let (root, spools) = (Arc::clone(root), spools.clone());
        Self { root, spools, ahead, announced, is_begun: false, kept, seen: 0, walked, apart, held }
    }

    /// Announces the directories of one that the comparison has ended, unless the walk has done so.
    pub(super) fn descend(&mut self, parent: &SharedPath, children: Vec<SharedPath>) {
        let walked = self.walked.as_ref();
        if !walked.is_some_and(|walked| order(parent, walked).is_le()) {
            self.announce(children);
        }
    }

    /// Announces the root.
    pub(super) fn begin(&mut self) {
        self.announce(vec![SharedPath::root()]);
    }

    fn announce(&mut self, paths: Vec<SharedPath>) {
        self.announced.extend(paths.iter().rev().cloned());
        self.ahead.expect(paths.into_iter());
    }

    /// Takes the next part of what was announced.
    fn pull(&mut self) -> Option<(SharedPath, ListedPart, bool)> {
        let path = self.announced.last()?.clone();
        let Some(part) = self.ahead.next_part() else {
            self.announced.clear();
            return None;
        };
        let is_first = !self.is_begun;
        self.is_begun = !part.last;
        if part.last {
            self.announced.pop();
        }
        Some((path, part, is_first))
    }

    /// Returns the next part of a directory for the comparison, which goes from directory to directory
    /// in their order.
    pub(super) fn next_part(&mut self, path: &SharedPath) -> Option<ListedPart> {
        if let Some((at, listing)) = &mut self.apart {
            if order(at, path).is_eq() {
                return listing.next_part();
            }
            self.apart = None;
        }

        while let Some(order) = self.kept.front().map(|kept| order(&kept.path, path)) {
            match order {
                Ordering::Less => drop(self.take_kept()),
                Ordering::Equal => return self.reopened(path),
                Ordering::Greater => return self.list_apart(path),
            }
        }
        while let Some(order) = self.announced.last().map(|next| order(next, path)) {
            match order {
                Ordering::Less => drop(self.pull()),
                Ordering::Equal => return self.pull().map(|(_, part, _)| part),
                Ordering::Greater => break,
            }
        }
        self.list_apart(path)
    }

    fn take_kept(&mut self) -> Option<Kept> {
        let kept = self.kept.pop_front()?;
        self.seen = self.seen.saturating_sub(1);
        self.held.shrink(kept.weight);
        Some(kept)
    }

    /// Takes the first kept part, with its directory open once more. Where another directory has the
    /// name by now, that is listed.
    fn reopened(&mut self, path: &SharedPath) -> Option<ListedPart> {
        let Kept { mut part, is_first, identity, .. } = self.take_kept()?;
        let (true, Some(identity)) = (is_first, identity) else { return Some(part) };
        let opened = if path.is_root() {
            Ok(Arc::clone(&self.root))
        } else {
            self.root.open_beneath(&path.to_path()).map(Arc::new)
        };
        match opened {
            Ok(dir) if identity_of(&dir) == Some(identity) => part.dir = Some(dir),
            Ok(_) => return self.list_apart(path),
            Err(error) => part.error = Some(error),
        }
        Some(part)
    }

    /// Begins to list a directory that was not announced.
    fn list_apart(&mut self, path: &SharedPath) -> Option<ListedPart> {
        let mut listing = ListAhead::new(Arc::clone(&self.root), 0, 1, self.spools.clone());
        listing.expect(std::iter::once(path.clone()));
        let part = listing.next_part();
        self.apart = Some((path.clone(), listing));
        part
    }

    /// Begins a walk from where the comparison stands.
    pub(super) fn begin_walk(&mut self) {
        self.seen = 0;
    }

    /// Lists a directory for the walk alone: one that the comparison has begun.
    pub(super) fn list_again(&self, path: &SharedPath) -> ListAhead {
        let mut listing = ListAhead::new(Arc::clone(&self.root), 0, 1, self.spools.clone());
        listing.expect(std::iter::once(path.clone()));
        listing
    }

    /// Returns the next part of a directory for the walk, and keeps it for the comparison. `None` if the
    /// directory was not announced, or this end may hold no more.
    pub(super) fn walk_part(&mut self, path: &SharedPath) -> Option<ListedPart> {
        while let Some(kept) = self.kept.get(self.seen) {
            match order(&kept.path, path) {
                Ordering::Less => self.seen += 1,
                Ordering::Equal => {
                    let copy = copy_of(&kept.part);
                    let dir = self.root.open_beneath(&path.to_path()).ok().map(Arc::new);
                    self.seen += 1;
                    return Some(ListedPart { dir, ..copy });
                }
                Ordering::Greater => return None,
            }
        }
        self.keep_before(path)?;
        if !self.announced.last().is_some_and(|next| order(next, path).is_eq()) {
            return None;
        }

        let (_, part, is_first) = self.pull()?;
        let copy = copy_of(&part);
        self.keep(path.clone(), copy_with_error(&part), is_first, part.dir.as_deref())?;
        Some(ListedPart { dir: part.dir, ..copy })
    }

    /// Ends a directory of the walk: its own come next.
    pub(super) fn walk_into(&mut self, parent: &SharedPath, children: Vec<SharedPath>) {
        let is_new = self.walked.as_ref().is_none_or(|walked| order(parent, walked).is_gt());
        if !is_new {
            return;
        }
        // The rest of the parent comes before its children.
        while self.announced.last().is_some_and(|next| order(next, parent).is_le()) {
            if self.keep_next().is_none() {
                return;
            }
        }
        self.announce(children);
        self.walked = Some(parent.clone());
    }

    /// Keeps what comes before a directory and was not taken by the comparison.
    fn keep_before(&mut self, path: &SharedPath) -> Option<()> {
        while self.announced.last().is_some_and(|next| order(next, path).is_lt()) {
            self.keep_next()?;
        }
        Some(())
    }

    fn keep_next(&mut self) -> Option<()> {
        let (path, mut part, is_first) = self.pull()?;
        let dir = part.dir.take();
        self.keep(path, part, is_first, dir.as_deref())
    }

    /// Keeps a part. `None` if this end may hold no more; the part is kept all the same, as it was taken.
    fn keep(&mut self, path: SharedPath, part: ListedPart, is_first: bool, dir: Option<&Dir>) -> Option<()> {
        let identity = dir.filter(|_| is_first).and_then(identity_of);
        let names: usize = part.entries.iter().map(|(name, _)| name.as_bytes().len() + ENTRY_BYTES).sum();
        let weight = (names + size_of::<Kept>()) as u64;
        let held = self.held.grow(weight).is_ok();
        let weight = if held { weight } else { 0 };
        self.kept.push_back(Kept { path, part, is_first, identity, weight });
        self.seen = self.kept.len();
        held.then_some(())
    }
}

/// Compares directories in the order in which both readers come to them.
pub(super) fn order(one: &SharedPath, other: &SharedPath) -> Ordering {
    let (one, other) = (one.to_path(), other.to_path());
    names(one.as_bytes()).cmp(names(other.as_bytes()))
}

/// Returns the names of a path, in whose order directories are listed.
pub(super) fn names(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    path.split(|&byte| byte == b'/').filter(|name| !name.is_empty())
}

fn identity_of(dir: &Dir) -> Option<(u64, u64)> {
    dir.metadata().ok().map(|metadata| (metadata.dev, metadata.ino))
}

/// Copies a part without its directory and error.
fn copy_of(part: &ListedPart) -> ListedPart {
    let copied =
        |metadata: &io::Result<Metadata>| metadata.as_ref().map_or_else(|e| Err(same(e)), |m| Ok(*m));
    let entries = part.entries.iter().map(|(name, metadata)| (name.clone(), copied(metadata))).collect();
    ListedPart { dir: None, entries, last: part.last, complete: part.complete, error: None }
}

/// Copies a part without its directory.
fn copy_with_error(part: &ListedPart) -> ListedPart {
    ListedPart { error: part.error.as_ref().map(same), ..copy_of(part) }
}

fn same(error: &io::Error) -> io::Error {
    error.raw_os_error().map_or_else(|| error.kind().into(), io::Error::from_raw_os_error)
}

/// Bytes of an entry beside its name.
const ENTRY_BYTES: usize = size_of::<(Component, io::Result<Metadata>)>() + crate::set_bytes::ALLOCATION;

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::disallowed_methods)]
mod tests {
    use std::{fs, path::Path};

    use dsync_wire::budget::{Budget, Share};

    use super::*;

    /// Makes numbers that are the same each time.
    struct Dice(u64);

    impl Dice {
        fn below(&mut self, end: u64) -> u64 {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (self.0 >> 33) % end
        }
    }

    /// Plants directories with names whose order by bytes is not that of a walk; returns their paths in
    /// the order of a walk, each with its children.
    fn plant(
        at: &Path,
        path: &SharedPath,
        depth: u64,
        dice: &mut Dice,
    ) -> Vec<(SharedPath, Vec<SharedPath>)> {
        let mut children = Vec::new();
        for name in ["a", "a-b", "a.c", "b"] {
            fs::write(at.join(format!("{name}-file")), "").unwrap();
            if depth > 0 && dice.below(3) > 0 {
                fs::create_dir(at.join(name)).unwrap();
                children.push(path.join(&Component::new(name.as_bytes()).unwrap()));
            }
        }
        let mut all = vec![(path.clone(), children.clone())];
        for child in children {
            let name = child.to_path().as_bytes().rsplit(|&byte| byte == b'/').next().unwrap().to_vec();
            all.extend(plant(&at.join(String::from_utf8(name).unwrap()), &child, depth - 1, dice));
        }
        all
    }

    fn names_in(part: &ListedPart) -> Vec<Vec<u8>> {
        part.entries.iter().map(|(name, _)| name.as_bytes().to_vec()).collect()
    }

    fn on_disk(at: &Path) -> Vec<Vec<u8>> {
        let entries = fs::read_dir(at).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_encoded_bytes()).collect();
        names.sort();
        names
    }

    /// Lets a walk go ahead of the comparison, which passes over some directories; the walk is given up
    /// and begun again now and then.
    fn law_each_directory_is_whole(seed: u64) {
        let (scratch, mut dice) = (tempfile::tempdir().unwrap(), Dice(seed));
        let tree = plant(scratch.path(), &SharedPath::root(), 3, &mut dice);
        let root = Arc::new(Dir::open_operand(scratch.path()).unwrap());
        let budget = Budget::new(1 << 20);
        let mut listings =
            Listings::new(&root, &SpoolHome::new(Vec::new()), 4, budget.nothing(Share::Listings));
        listings.begin();

        let mut walk: Option<usize> = None;
        for (at, (path, children)) in tree.iter().enumerate() {
            if walk.is_none_or(|walk| walk < at) && at > 0 {
                walk = (dice.below(4) > 0).then_some(at);
                listings.begin_walk();
            }
            let goal = at + usize::try_from(dice.below(6)).unwrap();
            while let Some(next) = walk.filter(|&next| next < goal.min(tree.len())) {
                let (path, children) = &tree[next];
                let part = listings.walk_part(path).unwrap();
                assert_eq!(names_in(&part), on_disk(&scratch.path().join(text(path))), "{seed}: walk");
                listings.walk_into(path, children.clone());
                walk = if dice.below(12) == 0 { None } else { Some(next + 1) };
            }
            // The comparison does not enter what the source does not have.
            if at == 0 || dice.below(5) > 0 {
                let part = listings.next_part(path).unwrap();
                assert_eq!(names_in(&part), on_disk(&scratch.path().join(text(path))), "{seed}");
                assert!(part.dir.is_some() && part.last, "{seed}");
            }
            listings.descend(path, children.clone());
        }
    }

    fn text(path: &SharedPath) -> String {
        String::from_utf8(path.to_path().as_bytes().to_vec()).unwrap()
    }

    #[test]
    fn law_the_comparison_gets_each_directory_whole_wherever_the_walk_is() {
        (0..60).for_each(law_each_directory_is_whole);
    }

    #[test]
    fn a_directory_that_was_replaced_since_the_walk_saw_it_is_listed_anew() {
        let scratch = tempfile::tempdir().unwrap();
        let at = |name: &str| scratch.path().join(name);
        fs::create_dir_all(at("dir")).unwrap();
        fs::write(at("dir/old"), "").unwrap();
        let root = Arc::new(Dir::open_operand(scratch.path()).unwrap());
        let budget = Budget::new(1 << 20);
        let mut listings =
            Listings::new(&root, &SpoolHome::new(Vec::new()), 4, budget.nothing(Share::Listings));
        let dir = SharedPath::root().join(&Component::new(b"dir").unwrap());
        listings.begin();
        let _ = listings.next_part(&SharedPath::root()).unwrap();
        listings.descend(&SharedPath::root(), vec![dir.clone()]);
        listings.begin_walk();
        assert_eq!(names_in(&listings.walk_part(&dir).unwrap()), [b"old"]);

        fs::rename(at("dir"), at("away")).unwrap();
        fs::create_dir(at("dir")).unwrap();
        fs::write(at("dir/new"), "").unwrap();
        assert_eq!(names_in(&listings.next_part(&dir).unwrap()), [b"new"]);
    }
}
