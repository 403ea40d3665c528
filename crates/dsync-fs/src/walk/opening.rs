//! Operands, and the paths of a list, while they are opened.

use std::{
    collections::HashMap,
    ffi::OsStr,
    io,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    sync::Arc,
};

use rustix::io::Errno;

use super::{
    MAX_READY, OperandProblem, Walk, WalkError, WalkRuling,
    dir_ref::{DirRef, Layer, Shared, Step},
    following::leads_nowhere,
    is_missing,
    prune::Looks,
    reading::{Listed, Root, WalkJob},
    terms::{WalkOperation, WalkOptions},
};
use crate::{
    component::{Component, RelPath},
    dir::Dir,
    filter::{FilterSet, Scope, Subject},
    metadata::{Kind, Metadata},
    operand::OperandForm,
    operand_paths::{InvalidRelative, Naming, PathSorter, RelativeForm},
    read_ahead::ReadAhead,
    spool::SpoolError,
};

/// Operands being opened.
#[derive(Default)]
pub(super) struct Opening {
    pub(super) layers: Vec<Layer>,
    /// Layers that stand for the root's contents, in the order of the operands.
    pub(super) contents: Vec<Listed>,
    pub(super) named: Vec<Named>,
    /// The paths of a relative walk's operands, or of a list.
    pub(super) paths: PathSorter,
    /// Whether the last of them is a file of the root.
    pub(super) single: bool,
    pub(super) skipped: Vec<RelPath>,
    pub(super) rulings: Vec<WalkRuling>,
    /// The directory of a list and its path: where the bases of lines are.
    pub(super) list: Option<(Dir, PathBuf)>,
    /// The layers of bases.
    pub(super) bases: HashMap<PathBuf, u32>,
    pub(super) looks: Looks,
    pub(super) root: Option<(Metadata, Arc<Dir>)>,
    pub(super) problems: Vec<OperandProblem>,
    /// Handles of parent directories: operands of one directory, as a shell's `*` makes them, share
    /// one.
    pub(super) parents: HashMap<PathBuf, Arc<Dir>>,
}

/// An entry that an operand names.
pub(super) struct Named {
    pub(super) name: Component,
    pub(super) layer: u32,
    pub(super) kind: Kind,
}

/// The outcome of opening an operand.
pub(super) type Opened = Result<(), Unopened>;

/// The reason why an operand is not walked.
pub(super) struct Unopened {
    /// The path that is missing.
    pub(super) missing: Option<RelPath>,
    /// The operation that failed: `Stat`, or `FollowLink` for a link that is there.
    pub(super) operation: WalkOperation,
    pub(super) error: io::Error,
}

impl Unopened {
    /// Returns whether nothing has that name.
    fn is_missing(&self) -> bool {
        self.operation != WalkOperation::FollowLink && is_missing(&self.error)
    }

    /// Returns whether rules leave out a link that cannot be followed, whatever it leads to. One that
    /// leads nowhere is no directory.
    fn is_left_out(&self, mut excludes: impl FnMut(bool) -> bool) -> bool {
        self.operation == WalkOperation::FollowLink
            && excludes(false)
            && (leads_nowhere(self.operation, &self.error) || excludes(true))
    }
}

impl From<io::Error> for Unopened {
    fn from(error: io::Error) -> Self {
        Self { missing: None, operation: WalkOperation::Stat, error }
    }
}

impl Opening {
    /// Returns the walk over what was opened.
    pub(super) fn walk(self, options: WalkOptions) -> Result<Walk, WalkError> {
        let paths = self.paths.seal()?;
        let all = 0..paths.len();
        let named_count = match self.named.as_slice() {
            [] => paths.names(&RelPath::root(), all.clone()).count(),
            named => {
                let mut names: Vec<_> = named.iter().map(|named| named.name.as_bytes()).collect();
                names.extend(paths.names(&RelPath::root(), all.clone()));
                names.sort_unstable();
                names.dedup();
                names.len()
            }
        };

        let is_whole = self.problems.iter().all(|problem| options.may_miss && problem.is_missing());
        let complete = options.takes_directories() && !self.contents.is_empty() && is_whole;
        let mut ahead = ReadAhead::new(options.readers, MAX_READY);
        let shared = Arc::new(Shared::new(self.layers, paths, self.looks, options));
        // Also the bases of paths; they are not listed.
        let mut layers: Vec<_> = self.contents.iter().map(|listed| listed.layer).collect();
        layers.extend(shared.paths.layers());
        layers.sort_unstable();
        layers.dedup();
        let several = layers.len() > 1 && !shared.paths.is_empty();
        let steps: Vec<_> = layers.into_iter().map(|layer| Step { layer, by_path: several }).collect();
        let handle = DirRef::root(shared, steps.into());

        let named = self.named.into_iter().map(|named| (named.name, named.layer)).collect();
        let (listed, planned) = (self.contents.into(), (!all.is_empty()).then_some(all));
        ahead.push(std::iter::once(WalkJob::Root(Root { handle, named, listed, planned, complete })));
        Ok(Walk {
            root: self.root,
            named_count: u32::try_from(named_count).unwrap_or(u32::MAX),
            single_file: false,
            problems: self.problems,
            skipped: self.skipped,
            rulings: self.rulings,
            lost: None,
            ahead,
            children: Vec::new(),
            complete: true,
        })
    }

