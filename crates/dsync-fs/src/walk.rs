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
//! [`WalkProblem`], never silence; a [`WalkedDir`] that does not hold all there is says so. Memory is
//! bounded by the names of the pending directories of the open levels, descriptors by a small constant
//! and one per distinct operand directory.

mod dir_ref;

use std::{
    collections::HashMap,
    io,
    path::{Path, PathBuf},
    sync::Arc,
    vec,
};

pub use self::dir_ref::DirRef;
use self::dir_ref::{Layer, Shared};
use crate::{
    component::{Component, InvalidComponent, RelPath},
    dir::Dir,
    filter::FilterSet,
    metadata::{Kind, Metadata},
    operand::OperandForm,
    staged::is_temp_name,
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
    /// Why, e.g. [`NotFound`](io::ErrorKind::NotFound).
    pub error: io::Error,
}

/// A walk in progress: an iterator over [`WalkedDir`]s, the root first.
#[derive(Debug)]
pub struct Walk {
    options: WalkOptions,
    root: Option<Metadata>,
    named_count: u32,
    single_file: bool,
    problems: Vec<OperandProblem>,
    /// What the operands name themselves; taken when the root is listed.
    named: Vec<Candidate>,
    root_ref: Option<DirRef>,
    levels: Vec<Level>,
    path: RelPath,
}

/// One directory.
#[derive(Debug)]
pub struct WalkedDir {
    /// Its path below the transfer's root; empty for the root.
    pub path: RelPath,
    /// For opening its entries later.
    pub dir: DirRef,
    /// What is in it and not left out, in byte order of the names.
    pub entries: Vec<WalkedEntry>,
    /// True when everything that is there and not left out is in `entries`: only then does the absence
    /// of a name mean anything. False without a problem where the listing is not meant to be whole:
    /// the root when no operand stands for its contents, any directory of a walk that is not recursive,
    /// and another filesystem's root under `one_file_system`.
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

/// The directories of one open level that are still to be walked.
#[derive(Debug)]
struct Level {
    handle: DirRef,
    pending: vec::IntoIter<Pending>,
}

/// A directory to be walked.
#[derive(Debug)]
struct Pending {
    name: Component,
    layers: Arc<[u32]>,
    /// Some layer's directory is not descended into.
    partly: bool,
}

/// An entry of one layer, before merging.
#[derive(Debug)]
struct Candidate {
    entry: WalkedEntry,
    layer: u32,
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
                OperandForm::Contents(path) => opening.contents(&path, options.recursive),
                OperandForm::Entry { parent, name } => opening.entry(&parent, name, &options.filter),
            };
            if let Err(error) = opened {
                opening.problems.push(OperandProblem { index, error });
            }
        }
        let single_file = operands.len() == 1
            && matches!(opening.named.as_slice(), [only] if only.entry.metadata.kind != Kind::Dir);
        let mut names: Vec<_> = opening.named.iter().map(|candidate| &candidate.entry.name).collect();
        names.sort_unstable();
        names.dedup();
        let named_count = u32::try_from(names.len()).unwrap_or(u32::MAX);
        let shared = Arc::new(Shared::new(opening.layers));
        Ok(Self {
            options,
            root: opening.root,
            named_count,
            single_file,
            problems: opening.problems,
            named: opening.named,
            root_ref: Some(DirRef::root(shared, opening.contents.into())),
            levels: Vec::new(),
            path: RelPath::root(),
        })
    }

    /// Attributes of the transfer's root: those of the first operand that stands for its contents.
    /// `None` when none does: the root is then only the place where named entries meet.
    pub fn root(&self) -> Option<&Metadata> {
        self.root.as_ref()
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

    fn list_root(&mut self, handle: DirRef) -> WalkedDir {
        let mut listing = Reading::new(&self.options, &self.path);
        listing.candidates = std::mem::take(&mut self.named);
        listing.complete = self.options.recursive && self.root.is_some() && self.problems.is_empty();
        listing.read(&handle);
        let (walked, pending, origins) = listing.finish(&handle);
        let of_named = origins
            .into_iter()
            .filter(|(_, layer)| !handle.layers().contains(layer))
            .collect::<HashMap<_, _>>();
        // Set once, here: the root is listed once.
        let _ = handle.shared().named.set(of_named);
        self.descend(handle, pending);
        walked
    }

    fn descend(&mut self, handle: DirRef, pending: Vec<Pending>) {
        if self.options.recursive {
            self.levels.push(Level { handle, pending: pending.into_iter() });
        }
    }
}

impl Iterator for Walk {
    type Item = WalkedDir;

