//! Reopens walked directories without a descriptor for each.
//!
//! A [`DirRef`] knows its place in the tree. It opens the directory on request, from the operand's
//! own handle downwards and without following links. The last few opened directories stay open,
//! shared by all references of a walk.

use std::{
    collections::{HashMap, VecDeque},
    ffi::OsStr,
    fmt, io,
    os::unix::ffi::OsStrExt,
    path::PathBuf,
    sync::{
        Arc, Mutex, OnceLock, PoisonError, RwLock, Weak,
        atomic::{AtomicBool, Ordering},
    },
};

use super::prune::Looks;
use crate::{
    component::{Component, RelPath},
    dir::{self, Dir, LeadsOut, Target},
    extended::{Extended, ExtendedScope},
    filter::Scope,
    metadata::Metadata,
    operand_paths::OperandPaths,
    source_file::SourceFile,
    sys::nofile_limit,
    walk::{following::Passed, terms::WalkOptions},
};

/// A directory of the walk that can be reopened later; cheap to clone and to keep. Valid after the
/// walk has moved on, and from any thread.
#[derive(Clone)]
pub struct DirRef(Arc<Node>);

/// One operand's part of the tree.
#[derive(Debug)]
pub(super) struct Layer {
    /// The directory where paths of this layer start.
    pub(super) base: Arc<Dir>,
    /// Operands name paths below that directory.
    pub(super) is_way: bool,
    /// The rules in force before a file of rules below is read.
    pub(super) scope: Scope,
    /// The rules for what paths below it name: those of the command alone. None where there are no paths.
    pub(super) typed: Scope,
}

/// A layer that has a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Step {
    pub(super) layer: u32,
    /// The directory is on the way to what an operand names: it is opened by the operator's path,
    /// through whatever links there are on it.
    pub(super) by_path: bool,
}

/// State shared by all references of one walk.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) layers: Vec<Layer>,
    pub(super) options: WalkOptions,
    recent: Mutex<VecDeque<Arc<Dir>>>,
    /// Most of them.
    max_recent: usize,
    /// The layer of each entry that an operand names itself, where several have its directory, and of
    /// each whose name an earlier layer has for an entry that does not take part.
    named: RwLock<HashMap<RelPath, u32>>,
    /// The paths below the root that operands name.
    pub(super) paths: OperandPaths,
    /// The knowledge of barren directories.
    pub(super) looks: Looks,
    /// The directory that is not entered through a link, once it exists.
    barred: OnceLock<Target>,
}

struct Node {
    shared: Arc<Shared>,
    place: Option<(DirRef, Component)>,
    /// The layers that have this directory, in order of precedence.
    layers: Arc<[Step]>,
    /// Whether the layer of an entry is that of the operand that names it, where one does.
    is_named: bool,
    /// Identity of the directory in each layer; empty in a walk that follows no links.
    passed: Box<[Passed]>,
    /// Whether a layer may have names that could not be listed.
    is_unsure: AtomicBool,
    open: Mutex<Vec<Weak<Dir>>>,
}

impl DirRef {
    pub(super) fn root(shared: Arc<Shared>, layers: Arc<[Step]>) -> Self {
        Self::of(shared, None, (layers, true), Box::default())
    }

    pub(super) fn child(&self, name: Component, layers: (Arc<[Step]>, bool), passed: Box<[Passed]>) -> Self {
        Self::of(Arc::clone(&self.0.shared), Some((self.clone(), name)), layers, passed)
    }

    fn of(
        shared: Arc<Shared>,
        place: Option<(Self, Component)>,
        (layers, is_named): (Arc<[Step]>, bool),
        passed: Box<[Passed]>,
    ) -> Self {
        let (is_unsure, open) = <(AtomicBool, Mutex<_>)>::default();
        Self(Arc::new(Node { shared, place, layers, is_named, passed, is_unsure, open }))
    }

    pub(super) fn layers(&self) -> &Arc<[Step]> {
        &self.0.layers
    }

    /// Returns whether a lookup by name finds the entry of this layer, or needs a note of it.
    pub(super) fn needs_note(&self, layer: u32) -> bool {
        let steps = &self.0.layers;
        let mixed = || steps.len() > 1 && steps.iter().any(|step| step.by_path);
        let is_elsewhere = || steps.iter().all(|step| step.layer != layer) || mixed();
        let is_unsure = steps.len() > 1 && self.0.is_unsure.load(Ordering::Relaxed);
        is_unsure || self.0.is_named && is_elsewhere()
    }

    /// Notes that a layer may have names that could not be listed, or are not to be. A lookup finds none
    /// of them.
    pub(super) fn be_unsure(&self) {
        self.0.is_unsure.store(true, Ordering::Relaxed);
    }