    /// Opens an operand that puts an entry, or the contents of a directory, into the root.
    pub(super) fn plain(
        &mut self,
        index: usize,
        operand: &Path,
        options: &WalkOptions,
    ) -> Result<Opened, WalkError> {
        let form = OperandForm::of(operand).and_then(|form| form.spelled(options.spelling.as_ref()));
        let form = form.map_err(|source| WalkError::InvalidOperand { index, source })?;
        options.watch_operand(operand, matches!(form, OperandForm::Contents(_)));
        Ok(match form {
            OperandForm::Contents(path) => self.contents(&path, options).map_err(Unopened::from),
            OperandForm::Entry { parent, name } => {
                self.entry(&parent, name.clone(), options).map_err(|unopened| {
                    let missing = self.parents.contains_key(&parent) && unopened.is_missing();
                    Unopened { missing: missing.then_some(name.into()), ..unopened }
                })
            }
        })
    }

    /// Opens an operand that brings its path with it.
    pub(super) fn relative(
        &mut self,
        index: usize,
        operand: &Path,
        options: &WalkOptions,
    ) -> Result<Opened, WalkError> {
        let form = RelativeForm::of(operand.as_os_str().as_bytes());
        let form =
            form.and_then(|form| form.spelled(options.spelling.as_ref())).map_err(|error| match error {
                InvalidRelative::Upwards => WalkError::Upwards { index },
                InvalidRelative::Name(source) => WalkError::InvalidOperand { index, source },
            })?;
        options.watch_operand(operand, form.contents || form.path.is_root());
        let base = Path::new(OsStr::from_bytes(&form.base));
        if form.path.is_root() {
            return Ok(self.contents(base, options).map_err(Unopened::from));
        }
        if form.from_root {
            self.root_on_the_way(base, options);
        }
        self.path(base, &form, options)
    }

    /// Adds the path of an operand, or of a list's line, if there is something to copy.
    pub(super) fn path(
        &mut self,
        base: &Path,
        form: &RelativeForm,
        options: &WalkOptions,
    ) -> Result<Opened, WalkError> {
        let &RelativeForm { ref path, mut contents, .. } = form;
        let (Some(name), Some(above)) = (path.file_name(), path.parent()) else { return Ok(Ok(())) };
        let layer = match self.base_layer(base, options) {
            Ok(layer) => layer,
            Err(error) => return Ok(Err(error.into())),
        };
        let parent = match self.way(base, (layer, &above), options) {
            Ok(parent) => parent,
            Err(error) => return self.lost(path, layer, error.into(), options),
        };

        let by_name = || target_of(&parent, above.depth(), &name, options);
        let as_directory = || self.open_way(layer, path, options).and_then(|dir| dir.metadata());
        let found = match contents.then(as_directory) {
            // As rsync: a slash counts for nothing after what leads to no directory.
            Some(Err(error)) if leads_to_no_directory(&error) => {
                contents = false;
                by_name()
            }
            Some(found) => found.map_err(Unopened::from),
            None => by_name(),
        };
        let found = match found {
            Ok(found) => found,
            Err(unopened) if unopened.is_left_out(|is_dir| self.excludes((path, layer), is_dir, options)) => {
                return Ok(Ok(()));
            }
            Err(unopened) => return self.lost(path, layer, unopened, options),
        };

        let is_dir = found.kind == Kind::Dir;
        if self.excludes((path, layer), is_dir, options) {
            return Ok(Ok(()));
        }
        if let Err(error) = options.check_names(path) {
            return Ok(Err(error.into()));
        }
        if is_dir && !options.takes_directories() {
            self.skipped.push(path.clone());
            return Ok(Ok(()));
        }
        self.single = !is_dir && above.is_root() && !form.contents;
        let is_barren = is_dir && options.prune && {
            let top = (&*parent, layer, found.dev);
            let scope = self.scope_of(layer);
            if contents || options.recursive {
                self.looks.is_barren(options, top, (&above, scope), &name)
            } else {
                !options.filter.protects_directory(path.as_bytes())
            }
        };
        self.keep(path, layer, (contents, is_barren), options).map(Ok).map_err(WalkError::Keep)
    }

