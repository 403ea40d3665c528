//! The files of a tree by size, time and name, however many there are.
//!
//! Takes directories and files in the order of a walk, answers which of the files is most like one
//! of another place. Keys are sorted in runs of [`RUN_KEYS`]; keys and names go to two
//! [`FlatSpool`]s, so a tree of ten million files takes the memory of one run. A look-up searches
//! each run by halves and looks at [`MOST_LOOKED`] files at the most.
//!
//! The law: an answer is a guess. A file may have changed or gone since it was added, and the bytes
//! on the spools carry no sums: whoever uses an answer opens the file, and verifies its content.

use std::{cmp::Reverse, fmt, mem};

use xxhash_rust::xxh3::xxh3_64;

use crate::{
    component::{Component, RelPath},
    flat_spool::{FlatBytes, FlatSpool},
    metadata::Timestamp,
    spool::{SpoolError, SpoolHome},
};

/// An index that collects files.
#[derive(Debug)]
pub struct FileIndexBuilder {
    keys: FlatSpool,
    names: FlatSpool,
    run: Vec<Key>,
}

/// Files by size, time and name.
pub struct FileIndex {
    keys: FlatBytes,
    names: FlatBytes,
}

/// The place of a directory or a file in an index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IndexedAt(u64);

/// The file that another one is looked for.
#[derive(Debug, Clone, Copy)]
pub struct Sought<'a> {
    /// Size in bytes.
    pub size: u64,
    /// Modification time.
    pub mtime: Timestamp,
    /// Its own name.
    pub name: &'a Component,
    /// The directory that it is to be in.
    pub directory: &'a RelPath,
    /// Whether a file of another time is an answer, if size and name are equal.
    pub of_any_time: bool,
}

type Key = [u8; KEY_BYTES];

impl FileIndexBuilder {
    /// Makes an empty index that grows into `home`.
    pub fn new(home: &SpoolHome) -> Self {
        Self { keys: FlatSpool::new(home), names: FlatSpool::new(home), run: Vec::new() }
    }

    /// Adds a tree; `number` tells it from others of the same index, and is below 2^16.
    pub fn tree(&self, number: u16) -> IndexedAt {
        IndexedAt(FIRST_TREE + u64::from(number))
    }

    /// Adds a directory of a tree or of another directory.
    ///
    /// # Errors
    /// [`SpoolError`].
    pub fn directory(&mut self, parent: IndexedAt, name: &Component) -> Result<IndexedAt, SpoolError> {
        self.entry(parent, name)
    }

    /// Adds a file of a directory.
    ///
    /// # Errors
    /// [`SpoolError`].
    pub fn file(
        &mut self,
        directory: IndexedAt,
        name: &Component,
        size: u64,
        mtime: Timestamp,
    ) -> Result<(), SpoolError> {
        let at = self.entry(directory, name)?;
        let mut key = [0; KEY_BYTES];
        key[..OF_NAME].copy_from_slice(&prefix(size, mtime, name));
        key[OF_NAME..].copy_from_slice(&at.0.to_be_bytes());
        self.run.push(key);
        if self.run.len() >= RUN_KEYS { self.end_run() } else { Ok(()) }
    }

    /// Ends collecting.
    ///
    /// # Errors
    /// [`SpoolError`].
    pub fn seal(mut self) -> Result<FileIndex, SpoolError> {
        self.end_run()?;
        Ok(FileIndex { keys: self.keys.seal()?, names: self.names.seal()? })
    }

    fn entry(&mut self, parent: IndexedAt, name: &Component) -> Result<IndexedAt, SpoolError> {
        let at = IndexedAt(self.names.len());
        let bytes = name.as_bytes();
        self.names.push(&parent.0.to_le_bytes())?;
        // A name has at most 255 bytes.
        self.names.push(&[u8::try_from(bytes.len()).unwrap_or(u8::MAX)])?;
        self.names.push(bytes)?;
        Ok(at)
    }