    fn next(&mut self) -> Option<WalkedDir> {
        if let Some(root) = self.root_ref.take() {
            return Some(self.list_root(root));
        }
        let pending = loop {
            match self.levels.last_mut()?.pending.next() {
                Some(pending) => break pending,
                None => {
                    self.levels.pop();
                    self.path.pop();
                }
            }
        };
        let handle = self.levels.last()?.handle.child(pending.name.clone(), pending.layers);
        self.path.push(&pending.name);
        let mut listing = Reading::new(&self.options, &self.path);
        listing.complete = !pending.partly;
        if self.levels.len() > MAX_DEPTH {
            listing.problem(None, WalkOperation::ReadDirectory, rustix::io::Errno::NAMETOOLONG.into());
        } else {
            listing.read(&handle);
        }
        let (walked, pending, _) = listing.finish(&handle);
        self.descend(handle, pending);
        Some(walked)
    }
}

/// Operands being opened.
#[derive(Default)]
struct Opening {
    layers: Vec<Layer>,
    /// Layers that stand for the root's contents, in the order of the operands.
    contents: Vec<u32>,
    named: Vec<Candidate>,
    root: Option<Metadata>,
    problems: Vec<OperandProblem>,
    /// Operands of one directory, as a shell's `*` makes them, share one handle.
    parents: HashMap<PathBuf, Arc<Dir>>,
}

impl Opening {
    fn contents(&mut self, path: &Path, recursive: bool) -> io::Result<()> {
        let base = Arc::new(Dir::open_operand(path)?);
        let metadata = base.metadata()?;
        self.root.get_or_insert(metadata);
        if recursive {
            let layer = self.layer(base, metadata.dev);
            self.contents.push(layer);
        }
        Ok(())
    }

    fn entry(&mut self, parent: &Path, name: Component, filter: &FilterSet) -> io::Result<()> {
        let base = match self.parents.get(parent) {
            Some(base) => Arc::clone(base),
            None => {
                let base = Arc::new(Dir::open_operand(parent)?);
                self.parents.insert(parent.to_path_buf(), Arc::clone(&base));
                base
            }
        };
        let metadata = base.stat(&name)?;
        if filter.excludes(name.as_bytes(), metadata.kind == Kind::Dir) {
            return Ok(());
        }
        let link_target = match metadata.kind {
            Kind::Symlink => Some(base.read_link(&name)?),
            _ => None,
        };
        let layer = self.layer(base, metadata.dev);
        self.named.push(Candidate { entry: WalkedEntry { name, metadata, link_target }, layer });
        Ok(())
    }

    /// Adds a layer. There are at most as many as operands, whose number was checked.
    fn layer(&mut self, base: Arc<Dir>, device: u64) -> u32 {
        let id = u32::try_from(self.layers.len()).unwrap_or(u32::MAX);
        self.layers.push(Layer { base, device });
        id
    }
}

/// One directory while it is read, in all its layers.
struct Reading<'a> {
    options: &'a WalkOptions,
    path: &'a RelPath,
    /// Path of an entry for the filters; the first `prefix` bytes are the directory's.
    entry_path: Vec<u8>,
    prefix: usize,
    candidates: Vec<Candidate>,
    complete: bool,
    problems: Vec<WalkProblem>,
}

impl<'a> Reading<'a> {
    fn new(options: &'a WalkOptions, path: &'a RelPath) -> Self {
        let mut entry_path = Vec::new();
        if !options.filter.is_empty() && !path.is_root() {
            entry_path.extend_from_slice(path.as_bytes());
            entry_path.push(b'/');
        }
        let prefix = entry_path.len();
        let (candidates, problems) = (Vec::new(), Vec::new());
        Self { options, path, entry_path, prefix, candidates, complete: true, problems }
    }

    fn read(&mut self, handle: &DirRef) {
        for (index, &layer) in handle.layers().iter().enumerate() {
            match handle.open(index) {
                Ok(dir) => self.read_layer(&dir, layer),
                Err(error) => self.problem(None, WalkOperation::ReadDirectory, error),
            }
        }
    }

    fn read_layer(&mut self, dir: &Dir, layer: u32) {
        // Opened for this walk and not handed out yet: nobody else lists it.
        let listing = dir.list_once();
        self.complete &= listing.complete;
        if let Some(error) = listing.error {
            self.problem(None, WalkOperation::ReadDirectory, error);
        } else if !listing.complete {
            let error = io::Error::from(rustix::io::Errno::ILSEQ);
            self.problem(None, WalkOperation::ReadDirectory, error);
        }
        self.candidates.reserve(listing.entries.len());
        for (name, metadata) in listing.entries {
            if is_temp_name(name.as_bytes()) {
                continue;
            }
            match metadata {
                Ok(metadata) => self.take(dir, layer, name, metadata),
                Err(_) if self.excludes(&name, false) && self.excludes(&name, true) => {}
                Err(error) => self.problem(Some(&name), WalkOperation::Stat, error),
            }
        }
    }

    fn take(&mut self, dir: &Dir, layer: u32, name: Component, metadata: Metadata) {
        if self.excludes(&name, metadata.kind == Kind::Dir) {
            return;
        }
        let link_target = match metadata.kind {
            Kind::Symlink => match dir.read_link(&name) {
                Ok(target) => Some(target),
                Err(error) => return self.problem(Some(&name), WalkOperation::ReadLink, error),
            },
            _ => None,
        };
        self.candidates.push(Candidate { entry: WalkedEntry { name, metadata, link_target }, layer });
    }

