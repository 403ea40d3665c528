//! Walks one or several operands as one tree, directory by directory.
//!
//! Takes the operator's source operands and yields [`WalkedDir`]s in depth-first order: a
//! directory's own entry is always in an earlier listing. Entries are sorted by the bytes of their
//! names, the one order that both ends of a run share.
//!
//! Operands are merged as rsync merges them. If two bring the same name, the first wins;
//! directories of one name are joined and win over non-directories. Filters apply to named operands
//! as to everything else.
//!
//! Laws: the walk never leaves an operand: below it a link is followed only if it is one of
//! [`WalkOptions::follow`] (module `following`). Whatever cannot be read
//! is a [`WalkProblem`], never silence. An incomplete [`WalkedDir`] is marked as such. Any number
//! of read-ahead threads yields the same as none. Memory is bounded by the names of the pending
//! directories of the open levels and by the read-ahead, not by the size of a directory;
//! descriptors by a small constant and one per distinct operand directory.

mod dir_ref;
mod following;
mod prune;
mod reading;

use std::{
    collections::HashMap,
    fmt, io,
    path::{Path, PathBuf},
    sync::Arc,
};

pub use self::{
    dir_ref::DirRef,
    following::{FollowLinks, leads_out},
};
use self::{
    dir_ref::{Layer, Shared},
    reading::{Child, Root, WalkJob},
};
use crate::{
    component::{Component, InvalidComponent, RelPath},
    dir::{Dir, Target},
    extended::{Extended, ExtendedScope},
    filter::FilterSet,
    metadata::{Kind, Metadata},
    operand::OperandForm,
    read_ahead::ReadAhead,
    spool::SpoolHome,
};

/// Options of a walk.
#[derive(Debug, Clone, Default)]
pub struct WalkOptions {
    /// Descend into directories.
    pub recursive: bool,
    /// List the contents of operands that stand for them, and copy directories without descending.
    pub dirs: bool,
    /// Leave out directories that hold nothing but directories.
    pub prune: bool,
    /// The links that are followed: what they lead to is walked in their place.
    pub follow: FollowLinks,
    /// A directory that is not entered through a link: the destination of a local run, which would
    /// otherwise grow while it is listed.
    pub barred: Option<PathBuf>,
    /// Do not descend into directories on another filesystem than their operand.
    pub one_file_system: bool,
    /// The entries to leave out.
    pub filter: FilterSet,
    /// Number of threads that read directories ahead; the consumer reads as well.
    pub readers: usize,
    /// Read files without changing their access times, where that is allowed.
    pub open_noatime: bool,
    /// Treat entries as what `user.rsync.*` says they are: see `fake_super`.
    pub fake_super: bool,
    /// The place for the names of very large directories.
    pub spools: SpoolHome,
    /// The directory where the operands start and that confines them; none: the process's own.
    pub floor: Option<Arc<Dir>>,
}

impl WalkOptions {
    /// Returns whether directories are copied, with or without their contents.
    fn takes_directories(&self) -> bool {
        self.recursive || self.dirs
    }

    /// Opens a directory that an operand names.
    fn open(&self, path: &Path) -> io::Result<Dir> {
        let opened = match &self.floor {
            Some(floor) => floor.open_operand_above(path),
            None => Dir::open_operand(path),
        };
        Ok(opened?.with_fake_super(self.fake_super))
    }
}

/// Returns the useful number of [`readers`](WalkOptions::readers) of a machine: one per processor,
/// so that a cold disk gets more than one request at a time, but not so many that a spinning one
/// suffers.
pub fn default_readers() -> usize {
    std::thread::available_parallelism().map_or(2, |processors| processors.get().clamp(2, 8))
}

/// The reason why a walk could not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WalkError {
    /// An operand is not a valid path.
    #[error("operand {index} cannot be a path")]
    InvalidOperand {
        /// Position of the operand, 0-based.
        index: usize,
        /// The reason.
        #[source]
        source: InvalidComponent,
    },
    /// There are more operands than a walk supports.
    #[error("{count} operands are too many")]
    TooManyOperands {
        /// Number of operands.
        count: usize,
    },
}

/// An operand that could not be opened; the others are walked.
#[derive(Debug)]
pub struct OperandProblem {
    /// Position of the operand, 0-based.
    pub index: usize,
    /// The name that is missing from its directory, which exists.
    pub missing: Option<Component>,
    /// The reason, e.g. [`NotFound`](io::ErrorKind::NotFound).
    pub error: io::Error,
}

