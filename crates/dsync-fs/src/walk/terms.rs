//! The terms of a walk: what it is asked for, and what it may fail at.

use std::{
    ffi::OsStr,
    io,
    os::{fd::AsFd, unix::ffi::OsStrExt},
    path::{Path, PathBuf},
    sync::Arc,
};

use super::{choice::Chooser, rulings::WantedRulings};
use crate::{
    Dir, FilterSet, LeadsOut, Links, Spelling, SpoolHome, TreeWatch,
    component::RelPath,
    filter::{Scope, Within},
    own_names::is_own_name,
    source_file::Opening,
    spelling::{is_unspelled, unspellable},
    tree_watch::{LeftOut, Steps, WatchNumber},
};

/// The links that are followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FollowLinks {
    /// All of them (`-L`).
    pub all: bool,
    /// Those to directories (`-k`).
    pub to_directories: bool,
    /// Those whose text leads out of the tree (`--copy-unsafe-links`).
    pub leading_out: bool,
}

impl FollowLinks {
    /// Returns whether any link is followed.
    pub fn any(self) -> bool {
        self.all || self.to_directories || self.leading_out
    }
}

/// Options of a walk.
#[derive(Debug, Clone, Default)]
pub struct WalkOptions {
    /// Descend into directories.
    pub recursive: bool,
    /// List the contents of operands that stand for them, and copy directories without descending.
    pub dirs: bool,
    /// Give entries the path that their operand has, from its `/./` on.
    pub relative: bool,
    /// Leave out the attributes of the root where it is only on the way to a path.
    pub no_implied_dirs: bool,
    /// Treat a missing operand as one whose directory is copied.
    pub missing_counts: bool,
    /// Count what the operands list as whole though one of them is missing.
    pub may_miss: bool,
    /// Leave out directories that hold nothing but directories.
    pub prune: bool,
    /// The links that are followed: what they lead to is walked in their place.
    pub follow: FollowLinks,
    /// A directory that is not entered through a link: the destination of a local run, which would
    /// otherwise grow while it is listed.
    pub barred: Option<PathBuf>,
    /// Do not descend into directories on another filesystem than their operand.
    pub one_file_system: bool,
    /// The entries to leave out.
    pub filter: FilterSet,
    /// The judge of the entries that the filter leaves. Default: none, all of them are copied.
    pub chooser: Option<Chooser>,
    /// List the names of entries that the judge hides.
    pub names_hidden: bool,
    /// Number of threads that read directories ahead; the consumer reads as well.
    pub readers: usize,
    /// Read files without changing their access times, where that is allowed.
    pub open_noatime: bool,
    /// Treat devices as regular files of their content.
    pub copy_devices: bool,
    /// Treat entries as what `user.rsync.*` says they are: see `fake_super`.
    pub fake_super: bool,
    /// The character sets of the names on the disk and in the walk, if they differ.
    pub spelling: Option<Spelling>,
    /// The place for the names of very large directories.
    pub spools: SpoolHome,
    /// The rulings that are wanted.
    pub rulings: WantedRulings,
    /// The watch that all which the walk reads is added to.
    pub watch: Option<TreeWatch>,
    /// The directory where the operands start and that confines them; none: the process's own.
    pub floor: Option<Arc<Dir>>,
}

impl WalkOptions {
    /// Returns whether directories are copied, with or without their contents.
    pub(super) fn takes_directories(&self) -> bool {
        self.recursive || self.dirs
    }

    /// Returns the way in which files are opened.
    pub(super) fn opening(&self) -> Opening {
        Opening { noatime: self.open_noatime, devices: self.copy_devices }
    }

    /// Watches what an operand leads to, and its way, before it is opened. With `follow_last` a link at
    /// its end is followed.
    pub(super) fn watch_operand(&self, path: &Path, follow_last: bool) {
        if let Some(watch) = &self.watch {
            watch.operand(path, Steps { follow_last, all: self.relative });
        }
    }

    /// Watches what a path below `base` leads to, and its way, before it is opened.
    pub(super) fn watch_path(&self, base: &Dir, path: &[u8], follow_last: bool) {
        if let Some(watch) = &self.watch {
            let path = self.spelling.map_or_else(|| path.to_vec(), |spelling| spelling.path_to_here(path));
            watch.way(base.as_fd(), &path, Steps { follow_last, all: true });
        }
    }

    /// Watches a directory before it is listed.
    pub(super) fn watch_directory(&self, dir: &Dir) -> Option<WatchNumber> {
        self.watch.as_ref().and_then(|watch| watch.directory(dir))
    }

    /// Tells the watch of a directory that rules are known, which leave entries out.
    pub(super) fn leave_out(
        &self,
        watched: Option<WatchNumber>,
        dir: &Dir,
        (scope, within): (&Scope, &Within),
    ) {
        if let Some(watch) = self.watch.as_ref().filter(|_| !self.filter.is_empty()) {
            watch.leave_out(watched, LeftOut::new(dir, scope, within, self.follow.any()));
        }
    }

    /// Opens a directory on the way to what an operand, or a line of a list, names below `base`.
    pub(super) fn open_way(&self, base: &Dir, path: &RelPath) -> io::Result<Dir> {
        // Whoever has links followed reads wherever they lead.
        let links = if self.follow.any() { Links::Any } else { Links::Trusted };
        base.open_named(path, links)
    }

    /// Checks that what an operand, or a line of a list, names may be copied: the other end has a
    /// spelling of it, and nobody who is confined to a floor names this crate's own files.
    pub(super) fn check_names(&self, path: &RelPath) -> io::Result<()> {
        let own = path.components().find(|name| is_own_name(name)).filter(|_| self.floor.is_some());
        if let Some(own) = own {
            return Err(LeadsOut::at(OsStr::from_bytes(own).into()).into());
        }
        let lacks = self.spelling.is_some() && path.components().any(is_unspelled);
        if lacks { Err(unspellable()) } else { Ok(()) }
    }

    /// Opens a directory that an operand names.
    pub(super) fn open(&self, path: &Path) -> io::Result<Dir> {
        let opened = match &self.floor {
            Some(floor) => floor.open_operand_above(path),
            None => Dir::open_operand(path),
        };
        Ok(opened?.with_fake_super(self.fake_super).with_spelling(self.spelling))
    }
}

/// The operation during which a walk met a problem.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum WalkOperation {
    /// Opening or listing a directory.
    ReadDirectory,
    /// Reading attributes.
    Stat,
    /// Reading a symbolic link.
    ReadLink,
    /// Finding what a symbolic link leads to.
    FollowLink,
    /// Opening a device whose content is copied.
    OpenDevice,
    /// Reading a file of filter rules; the path is the file's.
    ReadRules,
}

/// Depth of the deepest listed entry, and of the first directory that is not walked. Bounds the
/// memory of a walk through a tree made to exhaust it. The other end refuses anything deeper
/// (`MAX_PATH_DEPTH` of the wire).
pub(super) const MAX_DEPTH: u32 = 4096;
