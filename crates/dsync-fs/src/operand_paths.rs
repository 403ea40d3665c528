//! The paths below the transfer's root that relative operands or a list name, in the order of a
//! walk.
//!
//! A [`PathSorter`] takes any number of paths, in any order; an [`OperandPaths`] finds those at or
//! below a directory. The order is that of names, component by component, so the paths below a
//! directory follow each other.
//!
//! Cost: paths are sorted in runs of [`RUN_BYTES`], which go to spools and are merged from there, so
//! memory is that of one run and 1 MiB for each further one, whatever the number of paths. On the
//! spools each path takes its bytes and 30 more. The same path twice is one. A question costs a
//! binary search.

use std::{
    borrow::Cow,
    cmp::{Ordering, Reverse},
    collections::BinaryHeap,
    mem,
    ops::Range,
};

use crate::{
    component::{Component, RelPath},
    flat_spool::{FlatBytes, FlatSpool},
    spelling::Spelling,
    spool::{SealedSpool, Spool, SpoolError, SpoolHome},
};

/// A sorted set of paths, each with the operand's layer.
#[derive(Debug, Default)]
pub struct OperandPaths {
    /// The paths, each after its layer and meaning.
    records: FlatBytes,
    /// Start of each record, 8 bytes apiece, and the end of the last one.
    starts: FlatBytes,
    len: usize,
}

/// Collects paths in any order.
#[derive(Debug, Default)]
pub struct PathSorter {
    home: SpoolHome,
    run: Run,
    runs: Vec<SealedSpool>,
}

/// Records that are sorted together: consecutive, with the range of each.
#[derive(Debug, Default)]
struct Run {
    records: Vec<u8>,
    ranges: Vec<Range<usize>>,
}

/// The meaning of a path of the set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Naming {
    /// The entry of this name (`a/b`).
    Entry,
    /// The contents of the directory (`a/b/`).
    Contents,
    /// A directory on the way to something that does not exist.
    Way,
    /// The contents of a directory that holds nothing but directories, of which a pruning walk makes none.
    Barren,
}

/// A path of the set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OperandPath<'a> {
    /// The path below the transfer's root; it is never the root.
    pub path: &'a [u8],
    /// The number that it was added with.
    pub layer: u32,
    /// Its meaning.
    pub naming: Naming,
}

/// The place of a path among those of a set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Standing {
    /// An operand names the path itself.
    pub named: bool,
    /// An operand stands for what is in it.
    pub contents: bool,
    /// An operand names something below it.
    pub on_the_way: bool,
}

impl PathSorter {
    /// Makes a sorter whose runs go to `home` if there are many paths.
    pub fn new(home: &SpoolHome) -> Self {
        Self { home: home.clone(), ..Self::default() }
    }

    /// Adds a path.
    ///
    /// # Errors
    /// [`SpoolError`] if there are many paths and they cannot be kept.
    pub fn push(&mut self, path: &RelPath, layer: u32, naming: Naming) -> Result<(), SpoolError> {
        self.run.push(path.as_bytes(), layer, naming);
        if self.run.records.len() >= RUN_BYTES {
            let run = mem::take(&mut self.run).spool(&self.home)?;
            self.runs.push(run);
        }
        Ok(())
    }

    /// Puts the paths in order.
    ///
    /// # Errors
    /// As [`push`](Self::push).
    pub fn seal(mut self) -> Result<OperandPaths, SpoolError> {
        let mut writer = SetWriter::new(&self.home);
        if self.runs.is_empty() {
            for record in self.run.in_order() {
                writer.push(record)?;
            }
            return writer.seal();
        }
        let last = self.run.spool(&self.home)?;
        self.runs.push(last);

        let mut sources: Vec<_> = self.runs.iter().map(SealedSpool::iter).collect();
        let mut next = BinaryHeap::new();
        for (number, source) in sources.iter_mut().enumerate() {
            if let Some(record) = source.next() {
                next.push(Reverse(Head { record: record?, run: number }));
            }
        }
        while let Some(Reverse(Head { record, run })) = next.pop() {
            writer.push(&record)?;
            if let Some(record) = sources.get_mut(run).and_then(Iterator::next) {
                next.push(Reverse(Head { record: record?, run }));
            }
        }
        drop(next);
        writer.seal()
    }
}

