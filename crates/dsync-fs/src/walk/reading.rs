//! One directory of a walk while it is read, in all its layers.

use std::{io, ops::Range, sync::Arc};

use super::{
    WalkProblem, WalkRuled, WalkRuling, WalkedDir, WalkedEntry,
    candidate::{By, Candidate, Found},
    choice::Choice,
    dir_ref::{DirRef, Step},
    following::{Passed, leads_nowhere, refuse_circle},
    terms::{MAX_DEPTH, WalkOperation, WalkOptions},
};
use crate::{
    component::{Component, RelPath},
    dir::{Dir, Target, stat_in_disk_order},
    fake_super,
    filter::{Scope, Subject, Within},
    listed_name::Name,
    metadata::Origin,
    metadata::{Kind, Metadata},
    names::{NameSorter, Names, SpooledNames},
    operand_paths::Naming,
    own_names::is_own_name,
    read_ahead::{Done, Job},
    spelling::{is_unspelled, unspellable},
    spool::SpoolError,
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
    /// The layers that are listed.
    pub(super) listed: Arc<[Listed]>,
    /// The paths that operands have below it.
    pub(super) planned: Option<Range<usize>>,
    pub(super) complete: bool,
}

/// A layer whose entries of a directory are listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Listed {
    pub(super) layer: u32,
    /// The filesystem of the operand.
    pub(super) device: u64,
}

/// A directory below the root.
pub(super) struct Child {
    parent: DirRef,
    name: Component,
    layers: Arc<[Step]>,
    listed: Arc<[Listed]>,
    planned: Option<Range<usize>>,
    /// Its identity in each layer, if links are followed.
    passed: Box<[Passed]>,
    /// The rules in force above, where files of rules are looked for.
    scopes: Scopes,
    /// Whether some layer's directory is not descended into.
    partly: bool,
    depth: u32,
}

/// Some names of a directory that has very many.
pub(super) struct Chunk {
    handle: DirRef,
    listed: Arc<[Listed]>,
    planned: Option<Range<usize>>,
    names: Arc<SpooledNames>,
    index: usize,
    depth: u32,
    scopes: Scopes,
    /// The end of reading the names, reported with the last chunk.
    ending: Option<Ending>,
}

