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
mod terms;

use std::{
    collections::HashMap,
    ffi::OsStr,
    fmt, io,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    sync::Arc,
};

pub use self::{
    dir_ref::DirRef,
    following::leads_out,
    terms::{FollowLinks, WalkOperation, WalkOptions},
};
use self::{
    dir_ref::{Layer, Shared, Step},
    prune::Looks,
    reading::{Child, Listed, Root, WalkJob},
};
use crate::{
    component::{Component, InvalidComponent, RelPath},
    dir::{Dir, Target},
    extended::{Extended, ExtendedScope},
    filter::{FilterSet, RuleFileError, RuleFileFault, Scope, Subject},
    metadata::{Kind, Metadata},
    operand::OperandForm,
    operand_paths::{InvalidRelative, Naming, OperandPaths, RelativeForm},
    read_ahead::ReadAhead,
};

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
    /// An operand of a relative walk goes upwards.
    #[error("operand {index} has '..' in it")]
    Upwards {
        /// Position of the operand, 0-based.
        index: usize,
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
    /// The path below the transfer's root that is missing from its directory, which exists.
    pub missing: Option<RelPath>,
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
    skipped: Vec<RelPath>,
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
    /// Of a directory: whether its own listing follows.
    pub is_walked: bool,
    /// Of a directory of a relative walk: whether it is only on the way to what operands name.
    pub is_implied: bool,
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

impl WalkProblem {
    /// Returns the problem of a file of rules, with its path as one below the root.
    fn of_rules(error: RuleFileError) -> Self {
        let path = RelPath::parse(error.path.strip_prefix(b"/").unwrap_or(&error.path)).unwrap_or_default();
        let error = match error.fault {
            RuleFileFault::Read(error) => error,
            fault => io::Error::new(io::ErrorKind::InvalidData, fault),
        };
        Self { path, operation: WalkOperation::ReadRules, error }
    }
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
            let opened = if options.relative {
                opening.relative(index, operand, &options)?
            } else {
                opening.plain(index, operand, &options)?
            };
            if let Err((missing, error)) = opened {
                opening.problems.push(OperandProblem { index, missing, error });
            }
        }
        opening.paths.seal();

        let single_file =
            operands.len() == 1 && matches!(opening.named.as_slice(), [only] if only.kind != Kind::Dir);
        let single_file = single_file || operands.len() == 1 && opening.single;
        let all = 0..opening.paths.len();
        let mut names: Vec<_> = opening.named.iter().map(|named| named.name.as_bytes()).collect();
        names.extend(opening.paths.names(&RelPath::root(), all.clone()));
        names.sort_unstable();
        names.dedup();

        let named_count = u32::try_from(names.len()).unwrap_or(u32::MAX);
        let complete = options.takes_directories() && opening.root.is_some() && opening.problems.is_empty();
        let mut ahead = ReadAhead::new(options.readers, MAX_READY);
        let shared = Arc::new(Shared::new(opening.layers, opening.paths, opening.looks, options));
        // Also the bases of paths; they are not listed.
        let mut layers: Vec<_> = opening.contents.iter().map(|listed| listed.layer).collect();
        layers.extend(shared.paths.layers());
        layers.sort_unstable();
        layers.dedup();
        let several = layers.len() > 1 && !shared.paths.is_empty();
        let steps: Vec<_> = layers.into_iter().map(|layer| Step { layer, by_path: several }).collect();
        let handle = DirRef::root(shared, steps.into());
        let named = opening.named.into_iter().map(|named| (named.name, named.layer)).collect();
        let (listed, planned) = (opening.contents.into(), (!all.is_empty()).then_some(all));
        ahead.push(std::iter::once(WalkJob::Root(Root { handle, named, listed, planned, complete })));
        Ok(Self {
            root: opening.root,
            named_count,
            single_file,
            problems: opening.problems,
            skipped: opening.skipped,
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

    /// Returns the paths of the directories that a relative walk leaves out because it takes none.
    pub fn skipped(&self) -> &[RelPath] {
        &self.skipped
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
    contents: Vec<Listed>,
    named: Vec<Named>,
    /// The paths of a relative walk's operands.
    paths: OperandPaths,
    /// Whether the last of them is a file of the root.
    single: bool,
    skipped: Vec<RelPath>,
    /// The layer of the last base, of which the paths are.
    base: Option<u32>,
    looks: Looks,
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

/// The outcome of opening an operand; with the path that is missing, where its directory exists.
type Opened = Result<(), (Option<RelPath>, io::Error)>;

impl Opening {
    /// Opens an operand that puts an entry, or the contents of a directory, into the root.
    fn plain(&mut self, index: usize, operand: &Path, options: &WalkOptions) -> Result<Opened, WalkError> {
        let form = OperandForm::of(operand).map_err(|source| WalkError::InvalidOperand { index, source })?;
        Ok(match form {
            OperandForm::Contents(path) => self.contents(&path, options).map_err(|error| (None, error)),
            OperandForm::Entry { parent, name } => {
                self.entry(&parent, name.clone(), options).map_err(|error| {
                    let missing = self.parents.contains_key(&parent) && is_missing(&error);
                    (missing.then_some(name.into()), error)
                })
            }
        })
    }

    /// Opens an operand that brings its path with it.
    fn relative(&mut self, index: usize, operand: &Path, options: &WalkOptions) -> Result<Opened, WalkError> {
        let form = RelativeForm::of(operand.as_os_str().as_bytes()).map_err(|error| match error {
            InvalidRelative::Upwards => WalkError::Upwards { index },
            InvalidRelative::Name(source) => WalkError::InvalidOperand { index, source },
        })?;
        let base = Path::new(OsStr::from_bytes(&form.base));
        if form.path.is_root() {
            return Ok(self.contents(base, options).map_err(|error| (None, error)));
        }
        Ok(self.path(base, &form, options))
    }

    /// Adds the path of an operand, if there is something to copy.
    fn path(&mut self, base: &Path, form: &RelativeForm, options: &WalkOptions) -> Opened {
        let RelativeForm { path, contents, .. } = form;
        let (Some(name), Some(above)) = (path.file_name(), path.parent()) else { return Ok(()) };
        let at = |path: &RelPath| base.join(OsStr::from_bytes(path.as_bytes()));
        let parent = self.parent(at(&above), options).map_err(|error| (None, error))?;
        let found = if *contents {
            options.open(&at(path)).and_then(|dir| dir.metadata())
        } else {
            let followed = |link| {
                let target = options.follow.target(&parent, || above.depth(), &name, &link);
                target.map(|target| target.unwrap_or(link)).map_err(|(_, error)| error)
            };
            parent.stat(&name).and_then(followed)
        };
        let layer = self.base_layer(base, options).map_err(|error| (None, error))?;
        let found = match found {
            Ok(found) => found,
            Err(error) => {
                let missing = is_missing(&error).then(|| path.clone());
                if missing.is_some() && options.missing_counts && !above.is_root() {
                    self.paths.push(&above, layer, Naming::Way);
                }
                return Err((missing, error));
            }
        };

        let is_dir = found.kind == Kind::Dir;
        if options.filter.excludes(path.as_bytes(), is_dir) {
            return Ok(());
        }
        if is_dir && !options.takes_directories() {
            self.skipped.push(path.clone());
            return Ok(());
        }
        let barren = || {
            let top = (&*parent, layer, found.dev);
            let known = self.layers.get(usize::try_from(layer).unwrap_or(usize::MAX));
            let scope = known.map(|known| known.scope.clone()).unwrap_or_default();
            !options.recursive || self.looks.is_barren(options, top, (&above, scope), &name)
        };
        if is_dir && options.prune && !*contents && barren() {
            return Ok(());
        }
        self.single = !is_dir && above.is_root();
        let naming = if *contents { Naming::Contents } else { Naming::Entry };
        self.paths.push(path, layer, naming);
        Ok(())
    }

    fn contents(&mut self, path: &Path, options: &WalkOptions) -> io::Result<()> {
        let base = Arc::new(options.open(path)?);
        let metadata = base.metadata()?;
        self.root.get_or_insert_with(|| (metadata, Arc::clone(&base)));
        if options.takes_directories() {
            let layer = self.layer(base, PathBuf::new(), (false, &options.filter));
            self.contents.push(Listed { layer, device: metadata.dev });
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
        let is_dir = metadata.kind == Kind::Dir;
        let scope = Scope::begin(&options.filter.without_files(), Some(&base), true);
        if scope.excludes(Subject { path: name.as_bytes(), is_dir, perishing: false }) {
            return Ok(());
        }
        let layer = self.layer(base, PathBuf::new(), (true, &options.filter));
        self.named.push(Named { name, layer, kind: metadata.kind });
        Ok(())
    }

    /// Opens the directory of a path, which often is that of the path before.
    fn parent(&mut self, path: PathBuf, options: &WalkOptions) -> io::Result<Arc<Dir>> {
        if let Some(parent) = self.parents.get(&path) {
            return Ok(Arc::clone(parent));
        }
        let parent = Arc::new(options.open(&path)?);
        self.parents.clear();
        self.parents.insert(path, Arc::clone(&parent));
        Ok(parent)
    }

    /// Returns the layer of a base: that of the operand before, if it has the same.
    fn base_layer(&mut self, base: &Path, options: &WalkOptions) -> io::Result<u32> {
        let last = self.base.and_then(|number| self.layers.get(usize::try_from(number).ok()?));
        if let (Some(number), true) = (self.base, last.is_some_and(|last| last.at == base)) {
            return Ok(number);
        }
        let opened = Arc::new(options.open(base)?);
        let layer = self.layer(opened, base.to_path_buf(), (true, &options.filter));
        self.base = Some(layer);
        Ok(layer)
    }

    /// Adds a layer. There are at most as many as operands, whose number was checked.
    fn layer(&mut self, base: Arc<Dir>, at: PathBuf, (named, filter): (bool, &FilterSet)) -> u32 {
        let id = u32::try_from(self.layers.len()).unwrap_or(u32::MAX);
        let scope = Scope::begin(filter, Some(&base), named);
        self.layers.push(Layer { base, at, scope });
        id
    }
}

/// Most directories that are read ahead: enough that a reader seldom sleeps.
const MAX_READY: usize = 256;