impl Run {
    fn push(&mut self, path: &[u8], layer: u32, naming: Naming) {
        let start = self.records.len();
        self.records.extend_from_slice(&layer.to_be_bytes());
        self.records.push(naming as u8);
        self.records.extend_from_slice(path);
        self.ranges.push(start..self.records.len());
    }

    /// Sorts the records.
    fn in_order(&mut self) -> impl Iterator<Item = &[u8]> {
        let Self { records, ranges } = self;
        let record = |range: &Range<usize>| records.get(range.clone()).unwrap_or_default();
        ranges.sort_by(|a, b| in_walk_order(record(a), record(b)));
        ranges.iter().map(record)
    }

    fn spool(mut self, home: &SpoolHome) -> Result<SealedSpool, SpoolError> {
        let mut spool = Spool::new(home);
        for record in self.in_order() {
            spool.push(record)?;
        }
        spool.seal()
    }
}

/// The next record of a run.
#[derive(PartialEq, Eq)]
struct Head<'a> {
    record: Cow<'a, [u8]>,
    run: usize,
}

impl Ord for Head<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        in_walk_order(&self.record, &other.record).then(self.run.cmp(&other.run))
    }
}

impl PartialOrd for Head<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Writes records, which come in order, as a set.
struct SetWriter {
    records: FlatSpool,
    starts: FlatSpool,
    last: Vec<u8>,
    len: usize,
}

impl SetWriter {
    fn new(home: &SpoolHome) -> Self {
        Self { records: FlatSpool::new(home), starts: FlatSpool::new(home), last: Vec::new(), len: 0 }
    }

    fn push(&mut self, record: &[u8]) -> Result<(), SpoolError> {
        if self.len > 0 && self.last == record {
            return Ok(());
        }
        self.starts.push(&self.records.len().to_le_bytes())?;
        self.records.push(record)?;
        self.last.clear();
        self.last.extend_from_slice(record);
        self.len += 1;
        Ok(())
    }

    fn seal(mut self) -> Result<OperandPaths, SpoolError> {
        self.starts.push(&self.records.len().to_le_bytes())?;
        Ok(OperandPaths { records: self.records.seal()?, starts: self.starts.seal()?, len: self.len })
    }
}

impl OperandPaths {
    /// Returns the number of paths.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the numbers that paths were added with, in order, each once.
    pub fn layers(&self) -> Vec<u32> {
        let mut layers = Vec::new();
        for item in self.paths(0..self.len) {
            if let Err(at) = layers.binary_search(&item.layer) {
                layers.insert(at, item.layer);
            }
        }
        layers
    }

