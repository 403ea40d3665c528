//! `event_tree`: tells of the destination's tree as the run leaves it.
//!
//! The tree is walked once, when everything in it is durable. The law: what is told is what the walk
//! found, and a content is told only of a file that still has the inode, the size and the time with which
//! the run wrote or compared it. Entries that failed are left out. Memory is that of the walk: the
//! contents and the paths that failed go to spools.

use std::io;

use dsync_fs::{
    ContentIndex, Dir, FileVersion, Kind, Metadata, RelPath, Walk, WalkError, WalkOptions, default_readers,
    is_own_name,
};
use dsync_wire::{
    event::{Facts, Present},
    link::LinkError,
    message::Operation,
};

use super::{known::kept, site::Site};
use crate::{
    SyncError,
    failures::{Failed, Failures},
    plan::{file_type_of, timestamp},
};

/// Tells of every entry of the tree, if it is to be told of.
pub(super) fn tell(site: &Site<'_>, root: Option<&Dir>) -> Result<(), SyncError> {
    let (Some(tree), Some(root)) = (&site.present, root) else { return Ok(()) };
    let failed = site.account.failures.as_ref().map(Failures::take).transpose().map_err(kept)?;
    let contents = tree.take_contents()?;
    let teller = Teller { site, failed, contents, own: tree.own };

    let options = WalkOptions {
        recursive: true,
        one_file_system: site.policy.options.one_file_system,
        readers: default_readers(),
        spools: tree.spools.clone(),
        ..WalkOptions::default()
    };
    match Walk::beneath(root, options) {
        Ok(walk) => teller.all(walk),
        Err(WalkError::Root(error)) => teller.problem(&RelPath::root(), &error),
        Err(WalkError::Keep(error)) => Err(kept(error)),
        Err(error) => Err(kept(io::Error::other(error).into())),
    }
}

/// Tells of the entries of a walk.
struct Teller<'a, 'b> {
    site: &'a Site<'b>,
    failed: Option<Failed>,
    contents: Option<ContentIndex>,
    own: Option<(u64, u64)>,
}

impl Teller<'_, '_> {
    fn all(&self, walk: Walk) -> Result<(), SyncError> {
        if let Some(&root) = walk.root() {
            self.entry(&RelPath::root(), &root, Vec::new())?;
        }
        for mut dir in walk {
            if self.site.stopped() {
                return Err(SyncError::Link(LinkError::Closed));
            }
            for entry in std::mem::take(&mut dir.entries) {
                let is_own = is_own_name(entry.name.as_bytes())
                    || self.own == Some((entry.metadata.dev, entry.metadata.ino));
                if !is_own {
                    let text = entry.link_target.unwrap_or_default();
                    self.entry(&dir.path.join(&entry.name), &entry.metadata, text)?;
                }
            }
            dir.problems.iter().try_for_each(|problem| self.problem(&problem.path, &problem.error))?;
        }
        Ok(())
    }

    fn entry(&self, path: &RelPath, metadata: &Metadata, text: Vec<u8>) -> Result<(), SyncError> {
        if self.failed.as_ref().is_some_and(|failed| failed.has(path)) {
            return Ok(());
        }
        let Metadata { kind, mode, uid, gid, mtime, size, rdev, .. } = *metadata;
        let is_file = kind == Kind::File;
        let text = match kind {
            Kind::CharDevice | Kind::BlockDevice => format!("{},{}", rdev.major, rdev.minor).into_bytes(),
            _ => text,
        };
        let find = |contents: &ContentIndex| contents.find(&FileVersion::of(metadata));
        let content = self.contents.as_ref().filter(|_| is_file).and_then(find);
        let facts = Facts::default().mode(mode).mtime(timestamp(mtime)).uid(uid).gid(gid).content(content);

        let present = Present::new(file_type_of(kind), path.as_bytes().to_vec());
        let size = if is_file { size } else { 0 };
        self.site.account.present(present.size(size).text(text).facts(facts))
    }

    /// Reports a path that cannot be read any more. What has gone since is no entry of the tree.
    fn problem(&self, path: &RelPath, error: &io::Error) -> Result<(), SyncError> {
        if error.kind() == io::ErrorKind::NotFound {
            return Ok(());
        }
        self.site.problem(Operation::ReadDirectory, path, super::site::cause(error))
    }
}
