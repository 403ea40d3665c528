//! Refusals of what nobody means: a tree copied into itself or deleted before it is copied, a home
//! directory or `/` that is emptied.
//!
//! Only a local run can copy a tree into itself, or remove its own source. A destination inside the
//! source is fine when the filters exclude it, the usual way to keep backups within the tree that
//! they are of, or when it is on another filesystem that the walk does not enter.

use std::{
    ffi::OsStr,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    sync::Arc,
};

use dsync_fs::{
    Component, Dir, FileList, FilterSet, OperandForm, RelPath, RelativeForm, Scope, Spelling, Subject,
    home_directory,
};
use dsync_wire::options::SyncOptions;

use crate::{SyncError, rules::Filters, spelled::in_tree};

/// Refuses to delete in `/` or the user's home directory.
pub(crate) fn refuse_precious(path: &Path, root: &Dir) -> Result<(), SyncError> {
    let is = |other: &Dir| root.is_same(other).unwrap_or(false);
    let home = home().is_some_and(|home| is(&home));
    let top = Dir::open_operand(Path::new("/")).is_ok_and(|top| is(&top));
    if home || top {
        return Err(SyncError::DestinationPrecious { path: path.to_owned(), home });
    }
    Ok(())
}

/// Opens the user's home directory, if there is one.
pub(crate) fn home() -> Option<Dir> {
    Dir::open_operand(&home_directory()?).ok()
}

/// The sources of a local run.
#[derive(Clone, Copy)]
pub(crate) struct Sources<'a> {
    pub(crate) paths: &'a [PathBuf],
    /// The paths to copy below the only source, if there is a list.
    pub(crate) list: Option<&'a FileList>,
    /// The character sets of their names.
    pub(crate) spelling: Option<Spelling>,
}

/// Refuses a local run that would copy a tree into itself, or delete one of its sources.
pub(crate) fn refuse(
    sources: Sources<'_>,
    destination: &Path,
    filters: &Filters,
    options: &SyncOptions,
) -> Result<(), SyncError> {
    refuse_self_copy(sources, destination, &filters.source, options)?;
    refuse_doomed_source(sources, destination, &filters.destination, options)
}

/// Refuses a local run whose destination is, or lies inside, one of its sources.
fn refuse_self_copy(
    sources: Sources<'_>,
    destination: &Path,
    filter: &FilterSet,
    options: &SyncOptions,
) -> Result<(), SyncError> {
    // A path that cannot be opened or located fails, or is made, later.
    let Some(landing) = Landing::of(destination) else { return Ok(()) };

    for source in sources.paths {
        let (Ok(form), Some(place)) =
            (OperandForm::of(source), place_of(&in_tree(source, sources.spelling), options))
        else {
            continue;
        };
        let Ok(tree) = tree_of(&form, options) else { continue };
        let Some(inside) = landing.inside(&tree, options.one_file_system) else { continue };
        let inside = in_tree(&inside, sources.spelling);
        // A line below the directory that holds the destination names nothing of it.
        let is_listed = sources.list.is_none_or(|list| {
            let covers = |path: RelPath| !path.is_root() && list.paths().covers(&path);
            list.is_contents_on_the_way(&inside) || rel_path(&inside).is_some_and(covers)
        });
        // Without recursion a directory is made, and not entered.
        let is_itself = matches!(form, OperandForm::Contents(_)) && inside.as_os_str().is_empty();
        let is_entered = options.recursive || is_itself;
        let within = Within { place: &place, below: &inside };
        // Where paths start under `relative`, the operand does not tell.
        let ground = || if options.relative { None } else { ground_of(&form, tree) };
        if is_listed && is_entered && !within.is_left_out(filter, ground) {
            let path = destination.to_owned();
            return Err(if is_itself {
                SyncError::DestinationIsSource { path }
            } else {
                SyncError::DestinationInsideSource { path }
            });
        }
    }

    Ok(())
}

/// Refuses a local run that would delete one of its sources: one that lies where extraneous entries
/// are removed.
///
/// A source that a filter keeps from deletion is safe, and so is one on another filesystem under
/// `one_file_system`. Removal at the end of the run is no better than before: entries that the run
/// does not copy are lost then.
fn refuse_doomed_source(
    Sources { paths: sources, list, spelling }: Sources<'_>,
    destination: &Path,
    filter: &FilterSet,
    options: &SyncOptions,
) -> Result<(), SyncError> {
    if !options.delete {
        return Ok(());
    }

    let forms: Vec<_> =
        sources.iter().filter_map(|source| Some((source, OperandForm::of(source).ok()?))).collect();
    for (operand, _) in &forms {
        // The directory that the operand stands for at the destination: it loses the entries that
        // the operand does not have.
        let Some(place) = place_of(&in_tree(operand, spelling), options) else { continue };
        let Ok(root) = Dir::open_operand(destination).and_then(|root| root.open_beneath(&place)) else {
            continue;
        };
        for (source, form) in &forms {
            let Some(within) =
                whereabouts(form, options).and_then(|here| here.inside(&root, options.one_file_system))
            else {
                continue;
            };
            // The run may bring other files of rules, and what rules leave of a source would go.
            let inside = Within { place: &place, below: &within };
            let is_kept = inside.is_excluded(|path, is_dir| filter.surely_excludes(path, is_dir));
            let kept = !options.delete_excluded && is_kept;
            // Entries go only from directories that a line stands for.
            let spared = list.is_some_and(|list| {
                let covers = |path: RelPath| !path.is_root() && list.paths().covers(&path);
                !list.is_contents() && !rel_path(&within).is_some_and(covers)
            });
            let kept = kept || spared;
            if within.components().next().is_some() && !kept {
                return Err(SyncError::SourceInsideDestination { path: (*source).clone() });
            }
        }
    }

    Ok(())
}