    /// Returns some of the paths.
    pub fn paths(&self, range: Range<usize>) -> impl Iterator<Item = OperandPath<'_>> {
        (range.start..range.end.min(self.len)).map(|index| self.item(index))
    }

    /// Returns a path; the root where there is none.
    fn item(&self, index: usize) -> OperandPath<'_> {
        let record = self.record(index);
        let (head, path) = record.split_at_checked(HEAD).unwrap_or_default();
        let layer = head.first_chunk().map_or(0, |layer| u32::from_be_bytes(*layer));
        let naming = match head.last() {
            Some(1) => Naming::Contents,
            Some(2) => Naming::Way,
            Some(3) => Naming::Barren,
            _ => Naming::Entry,
        };
        OperandPath { path, layer, naming }
    }

    fn path(&self, index: usize) -> &[u8] {
        self.record(index).get(HEAD..).unwrap_or_default()
    }

    fn record(&self, index: usize) -> &[u8] {
        let start = |index: usize| {
            let at = self.starts.get(index.checked_mul(8)?..)?.first_chunk()?;
            usize::try_from(u64::from_le_bytes(*at)).ok()
        };
        let range = start(index).zip(start(index + 1)).map(|(start, end)| start..end);
        range.and_then(|range| self.records.get(range)).unwrap_or_default()
    }

    /// Returns the first index of a range whose path is not accepted; those that are come first.
    fn partition_point(&self, range: Range<usize>, accepts: impl Fn(&[u8]) -> bool) -> usize {
        let (mut low, mut high) = (range.start, range.end.min(self.len));
        while low < high {
            let middle = low + (high - low) / 2;
            if accepts(self.path(middle)) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }

    /// Returns the names, in order, that paths of this range have below a directory.
    pub fn names<'a>(&'a self, directory: &RelPath, range: Range<usize>) -> impl Iterator<Item = &'a [u8]> {
        let from = name_start(directory);
        let mut at = range.start;
        std::iter::from_fn(move || {
            while at < range.end {
                let path = self.path(at);
                let Some(name) = path.get(from..).and_then(|rest| rest.split(|&byte| byte == b'/').next())
                else {
                    at += 1;
                    continue;
                };
                at += self.count_below(from, name, at..range.end);
                return Some(name);
            }
            None
        })
    }

    /// Returns the range, within that of a directory, of the paths at or below its entry of this
    /// name.
    pub fn within(&self, directory: &RelPath, name: &[u8], range: Range<usize>) -> Range<usize> {
        let from = name_start(directory);
        let start = self.partition_point(range.clone(), |path| {
            path.get(from..).is_none_or(|rest| first_name(rest).cmp(name).is_lt())
        });
        start..start + self.count_below(from, name, start..range.end)
    }

    /// Returns the number of paths at the beginning of a range that have this name there.
    fn count_below(&self, from: usize, name: &[u8], range: Range<usize>) -> usize {
        let start = range.start;
        self.partition_point(range, |path| path.get(from..).map(first_name) == Some(name)) - start
    }

    /// Returns whether a range has nothing but contents that a pruning walk leaves out.
    pub fn is_barren(&self, range: Range<usize>) -> bool {
        self.paths(range).all(|item| item.naming == Naming::Barren)
    }

    /// Returns the place of a path.
    pub fn standing(&self, path: &[u8]) -> Standing {
        let start = self.partition_point(0..self.len, |other| by_component(other, path).is_lt());
        let mut standing = Standing::default();
        for item in self.paths(start..self.len) {
            if item.path != path {
                let below = item.path.strip_prefix(path).is_some_and(|rest| rest.first() == Some(&b'/'));
                standing.on_the_way = below || path.is_empty();
                break;
            }
            standing.named |= item.naming != Naming::Way;
            standing.on_the_way |= item.naming == Naming::Way;
            standing.contents |= matches!(item.naming, Naming::Contents | Naming::Barren);
        }
        standing
    }

    /// Returns whether a path, or a directory on the way to it, is one of the set.
    pub fn covers(&self, path: &RelPath) -> bool {
        let bytes = path.as_bytes();
        let ends = bytes.iter().enumerate().filter(|&(_, &byte)| byte == b'/').map(|(at, _)| at);
        ends.chain([bytes.len()]).any(|end| bytes.get(..end).is_some_and(|path| self.standing(path).named))
    }
}

impl Standing {
    /// Returns whether operands have to do with the path at all.
    pub fn is_known(self) -> bool {
        self.named || self.on_the_way
    }
}

/// Returns where the names in a directory begin in the paths below it.
fn name_start(directory: &RelPath) -> usize {
    if directory.is_root() { 0 } else { directory.as_bytes().len() + 1 }
}

fn first_name(path: &[u8]) -> &[u8] {
    path.split(|&byte| byte == b'/').next().unwrap_or_default()
}

/// Compares records by path, then by layer and meaning.
fn in_walk_order(a: &[u8], b: &[u8]) -> Ordering {
    let (a, b) = (a.split_at_checked(HEAD).unwrap_or_default(), b.split_at_checked(HEAD).unwrap_or_default());
    by_component(a.1, b.1).then_with(|| a.0.cmp(b.0))
}

