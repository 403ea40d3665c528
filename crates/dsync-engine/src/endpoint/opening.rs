//! Opens what a source walks.

use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use dsync_fs::{
    Chooser, Dir, Explained, FileList, FilterSet, FollowLinks, LeadsOut, OperandProblem, Spelling, SpoolHome,
    TreeWatch, Walk, WalkError, WalkOperation, WalkOptions, WantedRulings,
};
use dsync_wire::options::SyncOptions;

use crate::{
    SyncError,
    batch::Recording,
    destination::asked,
    error::PathRole,
    source::{ListedFiles, Origin, Tree},
};

/// The surroundings of a source's operands.
#[derive(Default)]
pub(crate) struct Place<'a> {
    /// The directory where they start, if there is one that confines them.
    pub(crate) floor: Option<Arc<Dir>>,
    /// The destination of a local run, which is not entered through a link.
    pub(crate) barred: Option<&'a Path>,
    /// The character sets of their names.
    pub(crate) spelling: Option<Spelling>,
    /// The judge of their entries.
    pub(crate) chooser: Option<&'a Chooser>,
    /// The watch on what is read of them.
    pub(crate) watch: Option<&'a TreeWatch>,
}

/// Opens the source operands; a missing one is an error when it is the only one. With a list they
/// are the directory in which its paths begin.
pub(crate) fn open_tree(
    (paths, list): (&[PathBuf], Option<&FileList>),
    (options, filter): (&SyncOptions, FilterSet),
    (files, recording): (ListedFiles, Option<Recording>),
    spools: SpoolHome,
    Place { floor, barred, spelling, chooser, watch }: Place<'_>,
) -> Result<Tree, SyncError> {
    let walk_options = WalkOptions {
        recursive: options.recursive,
        dirs: options.dirs,
        prune: options.prune_empty_dirs,
        follow: followed(options),
        barred: barred.map(Path::to_path_buf),
        relative: options.relative,
        no_implied_dirs: options.no_implied_dirs,
        missing_counts: options.delete_missing_args,
        may_miss: options.ignores_missing_args(),
        one_file_system: options.one_file_system,
        filter: asked::listed_by(filter, options),
        readers: dsync_fs::default_readers(),
        open_noatime: options.open_noatime,
        copy_devices: options.copy_devices,
        fake_super: options.fake_super.source,
        rulings: WantedRulings { hidden: options.rulings, explained: Explained::of(&options.explain) },
        chooser: chooser.cloned(),
        names_hidden: options.names_hidden,
        spelling,
        spools,
        watch: watch.cloned(),
        floor,
    };

    let operands: Vec<&Path> = paths.iter().map(PathBuf::as_path).collect();
    let walk = match (list, operands.as_slice()) {
        (Some(list), [root]) => Walk::open_list(root, list, walk_options),
        _ => Walk::open(&operands, walk_options),
    };
    let walk = walk.map_err(|error| invalid(paths, error))?;
    let problems = walk.operand_problems();
    for problem in problems {
        if let Some(step) = LeadsOut::of(&problem.error) {
            let path = paths.get(problem.index).cloned().unwrap_or_default();
            return Err(SyncError::LeadsOut { role: PathRole::Source, path, step: step.clone() });
        }
    }

    match problems.first() {
        Some(problem)
            if problems.len() == paths.len()
                && !(may_be_none(options) && problems.iter().all(OperandProblem::is_missing)) =>
        {
            let path = paths.get(problem.index).cloned().unwrap_or_default();
            Err(unopened(path, (problem.operation, &problem.error)))
        }
        _ => {
            let is_one = list.is_none() && paths.len() == 1;
            let origin = Origin::Walk { operands: paths.to_vec(), walk: Box::new(walk), is_one };
            Ok(Tree { origin, files, recording, manifest: None, in_process: false })
        }
    }
}

/// Returns the error of operands that cannot be walked at all.
fn invalid(paths: &[PathBuf], error: WalkError) -> SyncError {
    let path = |index: usize| paths.get(index).cloned().unwrap_or_default();
    match error {
        WalkError::Root(error) => root_error(&path(0), error),
        WalkError::Keep(source) => SyncError::FileList { path: None, source: source.into() },
        WalkError::InvalidOperand { index, source } => SyncError::SourceUnreadable {
            path: path(index),
            source: io::Error::new(io::ErrorKind::InvalidInput, source),
        },
        WalkError::Upwards { index } => asked::upwards(&path(index)),
        _ => SyncError::InvalidOption { option: "sources", why: "are too many paths".to_owned() },
    }
}

/// Returns whether all operands may be missing. Where nothing matches wildcards, the pattern is told
/// like an entry that cannot be read, as rsync does.
fn may_be_none(options: &SyncOptions) -> bool {
    options.ignores_missing_args() || options.wildcards
}

/// Returns the operands that a source's operands stand for, if those have wildcards. Those of a list
/// stand for its one directory.
pub(crate) fn expanded(
    paths: Vec<PathBuf>,
    is_for_list: bool,
    (options, floor): (&SyncOptions, Option<&Arc<Dir>>),
) -> Result<Vec<PathBuf>, SyncError> {
    if !options.wildcards {
        return Ok(paths);
    }
    let open = |path: &Path| match floor {
        Some(floor) => floor.open_operand_above(path),
        None => Dir::open_operand(path),
    };
    let mut most = asked::MOST_NAMES;
    let mut found = Vec::new();
    for path in &paths {
        found.extend(dsync_fs::expand(path, &mut most, &open).map_err(asked::too_many)?);
    }
    if is_for_list && found.len() > 1 {
        let why = format!("stand for {} directories, and a list is of paths in one", found.len());
        return Err(SyncError::InvalidOption { option: "sources", why });
    }
    Ok(found)
}

/// Returns the error of an operand that cannot be opened.
fn unopened(path: PathBuf, (operation, error): (WalkOperation, &io::Error)) -> SyncError {
    // A link that leads nowhere is not missing itself.
    let is_there = error.kind() != io::ErrorKind::NotFound || operation == WalkOperation::FollowLink;
    match error.raw_os_error() {
        Some(number) if is_there => {
            SyncError::SourceUnreadable { path, source: io::Error::from_raw_os_error(number) }
        }
        _ => SyncError::SourceMissing { path },
    }
}

/// Returns the error of a list's directory that cannot be opened.
fn root_error(path: &Path, error: io::Error) -> SyncError {
    SyncError::of_path(PathRole::Source, path, error, |path, error| {
        match unopened(path, (WalkOperation::Stat, &error)) {
            SyncError::SourceMissing { path } => SyncError::ListRootMissing { path },
            other => other,
        }
    })
}

/// Returns the links that a source follows.
fn followed(options: &SyncOptions) -> FollowLinks {
    FollowLinks {
        all: options.copy_links,
        to_directories: options.copy_dirlinks,
        leading_out: options.copy_unsafe_links,
    }
}