    fn excludes(&mut self, name: &Component, is_dir: bool) -> bool {
        if self.options.filter.is_empty() {
            return false;
        }
        self.entry_path.truncate(self.prefix);
        self.entry_path.extend_from_slice(name.as_bytes());
        self.options.filter.excludes(&self.entry_path, is_dir)
    }

    fn problem(&mut self, name: Option<&Component>, operation: WalkOperation, error: io::Error) {
        // A name that is gone is known to be absent; anything else leaves a gap.
        if name.is_none() || error.kind() != io::ErrorKind::NotFound {
            self.complete = false;
        }
        let path = name.map_or_else(|| self.path.clone(), |name| self.path.join(name));
        self.problems.push(WalkProblem { path, operation, error });
    }

    /// Merges the layers. Also gives the directories to walk next.
    fn finish(self, handle: &DirRef) -> (WalkedDir, Vec<Pending>, Vec<(Component, u32)>) {
        let mut merging = Merging { handle, options: self.options, pending: Vec::new() };
        let mut candidates = self.candidates;
        let mut origins = Vec::new();
        let entries = if handle.layers().len() == 1 && !self.path.is_root() {
            // One layer: already sorted and without duplicates.
            candidates.into_iter().map(|candidate| merging.alone(candidate)).collect()
        } else {
            // Layers are numbered in the order of the operands, of which the first wins.
            candidates.sort_by(|a, b| a.entry.name.cmp(&b.entry.name).then(a.layer.cmp(&b.layer)));
            merging.groups(candidates, &mut origins)
        };
        let walked = WalkedDir {
            path: self.path.clone(),
            dir: handle.clone(),
            entries,
            complete: self.complete,
            problems: self.problems,
        };
        (walked, merging.pending, origins)
    }
}

/// The merge of one directory's layers.
struct Merging<'a> {
    handle: &'a DirRef,
    options: &'a WalkOptions,
    pending: Vec<Pending>,
}

impl Merging<'_> {
    fn alone(&mut self, candidate: Candidate) -> WalkedEntry {
        if candidate.entry.metadata.kind == Kind::Dir {
            self.directory(&candidate.entry.name, &[(candidate.layer, candidate.entry.metadata)]);
        }
        candidate.entry
    }

    /// Merges runs of equal names; notes in `origins` the layer of each entry that is no directory.
    fn groups(
        &mut self,
        candidates: Vec<Candidate>,
        origins: &mut Vec<(Component, u32)>,
    ) -> Vec<WalkedEntry> {
        let mut merged: Vec<WalkedEntry> = Vec::with_capacity(candidates.len());
        let mut rest = candidates.into_iter().peekable();
        while let Some(first) = rest.next() {
            let mut winner = first;
            let mut directories = Vec::new();
            if winner.entry.metadata.kind == Kind::Dir {
                directories.push((winner.layer, winner.entry.metadata));
            }
            while let Some(next) = rest.next_if(|next| next.entry.name == winner.entry.name) {
                if next.entry.metadata.kind != Kind::Dir {
                    continue;
                }
                directories.push((next.layer, next.entry.metadata));
                if winner.entry.metadata.kind != Kind::Dir {
                    winner = next;
                }
            }
            if directories.is_empty() {
                origins.push((winner.entry.name.clone(), winner.layer));
            } else {
                self.directory(&winner.entry.name, &directories);
            }
            merged.push(winner.entry);
        }
        merged
    }

    /// Notes a directory to be walked, in all its layers.
    fn directory(&mut self, name: &Component, found: &[(u32, Metadata)]) {
        if !self.options.recursive {
            return;
        }
        let mut layers: Vec<u32> = Vec::with_capacity(found.len());
        let mut seen: Vec<(u64, u64)> = Vec::with_capacity(found.len());
        let mut partly = false;
        for (layer, metadata) in found {
            if self.options.one_file_system && self.device_of(*layer) != Some(metadata.dev) {
                partly = true;
                continue;
            }
            // The same operand given twice is one directory, not two.
            let identity = (metadata.dev, metadata.ino);
            if !seen.contains(&identity) {
                seen.push(identity);
                layers.push(*layer);
            }
        }
        let inherited = self.handle.layers();
        let layers = if layers == **inherited { Arc::clone(inherited) } else { layers.into() };
        self.pending.push(Pending { name: name.clone(), layers, partly });
    }

    fn device_of(&self, layer: u32) -> Option<u64> {
        let layer = usize::try_from(layer).ok()?;
        self.handle.shared().layers.get(layer).map(|layer| layer.device)
    }
}

/// Deepest directory that is walked: bounds the memory of a walk through a tree made to exhaust it.
const MAX_DEPTH: usize = 4096;
