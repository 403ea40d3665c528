//! A run between two ends whose names are in different character sets.
//!
//! The law: what the caller says and hears is in this end's set, except for the other end's own
//! paths where that is remote; all that the run works with is in the other end's set. Only this
//! end's open directories know of both ([`dsync_fs::Spelling`]). The other end needs no part in it.
//!
//! Paths that this end opens stay as they were written.

use std::{
    ffi::{OsStr, OsString},
    os::unix::ffi::{OsStrExt as _, OsStringExt as _},
    path::{Path, PathBuf},
};

use dsync_fs::{FileList, FileListWriter, Spelling, SpoolHome, is_unspelled};
use dsync_wire::{
    event::{Event, Progress},
    options::SyncOptions,
    path::EntryPath,
    ruling::{RulePlace, Ruled},
};

use crate::{
    Connection, FileProgress, Observer, Reconnect, SyncError,
    ends::{Destination, FilesFrom, Source},
};

/// Returns paths of this end as the tree has their names.
pub(crate) fn paths(paths: &[PathBuf], spelling: Option<Spelling>) -> Vec<PathBuf> {
    let in_tree = |path: &PathBuf| in_tree(path, spelling);
    paths.iter().map(in_tree).collect()
}

/// Returns a path of this end as the tree has its names.
pub(crate) fn in_tree(path: &Path, spelling: Option<Spelling>) -> PathBuf {
    match spelling {
        Some(spelling) => OsString::from_vec(spelling.path_to_there(path.as_os_str().as_bytes())).into(),
        None => path.to_owned(),
    }
}

/// Returns the source as the run has it.
///
/// # Errors
/// [`SyncError::InvalidOption`] for a path that the other end cannot have.
pub(crate) fn source(source: Source, spelling: Spelling) -> Result<Source, SyncError> {
    let there = |paths: Vec<OsString>| -> Result<Vec<_>, SyncError> {
        paths.into_iter().map(|path| there(&path, spelling)).collect()
    };
    Ok(match source {
        here @ (Source::Local { .. } | Source::Files { .. } | Source::Manifest { .. }) => here,
        Source::Remote { host, paths } => Source::Remote { host, paths: there(paths)? },
        Source::Peer { paths } => Source::Peer { paths: there(paths)? },
        Source::Batch(batch) => Source::Batch(batch),
    })
}

/// Returns the destination as the run has it.
///
/// # Errors
/// As [`source`].
pub(crate) fn destination(destination: Destination, spelling: Spelling) -> Result<Destination, SyncError> {
    Ok(match destination {
        Destination::Remote { host, path } => Destination::Remote { host, path: there(&path, spelling)? },
        Destination::Peer { path } => Destination::Peer { path: there(&path, spelling)? },
        here => here,
    })
}

/// Returns the list of paths as the run has it.
///
/// # Errors
/// As [`source`]; [`SyncError::FileList`] where the lines cannot be kept.
pub(crate) fn files_from(
    list: FilesFrom,
    spools: &SpoolHome,
    spelling: Spelling,
) -> Result<FilesFrom, SyncError> {
    match list {
        FilesFrom::AtPeer { path, nul } => Ok(FilesFrom::AtPeer { path: there(&path, spelling)?, nul }),
        FilesFrom::List(list) => {
            let listed = of_list(&list, spools, spelling);
            listed.map(FilesFrom::List).map_err(|source| SyncError::FileList { path: None, source })
        }
    }
}

fn of_list(
    list: &FileList,
    spools: &SpoolHome,
    spelling: Spelling,
) -> Result<FileList, dsync_fs::FileListError> {
    let mut spelled = FileListWriter::new(list.is_relative(), spools);
    for line in list.lines() {
        spelled.push(&spelling.path_to_there(&line))?;
    }
    spelled.finish()
}

