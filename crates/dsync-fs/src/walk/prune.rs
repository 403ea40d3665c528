//! Directories that hold nothing but directories, which a pruning walk leaves out.
//!
//! Whether a directory is barren is known only when all below it was looked at, and the walk lists
//! a directory before those in it. So each directory is looked through before it is listed. The
//! law: each directory is looked through once, however deep the tree is. What a look learns of
//! directories that the walk lists later is remembered until then.
//!
//! A directory that cannot be read is not barren: the walk reports it. Nor is one that a rule of the
//! command line protects at the destination: with rsync too that is how an empty directory is kept.

use std::{
    collections::HashMap,
    io,
    sync::{Mutex, PoisonError},
};

use super::{
    choice::Choice,
    terms::{MAX_DEPTH, WalkOptions},
};
use crate::{
    component::{Component, RelPath},
    dir::Dir,
    filter::{Scope, Within},
    metadata::Kind,
    own_names::is_own_name,
};

/// Verdicts on directories that the walk has not listed yet, by layer and path.
#[derive(Debug, Default)]
pub(super) struct Looks(Mutex<HashMap<(u32, RelPath), bool>>);

/// A directory while it is looked through.
struct Frame {
    path: RelPath,
    /// Its directories that were not looked at.
    left: Vec<Component>,
    /// Its barren directories.
    barren: Vec<Component>,
    /// The rules in force in it.
    scope: Scope,
}

impl Looks {
    /// Returns whether the directory of this name holds nothing but directories, in one layer.
    /// `above` is its open parent, whose path below the transfer's root is `within`, with the rules
    /// in force there; `device` the filesystem of the operand.
    pub(super) fn is_barren(
        &self,
        options: &WalkOptions,
        (above, layer, device): (&Dir, u32, u64),
        (within, scope): (&RelPath, Scope),
        name: &Component,
    ) -> bool {
        let left = vec![name.clone()];
        let mut frames = vec![Frame { path: within.clone(), left, barren: Vec::new(), scope }];

        while let Some(frame) = frames.last_mut() {
            let Some(name) = frame.left.pop() else {
                let done = frames.pop();
                let name = done.and_then(|done| done.path.file_name());
                if let (Some(parent), Some(name)) = (frames.last_mut(), name) {
                    parent.barren.push(name);
                }
                continue;
            };
            let path = frame.path.join(&name);
            let seen = match self.take(layer, &path) {
                Some(barren) => barren.then(|| (Vec::new(), Scope::default())),
                None => directories_of(options, (above, device), within, (&path, &frame.scope))
                    .unwrap_or_default(),
            };
            match seen {
                Some((left, scope)) => frames.push(Frame { path, left, barren: Vec::new(), scope }),
                None => {
                    self.remember(layer, frames, &path);
                    return false;
                }
            }
        }
        true
    }

    /// Remembers what was learnt of directories that the walk will list: those on the way to
    /// something that is no directory, and the barren ones beside them.
    fn remember(&self, layer: u32, frames: Vec<Frame>, found: &RelPath) {
        let mut verdicts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // The first frame is the directory that asks, about this one name.
        let mut on_the_way: Vec<RelPath> = frames.iter().skip(2).map(|frame| frame.path.clone()).collect();
        if frames.len() > 1 {
            on_the_way.push(found.clone());
        }
        let barren = frames.into_iter().skip(1).flat_map(|frame| {
            let path = frame.path;
            frame.barren.into_iter().map(move |name| (path.join(&name), true))
        });
        for (path, is_barren) in on_the_way.into_iter().map(|path| (path, false)).chain(barren) {
            // Beyond the bound a directory is looked through again.
            if verdicts.len() < MAX_VERDICTS {
                verdicts.insert((layer, path), is_barren);
            }
        }
    }

    /// Takes the verdict on a directory.
    fn take(&self, layer: u32, path: &RelPath) -> Option<bool> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&(layer, path.clone()))
    }
}

/// Returns the directories in a directory that the walk would descend into, and the rules in force in it;
/// `None` if it has anything but directories, or may have, or is protected. `scope` has the rules above.
fn directories_of(
    options: &WalkOptions,
    (above, device): (&Dir, u64),
    within: &RelPath,
    (path, scope): (&RelPath, &Scope),
) -> io::Result<Option<(Vec<Component>, Scope)>> {
    if options.filter.protects_directory(path.as_bytes()) {
        return Ok(None);
    }

    let dir = above.open_beneath(&path.below(within).unwrap_or_default())?;
    if options.one_file_system && Some(device) != dir.device().ok() {
        return Ok(Some((Vec::new(), Scope::default())));
    }

    let watched = options.watch_directory(&dir);
    let scope = scope.enter(&dir, path).map_err(io::Error::other)?;
    let mut entries = Within::new(&options.filter, path);
    options.leave_out(watched, &dir, (&scope, &entries));
    let (mut found, mut complete) = (Vec::new(), path.depth() < MAX_DEPTH as usize);
    let mut other = false;
    let error = dir.for_each_name_once(&mut complete, |name, _, kind| {
        if other || is_own_name(name.as_bytes()) {
            return;
        }
        let kind = kind.or_else(|| dir.stat(&name).ok().map(|metadata| metadata.kind));
        let is_dir = kind == Some(Kind::Dir);
        if entries.excludes(&scope, name.as_bytes(), is_dir) {
            return;
        }
        match choice(options, &dir, (path, &name)) {
            Some(Choice::Hide) => return,
            Some(Choice::CopyAlone) if is_dir => return,
            Some(_) => {}
            // Where nobody judges, something may be there.
            None => other = true,
        }
        // A walk that does not descend lists a directory as an empty one, whatever is in it.
        let keeps = || !options.recursive && options.filter.protects_directory(path.join(&name).as_bytes());
        other |= !is_dir || found.len() >= MAX_DIRECTORIES || keeps();
        if options.recursive {
            found.push(name);
        }
    });
    let is_known = error.is_none() && complete && !other;
    Ok(is_known.then_some((found, scope)))
}

/// Asks the walk's judge about an entry of a directory that is looked through.
fn choice(options: &WalkOptions, dir: &Dir, (path, name): (&RelPath, &Component)) -> Option<Choice> {
    let Some(chooser) = &options.chooser else { return Some(Choice::Copy) };
    chooser.choose(path.join(name).as_bytes(), &dir.stat(name).ok()?)
}

/// Verdicts that are remembered: some 100 MB.
const MAX_VERDICTS: usize = 1 << 20;
/// Directories of one directory; one with more is not barren.
const MAX_DIRECTORIES: usize = 1 << 20;
