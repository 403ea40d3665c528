//! Names of a tree's manifest and of what goes with it.

use std::path::{Path, PathBuf};

/// Returns the manifest's place where none is named: beside the tree, where no `--delete` reaches it.
pub(crate) fn beside(tree: &Path) -> PathBuf {
    // `components` drops slashes at the end and `/.`, which would name another file.
    let written = tree.components().as_path();
    // `.` and `..` name a directory without its name.
    let real = if written.file_name().is_none() { real_path(tree) } else { None };
    let mut name = real.as_deref().unwrap_or(written).as_os_str().to_owned();
    name.push(".dsync-manifest");
    name.into()
}

/// Returns the path of a directory without links and `..`; `None` if it cannot be reached.
#[allow(clippy::disallowed_methods)] // The path is the operator's own, and only a name is taken from it.
fn real_path(tree: &Path) -> Option<PathBuf> {
    tree.canonicalize().ok()
}

/// Returns the place of the times of reading: beside the manifest.
pub(crate) fn times_beside(manifest: &Path) -> PathBuf {
    let mut name = manifest.as_os_str().to_owned();
    name.push(".verified");
    name.into()
}
