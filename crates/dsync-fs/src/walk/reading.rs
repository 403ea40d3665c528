//! One directory of a walk while it is read, in all its layers.

use std::{io, sync::Arc};

use super::{
    DirRef, WalkOperation, WalkProblem, WalkedDir, WalkedEntry,
    following::{Passed, refuse_circle},
};
use crate::{
    component::{Component, RelPath},
    dir::{Dir, Target, stat_in_disk_order},
    fake_super,
    filter::Within,
    listed_name::Name,
    metadata::Origin,
    metadata::{Kind, Metadata},
    names::{NameSorter, Names, SpooledNames},
    own_names::is_own_name,
    read_ahead::{Done, Job},
};

/// A part of the tree that a walk still has to read.
pub(super) enum WalkJob {
    Root(Root),
    Child(Child),
    Chunk(Chunk),
}

/// The root, once.
pub(super) struct Root {
    pub(super) handle: DirRef,
    /// Entries that operands name themselves, with the layer of each.
    pub(super) named: Vec<(Component, u32)>,
    pub(super) complete: bool,
}

/// A directory below the root.
pub(super) struct Child {
    parent: DirRef,
    name: Component,
    layers: Arc<[u32]>,
    /// Its identity in each layer, if links are followed.
    passed: Box<[Passed]>,
    /// Whether some layer's directory is not descended into.
    partly: bool,
    depth: u32,
}

/// Some names of a directory that has very many.
pub(super) struct Chunk {
    handle: DirRef,
    names: Arc<SpooledNames>,
    index: usize,
    depth: u32,
    /// The end of reading the names, reported with the last chunk.
    ending: Option<Ending>,
}

/// The end of reading a directory's names.
struct Ending {
    complete: bool,
    problems: Vec<WalkProblem>,
}

/// A directory or a part of one.
pub(super) struct Part {
    pub(super) walked: WalkedDir,
    /// Its subdirectories, which are walked after all its parts.
    pub(super) children: Vec<Child>,
}

impl Job for WalkJob {
    type Output = Part;

    fn run(self) -> Done<Self> {
        match self {
            Self::Root(Root { handle, named, complete }) => {
                let mut reading = Reading::new(handle, 0, true);
                reading.complete = complete;
                reading.names_of_directory(named)
            }
            Self::Child(child) => {
                let handle = child.parent.child(child.name, child.layers, child.passed);
                let mut reading = Reading::new(handle, child.depth, true);
                reading.complete = !child.partly;
                if child.depth >= MAX_DEPTH {
                    reading.problem(
                        None,
                        WalkOperation::ReadDirectory,
                        rustix::io::Errno::NAMETOOLONG.into(),
                    );
                    return reading.done(true);
                }
                reading.names_of_directory(Vec::new())
            }

            Self::Chunk(Chunk { handle, names, index, depth, ending }) => {
                let mut reading = Reading::new(handle, depth, false);
                match names.chunk(index) {
                    Ok(names) => reading.entries_of(names),
                    Err(error) => {
                        reading.problem(None, WalkOperation::ReadDirectory, io::Error::other(error));
                    }
                }
                let last = ending.is_some();
                if let Some(ending) = ending {
                    reading.complete &= ending.complete;
                    reading.problems.extend(ending.problems);
                }
                reading.done(last)
            }
        }
    }
}

/// A directory, or a part of it, while it is read.
struct Reading {
    handle: DirRef,
    depth: u32,
    path: RelPath,
    /// Its entries as the filters see them.
    within: Within,
    entries: Vec<WalkedEntry>,
    children: Vec<Child>,
    complete: bool,
    /// Whether all of a directory is read here, not a part.
    whole: bool,
    problems: Vec<WalkProblem>,
}

impl Reading {
    fn new(handle: DirRef, depth: u32, whole: bool) -> Self {
        let path = handle.path();
        let within = Within::new(&handle.shared().options.filter, &path);
        let (entries, children, problems) = (Vec::new(), Vec::new(), Vec::new());
        Self { handle, depth, path, within, entries, children, complete: true, whole, problems }
    }

    /// Reads the names of all layers. Then reads the entries, or leaves them to jobs of their own.
    fn names_of_directory(mut self, named: Vec<(Component, u32)>) -> Done<WalkJob> {
        let mut sorter = NameSorter::new(&self.handle.shared().options.spools);
        for layer in self.handle.layers().to_vec() {
            match self.handle.open_layer(layer) {
                Ok(dir) => self.names_of_layer(&dir, layer, &mut sorter),
                Err(error) => self.problem(None, WalkOperation::ReadDirectory, error),
            }
        }
        let mut named = named.into_iter().map(|(name, layer)| Name { name, layer, ino: 0 });
        let kept = named.try_for_each(|name| sorter.push(name));
        match kept.and_then(|()| sorter.finish()) {
            Ok(Names::Few(names)) => self.entries_of(names),
            Ok(Names::Many(names)) => return self.split(names),
            Err(error) => self.problem(None, WalkOperation::ReadDirectory, io::Error::other(error)),
        }
        self.done(true)
    }