impl OperandProblem {
    /// Returns whether nothing has that name.
    pub fn is_missing(&self) -> bool {
        is_missing(&self.error)
    }
}

fn is_missing(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound
}

/// A walk in progress: an iterator over [`WalkedDir`]s, the root first.
pub struct Walk {
    root: Option<(Metadata, Arc<Dir>)>,
    named_count: u32,
    single_file: bool,
    problems: Vec<OperandProblem>,
    ahead: ReadAhead<WalkJob>,
    /// Directories found in earlier parts of the current directory; they are walked after its last
    /// part.
    children: Vec<Child>,
    /// Whether no part of the current directory had a gap so far.
    complete: bool,
}

/// One directory, or a part of one that has very many names.
#[derive(Debug)]
pub struct WalkedDir {
    /// Path below the transfer's root; empty for the root.
    pub path: RelPath,
    /// Reference for opening its entries later.
    pub dir: DirRef,
    /// Its entries, without those left out, in byte order of the names.
    pub entries: Vec<WalkedEntry>,
    /// Whether this is the last part; the parts of a directory follow each other.
    pub last: bool,
    /// Of the last part: whether `entries` held everything that exists and was not left out. Only
    /// then does the absence of a name mean anything. Also false, without a problem, if the listing
    /// is not meant to be whole: the root if no operand stands for its contents, any directory of a
    /// walk that is not recursive, and another filesystem's root under `one_file_system`.
    pub complete: bool,
    /// Entries that could not be read.
    pub problems: Vec<WalkProblem>,
}

/// One entry of a walked directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WalkedEntry {
    /// Name of the entry.
    pub name: Component,
    /// Attributes of the entry.
    pub metadata: Metadata,
    /// The text of a symbolic link.
    pub link_target: Option<Vec<u8>>,
    /// The identity of the entry if the walk followed a link to it; its attributes are that
    /// entry's.
    pub followed: Option<Target>,
}

/// An entry that could not be read.
#[derive(Debug)]
pub struct WalkProblem {
    /// Path below the transfer's root.
    pub path: RelPath,
    /// The operation that failed.
    pub operation: WalkOperation,
    /// The reason; [`NotFound`](io::ErrorKind::NotFound) means that it vanished after it was
    /// listed.
    pub error: io::Error,
}

/// The operation during which a walk met a problem.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum WalkOperation {
    /// Opening or listing a directory.
    ReadDirectory,
    /// Reading attributes.
    Stat,
    /// Reading a symbolic link.
    ReadLink,
    /// Finding what a symbolic link leads to.
    FollowLink,
}

impl Walk {
    /// Opens the operands. Nothing is listed yet.
    ///
    /// # Errors
    /// [`WalkError`] for operands that are not valid paths. An operand that is missing or cannot be
    /// opened is an [`OperandProblem`] instead: the others are walked, and the caller decides.
    pub fn open(operands: &[&Path], options: WalkOptions) -> Result<Self, WalkError> {
        if u32::try_from(operands.len()).is_err() {
            return Err(WalkError::TooManyOperands { count: operands.len() });
        }

        let mut opening = Opening::default();
        for (index, operand) in operands.iter().enumerate() {
            let form =
                OperandForm::of(operand).map_err(|source| WalkError::InvalidOperand { index, source })?;
            let opened = match form {
                OperandForm::Contents(path) => {
                    opening.contents(&path, &options).map_err(|error| (None, error))
                }
                OperandForm::Entry { parent, name } => {
                    opening.entry(&parent, name.clone(), &options).map_err(|error| {
                        let missing = opening.parents.contains_key(&parent) && is_missing(&error);
                        (missing.then_some(name), error)
                    })
                }
            };
            if let Err((missing, error)) = opened {
                opening.problems.push(OperandProblem { index, missing, error });
            }
        }

        let single_file =
            operands.len() == 1 && matches!(opening.named.as_slice(), [only] if only.kind != Kind::Dir);
        let mut names: Vec<_> = opening.named.iter().map(|named| &named.name).collect();
        names.sort_unstable();
        names.dedup();

        let named_count = u32::try_from(names.len()).unwrap_or(u32::MAX);
        let complete = options.takes_directories() && opening.root.is_some() && opening.problems.is_empty();
        let mut ahead = ReadAhead::new(options.readers, MAX_READY);
        let shared = Arc::new(Shared::new(opening.layers, options));
        let handle = DirRef::root(shared, opening.contents.into());
        let named = opening.named.into_iter().map(|named| (named.name, named.layer)).collect();
        ahead.push(std::iter::once(WalkJob::Root(Root { handle, named, complete })));
        Ok(Self {
            root: opening.root,
            named_count,
            single_file,
            problems: opening.problems,
            ahead,
            children: Vec::new(),
            complete: true,
        })
    }

