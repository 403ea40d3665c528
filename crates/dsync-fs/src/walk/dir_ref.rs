//! Reopens walked directories without a descriptor for each.
//!
//! A [`DirRef`] knows its place in the tree. It opens the directory on request, from the operand's
//! own handle downwards and without following links. The last few opened directories stay open,
//! shared by all references of a walk.

use std::{
    collections::{HashMap, VecDeque},
    fmt, io,
    sync::{Arc, Mutex, PoisonError, RwLock, Weak},
};

use super::prune::Looks;
use crate::{
    component::{Component, RelPath},
    dir::{self, Dir},
    extended::{Extended, ExtendedScope},
    metadata::Metadata,
    source_file::SourceFile,
    walk::WalkOptions,
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
    /// Filesystem of the operand.
    pub(super) device: u64,
}

/// State shared by all references of one walk.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) layers: Vec<Layer>,
    pub(super) options: WalkOptions,
    recent: Mutex<VecDeque<Arc<Dir>>>,
    /// The layer of each entry of the root that an operand names itself.
    named: RwLock<HashMap<Component, u32>>,
    /// The knowledge of barren directories.
    pub(super) looks: Looks,
}

struct Node {
    shared: Arc<Shared>,
    place: Option<(DirRef, Component)>,
    /// The layers that have this directory, in order of precedence.
    layers: Arc<[u32]>,
    open: Mutex<Vec<Weak<Dir>>>,
}

impl DirRef {
    pub(super) fn root(shared: Arc<Shared>, layers: Arc<[u32]>) -> Self {
        Self(Arc::new(Node { shared, place: None, layers, open: Mutex::default() }))
    }

    pub(super) fn child(&self, name: Component, layers: Arc<[u32]>) -> Self {
        let shared = Arc::clone(&self.0.shared);
        let place = Some((self.clone(), name));
        Self(Arc::new(Node { shared, place, layers, open: Mutex::default() }))
    }

    pub(super) fn layers(&self) -> &Arc<[u32]> {
        &self.0.layers
    }

    pub(super) fn shared(&self) -> &Shared {
        &self.0.shared
    }

    /// Opens a regular file of the directory.
    ///
    /// # Errors
    /// As [`Dir::open_source`]; [`NotFound`](io::ErrorKind::NotFound) also if the directory itself
    /// is gone.
    pub fn open_source(&self, name: &Component) -> io::Result<SourceFile> {
        self.first_found(name, |dir| {
            if self.shared().options.open_noatime {
                dir.open_source_noatime(name)
            } else {
                dir.open_source(name)
            }
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
    /// attributes. Returns `false` if it does not.
    ///
    /// # Errors
    /// As [`Dir::remove_file`].
    pub fn remove_file(&self, name: &Component, is_still: impl Fn(&Metadata) -> bool) -> io::Result<bool> {
        self.first_found(name, |dir| {
            if !is_still(&dir.stat(name)?) {
                return Ok(false);
            }
            dir.remove_file(name).map(|()| true)
        })
    }

    /// Reads the lists and attributes of the entry that the walk found under this name.
    ///
    /// # Errors
    /// As [`Dir::source_extended`].
    pub fn extended(&self, name: &Component, found: &Metadata, scope: ExtendedScope) -> io::Result<Extended> {
        let several = self.0.layers.len() > 1;
        self.first_found(name, |dir| {
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
        if self.0.place.is_none()
            && let Some(layer) = self.0.shared.layer_of_named(name)
        {
            return self.0.shared.layer(layer).map_or_else(not_found, |layer| ask(&layer.base));
        }
        // An operand's entry of this name may be a directory that a filter leaves out, and
        // another operand the file.
        let mut other = None;
        for index in 0..self.0.layers.len() {
            match self.open(index).and_then(|dir| ask(&dir)) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) if dir::is_wrong_type(&error) => other = other.or(Some(error)),
                result => return result,
            }
        }
        other.map_or_else(not_found, Err)
    }

    /// Opens the directory in a layer, by the layer's number; for the root also in a layer of which
    /// an operand names entries.
    pub(super) fn open_layer(&self, layer: u32) -> io::Result<Arc<Dir>> {
        match self.0.layers.iter().position(|&at| at == layer) {
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
        let above = self.0.layers.get(index).and_then(|id| parent.0.layers.iter().position(|at| at == id));
        let dir = match above.and_then(|above| parent.opened_or_base(above)) {
            Some(parent) => parent.open_child(name)?,
            None => layer.base.open_beneath(&self.path())?,
        };
        let dir = Arc::new(dir);
        self.remember(index, &dir);
        Ok(dir)
    }

    fn layer(&self, index: usize) -> Option<&Layer> {
        self.0.shared.layer(*self.0.layers.get(index)?)
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
    pub(super) fn new(layers: Vec<Layer>, options: WalkOptions) -> Self {
        Self { layers, options, recent: Mutex::default(), named: RwLock::default(), looks: Looks::default() }
    }

    pub(super) fn layer(&self, number: u32) -> Option<&Layer> {
        self.layers.get(usize::try_from(number).ok()?)
    }

    /// Records the layer of an entry of the root.
    pub(super) fn note_named(&self, name: Component, layer: u32) {
        self.named.write().unwrap_or_else(PoisonError::into_inner).insert(name, layer);
    }

    fn layer_of_named(&self, name: &Component) -> Option<u32> {
        self.named.read().unwrap_or_else(PoisonError::into_inner).get(name).copied()
    }

    /// Keeps a directory open until `MAX_RECENT` others have been opened.
    fn keep(&self, dir: Arc<Dir>) {
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        let oldest = if recent.len() >= MAX_RECENT { recent.pop_front() } else { None };
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

fn not_found<T>() -> io::Result<T> {
    Err(io::ErrorKind::NotFound.into())
}

/// Number of directories kept open per walk.
const MAX_RECENT: usize = 64;