/// Returns the options as the run has them. `far` is whether the destination is at the other end,
/// whose directories they then name.
///
/// # Errors
/// As [`source`].
pub(crate) fn options(
    mut options: SyncOptions,
    far: bool,
    spelling: Spelling,
) -> Result<SyncOptions, SyncError> {
    for rule in &mut options.filters {
        rule.pattern = spelling.pattern_to_there(&rule.pattern);
    }
    for path in &mut options.explain {
        *path = spelling.path_to_there(path).into();
    }

    let writing = &mut options.writing;
    let path = |path: &mut Vec<u8>| -> Result<(), SyncError> {
        *path = there(OsStr::from_bytes(path), spelling)?.into_vec();
        Ok(())
    };
    if let Some(backup) = &mut writing.backup {
        path(&mut backup.suffix)?;
        backup.dir.iter_mut().filter(|_| far).try_for_each(path)?;
    }
    // A name beside each target, or a directory.
    let is_name = |dir: &&mut Vec<u8>| far || !dir.contains(&b'/');
    writing.partial_dir.iter_mut().filter(is_name).try_for_each(path)?;
    if far {
        writing.temp_dir.iter_mut().try_for_each(path)?;
        let dirs = writing.alternates.iter_mut().flat_map(|alternates| &mut alternates.dirs);
        dirs.into_iter().try_for_each(path)?;
    }
    Ok(options)
}

/// Returns a path of the other end as that end has it.
fn there(path: &OsStr, spelling: Spelling) -> Result<OsString, SyncError> {
    let spelled = spelling.path_to_there(path.as_bytes());
    if spelled.split(|&byte| byte == b'/').any(is_unspelled) {
        let why = format!("cannot spell '{}' at the other end", path.to_string_lossy());
        return Err(SyncError::InvalidOption { option: "spelling", why });
    }
    Ok(OsString::from_vec(spelled))
}

/// An observer that hears of names in this end's set.
pub(crate) struct Hears<'a> {
    pub(crate) observer: &'a dyn Observer,
    pub(crate) spelling: Spelling,
}

impl Hears<'_> {
    fn spell(&self, path: &mut EntryPath) {
        *path = self.spelling.path_to_here(path).into();
    }

    fn spell_rule(&self, why: &mut Ruled) {
        if let Ruled::Hidden(place) | Ruled::Shown(place) | Ruled::Protected(place) = why
            && let RulePlace::File { path, .. } = place
        {
            self.spell(path);
        }
    }

    fn spell_event(&self, event: &mut Event) {
        match event {
            Event::Planned(planned) => {
                self.spell(&mut planned.path);
                planned.target = self.spelling.path_to_here(&planned.target);
            }
            Event::Failed(problem) => self.spell(&mut problem.path),
            Event::LeftAlone(left) => self.spell(&mut left.path),
            Event::BackedUp(kept) => {
                self.spell(&mut kept.path);
                self.spell(&mut kept.backup);
            }
            Event::Done(done) => self.spell(&mut done.path),
            Event::Removed(path) => self.spell(path),
            Event::Present(present) => self.spell(&mut present.path),
            Event::Ruling(ruling) => {
                self.spell(&mut ruling.path);
                self.spell_rule(&mut ruling.why);
            }

            // It has numbers only; so may others that come to be.
            _ => {}
        }
    }
}

impl Observer for Hears<'_> {
    fn connected(&self, connection: &Connection) {
        self.observer.connected(connection);
    }

    fn shell_says(&self, lines: &[String]) {
        self.observer.shell_says(lines);
    }

    fn peer_lacks(&self, lacks: &[String]) {
        self.observer.peer_lacks(lacks);
    }

    fn reconnecting(&self, reconnect: &Reconnect<'_>) {
        self.observer.reconnecting(reconnect);
    }

    fn event(&self, event: &Event) {
        let mut event = event.clone();
        self.spell_event(&mut event);
        self.observer.event(&event);
    }

    fn progress(&self, progress: &Progress) {
        self.observer.progress(progress);
    }

    fn file(&self, file: &FileProgress) {
        let mut file = file.clone();
        self.spell(&mut file.path);
        self.observer.file(&file);
    }
}
