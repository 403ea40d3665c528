//! A directory of one test's own.

use std::{
    ffi::OsString,
    fs,
    os::unix::ffi::{OsStrExt, OsStringExt},
    path::{Path, PathBuf},
};

use tempfile::TempDir;

use crate::tree::set_mtime;

/// A temporary directory with a `src` in it, gone at the end of the test.
#[derive(Debug)]
pub struct Scratch {
    dir: TempDir,
}

impl Scratch {
    /// Makes one under the system's temporary directory, readable by every user.
    ///
    /// # Panics
    /// When it cannot be made.
    pub fn new() -> Self {
        Self::under(&std::env::temp_dir())
    }

    /// Makes one in the directory `parent`.
    ///
    /// # Panics
    /// When it cannot be made.
    pub fn under(parent: &Path) -> Self {
        use std::os::unix::fs::PermissionsExt;
        let dir =
            tempfile::Builder::new().prefix("dsync-e2e-").tempdir_in(parent).expect("a scratch directory");
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).expect("scratch permissions");
        let src = dir.path().join("src");
        fs::create_dir(&src).expect("the source directory");
        // Not "now": a destination made in the same second would look up to date to rsync.
        set_mtime(&src, (1_100_000_000, 5));
        Self { dir }
    }

    /// The directory itself.
    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    /// A path in it.
    pub fn at(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// The source directory.
    pub fn src(&self) -> PathBuf {
        self.at("src")
    }

    /// The destination, which does not exist at first.
    pub fn dst(&self) -> PathBuf {
        self.at("dst")
    }
}

impl Default for Scratch {
    fn default() -> Self {
        Self::new()
    }
}

/// The path with a slash at its end: "what is in it" to rsync.
pub fn slash(path: &Path) -> OsString {
    let mut bytes = path.as_os_str().as_bytes().to_vec();
    bytes.push(b'/');
    OsString::from_vec(bytes)
}
