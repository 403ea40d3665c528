//! Refusals that need both ends: a tree is never copied into itself.
//!
//! Only a local run can do that. A destination inside the source is fine when the filters exclude it,
//! the usual way to keep backups within the tree that they are of.

use std::{
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

use dsync_fs::{Dir, FilterSet, OperandForm};

use crate::SyncError;

/// Refuses a local run whose destination is, or lies inside, one of its sources.
pub(crate) fn refuse_self_copy(
    sources: &[PathBuf],
    destination: &Path,
    filter: &FilterSet,
) -> Result<(), SyncError> {
    // What cannot be opened or located fails, or is made, later.
    let Some(landing) = landing(destination) else { return Ok(()) };
    for source in sources {
        let Ok(form) = OperandForm::of(source) else { continue };
        let (tree, name) = match &form {
            OperandForm::Contents(path) => (Dir::open_operand(path), None),
            // A link given by name is copied as a link; there is no tree to be inside of.
            OperandForm::Entry { parent, name } => {
                (Dir::open_operand(parent).and_then(|parent| parent.open_child(name)), Some(name))
            }
        };
        let Ok(tree) = tree.and_then(|tree| tree.real_path()) else { continue };
        let Ok(inside) = landing.strip_prefix(&tree) else { continue };
        let mut path = name.map_or_else(Vec::new, |name| name.as_bytes().to_vec());
        let mut excluded = false;
        for step in inside.components() {
            if !path.is_empty() {
                path.push(b'/');
            }
            path.extend_from_slice(step.as_os_str().as_bytes());
            excluded |= filter.excludes(&path, true);
        }
        if !excluded {
            return Err(SyncError::DestinationInsideSource { path: destination.to_owned() });
        }
    }
    Ok(())
}

/// Where the destination is, or will be: its nearest existing directory with the missing rest.
fn landing(destination: &Path) -> Option<PathBuf> {
    if let Ok(dir) = Dir::open_operand(destination) {
        return dir.real_path().ok();
    }
    let parent = match destination.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let above = if parent == destination { return None } else { landing(parent)? };
    Some(above.join(destination.file_name()?))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::disallowed_methods)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_is_not_copied_into_itself() {
        let scratch = tempfile::tempdir().unwrap();
        let at = |path: &str| scratch.path().join(path);
        std::fs::create_dir_all(at("src/sub")).unwrap();
        std::fs::create_dir_all(at("src-2")).unwrap();
        let none = FilterSet::default();
        let refused = |source: &str, destination: &str, filter: &FilterSet| {
            refuse_self_copy(&[at(source)], &at(destination), filter).is_err()
        };
        assert!(refused("src/", "src", &none));
        assert!(refused("src/", "src/sub", &none));
        assert!(refused("src", "src/sub/not/yet", &none));
        assert!(!refused("src/", "src-2", &none), "a common prefix is not a parent");
        assert!(!refused("src/sub/", "src", &none), "copying upwards ends");
        assert!(!refused("src", ".", &none), "a tree onto itself changes nothing");
        let filter = FilterSet::compile(&[(false, b"/sub")]).unwrap();
        assert!(!refused("src/", "src/sub", &filter), "excluded");
    }
}