    fn end_run(&mut self) -> Result<(), SpoolError> {
        let mut run = mem::take(&mut self.run);
        run.sort_unstable();
        run.iter().try_for_each(|key| self.keys.push(key))?;
        run.clear();
        self.run = run;
        Ok(())
    }
}

impl FileIndex {
    /// Returns the file that is most like the one sought: one of its size and time and name, else
    /// one of its size and time, else, if that is allowed, one of its size and name. Of several it
    /// is one whose directories have the same names from the end on.
    pub fn find(&self, sought: &Sought<'_>) -> Option<IndexedAt> {
        let prefix = prefix(sought.size, sought.mtime, sought.name);
        let named = |at| self.name(at) == Some(sought.name.as_bytes());
        let mut left = MOST_LOOKED;

        self.best(&prefix, &mut left, sought, &named)
            .or_else(|| self.best(&prefix[..OF_TIME], &mut left, sought, &|_| true))
            .or_else(|| {
                let of_any_time = sought.of_any_time.then_some(&prefix[..OF_SIZE]);
                of_any_time.and_then(|prefix| self.best(prefix, &mut left, sought, &named))
            })
    }

    /// Returns the number of the tree that a file or directory is in, and its path there; `None` if
    /// the bytes on the disk are not what was written.
    pub fn path(&self, at: IndexedAt) -> Option<(u16, RelPath)> {
        let mut names = Vec::new();
        let mut next = at;
        let tree = loop {
            if let Some(tree) = next.0.checked_sub(FIRST_TREE) {
                break u16::try_from(tree).ok()?;
            }
            let (parent, name) = self.entry(next)?;
            // A directory is added before what is in it, so the way ends.
            if parent.0 < FIRST_TREE && parent.0 >= next.0 {
                return None;
            }
            names.push(Component::new(name).ok()?);
            next = parent;
        };

        let mut path = RelPath::root();
        names.iter().rev().for_each(|name| path.push(name));
        Some((tree, path))
    }

    /// Returns the best file among those whose keys begin with `prefix`.
    fn best(
        &self,
        prefix: &[u8],
        left: &mut usize,
        sought: &Sought<'_>,
        is_it: &dyn Fn(IndexedAt) -> bool,
    ) -> Option<IndexedAt> {
        let (keys, _) = self.keys.as_chunks::<KEY_BYTES>();
        let mut best: Option<(usize, Reverse<u64>)> = None;
        for run in keys.chunks(RUN_KEYS) {
            let first = run.partition_point(|key| &key[..prefix.len()] < prefix);
            for key in run.iter().skip(first).take_while(|key| key.starts_with(prefix)) {
                *left = left.checked_sub(1).unwrap_or_default();
                let at = of_key(key);
                if is_it(at) {
                    best = best.max(Some((self.alike(at, sought.directory), Reverse(at.0))));
                }
                if *left == 0 {
                    break;
                }
            }
        }
        best.map(|(_, Reverse(at))| IndexedAt(at))
    }

    /// Returns how many names of a file's directories, from the last one on, are those of
    /// `directory`.
    fn alike(&self, file: IndexedAt, directory: &RelPath) -> usize {
        let mut at = self.entry(file).map(|(parent, _)| parent);
        let names = directory.as_bytes().rsplit(|&byte| byte == b'/').take(MOST_ALIKE);
        let is_same = |name: &&[u8]| {
            let here = at.and_then(|directory| self.entry(directory));
            at = here.map(|(parent, _)| parent);
            here.is_some_and(|(_, own)| own == *name)
        };
        names.take_while(is_same).count()
    }

    fn name(&self, at: IndexedAt) -> Option<&[u8]> {
        self.entry(at).map(|(_, name)| name)
    }