    fn names_of_layer(&mut self, dir: &Dir, layer: u32, sorter: &mut NameSorter) {
        let mut complete = true;
        let mut kept = Ok(());
        // The handle was opened for this walk and not handed out yet, so nobody else lists it.
        let error = dir.for_each_name_once(&mut complete, |name, ino, _| {
            if kept.is_ok() && !is_own_name(name.as_bytes()) {
                kept = sorter.push(Name { name, layer, ino });
            }
        });
        if let Some(error) = error {
            self.problem(None, WalkOperation::ReadDirectory, error);
        } else if let Err(error) = kept {
            self.problem(None, WalkOperation::ReadDirectory, io::Error::other(error));
        } else if !complete {
            let error = io::Error::from(rustix::io::Errno::ILSEQ);
            self.problem(None, WalkOperation::ReadDirectory, error);
        }
    }

    /// Leaves the entries to a job for each chunk of names.
    fn split(self, names: SpooledNames) -> Done<WalkJob> {
        let names = Arc::new(names);
        let chunks = (0..names.chunk_count()).map(|index| Chunk {
            handle: self.handle.clone(),
            names: Arc::clone(&names),
            index,
            depth: self.depth,
            ending: None,
        });
        let mut chunks: Vec<_> = chunks.collect();
        if let Some(last) = chunks.last_mut() {
            last.ending = Some(Ending { complete: self.complete, problems: self.problems });
        }
        Done { output: None, weight: 0, then: chunks.into_iter().map(WalkJob::Chunk).collect() }
    }

    /// Reads the entries of these names, which are in order.
    fn entries_of(&mut self, mut names: Vec<Name>) {
        // Network filesystems can list a name twice when a directory changes meanwhile.
        names.dedup_by(|a, b| a.name == b.name && a.layer == b.layer);
        let mut candidates = Vec::with_capacity(names.len());
        let mut dirs: Vec<(u32, Arc<Dir>)> = Vec::new();
        let mut lost = Vec::new();
        for name in &names {
            if dirs.iter().any(|&(layer, _)| layer == name.layer) || lost.contains(&name.layer) {
                continue;
            }
            match self.handle.open_layer(name.layer) {
                Ok(dir) => dirs.push((name.layer, dir)),
                Err(error) => {
                    lost.push(name.layer);
                    self.problem(None, WalkOperation::ReadDirectory, error);
                }
            }
        }

        let dir_of =
            |name: &Name| dirs.iter().find(|&&(layer, _)| layer == name.layer).map(|(_, dir)| &**dir);
        let stats = stat_in_disk_order(&names, dir_of);
        for (name, stat) in names.into_iter().zip(stats) {
            let Some((dir, stat)) = dir_of(&name).zip(stat) else { continue };
            match stat {
                Ok(metadata) => {
                    if let Some(entry) = self.take(dir, name.layer, name.name, metadata) {
                        candidates.push((entry, name.layer));
                    }
                }
                Err(_) if self.excludes(&name.name, false) && self.excludes(&name.name, true) => {}
                Err(error) => self.problem(Some(&name.name), WalkOperation::Stat, error),
            }
        }

        self.merge(candidates);
    }

    fn take(&mut self, dir: &Dir, layer: u32, name: Component, metadata: Metadata) -> Option<WalkedEntry> {
        let follow = self.handle.shared().options.follow;
        let (metadata, followed) = match follow.target(dir, || self.path.depth(), &name, &metadata) {
            Ok(None) => (metadata, None),
            Ok(Some(target)) => (target, Some(Target::of(&target))),
            Err(_) if self.excludes(&name, false) && self.excludes(&name, true) => return None,
            Err((operation, error)) => {
                self.problem(Some(&name), operation, error);
                return None;
            }
        };
        if self.excludes(&name, metadata.kind == Kind::Dir) {
            return None;
        }
        if let Err(error) = self.refuse_endless(layer, &metadata, followed) {
            self.problem(Some(&name), WalkOperation::FollowLink, error);
            return None;
        }
        if metadata.origin == Origin::Damaged {
            self.problem(Some(&name), WalkOperation::Stat, fake_super::damaged());
            return None;
        }
        let link_target = match metadata.kind {
            Kind::Symlink => match dir.read_link(&name) {
                Ok(target) => Some(target),
                Err(error) => {
                    self.problem(Some(&name), WalkOperation::ReadLink, error);
                    return None;
                }
            },
            _ => None,
        };
        Some(WalkedEntry { name, metadata, link_target, followed })
    }

    /// Refuses a directory that a walk through links could enter without end.
    fn refuse_endless(&self, layer: u32, found: &Metadata, followed: Option<Target>) -> io::Result<()> {
        let options = &self.handle.shared().options;
        if found.kind != Kind::Dir || !options.recursive || !options.follow.any() {
            return Ok(());
        }

        let by_link = followed.is_some() || self.handle.is_behind_link();
        if by_link && self.handle.shared().bars(Target::of(found)) {
            return Err(rustix::io::Errno::LOOP.into());
        }
        // Real directories form no circles.
        followed.map_or(Ok(()), |directory| refuse_circle(&self.handle, layer, directory))
    }