    pub(super) fn shared(&self) -> &Shared {
        &self.0.shared
    }

    /// Opens a regular file of the directory, or the one that its link was `followed` to; with
    /// `copy_devices` also a device.
    ///
    /// # Errors
    /// As [`Dir::open_source`] and [`Dir::open_target`]; [`NotFound`](io::ErrorKind::NotFound) also
    /// if the directory itself is gone.
    pub fn open_source(&self, name: &Component, followed: Option<Target>) -> io::Result<SourceFile> {
        let how = self.shared().options.opening();
        self.first_found(name, |dir| match followed {
            Some(target) => dir.open_target(name, target, how),
            None => dir.open_source_as(name, how),
        })
    }

    /// Reads a symbolic link of the directory.
    ///
    /// # Errors
    /// As [`Dir::read_link`].
    pub fn read_link(&self, name: &Component) -> io::Result<Vec<u8>> {
        self.first_found(name, |layer| match layer.read_link(name) {
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => Err(dir::wrong_type()),
            text => text,
        })
    }

    /// Reads the attributes of an entry of the directory.
    ///
    /// # Errors
    /// As [`Dir::stat`].
    pub fn stat(&self, name: &Component) -> io::Result<Metadata> {
        self.first_found(name, |dir| dir.stat(name))
    }

    /// Removes an entry of the directory that is not a directory, if `is_still` accepts its
    /// attributes. Returns `false` if it does not. Of a link that was `followed` the attributes are
    /// those of its target, and the link is removed.
    ///
    /// # Errors
    /// As [`Dir::remove_file`]; [`LeadsOut`] if links on the way lead out of the directories in which the
    /// operands' paths begin.
    pub fn remove_file(
        &self,
        name: &Component,
        followed: Option<Target>,
        is_still: impl Fn(&Metadata) -> bool,
    ) -> io::Result<bool> {
        let may_be_outside = self.may_be_outside();
        self.first_found(name, |dir| {
            let now = if followed.is_some() { dir.stat_target(name) } else { dir.stat(name) };
            if !is_still(&now?) {
                return Ok(false);
            }

            // A link is enough to read what others keep elsewhere, not to take it from them.
            if may_be_outside && !self.shared().has(dir)? {
                return Err(LeadsOut::at(PathBuf::from(OsStr::from_bytes(self.path().as_bytes()))).into());
            }
            dir.remove_file(name).map(|()| true)
        })
    }

    /// Reads the lists and attributes of the entry that the walk found under this name.
    ///
    /// # Errors
    /// As [`Dir::source_extended`].
    pub fn extended(
        &self,
        name: &Component,
        found: &Metadata,
        followed: Option<Target>,
        scope: ExtendedScope,
    ) -> io::Result<Extended> {
        let several = self.0.layers.len() > 1;
        self.first_found(name, |dir| {
            if let Some(target) = followed {
                return dir.target_extended(name, target, scope);
            }
            // A directory of a later operand wins over a non-directory in an earlier one.
            if several {
                let here = dir.stat(name)?;
                if (here.dev, here.ino) != (found.dev, found.ino) {
                    return not_found();
                }
            }
            dir.source_extended(name, scope)
        })
    }

    /// Returns the number of the filesystem of this device, if it is the one that the directory is on
    /// and stamps can be trusted there, see [`Dir::stable_filesystem`].
    ///
    /// # Errors
    /// The directory cannot be opened.
    pub fn stable_filesystem(&self, device: u64) -> io::Result<Option<u64>> {
        for index in 0..self.0.layers.len() {
            let dir = self.open(index)?;
            if dir.metadata()?.dev == device {
                return Ok(dir.stable_filesystem().map(|found| found.id()));
            }
        }
        Ok(None)
    }

    /// Returns the directory's path below the transfer's root. Cost: one step per level.
    pub fn path(&self) -> RelPath {
        let mut names = Vec::new();
        let mut node = self;
        while let Some((parent, name)) = &node.0.place {
            names.push(name);
            node = parent;
        }
        let mut path = RelPath::root();
        names.into_iter().rev().for_each(|name| path.push(name));
        path
    }

