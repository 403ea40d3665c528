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
    /// Number of kept parts whose directory is open, and how many may be.
    open: usize,
    max_open: usize,
}

/// Entries of a part, which the walk and the comparison both read.
pub(super) type Entries = Vec<(Component, io::Result<Metadata>)>;

/// A part as the walk sees it.
pub(super) struct WalkedPart {
    pub(super) dir: Option<Arc<Dir>>,
    pub(super) entries: Arc<Entries>,
    pub(super) last: bool,
    pub(super) complete: bool,
}

/// A part that waits for the comparison.
struct Kept {
    path: SharedPath,
    /// The part without its entries and its directory.
    part: ListedPart,
    entries: Arc<Entries>,
    place: Place,
    weight: u64,
}

/// The directory of a kept part: not all are open, as there may be very many.
enum Place {
    Open(Arc<Dir>),
    /// It was open, and is this device and inode.
    Closed(Option<(u64, u64)>),
    /// It comes with an earlier part, or could not be opened.
    None,
}

impl Listings {
    /// Makes the listings below a root. Holds at most `ahead` directories open ahead of both readers, and
    /// `max_open` between them.
    pub(super) fn new(
        (root, spools): (&Arc<Dir>, &SpoolHome),
        (ahead, max_open): (usize, usize),
        held: Held,
    ) -> Self {
        let ahead = ListAhead::new(Arc::clone(root), default_readers(), ahead, spools.clone());
        Self {
            root: Arc::clone(root),
            spools: spools.clone(),
            ahead,
            announced: Vec::new(),
            is_begun: false,
            kept: VecDeque::new(),
            seen: 0,
            walked: None,
            apart: None,
            held,
            open: 0,
            max_open,
        }
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
                Ordering::Equal => return self.taken(path),
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
        self.open -= usize::from(matches!(kept.place, Place::Open(_)));
        Some(kept)
    }