/// Compares paths as a walk orders them: `a/b` comes before `a-c`.
fn by_component(a: &[u8], b: &[u8]) -> Ordering {
    // No name has a zero byte.
    let order = |byte: &u8| if *byte == b'/' { 0 } else { *byte };
    a.iter().map(order).cmp(b.iter().map(order))
}

/// Bytes before the path of a record: its layer and its meaning.
const HEAD: usize = 5;

/// Bytes of records that are sorted together: a list of 100,000 short names needs no second run.
const RUN_BYTES: usize = 4 << 20;

/// The meaning of a source operand under `relative`: a directory to start from, and the path below
/// it that the destination gets as well.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RelativeForm {
    /// The directory in which the path starts.
    pub base: Vec<u8>,
    /// The path.
    pub path: RelPath,
    /// Whether the operand stands for what is in the directory.
    pub contents: bool,
    /// Whether the path begins with `./`: the directory in which it starts is then one on the way
    /// to it, as with rsync.
    pub from_root: bool,
}

/// The reason why an operand is no [`RelativeForm`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidRelative {
    /// It goes upwards, so that the destination would get no path below its root.
    #[error("a path that is copied with its directories cannot have '..' in it (after a '/./' at the most)")]
    Upwards,
    /// It is no path.
    #[error(transparent)]
    Name(#[from] crate::component::InvalidComponent),
}

impl RelativeForm {
    /// Interprets an operand. What comes before its first `/./` is not a part of the path.
    ///
    /// # Errors
    /// [`InvalidRelative`].
    pub fn of(operand: &[u8]) -> Result<Self, InvalidRelative> {
        if operand.is_empty() {
            return Err(crate::component::InvalidComponent::Empty.into());
        }
        let cut = operand.windows(3).position(|three| three == b"/./");
        let (base, rest) = match cut {
            Some(0) => (&b"/"[..], &operand[3..]),
            Some(cut) => (&operand[..cut], &operand[cut + 3..]),
            None if operand.starts_with(b"/") => (&b"/"[..], operand),
            None => (&b"."[..], operand),
        };

        let mut path = RelPath::root();
        for name in rest.split(|&byte| byte == b'/') {
            match name {
                b"" | b"." => {}
                b".." => return Err(InvalidRelative::Upwards),
                name => path.push(&Component::new(name)?),
            }
        }
        let contents = path.is_root() || rest.ends_with(b"/") || rest.ends_with(b"/.");
        let from_root = rest.starts_with(b"./") && !path.is_root();
        Ok(Self { base: base.to_vec(), path, contents, from_root })
    }