    /// Returns the parent and the name of an entry.
    fn entry(&self, at: IndexedAt) -> Option<(IndexedAt, &[u8])> {
        let entry = self.names.get(usize::try_from(at.0).ok()?..)?;
        let (parent, rest) = entry.split_first_chunk()?;
        let (len, rest) = rest.split_first()?;
        Some((IndexedAt(u64::from_le_bytes(*parent)), rest.get(..usize::from(*len))?))
    }
}

impl fmt::Debug for FileIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileIndex").field("files", &(self.keys.len() / KEY_BYTES)).finish_non_exhaustive()
    }
}

/// Returns a key without the place.
fn prefix(size: u64, mtime: Timestamp, name: &Component) -> [u8; OF_NAME] {
    let mut prefix = [0; OF_NAME];
    let hash = xxh3_64(name.as_bytes()).to_be_bytes();
    prefix[..OF_SIZE].copy_from_slice(&size.to_be_bytes());
    prefix[OF_SIZE..16].copy_from_slice(&mtime.seconds.to_be_bytes());
    prefix[16..OF_TIME].copy_from_slice(&mtime.nanoseconds.to_be_bytes());
    prefix[OF_TIME..].copy_from_slice(&hash[..OF_NAME - OF_TIME]);
    prefix
}

fn of_key(key: &Key) -> IndexedAt {
    let at = key.last_chunk().copied().unwrap_or_default();
    IndexedAt(u64::from_be_bytes(at))
}

