//! Entries here that a typed word may name, beside what it says.

use std::{ffi::OsStr, os::unix::fs::FileTypeExt as _, path::Path};

use dsync_engine::FileType;

/// Returns whether there is an entry of this name here.
#[expect(clippy::disallowed_methods, reason = "a hint about a word that was typed; nothing is opened")]
pub(crate) fn is_here(name: &OsStr) -> bool {
    Path::new(name).symlink_metadata().is_ok()
}

/// Returns the length of a file that was just written; 0 if it cannot be looked at.
#[expect(clippy::disallowed_methods, reason = "a number in a line about the file; nothing is opened")]
pub(crate) fn bytes_here(file: &Path) -> u64 {
    file.metadata().map_or(0, |found| found.len())
}

/// Returns the type of an entry below a tree, if it can be looked at and no link is on the way.
#[expect(clippy::disallowed_methods, reason = "a word about a difference that was found; nothing is opened")]
pub(crate) fn type_here(tree: &Path, below: &Path) -> Option<FileType> {
    let mut at = tree.to_path_buf();
    let (directories, name) = (below.parent()?, below.file_name()?);
    for step in directories {
        at.push(step);
        at.symlink_metadata().ok().filter(std::fs::Metadata::is_dir)?;
    }

    let found = at.join(name).symlink_metadata().ok()?.file_type();
    Some(match () {
        () if found.is_dir() => FileType::Directory,
        () if found.is_symlink() => FileType::Symlink,
        () if found.is_fifo() => FileType::Fifo,
        () if found.is_socket() => FileType::Socket,
        () if found.is_char_device() => FileType::CharDevice,
        () if found.is_block_device() => FileType::BlockDevice,
        () => FileType::File,
    })
}
