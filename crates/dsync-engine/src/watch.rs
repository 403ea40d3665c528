//! Watches on a source's directories, for a program that runs again when something has changed.

use std::{io, path::PathBuf, sync::Arc};

use dsync_fs::{Dir, TreeWatch};

/// Watches the directories of a local source, as its operands name them.
///
/// # Errors
/// The system's error for one that cannot be opened;
/// [`NotADirectory`](io::ErrorKind::NotADirectory) for a file.
pub fn watch_trees(paths: &[PathBuf]) -> io::Result<TreeWatch> {
    let open = |path: &PathBuf| Dir::open_operand(path).map(Arc::new);
    TreeWatch::new(paths.iter().map(open).collect::<io::Result<_>>()?)
}