    /// Keeps a path for the walk, unless it is pruned.
    fn keep(
        &mut self,
        path: &RelPath,
        layer: u32,
        (contents, is_barren): (bool, bool),
        options: &WalkOptions,
    ) -> Result<(), SpoolError> {
        // As with rsync, a rule that protects a directory keeps it, and those above it.
        if is_barren && !options.no_implied_dirs {
            let mut above =
                std::iter::successors(path.parent(), RelPath::parent).take_while(|way| !way.is_root());
            if let Some(way) = above.find(|way| options.filter.protects_directory(way.as_bytes())) {
                self.paths.push(&way, layer, Naming::Way)?;
            }
        }

        let naming = match (contents, is_barren) {
            (false, true) => return Ok(()),
            // Another operand of that path may not be barren: then this one's attributes count.
            (true, true) => Naming::Barren,
            (true, false) => Naming::Contents,
            (false, false) => Naming::Entry,
        };
        self.paths.push(path, layer, naming)
    }

    /// Returns the failure of a path. Of one that is missing, and counts, the directories are walked
    /// that are there: in them the destination removes it.
    fn lost(
        &mut self,
        path: &RelPath,
        layer: u32,
        unopened: Unopened,
        options: &WalkOptions,
    ) -> Result<Opened, WalkError> {
        if !unopened.is_missing() {
            return Ok(Err(unopened));
        }
        let above =
            || std::iter::successors(path.parent(), RelPath::parent).take_while(|path| !path.is_root());
        let there = |above: &RelPath| self.open_way(layer, above, options).is_ok();
        if options.missing_counts
            && let Some(above) = above().find(there)
        {
            self.paths.push(&above, layer, Naming::Way)?;
        }
        Ok(Err(Unopened { missing: Some(path.clone()), ..unopened }))
    }

    /// Adds the entries of a directory to those of the root.
    pub(super) fn contents(&mut self, path: &Path, options: &WalkOptions) -> io::Result<()> {
        self.contents_of(self.open_base(path, options)?, options)
    }

    /// Adds the entries of an open directory to those of the root.
    pub(super) fn contents_of(&mut self, base: Dir, options: &WalkOptions) -> io::Result<()> {
        let base = Arc::new(base);
        // As with rsync, one that may not be entered is no source. Its permissions, copied alone,
        // would lock the destination.
        let _ = base.reopen()?;
        let metadata = base.metadata()?;
        self.root.get_or_insert_with(|| (metadata, Arc::clone(&base)));
        if options.takes_directories() {
            let layer = self.layer(base, (false, false), &options.filter);
            self.contents.push(Listed { layer, device: metadata.dev });
        }
        Ok(())
    }

    /// Notes the directory in which a path starts as the root, whose attributes are then copied. One
    /// that cannot be opened is told of with the path.
    pub(super) fn root_on_the_way(&mut self, base: &Path, options: &WalkOptions) {
        // As with rsync it has the name "." to the rules.
        let is_left_out = options.no_implied_dirs || options.filter.excludes(b".", true);
        if self.root.is_some() || is_left_out || !options.takes_directories() {
            return;
        }
        let layer = self.base_layer(base, options).ok().and_then(|layer| usize::try_from(layer).ok());
        let dir = layer.and_then(|layer| self.layers.get(layer)).map(|layer| Arc::clone(&layer.base));
        self.root = dir.and_then(|dir| Some((dir.metadata().ok()?, dir)));
    }

    fn entry(&mut self, parent: &Path, name: Component, options: &WalkOptions) -> Result<(), Unopened> {
        let base = match self.parents.get(parent) {
            Some(base) => Arc::clone(base),
            None => {
                let base = Arc::new(options.open(parent)?);
                self.parents.insert(parent.to_path_buf(), Arc::clone(&base));
                base
            }
        };
        let scope = Scope::begin(&options.filter.without_files(), Some(&base), true);
        let excludes = |is_dir| scope.excludes(Subject { path: name.as_bytes(), is_dir, perishing: false });
        let metadata = match target_of(&base, 0, &name, options) {
            Err(unopened) if unopened.is_left_out(excludes) => return Ok(()),
            found => found?,
        };
        let is_dir = metadata.kind == Kind::Dir;
        if options.rulings.any() {
            self.judge(&RelPath::root().join(&name), is_dir, &scope, options);
        }
        if excludes(is_dir) {
            return Ok(());
        }

        options.check_names(&name.clone().into())?;
        if is_dir && !options.takes_directories() {
            self.skipped.push(name.into());
            return Ok(());
        }
        let layer = self.layer(base, (false, true), &options.filter);
        self.named.push(Named { name, layer, kind: metadata.kind });
        Ok(())
    }