/// The rules in force in each layer that has files of rules; none if no such files are looked for.
type Scopes = Option<Arc<[(u32, Scope)]>>;

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
            Self::Root(Root { handle, named, listed, planned, complete }) => {
                let mut reading = Reading::new(handle, (listed, planned), 0, (true, None));
                reading.complete = complete;
                reading.names_of_directory(named)
            }
            Self::Child(child) => {
                let handle =
                    child.parent.child(child.name, (child.layers, child.planned.is_some()), child.passed);
                let complete = !child.partly && !child.listed.is_empty();
                let mut reading =
                    Reading::new(handle, (child.listed, child.planned), child.depth, (true, child.scopes));
                reading.complete = complete;
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

            Self::Chunk(Chunk { handle, listed, planned, names, index, depth, scopes, ending }) => {
                let mut reading = Reading::new(handle, (listed, planned), depth, (false, scopes));
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

/// The layer of names that relative operands have, in place of those of the operands.
const PLANNED: u32 = u32::MAX;

/// A directory, or a part of it, while it is read.
struct Reading {
    handle: DirRef,
    listed: Arc<[Listed]>,
    /// The paths that operands have below it, or none.
    planned: Option<Range<usize>>,
    depth: u32,
    path: RelPath,
    /// Its entries as the filters see them.
    within: Within,
    scopes: Scopes,
    entries: Vec<WalkedEntry>,
    children: Vec<Child>,
    complete: bool,
    /// Whether rules left out an entry.
    left_out: bool,
    /// Whether all of a directory is read here, not a part.
    whole: bool,
    problems: Vec<WalkProblem>,
    rulings: Vec<WalkRuling>,
}

impl Reading {
    fn new(
        handle: DirRef,
        (listed, planned): (Arc<[Listed]>, Option<Range<usize>>),
        depth: u32,
        (whole, scopes): (bool, Scopes),
    ) -> Self {
        let path = handle.path();
        let within = Within::new(&handle.shared().options.filter, &path);
        let (entries, children, problems) = (Vec::new(), Vec::new(), Vec::new());

        Self {
            handle,
            listed,
            planned,
            depth,
            path,
            within,
            scopes,
            entries,
            children,
            complete: true,
            left_out: false,
            whole,
            problems,
            rulings: Vec::new(),
        }
    }

    /// Reads the names of all layers. Then reads the entries, or leaves them to jobs of their own.
    fn names_of_directory(mut self, named: Vec<(Component, u32)>) -> Done<WalkJob> {
        let mut sorter = NameSorter::new(&self.handle.shared().options.spools);
        let mut entered = Vec::new();
        for Listed { layer, .. } in Arc::clone(&self.listed).iter().copied() {
            let dir = match self.handle.open_layer(layer) {
                Ok(dir) => dir,
                Err(error) => {
                    self.problem(None, WalkOperation::ReadDirectory, error);
                    continue;
                }
            };
            // Before its files of rules are read, so that a change of them is seen.
            let watched = self.options().watch_directory(&dir);
            // Without its rules it is not known what of it takes part: then nothing does.
            let Some(scope) = self.enter(&dir, layer) else { continue };
            self.options().leave_out(watched, &dir, (&scope, &self.within));
            entered.extend(scope.reads_files().then_some((layer, scope)));
            self.names_of_layer(&dir, layer, &mut sorter);
        }

        if !self.problems.is_empty() {
            self.handle.be_unsure();
        }
        self.scopes = (!entered.is_empty()).then(|| entered.into());
        let mut named = named.into_iter().map(|(name, layer)| Name { name, layer, ino: 0 });
        let kept =
            named.try_for_each(|name| sorter.push(name)).and_then(|()| self.names_of_paths(&mut sorter));
        match kept.and_then(|()| sorter.finish()) {
            Ok(Names::Few(names)) => self.entries_of(names),
            Ok(Names::Many(names)) => return self.split(names),
            Err(error) => self.problem(None, WalkOperation::ReadDirectory, io::Error::other(error)),
        }
        self.done(true)
    }

    /// Adds the names that operands have here.
    fn names_of_paths(&self, sorter: &mut NameSorter) -> Result<(), SpoolError> {
        let Some(range) = self.planned.clone() else { return Ok(()) };
        let paths = &self.handle.shared().paths;
        let mut names = paths.names(&self.path, range).filter_map(|name| Component::new(name).ok());
        names.try_for_each(|name| sorter.push(Name { name, layer: PLANNED, ino: 0 }))
    }

    fn options(&self) -> &WalkOptions {
        &self.handle.shared().options
    }

    /// Notes what the rules say of an entry that is judged, if that is wanted.
    fn note_verdict(&mut self, name: &Component, layer: u32, is_dir: bool) {
        if !self.options().rulings.any() {
            return;
        }
        let path = self.path.join(name);
        let scope = self.scope_of(layer);
        let verdict = scope.verdict(Subject { path: path.as_bytes(), is_dir, perishing: false });
        let ruling = self.options().rulings.of_verdict(path, is_dir, verdict);
        self.rulings.extend(ruling);
    }

    /// Notes why a directory is not descended into, if that is wanted.
    fn note_directory(&mut self, name: &Component, why: WalkRuled) {
        let path = self.path.join(name);
        if self.options().rulings.explains(&path) {
            self.rulings.push(WalkRuling { path, is_dir: true, why });
        }
    }

    /// Reads a layer's files of rules. Returns the rules in force, if they are known.
    fn enter(&mut self, dir: &Dir, layer: u32) -> Option<Scope> {
        match self.scope_of(layer).enter(dir, &self.path) {
            Ok(scope) => Some(scope),
            Err(error) => {
                self.complete = false;
                self.problems.push(WalkProblem::of_rules(error));
                None
            }
        }
    }

    /// Returns the rules in force in a layer.
    fn scope_of(&self, layer: u32) -> Scope {
        let entered = self.scopes.iter().flat_map(|scopes| scopes.iter()).find(|(at, _)| *at == layer);
        match entered {
            Some((_, scope)) => scope.clone(),
            None => self.handle.shared().layer(layer).map(|layer| layer.scope.clone()).unwrap_or_default(),
        }
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
            let error = io::Error::from(rustix::io::Errno::NAMETOOLONG);
            self.problem(None, WalkOperation::ReadDirectory, error);
        }
    }

    /// Leaves the entries to a job for each chunk of names.
    fn split(self, names: SpooledNames) -> Done<WalkJob> {
        let names = Arc::new(names);
        let chunks = (0..names.chunk_count()).map(|index| Chunk {
            handle: self.handle.clone(),
            listed: Arc::clone(&self.listed),
            planned: self.planned.clone(),
            names: Arc::clone(&names),
            index,
            depth: self.depth,
            scopes: self.scopes.clone(),
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
            if name.layer == PLANNED
                || dirs.iter().any(|&(layer, _)| layer == name.layer)
                || lost.contains(&name.layer)
            {
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
        // Names of which a layer has an entry that is not taken; in the order of the names.
        let (several, mut passed_over) = (self.handle.layers().len() > 1, Vec::new());
        for (name, stat) in names.into_iter().zip(stats) {
            if name.layer == PLANNED {
                self.planned_entries(&name.name, &mut candidates);
                continue;
            }
            let Some((dir, stat)) = dir_of(&name).zip(stat) else { continue };
            let Name { name, layer, .. } = name;
            let other = several.then(|| name.clone());
            match self.take_listed(dir, layer, name, stat) {
                Some(entry) => {
                    passed_over.extend(other.filter(|_| entry.choice == Choice::Hide));
                    candidates.push(Candidate { entry, layer, by: By::Listing });
                }
                None => passed_over.extend(other),
            }
        }

        self.merge(candidates, &passed_over);
    }

    fn take_listed(
        &mut self,
        dir: &Dir,
        layer: u32,
        name: Component,
        stat: io::Result<Metadata>,
    ) -> Option<WalkedEntry> {
        match stat {
            Ok(metadata) => return self.take(dir, layer, name, metadata),
            Err(_) if [false, true].iter().all(|&is_dir| self.excludes(&name, layer, is_dir)) => {}
            Err(error) => self.problem(Some(&name), WalkOperation::Stat, error),
        }
        None
    }

    fn take(&mut self, dir: &Dir, layer: u32, name: Component, metadata: Metadata) -> Option<WalkedEntry> {
        let WalkOptions { follow, watch, .. } = &self.handle.shared().options;
        let found = follow.target(dir, || self.path.depth(), &name, &metadata, watch.as_ref());
        let (metadata, followed) = match found {
            Ok(None) => (metadata, None),
            Ok(Some(target)) => (target, Some(Target::of(&target))),
            Err((operation, error)) => {
                // A link that leads nowhere is no directory; of any other it is not known.
                let kinds: &[bool] = if leads_nowhere(operation, &error) { &[false] } else { &[false, true] };
                if !kinds.iter().all(|&is_dir| self.excludes(&name, layer, is_dir)) {
                    self.problem(Some(&name), operation, error);
                }
                return None;
            }
        };
        self.note_verdict(&name, layer, metadata.kind == Kind::Dir);
        if self.excludes(&name, layer, metadata.kind == Kind::Dir) {
            self.left_out = true;
            return None;
        }
        let choice = self.choose(&name, &metadata);
        if choice == Choice::Hide {
            return self.options().names_hidden.then(|| WalkedEntry::hidden(name, metadata));
        }
        if let Err(error) = self.refuse_endless(layer, &metadata, followed) {
            self.problem(Some(&name), WalkOperation::FollowLink, error);
            return None;
        }

        if let Some(error) = fault_of(dir, &name, &metadata) {
            self.problem(Some(&name), WalkOperation::Stat, error);
            return None;
        }
        let metadata = match self.content_of_device(dir, &name, metadata, followed) {
            Ok(metadata) => metadata,
            Err(error) => {
                self.problem(Some(&name), WalkOperation::OpenDevice, error);
                return None;
            }
        };
        let link_target = match metadata.kind {
            Kind::Symlink => match link_text(dir, &name) {
                Ok(target) => Some(target),
                Err(error) => {
                    self.problem(Some(&name), WalkOperation::ReadLink, error);
                    return None;
                }
            },
            _ => None,
        };
        Some(WalkedEntry {
            name,
            metadata,
            link_target,
            followed,
            is_walked: false,
            is_implied: false,
            choice,
        })
    }

    /// Returns the attributes of an entry as they are copied: of a device whose content is copied,
    /// those of a file.
    fn content_of_device(
        &self,
        dir: &Dir,
        name: &Component,
        metadata: Metadata,
        followed: Option<Target>,
    ) -> io::Result<Metadata> {
        let how = self.handle.shared().options.opening();
        if !how.devices || !metadata.is_device() {
            return Ok(metadata);
        }
        let opened = match followed {
            Some(target) => dir.open_target(name, target, how),
            None => dir.open_source_as(name, how),
        };
        opened.map(|device| *device.metadata())
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

    /// Reads the entries of a name that operands have.
    fn planned_entries(&mut self, name: &Component, candidates: &mut Vec<Candidate>) {
        let Some(range) = self.planned_below(name) else { return };
        let handle = self.handle.clone();
        let shared = handle.shared();
        let path = self.path.join(name);
        let before = candidates.len();
        let has = |candidates: &[Candidate], layer: u32, by: By| {
            candidates.iter().skip(before).any(|other| (other.layer, other.by) == (layer, by))
        };

        for item in shared.paths.paths(range) {
            let by = match item.naming {
                _ if item.path.len() > path.as_bytes().len() => By::Way,
                Naming::Entry => By::Name,
                Naming::Contents | Naming::Barren => By::Contents,
                Naming::Way => By::Way,
            };
            if has(candidates, item.layer, by) {
                // All that follow go on from here.
                if by == By::Way && shared.layers.len() == 1 {
                    break;
                }
                continue;
            }
            let layer = item.layer;
            let entry = match by {
                By::Name => self.entry_by_name(layer, name),
                _ => shared.open_by_path(layer, &path).and_then(|dir| dir.metadata()).map(|metadata| {
                    let name = name.clone();
                    let choice =
                        if by == By::Contents { self.choose(&name, &metadata) } else { Choice::Copy };
                    let hidden = choice == Choice::Hide;
                    let listed = !hidden || self.options().names_hidden;
                    listed.then(|| WalkedEntry { choice, ..WalkedEntry::hidden(name, metadata) })
                }),
            };
            match entry {
                Ok(entry) => candidates.extend(entry.map(|entry| Candidate { entry, layer, by })),
                Err(error) => self.problem(Some(name), WalkOperation::Stat, error),
            }
        }

        // Of entries of one name the first operand's wins, be it listed or named.
        let listed = candidates.iter().take(before).rev();
        let listed = listed.take_while(|candidate| candidate.entry.name == *name).count();
        if let Some(found) = candidates.get_mut(before - listed..) {
            found.sort_by_key(|candidate| candidate.layer);
        }
    }

    /// Reads an entry that an operand names.
    fn entry_by_name(&mut self, layer: u32, name: &Component) -> io::Result<Option<WalkedEntry>> {
        let dir = self.handle.open_layer(layer)?;
        let metadata = dir.stat(name)?;
        Ok(self.take(&dir, layer, name.clone(), metadata))
    }

    /// Returns the operands' paths at or below an entry.
    fn planned_below(&self, name: &Component) -> Option<Range<usize>> {
        let range = self.planned.clone()?;
        let below = self.handle.shared().paths.within(&self.path, name.as_bytes(), range);
        (!below.is_empty()).then_some(below)
    }

    /// Asks the judge about an entry that the rules leave.
    fn choose(&mut self, name: &Component, metadata: &Metadata) -> Choice {
        let Some(chooser) = &self.options().chooser else { return Choice::Copy };
        let choice = chooser.choose(self.path.join(name).as_bytes(), metadata);
        // Where nobody judges, nothing is known to be absent.
        self.complete &= choice.is_some();
        choice.unwrap_or(Choice::Hide)
    }

    fn excludes(&mut self, name: &Component, layer: u32, is_dir: bool) -> bool {
        let entered = self.scopes.iter().flat_map(|scopes| scopes.iter()).find(|(at, _)| *at == layer);
        // An entry that an operand names was judged when it was opened: files of rules around it
        // are for the entries of directories that take part.
        if entered.is_none() && !self.handle.layers().iter().any(|step| step.layer == layer) {
            return false;
        }
        // So was what a path has on its way, in the directory where the path begins.
        let base = || {
            let layer = self.handle.shared().layer(layer)?;
            Some(if layer.is_way && self.path.is_root() { &layer.typed } else { &layer.scope })
        };
        match entered.map(|(_, scope)| scope).or_else(base) {
            Some(scope) => self.within.excludes(scope, name.as_bytes(), is_dir),
            None => false,
        }
    }

    /// Merges runs of equal names. Of the layers, which are numbered in the order of the operands,
    /// the first wins, except that directories are joined and win over non-directories.
    ///
    /// A lookup by name finds the first layer's entry: where that was `passed_over`, the entry's layer
    /// is noted.
    fn merge(&mut self, candidates: Vec<Candidate>, passed_over: &[Component]) {
        self.entries.reserve(candidates.len());
        let mut directories = Vec::new();
        let mut rest = candidates.into_iter().peekable();

        while let Some(Candidate { entry: mut winner, mut layer, by }) = rest.next() {
            directories.clear();
            if winner.is_directory() {
                directories.push(Found::new(layer, by, &winner));
            }
            while let Some(next) = rest.next_if(|next| next.entry.name == winner.name) {
                // An entry that is hidden in one layer hides none of another.
                if winner.choice == Choice::Hide && next.entry.choice != Choice::Hide {
                    (winner, layer) = (next.entry, next.layer);
                    if winner.is_directory() {
                        directories.push(Found::new(layer, next.by, &winner));
                    }
                    continue;
                }
                if !next.entry.is_directory() {
                    continue;
                }
                directories.push(Found::new(next.layer, next.by, &next.entry));
                if winner.metadata.kind != Kind::Dir {
                    (winner, layer) = (next.entry, next.layer);
                }
            }
            if !directories.is_empty() {
                winner.is_implied = directories.iter().all(|found: &Found| found.by == By::Way);
                match self.child(&winner.name, &directories) {
                    Some(is_walked) => winner.is_walked = is_walked,
                    None => continue,
                }
            }
            // Whatever its type, because attributes are read by name too.
            if self.handle.needs_note(layer) || passed_over.binary_search(&winner.name).is_ok() {
                self.handle.shared().note_named(self.path.join(&winner.name), layer);
            }
            self.entries.push(winner);
        }
    }

    /// Records a directory to walk, in all its layers. Returns whether it is walked; `None` for one
    /// that is left out.
    fn child(&mut self, name: &Component, found: &[Found]) -> Option<bool> {
        let handle = self.handle.clone();
        let options = &handle.shared().options;
        let planned =
            found.iter().any(|found| found.by == By::Way).then(|| self.planned_below(name)).flatten();
        let enters = |found: &Found| match found.by {
            _ if found.alone => false,
            By::Listing | By::Name => options.recursive,
            By::Contents => true,
            By::Way => false,
        };
        if planned.is_none() && !found.iter().any(enters) {
            return self.not_entered(name, found);
        }

        let mut layers: Vec<Step> = Vec::with_capacity(found.len());
        let mut listed: Vec<Listed> = Vec::with_capacity(found.len());
        let mut seen: Vec<(u64, u64)> = Vec::with_capacity(found.len());
        let mut partly = false;
        let mut passed = Vec::new();
        for found in found {
            let &Found { layer, by, metadata, by_link, alone } = found;
            partly |= alone;
            let around = self.device_of(layer).filter(|_| by == By::Listing);
            if options.one_file_system && around.is_some_and(|around| around != metadata.dev) {
                partly = true;
                self.note_directory(name, WalkRuled::OtherFilesystem);
                continue;
            }

            // The same operand given twice is one directory, not two.
            let identity = (metadata.dev, metadata.ino);
            if enters(found) && seen.contains(&identity) {
                continue;
            }

            let by_path = matches!(by, By::Contents | By::Way);
            match layers.iter_mut().find(|step| step.layer == layer) {
                Some(step) => step.by_path &= by_path,
                None => layers.push(Step { layer, by_path }),
            }
            if enters(found) {
                seen.push(identity);
                listed.push(Listed { layer, device: metadata.dev });
                if options.follow.any() {
                    passed.push(Passed { layer, directory: Target::of(&metadata), by_link });
                }
            }
        }

        let is_planned = planned.clone().is_some_and(|range| !handle.shared().paths.is_barren(range));
        if let Some(left_out) = self.left_out(&listed, is_planned, name) {
            return left_out;
        }

        let (inherited, listing) = (self.handle.layers(), &self.listed);
        let layers = if layers == **inherited { Arc::clone(inherited) } else { layers.into() };
        let listed = if listed == **listing { Arc::clone(listing) } else { listed.into() };
        let scopes = self.scopes_of(&layers);
        let (parent, depth) = (self.handle.clone(), self.depth + 1);
        let (name, passed) = (name.clone(), passed.into_boxed_slice());
        self.children.push(Child { parent, name, layers, listed, planned, passed, scopes, partly, depth });
        Some(true)
    }

    /// Returns what [`child`](Self::child) returns of a directory in which nothing would be listed.
    fn not_entered(&mut self, name: &Component, found: &[Found]) -> Option<bool> {
        let alone = found.iter().any(|found| found.alone);
        if !alone {
            self.note_directory(name, WalkRuled::NotRecursive);
        }
        let options = self.options();
        let keeps = || options.filter.protects_directory(self.path.join(name).as_bytes());
        (!(options.prune && (alone || options.dirs && !options.recursive && !keeps()))).then_some(false)
    }

    /// Returns the rules in force above a directory of these layers, where files of rules are looked for.
    fn scopes_of(&self, layers: &[Step]) -> Scopes {
        let scoped = layers.iter().map(|step| (step.layer, self.scope_of(step.layer)));
        self.options().filter.has_files().then(|| scoped.collect())
    }

    /// Returns what [`child`](Self::child) returns of a directory that is left out, or not descended
    /// into although others would be.
    #[expect(clippy::option_option, reason = "the inner one is that of `child`")]
    fn left_out(&mut self, listed: &[Listed], is_planned: bool, name: &Component) -> Option<Option<bool>> {
        if !is_planned && self.is_pruned(listed, name) {
            return Some(None);
        }
        (!self.options().rulings.descends(&self.path.join(name))).then_some(Some(false))
    }

    /// Returns whether a directory is left out because it holds nothing but directories.
    fn is_pruned(&mut self, listed: &[Listed], name: &Component) -> bool {
        let barren = |&Listed { layer, device }: &Listed| self.is_barren((layer, device), name);
        let pruned = self.options().prune && listed.iter().all(barren);
        if pruned {
            self.note_directory(name, WalkRuled::Pruned);
        }
        pruned
    }

    /// Returns the filesystem of the operand of a layer that is listed here. An operand that names an entry
    /// here is on the entry's own.
    fn device_of(&self, layer: u32) -> Option<u64> {
        self.listed.iter().find(|listed| listed.layer == layer).map(|listed| listed.device)
    }

    /// Returns whether a directory holds nothing but directories in one layer.
    fn is_barren(&self, (layer, device): (u32, u64), name: &Component) -> bool {
        let shared = self.handle.shared();
        let above = self.handle.open_layer(layer);
        let is_barren = |above: &Dir| {
            shared.looks.is_barren(
                &shared.options,
                (above, layer, device),
                (&self.path, self.scope_of(layer)),
                name,
            )
        };
        above.is_ok_and(|above| is_barren(&above))
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
            left_out: self.left_out,
            problems: self.problems,
            rulings: self.rulings,
        };
        let (children, then) =
            if self.whole { (Vec::new(), self.children) } else { (self.children, Vec::new()) };
        let then = then.into_iter().map(WalkJob::Child).collect();
        Done { output: Some(Part { walked, children }), weight, then }
    }
}

/// Returns the reason why an entry cannot be listed: the note that stands for its attributes is damaged
/// or may not be read, or the other end has no spelling for its name.
fn fault_of(dir: &Dir, name: &Component, metadata: &Metadata) -> Option<io::Error> {
    match metadata.origin {
        Origin::Damaged => return Some(fake_super::damaged()),
        Origin::Unreadable => return Some(rustix::io::Errno::ACCESS.into()),
        Origin::Inode | Origin::Stored | Origin::Device => {}
    }
    (is_unspelled(name.as_bytes()) && dir.spelling().is_some()).then(unspellable)
}

/// Reads the text of a link that the other end can spell.
fn link_text(dir: &Dir, name: &Component) -> io::Result<Vec<u8>> {
    let target = dir.read_link(name)?;
    let lacks = is_unspelled(&target) && dir.spelling().is_some();
    if lacks { Err(unspellable()) } else { Ok(target) }
}