    fn excludes(&mut self, name: &Component, is_dir: bool) -> bool {
        self.within.excludes(&self.handle.shared().options.filter, name.as_bytes(), is_dir)
    }

    /// Merges runs of equal names. Of the layers, which are numbered in the order of the operands,
    /// the first wins, except that directories are joined and win over non-directories.
    fn merge(&mut self, candidates: Vec<(WalkedEntry, u32)>) {
        self.entries.reserve(candidates.len());
        let mut directories = Vec::new();
        let mut rest = candidates.into_iter().peekable();

        while let Some((mut winner, mut layer)) = rest.next() {
            directories.clear();
            if winner.metadata.kind == Kind::Dir {
                directories.push((layer, winner.metadata, winner.followed.is_some()));
            }
            while let Some((next, of)) = rest.next_if(|(next, _)| next.name == winner.name) {
                if next.metadata.kind != Kind::Dir {
                    continue;
                }
                directories.push((of, next.metadata, next.followed.is_some()));
                if winner.metadata.kind != Kind::Dir {
                    (winner, layer) = (next, of);
                }
            }
            if !directories.is_empty() && !self.child(&winner.name, &directories) {
                continue;
            }
            // Whatever its type, because attributes are read by name too.
            if !self.handle.layers().contains(&layer) {
                self.handle.shared().note_named(winner.name.clone(), layer);
            }
            self.entries.push(winner);
        }
    }

    /// Records a directory to walk, in all its layers. Returns `false` for one that is left out.
    fn child(&mut self, name: &Component, found: &[(u32, Metadata, bool)]) -> bool {
        let shared = self.handle.shared();
        let prunes = shared.options.prune;
        if !shared.options.recursive {
            // Nothing would be listed in it.
            return !(prunes && shared.options.dirs);
        }

        let mut layers: Vec<u32> = Vec::with_capacity(found.len());
        let mut seen: Vec<(u64, u64)> = Vec::with_capacity(found.len());
        let mut partly = false;
        let mut passed = Vec::new();
        for &(layer, metadata, by_link) in found {
            let device = shared.layer(layer).map(|layer| layer.device);
            if shared.options.one_file_system && device != Some(metadata.dev) {
                partly = true;
                continue;
            }
            // The same operand given twice is one directory, not two.
            let identity = (metadata.dev, metadata.ino);
            if !seen.contains(&identity) {
                seen.push(identity);
                layers.push(layer);
                if shared.options.follow.any() {
                    passed.push(Passed { layer, directory: Target::of(&metadata), by_link });
                }
            }
        }

        if prunes && layers.iter().all(|&layer| self.is_barren(layer, name)) {
            return false;
        }

        let inherited = self.handle.layers();
        let layers = if layers == **inherited { Arc::clone(inherited) } else { layers.into() };
        let (parent, depth) = (self.handle.clone(), self.depth + 1);
        let (name, passed) = (name.clone(), passed.into_boxed_slice());
        self.children.push(Child { parent, name, layers, passed, partly, depth });
        true
    }

    /// Returns whether a directory holds nothing but directories in one layer.
    fn is_barren(&self, layer: u32, name: &Component) -> bool {
        let shared = self.handle.shared();
        let above = self.handle.open_layer(layer);
        above.is_ok_and(|above| shared.looks.is_barren(shared, (&above, layer), &self.path, name))
    }

    fn problem(&mut self, name: Option<&Component>, operation: WalkOperation, error: io::Error) {
        // A name that is gone, or a link that leads nowhere, is known to be absent; anything else
        // leaves a gap.
        let is_circle = operation == WalkOperation::FollowLink
            && error.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error());
        let is_gone = error.kind() == io::ErrorKind::NotFound || is_circle;
        if name.is_none() || !is_gone {
            self.complete = false;
        }
        let path = name.map_or_else(|| self.path.clone(), |name| self.path.join(name));
        self.problems.push(WalkProblem { path, operation, error });
    }

    fn done(self, last: bool) -> Done<WalkJob> {
        // Of a whole directory the next ones are known; those of a part follow its last part.
        let weight = self.entries.len() + 1;
        let walked = WalkedDir {
            path: self.path,
            dir: self.handle,
            entries: self.entries,
            last,
            complete: self.complete,
            problems: self.problems,
        };
        let (children, then) =
            if self.whole { (Vec::new(), self.children) } else { (self.children, Vec::new()) };
        let then = then.into_iter().map(WalkJob::Child).collect();
        Done { output: Some(Part { walked, children }), weight, then }
    }
}

/// Depth of the deepest listed entry, and of the first directory that is not walked. Bounds the
/// memory of a walk through a tree made to exhaust it. The other end refuses anything deeper
/// (`MAX_PATH_DEPTH` of the wire).
pub(super) const MAX_DEPTH: u32 = 4096;