    /// Returns the form with its path as the tree has it; the base stays as it was written.
    ///
    /// # Errors
    /// [`InvalidRelative::Name`] for a name that is too long in that spelling.
    pub fn spelled(self, spelling: Option<&Spelling>) -> Result<Self, InvalidRelative> {
        let Some(spelling) = spelling else { return Ok(self) };
        let path = RelPath::parse(&spelling.path_to_there(self.path.as_bytes()))?;
        Ok(Self { path, ..self })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use proptest::{collection::vec, prelude::*, sample::select};

    use super::*;

    #[test]
    fn an_operand_is_cut_where_the_operator_says() {
        for (operand, base, path, contents, from_root) in [
            ("a/b/c", ".", "a/b/c", false, false),
            ("./a//b", ".", "a/b", false, true),
            ("/x/y", "/", "x/y", false, false),
            ("a/./b/c", "a", "b/c", false, false),
            ("a/././b", "a", "b", false, true),
            ("././a", ".", "a", false, false),
            ("/a/b/./c/./d/", "/a/b", "c/d", true, false),
            ("/./a", "/", "a", false, false),
            ("../s/./a", "../s", "a", false, false),
            ("a/./", "a", "", true, false),
            (".", ".", "", true, false),
            ("./", ".", "", true, false),
            ("/", "/", "", true, false),
            ("a/b/.", ".", "a/b", true, false),
        ] {
            let form = RelativeForm::of(operand.as_bytes()).unwrap();
            let path = RelPath::parse(path.as_bytes()).unwrap();
            assert_eq!(form, RelativeForm { base: base.into(), path, contents, from_root }, "{operand}");
        }
        for operand in ["..", "a/../b", "x/./../y", "../a"] {
            assert_eq!(RelativeForm::of(operand.as_bytes()), Err(InvalidRelative::Upwards), "{operand}");
        }
    }

    #[test]
    fn many_paths_are_sorted_on_spools() {
        let name = |number: u32| format!("dir-{}/a name that is long enough {number}", number % 7);
        let mut sorter = PathSorter::default();
        let numbers = || (0..200_000_u32).map(|number| number.wrapping_mul(7919) % 200_000);
        for number in numbers().chain(numbers().take(1000)) {
            let path = RelPath::parse(name(number).as_bytes()).unwrap();
            sorter.push(&path, number % 2, Naming::Entry).unwrap();
        }
        assert!(sorter.runs.len() > 1);
        let paths = sorter.seal().unwrap();

        assert_eq!(paths.len(), 200_000, "the same path twice is one");
        assert_eq!(paths.layers(), [0, 1]);
        let order = |a: &OperandPath<'_>, b: &OperandPath<'_>| by_component(a.path, b.path).is_lt();
        assert!(paths.paths(0..paths.len()).is_sorted_by(order));
        assert!(numbers().step_by(97).all(|number| paths.standing(name(number).as_bytes()).named));
        assert_eq!(paths.names(&RelPath::root(), 0..paths.len()).count(), 7);
    }

    const NAMES: &[&str] = &["a", "a-", "a.b", "b", "\u{7f}"];

    fn path() -> impl Strategy<Value = String> {
        vec(select(NAMES), 1..4).prop_map(|names| names.join("/"))
    }

    proptest! {
        #[test]
        fn every_question_is_answered_as_by_looking_at_all_paths(
            given in vec((path(), any::<bool>()), 0..12),
            asked in path(),
        ) {
            let mut paths = PathSorter::default();
            for (path, contents) in &given {
                let naming = if *contents { Naming::Contents } else { Naming::Entry };
                paths.push(&RelPath::parse(path.as_bytes()).unwrap(), 0, naming).unwrap();
            }
            let paths = paths.seal().unwrap();
            let below = format!("{asked}/");
            let standing = paths.standing(asked.as_bytes());
            prop_assert_eq!(standing.named, given.iter().any(|(path, _)| *path == asked));
            prop_assert_eq!(standing.contents, given.iter().any(|(path, contents)| *path == asked && *contents));
            prop_assert_eq!(standing.on_the_way, given.iter().any(|(path, _)| path.starts_with(&below)));
            let above = |path: &str| asked == *path || asked.starts_with(&format!("{path}/"));
            let asked = RelPath::parse(asked.as_bytes()).unwrap();
            prop_assert_eq!(paths.covers(&asked), given.iter().any(|(path, _)| above(path)));

            // Down along the path, a range is always that of the paths at or below.
            let (mut directory, mut range) = (RelPath::root(), 0..paths.len());
            for name in asked.components() {
                let start = name_start(&directory);
                let names: Vec<_> = paths.names(&directory, range.clone()).collect();
                prop_assert!(names.is_sorted() && names.windows(2).all(|two| two[0] != two[1]));
                let all = paths.paths(range.clone()).filter_map(|item| item.path.get(start..)).map(first_name);
                prop_assert_eq!(names.clone(), { let mut all: Vec<_> = all.collect(); all.dedup(); all });
                let within = paths.within(&directory, name, range.clone());
                directory.push(&Component::new(name).unwrap());
                let found = paths.paths(range).filter(|item| {
                    let path = RelPath::parse(item.path).unwrap();
                    path.below(&directory).is_some()
                });
                prop_assert_eq!(found.count(), within.len());
                range = within;
            }
        }
    }
}
