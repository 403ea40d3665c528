//! One or several operands read as one tree, directory by directory.
//!
//! Takes the operator's source operands and gives [`WalkedDir`]s in depth-first order: a directory's
//! own entry is always in a listing that came before. Entries are sorted by the bytes of their names,
//! which is the one order that both ends of a run share.
//!
//! Operands are merged as rsync merges them: where two bring the same name the first wins,
//! directories of one name are joined and beat what is no directory. Filters apply to named operands
//! as to everything else.
//!
//! Laws: the walk never leaves an operand (no link is followed below it); what cannot be read is a
//! [`WalkProblem`], never silence; a [`WalkedDir`] that does not hold all there is says so; any number of
//! threads that read ahead gives what none gives. Memory is bounded by the names of the pending
//! directories of the open levels and by what is read ahead, not by the size of a directory; descriptors
//! by a small constant and one per distinct operand directory.

mod dir_ref;
mod reading;

use std::{
    collections::HashMap,
    fmt, io,
    path::{Path, PathBuf},
    sync::Arc,
};

pub use self::dir_ref::DirRef;
use self::{
    dir_ref::{Layer, Shared},
    reading::{Child, Root, WalkJob},
};
use crate::{
    component::{Component, InvalidComponent, RelPath},
    dir::Dir,
    extended::{Extended, ExtendedScope},
    filter::FilterSet,
    metadata::{Kind, Metadata},
    operand::OperandForm,
    read_ahead::ReadAhead,
    spool::SpoolHome,
};

/// How a tree is walked.
#[derive(Debug, Clone, Default)]
pub struct WalkOptions {
    /// Descend into directories.
    pub recursive: bool,
    /// Do not descend into directories on another filesystem than their operand.
    pub one_file_system: bool,
    /// What is left out.
    pub filter: FilterSet,
    /// Threads that read directories before they are wanted; the one who wants them reads as well.
    pub readers: usize,
    /// Read files without changing when they were last read, where that is allowed.
    pub open_noatime: bool,
    /// Take what `user.rsync.*` says of entries for what they are: see [`crate::fake_super`].
    pub fake_super: bool,
    /// Where the names of very large directories go.
    pub spools: SpoolHome,
    /// Where the operands start, which is a directory that confines them; none: where the process does.
    pub floor: Option<Arc<Dir>>,
}

impl WalkOptions {
    /// Opens a directory that an operand names.
    fn open(&self, path: &Path) -> io::Result<Dir> {
        let opened = match &self.floor {
            Some(floor) => floor.open_operand_above(path),
            None => Dir::open_operand(path),
        };
        Ok(opened?.with_fake_super(self.fake_super))
    }
}

/// The number of [`readers`](WalkOptions::readers) that a machine has a use for: one for each processor, so
/// that they find more than one request for a cold disk, and not so many that a spinning one suffers.
pub fn default_readers() -> usize {
    std::thread::available_parallelism().map_or(2, |processors| processors.get().clamp(2, 8))
}

/// Why a walk could not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WalkError {
    /// An operand cannot be a path.
    #[error("operand {index} cannot be a path")]
    InvalidOperand {
        /// Its position, 0-based.
        index: usize,
        /// Why.
        #[source]
        source: InvalidComponent,
    },
    /// There are more operands than a walk takes.
    #[error("{count} operands are too many")]
    TooManyOperands {
        /// Their number.
        count: usize,
    },
}

/// An operand that could not be opened; the others are walked.
#[derive(Debug)]
pub struct OperandProblem {
    /// Its position, 0-based.
    pub index: usize,
    /// The name that its directory, which exists, does not have.
    pub missing: Option<Component>,
    /// Why, e.g. [`NotFound`](io::ErrorKind::NotFound).
    pub error: io::Error,
}

impl OperandProblem {
    /// True when there is nothing of that name.
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
    /// Directories of the parts that have come of the current directory; they are walked after its last.
    children: Vec<Child>,
    /// True while no part of the current directory had a gap.
    complete: bool,
}

/// One directory, or a part of one that has very many names.
#[derive(Debug)]
pub struct WalkedDir {
    /// Its path below the transfer's root; empty for the root.
    pub path: RelPath,
    /// For opening its entries later.
    pub dir: DirRef,
    /// What is in it and not left out, in byte order of the names.
    pub entries: Vec<WalkedEntry>,
    /// True for the last part; the parts of a directory follow each other.
    pub last: bool,
    /// Of the last part: true when everything that is there and not left out was in `entries`: only then
    /// does the absence of a name mean anything. False without a problem where the listing is not meant to
    /// be whole: the root when no operand stands for its contents, any directory of a walk that is not
    /// recursive, and another filesystem's root under `one_file_system`.
    pub complete: bool,
    /// What could not be read.
    pub problems: Vec<WalkProblem>,
}

/// One entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WalkedEntry {
    /// Its name.
    pub name: Component,
    /// What the kernel says of it.
    pub metadata: Metadata,
    /// The text of a symbolic link.
    pub link_target: Option<Vec<u8>>,
}

/// Something that could not be read.
#[derive(Debug)]
pub struct WalkProblem {
    /// Its path below the transfer's root.
    pub path: RelPath,
    /// What was being done.
    pub operation: WalkOperation,
    /// Why; [`NotFound`](io::ErrorKind::NotFound) means that it vanished since it was listed.
    pub error: io::Error,
}

/// What was being done when a walk met a problem.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum WalkOperation {
    /// Opening or listing a directory.
    ReadDirectory,
    /// Reading attributes.
    Stat,
    /// Reading a symbolic link.
    ReadLink,
}

impl Walk {
    /// Opens the operands. Nothing is listed yet.
    ///
    /// # Errors
    /// [`WalkError`] for operands that are no paths. One that is missing or cannot be opened is an
    /// [`OperandProblem`] instead: the others are walked, and the caller decides.
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
        let complete = options.recursive && opening.root.is_some() && opening.problems.is_empty();
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

    /// Attributes of the transfer's root: those of the first operand that stands for its contents.
    /// `None` when none does: the root is then only the place where named entries meet.
    pub fn root(&self) -> Option<&Metadata> {
        self.root.as_ref().map(|(metadata, _)| metadata)
    }

    /// Lists and attributes of the transfer's root; `None` where [`root`](Self::root) is `None`.
    ///
    /// # Errors
    /// As [`Dir::own_source_extended`].
    pub fn root_extended(&self, scope: ExtendedScope) -> io::Result<Option<Extended>> {
        self.root.as_ref().map(|(_, dir)| dir.own_source_extended(scope)).transpose()
    }

    /// Number of entries of the root that operands name themselves.
    pub fn named(&self) -> u32 {
        self.named_count
    }

    /// True when there is one operand and it is no directory.
    pub fn single_file(&self) -> bool {
        self.single_file
    }

    /// Operands that could not be opened.
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
    /// Operands of one directory, as a shell's `*` makes them, share one handle.
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
        if options.recursive {
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
        let metadata = base.stat(&name)?;
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

/// Directories that are read ahead at most: enough that a reader seldom sleeps.
const MAX_READY: usize = 256;