    /// Asks the layers in their order of precedence.
    fn first_found<T>(&self, name: &Component, ask: impl Fn(&Dir) -> io::Result<T>) -> io::Result<T> {
        if let Some(layer) = self.0.shared.layer_of_named(|| self.path().join(name)) {
            return self.open_layer(layer).and_then(|dir| ask(&dir));
        }
        // An operand's entry of this name may be a directory that a filter leaves out, and
        // another operand the file.
        let mut other = None;
        for index in 0..self.0.layers.len() {
            let (result, is_closed) = match self.open(index) {
                Ok(dir) => {
                    let result = ask(&dir);
                    // An entry that nobody may look at here was listed from another operand.
                    let is_closed =
                        is_denied(result.as_ref().err()) && is_denied(dir.stat(name).as_ref().err());
                    (result, is_closed)
                }
                Err(error) => {
                    let is_closed = is_denied(Some(&error));
                    (Err(error), is_closed)
                }
            };

            match result {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) if dir::is_wrong_type(&error) || dir::is_target_changed(&error) || is_closed => {
                    other = other.or(Some(error));
                }
                result => return result,
            }
        }
        other.map_or_else(not_found, Err)
    }

    /// Opens the directory in a layer, by the layer's number; for the root also in a layer of which
    /// an operand names entries.
    pub(super) fn open_layer(&self, layer: u32) -> io::Result<Arc<Dir>> {
        match self.0.layers.iter().position(|at| at.layer == layer) {
            Some(index) => self.open(index),
            None => self.0.shared.layer(layer).map_or_else(not_found, |layer| Ok(Arc::clone(&layer.base))),
        }
    }

    /// Opens the directory in its `index`-th layer.
    pub(super) fn open(&self, index: usize) -> io::Result<Arc<Dir>> {
        let Some(layer) = self.layer(index) else { return not_found() };
        let Some((parent, name)) = &self.0.place else { return Ok(Arc::clone(&layer.base)) };
        if let Some(dir) = self.opened(index) {
            return Ok(dir);
        }
        let Some(&step) = self.0.layers.get(index) else { return not_found() };
        let dir = if step.by_path {
            self.0.shared.open_by_path(step.layer, &self.path())?
        } else {
            match parent.index_of(step.layer).and_then(|above| parent.opened_or_base(above)) {
                Some(parent) => self.open_in(&parent, name, step.layer)?,
                None if self.0.passed.is_empty() => self.open_below_path(step.layer, layer)?,
                None => self.open_along(layer, step.layer)?,
            }
        };
        let dir = Arc::new(dir);
        self.remember(index, &dir);
        Ok(dir)
    }

    /// Opens the directory in its parent's, or where its link leads.
    fn open_in(&self, parent: &Dir, name: &Component, layer: u32) -> io::Result<Dir> {
        match self.0.passed.iter().find(|passed| passed.layer == layer) {
            Some(passed) if passed.by_link => parent.open_target_dir(name, passed.directory),
            _ => parent.open_child(name),
        }
    }

    /// Opens the directory step by step from the operand's own, as links are on the way.
    fn open_along(&self, layer: &Layer, number: u32) -> io::Result<Dir> {
        let mut steps = Vec::new();
        let mut node = self;
        let mut from = Arc::clone(&layer.base);
        while let Some((parent, name)) = &node.0.place {
            steps.push((node, name));
            node = parent;
            if let Some(index) = node.index_by_path(number) {
                from = node.open(index)?;
                break;
            }
        }
        let mut reached: Option<Dir> = None;
        for (node, name) in steps.into_iter().rev() {
            reached = Some(node.open_in(reached.as_ref().unwrap_or(&from), name, number)?);
        }
        reached.map_or_else(not_found, Ok)
    }

    /// Calls `each` with this directory and those above it in a layer, in a walk that follows links.
    pub(super) fn for_each_passed(&self, layer: u32, mut each: impl FnMut(Passed)) -> io::Result<()> {
        let mut node = self;
        while let Some((parent, _)) = &node.0.place {
            node.0.passed.iter().filter(|passed| passed.layer == layer).for_each(|passed| each(*passed));
            node = parent;
        }
        // The directory of an operand that names an entry is not part of the tree, nor is the one in
        // which a path begins.
        if node.index_of(layer).is_some()
            && let Some(root) = self.0.shared.layer(layer).filter(|root| !root.is_way)
        {
            let directory = Target::of(&root.base.metadata()?);
            each(Passed { layer, directory, by_link: false });
        }
        Ok(())
    }

    /// Returns whether a link leads to this directory or to one above it.
    pub(super) fn is_behind_link(&self) -> bool {
        let mut node = self;
        while let Some((parent, _)) = &node.0.place {
            if node.0.passed.iter().any(|passed| passed.by_link) {
                return true;
            }
            node = parent;
        }
        false
    }

    /// Returns whether links may lead to this directory or to one above it: followed ones, or some in an
    /// operator's path.
    fn may_be_outside(&self) -> bool {
        let mut node = self;
        while let Some((parent, _)) = &node.0.place {
            if node.0.layers.iter().any(|step| step.by_path) {
                return true;
            }
            node = parent;
        }
        self.is_behind_link()
    }

    /// Opens the directory from the nearest one above it that is opened by the operator's path.
    fn open_below_path(&self, number: u32, layer: &Layer) -> io::Result<Dir> {
        let mut above = self;
        while let Some((parent, _)) = &above.0.place {
            above = parent;
            if let Some(index) = above.index_by_path(number) {
                let below = self.path().below(&above.path()).unwrap_or_default();
                return above.open(index)?.open_beneath(&below);
            }
        }
        layer.base.open_beneath(&self.path())
    }

    /// Returns the index of a layer in which the operator's path leads here.
    fn index_by_path(&self, layer: u32) -> Option<usize> {
        let by_path = |at: &Step| at.layer == layer && at.by_path && self.0.place.is_some();
        self.0.layers.iter().position(by_path)
    }

    fn index_of(&self, layer: u32) -> Option<usize> {
        self.0.layers.iter().position(|at| at.layer == layer)
    }

    fn layer(&self, index: usize) -> Option<&Layer> {
        self.0.shared.layer(self.0.layers.get(index)?.layer)
    }

    fn opened_or_base(&self, index: usize) -> Option<Arc<Dir>> {
        match self.0.place {
            None => self.layer(index).map(|layer| Arc::clone(&layer.base)),
            Some(_) => self.opened(index),
        }
    }

    fn opened(&self, index: usize) -> Option<Arc<Dir>> {
        let open = self.0.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.get(index)?.upgrade()
    }

    fn remember(&self, index: usize, dir: &Arc<Dir>) {
        let mut open = self.0.open.lock().unwrap_or_else(PoisonError::into_inner);
        if open.len() <= index {
            open.resize_with(index + 1, Weak::new);
        }
        if let Some(slot) = open.get_mut(index) {
            *slot = Arc::downgrade(dir);
        }
        drop(open);
        self.0.shared.keep(Arc::clone(dir));
    }
}

