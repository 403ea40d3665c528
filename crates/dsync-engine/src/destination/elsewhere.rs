//! Old files of other places that serve as the basis of new files (`--detect-renamed`): what was
//! moved or copied at the source.
//!
//! The law is that of every basis: whatever a file found here is, and whatever becomes of it, the
//! new file's content is checked like any other. A file that has changed or gone since it was
//! indexed costs what it would have saved, and nothing else.

use std::{io, sync::Arc};

use dsync_fs::{Dir, FileIndex, IndexedAt, Opening, RelPath, Sought, SourceFile};

/// The files of the destination, and of the directories beside it, that may be a basis.
pub(super) struct Elsewhere {
    pub(super) trees: Vec<Tree>,
    pub(super) index: FileIndex,
}

/// A tree that has files.
pub(super) struct Tree {
    pub(super) root: Arc<Dir>,
    /// The tree's path as the options have it; empty for the destination itself.
    pub(super) named: Vec<u8>,
}

/// A file of another place. It is opened by its path when it is needed, so that those in flight
/// hold no directory open.
#[derive(Clone)]
pub(super) struct FoundElsewhere {
    elsewhere: Arc<Elsewhere>,
    at: IndexedAt,
}

impl Elsewhere {
    /// Returns the file that a new one may have been moved or copied from.
    pub(super) fn find(self: &Arc<Self>, sought: &Sought<'_>) -> Option<FoundElsewhere> {
        let at = self.index.find(sought)?;
        Some(FoundElsewhere { elsewhere: Arc::clone(self), at })
    }
}

impl FoundElsewhere {
    /// Opens the file.
    pub(super) fn open(&self, opening: Opening) -> io::Result<SourceFile> {
        let gone = || io::Error::from(io::ErrorKind::NotFound);
        let (tree, path) = self.place().ok_or_else(gone)?;
        let name = path.file_name().ok_or_else(gone)?;
        match path.parent() {
            Some(parent) if !parent.is_root() => {
                tree.root.open_beneath(&parent)?.open_source_as(&name, opening)
            }
            _ => tree.root.open_source_as(&name, opening),
        }
    }

    /// Returns the file's path: in the destination below its root, else as the options have it.
    pub(super) fn path(&self) -> Option<Vec<u8>> {
        let (tree, path) = self.place()?;
        Some(match tree.named.as_slice() {
            [] => path.as_bytes().to_vec(),
            named => [named, path.as_bytes()].join(&b'/'),
        })
    }

    fn place(&self) -> Option<(&Tree, RelPath)> {
        let (tree, path) = self.elsewhere.index.path(self.at)?;
        Some((self.elsewhere.trees.get(usize::from(tree))?, path))
    }
}
