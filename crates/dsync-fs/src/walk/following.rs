//! Links that a walk follows, so that an entry of the tree is what a link leads to.
//!
//! The law: a walk that follows links ends. A link to a directory that the path has come through
//! already, or one behind more links than the kernel would follow, is a problem of its path.

use std::{io, os::fd::AsFd};

use rustix::io::Errno;

use super::{
    dir_ref::DirRef,
    terms::{FollowLinks, WalkOperation},
};
use crate::{
    component::Component,
    dir::{Dir, Target},
    metadata::{Kind, Metadata, Origin},
    tree_watch::{Steps, TreeWatch},
};

impl FollowLinks {
    /// Returns the attributes of the entry that a link leads to, which has `depth` directories above
    /// it; `None` if the link is not followed. Whatever is on the way of a link that may be followed
    /// gets a watch.
    ///
    /// # Errors
    /// The operation that failed, and the reason.
    pub(super) fn target(
        self,
        dir: &Dir,
        depth: impl FnOnce() -> usize,
        name: &Component,
        link: &Metadata,
        watch: Option<&TreeWatch>,
    ) -> Result<Option<Metadata>, (WalkOperation, io::Error)> {
        if !self.any() || link.kind != Kind::Symlink {
            return Ok(None);
        }
        let leads_out = || -> io::Result<bool> { Ok(leads_out(depth(), &dir.read_link(name)?)) };
        let follow =
            self.all || self.leading_out && leads_out().map_err(|error| (WalkOperation::ReadLink, error))?;
        if link.origin != Origin::Inode {
            // A link that `--fake-super` keeps in a file leads nowhere here.
            let refusal = (WalkOperation::FollowLink, Errno::OPNOTSUPP.into());
            return if follow { Err(refusal) } else { Ok(None) };
        }
        if let Some(watch) = watch.filter(|_| follow || self.to_directories) {
            let name = dir.spelled(name).map_err(|error| (WalkOperation::FollowLink, error))?;
            watch.way(dir.as_fd(), name.to_bytes(), Steps { follow_last: true, all: false });
        }
        if !follow {
            let to_directory = self.to_directories.then(|| dir.stat_target(name).ok()).flatten();
            return Ok(to_directory.filter(|target| target.kind == Kind::Dir));
        }

        match dir.stat_target(name) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => match dir.stat(name) {
                // The link itself is gone.
                Err(gone) => Err((WalkOperation::Stat, gone)),
                Ok(_) => Err((WalkOperation::FollowLink, Errno::NOENT.into())),
            },
            Err(error) => Err((WalkOperation::FollowLink, error)),
            Ok(target) => Ok(Some(target)),
        }
    }
}

/// Returns whether a link is not followed because there is nothing where it leads, or it leads to
/// itself.
pub(super) fn leads_nowhere(operation: WalkOperation, error: &io::Error) -> bool {
    let reason = Errno::from_io_error(error);
    operation == WalkOperation::FollowLink
        && matches!(reason, Some(Errno::NOENT | Errno::NOTDIR | Errno::LOOP))
}

/// A directory on the way to an entry, in one layer.
#[derive(Debug, Clone, Copy)]
pub(super) struct Passed {
    pub(super) layer: u32,
    pub(super) directory: Target,
    /// Whether a link leads to it.
    pub(super) by_link: bool,
}

/// Refuses a link in `within` to a directory that the way there has passed already, or that is
/// behind too many links.
pub(super) fn refuse_circle(within: &DirRef, layer: u32, target: Target) -> io::Result<()> {
    let (mut links, mut circle) = (0, false);
    within.for_each_passed(layer, |passed| {
        links += usize::from(passed.by_link);
        circle |= passed.directory == target;
    })?;
    if circle || links >= MAX_LINKS { Err(Errno::LOOP.into()) } else { Ok(()) }
}

/// Returns whether a link is not safe by its text alone, as rsync judges it: it is absolute, begins
/// with more `..` than there are directories of the tree `above` it, or goes up again later on,
/// where the directory it passes through may be a link itself.
pub fn leads_out(above: usize, text: &[u8]) -> bool {
    let mut above = above;
    let mut goes_down = false;
    for step in text.split(|&byte| byte == b'/') {
        match (step, above.checked_sub(1)) {
            (b"" | b".", _) => {}
            (b"..", Some(left)) if !goes_down => above = left,
            (b"..", _) => return true,
            _ => goes_down = true,
        }
    }
    text.is_empty() || text.starts_with(b"/")
}

/// Most links on one path, as in the kernel.
const MAX_LINKS: usize = 40;