/// Opens the tree of a source: the directory that it is, or with an option that follows links the one that it
/// leads to. A link that is copied as a link has none.
fn tree_of(form: &OperandForm, options: &SyncOptions) -> std::io::Result<Dir> {
    match form {
        OperandForm::Contents(path) => Dir::open_operand(path),
        OperandForm::Entry { parent, name }
            if options.copy_links || options.copy_dirlinks || options.copy_unsafe_links =>
        {
            Dir::open_operand(&parent.join(OsStr::from_bytes(name.as_bytes())))
        }
        OperandForm::Entry { parent, name } => {
            Dir::open_operand(parent).and_then(|parent| parent.open_child(name))
        }
    }
}

/// Returns the place of a source that exists; of an entry that is no directory, the directory that
/// it is in.
fn whereabouts(form: &OperandForm, options: &SyncOptions) -> Option<Landing> {
    let dir = match (tree_of(form, options), form) {
        (Ok(dir), _) => dir,
        (Err(_), OperandForm::Entry { parent, .. }) => Dir::open_operand(parent).ok()?,
        (Err(_), OperandForm::Contents(_)) => return None,
    };
    Some(Landing { dir, rest: PathBuf::new() })
}

/// Returns the path of a source below the transfer's root; `None` for one that cannot be copied.
fn place_of(source: &Path, options: &SyncOptions) -> Option<RelPath> {
    if options.relative {
        return Some(RelativeForm::of(source.as_os_str().as_bytes()).ok()?.path);
    }
    Some(match OperandForm::of(source).ok()? {
        OperandForm::Contents(_) => RelPath::root(),
        OperandForm::Entry { name, .. } => name.into(),
    })
}

/// Returns a path below a tree as one that a list can have.
fn rel_path(path: &Path) -> Option<RelPath> {
    let mut below = RelPath::root();
    for step in path.components() {
        below.push(&Component::new(step.as_os_str().as_bytes()).ok()?);
    }
    Some(below)
}

/// Returns the root of the tree that an operand's paths start in, and whether they start with its name.
fn ground_of(form: &OperandForm, tree: Dir) -> Option<(Arc<Dir>, bool)> {
    match form {
        OperandForm::Contents(_) => Some((Arc::new(tree), false)),
        OperandForm::Entry { parent, .. } => Some((Arc::new(Dir::open_operand(parent).ok()?), true)),
    }
}

/// A path below that of an operand.
struct Within<'a> {
    place: &'a RelPath,
    below: &'a Path,
}

impl Within<'_> {
    /// Returns whether rules leave out the path, a directory on the way to it, or all that it holds. Files
    /// of rules are read on the way from `ground`, as [`ground_of`] returns it.
    fn is_left_out(&self, filter: &FilterSet, ground: impl FnOnce() -> Option<(Arc<Dir>, bool)>) -> bool {
        let surely = |path: &[u8], is_dir: bool| filter.surely_excludes(path, is_dir);
        if self.is_excluded(surely) || self.is_emptied(surely) {
            return true;
        }
        let Some((root, named)) = ground().filter(|_| filter.has_files()) else { return false };
        let mut filter = filter.clone();
        if filter.read_above(&root, None, named).is_err() {
            return false;
        }
        let top = Scope::begin(&filter, Some(&root), named);
        // Those of the root itself are read already where its entries are named.
        let top = if named { Ok(top) } else { top.enter(&root, &RelPath::root()) };
        top.is_ok_and(|top| {
            // Not those in it: the run may bring others.
            self.is_excluded(|path, is_dir| {
                let scope = scope_of(&top, &root, path);
                scope.is_some_and(|scope| scope.excludes(Subject { path, is_dir, perishing: false }))
            })
        })
    }

    /// Returns whether `excludes` says so of the path, or of a directory on the way to it.
    fn is_excluded(&self, excludes: impl Fn(&[u8], bool) -> bool) -> bool {
        let mut path = self.place.as_bytes().to_vec();
        self.below.components().any(|step| {
            step_on(&mut path, step.as_os_str().as_bytes());
            excludes(&path, true)
        })
    }

    /// Returns whether `excludes` says so of any name in the directory of the path: of one that nobody has, and
    /// of the one that a copy into itself would make.
    fn is_emptied(&self, excludes: impl Fn(&[u8], bool) -> bool) -> bool {
        let mut path = self.place.as_bytes().to_vec();
        for step in self.below.components() {
            step_on(&mut path, step.as_os_str().as_bytes());
        }
        let first = path.split(|&byte| byte == b'/').next().unwrap_or_default();

        !path.is_empty()
            && [first, NOBODYS].iter().all(|name| {
                let mut child = path.clone();
                step_on(&mut child, name);
                excludes(&child, true) && excludes(&child, false)
            })
    }
}