    /// Returns whether the command's rules exclude the path of an operand, and notes that if wanted.
    fn excludes(&mut self, (path, layer): (&RelPath, u32), is_dir: bool, options: &WalkOptions) -> bool {
        let layer = usize::try_from(layer).ok().and_then(|layer| self.layers.get(layer));
        let scope = layer.map(|layer| layer.typed.clone()).unwrap_or_default();
        if options.rulings.any() {
            self.judge(path, is_dir, &scope, options);
        }
        scope.excludes(Subject { path: path.as_bytes(), is_dir, perishing: false })
    }

    /// Notes what the rules say of an entry that an operand names, if that is wanted.
    fn judge(&mut self, path: &RelPath, is_dir: bool, scope: &Scope, options: &WalkOptions) {
        let verdict = scope.verdict(Subject { path: path.as_bytes(), is_dir, perishing: false });
        self.rulings.extend(options.rulings.of_verdict(path.clone(), is_dir, verdict));
    }

    /// Opens the directory of a path below a base, which often is that of the path before.
    fn way(
        &mut self,
        base: &Path,
        (layer, above): (u32, &RelPath),
        options: &WalkOptions,
    ) -> io::Result<Arc<Dir>> {
        let path = base.join(OsStr::from_bytes(above.as_bytes()));
        if let Some(parent) = self.parents.get(&path) {
            return Ok(Arc::clone(parent));
        }
        let parent = Arc::new(self.open_way(layer, above, options)?);
        self.parents.clear();
        self.parents.insert(path, Arc::clone(&parent));
        Ok(parent)
    }

    fn scope_of(&self, layer: u32) -> Scope {
        let known = self.layers.get(usize::try_from(layer).unwrap_or(usize::MAX));
        known.map(|known| known.scope.clone()).unwrap_or_default()
    }

    fn open_way(&self, layer: u32, path: &RelPath, options: &WalkOptions) -> io::Result<Dir> {
        let base = self.layers.get(usize::try_from(layer).unwrap_or(usize::MAX));
        base.map_or_else(|| Err(io::ErrorKind::NotFound.into()), |layer| options.open_way(&layer.base, path))
    }

    /// Opens the directory in which paths begin.
    fn open_base(&self, base: &Path, options: &WalkOptions) -> io::Result<Dir> {
        let Some((dir, at)) = &self.list else { return options.open(base) };
        let below = base.strip_prefix(at).unwrap_or(base);
        let steps: Vec<_> = below.components().map(|step| step.as_os_str().as_bytes()).collect();
        let path = RelPath::parse(&steps.join(&b'/')).map_err(|_| Errno::INVAL)?;
        options.open_way(dir, &path)
    }

    /// Returns the layer of a base.
    pub(super) fn base_layer(&mut self, base: &Path, options: &WalkOptions) -> io::Result<u32> {
        if let Some(number) = self.bases.get(base) {
            return Ok(*number);
        }
        let opened = Arc::new(self.open_base(base, options)?);
        let layer = self.layer(opened, (true, true), &options.filter);
        self.bases.insert(base.to_path_buf(), layer);
        Ok(layer)
    }

    /// Adds a layer. There are at most as many as operands, whose number was checked.
    fn layer(&mut self, base: Arc<Dir>, (is_way, named): (bool, bool), filter: &FilterSet) -> u32 {
        let id = u32::try_from(self.layers.len()).unwrap_or(u32::MAX);
        let scope = Scope::begin(filter, Some(&base), named);
        let typed = is_way.then(|| Scope::begin(&filter.without_files(), Some(&base), true));
        let typed = typed.unwrap_or_default();
        self.layers.push(Layer { base, is_way, scope, typed });
        id
    }
}

/// Returns the attributes of an entry that an operand names, or of what it leads to.
fn target_of(dir: &Dir, depth: usize, name: &Component, options: &WalkOptions) -> Result<Metadata, Unopened> {
    let link = dir.stat(name)?;
    let target = options.follow.target(dir, || depth, name, &link, options.watch.as_ref());
    let target = target.map_err(|(operation, error)| Unopened {
        missing: None,
        // As with rsync, an operand is what it leads to where every link is followed.
        operation: if options.follow.all { WalkOperation::Stat } else { operation },
        error,
    })?;
    Ok(target.unwrap_or(link))
}

/// Returns whether the error says that there is no directory, or none behind a link. `ELOOP` does not:
/// it also stands for a link of another user's that is not followed.
fn leads_to_no_directory(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::NOTDIR | Errno::NOENT))
}