impl Shared {
    pub(super) fn new(layers: Vec<Layer>, paths: OperandPaths, looks: Looks, options: WalkOptions) -> Self {
        let (recent, named) = (Mutex::default(), RwLock::default());
        let max_recent = usize::try_from(nofile_limit() / 8).map_or(MAX_RECENT, |few| few.min(MAX_RECENT));
        Self { layers, options, paths, recent, max_recent, named, looks, barred: OnceLock::new() }
    }

    pub(super) fn layer(&self, number: u32) -> Option<&Layer> {
        self.layers.get(usize::try_from(number).ok()?)
    }

    /// Returns whether a directory is in one in which operands' paths begin, or is one.
    fn has(&self, dir: &Dir) -> io::Result<bool> {
        for layer in &self.layers {
            if dir.is_beneath(&layer.base)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Returns whether a directory is the one that is not entered through a link.
    pub(super) fn bars(&self, directory: Target) -> bool {
        let Some(path) = &self.options.barred else { return false };
        if let Some(barred) = self.barred.get() {
            return *barred == directory;
        }
        // The run makes it, perhaps only now.
        match Dir::open_operand(path).and_then(|dir| dir.metadata()) {
            Ok(found) => *self.barred.get_or_init(|| Target::of(&found)) == directory,
            Err(_) => false,
        }
    }

    /// Opens a directory that operands have on their way, as the operator's path leads to it.
    pub(super) fn open_by_path(&self, layer: u32, path: &RelPath) -> io::Result<Dir> {
        let Some(layer) = self.layer(layer) else { return not_found() };
        self.options.open_way(&layer.base, path)
    }

    /// Records the layer of an entry.
    pub(super) fn note_named(&self, path: RelPath, layer: u32) {
        self.named.write().unwrap_or_else(PoisonError::into_inner).insert(path, layer);
    }

    fn layer_of_named(&self, path: impl FnOnce() -> RelPath) -> Option<u32> {
        let named = self.named.read().unwrap_or_else(PoisonError::into_inner);
        if named.is_empty() { None } else { named.get(&path()).copied() }
    }

    /// Keeps a directory open until as many others have been opened as may be.
    fn keep(&self, dir: Arc<Dir>) {
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        let oldest = if recent.len() >= self.max_recent { recent.pop_front() } else { None };
        recent.push_back(dir);
        drop(recent);
        // Closing is a system call, so do it without the lock.
        drop(oldest);
    }
}

impl fmt::Debug for DirRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("DirRef").field(&self.path()).finish()
    }
}

/// Returns whether the system refused access.
fn is_denied(error: Option<&io::Error>) -> bool {
    error.is_some_and(|error| error.kind() == io::ErrorKind::PermissionDenied)
}

fn not_found<T>() -> io::Result<T> {
    Err(io::ErrorKind::NotFound.into())
}

/// Most directories kept open per walk: fewer where a process may open few files.
const MAX_RECENT: usize = 64;
