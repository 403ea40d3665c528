//! Lists the directories of a destination before they are compared.
//!
//! The consumer announces the next directories as soon as they are known, and threads open and list
//! them meanwhile. A listing made ahead stays true for a run that holds the tree's lock: nothing is
//! made, replaced or removed in a directory before it is compared. On a slow disk what is below the listed
//! directories is read too ([`foresight`](crate::foresight)).
//!
//! A directory of very many names arrives in parts, so that memory does not grow with it.

use std::{io, sync::Arc};

use rustix::io::Errno;

use crate::{
    component::Component,
    dir::Dir,
    dir::stat_in_disk_order,
    disk_wait::DiskWait,
    foresight::Foresight,
    listed_name::Name,
    metadata::Metadata,
    names::{NameSorter, Names, SpooledNames},
    read_ahead::{Done, Job, ReadAhead},
    shared_path::SharedPath,
    spool::SpoolHome,
};

/// Lists directories in the order in which they are expected.
pub struct ListAhead {
    root: Arc<Dir>,
    ahead: ReadAhead<ListJob>,
    spools: SpoolHome,
    foresight: Option<Arc<Foresight>>,
}

/// A directory, or a part of one that has very many names.
#[derive(Debug)]
pub struct ListedPart {
    /// The open directory, shared by all its parts; none if it could not be opened.
    pub dir: Option<Arc<Dir>>,
    /// Names with their attributes, in byte order of the names. An entry that vanished between the
    /// two calls has a [`NotFound`](io::ErrorKind::NotFound) error.
    pub entries: Vec<(Component, io::Result<Metadata>)>,
    /// Whether this is the last part; the parts of a directory follow each other.
    pub last: bool,
    /// Whether all names could be read and were valid [`Component`]s.
    pub complete: bool,
    /// The error that kept the directory from being opened or listed to its end, if any.
    pub error: Option<io::Error>,
}

impl ListAhead {
    /// Lists directories below `root` (or `root` itself). Holds at most `open` directories open
    /// ahead of the consumer. Names of very large directories go to `spools`.
    pub fn new(root: Arc<Dir>, readers: usize, open: usize, spools: SpoolHome) -> Self {
        let foresight = (readers > 0).then(|| Arc::new(Foresight::new(Arc::clone(&root), spools.clone())));
        Self { root, ahead: ReadAhead::new(readers, open), spools, foresight }
    }

    /// Announces the next directories, the first of them first, before all that were announced
    /// earlier.
    pub fn expect(&mut self, paths: impl DoubleEndedIterator<Item = SharedPath>) {
        let job = |path| ListJob::Dir {
            root: Arc::clone(&self.root),
            path,
            spools: self.spools.clone(),
            foresight: self.foresight.clone(),
        };
        self.ahead.push(paths.map(job));
    }

    /// Returns the next part of the next announced directory; `None` if none is left.
    pub fn next_part(&mut self) -> Option<ListedPart> {
        let (path, part) = self.ahead.next()?;
        if let (Some(path), Some(foresight)) = (path, &self.foresight) {
            foresight.passed(&path);
        }
        Some(part)
    }
}

/// A directory, or a part of one, still to be read.
enum ListJob {
    Dir { root: Arc<Dir>, path: SharedPath, spools: SpoolHome, foresight: Option<Arc<Foresight>> },
    Chunk { dir: Arc<Dir>, names: Arc<SpooledNames>, index: usize, ending: Option<Ending> },
}

/// The end of reading a directory's names.
struct Ending {
    complete: bool,
    error: Option<io::Error>,
}

impl Job for ListJob {
    /// A part, with the path of its directory if that is not large.
    type Output = (Option<SharedPath>, ListedPart);

    fn run(self) -> Done<Self> {
        match self {
            Self::Dir { root, path, spools, foresight } => {
                let wait = DiskWait::begin();
                let Listed { output, weight, then } = list(&root, &path, &spools);
                if let (Some(part), Some(foresight)) = (&output, foresight) {
                    foresight.listed(&path, part, wait.waited(part.entries.len()));
                }
                Done { output: output.map(|part| (Some(path), part)), weight, then }
            }
            Self::Chunk { dir, names, index, ending } => {
                let (last, mut ending) = match ending {
                    Some(ending) => (true, ending),
                    None => (false, Ending { complete: true, error: None }),
                };
                let names = names.chunk(index).unwrap_or_else(|error| {
                    ending = Ending { complete: false, error: Some(io::Error::other(error)) };
                    Vec::new()
                });
                let part = part(dir, names, last, ending);
                Done { weight: weight(&part), output: Some((None, part)), then: Vec::new() }
            }
        }
    }
}

/// The outcome of listing a directory: one part, or jobs for its parts.
pub(crate) struct Listed {
    pub(crate) output: Option<ListedPart>,
    weight: usize,
    then: Vec<ListJob>,
}

/// Lists a directory.
pub(crate) fn list(root: &Arc<Dir>, path: &SharedPath, spools: &SpoolHome) -> Listed {
    match open(root, path) {
        Ok((dir, listed)) => names_of(dir, &listed, spools),
        Err(error) => {
            let (dir, entries, error) = (None, Vec::new(), Some(error));
            done(ListedPart { dir, entries, last: true, complete: false, error })
        }
    }
}

/// Opens a directory: one handle for all work in it, and one that nobody else lists.
fn open(root: &Arc<Dir>, path: &SharedPath) -> io::Result<(Arc<Dir>, Arc<Dir>)> {
    if path.is_root() {
        return Ok((Arc::clone(root), Arc::new(root.reopen()?)));
    }
    let dir = Arc::new(root.open_beneath(&path.to_path())?);
    Ok((Arc::clone(&dir), dir))
}

/// Reads a directory's names. Then reads its entries, or leaves them to jobs of their own.
fn names_of(dir: Arc<Dir>, listed: &Dir, spools: &SpoolHome) -> Listed {
    let mut sorter = NameSorter::new(spools);
    let mut complete = true;
    let mut kept = Ok(());
    let error = listed.for_each_name_once(&mut complete, |name, ino, _| {
        if kept.is_ok() {
            kept = sorter.push(Name { name, layer: 0, ino });
        }
    });
    // Some filesystems in user space have names that are longer than the system's calls take.
    let error = error.or_else(|| (!complete).then(|| Errno::NAMETOOLONG.into()));
    let sorted = kept.and_then(|()| sorter.finish());
    let (names, error) = match sorted {
        Ok(names) => (names, error),
        Err(lost) => (Names::Few(Vec::new()), error.or_else(|| Some(io::Error::other(lost)))),
    };

    let ending = Ending { complete: error.is_none(), error };
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

    Listed { output: None, weight: 0, then: (0..names.chunk_count()).map(chunk).collect() }
}

fn part(dir: Arc<Dir>, mut names: Vec<Name>, last: bool, ending: Ending) -> ListedPart {
    // Network filesystems can list a name twice when a directory changes meanwhile.
    names.dedup_by(|a, b| a.name == b.name);
    let stats = stat_in_disk_order(&names, |_| Some(&dir));
    let entries = names.into_iter().zip(stats).filter_map(|(name, stat)| Some((name.name, stat?))).collect();
    ListedPart { dir: Some(dir), entries, last, complete: ending.complete, error: ending.error }
}

fn done(part: ListedPart) -> Listed {
    Listed { weight: weight(&part), output: Some(part), then: Vec::new() }
}

fn weight(part: &ListedPart) -> usize {
    part.entries.len() + 1
}
