//! The paths below the transfer's root that relative operands name, in the order of a walk.
//!
//! Takes any number of paths, in any order, and finds those at or below a directory. The order is
//! that of names, component by component, so the paths below a directory follow each other.
//!
//! Memory: the bytes of the paths, and 24 bytes for each. The same path twice is one.

use std::{cmp::Ordering, ops::Range};

use crate::component::{Component, RelPath};

/// A set of paths, each with the operand's layer.
#[derive(Debug, Clone, Default)]
pub struct OperandPaths {
    text: Vec<u8>,
    items: Vec<Item>,
}

/// One path.
#[derive(Debug, Clone, Copy)]
struct Item {
    start: usize,
    len: u32,
    layer: u32,
    naming: Naming,
}

/// The meaning of a path of the set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Naming {
    /// The entry of this name (`a/b`).
    Entry,
    /// The contents of the directory (`a/b/`).
    Contents,
    /// A directory on the way to something that does not exist.
    Way,
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

impl OperandPaths {
    /// Adds a path. The set must be [sealed](Self::seal) afterwards.
    pub fn push(&mut self, path: &RelPath, layer: u32, naming: Naming) {
        let start = self.text.len();
        self.text.extend_from_slice(path.as_bytes());
        // No system call takes a path of 4 GiB.
        let len = u32::try_from(path.as_bytes().len()).unwrap_or(u32::MAX);
        self.items.push(Item { start, len, layer, naming });
    }

    /// Puts the paths in order.
    pub fn seal(&mut self) {
        let Self { text, items } = self;
        let path = |item: &Item| slice(text, *item);
        items.sort_by(|a, b| by_component(path(a), path(b)));
        items.dedup_by(|b, a| path(a) == path(b) && (a.layer, a.naming) == (b.layer, b.naming));
        items.shrink_to_fit();
    }

    /// Returns the number of paths.
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// Returns whether there is none.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Returns the numbers that paths were added with; adjacent ones differ.
    pub fn layers(&self) -> Vec<u32> {
        let mut layers: Vec<u32> = self.items.iter().map(|item| item.layer).collect();
        layers.dedup();
        layers
    }

    /// Returns some of the paths.
    pub fn paths(&self, range: Range<usize>) -> impl Iterator<Item = OperandPath<'_>> {
        let items = self.items.get(range).unwrap_or_default();
        items.iter().map(|&item| OperandPath {
            path: slice(&self.text, item),
            layer: item.layer,
            naming: item.naming,
        })
    }

    /// Returns the names, in order, that paths of this range have below a directory.
    pub fn names<'a>(&'a self, directory: &RelPath, range: Range<usize>) -> impl Iterator<Item = &'a [u8]> {
        let from = name_start(directory);
        let mut at = range.start;
        std::iter::from_fn(move || {
            while at < range.end {
                let path = slice(&self.text, *self.items.get(at)?);
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
        let items = self.items.get(range.clone()).unwrap_or_default();
        let start = range.start
            + items.partition_point(|&item| {
                let rest = slice(&self.text, item).get(from..);
                rest.is_none_or(|rest| first_name(rest).cmp(name).is_lt())
            });
        start..start + self.count_below(from, name, start..range.end)
    }

    /// Returns the number of paths at the beginning of a range that have this name there.
    fn count_below(&self, from: usize, name: &[u8], range: Range<usize>) -> usize {
        let items = self.items.get(range).unwrap_or_default();
        items.partition_point(|&item| slice(&self.text, item).get(from..).map(first_name) == Some(name))
    }

    /// Returns the place of a path.
    pub fn standing(&self, path: &[u8]) -> Standing {
        let start = self.items.partition_point(|&item| by_component(slice(&self.text, item), path).is_lt());
        let mut standing = Standing::default();
        for item in self.paths(start..self.items.len()) {
            if item.path != path {
                let below = item.path.strip_prefix(path).is_some_and(|rest| rest.first() == Some(&b'/'));
                standing.on_the_way = below || path.is_empty();
                break;
            }
            standing.named |= item.naming != Naming::Way;
            standing.on_the_way |= item.naming == Naming::Way;
            standing.contents |= item.naming == Naming::Contents;
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

fn slice(text: &[u8], item: Item) -> &[u8] {
    text.get(item.start..item.start + item.len as usize).unwrap_or_default()
}

/// Compares paths as a walk orders them: `a/b` comes before `a-c`.
fn by_component(a: &[u8], b: &[u8]) -> Ordering {
    // No name has a zero byte.
    let order = |byte: &u8| if *byte == b'/' { 0 } else { *byte };
    a.iter().map(order).cmp(b.iter().map(order))
}

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
        Ok(Self { base: base.to_vec(), path, contents })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use proptest::{collection::vec, prelude::*, sample::select};

    use super::*;

    #[test]
    fn an_operand_is_cut_where_the_operator_says() {
        for (operand, base, path, contents) in [
            ("a/b/c", ".", "a/b/c", false),
            ("./a//b", ".", "a/b", false),
            ("/x/y", "/", "x/y", false),
            ("a/./b/c", "a", "b/c", false),
            ("/a/b/./c/./d/", "/a/b", "c/d", true),
            ("/./a", "/", "a", false),
            ("../s/./a", "../s", "a", false),
            ("a/./", "a", "", true),
            (".", ".", "", true),
            ("./", ".", "", true),
            ("/", "/", "", true),
            ("a/b/.", ".", "a/b", true),
        ] {
            let form = RelativeForm::of(operand.as_bytes()).unwrap();
            let path = RelPath::parse(path.as_bytes()).unwrap();
            assert_eq!(form, RelativeForm { base: base.into(), path, contents }, "{operand}");
        }
        for operand in ["..", "a/../b", "x/./../y", "../a"] {
            assert_eq!(RelativeForm::of(operand.as_bytes()), Err(InvalidRelative::Upwards), "{operand}");
        }
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
            let mut paths = OperandPaths::default();
            for (path, contents) in &given {
                let naming = if *contents { Naming::Contents } else { Naming::Entry };
                paths.push(&RelPath::parse(path.as_bytes()).unwrap(), 0, naming);
            }
            paths.seal();
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
