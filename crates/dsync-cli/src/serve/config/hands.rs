//! The users who could have written a configuration.

use std::{
    io,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

/// Returns why an entry could be another user's work, if it could.
pub(super) fn foreign_hand(uid: u32, mode: u32) -> Option<String> {
    if uid != 0 && uid != rustix::process::geteuid().as_raw() {
        return Some(format!("belongs to user {uid}, not to root or to the user who runs the server"));
    }
    (mode & OTHERS_WRITE != 0).then(|| format!("can be written by others (mode {:04o})", mode & 0o7777))
}

/// Returns the first directory on the way to a file in which others can replace it.
#[expect(clippy::disallowed_methods, reason = "the operator's own path; each directory is only judged")]
pub(super) fn foreign_directory(path: &Path) -> io::Result<Option<(PathBuf, String)>> {
    let real = path.canonicalize()?;
    for dir in real.ancestors().skip(1) {
        let found = dir.metadata()?;
        // In a sticky directory others make entries of their own and touch no other.
        let sticky = found.mode() & STICKY != 0 && found.uid() == 0;
        if let Some(why) = foreign_hand(found.uid(), found.mode()).filter(|_| !sticky) {
            return Ok(Some((dir.to_owned(), why)));
        }
    }
    Ok(None)
}

/// Write permission of the group and of others.
const OTHERS_WRITE: u32 = 0o022;
const STICKY: u32 = 0o1000;