/// Adds a name to a path.
fn step_on(path: &mut Vec<u8>, name: &[u8]) {
    if !path.is_empty() {
        path.push(b'/');
    }
    path.extend_from_slice(name);
}

/// Returns the rules in force in the directory that holds `path`; `None` if they cannot be read.
fn scope_of(top: &Scope, root: &Arc<Dir>, path: &[u8]) -> Option<Scope> {
    let (mut scope, mut dir, mut here) = (top.clone(), Some(Arc::clone(root)), RelPath::root());
    let mut names: Vec<_> = path.split(|&byte| byte == b'/').collect();
    names.pop();
    for name in names {
        let name = Component::new(name).ok()?;
        here.push(&name);
        dir = dir.and_then(|dir| dir.open_child(&name).ok()).map(Arc::new);
        scope = match &dir {
            Some(dir) => scope.enter(dir, &here).ok()?,
            None => scope.below(),
        };
    }
    Some(scope)
}

/// A name that no pattern is made for.
const NOBODYS: &[u8] = b"~ 2c1d9f7be0 ~";

/// The place where the destination is, or will be.
struct Landing {
    /// The nearest directory that exists.
    dir: Dir,
    /// The components that are missing below it.
    rest: PathBuf,
}

impl Landing {
    fn of(destination: &Path) -> Option<Self> {
        if let Ok(dir) = Dir::open_operand(destination) {
            return Some(Self { dir, rest: PathBuf::new() });
        }
        let parent = match destination.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        let above = if parent == destination { return None } else { Self::of(parent)? };
        Some(Self { rest: above.rest.join(destination.file_name()?), dir: above.dir })
    }

    /// Returns the landing's path below a tree that it lies in, as the tree's walk would reach it
    /// or as the filesystem has it: a tree that is mounted twice holds itself.
    fn inside(&self, tree: &Dir, one_file_system: bool) -> Option<PathBuf> {
        let entered = !one_file_system || self.dir.device().ok() == tree.device().ok();
        let visible = || {
            let (landing, tree) = (self.dir.real_path().ok()?, tree.real_path().ok()?);
            Some(landing.strip_prefix(tree).ok()?.join(&self.rest))
        };
        let physical = || {
            let (landing, tree) = (self.dir.location().ok()?, tree.location().ok()?);
            let same = landing.filesystem == tree.filesystem;
            same.then_some(landing.path.strip_prefix(tree.path).ok()?.join(&self.rest))
        };
        // Through one mount the filesystem has no other paths than the walk: reading the table of mounts,
        // for each source anew, would find nothing else.
        let is_one_mount =
            || matches!((self.dir.mount(), tree.mount()), (Ok(one), Ok(other)) if one == other);
        visible().filter(|_| entered).or_else(|| if is_one_mount() { None } else { physical() })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::disallowed_methods)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_is_not_copied_into_itself() {
        let scratch = tempfile::tempdir().unwrap();
        let at = |path: &str| scratch.path().join(path);
        std::fs::create_dir_all(at("src/sub")).unwrap();
        std::fs::create_dir_all(at("src-2")).unwrap();
        let none = FilterSet::default();
        let refused = |source: &str, destination: &str, filter: &FilterSet| {
            refuse_self_copy(
                Sources { paths: &[at(source)], list: None, spelling: None },
                &at(destination),
                filter,
                &SyncOptions::default().recursive(true),
            )
            .is_err()
        };
        assert!(refused("src/", "src", &none));
        assert!(refused("src/", "src/sub", &none));
        assert!(refused("src", "src/sub/not/yet", &none));
        assert!(!refused("src/", "src-2", &none), "a common prefix is not a parent");
        assert!(!refused("src/sub/", "src", &none), "copying upwards ends");
        assert!(!refused("src", ".", &none), "a tree onto itself changes nothing");
        let filter = FilterSet::compile(&[(false, b"/sub")]).unwrap();
        assert!(!refused("src/", "src/sub", &filter), "excluded");
        let content = FilterSet::compile(&[(false, b"/sub/*")]).unwrap();
        assert!(!refused("src/", "src/sub", &content), "all that it holds is excluded");
        for part in [&[(false, &b"/sub/*.o"[..])][..], &[(true, b"/sub/sub"), (false, b"/sub/*")]] {
            let part = FilterSet::compile(part).unwrap();
            assert!(refused("src/", "src/sub", &part), "not all is excluded");
        }
    }
}