    /// Takes the first kept part, with its directory open. Where that was closed and another directory has
    /// the name by now, the other one is listed.
    fn taken(&mut self, path: &SharedPath) -> Option<ListedPart> {
        let Kept { mut part, entries, place, .. } = self.take_kept()?;
        // The walk has passed it, as a rule.
        part.entries = Arc::try_unwrap(entries).unwrap_or_else(|shared| copy_of(&shared));
        let identity = match place {
            Place::Open(dir) => {
                part.dir = Some(dir);
                return Some(part);
            }
            Place::Closed(identity) => identity,
            Place::None => return Some(part),
        };

        let opened = if path.is_root() {
            Ok(Arc::clone(&self.root))
        } else {
            self.root.open_beneath(&path.to_path()).map(Arc::new)
        };
        match opened {
            Ok(dir) if identity_of(&dir) == identity => part.dir = Some(dir),
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
    pub(super) fn walk_part(&mut self, path: &SharedPath) -> Option<WalkedPart> {
        while let Some(kept) = self.kept.get(self.seen) {
            match order(&kept.path, path) {
                Ordering::Less => self.seen += 1,
                Ordering::Equal => {
                    let dir = match &kept.place {
                        Place::Open(dir) => Some(Arc::clone(dir)),
                        _ => self.root.open_beneath(&path.to_path()).ok().map(Arc::new),
                    };
                    self.seen += 1;
                    return Some(kept.walked(dir));
                }
                Ordering::Greater => return None,
            }
        }
        self.keep_before(path)?;
        if !self.announced.last().is_some_and(|next| order(next, path).is_eq()) {
            return None;
        }

        let (_, part, is_first) = self.pull()?;
        let dir = part.dir.clone();
        self.keep(path.clone(), part, is_first)?;
        self.kept.back().map(|kept| kept.walked(dir))
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
        let (path, part, is_first) = self.pull()?;
        self.keep(path, part, is_first)
    }

    /// Keeps a part. `None` if this end may hold no more; the part is kept all the same, as it was taken.
    fn keep(&mut self, path: SharedPath, mut part: ListedPart, is_first: bool) -> Option<()> {
        let place = match part.dir.take().filter(|_| is_first) {
            Some(dir) if self.open < self.max_open => Place::Open(dir),
            Some(dir) => Place::Closed(identity_of(&dir)),
            None => Place::None,
        };
        self.open += usize::from(matches!(place, Place::Open(_)));
        let entries = Arc::new(std::mem::take(&mut part.entries));
        let names: usize = entries.iter().map(|(name, _)| name.as_bytes().len() + ENTRY_BYTES).sum();
        let weight = (names + size_of::<Kept>()) as u64;
        let held = self.held.grow(weight).is_ok();
        let weight = if held { weight } else { 0 };
        self.kept.push_back(Kept { path, part, entries, place, weight });
        self.seen = self.kept.len();
        held.then_some(())
    }
}

impl Kept {
    /// Returns it for the walk.
    fn walked(&self, dir: Option<Arc<Dir>>) -> WalkedPart {
        let ListedPart { last, complete, .. } = self.part;
        WalkedPart { dir, entries: Arc::clone(&self.entries), last, complete }
    }
}

impl From<ListedPart> for WalkedPart {
    fn from(ListedPart { dir, entries, last, complete, .. }: ListedPart) -> Self {
        Self { dir, entries: Arc::new(entries), last, complete }
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

/// Copies entries that the walk still reads.
fn copy_of(entries: &Entries) -> Entries {
    let same = |error: &io::Error| {
        error.raw_os_error().map_or_else(|| error.kind().into(), io::Error::from_raw_os_error)
    };
    let copied =
        |metadata: &io::Result<Metadata>| metadata.as_ref().map_or_else(|error| Err(same(error)), |m| Ok(*m));
    entries.iter().map(|(name, metadata)| (name.clone(), copied(metadata))).collect()
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

    fn names_in(entries: &Entries) -> Vec<Vec<u8>> {
        entries.iter().map(|(name, _)| name.as_bytes().to_vec()).collect()
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
        let open = (4, usize::try_from(dice.below(4)).unwrap());
        let spools = SpoolHome::new(Vec::new());
        let mut listings = Listings::new((&root, &spools), open, budget.nothing(Share::Listings));
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
                assert_eq!(
                    names_in(&part.entries),
                    on_disk(&scratch.path().join(text(path))),
                    "{seed}: walk"
                );
                listings.walk_into(path, children.clone());
                walk = if dice.below(12) == 0 { None } else { Some(next + 1) };
            }
            // The comparison does not enter what the source does not have.
            if at == 0 || dice.below(5) > 0 {
                let part = listings.next_part(path).unwrap();
                assert_eq!(names_in(&part.entries), on_disk(&scratch.path().join(text(path))), "{seed}");
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

    /// Returns the names that the comparison gets of a directory that was replaced behind the walk, with the
    /// directory's own, where so many may stay open.
    fn replaced_behind_the_walk(max_open: usize) -> [Vec<Vec<u8>>; 2] {
        let scratch = tempfile::tempdir().unwrap();
        let at = |name: &str| scratch.path().join(name);
        fs::create_dir_all(at("dir")).unwrap();
        fs::write(at("dir/old"), "").unwrap();
        let root = Arc::new(Dir::open_operand(scratch.path()).unwrap());
        let budget = Budget::new(1 << 20);
        let spools = SpoolHome::new(Vec::new());
        let mut listings = Listings::new((&root, &spools), (4, max_open), budget.nothing(Share::Listings));
        let dir = SharedPath::root().join(&Component::new(b"dir").unwrap());
        listings.begin();
        let _ = listings.next_part(&SharedPath::root()).unwrap();
        listings.descend(&SharedPath::root(), vec![dir.clone()]);
        listings.begin_walk();
        assert_eq!(names_in(&listings.walk_part(&dir).unwrap().entries), [b"old"]);

        fs::rename(at("dir"), at("away")).unwrap();
        fs::create_dir(at("dir")).unwrap();
        fs::write(at("dir/new"), "").unwrap();
        let part = listings.next_part(&dir).unwrap();
        let here = part.dir.as_ref().unwrap();
        let has = |name: &&[u8]| here.stat(&Component::new(name).unwrap()).is_ok();
        let own = [&b"new"[..], b"old"].into_iter().filter(has).map(<[u8]>::to_vec).collect();
        [names_in(&part.entries), own]
    }

    #[test]
    fn entries_are_those_of_the_directory_that_comes_with_them() {
        assert_eq!(replaced_behind_the_walk(0), [[b"new"], [b"new"]], "it was closed, and is listed anew");
        assert_eq!(replaced_behind_the_walk(1), [[b"old"], [b"old"]], "it stayed open, and has another name");
    }
}