    /// Returns the attributes of the transfer's root: those of the first operand that stands for
    /// its contents. Returns `None` if none does: the root is then only the place where named
    /// entries meet.
    pub fn root(&self) -> Option<&Metadata> {
        self.root.as_ref().map(|(metadata, _)| metadata)
    }

    /// Returns the lists and attributes of the transfer's root; `None` if [`root`](Self::root) is
    /// `None`.
    ///
    /// # Errors
    /// As [`Dir::own_source_extended`].
    pub fn root_extended(&self, scope: ExtendedScope) -> io::Result<Option<Extended>> {
        self.root.as_ref().map(|(_, dir)| dir.own_source_extended(scope)).transpose()
    }

    /// Returns the number of entries of the root that operands themselves name.
    pub fn named(&self) -> u32 {
        self.named_count
    }

    /// Returns whether there is one operand and it is not a directory.
    pub fn single_file(&self) -> bool {
        self.single_file
    }

    /// Returns the operands that could not be opened.
    pub fn operand_problems(&self) -> &[OperandProblem] {
        &self.problems
    }
}

impl Iterator for Walk {
    type Item = WalkedDir;

    fn next(&mut self) -> Option<WalkedDir> {
        let part = self.ahead.next()?;
        let mut walked = part.walked;
        self.children.extend(part.children);
        self.complete &= walked.complete;
        walked.complete = self.complete;
        if walked.last {
            self.complete = true;
            let children = std::mem::take(&mut self.children);
            self.ahead.push(children.into_iter().map(WalkJob::Child));
        }
        Some(walked)
    }
}

impl fmt::Debug for Walk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Walk")
            .field("root", &self.root)
            .field("named", &self.named_count)
            .finish_non_exhaustive()
    }
}

/// Operands being opened.
#[derive(Default)]
struct Opening {
    layers: Vec<Layer>,
    /// Layers that stand for the root's contents, in the order of the operands.
    contents: Vec<u32>,
    named: Vec<Named>,
    root: Option<(Metadata, Arc<Dir>)>,
    problems: Vec<OperandProblem>,
    /// Handles of parent directories: operands of one directory, as a shell's `*` makes them, share
    /// one.
    parents: HashMap<PathBuf, Arc<Dir>>,
}

/// An entry that an operand names.
struct Named {
    name: Component,
    layer: u32,
    kind: Kind,
}

impl Opening {
    fn contents(&mut self, path: &Path, options: &WalkOptions) -> io::Result<()> {
        let base = Arc::new(options.open(path)?);
        let metadata = base.metadata()?;
        self.root.get_or_insert_with(|| (metadata, Arc::clone(&base)));
        if options.takes_directories() {
            let layer = self.layer(base, metadata.dev);
            self.contents.push(layer);
        }
        Ok(())
    }

    fn entry(&mut self, parent: &Path, name: Component, options: &WalkOptions) -> io::Result<()> {
        let base = match self.parents.get(parent) {
            Some(base) => Arc::clone(base),
            None => {
                let base = Arc::new(options.open(parent)?);
                self.parents.insert(parent.to_path_buf(), Arc::clone(&base));
                base
            }
        };
        let link = base.stat(&name)?;
        let target = options.follow.target(&base, || 0, &name, &link).map_err(|(_, error)| error)?;
        let metadata = target.unwrap_or(link);
        if options.filter.excludes(name.as_bytes(), metadata.kind == Kind::Dir) {
            return Ok(());
        }
        let layer = self.layer(base, metadata.dev);
        self.named.push(Named { name, layer, kind: metadata.kind });
        Ok(())
    }

    /// Adds a layer. There are at most as many as operands, whose number was checked.
    fn layer(&mut self, base: Arc<Dir>, device: u64) -> u32 {
        let id = u32::try_from(self.layers.len()).unwrap_or(u32::MAX);
        self.layers.push(Layer { base, device });
        id
    }
}

/// Most directories that are read ahead: enough that a reader seldom sleeps.
const MAX_READY: usize = 256;
