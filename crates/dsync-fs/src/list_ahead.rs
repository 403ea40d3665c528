//! The directories of a destination, listed before they are compared.
//!
//! The one who compares says which directories come next, as soon as that is known; threads open and list
//! them meanwhile. What is listed ahead stays true for a run that holds the tree's lock: nothing is made,
//! replaced or removed in a directory before it is compared.
//!
//! A directory of very many names comes in parts, so that memory does not grow with it.

use std::{io, sync::Arc};

use crate::{
    component::Component,
    dir::Dir,
    metadata::Metadata,
    names::{Name, NameSorter, Names, SpooledNames, stat_in_disk_order},
    read_ahead::{Done, Job, ReadAhead},
    shared_path::SharedPath,
    spool::SpoolHome,
};

/// Lists directories in the order in which they are expected.
pub struct ListAhead {
    root: Arc<Dir>,
    ahead: ReadAhead<ListJob>,
    spools: SpoolHome,
}

/// A directory, or a part of one that has very many names.
#[derive(Debug)]
pub struct ListedPart {
    /// The open directory, the same for all its parts; none when it could not be opened.
    pub dir: Option<Arc<Dir>>,
    /// Names with what the kernel says of them, in byte order of the names. An entry that vanished
    /// between the two calls has a [`NotFound`](io::ErrorKind::NotFound) error.
    pub entries: Vec<(Component, io::Result<Metadata>)>,
    /// True for the last part; the parts of a directory follow each other.
    pub last: bool,
    /// False when not all names could be read, or one was no valid [`Component`].
    pub complete: bool,
    /// Why the directory could not be opened or listed to its end, if it could not.
    pub error: Option<io::Error>,
}

impl ListAhead {
    /// Lists directories below `root` (or `root` itself). At most `open` directories are held open ahead of
    /// the one that is wanted. Names of very large directories go to `spools`.
    pub fn new(root: Arc<Dir>, readers: usize, open: usize, spools: SpoolHome) -> Self {
        Self { root, ahead: ReadAhead::new(readers, open), spools }
    }

    /// Says which directories come next, the first of them first, before all that were expected earlier.
    pub fn expect(&mut self, paths: impl DoubleEndedIterator<Item = SharedPath>) {
        let (root, spools) = (&self.root, &self.spools);
        let job = |path| ListJob::Dir { root: Arc::clone(root), path, spools: spools.clone() };
        self.ahead.push(paths.map(job));
    }

    /// The next part of the directory that is expected next; `None` when none is expected.
    pub fn next_part(&mut self) -> Option<ListedPart> {
        self.ahead.next()
    }
}

/// What is still to be read.
enum ListJob {
    Dir { root: Arc<Dir>, path: SharedPath, spools: SpoolHome },
    Chunk { dir: Arc<Dir>, names: Arc<SpooledNames>, index: usize, ending: Option<Ending> },
}

/// How the reading of a directory's names went.
struct Ending {
    complete: bool,
    error: Option<io::Error>,
}

impl Job for ListJob {
    type Output = ListedPart;

    fn run(self) -> Done<Self> {
        match self {
            Self::Dir { root, path, spools } => match open(&root, &path) {
                Ok((dir, listed)) => names_of(dir, &listed, &spools),
                Err(error) => {
                    let (dir, entries, error) = (None, Vec::new(), Some(error));
                    done(ListedPart { dir, entries, last: true, complete: false, error })
                }
            },
            Self::Chunk { dir, names, index, ending } => {
                let (last, mut ending) = match ending {
                    Some(ending) => (true, ending),
                    None => (false, Ending { complete: true, error: None }),
                };
                let names = names.chunk(index).unwrap_or_else(|error| {
                    ending = Ending { complete: false, error: Some(io::Error::other(error)) };
                    Vec::new()
                });
                done(part(dir, names, last, ending))
            }
        }
    }
}

/// Opens a directory: the handle for all that is done in it, and one that nobody else lists.
fn open(root: &Arc<Dir>, path: &SharedPath) -> io::Result<(Arc<Dir>, Arc<Dir>)> {
    if path.is_root() {
        return Ok((Arc::clone(root), Arc::new(root.reopen()?)));
    }
    let dir = Arc::new(root.open_beneath(&path.to_path())?);
    Ok((Arc::clone(&dir), dir))
}

/// Reads a directory's names; then its entries, or leaves them to jobs of their own.
fn names_of(dir: Arc<Dir>, listed: &Dir, spools: &SpoolHome) -> Done<ListJob> {
    let mut sorter = NameSorter::new(spools);
    let mut complete = true;
    let mut kept = Ok(());
    let error = listed.for_each_name_once(&mut complete, |name, ino, _| {
        if kept.is_ok() {
            kept = sorter.push(Name { name, layer: 0, ino });
        }
    });
    let sorted = kept.and_then(|()| sorter.finish());
    let (names, error) = match sorted {
        Ok(names) => (names, error),
        Err(lost) => (Names::Few(Vec::new()), error.or_else(|| Some(io::Error::other(lost)))),
    };
    let ending = Ending { complete: complete && error.is_none(), error };
    let names = match names {
        Names::Few(names) => return done(part(dir, names, true, ending)),
        Names::Many(names) => Arc::new(names),
    };
    let mut ending = Some(ending);
    let chunk = |index| ListJob::Chunk {
        dir: Arc::clone(&dir),
        names: Arc::clone(&names),
        index,
        ending: if index + 1 == names.chunk_count() { ending.take() } else { None },
    };
    Done { output: None, weight: 0, then: (0..names.chunk_count()).map(chunk).collect() }
}

fn part(dir: Arc<Dir>, mut names: Vec<Name>, last: bool, ending: Ending) -> ListedPart {
    // Network filesystems can list a name twice when a directory changes meanwhile.
    names.dedup_by(|a, b| a.name == b.name);
    let stats = stat_in_disk_order(&names, |_| Some(&dir));
    let entries = names.into_iter().zip(stats).filter_map(|(name, stat)| Some((name.name, stat?))).collect();
    ListedPart { dir: Some(dir), entries, last, complete: ending.complete, error: ending.error }
}

fn done(part: ListedPart) -> Done<ListJob> {
    Done { weight: part.entries.len() + 1, output: Some(part), then: Vec::new() }
}
