//! A directory of one test's own.

use std::{
    ffi::OsString,
    fs,
    os::unix::ffi::{OsStrExt, OsStringExt},
    path::{Path, PathBuf},
};

use tempfile::TempDir;

use crate::tree::set_mtime;

/// A temporary directory with a `src` in it, removed at the end of the test.
#[derive(Debug)]
pub struct Scratch {
    dir: TempDir,
}

impl Scratch {
    /// Makes one under the system's temporary directory, readable by every user.
    ///
    /// # Panics
    /// If it cannot be made.
    pub fn new() -> Self {
        Self::under(&std::env::temp_dir())
    }

    /// Makes one in the directory `parent`.
    ///
    /// # Panics
    /// If it cannot be made.
    pub fn under(parent: &Path) -> Self {
        use std::os::unix::fs::PermissionsExt;
        let dir =
            tempfile::Builder::new().prefix("dsync-e2e-").tempdir_in(parent).expect("a scratch directory");
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).expect("scratch permissions");
        let src = dir.path().join("src");
        fs::create_dir(&src).expect("the source directory");
        // Not "now": to rsync, a destination made in the same second would look up to date.
        set_mtime(&src, (1_100_000_000, 5));
        Self { dir }
    }

    /// Returns the directory itself.
    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    /// Returns a path in it.
    pub fn at(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Returns the source directory.
    pub fn src(&self) -> PathBuf {
        self.at("src")
    }

    /// Returns the destination, which does not exist at first.
    pub fn dst(&self) -> PathBuf {
        self.at("dst")
    }
}

impl Default for Scratch {
    fn default() -> Self {
        Self::new()
    }
}

/// Returns the path with a slash at its end, which means its contents to rsync.
pub fn slash(path: &Path) -> OsString {
    let mut bytes = path.as_os_str().as_bytes().to_vec();
    bytes.push(b'/');
    OsString::from_vec(bytes)
}