/// Bytes of a key: size, seconds, nanoseconds, a part of the name's hash, place. Files of one size
/// and time are neighbours, whatever order the numbers themselves have.
const KEY_BYTES: usize = 32;
const OF_SIZE: usize = 8;
const OF_TIME: usize = 20;
const OF_NAME: usize = 24;
/// Keys that are sorted together: 2 MiB.
const RUN_KEYS: usize = 1 << 16;
/// Files that one look-up looks at: many trees have thousands of one size and time.
const MOST_LOOKED: usize = 1024;
/// Directories of a path that are compared.
const MOST_ALIKE: usize = 64;
/// The place of the first tree, beyond all places on a spool.
const FIRST_TREE: u64 = u64::MAX - 0xffff;

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn component(name: &str) -> Component {
        Component::new(name.as_bytes()).unwrap()
    }

    fn time(seconds: i64, nanoseconds: u32) -> Timestamp {
        Timestamp { seconds, nanoseconds }
    }

    fn path(path: &str) -> RelPath {
        RelPath::parse(path.as_bytes()).unwrap()
    }

    type File = (u16, String, u64, Timestamp);

    /// Makes an index of files; every file's directories are added anew.
    fn index(files: &[File]) -> FileIndex {
        let mut builder = FileIndexBuilder::new(&SpoolHome::default());
        for (tree, path, size, mtime) in files {
            let mut names = path.split('/').collect::<Vec<_>>();
            let name = names.pop().unwrap();
            let mut at = builder.tree(*tree);
            for name in names {
                at = builder.directory(at, &component(name)).unwrap();
            }
            builder.file(at, &component(name), *size, *mtime).unwrap();
        }
        builder.seal().unwrap()
    }

    /// Returns the path of the answer, with its tree.
    fn found(index: &FileIndex, new: &str, size: u64, mtime: Timestamp, any: bool) -> Option<String> {
        let new = path(new);
        let name = new.file_name().unwrap();
        let sought = Sought {
            size,
            mtime,
            name: &name,
            directory: &new.parent().unwrap_or_default(),
            of_any_time: any,
        };
        let (tree, path) = index.path(index.find(&sought)?)?;
        Some(format!("{tree}:{}", String::from_utf8_lossy(path.as_bytes())))
    }

    #[test]
    fn an_equal_name_counts_more_than_none_and_equal_directories_more_than_others() {
        let files = [
            (0, "old/a".to_owned(), 5, time(9, 1)),
            (0, "old/d/b".to_owned(), 5, time(9, 1)),
            (0, "old/e/b".to_owned(), 5, time(9, 1)),
            (1, "x".to_owned(), 7, time(-1, 0)),
        ];
        let index = index(&files);
        let at = |new, size, mtime, any| found(&index, new, size, mtime, any);
        assert_eq!(at("new/d/b", 5, time(9, 1), false).as_deref(), Some("0:old/d/b"));
        assert_eq!(at("new/e/b", 5, time(9, 1), false).as_deref(), Some("0:old/e/b"));
        assert_eq!(at("c", 5, time(9, 1), false).as_deref(), Some("0:old/a"));
        assert_eq!(at("new/d/b", 5, time(9, 2), false), None);
        assert_eq!(at("new/d/b", 5, time(9, 2), true).as_deref(), Some("0:old/d/b"));
        assert_eq!(at("new/d/other", 5, time(9, 2), true), None);
        assert_eq!(at("new/d/b", 6, time(9, 1), true), None);
        assert_eq!(at("y", 7, time(-1, 0), false).as_deref(), Some("1:x"));
    }

    #[test]
    fn many_files_of_several_runs_are_all_found() {
        let files = 3 * RUN_KEYS as u64 / 2;
        let mut builder = FileIndexBuilder::new(&SpoolHome::default());
        let root = builder.tree(0);
        let dir = builder.directory(root, &component("d")).unwrap();
        for number in 0..files {
            builder.file(dir, &component(&format!("f{number}")), number % 1000, time(5, 0)).unwrap();
        }
        let index = builder.seal().unwrap();
        for number in [0, 1, 999, RUN_KEYS as u64, files - 1] {
            let name = format!("f{number}");
            let answer = found(&index, &format!("new/{name}"), number % 1000, time(5, 0), false);
            assert_eq!(answer, Some(format!("0:d/{name}")));
        }
        assert_eq!(found(&index, "f", 1000, time(5, 0), true), None);
    }

    #[test]
    fn damaged_bytes_end_in_no_path_or_a_valid_one() {
        let index = index(&[(0, "a/b/c".to_owned(), 1, time(1, 1))]);
        for byte in 0..index.names.len() {
            for value in [0, 1, 0x2f, 0xff] {
                let mut names = index.names.to_vec();
                names[byte] = value;
                let damaged = FileIndex {
                    keys: FlatBytes::Memory(index.keys.to_vec()),
                    names: FlatBytes::Memory(names),
                };
                let _ = found(&damaged, "x/b/c", 1, time(1, 1), true);
            }
        }
        assert_eq!(index.path(IndexedAt(1 << 40)), None);
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(300) })]

        /// Law: the answer is one of the files, of the best class that any of them is in.
        #[test]
        fn the_answer_is_of_the_best_class(
            files in prop::collection::vec(("[ab]/[ab]/[abc]", 0_u64..3, 0_i64..2), 0..40),
            new in "[cd]/[ab]/[abc]",
            size in 0_u64..3,
            seconds in 0_i64..2,
            any in any::<bool>(),
        ) {
            let files: Vec<File> =
                files.into_iter().map(|(path, size, seconds)| (0, path, size, time(seconds, 0))).collect();
            let name = new.rsplit('/').next().unwrap();
            let class = |(_, path, of_size, of_time): &File| {
                let (named, timed) = (path.ends_with(name), of_time.seconds == seconds);
                match (*of_size == size, timed, named) {
                    (true, true, true) => 3,
                    (true, true, false) => 2,
                    (true, false, true) if any => 1,
                    _ => 0,
                }
            };
            let best = files.iter().map(class).max().unwrap_or(0);
            let answer = found(&index(&files), &new, size, time(seconds, 0), any);
            let classes = |answer: &String| {
                let path = answer.strip_prefix("0:").unwrap();
                files.iter().filter(|file| file.1 == path).map(class).max().unwrap()
            };
            prop_assert_eq!(answer.as_ref().map_or(0, classes), best);
        }
    }
}
