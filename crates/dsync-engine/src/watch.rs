//! Watches on a source's directories, for a program that runs again when something has changed.

use std::{io, path::PathBuf, sync::Arc};

use dsync_fs::{Dir, TreeWatch};

/// Watches the directories of a local source, as its operands name them.
///
/// # Errors
/// The system's error for one that cannot be opened;
/// [`NotADirectory`](io::ErrorKind::NotADirectory) for a file.
///
/// ```
/// use std::time::Duration;
///
/// use dsync_engine::{Seen, TreeWatch, watch_trees};
///
/// # let home = tempfile::tempdir()?;
/// # let source = home.path().to_path_buf();
/// // Watch first, then run: whatever changes during the run is noticed.
/// let mut watch: TreeWatch = watch_trees(&[source.clone()])?;
/// std::fs::write(source.join("new"), "")?;
///
/// // Something has changed: it is time to run again.
/// assert_eq!(watch.take(Duration::from_secs(600))?, Seen::Changed);
/// if let Some(error) = watch.lacking() {
///     eprintln!("some directories are not watched: {error}");
/// }
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn watch_trees(paths: &[PathBuf]) -> io::Result<TreeWatch> {
    let open = |path: &PathBuf| Dir::open_operand(path).map(Arc::new);
    TreeWatch::new(paths.iter().map(open).collect::<io::Result<_>>()?)
}
